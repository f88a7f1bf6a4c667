"""The checker: each fault is found, by its tool, its kind and its lines; and nothing in the kernel mended."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tests.harness.cases import HEAD, Case, arrays
from tests.harness.faulty import CASES, kernel_of, marked
from tests.tensor_cases import Case as TensorCase
from tests.tensor_cases import boxes, images
from tests.tensor_kernels import kernel
from tests.tensor_model import Box, rows_of
from tests.thorough import examples
from tilewise.devices.emulated import open_emulator
from tilewise.devices.host_memory import AdoptedMemory
from tilewise.emulator.check_layout import WHO
from tilewise.emulator.running.checked_launch import Checks
from tilewise.emulator.running.fault_report import Range
from tilewise.errors import ArgumentError, KernelFault
from tilewise.instruments.advice import STORE
from tilewise.instruments.checking import Checker, _array, _drop_consequences, _merge_repeated, check_bound
from tilewise.instruments.findings import Access, Finding
from tilewise.instruments.leaks import HeapBlock, find_leaked_blocks
from tilewise.launch import Launch

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def check(case: Case, mended: bool, order: str | int) -> list[Finding]:
    x, y = arrays()
    kernel = kernel_of(case, mended)
    return kernel.check(
        case.grid, case.block, [x, y, 64], shared=case.shared, cluster=case.cluster, order=order
    )


def told(found: list[Finding]) -> str:
    return "\n".join(map(str, found))


@every_case
def test_a_fault_is_found_with_its_lines(case: Case) -> None:
    for order in case.orders:
        found = check(case, False, order)
        assert [(item.tool, item.kind) for item in found] == [(case.tool, case.kind)], told(found)
        sides = [side for side in (found[0].now, found[0].before) if side]
        sides = [side for side in sides if side.ptx_line]  # the end of a block has no line
        assert {side.line for side in sides} == marked(case), told(found)
        assert all("//!" in side.text for side in sides)


@pytest.mark.few(25)
@every_case
def test_nothing_is_found_in_the_kernel_mended(case: Case) -> None:
    for order in ("eager", "late", 3, np.random.default_rng().integers(1 << 30)):
        found = check(case, True, int(order) if isinstance(order, np.integer) else order)
        assert not found, f"{order}\n{told(found)}"


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.kind in ("read-in-flight", "write-in-flight")],
    ids=lambda case: case.name,
)
def test_what_to_wait_for_is_said_of_the_memory_that_is_written(case: Case) -> None:
    """Of a store to global memory that is its bulk group; what is copied to shared memory lands otherwise."""
    (found,) = check(case, False, case.orders[0])
    assert (found.advice == STORE) == (found.space == "global"), told([found])


def test_a_copy_is_in_flight_up_to_its_last_byte() -> None:
    """One of more than 64 KiB too."""
    text = (
        HEAD
        + """extern "C" __global__ void large(const int *x, int *y, int from, int wait) {
    extern __shared__ __align__(128) int s[]; __shared__ u64 m;
    if (T == 0) { init(&m, 1); proxy(); }
    __syncthreads();
    if (T == 0) { expect(&m, 98304); bulk(s, x, 98304, &m); }
    if (wait) await(&m, 0);
    y[T] = s[from + T];
    await(&m, 0);
}"""
    )
    kernel, x, y = tw.Kernel(text, "large", "sm_90a"), np.zeros(24576, np.int32), np.zeros(64, np.int32)
    for first in (0, 24576 - 64):
        found = kernel.check(1, 64, [x, y, first, 0], shared=98304, order="late")
        assert [item.kind for item in found] == ["read-in-flight"], told(found)
        assert not kernel.check(1, 64, [x, y, first, 1], shared=98304, order="late")


def test_who_used_the_memory_of_a_block_that_exits_is_named() -> None:
    """The warp that read there last, and the block that exits."""
    text = (
        HEAD
        + """extern "C" __global__ void gone(int *y, int late) {
    __shared__ int s[128];
    s[T] = T;
    cluster();
    u32 v = 0;
    for (int i = 0; i < 3; ++i) __syncthreads();
    if (B == 0 && WARP == 2) asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(at(s + T), 1)) : "memory");
    if (!late) cluster();
    y[B * 128 + T] = v;
}"""
    )
    kernel, y = tw.Kernel(text, "gone", "sm_90a"), np.zeros(256, np.int32)
    (found,) = kernel.check(2, 128, [y, 1], cluster=2, order="eager")
    assert found.kind == "early-exit" and found.now and found.before, told([found])
    assert (found.now.block, found.before.block, found.before.warp) == ((1, 0, 0), (0, 0, 0), 2)
    assert not kernel.check(2, 128, [y, 0], cluster=2, order="eager")


def test_lanes_that_come_by_a_clusters_barrier_pass_it_for_no_others() -> None:
    """Half a warp does not wait at it; that it goes on is what the last warp waits for before it arrives."""
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u32 ordered) .reqnctapercluster 2 {
.reg .b32 %t, %b, %v, %s, %at, %ordered; .reg .pred %p, %skip, %w, %r, %o; .shared .align 4 .b32 s[64]; .shared .b32 flag;
mov.u32 %t, %tid.x; mov.u32 %b, %cluster_ctarank; ld.param.u32 %ordered, [ordered]; setp.ne.u32 %o, %ordered, 0;
mov.u32 %s, s; mad.lo.u32 %at, %t, 4, %s; st.shared.u32 [%at], 0; st.volatile.shared.u32 [flag], 0;
barrier.cluster.arrive; barrier.cluster.wait;
setp.eq.u32 %w, %b, 0; setp.lt.and.u32 %w, %t, 32, %w;
@%w st.shared.u32 [%at], %t;
@!%o bra ON;
barrier.cluster.arrive; barrier.cluster.wait;
ON:
setp.eq.u32 %r, %b, 1; setp.ge.and.u32 %p, %t, 32, %r; setp.lt.and.u32 %r, %t, 32, %r; setp.ge.and.u32 %skip, %t, 16, %r;
@!%p bra COME;
AGAIN: ld.volatile.shared.u32 %v, [flag]; setp.eq.u32 %o, %v, 0; @%o bra AGAIN;
fence.acq_rel.cluster;
COME:
barrier.cluster.arrive;
@!%skip barrier.cluster.wait;
mapa.shared::cluster.u32 %at, %at, 0;
@%skip ld.shared::cluster.u32 %v, [%at];
fence.acq_rel.cluster; @%skip st.volatile.shared.u32 [flag], 1;
ret; }"""
    kernel = tw.Kernel.from_ptx(text, "k")
    for order in ("eager", "late", 3):
        (found,) = kernel.check(2, 64, [0], cluster=2, order=order)
        assert (found.kind, found.count) == ("read-write", 16), told([found])
        assert {side.ptx_line for side in (found.now, found.before) if side} == {10, 22}, told([found])
        assert not kernel.check(2, 64, [1], cluster=2, order=order)


