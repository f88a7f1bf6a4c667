"""Where does data live? The memory spaces with their scope and size, and what a step of a tile costs."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing
from tilewise.instruments.levels import Level

__all__ = ["make_spaces"]

_TOP, _ROW = 64.0, 40.0
_COLOURS = ("thread", "thread", "block", "muted", "good", "good")  # of the spaces
_STEPS = (16, 32)  # tiles' widths of the example


def tile_step(width: int) -> tuple[int, int, int]:
    """Of a step of two square tiles: elements that are loaded, operations, and bytes of shared memory, in float32."""
    return 2 * width**2, 2 * width**3, 8 * width**2


def make_spaces(subject: Subject) -> Panel:
    """The panel."""
    gpu, levels = subject.profile.gpu, subject.profile.levels
    registers, shared = gpu.limits.registers_per_sm * 4 >> 10, gpu.limits.shared_per_sm >> 10
    spaces = [
        ("registers", "a thread", "the thread's life", f"{registers} KB an SM"),
        ("local", "a thread", "the thread's life", "in global memory, through the caches"),
        ("shared", "a block", "the block's life", f"{shared} KB an SM"),
        ("constant", "all threads", "the program's", "64 KB, cached"),
        ("L2", "all SMs", "cache", f"{gpu.l2_bytes / 2**20:,.3g} MB" if gpu.l2_bytes else "not in the table"),
        ("global", "all threads", "until it is freed", "the GPU's memory"),
    ]
    drawing = Drawing(
        "Memory spaces, and what moves",
        "; ".join(f"{name}: {scope}, {size}" for name, scope, _, size in spaces),
        _TOP + len(spaces) * _ROW + 60 + len(levels) * 28 + 130,
    )
    drawing.text(16, 24, f"The spaces of {gpu.title}", "bold")
    _draw_spaces(drawing, spaces)
    top = _TOP + len(spaces) * _ROW + 30
    _draw_moved(drawing, levels, top)
    _draw_steps(drawing, top + 12 + len(levels) * 28 + 36)
    answer = (
        f"What is used again should live near: tiles are in registers ({registers} KB an SM) and shared memory "
        f"({shared} KB). Twice the width of a tile, twice the operations for each load."
    )
    rows = [
        *spaces,
        *(
            (f"moved: {level.name}", f"{level.read:,.0f} read", f"{level.written:,.0f} written", level.label)
            for level in levels
        ),
    ]
    table = Table(("space", "who", "how long", "how much"), rows)
    return Panel("spaces", "Where does data live?", answer, drawing, _list_facts(), table)


def _draw_spaces(drawing: Drawing, spaces: Sequence[tuple[str, str, str, str]]) -> None:
    for x, name in ((130, "who sees it"), (270, "how long"), (420, "how much")):
        drawing.text(x, 48, name, "small muted")
    for i, ((name, scope, life, size), colour) in enumerate(zip(spaces, _COLOURS, strict=True)):
        y = _TOP + i * _ROW
        drawing.rect(16, y, 100, 28, f"f-{colour} faint")
        drawing.text(26, y + 19, name, "bold")
        drawing.text(130, y + 19, scope)
        drawing.text(270, y + 19, life)
        drawing.text(420, y + 19, size)


def _draw_moved(drawing: Drawing, levels: Sequence[Level], top: float) -> None:
    drawing.text(16, top, "Bytes that this launch moves", "bold")
    most = max((level.read + level.written for level in levels), default=0.0) or 1.0
    for i, level in enumerate(levels):
        y = top + 12 + i * 28
        drawing.text(16, y + 15, level.name, "small")
        wide = (WIDTH - 380) * (level.read + level.written) / most
        drawing.rect(220, y + 3, max(wide, 1), 15, "f-block half")
        drawing.text(226 + wide, y + 15, _bytes(level.read + level.written), "small")


def _draw_steps(drawing: Drawing, top: float) -> None:
    drawing.text(16, top, "A step of two square tiles, in float32", "bold")
    for i, width in enumerate(_STEPS):
        loads, flops, shared = tile_step(width)
        says = f"{width}×{width}: {loads:,} loads, {flops:,} operations, {shared >> 10} KB of shared memory"
        drawing.text(16, top + 28 + i * 26, f"{says}; {flops // loads} operations a load")


def _list_facts() -> list[Fact]:
    facts = []
    for width in _STEPS:
        loads, flops, taken = tile_step(width)
        of = f"tiles of {width}"
        facts += [
            Fact(f"spaces.loads{width}", f"loads a step, {of}", loads, code=f"2 * {width}**2"),
            Fact(f"spaces.flops{width}", f"operations a step, {of}", flops, code=f"2 * {width}**3"),
            Fact(f"spaces.shared{width}", f"shared memory, {of}", taken, "bytes", code=f"8 * {width}**2"),
        ]
    return facts


def _bytes(count: float) -> str:
    for size, unit in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
