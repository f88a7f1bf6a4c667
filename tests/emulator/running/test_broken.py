"""Broken on purpose: asynchronous kernels with one fault each, and how each fault comes to light.

Every kernel takes the number of its fault; 0 is none. Without one it is right in every order, and the checked build
finds nothing. With one the order "late" makes it a wrong result, a fault or a deadlock, unless the emulator, whose
memory is one, cannot tell the difference; and the checked build is never silent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewise as tw
from tests.harness.many import Array
from tilewise.errors import Deadlock, KernelFault

ORDERS = ("eager", "late", 1, 2, 3)
DEVICE = tw.device("emulator")

HEAD = r"""
typedef unsigned u32;
typedef unsigned long long u64;
struct alignas(64) Map { u64 bits[16]; };
__device__ u32 here(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ u32 there(u32 place, u32 rank) {
    u32 found;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"(place), "r"(rank));
    return found;
}
__device__ void init(u64 *bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(here(bar)), "r"(count) : "memory");
}
__device__ void arrive(u32 bar) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(bar) : "memory");
}
__device__ void arrive_expecting(u64 *bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(here(bar)), "r"(bytes) : "memory");
}
__device__ void wait(u64 *bar, u32 parity) {
    u32 over;
    do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                    : "=r"(over) : "r"(here(bar)), "r"(parity) : "memory");
    while (!over);
}
__device__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#define SAY(text) asm volatile(text ";" ::: "memory")
"""

# cp.async: two stages of 64 floats, each thread copies one and reads that of another.
COPIES = r"""
extern "C" __global__ void copies(const float *from, float *to, int turns, int fault) {
    __shared__ float stage[2][64];
    u32 t = threadIdx.x;
    float sum = 0;
    for (int i = 0; i <= turns; ++i) {
        if (i < turns)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(here(&stage[i & 1][t])), "l"(from + 64 * i + t) : "memory");
        SAY("cp.async.commit_group");
        if (i == 0) continue;
        if (fault != 1) SAY("cp.async.wait_group 1");
        if (fault != 2) __syncthreads();
        sum = sum * 3 + stage[i - 1 & 1][63 - t];
        if (fault != 3) __syncthreads();
    }
    to[t] = sum;
}
"""
# One thread loads rows through a ring of two stages; 64 consume them, and store what they make of each.
RING = r"""
extern "C" __global__ void ring(
    const __grid_constant__ Map from, const __grid_constant__ Map to, float *sums, int turns, int fault) {
    __shared__ alignas(128) float stage[2][64];
    __shared__ alignas(128) float made[2][64];
    __shared__ u64 full[2], empty[2];
    u32 t = threadIdx.x;
    if (t == 0)
        for (int s = 0; s < 2; ++s) {
            init(&full[s], 1);
            init(&empty[s], 64);
        }
    if (fault != 1) SAY("fence.mbarrier_init.release.cluster");
    if (fault != 2) __syncthreads();
    if (t >= 64) {
        for (int i = 0; t == 64 && i < turns; ++i) {
            int s = i & 1, turn = i >> 1 & 1;
            if (fault != 3) wait(&empty[s], turn ^ 1);
            if (fault != 4) arrive_expecting(&full[s], fault == 5 ? 272 : fault == 6 ? 240 : 256);
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                         :: "r"(here(stage[s])), "l"(&from), "r"(0), "r"(i), "r"(here(&full[s])) : "memory");
        }
        return;
    }
    float sum = 0;
    for (int i = 0; i < turns; ++i) {
        int s = i & 1, turn = i >> 1 & 1;
        if (fault != 7) wait(&full[s], fault == 8 ? turn ^ 1 : turn);
        if (fault == 13) arrive(here(&empty[s]));
        float x = stage[s][63 - t];
        sum = sum * 3 + x;
        if (fault != 13 && (fault != 9 || t != 5 || i != 1)) arrive(here(&empty[s]));
        if (fault != 10 && t == 0) SAY("cp.async.bulk.wait_group.read 1");
        SAY("bar.sync 1, 64");
        made[s][t] = x * 2;
        if (fault != 11) SAY("fence.proxy.async.shared::cta");
        if (fault != 12) SAY("bar.sync 1, 64");
        if (t == 0) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                         :: "l"(&to), "r"(0), "r"(i), "r"(here(made[s])) : "memory");
            SAY("cp.async.bulk.commit_group");
        }
    }
    sums[t] = sum;
    if (t == 0) SAY("cp.async.bulk.wait_group 0");
}
"""
# Two blocks hand numbers to one another, and tell by mbarriers and by their cluster's barrier.
PAIR = r"""
extern "C" __global__ void pair(int *out, int fault) {
    __shared__ int given[64], own[64];
    __shared__ u64 full, sent;
    u32 t = threadIdx.x, rank = blockIdx.x & 1, other = rank ^ 1;
    if (t == 0) {
        init(&full, 64);
        init(&sent, 1);
    }
    own[t] = 100 * rank + t;
    if (fault != 1) SAY("fence.mbarrier_init.release.cluster");
    if (fault != 2) SAY("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned");
    u32 place = there(here(&given[t]), other);
    asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(place), "r"(1000 * rank + t) : "memory");
    if (fault != 3 || t != 7) arrive(there(here(&full), other));
    wait(&full, 0);
    int first = given[63 - t];
    if (fault != 4) meet();
    if (t == 0) arrive_expecting(&sent, fault == 5 ? 252 : 256);
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 :: "r"(place), "r"(2000 * rank + t), "r"(there(here(&sent), other)) : "memory");
    if (fault != 6) wait(&sent, 0);
    int second = given[63 - t], third;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(third) : "r"(there(here(&own[63 - t]), other)) : "memory");
    out[blockIdx.x * 64 + t] = first + 3 * second + 5 * third;
    if (fault != 7) meet();
}
"""


def products(fault: int) -> str:
    """wgmma: a stage is written while the product of the other one is in flight."""
    lines = [
        "mov.u32 %t, %tid.x; shl.b32 %at, %t, 4; mov.u32 %base, room; add.u32 %at, %at, %base; setp.lt.u32 %few, %t, 16; mov.b32 %one, 0x3c003c00;"
    ]
    lines += [f"mov.b32 %d{i}, 0;" for i in range(4)]
    for turn, value in enumerate((0x3C003C00, 0x40004000, 0x42004200, 0x44004400)):
        stage = 4096 * (turn % 2)
        lines.append(f"mov.b32 %v, {value}; st.shared.v4.b32 [%at+{stage}], {{%v, %v, %v, %v}};")
        lines.append(f"@%few st.shared.v4.b32 [%at+{stage + 2048}], {{%one, %one, %one, %one}};")
        lines.append("" if fault == 3 else "fence.proxy.async.shared::cta;")
        lines.append("" if fault == 4 else "bar.sync 0;")
        lines.append("" if fault == 5 else "wgmma.fence.sync.aligned;")
        a, b = (start >> 4 | 8 << 16 | 16 << 32 for start in (stage, stage + 2048))
        kind = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
        lines.append(
            f"mov.b64 %a, {a}; mov.b64 %b, {b}; {kind} {{%d0, %d1, %d2, %d3}}, %a, %b, 1, 1, 1, 0, 0;"
        )
        lines.append("wgmma.commit_group.sync.aligned;")
        lines.append("" if fault == 2 else "wgmma.wait_group.sync.aligned 1;")
        lines.append("bar.sync 0;")
    lines.append("" if fault == 1 else "wgmma.wait_group.sync.aligned 0;")
    lines.append(
        "ld.param.u64 %out, [out]; mad.wide.u32 %out, %t, 16, %out; st.global.v4.b32 [%out], {%d0, %d1, %d2, %d3};"
    )
    return f"""