@pytest.mark.parametrize(
    ("how", "races"),
    [
        ("st.release.gpu.global.u32 [%f], 2;", True),
        ("st.relaxed.gpu.global.u32 [%f], 2; fence.acq_rel.gpu;", True),
        ("red.release.gpu.global.add.u32 [%f], 2;", True),
        ("L: ld.relaxed.gpu.global.u32 %v, [%f]; setp.eq.u32 %q, %v, 0; @%q bra L;", True),
        ("L: ld.acquire.gpu.global.u32 %v, [%f]; setp.eq.u32 %q, %v, 0; @%q bra L;", False),
        (
            "L: ld.relaxed.gpu.global.u32 %v, [%f]; setp.eq.u32 %q, %v, 0; @%q bra L; fence.acq_rel.gpu;",
            False,
        ),
    ],
)
def test_who_only_releases_acquires_nothing(how: str, races: bool) -> None:
    """One block writes and sets a flag; the other has to have seen it set before it reads."""
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {{
.reg .b64 %x, %f; .reg .b32 %b, %v; .reg .pred %p, %q; ld.param.u64 %x, [x]; add.u64 %f, %x, 64; mov.u32 %b, %ctaid.x;
setp.eq.u32 %p, %b, 0; @!%p bra OTHER;
st.global.u32 [%x], 5; st.release.gpu.global.u32 [%f], 1; ret;
OTHER: {how}
ld.global.u32 %v, [%x]; ret; }}"""
    for order in ("eager", "late", 3):
        found = tw.Kernel.from_ptx(text, "k").check(2, 1, [np.zeros(32, np.int32)], order=order)
        assert [item.kind for item in found] == ["read-write"] * races, told(found)


def test_lanes_that_touch_several_arrays_are_checked_in_each() -> None:
    """Whichever lies first, and whichever the first lanes touch; the two lie close together."""
    text = """extern "C" __global__ void both(unsigned long long p, unsigned long long q, int *y, int apart) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp < 2) ((int *)(warp ? p : q))[lane] = 1 + lane;
    if (apart) __syncthreads();
    if (warp == 2) y[lane] = ((int *)(lane < 16 ? p : q))[lane];
}"""
    kernel, memory, y = tw.Kernel(text, "both", "sm_80"), np.zeros(4096, np.int32), np.zeros(32, np.int32)
    parts = memory[:128], memory[160:]
    held = [AdoptedMemory(part.ctypes.data, part.nbytes, "memory", memory) for part in parts]
    addresses = [part.address for part in held]
    for p, q in (addresses, addresses[::-1]):
        (found,) = kernel.check(1, 96, [p, q, y, 0], order="eager")
        assert (found.kind, found.count, found.address) == ("read-write", 32, p), told([found])
        assert not kernel.check(1, 96, [p, q, y, 1], order="eager")


def test_findings_in_foreign_ptx_are_told_apart_by_its_lines() -> None:
    """It has no lines of a source: two races are two, and the same one in each warp is one."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k() {
