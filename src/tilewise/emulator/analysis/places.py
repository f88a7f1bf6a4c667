"""Where the variables of a module and of a kernel lie, and what their initial bytes are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilewise.emulator.analysis.inline import function_addresses
from tilewise.emulator.layout import GENERIC_CONST
from tilewise.emulator.ptx.operands import operands_in
from tilewise.emulator.ptx.syntax import Function, Instruction, Module, PtxError, Symbol, Variable

__all__ = ["Place", "Places", "lay_out"]

_DYNAMIC_ALIGN = 16  # of the shared memory that a launch asks for
_MOST = {"const": 1 << 16, "local": 1 << 19, "param": 32_764}  # bytes that a GPU has of a space


@dataclass(frozen=True, slots=True)
class Place:
    """Where a variable lies: an offset in its space, or for "global" a place in the table of addresses."""

    space: str
    offset: int
    size: int


@dataclass(slots=True)
class Places:
    """All of a kernel's variables."""

    by_name: dict[str, Place] = field(default_factory=dict)
    sizes: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("shared", "local", "param", "const"), 0)
    )
    constants: bytes = b""
    # Addresses of globals in the constants: (offset, which global, what is added).
    constant_links: list[tuple[int, int, int]] = field(default_factory=list)
    globals: list[Variable] = field(default_factory=list)

    def put(self, variable: Variable, space: str) -> None:
        """The next place in a space."""
        start = _aligned(self.sizes[space], variable.align)
        self.by_name[variable.name] = Place(space, start, variable.size)
        self.sizes[space] = start + variable.size


def lay_out(module: Module, function: Function) -> Places:
    """Places for a kernel whose calls are written out.

    Shared memory is the kernel's own: arrays that only other kernels of the module use take no room in it.
    """
    places = Places()
    used = _used(function)
    dynamic: list[Variable] = []
    for variable in module.variables.values():
        if variable.space == "global":
            places.by_name[variable.name] = Place("global", len(places.globals), variable.size)
            places.globals.append(variable)
        elif variable.space != "shared":
            places.put(variable, variable.space)
        elif variable.name in used:
            if variable.external:
                dynamic.append(variable)
            else:
                places.put(variable, "shared")
    for variable in dynamic:  # all external arrays begin where the static ones end
        start = _aligned(places.sizes["shared"], max(variable.align, _DYNAMIC_ALIGN))
        places.by_name[variable.name] = Place("shared", start, 0)
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
    _fill_constants(places, module)
    places.globals = [_linked(places, module, variable) for variable in places.globals]
    return places


def _aligned(at: int, align: int) -> int:
    return -(-at // align) * align


def _used(function: Function) -> set[str]:
    return {
        operand.name
        for item in function.body
        if isinstance(item, Instruction)
        for operand in operands_in(item)
        if isinstance(operand, Symbol)
    }


def _put_locals(places: Places, function: Function) -> None:
    """A function's own variables: its .local arrays, and the parameters of its calls."""
    base = _aligned(places.sizes["local"], 16)
    base = _aligned(base, max((variable.align for variable in function.variables.values()), default=1))
    for variable in function.variables.values():
        start = base + (variable.at or 0)
        places.by_name[variable.name] = Place("local", start, variable.size)
        places.sizes["local"] = max(places.sizes["local"], start + variable.size)
    # Every thread's part begins as the largest alignment wants.
    places.sizes["local"] = _aligned(places.sizes["local"], 16)


def _fill_constants(places: Places, module: Module) -> None:
    data = bytearray(places.sizes["const"])
    for variable in module.variables.values():
        if variable.space == "const":
            at = places.by_name[variable.name].offset
            filled = _linked(places, module, variable)
            first = filled.data or b""
            data[at : at + len(first)] = first
            for offset, name, addend, _ in filled.links:
                places.constant_links.append((at + offset, places.by_name[name].offset, addend))
    places.constants = bytes(data)


def _linked(places: Places, module: Module, variable: Variable) -> Variable:
    """A variable whose initial bytes hold every address that is known before the launch: not those of globals."""
    if not variable.links:
        return variable
    functions = function_addresses(module)
    data, later = bytearray(variable.data or b""), []
    for offset, name, addend, generic in variable.links:
        place = places.by_name.get(name)
        if place is not None and place.space == "global":
            later.append((offset, name, addend, generic))
            continue
        if place is not None and place.space == "const":
            address = place.offset + (GENERIC_CONST if generic else 0)
        elif name in functions:
            address = functions[name]
        else:
            raise PtxError(
                variable.line, f"{variable.name} holds the address of {name!r}, which has none here"
            )
        data[offset : offset + 8] = ((address + addend) % (1 << 64)).to_bytes(8, "little")
    return replace(variable, data=bytes(data), links=tuple(later))
