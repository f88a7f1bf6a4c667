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
