"""Moves, packing and unpacking, comparisons and choices."""

from __future__ import annotations

from tilewise.emulator.families.floats import comparable, flushed
from tilewise.emulator.families.integers import WORDS, check
from tilewise.emulator.llvm.emit import Emitter, Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.tables import effect, pure, unsupported
from tilewise.emulator.lowering.values import check_operand, read, write
from tilewise.emulator.numerics.halves import split
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.ptx.syntax import Immediate, Instruction, Operand, Pair, Register, Vector
from tilewise.emulator.ptx.types import bits_of, is_float, llvm_scalar

__all__ = ["compare"]

_BITS = ("b16", "b32", "b64")
_PLAIN = (*_BITS, *WORDS, "f32", "f64")
_ORDERED = {
    "eq": "oeq",
    "ne": "one",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "num": "ord",
    "nan": "uno",
}
_UNORDERED = {"equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge"}
_ALIKE = {"eq": "eq", "ne": "ne"}
_SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UNSIGNED = {
    "lt": "ult",
    "le": "ule",
    "gt": "ugt",
    "ge": "uge",
    "lo": "ult",
    "ls": "ule",
    "hi": "ugt",
    "hs": "uge",
}
_COMPARISONS = {
    "f": _ORDERED | _UNORDERED,
    "s": _ALIKE | _SIGNED,
    "u": _ALIKE | _UNSIGNED,
    "b": _ALIKE,
}
_JOINS = ("and", "or", "xor")
_HALVES = ("f16x2", "bf16x2")
_COMPARED = (*_PLAIN, "f16", "bf16", *_HALVES)
# What ``set`` may make of each type it compares, besides numbers of 32 bits.
_SET_ALSO = {
    "f16": ("u16", "s16"),
    "bf16": ("u16", "s16"),
    "f16x2": ("f16x2",),
    "bf16x2": ("bf16x2",),
}


# -- moves -----------------------------------------------------------------------------------------------
@effect("mov", lanes="moved", ptx="1.0")
def mov(e: Context, instruction: Instruction) -> None:
    type_ = check(instruction, ("pred", "b128", *_PLAIN))
    if len(instruction.operands) != 2:
        raise unsupported(instruction, "it takes one source")
    target, source = instruction.operands
    shape = e.result_shape(instruction)
    if isinstance(source, Vector):
        _pack(e, instruction, target, source)
    elif isinstance(target, Vector):
        _unpack(e, instruction, target, source)
    else:
        check_operand(e, instruction, source, type_)
        register = _target(e, instruction, target, type_)
        write(e, register, read(e, source, type_, shape is None), type_, shape)


def _target(e: Context, instruction: Instruction, target: Operand, type_: str) -> Register:
    if not isinstance(target, Register) or (target.name not in e.types and target.name != "_"):
        raise unsupported(instruction, "its destination must be a register")
    check_operand(e, instruction, target, type_)
    return target


def _part(instruction: Instruction, items: tuple[Operand, ...]) -> int:
    """Bits of each element that a register is packed from or unpacked to."""
    type_ = instruction.parts[-1]
    bits = bits_of(type_) // max(len(items), 1)
    if type_ not in ("b128", *_BITS) or len(items) not in (2, 4) or bits < 8:
        raise unsupported(instruction, "two or four elements of 8 bits or more make up a .b type")
    return bits


def _pack(e: Context, instruction: Instruction, target: Operand, source: Vector) -> None:
    """``mov.b64 d, {a, b}``: a is the low part."""
    part = _part(instruction, source.items)
    total = part * len(source.items)
    register = _target(e, instruction, target, f"b{total}")
    shape = e.result_shape(instruction)
    whole = e.zero(vector(f"i{total}") if shape is None else f"i{total}")
    for i, item in enumerate(source.items):
        if not isinstance(item, Register | Immediate) or item == Register("_"):
            raise unsupported(instruction, "its elements must be registers or constants")
        check_operand(e, instruction, item, f"b{part}")
        piece = e.resize(read(e, item, f"b{part}", shape is None), f"i{total}", False)
        whole = e.op("or", whole, e.op("shl", piece, i * part))
    write(e, register, whole, f"b{total}", shape)


def _unpack(e: Context, instruction: Instruction, target: Vector, source: Operand) -> None:
    part = _part(instruction, target.items)
    total = part * len(target.items)
    shape = e.result_shape(instruction)
    check_operand(e, instruction, source, f"b{total}")
    whole = read(e, source, f"b{total}", shape is None)
    for i, item in enumerate(target.items):
        register = item if item == Register("_") else _target(e, instruction, item, f"b{part}")
        assert isinstance(register, Register)
        piece = e.op("lshr", whole, i * part)
        write(e, register, e.resize(piece, f"i{part}", False), f"b{part}", shape)


# -- choices ---------------------------------------------------------------------------------------------
def _selp_form(instruction: Instruction) -> OperandTypes:
    type_ = check(instruction, _PLAIN)
    return OperandTypes((type_,), (type_, type_, "pred"))


@pure("selp", form=_selp_form, lanes="selected", ptx="1.0")
def selp(e: Emitter, instruction: Instruction, a: Value, b: Value, condition: Value) -> Value:
    return e.select(condition, a, b)


