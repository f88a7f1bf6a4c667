"""The PTX interpreter of tests/yardstick against exact arithmetic, Python integers and NumPy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.yardstick.programs import UNSIGNED, apply, width

Array = np.ndarray[Any, Any]
# -- floating point ------------------------------------------------------------------------------------------

FORMATS = {"f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023)}


def exact(bits: int, kind: str) -> Fraction | float:
    """The value of a float's bits: a fraction, or a float for NaN and infinity."""
    precision, top = FORMATS[kind]
    w = width(kind)
    negative, magnitude = bits >> (w - 1), bits & ((1 << (w - 1)) - 1)
    exponent, mantissa = magnitude >> (precision - 1), magnitude & ((1 << (precision - 1)) - 1)
    if exponent == 2 * top + 1:
        return math.nan if mantissa else -math.inf if negative else math.inf
    if exponent:
        mantissa += 1 << (precision - 1)
    value = Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - top - precision + 1)
    return -value if negative else value


def nearest(value: Fraction, kind: str, mode: str) -> int:
    """Bits of a non-zero fraction rounded to a format, found by walking its ordered bit patterns."""
    precision, top = FORMATS[kind]
    w = width(kind)
    size, infinity = abs(value), (2 * top + 1) << (precision - 1)
    low, high = 0, infinity  # patterns of non-negative floats are ordered as their values
    near = size.numerator.bit_length() - size.denominator.bit_length() + top  # one exponent of two or three
    for pattern in ((near + step) << (precision - 1) for step in (-1, 0, 1)):
        if low < pattern < high:
            low, high = (pattern, high) if exact(pattern, kind) <= size else (low, pattern)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exact(middle, kind) <= size else (low, middle)
    below = exact(low, kind)
    assert isinstance(below, Fraction)
    step = below - exact(low - 1, kind) if high == infinity else exact(high, kind) - below
    away = {"rn": 2 * (size - below) > step or (2 * (size - below) == step and low % 2 == 1), "rz": False}
    away |= {"rp": value > 0 and size != below, "rm": value < 0 and size != below}
    return (high if away[mode] else low) | (int(value < 0) << (w - 1))


