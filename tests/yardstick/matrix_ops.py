"""Warp-wide matrices: mma.sync, ldmatrix, stmatrix, movmatrix.

Every fragment follows one pattern. With ``group = lane // 4``, ``member = lane % 4`` and ``w`` elements in a
register, register r of A holds row ``group + 8 * (r % 2)`` (only ``group`` if A has 8 rows) and columns
``member * w + 4 * w * (r // 2) + i``; register r of B holds rows ``member * w + 4 * w * r + i`` of column
``group``; C and D hold row ``group + 8 * (e // 2)``, column ``2 * member + e % 2`` in element e.

Sums: products are exact and are added to the accumulator in float64, in order of k, rounded once at the end.
NOTE: tensor cores truncate aligned partial sums instead: compare with them by a tolerance, or on exact data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .errors import Unsupported
from .memory_ops import parts_of
from .numerics import decode, encode, fma_f64, format_of
from .operands import shared_address
from .ptx_types import Array, Type, type_of
from .registry import Control, allow, control, expect, types_in
from .syntax import Instruction
from .warp_ops import Warps, gathered_control

if TYPE_CHECKING:
    from .machine import Machine

LANE = np.arange(32)
GROUP, MEMBER = LANE // 4, LANE % 4


@dataclass(frozen=True)
class Fragment:
    """Where the elements of an operand lie: ``rows`` and ``columns`` have shape (registers, 32, elements)."""

    rows: Array
    columns: Array
    height: int
    width: int

    @property
    def registers(self) -> int:
        return int(self.rows.shape[0])

    def matrix(self, registers: list[Array]) -> Array:
        """Elements of shape (warps, 32, elements) per register, as (warps, height, width)."""
        found = np.zeros((len(registers[0]), self.height, self.width), registers[0].dtype)
        for number, values in enumerate(registers):
            found[:, self.rows[number], self.columns[number]] = values
        return found

    def spread(self, matrix: Array) -> list[Array]:
        """The reverse: one (warps, 32, elements) array per register."""
        return [matrix[:, self.rows[r], self.columns[r]] for r in range(self.registers)]


def fragment(operand: str, m: int, n: int, k: int, elements: int) -> Fragment:
    """The fragment of A, B or C/D of an mma shape with so many elements in a register."""
    i = np.arange(elements)
    along = MEMBER[:, None] * elements + i
    group = np.repeat(GROUP[:, None], elements, 1)
    rows, columns = [], []
    if operand == "a":
        height, width = m, k
        halves = m // 8
        for r in range(m * k // (32 * elements)):
            rows.append(group + 8 * (r % halves))
            columns.append(along + 4 * elements * (r // halves))
    elif operand == "b":
        height, width = k, n
        for r in range(k * n // (32 * elements)):
            rows.append(along + 4 * elements * r)
            columns.append(group)
    else:
        height, width = m, n
        for r in range(m * n // (32 * elements)):
            first = r * elements + i
            rows.append(group + 8 * (first // 2))
            columns.append(2 * MEMBER[:, None] + first % 2)
    return Fragment(np.stack(rows), np.stack(columns), height, width)


def elements_of(kind: Type) -> int:
    """How many elements a register of a fragment holds."""
    return max(32 // kind.bits, 1)


def unpack(registers: Array, kind: Type) -> Array:
    """(warps, 32) registers as (warps, 32, elements) of the raw element type."""
    pieces = np.ascontiguousarray(registers)[..., None].view(type_of(f"b{kind.bits}").dtype)
    return pieces.view(kind.dtype) if kind.family in ("s", "u") else pieces


def pack(elements: Array) -> Array:
    """(warps, 32, elements) as (warps, 32) registers."""
    register = np.uint64 if elements.dtype.itemsize == 8 else np.uint32
    return np.ascontiguousarray(elements).view(register)[..., 0]


SHAPES = {
    16: ("m16n8k8", "m16n8k16"),
    32: ("m16n8k4", "m16n8k8"),
    8: ("m16n8k16", "m16n8k32", "m8n8k16"),
    64: ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
}


def multiply_float(operands: list[Array], result: Type) -> Array:
    """Float64 a @ b + c, as bits of the result type."""
    a, b, c = operands
    total = c
    for k in range(a.shape[2]):
        left, right = a[:, :, k, None], b[:, None, k, :]
        if result.name == "f64":
            flat_a, flat_b, flat_c = (x.reshape(-1) for x in np.broadcast_arrays(left, right, total))
            total = fma_f64(flat_a, flat_b, flat_c).reshape(c.shape)
        else:
            total = total + left * right
    if result.name == "f64":
        return total.view(np.uint64)
    return encode(total, format_of(result))


def multiply_integer(operands: list[Array], clamp: bool) -> Array:
    """Integer a @ b + c in 32 bits, wrapping or clamped."""
    a, b, c = operands
    total = np.einsum("wmk,wkn->wmn", a.astype(np.int64), b.astype(np.int64)) + c.astype(np.int64)
    if clamp:
        total = np.clip(total, -(2**31), 2**31 - 1)
    wrapped: Array = total.astype(np.int32).view(np.uint32)
    return wrapped


@control("mma")
def matrix_multiply(m: Machine, inst: Instruction) -> Control:
    """``mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype d, a, b, c``."""
    shape = next((x for x in inst.modifiers if re.fullmatch(r"m\d+n\d+k\d+", x)), "")
    allow(inst, "sync", "aligned", shape, "row", "col", "satfinite", "kind::f8f6f4")
    expect(inst.operands, 4)
    d, a, b, c = types_in(inst)
    if shape not in SHAPES[a.bits] or a.bits != b.bits or layouts(inst) != ("row", "col"):
        raise Unsupported(f"mma shape {shape} of .{a.name}")
    sizes = [int(x) for x in re.findall(r"\d+", shape)]
    rows, columns, depth = sizes
    fragments = {
        name: fragment(name[0], rows, columns, depth, elements_of(kind))
        for name, kind in (("d", d), ("a", a), ("b", b), ("c", c))
    }
    readers, counts = [], []
    for operand, name, kind in zip(inst.operands[1:], "abc", (a, b, c), strict=True):
        bits = 64 if kind.bits == 64 else 32
        parts = parts_of(operand, fragments[name].registers)
        counts.append(len(parts))
        readers += [m.operands.read(part, f"b{bits}") for part in parts]
    write_bits = 64 if d.bits == 64 else 32
    targets = parts_of(inst.operands[0], fragments["d"].registers)
    writers = [m.operands.write(part, f"b{write_bits}") for part in targets]

    def compute(warps: Warps, inputs: list[Array]) -> list[Array]:
        check_whole(m, inst, warps)
        matrices, at = [], 0
        for name, kind, count in zip("abc", (a, b, c), counts, strict=True):
            pieces = [unpack(r, kind) for r in inputs[at : at + count]]
            matrices.append(fragments[name].matrix(pieces))
            at += count
        if a.family in ("s", "u"):
            result = multiply_integer(matrices, "satfinite" in inst.modifiers)
        else:
            values = [decode(x, format_of(t)) for x, t in zip(matrices, (a, b, c), strict=True)]
            result = multiply_float(values, d)
        return [pack(piece) for piece in fragments["d"].spread(result)]

    return gathered_control(m, inst, readers, compute, writers, None)


def layouts(inst: Instruction) -> tuple[str, ...]:
    """The row/col modifiers in order."""
    return tuple(x for x in inst.modifiers if x in ("row", "col"))


def check_whole(m: Machine, inst: Instruction, warps: Warps) -> None:
    """All 32 lanes must take part."""
    if not warps.present.all():
        row = int(np.flatnonzero(~warps.present.all(1))[0])
        thread = int(warps.threads[row][warps.present[row]][0])
        raise m.fault(inst, thread, "needs all 32 lanes of the warp")


# -- 8x8 matrices of 16 bits -----------------------------------------------------------------------


def count_of(inst: Instruction) -> int:
    """1, 2 or 4 matrices."""
    return next((int(x[1]) for x in inst.modifiers if x in ("x1", "x2", "x4")), 1)


def row_places(m: Machine, warps: Warps, addresses: Array, count: int) -> Array:
    """Checked byte offsets of the rows, (warps, matrices, 8): lane 8 i + r addresses row r of matrix i."""
    used = addresses[:, : 8 * count].reshape(-1).astype(np.uint64)
    threads = warps.threads[:, : 8 * count].reshape(-1)
    offsets = m.shared.locate(shared_address(m, used), 16, threads)
    return offsets.astype(np.int64).reshape(-1, count, 8)


@control("ldmatrix")
def load_matrix(m: Machine, inst: Instruction) -> Control:
    """``ldmatrix.sync.aligned.m8n8.xN{.trans}{.shared}.b16 {d...}, [p]``."""
    allow(inst, "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta")
    count, transposed = count_of(inst), "trans" in inst.modifiers
    expect(inst.operands, 2)
    writers = [m.operands.write(part, "b32") for part in parts_of(inst.operands[0], count)]

    def compute(warps: Warps, inputs: list[Array]) -> list[Array]:
        check_whole(m, inst, warps)
        places = row_places(m, warps, inputs[0], count) // 2
        matrices = m.shared.views[2][places[..., None] + np.arange(8)]
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        halves = np.stack([matrices[:, :, GROUP, 2 * MEMBER + i] for i in range(2)], axis=-1)
        return [pack(halves[:, number]) for number in range(count)]

    return gathered_control(m, inst, [m.operands.address(inst.operands[1])], compute, writers, None)


@control("stmatrix")
def store_matrix(m: Machine, inst: Instruction) -> Control:
    """``stmatrix.sync.aligned.m8n8.xN{.trans}{.shared}.b16 [p], {a...}``."""
    allow(inst, "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta")
    count, transposed = count_of(inst), "trans" in inst.modifiers
    expect(inst.operands, 2)
    readers = [m.operands.address(inst.operands[0])]
    readers += [m.operands.read(part, "b32") for part in parts_of(inst.operands[1], count)]
    half = type_of("b16")

    def compute(warps: Warps, inputs: list[Array]) -> list[Array]:
        check_whole(m, inst, warps)
        places = row_places(m, warps, inputs[0], count) // 2
        for number in range(count):
            matrix = np.zeros((len(warps.present), 8, 8), np.uint16)
            pieces = unpack(inputs[1 + number], half)
            for i in range(2):
                matrix[:, GROUP, 2 * MEMBER + i] = pieces[..., i]
            if transposed:
                matrix = matrix.swapaxes(1, 2)
            m.shared.views[2][places[:, number, :, None] + np.arange(8)] = matrix
        return []

    return gathered_control(m, inst, readers, compute, [], None)


@control("movmatrix")
def move_matrix(m: Machine, inst: Instruction) -> Control:
    """``movmatrix.sync.aligned.m8n8.trans.b16 d, a``."""
    allow(inst, "sync", "aligned", "m8n8", "trans")
    expect(inst.operands, 2)

    def compute(warps: Warps, inputs: list[Array]) -> list[Array]:
        check_whole(m, inst, warps)
        matrix = np.zeros((len(warps.present), 8, 8), np.uint16)
        pieces = unpack(inputs[0], type_of("b16"))
        for i in range(2):
            matrix[:, GROUP, 2 * MEMBER + i] = pieces[..., i]
        halves = [matrix[:, 2 * MEMBER + i, GROUP] for i in range(2)]
        return [pack(np.stack(halves, axis=-1))]

    readers = [m.operands.read(inst.operands[1], "b32")]
    return gathered_control(m, inst, readers, compute, [m.operands.write(inst.operands[0], "b32")], None)
