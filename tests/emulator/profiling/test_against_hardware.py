"""Counts beside those that Nsight Compute took on an H200: kept files, which the rules have to give again.

``smsp__sass_*`` counters are exact on hardware and have to be met. ``l1tex__*`` carry events of other traffic.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tests.hardware.job import code_digest
from tests.harness.counts import copy_passes, copy_waves
from tilewise.emulator.profiling.accesses import Kind, LaneAccess
from tilewise.instruments.profile import Profile

FOLDER = Path(__file__).parents[2] / "golden" / "hardware"
MEASURED = json.loads((FOLDER / "counters.json").read_text())["groups"]
COPIES = json.loads((FOLDER / "copies.json").read_text())["rows"]
SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
TURNS = 16


def size_of(entry: str) -> int:
    """Bytes of a lane, by the kernel's name."""
    last = entry.rsplit("_", 1)[1]
    if "matrix" in entry:
        return 16
    if entry.startswith("copy"):
        return int(last.rstrip("g"))
    return SIZES.get(last, 4)


def kind_of(entry: str) -> Kind:
    if entry.startswith("lds"):
        return Kind.LOAD
    return Kind.STORE if entry.startswith("sts") or "matrix" in entry else Kind.EACH


def lanes_of(row: Any) -> list[int | None]:
    offsets, entry = row["about"]["offsets"], row["entry"]
    if "matrix" not in entry:
        return [offset if offset >= 0 else None for offset in offsets]
    named = 8 * int(entry.split("_")[1].rstrip("t"))
    return [max(offset, 0) if lane < named else None for lane, offset in enumerate(offsets)]


def rows_of(*groups: str) -> list[Any]:
    return [row for group in groups for row in MEASURED[group]["rows"]]


SHARED = [
    row
    for row in rows_of("wide loads", "narrow", "matrices", "stores", "atomics", "copies", "others")
    if not row["entry"].endswith("global")
]
GLOBAL = [
    row
    for row in rows_of("global loads", "global stores", "others")
    if row["entry"].startswith(("ldg", "stg")) or row["entry"].endswith("global")
]


def test_wavefronts_of_shared_memory() -> None:
    """Every pattern of lanes, of loads, stores, matrices, atomics and copies: wavefronts and ideal ones."""
    assert len(SHARED) > 400
    for row in SHARED:
        access, counts = (
            LaneAccess(lanes_of(row), size_of(row["entry"]), kind_of(row["entry"])),
            row["counts"],
        )
        runs = counts.get("smsp__sass_inst_executed_op_shared.sum", TURNS)
        assert counts["memory_l1_wavefronts_shared"] == runs * access.wavefronts(), row["launch"]
        assert counts["memory_l1_wavefronts_shared_ideal"] == runs * access.ideal(), row["launch"]


