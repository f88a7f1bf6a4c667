"""Counts of instructions beside those that Nsight Compute took on an H200: classes, categories, pipes, branches.

The kept file has, of every launch, how often each machine instruction ran, and all counters. The tables are held
against it with those runs, and the runs that the profiler tells from basic blocks are held against them too.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tests.emulator.profiling.test_against_hardware import profiled
from tests.hardware import instructions
from tilewise.instruments.classes import pipes_of
from tilewise.instruments.instruction_metrics import instruction_metrics, unclassified_opcode_notes
from tilewise.instruments.machine import Machine, MachineAccess, MachineRuns
from tilewise.instruments.metric import ESTIMATED
from tilewise.instruments.profile import Profile
from tilewise.toolchain.lines import MachineInstruction

KEPT = Path(__file__).parents[2] / "golden" / "hardware" / "instructions.json.gz"
HOPPER = (9, 0)
# Their threads wait for each other or take their turns at random, so that every pass of the profiler saw other
# runs; and what is started again for a stack that is not known beforehand.
UNSTEADY = ("calling", "divergent", "registers", "warp_specialised")
# What the hardware takes to be guarded differs in a few instructions (ACQBULK, a branch with two guards); where a
# branch sent threads is not to be told from runs, nor what was accessed.
ELSEWHERE = (
    "smsp__thread_inst_executed_pred_o", "_pred_on_per_inst_executed.ratio", "_branch_targets_threads",
    "_op_global.", "_op_ldgsts_cache_", "sass_inst_executed_op_shared_stsm",
)  # fmt: skip


@functools.cache
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(KEPT.read_bytes()))
    return found


class Counted:
    """What a launch's counts have to say besides runs of machine instructions."""

    def __init__(self, warps: float) -> None:
        self.rows, self._warps = np.zeros((1, 1)), np.array([warps])

    def block_runs(self, _block: int) -> Any:
        return self._warps


def ran(row: Any) -> list[MachineRuns]:
    """The instructions of a recorded launch with their true runs."""
    texts = recorded()["texts"]
    return [
        MachineRuns(
            MachineInstruction(16 * i, texts[text]), 0, *(np.array([float(figure)]) for figure in figures)
        )
        for i, (text, *figures) in enumerate(row["code"])
    ]


def made(row: Any) -> dict[str, Any]:
    machine = Machine("machine code", ran=ran(row), capability=HOPPER)
    counts: Any = Counted(row["counts"]["smsp__warps_launched.sum"])
    found = instruction_metrics(machine, counts, row["counts"]["smsp__threads_launched.sum"])
    return {metric.name: metric for metric in found}


def test_every_counter_follows_from_the_runs() -> None:
    """Some 90 counters of 240 launches, exactly; opcodes and categories by name."""
    compared, counted = 0, {name for row in recorded()["rows"] for name in row["counts"]}
    told: set[str] = set()
    for row in recorded()["rows"]:
        if row["entry"] in UNSTEADY:
            continue
        metrics = made(row)
        told |= metrics.keys()
        for name, metric in metrics.items():
            if metric.instances is not None and name in row["parts"]:
                assert metric.instances == row["parts"][name], f"{row['entry']}: {name}"
            elif name in counted and not any(part in name for part in ELSEWHERE):
                assert metric.value == pytest.approx(row["counts"].get(name, 0), rel=1e-9), (
                    f"{row['entry']}: {name}"
                )
                compared += 1
    assert compared > 15_000
    assert not [name for name in told if "_pipe_none" in name]  # which is no pipe
    assert {name for name in counted if name.startswith("smsp__sass_thread_inst_executed_op_")} <= told


def test_how_many_threads_run_an_instruction_is_an_estimate() -> None:
    labels = {metric.label for name, metric in made(recorded()["rows"][0]).items() if "thread_inst" in name}
    assert labels == {ESTIMATED}


def test_every_opcode_has_a_class_and_a_pipe() -> None:
    for row in recorded()["rows"]:
        assert unclassified_opcode_notes(ran(row), HOPPER) == [], row["entry"]
    assert pipes_of(MachineInstruction(0, "NOP")) == ()
    assert pipes_of(MachineInstruction(0, "MEMBAR.SC.GPU")) == ("lsu", "tex")
    texture = [MachineRuns(MachineInstruction(0, "TEX R1, R2"), 0, *(np.ones(1) for _ in range(3)))]
    assert [note.partition(":")[0] for note in unclassified_opcode_notes(texture, HOPPER)] == [
        "of TEX no class is known",
        "of TEX no pipe is known",
    ]
    assert len(unclassified_opcode_notes(texture, (8, 0))) == 1


