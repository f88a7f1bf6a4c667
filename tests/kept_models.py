"""What is reckoned without a launch: the model of the caches, occupancy, the words of banks and sectors, boxes of tensors.

``kept_figures.py`` keeps it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewise as tw
from tests.kept_answers import Groups
from tests.kept_plain import plain
from tilewise.emulator.profiling.accesses import Kind, LaneAccess
from tilewise.gpus import GPUS, find
from tilewise.instruments.cache_model import Trace, model_traffic
from tilewise.instruments.metric_names import check_metric_names, known_metric_names
from tilewise.instruments.occupancy import occupancy
from tilewise.instruments.predict import predict_widths
from tilewise.instruments.profile import format_number
from tilewise.instruments.residency import check_cooperative
from tilewise.instruments.sample import block_kinds, clusters_of
from tilewise.instruments.tensor_boxes import read_map
from tilewise.launch import Launch
from tilewise.toolchain.binary import Resources

__all__ = ["MODELS"]

_SOME = ("h200", "a100", "rtx-2060-super", "l4")


def _list_lanes() -> Iterator[str]:
    """An access of every kind, width and pattern."""
    running = (0xFFFF_FFFF, 0x5555_5555, 0x0F0F_0001, 0x8000_0000, 0)
    for kind, size, step in itertools.product(Kind, (1, 2, 4, 8, 16), (0, 1, 2, 3, 4, 8, 32, 33)):
        for number, cut in enumerate((31, 30, 29, 15, 1)):
            lanes = running[(number + step + size) % 5], running[0]
            told = []
            for mask in lanes:
                places = [
                    0x1000 + 16 * number + (lane & cut) * step * size if mask >> lane & 1 else None
                    for lane in range(32)
                ]
                access = LaneAccess(places, size, kind)
                told.append([
                    access.wavefronts(), access.phases(), access.ideal(), access.turns(True), access.turns(False),
                    access.sectors(), access.least_sectors(), access.atomic_sectors(), access.lines(),
                ])  # fmt: skip
            yield f"{kind.name} {size} {step} {cut}: {told}"


def _trace(blocks: int, length: int, stride: int, clusters: int | None, lost: int) -> Trace:
    """What so many blocks touch: some of it in common, of all kinds."""
    found = {}
    for block in range(blocks):
        order = np.arange(length, dtype=np.int64)
        sectors = (order * stride + block * (length // 3) * (block % 5 != 4)) % 5000 + 40_000
        kinds = np.array([0, 0, 1, 2, 0, 4, 1], np.int8)[(order * 3 + block) % 7]
        found[block] = sectors, kinds
    return Trace(found, lost, None if clusters is None else np.arange(blocks, dtype=np.int64) // clusters)


def _list_traffic() -> Iterator[str]:
    """Launches of few and many blocks, smaller and larger than the caches."""
    for number, (blocks, length, stride) in enumerate(itertools.product((1, 5, 70), (0, 3, 64, 400), (1, 3))):
        trace = _trace(blocks, length, stride, (None, 1, 2, 4)[number % 4], number)
        for gpu in _SOME[number % 4 : 1 + number % 4] if blocks > 5 else _SOME[number % 2 :: 2]:
            in_flight, shared = (None, 1, 4, 33)[number % 4], (0, 1 << 16, 1 << 20)[number % 3]
            found = model_traffic(trace, gpu, 1 + number % 3, in_flight, shared)
            rates = found.l1_rate, found.l2_rate, found.bytes_read, found.bytes_written
            metrics = [plain(metric) for metric in found.metrics(number * 0.5)]
            told = [
                plain(found),
                plain(rates),
                metrics,
                trace.footprint(),
                trace.footprint([0, 2, 9], True),
                trace.waves(3),
            ]
            yield f"{blocks} {length} {stride} {gpu} {in_flight} {shared}: {json.dumps(told)}"


def _list_small_caches() -> Iterator[str]:
    """An L1 and an L2 that do not hold what is touched: which sectors stay."""
    from tilewise.instruments.cache_model import _Cache

    for size, many, step in itertools.product((1, 32, 128, 640), (1, 4, 20, 21), (1, 3)):
        cache, told = _Cache(size), []
        for turn in range(6):
            sectors = np.unique((np.arange(many, dtype=np.int64) * step + turn * 7) % 37)
            told.append("".join("-+"[int(one)] for one in cache.touch(sectors, turn % 3 == 1)))
        yield f"{size} {many} {step}: {' '.join(told)} {cache.known.tolist()} {cache.dirty.tolist()}"


def _list_occupancy() -> Iterator[str]:
    """Every GPU, on both sides of what its limits are multiples of."""
    cases = [
        (32, 16, 0, 0), (33, 17, 1, 1), (64, 32, 1023, 2), (96, 33, 1024, 16), (128, 40, 1025, 4), (192, 64, 8192, 0), (256, 65, 16384, 3), (256, 128, 49152, 1),
        (384, 168, 65536, 0), (512, 96, 100_000, 9), (512, 128, 102_400, 0), (640, 96, 166_000, 2), (768, 80, 200_000, 0), (1024, 64, 232_448, 0), (1024, 65, 0, 0), (1, 255, 40, 0),
        (1000, 0, 0, 0), (160, 48, 33_000, 5), (32, 256, 0, 0), (320, 200, 101_376, 0),
    ]  # fmt: skip
    for which, gpu in enumerate(GPUS):
        for number, (threads, registers, shared, barriers) in list(enumerate(cases))[which % 4 :: 4]:
            try:
                found = occupancy(
                    gpu, threads, registers, shared, grid=(None, 1, 1000, 132)[number % 4], barriers=barriers
                )
            except tw.TilewiseError as error:
                yield f"{gpu} {threads} {registers} {shared} {barriers}: {error}"
                continue
            told = json.dumps(plain(found.to_dict()))
            yield f"{gpu} {threads} {registers} {shared} {barriers}: {found}; {told}; {found.shared_config} {found.shared_most}"


def _list_kinds() -> Iterator[str]:
    """Kinds of blocks, and clusters along each axis."""
    for grid in ((1, 1, 1), (2, 1, 1), (3, 1, 1), (5, 2, 1), (3, 4, 3), (1, 1, 6)):
        yield f"{grid}: {block_kinds(grid).tolist()}"
        for cluster in ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 3)):
            if all(size % edge == 0 for size, edge in zip(grid, cluster, strict=True)):
                yield f"{grid} {cluster}: {clusters_of(grid, cluster).tolist()}"
    for number in (
        0,
        1,
        -1,
        999,
        1000,
        1e6,
        0.5,
        0.999999999,
        1.005,
        1234.567,
        -0.25,
        1e-9,
        123456789.125,
        1e15,
    ):
        yield f"{number}: {format_number(float(number))}"


def _list_boxes() -> Iterator[str]:
    """Which elements of an array a box has, and where they lie, for maps of every rank and swizzle."""
    shapes: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ((64,), (16,), {}), ((8, 16), (4, 8), {}), ((8, 32), (3, 16), {"swizzle": 32, "dtype": "uint16"}), ((5, 64), (5, 32), {"swizzle": 64, "dtype": "uint16"}),
        ((9, 64), (8, 64), {"swizzle": 128, "dtype": "uint16"}), ((3, 4, 8), (2, 3, 4), {}), ((2, 3, 4, 8), (1, 2, 2, 4), {}), ((2, 2, 2, 2, 8), (2, 1, 2, 1, 8), {}),
        ((8, 16), (4, 8), {"element_strides": (2, 1)}), ((8, 16), (4, 8), {"strides": (128,)}), ((4, 2, 6, 32, 16), (1, 1, 2, 16), {"interleave": 16, "dtype": "uint8"}),
    ]  # fmt: skip
    for shape, box, more in shapes:
        given = {"dtype": "float32", **more}
        found = read_map(tw.TensorMap(1 << 20, box, shape=shape, **given).encode(tw.device("emulator")))
        yield f"{shape} {box} {more}: {found}"
        if found is None:
            continue
        for at, shared, corners in itertools.product((-2, 0, 1, 5), (0, 1024, 144), (False, True)):
            places, lie = found.elements((at * 4, *(at,) * (len(shape) - 1)), shared, corners)
            yield f"  {at} {shared} {corners}: {(places - (1 << 20)).tolist()} {lie.tolist()}"
    for raw in (b"", bytes(128), bytes(20)):
        yield f"{raw!r}: {read_map(raw)}"


_MERGED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) {
.reg .b32 %r<20>, %a, %b; .reg .b64 %d<4>; .reg .f32 %f<8>; .reg .b16 %h<4>; .reg .pred %p; .shared .align 16 .b8 s[256];
{LINES}
ret; }"""
_LINES = (
    "ld.shared.u32 %r0, [%a]", "ld.shared.u32 %r1, [%a+4]", "ld.shared.f32 %f0, [%a+8]", "ld.shared.u32 %r3, [%a+12]", "ld.shared.u64 %d0, [%a+16]",
    "ld.shared.u64 %d1, [%a+24]", "st.shared.u16 [%b], %h0", "st.shared.u16 [%b+2], %h1", "st.shared.u32 [%b+4], %r1", "st.shared.u32 [%b+8], %r2",
    "st.shared.u32 [%b+12], %r2", "add.u32 %a, %a, 4", "bar.sync 0", "@%p ld.shared.u32 %r5, [%a+4]", "ld.global.u32 %r6, [%d2]", "st.global.u32 [%d2], %r6",
    "atom.shared.add.u32 %r7, [%b], 1", "ld.volatile.shared.u32 %r8, [%a+4]", "ld.shared.v2.u32 {%r9, %r10}, [%a+8]", "ld.local.u32 %r8, [%a]", "membar.cta", "L: mov.u32 %r9, 0",
    "ld.shared.u8 %r9, [%a]", "bar.warp.sync -1", "shfl.sync.idx.b32 %r9, %r1, 0, 31, -1", "cp.async.wait_all",
)  # fmt: skip


