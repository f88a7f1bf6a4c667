"""Products by each front door: what arrays come to, what they are multiplied by, what comes back, and what is refused.

Nothing is compiled: what would be bound to a device is noted in its place.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np

import tilewise as tw
from tests.fake_device import FakeDevice
from tilewise import calls, interop
from tilewise.bound import Bound
from tilewise.calls import Choice, check_out, itemsize
from tilewise.describe import group_shapes, result_shapes
from tilewise.host_arrays import needs_own_memory, overwrite, written_type
from tilewise.interop import View, may_overlap
from tilewise.interop.dtypes import element_type
from tilewise.interop.mixing import common
from tilewise.interop.view import describe_space, strides_in_elements
from tilewise.matmul import find_device, in_one_type
from tilewise.operands import Operand, Operands
from tilewise.planner.measured import describe_operands

LINES = """
m(z(«|3|0|2, 3|3, 2|0, 3|2, 0|4, 2, 3|1, 2, 3|5, 1, 2, 3|0, 2, 3|5, 4, 3, 2, 3», dtype='float32'), z(«|3|2|3, 4|0|0, 4|4, 3, 5|5, 4, 3, 2|4, 3, 1|3, 0», dtype='float32'))
m(z(2, 8, dtype=«'float16'|'bfloat16'|'float32'|'float64'|'complex64'|'complex128'|'float8_e4m3fn'|'float8_e5m2'|'int8'|'int32'|'int64'|'uint8'|'bool'|'int16'|'uint64'|'float8_e4m3'|'int4'|'S1'|'O'|'longdouble'»), z(8, 3, dtype=«'float16'|'bfloat16'|'float32'|'float64'|'complex64'|'float8_e4m3fn'|'float8_e5m2'|'int8'|'int32'|'int64'|'uint8'|'bool'|'uint32'»))
m(«z(8, 8)[::2]|z(8, 8)[:, ::2]|z(8, 8)[::-1]|z(8, 8)[:, ::-1]|z(8, 8).T|z(8, 9)[:, :8]|z(8, 9)[:, 1:]|z(8, 16)[:, ::2].T|np.broadcast_to(z(8), (4, 8))|np.broadcast_to(z(4, 1), (4, 8))|z(1, 8)|z(8, 1).T|z(2, 3, 8, 8)[:, 1]|z(3, 4, 8).transpose(1, 0, 2)|np.broadcast_to(z(4, 8), (3, 4, 8))|z(4, 2, 3, 8)[:, 0]|unaligned(4, 8)|z(4, 8).astype('>f4')», «z(8, 4)|z(4, 8).T|z(3, 8, 4)|np.broadcast_to(z(8, 4), (3, 8, 4))|z(3, 4, 8).transpose(0, 2, 1)»)
m(z(4, 8), z(8, 5), out=z(«4, 5|5, 4|4, 6|20|1, 4, 5», dtype=«'float32'|'float16'|'float64'|'int32'|'int8'|'complex64'|'bfloat16'|'float8_e4m3fn'|'bool'»))
m(z(4, 8, dtype=«'float16'|'bfloat16'|'float64'|'int8'|'int32'|'int64'|'float8_e4m3fn'|'complex64'»), z(8, 5, dtype=«'float16'|'bfloat16'|'float64'|'int8'|'int32'|'int64'|'float8_e4m3fn'|'complex64'»), out=z(4, 5, dtype=«'float32'|'float16'|'bfloat16'|'float64'|'int32'|'int8'|'float8_e5m2'|'complex64'|'complex128'|'int64'|'int16'»))
m(z(4, 8), z(8, 5), out=«z(5, 4).T|z(4, 10)[:, ::2]|z(8, 5)[::2]|read_only(4, 5)|np.broadcast_to(z(5), (4, 5))|[[0.0] * 5] * 4|z(4, 5)[::-1]|object()»)
overlapping(lambda x: («x[:4], x[4:8]|x[:4], x[2:6]|x, x|x[:4], x[:4].T», «None|x[:4]|x[8:12]|x[2:6]|x[6:10]|x[4:8].T|x[::4]»))
m(z(4, 8), z(8, 5), bias=«None|z(5)|z(4, 1)|z(4, 5)|z(4)|z(1)|1.5|[1.0] * 5|z(5, dtype='float64')|z(5, dtype='float16')|z(1, 1, 5)», activation=«None|'relu'|'gelu'|'Relu'», residual=«None|z(4, 5)|z(5)|z(5, 4)»)
m(z(4, 8), z(8, 5), alpha=«1.0|2|0|'2'|1j|None», beta=«None|0|1|2.5», c=«None|z(4, 5)|z(1, 5)|z(6)»)
m(z(4, 8, dtype=«'int8'|'int32'|'float8_e4m3fn'|'complex64'|'float16'|'float64'»), z(8, 5, dtype=«'int8'|'int32'|'float8_e4m3fn'|'complex64'|'float16'|'float64'»), bias=z(5, dtype=«'float32'|'float16'|'float64'|'complex64'»))
m(z(4, 8), z(8, 5), epilogue=«tw.epilogue('acc * 2')|tw.epilogue('keep(k, acc)', k=z(4, 5))|tw.epilogue('column_sums(s, acc)', s=z(5))|tw.epilogue('row_sums(s, acc)', s=z(5))|'relu'|5|tw.sgd(z(4, 5), rate=0.1)», bias=«None|z(5)», out=«None|z(4, 5)»)
m(z(2, 4, 8), z(«8, 5|2, 8, 5»), epilogue=«tw.epilogue('column_sums(s, acc)', s=z(5))|tw.epilogue('column_sums(s, acc)', s=z(2, 5))|tw.epilogue('row_sums(s, acc)', s=z(2, 4))|tw.epilogue('acc + x', x=z(4, 5))|tw.epilogue('acc + x', x=z(2, 1, 5))|tw.epilogue('acc + x', x=z(2, 4, 5))|tw.epilogue('acc + x', x=z(2, 4, 1))»)
m(z(8), z(8, 5), epilogue=«tw.epilogue('column_sums(s, acc)', s=z(5))|tw.epilogue('acc + x', x=z(5))»), m(z(4, 8), z(8), bias=«z(4)|z(1)|z(4, 1)»)
same(lambda x, y: tw.epilogue('«keep(x, acc) + y|keep(x, acc + y)|x + acc|keep(x, x + acc)|acc + column_sums(x, acc)»', **«{'x': x, 'y': x}|{'x': x, 'y': y}|{'x': y, 'y': x}»), «True|False»)
m(z(4, 8), z(8, 5), arithmetic=«None|'tf32'|'exact32'|'f32'|'f64'|'f16'|'x'|5», device=«TWO|'cpu'|5|FAKE|AMPERE»)
m(z(4, 8, dtype='float16'), z(8, 5, dtype='float16'), arithmetic=«None|'f16'|'tf32'», copy=«None|True|False»)
m(«z(8, 8)[::2, :4]|z(8, 8, dtype='complex64')[:4, :4]|z(8, 8)[:, ::2]», z(4, 5), copy=«None|False»)
m(z(4, 8), z(8, 5), plan=«None|5|'simt'|{}|tw.plan(4, 5, 8)|tw.plan(4, 5, 7)|tw.plan(4, 5, 8, dtype='float16')|tw.plan(4, 5, 8, batch=2)|tw.plan(4, 5, 8, arithmetic='tf32')|tw.plan(4, 5, 8, gpu='t4')|tw.plan(4, 5, 8, groups=2)|tw.plan(5, 4, 8)», device=«FAKE|AMPERE»)
m(z(4, 8, dtype=«'float8_e4m3fn'|'int8'|'float16'|'float32'»), z(8, 5, dtype=«'float8_e4m3fn'|'int8'|'float16'»), scale_a=«None|2.0|z(4, 1)|z(1, 1)|z(4)|z(1)|z(3, 1)|z(4, 8)», scale_b=«None|0.5|z(1, 5)|z(5)|z(5, 1)»)
m(z(«4|300», 256, dtype='float8_e4m3fn'), z(256, «5|300», dtype=«'float8_e4m3fn'|'bfloat16'»), scale_a=«None|z(4, 2)|z(3, 2)|z(300, 2)|z(1, 2)|z(4, 2, dtype='float64')», scale_b=«None|z(2, 5)|z(2, 3)|z(2, 1)»)
m(z(256, dtype='int8'), z(256, «5», dtype='int8'), scale_a=«z(2)|z(1)|z()|2|z(1, 2)», scale_b=«None|z(5)|z(1, 5)»), m(z(4, 256, dtype='int8'), z(256, dtype='int8'), scale_b=«z(2)|z(1)|z(2, 1)|1.5»)
m(tw.quantize(z(4, 256), «'int8'|'float8_e4m3fn'», axis=-1, block=«None|128»), tw.quantize(z(256, 5), «'int8'|'float8_e4m3fn'», axis=-2, block=«None|128»), scale_a=«None|1.0», bias=«None|z(5)»)
m(tw.quantize(z(4, 256), 'int8', axis=«-1|-2|None»), «z(256, 5, dtype='bfloat16')|z(256, 5, dtype='float32')|tw.quantize(z(256, 5), 'int8', axis=-1)|split(z(256, 5), -2)»)
m(z(4, 8, dtype='int8'), z(8, 5, dtype='int8'), scale_a=z(4, 1), epilogue=«None|tw.epilogue('acc + scale_a', scale_a=z(5))|tw.epilogue('relu(acc) + acc')»)
m(«split(z(4, 128), -1)|split(z(4, 128), -2)|split(z(4, 128), -1, True)|z(4, 128)», «z(128, 5)|split(z(128, 5), -2)|split(z(128, 5), -1)», arithmetic=«None|'exact32'|'tf32'|'f32'»)
tw.split_float32(«z(4, 8)|z(8)|z(2, 4, 8)|z(4, 8, dtype='float16')|[[1.0]]|object()|z(63, 63)», axis=«-1|0|1|-2|2|-3|True|1.0|None»)
linear(z(«|3|2, 3|4, 2, 3|0, 3|2, 0»), z(«4, 3|3, 4|3|2, 4, 3|0, 3|4, 0»), «None|z(4)|z(3)|z(2, 4)|5.0»)
linear(z(2, 8), z(5, 8), «None|z(5)», activation=«None|'relu'|'tanhh'», residual=«None|z(2, 5)|z(5, 2)», out=«None|z(2, 5)|z(5, 2)»)
linear(«tw.quantize(z(4, 256), 'int8', axis=-1)|z(4, 256, dtype='bfloat16')|split(z(4, 256), -1)|z(4, 256)», «tw.quantize(z(5, 256), 'int8', axis=-1)|tw.quantize(z(5, 256), 'int8', axis=-1, block=128)|tw.quantize(z(5, 256), 'int8')|split(z(5, 256), -1)|split(z(5, 256), -2)|z(5, 256)», arithmetic=«None|'tf32'», plan=«None|3»)
linear(z(2, 8, dtype=«'float16'|'int8'|'int32'»), z(5, 8, dtype=«'float16'|'bfloat16'|'int8'»), z(5, dtype=«'float16'|'float64'»), device=«FAKE|'nowhere'»)
grouped(z(«6, 8|8|2, 6, 8|0, 8|6, 0»), z(«3, 8, 5|8, 5|0, 8, 5|3, 7, 5|1, 8, 5|3, 0, 5»), z(«3|1|4|3, 1|0», dtype=«'int32'|'int64'»))
grouped(z(6, 8), «z(3, 8, 5)|z(3, 5, 8).transpose(0, 2, 1)|z(5, 8, 3).transpose(2, 1, 0)», «z(3, dtype='int32')|z(6, dtype='int32')[::2]|[2, 4, 6]|(2, 4, 6)|z(3, dtype='float32')|np.zeros(3, '>i4')», out=«None|z(6, 5)|z(5, 6)|z(6, 5, dtype='float64')|z(6, 5, dtype='int8')|read_only(6, 5)»)
grouped(z(6, 8, dtype=«'float16'|'int8'|'complex64'|'int32'»), z(3, 8, 5, dtype=«'float16'|'int8'|'float32'|'int32'»), z(3, dtype='int32'), epilogue=«None|tw.epilogue('acc + b', b=z(5))|tw.epilogue('column_sums(b, acc)', b=z(5))|5»)
grouped(z(6, 8), z(3, 8, 5), z(3, dtype='int32'), plan=«None|7|tw.plan(6, 5, 8, groups=3)|tw.plan(6, 5, 8)|tw.plan(6, 5, 8, groups=2)», arithmetic=«None|'tf32'|'f16'», device=«FAKE|'emu'»)
grouped(«tw.quantize(z(6, 256), 'int8', axis=-1)|tw.quantize(z(6, 256), 'float8_e4m3fn', axis=-1, block=128)|z(6, 256, dtype='int8')», «tw.quantize(z(3, 5, 256), 'int8', axis=-1).mT|tw.quantize(z(3, 256, 5), 'float8_e4m3fn', block=(128, 128))|tw.quantize(z(3, 256, 5), 'int8')|z(3, 256, 5, dtype='int8')», z(3, dtype='int32'), epilogue=«None|tw.epilogue('acc * 2')»)
batched(«[]|[z(2, 3)]|[z(2, 3), z(2, 3)]|z(2, 3)|z(2, 2, 3)|z(0, 2, 3)|z(3)|[z(2, 3), z(3, 2)]|[z(2, 3), z(2, 3, dtype='float64')]|[z(3)]|(z(2, 3), z(2, 3))|[z(3, 2).T, z(2, 3)]|[1.0]|None|5|[[1.0]]», «z(3, 4)|[z(3, 4), z(3, 4)]|[]|z(2, 3, 4)|[z(3, 4)] * 2|[z(4, 4)] * 2»)
batched([z(2, 3)] * «1|2|3», [z(3, 4)] * «1|2|3», out=«None|[]|[z(2, 4)]|[z(2, 4), z(2, 4)]|z(2, 4)|z(2, 2, 4)|[z(4, 2)] * 2|[z(2, 4)] * 2|twice(2, 4)|[z(2, 4, dtype='float16'), z(2, 4, dtype='float16')]|[read_only(2, 4), z(2, 4)]»)
batched([z(2, 3)] * 2, [z(3, 4)] * 2, bias=«None|z(4)|[z(4), z(4)]|[z(4)]|z(2, 1, 4)|z(3)|[z(3), z(3)]|[1.0, 2.0]», activation=«None|'relu'|'r'», residual=«None|z(2, 2, 4)|[z(2, 4), z(2, 4)]», out=«None|[z(2, 4), z(2, 4)]»)
batched([z(2, 3)] * 2, [z(3, 4)] * 2, epilogue=«tw.epilogue('column_sums(s, acc)', s=z(2, 4))|tw.epilogue('column_sums(s, acc)', s=[z(4), z(4)])|tw.epilogue('keep(k, acc)', k=[z(2, 4), z(2, 4)])|tw.epilogue('keep(k, acc)', k=z(2, 2, 4))|tw.epilogue('scaled(acc, s, 1)', s=z(2, 1))», arithmetic=«None|'tf32'|'zz'», plan=«None|5|tw.plan(2, 4, 3, batch=2)|tw.plan(2, 4, 3, batch=2, pointers=True)», device=FAKE)
batched(scattered(«2|3|16|17|1024|1025», 2, 3), z(3, 4), arithmetic=None), batched(scattered(3, 2, 3, «'float16'|'complex64'|'int8'»), scattered(3, 3, 4, «'float16'|'complex64'|'float32'»))
result_shapes(«()|(3,)|(2, 3)|(4, 2, 3)|(4, 1, 2, 3)», «()|(3,)|(3, 5)|(4, 3, 5)|(7, 3, 5)|(2,)»)
group_shapes(«(6, 8)|(6,)|(1, 6, 8)», «(3, 8, 5)|(8, 5)|(0, 8, 5)|(3, 7, 5)», «(3,)|(2,)|()|(3, 1)»)
interop.result_type(«'bool'|'int8'|'uint8'|'int16'|'uint16'|'int32'|'uint32'|'int64'|'uint64'|'bfloat16'|'float16'|'float32'|'float64'|'complex64'|'complex128'|'float8_e4m3fn'|'float8_e5m2'|'clongdouble'|'longdouble'|'float8_e4m3'|'str'», «'bool'|'int8'|'uint8'|'int16'|'uint32'|'int32'|'int64'|'uint64'|'bfloat16'|'float16'|'float32'|'float64'|'complex64'|'float8_e4m3fn'|'float8_e5m2'», exact=«False|True»)
interop.result_type(«'uint8'|'object'|'int64'», «'uint32'|'bool'|'float32'», exact=True, arguments=('x', 'y'))
element_type('a', np.dtype(«'f4'|'>f4'|'O'|'S3'|'U1'|'M8[s]'|'?'|'i2'|'c8'|[('a', 'f4')]|'V4'|ml_dtypes.int4|ml_dtypes.bfloat16»))
interop.numpy_dtype(«'float32'|'bfloat16'|'int4'|'float8_e5m2'|'nothing'»)
[view(«z(2, 3)|z(2, 3).T|z(0, 3)|z()|read_only(2, 3)|np.matrix([[1.0, 2.0]])|np.ma.masked_array([1.0])|Quantity([1.0])|memoryview(z(3))|FAKE.zeros((2, 3))|FAKE.zeros((2, 3))[::-1]|SimpleNamespace()|5|[1, 2]|'text'|Foreign(z(2, 3))|Foreign(z(2, 3), 9)|Foreign(z(2, 3), 3)»)]
interop.as_array('a', «[1, 2]|(1.0, 2.0)|range(3)|5|True|1j|np.float32(2)|memoryview(b'ab')|[[1], [1, 2]]|['a']|z(2, 3)|z(2).astype('>f4')|unaligned(2, 3)|tw.quantize(z(2, 3))|split(z(2, 3), -2)|object()|None|__import__('array').array('f', [1.0])»)
interop.view_output('out', «z(2, 3)|read_only(2, 3)|np.broadcast_to(z(3), (2, 3))|writeable_broadcast()|np.broadcast_to(z(3), (0, 3))|FAKE.zeros((2,))|[1.0]»)
common({'a': fake_view(«'numpy'|'tilewise'|'dlpack'|'torch'», «HOST|(2, 0)»), 'b': fake_view(«'numpy'|'tilewise'|'dlpack'|'torch'», «HOST|(2, 0)|(2, 1)»)}).library.name
may_overlap(fake_view('numpy', HOST, «0|8|-8», shape=(2, 3), strides=«(3, 1)|(-3, 1)»), fake_view('numpy', «HOST|(2, 0)», «0|20|24|28|-24», shape=«(2, 3)|(0, 3)», strides=(3, 1)), 4, «4|8»)
strides_in_elements('a', «(8, 4)|(6, 2)|(-4, 4)|()», «4|2|8»), describe_space(«HOST|(2, 0)|(2, 7)»)
fake_view('numpy', HOST, «0|16|8|3|256|512|260», shape=«(2,)|(0,)»).alignment
in_one(«'float32'|'float16'|'int8'|'bfloat16'|'int32'|'uint8'|'float8_e4m3fn'», «'float32'|'float16'|'int8'|'float64'|'float8_e5m2'|'int16'», «2|4|5», widens=«True|False», names=«None|('wgmma',)|('04_tiled',)|('simt', 'mma')»)
check_out(fake_view('out', «HOST|(2, 0)», dtype=«'float32'|'float16'|'bfloat16'|'float64'|'int32'|'int8'|'float8_e5m2'|'complex64'|'int16'|'uint8'|'bool'», shape=(2, 3)), shapes(«0|2»), «'float32'|'bfloat16'|'float64'|'int32'|'int64'|'complex64'|'complex128'|'float16'»)
[needs_own_memory(fake_view('out', «HOST|(2, 0)», dtype=«'float32'|'float16'|'bfloat16'|'float64'|'int8'|'int32'|'float8_e5m2'|'complex64'», shape=(2, 3), strides=«(3, 1)|(1, 2)|(6, 2)|(2, 1)»), «'float32'|'float16'|'float64'|'int8'|'int32'|'float8_e4m3fn'|'complex64'», Choice(specs=«None|kernels('wgmma')|kernels('simt')|kernels('general')», settings=«()|(('a', 1),)», changed=False))]
[needs_own_memory(fake_view('out', HOST, dtype=«'float32'|'int8'|'float8_e5m2'», shape=«(2, 3)|(0, 3)|(3,)|(1, 3)|(2, 1)»), «'float32'|'int8'|'complex64'», Choice(specs=«None|kernels('wgmma')», changed=True))]
written_type(fake_view('out', HOST, dtype=«'float32'|'float16'|'float64'|'int8'|'int32'|'bool'|'int16'», shape=(2, 3)), «'float32'|'float16'|'float64'|'int8'|'int32'|'float8_e4m3fn'|'complex64'», Choice(settings=«()|(('result', 'float64'),)», changed=«False|True»))
filled(«z(2, 3)|z(3, 2).T|FAKE.empty((2, 3))|z(2, 3, dtype='int8')», np.arange(6.0).reshape(«2, 3|6|1, 2, 3»))
Choice(plan=«None|tw.plan(4, 5, 8)», specs=«None|()», settings=«()|(('result', 'float16'),)|(('x', 1),)», changed=«False|True»).result_type(«'float32'|'int8'|'float8_e4m3fn'»)
[Choice(plan=«None|tw.plan(4, 5, 8)», specs=«None|kernels('simt')», settings=«()|(('x', 1),)», copy=«None|False», arithmetic=«None|'tf32'»).is_open, [one.name for one in Choice(specs=«()|kernels('simt')»).kernels], Choice().kernels]
device_of(«'emulator'|'none'|FAKE», «'numpy'|'tilewise'|'dlpack'»)
device_of(None, 'tilewise')
tw.ladder[«'04_tiled'|'4_tiled'|''|5»].plan(«64|0|100|True|1.5», «64|33», «16|30», gpu=«'h200'|'t4'|'k80'», **«{}|{'tile': 16}|{'tile': 17}|{'tiles': 16}»)
{name: rung.fitting_size((«512|100|1|7», «512|96|1», «256|100|1»)) for name, rung in tw.ladder.items()}
{name: (rung.title, rung.entries, rung.settings, repr(rung)) for name, rung in tw.ladder.items()}
rung(«'03_simple'|'13_warp_specialised'|'10_turing_tensor_core'», z(«64, 64|64|2, 64, 64|64, 32», dtype=«'float32'|'float16'|'int8'»), z(64, 64, dtype=«'float32'|'float16'»), **«{}|{'tile': 16}|{'x': 1}|{'result': 'float32'}»)
[repr(tw.ladder), len(tw.ladder), '04_tiled' in tw.ladder, 'x' in tw.ladder, list(tw.ladder)]
"""

HOST = interop.HOST


class _Fake(FakeDevice):
    """A device whose kernels are an H200's, or an A100's."""

    multiprocessors = 132


_MEMORY, _PLACE = np.zeros(2**26, np.uint8), [0]  # and where the next array begins
FAKE, AMPERE, TWO = _Fake(), _Fake("sm_80"), tw.device("emulator", threads=2)


def _bound(told: list[Any]) -> Any:
    """What stands for ``bind``: it notes what it is given, and binds nothing."""

    def bind(
        spec: Any, settings: Any, operands: Operands, read: Operands, device: Any, arch: Any = None
    ) -> Bound:
        spec.check(read, settings)
        error = spec.refuse_arch(settings, arch or device.arch)
        if error is not None:
            raise error
        if not all((*operands.sizes, *operands.stack)):
            told.append("of nothing")
            return Bound(device, (), ())
        usual = spec.complete({})
        changed = {name: value for name, value in settings.items() if value != usual[name]}
        copies = [one.name for one in read[:2] if one.name.startswith("copy")]
        told.append(
            (
                spec.name,
                changed,
                copies,
                describe_operands(operands),
                *map(lies, (*operands[:3], *operands.extras)),
            )
        )
        return Bound(device, (), ())

    return bind


def lies(one: Operand) -> str:
    strides = f"{one.rows}×{one.columns} by {one.row_stride},{one.column_stride}"
    return f"{one.name} {strides} {one.stack} {one.alignment}{' by pointers' * one.by_pointers}"


def _multiply(function: Any, *args: Any, **given: Any) -> Any:
    """The arrays that a call gives, and all that was bound for it."""
    told: list[Any] = []
    with mock.patch.object(calls, "bind", _bound(told)):
        calls.forget()
        result = function(*args, **({"device": FAKE} | given))
    calls.forget()
    return _kinds(result), told


def _kinds(result: Any) -> Any:
    """What came back: kind, type, shape and strides, for nothing was written to it."""
    if isinstance(result, list):
        return [_kinds(one) for one in result]
    return (
        type(result).__name__,
        str(result.dtype),
        result.shape,
        result.strides if result.ndim and 0 not in result.shape else (),
    )


def z(*shape: int, dtype: str = "float32") -> Any:
    """Zeros, at multiples of 64 bytes, one array close behind the other: so lists of them lie alike everywhere."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if kind.hasobject:
        return np.zeros(shape, kind)
    size = int(np.prod(shape)) * kind.itemsize
    if _PLACE[0] + size > len(_MEMORY):
        _PLACE[0] = 0
    start = _PLACE[0] + -(_MEMORY.ctypes.data + _PLACE[0]) % 64
    _PLACE[0] = start + size
    return _MEMORY[start : start + size].view(kind).reshape(shape)