# -- runs told from basic blocks ----------------------------------------------------------------------
def same(profile: Profile, row: Any) -> list[tuple[MachineRuns, list[float]]]:
    """Instructions beside what was recorded of them; nothing where another compiler made other ones."""
    texts = recorded()["texts"]
    code = {16 * i: (texts[text], figures) for i, (text, *figures) in enumerate(row["code"])}
    found = []
    for item in profile.machine.ran:
        text, figures = code.get(item.instruction.offset, ("", []))
        if item.instruction.opcode not in text.split():
            return []
        found.append((item, figures))
    return found


def kernels(*names: str) -> Iterator[tuple[Profile, Any]]:
    """Tiny kernels as they were recorded, in the emulator."""
    rows = {row["entry"]: row for row in recorded()["rows"]}
    device = tw.device("emulator")
    for job in instructions.jobs("kinds"):
        if job.name in names:
            (start,) = job.starts
            buffers = {
                name: device.array(array.view(np.uint32) if array.dtype.names else array)
                for name, array in job.buffers.items()
            }
            args = [buffers[arg] if isinstance(arg, str) else arg for arg in start.args]
            kernel = tw.Kernel(instructions.source(), job.name, instructions.ARCH, filename="instructions.cu")
            yield kernel.profile(start.grid, start.block, args, gpu="h200"), rows[job.name]


TINY = ("barrier_or", "bulk_store", "f32_sqrt", "leaving", "one_word_add", "uniform_vote")


def test_runs_of_tiny_kernels() -> None:
    """With slow paths that are not taken, loops of the assembler's own, operations that the emulator takes apart,
    and branches that send threads different ways."""
    for profile, row in kernels(*TINY):
        for item, (runs, *_) in same(profile, row):
            assert item.runs.sum() == pytest.approx(runs), f"{row['entry']}: {item.instruction.text}"
        if same(profile, row):
            for name in ("smsp__sass_branch_targets_threads_divergent.sum", "smsp__sass_branch_targets.sum"):
                assert profile[name] == row["counts"].get(name, 0), f"{row['entry']}: {name}"


RUNGS = ("07", "10")


def test_runs_of_rungs() -> None:
    """Every instruction's runs exactly; threads within a thousandth: what a division puts right is not known."""
    compared = 0
    for row in recorded()["rows"]:
        about = row["about"]
        if about.get("rung", "")[:2] not in RUNGS:
            continue
        launches = profiled(about["rung"], tuple(about["size"]), json.dumps(about["settings"])).all
        profile = next(item for item in launches if item.kernel == row["entry"])
        beside = same(profile, row)
        for item, (runs, *_) in beside:
            assert item.runs.sum() == pytest.approx(runs), f"{about['rung']}: {item.instruction.text}"
        if beside:
            threads = sum(figures[2] for _, figures in beside)
            assert profile["smsp__thread_inst_executed_pred_on.sum"] == pytest.approx(threads, rel=1e-3)
            for name in (
                "op_global",
                "op_ldgsts_cache_access",
                "op_ldgsts_cache_bypass",
                "op_memory_128b",
                "op_ld",
            ):
                name = f"smsp__sass_inst_executed_{name}.sum"
                assert profile[name] == row["counts"].get(name, 0), f"{about['rung']}: {name}"
            compared += 1
    assert compared in (0, 3)  # none without a disassembler


# -- names ----------------------------------------------------------------------------------------------
def test_other_gpus_have_classes_and_no_pipes() -> None:
    """Pipes were measured on compute capability 9.0; the class of 8-bit numbers begins with 8.9."""
    source = """extern "C" __global__ void k(float *x) {
        x[threadIdx.x] = __shfl_xor_sync(~0u, x[threadIdx.x], 1) * 3 + threadIdx.y; }"""
    for arch, gpu, pipes, fp8 in (("sm_75", "rtx-2060-super", False, False), ("sm_90", "h200", True, True)):
        profile = tw.Kernel(source, "k", arch).profile(2, 64, [np.ones(64, np.float32)], gpu=gpu)
        stem = "smsp__sass_thread_inst_executed"
        assert profile[f"{stem}_op_inter_thread_communication_pred_on.sum"] == 128
        assert profile[f"{stem}_op_ffma_pred_on.sum"] <= profile[f"{stem}_ops_fadd_fmul_ffma_pred_on.sum"]
        assert ("sm__inst_executed_pipe_lsu.sum" in profile) == pipes
        assert (f"{stem}_op_fp8_pred_on.sum" in profile) == fp8
        assert profile["smsp__average_inst_executed_per_warp.ratio"] == profile["smsp__inst_executed.sum"] / 4
        classes = [name for name in profile if "_op_" in name and name.startswith(f"{stem}_op_")]
        single = ("ffma", "fadd", "fmul", "hfma", "hadd", "hmul", "dfma", "dadd", "dmul")
        total = sum(
            profile[name]
            for name in classes
            if name.endswith(".sum") and not any(f"op_{one}_" in name for one in single)
        )
        assert total == profile[f"{stem}_pred_on.sum"] and profile.notes == []


