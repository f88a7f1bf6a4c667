"""What pictures and their words are made of, without a launch: runs of numbers, lines, ticks, and the climb."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden_text import assert_unchanged
from tests.pictures import CLIMBERS, COMMAND, GOLDEN, list_pictures
from tilewise.emulator.profiling.recording import EventKind
from tilewise.emulator.support.bulk_requests import REQUEST
from tilewise.explain import climb
from tilewise.explain.chart import Line, Ratio, draw_lines, draw_ratios
from tilewise.explain.climb import Climb
from tilewise.explain.panels import code, overlap
from tilewise.explain.panels.climb import Climber, draw_climb, make_climb, show_rate
from tilewise.explain.panels.layout import Corner, counted, places_text, runs_text, split_runs, times_text
from tilewise.explain.panels.overlap import Span, _kinds, _mbarrier, make_overlap
from tilewise.explain.panels.overlap import _answer as overlap_answer
from tilewise.explain.panels.owner import _name_warps, block_index, thread_index
from tilewise.explain.panels.placement import _answer as placement_answer
from tilewise.explain.panels.residency import _draw_waves
from tilewise.explain.subject import Subject
from tilewise.explain.svg import STYLE, WIDTH, Drawing, find_ticks
from tilewise.gpus import find
from tilewise.instruments.block_views import Owners
from tilewise.instruments.occupancy import occupancy
from tilewise.instruments.recording import Recording

NUMBERS = st.lists(st.integers(0, 30), min_size=1, unique=True).map(sorted)


def numbers_in(text: str) -> list[int]:
    """What "0–3, 7 and 9" lists."""
    ends = [list(map(int, run.split("–"))) for run in text.replace(" and ", ", ").split(", ")]
    return [number for run in ends for number in range(run[0], run[-1] + 1)]


@given(NUMBERS, st.integers(1, 5))
def test_numbers_are_listed_by_their_runs_and_of_many_runs_the_first(numbers: list[int], most: int) -> None:
    starts = [number for number in numbers if number - 1 not in numbers]
    listed, *rest = runs_text(numbers, most).split(" … ")
    if len(starts) <= most:
        assert numbers_in(listed) == numbers and not rest
    else:
        assert numbers_in(listed) == [number for number in numbers if number < starts[most]]
        assert rest == [f"({len(starts)} pieces)"] and " and " not in listed


def test_one_of_a_kind_is_no_plural() -> None:
    assert places_text([3], [0, 1, 2, 3, 32]) == "row 3, columns 0–3 and 32"
    assert [*split_runs([5])] == [(5, 5)]


def test_large_numbers_are_told_to_three_digits_in_thousands() -> None:
    assert [code._short(value) for value in (0, 9.6, 999, 1000, 1234, 999e3, 1e6, 2.5e6, 1e9, 72.26e9)] == [
        "0", "10", "999", "1 k", "1.23 k", "999 k", "1 M", "2.5 M", "1 G", "72.3 G",
    ]  # fmt: skip
    assert [code._cut("x" * length, 5) for length in (4, 5, 6)] == ["xxxx", "xxxxx", "xxxx…"]


def test_things_and_times_are_counted_in_words() -> None:
    assert [counted(count, "element") for count in (0, 1, 2, 1234)] == [
        "0 elements", "1 element", "2 elements", "1,234 elements",
    ]  # fmt: skip
    assert [times_text(count) for count in (1, 2, 1234)] == ["once", "2 times", "1,234 times"]


@pytest.mark.parametrize(
    ("sizes", "across", "down", "exact"),
    [
        ((100, 100, 100), (194, 194), (194, 194), True),  # as high as there is room
        ((10, 300, 60), (109.67, 548.33), (109.67, 56), False),  # as wide as there is room
        ((90, 300, 60), (109.67, 548.33), (109.67, 164.5), True),
        ((1000, 10, 1000), (194, 56), (194, 194), False),  # what would be too narrow is widened
        ((1000, 10, 10), (56, 56), (56, 332), False),  # and the other one made lower for it
        ((10, 10, 1000), (384.16, 56), (332, 56), False),
        ((10, 1000, 10), (56, 602), (56, 56), False),
    ],
)
def test_matrices_are_to_scale_where_each_has_something_to_look_at(
    sizes: tuple[int, int, int], across: tuple[float, float], down: tuple[float, float], exact: bool
) -> None:
    """A to the left, B above: rows of C go on from A's, columns from B's, and all have room."""
    corner = Corner.of(*sizes)
    m, n, k = sizes
    assert corner.across == pytest.approx(across, abs=0.01) and corner.down == pytest.approx(down, abs=0.01)
    assert corner.to_scale is exact
    boxes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    left, top = 34 + across[0] + 18, 34 + down[0] + 18
    places = {
        "a": (34, top, across[0], down[1]),
        "b": (left, 34, across[1], down[0]),
        "c": (left, top, across[1], down[1]),
    }
    for name, (rows, columns) in boxes.items():
        x, y, wide, high = places[name]
        assert corner.place(name) == pytest.approx((x, y, wide, high), abs=0.01)
        assert corner.box(name, (0, rows), (0, columns)) == pytest.approx((x, y, wide, high), abs=0.01)
        part = corner.box(name, (rows // 2, rows), (columns // 5, columns // 2))
        assert part == pytest.approx(
            (x + wide / columns * (columns // 5), y + high / rows * (rows // 2),
             wide / columns * (columns // 2 - columns // 5), high / rows * (rows - rows // 2)), abs=0.01,
        )  # fmt: skip
        assert x + wide <= WIDTH - 10 + 0.01
    assert corner.height == pytest.approx(top + down[1] + 12, abs=0.01) and corner.height <= 440 + 12 + 0.01


def test_a_bulk_copy_out_of_shared_memory_is_a_write_and_one_into_it_fetches() -> None:
    names = ["cp.async.bulk.global.shared::cta", "cp.async.bulk.shared::cluster.global", "st.global.f32"]
    what = [EventKind.BULK, EventKind.BULK, EventKind.STORE, EventKind.BULK]
    recording = SimpleNamespace(
        events=SimpleNamespace(what=np.array(what), place=np.array([0, 1, 2, 0])),
        places=[SimpleNamespace(name=name) for name in names],
    )
    assert _kinds(cast(Recording, recording), np.arange(4)) == ["write", "fetch", "write", "write"]
    assert _kinds(cast(Recording, recording), np.array([1, 3])) == ["fetch", "write"]


def test_an_event_is_of_the_mbarrier_that_its_first_lane_names_or_its_copy() -> None:
    """Of a copy, its requests say which; of shared memory an address has other bits above the offset."""
    addresses = np.arange(100, 132) + (5 << 24)
    recording = SimpleNamespace(
        events=SimpleNamespace(
            what=[EventKind.BULK, EventKind.LOAD], addresses=[addresses, addresses + 1000]
        ),
        lanes=lambda event: [7, 9],
    )
    assert [_mbarrier(cast(Recording, recording), event) for event in (0, 1)] == [
        100 + REQUEST.MBARRIER // 8,
        1107,
    ]


def test_what_overlaps_is_said_by_who_fetches_and_who_multiplies() -> None:
    """Copies ahead are no less so where products are made without tensor cores, which no span is of."""

    def says(*did: tuple[int, str]) -> str:
        return overlap_answer([Span(0, warp, kind, i, 1, i) for i, (warp, kind) in enumerate(did)])

    roles = says((4, "fetch"), (0, "multiply"), (1, "multiply"), (4, "wait"))
    assert roles.startswith("Warps have roles: warp 4 fetches tiles, warps 0 to 1 multiply; ")
    ahead = "Every warp starts copies for later steps"
    assert says((0, "fetch"), (0, "multiply")).startswith(ahead)
    assert says((0, "fetch"), (0, "wait"), (0, "read")).startswith(ahead)
    assert says((0, "read"), (0, "wait")).startswith("Nothing is fetched ahead")
    assert says((0, "read"), (1, "write")).startswith("No warp waits for another")


@pytest.mark.parametrize(("count", "steps"), [(3, 56), (14, 57), (20, 1200)])
def test_of_many_warps_the_first_and_the_last_are_drawn_and_of_many_steps_the_first(
    count: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = [Span(0, warp, "read", warp, 1, warp) for warp in range(count)] + [
        Span(0, 0, "wait", steps - 1, 9, 7)
    ]
    monkeypatch.setattr(overlap, "list_spans", lambda _recording, block: spans if block == 5 else [])
    panel = make_overlap(cast(Subject, SimpleNamespace(recording=SimpleNamespace(blocks=[5, 6]))))
    assert panel is not None
    warps = [*range(count)] if count <= 14 else [*range(7), *range(count - 7, count)]
    assert panel.data["warps"] == warps and panel.data["most"] == steps
    assert {fact.name: fact.value for fact in panel.facts} == {
        "overlap.warps": count, "overlap.waits": 9, "overlap.steps": steps,
    }  # fmt: skip
    parts = [*ElementTree.fromstring(panel.figure.to_svg()).iter()]
    texts = {part.text: part for part in parts if part.tag.endswith("}text")}
    assert [text for text in texts if text and text.startswith("warp ")] == [f"warp {warp}" for warp in warps]
    low = 66 + 26 * len(warps) + 22
    assert texts["order, not time →"].get("y") == str(low)
    assert f"Block 5: {count} warps, in order of dependency" in texts
    note = texts.get(f"the first 56 of {steps:,} steps")
    assert (note is not None) is (steps > 56)
    assert note is None or (note.get("x"), note.get("y"), note.get("text-anchor")) == ("700", str(low), "end")
    wide = (WIDTH - 76 - 20) / 56
    drawn = {
        (float(part.get("x", 0)), float(part.get("y", 0))) for part in parts if part.get("height") == "22"
    }
    wanted = [(span.start, span.warp) for span in spans if span.start < 56 and span.warp in warps]
    assert sorted(drawn) == sorted(
        (round(76 + start * wide, 2), 66 + 26 * warps.index(warp)) for start, warp in wanted
    )


def test_a_warps_number_stands_in_the_middle_of_what_it_has() -> None:
    """Where that is a rectangle, and large enough: a row of a warp is too low, and one in pieces has no middle."""
    warp = np.full((12, 12), -1)
    warp[0:6, 0:6], warp[6:12, 0:6], warp[0:6, 6:12] = 0, 1, 2
    warp[6, 6:12] = 3
    warp[8, 6], warp[11, 11] = 4, 4
    drawing = Drawing("Warps", "Some of them.", 200)
    _name_warps(drawing, cast(Owners, SimpleNamespace(warp=warp)), (100.0, 50.0), 8.0)
    texts = [part for part in ElementTree.fromstring(drawing.to_svg()).iter() if part.tag.endswith("}text")]
    found = {part.text: (float(part.get("x", 0)), float(part.get("y", 0))) for part in texts}
    assert found == {"w0": (124, 79), "w1": (124, 127), "w2": (172, 79)}


def test_blocks_and_threads_are_numbered_x_first_then_y_then_z() -> None:
    launch = SimpleNamespace(grid=(3, 2, 4), block=(16, 4, 2))
    subject = cast(Subject, SimpleNamespace(recording=SimpleNamespace(launch=launch)))
    blocks = [(x, y, z) for z in range(4) for y in range(2) for x in range(3)]
    assert [block_index(subject, block) for block in range(24)] == blocks
    threads = [(x, y, z) for z in range(2) for y in range(4) for x in range(16)]
    assert [thread_index(subject, warp, lane) for warp in range(4) for lane in range(32)] == threads


def test_lanes_are_served_at_once_only_where_pieces_of_every_matrix_are_spread_over_all_banks() -> None:
    assert placement_answer({"A": 8, "B": 8}).endswith(": lanes that read them so are served at once.")
    for spread in ({"A": 8, "B": 4}, {"A": 1, "B": 8}, {"A": 2}):
        assert placement_answer(spread).endswith(": so many are served at once, if lanes read them so.")


def test_words_of_a_picture_are_as_they_were_given() -> None:
    """Names of kernels, and lines of their code, have signs that mean something in SVG."""
    words = 'f<3>(&x) < "y"'
    drawing = Drawing(words, words, 200)
    drawing.text(1, 2, words)
    drawing.rect(1, 2, 3, 4, "f-good", words)
    svg = ElementTree.fromstring(drawing.to_svg())
    assert [part.text for part in svg.iter() if part.text == words] == [words] * 4


@given(
    st.lists(st.integers(0, 400), min_size=2, max_size=9, unique=True).map(sorted),
    st.integers(-50, 50), st.integers(0, 300),
)  # fmt: skip
def test_lines_reach_from_one_end_of_their_axis_to_the_other(xs: list[int], low: int, span: int) -> None:
    drawing = Drawing("Lines", "One of them.", 200)
    points = [(float(x), float(low + span * (i % 2))) for i, x in enumerate(xs)]
    draw_lines(drawing, "Title", ("across", "up"), [Line("", points)])
    (drawn,) = re.findall(r'<polyline points="([^"]*)"', drawing.to_svg())
    (axis, *_) = re.findall(r'<line x1="([^"]*)" y1="[^"]*" x2="([^"]*)"', drawing.to_svg())
    left, right = map(float, axis)
    places = [float(pair.split(",")[0]) for pair in drawn.split()]
    assert places == sorted(places) and places[-1] == pytest.approx(right, abs=0.1)
    assert left <= places[0] and (places[0] == pytest.approx(left, abs=0.1)) is (xs[0] != 1), (
        "from 0 on, if from 1"
    )


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_a_few_round_numbers_at_equal_distances(low: float, span: float) -> None:
    ticks = find_ticks(low, low + span)
    assert 2 <= len(ticks) <= 6 and low - 1e-6 * span <= ticks[0] <= ticks[-1] <= low + span * (1 + 1e-6)
    steps = [after - before for before, after in pairwise(ticks)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-4) and f"{steps[0]:.0e}"[0] in "125"
    assert find_ticks(low, low) == [low], "of a single place itself"


def test_only_dotted_lines_have_marks_and_only_others_dashes() -> None:
    drawing = Drawing("Lines", "Three of them.", 200)
    points = [(0.0, 1.0), (1.0, 3.0), (2.0, math.inf), (3.0, 2.0)]
    lines = [Line("plain", points), Line("dotted", points, dotted=True), Line("dashed", points)]
    draw_lines(drawing, "Title", ("across", "up"), lines)
    text = drawing.to_svg()
    assert text.count("<circle") == 3  # none where a point is not finite
    assert re.findall(r'<polyline[^>]*class="none ([^"]*)"', text) == [
        "s-block round mid",
        "s-warp round mid",
        "s-good round mid dash",
    ]


def test_names_of_lines_stand_above_the_axes_beside_lines_like_theirs() -> None:
    drawing = Drawing("Lines", "Two of them.", 200)
    points = [(0.0, 1.0), (1.0, 3.0)]
    draw_lines(drawing, "Title", ("across", "up"), [Line("the one", points), Line("other", points)])
    parts = [*ElementTree.fromstring(drawing.to_svg()).iter()]
    grid = min(float(part.get("y1", 0)) for part in parts if part.get("class") == "s-rule")
    names = {part.text: part for part in parts if part.text in ("the one", "other")}
    for name, classes in (("the one", "s-block thick"), ("other", "s-warp thick dash")):
        (piece,) = (part for part in parts if part.get("class") == classes)
        assert float(names[name].get("y", 0)) < grid and float(piece.get("y1", 0)) < grid
        assert float(piece.get("x2", 0)) < float(names[name].get("x", 0)) - 5 * len(name)


def test_a_point_that_is_alone_is_labelled_and_not_at_the_bottom() -> None:
    drawing = Drawing("Lines", "One of them.", 200)
    draw_lines(drawing, "Title", ("across", "up"), [Line("", [(1.0, 97.1234)], dotted=True)])
    parts = [*ElementTree.fromstring(drawing.to_svg()).iter()]
    (circle,) = (part for part in parts if part.tag.endswith("}circle"))
    (label,) = (part for part in parts if part.text == "97.12")
    assert label.get("text-anchor") == "end" and label.get("x") == circle.get("cx")
    heights = [float(part.get("y1", 0)) for part in parts if part.get("class") == "s-rule"]
    assert min(heights) < float(circle.get("cy", 0)) < max(heights)


def test_every_colour_is_there_for_what_knows_no_variables() -> None:
    """A declaration that is not understood is left out, and the one before it counts."""
    rules = re.findall(r"(fill|stroke):var\(--\w+\)", STYLE)
    plain = re.findall(r"(fill|stroke):#\w{6};\1:var\(--\w+\)", STYLE)
    assert rules == plain and len(rules) > 20


def test_the_line_of_a_ratio_reaches_its_mark_where_that_lies_beyond_the_quartiles() -> None:
    """And the number stands behind both."""
    ratios = [Ratio("one", "better", 2.5, (1.5, 2.0)), Ratio("one", "worse", 0.4, (0.5, 0.6))]
    parts = [*ElementTree.fromstring(draw_ratios("Ratios", "below", ratios).to_svg()).iter()]
    above, under = (part for part in parts if "thick" in part.get("class", ""))
    (circle,) = (part for part in parts if part.tag.endswith("}circle"))
    (square,) = (part for part in parts if part.get("class") == "f-warp")
    said = {part.text: float(part.get("x", 0)) for part in parts if part.tag.endswith("}text")}
    assert above.get("x2") == circle.get("cx") and said["2.50"] > float(circle.get("cx", 0))
    assert above.get("y1") == above.get("y2") == circle.get("cy")
    assert float(under.get("y1", 0)) == float(square.get("y", 0)) + float(square.get("height", 0)) / 2
    assert float(under.get("x1", 0)) == pytest.approx(float(square.get("x", 0)) + 4, abs=0.02)
    assert said["0.40"] < float(square.get("x", 0))


def test_the_number_of_the_best_ratio_ends_within_the_picture() -> None:
    """Where that stands at the end of the axis: a power of two."""
    ratios = [Ratio("one", "worse", 0.9, (0.9, 0.9)), Ratio("one", "better", 4.0, (4.0, 4.0))]
    parts = [*ElementTree.fromstring(draw_ratios("Ratios", "below", ratios).to_svg()).iter()]
    (begins,) = (float(part.get("x", 0)) for part in parts if part.text == "4.00")
    assert begins + 8 * len("4.00") < WIDTH


@pytest.mark.parametrize("ratios", [[], [Ratio("one", "even", 1.0, (1.0, 1.0))]])
def test_ratios_that_are_all_the_same_have_an_axis(ratios: list[Ratio]) -> None:
    """And so have none, where nothing could be timed."""
    parts = [*ElementTree.fromstring(draw_ratios("Ratios", "below", ratios).to_svg()).iter()]
    assert [part.text for part in parts if part.get("class") == "small muted"] == ["1", "1.4", "below"]


def test_the_climb_stands_a_line_a_rung_over_powers_of_ten() -> None:
    parts = [*ElementTree.fromstring(draw_climb(CLIMBERS, "a GPU").to_svg()).iter()]

    def drawn(kind: str, shown: str) -> list[dict[str, float]]:
        found = [part for part in parts if part.tag.endswith("}" + kind)]
        found = [
            part for part in found if shown in [part.text, *(tip.text for tip in part), part.get("class")]
        ]
        return [{name: float(part.get(name, "nan")) for name in ("x", "y", "cx", "cy", "x1", "x2", "y1", "y2")}
                for part in found]  # fmt: skip

    def place(power: float) -> float:
        return first["x"] + (power - 9) * (second["x"] - first["x"])

    (first,), (second,) = drawn("text", "1 G"), drawn("text", "10 G")
    heights = []
    for one in CLIMBERS:
        (name,), (limit,) = drawn("text", one.name), drawn("circle", f"at most: {show_rate(one.rate)}")
        assert limit["cx"] == pytest.approx(place(math.log10(one.rate)), abs=0.02)
        assert abs(name["y"] - limit["cy"]) < 10 and name["x"] < place(9)
        heights.append(limit["cy"])
        if one.measured_rate:
            (reached,) = drawn("circle", f"measured: {show_rate(one.measured_rate)}")
            assert reached["cx"] == pytest.approx(place(math.log10(one.measured_rate)), abs=0.02)
            lines = [line for line in drawn("line", "s-block") if line["y1"] == line["y2"] == limit["cy"]]
            assert [(line["x1"], line["x2"]) for line in lines] == [(reached["cx"], limit["cx"])]
    assert heights == sorted(heights) and len(drawn("line", "s-block")) == 2


def test_the_climb_says_what_was_reached_of_what_was_measured() -> None:
    panel = make_climb(CLIMBERS, "a GPU", "By hand.")
    assert panel.table is not None and [row[-2:] for row in panel.table.rows] == [
        ("", ""),
        ("200 µs", "10%"),
        ("400 µs", "50%"),
    ]
    assert panel.answer == "From 1 GFLOP/s of 01_slow to 10 TFLOP/s of 03_fast, at most. By hand."
    measured = make_climb(CLIMBERS[1:], "a GPU", "")
    assert measured.answer.endswith("; measured, the last rung is 500 times as fast as the first.")
    assert {fact.name: fact.value for fact in measured.facts} == {
        "climb.02_quick": "0.1", "climb.02_quick.measured": "0.01",
        "climb.03_fast": "10", "climb.03_fast.measured": "5",
    }  # fmt: skip


def test_the_greatest_step_is_between_rungs_of_one_size() -> None:
    """A larger product has a higher limit by itself."""
    rungs = [
        Climber("01_slow", "one thread", (100, 100, 100), 2e-3, "latency", None),
        Climber("02_quick", "two", (100, 100, 100), 1e-3, "latency", None),
        Climber("03_large", "many", (1000, 1000, 1000), 2e-3, "memory", None),
        Climber("04_best", "more", (1000, 1000, 1000), 4e-4, "memory", None),
    ]
    assert Climb(find("h200"), {one.name: one for one in rungs}, {}).verdict == [
        "5 TFLOP/s at most by 04_best, bound by memory",
        "the greatest step from 03_large to 04_best: the limit rises 5 times",
    ]


def test_the_last_wave_of_blocks_is_as_wide_as_it_is_full() -> None:
    full = occupancy("rtx-2060-super", 256, 40)
    found = occupancy("rtx-2060-super", 256, 40, grid=full.blocks * full.sms * 5 // 2)
    drawn: list[float] = []
    drawing = SimpleNamespace(
        text=lambda *_: None,
        rect=lambda _x, _y, wide, _high, classes: drawn.append(wide) if "half" in classes else None,
    )
    subject: Any = None
    _draw_waves(cast(Drawing, drawing), subject, found, 0.0)
    assert drawn == [270, 270, 135]


@pytest.mark.parametrize(("gpu", "measured"), [("h200", 2e-6), ("t4", None)])
def test_a_rung_takes_as_long_as_its_launches_and_is_bound_by_what_binds_the_longest(
    monkeypatch: pytest.MonkeyPatch, gpu: str, measured: float | None
) -> None:
    """Its size is the one that was measured, whose time is that of one GPU."""

    def launch(seconds: float, **bounds: float) -> Any:
        parts = [SimpleNamespace(name=name, seconds=each) for name, each in bounds.items()]
        return SimpleNamespace(roofline=SimpleNamespace(seconds=seconds, bounds=parts))

    def profile(*size: int, gpu: object, sample: int) -> Any:
        assert (size, sample) == ((10, 20, 30), 1)
        return SimpleNamespace(
            all=[launch(1.0, L2=1.0), launch(3.0, fp32=2.0, memory=3.0), launch(2.0, L1=2.0)]
        )

    rung: Any = SimpleNamespace(name="04_tiled", title="tiles", profile=profile)
    listed = [["03_simple", 1, 2, 3, 4.0], ["04_tiled", 10, 20, 30, 2.0]]
    monkeypatch.setattr(climb, "_read_times", lambda: {"gpu": "h200", "rungs": listed})
    assert climb._climber(rung, find(gpu)) == Climber(
        "04_tiled", "tiles", (10, 20, 30), 6.0, "memory", measured
    )


def test_pictures_stay_as_they_are() -> None:
    assert_unchanged(GOLDEN.read_text(encoding="utf-8"), list_pictures(), GOLDEN.name, COMMAND)
