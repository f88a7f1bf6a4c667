"""The marks of panels in lines of text; ``python -m tests.emulator.products.panel_marks`` writes the kept ones anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

import tilewise as tw
from tilewise.explain.climb import Climb
from tilewise.explain.explanation import Explanation
from tilewise.explain.panel import Panel

KEPT = Path(__file__).parents[2] / "golden" / "panels.txt"
# Those that no model of a GPU has a part in.
SHOWN = ("tiles", "owner", "levels", "load", "banks", "order", "overlap")
_ROWS = 8  # of a table, and elements of a list
_PLACES = ("x", "y", "width", "height", "cx", "cy", "r", "x1", "y1", "x2", "y2")


def explain_inner() -> Explanation:
    """Of the block in the third row and the fourth column of blocks, 32×32 elements each, one a thread."""
    rung = tw.ladder["05_tiled_conflicted"].plan(96, 160, 64, gpu="rtx-2060-super")
    return tw.explain(rung, element=(70, 100))


def list_marks(found: Explanation) -> str:
    """Each text with its place, and of other marks how many there are of a kind, and the sums of their places."""
    lines: list[str] = []
    for key in SHOWN:
        panel = found.panel(key)
        assert panel is not None
        lines += _marks_of(panel)
    return "\n".join(lines) + "\n"


def list_panels(found: Explanation | Climb) -> Iterator[str]:
    """The marks of every panel but what is made of others, its table, and what its script has to work with."""
    for panel in found.panels:
        if panel.key == "beside":
            continue
        yield from _marks_of(panel)
        yield f"  guess: {panel.guess}"
        if panel.table:
            yield f"  table: {' | '.join(panel.table.head)}"
            yield from (f"    {' | '.join(map(str, row))}" for row in panel.table.rows[:_ROWS])
            yield f"    {len(panel.table.rows)} rows"
        yield from (f"  data {name}: {_summed(value)}" for name, value in panel.data.items())


def _summed(value: Any) -> str:
    """Plain data in a line: of arrays the shape and the sum, of lists the first few."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} of {float(np.nansum(value)):.10g} in all"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_summed(part)}" for key, part in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = f", … {len(value)}" if len(value) > _ROWS else ""
        return "[" + ", ".join(map(_summed, value[:_ROWS])) + f"{more}]"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _marks_of(panel: Panel) -> Iterator[str]:
    yield f"{panel.key}: {panel.figure.width:g}×{panel.figure.height:g}"
    sums: dict[str, dict[str, float]] = {}
    for part in ElementTree.fromstring(panel.figure.to_svg()).iter():
        tag, classes = part.tag.rpartition("}")[2], part.get("class", "")
        places = {name: float(part.get(name, 0)) for name in _PLACES if name in part.attrib}
        if tag == "text" and len(part.text or "") > 1:
            where = f"{part.get('text-anchor', 'start')} {classes}".strip()
            yield f"  {places['x']:.0f} {places['y']:.0f} {where}: {part.text}"
        elif places:
            of = sums.setdefault(f"{tag} {classes}".strip(), {"count": 0})
            of["count"] += 1
            for name, value in places.items():
                of[name] = of.get(name, 0) + value
    for kind, of in sums.items():
        yield f"  {kind}: " + ", ".join(f"{name} {value:.0f}" for name, value in of.items())


if __name__ == "__main__":
    KEPT.write_text(list_marks(explain_inner()), encoding="utf-8")
