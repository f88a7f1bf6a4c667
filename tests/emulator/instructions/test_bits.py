"""Logic, shifts, bit fields, permutations, and video instructions, by what the PTX ISA says of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.harness.many import refused
from tests.harness.rows import WAYS, Model, Row, check, clamped, elements, inputs, joined, number, signed


def logic(bits: int) -> list[Row]:
    last = (1 << bits) - 1
    return [
        Row(f"and.b{bits} {{d}}, {{a}}, {{b}};", bits, lambda a, b, c: a & b),
        Row(f"or.b{bits} {{d}}, {{a}}, {{b}};", bits, lambda a, b, c: a | b),
        Row(f"xor.b{bits} {{d}}, {{a}}, {{b}};", bits, lambda a, b, c: a ^ b),
        Row(f"not.b{bits} {{d}}, {{a}};", bits, lambda a, b, c: last - a),
        Row(f"cnot.b{bits} {{d}}, {{a}};", bits, lambda a, b, c: a == 0),
    ]


def shifts(bits: int) -> list[Row]:
    """By any register of 32 bits."""
    s = number(f"s{bits}")
    rows = [Row(f"shl.b{bits} {{d}}, {{a}}, {{c}};", bits, lambda a, b, c: a << min(c, 64))]
    rows += [
        Row(f"shr.{kind}{bits} {{d}}, {{a}}, {{c}};", bits, lambda a, b, c: a >> min(c, 64)) for kind in "bu"
    ]
    rows.append(Row(f"shr.s{bits} {{d}}, {{a}}, {{c}};", bits, lambda a, b, c: s(a) >> min(c, 64)))
    rows += [
        Row(f"shr.s{bits} {{d}}, {{a}}, {by};", bits, lambda a, b, c, by=by: s(a) >> by)
        for by in (0, 5, bits, 99)
    ]
    return rows


# -- counts and fields ------------------------------------------------------------------------------
def highest(value: int, bits: int, is_signed: bool) -> int:
    if is_signed and value >> (bits - 1):
        value ^= (1 << bits) - 1
    return value.bit_length() - 1


def place(value: int, bits: int) -> int:
    """A place or a length. PTX speaks of its lowest byte; of 64 bits an H200 takes the whole of it."""
    return value & 255 if bits == 32 else value


def extracted(value: int, start: int, length: int, type_: str) -> int:
    bits = int(type_[1:])
    last, start, length = bits - 1, place(start, bits), place(length, bits)
    sign = value >> min(start + length - 1, last) & 1 if type_[0] == "s" and length else 0
    found = 0
    for i in range(last + 1):
        found |= (value >> (start + i) & 1 if i < length and start + i <= last else sign) << i
    return found


def inserted(value: int, into: int, start: int, length: int, bits: int) -> int:
    start = place(start, bits)
    for i in range(min(place(length, bits), bits - start)):
        at = start + i
        into = into & ~(1 << at) | (value >> i & 1) << at
    return into


def fields(bits: int) -> list[Row]:
    def mirrored(a: int, *_: int) -> int:
        return int(f"{a:0{bits}b}"[::-1], 2)

    rows = [
        Row(f"popc.b{bits} {{d}}, {{a}};", 32, lambda a, *_: a.bit_count()),
        Row(f"clz.b{bits} {{d}}, {{a}};", 32, lambda a, *_: bits - a.bit_length()),
        Row(f"brev.b{bits} {{d}}, {{a}};", bits, mirrored),
    ]
    for kind in "us":
        type_, is_signed = f"{kind}{bits}", kind == "s"
        rows += [
            Row(f"bfind.{type_} {{d}}, {{a}};", 32, lambda a, *_, s=is_signed: highest(a, bits, s)),
            Row(
                f"bfind.shiftamt.{type_} {{d}}, {{a}};",
                32,
                lambda a, *_, s=is_signed: bits - 1 - highest(a, bits, s) if highest(a, bits, s) >= 0 else -1,
            ),
            Row(
                f"bfe.{type_} {{d}}, {{a}}, {{c}}, {{x}};",
                bits,
                lambda a, b, c, x, t=type_: extracted(a, c, x, t),
            ),
            Row(f"bfe.{type_} {{d}}, {{a}}, 3, 9;", bits, lambda a, *_, t=type_: extracted(a, 3, 9, t)),
        ]
    return [
        *rows,
        Row(
            f"bfi.b{bits} {{d}}, {{a}}, {{b}}, {{c}}, {{x}};",
            bits,
            lambda a, b, c, x: inserted(a, b, c, x, bits),
        ),
        Row(f"bfi.b{bits} {{d}}, {{a}}, {{b}}, 8, 16;", bits, lambda a, b, c, x: inserted(a, b, 8, 16, bits)),
    ]


def run_of_ones(start: int, length: int, clamp: bool) -> int:
    if not clamp:
        start, length = start & 31, length & 31
    return sum(1 << i for i in range(32) if start <= i < start + length)


def extended(value: int, length: int, clamp: bool, is_signed: bool) -> int:
    length = min(length, 32) if clamp else length & 31
    value &= (1 << length) - 1
    return signed(value, length) if is_signed and length else value


def nth(mask: int, base: int, offset: int) -> int:
    if offset == -(2**31):
        return 0  # as measured on an H200
    if base > 31:
        return -1
    places = [base] if offset == 0 else range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [place for place in places if mask >> place & 1]
    skip = max(abs(offset) - 1, 0)
    return found[skip] if skip < len(found) else -1


def words() -> list[Row]:
    """What only 32-bit types have."""
    rows = []
    for mode in ("clamp", "wrap"):
        rows += [
            Row(
                f"bmsk.{mode}.b32 {{d}}, {{c}}, {{x}};",
                32,
                lambda a, b, c, x, m=mode: run_of_ones(c, x, m == "clamp"),
            ),
            *(
                Row(
                    f"szext.{mode}.{kind}32 {{d}}, {{a}}, {{c}};",
                    32,
                    lambda a, b, c, x, m=mode, k=kind: extended(a, c, m == "clamp", k == "s"),
                )
                for kind in "us"
            ),
            Row(
                f"shf.l.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};",
                32,
                lambda a, b, c, x, m=mode: (b << 32 | a) << (min(c, 32) if m == "clamp" else c & 31) >> 32,
            ),
            Row(
                f"shf.r.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};",
                32,
                lambda a, b, c, x, m=mode: (b << 32 | a) >> (min(c, 32) if m == "clamp" else c & 31),
            ),
        ]
    rows += [
        Row("fns.b32 {d}, {a}, {c}, {x};", 32, lambda a, b, c, x: nth(a, c, signed(x, 32))),
        Row("and.b32 {d}, {c}, 31; fns.b32 {d}, {a}, {d}, 3;", 32, lambda a, b, c, x: nth(a, c & 31, 3)),
        Row("and.b32 {d}, {c}, 31; fns.b32 {d}, {a}, {d}, -2;", 32, lambda a, b, c, x: nth(a, c & 31, -2)),
    ]
    return rows


# -- tables and permutations -------------------------------------------------------------------------
def looked_up(table: int, a: int, b: int, c: int) -> int:
    found = 0
    for i in range(32):
        row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1
        found |= (table >> row & 1) << i
    return found


# From the ISA's table: which of the eight bytes each of the result's is, the highest first, by selector.
MODES = {
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}


def permuted(a: int, b: int, control: int, mode: str = "") -> int:
    source = [*elements(a, 8), *elements(b, 8)]
    if mode:
        return joined([source[int(digit)] for digit in reversed(MODES[mode][control & 3])], 8)
    found = []
    for nibble in elements(control, 4)[:4]:
        byte = source[nibble & 7]
        found.append((255 if byte >> 7 else 0) if nibble & 8 else byte)
    return joined(found, 8)


def tables() -> list[Row]:
    rows = [Row("prmt.b32 {d}, {a}, {b}, {c};", 32, lambda a, b, c, x: permuted(a, b, c))]
    for mode in MODES:
        text = f"prmt.b32.{mode} {{d}}, {{a}}, {{b}}, {{c}};"
        rows.append(Row(text, 32, lambda a, b, c, x, m=mode: permuted(a, b, c, m)))
        control = random.getrandbits(16)
        text = f"prmt.{mode}.b32 {{d}}, {{a}}, {{b}}, {control};"
        rows.append(Row(text, 32, lambda a, b, c, x, m=mode, k=control: permuted(a, b, k, m)))
    for control in (
        0x3210,
        0x5410,
        0x7632,
        0x0123,
        0x9910,
        0xBA98,
        *(random.getrandbits(16) for _ in range(8)),
    ):
        text = f"prmt.b32 {{d}}, {{a}}, {{b}}, {control:#x};"
        rows.append(Row(text, 32, lambda a, b, c, x, k=control: permuted(a, b, k)))
    for table in (0, 255, 0x80, 0xFE, 0x40, 0x1A, 0xE8, 0x96, *(random.randrange(256) for _ in range(16))):
        text = f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table:#x};"
        rows.append(Row(text, 32, lambda a, b, c, x, t=table: looked_up(t, a, b, c)))
    for join in ("and", "or"):
        flag = f"setp.eq.b32 {{q}}, {{a}}, {{b}}; lop3.{join}.b32"
        choose = "{{a}}, {{b}}, {{c}}, 0x60, {{q}}; selp.u32 {{d}}, 1, 0, {{p}};".replace("{{", "{").replace(
            "}}", "}"
        )
        model: Model = (
            (lambda a, b, c, x: looked_up(0x60, a, b, c) != 0 and a == b)
            if join == "and"
            else (lambda a, b, c, x: looked_up(0x60, a, b, c) != 0 or a == b)
        )
        rows += [
            Row(f"{flag} _|{{p}}, {choose}", 32, model),
            Row(f"{flag} {{d}}|{{p}}, {choose}", 32, model),
            Row(
                f"{flag} {{d}}|{{p}}, {{a}}, {{b}}, {{c}}, 0x60, {{q}};",
                32,
                lambda a, b, c, x: looked_up(0x60, a, b, c),
            ),
        ]
    return rows


def packs() -> list[Row]:
    rows = []
    for type_, bits in (
        ("u16", 16),
        ("s16", 16),
        ("u8", 8),
        ("s8", 8),
        ("u4", 4),
        ("s4", 4),
        ("u2", 2),
        ("s2", 2),
    ):

        def both(a: int, b: int, t: str = type_, n: int = bits) -> int:
            return sum(clamped(signed(v, 32), t) % (1 << n) << place for v, place in ((b, 0), (a, n)))

        if bits == 16:
            rows.append(
                Row(f"cvt.pack.sat.{type_}.s32 {{d}}, {{a}}, {{b}};", 32, lambda a, b, c, x, f=both: f(a, b))
            )
        else:
            text = f"cvt.pack.sat.{type_}.s32.b32 {{d}}, {{a}}, {{b}}, {{c}};"
            rows.append(Row(text, 32, lambda a, b, c, x, f=both, n=bits: f(a, b) | c << 2 * n))
    return rows


@pytest.mark.parametrize(("way", "count"), WAYS)
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic_and_shifts(bits: int, way: str, count: int) -> None:
    given = inputs([bits, bits, 32], count)
    given[2][: count // 2] %= 70
    check(logic(bits) + shifts(bits), given, way)


@pytest.mark.few(4)
@pytest.mark.parametrize(("way", "count"), WAYS)
@pytest.mark.parametrize("bits", [32, 64])
def test_counts_and_fields(bits: int, way: str, count: int) -> None:
    given = inputs([bits, bits, 32, 32], count)
    for amounts in given[2:]:
        amounts[: count * 3 // 4] %= 80
    check(fields(bits) + (words() if bits == 32 else []), given, way)


@pytest.mark.few(2)
@pytest.mark.parametrize(("way", "count"), WAYS)
def test_tables_permutations_and_packs(way: str, count: int) -> None:
    check(tables() + packs(), inputs([32] * 4, count), way)


def arithmetic() -> list[Row]:
    """Of the types that stand for several numbers in one register, and of those whose sums may stop at their limits."""
    names: dict[str, Callable[..., int]] = {
        "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "min": min, "max": max, "neg": lambda x, y: -x,
    }  # fmt: skip
    ends: dict[str, Callable[[int, str], int]] = {
        "": lambda x, _: x,
        ".sat": clamped,
        ".relu": lambda x, _: max(x, 0),
    }

    def row(name: str, modifier: str, type_: str) -> Row:
        one = f"{type_[0]}{type_[1:].split('x')[0]}"
        bits, end = int(one[1:]), ends[modifier]

        def model(a: int, b: int) -> int:
            pairs = zip(*(elements(given, bits, one[0] == "s") for given in (a, b)), strict=True)
            return joined([end(names[name](x, y), one) for x, y in pairs], bits)

        return Row(f"{name}{modifier}.{type_} {{d}}, {{a}}{', {b}' * (name != 'neg')};", 32, model)

    packed, bytes_ = ("u16x2", "s16x2", "u8x4", "s8x4"), ("u8x4", "s8x4")
    forms = {
        "add": packed, "add.sat": ("u32", "s32", *packed), "sub": bytes_, "sub.sat": ("s32", *bytes_),
        "min": packed, "max": packed, "min.relu": ("s32", "s16x2", "s8x4"), "max.relu": ("s32", "s16x2", "s8x4"),
        "neg": ("s8x4",),
    }  # fmt: skip
    return [
        row(name, dot + modifier, type_)
        for text, types in forms.items()
        for name, dot, modifier in [text.partition(".")]
        for type_ in types
    ]


@pytest.mark.parametrize(("way", "count"), WAYS)
def test_packed_numbers_and_limits(way: str, count: int) -> None:
    """No number carries into its neighbour, and .sat stops at the limits of its own type and signedness."""
    check(arithmetic(), inputs([32, 32], count), way)


# -- carry-less products -------------------------------------------------------------------------------
def sums_and_products() -> list[Row]:
    """What is more than one sum: with a carry, of a part of a product, of several products."""
    carried = [
        ("add.cc.u32 {d}, {a}, {b}; addc.u32 {d}, {c}, {x};", lambda a, b, c, x: c + x + (a + b >> 32)),
        ("sub.cc.u32 {d}, {a}, {b}; subc.u32 {d}, {c}, {x};", lambda a, b, c, x: c - x - (a < b)),
        ("mad.lo.cc.u32 {d}, {a}, {b}, {c}; addc.u32 {d}, {x}, 0;",
         lambda a, b, c, x: x + (a * b % 2**32 + c >> 32)),
        ("add.cc.u32 {d}, {a}, {b}; madc.hi.u32 {d}, {a}, {c}, {x};",
         lambda a, b, c, x: (a * c >> 32) + x + (a + b >> 32)),
    ]  # fmt: skip
    rows = [Row(text, 32, model) for text, model in carried]
    rows += [
        Row(f"{name}.hi.sat.s32 {{d}}, {{a}}, {{b}}, {{c}};", 32,
            lambda a, b, c, x, bits=bits, low=low:
            min(max((signed(a, bits) * signed(b, bits) >> low) + signed(c, 32), -(2**31)), 2**31 - 1))
        for name, bits, low in (("mad", 32, 32), ("mad24", 24, 16))
    ]  # fmt: skip
    for kind in "us":
        one = number(f"{kind}32")

        def narrow(value: int, kind: str = kind) -> int:
            return signed(value, 24) if kind == "s" else value % 2**24

        for part, low in (("lo", 0), ("hi", 32)):
            rows += [
                Row(f"mul.{part}.{kind}32 {{d}}, {{a}}, {{b}};", 32,
                    lambda a, b, c, x, one=one, low=low: one(a) * one(b) >> low),
                Row(f"mad.{part}.{kind}32 {{d}}, {{a}}, {{b}}, {{c}};", 32,
                    lambda a, b, c, x, one=one, low=low: (one(a) * one(b) >> low) + c),
                Row(f"mul24.{part}.{kind}32 {{d}}, {{a}}, {{b}};", 32,
                    lambda a, b, c, x, of=narrow, low=low // 2: of(a) * of(b) >> low),
                Row(f"mad24.{part}.{kind}32 {{d}}, {{a}}, {{b}}, {{c}};", 32,
                    lambda a, b, c, x, of=narrow, low=low // 2: (of(a) * of(b) >> low) + c),
            ]  # fmt: skip
        rows.append(
            Row(
                f"sad.{kind}32 {{d}}, {{a}}, {{b}}, {{c}};",
                32,
                lambda a, b, c, x, one=one: abs(one(a) - one(b)) + c,
            )
        )
    for of_a in "us":
        for of_b in "us":

            def dot(a: int, b: int, c: int, x: int, s: bool = of_a == "s", t: bool = of_b == "s") -> int:
                return c + sum(y * z for y, z in zip(elements(a, 8, s), elements(b, 8, t), strict=True))

            rows.append(Row(f"dp4a.{of_a}32.{of_b}32 {{d}}, {{a}}, {{b}}, {{c}};", 32, dot))
            for part in ("lo", "hi"):

                def two(
                    a: int,
                    b: int,
                    c: int,
                    x: int,
                    s: bool = of_a == "s",
                    t: bool = of_b == "s",
                    part: str = part,
                ) -> int:
                    y, z = elements(a, 16, s), elements(b, 8, t)
                    return c + sum(i * j for i, j in zip(y, z[:2] if part == "lo" else z[2:], strict=True))

                rows.append(Row(f"dp2a.{part}.{of_a}32.{of_b}32 {{d}}, {{a}}, {{b}}, {{c}};", 32, two))
    return rows


@pytest.mark.few(2)
@pytest.mark.parametrize(("way", "count"), WAYS)
def test_sums_and_products(way: str, count: int) -> None:
    check(sums_and_products(), inputs([32] * 4, count), way)


def carryless(a: int, b: int) -> int:
    """The product of polynomials over two elements, whose coefficients are bits."""
    product = 0
    for place in range(64):
        product ^= b << place if a >> place & 1 else 0
    return product


@pytest.mark.parametrize(("way", "count"), WAYS)
def test_carryless_products(way: str, count: int) -> None:
    """Some operands have every bit: there the most of them meet in one place of the product."""
    rows = [
        Row("clmad.lo.u64 {d}, {a}, {b}, {c};", 64, lambda a, b, c: carryless(a, b) ^ c),
        Row("clmad.hi.u64 {d}, {a}, {b}, {c};", 64, lambda a, b, c: carryless(a, b) >> 64 ^ c),
        Row("clmad.hi.u64 {d}, {a}, -1, {c};", 64, lambda a, b, c: carryless(a, 2**64 - 1) >> 64 ^ c),
    ]
    given = inputs([64, 64, 64], count)
    given[0][:4] = given[1][:2] = 2**64 - 1
    check(rows, given, way)


# -- video -------------------------------------------------------------------------------------------
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y, "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
}  # fmt: skip
FIRST: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda x, y: x + y, "vsub": lambda x, y: x - y, "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min, "vmax": max, "vavrg": lambda x, y: x + y + (x + y >= 0) >> 1,
}  # fmt: skip
PLACES = {"": (0, 32), **{f"b{i}": (i, 8) for i in range(4)}, "h0": (0, 16), "h1": (1, 16)}


def part(value: int, place: str, type_: str) -> int:
    index, bits = PLACES[place]
    return number(f"{type_[0]}{bits}")(value >> index * bits)


def dotted(operand: str, place: str) -> str:
    return f"{{{operand}}}.{place}" if place else f"{{{operand}}}"


def one_video(opcode: str) -> Row:
    """A scalar video instruction drawn at random."""
    to, of_a, of_b = (random.choice(["u32", "s32"]) for _ in range(3))
    place_a, place_b = (random.choice(list(PLACES)) for _ in range(2))
    compare, mode = random.choice(list(COMPARE)), random.choice(["clamp", "wrap"])
    end = random.choice(["", "add", "b0", "b1", "b2", "b3", "h0"])
    sat = not end and (to == "s32" or opcode in ("vmin", "vmax", "vshr")) and opcode not in ("vset", "vshl")
    if opcode == "vset":
        to, said = "u32", f"vset.{of_a}.{of_b}.{compare}"
    elif opcode in ("vshl", "vshr"):
        of_b = "u32"
        said = f"{opcode}.{to}.{of_a}.u32{'.sat' * sat}.{mode}"
    else:
        said = f"{opcode}.{to}.{of_a}.{of_b}{'.sat' * sat}"
    place = end.replace("add", "")
    said += ".add" if end == "add" else ""
    said += f" {dotted('d', place)}, {dotted('a', place_a)}, {dotted('b', place_b)}{', {c}' if end else ''};"

    def model(a: int, b: int, c: int, x: int) -> int:
        left, right = part(a, place_a, of_a), part(b, place_b, of_b)
        by = min(right, 32) if mode == "clamp" else right & 31
        match opcode:
            case "vset":
                found = int(COMPARE[compare](left, right))
            case "vshl":
                found = left << by
            case "vshr":
                found = left >> by
            case _:
                found = FIRST[opcode](left, right)
        if place:
            index, bits = PLACES[place]
            mask = (1 << bits) - 1 << index * bits
            return c & ~mask | found << index * bits & mask
        if sat:
            return clamped(found, to)
        return found + c if end else found

    return Row(said, 32, model)


def simd_video(opcode: str, count: int) -> Row:
    """A video instruction on two or four numbers, drawn at random."""
    bits = 32 // count
    to, of_a, of_b = (random.choice(["u32", "s32"]) for _ in range(3))
    compare, end = random.choice(list(COMPARE)), random.choice(["", "add", "sat"])
    if opcode == "vset":
        end = end.replace("sat", "")
    letter = "h" if count == 2 else "b"
    picks = [[random.randrange(2 * count) for _ in range(count)] for _ in range(2)]
    plain = [list(range(count)), list(range(count, 2 * count))]
    picks = [pick if random.random() < 0.5 else usual for pick, usual in zip(picks, plain, strict=True)]
    places = [
        "" if pick == usual else letter + "".join(map(str, reversed(pick)))
        for pick, usual in zip(picks, plain, strict=True)
    ]
    mask = random.sample(range(count), random.randint(1, count))
    to_place = letter + "".join(map(str, sorted(mask, reverse=True)))
    said = f"{opcode}{count}." + (f"{of_a}.{of_b}.{compare}" if opcode == "vset" else f"{to}.{of_a}.{of_b}")
    said += f".{end}" if end else ""
    said += f" {dotted('d', to_place)}, {dotted('a', places[0])}, {dotted('b', places[1])}, {{c}};"

    def model(a: int, b: int, c: int, x: int) -> int:
        merged, total = elements(c, bits), c
        for i in mask:
            left, right = (
                number(f"{type_[0]}{bits}")([*elements(a, bits), *elements(b, bits)][pick[i]])
                for type_, pick in zip((of_a, of_b), picks, strict=True)
            )
            found = int(COMPARE[compare](left, right)) if opcode == "vset" else FIRST[opcode](left, right)
            merged[i] = clamped(found, f"{to[0]}{bits}") if end == "sat" else found
            total += found
        return total if end == "add" else joined(merged, bits)

    return Row(said, 32, model)


def product_video() -> Row:
    """vmad, drawn at random."""
    to, of_a, of_b = (random.choice(["u32", "s32"]) for _ in range(3))
    place_a, place_b = (random.choice(list(PLACES)) for _ in range(2))
    minus = random.choice(["", "a", "b", "c", "ab", "po"])
    signs = ["-" if minus != "po" and name in minus else "" for name in "abc"]
    said = f"vmad.{to}.{of_a}.{of_b}{'.po' * (minus == 'po')} {{d}},"
    said += f" {signs[0]}{dotted('a', place_a)}, {signs[1]}{dotted('b', place_b)}, {signs[2]}{{c}};"

    def model(a: int, b: int, c: int, x: int) -> int:
        found = part(a, place_a, of_a) * part(b, place_b, of_b)
        return (-found if minus in ("a", "b") else found) + (-c if minus == "c" else c) + (minus == "po")

    return Row(said, 32, model)


@pytest.mark.few(2)
@pytest.mark.parametrize(("way", "count"), WAYS)
def test_video(way: str, count: int) -> None:
    rows = [
        one_video(name) for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", "vshl", "vshr") * 5
    ]
    rows += [
        Row("vshl.u32.u32.u32.clamp {d}, {a}, {b};", 32, lambda a, b, c, x: a << min(b, 32)),
        Row("vshr.u32.u32.u32.clamp {d}, {a}, {b};", 32, lambda a, b, c, x: a >> min(b, 32)),
    ]
    rows += [simd_video(name, size) for name in (*FIRST, "vset") for size in (2, 4)]
    rows += [product_video() for _ in range(12)]
    check(rows, inputs([32] * 4, count), way)


REFUSED = [
    "mad.lo.sat.s32 %r1, %r2, %r3, %r1", "mad.hi.sat.u32 %r1, %r2, %r3, %r1", "mul.hi.sat.s64 %l1, %l2, %l3",
    "and.u32 %r1, %r2, %r3", "or.b8 %c1, %c2, %c3", "cnot.pred %p, %q", "shl.u32 %r1, %r2, %r3",
    "lop3.b64 %l1, %l2, %l3, %l1, 5", "lop3.b32 %r1, %r2, %r3, %r1, %r2",
    "lop3.b32 %r1, %r2, %r3, %r1, 256", "lop3.xor.b32 %r1|%p, %r2, %r3, %r1, 5, %q", "lop3.and.or.b32 %r1|%p, %r2, %r3, %r1, 5, %q",
    "shf.l.b32 %r1, %r2, %r3, %r1", "shf.wrap.b32 %r1, %r2, %r3, %r1", "shf.l.wrap.b64 %l1, %l2, %l3, %r1",
    "popc.u32 %r1, %r2", "clz.b16 %r1, %h2", "bfind.b32 %r1, %r2", "brev.b16 %h1, %h2",
    "bfe.b32 %r1, %r2, %r3, %r1", "bfi.u32 %r1, %r2, %r3, %r1, %r2", "bmsk.b32 %r1, %r2, %r3",
    "szext.clamp.b32 %r1, %r2, %r3", "prmt.f4e.b4e.b32 %r1, %r2, %r3, %r1", "prmt.b64 %l1, %l2, %l3, %r1",
    "fns.u32 %r1, %r2, %r3, %r1", "popc.b32 %r1|%r3, %r2", "cvt.pack.sat.u8.s32 %r1, %r2, %r3", "cvt.pack.sat.u16.u32 %r1, %r2, %r3",
    "vadd.u32.u32 %r1, %r2, %r3", "vadd.u32.u32.u32.add %r1.b0, %r2, %r3, %r1",
    "vadd.u32.u32.u32 %r1, %r2.b4, %r3", "vset.u32.u32 %r1, %r2, %r3",
    "vset4.u32.u32.ne.max %r1, %r2, %r3, %r1", "vshl.u32.u32.u32 %r1, %r2, %r3",
    "vshr.u32.u32.s32.wrap %r1, %r2, %r3", "vadd2.u32.u32.u32.sat.add %r1, %r2, %r3, %r1",
    "vadd.u32.u32.u32 %r1, -%r2, %r3", "vmad.u32.u32.u32.po %r1, -%r2, %r3, %r1",
    "vadd4.u32.u32.u32 %r1.b01, %r2, %r3, %r1", "vmad.s32.s32.s32.shr8 %r1, %r2, %r3, %r1",
    "vmad.s32.s32.s32.sat %r1, %r2, %r3, %r1", "vadd.u32.u32.u32.sat %r1, %r2, %r3",
    "vadd.s32.s32.s32 %r1.h1, %r2, %r3, %r1", "vsub.s32.s32.s32.max %r1, %r2, %r3, %r1",
    "vadd.s32.s32.s32.sat.add %r1, %r2, %r3, %r1", "vsub.s32.s32.s32.sat %r1.b0, %r2, %r3, %r1",
    "vabsdiff.u32.u32.u32.sat %r1, %r2, %r3", "vmad.s32.s32.s32 %r1, -%r2, %r3, -%r1", "vset.u32.u32.eq.lt %r1, %r2, %r3",
    "vadd.u32.u32.u32 %r1, %r2.b0.b1, %r3",
    "vshl.s32.s32.u32.sat.wrap %r1, %r2, %r3", "vadd2.u32.u32.u32 %r1, %r2.h1, %r3, %r1",
    "vadd2.u32.u32.u32 %r1, %r2, %r3.h1, %r1", "vadd4.u32.u32.u32 %r1, %r2, %r3.b01, %r1",
    "vadd4.u32.u32.u32 %r1, %r2, %r3, %r1.b0", "clmad.u64 %l1, %l2, %l3, %l1", "clmad.lo.b64 %l1, %l2, %l3, %l1",
    "clmad.lo.u32 %r1, %r2, %r3, %r1", "clmad.wide.u64 %l1, %l2, %l3, %l1", "clmad.u64.lo %l1, %l2, %l3, %l1",
    "clmad.lo.u64 %l1, %l2, %l3", "dp4a.u64.s32 %r1, %r2, %r3, %r1", "dp4a.s32.b32 %r1, %r2, %r3, %r1",
    "dp4a.lo.u32.u32 %r1, %r2, %r3, %r1", "dp2a.u32.s32 %r1, %r2, %r3, %r1", "dp2a.lo.s8.u32 %r1, %r2, %r3, %r1",
]  # fmt: skip


@pytest.mark.parametrize("instruction", REFUSED)
def test_forms_that_ptx_does_not_have(instruction: str) -> None:
    opcode = instruction.split(".")[0]
    assert refused(instruction + ";").startswith(f"PTX line 7: {opcode}")
