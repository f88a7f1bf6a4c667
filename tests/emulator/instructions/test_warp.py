"""What lanes of a warp do with one another, against models that go lane by lane."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import tilewise as tw
from tests.harness.lanes import ALL, KEPT, Array, entry, run
from tilewise.emulator.families.warp import shuffled_from
from tilewise.errors import Deadlock, PtxError

HEAD = ".version 8.0\n.target sm_80\n.address_size 64"
LANES = range(32)
MASKS = [ALL, 0x0000_FFFF, 0x5A5A_5A5A, 0x8000_0001]  # one of them without the lowest lane


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


def words(rng: np.random.Generator, high: int = 2**32) -> Array:
    return rng.integers(0, high, 32, dtype=np.uint64).astype(np.uint32)


def lanes_of(mask: int) -> list[int]:
    return [lane for lane in LANES if mask >> lane & 1]


# -- shfl -----------------------------------------------------------------------------------------------
def source_of(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The lane that shfl reads, as the PTX manual's pseudocode has it."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    top, bottom = (lane & segment) | (clamp & (31 ^ segment)), lane & segment
    if mode == "up":
        source, good = lane - b, lane - b >= top
    elif mode == "idx":
        source = bottom | (b & (31 ^ segment))
        good = source <= top
    else:
        source = lane + b if mode == "down" else lane ^ b
        good = source <= top
    return (source if good else lane), good


CLAMPS = [0, 31, 0x1807, 0x101F, 0x1C1F, 0x1F1F]


@pytest.mark.few(2)
@pytest.mark.parametrize("active", MASKS, ids=hex)
def test_shuffles(active: int, rng: np.random.Generator) -> None:
    a, b, c = words(rng), words(rng), words(rng)
    cases, rows = [], []
    for mode in ("up", "down", "bfly", "idx"):
        for way in ("immediate", "uniform b", "every b", "every c", "uniform a", "plain"):
            by, clamp = int(rng.integers(0, 40)), int(rng.choice(CLAMPS))
            first = "{ua}" if way == "uniform a" else "{a}"
            second = {"uniform b": "{ub}", "every b": "{b}", "every c": "{b}"}.get(way, str(by))
            third = "{c}" if way == "every c" else str(clamp)
            sync, last = ("", "") if way == "plain" else (".sync", f", {active}")
            flag = "" if rng.integers(0, 2) else "|{p}"
            sources = f"{first}, {second}, {third}{last}"
            rows.append(f"shfl{sync}.{mode}.b32 {{d}}{flag}, {sources};")
            rows.append(f"shfl{sync}.{mode}.b32 _|{{p}}, {sources}; selp.b32 {{d}}, 1, 0, {{p}};")
            values = np.full(32, a[0]) if way == "uniform a" else a
            bs = {"{ub}": np.full(32, b[0]), "{b}": b}.get(second, np.full(32, by))
            cases.append((mode, values, bs, c if way == "every c" else np.full(32, clamp)))
    results = run(rows, [a, b, c], active)
    for i, (mode, values, bs, cs) in enumerate(cases):
        for lane in lanes_of(active):
            source, good = source_of(mode, lane, int(bs[lane]), int(cs[lane]))
            if active >> source & 1:
                assert results[2 * i][lane] == values[source], rows[2 * i]
            assert results[2 * i + 1][lane] == good, rows[2 * i + 1]


@pytest.mark.parametrize("clamp", CLAMPS)
def test_shuffles_by_every_distance(clamp: int, rng: np.random.Generator) -> None:
    a = words(rng)
    for mode in ("up", "down", "bfly", "idx"):
        found = [shuffled_from(mode, by, clamp) for by in range(64)]
        wanted = [[source_of(mode, lane, by, clamp) for lane in LANES] for by in range(64)]
        assert found == wanted
    rows = [f"shfl.sync.idx.b32 {{d}}, {{a}}, {by}, 31, -1;" for by in (0, 5, 31)]
    for by, result in zip((0, 5, 31), run(rows, [a]), strict=True):
        assert (result == a[by]).all()


def test_a_lane_that_does_not_run_keeps_its_register(rng: np.random.Generator) -> None:
    a = words(rng)
    a[0] |= 1
    named = sum(1 << lane for lane in LANES if a[lane] & 1)
    (kept,) = run([f"@{{pa}} shfl.sync.idx.b32 {{d}}, {{a}}, 0, 31, {named};"], [a])
    assert (kept[a & 1 == 0] == KEPT).all()
    assert (kept[a & 1 == 1] == a[0]).all()


# -- vote, activemask, elect ------------------------------------------------------------------------------
VOTES: list[tuple[str, Callable[[Array, int], int]]] = [
    ("{pa}", lambda a, lane: a[lane] & 1),
    ("!{pa}", lambda a, lane: 1 - (a[lane] & 1)),
]
VOTES += [("{upa}", lambda a, lane: a[0] & 1), ("1", lambda a, lane: 1)]


@pytest.mark.few(2)
@pytest.mark.parametrize("active", MASKS, ids=hex)
def test_votes(active: int, rng: np.random.Generator) -> None:
    a = words(rng) | np.uint32(rng.integers(0, 2))
    own = grouping(rng, active)
    rows, models = [], []
    for predicate, holds in VOTES:
        for mask, masks in ((str(active), np.full(32, active)), ("{m}", own), ("", np.full(32, active))):
            sync = ".sync" if mask else ""
            last = f", {mask}" if mask else ""
            for word in ("all", "any", "uni", "ballot"):
                if word == "ballot":
                    rows.append(f"vote{sync}.ballot.b32 {{d}}, {predicate}{last};")
                else:
                    rows.append(
                        f"vote{sync}.{word}.pred {{p}}, {predicate}{last}; selp.b32 {{d}}, 1, 0, {{p}};"
                    )
                models.append((word, holds, masks))
    for row, result, (word, holds, masks) in zip(
        rows, run(rows, [a, a, a, own], active), models, strict=True
    ):
        for lane in lanes_of(active):
            members = lanes_of(int(masks[lane]) & active)
            votes = [int(holds(a, member)) for member in members]
            expected = {
                "all": all(votes),
                "any": any(votes),
                "uni": len(set(votes)) == 1,
                "ballot": sum(vote << member for vote, member in zip(votes, members, strict=True)),
            }[word]
            assert result[lane] == expected, row


def grouping(rng: np.random.Generator, active: int) -> Array:
    """A membermask for each lane: the lanes fall into groups, each of which names itself."""
    group = rng.integers(0, 3, 32)
    masks = [sum(1 << other for other in lanes_of(active) if group[other] == group[lane]) for lane in LANES]
    return np.array(masks, np.uint32)


@pytest.mark.parametrize("active", MASKS, ids=hex)
def test_elections_and_active_lanes(active: int, rng: np.random.Generator) -> None:
    own = grouping(rng, active)
    rows = [
        "activemask.b32 {d};",
        f"elect.sync {{d}}|{{p}}, {active};",
        f"elect.sync _|{{p}}, {active}; selp.b32 {{d}}, 1, 0, {{p}};",
        "elect.sync {d}|{p}, {m};",
        "elect.sync _|{p}, {m}; selp.b32 {d}, 1, 0, {p};",
    ]
    mask, leader, leads, own_leader, own_leads = run(rows, [own, own, own, own], active)
    lowest = lanes_of(active)[0]
    for lane in lanes_of(active):
        chosen = lanes_of(int(own[lane]))[0]
        assert mask[lane] == active
        assert (leader[lane], leads[lane]) == (lowest, lane == lowest)
        assert (own_leader[lane], own_leads[lane]) == (chosen, lane == chosen)


# -- match ------------------------------------------------------------------------------------------------
@pytest.mark.few(4)
@pytest.mark.parametrize("active", MASKS, ids=hex)
@pytest.mark.parametrize("kinds", [1, 3])
def test_matches(active: int, kinds: int, rng: np.random.Generator) -> None:
    a = words(rng)[rng.integers(0, kinds, 32)]
    b = a + rng.integers(0, kinds, 32).astype(np.uint32)
    own = grouping(rng, active)
    rows, models = [], []
    both = a + (b.astype(np.uint64) << 32)
    for type_, register, value in (
        ("b32", "{a}", a),
        ("b64", "{A}", both),
        ("b32", "{ua}", a[:1].repeat(32)),
    ):
        for mask, masks in ((str(active), np.full(32, active)), ("{m}", own)):
            rows.append(f"match.any.sync.{type_} {{d}}, {register}, {mask};")
            rows.append(f"match.all.sync.{type_} {{d}}, {register}, {mask};")
            rows.append(f"match.all.sync.{type_} _|{{p}}, {register}, {mask}; selp.b32 {{d}}, 1, 0, {{p}};")
            models += [(word, value, masks) for word in ("any", "all", "flag")]
    for row, result, (word, value, masks) in zip(
        rows, run(rows, [a, b, a, own], active), models, strict=True
    ):
        for lane in lanes_of(active):
            members = lanes_of(int(masks[lane]) & active)
            same = sum(1 << other for other in members if value[other] == value[lane])
            everybody = same == int(masks[lane]) & active
            expected = {"any": same, "all": same if everybody else 0, "flag": everybody}[word]
            assert result[lane] == expected, row


@pytest.mark.parametrize("active", [0xFFFF_FFFE, 0x7FFF_FFFF, 0x0000_00F0], ids=hex)
def test_a_lane_that_is_no_member_is_not_compared(active: int) -> None:
    """All others have the same as each other."""
    a = np.array([5 if active >> lane & 1 else 9 + lane for lane in LANES], np.uint32)
    rows = [f"match.{kind}.sync.{type_} {{d}}, {register}, {active};"
            for kind in ("all", "any") for type_, register in (("b32", "{a}"), ("b64", "{A}"))]  # fmt: skip
    for row, result in zip(rows, run(rows, [a] * 4, active), strict=True):
        assert {int(result[lane]) for lane in lanes_of(active)} == {active}, row


# -- redux ------------------------------------------------------------------------------------------------
INTEGERS = [("add", "u32"), ("add", "s32"), ("min", "u32"), ("min", "s32"), ("max", "u32"), ("max", "s32")]
INTEGERS += [("and", "b32"), ("or", "b32"), ("xor", "b32")]


def reduced(op: str, type_: str, values: Array) -> int:
    numbers = values.view(np.int32) if type_ == "s32" else values
    if op in ("min", "max"):
        return int(numbers.min() if op == "min" else numbers.max()) % 2**32
    if op == "add":
        return int(values.sum()) % 2**32
    return int({"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op].reduce(values))


def reduced_real(op: str, extra: str, values: Array) -> int:
    bits = values & 0x7FFF_FFFF if "abs" in extra else values
    reals = bits.view(np.float32)
    numbers = bits[~np.isnan(reals)]
    if len(numbers) == 0 or ("NaN" in extra and len(numbers) < len(bits)):
        return 0x7FFF_FFFF
    # Below zero the greater the bits the smaller the number, and -0 is less than +0.
    order = np.array([-(int(n) & 0x7FFF_FFFF) - 1 if n >> 31 else int(n) for n in numbers])
    return int(numbers[order.argmin() if op == "min" else order.argmax()])


@pytest.mark.few("False-0xffff", "True-0x5a5a5a5a")
@pytest.mark.parametrize("active", MASKS, ids=hex)
@pytest.mark.parametrize("special", [False, True])
def test_reductions(active: int, special: bool, rng: np.random.Generator) -> None:
    a = words(rng)
    if special:
        odd = np.array(
            [0, 0x8000_0000, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0001, 0xFFFF_FFFF, 1, 0x8000_0001], np.uint32
        )
        a = np.where(rng.random(32) < 0.7, rng.choice(odd, 32), a).astype(np.uint32)
    own = grouping(rng, active)
    rows, models = [], []
    for mask, masks in ((str(active), np.full(32, active)), ("{m}", own)):
        for register, values in (("{a}", a), ("{ua}", a[:1].repeat(32))):
            for op, type_ in INTEGERS:
                rows.append(f"redux.sync.{op}.{type_} {{d}}, {register}, {mask};")
                models.append((op, type_, values, masks))
            for op in ("min", "max"):
                for extra in ("", ".abs", ".NaN", ".abs.NaN"):
                    rows.append(f"redux.sync.{op}{extra}.f32 {{d}}, {register}, {mask};")
                    models.append((op, "f32" + extra, values, masks))
    results = run(rows, [a, a, a, own], active)
    for row, result, (op, type_, values, masks) in zip(rows, results, models, strict=True):
        for lane in lanes_of(active):
            chosen = values[lanes_of(int(masks[lane]) & active)]
            model = reduced_real if type_.startswith("f32") else reduced
            assert result[lane] == model(op, type_, chosen), (row, lane)


def test_lanes_that_are_no_members_change_no_reduction() -> None:
    """One lane of a warp has the number that any other would beat, or all have it."""
    for value in (0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF):
        a = np.full(32, value, np.uint32)
        rows = [f"redux.sync.{op}.{type_} {{d}}, {{a}}, -1;" for op, type_ in INTEGERS]
        for active in (1 << 9, 0xFF):
            results = run([row.replace("-1", str(active)) for row in rows], [a] * 4, active)
            for row, result, (op, type_) in zip(rows, results, INTEGERS, strict=True):
                assert result[lanes_of(active)[0]] == reduced(op, type_, a[lanes_of(active)]), (row, value)


def test_of_floats_of_which_few_are_numbers_those_count() -> None:
    """None, or one of any lane: NaN only where there is none, or where it is asked for."""
    cases = [(op, extra) for op in ("min", "max") for extra in ("", ".abs", ".NaN", ".abs.NaN")]
    rows = [
        f"redux.sync.{op}{extra}.f32 {{d}}, {{a}}, {mask};" for op, extra in cases for mask in ("-1", "{m}")
    ]
    every = np.full(32, 0xFFFF_FFFF, np.uint32)
    for numbers in ([], [0], [1], [30], [31], [0, 31], LANES[1:], LANES):
        a = np.where(np.arange(32) % 2, 0x7FC0_0001, 0xFFFF_FFFF).astype(np.uint32)
        a[list(numbers)] = np.resize([0xC020_0000, 0x3F80_0000, 0x8000_0000], len(numbers))
        results = run(rows, [a, a, a, every])
        for i, (op, extra) in enumerate(cases):
            for result in results[2 * i : 2 * i + 2]:
                assert (result == reduced_real(op, extra, a)).all(), (op, extra, numbers)


@pytest.mark.parametrize("missing", ["not named", "not running"])
def test_what_is_no_number_counts_of_the_lanes_that_take_part_alone(missing: str) -> None:
    """Where NaN is asked for, all others have one; with one mask for the warp, and with each lane's own."""
    few = 0x0000_0F00
    a = np.where(np.isin(np.arange(32), lanes_of(few)), 0x3F80_0000, 0x7FC0_0001).astype(np.uint32)
    cases = [(op, extra) for op in ("min", "max") for extra in ("", ".NaN", ".abs.NaN")]
    rows = [
        f"redux.sync.{op}{extra}.f32 {{d}}, {{a}}, {mask};" for op, extra in cases for mask in (few, "{m}")
    ]
    own = np.where(a == 0x3F80_0000, few, ALL & ~few).astype(np.uint32)
    named = rows if missing == "not running" else rows[1::2]
    for row, result in zip(
        named, run(named, [a, a, a, own], few if missing == "not running" else ALL), strict=True
    ):
        assert {int(result[lane]) for lane in lanes_of(few)} == {0x3F80_0000}, row


