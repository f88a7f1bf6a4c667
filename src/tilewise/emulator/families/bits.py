"""Bits: logic, shifts, counts, fields, permutations, carry-less products."""

from __future__ import annotations

from tilewise.emulator.families.integers import check, element, one_of, typed
from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.lowering.tables import pure, unsupported
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.ptx.syntax import Immediate, Instruction
from tilewise.emulator.ptx.types import is_signed

__all__: list[str] = []

_BITS = ("b16", "b32", "b64")
_LONG = ("u32", "s32", "u64", "s64")


# -- logic -----------------------------------------------------------------------------------------------
_logic_form = typed(2, ("pred", *_BITS))


@pure("and", form=_logic_form, lanes="and", ptx="1.0")
@pure("or", form=_logic_form, lanes="or", ptx="1.0")
@pure("xor", form=_logic_form, lanes="xor", ptx="1.0")
def logic(e: Emitter, instruction: Instruction, a: Value, b: Value) -> Value:
    return e.op(instruction.opcode, a, b)


@pure("not", form=typed(1, ("pred", *_BITS)), ptx="1.0")
def invert(e: Emitter, instruction: Instruction, a: Value) -> Value:
    return e.op("xor", a, -1)


@pure("cnot", form=typed(1, _BITS), ptx="1.0")
def is_zero(e: Emitter, instruction: Instruction, a: Value) -> Value:
    """1 for 0, and 0 for all else."""
    return e.cast("zext", e.equals(a, 0), a.scalar)


def _lop3_form(instruction: Instruction) -> OperandTypes:
    check(instruction, ("b32",), "and", "or")
    if len(instruction.parts) == 1:
        return OperandTypes(("b32",), ("b32",) * 4)
    one_of(instruction, "and", "or")
    return OperandTypes(("b32", "pred"), ("b32",) * 4 + ("pred",))


@pure("lop3", form=_lop3_form, ptx="4.3", arch="sm_50")
def lop3(
    e: Emitter,
    instruction: Instruction,
    a: Value,
    b: Value,
    c: Value,
    table: Value,
    q: Value | None = None,
) -> Value | tuple[Value, Value]:
    """Any function of three bits, from its table; a predicate too, if the result is to be tested."""
    given = instruction.operands[4]
    if not isinstance(given, Immediate) or not 0 <= given.value <= 255:
        raise unsupported(instruction, "its table must be a constant from 0 to 255")
    result = e.const(a, 0)
    for row in range(8):
        if given.value >> row & 1:
            terms = [
                value if row >> place & 1 else e.op("xor", value, -1)
                for value, place in ((a, 2), (b, 1), (c, 0))
            ]
            result = e.op("or", result, e.op("and", e.op("and", terms[0], terms[1]), terms[2]))
    if q is None:
        return result
    some = e.differs(result, 0)
    return result, e.op(one_of(instruction, "and", "or"), some, q)


# -- shifts ----------------------------------------------------------------------------------------------
def _shift_form(instruction: Instruction) -> OperandTypes:
    words = ("u16", "u32", "u64", "s16", "s32", "s64") if instruction.opcode == "shr" else ()
    type_ = check(instruction, (*_BITS, *words))
    return OperandTypes((type_,), (type_, "u32"))


@pure("shl", form=_shift_form, lanes="shifted left", ptx="1.0")
@pure("shr", form=_shift_form, lanes="shifted right", ptx="1.0")
def shift(e: Emitter, instruction: Instruction, a: Value, amount: Value) -> Value:
    """Shifts by the register's width or more give 0, or the sign."""
    if is_signed(instruction.parts[-1]):
        return shifted(e, "ashr", a, amount)
    return shifted(e, "shl" if instruction.opcode == "shl" else "lshr", a, amount)


def shifted(e: Emitter, how: str, a: Value, amount: Value) -> Value:
    """A shift by any i32: by the width or more it gives 0, or the sign."""
    last = int(a.scalar[1:]) - 1
    over = e.is_above(amount, last)
    by = e.resize(e.select(over, last, amount), a.scalar, False)
    result = e.op(how, a, by)
    return result if how == "ashr" else e.select(over, 0, result)


def _funnel_form(instruction: Instruction) -> OperandTypes:
    check(instruction, ("b32",), "l", "r", "wrap", "clamp")
    one_of(instruction, "l", "r")
    one_of(instruction, "wrap", "clamp")
    return OperandTypes(("b32",), ("b32", "b32", "u32"))


@pure("shf", form=_funnel_form, ptx="3.1", arch="sm_32")
def funnel(e: Emitter, instruction: Instruction, a: Value, b: Value, amount: Value) -> Value:
    """The 64 bits {b, a} shifted left or right: the upper half, or the lower."""
    left = "l" in instruction.parts
    result = e.intrinsic("llvm.fshl" if left else "llvm.fshr", b, a, amount)
    if "wrap" in instruction.parts:
        return result
    over = e.is_above(amount, 31)
    return e.select(over, a if left else b, result)


