"""What to multiply, and the one word for a box of work at every level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from tilewise.errors import ArgumentError, UnknownNameError, integer
from tilewise.expression import SUM, parse

__all__ = [
    "ARITHMETICS",
    "COMPLEX",
    "EIGHT_BITS",
    "ELEMENT_BYTES",
    "FLOAT8",
    "INTEGERS",
    "SCALED_TERMS",
    "Epilogue",
    "EpilogueArray",
    "Layout",
    "Problem",
    "Tile",
    "can_multiply",
    "finished_type",
    "multiplied_type",
    "resolve_arithmetic",
    "result_of",
    "sum_type",
]

Layout = Literal["row", "column"]

# Bytes of one element, by the name that NumPy, ml_dtypes and tilewise share.
ELEMENT_BYTES: Mapping[str, float] = {
    "complex128": 16,
    "complex64": 8,
    "float64": 8,
    "float32": 4,
    "tfloat32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
}

# Of what results may be: the largest number stands for all beyond it.
EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2", "int8")


INTEGERS: Mapping[str, str] = {"int8": "int32", "int32": "int32", "int64": "int64"}
"""Integers that are multiplied, and what they are summed in, modulo 2ⁿ as by NumPy: what a result holds."""

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
"""Floating-point numbers of 8 bits that are multiplied."""

SCALED_TERMS = 128
"""Of each sum: so many terms after one another share a scale, where scales differ along K."""

COMPLEX: Mapping[str, str] = {"complex64": "float32", "complex128": "float64"}
"""Complex numbers that are multiplied, and the type of their two parts, in which everything is done."""

ARITHMETICS = ("fp8", "f16", "bf16", "tf32", "exact32", "f32", "f64")
"""What operands may be asked to be multiplied in, instead of what their type says."""

# For operands of a type: what may be asked for, and what a problem then has.
_ARITHMETIC_OF: Mapping[str, Mapping[str, str | None]] = {
    "float16": {"f16": "f16"},
    "float32": {"f32": None, "tf32": "tf32", "exact32": "exact32"},
    "float64": {"f64": None},
}
_ARITHMETIC_OF = {**_ARITHMETIC_OF, **{name: _ARITHMETIC_OF[part] for name, part in COMPLEX.items()}}


_WIDENING = ("float16", "bfloat16")


def multiplied_type(a: str, b: str) -> str:
    """The type that operands of two types are multiplied in: 8 bits are widened to 16, which have all their numbers.

    The two types of float8 are multiplied as they are: then it is that of ``a``.
    """
    return b if b in _WIDENING and a in EIGHT_BITS else a


def can_multiply(a: str, b: str) -> bool:
    """Whether operands of two types can be multiplied as they are: of one type, of float8, of 8 bits beside 16."""
    if a == b or {a, b} <= set(FLOAT8):
        return True
    return bool({a, b} & set(_WIDENING)) and bool({a, b} & set(EIGHT_BITS))


def sum_type(dtype: str, scaled: bool = False) -> str:
    """What products of a type are summed in, if no other arithmetic is asked for; ``scaled``: times scales."""
    if dtype in ("float64", "complex128"):
        return "float64"
    return "float32" if scaled else INTEGERS.get(dtype, "float32")


def finished_type(sums: str) -> str:
    """The type that an epilogue computes in, of sums of a type."""
    return "float32" if sums == "int32" else sums


def result_of(dtype: str, changed: bool = False) -> str:
    """What a result of operands of a type holds, if nothing else is asked for: of 8 bits what holds their products.

    ``changed``: something happens to the sums.
    """
    if dtype == "int8" and changed:
        return "float32"
    return "bfloat16" if dtype in FLOAT8 else INTEGERS.get(dtype, dtype)


def resolve_arithmetic(arithmetic: str | None, dtype: str) -> str | None:
    """What a problem's ``arithmetic`` is for operands of a type, if a caller asks for one: None if it is their own."""
    if arithmetic is None:
        return None
    if arithmetic not in ARITHMETICS:
        raise UnknownNameError("arithmetic", arithmetic, ARITHMETICS)
    possible = _ARITHMETIC_OF.get(dtype, {})
    if arithmetic not in possible:
        named = " or ".join(("None", *map(repr, possible)))
        raise ArgumentError("arithmetic", f"must be {named} for operands of {dtype}", arithmetic)
    return possible[arithmetic]


