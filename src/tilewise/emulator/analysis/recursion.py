"""Recursive calls: one body for every depth, and a stack for each thread.

A function that may lead to itself is written out once for each call from outside. A call from within pushes what the
functions on the way still need, and begins the body again; behind the body, a thread goes back to where it was called
from and pops. What the functions have in local memory lies on the stack as well, so that each call has its own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tilewise.emulator.analysis.control_flow import walk
from tilewise.emulator.analysis.inlined_body import Activation, CallSite, Frame, InlinedBody
from tilewise.emulator.analysis.variable_layout import align_up
from tilewise.emulator.operations.operands import reads, registers_in, symbols_in, writes
from tilewise.emulator.ptx import syntax
from tilewise.emulator.ptx.types import TYPE_BYTES, bits_of

__all__ = ["STACK_BYTES", "Stack", "is_recursive", "live_after"]

STACK_BYTES = 16 << 10  # of a thread
_ALIGN = 16
_STACK = "stack~"  # a name that no PTX has


def is_recursive(module: syntax.PtxModule, name: str) -> bool:
    """Whether a function may call itself, directly or through others that it calls by name."""

    def called(caller: str) -> Iterator[str]:
        function = module.function(caller)
        return _called(function) if function else iter(())

    return name in walk(called(name), called)


def _called(function: syntax.PtxFunction) -> Iterator[str]:
    for item in function.body:
        if isinstance(item, syntax.Instruction) and item.opcode == "call":
            others = (operand for operand in item.operands if not isinstance(operand, syntax.Vector))
            target = next(others, None)
            if isinstance(target, syntax.Symbol):
                yield target.name


class Stack:
    """Emits the calls within recursive functions."""

    def __init__(self, out: InlinedBody) -> None:
        self.out = out
        self.live: dict[str, list[frozenset[str]]] = {}  # by function

    @functools.cached_property
    def top(self) -> syntax.Register:
        """The register that says where a thread's stack ends; where there is one, there is a stack."""
        stack = syntax.PtxVariable(_STACK, "local", "b8", STACK_BYTES, _ALIGN, STACK_BYTES)
        self.out.declare(self.out.frames[0], stack)
        return self.out.register("u64")

    # -- a body ---------------------------------------------------------------------------------
    def begin(self, frame: Frame, at: syntax.Instruction) -> None:
        """Emit the code before a body that is called from outside: reserve its local memory on the stack."""
        out = self.out
        if not any(each.activation for each in frame.outward()):
            out.make(at, "mov", "u64", self.top, syntax.Symbol(_STACK))
        places, size = {}, 0
        for variable in frame.function.variables.values():
            if variable.space == "local":
                size = align_up(size, variable.align)
                places[variable.name] = size
                size += variable.size
        start, site, base = out.fresh("again"), out.register("u32"), out.register("u64")
        frame.activation = Activation(start, site, base, align_up(size, _ALIGN), places)
        out.make(at, "mov", "u32", site, syntax.Immediate(0))
        out.place(start, at.line)
        if size:
            out.make(at, "mov", "u64", base, self.top)
            self._grow(at, frame.activation.local_bytes)

    def finish(self, frame: Frame, at: syntax.Instruction) -> None:
        """Emit the code behind the body: release its local memory and go back to the caller."""
        kept, out = frame.activation, self.out
        assert kept is not None
        if kept.local_bytes:
            out.make(at, "mov", "u64", self.top, kept.base)
        if kept.sites:
            outside, table = out.fresh("outside"), out.fresh("sites")
            out.result.tables[table] = [outside, *kept.sites]
            out.make(at, "brx", "idx", kept.site, syntax.Symbol(table))
            out.place(outside, at.line)

    def find_offset(self, frame: Frame, name: str) -> tuple[syntax.Register, int] | None:
        """Return base register and offset of a recursive function's variable; None if it is not on the stack."""
        kept = frame.activation
        return (kept.base, kept.places[name]) if kept and name in kept.places else None

    # -- a call from within ---------------------------------------------------------------------
    def call_again(self, frame: Frame, call: CallSite, root: Frame) -> None:
        """Emit a recursive call, from ``frame``, of the function ``root`` that is running already."""
        out, at, kept = self.out, call.line, root.activation
        assert kept is not None
        given = [
            (formal, self._copy_to_registers(at, formal, actual))
            for formal, actual in zip(root.function.parameters, call.arguments, strict=True)
        ]
        slots, size = self._slots(frame, root)
        self._grow(at, size)
        self._save(at, slots, size)
        for formal, pieces in given:
            self._copy_from_registers(at, self._operand_of_formal(root, formal), pieces)
        back = out.fresh("back")
        kept.sites.append(back)
        out.make(at, "mov", "u32", kept.site, syntax.Immediate(len(kept.sites)))
        out.branch(at, kept.start)
        out.place(back, at.line)
        results = [
            self._copy_to_registers(at, formal, self._operand_of_formal(root, formal))
            for formal in root.function.returns
        ]
        self._restore(at, slots, size)
        out.make(at, "sub", "u64", self.top, self.top, syntax.Immediate(size))
        for actual, pieces in zip(call.results, results, strict=True):
            self._copy_from_registers(at, actual, pieces)

    def _grow(self, at: syntax.Instruction, size: int) -> None:
        """Emit a reservation of stack memory, which faults if the stack is full."""
        out = self.out
        full, end, room = out.register("pred"), out.register("u64"), out.fresh("room")
        out.make(at, "add", "u64", self.top, self.top, syntax.Immediate(size))
        out.make(at, "mov", "u64", end, syntax.Symbol(_STACK, STACK_BYTES))
        out.make(at, "setp", "gt.u64", full, self.top, end)
        out.branch(at, room, full, True)
        out.make(at, "call:overflow", "")
        out.place(room, at.line)

    def _slots(self, frame: Frame, root: Frame) -> tuple[list[tuple[int, syntax.Operand, str]], int]:
        """List what a call pushes: offset, operand and type of each value; and the bytes of all."""
        out = self.out
        held: dict[syntax.Operand, str] = {}
        pieces: dict[str, syntax.PtxVariable] = {}
        for each in frame.outward():
            live = sorted(self._live(each))
            for name in (name for name in live if name in each.function.registers):
                held[syntax.Register(out.register_name(each, name))] = each.function.registers[name]
            if each.activation:
                held |= {each.activation.site: "u32", each.activation.base: "u64"}
            own = {v.name for v in each.function.variables.values() if v.space == "param"} | {*each.symbols}
            for name in (name for name in live if name in own):
                symbol = out.symbol(each, name, 0)
                if isinstance(symbol, syntax.Symbol) and symbol.name in out.result.variables:
                    pieces[symbol.name] = out.result.variables[symbol.name]
            if each is root:
                break
        for variable in pieces.values():
            base = syntax.Symbol(variable.name)
            held |= {syntax.Address(base, offset): type_ for offset, type_ in _pieces(variable.size)}
        slots, size = [], 0
        for what, type_ in held.items():
            width = 4 if type_ == "pred" else bits_of(type_) // 8
            size = align_up(size, width)
            slots.append((size, what, type_))
            size += width
        return slots, align_up(size, _ALIGN)

    def _live(self, frame: Frame) -> frozenset[str]:
        """Return the registers and variables that a function may still read behind its current call."""
        name = frame.function.name
        if name not in self.live:
            self.live[name] = live_after(frame.function)
        return self.live[name][frame.position]

    def _save(self, at: syntax.Instruction, slots: list[tuple[int, syntax.Operand, str]], size: int) -> None:
        out = self.out
        for offset, what, type_ in slots:
            value = what
            if isinstance(what, syntax.Address):
                value = out.register(_register_type(type_))
                out.make(at, "ld", f"param.{type_}", value, what)
            elif type_ == "pred":
                value = out.register("u32")
                out.make(at, "selp", "u32", value, syntax.Immediate(1), syntax.Immediate(0), what)
            out.make(at, "st", f"local.{_stored(type_)}", syntax.Address(self.top, offset - size), value)

    def _restore(
        self, at: syntax.Instruction, slots: list[tuple[int, syntax.Operand, str]], size: int
    ) -> None:
        out = self.out
        for offset, what, type_ in slots:
            place, stored = syntax.Address(self.top, offset - size), _stored(type_)
            if isinstance(what, syntax.Address):
                value = out.register(_register_type(type_))
                out.make(at, "ld", f"local.{stored}", value, place)
                out.make(at, "st", f"param.{type_}", what, value)
            elif type_ == "pred":
                value = out.register("u32")
                out.make(at, "ld", "local.u32", value, place)
                out.make(at, "setp", "ne.u32", what, value, syntax.Immediate(0))
            else:
                out.make(at, "ld", f"local.{stored}", what, place)

    # -- arguments and results ------------------------------------------------------------------
    def _operand_of_formal(self, root: Frame, formal: syntax.PtxVariable) -> syntax.Operand:
        """Return the register or variable that holds a parameter or result of the called function."""
        if formal.space == "reg":
            return syntax.Register(self.out.register_name(root, formal.name))
        return syntax.Symbol(root.symbols[formal.name])

    def _copy_to_registers(
        self, at: syntax.Instruction, formal: syntax.PtxVariable, source: syntax.Operand
    ) -> list[tuple[int, str, syntax.Operand]]:
        """Copy an argument or a result to registers, piece by piece: offset, type, register."""
        found: list[tuple[int, str, syntax.Operand]] = []
        whole = [(0, formal.type)] if not isinstance(source, syntax.Symbol) or formal.space == "reg" else None
        for offset, type_ in whole or _pieces(formal.size):
            value = self.out.register(_register_type(type_))
            self.out.load_argument(at, type_, value, source, offset)
            found.append((offset, type_, value))
        return found

    def _copy_from_registers(
        self, at: syntax.Instruction, target: syntax.Operand, pieces: list[tuple[int, str, syntax.Operand]]
    ) -> None:
        for offset, type_, value in pieces:
            if target != syntax.Register("_"):
                self.out.store_result(at, type_, target, value, offset)


