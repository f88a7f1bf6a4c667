"""A device on the host for tests of what lies above the seam. It knows one thing: C = A·B.

A launch whose three arguments are ``struct Matrix`` multiplies them with NumPy, or, as a ``lazy`` device,
writes nothing at all, which every check must notice.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.launch import Launch, LaunchLimits
from tilewise.toolchain.binary import Binary


class FakeArray:
    def __init__(self, device: FakeDevice, values: npt.NDArray[Any]) -> None:
        self.device, self._values = device, values
        self.ptr: int = values.ctypes.data
        self.shape, self.strides, self.dtype, self.nbytes = (
            values.shape,
            values.strides,
            values.dtype,
            values.nbytes,
        )

    def numpy(self) -> npt.NDArray[Any]:
        return self._values.copy()

    def fill(self, value: npt.NDArray[Any]) -> None:
        np.copyto(self._values, value)


class FakeDevice:
    name = "fake"
    title = "NumPy, pretending"
    multiprocessors = 4

    def __init__(self, arch: str = "sm_90a", lazy: bool = False) -> None:
        self.arch, self.lazy = arch, lazy
        self.limits = LaunchLimits("the fake device", shared_bytes_per_block=227 * 1024)
        self.launches: list[tuple[str, Launch, list[bytes]]] = []

    def array(self, source: Any) -> FakeArray:
        return FakeArray(self, np.array(source))

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> FakeArray:
        return FakeArray(self, np.empty(shape, dtype))

    def run(
        self, binary: Binary, entry: str, launch: Launch, packed: list[bytes], timeout: float | None = None
    ) -> None:
        assert entry in binary.entries
        self.launches.append((entry, launch, packed))
        if not self.lazy and [len(part) for part in packed] == [24, 24, 24]:
            a, b, c = map(_matrix, packed)
            c[:] = a.astype(np.float64) @ b.astype(np.float64)

    def synchronize(self) -> None:
        pass


def _matrix(part: bytes) -> npt.NDArray[np.float32]:
    """The host memory that a ``struct Matrix`` of floats describes."""
    width, height, pitch, address = struct.unpack("<IIIxxxxQ", part)
    memory = (ctypes.c_float * (pitch * (height - 1) + width)).from_address(address)
    flat = np.frombuffer(memory, np.float32)
    return np.lib.stride_tricks.as_strided(flat, (height, width), (pitch * 4, 4))
