"""What the panels of two launches draw, against a plain count of the events, the owners and the figures of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

import tilewise as tw
from tests.emulator.products.panel_marks import KEPT, explain_inner, list_marks
from tests.emulator.products.test_panels import assert_apart, marks, words
from tilewise.explain.explanation import Explanation
from tilewise.explain.panel import Panel
from tilewise.explain.panels.overlap import list_spans
from tilewise.explain.trace import make_trace


@pytest.fixture(scope="module")
def inner() -> Explanation:
    """Of a block within the grid, so that its first row and column are not 0."""
    return explain_inner()


@pytest.fixture(scope="module")
def copied() -> Explanation:
    """Of a launch whose warps copy pieces of A and B into shared memory."""
    return tw.explain(tw.plan(80, 96, 64, dtype="float16", gpu="a100"))


def of(found: Explanation, name: str) -> Panel:
    panel = found.panel(name)
    assert panel is not None
    return panel


def test_the_element_that_was_asked_for_is_of_the_block_and_the_thread_that_own_it(
    inner: Explanation,
) -> None:
    """Its tile is named with the first and the last row and column, in the picture, the table and the words."""
    panel = of(inner, "owner")
    assert panel.table is not None
    rows = [(str(warp), f"{64 + warp}–{64 + warp}", "96–127", "32") for warp in range(32)]
    assert [*panel.table.rows] == rows
    assert {"columns 96 to 127 →", "rows 64 to 95 ↓"} <= {*words(panel.figure)}
    assert any(
        text.startswith("The tile of block 13, 32×32 of C, by warp; lane 0 of warp 0")
        for text in words(panel.figure)
    )
    assert panel.answer == "Thread 0 of block 13 writes 1 element: row 64, column 96."
    assert panel.data["first"] == [64, 96] and panel.data["block"] == 13
    assert panel.data["grid"] == [5, 3, 1] and panel.data["threads"][0] == 1024 // panel.data["threads"][1]
    assert (panel.data["warp"] == np.arange(32)[:, None]).all() and (
        panel.data["lane"] == np.arange(32)
    ).all()
    text = inner.element(70, 100)
    assert "lane 4 of warp 6 of block 13" in text and "blockIdx (3, 2, 0)" in text
    assert "in the tile of rows 64 to 95, columns 96 to 127" in text
    x, y, scale = panel.data["place"]
    own = [one for one in marks(panel.figure, "rect") if one.classes == "f-thread"]
    assert [one.box for one in own] == [pytest.approx((x, y, x + scale, y + scale), abs=0.02)]


def test_levels_are_cut_into_as_many_parts_as_there_are(inner: Explanation) -> None:
    """Lines between the tiles of C, at equal distances; a part for each warp of a block; and each lane's elements."""
    panel = of(inner, "levels")
    assert panel.table is not None
    assert [*panel.table.rows] == [
        ("matrix", "96", "160", "15,360"), ("block", "32", "32", "1,024"), ("warp", "1", "32", "32"), ("thread", "0", "0", "1"),
    ]  # fmt: skip
    assert {fact.name: fact.value for fact in panel.facts} == {
        "levels.block": "32×32", "levels.warp": "1×32", "levels.thread": 1, "levels.tiles": 15, "levels.step": 32,
    }  # fmt: skip
    whole, tile, block, *parts = marks(panel.figure, "rect")
    warp = parts[32]
    grid = [one.at for one in marks(panel.figure, "line") if one.classes == "s-rule"]
    left, top, right, low = whole.box
    upright = [
        at["x1"] for at in grid if at["x1"] == at["x2"] and (at["y1"], at["y2"]) == pytest.approx((top, low))
    ]
    level = [
        at["y1"]
        for at in grid
        if at["y1"] == at["y2"] and (at["x1"], at["x2"]) == pytest.approx((left, right))
    ]
    assert upright == pytest.approx([left + (right - left) * i / 5 for i in range(1, 5)], abs=0.02)
    assert level == pytest.approx([top + (low - top) * i / 3 for i in range(1, 3)], abs=0.02)
    assert tile.box == pytest.approx((upright[2], level[1], upright[3], low), abs=0.03)
    assert [one.classes for one in parts[:32]] == ["none s-warp"] * 32
    assert_apart(parts[:32])
    for i, one in enumerate(parts[:32]):
        high = block.at["height"] / 32
        assert one.box == pytest.approx(
            (block.box[0], block.box[1] + i * high, block.box[2], block.box[1] + (i + 1) * high), abs=0.03
        )
    assert warp.box == parts[0].box and warp.classes == "f-warp half s-warp thick"
    last, own = parts[33:]
    assert own.box == pytest.approx(
        (last.box[0], last.box[1], last.box[0] + last.at["width"] / 32, last.box[3]), abs=0.03
    )
    assert {"lane 0: rows 0", "columns 0", "warp part 1×32", "block tile 32×32"} <= {*words(panel.figure)}
    boxes = panel.data["boxes"]
    assert [one["rows"] for one in boxes] == [[0, 96], [64, 32], [64, 1]]
    assert [one["columns"] for one in boxes] == [[0, 160], [96, 32], [96, 32]]
    for one, drawn in zip(boxes, (whole, block, last), strict=True):
        x, y, wide, high = one["place"]
        assert (x, y, x + wide, y + high) == pytest.approx(drawn.box, abs=0.02)


