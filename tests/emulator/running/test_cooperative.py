"""Cooperative launches: every block is resident, the grid's workspace is there, too many blocks are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.cli.main import main
from tilewise.gpus import find
from tilewise.instruments.residency import check_cooperative
from tilewise.launch import Launch
from tilewise.toolchain.binary import Resources

ORDERS: list[str | int] = ["eager", "late", 0, 1, 2, 3]

# A barrier of the grid as drivers support it: a word behind the first of the workspace, all zeros before the launch.
SHIFT = """
__device__ unsigned *find_workspace()
{
    unsigned high, low;
    asm volatile("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm volatile("mov.u32 %0, %%envreg2;" : "=r"(low));
    return (unsigned *)((unsigned long long)high << 32 | low);
}

__device__ void wait_for_grid()
{
    unsigned *workspace = find_workspace();
    if (!workspace) __trap();
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        unsigned goal = (atomicAdd(workspace + 1, 1) / gridDim.x + 1) * gridDim.x;
        while (*(volatile unsigned *)(workspace + 1) < goal);
        __threadfence();
    }
    __syncthreads();
}

extern "C" __global__ void shift(int *x, int *y, int rounds, int careless)
{
    int size = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < rounds; round++) {
        y[(i + blockDim.x) % size] = x[i] + 1;
        if (!careless) wait_for_grid();
        x[i] = y[i];
        wait_for_grid();
    }
}

