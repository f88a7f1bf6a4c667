"""The verdict on a plan: what its time is spent on, and what would take less."""

from __future__ import annotations

import re

import pytest

from tilewise.operands import Operand
from tilewise.planner import choose, judge_plan, operands_of, target_of
from tilewise.planner.verdict import _changes, _pad

H200 = target_of("h200")


def test_the_verdict_names_what_was_tried() -> None:
    """What would be gained is the best plan with that one thing changed, and nothing is named that gains nothing."""
    odd = operands_of(1021, 1021, 1021, dtype="bfloat16")
    verdict = judge_plan(odd, H200)
    best = choose(odd, H200)
    assert (verdict.kernel, verdict.seconds) == (best.spec.name, best.prediction.seconds)
    largest = sorted(best.prediction.terms.items(), key=lambda term: term[1], reverse=True)
    assert [*verdict.terms] == largest[: len(verdict.terms)] and len(verdict.terms) > 1
    (rows,) = (gain for gain in verdict.gains if gain.what.startswith("rows that begin"))
    even = choose(operands_of(1024, 1024, 1024, dtype="bfloat16"), H200).prediction.seconds
    assert rows.seconds == pytest.approx(even, rel=0.1) and rows.times == verdict.seconds / rows.seconds
    said = f"{rows.what}: {rows.seconds * 1e6:,.1f} µs by {rows.kernel}, {rows.times:.3g} times less"
    assert said in verdict.lines()[2:]
    single = judge_plan(operands_of(2048, 2048, 2048), H200)
    tf32, exact32 = single.gains
    assert exact32.what == 'arithmetic="exact32"' and tf32.times > exact32.times > 2
    wide = choose(operands_of(2048, 2048, 2048, arithmetic="tf32"), H200)
    assert tf32.what == 'arithmetic="tf32"' and tf32.seconds == wide.prediction.seconds
    assert judge_plan(operands_of(2048, 2048, 2048), target_of("t4")).gains == ()  # which has no tf32
    even_verdict = judge_plan(operands_of(4096, 4096, 4096, dtype="bfloat16"), H200)
    assert even_verdict.gains == () and "bound by" in str(even_verdict)
    assert judge_plan(operands_of(0, 4, 4), H200).rate == 0


def test_what_runs_beside_the_rest_is_named_behind_it_and_has_no_share() -> None:
    verdict = judge_plan(operands_of(8192, 8192, 8192, dtype="bfloat16"), H200)
    spent, _, beside = verdict.lines()[1].partition("; beside these ")
    names = [name for name, _ in verdict.terms]
    assert re.findall(r"([a-z ]+) [\d.,]+ µs \(", spent.replace(" spent on ", "")) == [
        f" {name}" for name in names if name not in ("memory", "power")
    ]
    assert re.findall(r"([a-z]+) [\d.,]+ µs(?:,|$)", beside) == ["power", "memory"]


@pytest.mark.parametrize(("gpu", "gains"), [("rtx-4090", True), ("rtx-2060-super", True), ("h200", False)])
def test_sums_in_float16_are_named_where_they_take_less(gpu: str, gains: bool) -> None:
    """As on cards whose tensor cores add up twice as fast in it; of other types, or where it is asked for, never."""
    sizes, target = (4096, 4096, 4096), target_of(gpu)
    found = judge_plan(operands_of(*sizes, dtype="float16"), target).gains
    assert [gain.what for gain in found] == ['arithmetic="f16"'] * gains
    for gain in found:
        short = choose(operands_of(*sizes, dtype="float16", arithmetic="f16"), target)
        assert (gain.seconds, gain.kernel) == (short.prediction.seconds, short.spec.name)
    for other in (
        operands_of(*sizes, dtype="bfloat16"),
        operands_of(*sizes, dtype="float16", arithmetic="f16"),
    ):
        assert judge_plan(other, target).gains == ()


def test_another_arithmetic_is_tried_where_none_is_asked_for() -> None:
    for dtype, others in (("float32", ["exact32", "tf32"]), ("float16", ["f16"]), ("bfloat16", [])):
        tried = [words for words, _ in _changes(operands_of(64, 64, 64, dtype=dtype))]
        assert tried == [f'arithmetic="{other}"' for other in others]
        for given in others:
            assert not [*_changes(operands_of(64, 64, 64, dtype=dtype, arithmetic=given))]


@pytest.mark.parametrize(("batch", "named"), [(1, True), (3, False)])
def test_padded_rows_are_tried_where_there_is_no_stack(batch: int, named: bool) -> None:
    """Whose matrices would have to lie further apart."""
    tried = [words for words, _ in _changes(operands_of(64, 64, 63, dtype="float16", batch=batch))]
    assert ("rows that begin at multiples of 16 bytes" in tried) == named


def test_rows_and_columns_are_padded_to_multiples_of_16_bytes() -> None:
    lies = Operand("a", 30, 20, 20, "float16")
    assert (_pad(lies).row_stride, _pad(lies).column_stride) == (24, 1)
    turned = Operand("b", 30, 20, 1, "float16", 30)
    assert (_pad(turned).row_stride, _pad(turned).column_stride) == (1, 32)
    for lines, stride in ((1, 20), (2, 24)):  # a single line begins nowhere else
        assert _pad(Operand("a", lines, 20, 20, "float16")).row_stride == stride
        assert _pad(Operand("b", 20, lines, 1, "float16", 20)).column_stride == stride
