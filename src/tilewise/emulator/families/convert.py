"""``cvt``: between integers, between floats, and from one to the other."""

from __future__ import annotations

from collections.abc import Iterable

from tilewise.emulator.families.floats import flushed, one_nan, saturate
from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.lowering.tables import pure, unsupported
from tilewise.emulator.numerics import halves
from tilewise.emulator.numerics.rounding import (
    FORMATS,
    ROUNDINGS,
    from_integer,
    narrow,
    narrow_by_chance,
    rectify,
)
from tilewise.emulator.numerics.small_floats import (
    SMALL,
    pack,
    pack_exponents,
    unpack,
    unpack_as_bf16,
    unpack_exponents,
)
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.ptx.syntax import Instruction, Register
from tilewise.emulator.ptx.types import bits_of, is_float, is_signed, llvm_scalar

__all__: list[str] = []

# rint is roundeven in the rounding mode that is always set; every C library has it.
_TO_INTEGER = {"rni": "llvm.rint", "rzi": "llvm.trunc", "rmi": "llvm.floor", "rpi": "llvm.ceil"}
_SCALED = "scaled::n2::ue8m0"
# By what holds what: all of one rank hold all of a lower one.
_FLOATS = {"f16": 0, "bf16": 0, "f32": 1, "f64": 2}


def _form(instruction: Instruction) -> OperandTypes:
    to, of = instruction.parts[-2], instruction.parts[-1]
    sources = (of, of) if of == "f32" and to.endswith("x2") else (of,)
    # Random bits, or a scale for each number.
    extra = ("b32",) if "rs" in instruction.parts else ("b16",) if _SCALED in instruction.parts else ()
    if extra and not isinstance(instruction.operands[-1], Register):
        raise unsupported(instruction, f"its last operand must be a register of type .{extra[0]}")
    return OperandTypes((to,), sources + extra)


@pure("cvt", form=_form, lanes="converted", ptx="1.0")
def cvt(
    e: Emitter, instruction: Instruction, a: Value, b: Value | None = None, extra: Value | None = None
) -> Value:
    to, of = instruction.parts[-2:]
    if extra is not None:
        return _packed_by_chance(e, instruction, to, of, *_floats(e, of, a, b), extra)
    if to == "bf16x2" and of in SMALL:
        _check_modifiers(instruction, ("rn",), f"satfinite relu {_SCALED}")
        words = instruction.parts
        return unpack_as_bf16(e, of, a, b, relu="relu" in words, finite="satfinite" in words)
    if to.endswith("x2") or of.endswith("x2"):
        return _packed(e, instruction, to, of, a, b)
    if is_float(of):
        if to == "tf32":
            return _to_tf32(e, instruction, a, of)
        if is_float(to):
            return _between_floats(e, instruction, a, to, of)
        return _to_integer(e, instruction, a, to, of)
    if is_float(to):
        return _from_integer(e, instruction, a, to, of)
    return _integers(e, instruction, a, to, of)


def _check_modifiers(instruction: Instruction, ways: Iterable[str], others: str, must: bool = True) -> str:
    """Refuse modifiers that this conversion does not have; returns how it rounds."""
    words = instruction.parts[:-2]
    found = [word for word in words if word in ways]
    for word in words:
        if word not in (*found, *others.split()) or words.count(word) > 1:
            raise unsupported(instruction, f"the modifier .{word} does not go with these types")
    if len(found) > 1 or (must and not found):
        raise unsupported(instruction, "it must say in one way how to round")
    return found[0] if found else ""


