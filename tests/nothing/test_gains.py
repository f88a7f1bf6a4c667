"""What a launch would gain if one thing were mended: of a roofline that is made up, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewise.gpus import find
from tilewise.instruments.machine import Machine, MachineAccess, MachineRuns
from tilewise.instruments.roofline import ISSUING, MEMORY_CYCLES, Roofline, RooflineBound
from tilewise.instruments.verdict import Verdict, judge_launch
from tilewise.toolchain.lines import MachineInstruction

SMS = 132
CONFLICTS, SCATTERED, LINES = (
    "shared bank conflicts",
    "uncoalesced global access",
    "global access in parts of lines",
)
LOCAL, IDLE = "local memory (spills, indexed arrays)", "idle SMs and the tail of the last wave"


def access(space: str, excess: float, line: int = 1, vain: float = 0.0) -> MachineAccess:
    """One whose cycles in excess are all on one multiprocessor."""
    one = np.zeros(SMS)
    one[3] = 1
    figures = (7 * one, (excess + 50) * one, 50 * one, 50 * one, (4 + vain) * one, 4 * one, 0 * one)
    return MachineAccess(MachineInstruction(0, "LDS", ptx=line), "ld", space, 32, *figures)


def judge(
    *accesses: MachineAccess, issuing: float = 100, local: float = 0, uneven: float = 1.0, idle: int = 0
) -> Verdict:
    """Of 1,000 ns of memory cycles and 500 of memory."""
    runs = np.ones(SMS)
    runs[:idle] = 0
    spilled = np.where(np.arange(SMS) == SMS - 1, local, 0.0)
    code = (("FFMA", runs), ("LDL", spilled))
    ran = [MachineRuns(MachineInstruction(0, text), 0, many, many, many) for text, many in code]
    bounds = (
        RooflineBound(MEMORY_CYCLES, 1000 / uneven, "cycles", 1e9, uneven),
        RooflineBound(ISSUING, issuing, "instructions", 1e9),
        RooflineBound("memory", 500, "bytes", 1e9),
    )
    binary: Any = SimpleNamespace(is_foreign=True, ptx="first;\nsecond;\nthird;", filename="k.ptx", source="")
    machine = Machine("machine code", list(accesses), ran)
    found = judge_launch(machine, Roofline("h200", 0, bounds, None), find("h200"), binary)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("given", "what", "nanoseconds"),
    [
        ([access("shared", 200)], [CONFLICTS], [800]), ([access("shared", 2000)], [CONFLICTS], [500]),
        ([access("shared", 29)], [], []), ([access("shared", 30)], [CONFLICTS], [970]), ([access("shared", -9)], [], []),
        ([access("shared", 100), access("shared", 150)], [CONFLICTS], [750]),
        ([access("global", 200)], [LINES], [800]), ([access("global", 200, vain=1)], [SCATTERED], [800]),
        ([access("global", 100), access("global", 100, vain=1)], [SCATTERED], [800]),
        ([access("shared", 200), access("global", 300)], [LINES, CONFLICTS], [700, 800]),
        ([access("global", 200), access("shared", 300)], [CONFLICTS, LINES], [700, 800]), ([], [], []),
    ],
)  # fmt: skip
def test_cycles_in_excess_are_gained_as_far_as_nothing_else_binds(
    given: list[MachineAccess], what: list[str], nanoseconds: list[float]
) -> None:
    """Greatest first; what is less than 3 % is not worth saying."""
    found = judge(*given)
    assert [gain.what for gain in found.gains] == what
    assert [gain.seconds for gain in found.gains] == pytest.approx([1e-9 * one for one in nanoseconds])
    assert [gain.times for gain in found.gains] == pytest.approx([1000 / one for one in nanoseconds])
    assert (found.bound, found.next_bound) == (MEMORY_CYCLES, "memory")
    assert (found.seconds, found.next_seconds) == pytest.approx((1e-6, 5e-7))


@pytest.mark.parametrize(("bytes_of_a_run", "least"), [(None, 7), (64, 7), (128, 7), (256, 14), (512, 28)])
def test_a_load_takes_as_many_cycles_as_its_words_fill_the_banks(
    bytes_of_a_run: int | None, least: int
) -> None:
    one = access("shared", 900)
    runs = one.runs
    data = None if bytes_of_a_run is None else runs * bytes_of_a_run
    (gain,) = judge(replace(one, turns=runs / 7 * (least + 200), data=data)).gains
    assert gain.seconds == pytest.approx(8e-7)


def test_local_memory_and_multiprocessors_without_work_cost_what_they_bind() -> None:
    (gain,) = judge(issuing=2000, local=600).gains
    assert gain.what == LOCAL and gain.seconds == pytest.approx(1.4e-6)
    assert judge(issuing=900, local=600).gains == ()
    found = judge(uneven=1.25, idle=7)
    (gain,) = found.gains
    assert gain.what == IDLE and gain.seconds == pytest.approx(8e-7)
    assert (found.idle_sms, found.sms) == (7, SMS)


def test_the_line_is_named_whose_accesses_waste_most() -> None:
    found = judge(
        access("shared", 60, 1), access("shared", 100, 3), access("shared", 60, 1), access("global", 500, 2)
    )
    assert {gain.what: gain.where for gain in found.gains} == {
        CONFLICTS: "k.ptx:1  first;", LINES: "k.ptx:2  second;",
    }  # fmt: skip
