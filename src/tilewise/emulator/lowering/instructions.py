"""One instruction: its guard, its entry in the tables, its results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.analysis.program import Program
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.loop_progress import count_progress, look_before
from tilewise.emulator.lowering.outline import Outline
from tilewise.emulator.lowering.suspend import SuspendPoints
from tilewise.emulator.lowering.tables import unsupported
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Instruction, Operand, Pair, Register, Vector
from tilewise.emulator.ptx.types import bits_of
from tilewise.errors import TilewiseError

__all__ = ["Instructions", "complete"]


@contextmanager
def complete(instruction: Instruction) -> Iterator[None]:
    """Refuse an instruction if its lowering looks for an operand that is not there."""
    try:
        yield
    except (IndexError, ValueError) as error:
        if isinstance(error, TilewiseError):
            raise
        raise unsupported(instruction, "not with so few operands") from error


class Instructions(SuspendPoints):
    """Lowers single instructions through the tables."""

    def __init__(self, program: Program, general: bool, name: str) -> None:
        super().__init__(program, general, name)
        self.outline = Outline(program.flow)

    def instruction(self, instruction: Instruction) -> None:
        self.now = instruction
        with complete(instruction):
            self._instruction(instruction)

    def _instruction(self, instruction: Instruction) -> None:
        operation = operation_of(instruction)
        if not operation.is_lowered:
            raise unsupported(instruction)
        around = ""
        self.guard = None
        if instruction.guard is not None:
            around = self._guarded(instruction)
        spins = self.block.index in self.analysis.spins
        before = look_before(self, instruction) if spins else None
        seen = self.watcher.before(instruction) if self.watcher else None
        if operation.emit is not None:
            operation.emit(self, instruction)
        else:
            self._pure(instruction)
        if spins:
            count_progress(self, instruction, before)
        if self.watcher:
            self.watcher.after(instruction, seen)
        if around:
            self.jump(around)
            self.place(around)
        self.guard = None

    def _guarded(self, instruction: Instruction) -> str:
        """Run the instruction only where its guard holds; returns the label that goes on."""
        assert instruction.guard is not None
        around, do = self.label("around"), self.label("do")
        condition = self.read(instruction.guard, "pred", False)
        if instruction.negated:
            condition = self.op("xor", condition, self.const(condition, 1))
        if not condition.is_vector:
            self.branch(condition, do, around)
            self.place(do)
            return around
        self.guard = self.bits(condition)
        if operation_of(instruction).is_pure:
            return ""
        some = self.compare("icmp ne", self.mask(), self.const("i32", 0))
        self.branch(some, do, around)
        self.place(do)
        return around

    def _pure(self, instruction: Instruction) -> None:
        form = self._form(instruction)
        shape = self.result_shape(instruction)
        sources = [
            self.read(operand, type_, shape is None)
            for operand, type_ in zip(instruction.operands[1:], form.sources, strict=True)
        ]
        if id(instruction) in self.analysis.guarded:
            self._guard_widening(instruction, sources)
        results = self.outline.lowered(self, instruction, form, sources)
        values = (results,) if isinstance(results, Value) else results
        # Of more values than results the first ones count: a carry out may not be asked for.
        for target, value, type_ in zip(_targets(instruction), values, form.results, strict=False):
            if not isinstance(target, Register):
                raise unsupported(instruction, "its destination must be a register")
            self.write(target, value, type_, shape)

    def _form(self, instruction: Instruction) -> OperandTypes:
        try:
            describe = operation_of(instruction).form
            assert describe is not None
            form = describe(instruction)
            for type_ in (*form.results, *form.sources):
                bits_of(type_)
        except (IndexError, KeyError):
            raise unsupported(instruction, "not in this form") from None
        if len(form.sources) != len(instruction.operands) - 1:
            raise unsupported(instruction, f"it takes {len(form.sources)} sources")
        if len(_targets(instruction)) != len(form.results):
            raise unsupported(instruction, f"it has {len(form.results)} results")
        targets = zip(_targets(instruction), form.results, strict=True)
        for operand, type_ in (*targets, *zip(instruction.operands[1:], form.sources, strict=True)):
            self.check_operand(instruction, operand, type_)
        return form

    def _guard_widening(self, instruction: Instruction, sources: list[Value]) -> None:
        """A 32-bit index is made wider: check that none of its lanes wraps around."""
        for operand, value in zip(instruction.operands[1:], sources, strict=True):
            shape = self.shape_of(operand)
            if shape is None or shape.uniform or value.type != "i32":
                continue
            low, high = min(shape.lanes), max(shape.lanes)
            signed = instruction.parts[-1].startswith("s")
            base = self.cast("sext" if signed else "zext", value, "i64")
            least = -(2**31) if signed else 0
            most = 2**31 - 1 if signed else 2**32 - 1
            ok = self.compare(
                "icmp sge", self.op("add", base, self.const("i64", low)), self.const("i64", least)
            )
            top = self.compare(
                "icmp sle", self.op("add", base, self.const("i64", high)), self.const("i64", most)
            )
            self.guard_lanes(instruction, self.op("and", ok, top))


def _targets(instruction: Instruction) -> tuple[Operand, ...]:
    first = instruction.operands[0]
    if isinstance(first, Pair):
        return first.first, first.second
    return first.items if isinstance(first, Vector) else (first,)