@pytest.mark.parametrize("which", ["inner", "copied"])
def test_tiles_of_a_and_b_lie_beside_and_above_the_tile_of_c(
    which: str, request: pytest.FixtureRequest
) -> None:
    """A's rows are C's, B's columns are C's."""
    found = request.getfixturevalue(which)
    panel = of(found, "tiles")
    m, n, k = panel.data["sizes"]
    assert (m, n, k) == found.subject.sizes and panel.table is not None
    rects = marks(panel.figure, "rect")
    a, b, c = rects[:3]
    assert_apart([a, b, c])
    assert (a.box[1], a.box[3]) == (c.box[1], c.box[3]) and (b.box[0], b.box[2]) == (c.box[0], c.box[2])
    for box, name in zip((a, b, c), "abc", strict=True):
        x, y, wide, high = panel.data["boxes"][name]
        assert (x, y, x + wide, y + high) == pytest.approx(box.box, abs=0.02)
    moving = marks(panel.figure, "rect", "moving")
    (r0, r1), (c0, c1) = panel.data["rows"], panel.data["columns"]
    k0, k1 = panel.data["steps"][0]
    for whole, part, (rows, high), (columns, wide) in zip(
        (a, b, c), moving,
        (((r0, r1), m), ((k0, k1), k), ((r0, r1), m)), (((k0, k1), k), ((c0, c1), n), ((c0, c1), n)), strict=True,
    ):  # fmt: skip
        left, top = whole.box[:2]
        across, down = whole.at["width"] / wide, whole.at["height"] / high
        assert part.box == pytest.approx(
            (
                left + columns[0] * across,
                top + rows[0] * down,
                left + columns[1] * across,
                top + rows[1] * down,
            ),
            abs=0.05,
        )
    assert {one.classes.split()[0] for one in moving} == {"f-block", "f-warp", "f-good"}
    strips = rects[3:5]
    assert (strips[0].box[0], strips[0].box[2]) == pytest.approx((a.box[0], a.box[2]), abs=0.02)
    assert (strips[1].box[1], strips[1].box[3]) == pytest.approx((b.box[1], b.box[3]), abs=0.02)
    shafts = [one.at for one in marks(panel.figure, "line") if one.classes in ("s-block", "s-warp")]
    assert shafts[0]["x1"] > moving[0].box[2] and shafts[0]["y1"] == pytest.approx(
        sum(moving[0].box[1::2]) / 2, abs=0.02
    )
    assert shafts[1]["y1"] > moving[1].box[3] and shafts[1]["x1"] == pytest.approx(
        sum(moving[1].box[::2]) / 2, abs=0.02
    )
    assert shafts[0]["x2"] > shafts[0]["x1"] and shafts[1]["y2"] > shafts[1]["y1"]


