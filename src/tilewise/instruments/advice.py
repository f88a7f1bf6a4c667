"""The texts of findings: what is wrong, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FAULTS", "FINDING_TEXTS", "MBARRIER", "STORE", "FindingText"]


class FindingText(NamedTuple):
    """The text of a kind of finding: its tool, its name, what the two accesses were, and the advice."""

    tool: str
    kind: str
    what: str
    before: str  # what the earlier access was
    now: str
    advice: str
    level: str = "error"


_RACE = (
    "put a barrier between the two (__syncthreads, or __syncwarp within a warp), or make both atomic, or order "
    "them by a flag: a fence before it is set, and one after it was seen; if one lane sets or awaits it for its "
    "warp, with __syncwarp between it and the others"
)
_COPY = "asynchronous copy"
_WAIT = (
    "wait for the copy before reading: cp.async.wait_group (then a barrier, for other threads' copies), or the "
    "phase of the mbarrier that it is told to"
)
_FREE = (
    "wait with cp.async.bulk.wait_group.read, or wgmma.wait_group, before the memory is used again; if other "
    "threads use it, let them meet at a barrier behind that"
)
STORE = (
    "wait first with cp.async.bulk.wait_group, in the thread that issued the bulk store: with .read it waits only "
    "until the source has been read; other threads have to meet that thread at a barrier behind it"
)
MBARRIER = (
    "put a barrier (of the cluster, for other blocks' mbarriers) between the initialisation and the first use"
)

# By the name of its kind in ``check_layout.py``, and of two more kinds.
FINDING_TEXTS = {
    "WRITE_AFTER_WRITE": FindingText(
        "racecheck", "write-write", "two threads write", "write", "write", _RACE
    ),
    "EQUAL_WRITES": FindingText(
        *(
            "racecheck",
            "equal-writes",
            "two writes race, and only their equal values hide it",
            "write",
            "write",
        ),
        "check again with values that differ; if they are always the same, one thread may write for all",
        level="info",
    ),
    "READ_AFTER_WRITE": FindingText(
        *("racecheck", "read-write", "a thread reads what another writes", "write", "read", _RACE)
    ),
    "WRITE_AFTER_READ": FindingText(
        *("racecheck", "read-write", "a thread overwrites what another reads", "read", "write", _RACE)
    ),
    "UNSET": FindingText(
        *("initcheck", "unset", "a thread reads uninitialised memory", "", "read"),
        "write it first: shared memory and new device arrays hold anything",
    ),
    "EARLY_READ": FindingText(
        *(
            "racecheck",
            "early-read",
            "a thread reads what the launch before may not have written yet",
            "",
            "read",
        ),
        "put griddepcontrol.wait (cudaGridDependencySynchronize) before the first access to what that launch writes",
    ),
    "READ_IN_FLIGHT": FindingText(
        *("asyncheck", "read-in-flight", "a thread reads where a copy in flight will write", _COPY),
        *("read", _WAIT),
    ),
    "WRITE_IN_FLIGHT": FindingText(
        *("asyncheck", "write-in-flight", "a thread writes where a copy in flight will write", _COPY),
        *("write", "wait for the copy first, or write elsewhere"),
    ),
    "SOURCE_IN_FLIGHT": FindingText(
        *("asyncheck", "source-in-flight", "a thread overwrites what is still being read"),
        *("asynchronous read", "write", _FREE),
    ),
    "SUM_IN_FLIGHT": FindingText(
        *("asyncheck", "sum-in-flight", "a sum of wgmma is read before it was waited for", "wgmma", "read"),
        "put wgmma.wait_group before the sums are read",
    ),
    "REGISTER_IN_FLIGHT": FindingText(
        *("asyncheck", "register-in-flight", "a register is written that a wgmma in flight uses", "wgmma"),
        *("write", "put wgmma.wait_group before the register is used again"),
    ),
    "REGISTER_UNFENCED": FindingText(
        *("asyncheck", "unfenced-register", "a wgmma uses registers, and no wgmma.fence orders what was"),
        *(
            "write",
            "wgmma",
            "put wgmma.fence before the first wgmma, and between writes to its registers and it",
        ),
    ),
    "UNFENCED": FindingText(
        *(
            "asyncheck",
            "unfenced",
            "the asynchronous proxy reads what a thread wrote, without a fence",
            "write",
        ),
        "asynchronous read",
        "put fence.proxy.async between the writes and the copy or wgmma, in the writing threads",
    ),
    "MBARRIER_UNPUBLISHED": FindingText(
        *("asyncheck", "unfenced", "a bulk copy tells an mbarrier that need not be visible to it", "write"),
        _COPY,
        "put fence.mbarrier_init.release.cluster, or fence.proxy.async, behind mbarrier.init",
    ),
    "COPY_AFTER_ACCESS": FindingText(
        *("asyncheck", "copy-too-early", "a copy is issued to memory that others may still use", "access"),
        *(_COPY, "have everybody who uses the memory arrive at a barrier before it is filled again"),
    ),
    "EARLY_EXIT": FindingText(
        *("racecheck", "early-exit", "a block ends while others may still use its shared memory", "access"),
        "exit",
        "keep every block until no other uses its memory: barrier.cluster (cluster.sync()) before it ends",
    ),
    "BAD_MASK": FindingText(
        *("synccheck", "bad-mask", "a lane runs with others of its warp, and its mask does not name it", ""),
        *(
            "call",
            "name all lanes that come to it, the caller among them: __ballot_sync before a branch tells",
        ),
    ),
    "SHUFFLE_INACTIVE_LANE": FindingText(
        *("synccheck", "shuffle-inactive-lane", "a thread uses what a shuffle did not define", "shuffle"),
        *(
            "use",
            "have every lane that is read run the shuffle, and name it in the mask; or throw the value away",
        ),
        level="warning",
    ),
}

# What ended the launch: by its name in ``layout.FaultKind``, its tool, its kind, and what to do.
FAULTS = {
    "OUT_OF_BOUNDS": ("memcheck", "out-of-bounds", "keep the index within the array, or test it first"),
    "MISALIGNED": ("memcheck", "misaligned", "access 2, 4, 8 or 16 bytes at a multiple of so many"),
    "READ_ONLY": ("memcheck", "read-only", "write to memory that can be written"),
    "NO_BLOCK": ("memcheck", "no-such-block", "name a block that the cluster has"),
    "BLOCK_EXITED": (
        *("memcheck", "block-gone"),
        "keep every block until no other uses its shared memory: barrier.cluster (cluster.sync()) before it ends",
    ),
    "BAD_BARRIER": ("synccheck", "bad-barrier", "give all who come to a barrier the same number and count"),
    "APART": (
        *("synccheck", "divergent-barrier"),
        "make all threads of a warp reach the barrier, or none: take it out of the branch",
    ),
    "BAD_CLUSTER_BARRIER": (
        *("synccheck", "bad-barrier"),
        "let each thread arrive at the cluster's barrier and wait for it by turns",
    ),
    "BAD_MBARRIER": (
        *("synccheck", "bad-mbarrier"),
        "initialise an mbarrier, before its first use, with as many arrivals as come in a phase",
    ),
    "WARPGROUP": ("synccheck", "divergent-wgmma", "let all four warps of a warpgroup come to it together"),
    "MATRIX": ("memcheck", "out-of-bounds", "see that the descriptor's matrix lies in shared memory"),
    "BAD_COPY": ("memcheck", "bad-copy", "see to sizes, alignments and the tensor map"),
    "FREED": ("memcheck", "use-after-free", "keep the device array until the last launch that uses it"),
}
