"""Moves, packing and unpacking, comparisons and choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewise.emulator.emit import Emitter, Value, vector
from tilewise.emulator.syntax import Instruction, Pair, Register, Vector
from tilewise.emulator.tables import Form, other, pure, same, unknown
from tilewise.emulator.types import bits_of, is_float, is_signed

if TYPE_CHECKING:
    from tilewise.emulator.lower import Lowering

__all__ = ["compare"]

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
_INTEGER = {"eq": "eq", "ne": "ne", "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


@other("mov")
def mov(e: Lowering, instruction: Instruction) -> None:
    target, source = instruction.operands
    type_ = instruction.parts[-1]
    shape = e.result_shape(instruction)
    if isinstance(source, Vector):
        _pack(e, instruction, target, source)
    elif isinstance(target, Vector):
        _unpack(e, instruction, target)
    elif isinstance(target, Register):
        e.write(target, e.read(source, type_, shape is None), type_, shape)
    else:
        raise unknown(instruction, "its destination must be a register")


def _pack(e: Lowering, instruction: Instruction, target: object, source: Vector) -> None:
    """``mov.b64 d, {a, b}``: a is the low part."""
    type_ = instruction.parts[-1]
    if not isinstance(target, Register):
        raise unknown(instruction, "its destination must be a register")
    shape = e.result_shape(instruction)
    part = bits_of(type_) // len(source.items)
    whole = e.zero(vector(f"i{bits_of(type_)}") if shape is None else f"i{bits_of(type_)}")
    for i, item in enumerate(source.items):
        piece = e.resize(e.read(item, f"b{part}", shape is None), f"i{bits_of(type_)}", False)
        whole = e.op("or", whole, e.op("shl", piece, e.const(piece, i * part)))
    e.write(target, whole, f"b{bits_of(type_)}", shape)


def _unpack(e: Lowering, instruction: Instruction, target: Vector) -> None:
    type_ = instruction.parts[-1]
    shape = e.result_shape(instruction)
    part = bits_of(type_) // len(target.items)
    whole = e.read(instruction.operands[1], f"b{bits_of(type_)}", shape is None)
    for i, item in enumerate(target.items):
        if not isinstance(item, Register):
            raise unknown(instruction, "its destination must be a register")
        piece = e.op("lshr", whole, e.const(whole, i * part))
        e.write(item, e.resize(piece, f"i{part}", False), f"b{part}", shape)


def _selp_form(instruction: Instruction) -> Form:
    type_ = instruction.parts[-1]
    return Form((type_,), (type_, type_, "pred"))


@pure("selp", form=_selp_form)
def selp(e: Emitter, instruction: Instruction, a: Value, b: Value, condition: Value) -> Value:
    return e.select(condition, a, b)


def compare(e: Emitter, instruction: Instruction, word: str, a: Value, b: Value) -> Value:
    """One of PTX's comparisons."""
    type_ = instruction.parts[-1]
    if is_float(type_):
        from tilewise.emulator.floats import flush

        if "ftz" in instruction.parts and a.scalar == "float":
            a, b = flush(e, a), flush(e, b)
        name = _ORDERED.get(word) or _UNORDERED.get(word)
        if name is None:
            raise unknown(instruction, f"no comparison {word!r} of floats")
        return e.compare(f"fcmp {name}", a, b)
    if word in ("lt", "le", "gt", "ge"):
        return e.compare(f"icmp {'s' if is_signed(type_) else 'u'}{word}", a, b)
    if word not in _INTEGER:
        raise unknown(instruction, f"no comparison {word!r} of integers")
    return e.compare(f"icmp {_INTEGER[word]}", a, b)


def _setp_form(instruction: Instruction) -> Form:
    type_ = instruction.parts[-1]
    sources = (type_, type_) + (("pred",) if len(instruction.operands) == 4 else ())
    pair = isinstance(instruction.operands[0], Pair)
    return Form(("pred", "pred") if pair else ("pred",), sources)


@pure("setp", form=_setp_form)
def setp(
    e: Emitter, instruction: Instruction, a: Value, b: Value, extra: Value | None = None
) -> Value | tuple[Value, ...]:
    """A comparison, combined with a predicate; the second destination gets its opposite."""
    holds = compare(e, instruction, instruction.parts[0], a, b)
    opposite = e.op("xor", holds, e.const(holds, 1)) if isinstance(instruction.operands[0], Pair) else None
    results = [holds, opposite] if opposite else [holds]
    word = next((part for part in instruction.parts[1:] if part in ("and", "or", "xor")), "")
    if word and extra:
        results = [e.op(word, result, extra) for result in results]
    return tuple(results) if len(results) > 1 else results[0]


def _set_form(instruction: Instruction) -> Form:
    sources = (instruction.parts[-1],) * 2 + (("pred",) if len(instruction.operands) == 4 else ())
    return Form((instruction.parts[-2],), sources)


@pure("set", form=_set_form)
def set_(e: Emitter, instruction: Instruction, a: Value, b: Value, extra: Value | None = None) -> Value:
    """A comparison as a number: all ones or 1.0 where it holds."""
    holds = setp(e, instruction, a, b, extra)
    assert isinstance(holds, Value)
    type_ = instruction.parts[-2]
    if type_ == "f32":
        return e.select(holds, e.real(_like(holds, "float"), 1.0), e.real(_like(holds, "float"), 0.0))
    return e.cast("sext", holds, f"i{bits_of(type_)}")


def _like(value: Value, scalar: str) -> str:
    return vector(scalar) if value.is_vector else scalar


def _slct_form(instruction: Instruction) -> Form:
    type_ = instruction.parts[-2]
    return Form((type_,), (type_, type_, instruction.parts[-1]))


@pure("slct", form=_slct_form)
def slct(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    if c.scalar == "float":
        return e.select(e.compare("fcmp oge", c, e.real(c, 0.0)), a, b)
    return e.select(e.compare("icmp sge", c, e.const(c, 0)), a, b)


@pure("cnot", form=same(1))
def cnot(e: Emitter, instruction: Instruction, a: Value) -> Value:
    return e.cast("zext", e.compare("icmp eq", a, e.const(a, 0)), a.scalar)