def test_conflicts_of_wide_loads() -> None:
    for row in rows_of("wide loads"):
        access = LaneAccess(lanes_of(row), size_of(row["entry"]))
        conflicts = access.wavefronts() - access.phases()
        measured = row["counts"].get("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 0)
        assert measured == TURNS * conflicts, row["launch"]


def test_sectors_of_global_memory() -> None:
    """The kernels read an offset for each lane first: 4 sectors."""
    assert len(GLOBAL) > 100
    for row in GLOBAL:
        touched = TURNS * LaneAccess(lanes_of(row), size_of(row["entry"])).sectors()
        assert row["counts"]["memory_l2_theoretical_sectors_global"] == touched + 4, row["launch"]


def test_sectors_of_atomics() -> None:
    rows = [row for row in GLOBAL if row["entry"].startswith(("red", "atom"))]
    assert len(rows) == 32
    for row in rows:
        # Where the assembler saw that nobody reads what was there, atom became red.
        names = [f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("atom", "red")]
        measured = sum(row["counts"].get(name, 0) for name in names)
        requested = LaneAccess(lanes_of(row), size_of(row["entry"])).atomic_sectors()
        assert measured == TURNS * requested, row["launch"]


def test_copies_between_any_places() -> None:
    """Through the L1 and past it. Where lanes lie at random at both ends, the rule is an approximation."""
    wrong = 0
    for kernel, name, size, shared, source, measured, _ in COPIES:
        targets = [None if offset < 0 else offset for offset in shared]
        places, origins = np.array(shared), np.array(source)
        through, past = copy_waves(places, origins, places >= 0, size), copy_passes(targets, source)
        counted = {"a": through, "g": past}[kernel[1]]
        if kernel.startswith("cg") and kernel.endswith("z"):
            counted = through + past  # zeros first
        if "random" not in name:
            assert counted == measured, f"{kernel}: {name}"
        elif kernel.startswith("ca"):
            assert abs(counted - measured) <= 1, f"{kernel}: {name}"
        wrong += counted != measured
    assert wrong < 0.15 * len(COPIES)


@functools.cache
def profiled(name: str, size: tuple[int, int, int], settings: str) -> Profile:
    chosen: dict[str, Any] = {key: values[0] for key, values in tw.ladder[name].settings.items()}
    m, n, k = size
    return tw.ladder[name].profile(m, n, k, gpu="h200", **chosen | json.loads(settings))


def launches(rungs: tuple[str, ...]) -> list[tuple[Any, Profile]]:
    """Launches of the rungs whose machine code is the one that was measured."""
    found = []
    for row in MEASURED["ladder"]["rows"]:
        about = row["about"]
        if about["rung"] not in rungs:
            continue
        profile = profiled(about["rung"], tuple(about["size"]), json.dumps(about["settings"]))
        item = next(item for item in profile.all if item.kernel == row["entry"])
        if code_digest(item.binary.cubin or b"") == about["code"]:
            found.append((row, item))
    return found


SOME = ("04_tiled", "05_tiled_conflicted", "12_multistage")
OTHERS = tuple(
    {row["about"]["rung"]: None for row in MEASURED["ladder"]["rows"] if row["about"]["rung"] not in SOME}
)


@pytest.fixture(
    scope="module", params=[SOME, pytest.param(OTHERS, marks=pytest.mark.thorough)], ids=["some", "others"]
)
def rungs(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture(scope="module")
def ladder(rungs: tuple[str, ...]) -> list[tuple[Any, Profile]]:
    """NOTE: other machine code has other counts, and is not compared: the next test says what that leaves out."""
    return launches(rungs)


def test_the_ladder_is_the_one_that_was_measured(
    rungs: tuple[str, ...], ladder: list[tuple[Any, Profile]]
) -> None:
    """NOTE: a skip here is to be mended by measuring again: another source or compiler made other machine code."""
    compared = [row for row, _ in ladder]
    rows = [row for row in MEASURED["ladder"]["rows"] if row["about"]["rung"] in rungs]
    left_out = sorted({row["about"]["rung"] for row in rows if row not in compared})
    if left_out:
        pytest.skip(f"other machine code than was measured, so not compared: {', '.join(left_out)}")


def test_the_ladder_exactly(ladder: list[tuple[Any, Profile]]) -> None:
    """Every counter of accesses; multiply-adds; what the profiler says of each instruction, added up."""
    compared = 0
    for row, profile in ladder:
        for name, measured in row["counts"].items():
            access = (
                "mem_shared" in name or "mem_global" in name or "_op_shared" in name or "_op_global" in name
            )
            exact = name.startswith("smsp__sass") and access
            exact |= (
                name.startswith("memory_") or "ldsm" in name or "ffma" in name or "t_sectors_pipe" in name
            )
            if exact and name in profile:
                assert profile[name] == measured, f"{row['launch']} {row['entry']}: {name}"
                compared += 1
    assert compared >= 5 * len(ladder)


def test_instructions_of_the_ladder(ladder: list[tuple[Any, Profile]]) -> None:
    """Told from the basic blocks: within a thousandth."""
    for row, profile in ladder:
        measured = row["counts"]["smsp__sass_inst_executed.sum"]
        assert profile["smsp__sass_inst_executed.sum"] == pytest.approx(measured, rel=1e-3), row["launch"]
        for way in ("min", "max"):
            name = f"smsp__inst_executed.{way}"
            if name in profile and name in row["counts"]:
                assert profile[name] == pytest.approx(row["counts"][name], rel=1e-3), (
                    f"{row['launch']}: {name}"
                )
        threads = row["counts"]["smsp__thread_inst_executed_pred_on.sum"]
        assert profile["smsp__thread_inst_executed_pred_on.sum"] == pytest.approx(threads, rel=3e-2), row[
            "launch"
        ]


def test_noisy_counters_of_the_ladder(ladder: list[tuple[Any, Profile]]) -> None:
    """The L1 counts more than the kernel's own events, and never fewer."""
    name = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
    for row, profile in ladder:
        measured = row["counts"].get(name, 0)
        assert profile[name] <= measured + 1 and measured <= 1.002 * profile[name] + 16, row["launch"]


def test_launch_figures(ladder: list[tuple[Any, Profile]]) -> None:
    names = (
        "grid_size",
        "block_size",
        "registers_per_thread",
        "occupancy_limit_registers",
        "occupancy_limit_warps",
    )
    for row, profile in ladder:
        for name in (*(f"launch__{name}" for name in names), "sm__maximum_warps_per_active_cycle_pct"):
            assert profile[name] == row["counts"][name], f"{row['launch']}: {name}"


@pytest.mark.few("04_tiled")
@pytest.mark.parametrize("name", ["04_tiled", "08_register_tiled", "09_warp_tiled"])
def test_the_model_of_the_caches(name: str) -> None:
    """What comes from memory is met within a few hundredths. Between SMs and L2 Hopper merges requests of
    neighbours, two to four of them as it happens; the model always merges two."""
    row = next(row for row in MEASURED["ladder"]["rows"] if row["about"]["rung"] == name)
    m, n, k = row["about"]["size"]
    profile = tw.ladder[name].profile(m, n, k, gpu="h200", cache=True)
    counts = row["counts"]
    assert profile["dram__bytes_read.sum"] == pytest.approx(counts["dram__bytes_read.sum"], rel=0.03)
    measured = counts["lts__t_sectors_srcunit_tex.sum"]
    assert 0.6 * measured <= profile["lts__t_sectors_srcunit_tex.sum"] <= 1.7 * measured, name
