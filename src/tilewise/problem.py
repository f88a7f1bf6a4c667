"""What to multiply, and the one word for a box of work at every level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tilewise.errors import ArgumentError, UnknownNameError, integer

__all__ = ["ELEMENT_BYTES", "Epilogue", "Layout", "Problem", "Tile"]

Layout = Literal["row", "column"]

# Bytes of one element, by the name that NumPy, ml_dtypes and tilewise share.
ELEMENT_BYTES: Mapping[str, float] = {
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

_ACTIVATIONS = ("none", "relu", "gelu", "silu", "sigmoid", "tanh")


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
class Epilogue:
    """What happens to each element after its sum: alpha·sum + beta·c, + bias, activation, + residual."""

    alpha: float = 1.0
    beta: float = 0.0
    bias: bool = False
    activation: str = "none"
    residual: bool = False

    def __post_init__(self) -> None:
        if self.activation not in _ACTIVATIONS:
            raise UnknownNameError("activation", self.activation, _ACTIVATIONS)


@dataclass(frozen=True, slots=True)
class Problem:
    """C[m, n] = epilogue(A[m, k] · B[k, n]), ``batch`` times."""

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

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            object.__setattr__(self, name, integer(name, getattr(self, name)))
        for name in ("a", "b", "c", "accumulate"):
            if getattr(self, name) not in ELEMENT_BYTES:
                raise UnknownNameError(f"element type of {name}", getattr(self, name), ELEMENT_BYTES)
        for name in ("a_layout", "b_layout", "c_layout"):
            if getattr(self, name) not in ("row", "column"):
                raise ArgumentError(name, "must be 'row' or 'column'", getattr(self, name))
        if not isinstance(self.epilogue, Epilogue):
            raise ArgumentError("epilogue", "must be an Epilogue", self.epilogue)

    @property
    def flops(self) -> int:
        """Floating-point operations of the products and sums alone: two for each multiply-add."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """The fewest bytes that must move: each operand read once, the output written once."""
        a = self.m * self.k * ELEMENT_BYTES[self.a]
        b = self.k * self.n * ELEMENT_BYTES[self.b]
        c = self.m * self.n * ELEMENT_BYTES[self.c]
        return math.ceil(self.batch * (a + b + c))

    @property
    def intensity(self) -> float:
        """Operations for each byte that must move; infinite where nothing must."""
        return self.flops / self.bytes if self.bytes else math.inf

    def __str__(self) -> str:
        batch = f"{self.batch} × " if self.batch != 1 else ""
        types = self.a if self.a == self.b == self.c else f"{self.a}·{self.b}→{self.c}"
        return f"{batch}{self.m}×{self.n}×{self.k} {types}, sums in {self.accumulate}"

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
            return cls(**rest, epilogue=Epilogue(**epilogue))
        except TypeError as error:
            raise ArgumentError("problem", f"cannot be read: {error}") from None
