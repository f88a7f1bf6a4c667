"""What threads synchronise by: each address by itself, however many there are."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw

FLAGS = 64
SOURCE = """extern "C" __global__ void passed(int *flags, int *out, int raised, int looked_at, int shared)
{
    __shared__ int mine[64], value;
    mine[threadIdx.x] = 0;
    __syncthreads();
    int at = threadIdx.x ? raised : looked_at, seen;
    unsigned here = __cvta_generic_to_shared(mine + at);
    if (threadIdx.x == 32) {
        value = raised;
        if (shared) asm volatile("red.release.cta.shared.add.s32 [%0], 1;" ::"r"(here) : "memory");
        else asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(flags + at) : "memory");
    }
    if (threadIdx.x == 0) {
        if (shared) asm volatile("atom.acquire.cta.shared.add.s32 %0, [%1], 1;" : "=r"(seen) : "r"(here) : "memory");
        else asm volatile("atom.acquire.gpu.global.add.s32 %0, [%1], 1;" : "=r"(seen) : "l"(flags + at) : "memory");
        out[0] = value + seen;
    }
}
"""


@pytest.mark.parametrize("shared", [0, 1])
def test_who_looks_at_another_flag_than_the_one_that_was_raised_has_not_waited(shared: int) -> None:
    """Whichever of many flags these are: no two of them are taken for one."""
    kernel = tw.Kernel(SOURCE, "passed", "sm_90")
    for looked_at in range(FLAGS):
        given = [np.zeros(FLAGS, np.int32), np.zeros(1, np.int32), 5, looked_at, shared]
        found = {item.kind for item in kernel.check(1, FLAGS, given, order="eager")}
        assert found == (set() if looked_at == 5 else {"read-write"}), looked_at


ANEW = """extern "C" __global__ void anew(int *out, int written)
{
    __shared__ int flags[16][64], value;
    int seen = 0;
    for (int i = threadIdx.x; i < 16 * 64; i += blockDim.x) flags[i / 64][i % 64] = 0;
    __syncthreads();
    unsigned here = __cvta_generic_to_shared(flags[blockIdx.x]);
    if (threadIdx.x == 32) {
        value = written;
        asm volatile("red.release.cta.shared.add.s32 [%0], 1;" ::"r"(here + 4 * 5) : "memory");
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < 64; i++) {
            int one = 0;
            if (i != 5 || blockIdx.x + 1 < gridDim.x)
                asm volatile("atom.acquire.cta.shared.add.s32 %0, [%1], 1;" : "=r"(one) : "r"(here + 4 * i) : "memory");
            seen += one;
        }
        out[blockIdx.x] = value + seen;
    }
}
"""


@pytest.mark.parametrize("blocks", [1, 2, 16])
def test_a_block_s_flags_take_no_room_from_the_block_after_it(blocks: int) -> None:
    """Each block has flags of its own, and the last one does not look at the one that was raised."""
    kernel = tw.Kernel(ANEW, "anew", "sm_90")
    found = kernel.check(blocks, 64, [np.zeros(blocks, np.int32), 7], order="eager")
    assert [(item.kind, item.count) for item in found] == [("read-write", 1)]


SCOPED = """extern "C" __global__ void passed(int *flag, int *value, int *out)
{
    int seen = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *value = 7;
        asm volatile("red.release.SCOPE.global.add.s32 [%0], 1;" ::"l"(flag) : "memory");
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 32) {
        while (!seen) asm volatile("atom.acquire.SCOPE.global.add.s32 %0, [%1], 0;" : "=r"(seen) : "l"(flag) : "memory");
        out[0] = *value; // the reader
    }
}
"""


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("scope", ["cta", "gpu", "sys"])
def test_a_flag_of_the_block_s_scope_orders_threads_of_one_block(scope: str, blocks: int) -> None:
    """What was written before it, another block reads without having waited."""
    kernel = tw.Kernel(SCOPED.replace("SCOPE", scope), "passed", "sm_90")
    for order in ("eager", "late", 3):
        found = kernel.check(blocks, 64, [np.zeros(1, np.int32) for _ in range(3)], order=order)
        early = [item for item in found if item.now and "// the reader" in item.now.text]
        assert [item.kind for item in early] == ["read-write"] * (scope == "cta" and blocks > 1), order
        assert bool(found) == bool(early)


HANDED_ON = """extern "C" __global__ void passed(int *flags, int *value, int *out)
{
    volatile int *own = flags, *far = flags + 1;
    if (blockIdx.x == 0 && threadIdx.x == WRITER) {
        *value = 7; // the writer
        WRITERS_FENCE;
        *own = 1;
    }
    if (blockIdx.x == 0 && threadIdx.x == 96 - WRITER) {
        while (!*own) {}
        FENCE;
        *far = 1;
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (!*far) {}
        __threadfence();
        out[0] = *value; // the reader
    }
}
"""


@pytest.mark.parametrize("writer", [32, 64])
@pytest.mark.parametrize("writers_fence", ["__threadfence_block()", "__threadfence()"])
@pytest.mark.parametrize("fence", ["", "__threadfence_block()", "__threadfence()"])
def test_a_warp_hands_on_what_its_own_fence_covers(writer: int, writers_fence: str, fence: str) -> None:
    """What a neighbour's fence covered, of whichever scope, its flag does not release; nor does it to another block
    what a fence of its block covered."""
    words = {"WRITERS_FENCE": writers_fence, "WRITER": str(writer), "FENCE": fence}
    text = HANDED_ON
    for name, word in words.items():
        text = text.replace(name, word)
    kernel = tw.Kernel(text, "passed", "sm_90")
    for order in ("eager", "late", 3):
        given = [np.zeros(2, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
        found = {item.kind for item in kernel.check(2, 128, given, order=order)}
        assert found == (set() if fence == "__threadfence()" else {"read-write"}), order


MET = """extern "C" __global__ void met(int *flag, int *value, int *out, int writer)
{
    int warp = threadIdx.x / 32;
    if (blockIdx.x == writer && threadIdx.x == 32) {
        *value = 7; // the writer
        FENCE;
        *(volatile int *)flag = 1;
    }
    if (blockIdx.x || warp == 1) return;
    if (threadIdx.x == 0) while (!*(volatile int *)flag) {}
    asm volatile("bar.sync 1, 64;" ::: "memory");
    if (threadIdx.x == 64) out[0] = *value; // the reader
}
"""


@pytest.mark.parametrize("writer", [0, 1])
@pytest.mark.parametrize("fence", ["", "__threadfence_block()", "__threadfence()"])
def test_who_meets_one_that_has_seen_a_flag_has_seen_it_too(writer: int, fence: str) -> None:
    """A barrier does for the fence that by the letter would follow; the writer's own must reach as far as the reader."""
    kernel = tw.Kernel(MET.replace("FENCE", fence), "met", "sm_90")
    ordered = fence == "__threadfence()" or (bool(fence) and writer == 0)
    for order in ("eager", "late", 3):
        given = [np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32), writer]
        found = {item.kind for item in kernel.check(2, 96, given, order=order)}
        assert found == (set() if ordered else {"read-write"}), order


