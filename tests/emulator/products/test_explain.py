"""Explanations: what they say of launches whose figures are known, by Python and on the command line."""

from __future__ import annotations

import importlib
import json
import math
import re
from dataclasses import replace
from html import escape
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.documented import documented_keys
from tests.notebook import notebook_frame
from tilewise.cli.main import main
from tilewise.emulator.profiling.recording import EventKind
from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.explain.climb import Climb, explain_ladder
from tilewise.explain.explanation import FIGURES, Explanation
from tilewise.explain.panel import LABELS
from tilewise.explain.panels.overlap import Span, list_spans
from tilewise.instruments.recording import Recording

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden"
AXPY = """extern "C" __global__ void axpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""
FAR = """extern "C" __global__ void mm(const float *A, const float *B, float *C, int n, int k) {
    int r = blockIdx.x * 16 + threadIdx.x, c = blockIdx.y * 16 + threadIdx.y;
    float s = 0;
    for (int i = 0; i < k; ++i) s += A[r * k + i] * B[i * n + c];
    C[r * n + c] = s;
}"""
COLUMN = """extern "C" __global__ void mm(const float *A, const float *B, float *C, int n, int k) {
    __shared__ float As[64 * 8], Bs[8 * 64];
    int column = threadIdx.x % 64, group = threadIdx.x / 64, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    float sums[8] = {};
    for (int i = 0; i < k; i += 8) {
        As[threadIdx.x] = A[(row0 + threadIdx.x / 8) * k + i + threadIdx.x % 8];
        Bs[threadIdx.x] = B[(i + threadIdx.x / 64) * n + column0 + threadIdx.x % 64];
        __syncthreads();
        for (int j = 0; j < 8; ++j)
            for (int r = 0; r < 8; ++r) sums[r] += As[(group * 8 + r) * 8 + j] * Bs[j * 64 + column];
        __syncthreads();
    }
    for (int r = 0; r < 8; ++r) C[(row0 + group * 8 + r) * n + column0 + column] = sums[r];
}"""
SQUARE = """extern "C" __global__ void mm(const float *A, const float *B, float *C, int n, int k) {
    __shared__ float As[128 * 8], Bs[8 * 128];
    int x = threadIdx.x % 16, y = threadIdx.x / 16, row0 = blockIdx.y * 128, column0 = blockIdx.x * 128;
    float sums[8][8] = {};
    for (int i = 0; i < k; i += 8) {
        for (int at = threadIdx.x; at < 1024; at += 256) {
            As[at] = A[(row0 + at / 8) * k + i + at % 8];
            Bs[at] = B[(i + at / 128) * n + column0 + at % 128];
        }
        __syncthreads();
        for (int j = 0; j < 8; ++j)
            for (int r = 0; r < 8; ++r)
                for (int c = 0; c < 8; ++c) sums[r][c] += As[(y * 8 + r) * 8 + j] * Bs[j * 128 + x * 8 + c];
        __syncthreads();
    }
    for (int r = 0; r < 8; ++r)
        for (int c = 0; c < 8; ++c) C[(row0 + y * 8 + r) * n + column0 + x * 8 + c] = sums[r][c];
}"""


@pytest.fixture(scope="module")
def conflicted() -> Explanation:
    return tw.explain(tw.ladder["05_tiled_conflicted"].plan(96, 160, 64, gpu="rtx-2060-super"))


def test_published_figures(conflicted: Explanation) -> None:
    """Those of the accounts that the figures are set beside, and the bank conflicts that ncu counted."""
    known = conflicted.facts
    assert (known["order.column"], known["order.square"]) == (16512, 3072)
    assert (known["load.example"], known["owner.row"], known["owner.column"]) == (4, 3, 2)
    assert (known["residency.example_division"], known["residency.example"]) == (1638, 1024)
    plan = tw.ladder["05_tiled_conflicted"].plan(640, 352, 448, gpu="rtx-2060-super")
    assert tw.explain(plan).facts["banks.total"] == 28_188_160


def test_a_bar_is_as_long_as_the_number_behind_it(conflicted: Explanation) -> None:
    bar = r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)" .*\n<text x="([\d.]+)" y="\d+">([\d,]+)·K<'
    found = [
        [float(text.replace(",", "")) for text in row] for row in re.findall(bar, conflicted.figure("order"))
    ]
    assert len(found) == 5
    for start, length, label, number in found:
        assert label == pytest.approx(start + length + 8)
        assert length / number == pytest.approx(found[0][1] / found[0][3], rel=1e-3)


def test_every_part_has_what_it_needs(conflicted: Explanation) -> None:
    assert "recorded" in conflicted.text and conflicted.text.endswith(
        ".html()"
    )  # what it is of, and where to look on
    names = [fact.name for panel in conflicted.panels for fact in panel.facts]
    assert len(names) == len({*names})
    for panel in conflicted.panels:
        assert panel.key in FIGURES and panel.question.endswith("?") and panel.answer.endswith((".", ";"))
        assert all(fact.label in LABELS and fact.name.startswith(panel.key) for fact in panel.facts)
        picture = ElementTree.fromstring(conflicted.figure(panel.key))
        assert picture.get("role") == "img" and "nan" not in ElementTree.tostring(picture, "unicode")
        if panel.table:
            assert panel.table.rows and {len(row) for row in panel.table.rows} == {len(panel.table.head)}
    page = conflicted.html()
    assert {*re.findall(r"<b>(\w+)</b>: ", page)} == {*LABELS}, "what each label of a number means"
    numbers = dict(re.findall(r'<data data-fact="([^"]*)" value="([^"]*)">', page))
    assert numbers == {name: escape(str(value)) for name, value in conflicted.facts.items()}
    guesses = [escape(panel.guess) for panel in conflicted.panels if panel.guess]
    assert re.findall(r'<p class="guess">A guess first: (.*)</p>', page) == guesses and guesses
    with pytest.raises(UnknownNameError, match="figure 'bank' is not known; did you mean 'banks'"):
        conflicted.figure("bank")


def drawn(found: Explanation, figure: str, kind: str) -> list[ElementTree.Element]:
    return [
        part for part in ElementTree.fromstring(found.figure(figure)).iter() if part.tag.endswith("}" + kind)
    ]


def test_a_notebook_shows_the_page_in_a_frame(conflicted: Explanation) -> None:
    assert notebook_frame(conflicted) == (conflicted.subject.title, conflicted.html())


def test_what_is_drawn_lies_within_its_picture(conflicted: Explanation) -> None:
    assert_drawn_within(conflicted)


def assert_drawn_within(found: Explanation) -> None:
    for panel in found.panels:
        picture = ElementTree.fromstring(found.figure(panel.key))
        wide, high = map(float, picture.get("viewBox", "").split()[2:])
        for part in picture.iter():
            x, y, more, down = (float(part.get(name, 0)) for name in ("x", "y", "width", "height"))
            if part is not picture:
                assert x >= 0 and y >= 0 and x + more <= wide and y + down <= high, (panel.key, part.attrib)


def test_what_is_reckoned_by_hand_is_right(conflicted: Explanation) -> None:
    """In the small examples: from block and thread to row and column, and the sum of an element by its tiles."""
    texts = [part.text or "" for key in ("owner", "tiles") for part in drawn(conflicted, key, "text")]
    found = [one for text in texts if (one := re.fullmatch(r"(?:\w+ = )?([\d ·+]+) = (\d+)", text))]
    assert len(found) == 6
    for one in found:
        assert sum(math.prod(map(int, term.split("·"))) for term in one[1].split("+")) == int(one[2]), one[0]
    values = [text for text in texts if text.isdigit()]
    a, b, c = (np.array(one, int) for one in (values[-36:-20], values[-20:-4], values[-4:]))
    assert (a.reshape(4, 4)[2:, :2] @ b.reshape(4, 4)[:2, 2:] == c.reshape(2, 2)).all(), (
        "after the first step"
    )


def test_warps_are_told_apart_by_their_colours(conflicted: Explanation) -> None:
    """Of each other in the tile, as far as there are colours; and as the words beside a block say."""
    classes = [part.get("class") or "" for part in drawn(conflicted, "owner", "rect")]
    warps = [name for name in classes if name.endswith(" faint")]
    rects = [(part.get("class") or "", [float(part.get(name) or 0) for name in ("x", "y", "width", "height")])
             for part in drawn(conflicted, "owner", "rect")]  # fmt: skip
    (outline,) = (box for name, box in rects if name == "none s-muted")
    cells = [box for name, box in rects if name.endswith(" faint")][:32]
    assert outline == [min(x for x, *_ in cells), min(y for _, y, *_ in cells), cells[0][2], 32 * cells[0][3]]
    assert len({*warps}) == 6 and all(one != other for one, other in pairwise(warps[:32]))
    texts = [part.text or "" for part in drawn(conflicted, "load", "text")]
    beside = [re.match(r"warp (\d): y = (\d) and (\d), all x", text) for text in texts]
    told = [tuple(map(int, one.groups())) for one in beside if one]
    assert told == [(warp, 2 * warp, 2 * warp + 1) for warp in range(4)]
    colours = [
        name
        for name in (part.get("class") or "" for part in drawn(conflicted, "load", "rect"))
        if name.endswith(" half")
    ]
    rows = colours[-8:]
    assert [rows.index(rows[first]) for _, first, _ in told] == [first for _, first, _ in told]
    assert all(rows[first] == rows[second] for _, first, second in told)


def test_the_stairs_of_registers_go_down_over_the_whole_of_their_axis(conflicted: Explanation) -> None:
    """And what this launch has lies on them."""
    steps = next(
        part for part in drawn(conflicted, "residency", "polyline") if "thick" in (part.get("class") or "")
    )
    axis = drawn(conflicted, "residency", "line")[0]
    points = [tuple(map(float, point.split(","))) for point in (steps.get("points") or "").split()]
    assert points == sorted(points) and points[0][0] == float(axis.get("x1") or "")
    assert 0 <= float(axis.get("x2") or "") - points[-1][0] <= 10
    here = next(iter(drawn(conflicted, "residency", "circle")))
    x, y = float(here.get("cx") or ""), float(here.get("cy") or "")
    assert y in {high for at, high in points if at - 10 < x <= at + 10}


def test_the_words_beside_a_bar_of_blocks_are_at_its_height(conflicted: Explanation) -> None:
    texts = drawn(conflicted, "residency", "text")
    words = [float(text.get("y") or 0) for text in texts if (text.text or "").startswith("room for")]
    rects = drawn(conflicted, "residency", "rect")
    bars = [float(one.get("y") or 0) for one in rects if one.get("class") == "f-panel s-rule"]
    assert len(words) > 2 and all(top < y < top + 20 for top, y in zip(bars, words, strict=False))


def test_lanes_of_a_line_are_listed_by_what_their_memory_is_made_of(conflicted: Explanation) -> None:
    """Words of shared memory in banks, or elements of a matrix in lines and sectors."""
    subject, seen = conflicted.subject, set[str]()
    for number in {subject.number_of(pattern.line) for pattern in subject.patterns}:
        *_, text = conflicted.line(number).partition("lane  ")
        head, *rows = [line.split(maxsplit=4) for line in text.splitlines()]
        for row in rows:
            one = dict(zip(["lane", *head], row, strict=True))
            offset = int(one["offset"])
            if "bank" in head:
                assert int(one["word"]) == offset // 4 and int(one["bank"]) == offset // 4 % 32
            else:
                assert (int(one["line"]), int(one["sector"])) == (offset // 128, offset // 32)
                assert one["element"][:2] in ("a[", "b[", "c[")
        seen |= {*head}
    assert seen == {"offset", "bank", "word", "line", "sector", "element"}


def test_levels_are_drawn_from_c_to_a_tile_to_a_warp(conflicted: Explanation) -> None:
    """Rectangles side by side, each part as large in its whole as it is; the tile that was recorded where it lies."""
    texts = [part.text or "" for part in drawn(conflicted, "levels", "text")]
    assert {"C", "96×160, a tile for each block", "Block", "block tile 32×32", "Warp"} <= {*texts}
    boxes = {part.get("class"): [float(part.get(name) or 0) for name in ("x", "y", "width", "height")]
             for part in reversed(drawn(conflicted, "levels", "rect"))}  # fmt: skip
    whole, tile = boxes["f-panel s-muted"], boxes["f-block half s-block thick"]
    assert tile[2:] == pytest.approx([whole[2] * 32 / 160, whole[3] * 32 / 96], abs=0.02)
    assert whole[2] / whole[3] == pytest.approx(160 / 96, abs=0.01)
    owners = conflicted.subject.owners
    assert owners is not None
    place = whole[0] + whole[2] * owners.first_column / 160, whole[1] + whole[3] * owners.first_row / 96
    assert tile[:2] == pytest.approx(place, abs=0.02)
    assert " …" not in conflicted.about[0], "a few blocks are named, and all of them"


def test_a_picture_says_in_words_what_it_shows(conflicted: Explanation) -> None:
    found = {
        panel.key: re.findall(r"<desc[^>]*>(.*)</desc>", conflicted.figure(panel.key))
        for panel in conflicted.panels
    }
    assert all(len(words) == 1 and words[0] for words in found.values())
    assert found["owner"][0].startswith("A tile of 32×32 elements, by warp")


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([EventKind.LOAD, EventKind.STORE])), min_size=1))
@settings(max_examples=50, deadline=None)
def test_a_warp_that_waits_for_nobody_is_where_it_would_be_alone(events: list[tuple[int, EventKind]]) -> None:
    def spans(chosen: list[tuple[int, EventKind]]) -> list[Span]:
        warp, what = np.array(chosen).T
        zeros = np.zeros_like(warp)
        recording = SimpleNamespace(
            events=SimpleNamespace(block=zeros, place=zeros, warp=warp, what=what),
            places=[SimpleNamespace(name="ld")],
        )
        return list_spans(cast(Recording, recording), 0)

    together = spans(events)
    for warp in {warp for warp, _ in events}:
        alone = spans([event for event in events if event[0] == warp])
        assert [span.start for span in alone] == list(range(len(alone)))
        assert [(one.kind, one.start, one.count) for one in together if one.warp == warp] == [
            (one.kind, one.start, one.count) for one in alone
        ]


def test_events_that_are_not_shown_take_no_time() -> None:
    what = np.array([EventKind.LOAD, EventKind.CLOSE, EventKind.STORE])
    zeros = np.zeros_like(what)
    events = SimpleNamespace(block=zeros, place=zeros, warp=zeros, what=what)
    recording = SimpleNamespace(events=events, places=[SimpleNamespace(name="ld")])
    assert [(one.start, one.event) for one in list_spans(cast(Recording, recording), 0)] == [(0, 0), (1, 2)]


def test_a_warp_waits_for_what_its_own_mbarrier_was_told() -> None:
    """Two mbarriers: of the one an early arrival, of the other a late one."""
    events = [(0, EventKind.LOAD, 0), (0, EventKind.ARRIVE, 8), (1, EventKind.LOAD, 0), (1, EventKind.STORE, 0),
              (1, EventKind.LOAD, 0), (1, EventKind.ARRIVE, 16), (2, EventKind.AWAIT, 8), (3, EventKind.AWAIT, 16)]  # fmt: skip
    warp, what, address = np.array(events).T
    zeros = np.zeros_like(warp)
    recording = SimpleNamespace(
        events=SimpleNamespace(block=zeros, place=zeros, warp=warp, what=what, addresses=address[:, None]),
        places=[SimpleNamespace(name="ld")],
        lanes=lambda _event: [0],
    )
    spans = list_spans(cast(Recording, recording), 0)
    ends = {warp: max(one.start + 1 for one in spans if one.warp == warp) for warp in (0, 1)}
    starts = {one.warp: one.start for one in spans}
    assert (starts[2], starts[3]) == (ends[0], ends[1]) and ends[0] < ends[1]


def test_code_gives_the_numbers_again(conflicted: Explanation) -> None:
    """Of blocks whose last warp is not full as well."""
    x, y = np.ones(100, np.float32), np.ones(100, np.float32)
    uneven = tw.explain(tw.Kernel(AXPY, "axpy", "sm_75"), 2, 50, (100, 2.0, x, y))
    assert uneven.facts["load.warps"] == 2
    for found in (conflicted, uneven):
        for panel in found.panels:
            for fact in panel.facts:
                assert found.facts[fact.name] == fact.value
                assert not fact.code or eval(fact.code, {"explanation": found}) == fact.value, fact


def test_banks_collide_where_more_wavefronts_are_taken_than_would_do(conflicted: Explanation) -> None:
    for found, answer in (
        (conflicted, "Yes: "),
        (tw.explain(tw.ladder["04_tiled"].plan(32, 32, 32)), "No: "),
    ):
        panel = found.panel("banks")
        assert panel is not None and panel.answer.startswith(answer)


@pytest.mark.few("kernel", "rung")
@pytest.mark.parametrize("kind", ["rung", "plan", "kernel"])
def test_elements_and_threads_are_each_others(kind: str) -> None:
    """Elements of other blocks than the one that was recorded first, too."""
    if kind == "kernel":
        rng = np.random.default_rng(1)
        a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((48, 64), (64, 80)))
        kernel = tw.Kernel(FAR, "mm", "sm_75")
        found = tw.explain(kernel, (3, 5), (16, 16), (a, b, np.zeros((48, 80), np.float32), 80, 64))
        size = (48, 80)
    else:
        rung = tw.ladder["04_tiled"].plan(96, 80, 40, gpu="h200")
        found = tw.explain(tw.plan(96, 80, 64, dtype="float16", gpu="a100") if kind == "plan" else rung)
        size = (96, 80)
    rng = np.random.default_rng(2)
    for _ in range(6):
        row, column = (int(rng.integers(most)) for most in size)
        text = found.element(row, column)
        match = re.search(r"lane (\d+) of warp (\d+) of block (\d+)", text)
        assert match is not None
        lane, warp, block = map(int, match.groups())
        assert f"[{row}, {column}]" in found.thread(block, warp * 32 + lane) or " …" in found.thread(
            block, warp * 32 + lane
        )
        if kind == "kernel":
            assert (block, warp * 32 + lane) == (row // 16 + column // 16 * 3, row % 16 + column % 16 * 16)


def test_of_a_block_with_several_tiles_that_with_the_element_is_shown() -> None:
    twice = FAR.replace("int r = blockIdx.x * 16 + threadIdx.x, c", "int c")
    twice = twice.replace("float s", "for (int r = blockIdx.x * 16 + threadIdx.x; r < 64; r += 32) { float s")
    kernel = tw.Kernel(f"{twice}}}", "mm", "sm_75")
    a, b, c = (np.ones(shape, np.float32) for shape in ((64, 8), (8, 32), (64, 32)))
    found = tw.explain(kernel, (2, 2), (16, 16), (a, b, c, 32, 8), element=(50, 20))
    assert "Thread 0 of block 3 writes 1 element: row 48, column 16" in found.text


def test_a_kernel_of_ones_own_is_explained() -> None:
    """A's rows by lanes: one column at a time, so that a load touches as many sectors as lanes."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 64), (64, 32)))
    c = np.zeros((32, 32), np.float32)
    found = tw.explain(tw.Kernel(FAR, "mm", "sm_75"), (2, 2), (16, 16), (a, b, c, 32, 64), gpu="t4")
    known = found.facts
    assert known["load.sectors"] == 16 and int(known["load.least"]) < 16
    assert "A[0, 0]" in found.line(4) or "A[" in found.line(4)
    assert (known["levels.block"], known["levels.thread"]) == ("16×16", 1)
    with pytest.raises(
        ArgumentError, match=r"figure must be one that this launch has, not .banks.; it has tiles"
    ):
        found.figure("banks")
    n = 100
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    plain = tw.explain(tw.Kernel(AXPY, "axpy", "sm_75"), 4, 32, (n, 2.0, x, y))
    assert not {"tiles", "banks", "placement", "order"} & {panel.key for panel in plain.panels}
    assert "row 0, column 17" in plain.element(0, 17)
    assert ">Block 0: 1 warp, in order of dependency<" in plain.figure("overlap")
    nothing = tw.Kernel('extern "C" __global__ void nothing() {}', "nothing", "sm_75")
    with pytest.raises(
        ArgumentError, match="element must be of a matrix that the kernel writes; none is known"
    ):
        tw.explain(nothing, 1, 1).element(0, 0)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ((3,), "what must be a Plan, a Kernel or tw.ladder, not 'int'"),
        ((tw.ladder["04_tiled"].plan(8, 8, 8), 3), "grid, block, args, shared and cluster must be left out"),
        *(
            ((tw.Kernel(AXPY, "axpy", "sm_75"), *given), "grid and block must be given for a kernel")
            for given in ((), (1,), (None, 1))
        ),
    ],
)
def test_wrong_use_is_named(what: Any, error: str) -> None:
    with pytest.raises(ArgumentError, match=error):
        tw.explain(*what)