.reg .b32 %r<6>; .shared .align 4 .b8 s[512];
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3; xor.b32 %r4, %r2, 128;
st.shared.u32 [%r2], %r1;
st.shared.u32 [%r2+256], %r1;
ld.shared.u32 %r5, [%r4];
ld.shared.u32 %r5, [%r4+256];
ret; }"""
    found = tw.Kernel.from_ptx(text, "k").check(1, 64, [], order="eager")
    lines = [sorted(side.ptx_line for side in (item.now, item.before) if side) for item in found]
    assert lines == [[7, 9], [8, 10]], told(found)
    assert all(side.line == 0 for item in found for side in (item.now, item.before) if side)


def test_there_are_enough() -> None:
    assert len({case.name for case in CASES}) >= 40


_NOTES = [{"syncs_blocks": False, "registers": 0, "shuffled": 0}]


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 2, 2)])
def test_numbers_are_those_of_the_blocks_cluster_by_cluster(cluster: tuple[int, int, int]) -> None:
    (x, y, z), (across, up, deep) = cluster, (3, 2, 2)
    checks = Checks(Launch((x * across, y * up, z * deep), (64, 1, 1), cluster=cluster), 2, [], {}, _NOTES)
    wanted = [
        (x * i + a, y * j + b, z * k + c)
        for k in range(deep) for j in range(up) for i in range(across)
        for c in range(z) for b in range(y) for a in range(x)
    ]  # fmt: skip
    sides = [checks.side(2 * number + 1 << WHO.LANE_BITS, 7) for number in range(len(wanted))]
    assert [side.block for side in sides] == wanted
    assert {(side.warp, side.thread, side.line) for side in sides} == {(1, 32, 7)}


COPIED = 'extern "C" __global__ void copied(const int *x, int *y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }'
AT = 'extern "C" __global__ void at(unsigned long long p) { *(int *)p = 1; }'


def test_a_new_array_is_unset_until_somebody_writes_it() -> None:
    device, kernel = open_emulator(), tw.Kernel(COPIED, "copied", "sm_80")
    new, old, result = device.empty(32, "int32"), device.array(np.arange(32)), device.empty(32, "int32")
    assert not kernel.check(1, 32, [old.numpy().astype(np.int32), new, 20])
    assert not kernel.check(1, 32, [new, result, 20])  # what a launch wrote is known in the next one
    (found,) = kernel.check(1, 32, [new, result, 21])
    assert (found.tool, found.count) == ("initcheck", 1)
    assert "at byte 80" in found.array


def test_a_part_that_the_host_fills_is_set() -> None:
    device, kernel = open_emulator(), tw.Kernel(COPIED, "copied", "sm_80")
    new, result = device.empty(32, "int32"), device.empty(32, "int32")
    new[::2].fill(np.ones(16, np.int32))
    assert [item.count for item in kernel.check(1, 32, [new, result, 32])] == [16]
    new.fill(np.ones(32, np.int32))
    assert not kernel.check(1, 32, [new, result, 32])


def test_of_a_word_those_bytes_are_set_that_the_host_fills() -> None:
    text = COPIED.replace("int *", "unsigned char *")
    device, kernel = open_emulator(), tw.Kernel(text, "copied", "sm_80")
    for count in range(1, 8):
        new, result = device.empty(9, "uint8"), device.empty(9, "uint8")
        new[:count].fill(np.ones(count, np.uint8))
        assert not kernel.check(1, 32, [new, result, count])
        assert [item.count for item in kernel.check(1, 32, [new, result, count + 1])] == [1]


def test_after_an_unchecked_launch_nothing_is_called_unset() -> None:
    device, kernel = open_emulator(), tw.Kernel(COPIED, "copied", "sm_80")
    new, result = device.empty(32, "int32"), device.empty(32, "int32")
    kernel(1, 32, [np.ones(32, np.int32), new, 32], device=device)
    assert not kernel.check(1, 32, [new, result, 32])


def test_an_array_that_was_let_go_of_is_named() -> None:
    array = tw.device("emulator").array(np.zeros(1237, np.int32))
    address = array.ptr
    del array
    (found,) = tw.Kernel(AT, "at", "sm_80").check(1, 1, [address + 8])
    assert (found.tool, found.kind) == ("memcheck", "use-after-free")
    assert "(1237,)" in found.message
    assert found.address == address + 8


@given(st.one_of(boxes(stores=True), images(stores=True)), st.sampled_from(["eager", "late", 3]))
@examples(30, 60)
def test_all_that_a_tensor_store_writes_is_in_flight_until_it_is_waited_for(
    case: TensorCase, order: str | int
) -> None:
    device = open_emulator()
    for wait in range(3):
        x = device.array(case.memory)
        made = case.map(x.ptr)
        box = Box(made.described, case.coordinates, case.at)
        what, shared = device.array(case.numbers(box, box.end)), device.array(np.zeros(box.end, np.uint8))
        args = [made, what, shared, x, device.empty(len(case.memory), "uint8"), len(case.memory), wait]
        found = kernel("store_and_read").check(1, 64, args, shared=box.end, order=order)
        unit = made.described.interleave or made.described.element.size
        rows = rows_of(made.described, case.coordinates)
        places = {place for row in rows for place in row.elements if place >= 0}
        if wait == 2 or not places:
            assert not found, told(found)
        else:
            assert [(item.kind, item.count) for item in found] == [("read-in-flight", unit * len(places))]


def test_findings_come_by_the_first_of_their_lines_whichever_side_it_is_of() -> None:
    """What one warp reads, another has written by later lines, or writes."""
    text = """extern "C" __global__ void swap(int *y) {
    __shared__ int s[64], t[64];
    s[threadIdx.x] = t[threadIdx.x] = 1;
    __syncthreads();
    int one = s[63 - threadIdx.x];
    int other = t[63 - threadIdx.x];
    t[threadIdx.x] = one + 1;
    s[threadIdx.x] = other + 1;
}"""
    for order in ("eager", "late", 5):
        found = tw.Kernel(text, "swap", "sm_80").check(1, 64, [np.zeros(1, np.int32)], order=order)
        places = [sorted(side.line for side in (item.now, item.before) if side) for item in found]
        assert places == [[5, 8], [6, 7]], told(found)


def test_findings_come_by_line_and_as_plain_data() -> None:
    text = """extern "C" __global__ void two(int *y) {
    __shared__ int s[64], t[64];
    s[threadIdx.x] = 1 + threadIdx.x;
    t[threadIdx.x] = 2 + threadIdx.x;
    int late = t[63 - threadIdx.x];
    y[threadIdx.x] = late + s[63 - threadIdx.x];
}"""
    kernel = tw.Kernel(text, "two", "sm_80")
    for order in ("eager", "late", 5):
        first, second = kernel.check(1, 64, [np.zeros(64, np.int32)], order=order)
        places = [sorted(side.line for side in (item.now, item.before) if side) for item in (first, second)]
        assert places == [[3, 6], [4, 5]] or places == [[4, 5], [3, 6]]
        assert first.plain()["tool"] == "racecheck"
        assert "^^^^" in str(first)


def test_arrays_that_are_kept_are_told_with_their_lines() -> None:
    device, kernel = open_emulator(), tw.Kernel(COPIED, "copied", "sm_80")
    before = device.empty(34, "int32")
    with Checker() as checker:
        kept, gone = device.empty(33, "int32"), device.array(np.ones(32, np.int32))
        assert not kernel.check(1, 32, [gone, kept, 32])
        assert not kernel.check(1, 32, [np.ones(32, np.int32), kept[:32], 32])
        del gone
    after = device.empty(35, "int32")
    (found,) = checker.findings
    assert (found.tool, found.kind, found.address) == ("memcheck", "leak", kept.ptr)
    assert "132 bytes" in found.message and "(33,)" in found.array
    assert found.now and found.now.file == __file__ and "device.empty(33" in found.now.text
    assert "allocation by the host" in str(found) and not found.now.ptx_line
    del before, after
    with Checker() as checker:
        assert not kernel.check(1, 32, [np.ones(32, np.int32), device.empty(32, "int32"), 32])
        ring: list[Any] = [device.empty(32, "int32")]
        ring.append(ring)
        del ring  # which only the garbage collector finds
    assert not checker.findings


def test_a_checker_that_is_entered_again_tells_no_array_twice() -> None:
    device, checker = open_emulator(), Checker()
    with checker:
        kept = device.empty(33, "int32")
    assert [item.address for item in checker.findings] == [kept.ptr]
    with checker:
        more = device.empty(34, "int32")
    assert [item.address for item in checker.findings] == [kept.ptr, more.ptr]


HEAP = """
__device__ int *block;
extern "C" __global__ void heap(int take)
{
    if (take == 1) block = new int;
    if (take == 0) delete block;
}"""


def test_behind_a_block_of_the_heap_whose_size_was_overwritten_nothing_is_read() -> None:
    """A block's size is a power of two, 16 bytes of which are its own: those of 8 bytes are no block."""
    heap = np.zeros(32, np.uint32)
    heap[4:8], heap[12:16] = (0, 5, 70, 3), (0, 3, 80, 3)
    assert find_leaked_blocks(heap.ctypes.data, heap.nbytes) == [HeapBlock(70, 3, 16)]


