"""What variables begin with: numbers in rows or one after another, and addresses among them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.thorough import examples
from tilewise.emulator import initial_content, parse

HEAD = ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n"
_COLUMNS = 3

_numbers = st.integers(-(2**31), 2**31 - 1)


@examples(40, 300)
@given(parts=st.lists(st.one_of(_numbers, st.lists(_numbers, max_size=_COLUMNS)), min_size=1, max_size=6))
def test_rows_and_numbers_of_a_matrix_follow_one_another(parts: list[int | list[int]]) -> None:
    """As in C: a row in braces is a whole one, and what it lacks is zero; others fill as many as they are."""
    said, expected = [], list[int]()
    for part in parts:
        if isinstance(part, int):
            said.append(str(part))
            expected.append(part)
        elif len(expected) % _COLUMNS == 0:
            said.append(f"{{{', '.join(map(str, part))}}}")
            expected += part + [0] * (_COLUMNS - len(part))
    rows = len(expected) // _COLUMNS + 1
    text = f"{HEAD}.global .s32 x[{rows}][{_COLUMNS}] = {{{', '.join(said)}}};"
    found = initial_content(parse(text), "x")
    data = np.frombuffer(found.data.ljust(found.size, b"\0"), np.int32).tolist()
    assert found.size == rows * _COLUMNS * 4
    assert data == expected + [0] * (rows * _COLUMNS - len(expected))


def test_what_lies_behind_an_address_stays_where_it_is() -> None:
    text = f"{HEAD}.func f() {{ ret; }}\n.const .align 8 .u32 n[4];\n.global .u64 x[5] = {{n+8, 5, f, 7, generic(n)}};"
    found = initial_content(parse(text), "x")
    assert (found.size, len(found.data), found.links) == (40, 40, ())
    own, five, function, seven, window = np.frombuffer(found.data, np.uint64).tolist()
    assert (own, five, seven) == (8, 5, 7) and len({0, own, five, function, seven, window}) == 6