def _slct_form(instruction: Instruction) -> OperandTypes:
    match instruction.parts:
        case (type_, "s32") | (type_, "f32") | ("ftz", type_, "f32") if type_ in _PLAIN:
            return OperandTypes((type_,), (type_, type_, instruction.parts[-1]))
    raise unsupported(instruction, "not in this form")


@pure("slct", form=_slct_form, ptx="1.0")
def slct(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    """a where c is 0 or more, b elsewhere."""
    if c.scalar == "float":
        return e.select(e.compare("fcmp oge", flushed(e, instruction, c), e.real(c, 0.0)), a, b)
    return e.select(e.compare("icmp sge", c, 0), a, b)


# -- comparisons -----------------------------------------------------------------------------------------
def _check_comparison(instruction: Instruction, type_: str, join: bool, results: int) -> None:
    """The parts before an instruction's types: a comparison, a join if there is a predicate, .ftz."""
    kind = "f" if is_float(type_) else type_[0]
    word, *rest = instruction.parts[: len(instruction.parts) - results] or ("",)
    if word not in _COMPARISONS[kind]:
        raise unsupported(instruction, f".{type_} has no comparison .{word}")
    has_join = bool(rest) and rest[0] in _JOINS
    if has_join != join:
        raise unsupported(instruction, "one of .and, .or, .xor goes with a predicate")
    rest = rest[has_join:]
    if rest not in ([], ["ftz"]) or (rest and type_ not in ("f32", "f16", "f16x2")):
        raise unsupported(instruction, f".{'.'.join(rest)} does not fit here")


def compare(e: Emitter, instruction: Instruction, word: str, a: Value, b: Value) -> Value:
    """One of PTX's comparisons."""
    type_ = instruction.parts[-1]
    if is_float(type_):
        a, b = comparable(e, instruction, a, b)
        return e.compare(f"fcmp {_COMPARISONS['f'][word]}", a, b)
    return e.compare(f"icmp {_COMPARISONS[type_[0]][word]}", a, b)


def _joined(e: Emitter, instruction: Instruction, holds: Value, extra: Value | None) -> Value:
    if extra is None:
        return holds
    return e.op(next(part for part in instruction.parts if part in _JOINS), holds, extra)


def _setp_form(instruction: Instruction) -> OperandTypes:
    parts = instruction.parts
    type_ = check(instruction, _COMPARED, *parts[:-1])
    join = len(instruction.operands) == 4
    _check_comparison(instruction, type_, join, 1)
    pair = isinstance(instruction.operands[0], Pair)
    if type_ in _HALVES and not pair:
        raise unsupported(instruction, "packed numbers need two destinations")
    return OperandTypes(("pred", "pred") if pair else ("pred",), (type_, type_) + (("pred",) if join else ()))


@pure("setp", form=_setp_form, lanes="compared", ptx="1.0")
def setp(
    e: Emitter, instruction: Instruction, a: Value, b: Value, extra: Value | None = None
) -> Value | tuple[Value, ...]:
    """A comparison, combined with a predicate. A second destination gets the opposite of the comparison,
    or, of packed numbers, what holds for the upper ones."""
    word, type_ = instruction.parts[0], instruction.parts[-1]
    if type_ in _HALVES:
        pairs = zip(split(e, type_, a), split(e, type_, b), strict=True)
        both = [compare(e, instruction, word, x, y) for x, y in pairs]
    else:
        holds = compare(e, instruction, word, a, b)
        if not isinstance(instruction.operands[0], Pair):
            return _joined(e, instruction, holds, extra)
        both = [holds, e.op("xor", holds, 1)]
    return tuple(_joined(e, instruction, each, extra) for each in both)


def _set_form(instruction: Instruction) -> OperandTypes:
    to, type_ = ("", *instruction.parts)[-2:]
    if type_ not in _COMPARED:
        raise unsupported(instruction, f"its type must be one of {', '.join(_COMPARED)}")
    words = ("u32", "s32") if type_ in _HALVES else ("u32", "s32", "f32", "f16", "bf16")
    if to not in (*words, *_SET_ALSO.get(type_, ())):
        raise unsupported(instruction, f"a comparison of .{type_} does not make a .{to}")
    join = len(instruction.operands) == 4
    _check_comparison(instruction, type_, join, 2)
    return OperandTypes((to,), (type_, type_) + (("pred",) if join else ()))


@pure("set", form=_set_form, ptx="1.0")
def set_(e: Emitter, instruction: Instruction, a: Value, b: Value, extra: Value | None = None) -> Value:
    """A comparison as a number: all ones or 1.0 where it holds."""
    word, (to, type_) = instruction.parts[0], instruction.parts[-2:]
    if type_ not in _HALVES:
        holds = _joined(e, instruction, compare(e, instruction, word, a, b), extra)
        if not is_float(to):
            return e.cast("sext", holds, f"i{bits_of(to)}")
        like = vector(llvm_scalar(to)) if holds.is_vector else llvm_scalar(to)
        return e.select(holds, e.real(like, 1.0), e.real(like, 0.0))
    result = e.const(a, 0)
    one = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(to, 0xFFFF)
    pairs = zip(split(e, type_, a), split(e, type_, b), strict=True)
    for i, (x, y) in enumerate(pairs):
        holds = _joined(e, instruction, compare(e, instruction, word, x, y), extra)
        result = e.op("or", result, e.select(holds, e.const(a, one << 16 * i), 0))
    return result