def live_after(function: syntax.PtxFunction) -> list[frozenset[str]]:
    """For each item of a body, the registers and variables whose values something behind it may read."""
    body = function.body
    places = {item.name: index for index, item in enumerate(body) if isinstance(item, syntax.Label)}
    after: list[frozenset[str]] = [frozenset()] * len(body)
    given_back = frozenset(variable.name for variable in function.returns)
    before = [*[frozenset[str]()] * len(body), given_back]
    changed = True
    while changed:
        changed = False
        for index in range(len(body) - 1, -1, -1):
            item = body[index]
            following = (before[place] for place in _next_positions(function, index, places))
            after[index] = frozenset().union(*following)
            now = after[index]
            if isinstance(item, syntax.Instruction) and item.opcode == "ret":
                now |= given_back
            if isinstance(item, syntax.Instruction):
                now = now - _names_overwritten(function, item) | _names_read(function, item)
            if now != before[index]:
                before[index], changed = now, True
    return after


def _next_positions(function: syntax.PtxFunction, index: int, places: dict[str, int]) -> list[int]:
    """Return the positions that a thread may run after this one."""
    item = function.body[index]
    if not isinstance(item, syntax.Instruction) or item.opcode not in ("bra", "brx", "ret", "exit"):
        return [index + 1]
    names: list[str] = []
    if item.opcode in ("bra", "brx") and isinstance(item.operands[-1], syntax.Symbol):
        name = item.operands[-1].name
        names = function.tables.get(name, []) if item.opcode == "brx" else [name]
    found = [places[name] for name in names if name in places]
    return [*found, index + 1] if item.guard else found