def test_what_would_change_nothing_is_refused() -> None:
    plan = tw.ladder["04_tiled"].plan(8, 8, 8)
    for extra in ({"gpu": "t4"}, {"timeout": 3}, {"cooperative": True}):
        with pytest.raises(ArgumentError) as caught:
            tw.explain(plan, **extra)
        rule = "must be left out: a plan has its GPU, and the others are of kernels"
        assert str(caught.value) == f"gpu, timeout and cooperative {rule}"
    for more in ({"grid": 1}, {"block": 1}, {"args": (1,)}, {"shared": 1}, {"cluster": 1}):
        with pytest.raises(ArgumentError) as caught:
            tw.explain(plan, **more)
        rule = "must be left out: they are of kernels"
        assert str(caught.value) == f"grid, block, args, shared and cluster {rule}"
    with pytest.raises(ArgumentError, match="element must be left out for the ladder"):
        tw.explain(tw.ladder, element=(0, 0))  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="element must be left out for complex numbers"):
        tw.explain(tw.plan(8, 8, 8, dtype="complex128"), element=(3, 4))


def test_blocks_are_all_counted_of_small_products_and_some_of_large_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counted(Exception):
        pass

    def count(_plan: tw.Plan, sample: int | None) -> None:
        samples.append(sample)
        raise Counted

    samples: list[int | None] = []
    module = importlib.import_module("tilewise.explain.explanation")
    monkeypatch.setattr(module, "record", lambda *_, **__: None)
    monkeypatch.setattr(module, "profile", count)
    for size in ([256] * 3, [512, 512, 1024], [512, 512, 1025], [4096] * 3):  # up to 2**28 multiply-adds
        with pytest.raises(Counted):
            tw.explain(tw.plan(*size))
    assert samples == [None, None, 1, 1]


