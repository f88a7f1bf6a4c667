"""Shapes are only ever a shorter way to the same numbers: whole programs of index arithmetic against NumPy.

Programs are drawn by hypothesis from thread indices, constants and parameters; every register they compute
is stored. Parameters lie where 32-bit indices wrap around, so that warps have to leave the fast build.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise.emulator import Range, Runner, build_kernel, host_cpu
from tilewise.emulator.analysis.program import Program as AnalysedProgram
from tilewise.emulator.analysis.shape import Lanes, thread_lanes
from tilewise.emulator.ptx.parse import parse
from tilewise.errors import KernelFault
from tilewise.launch import Launch

Numbers = npt.NDArray[np.uint64]
BLOCKS = [(32, 1, 1), (16, 16, 1), (256, 1, 1), (8, 4, 2), (20, 3, 1), (48, 1, 1)]
GRID = 2
MOST_32 = 2**32 - 1
CONSTANTS = [0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 36, 64, 100, 128, 255, 256, 1023, 1024, 2**16, 2**20,
             2**31 - 1, 2**31, 2**31 + 64, MOST_32, MOST_32 - 15, MOST_32 - 31]  # fmt: skip
AMOUNTS = [0, 1, 2, 3, 4, 5, 8, 16, 27, 28, 30, 31, 32, 40, 63]
PARAMETERS = [
    (0, 0, 0),
    (1, 64, 1000),
    (2**32 - 16, 2**31 - 8, 2**32 - 64),
    (2**31 - 1, 2**32 - 1, 4096),
    (2**32 - 512, 2**32 - 20, 2**31),
]


def cut(values: Numbers) -> Numbers:
    return values & np.uint64(MOST_32)


def signed(values: Numbers, bits: int) -> npt.NDArray[np.int64]:
    return values.astype(np.uint32).view(np.int32).astype(np.int64) if bits == 32 else values.view(np.int64)


def plain(values: npt.NDArray[np.int64]) -> Numbers:
    return values.astype(np.int64).view(np.uint64)


def shift_left(a: Numbers, by: Numbers, bits: int) -> Numbers:
    return np.where(by < bits, a << np.minimum(by, np.uint64(63)), np.uint64(0))


def shift_right(a: Numbers, by: Numbers, bits: int, is_signed: bool) -> Numbers:
    if is_signed:
        return plain(signed(a, bits) >> np.minimum(by, np.uint64(bits - 1)).astype(np.int64))
    return np.where(by < bits, a >> np.minimum(by, np.uint64(63)), np.uint64(0))


Binary = Callable[[Numbers, Numbers], Numbers]
COMPARE: dict[str, Callable[..., npt.NDArray[np.bool_]]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


def same_width(bits: int) -> dict[str, Binary]:
    """Operations on two numbers of one width."""

    def extreme(choose: Callable[..., npt.NDArray[np.int64]]) -> Binary:
        return lambda a, b: plain(choose(signed(a, bits), signed(b, bits)))

    return {
        f"add.u{bits}": lambda a, b: a + b,
        f"sub.u{bits}": lambda a, b: a - b,
        f"mul.lo.u{bits}": lambda a, b: a * b,
        f"and.b{bits}": lambda a, b: a & b,
        f"or.b{bits}": lambda a, b: a | b,
        f"xor.b{bits}": lambda a, b: a ^ b,
        f"min.u{bits}": np.minimum,
        f"max.u{bits}": np.maximum,
        f"min.s{bits}": extreme(np.minimum),
        f"max.s{bits}": extreme(np.maximum),
    }


SAME: dict[int, dict[str, Binary]] = {32: same_width(32), 64: same_width(64)}
WIDE: dict[str, Binary] = {
    "mul.wide.u32": lambda a, b: a * b,
    "mul.wide.s32": lambda a, b: plain(signed(a, 32) * signed(b, 32)),
}
KINDS = [
    "same", "same", "same", "left", "right", "fused", "wide", "wide_sum", "widen", "widen", "narrow", "keep",
    "compare", "compare", "choose", "guarded", "branch", "loop", "lane_loop", "long_branch",
]  # fmt: skip


@dataclass
class Program:
    """PTX text as it grows, and what each of its registers holds in every thread."""

    block: tuple[int, int, int]
    parameters: Sequence[tuple[int, ...]]
    lines: list[str] = field(default_factory=list)
    pools: dict[int, list[tuple[str, list[Numbers]]]] = field(default_factory=lambda: {1: [], 32: [], 64: []})

    def __post_init__(self) -> None:
        x, y, z = self.block
        self.threads = x * y * z * GRID
        index = np.arange(self.threads, dtype=np.uint64)
        within = index % np.uint64(x * y * z)
        for name, values in (
            ("%ctaid.x", index // np.uint64(x * y * z)),
            ("%tid.z", within // np.uint64(x * y)),
            ("%tid.y", within // np.uint64(x) % np.uint64(y)),
            ("%tid.x", within % np.uint64(x)),
        ):
            self.add(32, f"mov.u32 {{d}}, {name};", [values] * len(self.parameters))
        for i in range(3):
            given = [np.full(self.threads, values[i], np.uint64) for values in self.parameters]
            self.add(32, f"ld.param.u32 {{d}}, [n{i}];", given)
        self.add(32, "mov.u32 {d}, %tid.x;", self.pools[32][3][1])
        self.add(64, "cvt.u64.u32 {d}, {a};", self.pools[32][-1][1], a=self.pools[32][-1][0])

    def add(self, bits: int, text: str, values: list[Any], **names: str) -> None:
        """A step that computes a new register."""
        serial = sum(map(len, self.pools.values()))
        register = f"{ {1: '%p', 32: '%r', 64: '%l'}[bits] }{serial}"
        self.lines.append(text.format(d=register, n=serial, **names))
        self.pools[bits].append((register, [cut(v) for v in values] if bits == 32 else values))

    def take(self, bits: int, pick: tuple[str, int]) -> tuple[str, list[Numbers]]:
        """An operand: one of the registers so far, counted from the last, or a constant."""
        kind, number = pick
        if kind == "constant" and bits > 1:
            value = CONSTANTS[number % len(CONSTANTS)]
            shown = f"-{number % 40}" if number % 5 == 4 else str(value)
            given = (-(number % 40)) % (1 << bits) if number % 5 == 4 else value
            return shown, [np.full(self.threads, given, np.uint64)] * len(self.parameters)
        pool = self.pools[bits]
        return pool[-1 - number % len(pool)]

    def text(self) -> str:
        x, y, z = self.block
        stored = [*self.pools[32], *self.pools[64]]
        rows = []
        for i, (register, _) in enumerate(stored):
            if register.startswith("%r"):
                rows.append(f"cvt.u64.u32 %value, {register};")
                register = "%value"
            rows.append(f"st.global.u64 [%at+{8 * i * self.threads}], {register};")
        return "\n".join([
            ".version 9.0", ".target sm_90", ".address_size 64",
            ".visible .entry k(.param .u64 out, .param .u32 n0, .param .u32 n1, .param .u32 n2) {",
            ".reg .pred %p<99>; .reg .b32 %r<99>; .reg .b64 %l<99>;",
            ".reg .b32 %x, %y, %z, %i, %m; .reg .pred %q; .reg .b64 %at, %value;",
            *self.lines,
            f"mov.u32 %x, %tid.z; mov.u32 %y, %tid.y; mad.lo.u32 %x, %x, {y}, %y;",
            f"mov.u32 %y, %tid.x; mad.lo.u32 %x, %x, {x}, %y;",
            f"mov.u32 %y, %ctaid.x; mad.lo.u32 %x, %y, {x * y * z}, %x;",
            "ld.param.u64 %at, [out]; mul.wide.u32 %value, %x, 8; add.u64 %at, %at, %value;",
            *rows, "ret; }",
        ])  # fmt: skip

    def check(self) -> None:
        """Run with every set of parameters, and compare every register of every thread."""
        stored = [*self.pools[32], *self.pools[64]]
        text = self.text()
        kernel = tw.Kernel.from_ptx(text, "k")
        for i, values in enumerate(self.parameters):
            out = np.zeros((len(stored), self.threads), np.uint64)
            kernel(GRID, self.block, [out, *map(np.uint32, values)], device="emulator")
            for row, (register, want) in zip(out, stored, strict=True):
                np.testing.assert_array_equal(row, want[i], f"{register} with {values}, {self.block}\n{text}")


Pick = tuple[str, int]
Step = tuple[str, int, Pick, Pick, Pick]


def apply(made: Program, step: Step) -> None:
    """Add one step of a drawn program."""
    kind = step[0]
    if kind in ("same", "left", "right", "fused", "compare"):
        arithmetic(made, step)
    elif kind in ("wide", "wide_sum", "widen", "narrow", "keep"):
        change_of_width(made, step)
    elif made.pools[1]:
        decision(made, step)


def arithmetic(made: Program, step: Step) -> None:
    """Operations on numbers of one width."""
    kind, number, *picks = step
    bits, sign = 64 if number % 4 == 3 else 32, "us"[number % 2]
    (a, xs), (b, ys), (c, zs) = (made.take(bits, pick) for pick in picks)
    pairs = list(zip(xs, ys, strict=True))
    if kind == "same":
        name = list(SAME[bits])[number % len(SAME[bits])]
        made.add(bits, f"{name} {{d}}, {{a}}, {{b}};", [SAME[bits][name](x, y) for x, y in pairs], a=a, b=b)
    elif kind == "fused":
        given = [x * y + z for (x, y), z in zip(pairs, zs, strict=True)]
        made.add(bits, f"mad.lo.{sign}{bits} {{d}}, {{a}}, {{b}}, {{c}};", given, a=a, b=b, c=c)
    elif kind == "compare":
        name = list(COMPARE)[number % len(COMPARE)]
        if sign == "s":
            holds = [COMPARE[name](signed(x, bits), signed(y, bits)) for x, y in pairs]
        else:
            holds = [COMPARE[name](x, y) for x, y in pairs]
        made.add(1, f"setp.{name}.{sign}{bits} {{d}}, {{a}}, {{b}};", holds, a=a, b=b)
    else:
        by, ws = made.take(32, picks[1])
        if number % 3:
            amount = AMOUNTS[number % len(AMOUNTS)]
            by, ws = str(amount), [np.full(made.threads, amount, np.uint64)] * len(xs)
        if kind == "left":
            given = [shift_left(x, w, bits) for x, w in zip(xs, ws, strict=True)]
            made.add(bits, f"shl.b{bits} {{d}}, {{a}}, {{b}};", given, a=a, b=by)
        else:
            given = [shift_right(x, w, bits, sign == "s") for x, w in zip(xs, ws, strict=True)]
            made.add(bits, f"shr.{sign}{bits} {{d}}, {{a}}, {{b}};", given, a=a, b=by)


def change_of_width(made: Program, step: Step) -> None:
    """Operations on 32 bits that give 64, and the other way round."""
    kind, number, *picks = step
    sign = "us"[number % 2]
    (a, us), (b, vs) = (made.take(32, pick) for pick in picks[:2])
    c, ws = made.take(64, picks[2])
    long, ls = made.take(64, ("register", picks[0][1]))
    product = [WIDE[f"mul.wide.{sign}32"](u, v) for u, v in zip(us, vs, strict=True)]
    if kind == "wide":
        made.add(64, f"mul.wide.{sign}32 {{d}}, {{a}}, {{b}};", product, a=a, b=b)
    elif kind == "wide_sum":
        given = [x + w for x, w in zip(product, ws, strict=True)]
        made.add(64, f"mad.wide.{sign}32 {{d}}, {{a}}, {{b}}, {{c}};", given, a=a, b=b, c=c)
    elif kind == "widen" and a.startswith("%"):
        given = us if sign == "u" else [plain(signed(u, 32)) for u in us]
        made.add(64, f"cvt.{sign}64.{sign}32 {{d}}, {{a}};", given, a=a)
    elif kind == "narrow":
        made.add(32, f"cvt.u32.{sign}64 {{d}}, {{a}};", ls, a=long)
    elif kind == "keep":  # a narrow number in wide registers
        given = [cut(x) if sign == "u" else plain(signed(cut(x), 32)) for x in ls]
        made.add(64, f"cvt.{sign}32.{sign}32 {{d}}, {{a}};", given, a=long)


def decision(made: Program, step: Step) -> None:
    """Choices, guards, branches and loops by a predicate or a count."""
    kind, number, *picks = step
    bits, sign = 64 if number % 4 == 3 else 32, "us"[number % 2]
    (a, xs), (b, ys), (c, zs) = (made.take(bits, pick) for pick in picks)
    p, holds = made.take(1, picks[2])
    names = {"a": a, "b": b, "c": c, "p": p}
    summed = [np.where(h, x + y, z) for h, x, y, z in zip(holds, xs, ys, zs, strict=True)]
    step_on = f"add.u{bits} {{d}}, {{a}}, {{b}};"
    if kind == "choose":
        given = [np.where(h, x, y) for h, x, y in zip(holds, xs, ys, strict=True)]
        made.add(bits, f"selp.b{bits} {{d}}, {{a}}, {{b}}, {{p}};", given, **names)
    elif kind == "guarded":
        made.add(bits, f"mov.b{bits} {{d}}, {{c}}; @{{p}} {step_on}", summed, **names)
    elif kind == "branch":
        made.add(bits, f"mov.b{bits} {{d}}, {{c}}; @!{{p}} bra L{{n}}; {step_on} L{{n}}:", summed, **names)
    elif kind == "long_branch":
        short, us = made.take(32, picks[0])
        long, ws = made.take(64, picks[2])
        product = [WIDE[f"mul.wide.{sign}32"](u, np.full_like(u, 12)) for u in us]
        given = [np.where(h, x, w) for h, x, w in zip(holds, product, ws, strict=True)]
        text = f"mov.b64 {{d}}, {{c}}; @!{{p}} bra L{{n}}; mul.wide.{sign}32 {{d}}, {{a}}, 12; L{{n}}:"
        made.add(64, text, given, a=short, c=long, p=p)
    else:
        times, limit = [np.full(made.threads, 3, np.uint64)] * len(xs), "mov.u32 %m, 3;"
        if kind == "lane_loop":
            by, ws = made.take(32, picks[2])
            times = [(w & np.uint64(3)) + np.uint64(1) for w in ws]
            limit = f"and.b32 %m, {by}, 3; add.u32 %m, %m, 1;"
        given = [x + y * t for x, y, t in zip(xs, ys, times, strict=True)]
        text = (
            f"mov.b{bits} {{d}}, {{a}}; mov.u32 %i, 0; {limit} L{{n}}: add.u{bits} {{d}}, {{d}}, {{b}};"
            "add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %m; @%q bra L{n};"
        )
        made.add(bits, text, given, **names)


picks = st.tuples(st.sampled_from(["register", "register", "constant"]), st.integers(0, 60))
steps = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 1000), picks, picks, picks), min_size=10, max_size=40
)


@pytest.mark.parametrize("block", BLOCKS)
@examples(2, 8, suppress_health_check=list(HealthCheck))
@given(drawn=steps)
def test_index_arithmetic(block: tuple[int, int, int], drawn: list[Step]) -> None:
    made = Program(block, PARAMETERS)
    for step in drawn:
        apply(made, step)
    made.check()


# -- what the analysis says, without running it --------------------------------------------------------
def assert_shapes_hold(made: Program) -> None:
    """Every value that a shape speaks of is as it says, whatever warp it is in."""
    program = AnalysedProgram(parse(made.text()), "k", made.block)
    analyses = [program.general] if program.fast.guarded else [program.general, program.fast]
    x, y, z = made.block
    thread = np.arange(made.threads) % (x * y * z)
    first = np.arange(made.threads) - thread % 32  # of each thread's warp
    for bits, pool in made.pools.items():
        for register, held in pool:
            for shape in {analysis.shapes.get(register) for analysis in analyses} - {None}:
                assert shape is not None
                away = np.array(shape.lanes).astype(np.uint64)[thread % 32]
                found = np.array(held).astype(np.uint64) - away
                found = cut(found) if bits == 32 else found
                said = f"{register}: {shape}, {made.block}\n{made.text()}"
                assert (found == found[:, first]).all(), said
                if bits == 1:
                    continue  # that it is one truth for all is what is known of it
                low = np.uint64((1 << min(shape.zeros, bits)) - 1)
                assert not (found & low).any(), said
                assert shape.value is None or (found == shape.value % (1 << bits)).all(), said


def random_step(choose: random.Random) -> Step:
    def pick() -> Pick:
        return choose.choice(["register", "register", "constant"]), choose.randrange(60)

    return choose.choice(KINDS), choose.randrange(1000), pick(), pick(), pick()


@settings(max_examples=60, deadline=None)
@given(block=st.sampled_from(BLOCKS), seed=st.integers(0, 2**32))
def test_shapes_say_what_registers_hold(block: tuple[int, int, int], seed: int) -> None:
    made, choose = Program(block, PARAMETERS), random.Random(seed)
    for _ in range(choose.randrange(10, 40)):
        apply(made, random_step(choose))
    assert_shapes_hold(made)


BY_FOUR = tuple(4 * lane for lane in range(32))
LANES = tuple(range(32))
ZERO = (0,) * 32
# Of one step on a thread's number, or on n, of which nothing is known: the lanes, the zeros, the value.
KNOWN: dict[str, tuple[Lanes, int, int | None] | None] = {
    "mov.u32 %d, %tid.x;": (LANES, 5, None),
    "mov.u32 %d, %laneid;": (LANES, 64, 0),
    "shl.b32 %d, %tid.x, 2;": (BY_FOUR, 7, None),
    "mad.lo.u32 %d, %tid.x, 4, %n;": (BY_FOUR, 0, None),
    "mad.lo.u32 %d, %laneid, 4, 1024;": (BY_FOUR, 10, 1024),
    "sub.u32 %d, %n, %laneid;": (tuple(-lane for lane in LANES), 0, None),
    "shr.u32 %d, %tid.x, 5;": (ZERO, 0, None),
    "shr.u32 %d, %tid.x, 3;": (tuple(lane >> 3 for lane in LANES), 2, None),
    "shr.u32 %d, %tid.x, 6;": None,  # a warp's number would have to be even
    "and.b32 %d, %tid.x, 31;": (LANES, 64, 0),
    "and.b32 %d, %tid.x, 3;": (tuple(lane & 3 for lane in LANES), 64, 0),
    "and.b32 %d, %tid.x, 224;": (ZERO, 5, None),
    "or.b32 %d, %m, %laneid;": (LANES, 5, None),
    "xor.b32 %d, %tid.x, 32;": (LANES, 5, None),
    "xor.b32 %d, %tid.x, 16;": None,
    "or.b32 %d, %n, %laneid;": None,
    "or.b32 %d, %m, %n;": (ZERO, 0, None),
    "and.b32 %d, %m, %n;": (ZERO, 5, None),
    "shr.u32 %d, %f, 3;": None,  # less than a multiple of 32
    "setp.lt.u32 %p, %tid.x, 48;": None,
    "or.b32 %d, %m, %e;": None,  # twice a lane's number reaches a bit that the rest may have
    "and.b32 %d, %s, 32;": None,  # what lanes add is not apart from what the rest may hold
    "or.b32 %d, %s, 64;": None,
    "mul.hi.u32 %d, %laneid, 4;": None,
    "mad.hi.u32 %d, %laneid, 4, 1024;": None,
    "mul.lo.u32 %d, %laneid, 134217728;": None,  # the last lane's is beyond 2**31
    "shr.u32 %d, %c, 3;": (tuple(lane >> 3 for lane in LANES), 2, 12),
    "shr.u32 %d, %h, 3;": None,  # 2**31 and a lane's number: less than 0, or not
    "shr.s32 %d, %h, 3;": None,
    "shr.u32 %d, %laneid, 3;": (tuple(lane >> 3 for lane in LANES), 64, 0),
    "shr.u32 %d, 96, 3;": (ZERO, 0, None),
    "and.b32 %d, %c, -8;": (tuple(lane & -8 for lane in LANES), 5, 96),
    "sub.u32 %d, %c, 32;": (LANES, 6, 64),
    "mul.lo.u32 %d, %laneid, -134217728;": None,
    "mul.lo.u32 %d, %s, 67108864;": None,  # by 2**31 exactly
    "mul.lo.u32 %d, %s, -67108864;": None,
    "mul.lo.u32 %d, %s, -67108863;": ((0, 32 - 2**31) * 16, 5, None),
    "mul.lo.u32 %d, %laneid, 67108864;": (tuple(lane << 26 for lane in LANES), 64, 0),
    "setp.lt.u32 %p, %tid.x, 64;": (ZERO, 0, None),  # a whole number of warps
    "setp.ge.s32 %p, %tid.x, 96;": (ZERO, 0, None),
    "setp.le.u32 %p, %tid.x, 63;": (ZERO, 0, None),
    "setp.lt.u32 %p, %tid.x, 63;": None,
    "setp.le.u32 %p, %tid.x, 64;": None,
    "setp.gt.s32 %p, %tid.x, 63;": (ZERO, 0, None),  # as .ge of one more
    "setp.gt.s32 %p, %tid.x, 64;": None,
    "setp.ls.u32 %p, %tid.x, 63;": (ZERO, 0, None),
    "setp.ls.u32 %p, %tid.x, 64;": None,
    "setp.eq.u32 %p, %tid.x, 64;": None,
    "setp.lt.u32 %p, %tid.x, 2147483648;": None,
    "setp.lt.u32 %p, %laneid, 32;": (ZERO, 0, None),
    "setp.lt.and.u32 %p, %tid.x, 64, %q;": None,
    "setp.lt.u32 %p, %tid.x, %n;": None,
    "selp.b32 %d, 4, 8, %q;": (ZERO, 0, None),
    "selp.b32 %d, %laneid, %tid.x, %q;": (LANES, 5, None),
    "shfl.sync.idx.b32 %d, %tid.x, 3, 31, -1;": (ZERO, 0, None),
    "cvt.u64.u32 %l, %tid.x;": (LANES, 5, None),
    "cvt.u32.u64 %d, %k;": (LANES, 32, None),
    "cvt.u32.u32 %l, %tid.x;": None,  # it is the sum that is made wider
    "mul.wide.u32 %l, %tid.x, 4;": (BY_FOUR, 7, None),
    "mul.wide.s32 %l, %laneid, -4;": (tuple(-4 * lane for lane in LANES), 64, 0),
}


@pytest.mark.parametrize("text", KNOWN)
def test_what_is_known_of_a_step(text: str) -> None:
    """As much as can be known: what is not found out costs only time."""
    program = f"""
