"""What panels and charts draw of figures that are given: bars as long as numbers, labels beside them, no overlap."""

from __future__ import annotations

import base64
import hashlib
import importlib
import random
import re
from html.parser import HTMLParser
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest

import tilewise as tw
from tests.emulator.products.test_panels import assert_apart, marks, words
from tilewise.explain.chart import Line, Ratio, draw_lines, draw_ratios
from tilewise.explain.page import make_page
from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels.beside import make_beside
from tilewise.explain.panels.code import make_code
from tilewise.explain.panels.layout import Corner
from tilewise.explain.panels.levels import make_levels
from tilewise.explain.panels.limits import make_limits, show_time
from tilewise.explain.panels.residency import make_residency
from tilewise.explain.panels.spaces import make_spaces
from tilewise.explain.subject import Subject
from tilewise.explain.svg import Drawing
from tilewise.gpus import find
from tilewise.instruments.block_views import Owners
from tilewise.instruments.levels import Level
from tilewise.instruments.line_figures import LineFigures
from tilewise.instruments.occupancy import Occupancy, occupancy
from tilewise.instruments.roofline import RooflineBound
from tilewise.instruments.verdict import Gain

GPU = find("rtx-2060-super")


def subject_of(**profile: Any) -> Subject:
    """Something to explain of which only these figures are known."""
    return cast(Subject, SimpleNamespace(profile=SimpleNamespace(gpu=GPU, **profile)))


full = pytest.mark.parametrize(
    ("registers", "shared", "grid"),
    [
        (40, 0, 34 * 4 * 7 + 34),
        (40, 0, 34 * 4 * 8),
        (40, 0, 34 * 4 * 6 + 5),  # of seven waves the last one has no bar
        (128, 16 << 10, 150),
        (20, 60 << 10, 34),
    ],
)


def residency(registers: int, shared: int, grid: int) -> tuple[Occupancy, Panel]:
    """The occupancy of blocks of 256 threads, and the panel of it."""
    made = occupancy(GPU, 256, registers, shared, grid=grid)
    panel = make_residency(subject_of(occupancy=made))
    assert panel is not None
    return made, panel


@full
def test_each_limit_of_an_sm_has_a_row_with_its_blocks(registers: int, shared: int, grid: int) -> None:
    made, panel = residency(registers, shared, grid)
    assert panel.table is not None
    rects, said = marks(panel.figure, "rect"), words(panel.figure)
    frames = [one for one in rects if one.classes == "f-panel s-rule" and one.at["height"] == 20]
    limits = sorted(made.limits.items(), key=lambda pair: pair[1])
    assert [row[:2] for row in panel.table.rows] == [(name, str(most)) for name, most in limits]
    assert {row[0] for row in panel.table.rows if row[2]} == {*made.binding} and len(frames) == len(limits)
    for frame, (name, most) in zip(frames, limits, strict=True):
        blocks = [one for one in rects if one.at["height"] == 18 and frame.box[1] < one.box[1] < frame.box[3]]
        assert len(blocks) == made.blocks
        assert_apart(blocks)
        assert all(frame.box[0] < one.box[0] < one.box[2] < frame.box[2] for one in blocks)
        assert blocks[-1].box[2] + 1 == pytest.approx(
            frame.box[0] + frame.at["width"] * made.blocks / most, abs=0.02
        )
        assert {one.classes for one in blocks} == {"f-block" if name in made.binding else "f-block half"}
        assert frame.box[1] < said[name].at["y"] < frame.box[3] and said[name].at["x"] < frame.box[0]
    rooms = [one for one in marks(panel.figure, "text") if one.text.startswith("room for ")]
    assert [one.text for one in rooms] == [
        f"room for {most}{': binds' * (name in made.binding)}" for name, most in limits
    ]


