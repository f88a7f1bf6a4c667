"""Parts of the instruments, each by itself, on made-up launches: plain counts of what they are said to be."""

from __future__ import annotations

import ctypes
import itertools
import random
import struct
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.nothing import test_gains as gains_of
from tilewise.emulator.profiling.recording import EventKind
from tilewise.emulator.support.tensor_map_layout import MAGIC, MAP
from tilewise.errors import LaunchError
from tilewise.gpus import find
from tilewise.instruments.block_views import _find_run, _split_k, find_owners
from tilewise.instruments.cache_model import Traffic
from tilewise.instruments.compare import compare_rows
from tilewise.instruments.findings import Access, CallLine, Finding
from tilewise.instruments.leaks import HeapBlock, HostArrays, find_leaked_blocks
from tilewise.instruments.machine import Machine, MachineAccess, MachineRuns
from tilewise.instruments.metric import ESTIMATED, EXACT, round_counts, spread
from tilewise.instruments.metrics import make_metrics
from tilewise.instruments.origins import Origins
from tilewise.instruments.predict import predict
from tilewise.instruments.profile import format_number
from tilewise.instruments.profile_launch import launch_figures
from tilewise.instruments.recording import Moves
from tilewise.instruments.residency import check_cooperative
from tilewise.instruments.roofline import Roofline, RooflineBound, flops_of, memory_cycles
from tilewise.instruments.sample import _tell_apart, block_kinds, clusters_of
from tilewise.instruments.spills import spills_of
from tilewise.instruments.tensor_boxes import TensorBoxes, read_map
from tilewise.instruments.verdict import Gain, Verdict, _excess
from tilewise.launch import Launch
from tilewise.toolchain.binary import Resources
from tilewise.toolchain.lines import MachineInstruction

GRIDS = [(1, 1, 1), (2, 1, 1), (5, 1, 1), (4, 3, 1), (2, 6, 4), (6, 2, 8)]


# ── which blocks are counted for all ──


@pytest.mark.parametrize("grid", GRIDS)
def test_blocks_are_of_a_kind_by_where_they_stand_along_each_axis(grid: tuple[int, int, int]) -> None:
    def kind(at: int, size: int) -> int:
        return 0 if at == 0 else 2 if at == size - 1 else 1

    places = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    kinds = [tuple(map(kind, place, grid)) for place in places]
    assert [(n % 3, n // 3 % 3, n // 9) for n in block_kinds(grid).tolist()] == kinds


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 4), (1, 1, 2)])
@pytest.mark.parametrize("grid", [(2, 2, 4), (4, 6, 8), (6, 2, 4)])
def test_clusters_are_numbered_as_blocks_of_their_grid(
    grid: tuple[int, int, int], cluster: tuple[int, int, int]
) -> None:
    wide, high = grid[0] // cluster[0], grid[1] // cluster[1]
    assert clusters_of(grid, cluster).tolist() == [
        x // cluster[0] + wide * (y // cluster[1] + high * (z // cluster[2]))
        for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])
    ]  # fmt: skip


def test_kinds_are_told_apart_by_the_least_modulus_that_does() -> None:
    chosen = random.Random(3)
    for _ in range(60):
        numbers = chosen.sample(range(40), 8)
        blocks = {0: np.array(numbers[:3]), 1: np.array(numbers[3:5]), 2: np.array(numbers[5:])}

        def clash(modulus: int, blocks: dict[int, Any] = blocks) -> bool:
            pairs = itertools.combinations(blocks.values(), 2)
            return any({*(a % modulus).tolist()} & {*(b % modulus).tolist()} for a, b in pairs)

        found = _tell_apart(blocks)
        assert found >= 3 and not clash(found) and all(clash(less) for less in range(1, found))
    assert _tell_apart({0: np.array([0]), 1: np.array([1024])}) == 3
    wide = {number: np.array([number]) for number in range(1025)}
    assert _tell_apart({i: wide[i] for i in range(1024)}) == 1024 and _tell_apart(wide) == 0


# ── what was never freed, and where something was ──


