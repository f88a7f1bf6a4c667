"""The end of a block that others still read from, however its lanes come to exit."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw
from tests.harness.cases import HEAD

EXITS = {
    "together": "",
    "half a warp first": """asm volatile("{ .reg .pred p; setp.lt.u32 p, %0, 16; @p exit; }" :: "r"(T % 32));
        y[B * 64 + T] += 1;""",
    "at two places": """asm volatile("{ .reg .pred p; .reg .b32 t; and.b32 t, %0, 1; setp.eq.u32 p, t, 0;"
        "@p bra on; exit; on: exit; }" :: "r"(T));""",
    "one by one": "for (int i = 0; i < 31; ++i) if (T % 32 == i) return;",
    "a warp first": "if (WARP == 0) return; y[B * 64 + T] += 1; if (T & 1) return; y[B * 64 + T] += 1;",
}


@pytest.mark.parametrize("exits", EXITS)
def test_a_block_exits_too_early_whichever_way_its_lanes_do(exits: str) -> None:
    """Once: its last lanes' exit is what counts. With a barrier of the cluster before it nothing is found."""
    text = (
        HEAD
        + """extern "C" __global__ void gone(int *y, int early) {
    __shared__ int s[64];
    s[T] = T;
    cluster();
    u32 v = 0;
    if (B == 0) asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s + T), 1)) : "memory");
    if (!early) cluster();
    y[B * 64 + T] = v;
    """
        + EXITS[exits]
        + "\n}"
    )
    kernel, y = tw.Kernel(text, "gone", "sm_90a"), np.zeros(128, np.int32)
    (found,) = kernel.check(2, 64, [y, 1], cluster=2, order="eager")
    assert (found.kind, found.count) == ("early-exit", 1), str(found)
    for order in ("eager", "late", 3):
        assert not kernel.check(2, 64, [y, 0], cluster=2, order=order)


def test_one_warp_that_has_waited_for_the_others_keeps_the_block_alive() -> None:
    """It need not be the last that exits: as long as it was there, so was the memory that others read."""
    text = (
        HEAD
        + """extern "C" __global__ void gone(int *y, int *flags, int waits) {
    __shared__ int s[64];
    volatile int *done = flags + 1;
    u32 v = 0;
    s[T] = T;
    cluster();
    if (B == 0 && T == 0) {
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s), 1)) : "memory");
        asm volatile("red.release.cluster.global.add.u32 [%0], 1;" :: "l"(flags) : "memory");
        y[0] = v;
    }
    if (B == 1 && T == 0) {
        while (!v && waits) asm volatile("atom.acquire.cluster.global.add.u32 %0, [%1], 0;" : "=r"(v) : "l"(flags) : "memory");
        while (!v) asm volatile("atom.relaxed.cluster.global.add.u32 %0, [%1], 0;" : "=r"(v) : "l"(flags) : "memory");
        *done = 1;
    }
    if (B == 1 && WARP == 1) while (!*done) {}
}"""
    )
    kernel = tw.Kernel(text, "gone", "sm_90a")
    for order in ("eager", "late", 3):
        for waits in (0, 1):
            given = [np.zeros(1, np.int32), np.zeros(2, np.int32), waits]
            found = [item.kind for item in kernel.check(2, 64, given, cluster=2, order=order)]
            assert found == ["early-exit"] * (1 - waits), (order, waits)
