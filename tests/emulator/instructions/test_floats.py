"""Arithmetic on floats against exact rational numbers, in every rounding, type and way of running."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.harness import exact
from tests.harness.exact import FORMATS, NAN, Number, Special, decode, evaluate, round_to
from tests.harness.many import Array, refused, run

_MODES = ("rn", "rz", "rm", "rp")
_SEED = np.random.SeedSequence()  # fresh in every run; a failure prints it
_RNG = np.random.default_rng(_SEED)


def edges(type_: str) -> list[int]:
    """Zeros, ones, the limits of normal and subnormal numbers, infinities, NaN of several payloads."""
    of = FORMATS[type_]
    unit, one = 1 << of.fraction, of.bias << of.fraction
    sizes = [
        0, 1, 2, 3, unit - 1, unit, unit + 1, 2 * unit, one - 1, one, one + 1, one + unit // 2, one + unit,
        of.largest - 1, of.largest, of.infinity, of.infinity + 1, of.infinity + unit // 2, of.sign - 1,
    ]  # fmt: skip
    return [size | sign for size in sizes for sign in (0, of.sign)]


def operands(type_: str, sources: int, count: int) -> list[Array]:
    """Edges with edges, random bits, numbers near one another, and products near limits and halfway."""
    of = FORMATS[type_]
    kind = np.dtype(f"u{of.bits // 8}")
    some = edges(type_)
    if sources == 2:
        columns = [np.array(column, kind) for column in zip(*itertools.product(some, some), strict=True)]
    else:
        columns = [np.array(some, kind)[_RNG.integers(0, len(some), len(some) * 12)] for _ in range(sources)]
    wild = [np.frombuffer(_RNG.bytes(count * kind.itemsize), kind) for _ in range(sources)]
    # Few digits and near exponents: sums that cancel, ties, exact products.
    low = of.bias + _RNG.choice([-of.bias, -of.bias // 2, -3, of.bias // 2 - 2, of.bias - 6], count)
    near = []
    for _ in range(sources):
        power = np.clip(low + _RNG.integers(-4, 5, count), 0, (1 << of.exponent) - 2).astype(np.uint64)
        digits = _RNG.integers(0, 16, count, np.uint64) << np.uint64(of.fraction - 4)
        digits |= _RNG.integers(0, 2, count, np.uint64)
        sign = _RNG.integers(0, 2, count, np.uint64) << np.uint64(of.bits - 1)
        near.append((sign | power << np.uint64(of.fraction) | digits).astype(kind))
    return [np.concatenate(parts) for parts in zip(columns, wild, near, strict=True)]


def flushed(bits: int, type_: str) -> int:
    of = FORMATS[type_]
    return bits if bits & of.infinity else bits & of.sign


def limited(value: Number | Special, words: list[str]) -> Number | Special:
    """.sat and .relu, on the exact result."""
    zero = exact.integer(0)
    if "sat" in words:
        if isinstance(value, Special):
            return exact.integer(1) if value.sign > 0 else zero
        return zero if value.value <= 0 else min(value, exact.integer(1), key=lambda number: number.value)
    if "relu" in words and value != NAN:
        below = value.sign < 0 if isinstance(value, Special) else value.negative or not value.value
        return zero if below else value
    return value


def expected(name: str, bits: tuple[int, ...]) -> int | None:
    """The bits of one result; None is NaN."""
    operation, *words = name.split(".")
    type_ = words[-1]
    mode = next((word for word in words if word in _MODES), "rn")
    if "ftz" in words:
        bits = tuple(flushed(item, type_) for item in bits)
    numbers = [decode(item, FORMATS[type_]) for item in bits]
    if operation == "rcp":
        operation, numbers = "div", [exact.integer(1), *numbers]
    value = limited(evaluate("fma" if operation == "mad" else operation, mode, *numbers), words)
    of = FORMATS[type_]
    found = round_to(value, of, mode)
    if found is None or "ftz" not in words:
        return found
    # As measured on an H200: what would be below the smallest normal number if exponents had no end is zero.
    unbounded = exact.Format(15, of.fraction, (1 << 14) - 1)
    whole = decode(round_to(value, unbounded, mode) or 0, unbounded)
    tiny = isinstance(whole, Number) and abs(whole.value) < Fraction(2) ** (1 - of.bias)
    return found & of.sign if tiny else found


def agree(got: int, want: int | None, type_: str) -> bool:
    if want is not None:
        return got == want
    if type_ in ("f16", "bf16"):
        return got == 0x7FFF
    return got & (FORMATS[type_].sign - 1) > FORMATS[type_].infinity


def check(names: list[str], inputs: list[Array], ways: tuple[str, ...] = ("vector",)) -> None:
    """Run instructions of one type, and compare each result of each way."""
    type_ = names[0].split(".")[-1]
    bits = FORMATS[type_].bits
    sources = ", ".join(f"{{{letter}}}" for letter in "abcd"[: len(inputs)])
    texts = [(f"{name} {{d}}, {sources};", bits) for name in names]
    rows = list(zip(*(array.tolist() for array in inputs), strict=True))
    wanted = [[expected(name, row) for row in rows] for name in names]
    for way in ways:
        some = len(rows) if way == "vector" else 600
        for name, results, want in zip(
            names, run(texts, [array[:some] for array in inputs], way), wanted, strict=True
        ):
            for i, got in enumerate(results.tolist()):
                if way == "guarded" and i % 2 == 0:
                    assert got == rows[i][0], (name, way, "an idle lane changed")
                    continue
                assert agree(got, want[i], type_), (
                    f"{name} of {[hex(item) for item in rows[i]]}, {way}: {got:#x}, expected "
                    f"{'NaN' if want[i] is None else hex(want[i] or 0)}; seed {_SEED.entropy}"
                )


def _named(operations: str, modifiers: list[str], type_: str) -> list[str]:
    return [f"{word}{modifier}.{type_}" for word in operations.split() for modifier in modifiers]


_ROUNDED = [f".{mode}" for mode in _MODES]
_F32 = [*_ROUNDED, ".rn.ftz", ".rz.ftz", ".rn.sat", ".rp.ftz.sat"]
_ALL_WAYS = ("vector", "uniform", "guarded")


@pytest.mark.parametrize(
    ("names", "type_", "sources", "count"),
    [
        (_named("add sub mul", ["", *_F32], "f32"), "f32", 2, 300),
        (_named("div", [*_ROUNDED, ".rn.ftz", ".rm.ftz"], "f32"), "f32", 2, 300),
        (_named("fma mad", _F32, "f32"), "f32", 3, 400),
        (_named("rcp sqrt", [*_ROUNDED, ".rn.ftz", ".rp.ftz"], "f32"), "f32", 1, 600),
        (_named("add sub mul", ["", *_ROUNDED], "f64"), "f64", 2, 150),
        (_named("div", _ROUNDED, "f64"), "f64", 2, 150),
        (_named("fma mad", _ROUNDED, "f64"), "f64", 3, 250),
        (_named("rcp sqrt", _ROUNDED, "f64"), "f64", 1, 300),
        (_named("add sub mul", ["", ".rn", ".ftz", ".sat", ".rn.ftz.sat"], "f16"), "f16", 2, 500),
        (_named("fma", [".rn", ".rn.ftz", ".rn.sat", ".rn.relu", ".rn.ftz.relu"], "f16"), "f16", 3, 2500),
        (_named("add sub mul", ["", ".rn"], "bf16"), "bf16", 2, 1500),
        (_named("fma", [".rn", ".rn.relu"], "bf16"), "bf16", 3, 4000),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_every_rounding_is_exact(names: list[str], type_: str, sources: int, count: int) -> None:
    inputs = operands(type_, sources, count)
    order = _RNG.permutation(len(inputs[0]))  # so that the shorter ways see some of everything
    check(names, [array[order] for array in inputs], _ALL_WAYS if type_ == "bf16" else (*_ALL_WAYS, "typed"))


def test_products_about_the_smallest_normal_number_are_flushed_or_not() -> None:
    """Of f16: all x with the y for which x·y is next to 2**-14, on both sides of it."""
    x = np.arange(0, 1024, 5)
    least = (np.ceil(2.0**21 / (1024 + x)) - 1024).astype(np.int64)  # digits of the least y of 2**-14 or more
    rows = [
        (a, b)
        for digits, y in zip(x, least, strict=True)
        for a in [digits]
        for b in (y - 1, y, y + 1)
        if 0 <= b < 1024
    ]
    low = np.array([0x2000 | a for a, _ in rows], np.uint16)  # 2**-7 and more
    high = np.array([0x1C00 | b for _, b in rows], np.uint16)  # 2**-8 and more
    sign = np.where(np.arange(len(rows)) % 3, 0, 0x8000).astype(np.uint16)
    check(["mul.ftz.f16", "mul.rn.ftz.sat.f16"], [low | sign, high])
    for c in (0, 0x8000):
        check(["fma.rn.ftz.f16", "fma.rn.ftz.relu.f16"], [low, high | sign, np.full_like(low, c)])


def test_a_sum_of_f16_that_a_float_would_put_between_two_numbers_is_beyond_it() -> None:
    """x·y is 16 and some 2**-11, half a digit of z and little more, in places that a float of z's size has not."""
    x, y = np.float16(993 / 256), np.float16(4.125)
    for sign in (0, 0x8000):
        z = np.array([0x7800, 0x7801, 0x7802], np.uint16) | np.uint16(sign)
        a = np.full(3, x.view(np.uint16) | sign, np.uint16)
        check(["fma.rn.f16", "fma.rn.ftz.f16"], [a, np.full(3, y.view(np.uint16)), z])


