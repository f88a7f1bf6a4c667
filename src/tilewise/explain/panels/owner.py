"""Who computes this element, and which elements are a thread's?"""

from __future__ import annotations

import numpy as np

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels.layout import counted, places_text
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing
from tilewise.instruments.block_views import Owners

__all__ = ["describe_element", "describe_thread", "make_owner"]

_TOP, _CELL = 230.0, 44.0
_MOST_HIGH = 400.0
_WARP_CLASSES = (
    "f-block faint",
    "f-warp faint",
    "f-thread faint",
    "f-good faint",
    "f-mark faint",
    "f-muted faint",
)


def block_index(subject: Subject, block: int) -> tuple[int, int, int]:
    """A block's number as blockIdx.x, y and z."""
    x, y, _ = subject.recording.launch.grid
    return block % x, block // x % y, block // (x * y)


def thread_index(subject: Subject, warp: int, lane: int) -> tuple[int, int, int]:
    """A lane of a warp as threadIdx.x, y and z: warps are cut from the threads in order, x first."""
    x, y, _ = subject.recording.launch.block
    linear = warp * 32 + lane
    return linear % x, linear // x % y, linear // (x * y)


def describe_element(subject: Subject, row: int, column: int) -> list[str]:
    """Who computes an element of C, in lines of text."""
    subject = subject.showing_element(row, column)
    owners = subject.owners
    assert owners is not None  # as it shows the element
    block, warp, lane = owners.at(row, column)
    bx, by, bz = block_index(subject, block)
    tx, ty, tz = thread_index(subject, warp, lane)
    how = (
        "put into shared memory, from where the copy engine stores it, by"
        if owners.by_engine
        else "written by"
    )
    mine = owners.elements(block, warp, lane)
    found = [
        f"C[{row}, {column}] is {how} lane {lane} of warp {warp} of block {block}",
        f"  blockIdx ({bx}, {by}, {bz}), threadIdx ({tx}, {ty}, {tz})",
        f"  in the tile of rows {owners.first_row} to {owners.first_row + owners.rows - 1}, columns "
        f"{owners.first_column} to {owners.first_column + owners.columns - 1}",
        f"  that thread has {counted(len(mine), 'element')} there: "
        f"{places_text([r for r, _ in mine], [c for _, c in mine])}",
    ]
    line = subject.recording.places[
        subject.recording.events.place[owners.event[row - owners.first_row, column - owners.first_column]]
    ].line
    return [*found, f"  stored by {subject.finder.describe(line)}"]


def describe_thread(subject: Subject, block: int, thread: int) -> list[str]:
    """Which elements of C a thread of a block writes."""
    subject = subject.showing_thread(block, thread)
    owners = subject.owners
    if owners is None:
        return ["nothing of C is written by the blocks that were recorded"]
    warp, lane = divmod(thread, 32)
    mine = owners.elements(block, warp, lane)
    head = f"thread {thread} of block {block} (warp {warp}, lane {lane}, threadIdx {thread_index(subject, warp, lane)})"
    if not mine:
        return [f"{head} writes nothing of C in this tile"]
    listed = ", ".join(f"[{r}, {c}]" for r, c in mine[:8]) + (" …" if len(mine) > 8 else "")
    return [
        f"{head} writes {counted(len(mine), 'element')} of C",
        f"  {places_text([row for row, _ in mine], [column for _, column in mine])}",
        f"  {listed}",
    ]


def make_owner(subject: Subject) -> Panel | None:
    """The panel; None where the recorded blocks write nothing of C."""
    owners = subject.owners
    if owners is None:
        return None
    scale = min((WIDTH - 60) / owners.columns, _MOST_HIGH / owners.rows)
    wide, high = owners.columns * scale, owners.rows * scale
    drawing = Drawing(
        "Who computes each element of a tile of C",
        f"A tile of {owners.rows}×{owners.columns} elements, by warp; the elements of the first thread are marked.",
        _TOP + 46 + high + 40,
    )
    _draw_example(drawing)
    block, warp, lane = owners.at(*_first(owners))
    drawing.text(
        30,
        _TOP + 8,
        f"The tile of block {block}, {owners.rows}×{owners.columns} of C, by warp; lane {lane} of warp {warp} is dark",
        "bold",
    )
    values = owners.warp.tolist()
    warps = sorted({int(one) for one in np.unique(owners.warp) if one >= 0})
    classes = {one: _WARP_CLASSES[i % len(_WARP_CLASSES)] for i, one in enumerate(warps)}
    place = 30.0, _TOP + 46.0
    drawing.cells(*place, wide, high, values, classes)
    own = ((owners.block == block) & (owners.warp == warp) & (owners.lane == lane)).astype(int)
    drawing.cells(*place, wide, high, own.tolist(), {1: "f-thread"})
    drawing.rect(*place, wide, high, "none s-muted")
    _name_warps(drawing, owners, place, scale)
    drawing.text(
        30,
        place[1] - 8,
        f"columns {owners.first_column} to {owners.first_column + owners.columns - 1} →",
        "small muted",
    )
    drawing.text(
        30,
        place[1] + high + 18,
        f"rows {owners.first_row} to {owners.first_row + owners.rows - 1} ↓",
        "small muted",
    )
    return _panel(subject, owners, drawing, (*place, scale))


