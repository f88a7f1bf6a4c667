"""Kernels with nothing wrong with them, in which lanes, warps and blocks do things for one another."""

from __future__ import annotations

from tests.harness.cases import Case

__all__ = ["MEETINGS"]


def _case(
    name: str, body: str, grid: int = 1, block: int = 64, cluster: int | None = None, arch: str = "sm_80"
) -> Case:
    return Case(name, "", "", body, grid, block, cluster, 0, arch)


MEETINGS = [
    _case(
        "two_lanes_that_wait_by_themselves",
        """
    __shared__ volatile int flag[2]; __shared__ int value[2];
    if (T < 2) flag[T] = 0;
    __syncthreads();
    int which = T / 32 - 1;
    if (T == 32 || T == 64) { value[which] = x[which]; __threadfence_block(); flag[which] = 1; }
    if (T == 0) { while (!flag[0]) {} __threadfence_block(); }
    if (T == 1) { while (!flag[1]) {} __threadfence_block(); }
    if (T == 0) y[0] = value[0];
    if (T == 1) y[1] = value[1];
""",
        block=96,
    ),
    _case(
        "all_fence_and_one_counts",
        """
    __shared__ bool last;
    y[64 * B + T] = x[T] * 2;
    __threadfence();
    __syncthreads();
    if (T == 0) last = atomicAdd(y + 4000, 1) == gridDim.x - 1;
    __syncthreads();
    if (last) {
        __threadfence();
        int sum = 0;
        for (int b = 0; b < gridDim.x; b++) sum += y[64 * b + T];
        y[2000 + T] = sum;
    }
""",
        grid=4,
    ),
    _case(
        "acquire_and_release_at_once",
        """
    int *turn = y + 300, seen = 0;
    if (T == 0) {
        do asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %2;"
                        : "=r"(seen) : "l"(turn), "r"(B) : "memory");
        while (seen != B);
        y[0] += x[B];
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(seen) : "l"(turn) : "memory");
    }
""",
        grid=3,
    ),
    _case(
        "tickets_of_whole_blocks",
        """
    if (T == 0) { int mine = atomicAdd(y + 4000, 1); while (atomicAdd(y + 4001, 0) != mine) {} }
    __syncthreads();
    __threadfence();
    y[T] += x[T];
    __threadfence();
    __syncthreads();
    if (T == 0) atomicAdd(y + 4001, 1);
""",
        grid=4,
    ),
    _case(
        "grid_barrier_by_sense",
        """
    volatile unsigned *gate = (unsigned *)y + 4000;
    y[64 * B + T] = T;
    for (int turn = 0; turn < 3; turn++) {
        __syncthreads();
        if (T == 0) {
            __threadfence();
            unsigned old = atomicAdd((unsigned *)gate, B ? 1 : 0x80000000u - (gridDim.x - 1));
            while (((old ^ *gate) & 0x80000000u) == 0) {}
            __threadfence();
        }
        __syncthreads();
        if (turn % 2) y[64 * B + T] = y[1000 + 64 * B + T];
        else y[1000 + 64 * B + T] = y[255 - 64 * B - T] + 1;
    }
""",
        grid=4,
    ),
    _case(
        "look_back_in_one_word",
        """
    volatile u64 *state = (u64 *)y + 1900;
    __shared__ int base;
    int v = x[32 * B + T];
    for (int d = 1; d < 32; d *= 2) { int u = __shfl_up_sync(~0u, v, d); if (T >= d) v += u; }
    int whole = __shfl_sync(~0u, v, 31), sum = 0;
    if (T == 0) {
        state[B] = (u64)whole << 32 | 1;
        for (int p = B - 1; p >= 0; p--) {
            u64 seen;
            do seen = state[p]; while ((seen & 3) == 0);
            sum += seen >> 32;
            if ((seen & 3) == 2) break;
        }
        state[B] = (u64)(sum + whole) << 32 | 2;
        base = sum;
    }
    __syncthreads();
    y[32 * B + T] = v + base;
""",
        grid=5,
        block=32,
    ),
    _case(
        "a_flag_for_every_lane",
        """
    int *flag = y + 4000 + T, seen = 0;
    if (B == 0) {
        y[T] = x[T];
        asm volatile("st.release.gpu.global.s32 [%0], 1;" :: "l"(flag) : "memory");
    } else {
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory"); while (!seen);
        y[100 + T] = y[T];
    }
""",
        grid=2,
        block=32,
    ),
    _case(
        "a_warp_fences_and_one_lane_sets_a_flag",
        """
    int *flag = y + 4000;
    if (B == 0) {
        y[T] = x[T];
        __threadfence();
        __syncwarp();
        if (T == 0) *(volatile int *)flag = 1;
    } else {
        while (!*(volatile int *)flag) {}
        __threadfence();
        y[100 + T] = y[31 - T];
    }
""",
        grid=2,
        block=32,
    ),
    _case(
        "what_a_lane_has_seen_while_another_warp_meets",
        """
    __shared__ volatile int first, second, third;
    __shared__ int s;
    if (T == 0) first = second = third = 0;
    __syncthreads();
    if (T == 64) { s = x[0]; __threadfence_block(); first = 1; }
    if (T == 32) {
        while (!first) {}
        __threadfence_block();
        second = 1;
        while (!third) {}
        y[0] = s;
    }
    if (WARP == 0) {
        if (T == 0) { while (!second) {} __threadfence_block(); }
        __syncwarp();
        if (T == 0) third = 1;
    }
""",
        block=96,
    ),
    _case(
        "parts_of_a_warp_meet",
        """
    __shared__ int s[64];
    int first = T & ~15;
    s[T] = x[T];
    __syncwarp(0xFFFFu << first % 32);
    int v = s[first + 15 - T % 16];
    if (T % 32 < 16) v += __shfl_xor_sync(0xFFFF, v, 1);
    else v += __shfl_xor_sync(0xFFFF0000, v, 2);
    unsigned some = __ballot_sync(~0u, T % 32 < 21);
    if (T % 32 < 21) { int u = __shfl_down_sync(some, v, 4); if (T % 32 + 4 < 21) v += u; }
    __syncwarp();
    y[T] = v + s[T ^ 31];
""",
    ),
    _case(
        "undefined_shuffles_thrown_away",
        """
    int best = x[T], place = T, sum = x[T], many = 21;
    unsigned some = __ballot_sync(~0u, T % 32 < many);
    if (T % 32 < many) {
        for (int d = 16; d; d /= 2) {
            int u = __shfl_down_sync(some, best, d), at_ = __shfl_down_sync(some, place, d);
            if (T % 32 + d < many && (u > best || (u == best && at_ < place))) { best = u; place = at_; }
        }
        if (T % 32 == 0) { y[WARP] = best; y[2 + WARP] = place; }
    }
    if (T % 32 < 16) {
        for (int d = 8; d; d /= 2) sum += __shfl_down_sync(0xFFFF, sum, d);
        if (T % 32 == 0) y[4 + WARP] = sum;
    }
    unsigned here = __activemask();
    double wide = x[T], next = __shfl_up_sync(here, wide, 1);
    y[64 + T] = T % 32 ? next - wide : 0;
""",
    ),
    _case(
        "one_lane_for_its_warp",
        """
    __shared__ int s[2][32]; __shared__ u64 full[2], empty[2];
    if (T == 0) for (int i = 0; i < 2; i++) { init(&full[i], 1); init(&empty[i], 1); }
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < 20; i++) {
        int at_ = i % 2, parity = i / 2 % 2;
        if (T < 32) {
            if (T == 0) await(&empty[at_], parity ^ 1);
            __syncwarp();
            s[at_][T] = x[T] + i;
            __syncwarp();
            if (T == 0) arrive(&full[at_]);
        } else {
            await(&full[at_], parity);
            sum += s[at_][63 - T];
            __syncwarp();
            if (T == 32) arrive(&empty[at_]);
        }
    }
    y[T] = sum;
""",
        arch="sm_90a",
    ),
    _case(
        "padding_goes_along",
        """
    struct __align__(16) Three { int a, b, c; };
    struct Seven { int a; short b; char c; };
    __shared__ Three s[64]; __shared__ Seven t[64];
    s[T].a = x[T]; s[T].b = 1; s[T].c = 2;
    t[T].a = T; t[T].b = 3; t[T].c = 4;
    __syncthreads();
    ((Three *)y)[T] = s[63 - T];
    ((Seven *)(y + 1000))[T] = t[63 - T];
""",
    ),
    _case(
        "a_heap_of_the_block",
        """
    __shared__ int *p;
    if (T == 0) p = (int *)malloc(64 * 4);
    __syncthreads();
    p[T] = x[T];
    __syncthreads();
    y[64 * B + T] = p[63 - T];
    __syncthreads();
    if (T == 0) free(p);
""",
        grid=3,
    ),
    _case(
        "sent_from_two_buffers",
        """
    __shared__ __align__(128) int s[2][64];
    for (int i = 0; i < 6; i++) {
        if (T == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        __syncthreads();
        s[i % 2][T] = x[T] + i;
        proxy();
        __syncthreads();
        if (T == 0) bulk_out(y + 64 * i, s[i % 2], 256);
    }
    if (T == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
""",
        arch="sm_90a",
    ),
    _case(
        "two_products_in_flight",
        """
    __shared__ __align__(128) half a[64 * 16 + 8 * 16];
    for (int i = T; i < 1152; i += 128) a[i] = __int2half_rn(i % 7);
    proxy();
    __syncthreads();
    float d[4], e[4];
    order();
    for (int i = 0; i < 4; i++) d[i] = e[i] = 0;
    add_product(d, plain(a), plain(a + 1024));
    for (int turn = 0; turn < 3; turn++) {
        add_product(e, plain(a), plain(a + 1024));
        multiplied<1>();
        d[0] += 1;
        order();
        add_product(d, plain(a), plain(a + 1024));
        multiplied<1>();
        e[0] += 1;
        order();
    }
    multiplied();
    y[T] = d[0] + d[3] + e[0] + e[2];
""",
        block=128,
        arch="sm_90a",
    ),
    _case(
        "one_sum_is_changed_where_the_other_is_fenced",
        """
    __shared__ __align__(128) half a[64 * 16 + 8 * 16];
    for (int i = T; i < 1152; i += 128) a[i] = __int2half_rn(i % 7);
    proxy();
    __syncthreads();
    float d[4], e[4];
    for (int i = 0; i < 4; i++) { d[i] = x[T] * 0.5f; e[i] = x[T] * 0.25f; }
    order();
    asm volatile("add.f32 %0, %0, 0f3F800000;" : "+f"(d[0]) :: "memory");
    add_product(e, plain(a), plain(a + 1024));
    order();
    add_product(d, plain(a), plain(a + 1024));
    multiplied();
    y[T] = d[0] + d[3] + e[0] + e[2];
""",
        block=128,
        arch="sm_90a",
    ),
    _case(
        "one_thread_frees_for_its_warpgroup",
        """
    __shared__ __align__(128) half s[2][1152]; __shared__ u64 full[2], empty[2];
    if (T == 0) { for (int i = 0; i < 2; i++) { init(&full[i], 1); init(&empty[i], 1); } proxy(); }
    __syncthreads();
    float d[4] = {};
    for (int i = 0; i < 6; i++) {
        int stage = i % 2, parity = i / 2 % 2;
        if (T == 128) {
            await(&empty[stage], parity ^ 1);
            expect(&full[stage], 2304);
            bulk(s[stage], x, 2304, &full[stage]);
        }
        if (T < 128) {
            await(&full[stage], parity);
            multiply(d, plain(s[stage]), plain(s[stage] + 1024));
            multiplied();
            if (T == 32 * (i % 4)) arrive(&empty[stage]);
        }
    }
    y[T] = d[0] + d[3];
""",
        block=160,
        arch="sm_90a",
    ),
    _case(
        "one_thread_hands_on_what_it_was_handed",
        """
    volatile int *first = y + 4000, *second = y + 4001; int seen;
    if (T == 0) {
        y[100] = x[5];
        asm volatile("st.release.gpu.global.s32 [%0], 1;" :: "l"(first) : "memory");
    }
    if (T == 37) {
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(first) : "memory"); while (!seen);
        asm volatile("st.release.gpu.global.s32 [%0], 1;" :: "l"(second) : "memory");
    }
    if (T == 64) {
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(second) : "memory"); while (!seen);
        y[T] = y[100];
    }
""",
        block=96,
    ),
    _case(
        "every_barrier_of_a_block",
        """
    __shared__ int s[128];
    for (int i = 0; i < 16; i++) {
        s[T] = i;
        meet(i, 128);
        y[T] += s[127 - T];
        meet(15 - i, 128);
    }
""",
        block=128,
    ),
]
