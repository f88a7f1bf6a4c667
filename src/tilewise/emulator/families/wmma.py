"""``wmma``: matrices loaded, multiplied and stored by a warp, in fragments whose layout PTX leaves open.

Here a fragment is laid out as ``mma`` would have it: lane 4·g + t has rows g, g + 8 … of A and C, columns
g, g + 8 … of B, and where PTX gives a fragment more registers than it needs (f16), they repeat it.

A load copies the matrix, one line (a row or a column) after the other, to a buffer, and spreads it over the
registers from there; a store goes the other way. The copying is done at once where one comparison shows
that all lines lie in one array or in shared memory, and piece by piece by the run-time support where not.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.emulator.families.mma import Layout, MmaForm, Place, gathered, product
from tilewise.emulator.layout import Space
from tilewise.emulator.llvm.emit import Emitter, Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.fragments import OperandAddresses
from tilewise.emulator.lowering.memory import (
    FIRST_HINT,
    HINT_BYTES,
    MemoryAccess,
    remember_array,
    take_address,
)
from tilewise.emulator.lowering.tables import effect, refuse_other_forms, unsupported
from tilewise.emulator.lowering.values import read
from tilewise.emulator.numerics.tensor_core import ELEMENTS
from tilewise.emulator.ptx.modifiers import space_of
from tilewise.emulator.ptx.syntax import Address, Instruction, Operand, items_of

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
    """A matrix in memory, line by line, and in registers."""

    rows: int
    columns: int
    bits: int  # of an element
    per: int  # elements of a register
    unit: int  # elements that are neighbours both in memory and in a register
    registers: int  # that differ
    copies: int  # of each
    layout: Layout
    by_rows: bool  # whether a line is a row

    @property
    def line(self) -> int:
        """Elements of a line."""
        return self.columns if self.by_rows else self.rows

    @property
    def lines(self) -> int:
        return self.rows if self.by_rows else self.columns

    @property
    def line_bytes(self) -> int:
        return self.line * self.bits // 8

    @property
    def piece(self) -> int:
        """Bytes for which lines are aligned: PTX wants as many as a lane's fragment has."""
        return min(16, self.registers * self.copies * self.per * self.bits // 8)

    @property
    def register_type(self) -> str:
        """The type of a register."""
        return "i64" if self.bits == 64 else "i32"

    def units_by_lane(self, register: int, first: int) -> list[int]:
        """For each lane, which unit of memory a part of its register is, from element ``first`` on."""
        found = []
        for lane in range(32):
            _, row, column = self.layout(lane, register * self.per + first)
            number = row * self.columns + column if self.by_rows else column * self.rows + row
            found.append(number // self.unit)
        return found


def _fragment(instruction: Instruction, role: str, shape: str, type_: str, way: str) -> Fragment:
    fits = type_ in {
        word
        for kind, (shapes, sums) in _KINDS.items()
        if shape in shapes
        for word in (sums if role == "c" else (kind,))
    }
    if not fits or way not in ("row", "col"):
        raise unsupported(instruction, f"not the type {type_} with the shape {shape} and the layout {way}")
    m, n, k = _sizes(shape)
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n)}[role]
    bits = {"f32": 32, "s32": 32}.get(type_) or ELEMENTS[type_].bits
    per = max(1, 32 // bits)
    layout = {"a": _a(m, per), "b": _b(k, per), "c": _c(m)}[role]
    # Neighbours in a register are neighbours along k, or along a row of C.
    alike = (way == "row") == (role != "b")
    if bits < 8 and not alike:
        raise unsupported(instruction, "of elements of less than a byte, A must be row and B col")
    count = rows * columns // 32 // per
    copies = 8 // count if role != "c" and type_ == "f16" else 1
    return Fragment(rows, columns, bits, per, per if alike else 1, count, copies, layout, way == "row")


# -- the instructions -------------------------------------------------------------------------------
refuse_other_forms("wmma", "this form of wmma is not supported")


@effect("wmma.load.a", "wmma.load.b", "wmma.load.c", lanes="own", ptx="6.0", arch="sm_70")
@effect("wmma.store.d", has_result=False, ptx="6.0", arch="sm_70")
def transfer(e: Context, instruction: Instruction) -> None:
    """``wmma.load.a.sync.aligned.row.m16n16k16.global.f16 r, [p], stride``, and the store."""
    verb, role, *words = instruction.parts
    words = [word for word in words if word.split("::")[0] not in ("global", "shared")]
    if len(words) != 5 or words[:2] != ["sync", "aligned"] or len(instruction.operands) not in (2, 3):
        raise unsupported(instruction, "this form of wmma is not supported")
    # The layout comes before the shape, but older compilers put the shape first.
    way, shape = sorted(words[2:4], key=lambda word: word not in ("row", "col"))
    loads = verb == "load"
    fragment = _fragment(instruction, role if loads else "c", shape, words[4], way)
    first, second, *stride = instruction.operands
    operand, address = (first, second) if loads else (second, first)
    items = items_of(operand)
    if len(items) != fragment.registers * fragment.copies:
        raise unsupported(instruction, f"it takes {fragment.registers * fragment.copies} registers")
    places = OperandAddresses(e)
    type_ = "b64" if fragment.bits == 64 else "b32"
    name = f"wmma_{verb}_{role}_{way}_{shape}_{words[4]}"
    listed = places.results(items, type_) if loads else places.of(items, type_)
    buffer = e.buffers()[1]
    if loads:
        _define_load(e, name, fragment)
        _copy(e, instruction, fragment, address, stride[0] if stride else None, True)
        e.call(name, "void", buffer, *listed)
        places.write()
    else:
        _define_store(e, name, fragment)
        e.call(name, "void", buffer, *listed)
        _copy(e, instruction, fragment, address, stride[0] if stride else None, False)


@effect("wmma.mma", lanes="own", multiplies_matrices=True, ptx="6.0", arch="sm_70")
def multiply(e: Context, instruction: Instruction) -> None:
    words = list(instruction.parts[1:])
    op = words[0] if words[:2] in (["xor", "popc"], ["and", "popc"]) else ""
    words = words[2:] if op else words
    saturate = "satfinite" in words
    if saturate:
        words.remove("satfinite")
    if len(words) > 5 and words[5] == "rn" and words[6:] == ["f64"] * 4:
        words.pop(5)
    if words[:2] != ["sync", "aligned"] or len(words) not in (7, 9) or len(instruction.operands) != 4:
        raise unsupported(instruction, "this form of wmma is not supported")
    shape, d_type = words[4:6]
    a_type, b_type, c_type = words[6:] if len(words) == 9 else ("f16", "f16", words[6])
    fragments = [
        _fragment(instruction, role, shape, type_, way)
        for role, type_, way in (("a", a_type, words[2]), ("b", b_type, words[3]), ("c", c_type, "row"))
    ]
    a, _, c = fragments
    sums = _KINDS[a_type][1]
    if a_type != b_type or d_type not in sums or c_type not in sums or (len(words) == 9) == (a_type == "f16"):
        raise unsupported(instruction, "these types do not go together")
    if (a_type == "b1") != bool(op) or (saturate and (d_type != "s32" or op)):
        raise unsupported(instruction, "b1 takes xor.popc or and.popc, and only other integers satfinite")
    m, n, k = _sizes(shape)
    per, k = (1, k // 32) if a_type == "b1" else (a.per, k)
    layouts = _a(m, per), _b(k, per), c.layout, c.layout
    form = MmaForm(k, a_type, b_type, c_type, d_type, *layouts, m * k // 32, k * n // 32, m * n // 32)
    d_items, *groups = (items_of(operand) for operand in instruction.operands)
    kept = []
    for fragment, group in zip(fragments, groups, strict=True):
        if len(group) != fragment.registers * fragment.copies:
            raise unsupported(
                instruction, f"{len(group)} registers where it takes {fragment.registers * fragment.copies}"
            )
        kept.append(group[: fragment.registers])
    product(e, instruction.name, form, [d_items, *kept], saturate, op)


# -- between memory and the buffer ------------------------------------------------------------------
def _copy(
    e: Context,
    instruction: Instruction,
    fragment: Fragment,
    operand: Operand,
    stride: Operand | None,
    loads: bool,
) -> None:
    """Copy all lines to or from the buffer."""
    if not isinstance(operand, Address):
        raise unsupported(instruction, "an address in brackets expected")
    base = _one(e, *take_address(e, operand))
    elements = e.const("i64", fragment.line)
    if stride is not None:
        value = read(e, stride, "u32", e.analysis.shape_of(stride) is None)
        elements = e.wide(e.first_lane(value) if value.is_vector else value)
    step = e.op("lshr", e.op("mul", elements, fragment.bits), 3)
    space = _SPACES[space_of(instruction)]
    if space == Space.SHARED:
        base = e.op("and", base, 0xFFFF_FFFF)
    e.watcher.tile(space, base, step, (fragment.lines, fragment.line_bytes), loads)
    slow, done = e.label("slow"), e.label("done")
    pointer = _check(e, fragment, space, base, step, slow)
    name = f"wmma_{'in' if loads else 'out'}_{fragment.lines}_{fragment.line_bytes}"
    _define_lines(e, name, fragment, loads)
    e.call(name, "void", e.buffers()[1], pointer, step)
    e.jump(done)
    e.place(slow)
    _carefully(e, instruction, fragment, space, base, step, loads)
    remember_array(e, MemoryAccess(space, "b32", 1, None, base, False, instruction.line), base)
    e.jump(done)
    e.place(done)


def _one(e: Context, base: Value, lanes: tuple[int, ...] | None) -> Value:
    """The address; PTX wants it to be the same in every lane."""
    if base.is_vector:
        return e.first_lane(base)
    return e.op("add", base, lanes[0]) if lanes and lanes[0] else base


def _check(e: Context, fragment: Fragment, space: Space, base: Value, step: Value, slow: str) -> str:
    """Branch to ``slow`` unless all lines lie in the array that this instruction found last, or in shared
    memory; a pointer to the first."""
    if space == Space.SHARED:
        start, room = e.const("i64", 0), Value("i64", "%shared_bytes")
    else:
        hint = e.offset("%worker", FIRST_HINT + HINT_BYTES * e.hints)
        start = e.load("i64", hint, 8)  # of an array, and its bytes and one, or 0 if there is none yet
        room = e.intrinsic("llvm.usub.sat", e.load("i64", e.offset(hint, 8), 8), 1)
    span = e.op("mul", step, fragment.lines - 1)
    span = e.op("add", span, fragment.line_bytes)
    away = e.op("sub", base, start)
    good = e.is_at_most(span, room)
    good = e.op("and", good, e.is_at_most(away, e.op("sub", room, span)))
    odd = e.op("and", e.op("or", base, step), fragment.piece - 1)
    good = e.op("and", good, e.equals(odd, 0))
    fast = e.label("fast")
    e.branch(good, fast, slow, likely=True)
    e.place(fast)
    if space == Space.SHARED:
        return e.offset("%shared", base)
    return e.as_pointer(base).ref


def _carefully(
    e: Context,
    instruction: Instruction,
    fragment: Fragment,
    space: Space,
    base: Value,
    step: Value,
    loads: bool,
) -> None:
    """Copy piece by piece, each checked; a fault is that of the lane whose number the piece has."""
    addresses, buffer = e.buffers()
    in_line = fragment.line_bytes // fragment.piece
    pieces = fragment.lines * in_line
    for first in range(0, pieces, 32):
        count = min(32, pieces - first)
        numbers = [min(first + i, pieces - 1) for i in range(32)]
        listed = e.op("mul", e.splat(step), e.lanes("i64", [number // in_line for number in numbers]))
        listed = e.op("add", listed, e.splat(base))
        within = e.lanes("i64", [number % in_line * fragment.piece for number in numbers])
        e.store(e.op("add", listed, within), addresses, 64)
        reach = Space.OWN if space == Space.SHARED else space
        given = (addresses, (1 << count) - 1, fragment.piece, reach, instruction.line)
        place = e.offset(buffer, first * fragment.piece)
        e.call_or_leave("tw_load" if loads else "tw_store", *given, place, likely=None)


def _define_lines(e: Context, name: str, fragment: Fragment, loads: bool) -> None:
    if name in e.definitions:
        return
    inner = Emitter(e)
    type_ = f"<{fragment.line_bytes // 4} x i32>"
    for number in range(fragment.lines):
        away = inner.op("mul", Value("i64", "%step"), number)
        line, copy = inner.offset("%start", away), inner.offset("%buffer", number * fragment.line_bytes)
        source, target = (line, copy) if loads else (copy, line)
        inner.store(inner.load(type_, source, 1), target, 1)
    inner.line("ret void")
    e.define(name, "void", "ptr %buffer, ptr %start, i64 %step", inner)


# -- between the buffer and registers ---------------------------------------------------------------
def _units(fragment: Fragment) -> tuple[str, range, range]:
    """The type of 32 units, the vectors of them in the buffer, and where units begin in a register."""
    vectors = fragment.rows * fragment.columns // fragment.unit // 32
    return vector(f"i{fragment.bits * fragment.unit}"), range(vectors), range(0, fragment.per, fragment.unit)


def _define_load(e: Context, name: str, fragment: Fragment) -> None:
    if name in e.definitions:
        return
    inner = Emitter(e)
    type_, numbers, firsts = _units(fragment)
    size = 4 * fragment.bits * fragment.unit  # bytes of 32 units
    held = [inner.load(type_, inner.offset("%buffer", number * size), 4) for number in numbers]
    names = [f"%r{i}" for i in range(fragment.registers * fragment.copies)]
    for register in range(fragment.registers):
        whole: Value | None = None
        for first in firsts:
            part = gathered(
                inner, held, [divmod(place, 32) for place in fragment.units_by_lane(register, first)]
            )
            part = inner.resize(part, fragment.register_type, False)
            part = inner.op("shl", part, first * fragment.bits) if first else part
            whole = inner.op("or", whole, part) if whole else part
        assert whole is not None
        for copy in range(fragment.copies):
            inner.store(whole, names[register + copy * fragment.registers], 4)
    inner.line("ret void")
    e.define(name, "void", ", ".join(f"ptr {item}" for item in ("%buffer", *names)), inner)


def _define_store(e: Context, name: str, fragment: Fragment) -> None:
    if name in e.definitions:
        return
    inner = Emitter(e)
    type_, numbers, firsts = _units(fragment)
    names = [f"%r{i}" for i in range(fragment.registers)]
    parts: list[Value] = []
    holder: dict[int, tuple[int, int]] = {}  # unit of memory → part and lane
    for register, place in enumerate(names):
        held = inner.load(vector(fragment.register_type), place, 4)
        for first in firsts:
            for lane, unit in enumerate(fragment.units_by_lane(register, first)):
                holder[unit] = len(parts), lane
            part = inner.op("lshr", held, first * fragment.bits) if first else held
            parts.append(inner.resize(part, type_[6:-1], False))
    for number in numbers:
        units = gathered(inner, parts, [holder[32 * number + i] for i in range(32)])
        inner.store(units, inner.offset("%buffer", number * 4 * fragment.bits * fragment.unit), 4)
    inner.line("ret void")
    e.define(name, "void", ", ".join(f"ptr {item}" for item in ("%buffer", *names)), inner)
