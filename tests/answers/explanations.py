"""Explanations where no kernel runs: words, pictures and pages of made-up figures, and what cannot be explained."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

import tilewise as tw
from tilewise.explain import chart, climb, explanation, page, svg
from tilewise.explain import subject as subjects
from tilewise.explain.chart import Line, Ratio
from tilewise.explain.climb import Climb
from tilewise.explain.explanation import Explanation, _call, explain_plan
from tilewise.explain.panel import Fact, Panel, Table
from tilewise.explain.panels import (
    banks,
    code,
    levels,
    limits,
    load,
    order,
    overlap,
    owner,
    residency,
    spaces,
)
from tilewise.explain.panels.beside import make_beside
from tilewise.explain.panels.climb import Climber, draw_climb, make_climb, show_rate
from tilewise.explain.panels.layout import Corner, counted, places_text, runs_text, split_runs, times_text
from tilewise.explain.subject import Subject
from tilewise.explain.svg import Drawing, find_ticks
from tilewise.gpus import find
from tilewise.kernel import Kernel
from tilewise.plan import Plan

LINES = """
tw.explain(«5|None|tw.ladder|PLAN|KERNEL», **«{'grid': 1}|{'block': 1}|{'args': [1]}|{'shared': 1}|{'cluster': 1}|{'timeout': 1.0}|{'cooperative': True}»)
tw.explain(«5|None|KERNEL», **«{}|{'gpu': 'none'}|{'element': (0, 0)}»)
tw.explain(«tw.ladder|PLAN», **«{'gpu': 'none', 'element': (0, 0)}|{'grid': 1, 'block': 1, 'element': (0, 0)}»)
tw.explain(tw.ladder, **«{'gpu': 'none'}|{'element': (0, 0)}»)
explain_plan(tw.plan(4, 5, 6, dtype=«'complex64'|'complex128'»), (0, 0))
climb.explain_ladder('h200', rungs=«['04_tiled']|[]|['x', 'y']»)
climb.explain_ladder(«'none'|'k80'|5»)
explained(PLAN, recorded='«one|two|three|four»', names=«['one', 'two', 'three']|['two', 'one', 'two']|['one']»)
explained(tw.ladder['04_tiled'].plan(«1024|1025», 512, 512, gpu='t4'), element=«None|(3, 4)»)
shown_element(«(0, 0)|(2, 3)|(64, 0)», before=«None|(8, 4)», after=«None|(3, 4)|(80, 80)»)
about(blocks=«[3]|[3, 4]|list(range(8))|list(range(9))», lost=«0|7»)
_call(«PLAN|tw.plan(4, 5, 6, dtype='bfloat16', layout='nt')|tw.plan(4, 5, 6, dtype='float16', batch=3, result='float32')|tw.plan(4, 5, 6, arithmetic='tf32', gpu='a100-sxm-80gb')|tw.plan(4, 5, 6, groups=2)|tw.plan(4, 5, 6, batch=2, pointers=True)|tw.ladder['04_tiled'].plan(64, 64, 64)|tw.plan(4, 5, 6, dtype='int8')|tw.plan(4, 5, 6, layout='tn', gpu='t4')»)
split_runs(«[]|[3]|[1, 2, 3]|[3, 1, 2, 2]|[1, 3, 4, 9]|[0, 2, 4, 6, 8]»), runs_text(«[]|[3]|[1, 2, 3]|[1, 3, 4, 9]|[0, 2, 4, 6, 8]|[0, 2, 4, 6, 8, 10]», most=«1|4|5»)
counted(«0|1|2|1234», 'element'), times_text(«0|1|2|1234»), places_text(«[1]|[1, 2]|[1, 1]», «[3]|[3, 5]»)
[corner(«64|1000|1», «64|1|4000», «64|8|9000»)]
Corner.of(64, 32, 16, «720|300», «440|200»).box('«a|b|c»', («0|8», «8|16»), («0|4», 16))
find_ticks(«0|-1|0.5|100», «1|1.5|1000|100.5», «1|2|5|10»)
show_rate(«0|1e6|999.4e6|1e9|999e9|1e12|1e15|2.5e16»), limits.show_time(«0|1e-9|999e-9|1e-6|2.5e-5|1e-3|1.0|100»)
svg._number(«0|1|1.0|1.5|1.005|0.004|-0.5|123.456|1e6|-1.999»)
drawn(«one.rect(1, 2, 3, 4, 'f-block')|one.rect(1, 2, 3, 4, 'x', 'a <tip>')|one.rect(1, 2, 3, 4, 'x', corner=2)|one.line(1, 2, 3, 4)|one.line(1, 2, 3, 4, 's')|one.polyline([], 'x')|one.circle(1, 2, 3, 'x', 'tip')|one.text(1, 2, '<&>')|one.text(1, 2, 'x', 'bold', 'end')|one.text(1, 2, 'x', anchor='middle')|one.arrow(0, 0, 3, 4)|one.arrow(0, 0, 0, 0)|one.cells(0, 0, 10, 10, [], {})|one.cells(0, 0, 8, 8, [[1, 1, 0, 2], [1, 1, 0, 2], [2, 1, 1, 1]], {1: 'a', 2: 'b'})|one.place(one, 1, 2)»)
Drawing('a <title>', 'a desc & more', 40.5, «720|100.25»).to_svg(«True|False», «''|'x'»).replace(svg.STYLE, 'STYLE')
lines_drawn([Line('a', «[(0.0, 1.0), (1.0, 2.0)]|[(1.0, 1.0)]|[(2.0, 5.0), (8.0, 4.0), (9.0, float('inf'))]|[(0.0, -1.0), (1.0, -2.0)]|[(1.0, 3.0), (5.0, 100.0)]|[(5.0, 2.0), (6.0, 2.0)]|[(700.0, 3.0)]», «False|True»)] + [Line('other', [(3.0, 4.0), (4.0, 2.0)])] * «0|1|2», «0|50»)
chart.draw_ratios('title', 'below', [Ratio('g', 'one', «1.0|0.99|2.0|0.5|8.0», («0.9|1.0», «1.0|1.1»)), Ratio('h', 'two', «1.0|1.5», (1.4, 1.6))]).body
chart.draw_ratios('title', 'below', «[]|[Ratio('g', 'x', 1.0, (1.0, 1.0))]|[Ratio('g', 'x', 4.0, (4.0, 4.0))]»).body
draw_climb(CLIMBERS[:«1|2|3»], 'a GPU').body
make_climb(CLIMBERS[«:1|:2|1:|::2»], 'a GPU', «''|'Measured there.'»)
[getattr(a_climb('«h200|t4»', «2|3|5»), each) for each in ('title', 'text', 'table', 'about', 'verdict')], a_climb('«h200|t4»', 3).to_dict(), repr(a_climb('h200', 2))
beside(«1|2», «('a', 'b')|('b', 'a')|('a', 'a')»)
page._section(«PANEL|replace(PANEL, guess='')|replace(PANEL, facts=())|replace(PANEL, table=None)», «1|12»)
page._fact(«Fact('n', 'what', 1234567)|Fact('n', 'what', 1.5, 'µs', 'model')|Fact('n', 'what', '<x>', code='1 < 2')»)
page._verdict_line(«'a <line>'|'  more of it'|''»), page._table(Table(('a', '<b>'), [('1', '&'), ('2', '')]))
whole_page(«[]|[PANEL]|[PANEL, replace(PANEL, key='two')]», verdict=«['first', ' more']|[]», about=«()|('note <1>',)», scripts=«None|{'banks': 'script();'}»)
packed({'a': «[1, 2.5, None, True]|{'b': (1, 2)}|np.int64(5)|{1: {2: 'x'}}»})
packed({'a': np.arange(«3|8», dtype='«int8|uint8|int16|int32|int64|float32»').reshape(1, -1)})
owner.block_index(subject(), «0|1|5|6|23»), owner.thread_index(subject(), «0|1|3», «0|5|31»)
subject().showing_thread(«0|1», «0|127|128|-1|1000»).element
code._cut(«'short'|'exactly ten'|'rather longer than that'», «10|11|12»), code._short(«0|1|999|1000|1234567|1.5|0.25|1e9»)
levels._pieces(«0|1|2|1234»), levels._scaled(«1|64|8», «1|64|256»), spaces.tile_step(«8|16|32|64»), spaces._bytes(«0|1|1023|1024|1e6|1e9»)
limits._capital(«''|'abc'|'Abc'|'1x'»)
overlap._named(«{0}|{0, 1}|{0, 1, 2, 5}», 'warps', 'warp'), order._example('«row|column|grouped|hilbert»')
order._answer({«'row': 5.0, 'column': 5.0, 'grouped': 3.0, 'hilbert': 2.5|'row': 2.0, 'column': 3.0, 'grouped': 2.0, 'hilbert': 2.0|'row': 0.0, 'column': 1.0, 'grouped': 1.0, 'hilbert': 1.0»}, '«row|hilbert|grouped»', «1|132»)
wavefronts(lanes=«[0] * 32|[4 * i for i in range(32)]|[8 * i for i in range(32)]|[128 * i for i in range(4)] + [None] * 28|[16 * i for i in range(32)]», size=«1|4|8|16», width=«0|4|16»)
banks.worst_first([pattern(1, 2, 3, «True|False», «0|4»), pattern(«1|5», 1, 1, True, 4), pattern(2, 2, «1|9», True, 4)])
[one.name for one in load.worst_first([pattern(1, 2, 3, «True|False», «0|4»), pattern(«1|5», 1, 1, False, 4), pattern(2, 2, «1|9», False, 4)])]
"""

PLAN = tw.plan(4, 5, 6)
KERNEL: Any = object.__new__(Kernel)
CLIMBERS = (
    Climber("01_slow", "one thread", (100, 100, 100), 2e-3, "latency", None),
    Climber("02_quick", "all of them", (100, 100, 100), 2e-5, "fp32", 2e-4),
    Climber("03_fast", "many", (1000, 1000, 1000), 2e-4, "memory", 4e-4),
    Climber("04_faster", "more", (1000, 1000, 1000), 1e-4, "memory", None),
    Climber("05_fastest", "most", (1000, 1000, 1000), 1e-6, "fp32", 2e-6),
)
_PICTURE = Drawing("Banks", "Lanes & banks.", 40)
_PICTURE.rect(1, 2, 3, 4, "f-block")
PANEL = Panel(
    "banks", "Do they <collide>?", "They do & do not.", _PICTURE, [Fact("banks.n", "of them", 12345, "B", "model")],
    Table(("lane",), [("1",)]), {"x": 1}, "How many?",
)  # fmt: skip


def corner(m: int, n: int, k: int) -> Any:
    """Where matrices of these sizes are drawn."""
    found = Corner.of(m, n, k)
    return found, found.height, [[f"{one:.4g}" for one in found.place(name)] for name in "abc"]


class _Drawn:
    """What is drawn by one call, as SVG."""

    def __getattr__(self, name: str) -> Any:
        one = Drawing("t", "d", 10)

        def call(*args: Any, **how: Any) -> str:
            getattr(one, name)(*[one if isinstance(arg, _Drawn) else arg for arg in args], **how)
            return one.body

        return call


def lines_drawn(lines: list[Line], down: float) -> str:
    drawing = Drawing("t", "d", 300)
    chart.draw_lines(drawing, "title", ("across", "along"), lines, down)
    return drawing.body


def a_climb(gpu: str, count: int) -> Climb:
    """A climb of made-up rungs."""
    times = {"gpu": "h200", "driver": "1.2", "date": "a day", "rungs": []}
    with mock.patch.object(climb, "_read_times", lambda: times):
        made = Climb(find(gpu), {one.name: one for one in CLIMBERS[:count]}, {})
        with contextlib.suppress(AttributeError):
            _ = made.about, made._source
    return made


def beside(count: int, first: tuple[str, str]) -> Any:
    other = replace(PANEL, key="load", question="Other?")
    return make_beside({name: [PANEL, other][:count] for name in "ab"}, first)


def whole_page(panels: list[Panel], **how: Any) -> str:
    """A page without what stands in files of its own."""
    with (
        mock.patch.object(page, "_read", lambda name: f"[{name}]"),
        mock.patch.object(page, "STYLE", "STYLE"),
    ):
        given = {
            "verdict": how["verdict"],
            "panels": panels,
            "about": how["about"],
            "scripts": how["scripts"],
        }
        with mock.patch.object(
            page, "_panel_scripts", lambda found, more: [f"{one.key} {more.get(one.key)}" for one in found]
        ):
            text = page.make_page("a <title>", call="tw.explain(x < y)", **given)
    start, _, rest = text.partition('id="data">')
    return start + rest[rest.index("</script>") :]


def packed(data: Any) -> Any:
    """What a page's data is when it is unpacked."""
    raw = zlib.decompress(base64.b64decode(page.pack_data(data)))
    (size,) = struct.unpack_from("<Q", raw)
    return json.loads(raw[8 : 8 + size]), raw[8 + size :].hex()


