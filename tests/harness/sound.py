"""Kernels with nothing wrong with them, of kinds that a checker may easily take for wrong."""

from __future__ import annotations

from functools import cache

import tilewise as tw
from tests.harness.cases import HEAD, Case
from tests.harness.sound_meetings import MEETINGS

__all__ = ["SOUND", "kernel_of"]


def _case(
    name: str,
    body: str,
    grid: int = 1,
    block: int = 64,
    cluster: int | None = None,
    shared: int = 0,
    arch: str = "sm_80",
) -> Case:
    return Case(name, "", "", body, grid, block, cluster, shared, arch)


_FIRST = [
    _case(
        "double_buffer",
        """
    __shared__ int s[2][64];
    int sum = 0;
    s[0][T] = x[T];
    __syncthreads();
    for (int i = 0; i < 5; i++) {
        if (i < 4) s[(i + 1) % 2][T] = x[64 * (i + 1) + T];
        sum += s[i % 2][63 - T];
        __syncthreads();
    }
    y[T] = sum;
""",
    ),
    _case(
        "same_value_by_many",
        """
    __shared__ int any;
    any = 0;
    __syncthreads();
    if (x[T] > 3) any = 1;
    __syncthreads();
    y[T] = any;
""",
        block=256,
    ),
    _case(
        "same_value_by_blocks",
        """
    if (x[T] >= 0) y[0] = 1;
""",
        grid=4,
    ),
    _case(
        "bytes_of_a_word",
        """
    __shared__ unsigned char s[256];
    s[T] = T; s[T + 128] = 2 * T;
    s[T] += 1;
    y[T] = s[T] + s[T + 128];
    __syncthreads();
    y[T] += s[255 - T];
""",
        block=128,
    ),
    _case(
        "halves_of_a_word",
        """
    __shared__ half s[64];
    s[T] = __int2half_rn(T);
    s[T] = __hadd(s[T], s[T]);
    __syncthreads();
    y[T] = __half2int_rn(s[63 - T]);
""",
    ),
    _case(
        "own_bytes_of_other_warps",
        """
    __shared__ unsigned char s[64];
    int at = T % 16 * 4 + T / 16;
    for (int i = 0; i < 3; i++) s[at] = i + (i ? s[at] : 0);
    y[T] = s[at];
""",
    ),
    _case(
        "broadcast_and_own",
        """
    __shared__ int s[65];
    s[T] = x[T];
    if (T == 0) s[64] = 7;
    __syncthreads();
    int factor = s[64];
    s[T] = s[T] * factor;
    y[T] = s[T];
""",
    ),
    _case(
        "warp_exchange",
        """
    __shared__ int s[4][33];
    int w = WARP, l = T % 32;
    s[w][l] = x[T];
    __syncwarp();
    int a = s[w][l ^ 1];
    __syncwarp();
    s[w][l] = a + 1;
    __syncwarp();
    y[T] = s[w][31 - l];
""",
        block=128,
    ),
    _case(
        "shuffle_sum",
        """
    __shared__ int s[2];
    int v = x[T];
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    if (T % 32 == 0) s[WARP] = v;
    __syncthreads();
    y[T] = s[0] + s[1];
""",
    ),
    _case(
        "histogram",
        """
    __shared__ int s[16];
    if (T < 16) s[T] = 0;
    __syncthreads();
    for (int i = T; i < 512; i += 64) atomicAdd(s + x[i] % 16, 1);
    __syncthreads();
    if (T < 16) atomicAdd(y + T, s[T]);
""",
        grid=3,
    ),
    _case(
        "maximum_by_swaps",
        """
    int seen = *y, assumed;
    do {
        assumed = seen;
        if (assumed >= x[T]) break;
        seen = atomicCAS(y, assumed, x[T]);
    } while (seen != assumed);
""",
        grid=3,
    ),
    _case(
        "last_block_sums",
        """
    __shared__ bool last;
    __shared__ int s[64];
    s[T] = x[B * n + T];
    __syncthreads();
    if (T == 0) {
        int sum = 0;
        for (int i = 0; i < 64; i++) sum += s[i];
        ((volatile int *)y)[B] = sum;
        __threadfence();
        last = atomicInc((unsigned *)y + 100, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && T < gridDim.x) x[2000 + T] = ((volatile int *)y)[T];
""",
        grid=5,
    ),
    _case(
        "grid_barrier",
        """
    y[B * n + T] = x[B * n + T];
    __syncthreads();
    if (T == 0) {
        __threadfence();
        atomicAdd(y + 4000, 1);
        while (*(volatile int *)(y + 4000) < (int)gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
    x[2000 + B * n + T] = y[(gridDim.x - 1 - B) * n + 63 - T];
""",
        grid=4,
    ),
    _case(
        "lock",
        """
    if (T == 0) {
        while (atomicCAS(y + 200, 0, 1)) {}
        __threadfence();
        y[0] += x[B];
        __threadfence();
        atomicExch(y + 200, 0);
    }
""",
        grid=4,
    ),
    _case(
        "lock_of_lanes",
        """
    __shared__ int lock, sum;
    if (T == 0) { lock = 0; sum = 0; }
    __syncthreads();
    bool done = false;
    while (!done) {
        if (atomicCAS(&lock, 0, 1) == 0) {
            __threadfence();
            sum += x[T];
            __threadfence();
            atomicExch(&lock, 0);
            done = true;
        }
    }
    __syncthreads();
    y[T] = sum;
""",
    ),
    _case(
        "release_and_acquire",
        """
    int *flag = y + 300;
    if (B == 0) {
        y[T] = x[T];
        __syncthreads();
        if (T == 0) asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(flag) : "memory");
    } else {
        int seen = 0;
        while (!seen) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        x[1000 + B * n + T] = y[T];
    }
""",
        grid=3,
    ),
    _case(
        "volatile_flag",
        """
    __shared__ volatile int flag; __shared__ int value[32];
    if (T == 0) flag = 0;
    __syncthreads();
    if (WARP == 0) {
        value[T] = x[T];
        __syncwarp();
        __threadfence_block();
        if (T == 0) flag = 1;
    } else {
        while (!flag) {}
        __threadfence_block();
        y[T] = value[T - 32];
    }
""",
    ),
    _case(
        "scope_of_the_block",
        """
    int *mine = y + 64 * B;
    atomicAdd_block(mine + T % 8, x[T]);
    __syncthreads();
    if (T < 8) x[1000 + B * 8 + T] = mine[T];
""",
        grid=3,
    ),
    _case(
        "producer_and_consumer",
        """
    __shared__ int s[2][32];
    for (int i = 0; i < 4; i++) {
        if (WARP == 0) {
            if (i > 1) meet(3 + i % 2, 64);
            s[i % 2][T] = x[32 * i + T];
            come(1 + i % 2, 64);
        } else {
            meet(1 + i % 2, 64);
            y[32 * i + T - 32] = s[i % 2][63 - T];
            if (i < 2) come(3 + i % 2, 64);
        }
    }
""",
    ),
    _case(
        "barriers_of_pairs",
        """
    __shared__ int s[128];
    s[T] = x[T];
    meet(1 + WARP / 2, 64);
    int a = s[T ^ 32];
    meet(1 + WARP / 2, 64);
    s[T] = a;
    __syncthreads();
    y[T] = s[127 - T];
""",
        block=128,
    ),
    _case(
        "barrier_with_a_vote",
        """
    __shared__ int s[64];
    s[T] = x[T];
    int many = __syncthreads_count(x[T] > 500);
    y[T] = s[63 - T] + many;
""",
    ),
    _case(
        "early_exit",
        """
    __shared__ int s[64];
    if (T >= 40) return;
    s[T] = x[T];
    __syncthreads();
    y[T] = s[39 - T];
""",
    ),
    _case(
        "barrier_in_half_the_warps",
        """
    __shared__ int s[64];
    if (WARP < 2) {
        s[T] = x[T];
        meet(1, 64);
        y[T] = s[63 - T];
    } else y[T] = T;
""",
        block=128,
    ),
    _case(
        "barrier_of_lanes_apart",
        """
    __shared__ int s[64];
    s[T] = x[T];
    if (T % 2) asm volatile("barrier.sync 0;" ::: "memory"); else asm volatile("barrier.sync 0;" ::: "memory");
    y[T] = s[63 - T];
""",
    ),
    _case(
        "transposed_tile",
        """
    __shared__ int s[32][33];
    for (int j = 0; j < 4; j++) {
        for (int i = T / 32; i < 32; i += 8) s[i][T % 32] = x[j * 1024 + 32 * i + T % 32];
        __syncthreads();
        for (int i = T / 32; i < 32; i += 8) y[j * 1024 + 32 * i + T % 32] = s[T % 32][i];
        __syncthreads();
    }
""",
        block=256,
    ),
    _case(
        "vectors",
        """
    __shared__ __align__(16) int s[256];
    *(int4 *)(s + 4 * T) = *(int4 *)(x + 4 * T);
    __syncthreads();
    int2 v = *(int2 *)(s + 2 * (63 - T));
    y[T] = v.x + v.y + s[T];
""",
    ),
    _case(
        "stages",
        """
    __shared__ int s[3][64];
    int sum = 0;
    for (int i = 0; i < 2; i++) { cp4(s[i] + T, x + 64 * i + T); commit(); }
    for (int i = 0; i < 8; i++) {
        landed<1>();
        __syncthreads();
        sum += s[i % 3][63 - T];
        if (i + 2 < 8) cp4(s[(i + 2) % 3] + T, x + 64 * (i + 2) + T);
        commit();
    }
    y[T] = sum;
""",
    ),
    _case(
        "own_copy",
        """
    __shared__ int s[64];
    cp4(s + T, x + T);
    commit();
    landed<0>();
    y[T] = s[T];
""",
    ),
    _case(
        "copy_of_nothing",
        """
    __shared__ int s[64];
    y[T] = T; // which the other warp's copies do not read
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(at(s + T)), "l"(T < 32 ? x + 4090 + T : y + T - 32), "r"(T < 6 ? 4 : 0) : "memory");
    commit();
    landed<0>();
    __syncthreads();
    y[T] = s[63 - T];
""",
    ),
    _case(
        "copies_told_to_an_mbarrier",
        """
    __shared__ int s[64]; __shared__ u64 m;
    if (T == 0) init(&m, 64);
    __syncthreads();
    cp4(s + T, x + T);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at(&m)) : "memory");
    await(&m, 0);
    y[T] = s[63 - T];
""",
        arch="sm_90a",
    ),
    _case(
        "an_mbarrier_for_each_copy",
        """
    __shared__ int s[2][64]; __shared__ u64 m[2];
    if (T < 2) init(m + T, 64);
    __syncthreads();
    for (int i = 0; i < 2; i++) {
        cp4(s[i] + T, x + 64 * i + T);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at(m + i)) : "memory");
    }
    await(m, 0);
    int v = s[0][63 - T];
    await(m + 1, 0);
    y[T] = v + s[1][63 - T];
""",
        arch="sm_90a",
    ),
    _case(
        "mbarrier_ring",
        """
    __shared__ __align__(128) int s[2][64]; __shared__ u64 full[2], empty[2];
    if (T == 0) { for (int i = 0; i < 2; i++) { init(full + i, 1); init(empty + i, 64); } proxy(); }
    __syncthreads();
    int sum = 0;
    if (WARP == 2) {
        if (T == 64) for (int i = 0; i < 6; i++) {
            if (i > 1) await(empty + i % 2, (i / 2 - 1) % 2);
            expect(full + i % 2, 256);
            bulk(s[i % 2], x + 64 * i, 256, full + i % 2);
        }
        return;
    }
    for (int i = 0; i < 6; i++) {
        await(full + i % 2, i / 2 % 2);
        sum += s[i % 2][63 - T];
        arrive(empty + i % 2);
    }
    y[T] = sum;
""",
        block=96,
        arch="sm_90a",
    ),
    _case(
        "addresses_that_do_not_count",
        """
    __shared__ __align__(16) short s[128], unset[128];
    for (int i = T; i < 128; i += 32) s[i] = x[i];
    __syncwarp();
    u32 v, w, z;
    u32 one = at((T < 8 ? s : unset) + 8 * (T % 16)), two = at((T < 16 ? s : unset) + 8 * (T % 16));
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(one) : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(w), "=r"(z) : "r"(two) : "memory");
    y[T] = v + w + z;
""",
        block=32,
    ),
    _case(
        "mbarrier_of_another_warp",
        """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) init(&m, 1);
    __syncthreads();
    if (T == 32) { expect(&m, 256); bulk(s, x, 256, &m); }
    await(&m, 0);
    y[T] = s[63 - T];
""",
        arch="sm_90a",
    ),
    _case(
        "sent_with_fence",
        """
    __shared__ __align__(128) int s[64];
    for (int i = 0; i < 3; i++) {
        s[T] = x[64 * i + T];
        proxy();
        __syncthreads();
        if (T == 0) { bulk_out(y + 64 * i, s, 256); bulk_read(); }
        __syncthreads();
    }
""",
        arch="sm_90a",
    ),
    _case(
        "neighbours",
        """
    __shared__ int s[64];
    s[T] = x[B * n + T];
    cluster();
    u32 v; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s + 63 - T), (B + 1) % 4)) : "memory");
    cluster();
    y[B * n + T] = v;
""",
        grid=4,
        cluster=4,
        arch="sm_90a",
    ),
    _case(
        "sums_of_a_cluster",
        """
    __shared__ int s;
    if (T == 0) s = 0;
    cluster();
    asm volatile("red.shared::cluster.add.u32 [%0], %1;" :: "r"(remote(at(&s), 0)), "r"(x[T]) : "memory");
    cluster();
    if (B == 0) y[T] = s;
""",
        grid=4,
        cluster=4,
        arch="sm_90a",
    ),
    _case(
        "a_neighbours_mbarrier",
        """
    __shared__ int s[64]; __shared__ u64 m;
    if (T == 0) { init(&m, 64); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
    asm volatile("barrier.cluster.arrive.relaxed;\\n\\tbarrier.cluster.wait;" ::: "memory");
    asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(remote(at(s + T), B ^ 1)), "r"(T) : "memory");
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(remote(at(&m), B ^ 1)) : "memory");
    u32 done = 0;
    while (!done) asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(done) : "r"(at(&m)) : "memory");
    y[B * n + T] = s[63 - T];
    cluster();
""",
        grid=2,
        cluster=2,
        arch="sm_90a",
    ),
    _case(
        "relaxed_to_the_end",
        """
    __shared__ int s[64];
    s[T] = x[B * n + T];
    cluster();
    u32 v; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s + T), B ^ 1)) : "memory");
    y[B * n + T] = v;
    asm volatile("barrier.cluster.arrive.relaxed;\\n\\tbarrier.cluster.wait;" ::: "memory");
""",
        grid=2,
        cluster=2,
        arch="sm_90a",
    ),
    _case(
        "a_wait_for_fewer_products_behind_one_for_all",
        """
    __shared__ __align__(128) half s[64 * 16 + 8 * 16];
    float d[4] = {}, e[4] = {};
    for (int i = T; i < 1152; i += 128) s[i] = __int2half_rn(i % 7);
    proxy();
    __syncthreads();
    multiply(d, plain(s), plain(s + 1024));
    multiplied();
    multiplied<1>();
    y[T] = d[0] + d[3];
    multiply(d, plain(s), plain(s + 1024));
    multiply(e, plain(s), plain(s + 1024));
    multiplied<1>();
    multiplied<2>();
    d[0] += 1;
    multiplied();
    y[128 + T] = d[0] + e[3];
""",
        block=128,
        arch="sm_90a",
    ),
    _case(
        "product",
        """
    __shared__ __align__(128) half s[64 * 16 + 8 * 16];
    float d[4] = {};
    for (int j = 0; j < 2; j++) {
        for (int i = T; i < 1152; i += 128) s[i] = __int2half_rn((i + j) % 7);
        proxy();
        __syncthreads();
        multiply(d, plain(s), plain(s + 1024));
        multiplied();
        __syncthreads();
    }
    y[T] = d[0] + d[3];
""",
        block=128,
        arch="sm_90a",
    ),
]
SOUND = [*_FIRST, *MEETINGS]
_PER_SOURCE = 12


@cache
def _sources() -> dict[str, str]:
    found: dict[str, str] = {}
    for arch in sorted({case.arch for case in SOUND}):
        cases = [case for case in SOUND if case.arch == arch]
        for start in range(0, len(cases), _PER_SOURCE):
            group = cases[start : start + _PER_SOURCE]
            text = "\n".join([HEAD, *(case.text(True) for case in group)])
            found |= dict.fromkeys([case.name for case in group], text)
    return found


def kernel_of(case: Case) -> tw.Kernel:
    return tw.Kernel(_sources()[case.name], f"{case.name}_mended", case.arch)
