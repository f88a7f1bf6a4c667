"""Part C: scalar and packed instructions, each on thousands of chosen numbers.

A kernel runs some two dozen instructions of one domain: each thread loads ``%a``, ``%b`` and ``%c`` and every
instruction's ``%d`` goes to an array of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.hardware.floats import FORMATS
from tests.hardware.job import Array, Job, Raw, Start
from tests.hardware.scalar_table import Case, cases

__all__ = ["COUNT", "Group", "groups", "job", "jobs", "operands"]

COUNT = 4096
_A_KERNEL = 24  # instructions
_BITS = {
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "f16x2": 32,
    "bf16x2": 32,
    "b16": 16,
    "b32": 32,
    "b64": 64,
}
_REGISTER = {16: "b16", 32: "b32", 64: "b64"}


@dataclass(frozen=True)
class Group:
    """Instructions that run in one kernel."""

    name: str
    domain: str
    cases: tuple[Case, ...]


def groups(chosen: Iterable[Case] | None = None) -> Iterator[Group]:
    """Of every instruction, or of those that are given."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in cases() if chosen is None else chosen:
        apart = ("" if case.emulated else "-more") + (f"-{case.version}" if case.version != "9.0" else "")
        found.setdefault((case.domain, apart), []).append(case)
    for (domain, more), listed in found.items():
        for i in range(0, len(listed), _A_KERNEL):
            yield Group(f"{domain}{more}-{i // _A_KERNEL}", domain, tuple(listed[i : i + _A_KERNEL]))


def jobs() -> Iterator[Job]:
    return map(job, groups())


def job(group: Group) -> Job:
    buffers = dict(zip("abc", operands(group.domain), strict=True))
    outs = [f"o{i}" for i in range(len(group.cases))]
    for name, case in zip(outs, group.cases, strict=True):
        buffers[name] = np.zeros(COUNT, f"u{case.bits // 8}")
    start = Start("k", (COUNT // 128, 1, 1), (128, 1, 1), ("a", "b", "c", *outs))
    about = {"texts": [case.text for case in group.cases]}
    return Job(group.name, _text(group), [start], buffers, outs, None, about)


# -- inputs -----------------------------------------------------------------------------------------
def operands(domain: str) -> tuple[Array, Array, Array]:
    """The numbers of a domain: first every pair of special ones, then random ones of several kinds."""
    raw = Raw(sum(domain.encode()), 7)
    packed = domain.endswith("x2")
    parts = []
    for shift in range(3):
        found = _numbers(raw, domain.removesuffix("x2"), shift)
        if packed:
            upper = _numbers(raw, domain.removesuffix("x2"), (shift + 1) % 3)
            found = found | np.roll(upper, 321 * shift + 17) << np.uint64(16)
        parts.append(found.astype(f"u{_BITS[domain] // 8}"))
    a, b, c = parts
    return a, b, c


def _numbers(raw: Raw, domain: str, turn: int) -> Array:
    edges = _edges(domain)
    # Every pair of edges meets in two operands; the third goes round slowly.
    n = len(edges)
    at = np.arange(min(n * n, 1024))
    first = edges[(at % n, at // n % n, at * 7 // n % n)[turn]]
    rest = COUNT - len(first)
    return np.concatenate([first, _random(raw, domain, rest)])


def _edges(domain: str) -> Array:
    if domain in FORMATS:
        of = FORMATS[domain]
        top = ((1 << of.exponent) - 1) << of.mantissa
        one = of.bias << of.mantissa
        half = 1 << (of.mantissa - 1)
        plain = [0, 1, (1 << of.mantissa) - 1, 1 << of.mantissa, one - 1, one, one + 1, one + half, top - 1, top,
                 top | half, top | 1, one + (1 << of.mantissa), one - (1 << of.mantissa)]  # fmt: skip
        sign = 1 << (of.exponent + of.mantissa)
        return np.array([value | negative for value in plain for negative in (0, sign)], np.uint64)
    bits = _BITS[domain]
    last = (1 << bits) - 1
    plain = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, last, last - 1, last >> 1,
             (last >> 1) + 1, (last >> 1) - 1, last // 3, last // 5, last // 255 * 128]  # fmt: skip
    return np.array(plain, np.uint64) & np.uint64(last)


def _random(raw: Raw, domain: str, count: int) -> Array:
    if domain not in FORMATS:
        shift = raw.below(_BITS[domain], count).astype(np.uint64) if domain != "b16" else raw.below(16, count)
        words = raw.words(count) >> np.uint64(64 - _BITS[domain])
        return np.where(raw.below(2, count) == 1, words, words >> shift.astype(np.uint64))
    of = FORMATS[domain]
    sizes = [count // 4, count // 4, count // 4, count - 3 * (count // 4)]
    any_bits = raw.words(sizes[0]) >> np.uint64(63 - of.exponent - of.mantissa)
    near = of.make(raw, -4, 4, (sizes[1],))
    middle = of.make(raw, -14, 14, (sizes[2],))
    # Few digits: halfway cases of conversions to shorter types.
    few = of.make(raw, -20, 20, (sizes[3],))
    keep = np.uint64(max(of.mantissa - 6, 0))
    short = (few >> keep) << keep
    if of.mantissa > 11:
        cut = np.uint64(of.mantissa - 11)
        short = np.where(raw.below(2, sizes[3]) == 1, (few >> cut) << cut, short)
    return np.concatenate([any_bits, near, middle, short])


# -- kernels ----------------------------------------------------------------------------------------
def _text(group: Group) -> str:
    bits = _BITS[group.domain]
    names = ["a", "b", "c", *(f"o{i}" for i in range(len(group.cases)))]
    parameters = ", ".join(f".param .u64 p{name}" for name in names)
    lines = [
        f".version {group.cases[0].version}", ".target sm_90", ".address_size 64",
        f".visible .entry k({parameters}) {{",
        f".reg .{_REGISTER[bits]} %a, %b, %c; .reg .b32 %i, %t; .reg .b64 %p, %o;",
        f"mov.u32 %i, %ctaid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, 128, %t; mul.wide.u32 %o, %i, {bits // 8};",
    ]  # fmt: skip
    lines += [
        f"ld.param.u64 %p, [p{name}]; add.s64 %p, %p, %o; ld.global.{_REGISTER[bits]} %{name}, [%p];"
        for name in "abc"
    ]
    for i, case in enumerate(group.cases):
        kind = _REGISTER[case.bits]
        lines += [
            "{", f".reg .{kind} %d; .reg .pred %q; .reg .b8 %k<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %l<2>;",
            f"mov.{kind} %d, 0;", case.text,
            f"ld.param.u64 %p, [po{i}]; mul.wide.u32 %o, %i, {case.bits // 8}; add.s64 %p, %p, %o;",
            f"st.global.{kind} [%p], %d;", "}",
        ]  # fmt: skip
    return "\n".join([*lines, "ret;", "}", ""])
