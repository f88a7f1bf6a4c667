"""An explanation: what binds a launch, and pictures of what it does, from running it on the emulator."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from html import escape
from typing import Any

from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.explain.page import make_page
from tilewise.explain.panel import Panel
from tilewise.explain.panels.banks import make_banks
from tilewise.explain.panels.code import make_code
from tilewise.explain.panels.layout import counted
from tilewise.explain.panels.levels import make_levels
from tilewise.explain.panels.limits import make_limits
from tilewise.explain.panels.load import make_load, table_of_lanes
from tilewise.explain.panels.order import make_order
from tilewise.explain.panels.overlap import make_overlap
from tilewise.explain.panels.owner import describe_element, describe_thread, make_owner
from tilewise.explain.panels.placement import make_placement
from tilewise.explain.panels.residency import make_residency
from tilewise.explain.panels.spaces import make_spaces
from tilewise.explain.panels.tiles import make_tiles
from tilewise.explain.subject import Subject
from tilewise.explain.trace import make_trace
from tilewise.instruments.recording import Recording
from tilewise.plan import Plan
from tilewise.problem import COMPLEX, result_of
from tilewise.verbs import profile, record

__all__ = ["FIGURES", "Explanation", "explain_plan"]

FIGURES: Mapping[str, Callable[[Subject], Panel | None]] = {
    "tiles": make_tiles,
    "owner": make_owner,
    "levels": make_levels,
    "load": make_load,
    "banks": make_banks,
    "placement": make_placement,
    "order": make_order,
    "overlap": make_overlap,
    "residency": make_residency,
    "limits": make_limits,
    "code": make_code,
    "spaces": make_spaces,
}
"""The figures by name, in the order of the page."""

_COUNTED_WHOLE = 2**28  # multiply-adds up to which every block is counted, not some of each kind


class Explanation:
    """What :func:`explain` found; printed, it is a text of 80 columns.

    >>> import tilewise as tw
    >>> found = tw.explain(tw.ladder["04_tiled"].plan(64, 64, 64, gpu="h200"))
    >>> print(found.element(40, 3).splitlines()[0])
    C[40, 3] is written by lane 3 of warp 8 of block 2
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._made: dict[str, Panel | None] = {}

    @property
    def verdict(self) -> list[str]:
        """What binds the launch, and what would move that; without machine code, that there is none."""
        found = self.subject.profile.verdict
        if found is not None:
            return found.lines()
        return [
            "no verdict: of foreign PTX there is no machine code here; pip install nvidia-nvjitlink assembles it"
        ]

    @property
    def text(self) -> str:
        """The answer first, then what each figure says."""
        found = [self.subject.title, "", *self.verdict, ""]
        found += [f"{panel.key:<10} {panel.answer}" for panel in self.panels]
        found += ["", *self.about, f"look       {self.subject.call}.html()"]
        return "\n".join(found)

    @property
    def about(self) -> list[str]:
        """What the pictures are of, and what they leave out."""
        recording, counted = self.subject.recording, self.subject.profile
        blocks = ", ".join(str(block) for block in recording.blocks[:8])
        which = (
            f"block{'s' * (len(recording.blocks) > 1)} {blocks}{' …' if len(recording.blocks) > 8 else ''}"
        )
        found = [
            f"recorded on the emulator: {len(recording):,} events of {which} of {recording.launch.blocks:,}"
        ]
        if recording.lost:
            found.append(f"what came after these {len(recording):,} events is in no picture")
        return [*found, *counted.notes, *self.subject.notes]

    @cached_property
    def panels(self) -> list[Panel]:
        """Every panel that there is for this launch."""
        made = [self.panel(name) for name in FIGURES]
        return [panel for panel in made if panel is not None]

    @property
    def facts(self) -> dict[str, float | int | str]:
        """Every number that the panels print, by name."""
        return {fact.name: fact.value for panel in self.panels for fact in panel.facts}

    def panel(self, name: str) -> Panel | None:
        """One of :data:`FIGURES` with its words and numbers; None where this launch has none."""
        if name not in self._made:
            self._made[name] = FIGURES[name](self.subject)
        return self._made[name]

    def figure(self, name: str) -> str:
        """A picture as SVG, by one of the names in :data:`FIGURES`."""
        if name not in FIGURES:
            raise UnknownNameError("figure", name, FIGURES)
        panel = self.panel(name)
        if panel is None:
            raise ArgumentError(
                "figure",
                "must be one that this launch has",
                name,
                f"it has {', '.join(one.key for one in self.panels)}",
            )
        return panel.figure.to_svg()

    def element(self, row: int, column: int) -> str:
        """Who computes an element of C."""
        return "\n".join(describe_element(self.subject, row, column))

    def thread(self, block: int, thread: int) -> str:
        """Which elements of C a thread of a block writes, in the first tile of its block."""
        return "\n".join(describe_thread(self.subject, block, thread))

    def line(self, number: int) -> str:
        """How lanes touch memory in a line of the source (of the PTX, where there is no other)."""
        number_of = self.subject.number_of
        found = [pattern for pattern in self.subject.patterns if number_of(pattern.line) == number]
        if not found:
            known = sorted({number_of(pattern.line) for pattern in self.subject.patterns})
            listed = ", ".join(map(str, known[:20]))
            raise ArgumentError("line", f"must be one that touches memory ({listed})", number)
        worst = max(found, key=lambda one: (one.wavefronts if one.shared else one.sectors) * one.runs)
        head = [
            self.subject.finder.describe(worst.line),
            f"{counted(len(found), 'pattern')} of lanes; the one that costs most, of {counted(worst.runs, 'run')}:",
        ]
        return "\n".join([*head, *table_of_lanes(self.subject, worst)])

    def html(self) -> str:
        """The page: one file that needs no network."""
        return make_page(self.subject.title, self.verdict, self.panels, self.subject.call, self.about)

    def trace(self) -> str:
        """The order of events as JSON that Perfetto opens; its units are steps, not time."""
        return json.dumps(make_trace(self.subject))

    def to_dict(self) -> dict[str, Any]:
        """The same facts as plain data."""
        found = self.subject.profile.verdict
        return {
            "title": self.subject.title,
            "verdict": found.to_dict() if found else None,
            "blocks": list(self.subject.recording.blocks),
            "events": len(self.subject.recording),
            "lost": self.subject.recording.lost,
            "figures": {
                panel.key: {
                    "question": panel.question,
                    "answer": panel.answer,
                    "facts": {
                        fact.name: {
                            "what": fact.what,
                            "value": fact.value,
                            "unit": fact.unit,
                            "label": fact.label,
                        }
                        for fact in panel.facts
                    },
                }
                for panel in self.panels
            },
            "notes": self.about,
        }

    def _repr_html_(self) -> str:
        """A notebook shows the page in a frame of its own."""
        title, page = escape(self.subject.title), escape(self.html())
        return f'<iframe title="{title}" width="100%" height="900" srcdoc="{page}"></iframe>'

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<tilewise.Explanation of {self.subject.title}>"


