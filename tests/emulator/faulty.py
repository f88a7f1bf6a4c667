"""Kernels with one fault each, and the same kernels mended.

Of a kernel's lines, those that end in ``//-`` are only in the faulty one and those that end in ``//+`` only in
the mended one; those with a ``//!`` are the ones that a finding has to name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tilewise as tw

__all__ = ["CASES", "COUNT", "HEAD", "Case", "arrays", "kernel_of", "marked"]

COUNT = 4096
HEAD = r"""
#include <cuda_fp16.h>
typedef unsigned u32;
typedef unsigned long long u64;
#define T int(threadIdx.x)
#define B int(blockIdx.x)
#define WARP (T / 32)
__device__ u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ u32 remote(u32 a, u32 rank) { u32 r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(rank)); return r; }
#define cp4(to, from) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(to)), "l"(from) : "memory")
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n> __device__ void landed() { asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory"); }
#define meet(number, count) asm volatile("bar.sync %0, %1;" :: "r"(number), "r"(count) : "memory")
#define come(number, count) asm volatile("bar.arrive %0, %1;" :: "r"(number), "r"(count) : "memory")
__device__ void cluster() { asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory"); }
__device__ void proxy() { asm volatile("fence.proxy.async;" ::: "memory"); }
#define init(m, n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at(m)), "r"(n) : "memory")
#define arrive(m) asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" :: "r"(at(m)) : "memory")
__device__ void expect(u64 *m, int n) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at(m)), "r"(n) : "memory"); }
#if __CUDA_ARCH__ >= 900
__device__ bool over(u64 *m, int parity) {
    u32 r; asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(r) : "r"(at(m)), "r"(parity) : "memory"); return r;
}
__device__ void await(u64 *m, int parity) { while (!over(m, parity)) {} }
#define bulk(to, from, n, m) asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \
    :: "r"(at(to)), "l"(from), "r"(n), "r"(at(m)) : "memory")
#define bulk_out(to, from, n) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t" \
    "cp.async.bulk.commit_group;" :: "l"(to), "r"(at(from)), "r"(n) : "memory")
__device__ void bulk_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ u64 plain(const void *p) { return (at(p) & 0x3FFFF) >> 4 | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32; }
#define multiply(d, a, b) asm volatile("wgmma.fence.sync.aligned;\n\t" \
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\n\t" \
    "wgmma.commit_group.sync.aligned;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b) : "memory")
__device__ void multiplied() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
#endif
"""


@dataclass(frozen=True)
class Case:
    """A kernel ``(int *x, int *y, int n)``, where n is the number of threads of a block."""

    name: str
    tool: str
    kind: str
    body: str
    grid: int = 1
    block: int = 64
    cluster: int | None = None
    shared: int = 0
    arch: str = "sm_80"
    orders: tuple[str | int, ...] = ("eager", "late", 3)

    def text(self, mended: bool) -> str:
        lines = self.body.strip("\n").splitlines()
        kept = [line for line in lines if not line.rstrip().endswith("//-" if mended else "//+")]
        name = f"{self.name}_{'mended' if mended else 'faulty'}"
        return "\n".join([f'extern "C" __global__ void {name}(int *x, int *y, int n) {{', *kept, "}"])


def arrays() -> tuple[Any, Any]:
    return np.random.default_rng().integers(0, 1000, COUNT).astype(np.int32), np.zeros(COUNT, np.int32)


_PER_SOURCE = 8


@cache
def _sources() -> dict[str, str]:
    """By case: the source that both of its kernels are in."""
    found: dict[str, str] = {}
    for arch in sorted({case.arch for case in CASES}):
        cases = [case for case in CASES if case.arch == arch]
        for start in range(0, len(cases), _PER_SOURCE):
            group = cases[start : start + _PER_SOURCE]
            text = "\n".join([HEAD, *(case.text(mended) for case in group for mended in (False, True))])
            found |= dict.fromkeys([case.name for case in group], text)
    return found


def kernel_of(case: Case, mended: bool) -> tw.Kernel:
    name = f"{case.name}_{'mended' if mended else 'faulty'}"
    return tw.Kernel(_sources()[case.name], name, case.arch)


def marked(case: Case) -> set[int]:
    """The lines of the faulty kernel that its finding has to name."""
    lines = _sources()[case.name].splitlines()
    start = next(i for i, line in enumerate(lines) if f" {case.name}_faulty(" in line)
    end = next(i for i in range(start, len(lines)) if lines[i] == "}")
    return {i + 1 for i in range(start, end) if "//!" in lines[i]}


_RACES = [
    Case("missing_barrier", "racecheck", "read-write", """
    __shared__ int s[64];
    s[T] = x[T];                                                        //!
    __syncthreads();                                                        //+
    y[T] = s[63 - T];                                                   //!
