"""An epilogue as kernels have it: a header in the place of ``tilewise/epilogue.cuh``, and an argument of the launch."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tilewise.expression import KEPT, PREFIX, SUM, Expression, parse
from tilewise.operands import Operand, Operands, ceil_div
from tilewise.problem import ELEMENT_BYTES, Epilogue, EpilogueArray
from tilewise.slots import Gap, Slot, joined

__all__ = [
    "HEADER",
    "PARTIALS",
    "PartialSums",
    "boxed_arrays",
    "epilogue_header",
    "epilogue_slot",
    "fits_boxes",
    "is_of_all_matrices",
    "partial_bytes",
    "partial_sums",
    "scales_slot",
]

HEADER = "tilewise/epilogue.cuh"
_STRIDES = struct.Struct("<qqqq")
_POINTER = 8  # bytes
_STRIDED = 48  # bytes of struct Strided
PARTIALS = "sums"  # the region of the workspace that has partial sums of columns and rows
_REGION = 256  # bytes of which an array's begin at a multiple
_HEADER = """\
#pragma once
#include <tilewise/activation.cuh>
#include <tilewise/epilogue_array.cuh>
#include <tilewise/stack.cuh>
{include}
struct Epilogue {{
    using Sum = {sums};
    static constexpr bool PLAIN = false;
    static constexpr bool IN_BOXES = {in_boxes};
    static constexpr unsigned MATRICES = {matrices}, KEPT = {kept_arrays};
    static __device__ constexpr bool has_sums() {{ return {has_sums}; }}
{members}
    __device__ Epilogue in_stack(unsigned outer, unsigned inner) const
    {{
        Epilogue there = *this;
{select}        return there;
    }}
    __device__ Epilogue in_stack(const Stack &stack, InStack which) const
    {{
        Epilogue there = *this;
{select_anywhere}        return there;
    }}

    template <unsigned COUNT> struct Given {{
{given}    }};

    template <unsigned COUNT> __device__ Given<COUNT> read(unsigned row, unsigned column) const
    {{
        return {{{read}}};
    }}

    // Fetch to L2 what is the same along rows or along columns, and the rest.
    __device__ void prefetch_lines(unsigned row, unsigned column) const
    {{
{prefetched}    }}
    __device__ void prefetch_matrices(unsigned row, unsigned column) const
    {{
{prefetched_matrices}    }}
{added_struct}
    template <unsigned COUNT> struct Kept {{
{kept}    }};

    template <unsigned COUNT>
    __device__ void finish(Sum (&sums)[COUNT], const Given<COUNT> &given, Kept<COUNT> &kept{added}) const
    {{
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i) {{
            const Sum {sum} = sums[i];
{each}            sums[i] = {expression};
        }}
    }}

    template <unsigned COUNT>
    __device__ void apply(Sum (&sums)[COUNT], const Given<COUNT> &given, unsigned row, unsigned column{added}) const
    {{
        Kept<COUNT> kept;
        finish(sums, given, kept{and_added});
{keep}    }}
{sums_of}{boxes}
    __device__ Sum operator()(Sum sum, unsigned row, unsigned column) const
    {{
        Sum sums[1] = {{sum}};
        apply(sums, read<1>(row, column), row, column);
        return sums[0];
    }}
}};
"""


# What a header has more where columns or rows are added up.
_ADDED = """
    // What the sums of columns and rows get of neighbouring columns.
    template <unsigned COUNT> struct Added {{
{added}
        __device__ void add(const Added &other)
        {{
#pragma unroll
            for (unsigned i = 0; i < COUNT; ++i) {{
{add}            }}
        }}
    }};