def test_a_checker_remembers_the_heap_from_one_launch_to_the_next() -> None:
    kernel = tw.Kernel(HEAP, "heap", "sm_80")
    take, give_back, rest = (kernel.bind(1, 1, [what], device="emulator").bound for what in (1, 0, 2))
    checker = Checker()
    leaked = checker.check(take)
    assert [item.kind for item in leaked] == ["leak"]
    told = "a block of the kernel's heap, 16 bytes, never given back"  # without the heap's own note beside it
    assert leaked[0].message == told
    assert checker.check(rest) == [], "it is told once"
    assert checker.check(give_back) == []
    assert [item.kind for item in checker.check(give_back)] == ["bad-free"]
    assert [item.kind for item in checker.findings] == ["leak", "bad-free"]
    assert [item.kind for item in check_bound(take, {})] == ["leak"]


def test_of_blocks_of_the_heap_by_one_line_the_first_is_shown() -> None:
    kernel = tw.Kernel(HEAP, "heap", "sm_80")
    found = check_bound(kernel.bind(1, 3, [1], device="emulator").bound, {})
    (leaked,) = (one for one in found if one.kind == "leak")
    assert leaked.message.startswith("3 blocks of the kernel's heap, 48 bytes") and leaked.count == 3
    assert leaked.now is not None and (leaked.now.block, leaked.now.thread) == ((0, 0, 0), (0, 0, 0))