.version 9.0 .target sm_90 .address_size 64 .visible .entry k(.param .u32 given) {{
.reg .pred %p, %q; .reg .b32 %c, %d, %e, %f, %h, %n, %m, %o, %s; .reg .b64 %k, %l; ld.param.u32 %n, [given]; shl.b32 %m, %n, 5; shl.b32 %e, %laneid, 1; sub.u32 %f, %m, %laneid;
cvt.u64.u32 %k, %laneid; add.u32 %h, %laneid, 2147483648; add.u32 %c, %laneid, 96; and.b32 %o, %laneid, 1; mad.lo.u32 %s, %o, 32, %m; setp.eq.u32 %q, %n, 7; {text} ret; }}"""
    register = next(name for name in ("%d", "%p", "%l") if f" {name}," in text.split(";")[0])
    shape = AnalysedProgram(parse(program), "k", (256, 1, 1)).general.shapes[register]
    assert (None if shape is None else (shape.lanes, shape.zeros, shape.value)) == KNOWN[text]


@pytest.mark.parametrize(
    ("block", "known"),
    [
        ((32, 1, 1), (LANES, 64, 0)), ((40, 1, 1), (LANES, 5, None)), ((64, 1, 1), (LANES, 5, None)),
        ((96, 1, 1), (LANES, 5, None)), ((16, 4, 1), (LANES[:16] * 2, 64, 0)), ((24, 4, 1), None),
    ],
)  # fmt: skip
def test_threads_of_a_warp_are_known_as_far_as_all_warps_are_alike(
    block: tuple[int, int, int], known: tuple[Lanes, int, int | None] | None
) -> None:
    _, shape = thread_lanes(block, -(-block[0] * block[1] // 32))["%tid.x"]
    assert (None if shape is None else (shape.lanes, shape.zeros, shape.value)) == known


@pytest.mark.parametrize(
    ("sign", "start", "known"), [("s", 2**31 - 32, True), ("s", 2**31 - 31, False), ("u", 2**31 - 31, False)]
)
def test_lanes_that_may_wrap_around_are_not_known_any_wider(sign: str, start: int, known: bool) -> None:
    for step in (f"cvt.{sign}64.{sign}32 %l, %d;", f"mul.wide.{sign}32 %l, %d, 1;"):
        program = f"""