def heap_of(*blocks: tuple[int, bool, int, int]) -> tuple[int, int, Any]:
    """A heap with blocks of a logarithm, free or not, of a line and a thread: its address, its bytes, what has them."""
    data = bytearray(16)
    for logarithm, is_free, line, who in blocks:
        head = struct.pack("=IIII", 7, logarithm | is_free << 31, line, who)
        data += head + bytes(max((1 << logarithm) - 16, 0))
    held = (ctypes.c_char * len(data)).from_buffer(data)
    return ctypes.addressof(held), len(data), held


def test_blocks_of_a_heap_that_are_not_free_are_told_once() -> None:
    heap, used, held = heap_of(
        (4, False, 3, 70), (6, True, 4, 71), (5, False, 0, 72), (10, False, 6, 73), (5, False, 7, 74)
    )
    kept = [HeapBlock(3, 70, 0), HeapBlock(6, 73, 1008), HeapBlock(7, 74, 16)]
    assert find_leaked_blocks(heap, used - 32) == kept[:2], "what lies behind what was used is none"
    assert find_leaked_blocks(heap, used) == kept[2:], "who took the others was told"
    heap, used, held = heap_of((5, False, 3, 70), (3, False, 4, 71), (4, False, 5, 72))
    assert find_leaked_blocks(heap, used) == [HeapBlock(3, 70, 16)] and held is not None


def test_arrays_that_live_on_are_told_with_the_line_that_made_them() -> None:
    class Allocation:
        name, size, address = "x", 12_345, 64

    arrays, one, other = HostArrays(), Allocation(), Allocation()
    arrays.add(one)
    line = sys._getframe().f_lineno - 1
    arrays.add(other)
    del other
    (leak,) = arrays.leaks()
    assert (leak.tool, leak.kind, leak.space, leak.address, leak.array) == (
        "memcheck",
        "leak",
        "global",
        64,
        "x",
    )
    assert leak.message == "12,345 bytes were never given back: x" and leak.now is not None
    assert (leak.now.file, leak.now.line) == (__file__, line) and leak.now.text.startswith("arrays.add(one)")
    arrays.forget()
    assert not arrays.leaks()


PTX = """\
.version 8.0
.file 1 "/there/include/tilewise/math.cuh"
.file 2 "kernel.cu"
{
add.s32 a;
.loc 2 2 0
mul.f32 b;
.loc 1 9 5, function_name $L1, inlined_at 2 3 1
ld.f32 c;
.loc 2 0 0
st.f32 d;
}
exit;
.loc 2 7 0
ret;
"""


