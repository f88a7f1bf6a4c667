"""The machine code of the production kernels: representative plans on every kind of GPU, and what is in their main loops.

``python -m tests.generated_code`` writes ``tests/golden/code`` anew, which ``tests/nothing/test_generated_code.py``
compares: do so after a change that is meant to change the code, and look at the difference.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tilewise as tw
from tilewise.gpus import find
from tilewise.instruments.occupancy import Occupancy, occupancy
from tilewise.interop import numpy_dtype
from tilewise.kernels import KERNELS
from tilewise.kernels.spec import Step
from tilewise.planner import Candidate, choose, operands_of, target_of
from tilewise.planner.cost import count_resident
from tilewise.toolchain.binary import Resources
from tilewise.toolchain.lines import MachineInstruction, SourceLine, line_table
from tilewise.toolchain.nvrtc import version

GOLDEN = Path(__file__).parent / "golden" / "code"
COMMAND = "python -m tests.generated_code"
FOLDERS = (Path(tw.__file__).parent / "include", Path(tw.__file__).parent / "kernels" / "gemm")
PRECISE = re.compile(r"(?:LD|ST|RED|ATOM|UTMA|UBLKCP|SYNCS|\w*MMA|HFMA2|FFMA2)")  # kept with all modifiers
_OPERAND = re.compile(r"(?:^|,)\s*[-|]*(?:(R\d+)\b(\.reuse)?)?[^,]*")
_REGISTER = re.compile(r"\bR(\d+)\b")
_TARGET = re.compile(r"`\((\S+)\)")


@dataclass(frozen=True, eq=False)
class Case:
    """A plan: the kernel and its main settings for a problem on a GPU; the planner adds what follows from them.

    ``math`` are the families of instructions that the main loop is there for; ``loop`` are patterns of opcodes, all of
    which it must have, and ``code`` those of the whole kernel. ``wide`` says that loads from global memory in the loop
    have 16 bytes. ``blocks`` are those that an SM is to hold where they are fewer than the cost model counts on.
    """

    kernel: str
    gpu: str
    size: tuple[int, int, int]
    dtype: str
    given: Mapping[str, int | str] = field(default_factory=dict)
    math: tuple[str, ...] = ("FFMA",)
    loop: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    wide: bool = True
    blocks: int | None = None
    layout: str = "nn"
    b_dtype: str | None = None
    result: str | None = None
    arithmetic: str | None = None
    groups: int = 0
    epilogue: str = ""  # the type of its arrays
    scales: tuple[int, int] = (0, 0)  # rows of A and columns of B that share scales of terms
    copied: bool = False  # whether an operand is widened first
    entry: int = 0  # which of the plan's launches

    @property
    def arch(self) -> str:
        """What it is compiled for."""
        return target_of(self.gpu).arch

    @property
    def name(self) -> str:
        """One that tells it from the others."""
        settings = " ".join(f"{name}={value}" for name, value in self.given.items())
        types = f"{self.dtype}·{self.b_dtype}" if self.b_dtype else self.arithmetic or self.dtype
        problem = f"{types} {self.layout} {'x'.join(map(str, self.size))}"
        more = (f"to {self.result}" if self.result else "", f"in {self.groups} groups" if self.groups else "",
                "with an epilogue" * bool(self.epilogue), f"of {self.epilogue}" if self.epilogue == self.dtype else "",
                f"scales of {self.scales[0]} and {self.scales[1]}" if any(self.scales) else "", f"launch {self.entry}" if self.entry else "")  # fmt: skip
        return " ".join(part for part in (self.arch, problem, *more, settings) if part)


def _mma(gpu: str, dtype: str, partition: str, *loop: str, **more: Any) -> Case:
    """A product of 4096³ by mma.sync, unless ``more`` says otherwise."""
    given = {"partition": partition, "split": 1, **more.pop("given", {})}
    math = (
        {"float64": "DMMA", "int8": "IMMA", "float8_e4m3fn": "QMMA", "float8_e5m2": "QMMA"}.get(
            dtype, "HMMA"
        ),
    )
    size = more.pop("size", (4096, 4096, 4096))
    more = {"code": (r"STG\.E\.128",), **more}
    return Case("mma", gpu, size, dtype, given, math, loop, **more)


def _wgmma(dtype: str, partition: str, *code: str, **more: Any) -> Case:
    """A product of 8192³ by wgmma: copies by the copy engine, and warpgroups that give registers to one another."""
    given: dict[str, int | str] = {
        "partition": partition,
        "split": 1,
        "tiles": 1,
        "cluster": "1x1",
        "pingpong": 0,
        "exchanged": 0,
    }
    given |= more.pop("given", {})
    n, arithmetic = partition.split("x")[1], more.get("arithmetic")
    family = {"float8_e4m3fn": "QGMMA", "int8": "IGMMA"}.get(dtype, "HGMMA")
    if family != "HGMMA":
        types = r"S8\.S8" if dtype == "int8" else rf"F32\.E4M3\.{'E5M2' if more.get('b_dtype') else 'E4M3'}"
        math = rf"{family}\.64x{n}x32\.{types}"
    elif arithmetic == "tf32":
        math = rf"HGMMA\.64x{n}x8\.F32\.TF32"
    else:
        math = rf"HGMMA\.64x{n}x16\." + ("F16" if arithmetic == "f16" else "F32")
        math += r"\.BF16" if dtype == "bfloat16" else ""
    waits = (math, r"SYNCS\.PHASECHK\.\S*TRYWAIT", r"SYNCS\.ARRIVE\.\S*")
    everywhere = (r"UTMALDG\.2D", r"USETMAXREG\.DEALLOC\S*", r"USETMAXREG\.TRY_ALLOC\S*", *code)
    return Case(
        "wgmma",
        "h200",
        more.pop("size", (8192, 8192, 8192)),
        dtype,
        given,
        (family,),
        waits,
        everywhere,
        **more,
    )


def _widening(dtype: str, b_dtype: str, partition: str, *loop: str, split: int = 1, **more: Any) -> Case:
    """A few rows by weights of 8 bits, whose fragments come from registers."""
    n = partition.split("x")[1]
    math = rf"HGMMA\.64x{n}x16\.F32" + (r"\.BF16" if dtype == "bfloat16" else "")
    given: dict[str, int | str] = {"partition": partition, "split": split, "tiles": 1, "cluster": "1x1"}
    return Case("wgmma", "h200", (int(n), 8192, 8192), dtype, given, ("HGMMA",), (math, r"LDS\.U16", *loop),
                (r"UTMALDG\.2D",), layout="nt", b_dtype=b_dtype, **more)  # fmt: skip


_CUBE = (4096, 4096, 4096)
_ROW = (1, 4096, 4096)
_COPIES = r"LDGSTS\.E\.BYPASS\.\S*128"
_SMALL = {"stages": 4}
# NOTE: of `general` and `vector` an SM holds fewer blocks than the cost model counts on, which was fitted so.
CASES = (
    Case("general", "t4", _CUBE, "float32", {"partition": "128x128x8"}, loop=(r"LDS\.U\.128",), wide=False, blocks=1),
    Case(
        "general", "a100", _CUBE, "float64", {"partition": "64x64x16"}, ("DFMA",), (r"LDS\.128", r"LDS\.64"),
        (r"STG\.E\.64",), wide=False, blocks=2,
    ),
    Case("general", "rtx4090", _CUBE, "float16", {"partition": "16x16x16"}, wide=False, groups=8, blocks=6),
    Case("general", "a100", _CUBE, "int8", {"partition": "128x128x8"}, ("IMAD",), wide=False, blocks=1),
    Case("general", "t4", _CUBE, "float8_e4m3fn", {"partition": "64x64x16"}, wide=False, blocks=3),
    Case("general", "rtx4090", _CUBE, "float8_e5m2", {"partition": "32x32x16"}, wide=False, blocks=6),
    Case("general", "h200", _CUBE, "int32", {"partition": "64x64x16"}, ("IMAD",), wide=False, blocks=3),
    Case("general", "t4", _CUBE, "int64", {"partition": "64x64x16"}, ("IMAD",), wide=False, blocks=1),
    Case("general", "h200", _CUBE, "bfloat16", {"partition": "128x128x8"}, loop=(r"LDS\.128",), wide=False, blocks=1),
    Case("simt", "h200", _CUBE, "float32", {"partition": "128x256x8", "parts": 1}, loop=(r"LDS\.128", r"LDGSTS\.E"), wide=False),
    Case("simt", "h200", _CUBE, "float32", {"partition": "128x128x8", "parts": 1}, loop=(r"LDS\.128", r"LDGSTS\.E\.BYPASS\.128"), layout="tn"),
    Case("simt", "h200", _CUBE, "float32", {"partition": "128x256x8", "parts": 9, "tail": 116}, loop=(r"LDS\.128", r"LDGSTS\.E\.BYPASS\.128"), wide=False, layout="tn"),
    Case("simt", "h200", _CUBE, "complex64", {"partition": "128x128x8", "parts": 1}, loop=(r"LDS\.128", r"LDGSTS\.E"), wide=False),
    Case("simt", "a100", _CUBE, "float32", {"partition": "64x64x16", "parts": 2, "tail": 0}, loop=(r"LDS\.128", r"LDGSTS\.E\.BYPASS\.128"), layout="tn"),
    Case(
        "simt", "a100", (64, 64, 16384), "float32", {"partition": "32x32x16", "parts": 64}, ("FADD",),
        (r"LDG\.E\.128",), (r"STG\.E\.128",), entry=1,
    ),
    Case("simt", "rtx4090", (300, 300, 300), "float32", {"partition": "32x32x16", "parts": 1}, wide=False, layout="tt"),
    Case(
        "exact32", "h200", _CUBE, "float32", {"partition": "256x128x64"}, ("HGMMA",),
        (r"HGMMA\.64x128x16\.F32", "FADD", "FFMA", r"SYNCS\.PHASECHK\.\S*TRYWAIT"),
        (r"UTMALDG\.2D", r"USETMAXREG\.DEALLOC\S*", r"STG\.E\.128"), arithmetic="exact32", entry=1,
    ),
    Case("exact32", "h200", (4093, 4093, 4093), "float32", {"partition": "128x64x64"}, ("FFMA",), wide=False,
         arithmetic="exact32", entry=2, blocks=3),
    Case("vector", "t4", _ROW, "float16", {"along": "rows", "per_lane": 2}, wide=False, blocks=4),
    Case("vector", "h200", _ROW, "bfloat16", {"along": "k", "rows": 4}, layout="nt"),
    Case("vector", "a100", _ROW, "float32", {"along": "rows"}, wide=False, blocks=6),
    Case("vector", "rtx4090", _ROW, "float64", {"along": "k", "rows": 8}, ("DFMA",), layout="nt", blocks=6),
    Case("vector", "h200", _ROW, "complex64", {"along": "rows", "per_lane": 4}, wide=False, blocks=4),
    Case("vector", "h200", _ROW, "complex128", {"along": "k", "rows": 4}, ("DFMA",), layout="nt", blocks=6),
    _mma("t4", "float16", "128x128x32", r"HMMA\.1688\.F32", r"LDSM\.16\.M88\.4", r"LDSM\.16\.MT88\.4", r"STS\.128",
         code=(r"STG\.E\.128\.SYS",)),
    _mma("rtx4090", "float16", "128x256x32", r"HMMA\.16816\.F16", r"LDSM\.16\.M88\.4", _COPIES, arithmetic="f16",
         given=_SMALL),
    _mma("a100", "bfloat16", "128x256x64", r"HMMA\.16816\.F32\.BF16", r"LDSM\.16\.M88\.4", _COPIES, layout="nt"),
    _mma("a100", "float16", "128x256x64", r"HMMA\.16816\.F32", r"LDSM\.16\.M88\.4", _COPIES, given={"split": 4, "tail": 80}),
    _mma("a100", "bfloat16", "64x64x64", r"HMMA\.16816\.F32\.BF16", r"LDSM\.16\.M88\.4", _COPIES, given={"split": 2, "tail": 0, "stages": 3}, size=(512, 512, 4096)),
    _mma("a100", "float64", "128x64x16", r"DMMA\.884", r"LDS\.64", _COPIES, given={"stages": 3}),
    _mma("h200", "float64", "128x128x16", r"DMMA\.16x8x4", r"LDS\.64", _COPIES, layout="tt",
         given={"stages": 3, "boxes": 0}),
    _mma("h200", "float64", "128x128x16", r"DMMA\.16x8x8", r"LDS\.64", r"UTMALDG\.2D", r"UTMALDG\.3D", given={"boxes": 1, "stages": 6, "tail": 0}),
    _mma("h200", "float64", "64x128x16", r"DMMA\.16x8x8", r"LDS\.64", r"UTMALDG\.2D", layout="nt", given={"boxes": 1, "stages": 4},
         epilogue="float64"),
    _mma("rtx4090", "float32", "128x128x16", r"HMMA\.1688\.F32\.TF32", r"LDSM\.16\.M88\.4", _COPIES,
         arithmetic="tf32", given=_SMALL),
    _mma("h200", "float32", "64x64x32", r"HMMA\.1688\.F32\.TF32", "LDS", _COPIES, layout="tn", arithmetic="tf32",
         given={"stages": 3}, epilogue="float32"),
    _mma("a100", "float16", "64x64x64", r"HMMA\.16816\.F32", r"STS\.U16", size=(4093, 4093, 4093), wide=False),
    _mma("rtx4090", "float8_e4m3fn", "128x128x64", r"QMMA\.16832\.F32\.E4M3\.E4M3", r"LDSM\.16\.M88\.4", _COPIES, "FADD",
         layout="nt", given={"stages": 3}),
    _mma("rtx4090", "float8_e5m2", "64x64x128", r"QMMA\.16832\.F32\.E5M2\.E5M2", r"LDSM\.16\.M88\.4", _COPIES, "FADD",
         layout="nt", given={"stages": 3}, epilogue="float32"),
    _mma("a100", "int8", "128x256x128", r"IMMA\.16832\.S8\.S8", r"LDSM\.16\.M88\.4", _COPIES, layout="nt"),
    _wgmma("bfloat16", "128x256x64", r"UTMALDG\.2D\.MULTICAST", r"UTMASTG\.2D", r"STSM\.16\.M88\.4", given={"cluster": "2x1"}),
    _wgmma("float16", "64x256x64", r"UTMASTG\.2D", layout="tt", result="float32", given={"pingpong": 1, "tiles": 4}),
    _wgmma("bfloat16", "128x128x64", r"UTMALDG\.4D", size=(8192, 2048, 7168), groups=64, layout="nt"),
    _wgmma("bfloat16", "128x128x64", r"STG\.E\.128", r"LDG\.E\.128", epilogue="float32"),
    _wgmma("bfloat16", "128x128x64", r"UTMASTG\.2D", r"LDGSTS\S*\.128\S*", r"STSM\S*", epilogue="bfloat16",
           given={"pingpong": 1, "tiles": 8}, size=(4096, 4096, 4096)),
    _wgmma("bfloat16", "128x256x64", r"UTMASTG\.2D", r"LDGSTS\S*\.128\S*", r"STSM\S*", epilogue="bfloat16",
           given={"cluster": "2x1"}, size=(4096, 4096, 14336)),
    _wgmma("float32", "128x192x32", r"UTMALDG\.2D\.MULTICAST", r"UTMASTG\.2D", layout="nt", arithmetic="tf32",
           given={"cluster": "2x1"}),
    _wgmma("float32", "128x256x32", r"UTMALDG\.2D\.MULTICAST", r"UTMASTG\.2D", r"LDS\.64", arithmetic="tf32",
           given={"cluster": "2x1", "exchanged": 1}),
    _wgmma("float16", "128x256x64", r"UTMASTG\.2D", r"STSM\.16\.M88\.4", arithmetic="f16",
           given={"pingpong": 1, "tiles": 4}),
    _wgmma("float8_e4m3fn", "256x128x128", r"UTMASTG\.2D", layout="nt"),
    _wgmma("float8_e4m3fn", "128x192x128", r"STSM\.16\.M88\.4", layout="nt", given={"cluster": "2x1"}),
    _wgmma("float8_e4m3fn", "256x128x128", "SHFL.IDX", "FFMA", layout="nt", scales=(1, 128), wide=False),
    _wgmma("float8_e4m3fn", "256x128x128", "LDGSTS.E", r"LDS\.64", layout="nt", b_dtype="float8_e5m2", scales=(1, 1), wide=False),
    _mma("rtx4090", "float8_e4m3fn", "64x64x128", r"QMMA\.16832\.F32\.E4M3\.E5M2", r"LDSM\.16\.M88\.4", _COPIES, "FFMA",
         layout="nt", given={"stages": 3}, b_dtype="float8_e5m2", scales=(1, 128), wide=False),
    Case("vector", "h200", _ROW, "float8_e4m3fn", {"along": "k", "rows": 4}, layout="nt", code=(r"F2FP\.F16\.E4M3\.UNPACK_B",)),
    Case("vector", "h200", _ROW, "int8", {"along": "rows", "per_lane": 8}, ("IMAD",), wide=False, blocks=4),
    _wgmma("int8", "128x128x128", r"UTMASTG\.2D", layout="nt", given={"pingpong": 1, "tiles": 4}),
    _widening("float16", "int8", "64x8x128"),
    _widening("bfloat16", "int8", "64x64x128", split=3),
    _widening("bfloat16", "int8", "192x64x128", r"SYNCS\.PHASECHK\.\S*TRYWAIT"),
    Case("wgmma", "h200", (64, 18432, 7168), "bfloat16", {"partition": "64x144x64", "split": 1, "cluster": "1x1"}, ("HGMMA",),
         (r"HGMMA\.64x144x16\.F32\.BF16", r"SYNCS\.PHASECHK\.\S*TRYWAIT"), (r"UTMALDG\.2D", r"UTMASTG\.2D"), layout="nt"),
    _widening("bfloat16", "float8_e4m3fn", "128x16x128", r"F2FP\.F16\.E4M3\.UNPACK_B"),
    _widening("bfloat16", "float8_e5m2", "128x256x128"),
    _widening("bfloat16", "float8_e4m3fn", "64x16x128", "FFMA", scales=(0, 128), wide=False),
    _widening("bfloat16", "int8", "128x128x128", "FFMA", scales=(0, 1), wide=False),
    _wgmma("int8", "128x128x128", "LDGSTS.E", "I2FP.F32.S32", "FFMA", layout="nt", scales=(128, 1), wide=False),
    _mma("a100", "bfloat16", "64x64x64", r"HMMA\.16816\.F32\.BF16", r"LDSM\.16\.M88\.4", "FFMA",
         layout="nt", given={"stages": 3}, b_dtype="float8_e4m3fn", scales=(0, 128), wide=False, copied=True),
    _mma("rtx4090", "int8", "64x64x128", r"IMMA\.16832\.S8\.S8", "FFMA", layout="nt", given={"stages": 3}, scales=(1, 128), wide=False),
    Case("vector", "h200", _ROW, "bfloat16", {"along": "k", "rows": 4}, layout="nt", b_dtype="int8", blocks=6),
    Case("vector", "h200", _ROW, "bfloat16", {"along": "k", "rows": 16}, layout="nt", b_dtype="int8", epilogue="float32", blocks=6),
    Case("vector", "h200", _ROW, "bfloat16", {"along": "rows", "per_lane": 8}, wide=False, b_dtype="float8_e4m3fn", blocks=3),
)  # fmt: skip


@dataclass(frozen=True)
class Generated:
    """What was compiled for a case."""

    resources: Resources
    warnings: tuple[str, ...]
    code: tuple[MachineInstruction, ...]
    loop: tuple[MachineInstruction, ...]
    step: Step
    planned: int
    """Blocks that an SM is planned to hold."""
    fits: Occupancy
    """Those that it does hold."""


@functools.cache
def generate(case: Case) -> Generated:
    """The machine code of a case, with the source line of each instruction."""
    made, target = _candidate(case), target_of(case.gpu)
    inner = made.operands.inner(made.spec.stack_axes)
    step = made.spec.steps(inner, made.settings)[case.entry]
    code = step.code or made.spec.code(made.settings, made.spec.orient(made.operands).epilogue)
    kernel = code.kernel(step.entry, target.arch)
    binary = kernel.build()
    resources = binary.entries[step.entry].resources
    assert resources is not None and binary.cubin is not None
    table = line_table(binary.cubin, step.entry).through(binary.ptx)
    planned = case.blocks or count_resident(made.spec.work(inner, made.settings), target)
    fits = occupancy(
        find(case.gpu),
        int(np.prod(step.launch.block)),
        resources.registers,
        resources.shared_bytes + step.launch.shared,
        barriers=resources.barriers,
    )
    instructions = tuple(one for one in table.instructions if one.family != "NOP")
    loop = main_loop(instructions, case.math)
    return Generated(resources, binary.warnings, instructions, loop, step, planned, fits)


def _candidate(case: Case) -> Candidate:
    epilogue = None
    if case.epilogue:
        m, n, _ = case.size
        one = np.zeros(1, numpy_dtype(case.epilogue))
        whole = np.lib.stride_tricks.as_strided(one, (m, n), (n * one.itemsize, one.itemsize))
        epilogue = tw.epilogue("gelu(acc * s + row) + full", s=0.5, row=whole[0], full=whole)
    if any(case.scales):
        epilogue = _scaled(case)
    operands = operands_of(
        *case.size, dtype=case.dtype, b_dtype=case.b_dtype, layout=case.layout, result=case.result, groups=case.groups,
        arithmetic=case.arithmetic, epilogue=epilogue,
    )  # fmt: skip
    spec = KERNELS[case.kernel]
    return choose(
        operands, target_of(case.gpu), specs=(spec,), given=case.given, copy=None if case.copied else False
    )


def _scaled(case: Case) -> tw.EpilogueCall:
    """Scales of terms, as a call gives them."""
    (m, n, k), (rows, columns) = case.size, case.scales
    runs = -(-k // 128)
    given = {"t": np.ones((runs, -(-n // columns)), np.float32)}
    if rows:
        given["s"] = np.ones((-(-m // rows), runs), np.float32)
    return tw.epilogue(f"scaled(acc, {'s' if rows else '1'}, t)", **given)


# ── the main loop ──

_Blocks = dict[int, range]  # of instructions, by their first


def main_loop(code: tuple[MachineInstruction, ...], math: tuple[str, ...]) -> tuple[MachineInstruction, ...]:
    """The innermost of those loops that have the most instructions of some families; nothing if there is none."""
    blocks, follow = _flow(code)
    found: list[int] = []
    best = (0, 0)
    for loop in _loops(set(blocks), follow):
        body = sorted(i for block in loop for i in blocks[block])
        rank = sum(code[i].family in math for i in body), -len(body)
        if rank[0] and rank > best:
            found, best = body, rank
    return tuple(code[i] for i in found)


def _flow(code: tuple[MachineInstruction, ...]) -> tuple[_Blocks, dict[int, set[int]]]:
    """Basic blocks, and those that may run after each."""
    labels = {one.label: i for i, one in enumerate(code) if one.label}
    firsts = {0, *labels.values()}
    firsts |= {i + 1 for i, one in enumerate(code[:-1]) if one.family in ("BRA", "EXIT", "RET")}
    begins = sorted(firsts)
    blocks = {first: range(first, end) for first, end in zip(begins, [*begins[1:], len(code)], strict=True)}
    follow: dict[int, set[int]] = {}
    for first, block in blocks.items():
        last = code[block[-1]]
        target = _TARGET.search(last.text) if last.family == "BRA" else None
        follow[first] = {labels[target[1]]} & blocks.keys() if target and target[1] in labels else set()
        guarded = last.predicate or (target and last.text[: target.start()].strip() != last.opcode)
        if (last.family not in ("BRA", "EXIT", "RET") or guarded) and block.stop < len(code):
            follow[first].add(block.stop)
    return blocks, follow


def later(code: tuple[MachineInstruction, ...], family: str) -> set[int]:
    """The places of instructions that may run after one of this family."""
    blocks, follow = _flow(code)
    found: set[int] = set()
    for block in blocks.values():
        places = [i for i in block if code[i].family == family]
        if places:
            reached = _reach(block[0], set(blocks), follow)
            found |= {i for one in reached for i in blocks[one]} | {*range(places[0] + 1, block.stop)}
    return found


def _loops(within: set[int], follow: Mapping[int, set[int]]) -> Iterator[set[int]]:
    """Every loop, those inside of others too: blocks that reach one another; and what of these does so without the first."""
    reached = {block: _reach(block, within, follow) for block in within}
    left = set(within)
    while left:
        block = min(left)
        loop = {one for one in reached[block] if block in reached[one]}
        left -= loop | {block}
        if not loop:
            continue
        yield loop
        entered = {one for before, after in follow.items() if before not in loop for one in after & loop}
        head = min(entered or loop)
        inner = {one: follow[one] - {head} for one in loop}
        yield from _loops(loop, inner)


def _reach(block: int, within: set[int], follow: Mapping[int, set[int]]) -> set[int]:
    found: set[int] = set()
    left = [block]
    while left:
        for one in follow.get(left.pop(), set()) & within - found:
            found.add(one)
            left.append(one)
    return found


# ── what is written down ──


def summary(case: Case) -> str:
    """A few lines of text: what a case takes, and how often its main loop has each instruction."""
    found = generate(case)
    resources, shared = found.resources, found.resources.shared_bytes + found.step.launch.shared
    counts = Counter(_short(one) for one in found.loop if not one.never)
    lines = [
        f"[{case.name}]",
        f"{found.step.entry}: {resources.registers} registers, {resources.spills} spilled, {shared} bytes shared, "
        f"{found.fits.blocks} blocks on an SM; {len(found.code)} instructions, {len(found.loop)} in the main loop",
    ]
    if "FFMA" in counts:
        lines.append(f"  {count_in_one_bank(found.loop)} FFMA read two operands from one bank of registers")
    lines += [f"  {count:4} {name}" for name, count in sorted(counts.items())]
    return "\n".join(lines) + "\n"


def count_in_one_bank(code: Iterable[MachineInstruction]) -> int:
    """How many multiply-adds read two of their operands from one of the two banks, even and odd registers.

    It takes them a turn more. What the instruction before read in the same place, marked for reuse, is not read again.
    """
    count, kept = 0, dict[int, str]()
    for one in code:
        if one.family != "FFMA":
            continue
        read = list(enumerate(_OPERAND.findall(one.text.split(",", 1)[1])))
        banks = Counter(int(name[1:]) % 2 for place, (name, _) in read if name and kept.get(place) != name)
        count += max(banks.values(), default=0) > 1
        kept = {place: name for place, (name, reused) in read if reused}
    return count


def _short(one: MachineInstruction) -> str:
    """Its opcode; only the family of what neither multiplies by matrices nor goes to memory."""
    return one.opcode if PRECISE.match(one.opcode) else one.family


def at_fault(instructions: Iterable[MachineInstruction]) -> str:
    """Where in the source instructions come from, a line for each place."""
    places: dict[str, list[MachineInstruction]] = {}
    for one in instructions:
        calls = f", called at {_place(one.callers[-1])}" if one.callers else ""
        places.setdefault(_place(one.cuda) + calls, []).append(one)
    return "".join(f"\n  {where}: {len(some)} × {some[0].text}" for where, some in places.items())


def beyond(instructions: Iterable[MachineInstruction], threads: int, blocks: int) -> list[MachineInstruction]:
    """Those that use registers which a thread must not have where an SM is to hold so many blocks."""
    most = 65_536 // (threads * blocks) // 8 * 8
    return [one for one in instructions if any(int(number) >= most for number in _REGISTER.findall(one.text))]


def _place(where: SourceLine | None) -> str:
    if where is None:
        return "no line"
    for folder in FOLDERS:
        if (folder / where.file).exists():
            return f"{where.file}:{where.line} `{linecache.getline(str(folder / where.file), where.line).strip()}`"
    return f"{where.file}:{where.line}"


def hash_sources() -> str:
    """A hash of all that the code comes from: kernels, headers, and what is defined for them."""
    made = hashlib.sha256()
    for folder in FOLDERS:
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".cu", ".cuh", ".py"):
                made.update(f"{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes())
    return made.hexdigest()[:12]


def golden_of(kernel: str) -> str:
    """What the file of a kernel has to hold."""
    major, minor = version()
    head = f"# {COMMAND}\n# NVRTC {major}.{minor}\n# of sources {hash_sources()}\n"
    return head + "".join("\n" + summary(case) for case in CASES if case.kernel == kernel)


def main() -> None:
    """Write every file anew."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for kernel in dict.fromkeys(case.kernel for case in CASES):
        (GOLDEN / f"{kernel}.txt").write_text(golden_of(kernel), encoding="utf-8")


if __name__ == "__main__":
    main()
