"""Where in the code? The lines that run most, collide most, and move most in vain."""

from __future__ import annotations

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing
from tilewise.instruments.line_figures import LineFigures

__all__ = ["make_code"]

_TOP, _ROW = 70.0, 44.0
_MOST, _LISTED = 10, 200  # lines that are drawn; that the table has
_COLUMNS = (
    (444.0, "instructions", "f-block half"),
    (538.0, "conflicts", "f-bad half"),
    (632.0, "sectors", "f-warp half"),
)
_WIDE = 70.0


def make_code(subject: Subject) -> Panel | None:
    """The panel; None where no line did anything."""
    lines = [line for line in subject.profile.lines if line.instructions or line.sectors or line.wavefronts]
    if not lines:
        return None
    lines.sort(key=lambda line: (-line.conflicts, -line.excess_sectors, -line.instructions))
    shown = sorted(lines[:_MOST], key=lambda line: (line.file, line.line))
    drawing = Drawing(
        "The lines that matter",
        "; ".join(f"{line.file}:{line.line} {line.instructions:,.0f} instructions" for line in shown),
        _TOP + len(shown) * _ROW + 10,
    )
    drawing.text(16, 24, "Lines of the source, the worst ten in order of place", "bold")
    for x, name, _ in _COLUMNS:
        drawing.text(x, 50, name, "small muted")
    most = [max((_value(line, name) for line in shown), default=0) for _, name, _ in _COLUMNS]
    for i, line in enumerate(shown):
        y = _TOP + i * _ROW
        drawing.text(16, y + 12, f"{line.file}:{line.line}", "small muted")
        drawing.text(16, y + 30, _cut(line.text, 50), "mono")
        for (x, name, classes), top in zip(_COLUMNS, most, strict=True):
            value = _value(line, name)
            if value:
                drawing.rect(x, y + 2, max(_WIDE * value / top, 1), 14, classes)
                drawing.text(x, y + 30, _short(value), "small")
        drawing.line(16, y + _ROW - 6, WIDTH - 16, y + _ROW - 6)
    worst = lines[0]
    if worst.conflicts:
        why = f"{worst.conflicts:,.0f} bank conflicts"
    elif worst.excess_sectors:
        why = f"{worst.excess_sectors:,.0f} sectors in vain"
    else:
        why = f"{worst.instructions:,.0f} instructions"
    answer = f"{worst.file}:{worst.line} stands out, with {why}: {_cut(worst.text, 90)}"
    facts = [
        Fact("code.instructions", "instructions of warps, all lines", int(sum(line.instructions for line in lines)),
             label="model", code="sum(line.instructions for line in explanation.subject.profile.lines)"),
        Fact("code.conflicts", "bank conflicts, all lines", int(sum(line.conflicts for line in lines)), label="model"),
    ]  # fmt: skip
    rows = [
        (
            f"{line.file}:{line.line}",
            f"{line.instructions:,.0f}",
            f"{line.conflicts:,.0f}",
            f"{line.sectors:,.0f}",
            _cut(line.text, 100),
        )
        for line in lines[:_LISTED]
    ]
    data = {
        "rows": [
            {"where": f"{line.file}:{line.line}", "line": line.line, "text": _cut(line.text, 100), "says": _say(line)}
            for line in shown
        ],
        "place": [8, _TOP - 6, WIDTH - 16, _ROW],
    }  # fmt: skip
    return Panel(
        "code", "Where in the code?", answer, drawing, facts,
        Table(("line", "instructions", "conflicts", "sectors", "text"), rows), data,
    )  # fmt: skip


def _say(line: LineFigures) -> str:
    """What a line does, in words."""
    counts = [(_value(line, name), name) for _, name, _ in _COLUMNS]
    return ", ".join(f"{value:,.0f} {name}" for value, name in counts if value)


def _value(line: LineFigures, name: str) -> float:
    return float(getattr(line, name))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"
