"""The layout of a checked launch's shadow memory, vector clocks and findings.

*Time* is a number of the launch, one more after every synchronisation. A *clock* has, for every warp, the time
up to which what that warp did happened before; each warp has one, and so has everything that warps synchronise
by. An access that the clock of the warp does not cover, and a conflicting one, are a race.

*Who* accessed memory is one number: the warp's within the launch, and behind it, in six bits, the lane's.

*Shadow memory* has for every four bytes of memory a row of ``CELLS``: their last accesses. What warps synchronise by
(a flag, an mbarrier) is a *sync variable*, known by its address.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "ACCESS",
    "ACTIONS",
    "CELLS",
    "CHECK",
    "CLOCK",
    "CLOCKS",
    "COPY",
    "FINDING",
    "RANGE",
    "SHADOW",
    "SHUFFLED",
    "STATE",
    "SYNC",
    "WHO",
    "Action",
    "CopySide",
    "FindingKind",
    "StoreStep",
    "stride_of",
]


class CHECK:
    """One checked launch, at ``LAUNCH.WATCH``."""

    FINDINGS, COUNT, CAPACITY = 0, 8, 16
    RANGES, RANGE_COUNT = 24, 32  # of global memory
    NOW = 40  # the time
    WIDTH = 48  # warps that a clock has an entry for
    GRID_WIDE = 56  # whether clocks have all warps of the grid, or those of one cluster
    DROPPED = 64  # findings beyond the capacity
    LAST = 72  # pointer to the range found last
    SYNC_VARS = 80  # pointer: clocks by the global address that warps synchronise by
    ALONE = 88  # whether no other cluster can have accessed what a warp accesses
    INCOMPLETE = 96  # whether clocks lack warps that might have synchronised
    STRIDE = 104  # of the cells of a block's shared memory
    SYNC_VAR_COUNT = 112  # a power of two
    REGISTERS = 120  # bytes of each warp's table of registers that products use
    SHUFFLED = 128  # bytes of each warp's table of registers that undefined values of shuffles may come to
    SIZE = 136


class RANGE:
    """A stretch of global memory that has shadow memory."""

    FIRST, END, CELLS, STRIDE = 0, 8, 16, 24
    SIZE = 32


class SHADOW:
    """The answer of a shadow lookup: a stretch of memory, and where its shadow cells are."""

    FIRST, BYTES = 0, 8  # addresses, in the terms of the access
    CELLS, STRIDE = 16, 24
    MEMORY = 32  # pointer to the memory itself
    BEGAN = 40  # when its cluster began: accesses up to this time were of an earlier one
    OWNER = 48  # pointer to the block, if it is another one of the cluster
    SIZE = 56


class CLOCKS:
    """The clocks of one resident cluster. SYNCED is when the lanes of a warp met last."""

    WARPS, SYNCED, FENCED = 0, 8, 16  # pointers: by warp its clock; SYNCED; when it fenced for other proxies
    BARRIERS, PHASES = 24, 32  # pointers: of each barrier two clocks, and how often it was used
    SYNC_VARS = 40  # pointer: clocks by the shared address that warps synchronise by
    # Pointer: by warp and barrier, the phase it arrived in; behind them, which one it waits at.
    ARRIVED_PHASE = 48
    RELEASED, PENDING = 56, 64  # pointers: by warp, for the block's scope and for wider ones: what its last
    # fence covers; what it read from others and no fence has covered
    GROUPS = 72  # pointer: by warp, kind of group and lane: groups closed so far
    COPIES, COUNT = 80, 88  # pointer: copies in flight; how many of them were ever used
    LEAST = 96  # pointer: by warp, the time up to which all that its block did happened before
    BEGAN = 104  # when the cluster began
    SYNC_VAR_COUNT = 112
    ENDS = 120  # pointer: of each barrier, for two phases, when it let the first warp through
    # Pointers: by warp, a clock of what one lane alone has acquired; that lane and 1 more, or 0.
    PRIVATE, PRIVATE_LANE = 128, 136
    FENCES = 144  # pointer: of each barrier, for two phases and both scopes, what fences before it covered
    PUBLISHED = 152  # pointer: by warp, when it last made mbarriers visible to others
    REGISTERS = 160  # pointer: by warp, see ``wgmma_operands.py``
    PRODUCTS_DONE = 168  # pointer: by the first warp of four, when one of them last waited for their products
    SHUFFLED = 176  # pointer: by warp, see ``shuffled.py``
    SIZE = 184
    BARRIERS_OF_BLOCK = 17  # the last is the cluster's, in its first block
    GROUP_KINDS = 3  # of cp.async, of bulk copies, of wgmma
    SHARED_SYNC_VARS = 64


class COPY:
    """A record of one instruction's copies in flight: until the program has waited for them, whenever they land."""

    LANES, WARP, BYTES, LINE = 0, 4, 8, 12  # LANES is 0 when all have landed; BYTES of each
    KEY = 16  # of the mbarrier that completes them; 0 if there is none
    TIME = 24  # when they were attached to it
    PHASE = 28  # the parity of the mbarrier's phase that completes them
    KIND = 32  # which groups they belong to
    SIDE = 36  # of ``CopySide``
    TENSOR = 40  # of a store to global memory, whose request lies at PLACES: whether it is of a tensor
    GROUPS, PLACES = 64, 192  # by lane
    REQUEST_BYTES = 256
    SIZE = PLACES + REQUEST_BYTES
    MOST = 4_096  # of a cluster; more are not followed