def subject() -> Subject:
    """A launch with nothing but its shape."""
    launch = SimpleNamespace(grid=(2, 3, 4), block=(16, 4, 2), cluster=None)
    recording: Any = SimpleNamespace(launch=launch, blocks=[0])
    profile: Any = SimpleNamespace(launch=launch)
    again: Any = lambda blocks, element: SimpleNamespace(launch=launch, blocks=list(blocks))  # noqa: E731
    return Subject("title", "call", profile, recording, again, element=(1, 2))


def explained(
    plan: Plan, recorded: str = "one", names: Sequence[str] = ("one",), element: tuple[int, int] | None = None
) -> Any:
    """What is explained of a plan with launches of these names, of which one is recorded; and how it was looked at."""
    asked: list[Any] = []
    gpu = find("t4")
    launches = [SimpleNamespace(kernel=name, gpu=gpu) for name in names]
    whole = SimpleNamespace(kernel="all", all=launches, gpu=find("h200"))

    def record(_: Plan, **how: Any) -> Any:
        asked.append(how)
        return SimpleNamespace(kernel=recorded)

    def profile(_: Plan, **how: Any) -> Any:
        asked.append(how)
        return whole

    with mock.patch.multiple(explanation, record=record, profile=profile):
        found = explain_plan(plan, element).subject
        found.record_again([5], (1, 2))
    return found.title, found.call, found.profile.kernel, found.notes, found.element, asked


