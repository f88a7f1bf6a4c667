"""Moves, packing, comparisons, choices and conversions of integers, by what the PTX ISA says of them."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest

from tests.harness.lanes import run
from tests.harness.many import refused
from tests.harness.rows import WAYS, Row, check, clamped, inputs, number, signed

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
JOIN: dict[str, Callable[[int, int], int]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def types(bits: int) -> dict[str, list[str]]:
    """The comparisons that each type of a width has."""
    names = list(COMPARE)
    return {f"b{bits}": names[:2], f"s{bits}": names[:6], f"u{bits}": names}


def comparisons(bits: int) -> list[Row]:
    rows = []
    for type_, names in types(bits).items():
        n = number(type_ if type_[0] == "s" else f"u{bits}")
        for name in names:
            compare = COMPARE[name]
            rows += [
                Row(
                    f"setp.{name}.{type_} {{p}}, {{a}}, {{b}}; selp.u32 {{d}}, 1, 0, {{p}};",
                    32,
                    lambda a, b, c, n=n, t=compare: t(n(a), n(b)),
                ),
                Row(
                    f"set.{name}.s32.{type_} {{d}}, {{a}}, {{b}};",
                    32,
                    lambda a, b, c, n=n, t=compare: -t(n(a), n(b)),
                ),
            ]
    return rows


def joined_comparisons(bits: int) -> list[Row]:
    """With a predicate or its opposite, and both results of a comparison."""
    rows = []
    flag = f"setp.gt.s{bits} {{q}}, {{c}}, 3;"
    one = 0x3F80_0000
    for word, join in JOIN.items():
        for mark in ("", "!"):

            def p(a: int, b: int, c: int, join: Callable[..., int] = join, turn: bool = mark == "!") -> int:
                return join(signed(a, bits) < signed(b, bits), (signed(c, bits) > 3) != turn)

            def q(a: int, b: int, c: int, join: Callable[..., int] = join, turn: bool = mark == "!") -> int:
                return join(signed(a, bits) >= signed(b, bits), (signed(c, bits) > 3) != turn)

            compare, choose = f"{flag} setp.lt.{word}.s{bits}", "selp.u32 {d}, 1, 0, {p};"
            rows += [
                Row(f"{compare} {{p}}, {{a}}, {{b}}, {mark}{{q}}; {choose}", 32, p),
                Row(f"{compare} {{p}}|_, {{a}}, {{b}}, {mark}{{q}}; {choose}", 32, p),
                Row(f"{compare} _|{{p}}, {{a}}, {{b}}, {mark}{{q}}; {choose}", 32, q),
                Row(f"{compare} {{q}}|{{p}}, {{a}}, {{b}}, {mark}{{q}}; {choose}", 32, q),
                Row(
                    f"{flag} set.lt.{word}.f32.s{bits} {{d}}, {{a}}, {{b}}, {mark}{{q}};",
                    32,
                    lambda a, b, c, p=p: one * p(a, b, c),
                ),
            ]
    rows.append(
        Row(
            f"setp.lt.s{bits}.xor {{p}}, {{a}}, 5, {{q}}; selp.u32 {{d}}, 9, 9, {{p}};", 32, lambda a, b, c: 9
        )
    )
    return rows


def choices(bits: int) -> list[Row]:
    flag = f"setp.lt.u{bits} {{p}}, {{a}}, {{c}};"
    rows = [
        Row(
            f"{flag} selp.{kind}{bits} {{d}}, {{a}}, {{b}}, {mark}{{p}};",
            bits,
            lambda a, b, c, m=mark: a if (a < c) != bool(m) else b,
        )
        for kind in "bus"
        for mark in ("", "!")
    ]
    rows += [
        Row(f"{flag} mov.pred {{q}}, {{p}}; selp.b{bits} {{d}}, {{b}}, 7, {{q}};", bits, lambda a, b, c: b if a < c else 7),
        Row(f"{flag} not.pred {{q}}, {{p}}; selp.b{bits} {{d}}, {{b}}, 7, {{q}};", bits, lambda a, b, c: 7 if a < c else b),
        Row(f"mov.pred {{q}}, 1; selp.b{bits} {{d}}, {{b}}, 7, {{q}};", bits, lambda a, b, c: b),
        Row(f"mov.b{bits} {{d}}, {{b}};", bits, lambda a, b, c: b),
        Row(f"mov.s{bits} {{d}}, -3;", bits, lambda a, b, c: -3),
    ]  # fmt: skip
    for word, join in JOIN.items():
        text = f"{flag} setp.ne.b{bits} {{q}}, {{b}}, {{c}}; {word}.pred {{p}}, {{p}}, !{{q}}; selp.u32 {{d}}, 1, 0, {{p}};"
        rows.append(Row(text, 32, lambda a, b, c, join=join: join(a < c, b == c)))
    return rows


def by_sign(bits: int) -> list[Row]:
    """slct: its third source has 32 bits."""
    rows = [
        Row(f"slct.{kind}{bits}.s32 {{d}}, {{a}}, {{b}}, {{c}};", bits, lambda a, b, c: b if c >> 31 else a)
        for kind in "bus"
    ]
    least, infinity = 0x0080_0000, 0x7F80_0000

    def positive(c: int, flush: bool) -> bool:
        size = c & 0x7FFF_FFFF
        return size <= infinity and (not c >> 31 or size == 0 or (flush and size < least))

    for flush in (False, True):
        text = f"slct.{'ftz.' if flush else ''}b{bits}.f32 {{d}}, {{a}}, {{b}}, {{c}};"
        rows.append(Row(text, bits, lambda a, b, c, f=flush: a if positive(c, f) else b))
    return rows


@pytest.mark.few(3)
@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize(("way", "count"), WAYS)
def test_comparisons_and_choices(bits: int, way: str, count: int) -> None:
    given = inputs([bits] * 3, count)
    check(comparisons(bits) + joined_comparisons(bits) + choices(bits), given, way)


@pytest.mark.parametrize(("way", "count"), WAYS)
def test_choices_by_sign(way: str, count: int) -> None:
    for bits in (16, 32, 64):
        given = inputs([bits, bits, 32], count)
        given[2][:8] = [
            0x8000_0000,
            0x8000_0001,
            0x807F_FFFF,
            0x8080_0000,
            0x7F80_0000,
            0xFF80_0000,
            0x7FC0_0000,
            1,
        ]
        check(by_sign(bits), given, way)


# -- packing ---------------------------------------------------------------------------------------
def packed(*numbers: int, bits: int) -> int:
    return sum(x << bits * i for i, x in enumerate(numbers))


PACKING = {
    8: [
        Row("mov.b16 {d}, {{{a}, {b}}};", 16, lambda a, b, c, x: packed(a, b, bits=8)),
        Row("mov.b32 {d}, {{{a}, {b}, {c}, {x}}};", 32, lambda a, b, c, x: packed(a, b, c, x, bits=8)),
    ],
    16: [
        Row("mov.b32 {d}, {{{a}, {b}}};", 32, lambda a, b, c, x: packed(a, b, bits=16)),
        Row("mov.b64 {d}, {{{a}, {b}, {c}, {x}}};", 64, lambda a, b, c, x: packed(a, b, c, x, bits=16)),
        Row("mov.b16 {{{d}, _}}, {b};", 8, lambda a, b, c, x: b & 255),
        Row("mov.b16 {{_, {d}}}, {b};", 8, lambda a, b, c, x: b >> 8),
    ],
    32: [
        Row("mov.b64 {d}, {{{a}, {b}}};", 64, lambda a, b, c, x: packed(a, b, bits=32)),
        Row("mov.b64 {d}, {{-1, {b}}};", 64, lambda a, b, c, x: packed(2**32 - 1, b, bits=32)),
        Row("mov.b32 {{_, {d}}}, {b};", 16, lambda a, b, c, x: b >> 16),
        Row("mov.b32 {{_, _, {d}, _}}, {b};", 8, lambda a, b, c, x: b >> 16 & 255),
        Row("mov.b32 {d}, 0f3F800000;", 32, lambda a, b, c, x: 0x3F80_0000),
    ],
    64: [
        Row("mov.b64 {{{d}, _}}, {b};", 32, lambda a, b, c, x: b),
        Row("mov.b64 {{_, {d}}}, {b};", 32, lambda a, b, c, x: b >> 32),
        Row("mov.b64 {{_, {d}, _, _}}, {b};", 16, lambda a, b, c, x: b >> 16),
        Row("mov.b64 {d}, 0d3FF0000000000000;", 64, lambda a, b, c, x: 0x3FF0 << 48),
    ],
}
QUADS = [
    Row(
        "{{ .reg .b128 %w, %v; mov.b128 %w, {{{a}, {b}}}; mov.b128 %v, %w; mov.b128 {{_, {d}}}, %v; }}",
        64,
        lambda a, b, c, x: b,
    ),
    Row(
        "{{ .reg .b128 %w; mov.b128 %w, {{{c}, {x}}}; mov.b128 {{_, _, {d}, _}}, %w; }}",
        32,
        lambda a, b, c, x: x,
    ),
]


@pytest.mark.parametrize(("way", "count"), WAYS)
@pytest.mark.parametrize("bits", PACKING)
def test_packing(bits: int, way: str, count: int) -> None:
    quads = QUADS if bits == 64 and way != "guarded" else []
    check(PACKING[bits] + quads, inputs([bits] * 4, count), way)


# -- conversions -----------------------------------------------------------------------------------
def conversions(bits: int) -> list[Row]:
    """From and to registers of so many bits, which may be wider than the types."""
    names = [f"{kind}{size}" for kind in "us" for size in (8, 16, 32, 64) if size <= bits]
    rows = []
    for to in names:
        for of in names:

            def cut(a: int, to: str = to, of: str = of) -> int:
                return number(to)(number(of)(a))

            def clamp(a: int, to: str = to, of: str = of) -> int:
                return clamped(number(of)(a), to)

            rows += [
                Row(f"cvt.{to}.{of} {{d}}, {{a}};", bits, cut),
                Row(f"cvt.sat.{to}.{of} {{d}}, {{a}};", bits, clamp),
            ]
            if to[1:] != str(bits):
                rows.append(Row(f"cvt.{to}.{of}.sat {{d}}, {{a}};", int(to[1:]), clamp))
    return rows


@pytest.mark.few(3)
@pytest.mark.parametrize(("way", "count"), WAYS)
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_conversions_of_integers(bits: int, way: str, count: int) -> None:
    check(conversions(bits), inputs([bits], count), way)


def test_a_nan_in_the_text_keeps_its_bits() -> None:
    """A signalling one too."""
    numbers = (0x7F80_0001, 0x7FC1_2345, 0xFFBF_FFFF)
    found = run([f"mov.f32 {{d}}, 0f{given:08X};" for given in numbers], [])
    assert [int(array[0]) for array in found] == [*numbers]


# -- refusals --------------------------------------------------------------------------------------
REFUSED = [
    "mov.b32 %r1, %l2", "mov.b64 %r1, %l2", "mov.u64 %l1, {%r1, %r2}", "mov.b64 %l1, {%h1, %h2}",
    "mov.b8 %c1, %c2", "mov.b16 %h1, {%c1, %c2, %c3, %c1}", "mov.b64 %l1, {%r1, _}", "mov.b32 %r1, {%r2}", "mov.b32 {%r1}, %r2", "mov.b64 {%r1, %r2, %r3}, %l1", "mov.u32 5, %r1",
    "mov.u32 %tid.x, %r1", "mov.b64 {%h1, %h2}, %l1", "setp.lt.b32 %p, %r1, %r2",
    "setp.lo.s32 %p, %r1, %r2", "setp.lt.and.u32 %p, %r1, %r2", "setp.lt.u32 %p, %r1, %r2, %q",
    "setp.ltu.u32 %p, %r1, %r2", "setp.lt.ftz.u32 %p, %r1, %r2", "setp.lt.ftz.bf16 %p, %h1, %h2", "setp.lt.ftz.f64 %p, %l1, %l2", "setp.eq.f16x2 %p, %r1, %r2",
    "setp.lt.rn.f32 %p, %r1, %r2",
    "setp.lt.and.ftz.ftz.f32 %p, %r1, %r2, %q", "set.lt.sat.u32.f32 %r1, %r1, %r2", "setp.u32 %p, %r1, %r2",
    "setp.lt.u8 %p, %c1, %c2", "set.lt.u64.u32 %l1, %r1, %r2", "set.lt.u32 %r1, %r2, %r3",
    "set.lt.b32.u32 %r1, %r2, %r3", "selp.pred %p, %p, %q, %q", "selp.sat.u32 %r1, %r2, %r3, %p",
    "slct.u32.u32 %r1, %r2, %r3, %r1", "slct.ftz.u32.s32 %r1, %r2, %r3, %r1", "cvt.rni.s32.u32 %r1, %r2",
    "cvt.b32.u32 %r1, %r2", "cvt.u32 %r1, %r2",
    "mov.b32 %r1, 1.5", "mov.u32 %r1, 0f3FC00000", "selp.b32 %r1, 1.5, 0, %p",
]  # fmt: skip


@pytest.mark.parametrize("instruction", REFUSED)
def test_forms_that_ptx_does_not_have(instruction: str) -> None:
    opcode = instruction.split(".")[0]
    assert refused(instruction + ";").startswith(f"PTX line 7: {opcode}")
