"""Where does data live? The memory spaces with their scope and size, and what a step of a tile costs."""

from __future__ import annotations

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing

__all__ = ["make_spaces"]

_TOP, _ROW = 64.0, 40.0
_STEPS = (16, 32)  # tiles' widths of the example


def tile_step(width: int) -> tuple[int, int, int]:
    """Of a step of two square tiles: elements that are loaded, operations, and bytes of shared memory, in float32."""
    return 2 * width**2, 2 * width**3, 8 * width**2


def make_spaces(subject: Subject) -> Panel:
    """The panel."""
    gpu, profile = subject.profile.gpu, subject.profile
    limits = gpu.limits
    spaces = [
        ("registers", "a thread", "the thread's life", f"{limits.registers_per_sm * 4 >> 10} KB an SM"),
        ("local", "a thread", "the thread's life", "in global memory, through the caches"),
        ("shared", "a block", "the block's life", f"{limits.shared_per_sm >> 10} KB an SM"),
        ("constant", "all threads", "the program's", "64 KB, cached"),
        ("L2", "all SMs", "cache", f"{gpu.l2_bytes / 2**20:,.3g} MB" if gpu.l2_bytes else "not in the table"),
        ("global", "all threads", "until it is freed", "the GPU's memory"),
    ]
    moved = {level.name: level for level in profile.levels}
    drawing = Drawing(
        "Memory spaces, and what moves",
        "; ".join(f"{name}: {scope}, {size}" for name, scope, _, size in spaces),
        _TOP + len(spaces) * _ROW + 60 + len(moved) * 28 + 130,
    )
    drawing.text(16, 24, f"The spaces of {gpu.title}", "bold")
    for x, name in ((130, "who sees it"), (270, "how long"), (420, "how much")):
        drawing.text(x, 48, name, "small muted")
    for i, (name, scope, life, size) in enumerate(spaces):
        y = _TOP + i * _ROW
        drawing.rect(
            16,
            y,
            100 + 0 * i,
            28,
            ("f-thread", "f-thread", "f-block", "f-muted", "f-good", "f-good")[i] + " faint",
        )
        drawing.text(26, y + 19, name, "bold")
        drawing.text(130, y + 19, scope)
        drawing.text(270, y + 19, life)
        drawing.text(420, y + 19, size)
    top = _TOP + len(spaces) * _ROW + 30
    drawing.text(16, top, "Bytes that this launch moves", "bold")
    most = max((level.read + level.written for level in moved.values()), default=0.0) or 1.0
    for i, level in enumerate(moved.values()):
        y = top + 12 + i * 28
        drawing.text(16, y + 15, level.name, "small")
        wide = (WIDTH - 380) * (level.read + level.written) / most
        drawing.rect(220, y + 3, max(wide, 1), 15, "f-block half")
        drawing.text(226 + wide, y + 15, f"{_bytes(level.read + level.written)}", "small")
    y = top + 12 + len(moved) * 28 + 36
    drawing.text(16, y, "A step of two square tiles, in float32", "bold")
    for i, width in enumerate(_STEPS):
        loads, flops, shared = tile_step(width)
        drawing.text(
            16,
            y + 28 + i * 26,
            f"{width}×{width}: {loads:,} loads, {flops:,} operations, {shared >> 10} KB of shared memory; "
            f"{flops // loads} operations a load",
            "",
        )
    registers, shared = limits.registers_per_sm * 4 >> 10, limits.shared_per_sm >> 10
    answer = (
        f"What is used again should live near: tiles are in registers ({registers} KB an SM) and shared memory "
        f"({shared} KB). Twice the width of a tile, twice the operations for each load."
    )
    facts = []
    for width in _STEPS:
        loads, flops, taken = tile_step(width)
        facts += [
            Fact(f"spaces.loads{width}", f"loads a step, tiles of {width}", loads, code=f"2 * {width}**2"),
            Fact(
                f"spaces.flops{width}", f"operations a step, tiles of {width}", flops, code=f"2 * {width}**3"
            ),
            Fact(
                f"spaces.shared{width}",
                f"shared memory, tiles of {width}",
                taken,
                "bytes",
                code=f"8 * {width}**2",
            ),
        ]
    rows = [(name, scope, life, size) for name, scope, life, size in spaces]
    rows += [
        (f"moved: {level.name}", f"{level.read:,.0f} read", f"{level.written:,.0f} written", level.label)
        for level in moved.values()
    ]
    return Panel(
        "spaces",
        "Where does data live?",
        answer,
        drawing,
        facts,
        Table(("space", "who", "how long", "how much"), rows),
    )


def _bytes(count: float) -> str:
    for size, unit in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
