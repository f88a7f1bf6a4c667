"""How full is the GPU? What an SM has, what a block takes of it, and which fills first."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels.layout import counted
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing
from tilewise.gpus import find
from tilewise.instruments.occupancy import Occupancy, occupancy

__all__ = ["make_residency"]

_LEFT, _TOP = 150.0, 58.0
_WIDE = WIDTH - _LEFT - 180  # beside it is what there is room for
_EXAMPLE_GPU, _EXAMPLE = "rtx-2060-super", (256, 40)  # threads of a block, registers of a thread
_STAIRS = (16, 256, 8)  # registers of a thread that the staircase tries


def make_residency(subject: Subject) -> Panel | None:
    """The panel; None where the assembler's figures are not known."""
    found = subject.profile.occupancy
    if found is None:
        return None
    gpu = subject.profile.gpu
    held = f"{counted(found.blocks, 'block')} of {counted(found.threads, 'thread')}"
    drawing = Drawing(
        "What fills an SM first",
        f"An SM of {gpu.title} holds {held}, at {found.registers} registers.",
        440,
    )
    drawing.text(
        24,
        26,
        f"One SM of {gpu.title}: {held}",
        "bold",
    )
    limits = sorted(found.limits.items(), key=lambda pair: pair[1])
    _draw_limits(drawing, limits, found)
    top = _TOP + len(limits) * 34 + 34
    stairs = _stairs(subject, found)
    _draw_stairs(drawing, stairs, found, top)
    _draw_waves(drawing, subject, found, top)
    rule = " and ".join(found.binding) or "nothing"
    answer = (
        f"{found.warps} of {found.warps_most} warps ({found.ratio:.0%}), limited by {rule}. Registers divided by those "
        f"of a thread say {found.threads_by_division:,} threads; an SM runs {found.threads_per_sm:,}, in whole blocks."
    )
    rows = [(name, str(most), "yes" if name in found.binding else "") for name, most in limits]
    data = {"stairs": stairs, "registers": found.registers, "threads": found.threads}
    return Panel(
        "residency", "How full is the GPU?", answer, drawing, _list_facts(found),
        Table(("limit", "blocks of an SM", "binds"), rows), data,
        guess="An SM of an RTX 2060 SUPER has 65,536 registers. How many threads of 40 registers does it run?",
    )  # fmt: skip


def _draw_limits(drawing: Drawing, limits: Sequence[tuple[str, int]], found: Occupancy) -> None:
    """What an SM has, each with the blocks that it holds, and room for as many as there would be."""
    for i, (name, most) in enumerate(limits):
        y, binds = _TOP + i * 34, name in found.binding
        drawing.text(_LEFT - 12, y + 15, name, "", "end")
        drawing.rect(_LEFT, y, _WIDE, 20, "f-panel s-rule")
        part = _WIDE / max(most, 1)
        for block in range(min(found.blocks, 64) if most else 0):
            colour = "f-block" if binds else "f-block half"
            drawing.rect(_LEFT + block * part + 1, y + 1, max(part - 2, 1), 18, colour)
        shown = f"room for {most}" + (": binds" if binds else "")
        drawing.text(_LEFT + _WIDE + 10, y + 15, shown, "bold" if binds else "")


def _list_facts(found: Occupancy) -> list[Fact]:
    code = "explanation.subject.profile.occupancy.blocks"
    facts = [
        Fact("residency.blocks", "blocks of an SM", found.blocks, code=code),
        Fact("residency.threads", "threads of an SM", found.threads_per_sm),
        Fact("residency.division", "by division of registers", found.threads_by_division),
        Fact("residency.registers", "registers of a thread", found.registers),
        Fact("residency.shared", "shared memory of a block", found.shared, "bytes"),
    ]
    if found.waves is not None:
        facts.append(Fact("residency.waves", "waves of blocks", round(found.waves, 4)))
    if found.next_registers:
        what = "registers of a thread for one block more"
        facts.append(Fact("residency.next", what, found.next_registers))
    example, what = occupancy(find(_EXAMPLE_GPU), *_EXAMPLE), "RTX 2060 SUPER, 40 registers: by division"
    return [
        *facts,
        Fact("residency.example_division", what, example.threads_by_division),
        Fact("residency.example", "and that it runs", example.threads_per_sm),
    ]


def _stairs(subject: Subject, found: Occupancy) -> list[tuple[int, int]]:
    """Warps of an SM by the registers of a thread."""
    first, last, step = _STAIRS
    listed = []
    for registers in range(first, last, step):
        made = occupancy(subject.profile.gpu, found.threads, registers, found.shared, barriers=found.barriers)
        listed.append((registers, made.warps))
    return listed


def _draw_stairs(drawing: Drawing, stairs: list[tuple[int, int]], found: Occupancy, top: float) -> None:
    left, wide, high = 60.0, 300.0, 110.0
    drawing.text(24, top, "Warps of an SM, by registers of a thread", "bold")
    base = top + 30 + high
    most = max(found.warps_most, 1)
    points: list[tuple[float, float]] = []
    for i, (registers, warps) in enumerate(stairs):
        x, y = left + (registers - _STAIRS[0]) / (_STAIRS[1] - _STAIRS[0]) * wide, base - warps / most * high
        points += [(x, points[-1][1]), (x, y)] if i else [(x, y)]
    drawing.line(left, base, left + wide, base, "s-muted")
    drawing.polyline(points, "s-block thick")
    for warps in sorted({0, most // 2, most}):
        drawing.text(left - 8, base - warps / most * high + 5, str(warps), "small muted", "end")
    for registers in (32, 64, 128, 192, 255):
        x = left + (registers - _STAIRS[0]) / (_STAIRS[1] - _STAIRS[0]) * wide
        drawing.text(x, base + 18, str(registers), "small muted", "middle")
    x = left + (min(found.registers, 255) - _STAIRS[0]) / (_STAIRS[1] - _STAIRS[0]) * wide
    drawing.circle(x, base - found.warps / most * high, 5, "f-warp")
    drawing.text(x + 9, base - found.warps / most * high - 7, f"here: {found.registers}", "small bold")


def _draw_waves(drawing: Drawing, subject: Subject, found: Occupancy, top: float) -> None:
    """Blocks of the grid on SMs, wave by wave; the last one may leave some idle."""
    if found.waves is None or found.grid is None:
        return
    left, wide = 420.0, 270.0
    at_once = max(found.blocks * found.sms, 1)
    waves = -(-found.grid // at_once)
    drawing.text(
        left, top, f"{counted(found.grid, 'block')} on {found.sms} SMs: {found.waves:.3g} waves", "bold"
    )
    for i in range(min(waves, 6)):
        y = top + 22 + i * 22
        inside = min(found.grid - i * at_once, at_once) / at_once
        drawing.rect(left, y, wide, 16, "f-panel s-rule")
        drawing.rect(left, y, wide * inside, 16, "f-block half")
    if waves > 6:
        drawing.text(
            left,
            top + 22 + 6 * 22 + 12,
            f"and {waves - 6:,} more, the last {(found.waves % 1 or 1):.0%} full",
            "small muted",
        )
