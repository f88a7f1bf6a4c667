"""In which order do blocks take the tiles of C, and what do those in flight read together?"""

from __future__ import annotations

from collections.abc import Mapping

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.subject import Subject
from tilewise.explain.svg import Drawing
from tilewise.kernels.raster import ORDERS, waves

__all__ = ["make_order"]

_SIDE, _TOP, _LEFT = 300.0, 64.0, 24.0
_MOST = 4096  # tiles that are drawn
_NAMES = {
    "row": "row by row",
    "column": "column by column",
    "grouped": "bands of 8 rows",
    "hilbert": "Hilbert's curve",
}
# The example: 64 blocks of 256×128 in flight, of a matrix that is large enough.
_FLIGHT, _TILE, _GRID = 64, (256, 128), (64, 64)


def make_order(subject: Subject) -> Panel | None:
    """The panel; None for what is no plan, since only plans say their order."""
    plan, owners, c = subject.plan, subject.owners, subject.matrix("c")
    if plan is None or owners is None or c is None:
        return None
    rows, columns = -(-c.rows // owners.rows), -(-c.columns // owners.columns)
    profile = subject.profile
    resident = profile.occupancy.blocks if profile.occupancy else 1
    flight = min(profile.gpu.sms * max(resident, 1), rows * columns)
    order = ORDERS[plan.raster]
    drawn = rows * columns <= _MOST
    drawing = Drawing(
        "The order of tiles",
        f"{rows}×{columns} tiles of C, {_NAMES[plan.raster]}; the first {flight} blocks are in flight together.",
        _TOP + _SIDE + 66,
    )
    drawing.text(_LEFT, 24, f"{rows}×{columns} tiles, {_NAMES[plan.raster]}", "bold")
    drawing.text(_LEFT, 46, f"blue: the {flight} blocks that are in flight first", "small muted")
    with drawing.group("tiles"):
        if drawn:
            tiles = [order(block, rows, columns) for block in range(rows * columns)]
            _draw_tiles(drawing, tiles, rows, columns, flight)
        else:
            drawing.text(_LEFT, _TOP + 20, f"{rows * columns:,} tiles: too many to draw", "muted")
    example = {name: _example(name) for name in ORDERS}
    square = _TILE[0] * 8 + _TILE[1] * 8
    _draw_example(drawing, example, square)
    read = {
        name: waves(ORDERS[name], rows, columns, owners.rows, owners.columns, flight)[0].total
        for name in ORDERS
    }
    facts = [
        Fact("order.flight", "blocks in flight", flight),
        Fact("order.read", "elements read for each k", int(read[plan.raster]), label="model"),
        *_list_examples(example, square),
    ]
    table = Table(
        ("order", "elements for each k, here", "64 blocks of 256×128"),
        [(_NAMES[name], f"{read[name]:,.0f}", f"{example[name]:,.0f}") for name in ORDERS],
    )
    count = rows * columns if drawn else 0
    data = {
        "rows": rows, "columns": columns, "flight": flight, "tile": [owners.rows, owners.columns],
        "names": [_NAMES[name] for name in ORDERS], "own": list(ORDERS).index(plan.raster),
        "place": [_LEFT, _TOP, _SIDE],
        "orders": [
            [at for block in range(count) for at in ORDERS[name](block, rows, columns)] for name in ORDERS if count
        ],
    }  # fmt: skip
    return Panel(
        "order", "In which order?", _answer(read, plan.raster, flight), drawing, facts, table, data,
        guess="64 blocks go down a column of tiles of 256×128. How many elements of A and B do they read for each k?",
    )  # fmt: skip


def _example(name: str) -> float:
    return waves(ORDERS[name], *_GRID, *_TILE, _FLIGHT)[0].total


def _answer(read: Mapping[str, float], raster: str, flight: int) -> str:
    """What the blocks in flight read, and which order would read less."""
    name, own = _NAMES[raster].capitalize(), f"{read[raster]:,.0f}"
    head = f"{name}: {flight} blocks in flight read {own} elements of A and B for each k"
    best = min(read, key=lambda name: read[name])
    if read[raster] <= read[best]:
        return f"{head}; no order of these reads less."
    return f"{head}; {_NAMES[best]} would read {read[best]:,.0f}."


def _list_examples(example: Mapping[str, float], square: int) -> list[Fact]:
    listed = (
        ("order.column", "64 blocks, column by column", int(example["column"])),
        ("order.square", "64 blocks in a square of 8×8", square),
        ("order.hilbert", "64 blocks along Hilbert's curve", int(example["hilbert"])),
    )
    return [Fact(name, what, value, "for each k", "model") for name, what, value in listed]


def _draw_tiles(drawing: Drawing, tiles: list[tuple[int, int]], rows: int, columns: int, flight: int) -> None:
    step = _SIDE / max(rows, columns)
    values = [[0] * columns for _ in range(rows)]
    for row, column in tiles[:flight]:
        values[row][column] = 1
    drawing.rect(_LEFT, _TOP, columns * step, rows * step, "f-panel s-rule")
    drawing.cells(_LEFT, _TOP, columns * step, rows * step, values, {1: "f-block half"})
    if len(tiles) > 1 and step > 4:
        drawing.polyline(
            [(_LEFT + (column + 0.5) * step, _TOP + (row + 0.5) * step) for row, column in tiles],
            "s-muted round",
        )


def _draw_example(drawing: Drawing, example: dict[str, float], square: int) -> None:
    """Bars: what 64 blocks of 256×128 read for each k."""
    left, top, wide = 396.0, _TOP + 8, 300.0
    drawing.text(left, 24, "64 blocks of 256×128 in flight", "bold")
    drawing.text(left, 46, "elements of A and B that they read for each k", "small muted")
    bars = [(_NAMES[name], value) for name, value in example.items()] + [("a square of 8×8", float(square))]
    most = max(value for _, value in bars)
    for i, (name, value) in enumerate(bars):
        y = top + i * 52
        drawing.text(left, y + 10, name, "small")
        drawing.rect(
            left, y + 16, wide * value / most * 0.72, 18, "f-block" if "square" not in name else "f-good"
        )
        drawing.text(left + wide * value / most * 0.72 + 8, y + 30, f"{value:,.0f}·K", "")
