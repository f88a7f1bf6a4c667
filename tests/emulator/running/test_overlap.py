"""Programmatic launches: one begins before the launch before has ended, and waits for it, or should."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tests.harness.lanes import run
from tests.harness.many import refused
from tilewise.devices.host_memory import Allocation, Region
from tilewise.devices.overlap import Snapshot
from tilewise.emulator.running.checked_launch import Checks
from tilewise.emulator.running.fault_report import Range
from tilewise.instruments.checking import Checker
from tilewise.launch import Launch

SOURCE = """
extern "C" __global__ void fill(int *x, int value)
{
    asm volatile("griddepcontrol.launch_dependents;");
    x[blockIdx.x * blockDim.x + threadIdx.x] = value + threadIdx.x;
}

extern "C" __global__ void quiet(int *x, int value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value + threadIdx.x; }

// wait: 0 never, 1 every thread, 2 the even threads alone, 3 after a barrier that the second warp comes to late
extern "C" __global__ void twice(const int *x, int *y, int wait)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (wait == 3 && threadIdx.x < 32) asm volatile("griddepcontrol.wait;" ::: "memory");
    if (wait == 3) __syncthreads();
    if (wait == 1 || wait == 3 || wait == 2 && threadIdx.x % 2 == 0) asm volatile("griddepcontrol.wait;" ::: "memory");
    y[i] = 2 * x[i];
}
"""
SIZE = 5 * 64
THREAD = np.arange(SIZE, dtype=np.int32) % 64


def launch(
    order: str | int, wait: int, first: str = "fill", programmatic: bool = True, between: Any = None
) -> npt.NDArray[np.int32]:
    """What the second of two launches makes of what the first one writes over tens."""
    device = tw.device("emulator", order=order)
    x, y = device.array(np.full(SIZE, 10, np.int32)), device.array(np.zeros(SIZE, np.int32))
    tw.Kernel(SOURCE, first, "sm_90")(5, 64, [x, 100], device=device)
    if between is not None:
        between(x)
    tw.Kernel(SOURCE, "twice", "sm_90")(5, 64, [x, y, wait], device=device, programmatic=programmatic)
    assert np.array_equal(x.numpy(), 100 + THREAD if between is None else x.numpy())
    return y.numpy()


@pytest.mark.parametrize("order", ["eager", "late", 1, 2, 3])
@pytest.mark.parametrize("wait", [1, 3])
def test_who_waits_sees_what_the_launch_before_wrote(order: str | int, wait: int) -> None:
    assert np.array_equal(launch(order, wait), 2 * (100 + THREAD))


@pytest.mark.parametrize("order", ["late", 1, 3])
def test_who_does_not_wait_sees_what_was_there_before(order: str | int) -> None:
    assert np.array_equal(launch(order, 0), np.full(SIZE, 20))
    assert np.array_equal(launch(order, 2), np.where(THREAD % 2 == 0, 2 * (100 + THREAD), 20))


@pytest.mark.parametrize(
    ("order", "more"),
    [
        ("eager", {}),
        (2, {}),
        ("late", {"programmatic": False}),
        ("late", {"first": "quiet"}),
    ],
    ids=["eager", "an even seed", "not programmatic", "nobody lets it"],
)
def test_launches_that_do_not_overlap(order: str | int, more: dict[str, Any]) -> None:
    assert np.array_equal(launch(order, 0, **more), 2 * (100 + THREAD))


def test_what_the_host_wrote_between_stays() -> None:
    found = launch("late", 0, between=lambda x: x.fill(np.full(SIZE, 7, np.int32)))
    assert np.array_equal(found, np.full(SIZE, 14))


@pytest.mark.parametrize("order", ["late", 1])
@pytest.mark.parametrize("blocks", [1, 70])
def test_each_of_a_row_of_launches_waits_for_the_one_before(order: str | int, blocks: int) -> None:
    source = """
    extern "C" __global__ void step(int *x, int wait)
    {
        asm volatile("griddepcontrol.launch_dependents;");
        if (wait) asm volatile("griddepcontrol.wait;" ::: "memory");
        x[blockIdx.x * 32 + threadIdx.x] += 1;
    }
    """
    device, kernel = tw.device("emulator", order=order), tw.Kernel(source, "step", "sm_90")
    for wait in (0, 1):
        x = device.array(np.zeros(32 * blocks, np.int32))
        kernel(1, 32, [device.array(np.zeros(32, np.int32)), 1], device=device)
        for _ in range(6):
            kernel(blocks, 32, [x, wait], device=device, programmatic=True)
        assert np.array_equal(x.numpy(), np.full(32 * blocks, 6)) == bool(wait)


@pytest.mark.parametrize("order", ["eager", "late", 1, 2])
def test_lanes_that_wait_for_something_else_wait_on_when_the_launch_before_has_ended(
    order: str | int,
) -> None:
    """Even ones wait for the launch, odd ones at a barrier that the even ones come to afterwards."""
    source = """
    extern "C" __global__ void parted(const int *x, int *y)
    {
        __shared__ int s[64];
        s[threadIdx.x] = 0;
        __syncthreads();
        if (threadIdx.x % 2 == 0) {
            asm volatile("griddepcontrol.wait;" ::: "memory");
            s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
            asm volatile("barrier.sync 1, 64;" ::: "memory");
        } else {
            asm volatile("barrier.sync 1, 64;" ::: "memory");
            y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x ^ 33];
        }
    }
    """
    device = tw.device("emulator", order=order)
    x, y = device.array(np.full(SIZE, 10, np.int32)), device.array(np.zeros(SIZE, np.int32))
    tw.Kernel(SOURCE, "fill", "sm_90")(5, 64, [x, 100], device=device)
    tw.Kernel(source, "parted", "sm_90")(5, 64, [x, y], device=device, programmatic=True)
    assert np.array_equal(y.numpy(), np.where(THREAD % 2, 100 + (THREAD ^ 33), 0))


@pytest.mark.parametrize("order", ["late", 1, "eager"])
def test_the_checker_names_the_read_that_comes_too_early(order: str | int) -> None:
    device = tw.device("emulator")
    fill, twice = (tw.Kernel(SOURCE, name, "sm_90") for name in ("fill", "twice"))
    for wait in (0, 1, 2, 3):
        x, y = device.array(np.full(SIZE, 10, np.int32)), device.array(np.zeros(SIZE, np.int32))
        first = fill.bind(5, 64, [x, 100], device=device)
        second = twice.bind(5, 64, [x, y, wait], device=device, programmatic=True)
        checker = Checker(order)
        assert checker.check(first.bound) == []
        found = [finding.kind for finding in checker.check(second.bound)]
        assert found == (["early-read"] if wait in (0, 2) and order != "eager" else [])
        assert np.array_equal(x.numpy(), 100 + THREAD)


def test_every_byte_of_a_word_that_the_launch_before_wrote_comes_too_early() -> None:
    notes = [{"syncs_blocks": False, "registers": 0, "shuffled": 0}]
    checks = Checks(Launch((1, 1, 1), (32, 1, 1)), 1, [Range(4096, 64, "x")], {}, notes)
    checks.expect_writes(4096, np.array([9, 10]))
    assert [at for at in range(4096, 4096 + 64) if checks.is_early(at)] == [4096 + i for i in (8, 9, 10, 11)]


def test_what_is_taken_back_is_put_there_again_but_for_what_was_written_meanwhile() -> None:
    """Memory that several handles share is left as it is."""
    memory = [Allocation(64, name) for name in "xy"]
    for item in memory:
        item.bytes[:] = 7
    shared = Region(memory[1].address, 64, "shared", [memory[1]])
    before = Snapshot([memory[0], shared])
    assert not before.changes()
    memory[0].bytes[8:16] = memory[1].bytes[8:16] = 9
    changes = before.changes()
    assert changes
    memory[0].bytes[12] = 5
    changes.take_back()
    assert memory[0].bytes.tolist() == [*[7] * 12, 5, *[7] * 51]
    assert memory[1].bytes[8:16].tolist() == [9] * 8
    memory[0].bytes[9] = 6  # by the launch behind, which the one before does not spare
    changes.put_back()
    assert memory[0].bytes.tolist() == [*[7] * 8, *[9] * 4, 5, *[9] * 3, *[7] * 48]


# -- another cluster's work -------------------------------------------------------------------------------------
STEAL = r"""
// Each cluster works on its own part of y, then on those of clusters that it cancels. Returns what it was told.
extern "C" __global__ void steal(int *y, unsigned *told, int all)
{
    __shared__ alignas(16) unsigned response[4];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned place = __cvta_generic_to_shared(response), bar = __cvta_generic_to_shared(&barrier), over = 0, more, first;
    unsigned rank, block = blockIdx.x;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    response[threadIdx.x % 4] = 7;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(bar) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cta.b64 _, [%0], 16;" :: "r"(bar) : "memory");
    }
    asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
    if (threadIdx.x == 20 && !all)
        asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
                     :: "r"(place), "r"(bar) : "memory");
    if (threadIdx.x == 0 && all && rank == 0)
        asm volatile("clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%0], [%1];"
                     :: "l"(response), "l"(&barrier) : "memory");
    y[block * blockDim.x + threadIdx.x] += 1;
    while (!over)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(bar) : "memory");
    asm volatile("{ .reg .b128 r; .reg .pred p; ld.shared.b128 r, [%2];"
                 "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r; selp.u32 %0, 1, 0, p;"
                 "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, r; }"
                 : "=r"(more), "=r"(first) : "r"(place) : "memory");
    told[block * blockDim.x + threadIdx.x] = more + response[threadIdx.x % 4];
    asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
}
"""


@pytest.mark.parametrize("order", ["eager", "late", 2])
@pytest.mark.parametrize("all_blocks", [0, 1])
def test_there_is_never_a_cluster_to_cancel(order: str | int, all_blocks: int) -> None:
    """So every block does its own part, once. The answer comes to the block that asks, or to all of its cluster."""
    y, told = np.zeros(8 * 64, np.int32), np.full(8 * 64, 9, np.uint32)
    kernel = tw.Kernel(STEAL, "steal", "sm_100a")
    kernel(8, 64, [y, told, all_blocks], cluster=4, device=tw.device("emulator", order=order))
    assert (y == 1).all() and (told == 0).all()


def test_what_a_response_says() -> None:
    """That a cluster is canceled, and where its first block is: words that the emulator itself never gives."""
    queries = [
        f"clusterlaunchcontrol.query_cancel.get_first_ctaid::{axis}.b32.b128 {{d}}, %r;" for axis in "xyz"
    ]
    queries.append("clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{_, {d}, _, _}}, %r;")
    queries.append(
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 {p}, %r; selp.u32 {d}, 1, 0, {p};"
    )
    made = (
        "{{{{ .reg .b128 %r; .reg .b64 %w<2>; mov.b64 %w0, {{{{{a}, {b}}}}}; mov.b64 %w1, {{{{{c}, {m}}}}};"
    )
    made += "mov.b128 %r, {{{{%w0, %w1}}}};"
    given = [np.random.default_rng().integers(0, 2**32, 32, np.uint32) for _ in range(3)]
    canceled = np.arange(32, dtype=np.uint32) % 2
    results = run(
        [made.replace("{{{{", "{{").replace("}}}}", "}}") + query + "}}" for query in queries],
        [*given, canceled],
    )
    for result, want in zip(results, [*given, given[1], canceled], strict=True):
        assert (result == want).all()


@pytest.mark.parametrize(
    "instruction",
    [
        "try_cancel.async.shared.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];",
        "try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b64 [%r1], [%r2];",
        "try_cancel.mbarrier::complete_tx::bytes.b128 [%l1], [%l2];", "try_cancel.async.b128 [%l1], [%l2];",
        "query_cancel.get_first_ctaid.b32.b128 %r1, %q;", "query_cancel.get_first_ctaid::w.b32.b128 %r1, %q;",
        "query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r1, %r1}, %q;", "query_cancel.is_canceled.b128 %p, %q;",
        "query_cancel.get_first_ctaid::x.u32.b128 %r1, %q;",
    ],
)  # fmt: skip
def test_other_forms_of_requests_are_refused(instruction: str) -> None:
    assert "clusterlaunchcontrol" in refused(
        f"clusterlaunchcontrol.{instruction}".replace("%q", "%w"), ".reg .b128 %w;"
    )
