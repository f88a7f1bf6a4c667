"""What the panels of an explanation draw, mark by mark, against a plain count of the launch that they are of."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from xml.etree import ElementTree

import pytest

from tilewise.emulator.profiling.recording import EventKind
from tilewise.explain.explanation import Explanation
from tilewise.explain.panels.banks import make_banks
from tilewise.explain.panels.load import make_load
from tilewise.explain.panels.order import make_order
from tilewise.explain.panels.tiles import make_tiles
from tilewise.explain.subject import Subject
from tilewise.explain.svg import Drawing
from tilewise.instruments.block_views import Pattern
from tilewise.kernels.raster import ORDERS


class Mark(NamedTuple):
    """One thing that is drawn: what and where, with its classes and its text."""

    tag: str
    classes: str
    text: str
    at: dict[str, float]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of a rectangle."""
        x, y = self.at["x"], self.at["y"]
        return x, y, x + self.at["width"], y + self.at["height"]


_PLACES = ("x", "y", "width", "height", "cx", "cy", "r", "x1", "y1", "x2", "y2")


def marks(drawing: Drawing, tag: str, group: str | None = None) -> list[Mark]:
    """What is drawn with a tag, all of it or within a named group, but for the ground."""
    root = ElementTree.fromstring(drawing.to_svg())
    within = [root] if group is None else [one for one in root.iter() if one.get("data-name") == group]
    assert len(within) == 1
    found = []
    for part in within[0].iter():
        if part.tag == f"{{http://www.w3.org/2000/svg}}{tag}" and part.get("class") != "f-bg":
            at = {name: float(part.get(name, 0)) for name in _PLACES}
            found.append(Mark(tag, part.get("class", ""), part.text or "", at))
    return found


def words(drawing: Drawing) -> dict[str, Mark]:
    """The texts of a picture, each by itself."""
    return {one.text: one for one in marks(drawing, "text")}


def assert_apart(boxes: list[Mark]) -> None:
    """No two rectangles share more than an edge."""
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            (left, top, right, low), (x, y, end, foot) = one.box, other.box
            assert min(right, end) - max(left, x) < 0.03 or min(low, foot) - max(top, y) < 0.03, (one, other)


def pattern(lanes: list[int | None], size: int, **given: Any) -> Pattern:
    """A pattern of lanes of which the rest is made up, each number another."""
    usual: dict[str, Any] = {
        "place": 0, "line": 7, "name": "ld.x", "what": EventKind.LOAD, "shared": True, "width": size, "runs": 3,
        "event": 5, "sectors": 40, "least_sectors": 24, "lines": 11, "wavefronts": 19, "phases": 2, "ideal": 1,
    }  # fmt: skip
    return Pattern(lanes=tuple(lanes), size=size, **{**usual, **given})


def subject_of(patterns: list[Pattern]) -> Subject:
    recording = SimpleNamespace(
        launch=SimpleNamespace(block=(10, 5, 2)), addresses=lambda event: [None, event * 100]
    )
    return cast(Subject, SimpleNamespace(
        patterns=patterns, where=lambda line: f"a.cu:{line}", recording=recording,
        name_address=lambda address: f"a[{address}]", profile=SimpleNamespace(metrics={}),
    ))  # fmt: skip


