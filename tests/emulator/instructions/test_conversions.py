"""cvt against exact rational numbers, and against ml_dtypes on every two-byte pattern."""

from __future__ import annotations

import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.harness.exact import FORMATS, NAN, Number, Special, decode, integer, round_to
from tests.harness.many import Array, refused, run

_MODES = ("rn", "rz", "rm", "rp")
_SEED = np.random.SeedSequence()
_RNG = np.random.default_rng(_SEED)
_ALL = np.arange(1 << 16, dtype=np.uint32)
_KINDS = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
_WAYS = ("vector", "uniform", "guarded")


def between(of: str, to: str, count: int) -> Array:
    """Numbers of one format, many of them numbers of another, halfway between two, or next to those."""
    source, target = FORMATS[of], FORMATS[to]
    found = [0, 1, 2, (1 << source.fraction) - 1, 1 << source.fraction, source.largest, source.infinity]
    found += [source.infinity + 1, source.sign - 1, source.infinity + (1 << (source.fraction - 1))]
    found += [round_to(integer(1), source) or 0]
    last = target.largest
    sizes = range(last + 1) if last < 300 else [*range(6), *range(last - 6, last + 1)]
    sizes = [*sizes, *(int(item) for item in _RNG.integers(0, last, count, np.uint64))]
    for size in sizes:
        here, above = decode(size, target), decode(min(size + 1, last), target)
        if isinstance(here, Special) or isinstance(above, Special):
            continue
        if size == last:  # the limit of overflow
            below = decode(size - 1, target)
            assert isinstance(below, Number)
            above = Number(2 * here.value - below.value, False)
        for value in (here.value, (here.value + above.value) / 2):
            bits = round_to(Number(value, False), source, "rz") or 0
            found += [min(max(bits + step, 0), source.infinity) for step in (-1, 0, 1)]
    wild = [int(item) for item in _RNG.integers(0, 1 << 63, count, np.uint64)]
    chosen = [bits % source.sign for bits in (*found, *wild)]
    signs = _RNG.integers(0, 2, len(chosen))
    kind = np.dtype(f"u{source.bits // 8}")
    return np.array([b | (source.sign if s else 0) for b, s in zip(chosen, signs, strict=True)], kind)


def is_nan(got: int, of: str) -> bool:
    if of in ("f16", "bf16"):
        return got == 0x7FFF
    return got & (FORMATS[of].sign - 1) > FORMATS[of].infinity


def limited(value: Number | Special, words: list[str]) -> Number | Special:
    if "sat" in words:
        if isinstance(value, Special):
            return integer(1 if value.sign > 0 else 0)
        return integer(0) if value.value <= 0 else min(value, integer(1), key=lambda number: number.value)
    if "relu" in words and value != NAN:
        below = value.sign < 0 if isinstance(value, Special) else value.negative
        return integer(0) if below else value
    return value


def flushed(bits: int, of: str) -> int:
    return bits & FORMATS[of].sign if not bits & FORMATS[of].infinity else bits


def expected(name: str, bits: int) -> int | None:
    """The bits of one number converted; None is NaN."""
    *words, to, of = name.split(".")
    mode = next((word for word in words if word in (*_MODES, "rna")), "rn")
    value = limited(decode(flushed(bits, of) if "ftz" in words and of == "f32" else bits, FORMATS[of]), words)
    found = round_to(value, FORMATS[to], mode, "satfinite" in words)
    if found is None:
        # As measured on an H200: an infinity may be left of a NaN whose digits are cut off.
        return bits & 0xFFFF_E000 if words == ["cvt", "rna"] and to == "tf32" else None
    if to == "tf32":
        return found << 13
    return flushed(found, to) if "ftz" in words and to == "f32" else found