.version 9.0 .target sm_90 .address_size 64 .visible .entry k() {{
.reg .b32 %d; .reg .b64 %l; add.u32 %d, %laneid, {start}; {step} ret; }}"""
        made = AnalysedProgram(parse(program), "k", (32, 1, 1))
        assert (made.general.shapes["%l"] is not None) == known == (not made.fast.guarded)


def test_lanes_too_far_apart_are_not_made_wider_on_trust() -> None:
    program = """
.version 9.0 .target sm_90 .address_size 64 .visible .entry k() {
.reg .b32 %a, %b, %c, %d; .reg .b64 %l; mul.lo.u32 %a, %laneid, 67108864; and.b32 %b, %laneid, 1;
shl.b32 %c, %b, 30; sub.u32 %d, %c, %a; cvt.u64.u32 %l, %d; ret; }"""
    made = AnalysedProgram(parse(program), "k", (32, 1, 1))
    lanes = made.fast.shapes["%d"]
    assert lanes is not None and 2**31 <= max(lanes.lanes) - min(lanes.lanes) < 2**32
    assert made.fast.shapes["%l"] is None and not made.fast.guarded


@pytest.mark.parametrize("count", range(1, 6))
def test_what_a_register_holds_at_first_is_not_taken_for_what_comes_down_to_it_later(count: int) -> None:
    """Registers hand on a number turn by turn, the one behind before the one in front: each begins as the same number,
    and the last one, by which the lanes lie apart, hears as the last that another comes."""
    down = " ".join(f"mov.u32 %d{i}, %d{i - 1};" for i in range(count - 1, 0, -1))
    program = f"""
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {{
.reg .pred %p; .reg .b32 %t, %i, %d<{count}>, %x, %s; .reg .b64 %out, %l;
mov.u32 %t, %tid.x; mov.u32 %s, 0; mov.u32 %i, 0; {" ".join(f"mov.u32 %d{i}, 4;" for i in range(count))}
AGAIN: mul.lo.u32 %x, %t, %d{count - 1}; mad.lo.u32 %s, %s, 3, %x;
{down} add.u32 %d0, %d0, 4; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 7; @%p bra AGAIN;
ld.param.u64 %out, [out]; mul.wide.u32 %l, %t, 4; add.u64 %out, %out, %l; st.global.u32 [%out], %s; ret; }}"""
    out, factor = np.zeros(32, np.uint32), 0
    tw.Kernel.from_ptx(program, "k")(1, 32, [out], device="emulator")
    for turn in range(7):
        factor = 3 * factor + 4 + 4 * max(turn - count + 1, 0)
    np.testing.assert_array_equal(out, np.arange(32) * factor)


# -- the builds that run -----------------------------------------------------------------------------
ALONG = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n) {
.reg .pred %p; .reg .b32 %r<9>; .reg .b64 %l<9>;
mov.u32 %r1, %tid.x; ld.param.u32 %r2, [n]; ld.param.u64 %l1, [out];
mul.wide.u32 %l2, %r1, 8; add.u64 %l1, %l1, %l2;
WIDENING
st.global.u64 [%l1], %l4; ret; }
"""
STARTS = [7, 20, 2**31 - 5, 2**31 + 20, 2**32 - 16]
# What is widened, for which starts some lane of a warp wraps around, and what a thread's number is.
AROUND: dict[str, tuple[set[int], Callable[[int, int], int]]] = {
    "add.u32 %r3, %r2, %r1; mul.wide.u32 %l4, %r3, 12;": ({2**32 - 16}, lambda n, t: (n + t) % 2**32 * 12),
    "add.u32 %r3, %r2, %r1; cvt.u64.u32 %l4, %r3;": ({2**32 - 16}, lambda n, t: (n + t) % 2**32),
    "sub.u32 %r3, %r2, %r1; cvt.u64.u32 %l4, %r3;": ({7, 20}, lambda n, t: (n - t) % 2**32),
    "add.u32 %r3, %r2, %r1; cvt.s64.s32 %l4, %r3;": (
        {2**31 - 5},
        lambda n, t: (n + t + 2**31) % 2**32 - 2**31,
    ),
    "sub.u32 %r3, %r2, %r1; cvt.s64.s32 %l4, %r3;": (
        {2**31 + 20},
        lambda n, t: (n - t + 2**31) % 2**32 - 2**31,
    ),
    "mad.lo.u32 %r3, %r1, 4, %r2; mad.wide.s32 %l4, %r3, 3, %l2;": (
        {2**31 - 5},
        lambda n, t: ((n + 4 * t + 2**31) % 2**32 - 2**31) * 3 + 8 * t,
    ),
    "setp.lt.u32 %p, %r1, 9; mov.b64 %l4, 5; add.u32 %r3, %r2, %r1; @%p mul.wide.u32 %l4, %r3, 2;": (
        {2**32 - 16},
        lambda n, t: (n + t) % 2**32 * 2 if t < 9 else 5,
    ),
}