def _results(item: syntax.Instruction) -> syntax.Operand | None:
    return item.operands[0] if item.opcode == "call" and isinstance(item.operands[0], syntax.Vector) else None


def _names_overwritten(function: syntax.PtxFunction, item: syntax.Instruction) -> frozenset[str]:
    if item.guard:
        return frozenset()
    if item.opcode == "call":
        results = _results(item)
        return frozenset(_names(function, results)) if results else frozenset()
    found = set(writes(item))
    match item.operands[:1]:
        case (syntax.Address(base=syntax.Symbol(name=name), offset=0),) if (
            item.opcode == "st" and len(item.operands) > 1
        ):
            variable, type_ = function.variables.get(name), item.parts[-1]
            if variable and type_ in TYPE_BYTES and variable.size == TYPE_BYTES[type_]:
                found.add(name)
    return frozenset(found)


def _names_read(function: syntax.PtxFunction, item: syntax.Instruction) -> frozenset[str]:
    if item.opcode == "call":
        results = _results(item)
        given = [operand for operand in (*item.operands, item.guard) if operand and operand is not results]
        return frozenset().union(*(_names(function, operand) for operand in given))
    registers = frozenset(name for name in reads(item) if name in function.registers)
    return registers if item.opcode == "st" else registers.union(symbols_in(*item.operands))


def _names(function: syntax.PtxFunction, operand: syntax.Operand) -> frozenset[str]:
    """Return the names of the registers and variables in an operand."""
    registers = (name for name in registers_in(operand) if name in function.registers)
    return frozenset([*registers, *symbols_in(operand)])


def _pieces(size: int) -> Iterator[tuple[int, str]]:
    """Yield offset and type of each piece that one instruction can move, for a variable of ``size`` bytes."""
    offset = 0
    while offset < size:
        width = next(width for width in (8, 4, 2, 1) if width <= size - offset)
        yield offset, f"b{8 * width}"
        offset += width


def _stored(type_: str) -> str:
    return "u32" if type_ == "pred" else f"b{bits_of(type_)}"


def _register_type(type_: str) -> str:
    return "b16" if bits_of(type_) == 8 else type_