@full
def test_each_wave_of_blocks_has_a_bar(registers: int, shared: int, grid: int) -> None:
    made, panel = residency(registers, shared, grid)
    rects, said = marks(panel.figure, "rect"), words(panel.figure)
    at_once = made.blocks * made.sms
    inside = [min(at_once, grid - first) for first in range(0, grid, at_once)]
    bars = [one for one in rects if one.at["height"] == 16]
    assert len(bars) == 2 * min(len(inside), 6)
    assert [bar.at["width"] / whole.at["width"] for whole, bar in zip(bars[::2], bars[1::2], strict=True)] == pytest.approx(
        [blocks / at_once for blocks in inside[:6]], abs=1e-4
    )  # fmt: skip
    assert_apart(bars[::2])
    assert all(whole.box[:2] == bar.box[:2] for whole, bar in zip(bars[::2], bars[1::2], strict=True))
    more = [text for text in said if text.endswith("% full")]
    assert more == (
        [f"and {len(inside) - 6} more, the last {inside[-1] / at_once:.0%} full"] if len(inside) > 6 else []
    )
    assert f"{grid:,} blocks on 34 SMs: {grid / at_once:.3g} waves" in said


@full
def test_the_staircase_says_how_many_warps_fit_by_registers(registers: int, shared: int, grid: int) -> None:
    made, panel = residency(registers, shared, grid)
    said = words(panel.figure)
    (steps,) = ElementTree.fromstring(panel.figure.to_svg()).iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, point.split(","))) for point in steps.get("points", "").split()]
    (axis,) = (one.at for one in marks(panel.figure, "line"))
    wide, base = axis["x2"] - axis["x1"], axis["y1"]
    stairs = panel.data["stairs"]
    assert [registers for registers, _ in stairs] == [*range(16, 256, 8)] and stairs[0][1] >= stairs[-1][1]
    for i, (count, warps) in enumerate(stairs):
        assert warps == occupancy(GPU, 256, count, shared).warps
        x, y = axis["x1"] + (count - 16) / 240 * wide, base - 110 * warps / made.warps_most
        assert points[2 * i] == pytest.approx((x, y), abs=0.02)
    for warps in (0, made.warps_most // 2, made.warps_most):
        tick = [
            one
            for one in marks(panel.figure, "text")
            if one.text == str(warps) and one.at["x"] == axis["x1"] - 8
        ]
        assert [one.at["y"] for one in tick] == [pytest.approx(base - 110 * warps / made.warps_most + 5)]
    for count in (32, 64, 128, 192, 255):
        assert said[str(count)].at["x"] == pytest.approx(axis["x1"] + (count - 16) / 240 * wide, abs=0.02)
    (here,) = marks(panel.figure, "circle")
    place = axis["x1"] + (made.registers - 16) / 240 * wide, base - 110 * made.warps / made.warps_most
    assert (here.at["cx"], here.at["cy"]) == pytest.approx(
        place, abs=0.02
    ) and f"here: {made.registers}" in said


def test_a_launch_of_one_block_has_no_plural() -> None:
    _, panel = residency(40, 0, 1)
    assert "1 block on 34 SMs: 0.00735 waves" in words(panel.figure)


def test_a_step_of_the_staircase_is_no_higher_than_barriers_allow() -> None:
    """An SM has 32: blocks of 16 are two, however few registers their threads have."""
    panel = make_residency(subject_of(occupancy=occupancy(GPU, 256, 40, 0, barriers=16)))
    assert panel is not None
    assert [warps for registers, warps in panel.data["stairs"] if registers <= 40] == [2 * 256 // 32] * 4


@full
def test_an_sm_is_as_full_as_its_occupancy_says(registers: int, shared: int, grid: int) -> None:
    made, panel = residency(registers, shared, grid)
    facts = {fact.name: fact.value for fact in panel.facts}
    assert facts["residency.blocks"] == made.blocks and facts["residency.threads"] == made.blocks * 256
    assert (facts["residency.registers"], facts["residency.shared"]) == (made.registers, made.shared)
    assert facts["residency.division"] == made.threads_by_division
    assert facts["residency.waves"] == pytest.approx(grid / (made.blocks * made.sms), abs=1e-4)
    assert facts.get("residency.next") == (made.next_registers or None)
    held = "1 block" if made.blocks == 1 else f"{made.blocks} blocks"
    assert f"holds {held} of 256 threads, at {made.registers} registers" in panel.figure.desc
    assert f"One SM of {GPU.title}: {held} of 256 threads" in words(panel.figure)
    assert panel.answer.startswith(f"{made.blocks * 8} of {made.warps_most} warps")


BOUNDS = [RooflineBound("fp32 arithmetic", 3e6, "operations", 1e12), RooflineBound("memory", 2e6, "bytes", 1e11, 1.5),
          RooflineBound("tensor cores", 0, "operations", 1e12), RooflineBound("L2", 1e4, "bytes", 1e10)]  # fmt: skip


def test_the_part_that_is_busy_longest_stands_first_and_binds() -> None:
    """Bars are as long as times; gains are parts of the limit; what does nothing is left out."""
    gains = [Gain("uneven SMs", 2e-5, 1.5), Gain("bank conflicts", 1e-5, 3.0)]
    subject = subject_of(
        machine=SimpleNamespace(accesses=[1], ran=[]), roofline=SimpleNamespace(bounds=BOUNDS, flops=77.0, seconds=3e-5),
        verdict=SimpleNamespace(gains=gains),
    )  # fmt: skip
    panel = make_limits(subject)
    assert panel is not None and panel.table is not None
    ordered = [("memory", 3e-5), ("fp32 arithmetic", 3e-6), ("L2", 1e-6)]
    assert [(row[0], row[3]) for row in panel.table.rows] == [
        (name, show_time(time)) for name, time in ordered
    ]
    assert [row[1:3] for row in panel.table.rows] == [
        ("2e+06 bytes", "1e+11"), ("3e+06 operations", "1e+12"), ("1e+04 bytes", "1e+10"),
    ]  # fmt: skip
    assert panel.figure.desc == "memory 30 µs; fp32 arithmetic 3 µs; L2 1 µs"
    assert panel.answer == (
        "Memory takes longest: 30 µs at least; the busiest SM has 1.5 times its share. Uneven SMs cost most: without, 20 µs."
    )
    assert {fact.name: fact.value for fact in panel.facts} == {"limits.bound": 30, "limits.flops": 77}
    rects, said = marks(panel.figure, "rect"), words(panel.figure)
    bars, rest = rects[:3], rects[3:]
    assert_apart(rects)
    assert [one.at["width"] / bars[0].at["width"] for one in bars] == pytest.approx(
        [time / 3e-5 for _, time in ordered], abs=1e-4
    )
    assert [one.classes for one in bars] == ["f-block", "f-muted half", "f-muted half"]
    for bar, (name, time) in zip(bars, ordered, strict=True):
        shown = said[show_time(time) + "  binds" * (name == "memory")]
        assert said[name].at["x"] < bar.box[0] and shown.at["x"] == pytest.approx(bar.box[2] + 8, abs=0.02)
        assert all(bar.box[1] < one.at["y"] < bar.box[3] for one in (said[name], shown))
        assert ("bold" in shown.classes) is (name == "memory")
    assert len(rest) == 4
    tops = [one.box[1] for one in (*bars, *rest[::2])]
    assert all(other - one > 20 for one, other in pairwise(tops)) and rest[-1].box[3] < panel.figure.height
    for gain, part, left in zip(gains, rest[::2], rest[1::2], strict=True):
        assert (
            part.box[2] == left.box[0] and part.box[1::2] == left.box[1::2] and left.box[2] == 720 - 150 + 24
        )
        assert part.at["width"] / (720 - 150) == pytest.approx(gain.seconds / 3e-5, abs=1e-4)
        assert said[gain.what].at["y"] < part.box[1]
        beside = said[f"{show_time(gain.seconds)}, {gain.times:.3g}×"]
        assert part.box[1] < beside.at["y"] < part.box[3] and beside.at["x"] > left.box[2]
    assert make_limits(subject_of(machine=SimpleNamespace(accesses=[], ran=[]), roofline=None)) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2, "2 s"),
        (1, "1 s"),
        (0.25, "250 ms"),
        (1e-3, "1 ms"),
        (5e-4, "500 µs"),
        (1e-6, "1 µs"),
        (4.5e-8, "45 ns"),
    ],
)
def test_times_have_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert show_time(seconds) == text


