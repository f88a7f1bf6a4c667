"""What is refused of every instruction, and in which words: a rule that lets something else pass is seen, also where no test
of its family asks.
"""

from __future__ import annotations

import pytest

from tests.golden_text import assert_unchanged
from tests.ptx_variants import changed_instructions
from tests.refusals import COMMAND, GOLDEN, PARTS, answer, describe_part, list_blocks


@pytest.mark.parametrize("part", range(PARTS))
def test_a_change_of_what_is_refused_is_seen(part: int) -> None:
    """Modifiers and operands left out, doubled, added, replaced and moved, for each operation."""
    kept = "\n".join(list_blocks(GOLDEN.read_text(encoding="utf-8"))[part::PARTS])
    now = "\n".join("\n".join(lines) for lines in describe_part(part))
    assert_unchanged(kept, now, "what is refused of instructions", COMMAND, context=0)


def test_variants_have_one_change_each() -> None:
    found = dict(changed_instructions("add.sat.s32 %r0, %r1, 5"))
    assert found["word without sat"] == "add.s32 %r0, %r1, 5"
    assert found["word twice sat"] == "add.sat.sat.s32 %r0, %r1, 5"
    assert found["word s32 to u64 of -1"] == "add.sat.u64 %r0, %r1, 5"
    assert found["operand without the last"] == "add.sat.s32 %r0, %r1"
    assert found["operand 1 of 3, r: [sh+4]"] == "add.sat.s32 %r0, [sh+4], 5"
    assert found["operand 2 of 3, 5: 0x80000000"] == "add.sat.s32 %r0, %r1, 0x80000000"
    vector = dict(changed_instructions("ld.v2.u32 {%r0, %r1}, [%d0]"))
    assert vector["operand 0 of 2, {: less"] == "ld.v2.u32 {%r0}, [%d0]"
    assert vector["operand 0 of 2, {: 1 is sh"] == "ld.v2.u32 {%r0, sh}, [%d0]"


def test_a_name_is_said_as_the_text_has_it() -> None:
    """Also where a name has another one within the emulator: in a scope of its own, in a function, with an offset."""
    declared = "is declared .b64, and .u32 wants .b32, .u32 or .s32"
    scopes = "{ .reg .b32 %x; } { .reg .b64 %x; add.u32 %r0, %r1, %x; }"
    assert answer(scopes) == (True, f"PTX line 9: add.u32: %x {declared}")
    assert answer("add.u32 %r0, %r1, %d0+4") == (True, f"PTX line 9: add.u32: %d0 {declared}")
    assert answer("add.u32 %r0, %r1, _") == (
        True,
        "PTX line 9: add.u32: _ stands for no value: it is for results that nothing wants",
    )


def test_a_form_that_an_opcode_lacks_is_not_called_another_opcode() -> None:
    assert answer("bar.inval 9, 96") == (
        True,
        "PTX line 9: the instruction 'bar.inval' is not supported: 'bar' has no such form",
    )
