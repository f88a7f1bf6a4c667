"""The whole ladder, explained: how far each rung may come, how far it came on a GPU, and any two side by side."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from html import escape
from importlib import resources
from typing import Any

from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.explain.explanation import Explanation, explain_plan
from tilewise.explain.page import make_page
from tilewise.explain.panel import Panel
from tilewise.explain.panels.beside import make_beside
from tilewise.explain.panels.climb import Climber, make_climb, show_rate
from tilewise.gpus import Gpu, find
from tilewise.ladder import Rung, ladder

__all__ = ["FIGURES_BESIDE", "Climb", "explain_ladder"]

Progress = Callable[[int, int, str], None]
FIGURES_BESIDE = ("levels", "load", "banks", "placement", "overlap", "residency", "limits", "code")
"""The figures of rungs that are set beside each other."""

_SMALL = (256, 256, 128)
_FIRST = ("04_tiled", "05_tiled_conflicted")


class Climb:
    """What :func:`explain_ladder` found: the rungs by name, and the explanation of each."""

    def __init__(
        self, gpu: Gpu, rungs: Mapping[str, Climber], explanations: Mapping[str, Explanation]
    ) -> None:
        self.gpu, self.rungs, self.explanations = gpu, rungs, explanations

    @property
    def title(self) -> str:
        return f"The ladder: {len(self.rungs)} rungs on {self.gpu.title}"

    @property
    def verdict(self) -> list[str]:
        """The climb in two lines."""
        best = max(self.rungs.values(), key=lambda one: one.rate)
        found = [f"{show_rate(best.rate)} at most by {best.name}, bound by {best.bound}"]
        rungs = list(self.rungs.values())
        steps = [
            (after.rate / before.rate, before.name, after.name)
            for before, after in itertools.pairwise(rungs)
            if before.size == after.size
        ]
        if steps:
            times, before, after = max(steps)
            found.append(f"the greatest step from {before} to {after}: the limit rises {times:.3g} times")
        return found

    @property
    def text(self) -> str:
        """A line a rung."""
        rows = "\n".join(
            f"{name:<22} {rate:>13} at most ({bound}){f', measured {measured}' if measured else ''}"
            for name, rate, bound, measured, _ in self.table[1]
        )
        return "\n".join([self.title, "", *self.verdict, "", rows, "", *self.about])

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """The rungs as a table: its head and its rows."""
        rows = []
        for one in self.rungs.values():
            rate = one.measured_rate
            measured = [show_rate(rate), f"{rate / one.rate:.0%}"] if rate else ["", ""]
            rows.append([one.name, show_rate(one.rate), one.bound, *measured])
        return ["rung", "at most", "bound by", "measured", "of it"], rows

    @property
    def about(self) -> list[str]:
        """What was counted, and where measured times are from."""
        sizes = sorted({"×".join(map(str, one.size)) for one in self.rungs.values()})
        found = [f"limits are of {', '.join(sizes)}: what a block of each kind does, counted on the emulator"]
        found.append(f"figures of rungs are of {'×'.join(map(str, _SMALL))}, or of what a rung takes")
        return [*found, self._source] if self._source else found

    @property
    def _source(self) -> str:
        if not any(one.measured for one in self.rungs.values()):
            return ""
        times = _read_times()
        return f"Measured on {self.gpu.title}, driver {times['driver']}, {times['date']}."

    @cached_property
    def panels(self) -> list[Panel]:
        """The climb, and two rungs side by side."""
        pictures = {
            name: [panel for key in FIGURES_BESIDE if (panel := one.panel(key)) is not None]
            for name, one in self.explanations.items()
        }
        first = _FIRST if {*_FIRST} <= {*pictures} else tuple(pictures)[:2]
        return [
            make_climb(list(self.rungs.values()), self.gpu.title, self._source),
            make_beside(pictures, first),
        ]

    @property
    def facts(self) -> dict[str, float | int | str]:
        """Every number that the panels print, by name."""
        return {fact.name: fact.value for panel in self.panels for fact in panel.facts}

    def figure(self, name: str) -> str:
        """A picture as SVG: "climb" or "beside"."""
        for panel in self.panels:
            if panel.key == name:
                return panel.figure.to_svg()
        raise UnknownNameError("figure", name, [panel.key for panel in self.panels])

    def html(self) -> str:
        """The page: one file that needs no network."""
        call = f'tw.explain(tw.ladder, gpu="{self.gpu.name}")'
        return make_page(self.title, self.verdict, self.panels, call, self.about)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "title": self.title,
            "verdict": self.verdict,
            "rungs": {
                one.name: {
                    "size": list(one.size), "seconds": one.seconds, "bound": one.bound, "rate": one.rate,
                    "measured": one.measured, "measured_rate": one.measured_rate,
                }
                for one in self.rungs.values()
            },
            "notes": self.about,
        }  # fmt: skip

    def _repr_html_(self) -> str:
        page = escape(self.html())
        return f'<iframe title="{escape(self.title)}" width="100%" height="900" srcdoc="{page}"></iframe>'

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<tilewise.Climb of {len(self.rungs)} rungs on {self.gpu.title}>"


def explain_ladder(
    gpu: str | Gpu = "h200", progress: Progress | None = None, *, rungs: Sequence[str] | None = None
) -> Climb:
    """Explain every rung that a GPU runs, or those of ``rungs``: two at least.

    ``progress`` is called with how many are done, of how many, and the name of the next.
    """
    found = find(gpu) if isinstance(gpu, str) else gpu
    given = ladder.values() if rungs is None else [ladder[name] for name in rungs]
    chosen = [rung for rung in given if rung.spec.runs_on(found.arch)]
    if len(chosen) < 2:
        raise ArgumentError("gpu", "must be one that two rungs run on", found.name)
    climbers, explanations = {}, {}
    for i, rung in enumerate(chosen):
        if progress:
            progress(i, len(chosen), rung.name)
        climbers[rung.name] = _climber(rung, found)
        small = rung.fitting_size(_SMALL)
        explanations[rung.name] = explain_plan(rung.plan(*small, gpu=found))
    return Climb(found, climbers, explanations)


def _climber(rung: Rung, gpu: Gpu) -> Climber:
    """A rung's limit, and its time if there is one for this GPU."""
    times = _read_times()
    listed = {name: ((m, n, k), time) for name, m, n, k, time in times["rungs"]}
    size, time = listed[rung.name]
    profile = rung.profile(*size, gpu=gpu, sample=1)
    seconds = sum(one.roofline.seconds for one in profile.all)
    longest = max(profile.all, key=lambda one: one.roofline.seconds)
    bound = max(longest.roofline.bounds, key=lambda one: one.seconds).name
    return Climber(
        rung.name, rung.title, size, seconds, bound, time * 1e-6 if times["gpu"] == gpu.name else None
    )


def _read_times() -> dict[str, Any]:
    text = (resources.files("tilewise.explain") / "rung_times.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