"""),
    Case("next_turn", "racecheck", "read-write", """
    __shared__ int s[64];
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        s[T] = x[64 * i + T];                                               //!
        __syncthreads();
        sum += s[63 - T];                                               //!
        __syncthreads();                                                       //+
    }
    y[T] = sum;
"""),
    Case("two_writers", "racecheck", "write-write", """
    __shared__ int s[64];
    s[T % 32] = T;                                                            //! //-
    s[T] = T;                                                                 //+
    __syncthreads();
    y[T] = s[T % 32];
"""),
    Case("one_instruction", "racecheck", "write-write", """
    __shared__ int s;
    s = T;                                                                  //! //-
    if (T == 5) s = T;                                                          //+
    __syncthreads();
    y[T] = s;
""", block=32),
    Case("warp_without_sync", "racecheck", "read-write", """
    __shared__ int s[32];
    s[T] = x[T];                                                    //!
    __syncwarp();                                                           //+
    y[T] = s[31 - T];                                                //!
""", block=32),
    Case("tree", "racecheck", "read-write", """
    __shared__ int s[128];
    s[T] = x[T];
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (T < d) s[T] += s[T + d];                                               //!
        __syncthreads();                                                              //+
    }
    __syncthreads();                                                              //-
    if (T == 0) y[0] = s[0];
""", block=128),
    Case("counter_read_early", "racecheck", "read-write", """
    __shared__ int s;
    if (T == 0) s = 0;
    __syncthreads();
    atomicAdd(&s, x[T]);                                                          //!
    __syncthreads();                                                                //+
    y[T] = s;                                                             //!
"""),
    Case("atomic_and_plain", "racecheck", "write-write", """
    __shared__ int s;
    if (T == 0) s = 7;                                                          //!
    __syncthreads();                                                                //+
    if (T == 40) atomicExch(&s, 9);                                               //!
    __syncthreads();
    y[T] = s;
"""),
    Case("one_byte_for_two", "racecheck", "write-write", """
    __shared__ unsigned char s[64];
    s[T] = 0;
    __syncthreads();
    s[T % 32] = T;                                                               //! //-
    s[T] = T;                                                                     //+
    __syncthreads();
    y[T] = s[T];
"""),
    Case("a_neighbours_half", "racecheck", "read-write", """
    __shared__ short s[64];
    s[T] = x[T];                                                          //!
    __syncthreads();                                                          //+
    y[T] = s[T ^ 32];                                                    //!
"""),
    Case("four_at_once", "racecheck", "read-write", """
    __shared__ __align__(16) int s[256];
    *(int4 *)(s + 4 * T) = make_int4(T, T, T, x[T]);                                //!
    __syncthreads();                                                           //+
    y[T] = s[255 - T];                                                           //!
"""),
    Case("another_barrier", "racecheck", "read-write", """
    __shared__ int s[128];
    s[T] = x[T];                                                                  //!
    meet(1 + WARP % 2, 64);                                                            //-
    meet(1 + WARP / 2, 64);                                                            //+
    y[T] = s[T ^ 32];                                                         //!
