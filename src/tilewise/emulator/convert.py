"""``cvt``: between integers, between floats, and from one to the other."""

from __future__ import annotations

from tilewise.emulator.emit import Emitter, Value
from tilewise.emulator.syntax import Instruction
from tilewise.emulator.tables import Form, pure, unknown
from tilewise.emulator.types import bits_of, is_float, is_signed, llvm_scalar

__all__: list[str] = []

_ROUND = {"rni": "llvm.roundeven", "rzi": "llvm.trunc", "rmi": "llvm.floor", "rpi": "llvm.ceil"}


def _form(instruction: Instruction) -> Form:
    to, of = instruction.parts[-2:]
    return Form((to,), (of,))


@pure("cvt", form=_form)
def cvt(e: Emitter, instruction: Instruction, a: Value) -> Value:
    to, of = instruction.parts[-2:]
    if is_float(of):
        return _from_float(e, instruction, a, to, of)
    if is_float(to):
        if {"rz", "rm", "rp"} & set(instruction.parts):
            raise unknown(instruction, "this rounding is not supported")
        return e.cast("sitofp" if is_signed(of) else "uitofp", a, llvm_scalar(to))
    return _integers(e, instruction, a, to, of)


def _integers(e: Emitter, instruction: Instruction, a: Value, to: str, of: str) -> Value:
    if "sat" in instruction.parts:
        wide = e.resize(a, "i128", is_signed(of))
        low = -(1 << (bits_of(to) - 1)) if is_signed(to) else 0
        high = (1 << (bits_of(to) - is_signed(to))) - 1
        wide = e.intrinsic("llvm.smax", wide, e.const(wide, low))
        wide = e.intrinsic("llvm.smin", wide, e.const(wide, high))
        return e.resize(wide, llvm_scalar(to), False)
    return e.resize(a, llvm_scalar(to), is_signed(of))


def _from_float(e: Emitter, instruction: Instruction, a: Value, to: str, of: str) -> Value:
    from tilewise.emulator.floats import flush, saturate

    parts = instruction.parts
    if "ftz" in parts and a.scalar == "float":
        a = flush(e, a)
    mode = next((part for part in parts if part in _ROUND), "")
    if is_float(to):
        if mode:
            a = e.intrinsic(_ROUND[mode], a)
        if {"rz", "rm", "rp"} & set(parts):
            raise unknown(instruction, "this rounding is not supported")
        result = a
        if bits_of(to) != bits_of(of):
            result = e.cast("fpext" if bits_of(to) > bits_of(of) else "fptrunc", a, llvm_scalar(to))
        return saturate(e, result) if "sat" in parts else result
    if not mode:
        raise unknown(instruction, "a conversion to an integer must say how to round")
    rounded = e.intrinsic(_ROUND[mode], a)
    name = "llvm.fptosi.sat" if is_signed(to) else "llvm.fptoui.sat"
    return e.convert(name, rounded, llvm_scalar(to))
