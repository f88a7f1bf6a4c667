"""What is said of a measurement: its ratios, whether it is within its budget, and how it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from tilewise.bench.measurement import Measurement, cells


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({}, "not measured"), ({"samples": (1.0,)}, ""), ({"samples": (1.0,), "aim": 0.5}, ""),
        ({"samples": (5.0,), "most": 5.0}, "ok"), ({"samples": (5.0,), "most": 4.9}, "over"),
        ({"samples": (5.0,), "least": 5.0}, "ok"), ({"samples": (5.0,), "least": 5.1}, "under"),
        ({"samples": (5.0,), "least": 4.0, "most": 4.5}, "over"), ({"samples": (3.0,), "least": 4.0, "most": 4.5}, "under"),
        ({"samples": (1.0, 5.0, 9.0), "most": 5.0}, "ok"), ({"samples": (1.0, 5.0, 9.0), "least": 5.0}, "ok"),
        ({"samples": (1.0, 6.0, 9.0), "most": 5.0}, "over"), ({"samples": (1.0, 4.0, 9.0), "least": 5.0}, "under"),
        ({"samples": (float("nan"),), "most": 5.0}, "over"), ({"samples": (float("nan"),), "least": 5.0}, "under"),
        ({"samples": (9.0,), "most": 5.0, "judged": False}, "not judged"), ({"samples": (9.0,), "judged": False}, ""),
        ({"samples": (1.0,), "most": 5.0, "wrong": True}, "WRONG"), ({"wrong": True, "judged": False}, "WRONG"),
        ({"samples": (8.0, 9.0), "rival": (4.0, 4.5), "least": 2.0}, "ok"),
        ({"samples": (8.0, 9.0), "rival": (4.0, 4.5), "most": 1.9}, "over"),
        ({"samples": (8.0, 9.0), "rival": (4.0, 4.5), "ratio_unit": "%", "least": 200.0}, "ok"),
        ({"samples": (8.0, 9.0), "rival": (4.0, 4.5), "ratio_unit": "%", "least": 201.0}, "under"),
        ({"samples": (8.0, 9.0), "rival": (4.0, 4.5), "ratio_unit": "×", "most": 2.0}, "ok"),
    ],
)  # fmt: skip
def test_a_figure_is_within_its_budget_by_the_median_of_its_ratios_or_of_itself(
    given: dict[str, Any], verdict: str
) -> None:
    """The budget itself is within it, and no number is not; where nothing may be judged, nothing is missed."""
    found = Measurement("a", "what", "s", **given)
    assert found.verdict == verdict and found.to_dict()["verdict"] == verdict
    assert found.missed == (verdict in ("over", "under", "WRONG"))


def test_ratios_are_of_samples_taken_in_turn() -> None:
    usual: dict[str, Any] = {"samples": (8.0, 9.0), "rival": (4.0, 3.0)}
    assert Measurement("a", "b", **usual).ratios == (2, 3)
    assert Measurement("a", "b", **usual, ratio_unit="%").ratios == (200, 300)
    assert Measurement("a", "b", samples=(8.0,)).ratios == ()
    with pytest.raises(ValueError, match="zip"):
        _ = Measurement("a", "b", samples=(8.0,), rival=(1.0, 2.0)).ratios


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"note": "it is not installed"}, ["w", "", "it is not installed", "", "", "not measured"]),
        ({"samples": (1.2345,)}, ["w", "1.23 s", "", "", "", ""]),
        ({"samples": (99.96, 100.4)}, ["w", "100 s (100–100)", "", "", "", ""]),
        ({"samples": (100.4, 1234.5, 99.94)}, ["w", "100 s (99.9–1,234)", "", "", "", ""]),
        ({"samples": (0.0,)}, ["w", "0 s", "", "", "", ""]), ({"samples": (0.001234,)}, ["w", "0.00123 s", "", "", "", ""]),
        ({"samples": (0.0009994,)}, ["w", "0.001 s", "", "", "", ""]), ({"samples": (-150.2,)}, ["w", "-150 s", "", "", "", ""]),
        ({"samples": (2.0,), "most": 1.0, "aim": 0.5}, ["w", "2 s", "", "", "≤ 1 s, aim 0.5 s", "over"]),
        ({"samples": (8.0,), "rival": (4.0,), "ratio_unit": "×", "against": "one", "least": 1.5},
         ["w", "8 s", "one: 4 s", "2×", "≥ 1.5×", "ok"]),
        ({"samples": (8.0,), "rival": (4.0,), "ratio_unit": "%", "against": "one", "most": 150.0},
         ["w", "8 s", "one: 4 s", "200%", "≤ 150%", "over"]),
        ({"samples": (8.0,), "rival": (4.0,), "ratio_unit": "s a line", "against": "lines"},
         ["w", "8 s", "lines", "2 s a line", "", ""]),
    ],
)  # fmt: skip
def test_a_figure_is_a_row_of_a_table(given: dict[str, Any], shown: list[str]) -> None:
    assert cells(Measurement("a", "w", "s", **given).to_dict()) == shown
