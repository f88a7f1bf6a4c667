"""Kernels for the checker: what they have in common, and how they are written.

Of a kernel's lines, those that end in ``//-`` are only in the faulty one and those that end in ``//+`` only in
the mended one; those with a ``//!`` are the ones that a finding has to name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["COUNT", "HEAD", "Case", "arrays"]

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
#define bulk_send(to, from, n, m) asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \
    :: "r"(to), "r"(at(from)), "r"(n), "r"(m) : "memory")
#define bulk_out(to, from, n) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t" \
    "cp.async.bulk.commit_group;" :: "l"(to), "r"(at(from)), "r"(n) : "memory")
#define bulk_add(to, from, n) asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], %2;\n\t" \
    "cp.async.bulk.commit_group;" :: "l"(to), "r"(at(from)), "r"(n) : "memory")
template <int n = 0> __device__ void bulk_done() { asm volatile("cp.async.bulk.wait_group %0;" :: "n"(n) : "memory"); }
__device__ void bulk_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ u64 plain(const void *p) { return (at(p) & 0x3FFFF) >> 4 | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32; }
#define multiply(d, a, b) asm volatile("wgmma.fence.sync.aligned;\n\t" \
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\n\t" \
    "wgmma.commit_group.sync.aligned;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b) : "memory")
#define add_product(d, a, b) asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\n\t" \
    "wgmma.commit_group.sync.aligned;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b) : "memory")
__device__ void order() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
template <int n = 0> __device__ void multiplied() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(n) : "memory"); }
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