def test_a_source_may_name_what_is_no_file() -> None:
    """By #line: a device that never ends, and a file that is not there; neither is read."""
    for name in ("/dev/zero", "/no/such/file.cu"):
        kernel = tw.Kernel(f'#line 1 "{name}"\n{AXPY}', "axpy", "sm_75")
        found = tw.explain(kernel, 1, 32, (32, 2.0, *(np.ones(32, np.float32) for _ in range(2))))
        assert name.rpartition("/")[2] in found.text and found.line(3)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("size", "given"),
    [
        ((1, 512, 256), {"dtype": "bfloat16", "gpu": "h200"}),
        ((1, 1, 1), {"gpu": "t4"}),
        ((33, 17, 5), {"batch": 3, "gpu": "a100"}),
        ((65, 63, 67), {"dtype": "float16", "gpu": "h200"}),
        ((48, 40, 9), {"dtype": "float64", "gpu": "h200", "layout": "tt"}),
    ],
)
def test_odd_products(size: tuple[int, int, int], given: dict[str, Any]) -> None:
    """A row, an element, stacks, operands that are copied first: there is something to be said of each."""
    found = tw.explain(tw.plan(*size, **given))
    assert found.verdict and {"limits", "residency"} <= {panel.key for panel in found.panels}
    assert_drawn_within(found)
    assert found.html().startswith("<!doctype html>") and json.loads(found.trace())["traceEvents"]
    assert json.dumps(found.to_dict())


