"""Kernels that copy one box of a tensor, or one run of bytes, with every instruction that there is for it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tilewise as tw
from tilewise.devices.tensor_map import ELEMENTS

__all__ = ["FILL", "OPERATIONS", "REDUCTIONS", "kernel", "reduced"]

FILL = 0xEE  # in shared memory before a load
OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
REDUCTIONS = {  # the element types that each has
    "add": "uint32 int32 uint64 float16 bfloat16 float32 float32_ftz tfloat32 float64",
    "min": "uint32 int32 uint64 int64 float16 bfloat16",
    "max": "uint32 int32 uint64 int64 float16 bfloat16",
    "inc": "uint32",
    "dec": "uint32",
    "and": "uint32 int32 uint64",
    "or": "uint32 int32 uint64",
    "xor": "uint32 int32 uint64",
}

_HEAD = r"""
typedef unsigned u32;
typedef unsigned long long u64;
struct alignas(64) Map { u64 bits[16]; };
extern __shared__ __align__(1024) unsigned char tile[];
__device__ u32 here(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void await(u32 bar) {
    u32 over = 0;
    while (!over)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(bar) : "memory");
}
"""
# what: kind of the copy, offset in shared memory, bytes to expect, bytes of shared memory, five coordinates,
# three im2col offsets, operation
_KERNELS = r"""
extern "C" __global__ void load(const __grid_constant__ Map map, const int *what, unsigned char *out) {
    __shared__ alignas(8) u64 barrier;
    u32 bar = here(&barrier), to = here(tile) + what[1];
    int size = what[3];
    const int *c = what + 4, *o = what + 9;
    for (int i = threadIdx.x; i < size; i += blockDim.x) tile[i] = 0xEE;
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(what[2]) : "memory");
        switch (what[0]) { LOADS }
    }
    await(bar);
    for (int i = threadIdx.x; i < size; i += blockDim.x) out[i] = tile[i];
}
extern "C" __global__ void store(const __grid_constant__ Map map, const int *what, const unsigned char *from) {
    u32 at = here(tile) + what[1];
    const int *c = what + 4;
    for (int i = threadIdx.x; i < what[3]; i += blockDim.x) tile[i] = from[i];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        switch (what[0]) { STORES }
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
extern "C" __global__ void store_and_read(const __grid_constant__ Map map, const int *what, const unsigned char *from,
                                          const unsigned char *array, unsigned char *out, int size, int wait) {
    u32 at = here(tile) + what[1];
    const int *c = what + 4;
    for (int i = threadIdx.x; i < what[3]; i += blockDim.x) tile[i] = from[i];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        switch (what[0]) { STORES }
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        if (wait == 1) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        if (wait == 2) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        for (int i = 0; i < size; i++) out[i] = array[i];
    }
}
"""


def _load(rank: int, im2col: bool) -> str:
    coordinates = ", ".join(f"%{i + 2}" for i in range(rank))
    offsets = [f"%{rank + 3 + i}" for i in range(rank - 2)] if im2col else []
    mode = "im2col" if im2col else "tile"
    text = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes "
        f"[%0], [%1, {{{coordinates}}}], [%{rank + 2}]"
        + (f", {{{', '.join(offsets)}}}" if offsets else "")
        + ";"
    )
    given = ['"r"(to)', '"l"(&map)', *(f'"r"(c[{i}])' for i in range(rank)), '"r"(bar)']
    given += [f'"h"((unsigned short)o[{i}])' for i in range(len(offsets))]
    return f'case {rank + 10 * im2col}: asm volatile("{text}" :: {", ".join(given)} : "memory"); break;'


def _store(rank: int, mode: str, operation: str = "") -> str:
    coordinates = ", ".join(f"%{i + 1}" for i in range(rank))
    verb = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}" if operation else (
        f"cp.async.bulk.tensor.{rank}d.global.shared::cta"
    )  # fmt: skip
    text = f"{verb}.{mode}.bulk_group [%0, {{{coordinates}}}], [%{rank + 1}];"
    given = ['"l"(&map)', *(f'"r"(c[{i}])' for i in range(rank)), '"r"(at)']
    number = (
        rank + (10 if mode != "tile" else 0) + (20 + 10 * OPERATIONS.index(operation) if operation else 0)
    )
    return f'case {number}: asm volatile("{text}" :: {", ".join(given)} : "memory"); break;'


@functools.cache
def kernel(name: str) -> tw.Kernel:
    """``load`` (kinds: rank, 10 more for im2col) or ``store`` (20 more and 10 for each operation); or
    ``store_and_read``, which reads an array behind a store and a wait: none, for its source, for all of it."""
    loads = [_load(rank, im2col) for im2col in (False, True) for rank in range(3 if im2col else 1, 6)]
    stores = [_store(rank, "tile") for rank in range(1, 6)]
    stores += [_store(rank, "im2col_no_offs") for rank in range(3, 6)]
    stores += [_store(2, "tile", operation) for operation in OPERATIONS]
    text = _HEAD + _KERNELS.replace("LOADS", "\n".join(loads)).replace("STORES", "\n".join(stores))
    return tw.Kernel(text, name, arch="sm_90a")


def reduced(device: Any, dtype: str, operation: str, old: Any, new: Any) -> Any:
    """Two rows of a tensor, 256 bytes each, after a reduction of a box of as many."""
    size = ELEMENTS[dtype].size
    x = device.array(old)
    made = tw.TensorMap(x.ptr, (2, 256 // size), dtype=dtype, shape=(2, 256 // size), strides=(256,))
    numbers = np.array([2 + 20 + 10 * OPERATIONS.index(operation), 0, 0, 512, *[0] * 8], np.int32)
    kernel("store")(
        1, 32, [made, device.array(numbers), device.array(new)], shared=512, device=device, timeout=20
    )
    return x.numpy()