def floats(kind: str, count: int, rng: np.random.Generator) -> Array:
    """Bits of floats: any pattern, and many of similar size, so that sums cancel and products round."""
    w = width(kind)
    bits = rng.integers(0, 1 << w, count, dtype=np.uint64)
    precision, top = FORMATS[kind]
    one = top << (precision - 1)
    usual = one - (2 << (precision - 1)) + (bits & np.uint64((4 << (precision - 1)) - 1))
    usual |= (bits >> np.uint64(w - 1)) << np.uint64(w - 1)
    usual &= ~np.where(rng.random(count) < 0.5, np.uint64((1 << precision // 2) - 1), np.uint64(0))
    small = bits & np.uint64((1 << (w - 1)) | ((1 << precision) - 1))
    choice = rng.integers(0, 6, count)
    return np.where(choice < 3, usual, np.where(choice == 3, small, bits)).astype(UNSIGNED[w])


OPERATIONS: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
}


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_float_operations_round_the_exact_result_once(name: str, kind: str) -> None:
    if width(kind) == 16 and name in ("div", "rcp"):
        return
    rng = np.random.default_rng()
    function = OPERATIONS[name]
    count = {"fma": 3, "rcp": 1}.get(name, 2)
    for mode in ("rn",) if width(kind) == 16 else ("rn", "rz", "rm", "rp"):
        values = [floats(kind, 300, rng) for _ in range(count)]
        if name == "fma":
            # Half of the addends almost undo their product, and some make a tie.
            numbers = [exact(int(a), kind) * exact(int(b), kind) for a, b in zip(*values[:2], strict=True)]
            for i in range(0, 300, 2):
                number = numbers[i]
                if isinstance(number, Fraction) and number:
                    near = nearest(-number, kind, "rn")
                    values[2][i] = near if i % 4 else max(near - (12 << (FORMATS[kind][0] - 1)), 0)
        operands = ", ".join(f"%x{i}" for i in range(count))
        got = apply(f"{name}.{mode}.{kind} %y, {operands};", kind, *((kind, v) for v in values))
        for i, row in enumerate(zip(*values, strict=True)):
            inputs = [exact(int(v), kind) for v in row]
            if not all(isinstance(v, Fraction) for v in inputs) or (
                name in ("div", "rcp") and inputs[-1] == 0
            ):
                continue
            value = function(*inputs)
            if value:
                assert got[i] == nearest(value, kind, mode), (name, mode, kind, [hex(int(v)) for v in row])
            else:
                assert int(got[i]) << 1 & ((1 << width(kind)) - 1) == 0


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_square_root_rounds_once(kind: str) -> None:
    values = floats(kind, 300, np.random.default_rng()) & UNSIGNED[width(kind)]((1 << (width(kind) - 1)) - 1)
    for mode in ("rn", "rz", "rm", "rp"):
        got = apply(f"sqrt.{mode}.{kind} %y, %x0;", kind, (kind, values))
        for bits, root in zip(values.tolist(), got.tolist(), strict=True):
            value = exact(bits, kind)
            if not isinstance(value, Fraction) or not value:
                continue
            near = [exact(root + step, kind) for step in (-1, 0, 1)]
            below, at, above = (x for x in near if isinstance(x, Fraction))
            if mode == "rn":
                assert ((below + at) / 2) ** 2 < value < ((at + above) / 2) ** 2
            elif mode == "rp":
                assert below**2 < value <= at**2
            else:
                assert at**2 <= value < above**2


def test_special_values_follow_ieee() -> None:
    special = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan], np.float32)
    a, b, c = (x.reshape(-1) for x in np.meshgrid(special, special, special))
    with np.errstate(all="ignore"):
        expected = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b}
        fused = (a.astype(np.float64) * b + c).astype(np.float32)
    for name, values in expected.items():
        got = apply(f"{name}.rn.f32 %y, %x0, %x1;", "f32", ("f32", a), ("f32", b)).view(np.float32)
        np.testing.assert_array_equal(got, values)
        assert (np.signbit(got) == np.signbit(values))[~np.isnan(values)].all()
    got = apply("fma.rn.f32 %y, %x0, %x1, %x2;", "f32", ("f32", a), ("f32", b), ("f32", c)).view(np.float32)
    np.testing.assert_array_equal(got, fused)
    assert set(got[np.isnan(got)].view(np.uint32).tolist()) == {0x7FFFFFFF}
    for name, choose in (("min", np.fmin), ("max", np.fmax)):
        got = apply(f"{name}.f32 %y, %x0, %x1;", "f32", ("f32", a), ("f32", b)).view(np.float32)
        np.testing.assert_array_equal(got, choose(a, b))
        zeros = (a == 0) & (b == 0)
        minus = np.signbit(a) | np.signbit(b) if name == "min" else np.signbit(a) & np.signbit(b)
        assert (np.signbit(got) == minus)[zeros].all()
        got = apply(f"{name}.NaN.f32 %y, %x0, %x1;", "f32", ("f32", a), ("f32", b)).view(np.float32)
        assert (np.isnan(got) == (np.isnan(a) | np.isnan(b))).all()


def test_flush_and_saturate() -> None:
    tiny = np.array([1e-40, -1e-40, 2e-38, -1.0, 0.25, 3.0, np.nan, -0.0], np.float32)
    one = np.ones_like(tiny)
    got = apply("mul.ftz.f32 %y, %x0, %x1;", "f32", ("f32", tiny), ("f32", one)).view(np.float32)
    np.testing.assert_array_equal(got, np.where(np.abs(tiny) < 1.2e-38, 0 * tiny, tiny))
    assert np.signbit(got[1])
    got = apply("add.sat.f32 %y, %x0, 0f00000000;", "f32", ("f32", tiny)).view(np.float32)
    np.testing.assert_array_equal(got, np.clip(np.nan_to_num(tiny), 0, 1))
    assert not np.signbit(got).any()


