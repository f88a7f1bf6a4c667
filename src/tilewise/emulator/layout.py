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
    "FLIGHT",
    "GENERIC",
    "LAUNCH",
    "OFFSETS",
    "QUEUE",
    "RANK_SHIFT",
    "WARP",
    "WINDOW",
    "WINDOWS",
    "Answer",
    "ClusterFault",
    "FaultKind",
    "Flight",
    "FlightClass",
    "HostCall",
    "Mbarrier",
    "MbarrierFault",
    "Outcome",
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
    STOP = 5  # the launch's stop flag is set


class Outcome(IntEnum):
    """What running clusters returns."""

    FINISHED = 0  # no block is left to start
    STUCK = 1  # the block's warps all wait for something outside it
    GENERAL = 2  # the general build is needed
    ENDED = 3  # by a fault or the stop flag
    DEADLOCK = 4
    PAUSED = 5  # the block can go on, and lets others have a turn


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
    OWN = 6  # shared memory of the block alone, where others of its cluster may not be named


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
    BAD_CLUSTER_BARRIER = 9  # SIZE is a ClusterFault
    NO_BLOCK = 10  # an address of a block that the cluster does not have
    BLOCK_EXITED = 11  # an address of a block that has exited
    WARPGROUP = 12  # a wgmma by less than a whole warpgroup
    MATRIX = 13  # a descriptor of a wgmma leads out of shared memory
    STACK_OVERFLOW = 14  # calls within one another
    BAD_MBARRIER = 20  # SIZE is an MbarrierFault
    BAD_COPY = 22  # a bulk copy; SIZE is of tensor_map_layout.WRONG; ADDRESS may be the tensor map's
    APART = 21  # at a barrier that other lanes of the warp do not come to; ADDRESS: lanes there, the others


class ClusterFault(IntEnum):
    """What is wrong with the use of a cluster's barrier."""

    TWICE = 1  # arriving again without having waited
    NOT_ARRIVED = 2  # waiting without having arrived


class HostCall(IntEnum):
    """What compiled code calls the host for."""

    PRINT = 1
    ASSERT = 2
    TIME = 3


class LAUNCH:
    """One launch; shared by all workers. NEXT and TOTAL count clusters, DONE counts blocks."""

    STOP, NEXT, TOTAL = 0, 8, 16
    GRID_X, GRID_Y, GRID_Z = 24, 32, 40
    PARAMS, PARAM_BYTES = 48, 56
    RANGES, RANGE_COUNT = 64, 72
    CONST, CONST_BYTES = 80, 88
    SHARED_BYTES, LOCAL_BYTES = 96, 104
    FAST, GENERAL = 112, 120
    FAULT = 128
    DONE = 136
    ORDER = 144
    WARPS, THREADS = 160, 168
    WARP_STRIDE = 176
    DYNAMIC_BYTES = 184
    HOST = 192  # pointer to the function that handles host calls
    LOCK = 200  # held while a lane changes 128 bits of memory in one step
    MULTIPROCESSORS = 216
    GLOBALS = 232  # pointer to the addresses of module-level variables
    CLUSTER = 256  # blocks of a cluster
    CLUSTER_X, CLUSTER_Y, CLUSTER_Z = 264, 272, 280  # blocks of a cluster along each axis
    CLUSTERS_X, CLUSTERS_Y, CLUSTERS_Z = 288, 296, 304  # clusters of the grid along each axis
    BLOCK_STRIDE = 312  # bytes from a block of a cluster to the next one
    WATCH = 328  # pointer to memory where a watched launch writes down what it sees
    CHOSEN = 352  # pointer to the numbers of the clusters to run, or null for all of the grid
    EXPLICIT = 320  # whether the launch or the kernel says of how many blocks a cluster is
    SEQUENCE = 360  # pointer to the order (u32) in which to start clusters, or null for that of their numbers
    STARTED = 368  # with a sequence: pointer to a byte for each cluster, 1 once it was started
    BY_NUMBER = 376  # whether what is left of the sequence is to be started by number
    LOWEST = 384  # then: the cluster to look at next; those before it were started
    BEGUN = 392  # clusters started so far
    PREREQUISITES = 416  # whether the launch before is taken to be under way still
    WORKSPACE = 408  # of a cooperative launch: the address of the memory that its blocks meet by, or 0
    PAUSES = 400  # whether a cluster pauses at random moments, so that others take turns with it
    LENIENT = 480  # whether what GPUs usually let pass does not end it
    ZEROS = 488  # pointer to what such a read finds
    SIZE = 512


