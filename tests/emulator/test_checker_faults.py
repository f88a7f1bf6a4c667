"""The checker: each fault is found, by its tool, its kind and its lines; and nothing in the kernel mended."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.emulator.cases import Case, arrays
from tests.emulator.faulty import CASES, kernel_of, marked
from tests.tensor_cases import Case as TensorCase
from tests.tensor_cases import boxes, images
from tests.tensor_kernels import kernel
from tests.tensor_model import Box, rows_of
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError
from tilewise.instruments.checking import Checker, check_bound
from tilewise.instruments.findings import Finding

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


@every_case
def test_nothing_is_found_in_the_kernel_mended(case: Case) -> None:
    for order in ("eager", "late", 3, np.random.default_rng().integers(1 << 30)):
        found = check(case, True, int(order) if isinstance(order, np.integer) else order)
        assert not found, f"{order}\n{told(found)}"


def test_there_are_enough() -> None:
    assert len({case.name for case in CASES}) >= 40


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
@settings(max_examples=60, deadline=None)
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
    assert "allocation by the host" in str(found)
    del before, after
    with Checker() as checker:
        assert not kernel.check(1, 32, [np.ones(32, np.int32), device.empty(32, "int32"), 32])
    assert not checker.findings


HEAP = """
__device__ int *block;
extern "C" __global__ void heap(int take)
{
    if (take) block = new int;
    else delete block;
}"""


def test_a_checker_remembers_the_heap_from_one_launch_to_the_next() -> None:
    kernel = tw.Kernel(HEAP, "heap", "sm_80")
    take, give_back = (kernel.bind(1, 1, [take], device="emulator").bound for take in (1, 0))
    checker = Checker()
    assert [item.kind for item in checker.check(take)] == ["leak"]
    assert checker.check(give_back) == []
    assert [item.kind for item in checker.check(give_back)] == ["bad-free"]
    assert [item.kind for item in checker.findings] == ["leak", "bad-free"]
    assert [item.kind for item in check_bound(take, {})] == ["leak"]


def test_what_lies_on_a_gpu_is_not_checked() -> None:
    elsewhere: Any = SimpleNamespace(name="gpu:0", runs_on_gpu=True)
    bound = replace(tw.Kernel(AT, "at", "sm_80").bind(1, 1, [0], device="emulator").bound, device=elsewhere)
    with pytest.raises(ArgumentError, match=r"bound must be bound on the emulator .*, not 'gpu:0'"):
        check_bound(bound, {})