def _check(names: list[str], source: Array, ways: tuple[str, ...] = _WAYS) -> None:
    of = names[0].split(".")[-1]
    texts = [
        (f"{name} {{d}}, {{a}};", 32 if ".tf32." in name else FORMATS[name.split(".")[-2]].bits)
        for name in names
    ]
    source = _RNG.permutation(source)
    wanted = [[expected(name, bits) for bits in source.tolist()] for name in names]
    for way in ways:
        some = source if way == "vector" else source[:400]
        for name, results, want in zip(names, run(texts, [some], way), wanted, strict=True):
            to = name.split(".")[-2].replace("tf32", "f32")
            for i, got in enumerate(results.tolist()):
                if way == "guarded" and i % 2 == 0:
                    assert got == int(some[i]) % (FORMATS[to].sign * 2), (name, "an idle lane changed")
                    continue
                right = is_nan(got, to) if want[i] is None else got == want[i]
                assert right, (
                    f"{name} of {int(some[i]):#x}, {way}: {got:#x}, expected {want[i]}; {_SEED.entropy}"
                )
    assert of in FORMATS


@pytest.mark.parametrize(
    ("to", "of", "modifiers"),
    [
        ("f16", "f32", [".rn.ftz", ".rn.sat", ".rn.relu", ".rz.satfinite", ".rn.satfinite.relu"]),
        ("bf16", "f32", [".rn.ftz", ".rz.relu", ".rn.satfinite", ".rn.relu.satfinite"]),
        ("f32", "f64", [".rn.ftz", ".rz.sat", ".rp.ftz"]),
        ("f16", "f64", [".rn.sat"]),
        ("bf16", "f64", []),
        ("bf16", "f16", []),
        ("f16", "bf16", []),
    ],
)
def test_narrower_floats(to: str, of: str, modifiers: list[str]) -> None:
    names = [f"cvt.{mode}.{to}.{of}" for mode in _MODES] + [f"cvt{more}.{to}.{of}" for more in modifiers]
    _check(names, between(of, to, 250))


def test_tf32() -> None:
    ways = ["rna", "rn", "rz", "rna.satfinite", "rn.satfinite.relu", "rz.relu"]
    names = [f"cvt.{way}.tf32.f32" for way in ways]
    _check(names, between("f32", "tf32", 300))


def test_wider_floats_are_exact() -> None:
    for of, to, words in [
        ("f16", "f32", ["", ".ftz", ".sat"]), ("f16", "f64", ["", ".sat"]),
        ("f32", "f64", ["", ".ftz", ".sat"]),
        ("bf16", "f32", ["", ".rn", ".ftz"]), ("bf16", "f64", [""]),
    ]:  # fmt: skip
        _check([f"cvt{more}.{to}.{of}" for more in words], between(of, of, 200))


@pytest.mark.parametrize(
    ("type_", "modifiers"),
    [("f16", ["", ".sat"]), ("bf16", [""]), ("f32", ["", ".ftz", ".ftz.sat"]), ("f64", ["", ".sat"])],
)
def test_a_conversion_to_the_same_type_does_what_its_modifiers_say_alone(
    type_: str, modifiers: list[str]
) -> None:
    numbers = between(type_, type_, 20)
    numbers = numbers[
        numbers % FORMATS[type_].sign <= FORMATS[type_].infinity
    ]  # PTX does not say which NaN it makes
    _check([f"cvt{more}.{type_}.{type_}" for more in modifiers], numbers, ("vector",))


def test_every_two_byte_number() -> None:
    """f16 and bf16 to f32 and back, all of them; with every tie and its neighbours."""
    for type_, kind in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        half = _ALL.astype(np.uint16)
        (up,) = run([(f"cvt.f32.{type_} {{d}}, {{a}};", 32)], [half])
        want = half.view(kind).astype(np.float32)
        nan = np.isnan(want)
        assert (up == want.view(np.uint32))[~nan].all()
        assert np.isnan(up.view(np.float32))[nan].all()
        step = np.uint32(1 << (23 - FORMATS[type_].fraction - 1))
        middle = up + step  # of subnormal f16 numbers it is not the middle; the other test has those
        single = np.concatenate([up, middle - 1, middle, middle + 1])
        (down,) = run([(f"cvt.rn.{type_}.f32 {{d}}, {{a}};", 16)], [single])
        with np.errstate(over="ignore", invalid="ignore"):
            want = single.view(np.float32).astype(kind)
        nan = np.isnan(single.view(np.float32))
        assert (down == want.view(np.uint16))[~nan].all()
        assert (down[nan] == 0x7FFF).all()


