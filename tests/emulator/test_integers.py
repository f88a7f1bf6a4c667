"""Integer instructions against what the PTX ISA says of each, written down with Python's integers."""

from __future__ import annotations

import pytest

from tests.emulator.many import refused
from tests.emulator.rows import WAYS, Model, Row, check, clamped, elements, inputs, joined, number, signed


def quotient(a: int, b: int) -> int:
    """Towards zero; by zero, all bits set."""
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return -1 if b == 0 else a - b * quotient(a, b)


# -- one table for each width ----------------------------------------------------------------------
def words(type_: str) -> list[Row]:
    """What every integer type has."""
    bits, n = int(type_[1:]), number(type_)
    found: list[tuple[str, Model]] = [
        ("add.T {d}, {a}, {b}", lambda a, b, c: a + b),
        ("sub.T {d}, {a}, {b}", lambda a, b, c: a - b),
        ("mul.lo.T {d}, {a}, {b}", lambda a, b, c: a * b),
        ("mul.hi.T {d}, {a}, {b}", lambda a, b, c: n(a) * n(b) >> bits),
        ("mad.lo.T {d}, {a}, {b}, {c}", lambda a, b, c: a * b + c),
        ("mad.hi.T {d}, {a}, {b}, {c}", lambda a, b, c: (n(a) * n(b) >> bits) + c),
        ("sad.T {d}, {a}, {b}, {c}", lambda a, b, c: abs(n(a) - n(b)) + c),
        ("div.T {d}, {a}, {b}", lambda a, b, c: quotient(n(a), n(b))),
        ("rem.T {d}, {a}, {b}", lambda a, b, c: remainder(n(a), n(b))),
        ("min.T {d}, {a}, {b}", lambda a, b, c: min(n(a), n(b))),
        ("max.T {d}, {a}, {b}", lambda a, b, c: max(n(a), n(b))),
        ("add.T {d}, {a}, -7", lambda a, b, c: a - 7),
        ("div.T {d}, {a}, 10", lambda a, b, c: quotient(n(a), 10)),
    ]
    if type_[0] == "s":
        found += [
            ("abs.T {d}, {a}", lambda a, b, c: abs(n(a))),
            ("neg.T {d}, {a}", lambda a, b, c: -n(a)),
        ]
    rows = [Row(text.replace(".T", f".{type_}") + ";", bits, model) for text, model in found]
    if bits < 64:
        rows.append(Row(f"mul.wide.{type_} {{d}}, {{a}}, {{b}};", 2 * bits, lambda a, b, c: n(a) * n(b)))
    if bits > 16:
        rows += carries(type_)
    return rows


def carries(type_: str) -> list[Row]:
    """Chains over two registers {b, a}, with c as the other number's two parts."""
    bits, n = int(type_[1:]), number(type_)
    return [
        Row(
            f"add.cc.{type_} {{d}}, {{a}}, {{c}}; addc.{type_} {{d}}, {{b}}, {{c}};",
            bits,
            lambda a, b, c: (a + c >> bits) + b + c,
        ),
        Row(
            f"sub.cc.{type_} {{d}}, {{a}}, {{c}}; subc.cc.{type_} {{d}}, {{b}}, {{c}};"
            f"subc.{type_} {{d}}, 0, 0;",
            bits,
            lambda a, b, c: ((b << bits | a) - (c << bits | c)) >> 2 * bits,
        ),
        Row(
            f"add.cc.{type_} {{d}}, {{a}}, {{c}}; addc.cc.{type_} {{d}}, {{b}}, {{c}};"
            f"addc.{type_} {{d}}, {{a}}, 0;",
            bits,
            lambda a, b, c: ((b << bits | a) + (c << bits | c) >> 2 * bits) + a,
        ),
        Row(
            f"mad.lo.cc.{type_} {{d}}, {{a}}, {{b}}, {{c}}; madc.hi.{type_} {{d}}, {{a}}, {{b}}, {{c}};",
            bits,
            lambda a, b, c: (n(a) * n(b) >> bits) + c + ((a * b % (1 << bits)) + c >> bits),
        ),
        Row(
            f"mad.hi.cc.{type_} {{d}}, {{a}}, {{b}}, {{c}}; madc.lo.cc.{type_} {{d}}, {{a}}, {{b}}, {{c}};"
            f"addc.{type_} {{d}}, 0, 0;",
            bits,
            lambda a, b, c: (
                a * b % (1 << bits) + c + ((n(a) * n(b) >> bits) % (1 << bits) + c >> bits) >> bits
            ),
        ),
        # One carry for both ways, as GPUs have it: a difference sets it where there is no borrow.
        Row(
            f"sub.cc.{type_} {{d}}, {{a}}, {{b}}; addc.{type_} {{d}}, 0, 0;",
            bits,
            lambda a, b, c: a >= b,
        ),
    ]