@pytest.mark.parametrize(
    ("operation", "a", "b"),
    [
        ("mul", 0x3F7F_FFFF, 0x0080_0000), ("mul", 0x3F00_0001, 0x00FF_FFFE), ("mul", 0x3F00_0001, 0x00FF_FFFF),
        ("div", 0x00FF_FFFF, 0x4000_0000), ("div", 0x0100_0000, 0x4000_0001), ("div", 0x00FF_FFFE, 0x3FFF_FFFF),
        ("rcp", 0x7E80_0000, 0), ("rcp", 0x7E80_0001, 0), ("rcp", 0x7E7F_FFFF, 0),
    ],
)  # fmt: skip
def test_floats_about_the_smallest_normal_number_are_flushed_or_not(operation: str, a: int, b: int) -> None:
    """Of what is less only by half of its own last digit nothing is left, in every rounding and of both signs."""
    first = np.array([a, a | 1 << 31], np.uint32)
    second, zero = np.full_like(first, b), np.zeros_like(first)
    names = _named(operation, [f"{mode}.ftz" for mode in _ROUNDED], "f32")
    check(names, [first] if operation == "rcp" else [first, second])
    if operation == "mul":
        check(_named("fma", [f"{mode}.ftz" for mode in _ROUNDED], "f32"), [first, second, zero])