def test_lines_that_matter_stand_in_order_of_place_with_bars_by_column() -> None:
    """The worst ten of them: by conflicts, then by sectors in vain, then by instructions."""
    chosen = random.Random(3)
    lines = [LineFigures("a.cu", 100 - i, "x" * (45 + i), float(chosen.randrange(1, 5000)), 0.0,
                         float(chosen.choice([0, 0, 1200, 7])), float(chosen.randrange(3_000_000)), 0.0)
             for i in range(14)]  # fmt: skip
    panel = make_code(subject_of(lines=[*lines, LineFigures("a.cu", 3, "idle")]))
    assert panel is not None and panel.table is not None
    worst = sorted(lines, key=lambda one: (-one.conflicts, -one.sectors, -one.instructions))
    shown = sorted(worst[:10], key=lambda one: one.line)
    assert [row[:4] for row in panel.table.rows] == [
        (f"a.cu:{one.line}", f"{one.instructions:,.0f}", f"{one.conflicts:,.0f}", f"{one.sectors:,.0f}") for one in worst
    ]  # fmt: skip
    assert panel.answer.startswith(
        f"a.cu:{worst[0].line} stands out, with {worst[0].conflicts:,.0f} bank conflicts: xxx"
    )
    assert (
        panel.figure.desc.split("; ")[0] == f"a.cu:{shown[0].line} {shown[0].instructions:,.0f} instructions"
    )
    texts, rects = marks(panel.figure, "text"), marks(panel.figure, "rect")
    assert [one.text for one in texts if one.text.startswith("a.cu:")] == [
        f"a.cu:{one.line}" for one in shown
    ]
    assert_apart(rects)
    heads = {name: words(panel.figure)[name].at["x"] for name in ("instructions", "conflicts", "sectors")}
    below_title = {words(panel.figure)[name].at["y"] - texts[0].at["y"] for name in heads}
    assert below_title == {26}
    colours = {}
    for name, x in heads.items():
        values = [getattr(one, name) for one in shown]
        bars = [one for one in rects if one.at["x"] == x]
        assert len(bars) == sum(value > 0 for value in values)
        for bar, value in zip(bars, filter(None, values), strict=True):
            assert bar.at["width"] == pytest.approx(max(70 * value / max(values), 1), abs=0.01)
            (label,) = [one for one in texts if one.at["x"] == x and 0 < one.at["y"] - bar.box[3] < 20]
            number, *unit = label.text.split()
            assert float(number) * {"k": 1e3, "M": 1e6}.get("".join(unit), 1) == pytest.approx(
                value, rel=6e-3
            )
            assert (value >= 1000) is bool(unit)
        (colours[name],) = {one.classes for one in bars}
    assert len({*colours.values()}) == 3
    rows = panel.data["rows"]
    assert [(one["line"], one["where"], one["text"]) for one in rows] == [
        (one.line, f"a.cu:{one.line}", one.text) for one in shown
    ]
    assert rows[0]["says"].startswith(f"{shown[0].instructions:,.0f} instructions, ")
    sources = [one for one in texts if one.text.startswith("xxx")]
    assert [one.text for one in sources] == [
        one.text if len(one.text) <= 50 else one.text[:49] + "…" for one in shown
    ]
    x, y, wide, high = panel.data["place"]
    for i, source in enumerate(sources):
        assert y + i * high < source.at["y"] < y + (i + 1) * high and x < source.at["x"] < x + wide
    assert {fact.name: fact.value for fact in panel.facts} == {
        "code.instructions": sum(one.instructions for one in lines), "code.conflicts": sum(one.conflicts for one in lines),
    }  # fmt: skip