def short(a: int, b: int, type_: str) -> int:
    return (signed(a, 24) * signed(b, 24) if type_[0] == "s" else (a & 0xFF_FFFF) * (b & 0xFF_FFFF)) % (
        1 << 48
    )


def each(bits: int, is_signed: bool, one: Model) -> Model:
    def model(a: int, b: int, c: int) -> int:
        pairs = zip(elements(a, bits, is_signed), elements(b, bits, is_signed), strict=True)
        return joined([one(x, y) for x, y in pairs], bits)

    return model


def packed() -> list[Row]:
    rows: list[Row] = []
    for type_, element in (("u16x2", "u16"), ("s16x2", "s16"), ("u8x4", "u8"), ("s8x4", "s8")):
        bits, is_signed = int(element[1:]), element[0] == "s"
        wide: dict[str, Model] = {
            "add": lambda x, y: x + y,
            "add.sat": lambda x, y, t=element: clamped(x + y, t),
            "min": min,
            "max": max,
        }
        if bits == 8:
            wide["sub"] = lambda x, y: x - y
            wide["sub.sat"] = lambda x, y, t=element: clamped(x - y, t)
        if is_signed:
            wide |= {"min.relu": lambda x, y: max(min(x, y), 0), "max.relu": lambda x, y: max(x, y, 0)}
        rows += [
            Row(f"{name}.{type_} {{d}}, {{a}}, {{b}};", 32, each(bits, is_signed, one))
            for name, one in wide.items()
        ]
    rows.append(Row("neg.s8x4 {d}, {a};", 32, lambda a, b, c: joined([-x for x in elements(a, 8)], 8)))
    return rows


def dots() -> list[Row]:
    rows = []
    for left in "us":
        for right in "us":

            def four(a: int, b: int, c: int, x: bool = left == "s", y: bool = right == "s") -> int:
                return c + sum(i * j for i, j in zip(elements(a, 8, x), elements(b, 8, y), strict=True))

            rows.append(Row(f"dp4a.{left}32.{right}32 {{d}}, {{a}}, {{b}}, {{c}};", 32, four))
            for mode, first in (("lo", 0), ("hi", 2)):

                def two(
                    a: int, b: int, c: int, x: bool = left == "s", y: bool = right == "s", at: int = first
                ) -> int:
                    halves, bytes_ = elements(a, 16, x), elements(b, 8, y)[at : at + 2]
                    return c + sum(i * j for i, j in zip(halves, bytes_, strict=True))

                rows.append(Row(f"dp2a.{mode}.{left}32.{right}32 {{d}}, {{a}}, {{b}}, {{c}};", 32, two))
    return rows


