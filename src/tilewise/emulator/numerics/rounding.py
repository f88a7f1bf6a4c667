"""Rounding: arithmetic rounded towards a side, and numbers made to fit smaller formats. Both are exact."""

from __future__ import annotations

from typing import NamedTuple

from tilewise.emulator.llvm.emit import Emitter, Value, suffix_of, vector

__all__ = [
    "FORMATS",
    "ROUNDINGS",
    "directed",
    "flush",
    "from_integer",
    "narrow",
    "narrow_by_chance",
    "rectify",
    "shaped",
    "widen",
]

ROUNDINGS = ("rn", "rz", "rm", "rp")
_MODE_NUMBERS = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}  # as llvm.set.rounding counts them


class Format(NamedTuple):
    """A binary floating-point format. The last three are encodings without the sign bit."""

    exponent: int  # bits
    fraction: int  # bits
    bias: int
    largest: int  # the largest finite number
    infinity: int  # what overflow gives; the format's NaN or largest number where it has no infinity
    nan: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def storage(self) -> str:
        """The LLVM integer that holds it."""
        return f"i{next(size for size in (8, 16, 32, 64) if size >= self.bits)}"


FORMATS = {
    "f64": Format(11, 52, 1023, 0x7FEF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF),
    "f32": Format(8, 23, 127, 0x7F7F_FFFF, 0x7F80_0000, 0x7FFF_FFFF),
    "tf32": Format(8, 10, 127, 0x3_FBFF, 0x3_FC00, 0x3_FFFF),
    "f16": Format(5, 10, 15, 0x7BFF, 0x7C00, 0x7FFF),
    "bf16": Format(8, 7, 127, 0x7F7F, 0x7F80, 0x7FFF),
    "e4m3": Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "e5m2": Format(5, 2, 15, 0x7B, 0x7C, 0x7F),
    # These have neither infinities nor NaN: a NaN becomes the largest number.
    "e2m3": Format(2, 3, 1, 0x1F, 0x1F, 0x1F),
    "e3m2": Format(3, 2, 3, 0x1F, 0x1F, 0x1F),
    "e2m1": Format(2, 1, 1, 0x7, 0x7, 0x7),
}
_SOURCES = {"float": FORMATS["f32"], "double": FORMATS["f64"]}


def shaped(like: Value, scalar: str) -> str:
    """The type of one lane, or of 32 where ``like`` is a vector."""
    return vector(scalar) if like.is_vector else scalar


# -- arithmetic -----------------------------------------------------------------------------------
def directed(e: Emitter, operation: str, mode: str, *args: Value) -> Value:
    """fadd, fsub, fmul, fdiv, sqrt or fma of floats or doubles, rounded as ``mode`` says.

    The CPU's own rounding mode is set around the operation, in a function of its own: there nothing else
    is rounded so, and nothing moves out of it.
    """
    type_ = args[0].type
    suffix = suffix_of(type_)
    name = f"tw.{operation}.{mode}.{suffix}"
    if name not in e.definitions:
        intrinsic = f"llvm.experimental.constrained.{operation}.{suffix}"
        e.definitions[name] = _directed_text(name, intrinsic, mode, type_, len(args))
    return e.call(name, type_, *args)


def _directed_text(name: str, intrinsic: str, mode: str, type_: str, count: int) -> str:
    parameters = ", ".join(f"{type_} %a{i}" for i in range(count))
    how = 'metadata !"round.dynamic", metadata !"fpexcept.strict"'
    return f"""
define internal {type_} @{name}({parameters}) noinline nounwind strictfp {{
  call void @llvm.set.rounding(i32 {_MODE_NUMBERS[mode]}) strictfp
  %r = call {type_} @{intrinsic}({parameters}, {how}) strictfp
  call void @llvm.set.rounding(i32 1) strictfp
  ret {type_} %r
}}"""


