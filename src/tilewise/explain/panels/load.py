"""What does one load move? Lanes above the lines and sectors of global memory that they touch."""

from __future__ import annotations

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels.layout import times_text
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing
from tilewise.instruments.block_views import Pattern

__all__ = ["make_load", "table_of_lanes"]

_LANE, _TOP = 21.0, 64.0
_LEFT = 24.0
_MOST_LINES = 12  # of the cache that are drawn
_MOST_PATTERNS = 48  # that the page has
_LINE, _SECTOR = 128, 32


def worst_first(patterns: list[Pattern]) -> list[Pattern]:
    """Patterns of global memory, those that move the most sectors in vain first."""
    listed = [one for one in patterns if not one.shared and one.sectors]
    return sorted(listed, key=lambda one: (-(one.sectors - one.least_sectors) * one.runs, one.event))


def make_load(subject: Subject) -> Panel | None:
    """The panel; None for a launch whose lanes touch no global memory."""
    patterns = worst_first(subject.patterns)
    if not patterns:
        return None
    chosen = patterns[0]
    drawing = Drawing(
        "What the lanes of a warp touch at once",
        f"{chosen.name}: {chosen.sectors} sectors of 32 bytes in {chosen.lines} lines of 128; {chosen.least_sectors} "
        "sectors would do.",
        430,
    )
    with drawing.group("pattern"):
        _draw_pattern(drawing, chosen, subject)
    _draw_blocks(drawing, 268)
    moved = sum(one.sectors * one.runs for one in patterns)
    least = sum(one.least_sectors * one.runs for one in patterns)
    x, y, z = subject.recording.launch.block
    answer = (
        f"{chosen.name} touches {chosen.sectors} sectors where {chosen.least_sectors} would do"
        if chosen.sectors > chosen.least_sectors
        else f"Nothing moves in vain: {chosen.name} touches {chosen.sectors} sectors, and no fewer would do"
    )
    answer += f", {times_text(chosen.runs)} in the recorded blocks ({subject.where(chosen.line)})."
    facts = [
        Fact(
            "load.sectors",
            "sectors that are touched",
            chosen.sectors,
        ),
        Fact("load.least", "that would do", chosen.least_sectors),
        Fact("load.moved", "sectors, all patterns", moved),
        Fact("load.all_least", "that would do", least),
        Fact("load.warps", "warps of a block", -(-x * y * z // 32), code=f"-(-{x * y * z} // 32)"),
        Fact("load.example", "warps of a block of (16, 8)", 4, code="16 * 8 // 32"),
    ]
    rows = [
        (
            subject.where(one.line),
            one.name,
            str(one.runs),
            str(one.sectors),
            str(one.least_sectors),
            str(one.lines),
        )
        for one in patterns[:_MOST_PATTERNS]
    ]
    table = Table(("line", "access", "runs", "sectors", "least", "lines"), rows)
    data = {"patterns": [_plain(one, subject) for one in patterns[:_MOST_PATTERNS]]}
    return Panel(
        "load", "What does one load move?", answer, drawing, facts, table, data,
        guess="Lanes 0 to 31 read floats that are 128 bytes apart. How many sectors is that?",
    )  # fmt: skip


def _plain(one: Pattern, subject: Subject) -> dict[str, object]:
    first = next(a for a in subject.recording.addresses(one.event) if a is not None)
    return {
        "name": one.name, "where": subject.where(one.line), "size": one.size, "runs": one.runs,
        "lanes": [-1 if lane is None else lane for lane in one.lanes], "sectors": one.sectors,
        "least": one.least_sectors, "lines": one.lines, "first": subject.name_address(first),
    }  # fmt: skip


def table_of_lanes(subject: Subject, pattern: Pattern) -> list[str]:
    """The lanes of a pattern in lines of text: what each touches, in which line and sector, or in which bank."""
    addresses = subject.recording.addresses(pattern.event)
    if pattern.shared:
        head = f"{pattern.wavefronts} wavefronts, {pattern.phases} without conflicts"
    else:
        head = f"{pattern.sectors} sectors, {pattern.least_sectors} would do"
    head = f"{pattern.name}, {pattern.size} bytes a lane: {head}"
    found = [head, "lane  offset  bank   word" if pattern.shared else "lane  offset  line  sector  element"]
    base = min(a for a in addresses if a is not None) // _LINE * _LINE
    for lane, address in enumerate(addresses):
        if address is None:
            continue
        offset = address - base
        if pattern.shared:
            found.append(f"{lane:>4}  {address:>6}  {address // 4 % 32:>4}  {address // 4:>5}")
        else:
            name = subject.name_address(address)
            found.append(
                f"{lane:>4}  {offset:>6}  {offset // _LINE:>4}  {offset // _SECTOR:>6}  {name}".rstrip()
            )
    return found


def _draw_pattern(drawing: Drawing, one: Pattern, subject: Subject) -> None:
    drawing.text(_LEFT, 22, f"{one.name}, {one.size} bytes a lane", "mono")
    drawing.text(_LEFT, 44, "lanes", "small muted")
    touched = sorted(
        {lane // _LINE for lane in one.lanes if lane is not None}
        | {(lane + one.size - 1) // _LINE for lane in one.lanes if lane is not None}
    )
    shown = touched[:_MOST_LINES]
    wide = (WIDTH - 2 * _LEFT - (len(shown) - 1) * 6) / len(shown)
    place = {line: _LEFT + i * (wide + 6) for i, line in enumerate(shown)}
    y = 190.0
    for lane in range(32):
        on = one.lanes[lane] is not None
        drawing.rect(
            _LEFT + lane * _LANE, _TOP - 12, _LANE - 2, 24, "f-thread half s-thread" if on else "f-quiet"
        )
        drawing.text(_LEFT + lane * _LANE + (_LANE - 2) / 2, _TOP + 5, str(lane), "small", "middle")
    for line, x in place.items():
        drawing.text(x, y + 46, f"line {line - touched[0]}", "small muted")
        for sector in range(_LINE // _SECTOR):
            first = line * _LINE + sector * _SECTOR
            hit = any(
                lane is not None and lane < first + _SECTOR and lane + one.size > first for lane in one.lanes
            )
            part = wide / (_LINE // _SECTOR)
            drawing.rect(
                x + sector * part, y, part - 1, 28, f"{'f-block half s-block' if hit else 'f-quiet'}"
            )
    for lane, offset in enumerate(one.lanes):
        if offset is not None and offset // _LINE in place:
            x = place[offset // _LINE] + (offset % _LINE + one.size / 2) / _LINE * wide
            drawing.line(_LEFT + lane * _LANE + (_LANE - 2) / 2, _TOP + 14, x, y - 2, "s-thread")
    if len(touched) > len(shown):
        drawing.text(
            WIDTH - _LEFT, y + 46, f"and {len(touched) - len(shown)} lines more", "small muted", "end"
        )


def _draw_blocks(drawing: Drawing, top: float) -> None:
    """Warps of a block of (16, 8): cut from the linear index, x first."""
    drawing.text(
        _LEFT,
        top + 10,
        "A block of (16, 8) has 4 full warps: threads are numbered x first, and cut every 32",
        "bold",
    )
    for row in range(8):
        classes = ("f-block", "f-warp", "f-thread", "f-good")[row // 2]
        drawing.rect(_LEFT, top + 24 + row * 15, 16 * 15, 14, f"{classes} half")
        drawing.text(_LEFT + 8, top + 35 + row * 15, f"y = {row}", "small")
    for warp in range(4):
        drawing.text(
            _LEFT + 16 * 15 + 12,
            top + 43 + warp * 30,
            f"warp {warp}: y = {2 * warp} and {2 * warp + 1}, all x",
            "small",
        )
    drawing.text(_LEFT + 440, top + 58, "not 8 warps that are half empty", "small muted")