.version 8.4
.target sm_90a
.address_size 64
.visible .entry products(.param .u64 out)
{{
.shared .align 1024 .b8 room[8192];
.reg .b32 %t, %at, %base, %one, %v, %d<4>; .reg .b64 %a, %b, %out; .reg .pred %few;
{chr(10).join(lines)}
ret;
}}
"""


class Broken(NamedTuple):
    """A fault, what becomes of it in the order "late", and what the checked build finds."""

    kernel: str
    fault: int
    what: str
    late: str = "wrong"  # or "right", or what the error says
    found: tuple[str, ...] = ()  # kinds of findings, one of which there is


BROKEN: list[Broken] = [
    Broken("copies", 1, "no cp.async.wait_group", "wrong", ("read-in-flight",)),
    Broken("copies", 2, "no barrier behind it", "wrong", ("read-in-flight",)),
    Broken("copies", 3, "a stage filled while others read it", "wrong", ("read-in-flight",)),
    Broken("ring", 1, "no fence.mbarrier_init", "right"),
    Broken("ring", 2, "no barrier behind the init of mbarriers", "was not initialised", ("bad-mbarrier",)),
    Broken(
        "ring", 3, "a stage filled before it is empty", "more arrivals than are pending", ("bad-mbarrier",)
    ),
    Broken("ring", 4, "a load that no arrival expects", "1 of 1 arrivals", ("deadlock",)),
    Broken("ring", 5, "too many bytes expected", "16 bytes must still come", ("deadlock",)),
    Broken("ring", 6, "too few bytes expected", "16 bytes more than it expects have come", ("deadlock",)),
    Broken(
        "ring", 7, "a stage read before it is full", "more arrivals than are pending", ("read-in-flight",)
    ),
    Broken("ring", 8, "a wrong parity", "more arrivals than are pending", ("read-in-flight",)),
    Broken("ring", 9, "an arrival that never comes", "1 of 64 arrivals must still come", ("deadlock",)),
    Broken("ring", 10, "no cp.async.bulk.wait_group.read", "wrong", ("source-in-flight",)),
    Broken("ring", 11, "no fence.proxy.async before a store by TMA", "right", ("unfenced",)),
    Broken("ring", 12, "no barrier before a store by TMA", "wrong", ("source-in-flight",)),
    Broken("ring", 13, "a stage given back before it is read", "right", ("copy-too-early",)),
    Broken(
        "pair",
        1,
        "no fence.mbarrier_init before a relaxed cluster barrier",
        "right",
        ("uninitialised-mbarrier",),
    ),
    Broken(
        "pair", 2, "no cluster barrier behind the init of mbarriers", "was not initialised", ("bad-mbarrier",)
    ),
    Broken(
        "pair", 3, "an arrival from another block that never comes", "1 of 64 arrivals must", ("deadlock",)
    ),
    Broken(
        "pair", 4, "another block's memory written while that block reads it", "right", ("read-in-flight",)
    ),
    Broken("pair", 5, "too few bytes expected of another block", "has exited", ("block-gone",)),
    Broken("pair", 6, "what another block stores is not waited for", "has exited", ("read-in-flight",)),
    Broken("pair", 7, "a block leaves while others use its memory", "has exited", ("block-gone",)),
    Broken("products", 1, "no wgmma.wait_group before the sums are read", "wrong", ("sum-in-flight",)),
    Broken("products", 2, "a stage written that a wgmma in flight reads", "wrong", ("source-in-flight",)),
    Broken("products", 3, "no fence.proxy.async before a wgmma", "right", ("unfenced",)),
    Broken("products", 4, "no barrier between what threads write and a wgmma", "right", ("read-write",)),
    Broken("products", 5, "no wgmma.fence behind a write of its sums", "right"),
]


@functools.cache
def kernel(name: str, fault: int) -> tw.Kernel:
    if name == "products":
        return tw.Kernel.from_ptx(products(fault), name)
    return compiled(name)


@functools.cache
def compiled(name: str) -> tw.Kernel:
    return tw.Kernel(HEAD + {"copies": COPIES, "ring": RING, "pair": PAIR}[name], name, arch="sm_90a")


Go = Callable[..., Any]
TURNS = 6


def _copies(go: Go, fault: int) -> bool:
    rows, out = _rows(), np.zeros(64, np.float32)
    go(1, 64, [rows, out, TURNS, fault])
    return _same(out, _sum(rows))


def _ring(go: Go, fault: int) -> bool:
    rows, made = DEVICE.array(_rows()), DEVICE.array(np.zeros((TURNS, 64), np.float32))
    sums = DEVICE.array(np.zeros(64, np.float32))
    maps = [tw.TensorMap(item, (1, 64)) for item in (rows, made)]
    go(1, 96, [*maps, sums, TURNS, fault])
    return _same(sums.numpy(), _sum(rows.numpy())) and _same(made.numpy(), 2 * rows.numpy()[:, ::-1])


def _pair(go: Go, fault: int) -> bool:
    out, t = np.zeros((2, 64), np.int32), 63 - np.arange(64)
    go(2, 64, [out, fault], cluster=2)
    wanted = [t + 1000 * (1 - r) + 3 * (t + 2000 * (1 - r)) + 5 * (t + 100 * (1 - r)) for r in (0, 1)]
    return bool(np.array_equal(out, np.array(wanted)))


def _products(go: Go, fault: int) -> bool:
    out = np.zeros((128, 4), np.float32)
    go(1, 128, [out])
    return _same(out, np.full((128, 4), 160, np.float32))


RUNS: dict[str, Callable[[Go, int], bool]] = {
    "copies": _copies,
    "ring": _ring,
    "pair": _pair,
    "products": _products,
}


def _rows() -> Array:
    return np.random.default_rng().integers(1, 100, (TURNS, 64)).astype(np.float32)


def _sum(rows: Array) -> Array:
    found = np.zeros(64, np.float32)
    for row in rows:
        found = found * np.float32(3) + row[::-1]
    return found


def _same(found: Array, wanted: Array) -> bool:
    return bool(np.array_equal(found, wanted))


def launched(name: str, fault: int, order: str | int) -> bool:
    """Whether the result is right."""
    return RUNS[name](
        functools.partial(kernel(name, fault), device=tw.device("emulator", order=order)), fault
    )


def checked(name: str, fault: int, order: str | int = "late") -> list[str]:
    """The kinds of what the checked build finds."""
    found: list[Any] = []

    def go(grid: int, block: int, args: list[Any], cluster: int | None = None) -> None:
        found.extend(kernel(name, fault).check(grid, block, args, cluster=cluster, order=order))

    RUNS[name](go, fault)
    return [item.kind for item in found]


@pytest.mark.few(11)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", RUNS)
def test_without_a_fault_all_is_well(name: str, order: str | int) -> None:
    assert launched(name, 0, order)
    assert checked(name, 0, order) == []


@pytest.mark.few(4)
@pytest.mark.parametrize("broken", BROKEN, ids=lambda item: item.what)
def test_a_fault_comes_to_light(broken: Broken) -> None:
    """In the order "late"."""
    if broken.late in ("wrong", "right"):
        assert launched(broken.kernel, broken.fault, "late") == (broken.late == "right")
        return
    with pytest.raises((KernelFault, Deadlock), match=broken.late) as caught:
        launched(broken.kernel, broken.fault, "late")
    assert "PTX line" in str(caught.value)


@pytest.mark.few(5)
@pytest.mark.parametrize("broken", [item for item in BROKEN if item.found], ids=lambda item: item.what)
def test_the_checked_build_is_not_silent(broken: Broken) -> None:
    assert {*checked(broken.kernel, broken.fault)} & {*broken.found}