def shown_element(
    wanted: tuple[int, int], before: tuple[int, int] | None, after: tuple[int, int] | None
) -> Any:
    """Which block is looked at for an element: one that was recorded, or another; their tiles are of these sizes."""

    def recording(name: str, size: tuple[int, int] | None) -> Any:
        has = lambda row, column: size is not None and row < size[0] and column < size[1]  # noqa: E731
        return SimpleNamespace(name=name, owners=size and SimpleNamespace(has=has))

    again: Any = lambda blocks, element: recording(f"of {blocks} and {element}", after)  # noqa: E731
    profile: Any = None
    made = Subject("title", "call", profile, recording("first", before), again)
    with mock.patch.object(subjects, "find_owners", lambda recording, _: recording.owners):
        found: Any = made.showing_element(*wanted)
    return found.recording.name, found.element


class _Recorded:
    """A recording of so many events."""

    def __init__(self, blocks: list[int], lost: int) -> None:
        self.blocks, self.lost, self.launch = blocks, lost, SimpleNamespace(blocks=1234)

    def __len__(self) -> int:
        return 5678


def about(blocks: list[int], lost: int) -> list[str]:
    profile: Any = SimpleNamespace(notes=["a note of the profile"])
    recording: Any = _Recorded(blocks, lost)
    again: Any = None
    return Explanation(Subject("title", "call", profile, recording, again, notes=["another"])).about


def pattern(wavefronts_: int, phases: int, runs: int, shared: bool, width: int) -> Any:
    """Lanes that touch memory in some way."""
    named = f"{wavefronts_}/{phases}×{runs}"
    return SimpleNamespace(
        name=named, wavefronts=wavefronts_, phases=phases, runs=runs, shared=shared, width=width, event=7, sectors=wavefronts_,
        lanes=[0], size=4, ideal=phases, least_sectors=phases, needed=phases, least=phases,
    )  # fmt: skip


def wavefronts(lanes: list[int | None], size: int, width: int) -> Any:
    one: Any = SimpleNamespace(lanes=lanes, size=size, width=width)
    return banks.deal_wavefronts(one)


one: Any = _Drawn()
drawn = str