@pytest.mark.parametrize("which", ["inner", "copied"])
def test_steps_take_all_of_k_one_after_the_other(which: str, request: pytest.FixtureRequest) -> None:
    panel = of(request.getfixturevalue(which), "tiles")
    assert panel.table is not None
    m, n, k = panel.data["sizes"]
    (r0, r1), (c0, c1) = panel.data["rows"], panel.data["columns"]
    k0, k1 = panel.data["steps"][0]
    steps = panel.data["steps"]
    assert (
        steps[0][0] == 0 and steps[-1][1] == k and all(one[1] == other[0] for one, other in pairwise(steps))
    )
    assert [row[:2] for row in panel.table.rows] == [
        (str(i), f"{s}–{e - 1}") for i, (s, e) in enumerate(steps)
    ]
    events = [int(row[2]) for row in panel.table.rows]
    assert events == sorted(events)
    facts, depth, size = {fact.name: fact.value for fact in panel.facts}, k1 - k0, (r1 - r0, c1 - c0)
    assert facts == {
        "tiles.steps": len(steps), "tiles.depth": depth, "tiles.read": depth * sum(size),
        "tiles.products": depth * size[0] * size[1], "tiles.reuse": f"{size[1]} of A, {size[0]} of B",
    }  # fmt: skip
    assert (
        f"rows {r0} to {r1 - 1} and columns {c0} to {c1 - 1} is the sum over {len(steps)} steps"
        in panel.figure.desc
    )
    assert {f"A {m}×{k}", f"B {k}×{n}", f"C {m}×{n}"} <= {*words(panel.figure)}


