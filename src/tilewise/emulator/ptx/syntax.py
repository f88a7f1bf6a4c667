"""What a PTX text is made of, as plain data: modules, functions, variables, instructions, operands."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilewise.errors import PtxError

__all__ = [
    "ELEMENTS",
    "Address",
    "Immediate",
    "Instruction",
    "Label",
    "Link",
    "Not",
    "Operand",
    "Pair",
    "PtxError",
    "PtxFunction",
    "PtxModule",
    "PtxVariable",
    "Register",
    "Symbol",
    "Vector",
    "items_of",
    "name_in_text",
]

ELEMENTS = ("x", "y", "z", "w")  # of a vector


@dataclass(frozen=True, slots=True)
class Register:
    name: str  # unique within its function; special registers keep their names, such as "%tid.x"


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal. ``bits`` of a float literal are those of its own width; ``width`` is 0 for integers."""

    value: int
    width: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, or a function's name, or a label."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    base: Register | Symbol | None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations, as in ``p|q``."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """A predicate operand turned round, as in ``!p``."""

    item: Register


Operand = Register | Immediate | Symbol | Address | Vector | Pair | Not


def name_in_text(unique: str) -> str:
    """The name as the text has it, without what tells it from the same name in another scope, call or function."""
    return re.split("[#~]", unique.rpartition("::")[2], maxsplit=1)[0]


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """Return what an operand in braces consists of, or the operand itself."""
    return operand.items if isinstance(operand, Vector) else (operand,)


@dataclass(frozen=True, slots=True)
class Label:
    name: str
    line: int


@dataclass(slots=True)
class Instruction:
    """One instruction: ``@guard opcode.part.part operands;`` at a line of the PTX."""

    line: int
    opcode: str
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None = None
    negated: bool = False
    source: int = 0  # line of the CUDA source, 0 when not known
    file: int = 0
    written: str = ""  # the name that the text has, where its modifiers stand in another order
    read_as_bits: bool = False  # whether its result, a float, is looked at as an integer
    # Its row, once that is looked up.
    operation: Any = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.parts))


Link = tuple[int, str, int, bool]  # offset, symbol, what is added, whether as a generic address


@dataclass(slots=True)
class PtxVariable:
    """A variable of some memory space, or a parameter of a function."""

    name: str
    space: str  # "global", "const", "shared", "local", "param"; "reg" for a parameter in a register
    type: str
    count: int  # elements; 0 for an external array of unknown size
    align: int
    size: int  # bytes
    data: bytes | None = None  # initial bytes; behind them there are zeros
    links: tuple[Link, ...] = ()  # addresses among the initial bytes
    external: bool = False
    line: int = 0
    at: int | None = None  # its place in a thread's local memory, where the caller's and its own decide it


@dataclass(slots=True)
class PtxFunction:
    """A function. What its body has is empty until :meth:`PtxModule.function` reads that."""

    name: str
    entry: bool
    parameters: list[PtxVariable]
    returns: list[PtxVariable]
    registers: dict[str, str] = field(default_factory=dict)  # name → type
    variables: dict[str, PtxVariable] = field(default_factory=dict)
    body: list[Instruction | Label] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=dict)  # of brx.idx: name → labels
    line: int = 0
    declared_only: bool = False
    cluster: tuple[int, int, int] | None = None
    explicit_cluster: bool = False  # whether every launch has to say of how many blocks a cluster is
    max_cluster: int = 0  # blocks of a cluster at most; 0: as many as the architecture allows
    blocks_are_clusters: bool = False  # whether a launch's grid counts clusters
    unread: str = ""  # the text of its body, until that is read
    body_line: int = 0  # of the PTX, where the body begins
    last_line: int = 0  # and where it ends


@dataclass(slots=True)
class PtxModule:
    """A PTX text. What is declared outside of functions is there; of functions, the heads are."""

    version: tuple[int, int]
    target: str
    variables: dict[str, PtxVariable] = field(default_factory=dict)
    functions: dict[str, PtxFunction] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    text: str = ""
    read: Callable[[PtxFunction], None] | None = None  # reads a function's body

    def function(self, name: str) -> PtxFunction | None:
        """A function with its body; None if there is no such function."""
        found = self.functions.get(name)
        if found is not None and found.unread and self.read:
            self.read(found)
        return found