def test_what_lies_on_a_gpu_is_not_checked() -> None:
    elsewhere: Any = SimpleNamespace(name="gpu:0", runs_on_gpu=True)
    bound = replace(tw.Kernel(AT, "at", "sm_80").bind(1, 1, [0], device="emulator").bound, device=elsewhere)
    with pytest.raises(ArgumentError) as caught:
        check_bound(bound, {})
    assert str(caught.value) == (
        "bound must be bound on the emulator to be profiled or checked, not 'gpu:0'; bind it with device=\"emulator\""
    )


EQUAL = """extern "C" __global__ void equal(const int *x, int *y) {
    __shared__ int s[2];
    %s
    __syncthreads();
    y[threadIdx.x] = s[0] + s[1];
}"""


@pytest.mark.parametrize(
    ("body", "noted"),
    [
        ("s[0] = s[1] = x[threadIdx.x];", True),
        ("if (threadIdx.x % 32 == 5) s[0] = s[1] = x[threadIdx.x];", True),
        ("if (threadIdx.x < 32) s[0] = s[1] = 4; else s[0] = s[1] = x[threadIdx.x];", True),
        ("s[0] = s[1] = 4;", False),  # a constant: it can never differ
        ("if (threadIdx.x < 2) s[threadIdx.x] = x[threadIdx.x];", False),
    ],
)
def test_equal_writes_that_race_are_noted(body: str, noted: bool) -> None:
    kernel, result = tw.Kernel(EQUAL % body, "equal", "sm_80"), np.zeros(64, np.int32)
    for order in ("eager", "late", 5):
        equal, different = np.full(64, 4, np.int32), np.arange(64, dtype=np.int32)
        assert not kernel.check(1, 64, [equal, result], order=order)
        found = kernel.check(1, 64, [equal, result], order=order, level="info")
        assert {(item.kind, item.level) for item in found} == ({("equal-writes", "info")} if noted else set())
        assert all(side and side.line == 3 for item in found for side in (item.now, item.before))
        harm = kernel.check(1, 64, [different, result], order=order, level="info")
        assert {(item.kind, item.level) for item in harm} == ({("write-write", "error")} if noted else set())


