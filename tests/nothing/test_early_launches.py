"""Launches that begin before the one before them has ended: where their blocks are spread evenly all the same."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tilewise.gpus import launch_limits, limits
from tilewise.kernels import KERNELS
from tilewise.kernels.bind import bind, readable
from tilewise.kernels.gemm.arrange import with_copies
from tilewise.kernels.gemm.simt import SHAPES, lie
from tilewise.kernels.spec import Step
from tilewise.launch import Launch
from tilewise.operands import ceil_div
from tilewise.planner import operands_of


def most_of_an_sm(blocks: int, resident: int, sms: int, order: random.Random) -> int:
    """Of a launch that begins while one like it runs: how many of its blocks the SM gets that has the most.

    A block goes to an SM with the most room. Where there is none, an SM ends what it has of the launch before.
    """
    before = [blocks // sms + (sm < blocks % sms) for sm in range(sms)]
    here = [0] * sms
    for _ in range(blocks):
        if all(before[sm] + here[sm] == resident for sm in range(sms)):
            before[order.choice([sm for sm in range(sms) if before[sm]])] = 0
        here[max(range(sms), key=lambda sm: resident - before[sm] - here[sm])] += 1
    return max(here)


@given(
    resident=st.integers(1, 8), sms=st.integers(2, 12), filled=st.floats(0.01, 1), seed=st.integers(0, 999)
)
def test_blocks_are_spread_evenly_where_a_launch_may_begin_early(
    resident: int, sms: int, filled: float, seed: int
) -> None:
    blocks = max(round(filled * resident * sms), 1)
    step = Step("any", Launch((blocks, 1, 1), (32, 1, 1), ()), resident=resident)
    if step.may_begin_early(sms):
        found = most_of_an_sm(blocks, resident, sms, random.Random(seed))
        assert found <= ceil_div(blocks, sms)


def test_blocks_may_crowd_where_a_launch_has_to_wait() -> None:
    """Two blocks on each of 8 SMs that hold three: one SM gets three. Of larger grids what ends first takes more."""
    step = Step("any", Launch((16, 1, 1), (32, 1, 1), ()), resident=3)
    assert most_of_an_sm(16, 3, 8, random.Random(1)) == 3 and not step.may_begin_early(8)
    assert replace(step, launch=replace(step.launch, grid=(5, 5, 1))).may_begin_early(8)


@pytest.mark.parametrize(("arch", "partition", "early"), [
    ("sm_90a", "128x128x8", True), ("sm_90a", "128x64x16", False), ("sm_80", "128x128x8", False),
])  # fmt: skip
def test_a_product_begins_early_if_its_blocks_are_spread_evenly(
    arch: str, partition: str, early: bool
) -> None:
    """Of two blocks an SM where it holds two, or three; and since Hopper."""
    device, spec = tw.device("emulator", threads=2), KERNELS["simt"]
    block = SHAPES[partition].block
    operands = operands_of(2 * block.m, 2 * block.n, 64)
    settings = spec.complete({**spec.for_types(operands), "partition": partition, "b_bytes": 16})
    (launch,) = bind(spec, settings, operands, operands, device, arch).launches
    assert launch.launch.programmatic == early


@pytest.mark.parametrize(("blocks", "early"), [(2, False), (4, False), (8, True)])
def test_behind_copies_a_product_begins_early_if_its_blocks_fill_the_sms(blocks: int, early: bool) -> None:
    """SMs that a copy still runs on take no blocks of it, and the others as many as they hold: here four each of two."""
    device, spec = tw.device("emulator", threads=2), KERNELS["simt"]
    operands = operands_of(64 * blocks, 64, 64)
    for names in ((), ("a",)):
        read = with_copies(spec, operands, names)
        settings = spec.complete({**spec.for_types(read), **lie(read), "partition": "64x64x16"})
        (launch,) = bind(spec, settings, operands, read, device, "sm_90a").launches
        assert launch.launch.programmatic == (early or not names)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90"])
def test_a_launch_asks_for_no_more_shared_memory_than_its_arch_has(arch: str) -> None:
    """Where the emulator, which has more, runs it; and for so much that an SM holds no more blocks than planned."""
    device, spec = tw.device("emulator", threads=2), KERNELS["mma"]
    operands = operands_of(100, 90, 330, dtype="float16")
    given = {"partition": "64x64x64", "stages": 2, "a_bytes": 4, "b_bytes": 4}
    settings = spec.complete({**spec.for_types(operands), **given})
    (launch,) = bind(spec, settings, operands, operands, device, arch).launches
    (step,) = spec.steps(operands, settings)
    assert step.launch.shared <= launch.launch.shared <= launch_limits(arch).shared_bytes_per_block
    if arch == "sm_107":
        assert launch.launch.shared == step.launch.shared
    else:
        known = limits(arch)
        assert (
            known.shared_per_sm // (launch.launch.shared + known.shared_reserved_per_block) <= step.resident
        )


@pytest.mark.parametrize("sizes", [(0, 5, 6, 3), (4, 0, 6, 3), (4, 5, 6, 0)])
def test_a_product_without_elements_launches_nothing(sizes: tuple[int, int, int, int]) -> None:
    """Where a GPU would refuse a grid of no blocks."""
    device, spec = tw.device("emulator", threads=2), KERNELS["general"]
    operands = operands_of(*sizes[:3], batch=sizes[3])
    settings = spec.complete(spec.for_types(operands))
    assert bind(spec, settings, operands, operands, device).launches == ()


@pytest.mark.parametrize(
    ("kernel", "parts", "dtype", "partition"),
    [("mma", "split", "bfloat16", "64x64x64"), ("simt", "parts", "float32", "64x64x16")],
)
def test_an_sm_holds_as_many_blocks_of_a_part_of_k_as_of_all(
    kernel: str, parts: str, dtype: str, partition: str
) -> None:
    spec, operands = KERNELS[kernel], operands_of(64, 64, 4096, dtype=dtype)
    settings = spec.complete({**spec.for_types(operands), "partition": partition})
    whole, part = (spec.steps(operands, {**settings, parts: count})[0].resident for count in (1, 2))
    assert whole == part > 1


@pytest.mark.parametrize("partition", ["128x64x16", "64x64x16", "32x32x16"])
def test_an_sm_holds_no_more_blocks_than_are_said(partition: str) -> None:
    """Though there may be registers for more of them: plans and launches that begin early count on it."""
    device, spec = tw.device("emulator", threads=2), KERNELS["simt"]
    operands = operands_of(700, 700, 700, layout="tn")
    settings = spec.complete({**spec.for_types(operands), **lie(operands), "partition": partition})
    (launch,) = bind(spec, settings, operands, operands, device, "sm_90a").launches
    assert limits((9, 0)).shared_per_sm // (launch.launch.shared + 1024) == SHAPES[partition].resident


@pytest.mark.parametrize(("k", "n", "each"), [(128, 256, 1), (256, 600, 5), (1296, 1300, 61)])
def test_copies_leave_an_sm_no_room_for_more_than_its_share(k: int, n: int, each: int) -> None:
    """Of blocks that transpose 128 by 128 bytes; the first SMs to be free after a product would take eight."""
    device, spec = tw.device("emulator", threads=2), KERNELS["wgmma"]
    operands = operands_of(64, n, k, dtype="int8")
    read, names = readable(spec, operands)
    settings = spec.complete({**spec.for_types(operands), "partition": "64x64x128", "b_in_rows": 0})
    (copy,) = bind(spec, settings, operands, read, device, "sm_90a").copies
    assert names == ("b",) and copy.launch.programmatic
    assert ceil_div(copy.launch.grid[0], device.multiprocessors) == each
    static = copy.resources.shared_bytes if copy.resources else 0
    held = limits((9, 0)).shared_per_sm // (static + copy.launch.shared + 1024)
    assert held == each if each <= 8 else copy.launch.shared == 0
