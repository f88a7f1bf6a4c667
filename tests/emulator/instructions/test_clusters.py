"""Clusters of blocks: who is where in one, its barrier, and the shared memory that its blocks share."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tests.harness.many import refused
from tilewise.errors import Deadlock, KernelFault, LaunchError, PtxError

Array = npt.NDArray[Any]
Cluster = tuple[int, int, int]
Order = str | int

RANDOM = np.random.default_rng()
ORDERS: list[Order] = ["eager", "late", 7, 2**20 + 3, 2**39 + 11]
CLUSTERS: list[Cluster] = [(1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 2), (2, 2, 2), (4, 2, 1), (1, 1, 4)]
GRID = (8, 4, 4)

SOURCE = """
#define RANK __clusterRelativeBlockRank()
#define SIZE __clusterSizeInBlocks()
#define BLOCK (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z))
#define SYNC { __cluster_barrier_arrive(); __cluster_barrier_wait(); }

extern "C" __global__ void ring(int *x, int before, int after)
{
    __shared__ int s[64];
    s[threadIdx.x] = BLOCK * 64 + threadIdx.x;
    if (before)
        SYNC
    int *next = (int *)__cluster_map_shared_rank(s, (RANK + 1) % SIZE);
    x[BLOCK * 64 + threadIdx.x] = next[63 - threadIdx.x];
    if (after)
        SYNC
}

extern "C" __global__ void histogram(const int *x, int *counts, int n, int bins)
{
    extern __shared__ int s[];  // the cluster's bins, an equal part in each of its blocks
    int part = bins / SIZE;
    for (int i = threadIdx.x; i < part; i += blockDim.x)
        s[i] = 0;
    SYNC
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd((int *)__cluster_map_shared_rank(s, x[i] / part) + x[i] % part, 1);
    SYNC
    for (int i = threadIdx.x; i < part; i += blockDim.x)
        atomicAdd(&counts[RANK * part + i], s[i]);
}

extern "C" __global__ void sums(const float *x, float *y)
{
    __shared__ float parts[8];
    int i = BLOCK * blockDim.x + threadIdx.x;
    float total = x[i];
    for (int far = 16; far; far /= 2)
        total += __shfl_xor_sync(~0u, total, far);
    if (threadIdx.x == 0)
        ((float *)__cluster_map_shared_rank(parts, 0))[RANK] = total;
    SYNC
    if (RANK == 0 && threadIdx.x == 0) {
        float sum = 0;
        for (int j = 0; j < SIZE; j++)
            sum += parts[j];
        y[BLOCK] = sum;
    }
}

extern "C" __global__ void relay(int *x, volatile int *flag)
{
    __shared__ volatile int turn;
    turn = 0;
    SYNC
    if (threadIdx.x == 0) {
        while (__clusterIdx().x == 0 && RANK == 0 && *flag != gridDim.x / SIZE - 1)
            ;
        while (RANK && !turn)
            ;
        x[blockIdx.x] = RANK ? turn : 1;
        *(volatile int *)__cluster_map_shared_rank((void *)&turn, (RANK + 1) % SIZE) = RANK + 2;
        if (__clusterIdx().x && RANK == SIZE - 1)
            atomicAdd((int *)flag, 1);
    }
    SYNC
}