"""
_SUMS = """
    // The same where each element is a partial sum of its own.
    template <unsigned COUNT>
    __device__ void apply(Sum (&sums)[COUNT], const Given<COUNT> &given, unsigned row, unsigned column) const
    {{
        Added<COUNT> added;
        apply(sums, given, row, column, added);
{keep}    }}

    // Store what a warp has of a row, or of columns, as a partial sum of that number: see tilewise/partial_sums.cuh.
    template <unsigned LANES, unsigned COUNT>
    __device__ void put_row(const Added<COUNT> &added, bool exists, unsigned row, unsigned slot) const
    {{
{put_row}    }}

    template <unsigned APART, unsigned COUNT>
    __device__ void put_columns(const Added<COUNT> &added, unsigned slot, unsigned column, unsigned left) const
    {{
{put_columns}    }}
"""

# What it has more where it may be done to the sums of a box: see tilewise/finished_box.cuh.
_BOXES = """
    // What is the same along rows or along columns, which can be read at once, or not.
    template <unsigned COUNT> __device__ bool lines_lie_at_once(unsigned row, unsigned column) const
    {{
        return {at_once};
    }}

    template <unsigned COUNT> __device__ Given<COUNT> read_lines(int row, int column) const
    {{
        Given<COUNT> given = {{}};
{lines}        return given;
    }}

    template <unsigned COUNT>
    __device__ Given<COUNT> read_lines_within(unsigned height, unsigned width, int row, int column) const
    {{
        Given<COUNT> given = {{}};
{lines_within}        return given;
    }}
{boxed}"""
_MATRIX = """
    // The array that has another element for each of the result, and two neighbours of it.
    __device__ const auto &matrix() const {{ return {name}; }}
    static __device__ void give_matrix(Given<2> &given, unsigned pair) {{ given.{name}.words[0].at[0] = pair; }}
"""
_KEPT = """
    // The array that is kept, and two neighbours of it, rounded to its type.
    __device__ const auto &kept() const {{ return {name}; }}
    static __device__ unsigned kept_pair(const Kept<2> &pair) {{ return decltype({name})::narrow_two(pair.{name}); }}