def metrics_of(
    capability: tuple[int, int] | None, *rows: tuple[str, float, float | None]
) -> dict[str, float]:
    """Metrics of instructions with so many runs, so many of which parted a warp."""
    machine = Machine("machine code", capability=capability)
    for i, (text, runs, parted) in enumerate(rows):
        times = np.array([runs])
        split = None if parted is None else np.array([parted])
        machine.ran.append(
            MachineRuns(MachineInstruction(16 * i, text), i, times, 32 * times, 32 * times, split)
        )
    counts: Any = Counted(1.0)
    return {metric.name: metric.value for metric in instruction_metrics(machine, counts, 32.0)}


@pytest.mark.parametrize(
    ("capability", "wanted"),
    [
        (
            (8, 0),
            {
                "pipe_tensor_op_hmma": 71,
                "pipe_tensor_op_imma": 24,
                "pipe_tensor_op_dmma": 32,
                "pipe_tensor": 127,
            },
        ),
        ((8, 6), {"pipe_tensor_op_hmma": 7, "pipe_tensor_op_imma": 24, "pipe_tensor": 31}),
        (None, {}),
    ],
)
def test_tensor_pipes_have_the_products_of_their_types(
    capability: tuple[int, int] | None, wanted: dict[str, int]
) -> None:
    """On an A100 those of doubles too, and additions of halves that run there."""
    opcodes = ("HMMA", "QMMA", "OMMA", "IMMA", "BMMA", "DMMA", "HFMA2.MMA", "HFMA2", "FFMA")
    found = metrics_of(
        capability, *((f"{opcode} R0, R1, R2, R3", 2.0**i, None) for i, opcode in enumerate(opcodes))
    )
    for family in ("smsp", "sm"):
        stem = f"{family}__inst_executed_"
        sums = {name: value for name, value in found.items() if name.startswith(f"{stem}pipe_tensor")}
        totals = {
            name.removeprefix(stem).removesuffix(".sum"): value
            for name, value in sums.items()
            if name.endswith(".sum")
        }
        assert totals == wanted


# Opcodes; under which names their warps are counted with whatever a guard lets through, and under which as SASS has them.
COUNTED_AS: dict[str, tuple[str, str]] = {
    "LDG.E.U8": ("global_ld", "ld memory_8b"), "LDG.E.U16": ("global_ld", "ld memory_16b"),
    "LDG.E": ("global_ld", "ld memory_32b"), "LDG.E.64": ("global_ld", "ld memory_64b"),
    "LDG.E.128": ("global_ld", "ld memory_128b"), "STG.E.64": ("global_st", "st memory_64b"),
    "LD.E": ("generic_ld", "ld memory_32b"), "ST.E.128": ("generic_st", "st memory_128b"),
    "LDS.U8": ("shared_ld", "ld memory_8b"), "STS.64": ("shared_st", "st memory_64b"),
    "LDL.64": ("local_ld", "ld local local_ld memory_64b"), "STL": ("local_st", "st local local_st memory_32b"),
    "ATOM.E.ADD": ("generic_atom", "atom memory_32b"), "ATOMG.E.ADD.64": ("generic_atom", "atom memory_64b"),
    "ATOMS.ADD": ("shared_atom", "atom memory_32b"), "RED.E.ADD": ("global_red", "memory_32b"),
    "REDG.E.ADD.64": ("global_red", "memory_64b"), "LDGSTS.E.BYPASS.128": ("ldgsts", "memory_128b"),
    "LDSM.16.M88.4": ("ldsm", "ld memory_128b"), "STSM.16.M88": ("shared_stsm", "st memory_128b"),
    "LDC": ("ldc", ""), "HGMMA.64x64x16.F32": ("", "ld"), "BRA": ("branch", "branch"), "CALL.REL": ("branch", "branch"),
    "RET.REL": ("branch", "branch"), "EXIT": ("branch", ""), "BSYNC": ("branch", ""), "NANOSLEEP": ("branch", ""),
}  # fmt: skip