def _panel(subject: Subject, owners: Owners, drawing: Drawing, place: tuple[float, float, float]) -> Panel:
    first = _first(owners)
    block, warp, lane = owners.at(*first)
    mine = owners.elements(block, warp, lane)
    places = places_text([r for r, _ in mine], [c for _, c in mine])
    how = " It puts them into shared memory, and the copy engine stores them." if owners.by_engine else ""
    many = counted(len(mine), "element")
    answer = f"Thread {warp * 32 + lane} of block {block} writes {many}: {places}.{how}"
    warps = sorted({int(one) for one in np.unique(owners.warp) if one >= 0})
    listed = []
    for one in warps[:32]:
        where = np.argwhere(owners.warp == one)
        low, high = where.min(0), where.max(0)
        listed.append(
            (
                str(one),
                f"{low[0] + owners.first_row}–{high[0] + owners.first_row}",
                f"{low[1] + owners.first_column}–{high[1] + owners.first_column}",
                str(len(where)),
            )
        )
    facts = [
        Fact(
            "owner.elements",
            "elements of a thread",
            len(mine),
            code=f"len(explanation.subject.owners.elements({block}, {warp}, {lane}))",
        ),
        Fact("owner.warps", "warps that write", len(warps)),
        Fact("owner.row", "the row of b44", 3, code="1 * 2 + 1"),
        Fact("owner.column", "the column of b33", 2, code="1 * 2 + 0"),
    ]
    data = {
        "first": [owners.first_row, owners.first_column],
        "warp": owners.warp.astype(np.int16), "lane": owners.lane.astype(np.int8),
        "block": int(block) if (owners.block == block).all() else owners.block.astype(np.int32),
        "place": list(place), "threads": list(subject.recording.launch.block),
        "grid": list(subject.recording.launch.grid),
        "engine": owners.by_engine,
    }  # fmt: skip
    return Panel(
        "owner", "Who computes this element?", answer, drawing, facts,
        Table(("warp", "rows", "columns", "elements"), listed), data,
        guess="In 4×4 with tiles of 2×2, in which row and column is b44? And b33?",
    )  # fmt: skip


def _first(owners: Owners) -> tuple[int, int]:
    """The first element that somebody writes."""
    row, column = np.argwhere(owners.warp >= 0)[0]
    return int(row) + owners.first_row, int(column) + owners.first_column


def _name_warps(drawing: Drawing, owners: Owners, place: tuple[float, float], scale: float) -> None:
    """The number of each warp in the middle of what it has, where there is room."""
    for warp in np.unique(owners.warp[owners.warp >= 0]):
        where = np.argwhere(owners.warp == warp)
        low, high = where.min(0), where.max(0) + 1
        tall, wide = (high - low) * scale
        dense = len(where) > 0.6 * (high - low).prod()
        if dense and tall > 16 and wide > 22:
            x, y = place[0] + (low[1] + high[1]) / 2 * scale, place[1] + (low[0] + high[0]) / 2 * scale
            drawing.text(x, y + 5, f"w{warp}", "small bold", "middle")


def _draw_example(drawing: Drawing) -> None:
    """4×4 with tiles of 2×2: from block and thread to row and column."""
    left, top = 40.0, 40.0
    drawing.text(
        30, 24, "By hand: 4×4, tiles of 2×2. row = blockIdx.y · 2 + threadIdx.y, column likewise by x", "bold"
    )
    with drawing.group("toy"):
        for row in range(4):
            for column in range(4):
                marked = (row, column) in ((3, 3), (2, 2))
                fill = (
                    "f-thread half"
                    if marked
                    else ("f-block faint" if (row // 2 + column // 2) % 2 else "f-panel")
                )
                drawing.rect(left + column * _CELL, top + row * _CELL, _CELL, _CELL, f"{fill} s-rule")
                place = left + (column + 0.5) * _CELL, top + (row + 0.6) * _CELL
                drawing.text(*place, f"b{row + 1}{column + 1}", "bold" if marked else "muted", "middle")
    for i in range(3):
        drawing.line(left, top + i * 2 * _CELL, left + 4 * _CELL, top + i * 2 * _CELL, "s-text")
        drawing.line(left + i * 2 * _CELL, top, left + i * 2 * _CELL, top + 4 * _CELL, "s-text")
    text = left + 4 * _CELL + 36
    for i, (line, classes) in enumerate((
        ("b44: block (1, 1), thread (1, 1)", ""), ("row = 1·2 + 1 = 3", "mono"), ("column = 1·2 + 1 = 3", "mono"),
        ("b33: block (1, 1), thread (0, 0)", ""), ("row = 1·2 + 0 = 2", "mono"), ("column = 1·2 + 0 = 2", "mono"),
    )):  # fmt: skip
        drawing.text(text, top + 20 + i * 27, line, classes)