def test_bytes_that_are_moved_have_bars_as_long_as_their_sums() -> None:
    """And a step of two tiles costs what a loop over its elements counts."""
    levels = [
        Level("shared memory", 3 << 30, 1 << 30, "exact"),
        Level("L2", 5 << 20, 0, "model"),
        Level("memory", 100, 400, "model"),
    ]
    panel = make_spaces(subject_of(levels=levels))
    assert panel.table is not None
    rects, said = marks(panel.figure, "rect"), words(panel.figure)
    boxes, bars = rects[:6], rects[6:]
    assert_apart(rects)
    assert [one.at["width"] for one in bars] == pytest.approx(
        [340, max(340 * (5 << 20) / (4 << 30), 1), 1], abs=0.01
    )
    for bar, level, text in zip(bars, levels, ("4 GB", "5 MB", "500 bytes"), strict=True):
        assert (
            bar.box[1] < said[text].at["y"] < bar.box[3]
            and said[text].at["x"] > bar.at["x"] + bar.at["width"]
        )
        (name,) = [one for one in marks(panel.figure, "text") if one.text == level.name and one.at["y"] > 300]
        assert name.at["y"] == said[text].at["y"] and name.at["x"] < bar.at["x"]
    for box, row in zip(boxes, panel.table.rows, strict=False):
        line = [one.text for one in marks(panel.figure, "text") if box.box[1] < one.at["y"] < box.box[3]]
        assert line == [*row]
    assert [*panel.table.rows[6:]] == [
        (f"moved: {one.name}", f"{one.read:,.0f} read", f"{one.written:,.0f} written", one.label)
        for one in levels
    ]
    facts = {fact.name: fact.value for fact in panel.facts}
    for width in (16, 32):
        work = sum(2 for _ in range(width) for _ in range(width) for _ in range(width))
        loads = 2 * len([(i, j) for i in range(width) for j in range(width)])
        assert facts[f"spaces.loads{width}"] == loads and facts[f"spaces.flops{width}"] == work
        assert facts[f"spaces.shared{width}"] == 4 * loads
        assert (
            f"{width}×{width}: {loads:,} loads, {work:,} operations, {4 * loads // 1024} KB of shared memory; {width} operations a load"
            in said
        )
    assert (
        f"registers ({65536 * 4 // 1024} KB an SM)" in panel.answer
        and "shared memory (64 KB)" in panel.answer
    )


