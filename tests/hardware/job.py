"""Jobs: what to run, with every byte of its inputs, so that a GPU and the emulator do the same.

Jobs are made from seeds on any machine. They can be pickled and taken along, so that the machine with the
GPU needs nothing but NumPy and a driver.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Dim", "Job", "Matrix", "Raw", "Start", "bare", "code_digest", "digest"]

Array = npt.NDArray[Any]
Dim = tuple[int, int, int]


@dataclass(frozen=True)
class Matrix:
    """A ``struct Matrix`` argument over a buffer."""

    buffer: str
    rows: int
    columns: int

    def packed(self, address: int) -> bytes:
        return struct.pack("<IIIxxxxQ", self.columns, self.rows, self.columns, address)


@dataclass(frozen=True)
class Start:
    """One launch. An argument is a buffer's name, a Matrix, or a NumPy scalar."""

    entry: str
    grid: Dim
    block: Dim
    args: Sequence[Any]
    shared: int = 0

    def __str__(self) -> str:
        """Alike under every version of NumPy."""
        told = [
            f"{arg.buffer}:{arg.rows}x{arg.columns}" if isinstance(arg, Matrix)
            else arg if isinstance(arg, str) else f"{np.asarray(arg).dtype.str}:{arg.item()}"
            for arg in self.args
        ]  # fmt: skip
        return f"{self.entry} {tuple(self.grid)} {tuple(self.block)} {self.shared} {' '.join(told)}"


@dataclass
class Job:
    """Launches over buffers. ``cubin`` is what a GPU runs where it is there, else it compiles ``ptx``."""

    name: str
    ptx: str
    starts: list[Start]
    buffers: dict[str, Array]
    results: list[str]  # the buffers to bring back
    cubin: bytes | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> str:
        """A hash of all that the results follow from, but for machine code, comments and where sources lie."""
        shapes = [f"{name}{array.dtype.str}{tuple(array.shape)}" for name, array in self.buffers.items()]
        return digest(bare(self.ptx), *shapes, *self.buffers.values(), *map(str, self.starts))


def bare(ptx: str) -> str:
    """PTX without what differs from compiler to compiler and from place to place: comments, source lines."""
    left_out = ("//", ".file", ".loc")
    return "\n".join(line for line in ptx.splitlines() if line and not line.lstrip().startswith(left_out))


def code_digest(cubin: bytes) -> str:
    """SHA-256 of the machine code in a cubin. NOTE: its line tables name folders, so the whole differs from place to place."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    start = sections[names][4]
    found = []
    for name, _, _, _, offset, length in sections:
        label = cubin[start + name : cubin.index(b"\0", start + name)]
        if label.startswith(b".text."):
            found.append((label, cubin[offset : offset + length]))
    return digest(*(part for pair in sorted(found) for part in pair))


def digest(*parts: str | bytes | Array) -> str:
    """SHA-256 of texts, bytes and arrays' bytes, one after the other."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            found.update(part.encode())
        elif isinstance(part, bytes):
            found.update(part)
        else:
            found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


class Raw:
    """Random bits that every version of NumPy gives alike: the bit generator's own words."""

    def __init__(self, *seed: int) -> None:
        self._bits = np.random.PCG64(list(seed))

    def words(self, *shape: int) -> Array:
        found: Array = np.asarray(self._bits.random_raw(int(np.prod(shape)))).reshape(shape)
        return found

    def below(self, limit: int, *shape: int) -> Array:
        """Whole numbers below a small limit."""
        found: Array = ((self.words(*shape) >> np.uint64(32)) % np.uint64(limit)).astype(np.int64)
        return found

    def between(self, low: int, high: int, *shape: int) -> Array:
        """Whole numbers from ``low`` to ``high``, both included."""
        return self.below(high - low + 1, *shape) + low

    def choice(self, items: Sequence[int], *shape: int) -> Array:
        found: Array = np.asarray(items)[self.below(len(items), *shape)]
        return found

    def numbers(self, *shape: int) -> Array:
        """Doubles from -1 to 1."""
        found: Array = (self.words(*shape) >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1
        return found


def merged(results: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """Results by job and buffer as one flat mapping, for an .npz file."""
    return {f"{job}/{name}": array for job, found in results.items() for name, array in found.items()}
