"""Large straight-line kernels: the work of compiling them grows with their length, and results stay the same."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.emulator.analysis.program import make_program
from tilewise.emulator.lowering.lower import Lowering
from tilewise.emulator.ptx.operands import reads, writes
from tilewise.emulator.ptx.parse import parse

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


def lowered(ptx: str) -> str:
    return Lowering(make_program(parse(ptx), "k", (32, 1, 1)), False, "k").text()


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


@pytest.mark.parametrize("kernel", [loads, lambda count: multiply_adds("f16", count)])
def test_our_own_work_grows_with_the_length(kernel: Any) -> None:
    assert calls_to_lower(kernel(160)) < 2.6 * calls_to_lower(kernel(80))


def test_live_registers_are_those_of_a_walk_over_the_whole_block() -> None:
    program = make_program(parse(loads(50)), "k", (32, 1, 1))
    for block in program.flow.blocks:
        live = program.liveness.at_end(block)
        assert block.terminator.kind == "go"  # which reads nothing
        assert program.liveness.before(block, len(block.instructions)) == live
        for position in reversed(range(len(block.instructions))):
            instruction = block.instructions[position]
            live -= {register.name for register in writes(instruction)}
            live |= {register.name for register in reads(instruction)} & program.function.registers.keys()
            assert program.liveness.before(block, position) == live


@pytest.mark.parametrize("type_", BITS)
def test_many_multiply_adds_are_calls_of_one_function(type_: str) -> None:
    few, many = (len(lowered(multiply_adds(type_, count)).splitlines()) for count in (300, 600))
    assert many - few < 300 * 14


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