def test_a_reduction_of_a_literal() -> None:
    """1.5 is a double in the text, and a float here."""
    assert set(run(["redux.sync.max.f32 {d}, 1.5, -1;"], [words(np.random.default_rng(1))] * 4)[0]) == {
        0x3FC0_0000
    }


# -- lanes that wait for one another ------------------------------------------------------------------------
def kernel(body: str, extra: str = "") -> tw.Kernel:
    head = """.reg .b32 %t, %v, %w, %x; .reg .b64 %at, %off; .reg .pred %p, %q, %r;
mov.u32 %t, %tid.x; ld.param.u64 %at, [out]; mul.wide.u32 %off, %t, 4; add.u64 %at, %at, %off;"""
    return tw.Kernel.from_ptx(entry(f"{head}\n{body}", ".param .u64 out", extra), "k")


SHARED = ".shared .align 4 .b32 s[64];"


def test_lanes_wait_for_each_other_on_both_sides_of_a_branch() -> None:
    """What one side stores before its bar.warp.sync the other side reads after its own."""
    out = np.zeros(32, np.uint32)
    kernel(
        """
setp.eq.u32 %p, %t, 0; @%p bra first;
st.shared.u32 [s+4], 7; bar.warp.sync -1; ld.shared.u32 %v, [s]; bra meet;
first: st.shared.u32 [s], 42; bar.warp.sync -1; ld.shared.u32 %v, [s+4];
meet: st.global.u32 [%at], %v;""",
        SHARED,
    )(1, 32, [out], device="emulator")
    assert out[0] == 7 and (out[1:] == 42).all()


