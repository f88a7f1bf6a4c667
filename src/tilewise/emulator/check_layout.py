"""Where a checked launch keeps what it knows of its memory, and the findings.

*Time* is a number of the launch, one more after every synchronisation. A *clock* has, for every warp, the time
up to which what that warp did happened before; each warp has one, and so has everything that warps synchronise
by. An access that the clock of the warp does not cover, and a conflicting one, are a race.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ACTIONS", "CELL", "CHECK", "CLOCKS", "COPIES", "COPY", "FINDING", "RANGE", "Action", "Kind"]


class CHECK:
    """One checked launch, at ``LAUNCH.WATCH``."""

    FINDINGS, COUNT, CAPACITY = 0, 8, 16
    RANGES, RANGE_COUNT = 24, 32  # of global memory: first, end, its cells
    NOW = 40  # the time
    WIDTH = 48  # warps that a clock has an entry for
    TALKS = 56  # whether clocks have all warps of the grid, or those of one cluster
    DROPPED = 64  # findings beyond the capacity
    LAST = 72  # pointer to the range found last
    SPOTS = 80  # pointer: clocks by the global address that warps synchronise by
    SIZE = 128


class RANGE:
    """Global memory of which something is known."""

    FIRST, END, CELLS = 0, 8, 16
    SIZE = 24


class CLOCKS:
    """The clocks of one resident cluster."""

    WARPS, SYNCED, FENCED = 0, 8, 16  # pointers: by warp its clock; when its lanes met last; when it fenced
    BARRIERS, PHASES = 24, 32  # pointers: of each barrier two clocks, and how often it was used
    SPOTS = 40  # pointer: clocks by the shared address that warps synchronise by
    CAME = 48  # pointer: by warp and barrier, in which of its phases it came
    BYTES = 56  # of all that the pointers point to
    GROUPS = 64  # pointer: by warp and lane, groups of copies closed so far
    COPIES, COUNT = 72, 80  # pointer: copies in flight; how many of them were ever used
    SIZE = 96


class COPY:
    """Copies of one instruction that are in flight, as far as the program knows: it has not waited for them.

    Whatever the order of the launch, they are not there until it has.
    """

    LANES, WARP, SIZE_, LINE = 0, 4, 8, 12  # LANES is 0 when all have landed
    KEY = 16  # of the mbarrier that they are told to; 0 if there is none
    TIME = 24  # when they were
    GROUPS, PLACES = 32, 160  # by lane
    SIZE = 288


COPIES = 4_096  # of a cluster; more are not followed


SPOTS = 64  # addresses that clocks are kept for; further ones share the last
SPOT_KEY = 8  # bytes before the clock of one
BARRIERS_OF_BLOCK = 17  # the last is the cluster's, in its first block


class CELL:
    """What is known of four bytes."""

    WRITTEN, WRITER, WRITE_LINE, BYTES = 0, 4, 8, 12  # the last write: when, by whom, where, which bytes
    UNSET = 16  # bytes that nothing was written to
    STATE = 20  # what is in flight
    READ, READER, READ_LINE = 24, 28, 32  # the last read
    EARLIER, EARLIER_READER, EARLIER_LINE = 36, 40, 44  # one before, of another warp
    SIZE = 48


# In CELL.BYTES beyond the bytes: the write was an atomic operation, or one that synchronises.
STRONG = 1 << 8
NARROW = 1 << 9  # of the block's scope
# In CELL.STATE.
ARRIVING, LEAVING = 1, 2  # a copy to here, or from here, is in flight
GENERIC = 4  # written by a thread, and no fence has told the asynchronous proxy
SEVERAL = 32  # as a lane: more than one of the warp


# How warps synchronise by what lies at an address.
ACQUIRE, RELEASE = 1, 2
TOLD, SEEN = 4, 8  # an mbarrier is told of earlier copies; one of its phases is seen to be over


class Action(IntEnum):
    LOAD = 0
    STORE = 1
    ATOMIC = 2


ACTIONS = {"load": Action.LOAD, "store": Action.STORE, "atomic": Action.ATOMIC, "copy": Action.LOAD}


class Kind(IntEnum):
    """Kinds of findings that compiled code makes."""

    WRITE_AFTER_WRITE = 1
    READ_AFTER_WRITE = 2
    WRITE_AFTER_READ = 3
    UNSET = 4
    READ_IN_FLIGHT = 5
    WRITE_IN_FLIGHT = 6
    SOURCE_IN_FLIGHT = 7
    UNFENCED = 8
    COPY_AFTER_ACCESS = 9  # a copy is issued to what others may still read or write


class FINDING:
    """One finding, and how often it was made."""

    KIND, SPACE, LINE, OTHER_LINE = 0, 4, 8, 12
    ADDRESS = 16
    COUNT = 24
    WHO, OTHER = 32, 36
    SIZE = 64