extern "C" __global__ void who(int *first, int *count)
{
    if (threadIdx.x % 32 == 0)
        first[atomicAdd(count, 1)] = RANK * (blockDim.x / 32) + threadIdx.x / 32;
}
"""


def kernel(name: str, **chosen: Any) -> tw.Kernel:
    return tw.Kernel(SOURCE, name, arch="sm_90", **chosen)


def emulator(order: Order = "eager", threads: int = 1) -> Any:
    return tw.device("emulator", order=order, threads=threads)


def places(cluster: Cluster, grid: Cluster = GRID) -> list[dict[str, Any]]:
    """For each block, in the order of the grid: what the manual says of it."""
    found = []
    for z, y, x in np.ndindex(*grid[::-1]):
        at, (sx, sy, _) = (x, y, z), cluster
        inside = tuple(a % size for a, size in zip(at, cluster, strict=True))
        number = tuple(a // size for a, size in zip(at, cluster, strict=True))
        rank = inside[0] + sx * (inside[1] + sy * inside[2])
        found.append({"at": at, "cluster": number, "inside": inside, "rank": rank})
    return found


# -- special registers ------------------------------------------------------------------------------------
NAMES = [f"%{name}.{axis}" for name in ("ctaid", "clusterid", "nclusterid") for axis in "xyzw"]
NAMES += [f"%cluster_{name}.{axis}" for name in ("ctaid", "nctaid") for axis in "xyzw"]
NAMES += ["%cluster_ctarank", "%cluster_nctarank"]


def registers(directives: str = "") -> tw.Kernel:
    """A kernel whose blocks write what their special registers hold."""
    store = "st.global.u32 [%at+{}], %r0;"
    lines = [f"mov.u32 %r0, {name}; {store.format(4 * i)}" for i, name in enumerate(NAMES)]
    return tw.Kernel.from_ptx(
        f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {directives} {{
.reg .b32 %r<4>; .reg .b64 %at; .reg .pred %p;
mov.u32 %r0, %ctaid.z; mov.u32 %r1, %nctaid.y; mov.u32 %r2, %ctaid.y;
mad.lo.u32 %r0, %r0, %r1, %r2;
mov.u32 %r1, %nctaid.x; mov.u32 %r2, %ctaid.x;
mad.lo.u32 %r0, %r0, %r1, %r2;
ld.param.u64 %at, [out];
mad.wide.u32 %at, %r0, {4 * len(NAMES) + 4}, %at;
{"".join(lines)}
mov.pred %p, %is_explicit_cluster;
selp.u32 %r0, 1, 0, %p; {store.format(4 * len(NAMES))}
ret;
}}""",
        "k",
    )


