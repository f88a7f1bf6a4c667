"""Many instructions in one kernel: each on every element of the inputs, one output array each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import tilewise as tw

__all__ = ["Array", "refused", "run"]

Array = npt.NDArray[Any]
_TYPES = {8: "b8", 16: "b16", 32: "b32", 64: "b64"}
_FLOATS = {8: "b8", 16: "f16", 32: "f32", 64: "f64"}
_REGISTERS = {8: "%c", 16: "%h", 32: "%r", 64: "%l"}
_NAMES = "abcx"
_LANES = 32


def run(instructions: Sequence[tuple[str, int]], inputs: Sequence[Array], way: str = "vector") -> list[Array]:
    """Run PTX text such as "add.f32 {d}, {a}, {b};" on arrays of unsigned integers of one length.

    Each comes with the bits of its result ``{d}``; the inputs are ``{a}``, ``{b}``, ``{c}``, ``{x}``, and
    ``{p}`` and ``{q}`` are predicates. Ways: "vector", an element in each lane; "typed", that with registers
    of floating-point types; "uniform", one element in all lanes; "guarded", odd lanes run and even lanes
    keep the bits of ``{a}``, cut or filled with zeros.
    """
    size = len(inputs[0])
    assert all(len(array) == size for array in inputs)
    padded = -(-size // _LANES) * _LANES
    given = [np.concatenate([array, array[:1].repeat(padded - size)]) for array in inputs]
    results = [np.zeros(padded, np.dtype(f"u{bits // 8}")) for _, bits in instructions]
    widths = [array.dtype.itemsize * 8 for array in inputs]
    kernel = tw.Kernel.from_ptx(_text(instructions, widths, way), "k")
    grid, block = (size, 1) if way == "uniform" else (padded // _LANES, _LANES)
    kernel(grid, block, [*given, *results], device="emulator")
    return [result[:size] for result in results]


def _text(instructions: Sequence[tuple[str, int]], widths: Sequence[int], way: str) -> str:
    count = len(widths) + len(instructions)
    types = _FLOATS if way == "typed" else _TYPES
    registers = " ".join(f".reg .{types[bits]} {name}<{count + 1}>;" for bits, name in _REGISTERS.items())
    lines = [
        ".version 9.0", ".target sm_100a", ".address_size 64",
        f".visible .entry k({', '.join(f'.param .u64 p{i}' for i in range(count))}) {{",
        f"{registers} .reg .b32 %i<3>; .reg .b64 %at, %off; .reg .pred %p, %q, %odd;",
        "mov.u32 %i0, %ctaid.x;",
    ]  # fmt: skip
    if way != "uniform":
        lines += ["mov.u32 %i1, %tid.x;", f"mad.lo.u32 %i0, %i0, {_LANES}, %i1;"]
        lines += ["and.b32 %i2, %i1, 1;", "setp.eq.u32 %odd, %i2, 1;"]
    names = {}
    for i, bits in enumerate(widths):
        names[_NAMES[i]] = f"{_REGISTERS[bits]}{i}"
        lines += [*_place(i, bits), f"ld.global.{_TYPES[bits]} {names[_NAMES[i]]}, [%at];"]
    for i, (text, bits) in enumerate(instructions, len(widths)):
        target = f"{_REGISTERS[bits]}{i}"
        words = text.format(d=target, p="%p", q="%q", **names)
        if way == "guarded":
            lines.append(f"cvt.u{bits}.u{widths[0]} {target}, {names['a']};")
            words = " ".join(f"@%odd {one.strip()};" for one in words.split(";") if one.strip())
        lines += [words, *_place(i, bits), f"st.global.{_TYPES[bits]} [%at], {target};"]
    return "\n".join([*lines, "ret;", "}", ""])


def _place(i: int, bits: int) -> list[str]:
    return [
        f"ld.param.u64 %at, [p{i}];",
        f"mul.wide.u32 %off, %i0, {bits // 8};",
        "add.s64 %at, %at, %off;",
    ]


def refused(instruction: str, registers: str = "") -> str:
    """What is said about an instruction that is not supported."""
    text = f"""
.version 9.0
.target sm_100a
.address_size 64
.visible .entry k() {{
.reg .b8 %c<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %l<4>; .reg .pred %p, %q; {registers}
{instruction}
ret;
}}"""
    try:
        tw.Kernel.from_ptx(text, "k")(1, 32, [], device="emulator")
    except tw.errors.PtxError as error:
        return str(error)
    return ""