def test_a_product_of_nothing_is_not_explained() -> None:
    with pytest.raises(ArgumentError, match="plan must have a launch"):
        tw.explain(tw.plan(0, 4, 4))


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["explain", *argv])
    out, err = capsys.readouterr()
    return code, out, err


SMALL = ("05_tiled_conflicted", "-m", "64", "-n", "64", "-k", "64", "--gpu", "h200")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *SMALL)
    assert (code, err) == (0, "") and "bound by L1 and shared memory" in out.splitlines()[1]
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  banks")] == ["banks"]
    page, picture, trace = (str(tmp_path / name) for name in ("p.html", "b.svg", "t.json"))
    code, out, err = run(capsys, *SMALL, "--html", page, "--figure", "banks", "-o", picture, "--trace", trace)
    assert (code, err) == (0, "") and out.splitlines() == [f"wrote {name}" for name in (picture, page, trace)]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    written = json.loads(Path(trace).read_text())
    assert {event["ph"] for event in written["traceEvents"]} >= {"X", "M"}
    assert "nothing is known of time" in written["otherData"]["units"]
    code, out, _ = run(capsys, *SMALL, "--json", "--element", "40,3")
    plain = json.loads(out)
    assert plain["command"] == "explain"
    assert plain["verdict"]["bound"] == "L1 and shared memory" and "lane 3 of warp 8" in plain["element"]
    assert {*plain, *plain["figures"]["banks"]} - {"schema", "command"} == documented_keys("`explain`")
    both = run(capsys, *SMALL, "--thread", "1,33", "--element", "40,3")[1]
    element, thread = both.split("\n\n", 1)
    assert "lane 3 of warp 8" in element and thread.splitlines()[1].split() == ["row", "1,", "column", "33"]
    assert "32 wavefronts, 4 without conflicts" in run(capsys, *SMALL, "--line", "36")[1]


