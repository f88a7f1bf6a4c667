"""More copies in flight than the emulator has places for, and than the checker follows."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw
from tests.harness.cases import HEAD
from tilewise.emulator.check_layout import COPY
from tilewise.emulator.support.flights import CAPACITY

BODIES = {
    "of lanes": """if (T == 0) for (int i = 0; i < many; ++i) cp4(s + 4 * i, x + i);
        commit(); if (!early) landed<0>(); if (T == 0) y[0] = s[0]; landed<0>();""",
    "in bulk to shared memory": """if (T == 0) { init(&m, 1); proxy(); }
        __syncthreads();
        if (T == 0) { expect(&m, many * 16); for (int i = 0; i < many; ++i) bulk(s + 4 * i, x, 16, &m); }
        if (!early) await(&m, 0);
        y[T] = s[0]; await(&m, 0);""",
    "in bulk to global memory": """s[T] = T; proxy(); __syncwarp();
        if (T == 0) { for (int i = 0; i < many; ++i) bulk_out(y + 4 * i, s, 16);
            if (!early) bulk_done();
            y[0] = 7; bulk_done(); }""",
}


@pytest.mark.parametrize("what", BODIES)
def test_copies_beyond_those_that_are_followed(what: str) -> None:
    """They are not followed, and nothing is made up of them."""
    name = f"many_{[*BODIES].index(what)}"
    text = f"""{HEAD}extern "C" __global__ void {name}(const int *x, int *y, int many, int early) {{
        extern __shared__ __align__(128) int s[]; __shared__ u64 m;
        {BODIES[what]}
    }}"""
    kernel = tw.Kernel(text, name, "sm_90a")
    kind = "write-in-flight" if "global" in what else "read-in-flight"
    for many in (3, COPY.MOST, COPY.MOST + 60):
        x, y = np.zeros((2, 4 * many + 64), np.int32)
        for early, kinds in ((0, []), (1, [kind])):
            found = kernel.check(1, 32, [x, y, many, early], shared=16 * many + 128, order="late")
            assert [item.kind for item in found] == kinds, (many, [*map(str, found)])
        if "global" in what:
            kernel(1, 32, [x, y, many, 0], shared=128, device=tw.device("emulator", order="late"))
            assert y.tolist() == [7, *([0, 1, 2, 3] * many)[1:], *[0] * 64]


def test_of_copies_that_find_no_place_the_oldest_land() -> None:
    """One for each that is issued. Where copies come late, what they write is spoiled until the program has waited."""
    text = (
        HEAD
        + """extern "C" __global__ void oldest(const int *x, int *y, int many) {
        extern __shared__ __align__(128) int s[];
        for (int i = 0; i < many; ++i) cp4(s + i, x + i);
        for (int i = 0; i < many; ++i) y[i] = ((volatile int *)s)[i];
        commit(); landed<0>();
        for (int i = 0; i < many; ++i) y[many + i] = ((volatile int *)s)[i];
    }"""
    )
    kernel, late = tw.Kernel(text, "oldest", "sm_80"), tw.device("emulator", order="late")
    for many in (5, CAPACITY, CAPACITY + 1, CAPACITY + 40):
        x, y = np.arange(1, many + 1, dtype=np.int32), np.zeros((2, many), np.int32)
        kernel(1, 1, [x, y, many], shared=4 * many, device=late)
        assert y[0].tolist() == [i + 1 if i < many - CAPACITY else -1 for i in range(many)]
        assert y[1].tolist() == x.tolist()


@pytest.mark.parametrize("threads", [32, 256, 512, 1024])
def test_barriers_between_copies_and_their_wait_change_nothing(threads: int) -> None:
    """However many warps a block has, and whichever of the barriers they meet at: groups are counted for each lane."""
    text = f"""{HEAD}extern "C" __global__ void met(const int *x, int *y, int kept) {{
        __shared__ int s[2][1024];
        cp4(s[0] + T, x + T); commit();
        cp4(s[1] + T, x + T); commit();
        __syncthreads();
        for (int i = 1; i < 16; ++i) asm volatile("barrier.sync %0;" :: "r"(i) : "memory");
        if (kept == 0) landed<0>(); else if (kept == 1) landed<1>();
        y[T] = s[0][T];
        if (kept < 1) y[T] += s[1][T];
        landed<0>();
    }}"""
    kernel = tw.Kernel(text, "met", "sm_80")
    for kept, kinds in ((0, []), (1, []), (2, ["read-in-flight"])):
        x, y = np.zeros((2, threads), np.int32)
        found = kernel.check(1, threads, [x, y, kept], order="late")
        assert [item.kind for item in found] == kinds, (kept, [*map(str, found)])
        assert [item.count for item in found] == [threads] * len(kinds)