def test_lanes_wait_for_those_that_they_named_themselves() -> None:
    """Others that come to a barrier of their own meanwhile let nobody go."""
    out = np.zeros(32, np.uint32)
    kernel(
        """
setp.ge.u32 %p, %t, 16; @%p bra high; setp.ge.u32 %q, %t, 8; @%q bra late;
bar.warp.sync 0xffff; ld.shared.u32 %v, [s]; bra meet;
late: bar.warp.sync 0xffffff00; st.shared.u32 [s], 42; bar.warp.sync 0xffff; mov.u32 %v, 9; bra meet;
high: bar.warp.sync 0xffff0000; bar.warp.sync 0xffffff00; mov.u32 %v, 7;
meet: st.global.u32 [%at], %v;""",
        SHARED,
    )(1, 32, [out], device="emulator")
    assert out.tolist() == [42] * 8 + [9] * 8 + [7] * 16


def test_turns_of_lanes_that_meet_on_both_sides_of_a_branch() -> None:
    """In each turn one side reads what the other stored in it, whichever comes first."""
    out = np.zeros(32, np.uint32)
    kernel(
        """
setp.lt.u32 %p, %t, 16; mov.u32 %w, 0; mov.u32 %x, 0;
again: @%p bra low; bar.warp.sync -1; ld.shared.u32 %v, [s]; bar.warp.sync -1; bra on;
low: add.u32 %v, %w, 5; st.shared.u32 [s], %v; bar.warp.sync -1; bar.warp.sync -1;
on: mad.lo.u32 %x, %x, 10, %v; add.u32 %w, %w, 1; setp.lt.u32 %q, %w, 4; @%q bra again;
st.global.u32 [%at], %x;""",
        SHARED,
    )(1, 32, [out], device="emulator", timeout=20)
    assert (out == 5678).all()


