"""Calls of device functions, put in the place of the call: what is left has one function and no calls.

Every call gets a copy of the function's body, with registers, labels and variables of its own: their names
end in ``~`` and the number of the call, which no PTX name has. A call through a pointer becomes a choice
between the functions whose address the module takes. What a function does that leads back to itself is in
``recursion.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

from tilewise.emulator.analysis.inlined_body import CallSite, Frame, InlinedBody
from tilewise.emulator.analysis.passing import pass_in_registers
from tilewise.emulator.analysis.recursion import Stack, is_recursive
from tilewise.emulator.operations.operands import symbols_in
from tilewise.emulator.ptx import syntax
from tilewise.emulator.ptx.library import EXTERNAL
from tilewise.emulator.ptx.types import TYPE_BYTES
from tilewise.errors import UnknownNameError

__all__ = ["inline_calls"]

_MOST_CALLS = 100  # within one another


def inline_calls(module: syntax.PtxModule, entry: str) -> syntax.PtxFunction:
    """Return the kernel ``entry`` with the body of each called function in the place of the call."""
    function = module.function(entry)
    if function is None or not function.entry or function.declared_only:
        raise UnknownNameError(
            "kernel", entry, [f.name for f in module.functions.values() if f.entry and not f.declared_only]
        )
    inliner = Inliner(module, function)
    inliner.result.registers.update(function.registers)
    inliner.expand(Frame(function, "", None))
    pass_in_registers(inliner.result)
    inliner.lay_out()
    return inliner.result


class Inliner(InlinedBody):
    def __init__(self, module: syntax.PtxModule, entry: syntax.PtxFunction) -> None:
        super().__init__(module, entry)
        self.taken: list[str] | None = None
        self.is_recursive = cache(partial(is_recursive, module))
        self.stack = Stack(self)

    # -- a body ---------------------------------------------------------------------------------
    def expand(self, frame: Frame) -> None:
        self.frames.append(frame)
        function, last = frame.function, len(frame.function.body) - 1
        for name, labels in function.tables.items():
            self.result.tables[name + frame.suffix] = [label + frame.suffix for label in labels]
        for position, item in enumerate(function.body):
            frame.position = position
            if isinstance(item, syntax.Label):
                self.place(item.name + frame.suffix, item.line)
                continue
            guard = syntax.Register(self.register_name(frame, item.guard.name)) if item.guard else None
            if item.opcode == "ret" and frame.end is not None:
                if position != last or guard:
                    self.branch(item, frame.end, guard, item.negated)
            elif item.opcode in ("bra", "brx"):
                operands = [
                    syntax.Symbol(operand.name + frame.suffix)
                    if isinstance(operand, syntax.Symbol)
                    else self.operand(frame, operand)
                    for operand in item.operands
                ]
                self.emit(replace(item, operands=tuple(operands), guard=guard))
            elif item.opcode == "call":
                self.call(frame, item, guard)
            else:
                self.copy_instruction(frame, item, guard)

    def copy_instruction(self, frame: Frame, item: syntax.Instruction, guard: syntax.Register | None) -> None:
        """Copy an instruction that is no call or jump; turn accesses to stack variables into local ones."""
        operands: list[syntax.Operand] = []
        parts = item.parts
        for operand in item.operands:
            match operand:
                case (
                    syntax.Address(base=syntax.Symbol(name=name), offset=offset)
                    | syntax.Symbol(name=name, offset=offset)
                ):
                    place = self.stack.find_offset(frame, name)
                case _:
                    place = None
            if place is None:
                operands.append(self.operand(frame, operand))
            elif isinstance(operand, syntax.Address):
                operands.append(syntax.Address(place[0], place[1] + offset))
                parts = parts if "local" in parts else ("local", *parts)
            else:
                value = self.register("u64")
                self.make(item, "add", "u64", value, place[0], syntax.Immediate(place[1] + offset))
                operands.append(value)
        self.emit(replace(item, operands=tuple(operands), parts=parts, guard=guard))

    # -- names ----------------------------------------------------------------------------------
    def operand(self, frame: Frame, operand: syntax.Operand) -> syntax.Operand:
        match operand:
            case syntax.Register(name=name):
                return syntax.Register(self.register_name(frame, name))
            case syntax.Symbol(name=name, offset=offset):
                return self.symbol(frame, name, offset)
            case syntax.Address(base=syntax.Register(name=name), offset=offset):
                return syntax.Address(syntax.Register(self.register_name(frame, name)), offset)
            case syntax.Address(base=syntax.Symbol(name=name), offset=offset):
                base = self.symbol(frame, name, 0)
                return syntax.Address(base, offset) if isinstance(base, syntax.Symbol) else operand
            case syntax.Not(item=item):
                return syntax.Not(syntax.Register(self.register_name(frame, item.name)))
            case syntax.Vector(items=items):
                return syntax.Vector(tuple(self.operand(frame, item) for item in items))
            case syntax.Pair(first=first, second=second):
                return syntax.Pair(self.operand(frame, first), self.operand(frame, second))
        return operand

    # -- calls ----------------------------------------------------------------------------------
    def call(self, frame: Frame, item: syntax.Instruction, guard: syntax.Register | None) -> None:
        around = self.fresh("around")
        if guard is not None:
            self.branch(item, around, guard, not item.negated)
        call = self.read_call(frame, item)
        if isinstance(call.target, syntax.Symbol):
            self.call_by_name(frame, call, call.target.name)
        else:
            self.call_by_pointer(frame, call)
        if guard is not None:
            self.place(around, item.line)

    def read_call(self, frame: Frame, item: syntax.Instruction) -> CallSite:
        rest = list(item.operands)

        def take_list() -> tuple[syntax.Operand, ...]:
            listed = rest.pop(0) if rest and isinstance(rest[0], syntax.Vector) else syntax.Vector(())
            return tuple(self.operand(frame, operand) for operand in syntax.items_of(listed))

        results = take_list()
        if not rest or not isinstance(rest[0], syntax.Symbol | syntax.Register):
            raise syntax.PtxError(item.line, "a call wants a function")
        target = rest.pop(0)
        if isinstance(target, syntax.Register):
            target = self.operand(frame, target)
        arguments = take_list()
        choices = rest[0].name if rest and isinstance(rest[0], syntax.Symbol) else ""
        return CallSite(item, target, arguments, results, choices)

    def call_by_name(self, frame: Frame, call: CallSite, name: str) -> None:
        function = self.module.function(name)
        if function is not None and function.entry:
            raise syntax.PtxError(call.line.line, f"{name} is a kernel: it cannot be called")
        if function is None or function.declared_only:
            self.external(call, name)
            return
        around = {each.function.name: each for each in frame.outward()}
        if name in around:
            self.check_signature(call, function)
            self.stack.call_again(frame, call, around[name])
            return
        if len(around) > _MOST_CALLS:
            raise syntax.PtxError(call.line.line, f"more than {_MOST_CALLS} calls within one another")
        self.enter(frame, call, function)

    def enter(self, frame: Frame, call: CallSite, function: syntax.PtxFunction) -> None:
        """Put the called function's body in the place of the call."""
        self.check_signature(call, function)
        self.serial += 1
        suffix = f"~{self.serial}"
        inner = Frame(function, suffix, f"end{suffix}", frame)
        for formal, actual in zip(function.parameters, call.arguments, strict=True):
            self.pass_in(inner, call.line, formal, actual)
        after = [
            self.pass_out(inner, call.line, formal, actual)
            for formal, actual in zip(function.returns, call.results, strict=True)
        ]
        recursive = self.is_recursive(function.name)
        if recursive:
            self.stack.begin(inner, call.line)
        self.expand(inner)
        self.place(f"end{suffix}", call.line.line)
        if recursive:
            self.stack.finish(inner, call.line)
        for copy_result in filter(None, after):
            copy_result()

    def check_signature(self, call: CallSite, function: syntax.PtxFunction) -> None:
        given, wanted = len(call.arguments), len(function.parameters)
        if given != wanted or len(call.results) != len(function.returns):
            raise syntax.PtxError(
                call.line.line,
                f"{function.name} takes {wanted} arguments and gives {len(function.returns)} results, "
                f"not {given} and {len(call.results)}",
            )

    def pass_in(
        self, inner: Frame, at: syntax.Instruction, formal: syntax.PtxVariable, actual: syntax.Operand
    ) -> None:
        if formal.space == "reg":
            target = syntax.Register(self.register_name(inner, formal.name))
            self.load_argument(at, formal.type, target, actual)
        elif own := self.place_formal(inner, at, formal, actual):
            self.store_result(at, formal.type, own, actual)

    def pass_out(
        self, inner: Frame, at: syntax.Instruction, formal: syntax.PtxVariable, actual: syntax.Operand
    ) -> Callable[[], None] | None:
        """Declare a result's variable; return what emits the copy of the result behind the call, or None."""
        if formal.space == "reg":
            source = syntax.Register(self.register_name(inner, formal.name))
            return partial(self.store_result, at, formal.type, actual, source)
        own = self.place_formal(inner, at, formal, actual)
        return partial(self.load_argument, at, formal.type, actual, own) if own else None

    def place_formal(
        self, inner: Frame, at: syntax.Instruction, formal: syntax.PtxVariable, actual: syntax.Operand
    ) -> syntax.Symbol | None:
        """Place a parameter or result in the caller's variable, or in one of its own and return that."""
        if isinstance(actual, syntax.Symbol):
            self.alias(inner, at, formal, actual)
            return None
        variable = replace(formal, name=formal.name + inner.suffix)
        self.declare(inner, variable)
        inner.symbols[formal.name] = variable.name
        return syntax.Symbol(variable.name)

    def alias(
        self, inner: Frame, at: syntax.Instruction, formal: syntax.PtxVariable, actual: syntax.Symbol
    ) -> None:
        variable = self.result.variables.get(actual.name)
        if variable is None or variable.size != formal.size:
            raise syntax.PtxError(
                at.line, f"{syntax.name_in_text(actual.name)} does not fit the parameter {formal.name}"
            )
        if variable.align < formal.align:
            self.result.variables[actual.name] = replace(variable, align=formal.align)
        inner.symbols[formal.name] = actual.name

    # -- functions that the module does not define ------------------------------------------------
    def external(self, call: CallSite, name: str) -> None:
        if name not in EXTERNAL:
            raise syntax.PtxError(
                call.line.line, f"the function {name} is called but not defined in this PTX"
            )
        opcode, types = EXTERNAL[name]
        if len(call.arguments) < len(types):
            raise syntax.PtxError(call.line.line, f"{name} takes {len(types)} arguments")
        values: list[syntax.Operand] = []
        for type_, actual in zip(types, call.arguments, strict=False):
            value = self.register(type_)
            self.load_argument(call.line, type_, value, actual)
            values.append(value)
        result = self.register("u32") if call.results else syntax.Register("_")
        self.make(call.line, opcode, "", result, *values)
        for actual in call.results[:1]:
            self.store_result(call.line, "b32", actual, result)

    # -- calls through pointers -----------------------------------------------------------------
    def call_by_pointer(self, frame: Frame, call: CallSite) -> None:
        done = self.fresh("done")
        for name in self.candidates(frame, call):
            other, onward = self.register("pred"), self.fresh("other")
            self.make(call.line, "setp", "ne.u64", other, call.target, syntax.Immediate(self.addresses[name]))
            self.branch(call.line, onward, other)
            function = self.module.function(name)
            assert function is not None
            self.enter(frame, call, function)
            self.branch(call.line, done)
            self.place(onward, call.line.line)
        self.make(call.line, "call:nowhere", "")
        self.place(done, call.line.line)

    def candidates(self, frame: Frame, call: CallSite) -> list[str]:
        """Return the functions that a pointer may call: those of its table, or all with the same signature."""
        if self.taken is None:
            order = {name: number for number, name in enumerate(self.module.functions)}
            self.taken = sorted(set(_find_addressed(self.module)), key=order.__getitem__)
        names = self.taken
        if call.choices in frame.function.tables:
            names = frame.function.tables[call.choices]
        elif call.choices in self.module.variables:
            names = [link[1] for link in self.module.variables[call.choices].links]
        found, running = [], {each.function.name for each in frame.outward()}
        for name in dict.fromkeys(names):
            function = self.module.functions.get(name)
            if function is None or function.declared_only or function.entry or name in running:
                continue
            if self.fits(function.parameters, call.arguments) and self.fits(function.returns, call.results):
                found.append(name)
        return found

    def fits(self, formals: list[syntax.PtxVariable], actuals: tuple[syntax.Operand, ...]) -> bool:
        sizes = [self.size_of(actual) for actual in actuals]
        return len(sizes) == len(formals) and all(
            size in (0, formal.size) for size, formal in zip(sizes, formals, strict=True)
        )

    def size_of(self, actual: syntax.Operand) -> int:
        """Return an argument's size in bytes; 0 if it has none of its own, as a literal."""
        match actual:
            case syntax.Symbol(name=name) if name in self.result.variables:
                return self.result.variables[name].size
            case syntax.Register(name=name) if name in self.result.registers:
                return TYPE_BYTES[self.result.registers[name]]
        return 0


_NAME = re.compile(r"[A-Za-z_$%][\w$]*")


def _find_addressed(module: syntax.PtxModule) -> Iterator[str]:
    """Yield the functions whose addresses are taken by code or by a variable's initial bytes."""
    for variable in list(module.variables.values()):
        yield from (link[1] for link in variable.links if link[1] in module.functions)
    callable_ = {name for name, function in module.functions.items() if not function.entry}
    for name, function in module.functions.items():
        if function.unread:
            if callable_.isdisjoint(_NAME.findall(function.unread)):
                continue  # and so it stays unread
            module.function(name)
        for item in function.body:
            if isinstance(item, syntax.Instruction) and item.opcode not in ("call", "bra", "brx"):
                names = symbols_in(*item.operands)
                yield from (n for n in names if n in module.functions and n not in function.variables)