def scattered(seed: int, most: int, size: int) -> list[int | None]:
    """Lanes here and there, some of which take no part."""
    chosen = random.Random(seed)
    return [chosen.randrange(most // size) * size if chosen.random() < 0.8 else None for _ in range(32)]


@pytest.mark.parametrize(("seed", "size"), [(1, 4), (2, 8), (3, 16)])
def test_a_word_of_shared_memory_stands_in_the_row_of_its_lane_and_the_column_of_its_bank(
    seed: int, size: int
) -> None:
    """Green is the word of each bank that its first lane wants; below, each bank has a bar as high as it has words."""
    lanes = scattered(seed, 900, size)
    worse, milder = pattern(lanes, size), pattern([0] * 32, 4, wavefronts=4, runs=8, event=9)
    other = pattern([0] * 32, 4, shared=False, wavefronts=900)
    panel = make_banks(subject_of([milder, other, worse]))
    assert panel is not None
    wanted = [
        (lane, at // 4 + i) for lane, at in enumerate(lanes) if at is not None for i in range(size // 4)
    ]
    first: dict[int, int] = {}
    for _, word in wanted:
        first.setdefault(word % 32, word)
    frame, *drawn = marks(panel.figure, "rect", "pattern")
    wide, tall = frame.at["width"] / 32, frame.at["height"] / 32
    left, top, right, low = frame.box
    found = [
        (int((one.at["y"] - top) // tall), int((one.at["x"] - left) // wide), one.classes) for one in drawn
    ]
    assert found == [
        (lane, word % 32, "f-good" if first[word % 32] == word else "f-bad half") for lane, word in wanted
    ]
    for one in drawn:
        x, y, end, foot = one.box
        assert left < x < end < right and top < y < foot < low
        assert (end - x, foot - y) == pytest.approx((wide - 2, tall - 2), abs=0.02)
    ticks = [one for one in marks(panel.figure, "text", "pattern") if one.text.isdigit()]
    assert [int(one.text) for one in ticks] == [*range(0, 32, 4)]
    assert [one.at["x"] for one in ticks] == pytest.approx(
        [left + (bank + 0.5) * wide for bank in range(0, 32, 4)], abs=0.02
    )
    counts = {
        bank: len({word for _, word in wanted if word % 32 == bank})
        for bank in range(32)
        if any(word % 32 == bank for _, word in wanted)
    }
    bars = marks(panel.figure, "rect")[1 + len(drawn) :]
    assert [int((bar.at["x"] - left) // wide) for bar in bars] == [*counts]
    for bar, (bank, count) in zip(bars, counts.items(), strict=True):
        assert left + bank * wide < bar.box[0] < bar.box[2] < left + (bank + 1) * wide
        assert bar.at["height"] == pytest.approx(44 * count / max(4, *counts.values()), abs=0.01)
        assert bar.box[3] == pytest.approx(low + 58, abs=0.02) and bar.classes == (
            "f-bad half" if count > 1 else "f-good"
        )
    assert any(f"asked for: {max(counts.values())} at most" in text for text in words(panel.figure))


def test_accesses_of_shared_memory_are_listed_with_the_most_conflicts_first() -> None:
    """By wavefronts in vain times runs, of those alone that the machine code has; the last that is none says no."""
    listed = [pattern([0] * 32, 4, wavefronts=count, phases=2, runs=runs, event=count, name=f"ld{count}")
              for count, runs in ((3, 1), (9, 1), (4, 30), (2, 99))]  # fmt: skip
    hidden = pattern([0] * 32, 4, width=0, wavefronts=400)
    panel = make_banks(subject_of([hidden, *listed]))
    assert panel is not None and panel.table is not None
    assert [row[1:] for row in panel.table.rows] == [
        ("ld4", "30", "4", "2", "60"), ("ld9", "1", "9", "2", "7"), ("ld3", "1", "3", "2", "1"), ("ld2", "99", "2", "2", "0"),
    ]  # fmt: skip
    assert panel.answer.startswith("Yes: ld4 takes 4 wavefronts where 2 would do, 30 times")
    assert panel.figure.desc == "ld4: 4 wavefronts, 2 without conflicts."
    assert {fact.name: fact.value for fact in panel.facts} == {"banks.wavefronts": 4, "banks.without": 2}
    kept = [
        (one["name"], one["where"], one["runs"], one["wavefronts"], one["phases"])
        for one in panel.data["patterns"]
    ]
    assert kept[0] == ("ld4", "a.cu:7", 30, 4, 2) and len(kept) == 4
    even = make_banks(subject_of(listed[3:]))
    assert even is not None and even.answer.startswith("No: ") and "ld2 takes 2." in even.answer


@pytest.mark.parametrize(("seed", "size", "most"), [(1, 4, 1200), (2, 8, 4000), (3, 16, 500)])
def test_a_load_marks_the_sectors_whose_bytes_its_lanes_touch(seed: int, size: int, most: int) -> None:
    """Twelve lines at most; a line goes from each lane down to the middle of its bytes, where those are drawn."""
    lanes = scattered(seed, most, size)
    panel = make_load(subject_of([pattern(lanes, size, shared=False)]))
    assert panel is not None
    touched = {at + i for at in lanes if at is not None for i in range(size)}
    lines = sorted({byte // 128 for byte in touched})
    shown = lines[:12]
    rects, texts = marks(panel.figure, "rect", "pattern"), marks(panel.figure, "text", "pattern")
    boxes, sectors = rects[:32], rects[32:]
    assert_apart(rects)
    assert [one.classes != "f-quiet" for one in boxes] == [at is not None for at in lanes]
    names = [one for one in texts if one.text.isdigit()]
    assert [int(one.text) for one in names] == [*range(32)]
    for name, box in zip(names, boxes, strict=True):
        assert name.at["x"] == pytest.approx((box.box[0] + box.box[2]) / 2)
        assert box.box[1] < name.at["y"] < box.box[3]
    hit = [any(byte // 32 == line * 4 + i for byte in touched) for line in shown for i in range(4)]
    assert [one.classes != "f-quiet" for one in sectors] == hit
    assert len({one.classes for one in sectors}) == 1 + (not all(hit))
    starts = {line: sectors[4 * i].at["x"] for i, line in enumerate(shown)}
    wide = sectors[3].box[2] + 1 - sectors[0].at["x"]
    labels = [(one.text, one.at["x"]) for one in texts if one.text.startswith("line ")]
    assert labels == [(f"line {line - lines[0]}", starts[line]) for line in shown]
    drawn = [(lane, at) for lane, at in enumerate(lanes) if at is not None and at // 128 in starts]
    threads = marks(panel.figure, "line", "pattern")
    assert len(threads) == len(drawn)
    for thread, (lane, at) in zip(threads, drawn, strict=True):
        assert thread.at["x1"] == pytest.approx(names[lane].at["x"])
        middle = starts[at // 128] + (at % 128 + size / 2) / 128 * wide
        assert thread.at["x2"] == pytest.approx(middle, abs=0.05)
        assert boxes[0].box[3] < thread.at["y1"] < thread.at["y2"] < sectors[0].box[1]
    more = [one.text for one in texts if one.text.endswith("more")]
    assert more == ([f"and {len(lines) - 12} lines more"] if len(lines) > 12 else [])


def test_accesses_of_global_memory_are_listed_with_the_most_sectors_in_vain_first() -> None:
    """What the script has of each is what the table says, with the first element that is touched."""
    lanes: list[int | None] = [None, *range(0, 124, 4)]
    listed = [pattern(lanes, 4, shared=False, sectors=count, least_sectors=4, runs=runs, event=count, name=f"ld{count}")
              for count, runs in ((8, 1), (16, 1), (6, 30), (4, 99))]  # fmt: skip
    panel = make_load(subject_of([*listed, pattern(lanes, 4, shared=False, sectors=0)]))
    assert panel is not None and panel.table is not None
    assert [row[1:] for row in panel.table.rows] == [
        (f"ld{count}", runs, str(count), "4", "11") for count, runs in ((6, "30"), (16, "1"), (8, "1"), (4, "99"))
    ]  # fmt: skip
    assert panel.data["patterns"][1] == {
        "name": "ld16", "where": "a.cu:7", "size": 4, "runs": 1, "lanes": [-1, *lanes[1:]],
        "sectors": 16, "least": 4, "lines": 11, "first": "a[1600]",
    }  # fmt: skip
    assert {fact.name: fact.value for fact in panel.facts} == {
        "load.sectors": 6, "load.least": 4, "load.moved": 6 * 30 + 16 + 8 + 4 * 99,
        "load.all_least": 4 * (30 + 1 + 1 + 99), "load.warps": 4, "load.example": 4,
    }  # fmt: skip
    assert panel.answer == "ld6 touches 6 sectors where 4 would do, 30 times in the recorded blocks (a.cu:7)."
    assert panel.figure.desc == "ld6: 6 sectors of 32 bytes in 11 lines of 128; 4 sectors would do."
    even = make_load(subject_of(listed[3:]))
    assert even is not None and even.answer.startswith("Nothing moves in vain: ld4 touches 4 sectors")


@pytest.mark.parametrize("shared", [True, False])
def test_of_a_line_the_access_is_listed_that_costs_most_in_all_its_runs(shared: bool) -> None:
    cost = "wavefronts" if shared else "sectors"
    listed = [
        pattern([None, 0], 4, name=name, shared=shared, line=line, runs=runs, **{cost: count})
        for name, line, count, runs in (("ld.once", 7, 8, 1), ("ld.often", 7, 2, 9), ("ld.there", 8, 99, 99))
    ]
    finder = SimpleNamespace(describe=lambda line: f"a.cu:{line}  x = y;")
    subject = SimpleNamespace(**vars(subject_of(listed)), finder=finder, number_of=lambda line: line)
    found = Explanation(cast(Subject, subject))
    subject.patterns = [replace(listed[0], line=9), *listed]
    assert found.line(9).splitlines()[1] == "1 pattern of lanes; the one that costs most, of 1 run:"
    assert found.line(7).splitlines()[:3] == [
        "a.cu:7  x = y;", "2 patterns of lanes; the one that costs most, of 9 runs:",
        "ld.often, 4 bytes a lane: " + ("2 wavefronts, 2 without conflicts" if shared else "2 sectors, 24 would do"),
    ]  # fmt: skip


def test_without_machine_code_an_explanation_says_how_a_verdict_is_had() -> None:
    subject = SimpleNamespace(profile=SimpleNamespace(verdict=None))
    (said,) = Explanation(cast(Subject, subject)).verdict
    assert said == (
        "no verdict: of foreign PTX there is no machine code here; pip install nvidia-nvjitlink assembles it"
    )


def test_tiles_of_a_step_lie_where_the_step_is() -> None:
    """Of a block whose share of K begins in the middle: of A the step's columns, of B its rows, and the tile of C."""
    subject = SimpleNamespace(
        owners=SimpleNamespace(first_row=4, rows=8, first_column=10, columns=5),
        steps=[SimpleNamespace(first=at, end=at + 4, event=at) for at in (16, 20, 24)], sizes=(16, 20, 32),
    )  # fmt: skip
    panel = make_tiles(cast(Subject, subject))
    assert panel is not None
    frames = dict(zip("abc", marks(panel.figure, "rect")[:3], strict=True))
    found = {}
    for name, mark in zip("abc", marks(panel.figure, "rect", "moving"), strict=True):
        left, top, right, bottom = frames[name].box
        rows, columns = {"a": (16, 32), "b": (32, 20), "c": (16, 20)}[name]
        down, across = (bottom - top) / rows, (right - left) / columns
        x, y, end, last = mark.box
        places = ((y - top) / down, (last - top) / down, (x - left) / across, (end - left) / across)
        found[name] = tuple(round(place, 1) for place in places)
    assert found == {"a": (4, 12, 16, 20), "b": (16, 20, 10, 15), "c": (4, 12, 10, 15)}


@pytest.mark.parametrize("raster", [*ORDERS])
def test_tiles_in_flight_are_those_that_the_order_has_first(raster: str) -> None:
    """The line goes from tile to tile in their order, and the script has the orders as they are."""
    rows, columns, flight = 9, 12, 3 * 7
    subject = SimpleNamespace(
        plan=SimpleNamespace(raster=raster), owners=SimpleNamespace(rows=32, columns=16),
        matrix=lambda _: SimpleNamespace(rows=32 * rows - 5, columns=16 * columns - 15),
        profile=SimpleNamespace(occupancy=SimpleNamespace(blocks=3), gpu=SimpleNamespace(sms=7)),
    )  # fmt: skip
    panel = make_order(cast(Subject, subject))
    assert panel is not None and panel.table is not None
    tiles = [ORDERS[raster](block, rows, columns) for block in range(rows * columns)]
    frame, *blue = marks(panel.figure, "rect", "tiles")
    step = frame.at["width"] / columns
    assert frame.at["height"] == pytest.approx(step * rows) and {one.classes for one in blue} == {
        "f-block half"
    }
    assert_apart(blue)
    for row, column in tiles:
        x, y = frame.at["x"] + (column + 0.5) * step, frame.at["y"] + (row + 0.5) * step
        covered = any(one.box[0] < x < one.box[2] and one.box[1] < y < one.box[3] for one in blue)
        assert covered is ((row, column) in tiles[:flight])
    (way,) = ElementTree.fromstring(panel.figure.to_svg()).iter("{http://www.w3.org/2000/svg}polyline")
    points = [[float(part) for part in point.split(",")] for point in way.get("points", "").split()]
    assert points == [
        pytest.approx([frame.at["x"] + (column + 0.5) * step, frame.at["y"] + (row + 0.5) * step], abs=0.01)
        for row, column in tiles
    ]
    data = panel.data
    assert data["own"] == [*ORDERS].index(raster) and data["orders"][data["own"]] == [
        at for one in tiles for at in one
    ]
    assert (data["rows"], data["columns"], data["flight"], data["tile"]) == (rows, columns, flight, [32, 16])
    assert data["place"] == [frame.at["x"], frame.at["y"], 300]
    read = 32 * len({row for row, _ in tiles[:flight]}) + 16 * len({column for _, column in tiles[:flight]})
    facts = {fact.name: fact.value for fact in panel.facts}
    assert facts["order.flight"] == flight and facts["order.read"] == read
    assert panel.table.rows[data["own"]][1] == f"{read:,}"
    least = min(int(row[1].replace(",", "")) for row in panel.table.rows)
    assert panel.answer.endswith("reads less." if read == least else f"would read {least:,}.")
    assert (
        f"{rows}×{columns} tiles of C" in panel.figure.desc and f"first {flight} blocks" in panel.figure.desc
    )


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (4097, 1), (1, 5000)])
def test_of_more_tiles_than_can_be_told_apart_their_number_stands_there(rows: int, columns: int) -> None:
    subject = SimpleNamespace(
        plan=SimpleNamespace(raster="row"), owners=SimpleNamespace(rows=32, columns=16),
        matrix=lambda _: SimpleNamespace(rows=32 * rows, columns=16 * columns),
        profile=SimpleNamespace(occupancy=None, gpu=SimpleNamespace(sms=7)),
    )  # fmt: skip
    panel = make_order(cast(Subject, subject))
    assert panel is not None and panel.data["flight"] == 7
    said = words(panel.figure).get(f"{rows * columns:,} tiles: too many to draw")
    if rows * columns <= 4096:
        assert said is None and [len(order) for order in panel.data["orders"]] == [2 * 4096] * len(ORDERS)
    else:
        assert said is not None and (said.at["x"], said.at["y"]) == (24, 84) and panel.data["orders"] == []
        assert not marks(panel.figure, "rect", "tiles")