def test_nobody_waits_for_lanes_that_have_left() -> None:
    out = np.zeros(32, np.uint32)
    kernel(
        """
and.b32 %v, %t, 3; setp.eq.u32 %p, %v, 1; @%p exit;
setp.lt.u32 %q, %t, 8; @%q bra low;
setp.gt.u32 %p, %t, 24; @%p exit;
bar.warp.sync -1; activemask.b32 %w; bra on;
low: bar.warp.sync -1; activemask.b32 %w;
on: st.global.u32 [%at], %w;"""
    )(1, 32, [out], device="emulator")
    low = sum(1 << t for t in range(8) if t % 4 != 1)
    high = sum(1 << t for t in range(8, 25) if t % 4 != 1)
    for t in range(32):
        assert out[t] == (0 if t % 4 == 1 or t > 24 else low if t < 8 else high)


def test_lanes_that_are_not_there_take_no_part_though_they_are_named() -> None:
    """A block of 20 threads, all of which have the same."""
    asked = [
        "vote.sync.ballot.b32 %v, 1, -1;", "match.any.sync.b32 %v, 7, -1;", "match.all.sync.b32 %v, 7, -1;",
        "redux.sync.add.u32 %v, 3, -1;", "vote.sync.all.pred %p, 1, -1; selp.u32 %v, 1, 0, %p;",
        "setp.eq.u32 %q, %t, 99; vote.sync.uni.pred %p, !%q, -1; selp.u32 %v, 1, 0, %p;",
        "and.b32 %w, %t, 0; match.any.sync.b32 %v, %w, -1;",
    ]  # fmt: skip
    wanted = [0xF_FFFF, 0xF_FFFF, 0xF_FFFF, 60, 1, 1, 0xF_FFFF]
    for text, want in zip(asked, wanted, strict=True):
        out = np.zeros(20, np.uint32)
        kernel(f"{text} st.global.u32 [%at], %v;")(1, 20, [out], device="emulator")
        assert set(out.tolist()) == {want}, text


