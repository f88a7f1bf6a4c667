"""What the function that is being read has: its names, registers and labels, and what stands before an instruction."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import replace

from tilewise.emulator.ptx import syntax

__all__ = ["Scope"]

_Jump = tuple[str, Callable[[str], None]]  # the name of a label, and what puts its unique name in place


class Scope:
    """The names of a module and of one of its functions; ``outer`` is the module's own scope."""

    def __init__(self, module: syntax.PtxModule, outer: Scope | None = None) -> None:
        self.module = module
        self.function: syntax.PtxFunction | None = None
        # What names stand for, in the blocks around what is being read.
        self.names: ChainMap[str, str] = ChainMap()
        self.location = (0, 0)  # file and line of the source
        self.vectors: dict[str, int] = {}  # vector registers of the function: how many elements
        # Holds the registers of the module.
        self.shared: syntax.PtxFunction = outer.shared if outer else syntax.PtxFunction("", False, [], [])
        self.shared_names: dict[str, str] = outer.shared_names if outer else {}
        self.serial = 0
        # Labels of the blocks around what is being read, and what names a label that may follow or be one further out.
        self.labels: list[dict[str, str]] = []
        self.jumps: list[list[_Jump]] = []
        self.taken: set[str] = set()  # unique names of labels

    def enter(self, function: syntax.PtxFunction) -> None:
        """Begin a function: its parameters have names."""
        self.function, self.names = function, ChainMap(dict(self.shared_names))
        for variable in (*function.parameters, *function.returns):
            if variable.space != "reg":
                continue
            name, _, part = variable.name.partition(".")
            unique = self.names.get(name) if part else None
            unique = unique or self.unused(function, name)
            self.names[name] = unique
            if part:
                self.vectors[unique] = syntax.ELEMENTS.index(part) + 1
                unique = f"{unique}.{part}"
            variable.name = unique
            function.registers[unique] = variable.type

    def open_block(self) -> None:
        self.names = self.names.new_child()
        self.labels.append({})
        self.jumps.append([])

    def close_block(self) -> None:
        """Leave a block: names of its labels get the unique names; others are left to the block around it."""
        self.names = self.names.parents
        known, jumps = self.labels.pop(), self.jumps.pop()
        for name, rename in jumps:
            if name in known:
                rename(known[name])
            elif self.jumps:
                self.jumps[-1].append((name, rename))

    def define_label(self, name: str, line: int) -> str:
        """A label's unique name: a name may stand once in each block."""
        if name in self.labels[-1]:
            raise syntax.PtxError(line, f"the label {name!r} stands twice")
        unique = name if name not in self.taken else f"{name}#{len(self.taken)}"
        self.labels[-1][name] = unique
        self.taken.add(unique)
        return unique

    def name_label(self, name: str, rename: Callable[[str], None]) -> None:
        """Have ``rename`` called with the unique name of the label that is called so here, once that is known."""
        self.jumps[-1].append((name, rename))

    def before(self, *instructions: syntax.Instruction) -> None:
        """Put instructions before the one that is being read."""
        assert self.function is not None
        file, source = self.location
        self.function.body += [replace(each, source=source, file=file) for each in instructions]

    def register_for(self, type_: str, of: str = "") -> syntax.Register:
        """A register that no text names; a message has the name of the one that it is made ``of``."""
        assert self.function is not None
        self.serial += 1
        name = f"{of}#{self.serial}"
        self.function.registers[name] = type_
        return syntax.Register(name)

    def type_of(self, register: syntax.Register) -> str:
        return self.function.registers.get(register.name, "") if self.function else ""

    def variable(self, name: str) -> syntax.PtxVariable | None:
        """A variable or a parameter in memory by its unique name; None if there is none."""
        function = self.function
        own = [*function.parameters, *function.returns, *function.variables.values()] if function else []
        known = next((item for item in own if item.name == name and item.space != "reg"), None)
        return known or self.module.variables.get(name)

    def register(self, name: str, line: int) -> syntax.Register:
        unique = self.unique_name(name, line)
        if unique is None:
            raise syntax.PtxError(line, f"{name!r} is not declared")
        return syntax.Register(unique)

    def unique_name(self, name: str, line: int) -> str | None:
        """The unique name of what the function's text calls ``name``."""
        unique = self.names.get(name)
        function, shared = self.function, self.shared.registers
        if unique in shared and function and unique not in function.registers and unique not in self.vectors:
            if not function.entry:
                raise syntax.PtxError(line, f"the module's register {name} in a function is not supported")
            function.registers[unique] = shared[unique]
        return unique

    def variable_name(self, name: str) -> str:
        """The name by which the module knows what is called ``name`` here."""
        return self.names.get(name, name)

    def unused(self, function: syntax.PtxFunction, name: str) -> str:
        """A name that nothing has yet that the function knows: names may come again in other scopes."""
        spaces = (function.registers, self.vectors, function.variables, self.module.variables)
        unique = name
        while any(unique in space for space in spaces):
            self.serial += 1
            unique = f"{name}#{self.serial}"
        return unique