@dataclass(frozen=True, slots=True)
class Tile:
    """A box of work: m rows and n columns of the output, k terms of each sum."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            object.__setattr__(self, name, integer(f"Tile.{name}", getattr(self, name), least=1))

    def __str__(self) -> str:
        return f"{self.m}×{self.n}×{self.k}"

    def divides(self, other: Tile) -> bool:
        """Whether ``other`` is made of whole tiles of this one."""
        return other.m % self.m == 0 and other.n % self.n == 0 and other.k % self.k == 0

    def count(self, other: Tile) -> Tile:
        """How many of this tile cover ``other`` along m, n and k, the ragged ones included."""
        return Tile(-(-other.m // self.m), -(-other.n // self.n), -(-other.k // self.k))


@dataclass(frozen=True, slots=True)
class EpilogueArray:
    """An array of an epilogue: its element type, and whether it runs along the rows and the columns of the result.

    With ``pointers`` there is one for each matrix of the batch, which lie anywhere. With ``scales`` it has scales of an
    operand's terms, "a" or "b", one for each :data:`SCALED_TERMS` along K and each ``lines`` rows of A or columns of B.
    """

    name: str
    dtype: str
    by_row: bool = True
    by_column: bool = True
    pointers: bool = False
    scales: Literal["", "a", "b"] = ""
    lines: int = 1

    def __post_init__(self) -> None:
        if self.dtype not in ELEMENT_BYTES:
            raise UnknownNameError(f"element type of {self.name}", self.dtype, ELEMENT_BYTES)
        if self.scales not in ("", "a", "b"):
            raise ArgumentError("scales", "must be 'a', 'b' or ''", self.scales)
        if self.lines not in (1, SCALED_TERMS):
            raise ArgumentError("lines", f"must be 1 or {SCALED_TERMS}", self.lines)

    def transposed(self) -> EpilogueArray:
        """The same for the transpose of the result."""
        other: Mapping[str, Literal["", "a", "b"]] = {"a": "b", "b": "a", "": ""}
        return replace(self, by_row=self.by_column, by_column=self.by_row, scales=other[self.scales])


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What happens to each sum, ``acc``, before it is rounded: an expression over it and what a call gives.

    ``arrays`` and ``numbers`` are the other names in the expression. The values of numbers are no part of it.
    """

    expression: str = SUM
    arrays: tuple[EpilogueArray, ...] = ()
    numbers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise ArgumentError("expression", "must be a string", self.expression)
        parsed = parse(self.expression)
        given = [array.name for array in self.arrays] + list(self.numbers)
        used = parsed.given
        for name in used:
            if name not in given:
                raise ArgumentError("epilogue", f"must give {name}, which {self.expression!r} has")
        for name in given:
            if name not in used or given.count(name) > 1:
                raise ArgumentError("epilogue", f"must use {name} in {self.expression!r}, once given")
        scales = {array.name for array in self.arrays if array.scales}
        if scales != set(filter(None, parsed.scales)):
            rule = f"must say of which operand the scales of terms in {self.expression!r} are, and of no other array"
            raise ArgumentError("epilogue", rule)
        for name in parsed.written:
            if name in self.numbers:
                raise ArgumentError("epilogue", f"must give an array for {name}, which is written")

    @property
    def is_plain(self) -> bool:
        """Whether nothing happens to the sums."""
        return self.expression == SUM

    @property
    def summed(self) -> tuple[str, ...]:
        """The arrays of the sums of columns and rows."""
        return parse(self.expression).summed

    @property
    def kept(self) -> tuple[str, ...]:
        """The arrays that have an element for each one of the result, which is written."""
        return parse(self.expression).kept

    def transposed(self) -> Epilogue:
        """The same for the transpose of the result."""
        return replace(self, arrays=tuple(one.transposed() for one in self.arrays))

    @property
    def scales_terms(self) -> bool:
        """Whether there are scales that differ along K."""
        return any(array.scales for array in self.arrays)

    def lines_of(self, operand: str) -> int:
        """How many rows of "a", or columns of "b", share scales of their terms; 0 if those have none."""
        return next((array.lines for array in self.arrays if array.scales == operand), 0)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Epilogue:
        """The inverse of ``dataclasses.asdict``."""
        rest = dict(data)
        arrays = tuple(EpilogueArray(**array) for array in rest.pop("arrays", ()))
        return cls(**rest | {"arrays": arrays, "numbers": tuple(rest.pop("numbers", ()))})