""", block=128),
    Case("arrived_before_writing", "racecheck", "read-write", """
    __shared__ int s[32];
    if (WARP == 0) {
        come(1, 64);                                                                //-
        s[T] = x[T];                                                                  //!
        __syncwarp();
        come(1, 64);                                                                 //+
    } else {
        meet(1, 64);
        y[T] = s[T - 32];                                                         //!
    }
"""),
    Case("branches", "racecheck", "read-write", """
    __shared__ int s[64];
    if (WARP == 0) s[T] = x[T];                                                        //!
    __syncthreads();                                                                       //+
    if (WARP == 1) y[T] = s[T - 32];                                                    //!
"""),
    Case("one_lane_for_all", "racecheck", "read-write", """
    __shared__ int s;
    if (T == 3) s = x[0];                                                                //!
    __syncwarp();                                                                          //+
    y[T] = s;                                                                           //!
""", block=32),
    Case("matrix_too_early", "racecheck", "read-write", """
    __shared__ __align__(16) half s[64];
    s[T] = __int2half_rn(T);                                                                //!
    __syncthreads();                                                                          //+
    if (WARP == 0) { u32 r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(at(s + T % 8 * 8)) : "memory"); //!
    y[T] = r; }
"""),
    Case("neighbour_block", "racecheck", "read-write", """
    __shared__ int s[64];
    s[T] = B * 100 + T;                                                                   //!
    cluster();                                                                                 //+
    u32 v; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s + T), B ^ 1)) : "memory"); //!
    cluster();
    y[B * n + T] = v;
""", grid=2, cluster=2, arch="sm_90a"),
    Case("to_a_neighbour", "racecheck", "read-write", """
    __shared__ int s[64];
    cluster();
    asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(remote(at(s + T), B ^ 1)), "r"(T) : "memory"); //!
    asm volatile("barrier.cluster.arrive.relaxed;\\n\\tbarrier.cluster.wait;" ::: "memory");  //-
    cluster();                                                                                 //+
    y[B * n + T] = s[T];                                                                       //!
    cluster();
""", grid=2, cluster=2, arch="sm_90a"),
    Case("blocks_write_alike", "racecheck", "write-write", """
    y[T] = B * 1000 + T;                                                                        //! //-
    y[B * n + T] = B * 1000 + T;                                                                  //+
""", grid=2),
    Case("blocks_read_early", "racecheck", "read-write", """
    int value = x[(B ^ 1) * n + T];                                                              //!
    x[B * n + T] = value;                                                                        //! //-
    y[B * n + T] = value;                                                                        //+
""", grid=2),
    Case("within_global", "racecheck", "read-write", """
    y[T] = x[T];                                                                                  //!
    __syncthreads();                                                                                //+
    x[64 + T] = y[63 - T];                                                                      //!
