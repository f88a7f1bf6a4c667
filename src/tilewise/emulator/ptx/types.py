"""PTX types: how many bits, which LLVM type, and what a literal is in each of them."""

from __future__ import annotations

import struct

__all__ = ["TYPE_BYTES", "bits_of", "is_float", "is_signed", "literal_bits", "llvm_scalar"]

_SIZES = (("8", 1), ("16", 2), ("32", 4), ("64", 8))
TYPE_BYTES: dict[str, int] = {f"{kind}{bits}": size for kind in "bus" for bits, size in _SIZES}
TYPE_BYTES |= {
    "b128": 16,
    "f16": 2,
    "f16x2": 4,
    "bf16": 2,
    "bf16x2": 4,
    "f32": 4,
    "f32x2": 8,
    "tf32": 4,
    "f64": 8,
    "pred": 1,
    "e4m3": 1,
    "e5m2": 1,
    "e4m3x2": 2,
    "e5m2x2": 2,
    "e2m3x2": 2,
    "e3m2x2": 2,
    "e2m1x2": 1,
    "ue8m0x2": 2,
    "s16x2": 4,
    "u16x2": 4,
    "s8x4": 4,
    "u8x4": 4,
}
_LLVM = {"f16": "half", "bf16": "bfloat", "f32": "float", "tf32": "float", "f64": "double", "pred": "i1"}


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
    bits = bits_of(type_)
    if type_ in ("f32", "tf32", "f64"):
        number = float(value) if width == 0 else _decoded(value, width)
        if type_ == "f64":
            return int(struct.unpack("<Q", struct.pack("<d", number))[0])
        if width == 32:
            return value
        return int(struct.unpack("<I", _single(number))[0])
    if type_ in ("f16", "bf16") and width:
        number = _decoded(value, width)
        if type_ == "bf16":
            return int(struct.unpack("<I", _single(number))[0]) >> 16
        return int(struct.unpack("<H", struct.pack("<e", number))[0])
    return value % (1 << bits)


def _single(number: float) -> bytes:
    try:
        return struct.pack("<f", number)
    except OverflowError:
        return struct.pack("<f", float("inf") if number > 0 else float("-inf"))


def _decoded(value: int, width: int) -> float:
    if width == 32:
        return float(struct.unpack("<f", value.to_bytes(4, "little"))[0])
    return float(struct.unpack("<d", value.to_bytes(8, "little"))[0])
