"""A shape: how a value differs between the lanes of a warp; and the shapes of sums, products and other results."""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.emulator.ptx.syntax import Instruction
from tilewise.emulator.ptx.types import bits_of

__all__ = [
    "TOP_ZEROS",
    "UNIFORM",
    "VECTOR",
    "Lanes",
    "Shape",
    "add_shapes",
    "comparison_bound",
    "thread_lanes",
    "trailing_zeros",
    "wrap_to_type",
]  # fmt: skip

Lanes = tuple[int, ...]
_ZERO: Lanes = (0,) * 32
TOP_ZEROS = 64  # trailing zeros of the number 0


@dataclass(frozen=True, slots=True)
class Shape:
    """``u + lanes``. u is known to end in ``zeros`` zero bits, and to be ``value`` where that is known."""

    lanes: Lanes = _ZERO
    zeros: int = 0
    value: int | None = None

    @property
    def uniform(self) -> bool:
        return self.lanes == _ZERO

    @property
    def apart(self) -> bool:
        """Whether u and the lanes' amounts share no set bit, so that their sum equals their bitwise or."""
        return min(self.lanes) >= 0 and max(self.lanes) < (1 << self.zeros)

    def _limited(self) -> Shape | None:
        """Forget lanes or value where the numbers grow too large; forgetting is always right.

        NOTE: lanes stay below 2^31, so that they are what they say in registers of 32 bits too.
        """
        if not self.uniform and (max(self.lanes) >= 2**31 or min(self.lanes) <= -(2**31)):
            return VECTOR
        if self.value is not None and not -(2**62) < self.value < 2**62:
            return Shape(self.lanes, 0)
        return self

    def constant_below(self, limit: int) -> int | None:
        """Return a uniform shape's value if it is known, not negative and less than a limit; else None."""
        value = self.value if self.uniform else None
        return value if value is not None and 0 <= value < limit else None

    def scaled(self, factor: int) -> Shape | None:
        zeros = min(self.zeros + trailing_zeros(factor), TOP_ZEROS)
        value = self.value * factor if self.value is not None else None
        lanes = _ZERO if self.uniform else tuple(lane * factor for lane in self.lanes)
        return Shape(lanes, zeros, value)._limited()

    def shifted_right(self, by: int) -> Shape | None:
        if not self.apart or (self.value is None and self.zeros < by):
            return VECTOR
        if self.value is None:
            return Shape(tuple(lane >> by for lane in self.lanes), self.zeros - by)
        if not 0 <= self.value < 2**31:
            return VECTOR
        moved = self.value >> by
        lanes = tuple(((self.value + lane) >> by) - moved for lane in self.lanes)
        return Shape(lanes, trailing_zeros(moved), moved)

    def masked(self, other: Shape) -> Shape | None:
        """Return the shape of ``and``."""
        a, mask = (self, other) if other.value is not None and other.uniform else (other, self)
        value = a.value & mask.value if a.value is not None and mask.value is not None else None
        if a.uniform and mask.uniform:
            zeros = max(a.zeros, mask.zeros) if value is None else trailing_zeros(value)
            return Shape(zeros=zeros, value=value)
        if mask.value is None or not mask.uniform or not a.apart:
            return VECTOR
        lanes = tuple(lane & mask.value for lane in a.lanes)
        if value is not None:
            return Shape(lanes, trailing_zeros(value), value)
        low = (1 << a.zeros) - 1
        if mask.value >= 0 and mask.value & ~low == 0:
            return Shape(lanes, TOP_ZEROS, 0)
        return Shape(lanes, max(a.zeros, trailing_zeros(mask.value)))

    def joined(self, other: Shape) -> Shape | None:
        """Return the shape of ``or`` or ``xor``: a sum where the operands share no set bit, else a vector."""
        a, b = (other, self) if self.uniform else (self, other)
        if a.uniform:
            return Shape(zeros=min(a.zeros, b.zeros))
        if not b.uniform or not a.apart:
            return VECTOR
        if a.value == 0 and min(a.lanes) >= 0 and b.zeros >= max(a.lanes).bit_length():
            return Shape(a.lanes, b.zeros)
        if b.value is not None and b.value >= 0 and b.value & ((1 << max(a.lanes).bit_length()) - 1) == 0:
            return Shape(a.lanes, min(a.zeros, b.zeros)) if a.value is None else VECTOR
        return VECTOR


