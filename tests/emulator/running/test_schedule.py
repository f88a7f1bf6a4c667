"""The order of multiply-adds: those on one sum stand together, and every instruction reads what it read before."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.lanes import entry
from tests.thorough import examples
from tilewise.emulator.analysis.control_flow import build_flow
from tilewise.emulator.analysis.schedule import schedule
from tilewise.emulator.operations.operands import reads, writes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Instruction

REGISTERS = ".reg .f32 %s<64>, %a<64>, %b<64>, %x; .reg .b32 %r<64>; .reg .b64 %l; .reg .pred %p;"


def ordered(body: str) -> tuple[list[Instruction], list[Instruction]]:
    """The instructions of a block as they are written, and as they are run."""
    function = parse(entry(f"{REGISTERS}\n{body}")).function("k")
    assert function is not None
    flow = build_flow(function)
    before = flow.instructions
    schedule(flow)
    return before, flow.instructions


def results(body: str) -> list[str]:
    """What is written, in the order in which it is."""
    return [name for item in ordered(body)[1] for name in writes(item)]


def fma(target: str, a: str, b: str, addend: str) -> str:
    return f"fma.rn.f32 {target}, {a}, {b}, {addend};"


@pytest.mark.parametrize(("sums", "type_"), [(7, "f32"), (8, "f32"), (8, "f64"), (8, "f16")])
def test_multiply_adds_on_one_sum_stand_together_where_they_are_many(sums: int, type_: str) -> None:
    """Of the types of which sums are many. Behind all that is loaded for them, before what is made of the sums; fewer than sixteen stay as they are."""
    rows = ["ld.shared.f32 %a0, [%r0];", *(fma(f"%s{8 + i}", "%a0", f"%b{i}", f"%s{i}") for i in range(sums))]
    rows += [
        "ld.shared.f32 %a1, [%r1];",
        *(fma(f"%s{i}", "%a1", f"%b{i}", f"%s{8 + i}") for i in range(sums)),
    ]
    rows.append("add.f32 %x, %s0, %s1;")
    first, second = ([f"%s{start + i}" for i in range(sums)] for start in (8, 0))
    together = [name for pair in zip(first, second, strict=True) for name in pair]
    many = sums == 8 and type_ != "f16"
    assert results("\n".join(rows).replace("f32", type_)) == (
        ["%a0", "%a1", *together, "%x"] if many else ["%a0", *first, "%a1", *second, "%x"]
    )


def test_a_sum_goes_from_register_to_register_and_begins_with_any_number() -> None:
    rows = [fma(f"%s{i}", "%a0", f"%b{i}", f"0f{i:08x}") for i in range(8)]
    rows += [fma(f"%s{8 + i}", "%a1", f"%b{i}", f"%s{i}") for i in range(8)]
    assert results("\n".join(rows)) == [name for i in range(8) for name in (f"%s{i}", f"%s{8 + i}")]


def test_a_multiply_add_of_a_sum_waits_for_all_sums() -> None:
    """It multiplies one of them; so does what comes of it, and what adds to one that another has continued."""
    rows = [fma(f"%s{i}", "%a0", "%b0", f"%s{i}") for i in range(16)]
    rows[3:3] = [fma("%s20", "%s1", "%b0", "%s20"), fma("%s21", "%s20", "%b0", "%s21"), "mov.f32 %a5, %s21;"]
    rows += [fma("%s22", "%a0", "%b0", "%s2"), fma("%s23", "%a0", "%b0", "%s2")]
    names = [f"%s{i}" for i in range(16)]
    names[3:3] = ["%s22"]
    assert results("\n".join(rows)) == [*names, "%s20", "%s21", "%a5", "%s23"]


@pytest.mark.parametrize("how", ["volatile.", "relaxed.cta.", "acquire.cta.", ""])
def test_loads_that_look_anew_stay_in_their_order(how: str) -> None:
    """The address of the first comes of a sum."""
    rows = [fma(f"%s{i}", "%a0", "%b0", f"%s{i}") for i in range(16)]
    rows += ["cvt.rzi.u32.f32 %r1, %s0;", *(f"ld.{how}shared.f32 %a{i}, [%r{i}];" for i in (1, 2))]
    loaded = [name for name in results("\n".join(rows)) if name.startswith("%a")]
    assert loaded == (["%a1", "%a2"] if how else ["%a2", "%a1"])


def sources(items: list[Instruction]) -> dict[int | str, list[int]]:
    """By instruction, and at the end by register: which instructions what it reads is from. Memory is one register."""
    last: dict[str, int] = {}
    found: dict[int | str, list[int]] = {}
    for item in items:
        stores, loads = operation_of(item).stores, operation_of(item).loads
        read = [*reads(item), *["memory"] * (stores or loads)]
        found[id(item)] = [last.get(name, 0) for name in read]
        last |= dict.fromkeys([*writes(item), *["memory"] * stores], id(item))
    return found | {name: [number] for name, number in last.items()}


FORMS = [  # of a row's own number, and of others
    *["fma.rn.f32 %s{0}, %a{1}, %b{2}, %s{3};"] * 12,
    "fma.rn.f32 %s{0}, %s{1}, %b{2}, %s{3};",
    "fma.rn.f32 %s{1}, %a{2}, %b{3}, %s{1};",
    "fma.rn.f32 %s{0}, %a{1}, %b{2}, 0f3f800000;",
    "add.f32 %a{0}, %s{1}, %b{2};",
    "mov.f32 %s{0}, %a{1};",
    "mad.lo.u32 %r{0}, %r{1}, %r{2}, %r{3};",
    "ld.shared.f32 %a{0}, [%r{1}];",
]
SELDOM = [
    "@%p fma.rn.f32 %s{0}, %a{1}, %b{2}, %s{0};",
    "cvt.rzi.u32.f32 %r{0}, %s{1};",
    "ld.volatile.shared.f32 %a{0}, [%r{1}];",
    "st.shared.f32 [%r{1}], %s{2};",
]


@given(st.integers(0, 2**32))
@examples(200, 1000)
def test_each_instruction_reads_what_it_read(seed: int) -> None:
    choose = random.Random(seed)
    forms = choose.choices([*FORMS, *SELDOM], [8] * len(FORMS) + [1] * len(SELDOM), k=60)
    rows = [form.format(i, *(choose.randrange(64) for _ in range(3))) for i, form in enumerate(forms)]
    before, after = ordered("\n".join(rows))
    assert sorted(map(id, after)) == sorted(map(id, before))
    assert sources(after) == sources(before)