# -- one number ---------------------------------------------------------------------------------------
def _integers(e: Emitter, instruction: Instruction, a: Value, to: str, of: str) -> Value:
    """Cut or filled by the source's sign; with .sat, clamped to what the result's type can hold."""
    if to[0] not in "us" or of[0] not in "us":
        raise unsupported(instruction, "its types must be integers or floating-point numbers")
    _check_modifiers(instruction, (), "sat", must=False)
    if "sat" in instruction.parts:
        have = int(a.scalar[1:])
        low = -(1 << (bits_of(to) - 1)) if is_signed(to) else 0
        high = (1 << (bits_of(to) - is_signed(to))) - 1
        order = "s" if is_signed(of) else "u"
        if is_signed(of) and low > -(1 << (have - 1)):
            a = e.intrinsic("llvm.smax", a, low)
        if high < (1 << (have - is_signed(of))) - 1:
            a = e.intrinsic(f"llvm.{order}min", a, high)
    return e.resize(a, llvm_scalar(to), is_signed(of))


def _between_floats(e: Emitter, instruction: Instruction, a: Value, to: str, of: str) -> Value:
    if to not in _FLOATS or of not in _FLOATS:
        raise unsupported(instruction, "not between these types")
    exact = to == of or _FLOATS[to] > _FLOATS[of]
    others = ("ftz " if "f32" in (to, of) else "") + ("sat " if to != "bf16" else "")
    if {"relu", "satfinite"} & set(instruction.parts):
        if (of, to) not in (("f32", "f16"), ("f32", "bf16")):
            raise unsupported(instruction, ".relu and .satfinite are not for these types")
        way = _check_modifiers(instruction, ("rn", "rz"), "relu satfinite ftz")
    elif to == of:
        way = _check_modifiers(instruction, _TO_INTEGER, others, must=False)
    else:
        # NOTE: bf16 may be widened with a rounding, which then does nothing.
        way = _check_modifiers(
            instruction, ROUNDINGS if not exact or of == "bf16" else (), others, must=not exact
        )
    if to == of and not way and "sat" not in instruction.parts:
        return flushed(e, instruction, a) if of == "f32" else a

    value = halves.up(e, flushed(e, instruction, a) if of == "f32" else a)
    if to == of and way:
        value = e.intrinsic(_TO_INTEGER[way], value)
    value = _limited(e, instruction, value)
    if to in ("f16", "bf16"):
        exact_way = way if way in ROUNDINGS else "rn"
        return halves.down(e, value, to, exact_way, finite="satfinite" in instruction.parts)
    if to == "f64":
        value = one_nan(e, value) if "ftz" in instruction.parts else value
        return e.cast("fpext", value, "double")
    if value.scalar == "double":
        return flushed(e, instruction, _to_single(e, value, way))
    return flushed(e, instruction, value if of == "bf16" else one_nan(e, value))


def _limited(e: Emitter, instruction: Instruction, value: Value) -> Value:
    """``.sat`` and ``.relu``, whose limits every format has, so that rounding may follow."""
    if "sat" in instruction.parts:
        return saturate(e, value)
    return rectify(e, value) if "relu" in instruction.parts else value


def _to_single(e: Emitter, value: Value, way: str) -> Value:
    if way == "rn":
        return e.cast("fptrunc", value, "float")
    return e.cast("bitcast", narrow(e, value, FORMATS["f32"], way), "float")


def _to_tf32(e: Emitter, instruction: Instruction, a: Value, of: str) -> Value:
    """A float whose last 13 bits are zero."""
    if of != "f32":
        raise unsupported(instruction, "not between these types")
    relu = "relu" if "rna" not in instruction.parts else ""
    way = _check_modifiers(instruction, ("rna", "rn", "rz"), f"satfinite {relu}")
    finite = "satfinite" in instruction.parts
    bits = narrow(e, _limited(e, instruction, a), FORMATS["tf32"], way, finite)
    bits = e.op("shl", bits, 13)
    if way == "rna" and not finite:
        # GPUs cut a NaN's digits off, too; of some an infinity is left.
        whole = e.cast("bitcast", a, "i32")
        cut = e.op("and", whole, 0xFFFF_E000)
        bits = e.select(e.compare("fcmp uno", a, a), cut, bits)
    return e.cast("bitcast", bits, "float")


