"""Bulk copies and reductions of bytes, between blocks and with memory; values sent to other blocks."""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tests.emulator.instructions.test_modifiers import code
from tilewise.errors import KernelFault, PtxError

ORDERS = ("eager", "late", 5)
HEAD = r"""
typedef unsigned u32;
typedef unsigned long long u64;
struct alignas(64) Map { u64 bits[16]; };
extern __shared__ __align__(1024) unsigned char tile[];
__device__ u32 here(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ u32 at_rank(u32 address, u32 rank) {
    u32 r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank)); return r;
}
__device__ void meet() { asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory"); }
__device__ void begin(u32 bar, u32 bytes) {
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
    }
    __syncthreads();
}
__device__ void await(u32 bar) {
    u32 over = 0;
    while (!over)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(bar) : "memory");
}
__device__ void finish() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
"""


def device(order: str | int = "eager") -> Any:
    return tw.device("emulator", order=order, threads=2)


def kernel(body: str, parameters: str) -> tw.Kernel:
    text = f'{HEAD}extern "C" __global__ void k({parameters}) {{ __shared__ alignas(8) u64 barrier; {body} }}'
    return tw.Kernel(text, "k", arch="sm_90a")


def random_bytes(count: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(os.urandom(count), np.uint8)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("space", ["shared::cta", "shared::cluster"])
def test_in_and_out_again(space: str, order: str | int) -> None:
    k = kernel(
        f"""
        u32 bar = here(&barrier), to = here(tile) + 32;
        begin(bar, n);
        if (threadIdx.x == 0)
            asm volatile("cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                         :: "r"(to), "l"(x + 16), "r"(n), "r"(bar), "l"(0ull) : "memory");
        await(bar);
        if (threadIdx.x == 0) {{
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(x), "r"(n));
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(y), "l"(to | 1ull << 40), "r"(n) : "memory");
            finish();  // of an address in shared memory 32 bits count
        }}""",
        "const unsigned char *x, unsigned char *y, u32 n",
    )
    for count in (0, 16, 48, 4096):
        x, y = random_bytes(4200), np.zeros(4096, np.uint8)
        k(3, 64, [x, y, count], shared=8192, device=device(order), timeout=20)
        assert y[:count].tobytes() == x[16 : 16 + count].tobytes() and not y[count:].any()


def test_what_is_not_awaited_is_not_there() -> None:
    """In the late order a load that nobody waits for shows, and so does a source that is overwritten."""
    k = kernel(
        """
        u32 bar = here(&barrier);
        begin(bar, 64);
        ((u32 *)tile)[threadIdx.x] = 7;
        __syncthreads();
        if (threadIdx.x == 0)
            asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];"
                         :: "r"(here(tile)), "l"(x), "r"(bar) : "memory");
        __syncthreads();
        if (threadIdx.x < 16) y[threadIdx.x] = ((volatile u32 *)tile)[threadIdx.x];
        await(bar);
        if (threadIdx.x == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 64;" :: "l"(y + 16), "r"(here(tile)) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            for (int i = 0; i < 16; ++i) ((volatile u32 *)tile)[i] = 9;
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        }""",
        "const u32 *x, u32 *y",
    )
    x = np.arange(16, dtype=np.uint32)
    for order, early, late in (("eager", x, x), ("late", x * 0 - 1, x * 0 + 9)):
        y = np.zeros(32, np.uint32)
        k(1, 32, [x, y], shared=1024, device=device(order), timeout=20)
        assert y[:16].tolist() == early.tolist() and y[16:].tolist() == late.tolist()


def test_groups_complete_in_turn() -> None:
    """``wait_group 1`` leaves the last group in flight, ``wait_group 5`` the last five."""
    k = kernel(
        """
        for (int i = 0; i < 24; ++i) ((u32 *)tile)[i] = i + 1;
        for (int i = 0; i < 6; ++i) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" :: "l"(y + 4 * i), "r"(here(tile) + 16 * i) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        asm volatile("cp.async.bulk.wait_group 5;" ::: "memory");
        for (int i = 0; i < 24; ++i) seen[i] = ((volatile u32 *)y)[i];
        asm volatile("cp.async.bulk.wait_group 1;" ::: "memory");
        for (int i = 0; i < 24; ++i) seen[24 + i] = ((volatile u32 *)y)[i];
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");""",
        "u32 *y, u32 *seen",
    )
    for order, found in (("eager", (24, 24)), ("late", (4, 20))):
        y, seen = np.zeros(24, np.uint32), np.zeros((2, 24), np.uint32)
        k(1, 1, [y, seen], shared=96, device=device(order), timeout=20)
        assert y.tolist() == [*range(1, 25)] and tuple(np.count_nonzero(seen, axis=1)) == found


# -- reductions ---------------------------------------------------------------------------------------
BITS = {"16": np.uint16, "32": np.uint32, "64": np.uint64}
NUMBERS: dict[str, Any] = {
    "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
REDUCTIONS = {
    "add": "u32 s32 u64 f32 f64 f16 bf16",
    "min": "u32 s32 u64 s64 f16 bf16",
    "max": "u32 s32 u64 s64 f16 bf16",
    "inc": "u32",
    "dec": "u32",
    "and": "b32 b64",
    "or": "b32 b64",
    "xor": "b32 b64",
}
ALL = [(operation, type_) for operation, types in REDUCTIONS.items() for type_ in types.split()]


def reduced(operation: str, old: Any, new: Any) -> Any:
    """What is in memory afterwards; NaN is compared as NaN, whatever its bits."""
    with np.errstate(all="ignore"):
        if operation == "add" and old.dtype.itemsize == 2:  # NaN too is cast, with a word about it from NumPy
            return (old.astype(np.float32) + new.astype(np.float32)).astype(old.dtype)
        floats = old.dtype.kind in "fV"
        found = {
            "add": old + new,
            "min": np.where(np.isnan(old) | (new < old), new, old) if floats else np.minimum(old, new),
            "max": np.where(np.isnan(old) | (new > old), new, old) if floats else np.maximum(old, new),
        }
        if not floats:
            found["inc"] = np.where(old >= new, 0, old + 1)
            found["dec"] = np.where((old == 0) | (old > new), new, old - 1)
            found |= {"and": old & new, "or": old | new, "xor": old ^ new}
        return found[operation].astype(old.dtype)


def operands(type_: str) -> tuple[Any, Any]:
    """Every pair of 15 numbers, among them those at the edges, and random ones; no two zeros of other signs."""
    dtype = NUMBERS[type_]
    bits = BITS[str(np.dtype(dtype).itemsize * 8)]
    edge = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52}.get(
        type_, 1 << (np.dtype(bits).itemsize * 8 - 1)
    )
    special = np.array([0, 1, 2, edge, edge - 1, edge + 1, (1 << (8 * np.dtype(bits).itemsize)) - 1], bits)
    numbers = np.concatenate([special, np.frombuffer(os.urandom(9 * special.itemsize), bits)])
    numbers[numbers == 1 << (8 * special.itemsize - 1)] = 3  # -0
    a, b = np.meshgrid(numbers, numbers)
    return a.ravel().view(dtype), b.ravel().view(dtype)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_reductions_in_global_memory() -> None:
    cases = []
    for number, (operation, type_) in enumerate(ALL):
        noftz = ".noftz" if operation == "add" and type_ in ("f16", "bf16") else ""
        text = (
            f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}{noftz}.{type_} [%0], [%1], %2;"
        )
        cases.append(
            f'case {number}: asm volatile("{text}" :: "l"(y), "r"(here(tile)), "r"(n) : "memory"); break;'
        )
    k = kernel(
        f"""
        for (u32 i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];
        __syncthreads();
        if (threadIdx.x == 0) {{ switch (which) {{ {" ".join(cases)} }} finish(); }}""",
        "const unsigned char *x, unsigned char *y, u32 n, int which",
    )
    for number, (operation, type_) in enumerate(ALL):
        old, new = operands(type_)
        y = old.copy().view(np.uint8)
        k(1, 32, [new.view(np.uint8), y, y.size, number], shared=4096, device=device(), timeout=20)
        found, wanted = y.view(old.dtype), reduced(operation, old, new)
        same = found.view(BITS[str(8 * old.itemsize)]) == wanted.view(BITS[str(8 * old.itemsize)])
        if old.dtype.kind in "fV":
            same |= np.isnan(found.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
        assert same.all(), (operation, type_, old[~same][:4], new[~same][:4], found[~same][:4])


SHARED = {"add": "u32 s32 u64", "min": "u32 s32", "max": "u32 s32", "inc": "u32", "dec": "u32"}
SHARED |= {"and": "b32", "or": "b32", "xor": "b32"}


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_reductions_in_another_blocks_memory() -> None:
    """Of rows by one thread, and of each thread's own numbers."""
    all_ = [(operation, type_) for operation, types in SHARED.items() for type_ in types.split()]
    way, told = "shared::cluster", "mbarrier::complete_tx::bytes"
    cases = []
    for number, (operation, type_) in enumerate(all_):
        row = f"cp.reduce.async.bulk.{way}.shared::cta.{told}.{operation}.{type_} [%0], [%1], %2, [%3];"
        one = f"red.async.relaxed.cluster.{way}.{told}.{operation}.{type_} [%0], %1, [%2];"
        word, kind = ("u64", "l") if type_ == "u64" else ("u32", "r")
        cases.append(
            f"""case {number}: if (threadIdx.x == 0)
            asm volatile("{row}" :: "r"(to), "r"(here(given)), "r"(n), "r"(there) : "memory");
        for (u32 i = threadIdx.x; i < n / sizeof({word}); i += 32)
            asm volatile("{one}" :: "r"(to + n + (u32)sizeof({word}) * i), "{kind}"((({word} *)given)[i]), "r"(there) : "memory");
        break;"""
        )
    k = kernel(
        f"""
        u32 bar = here(&barrier), to = at_rank(here(tile), 1 - rank()), there = at_rank(bar, 1 - rank());
        unsigned char *given = tile + 2 * n;
        begin(bar, 2 * n);
        for (u32 i = threadIdx.x; i < n; i += 32) {{ tile[i] = tile[n + i] = y[i]; given[i] = x[i]; }}
        __syncthreads();
        asm volatile("fence.proxy.async;" ::: "memory");
        meet();
        switch (which) {{ {" ".join(cases)} }}
        await(bar);
        for (u32 i = threadIdx.x; i < 2 * n; i += 32) out[2 * n * rank() + i] = tile[i];
        meet();""",
        "const unsigned char *x, const unsigned char *y, unsigned char *out, u32 n, int which",
    )
    for number, (operation, type_) in enumerate(all_):
        old, new = (values[: 64 * (values.size // 64)] for values in operands(type_))
        wanted, out = reduced(operation, old, new), np.zeros((2, 2, old.nbytes), np.uint8)
        k(2, 32, [new.view(np.uint8), old.view(np.uint8), out, old.nbytes, number], shared=8192, cluster=2,
          device=device(), timeout=20)  # fmt: skip
        assert (out.view(old.dtype) == wanted).all(), (operation, type_)


def test_many_blocks_add_up() -> None:
    k = kernel(
        """
        for (int i = threadIdx.x; i < 256; i += 32) ((float *)tile)[i] = 1;
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 1024;" :: "l"(y), "r"(here(tile)) : "memory");
            finish();
        }""",
        "float *y",
    )
    y = np.zeros(256, np.float32)
    k(500, 32, [y], shared=1024, device=device(), timeout=20)
    assert (y == 500).all()


# -- other blocks of the cluster ------------------------------------------------------------------------
@pytest.mark.parametrize("order", ORDERS)
def test_to_the_next_block(order: str | int) -> None:
    """Each block sends its bytes to the next one of the cluster, then adds numbers there."""
    k = kernel(
        """
        u32 bar = here(&barrier), next = (rank() + 1) % 4;
        begin(bar, 512);
        u32 *mine = (u32 *)tile, *sums = mine + 128;
        for (int i = threadIdx.x; i < 64; i += 32) { mine[i] = 1000 * rank() + i; sums[i] = 5; mine[64 + i] = 0; }
        __syncthreads();
        asm volatile("fence.proxy.async;" ::: "memory");
        meet();
        if (threadIdx.x == 0) {
            asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                         :: "r"(at_rank(here(mine + 64), next)), "r"(here(mine)), "r"(at_rank(bar, next)) : "memory");
            asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%0], [%1], 256, [%2];"
                         :: "r"(at_rank(here(sums), next)), "r"(here(mine)), "r"(at_rank(bar, next)) : "memory");
        }
        await(bar);
        for (int i = threadIdx.x; i < 64; i += 32) { y[blockIdx.x * 128 + i] = mine[64 + i]; y[blockIdx.x * 128 + 64 + i] = sums[i]; }
        meet();""",
        "u32 *y",
    )
    y = np.zeros((8, 2, 64), np.uint32)
    k(8, 32, [y], shared=1024, cluster=4, device=device(order), timeout=20)
    before = np.array([(block % 4 + 3) % 4 for block in range(8)])
    wanted = 1000 * before[:, None] + np.arange(64)
    assert (y[:, 0] == wanted).all() and (y[:, 1] == wanted + 5).all()


@pytest.mark.parametrize("order", ORDERS)
def test_to_several_blocks_at_once(order: str | int) -> None:
    """A copy of bytes and one of a tensor reach every block of a mask, at one offset, and tell each."""
    k = kernel(
        """
        u32 bar = here(&barrier);
        begin(bar, rank() == 2 ? 0 : 1536);
        for (int i = threadIdx.x; i < 1536; i += 32) tile[i] = 1;
        __syncthreads();
        asm volatile("fence.proxy.async;" ::: "memory");
        meet();
        if (threadIdx.x == 0 && rank() == 1) {
            unsigned short mask = 0xB;
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 512, [%2], %3;"
                         :: "r"(here(tile)), "l"(x), "r"(bar), "h"(mask) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                         :: "r"(here(tile) + 512), "l"(&map), "r"(0), "r"(0), "r"(bar), "h"(mask) : "memory");
        }
        await(bar);
        for (int i = threadIdx.x; i < 1536; i += 32) y[blockIdx.x * 1536 + i] = tile[i];
        meet();""",
        "const __grid_constant__ Map map, const unsigned char *x, unsigned char *y",
    )
    d = device(order)
    x, t = random_bytes(512), random_bytes(2048).reshape(16, 128)
    y = np.zeros((4, 1536), np.uint8)
    k(4, 32, [tw.TensorMap(t, (16, 64)), x, y], shared=2048, cluster=4, device=d, timeout=20)
    for block in (0, 1, 3):
        assert y[block].tobytes() == x.tobytes() + t[:, :64].tobytes()
    assert (y[2] == 1).all()


def test_to_the_last_blocks_of_the_largest_cluster() -> None:
    k = kernel(
        """
        u32 bar = here(&barrier), *mine = (u32 *)tile;
        begin(bar, mask >> rank() & 1 ? 256 : 0);
        mine[threadIdx.x] = mine[32 + threadIdx.x] = 7;
        __syncthreads();
        asm volatile("fence.proxy.async;" ::: "memory");
        meet();
        if (threadIdx.x == 0 && rank() == 3) {
            unsigned short blocks = mask;
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 128, [%2], %3;"
                         :: "r"(here(tile)), "l"(x), "r"(bar), "h"(blocks) : "memory");
            asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2}], [%3], %4;"
                         :: "r"(here(tile) + 128), "l"(&map), "r"(0), "r"(bar), "h"(blocks) : "memory");
        }
        await(bar);
        for (u32 i = threadIdx.x; i < 64; i += 32) y[blockIdx.x * 64 + i] = mine[i];
        meet();""",
        "const __grid_constant__ Map map, const u32 *x, u32 *y, u32 mask",
    )
    x, mask = np.frombuffer(random_bytes(128), np.uint32), 0xC003
    y = np.zeros((16, 2, 32), np.uint32)
    k(
        16,
        32,
        [tw.TensorMap(x, (32,)), x, y, mask],
        shared=1024,
        cluster=16,
        device=device("late"),
        timeout=20,
    )
    for block in range(16):
        assert (y[block] == (x if mask >> block & 1 else 7)).all(), block


@pytest.mark.parametrize("order", ORDERS)
def test_values_sent_to_another_block(order: str | int) -> None:
    k = kernel(
        """
        u32 bar = here(&barrier), other = 1 - rank(), lane = threadIdx.x;
        u32 *mine = (u32 *)tile;
        begin(bar, 32 * (4 + 16 + 8 + 4 + 4 + 16 + 16));
        for (int i = lane; i < 32 * 8; i += 32) mine[i] = 0;
        __syncthreads();
        meet();
        u32 to = at_rank(here(mine), other), there = at_rank(bar, other), value = 100 * rank() + lane;
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" :: "r"(to + 4 * lane), "r"(value), "r"(there) : "memory");
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %1, %2, %2}, [%3];"
                     :: "r"(to + 128 + 16 * lane), "r"(value), "r"(lane), "r"(there) : "memory");
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];"
                     :: "r"(to + 640 + 8 * lane), "l"((u64)value << 32), "r"(there) : "memory");
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
                     :: "r"(to + 896), "r"(value), "r"(there) : "memory");
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" :: "r"(to + 1024 + 4 * lane), "f"(value / 8.0f), "r"(there) : "memory");
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f64 [%0], {%1, %2}, [%3];"
                     :: "r"(to + 1152 + 16 * lane), "d"(value / 8.0), "d"(0.5), "r"(there) : "memory");
        u64 far, signal;  // generic addresses
        asm volatile("mapa.u64 %0, %1, %2;" : "=l"(far) : "l"(mine + 416 + 4 * lane), "r"(other));
        asm volatile("mapa.u64 %0, %1, %2;" : "=l"(signal) : "l"(&barrier), "r"(other));
        asm volatile("st.async.mbarrier::complete_tx::bytes.v2.u64 [%0], {%1, %2}, [%3];" :: "l"(far), "l"((u64)lane), "l"(~0ull), "l"(signal) : "memory");
        await(bar);
        for (int i = lane; i < 32 * 17; i += 32) y[blockIdx.x * 544 + i] = mine[i];
        meet();""",
        "u32 *y",
    )
    y = np.zeros((2, 544), np.uint32)
    k(2, 32, [y], shared=2176, cluster=2, device=device(order), timeout=20)
    lanes = np.arange(32)
    for block in (0, 1):
        value = 100 * (1 - block) + lanes
        assert (y[block, :32] == value).all()
        assert (y[block, 32:160].reshape(32, 4) == np.stack([value, value, lanes, lanes], 1)).all()
        assert (y[block, 160:224].reshape(32, 2) == np.stack([0 * value, value], 1)).all()
        assert y[block, 224] == value.sum() and not y[block, 225:256].any()
        assert (y[block, 256:288].view(np.float32) == value / 8).all()
        assert (
            y[block, 288:416].view(np.float64).reshape(32, 2) == np.stack([value / 8, 0 * value + 0.5], 1)
        ).all()
        assert (y[block, 416:].view(np.int64).reshape(32, 2) == np.stack([lanes, 0 * lanes - 1], 1)).all()


# -- tensor maps in memory --------------------------------------------------------------------------------
REPLACED = r"""
        u32 bar = here(&barrier), to = here(tile) + 1024, map = here(tile);
        begin(bar, 1024);
        ((u32 *)tile)[threadIdx.x] = first;
        __syncthreads();
        if (threadIdx.x == 0) {
#define SET64(what, value) asm volatile("tensormap.replace.tile." what " [%0], %1;" :: "r"(map), "l"((u64)(value)) : "memory")
#define SET32(what, value) asm volatile("tensormap.replace.tile." what " [%0], %1;" :: "r"(map), "r"(value) : "memory")
#define AXIS(what, n, value) asm volatile("tensormap.replace.tile." what ".shared::cta.b1024.b32 [%0], " #n ", %1;" :: "r"(map), "r"(value) : "memory")
            SET64("global_address.shared::cta.b1024.b64", x);
            SET32("rank.shared::cta.b1024.b32", 1);
            AXIS("box_dim", 0, box); AXIS("box_dim", 1, 8);
            AXIS("global_dim", 0, 40); AXIS("global_dim", 1, 20);
            asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" :: "r"(map), "l"((u64)160) : "memory");
            AXIS("element_stride", 0, 1); AXIS("element_stride", 1, 1);
            asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 7;" :: "r"(map) : "memory");
            asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" :: "r"(map) : "memory");
            asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" :: "r"(map) : "memory");
            asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 1;" :: "r"(map) : "memory");
        }
        __syncthreads();
        asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
                     :: "l"(maps), "r"(map) : "memory");
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(maps) : "memory");
        if (threadIdx.x == 0) {
            asm volatile("prefetch.tensormap [%0];" :: "l"(maps));
            asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" :: "l"(maps), "r"(16), "r"(15) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                         :: "r"(to), "l"(maps), "r"(16), "r"(15), "r"(bar) : "memory");
        }
        await(bar);
        for (int i = threadIdx.x; i < 256; i += 32) y[i] = ((u32 *)(tile + 1024))[i];"""


def test_a_map_made_by_the_kernel() -> None:
    """From zeros, field by field in shared memory, then copied to global memory: as compilers do it."""
    k = kernel(REPLACED, "const float *x, unsigned char *maps, u32 *y, u32 first, u32 box")
    x = np.arange(800, dtype=np.float32).reshape(20, 40)
    wanted = np.full((8, 32), np.uint32(0x7FF77FF7).view(np.float32), np.float32)
    wanted[:5, :24] = x[15:, 16:]
    swizzled = np.zeros_like(wanted)
    for row in range(8):
        for chunk in range(8):
            swizzled[row, 4 * (chunk ^ row) : 4 * (chunk ^ row) + 4] = wanted[row, 4 * chunk : 4 * chunk + 4]
    y, maps = np.zeros(256, np.uint32), np.zeros(128, np.uint8)
    d = device()
    k(1, 32, [x, d.array(maps), y, 0, 32], shared=4096, device=d, timeout=20)
    assert y.tobytes() == swizzled.tobytes()
    with pytest.raises(KernelFault, match=r"tensor map at .* address 0x.*tw\.TensorMap"):
        k(1, 32, [x, d.array(maps), y, 1, 32], shared=4096, device=d, timeout=20)
    with pytest.raises(KernelFault, match="tensor map"):  # of which the field has room for the lowest bits
        k(1, 32, [x, d.array(maps), y, 0, (1 << 16) + 32], shared=4096, device=d, timeout=20)


@pytest.mark.parametrize(
    ("space", "where"), [("", "map"), (".global", "map"), ("", "tile"), (".shared::cta", "tile")]
)
def test_a_map_is_changed_wherever_it_lies(space: str, where: str) -> None:
    """A field at a generic address too; a tensor may have more than 2³¹ elements along an axis."""
    at, kind = ("here(tile)", "r") if space.startswith(".sh") else (where, "l")
    k = kernel(
        f"""
        u32 bar = here(&barrier), to = here(tile) + 1024;
        begin(bar, 64);
        if (threadIdx.x == 0) {{
            for (int i = 0; i < 16; ++i) ((u64 *)tile)[i] = map[i];
            asm volatile("tensormap.replace.tile.global_address{space}.b1024.b64 [%0], %1;" :: "{kind}"({at}), "l"(x) : "memory");
            asm volatile("tensormap.replace.tile.global_dim{space}.b1024.b32 [%0], 0, %1;" :: "{kind}"({at}), "r"(count) : "memory");
            if ((void *){where} == (void *)tile) for (int i = 0; i < 16; ++i) map[i] = ((u64 *)tile)[i];
            asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");
            asm volatile("cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {{%2}}], [%3];"
                         :: "r"(to), "l"(map), "r"(16), "r"(bar) : "memory");
        }}
        await(bar);
        if (threadIdx.x < 16) y[threadIdx.x] = ((u32 *)(tile + 1024))[threadIdx.x];""",
        "const u32 *x, u64 *map, u32 *y, u32 count",
    )
    d = device()
    x, other, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32), np.zeros(16, np.uint32)
    for count, wanted in ((3_000_000_000, range(16, 32)), (20, [16, 17, 18, 19] + [0] * 12)):
        made = tw.TensorMap(d.array(other), box=(16,)).encode(d)
        k(1, 32, [x, d.array(np.frombuffer(made, np.uint8)), y, count], shared=4096, device=d, timeout=20)
        assert y.tolist() == list(wanted)


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("elemtype", 12),
        ("interleave_layout", 2),
        ("swizzle_mode", 3),
        ("swizzle_atomicity", 0),
        ("fill_mode", 1),
    ],
)
def test_a_field_takes_every_number_that_means_something(field: str, most: int) -> None:
    line = f"tensormap.replace.tile.{field}.shared::cta.b1024.b32 [%r1], {{}};"
    refused = [code(line.format(number)).startswith("[") for number in range(-1, most + 2)]
    assert refused == [True, *[False] * (most + 1), True]


# -- misuse -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("offsets", "count", "said"),
    [
        ((0, 0), 24, "size is not a multiple of 16"),
        ((8, 0), 32, "not a multiple of 16"),
        ((0, 4), 32, "not a multiple of 16"),
        ((0, 4080), 32, "out-of-bounds read of 32 bytes at global address"),
        ((1008, 0), 32, "out-of-bounds write of 32 bytes at shared address"),
        ((0, 0), 0xFFFF_FFF0, "out-of-bounds"),
        ((0, 0), 2048, "out-of-bounds write of 2048 bytes at shared address 0x400"),
        ((0x3000000, 0), 32, "the cluster has no"),
    ],
)
def test_a_wrong_copy_is_a_fault(offsets: tuple[int, int], count: int, said: str) -> None:
    k = kernel(
        """
        u32 bar = here(&barrier);
        begin(bar, 32);
        if (threadIdx.x == 0)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                         :: "r"(here(tile) + to), "l"(x + from), "r"(n), "r"(bar) : "memory");""",
        "const unsigned char *x, u32 to, u32 from, u32 n",
    )
    with pytest.raises(KernelFault, match=said):
        k(1, 32, [np.zeros(4096, np.uint8), *offsets, count], shared=1024 - 16, device=device(), timeout=20)