def test_groups_that_name_themselves_go_on_by_themselves() -> None:
    """Half of the warp goes through a loop of shuffles while the other half waits for none of it."""
    out = np.zeros(32, np.uint32)
    kernel(
        """
setp.lt.u32 %p, %t, 16; mov.u32 %v, %t; mov.u32 %w, 0; @!%p bra high;
again: shfl.sync.bfly.b32 %x, %v, 1, 31, 0xffff; add.u32 %v, %v, %x; add.u32 %w, %w, 1;
setp.lt.u32 %q, %w, 3; @%q bra again; bra on;
high: redux.sync.add.u32 %v, %v, 0xffff0000;
on: st.global.u32 [%at], %v;"""
    )(1, 32, [out], device="emulator")
    low = np.arange(16)
    for _ in range(3):
        low = low + low[np.arange(16) ^ 1]
    assert (out[:16] == low).all() and (out[16:] == sum(range(16, 32))).all()


def test_lanes_wait_for_one_that_comes_a_turn_later() -> None:
    """Every lane shuffles three times, but lane 0 goes once round the loop without before its first."""
    out = np.zeros(32, np.uint32)
    kernel(
        """
setp.eq.u32 %q, %t, 0; mov.u32 %w, 0; mov.u32 %x, 0; .reg .b32 %y, %z;
again: @!%q bra now; setp.ne.u32 %q, %t, %t; bra join;
now: mad.lo.u32 %v, %t, 10, %w; add.u32 %v, %v, 5; shfl.sync.idx.b32 %y, %v, 0, 31, -1; add.u32 %x, %x, %y;
redux.sync.max.u32 %y, %v, -1; add.u32 %x, %x, %y; add.u32 %w, %w, 1;
join: setp.lt.u32 %p, %w, 3; @%p bra again;
st.global.u32 [%at], %x;"""
    )(1, 32, [out], device="emulator")
    assert (out == sum(5 + i for i in range(3)) + sum(315 + i for i in range(3))).all()


