"""Which lane touches which address: patterns that tell one rule of counting from another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.hardware.job import Array, Raw

__all__ = ["WINDOW", "Pattern", "global_patterns", "matrix_patterns", "shared_patterns"]

WINDOW = 32 * 1024  # bytes that shared offsets stay below
_RANDOM = 8
Pattern = tuple[str, Array]  # a name, and an offset in bytes for each lane; -1 for a lane that does nothing
_LANES = np.arange(32)


def _by(unit: int, index: Callable[[Array], Array]) -> Array:
    return index(_LANES).astype(np.int64) * unit


def shared_patterns(width: int) -> Iterator[Pattern]:
    """For accesses of ``width`` bytes a lane."""
    row = 128 // width  # elements that go once round the banks
    named: dict[str, Callable[[Array], Array]] = {
        "in step": lambda n: n,
        "all the same": lambda n: n * 0,
        "backwards": lambda n: 31 - n,
        "stride 2": lambda n: n * 2,
        "stride 4": lambda n: n * 4,
        "stride of a row": lambda n: n * row,
        "stride of a row and one": lambda n: n * (row + 1),
        "pairs share": lambda n: n // 2,
        "n and n^2 share": lambda n: (n & 1) | (n >> 1 & ~1),
        "n and n^4 share": lambda n: (n & 3) | (n >> 1 & ~3),
        "fours share": lambda n: n // 4,
        "eights share": lambda n: n // 8,
        "halves share": lambda n: n % 16,
        "quarters share": lambda n: n % 8,
        "pairs share, rows apart": lambda n: n // 2 * row,
        "halves, rows apart": lambda n: n % 16 + n // 16 * row,
        "every other lane in another row": lambda n: n // 2 + (n & 1) * row * 2,
        "eights in one bank": lambda n: n % 8 * row + n // 8,
        "fours in one bank": lambda n: n % 4 * row + n // 4,
    }
    for name, index in named.items():
        yield name, _by(width, index)
    whole = _by(width, lambda n: n)
    apart = _by(width, lambda n: n * row)
    active = {"first 8": _LANES < 8, "last 16": _LANES >= 16, "even": _LANES % 2 == 0, "every fourth": _LANES % 4 == 1,
              "lane 5": _LANES == 5, "first of each 8": _LANES % 8 == 0, "20": _LANES < 20}  # fmt: skip
    for name, which in active.items():
        yield f"in step, {name}", np.where(which, whole, -1)
    yield "stride of a row, even", np.where(_LANES % 2 == 0, apart, -1)
    raw = Raw(width, 77)
    for i in range(_RANDOM):
        places = (row // 2, row, 2 * row, 4 * row, 8 * row)[i % 5]
        offsets = raw.below(max(places, 2), 32) * width
        if i % 4 == 3:
            offsets = np.where(raw.below(3, 32) == 0, -1, offsets)
        yield f"random {i} of {places}", offsets


def matrix_patterns() -> Iterator[Pattern]:
    """Rows of 16 bytes, for ldmatrix and stmatrix."""
    yield "in step", _LANES * 16
    yield "128 bytes apart", _LANES * 128
    yield "64 bytes apart", _LANES * 64
    yield "32 bytes apart", _LANES * 32
    yield "144 bytes apart", _LANES * 144
    yield "80 bytes apart", _LANES * 80
    yield "swizzled, 128 bytes", _LANES * 128 + (_LANES % 8) * 16
    yield "swizzled, 64 bytes", _LANES * 64 + (_LANES // 2 % 4) * 16
    yield "all the same", _LANES * 0
    yield "pairs share", _LANES // 2 * 16
    yield "pairs share, rows apart", _LANES // 2 * 128
    yield "eights share", _LANES // 8 * 128
    raw = Raw(16, 78)
    for i in range(4):
        yield f"random {i}", raw.below((8, 16, 32, 64)[i % 4], 32) * 16


def global_patterns(width: int) -> Iterator[Pattern]:
    yield "in step", _LANES * width
    yield "in step, from the second word", _LANES * width + max(width, 4)
    yield "in step, from the second sector", _LANES * width + 32
    yield "all the same", _LANES * 0
    yield "stride 2", _LANES * 2 * width
    yield "a sector apart", _LANES * 32
    yield "a line apart", _LANES * 128
    yield "backwards", (31 - _LANES) * width
    yield "pairs share", _LANES // 2 * width
    yield "halves share", _LANES % 16 * width
    yield "in step, even", np.where(_LANES % 2 == 0, _LANES * width, -1)
    yield "in step, first 8", np.where(_LANES < 8, _LANES * width, -1)
    raw = Raw(width, 79)
    for i in range(4):
        offsets = raw.below((16, 64, 256)[i % 3] * 8, 32) * 16
        yield f"random {i}", np.where(raw.below(4, 32) == 0, -1, offsets) if i >= 2 else offsets
