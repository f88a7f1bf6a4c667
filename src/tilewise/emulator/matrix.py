"""Matrices between shared memory and registers: ``ldmatrix``, ``stmatrix``, ``movmatrix``.

A matrix is 8×8 elements of 16 bits. A register of the warp holds one: lane 4·g + t has row g, columns 2t
and 2t + 1. In memory each row is 16 bytes at a multiple of 16, and a lane gives its address: lane 8·i + r
that of row r of matrix i.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewise.emulator.emit import Value, vector
from tilewise.emulator.layout import GENERIC_SHARED, Space
from tilewise.emulator.memory import take_address
from tilewise.emulator.syntax import Address, Instruction, Operand, Register, Vector
from tilewise.emulator.tables import other, unknown

if TYPE_CHECKING:
    from tilewise.emulator.lower import Lowering

__all__: list[str] = []

_ROWS = 8  # of a matrix
_ROW_BYTES = 16
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}

# Where lane 4·g + t finds its two elements of a transposed matrix, among all of a matrix row by row:
# rows 2t and 2t + 1 of column g.
_TRANSPOSED = [
    (2 * (lane % 4) + part) * _ROWS + lane // 4 for lane in range(32) for part in range(2)
]  # fmt: skip


# -- the instructions -------------------------------------------------------------------------------
@other("ldmatrix")
def ldmatrix(e: Lowering, instruction: Instruction) -> None:
    """One, two or four matrices from shared memory."""
    count, transposed = _form(instruction)
    if len(instruction.operands) != 2:
        raise unknown(instruction, "it takes registers and an address")
    targets = _registers(instruction, instruction.operands[0], count)
    slow, done = e.label("slow"), e.label("done")
    addresses = _Rows(e, instruction, instruction.operands[1], count)
    addresses.check(slow)
    _load(e, targets, addresses.pointers(), transposed)
    e.jump(done)
    e.place(slow)
    _load(e, targets, addresses.fetch(), transposed)
    e.jump(done)
    e.place(done)


@other("stmatrix")
def stmatrix(e: Lowering, instruction: Instruction) -> None:
    """One, two or four matrices to shared memory."""
    count, transposed = _form(instruction)
    if len(instruction.operands) != 2:
        raise unknown(instruction, "it takes an address and registers")
    values = [e.read(item, "b32", True) for item in _items(instruction, instruction.operands[1], count)]
    matrices = [_transpose(e, value) if transposed else value for value in values]
    slow, done = e.label("slow"), e.label("done")
    addresses = _Rows(e, instruction, instruction.operands[0], count)
    addresses.check(slow)
    for row, pointer in enumerate(addresses.pointers()):
        e.store(_row(e, matrices, row), pointer, 4)
    e.jump(done)
    e.place(slow)
    addresses.put([_row(e, matrices, row) for row in range(_ROWS * count)])
    e.jump(done)
    e.place(done)


@other("movmatrix")
def movmatrix(e: Lowering, instruction: Instruction) -> None:
    """A matrix transposed, from register to register."""
    if instruction.parts != ("sync", "aligned", "m8n8", "trans", "b16") or len(instruction.operands) != 2:
        raise unknown(instruction, "it is movmatrix.sync.aligned.m8n8.trans.b16 d, a")
    target, source = instruction.operands
    if not isinstance(target, Register):
        raise unknown(instruction, "its destination must be a register")
    e.write(target, _transpose(e, e.read(source, "b32", True)), "b32")


def _form(instruction: Instruction) -> tuple[int, bool]:
    """How many matrices, and whether each is transposed on its way."""
    parts = [part for part in instruction.parts if part not in ("shared", "shared::cta")]
    transposed = "trans" in parts
    if transposed:
        parts.remove("trans")
    if parts[:2] != ["sync", "aligned"] or len(parts) != 5 or parts[3] not in _COUNTS:
        raise unknown(instruction, "it is sync.aligned, a shape, x1, x2 or x4, and a type")
    if parts[2] != "m8n8" or parts[4] != "b16":
        raise unknown(instruction, "only the shape m8n8 of type b16 is supported")
    return _COUNTS[parts[3]], transposed


def _items(instruction: Instruction, operand: Operand, count: int) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        raise unknown(instruction, f"it takes {count} registers")
    return items


def _registers(instruction: Instruction, operand: Operand, count: int) -> list[Register]:
    found = []
    for item in _items(instruction, operand, count):
        if not isinstance(item, Register):
            raise unknown(instruction, "its destination must be registers")
        found.append(item)
    return found


# -- matrices in registers --------------------------------------------------------------------------
def _transpose(e: Lowering, matrix: Value) -> Value:
    halves = e.set("<64 x i16>", f"bitcast {matrix} to <64 x i16>")
    return e.set(vector("i32"), f"bitcast {e.shuffle(halves, _TRANSPOSED)} to {vector('i32')}")


def _row(e: Lowering, matrices: list[Value], row: int) -> Value:
    """The four words of a row; a register holds a matrix row by row."""
    first = row % _ROWS * 4
    return e.shuffle(matrices[row // _ROWS], list(range(first, first + 4)))


def _load(e: Lowering, targets: list[Register], pointers: list[str], transposed: bool) -> None:
    rows = [e.load("<4 x i32>", pointer, 4) for pointer in pointers]
    for i, target in enumerate(targets):
        matrix = _stacked(e, rows[i * _ROWS : (i + 1) * _ROWS])
        e.write(target, _transpose(e, matrix) if transposed else matrix, "b32")


def _stacked(e: Lowering, rows: list[Value]) -> Value:
    """Vectors of one length one behind the other."""
    length = 4
    while len(rows) > 1:
        length *= 2
        rows = [e.shuffle(rows[i], list(range(length)), rows[i + 1]) for i in range(0, len(rows), 2)]
    return rows[0]


# -- rows in memory ---------------------------------------------------------------------------------
class _Rows:
    """The rows that an instruction touches, by the lanes that give their addresses."""

    def __init__(self, e: Lowering, instruction: Instruction, operand: Operand, count: int) -> None:
        if not isinstance(operand, Address):
            raise unknown(instruction, "an address in brackets expected")
        self.e, self.line, self.count = e, instruction.line, _ROWS * count
        self.named = (1 << self.count) - 1  # the lanes whose addresses are used
        base, self.lanes = take_address(e, operand)
        if not {"shared", "shared::cta"} & set(instruction.parts):
            base = e.op("sub", base, e.const(base, GENERIC_SHARED))
        self.base = base  # bytes from the start of shared memory: the lowest lane's, or every lane's

    def check(self, slow: str) -> None:
        """Branch to ``slow`` unless every row is plainly allowed and every lane is there."""
        e = self.e
        used = self._used() if self.lanes is not None else [0]
        room = e.intrinsic("llvm.usub.sat", Value("i64", "%shared_bytes"), e.const("i64", max(used)))
        rows = e.op("lshr", room, e.const("i64", 4))
        limit = e.splat(rows) if self.base.is_vector else rows
        # Turned right by four bits, a row's address is its number; a crooked one is beyond any number.
        number = e.intrinsic("llvm.fshr", self.base, self.base, e.const(self.base, 4))
        good = e.compare("icmp ult", number, limit)
        if any(lane % _ROW_BYTES for lane in used):
            good = e.const("i1", 0)
        if good.is_vector:
            missing = e.op("xor", e.bits(good), e.const("i32", -1))
            if e.masked:
                missing = e.op("or", missing, e.op("xor", e.mask(), e.const("i32", -1)))
            missing = e.op("and", missing, e.const("i32", self.named))
            good = e.compare("icmp eq", missing, e.const("i32", 0))
        elif e.masked:
            here = e.op("and", e.mask(), e.const("i32", self.named))
            good = e.op("and", good, e.compare("icmp eq", here, e.const("i32", self.named)))
        fast = e.label("fast")
        e.branch(good, fast, slow, likely=True)
        e.place(fast)

    def _used(self) -> list[int]:
        assert self.lanes is not None
        return list(self.lanes[: self.count])

    def pointers(self) -> list[str]:
        """A pointer to each row, once the check has passed."""
        e = self.e
        if self.lanes is not None:
            start = e.offset("%shared", self.base)
            return [e.offset(start, lane) for lane in self._used()]
        return [
            e.offset("%shared", e.set("i64", f"extractelement {self.base}, i64 {lane}"))
            for lane in range(self.count)
        ]

    def _every(self) -> Value:
        """Every lane's address."""
        e = self.e
        if self.lanes is None:
            return self.base
        return e.op("add", e.splat(self.base), e.lanes("i64", self.lanes))

    def _carefully(self, function: str, addresses: str, buffer: str) -> None:
        e = self.e
        e.store(self._every(), addresses, 64)
        answer = e.call(
            function,
            "i32",
            *e.pointers(),
            Value("ptr", addresses),
            e.op("and", e.mask(), e.const("i32", self.named)),
            e.const("i32", _ROW_BYTES),
            e.const("i32", int(Space.SHARED)),
            e.const("i32", self.line),
            Value("ptr", buffer),
        )
        good = e.label("good")
        e.branch(e.compare("icmp eq", answer, e.const("i32", 0)), good, "failed")
        e.place(good)

    def fetch(self) -> list[str]:
        """Copy row by row to a buffer; zeros for rows of lanes that are not there."""
        e = self.e
        addresses, buffer = e.buffers()
        e.store(e.zero("<128 x i32>"), buffer, 64)
        self._carefully("tw_load", addresses, buffer)
        return [e.offset(buffer, row * _ROW_BYTES) for row in range(self.count)]

    def put(self, rows: list[Value]) -> None:
        """Copy row by row from a buffer; lanes that are not there store nothing."""
        e = self.e
        addresses, buffer = e.buffers()
        for row, value in enumerate(rows):
            e.store(value, e.offset(buffer, row * _ROW_BYTES), 4)
        self._carefully("tw_store", addresses, buffer)
