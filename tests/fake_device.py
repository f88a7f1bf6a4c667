"""A device on the host for tests of what lies above the seam. It knows one thing: C = A·B.

A launch whose three arguments are ``struct Matrix`` or ``struct Strided`` multiplies them with NumPy, or, as a
``lazy`` device, writes nothing at all, which every check must notice. Its arrays are the emulator's.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulated import EmulatedArray, EmulatedDevice
from tilewise.launch import Launch, LaunchLimits
from tilewise.toolchain.binary import Binary

FakeArray = EmulatedArray
_MATRIX, _STRIDED = 24, 48  # bytes of the structs


class FakeDevice(EmulatedDevice):
    name = "fake"

    def __init__(self, arch: str = "sm_90a", lazy: bool = False) -> None:
        super().__init__(threads=1)
        self._arch, self.lazy = arch, lazy
        self.launches: list[tuple[str, Launch, list[bytes]]] = []

    @property
    def title(self) -> str:
        return "NumPy, pretending"

    @property
    def arch(self) -> str:
        return self._arch

    @property
    def multiprocessors(self) -> int:
        return 4

    @property
    def limits(self) -> LaunchLimits:
        return LaunchLimits("the fake device", shared_bytes_per_block=227 * 1024)

    def shares_memory_with(self, other: Any) -> bool:
        return other is self

    def run(
        self,
        binary: Binary,
        entry: str,
        launch: Launch,
        packed: list[bytes],
        timeout: float | None = None,
        stream: int | None = None,
    ) -> None:
        assert entry in binary.entries
        self.launches.append((entry, launch, packed))
        sizes = [len(part) for part in packed]
        readers: dict[int, Callable[[bytes], npt.NDArray[np.float32]]] = {
            _MATRIX: _matrix,
            _STRIDED: _strided,
        }
        if not self.lazy and len(set(sizes[:3])) == 1 and sizes[0] in readers:
            a, b, c = map(readers[sizes[0]], packed[:3])
            c[:] = a.astype(np.float64) @ b.astype(np.float64)

    def __repr__(self) -> str:
        return "<a device that pretends>"


def _matrix(part: bytes) -> npt.NDArray[np.float32]:
    """The host memory that a ``struct Matrix`` of floats describes."""
    width, height, pitch, address = struct.unpack("<IIIxxxxQ", part)
    return _floats(address, (height, width), (pitch, 1))


def _strided(part: bytes) -> npt.NDArray[np.float32]:
    """The host memory that a ``struct Strided`` of floats describes, of the first of its stack."""
    rows, columns, down, across, _outer, _inner, address = struct.unpack("<IIqqqqQ", part)
    return _floats(address, (rows, columns), (down, across))


def _floats(address: int, shape: tuple[int, int], steps: tuple[int, int]) -> npt.NDArray[np.float32]:
    span = sum((size - 1) * step for size, step in zip(shape, steps, strict=True)) + 1
    flat = np.ctypeslib.as_array((ctypes.c_float * span).from_address(address))
    return np.lib.stride_tricks.as_strided(flat, shape, (steps[0] * 4, steps[1] * 4))
