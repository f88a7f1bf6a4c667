"""What lanes have side by side in memory, and vectors with an element of each lane.

LLVM takes one long shuffle apart into hundreds of instructions. Four words a lane, which is what kernels move most,
are transposed here in steps that a CPU has an instruction for: that is a quarter of the code, and of its time.
"""

from __future__ import annotations

from tilewise.emulator.llvm.emit import Emitter, Value, join

__all__ = ["interleave", "is_transposed", "load_rows", "separate", "separate_rows"]

_WORDS = 4  # that are transposed
_HALF = ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
"""Of two vectors of eight words the lower, or upper, two of each half, in turns: one instruction."""


def is_transposed(element: str, count: int) -> bool:
    """Whether so many elements a lane are transposed in steps."""
    return count == _WORDS and element in ("i32", "float")


def load_rows(e: Emitter, element: str, count: int, places: list[str], align: int) -> list[Value]:
    """Load what each lane has at its place; return the vectors of their first elements, second ones, …"""
    return separate_rows(e, [e.load(f"<{count} x {element}>", place, align) for place in places])


def separate_rows(e: Emitter, rows: list[Value]) -> list[Value]:
    """Return from each lane's elements the vectors of their first ones, second ones, …"""
    count, element = rows[0].type[1:-1].split(" x ")
    if not is_transposed(element, int(count)):
        return separate(e, join(e, rows), int(count))
    columns: list[list[Value]] = [[] for _ in range(_WORDS)]
    for first in range(0, 32, 8):
        pairs = [join(e, [rows[first + i], rows[first + i + 4]]) for i in range(4)]
        for column, part in zip(columns, _transpose(e, pairs), strict=True):
            column.append(part)
    return [join(e, column) for column in columns]


def separate(e: Emitter, whole: Value, count: int) -> list[Value]:
    """The same from all lanes' elements in one vector, lane by lane."""
    if count == 1:
        return [whole]
    return [e.shuffle(whole, [lane * count + i for lane in range(32)]) for i in range(count)]


def interleave(e: Emitter, values: list[Value]) -> Value:
    """Join values so that each lane's stand side by side."""
    if len(values) == 1:
        return values[0]
    if not is_transposed(values[0].scalar, len(values)):
        whole = join(e, list(values))
        return e.shuffle(whole, [i * 32 + lane for lane in range(32) for i in range(len(values))])
    pieces = []
    for first in range(0, 32, 8):
        parts = [e.shuffle(value, list(range(first, first + 8))) for value in values]
        pairs = _transpose(e, parts)  # lanes i and i + 4 of the eight
        for half in (0, 4):
            picks = [*range(half, half + 4), *range(half + 8, half + 12)]
            pieces += [e.shuffle(pairs[i], picks, pairs[i + 1]) for i in (0, 2)]
    return join(e, pieces)


def _transpose(e: Emitter, rows: list[Value]) -> list[Value]:
    """Transpose the 4×4 words in the lower halves of four vectors, and those in the upper halves."""
    even = [e.shuffle(rows[0], list(half), rows[2]) for half in _HALF]
    odd = [e.shuffle(rows[1], list(half), rows[3]) for half in _HALF]
    return [e.shuffle(a, list(half), b) for a, b in zip(even, odd, strict=True) for half in _HALF]