@pytest.mark.parametrize("size", [(4, 4, 4), (1, 512, 256), (4096, 32, 64), (300, 300, 9000)])
def test_matrices_have_room_and_share_their_sides(size: tuple[int, int, int]) -> None:
    """To scale where it says so, and otherwise at least as large as can be looked at."""
    m, n, k = size
    corner = Corner.of(m, n, k)
    (ax, ay, aw, ah), (bx, by, bw, bh), (cx, cy, cw, ch) = (corner.place(name) for name in "abc")
    assert (ay, ah) == (cy, ch) and (bx, bw) == (cx, cw) and min(ax, by) == 34
    assert cx == pytest.approx(ax + aw + 18) and cy == pytest.approx(by + bh + 18)
    assert cx + cw <= 710.01 and corner.height >= cy + ch and min(aw, ah, bw, bh) >= 55.9
    ratios = [aw / k, ah / m, bw / n, bh / k]
    assert corner.to_scale is (max(ratios) - min(ratios) < 0.02 * max(ratios))


def test_of_a_warp_whose_part_has_gaps_the_elements_of_one_lane_are_marked() -> None:
    """Two warps of two lanes share a tile like the squares of a chessboard."""
    warp = np.array([[0, 1], [1, 0]])
    lane = np.array([[0, 0], [1, 1]])
    owners = Owners(0, 0, np.zeros_like(warp), warp, lane, np.zeros_like(warp), False)
    subject = SimpleNamespace(
        owners=owners, matrix=lambda _role: SimpleNamespace(rows=2, columns=2), steps=[]
    )
    panel = make_levels(cast(Subject, subject))
    assert panel is not None and {"lane 0: rows 0", "columns 0"} <= {*words(panel.figure)}
    x, y, *_ = panel.data["boxes"][2]["place"]
    own = [one.box for one in marks(panel.figure, "rect") if one.classes == "f-thread"]
    assert own == [pytest.approx((x, y, x + 104, y + 104))]


