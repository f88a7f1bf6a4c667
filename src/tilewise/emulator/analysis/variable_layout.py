"""Where the variables of a module and of a kernel lie, and what their initial bytes are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tilewise.emulator.analysis.inlined_body import function_addresses
from tilewise.emulator.layout import GENERIC
from tilewise.emulator.operations.operands import symbols_in
from tilewise.emulator.ptx.syntax import Instruction, PtxError, PtxFunction, PtxModule, PtxVariable

__all__ = ["Initial", "VariableLayout", "VariableSlot", "align_up", "initial_content", "lay_out"]

_DYNAMIC_ALIGN = 16  # of the shared memory that a launch asks for
_MOST = {"const": 1 << 16, "local": 1 << 19, "param": 32_764}  # bytes that a GPU has of a space


@dataclass(frozen=True, slots=True)
class VariableSlot:
    """A variable's address: an offset in its space, or for "global" an index in the table of addresses."""

    space: str
    offset: int
    size: int


@dataclass(slots=True)
class VariableLayout:
    """The addresses of all of a kernel's variables."""

    by_name: dict[str, VariableSlot] = field(default_factory=dict)
    sizes: Counter[str] = field(default_factory=Counter)  # by space
    constants: list[PtxVariable] = field(default_factory=list)
    globals: list[PtxVariable] = field(default_factory=list)  # that the kernel names

    def put(self, variable: PtxVariable, space: str) -> None:
        """Give a variable the next address in a space."""
        start = align_up(self.sizes[space], variable.align)
        self.by_name[variable.name] = VariableSlot(space, start, variable.size)
        self.sizes[space] = start + variable.size


def lay_out(module: PtxModule, function: PtxFunction) -> VariableLayout:
    """Return the addresses of a kernel's variables, once its calls are inlined.

    Shared memory is the kernel's own: arrays that only other kernels of the module use take no room in it.
    """
    places = VariableLayout()
    instructions = (item for item in function.body if isinstance(item, Instruction))
    used = {name for item in instructions for name in symbols_in(*item.operands)}
    dynamic: list[PtxVariable] = []
    _put_constants(places, module, used)
    for variable in list(module.variables.values()):
        if variable.space == "const":
            continue
        if variable.space == "global":
            if variable.name in used:
                places.by_name[variable.name] = VariableSlot("global", len(places.globals), variable.size)
                places.globals.append(variable)
        elif variable.space != "shared":
            places.put(variable, variable.space)
        elif variable.name in used:
            if variable.external:
                dynamic.append(variable)
            else:
                places.put(variable, "shared")
    for variable in dynamic:  # all external arrays begin where the static ones end
        start = align_up(places.sizes["shared"], max(variable.align, _DYNAMIC_ALIGN))
        places.by_name[variable.name] = VariableSlot("shared", start, 0)
    if dynamic:
        places.sizes["shared"] = max(places.by_name[variable.name].offset for variable in dynamic)
    for variable in function.parameters:
        places.put(variable, "param")
    _put_locals(places, function)
    for space, most in _MOST.items():
        if places.sizes[space] > most:
            owner = {"const": "the module", "local": "a thread", "param": "the kernel"}[space]
            what = f"{owner} has {places.sizes[space]:,} bytes of .{space} memory; there are at most {most:,}"
            raise PtxError(function.line, what)
    return places


def align_up(at: int, align: int) -> int:
    """Return the next multiple of ``align``, or ``at`` if it is one."""
    return -(-at // align) * align


def _put_locals(places: VariableLayout, function: PtxFunction) -> None:
    """Place a function's own variables: its .local arrays, and the parameters of its calls."""
    base = align_up(places.sizes["local"], 16)
    base = align_up(base, max((variable.align for variable in function.variables.values()), default=1))
    for variable in function.variables.values():
        start = base + (variable.at or 0)
        places.by_name[variable.name] = VariableSlot("local", start, variable.size)
        places.sizes["local"] = max(places.sizes["local"], start + variable.size)
    # Every thread's part begins as the largest alignment wants.
    places.sizes["local"] = align_up(places.sizes["local"], 16)


def _put_constants(places: VariableLayout, module: PtxModule, used: set[str]) -> None:
    """Place constant memory: alike in every kernel of the module, but for variables of functions' own."""

    def is_of_function(variable: PtxVariable) -> bool:
        """Whether a function's body declares it, so that it is known only once that has been read."""
        return "::" in variable.name

    constants = [variable for variable in list(module.variables.values()) if variable.space == "const"]
    known = [item for item in constants if not is_of_function(item) or item.name in used]
    places.constants = sorted(known, key=is_of_function)
    for variable in places.constants:
        places.put(variable, "const")


@dataclass(frozen=True, slots=True)
class Initial:
    """A variable's initial content: the bytes ``data``, then zeros.

    ``links`` are the addresses of variables in global memory that belong into it: offset, name, what is added.
    """

    size: int
    data: bytes
    links: tuple[tuple[int, str, int], ...] = ()


def initial_content(module: PtxModule, name: str) -> Initial:
    """What a variable in global or constant memory begins with, all addresses in it that are known beforehand."""
    if name not in module.variables:  # a function's own
        module.function(name.partition("::")[0])
    variable = module.variables[name]
    if not variable.links:
        return Initial(variable.size, variable.data or b"")
    constants, functions = VariableLayout(), function_addresses(module)
    _put_constants(constants, module, {link[1] for link in variable.links})
    data, later = bytearray(variable.data or b""), []
    for offset, target, addend, generic in variable.links:
        known = module.variables.get(target)
        if known is not None and known.space == "global":
            later.append((offset, target, addend))
            continue
        if target in constants.by_name:
            address = constants.by_name[target].offset + (GENERIC.CONST if generic else 0)
        else:  # parsing has seen to it that there is no other
            address = functions[target]
        data[offset : offset + 8] = ((address + addend) % (1 << 64)).to_bytes(8, "little")
    return Initial(variable.size, bytes(data), tuple(later))
