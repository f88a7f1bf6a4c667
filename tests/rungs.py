"""Runs a rung of the ladder on the yardstick, on operands that lie among poison.

Around the operands, and between their rows where the pitch is wider, everything is NaN, and touching it
at all is an error.
"""

from __future__ import annotations

import functools
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.yardstick import Memory, run
from tests.yardstick.memory import ALL, SharedSpace
from tilewise.devices.tensor_map import Description
from tilewise.kernels.spec import KernelSpec, Operand, Operands, Settings, Step
from tilewise.operands import alignment_of
from tilewise.slots import MapSlot, Slot
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.compile import compile_source, own_headers

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Placed:
    """A matrix in memory: the address of its first element, and how many elements apart its rows are."""

    address: int
    rows: int
    columns: int
    pitch: int
    dtype: str

    def operand(self, name: str) -> Operand:
        """The same as a kernel's spec knows it, which is all but the address."""
        aligned = alignment_of(self.address)
        return Operand(name, self.rows, self.columns, self.pitch, self.dtype, alignment=aligned)

    def matrix(self) -> bytes:
        """The bytes of ``struct Matrix`` of ``tilewise/matrix.cuh``: width, height, pitch, pointer."""
        return struct.pack("<IIIxxxxQ", self.columns, self.rows, self.pitch, self.address)


def operands_of(a: Placed, b: Placed, c: Placed) -> Operands:
    return Operands(a.operand("a"), b.operand("b"), c.operand("c"))


def place_steps(
    spec: KernelSpec,
    a: Placed,
    b: Placed,
    c: Placed,
    workspace: int,
    settings: Settings,
    encode: Callable[[Description, int], bytes] | None = None,
) -> list[Step]:
    """The spec's launches for matrices at these addresses, their arguments the bytes that a kernel gets.

    ``workspace`` is an address. ``encode`` makes the bytes of a tensor map, as a device's ``encode_map`` does;
    without it a map stays the slot that it is.
    """
    operands = operands_of(a, b, c)
    spec.check(operands, settings)
    addresses = {"a": a.address, "b": b.address, "c": c.address, "workspace": workspace}

    def filled(slot: Any) -> Any:
        if isinstance(slot, MapSlot):
            return slot if encode is None else slot.fill(addresses, encode)
        assert isinstance(slot, Slot), f"an argument that is no slot: {slot!r}"
        return slot.fill(addresses)

    return [
        replace(step, launch=replace(step.launch, args=tuple(map(filled, step.launch.args))))
        for step in spec.steps(operands, settings)
    ]


def build(spec: KernelSpec, arch: str, **settings: int | str) -> Binary:
    """The kernel's source, compiled with its defaults but for the settings given."""
    defines = spec.defines(spec.complete(settings))
    return _build(spec.name, spec.source, spec.entries, arch, tuple(defines.items()))


@functools.cache
def _build(
    name: str, source: str, entries: tuple[str, ...], arch: str, defines: tuple[tuple[str, object], ...]
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
    place: Placed


def lay(memory: Fenced, values: Array, lie: Lie) -> Laid:
    rows, columns = values.shape
    pitch = columns + lie.gap
    buffer = np.full(lie.offset + rows * pitch, np.nan, values.dtype)
    if not values.size:  # an empty operand has no memory, and its address means nothing
        return Laid(buffer, values, Placed(12, rows, columns, pitch, values.dtype.name))
    inside = np.zeros(buffer.size, bool)
    inside[lie.offset :].reshape(rows, pitch)[:, :columns] = True
    matrix = buffer[lie.offset :].reshape(rows, pitch)[:, :columns]
    matrix[:] = values
    address = memory.alloc(buffer)
    memory.inside.append((address, np.repeat(inside, buffer.itemsize)))
    first = address + lie.offset * buffer.itemsize
    return Laid(buffer, matrix, Placed(first, rows, columns, pitch, values.dtype.name))


@dataclass
class Product:
    """What a kernel wrote, and its accesses to global memory by width."""

    c: Array
    accesses: Counter[int]


def multiply(
    spec: KernelSpec,
    a: Array,
    b: Array,
    *,
    arch: str,
    result: str = "float32",
    lies: tuple[Lie, Lie, Lie] = (Lie(), Lie(), Lie()),
    settings: Mapping[str, int | str] | None = None,
    **options: Any,
) -> Product:
    """A·B by the kernel; ``lies`` are those of A, B and C, ``options`` the yardstick's."""
    binary = build(spec, arch, **(settings or {}))
    memory = Fenced()
    unwritten = np.full((a.shape[0], b.shape[1]), np.nan, result)
    laid = [lay(memory, values, lie) for values, lie in zip((a, b, unwritten), lies, strict=True)]
    left, right, product = (one.place for one in laid)
    for step in place_steps(spec, left, right, product, 0, spec.complete(settings or {})):
        launch = step.launch
        how = {"shared": launch.shared, "memory": memory, **options}
        run(binary.ptx, step.entry, launch.grid, launch.block, launch.args, **how)
    for one, values in zip(laid[:2], (a, b), strict=True):
        np.testing.assert_array_equal(one.matrix, values, "an operand was written")
    return Product(laid[2].matrix.copy(), memory.accesses)


def changed(spec: KernelSpec, folder: Path, old: str, new: str, header: str | None = None) -> KernelSpec:
    """The kernel with a piece of its source, or of a header of ours, replaced: a broken one, to see that a
    test notices."""
    source = spec.source
    if header is None:
        assert source.count(old) == 1
        source = source.replace(old, new)
    else:
        headers = dict(own_headers())
        assert headers[f"tilewise/{header}"].count(old) == 1
        headers[f"tilewise/{header}"] = headers[f"tilewise/{header}"].replace(old, new)
        source = _flat(source, headers, set())
    file = folder / spec.file.name
    file.write_text(source, encoding="utf-8")
    return replace(spec, file=file)


def _flat(source: str, headers: Mapping[str, str], seen: set[str]) -> str:
    """The source with the text of each header where it is first included."""

    def text(include: re.Match[str]) -> str:
        name = include[1]
        if name in seen:
            return ""
        seen.add(name)
        return _flat(headers[name].replace("#pragma once", ""), headers, seen)

    return re.sub(r"^#include <(tilewise/.+)>$", text, source, flags=re.MULTILINE)


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
