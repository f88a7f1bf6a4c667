"""The verdict on a launch, and the roofline behind it, held against what an H200 took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.emulator.profiling.accesses import LaneAccess

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
