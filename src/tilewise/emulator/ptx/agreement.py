"""Which registers and literals an instruction's type allows as its operands.

The assembler's rule, and the only one here: an operand has the type's width, and its kind. Integers are of one kind,
signed or not; each floating-point type is a kind of its own; ``.b`` is of every kind. What no register can be declared
as, such as ``.bf16`` and ``.u8x4``, is kept in ``.b``. Only ``cvt`` takes wider registers than its types, and only
where both are integers or ``.f16``, ``.f16x2``, ``.f32``, ``.f64``.
"""

from __future__ import annotations

import re

from tilewise.emulator.ptx.syntax import Immediate, Instruction
from tilewise.emulator.ptx.types import bits_of

__all__ = ["literal_disagreement", "register_disagreement"]

_NUMBERS = re.compile(r"[us]\d+|f16|f16x2|f32|f64")
_KINDS = {"b": "bits", "u": "integer", "s": "integer"}


def register_disagreement(instruction: Instruction, name: str, declared: str, type_: str) -> str:
    """Return why a register of one declared type cannot be an operand of another; "" if it can."""
    have, want = bits_of(declared), bits_of(type_)
    wider = _takes_wider(instruction)
    if _same_kind(declared, type_) and (have == want or (wider and have > want)):
        return ""
    or_wider = " or wider" if wider else ""
    return f"{name} is declared .{declared}, and .{type_} wants {_list_declarations(type_)}{or_wider}"


def literal_disagreement(literal: Immediate, type_: str) -> str:
    """Return why a literal cannot be an operand of a type; "" if it can."""
    kind = _kind(type_)
    if not literal.width:
        fits = kind in ("bits", "integer", "pred")
    else:
        fits = type_ in ("f32", "f64") or (kind == "bits" and bits_of(type_) == literal.width)
    if fits:
        return ""
    what = "a floating-point number" if literal.width else f"the integer {literal.value}"
    literals = {"f32": "a floating-point number", "f64": "a floating-point number"}
    literals |= dict.fromkeys(("bits", "integer", "pred"), "an integer")
    return f"{what} stands where .{type_} wants {literals.get(kind, 'a register')}"


def _kind(type_: str) -> str:
    return _KINDS[type_[0]] if type_[1:].isdigit() and type_[0] in _KINDS else type_


def _same_kind(declared: str, type_: str) -> bool:
    have, want = _kind(declared), _kind(type_)
    if "pred" in (have, want):
        return have == want
    return have == want or "bits" in (have, want) or (have, want) == ("f16x2", "integer")


def _takes_wider(instruction: Instruction) -> bool:
    opcode, types = instruction.opcode, instruction.parts[-2:]
    return opcode == "cvt.pack" or (opcode == "cvt" and all(map(_NUMBERS.fullmatch, types)))


def _list_declarations(type_: str) -> str:
    """Name the declarations that agree with a type, for a message."""
    kind, bits = _kind(type_), bits_of(type_)
    if kind == "bits":
        return f"a register of {bits} bits"
    if kind == "integer":
        return f".b{bits}, .u{bits} or .s{bits}"
    if kind in ("f16", "f16x2", "f32", "f64"):
        return f".b{bits} or .{kind}"
    return ".pred" if kind == "pred" else f".b{bits}"