def _list_merged() -> Iterator[str]:
    """Which neighbouring loads and stores become one: with each other line between two of them."""
    for number, line in enumerate(_LINES):
        for first, step in ((0, 1), (0, 2), (5, 3), (6, 1), (6, 4), (2, 7)):
            chosen = [_LINES[(first + step * i) % len(_LINES)] for i in range(5)]
            chosen.insert(2 + number % 2, line)
            labelled = [f"{one.replace('L:', f'L{i}:')};" for i, one in enumerate(chosen)]
            text = _MERGED.replace("{LINES}", "\n".join(labelled))
            for aligned in (4, 8, 16):
                found = predict_widths(text, "k", dict.fromkeys(range(40), aligned))
                yield f"{chosen} {aligned}: {found}"


def _list_resident() -> Iterator[str]:
    """Cooperative launches of as many blocks as fit, and of one more; by what bounds them."""
    for gpu, threads, registers, static, shared, barriers in (
        ("h200", 128, 32, 0, 0, 0), ("h200", 1024, 64, 0, 0, 0), ("a100", 256, 128, 1024, 0, 1), ("a100", 64, 32, 0, 100_000, 0), ("rtx-2060-super", 32, 16, 0, 0, 0),
        ("rtx-2060-super", 1024, 64, 0, 40_000, 2), ("l4", 96, 40, 100, 9000, 16), ("h200", 1024, 65, 0, 0, 0),
    ):  # fmt: skip
        known = Resources(registers, static, 0, barriers, 0, 0, 0)
        for resources in (known, None):
            own = (registers, static + shared) if resources else (0, shared)
            most = occupancy(gpu, threads, *own, barriers=barriers if resources else 0).blocks * find(gpu).sms
            for blocks in (max(most, 1), most + 1):
                launch = Launch((blocks, 1, 1), (threads, 1, 1), shared=shared, cooperative=True)
                try:
                    check_cooperative(find(gpu), "kernel", launch, resources)
                    yield f"{gpu} {threads} {blocks}: fits"
                except tw.TilewiseError as error:
                    yield f"{gpu} {threads} {blocks}: {error}"


def _list_names() -> Iterator[str]:
    """The names of all metrics, and what is said of others."""
    yield from known_metric_names()
    for pattern in (
        "launch__*",
        "launch__grid_siz",
        "*nothing*",
        "",
        "dram__bytes_read.sum",
        "l1tex__t_*_ld.sum",
        "sm__[a-c]*",
        "DRAM__bytes_read.sum",
    ):
        try:
            check_metric_names([pattern])
            yield f"{pattern}: known"
        except tw.TilewiseError as error:
            yield f"{pattern}: {error}"


MODELS: Groups = {
    "lanes": _list_lanes, "traffic": _list_traffic, "small caches": _list_small_caches, "occupancy": _list_occupancy,
    "kinds of blocks": _list_kinds, "boxes": _list_boxes, "merged accesses": _list_merged, "resident blocks": _list_resident, "names of metrics": _list_names,
}  # fmt: skip
