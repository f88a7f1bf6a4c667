"""What the planner proposes and predicts: for products of many kinds, each kernel's ways to multiply them and its best one.

``python -m tests.predictions`` writes ``tests/golden/predictions.txt`` anew, which ``tests/nothing/test_predictions.py``
compares: do so after a change that is meant to change proposals or predictions, and look at the difference.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import tilewise as tw
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS, RUNGS
from tilewise.kernels.bind import _regions, _shifts
from tilewise.kernels.epilogue import epilogue_header
from tilewise.kernels.gemm.add_sums import add_steps
from tilewise.kernels.gemm.arrange import arrange_steps, copied, copy_bytes, ways_to_read
from tilewise.kernels.spec import KernelSpec, Settings
from tilewise.operands import Operand, Operands
from tilewise.planner import Candidate, judge_plan, list_candidates, operands_of, target_of
from tilewise.planner.constants import EMULATOR
from tilewise.planner.measured import describe_operands
from tilewise.planner.target import Target
from tilewise.slots import MapSlot, Slot

GOLDEN = Path(__file__).parent / "golden" / "predictions.txt"
COMMAND = "python -m tests.predictions"
_SHOWN = 1e-9  # seconds: of less, what is left of differences depends on the machine


@dataclass(frozen=True, eq=False)
class Case:
    """A product on a GPU: what :func:`operands_of` takes; the ``expression`` of an epilogue, whose arrays are named by their
    shapes; and how many elements lie between the ends of A's rows and the beginnings of the next, ``apart``. By the ladder's
    rungs, or by the kernels that are for use. ``brief``: of kernels that can multiply it what all of their ways come to."""

    gpu: str
    size: tuple[int, int, int]
    dtype: str
    given: Mapping[str, Any] = field(default_factory=dict)
    expression: str = ""
    apart: int = 0
    by_rungs: bool = False
    brief: bool = False

    @property
    def name(self) -> str:
        """One that tells it from the others."""
        how = [f"{name}={value}" for name, value in self.given.items()]
        how += [self.expression] if self.expression else []
        how += [f"rows {self.apart} apart"] if self.apart else []
        how += ["by rungs"] if self.by_rungs else []
        return " ".join((self.gpu, self.dtype, "x".join(map(str, self.size)), *how))

    @property
    def target(self) -> Target:
        """The GPU; the emulator with as many threads on any machine."""
        if self.gpu == "emulator":
            return Target("emulator", "sm_90a", 2, EMULATOR)
        return target_of(self.gpu)

    def operands(self) -> Operands:
        """The operands as they lie."""
        (m, n, k), batch = self.size, self.given.get("batch", 1)
        stack = () if batch == 1 else (batch,)
        shapes = {
            "row": (n,), "column": (m, 1), "whole": (*stack, m, n), "half": (*stack, m, n), "down": (*stack, n),
            "across": (*stack, m), "of_a": (m, -(-k // 128)), "of_b": (-(-k // 128), -(-n // 128)),
        }  # fmt: skip
        arrays = {
            name: np.zeros(shape, np.float16 if name == "half" else np.float32)
            for name, shape in shapes.items()
            if re.search(rf"\b{name}\b", self.expression)
        }
        epilogue = tw.epilogue(self.expression, **arrays) if self.expression else None
        found = operands_of(m, n, k, dtype=self.dtype, epilogue=epilogue, **self.given)
        return found._replace(a=_apart(found.a, self.apart)) if self.apart else found


def _apart(operand: Operand, elements: int) -> Operand:
    """The operand with its rows, or columns, so much farther apart."""
    size = operand.itemsize
    aligned = next(bytes_ for bytes_ in (16, 8, 4, 2, 1) if elements * size % bytes_ == 0)
    if operand.column_stride == 1:
        return replace(operand, row_stride=operand.row_stride + elements, alignment=aligned)
    return replace(operand, column_stride=operand.column_stride + elements, alignment=aligned)


_TYPES = ("float32", "float64", "complex64", "float16", "bfloat16", "float8_e4m3fn", "int8")
_SIZES = (
    (1000, 20, 1500),
    (20, 1000, 1536),
    (100, 100, 3008),
    (70, 3000, 512),
    (1, 2000, 1024),
    (2000, 1, 1024),
)
_MORE: tuple[tuple[str, dict[str, Any], str], ...] = (
    *((dtype, {}, "") for dtype in _TYPES),
    ("float32", {"arithmetic": "tf32"}, ""),
    ("float32", {"arithmetic": "exact32"}, ""),
    ("float16", {"arithmetic": "f16"}, ""),
    ("float16", {"b_dtype": "int8"}, ""),
    ("float8_e5m2", {"b_dtype": "bfloat16"}, ""),
    ("float8_e5m2", {}, "scaled(acc, of_a, of_b)"),
    ("int8", {"result": "float16"}, "scaled(acc, of_a, of_b)"),
    ("bfloat16", {"b_dtype": "int8"}, "scaled(acc, 1, of_b)"),
    ("float16", {"batch": 3}, "relu(acc + whole)"),
    ("float32", {}, "column_sums(down, acc)"),
)
_BRIEF = (
    *(("h200", *one, size, "nt") for one in _MORE for size in _SIZES),
    *(("rtx-4090", *one, size, "nt") for one in _MORE for size in _SIZES[:4]),
    *(("a100-sxm-80gb", *one, size, "tn") for one in _MORE[:8] for size in _SIZES[1:4]),
    *(("t4", *one, size, "nn") for one in _MORE[:5] for size in _SIZES[:3]),
    *(
        ("emulator", *one, size, "nt")
        for one in _MORE
        for size in ((96, 80, 256), (1, 96, 256), (512, 384, 256))
    ),
)

CASES = (
    Case("h200", (4096, 4096, 4096), "bfloat16"),
    Case("h200", (4096, 2048, 1024), "float16", {"layout": "nt", "result": "float32"}),
    Case("h200", (300, 700, 1100), "float16", {"layout": "tn", "arithmetic": "f16"}),
    Case("h200", (16, 7168, 2048), "bfloat16", {"layout": "nt"}),
    Case("h200", (64, 64, 16384), "bfloat16"),
    Case("h200", (1000, 500, 96), "bfloat16", {"batch": 12}),
    Case("h200", (4096, 1024, 512), "bfloat16", {"groups": 6}, "relu(acc + row)"),
    Case("h200", (512, 256, 512), "bfloat16", {"batch": 5, "pointers": True}),
    Case("h200", (1, 4096, 14336), "bfloat16", {"layout": "nt"}),
    Case("h200", (4096, 1, 4096), "float16", {}, "relu(acc) + column"),
    Case("h200", (1024, 768, 640), "bfloat16", {}, "keep(half, acc + row) * whole"),
    Case("h200", (1024, 768, 640), "float16", {}, "column_sums(down, acc) + row_sums(across, acc)"),
    Case("h200", (640, 768, 640), "bfloat16", {}, apart=1),
    Case("h200", (2048, 2048, 1000), "float32", {"arithmetic": "tf32"}),
    Case("h200", (2048, 1536, 1024), "float32", {"arithmetic": "exact32", "layout": "nt"}),
    Case("h200", (512, 512, 4096), "float32"),
    Case("h200", (2304, 2304, 2304), "float32"),
    Case("h200", (640, 512, 300), "float32", {"batch": 3, "layout": "tt"}),
    Case("h200", (256, 384, 512), "complex64"),
    Case("h200", (256, 384, 512), "complex128", {"layout": "nt"}),
    Case("h200", (1024, 1000, 512), "float64"),
    Case("h200", (2048, 2048, 2048), "float8_e4m3fn", {"layout": "nt"}),
    Case("h200", (2048, 2048, 2048), "float8_e5m2", {"layout": "nt", "b_dtype": "float8_e4m3fn"}, "scaled(acc, of_a, of_b)"),
    Case("h200", (1024, 2048, 2048), "int8", {"layout": "nt"}),
    Case("h200", (1024, 2048, 2048), "int8", {"layout": "nn", "result": "bfloat16"}, "scaled(acc, of_a, of_b)"),
    Case("h200", (64, 4096, 4096), "bfloat16", {"layout": "nt", "b_dtype": "int8"}, "acc * row"),
    Case("h200", (1, 4096, 4096), "float16", {"layout": "nt", "b_dtype": "float8_e4m3fn"}),
    Case("h200", (4096, 24, 1024), "int8", {"b_dtype": "bfloat16"}),
    Case("h200", (100, 200, 300), "int32"),
    Case("h200", (100, 200, 300), "int64", {"batch": 2}),
    Case("h100-sxm", (4096, 4096, 4096), "bfloat16"),
    Case("h100-pcie", (2048, 2048, 4096), "float16", {"layout": "nt", "b_dtype": "int8"}),
    Case("a100-sxm-80gb", (2048, 1024, 1024), "bfloat16"),
    Case("a100-sxm-80gb", (1000, 1000, 1000), "float64", {"layout": "nt"}),
    Case("a100-sxm-80gb", (512, 512, 1024), "float32", {"arithmetic": "tf32", "layout": "tt"}),
    Case("rtx-4090", (1024, 1024, 1024), "float8_e4m3fn", {"layout": "nt"}),
    Case("rtx-4090", (1024, 1024, 1024), "float16", {"arithmetic": "f16"}, "acc * 2 + whole"),
    Case("rtx-4090", (500, 300, 200), "float64"),
    Case("a10g", (1024, 256, 1024), "int8", {"layout": "nt"}),
    Case("t4", (1024, 1000, 512), "float16"),
    Case("t4", (300, 200, 4096), "float32"),
    Case("jetson-agx-orin", (512, 512, 512), "bfloat16"),
    Case("gb10", (512, 512, 512), "float16", {"layout": "tn"}),
    Case("b200", (2048, 2048, 2048), "bfloat16"),
    Case("emulator", (64, 96, 128), "float32"),
    Case("emulator", (256, 256, 256), "bfloat16"),
    Case("v100-sxm-16gb", (256, 256, 256), "float16"),
    Case("a100-sxm-80gb", (2048, 1024, 1024), "float16", apart=1),
    Case("h200", (64, 64, 64), "float64", {"result": "float32"}),
    Case("h200", (64, 64, 64), "float32", {"result": "float64", "arithmetic": "tf32"}),
    Case("h200", (64, 64, 64), "bfloat16", {"result": "float64"}),
    Case("h200", (200, 96, 200), "float8_e4m3fn", {"layout": "tn"}, "column_sums(down, acc) + whole"),
    Case("h200", (200, 96, 200), "bfloat16", {"b_dtype": "int8", "layout": "tn", "batch": 3}, "acc + row", apart=1),
    Case("h200", (200, 96, 200), "int8", {"b_dtype": "float16", "layout": "tn"}, "row_sums(across, acc)", apart=4),
    Case("h200", (200, 96, 200), "complex64", {"layout": "tn"}, "acc + row", apart=2),
    Case("h200", (1, 333, 777), "float32", {"arithmetic": "exact32"}),  # no other row that may begin anywhere
    Case("h200", (1, 333, 777), "float32", {"arithmetic": "tf32", "layout": "nt"}),
    Case("h200", (1, 333, 40), "float32"),  # with K in one part
    Case("h200", (1, 333, 40), "float16", {"layout": "nt"}),
    Case("h200", (1, 333, 777), "complex64"),
    Case("a100-sxm-80gb", (333, 1, 777), "float16"),
    Case("h200", (0, 64, 64), "bfloat16"),
    Case("h200", (64, 64, 0), "float32"),
    Case("h200", (8192, 8192, 8192), "bfloat16", {"layout": "nt"}, apart=8),
    Case("h200", (96, 1500, 4000), "bfloat16", {"layout": "tt"}, "relu(acc + row) + whole"),
    Case("h200", (129, 320, 640), "bfloat16", {"groups": 3, "layout": "nt"}),
    Case("h200", (4096, 512, 1024), "float8_e4m3fn", {"groups": 8, "layout": "nt"}, "acc * column"),
    Case("h200", (333, 555, 777), "float16", {"batch": 4, "layout": "tt"}, "acc + half", apart=3),
    Case("h200", (333, 555, 777), "float32", {"arithmetic": "exact32", "layout": "tn"}, "acc + whole", apart=3),
    Case("h200", (333, 555, 777), "complex64", {"arithmetic": "tf32", "batch": 3}),
    Case("h200", (96, 3000, 160), "float64", {"layout": "tt"}, "column_sums(down, acc)"),
    Case("h200", (2048, 1, 3000), "float64", {"layout": "tn"}),
    Case("h200", (1, 1000, 300), "complex64"),
    Case("h200", (1, 3000, 5000), "int8", {"result": "float32"}, "acc * row"),
    Case("h200", (1, 100_000, 64), "float32", {"layout": "nt"}),
    Case("h200", (5000, 1, 700), "bfloat16", {"b_dtype": "int8"}),
    Case("h200", (1500, 64, 2048), "int8", {"b_dtype": "bfloat16"}, "scaled(acc, of_a, 1)"),
    Case("h200", (700, 900, 1024), "bfloat16", {"b_dtype": "float8_e5m2"}, "scaled(acc, 1, of_b) + row"),
    Case("h200", (700, 900, 1024), "float8_e5m2", {"layout": "nt", "batch": 2, "result": "float8_e5m2"}),
    Case("h200", (700, 900, 1024), "float16", {"layout": "nt", "result": "int8"}, "acc * 127"),
    Case("h200", (64, 64, 64), "int8", {"result": "int32"}, "acc + 1"),
    Case("h200", (64, 64, 64), "int32", {}, "acc + 1"),
    Case("h200", (64, 64, 64), "float64", {"result": "int8"}),
    Case("h200", (64, 64, 64), "float32", {"result": "int32"}),
    Case("h200", (64, 64, 64), "int64", {"result": "int32"}),
    Case("h200", (64, 64, 64), "int8", {}, "column_sums(down, acc)"),
    Case("h200", (64, 64, 64), "float32", {"result": "float64"}),
    Case("h200", (2**31, 8, 8), "float32"),
    Case("h200", (2**31 - 1, 8, 8), "bfloat16"),
    Case("h200", (8, 8, 2**31), "float16"),
    Case("h200", (70_000, 70_000, 64), "float32", {"batch": 1000}),
    Case("h200", (100_000, 100_000, 8), "bfloat16", {"batch": 2000}),
    Case("h800-sxm", (1024, 1024, 8192), "bfloat16", {"layout": "nt"}),
    Case("h100-nvl", (64, 4096, 4096), "bfloat16", {"layout": "nt", "b_dtype": "int8"}),
    Case("rtx-5090", (1024, 768, 512), "float8_e4m3fn", {"layout": "nt"}, "scaled(acc, of_a, of_b)"),
    Case("l4", (64, 4096, 4096), "int8", {"layout": "nt"}, "scaled(acc, of_a, of_b)"),
    Case("a100-sxm-80gb", (3000, 100, 512), "bfloat16", {"layout": "nt", "b_dtype": "int8"}),
    Case("a100-sxm-80gb", (512, 384, 4096), "complex64", {"layout": "tn"}),
    Case("a100-sxm-80gb", (128, 96, 8192), "float16", {"layout": "tt", "batch": 2, "arithmetic": "f16"}),
    Case("rtx-2060", (1024, 1024, 1024), "int8", {"layout": "nt"}),
    Case("h200", (1024, 1024, 1024), "float32", by_rungs=True),
    Case("h200", (100, 60, 70), "float32", by_rungs=True),
    Case("h200", (1024, 1024, 512), "bfloat16", {"layout": "nt"}, by_rungs=True),
    Case("h200", (2048, 1024, 640), "float16", {"result": "float32"}, by_rungs=True),
    Case("a100-sxm-80gb", (1024, 512, 512), "float32", {"layout": "tt"}, by_rungs=True),
    Case("t4", (512, 512, 512), "float16", {"result": "float32"}, by_rungs=True),
    Case("emulator", (128, 128, 64), "float32", by_rungs=True),
    Case("emulator", (256, 256, 256), "float16", {"result": "float32", "layout": "nt"}, by_rungs=True),
    *(Case("h200", (size, 1, 1), dtype) for size in (2**31 - 1025, 2**31 - 1024) for dtype in ("bfloat16", "float32")),
    *(
        Case(gpu, size, dtype, {"layout": layout} | given, expression, brief=True)
        for gpu, dtype, given, expression, size, layout in _BRIEF
    ),
)  # fmt: skip


REFUSALS = [
    *(("wgmma", element) for element in ("bfloat16", "float8_e4m3fn", "int8")),
    *(("mma", element) for element in ("float16", "float64", "float8_e5m2", "int8")),
]


def summary(case: Case) -> str:
    """What is proposed and predicted for a product, kernel by kernel."""
    return "\n".join((f"[{case.name}]", *_lines(case)))


def _lines(case: Case) -> Iterator[str]:
    try:
        operands, target = case.operands(), case.target
    except ArgumentError as error:
        yield f"refused: {error}"
        return
    yield describe_operands(operands)
    if not (case.brief or case.by_rungs):
        yield from _verdict(operands, target)
    for name in [name for name in KERNELS if (name in RUNGS) is case.by_rungs]:
        found, refused = list_candidates(operands, target, specs=(KERNELS[name],))
        if not found:
            if not case.brief:
                yield f"{name} cannot: {refused[0].error}" if refused else f"{name} proposes nothing"
            continue
        found.sort(key=lambda one: one.prediction.seconds)
        times = [one.prediction.seconds for one in found]
        ways = f"{len(found)} ways in {_micro(times[0])} to {_micro(times[-1])}, {_micro(fmean(times))} on average"
        yield f"{name}: {ways if len(found) > 1 else f'one way in {_micro(times[0])}'}"
        yield f"  in all {_all_launches(found)}"
        if not case.brief:
            yield from (f"  {line}" for line in _best(found[0], operands, target))


def _verdict(operands: Operands, target: Target) -> Iterator[str]:
    """What is chosen, and what other operands would gain; or why nothing can be."""
    try:
        yield from judge_plan(operands, target).lines()
    except ArgumentError as error:
        yield f"refused: {error}"


def _all_launches(found: Sequence[Candidate]) -> str:
    """What the launches of all ways come to."""
    count = blocks = threads = shared = sums = 0
    for one in found:
        inner = one.operands.inner(one.spec.stack_axes)
        if not all(inner.sizes):  # what is empty is not launched
            continue
        sums += one.spec.workspace(inner, one.settings)
        for step in one.spec.steps(inner, one.settings):
            launch = step.launch
            count, blocks, threads = count + 1, blocks + launch.blocks, threads + launch.threads_per_block
            shared += launch.shared
    return f"{count} launches, {blocks:,} blocks, of {threads:,} threads, {shared:,} bytes shared, {sums:,} of sums"


def _best(one: Candidate, operands: Operands, target: Target) -> Iterator[str]:
    """The best way of a kernel: its settings, what time is spent on, and its launches, copies and sums among them."""
    spec, read = one.spec, one.operands
    usual = spec.complete({})
    yield (
        ", ".join(f"{name} {value}" for name, value in one.settings.items() if value != usual[name])
        or "as usual"
    )
    yield f"tiles: {_listed(spec.tiles(one.settings))}"
    terms = ", ".join(
        f"{name} {_micro(spent)}" for name, spent in one.prediction.terms.items() if spent >= _SHOWN
    )
    yield f"bound by {one.prediction.bound}: {terms}"
    inner = read.inner(spec.stack_axes)
    work = spec.work(inner, one.settings)
    yield f"{work.threads} threads, {work.resident} blocks an SM, {work.shared_bytes:,} bytes shared"
    if not all(inner.sizes):  # what is empty is not launched
        return
    regions, size = _regions(spec, one.settings, read)
    if size:
        yield f"{size:,} bytes of workspace: {', '.join(f'{name} at {at:,}' for name, at in regions.items())}"
    slots = spec.sum_slots(inner, one.settings)
    shifts = list(itertools.islice(_shifts(spec, read), 3))
    if len(shifts) > 1:
        yield f"and again, moved by {' and '.join(map(str, shifts[1:]))}"
    yield f"defined: {_listed(spec.defines(one.settings))}"
    for step in (*arrange_steps(operands, read), *spec.steps(inner, one.settings), *add_steps(inner, slots)):
        yield f"{step.entry}: {replace(step.launch, args=())}, {step.resident} an SM{', spread' * step.spread}"
        if step.code is not None:
            yield f"  of {step.code.file.name}, defined: {_listed(dict(step.code.defines))}"
        yield from (f"  {_argument(slot)}" for slot in step.launch.args)


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _values(values: Sequence[int | str]) -> str:
    """Those that a setting may have."""
    return f"{values[0]} … {values[-1]}" if isinstance(values, range) else ", ".join(map(str, values))


def _argument(slot: Slot | MapSlot) -> str:
    """A parameter of a kernel: its numbers of 32 bits, or what a map describes; and where addresses are filled in."""
    if isinstance(slot, MapSlot):
        return f"map of {slot.operand} + {slot.addend}: {_listed(slot.described._asdict())}"
    padded = slot.template + bytes(-len(slot.template) % 4)
    numbers = " ".join(map(str, struct.unpack(f"<{len(padded) // 4}i", padded)))
    if len(padded) > 8 and not any(padded) and not slot.gaps:
        return f"{len(slot.template)} bytes of zeros"
    gaps = (f"; {gap.operand} + {gap.addend} at {gap.offset}, {gap.size} bytes" for gap in slot.gaps)
    return f"{numbers}{''.join(gaps)}"


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.5g} µs"


def of_kernel(name: str) -> str:
    """What a kernel says of itself, and the block of each of its partitions, those that are never proposed among them."""
    spec = KERNELS[name]
    shown = {one.name: getattr(spec, one.name) for one in fields(spec) if one.name != "settings"}
    plain = {key: value for key, value in shown.items() if not (callable(value) or isinstance(value, Path))}
    lines = [f"[the kernel {name}]", f"{_listed(plain)}; file {spec.file.name}"]
    lines += [f"{key}: {_values(values)}" for key, values in spec.settings.items()]
    for element in spec.element_types:
        operands = operands_of(512, 512, 512, dtype=element, layout="nt")
        usual = spec.for_types(operands)
        for partition in spec.settings.get("partition", ()):
            with contextlib.suppress(ArgumentError):  # which is for other types
                chosen = spec.complete({**usual, "partition": partition})
                work, (step, *_) = spec.work(operands, chosen), spec.steps(operands, chosen)
                lines.append(
                    f"{element} {partition}: {work.block}, {work.threads} threads, {work.resident} blocks an SM, "
                    f"{work.stages} stages, {step.launch.shared:,} bytes"
                )
    return "\n".join(lines)


_CHOICES = ("pingpong", "exchanged", "cluster", "split", "parts", "stages", "scales_a", "scales_b")


def of_refusals(name: str, element: str) -> str:
    """How many combinations of a kernel's choices are refused for a product, and why; with an epilogue, too.

    Of each choice but the tiles its first two values. Numbers in reasons are left out.
    """
    spec = KERNELS[name]
    names = [choice for choice in _CHOICES if choice in spec.settings]
    values = [spec.settings[choice][:2] for choice in names]
    lines = [f"[what {name} refuses of {element}]"]
    for epilogue in (None, tw.epilogue("relu(acc)")):
        operands = operands_of(512, 512, 2048, dtype=element, layout="nt", epilogue=epilogue)
        usual = spec.complete(spec.for_types(operands))
        assert spec.candidates is not None
        proposed = next(spec.candidates(operands, usual, 132))
        usual |= {name: value for name, value in proposed.items() if name.endswith(("_in_rows", "_bytes"))}
        found: Counter[str] = Counter()
        for partition, *chosen in itertools.product(_fitting(spec, operands), *values):
            given: dict[str, Any] = {**usual, "partition": partition, **dict(zip(names, chosen, strict=True))}
            try:
                error = spec.refuse(operands, given)
            except ArgumentError as raised:
                error = raised
            found["none" if error is None else f"{error.argument} {re.sub('[0-9]+', '#', error.rule)}"] += 1
        lines += [f"{count}: {message}" for message, count in sorted(found.items())]
    return "\n".join(lines)


CHANGED = tuple(
    Case("h200", size, dtype, given, expression)
    for size, dtype, given, expression in (
        ((512, 512, 2048), "bfloat16", {"layout": "nt"}, ""),
        ((333, 77, 555), "float16", {"layout": "tn", "result": "float32"}, "relu(acc + row)"),
        ((96, 200, 300), "float16", {"arithmetic": "f16", "batch": 3}, ""),
        ((600, 500, 2048), "float32", {}, ""),
        ((130, 96, 128), "float32", {"arithmetic": "tf32", "layout": "nt"}, ""),
        ((256, 512, 640), "float32", {"arithmetic": "exact32"}, ""),
        ((300, 1, 4000), "float64", {}, ""),
        ((1000, 512, 96), "float64", {"layout": "nt"}, "column_sums(down, acc)"),
        ((300, 200, 100), "complex64", {}, ""),
        ((64, 512, 256), "int8", {"layout": "nt"}, "scaled(acc, of_a, of_b)"),
        ((64, 4096, 1024), "bfloat16", {"layout": "nt", "b_dtype": "int8"}, ""),
        ((512, 256, 512), "bfloat16", {"batch": 5, "pointers": True}, ""),
        ((129, 320, 640), "float8_e4m3fn", {"groups": 3, "layout": "nt"}, ""),
    )
)
_ARRANGED_TYPES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("float32", {"arithmetic": "tf32"}),
    ("float16", {"batch": 3}),
    ("int8", {}),
    ("float64", {}),
    ("complex64", {}),
    ("float16", {"b_dtype": "int8"}),
    ("float8_e4m3fn", {"b_dtype": "bfloat16", "batch": 2}),
)
ARRANGED = tuple(
    Case("h200", (100, 72, 90), dtype, {"layout": layout} | given, apart=apart)
    for dtype, given in _ARRANGED_TYPES
    for layout in ("nn", "tt")
    for apart in (0, 2)
)


def arrangements() -> str:
    """The copies of operands that kernels make before they multiply: how they lie, and their launches."""
    lines = ["[copies]"]
    for case in ARRANGED:
        operands = case.operands()
        found: dict[str, list[str]] = {}
        for spec in (KERNELS[name] for name in KERNELS if name not in RUNGS):
            for read, copies in ways_to_read(spec, operands):
                if copies:
                    found.setdefault("\n".join(_copies(operands, read)), []).append(spec.name)
        lines += [case.name, *(f"  {', '.join(names)}:\n{text}" for text, names in found.items())]
    return "\n".join(lines)


def _copies(operands: Operands, read: Operands) -> Iterator[str]:
    for source, copy in copied(operands, read):
        size = f"{copy.rows}x{copy.columns} of {copy.dtype}, {copy.row_stride} and {copy.column_stride} apart"
        stack = operands.inner(2).stack_of(source)
        yield f"    {copy.name}: {size}, stack {copy.stack}, {copy_bytes(copy, stack):,} bytes"
    for step in arrange_steps(operands, read):
        yield f"    {step.entry}, {step.launch.blocks} blocks: {' | '.join(map(_argument, step.launch.args))}"


_ELEMENT_TYPES = re.compile("must have elements of type .* for")


def of_changes(case: Case) -> str:
    """Of each kernel's first proposal for a product: why each of its choices cannot be another one, all others as they are.

    Of a range: the first values and the last one.
    """
    lines, operands = [f"[what refuses changes of {case.name}]"], case.operands()
    for spec in (KERNELS[name] for name in KERNELS if name not in RUNGS):
        found, _ = list_candidates(operands, case.target, specs=(spec,))
        if not found:
            continue
        first, refused = found[0], 0
        usual = dict(first.settings)
        for name, values in spec.settings.items():
            reasons: dict[str, list[int | str]] = {}
            shown = [*values[:16], values[-1]] if isinstance(values, range) else values
            for value in (one for one in shown if one != usual[name]):
                if error := _why_not(spec, first.operands, {**usual, name: value}):
                    rule = _ELEMENT_TYPES.sub("must have another type for", error.rule)
                    reasons.setdefault(f"{error.argument} {rule}", []).append(value)
            refused += sum(map(len, reasons.values()))
            lines += [f"  {name} {_spans(given)}: {reason}" for reason, given in reasons.items()]
        lines.append(f"{spec.name}: of the first of {len(found)} proposals, {refused} changes are refused")
    return "\n".join(lines)


def _why_not(spec: KernelSpec, operands: Operands, settings: Settings) -> ArgumentError | None:
    try:
        return spec.why_not(operands, settings)
    except ArgumentError as raised:
        return raised


def _spans(values: Sequence[int | str]) -> str:
    """Values in the order in which they are listed, of more than three the first and the last."""
    return ", ".join(map(str, values)) if len(values) <= 3 else f"{values[0]} … {values[-1]} ({len(values)})"


def _fitting(spec: KernelSpec, operands: Operands) -> Iterator[object]:
    """The tiles for elements of a type."""
    for partition in spec.settings["partition"]:
        with contextlib.suppress(ArgumentError):
            spec.work(operands, spec.complete({**spec.for_types(operands), "partition": partition}))
            yield partition


def headers() -> dict[str, str]:
    """What epilogues become in CUDA C++, by their expressions."""
    found = {}
    for case in CASES:
        if case.expression and not case.brief and case.expression not in found:
            with contextlib.suppress(ArgumentError):  # which has none
                operands = case.operands()

                sums = "double" if operands.epilogue_type == "float64" else "float"
                found[case.expression] = epilogue_header(operands.epilogue, sums)
    return {f"[the header of {name}]": re.sub(r"\n\n+", "\n", text).strip() for name, text in found.items()}


def list_predictions() -> str:
    """The whole file."""
    of_headers = ("\n".join(one) for one in headers().items())
    return (
        "\n\n".join(
            (
                *map(of_kernel, KERNELS),
                *itertools.starmap(of_refusals, REFUSALS),
                *map(of_changes, CHANGED),
                arrangements(),
                *of_headers,
                *map(summary, CASES),
            )
        )
        + "\n"
    )


if __name__ == "__main__":
    GOLDEN.write_text(list_predictions(), encoding="utf-8")