@pytest.mark.parametrize("which", ["inner", "copied"])
def test_the_small_product_has_its_numbers_in_their_fields(
    which: str, request: pytest.FixtureRequest
) -> None:
    panel = of(request.getfixturevalue(which), "tiles")
    rects = marks(panel.figure, "rect")
    toy = panel.data["toy"]
    for name, (x, y) in toy["places"].items():
        numbers = marks(panel.figure, "text", f"toy-{name}")
        assert [(one.at["x"], one.at["y"]) for one in numbers] == [
            pytest.approx((x + (i % 4 + 0.5) * toy["cell"], y + (i // 4 + 0.66) * toy["cell"]), abs=0.02) for i in range(16)
        ]  # fmt: skip
    fields = rects[8:56]
    assert_apart(fields)
    tinted = [sum("faint" in one.classes for one in fields[16 * i : 16 * i + 16]) for i in range(3)]
    assert tinted == [4, 4, 4] and len(rects) == 56


@pytest.mark.parametrize("which", ["inner", "copied"])
def test_a_span_stands_in_the_row_of_its_warp_at_its_step(which: str, request: pytest.FixtureRequest) -> None:
    """Of the first and the last warps where there are many, in the colour and with the letter that the legend has."""
    found = request.getfixturevalue(which)
    panel = of(found, "overlap")
    assert panel.table is not None
    subject = found.subject
    spans = list_spans(subject.recording, subject.recording.blocks[0])
    warps = sorted({span.warp for span in spans})
    rows = warps if len(warps) <= 14 else warps[:7] + warps[-7:]
    legend = marks(panel.figure, "rect")[:6]
    names = marks(panel.figure, "text")[1:7]
    colours, letters, last = {}, {}, 0.0
    for box, name in zip(legend, names, strict=True):
        kind, letter = name.text.rstrip(")").split(" (")
        colours[kind], letters[kind] = box.classes, letter
        assert last < box.box[0] < box.box[2] < name.at["x"] and box.box[1] < name.at["y"] < box.box[3] + 3
        last = name.at["x"] + 6.5 * len(name.text)
    assert last < panel.figure.width and len({*colours.values()}) == len({*letters.values()}) == 6
    assert [*colours] == panel.data["kinds"]
    assert f"Block {subject.recording.blocks[0]}: {len(warps)} warps, in order of dependency" in words(
        panel.figure
    )
    labels = [one for one in marks(panel.figure, "text", "spans") if one.text.startswith("warp")]
    assert [one.text for one in labels] == [f"warp {warp}" for warp in rows] and panel.data["warps"] == rows
    drawn, said = marks(panel.figure, "rect", "spans"), marks(panel.figure, "text", "spans")[len(rows) :]
    left, top, high = panel.data["place"]
    shown = [span for span in spans if span.start < 56 and span.warp in rows]
    step = (720 - left - 20) / 56
    assert len(drawn) == len(said) == len(shown)
    for one, label, span in zip(drawn, said, shown, strict=True):
        row = rows.index(span.warp)
        assert one.at["x"] == pytest.approx(left + span.start * step, abs=0.01)
        assert one.at["y"] == top + row * high and one.classes == colours[span.kind]
        assert label.text == letters[span.kind] and one.box[1] < label.at["y"] < one.box[3]
        assert label.at["x"] == pytest.approx(left + (span.start + 0.5) * step, abs=0.01)
        assert one.box[1] < labels[row].at["y"] < one.box[3] and one.box[2] <= 700
    apart = Counter((one.at["x"], one.at["y"]) for one in drawn)
    assert {*apart.values()} == {1}, "of a warp and a step there is one span"
    most = 1 + max(span.start for span in spans)
    facts = {fact.name: fact.value for fact in panel.facts}
    assert facts == {
        "overlap.warps": len(warps), "overlap.steps": most,
        "overlap.waits": sum(span.count for span in spans if span.kind == "wait"),
    }  # fmt: skip
    assert (f"the first 56 of {most:,} steps" in words(panel.figure)) is (most > 56)
    assert panel.data["spans"] == [
        [span.warp, [*colours].index(span.kind), span.start, span.count] for span in spans[:6000]
    ]
    assert [*panel.table.rows] == [(str(s.warp), s.kind, str(s.start), str(s.count)) for s in spans[:80]]


@pytest.mark.parametrize("last", [False, True])
def test_a_trace_has_each_span_once_at_its_step(copied: Explanation, last: bool) -> None:
    """In the process of its block and the thread of its warp; all of them named, and no event is lost."""
    recording = copied.subject.recording
    subject = copied.subject.showing_thread(recording.launch.blocks - 1, 0) if last else copied.subject
    recording, trace = subject.recording, make_trace(subject)
    events = trace["traceEvents"]
    assert trace["otherData"] == {
        "title": subject.title,
        "units": "steps that follow one another; nothing is known of time",
    }
    processes = [one for one in events if one["name"] == "process_name"]
    assert [(one["ph"], one["pid"], one["tid"], one["args"]) for one in processes] == [
        ("M", block, 0, {"name": f"block {block}"}) for block in recording.blocks
    ]
    assert {one["pid"] for one in events} == {*recording.blocks}
    named = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    bars = [one for one in events if one["ph"] == "X"]
    assert {(one["pid"], one["tid"]) for one in bars} == {*named}
    assert all(name == f"warp {warp}" for (_, warp), name in named.items())
    starts: dict[tuple[int, int], list[int]] = {}
    for one in bars:
        starts.setdefault((one["pid"], one["tid"]), []).append(one["ts"])
        assert one["dur"] == 1 and one["name"] == one["cat"]
    assert all(a < b for listed in starts.values() for a, b in pairwise(listed))
    spans = [span for block in recording.blocks for span in list_spans(recording, block)]
    assert [(one["pid"], one["tid"], one["ts"], one["args"]["events"], one["name"]) for one in bars] == [
        (span.block, span.warp, span.start, span.count, span.kind) for span in spans
    ]
    for one, span in zip(bars, spans, strict=True):
        place = recording.places[recording.events.place[span.event]]
        assert (one["args"]["instruction"], one["args"]["line"]) == (place.name, subject.where(place.line))


def test_a_piece_lies_in_the_line_and_the_group_of_banks_of_its_address(copied: Explanation) -> None:
    """No two in one place; those of the number that eight lanes read together are dark."""
    panel = of(copied, "placement")
    assert panel.table is not None
    spread, ends = {}, []
    for role in "ab":
        cells, vector = panel.data["pieces"][role], panel.data["vectors"][role]
        drawn, texts = (
            marks(panel.figure, "rect", f"pieces-{role}"),
            marks(panel.figure, "text", f"pieces-{role}"),
        )
        banks = [one for one in texts if one.at["y"] == 74]
        assert [one.text for one in banks] == [f"{4 * group}–{4 * group + 3}" for group in range(8)]
        assert_apart(drawn)
        wide = banks[1].at["x"] - banks[0].at["x"]
        said = [one for one in texts if "·" in one.text and ":" not in one.text]
        assert len(drawn) == len(said) == len(cells) == len({cell[:2] for cell in cells})
        for box, text, (line, group, index, number) in zip(drawn, said, cells, strict=True):
            assert box.box[0] < banks[group].at["x"] < box.box[2] and box.box[1] == pytest.approx(
                84.5 + 24 * line
            )
            assert text.text == f"{vector[0]}{index}·{number}" and box.box[1] < text.at["y"] < box.box[3]
            assert text.at["x"] == pytest.approx(banks[group].at["x"], abs=0.02)
            assert 0 <= line < 16 and 0 <= group < 8
            assert ("f-block" in box.classes) is (number == cells[0][3]) and box.at["width"] == pytest.approx(
                wide - 1, abs=0.02
            )
        ends.append((min(one.box[0] for one in drawn), max(one.box[2] for one in drawn)))
        spread[role] = len({cell[1] for cell in cells if cell[3] == cells[0][3] and cell[2] < 8})
    assert ends[0][1] < ends[1][0] and ends[1][1] <= 720 - 24
    assert [*panel.table.rows] == [
        (role.upper(), str(cell[0]), str(cell[1]), f"{panel.data['vectors'][role]} {cell[2]}, piece {cell[3]}")
        for role in "ab" for cell in panel.data["pieces"][role]
    ]  # fmt: skip
    assert {fact.name: fact.value for fact in panel.facts} == {
        f"placement.{role}": spread[role] for role in "ab"
    }
    assert f"in {spread['a']} (A) and {spread['b']} (B) of the 8 groups" in panel.answer


def test_boxes_of_the_copy_engine_lie_turned_as_its_swizzle_says() -> None:
    """Rows of 128 bytes, one in each line; of row r piece n lies in group n xor r mod 8."""
    panel = of(tw.explain(tw.plan(64, 64, 64, dtype="float16", layout="nt", gpu="h200")), "placement")
    for role in "ab":
        cells = panel.data["pieces"][role]
        assert [*map(tuple, cells)] == [(i // 8, i % 8, i // 8, i % 8 ^ i // 8 % 8) for i in range(128)]


def test_events_that_did_not_fit_are_said_to_be_in_no_picture(inner: Explanation) -> None:
    recording = replace(inner.subject.recording, lost=7)
    said = f"what came after these {len(recording):,} events is in no picture"
    about = Explanation(replace(inner.subject, recording=recording)).about
    assert about == [inner.about[0], said, *inner.about[1:]]


def test_pictures_have_the_marks_that_are_kept(inner: Explanation) -> None:
    """Words at their places; and of lines, boxes and circles as many, and as large and as far across in all."""
    stale = "look at the pictures; then python -m tests.emulator.products.panel_marks"
    assert list_marks(inner).splitlines() == KEPT.read_text(encoding="utf-8").splitlines(), stale


@pytest.mark.parametrize("which", ["inner", "copied"])
def test_no_mark_leaves_its_picture_and_no_words_lie_on_others(
    which: str, request: pytest.FixtureRequest
) -> None:
    """Lines and circles too; and words, by a width of letters that is rather too small."""
    for panel in request.getfixturevalue(which).panels:
        figure = panel.figure
        root = ElementTree.fromstring(figure.to_svg())
        lowest, said = 0.0, []
        for part in root.iter():
            at = {name: float(part.get(name, 0)) for name in ("x1", "x2", "cx", "y1", "y2", "cy", "x", "y")}
            across, down = (
                [at[name] for name in ("x1", "x2", "cx", "x")],
                [at[name] for name in ("y1", "y2", "cy", "y")],
            )
            if part.tag.endswith("}text") and part.text:
                wide = len(part.text) * 4.5
                left = (
                    at["x"] - {"start": 0, "middle": wide / 2, "end": wide}[part.get("text-anchor", "start")]
                )
                said.append((left, left + wide, at["y"], part.text))
                across += [left, left + wide]
            elif part.tag.endswith("}rect"):
                across.append(at["x"] + float(part.get("width", 0)))
                down.append(at["y"] + float(part.get("height", 0)) * (part.get("class") != "f-bg"))
            assert min(across + down) >= 0 and max(across) <= figure.width + 0.01, (
                panel.key,
                part.attrib,
                part.text,
            )
            lowest = max(lowest, *down)
        assert lowest <= figure.height, panel.key
        for i, (left, right, y, text) in enumerate(said):
            for start, end, at_y, other in said[:i]:
                assert right <= start or end <= left or abs(y - at_y) >= 10, (panel.key, text, other)