def single() -> list[Row]:
    """What only 32-bit types have."""
    s = number("s32")
    rows = [
        Row("add.sat.s32 {d}, {a}, {b};", 32, lambda a, b, c: clamped(s(a) + s(b), "s32")),
        Row("add.s32.sat {d}, {a}, {b};", 32, lambda a, b, c: clamped(s(a) + s(b), "s32")),
        Row("sub.sat.s32 {d}, {a}, {b};", 32, lambda a, b, c: clamped(s(a) - s(b), "s32")),
        Row("add.sat.u32 {d}, {a}, {b};", 32, lambda a, b, c: clamped(a + b, "u32")),
        Row("min.relu.s32 {d}, {a}, {b};", 32, lambda a, b, c: max(min(s(a), s(b)), 0)),
        Row("max.relu.s32 {d}, {a}, {b};", 32, lambda a, b, c: max(s(a), s(b), 0)),
        Row(
            "mad.hi.sat.s32 {d}, {a}, {b}, {c};",
            32,
            lambda a, b, c: clamped((s(a) * s(b) >> 32) + s(c), "s32"),
        ),
        Row(
            "mad24.hi.sat.s32 {d}, {a}, {b}, {c};",
            32,
            lambda a, b, c: clamped(s(short(a, b, "s32") >> 16) + s(c), "s32"),
        ),
    ]
    for type_ in ("u32", "s32"):
        rows += [
            Row(f"mul24.lo.{type_} {{d}}, {{a}}, {{b}};", 32, lambda a, b, c, t=type_: short(a, b, t)),
            Row(f"mul24.hi.{type_} {{d}}, {{a}}, {{b}};", 32, lambda a, b, c, t=type_: short(a, b, t) >> 16),
            Row(
                f"mad24.lo.{type_} {{d}}, {{a}}, {{b}}, {{c}};",
                32,
                lambda a, b, c, t=type_: short(a, b, t) + c,
            ),
            Row(
                f"mad24.hi.{type_} {{d}}, {{a}}, {{b}}, {{c}};",
                32,
                lambda a, b, c, t=type_: (short(a, b, t) >> 16) + c,
            ),
        ]
    return rows + packed() + dots()


TABLES: dict[int, list[Row]] = {
    16: [row for type_ in ("u16", "s16") for row in words(type_)],
    32: [row for type_ in ("u32", "s32") for row in words(type_)] + single(),
    64: [row for type_ in ("u64", "s64") for row in words(type_)],
}


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize(("way", "count"), WAYS)
def test_integer_arithmetic(bits: int, way: str, count: int) -> None:
    check(TABLES[bits], inputs([bits] * 3, count), way)


def wide_sum(type_: str) -> Row:
    n, bits = number(type_), int(type_[1:])
    return Row(f"mad.wide.{type_} {{d}}, {{a}}, {{b}}, {{c}};", 2 * bits, lambda a, b, c: n(a) * n(b) + c)


def test_products_with_wide_sums() -> None:
    for bits in (16, 32):
        check([wide_sum(f"{kind}{bits}") for kind in "us"], inputs([bits, bits, 2 * bits], 64), "vector")


REFUSED = [
    "add.b32 %r1, %r2, %r3", "sub.u16x2 %r1, %r2, %r3", "add.cc.u16 %h1, %h2, %h3",
    "sub.sat.u32 %r1, %r2, %r3", "add.cc.sat.s32 %r1, %r2, %r3", "add.sat.u64 %l1, %l2, %l3",
    "mul.u32 %r1, %r2, %r3", "add.u32 %r1, %r2", "mul.lo.hi.u32 %r1, %r2, %r3",
    "mul.wide.u64 %l1, %l2, %l3", "mul.cc.lo.u32 %r1, %r2, %r3", "addc %r1, %r2",
    "mad.lo.sat.s32 %r1, %r2, %r3, %r1", "mad.hi.sat.u32 %r1, %r2, %r3, %r1",
    "mad.wide.cc.u32 %l1, %r1, %r2, %l2", "mul24.u32 %r1, %r2, %r3", "mad24.lo.sat.s32 %r1, %r2, %r3, %r1",
    "div.sat.u32 %r1, %r2, %r3", "rem.f32 %r1, %r2, %r3", "abs.u32 %r1, %r2", "neg.u32 %r1, %r2",
    "min.relu.u32 %r1, %r2, %r3", "max.b32 %r1, %r2, %r3", "sad.b32 %r1, %r2, %r3, %r1",
    "dp4a.u32 %r1, %r2, %r3, %r1", "dp4a.lo.u32.u32 %r1, %r2, %r3, %r1", "dp2a.u32.u32 %r1, %r2, %r3, %r1",
    "addc.u16 %h1, %h2, %h3", "subc.wide.u32 %r1, %r2, %r3", "madc.u32 %r1, %r2, %r3, %r1",
]  # fmt: skip


@pytest.mark.parametrize("instruction", REFUSED)
def test_forms_that_ptx_does_not_have(instruction: str) -> None:
    opcode = instruction.split(".")[0].split()[0]
    assert refused(instruction + ";").startswith(f"PTX line 7: {opcode}")
