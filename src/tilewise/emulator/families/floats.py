"""Floating-point instructions on f64, f32, f16, bf16 and the packed types.

NaN: an f32 instruction "returns an unspecified NaN", says the PTX ISA; GPUs return 0x7FFFFFFF. Here add,
sub, mul and fma of f32 return the CPU's (the first NaN operand made quiet, or the CPU's own), because their
plain forms are one machine instruction each. All others give the GPU's, of f16 and bf16 0x7FFF; f64 keeps
payloads, as on GPUs.

A result below the smallest normal number is flushed (``.ftz``) by what it is with all its digits, before the
range of exponents takes some: 2**-126 less half of its own last digit is zero, and does not become 2**-126
first. Measured on an H200, which may look even before it rounds: nearer to 2**-126 nothing was measured.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.lowering.tables import pure, same_types, unsupported
from tilewise.emulator.numerics import halves
from tilewise.emulator.numerics.rounding import FORMATS, ROUNDINGS, directed, flush, rectify
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.ptx.syntax import Instruction

__all__ = [
    "binary",
    "check",
    "comparable",
    "flushed",
    "fma",
    "form",
    "minmax",
    "one_nan",
    "saturate",
    "sign",
]

_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_ANY = "rn rz rm rp"
_SUM = {
    "f32": f"{_ANY} ftz sat", "f32x2": f"{_ANY} ftz", "f64": _ANY, "f16": "rn ftz sat", "bf16": "rn",
    "f32.f16": f"{_ANY} sat", "f32.bf16": f"{_ANY} sat",
}  # fmt: skip
_SIGN = {"f32": "ftz", "f64": "", "f16": "ftz", "bf16": ""}
_ORDER = {"f32": "ftz NaN xorsign abs", "f64": "", "f16": "ftz NaN xorsign abs", "bf16": "NaN xorsign abs"}
_WAVE = {"f32": "approx ftz 2pi"}

# The modifiers that an instruction may have, by type. Packed two-byte types have those of their parts.
_LEGAL: dict[str, dict[str, str]] = {
    "add": _SUM,
    "sub": _SUM,
    "mul": {type_: words for type_, words in _SUM.items() if "." not in type_},
    "fma": _SUM | {"f16": "rn ftz sat relu", "bf16": "rn relu"},
    "mad": {"f32": _SUM["f32"], "f64": _ANY},
    "div": {"f32": f"{_ANY} approx full ftz", "f64": _ANY},
    "rcp": {"f32": f"{_ANY} approx ftz", "f64": f"{_ANY} approx ftz"},
    "sqrt": {"f32": f"{_ANY} approx ftz", "f64": _ANY},
    "rsqrt": {"f32": "approx ftz", "f64": "approx ftz"},
    "min": _ORDER,
    "max": _ORDER,
    "neg": _SIGN,
    "abs": _SIGN,
    "copysign": {"f32": "", "f64": ""},
    "sin": _WAVE,
    "cos": _WAVE,
    "lg2": {"f32": "approx ftz"},
    "ex2": {"f32": "approx ftz", "f16": "approx", "bf16": "approx ftz"},
    "tanh": {"f32": "approx", "f16": "approx", "bf16": "approx"},
}
_WAYS = {*ROUNDINGS, "approx", "full"}
_MUST_SAY = {"fma", "mad", "div", "rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"}


def _mixed(instruction: Instruction) -> bool:
    """Two-byte operands and a float result: ``add.f32.f16``."""
    parts = instruction.parts
    return len(parts) > 1 and parts[-2] == "f32" and parts[-1] in ("f16", "bf16")


def form(count: int) -> Callable[[Instruction], OperandTypes]:
    """The form of a floating-point instruction with ``count`` sources, mixed types included."""

    def found(instruction: Instruction) -> OperandTypes:
        type_ = instruction.parts[-1]
        if _mixed(instruction) and instruction.opcode in ("add", "sub", "fma"):
            return OperandTypes(("f32",), (type_,) * (count - 1) + ("f32",))
        if instruction.opcode in ("min", "max"):
            return OperandTypes((type_,), (type_,) * max(2, len(instruction.operands) - 1))
        return same_types(count)(instruction)

    return found


def check(instruction: Instruction) -> str:
    """Refuse modifiers that the instruction does not have; returns how it rounds ("approx", "full" too)."""
    parts = instruction.parts
    mixed = _mixed(instruction)
    type_ = ".".join(parts[-2:]) if mixed else parts[-1]
    words = parts[: -2 if mixed else -1]
    legal = _LEGAL[instruction.opcode].get(type_ if type_ == "f32x2" else type_.removesuffix("x2"))
    if legal is None:
        raise unsupported(instruction, f"not with the type .{type_}")
    for word in words:
        if word not in legal.split() or words.count(word) > 1:
            raise unsupported(instruction, f"the modifier .{word} does not go with .{type_} here")
    ways = [word for word in words if word in _WAYS]
    if len(ways) > 1 or {"sat", "relu"} <= set(words):
        raise unsupported(instruction, "its modifiers exclude each other")
    if not ways and instruction.opcode in _MUST_SAY:
        raise unsupported(instruction, "it must say how to round, or that it is approximate")
    return ways[0] if ways else "rn"


# -- before and after -------------------------------------------------------------------------------
def flushed(e: Emitter, instruction: Instruction, value: Value) -> Value:
    """Flush a float or f16 number if the instruction says so."""
    if "ftz" not in instruction.parts:
        return value
    return flush(e, value) if value.scalar in ("float", "half") else value


def one_nan(e: Emitter, value: Value) -> Value:
    """A number, and of all NaN the one that GPUs give; doubles keep theirs."""
    if value.scalar == "double":
        return value
    # NOTE: as integers, since to LLVM one NaN is as good as another.
    bits = e.cast("bitcast", value, "i32")
    nan = e.const(bits, FORMATS["f32"].nan)
    return e.cast("bitcast", e.select(e.compare("fcmp uno", value, value), nan, bits), "float")


def saturate(e: Emitter, value: Value) -> Value:
    """Into [0, 1]; NaN becomes +0 (``.sat``)."""
    zero, one = e.real(value, 0.0), e.real(value, 1.0)
    above = e.select(e.compare("fcmp ogt", value, zero), value, zero)
    return e.select(e.compare("fcmp olt", above, one), above, one)


def comparable(e: Emitter, instruction: Instruction, *values: Value) -> list[Value]:
    """The operands of a comparison: flushed if it says so, and of a type that LLVM compares rightly."""
    return [halves.up(e, flushed(e, instruction, value)) for value in values]


def _finish(e: Emitter, instruction: Instruction, type_: str, value: Value) -> Value:
    """Limit a result, round it to a two-byte type, flush it."""
    if "sat" in instruction.parts:
        value = saturate(e, value)
    if "relu" in instruction.parts:
        value = rectify(e, value)
    if type_ in ("f16", "bf16"):
        if "ftz" in instruction.parts:
            # What has eleven digits and would become 2**-14 is at least this.
            least = e.real(value, 2.0**-14 * (1 - 2.0**-12))
            value = _zeroed(e, value, e.compare("fcmp olt", e.intrinsic("llvm.fabs", value), least))
        return halves.down(e, value, type_)
    return flushed(e, instruction, value)


def _zeroed(e: Emitter, value: Value, where: Value) -> Value:
    """Zeros of a float's sign where a condition holds."""
    bits = e.cast("bitcast", value, "i32")
    zero = e.op("and", bits, 1 << 31)
    return e.cast("bitcast", e.select(where, zero, bits), "float")