def test_a_line_of_ptx_comes_from_lines_of_the_source() -> None:
    build = SimpleNamespace(ptx=PTX, block=(8, 4, 2), shared_bytes=100)
    binary = SimpleNamespace(filename="kernel.cu", source="one\ntwo\nthree")
    origins = Origins(build, cast(Any, binary))
    header = CallLine("tilewise/math.cuh", 9)
    plain = Access("read", (0, 0, 0), None, 0, 7, "mul.f32 b;", "kernel.cu", 2, "two")
    assert origins.at(7, "read", (0, 0, 0), None) == plain
    inlined = origins.at(9, "read", (0, 0, 0), None, 5)
    assert (inlined.file, inlined.line, inlined.text, inlined.warp) == (header.file, 9, "", 5)
    assert inlined.calls == (CallLine("kernel.cu", 3, "three"),)
    for line, text in ((5, "add.s32 a;"), (11, "st.f32 d;"), (13, "exit;"), (0, ""), (15, "ret;"), (16, "")):
        found = origins.at(line, "read", (0, 0, 0), None)
        assert (found.ptx, found.line) == (text, 7 if line == 15 else 0) and found.text == ""
    for linear in range(64):
        side = SimpleNamespace(thread=linear, line=7, block=(1, 2, 3), warp=linear // 32)
        access = origins.access(side, "write")
        assert access.thread == (linear % 8, linear // 8 % 4, linear // 32) and access.block == (1, 2, 3)
    assert (
        origins.access(SimpleNamespace(thread=None, line=7, block=(0, 0, 0), warp=1), "write").thread is None
    )


def test_a_launch_is_told_how_much_shared_memory_an_access_needs() -> None:
    build = SimpleNamespace(ptx=".extern .shared .b8 s[];", block=(1, 1, 1), shared_bytes=100)
    origins = Origins(build, cast(Any, None))
    most = 227 * 1024
    for needed, is_said in (
        (0, False),
        (1, True),
        (5000, True),
        (most, True),
        (most + 1, False),
        (-4, False),
    ):
        for block in (0, 5 << 24):
            said = origins.shared_advice(block + 100 + needed, 1024)
            assert bool(said) is is_said
    assert origins.shared_advice(5100, 1024) == (
        "give the launch more dynamic shared memory: it has 1,024 bytes, and this access needs 5,000 "
        "(shared=5000, --shared 5000); or keep the index within what there is"
    )
    build.ptx = ".shared .b8 s[100];"
    assert origins.shared_advice(5100, 1024) == ""


def test_a_finding_is_told_with_both_of_its_sides() -> None:
    now = Access(
        "write",
        (1, 0, 0),
        (2, 0, 0),
        0,
        12,
        "st.shared.f32",
        "a.cu",
        3,
        "  s[i] = x;",
        (CallLine("a.cu", 9, "f();"),),
    )
    before = Access("read", (0, 0, 0), None, 4, 0, "")
    found = Finding(
        "racecheck", "read-write", "a race", "wait", "f", 1234, now=now, before=before, level="info"
    )
    assert str(found).splitlines() == [
        "racecheck (info): a race (1,234 times)", "  in kernel f",
        "  write by thread (2, 0, 0) of block (1, 0, 0)", "    a.cu:3", "      s[i] = x;", "      ^^^^^^^^^",
        "    called at a.cu:9", "      f();", "      ^^^^", "    PTX line 12: st.shared.f32",
        "  read by several threads of warp 4 of block (0, 0, 0)", "  → wait",
    ]  # fmt: skip
    assert str(
        Finding("memcheck", "leak", "kept", "", "", now=Access("allocation", None, None, 0, 0, ""))
    ) == ("memcheck: kept\n  allocation by the host")
    # Findings are of one place where both of these agree: the line, and the calls that led to it.
    assert (now.location, before.location) == (("a.cu", 3, ("a.cu", 9)), ("", 0))
    assert Access("read", None, None, 0, 7, "ld.global.f32").location == ("", 7)
    for length in (99, 100, 101):
        line = str(Access("read", None, None, 0, 1, "x" * length)).rpartition(" ")[2]
        assert line == ("x" * length if length <= 100 else "x" * 99 + "…")


# ── numbers ──


def test_numbers_are_told_as_ncu_prints_them() -> None:
    assert [format_number(value) for value in (0, 7.0, -1234567, 1.5, -2.125, 1234.567, 0.5, -0.25, 1 / 3, 1e-9)] == [
        "0", "7", "-1,234,567", "1.50", "-2.12", "1,234.57", "0.5", "-0.25", "0.3333333", "1e-09",
    ]  # fmt: skip


def test_a_figure_is_spread_over_the_multiprocessors_or_their_four_parts() -> None:
    figures = np.array([1.0, 2.0, 6.0])
    assert {one.name: one.value for one in spread("sm__x", figures, EXACT)} == {
        "sm__x.avg": 3, "sm__x.max": 6, "sm__x.min": 1, "sm__x.sum": 9,
    }  # fmt: skip
    assert {one.name: one.value for one in spread("smsp__x", figures, EXACT)} == {
        "smsp__x.avg": 0.75,
        "smsp__x.sum": 9,
    }
    parts = np.array([1.25, 1.5])
    assert [one.value for one in spread("smsp__x", parts, EXACT)] == [2.75 / 8, 2.75]
    assert [(one.value, one.label, one.unit) for one in spread("smsp__x", parts, ESTIMATED, "inst")] == [
        (0.375, ESTIMATED, "inst"), (3, ESTIMATED, "inst"),
    ]  # fmt: skip
    assert round_counts(np.array([2.9995, 3.0005, 3.002, 0.5])).tolist() == [3, 3, 3.002, 0.5]


@pytest.mark.parametrize("threads", [32, 64, 96, 128, 160, 192, 256, 384, 1000, 1024])
def test_the_least_and_the_most_of_parts_are_told_where_they_have_as_many_warps(threads: int) -> None:
    """A multiprocessor's four parts get a block's warps in turn."""
    runs = figures(40, 24)
    loads = replace(access(runs=runs, sectors=4 * runs), space="global")
    counts: Any = SimpleNamespace(rows=runs, block_runs=lambda _: runs, instruction_runs=list)
    found = make_metrics(Machine("predicted", [loads]), counts, None, {"block_size": threads})
    stem = "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ld"
    told = {way: found[f"{stem}.{way}"].value for way in ("max", "min") if f"{stem}.{way}" in found}
    assert told == ({"max": 40, "min": 24} if threads % 128 == 0 else {})


def test_metrics_of_two_profiles_stand_beside_their_ratio() -> None:
    class Profile(dict[str, float]):
        def select(self, patterns: Any) -> None: ...

    first, second = Profile(a=4, b=0, c=0, d=8, e=1), Profile(a=6, b=3, c=0, d=0, f=1)
    rows = [["a", "4", "6", "1.5"], ["b", "0", "3", "∞"], ["c", "0", "0", ""], ["d", "8", "0", "0"]]
    assert compare_rows(cast(Any, first), cast(Any, second), ["?"]) == rows


def test_what_a_launch_is_makes_figures_of_their_own() -> None:
    found = launch_figures(Launch((5, 3, 2), (64, 2, 4), shared=700), find("h200"), 40)
    assert found == {
        "grid_size": 30, "block_size": 512, "thread_count": 30 * 512, "sm_count": 132,
        "shared_mem_per_block_static": 40, "shared_mem_per_block_dynamic": 700,
        "shared_mem_per_block_driver": 1024, "shared_mem_per_block": 1764,
        "grid_dim_x": 5, "grid_dim_y": 3, "grid_dim_z": 2, "block_dim_x": 64, "block_dim_y": 2, "block_dim_z": 4,
    }  # fmt: skip


def test_traffic_is_told_under_the_names_of_ncu() -> None:
    traffic = Traffic(
        "h200", 4, requested=1000, l1_read=400, l2_read=300, l2_hits=75, l2_written=50, l2_prefetched=20,
        l2_across=7, l2_parts=2, memory_read=90, memory_written=11,
    )  # fmt: skip
    assert {one.name: one.value for one in traffic.metrics(3)} == pytest.approx({
        "lts__t_sectors_op_read.sum": 307, "lts__t_sectors_op_write.sum": 75, "lts__t_sectors_srcunit_tex.sum": 370,
        "lts__t_sectors_srcunit_tex_op_read.sum": 300, "lts__t_sectors_srcunit_tex_op_write.sum": 50,
        "lts__t_sector_op_read_hit_rate.pct": 25, "l1tex__t_sector_hit_rate.pct": 60,
        "l1tex__m_xbar2l1tex_read_sectors.sum": 403, "l1tex__m_xbar2l1tex_read_bytes.sum": 403 * 32,
        "dram__bytes_read.sum": 2880, "dram__bytes_write.sum": 352,
    })  # fmt: skip


# ── the roofline and the verdict ──


def figures(*values: float) -> Any:
    return np.array(values, float)


def access(**given: Any) -> MachineAccess:
    """An access whose figures are those that are given, and else 0."""
    zero = figures(0, 0)
    usual: dict[str, Any] = dict.fromkeys(
        ("runs", "waves", "phases", "ideal", "sectors", "ideal_sectors", "bytes"), zero
    )
    return MachineAccess(MachineInstruction(0, "LDS"), "ld", "shared", 32, **{**usual, **given})


def test_cycles_beyond_those_of_the_same_words_side_by_side_are_in_excess() -> None:
    plain = access(waves=figures(9, 2), phases=figures(4, 3))
    assert _excess(plain).tolist() == [5, 0]
    loads = access(turns=figures(10, 1), runs=figures(4, 2))
    assert _excess(loads).tolist() == [6, 0]
    wide = access(turns=figures(10, 6), runs=figures(4, 2), data=figures(128 * 7, 128))
    assert _excess(wide).tolist() == [3, 4]
    assert memory_cycles([plain, loads, wide]).tolist() == [29, 9]
    assert memory_cycles([]).tolist() == [0]


def test_operations_of_a_machine_instruction_are_those_of_its_shape() -> None:
    for opcode, kind, operations in (
        ("FFMA", "fp32", 64), ("FADD.FTZ", "fp32", 32), ("FMUL2", "fp32", 64), ("FADD2", "fp32", 64), ("DFMA", "fp64", 64), ("DADD", "fp64", 32),
        ("FFMA2", "fp32", 128), ("HFMA2.MMA", "fp16", 128), ("HFMA2.BF16_V2", "fp16", 128),
        ("HMMA.16816.F32", "fp16_fp32", 4096), ("HMMA.16816.F16", "fp16_fp16", 4096),
        ("HMMA.1688.F32.TF32", "tf32", 2048), ("HMMA.16816.F32.BF16", "bf16", 4096), ("HMMA.884.F32", "fp16_fp32", 512),
        ("HMMA.SP.16832.F32.BF16", "bf16", 8192), ("IMMA.SP.16864.S8.S8", "int8", 16384),
        ("IMMA.16832.S8.S8", "int8", 8192), ("DMMA.8x8x4", "fp64_tensor", 512), ("HGMMA.64x256x16.F32", "fp16_fp32", 2 * 64 * 256 * 16 // 4),
        ("QGMMA.64x8x32.F32.E4M3.E4M3", "fp8_fp32", 2 * 64 * 8 * 32 // 4), ("QGMMA.64x8x32.F16.E4M3", "fp8_fp16", 8192),
        ("IGMMA.64x16x32.S8.S8", "int8", 16384), ("IADD3", "", 0), ("HMMA.F32", "", 0), ("MOV", "", 0),
    ):  # fmt: skip
        assert flops_of(opcode) == (kind, operations), opcode


def test_a_roofline_is_bound_by_what_takes_longest() -> None:
    bounds = RooflineBound("math", 6e6, "flop", 2e12), RooflineBound("memory", 4e3, "byte", 1e9, 1.5)
    found = Roofline("a GPU", 6e6, bounds, 4e3)
    assert found.binding is bounds[1] and found.seconds == pytest.approx(6e-6)
    assert found.intensity == 1500 and found.reached(1.2e-5) == pytest.approx(0.5)
    assert Roofline("a GPU", 6e6, bounds, None).intensity is None
    assert str(found).splitlines() == [
        "bound by memory, 6 µs on a GPU", "  math: 6e+06 flop, 3 µs", "  memory: 4,000 byte, 6 µs",
    ]  # fmt: skip


def test_a_verdict_says_what_would_be_gained() -> None:
    gains = (Gain("conflicts", 2e-6, 2.5, "a.cu:3  x", "pad rows"), Gain("idle SMs", 4.9e-6, 1.0204))
    verdict = Verdict("h200", "memory", 5e-3, 0, 132, gains, "math", 1.0)
    assert verdict.lines() == [
        "5 ms at least on h200, bound by memory", "conflicts: 2 µs without, 2.5 times less", "  a.cu:3  x", "  pad rows",
        "idle SMs: 4.9 µs without, 1.02 times less",
    ]  # fmt: skip
    for seconds, text in (
        (1.0, "1 s"),
        (0.999, "999 ms"),
        (1e-3, "1 ms"),
        (1e-6, "1 µs"),
        (9.99e-7, "999 ns"),
        (72.5, "72.5 s"),
    ):
        assert Verdict("h200", "memory", 5e-3, 3, 132, (), "math", seconds).lines() == [
            "5 ms at least on h200, bound by memory; 3 of 132 SMs have no block",
            f"nothing is known to hold it up; next comes math, {text}",
        ]  # fmt: skip


def test_each_slowdown_is_told_with_what_mends_it() -> None:
    lanes = "give lanes of a warp neighbouring words, or go through shared memory"
    scattered = gains_of.judge(gains_of.access("global", 300, vain=1)).gains
    assert [(gain.what, gain.remedy) for gain in scattered] == [("uncoalesced global access", lanes)]
    several = gains_of.access("shared", 200), gains_of.access("global", 300)
    found = {gain.what: gain.remedy for gain in gains_of.judge(*several, uneven=2.0).gains}
    assert found == {
        "shared bank conflicts": "pad rows, swizzle, or give lanes of a warp neighbouring words",
        "global access in parts of lines": "have a warp read whole lines of 128 bytes",
        "idle SMs and the tail of the last wave": (
            "more blocks, or a number of them that 132 SMs share evenly: smaller tiles, or K in parts"
        ),
    }
    spilling = {
        gain.what: (gain.where, gain.remedy) for gain in gains_of.judge(issuing=2000, local=900).gains
    }
    advice = "fewer values at once, or more registers"
    assert spilling["local memory (spills, indexed arrays)"] == ("", advice)


def test_spills_are_told_with_the_share_of_instructions_that_they_cost() -> None:
    def ran(family: str, runs: float) -> MachineRuns:
        return MachineRuns(MachineInstruction(0, family), 0, figures(runs, 1), figures(0), figures(0))

    launch = [ran("LDL.64", 5), ran("STL", 3), ran("FFMA", 89)]
    spilling, plain = (Resources(32, 0, 0, 0, 0, store, load) for store, load in ((8, 1200), (0, 0)))
    found = spills_of(spilling, launch)
    assert found is not None and found.to_dict() == {
        "bytes": 1208, "stored_bytes": 8, "loaded_bytes": 1200, "local_instructions": 10, "share": 0.1,
    }  # fmt: skip
    assert str(found) == (
        "1,208 bytes a thread (8 stored, 1,200 loaded); 10.0% of the instructions that ran load or store local memory; "
        "fewer values at once, or more registers (smaller blocks, other launch bounds), would spare them"
    )
    assert str(spills_of(plain, launch)) == (
        "no spills; 10.0% of the instructions that ran load or store local memory (arrays that are indexed)"
    )
    assert spills_of(plain, launch[2:]) is None and spills_of(None, launch) is None
    never = spills_of(spilling, [])
    assert never is not None and never.share == 0


def test_a_cooperative_launch_must_be_on_the_gpu_at_once() -> None:
    """Four blocks of 512 threads an SM, by their registers two; of PTX whose registers nobody knows, four."""
    h200, resources = find("h200"), Resources(64, 1024, 0, 0, 0, 0, 0)
    check_cooperative(h200, "f", Launch((132, 2, 1), (512, 1, 1)), resources)
    with pytest.raises(LaunchError) as error:
        check_cooperative(h200, "f", Launch((133, 2, 1), (512, 1, 1)), resources)
    assert str(error.value) == (
        f"grid must have at most 264 blocks in a cooperative launch of f on {h200.title}: each of its 132 multiprocessors "
        "holds 2, bounded by registers, not '133 × 2 × 1 = 266'; let each block do several blocks' work"
    )
    check_cooperative(h200, "f", Launch((132, 4, 1), (512, 1, 1)), None)
    for launch, said in (
        (Launch((133, 4, 1), (512, 1, 1)), "528 blocks.*holds 4, bounded by room for warps"),
        (Launch((133, 1, 1), (32, 1, 1), shared=200_000), "132 blocks.*holds 1, bounded by shared memory"),
        (
            Launch((4225, 1, 1), (32, 1, 1)),
            "4,224 blocks.*holds 32, bounded by registers and room for blocks",
        ),
    ):
        with pytest.raises(LaunchError, match=said):
            check_cooperative(h200, "f", launch, None)


@pytest.mark.parametrize("own", [None, 0, 640])
@pytest.mark.parametrize("name", ["t4", "a100", "rtx-4090", "h200"])
def test_cooperative_blocks_share_a_multiprocessors_memory_to_the_byte(name: str, own: int | None) -> None:
    """A kernel's own bytes and those that the launch adds; of PTX whose own nobody knows, the latter alone."""
    gpu, resources = find(name), None if own is None else Resources(16, own, 0, 0, 0, 0, 0)
    for held in (2, 3, 5):
        unit = gpu.limits.shared_unit
        most = gpu.shared_per_sm // held // unit * unit - gpu.shared_reserved_per_block - (own or 0)
        for shared, fitting in ((most, held), (most + 1, held - 1)):
            launch = Launch((gpu.sms, fitting, 1), (32, 1, 1), shared=shared)
            check_cooperative(gpu, "f", launch, resources)
            said = f"at most {gpu.sms * fitting:,} blocks .*holds {fitting}, bounded by shared memory"
            with pytest.raises(LaunchError, match=said):
                check_cooperative(gpu, "f", replace(launch, grid=(gpu.sms * fitting + 1, 1, 1)), resources)


# ── accesses without machine code ──


def test_without_machine_code_accesses_are_as_the_ptx_has_them() -> None:
    """Each figure is made up, another for each access and each multiprocessor."""
    names = ("runs", "threads", "sectors", "least", "asked", "lines", "sharing", "distinct", "turns")

    def place(number: int, action: str, name: str, space: str, size: int, **given: Any) -> Any:
        made = {one: figures(100 * number + i, 7 * number + i) for i, one in enumerate(names)}
        by_width = {
            one: {size: figures(50 * number + i, i)} for i, one in enumerate(("waves", "phases", "ideals"))
        }
        there, nowhere = figures(3, 4), figures(0, 0)
        touched = {
            "shared": there if space != "global" else nowhere, "outside": there if space != "shared" else nowhere,
        }  # fmt: skip
        about = {"line": number, "name": name, "action": action, "space": space, "size": size, "seen": None}
        return SimpleNamespace(**about, **made, **by_width, **touched, passes=None, fills=False, **given)

    places = [
        place(1, "load", "ld.shared.f32", "shared", 4), place(2, "load", "ld.global.v4.f32", "global", 16),
        place(3, "store", "st.f64", "generic", 8), place(4, "atomic", "atom.global.add.u32", "global", 4),
        place(5, "atomic", "red.global.add.u32", "global", 4), place(6, "load", "ldmatrix.sync", "shared", 16),
        place(7, "store", "stmatrix.sync", "shared", 16), place(8, "copy", "cp.async", "global", 16),
        place(9, "fill", "cp.async", "shared", 16),
    ]  # fmt: skip
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f()\n{\nret;\n}\n"
    machine = predict(text, "f", cast(Any, SimpleNamespace(places=lambda: places)))
    assert machine.notes == ["no machine code here: accesses are as the PTX has them"] and not machine.ran
    assert [(one.instruction.ptx, one.op, one.space) for one in machine.accesses] == [
        (1, "ld", "shared"), (2, "ld", "global"), (3, "st", "shared"), (3, "st", "global"), (4, "atom", "global"),
        (5, "red", "global"), (6, "ldsm", "shared"), (7, "stsm", "shared"), (8, "ldgsts", "global"), (9, "ldgsts", "shared"),
    ]  # fmt: skip

    def listed(values: Any) -> Any:
        return None if values is None else values.tolist()

    for one in machine.accesses:
        (seen,) = (other for other in places if other.line == one.instruction.ptx)
        size, zero = seen.size, [0, 0]
        in_shared = one.space == "shared"
        assert one.bits == 8 * size and one.instruction.opcode == seen.name
        assert listed(one.runs) == [3, 4] and one.exact
        for mine, theirs in (("waves", "waves"), ("phases", "phases"), ("ideal", "ideals")):
            assert listed(getattr(one, mine)) == (getattr(seen, theirs)[size].tolist() if in_shared else zero)
        asked = seen.asked if seen.action == "atomic" else seen.sectors
        assert listed(one.sectors) == (zero if in_shared else asked.tolist())
        assert listed(one.ideal_sectors) == (zero if in_shared else seen.least.tolist())
        assert listed(one.touched) == (None if in_shared else seen.sectors.tolist())
        assert listed(one.lines) == (None if in_shared else seen.lines.tolist())
        assert listed(one.bytes) == (seen.threads * size).tolist()
        assert listed(one.data) == (seen.distinct * size).tolist()


# ── parts of arrays ──


def test_the_run_of_numbers_around_one_of_them() -> None:
    numbers = np.array([7, 2, 3, 3, 9, 4, 12])
    assert {one: _find_run(numbers, one) for one in (2, 3, 4, 7, 9, 12)} == {
        2: (2, 5), 3: (2, 5), 4: (2, 5), 7: (7, 8), 9: (9, 10), 12: (12, 13),
    }  # fmt: skip


def test_k_is_split_where_no_read_goes_across() -> None:
    """By hand: each k that is read is in one part with the next one if some read has both."""
    chosen = random.Random(4)
    for _ in range(100):
        reads = [
            [(first, first + chosen.randrange(4)) for first in chosen.sample(range(20), 4)] for _ in range(2)
        ]
        every = [one for some in reads for one in some]
        known = sorted({k for first, last in every for k in range(first, last + 1)})
        parts: list[tuple[int, int]] = []
        for k in known:
            if parts and parts[-1][1] == k and any(first < k <= last for first, last in every):
                parts[-1] = parts[-1][0], k + 1
            else:
                parts.append((k, k + 1))
        pairs = [tuple(np.array(ends) for ends in zip(*some, strict=True)) for some in reads]
        assert _split_k(cast(Any, pairs)) == parts


@pytest.mark.parametrize("swizzle", [1, 2, 4, 8])
def test_elements_of_a_box_lie_in_shared_memory_one_after_another_but_for_the_swizzle(swizzle: int) -> None:
    """Those outside of the array are left out."""
    boxes = TensorBoxes(4096, (40, 6, 3), (2, 96, 640), (16, 3, 2), 2, swizzle)
    shared = 2048
    for corner in ((8, 1, 0), (0, 0, 0), (-5, -1, 1), (30, 4, 2), (24, 3, 1), (25, 3, 1), (24, 4, 1)):
        wanted = []
        for number, (z, y, x) in enumerate(itertools.product(range(2), range(3), range(16))):
            at = [one + first for one, first in zip((x, y, z), corner, strict=True)]
            if all(0 <= one < size for one, size in zip(at, (40, 6, 3), strict=True)):
                place = shared + 2 * number
                place ^= (place // 128) % swizzle * 16
                wanted.append((4096 + 2 * at[0] + 96 * at[1] + 640 * at[2], place))
        places, offsets = boxes.elements(corner, shared)
        assert [*zip(places.tolist(), offsets.tolist(), strict=True)] == wanted
        few = boxes.elements(corner, shared, corners=True)
        found = [*zip(few[0].tolist(), few[1].tolist(), strict=True)]
        assert found == sorted(found) and {*found} <= {*wanted} and {wanted[0], wanted[-1]} <= {*found}
        assert len(found) <= 8


def test_owners_are_of_the_rows_and_columns_around_an_element_that_nothing_interrupts() -> None:
    """Of ragged results, too: a row or a column that the element's own does not reach is of another tile."""
    stores = (
        [(1, column) for column in range(4, 9)]
        + [(row, column) for row in (2, 3) for column in (5, 6)]
        + [(3, 7), (3, 4), (4, 7), (2, 8), (6, 5)]
    )
    rows, columns = (np.array(one) for one in zip(*stores, strict=True))
    count = len(stores)
    moves = Moves(np.arange(count), np.arange(count) % 4, rows, columns, np.zeros(count, np.int64))
    moves.stack[3] = 1
    events = SimpleNamespace(
        block=np.arange(count) // 8, warp=np.arange(count) // 4, what=np.full(count, EventKind.STORE)
    )
    recording: Any = SimpleNamespace(roles={"c": "C"}, events=events, touched=lambda *_: moves)
    owners = find_owners(recording, (2, 6))
    assert owners is not None and (owners.first_row, owners.first_column) == (1, 5)
    assert (owners.rows, owners.columns, owners.by_engine) == (3, 2, False)
    for row in (1, 2, 3):
        for column in (5, 6):
            number = stores.index((row, column))
            assert owners.at(row, column) == (number // 8, number // 4, number % 4)
    found = find_owners(recording)  # around what is written first
    assert found is not None and (found.first_row, found.first_column, found.rows) == (1, 4, 1)
    assert found.columns == 3 and not found.has(2, 4) and not found.has(1, 7)
    assert find_owners(recording, (5, 5)) is None and find_owners(recording, (1, 7)) is None


def test_boxes_are_read_from_a_tiled_map_without_interleave_or_steps() -> None:
    raw = bytearray(128)
    struct.pack_into(
        "<QQ4Q5Q5H5B", raw, 0, MAGIC, 4096, 96, 640, 0, 0, 40, 6, 3, 0, 0, 16, 3, 2, 0, 0, 1, 1, 1, 9, 9
    )
    raw[MAP.RANK], raw[MAP.ELEMENT], raw[MAP.SWIZZLE] = 3, 10, 2
    assert read_map(bytes(raw)) == TensorBoxes(4096, (40, 6, 3), (2, 96, 640), (16, 3, 2), 2, 4)
    assert read_map(bytes(raw[:-12])) is not None and read_map(bytes(raw[: MAP.UPPER - 1])) is None
    for place, value in (
        (MAP.MODE, 1),
        (MAP.INTERLEAVE, 1),
        (MAP.STEPS, 2),
        (MAP.STEPS + 2, 3),
        (MAP.MAGIC, 1),
    ):
        other = bytearray(raw)
        other[place] = value
        assert read_map(bytes(other)) is None