@pytest.mark.few(7)
@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (("--element", "64,0"), "element must lie in c, which is 64×64"),
        (("--element", "4"), "--element must be two numbers"),
        (("--thread", "0,1024"), "thread must be from 0 to 1,023, as a block has them"),
        (("--thread", "4,0"), "blocks must be from 0 to 3, as the grid has them"),
        (("--line", "3"), "line must be one that touches memory (31, 32, 36, 41)"),
        (("--figure", "bank"), "did you mean 'banks'?"),
        (("--html", "/no/folder/x.html"), "the output cannot be written"),
        (("-o", "x.svg"), "--output is where a picture goes"),
        (("--grid", "3"), "--grid is for files"),
    ],
)
def test_wrong_options_are_named(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], error: str
) -> None:
    code, out, err = run(capsys, *SMALL, *argv)
    assert (code, out) == (2, "") and error in err and err.count("\n") == 1


def test_files_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mm.cu"
    file.write_text(FAR)
    arguments = [f"--arg={word}" for word in ("f32[32,64]", "f32[64,32]", "new:f32[32,32]", "32", "64")]
    launch = (str(file), "--grid", "2,2", "--block", "16,16", *arguments)
    code, out, _ = run(capsys, *launch, "--seed", "1")
    assert code == 0 and "uncoalesced global access" in out and "mm.cu:4" in out
    code, out, _ = run(capsys, *launch, "--element", "17,3")
    assert code == 0 and "threadIdx (1, 3, 0)" in out
    code, out, err = run(capsys, str(tmp_path / "none.cu"), "--grid", "1", "--block", "32")
    assert code == 2 and "none.cu" in err