# -- from one format to another -------------------------------------------------------------------
def narrow(e: Emitter, value: Value, to: Format, mode: str, finite: bool = False) -> Value:
    """A float or double in a format with fewer digits, as the integer that encodes it.

    ``mode`` is one of ROUNDINGS, or "rna" (to the nearest; halfway away from zero). With ``finite``
    whatever is too large becomes the largest number. NaN becomes the format's one NaN, without a sign.
    """
    of = _SOURCES[value.scalar]
    whole = e.cast("bitcast", value, of.storage)
    negative = e.compare("icmp slt", whole, 0)
    magnitude = whole & ((1 << (of.bits - 1)) - 1)
    exponent = magnitude >> of.fraction
    digits = magnitude & ((1 << of.fraction) - 1)
    normal = e.differs(exponent, 0)
    digits = e.select(normal, digits | (1 << of.fraction), digits)
    exponent = e.intrinsic("llvm.umax", exponent, 1) - (of.bias - to.bias)

    # Below the smallest normal number the exponent stays and digits go instead.
    positive = e.intrinsic("llvm.smax", exponent, 1)
    lost = positive - exponent + (of.fraction - to.fraction)
    lost = e.intrinsic("llvm.smin", lost, of.bits - 2)
    rounded = (digits + _carry(e, digits, lost, mode, negative)) >> lost
    steps = (positive - 1) << to.fraction
    result = rounded + steps

    over = e.is_above(result, to.largest)
    result = e.select(over, _overflow(e, whole, to, mode, negative, finite), result)
    if not finite:
        result = e.select(e.equals(magnitude, of.infinity), to.infinity, result)
    signed = result | (1 << (to.bits - 1))
    result = e.select(negative, signed, result)
    result = e.select(e.is_above(magnitude, of.infinity), to.nan, result)
    return e.resize(result, to.storage, False)


def narrow_by_chance(e: Emitter, value: Value, chance: Value, finite: bool) -> Value:
    """A float as bf16: its upper half, one more where its lower half and the lowest 16 bits of ``chance`` carry.

    Both formats have the same exponents, so that the same 16 digits go of normal and of subnormal numbers.
    """
    whole, to = e.cast("bitcast", value, "i32"), FORMATS["bf16"]
    magnitude = whole & 0x7FFF_FFFF
    result = (magnitude + chance) >> 16
    if finite:
        result = e.intrinsic("llvm.umin", result, to.largest)
    sign = (whole >> 16) & 0x8000
    nan = e.is_above(magnitude, FORMATS["f32"].infinity)
    return e.resize(e.select(nan, to.nan, result | sign), "i16", False)


def _carry(e: Emitter, digits: Value, lost: Value, mode: str, negative: Value) -> Value:
    """What is added to digits of which the lowest ``lost`` then go, so that they come out rounded."""
    zero, one = e.const(digits, 0), e.const(digits, 1)
    if mode == "rz":
        return zero
    step = one << lost
    if mode in ("rm", "rp"):
        away = step - one
        return e.select(negative, away, zero) if mode == "rm" else e.select(negative, zero, away)
    half = step >> one
    if mode == "rna":
        return half
    odd = (digits >> lost) & one
    return half - one + odd


def _overflow(e: Emitter, whole: Value, to: Format, mode: str, negative: Value, finite: bool) -> Value:
    largest, infinity = e.const(whole, to.largest), e.const(whole, to.infinity)
    if finite or mode == "rz":
        return largest
    if mode in ("rm", "rp"):
        sides = (infinity, largest) if mode == "rm" else (largest, infinity)
        return e.select(negative, *sides)
    return infinity


