"""Where a tile lies in shared memory, as far as copies put it there: its pieces of 16 bytes, by asynchronous copies and
by boxes of the copy engine. What lanes load and store themselves passes through registers, where a recording does not
look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewise.emulator.layout import RANK_SHIFT
from tilewise.emulator.profiling.recording import EventKind
from tilewise.instruments.recording import NamedMatrix, Recording

__all__ = ["PIECE", "Pieces", "find_pieces"]

PIECE = 16  # bytes that lie together: a row of eight values of 16 bits, which matrix loads take at once
Numbers = npt.NDArray[np.int64]
_OFFSETS = (1 << RANK_SHIFT) - 1
_LINE = 128
_MOST_COPIES, _MOST_BOXES = 1 << 14, 64  # that are looked at: what comes later overwrites the first


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a matrix in a block's shared memory, ordered by their places there.

    A vector of the matrix is a row, or a column where columns are what lies together (``by_columns``). Each piece is
    one of ``vector``, the ``number``-th along it, and begins at the byte ``offset`` of shared memory.
    """

    name: str
    by_columns: bool
    offset: Numbers
    vector: Numbers
    number: Numbers

    def groups(self, number: int, vectors: int = PIECE // 2) -> list[int]:
        """Return which of eight groups of four banks each piece of one number lies in, for the first vectors."""
        own = np.flatnonzero(self.number == number)
        order = own[np.argsort(self.vector[own], kind="stable")][:vectors]
        return [int(at) for at in self.offset[order] % _LINE // PIECE]


def find_pieces(recording: Recording, name: str) -> Pieces | None:
    """Return the pieces of a matrix that copies put first into a block's shared memory; None if none did."""
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
    """Return global addresses that copies read and their places in shared memory, of the first block that copies."""
    events = recording.events
    event, places, offsets = _pairs(recording)
    bulks = np.flatnonzero(events.what == EventKind.BULK)
    blocks = np.concatenate([events.block[bulks], events.block[event]])
    if not len(blocks):
        return places, offsets
    own = events.block[event] == blocks[0]
    found = [(places[own], offsets[own])]
    for number in bulks[events.block[bulks] == blocks[0]][:_MOST_BOXES]:
        moved = recording.bulk_places(int(number))
        if moved is not None and moved[2]:
            found.append(moved[:2])
    joined = [np.concatenate(part) for part in zip(*found, strict=True)]
    return joined[0], joined[1]


def _pairs(recording: Recording) -> tuple[Numbers, Numbers, Numbers]:
    """Return event, global address and place in shared memory of each lane of the asynchronous copies.

    A lane that reads nothing has no global address, and is left out.
    """
    events = recording.events
    chosen = np.flatnonzero(np.isin(events.what, (EventKind.COPY, EventKind.FILL)))[:_MOST_COPIES]
    chosen = chosen[np.lexsort((chosen, events.place[chosen], events.warp[chosen], events.block[chosen]))]
    # What is filled follows at once what is read by the same warp at the same place.
    second = np.flatnonzero(
        (events.what[chosen][:-1] == EventKind.COPY) & (events.what[chosen][1:] == EventKind.FILL)
    )
    read, fill = chosen[second], chosen[second + 1]
    active = (events.mask[read] & events.mask[fill])[:, None] >> np.arange(32, dtype=np.uint32) & 1
    index, lane = np.nonzero(active)
    offsets = events.addresses[fill[index], lane] & _OFFSETS
    return read[index], events.addresses[read[index], lane], offsets
