"""Divisions and roots whose operands take the longer way: counts beside those that Nsight Compute took on an H200."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import tilewise as tw
from tests.hardware import slow_paths
from tests.hardware.job import Job
from tests.harness.counts import counted
from tilewise.emulator.profiling.counted import Counts, SlowPath
from tilewise.emulator.profiling.slow_path_counts import CLASSES
from tilewise.instruments.flow import BlockRuns, Line, basic_blocks, find_reachable
from tilewise.instruments.machine import _sum_branches
from tilewise.instruments.profile import Profile
from tilewise.instruments.slow_paths import _list_routine, add_detours, find_detours
from tilewise.toolchain.compile import compile_source
from tilewise.toolchain.lines import MachineInstruction, line_table

FILE = Path(__file__).parents[2] / "golden" / "hardware" / "counters.json"
MEASURED = json.loads(FILE.read_text())["groups"]
EXACT = (
    "smsp__inst_executed.sum", "smsp__sass_inst_executed.sum",
    "smsp__sass_branch_targets.sum", "smsp__sass_branch_targets_threads_divergent.sum",
    "smsp__sass_inst_executed_op_global_ld.sum", "smsp__sass_inst_executed_op_global_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    *(f"smsp__inst_executed_pipe_{pipe}.sum" for pipe in ("fma", "alu", "fp64", "xu", "cbu")),
    *(f"launch__{name}" for name in ("registers_per_thread", "occupancy_limit_registers", "occupancy_limit_shared_mem")),
)  # fmt: skip
# NOTE: where lanes part that had parted before the hardware counts some more threads than its instructions have.
THREADS = "smsp__thread_inst_executed.sum"
PART_AGAIN = re.compile("f64|f32_(fmod|pow|sin|div_ru)")
# Launches in which lanes of several ways pass a ``BSYNC`` together, and how many instructions fewer that makes.
TOGETHER = {"f32_div_ru: any 0": 15, "f32_fmod: any 0": 2}
FEWER = {f"smsp__{name}.sum" for name in ("inst_executed", "sass_inst_executed", "inst_executed_pipe_cbu")}


@functools.cache
def kernel(name: str) -> tw.Kernel:
    return tw.Kernel(slow_paths.source(), name, slow_paths.ARCH, filename="slow_paths.cu")


def profiled(job: Job) -> Profile:
    (start,) = job.starts
    buffers = {name: array.copy() for name, array in job.buffers.items()}
    return kernel(start.entry).profile(start.grid, start.block, list(buffers.values()), gpu="h200")


def measured(group: str, labels: str) -> list[tuple[Job, Any]]:
    """Launches whose operands are of such kinds, with what was counted of them."""
    rows = {row["launch"]: row for row in MEASURED[group]["rows"]}
    jobs = [job for job in slow_paths.jobs(group) if re.search(labels, job.name.partition(": ")[2])]
    found = [(job, rows[job.name]) for job in jobs]
    other = [job for job, row in found if job.about["machine code"] != row["about"]["machine code"]]
    if other:  # NOTE: to be mended by measuring again
        pytest.skip("other machine code than was measured, so not compared")
    return found


def differences(job: Job, row: Any) -> list[str]:
    profile, counts = profiled(job), row["counts"]
    known = MEASURED[next(group for group in slow_paths.GROUPS if row in MEASURED[group]["rows"])]["metrics"]
    bounds = dict.fromkeys(EXACT, 1e-9) | {THREADS: 1e-2 if PART_AGAIN.match(job.name) else 1e-9}
    wrong = []
    for name in bounds.keys() & {*known}:
        figure, count = profile[name], counts.get(name, 0)
        if figure != count:
            assert profile.metrics[name].label == "estimated", f"{job.name}: {name}"
        if figure - TOGETHER.get(job.name, 0) * (name in FEWER) != pytest.approx(
            count, rel=bounds[name], abs=1e-3
        ):
            wrong.append(f"{job.name}: {name} {figure} instead of {count}")
    return wrong


# In one launch, warps with lanes of every class there is, and few of the others.
@pytest.mark.parametrize(
    ("group", "labels"),
    [
        ("slow programs", "any 0|small below, few"),
        ("slow divisions", "any 0|too (large|small), half|large, few|small below"),
        ("slow roots", "any 0|small above, half"),
        ("slow functions", ""),
        ("slow ranges", r"(by|of) 2\^(1|2|24|25|251|252), fractions 0$|2\^-?12[4-7] apart, fractions 0$|all|many|by 2\^(2|2045)$|of 2\^60$"),
    ],
)  # fmt: skip
def test_counts_are_the_hardware_s(group: str, labels: str) -> None:
    """Of every operation, of several in a row, in loops and in branches, all exactly."""
    compared = measured(group, labels)
    assert len(compared) > 12
    wrong = [line for job, row in compared for line in differences(job, row)]
    assert wrong == [], "\n".join(wrong[:10])


OPERATIONS = {
    "div.rn.f32": "div.f32", "div.rn.ftz.f32": "div.ftz.f32", "div.rn.f64": "div.f64",
    "div.rz.f32": "div.directed.f32", "div.rm.f32": "div.directed.f32", "div.rp.f32": "div.directed.f32",
    "div.rz.ftz.f32": "div.directed.ftz.f32", "div.rp.ftz.f32": "div.directed.ftz.f32",
    "rcp.rn.f32": "rcp.f32", "rcp.rz.f32": "rcp.f32", "rcp.rm.f32": "rcp.f32", "rcp.rn.ftz.f32": "rcp.ftz.f32",
    "rcp.rn.f64": "rcp.f64", "sqrt.rn.f32": "sqrt.f32", "sqrt.rz.f32": "sqrt.f32", "sqrt.rp.ftz.f32": "sqrt.ftz.f32",
    "sqrt.rn.f64": "sqrt.f64", "rsqrt.approx.f64": "rsqrt.f64",
}  # fmt: skip


def test_every_kind_has_an_operation() -> None:
    assert {*OPERATIONS.values()} == {*CLASSES}


@pytest.mark.few(1)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_every_arch_has_the_branches_that_are_known(arch: str) -> None:
    """NOTE: where a compiler makes other ones, its counts are estimates: see what it does, and add that."""
    kernels = []
    for i, name in enumerate(OPERATIONS):
        type_, letter = ("float", "f") if name.endswith("32") else ("double", "d")
        second = ", %2" if name.startswith("div") else ""
        kernels.append(
            f'extern "C" __global__ void k{i}({type_} *x) {{ {type_} a = x[threadIdx.x], b = x[threadIdx.x + 99];'
            f' asm("{name} %0, %1{second};" : "={letter}"(a) : "{letter}"(a), "{letter}"(b)); x[threadIdx.x] = a; }}'
        )
    entries = [f"k{i}" for i in range(len(OPERATIONS))]
    binary = compile_source("\n".join(kernels), entries, arch)
    for entry, kind in zip(entries, OPERATIONS.values(), strict=True):
        blocks = basic_blocks(line_table(binary.cubin or b"", entry).instructions)
        assert [item.kind for item in find_detours(blocks, find_reachable(blocks))] == [kind], (entry, kind)


@pytest.mark.few(1)
@pytest.mark.parametrize(("arch", "each"), [("sm_75", 24), ("sm_90", 25), ("sm_120", 26)])
def test_a_division_by_one_number(arch: str, each: int) -> None:
    """No warp takes the longer way, then all do, then one."""
    source = """extern "C" __global__ void scale(const float *x, const float *s, float *y) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i] / s[0]; }"""
    scale, x = tw.Kernel(source, "scale", arch), np.linspace(1, 2, 1024, dtype=np.float32)

    def count(numbers: Any, divisor: float) -> float:
        args = [numbers, np.full(1, divisor, np.float32), np.zeros(1024, np.float32)]
        return scale.profile(4, 256, args)["smsp__inst_executed.sum"]

    assert count(x, 3.0) == 32 * each
    longer = count(x, 2e-38) - 32 * each
    assert longer > 32 * 20 and longer % 32 == 0
    one = x.copy()
    one[64:96] = 1e-35
    assert count(one, 1e-3) == 32 * each + longer // 32


@pytest.mark.parametrize("others", [(0.0, 1.0), (1.0, 0.0), (1e-42, 3.0), (1e30, 1e-30), (np.nan, 1.0)])
def test_lanes_that_part_in_the_routine_go_on_as_one_where_it_has_them_meet(
    others: tuple[float, float],
) -> None:
    """Behind the last place where they meet each warp runs an instruction once, whatever its lanes divide."""
    source = """extern "C" __global__ void k(const float *x, const float *d, float *y) {
        const int i = threadIdx.x; y[i] = __fdiv_ru(x[i], d[i]); }"""
    half = np.arange(32) < 16
    x, by = (
        np.where(half, usual, other).astype(np.float32) for usual, other in zip((1, 3), others, strict=True)
    )
    profile = tw.Kernel(source, "k", "sm_90").profile(1, 32, [x, by, np.zeros(32, np.float32)], gpu="h200")
    ran = [(item.instruction.family, float(item.runs.sum())) for item in profile.machine.ran]
    assert [runs for family, runs in ran if family == "RET"] == [1]


def test_branches_jump_for_the_lanes_of_their_classes() -> None:
    """NaN and zeros jump once in the routine, the others twice; the test in front of it parts slow lanes from quick ones."""
    pairs = {3: (np.nan, 1.0), 5: (0.0, 0.0), 7: (1e-35, 1e-3), 11: (1e30, 1e-30), 6: (1.0, 3.0)}
    x, by = (np.repeat([pair[i] for pair in pairs.values()], [*pairs]).astype(np.float32) for i in (0, 1))
    source = """extern "C" __global__ void k(const float *x, const float *d, float *y) {
        const int i = threadIdx.x; y[i] = x[i] / d[i]; }"""
    profile = tw.Kernel(source, "k", "sm_90").profile(1, 32, [x, by, np.zeros(32, np.float32)], gpu="h200")
    ran = profile.machine.ran
    called = next(i for i, item in enumerate(ran) if item.instruction.family == "CALL")
    jumped = [float(item.threads.sum()) if item.instruction.predicate else 0 for item in ran]
    branch = [item.instruction.family == "BRA" for item in ran]
    assert sum(n for n, is_one in zip(jumped[:called], branch, strict=False) if is_one) in (26, 6)
    assert sum(
        n for n, is_one in zip(jumped[called:], branch[called:], strict=True) if is_one
    ) == 3 + 5 + 2 * (7 + 11)


ONE_OPERAND = [name for name in OPERATIONS if not name.startswith("div")]
MOVED = re.compile(r"(?:VIADD R\d+, R\d+|IADD3 R\d+, R\d+), (-?0x\w+)")
MASKED = re.compile(r"LOP3.LUT R\d+, R\d+, (0x\w+), RZ, 0xc0")
COMPARED = re.compile(
    r"ISETP.(GT|GE).U32.AND P0, PT, R\d+, (0x\w+)|FSETP.(GE)U.AND P0, PT, \|R\d+\|, ([\d.e-]+)"
)
SKIPPED = re.compile(r"@(!?)P0 BRA")


@pytest.mark.parametrize("name", ONE_OPERAND)
def test_the_slow_path_is_taken_from_where_the_machine_code_says(name: str) -> None:
    """The branch around its call adds to a word, may mask it, and compares: lanes on both sides of where that turns."""
    type_, letter = ("float", "f") if name.endswith("32") else ("double", "d")
    source = f"""extern "C" __global__ void k({type_} *x) {{
        {type_} a = x[threadIdx.x]; asm("{name} %0, %1;" : "={letter}"(a) : "{letter}"(a)); x[threadIdx.x] = a; }}"""
    one = tw.Kernel(source, "k", "sm_90")
    texts = [item.text for item in line_table(one.build().cubin or b"", "k").instructions]
    begin, end = (
        next(i for i, text in enumerate(texts) if text.startswith(word)) for word in ("LDG", "CALL")
    )
    code = "\n".join(texts[begin:end])
    moved, masked, compared, skipped = (found.search(code) for found in (MOVED, MASKED, COMPARED, SKIPPED))
    assert moved and compared and skipped
    by, mask = int(moved[1], 16), int(masked[1], 16) if masked else 0xFFFF_FFFF
    if compared[4]:  # as a float, without its sign; NaN is said to be more, as its word is
        mask, bound = 0x7FFF_FFFF, int(np.float32(compared[4]).view(np.uint32))
    else:
        bound = int(compared[2], 16) + (compared[1] == "GT")
    step = mask & -mask

    def is_slow(word: int) -> bool:
        return ((word + by & mask) >= bound) == bool(skipped[1])

    turns = [(place - by + offset) % 2**32 for place in (0, bound) for offset in (-step, -1, 0, step)]
    turns += [0, 1, 0x8000_0000, 0x7F80_0000, 0x7FF0_0000, 0x000F_FFFF, 0x7FEF_FFFF]
    assert {is_slow(word) for word in turns} == {True, False}
    for low in (0, 0xFFFF_FFFF)[: 1 + (letter == "d")]:
        for first in range(0, len(turns), 5):
            words = [*turns[first : first + 5], *[0x3F80_0000] * 5][:5]
            times = [1, 2, 4, 8, 17]
            lanes = np.repeat(np.array(words, np.uint64), times)
            doubles, singles = (lanes << 32 | low).view(np.float64), lanes.astype(np.uint32).view(np.float32)
            profile = one.profile(1, 32, [doubles if letter == "d" else singles], gpu="h200")
            (call,) = [item for item in profile.machine.ran if item.instruction.family == "CALL"]
            wanted = sum(count for word, count in zip(words, times, strict=True) if is_slow(word))
            assert float(call.threads.sum()) == wanted, [*map(hex, words)]


@pytest.mark.parametrize("name", ["rcp.rm.f32", "rcp.rp.f32"])
def test_an_inverse_that_is_too_large_is_known_to_the_last_bit(name: str) -> None:
    """Up to 2⁻¹²⁸ the routine jumps for none of its lanes, from the next number on for all; of either sign."""
    source = f"""extern "C" __global__ void k(float *x) {{
        float a = x[threadIdx.x]; asm("{name} %0, %1;" : "=f"(a) : "f"(a)); x[threadIdx.x] = a; }}"""
    one, largest = tw.Kernel(source, "k", "sm_90"), int(np.float32(2.0**-128).view(np.uint32))
    jumps = {}
    for word in (largest - 1, largest, largest + 1, 0x8000_0000 | largest, 0x8000_0001 | largest):
        profile = one.profile(1, 32, [np.full(32, word, np.uint32).view(np.float32)], gpu="h200")
        ran = profile.machine.ran
        called = next(i for i, item in enumerate(ran) if item.instruction.family == "CALL")
        guarded = [
            item for item in ran[called:] if item.instruction.family == "BRA" and item.instruction.predicate
        ]
        jumps[word & 0x7FFF_FFFF, word >> 31] = sum(float(item.threads.sum()) for item in guarded)
    assert jumps == {
        (largest + more, sign): 32 * (more > 0) for more, sign in ((-1, 0), (0, 0), (1, 0), (0, 1), (1, 1))
    }


def test_each_slow_warp_is_in_one_set_whatever_worker_ran_it() -> None:
    """Of two workers that found the same."""
    source = (
        """extern "C" __global__ void k(const float *x, float *y) { y[threadIdx.x] = 1 / x[threadIdx.x]; }"""
    )
    x = np.where(np.arange(32) % 4, 1e-39, 2).astype(np.float32)
    one = tw.Kernel(source, "k", "sm_90")
    counts = counted(one, 5, 32, [x, np.zeros(32, np.float32)], threads=1)
    (path,) = Counts(counts.about, 2 * counts.rows, [*counts.ways, *counts.ways]).slow_paths()
    assert path.runs.sum() == sum(path.sets.values()) == 10 and len(path.sets) == 1
    assert sum(path.lanes) == 10 * 32 and path.lanes[0] == 10 * 8


@pytest.mark.parametrize(("ran", "taken"), [(40, 24), (80, 24), (20, 12), (10, 6)])
def test_copies_of_a_division_share_its_slow_warps_as_they_share_its_runs(ran: int, taken: int) -> None:
    """All of them, unless the copies ran less often than the line did: then as many less."""
    source = """extern "C" __global__ void k(float *x) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) x[threadIdx.x + 32 * i] = x[threadIdx.x + 32 * i] / x[threadIdx.x + 99 * i]; }"""
    binary = compile_source(source, ["k"], "sm_90")
    blocks = basic_blocks(line_table(binary.cubin or b"", "k").instructions)
    there = find_reachable(blocks)
    detours = find_detours(blocks, there)
    assert len(detours) == 2
    detours[1].line = detours[0].line  # as where the assembler unrolls a loop
    aside = {number for item in detours for number in item.slow_blocks}
    found = BlockRuns({number: np.array([ran * 0.25]) for number in there if number not in aside})
    found.runs[detours[1].test] = np.array([ran * 0.75])
    found.each = dict.fromkeys(found.runs, 32.0)
    asked = np.array([40.0])
    line = Line(asked, 32 * asked, asked, 32 * asked, {"div.rn.f32"})
    path = SlowPath(detours[0].line, "div.f32", np.array([24.0]), {1 << 1: 24}, [0, 24 * 32, *[0] * 12])
    add_detours(detours, [path], {path.line: line}, blocks, found)
    calls = [float(found.runs[item.call].sum()) for item in detours]
    assert calls == pytest.approx([taken / 4, 3 * taken / 4])


def put(code: list[MachineInstruction], before: str, text: str) -> None:
    """Another instruction before the first that begins so."""
    at = next(i for i, item in enumerate(code) if item.text.startswith(before))
    code.insert(at, replace(code[at], text=text, label=""))


def branches_away_behind_the_call(code: list[MachineInstruction]) -> None:
    put(code, "BSYNC B0", "@P3 BRA `(.L_elsewhere)")


def branches_away_on_the_quick_path(code: list[MachineInstruction]) -> None:
    at = next(i for i, item in enumerate(code) if item.text == "BSYNC B0")
    code[at : at + 1] = [replace(code[at], text="@P3 BRA `(.L_elsewhere)"), replace(code[at], label="")]


def has_another_way_to_the_call(code: list[MachineInstruction]) -> None:
    put(code, "BSSY B0", "@P3 BRA `(.L_call)")
    at = next(i for i, item in enumerate(code) if item.text.startswith("CALL"))
    code[at - 1] = replace(code[at - 1], label=".L_call")


def has_another_branch_in_the_routine(code: list[MachineInstruction]) -> None:
    put(code, "BSSY B1", "@P3 BRA `(.L_elsewhere)")


def calls_another_routine(code: list[MachineInstruction]) -> None:
    for i, item in enumerate(code):
        code[i] = replace(
            item, text=item.text.replace("div_rn", "dim_rn"), label=item.label.replace("div_rn", "dim_rn")
        )


def begins_with_the_call(code: list[MachineInstruction]) -> None:
    """So that no branch leads there, nor around it."""
    del code[: next(i for i, item in enumerate(code) if item.text.startswith("CALL"))]


def has_more_on_both_paths(code: list[MachineInstruction]) -> None:
    put(code, "CALL", "NOP")
    put(code, "BSYNC B0", "NOP")


@pytest.mark.parametrize(
    ("edit", "known"),
    [
        (has_more_on_both_paths, True),
        (branches_away_behind_the_call, False),
        (branches_away_on_the_quick_path, True),  # where slow lanes join it, and all go on alike
        (has_another_way_to_the_call, False),
        (begins_with_the_call, False),
        (has_another_branch_in_the_routine, False),
        (calls_another_routine, False),
    ],
)
def test_a_call_is_a_detour_where_all_its_branches_are_known(edit: Any, known: bool) -> None:
    """Of anything else its counts are none of ours: they would be wrong, and said to be exact."""
    source = (
        'extern "C" __global__ void k(float *x) { x[threadIdx.x] = x[threadIdx.x] / x[threadIdx.x + 99]; }'
    )
    binary = compile_source(source, ["k"], "sm_90")
    code = list(line_table(binary.cubin or b"", "k").instructions)
    leave = next(i for i, item in enumerate(code) if item.text == "EXIT")
    code.insert(leave + 1, replace(code[leave], label=".L_elsewhere"))
    for change, found in ((lambda _: None, True), (edit, known)):
        change(code)
        blocks = basic_blocks(code)
        detours = find_detours(blocks, find_reachable(blocks))
        assert [item.kind for item in detours] == ["div.f32"] * found
        assert all(item.tested and item.slow_blocks[0] == item.call for item in detours)


@pytest.mark.parametrize(
    ("following", "found"), [([[1, 2], [2], []], [0, 1, 2]), ([[0, 1], [2], []], []), ([[1], [0, 2], []], [])]
)
def test_a_routine_with_a_loop_is_none_that_is_known(following: list[list[int]], found: list[int]) -> None:
    """Of one block that jumps to itself, too."""
    blocks = [[MachineInstruction(0, text)] for text in ("BRA A", "BRA B", "RET.REL.NODEC R2")]
    assert _list_routine(0, following, blocks) == found


def test_branches_of_one_line_add_up_in_all_that_is_counted() -> None:
    """As those of a function that is inlined twice."""
    runs = [
        SimpleNamespace(line=7, runs=one, threads=30 * one, splits=one - 1, tests=[3])
        for one in (np.array([1.0, 4.0]), np.array([2.0, 8.0]))
    ]
    found = _sum_branches(cast(Any, SimpleNamespace(instruction_runs=lambda: runs)))[7]
    for figures, expected in ((found.runs, [3, 12]), (found.threads, [90, 360]), (found.splits, [1, 10])):
        assert figures.tolist() == expected
    assert found.tests == {3}
