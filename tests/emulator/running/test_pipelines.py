"""Random pipelines against models: rings of stages with many producers and consumers, and products in flight.

What a program computes may not depend on when its copies, products and arrivals happen: the same bits in every order.
"""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tests.emulator.instructions.test_wgmma_flight import Tiles, product, stored, wait, zeros
from tests.harness.many import Array
from tests.thorough import examples

ORDERS = st.one_of(st.sampled_from(["eager", "late"]), st.integers(1, 2**31))
_COMMIT, _FENCE = "wgmma.commit_group.sync.aligned;", "wgmma.fence.sync.aligned;"

# Each producer warp fills 32 numbers of every stage of some block, in a way of its own, and has a full and an empty
# mbarrier for each; every consumer warp reads what all producers have made.
RING = r"""
typedef unsigned u32;
typedef unsigned long long u64;
enum { STORE, COPY, BULK, STORE_AWAY, BULK_AWAY, ASYNC_AWAY, MULTICAST };
struct alignas(128) Shared {
    u32 stage[4][4][32], mine[4][4][32];
    u64 full[4][4], empty[4][4];
};
__device__ u32 there(const void *p, u32 rank) {
    u32 found;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"((u32)__cvta_generic_to_shared(p)), "r"(rank));
    return found;
}
__device__ void wait(u32 bar, u32 parity) {
    u32 over;
    do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                    : "=r"(over) : "r"(bar), "r"(parity) : "memory");
    while (!over);
}
__device__ void arrive(u32 bar) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(bar) : "memory");
}
__device__ void expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
#define TOLD "mbarrier::complete_tx::bytes"
extern "C" __global__ void ring(const u32 *from, u32 *out, const u32 *kinds, u32 stages, u32 producers, u32 turns, u32 blocks) {
    __shared__ Shared s;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, consumers = blockDim.x / 32 - producers, rank = blockIdx.x % blocks;
    if (threadIdx.x == 0)
        for (u32 p = 0; p < producers; ++p)
            for (u32 i = 0; i < stages; ++i) {
                u32 kind = kinds[p], lanes = kind == STORE || kind == COPY || kind == STORE_AWAY;
                asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"((u32)__cvta_generic_to_shared(&s.full[p][i])), "r"(lanes ? 32 : 1));
                asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"((u32)__cvta_generic_to_shared(&s.empty[p][i])),
                             "r"(consumers * (kind == MULTICAST ? blocks : 1)));
            }
    asm volatile("fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
    if (warp < producers) {
        u32 p = warp, kind = kinds[p], to = (rank + (kind >= STORE_AWAY)) % blocks;
        for (u32 i = 0; i < turns && (kind != MULTICAST || rank == p % blocks); ++i) {
            u32 at = i % stages, full = there(&s.full[p][at], to), own = (u32)__cvta_generic_to_shared(&s.full[p][at]);
            u32 place = there(&s.stage[p][at][lane], to), here = (u32)__cvta_generic_to_shared(&s.stage[p][at][lane]);
            const u32 *source = from + ((blockIdx.x * producers + p) * turns + i) * 32;
            wait((u32)__cvta_generic_to_shared(&s.empty[p][at]), i / stages & 1 ^ 1);
            switch (kind) {
            case STORE: case STORE_AWAY:
                asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(place), "r"(source[lane]) : "memory");
                arrive(full);
                break;
            case COPY:
                asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\ncp.async.mbarrier.arrive.noinc.shared.b64 [%2];"
                             :: "r"(here), "l"(source + lane), "r"(own) : "memory");
                break;
            case BULK:
                if (lane == 3) {
                    expect(full, 128);
                    asm volatile("cp.async.bulk.shared::cluster.global." TOLD " [%0], [%1], 128, [%2];"
                                 :: "r"(here - 12), "l"(source), "r"(own) : "memory");
                }
                break;
            case BULK_AWAY:
                s.mine[p][at][lane] = source[lane];
                asm volatile("fence.proxy.async;" ::: "memory");
                __syncwarp();
                if (lane == 0) {
                    asm volatile("cp.async.bulk.shared::cluster.shared::cta." TOLD " [%0], [%1], 128, [%2];"
                                 :: "r"(place), "r"((u32)__cvta_generic_to_shared(s.mine[p][at])), "r"(full) : "memory");
                    expect(full, 128);
                }
                break;
            case ASYNC_AWAY:
                asm volatile("st.async.shared::cluster." TOLD ".u32 [%0], %1, [%2];" :: "r"(place), "r"(source[lane]), "r"(full) : "memory");
                if (lane == 31) expect(full, 128);
                break;
            default:
                if (lane == 0) {
                    for (u32 other = 0; other < blocks; ++other) expect(there(&s.full[p][at], other), 128);
                    asm volatile("cp.async.bulk.shared::cluster.global." TOLD ".multicast::cluster [%0], [%1], 128, [%2], %3;"
                                 :: "r"(here), "l"(source), "r"(own), "h"((unsigned short)((1 << blocks) - 1)) : "memory");
                }
            }
        }
    } else {
        u32 c = warp - producers, sum = c;
        for (u32 i = 0; i < turns; ++i)
            for (u32 q = 0; q < producers; ++q) {
                u32 p = (q + c + i) % producers, at = i % stages, kind = kinds[p];
                wait((u32)__cvta_generic_to_shared(&s.full[p][at]), i / stages & 1);
                sum = sum * 31 + s.stage[p][at][lane + c + i & 31];
                __syncwarp();
                u32 owner = kind == MULTICAST ? p % blocks : kind >= STORE_AWAY ? (rank + blocks - 1) % blocks : rank;
                if (lane == 0) arrive(there(&s.empty[p][at], owner));
            }
        out[(blockIdx.x * consumers + c) * 32 + lane] = sum;
    }
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}
"""
STORE_AWAY, MULTICAST = 3, 6