def test_equal_constants_that_two_lines_write_are_noted() -> None:
    """One of them may be changed without the other."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k() {
.reg .b32 %t; .reg .pred %p; .shared .align 4 .b32 s;
mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 32;
@%p st.shared.u32 [s], 4;
@!%p st.shared.u32 [s], 4;
ret; }"""
    (found,) = tw.Kernel.from_ptx(text, "k").check(1, 64, [], level="info")
    assert (found.kind, found.level) == ("equal-writes", "info")
    assert {side.ptx_line for side in (found.now, found.before) if side} == {7, 8}


@pytest.mark.parametrize("place", ["s", "s+4", "%s", "%s+4"])
@pytest.mark.parametrize("swapped", ["", "s", "s+4", "%s", "%s+4", "lock", "%lock"])
def test_only_a_compare_and_swap_of_the_same_address_makes_a_value_good(swapped: str, place: str) -> None:
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k() {{
.reg .b32 %t, %v, %s, %lock; .reg .pred %p; .shared .align 8 .b32 s[2]; .shared .b32 lock;
mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 32; mov.u32 %s, s; mov.u32 %lock, lock;
st.shared.v2.u32 [s], {{0, 0}}; st.shared.u32 [lock], 0; bar.sync 0;
{f"atom.shared.cas.b32 %v, [{swapped}], 0, 1;" if swapped else ""}
@%p atom.shared.add.u32 %v, [{place}], 5;
@!%p ld.shared.u32 %v, [{place}];
ret; }}"""
    found = tw.Kernel.from_ptx(text, "k").check(1, 64, [])
    assert [item.kind for item in found] == ["read-write"] * (swapped != place), told(found)


def test_a_level_is_one_of_three() -> None:
    with pytest.raises(ArgumentError, match="info, warning, error"):
        tw.Kernel(COPIED, "copied", "sm_80").check(1, 1, [0, 0, 0], level="all")


def test_a_finding_says_which_argument_and_calls_the_kernel_by_its_name() -> None:
    text = """struct Part { int n; float *p; };
