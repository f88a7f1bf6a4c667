"""The marks of panels in lines of text; ``python -m tests.emulator.products.panel_marks`` writes the kept ones anew."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import tilewise as tw
from tilewise.explain.explanation import Explanation

KEPT = Path(__file__).parents[2] / "golden" / "panels.txt"
# Those that no model of a GPU has a part in.
SHOWN = ("tiles", "owner", "levels", "load", "banks", "order", "overlap")
_PLACES = ("x", "y", "width", "height", "cx", "cy", "r", "x1", "y1", "x2", "y2")


def explain_inner() -> Explanation:
    """Of the block in the third row and the fourth column of blocks, 32×32 elements each, one a thread."""
    rung = tw.ladder["05_tiled_conflicted"].plan(96, 160, 64, gpu="rtx-2060-super")
    return tw.explain(rung, element=(70, 100))


def list_marks(found: Explanation) -> str:
    """Each text with its place, and of other marks how many there are of a kind, and the sums of their places."""
    lines = []
    for key in SHOWN:
        panel = found.panel(key)
        assert panel is not None
        lines.append(f"{key}: {panel.figure.width:g}×{panel.figure.height:g}")
        sums: dict[str, dict[str, float]] = {}
        for part in ElementTree.fromstring(panel.figure.to_svg()).iter():
            tag, classes = part.tag.rpartition("}")[2], part.get("class", "")
            places = {name: float(part.get(name, 0)) for name in _PLACES if name in part.attrib}
            if tag == "text" and len(part.text or "") > 1:
                where = f"{part.get('text-anchor', 'start')} {classes}".strip()
                lines.append(f"  {places['x']:.0f} {places['y']:.0f} {where}: {part.text}")
            elif places:
                of = sums.setdefault(f"{tag} {classes}".strip(), {"count": 0})
                of["count"] += 1
                for name, value in places.items():
                    of[name] = of.get(name, 0) + value
        for kind, of in sums.items():
            lines.append(f"  {kind}: " + ", ".join(f"{name} {value:.0f}" for name, value in of.items()))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    KEPT.write_text(list_marks(explain_inner()), encoding="utf-8")
