"""How do tiles build C? A's tile slides along its rows, B's down its columns, and C's sums grow."""

from __future__ import annotations

import numpy as np

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels.layout import Corner
from tilewise.explain.subject import Subject
from tilewise.explain.svg import Drawing

__all__ = ["make_tiles"]

# The example by hand: 4×4 matrices, tiles of 2×2, of C the tile at the lower right.
_A = np.array([[1, 2, 0, 1], [0, 1, 3, 1], [2, 0, 1, 1], [1, 1, 0, 2]])
_B = np.array([[1, 0, 2, 1], [2, 1, 0, 1], [0, 3, 1, 0], [1, 1, 1, 2]])
_TILE = 2
_CELL = 30


def make_tiles(subject: Subject) -> Panel | None:
    """The panel; None where A, B and C, or the steps, are not known."""
    owners, steps, sizes = subject.owners, subject.steps, subject.sizes
    if owners is None or not steps or sizes is None:
        return None
    m, n, k = sizes
    corner = Corner.of(m, n, k)
    rows = owners.first_row, owners.first_row + owners.rows
    columns = owners.first_column, owners.first_column + owners.columns
    top = corner.height + 40
    drawing = Drawing(
        "Tiles of A and B slide, a tile of C builds up",
        f"A is {m}×{k}, B {k}×{n}, C {m}×{n}. The tile of C with rows {rows[0]} to {rows[1] - 1} and columns "
        f"{columns[0]} to {columns[1] - 1} is the sum over {len(steps)} steps of a tile of A times a tile of B.",
        top + 4 * _CELL * 2 + 70,
    )
    _draw_matrices(drawing, corner, rows, columns, steps[0].first, steps[0].end)
    toy = _draw_example(drawing, top)
    depth = steps[0].end - steps[0].first
    reads = depth * (owners.rows + owners.columns)
    facts = [
        Fact(
            "tiles.steps", "steps along K", len(steps), label="exact", code="len(explanation.subject.steps)"
        ),
        Fact("tiles.depth", "of K in a step", depth, "elements"),
        Fact("tiles.read", "read of A and B in a step", reads, "elements"),
        Fact("tiles.products", "multiply-adds in a step", depth * owners.rows * owners.columns),
        Fact("tiles.reuse", "uses of an element that was read", f"{owners.columns} of A, {owners.rows} of B"),
    ]
    answer = (
        f"The tile of C, {owners.rows}×{owners.columns}, is built in {len(steps)} steps: each takes {depth} columns of "
        f"A and {depth} rows of B, and adds their product to sums that stay with the threads."
    )
    if not corner.to_scale:
        answer += " Not to scale: thin sides are drawn wider."
    listed = [(str(i), f"{one.first}–{one.end - 1}", f"{one.event}") for i, one in enumerate(steps[:64])]
    data = {
        "boxes": {name: corner.place(name) for name in "abc"},
        "sizes": [m, n, k],
        "rows": rows,
        "columns": columns,
        "steps": [[one.first, one.end] for one in steps],
        "toy": toy,
    }
    return Panel(
        "tiles", "How do tiles build C?", answer, drawing, facts,
        Table(("step", "k", "first read at event"), listed), data,
        guess=f"How many blocks read each element of A, if C has {n} columns and tiles of {owners.columns}?",
    )  # fmt: skip


def _draw_matrices(
    drawing: Drawing, corner: Corner, rows: tuple[int, int], columns: tuple[int, int], first: int, end: int
) -> None:
    names = {
        "a": (f"A {corner.m}×{corner.k}", "block"),
        "b": (f"B {corner.k}×{corner.n}", "warp"),
        "c": (f"C {corner.m}×{corner.n}", "good"),
    }
    for name, (title, colour) in names.items():
        box = corner.place(name)
        drawing.rect(*box, f"f-panel s-{colour}")
        drawing.text(box[0], box[1] - 7, title, "small muted")
    drawing.rect(*corner.box("a", rows, (0, corner.k)), "f-block faint")
    drawing.rect(*corner.box("b", (0, corner.k), columns), "f-warp faint")
    with drawing.group("moving"):
        drawing.rect(*corner.box("a", rows, (first, end)), "f-block")
        drawing.rect(*corner.box("b", (first, end), columns), "f-warp")
        drawing.rect(*corner.box("c", rows, columns), "f-good half s-good")
    box = corner.box("a", rows, (first, end))
    middle = box[1] + box[3] / 2
    drawing.arrow(box[0] + box[2] + 6, middle, box[0] + box[2] + 46, middle, "block")
    box = corner.box("b", (first, end), columns)
    middle = box[0] + box[2] / 2
    drawing.arrow(middle, box[1] + box[3] + 6, middle, box[1] + box[3] + 40, "warp")


def _draw_example(drawing: Drawing, top: float) -> dict[str, object]:
    """4×4 with numbers, after the first of two steps."""
    left, side = 34.0, 4 * _CELL
    drawing.text(left, top - 14, "The same by hand: 4×4 matrices, tiles of 2×2, after step 1 of 2", "bold")
    places = {
        "a": (left, top + side + 18),
        "b": (left + side + 18, top + 6),
        "c": (left + side + 18, top + side + 18),
    }
    first = _TILE  # the tile's first row and column
    partial = _A[first:, :_TILE] @ _B[:_TILE, first:]
    whole = _A[first:] @ _B[:, first:]
    shown = {"a": _A, "b": _B, "c": np.full((4, 4), -1)}
    shown["c"][first:, first:] = partial
    for name, (x, y) in places.items():
        colour = {"a": "block", "b": "warp", "c": "good"}[name]
        for row in range(4):
            for column in range(4):
                inside = {
                    "a": row >= first and column < _TILE,
                    "b": row < _TILE and column >= first,
                    "c": row >= first and column >= first,
                }[name]
                fill = f"f-{colour} faint" if inside else "f-panel"
                drawing.rect(x + column * _CELL, y + row * _CELL, _CELL, _CELL, f"{fill} s-rule")
        with drawing.group(f"toy-{name}"):
            for row in range(4):
                for column in range(4):
                    value = int(shown[name][row, column])
                    place = x + (column + 0.5) * _CELL, y + (row + 0.66) * _CELL
                    drawing.text(*place, str(value) if value >= 0 else "", "", "middle")
    text = left + 2 * side + 60
    lines = (
        "row 2, column 2 after step 1:",
        f"2·2 + 0·0 = {partial[0, 0]}",
        "after step 2:",
        f"{partial[0, 0]} + 1·1 + 1·1 = {whole[0, 0]}",
    )
    for i, line in enumerate(lines):
        drawing.text(text, top + side + 44 + i * 24, line, "mono" if i % 2 else "small muted")
    return {
        "places": places, "cell": _CELL, "tile": _TILE, "first": first,
        "sums": [np.zeros((2, 2), int).tolist(), partial.tolist(), whole.tolist()],
    }  # fmt: skip
