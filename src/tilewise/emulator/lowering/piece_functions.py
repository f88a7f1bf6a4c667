"""Write the pieces of long blocks as functions of their own, and the calls of them.

A piece has its own copy of the registers that it uses: those that live when it begins come from their homes in
the frame, and those that live when it ends go back there. Where a check fails in the middle of it, what it
changed is kept there, and the rest at one place for all its checks.

Long computations that stand in a row are a loop over a table of where their operands are: LLVM's work is that
of one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tilewise.emulator.analysis.control_flow import Block
from tilewise.emulator.analysis.pieces import Cut, Piece, cut
from tilewise.emulator.layout import WARP, Answer
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import WARP_PARAMETERS, Context
from tilewise.emulator.lowering.instructions import find_form, lower_instruction
from tilewise.emulator.lowering.suspend import keep, keep_lanes, live_at
from tilewise.emulator.operations.operands import reads, writes
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Instruction, PtxError, Register
from tilewise.emulator.ptx.types import bits_of

__all__ = ["Pieces"]

_ON = -1  # what a piece returns when the warp goes on behind it
_PARAMETERS = f"{WARP_PARAMETERS}, ptr noalias %frame, i32 %lanes_live, i32 %lanes_here"


class _Slots(dict[str, str]):
    """Maps a register to its slot, made on first use."""

    def __init__(self, make: Callable[[str], str]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, name: str) -> str:
        slot = self[name] = self.make(name)
        return slot


class Pieces:
    """Lowers the pieces that are cut out of long blocks, where a build may have them.

    NOTE: not in the general build, which may be entered at every check, nor where a watcher writes code.
    """

    def __init__(self, e: Context) -> None:
        self.e, self.cut = e, Cut()
        self._written: set[str] = set()  # by the piece that is being written
        self._shared_exit: set[str] = set()  # registers that it keeps at one place for all its checks
        self._forms: dict[object, OperandTypes | None] = {}
        if e.general or e.watched:
            return
        self.cut = cut(e.program, e.analysis, functools.partial(live_at, e), self._row_kind)
        if self.cut.pieces:
            e.registers = _Slots(lambda name: e.alloca(e.stored_type(name)))
            e.registers |= {name: f"%home.{i}" for i, name in enumerate(self.cut.homes)}

    # -- rows -----------------------------------------------------------------------------------
    def _row_kind(self, block: Block, instruction: Instruction) -> object:
        """Return the key that instructions of one row share; None for one that can be in no row."""
        e = self.e
        if instruction.guard is not None or not operation_of(instruction).is_pure:
            return None
        form = self._row_form(instruction)
        if form is None or id(instruction) in e.analysis.guarded:
            return None
        target = instruction.operands[0]
        if block.index in e.analysis.divergent and not (
            isinstance(target, Register) and target.name in e.analysis.local
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
                form = find_form(self.e, instruction)
            except PtxError:
                return None  # said where it is lowered
            if self.e.outline.row(self.e, instruction, form):
                self._forms[key] = form
        return self._forms[key]

    def _is_whole(self, name: str, type_: str) -> bool:
        """Whether a register lies in the frame as one number a lane, of exactly a type's bits."""
        e = self.e
        own = e.types.get(name, "pred")
        if own == "pred" or bits_of(own) != bits_of(type_) or name in e.program.resident:
            return False
        return e.stored_type(name).startswith("<")

    def _call_row(self, block: Block, piece: Piece) -> None:
        """Emit one call that runs all instructions of a row."""
        e = self.e
        items = block.instructions[piece.start : piece.end]
        form = self._row_form(items[0])
        assert form is not None
        operands = (operand for item in items for operand in item.operands)
        places = [self.cut.homes[operand.name] for operand in operands if isinstance(operand, Register)]
        function = e.outline.row(e, items[0], form)
        e.call(function, "void", "%frame", e.constant_table(places), e.const("i64", len(places)))

    # -- pieces ---------------------------------------------------------------------------------
    def lower(self, block: Block, piece: Piece) -> None:
        """Write a piece as a function, and emit its call."""
        e = self.e
        if piece.row:
            self._call_row(block, piece)
            return
        name = f"{e.name}.piece.{len(e.definitions)}"
        live = e.load("i32", e.live, 4)
        here = e.load("i32", e.current, 4) if e.is_apart else live
        self._write_piece(name, block, piece)
        answer = e.call(name, "i32", *e.pointers(), "%frame", live, here)
        with e.unless(e.equals(answer, _ON), likely=True):
            if not e.is_apart:
                e.store(e.const("i32", 0), e.current, 4)
            keep_lanes(e, e.program.general if e.program.fast.guarded or e.program.leaders else None)
            e.line(f"ret {answer}")

    def _write_piece(self, name: str, block: Block, piece: Piece) -> None:
        e = self.e
        inside = block.instructions[piece.start : piece.end]
        outer = (e.lines, e.allocas, e.rooms, e.registers, e.live, e.current)
        e.lines, e.allocas, e.rooms = [], [], {}
        e.live, e.current = e.alloca("i32"), e.alloca("i32")
        resident, living = e.program.resident, live_at(e, block, piece.start)
        e.registers = _Slots(lambda name: self._slot(name, living))
        self._written = {name for item in inside for name in writes(item)}
        self._shared_exit, e.stops.hand_over = set(), self._leave
        for instruction in inside:
            self._fetch(instruction)
            lower_instruction(e, instruction)
        ends = live_at(e, block, piece.end) & self._written
        for register in sorted(ends & e.registers.keys() - resident):
            self._copy(register, e.registers[register], self._home(register))
        e.line(f"ret i32 {_ON}")
        e.place("failed")
        e.line(f"ret i32 {int(Answer.FAULT)}")
        self._hand_over()
        body, e.lines = e.lines, []
        e.launch_values()
        for register in sorted(e.registers.keys() & resident):
            e.line(f"{e.registers[register]} = getelementptr i8, ptr %warp, i64 {e.program.slots[register]}")
        e.store(Value("i32", "%lanes_live"), e.live, 4)
        e.store(Value("i32", "%lanes_here"), e.current, 4)
        head = f"define internal i32 @{name}({_PARAMETERS}) noinline nounwind {{"
        e.definitions[name] = "\n".join([head, "entry:", *e.allocas, *e.lines, *body, "}"])
        e.lines, e.allocas, e.rooms, e.registers, e.live, e.current = outer
        e.stops.hand_over = None

    def _fetch(self, instruction: Instruction) -> None:
        """Load an instruction's registers here, before code that may branch.

        NOTE: not all at the piece's beginning: they would live from there on, more of them than a CPU has.
        """
        e = self.e
        for name in (*reads(instruction), *writes(instruction)):
            if name in e.types:
                e.registers[name]

    def _slot(self, name: str, living: set[str]) -> str:
        """Make a register's slot in the piece, with its value if it lives when the piece begins."""
        e = self.e
        if name in e.program.resident:
            return f"%kept.{e.program.slots[name]}"
        slot = e.alloca(e.stored_type(name))
        if name in living:
            self._copy(name, self._home(name), slot)
        return slot

    def _home(self, name: str) -> str:
        return self.e.offset("%frame", self.cut.homes[name])

    def _copy(self, name: str, source: str, target: str) -> None:
        """NOTE: as whole numbers: LLVM moves vectors of bfloat by way of float."""
        e = self.e
        type_ = e.stored_type(name).replace("bfloat", "i16")
        e.store(e.load(type_, source, 4), target, 4)

    def _leave(self, number: int, names: set[str]) -> None:
        """Go on in the general build: keep here what the piece changed, and the rest at one place."""
        e = self.e
        for name in sorted(names - e.program.resident):
            if name in self._written:
                place = e.registers[name] if name in e.registers else self._home(name)
                keep(e, name, place, e.program.general)
            else:
                self._shared_exit.add(name)
        e.store(e.const("i32", number), e.offset("%warp", WARP.RESUME), 4)
        e.jump("hand.over")

    def _hand_over(self) -> None:
        """Emit the exit to the general build: keep the registers that the piece did not change."""
        e = self.e
        e.place("hand.over")
        for name in sorted(self._shared_exit):
            keep(e, name, self._home(name), e.program.general)
        e.line(f"ret i32 {int(Answer.DEOPT)}")