@pytest.mark.parametrize("text", AROUND)
@pytest.mark.parametrize("n", STARTS)
def test_warps_leave_the_fast_build_where_an_index_wraps_around(text: str, n: int) -> None:
    threads = 64
    build = build_kernel(ALONG.replace("WIDENING", text), "k", (threads, 1, 1), host_cpu(), None)
    out = np.zeros(threads, np.uint64)
    packed = [out.ctypes.data.to_bytes(8, "little"), n.to_bytes(4, "little")]
    Runner(build, Launch((1, 1, 1), build.block), packed, [Range(out.ctypes.data, out.nbytes, "out")], [])()
    leaves, model = AROUND[text]
    assert out.tolist() == [model(n, t) % 2**64 for t in range(threads)]
    assert (build.general is not None) == (n in leaves)


# Where the lanes of a warp are when it leaves: together, together again, met at a barrier before, apart, in a loop that some have left.
LEFT = {
    "together": "WIDE",
    "again": "@%r bra A; add.u32 %v, %v, 5; bra B; A: add.u32 %v, %v, 3; B: WIDE",
    "met": "@%r bra A; barrier.sync 2; add.u32 %v, %v, 5; bra B; A: barrier.sync 2; add.u32 %v, %v, 3; B: WIDE",
    "apart": "@%r bra A; WIDE add.u32 %v, %v, 5; bra B; A: add.u32 %v, %v, 3; WIDE B:",
    "one side": "@!%r bra B; WIDE B:",
    "loop": "mov.u32 %k, 0; A: WIDE add.u32 %v, %v, 5; add.u32 %k, %k, 1; setp.lt.u32 %z, %k, %m; @%z bra A;",
    "within": "@%r bra C; mov.u32 %k, 0; A: add.u32 %v, %v, 5; add.u32 %k, %k, 1; setp.lt.u32 %z, %k, %m; @%z bra A;"
    "@%q bra C; WIDE C:",
}


