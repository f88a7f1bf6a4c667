"""Matrices between shared memory and registers: ``ldmatrix``, ``stmatrix``, ``movmatrix``.

A matrix is 8×8 elements of 16 bits. A register of the warp holds one: lane 4·g + t has row g, columns 2t
and 2t + 1. One of 16×8 bytes, which ``stmatrix`` alone has, is stored by columns: lane 4·g + t holds the columns
2t and 2t + 1 of row g, and behind them those of row g + 8.

In memory each row (or column of bytes) is 16 bytes at a multiple of 16, and a lane gives its address: lane
8·i + r that of row r of matrix i. Lanes that name no row, or are not there, are left alone.

Each form is compiled once, as two functions: one that checks all rows at once and moves them, or does
nothing and says so; and one that moves them from or to a buffer, for which the run-time support moves
them row by row and finds the fault, if there is one.
"""

from __future__ import annotations

from tilewise.emulator.layout import GENERIC, Space
from tilewise.emulator.llvm.emit import Emitter, Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.fragments import OperandAddresses
from tilewise.emulator.lowering.memory import take_address
from tilewise.emulator.lowering.tables import effect, unsupported
from tilewise.emulator.lowering.values import read, write
from tilewise.emulator.operations.operation import Access
from tilewise.emulator.ptx.syntax import Address, Instruction, Operand, Register, items_of

__all__: list[str] = []

_ROWS = 8  # of a matrix
_ROW_BYTES = 16
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}

