"""Large straight-line kernels: the work of compiling them grows with their length, and results stay the same."""

from __future__ import annotations

import bisect
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.emulator import build_kernel, host_cpu
from tilewise.emulator.analysis import pieces
from tilewise.emulator.analysis.control_flow import build_flow
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.lowering.lower import lower
from tilewise.emulator.operations.operands import reads, writes
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Instruction, PtxError

HEAD = """.version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p, .param .u64 q) {
.reg .b64 %a<9>; .reg .b32 %t<9>; .reg .pred %more;
ld.param.u64 %a0, [p]; ld.param.u64 %a1, [q];
mov.u32 %t0, %tid.x; mul.wide.u32 %a2, %t0, 4; add.s64 %a3, %a0, %a2; add.s64 %a4, %a1, %a2;
"""
BITS = {"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32}


def multiply_adds(type_: str, count: int, looped: bool = False) -> str:
    """x ← y·x + z, over and over: one behind the other, or in a loop."""
    bits = BITS[type_]
    load = "".join(f"ld.global.b{bits} %r{i}, [%a3+{128 * i}];\n" for i in range(3))
    step = f"fma.rn.{type_} %r0, %r1, %r0, %r2;\n"
    body = step * count
    if looped:
        body = f"mov.u32 %t1, {count};\nL: {step} sub.u32 %t1, %t1, 1; setp.ne.u32 %more, %t1, 0; @%more bra L;\n"
    return f"{HEAD}.reg .b{bits} %r<3>;\n{load}{body}st.global.b{bits} [%a4], %r0;\nret;\n}}"


def loads(count: int) -> str:
    """A sum of elements at 32-bit indices, each of which may wrap around."""
    lines = [f"{HEAD}.reg .f32 %f<{2 * count + 1}>; .reg .b32 %i<{count}>; .reg .b64 %w<{2 * count}>;"]
    lines += ["ld.param.u32 %t1, [q]; mov.f32 %f0, 0f00000000; add.u32 %t2, %t0, %t1;"]
    for i in range(count):
        lines += [f"add.u32 %i{i}, %t2, {i}; mul.wide.u32 %w{2 * i}, %i{i}, 4;"]
        lines += [f"add.s64 %w{2 * i + 1}, %a0, %w{2 * i}; ld.global.f32 %f{2 * i + 1}, [%w{2 * i + 1}];"]
        lines += [f"add.f32 %f{2 * i + 2}, %f{2 * i}, %f{2 * i + 1};"]
    return "\n".join([*lines, f"st.global.f32 [%a4], %f{2 * count};\nret;\n}}"])


def limit_pieces(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Have blocks cut by other limits than those for programs of ten thousand instructions."""
    for name, value in limits.items():
        monkeypatch.setattr(pieces, name, value)


def lowered(ptx: str) -> str:
    return lower(Program(parse(ptx), "k", (32, 1, 1)), False, "k").text


def calls_to_lower(ptx: str) -> int:
    """How many functions of Python are called: unlike seconds, the same on a busy machine."""
    calls = 0

    def count(frame: Any, event: str, what: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        lowered(ptx)
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.few(1)
@pytest.mark.parametrize("kernel", [loads, lambda count: multiply_adds("f16", count)])
def test_our_own_work_grows_with_the_length(kernel: Any) -> None:
    assert calls_to_lower(kernel(160)) < 2.6 * calls_to_lower(kernel(80))


def test_live_registers_are_those_of_a_walk_over_the_whole_block() -> None:
    program = Program(parse(loads(50)), "k", (32, 1, 1))
    for block in program.flow.blocks:
        live = program.liveness.at_end(block)
        assert block.terminator.kind == "go"  # which reads nothing
        assert program.liveness.before(block, len(block.instructions)) == live
        for position in reversed(range(len(block.instructions))):
            instruction = block.instructions[position]
            live -= set(writes(instruction))
            live |= set(reads(instruction)) & program.function.registers.keys()
            assert program.liveness.before(block, position) == live


@pytest.mark.parametrize("type_", BITS)
def test_many_multiply_adds_are_calls_of_one_function(type_: str) -> None:
    few, many = (len(lowered(multiply_adds(type_, count)).splitlines()) for count in (300, 600))
    assert many - few < 300 * 14


@pytest.mark.parametrize("type_", BITS)
def test_what_there_is_seldom_is_computed_in_place(type_: str) -> None:
    """A function is worth its calls where 1,500 operations are in it, but hardly for fewer than sixteen calls."""

    def calls(count: int) -> int:
        return len(re.findall(r"call [^@]+@tw_fma\w+_\d+\(", lowered(multiply_adds(type_, count))))

    enough = bisect.bisect_left(range(150), 1, key=calls)
    assert calls(enough) == enough
    (body,) = re.findall(r"define [^\n]+@tw_fma[^{]+{([^}]+)}", lowered(multiply_adds(type_, enough)))
    length = len(
        [line for line in body.splitlines() if line.startswith(" ")]
    )  # its return, and a cast for it, too
    assert enough * length >= 1_500
    assert enough == 16 or (enough - 1) * (length - 2) < 1_500


def test_instructions_of_other_words_are_calls_of_other_functions() -> None:
    halves = multiply_adds("f16x2", 600).split("fma.rn.")
    text = "fma.rn.".join(halves[:300]) + "fma.rn.relu." + "fma.rn.relu.".join(halves[300:])
    called = Counter(re.findall(r"call [^@]+@(tw_fma\w+?)_\d+\(", lowered(text)))
    assert called == {"tw_fma_rn_f16x2": 299, "tw_fma_rn_relu_f16x2": 301}


@pytest.mark.parametrize("type_", BITS)
def test_functions_give_the_bits_of_code_in_place(type_: str) -> None:
    random = np.random.default_rng(7)
    given = random.integers(0, 2**32, 3 * 32, dtype=np.uint32)
    if type_.startswith("f16"):  # mostly of a size at which sums neither vanish nor overflow
        given = (given & np.uint32(0x83FF83FF)) | np.uint32(0x38003800)
    else:
        given = (given & np.uint32(0x807F807F)) | np.uint32(0x3F003F00)
    given[::13] = random.integers(0, 2**32, len(given[::13]), dtype=np.uint32)  # NaN, infinities, anything
    found = []
    for looped in (False, True):
        out = np.zeros(32, np.uint32)
        kernel = tw.Kernel.from_ptx(multiply_adds(type_, 300, looped), "k")
        kernel(1, 32, [given, out], device=tw.device("emulator"))
        found.append(out)
    assert (found[0] == found[1]).all()
    assert len(set(found[0].tolist())) > 8


def test_no_stretch_of_code_is_endless() -> None:
    """LLVM chooses instructions block by block, in a time that grows with the square of a block's length."""
    text = lowered(multiply_adds("f16", 2_000))
    blocks = re.split(r"^[\w.]+:$", text, flags=re.MULTILINE)
    body = blocks[1:]  # the first has the registers
    assert max(block.count("\n") for block in body) < 256 * 16


def mixed(count: int) -> str:
    """Guarded writes, predicates, shared memory, packed and double numbers, in lanes that go apart or not."""
    lines = [
        f"{HEAD}.reg .b16 %h<4>; .reg .b32 %r<6>; .reg .f64 %d<3>; .reg .pred %p<3>; .reg .b32 %s<3>; .reg .b16 %b<3>;",
        ".shared .align 16 .b8 tile[4096]; mov.u32 %s0, tile; shl.b32 %s1, %t0, 2; add.u32 %s2, %s0, %s1;",
        "ld.global.b32 %r0, [%a3]; ld.global.b32 %r1, [%a3+128]; ld.global.b32 %r2, [%a3+256];",
        "cvt.u16.u32 %h0, %r0; cvt.u16.u32 %h1, %r1; cvt.rn.f64.u32 %d0, %r0; mov.f64 %d1, %d0; mov.b16 %b0, %h0;",
        "mov.b32 %r3, %r0; setp.gt.u32 %p0, %t0, 11; setp.lt.u32 %p1, %r0, %r1; @%p0 bra END;",
    ]
    for i in range(count):
        lines += [f"fma.rn.f16x2 %r3, %r3, %r1, %r2; @%p1 add.u32 %r3, %r3, {i}; mov.b32 {{%h2, %h3}}, %r3;"]
        lines += [
            f"st.shared.b32 [%s2+{i % 16 * 128}], %r3; setp.lt.u32 %p1, %r3, %r{i % 3}; mov.b16 %b1, %h2;"
        ]
        lines += ["@!%p1 fma.rn.f64 %d1, %d1, %d0, %d0; fma.rn.bf16 %b0, %b1, %b0, %b1;"]
    lines += ["cvt.rn.f32.f64 %r4, %d1; xor.b32 %r3, %r3, %r4; mov.b16 %h2, %b0; cvt.u32.u16 %r5, %h2;"]
    return "\n".join([*lines, "add.u32 %r3, %r3, %r5;", "END: st.global.b32 [%a4], %r3; ret; }"])


def skipped(ptx: str) -> str:
    """The same for some lanes; the others keep what they have."""
    early = ptx.replace("fma", "setp.gt.u32 %more, %t0, 11; @%more bra END;\nfma", 1)
    return early.replace("st.global", "END: st.global")


def results(ptx: str, threads: int, given: Any) -> Any:
    out = np.zeros(64, np.uint32)
    tw.Kernel.from_ptx(ptx, "k")(1, threads, [given, out], device=tw.device("emulator"))
    return out


def test_like_instructions_side_by_side_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_pieces(monkeypatch, _LONG=8, _MOST=500, _FEWEST=2, _ROW=3)
    assert lowered(multiply_adds("f16", 90)).count("@tw_row_") == 2  # its function, and the call


# Too short, in several blocks, and with two results: what is not worth a function that runs a row of them, or has none.
IN_PLACE = (
    "add.u32 %r0, %r1, %r0;",
    "mul.lo.u32 %r0, %r1, %r2;",
    "fma.rn.f32 %r0, %r1, %r0, %r2;",
    "div.u32 %r0, %r1, %r2;",
    "rem.s32 %r0, %r1, %r2;",
    "setp.lt.u32 %p0|%p1, %r1, %r2;",
)


@pytest.mark.parametrize("instruction", IN_PLACE)
def test_like_instructions_that_no_function_runs_stay_in_place(
    instruction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = "".join(f"ld.global.b32 %r{i}, [%a3+{128 * i}];\n" for i in range(3))
    chosen = "selp.b32 %r0, %r1, %r0, %p1;" if instruction.startswith("setp") else ""
    body = f"{load}{instruction * 40} {chosen} st.global.b32 [%a4], %r0;\nret;\n}}"
    ptx = f"{HEAD}.reg .b32 %r<3>; .reg .pred %p<2>;\n{body}"
    given = np.random.default_rng(3).integers(1, 2**31, 96, dtype=np.uint32)
    whole = results(ptx, 32, given)
    limit_pieces(monkeypatch, _LONG=8, _MOST=500, _FEWEST=2, _ROW=3)
    assert ".piece." in lowered(ptx) and "@tw_row_" not in lowered(ptx)
    assert (results(ptx + "\n// in pieces", 32, given) == whole).all()


@pytest.mark.few(7)
@pytest.mark.parametrize("threads", [32, 20, 64])
@pytest.mark.parametrize(
    "make",
    [
        lambda: mixed(40),
        lambda: mixed(40).replace("@%p0 bra END;", ""),
        lambda: skipped(multiply_adds("f16x2", 90)),
        *(lambda t=t: multiply_adds(t, 90) for t in BITS),
    ],
)
def test_pieces_give_the_bits_of_the_whole(
    make: Callable[[], str], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = np.random.default_rng(3).integers(0, 2**32, 160, dtype=np.uint32)
    whole = results(make(), threads, given)
    limit_pieces(monkeypatch, _LONG=8, _MOST=7, _FEWEST=2, _ROW=3)
    assert ".piece." in lowered(make()) or "@tw_row_" in lowered(make())
    assert (results(make() + "\n// in pieces", threads, given) == whole).all()
    assert len(set(whole.tolist())) > 8


@pytest.mark.parametrize("threads", [64, 20])
def test_pieces_have_registers_that_stay_in_memory(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen of each lane go on behind a barrier."""
    lines = [
        f"{HEAD}.reg .b32 %x<16>; .reg .b32 %r<2>; ld.global.b32 %r0, [%a3];",
        *(f"mad.lo.u32 %x{i}, %r0, %t0, {i + 1};" for i in range(16)),
        "bar.sync 0; mov.u32 %r1, 0;",
        *(f"mad.lo.u32 %x{i % 16}, %x{(i + 1) % 16}, %x{i % 16}, {i};" for i in range(48)),
        *(f"mad.lo.u32 %r1, %r1, 31, %x{i};" for i in range(16)),
        "st.global.b32 [%a4], %r1; ret; }",
    ]
    given = np.random.default_rng(5).integers(0, 2**32, 160, dtype=np.uint32)
    limit_pieces(monkeypatch, _LONG=8, _MOST=7, _FEWEST=2)
    ptx = "\n".join(lines)
    assert {f"%x{i}" for i in range(16)} <= Program(parse(ptx), "k", (threads, 1, 1)).resident
    assert ".piece." in lowered(ptx) and "%kept." in lowered(ptx)
    own = given[:threads] * np.arange(threads, dtype=np.uint32)
    x = [own + np.uint32(i + 1) for i in range(16)]
    for i in range(48):
        x[i % 16] = x[(i + 1) % 16] * x[i % 16] + np.uint32(i)
    wanted: Any = np.zeros(threads, np.uint32)
    for each in x:
        wanted = wanted * np.uint32(31) + each
    assert (results(ptx, threads, given)[:threads] == wanted).all()


@pytest.mark.parametrize("kept", [0, 5])
def test_what_a_guarded_store_would_read_is_there_behind_it_too(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece that first meets a register where no lane, or few, use it."""
    lines = [
        f"{HEAD}.reg .b32 %x<40>; .reg .b32 %r<4>; .reg .b32 %s<2>; .reg .pred %p; .shared .b8 tile[128];",
        f"mov.u32 %s0, tile; mad.lo.u32 %s1, %t0, 4, %s0; setp.lt.u32 %p, %t0, {kept}; mov.b32 %r3, 0;",
        "ld.global.b32 %r0, [%a3];",
        *(f"mad.lo.u32 %x{i}, %r0, {i + 1}, {i};" for i in range(40)),
        *(f"@%p st.shared.b32 [%s1], %x{i}; add.u32 %r3, %r3, %x{i};" for i in range(40)),
    ]
    ptx = "\n".join([*lines, "st.global.b32 [%a4], %r3; ret; }"])
    limit_pieces(monkeypatch, _LONG=8, _MOST=7, _FEWEST=2)
    assert lowered(ptx).count(".piece.") > 8
    given = np.random.default_rng(4).integers(0, 2**32, 160, dtype=np.uint32)
    wanted = given[:32] * np.uint32(sum(range(1, 41))) + np.uint32(sum(range(40)))
    assert (results(ptx, 32, given)[:32] == wanted).all()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("type_", ["f16", "bf16x2"])
def test_in_a_row_lanes_that_do_not_run_keep_what_they_have(
    type_: str, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each instruction has a guard, or lanes go around all of them."""
    limit_pieces(monkeypatch, _LONG=8, _MOST=10, _FEWEST=3, _ROW=5)
    whole = multiply_adds(type_, 24)
    step, few = f"fma.rn.{type_} %r0, %r1, %r0, %r2;\n", "setp.lt.u32 %more, %t0, 9;"
    own = f"{few} @!%more bra OVER; {step * 24} OVER:\n" if apart else few + f"@%more {step}" * 24
    given = np.random.default_rng().integers(0, 2**32, 160, dtype=np.uint32)
    everywhere, some = (results(ptx, 32, given) for ptx in (whole, whole.replace(step * 24, own)))
    bits = BITS[type_]
    everywhere, some = (found.view(f"u{bits // 8}") for found in (everywhere, some))
    step_ = 32 // bits  # a lane's result is in the first of each 32 bits
    assert (some[: 9 * step_ : step_] == everywhere[: 9 * step_ : step_]).all()
    assert (
        some[9 * step_ : 32 * step_ : step_] == given.view(f"u{bits // 8}")[9 * step_ : 32 * step_ : step_]
    ).all()


@pytest.mark.parametrize("apart", ["never", "before", "there"])
def test_a_warp_may_leave_in_the_middle_of_a_piece(apart: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an index wraps around from one lane to the next, the general build goes on from there: with the lanes that
    were on their way."""
    start = 2**32 - 20
    ptx = loads(40).replace("ld.param.u32 %t1, [q]", f"mov.u32 %t1, {start}")
    ptx = re.sub(r"add.s64 (%w\d+), %a0, (%w\d+);", r"and.b64 %a5, \2, 508; add.s64 \1, %a0, %a5;", ptx)
    around = {
        "never": "",
        "before": "@%more bra A; barrier.sync 2; bra B; A: barrier.sync 2; B:",
        "there": "@%more bra OVER;",
    }
    ptx = ptx.replace("add.u32 %i0,", f"setp.gt.u32 %more, %t0, 25; {around[apart]} add.u32 %i0,", 1)
    ptx = ptx.replace("st.global.f32", "OVER: st.global.f32")
    given = np.arange(160, dtype=np.float32) ** 2
    limit_pieces(monkeypatch, _LONG=8, _MOST=30, _FEWEST=2)
    program = Program(parse(ptx), "k", (32, 1, 1))
    assert program.fast.guarded
    assert ".piece." in lowered(ptx)
    out = results(ptx, 32, given)[:32].view(np.float32)
    index = (start + np.arange(32)[:, None] + np.arange(40)) % 2**32 & 127
    assert (out == np.where((apart == "there") & (np.arange(32) > 25), 0, given[index].sum(1))).all()


def test_a_frame_has_room_for_registers_between_pieces_or_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Program(parse(loads(40)), "k", (32, 1, 1))
    limit_pieces(monkeypatch, _LONG=8, _MOST=7, _FEWEST=2)

    def found() -> pieces.Cut:
        return pieces.cut(program, program.fast, program.liveness.before, lambda *_: None)

    most = found().bytes
    assert max(found().homes.values()) < most <= 1 << 19
    monkeypatch.setattr(pieces, "_MOST_FRAME_BYTES", most)
    assert found().pieces and found().bytes == most
    monkeypatch.setattr(pieces, "_MOST_FRAME_BYTES", most - 1)
    assert found() == pieces.Cut()


def test_pieces_are_rows_of_like_instructions_and_what_may_stand_in_a_piece_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither of them too short to be worth a call; the longer stretches in parts."""
    limit_pieces(monkeypatch, _LONG=8, _MOST=10, _FEWEST=3, _ROW=5)
    order = ["mul.lo.u32"] * 12 + ["add.u32"] * 5 + ["mul.lo.u32"] * 4 + ["add.u32"] * 4
    lines = [f"{name} %t2, %t1, {i};" for i, name in enumerate(order)]
    other = "atom.global.add.u32 %t3, [%a0], 1;"
    code = "\n".join([HEAD, other, *lines, other, *lines[:2], other, *lines[:3], "ret; }"])
    program = Program(parse(code), "k", (32, 1, 1))
    (block,) = program.flow.blocks
    start = 1 + next(i for i, item in enumerate(block.instructions) if item.opcode == "atom")

    def alike(_: object, item: Instruction) -> str | None:
        return "row" if item.opcode == "add" and "u32" in item.parts else None

    (found,) = pieces.cut(program, program.fast, program.liveness.before, alike).pieces.values()
    wanted = [(0, 10, False), (12, 17, True), (17, 25, False), (29, 32, False)]
    assert [(one.start - start, one.end - start, one.row) for one in found if one.start >= start] == wanted


def test_what_a_warp_that_leaves_a_piece_has_to_keep_lies_in_the_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A number too that is made right before the instruction at which it leaves, and read there for the last time."""
    program = Program(parse(loads(40)), "k", (32, 1, 1))
    limit_pieces(monkeypatch, _LONG=8, _MOST=30, _FEWEST=2)
    kept = program.liveness.before
    cut = pieces.cut(program, program.fast, kept, lambda *_: None)
    seen = set()
    for index, found in cut.pieces.items():
        block = program.flow.blocks[index]
        for position in (position for piece in found for position in range(piece.start, piece.end)):
            if id(block.instructions[position]) in program.deopts:
                seen |= kept(block, position)
    assert {f"%i{i}" for i in range(3, 40)} <= seen <= cut.homes.keys() | program.resident


@pytest.mark.parametrize("stops", ["bar.sync 0;", "HERE:", ""])
@pytest.mark.parametrize("count", [12, 13])
def test_many_registers_stay_in_memory_where_warps_stop(count: int, stops: str) -> None:
    """Those that differ from lane to lane and live at a stop; predicates are none of them."""
    used = [
        *(f"st.global.b32 [%a3], %x{i};" for i in range(count)),
        *(f"@%p{i} st.global.b32 [%a3], %u0;" for i in range(20)),
    ]
    made = [
        *(f"mad.lo.u32 %x{i}, %t0, %t0, {i};" for i in range(count)),
        *(f"setp.eq.u32 %p{i}, %x0, {i};" for i in range(20)),
    ]
    declared = f".reg .b32 %x<{count}>, %u<20>; .reg .pred %p<20>; ld.param.u32 %u0, [q];"
    program = Program(parse("\n".join([HEAD, declared, *made, stops, *used, "ret; }"])), "k", (64, 1, 1))
    kept = {f"%x{i}" for i in range(count)} if count > 12 and "bar" in stops else set()
    assert program.resident - {"%a3"} == kept


@pytest.mark.parametrize("many", [False, True])
def test_registers_stay_in_memory_where_lanes_run_very_many_blocks_apart(many: bool) -> None:
    blocks = "\n".join(f"B{i}: st.global.b32 [%a3], {i};" for i in range(201 if many else 200))
    code = f"{HEAD} mul.lo.u32 %t1, %t0, %t0; setp.lt.u32 %more, %t0, 9; @%more bra END; {blocks} END: st.global.b32 [%a4], %t1; ret; }}"
    program = Program(parse(code), "k", (64, 1, 1))
    vectors = {name for name in program.slots if program.fast.shapes[name] is None}
    assert len(program.fast.divergent) == 200 + many and vectors
    assert program.resident == (vectors if many else set())


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("ptx", "budget"), [(multiply_adds("f16", 8192), 3.0), (loads(300), 3.0)], ids=["multiply-adds", "loads"]
)
def test_the_time_to_the_first_launch(ptx: str, budget: float) -> None:
    """In seconds of a CPU that does twenty million turns of a loop in one: a busy machine is slower at both."""
    build_kernel(multiply_adds("f16", 1), "k", (32, 1, 1), host_cpu(), None)

    def seconds(work: Callable[[], object]) -> float:
        before = time.process_time()
        work()
        return time.process_time() - before

    second = 8 * seconds(lambda: sum(i for i in range(2_500_000)))
    assert seconds(lambda: build_kernel(ptx, "k", (32, 1, 1), host_cpu(), None)) < budget * second


def test_what_a_block_leaves_in_registers_no_later_one_finds() -> None:
    """As many as are kept in memory over a barrier; only the first block writes them."""
    count = 48
    written = "\n".join(f"@%p mad.lo.u32 %v{i}, %t, %t, {i};" for i in range(count))
    summed = "\n".join(f"add.u32 %sum, %sum, %v{i};" for i in range(count))
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {{
.reg .pred %p; .reg .b32 %v<{count}>, %t, %b, %n, %sum; .reg .b64 %at, %off;
mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x; mov.b32 %sum, 0; setp.eq.u32 %p, %b, 0;
{written}
bar.sync 0;
{summed}
ld.param.u64 %at, [out]; mad.lo.u32 %n, %b, %n, %t; mul.wide.u32 %off, %n, 4; add.u64 %at, %at, %off;
st.global.u32 [%at], %sum;
ret; }}"""
    out = np.full((3, 64), 5, np.uint32)
    tw.Kernel.from_ptx(text, "k")(3, 64, [out], device=tw.device("emulator", threads=1))
    assert (out[0] == count * np.arange(64) ** 2 + sum(range(count))).all()
    assert not out[1:].any()


@pytest.mark.parametrize(("blocks", "refused"), [(8192, False), (8193, True)])
def test_a_function_has_no_more_blocks_than_can_be_analysed(blocks: int, refused: bool) -> None:
    """What is before the label, the branches, the return, and the end behind it."""
    function = parse(f"{HEAD}L:\n{'bra L;' * (blocks - 3)}\nret;\n}}").function("k")
    assert function is not None
    with pytest.raises(PtxError, match="more than 8,192 blocks") if refused else nullcontext():
        build_flow(function)


@pytest.mark.parametrize("depth", [512, 513])
def test_loops_within_loops_are_not_too_many_to_analyse(depth: int) -> None:
    """Each counts the blocks within it again."""
    lines = [f"L{i}: add.u32 %t1, %t1, 1;" for i in range(depth)]
    lines += [f"setp.lt.u32 %more, %t1, {i}; @%more bra L{i};" for i in reversed(range(depth))]
    function = parse("\n".join([HEAD, *lines, "ret; }"])).function("k")
    assert function is not None
    if depth > 512:
        with pytest.raises(PtxError, match="loops within loops beyond what the emulator takes") as raised:
            build_flow(function)
        line = int(str(raised.value).split()[2].rstrip(":"))
        assert HEAD.count("\n") + 1 < line <= HEAD.count("\n") + 1 + 2 * depth
    else:
        flow = build_flow(function)
        assert flow.reducible and sorted(map(len, flow.loops)) == list(range(1, 2 * depth, 2))
