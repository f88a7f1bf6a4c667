"""Values that a shuffle took from lanes which are not there: where they are used, and where they are thrown away."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw


def test_an_undefined_shuffle_is_a_warning_that_names_its_lanes() -> None:
    text = """extern "C" __global__ void part(int *y) {
    int v = y[threadIdx.x];
    for (int d = 4; d; d /= 2) v += __shfl_down_sync(0xFF, v, d);
    if (threadIdx.x <= %d) y[threadIdx.x] = v;
}"""
    for last, count in (
        (0, 0),
        (1, 1),
    ):  # to lane 1 comes, by lane 2, what lane 4 read
        found = tw.Kernel(text % last, "part", "sm_80").check(1, 8, [np.ones(8, np.int32)])
        assert [(item.kind, item.level, item.count) for item in found] == [
            ("shuffle-inactive-lane", "warning", 1)
        ] * count
        assert all("lane 4 reads lane 8" in item.message and "0x000000ff" in item.message for item in found)


@pytest.mark.parametrize("holds", ["ge", "lt"])
@pytest.mark.parametrize(("joined", "inside"), [("and", "lt"), ("or", "ge")])
@pytest.mark.parametrize(
    "join",
    [
        "setp.HOLDS.{}.u32 %q, %v, 1, %p;",
        "setp.HOLDS.u32 %q, %v, 1; {}.pred %q, %q, %p;",
        "setp.HOLDS.u32 %q, %v, 1; {}.pred %q, %p, %q;",
    ],
    ids=["compared", "first", "second"],
)
def test_what_is_joined_with_a_predicate_throws_undefined_values_away(
    join: str, joined: str, inside: str, holds: str
) -> None:
    """Lanes 4 to 7 read lanes that are not there; the predicate decides without the value up to a lane, or not,
    whether the value itself would make it true or false."""
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y, .param .u32 last) {{
.reg .b32 %t, %v, %last; .reg .b64 %at, %off; .reg .pred %p, %q;
ld.param.u64 %at, [y]; ld.param.u32 %last, [last];
mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4; add.u64 %at, %at, %off;
ld.global.u32 %v, [%at];
shfl.sync.down.b32 %v, %v, 4, 31, 0xff;
setp.{inside}.u32 %p, %t, %last;
{join.format(joined).replace("HOLDS", holds)}
selp.u32 %v, 1, 2, %q;
st.global.u32 [%at], %v;
ret; }}"""
    kernel = tw.Kernel.from_ptx(text, "k")
    for last, used in ((4, False), (5, True)):
        found = kernel.check(1, 8, [np.ones(8, np.int32), last])
        assert [item.kind for item in found] == ["shuffle-inactive-lane"] * used, (joined, last)


@pytest.mark.parametrize(("chosen", "last"), [("%v, 0", 5), ("0, %v", 7), ("%v, 0", 4), ("0, %v", 8)])
def test_a_choice_makes_use_of_what_it_chooses(chosen: str, last: int) -> None:
    """Lanes 4 to 7 have read lanes that are not there; of them, those below ``last`` choose the first."""
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y) {{
.reg .b32 %t, %v; .reg .b64 %at, %off; .reg .pred %p;
ld.param.u64 %at, [y]; mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4; add.u64 %at, %at, %off;
ld.global.u32 %v, [%at];
shfl.sync.down.b32 %v, %v, 4, 31, 0xff;
setp.lt.u32 %p, %t, {last};
selp.u32 %v, {chosen}, %p;
st.global.u32 [%at], %v;
ret; }}"""
    found = tw.Kernel.from_ptx(text, "k").check(1, 8, [np.ones(8, np.int32)])
    assert [item.kind for item in found] == ["shuffle-inactive-lane"] * (last in (5, 7))


@pytest.mark.parametrize(("reader", "user"), [(0, 1), (1, 0), (7, 2), (15, 15)])
def test_whoever_uses_a_value_who_read_it_is_named_too(reader: int, user: int) -> None:
    """One lane reads a lane that is not there, and another one gets it from that lane."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y, .param .u32 reader, .param .u32 user) {
