"""Which registers and literals an instruction takes, beside what NVIDIA's assembler takes.

``golden/ptxas/operands.jsonl`` has forms with one operand left open, and what of CANDIDATES ptxas 13.5 took in its place.
Registers of type .f16x2 are left out: it takes them for integers in some instructions and not in others.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilewise as tw
from tests.harness.many import refused
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.lowering.lower import lower
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.emulator.ptx.types import literal_bits, register_disagreement

TYPES = [
    "b8",
    "b16",
    "b32",
    "b64",
    "b128",
    "u16",
    "u32",
    "u64",
    "s16",
    "s32",
    "s64",
    "f16",
    "f32",
    "f64",
    "pred",
]
LITERALS = ["1", "0f3F800000", "0d3FF0000000000000"]
CANDIDATES = [*(f"%{type_}" for type_ in TYPES), *LITERALS]
KERNEL = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k()
{{
  .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %d<8>; .reg .f64 %g<8>;
  {registers}
  {line}
  ret;
}}
"""
KEPT = Path(__file__).parents[2] / "golden" / "ptxas" / "operands.jsonl"
ROWS = [json.loads(line) for line in KEPT.read_text().splitlines()]


def text(line: str) -> str:
    return KERNEL.format(registers=" ".join(f".reg .{type_} %{type_};" for type_ in TYPES), line=line)


def is_taken(line: str) -> bool:
    try:
        lower(Program(parse(text(line)), "k", (128, 1, 1)), False, "f")
    except tw.TilewiseError:
        return False
    return True


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["form"])
def test_an_instruction_takes_the_operands_that_the_assembler_takes(row: dict[str, str]) -> None:
    taken = [each for each in CANDIDATES if is_taken(row["form"].replace("?", each))]
    assert taken == row["taken"].split()


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("add.u16 %h0, %r1, %h2;", "add.u16: %r1 is declared .b32, and .u16 wants .b16, .u16 or .s16"),
        ("shl.b64 %l0, %l1, %l2;", "shl.b64: %l2 is declared .b64, and .u32 wants .b32, .u32 or .s32"),
        ("and.b32 %r0, %r1, %l2;", "and.b32: %l2 is declared .b64, and .b32 wants a register of 32 bits"),
        ("cvt.f64.s32 %r0, %r1;", "%r0 is declared .b32, and .f64 wants .b64 or .f64 or wider"),
        ("fma.rn.bf16x2 %r0, %r1, %r2, 0;", "the integer 0 stands where .bf16x2 wants a register"),
        ("add.f32 %r0, %r1, 1;", "the integer 1 stands where .f32 wants a floating-point number"),
        ("shl.b32 %r0, %r1, 1.0;", "a floating-point number stands where .u32 wants an integer"),
        ("st.global.f32 [%l0], 1;", "the integer 1 stands where .f32 wants a floating-point number"),
        ("popc.b32 %r0|%r1, %r2;", "popc.b32: it has 1 results"),
        ("mad.wide.u64 %l0, %l1, %l2, %l0;", "mad.wide.u64: .wide fits types of 16 and 32 bits"),
        ("st.global.b64 [%l0], 0f3f800000;", "a floating-point number stands where .b64 wants an integer"),
        # A sum of a register and a number is read, and is nothing to write to.
        ("mov.u32 %r0+4, %r1;", "mov.u32: its destination must be a register"),
        ("ld.global.u32 %r0-4, [%l0];", "ld.global.u32: its destination must be a register"),
        (
            "@%p atom.global.add.u32 %r0+0, [%l0], 1;",
            "atom.global.add.u32: its destination must be a register",
        ),
    ],
)
def test_what_is_said_of_an_operand_that_does_not_fit(instruction: str, why: str) -> None:
    said = refused(instruction)
    assert said.startswith("PTX line 7: ") and why in said


@pytest.mark.parametrize(
    ("value", "width", "type_", "bits"),
    [
        (3, 0, "f16", 3), (-1, 0, "bf16", 0xFFFF), (3, 0, "f32", 0x4040_0000), (0x3FC0_0000, 32, "f16", 0x3E00),
        (0x3FC0_0000, 32, "bf16", 0x3FC0), (0x3FF8_0000_0000_0000, 64, "tf32", 0x3FC0_0000),
        (0x7FA0_0001, 32, "f32", 0x7FA0_0001), (0x40F0_0000_0000_0000, 64, "f16", 0x7C00), (300, 0, "u8", 44),
    ],
)  # fmt: skip
def test_a_literal_is_an_integer_or_a_number_of_its_operands_type(
    value: int, width: int, type_: str, bits: int
) -> None:
    assert literal_bits(value, width, type_) == bits


def test_two_halves_in_a_register_are_an_integer_too_but_no_integer_is_two_halves() -> None:
    instruction = Instruction(1, "add", ("u32",), ())
    assert register_disagreement(instruction, "%h", "f16x2", "u32") == ""
    assert "wants .b32 or .f16x2" in register_disagreement(instruction, "%r", "u32", "f16x2")