def test_warps_are_counted_by_what_their_instructions_do() -> None:
    found = metrics_of(HOPPER, *((f"{opcode} R0, [R2]", 2.0**i, None) for i, opcode in enumerate(COUNTED_AS)))
    for place, stem in enumerate(("smsp__inst_executed_op_", "smsp__sass_inst_executed_op_")):
        wanted: dict[str, float] = {}
        for i, names in enumerate(COUNTED_AS.values()):
            for name in names[place].split():
                wanted[name] = wanted.get(name, 0.0) + 2.0**i
        told = {name: found[f"{stem}{name}.sum"] for name in wanted}
        assert told == wanted


def test_copies_past_the_l1_are_told_from_those_through_it() -> None:
    machine, one = Machine("machine code", capability=HOPPER), np.ones(1)
    others: Any = [one] * 6
    for opcode, op, space, runs in (
        ("LDGSTS.E.BYPASS.128", "ldgsts", "global", 3), ("LDGSTS.E", "ldgsts", "global", 5), ("LDG.E", "ld", "global", 7),
        ("LDGSTS.E", "ldgsts", "shared", 11), ("STSM.16.M88", "stsm", "shared", 13), ("REDG.E.ADD", "red", "global", 17),
    ):  # fmt: skip
        machine.accesses.append(
            MachineAccess(MachineInstruction(0, opcode), op, space, 32, runs * one, *others)
        )
    counts: Any = Counted(1.0)
    found = {metric.name: metric.value for metric in instruction_metrics(machine, counts, 32.0)}
    names = ("ldgsts_cache_bypass", "ldgsts_cache_access", "global", "shared_stsm")
    assert [found[f"smsp__sass_inst_executed_op_{name}.sum"] for name in names] == [3, 5, 24, 13]


def test_opcodes_are_listed_the_most_run_first_and_by_name_where_they_ran_as_often() -> None:
    machine = Machine("machine code", capability=HOPPER)
    for i, (text, runs) in enumerate((("MOV R1, R2", 5.0), ("IADD3 R1", 7.0), ("FADD R1", 5.0))):
        times = np.array([runs])
        machine.ran.append(MachineRuns(MachineInstruction(16 * i, text), i, times, 20 * times, 12 * times))
    counts: Any = Counted(1.0)
    found = {metric.name: metric for metric in instruction_metrics(machine, counts, 32.0)}
    assert [*(found["sass__inst_executed_per_opcode"].instances or {})] == ["IADD3", "FADD", "MOV"]
    for name, figure in (("", 20), ("_pred_on", 12), ("_pred_off", 8)):
        assert found[f"smsp__thread_inst_executed{name}.sum"].value == 17 * figure


def test_branches_that_part_no_warp_are_uniform() -> None:
    """What parts a warp and is no branch is none of them; no branch parts more warps than came to it."""
    stem = "smsp__sass_branch_targets"
    for rows, targets, divergent in (
        (
            [("@P0 BRA `(.L_x)", 10, 3), ("CALL `(f)", 6, None), ("@P0 BRX R2", 4, 2), ("MOV R1, R2", 7, 5)],
            20,
            5,
        ),
        ([("@P0 BRA `(.L_x)", 10, 12)], 10, 10),
        ([("MOV R1, R2", 7, 5)], 0, 0),
    ):
        found = metrics_of(HOPPER, *rows)
        assert found[f"{stem}.sum"] == targets and found[f"{stem}_threads_divergent.sum"] == divergent
        assert found[f"{stem}_threads_uniform.sum"] == targets - divergent
        percent = found["smsp__sass_average_branch_targets_threads_uniform.pct"]
        assert percent == pytest.approx(100 * (targets - divergent) / targets if targets else 0)


def test_instances_are_in_json() -> None:
    profile = tw.ladder["04_tiled"].profile(64, 64, 32, gpu="h200")
    name = "sass__inst_executed_per_opcode_category"
    told = json.loads(profile.json([name, "sass__inst_executed_per_opcode"]))
    assert told["metrics"][name]["instances"] == profile.categories
    assert sum(profile.categories.values()) == profile["smsp__inst_executed.sum"]
    assert told["metrics"]["sass__inst_executed_per_opcode"]["instances"] == {
        opcode: runs for opcode, runs in profile.opcodes.items() if runs
    }
