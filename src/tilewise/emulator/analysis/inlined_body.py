"""What inlining puts out: one body, with new names for what each call has; and what it knows of a call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tilewise.emulator.ptx.modifiers import CARRY
from tilewise.emulator.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Label,
    Operand,
    PtxError,
    PtxFunction,
    PtxModule,
    PtxVariable,
    Register,
    Symbol,
)

__all__ = ["Activation", "CallSite", "Frame", "InlinedBody", "function_addresses"]

_MOST_INSTRUCTIONS = 100_000
# Functions have addresses where no array of a process can be, and no window of generic addresses is.
_FIRST_ADDRESS, _STEP = 1 << 60, 16


def function_addresses(module: PtxModule) -> dict[str, int]:
    """Map each device function to the number that stands for its address."""
    names = [name for name, function in module.functions.items() if not function.entry]
    return {name: _FIRST_ADDRESS + i * _STEP for i, name in enumerate(names)}


@dataclass(slots=True)
class Activation:
    """The state of a running recursive function, registers aside: where it was called from, its local memory."""

    start: str  # the label at which its body begins
    site: Register  # where the body was called from: 0 from outside, or one of ``sites``
    base: Register  # where its local memory begins
    local_bytes: int
    places: dict[str, int]  # its variables in local memory
    sites: list[str] = field(default_factory=list)  # labels behind the calls from within


@dataclass(slots=True)
class Frame:
    """A call being inlined: the function whose body is copied, and the new names of its registers and variables."""

    function: PtxFunction
    suffix: str
    end: str | None  # the label behind the call; None in the kernel itself
    parent: Frame | None = None
    symbols: dict[str, str] = field(default_factory=dict)  # parameters → the caller's variables
    own: list[str] = field(default_factory=list)  # variables, by their new names
    position: int = 0  # in the function's body
    activation: Activation | None = None  # of a function that may call itself

    def outward(self) -> Iterator[Frame]:
        """Yield the call, and those that it is within."""
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.parent


@dataclass(slots=True)
class CallSite:
    """The parts of a call instruction, under the caller's new names."""

    line: Instruction
    target: Operand
    arguments: tuple[Operand, ...]
    results: tuple[Operand, ...]
    choices: str  # the table of targets, if it has one


class InlinedBody:
    """The kernel that comes of it."""

    def __init__(self, module: PtxModule, entry: PtxFunction) -> None:
        self.module, self.entry = module, entry
        self.result = replace(entry, registers={}, variables={}, body=[], tables={}, returns=[])
        self.addresses = function_addresses(module)
        self.frames: list[Frame] = []
        self.serial = 0

    def emit(self, instruction: Instruction) -> None:
        self.result.body.append(instruction)
        if len(self.result.body) > _MOST_INSTRUCTIONS:
            what = f"kernel {self.entry.name} with its calls written out"
            raise PtxError(instruction.line, f"{what} has more than {_MOST_INSTRUCTIONS:,} instructions")

    def make(self, at: Instruction, opcode: str, parts: str, *operands: Operand) -> None:
        split = tuple(parts.split(".")) if parts else ()
        self.emit(Instruction(at.line, opcode, split, operands, None, False, at.source, at.file))

    def load_argument(
        self, at: Instruction, type_: str, target: Operand, source: Operand, offset: int = 0
    ) -> None:
        """Copy an argument, or a piece of one in memory, to a register."""
        if isinstance(source, Symbol):
            self.make(at, "ld", f"param.{type_}", target, Address(source, offset))
        else:
            self.make(at, "mov", type_, target, source)

    def store_result(
        self, at: Instruction, type_: str, target: Operand, value: Operand, offset: int = 0
    ) -> None:
        """Copy a register to a result, or to a piece of one in memory."""
        if isinstance(target, Symbol):
            self.make(at, "st", f"param.{type_}", Address(target, offset), value)
        else:
            self.make(at, "mov", type_, target, value)

    def branch(
        self, at: Instruction, label: str, guard: Register | None = None, negated: bool = False
    ) -> None:
        target = (Symbol(label),)
        self.emit(Instruction(at.line, "bra", (), target, guard, negated, at.source, at.file))

    def place(self, label: str, line: int) -> None:
        self.result.body.append(Label(label, line))

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}~{self.serial}"

    def register(self, type_: str) -> Register:
        name = self.fresh("%v")
        self.result.registers[name] = type_
        return Register(name)

    def register_name(self, frame: Frame, name: str) -> str:
        type_ = frame.function.registers.get(name)
        if type_ is None:
            return name  # a special register, or none
        unique = name if name == CARRY else name + frame.suffix
        self.result.registers[unique] = type_
        return unique

    def symbol(self, frame: Frame, name: str, offset: int) -> Symbol | Immediate:
        if name in frame.symbols:
            return Symbol(frame.symbols[name], offset)
        variable = frame.function.variables.get(name)
        if variable is not None:
            unique = name + frame.suffix
            if unique not in self.result.variables:
                self.declare(frame, replace(variable, name=unique))
            return Symbol(unique, offset)
        if name in self.addresses and name not in self.module.variables:
            return Immediate(self.addresses[name] + offset)
        return Symbol(name, offset)

    def declare(self, frame: Frame, variable: PtxVariable) -> None:
        self.result.variables[variable.name] = variable
        frame.own.append(variable.name)

    def lay_out(self) -> None:
        """Give the variables of every call their offsets; calls that do not overlap share memory, as on a stack."""
        ends: dict[int, int] = {}
        for frame in self.frames:
            at = ends[id(frame.parent)] if frame.parent else 0
            for name in frame.own:
                variable = self.result.variables.get(name)
                if variable is None:  # it is in registers
                    continue
                at = -(-at // variable.align) * variable.align
                self.result.variables[name] = replace(variable, at=at)
                at += variable.size
            ends[id(frame)] = at
