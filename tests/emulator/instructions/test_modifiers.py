"""Modifiers in other orders, beside what NVIDIA's assembler made of them.

``golden/ptxas/modifiers.jsonl`` has what ptxas 13.5 said of 219 instructions with their modifiers shuffled: which orders
are the same machine code, which are other code (types change places), which are refused. Orders for which its machine
code calls a subroutine are left out.
"""

from __future__ import annotations

import functools
import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.harness.many import refused
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.lowering.lower import lower
from tilewise.emulator.ptx.parse import parse

KEPT = Path(__file__).parents[2] / "golden" / "ptxas" / "modifiers.jsonl"
KERNEL = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 pa[128])
{{
  .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<128>; .reg .f32 %f<64>; .reg .b64 %d<64>; .reg .f64 %g<16>; .reg .b128 %q<8>;
  .shared .align 128 .b8 sh[1024]; .global .align 128 .b8 gl[1024]; .const .align 128 .b8 cn[64]; .local .align 128 .b8 lo[64];
  {line}
  ret;
}}
"""
# What the assembler takes and GPUs do otherwise than the manual says is refused here by name.
NOT_AS_WRITTEN = "GPUs do not do what the PTX ISA says"
# What the assembler refuses and does no harm: .sat where nothing can be out of range.
HARMLESS = ("cvt.sat",)
PLACED = (
    "row",
    "col",
    "and",
    "or",
    "xor",
    "popc",
)  # words whose order among themselves counts, beside types and spaces


@dataclass(frozen=True)
class Form:
    """An instruction as the manual writes it, and its modifiers in other orders."""

    name: str
    operands: str
    same: tuple[str, ...]
    differs: tuple[str, ...]
    refused: tuple[str, ...]

    @property
    def opcode(self) -> str:
        return self.name.split(".")[0]

    @property
    def parts(self) -> list[str]:
        return self.name.split(".")[1:]

    def line(self, order: str) -> str:
        return f"{self.opcode}.{order} {self.operands};"


def forms() -> list[Form]:
    rows = [json.loads(line) for line in KEPT.read_text().splitlines()]
    return [
        Form(
            *row["form"].partition(" ")[::2],
            *(tuple(row[key]) for key in ("same", "differs", "refused")),
        )
        for row in rows
    ]


FORMS = forms()


@functools.cache
def code(line: str) -> str:
    """What an instruction is lowered to; what is refused is a sentence in brackets."""
    try:
        return lower(Program(parse(KERNEL.format(line=line)), "k", (128, 1, 1)), False, "f").text
    except tw.TilewiseError as error:
        return f"[{error}]"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_orders_mean_what_the_assembler_takes_them_for(form: Form) -> None:
    manual = code(form.line(".".join(form.parts)))
    assert not manual.startswith("["), manual
    for order in form.same:
        assert code(form.line(order)) == manual, order
    for order in form.differs:
        other = code(form.line(order))
        assert other != manual or NOT_AS_WRITTEN in other, order
        assert not other.startswith("[") or NOT_AS_WRITTEN in other, other
    for order in form.refused:
        assert code(form.line(order)).startswith("[") or form.name.startswith(HARMLESS), order


def looks(line: str) -> int:
    """How many accesses the compiler may neither leave out nor put together."""
    text = code(line)
    assert not text.startswith("["), text
    return text.count("load volatile") + text.count("store volatile")


@pytest.mark.parametrize("words", ["volatile", "relaxed.gpu", "acquire.sys", "relaxed.mmio.sys"])
def test_what_others_may_change_is_looked_at_anew(words: str) -> None:
    words = words.replace("relaxed.mmio", "mmio.relaxed")
    assert looks(f"ld.{words}.global.u32 %r1, [%d1];") > looks("ld.global.u32 %r1, [%d1];")
    stored = words.replace("acquire", "release")
    assert looks(f"st.{stored}.global.u32 [%d1], %r1;") > looks("st.global.u32 [%d1], %r1;")


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("ld.global.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;", True),
        ("ld.shared.u32 %r1, [sh]; add.u32 %r2, %r1, 5; setp.ne.u32 %p1, %r2, 9; @!%p1 bra L;", True),
        ("ld.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra OUT; add.u32 %r4, %r4, 1; bra L; OUT:", True),
        ("ld.global.u32 %r1, [%d1]; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 9; @%p1 bra L;", False),
        ("ld.global.u32 %r1, [%d1]; add.u64 %d1, %d1, 4; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;", False),
    ],
)
def test_what_a_loop_waits_for_is_looked_at_anew(line: str, waits: bool) -> None:
    """A load from one place that decides whether the loop ends is as one that is said to be volatile."""
    assert (looks("L: " + line) == looks("L: " + line.replace("ld.", "ld.volatile.", 1))) == waits


def counts(word: str) -> bool:
    """Whether a word keeps its place among its like: types, spaces, and what PLACED has."""
    space = word.split("::")[0] in ("shared", "global", "const", "local", "param")
    type_ = word.lstrip("uebsft").rstrip("x248").lstrip("0123456789") in ("", "m") or word == "pred"
    return space or type_ or word in PLACED


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([form for form in FORMS if form.same]), st.randoms(use_true_random=False))
def test_any_order_of_what_has_no_order_is_the_same_code(form: Form, random: random.Random) -> None:
    """The opcode's own words stay in front: as many as every order that the assembler takes begins with."""
    orders = [form.parts, *(order.split(".") for order in form.same)]
    front = 0
    while front < len(form.parts) - 1 and len({order[front] for order in orders}) == 1:
        front += 1
    free = form.parts[front:]
    random.shuffle(free)
    kept = iter([word for word in form.parts[front:] if counts(word)])
    order = [*form.parts[:front], *(next(kept) if counts(word) else word for word in free)]
    assert code(form.line(".".join(order))) == code(form.line(".".join(form.parts)))


def test_the_first_type_is_the_results() -> None:
    """``cvt.f32.rn.s32`` makes floats of integers, ``cvt.s32.rzi.f32`` the other way, wherever the rounding stands."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a)
{
  .reg .u64 %a; .reg .b32 %n; .reg .f32 %x, %y;
  ld.u64.param %a, [a];
  ld.s32.global %n, [%a];
  cvt.f32.rn.s32 %x, %n;
  mul.f32.ftz.rn %x, %x, 0f40200000;
  cvt.s32.f32.rzi %n, %x;
  st.f32.global.wb [%a+4], %x;
  st.s32.global [%a+8], %n;
  cos.f32.ftz.approx %y, %x;
  ret;
}
"""
    out = np.zeros(3, "int32")
    out[0] = -3
    tw.Kernel.from_ptx(text, "k")(1, 1, [out], device="emulator")
    assert out[1:2].view("float32")[0] == -7.5
    assert out[2] == -7


def test_what_belongs_to_the_opcode_stays_with_it() -> None:
    assert ".wide is a part of the opcode, which is written mul.wide" in refused(
        "mul.u32.wide %l0, %r0, %r1;"
    )
    assert ".parity is a part of the opcode" in refused("mbarrier.try_wait.shared.parity.b64 %p, [%r0], 0;")
    assert "add.rn.f32.rn" in refused("add.rn.f32.rn %r0, %r0, %r0;")