# Where lane 4·g + t finds its two elements of a transposed matrix, among all of a matrix row by row:
# rows 2t and 2t + 1 of column g.
_TRANSPOSED = [(2 * (lane % 4) + part) * _ROWS + lane // 4 for lane in range(32) for part in range(2)]
# Where the columns of 16 bytes find theirs among the registers' bytes, column by column.
_BYTE_COLUMNS = [
    4 * (row % 8 * 4 + column // 2) + row // 8 * 2 + column % 2
    for column in range(_ROWS)
    for row in range(16)
]


# -- the instructions -------------------------------------------------------------------------------
@effect("ldmatrix", lanes="own", accesses=(Access("load", 1, rows=True),), ptx="6.5", arch="sm_75")
def ldmatrix(e: Context, instruction: Instruction) -> None:
    """One, two or four matrices from shared memory."""
    count, order = _form(instruction)
    if len(instruction.operands) != 2:
        raise unsupported(instruction, "it takes registers and an address")
    name = f"ldmatrix_x{count}{order}"
    _define_pair(e, name, count, order, loads=True)
    places = OperandAddresses(e)
    listed = places.results(_registers(instruction, instruction.operands[0], count), "b32")
    _move(e, instruction, name, instruction.operands[1], count, listed, loads=True)
    places.write()


@effect(
    "stmatrix",
    has_result=False,
    accesses=(Access("store", 0, rows=True),),
    changes=True,
    ptx="7.8",
    arch="sm_90",
)
def stmatrix(e: Context, instruction: Instruction) -> None:
    """One, two or four matrices to shared memory."""
    count, order = _form(instruction)
    if len(instruction.operands) != 2:
        raise unsupported(instruction, "it takes an address and registers")
    name = f"stmatrix_x{count}{order}"
    _define_pair(e, name, count, order, loads=False)
    listed = OperandAddresses(e).of(_registers(instruction, instruction.operands[1], count), "b32")
    _move(e, instruction, name, instruction.operands[0], count, listed, loads=False)


@effect("movmatrix", lanes="own", ptx="7.8", arch="sm_75")
def movmatrix(e: Context, instruction: Instruction) -> None:
    """A matrix transposed, from register to register."""
    if instruction.parts != ("sync", "aligned", "m8n8", "trans", "b16") or len(instruction.operands) != 2:
        raise unsupported(instruction, "it is movmatrix.sync.aligned.m8n8.trans.b16 d, a")
    target, source = instruction.operands
    if not isinstance(target, Register):
        raise unsupported(instruction, "its destination must be a register")
    write(e, target, _transpose(e, read(e, source, "b32", True)), "b32")


def _form(instruction: Instruction) -> tuple[int, str]:
    """How many matrices, and the order of their elements in memory: "", "_trans", or "_bytes" for columns of bytes.

    What follows ``sync.aligned`` may stand in any order: some write the shape first, others the count.
    """
    parts = instruction.parts
    said = {part for part in parts[2:] if part not in ("shared", "shared::cta")}
    counts = said & {*_COUNTS}
    if parts[:2] != ("sync", "aligned") or len(counts) != 1:
        raise unsupported(instruction, "it is sync.aligned, a shape, x1, x2 or x4, and a type")
    orders = {frozenset({"m8n8", "b16"}): "", frozenset({"m8n8", "trans", "b16"}): "_trans"}
    known = "only the shape m8n8 of type b16 is supported"
    if instruction.opcode == "stmatrix":
        orders[frozenset({"m16n8", "trans", "b8"})] = "_bytes"
        known = "it is m8n8 of type b16, or m16n8.trans of type b8"
    order = orders.get(frozenset(said - counts))
    if order is None:
        raise unsupported(instruction, known)
    return _COUNTS[counts.pop()], order


def _registers(instruction: Instruction, operand: Operand, count: int) -> tuple[Operand, ...]:
    found = items_of(operand)
    if len(found) != count:
        raise unsupported(instruction, f"{len(found)} registers where it takes {count}")
    return found


def _move(
    e: Context,
    instruction: Instruction,
    name: str,
    operand: Operand,
    count: int,
    places: list[str],
    loads: bool,
) -> None:
    """Check all rows and move them; where that does not do, row by row."""
    addresses, buffer = e.buffers()
    offsets = _offsets(e, instruction, operand)
    e.store(offsets, addresses, 64)
    shared_bytes = Value("i64", "%shared_bytes")
    done = e.call(name, "i1", addresses, "%shared", shared_bytes, e.mask(), *places)
    slow, on = e.label("slow"), e.label("on")
    e.branch(done, on, slow, likely=True)
    e.place(slow)
    if loads:
        # Zeros for the rows of lanes that are not there.
        e.store(e.zero("<128 x i32>"), buffer, 64)
        _row_by_row(e, instruction, "tw_load", offsets, count)
        e.call(f"{name}_buffer", "void", buffer, *places)
    else:
        e.call(f"{name}_buffer", "void", buffer, *places)
        _row_by_row(e, instruction, "tw_store", offsets, count)
    e.jump(on)
    e.place(on)


def _offsets(e: Context, instruction: Instruction, operand: Operand) -> Value:
    """How far from the start of shared memory each lane's row is, or far beyond its end."""
    if not isinstance(operand, Address):
        raise unsupported(instruction, "an address in brackets expected")
    base, lanes = take_address(e, operand)
    if lanes is not None:
        base = e.op("add", e.splat(base), e.lanes("i64", lanes))
    if {"shared", "shared::cta"} & set(instruction.parts):
        return e.resize(base, "i32", False)
    base = e.op("sub", base, GENERIC.SHARED)
    return e.resize(e.intrinsic("llvm.umin", base, 0xFFFF_FFF0), "i32", False)


def _row_by_row(e: Context, instruction: Instruction, function: str, offsets: Value, count: int) -> None:
    addresses, buffer = e.buffers()
    e.store(e.wide(offsets), addresses, 64)
    rows = (e.op("and", e.mask(), _named(count)), _ROW_BYTES, Space.OWN, instruction.line)
    e.call_or_leave(function, addresses, *rows, buffer, likely=None)


def _named(count: int) -> int:
    """The lanes that give the address of a row."""
    return (1 << _ROWS * count) - 1


# -- the functions ----------------------------------------------------------------------------------
def _define_pair(e: Context, name: str, count: int, order: str, loads: bool) -> None:
    if name in e.definitions:
        return
    move = _load if loads else _store
    places = [f"%m{i}" for i in range(count)]
    listed = ", ".join(f"ptr {place}" for place in places)
    inner = Emitter(e)
    rows = range(_ROWS * count)
    move(inner, [inner.offset("%buffer", row * _ROW_BYTES) for row in rows], places, order)
    inner.line("ret void")
    e.define(f"{name}_buffer", "void", f"ptr %buffer, {listed}", inner)
    inner = Emitter(e)
    _check(inner, count)
    offsets = [inner.load("i32", inner.offset("%rows", 4 * row), 4) for row in rows]
    starts = [inner.offset("%shared", inner.wide(offset)) for offset in offsets]
    move(inner, starts, places, order)
    inner.line("ret i1 true")
    inner.place("no")
    inner.line("ret i1 false")
    e.define(name, "i1", f"ptr %rows, ptr %shared, i64 %bytes, i32 %mask, {listed}", inner)


def _check(e: Emitter, count: int) -> None:
    """Go to ``no`` unless every row lies within shared memory, at a multiple of 16, and its lane is there."""
    offsets = e.load(vector("i32"), "%rows", 4)
    # Turned right by four bits, a row's offset is its number; a crooked one is beyond any number.
    number = e.intrinsic("llvm.fshr", offsets, offsets, 4)
    limit = e.op("lshr", Value("i64", "%bytes"), 4)
    good = e.is_below(number, e.splat(e.resize(limit, "i32", False)))
    named = e.const("i32", _named(count))
    there = e.op("and", e.op("and", e.bits(good), Value("i32", "%mask")), named)
    e.branch(e.equals(there, named), "yes", "no", likely=True)
    e.place("yes")


def _load(e: Emitter, starts: list[str], places: list[str], order: str) -> None:
    rows = [e.load("<4 x i32>", start, 4) for start in starts]
    for i, place in enumerate(places):
        matrix = _stacked(e, rows[i * _ROWS : (i + 1) * _ROWS])
        e.store(_rearranged(e, matrix, order), place, 4)


def _store(e: Emitter, starts: list[str], places: list[str], order: str) -> None:
    for i, place in enumerate(places):
        held = e.load(vector("i32"), place, 4)
        matrix = _rearranged(e, held, order)
        for row in range(_ROWS):
            words = e.shuffle(matrix, list(range(4 * row, 4 * row + 4)))
            e.store(words, starts[i * _ROWS + row], 4)


def _rearranged(e: Emitter, matrix: Value, order: str) -> Value:
    if order == "_bytes":
        parts = e.set("<128 x i8>", f"bitcast {matrix} to <128 x i8>")
        return e.set(matrix.type, f"bitcast {e.shuffle(parts, _BYTE_COLUMNS)} to {matrix.type}")
    return _transpose(e, matrix) if order else matrix


def _transpose(e: Emitter, matrix: Value) -> Value:
    halves = e.set("<64 x i16>", f"bitcast {matrix} to <64 x i16>")
    return e.set(matrix.type, f"bitcast {e.shuffle(halves, _TRANSPOSED)} to {matrix.type}")


def _stacked(e: Emitter, rows: list[Value]) -> Value:
    """The rows of a matrix one behind the other."""
    length = 4
    while len(rows) > 1:
        length *= 2
        rows = [e.shuffle(rows[i], list(range(length)), rows[i + 1]) for i in range(0, len(rows), 2)]
    return rows[0]
