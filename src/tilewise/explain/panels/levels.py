"""Block, warp, thread: how C is split, level by level, each drawn within the one above."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels.layout import runs_text, split_runs
from tilewise.explain.subject import Subject
from tilewise.explain.svg import Drawing
from tilewise.instruments.block_views import Owners

__all__ = ["make_levels"]

_SIDE, _TOP = 208.0, 64.0
_LEFT = (12.0, 254.0, 496.0)
Corner2 = npt.NDArray[np.int64]  # a row and a column
_MOST_TILES = 64  # lines of a grid that are drawn


def make_levels(subject: Subject) -> Panel | None:
    """The panel; None where the recorded blocks write nothing of C, or C is not known."""
    owners, c = subject.owners, subject.matrix("c")
    if owners is None or c is None:
        return None
    row, column = (int(one) for one in np.argwhere(owners.warp >= 0)[0])
    warp, lane = int(owners.warp[row, column]), int(owners.lane[row, column])
    of_warp = np.argwhere(owners.warp == warp)
    low, high = of_warp.min(0), of_warp.max(0) + 1
    mine = np.argwhere((owners.warp == warp) & (owners.lane == lane))
    rows, columns = [int(r) for r in mine[:, 0]], [int(c) for c in mine[:, 1]]
    size = int(high[0] - low[0]), int(high[1] - low[1])
    whole = len(of_warp) == size[0] * size[1]
    pieces = len(split_runs(rows)), len(split_runs(columns))
    drawing = Drawing(
        "Block, warp and thread",
        f"C is cut into tiles of {owners.rows}×{owners.columns} for blocks, these into {size[0]}×{size[1]} for warps, "
        f"and of those a thread has rows {runs_text(rows)} and columns {runs_text(columns)}.",
        _TOP + _SIDE + 96,
    )
    _draw_block(drawing, c.rows, c.columns, owners)
    _draw_warp(drawing, owners, low, high)
    _draw_thread(drawing, owners, warp, lane, low, high)
    depth = subject.steps[0].end - subject.steps[0].first if subject.steps else 0
    inner = "a part that is not in one piece" if not whole else f"{size[0]}×{size[1]}"
    warps = len(np.unique(owners.warp[owners.warp >= 0]))
    whose = f"each of its {warps} warps" if warps > 1 else "its one warp that writes"
    answer = (
        f"A block has {owners.rows}×{owners.columns} elements of C, {whose} {inner}, and a thread "
        f"{len(mine)}: {pieces[0]} {_pieces(pieces[0])} of rows by {pieces[1]} of columns."
    )
    tiles = -(-c.rows // owners.rows) * -(-c.columns // owners.columns)
    facts = [
        Fact("levels.block", "block tile", f"{owners.rows}×{owners.columns}"),
        Fact("levels.warp", "warp tile", f"{size[0]}×{size[1]}" if whole else f"{len(of_warp)} elements"),
        Fact("levels.thread", "elements of a thread", len(mine)),
        Fact("levels.tiles", "tiles of C", tiles),
        *([Fact("levels.step", "of K in a step", depth)] if depth else []),
    ]
    table = Table(
        ("level", "rows", "columns", "elements"),
        [
            ("matrix", str(c.rows), str(c.columns), f"{c.rows * c.columns:,}"),
            ("block", str(owners.rows), str(owners.columns), f"{owners.rows * owners.columns:,}"),
            ("warp", str(size[0]), str(size[1]), f"{len(of_warp):,}"),
            ("thread", runs_text(rows), runs_text(columns), str(len(mine))),
        ],
    )
    data = {"boxes": _boxes(c.rows, c.columns, owners, low, high)}
    return Panel("levels", "What is a block's, a warp's, a thread's?", answer, drawing, facts, table, data)


def _boxes(
    rows: int, columns: int, owners: Owners, low: Corner2, high: Corner2
) -> list[dict[str, Sequence[float]]]:
    """Where each level is drawn, and which rows and columns of C it has: the first, and how many."""
    first = owners.first_row, owners.first_column
    parts = [
        ((0, 0), (rows, columns), 24.0), (first, (owners.rows, owners.columns), 0.0),
        ((first[0] + int(low[0]), first[1] + int(low[1])), (int(high[0] - low[0]), int(high[1] - low[1])), 14.0),
    ]  # fmt: skip
    found: list[dict[str, Sequence[float]]] = []
    for left, (at, size, least) in zip(_LEFT, parts, strict=True):
        tall, wide = _scaled(*size)
        place = [left, _TOP, max(wide, least), max(tall, least)]
        found.append({"place": place, "rows": [at[0], size[0]], "columns": [at[1], size[1]]})
    return found


def _pieces(count: int) -> str:
    return "piece" if count == 1 else "pieces"


def _scaled(rows: int, columns: int) -> tuple[float, float]:
    scale = _SIDE / max(rows, columns)
    return rows * scale, columns * scale


def _draw_block(drawing: Drawing, rows: int, columns: int, owners: Owners) -> None:
    high, wide = _scaled(rows, columns)
    high, wide = max(high, 24), max(wide, 24)
    x, y = _LEFT[0], _TOP
    drawing.text(x, 20, "C", "bold")
    drawing.text(x, 40, f"{rows}×{columns}, a tile for each block", "small muted")
    drawing.rect(x, y, wide, high, "f-panel s-muted")
    across, down = -(-columns // owners.columns), -(-rows // owners.rows)
    if across <= _MOST_TILES:
        for i in range(1, across):
            at = x + i * owners.columns / columns * wide
            drawing.line(at, y, at, y + high)
    if down <= _MOST_TILES:
        for i in range(1, down):
            at = y + i * owners.rows / rows * high
            drawing.line(x, at, x + wide, at)
    box = (
        x + owners.first_column / columns * wide, y + owners.first_row / rows * high,
        max(owners.columns / columns * wide, 2), max(owners.rows / rows * high, 2),
    )  # fmt: skip
    drawing.rect(*box, "f-block half s-block thick")
    drawing.text(x, y + high + 24, f"block tile {owners.rows}×{owners.columns}", "")
    _lead(drawing, (box[0] + box[2], box[1]), 1)


def _draw_warp(drawing: Drawing, owners: Owners, low: Corner2, high: Corner2) -> None:
    tall, wide = _scaled(owners.rows, owners.columns)
    x, y = _LEFT[1], _TOP
    drawing.text(x, 20, "Block", "bold")
    drawing.text(x, 40, "its tile, a part for each warp", "small muted")
    drawing.rect(x, y, wide, tall, "f-block faint s-block thick")
    scale = tall / owners.rows

    def draw(first: Corner2, end: Corner2, classes: str) -> None:
        size = float(end[1] - first[1]) * scale, float(end[0] - first[0]) * scale
        drawing.rect(x + float(first[1]) * scale, y + float(first[0]) * scale, *size, classes)

    for warp in np.unique(owners.warp[owners.warp >= 0]):
        where = np.argwhere(owners.warp == warp)
        first, end = where.min(0), where.max(0) + 1
        if len(where) == (end - first).prod():
            draw(first, end, "none s-warp")
    draw(low, high, "f-warp half s-warp thick")
    drawing.text(x, y + tall + 24, f"warp part {high[0] - low[0]}×{high[1] - low[1]}", "")
    _lead(drawing, (x + float(high[1]) * scale, y + float(low[0]) * scale), 2)


def _draw_thread(drawing: Drawing, owners: Owners, warp: int, lane: int, low: Corner2, high: Corner2) -> None:
    part = np.where(owners.warp == warp, owners.lane, -1)[low[0] : high[0], low[1] : high[1]]
    tall, wide = _scaled(*part.shape)
    tall, wide = max(tall, 14), max(wide, 14)
    x, y = _LEFT[2], _TOP
    drawing.text(x, 20, "Warp", "bold")
    drawing.text(x, 40, "its part, elements for each lane", "small muted")
    drawing.rect(x, y, wide, tall, "f-warp faint s-warp thick")
    drawing.cells(x, y, wide, tall, (part == lane).astype(int).tolist(), {1: "f-thread"})
    mine = np.argwhere(part == lane)
    rows = [int(r) + int(low[0]) for r in mine[:, 0]]
    columns = [int(c) + int(low[1]) for c in mine[:, 1]]
    drawing.text(x, y + tall + 24, f"lane {lane}: rows {runs_text(rows, 2)}", "")
    drawing.text(x, y + tall + 44, f"columns {runs_text(columns, 2)}", "")


def _lead(drawing: Drawing, start: tuple[float, float], level: int) -> None:
    """A dashed line to the corner of the next level."""
    drawing.line(start[0], start[1], _LEFT[level], _TOP, "s-muted dash")