class BLOCK:
    """One resident block, followed by its warps. The blocks of a cluster lie one behind the other.

    What is said of the cluster is kept in its first block.
    """

    SHARED = 0
    X, Y, Z = 8, 12, 16
    LIVE = 20  # threads that have not left
    DONE = 24  # warps that are done
    RANK = 28  # which block of its cluster it is
    NUMBER = 32
    ACTIVE = 40  # of the cluster: whether it has been started and is not done
    PROGRESS = 48  # counts what loops that may wait for something change, and barriers and ends of warps
    SEEN = 56  # of the cluster: the sum of the counts when the scheduler looked last
    BARRIERS = 64
    FIRST = 320  # pointer to the cluster's first block
    CLUSTER_X, CLUSTER_Y, CLUSTER_Z = 328, 332, 336  # which cluster of the grid it is in
    RANK_X, RANK_Y, RANK_Z = 340, 344, 348  # where in its cluster it is
    ARRIVED = 352  # of the cluster: threads that came to its barrier
    PRESENT = 356  # of the cluster: threads that have not left
    LEFT = 360  # of the cluster: blocks all of whose warps are done
    FLIGHTS = 368  # pointer to the cluster's queue of operations in flight, or null
    CELLS = 376  # of a checked launch: pointer to what is known of its shared memory, or null
    CLOCKS = 384  # of a checked launch: pointer to the clocks of its cluster
    SERIAL = 392  # of a checked launch: the number of its first warp
    # Of a checked launch: when, by whom, in which line another block used its memory.
    USED, USER, USE = 396, 400, 404
    TURNS = 408  # of the cluster: rounds in which a warp may have waited for other clusters, since it last stopped
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
    AWAITED = 112  # address, in the cluster's window, of the mbarrier that it found incomplete last
    AWAITING = 116  # lanes that did, or none
    AWAITED_LINE = 120  # of the PTX, where they did
    AWAITED_PHASE = 124  # the parity of the phase that they wait for
    NAMED = 128  # by lane: which lanes it waits for
    RESULTS = 256  # by barrier: what the votes of the last one that its lanes waited at came to
    LINES = 320  # by barrier: of the PTX, where they wait at it
    COPIES = 384  # by lane: groups of asynchronous copies closed so far
    BULKS = 512  # by lane: groups of bulk copies closed so far
    CAME = 640  # lanes that arrived at the cluster's barrier in the phase under way
    PASSED = 644  # lanes that arrived in a phase that is complete, and have yet to wait for it
    HELD = 648  # lanes that wait for the phase under way
    HELD_LINE = 652  # of the PTX, where they do
    GATE = 656  # where it stopped with lanes apart: lanes at a barrier that all of them must come to
    GATE_LINE = 660  # of the PTX, where they are
    DEPENDENT = 664  # lanes that wait for the end of the launch before
    PRODUCTS = 704  # what it knows of its wgmma in flight: 64 bytes, as in ``wgmma_queue.py``
    HEADER = 768  # then come the masks of waiting lanes by block


class QUEUE:
    """The operations in flight of a cluster, the oldest first: a list of slots, and those that are free."""

    FIRST, LAST, FREE = 0, 8, 16  # pointers to slots
    COUNT = 24  # in flight
    MADE = 32  # slots that have been used so far
    CAPACITY = 40
    SLOTS = 64


class FLIGHT:
    """One operation in flight."""

    NEXT, PREVIOUS = 0, 8
    KIND, CLASS = 16, 20
    LINE = 24  # of the PTX
    LANES = 28  # that issued it, less those whose part is done
    WARP, BLOCK = 32, 40  # that issued it: pointers
    GROUPS = 64  # by lane: the number of the group that it belongs to
    DATA = 192  # what its kind needs to know
    SIZE = 1024


class Flight(IntEnum):
    """Kinds of operations that complete some time after they are issued."""

    COPY = 1  # cp.async
    ARRIVE = 2  # at an mbarrier, once earlier copies are there
    BULK = 3
    TENSOR = 4
    REMOTE = 5  # stores and reductions in another block's shared memory


class FlightClass(IntEnum):
    """What a thread waits with for them."""

    MBARRIER = 0
    COPIES = 1  # cp.async.wait_group
    BULKS = 2  # cp.async.bulk.wait_group


class Mbarrier(IntEnum):
    """What may be done with an mbarrier."""

    INIT = 0
    INVALIDATE = 1
    ARRIVE = 2  # expecting some bytes first, if any
    DROP = 3  # arrive, now and in all phases to come
    EXPECT = 4
    COMPLETE = 5
    TEST_STATE = 6
    TEST_PARITY = 7
    ARRIVE_INCOMPLETE = 8
    DROP_INCOMPLETE = 9
    INCREMENT = 10  # one more arrival is pending in this phase
    INIT_V1 = 11  # in .layout::v1
    IS_LAYOUT = 12


class MbarrierFault(IntEnum):
    """What is wrong with the use of one."""

    NOT_INITIALISED = 1
    COUNT = 2
    TOO_MANY = 3
    BYTES = 4
    COMPLETES = 5


class FAULT:
    """What went wrong first."""

    KIND, LINE = 0, 4
    X, Y, Z = 8, 12, 16
    THREAD = 20
    ADDRESS = 24
    SIZE, SPACE, WRITE = 32, 36, 40
    BYTES = 64


class GENERIC:
    """Where the windows of generic addresses begin: where no array of a process can lie."""

    SHARED, LOCAL, CONST, PARAM = 1 << 56, 1 << 57, 1 << 58, 1 << 59


WINDOWS = {"shared": GENERIC.SHARED, "local": GENERIC.LOCAL, "const": GENERIC.CONST, "param": GENERIC.PARAM}
WINDOW = 1 << 32  # bytes of each
RANK_SHIFT = 24  # shared addresses of a cluster's blocks have the block's rank + 1 from this bit on
OFFSETS = (1 << RANK_SHIFT) - 1  # and below it the offset in the block's memory