class CopySide(IntEnum):
    """Which side of its copies a record follows: memory that they write, or memory that they read."""

    TO_SHARED = 0
    FROM_SHARED = 1
    TO_GLOBAL = 2  # over for its thread when it has waited for the groups, and not only for what they read


class StoreStep(IntEnum):
    """Why the destination of a store to global memory is walked."""

    WRITE = 0
    CLAIM = 1  # in a checked launch, when it is issued: judge the write, and mark it as in flight
    RELEASE = 2  # when the thread has waited for it


class CLOCK:
    """One clock: an entry of 32 bits for each warp, and behind them its tail."""

    TAIL = 16  # bytes: who is covered further than its warp, see ``vector_clocks.py``
    FOREVER = 0x7FFF_FFFF  # in a barrier's clock: of a warp that does nothing until it is let through


class CELLS:
    """The shadow of each four bytes: a column of 32 bits for each of these."""

    WRITTEN, WRITER, WRITE = 0, 1, 2  # the last write: when, by whom; line and flags
    READ, READER, READING = 3, 4, 5  # a read
    EARLIER, EARLIER_READER, EARLIER_READING = 6, 7, 8  # another one, of another warp
    STATE = 9
    # The last write that was not atomic, where WRITE is one that was.
    PLAIN, PLAIN_WRITER, PLAIN_WRITE = 10, 11, 12
    COLUMNS = 13
    LAST_WRITE, LAST_READ = (WRITTEN, WRITER, WRITE), (READ, READER, READING)
    EARLIER_READ = (EARLIER, EARLIER_READER, EARLIER_READING)
    PLAIN_STORE = (PLAIN, PLAIN_WRITER, PLAIN_WRITE)


def stride_of(size: int) -> int:
    """Bytes of a column for so many bytes of memory; with room for a vector beyond the end."""
    return (-(-size // 4) * 4 + 255) // 128 * 128


class STATE:
    """In CELLS.STATE, of which the upper bits mean nothing."""

    NEW = 0x0F0F0F0F  # every byte is uninitialised
    UNSET = 0x0F  # by byte
    ARRIVING = 0x10  # a copy to here is in flight
    ALSO_ARRIVING = 0x1000  # so are others: a number of four bits
    MOST_ARRIVING = 0xF000
    LEAVING = 0x20  # copies from here are: a number of two bits
    MANY_LEAVING = 0x60
    FOREIGN = 0x80  # another block has accessed it
    FLAGS = 0xF0


class ACCESS:
    """In WRITE, READING and EARLIER_READING: which of the bytes, flags, and from bit 8 on the line of the PTX."""

    BYTES = 15
    STRONG = 16  # an atomic operation, or one that synchronises
    BLOCK_SCOPED = 32  # and its scope is the block
    PROXY = 64  # by the asynchronous proxy
    DOUBTFUL = 128  # to another block's memory, where compilers drop a volatile
    LINE_BITS = 8
    # Only given to an access:
    WHOLE_WARP = 256  # the lanes make it as one
    PASSED_ON = 512  # what is read is only written elsewhere
    BITWISE = 1024  # it sets or clears some bits, whatever the others are
    CONSTANT = 2048  # what is stored is a constant of the program


class WHO:
    """The lane in the number of who accessed memory."""

    LANE_BITS = 6
    LANE_MASK = (1 << LANE_BITS) - 1
    SEVERAL = 32  # more than one of the warp
    MIXED = 33  # the same, but each has bytes of its own
    WHOLE = 34  # the warp, by an instruction that its lanes run as one


class SYNC:
    """How warps synchronise by a sync variable."""

    ACQUIRE, RELEASE = 1, 2
    PHASE_OVER = 8  # a phase of an mbarrier is seen to be over
    RELAXED = 16  # only together with fences
    BLOCK_SCOPE = 32  # of the block's scope
    KEY_BYTES = 8  # of a sync variable, before its clock


class Action(IntEnum):
    LOAD = 0
    STORE = 1
    ATOMIC = 2


ACTIONS = {"load": Action.LOAD, "store": Action.STORE, "atomic": Action.ATOMIC, "copy": Action.LOAD}


class FindingKind(IntEnum):
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
    EARLY_EXIT = 10  # a block ends that others may still use the memory of
    SUM_IN_FLIGHT = 11  # a sum of wgmma is read that was not waited for
    REGISTER_IN_FLIGHT = 12  # a register is written that a wgmma in flight uses
    REGISTER_UNFENCED = 13  # a wgmma uses a register that was written, and no wgmma.fence lies between
    MBARRIER_UNPUBLISHED = 14  # a copy completes on an mbarrier whose init no fence made visible to it
    BAD_MASK = 15  # a lane runs with others of its warp and is not among those that it names
    EQUAL_WRITES = 16  # two writes race, of equal values
    OUT_OF_BOUNDS = 17  # of a lenient launch: a fault that did not end it; FLAGS is 1 for a write,
    BLOCK_EXITED = 18  # and BYTES of how many bytes
    # What a shuffle read from a lane that takes no part in it is used; ADDRESS: SHUFFLED.
    SHUFFLE_INACTIVE_LANE = 19


class SHUFFLED:
    """Where an undefined value is from: bits of 64; below those of its reader is the lane that it read."""

    READER, LINE, MASK = 5, 10, 32  # LINE: of the shuffle, in the PTX


class FINDING:
    """One finding, and how often it was made."""

    KIND, SPACE, LINE, OTHER_LINE = 0, 4, 8, 12
    ADDRESS = 16
    COUNT = 24
    WHO, OTHER = 32, 36
    BYTES = 40  # of the access
    FLAGS = 44  # of the access, and from bit 8 on of the other
    SIZE = 64
