"""Kernels whose lanes do something for one another, and do not meet; or name one another wrongly.

See ``cases.py`` for how they are written.
"""

from __future__ import annotations

from tests.harness.cases import Case

__all__ = ["LANES"]

LANES = [
    Case(
        *("one_lane_signals_for_its_warp", "racecheck", "read-write"),
        """
    volatile int *flag = y + 4000;
    if (B == 0) {
        y[T] = x[T]; //!
        __threadfence();
        __syncwarp(); //+
        if (T == 0) { __threadfence(); *flag = 1; }
    } else {
        if (T == 0) { while (*flag == 0) {} __threadfence(); }
        __syncwarp();
        y[100 + T] = y[T]; //!
    }
""",
        grid=2,
        block=32,
    ),
    Case(
        *("one_lane_waits_for_its_warp", "racecheck", "read-write"),
        """
    volatile int *flag = y + 4000;
    if (B == 0) {
        y[T] = x[T]; //!
        __syncwarp();
        if (T == 0) { __threadfence(); *flag = 1; }
    } else {
        if (T == 0) { while (*flag == 0) {} __threadfence(); }
        __syncwarp(); //+
        y[100 + T] = y[T]; //!
    }
""",
        grid=2,
        block=32,
    ),
    Case(
        *("one_lane_waits_for_what_one_wrote", "racecheck", "read-write"),
        """
    volatile int *flag = y + 4000;
    if (B == 0) {
        if (T == 0) {
            for (int i = 0; i < 32; i++) y[i] = x[i]; //!
            __threadfence(); *flag = 1;
        }
    } else {
        if (T == 0) { while (*flag == 0) {} __threadfence(); }
        __syncwarp(); //+
        y[100 + T] = y[T]; //!
    }
""",
        grid=2,
        block=32,
    ),
    Case(
        *("flag_read_plainly", "racecheck", "read-write"),
        """
    int *flag = y + 4000, seen;
    if (B == 0) {
        y[T] = x[T];
        __syncwarp();
        if (T == 0) { __threadfence();
            *(volatile int *)flag = 1; //!
        }
    } else {
        do {
            asm volatile("ld.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory"); //! //-
            asm volatile("ld.volatile.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory"); //+
        } while (!seen);
        __threadfence();
        y[100 + T] = y[T];
    }
""",
        grid=2,
        block=32,
    ),
    Case(
        *("one_lane_unlocks_for_its_warp", "racecheck", "read-write"),
        """
    int *lock = y + 4000;
    if (T == 0) { while (atomicCAS(lock, 0, 1)) {} __threadfence(); }
    __syncwarp();
    y[T] += x[T]; //!
    __syncwarp(); //+
    if (T == 0) { __threadfence(); atomicExch(lock, 0); }
""",
        grid=3,
        block=32,
    ),
    Case(
        *("one_lane_arrives_for_its_warp", "racecheck", "read-write"),
        """
    __shared__ u64 m; __shared__ int s[32];
    if (T == 0) init(&m, 1);
    __syncthreads();
    if (T < 32) {
        s[T] = x[T]; //!
        __syncwarp(); //+
        if (T == 0) arrive(&m);
    } else {
        await(&m, 0);
        y[T] = s[63 - T]; //!
    }
""",
        arch="sm_90a",
    ),
    Case(
        *("zeroed_by_one_warp", "racecheck", "write-write"),
        """
    __shared__ int s[16];
    if (T < 16) s[T] = 0; //!
    __syncthreads(); //+
    atomicAdd(s + x[T] % 16, 1); //!
    __syncthreads();
    if (T < 16) y[T] = s[T];
""",
    ),
    Case(
        *("shuffled_beyond_its_mask", "synccheck", "bad-mask"),
        """
    int v = x[T];
    v += __shfl_xor_sync(0xFFFF, v, 1); //! //-
    v += __shfl_xor_sync(0xFFFFFFFF, v, 1); //+
    y[T] = v;
""",
    ),
    Case(
        *("shuffled_from_lanes_elsewhere", "synccheck", "shuffle-inactive-lane"),
        """
    int v = x[T];
    if (T % 32 < 16) { v += __shfl_down_sync(~0u, v, 8); } //! //-
    { int u = __shfl_down_sync(~0u, v, 8); if (T % 32 < 16) v += u; } //+
    y[T] = v; //!
""",
    ),
    Case(
        *("shuffled_from_lanes_that_left", "synccheck", "shuffle-inactive-lane"),
        """
    int v = x[T];
    if (T % 32 >= 20) return; //-
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d); //!
    if (T % 32 == 0) y[WARP] = v; //!
""",
    ),
    Case(
        *("shuffled_from_beyond_its_mask", "synccheck", "shuffle-inactive-lane"),
        """
    int v = x[T];
    if (T % 32 < 16) {
        v = __shfl_sync(0xFFFF, v, 20); //! //-
        v = __shfl_sync(0xFFFF, v, 10); //+
        if (v > 500) //!
            y[T] = 1;
    }
""",
    ),
    Case(
        *("vote_of_others", "synccheck", "bad-mask"),
        """
    unsigned lanes = 0xFF << T % 32 / 16 * 16; //-
    unsigned lanes = 0xFFFF << T % 32 / 16 * 16; //+
    y[T] = __any_sync(lanes, x[T] > 500); //!
""",
    ),
    Case(
        *("heap_not_given_back", "memcheck", "leak"),
        """
    volatile int *p = (int *)malloc(40); //!
    if (!p) return;
    *p = x[T];
    y[T] = *p;
    if (T % 2) //-
        free((void *)p);
""",
        block=32,
    ),
    Case(
        *("heap_given_back_twice", "memcheck", "bad-free"),
        """
    volatile int *p = (int *)malloc(40);
    if (!p) return;
    *p = x[T];
    y[T] = *p;
    free((void *)p);
    free((void *)p); //-
""",
        block=32,
    ),
]