@functools.cache
def ring() -> tw.Kernel:
    return tw.Kernel(RING, "ring", arch="sm_90a")


def sums(data: Array, kinds: list[int], blocks: int, consumers: int) -> Array:
    """What each lane of each consumer of each block makes of data[block, producer, turn, lane]."""
    grid, producers, turns, _ = data.shape
    found = np.zeros((grid, consumers, 32), np.uint32)
    lanes = np.arange(32)
    for block in range(grid):
        first, rank = block - block % blocks, block % blocks
        for c in range(consumers):
            total = np.full(32, c, np.uint32)
            for i in range(turns):
                for q in range(producers):
                    p = (q + c + i) % producers
                    away = (rank - 1) % blocks if STORE_AWAY <= kinds[p] < MULTICAST else rank
                    owner = first + (p % blocks if kinds[p] == MULTICAST else away)
                    total = total * np.uint32(31) + data[owner, p, i, (lanes + c + i) % 32]
            found[block, c] = total
    return found


@examples(20, 40)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.sampled_from([3, 6]),  # each is compiled for itself
    st.integers(1, 4),
    st.integers(0, 9),
    st.sampled_from([1, 2, 3, 4]),
    ORDERS,
    st.booleans(),
)
def test_a_ring_of_many(
    kinds: list[int], warps: int, stages: int, turns: int, blocks: int, order: str | int, checked: bool
) -> None:
    """Producers of every kind, of this block and others, multicasts, one to four stages: right in every order."""
    kinds = kinds[: warps - 1]
    consumers, block, grid = warps - len(kinds), 32 * warps, 2 * blocks
    data = np.random.default_rng().integers(0, 2**32, (grid, len(kinds), turns, 32), np.uint32)
    out = np.zeros((grid, consumers, 32), np.uint32)
    given_ = [data if data.size else np.zeros(1, np.uint32), out, np.array(kinds, np.uint32)]
    given_ += [stages, len(kinds), turns, blocks]  # type: ignore[list-item]
    if checked:
        found = ring().check(grid, block, given_, cluster=blocks, order=order, timeout=60)
        assert not found, "\n".join(map(str, found))
    else:
        ring()(grid, block, given_, cluster=blocks, device=tw.device("emulator", order=order), timeout=60)
    np.testing.assert_array_equal(out, sums(data, kinds, blocks, consumers))


# -- products in flight -------------------------------------------------------------------------------------
@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Products on sums d and e, commits and waits: "-" begins anew, "r" has A in registers, "turn" changes those."""
    steps: list[tuple[str, int]] = []
    for _ in range(draw(st.integers(1, 14) | st.just(45))):  # of 32 in flight the oldest is done first
        what = draw(
            st.sampled_from(["d", "d", "e", "commit", "commit", "wait", "-d", "-e", "rd", "re", "turn"])
        )
        steps.append((what, draw(st.integers(0, 3))))
    return steps


def _ones(value: int) -> list[str]:
    """A in registers, of one number everywhere."""
    bits = int(np.float16(value).view(np.uint16)) * 0x10001
    return [f"mov.b32 %a{i}, {bits};" for i in range(4)]


@examples(6, 20)
@given(programs(), st.lists(ORDERS, min_size=3, max_size=3, unique=True), st.sampled_from([128, 256]))
def test_products_in_flight(steps: list[tuple[str, int]], orders: list[str | int], threads: int) -> None:
    tiles = Tiles()
    totals = {"d": np.zeros_like(tiles.product(0)), "e": np.zeros_like(tiles.product(0))}
    lines, value = [*zeros(), *_ones(1), _FENCE], 1
    for what, number in steps:
        if what == "commit":
            lines.append(_COMMIT)
        elif what == "wait":
            lines.append(wait(number))
        elif what == "turn":
            value = number - 1
            lines += [_COMMIT, wait(0), *_ones(value), _FENCE]
        elif what[0] == "r":
            lines += product(number, what[1], "%yes", "{%a0, %a1, %a2, %a3}")
            totals[what[1]] = totals[what[1]] + value * tiles.b[:, 16 * number : 16 * number + 16].sum(1)
        else:
            name, anew = what[-1], what[0] == "-"
            lines += product(number, name, "%no" if anew else "%yes")
            totals[name] = totals[name] * (not anew) + tiles.product(number)
    lines += [_COMMIT, wait(0), *stored("d", 0), *stored("e", 1)]
    for order in orders:
        found = tiles.run(lines, order, 2, threads)
        for result, name in zip(found, "de" * (threads // 128), strict=True):
            np.testing.assert_array_equal(result, totals[name])
