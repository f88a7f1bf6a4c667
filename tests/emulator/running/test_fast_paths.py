"""Whether launches go by the quick way where they can: how often compiled code calls what searches for an address.

What the quick way is for is time alone, so nothing else shows that it is not taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.emulator import native
from tilewise.emulator.running.plain_memory import PlainMemory
from tilewise.toolchain import cache

TURNS = 50
KERNEL = """.version 8.6
.target sm_90
.address_size 64
.visible .entry {name}(.param .u64 x, .param .u64 y) {{
.reg .b32 %n, %t, %o, %r, %i, %v, %ps, %s, %q<8>; .reg .b64 %px, %py, %off, %x, %y, %z, %w, %k, %a; .reg .pred %p;
.shared .align 16 .b8 s[1024]; .local .align 16 .b8 own[64];
mov.u32 %n, %tid.x; mul.lo.u32 %t, %n, 4; mul.wide.u32 %off, %n, 4;
ld.param.u64 %px, [x]; ld.param.u64 %py, [y]; add.u64 %x, %px, %off; add.u64 %y, %py, %off;
mov.u32 %ps, s; add.u32 %s, %ps, %t; xor.b32 %o, %n, 5; mad.wide.u32 %z, %o, 4, %px;
mad.wide.u32 %w, %n, 8, %px;
st.local.u32 [own], %t; st.shared.u32 [%s], %t;
ld.local.u32 %r, [own]; cvt.u64.u32 %k, %r; add.u64 %a, %px, %k;
mov.u32 %i, 0; mov.u32 %v, 1;
again: {line}
add.u32 %i, %i, 1; setp.lt.u32 %p, %i, {turns}; @%p bra again;
ret; }}"""


class Calls:
    """Counts the calls of routines of the run-time support in the kernels that are built from here on."""

    def __init__(self, patch: pytest.MonkeyPatch, *routines: str) -> None:
        self.assemble, self.counts = native.assemble, {routine: PlainMemory(8) for routine in routines}
        patch.setattr(native, "assemble", self.assemble_counting)
        patch.setattr(cache, "default", lambda: None)  # so that what counts is not kept on a disk

    def assemble_counting(self, text: str, *how: Any) -> bytes:
        for routine, count in self.counts.items():
            if found := re.search(rf"declare (\w+) @{routine}\((.*)\)", text):
                text = self.counted(text, routine, found[1], found[2].split(", "), count.address)
        return self.assemble(text, *how)

    def counted(self, text: str, routine: str, result: str, types: list[str], address: int) -> str:
        """The text with a function between the routine and who calls it."""
        given = ", ".join(f"{type_} %a{i}" for i, type_ in enumerate(types))
        found, value = ("", "") if result == "void" else ("%found = ", "%found")
        text = text.replace(f"call {result} @{routine}(", f"call {result} @counted.{routine}(")
        return f"""{text}
define internal {result} @counted.{routine}({given}) {{
  %before = atomicrmw add ptr inttoptr (i64 {address} to ptr), i64 1 monotonic
  {found}call {result} @{routine}({given})
  ret {result} {value}
}}
"""

    def take(self) -> dict[str, int]:
        return {routine: count.get(0, 8) for routine, count in self.counts.items()}


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as made:
        yield made


def built(name: str, line: str) -> tw.Kernel:
    return tw.Kernel.from_ptx(KERNEL.format(name=name, line=line, turns=TURNS), name)


# By what the loop does: its line, and the most searches that are needed, whatever the number of turns. An atomic
# instruction has all lanes of its first warp search.
LINES = {
    "loads of global memory": ("ld.global.u32 %v, [%x];", 1),
    "stores to global memory": ("st.global.u32 [%x], %v;", 1),
    "loads from anywhere": ("ld.u32 %v, [%x];", 1),
    "stores far from the start": ("st.global.u32 [%x+16000], %v;", 1),
    "loads of every other word": ("ld.global.u32 %v, [%w+8000];", 1),
    "loads of pairs": ("ld.global.v2.u32 {%v, %r}, [%w+8000];", 1),
    "loads of two arrays in turn": ("ld.global.u32 %v, [%x]; ld.global.u32 %r, [%y+12000];", 2),
    "loads of shared memory": ("ld.shared.u32 %v, [%s];", 0),
    "stores to shared memory": ("st.shared.u32 [%s], %v;", 0),
    "loads of local memory": ("ld.local.u32 %v, [own];", 0),
    "loads of the launch's parameters": ("ld.param.u32 %v, [x];", 0),
    "lanes in another order": ("ld.global.u32 %v, [%z]; st.global.u32 [%z+8000], %v;", 2),
    "lanes anywhere": ("ld.global.u32 %v, [%a]; st.global.u32 [%a], %v;", 2),
    "one word for all": ("ld.global.u32 %v, [%px];", 1),
    "one word of any lane": ("ld.u32 %v, [%py];", 1),
    "asynchronous copies": ("cp.async.ca.shared.global [%s], [%x], 4;", 1),
    "asynchronous copies of lanes anywhere": ("cp.async.ca.shared.global [%s], [%a], 4;", 1),
    "matrices": (
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%q0, %q1, %q2, %q3, %q4, %q5, %q6, %q7}, [%px], 16;",
        1,
    ),
    "global atomics": ("atom.global.add.u32 %v, [%x], 1;", 32),
    "reductions in global memory": ("red.global.max.u32 [%x], %v;", 32),
    "swaps in global memory": ("atom.global.cas.b32 %v, [%x], %v, %i;", 32),
    "sums of floats": ("atom.global.add.f32 %v, [%x], 0f3F800000;", 32),
    "atomics anywhere": ("atom.add.u32 %v, [%x], 1;", 32),
    "shared atomics": ("atom.shared.add.u32 %v, [%s], 1;", 0),
    "reductions in shared memory": ("red.shared.min.u32 [%s], %v;", 0),
}
PLAIN = [*LINES][: [*LINES].index("lanes in another order")]


@pytest.mark.parametrize("what", LINES)
def test_an_array_is_searched_for_once(what: str, patch: pytest.MonkeyPatch) -> None:
    line, most = LINES[what]
    calls = Calls(patch, "tw_find", "tw_resolve")
    x, y = np.zeros(4200, np.uint32), np.zeros(4200, np.uint32)
    built(f"searched_{[*LINES].index(what)}", line)(1, 64, [x, y], device="emulator")
    found = calls.take()
    assert max(found.values()) <= most, found
    assert found["tw_find"] > 0 or not most  # that they are counted


@pytest.mark.parametrize("what", PLAIN)
def test_accesses_of_lanes_in_order_are_checked_by_a_few_comparisons(
    what: str, patch: pytest.MonkeyPatch
) -> None:
    calls = Calls(patch, "tw_check", "tw_check_row", "tw_check_few")
    x, y = np.zeros(4200, np.uint32), np.zeros(4200, np.uint32)
    assert not built(f"checked_{PLAIN.index(what)}", LINES[what][0]).check(1, 64, [x, y])
    found = calls.take()
    assert found["tw_check"] == 0, found
    assert found["tw_check_row"] + found["tw_check_few"] >= (
        2 if "local" in what or "parameters" in what else 2 * TURNS
    )