def test_charts_have_a_legend_that_does_not_overlap_and_ticks_in_their_places() -> None:
    """A name has a line of the colour that its points have."""
    drawing = Drawing("Chart", "Three lines.", 320)
    lines = [Line(f"line {i}", [(0.0, 10.0 + i), (50.0, 90.0 - i), (100.0, 40.0)]) for i in range(3)]
    draw_lines(drawing, "Title", ("across", "up"), lines, down=20)
    texts = marks(drawing, "text")
    names = sorted((one for one in texts if one.text.startswith("line ")), key=lambda one: one.at["x"])
    assert len(names) == 3 and len({one.at["y"] for one in names}) == 1, "in a row"
    keys = sorted(
        (one for one in marks(drawing, "line") if "thick" in one.classes), key=lambda one: one.at["x1"]
    )
    ways = marks(drawing, "polyline")
    assert [one.text for one in names] == [one.name for one in lines]
    for name, key, way in zip(names, keys, ways, strict=True):
        assert key.at["x1"] < key.at["x2"] < name.at["x"] - 6 * len(name.text) < 720
        assert 0 < name.at["y"] - key.at["y1"] < 8
        assert key.classes.split()[0] == way.classes.split()[1]
    assert all(name.at["x"] < key.at["x1"] for name, key in zip(names, keys[1:], strict=False)), (
        "names end there"
    )
    assert len({key.classes for key in keys}) == 3
    upward = [(float(one.text), one.at["y"]) for one in texts if one.text.isdigit() and one.at["x"] == 58]
    across = [
        (float(one.text), one.at["x"])
        for one in texts
        if one.text.isdigit() and one.at["y"] == 20 + 300 - 44 + 16
    ]
    assert [value for value, _ in across] == [0, 20, 40, 60, 80, 100] and len(upward) > 2
    for ticks, sign in ((upward, -1), (across, 1)):
        apart = [(there - here) / (other - one) for (one, here), (other, there) in pairwise(ticks)]
        assert apart == pytest.approx([apart[0]] * len(apart), rel=0.01) and sign * apart[0] > 0
    root = ElementTree.fromstring(drawing.to_svg())
    for drawn, line in zip(root.iter("{http://www.w3.org/2000/svg}polyline"), lines, strict=True):
        points = [tuple(map(float, point.split(","))) for point in drawn.get("points", "").split()]
        for (x, y), (at, value) in zip(points, line.points, strict=True):
            unit = (upward[1][1] - upward[0][1]) / (upward[1][0] - upward[0][0])
            assert x == pytest.approx(64 + at / 100 * 640, abs=0.02)
            assert y == pytest.approx(upward[0][1] - 4 + (value - upward[0][0]) * unit, abs=0.1)


def test_ratios_stand_by_powers_of_two_and_worse_ones_are_square() -> None:
    """In groups, each row lower than the one before, its name to the left and its number beyond its quartiles."""
    ratios = [Ratio("one", "a", 1.0, (0.9, 1.1)), Ratio("one", "b", 2.0, (1.5, 2.5)), Ratio("two", "c", 0.5, (0.4, 0.6)),
              Ratio("two", "d", 3.9, (3.9, 3.9))]  # fmt: skip
    drawing = draw_ratios("Ratios", "below", ratios)
    texts, said = marks(drawing, "text"), words(drawing)
    place = {
        float(one.text): one.at["x"] for one in texts if one.classes == "small muted" and one.at["y"] < 60
    }
    assert {*place} == {0.5, 0.7, 1, 1.4, 2, 2.8, 4}
    step = place[2] - place[1]
    assert [place[4] - place[2], place[1] - place[0.5]] == pytest.approx([step, step], abs=0.02)
    middle = [one.at["x1"] for one in marks(drawing, "line") if one.classes == "s-text"]
    assert middle == [place[1]]
    circles, squares = marks(drawing, "circle"), marks(drawing, "rect")
    assert [one.at["cx"] for one in circles] == pytest.approx(
        [place[1], place[2], place[1] + 1.9634 * step], abs=0.1
    )
    assert [one.at["x"] + 4 for one in squares] == pytest.approx([place[0.5]], abs=0.02)
    assert {one.classes for one in circles} != {one.classes for one in squares}
    rows = [said[one.name].at["y"] for one in ratios]
    assert rows == sorted({*rows}) and rows[1] - rows[0] == 17 and rows[2] - rows[1] == 17 + 26
    assert said["one"].at["y"] < rows[0] and rows[1] < said["two"].at["y"] < rows[2]
    thick = [one for one in marks(drawing, "line") if "thick" in one.classes]
    for one, line, y in zip(ratios, thick, rows, strict=True):
        shown = said[f"{one.ratio:.2f}"]
        assert shown.at["y"] == y and line.at["x1"] <= line.at["x2"] and line.at["y1"] == y - 4
        assert shown.at["x"] == pytest.approx(
            line.at["x2"] + 10 if one.ratio >= 1 else line.at["x1"] - 10, abs=0.02
        )
        assert said[one.name].at["x"] < line.at["x1"]
    assert (
        drawing.desc == "one a: 1.00; one b: 2.00; two c: 0.50; two d: 3.90"
        and drawing.height > rows[-1] + 34
    )


