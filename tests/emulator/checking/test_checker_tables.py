"""The checker's tables of a cluster: each has room for whatever its warps, barriers, flags and copies put there."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tests.harness.cases import HEAD
from tilewise.emulator.analysis.variable_layout import align_up
from tilewise.emulator.check_layout import CLOCKS, COPY
from tilewise.emulator.running import checked_launch
from tilewise.emulator.running.checked_launch import Checks
from tilewise.emulator.running.plain_memory import PlainMemory

TABLES = {name: value for name, value in vars(CLOCKS).items() if name.isupper() and isinstance(value, int)}
NO_TABLES = {
    "COUNT",
    "BEGAN",
    "SYNC_VAR_COUNT",
    "SIZE",
    "BARRIERS_OF_BLOCK",
    "GROUP_KINDS",
    "SHARED_SYNC_VARS",
}
GAP = 65_536  # behind each table

# Every warp takes part in everything: products, copies, flags, fences of each scope, all barriers, as one and by lanes.
BUSY = """
__device__ void wait_for(const int *flag) { int seen;
    asm volatile("ld.acquire.cta.shared.s32 %0, [%1];" : "=r"(seen) : "r"(at(flag)) : "memory"); }
extern "C" __global__ void __cluster_dims__(2, 1, 1) busy(const int *x, int *y, int copies) {
    __shared__ __align__(128) int s[1024]; __shared__ int flags[64]; __shared__ u64 m;
    s[T] = T; s[T + 512] = T; if (T < 64) flags[T] = 0;
    if (T == 0) init(&m, 1);
    proxy(); __threadfence_block(); __threadfence(); cluster();
    float d[4] = {};
    order(); multiply(d, plain(s), plain(s)); multiplied();
    int sum = d[0] + d[1] + d[2] + d[3];
    for (int i = 0; i < 64; ++i) if (T % 32 == i % 32) { atomicAdd(flags + i, 1); __threadfence(); wait_for(flags + i); }
    __syncwarp(); __threadfence_block();
    for (int turn = 0; turn < 3; ++turn) for (int i = 0; i < 16; ++i) {
        __threadfence();
        asm volatile("barrier.sync %0;" :: "r"(i) : "memory");
    }
    int other = 0;
    if (T % 32 < 16) other = __shfl_down_sync(0xffff, sum, 1);
    for (int i = 0; i < copies; ++i) { cp4(s + T, x + T); commit(); }
    __syncthreads(); landed<0>(); proxy(); __syncthreads();
    if (T % 32 == 31) { bulk_out(y + 512 * B + 16 * WARP, s + 16 * WARP, 64); bulk_done(); }
    cluster();
    if (sum + other == 77) y[T] = sum;
    if (T % 32 == 31) wait_for(flags + 63 - WARP); // the last barrier joins what one lane knows to what its warp does
}
"""


def test_nothing_is_put_behind_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a gap behind each, it stays empty: what lies there otherwise is the table after it."""
    attached: list[list[PlainMemory]] = []
    attach = Checks.attach

    def keep(self: Checks, *given: Any) -> list[PlainMemory]:
        attached.append(attach(self, *given))
        return attached[-1]

    monkeypatch.setattr(checked_launch, "align_up", lambda size, to: align_up(size, to) + GAP)
    monkeypatch.setattr(Checks, "attach", keep)
    kernel = tw.Kernel(HEAD + BUSY, "busy", "sm_90a")
    x, y = np.zeros((2, 1024), np.int32)
    kernel.check(2, 512, [x, y, COPY.MOST // 16 + 1], order="eager")
    assert attached
    for clocks, head, _ in attached:
        places = {
            head.get(value, 8) - clocks.address: name
            for name, value in TABLES.items()
            if name not in NO_TABLES
        }
        for first, after in pairwise([*sorted(places), len(clocks.bytes) - 64]):
            assert not clocks.bytes[after - GAP : after].any(), f"behind {places[first]}"
            assert clocks.bytes[(first + after - GAP) // 2 : after - GAP].any(), (
                f"{places[first]} is hardly used"
            )
