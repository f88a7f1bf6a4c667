"""Kernels: for products and settings drawn at random what each launches, and why it refuses; what its choices are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import tilewise as tw
from tests.answers.drawn import TYPES, Draw, draw_operands
from tests.answers.shown import show
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS, RUNGS, raster
from tilewise.kernels.bind import _regions, _shifts
from tilewise.kernels.gemm.add_sums import add_steps
from tilewise.kernels.gemm.arrange import arrange_steps, ways_to_read
from tilewise.kernels.gemm.real_form import is_complex, refuse_complex
from tilewise.kernels.spec import KernelSpec, Settings, Step, access_bytes
from tilewise.kernels.stack import TABLE_SIZES, pointers_most, table_size
from tilewise.operands import Operand, Operands, alignment_of, plain_strides
from tilewise.planner import operands_of

_SMS = (
    1,
    132,
    40,
    108,
    4,
    148,
)  # multiprocessors of GPUs, those of which large ones and small ones take turns
_COUNTS = {"wgmma": 150, "mma": 120, "simt": 60, "exact32": 60, "vector": 70, "general": 60}
DRAWN = "\n".join(f"drawn({name!r}, {kind!r}, {count})" for name, count in _COUNTS.items() for kind in TYPES)
_PROPOSED = {"wgmma": 60, "mma": 50, "simt": 50, "exact32": 40, "vector": 90, "general": 20}
PROPOSED = "\n".join(
    f"proposed({name!r}, {kind!r}, {count})"
    for name, count in _PROPOSED.items()
    for kind in TYPES
    if kind.startswith(tuple(KERNELS[name].element_types)) or kind in ("tf32", "exact32", "f16")
)
LINES = f"""
{DRAWN}
{PROPOSED}
drawn(«{"|".join(map(repr, RUNGS))}», «'float32'|'float16'|'float64'|'bfloat16'», 24)
KERNELS[«{"|".join(map(repr, KERNELS))}»].complete(«{{}}|{{'x': 1}}|{{'tile': 16}}|{{'tile': 15}}|{{'tile': True}}|{{'tile': 16.0}}|{{'element': 'float16'}}|{{'element': 'int8'}}|{{'stages': 99}}|{{'split': 0}}|{{'raster': 'x'}}»)
KERNELS[«{"|".join(map(repr, KERNELS))}»].runs_on(«'sm_70'|'sm_75'|'sm_80'|'sm_86'|'sm_89'|'sm_90'|'sm_90a'|'sm_100a'|'sm_120'»)
KERNELS[«{"|".join(map(repr, KERNELS))}»].superseded(«'float16'|'float32'|'float64'|'int8'|'float8_e4m3fn'», «'sm_80'|'sm_90a'|'sm_100a'»)
[getattr(KERNELS[«{"|".join(map(repr, KERNELS))}»], each) for each in ('needs', 'pointers', 'widens', 'scales_terms', 'strided', 'practical', 'grouped', 'epilogues', 'complex_as', 'lies')]
KERNELS['wgmma'].kernel(«'sm_80'|'sm_100a'»)
KERNELS['04_tiled'].kernel('sm_90a', entry='x')
settings_of(«'wgmma'|'mma'|'simt'|'general'|'vector'», «{{}}|{{'stages': 2}}|{{'split': 99}}|{{'raster': 'hilbert'}}|{{'tiles': {{'block': tw.Tile(1, 2, 3)}}}}|{{'parameters': {{'x': 1}}}}»)
[orders('«row|column|grouped|hilbert»', «1|2|3|7|8|9|12|17», «1|2|5|8|9»)]
[raster.elements_read(raster.«row|column|grouped|hilbert», «4|9|17», «5|8», 128, 64, «1|7|132»)]
[list(raster.waves(raster.«row|grouped», 4, 5, 128, 64, «1|7|20|32»))]
access_bytes(one(«1|5», 8, «8|9|12|16|10», dtype=«'float32'|'int8'|'float64'», alignment=«16|4|8»))
[getattr(one(«0|1|3», «0|1|4», «1|3|4|8|-4», column_stride=«1|2|3|0», stack=«()|(12,)|(5, 12)»), each) for each in ('pitch', 'has_rows', 'layout', 'stack_strides', 'itemsize')]
one(3, 4, 5, 'float32', column_stride=2, stack=(7,), offset=24, name=«'a'|'workspace'|'copy_a'»).matrix(), one(3, 4, 5).pointer(), one(3, 4, 5, stack=(6, 7)).strided()
one(«1|3», 64, 64, 'float16', stack=«()|(192,)|(384, 192)»).map((«1|3», «8|64»), «0|128», «()|(2,)|(3, 2)»)
one(«1|2|2**16|2**32 - 1|2**32», «1|2**16», «1|2**16|2**31|2**32»).check_index('x')
one(3, 4, 5, by_pointers=True, stack=(8,)).stack_strides, one(2, 3, 3).transposed()
plain_strides(«0|1|2», «0|1|5», (7, 9)), alignment_of(«0|1|2|4|8|16|32|48|6|-8»), alignment_of(), alignment_of(8, «4|16|0»)
[operands_of(«0|1|300|1000», «0|65|256», 8, groups=«0|1|3», batch=1).most_tiles(«64|128», 64)]
[getattr(operands_of(6, 5, 4, dtype=«'float32'|'bfloat16'|'int8'|'float8_e5m2'|'complex128'», b_dtype=«None|'int8'|'bfloat16'|'float8_e4m3fn'|'complex128'», batch=«1|3»), each) for each in ('element', 'other', 'accumulate', 'epilogue_type', 'batch', 'stack', 'groups', 'extra_bytes', 'sizes', 'by_pointers')]
operands_of(«-1|0|2|1.5|True», 5, «4|'4'», batch=«0|1|-1»)
operands_of(6, 5, 4, dtype=«'float32'|'float31'|'uint8'|'tfloat32'|'int8'», b_dtype=«None|'int8'|'bfloat16'|'x'|'uint8'», result=«None|'float16'|'uint8'|'y'|'int32'»)
operands_of(6, 5, 4, layout=«'nn'|'nt'|'tn'|'tt'|'n'|'NN'|None», arithmetic=«None|'f16'|'tf32'»)
operands_of(6, 5, 4, batch=«1|2», groups=«0|2», pointers=«False|True»)
[table_size(operands_of(6, 5, 4, batch=«2|16|17|128|129|512|513|1024|1025», pointers=True)), TABLE_SIZES]
[pointers_most(«0|1|2|3|5|30|300»)]
"""


def drawn(kernel: str, kind: str, count: int) -> str:
    """What a kernel makes of so many products, each by settings that are its own proposals but for one or two."""
    spec, found, made = KERNELS[kernel], Counter[str](), list[str]()
    for number in range(count):
        told = list(_one(spec, kind, Draw((kernel, kind, number))))
        made += told
        found[re.sub("[0-9]+", "#", told[-1]) if told[-1].startswith("no") else "taken"] += 1
    head = f"{found['taken']} of {count} taken, {len(found) - ('taken' in found)} refusals"
    return "\n".join([head, *made])


def proposed(kernel: str, kind: str, count: int) -> str:
    """All settings that a kernel proposes for so many products on GPUs of several sizes, in their order."""
    spec, made = KERNELS[kernel], list[str]()
    for number in range(count):
        draw = Draw((kernel, kind, "proposed", number))
        operands = draw_operands(draw, kind, thin=kernel == "vector")
        if isinstance(operands, ArgumentError) or (is_complex(operands) and refuse_complex(operands)):
            continue
        for read, _ in ways_to_read(spec, operands)[:2]:
            settings = spec.complete(spec.for_types(read))
            for sms in _SMS:
                made += map(show, spec.candidates(read, settings, sms) if spec.candidates else ())
    return "\n".join([f"{len(made)} proposed", *made])


def _one(spec: KernelSpec, kind: str, draw: Draw) -> Iterator[str]:
    operands = draw_operands(draw, kind, thin=spec.name == "vector")
    if isinstance(operands, ArgumentError):
        yield f"no operands: {operands}"
        return
    if is_complex(operands) and (error := refuse_complex(operands)):
        yield f"no complex form: {error}"
        return
    ways = ways_to_read(spec, operands)
    read, copies = draw.one(ways)
    yield f"{len(ways)} ways, copies {copies}"
    try:
        settings = _settings(spec, read, draw)
        error = spec.why_not(read, settings)
    except ArgumentError as raised:
        error = raised
    if error is not None:
        yield f"no {spec.name}: {error}"
        return
    yield from _taken(spec, operands, read, settings)


def _settings(spec: KernelSpec, read: Operands, draw: Draw) -> Settings:
    """One of the settings that a kernel proposes, often with another choice or two."""
    settings: dict[str, Any] = spec.complete(spec.for_types(read))
    if spec.candidates is not None:
        proposed = list(islice(spec.candidates(read, settings, draw.one((4, 40, 108, 132))), 24))
        if proposed and draw.often(0.93):
            settings = {**settings, **draw.one(proposed)}
            settings |= spec.promises(read, settings)
    for _ in range(draw.one((0, 0, 1, 1, 2))):
        names = [name for name, values in spec.settings.items() if len(values) > 1]
        if names:
            name = draw.one(names)
            settings[name] = draw.one(spec.settings[name])
    return settings


def _taken(spec: KernelSpec, operands: Operands, read: Operands, settings: Settings) -> Iterator[str]:
    """All that is launched, and what the cost model is told."""
    inner = read.inner(spec.stack_axes)
    yield show(settings)
    yield show(
        [
            spec.refuse_arch(settings, arch)
            for arch in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_120")
        ]
    )
    yield show([spec.proposes_on(settings, arch) for arch in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a")])
    yield show(spec.work(inner, settings))
    yield show(spec.tiles(settings))
    yield show(spec.defines(settings))
    yield show(spec.plan(read, "h200", settings))
    if not all(inner.sizes) or not read.batch:
        return
    slots = spec.sum_slots(inner, settings)
    yield show([slots, _regions(spec, settings, read), list(islice(_shifts(spec, read), 3))])
    for step in (*arrange_steps(operands, read), *spec.steps(inner, settings), *add_steps(inner, slots)):
        yield _step(step)


def _step(step: Step) -> str:
    code = None if step.code is None else (step.code.file.name, step.code.defines, len(step.code.headers))
    plain = replace(step.launch, args=())
    early = [step.may_begin_early(sms, after) for sms in (4, 132) for after in (False, True)]
    return show([step.entry, plain, step.launch.args, code, step.resident, step.spread, early])


def settings_of(kernel: str, changes: Mapping[str, Any]) -> Any:
    """The settings that a plan says."""
    operands = operands_of(
        256, 256, 512, dtype="float32" if kernel in ("simt", "general", "vector") else "bfloat16", layout="nt"
    )
    spec = KERNELS[kernel]
    settings = spec.complete(spec.for_types(operands))
    return spec.settings_of(replace(spec.plan(operands, "h200", settings), **changes), operands)


def orders(name: str, rows: int, columns: int) -> Any:
    return [getattr(raster, name)(block, rows, columns) for block in range(rows * columns)]


def one(
    rows: int, columns: int, row_stride: int, dtype: str = "float32", name: str = "a", **how: Any
) -> Operand:
    return Operand(name, rows, columns, row_stride, dtype, **how)