@dataclass(frozen=True, slots=True)
class Problem:
    """C[m, n] = epilogue(A[m, k] · B[k, n]), ``batch`` times.

    With ``pointers`` the matrices of the batch lie anywhere; else one step from each to the next.
    With ``groups`` there is a B for each group of rows of A; how many rows a group has is known on the device alone.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    a: str = "float32"
    b: str = "float32"
    c: str = "float32"
    accumulate: str = "float32"
    a_layout: Layout = "row"
    b_layout: Layout = "row"
    c_layout: Layout = "row"
    epilogue: Epilogue = field(default_factory=Epilogue)
    groups: int = 0  # 0: one B for all rows
    arithmetic: str | None = None
    """None: as the operands' type says. "tf32": float32 rounded to its precision. "f16": sums of float16 in it.
    "exact32": float32 in parts, on tensor cores where they are faster, with no larger errors."""
    pointers: bool = False

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch", "groups"):
            object.__setattr__(self, name, integer(name, getattr(self, name)))
        for name in ("a", "b", "c", "accumulate"):
            if getattr(self, name) not in ELEMENT_BYTES:
                raise UnknownNameError(f"element type of {name}", getattr(self, name), ELEMENT_BYTES)
        for name in ("a_layout", "b_layout", "c_layout"):
            if getattr(self, name) not in ("row", "column"):
                raise ArgumentError(name, "must be 'row' or 'column'", getattr(self, name))
        multiplied = multiplied_type(self.a, self.b)
        object.__setattr__(self, "arithmetic", resolve_arithmetic(self.arithmetic, multiplied))
        if not isinstance(self.epilogue, Epilogue):
            raise ArgumentError("epilogue", "must be an Epilogue", self.epilogue)
        if not isinstance(self.pointers, bool):
            raise ArgumentError("pointers", "must be True or False", self.pointers)
        if self.pointers and self.batch < 2:
            raise ArgumentError(
                "batch", "must be 2 at least with pointers", self.batch, "one matrix needs none"
            )
        if self.groups and self.batch != 1:
            raise ArgumentError("batch", "must be 1 with groups", self.batch)
        if self.groups and self.epilogue.summed:
            rule = "must add up no columns or rows of groups"
            raise ArgumentError("epilogue", rule, self.epilogue.expression, "add up the result")

    @property
    def flops(self) -> int:
        """Floating-point operations of the products and sums alone: two for each multiply-add, of which one of complex
        numbers has four.

        Of groups that have all rows between them.
        """
        return (8 if self.a in COMPLEX else 2) * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """The fewest bytes that must move: each operand read once, the output written once."""
        a = self.m * self.k * ELEMENT_BYTES[self.a]
        b = self.k * self.n * ELEMENT_BYTES[self.b] * max(self.groups, 1)
        c = self.m * self.n * ELEMENT_BYTES[self.c]
        return math.ceil(self.batch * (a + b + c))

    @property
    def intensity(self) -> float:
        """Operations for each byte that must move; infinite where nothing must."""
        return self.flops / self.bytes if self.bytes else math.inf

    def __str__(self) -> str:
        batch = f"{self.batch} × " if self.batch != 1 else ""
        groups = f" in {self.groups} groups" if self.groups else " by pointers" if self.pointers else ""
        types = self.a if self.a == self.b == self.c else f"{self.a}·{self.b}→{self.c}"
        then = "" if self.epilogue.is_plain else f", then {self.epilogue.expression}"
        rounded = f" in {self.arithmetic}" if self.arithmetic else ""
        return f"{batch}{self.m}×{self.n}×{self.k} {types}{rounded}{groups}, sums in {self.accumulate}{then}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Problem:
        """The inverse of :meth:`to_dict`; an unknown field is an error that names it."""
        fields = cls.__dataclass_fields__
        for name in data:
            if name not in fields:
                raise UnknownNameError("field of a problem", name, fields)
        rest = dict(data)
        epilogue = rest.pop("epilogue", {})
        try:
            return cls(**rest, epilogue=Epilogue.from_dict(epilogue))
        except (TypeError, ValueError) as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError("problem", f"cannot be read: {error}") from None