template <int n> __global__ void shifted(const float *x, Part part, float *z) {
    part.p[threadIdx.x ^ 1] = part.p[threadIdx.x] + x[threadIdx.x];
    if (n == 1) z[threadIdx.x + 1] = 0;
}"""
    x, array = np.zeros(64, np.float32), open_emulator().array(np.ones(64, np.float32))
    part = np.array((64, array.ptr), np.dtype([("n", "i4"), ("p", "u8")], align=True))
    quiet, loud = (tw.Kernel(text, f"shifted<{n}>", "sm_80") for n in range(2))
    (found,) = quiet.check(1, 64, [x, part, x.copy()])
    assert found.kernel == "shifted<0>"
    assert found.array.startswith("args[1]") and "args[1]" in found.message
    ended = loud.check(1, 64, [x, part, x.copy()])[-1]
    assert ended.kernel == "shifted<1>"
    assert "past the end of args[2] (float *), the float32 array of shape (64,)" in ended.message
    with pytest.raises(KernelFault, match=r"args\[2\] \(float \*\)"):
        loud(1, 64, [x, part, x.copy()], device="emulator")


@pytest.mark.parametrize(("given", "static"), [(0, 0), (64, 0), (0, 7), (128, 33)])
def test_a_launch_with_too_little_shared_memory_is_told_how_much(given: int, static: int) -> None:
    text = f"""extern "C" __global__ void lacking(int *y) {{
    extern __shared__ int s[];
    {f"__shared__ int t[{static}]; t[threadIdx.x % {static}] = 1;" if static else ""}
    if (threadIdx.x == 63) s[63] = 1;
}}"""
    kernel = tw.Kernel(text, "lacking", "sm_80")
    (found,) = kernel.check(1, 64, [0], shared=given)
    assert found.kind == "out-of-bounds" and f"--shared {4 * 64}" in found.advice, found.advice
    assert f"it has {given} bytes" in found.advice
    assert not kernel.check(1, 64, [0], shared=4 * 64)
    (static_only,) = tw.Kernel(
        'extern "C" __global__ void own(int n, int *y) { __shared__ int s[8]; s[n] = 1; *y = s[n ^ 1]; }',
        "own",
    ).check(1, 1, [8, 0])
    assert "shared" not in static_only.advice


def test_what_there_is_no_room_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
extern "C" __global__ void races(int *out)
{
    __shared__ int all[3];
    all[0] = threadIdx.x;
    all[1] = threadIdx.x + 1;
    all[2] = threadIdx.x + 2;
    __syncthreads();
    out[threadIdx.x] = all[0] + all[1] + all[2];
}
"""
    races = tw.Kernel(source, "races", "sm_80")
    every = races.check(1, 32, [np.zeros(32, np.int32)])
    assert len(every) == 3
    assert "left-out" not in {item.kind for item in every}
    monkeypatch.setattr("tilewise.emulator.running.checked_launch._CAPACITY", 1)
    first, left_out = races.check(1, 32, [np.zeros(32, np.int32)])
    assert (first.kind, left_out.kind) == (every[0].kind, "left-out")
    assert left_out.count == sum(item.count for item in every[1:])


