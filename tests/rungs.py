"""Runs a rung of the ladder on the yardstick, on operands that lie among poison.

Around the operands, and between their rows where the pitch is wider, everything is NaN, and touching it
at all is an error.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.yardstick import Memory, run
from tests.yardstick.memory import ALL, SharedSpace
from tilewise.kernels.rung import Operand, Rung
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.compile import compile_source

Array = npt.NDArray[Any]


def build(rung: Rung, arch: str, **settings: int | str) -> Binary:
    """The rung's source, compiled with its defaults but for the settings given."""
    return _build(
        rung.name, rung.source, rung.entries, arch, tuple(rung.defines(rung.complete(settings)).items())
    )


@functools.cache
def _build(
    name: str, source: str, entries: tuple[str, ...], arch: str, defines: tuple[tuple[str, int], ...]
) -> Binary:
    return compile_source(source, entries, arch, defines=dict(defines), filename=f"rung_{name}.cu")


@dataclass(frozen=True)
class Lie:
    """How a matrix lies in memory: elements before its first, and elements between its rows."""

    offset: int = 0
    gap: int = 0


class Fenced(Memory):
    """Global memory in which only the matrices may be touched, not what lies around them.

    ``accesses`` counts the accesses of threads by their width in bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[tuple[int, Array]] = []  # address of a buffer, and which of its bytes count
        self.accesses: Counter[int] = Counter()

    def begin(self) -> None:
        super().begin()
        self.may: Array = np.zeros(self.bytes.size, bool)
        for address, inside in self.inside:
            self.may[address - self.base : address - self.base + inside.size] = inside

    def locate(self, addresses: Array, width: int, group: Any) -> Array:
        offsets = super().locate(addresses, width, group)
        self.accesses[width] += len(offsets)
        touched = offsets.astype(np.int64)[:, None] + np.arange(width)
        assert self.may[touched].all(), "an access outside of the matrices"
        return offsets


@dataclass
class Laid:
    """A matrix in the middle of a buffer of NaN."""

    buffer: Array
    matrix: Array
    operand: Operand


def lay(memory: Fenced, values: Array, lie: Lie) -> Laid:
    rows, columns = values.shape
    pitch = columns + lie.gap
    buffer = np.full(lie.offset + rows * pitch, np.nan, values.dtype)
    if not values.size:  # an empty operand has no memory, and its address means nothing
        return Laid(buffer, values, Operand(12, rows, columns, pitch, values.dtype.name))
    inside = np.zeros(buffer.size, bool)
    inside[lie.offset :].reshape(rows, pitch)[:, :columns] = True
    matrix = buffer[lie.offset :].reshape(rows, pitch)[:, :columns]
    matrix[:] = values
    address = memory.alloc(buffer)
    memory.inside.append((address, np.repeat(inside, buffer.itemsize)))
    first = address + lie.offset * buffer.itemsize
    return Laid(buffer, matrix, Operand(first, rows, columns, pitch, values.dtype.name))


@dataclass
class Product:
    """What a rung wrote, and its accesses to global memory by width."""

    c: Array
    accesses: Counter[int]


def multiply(
    rung: Rung,
    a: Array,
    b: Array,
    *,
    arch: str,
    result: str = "float32",
    lies: tuple[Lie, Lie, Lie] = (Lie(), Lie(), Lie()),
    settings: Mapping[str, int | str] | None = None,
    **options: Any,
) -> Product:
    """A·B by the rung; ``lies`` are those of A, B and C, ``options`` the yardstick's."""
    binary = build(rung, arch, **(settings or {}))
    memory = Fenced()
    unwritten = np.full((a.shape[0], b.shape[1]), np.nan, result)
    laid = [lay(memory, values, lie) for values, lie in zip((a, b, unwritten), lies, strict=True)]
    operands = [one.operand for one in laid]
    for step in rung.steps(operands[0], operands[1], operands[2], 0, rung.complete(settings or {})):
        launch = step.launch
        how = {"shared": launch.shared, "memory": memory, **options}
        run(binary.ptx, step.entry, launch.grid, launch.block, launch.args, **how)
    for one, values in zip(laid[:2], (a, b), strict=True):
        np.testing.assert_array_equal(one.matrix, values, "an operand was written")
    return Product(laid[2].matrix.copy(), memory.accesses)


def changed(rung: Rung, folder: Path, old: str, new: str) -> Rung:
    """The rung with a piece of its source replaced: a broken one, to see that a test notices."""
    assert rung.source.count(old) == 1
    file = folder / rung.file.name
    file.write_text(rung.source.replace(old, new), encoding="utf-8")
    return replace(rung, file=file)


@contextmanager
def shared_conflicts(monkeypatch: Any) -> Iterator[dict[int, list[int]]]:
    """Collects, for each access width in bytes, [requests of a warp, bank conflicts] in shared memory."""
    counts: dict[int, list[int]] = {}
    locate = SharedSpace.locate

    def counting(space: SharedSpace, addresses: Array, width: int, group: Any) -> Array:
        offsets = locate(space, addresses, width, group)
        threads = np.arange(len(offsets)) if group is ALL else np.asarray(group)
        count = counts.setdefault(width, [0, 0])
        for warp in np.unique(threads // 32):
            mine = threads // 32 == warp
            count[0] += 1
            count[1] += conflicts(threads[mine] % 32, offsets[mine].astype(np.int64), width)
        return offsets

    with monkeypatch.context() as patch:
        patch.setattr(SharedSpace, "locate", counting)
        yield counts


def conflicts(lanes: Array, addresses: Array, width: int) -> int:
    """Wavefronts beyond the ideal of one access: 32 lanes a phase up to 4 bytes each, then 16, then 8."""
    lanes_a_phase = 32 if width <= 4 else 128 // width
    found = 0
    for phase in np.unique(lanes // lanes_a_phase):
        first = addresses[lanes // lanes_a_phase == phase] // 4
        words = np.unique(first[:, None] + np.arange(max(width // 4, 1)))
        found += int(np.bincount(words % 32).max()) - 1
    return found