def test_a_barrier_on_both_sides_of_a_branch_holds_both() -> None:
    out = np.zeros(64, np.uint32)
    kernel(
        """
mul.wide.u32 %off, %t, 4; and.b32 %v, %t, 1; setp.eq.u32 %p, %v, 0; cvt.u32.u64 %w, %off; mov.u32 %x, s;
add.u32 %w, %w, %x; @%p bra even;
st.shared.u32 [%w], %t; barrier.sync 0; bra on;
even: add.u32 %v, %t, 100; st.shared.u32 [%w], %v; barrier.sync 0;
on: sub.u32 %v, 63, %t; shl.b32 %v, %v, 2; add.u32 %v, %v, %x; ld.shared.u32 %v, [%v]; st.global.u32 [%at], %v;""",
        SHARED,
    )(1, 64, [out], device="emulator")
    other = 63 - np.arange(64)
    assert (out == np.where(other % 2, other, other + 100)).all()


def test_lanes_that_wait_for_lanes_at_a_barrier_are_a_deadlock() -> None:
    stuck = kernel(
        """
setp.eq.u32 %p, %t, 0; @%p bra first; barrier.sync 1; bra on;
first: bar.warp.sync -1;
on: st.global.u32 [%at], %t;"""
    )
    with pytest.raises(Deadlock, match=r"warp 0 wait at barrier 1, where 31 of 32 threads have come"):
        stuck(1, 32, [np.zeros(32, np.uint32)], device="emulator")


# -- CUDA C++ ---------------------------------------------------------------------------------------------
SOURCE = """
extern "C" __global__ void reduce(const float* in, float* out, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 32) sum += in[i];
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
  if (threadIdx.x == 0) *out = sum;
}
extern "C" __global__ void scan(const int* in, int* out) {
  int lane = threadIdx.x, v = in[blockIdx.x * 32 + lane];
  for (int d = 1; d < 32; d *= 2) {
    int below = __shfl_up_sync(~0u, v, d);
    if (lane >= d) v += below;
  }
  out[blockIdx.x * 32 + lane] = v;
}
extern "C" __global__ void compact(const int* in, int* out, int* count) {
  int v = in[threadIdx.x], keep = v % 3 == 0;
  unsigned kept = __ballot_sync(~0u, keep);
  unsigned below; asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  if (keep) out[__popc(kept & below)] = v;
  if (threadIdx.x == 0) *count = __popc(kept);
}
extern "C" __global__ void groups(const int* in, int* out) {
  unsigned mine = __match_any_sync(~0u, in[threadIdx.x]);
  out[threadIdx.x] = __reduce_add_sync(mine, threadIdx.x);
}
"""


