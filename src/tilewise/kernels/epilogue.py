"""An epilogue as kernels have it: a header in the place of ``tilewise/epilogue.cuh``, and an argument of the launch."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tilewise.expression import KEPT, PREFIX, SUM, parse
from tilewise.operands import Operand, Operands
from tilewise.problem import Epilogue
from tilewise.slots import Gap, Slot

__all__ = ["HEADER", "epilogue_header", "epilogue_slot"]

HEADER = "tilewise/epilogue.cuh"
_STRIDES = struct.Struct("<qqqq")
_POINTER = 8  # bytes
_HEADER = """\
#pragma once
#include <tilewise/activation.cuh>
#include <tilewise/epilogue_array.cuh>

struct Epilogue {{
    using Sum = {sums};
    static constexpr bool PLAIN = false;
{members}
    __device__ Epilogue in_stack(unsigned outer, unsigned inner) const
    {{
        Epilogue there = *this;
{select}        return there;
    }}

    template <unsigned COUNT> struct Given {{
{given}    }};

    template <unsigned COUNT> __device__ Given<COUNT> read(unsigned row, unsigned column) const
    {{
        return {{{read}}};
    }}

    template <unsigned COUNT>
    __device__ void apply(Sum (&sums)[COUNT], const Given<COUNT> &given, unsigned row, unsigned column) const
    {{
{kept}#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i) {{
            const Sum {sum} = sums[i];
{each}            sums[i] = {expression};
        }}
{keep}    }}

    __device__ Sum operator()(Sum sum, unsigned row, unsigned column) const
    {{
        Sum sums[1] = {{sum}};
        apply(sums, read<1>(row, column), row, column);
        return sums[0];
    }}
}};
"""


def epilogue_header(form: Epilogue, sums: str) -> str:
    """The header that does what an epilogue says to sums of a type."""
    expression = parse(form.expression)
    types = {
        array.name: f"EpilogueArray<{'' if array.name in expression.kept else 'const '}{array.dtype}, "
        f"{str(array.by_row).lower()}, {str(array.by_column).lower()}>"
        for array in form.arrays
    }
    read = {name: found for name, found in types.items() if name in expression.names}
    members = [f"{found} {PREFIX}{name};" for name, found in types.items()]
    members += [f"Sum {PREFIX}{name};" for name in form.numbers]
    given = [f"Neighbours<typename {found}::Element, COUNT> {PREFIX}{name};" for name, found in read.items()]
    each = [
        f"const Sum {PREFIX}{name} = this->{PREFIX}{name}.value(given.{PREFIX}{name}, i);" for name in read
    ]
    for name, value in expression.kept_in_cuda():
        each.append(f"const Sum {KEPT}{name} = {value}; all_{name}[i] = {KEPT}{name};")
    return _HEADER.format(
        sums=sums,
        members=_lines(members, 1),
        select=_lines([f"there.{PREFIX}{name}.select(outer, inner);" for name in types], 2),
        given=_lines(given, 2),
        read=", ".join(f"this->{PREFIX}{name}.template read<COUNT>(row, column)" for name in read),
        kept=_lines([f"Sum all_{name}[COUNT];" for name in expression.kept], 2),
        sum=SUM,
        each=_lines(each, 3),
        expression=expression.in_cuda(),
        keep=_lines([f"this->{PREFIX}{name}.keep(row, column, all_{name});" for name in expression.kept], 2),
    )


def _lines(lines: Iterable[str], depth: int) -> str:
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)


def epilogue_slot(operands: Operands) -> Slot:
    """The argument of a launch that holds the arrays and numbers of the epilogue: the bytes of ``struct Epilogue``."""
    template, gaps = bytearray(), []
    for operand in operands.extras:
        template += _strides(operand)
        gaps.append(Gap(len(template), operand.name))
        template += bytes(_POINTER)
    size = 8 if operands.accumulate == "float64" else 4
    for name in operands.epilogue.numbers:
        gaps.append(Gap(len(template), f"epilogue.{name}", 0, size))
        template += bytes(size)
    if operands.extras:
        template += bytes(-len(template) % _POINTER)
    return Slot(bytes(template or b"\0"), tuple(gaps))  # NOTE: an empty struct has a byte


def _strides(operand: Operand) -> bytes:
    outer, inner = (0, 0, *operand.stack)[-2:]
    return _STRIDES.pack(operand.row_stride, operand.column_stride, outer, inner)
