"""Approximate functions: sin, cos (of radians, or of turns: ``.2pi``), lg2, ex2, tanh.

A GPU looks them up in tables that are not public, so its bits cannot be had. Here they are polynomials in
double precision, rounded once: within the errors that the PTX ISA allows, and mostly within half a digit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from tilewise.emulator.families.floats import check, flushed
from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.lowering.tables import pure, same_types, unsupported
from tilewise.emulator.numerics import halves
from tilewise.emulator.numerics.rounding import FORMATS, shaped
from tilewise.emulator.ptx.syntax import Instruction

__all__: list[str] = []

_ROUNDER = 1.5 * 2.0**52  # added to a small double, it leaves the nearest integer in the last bits


def _polynomial(e: Emitter, x: Value, coefficients: list[float]) -> Value:
    """Sum of coefficients[i]·x**i."""
    result = e.real(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = e.intrinsic("llvm.fma", result, x, e.real(x, coefficient))
    return result


def _limited(e: Emitter, x: Value, most: float) -> Value:
    """Into [-most, most]; NaN stays."""
    high, low = e.real(x, most), e.real(x, -most)
    x = e.select(e.compare("fcmp ogt", x, high), high, x)
    return e.select(e.compare("fcmp olt", x, low), low, x)


def _power_of_two(e: Emitter, x: Value) -> Value:
    """2**x for |x| ≤ 1000."""
    shifted = e.op("fadd", x, e.real(x, _ROUNDER))
    fraction = e.op("fsub", x, e.op("fsub", shifted, e.real(x, _ROUNDER)))
    series = [math.log(2.0) ** k / math.factorial(k) for k in range(10)]
    part = e.cast("bitcast", _polynomial(e, fraction, series), "i64")
    whole = e.op("shl", e.cast("bitcast", shifted, "i64"), 52)
    return e.cast("bitcast", e.op("add", part, whole), "double")


def _ex2(e: Emitter, x: Value) -> Value:
    # Beyond these limits a float is zero or infinite. NaN has any last bits, so it is put in at the end.
    result = _power_of_two(e, _limited(e, x, 200.0))
    return e.select(e.compare("fcmp uno", x, x), x, result)


def _lg2(e: Emitter, x: Value) -> Value:
    bits = e.cast("bitcast", x, "i64")
    # The exponent that leaves a number in [√½, √2).
    root = _bits(math.sqrt(0.5))
    exponent = e.op("ashr", e.op("sub", bits, root), 52)
    near = e.cast("bitcast", e.op("sub", bits, e.op("shl", exponent, 52)), "double")
    whole = e.cast("bitcast", e.op("add", exponent, _bits(_ROUNDER)), "double")
    whole = e.op("fsub", whole, e.real(x, _ROUNDER))
    one = e.real(x, 1.0)
    ratio = e.op("fdiv", e.op("fsub", near, one), e.op("fadd", near, one))
    series = [2.0 / math.log(2.0) / (2 * k + 1) for k in range(9)]
    square = e.op("fmul", ratio, ratio)
    result = e.intrinsic("llvm.fma", ratio, _polynomial(e, square, series), whole)

    zero, infinity = e.real(x, 0.0), e.const(x, FORMATS["f64"].infinity)
    result = e.select(e.compare("fcmp oeq", x, infinity), infinity, result)
    result = e.select(e.compare("fcmp oeq", x, zero), e.negate(infinity), result)
    return e.select(e.compare("fcmp ult", x, zero), FORMATS["f64"].nan, result)


def _sine_of_turns(e: Emitter, turns: Value) -> Value:
    """sin 2πt. Beyond ±100π, where nothing is promised, it is still in [-1, 1].

    It is a zero of the sign of t after whole turns, and of the other after half ones.
    """
    rest = e.op("fsub", turns, e.intrinsic("llvm.rint", turns))
    # Only the quarter next to zero is needed: the sine is the same mirrored about a quarter turn.
    mirrored = e.op("fsub", e.intrinsic("llvm.copysign", e.real(rest, 0.5), rest), rest)
    far = e.compare("fcmp ogt", e.intrinsic("llvm.fabs", rest), e.real(rest, 0.25))
    angle = e.op("fmul", e.select(far, mirrored, rest), e.real(rest, 2.0 * math.pi))
    square = e.op("fmul", angle, angle)
    series = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(9)]
    result = e.op("fmul", angle, _polynomial(e, square, series))
    nothing = e.real(turns, 0.0)
    zero = e.intrinsic("llvm.copysign", nothing, e.select(far, e.negate(turns), turns))
    return e.select(e.compare("fcmp oeq", result, nothing), zero, result)


def _turns(e: Emitter, x: Value) -> Value:
    return e.op("fmul", x, e.real(x, 0.5 / math.pi))


def _sin(e: Emitter, x: Value) -> Value:
    return _sine_of_turns(e, _turns(e, x))


def _cos(e: Emitter, x: Value) -> Value:
    return _cosine_of_turns(e, _turns(e, x))


def _cosine_of_turns(e: Emitter, turns: Value) -> Value:
    """Whole turns go first: far out a quarter is less than the last digit."""
    size = e.intrinsic("llvm.fabs", turns)
    rest = e.op("fsub", size, e.intrinsic("llvm.floor", size))
    return _sine_of_turns(e, e.negate(e.op("fsub", rest, e.real(turns, 0.25))))


def _tanh(e: Emitter, x: Value) -> Value:
    twice = e.op("fmul", _limited(e, x, 20.0), e.real(x, 2.0 / math.log(2.0)))
    power, one = _power_of_two(e, twice), e.real(x, 1.0)
    far = e.op("fdiv", e.op("fsub", power, one), e.op("fadd", power, one))
    # Near zero that is the difference of nearly equal numbers.
    square = e.op("fmul", x, x)
    near = e.op("fmul", x, _polynomial(e, square, [1.0, -1.0 / 3.0, 2.0 / 15.0]))
    small = e.compare("fcmp olt", e.intrinsic("llvm.fabs", x), e.real(x, 2.0**-6))
    result = e.select(small, near, far)
    return e.select(e.compare("fcmp uno", x, x), x, result)


def _bits(number: float) -> int:
    return int.from_bytes(struct.pack("<d", number), "little")


_FUNCTIONS: dict[str, Callable[[Emitter, Value], Value]] = {
    "sin": _sin, "cos": _cos, "lg2": _lg2, "ex2": _ex2, "tanh": _tanh,
    "sin.2pi": _sine_of_turns, "cos.2pi": _cosine_of_turns,
}  # fmt: skip


@pure("tanh", form=same_types(1), ptx="7.0", arch="sm_75")
@pure("sin", "cos", "lg2", "ex2", form=same_types(1), ptx="1.0")
def approximate(e: Emitter, instruction: Instruction, a: Value) -> Value:
    check(instruction)
    if (
        instruction.opcode == "ex2"
        and instruction.parts[-1].startswith("bf16")
        and "ftz" not in instruction.parts
    ):
        raise unsupported(instruction, "with .bf16 it must be .ftz")
    of_turns = "2pi" in instruction.parts
    if of_turns and "ftz" not in instruction.parts:
        raise unsupported(instruction, "with .2pi it must be .ftz")
    function = _FUNCTIONS[instruction.opcode + ".2pi" * of_turns]

    def one(type_: str, a: Value) -> Value:
        value = flushed(e, instruction, halves.up(e, a))
        result = function(e, e.cast("fpext", value, "double"))
        result = e.cast("fptrunc", result, "float")
        result = e.select(
            e.compare("fcmp uno", result, result), _nan(e, value), result
        )  # also of an infinite angle
        result = flushed(e, instruction, result)
        return result if type_ == "f32" else halves.down(e, result, type_)

    return halves.each(e, instruction.parts[-1], one, a)


def _nan(e: Emitter, like: Value) -> Value:
    return e.const(shaped(like, "float"), FORMATS["f32"].nan)