@pytest.mark.parametrize("kind", ["f32", "f64", "f16"])
def test_comparisons_know_nan(kind: str) -> None:
    values = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan], f"f{width(kind) // 8}")
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    nan = np.isnan(a) | np.isnan(b)
    table = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    expected = {n: v & ~nan for n, v in table.items()} | {f"{n}u": v | nan for n, v in table.items()}
    for name, truth in (expected | {"num": ~nan, "nan": nan}).items():
        code = f"setp.{name}.{kind} %p1|%p2, %x0, %x1; selp.u32 %y, 1, 0, %p1; @%p2 add.u32 %y, %y, 2;"
        assert (apply(code, "u32", (kind, a), (kind, b)) == np.where(truth, 1, 2)).all(), name


def test_approximations_are_close() -> None:
    x = np.random.default_rng().uniform(0.1, 9, 200).astype(np.float32)
    wide = x.astype(np.float64)
    table: dict[str, Any] = {
        "ex2": np.exp2,
        "lg2": np.log2,
        "sin": np.sin,
        "cos": np.cos,
        "tanh": np.tanh,
        "sqrt": np.sqrt,
    }
    table |= {"rcp": np.reciprocal, "rsqrt": lambda v: v**-0.5}
    for name, function in table.items():
        got = apply(f"{name}.approx.f32 %y, %x0;", "f32", ("f32", x)).view(np.float32)
        np.testing.assert_allclose(got, function(wide), rtol=2e-7, err_msg=name)


# -- conversions ---------------------------------------------------------------------------------------------


@pytest.mark.few(7)
@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_float_to_float_conversion(source: str, target: str) -> None:
    values = floats(source, 300, np.random.default_rng())
    down = FORMATS[target][0] < FORMATS[source][0] or FORMATS[target][1] < FORMATS[source][1]
    for mode in ("rn", "rz", "rm", "rp") if down and width(target) != 16 else ("rn", "rz") if down else ("",):
        got = apply(f"cvt.{mode}{'.' if mode else ''}{target}.{source} %y, %x0;", target, (source, values))
        for before, after in zip(values.tolist(), got.tolist(), strict=True):
            value = exact(before, source)
            if not isinstance(value, Fraction):
                assert exact(after, target) == value or value != value
            elif value:
                assert after == nearest(value, target, mode or "rn"), (mode, hex(before))


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_conversion_to_integers_rounds_and_clamps(source: str, target: str) -> None:
    rng = np.random.default_rng()
    values = np.concatenate([floats(source, 200, rng), floats(source, 1, rng) * 0 + np.array(0).astype("u1")])
    bits = width(target)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
    table: dict[str, Any] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
    for name, function in table.items():
        got = apply(f"cvt.{name}.{target}.{source} %y, %x0;", target, (source, values))
        for before, after in zip(values.tolist(), got.tolist(), strict=True):
            value = exact(before, source)
            if value != value:
                expected = 1 << (bits - 1) if bits == 64 or source == "f64" else 0
            elif isinstance(value, float):
                expected = high if value > 0 else low
            else:
                expected = min(max(function(value), low), high)
            assert after == expected & ((1 << bits) - 1), (name, hex(before))


