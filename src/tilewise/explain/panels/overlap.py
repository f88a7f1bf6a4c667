"""What overlaps? The warps of a block by dependency: who waits for whom, and which stages are in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.emulator.layout import RANK_SHIFT
from tilewise.emulator.profiling.recording import EventKind
from tilewise.emulator.support.bulk_requests import REQUEST
from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels.layout import counted
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing
from tilewise.instruments.recording import Recording

__all__ = ["Span", "list_spans", "make_overlap"]

_LEFT, _TOP, _ROW = 76.0, 66.0, 26.0
_MOST_WARPS, _MOST_STEPS = 14, 56  # that are drawn
_MOST_SPANS = 6_000  # that the page has
_OFFSETS = (1 << RANK_SHIFT) - 1

Numbers = npt.NDArray[np.int64]

_KINDS = {
    EventKind.LOAD: "read", EventKind.STORE: "write", EventKind.ATOMIC: "write",
    EventKind.COPY: "fetch", EventKind.FILL: "fetch", EventKind.BULK: "fetch",
    EventKind.PRODUCT: "multiply", EventKind.ARRIVE: "signal", EventKind.AWAIT: "wait",
    EventKind.WAIT: "wait", EventKind.THROUGH: "wait", EventKind.CLOSE: "", EventKind.DRAIN: "wait",
}  # fmt: skip
_WHATS = {int(what): what for what in EventKind}
_CLASSES = {
    "fetch": "f-mark half", "read": "f-block half", "multiply": "f-warp half", "write": "f-good half",
    "signal": "f-thread half", "wait": "f-quiet",
}  # fmt: skip
_LETTERS = {"read": "r", "write": "w", "fetch": "f", "multiply": "m", "signal": "s", "wait": "·"}


@dataclass(frozen=True, slots=True)
class Span:
    """Events of one kind that a warp did one after another; ``start`` counts steps that have to follow each other."""

    block: int
    warp: int
    kind: str
    start: int
    count: int
    event: int


def list_spans(recording: Recording, block: int) -> list[Span]:
    """The events of a block as spans of its warps, each as early as what it waits for allows.

    A barrier lets warps through once the last has come; an mbarrier, once all copies and arrivals that were told to it
    before are under way. What that takes is an order: nothing is known of time.
    """
    events = recording.events
    numbers = np.flatnonzero(events.block == block)
    kinds, whats = _kinds(recording, numbers), [_WHATS[code] for code in events.what[numbers].tolist()]
    warps, places = events.warp[numbers].tolist(), events.place[numbers].tolist()
    ends: dict[int, int] = {}  # by warp: when it is free again
    told: dict[int, int] = {}  # by mbarrier: the end of what it was told last
    met: dict[tuple[int, int], int] = {}  # by place and turn of a barrier: when the last warp came
    turns: dict[tuple[int, int, int], int] = {}  # by warp, place and kind: how often
    latest: dict[int, int] = {}  # by warp: the number of its last span
    found: list[list[Any]] = []  # warp, kind, start, count, event of each span
    for number, what, warp, place, kind in zip(numbers.tolist(), whats, warps, places, kinds, strict=True):
        if not kind:
            continue
        start = ends.get(warp, 0)
        if what in (EventKind.WAIT, EventKind.THROUGH):
            key = warp, place, int(what)
            turns[key] = turns.get(key, 0) + 1
            turn = key[1], turns[key]
        if what == EventKind.THROUGH:
            start = max(start, met.get(turn, 0))
        if what == EventKind.AWAIT:
            start = max(start, told.get(_mbarrier(recording, number), 0))
        last = latest.get(warp)
        if last is not None and found[last][1] == kind and what not in (EventKind.AWAIT, EventKind.THROUGH):
            found[last][3] += 1
            end = found[last][2] + 1
        else:
            latest[warp] = len(found)
            found.append([warp, kind, start, 1, number])
            end = start + 1
        ends[warp] = max(end, ends.get(warp, 0))
        if what == EventKind.WAIT:
            met[turn] = max(met.get(turn, 0), ends[warp])
        if what in (EventKind.ARRIVE, EventKind.BULK):
            told[_mbarrier(recording, number)] = ends[warp]
    return [Span(block, *one) for one in found]


def _kinds(recording: Recording, numbers: Numbers) -> list[str]:
    """What events are called here; nothing for those that are not shown."""
    events = recording.events
    out = np.array([".global.shared" in place.name for place in recording.places])
    found = [_KINDS[_WHATS[code]] for code in events.what[numbers].tolist()]
    for i in np.flatnonzero((events.what[numbers] == EventKind.BULK) & out[events.place[numbers]]).tolist():
        found[i] = "write"
    return found


def _mbarrier(recording: Recording, event: int) -> int:
    """The mbarrier of an event, as an offset in shared memory."""
    row = recording.events.addresses[event]
    if recording.events.what[event] == EventKind.BULK:
        return int(row[REQUEST.MBARRIER // 8]) & _OFFSETS
    return int(row[recording.lanes(event)[0]]) & _OFFSETS


def _count_waits(spans: Sequence[Span]) -> int:
    return sum(span.count for span in spans if span.kind == "wait")


def _answer(spans: Sequence[Span]) -> str:
    """In words: who fetches, who multiplies, and whether anything is fetched ahead."""
    fetching = {span.warp for span in spans if span.kind == "fetch"}
    multiplying = {span.warp for span in spans if span.kind == "multiply"}
    if multiplying and fetching and not fetching & multiplying:
        fetch, multiply = _named(fetching, "fetch", "fetches"), _named(multiplying, "multiply", "multiplies")
        return f"Warps have roles: {fetch} tiles, {multiply}; they wait for one another by mbarriers alone."
    if fetching:
        return "Every warp starts copies for later steps before it reads and multiplies those of this one."
    if _count_waits(spans):
        return "Nothing is fetched ahead: a warp loads, waits for the others at a barrier, and goes on."
    return "No warp waits for another: each goes through on its own."


def make_overlap(subject: Subject) -> Panel | None:
    """The panel; None for a recording without events."""
    recording = subject.recording
    if not recording.blocks:
        return None
    block = recording.blocks[0]
    spans = list_spans(recording, block)
    warps = sorted({span.warp for span in spans})
    if not spans:
        return None
    shown = (
        warps[:_MOST_WARPS]
        if len(warps) <= _MOST_WARPS
        else [*warps[: _MOST_WARPS // 2], *warps[-_MOST_WARPS // 2 :]]
    )
    drawing = Drawing(
        "Warps of a block by dependency",
        "Spans of fetching, reading, multiplying, writing and waiting, each as early as what it waits for allows.",
        _TOP + len(shown) * _ROW + 66,
    )
    drawing.text(24, 24, f"Block {block}: {counted(len(warps), 'warp')}, in order of dependency", "bold")
    x = 24.0
    for kind, classes in _CLASSES.items():
        drawing.rect(x, 36, 14, 14, classes)
        drawing.text(x + 19, 48, f"{kind} ({_LETTERS[kind]})", "small")
        x += 40 + 7.2 * len(kind) + 22
    most = max(span.start for span in spans) + 1
    with drawing.group("spans"):
        _draw_spans(drawing, spans, shown)
    y = _TOP + len(shown) * _ROW + 22
    drawing.text(_LEFT, y, "order, not time →", "small muted")
    if most > _MOST_STEPS:
        drawing.text(WIDTH - 20, y, f"the first {_MOST_STEPS} of {most:,} steps", "small muted", "end")
    facts = [
        Fact(
            "overlap.warps",
            "warps",
            len(warps),
            label="exact",
            code="len({*explanation.subject.recording.events.warp})",
        ),
        Fact("overlap.waits", "times that warps wait", _count_waits(spans), label="order"),
        Fact("overlap.steps", "steps, one after another", most, label="order"),
    ]
    rows = [(str(span.warp), span.kind, str(span.start), str(span.count)) for span in spans[:80]]
    listed = [
        [span.warp, list(_CLASSES).index(span.kind), span.start, span.count] for span in spans[:_MOST_SPANS]
    ]
    data = {
        "spans": listed, "kinds": list(_CLASSES), "warps": shown, "shown": _MOST_STEPS, "most": most,
        "place": [_LEFT, _TOP, _ROW],
    }  # fmt: skip
    return Panel(
        "overlap",
        "What overlaps?",
        _answer(spans),
        drawing,
        facts,
        Table(("warp", "does", "step", "events"), rows),
        data,
    )


def _named(warps: set[int], many: str, one: str) -> str:
    """Warps and what they do: "warp 4 fetches", "warps 0 to 3 multiply"."""
    listed = sorted(warps)
    return f"warp {listed[0]} {one}" if len(listed) == 1 else f"warps {listed[0]} to {listed[-1]} {many}"


def _draw_spans(drawing: Drawing, spans: list[Span], shown: list[int]) -> None:
    wide = (WIDTH - _LEFT - 20) / _MOST_STEPS
    for i, warp in enumerate(shown):
        drawing.text(_LEFT - 10, _TOP + i * _ROW + 16, f"warp {warp}", "small muted", "end")
        drawing.line(_LEFT, _TOP + i * _ROW + 11, WIDTH - 20, _TOP + i * _ROW + 11)
    for span in spans:
        if span.start >= _MOST_STEPS or span.warp not in shown:
            continue
        y = _TOP + shown.index(span.warp) * _ROW
        drawing.rect(_LEFT + span.start * wide, y, wide - 1, 22, _CLASSES[span.kind])
        drawing.text(_LEFT + (span.start + 0.5) * wide, y + 15, _LETTERS[span.kind], "small", "middle")
