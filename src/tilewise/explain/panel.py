"""What a panel of an explanation is: a question, its answer, a figure that says it, and the numbers behind it.

Panels are made by Python, complete: figure and numbers stand before any script runs. ``data`` is for the panel's
script, which makes the figure answer to a pointer and to keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewise.explain.svg import Drawing

__all__ = ["LABELS", "Fact", "Panel", "Table"]

LABELS = ("exact", "model", "order", "measured")
"""What a number is worth: counted or derived without loss; of a model; an order without time; timed on a GPU."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A number that a panel prints. ``name`` is unique on a page.

    ``code``, a line of Python, gives it again; without it, what an explanation has under its name does.
    """

    name: str
    what: str  # in a few words, as it stands before the number
    value: float | int | str
    unit: str = ""
    label: str = "exact"
    code: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """What a figure shows, for those who do not see it; and for whom a table says more."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One question and its answer.

    ``key`` names the figure on the command line, the panel's place in the page's address, and its script,
    ``scripts/KEY.js``, if there is one. ``figure`` is the first frame. ``data`` is for JSON, but for its NumPy arrays.
    """

    key: str
    question: str
    answer: str
    figure: Drawing
    facts: Sequence[Fact] = ()
    table: Table | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    guess: str = ""  # a question to think about before the figure is looked at, if there is a good one
