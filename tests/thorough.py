"""What the default suite tries of a family of cases, and what it leaves to ``make test-thorough``.

A kernel is compiled anew for every tile, type and schedule, and that is what tests spend their time on. So a test of a
whole family says ``@pytest.mark.few(3)``: by default three of its cases, which have as many values of its parameters as
three can have; or it names them, ``@pytest.mark.few("64x64x32", "128x256x32")``. The others are marked ``thorough``.
Where hypothesis draws the cases, ``@examples(3, 20)`` says how many: by default, and in a thorough run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import example, settings

__all__ = ["PROFILE", "examples", "leave_some", "thorough_example"]

PROFILE = "thorough"  # hypothesis's, in a thorough run

_Test = TypeVar("_Test", bound=Callable[..., Any])


def examples(few: int, many: int, **others: Any) -> Callable[[_Test], _Test]:
    """How many examples hypothesis draws: ``few`` by default, ``many`` in a thorough run, which has the test as well."""
    thorough = settings.get_current_profile_name() == PROFILE

    def decorate(test: _Test) -> _Test:
        drawn = settings(max_examples=many if thorough else few, deadline=None, **others)(test)
        return pytest.mark.thorough(drawn) if thorough else drawn

    return decorate


def thorough_example(*values: Any) -> Callable[[_Test], _Test]:
    """An example that is tried in a thorough run alone."""

    def decorate(test: _Test) -> _Test:
        tried: _Test = example(*values)(test) if settings.get_current_profile_name() == PROFILE else test
        return tried

    return decorate


def leave_some(items: Iterable[pytest.Item]) -> None:
    """Mark as thorough all but the few cases of each test that has a few."""
    families: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("few"):
            families[item.nodeid.partition("[")[0]].append(item)
    for family in families.values():
        mark = family[0].get_closest_marker("few")
        assert mark is not None
        for item in _left(family, mark.args):
            item.add_marker(pytest.mark.thorough)


def _left(family: list[pytest.Function], few: tuple[int | str, ...]) -> list[pytest.Function]:
    """What is beyond the few: nothing where cases were asked for that are none of them."""
    if isinstance(few[0], int):
        kept = spread([_values(item) for item in family], few[0])
        return [item for place, item in enumerate(family) if place not in kept]
    left = [item for item in family if item.callspec.id not in few]
    return left if len(left) < len(family) else []


def _values(item: pytest.Function) -> set[tuple[str, str]]:
    """Of the parameters, and of what they have in them. NOTE: text will do: it only has to tell them apart."""
    values: dict[str, Any] = {}
    for name, value in (item.callspec.params if hasattr(item, "callspec") else {}).items():
        if is_dataclass(value):
            values |= {f"{name}.{field.name}": getattr(value, field.name) for field in fields(value)}
        else:
            values |= value if isinstance(value, dict) else {name: value}
    return {(str(name), repr(value)) for name, value in values.items()}


def spread(cases: Sequence[set[tuple[str, str]]], count: int) -> list[int]:
    """Which so many cases have most values between them; where that leaves a choice, those that are far from one
    another: of a list of tiles the first, the last and one in the middle."""
    kept = [0]
    missing = set[tuple[str, str]]().union(*cases) - cases[0]
    while len(kept) < min(count, len(cases)):
        left = [i for i in range(len(cases)) if i not in kept]
        best = max(left, key=lambda i: (len(cases[i] & missing), min(abs(i - j) for j in kept)))
        kept.append(best)
        missing -= cases[best]
    return kept