def _operate(e: Emitter, operation: str, way: str, *values: Value) -> Value:
    if way in ("rz", "rm", "rp"):
        return directed(e, operation, way, *values)
    return e.intrinsic("llvm.fma", *values) if operation == "fma" else e.op(operation, *values)


def _flushed_early(e: Emitter, operation: str, way: str, result: Value, *values: Value) -> Value:
    """A float with zeros for what is below the smallest normal number when its exponent is not bounded.

    The same is computed of larger numbers. What those make too large, or too small to be exact, is not near.
    """
    a, b, *c = values
    up, other = e.real(a, 2.0**50), e.real(b, 2.0**-50 if operation == "fdiv" else 2.0**50)
    moved = [e.op("fmul", a, up), e.op("fmul", b, other), *(e.op("fmul", x, e.real(x, 2.0**100)) for x in c)]
    size = e.intrinsic("llvm.fabs", _operate(e, operation, way, *moved))
    return _zeroed(e, result, e.compare("fcmp olt", size, e.real(size, 2.0**-26)))


# -- arithmetic -------------------------------------------------------------------------------------
def binary(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    """add, sub, mul and div."""
    way = check(instruction)
    operation = _OPS[instruction.opcode]

    def one(type_: str, a: Value, b: Value) -> Value:
        left, right = comparable(e, instruction, a, b)
        result = _operate(e, operation, way, left, right)
        if way == "approx":
            result = _small_quotient(e, left, right, result)
        if type_ == "f32" and operation in ("fmul", "fdiv") and "ftz" in instruction.parts:
            result = _flushed_early(e, operation, way, result, left, right)
        if operation == "fdiv" or (type_ == "f32" and instruction.read_as_bits):
            result = one_nan(e, result)
        return _finish(e, instruction, type_, result)

    if _mixed(instruction):
        return one("f32", a, b)
    return halves.each(e, instruction.parts[-1], one, a, b)


def _small_quotient(e: Emitter, a: Value, b: Value, quotient: Value) -> Value:
    """``div.approx`` by more than 2**126: zero, or NaN if the dividend is infinite."""
    size, infinity = e.intrinsic("llvm.fabs", b), e.const(a, FORMATS["f32"].infinity)
    large = e.op(
        "and",
        e.compare("fcmp ogt", size, e.real(a, 2.0**126)),
        e.compare("fcmp olt", size, infinity),
    )
    sign = e.op("and", e.cast("bitcast", quotient, "i32"), 1 << 31)
    number = e.compare("fcmp olt", e.intrinsic("llvm.fabs", a), infinity)
    nan = e.const(a, FORMATS["f32"].nan)
    return e.select(large, e.select(number, e.cast("bitcast", sign, "float"), nan), quotient)


def fma(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    """One rounding for product and sum together."""
    way = check(instruction)

    def one(type_: str, a: Value, b: Value, c: Value) -> Value:
        values = [flushed(e, instruction, value) for value in (a, b, c)]
        if type_ in ("f16", "bf16"):
            return _finish(e, instruction, type_, halves.fma(e, type_, *values))
        result = _operate(e, "fma", way, *values)
        if type_ == "f32" and "ftz" in instruction.parts:
            result = _flushed_early(e, "fma", way, result, *values)
        if type_ == "f32" and instruction.read_as_bits:
            result = one_nan(e, result)
        return _finish(e, instruction, type_, result)

    if _mixed(instruction):
        return one("f32", halves.up(e, a), halves.up(e, b), c)
    return halves.each(e, instruction.parts[-1], one, a, b, c)


@pure("rcp", form=same_types(1), ptx="1.0")
def rcp(e: Emitter, instruction: Instruction, a: Value) -> Value:
    way = check(instruction)
    if a.scalar == "double" and _upper_word_only(instruction, way):
        return _upper_word(e, a, lambda value: e.op("fdiv", e.real(value, 1.0), value))
    value = flushed(e, instruction, a)
    one = e.real(value, 1.0)
    result = _operate(e, "fdiv", way, one, value)
    if "ftz" in instruction.parts:
        result = _flushed_early(e, "fdiv", way, result, one, value)
    return flushed(e, instruction, one_nan(e, result))


@pure("sqrt", form=same_types(1), ptx="1.0")
def sqrt(e: Emitter, instruction: Instruction, a: Value) -> Value:
    way = check(instruction)
    value = flushed(e, instruction, a)
    if way in ("rz", "rm", "rp"):
        return one_nan(e, directed(e, "sqrt", way, value))  # never subnormal
    root = e.intrinsic("llvm.sqrt", value)
    if value.scalar == "double":
        return root
    # NOTE: by the operand's bits: LLVM knows what has no root, and leaves out what only makes a NaN of a NaN.
    whole, of = e.cast("bitcast", value, "i32"), FORMATS["f32"]
    none = e.op("and", e.is_above(whole, of.infinity), e.differs(whole, 1 << 31))
    return e.cast("bitcast", e.select(none, of.nan, e.cast("bitcast", root, "i32")), "float")


@pure("rsqrt", form=same_types(1), ptx="1.0")
def rsqrt(e: Emitter, instruction: Instruction, a: Value) -> Value:
    """Two roundings to the nearest: within 2**-23 of the exact number."""
    way = check(instruction)

    def inverse(value: Value) -> Value:
        return e.op("fdiv", e.real(value, 1.0), e.intrinsic("llvm.sqrt", value))

    if a.scalar == "double" and _upper_word_only(instruction, way):
        return _upper_word(e, a, inverse)
    return one_nan(e, inverse(flushed(e, instruction, a)))


def _upper_word_only(instruction: Instruction, way: str) -> bool:
    """``.approx.ftz.f64``, which reads and makes upper words alone."""
    approximate, ftz = way == "approx", "ftz" in instruction.parts
    if (ftz and not approximate) or (approximate and not ftz and instruction.opcode == "rcp"):
        raise unsupported(instruction, "with .f64, .approx and .ftz go together")
    return ftz


def _upper_word(e: Emitter, a: Value, function: Callable[[Value], Value]) -> Value:
    """A function of doubles that sees upper words alone, with subnormal numbers as zeros.

    What is a NaN by its lower word alone is an infinity there.
    """

    def cut(value: Value) -> Value:
        bits = e.op("and", e.cast("bitcast", value, "i64"), ~0xFFFF_FFFF)
        exponent = e.op("and", bits, 0x7FF0_0000_0000_0000)
        zero = e.op("and", bits, 1 << 63)
        bits = e.select(e.equals(exponent, 0), zero, bits)
        return e.cast("bitcast", bits, "double")

    result = function(cut(a))
    return e.select(e.compare("fcmp uno", result, result), 0x7FFF_FFFF_0000_0000, cut(result))


# -- order and sign ---------------------------------------------------------------------------------
def minmax(e: Emitter, instruction: Instruction, *sources: Value) -> Value:
    """The number where the other operand is NaN; with ``.NaN``, NaN. -0 is less than +0."""
    check(instruction)
    words = set(instruction.parts)
    three = len(sources) > 2
    signs = words & {"abs", "xorsign"}
    if signs and signs != ({"abs"} if three else {"abs", "xorsign"}):
        raise unsupported(instruction, ".xorsign and .abs go together, and with three sources .abs alone")
    if three and (instruction.parts[-1] != "f32" or len(sources) > 3):
        raise unsupported(instruction, "three sources go with .f32 alone")
    name = f"llvm.{instruction.opcode}imum" + ("" if "NaN" in words else "num")

    def one(type_: str, *numbers: Value) -> Value:
        values = comparable(e, instruction, *numbers)
        given = values
        if "abs" in words:
            values = [e.intrinsic("llvm.fabs", value) for value in values]
        result = values[0]
        for value in values[1:]:
            result = e.intrinsic(name, result, value)
        if "xorsign" in words:
            result = _sign_of_product(e, result, *given)
        return halves.down(e, result, type_) if type_ in ("f16", "bf16") else one_nan(e, result)

    return halves.each(e, instruction.parts[-1], one, *sources)


def _sign_of_product(e: Emitter, size: Value, a: Value, b: Value) -> Value:
    first, second = (e.cast("bitcast", value, "i32") for value in (a, b))
    return e.intrinsic("llvm.copysign", size, e.cast("bitcast", e.op("xor", first, second), "float"))


def sign(e: Emitter, instruction: Instruction, a: Value) -> Value:
    """neg and abs: the sign bit alone. A NaN is the one that GPUs give; doubles' only becomes quiet."""
    check(instruction)

    def one(type_: str, a: Value) -> Value:
        value = flushed(e, instruction, a)
        if type_ in ("f32", "f64"):
            result = e.negate(value) if instruction.opcode == "neg" else e.intrinsic("llvm.fabs", value)
            return one_nan(e, result) if type_ == "f32" else _quiet(e, value, result)
        bits = e.cast("bitcast", value, "i16")
        word, mask = ("xor", 0x8000) if instruction.opcode == "neg" else ("and", 0x7FFF)
        changed = e.op(word, bits, mask)
        size, of = e.op("and", bits, 0x7FFF), FORMATS[type_]
        nan = e.is_above(size, of.infinity)
        return e.cast("bitcast", e.select(nan, of.nan, changed), value.scalar)

    return halves.each(e, instruction.parts[-1], one, a)


def _quiet(e: Emitter, value: Value, result: Value) -> Value:
    """What becomes of a double, or the double itself if it is a NaN, made quiet."""
    bits, changed = (e.cast("bitcast", item, "i64") for item in (value, result))
    nan = e.compare("fcmp uno", value, value)
    return e.cast("bitcast", e.select(nan, e.op("or", bits, 1 << 51), changed), "double")


@pure("copysign", form=same_types(2), ptx="2.0", arch="sm_20")
def copysign(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    """b with the sign of a."""
    check(instruction)
    return e.intrinsic("llvm.copysign", b, a)


def _test_form(instruction: Instruction) -> OperandTypes:
    return OperandTypes(("pred",), (instruction.parts[-1],))


@pure("testp", form=_test_form, ptx="2.0", arch="sm_20")
def testp(e: Emitter, instruction: Instruction, a: Value) -> Value:
    """What kind of number it is; zeros are normal."""
    if len(instruction.parts) != 2 or instruction.parts[-1] not in ("f32", "f64"):
        raise unsupported(instruction, "not in this form")
    of = FORMATS[instruction.parts[-1]]
    whole = e.cast("bitcast", a, of.storage)
    size = e.op("and", whole, (1 << (of.bits - 1)) - 1)
    infinity = e.const(size, of.infinity)
    match instruction.parts[0]:
        case "finite":
            return e.is_below(size, infinity)
        case "infinite":
            return e.equals(size, infinity)
        case "number":
            return e.is_at_most(size, infinity)
        case "notanumber":
            return e.is_above(size, infinity)
    # One less turns zero into the largest integer, so that one comparison finds the subnormal numbers.
    smallest = e.const(size, (1 << of.fraction) - 1)
    less = e.op("sub", size, 1)
    match instruction.parts[0]:
        case "subnormal":
            return e.is_below(less, smallest)
        case "normal":
            usual = e.is_at_least(less, smallest)
            return e.op("and", usual, e.is_below(size, infinity))
    raise unsupported(instruction, f"no test {instruction.parts[0]!r}")