def _to_integer(e: Emitter, instruction: Instruction, a: Value, to: str, of: str) -> Value:
    """What is out of range becomes the nearest integer that is in it."""
    if of not in _FLOATS or to[0] not in "us":
        raise unsupported(instruction, "not between these types")
    way = _check_modifiers(instruction, _TO_INTEGER, "sat ftz" if of == "f32" else "sat")
    value = halves.up(e, flushed(e, instruction, a) if of == "f32" else a)
    rounded = e.intrinsic(_TO_INTEGER[way], value)
    result = e.convert("llvm.fptosi.sat" if is_signed(to) else "llvm.fptoui.sat", rounded, llvm_scalar(to))
    if of != "f64" and bits_of(to) < 64:
        return result  # NaN has become 0
    nan = e.compare("fcmp uno", value, value)
    return e.select(nan, 1 << (bits_of(to) - 1), result)


def _from_integer(e: Emitter, instruction: Instruction, a: Value, to: str, of: str) -> Value:
    if to not in _FLOATS or of[0] not in "us":
        raise unsupported(instruction, "not between these types")
    way = _check_modifiers(
        instruction, ROUNDINGS, ("ftz " if to == "f32" else "") + ("sat" if to != "bf16" else "")
    )
    result = from_integer(e, a, is_signed(of), to, way)
    if to in ("f16", "bf16"):
        result = e.cast("bitcast", result, llvm_scalar(to))
    if "sat" not in instruction.parts:
        return result
    limited = saturate(e, halves.up(e, result))
    return halves.down(e, limited, to) if to == "f16" else limited


# -- two numbers in a register ------------------------------------------------------------------------
def _packed(e: Emitter, instruction: Instruction, to: str, of: str, a: Value, b: Value | None) -> Value:
    words = set(instruction.parts[:-2])
    relu, finite = "relu" in words, "satfinite" in words
    if (to in SMALL or to == "ue8m0x2") and of in ("f32", "f16x2", "bf16x2"):
        if to in SMALL:
            _check_modifiers(instruction, ("rn",), "satfinite relu")
            if not finite:
                raise unsupported(instruction, "it must be .satfinite")
            return pack(e, to, *_floats(e, of, a, b), relu)
        if of != "f16x2":
            way = _check_modifiers(instruction, ("rz", "rp"), "satfinite")
            return pack_exponents(e, *_floats(e, of, a, b), way, finite)
    if to in ("f16x2", "bf16x2") and of == "f32":
        way = _check_modifiers(instruction, ("rn", "rz"), "satfinite relu")
        values = [_limited(e, instruction, value) for value in _floats(e, of, a, b)]
        low, high = (halves.down(e, value, halves.PARTS[to], way, finite) for value in values)
        return halves.join(e, low, high)
    if to == "f16x2" and of in SMALL:
        _check_modifiers(instruction, ("rn",), "relu")
        return unpack(e, of, a, relu)
    if (to, of) == ("bf16x2", "ue8m0x2"):
        _check_modifiers(instruction, ("rn",), "")
        return unpack_exponents(e, a)
    raise unsupported(instruction, "not between these types")


def _packed_by_chance(
    e: Emitter, instruction: Instruction, to: str, of: str, low: Value, high: Value, chance: Value
) -> Value:
    """Two floats rounded to bf16 at random: away from zero if their lower halves, with 16 random bits added, carry."""
    _check_modifiers(instruction, ("rs",), "satfinite relu")
    if (to, of) != ("bf16x2", "f32"):
        raise unsupported(instruction, ".rs is supported between these types alone: .bf16x2.f32")
    bits = (e.op("and", chance, 0xFFFF), e.op("lshr", chance, 16))
    values = (_limited(e, instruction, value) for value in (low, high))
    finite = "satfinite" in instruction.parts
    return halves.join(e, *(narrow_by_chance(e, v, r, finite) for v, r in zip(values, bits, strict=True)))


def _floats(e: Emitter, of: str, a: Value, b: Value | None) -> tuple[Value, Value]:
    """Low and high number of a packed operand, or of two: the first is the high one."""
    if b is not None:
        return b, a
    low, high = halves.split(e, of, a)
    return halves.up(e, low), halves.up(e, high)
