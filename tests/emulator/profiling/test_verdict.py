"""The verdict on a launch, and the roofline behind it, held against what an H200 took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.emulator.profiling.accesses import LaneAccess
from tilewise.errors import ArgumentError
from tilewise.gpus import find
from tilewise.instruments.levels import Level, levels
from tilewise.instruments.machine import Machine, MachineAccess, MachineRuns
from tilewise.instruments.metric import ESTIMATED, EXACT, Metric
from tilewise.instruments.roofline import ISSUING, MEMORY_CYCLES, roofline
from tilewise.toolchain.lines import MachineInstruction

RESULTS = Path(__file__).parents[3] / "docs/results"


def test_turns_are_the_cycles_of_loads_on_an_h200() -> None:
    """Lines that lie in banks of their own take up to half a cycle more than four lines a cycle would."""
    for load in json.loads((RESULTS / "load-turns-2026-11-23.json").read_text())["loads"]:
        counted = LaneAccess(load["offsets"], load["bytes"]).turns(cached=load["space"] == "global")
        assert 0.99 * counted <= load["cycles"] <= 1.05 * counted + 0.8, load
        if load["space"] == "shared":
            assert load["cycles"] == pytest.approx(counted, rel=0.01), load


# The part of the bound that each rung reached in 2048³ on an H200: a bound, and one that tells.
REACHED = {"03_simple": 0.8, "04_tiled": 0.7, "05_tiled_conflicted": 0.95, "08_register_tiled": 0.7}


@pytest.mark.parametrize("rung", REACHED)
def test_no_rung_is_faster_than_its_bound(rung: str) -> None:
    measured = json.loads((RESULTS / "rung-times-2026-11-23.json").read_text())["rungs"]
    (microseconds,) = (time for name, size, time in measured if name == rung and size == 2048)
    profile = tw.ladder[rung].profile(2048, 2048, 128, gpu="h200", sample=1)
    reached = profile.roofline.seconds * 2048 / 128 / (microseconds * 1e-6)
    assert REACHED[rung] < reached < 1, reached


def test_memory_moves_the_operands_of_a_plan_once_at_least() -> None:
    """A row times a large matrix takes what memory takes for it, as on an H100; a model of the caches knows more."""
    measured = json.loads((RESULTS / "gemm-2026-11-27-h100-float32.json").read_text())["rows"]
    (row,) = (one for one in measured if (one["size"], one["layout"]) == ([1, 4096, 4096], "nn"))
    profile = tw.profile(tw.plan(1, 4096, 4096, dtype="float32", gpu="h100-sxm"), sample=1)
    assert profile.operand_bytes == 4 * (4096 + 4096 * 4096 + 4096)
    assert profile.verdict is not None and profile.verdict.bound == "memory, each operand once"
    assert 0.8 < profile.roofline.reached(row["us"] * 1e-6) < 1
    modelled = tw.profile(tw.plan(1, 256, 512, dtype="float32", gpu="h100-sxm"), cache=True).roofline
    assert [bound.name for bound in modelled.bounds if "memory" in bound.name][1:] == ["memory"]


def test_conflicts_are_named_with_their_line() -> None:
    profile = tw.ladder["05_tiled_conflicted"].profile(512, 512, 64, gpu="h200", sample=1)
    verdict = profile.verdict
    assert verdict is not None and verdict.bound == "L1 and shared memory" and verdict.idle_sms == 0
    assert "have no block" not in str(verdict)
    (conflicts,) = (gain for gain in verdict.gains if gain.what == "shared bank conflicts")
    assert conflicts is verdict.gains[0] and 5 < conflicts.times < 9
    assert conflicts.where.startswith("rung_05_tiled_conflicted.cu:36  sum += a_tile")
    # Rung 04 has none, and reads four words of a row at once besides.
    without = tw.ladder["04_tiled"].profile(512, 512, 64, gpu="h200", sample=1).roofline.seconds
    assert without < conflicts.seconds < 2 * without
    assert "shared bank conflicts" in str(verdict) and json.dumps(profile.to_dict()["verdict"])


def test_idle_multiprocessors_are_named() -> None:
    """32 blocks on 132 SMs: each of those that have one has as much to do as on a GPU of 32."""
    profile = tw.ladder["09_warp_tiled"].profile(1024, 1024, 64, gpu="h200", sample=1)
    verdict = profile.verdict
    assert verdict is not None and (verdict.idle_sms, verdict.sms) == (100, 132)
    assert verdict.gains[0].what.startswith("idle SMs")
    assert "a number of them that 132 SMs share evenly" in verdict.gains[0].remedy
    assert verdict.gains[0].times == pytest.approx(132 / 32, rel=0.01)
    assert "100 of 132 SMs have no block" in str(verdict)


LOADS = """
extern "C" __global__ void sum(const float *x, float *y, int apart, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i)
        sum += x[threadIdx.x * apart + i * 32];
    y[threadIdx.x] = sum;
}"""


@pytest.mark.parametrize("apart", [1, 32, 33])
def test_scattered_loads_are_named(apart: int) -> None:
    """Lanes a line apart want one bank of the L1; with a word more, only lines to be looked up."""
    args: list[Any] = [np.ones(32 * apart + 64 * 32, np.float32), np.zeros(32, np.float32), apart, 64]
    profile = tw.Kernel(LOADS, "sum", "sm_90").profile(132, 32, args, gpu="h200")
    cycles = {bound.name: bound.amount for bound in profile.roofline.bounds}["L1 and shared memory"]
    assert cycles == 132 * 64 * {1: 1, 32: 32, 33: 8}[apart]
    assert profile.verdict is not None
    named = [gain for gain in profile.verdict.gains if gain.what == "uncoalesced global access"]
    if apart == 1:
        assert not named
    else:
        assert named[0].where.endswith("sum += x[threadIdx.x * apart + i * 32];") and named[0].times > 1.5


def test_local_memory_is_named() -> None:
    source = """
    extern "C" __global__ void k(int apart, float *y) {
        float table[64];
        for (int i = 0; i < 64; ++i) table[i] = i;
        float sum = 0;
        for (int i = 0; i < 256; ++i) sum += table[i * apart & 63];
        y[threadIdx.x] = sum;
    }"""
    args: list[Any] = [3, np.ones(32, np.float32)]
    verdict = tw.Kernel(source, "k", "sm_90").profile(1, 32, args, gpu="h200").verdict
    assert verdict is not None
    assert any(gain.what.startswith("local memory") for gain in verdict.gains), verdict


def test_no_multiprocessor_has_less_than_its_share_of_what_binds() -> None:
    """Not even of what a kernel has none of, as of memory here."""
    kernel = tw.Kernel('extern "C" __global__ void nothing() {}', "nothing", "sm_90")
    roofline = kernel.profile(1, 32, [], gpu="h200").roofline
    assert roofline is not None and {bound.amount for bound in roofline.bounds} >= {0.0}
    for bound in roofline.bounds:
        assert bound.uneven == (132 if bound.amount else 1), bound


def test_foreign_ptx_has_no_verdict() -> None:
    """Nothing here assembles it, so that what was issued is not known."""
    ptx = tw.Kernel(LOADS, "sum", "sm_90").ptx
    args: list[Any] = [np.ones(4096, np.float32), np.zeros(32, np.float32), 1, 64]
    profile = tw.Kernel.from_ptx(ptx, "sum").profile(1, 32, args, gpu="h200")
    assert profile.verdict is None and profile.to_dict()["verdict"] is None


def test_each_part_of_the_gpu_has_its_work_from_the_instructions() -> None:
    """Two multiprocessors, one of which does three quarters. Scalars count by threads, products by runs."""
    runs = np.array([30.0, 10.0])
    code = ("FFMA R1, R2, R3, R4", "FADD R1, R2, R3", "HFMA2 R1, R2, R3, R4", "HFMA2.MMA R1, -RZ, RZ, RZ, RZ",
            "HMMA.16816.F32 R1, R2, R3, R4", "HGMMA.64x64x16.F32 R1, gdesc", "MOV R1, R2")  # fmt: skip
    items = [MachineInstruction(16 * i, text) for i, text in enumerate(code)]
    machine = Machine("machine code", ran=[MachineRuns(item, 0, runs, 32 * runs, 8 * runs) for item in items])
    two = 2 * runs

    def access(op: str, waves: float) -> MachineAccess:
        return MachineAccess(items[5], op, "shared", 128, two, waves * runs, two, two, two, two, two)

    machine.accesses += [access("gmma", 0.0), access("ld", 5.0)]
    gpu = find("h200")
    clock = gpu.sms * gpu.boost_mhz * 1e6
    work = {
        "fp32 arithmetic": (40 * 8 * 3, gpu.fp32_peak),
        "fp16 arithmetic": (40 * 8 * 4, 2 * gpu.fp32_peak),
        "fp16_fp32 arithmetic": (40 * 4096 + 80 * 2 * 64 * 64 * 16 // 4, gpu.peaks.fp16_fp32),
        ISSUING: (40 * len(code), 4 * clock),
        MEMORY_CYCLES: (200, clock),
    }
    for metrics, operands, name, moved in (
        ({}, None, None, 0),
        ({}, 1e12, "memory, each operand once", 1e12),
        ({"dram__bytes_read.sum": 3e12, "dram__bytes_write.sum": 1e12}, 7, "memory", 4e12),
    ):
        found = roofline(machine, metrics, gpu, operands)  # type: ignore[arg-type]
        bounds = {bound.name: bound for bound in found.bounds}
        memory = {name: (moved, gpu.memory_bandwidth)} if name else {}
        assert {key: (one.amount, one.rate) for key, one in bounds.items()} == work | memory
        assert all(one.uneven == (1 if key == name else 1.5) for key, one in bounds.items())
        assert all(one.seconds == pytest.approx(one.amount * one.uneven / one.rate) for one in found.bounds)
        assert found.flops == sum(amount for key, (amount, _) in work.items() if "arithmetic" in key)
        known = name == "memory"
        assert found.memory_bytes == (4e12 if known else None)
        assert found.intensity == (found.flops / 4e12 if known else None)
        assert found.seconds == max(one.seconds for one in found.bounds) == found.binding.seconds
        assert (found.binding.name == name) is bool(name)
        told = found.to_dict()
        assert (told["binding"], told["seconds"], told["intensity"]) == (
            found.binding.name, found.seconds, found.intensity,
        )  # fmt: skip
        assert str(found).startswith(
            f"bound by {found.binding.name}, {found.seconds * 1e6:,.4g} µs on h200\n  "
        )
        assert len(str(found).splitlines()) == 1 + len(bounds)
        assert found.reached(4 * found.seconds) == 0.25
    for seconds in (0, -1.0, float("nan")):
        with pytest.raises(ArgumentError, match="seconds must be above 0"):
            found.reached(seconds)


def test_each_level_has_the_bytes_of_its_accesses() -> None:
    """A copy reads one level and writes another; an atomic access does both. Sectors are of 32 bytes."""
    nothing = np.zeros(1)

    def access(op: str, space: str, bytes_: float, sectors: float = 0.0, exact: bool = True) -> MachineAccess:
        item, counted = MachineInstruction(0, "NOP"), (np.array([sectors]), nothing, np.array([bytes_]))
        return MachineAccess(item, op, space, 32, nothing, nothing, nothing, nothing, *counted, exact)

    accesses = [
        access("ld", "shared", 1), access("ldsm", "shared", 2), access("gmma", "shared", 4),
        access("st", "shared", 8), access("ldgsts", "shared", 16), access("atom", "shared", 32),
        access("ld", "global", 1, 1), access("ldgsts", "global", 2, 4), access("tma_red", "global", 4, 2),
        access("st", "global", 8, 8), access("red", "global", 16, 16, exact=False),
    ]  # fmt: skip
    near = [
        Level("shared memory", 39, 56, EXACT),
        Level("global memory, by lanes", 23, 28, ESTIMATED),
        Level("global memory, by sectors", 32 * 23, 32 * 26, ESTIMATED),
    ]
    assert levels(accesses, {}) == near
    stem, figures = "lts__t_sectors_srcunit_tex_op", {}
    for name, value in (
        (f"{stem}_read", 3),
        (f"{stem}_write", 5),
        ("dram__bytes_read", 7),
        ("dram__bytes_write", 11),
    ):
        figures[f"{name}.sum"] = Metric(f"{name}.sum", value, "model")
    assert levels(accesses, figures) == [
        *near,
        Level("L2", 96, 160, "model"),
        Level("memory", 7, 11, "model"),
    ]