UNIFORM = Shape()
VECTOR: Shape | None = None  # no scalar shape


def thread_lanes(block: tuple[int, int, int], warps: int) -> dict[str, tuple[list[list[int]], Shape | None]]:
    """Map tid.x, tid.y and tid.z to their values by warp and lane, and to their shapes."""
    x_size, y_size, z_size = block
    total = x_size * y_size * z_size
    tables: dict[str, list[list[int]]] = {"x": [], "y": [], "z": []}
    for warp in range(warps):
        threads = [min(warp * 32 + lane, total - 1) for lane in range(32)]
        tables["x"].append([t % x_size for t in threads])
        tables["y"].append([t // x_size % y_size for t in threads])
        tables["z"].append([t // (x_size * y_size) for t in threads])
    return {f"%tid.{axis}": (rows, _common(rows, total)) for axis, rows in tables.items()}


def _common(rows: list[list[int]], total: int) -> Shape | None:
    """Return the shape that the rows of all warps share; lanes beyond the block's last thread do not count."""
    offsets = [value - rows[0][0] for value in rows[0]]
    for warp, row in enumerate(rows):
        active = min(32, total - warp * 32)
        if [value - row[0] for value in row[:active]] != offsets[:active]:
            return VECTOR
    zeros = min(trailing_zeros(row[0]) for row in rows)
    return Shape(tuple(offsets), zeros, rows[0][0] if len({row[0] for row in rows}) == 1 else None)


def comparison_bound(instruction: Instruction, sources: list[Shape]) -> tuple[str, int] | None:
    """Return a comparison of u alone that decides ``u + lanes`` against a constant for all lanes; else None.

    Holds when the lanes only fill in bits below the constant's own: (u + lane < K) is (u < K) if u and K
    are multiples of a power of two that no lane reaches.
    """
    if len(sources) != 2 or len(instruction.operands) != 3:
        return None
    left, right = sources
    if not right.uniform or right.value is None or left.uniform or not left.apart:
        return None
    comparison, type_ = instruction.parts[0], instruction.parts[-1]
    bound = right.value
    if comparison in ("le", "gt", "ls", "hi"):
        comparison = {"le": "lt", "gt": "ge", "ls": "lo", "hi": "hs"}[comparison]
        bound += 1
    step = 1 << max(left.lanes).bit_length()
    if comparison not in ("lt", "ge", "lo", "hs") or bound % step or not 0 <= bound < 2**31:
        return None
    if type_[0] == "s" and left.zeros >= bits_of(type_):
        return None
    return comparison, bound


def trailing_zeros(value: int) -> int:
    return TOP_ZEROS if value == 0 else (value & -value).bit_length() - 1


def add_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    if a is None or b is None:
        return VECTOR
    if a.uniform or b.uniform:
        lanes = b.lanes if a.uniform else a.lanes
    else:
        lanes = tuple(x + y for x, y in zip(a.lanes, b.lanes, strict=True))
    value = a.value + b.value if a.value is not None and b.value is not None else None
    zeros = min(a.zeros, b.zeros) if value is None else trailing_zeros(value)
    return Shape(lanes, zeros, value)._limited()


def wrap_to_type(value: int, type_: str) -> int:
    """Return the number that a type holds for a value known modulo the type's width."""
    bits = bits_of(type_)
    value %= 1 << bits
    return value - (1 << bits) if type_[0] == "s" and value >> (bits - 1) else value