# -- counts ----------------------------------------------------------------------------------------------
def _count_form(instruction: Instruction) -> OperandTypes:
    return OperandTypes(("u32",), (check(instruction, ("b32", "b64")),))


@pure("popc", "clz", form=_count_form, ptx="2.0", arch="sm_20")
def count(e: Emitter, instruction: Instruction, a: Value) -> Value:
    if instruction.opcode == "popc":
        return e.resize(e.count_bits(a), "i32", False)
    return e.resize(leading_zeros(e, a), "i32", False)


def leading_zeros(e: Emitter, a: Value) -> Value:
    """All bits of 0 lead."""
    return e.intrinsic("llvm.ctlz", a, e.const("i1", 0))


def _find_form(instruction: Instruction) -> OperandTypes:
    return OperandTypes(("u32",), (check(instruction, _LONG, "shiftamt"),))


@pure("bfind", form=_find_form, ptx="2.0", arch="sm_20")
def find(e: Emitter, instruction: Instruction, a: Value) -> Value:
    """The highest bit that is no sign, counted from the bottom or from the top; -1 if there is none."""
    last = int(a.scalar[1:]) - 1
    if is_signed(instruction.parts[-1]):
        a = e.op("xor", a, e.op("ashr", a, last))
    above = e.resize(leading_zeros(e, a), "i32", False)
    if "shiftamt" not in instruction.parts:
        return e.op("sub", last, above)
    return e.select(e.is_above(above, last), -1, above)


def _nth_form(instruction: Instruction) -> OperandTypes:
    check(instruction, ("b32",))
    return OperandTypes(("b32",), ("b32", "b32", "s32"))


@pure("fns", form=_nth_form, ptx="6.0", arch="sm_30")
def find_nth(e: Emitter, instruction: Instruction, mask: Value, base: Value, nth: Value) -> Value:
    """The n-th set bit of a mask at or above a base, or below it if n is negative; -1 if there is none.

    A base above 31, which PTX leaves open, finds none; n = -2**31 gives 0, as GPUs do.
    """
    down = e.compare("icmp slt", nth, 0)
    bits = e.select(down, e.intrinsic("llvm.bitreverse", mask), mask)
    inside = e.is_below(base, 32)
    start = e.select(inside, base, 0)
    start = e.select(down, e.op("sub", 31, start), start)
    here = e.op("shl", 1, start)
    at_or_above = e.op("and", bits, e.op("shl", -1, start))
    # n = 0 asks for the base's own bit.
    own = e.equals(nth, 0)
    left = e.select(own, e.op("and", bits, here), at_or_above)
    left = e.select(inside, left, 0)
    skip = e.op("sub", e.intrinsic("llvm.abs", nth, e.const("i1", 0)), 1)
    skip = e.select(own, 0, skip)
    for i in range(32):
        fewer = e.op("and", left, e.op("sub", left, 1))
        left = e.select(e.is_above(skip, i), fewer, left)
    place = e.find_lowest(left)
    place = e.select(down, e.op("sub", 31, place), place)
    found = e.select(e.equals(left, 0), -1, place)
    return e.select(e.equals(nth, -1 << 31), 0, found)


@pure("brev", form=typed(1, ("b32", "b64")), ptx="2.0", arch="sm_20")
def reverse(e: Emitter, instruction: Instruction, a: Value) -> Value:
    return e.intrinsic("llvm.bitreverse", a)


# -- fields ----------------------------------------------------------------------------------------------
def _low_byte(e: Emitter, of: Value, value: Value) -> Value:
    """The lowest byte of a position or a length. Of 64 bits PTX leaves more than that open; GPUs take all of it."""
    return value if of.scalar == "i64" else e.op("and", value, 255)


def _low_ones(e: Emitter, like: Value, length: Value) -> Value:
    """A number whose lowest bits, as many as ``length``, are set: all of them if there are fewer."""
    ones = e.const(like, -1)
    return e.op("xor", shifted(e, "shl", ones, length), ones)


def _extract_form(instruction: Instruction) -> OperandTypes:
    type_ = check(instruction, _LONG)
    return OperandTypes((type_,), (type_, "u32", "u32"))


@pure("bfe", form=_extract_form, ptx="2.0", arch="sm_20")
def extract(e: Emitter, instruction: Instruction, a: Value, start: Value, length: Value) -> Value:
    """A field of bits, filled up with zeros or with its sign."""
    start, length = _low_byte(e, a, start), _low_byte(e, a, length)
    if not is_signed(instruction.parts[-1]):
        return e.op("and", shifted(e, "lshr", a, start), _low_ones(e, a, length))
    bits = int(a.scalar[1:])
    field = shifted(e, "ashr", a, start)
    # Shift the field's own top bit to the register's, and back: what it had above is gone.
    above = e.intrinsic("llvm.usub.sat", e.const(length, bits), length)
    result = shifted(e, "ashr", shifted(e, "shl", field, above), above)
    return e.select(e.equals(length, 0), 0, result)