@pytest.mark.parametrize("seed", range(4))
def test_cells_cover_what_has_a_colour_once_and_nothing_else(seed: int) -> None:
    """Equal neighbours are one rectangle, and equal rows are."""
    chosen = random.Random(seed)
    rows = [[chosen.randrange(3) for _ in range(5)] for _ in range(3)]
    values = [row for row in rows for _ in range(chosen.randrange(1, 4))]
    drawing = Drawing("Cells", "Some.", 200)
    drawing.cells(10, 20, 50, 3 * len(values), values, {1: "f-warp", 2: "f-good"})
    drawn = marks(drawing, "rect")
    assert_apart(drawn)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            x, y = 10 + 10 * j + 5, 20 + 3 * i + 1.5
            found = [
                one.classes for one in drawn if one.box[0] < x < one.box[2] and one.box[1] < y < one.box[3]
            ]
            assert found == {0: [], 1: ["f-warp"], 2: ["f-good"]}[value]
    area = sum(one.at["width"] * one.at["height"] for one in drawn)
    assert area == pytest.approx(30 * sum(value > 0 for row in values for value in row))
    runs = sum(1 for i, row in enumerate(values) if not i or row != values[i - 1]
               for j, value in enumerate(row) if value and (not j or row[j - 1] != value))  # fmt: skip
    assert len(drawn) == runs


def made_panel(key: str, number: int, height: float) -> Panel:
    figure = Drawing(f"Title <{key}>", f"Words of {key} & {number}.", height)
    figure.rect(1, 2, 3, number, "f-block", f"tip {key}")
    facts = [Fact(f"{key}.fact", f"what {key}", number, "units", "model", f"1 + {number - 1}")]
    table = Table(("left", f"right {key}"), [(str(i), str(i * number)) for i in range(3)])
    return Panel(
        key, f"Is it {key}?", f"It is {number} & more.", figure, facts, table, {"n": number}, f"guess {key}"
    )


class Page(HTMLParser):
    """The parts of a page: each with its attributes, and the text within a tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))


def test_a_page_has_each_panel_with_its_numbers_and_its_words() -> None:
    """Links lead to sections, ids are there once, and a picture's title and words are those that it refers to."""
    panels = [made_panel(key, number, 40) for key, number in (("aa", 31), ("bb", 47), ("cc", 59))]
    page = Page(make_page("A <page>", ["first", "second"], panels, "tw.explain()", ["left out"]))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len({*ids})
    links = [
        attrs["href"] for tag, attrs in page.tags if tag == "a" and (attrs.get("href") or "").startswith("#")
    ]
    assert [link for link in links if link and link[1:] in ("aa", "bb", "cc")] == ["#aa", "#bb", "#cc"]
    assert {(link or "")[1:] for link in links} <= {*ids}
    for _, attrs in page.tags:
        assert {*(attrs.get("aria-labelledby") or "").split()} <= {*ids}
    said = [text for _, text in page.texts]
    for panel, number in zip(panels, (31, 47, 59), strict=True):
        assert f"Title <{panel.key}>" in said and f"Words of {panel.key} & {number}." in said
        assert any(panel.answer in text for text in said) and f"right {panel.key}" in said
        assert any(f"what {panel.key}" in text for text in said) and any(
            f"1 + {number - 1}" in text for text in said
        )
        assert all(str(i * number) in said for i in range(3)) and f"tip {panel.key}" in said
    assert [tag for tag, _ in page.tags].count("svg") == 3 and [tag for tag, _ in page.tags].count(
        "table"
    ) >= 3