@pytest.mark.parametrize(("type_", "x", "y"), [("bf16", 0x3FC0, 0x3FAE), ("f16", 0x4200, 0x53D2)])
def test_a_fused_sum_of_two_byte_floats_is_rounded_once(type_: str, x: int, y: int) -> None:
    """x·y is halfway between two numbers; a third operand, too small for a float's digits, decides."""
    sign = FORMATS[type_].sign
    small = [1, sign | 1, 3, sign | 3, FORMATS[type_].infinity // 8, FORMATS[type_].infinity // 8 | sign]
    a, b, c = (np.array(column, np.uint16) for column in ([x] * 6, [y] * 6, small))
    check([f"fma.rn.{type_}"], [a, b, c])
    (results,) = run([(f"fma.rn.{type_} {{d}}, {{a}}, {{b}}, {{c}};", 16)], [a, b, c])
    assert len(set(results.tolist())) == 2


def _packed(a: Array) -> Array:
    return np.ascontiguousarray(a[: len(a) // 2 * 2]).view(np.dtype(f"u{a.dtype.itemsize * 2}"))


@pytest.mark.parametrize(
    ("type_", "instructions"),
    [
        ("f16x2", "add sub.ftz mul.sat fma.rn fma.rn.relu min max.NaN neg abs"),
        ("bf16x2", "add sub.rn mul fma.rn fma.rn.relu min.NaN max.xorsign.abs neg abs"),
        ("f32x2", "add sub.rz mul.rp.ftz fma.rn fma.rm.ftz"),
    ],
)
def test_packed_types_do_what_their_parts_do(type_: str, instructions: str) -> None:
    part = type_[:-2]
    bits = FORMATS[part].bits
    whole = [array.copy() for array in operands(part, 3, 300)]
    for array in whole:
        _RNG.shuffle(array)
    whole = [array[: len(array) // 2 * 2] for array in whole]
    counts = {"neg": 1, "abs": 1, "fma": 3}
    texts = [
        (name, ", ".join(["{a}", "{b}", "{c}"][: counts.get(name.split(".")[0], 2)]))
        for name in instructions.split()
    ]
    apart = run([(f"{name}.{part} {{d}}, {sources};", bits) for name, sources in texts], whole)
    together = run(
        [(f"{name}.{type_} {{d}}, {sources};", bits * 2) for name, sources in texts],
        list(map(_packed, whole)),
    )
    of = FORMATS[part]
    for (name, _), one, two in zip(texts, apart, together, strict=True):
        both = two.view(one.dtype)
        nan = (one & (of.sign - 1) > of.infinity) & (both & (of.sign - 1) > of.infinity) & (part == "f32")
        assert (nan | (both == one)).all(), f"{name}.{type_}; seed {_SEED.entropy}"


@pytest.mark.parametrize("way", ["vector", "uniform"])
def test_a_nan_that_becomes_an_integer_is_a_gpu_s(way: str) -> None:
    """Positive, all digits set: ``fmodf`` looks at its sign. A NaN that was loaded keeps its digits."""
    infinite, nan = np.full(5, 0x7F80_0000, np.uint32), np.full(5, 0xFFC1_2345, np.uint32)
    names = ("add.f32 %f0, {a}, %f1", "sub.f32 %f0, {a}, {a}", "mul.f32 %f0, {a}, 0f00000000",
             "fma.rn.f32 %f0, {a}, %f1, {a}", "fma.rn.ftz.f32 %f0, {b}, {b}, {b}", "mov.b32 %f0, {b}")  # fmt: skip
    texts = [f"{{{{ .reg .f32 %f<2>; neg.f32 %f1, {{a}}; {name}; mov.b32 {{d}}, %f0; }}}}" for name in names]
    *results, loaded = run([(text, 32) for text in texts], [infinite, nan], way)
    assert [hex(result[0]) for result in results] == ["0x7fffffff"] * 5
    assert (loaded == nan).all()


@pytest.mark.parametrize("way", ["vector", "uniform"])
def test_of_quotients_and_roots_every_nan_is_the_one_that_gpus_give(way: str) -> None:
    """Whatever digits and sign a NaN among the operands has, and where there is none: 0/0, and the root of -1."""
    divide = _named("div", [*_ROUNDED, ".rn.ftz", ".approx", ".full"], "f32")
    others = [*_named("rcp sqrt", [*_ROUNDED, ".approx"], "f32"), "rsqrt.approx.f32"]
    texts = [(f"{name} {{d}}, {{a}}, {{b}};", 32) for name in divide]
    texts += [(f"{name} {{d}}, {{c}};", 32) for name in others]
    a = np.array([0x7FC1_2345, 0xFFC0_0001, 0x3F80_0000, 0, 0x7F80_0000, 0x7F80_0001], np.uint32)
    b = np.array([0x3F80_0000, 0x3F80_0000, 0xFFC1_2345, 0, 0xFF80_0000, 0x3F80_0000], np.uint32)
    c = np.array([0x7FC1_2345, 0xFFC0_0001, 0x7F80_0001, 0xFFFF_FFFF, 0xFF80_0001, 0x7FFF_FFFF], np.uint32)
    for (text, _), result in zip(texts, run(texts, [a, b, c], way), strict=True):
        assert (result == 0x7FFF_FFFF).all(), (text, [hex(item) for item in result])
    roots = [(f"{name} {{d}}, {{a}};", 32) for name in others if not name.startswith("rcp")]
    for (text, _), result in zip(roots, run(roots, [np.array([0xBF80_0000], np.uint32)], way), strict=True):
        assert result.tolist() == [0x7FFF_FFFF], text


def test_mixed_types_widen_first() -> None:
    count = 400
    halves = [np.concatenate([_RNG.permutation(edges("f16") + edges("bf16")).astype(np.uint16),
                              _RNG.integers(0, 2**16, count, np.uint16)]) for _ in range(2)]  # fmt: skip
    size = len(halves[0])
    single = np.resize(np.array(edges("f32"), np.uint32), size)
    single[-count // 2 :] = _RNG.integers(0, 2**32, count // 2, np.uint32)
    for type_ in ("f16", "bf16"):
        names = [f"{word}{way}.f32.{type_}" for word in ("add", "sub") for way in ("", ".rz", ".rp.sat")]
        fused = [f"fma{way}.f32.{type_}" for way in (".rn", ".rm", ".rz.sat")]
        texts = [(f"{name} {{d}}, {{a}}, {{c}};", 32) for name in names]
        texts += [(f"{name} {{d}}, {{a}}, {{b}}, {{c}};", 32) for name in fused]
        for name, result in zip([*names, *fused], run(texts, [*halves, single]), strict=True):
            words = name.split(".")
            mode = next((word for word in words if word in _MODES), "rn")
            for x, y, z, got in zip(*(array.tolist() for array in (*halves, single, result)), strict=True):
                wide = [decode(x, FORMATS[type_]), decode(y, FORMATS[type_]), decode(z, FORMATS["f32"])]
                given = wide if words[0] == "fma" else [wide[0], wide[2]]
                value = limited(evaluate(words[0], mode, *given), words)
                assert agree(got, round_to(value, FORMATS["f32"], mode), "f32"), (
                    name,
                    hex(x),
                    hex(y),
                    hex(z),
                )


# -- order and sign -------------------------------------------------------------------------------------
def _key(bits: int, type_: str) -> int:
    """Integers in the order of numbers, -0 before +0."""
    of = FORMATS[type_]
    return -(bits & (of.sign - 1)) - 1 if bits & of.sign else bits


def ordered(name: str, bits: tuple[int, ...]) -> int | None:
    words, type_ = name.split("."), name.split(".")[-1]
    of = FORMATS[type_]
    if "ftz" in words:
        bits = tuple(flushed(item, type_) for item in bits)
    sign = (bits[0] ^ bits[1]) & of.sign
    if "abs" in words:
        bits = tuple(item & ~of.sign for item in bits)
    numbers = [item for item in bits if item & (of.sign - 1) <= of.infinity]
    if not numbers or ("NaN" in words and len(numbers) < len(bits)):
        return None
    found = (min if words[0] == "min" else max)(numbers, key=lambda item: _key(item, type_))
    return found & ~of.sign | sign if "xorsign" in words else found


@pytest.mark.parametrize("type_", ["f32", "f64", "f16", "bf16"])
def test_min_and_max(type_: str) -> None:
    modifiers = ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"] if type_ != "f64" else [""]
    modifiers += [".ftz", ".ftz.NaN"] if type_ in ("f32", "f16") else []
    inputs = operands(type_, 2, 200)
    names = _named("min max", modifiers, type_)
    texts = [(f"{name} {{d}}, {{a}}, {{b}};", FORMATS[type_].bits) for name in names]
    if type_ == "f32":
        names += ["min.f32", "max.ftz.NaN.f32", "min.abs.f32"]
        texts += [(f"{name} {{d}}, {{a}}, {{b}}, {{c}};", 32) for name in names[-3:]]
        inputs = operands(type_, 3, 900)
    rows = list(zip(*(array.tolist() for array in inputs), strict=True))
    for way in _ALL_WAYS:
        some = len(rows) if way == "vector" else 300
        for (text, _), name, results in zip(
            texts, names, run(texts, [array[:some] for array in inputs], way), strict=True
        ):
            for i, got in enumerate(results.tolist()):
                want = (
                    rows[i][0]
                    if way == "guarded" and i % 2 == 0
                    else ordered(name, rows[i][: text.count("{") - 1])
                )
                if want is None and type_ == "f32":
                    want = 0x7FFF_FFFF
                assert agree(got, want, type_), (text, way, [hex(item) for item in rows[i]], hex(got))


@pytest.mark.parametrize("type_", ["f32", "f64", "f16", "bf16"])
def test_signs_and_kinds(type_: str) -> None:
    of = FORMATS[type_]
    a, b = operands(type_, 2, 100)
    wide = type_ in ("f32", "f64")
    names = _named("neg abs", ["", ".ftz"] if type_ in ("f32", "f16") else [""], type_)
    texts = [(f"{name} {{d}}, {{a}};", of.bits) for name in names]
    kinds = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"] if wide else []
    texts += [(f"copysign.{type_} {{d}}, {{a}}, {{b}};", of.bits)] if wide else []
    texts += [(f"testp.{kind}.{type_} {{p}}, {{a}}; selp.u32 {{d}}, 1, 0, {{p}};", 32) for kind in kinds]
    results = run(texts, [a, b])
    assert (run(texts, [a[:99], b[:99]], "uniform")[0] == results[0][:99]).all()
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        got = [int(result[i]) for result in results]
        for name, value in zip(names, got, strict=False):
            want = flushed(x, type_) if "ftz" in name else x
            want = want ^ of.sign if name.startswith("neg") else want & ~of.sign
            if x & (of.sign - 1) > of.infinity:  # as measured on an H200
                want = x | 1 << (of.fraction - 1) if type_ == "f64" else of.sign - 1
            assert value == want, (name, hex(x))
        if wide:
            size = x & (of.sign - 1)
            assert got[len(names)] == (y & ~of.sign | x & of.sign), (
                "copysign takes the sign of its first source"
            )
            small = 0 < size < 1 << of.fraction
            number, finite = size <= of.infinity, size < of.infinity
            want = [finite, number and not finite, number, not number, finite and not small, small]
            assert got[len(names) + 1 :] == [int(item) for item in want], hex(x)


def test_comparisons() -> None:
    words = ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
    for type_ in ("f32", "f64", "f16", "bf16"):
        of = FORMATS[type_]
        ftz = ["", ".ftz"] if type_ in ("f32", "f16") else [""]
        names = [f"setp.{word}{more}.{type_}" for word in words for more in ftz]
        texts = [(f"{name} {{p}}, {{a}}, {{b}}; selp.u32 {{d}}, 1, 0, {{p}};", 32) for name in names]
        a, b = operands(type_, 2, 30)
        rows = list(zip(a.tolist(), b.tolist(), strict=True))
        for name, results in zip(names, run(texts, [a, b]), strict=True):
            word = name.split(".")[1]
            for row, got in zip(rows, results.tolist(), strict=True):
                x, y = (decode(flushed(item, type_) if "ftz" in name else item, of) for item in row)
                if NAN in (x, y):
                    want = word.endswith("u") or word == "nan"
                else:
                    left, right = (
                        float(n.value) if isinstance(n, Number) else n.sign * np.inf for n in (x, y)
                    )
                    if isinstance(x, Number) and isinstance(y, Number):  # a float may not hold them
                        left, right = float(x.value - y.value > 0), float(x.value - y.value < 0)
                    want = {
                        "eq": left == right, "ne": left != right, "lt": left < right, "le": left <= right,
                        "gt": left > right, "ge": left >= right, "num": True, "nan": False,
                    }[word.removesuffix("u")]  # fmt: skip
                assert got == int(want), (name, [hex(item) for item in row])


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_comparisons_of_pairs_and_as_numbers(type_: str) -> None:
    """Each half for itself, joined with a predicate; what ``set`` makes of one that holds."""
    rng = np.random.default_rng()
    special = np.array([0, 0x8000, 1, 0x8001, 0x3C00, 0x3F80, 0x7C00, 0xFF80, 0x7FFF, 0xFFC1], np.uint16)
    a, b = (rng.choice(special, 2 * 400) for _ in "ab")
    extra = rng.integers(0, 2, 400, np.uint32)
    kind = np.float16 if type_ == "f16" else ml_dtypes.bfloat16
    with np.errstate(invalid="ignore"):  # NaN
        x, y = (array.view(kind).astype(np.float64) for array in (a, b))
    one = {"f16": 0x3C00, "bf16": 0x3F80}[type_]
    models = {"lt": x < y, "neu": x != y, "ge": x >= y, "nan": np.isnan(x) | np.isnan(y)}
    joins = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    texts, wanted = [], []
    for word, plain in models.items():
        for join, together in joins.items():
            holds = together(plain, extra.repeat(2) != 0).reshape(-1, 2)
            before = "setp.ne.u32 {q}, {c}, 0; "
            for to, unit in ((f"{type_}x2", one), ("u32", 0xFFFF)):
                texts.append((f"{before}set.{word}.{join}.{to}.{type_}x2 {{d}}, {{a}}, {{b}}, {{q}};", 32))
                wanted.append(holds[:, 0] * unit + holds[:, 1] * (unit << 16))
            for to, unit in (("u16", 0xFFFF), ("s32", 0xFFFF_FFFF), ("f32", 0x3F80_0000), ("bf16", 0x3F80)):
                low = "{{ .reg .b16 %one, %two, %got; mov.b32 {{%one, _}}, {a}; mov.b32 {{%two, _}}, {b}; "
                into = "{d}" if unit > 0xFFFF else "%got"
                low += f"set.{word}.{join}.{to}.{type_} {into}, %one, %two, {{q}};"
                low += "" if unit > 0xFFFF else " cvt.u32.u16 {d}, %got;"
                texts.append((before + low + " }}", 32))
                wanted.append(holds[:, 0] * unit)
            pair = f"setp.{word}.{join}.{type_}x2 {{p}}|{{q}}, {{a}}, {{b}}, {{q}};"
            texts.append((before + pair + " selp.u32 {d}, 1, 0, {p}; @{q} add.u32 {d}, {d}, 2;", 32))
            wanted.append(holds[:, 0] + 2 * holds[:, 1])
    for (text, _), got, want in zip(
        texts, run(texts, [a.view(np.uint32), b.view(np.uint32), extra]), wanted, strict=True
    ):
        assert (got == want).all(), text


# -- what is refused --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "instruction",
    [
        "add.rn.rz.f32 %r1, %r1, %r1;", "add.relu.f32 %r1, %r1, %r1;", "add.sat.f64 %l1, %l1, %l1;",
        "add.rz.f16 %h1, %h1, %h1;", "add.ftz.bf16 %h1, %h1, %h1;", "mul.rn.f32.f16 %r1, %h1, %r1;",
        "add.sat.f32x2 %l1, %l1, %l1;", "fma.f32 %r1, %r1, %r1, %r1;", "fma.f16 %h1, %h1, %h1, %h1;",
        "mad.f32 %r1, %r1, %r1, %r1;", "fma.rz.bf16 %h1, %h1, %h1, %h1;", "fma.rn.f64.f16 %l1, %h1, %h1, %l1;",
        "fma.rn.sat.relu.f16 %h1, %h1, %h1, %h1;", "fma.rn.oob.f16 %h1, %h1, %h1, %h1;",
        "div.f32 %r1, %r1, %r1;", "div.approx.f64 %l1, %l1, %l1;", "div.rn.f16 %h1, %h1, %h1;",
        "rcp.f32 %r1, %r1;", "rcp.approx.f64 %l1, %l1;", "rcp.rn.ftz.f64 %l1, %l1;", "sqrt.f32 %r1, %r1;",
        "rsqrt.f32 %r1, %r1;", "rsqrt.rn.f32 %r1, %r1;", "min.NaN.f64 %l1, %l1, %l1;",
        "min.xorsign.f32 %r1, %r1, %r1;", "min.abs.f32 %r1, %r1, %r1;", "max.f16 %h1, %h1, %h1, %h1;",
        "min.xorsign.abs.f32 %r1, %r1, %r1, %r1;", "neg.ftz.f64 %l1, %l1;", "copysign.ftz.f32 %r1, %r1, %r1;",
        "testp.f32 %p, %r1;", "testp.odd.f32 %p, %r1;", "testp.finite.f16 %p, %h1;",
        "add.tf32 %r1, %r1, %r1;", "sin.f32 %r1, %r1;", "sin.approx.f64 %l1, %l1;",
        "sin.approx.2pi.f32 %r1, %r1;", "cos.approx.2pi.f32 %r1, %r1;", "lg2.approx.ftz.2pi.f32 %r1, %r1;",
        "ex2.approx.bf16 %h1, %h1;", "ex2.approx.ftz.f16 %h1, %h1;", "tanh.approx.ftz.f32 %r1, %r1;",
        "lg2.approx.f16 %h1, %h1;", "rem.f32 %r1, %r1, %r1;",
    ],
)  # fmt: skip
def test_forms_that_ptx_does_not_have_are_refused(instruction: str) -> None:
    said = refused(instruction)
    assert re.split(r"[ .]", instruction)[0] in said, said