def test_warp_algorithms(rng: np.random.Generator) -> None:
    # Of small integers every order of adding gives the same.
    real = rng.integers(-50, 50, 100).astype(np.float32)
    total = np.zeros(1, np.float32)
    tw.Kernel(SOURCE, "reduce", arch="sm_80")(1, 32, [real, total, 100], device="emulator")
    assert total[0] == real.sum()

    numbers, sums = rng.integers(-1000, 1000, 96).astype(np.int32), np.zeros(96, np.int32)
    tw.Kernel(SOURCE, "scan", arch="sm_80")(3, 32, [numbers, sums], device="emulator")
    assert (sums.reshape(3, 32) == numbers.reshape(3, 32).cumsum(axis=1)).all()

    some, kept, count = (
        rng.integers(0, 100, 32).astype(np.int32),
        np.full(32, -1, np.int32),
        np.zeros(1, np.int32),
    )
    tw.Kernel(SOURCE, "compact", arch="sm_80")(1, 32, [some, kept, count], device="emulator")
    wanted = some[some % 3 == 0]
    assert (
        count[0] == len(wanted)
        and (kept[: len(wanted)] == wanted).all()
        and (kept[len(wanted) :] == -1).all()
    )

    keys, sizes = rng.integers(0, 4, 32).astype(np.int32), np.zeros(32, np.int32)
    tw.Kernel(SOURCE, "groups", arch="sm_80")(1, 32, [keys, sizes], device="emulator")
    assert (sizes == [np.arange(32)[keys == key].sum() for key in keys]).all()


@pytest.mark.parametrize(
    "asks",
    [
        "match.all.sync.b32 %r4, %r3, -1;",
        "match.any.sync.b32 %r4, %r3, -1;",
        "vote.sync.ballot.b32 %r4, %q, -1;",
    ],
)
def test_lanes_that_come_one_by_one_are_waited_for(asks: str) -> None:
    """Each leaves a loop when the one before it has, and brings what it has only then."""
    text = f"""{HEAD}
.visible .entry k(.param .u64 out) {{
.reg .pred %p, %q; .reg .b32 %r<6>; .reg .b64 %d<4>; .shared .b32 turn;
ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r3, %r1; mov.b32 %r5, 0; st.shared.b32 [turn], %r5; bar.sync 0;
again: ld.volatile.shared.b32 %r2, [turn]; setp.ne.u32 %p, %r2, %r1; @%p bra again;
add.u32 %r2, %r2, 1; st.volatile.shared.b32 [turn], %r2;
mov.b32 %r3, 7; setp.eq.u32 %q, %r3, 7;
{asks}
mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2; st.global.b32 [%d1], %r4; ret;
}}"""
    out = np.zeros(32, np.uint32)
    tw.Kernel.from_ptx(text, "k")(1, 32, [out], device="emulator")
    assert (out == ALL).all()


# -- refusals -----------------------------------------------------------------------------------------------
REFUSED = [
    "shfl.sync.bfly.b64 %a, %a, 1, 31, -1;",
    "shfl.sync.b32 %a, %a, 1, 31, -1;",
    "shfl.sync.up.b32 %a, %a, 1, 0;",
    "shfl.up.b32 %a, %a, 1, 0, -1;",
    "vote.sync.some.pred %p, %p, -1;",
    "vote.sync.ballot.pred %p, %p, -1;",
    "vote.any.pred %p, %p, -1;",
    "match.some.sync.b32 %a, %a, -1;",
    "match.any.b32 %a, %a;",
    "match.any.sync.b16 %a, %a, -1;",
    "match.any.sync.b32 %a|%p, %a, -1;",
    "redux.sync.add.b32 %a, %a, -1;",
    "redux.sync.and.u32 %a, %a, -1;",
    "redux.sync.add.f32 %a, %a, -1;",
    "redux.sync.min.abs.s32 %a, %a, -1;",
    "redux.add.s32 %a, %a;",
    "elect.sync %a, -1;",
    "activemask.u32 %a;",
]


@pytest.mark.parametrize("text", REFUSED)
def test_forms_that_ptx_does_not_have_are_refused(text: str) -> None:
    body = f".reg .b32 %a; .reg .pred %p;\n{text}"
    with pytest.raises(PtxError, match=re.escape(text.split(" ")[0])):
        tw.Kernel.from_ptx(entry(body), "k")(1, 32, [], device="emulator")
