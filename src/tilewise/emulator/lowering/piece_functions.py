"""Write the pieces of long blocks as functions of their own, and the calls of them.

A piece has its own copy of the registers that it uses: those that live when it begins come from their homes in
the frame, and those that live when it ends go back there. Where a check fails in the middle of it, what it
changed is kept there, and the rest at one place for all its checks.

Long computations that stand in a row are a loop over a table of where their operands are: LLVM's work is that
of one.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewise.emulator.analysis.control_flow import Block
from tilewise.emulator.analysis.pieces import Cut, Piece, cut
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.analysis.shapes import Analysis
from tilewise.emulator.layout import WARP, Answer
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.instructions import Instructions
from tilewise.emulator.operations.operands import reads, writes
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Instruction, PtxError, Register
from tilewise.emulator.ptx.types import bits_of

__all__ = ["Pieces"]

_ON = -1  # what a piece returns when the warp goes on behind it
_POINTERS = (
    "ptr noalias %ctx",
    "ptr noalias %worker",
    "ptr %block",
    "ptr noalias %warp",
    "ptr noalias %frame",
)
_LANES = ("i32 %lanes_live", "i32 %lanes_here")


class _Slots(dict[str, str]):
    """Maps a register to its slot, made on first use."""

    def __init__(self, make: Callable[[str], str]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, name: str) -> str:
        slot = self[name] = self.make(name)
        return slot


class Pieces(Instructions):
    """Lowers the pieces that were cut out of long blocks."""

    def __init__(self, program: Program, general: bool, name: str) -> None:
        super().__init__(program, general, name)
        self.cut = Cut()
        self._written: set[str] | None = None  # by the piece that is being written
        self._shared_exit: set[str] = set()  # registers that it keeps at one place for all its checks
        self._forms: dict[object, OperandTypes | None] = {}

    def cut_blocks(self) -> None:
        """Cut the long blocks into pieces, where this build may have them.

        NOTE: not in the general build, which may be entered at every check, nor where a watcher writes code.
        """
        if self.general or self.watcher:
            return
        self.cut = cut(self.program, self.analysis, self.live_at, _fits, self._row_kind)
        if self.cut.pieces:
            self.registers = _Slots(lambda name: self.alloca(self.stored_type(name)))
            self.registers |= {name: f"%home.{i}" for i, name in enumerate(self.cut.homes)}

    # -- rows -----------------------------------------------------------------------------------
    def _row_kind(self, block: Block, instruction: Instruction) -> object:
        """Return the key that instructions of one row share; None for one that can be in no row."""
        if instruction.guard is not None or not operation_of(instruction).is_pure:
            return None
        form = self._row_form(instruction)
        if form is None or id(instruction) in self.analysis.guarded:
            return None
        target = instruction.operands[0]
        if block.index in self.analysis.divergent and not (
            isinstance(target, Register) and target.name in self.analysis.local
        ):
            return None  # lanes that do not run keep what they have
        types = (form.results[0], *form.sources)
        if len(types) != len(instruction.operands):
            return None
        for operand, type_ in zip(instruction.operands, types, strict=True):
            if not isinstance(operand, Register) or not self._is_whole(operand.name, type_):
                return None
        return instruction.opcode, instruction.parts

    def _row_form(self, instruction: Instruction) -> OperandTypes | None:
        key = (instruction.opcode, instruction.parts, len(instruction.operands))
        if key not in self._forms:
            self._forms[key] = None
            try:
                form = self._form(instruction)
            except PtxError:
                return None  # said where it is lowered
            if self.outline.row(self, instruction, form):
                self._forms[key] = form
        return self._forms[key]

    def _is_whole(self, name: str, type_: str) -> bool:
        """Whether a register lies in the frame as one number a lane, of exactly a type's bits."""
        own = self.types.get(name, "pred")
        if own == "pred" or bits_of(own) != bits_of(type_) or name in self.program.resident:
            return False
        return self.stored_type(name).startswith("<")

    def _row(self, block: Block, piece: Piece) -> None:
        """Emit one call that runs all instructions of a row."""
        items = block.instructions[piece.start : piece.end]
        form = self._row_form(items[0])
        assert form is not None
        places = [
            self.cut.homes[operand.name]
            for item in items
            for operand in item.operands
            if isinstance(operand, Register)
        ]
        table, listed = f"{self.name}.row.{len(self.globals)}", ", ".join(f"i32 {place}" for place in places)
        self.globals.append(
            f"@{table} = private unnamed_addr constant [{len(places)} x i32] [{listed}], align 64"
        )
        function = self.outline.row(self, items[0], form)
        self.line(f"call void @{function}(ptr %frame, ptr @{table}, i64 {len(places)})")

    # -- pieces ---------------------------------------------------------------------------------
    def piece(self, block: Block, piece: Piece) -> None:
        """Write a piece as a function, and emit its call."""
        if piece.row:
            self._row(block, piece)
            return
        name = f"{self.name}.piece.{len(self.globals)}"
        live = self.load("i32", self.live, 4)
        here = self.load("i32", self.current, 4) if self.is_apart else live
        self._write_piece(name, block, piece)
        pointers = ", ".join(map(str, (*self.pointers(), Value("ptr", "%frame"))))
        answer = self.set("i32", f"call i32 @{name}({pointers}, {live}, {here})")
        on, off = self.label("on"), self.label("off")
        self.branch(self.compare("icmp eq", answer, self.const("i32", _ON)), on, off, likely=True)
        self.place(off)
        if not self.is_apart:
            self.store(self.const("i32", 0), self.current, 4)
        self.keep_lanes(self.program.general if self.program.fast.guarded or self.program.leaders else None)
        self.line(f"ret {answer}")
        self.place(on)

    def _write_piece(self, name: str, block: Block, piece: Piece) -> None:
        inside = block.instructions[piece.start : piece.end]
        outer = (self.lines, self.allocas, self.registers, self.live, self.current)
        buffers, columns = self._buffers, self._columns
        self.lines, self.allocas, self._buffers, self._columns = [], [], None, ""
        self.live, self.current = self.alloca("i32"), self.alloca("i32")
        resident, living = self.program.resident, self.live_at(block, piece.start)
        self.registers = _Slots(lambda name: self._slot(name, living))
        self._written = {register.name for item in inside for register in writes(item)}
        self._shared_exit = set()
        for instruction in inside:
            self._fetch(instruction)
            self.instruction(instruction)
        ends = self.live_at(block, piece.end) & self._written
        for register in sorted(ends & self.registers.keys() - resident):
            self._copy(register, self.registers[register], self._home(register))
        self.line(f"ret i32 {_ON}")
        self.place("failed")
        self.line(f"ret i32 {int(Answer.FAULT)}")
        self._hand_over()
        body, self.lines = self.lines, []
        self.launch_values()
        self.warp_index()
        for register in sorted(self.registers.keys() & resident):
            self.line(
                f"{self.registers[register]} = getelementptr i8, ptr %warp, i64 {self.program.slots[register]}"
            )
        self.store(Value("i32", "%lanes_live"), self.live, 4)
        self.store(Value("i32", "%lanes_here"), self.current, 4)
        head = f"define internal i32 @{name}({', '.join((*_POINTERS, *_LANES))}) #0 noinline {{"
        self.globals.append("\n".join([head, "entry:", *self.allocas, *self.lines, *body, "}"]))
        self.lines, self.allocas, self.registers, self.live, self.current = outer
        self._buffers, self._columns, self._written = buffers, columns, None

    def _fetch(self, instruction: Instruction) -> None:
        """Load an instruction's registers here, before code that may branch.

        NOTE: not all at the piece's beginning: they would live from there on, more of them than a CPU has.
        """
        for register in (*reads(instruction), *writes(instruction)):
            if register.name in self.types:
                self.registers[register.name]

    def _slot(self, name: str, living: set[str]) -> str:
        """Make a register's slot in the piece, with its value if it lives when the piece begins."""
        if name in self.program.resident:
            return f"%kept.{self.program.slots[name]}"
        slot = self.alloca(self.stored_type(name))
        if name in living:
            self._copy(name, self._home(name), slot)
        return slot

    def _home(self, name: str) -> str:
        return self.offset("%frame", self.cut.homes[name])

    def _copy(self, name: str, source: str, target: str) -> None:
        """NOTE: as whole numbers: LLVM moves vectors of bfloat by way of float."""
        type_ = self.stored_type(name).replace("bfloat", "i16")
        self.store(self.load(type_, source, 4), target, 4)

    def stop(self, answer: Answer, number: int, names: set[str], to: Analysis | None = None) -> None:
        if self._written is None:
            super().stop(answer, number, names, to)
            return
        assert to is self.program.general and answer == Answer.DEOPT
        for name in sorted(names - self.program.resident):
            if name in self._written:
                self.keep(name, self.registers[name] if name in self.registers else self._home(name), to)
            else:
                self._shared_exit.add(name)
        self.store(self.const("i32", number), self.offset("%warp", WARP.RESUME), 4)
        self.jump("hand.over")

    def _hand_over(self) -> None:
        """Emit the exit to the general build: keep the registers that the piece did not change."""
        self.place("hand.over")
        for name in sorted(self._shared_exit):
            self.keep(name, self._home(name), self.program.general)
        self.line(f"ret i32 {int(Answer.DEOPT)}")


def _fits(instruction: Instruction) -> bool:
    """Whether an instruction may be in a piece: it neither suspends the warp nor counts turns of loops."""
    operation = operation_of(instruction)
    return operation.is_pure or operation.plain_access is not None