SET = """extern "C" __global__ void set(volatile int *flag, int *value, int *out, int setter)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *value = 7; // the writer
        __threadfence();
    }
    SYNC;
    if (blockIdx.x == 0 && threadIdx.x == setter) *flag = 1;
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (!*flag) {}
        __threadfence();
        out[0] = *value; // the reader
    }
}
"""


@pytest.mark.parametrize("setter", [0, 1, 32])
@pytest.mark.parametrize("sync", ["", "__syncwarp()", "__syncthreads()"])
def test_a_flag_releases_what_those_fenced_whom_its_setter_has_met(sync: str, setter: int) -> None:
    """One lane fences, and another one sets the flag: of its warp, or of its block."""
    kernel, met = (
        tw.Kernel(SET.replace("SYNC", sync), "set", "sm_90"),
        {"": 1, "__syncwarp()": 32, "__syncthreads()": 64},
    )
    for order in ("eager", "late", 3):
        given = [np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32), setter]
        found = {item.kind for item in kernel.check(2, 64, given, order=order)}
        assert found == (set() if setter < met[sync] else {"read-write"}), order


RELAXED = """extern "C" __global__ void met(int *value, int *out)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *value = 7; // the writer
        FENCE;
    }
    asm volatile("barrier.cluster.arrive.relaxed;\\n\\tbarrier.cluster.wait;" ::: "memory");
    if (blockIdx.x == READER && threadIdx.x == 32) out[0] = *value; // the reader
}
"""


@pytest.mark.parametrize(
    ("fence", "reader"),
    [
        ("", 0),
        ("", 1),
        ("__threadfence_block()", 1),
        ('asm volatile("fence.acq_rel.cluster;" ::: "memory")', 1),
    ],
)
def test_who_arrives_relaxed_releases_what_a_fence_of_the_clusters_scope_covered(
    fence: str, reader: int
) -> None:
    kernel = tw.Kernel(RELAXED.replace("FENCE", fence).replace("READER", str(reader)), "met", "sm_90")
    for order in ("eager", "late", 3):
        given = [np.zeros(1, np.int32), np.zeros(1, np.int32)]
        found = {item.kind for item in kernel.check(2, 64, given, cluster=2, order=order)}
        assert found == (set() if "cluster" in fence else {"read-write"}), order


MANY = """extern "C" __global__ void many(int *data, int *flags, int *out, int other)
{
    int t = threadIdx.x;
    if (blockIdx.x == 0) data[t] = t, __threadfence(), atomicExch(flags + t, 1);
    else {
        while (atomicAdd(flags + t, 0) == 0) {}
        __threadfence(), out[t] = data[t == 1000 ? other : t];
    }
}
"""


@pytest.mark.parametrize(("other", "kinds"), [(1000, set()), (0, {"read-write"})])
def test_each_of_many_flags_orders_what_lies_before_it(other: int, kinds: set[str]) -> None:
    """A thousand are remembered, each by itself: who reads behind another's flag reads too early."""
    kernel, threads = tw.Kernel(MANY, "many", "sm_80"), 1024
    data, flags, out = (np.zeros(threads, np.int32) for _ in range(3))
    assert {item.kind for item in kernel.check(2, threads, [data, flags, out, other], order="eager")} == kinds
    assert not kinds or out[1000] == other