def told(made: tw.Kernel, grid: Cluster, cluster: Cluster | None, blocks: int) -> Array:
    found = np.full((blocks, len(NAMES) + 1), 77, np.uint32)
    made(grid, 32, [found], cluster=cluster, device=emulator())
    return found


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_special_registers_say_where_a_block_is(cluster: Cluster) -> None:
    counts = tuple(size // part for size, part in zip(GRID, cluster, strict=True))
    # NOTE: the fourth elements are what a vector of three is filled up with: 0 for a place, 1 for a count.
    expected = [
        [
            *(*item["at"], 0, *item["cluster"], 0, *counts, 1),
            *(*item["inside"], 0, *cluster, 1),
            *(item["rank"], int(np.prod(cluster)), 1),
        ]
        for item in places(cluster)
    ]
    assert np.array_equal(told(registers(), GRID, cluster, 128), np.array(expected))


def test_a_launch_without_a_cluster_is_one_of_single_blocks() -> None:
    plain, alone = (told(registers(), GRID, cluster, 128) for cluster in (None, (1, 1, 1)))
    assert np.array_equal(plain[:, :-1], alone[:, :-1])
    assert not plain[:, -1].any() and alone[:, -1].all()


# -- directives -------------------------------------------------------------------------------------------
def test_directives_decide_the_cluster() -> None:
    at = NAMES.index("%cluster_nctaid.x")
    made = registers(".reqnctapercluster 2, 2")
    for asked in (None, (2, 2, 1)):
        assert (told(made, GRID, asked, 128)[:, at : at + 3] == (2, 2, 1)).all()
    assert told(made, GRID, None, 128)[:, -1].all()
    with pytest.raises(LaunchError, match=r"cluster must be \(2, 2, 1\), which kernel k is made for"):
        told(made, GRID, (4, 1, 1), 128)

    made = registers(".explicitcluster .maxclusterrank 4")
    with pytest.raises(LaunchError, match="cluster must be given"):
        told(made, GRID, None, 128)
    with pytest.raises(LaunchError, match="cluster must have at most 4 blocks for kernel k"):
        told(made, GRID, (4, 2, 1), 128)
    assert (told(made, GRID, (4, 1, 1), 128)[:, at : at + 3] == (4, 1, 1)).all()

    for cluster in ((2, 2, 1), (1, 1, 4), (4, 2, 1)):  # and a launch counts clusters, not blocks
        directives = f".reqntid 32 .reqnctapercluster {', '.join(map(str, cluster))} .blocksareclusters"
        x, y, z = (blocks // each for blocks, each in zip(GRID, cluster, strict=True))
        counted = told(registers(directives), (x, y, z), None, 128)
        assert np.array_equal(counted, told(registers(), GRID, cluster, 128))


def test_cuda_says_it_too() -> None:
    source = (
        'extern "C" __global__ void __cluster_dims__(4, 1, 1) k(int *x) { x[blockIdx.x] = __clusterIdx().x; }'
    )
    found = np.zeros(12, np.int32)
    tw.Kernel(source, "k", arch="sm_90")(12, 32, [found], device=emulator())
    assert np.array_equal(found, np.arange(12) // 4)


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ((3, 1, 1), r"grid.x must be a multiple of cluster.x = 3, not 8"),
        ((1, 1, 8), r"grid.z must be a multiple of cluster.z = 8, not 4"),
        ((8, 4, 1), r"cluster must have at most 16 blocks"),
    ],
)
def test_clusters_that_no_launch_can_have(cluster: Cluster, said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        told(registers(), GRID, cluster, 128)


def test_not_every_architecture_has_clusters() -> None:
    made = tw.Kernel('extern "C" __global__ void k() {}', "k", arch="sm_80")
    with pytest.raises(LaunchError, match=r"cluster must be None on sm_80"):
        made(4, 32, [], cluster=2, device=emulator())
    made = tw.Kernel('extern "C" __global__ void k() {}', "k", arch="sm_120")
    made(16, 32, [], cluster=8, device=emulator())
    with pytest.raises(LaunchError, match=r"cluster must have at most 8 blocks on sm_120"):
        made(16, 32, [], cluster=16, device=emulator())


# -- distributed shared memory ------------------------------------------------------------------------------
def shifted(cluster: Cluster, device: Any, before: int = 1, after: int = 1) -> tuple[Array, Array]:
    """What each block finds in the next one of its cluster, and what it should find."""
    found = np.zeros((128, 64), np.int32)
    kernel("ring")(GRID, 64, [found, before, after], cluster=cluster, device=device)
    blocks = places(cluster)
    number = {(item["cluster"], item["rank"]): i for i, item in enumerate(blocks)}
    size = int(np.prod(cluster))
    source = [number[item["cluster"], (item["rank"] + 1) % size] for item in blocks]
    return found, np.array(source)[:, None] * 64 + np.arange(64)[::-1]


@pytest.mark.parametrize("cluster", [*CLUSTERS, (4, 2, 2)])
def test_each_block_reads_the_next_ones_memory(cluster: Cluster) -> None:
    for order in ORDERS:
        for threads in (1, 2):
            found, expected = shifted(cluster, emulator(order, threads))
            assert np.array_equal(found, expected)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_a_histogram_spread_over_a_cluster(size: int) -> None:
    values = RANDOM.integers(0, 64, 5_000).astype(np.int32)
    for order in ORDERS:
        counts = np.zeros(64, np.int32)
        arguments = [values, counts, len(values), 64]
        kernel("histogram")(16, 96, arguments, shared=4 * 64 // size, cluster=size, device=emulator(order, 2))
        assert np.array_equal(counts, np.bincount(values, minlength=64))


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_sum_over_a_cluster(cluster: Cluster) -> None:
    values = RANDOM.integers(-1000, 1000, (128, 32)).astype(np.float32)
    blocks = places(cluster)
    for order in ORDERS:
        found = np.zeros(128, np.float32)
        kernel("sums")(GRID, 32, [values, found], cluster=cluster, device=emulator(order))
        for number in {item["cluster"] for item in blocks}:
            members = [i for i, item in enumerate(blocks) if item["cluster"] == number]
            assert found[members[0]] == values[members].sum()
            assert not found[members[1:]].any()


def test_a_missing_barrier_shows_in_some_order() -> None:
    wrong = {order: shifted((4, 1, 1), emulator(order), before=0) for order in ORDERS}
    assert not all(np.array_equal(*pair) for pair in wrong.values())
    for order, (found, _) in wrong.items():
        again, _ = shifted((4, 1, 1), emulator(order), before=0)
        assert np.array_equal(found, again)


@pytest.mark.parametrize("order", ORDERS)
def test_the_memory_of_a_block_goes_with_it(order: Order) -> None:
    with pytest.raises(KernelFault) as raised:
        shifted((2, 1, 1), emulator(order), after=0)
    said = str(raised.value)
    assert re.search(
        r"read of 4 bytes at shared address 0x\w+ of block \(\d, \d, \d\): this block of the cluster has",
        said,
    )
    assert re.search(r"block \(\d, \d, \d\) \(rank [01] in cluster \(\d, \d, \d\)\), thread", said)


def test_a_fault_names_the_block_whose_memory_it_is() -> None:
    text = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u32 rank) {
.reg .b32 %rank, %a, %v; .shared .align 4 .b8 word[8];
ld.param.u32 %rank, [rank]; mapa.shared::cluster.u32 %a, word, %rank;
ld.shared::cluster.u32 %v, [%a+2];
ret; }"""
    made = tw.Kernel.from_ptx(text, "k")
    for place in places((2, 2, 2), (2, 2, 2)):
        with pytest.raises(KernelFault) as raised:
            made((2, 2, 2), 1, [np.uint32(place["rank"])], cluster=(2, 2, 2), device=emulator())
        assert f"misaligned read of 4 bytes at shared address 0x2 of block {place['at']}" in str(raised.value)


@pytest.mark.parametrize("order", ORDERS)
def test_loops_wait_for_blocks_and_for_clusters(order: Order) -> None:
    """Each block waits for the one before it, and the first cluster for all others, on one thread."""
    found = np.zeros(12, np.int32)
    kernel("relay")(12, 64, [found, np.zeros(1, np.int32)], cluster=4, device=emulator(order), timeout=20)
    assert np.array_equal(found, np.tile([1, 2, 3, 4], 3))


def test_orders_go_over_all_warps_of_a_cluster() -> None:
    def came(order: Order) -> Array:
        first, count = np.full((2, 12), -1, np.int32), np.zeros(1, np.int32)
        kernel("who")(8, 96, [first, count], cluster=4, device=emulator(order))
        assert np.array_equal(np.sort(first), np.tile(np.arange(12), (2, 1)))
        return first

    assert np.array_equal(came("eager"), np.tile(np.arange(12), (2, 1)))
    assert np.array_equal(came("late"), np.tile(np.arange(12)[::-1], (2, 1)))
    seeded = [came(seed) for seed in range(8)]
    mixed = [
        np.any(np.diff(row // 3) < 0) and np.any(np.diff(row // 3) > 0) for found in seeded for row in found
    ]
    assert any(mixed)
    assert all(np.array_equal(came(seed), found) for seed, found in enumerate(seeded))


# -- the barrier --------------------------------------------------------------------------------------------
def barrier(body: str, grid: int = 4, cluster: int = 2, block: int = 64, order: Order = "eager") -> Array:
    """What a kernel of instructions leaves in an array of an integer for each thread."""
    text = f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {{
.reg .b32 %rank, %lane, %t, %v, %a; .reg .b64 %at, %g; .reg .pred %p, %q;
.shared .align 4 .u32 word;
ld.param.u64 %at, [out];
mov.u32 %rank, %cluster_ctarank; mov.u32 %lane, %laneid; mov.u32 %t, %tid.x;
mov.u32 %v, %ctaid.x; mov.u32 %a, %ntid.x; mad.lo.u32 %v, %v, %a, %t;
mad.wide.u32 %at, %v, 4, %at;
setp.eq.u32 %p, %t, 0;
@%p st.shared.u32 [word], 0;
bar.sync 0;
{body}
END: ret;
}}"""
    out = np.zeros(grid * block, np.int32)
    made = tw.Kernel.from_ptx(text, "k")
    made(grid, block, [out], cluster=cluster, device=emulator(order))
    return out


SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
COUNT = "mapa.shared::cluster.u32 %a, word, 0; atom.shared::cluster.add.u32 %v, [%a], 1;"


@pytest.mark.parametrize("order", ORDERS)
def test_a_thread_that_has_left_holds_nobody_up(order: Order) -> None:
    """Odd lanes leave at once, others once they have arrived; those that stay count, and all see the sum."""
    found = barrier(
        f"""
{SYNC}
and.b32 %a, %lane, 1; setp.eq.u32 %p, %a, 1; @%p bra END;
barrier.cluster.arrive;
setp.eq.u32 %p, %lane, 2; @%p bra END;
{COUNT}
barrier.cluster.wait; barrier.cluster.arrive; barrier.cluster.wait;
setp.eq.u32 %p, %rank, 0; mov.u32 %v, 0;
@%p ld.shared.u32 %v, [word];
st.global.u32 [%at], %v;
""",
        order=order,
    ).reshape(2, 2, 2, 32)
    stay = [lane for lane in range(32) if lane % 2 == 0 and lane != 2]
    expected = np.zeros((2, 2, 2, 32), np.int32)
    expected[:, 0][..., stay] = 4 * len(stay)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_arrive_and_wait_apart(order: Order) -> None:
    """Each half of a warp arrives, works and waits in a branch of its own; then all read what all counted."""
    found = barrier(
        f"""
{SYNC}
setp.lt.u32 %p, %lane, 13;
@%p bra LOW;
{COUNT}
barrier.cluster.arrive; barrier.cluster.wait;
bra.uni JOIN;
LOW:
{COUNT}
barrier.cluster.arrive.relaxed;
mov.u32 %v, 5;
barrier.cluster.wait;
JOIN:
ld.shared::cluster.u32 %v, [%a];
st.global.u32 [%at], %v;
{SYNC}
""",
        cluster=4,
        order=order,
    )
    assert (found == 4 * 64).all()


@pytest.mark.parametrize("order", ORDERS)
def test_what_a_block_leaves_at_barriers_is_not_the_next_ones(order: Order) -> None:
    """Later clusters run in the memory of earlier ones, all of whose warps arrived once more than they waited."""
    found = barrier(
        f"""
{SYNC}
setp.lt.u32 %q, %t, 32; @%q bra FIRST;
bar.sync 1, 64;
ld.shared.u32 %v, [word];
bra.uni JOIN;
FIRST:
st.shared.u32 [word], 7;
bar.arrive 1, 64;
mov.u32 %v, 7;
JOIN:
st.global.u32 [%at], %v;
bar.sync 0;
@%q bar.arrive 1, 64;
barrier.cluster.arrive;
bra.uni END;
""",
        grid=12,
        order=order,
    )
    assert (found == 7).all()


@pytest.mark.parametrize("turns", [1, 2, 7])
def test_phases_follow_one_another(turns: int) -> None:
    for order in ORDERS:
        found = barrier(
            f"""
{SYNC}
.reg .u32 %i, %sum; mov.u32 %i, 0; mov.u32 %sum, 0; mapa.shared::cluster.u32 %a, word, 0;
LOOP:
setp.eq.u32 %p, %t, 7;
@%p red.shared::cluster.add.u32 [%a], 1;
barrier.cluster.arrive; barrier.cluster.wait;
ld.shared::cluster.u32 %v, [%a]; add.u32 %sum, %sum, %v;
barrier.cluster.arrive; barrier.cluster.wait;
add.u32 %i, %i, 1; setp.lt.u32 %p, %i, {turns}; @%p bra LOOP;
st.global.u32 [%at], %sum;
{SYNC}
""",
            order=order,
        )
        assert (found == 2 * turns * (turns + 1) // 2).all()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("barrier.cluster.wait;", "barrier.cluster.wait by a thread that has not arrived"),
        (
            "barrier.cluster.arrive; barrier.cluster.arrive;",
            "barrier.cluster.arrive by a thread that has yet to wait for the last one",
        ),
    ],
)
def test_arriving_and_waiting_go_by_turns(body: str, said: str) -> None:
    with pytest.raises(KernelFault, match=said):
        barrier(body)


@pytest.mark.parametrize("others", ["have come", "have not come"])
def test_nobody_arrives_again_before_waiting(others: str) -> None:
    """Whether the phase in which the thread arrived is over or not."""
    body = "barrier.cluster.arrive; barrier.cluster.arrive;"
    if others == "have not come":
        body = f"setp.ne.u32 %p, %rank, 0; @%p bra OTHER; {body} bra.uni END; OTHER: bar.sync 1, 96;"
    with pytest.raises(KernelFault, match="by a thread that has yet to wait for the last one"):
        barrier(body, grid=2, cluster=1 if others == "have come" else 2, block=32)


def test_a_deadlock_says_who_waits_at_the_clusters_barrier() -> None:
    with pytest.raises(Deadlock) as raised:
        barrier(f"setp.ne.u32 %p, %rank, 0; @%p bra OTHER; {SYNC} bra END; OTHER: bar.sync 1, 96;")
    said = str(raised.value)
    assert "cluster (0, 0, 0) of 2 blocks from block (0, 0, 0) on: every warp waits" in said
    assert re.search(
        r"warp 0 of block \(0, 0, 0\), warp 1 of block \(0, 0, 0\) wait at barrier.cluster, where 64 of 128",
        said,
    )
    assert re.search(r"warp 0 of block \(1, 0, 0\).* wait at barrier 1, where 64 of 96 threads", said)
    assert "barrier.cluster.wait.acquire.aligned" in said


# -- addresses ------------------------------------------------------------------------------------------------
def test_addresses_know_their_block() -> None:
    """What mapa makes of each kind of address, and what getctarank, isspacep and cvta say of that."""
    asked = [
        "mapa.shared::cluster.u32 %a, word, 1; getctarank.shared::cluster.u32 %v, %a;",
        "getctarank.shared::cluster.u64 %v, word;",
        "mov.u64 %g, word; mapa.shared::cluster.u64 %g, %g, 1; getctarank.shared::cluster.u64 %v, %g;",
        "cvta.shared.u64 %g, word; mapa.u64 %g, %g, 1; getctarank.u64 %v, %g;",
        "cvta.shared.u64 %g, word; getctarank.u64 %v, %g;",
        "cvta.shared.u64 %g, word; mapa.u64 %g, %g, 1; isspacep.shared::cluster %p, %g; selp.u32 %v, 1, 0, %p;",
        "cvta.shared.u64 %g, word; mapa.u64 %g, %g, 1; isspacep.shared %p, %g; selp.u32 %v, 1, 0, %p;",
        "cvta.shared.u64 %g, word; isspacep.shared::cta %p, %g; selp.u32 %v, 1, 0, %p;",
        "isspacep.shared::cluster %p, %at; selp.u32 %v, 1, 0, %p;",
        "mapa.shared::cluster.u32 %a, word, 1; cvt.u64.u32 %g, %a; cvta.shared::cluster.u64 %g, %g; ld.u32 %v, [%g];",
        "cvta.shared.u64 %g, word; mapa.u64 %g, %g, %rank; ld.u32 %v, [%g];",
        "add.u32 %a, %lane, 1; rem.u32 %a, %a, 2; mapa.shared::cluster.u32 %a, word, %a;"
        "getctarank.shared::cluster.u32 %v, %a; shl.b32 %v, %v, 4;"
        ".reg .u32 %w; ld.shared::cluster.u32 %w, [%a]; or.b32 %v, %v, %w;",
    ]
    sync = "barrier.cluster.arrive; barrier.cluster.wait;"
    start = f"setp.eq.u32 %p, %t, 0; add.u32 %v, %rank, 5; @%p st.shared.u32 [word], %v; {sync}"
    lane = np.arange(32)
    expected: list[list[Any]] = [
        [1, 1], [0, 1], [1, 1], [1, 1], [0, 1], [1, 1], [0, 1], [1, 1], [0, 0], [6, 6], [5, 6],
        [np.where(lane % 2, 5, 16 + 6)] * 2,
    ]  # fmt: skip
    for body, values in zip(asked, expected, strict=True):
        found = barrier(f"{start} {{ {body} st.global.u32 [%at], %v; }} {sync}", grid=2, block=32).reshape(
            2, 32
        )
        assert np.array_equal(found, np.array([np.broadcast_to(value, 32) for value in values])), body


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "mapa.shared::cluster.u32 %a, word, 1; @%p ld.shared.u32 %v, [%a];",
            r"at shared address 0x0 of block \(1, 0, 0\): an access without ::cluster reaches only",
        ),
        (
            "mapa.shared::cluster.u32 %a, word, 2; st.shared::cluster.u32 [%a], %v;",
            "write of 4 bytes at shared address 0x3000000: the cluster has no block of rank 2",
        ),
        (
            "mapa.shared::cluster.u32 %a, word, -1; atom.shared::cluster.add.u32 %v, [%a], 1;",
            "the cluster has no block of rank 254",
        ),
        ("mapa.u64 %g, %at, 1; ld.u32 %v, [%g];", "the cluster has no block of rank 254"),
        (
            "mapa.shared::cluster.u32 %a, word, 1; ld.shared::cluster.u32 %v, [%a+4];",
            r"out-of-bounds read of 4 bytes at shared address 0x4 of block \(1, 0, 0\): the block has 4 bytes",
        ),
        (
            "mapa.shared::cluster.u32 %a, word, 1; add.u32 %a, %a, %lane; ld.shared::cluster.u32 %v, [%a];",
            r"misaligned read of 4 bytes at shared address 0x1 of block \(1, 0, 0\)",
        ),
        (
            "mapa.shared::cluster.u32 %a, word, 1; atom.shared.add.u32 %v, [%a], 1;",
            "an access without ::cluster reaches only the block's own",
        ),
        (
            "mapa.shared::cluster.u32 %a, word, 1; tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%a], 1;",
            "an access without ::cluster reaches only the block's own",
        ),
        (
            "mapa.shared::cluster.u32 %a, word, 1; tensormap.cp_fenceproxy.global.shared::cta"
            ".tensormap::generic.release.gpu.sync.aligned [%at], [%a], 128;",
            "an access without ::cluster reaches only the block's own",
        ),
    ],
)
def test_bad_addresses_fault(body: str, said: str) -> None:
    with pytest.raises(KernelFault, match=said):
        barrier(body)