"""),
    Case("last_block_without_fence", "racecheck", "read-write", """
    __shared__ bool last;
    if (T == 0) {
        y[B] = x[B];                                                                             //!
        __threadfence();                                                                           //+
        last = atomicAdd(y + 100, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && T < gridDim.x) x[1000 + T] = y[T];                                               //!
""", grid=4),
    Case("flag_without_release", "racecheck", "read-write", """
    if (B == 0) {
        y[T] = x[T];                                                                          //!
        __syncthreads();
        __threadfence();                                                                      //+
        if (T == 0) atomicExch(y + 200, 1);
    } else {
        if (T == 0) while (atomicAdd(y + 200, 0) == 0) {}
        __syncthreads();
        x[1000 + T] = y[T];                                                                      //!
    }
""", grid=2),
    Case("flag_without_acquire", "racecheck", "read-write", """
    if (B == 0) {
        if (T == 0) { y[0] = x[0];                                                                  //!
            __threadfence(); *(volatile int *)(y + 200) = 1; }
    } else if (T == 0) {
        while (*(volatile int *)(y + 200) == 0) {}
        __threadfence();                                                                            //+
        x[1000] = y[0];                                                                           //!
    }
""", grid=2),
    Case("lock_without_fences", "racecheck", "write-write", """
    if (T == 0) {
        while (atomicCAS(y + 200, 0, 1)) {}
        __threadfence();                                                                          //+
        y[0] = B + 5;                                                                           //!
        __threadfence();                                                                          //+
        atomicExch(y + 200, 0);
    }
""", grid=3),
    Case("scope_too_small", "racecheck", "write-write", """
    if (T == 0) atomicAdd_block(y, x[B]);                                                     //! //-
    if (T == 0) atomicAdd(y, x[B]);                                                            //+
""", grid=3),
]
_UNSET = [
    Case("unset_shared", "initcheck", "unset", """
    __shared__ int s[64];
    if (T < 60) s[T] = x[T];                                                                //-
    s[T] = x[T];                                                                                //+
    __syncthreads();
    y[T] = s[63 - T];                                                                             //!
"""),
    Case("unset_byte", "initcheck", "unset", """
    __shared__ __align__(4) unsigned char s[256];
    for (int i = T; i < 256; i += 64) if (i != 77) s[i] = i;                                      //-
    for (int i = T; i < 256; i += 64) s[i] = i;                                                   //+
    __syncthreads();
    y[T] = ((int *)s)[T];                                                                             //!
"""),
    Case("unset_counter", "initcheck", "unset", """
    __shared__ int s;
    if (T == 0) s = 0;                                                                                 //+
    __syncthreads();
    atomicAdd(&s, 1);                                                                               //!
    __syncthreads();
    y[T] = 0;
"""),
    Case("unset_padding", "initcheck", "unset", """
    __shared__ int s[8][9];
    s[T / 8][T % 8] = x[T];
    if (T < 8) s[T][8] = 0;                                                                            //+
    __syncthreads();
    int sum = 0;
    if (T < 8) for (int i = 0; i < 9; i++) sum += s[T][i];                                             //!
    y[T] = sum;
"""),
]
_MEMORY = [
    Case("one_too_far", "memcheck", "out-of-bounds", """
    y[4033 + T] = x[T];                                                                            //! //-
    if (4033 + T < 4096) y[4033 + T] = x[T];                                                           //+
"""),
    Case("before_the_start", "memcheck", "out-of-bounds", """
    y[T] = x[T - 1];                                                                                  //! //-
    y[T] = x[T ? T - 1 : 0];                                                                           //+
"""),
    Case("shared_too_far", "memcheck", "out-of-bounds", """
    extern __shared__ int s[];
    s[T + 1] = x[T];                                                                                  //! //-
    s[T] = x[T];                                                                                      //+
    __syncthreads();
    y[T] = s[T];
""", shared=256),
    Case("misaligned_pair", "memcheck", "misaligned", """
    *(int2 *)(y + 2 * T + 1) = make_int2(T, T);                                                         //! //-
    *(int2 *)(y + 2 * T) = make_int2(T, T);                                                             //+
"""),
    Case("misaligned_shared", "memcheck", "misaligned", """
    __shared__ __align__(16) int s[264];
    for (int i = T; i < 264; i += 64) s[i] = i;
    __syncthreads();
    int4 v = *(int4 *)(s + 4 * T + n / 64);                                                            //! //-
    int4 v = *(int4 *)(s + 4 * T);                                                                      //+
    y[T] = v.x + v.w;
"""),
    Case("no_such_block", "memcheck", "no-such-block", """
    __shared__ int s[64];
    s[T] = T;
    cluster();
    u32 v, to = B + 1;                                                                                     //-
    u32 v, to = (B + 1) % 2;                                                                                //+
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s + T), to)) : "memory");   //!
    y[B * n + T] = v;
    cluster();
""", grid=2, cluster=2, arch="sm_90a"),
]
_BARRIERS = [
    Case("divergent_barrier", "synccheck", "divergent-barrier", """
    if (T % 2) {
        y[T] = 1;
        __syncthreads();                                                                               //! //-
    } else {
        y[T] = 2;
        asm volatile("bar.sync 1;");                                                                       //-
    }
    __syncthreads();                                                                                     //+
    y[T] += 1;