@pytest.mark.parametrize(("to", "source"), [(8, 0), (0, 4), (4, 8)])
@pytest.mark.parametrize("space", ["global", "shared::cluster"])
def test_a_copy_from_shared_memory_begins_at_a_multiple_of_16(space: str, to: int, source: int) -> None:
    copy = (
        f'cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 32;" :: "l"(x + {to}), "r"(here(tile) + {source})'
        if space == "global"
        else 'cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 32, [%2];"'
        f' :: "r"(at_rank(here(tile), 0) + 512 + {to}), "r"(here(tile) + {source}), "r"(at_rank(bar, 0))'
    )
    k = kernel(f'u32 bar = here(&barrier); begin(bar, 32); asm volatile("{copy} : "memory");', "char *x")
    with pytest.raises(KernelFault, match="not a multiple of 16"):
        k(1, 1, [np.zeros(4096, np.uint8)], shared=1024, cluster=1, device=device(), timeout=20)


@pytest.mark.parametrize(
    "line",
    [
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%r1], [%rd1], 16, 0, 0, [%r2];",
        "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r1], 16, %rs1;",
        "cp.async.bulk.global.global.bulk_group [%rd1], [%rd1], 16;",
        "cp.async.bulk.shared::cta.global [%r1], [%rd1], 16, [%r2];",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16;",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1], 16, [%r2], %rs1;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s64 [%rd1], [%r1], 16, 1, 2;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd1], [%r1], 16;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%rd1], [%r1], 16;",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.f32 [%r1], [%r1], 16, [%r2];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1, %r1, %r1, %r1, %r1}], [%r2];",
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1, %r1, %r1}], [%r2], {%rs1, %rs1};",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 [%r1], [%rd1, {%r1, %r1}], [%r2];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1, %r1}], [%r2];",
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1, %r1}], [%r2];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], [%r2];",
        "cp.async.bulk.tensor.2d.global.shared::cta.mbarrier::complete_tx::bytes [%rd1, {%r1, %r1}], [%r1];",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r1}], [%r1];",
        "cp.reduce.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.add.u32 [%r1], [%rd1], 16, [%r2];",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.s64 [%r1], [%r1], 16, [%r2];",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.min.u64 [%r1], [%r1], 16, [%r2];",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.u32 [%rd1], [%r1], 16;",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%r1], 16, [%r2], %rd1;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.and.u32 [%rd1], [%r1], 16;",
        "cp.async.bulk.prefetch.L2.global [%rd1], 16, %rd1;",
        "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd1], 16;",
        "cp.async.bulk.tensor.2d.global.shared::cta.im2col_no_offs.bulk_group [%rd1, {%r1, %r1}], [%r1];",
        "cp.async.bulk.tensor.2d.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r1}], [%r1];",
        "cp.async.bulk.tensor.3d.shared::cta.global.tile.im2col.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1, %r1, %r1}], [%r2];",
        "cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1, %r1, %r1, %r1}], [%r2], {%rs1};",
        "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1, {%r1, %r1}], [%r2], %rs1;",
        "cp.async.bulk.tensor.2d.global.shared::cta [%rd1, {%r1, %r1}], [%r1];",
        "cp.async.bulk.tensor.2d.shared::cluster.shared::cta.bulk_group [%r1, {%r1, %r1}], [%r1];",
        "cp.async.bulk.prefetch.tensor.2d.L2.global [%rd1];",
        "cp.async.bulk.prefetch.tensor.2d.L2.global [%rd1, {%r1, %r1}], %rd1;",
        "cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%rd1, {%r1, %r1, %r1}];",
        "cp.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%rd1, {%r1, %r1}], [%r1];",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.min.bulk_group [%rd1, {%r1, %r1}], [%r1];",
        "cp.async.bulk.tensor.3d.global.shared::cta.im2col.bulk_group [%rd1, {%r1, %r1, %r1}], [%r1];",
        "cp.async.bulk.wait_group %r1;",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b64 [%r1], {%rd1, %rd1, %rd1, %rd1}, [%r2];",
        "st.async.release.global.u32 [%rd1], %r1;",
        "st.async.shared::cluster.u32 [%r1], %r1, [%r2];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u16 [%r1], %rs1, [%r2];",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.f32 [%r1], %r1, [%r2];",
        "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r1], 13;",
        "tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r1], 4;",
        "tensormap.replace.tile.swizzle_atomicity.shared::cta.b1024.b32 [%r1], 1;",
        "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1], 5, %r1;",
        "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1], %r1;",
        "tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r1], 2;",
        "tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r1], 3;",
        "tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r1], 4, %rd1;",
        "tensormap.cp_fenceproxy.shared::cta.global.tensormap::generic.release.gpu.sync.aligned [%r1], [%rd1], 128;",
        "tensormap.replace.tile.global_address.shared::cta.b1024.b32 [%r1], %r1;",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r1], 64;",
        "multimem.cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;",
    ],
)
def test_what_there_is_not_is_refused(line: str) -> None:
    text = f""".version 8.6\n.target sm_90a\n.address_size 64
.visible .entry k() {{ .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .b16 %rs<2>;
{line}
ret; }}"""
    with pytest.raises(PtxError, match="PTX line 5"):
        tw.Kernel.from_ptx(text, "k")(1, 1, [], device="emulator")
