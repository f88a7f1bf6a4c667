"""PTX's types and how a value of each lies in a NumPy array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import Unsupported
from .syntax import type_bytes

Array = NDArray[Any]

UNSIGNED: dict[int, type[np.unsignedinteger[Any]]] = {
    8: np.uint8,
    16: np.uint16,
    32: np.uint32,
    64: np.uint64,
}
SIGNED: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
FLOATS: dict[int, type[np.floating[Any]]] = {16: np.float16, 32: np.float32, 64: np.float64}


@dataclass(frozen=True, slots=True)
class Type:
    """One PTX type.

    ``family``: s, u, b (untyped bits), f (IEEE), bf (bfloat16), tf (tf32), e (8-bit float) or p (predicate).
    ``lanes`` is 2 for packed types such as f16x2; their arrays have one more axis. Formats that NumPy lacks
    (bf, tf, e) are held as their bits.
    """

    name: str
    family: str
    bits: int
    lanes: int
    dtype: type[np.generic]

    @property
    def total(self) -> int:
        """Bits of the whole value, all lanes together."""
        return self.bits * self.lanes

    @property
    def raw(self) -> Type:
        """The untyped bits of the same total size."""
        return type_of(f"b{self.total}")

    @property
    def lane_bits(self) -> Type:
        """The untyped bits of each lane."""
        return Type(self.name, "b", self.bits, self.lanes, UNSIGNED[self.bits])

    @property
    def is_float(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.family in ("f", "bf", "tf", "e")


@cache
def type_of(name: str) -> Type:
    """The type of a PTX type name without its dot."""
    if name == "pred":
        return Type(name, "p", 8, 1, np.bool_)
    if name == "tf32":
        return Type(name, "tf", 32, 1, np.uint32)
    if name[:4] in ("e4m3", "e5m2"):
        return Type(name, "e", 8, 2 if name.endswith("x2") else 1, np.uint8)
    family = "bf" if name.startswith("bf") else name[0]
    digits = name[len(family) :]
    lanes = 2 if digits.endswith("x2") else 1
    if family not in ("s", "u", "b", "f", "bf") or not digits.removesuffix("x2").isdigit():
        raise Unsupported(f"unknown type .{name}")
    bits = int(digits.removesuffix("x2"))
    tables: dict[str, dict[int, Any]] = {"s": SIGNED, "f": FLOATS}
    if bits not in tables.get(family, UNSIGNED):
        raise Unsupported(f"unknown type .{name}")
    return Type(name, family, bits, lanes, tables.get(family, UNSIGNED)[bits])


@cache
def is_type(name: str) -> bool:
    """Whether a modifier is a type name."""
    try:
        type_of(name)
    except Unsupported:
        return False
    return True


def integer_range(kind: Type) -> tuple[int, int]:
    """The lowest and highest value of an integer type."""
    if kind.family == "s":
        return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1
    return 0, (1 << kind.bits) - 1


@cache
def register_bits(name: str) -> int:
    """Width of a register declared with this type; 1 for a predicate."""
    return 1 if name == "pred" else type_bytes(name) * 8
