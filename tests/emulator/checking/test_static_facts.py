"""What a kernel's code tells the checker, beside a second way to find it out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewise.emulator.check_layout import ACCESS, WHO, Action
from tilewise.emulator.checking.static_facts import find_constants, map_lanes_to_words
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Instruction


def test_constants_are_registers_that_never_hold_anything_else() -> None:
    text = """.version 8.0 .target sm_80 .address_size 64 .visible .entry k() { .reg .b32 %r<7>;
mov.u32 %r0, 4; mov.u32 %r1, 4; mov.u32 %r1, 4; mov.u32 %r2, 4; mov.u32 %r2, 5; mov.u32 %r3, %r0;
mov.u32 %r4, 4; add.u32 %r4, %r4, 1; mov.u32 %r5, 0; ret; }"""
    function = parse(text).function("k")
    assert function is not None
    written = [item for item in function.body if isinstance(item, Instruction)]
    assert find_constants(written) == {"%r0", "%r1", "%r5"}


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
