"""Operations that take a longer way for some operands: kernels, and operands of which that many lanes take it.

The groups are counted with those of ``counters``. "slow ranges" has the divisions under operands whose exponents go
through all there are, a pair of exponents to a warp; the others have each kernel under operands of several kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.hardware.job import Array, Job, Raw, Start, code_digest, digest

__all__ = ["ARCH", "GROUPS", "jobs", "metrics", "source"]

ARCH = "sm_90a"
GROUPS = ("slow programs", "slow divisions", "slow roots", "slow functions", "slow ranges")
_SOURCE = Path(__file__).with_suffix(".cu")
_THREADS = 256
_COUNT = 4 * _THREADS  # elements of each array outside of "slow ranges"

_RUNS = [
    "smsp__inst_executed.sum", "smsp__sass_inst_executed.sum", "smsp__thread_inst_executed.sum",
    "smsp__thread_inst_executed_pred_on.sum",
]  # fmt: skip
_MORE = [
    "smsp__sass_branch_targets.sum", "smsp__sass_branch_targets_threads_divergent.sum",
    *(f"smsp__sass_inst_executed_op_{op}.sum" for op in ("global_ld", "global_st")),
    *(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")),
    *(f"smsp__inst_executed_pipe_{pipe}.sum" for pipe in ("fma", "alu", "fp64", "xu", "cbu")),
    *(f"launch__{name}" for name in ("registers_per_thread", "occupancy_limit_registers", "occupancy_limit_shared_mem")),
]  # fmt: skip


def source() -> str:
    return _SOURCE.read_text(encoding="utf-8")


def metrics(group: str) -> list[str]:
    """What to count in a group."""
    if group == "slow ranges":
        return [*_RUNS, "smsp__inst_executed_pipe_xu.sum", "smsp__inst_executed_pipe_cbu.sum"]
    return [*_RUNS, *_MORE]


def names() -> list[str]:
    """The kernels, in order."""
    told = re.findall(r'^(?:EACH|ONE)\((\w+),|^extern "C" __global__ void (\w+)\(', source(), re.M)
    return [one or other for one, other in told]


def jobs(group: str) -> Iterator[Job]:
    """A group's launches, each a job of its own: a kernel and what its operands are."""
    from tilewise.toolchain.compile import compile_source

    binary = compile_source(source(), names(), ARCH, filename=_SOURCE.name)
    about = {"machine code": digest(binary.cubin or b""), "code": code_digest(binary.cubin or b"")}
    listed = _ranges() if group == "slow ranges" else _launches(group)
    for name, label, x, w in listed:
        start = Start(name, (x.size // _THREADS, 1, 1), (_THREADS, 1, 1), ("x", "w", "y"))
        buffers = {"x": x, "w": w, "y": np.zeros_like(x)}
        yield Job(f"{name}: {label}", binary.ptx, [start], buffers, [], binary.cubin, dict(about))


# -- operands -----------------------------------------------------------------------------------------
_Operands = Iterator[tuple[str, Array, Array]]  # what they are, x, w
_FLOATS: dict[str, tuple[float, float]] = {  # x and w of every thread
    "0 below": (1.5, 0.0), "0 above": (0.0, 3.0), "0 by 0": (0.0, 0.0), "inf below": (1.5, np.inf),
    "inf above": (-np.inf, 3.0), "NaN above": (np.nan, 3.0), "NaN below": (1.5, np.nan),
    "negative": (-2.5, -3.0), "both infinite": (np.inf, -np.inf),
}  # fmt: skip


def _floats(kind: type[np.floating]) -> _Operands:
    """Ordinary numbers; rare ones in a few lanes of a few warps; in all lanes of every other warp; any in any lane."""
    info, raw = np.finfo(kind), Raw(np.finfo(kind).bits, 91)
    small, tiny, huge = float(info.smallest_subnormal) * 5, float(info.tiny), float(info.max) / 3
    x, w = ((1.25 + 0.25 * raw.numbers(_COUNT)).astype(kind) for _ in range(2))
    yield "ordinary", x, w
    rare = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        small,
        -small * 9,
        tiny,
        -tiny * 3,
        huge,
        -huge / 5,
        1.0,
        1e30,
        1e-30,
        65536.5,
    ]
    lanes = np.arange(_COUNT)
    few = (lanes // 32 % 3 == 1) & (lanes % 32 < 3)
    pairs: dict[str, tuple[float, float]] = {
        **_FLOATS, "small below": (1.5, small), "small above": (small, 3.0), "both small": (small, small * 3),
        "too large": (huge, tiny), "too small": (tiny, huge), "barely small": (tiny * 1.5, 1.25),
        "huge above": (huge, 3.0), "huge below": (1.5, huge), "large": (123456.789, 98765.4),
    }  # fmt: skip
    for label, (one, other) in pairs.items():
        for where, which in (("few lanes", few), ("half the warps", lanes // 32 % 2 == 0)):
            yield (
                f"{label}, {where}",
                np.where(which, one, x).astype(kind),
                np.where(which, other, w).astype(kind),
            )
    listed = np.array(rare, kind)
    for turn in range(3):
        yield f"any {turn}", listed[raw.below(len(rare), _COUNT)], listed[raw.below(len(rare), _COUNT)]
    spread = [(raw.numbers(_COUNT) * 2.0 ** raw.between(-60, 60, _COUNT)).astype(kind) for _ in range(2)]
    yield "from far and near", spread[0], spread[1]


def _integers(kind: type[np.integer]) -> _Operands:
    info, raw = np.iinfo(kind), Raw(np.iinfo(kind).bits, 92)
    one, other = raw.below(100_000, _COUNT), 1 + raw.below(300, _COUNT)
    yield "small", one.astype(kind), other.astype(kind)
    lanes = np.arange(_COUNT)
    large = [one + (int(info.max) >> 3), other + (int(info.max) >> 9)]
    few = (lanes // 32 % 3 == 1) & (lanes % 32 < 3)
    for where, which in (("few lanes", few), ("half the warps", lanes // 32 % 2 == 0), ("all", lanes >= 0)):
        yield (
            f"large, {where}",
            np.where(which, large[0], one).astype(kind),
            np.where(which, large[1], other).astype(kind),
        )
    yield (
        "large above, half the warps",
        np.where(lanes // 32 % 2 == 0, large[0], one).astype(kind),
        other.astype(kind),
    )
    if info.min < 0:
        yield "negative", (-one).astype(kind), np.where(lanes % 2 == 0, other, -other).astype(kind)


# Of kernels that many operands would say nothing new of, some.
_FEW = (
    "ordinary",
    "small below, few lanes",
    "small below, half the warps",
    "large, few lanes",
    "any 0",
    "from far and near",
)
_MANY = ("f32_div", "f64_div")
_SINGLE = re.compile(r"(ordinary|any|from far|large|(0|inf|NaN|small|huge) above|negative|barely small)")
_TYPES: dict[str, type[np.generic]] = {
    "f64": np.float64, "s32": np.int32, "u32": np.uint32, "s64": np.int64, "u64": np.uint64
}  # fmt: skip


def group_of(name: str) -> str:
    """The group that a kernel is counted in."""
    if re.match(r"[fsu]\d\d_(div|rem)", name):
        return "slow divisions"
    if re.match(r"f\d\d_(rcp|r?sqrt)", name):
        return "slow roots"
    return "slow functions" if re.match(r"f\d\d_(?!two)", name) else "slow programs"


def _launches(group: str) -> Iterator[tuple[str, str, Array, Array]]:
    for name in names():
        if group_of(name) != group:
            continue
        kind = _TYPES.get(name[:3], np.float32)
        integer = issubclass(kind, np.integer)
        operands = _integers(kind) if issubclass(kind, np.integer) else _floats(kind)  # type: ignore[arg-type]
        for label, x, w in operands:
            single = name in ("f32_rcp", "f32_sqrt", "f64_rcp", "f64_sqrt") and _SINGLE.match(label)
            if integer or name in _MANY or single or label in _FEW:
                yield name, label, x, w
        if name == "f32_div_uniform":
            x = np.linspace(1, 2, _COUNT).astype(np.float32)
            for divisor in (3.0, 1e-40, 0.0, 3e38, np.inf):
                yield name, f"by {divisor}", x, np.full(_COUNT, divisor, np.float32)


def _numbers(exponents: Array, mantissas: Array, kind: type[np.floating]) -> Array:
    """Positive numbers of biased exponents, with fractions from 0 up to 1; 32 lanes alike."""
    size, bits = (52, np.uint64) if kind is np.float64 else (23, np.uint32)
    words = (exponents.astype(np.uint64) << np.uint64(size)) + (mantissas * 2.0**size).astype(np.uint64)
    return np.repeat(words.astype(bits).view(kind), 32)


def _ranges() -> Iterator[tuple[str, str, Array, Array]]:
    """A warp for each pair of exponents: all of one operand beside one of the other, or at one distance."""
    raw = Raw(93)
    every = np.arange(256)
    zeros, ones, some = np.zeros(256), np.full(256, 1 - 2.0**-20), raw.numbers(256) / 2 + 0.5
    for fractions, mantissas in (
        ("0", (zeros, zeros)),
        ("0 and 1", (zeros, ones)),
        ("1 and 0", (ones, zeros)),
        ("any", (some, some[::-1])),
    ):
        fixed = (
            (0, 1, 2, 3, 24, 25, 127, 250, 251, 252, 253, 254) if fractions != "any" else range(0, 256, 12)
        )
        for one in fixed:
            yield (
                "f32_div",
                f"by 2^{one}, fractions {fractions}",
                *_pair(every, every * 0 + one, mantissas, np.float32),
            )
            yield (
                "f32_div",
                f"of 2^{one}, fractions {fractions}",
                *_pair(every * 0 + one, every, mantissas, np.float32),
            )
        for far in (-128, -127, -126, -125, -124, -100, 100, 124, 125, 126, 127, 128):
            below = every[np.clip(every + far, 0, 255) == every + far]
            below = np.pad(below, (0, 256 - below.size), mode="edge")
            yield (
                "f32_div",
                f"2^{far} apart, fractions {fractions}",
                *_pair(below + far, below, mantissas, np.float32),
            )
    for name in ("f32_rcp", "f32_sqrt"):
        for fractions, mantissa in (("0", zeros), ("1", ones), ("any", some)):
            yield (
                name,
                f"all exponents, fractions {fractions}",
                *_pair(every, every, (mantissa, mantissa), np.float32),
            )
    wide = np.concatenate([np.arange(64), np.arange(960, 1088), np.arange(1984, 2048)])
    for one in (0, 1, 2, 53, 60, 1023, 2040, 2044, 2045, 2046):
        yield "f64_div", f"by 2^{one}", *_pair(wide, wide * 0 + one, (some, some[::-1]), np.float64)
        yield "f64_div", f"of 2^{one}", *_pair(wide * 0 + one, wide, (some, some[::-1]), np.float64)
    for name in ("f64_rcp", "f64_sqrt"):
        yield name, "many exponents", *_pair(wide, wide, (some, some), np.float64)


def _pair(x: Array, w: Array, mantissas: tuple[Array, Array], kind: type[np.floating]) -> tuple[Array, Array]:
    return _numbers(x, mantissas[0], kind), _numbers(w, mantissas[1], kind)