@pytest.mark.few(3)
@pytest.mark.parametrize("source", ["s8", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("target", FORMATS)
def test_conversion_from_integers_rounds_once(source: str, target: str) -> None:
    bits = width(source)
    rng = np.random.default_rng()
    raw = rng.integers(0, 1 << bits, 200, dtype=np.uint64) >> rng.integers(0, bits, 200, dtype=np.uint64)
    ties = (np.uint64(1) << rng.integers(0, bits, 200, dtype=np.uint64)) * np.uint64(3) // np.uint64(
        2
    ) + np.uint64(1)
    values = np.concatenate([raw, ties, np.array([(1 << bits) - 1], np.uint64)]).astype(UNSIGNED[bits])
    signed = values.view(f"i{bits // 8}") if source[0] == "s" else values
    for mode in ("rn", "rz", "rm", "rp"):
        got = apply(f"cvt.{mode}.{target}.{source} %y, %x0;", target, (source, values))
        for value, after in zip(signed.tolist(), got.tolist(), strict=True):
            assert after == (nearest(Fraction(value), target, mode) if value else 0), (mode, value)


def test_integer_conversions_extend_truncate_and_saturate() -> None:
    x = np.random.default_rng().integers(-(2**31), 2**31, 300).astype(np.int32)
    assert (apply("cvt.s64.s32 %y, %x0;", "s64", ("s32", x)).view(np.int64) == x).all()
    assert (apply("cvt.u64.u32 %y, %x0;", "s64", ("s32", x)) == x.view(np.uint32)).all()
    assert (apply("cvt.s32.s8 %y, %x0;", "s32", ("s32", x)).view(np.int32) == x.astype(np.int8)).all()
    assert (apply("cvt.u32.u16 %y, %x0;", "u32", ("s32", x)) == x.astype(np.uint16)).all()
    assert (apply("cvt.sat.u8.s32 %y, %x0;", "u32", ("s32", x)) == np.clip(x, 0, 255)).all()
    assert (
        apply("cvt.sat.s16.s32 %y, %x0;", "s32", ("s32", x)).view(np.int32) == np.clip(x, -32768, 32767)
    ).all()


def test_narrow_float_formats() -> None:
    rng = np.random.default_rng()
    a, b = (np.ldexp(rng.standard_normal(400), rng.integers(-12, 12, 400)).astype(np.float32) for _ in "ab")
    formats: list[tuple[str, Any, float]] = [
        ("e4m3", ml_dtypes.float8_e4m3fn, 448),
        ("e5m2", ml_dtypes.float8_e5m2, 57344),
    ]
    for name, dtype, top in formats:
        halves = [np.clip(v, -top, top).astype(dtype).view(np.uint8).astype(np.uint16) for v in (a, b)]
        got = apply(f"cvt.rn.satfinite.{name}x2.f32 %y, %x0, %x1;", "b16", ("f32", a), ("f32", b))
        assert (got == (halves[0] << 8 | halves[1])).all()
        back = apply(f"cvt.rn.f16x2.{name}x2 %y, %x0;", "b32", ("b16", got))
        assert (back.view(np.float16)[::2] == halves[1].astype(np.uint8).view(dtype).astype(np.float16)).all()
    got = apply("cvt.rn.bf16x2.f32 %y, %x0, %x1;", "b32", ("f32", a), ("f32", b)).view(np.uint16)
    assert (got[1::2] == a.astype(ml_dtypes.bfloat16).view(np.uint16)).all()
    assert (got[::2] == b.astype(ml_dtypes.bfloat16).view(np.uint16)).all()
    got = apply("cvt.rna.tf32.f32 %y, %x0;", "b32", ("f32", a))
    assert (got == ((a.view(np.uint32) + 0x1000) & 0xFFFFE000)).all()


def test_packed_halves() -> None:
    rng = np.random.default_rng()
    a, b, c = (rng.standard_normal(200).astype(np.float16) for _ in range(3))
    got = apply("fma.rn.f16x2 %y, %x0, %x1, %x2;", "b32", *(("f16x2", v) for v in (a, b, c))).view(np.float16)
    exactly = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    assert (got == exactly.astype(np.float16)).all()
    got = apply("max.f16x2 %y, %x0, %x1;", "b32", ("f16x2", a), ("f16x2", b)).view(np.float16)
    assert (got == np.maximum(a, b)).all()
    code = "setp.gt.f16x2 %p1|%p2, %x0, %x1; selp.u32 %y, 1, 0, %p1; @%p2 add.u32 %y, %y, 2;"
    got = apply(code, "u32", ("f16x2", a), ("f16x2", b))
    assert (got == (a > b)[::2] + 2 * (a > b)[1::2]).all()


# -- integers ------------------------------------------------------------------------------------------------


def funnel(a: int, b: int, c: int) -> int:
    return ((b << 32 | a) << (c & 31)) >> 32


def truncated(a: int, b: int) -> int:
    return int(Fraction(a, b)) if b else -1


def field(a: int, start: int, length: int, bits: int, signed: bool) -> int:
    start, length = start & 255, length & 255
    sign = a >> min(start + length - 1, bits - 1) & 1 if signed and length else 0
    return sum((a >> start + i & 1 if i < length and start + i < bits else sign) << i for i in range(bits))


def placed(a: int, b: int, start: int, length: int, bits: int) -> int:
    for i in range(min(length & 255, bits)):
        at = (start & 255) + i
        if at < bits:
            b = b & ~(1 << at) | (a >> i & 1) << at
    return b


def bytes_of(a: int, b: int, c: int) -> int:
    source, result = (b << 32 | a).to_bytes(8, "little"), 0
    for i in range(4):
        nibble = c >> 4 * i & 15
        byte = source[nibble & 7]
        result |= (255 * (byte >> 7) if nibble & 8 else byte) << 8 * i
    return result


def dot(a: int, b: int, c: int) -> int:
    parts = zip(a.to_bytes(4, "little"), b.to_bytes(4, "little"), strict=True)
    return c + sum((x - 256 * (x > 127)) * y for x, y in parts)


INTEGERS: list[tuple[str, str, list[str], Callable[..., int]]] = [
    ("add.s32", "s32", ["s32", "s32"], lambda a, b: a + b),
    ("add.sat.s32", "s32", ["s32", "s32"], lambda a, b: max(min(a + b, 2**31 - 1), -(2**31))),
    ("sub.u64", "u64", ["u64", "u64"], lambda a, b: a - b),
    ("mul.lo.s32", "s32", ["s32", "s32"], lambda a, b: a * b),
    ("mul.hi.s32", "s32", ["s32", "s32"], lambda a, b: a * b >> 32),
    ("mul.hi.u64", "u64", ["u64", "u64"], lambda a, b: a * b >> 64),
    ("mul.hi.s64", "s64", ["s64", "s64"], lambda a, b: a * b >> 64),
    ("mul.wide.s16", "s32", ["s16", "s16"], lambda a, b: a * b),
    ("mul.wide.u32", "u64", ["u32", "u32"], lambda a, b: a * b),
    ("mad.lo.u16", "u16", ["u16", "u16", "u16"], lambda a, b, c: a * b + c),
    ("mad.hi.s32", "s32", ["s32", "s32", "s32"], lambda a, b, c: (a * b >> 32) + c),
    ("mad.wide.s32", "s64", ["s32", "s32", "s64"], lambda a, b, c: a * b + c),
    ("mul24.lo.s32", "s32", ["s32", "s32"], lambda a, b: wrap(a, 24) * wrap(b, 24)),
    ("div.s32", "s32", ["s32", "s32"], truncated),
    ("div.u64", "u64", ["u64", "u64"], truncated),
    ("rem.s64", "s64", ["s64", "s64"], lambda a, b: a - b * truncated(a, b)),
    ("rem.u32", "u32", ["u32", "u32"], lambda a, b: a % b if b else a),
    ("neg.s32", "s32", ["s32"], lambda a: -a),
    ("abs.s64", "s64", ["s64"], abs),
    ("min.s32", "s32", ["s32", "s32"], min),
    ("max.u64", "u64", ["u64", "u64"], max),
    ("sad.u32", "u32", ["u32", "u32", "u32"], lambda a, b, c: abs(a - b) + c),
    ("and.b32", "b32", ["b32", "b32"], lambda a, b: a & b),
    ("xor.b64", "b64", ["b64", "b64"], lambda a, b: a ^ b),
    ("not.b16", "b16", ["b16"], lambda a: ~a),
    ("cnot.b32", "b32", ["b32"], lambda a: int(a == 0)),
    ("shl.b32", "b32", ["b32", "shift"], lambda a, s: a << s),
    ("shr.u64", "u64", ["u64", "shift"], lambda a, s: a >> s),
    ("shr.s32", "s32", ["s32", "shift"], lambda a, s: a >> s),
    ("shf.l.wrap.b32", "b32", ["u32", "u32", "shift"], funnel),
    ("shf.r.clamp.b32", "b32", ["u32", "u32", "shift"], lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    ("prmt.b32", "b32", ["u32", "u32", "u32"], bytes_of),
    ("bfe.u32", "u32", ["u32", "shift", "shift"], lambda a, s, n: field(a, s, n, 32, False)),
    ("bfe.s64", "s64", ["s64", "shift", "shift"], lambda a, s, n: field(a, s, n, 64, True)),
    ("bfi.b32", "b32", ["u32", "u32", "shift", "shift"], lambda a, b, s, n: placed(a, b, s, n, 32)),
    ("bfind.s32", "u32", ["s32"], lambda a: (a if a >= 0 else ~a).bit_length() - 1),
    ("clz.b64", "u32", ["u64"], lambda a: 64 - a.bit_length()),
    ("popc.b32", "u32", ["u32"], lambda a: a.bit_count()),
    ("brev.b32", "b32", ["u32"], lambda a: int(f"{a:032b}"[::-1], 2)),
    ("dp4a.s32.u32", "s32", ["u32", "u32", "s32"], dot),
]


def wrap(value: int, bits: int) -> int:
    """A Python integer as a signed one of that many bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


@pytest.mark.parametrize(("name", "result", "kinds", "function"), INTEGERS, ids=[row[0] for row in INTEGERS])
def test_integer_instructions(name: str, result: str, kinds: list[str], function: Callable[..., int]) -> None:
    rows = []
    for _ in range(250):
        row = []
        for kind in kinds:
            bits = 32 if kind == "shift" else width(kind)
            value = random.getrandbits(bits) >> random.choice([0, 0, bits // 2, bits - 2])
            value = random.choice([value, value, -value, 0, 1 << (bits - 1), (1 << bits) - 1])
            value = random.randrange(80) if kind == "shift" else value
            row.append(wrap(value, bits) if kind[0] == "s" and kind != "shift" else value & ((1 << bits) - 1))
        rows.append(row)
    sources = []
    for i, kind in enumerate(kinds):
        bits = 32 if kind == "shift" else width(kind)
        column = np.array([row[i] & ((1 << bits) - 1) for row in rows], np.uint64).astype(UNSIGNED[bits])
        sources.append((f"u{bits}", column))
    operands = ", ".join(f"%x{i}" for i in range(len(kinds)))
    got = apply(f"{name} %y, {operands};", result, *sources)
    for row, value in zip(rows, got.tolist(), strict=True):
        assert value == function(*row) & ((1 << width(result)) - 1), row


def test_any_lop3_table_and_wide_carries() -> None:
    x = [np.random.default_rng().integers(0, 2**32, 100).astype(np.uint32) for _ in range(4)]
    table = random.randrange(256)
    got = apply(f"lop3.b32 %y, %x0, %x1, %x2, {table};", "b32", *(("b32", v) for v in x[:3]))
    for bit in range(32):
        rows = sum((v >> np.uint32(bit) & 1) << np.uint32(2 - i) for i, v in enumerate(x[:3]))
        assert ((got >> np.uint32(bit) & 1) == (np.uint32(table) >> rows & 1)).all()
    code = """add.cc.u32 %r3, %x0, %x1; addc.cc.u32 %r4, %x2, %x3; addc.u32 %r5, 0, 0;
    sub.cc.u32 %r3, %r3, %x1; subc.cc.u32 %r4, %r4, %x3; subc.u32 %r5, %r5, 0;
    xor.b32 %r3, %r3, %x0; xor.b32 %r4, %r4, %x2; or.b32 %y, %r3, %r4; or.b32 %y, %y, %r5;"""
    assert not apply(code, "u32", *(("u32", v) for v in x)).any()
    low = apply(
        "mad.lo.cc.u32 %r3, %x0, %x1, %x2; madc.hi.u32 %y, %x0, %x1, %x3;", "u32", *(("u32", v) for v in x)
    )
    a, b, c, d = (v.tolist() for v in x)
    expected = [(p * q + (s << 32 | r)) >> 32 & 0xFFFFFFFF for p, q, r, s in zip(a, b, c, d, strict=True)]
    assert low.tolist() == expected