"""),
    Case("never_met", "synccheck", "deadlock", """
    if (WARP == 0) meet(1, 64);                                                                            //-
    meet(1, 64);                                                                                         //+
    y[T] = T;
"""),
    Case("odd_count", "synccheck", "bad-barrier", """
    meet(1, 33);                                                                                       //! //-
    meet(1, 64);                                                                                           //+
    y[T] = T;
"""),
    Case("two_counts", "synccheck", "bad-barrier", """
    meet(1, WARP ? 64 : 96);                                                                         //! //-
    meet(1, 96);                                                                                      //+
    y[T] = T;
""", block=96, orders=("eager",)),
    Case("too_many_arrivals", "synccheck", "bad-mbarrier", """
    __shared__ u64 m;
    if (T == 0) init(&m, 8);
    __syncthreads();
    int many = n / 7;                                                                                    //-
    int many = n / 8;                                                                                      //+
    if (T == 0) asm volatile("{ .reg .b64 s; mbarrier.arrive.noComplete.shared.b64 s, [%0], %1; }" :: "r"(at(&m)), "r"(many - 1)); //!
    y[T] = T;
"""),
    Case("never_complete", "synccheck", "deadlock", """
    __shared__ u64 m;
    if (T == 0) init(&m, 65);                                                                           //-
    if (T == 0) init(&m, 64);                                                                               //+
    __syncthreads();
    arrive(&m);
    await(&m, 0);
    y[T] = T;
""", arch="sm_90a", orders=("late",)),
    Case("arrived_twice", "synccheck", "bad-barrier", """
    asm volatile("barrier.cluster.arrive;" ::: "memory");
    asm volatile("barrier.cluster.arrive;" ::: "memory");                                               //! //-
    asm volatile("barrier.cluster.wait;" ::: "memory");
    y[B * n + T] = T;
""", grid=2, cluster=2, arch="sm_90a"),
]
_FLIGHTS = [
    Case("not_waited", "asyncheck", "read-in-flight", """
    __shared__ int s[64];
    cp4(s + T, x + T);                                                                       //!
    commit();
    landed<0>();                                                                                       //+
    __syncthreads();
    y[T] = s[63 - T];                                                                                    //!
"""),
    Case("one_group_too_many", "asyncheck", "read-in-flight", """
    __shared__ int s[2][64];
    cp4(s[0] + T, x + T);                                                                              //!
    commit();
    cp4(s[1] + T, x + 64 + T);
    commit();
    landed<2>();                                                                                             //-
    landed<1>();                                                                                          //+
    __syncthreads();
    int first = s[0][63 - T];                                                                         //!
    landed<0>();
    __syncthreads();
    y[T] = first + s[1][63 - T];
"""),
    Case("waited_but_not_met", "racecheck", "read-write", """
    __shared__ int s[64];
    cp4(s + T, x + T);                                                                           //!
    commit();
    landed<0>();
    __syncthreads();                                                                                 //+
    y[T] = s[63 - T];                                                                                  //!
"""),
    Case("two_copies_to_one_place", "asyncheck", "write-in-flight", """
    __shared__ int s[64];
    cp4(s + T, x + T);                                                                                     //!
    commit();
    landed<0>();                                                                                             //+
    cp4(s + T, x + 64 + T);                                                                               //!
    commit();
    landed<0>();
    __syncthreads();
    y[T] = s[63 - T];
"""),
    Case("stored_into_a_copy", "asyncheck", "write-in-flight", """
    __shared__ int s[64];
    cp4(s + T, x + T);                                                                                   //!
    commit();
    landed<0>();                                                                                           //+
    if (T == 0) s[T] = 5;                                                                                 //!
    landed<0>();
    __syncthreads();
    y[T] = s[63 - T];
"""),
    Case("stage_reused", "racecheck", "read-write", """
    __shared__ int s[64];
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        cp4(s + T, x + 64 * i + T);                                                                        //!
        commit();
        landed<0>();
        __syncthreads();
        sum += s[63 - T];                                                                                  //!
        __syncthreads();                                                                                     //+
    }
    y[T] = sum;
