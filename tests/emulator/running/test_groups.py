"""Accesses to shared memory that one check of bounds is made for: which they are, and from where to where."""

from __future__ import annotations

import pytest

from tests.harness.lanes import entry
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.ptx.parse import parse

Found = tuple[str, int, int, int, int, int]


def groups(body: str) -> list[Found]:
    """Of each group: its register, the bytes from it that it begins and ends at, what is aligned, and its accesses."""
    head = """.shared .align 16 .b8 s[4096]; .reg .b32 %b, %v, %w, %x, %y; .reg .b64 %l; .reg .b16 %h; .reg .pred %p;
ld.param.u32 %b, [at]; mad.lo.u32 %v, %laneid, 4, %b; sub.u32 %w, %b, %laneid; setp.lt.u32 %p, %laneid, 9;"""
    program = Program(parse(entry(f"{head}\n{body}", ".param .u32 at")), "k", (32, 1, 1))
    members = [id(item) for group in program.leaders.values() for item in group.members]
    assert len(members) == len(set(members)) and set(members) == program.covered
    assert all(id(group.members[0]) == leader for leader, group in program.leaders.items())
    return [
        (group.base.name, group.low, group.high, group.align, group.anchor, len(group.members))
        for group in program.leaders.values()
    ]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("ld.shared.u32 %x, [%b+8]; st.shared.u32 [%b+20], %x;", [("%b", 8, 24, 4, 8, 2)]),
        ("ld.shared.u32 %x, [%b+8]; st.shared.u32 [%b-20], %x;", [("%b", -20, 12, 4, 8, 2)]),
        ("ld.shared.u32 %x, [%b+8];", []),  # one alone
        ("ld.shared.u32 %x, [%v+8]; ld.shared.u32 %y, [%v];", [("%v", 0, 136, 4, 8, 2)]),
        ("ld.shared.u8 %x, [%w+8]; ld.shared.u8 %y, [%w];", [("%w", -31, 9, 1, -23, 2)]),
        ("ld.shared.u64 %l, [%v]; ld.shared.u64 %l, [%v+8];", []),  # every other lane is not aligned
        ("ld.shared.u16 %h, [%v]; ld.shared.u16 %h, [%v+2];", [("%v", 0, 128, 2, 0, 2)]),
        ("ld.shared.u32 %x, [%b+4]; ld.shared.v2.u32 {%x, %y}, [%b+16];", [("%b", 4, 24, 8, 16, 2)]),
        ("ld.shared.v2.u32 {%x, %y}, [%b+16]; ld.shared.u32 %x, [%b+4];", [("%b", 4, 24, 8, 16, 2)]),
        # Where one is aligned the other cannot be.
        ("ld.shared.u32 %x, [%b+2]; ld.shared.u32 %y, [%b+4];", []),
        (
            "ld.shared.u32 %x, [%b+2]; ld.shared.u32 %y, [%b+4]; ld.shared.u32 %x, [%b+6]; ld.shared.u32 %y, [%b+8];",
            [("%b", 2, 10, 4, 2, 2), ("%b", 4, 12, 4, 4, 2)],
        ),
        # Behind a change of the register, or in other registers, it is another place.
        ("ld.shared.u32 %x, [%b]; add.u32 %b, %b, 4; ld.shared.u32 %y, [%b];", []),
        ("ld.shared.u32 %x, [%b]; ld.shared.u32 %b, [%b+4]; ld.shared.u32 %y, [%b];", [("%b", 0, 8, 4, 0, 2)]),
        ("ld.shared.u32 %x, [%b]; ld.shared.u32 %x, [%v];", []),
        # What may not be there, or is not this block's shared memory.
        ("ld.shared.u32 %x, [%b]; @%p ld.shared.u32 %x, [%b+4];", []),
        ("ld.shared.u32 %x, [%b]; ld.shared::cluster.u32 %x, [%b+4];", []),
        ("ld.shared.u32 %x, [s]; ld.shared.u32 %x, [s+4];", []),
        ("ld.shared.u32 %x, [%b]; atom.shared.add.u32 %x, [%b+4], 1;", []),
        ("@%p bra ON; ld.shared.u32 %x, [%b]; ld.shared.u32 %y, [%b+4]; ON:", []),  # lanes apart
    ],
)  # fmt: skip
def test_groups_have_accesses_that_are_within_bounds_together(body: str, found: list[Found]) -> None:
    assert groups(body) == found