def test_where_two_arrays_meet_the_address_is_of_the_second() -> None:
    ranges = [Range(4096, 64, "a"), Range(4160, 32, "b")]
    named = [_array(address, ranges) for address in (4095, 4096, 4159, 4160, 4191, 4192)]
    assert named == ["", "a at byte 0", "a at byte 63", "b at byte 0", "b at byte 31", ""]


def test_a_line_is_one_finding_for_each_space_it_is_wrong_in() -> None:
    """One read through a generic address may be unset in both."""
    side = Access("read", (0, 0, 0), (0, 0, 0), 0, 7, "ld.u32 %r1, [%rd1];")
    found = [
        Finding("initcheck", "unset", "", "", "k", count, space, now=side)
        for space, count in (("shared", 1), ("global", 2), ("shared", 4))
    ]
    assert sorted((one.space, one.count) for one in _merge_repeated(found)) == [("global", 2), ("shared", 5)]


@pytest.mark.parametrize(
    ("kind", "lines", "other", "other_lines", "follows"),
    [
        ("racecheck equal-writes", (7, 7), "racecheck write-write", (7, 8), True),
        ("racecheck equal-writes", (7, 8), "racecheck write-write", (7, 7), False),
        ("racecheck equal-writes", (7, 7), "initcheck unset", (7, 7), False),
        ("racecheck write-write", (7, 7), "racecheck read-write", (7, 8), True),
        ("racecheck write-write", (7, 8), "racecheck read-write", (7, 7), False),
        ("racecheck read-write", (7, 8), "racecheck write-write", (7, 8), False),
        ("racecheck read-write", (7, 8), "asyncheck read-in-flight", (8, 7), True),
        ("racecheck read-write", (7, 7), "asyncheck read-in-flight", (7, 8), False),
        ("initcheck unset", (7, 0), "racecheck read-write", (8, 7), True),
        ("initcheck unset", (7, 0), "memcheck bad-mbarrier", (7, 0), True),
        ("initcheck unset", (7, 0), "memcheck leak", (7, 0), False),
        ("initcheck unset", (7, 0), "racecheck read-write", (8, 9), False),
        ("asyncheck copy-too-early", (7, 8), "asyncheck source-in-flight", (7, 8), True),
        ("asyncheck copy-too-early", (7, 8), "asyncheck write-in-flight", (7, 8), False),
        ("asyncheck copy-too-early", (7, 7), "asyncheck read-in-flight", (7, 8), False),
        ("asyncheck write-in-flight", (7, 7), "asyncheck read-in-flight", (7, 8), True),
        ("asyncheck write-in-flight", (7, 8), "asyncheck read-in-flight", (7, 8), False),
        ("asyncheck write-in-flight", (7, 7), "asyncheck source-in-flight", (7, 8), False),
        ("racecheck uninitialised-mbarrier", (9, 7), "racecheck uninitialised-mbarrier", (8, 7), True),
        ("racecheck uninitialised-mbarrier", (8, 7), "racecheck uninitialised-mbarrier", (9, 7), False),
        ("racecheck uninitialised-mbarrier", (9, 7), "racecheck uninitialised-mbarrier", (8, 6), False),
        ("racecheck uninitialised-mbarrier", (9, 7), "racecheck read-write", (8, 7), False),
    ],
)
def test_what_follows_from_another_finding_is_left_out(
    kind: str, lines: tuple[int, int], other: str, other_lines: tuple[int, int], follows: bool
) -> None:
    def finding(kind: str, lines: tuple[int, int]) -> Finding:
        now, before = (Access("write", (0, 0, 0), (0, 0, 0), 0, at, "…") if at else None for at in lines)
        tool, what = kind.split()
        return Finding(tool, what, "", "", "k", now=now, before=before)

    first, second = finding(kind, lines), finding(other, other_lines)
    for both in ([first, second], [second, first]):
        assert (first not in _drop_consequences(both)) == follows