extern "C" __global__ void has_workspace(int *y) { *y = find_workspace() != 0; }
"""


@pytest.fixture(scope="module")
def shift() -> tw.Kernel:
    return tw.Kernel(SHIFT, "shift", "sm_80")


def arguments(blocks: int, rounds: int = 3, careless: bool = False) -> list[Any]:
    size = 64 * blocks
    return [np.arange(size, dtype=np.int32), np.zeros(size, np.int32), rounds, int(careless)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("blocks", "threads"), [(1, 1), (5, 1), (5, 2), (150, 2)])
def test_a_barrier_of_the_grid_lets_all_blocks_through(
    shift: tw.Kernel, order: str | int, blocks: int, threads: int
) -> None:
    given = arguments(blocks)
    expected = np.roll(given[0], 3 * 64) + 3
    shift(blocks, 64, given, device=tw.device(order=order, threads=threads), cooperative=True)
    assert np.array_equal(given[0], expected)


def test_a_bound_launch_starts_anew_each_time(shift: tw.Kernel) -> None:
    device, given = tw.device("emulator"), arguments(4, 1)
    given[:2] = [device.array(array) for array in given[:2]]
    expected = given[0].numpy()
    call = shift.bind(4, 64, given, device=device, cooperative=True)
    for _ in range(3):
        call()
        expected = np.roll(expected, 64) + 1
        assert np.array_equal(given[0].numpy(), expected)


@pytest.mark.parametrize("order", ORDERS)
def test_the_checker_takes_the_barrier_for_one_and_misses_a_missing_one(
    shift: tw.Kernel, order: str | int
) -> None:
    assert shift.check(4, 64, arguments(4), order=order, cooperative=True) == []
    found = shift.check(4, 64, arguments(4, careless=True), order=order, cooperative=True)
    assert {finding.tool for finding in found} == {"racecheck"}


def test_without_the_flag_the_trap_says_what_is_missing(shift: tw.Kernel) -> None:
    with pytest.raises(
        tw.TilewiseError, match=r"grid.sync\(\) .* give it cooperative=True .*\n  in kernel shift"
    ):
        shift(4, 64, arguments(4), device="emulator")
    (found,) = shift.check(4, 64, arguments(4))
    assert found.kind == "trap" and "cooperative=True" in found.message
    other = tw.Kernel('extern "C" __global__ void stop() { __trap(); }', "stop", "sm_80")
    with pytest.raises(tw.TilewiseError, match=r"^the kernel trapped\n"):
        other(1, 1, device="emulator")


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_kernel_may_ask_whether_there_is_a_workspace(cooperative: bool) -> None:
    found = np.full(1, -1, np.int32)
    kernel = tw.Kernel(SHIFT, "has_workspace", "sm_80")
    kernel(1, 32, [found], device="emulator", cooperative=cooperative)
    assert found[0] == cooperative


WIDE = """
extern "C" __global__ void wide(float *x) { if (threadIdx.x == 0) atomicAdd(x, 1); }
"""


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("arch", "gpu", "block", "shared", "fitting", "bound"),
    [
        ("sm_75", "rtx-2060-super", 64, 0, 34 * 16, "room for warps and room for blocks"),
        ("sm_75", "rtx-2060-super", 1024, 0, 34, "room for warps"),
        ("sm_90", None, 64, 100_000, 132 * 2, "shared memory"),
        ("sm_90", "h200", 32, 200_000, 132, "shared memory"),
        ("sm_80", "a100-80gb", 128, 40_000, 108 * 4, "shared memory"),
    ],
)
def test_more_blocks_than_fit_are_refused(
    arch: str, gpu: str | None, block: int, shared: int, fitting: int, bound: str
) -> None:
    kernel = tw.Kernel(WIDE, "wide", arch)

    def launch(blocks: int, **more: Any) -> None:
        x = [np.zeros(1, np.float32)]
        if gpu is None:
            kernel(blocks, block, x, shared, device="emulator", **more)
        else:
            kernel.profile(blocks, block, x, shared, gpu=gpu, **more)

    launch(fitting, cooperative=True)
    launch(fitting + 1)
    message = f"grid must have at most {fitting:,} blocks in a cooperative launch of wide .*{bound}.*{fitting + 1:,}"
    with pytest.raises(tw.TilewiseError, match=message):
        launch(fitting + 1, cooperative=True)


def test_static_and_dynamic_shared_memory_are_counted_together() -> None:
    """Of 164 KB that a multiprocessor has, one block takes more than half."""
    gpu = find("a100-80gb")
    resources = Resources(
        registers=32,
        shared_bytes=60_000,
        constant_bytes=0,
        barriers=1,
        stack_bytes=0,
        spill_store_bytes=0,
        spill_load_bytes=0,
    )
    launch = Launch((108, 1, 1), (32, 1, 1), shared=40_000, cooperative=True)
    check_cooperative(gpu, "k", launch, resources)
    with pytest.raises(tw.TilewiseError, match=r"at most 108 blocks .*bounded by shared memory"):
        check_cooperative(gpu, "k", replace(launch, grid=(109, 1, 1)), resources)


def test_of_foreign_ptx_no_barriers_are_counted() -> None:
    kernel = tw.Kernel.from_ptx(tw.Kernel(WIDE, "wide", "sm_80").ptx, "wide")
    with pytest.raises(tw.TilewiseError, match=r"at most 160 blocks .*room for blocks") as caught:
        kernel.profile(161, 64, [np.zeros(1, np.float32)], gpu="a2", cooperative=True)
    assert "barriers" not in str(caught.value)


def test_wrong_use_is_told(shift: tw.Kernel) -> None:
    with pytest.raises(tw.TilewiseError, match="cooperative must be True or False"):
        shift(4, 64, arguments(4), device="emulator", cooperative=1)  # type: ignore[arg-type]
    with pytest.raises(tw.TilewiseError, match="sample must be None in a cooperative launch"):
        shift.profile(4, 64, arguments(4), sample=1, cooperative=True)


def test_grid_sync_of_cooperative_groups() -> None:
    source = """
    #include <cooperative_groups.h>
    extern "C" __global__ void halve(int *x)
    {
        auto grid = cooperative_groups::this_grid();
        int i = grid.thread_rank();
        for (int left = grid.size() / 2; left; left /= 2) {
            if (i < left) x[i] += x[i + left];
            grid.sync();
        }
    }
    """
    try:
        kernel = tw.Kernel(source, "halve", "sm_90")
    except tw.TilewiseError as error:
        if "cooperative_groups.h" not in str(error):
            raise
        pytest.skip("the CUDA headers are not installed")
    for order in ORDERS:
        x = np.arange(512, dtype=np.int32)
        assert kernel.check(8, 64, [x], order=order, cooperative=True) == []
        assert x[0] == 511 * 256


# ── the command line ──


@pytest.mark.few(2)
@pytest.mark.parametrize("command", ["run", "check", "profile"])
def test_the_command_line_launches_cooperatively(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    """With the option a grid meets; without it the kernel traps, and the message says what is missing."""
    (tmp_path / "shift.cu").write_text(SHIFT)
    words = [command, str(tmp_path / "shift.cu"), "--kernel", "shift", "--grid", "2", "--block", "64"]
    for word in ("s32[128]", "zeros:s32[128]", "1", "0"):
        words += ["--arg", word]
    words += [] if command == "profile" else ["--device", "emulator"] if command == "run" else []
    assert main([*words, "--cooperative"]) == 0, capsys.readouterr()
    capsys.readouterr()
    assert main(words) == 1
    said = capsys.readouterr()
    assert "cooperative" in said.out + said.err