def _insert_form(instruction: Instruction) -> OperandTypes:
    type_ = check(instruction, ("b32", "b64"))
    return OperandTypes((type_,), (type_, type_, "u32", "u32"))


@pure("bfi", form=_insert_form, ptx="2.0", arch="sm_20")
def insert(e: Emitter, instruction: Instruction, a: Value, b: Value, start: Value, length: Value) -> Value:
    """b with a's lowest bits in the place of a field."""
    start, length = _low_byte(e, a, start), _low_byte(e, a, length)
    field = shifted(e, "shl", _low_ones(e, a, length), start)
    kept = e.without(b, field)
    return e.op("or", kept, e.op("and", shifted(e, "shl", a, start), field))


def _mask_form(instruction: Instruction) -> OperandTypes:
    check(instruction, ("b32",), "wrap", "clamp")
    one_of(instruction, "wrap", "clamp")
    return OperandTypes(("u32",), ("u32", "u32"))


@pure("bmsk", form=_mask_form, ptx="7.6", arch="sm_70")
def mask(e: Emitter, instruction: Instruction, start: Value, length: Value) -> Value:
    """A run of set bits from a start on."""
    if "wrap" in instruction.parts:
        start = e.op("and", start, 31)
        length = e.op("and", length, 31)
    return shifted(e, "shl", _low_ones(e, start, length), start)


def _extend_form(instruction: Instruction) -> OperandTypes:
    type_ = check(instruction, ("u32", "s32"), "wrap", "clamp")
    one_of(instruction, "wrap", "clamp")
    return OperandTypes((type_,), (type_, "u32"))


@pure("szext", form=_extend_form, ptx="7.6", arch="sm_70")
def extend(e: Emitter, instruction: Instruction, a: Value, length: Value) -> Value:
    """The lowest bits of a number, as many as ``length``, filled up with zeros or with their sign."""
    if "wrap" in instruction.parts:
        length = e.op("and", length, 31)
    if not is_signed(instruction.parts[-1]):
        return e.op("and", a, _low_ones(e, a, length))
    above = e.intrinsic("llvm.usub.sat", e.const(length, 32), length)
    result = e.op("ashr", shifted(e, "shl", a, above), _at_most(e, above, 31))
    return e.select(e.equals(length, 0), 0, result)


def _at_most(e: Emitter, value: Value, most: int) -> Value:
    return e.intrinsic("llvm.umin", value, most)


# -- permutations ----------------------------------------------------------------------------------------
# Where each of the result's bytes comes from, by mode, from the selector's two lowest bits.
_MODES = {
    "f4e": lambda low, byte: low + byte,
    "b4e": lambda low, byte: (low - byte) % 8,
    "rc8": lambda low, byte: low,
    "ecl": lambda low, byte: max(low, byte),
    "ecr": lambda low, byte: min(low, byte),
    "rc16": lambda low, byte: 2 * (low & 1) + (byte & 1),
}


def _permute_form(instruction: Instruction) -> OperandTypes:
    check(instruction, ("b32",), *_MODES)
    if len(instruction.parts) > 2:
        one_of(instruction, *_MODES)
    return OperandTypes(("b32",), ("b32", "b32", "b32"))


@pure("prmt", form=_permute_form, ptx="2.0", arch="sm_20")
def permute(e: Emitter, instruction: Instruction, a: Value, b: Value, selector: Value) -> Value:
    """Four of the eight bytes {b, a}, in any order; without a mode, also the sign of a byte eight times."""
    mode = instruction.parts[0] if instruction.parts[0] in _MODES else ""
    given = instruction.operands[3]
    if isinstance(given, Immediate):
        return _permute_constant(e, a, b, _controls(mode, given.value))
    if not mode:
        return _permute_by(e, a, b, selector)
    # Only four cases: each known, one chosen.
    low = e.op("and", selector, 3)
    result = _permute_constant(e, a, b, _controls(mode, 0))
    for case in (1, 2, 3):
        chosen = e.equals(low, case)
        result = e.select(chosen, _permute_constant(e, a, b, _controls(mode, case)), result)
    return result


def _controls(mode: str, selector: int) -> list[int]:
    """For each byte of the result, which of the eight it is; 8 more for its sign."""
    if mode:
        return [_MODES[mode](selector & 3, byte) for byte in range(4)]
    return [selector >> 4 * byte & 15 for byte in range(4)]


