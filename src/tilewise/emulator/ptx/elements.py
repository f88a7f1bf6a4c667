"""Lower vector registers, elements of arrays and operands with an offset to plain registers and instructions.

A vector register is its elements, ``v.x`` to ``v.w``. What an operand needs computed is an instruction
before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewise.emulator.ptx.constant_expressions import constant_integer, read_offset
from tilewise.emulator.ptx.scope import Scope
from tilewise.emulator.ptx.syntax import (
    ELEMENTS,
    Address,
    Immediate,
    Instruction,
    Operand,
    PtxError,
    PtxVariable,
    Register,
    Symbol,
    Vector,
)
from tilewise.emulator.ptx.tokens import TokenReader
from tilewise.emulator.ptx.types import TYPE_BYTES, is_float

__all__ = [
    "RESERVED",
    "add_offset",
    "elements_of",
    "index_array",
    "special_register",
    "split_vector_move",
    "vector_of",
]

_COLORS = dict(zip("rgba", ELEMENTS, strict=True))
_ADDRESSED = ("ld", "ldu", "st")
_THREES = {f"%{n}{what}" for n in ("", "n") for what in ("tid", "ctaid", "clusterid")}
_THREES |= {f"%cluster_{n}ctaid" for n in ("", "n")}

RESERVED = "%reserved#"  # shared memory that is the system's: a name that no text can declare
_RESERVED_BYTES = 1024
# What lies where in it the manual does not tell; libraries want some hundred bytes at 0 and at 1.
_RESERVED_PLACES = {"begin": 0, "0": 0, "1": _RESERVED_BYTES // 2, "end": _RESERVED_BYTES}


def elements_of(whole: PtxVariable, count: int) -> list[PtxVariable]:
    """Split a vector parameter into one parameter for each element."""
    each = whole.size // count
    return [replace(whole, name=f"{whole.name}.{part}", size=each) for part in ELEMENTS[:count]]


def vector_of(parser: TokenReader, scope: Scope, name: str) -> Operand:
    """Parse a vector register, or the element of it that is named next."""
    there = ELEMENTS[: scope.vectors[name]]
    if parser.now.kind != "dotted":
        return Vector(tuple(Register(f"{name}.{part}") for part in there))
    part = parser.now.text[1:]
    part = _COLORS.get(part, part)
    if part not in there:
        raise parser.error(f"an element of {name} ({', '.join(there)}) expected")
    parser.take()
    return Register(f"{name}.{part}")


def special_register(scope: Scope, name: str) -> Operand:
    """Return a special register, or the vector of its elements, as for ``%tid``.

    The shared memory that every block has for the system is a variable of it, there for kernels that ask
    where it lies: groups of several warps synchronise through it.
    """
    part = name.removeprefix("%reserved_smem_offset_")
    if part in _RESERVED_PLACES:
        reserved = PtxVariable(RESERVED, "shared", "b8", _RESERVED_BYTES, 128, _RESERVED_BYTES)
        scope.module.variables.setdefault(RESERVED, reserved)
        return Symbol(RESERVED, _RESERVED_PLACES[part])
    if part == "cap":
        return Immediate(_RESERVED_BYTES)
    if name not in _THREES:
        return Register(name)
    return Vector(tuple(Register(f"{name}.{part}") for part in ELEMENTS))


def split_vector_move(scope: Scope, instruction: Instruction) -> Instruction:
    """Split a ``mov`` of vectors into moves of elements; return the last, emit the others before it."""
    parts = instruction.parts
    if instruction.opcode != "mov" or len(parts) != 2 or parts[0] not in ("v2", "v4"):
        return instruction
    match instruction.operands:
        case (Vector(items=targets), Vector(items=sources)) if (
            len(targets) == len(sources) == int(parts[0][1:]) and parts[1] in TYPE_BYTES
        ):
            pass
        case _:
            what = f"{instruction.written}: it takes two vectors of {parts[0][1:]} elements"
            raise PtxError(instruction.line, what)
    one = replace(instruction, parts=parts[1:])
    kept = [scope.register_for(parts[1]) for _ in sources]  # a target may be a source that is yet to be read
    moves = [replace(one, operands=pair) for pair in zip(kept, sources, strict=True)]
    moves += [
        replace(one, operands=pair) for pair in zip(targets, kept, strict=True) if pair[0] != Register("_")
    ]
    scope.before(*moves[:-1])
    return moves[-1]


def add_offset(parser: TokenReader, scope: Scope, register: Register) -> Register:
    """Lower ``r+4``: emit an addition and return the register that holds the sum."""
    type_ = scope.type_of(register)
    if type_ == "pred" or is_float(type_) or type_ not in TYPE_BYTES or TYPE_BYTES[type_] not in (2, 4, 8):
        return register
    amount = read_offset(parser)
    result = scope.register_for(type_, register.name)
    kind = ("s" if type_[0] == "s" else "u") + str(8 * TYPE_BYTES[type_])
    scope.before(Instruction(parser.now.line, "add", (kind,), (result, register, Immediate(amount))))
    return result


def index_array(
    parser: TokenReader, scope: Scope, array: Symbol, opcode: str, named: Callable[[], Operand]
) -> Operand:
    """Parse ``a[i]``: return the address for ``ld`` and ``st``, the element's symbol for ``mov``."""
    variable = scope.variable(array.name)
    if variable is None or array.offset:
        raise parser.error("';' expected")
    size = variable.size // variable.count if variable.count else TYPE_BYTES[variable.type]
    parser.expect("[")
    if parser.now.kind == "word" and parser.now.text != "WARP_SZ":
        base: Register | Symbol = _compute_element_address(parser, scope, array, size, named())
        offset = read_offset(parser) * size
    else:
        base, offset = Symbol(array.name), constant_integer(parser) * size
    parser.expect("]")
    if opcode in _ADDRESSED:
        return Address(base, offset)
    if opcode == "mov" and isinstance(base, Symbol):
        return Symbol(base.name, offset)
    raise parser.error("an element of an array does not fit here; ';' expected before")


def _compute_element_address(
    parser: TokenReader, scope: Scope, array: Symbol, size: int, index: Operand
) -> Register:
    """Emit the address of the element that a register indexes; return the register that holds it."""
    type_ = scope.type_of(index) if isinstance(index, Register) else ""
    if type_ not in ("u32", "s32", "b32", "u64", "s64", "b64"):
        raise parser.error("a register of 32 or 64 bits expected as an index before")
    start, result = scope.register_for("b64"), scope.register_for("b64")
    line = parser.now.line
    sign = "s" if type_[0] == "s" else "u"
    parts = ("wide", f"{sign}32") if type_.endswith("32") else ("lo", "u64")
    scope.before(
        Instruction(line, "mov", ("b64",), (start, Symbol(array.name))),
        Instruction(line, "mad", parts, (result, index, Immediate(size), start)),
    )
    return result
