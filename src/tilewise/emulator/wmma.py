"""``wmma``: matrices loaded, multiplied and stored by a warp, in fragments whose layout PTX leaves open.

Here a fragment is laid out as ``mma`` would have it: lane 4·g + t has rows g, g + 8 … of A and C, columns
g, g + 8 … of B, and where PTX gives a fragment more registers than it needs (f16), they repeat it.

A load copies the matrix, one line (a row or a column) after the other, to a buffer, and spreads it over the
registers from there; a store goes the other way. The copying is done at once where one comparison shows
that all lines lie in one array or in shared memory, and piece by piece by the run-time support where not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewise.emulator.barriers import first_lane
from tilewise.emulator.emit import Emitter, Value, vector
from tilewise.emulator.fragments import Places, define, items_of
from tilewise.emulator.layout import Space
from tilewise.emulator.memory import FIRST_HINT, HINT_BYTES, Access, learn, space_of, take_address
from tilewise.emulator.mma import Form, Layout, Place, gathered, holders, per_register, product
from tilewise.emulator.syntax import Address, Instruction, Operand
from tilewise.emulator.tables import other, unknown
from tilewise.emulator.tensor_core import ELEMENTS
from tilewise.emulator.types import llvm_scalar

if TYPE_CHECKING:
    from tilewise.emulator.lower import Lowering

__all__: list[str] = []

_TALL = ("m16n16k16", "m8n32k16", "m32n8k16")
# Type of A and B → shapes, and the types of C and D.
_KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "f16": (_TALL, ("f16", "f32")),
    "bf16": (_TALL, ("f32",)),
    "tf32": (("m16n16k8",), ("f32",)),
    "f64": (("m8n8k4",), ("f64",)),
    "s8": (_TALL, ("s32",)),
    "u8": (_TALL, ("s32",)),
    "s4": (("m8n8k32",), ("s32",)),
    "u4": (("m8n8k32",), ("s32",)),
    "b1": (("m8n8k128",), ("s32",)),
}
_SPACES = {"global": Space.GLOBAL, "shared": Space.SHARED, "generic": Space.GENERIC}
_ROOM = 1024  # bytes of the buffer


# -- layouts ----------------------------------------------------------------------------------------
def _a(m: int, per: int) -> Layout:
    def place(lane: int, index: int) -> Place:
        register, part = divmod(index, per)
        block, high = divmod(register, m // 8)
        return 0, lane // 4 + 8 * high, lane % 4 * per + part + 4 * per * block

    return place


def _b(k: int, per: int) -> Layout:
    def place(lane: int, index: int) -> Place:
        register, part = divmod(index, per)
        high, block = divmod(register, max(1, k // (4 * per)))
        return 0, lane % 4 * per + part + 4 * per * block, lane // 4 + 8 * high

    return place


def _c(m: int) -> Layout:
    def place(lane: int, index: int) -> Place:
        pair, part = divmod(index, 2)
        right, high = divmod(pair, m // 8)
        return 0, lane // 4 + 8 * high, lane % 4 * 2 + part + 8 * right

    return place


def _sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


# -- fragments --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Fragment:
    """A matrix in memory and in registers. Bits go by *units*: what lies side by side in both."""

    type: str  # of a register
    bits: int  # of a unit
    units: int  # of a register
    line: int  # units of a line in memory
    lines: int
    registers: int  # that differ
    copies: int  # of each register
    layout: Layout  # of units
    rows: bool  # whether lines are rows

    @property
    def line_bytes(self) -> int:
        return self.line * self.bits // 8

    @property
    def piece(self) -> int:
        """Bytes that are surely aligned: PTX wants lines aligned for a lane's whole fragment."""
        return min(16, self.registers * self.copies * self.units * self.bits // 8)

    def number(self, place: Place) -> int:
        """Of a unit, in the order of memory."""
        _, row, column = place
        return row * self.line + column if self.rows else column * self.line + row


def _fragment(instruction: Instruction, role: str, shape: str, type_: str, way: str) -> Fragment:
    if shape not in {item for shapes, _ in _KINDS.values() for item in shapes} or way not in ("row", "col"):
        raise unknown(instruction, f"not with the shape {shape} and the layout {way}")
    m, n, k = _sizes(shape)
    sums = {acc for shapes, accs in _KINDS.values() if shape in shapes for acc in accs}
    fits = type_ in sums if role in "cd" else shape in _KINDS.get(type_, ((), ()))[0]
    if not fits or (type_ in ("s4", "u4", "b1") and way != {"a": "row", "b": "col"}[role]):
        raise unknown(instruction, f"not the type {type_} with the shape {shape} and the layout {way}")
    per = per_register(type_) if type_ != "b1" else 32
    bits = {"f16": 16, "f32": 32, "f64": 64, "s32": 32}[type_] if role in "cd" else ELEMENTS[type_].bits
    rows, columns = {"a": (m, k), "b": (k, n)}.get(role, (m, n))
    # Neighbours in a register are neighbours along k, or along a row of C.
    along = way == ("col" if role == "b" else "row")
    whole = per if along else 1
    layout = {"a": _a(m, per // whole), "b": _b(k // whole, per // whole)}.get(role, _c(m))
    if role in "cd" and whole > 1:
        layout = _pairs(m)
    high, wide = (rows, columns // whole) if role != "b" else (rows // whole, columns)
    line = (wide if way == "row" else high) if whole == 1 or way == "row" or role == "b" else high
    count = rows * columns // 32 // per
    copies = 8 // count if type_ == "f16" and role in "ab" else 1
    word = "f64" if type_ == "f64" else "f32" if type_ == "f32" else "b32"
    lines = high if way == "row" else wide
    return Fragment(word, bits * whole, per // whole, line, lines, count, copies, layout, way == "row")


def _pairs(m: int) -> Layout:
    """C of f16, by pairs."""

    def place(lane: int, index: int) -> Place:
        right, high = divmod(index, m // 8)
        return 0, lane // 4 + 8 * high, lane % 4 + 4 * right

    return place