def test_a_page_says_what_its_labels_and_its_keys_mean() -> None:
    page = make_page("A page", ["first"], [], "tw.explain()")
    assert (
        "<p><b>exact</b>: counted, or follows from what was counted; <b>model</b>: of a model of the GPU; "
        "<b>order</b>: an order of events; nothing is known of time; <b>measured</b>: timed on a GPU.</p>"
    ) in page
    keys = re.findall(r"<tr><th scope=row>(.*?)</th><td>(.*?)</td></tr>", page)
    assert keys == [
        ("1 to 9", "go to a section"), ("space", "play and pause, in the section that has the focus"),
        ("← →", "a step back, a step on; over a grid also ↑ ↓"), ("[ ]", "slower, faster"), ("Esc", "choose nothing"),
        ("?", "this list"),
    ]  # fmt: skip


def test_a_page_may_run_its_own_script_and_nothing_else() -> None:
    """It has one style and one script, each named by what it is; nothing comes from elsewhere, and nothing is sent."""
    page = make_page("A page", ["first"], [], "tw.explain()")
    (style,), (script,) = (
        re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL) for tag in ("style", "script")
    )
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy == (
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
    ).format(*hashes)


def test_what_a_line_of_the_verdict_adds_to_the_one_above_is_set_back() -> None:
    page = Page(make_page("A page", ["first", "  second"], [], "tw.explain()"))
    set_back = [attrs.get("class") for tag, attrs in page.tags if tag == "p"][1:3]
    assert set_back == [None, "more"] and {("p", "first"), ("p", "second")} <= {*page.texts}


def test_two_rungs_stand_one_above_the_other() -> None:
    """With their names; the script has all figures of all rungs, and which two are drawn."""
    rungs = {name: [made_panel("tiles", 3 * i + 4, 50 + i), made_panel("banks", 3 * i + 5, 60 + i)]
             for i, name in enumerate(("slow", "quick", "best"))}  # fmt: skip
    panel = make_beside(rungs, ("quick", "best"))
    said, rects = words(panel.figure), marks(panel.figure, "rect")
    assert [one.at["height"] for one in rects] == [8, 11] and panel.figure.height == 40 + 61 + 40 + 62
    assert said["quick"].at["y"] == 26 and said["best"].at["y"] == 26 + 40 + 61
    moved = [
        part.get("transform")
        for part in ElementTree.fromstring(panel.figure.to_svg()).iter()
        if part.get("transform")
    ]
    assert moved == ["translate(0 40)", "translate(0 141)"]
    assert panel.data["rungs"] == ["slow", "quick", "best"] and panel.data["chosen"] == [1, 2, 1]
    assert panel.data["questions"] == [("tiles", "Is it tiles?"), ("banks", "Is it banks?")]
    for name, listed in rungs.items():
        assert panel.data["figures"][name] == {
            one.key: [one.figure.height, one.answer, one.figure.body] for one in listed
        }
    assert panel.figure.desc == "quick: It is 8 & more. best: It is 11 & more."
    assert panel.answer.endswith("Here: is it banks? quick: It is 8 & more. best: It is 11 & more.")
    some = make_beside({"slow": rungs["slow"][:1], "best": rungs["best"]}, ("slow", "best"))
    assert some.data["chosen"] == [0, 1, 0]


def test_the_ladder_is_explained_on_an_h200_if_no_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(importlib.import_module("tilewise.explain.explain"), "explain_ladder", asked.append)
    tw.explain(tw.ladder)
    tw.explain(tw.ladder, gpu="t4")
    assert asked == ["h200", "t4"]
