"""Registers and operands as LLVM values: reading them, writing them in the lanes that run."""

from __future__ import annotations

from tilewise.emulator.analysis.shapes import UNIFORM, Shape
from tilewise.emulator.layout import LAUNCH
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.special import special
from tilewise.emulator.lowering.tables import unsupported
from tilewise.emulator.ptx import types
from tilewise.emulator.ptx.syntax import Immediate, Instruction, Not, Operand, Register, Symbol, name_in_text

__all__ = ["address_of", "check_operand", "expand", "read", "read_bits", "write"]


def check_operand(e: Context, instruction: Instruction, operand: Operand, type_: str) -> None:
    """Refuse what an instruction cannot take as an operand of a type."""
    why = ""
    if isinstance(operand, Register) and operand.name in e.types:
        why = types.register_disagreement(instruction, operand.name, e.types[operand.name], type_)
    elif isinstance(operand, Immediate):
        why = types.literal_disagreement(operand, type_)
    if why:
        raise unsupported(instruction, why)


def read(e: Context, operand: Operand, type_: str, as_vector: bool) -> Value:
    """An operand as a value of a PTX type.

    As a scalar, it is the ``u`` of its shape; as a vector, what each lane has.
    """
    scalar = types.llvm_scalar(type_)
    match operand:
        case Immediate(value=value, width=width):
            if why := types.literal_disagreement(operand, type_):
                raise unsupported(e.now, why)
            constant = e.const(scalar, types.literal_bits(value, width, type_))
            return e.splat(constant) if as_vector else constant
        case Not(item=item):
            if type_ != "pred":
                raise unsupported(e.now, "only a predicate may be negated by !")
            value_ = read(e, item, "pred", as_vector)
            return value_ ^ 1
        case Register(name=name):
            if name == "_":
                raise unsupported(e.now, "_ stands for no value: it is for results that nothing wants")
            if name in e.types:
                value_, own = e.load(e.stored_type(name), e.registers[name], 4), e.types[name]
            else:
                value_, own = special(e, name)
            if as_vector:
                value_ = expand(e, value_, e.analysis.shape_of(operand))
            return _fit(e, value_, type_, own)
        case Symbol():
            value_ = address_of(e, operand)
            value_ = e.splat(value_) if as_vector else value_
            return _fit(e, value_, type_, "u64")
    raise unsupported(e.now, "an operand of a kind that does not fit here")


def read_bits(e: Context, operand: Operand, type_: str) -> Value:
    """The bits that each lane has of an operand of a PTX type: those of 1.0 are not the same in f32 and in f64."""
    return e.cast("bitcast", read(e, operand, type_, True), f"i{types.bits_of(type_)}")


def _fit(e: Context, value: Value, type_: str, own: str) -> Value:
    """A value of the type ``own`` as another type: the same bits, cut where that is narrower.

    Where it is wider, its own sign fills it.
    """
    want = types.llvm_scalar(type_)
    if value.scalar == want:
        return value
    if "i1" in (value.scalar, want):
        raise unsupported(e.now, "a predicate where a number is wanted, or the other way round")
    value = e.cast("bitcast", value, f"i{types.bits_of(own)}")
    value = e.resize(value, f"i{types.bits_of(type_)}", types.is_signed(own))
    return e.cast("bitcast", value, want)


def expand(e: Context, value: Value, shape: Shape | None) -> Value:
    """``u`` in every lane, plus what its shape says of each."""
    if value.is_vector:
        return value
    wide = e.splat(value)
    if shape is None or shape.uniform:
        return wide
    # A register of a floating-point type may hold an integer's bits.
    bits_of_scalar = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
    whole = f"i{bits_of_scalar.get(value.type) or value.type[1:]}"
    bits = e.cast("bitcast", wide, whole)
    return e.cast("bitcast", bits + e.lanes(whole, shape.lanes), value.type)


def write(e: Context, register: Register, value: Value, type_: str, shape: Shape | None = UNIFORM) -> None:
    """Set a register, in the lanes that run the current instruction."""
    if register.name == "_":
        return
    own = e.types.get(register.name)
    if own is None:
        raise unsupported(e.now, f"{name_in_text(register.name)} cannot be written")
    slot = e.registers[register.name]
    stored = e.stored_type(register.name)
    if stored.startswith("<"):
        value = expand(e, value, shape)  # NOTE: before it is made wider: lanes may wrap around
    value = _fit(e, value, own, type_)
    if e.guard is not None or (e.is_apart and register.name not in e.analysis.local):
        e.merged.add(register.name)
        old = e.load(stored, slot, 4)
        changes = e.bits(e.mask()) if value.is_vector else e.differs(e.mask(), 0)
        value = e.select(changes, value, old)
    e.store(value, slot, 4)


def address_of(e: Context, symbol: Symbol) -> Value:
    """Return a variable's address within its own space."""
    place = e.program.places.get(symbol.name)
    if place is None:
        raise unsupported(e.now, f"there is no variable {name_in_text(symbol.name)!r}")
    if place.space != "global":
        return e.const("i64", place.offset + symbol.offset)
    table = e.load("ptr", e.offset("%ctx", LAUNCH.GLOBALS), 8)
    address = e.load("i64", e.offset(table.ref, 8 * place.offset), 8)
    return address + symbol.offset if symbol.offset else address