"""),
    Case("bulk_not_waited", "asyncheck", "read-in-flight", """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) { init(&m, 1); proxy(); }
    __syncthreads();
    if (T == 0) { expect(&m, 256);
        bulk(s, x, 256, &m);                                                                          //!
    }
    await(&m, 0);                                                                                           //+
    __syncthreads();
    y[T] = s[63 - T];                                                                                       //!
""", arch="sm_90a"),
    Case("wrong_parity", "asyncheck", "read-in-flight", """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) { init(&m, 1); proxy(); }
    __syncthreads();
    if (T == 0) { expect(&m, 256);
        bulk(s, x, 256, &m);                                                                              //!
    }
    await(&m, 1);                                                                                               //-
    await(&m, 0);                                                                                          //+
    y[T] = s[63 - T];                                                                                        //!
""", arch="sm_90a", orders=("late",)),
    Case("refilled_too_early", "asyncheck", "copy-too-early", """
    __shared__ __align__(128) int s[64]; __shared__ u64 m;
    if (T == 0) { init(&m, 1); proxy(); }
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < 3; i++) {
        if (T == 0) { expect(&m, 256);
            bulk(s, x + 64 * i, 256, &m);                                                                  //!
        }
        await(&m, i % 2);
        sum += s[63 - T];                                                                              //!
        __syncthreads();                                                                                     //+
    }
    y[T] = sum;
""", arch="sm_90a", orders=("late",)),
    Case("sent_without_fence", "asyncheck", "unfenced", """
    __shared__ __align__(128) int s[64];
    s[T] = x[T];                                                                                         //!
    proxy();                                                                                                   //+
    __syncthreads();
    if (T == 0) {
        bulk_out(y, s, 256);                                                                                 //!
        bulk_read();
    }
""", arch="sm_90a"),
    Case("source_overwritten", "asyncheck", "source-in-flight", """
    __shared__ __align__(128) int s[64];
    s[T] = x[T];
    proxy();
    __syncthreads();
    if (T == 0) {
        bulk_out(y, s, 256);                                                                                  //!
        bulk_read();                                                                                            //+
        s[0] = 5;                                                                                             //!
        bulk_read();
    }
""", arch="sm_90a"),
    Case("used_before_initialised", "racecheck", "uninitialised-mbarrier", """
    __shared__ u64 m;
    if (T == 0) init(&m, 32);                                                                                //!
    __syncthreads();                                                                                           //+
    if (T >= 32) arrive(&m);                                                                               //!
    y[T] = T;
""", orders=("eager",)),
    Case("product_without_fence", "asyncheck", "unfenced", """
    __shared__ __align__(128) half s[64 * 16 + 8 * 16];
    for (int i = T; i < 1152; i += 128) s[i] = __int2half_rn(i % 7);                                           //!
    proxy();                                                                                                      //+
    __syncthreads();
    float d[4] = {};
    multiply(d, plain(s), plain(s + 1024));                                                                         //!
    multiplied();
    y[T] = d[0] + d[3];
""", block=128, arch="sm_90a"),
    Case("operand_overwritten", "asyncheck", "source-in-flight", """
    __shared__ __align__(128) half a[64 * 16], b[8 * 16];
    for (int i = T; i < 1024; i += 128) a[i] = __int2half_rn(i % 7);
    b[T] = __int2half_rn(T % 5);
    proxy();
    __syncthreads();
    float d[4] = {};
    multiply(d, plain(a), plain(b));                                                                        //!
    multiplied();                                                                                            //+
    __syncthreads();
    b[T] = __int2half_rn(1);                                                                                     //!
    multiplied();
    y[T] = d[0] + d[3];
""", block=128, arch="sm_90a"),
]
CASES = [*_RACES, *_UNSET, *_MEMORY, *_BARRIERS, *_FLIGHTS]