def explain_plan(plan: Plan, element: tuple[int, int] | None = None) -> Explanation:
    """Explain a plan; see :func:`explain`."""
    problem = plan.problem
    if element is not None and {problem.a, problem.b} & {*COMPLEX}:
        rule = "must be left out for complex numbers, which are multiplied as a product of real ones"
        raise ArgumentError(
            "element", rule, element, "the figures are of that product, and count its columns"
        )
    recording = record(plan, element=element)
    whole = problem.m * problem.n * problem.k * problem.batch <= _COUNTED_WHOLE
    counted = profile(plan, sample=None if whole else 1)
    (own,) = [one for one in counted.all if one.kernel == recording.kernel][:1] or [counted]
    notes = [
        f"another launch of the product, {one.kernel}, is not shown" for one in counted.all if one is not own
    ]
    title = f"{plan.kernel}: {problem} on {own.gpu.title}"

    def record_again(blocks: Sequence[int], wanted: tuple[int, int] | None) -> Recording:
        return record(plan, blocks=blocks, element=wanted)

    return Explanation(Subject(title, _call(plan), own, recording, record_again, plan, element, notes))


def _call(plan: Plan) -> str:
    """The line of Python that explains the plan."""
    problem = plan.problem
    sizes = f"{problem.m}, {problem.n}, {problem.k}"
    if plan.kernel[:1].isdigit():
        return f'tw.explain(tw.ladder["{plan.kernel}"].plan({sizes}, gpu="{plan.gpu}"))'
    layout = "".join("n" if lies == "row" else "t" for lies in (problem.a_layout, problem.b_layout))
    more: dict[str, object] = {"dtype": problem.a, "gpu": plan.gpu}
    usual: dict[str, object] = {
        "layout": "nn", "batch": 1, "groups": 0, "pointers": False, "arithmetic": None,
        "result": result_of(problem.a, not problem.epilogue.is_plain),
    }  # fmt: skip
    found = {**{name: getattr(problem, name, None) for name in usual}, "layout": layout, "result": problem.c}
    more.update((name, value) for name, value in found.items() if value != usual[name])
    given = ", ".join(
        f"{name}={json.dumps(value) if isinstance(value, str) else value}" for name, value in more.items()
    )
    return f"tw.explain(tw.plan({sizes}, {given}))"
