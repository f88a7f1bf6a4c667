"""An epilogue as kernels have it: a header in the place of ``tilewise/epilogue.cuh``, and an argument of the launch."""

from __future__ import annotations

import struct

from tilewise.expression import KEPT, PREFIX, SUM, parse
from tilewise.operands import Operand, Operands
from tilewise.problem import Epilogue
from tilewise.slots import Gap, Slot

__all__ = ["HEADER", "epilogue_header", "epilogue_slot"]

HEADER = "tilewise/epilogue.cuh"
_STRIDES = struct.Struct("<qqqq")
_POINTER = 8  # bytes


def epilogue_header(form: Epilogue, sums: str) -> str:
    """The header that does what an epilogue says to sums of a type."""
    expression = parse(form.expression)
    members = [
        f"EpilogueArray<{'' if array.name in expression.kept else 'const '}{array.dtype}, "
        f"{str(array.by_row).lower()}, {str(array.by_column).lower()}> {PREFIX}{array.name};"
        for array in form.arrays
    ]
    members += [f"Sum {PREFIX}{name};" for name in form.numbers]
    select = [f"there.{PREFIX}{array.name}.select(outer, inner);" for array in form.arrays]
    names = [array.name for array in form.arrays if array.name in expression.names]
    read = [
        f"Sum values_{name}[COUNT]; this->{PREFIX}{name}.read(row, column, values_{name});" for name in names
    ]
    each = [f"const Sum {PREFIX}{name} = values_{name}[i];" for name in names]
    for name, value in expression.kept_in_cuda():
        each.append(f"const Sum {KEPT}{name} = {value}; all_{name}[i] = {KEPT}{name};")
    return "\n".join(
        [
            "#pragma once",
            "#include <tilewise/activation.cuh>",
            "#include <tilewise/epilogue_array.cuh>",
            "",
            "struct Epilogue {",
            f"    using Sum = {sums};",
            "    static constexpr bool PLAIN = false;",
            *(f"    {line}" for line in members),
            "",
            "    __device__ Epilogue in_stack(unsigned outer, unsigned inner) const",
            "    {",
            "        Epilogue there = *this;",
            *(f"        {line}" for line in select),
            "        return there;",
            "    }",
            "",
            "    template <unsigned COUNT> __device__ void apply(Sum (&sums)[COUNT], unsigned row, unsigned column) const",
            "    {",
            *(f"        {line}" for line in read),
            *(f"        Sum all_{name}[COUNT];" for name in expression.kept),
            "#pragma unroll",
            "        for (unsigned i = 0; i < COUNT; ++i) {",
            f"            const Sum {SUM} = sums[i];",
            *(f"            {line}" for line in each),
            f"            sums[i] = {expression.in_cuda()};",
            "        }",
            *(f"        this->{PREFIX}{name}.keep(row, column, all_{name});" for name in expression.kept),
            "    }",
            "",
            "    __device__ Sum operator()(Sum sum, unsigned row, unsigned column) const",
            "    {",
            "        Sum sums[1] = {sum};",
            "        apply(sums, row, column);",
            "        return sums[0];",
            "    }",
            "};",
            "",
        ]
    )


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
