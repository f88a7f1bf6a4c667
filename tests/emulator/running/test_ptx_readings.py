"""What is read of PTX: heads, declarations, initial values, constants, scopes, labels and calls, right and wrong."""

from __future__ import annotations

import re

import pytest

from tests.golden_text import assert_unchanged
from tests.ptx_readings import COMMAND, GOLDEN, GROUPS, describe_group, expand, read


@pytest.mark.parametrize("group", GROUPS)
def test_a_change_of_what_is_read_is_seen(group: str) -> None:
    kept = re.split(r"^\[[\w ]+\]\n", GOLDEN.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    now = describe_group(group)
    assert_unchanged(kept[GROUPS.index(group)].strip("\n"), now, "what is read of PTX", COMMAND, context=0)


def test_a_text_stands_for_each_of_its_words() -> None:
    assert expand("a «b¦{c, d}¦»;«¦ e»") == [
        ("b ¦ ", "a b;"), ("b ¦  e", "a b; e"), ("{c, d} ¦ ", "a {c, d};"), ("{c, d} ¦  e", "a {c, d}; e"),
        (" ¦ ", "a ;"), (" ¦  e", "a ; e"),
    ]  # fmt: skip


_HEAD = ".version 9.0\n.target sm_90a\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # A branch is named where its guard is wrong, not what stands before it.
        (".entry k() {\n.reg .b32 %r;\nmov.u32 %r, 1;\n@%r bra L;\nL: ret; }", "6: bra: a predicate"),
        # An instruction is at its own line, though a mistake in it is seen at the next one.
        (
            ".entry k() {\n.reg .v2 .b32 %v;\nmov.v2.b32 %v, 1;\nret; }",
            "5: mov.v2.b32: it takes two vectors of 2 elements",
        ),
        (".global .u8 x = 0(y);", "3: a mask of an address must take one byte of it into one byte"),
        (".entry l() { ret; }\n.alias k, f;", "4: there is no function 'f' before its alias"),
        (".entry k();", "kernel 'k' is not known; none is known"),
        (".entry k(.param .u32 a,\n.param .u32 a) { ret; }", "4: the parameter 'a' stands twice"),
        (
            ".entry k(.param .align 3 .b8 a[4]) { ret; }",
            "3: an alignment that is not a power of two up to 4,096: 3",
        ),
    ],
)
def test_mistakes_are_named_where_they_are(text: str, said: str) -> None:
    assert read(_HEAD + text).startswith(said)