def test_the_documentation_has_the_picture() -> None:
    found = tw.explain(tw.ladder["05_tiled_conflicted"].plan(512, 512, 256)).figure("banks")
    assert (ROOT / "docs/images/banks.svg").read_text("utf-8") == found, "stale: make docs"


def test_the_climb(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Limits are those of the picture that is kept; measured times those of the results."""
    seen: list[tuple[int, int, str]] = []
    names = ["02_one_block", "04_tiled", "05_tiled_conflicted"]
    climb = explain_ladder("h200", lambda *done: seen.append(done), rungs=names)
    assert seen == [(i, 3, name) for i, name in enumerate(names)]
    kept = (ROOT / "docs/images/climb.svg").read_text("utf-8")
    for one in climb.rungs.values():
        assert one.measured is not None and one.seconds < one.measured
        (desc,) = re.findall(r"<desc[^>]*>(.*)</desc>", climb.figure("climb"))
        (text,) = (part for part in desc.split("; ") if part.startswith(one.name))
        assert text in kept
    assert climb.rungs["05_tiled_conflicted"].seconds > 5 * climb.rungs["04_tiled"].seconds
    assert "04_tiled" in climb.text and json.dumps(climb.to_dict())
    assert climb.to_dict()["title"] == climb.title == "The ladder: 3 rungs on NVIDIA H200"
    assert notebook_frame(climb) == (climb.title, climb.html())
    sizes = [one.subject.title.split()[1] for one in climb.explanations.values()]
    assert sizes == ["32×32×128", "256×256×128", "256×256×128"], "what a rung takes"
    assert "figures of rungs are of 256×256×128, or of what a rung takes" in climb.text
    unknown = Climb(climb.gpu, {name: replace(one, measured=None) for name, one in climb.rungs.items()}, {})
    assert "Measured" not in unknown.text and "Measured" in climb.text
    beside = {name: Climb(climb.gpu, climb.rungs, {key: climb.explanations[key] for key in some})
              for name, some in (("usual", names), ("others", names[:2]))}  # fmt: skip
    for name, shown in (("usual", names[1:]), ("others", names[:2])):
        assert " and ".join(shown) in beside[name].figure("beside"), "the usual two where both are there"
    with pytest.raises(ArgumentError, match="figure 'tiles' is not known"):
        climb.figure("tiles")
    monkeypatch.setattr("tilewise.cli.explain_command.explain_ladder", lambda *_: climb)
    shown = run(capsys, "ladder")[1].splitlines()
    for one, row in zip(climb.rungs.values(), climb.table[1], strict=True):
        assert any(all(str(cell) in line for cell in row) for line in shown), row
        assert one.measured and int(row[-1].rstrip("%")) == round(100 * one.seconds / one.measured)
    page, picture = (str(tmp_path / name) for name in ("climb.html", "climb.svg"))
    written = ["--html", page, "--figure", "climb", "-o", picture]
    assert run(capsys, "ladder", *written) == (0, f"wrote {picture}\nwrote {page}\n", "")
    assert Path(picture).read_text("utf-8") == climb.figure("climb")
    plain = json.loads(run(capsys, "ladder", *written, "--json")[1])  # and nothing else
    assert plain.pop("files") == [picture, page] and plain.keys() - climb.to_dict().keys() == {
        "schema",
        "command",
    }
    assert {*plain, *plain["rungs"]["04_tiled"], "files"} - {"schema", "command"} == documented_keys(
        "`explain ladder`"
    )
    assert "--output is where a picture goes" in run(capsys, "ladder", "-o", picture)[2]
    for option, value in (("-m", "3"), ("--dtype", "float16"), ("--line", "3"), ("--trace", page)):
        said = run(capsys, "ladder", option, value)[2]
        assert said.startswith(f"tilewise: error: {option} is for one launch")


@pytest.mark.few("naive", "coalesced")
@pytest.mark.parametrize(
    ("source", "block", "tile", "thread", "depth", "says"),
    [
        (FAR, (16, 16), 16, 1, 1, "uncoalesced global access"),
        (FAR.replace(".x", ".t").replace(".y", ".x").replace(".t", ".y"), (16, 16), 16, 1, 1, "global access in parts of lines"),
        (COLUMN, (512,), 64, 8, 8, "bound by fp32 arithmetic"),
        (SQUARE, (256,), 128, 64, 8, "bound by fp32 arithmetic"),
    ],
    ids=["naive", "coalesced", "a column a thread", "a square a thread"],
)  # fmt: skip
def test_the_steps_that_everyone_takes(
    source: str, block: tuple[int, ...], tile: int, thread: int, depth: int, says: str
) -> None:
    """The kernels of the accounts of how a fast product comes about, in words of our own: tile, elements, steps."""
    rng = np.random.default_rng(1)
    size = max(tile, 64)
    a, b = (rng.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    c = np.zeros((size, size), np.float32)
    kernel, grid, args = tw.Kernel(source, "mm", "sm_80"), (size // tile,) * 2, (a, b, c, size, size)
    kernel(grid, block, args, device="emulator")
    assert tw.reference.compare(c, a, b)
    found = tw.explain(kernel, grid, block, args, gpu="a100")
    assert found.facts["levels.block"] == f"{tile}×{tile}" and found.facts["levels.thread"] == thread
    assert found.facts["tiles.steps"] == size // depth and found.facts["tiles.depth"] == depth
    assert any(says in line for line in found.verdict)