@pytest.mark.parametrize("order", ORDERS)
def test_a_copy_reaches_only_the_blocks_own_memory(order: Order) -> None:
    body = (
        "mapa.shared::cluster.u32 %a, word, 1; cp.async.ca.shared.global [%a], [%at], 4; cp.async.wait_all;"
    )
    with pytest.raises(KernelFault, match="an access without ::cluster reaches only the block's own"):
        barrier(body, order=order)


# -- what is refused ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("instruction", "said"),
    [
        ("barrier.cluster.sync;", "barrier.cluster.arrive or barrier.cluster.wait"),
        ("barrier.cluster.arrive.acquire;", "barrier.cluster.arrive or barrier.cluster.wait"),
        ("barrier.cluster.wait.relaxed;", "barrier.cluster.arrive or barrier.cluster.wait"),
        ("barrier.cluster;", "barrier.cluster.arrive or barrier.cluster.wait"),
        ("bar.cluster.arrive;", "which is written bar.arrive or bar.cta.arrive"),
        ("barrier.cluster.arrive 0;", "takes 0 operands"),
        ("mapa.u32 %r0, %r1, 0;", "a generic address has 64 bits"),
        ("mapa.shared.u32 %r0, %r1, 0;", "shared::cluster or none"),
        ("getctarank.global.u64 %r0, %l0;", "shared::cluster or none"),
        ("setmaxnreg.inc.sync.aligned.u32 20;", "from 24 to 256"),
        ("setmaxnreg.dec.sync.aligned.u32 100;", "multiple of 8"),
        ("setmaxnreg.inc.sync.aligned.u32 %r0;", "a constant"),
        ("setmaxnreg.inc.u32 24;", "setmaxnreg.inc or .dec"),
        ("setmaxnreg.inc.sync.aligned.u32 16;", "from 24 to 256"),
        ("fence.cta.cta;", "there is no such fence"),
        ("mbarrier.inval.shared::cluster.b64 [%r0];", "the block's own shared memory alone"),
        (
            "mbarrier.check_layout.layout::v0.shared::cluster.b64 %p, [%r0];",
            "the block's own shared memory alone",
        ),
        *(
            (f"mbarrier.{verb}.shared::cluster.b64 %l0, [%r0]{more};", "gives no state: write _")
            for verb, more in (
                ("arrive", ""),
                ("arrive_drop", ", 2"),
                ("arrive.expect_tx.relaxed.cluster", ", 8"),
            )
        ),
        ("griddepcontrol.launch;", "launch_dependents or griddepcontrol.wait"),
        ("fence.proxy.texture;", ".texture is not supported"),
        ("fence.proxy.tensormap::generic.acquire.gpu;", "2 operands"),
        ("fence.proxy.tensormap::generic.acquire.gpu [%l0];", "2 operands"),
        ("fence.proxy.tensormap::generic.acquire.gpu [%l0], 128, 128;", "2 operands"),
        ("fence.proxy.tensormap::generic.acquire.gpu [%l0], 64;", "the address of a map, and 128"),
    ],
)
def test_other_forms_are_refused(instruction: str, said: str) -> None:
    assert said in refused(instruction)


@pytest.mark.parametrize(
    "instruction",
    [
        "setmaxnreg.inc.sync.aligned.u32 240;",
        "setmaxnreg.inc.sync.aligned.u32 256;",
        "setmaxnreg.dec.sync.aligned.u32 24;",
        "griddepcontrol.launch_dependents;",
        "griddepcontrol.wait;",
        "fence.sc.cluster;",
        "fence.acq_rel.cluster;",
        "fence.mbarrier_init.release.cluster;",
        "fence.proxy.async;",
        "fence.proxy.async.shared::cta;",
        "fence.proxy.tensormap::generic.acquire.gpu [%l0], 128;",
        "fence.acquire.sync_restrict::shared::cluster.cluster;",
        "membar.gl;",
        "elect.sync %r0|%p, -1;",
    ],
)
def test_what_changes_nothing_is_accepted(instruction: str) -> None:
    assert refused(instruction) == ""


def test_a_variable_that_is_not_shared_has_no_address_in_a_cluster() -> None:
    for text in (".local .u32 mine; mapa.shared::cluster.u32 %a, mine, 0;", "mapa.u64 %g, word, 0;"):
        with pytest.raises(PtxError, match="a variable must be in shared memory, and the space named"):
            barrier(text)
