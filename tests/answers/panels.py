"""The panels of explanations, of made-up launches: what they answer, draw and list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from tilewise.emulator.profiling.recording import EventKind
from tilewise.explain.panel import Panel
from tilewise.explain.panels import (
    banks,
    code,
    levels,
    limits,
    load,
    order,
    overlap,
    owner,
    placement,
    residency,
    spaces,
    tiles,
)
from tilewise.explain.panels.overlap import Span
from tilewise.explain.subject import Subject
from tilewise.gpus import find
from tilewise.instruments.block_views import Owners, Pattern, Step
from tilewise.instruments.levels import Level
from tilewise.instruments.line_figures import LineFigures
from tilewise.instruments.occupancy import occupancy
from tilewise.instruments.pieces import Pieces
from tilewise.instruments.recording import NamedMatrix
from tilewise.instruments.roofline import RooflineBound
from tilewise.instruments.verdict import Gain

LINES = """
panel(owner.make_owner, owners=«tile(4, 8)|tile(64, 32)|tile(128, 256, 4)|tile(16, 200)|tile(1, 1)|tile(8, 8, by_engine=True)|tile(8, 8, first=(16, 24))|tile(8, 8, blocks=2)|tile(8, 8, empty=3)|None»)
owner.describe_element(of(owners=«tile(64, 32)|tile(64, 32, by_engine=True)|tile(64, 32, first=(2, 1))»), «2|5|63», «1|9|31»)
owner.describe_thread(of(owners=«tile(64, 32)|tile(64, 32, empty=20)|None»), 0, «0|31|32|45|127»)
owner.describe_thread(of(owners=tile(4, 8), blocks=[0]), «0|1», «127|128|-1»)
panel(levels.make_levels, owners=«tile(4, 8)|tile(64, 32)|tile(128, 256, 4)|tile(1, 1)|tile(8, 8, empty=3)|tile(2, 1)|None», steps=«steps(32)|[]», c=«(256, 128)|(65, 4096)|(64, 2)»)
panel(levels.make_levels, c=None)
panel(load.make_load, patterns=[*«[lanes('a', 4)]|[lanes('a', 128)]|[lanes('a', 8, size=8)]|[lanes('a', 4, most=3), lanes('b', 128, runs=2)]|[lanes('a', 600)]|[lanes('a', 30, size=4)]|[lanes('a', 16, size=16, shared=True)]|[]»])
panel(banks.make_banks, patterns=[*«[lanes('a', 4, shared=True)]|[lanes('a', 128, shared=True)]|[lanes('a', 8, size=8, shared=True)]|[lanes('a', 4, most=3, shared=True), lanes('b', 128, runs=2, shared=True)]|[lanes('a', 16, size=4, width=16, shared=True)]|[lanes('a', 4)]|[]»], metrics=«{}|{'copies': 5.0}|{'total': 7.0}|{'copies': 0.0, 'total': 1e6}»)
load.table_of_lanes(of(), lanes('a', «4|128|36», size=4, most=«32|5», shared=«False|True»))
panel(residency.make_residency, gpu='«h200|t4»', occupancy=(«32|128|1024», «16|255», «0|48000»), grid=«None|132|100000»)
panel(residency.make_residency, occupancy=(256, 32, 0), barriers=«0|1|8»)
panel(residency.make_residency, occupancy=None)
panel(tiles.make_tiles, owners=«tile(64, 32)|tile(8, 8, first=(16, 24))|None», steps=«steps(32)|steps(8, 100)|[]», c=«(256, 128)|(65, 4096)|None»)
panel(order.make_order, plan=«'row'|'column'|'grouped'|'hilbert'|None», owners=«tile(64, 32)|tile(4, 2)|tile(128, 256)», c=«(256, 128)|(1000, 96)|(64, 2)», gpu='«h200|t4»', occupancy=«(128, 64, 0)|None»)
panel(order.make_order, plan='row', owners=tile(4, 2), c=(«296|300|304», 2))
panel(spaces.make_spaces, gpu='«h200|t4|a100-sxm-80gb|rtx-2060»', moved=«[]|[('L2', 5.0, 3.0)]|[('L1', 0.0, 0.0), ('L2', 1e6, 3e9), ('DRAM', 5e4, 100.0)]»)
panel(limits.make_limits, bounds=[*«[('fp32', 1e12, 1e13)]|[('fp32', 1e12, 1e13), ('memory', 1e9, 1e9), ('idle', 0.0, 1.0)]|[('memory', 1e9, 4e12, 1.005), ('fp32', 1e6, 1e13, 1.006)]|[]»], gains=«[]|[('bank conflicts', 1e-6, 2.5)]|[('a', 1e-6, 2.5), ('b', 1e-9, 1.25)]», counted=«True|False»)
panel(code.make_code, lines=[*«[('a.cu', 5, 'x = 1;', 10.0)]|[('a.cu', 5, 'y' * 120, 1e7, 5.0, 3.0), ('a.cu', 4, 'z', 2e3)]|[('a.cu', 5, 'x', 10.0, 0.0, 0.0, 8.0, 4.0), ('b.cu', 1, 'w', 0.0, 1.0)]|[('a.cu', i, 'x', 1.0 * i) for i in range(12)]|[('a.cu', 5, 'x')]|[]»])
panel(overlap.make_overlap, spans=[*«[]|[(0, 'read', 0, 5), (0, 'wait', 1, 2), (1, 'read', 0, 1)]|[(0, 'fetch', 0, 5), (1, 'multiply', 1, 2), (2, 'multiply', 1, 2)]|[(0, 'fetch', 0, 5), (0, 'multiply', 1, 2), (1, 'wait', 3, 1)]|[(i, 'write', 0, 1) for i in range(14)]|[(i, 'signal', i * 5, 1) for i in range(15)]|[(0, 'read', i, 1) for i in range(90)]»])
panel(overlap.make_overlap, blocks=[])
happened([(0, 'LOAD'), (1, 'STORE'), (0, 'WAIT'), (1, 'WAIT'), (2, 'ATOMIC'), (2, 'LOAD')], blocks=[0, 1, 1, 2, 1, 0], block=«0|1|2|3»)
happened(«[(0, 'LOAD'), (0, 'LOAD'), (0, 'STORE'), (1, 'LOAD')]|[(0, 'LOAD'), (0, 'WAIT'), (1, 'WAIT'), (0, 'THROUGH'), (1, 'THROUGH'), (0, 'PRODUCT')]|[(0, 'COPY'), (0, 'ARRIVE'), (1, 'AWAIT'), (1, 'PRODUCT'), (1, 'CLOSE'), (1, 'DRAIN'), (1, 'ATOMIC')]|[(0, 'BULK'), (0, 'FILL'), (1, 'AWAIT'), (1, 'AWAIT'), (1, 'AWAIT')]|[(0, 'WAIT'), (0, 'THROUGH'), (0, 'WAIT'), (1, 'LOAD'), (1, 'STORE'), (1, 'LOAD'), (1, 'WAIT'), (1, 'THROUGH'), (0, 'THROUGH'), (1, 'WAIT'), (1, 'THROUGH')]», out=«False|True»)
panel(placement.make_placement, pieces=«{}|{'a': False}|{'a': False, 'b': True}|{'b': True}», mixed=«False|True»)
"""

_METRICS = {"copies": banks._COPIES, "total": banks._TOTAL}


def panel(make: Callable[[Subject], Panel | None], **given: Any) -> Any:
    """A panel with all of its parts; spans and pieces are looked up in events, which there are none of here."""
    spans = [Span(0, warp, kind, start, count, 7) for warp, kind, start, count in given.get("spans", ())]
    kept = {
        name: _pieces(name, by, given.get("mixed", False)) for name, by in given.get("pieces", {}).items()
    }
    with (
        mock.patch.object(overlap, "list_spans", lambda *_: spans),
        mock.patch.object(placement, "find_pieces", lambda _, name: kept.get(name)),
    ):
        found = make(of(**given))
    if found is None:
        return None
    figure: Any = found.figure
    return [found.answer, found.question, found.guess, found.facts, found.table, found.data, figure.to_svg()]


def of(**given: Any) -> Subject:
    """A launch of which so much is known; the rest is as ordinary as can be."""
    gpu = find(given.get("gpu", "h200"))
    threads: Any = given.get("occupancy", (128, 40, 0))
    held = None
    if threads is not None:
        held = occupancy(gpu, *threads, grid=given.get("grid"), barriers=given.get("barriers", 0))
    bounds = [
        RooflineBound(name, amount, "units", rate, *more)
        for name, amount, rate, *more in given.get("bounds", ())
    ]
    metrics = {
        _METRICS[name]: SimpleNamespace(value=value, label="exact" if value > 6 else "model")
        for name, value in given.get("metrics", {}).items()
    }
    profile: Any = SimpleNamespace(
        gpu=gpu, occupancy=held, metrics=metrics,
        levels=[Level(name, read, written, "exact") for name, read, written in given.get("moved", ())],
        roofline=SimpleNamespace(bounds=bounds, flops=12345.0, seconds=1e-6),
        verdict=SimpleNamespace(gains=[Gain(*one) for one in given.get("gains", ())]) if given.get("gains") else None,
        machine=SimpleNamespace(accesses=given.get("counted", True), ran=False),
        lines=[LineFigures(*one) for one in given.get("lines", ())],
    )  # fmt: skip
    c = given.get("c", (256, 128))
    raster = given.get("plan")
    plan: Any = raster and SimpleNamespace(raster=raster)
    recording = _recording(given.get("blocks", [0]), c, given.get("pieces", {}))
    made = Subject("title", "call", profile, recording, lambda blocks, _: _recording(blocks, c, {}), plan)
    kept = {
        "owners": given.get("owners", tile(4, 8)), "steps": given.get("steps", []), "patterns": given.get("patterns", []),
        "finder": SimpleNamespace(describe=lambda line: f"k.cu:{line}  text", place=lambda line: ("k.cu", line)),
    }  # fmt: skip
    made.__dict__.update(kept)
    return made


def _pieces(name: str, by_columns: bool, mixed: bool) -> Pieces:
    """Pieces of eight vectors, each behind the one before, or mixed as copies do."""
    which = np.arange(64)
    number, vector = (which % 8 ^ which // 8, which // 8) if mixed else (which // 8, which % 8)
    return Pieces(name, by_columns, which * 16 + 128 * by_columns, vector, number)


def _recording(blocks: Sequence[int], c: tuple[int, int] | None, pieces: dict[str, bool]) -> Any:
    launch = SimpleNamespace(grid=(4, 3, 2), block=(16, 8, 1), cluster=None)
    matrices = {} if c is None else {
        "a": NamedMatrix("a", 4096, c[0], 100, 100, 1, "float32", 4),
        "b": NamedMatrix("b", 2**20, 100, c[1], c[1], 1, "float32", 4),
        "c": NamedMatrix("c", 2**24, *c, c[1], 1, "float32", 4),
    }  # fmt: skip
    roles = {name: name for name in (pieces or matrices)}
    events = SimpleNamespace(place=np.zeros(4096, np.int64))
    addresses = lambda event: [4096 + 4 * event * lane if lane < 30 else None for lane in range(32)]  # noqa: E731
    places = [SimpleNamespace(line=12, name="st.global")]
    return SimpleNamespace(
        launch=launch, blocks=list(blocks), matrices=matrices, roles=roles, events=events, places=places, addresses=addresses
    )  # fmt: skip


def tile(
    rows: int, columns: int, warps: int = 2, *, first: tuple[int, int] = (0, 0), by_engine: bool = False,
    blocks: int = 1, empty: int = 0,
) -> Owners:  # fmt: skip
    """Who writes a tile: warps side by side, lanes in rows of eight, the first so many elements nobody."""
    row, column = np.indices((rows, columns))
    warp = column * warps // columns
    lane = row % 4 * 8 + column % 8
    block = row * blocks // rows
    nobody = row * columns + column < empty
    block, warp, lane, event = (np.where(nobody, -1, one) for one in (block, warp, lane, row))
    return Owners(first[0], first[1], block, warp, lane, event, by_engine)


def steps(depth: int, k: int = 64) -> list[Step]:
    return [Step(at, min(at + depth, k), (0, 4), (0, 8), at) for at in range(0, k, depth)]


def lanes(
    name: str, apart: int, *, size: int = 4, most: int = 32, runs: int = 1, shared: bool = False, width: int | None = None
) -> Pattern:  # fmt: skip
    """Lanes that touch memory so far apart."""
    places = tuple(lane * apart if lane < most else None for lane in range(32))
    sectors = len({place // 32 for place in places if place is not None})
    return Pattern(
        0, 9, f"ld {name}", EventKind.LOAD, shared, size, size if width is None else width, places, runs, apart // 4, sectors,
        -(-most * size // 32), len({place // 128 for place in places if place is not None}), max(1, apart // 4), size // 4 or 1, 1,
    )  # fmt: skip


def happened(
    told: list[tuple[int, str]], out: bool = False, blocks: Sequence[int] | None = None, block: int = 0
) -> Any:
    """The spans of a block's events by warp; of one mbarrier, and one place."""
    what = np.array([int(EventKind[name]) for _, name in told])
    warp, place = np.array([one for one, _ in told]), np.zeros(len(told), np.int64)
    events = SimpleNamespace(
        block=np.array(blocks or [0] * len(told)), what=what, warp=warp, place=place, addresses=np.zeros((len(told), 64), np.int64)
    )  # fmt: skip
    places = [SimpleNamespace(name="cp.async.bulk.global.shared" if out else "cp.async.bulk.shared.global")]
    recording: Any = SimpleNamespace(events=events, places=places, lanes=lambda _: [0])
    return [
        (one.warp, one.kind, one.start, one.count, one.event) for one in overlap.list_spans(recording, block)
    ]
