"""What a kernel's code tells the checker, beside a second way to find it out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tilewise.emulator.check_layout import ACCESS, WHO, Action
from tilewise.emulator.checking.static_facts import find_constants, find_uses, map_lanes_to_words
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.instruments.checking import Checker


def test_constants_are_registers_that_never_hold_anything_else() -> None:
    text = """.version 8.0 .target sm_80 .address_size 64 .visible .entry k() { .reg .b32 %r<7>;
mov.u32 %r0, 4; mov.u32 %r1, 4; mov.u32 %r1, 4; mov.u32 %r2, 4; mov.u32 %r2, 5; mov.u32 %r3, %r0;
mov.u32 %r4, 4; add.u32 %r4, %r4, 1; mov.u32 %r5, 0; ret; }"""
    function = parse(text).function("k")
    assert function is not None
    written = [item for item in function.body if isinstance(item, Instruction)]
    assert find_constants(written) == {"%r0", "%r1", "%r5"}


def test_a_register_that_an_address_begins_at_is_not_only_passed_on() -> None:
    """Whether something is added to it or not."""
    text = """.version 8.0 .target sm_80 .address_size 64 .visible .entry k() { .reg .b64 %d<9>; .reg .b32 %r<9>;
ld.global.v2.b64 {%d0, %d1}, [%d2]; st.global.v2.b64 [%d3], {%d0, %d1}; st.global.b32 [%d0+4], %r1; add.u64 %d4, %d1, 8;
ld.global.b32 %r2, [%d4]; ret; }"""
    function = parse(text).function("k")
    assert function is not None
    uses = find_uses(item for item in function.body if isinstance(item, Instruction))
    addresses = {name for name, ways in uses.items() if "" in ways}
    assert addresses == {"%d0", "%d2", "%d3", "%d4"} and uses["%d1"] - {"st"} == {"add"}


@given(
    st.lists(st.integers(-70, 70), min_size=32, max_size=32),
    st.sampled_from((1, 2, 4, 8, 16)),
    st.sampled_from(Action),
)
def test_words_have_the_lanes_and_bytes_that_are_accessed(
    starts: list[int], size: int, action: Action
) -> None:
    lanes = tuple(size * start for start in starts)
    low = min(lanes)
    users: dict[int, dict[int, int]] = {}  # by word and lane: bytes
    for lane, start in enumerate(lanes):
        for byte in range(start - low, start - low + size):
            own = users.setdefault(byte // 4, {})
            own[lane] = own.get(lane, 0) | 1 << byte % 4
    wanted = {}
    for word, own in users.items():
        together = WHO.SEVERAL if len(set(own.values())) == 1 else WHO.MIXED
        every = sum(1 << bit for bit in range(4) if any(part >> bit & 1 for part in own.values()))
        wanted[word] = (together if len(own) > 1 else next(iter(own)), every)
    plain = all(who < WHO.SEVERAL and bytes_ == ACCESS.BYTES for who, bytes_ in wanted.values())
    careful = action == Action.ATOMIC or len(wanted) > 256 or (action == Action.STORE and not plain)
    assert map_lanes_to_words(lanes, size, action) == (None if careful else wanted)


# Lane i reads lane i + 8, by an instruction that says its mask itself; %low is true of a warp's lower half.
SHUFFLED = """.version 6.0
.target sm_60
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
{
  .reg .u64 %x, %y, %off; .reg .u32 %t, %lane, %v, %u, %m; .reg .pred %low, %p;
  mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; setp.lt.u32 %low, %lane, 16; mul.wide.u32 %off, %t, 4;
  ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; add.u64 %x, %x, %off; add.u64 %y, %y, %off;
  ld.global.u32 %v, [%x]; mov.u32 %u, 0; mov.u32 %m, -1;
  DO
done:
  st.global.u32 [%y], %u;
  ret;
}
"""
HOW = {  # and whether what a lane stores may be what no lane gave
    "all": ("shfl{} %u, %v, 8, 31{};", False),
    "in a loop of all": (
        "mov.u32 %lane, 0; again: shfl{} %u, %v, 8, 31{}; add.u32 %lane, %lane, 1; setp.lt.u32 %p, %lane, 3; @%p bra again;",
        False,
    ),
    "guarded": ("@%low shfl{} %u, %v, 8, 31{};", True),
    "guarded by what is the same": ("setp.eq.u32 %p, %m, -1; @%p shfl{} %u, %v, 8, 31{};", False),
    "apart": ("@!%low bra done; shfl{} %u, %v, 8, 31{};", True),
    "once others left": ("@!%low exit; shfl{} %u, %v, 8, 31{};", True),
    "before others leave": ("shfl{} %u, %v, 8, 31{}; @%low exit;", False),
    "once others went away": ("@%low bra on; exit; on: shfl{} %u, %v, 8, 31{};", True),
    "then added to": (
        "@!%low bra done; shfl{} %lane, %v, 8, 31{}; add.u32 %t, %lane, %v; mul.lo.u32 %u, %t, 3;",
        True,
    ),
    "then left": ("@!%low bra done; shfl{} %u, %v, 8, 31{}; mov.u32 %u, 3;", False),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("form", ["sync, written", "sync, held", "without a mask"])
def test_a_shuffle_is_watched_wherever_a_lane_may_be_missing(form: str, how: str) -> None:
    """Of shuffles that all lanes of all warps take part in nothing is looked at; a mask alone does not say so."""
    sync, mask = {"sync, written": (".sync.down.b32", ", -1"), "sync, held": (".sync.down.b32", ", %m")}.get(
        form, (".down.b32", "")
    )
    text, wrong = HOW[how]
    kernel = tw.Kernel.from_ptx(SHUFFLED.replace("DO", text.format(sync, mask)), "k")
    for threads in (64, 48 + 8):  # of the last warp a quarter is not there
        x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
        found = {item.kind for item in kernel.check(1, threads, [x, y])}
        lacks = threads % 32 != 0 and how != "then left"
        assert found == ({"shuffle-inactive-lane"} if wrong or lacks else set()), (threads, found)


def test_launches_behind_one_with_findings_are_checked_too() -> None:
    """Reading what nobody wrote yet ends no launch."""
    source = """extern "C" __global__ void early(int *x) {
        __shared__ volatile int s[64]; s[threadIdx.x] = 1; if (s[threadIdx.x ^ 32] == 7) x[0] = 1; }"""
    bound = tw.Kernel(source, "early", "sm_80").bind(1, 64, [0], device="emulator").bound
    once, twice = (Checker().check(replace(bound, launches=bound.launches * count)) for count in (1, 2))
    assert once and [one.kind for one in twice] == [one.kind for one in once] * 2