"""


def epilogue_header(form: Epilogue, sums: str) -> str:
    """The header that does what an epilogue says to sums of a type."""
    expression = parse(form.expression)
    types = {array.name: _array_type(array, expression) for array in form.arrays if not array.scales}
    read = {name: found for name, found in types.items() if name in expression.names}
    anywhere = [array.name for array in form.arrays if array.pointers]
    in_boxes, matrices = fits_boxes(form), matrices_of(form)
    members = [f"{found} {PREFIX}{name};" for name, found in types.items()]
    members += [f"Sum {PREFIX}{name};" for name in form.numbers]
    given = [f"Neighbours<typename {found}::Element, COUNT> {PREFIX}{name};" for name, found in read.items()]
    each = [
        f"const Sum {PREFIX}{name} = this->{PREFIX}{name}.value(given.{PREFIX}{name}, i);" for name in read
    ]
    for name, value in expression.stored_in_cuda():
        there = "added" if name in expression.summed else "kept"
        each.append(f"const Sum {KEPT}{name} = {value}; {there}.{PREFIX}{name}[i] = {KEPT}{name};")
    return _HEADER.format(
        sums=sums,
        include="#include <tilewise/partial_sums.cuh>\n" if expression.summed else "",
        has_sums=str(bool(expression.summed)).lower(),
        in_boxes=str(in_boxes).lower(),
        matrices=len(matrices),
        kept_arrays=len(expression.kept),
        added=", Added<COUNT> &added" if expression.summed else "",
        and_added=", added" if expression.summed else "",
        boxes=_boxes(form, expression) if in_boxes else "",
        **_sums_of(expression),
        members=_lines(members, 1),
        select=_lines([f"there.{PREFIX}{name}.select(outer, inner);" for name in types], 2),
        select_anywhere=_lines([_select(name, anywhere) for name in types], 2),
        given=_lines(given, 2),
        read=", ".join(f"this->{PREFIX}{name}.template read<COUNT>(row, column)" for name in read),
        prefetched=_prefetched(name for name in read if name not in matrices),
        prefetched_matrices=_prefetched(matrices),
        kept=_lines([f"Sum {PREFIX}{name}[COUNT];" for name in expression.kept], 2),
        sum=SUM,
        each=_lines(each, 3),
        expression=expression.in_cuda(),
        keep=_lines(
            [f"this->{PREFIX}{name}.keep(row, column, kept.{PREFIX}{name});" for name in expression.kept], 2
        ),
    )


def fits_boxes(form: Epilogue) -> bool:
    """Whether it may be done to sums while they are in registers, box by box: it reads one array at most of which each
    element of the result has its own, and keeps one, of 16 bits as the results of a box, and adds up nothing.
    """
    expression = parse(form.expression)
    few = len(matrices_of(form)) <= 1 and len(expression.kept) <= 1
    return few and not expression.summed and all(ELEMENT_BYTES[one.dtype] == 2 for one in boxed_arrays(form))


def boxed_arrays(form: Epilogue) -> list[EpilogueArray]:
    """The arrays that it reads or keeps another element of for each of the result."""
    names = (*matrices_of(form), *parse(form.expression).kept)
    return [one for one in form.arrays if one.name in names]


def matrices_of(form: Epilogue) -> list[str]:
    """The names of the arrays that it reads another element of for each of the result."""
    names = parse(form.expression).names
    return [
        one.name
        for one in form.arrays
        if one.name in names and one.by_row and one.by_column and not one.scales
    ]


def _boxes(form: Epilogue, expression: Expression) -> str:
    """The part of the header for sums of a box."""
    names = [one.name for one in form.arrays if one.name in expression.names and not one.scales]
    matrices = matrices_of(form)
    lines = [name for name in names if name not in matrices]

    def read(how: str) -> list[str]:
        return [f"given.{PREFIX}{name} = this->{PREFIX}{name}.template {how};" for name in lines]

    return _BOXES.format(
        at_once=" && ".join(
            [f"{PREFIX}{name}.template lies_at_once<COUNT>(row, column)" for name in lines] or ["true"]
        ),
        lines=_lines(read("read_at_once<COUNT>(row, column)"), 2),
        lines_within=_lines(read("read_within<COUNT>(height, width, row, column)"), 2),
        boxed="".join(
            text.format(name=PREFIX + name)
            for text, names in ((_MATRIX, matrices), (_KEPT, expression.kept))
            for name in names
        ),
    )


def _prefetched(names: Iterable[str]) -> str:
    """The statements that fetch what these arrays have for an element to L2."""
    return _lines([f"prefetch_line({PREFIX}{name}.at(row, column));" for name in names], 2)


def _select(name: str, anywhere: Sequence[str]) -> str:
    """The statement that makes an array the part that belongs to one matrix of a stack with tables."""
    place = f"stack.of_extra({anywhere.index(name)}, which)" if name in anywhere else "which"
    return f"there.{PREFIX}{name}.select({place});"


def _array_type(array: EpilogueArray, expression: Expression) -> str:
    """The type of an array in the header; of sums it is that of the partial ones."""
    if array.name in expression.summed:
        return "EpilogueArray<Sum, true, true>"
    constant = "" if array.name in expression.kept else "const "
    return (
        f"EpilogueArray<{constant}{array.dtype}, {str(array.by_row).lower()}, {str(array.by_column).lower()}>"
    )


def _sums_of(expression: Expression) -> dict[str, str]:
    """The parts of the header that add up columns and rows, by their places."""
    if not expression.summed:
        return {"added_struct": "", "sums_of": ""}

    def each(line: str, names: Iterable[str], depth: int = 2) -> str:
        return _lines([line.format(f"{PREFIX}{name}") for name in names], depth)

    put = "partial_sums::put_{}(this->{{0}}, added.{{0}}, {});"
    added = _ADDED.format(
        added=each("Sum {}[COUNT] = {{}};", expression.summed),
        add=each("{0}[i] += other.{0}[i];", expression.summed, 4),
    )
    sums_of = _SUMS.format(
        keep=each("this->{0}.keep(row, column, added.{0});", expression.summed),
        put_row=each(put.format("row<LANES>", "exists, row, slot"), expression.row_sums),
        put_columns=each(put.format("columns<APART>", "slot, column, left"), expression.column_sums),
    )
    return {"added_struct": added, "sums_of": sums_of}


def _lines(lines: Iterable[str], depth: int) -> str:
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)


def epilogue_slot(operands: Operands, slots: tuple[int, int] | None = None) -> Slot:
    """The argument of a launch that holds the arrays and numbers of the epilogue: the bytes of ``struct Epilogue``.

    ``slots`` are those of :func:`partial_sums`.
    """
    template, gaps = bytearray(), []
    parts = {one.name: one for one in partial_sums(operands, slots)}
    for array, operand in zip(operands.epilogue.arrays, operands.extras, strict=True):
        if array.scales:  # which are arguments by themselves
            continue
        if array.name in parts:
            here = parts[array.name]
            template += here.strides(operands.stack)
            gaps.append(Gap(len(template), PARTIALS, here.offset))
        else:
            template += _strides(operand)
            gaps.append(Gap(len(template), operand.name))
        template += bytes(_POINTER)
    size = 8 if operands.epilogue_type == "float64" else 4
    for name in operands.epilogue.numbers:
        gaps.append(Gap(len(template), f"epilogue.{name}", 0, size))
        template += bytes(size)
    if any(not array.scales for array in operands.epilogue.arrays):
        template += bytes(-len(template) % _POINTER)
    return Slot(bytes(template or b"\0"), tuple(gaps))  # NOTE: an empty struct has a byte


def scales_slot(operands: Operands, exchanged: bool = False) -> Slot:
    """The argument of a launch that has scales of terms: ``struct TermScales`` of ``tilewise/term_scales.cuh``.

    Its rows are the lines of an operand, which are columns of B. ``exchanged``: the kernel sees B as its first operand.
    """
    of_a, of_b = operands.scales_of("a"), operands.scales_of("b")
    lines = [None if of_a is None else of_a.strided(), None if of_b is None else of_b.transposed().strided()]
    slots = [Slot(bytes(_STRIDED)) if one is None else one for one in lines]
    return joined(*(slots[::-1] if exchanged else slots))


def _strides(operand: Operand) -> bytes:
    return _STRIDES.pack(operand.row_stride, operand.column_stride, *operand.stack_strides)


# ── sums of columns and rows ─────────────────────────────────────────────────────────────────────────────


class PartialSums(NamedTuple):
    """Where the partial sums of an array of sums lie in their region: matrices of ``rows`` by ``columns``."""

    name: str
    of_columns: bool
    rows: int
    columns: int
    offset: int
    size: int  # bytes, as offset is

    @property
    def length(self) -> int:
        """How many sums there are of a matrix."""
        return self.columns if self.of_columns else self.rows

    @property
    def parts(self) -> int:
        """How many parts each of them has."""
        return self.rows if self.of_columns else self.columns

    def strides(self, stack: tuple[int, ...]) -> bytes:
        """Its strides as ``EpilogueArray`` has them."""
        matrix = self.rows * self.columns
        return _STRIDES.pack(self.columns, 1, matrix * (stack[-1] if stack else 1), matrix)


def partial_sums(operands: Operands, slots: tuple[int, int] | None = None) -> Iterator[PartialSums]:
    """The partial sums of each array of sums.

    ``slots``: how many parts there are of the sum of a column, and of a row; if None, as many as elements.
    """
    expression = parse(operands.epilogue.expression)
    down, across = slots or (operands.c.rows, operands.c.columns)
    item, offset = 8 if operands.epilogue_type == "float64" else 4, 0
    for name in expression.summed:
        of_columns = name in expression.column_sums
        rows = down if of_columns else operands.c.rows
        columns = operands.c.columns if of_columns else across
        size = ceil_div(rows * columns * operands.batch * item, _REGION) * _REGION
        yield PartialSums(name, of_columns, rows, columns, offset, size)
        offset += size


def partial_bytes(operands: Operands, slots: tuple[int, int]) -> int:
    """The bytes of all partial sums."""
    return sum(one.size for one in partial_sums(operands, slots))


def is_of_all_matrices(operands: Operands, target: Operand) -> bool:
    """Whether an array has sums over all matrices of a stack, not some for each."""
    return operands.batch != 1 and not any(target.stack)