def left_with(way: str, t: int) -> tuple[int, bool]:
    """What a thread adds to %v, and whether it widens the index."""
    low, turns = t % 32 < 13, t % 4 + 1
    return {
        "together": (0, True),
        "again": (3 if low else 5, True),
        "met": (3 if low else 5, True),
        "apart": (3 if low else 5, True),
        "one side": (0, low),
        "loop": (5 * turns, True),
        "within": (0 if low else 5 * turns, not low and t % 2 == 0),
    }[way]


@pytest.mark.parametrize("meeting", ["", "barrier.sync 1;"])
@pytest.mark.parametrize("way", LEFT)
def test_a_warp_that_leaves_takes_all_that_it_has_along(way: str, meeting: str) -> None:
    """Numbers that are the same in all lanes, a step apart or anything, predicates; and where each lane is.

    One was widened before, and did not wrap around. Lanes may come to a barrier one by one.
    """
    text = f"""
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n, .param .u32 other) {{
.reg .b32 %n, %t, %i, %j, %u, %c, %v, %k, %m, %d, %e; .reg .b64 %o, %w, %y; .reg .pred %p, %q, %r, %z;
ld.param.u32 %j, [other]; mov.u32 %t, %tid.x; add.u32 %i, %j, %t; mul.wide.u32 %y, %i, 8;
mov.u32 %t, %tid.x; ld.param.u32 %n, [n]; ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 16, %o;
mad.lo.u32 %u, %t, 3, %n; add.u32 %c, %n, 77; mul.lo.u32 %v, %t, %t; and.b32 %k, %t, 1; setp.eq.u32 %q, %k, 1;
setp.ne.u32 %p, %n, 5; mov.u32 %k, %laneid; setp.lt.u32 %r, %k, 13; and.b32 %m, %t, 3; add.u32 %m, %m, 1; mov.u64 %w, 9;
{LEFT[way].replace("WIDE", "add.u32 %i, %n, %t; mul.wide.u32 %w, %i, 4;")}
{meeting} mov.b64 {{%d, %e}}, %w; add.u32 %c, %c, %u; cvt.u32.u64 %k, %y; add.u32 %c, %c, %k; @%q add.u32 %v, %v, 1000; @%p add.u32 %v, %v, 2000; @%r add.u32 %v, %v, 4000;
st.global.v4.u32 [%o], {{%d, %e, %c, %v}};
ret; }}
"""
    kernel = tw.Kernel.from_ptx(text, "k")
    for n in (5, 2**32 - 5, 2**32 - 20, 2**32 - 50):
        out = np.zeros((64, 4), np.uint32)
        kernel(1, 64, [out, n, 100], device="emulator", timeout=20)
        for t in range(64):
            more, widens = left_with(way, t)
            wide = (n + t) % 2**32 * 4 if widens else 9
            v = t * t + more + 1000 * (t % 2) + 2000 * (n != 5) + 4000 * (t % 32 < 13)
            assert out[t].tolist() == [wide % 2**32, wide >> 32, (2 * n + 877 + 11 * t) % 2**32, v], (n, t)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_accesses_side_by_side_end_where_shared_memory_does(size: int) -> None:
    """They are checked together: the last byte of the farthest decides, wherever the first one is."""
    text = f"""
.version 9.0
.target sm_90
.address_size 64
.shared .align 8 .b8 room[64];
.visible .entry k(.param .u32 at) {{
.reg .b32 %r<2>; .reg .b64 %l<4>;
ld.param.u32 %r1, [at]; mov.u32 %r0, room; add.u32 %r1, %r1, %r0;
ld.shared.u{8 * size} %l1, [%r1]; ld.shared.u{8 * size} %l2, [%r1+{3 * size}]; st.shared.u{8 * size} [%r1+{size}], %l1;
ret; }}
"""
    kernel, beyond = tw.Kernel.from_ptx(text, "k"), 64 - 3 * size
    kernel(1, 32, [beyond - size], device="emulator")
    kernel(1, 32, [0], device="emulator")
    with pytest.raises(KernelFault, match=f"out-of-bounds read of {size} bytes? at shared address 0x40"):
        kernel(1, 32, [beyond], device="emulator")
    with pytest.raises(KernelFault, match=f"out-of-bounds read of {size} bytes? at shared address"):
        kernel(1, 32, [2**32 - size], device="emulator")