def test_rounding_to_integers_within_a_type() -> None:
    directions = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
    for type_ in ("f16", "bf16", "f32", "f64"):
        of = FORMATS[type_]
        source = between(type_, type_, 100)
        quarters = [round_to(Number(Fraction(n, 4), n < 0), of) or 0 for n in range(-40, 41)]
        source = _RNG.permutation(np.concatenate([source, np.array(quarters, source.dtype)]))
        for way in _WAYS[:2]:
            texts = [(f"cvt.{word}.{type_}.{type_} {{d}}, {{a}};", of.bits) for word in directions]
            for mode, results in zip(directions.values(), run(texts, [source], way), strict=True):
                for bits, got in zip(source.tolist(), results.tolist(), strict=True):
                    value = decode(bits, of)
                    if isinstance(value, Special):
                        assert is_nan(got, type_) if value == NAN else got == bits
                        continue
                    want = round_to(Number(Fraction(_rounded(value.value, mode)), value.negative), of)
                    assert got == want, (type_, mode, hex(bits), hex(got))


def _rounded(value: Fraction, mode: str) -> int:
    down = value.__floor__()
    return {"rn": round(value), "rz": int(value), "rm": down, "rp": -((-value).__floor__())}[mode]


# -- integers -------------------------------------------------------------------------------------------
def _integers(bits: int, signed: bool) -> Array:
    values = {0, 1, 2, 3, 127, 128, 255, (1 << bits) - 1, (1 << (bits - 1)) - 1, 1 << (bits - 1)}
    for power in range(2, bits):
        for digits in (8, 11, 24, 53):  # ties in each format, and next to them
            half = (1 << power) >> digits
            values |= {(1 << power) + half + step for step in (-1, 0, 1)}
            values |= {(1 << power) + 3 * half + step for step in (-1, 0, 1)}
    values |= {
        int(item) >> int(s)
        for item, s in zip(_RNG.integers(0, 2**63, 60), _RNG.integers(0, 60, 60), strict=True)
    }
    both = [value % (1 << bits) for value in values] + [-value % (1 << bits) for value in values if signed]
    return np.array(_RNG.permutation(np.array(both, np.uint64)), np.dtype(f"u{bits // 8}"))


def _value(bits: int, size: int, signed: bool) -> int:
    return bits - (1 << size) if signed and bits >> (size - 1) else bits


