"""Rows of operations: how an instruction finds its own, and that each says what it says in words that are known."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from tilewise.emulator.operations.operation import Access, BarrierUse, GroupUse, MbarrierUse, Operation
from tilewise.emulator.operations.registry import operation_of, operations
from tilewise.emulator.ptx.syntax import Instruction

KINDS = (Operation, Access, BarrierUse, MbarrierUse, GroupUse)


def row_of(name: str) -> Operation:
    opcode, *parts = name.split(".")
    return operation_of(Instruction(1, opcode, tuple(parts), ()))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("add.rn.f32", "add"),
        ("cp.async.ca.shared.global", "cp.async.ca"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", "cp.async.bulk.tensor"),
        ("cp.async.bulk.global.shared::cta.bulk_group", "cp.async.bulk"),
        ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32", "st.async"),
        ("shfl.sync.up.b32", "shfl.sync"),
        ("shfl.up.b32", "shfl"),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", "wgmma.mma_async.sp"),
        ("cp.async", ""),
        ("nothing.at.all", ""),
    ],
)
def test_the_longest_name_counts(written: str, name: str) -> None:
    assert row_of(written).name == name


def test_each_row_says_what_it_says_in_known_words() -> None:
    words: dict[tuple[type, str], tuple[str, ...]] = {
        (kind, name): get_args(hint)
        for kind in KINDS
        for name, hint in get_type_hints(kind).items()
        if get_origin(hint) is Literal
    }
    assert len(words) >= 8
    for row in operations().values():
        parts: list[Any] = [row, *row.accesses, *filter(None, (row.barrier, row.mbarrier, row.group))]
        for part in parts:
            for field in fields(part):
                if known := words.get((type(part), field.name)):
                    assert getattr(part, field.name) in known, (row.name, field.name)


def test_a_row_says_nothing_that_speaks_against_itself() -> None:
    for row in operations().values():
        assert (row.form is None) == (row.compute is None), row.name
        assert not (row.is_pure and (row.accesses or row.waits_for or row.emit)), row.name
        assert row.wait is not None or not (row.waits_for or row.gathers), row.name
        assert row.barrier is None or row.barrier.waits == bool(row.waits_for), row.name
