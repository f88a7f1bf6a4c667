"""PTX types: how many bits, which LLVM type, what a literal is in each of them; and what each allows as an operand.

The assembler's rule, and the only one here: an operand has the type's width, and its kind. Integers are of one kind,
signed or not; each floating-point type is a kind of its own; ``.b`` is of every kind. What no register can be declared
as, such as ``.bf16`` and ``.u8x4``, is kept in ``.b``. Only ``cvt`` takes wider registers than its types, and only
where both are integers or ``.f16``, ``.f16x2``, ``.f32``, ``.f64``.
"""

from __future__ import annotations

import math
import re
import struct

from tilewise.emulator.ptx.syntax import Immediate, Instruction, name_in_text

__all__ = [
    "TYPE_BYTES",
    "bits_of",
    "is_float",
    "is_signed",
    "literal_bits",
    "literal_disagreement",
    "llvm_scalar",
    "register_disagreement",
]

_NAMES_BY_SIZE = {
    1: "b8 u8 s8 pred e4m3 e5m2 e2m1x2",
    2: "b16 u16 s16 f16 bf16 e4m3x2 e5m2x2 e2m3x2 e3m2x2 ue8m0x2",
    4: "b32 u32 s32 f32 tf32 f16x2 bf16x2 s16x2 u16x2 s8x4 u8x4",
    8: "b64 u64 s64 f64 f32x2",
    16: "b128",
}
TYPE_BYTES = {name: size for size, names in _NAMES_BY_SIZE.items() for name in names.split()}
_LLVM = {"f16": "half", "bf16": "bfloat", "f32": "float", "tf32": "float", "f64": "double", "pred": "i1"}
_NUMBERS = re.compile(r"[us]\d+|f16|f16x2|f32|f64")
_KINDS = {"b": "bits", "u": "integer", "s": "integer"}


def bits_of(type_: str) -> int:
    """Bits of one element; a predicate has one."""
    return 1 if type_ == "pred" else TYPE_BYTES[type_] * 8


def is_float(type_: str) -> bool:
    return type_ in ("f16", "bf16", "f32", "f64", "tf32", "f16x2", "bf16x2", "f32x2")


def is_signed(type_: str) -> bool:
    return type_.startswith("s")


def llvm_scalar(type_: str) -> str:
    """The LLVM type of one lane's value. Packed types are kept as the integer of their width."""
    return _LLVM.get(type_) or f"i{bits_of(type_)}"


def literal_bits(value: int, width: int, type_: str) -> int:
    """The bits that a literal stands for where ``type_`` is wanted; ``width`` is 0 for an integer."""
    if type_ not in ("f32", "tf32", "f64") and (type_ not in ("f16", "bf16") or not width):
        return value % (1 << bits_of(type_))
    if width == 32 and type_ in ("f32", "tf32"):
        return value  # a NaN keeps its own bits
    given = {32: "<f", 64: "<d"}
    number = struct.unpack(given[width], value.to_bytes(width // 8, "little"))[0] if width else float(value)
    code = {"f64": "<d", "f16": "<e"}.get(type_, "<f")
    try:
        data = struct.pack(code, number)
    except OverflowError:
        data = struct.pack(code, math.copysign(math.inf, number))
    bits = int.from_bytes(data, "little")
    return bits >> 16 if type_ == "bf16" else bits


# -- operands ----------------------------------------------------------------------------------------------------
def register_disagreement(instruction: Instruction, name: str, declared: str, type_: str) -> str:
    """Return why a register of one declared type cannot be an operand of another; "" if it can."""
    have, want = bits_of(declared), bits_of(type_)
    wider = instruction.opcode == "cvt.pack" or (
        instruction.opcode == "cvt" and all(map(_NUMBERS.fullmatch, instruction.parts[-2:]))
    )
    if _same_kind(declared, type_) and (have == want or (wider and have > want)):
        return ""
    or_wider = " or wider" if wider else ""
    return f"{name_in_text(name)} is declared .{declared}, and .{type_} wants {_list_declarations(type_)}{or_wider}"


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