@pytest.mark.few("s8", "u8", "s16", "u32", "s64", "u64")
@pytest.mark.parametrize("of", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_from_integers(of: str) -> None:
    signed, size = of[0] == "s", int(of[1:])
    source = _integers(size, signed)
    names = [f"cvt.{mode}.{to}.{of}" for mode in _MODES for to in ("f16", "bf16", "f32", "f64")]
    names += [f"cvt.rn.sat.f16.{of}", f"cvt.rz.sat.f32.{of}", f"cvt.rn.ftz.f32.{of}"]
    texts = [(f"{name} {{d}}, {{a}};", FORMATS[name.split(".")[-2]].bits) for name in names]
    for way in _WAYS:
        some = source if way == "vector" else source[:300]
        for name, results in zip(names, run(texts, [some], way), strict=True):
            words = name.split(".")
            for i, (bits, got) in enumerate(zip(some.tolist(), results.tolist(), strict=True)):
                if way == "guarded" and i % 2 == 0:
                    continue
                value = limited(integer(_value(bits, size, signed)), words)
                want = round_to(value, FORMATS[words[-2]], words[1])
                assert got == want, f"{name} of {bits:#x}, {way}: {got:#x}, expected {want}; {_SEED.entropy}"


@pytest.mark.parametrize("of", ["s64", "u64"])
def test_long_integers_are_rounded_once(of: str) -> None:
    """About 2**53, from where on doubles leave some out, with halves of every shorter format's last digit beside them."""
    signed = of[0] == "s"
    places = {1 << power for power in (52, 53, 54, 62, 63)}
    steps = [
        (digit >> places_kept) + one
        for digit in places
        for places_kept in (8, 9, 24, 25, 53)
        for one in (-1, 0, 1)
    ]
    values = {
        (top + step) % (1 << 64) for top in places for step in (*steps, *(-step for step in steps), -1, 1, 3)
    }
    values |= {-value % (1 << 64) for value in values}
    source = np.array(sorted(values), np.uint64)
    texts = [
        (f"cvt.{mode}.{to}.{of} {{d}}, {{a}};", FORMATS[to].bits)
        for mode in _MODES for to in ("f16", "bf16", "f32", "f64")
    ]  # fmt: skip
    for (text, _), results in zip(texts, run(texts, [source]), strict=True):
        _, mode, to, *_ = text.split(" ")[0].split(".")
        for bits, got in zip(source.tolist(), results.tolist(), strict=True):
            want = round_to(integer(_value(bits, 64, signed)), FORMATS[to], mode)
            assert got == want, (text, hex(bits), hex(got), want)


def _near_integers(type_: str) -> Array:
    of = FORMATS[type_]
    values = [Fraction(n, 4) for n in range(-12, 13)]
    for bits in (7, 8, 15, 16, 31, 32, 63, 64):
        values += [sign * ((1 << bits) + Fraction(n, 2)) for n in range(-4, 5) for sign in (1, -1)]
    found = [round_to(Number(value, value < 0), of, "rz") or 0 for value in values]
    return np.concatenate([np.array(found, np.dtype(f"u{of.bits // 8}")), between(type_, type_, 100)])


@pytest.mark.parametrize("of", ["f16", "bf16", "f32", "f64"])
def test_to_integers(of: str) -> None:
    """The nearest that the type has; NaN is 0 of 32 bits and fewer, else, and of f64, the top bit alone."""
    source = _RNG.permutation(_near_integers(of))
    directions = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
    types = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]
    names = [f"cvt.{word}.{to}.{of}" for word in directions for to in types]
    names += [f"cvt.rpi.ftz.{to}.f32" for to in types] if of == "f32" else []
    # A register wider than the type, where it may be: its sign is carried on.
    texts = [
        (
            f"{name} {{d}}, {{a}};",
            int(name.split(".")[-2][1:]) if of == "bf16" else 64 if "64" in name.split(".")[-2] else 32,
        )
        for name in names
    ]
    for way in _WAYS:
        some = source if way == "vector" else source[:200]
        for (name, (_, width)), results in zip(
            zip(names, texts, strict=True), run(texts, [some], way), strict=True
        ):
            words = name.split(".")
            signed, size = words[-2][0] == "s", int(words[-2][1:])
            low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if signed else (0, (1 << size) - 1)
            for i, (bits, got) in enumerate(zip(some.tolist(), results.tolist(), strict=True)):
                if way == "guarded" and i % 2 == 0:
                    continue
                value = decode(flushed(bits, of) if "ftz" in words else bits, FORMATS[of])
                if value == NAN:
                    want = 0 if of != "f64" and size < 64 else _value(1 << (size - 1), size, signed)
                elif isinstance(value, Special):
                    want = high if value.sign > 0 else low
                else:
                    want = min(max(_rounded(value.value, directions[words[1]]), low), high)
                assert got == want % (1 << width), f"{name} of {bits:#x}, {way}: {got:#x}; {_SEED.entropy}"


