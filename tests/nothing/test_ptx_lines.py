"""What is known of a line of the PTX from the counts of its instructions, which may be several, or copies of one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tilewise.emulator.profiling.counted import InstructionRuns
from tilewise.instruments.flow import (
    Line,
    PtxBranch,
    _condition_lines,
    _find_known_runs,
    _least_squares,
    _ptx_branch,
    _routine_runs,
    _share_unrolled_turns,
    basic_blocks,
    block_runs,
    find_reachable,
)
from tilewise.instruments.machine import (
    Machine,
    MachineAccess,
    _at_one_address,
    _by_line,
    _by_one_lane,
    _check,
    _list_runs,
    _share_after_merging,
    _sum_branches,
)
from tilewise.toolchain.lines import MachineInstruction


def ran(line: int, name: str, block: int, runs: int, on: int | None = None, **more: Any) -> InstructionRuns:
    """On two multiprocessors; with a guard, if the runs in which that held are given."""
    there = np.array([runs, 10 * runs])
    held = there if on is None else np.array([on, 10 * on])
    return InstructionRuns(line, name, block, there, 32 * there, held, 32 * held, **more)


def counts_of(*items: InstructionRuns) -> Any:
    return cast(Any, SimpleNamespace(rows=np.zeros((2, 7)), instruction_runs=lambda: iter(items)))


def found(line: Line) -> tuple[int, int, int, int]:
    """Runs, threads, and how many of both a guard let through, on the first multiprocessor; the second has ten times those."""
    figures = (line.runs, line.threads, line.on_runs, line.on_threads)
    assert all(len(one) == 2 and one[1] == 10 * one[0] for one in figures)
    return cast(tuple[int, int, int, int], tuple(int(one[0]) for one in figures))


def test_of_several_instructions_of_a_line_the_one_with_most_runs_counts() -> None:
    lines = _by_line(
        counts_of(ran(4, "mul", 0, 2), ran(4, "add", 1, 9), ran(4, "sub", 2, 3), ran(5, "or", 0, 1))
    )
    assert {*lines} == {4, 5}
    assert found(lines[4]) == (9, 32 * 9, 9, 32 * 9) and found(lines[5]) == (1, 32, 1, 32)
    assert lines[4].names == {"mul", "add", "sub"} and lines[5].names == {"or"}


def test_copies_of_an_instruction_add_up_and_a_block_that_came_twice_does_not() -> None:
    """Two copies with three runs each are more than one instruction with five."""
    lines = _by_line(
        counts_of(ran(4, "mul", 0, 5), ran(4, "add", 1, 3), ran(4, "add", 2, 3), ran(4, "add", 2, 3))
    )
    assert found(lines[4]) == (6, 32 * 6, 6, 32 * 6)


@pytest.mark.parametrize("others", [(), (ran(4, "mul", 0, 20),), (ran(4, "mul", 0, 1),)])
def test_what_a_guard_let_through_is_that_of_the_guarded(others: tuple[InstructionRuns, ...]) -> None:
    (line,) = _by_line(counts_of(*others, ran(4, "st", 1, 7, on=2), ran(4, "st", 2, 1, on=1))).values()
    runs = max([8, *(int(item.runs[0]) for item in others)])
    assert found(line) == (runs, 32 * runs, 3, 32 * 3)


def test_branches_of_a_line_add_up() -> None:
    parted = np.array([1, 10])
    branches = _sum_branches(
        counts_of(
            ran(4, "bra", 0, 5, on=2, splits=parted, tests=(2, 3)),
            ran(4, "bra", 1, 6, on=1, splits=parted, tests=(2, 3)),
            ran(9, "bra", 2, 7, splits=0 * parted),
            ran(10, "bar", 3, 7),
        )
    )
    assert {*branches} == {4, 9} and branches[4].tests == {2, 3} and not branches[9].tests
    assert [int(one[0]) for one in (branches[4].runs, branches[4].threads, branches[4].splits)] == [
        11,
        352,
        2,
    ]
    assert [int(one[0]) for one in (branches[9].runs, branches[9].threads, branches[9].splits)] == [7, 224, 0]


@pytest.mark.parametrize(
    ("text", "name", "widest", "runs", "share"),
    [
        ("LDS.128 R0, [R4]", "ld.shared.f32", 128, 3.0, 0.25),  # of 12 loads one in four is left
        ("LDS.128 R0, [R4]", "ld.shared.v4.f32", 128, 12.0, 1.0),  # which were as wide
        ("LDS.64 R0, [R4]", "ld.shared.v2.f32", 128, 6.0, 0.5),
        ("LDS.128 R0, [R4]", "ld.shared.v4.f32", 128, 3.0, 1.0),  # fewer, for another reason
        ("LDG.E.128 R0, [R4]", "ld.global.f32", 128, 30.0, 1.0),  # never more than there are
        ("@P0 LDS.128 R0, [R4]", "ld.shared.f32", 128, 3.0, 1.0),
        ("LDGSTS.E.128 [R0], [R4]", "ld.global.f32", 128, 3.0, 1.0),
        ("LDS R0, [R4]", "ld.shared.f32", 32, 3.0, 1.0),
        ("STS.64 [R4], R0", "st.shared.f32", 64, 6.0, 0.5),
    ],
)
def test_loads_and_stores_of_a_line_that_were_merged(
    text: str, name: str, widest: int, runs: float, share: float
) -> None:
    asked = np.array([4, 8])
    line = Line(asked, 32 * asked, asked, 32 * asked, {name}, False)
    assert _share_after_merging(MachineInstruction(0, text, ptx=4), runs, widest, line) == share
    assert _share_after_merging(MachineInstruction(0, text, ptx=4), runs, widest, None) == 1.0


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_u64)", 3),
        ("@P0 CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_u64)", None),  # of some operands alone
        ("CALL.REL.NOINC `($__internal_1_$__cuda_sm3x_div_rn_noftz_f32_slowpath)", None),
        ("CALL.REL.NOINC `(mine)", None),
    ],
)
def test_a_routine_that_every_thread_calls_runs_as_often_as_its_line(text: str, runs: int | None) -> None:
    (line,) = _by_line(counts_of(ran(4, "div", 0, 7, on=3))).values()
    figures = _routine_runs(MachineInstruction(0, text, ptx=4), {4: line})
    assert (None if figures is None else int(figures[0])) == runs


@pytest.mark.parametrize(
    ("copies", "turns", "shared"),
    [
        ({2: 4, 5: 1}, 11, {2: 2, 5: 3}),  # twice four at a time, and three alone
        ({2: 1, 5: 4}, 11, {5: 2, 2: 3}),
        ({2: 2, 5: 4, 7: 1}, 7, {5: 1, 2: 1, 7: 1}),
        ({2: 4, 5: 4, 7: 1}, 9, {5: 2, 2: 0, 7: 1}),  # of as many, the one further down
        ({2: 1, 5: 1}, 6, {5: 6, 2: 0}),
        ({2: 3}, 6, {}),  # in one place alone
    ],
)
def test_turns_of_a_loop_are_shared_out_among_its_copies(
    copies: dict[int, int], turns: int, shared: dict[int, int]
) -> None:
    blocks = [
        [MachineInstruction(0, "LDS R0, [R4]", ptx=4)] * copies.get(number, 0)
        for number in range(max(copies) + 1)
    ]
    warps = np.array([2, 20])
    lines = _by_line(counts_of(ran(4, "ld.shared.f32", 0, 2 * turns)))
    found = _share_unrolled_turns(blocks, [*copies], lines, {}, warps)
    assert {number: runs.tolist() for number, runs in found.items()} == {
        number: [2 * each, 20 * each] for number, each in shared.items()
    }


def test_the_condition_of_a_branch_is_set_before_it() -> None:
    """It may read two predicates: its guard, and an operand."""
    texts = {
        3: "ISETP.NE.AND P1, PT, R0, RZ, PT", 4: "ISETP.GE.AND P0, PT, R0, R1, PT", 5: "IADD3 R0, R0, 0x1, RZ",
        6: "@!P0 BRA P1, `(.L_x_1)",
    }  # fmt: skip
    block = [MachineInstruction(16 * line, text, ptx=line) for line, text in texts.items()]
    assert _condition_lines(block) == [4, 3]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("ISETP.GE.AND P0, PT, R0, R1, PT", [3]),
        ("PLOP3.LUT P2, P0, PT, PT, PT, 0x80, 0x0", [3]),  # as the second of two
        ("LOP3.LUT P0, RZ, R0, 0x1, RZ, 0xc0, !PT", [3]),
        ("LOP3.LUT R3, P0, R0, 0x1, RZ, 0xc0, !PT", [3]),  # behind the register
        ("IADD3 R3, P1, P0, R0, R1, RZ", [3]),
        ("IADD3 R3, P1, R0, R1, RZ", []),  # another
        ("IADD3.X R3, R0, R1, RZ, P0, !PT", []),  # which is read
        ("SEL R3, R0, R1, P0", []),
        ("UISETP.NE.AND UP0, UPT, UR4, URZ, UPT", []),
    ],
)
def test_an_instruction_sets_the_condition_of_a_branch_by_writing_it(text: str, condition: list[int]) -> None:
    assert _condition_lines(code((3, text), (4, "@P0 BRA `(.L_x_1)"))) == condition


def code(*rows: tuple[int, str]) -> list[MachineInstruction]:
    return [MachineInstruction(16 * i, text, ptx=line) for i, (line, text) in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "runs"),
    [
        (
            [(4, "MOV R1, R2"), (5, "IADD3 R2, R2, R1"), (5, "LEA R2, R2, R1"), (6, "SHF R3, R2")],
            5,
        ),  # most votes
        ([(4, "MOV R1, R2"), (5, "IADD3 R2, R2, R1")], 5),  # as many votes each: the one that runs more often
        ([(4, "MOV R1, R2"), (5, "NOP"), (5, "BSSY B0"), (5, "YIELD")], 4),  # added by the assembler
        (
            [(4, "MOV R1, R2"), (5, "@P0 IADD3 R2, R2, R1"), (5, "@P1 LEA R2, R2, R1")],
            4,
        ),  # guards, beside others
        ([(5, "@P0 IADD3 R2, R2, R1")], 5),
        ([(4, "MOV R1, R2"), (5, "@P0 BRA `(.L_x)"), (5, "@P1 EXIT")], 5),  # jumps are guarded as they are
        ([(9, "MOV R1, R2")], None),  # nothing is known of its line
    ],
)
def test_a_block_runs_as_most_of_its_instructions_say(rows: list[tuple[int, str]], runs: int | None) -> None:
    lines = _by_line(counts_of(*(ran(line, "op", 0, line) for line in (4, 5, 6))))
    known = _find_known_runs([code(*rows)], [0], lines, firm=False)
    assert [int(figures[0]) for figures in known.values()] == ([] if runs is None else [runs])


@pytest.mark.parametrize(
    ("rows", "runs"),
    [
        ([(5, "MOV R1, R2"), (5, "IADD3 R2, R2, R1"), (4, "STG.E [R2], R1")], 4),  # what is never moved alone
        (
            [(5, "LDS R1, [R2]"), (5, "LDS R3, [R2]"), (4, "STG.E [R2], R1")],
            2,
        ),  # two of a line share its runs
        ([(5, "@P0 LDS R1, [R2]")], None),
        ([(5, "MOV R1, R2")], None),
        ([(7, "FFMA R1, R2, R2, R3")], None),  # of a division
        ([(8, "FADD R1, R2, R2")], None),  # of a product of matrices
        ([(4, "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_u64)")], 4),
    ],
)
def test_what_is_known_for_certain_is_known_by_instructions_that_stay(
    rows: list[tuple[int, str]], runs: int | None
) -> None:
    names = {4: "st.global.f32", 5: "ld.shared.f32", 7: "div.rn.f32", 8: "wmma.mma"}
    lines = _by_line(counts_of(*(ran(line, name, 0, line) for line, name in names.items())))
    known = _find_known_runs([code(*rows)], [0], lines, firm=True)
    assert [int(figures[0]) for figures in known.values()] == ([] if runs is None else [runs])


def test_blocks_run_as_the_instructions_say_that_stay_where_they_are() -> None:
    """In the middle are more instructions of a line that runs twice as often, which were moved there."""
    rows = [(3, "ISETP.NE.AND P0, PT, R0, RZ, PT"), (3, "@!P0 BRA `(.L_x)"), (5, "MOV R1, R2"), (5, "SHF R3, R2"),
            (4, "STG.E [R2], R1"), (6, "EXIT")]  # fmt: skip
    blocks = basic_blocks(
        replace(item, label=".L_x" if item.opcode == "EXIT" else "") for item in code(*rows)
    )
    assert [len(block) for block in blocks] == [2, 3, 1]
    figures = {3: 10, 4: 4, 5: 8, 6: 10}
    lines = _by_line(counts_of(*(ran(line, "op", 0, runs) for line, runs in figures.items())))
    found = block_runs(blocks, find_reachable(blocks), lines, np.array([10.0, 100.0]), {})
    assert [found.runs[number].tolist() for number in range(3)] == [
        pytest.approx([runs, 10 * runs], rel=1e-3) for runs in (10, 4, 10)
    ]


@pytest.mark.parametrize(
    ("text", "found"), [("@P0 BRA `(.L_x)", 7), ("@P0 EXIT", 7), ("CALL `(f)", None), ("RET", None)]
)
def test_a_branch_of_the_ptx_ends_as_a_jump_or_an_exit(text: str, found: int | None) -> None:
    runs = np.array([1.0])
    branches = {line: PtxBranch(runs, runs, runs, frozenset({tests})) for line, tests in ((7, 6), (8, 2))}
    for test in (6, 5):  # alone in its condition, or something else is
        block = code((test, "ISETP.GT.AND P0, PT, R1, R2, PT"), (7, text))
        assert _ptx_branch(block, branches) == (found, found is not None and test == 6)
    if found:  # under another line: the branch that asks for what is tested here
        assert _ptx_branch(code((2, "ISETP.GT.AND P0, PT, R1, R2, PT"), (1, text)), branches) == (8, True)
        assert _ptx_branch(code((3, "ISETP.GT.AND P0, PT, R1, R2, PT"), (1, text)), branches) == (None, False)


def test_copies_of_a_line_that_differ_in_width_are_told_where_they_access_memory() -> None:
    """And bytes that the machine code moves without being asked."""
    two = np.array([2.0])
    (load,) = code((4, "LDS.64 R2, [R1]"))
    access = MachineAccess(load, "ld", "shared", 64, two, two, two, two, two, two, two)
    machine = Machine("machine code", [access])
    moved = "the PTX asks for 0 bytes of shared loads, the machine code for 512"
    assert _check(machine, [], {(4, "LDS"): {8}, (5, "LDS"): {4, 8}}) == [moved]
    told = _check(machine, [], {(4, "LDS"): {4, 8}, (5, "LDS"): {4, 8}, (None, "LDS"): {4, 8}})
    assert told == [moved, "copies of PTX lines [4] differ in width: what each of them does is an estimate"]


def test_the_nearest_numbers_of_runs_are_none_below_zero() -> None:
    """As near as the best of all choices of which are zero."""
    rng = np.random.default_rng()
    for _ in range(40):
        matrix, right = rng.standard_normal((6, 4)), 1000 * rng.standard_normal(6)
        best = float(np.linalg.norm(right))
        for chosen in product([False, True], repeat=4):
            part = matrix[:, np.flatnonzero(chosen)]
            some = np.linalg.lstsq(part, right, rcond=None)[0]
            if (some >= 0).all():
                best = min(best, float(np.linalg.norm(part @ some - right)))
        found = _least_squares(matrix, right, rng.random(4) < 0.5)
        assert (found >= 0).all()
        assert np.linalg.norm(matrix @ found - right) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("inside", [True, False])
def test_lanes_meet_at_one_address_where_each_takes_a_turn(size: int, inside: bool) -> None:
    """In shared memory a wavefront of its own, of a word or of what is wider; in global memory a request."""
    threads, nothing = np.array([32.0, 5.0]), np.zeros(2)
    for turns in (threads, threads - [0, 1]):
        waves = {
            width: turns if width == max(size, 4) else nothing for width in (size, 4, 8, 16) if width >= size
        }
        place = SimpleNamespace(
            action="atomic", size=size, threads=threads, waves=waves,
            asked=nothing if inside else turns, outside=nothing if inside else threads,
        )  # fmt: skip
        assert _at_one_address(cast(Any, place)) is (turns is threads)


def test_an_access_of_one_lane_is_one_of_all_that_is_counted() -> None:
    """A share of the runs: a wavefront of shared memory, or a sector and a line of global memory."""
    (item,) = code((4, "ATOMG.E.ADD.64 R0, [R2], R4"))
    place: Any = SimpleNamespace(shared=np.array([8.0, 4.0]), outside=np.array([6.0, 2.0]))
    inside, outside = (_by_one_lane(item, "atom", space, place, 0.5) for space in ("shared", "global"))
    for access, runs in ((inside, [4, 2]), (outside, [3, 1])):
        wide = [8 * one for one in runs]
        assert (access.op, access.bits, access.exact, access.runs.tolist()) == ("atom", 64, True, runs)
        is_shared = access is inside
        for figures in (access.waves, access.phases, access.ideal):
            assert figures.tolist() == (runs if is_shared else [0, 0])
        for figures in (access.sectors, access.ideal_sectors):
            assert figures.tolist() == ([0, 0] if is_shared else runs)
        assert access.bytes.tolist() == wide
    assert inside.touched is None and inside.lines is None
    assert outside.touched is not None and outside.touched.tolist() == [3, 1]
    assert outside.lines is not None and outside.lines.tolist() == [3, 1]


def test_in_a_loop_over_threads_half_of_them_have_had_their_turn() -> None:
    """Of 5 threads each time 5 to 1 wait for it, and the last of them does not go around again."""
    block = code((4, "@P0 ATOMS.CAS R0, [R1], R2, R3"), (5, "IADD R0, R1, R2"), (6, "@P1 BRA.U.ANY 0x10"))
    runs = np.array([10.0])
    found = cast(Any, SimpleNamespace(runs=[runs], each=[5.0], jumped={0: 7.0}, parted={}))
    told = _list_runs(0, block, {}, {}, found)
    assert [one.threads.tolist() for one in told] == [[30.0], [50.0], [20.0]]


def test_copies_of_a_guarded_instruction_share_the_threads_that_its_guard_let_through() -> None:
    """By their runs: 3 of 4 are here."""
    (item,) = code((4, "@P0 FADD R0, R1, R2"))
    (line,) = _by_line(counts_of(ran(4, "add", 0, 8, on=3))).values()
    here = np.array([6.0, 60.0])
    found = cast(Any, SimpleNamespace(runs=[here], each=[32.0], jumped={}, parted={}))
    (told,) = _list_runs(0, [item], {4: line}, {(4, "FADD"): [66.0, 22.0]}, found)
    assert (told.runs == here).all() and (told.threads == line.on_threads * 0.75).all()
    assert line.on_threads.tolist() == [96, 960]
