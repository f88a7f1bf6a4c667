"""Where things lie in the structures that compiled code, its run-time support and Python share.

Offsets are in bytes. Every structure is plain memory that Python allocates.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "BARRIER",
    "BARRIERS",
    "BLOCK",
    "FAULT",
    "GENERIC_LOCAL",
    "GENERIC_SHARED",
    "LAUNCH",
    "WARP",
    "Answer",
    "FaultKind",
    "Question",
    "Space",
    "Status",
]


class Answer(IntEnum):
    """What a warp's code returns."""

    EXIT = 0
    WAIT = 1  # at a barrier
    YIELD = 2  # in a loop that waits for others
    DEOPT = 3  # to go on in the general build
    FAULT = 4
    STOP = 5  # the launch was told to stop


class Status(IntEnum):
    """What the scheduler knows of a warp."""

    READY = 0
    WAITING = 1
    DONE = 2


class Space(IntEnum):
    GENERIC = 0
    GLOBAL = 1
    SHARED = 2
    LOCAL = 3
    CONST = 4
    PARAM = 5


class FaultKind(IntEnum):
    NONE = 0
    OUT_OF_BOUNDS = 1
    MISALIGNED = 2
    TRAP = 3
    READ_ONLY = 4
    BAD_BARRIER = 5
    ASSERT = 6
    BAD_INDEX = 7
    BAD_CALL = 8


class Question(IntEnum):
    """What compiled code asks the host."""

    PRINT = 1
    ASSERT = 2
    TIME = 3


class LAUNCH:
    """One launch; shared by all workers."""

    STOP, NEXT, TOTAL = 0, 8, 16
    GRID_X, GRID_Y, GRID_Z = 24, 32, 40
    PARAMS, PARAM_BYTES = 48, 56
    RANGES, RANGE_COUNT = 64, 72
    CONST, CONST_BYTES = 80, 88
    SHARED_BYTES, LOCAL_BYTES = 96, 104
    FAST, GENERAL = 112, 120
    FAULT = 128
    DONE = 136
    ORDER, SEED = 144, 152
    WARPS, THREADS = 160, 168
    WARP_STRIDE = 176
    DYNAMIC_BYTES = 184
    HOST = 192  # pointer to the function that answers questions
    LOCK = 200  # held while a lane changes 128 bits of memory in one step
    MULTIPROCESSORS = 216
    GLOBALS = 232  # pointer to the addresses of module-level variables
    SIZE = 256


class BLOCK:
    """One resident block, followed by its warps."""

    SHARED = 0
    X, Y, Z = 8, 12, 16
    LIVE = 20  # threads that have not left
    DONE = 24  # warps that are done
    NUMBER = 32
    ACTIVE = 40  # whether it has been started and is not done
    PROGRESS = 48  # counts what loops that may wait for something change, and barriers and ends of warps
    SEEN = 56  # the count when the scheduler looked last
    BARRIERS = 64
    WARPS = 1024


class BARRIER:
    """One of the 16 barriers of a block."""

    THREADS, UNITS = 0, 4  # arrived: threads, and threads with whole warps counted full
    EXPECTED = 8  # units; 0 for all threads of the block
    COUNT = 12  # of votes in favour
    SIZE = 16


BARRIERS = 16


class WARP:
    """One warp, followed by the registers that it keeps while others run."""

    RESUME, STATUS, LIVE, BLOCKED = 0, 4, 8, 12
    INDEX, GENERAL = 16, 20
    LINE = 24  # of the PTX, where lanes wait for other lanes
    LOOP = 28  # line of the loop in which it looked at memory last
    LOCAL = 32  # pointer to its threads' local memory
    WAITING = 40  # lanes that wait, by barrier
    PENDING = 104  # lanes that run, where the warp stopped while they were apart
    MEETING = 108  # lanes that wait for other lanes of the warp
    NAMED = 128  # by lane: which lanes it waits for
    RESULTS = 256  # by barrier: what the votes of the last one that its lanes waited at came to
    LINES = 320  # by barrier: of the PTX, where they wait at it
    HEADER = 384  # then come the masks of waiting lanes by block


class FAULT:
    """What went wrong first."""

    KIND, LINE = 0, 4
    X, Y, Z = 8, 12, 16
    THREAD = 20
    ADDRESS = 24
    SIZE, SPACE, WRITE = 32, 36, 40
    EXTENT = 48  # bytes of the memory space, where it has a size
    BYTES = 64


# Generic addresses of shared and local memory lie where no array of a process can.
GENERIC_SHARED = 1 << 56
GENERIC_LOCAL = 1 << 57
GENERIC_CONST = 1 << 58
GENERIC_PARAM = 1 << 59
WINDOW = 1 << 32