def split(matrix: Any, axis: int, parts: bool = False) -> tw.SplitFloat32:
    """A matrix that is split, or counts as one that has no parts."""
    rows, columns = matrix.shape if axis == -1 else matrix.shape[::-1]
    return tw.SplitFloat32(matrix, z(rows * columns * 4 + rows * 12, dtype="uint8") if parts else None, axis)


def unaligned(*shape: int) -> Any:
    return np.zeros(int(np.prod(shape)) * 4 + 1, np.uint8)[1:].view(np.float32).reshape(shape)


def read_only(*shape: int) -> Any:
    made = z(*shape)
    made.flags.writeable = False
    return made


def writeable_broadcast() -> Any:
    return np.lib.stride_tricks.as_strided(z(3), (2, 3), (0, 4))


def twice(*shape: int) -> list[Any]:
    made = z(*shape)
    return [made, made]


def scattered(count: int, m: int, n: int, dtype: str = "float32") -> list[Any]:
    """Matrices that lie unevenly: in one array, at places whose distance grows."""
    places = [i * (i + 1) // 2 * 16 for i in range(count)]
    whole = z(places[-1] + m * n, dtype=dtype)
    return [whole[at : at + m * n].reshape(m, n) for at in places]


def overlapping(make: Any) -> Any:
    x = z(16, 8)
    a, b, out = (*(one := make(x))[0], one[1]) if isinstance(make(x)[0], tuple) else make(x)
    return _multiply(
        tw.matmul,
        a,
        b.T if b.shape[0] != a.shape[1] else b,
        out=None if out is None else out[:, : b.shape[0]],
    )


def same(make: Any, into: bool) -> Any:
    """An epilogue whose arrays are one another, and the result too."""
    x, y = z(4, 5), z(4, 5)
    return _multiply(tw.matmul, z(4, 8), z(8, 5), out=x if into else None, epilogue=make(x, y))


def rung(name: str, a: Any, b: Any, **settings: Any) -> Any:
    return _multiply(tw.ladder[name], a, b, **settings)


def view(value: Any) -> View:
    return interop.view("a", value)


class _Library:
    """A library of arrays, by its name and rank."""

    _ranks = {"numpy": 0, "dlpack": 1, "tilewise": 2, "torch": 4}  # noqa: RUF012

    def __init__(self, name: str) -> None:
        self.name, self.preference = name, self._ranks.get(name, 0)

    def stream(self, _: View) -> int | None:
        return {"torch": 7, "dlpack": None}.get(self.name, 0)

    def move(self, argument: str, space: tuple[int, int]) -> str:
        return f"{self.name}.move({argument}, {space})"

    def convert(self, argument: str, dtype: str) -> str:
        return f"{self.name}.convert({argument}, {dtype})"


@functools.cache
def _library(name: str) -> Any:
    return _Library(name)


def fake_view(
    name: str, space: tuple[int, int], ptr: int = 256, dtype: str = "float32", shape: tuple[int, ...] = (2, 3),
    strides: tuple[int, ...] | None = None,
) -> View:  # fmt: skip
    """A view of memory that is nowhere."""
    return View(
        ptr,
        shape,
        strides or (3, 1)[-len(shape) :],
        dtype,
        space,
        _library(name),
        SimpleNamespace(device="its device"),
    )


def in_one(a: str, b: str, axes: int, widens: bool, names: tuple[str, ...] | None) -> Any:
    """The types of two operands once they can be multiplied."""
    left, right = (view(z(*[1] * (axes - 2), 2, 2, dtype=one)) for one in (a, b))
    choice = Choice(specs=None if names is None else kernels(*names))
    found = in_one_type(left, right, common({"a": left, "b": right}), choice, widens=widens)
    return [one.dtype for one in found]


def kernels(*names: str) -> Any:
    from tilewise.kernels import KERNELS

    return tuple(KERNELS[name] for name in names)


def shapes(groups: int) -> Any:
    found = result_shapes((2, 4), (4, 3))
    return found._replace(groups=groups)


def filled(array: Any, values: Any) -> Any:
    overwrite(interop.view("x", array), values)
    return array


def device_of(device: Any, name: str) -> Any:
    """Where host arrays of a library are multiplied."""
    found = fake_view(name, HOST)
    return getattr(find_device(common({"a": found}), device, (found,)), "name", "its device")


class Quantity(np.ndarray):
    """A subclass with arithmetic of its own."""

    def __new__(cls, values: Any) -> Any:
        return np.asarray(values).view(cls)

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        return NotImplemented


class Foreign:
    """An array of a library that speaks DLPack alone."""

    def __init__(self, held: Any, kind: int = 1) -> None:
        self.held, self.kind = held, kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, **_: Any) -> Any:
        return self.held.__dlpack__()


m, linear, grouped, batched = (
    functools.partial(_multiply, function)
    for function in (tw.matmul, tw.linear, tw.grouped_matmul, tw.batched_matmul)
)
