"""From a module to one flat piece of code and a layout of its variables."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .errors import Unsupported, YardstickError
from .memory import BASES, ConstantSpace, Memory
from .operands import constant_bits
from .ptx_types import type_of
from .syntax import Function, Group, Immediate, Instruction, Module, Operand, Symbol, Variable, type_bytes

STACK_FOR_RECURSION = 64


@dataclass
class Linked:
    """A function with its place in the flat code, the register file and the local frame."""

    function: Function
    start: int
    first_slot: int
    instructions: list[Instruction]
    frame: dict[str, int] = field(default_factory=dict)
    frame_size: int = 0
    recursive: bool = False

    @property
    def slots(self) -> range:
        """The rows of the register file that belong to the function."""
        return range(self.first_slot, self.first_slot + len(self.function.registers))


def aligned(offset: int, align: int) -> int:
    """The next multiple of ``align``."""
    return (offset + align - 1) // align * align


def symbols_of(operand: Operand) -> list[str]:
    """Names an operand mentions, for finding functions whose address or call it is."""
    if isinstance(operand, Symbol):
        return [operand.name]
    if isinstance(operand, Group):
        return [name for item in operand.items for name in symbols_of(item)]
    return []


class Linker:
    """Lays out everything one entry needs. ``addresses`` maps variables to (space, address)."""

    def __init__(self, module: Module, entry: str, memory: Memory, dynamic_shared: int) -> None:
        self.module, self.memory = module, memory
        if entry not in module.functions or not module.functions[entry].entry:
            known = ", ".join(f.name for f in module.functions.values() if f.entry)
            raise YardstickError(f"entry {entry!r}: not in the PTX; its entries: {known}")
        self.addresses: dict[str, tuple[str, int]] = {}
        self.functions: list[Linked] = []
        self.by_name: dict[str, Linked] = {}
        self.register_types: list[str] = []
        self.calls: dict[str, set[str]] = {}
        self.dynamic_shared = dynamic_shared
        self.gather_functions(module.functions[entry])
        self.entry = self.by_name[entry]
        self.shared_size = 0
        self.place_shared()
        self.place_module_variables()
        self.place_frames()
        self.parameters, self.parameter_size = self.place_parameters(self.entry.function)

    # -- functions ---------------------------------------------------------------------------------

    def gather_functions(self, entry: Function) -> None:
        todo, start = [entry], 0
        while todo:
            function = todo.pop(0)
            if function.name in self.by_name:
                continue
            code = list(function.code or [])
            code.append(Instruction(code[-1].line if code else function.line, "(end of body)", "ret", (), []))
            linked = Linked(function, start, len(self.register_types), code)
            start += len(code)
            self.functions.append(linked)
            self.by_name[function.name] = linked
            self.register_types += [r.type for r in function.registers]
            names = {n for inst in code for o in inst.operands for n in symbols_of(o)}
            self.calls[function.name] = {n for n in names if n in self.module.functions}
            todo += [self.module.functions[n] for n in sorted(self.calls[function.name])]
        for linked in self.functions:
            name = linked.function.name
            linked.recursive = name in self.reached_from(name)

    def reached_from(self, name: str) -> set[str]:
        found: set[str] = set()
        todo = list(self.calls[name])
        while todo:
            called = todo.pop()
            if called not in found:
                found.add(called)
                todo += self.calls.get(called, set())
        return found

    # -- variables ---------------------------------------------------------------------------------

    def place_shared(self) -> None:
        variables = [v for v in self.module.variables if v.space == "shared"]
        variables += [v for f in self.functions for v in f.function.variables if v.space == "shared"]
        offset = 0
        for variable in variables:
            if variable.size:
                offset = aligned(offset, variable.align)
                self.addresses[variable.name] = ("shared", offset)
                offset += variable.size
        dynamic = [v for v in variables if not v.size]
        offset = aligned(offset, max([16, *(v.align for v in dynamic)])) if dynamic else offset
        for variable in dynamic:
            self.addresses[variable.name] = ("shared", offset)
        self.shared_size = offset + self.dynamic_shared

    def place_module_variables(self) -> None:
        variables = list(self.module.variables)
        variables += [v for f in self.functions for v in f.function.variables]
        constants = [v for v in variables if v.space == "const"]
        offset = 0
        for variable in constants:
            offset = aligned(offset, variable.align)
            self.addresses[variable.name] = ("const", BASES["const"] + offset)
            offset += variable.size
        self.constants = ConstantSpace(offset, BASES["const"])
        arrays = {}
        for variable in variables:
            if variable.space == "global":
                arrays[variable.name] = np.zeros(variable.size, np.uint8)
                self.addresses[variable.name] = ("global", self.memory.alloc(arrays[variable.name]))
        # Initialisers may name each other's addresses, so they are written when all are placed.
        for variable in variables:
            if variable.initial is None:
                continue
            image = np.frombuffer(self.image(variable), np.uint8)
            if variable.space == "global":
                arrays[variable.name][: len(image)] = image
            elif variable.space == "const":
                at = self.addresses[variable.name][1] - BASES["const"]
                self.constants.bytes[at : at + len(image)] = image

    def image(self, variable: Variable) -> bytes:
        kind = type_of(variable.type)
        parts = []
        for value in variable.initial or []:
            if isinstance(value, Immediate):
                bits = constant_bits(value, kind)
            elif isinstance(value, Symbol) and value.name in self.addresses:
                space, address = self.addresses[value.name]
                bits = address + value.offset + (BASES["shared"] if space == "shared" else 0)
            else:
                raise Unsupported(f"initialiser {value} of {variable.name}")
            parts.append(bits.to_bytes(kind.total // 8, "little"))
        return b"".join(parts)

    def place_frames(self) -> None:
        """Local variables, and the parameters of device functions, live in a frame of local memory."""
        total = 0
        for linked in self.functions:
            function = linked.function
            variables = [v for v in function.variables if v.space in ("local", "param")]
            if not function.entry:
                variables += [v for v in function.parameters + function.returns if v.space == "param"]
            offset = 0
            for variable in variables:
                offset = aligned(offset, max(variable.align, 1))
                linked.frame[variable.name] = offset
                offset += variable.size
            linked.frame_size = aligned(offset, 16)
            total += linked.frame_size * (STACK_FOR_RECURSION if linked.recursive else 1)
        at = aligned(total, 16)
        for variable in self.module.variables:
            if variable.space == "local":
                at = aligned(at, variable.align)
                self.addresses[variable.name] = ("local-fixed", at)
                at += variable.size
        self.stack_size, self.local_size = total, max(aligned(at, 16), 16)

    @staticmethod
    def place_parameters(entry: Function) -> tuple[dict[str, int], int]:
        offsets, offset = {}, 0
        for parameter in entry.parameters:
            offset = aligned(offset, max(parameter.align, min(type_bytes(parameter.type), 8)))
            offsets[parameter.name] = offset
            offset += parameter.size
        return offsets, offset

    def address_of(self, seen_from: Linked, name: str) -> tuple[str, int]:
        """Space and address of a name used in a function."""
        if name in seen_from.frame:
            return "local", seen_from.frame[name]
        if seen_from.function.entry and name in self.parameters:
            return "param", BASES["param"] + self.parameters[name]
        if name in self.addresses:
            return self.addresses[name]
        if name in self.by_name:
            return "code", BASES["code"] + self.by_name[name].start
        raise Unsupported(f"unknown name {name}")
