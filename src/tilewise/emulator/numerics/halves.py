"""Two-byte floats, and types of two numbers in one register: f16, bf16, f16x2, bf16x2, f32x2.

LLVM's own bfloat arithmetic is not used: on CPUs with instructions for it, it takes subnormal numbers for
zero, and on others it calls functions that need not be there. f16 to and from f32 is LLVM's, for which
most CPUs have an instruction; ``_fallback`` is for the others.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.numerics.rounding import FORMATS, narrow, widen

__all__ = ["PARTS", "down", "each", "fma", "join", "split", "up"]

PARTS = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
_LLVM = {"f16": "half", "bf16": "bfloat", "f32": "float"}
_NAN = 0x7FFF  # the one that GPUs give


# -- two numbers in one register --------------------------------------------------------------------
def split(e: Emitter, type_: str, value: Value) -> tuple[Value, Value]:
    """Low and high part, as numbers."""
    size = int(value.scalar[1:]) // 2
    low = e.resize(value, f"i{size}", False)
    high = e.resize(value >> size, f"i{size}", False)
    scalar = _LLVM[PARTS[type_]]
    return e.cast("bitcast", low, scalar), e.cast("bitcast", high, scalar)


def join(e: Emitter, low: Value, high: Value) -> Value:
    """Two numbers, or the integers that encode them, as one integer."""
    size = {"half": 16, "bfloat": 16, "float": 32}.get(low.scalar) or int(low.scalar[1:])
    whole = f"i{size * 2}"
    bottom, top = (e.resize(e.cast("bitcast", part, f"i{size}"), whole, False) for part in (low, high))
    return bottom | (top << size)


def each(e: Emitter, type_: str, function: Callable[..., Value], *values: Value) -> Value:
    """``function(part's type, *numbers)``, on both parts of packed types and on others as they are."""
    if type_ not in PARTS:
        return function(type_, *values)
    pairs = [split(e, type_, value) for value in values]
    low, high = (function(PARTS[type_], *numbers) for numbers in zip(*pairs, strict=True))
    return join(e, low, high)


# -- f16 and bf16 -----------------------------------------------------------------------------------
def up(e: Emitter, value: Value) -> Value:
    """A float of the same value."""
    if value.scalar == "bfloat":
        bits = e.resize(e.cast("bitcast", value, "i16"), "i32", False)
        return e.cast("bitcast", bits << 16, "float")
    if value.scalar == "half":
        _fallback(e)
        return e.cast("fpext", value, "float")
    return value


def down(e: Emitter, value: Value, type_: str, mode: str = "rn", finite: bool = False) -> Value:
    """A float or double rounded to f16 or bf16; NaN becomes the one that GPUs give."""
    scalar = _LLVM[type_]
    if mode != "rn" or finite or value.scalar == "double":
        return e.cast("bitcast", narrow(e, value, FORMATS[type_], mode, finite), scalar)
    nan = e.compare("fcmp uno", value, value)
    if type_ == "f16":
        _fallback(e)
        bits = e.cast("bitcast", e.cast("fptrunc", value, "half"), "i16")
        return e.cast("bitcast", e.select(nan, _NAN, bits), "half")
    bits = e.cast("bitcast", value, "i32")
    bits += ((bits >> 16) & 1) + 0x7FFF
    top = e.resize(bits >> 16, "i16", False)
    return e.cast("bitcast", e.select(nan, _NAN, top), "bfloat")


def fma(e: Emitter, type_: str, a: Value, b: Value, c: Value) -> Value:
    """a·b + c as a number that rounds to ``type_`` as the exact sum does.

    A double holds the product. Of f16 it holds the sum too, or one so near that no rounding to f16
    differs: a product that large overflows, one that small is far from half a digit of c. Of bf16 it may
    not; then its last digit is made odd, which stands for all that is missing.
    """
    a, b, c = (e.cast("fpext", up(e, value), "double") for value in (a, b, c))
    product = e.op("fmul", a, b)
    total = e.op("fadd", product, c)
    if type_ == "f16":
        return _odd_float(e, total)
    back = e.op("fsub", total, product)
    error = e.op("fadd", e.op("fsub", product, e.op("fsub", total, back)), e.op("fsub", c, back))
    inexact = e.compare("fcmp one", error, e.real(error, 0.0))
    bits = e.cast("bitcast", total, "i64")
    even = e.equals(bits & 1, 0)
    # The neighbour on the error's side: one up in magnitude if error and total have one sign.
    alike = bits ^ e.cast("bitcast", error, "i64")
    outward = e.compare("icmp sge", alike, 0)
    step = e.select(outward, e.const(bits, 1), -1)
    return e.cast("bitcast", e.select(inexact & even, bits + step, bits), "double")


def _odd_float(e: Emitter, value: Value) -> Value:
    """A double that is no subnormal float, as a float whose last digit is odd if any were lost."""
    bits = e.cast("bitcast", value, "i64")
    below = (1 << 29) - 1
    lost = e.differs(bits & below, 0)
    kept = bits & ~below
    odd = kept | (1 << 29)
    nan = e.compare("fcmp uno", value, value)
    exact = e.cast("bitcast", e.select(lost, odd, kept), "double")
    return e.cast("fptrunc", e.select(nan, value, exact), "float")


def _fallback(e: Emitter) -> None:
    """Define what LLVM calls for f16 on CPUs that have no instruction for it."""
    if "__truncsfhf2" in e.definitions:
        return
    inner = Emitter(e)
    result = narrow(inner, Value("float", "%x", inner), FORMATS["f16"], "rn")
    inner.line(f"ret {inner.cast('bitcast', result, 'half')}")
    e.define("__truncsfhf2", "half", "float %x", inner, linkage="hidden")
    inner = Emitter(e)
    bits = inner.cast("bitcast", Value("half", "%x", inner), "i16")
    inner.line(f"ret {widen(inner, bits, FORMATS['f16'])}")
    e.define("__extendhfsf2", "float", "half %x", inner, linkage="hidden")