.reg .b32 %t, %v, %reader, %user, %from; .reg .b64 %at; .reg .pred %p, %q;
ld.param.u64 %at, [y]; ld.param.u32 %reader, [reader]; ld.param.u32 %user, [user];
mov.u32 %t, %tid.x; setp.eq.u32 %p, %t, %reader; setp.eq.u32 %q, %t, %user;
selp.u32 %from, 21, %t, %p;
shfl.sync.idx.b32 %v, %t, %from, 31, 0xffff;
selp.u32 %from, %reader, %t, %q;
shfl.sync.idx.b32 %v, %v, %from, 31, 0xffff;
@%q st.global.u32 [%at], %v;
ret; }"""
    kernel = tw.Kernel.from_ptx(text, "k")
    (found,) = kernel.check(1, 16, [np.zeros(1, np.int32), reader, user])
    assert found.now and found.before and f"lane {reader} reads lane 21" in found.message, found
    assert (found.now.thread, found.before.thread) == ((user, 0, 0), (reader, 0, 0)), found
    assert (found.now.ptx_line, found.before.ptx_line) == (12, 9), found


def _computed(by: str) -> list[str]:
    """What is found where the upper half of 8 lanes read lanes that are not there, and all store what comes of it."""
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y) {{
.reg .b32 %t, %v, %w, %a, %b, %c; .reg .b64 %at, %off; .reg .pred %p, %q, %r;
ld.param.u64 %at, [y]; mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4; add.u64 %at, %at, %off;
mov.u32 %w, %t; mov.u32 %a, %t; mov.u32 %b, %t; mov.u32 %c, %t; setp.lt.u32 %p, %t, 4;
shfl.sync.down.b32 %v, %t, 4, 31, 0xff;
{by}
st.global.u32 [%at], %w;
ret; }}"""
    found = tw.Kernel.from_ptx(text, "k").check(1, 8, [np.zeros(8, np.int32)])
    return [f"{item.kind} {item.count}" for item in found]


@pytest.mark.parametrize("first", range(4))
def test_what_is_computed_of_four_values_is_undefined_if_any_is(first: int) -> None:
    """The register of the result is one of them, wherever it stands."""
    names = ["%a", "%b", "%c", "%w"]
    sources = ", ".join(names[first:] + names[:first])
    # So all four are followed. The lanes that come here have defined values.
    possible = "@!%p bra on; mov.u32 %a, %v; mov.u32 %b, %v; mov.u32 %c, %v; mov.u32 %w, %v; on:"
    for wrong in names:
        by = f"{possible} mov.u32 {wrong}, %v; bfi.b32 %w, {sources};"
        assert _computed(by) == ["shuffle-inactive-lane 4"], wrong
    assert _computed(f"{possible} bfi.b32 %w, {sources};") == []


@pytest.mark.parametrize("predicate", ["%p", "!%p"])
@pytest.mark.parametrize(
    "join", ["setp.ne.xor.u32 %q, %v, 0, {};", "setp.ne.u32 %q, %v, 0; xor.pred %q, %q, %r;"]
)
def test_an_exclusive_or_with_a_predicate_throws_nothing_away(join: str, predicate: str) -> None:
    negation = "not.pred %r, %p;" if predicate == "!%p" else "mov.pred %r, %p;"
    by = f"{negation} {join.format(predicate)} selp.u32 %w, 1, 2, %q;"
    assert _computed(by) == ["shuffle-inactive-lane 4"]


def test_an_undefined_index_of_a_table_is_used() -> None:
    """Whichever way lanes go by it; what is stored is defined."""
    table = "T: .branchtargets A, B; and.b32 %c, {}, 1; brx.idx %c, T; A: mov.u32 %w, 5; bra C; B: mov.u32 %w, 6; C:"
    assert _computed(table.format("%v")) == ["shuffle-inactive-lane 4"]
    assert _computed(table.format("%t")) == []