# -- two numbers in a register ------------------------------------------------------------------------
@pytest.mark.parametrize("to", ["f16", "bf16", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_pairs_of_floats(to: str) -> None:
    of = FORMATS[to]
    pitch = 4 if to == "e2m1" else 8 if of.bits < 16 else 16
    ways = ["rn.satfinite", "rn.satfinite.relu"]
    ways += ["rn", "rz", "rz.relu", "rz.satfinite"] if pitch == 16 else []
    a = between("f32", to, 200)
    b = _RNG.permutation(a)
    texts = [(f"cvt.{way}.{to}x2.f32 {{d}}, {{a}}, {{b}};", 2 * pitch) for way in ways]
    inputs = [a, b]
    packed: list[Array] = []
    if pitch < 16:  # from packed f16 and bf16 too
        for kind in ("f16", "bf16"):
            low, high = (
                _RNG.permutation(np.resize(between(kind, to, 200), len(a))).astype(np.uint32) for _ in "ab"
            )
            packed.append(low | high << np.uint32(16))
        texts += [(f"cvt.{way}.{to}x2.{kind}x2 {{d}}, {name};", 2 * pitch) for way in ways
                  for kind, name in (("f16", "{c}"), ("bf16", "{x}"))]  # fmt: skip
    for way in ("vector", "uniform"):
        some = slice(None) if way == "vector" else slice(0, 150)
        chosen = [array[some] for array in (*inputs, *packed)]
        for (text, _), results in zip(texts, run(texts, chosen, way), strict=True):
            words = text.split(" ")[0].split(".")
            for i, got in enumerate(results.tolist()):
                if words[-1] == "f32":
                    parts, kind = [int(b[i]), int(a[i])], "f32"
                else:
                    kind = words[-1][:-2]
                    whole = int(packed[kind == "bf16"][i])
                    parts = [whole & 0xFFFF, whole >> 16]
                for place, bits in enumerate(parts):
                    value = limited(decode(bits, FORMATS[kind]), words)
                    want = round_to(value, of, words[1], "satfinite" in words)
                    if want is None:
                        want = of.sign - 1  # the NaN without a sign, or the largest number
                    part = got >> place * pitch & ((1 << pitch) - 1)
                    assert part == want, (
                        f"{text} of {bits:#x}, {way}: {part:#x}, expected {want:#x}; {_SEED.entropy}"
                    )


@pytest.mark.parametrize("of", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_every_small_number(of: str) -> None:
    """As f16, in both places."""
    bits = FORMATS[of].bits
    pitch = 4 if bits == 4 else 8
    low, high = np.meshgrid(np.arange(1 << bits), np.arange(0, 1 << bits, 7 if bits > 6 else 1))
    source = (low | high << pitch).ravel().astype(np.dtype(f"u{pitch // 4}"))
    texts = [(f"cvt.rn{relu}.f16x2.{of}x2 {{d}}, {{a}};", 32) for relu in ("", ".relu")]
    plain, rectified = run(texts, [source])
    for shift, place in ((0, 0), (pitch, 16)):
        number = (source >> shift & ((1 << bits) - 1)).astype(np.uint8).view(_KINDS[of]).astype(np.float16)
        want = np.where(np.isnan(number), 0x7FFF, number.view(np.uint16))
        assert (plain >> place & 0xFFFF == want).all()
        want = np.where(
            np.isnan(number), 0x7FFF, np.where(number > 0, number, 0).astype(np.float16).view(np.uint16)
        )
        assert (rectified >> place & 0xFFFF == want).all()


@pytest.mark.few("e5m2", "e2m1")
@pytest.mark.parametrize("of", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_every_small_number_as_bf16(of: str) -> None:
    """In both places, alone and multiplied by any power of two: too large is infinite, or the largest number."""
    small, wide = FORMATS[of], FORMATS["bf16"]
    pitch = 4 if small.bits == 4 else 8
    low, high = np.meshgrid(np.arange(1 << small.bits), np.arange(1 << small.bits))
    source = _RNG.permutation((low | high << pitch).ravel())[:4096].astype(np.dtype(f"u{pitch // 4}"))
    scales = _RNG.integers(0, 1 << 16, len(source), np.uint16)
    scales[::3] = _RNG.choice([0x00FF, 0xFF7F, 0x7F00, 0x7F7F, 0xFE01, 0xF5F5], len(scales[::3]))
    modes = ["rn", "rn.relu", "rn.satfinite", "rn.relu.satfinite"]
    texts = [(f"cvt.{mode}.bf16x2.{of}x2 {{d}}, {{a}};", 32) for mode in modes]
    texts += [(f"cvt.{mode}.scaled::n2::ue8m0.bf16x2.{of}x2 {{d}}, {{a}}, {{b}};", 32) for mode in modes]
    for way in ("vector", "uniform"):
        some = slice(None) if way == "vector" else slice(0, 100)
        for (text, _), results in zip(texts, run(texts, [source[some], scales[some]], way), strict=True):
            words = text.split(" ")[0].split(".")
            for i, got in enumerate(results.tolist()):
                for place in (0, 1):
                    code = int(source[i]) >> place * pitch & ((1 << small.bits) - 1)
                    scale = int(scales[i]) >> 8 * place & 255 if "scaled::n2::ue8m0" in words else 127
                    value = decode(code, small) if scale != 255 else NAN
                    if isinstance(value, Number):
                        value = value._replace(value=value.value * Fraction(2) ** (scale - 127))
                    want = round_to(limited(value, words), wide, "rn", "satfinite" in words)
                    part = got >> 16 * place & 0xFFFF
                    assert part == (0x7FFF if want is None else want), (
                        text,
                        way,
                        hex(code),
                        scale,
                        hex(part),
                    )


def test_rounding_by_chance() -> None:
    """To bf16: away from zero as often as the digits that go say, of all random bits there are."""
    a = _RNG.permutation(between("f32", "bf16", 300))
    b, chance = _RNG.permutation(a), _RNG.integers(0, 1 << 32, len(a), np.uint32)
    chance[::4] = _RNG.choice([0, 0xFFFF_FFFF, 0x0001_FFFF, 0x8000_7FFF], len(chance[::4]))
    modes = ["rs", "rs.relu", "rs.satfinite", "rs.relu.satfinite"]
    texts = [(f"cvt.{mode}.bf16x2.f32 {{d}}, {{a}}, {{b}}, {{c}};", 32) for mode in modes]
    for way in _WAYS[:2]:
        some = slice(None) if way == "vector" else slice(0, 200)
        for (text, _), results in zip(texts, run(texts, [a[some], b[some], chance[some]], way), strict=True):
            words = text.split(" ")[0].split(".")
            for i, got in enumerate(results.tolist()):
                for place, bits in ((0, int(b[i])), (16, int(a[i]))):
                    value, random = decode(bits, FORMATS["f32"]), int(chance[i]) >> place & 0xFFFF
                    value = limited(value, words)
                    if isinstance(value, Number):
                        cut = round_to(value, FORMATS["bf16"], "rz") or 0
                        lost = (bits & 0xFFFF) if value.value else 0  # .relu may have made it zero
                        value = decode(cut + (lost + random > 0xFFFF), FORMATS["bf16"])
                    want = round_to(value, FORMATS["bf16"], "rz", "satfinite" in words)
                    part = got >> place & 0xFFFF
                    assert part == (0x7FFF if want is None else want), (
                        text,
                        way,
                        hex(bits),
                        hex(random),
                        hex(part),
                    )


def test_powers_of_two() -> None:
    """ue8m0: the exponents of floats, rounded up or towards zero."""
    sizes = [
        0,
        1,
        0x3FFFFF,
        0x400000,
        0x400001,
        0x7FFFFF,
        0x800000,
        0x800001,
        0x3F800000,
        0x3F800001,
        0x7EFFFFFF,
    ]
    sizes += [
        0x7F000000,
        0x7F000001,
        0x7F7FFFFF,
        0x7F800000,
        0x7F800001,
        0x7FFFFFFF,
        *_RNG.integers(0, 2**31, 80).tolist(),
    ]
    a = np.array(
        [size | int(s) << 31 for size, s in zip(sizes, _RNG.integers(0, 2, len(sizes)), strict=True)],
        np.uint32,
    )
    b = a[::-1].copy()
    packed = (a >> 16 << 16) | b >> 16
    for mode in ("rz", "rp"):
        for finite in ("", ".satfinite"):
            one, two = run(
                [
                    (f"cvt.{mode}{finite}.ue8m0x2.f32 {{d}}, {{a}}, {{b}};", 16),
                    (f"cvt.{mode}{finite}.ue8m0x2.bf16x2 {{d}}, {{c}};", 16),
                ],
                [a, b, packed],
            )
            for i in range(len(a)):
                assert int(one[i]) >> 8 == _power(int(a[i]), mode, bool(finite)), hex(a[i])
                assert int(one[i]) & 255 == _power(int(b[i]), mode, bool(finite)), hex(b[i])
                assert int(two[i]) >> 8 == _power(int(a[i]) >> 16 << 16, mode, bool(finite)), hex(a[i])
    codes = np.arange(256, dtype=np.uint16)
    (back,) = run([("cvt.rn.bf16x2.ue8m0x2 {d}, {a};", 32)], [codes | codes[::-1] << np.uint16(8)])
    want = np.array([0x40, *(code << 7 for code in range(1, 255)), 0x7FFF])
    assert (back & 0xFFFF == want).all()
    assert (back >> 16 == want[::-1]).all()


def _power(bits: int, mode: str, finite: bool) -> int:
    value = decode(bits & 0x7FFF_FFFF, FORMATS["f32"])
    if value == NAN:
        return 255
    if isinstance(value, Special):
        return 254 if finite else 255
    fits = [code for code in range(256) if Fraction(2) ** (code - 127) >= value.value]
    code = fits[0] if fits else 255
    if mode == "rz" and code and Fraction(2) ** (code - 127) != value.value:
        code -= 1
    return min(code, 254) if finite else code


@pytest.mark.parametrize(
    "instruction",
    [
        "cvt.f16.f32 %h1, %r1;", "cvt.f32.f64 %r1, %l1;", "cvt.rn.f64.f32 %l1, %r1;",
        "cvt.rn.f32.f32 %r1, %r1;", "cvt.rn.rz.f16.f32 %h1, %r1;", "cvt.rn.sat.bf16.f32 %h1, %r1;",
        "cvt.rni.bf16.f16 %h1, %h1;", "cvt.bf16.f16 %h1, %h1;", "cvt.f16.bf16 %h1, %h1;",
        "cvt.rn.ftz.f16.f64 %h1, %l1;", "cvt.rn.relu.f16.f64 %h1, %l1;",
        "cvt.rni.f16.f32 %h1, %r1;", "cvt.rp.relu.f16.f32 %h1, %r1;", "cvt.rn.ftz.f16.s32 %h1, %r1;",
        "cvt.s32.f32 %r1, %r1;", "cvt.rn.s32.f32 %r1, %r1;", "cvt.rzi.ftz.s32.f16 %r1, %h1;",
        "cvt.rzi.b32.f32 %r1, %r1;", "cvt.f64.s32 %l1, %r1;", "cvt.rn.f32.b32 %r1, %r1;",
        "cvt.rn.ftz.f16x2.f32 %r1, %r1, %r1;", "cvt.rp.bf16x2.f32 %r1, %r1, %r1;",
        "cvt.rna.relu.tf32.f32 %r1, %r1;", "cvt.rna.tf32.f64 %r1, %l1;", "cvt.f32.tf32 %r1, %r1;",
        "cvt.rn.e4m3x2.f32 %h1, %r1, %r1;", "cvt.rz.satfinite.e4m3x2.f32 %h1, %r1, %r1;",
        "cvt.rn.satfinite.f16x2.e4m3x2 %r1, %h1;", "cvt.rz.bf16x2.e4m3x2 %r1, %h1;",
        "cvt.bf16x2.e4m3x2 %r1, %h1;", "cvt.rn.bf16x2.e4m3x2 %r1, %h1, %h2;",
        "cvt.rn.scaled::n2::ue8m0.bf16x2.e4m3x2 %r1, %h1;", "cvt.rn.scaled::n2::ue8m0.f16x2.e4m3x2 %r1, %h1, %h2;",
        "cvt.rn.scaled::n2::ue8m0.bf16x2.e5m2x2 %r1, %h1, 0x7f7f;",
        "cvt.rs.bf16x2.f32 %r1, %r1, %r1;", "cvt.rs.bf16x2.f32 %r1, %r1, %r1, 5;",
        "cvt.rs.ftz.bf16x2.f32 %r1, %r1, %r1, %r1;", "cvt.rs.bf16.f32 %h1, %r1, %r1;",
        "cvt.rn.f16x2.bf16x2 %r1, %r1;", "cvt.rn.ue8m0x2.f32 %h1, %r1, %r1;",
        "cvt.rz.ue8m0x2.f16x2 %h1, %r1;", "cvt.rn.f16x2.f32 %r1, %r1;",
        "cvt.rs.f16x2.f32 %r1, %r1, %r1, %r1;", "cvt.rs.satfinite.e4m3x4.f32 %r1, {%r1, %r1, %r1, %r1}, %r1;",
        "cvt.rn.satfinite.s2f6x2.f32 %h1, %r1, %r1;",
        "cvt.rn.satfinite.scaled::n2::ue8m0.e4m3x2.f32 %h1, %r1, %r1;",
    ],
)  # fmt: skip
def test_conversions_that_ptx_does_not_have_are_refused(instruction: str) -> None:
    said = refused(instruction)
    assert re.split(r"[ .]", instruction)[0] in said, said
