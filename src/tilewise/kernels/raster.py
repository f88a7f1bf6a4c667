"""Rasters: the order in which blocks take the tiles of the output.

The same orders as ``tilewise/raster.cuh``, for plans, pictures and counts. Each maps a block's number to
the row and column of its tile, and visits every tile of a grid of any shape exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ORDERS", "Elements", "Order", "column", "elements_read", "grouped", "hilbert", "row", "waves"]

Order = Callable[[int, int, int], tuple[int, int]]
_GROUP = 8  # rows of tiles in a band of `grouped`


class Elements(NamedTuple):
    """How many elements of A and of B the blocks in flight read for each term of the sums (each k)."""

    a: float
    b: float

    @property
    def total(self) -> float:
        return self.a + self.b


def row(block: int, _rows: int, columns: int) -> tuple[int, int]:
    """Row by row."""
    return divmod(block, columns)


def column(block: int, rows: int, _columns: int) -> tuple[int, int]:
    """Column by column."""
    return block % rows, block // rows


def grouped(block: int, rows: int, columns: int) -> tuple[int, int]:
    """Bands of eight rows of tiles, column by column within a band."""
    band, within = divmod(block, _GROUP * columns)
    height = min(_GROUP, rows - band * _GROUP)
    return band * _GROUP + within % height, within // height


def hilbert(block: int, rows: int, columns: int) -> tuple[int, int]:
    """Hilbert's curve for a grid of any shape: each tile lies beside the one before it."""
    wide = columns >= rows
    along, across = ((0, 1), (1, 0)) if wide else ((1, 0), (0, 1))
    walk = _Walk(0, 0, along, across, max(rows, columns), min(rows, columns))
    # No walk leads along an odd length where the width is even. The curve may end anywhere, so it goes
    # along an even part of it, and then across the rest, which is a tile longer than wide.
    if walk.length % 2 and walk.width % 2 == 0:
        first = walk.length - walk.width - 1
        if block < first * walk.width:
            walk.length = first
        else:
            block -= first * walk.width
            walk.move(first, 0)
            walk.turn(1, walk.width, walk.length - first)
    while walk.length > 2 and walk.width > 1:
        long = 2 * walk.length > 3 * walk.width
        block = walk.enter_half(block) if long else walk.enter_third(block)
    if walk.width == 1:
        walk.move(block, 0)
    elif block < walk.width:  # two tiles long: away from the side, and back
        walk.move(0, block)
    else:
        walk.move(1, 2 * walk.width - 1 - block)
    return walk.row, walk.column


@dataclass(slots=True)
class _Walk:
    """A walk over a box of tiles, entered at a corner and left at the other end of the side ``along``.

    It exists where the length is even, or length and width are both odd; and only if a box one tile long
    is one tile wide. Both cuts keep to that.
    """

    row: int
    column: int
    along: tuple[int, int]  # one tile along the side
    across: tuple[int, int]  # one tile away from it, into the box
    length: int
    width: int

    def move(self, along: int, across: int) -> None:
        self.row += along * self.along[0] + across * self.across[0]
        self.column += along * self.along[1] + across * self.across[1]

    def turn(self, sign: int, length: int, width: int) -> None:
        """Make the side that the walk follows the one across; with sign -1 turn both round."""
        along, across = self.along, self.across
        self.along = (sign * across[0], sign * across[1])
        self.across = (sign * along[0], sign * along[1])
        self.length, self.width = length, width

    def enter_half(self, i: int) -> int:
        """Cut a long box into two, one behind the other; go to the one that holds tile i of the walk."""
        second = (self.length + 2) // 4 * 2  # even, so the first keeps the parity of the whole
        first = self.length - second
        if i < first * self.width:
            self.length = first
            return i
        i -= first * self.width
        self.move(first, 0)
        self.length = second
        return i

    def enter_third(self, i: int) -> int:
        """Cut any other box into three: away from the side, along the far part, back to the side."""
        rise = (self.width + 2) // 4 * 2  # even: the length of the first and third walk
        half = self.length // 2
        first, second = rise * half, (self.width - rise) * self.length
        if i < first:
            self.turn(1, rise, half)
            return i
        if i < first + second:
            self.move(0, rise)
            self.width -= rise
            return i - first
        self.move(self.length - 1, rise - 1)
        self.turn(-1, rise, self.length - half)
        return i - first - second


ORDERS: Mapping[str, Order] = {"row": row, "column": column, "grouped": grouped, "hilbert": hilbert}


def waves(order: Order, rows: int, columns: int, tile_m: int, tile_n: int, in_flight: int) -> list[Elements]:
    """What the blocks in flight read, wave by wave, where ``in_flight`` blocks start and end together."""
    counts = []
    for first in range(0, rows * columns, in_flight):
        last = min(first + in_flight, rows * columns)
        tiles = [order(block, rows, columns) for block in range(first, last)]
        a = tile_m * len({tile[0] for tile in tiles})
        b = tile_n * len({tile[1] for tile in tiles})
        counts.append(Elements(a, b))
    return counts


def elements_read(
    order: Order, rows: int, columns: int, tile_m: int, tile_n: int, in_flight: int
) -> Elements:
    """The elements of A and of B that the blocks in flight read for each k, averaged over the waves.

    Each row of tiles among them costs ``tile_m`` elements of A, each column ``tile_n`` of B, however many
    blocks share it: the L2 cache serves the others.
    """
    counts = waves(order, rows, columns, tile_m, tile_n, in_flight)
    a, b = (sum(part) / len(counts) for part in zip(*counts, strict=True))
    return Elements(a, b)
