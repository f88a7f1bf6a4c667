"""Calls of functions that are running already: one body for every depth, and a stack for each thread.

A function that may lead to itself is written out once for each call from outside. A call from within pushes what the
functions on the way hold, and begins the body again; behind the body, a thread goes back to where it was called from
and pops. What the functions have in local memory lies on the stack as well, so that each call has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewise.emulator.ptx.operands import operands_in
from tilewise.emulator.ptx.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Operand,
    Register,
    Symbol,
    Variable,
    Vector,
)
from tilewise.emulator.ptx.types import bits_of

if TYPE_CHECKING:
    from tilewise.emulator.analysis.inline import Call, Frame, Inliner

__all__ = ["STACK_BYTES", "Activation", "Stack", "recursive_functions"]

STACK_BYTES = 16 << 10  # of a thread
_ALIGN = 16
_STACK = "stack~"  # a name that no PTX has


@dataclass(slots=True)
class Activation:
    """What a running call of a recursive function keeps beside its registers."""

    start: str  # the label at which its body begins
    site: Register  # where the body was called from: 0 from outside, or one of ``sites``
    base: Register  # where its local memory begins
    local_bytes: int
    places: dict[str, int]  # its variables in local memory
    sites: list[str] = field(default_factory=list)  # labels behind the calls from within


def recursive_functions(module: Module) -> set[str]:
    """The functions that may lead to a call of themselves by name."""
    called = {name: set(_called(function)) for name, function in module.functions.items()}
    found = set()
    for name in called:
        reached: set[str] = set()
        ahead = list(called[name])
        while ahead:
            other = ahead.pop()
            if other not in reached:
                reached.add(other)
                ahead += called.get(other, ())
        if name in reached:
            found.add(name)
    return found


def _called(function: Function) -> Iterator[str]:
    for item in function.body:
        if isinstance(item, Instruction) and item.opcode == "call":
            target = next((operand for operand in item.operands if not isinstance(operand, Vector)), None)
            if isinstance(target, Symbol):
                yield target.name


class Stack:
    """Writes the calls within recursive functions."""

    def __init__(self, inliner: Inliner) -> None:
        self.out = inliner
        self.top: Register | None = None

    # -- a body ---------------------------------------------------------------------------------
    def begin(self, frame: Frame, at: Instruction) -> None:
        """In front of a body that is entered from outside."""
        out = self.out
        if self.top is None:
            self.top = out.register("u64")
            out.declare(out.frames[0], Variable(_STACK, "local", "b8", STACK_BYTES, _ALIGN, STACK_BYTES))
        if not any(outer.activation for outer in _outwards(frame.parent)):
            out.make(at, "mov", "u64", self.top, Symbol(_STACK))
        places, size = {}, 0
        for variable in frame.function.variables.values():
            if variable.space == "local":
                size = _aligned(size, variable.align)
                places[variable.name] = size
                size += variable.size
        start, site, base = out.fresh("again"), out.register("u32"), out.register("u64")
        frame.activation = Activation(start, site, base, _aligned(size, _ALIGN), places)
        out.make(at, "mov", "u32", site, Immediate(0))
        out.place(start, at.line)
        if size:
            out.make(at, "mov", "u64", base, self.top)
            self._grow(at, frame.activation.local_bytes)

    def finish(self, frame: Frame, at: Instruction) -> None:
        """Behind the body: on from where it was called."""
        kept, out = frame.activation, self.out
        assert kept is not None and self.top is not None
        if kept.local_bytes:
            out.make(at, "mov", "u64", self.top, kept.base)
        if kept.sites:
            outside, table = out.fresh("outside"), out.fresh("sites")
            out.result.tables[table] = [outside, *kept.sites]
            out.make(at, "brx", "idx", kept.site, Symbol(table))
            out.place(outside, at.line)

    def address(self, frame: Frame, name: str, offset: int) -> Address | None:
        """Where a variable of a recursive function lies, if it is on the stack."""
        kept = frame.activation
        return Address(kept.base, kept.places[name] + offset) if kept and name in kept.places else None

    # -- a call from within ---------------------------------------------------------------------
    def again(self, frame: Frame, call: Call, root: Frame) -> None:
        """A call of the function ``root``, which is running, from ``frame``, to which it has led."""
        out, at, kept = self.out, call.line, root.activation
        assert kept is not None and self.top is not None
        given = [
            (formal, self._taken(at, formal, actual))
            for formal, actual in zip(root.function.parameters, call.arguments, strict=True)
        ]
        slots, size = self._slots(frame, root)
        self._grow(at, size)
        self._save(at, slots, size)
        for formal, pieces in given:
            self._put(at, self._held(root, formal), pieces)
        back = out.fresh("back")
        kept.sites.append(back)
        out.make(at, "mov", "u32", kept.site, Immediate(len(kept.sites)))
        out.branch(at, kept.start)
        out.place(back, at.line)
        results = [self._taken(at, formal, self._held(root, formal)) for formal in root.function.returns]
        self._restore(at, slots, size)
        out.make(at, "sub", "u64", self.top, self.top, Immediate(size))
        for actual, pieces in zip(call.results, results, strict=True):
            self._put(at, actual, pieces)

    def _grow(self, at: Instruction, size: int) -> None:
        """Room on the stack, or a fault."""
        out, full, end, room = (
            self.out,
            self.out.register("pred"),
            self.out.register("u64"),
            self.out.fresh("room"),
        )
        assert self.top is not None
        out.make(at, "add", "u64", self.top, self.top, Immediate(size))
        out.make(at, "mov", "u64", end, Symbol(_STACK, STACK_BYTES))
        out.make(at, "setp", "gt.u64", full, self.top, end)
        out.branch(at, room, full, True)
        out.make(at, "call:overflow", "")
        out.place(room, at.line)

    def _slots(self, frame: Frame, root: Frame) -> tuple[list[tuple[int, Operand, str]], int]:
        """What is pushed: at which offset, what, and of which type; and the bytes of it all."""
        out = self.out
        held: dict[Operand, str] = {}
        pieces: dict[str, Variable] = {}
        for each in _outwards(frame):
            for name in _named(each.function):
                held[Register(out.register_name(each, name))] = each.function.registers[name]
            if each.activation:
                held |= {each.activation.site: "u32", each.activation.base: "u64"}
            own = [v.name for v in each.function.variables.values() if v.space == "param"]
            for name in (*own, *each.symbols):
                symbol = out.symbol(each, name, 0)
                if isinstance(symbol, Symbol) and symbol.name in out.result.variables:
                    pieces[symbol.name] = out.result.variables[symbol.name]
            if each is root:
                break
        for variable in pieces.values():
            held |= {
                Address(Symbol(variable.name), offset): type_ for offset, type_ in _pieces(variable.size)
            }
        slots, size = [], 0
        for what, type_ in held.items():
            width = 4 if type_ == "pred" else bits_of(type_) // 8
            size = _aligned(size, width)
            slots.append((size, what, type_))
            size += width
        return slots, _aligned(size, _ALIGN)

    def _save(self, at: Instruction, slots: list[tuple[int, Operand, str]], size: int) -> None:
        out = self.out
        assert self.top is not None
        for offset, what, type_ in slots:
            value, stored = what, _stored(type_)
            if isinstance(what, Address):
                value = out.register(_register_type(type_))
                out.make(at, "ld", f"param.{type_}", value, what)
            elif type_ == "pred":
                value = out.register("u32")
                out.make(at, "selp", "u32", value, Immediate(1), Immediate(0), what)
            out.make(at, "st", f"local.{stored}", Address(self.top, offset - size), value)

    def _restore(self, at: Instruction, slots: list[tuple[int, Operand, str]], size: int) -> None:
        out = self.out
        assert self.top is not None
        for offset, what, type_ in slots:
            place, stored = Address(self.top, offset - size), _stored(type_)
            if isinstance(what, Address):
                value = out.register(_register_type(type_))
                out.make(at, "ld", f"local.{stored}", value, place)
                out.make(at, "st", f"param.{type_}", what, value)
            elif type_ == "pred":
                value = out.register("u32")
                out.make(at, "ld", "local.u32", value, place)
                out.make(at, "setp", "ne.u32", what, value, Immediate(0))
            else:
                out.make(at, "ld", f"local.{stored}", what, place)

    # -- arguments and results ------------------------------------------------------------------
    def _held(self, root: Frame, formal: Variable) -> Operand:
        """What has a parameter or a result of the function that is called."""
        if formal.space == "reg":
            return Register(self.out.register_name(root, formal.name))
        return Symbol(root.symbols[formal.name])

    def _taken(self, at: Instruction, formal: Variable, source: Operand) -> list[tuple[int, str, Operand]]:
        """Copies in registers of an argument or a result, piece by piece: offset, type, register."""
        found: list[tuple[int, str, Operand]] = []
        whole = [(0, formal.type)] if not isinstance(source, Symbol) or formal.space == "reg" else None
        for offset, type_ in whole or _pieces(formal.size):
            value = self.out.register(_register_type(type_))
            if isinstance(source, Symbol):
                self.out.make(at, "ld", f"param.{type_}", value, Address(source, offset))
            else:
                self.out.make(at, "mov", type_, value, source)
            found.append((offset, type_, value))
        return found

    def _put(self, at: Instruction, target: Operand, pieces: list[tuple[int, str, Operand]]) -> None:
        for offset, type_, value in pieces:
            if isinstance(target, Symbol):
                self.out.make(at, "st", f"param.{type_}", Address(target, offset), value)
            elif target != Register("_"):
                self.out.make(at, "mov", type_, target, value)


def _outwards(frame: Frame | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame
        frame = frame.parent


def _named(function: Function) -> list[str]:
    """The registers that a function's body names."""
    found: dict[str, None] = {}
    for item in function.body:
        if isinstance(item, Instruction):
            operands = [*operands_in(item), *([item.guard] if item.guard else [])]
            for operand in operands:
                inner = getattr(operand, "item", operand)  # the register of a ``!p``
                if isinstance(inner, Register) and inner.name in function.registers:
                    found[inner.name] = None
    return list(found)


def _aligned(size: int, to: int) -> int:
    return -(-size // to) * to


def _pieces(size: int) -> Iterator[tuple[int, str]]:
    """A variable cut into what one instruction moves."""
    offset = 0
    while offset < size:
        width = next(width for width in (8, 4, 2, 1) if width <= size - offset)
        yield offset, f"b{8 * width}"
        offset += width


def _stored(type_: str) -> str:
    return "u32" if type_ == "pred" else f"b{bits_of(type_)}"


def _register_type(type_: str) -> str:
    return "b16" if bits_of(type_) == 8 else type_
