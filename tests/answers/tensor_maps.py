"""Tensor maps: every argument at both sides of its limits, and the bytes that kernels are given."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilewise as tw
from tilewise.devices.gpu.driver_tensor_map import driver_values
from tilewise.devices.tensor_map import BYTES, ELEMENTS

LINES = """
made(array(256, 512, dtype=«'uint8'|'int8'|'bool'|'uint16'|'int16'|'float16'|'bfloat16'|'uint32'|'int32'|'float32'|'uint64'|'int64'|'float64'|'float8_e4m3fn'|'int4'|'complex64'|'S1'|'U1'|'complex128'»), (16, 16))
made(array(256, 512, dtype='float32'), (16, 8), dtype=«'tfloat32'|'tfloat32_ftz'|'float32_ftz'|'float16'|'uint32'|'flat'|np.float32|'float8_e5m2'|5|None»)
made(array(256, 512), («0|1|256|257|-1|1.0|True», «4|8|16|64|12»))
made(array(64, 64), box=«(8,)|(8, 8, 8)|8|'88'|[8, 8]|None|()»)
made(array(*[8] * «0|1|2|3|4|5|6»), (8,) * «1|2|3|4|5»)
made(array(256, 512), (64, «8|16|32|64|128»), swizzle=«None|0|32|64|128|16|256|True|'32'»)
made(array(256, 512), (64, 64), l2_promotion=«None|0|64|128|256|32|True», fill=«'zero'|'nan'|'one'|None»)
made(array(256, 512, dtype=«'int32'|'float64'|'uint8'»), (64, 16), fill='nan')
made(array(4, 8, 6, 16, 8), («1|2», «1|2», 2, 8), interleave=«None|16|32|8|64|True», swizzle=«None|32»)
made(array(4, 8, 6, 16, 16), (1, 1, 2, 8), interleave=«16|32», swizzle=«None|32|64»)
made(array(«4|4, 4|4, 4, 4|4, 4, 4, 4, 4, 4», 8), (1, 1, 1)[:«1|2|3»], interleave=16)
made(array(256, 512), (64, 64), element_strides=«None|(1, 1)|(2, 1)|(8, 1)|(9, 1)|(0, 1)|(1, 2)|(2,)|5»)
made(array(16, 64, 64), (16, 64, 64), element_strides=«(1, 1, 1)|(2, 1, 1)|(3, 2, 1)»)
made(array(256, 256, dtype='float32'), («226|227|228», 256))
made(array(64, 256, 4, dtype='float32'), (56, «255|256», 4))
made(array(256, 1024, dtype='uint8'), (256, 256), element_strides=(«1|2», 1))
made(«16|0|8|32|-1|2**64 - 16|2**64|True|1.0|'16'|None|[1]», (8, 8), shape=«(64, 64)|None», dtype=«'float16'|None»)
made(«32|16», (1, 1, 2, 8), shape=(4, 2, 6, 6, 16), dtype='float16', interleave=32, swizzle=32)
made(0, (8, 8), shape=(«0|1|2**32|2**32 + 1|-1|1.5», «8|2**32»), dtype='float16', strides=(«0|16|24|2**40 - 16|2**40|-16|'8'»,))
made(0, (8, 8), shape=(64, 64), dtype='float16', strides=«()|(128, 2)|128|None|(136,)|(1.0,)»)
made(array(64, 64), (8, 8), shape=«(64, 64)|(65, 64)|(32, 128)|(4096,)|(63, 64)», strides=«None|(128,)|(256,)|(144,)»)
made(array(64, 64)[:, «::1|::2|8:|:60»], (8, 8))
made(emulated(array(64, 64))[:, «::1|::2|8:|:60»], (8, 8))
made(emulated(array(«64, 64|64, 60|60, 64»))«.T|», (8, 8))
made(emulated(array(64, 4, 16))[«::1|::2», «::1|::2», «::1|::2|:8»], «(8, 2, 8)|(8, 2)», interleave=«None|16|32», swizzle=«None|32»)
made(«object()|[[1.0]]|'a'|array(64, 64).astype(object)|np.float32(1)», (8, 8))
im2col(array(8, «1|31|32», 32, 64), lower=(-1, -1), upper=(-1, -1), channels=64, pixels=128, swizzle=«None|128|64»)
im2col(array(8, 32, 64), lower=(«-32768|-32769|0|32767|32768»,), upper=(«-32768|0|32767|-33|-32|-31»,), channels=64, pixels=16)
im2col(array(8, 8, 8, 64), lower=(«-128|-129|0|8|7», «-1|127|128»), upper=(«-1|0|127|128», 0), channels=64, pixels=16)
im2col(array(2, 8, 8, 8, 64), lower=(«-16|-17|0|15|16», 0, 0), upper=(«-16|0|15|16», 0, 0), channels=64, pixels=16)
im2col(array(8, 8, 8, 64), lower=«(0,)|(0, 0, 0)|0|None|(0.5, 0)», upper=(0, 0), channels=«0|1|8|64|256|257|True», pixels=«0|1|1024|1025|2.0»)
im2col(array(*[8] * «1|2|3|4|5|6»), lower=(0,), upper=(0,), channels=8, pixels=8)
im2col(array(4, 8, 6, 6, 8), lower=(0, 0), upper=(«0|-6|-5», 0), channels=«8|4|16», pixels=8, interleave=«None|16|32»)
im2col(0, shape=(8, «2**31 - 1|2**31», «2**31 - 1|2**31», 64), dtype='float16', strides=(16, 16, 128), lower=(0, 0), upper=(0, 0), channels=64, pixels=16)
im2col(0, shape=(8, 4, «2**31 - 1|2**31», 8, 8), dtype='float16', strides=(16, 16, 16), lower=(0, 0), upper=(0, 0), channels=8, pixels=16, interleave=16)
im2col(array(8, 8, 8, 256, dtype='float32'), lower=(0, 0), upper=(0, 0), channels=256, pixels=«226|227|228», element_strides=«None|(1, 2, 2, 1)|(1, 2, 2, 2)»)
repr(tw.TensorMap(array(256, 512), (64, 64), swizzle=«None|128», fill=«'zero'|'nan'», dtype=«None|'bfloat16'»))
repr(tw.TensorMap(array(4, 8, 6, 16, 8), (1, 1, 2, 8), interleave=16))
repr(tw.TensorMap.im2col(array(8, 32, 32, 64), lower=(-1, -1), upper=(-1, -1), channels=64, pixels=1024))
tw.TensorMap(«array(64, 64)|4096|4100|emulated(array(64, 64))[1:]», (8, 8), shape=(32, 64), dtype='float16').encode(EMULATOR, «4096|4104|None|0»)[:0]
tw.TensorMap(array(64, 64), (8, 8)).check_address('x', «0|8|15|16|17|32»)
tw.TensorMap(array(4, 8, 6, 16, 16), (1, 1, 2, 8), interleave=32, swizzle=32).check_address('x', «0|16|32|48|64»)
BYTES, ELEMENTS
"""

EMULATOR: Any = tw.device("emulator")
emulated = EMULATOR.array


def array(*shape: int, dtype: str = "float16") -> Any:
    """Zeros of a type, NumPy's or ml_dtypes'."""
    return np.zeros(shape, getattr(ml_dtypes, dtype, dtype))


def made(given: Any, *args: Any, **how: Any) -> Any:
    """A map's description, and what the driver and the emulator make of it."""
    return _whole(tw.TensorMap(given, *args, **how))


def im2col(given: Any, **how: Any) -> Any:
    return _whole(tw.TensorMap.im2col(given, **how))


def _whole(found: tw.TensorMap) -> Any:
    driver = driver_values(found.described) if found.described.corners is None else None
    return found.dtype, found.described, driver, EMULATOR.encode_map(found.described, 4096).hex()