def widen(e: Emitter, encoded: Value, of: Format) -> Value:
    """A number of a small format, given as an integer, as a float; every one of them is exact."""
    single = FORMATS["f32"]
    whole = e.resize(encoded, "i32", False)
    magnitude = whole & ((1 << (of.bits - 1)) - 1)
    sign = (whole & (1 << (of.bits - 1))) << (32 - of.bits)
    # With the bits where a float has them only the bias is wrong, and a product puts it right, also for
    # subnormal numbers.
    moved = magnitude << (single.fraction - of.fraction)
    scale = float(2.0 ** (single.bias - of.bias))
    scaled = e.op("fmul", e.cast("bitcast", moved, "float"), e.real(shaped(whole, "float"), scale))
    result = e.cast("bitcast", scaled, "i32")
    if of.infinity > of.largest:
        above = e.is_above(magnitude, of.largest)
        special = moved | single.infinity
        if of.infinity == of.nan:
            special = e.const(whole, single.nan)
        result = e.select(above, special, result)
    return e.cast("bitcast", result | sign, "float")


# -- integers -------------------------------------------------------------------------------------
def from_integer(e: Emitter, a: Value, signed: bool, to: str, mode: str) -> Value:
    """An integer as f64, f32 (a float value) or another format (its encoding)."""
    size = int(a.scalar[1:])
    cast = "sitofp" if signed else "uitofp"
    if mode == "rn" and to in ("f32", "f64"):
        return e.cast(cast, a, "float" if to == "f32" else "double")
    if size <= 32:
        exact = e.cast(cast, a, "double")
    elif to == "f64":
        return _long_to_double(e, a, signed, mode)
    else:
        exact = _long_to_odd(e, a, signed)
    if to == "f64":
        return exact
    result = narrow(e, exact, FORMATS[to], mode)
    return e.cast("bitcast", result, "float") if to == "f32" else result


def _magnitude(e: Emitter, a: Value, signed: bool) -> tuple[Value, Value | None]:
    """Without its sign, and where it had one."""
    if not signed:
        return a, None
    return e.intrinsic("llvm.abs", a, e.const("i1", 0)), e.compare("icmp slt", a, 0)


def _long_to_double(e: Emitter, a: Value, signed: bool, mode: str) -> Value:
    """Both halves of a 64-bit integer are exact as doubles; their sum is rounded once."""
    magnitude, negative = _magnitude(e, a, signed)
    parts = [magnitude & mask for mask in (~0x7FF, 0x7FF)]
    high, low = (e.cast("uitofp", part, "double") for part in parts)
    if negative is not None:
        high, low = (e.select(negative, e.negate(part), part) for part in (high, low))
        # NOTE: a sum of zeros of different signs is -0 rounded down; here both have the sign of a.
    return directed(e, "fadd", mode, high, low)


def _long_to_odd(e: Emitter, a: Value, signed: bool) -> Value:
    """A double that rounds to any shorter format as the 64-bit integer does: a digit that says "and more"."""
    magnitude, negative = _magnitude(e, a, signed)
    more = e.differs(magnitude & 0x7FF, 0)
    kept = (magnitude >> 11) | e.cast("zext", more, "i64")
    large = e.is_above(magnitude, (1 << 53) - 1)
    number = e.cast("sitofp", e.select(large, kept, magnitude), "double")
    number = e.op("fmul", number, e.select(large, e.real(number, 2048.0), e.real(number, 1.0)))
    return number if negative is None else e.select(negative, e.negate(number), number)


def flush(e: Emitter, value: Value) -> Value:
    """Subnormal f32 or f16 numbers as zeros of their sign (``.ftz``)."""
    of = FORMATS["f16" if value.scalar == "half" else "f32"]
    bits = e.cast("bitcast", value, of.storage)
    tiny = e.equals(bits & of.infinity, 0)
    zero = bits & 1 << (of.bits - 1)
    return e.cast("bitcast", e.select(tiny, zero, bits), value.scalar)


def rectify(e: Emitter, value: Value) -> Value:
    """Zero instead of what is negative; NaN stays (``.relu``)."""
    zero = e.real(value, 0.0)
    return e.select(e.compare("fcmp ugt", value, zero), value, zero)
