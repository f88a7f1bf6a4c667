"""Where does a tile lie in shared memory? Its pieces of 16 bytes, line by line, as copies put them there."""

from __future__ import annotations

import numpy as np

from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.subject import Subject
from tilewise.explain.svg import WIDTH, Drawing
from tilewise.instruments.pieces import PIECE, Pieces, find_pieces

__all__ = ["make_placement"]

_LEFT, _TOP, _GAP, _ROW = 24.0, 84.0, 28.0, 24.0
_GROUPS, _LINES, _LINE = 8, 16, 128
_CELL = (WIDTH - 2 * _LEFT - _GAP) / (2 * _GROUPS)


def make_placement(subject: Subject) -> Panel | None:
    """The panel; None where no copies put pieces of A and B into shared memory."""
    found = [
        (role.upper(), pieces)
        for role in "ab"
        if role in subject.recording.roles
        and (pieces := find_pieces(subject.recording, subject.recording.roles[role])) is not None
    ]
    if not found:
        return None
    spread = {role: len({*pieces.groups(_first(pieces))}) for role, pieces in found}
    drawing = Drawing(
        "Pieces of 16 bytes in shared memory",
        "; ".join(
            f"of {role}, eight pieces below each other lie in {spread[role]} of 8 groups of banks"
            for role in spread
        ),
        _TOP + _LINES * _ROW + 44,
    )
    shown = {}
    for i, (role, pieces) in enumerate(found):
        x = _LEFT + i * (_GROUPS * _CELL + _GAP)
        with drawing.group(f"pieces-{role.lower()}"):
            shown[role] = _draw(drawing, x, role, pieces)
    facts = [
        Fact(
            f"placement.{role.lower()}", f"groups of banks of eight {_vectors(pieces)} of {role}", spread[role],
                    )
        for role, pieces in found
    ]  # fmt: skip
    rows = [
        (role, str(cell[0]), str(cell[1]), f"{_vector(pieces)} {cell[2]}, piece {cell[3]}")
        for role, pieces in found
        for cell in shown[role]
    ]
    data = {
        "pieces": {role.lower(): cells for role, cells in shown.items()},
        "vectors": {role.lower(): _vector(pieces) for role, pieces in found},
    }  # fmt: skip
    return Panel(
        "placement", "Where does a tile lie in shared memory?", _answer(spread), drawing, facts,
        Table(("matrix", "line", "group of banks", "what"), rows), data,
        guess="Rows of a tile are 128 bytes. How many banks serve eight lanes that each read 16 bytes of one column?",
    )  # fmt: skip


def _answer(spread: dict[str, int]) -> str:
    """In words: how eight pieces of one column are spread over the banks."""
    who = " and ".join(f"{count} ({role})" for role, count in spread.items())
    head = f"Eight pieces of 16 bytes, one below the other, lie in {who} of the 8 groups of four banks"
    if {*spread.values()} == {_GROUPS}:
        return f"{head}: lanes that read them so are served at once."
    return f"{head}: so many are served at once, if lanes read them so."


def _first(pieces: Pieces) -> int:
    return int(pieces.number[0])


def _vector(pieces: Pieces) -> str:
    return "column" if pieces.by_columns else "row"


def _vectors(pieces: Pieces) -> str:
    return f"{_vector(pieces)}s"


def _draw(drawing: Drawing, x: float, role: str, pieces: Pieces) -> list[tuple[int, ...]]:
    """Draw the first lines; of each piece there its line, group of banks, vector and number."""
    start = int(pieces.offset[0]) // _LINE
    line = pieces.offset // _LINE - start
    inside = np.flatnonzero(line < _LINES)
    parts = line, pieces.offset % _LINE // PIECE, pieces.vector, pieces.number
    cells = [tuple(int(part[i]) for part in parts) for i in inside]
    drawing.text(x, 22, f"{role}: piece number, by line of 128 bytes", "bold")
    drawing.text(
        x,
        44,
        f"of {_vectors(pieces)}, each cut into pieces of {PIECE} bytes; dark: piece {_first(pieces)}",
        "small muted",
    )
    for group in range(_GROUPS):
        banks = f"{group * 4}–{group * 4 + 3}"
        drawing.text(x + (group + 0.5) * _CELL, _TOP - 10, banks, "small muted", "middle")
    for at, group, vector, number in cells:
        y, left = _TOP + at * _ROW, x + group * _CELL
        chosen = number == _first(pieces)
        drawing.rect(
            left + 0.5, y + 0.5, _CELL - 1, _ROW - 1, "f-block half s-block" if chosen else "f-quiet"
        )
        drawing.text(left + _CELL / 2, y + 16, f"{_vector(pieces)[0]}{vector}·{number}", "small", "middle")
    drawing.text(
        x, _TOP + _LINES * _ROW + 24, f"{_vector(pieces)[0]}3·2: {_vector(pieces)} 3, piece 2", "small muted"
    )
    return cells
