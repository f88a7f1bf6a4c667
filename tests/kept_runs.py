"""Whole programs, as they are kept: the code that random ones become and what they give, recordings of small products, what
is printed, and in which order blocks start.

``python -m tests.kept_runs`` writes ``golden/runs.txt`` anew, which ``emulator/running/test_kept_runs.py`` compares: do so after
a change that is meant to change what programs become or tell. ``python -m tests.kept_runs GROUP`` prints what is kept of a
group, whole.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tilewise as tw
from tests.fuzz import programs
from tests.fuzz.corpus import by_hand
from tests.harness import shaped, small_products, watched
from tests.harness.counts import counted
from tests.kept_answers import Groups, run_command
from tests.kept_plain import plain
from tilewise.devices.emulated import open_emulator
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.lowering.lower import lower
from tilewise.emulator.profiling.recording import EventKind
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.running.block_order import count_interleaved, order_clusters
from tilewise.emulator.running.fault_report import Range, name_arguments
from tilewise.emulator.running.printf import format_printf
from tilewise.instruments.block_views import find_owners, find_steps, list_patterns
from tilewise.instruments.pieces import find_pieces
from tilewise.instruments.recording import NamedMatrix, Recording

__all__ = ["COMMAND", "GOLDEN", "GROUPS"]

COMMAND = "python -m tests.kept_runs"
GOLDEN = Path(__file__).parent / "golden" / "runs.txt"
_MODES = (
    ("plain", False),
    ("plain", True),
    ("counted", False),
    ("traced", False),
    ("recorded", False),
    ("checked", False),
    ("checked", True),
)
_TEXTS, _RUN = 16, 6  # programs of which the code is kept, and of which the results are


def _program(seed: int) -> programs.Case:
    """One of the random programs, always the same."""
    choose = random.Random(seed)
    return programs.make(lambda first, last: first + int(choose.random() * (last - first + 1)))


# -- code and results ----------------------------------------------------------------------------------
def _list_texts(start: int, every: int) -> Iterator[str]:
    """What programs of branches, loops, switches and memory become, in every build."""
    for seed in range(start, _TEXTS, every):
        case = _program(seed)
        yield from (f"{seed} {mode}: {told}" for mode, told in _texts(case.text, "k", case.block))


def _texts(
    ptx: str, entry: str, block: tuple[int, int, int], modes: Sequence[tuple[str, bool]] = _MODES
) -> Iterator[tuple[str, str]]:
    for mode, general in modes:
        text = lower(Program(parse(ptx), entry, block), general, "k", mode).text
        text = text.replace("readsteadycounter", "readcyclecounter")
        yield f"{mode}{' general' * general}", hashlib.sha256(text.encode()).hexdigest()


def _list_families() -> Iterator[str]:
    """Kernels of every family, traced and recorded."""
    for name, sample in by_hand().items():
        told = _texts(
            sample.text, sample.entry, (sample.block, 1, 1), [("traced", False), ("recorded", False)]
        )
        yield from (f"{name} {mode}: {one}" for mode, one in told)


_WATCHING = re.compile(r"call \w+ @(tw_(?:record|trace|watch)\w*)\((.*)\)")


def _list_watched() -> Iterator[str]:
    """What is written down of single instructions, traced and recorded: the calls with their numbers, and the code."""
    for line, text in watched.list_watched():
        for mode in ("recorded",) if "bra ON" in line else ("traced", "recorded"):
            made = lower(Program(parse(text), "k", (64, 1, 1)), False, "k", mode).text
            calls = [(name, re.findall(r" (-?\d+)(?=,|$)", given)) for name, given in _WATCHING.findall(made)]
            made = made.replace("readsteadycounter", "readcyclecounter")
            yield f"{line} {mode}: {calls} {hashlib.sha256(made.encode()).hexdigest()}"


def _list_shaped() -> Iterator[str]:
    """Programs whose shape decides how they are compiled, or refused; in two builds where that is not too long."""
    for name, text, ways in shaped.list_programs():
        modes = (
            _MODES[:1]
            if name.startswith(("long", "row", "sum", "numbers"))
            else (_MODES[0], _MODES[2], _MODES[5])
        )
        for (mode, general), sums in itertools.product(modes, ways):
            try:
                made = lower(Program(parse(text), "k", (64, 1, 1)), general, "k", mode, sums).text
            except tw.TilewiseError as error:
                made = str(error)
            made = made.replace("readsteadycounter", "readcyclecounter")
            yield f"{name} {mode} {sums}: {made if len(made) < 200 else hashlib.sha256(made.encode()).hexdigest()}"


def _list_results() -> Iterator[str]:
    """What a few of them give, in every order; what they count, and what is found."""
    for seed in range(_RUN):
        case = _program(seed)
        kernel = tw.Kernel.from_ptx(case.text, "k")
        for order in ("eager", "late", 1, 2):
            arrays, args = _arguments(case)
            kernel(case.grid, case.block, args, device=open_emulator(order, threads=1))
            yield f"{seed} {order}: {' '.join(hashlib.sha256(array.tobytes()).hexdigest() for array in arrays)}"
        if seed % 2:
            found = counted(kernel, case.grid, case.block, _arguments(case)[1], multiprocessors=2, threads=1)
            yield from (f"{seed} {item.name}: {json.dumps(plain(item))}" for item in found.instruction_runs())
            places = [plain(replace(item, seen=None)) for item in found.places()]
            yield from (f"{seed} {item['name']}: {json.dumps(item)}" for item in places)


def _arguments(case: programs.Case) -> tuple[list[Any], list[Any]]:
    """Arrays for what a program gives, and all its arguments."""
    arrays = [np.zeros(case.count * programs.ROWS, np.uint32), np.zeros(programs.COUNTERS, np.uint32)]
    return arrays, [case.source, *arrays, case.scalar]


# -- recordings ------------------------------------------------------------------------------------------
def _operands(way: str) -> list[Any]:
    device = open_emulator(threads=1)
    shapes = ((16, 8), (16, 8) if way == "turned" else (8, 16), (16, 16))
    arrays = [
        device.array(np.arange(rows * columns, dtype=np.float32).reshape(rows, columns))
        for rows, columns in shapes
    ]
    boxes = ((8, 8), (8, 16), (8, 16))
    return (
        [tw.TensorMap(array, box=box) for array, box in zip(arrays, boxes, strict=True)]
        if way == "boxes"
        else arrays
    )


def _list_recordings() -> Iterator[str]:
    """Events, who writes which element, steps, patterns, and where tiles lie; of operands that come in every way."""
    for way in small_products.WAYS:
        kernel = small_products.make_kernel(way)
        for blocks in ((0,), (1,), (0, 1)):
            args = _operands(way)
            found = kernel.record(2, 64, args, blocks=blocks, gpu="h200")
            if way == "boxes":
                found = _with_matrices(found, args)
            yield f"{way} {blocks}: {_tell_recording(found)}"
        for element in (
            ("args[2]", 9, 3),
            ("args[2]", 16, 0),
            ("args[2]", -1, 0),
            ("nothing", 0, 0),
            ("args[0]", 0, 0),
            ("args[2]", 0, 15),
            ("args[2]", 8, 0),
        ):
            yield f"{way} {element}: {_record_element(kernel, way, element)}"


def _record_element(kernel: tw.Kernel, way: str, element: tuple[str, int, int]) -> str:
    try:
        found = kernel.record(2, 64, _operands(way), element=element, gpu="h200")
    except tw.TilewiseError as error:
        return str(error)
    return f"{found.blocks} {len(found)} {found.roles}"


def _with_matrices(found: Recording, args: Sequence[Any]) -> Recording:
    """The recording with its arrays named, which are known by their tensor maps alone."""
    named = {}
    for name, item in zip("abc", args, strict=True):
        rows, columns = item.array.shape
        named[name] = NamedMatrix(name, item.array.ptr, rows, columns, columns, 1, "float32", 4)
    found.matrices, found.roles = named, {name: name for name in named}
    return found


def _tell_recording(found: Recording) -> str:
    first = min((one.address for one in found.matrices.values()), default=0)
    events = [
        (kind.name, found.places[found.events.place[i]].name, int(found.events.block[i]), int(found.events.warp[i]), int(found.events.mask[i]), int(found.events.size[i]), int(found.events.space[i]))
        for i, kind in enumerate(found.kinds)
    ]  # fmt: skip
    told: list[Any] = [events, found.lost, found.in_shared.tolist(), dict(found.roles)]
    for name, matrix in found.matrices.items():
        told += [
            plain({**plain(matrix), "address": 0}),
            matrix.bytes,
            plain(matrix.transposed().find(np.arange(matrix.address - 4, matrix.address + 70, 2))),
        ]
        for kinds in ((EventKind.LOAD, EventKind.COPY), (EventKind.STORE, EventKind.ATOMIC)):
            told += [
                plain(found.touched(name, *kinds)),
                plain(found.extents(name, *kinds)),
                plain(found.extents(name, *kinds, before=40)),
            ]
    if owners := find_owners(found):
        told += [
            plain(owners),
            plain(find_steps(found, owners)),
            owners.elements(0, 1, 3),
            owners.has(0, 0),
            owners.has(15, 16),
        ]
    told += [
        plain(find_owners(found, (9, 5))),
        [plain({**plain(one), "lanes": list(one.lanes)}) for one in list_patterns(found, {60: 16, 64: 8})],
    ]
    told += [plain(find_pieces(found, name)) for name in found.matrices] + [first == 0]
    for name in [*found.matrices]:  # as matrices of few columns, and of rows apart
        for columns, stride in ((2, 2), (4, 4), (8, 16)):
            whole = found.matrices[name]
            found.matrices = {
                **found.matrices,
                "other": replace(whole, rows=8, columns=columns, row_stride=stride),
            }
            told.append(plain(find_pieces(found, "other")))
            told.append(plain(found.touched("other", EventKind.LOAD, EventKind.COPY)))
    return json.dumps(told, default=str)


# -- what is reckoned without a launch ---------------------------------------------------------------------
_FORMATS = (
    "%d", "%5d|", "%-5d|", "%05d", "%+d", "% d", "%.3d", "%8.3d", "%.0d", "%i", "%u", "%x", "%X", "%#x", "%#X", "%o", "%#o", "%hd", "%hhd", "%hu", "%hhx", "%lld", "%llu", "%llx", "%jd", "%zu", "%td",
    "%c", "%3c", "%-3c|", "%s", "%.2s", "%6s", "%-6s|", "%p", "%20p", "%n", "%%", "%5%", "%f", "%.0f", "%#.0f", "%8.2f", "%-8.2f|", "%08.2f", "%+f", "% f", "%e", "%.3E", "%g", "%#g", "%G", "%.10g", "%a", "%A",
    "%.3a", "%.0a", "%#.0a", "%20a", "%020a", "%F", "%Lf", "%*d", "%-*d|", "%.*f", "%*.*f", "%q", "%", "%l", "text", "%d %s %f", "%-05d|", "%+-6d|", "%010x", "%#010x", "%.f", "%5.f",
)  # fmt: skip
_WORDS = (0, 1, 9, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 5, 65_535, 255, 128, 2**63, 2**64 - 1, 1000)
_REALS = (
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    1e10,
    1e-5,
    123456.789,
    1e300,
    5e-324,
    float("inf"),
    float("-inf"),
    float("nan"),
    0.5,
    2.5,
    255.9999,
)


def _list_printed() -> Iterator[str]:
    """Every conversion with flags, widths and precisions, of numbers on both sides of what each type holds."""
    for form in _FORMATS:
        floats = form.rstrip("|")[-1:] in "feEgGaAF" and form != "text"
        for number, value in enumerate(_REALS if floats else _WORDS):
            bits = struct.unpack("<Q", struct.pack("<d", value))[0] if floats else int(value)
            given = iter(
                [5 + number, 3, bits]
                if "*.*" in form
                else [(-7, 4)[number % 2] % 2**32, bits]
                if "*" in form
                else [bits, 77, bits, bits]
            )
            sizes: list[int] = []

            def fetch(size: int, given: Iterator[int] = given, sizes: list[int] = sizes) -> int:
                sizes.append(size)
                return int(next(given)) & ((1 << 8 * size) - 1)

            yield f"{form} {value}: {format_printf(form.encode(), fetch, lambda at: b'text%d' % (at % 1000))} {sizes}"


def _list_orders() -> Iterator[str]:
    """In which order clusters start, and how many take turns."""
    orders: tuple[str | int, ...] = ("eager", "late", 0, 1, 2, 3, 4, 8, 77, 2**40, -3)
    for order, count in itertools.product(orders, (0, 1, 2, 3, 7, 40)):
        found = order_clusters(order, count)
        yield f"{order} {count}: {None if found is None else found.tolist()} {count_interleaved(order, count)}"


def _list_names() -> Iterator[str]:
    """What memory is called by the arguments that hold addresses of it."""
    ranges = [Range(4096, 256, "one"), Range(8192, 64, "two"), Range(12_288, 8, "three")]
    values = (0, 4095, 4096, 4351, 4352, 8191, 8192, 8255, 8256, 12_288, 12_295, 12_296)
    for first, second in itertools.product(values, values[::3]):
        packed = [
            struct.pack("<QQ", first, second),
            struct.pack("<Q", second),
            struct.pack("<I", 4096),
            struct.pack("<QI", first, 8192),
        ]
        yield f"{first} {second}: {[item.name for item in name_arguments(ranges, packed, ['p', 'q', 'r', 's'])]}"


_SOURCES = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 which) {
.reg .b32 %r<4>; .reg .b64 %x; .reg .pred %p;
.file 1 "first.cu"
.file 2 "/somewhere/tilewise/tile.h"
.loc 1 10 0
ld.param.u64 %x, [x];
ld.param.u32 %r0, [which];
brx.idx %r0, T;
T: .branchtargets A, B, C, D, E;
.loc 1 11 3
A: ld.global.u32 %r1, [%x+64]; ret;
.loc 2 40 1, function_name L, inlined_at 1 12 5
B: ld.global.u32 %r1, [%x+64]; ret;
.loc 2 41 1, function_name L, inlined_at 2 40 1
C: ld.global.u32 %r1, [%x+64]; ret;
.loc 1 0 0
D: ld.global.u32 %r1, [%x+64]; ret;
.loc 3 9 9
E: ld.global.u32 %r1, [%x+64]; ret;
}"""


def _list_sources() -> Iterator[str]:
    """Lines of sources that a fault came from, with the calls that led there; of a finding, and of an error."""
    kernel = tw.Kernel.from_ptx(_SOURCES, "k")
    for which in range(5):
        array = open_emulator(threads=1).array(np.zeros(16, np.uint32))
        (found,) = kernel.check(1, 32, [array, which])
        shown = str(found).replace(hex(array.ptr + 64), "there")
        try:
            kernel(1, 32, [array, which], device="emulator")
            ended = "well"
        except tw.TilewiseError as error:
            ended = str(error).replace(hex(array.ptr + 64), "there")
        yield f"{which}: {shown}\n{ended}\n{found.now}"


GROUPS: Groups = {
    **{f"texts {part}": partial(_list_texts, part, 2) for part in range(2)},
    "families": _list_families, "watched": _list_watched, "shapes": _list_shaped, "results": _list_results, "recordings": _list_recordings, "printed": _list_printed, "orders": _list_orders,
    "names of arguments": _list_names, "sources": _list_sources,
}  # fmt: skip

if __name__ == "__main__":
    run_command(GOLDEN, GROUPS)
