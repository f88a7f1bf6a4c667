"""What a parsed PTX text is made of: plain data, no behaviour but name lookup."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .errors import SyntaxFault


@dataclass(frozen=True, slots=True)
class Register:
    """A register of one function: its slot in that function's register file."""

    name: str
    type: str
    slot: int


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal. ``kind`` is ``int``, ``f32`` or ``f64``; the value of the last two is their bit pattern."""

    kind: str
    value: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, function or label by its unique name, plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A resolved place in the code of the current function."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Targets:
    """A resolved ``.branchtargets`` list."""

    labels: tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result nobody wants."""


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """``(a, b, ...)`` of a call."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """``!p``."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Pair:
    """``p|q``: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; ``more`` holds further comma-separated parts, if any."""

    base: Operand
    offset: int = 0
    more: tuple[Operand, ...] = ()


Operand = (
    Register | Special | Immediate | Symbol | Label | Targets | Sink | Vector | Group | Not | Pair | Address
)


@dataclass(slots=True)
class Instruction:
    """One instruction: ``@predicate name.modifiers operands``."""

    line: int
    text: str
    name: str
    modifiers: tuple[str, ...]
    operands: list[Operand]
    predicate: Register | None = None
    negated: bool = False
    scope: Scope | None = None


@dataclass(slots=True)
class Variable:
    """A declared variable or parameter. ``size`` is 0 for an ``.extern`` array of unknown length."""

    name: str
    space: str
    type: str
    align: int
    size: int
    initial: list[Operand] | None = None
    register: Register | None = None
    external: bool = False


@dataclass(slots=True)
class Function:
    """An ``.entry`` or ``.func``; ``code`` is None for a declaration without a body."""

    name: str
    entry: bool
    line: int
    returns: list[Variable] = field(default_factory=list)
    parameters: list[Variable] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    code: list[Instruction] | None = None


@dataclass(slots=True)
class Module:
    """Everything in one PTX text."""

    version: str = ""
    target: str = ""
    address_size: int = 64
    variables: list[Variable] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)


@dataclass(slots=True)
class Scope:
    """Names declared between one pair of braces."""

    outer: Scope | None = None
    registers: dict[str, Register] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[str, list[str]] = field(default_factory=dict)

    def register(self, name: str) -> Register | None:
        """The register of that name visible here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.registers:
                return scope.registers[name]
            scope = scope.outer
        return None

    def variable(self, name: str) -> str:
        """The unique name of the variable visible here under ``name``; unknown names stay as they are."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.outer
        return name

    def label(self, name: str) -> Label | None:
        """The label visible here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return Label(name, scope.labels[name])
            scope = scope.outer
        return None

    def branch_targets(self, name: str) -> list[str] | None:
        """The ``.branchtargets`` list visible here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.targets:
                return scope.targets[name]
            scope = scope.outer
        return None


def type_bytes(name: str) -> int:
    """Bytes of one value of a PTX type (a predicate has none)."""
    if name == "pred":
        return 0
    digits = re.match(r"[a-z]+(\d+)(x\d)?", name)
    if digits is None:
        raise SyntaxFault(f"unknown type .{name}")
    return int(digits[1]) // 8 * (int(digits[2][1:]) if digits[2] else 1)
