"""Where a tile lies in shared memory, as far as copies put it there: its pieces of 16 bytes, by asynchronous copies and
by boxes of the copy engine. What lanes load and store themselves passes through registers, where a recording does not
look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewise.emulator.layout import RANK_SHIFT
from tilewise.emulator.profiling.recording import What
from tilewise.instruments.recording import NamedMatrix, Recording

__all__ = ["PIECE", "Pieces", "find_pieces"]

PIECE = 16  # bytes that lie together: a row of eight values of 16 bits, which matrix loads take at once
Numbers = npt.NDArray[np.int64]
_OFFSETS = (1 << RANK_SHIFT) - 1
_LINE = 128
_MOST_COPIES, _MOST_BOXES = 1 << 14, 64  # that are looked at: what comes later overwrites the first


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a matrix that a block has in shared memory, in the order of their places there.

    A vector of the matrix is a row, or a column where columns are what lies together (``by_columns``). Each piece is
    one of ``vector``, the ``number``-th along it, and begins at the byte ``offset`` of shared memory.
    """

    name: str
    by_columns: bool
    offset: Numbers
    vector: Numbers
    number: Numbers

    def groups(self, number: int, vectors: int = PIECE // 2) -> list[int]:
        """In which of the eight groups of four banks the pieces of one number are, of the first vectors."""
        own = np.flatnonzero(self.number == number)
        order = own[np.argsort(self.vector[own], kind="stable")][:vectors]
        return [int(at) for at in self.offset[order] % _LINE // PIECE]


def find_pieces(recording: Recording, name: str) -> Pieces | None:
    """The pieces of a matrix that copies put into shared memory first, of one block; None if none did."""
    matrix = recording.matrices[name]
    if max(matrix.row_stride, matrix.column_stride) * matrix.itemsize < PIECE:
        return None
    places, offsets = _copied(recording, matrix)
    row, column, stack = matrix.find(places)
    known = (row >= 0) & (offsets % PIECE == 0)
    if not known.any():
        return None
    known &= stack == stack[known][0]
    by_columns = matrix.row_stride < matrix.column_stride
    vector, along = (column, row) if by_columns else (row, column)
    # What is written later to the same place is a later step's.
    at, first = np.unique(offsets[known], return_index=True)
    vector, number = vector[known][first], along[known][first] * matrix.itemsize // PIECE
    return Pieces(name, by_columns, at, vector, number)


def _copied(recording: Recording, matrix: NamedMatrix) -> tuple[Numbers, Numbers]:
    """Global addresses that copies read, each with its place in shared memory: of the first block that copies."""
    events = recording.events
    reads, fills = (_lanes(recording, what) for what in (What.COPY, What.FILL))
    found = [(np.zeros(0, np.int64),) * 2]
    if len(reads[0]) == len(fills[0]):
        found.append((reads[1], fills[1] & _OFFSETS))
    bulks = np.flatnonzero(events.what == What.BULK)
    blocks = np.concatenate([events.block[bulks], events.block[reads[0]]])
    if not len(blocks):
        return found[0]
    found = [
        tuple(part[events.block[reads[0]] == blocks[0]] for part in pair) if len(pair[0]) else pair
        for pair in found
    ]
    for event in bulks[events.block[bulks] == blocks[0]][:_MOST_BOXES]:
        places = recording.bulk_places(int(event))
        if places is not None and places[2]:
            found.append(places[:2])
    joined = [np.concatenate(part) for part in zip(*found, strict=True)]
    return joined[0], joined[1]


def _lanes(recording: Recording, what: What) -> tuple[Numbers, Numbers]:
    """Every lane of the events of a kind, with its address; the two halves of a copy come in the same order."""
    events = recording.events
    chosen = np.flatnonzero(events.what == what)[:_MOST_COPIES]
    order = np.lexsort((chosen, events.place[chosen], events.warp[chosen], events.block[chosen]))
    chosen = chosen[order]
    active = (events.mask[chosen][:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool)
    index, lane = np.nonzero(active)
    return chosen[index], events.addresses[chosen[index], lane]