def test_known_numbers_are_known_modulo_their_width() -> None:
    """Cases that once were wrong: a lane's amount taken for a constant, and bits beyond a register's."""
    made = Program((32, 1, 1), [(0, 0, 0)])
    lane, (x,) = made.pools[32][-1]
    near = np.uint64(2**32 - 32)
    made.add(32, "shl.b32 {d}, 5, {a};", [shift_left(np.full_like(x, 5), x, 32)], a=lane)
    made.add(
        32, "shr.u32 {d}, 1000000, {a};", [shift_right(np.full_like(x, 1_000_000), x, 32, False)], a=lane
    )
    made.add(32, "shl.b32 {d}, {a}, 30;", [x << np.uint64(30)], a=lane)
    made.add(32, "shr.u32 {d}, {a}, 30;", [x & np.uint64(3)], a=made.pools[32][-1][0])
    made.add(32, "mov.u32 {d}, -32;", [np.full_like(x, near)])
    made.add(32, "add.u32 {d}, {a}, {b};", [x + near], a=lane, b=made.pools[32][-1][0])
    high = made.pools[32][-1][0]
    made.add(32, "add.u32 {d}, {a}, 8;", [x + near + np.uint64(8)], a=high)
    around = made.pools[32][-1][0]
    made.add(64, "mul.wide.u32 {d}, {a}, 4294967292;", [x * np.uint64(2**32 - 4)], a=lane)
    made.add(64, "mul.wide.s32 {d}, {a}, 4294967292;", [plain(x.view(np.int64) * -4)], a=lane)
    made.add(64, "cvt.u32.u32 {d}, {a};", [cut(x + near + np.uint64(8))], a=around)
    made.add(64, "mul.wide.u32 {d}, {a}, 3;", [cut(x + near + np.uint64(8)) * np.uint64(3)], a=around)
    made.add(64, "cvt.u64.u32 {d}, {a};", [x], a=lane)
    long = made.pools[64][-1][0]
    made.add(64, "cvt.u64.u32 {d}, {a};", [x + near], a=high)
    made.add(64, "and.b64 {d}, {a}, -32;", [np.full_like(x, near)], a=made.pools[64][-1][0])
    made.add(64, "mul.lo.u64 {d}, {a}, {b};", [x * near], a=long, b=made.pools[64][-1][0])
    made.check()