def _permute_constant(e: Emitter, a: Value, b: Value, controls: list[int]) -> Value:
    """Permute bytes by a constant selector: those that move by the same distance move together."""
    moves: dict[tuple[bool, int], int] = {}
    result = e.const(a, 0)
    for byte, control in enumerate(controls):
        if control & 8:
            sign = element(e, b if control & 4 else a, control & 3, 8, True)
            field = e.op("and", e.op("ashr", sign, 7), 255 << 8 * byte)
            result = e.op("or", result, field)
        else:
            moved = (bool(control & 4), byte - (control & 3))
            moves[moved] = moves.get(moved, 0) | 255 << 8 * byte
    for (from_b, distance), field_mask in moves.items():
        value = b if from_b else a
        if distance:
            value = e.op("shl" if distance > 0 else "lshr", value, 8 * abs(distance))
        result = e.op("or", result, e.op("and", value, field_mask))
    return result


def _permute_by(e: Emitter, a: Value, b: Value, selector: Value) -> Value:
    low, high = e.wide(a), e.wide(b)
    whole = e.op("or", low, e.op("shl", high, 32))
    result = e.const(a, 0)
    for byte in range(4):
        control = e.op("lshr", selector, 4 * byte)
        place = e.op("shl", e.op("and", control, 7), 3)
        value = e.resize(e.op("lshr", whole, e.wide(place)), "i32", False)
        value = e.op("and", value, 255)
        top = e.op("shl", value, 24)
        signs = e.op("and", e.op("ashr", top, 31), 255)
        is_sign = e.differs(e.op("and", control, 8), 0)
        field = e.select(is_sign, signs, value)
        result = e.op("or", result, e.op("shl", field, 8 * byte))
    return result


# -- integers made narrow and packed ---------------------------------------------------------------------
_NARROW = {"u16": 16, "s16": 16, "u8": 8, "s8": 8, "u4": 4, "s4": 4, "u2": 2, "s2": 2}


def _pack_form(instruction: Instruction) -> OperandTypes:
    match instruction.parts:
        case ("sat", "u16" | "s16", "s32"):
            return OperandTypes(("u32",), ("s32", "s32"))
        case ("sat", "u8" | "s8" | "u4" | "s4" | "u2" | "s2", "s32", "b32"):
            return OperandTypes(("u32",), ("s32", "s32", "b32"))
    raise unsupported(instruction, "not in this form")


@pure("cvt.pack", form=_pack_form, ptx="6.5", arch="sm_72")
def pack(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value | None = None) -> Value:
    """Two numbers clamped to few bits, a above b; the bits of c above both."""
    type_ = instruction.parts[1]
    bits = _NARROW[type_]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed(type_) else (0, (1 << bits) - 1)
    fields = []
    for value in (a, b):
        clamped = e.intrinsic("llvm.smax", value, low)
        clamped = e.intrinsic("llvm.smin", clamped, high)
        fields.append(e.op("and", clamped, (1 << bits) - 1))
    result = e.op("or", e.op("shl", fields[0], bits), fields[1])
    return result if c is None else e.op("or", result, e.op("shl", c, 2 * bits))


# -- carry-less products ---------------------------------------------------------------------------------
_EVERY_FOURTH = 0x1111_1111_1111_1111


def _carryless_form(instruction: Instruction) -> OperandTypes:
    form = typed(3, ("u64",), "lo", "hi")(instruction)
    one_of(instruction, "lo", "hi")
    return form


@pure("clmad", form=_carryless_form, ptx="9.3", arch="sm_80")
def carryless_product_and_sum(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    """Half of the product of a and b as polynomials over two elements, and c added: sums are exclusive ors."""
    if "lo" in instruction.parts:
        return e.op("xor", _low_carryless(e, a, b), c)
    # Mirrored, the lower half is the upper one, all but the lowest bit of it.
    mirrored = _low_carryless(e, *(e.intrinsic("llvm.bitreverse", value) for value in (a, b)))
    upper = e.op("lshr", e.intrinsic("llvm.bitreverse", mirrored), 1)
    return e.op("xor", upper, c)


def _low_carryless(e: Emitter, a: Value, b: Value) -> Value:
    """The lower half of a carry-less product, by products of every fourth bit.

    In each place at most 15 of them meet, whose sum fills that place and the three above it, where nothing else is. 16
    meet in the highest alone, and what they carry is beyond the end.
    """
    left, right = ([e.op("and", value, _EVERY_FOURTH << i) for i in range(4)] for value in (a, b))
    result = e.const(a, 0)
    for i in range(4):
        total = e.const(a, 0)
        for j in range(4):
            total = e.op("xor", total, e.op("mul", left[j], right[(i - j) % 4]))
        result = e.op("or", result, e.op("and", total, _EVERY_FOURTH << i))
    return result
