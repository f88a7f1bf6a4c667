"""The order of events as a trace that Perfetto and chrome://tracing open. Its units are steps, not time."""

from __future__ import annotations

from typing import Any

from tilewise.explain.panels.overlap import list_spans
from tilewise.explain.subject import Subject

__all__ = ["make_trace"]


def make_trace(subject: Subject) -> dict[str, Any]:
    """Trace events: a process for each recorded block, a thread for each warp."""
    events: list[dict[str, Any]] = []
    recording = subject.recording
    for block in recording.blocks:
        events.append(_name("process_name", block, 0, f"block {block}"))
        spans = list_spans(recording, block)
        warps = sorted({span.warp for span in spans})
        events += [_name("thread_name", block, warp, f"warp {warp}") for warp in warps]
        for span in spans:
            place = recording.places[recording.events.place[span.event]]
            events.append(
                {
                    "name": span.kind, "cat": span.kind, "ph": "X", "pid": block, "tid": span.warp,
                    "ts": span.start, "dur": 1,
                    "args": {"events": span.count, "instruction": place.name, "line": subject.where(place.line)},
                }
            )  # fmt: skip
    return {
        "traceEvents": events,
        "otherData": {
            "title": subject.title,
            "units": "steps that follow one another; nothing is known of time",
        },
    }


def _name(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
