"""Cards of rungs: how values of a setting are listed."""

from __future__ import annotations

from tilewise.bench.rung_cards import _listed


def test_values_are_listed_up_to_16_and_of_more_the_first_and_the_last() -> None:
    assert _listed((2, 1)) == "2|1" and _listed(("row", "column")) == "row|column" and _listed((7,)) == "7"
    assert _listed(tuple(range(1, 17))) == "1|2|3|4|5|6|7|8|9|10|11|12|13|14|15|16"
    assert _listed(tuple(range(1, 18))) == "1…17"
