"""Launches of the copies that lay operands out in lines, for kernels that have no form for how they lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tilewise.kernels.gemm.limits import STACK_AXES
from tilewise.kernels.gemm.real_form import expand_step, faced, in_real_form, is_complex, laid_out
from tilewise.kernels.spec import KernelSource, KernelSpec, Step
from tilewise.launch import Launch
from tilewise.operands import ALIGNMENT_MOST, Operand, Operands, alignment_of, ceil_div
from tilewise.slots import Slot, constant, joined

__all__ = [
    "arrange_steps",
    "arranged",
    "copied",
    "copy_bytes",
    "ends_whole",
    "moves_lines",
    "readable",
    "transposes_runs",
    "ways_to_read",
    "with_copies",
    "with_zeros",
]

_TILE = 32
_LINE_BYTES, _LITTLE = 128, 16  # a line of the memory; more by the 16th part at most
_WIDE_TILES = {1: 128, 4: 64}  # by the bytes of an element
_THREADS = 256
_FILE = Path(__file__).with_suffix(".cu")
_WIDEN = Path(__file__).with_name("widen.cu")


def readable(spec: KernelSpec, operands: Operands) -> tuple[Operands, tuple[str, ...]]:
    """The operands as a kernel can read them, and the names of those that are copied for that."""
    if len(operands.stack) > STACK_AXES or operands.by_pointers:
        return operands, ()
    always = laid_out(operands, spec.complex_as) if is_complex(operands) else ()
    operands = _real(spec, operands)
    copies = tuple(
        one.name
        for one in operands[:2]
        if one.name in always
        or not (spec.strided or spec.readable(one))
        or _begins_between(spec, operands, one)
        or (one is operands.widened and not spec.widens)
    )
    return with_copies(spec, operands, copies), copies


def _begins_between(spec: KernelSpec, operands: Operands, one: Operand) -> bool:
    """Whether groups of A's rows may begin in the middle of 16 bytes, where no kernel reads that takes no strides."""
    if spec.strided or not operands.groups or one is not operands.a:
        return False
    return not one.has_rows or one.row_stride * one.itemsize % ALIGNMENT_MOST != 0


def _real(spec: KernelSpec, operands: Operands) -> Operands:
    """The operands as real ones."""
    return in_real_form(operands, spec.complex_as) if is_complex(operands) else operands


def with_copies(spec: KernelSpec, operands: Operands, copies: tuple[str, ...]) -> Operands:
    """The operands with copies in the place of those that are named: in rows or in columns as they are, if the kernel
    reads that, or the other way."""
    operands = _real(spec, operands)
    a, b = (
        _copy_of(
            spec,
            one,
            operands.stack_of(one),
            operands.element if one is _widened(spec, operands) else one.dtype,
            (operands.in_pairs and one is operands.b) or (operands.groups > 0 and one is operands.a),
        )
        if one.name in copies
        else one
        for one in operands[:2]
    )
    return operands._replace(a=a, b=b)


def _widened(spec: KernelSpec, operands: Operands) -> Operand | None:
    """The operand whose copy is widened.

    NOTE: what has scales that differ along K a kernel has to widen by itself, if it widens.
    """
    return None if spec.widens and operands.epilogue.scales_terms else operands.widened


def _copy_of(
    spec: KernelSpec, operand: Operand, stack: tuple[int, ...], element: str, in_rows: bool
) -> Operand:
    """The copy that a kernel reads best; ``in_rows``: of pairs of numbers, which have to lie side by side, or of groups
    of rows."""
    operand = replace(operand, dtype=element)  # what is 8 bits beside 16 is widened on the way
    rows, columns = arranged(operand, stack), arranged(operand.transposed(), stack).transposed()
    in_columns = operand.row_stride == 1 and operand.column_stride != 1
    ways = (columns, rows) if in_columns else (rows, columns)
    found = [one for one in ways if spec.strided or spec.readable(one)] if not in_rows else []
    return next((one for one in found if not spec.reads_slowly(one)), (found or [rows])[0])


def ways_to_read(spec: KernelSpec, operands: Operands) -> list[tuple[Operands, tuple[str, ...]]]:
    """What :func:`readable` says; and the same with copies of operands too that the kernel reads slowly as they lie: of
    one alone where it does not read both together."""
    read, copies = readable(spec, operands)
    slow = tuple(
        one.name
        for one in _real(spec, operands)[:2]
        if one.name not in copies and (spec.reads_slowly(one) or one is _widened(spec, operands))
    )
    if not slow or len(operands.stack) > STACK_AXES or operands.by_pointers:
        return [(read, copies)]
    added = [slow] if spec.reads_both(read) else [*((name,) for name in reversed(slow)), slow]
    more = [copies + names for names in added]
    ordered = [tuple(one.name for one in _real(spec, operands)[:2] if one.name in names) for names in more]
    return [
        (read, copies),
        *((with_copies(spec, operands, names), names) for names in dict.fromkeys(ordered)),
    ]


def arranged(operand: Operand, stack: tuple[int, ...]) -> Operand:
    """The copy of an operand: rows that begin at multiples of 16 bytes, one matrix behind the other; at whole lines of
    the memory where that takes little more."""
    item = operand.itemsize
    least, lines = (
        max(ceil_div(operand.columns * item, unit), 1) * unit for unit in (ALIGNMENT_MOST, _LINE_BYTES)
    )
    pitch = (lines if (lines - least) * _LITTLE <= least else least) // item
    # Along an axis where the operand is the same, so is its copy.
    counts = [1 if step == 0 else size for size, step in zip(stack, operand.stack, strict=True)]
    whole = operand.rows * pitch
    steps = tuple(
        0 if step == 0 else math.prod(counts[i + 1 :]) * whole for i, step in enumerate(operand.stack)
    )
    return Operand(f"copy_{operand.name}", operand.rows, operand.columns, pitch, operand.dtype, 1, steps)


def copy_bytes(copy: Operand, stack: tuple[int, ...]) -> int:
    """What a copy takes of the workspace."""
    count = math.prod(size for size, step in zip(stack, copy.stack, strict=True) if step)
    lines = _in_rows(copy)
    return count * lines.rows * lines.row_stride * lines.itemsize


def _in_rows(copy: Operand) -> Operand:
    """The copy as its lines: itself, or its transpose."""
    return copy if copy.column_stride == 1 else copy.transposed()


def ends_whole(lines: Operand) -> bool:
    """Whether what is read 16 bytes at a time of lines that begin at multiples of that ends with one of them."""
    return with_zeros(lines).columns * lines.itemsize % ALIGNMENT_MOST == 0


def with_zeros(lines: Operand) -> Operand:
    """The lines as far as they may be read: those of copies go on as zeros to the next."""
    return replace(lines, columns=lines.row_stride) if lines.name.startswith("copy_") else lines


def moves_lines(source: Operand, copy: Operand) -> bool:
    """Whether lines of the source are lines of the copy, which are copied much faster than others."""
    return (source if copy.column_stride == 1 else source.transposed()).column_stride == 1


def transposes_runs(source: Operand, copy: Operand) -> bool:
    """Whether columns become rows that are copied 16 bytes at a time: of bytes; of 4 bytes where columns begin so."""
    lines = source if copy.column_stride == 1 else source.transposed()
    item = source.itemsize
    if item not in _WIDE_TILES or moves_lines(source, copy) or not lines.transposed().has_rows:
        return False
    apart = (lines.column_stride, *lines.stack)
    return item == 1 or alignment_of(source.alignment, *(step * item for step in apart)) == ALIGNMENT_MOST


def copied(operands: Operands, read: Operands) -> list[tuple[Operand, Operand]]:
    """Operands of which copies are made, and the copies."""
    if not is_complex(operands):
        pairs = zip(operands[:2], read[:2], strict=True)
        return [(source, copy) for source, copy in pairs if copy is not source]
    # NOTE: none of those that are read is the very operand: what is no copy is a view of its parts.
    pairs = zip(faced(operands)[:2], read[:2], strict=True)
    return [(source, copy) for source, copy in pairs if copy.name == f"copy_{source.name}"]


def arrange_steps(operands: Operands, read: Operands) -> list[Step]:
    """The launches that make the copies among ``read`` from ``operands``: one for those of elements of one size whose
    lines are moved."""
    pairs = [(source, copy) for source, copy in copied(operands, read) if source.rows * source.columns]
    if is_complex(operands):
        return [expand_step(*pair, operands) for pair in pairs]
    widened = [pair for pair in pairs if pair[0].dtype != pair[1].dtype]
    moved = [pair for pair in pairs if moves_lines(*pair) and pair not in widened]
    steps = [_arrange(*pair, operands) for pair in pairs if pair not in moved + widened]
    steps += [_widen(*pair, operands) for pair in widened]
    for itemsize in dict.fromkeys(source.itemsize for source, _ in moved):
        steps.append(_align([pair for pair in moved if pair[0].itemsize == itemsize], operands))
    return steps


def _arrange(source: Operand, copy: Operand, operands: Operands) -> Step:
    """NOTE: a copy in columns is made as rows of the transpose."""
    counts = _matrices(source, operands)
    runs = transposes_runs(source, copy)
    entry, tile = ("transpose", _WIDE_TILES[source.itemsize]) if runs else ("arrange", _TILE)
    if copy.column_stride != 1:
        source, copy = source.transposed(), copy.transposed()
    blocks = ceil_div(copy.rows, tile) * ceil_div(copy.row_stride, tile) * math.prod(counts)
    args = (source.strided(), copy.strided(), constant("I", copy.row_stride), constant("I", counts[1]))
    return _step(entry, blocks, args, source)


def _align(pairs: Sequence[tuple[Operand, Operand]], operands: Operands) -> Step:
    """NOTE: one operand alone leaves the other half of the arguments empty."""
    slots, blocks = [], 0
    for source, copy in pairs:
        lines = _in_rows(copy)
        outer, inner = _matrices(source, operands)
        count = outer * inner * lines.rows
        own = ceil_div(count * lines.row_stride * lines.itemsize, ALIGNMENT_MOST * _THREADS)
        numbers = [constant("I", number) for number in (inner, count, own, 0)]
        along = source if lines is copy else source.transposed()
        slots.append(joined(along.strided(), lines.strided(), *numbers))
        blocks += own
    empty = Slot(bytes(len(slots[0].template)))
    return _step("align", blocks, (*slots, empty)[:2], pairs[0][0])


def _widen(source: Operand, copy: Operand, operands: Operands) -> Step:
    """NOTE: as for `_arrange`."""
    outer, inner = _matrices(source, operands)
    if copy.column_stride != 1:
        source, copy = source.transposed(), copy.transposed()
    lines = outer * inner * copy.rows
    blocks = ceil_div(lines * copy.row_stride * copy.itemsize, ALIGNMENT_MOST * _THREADS)
    code = KernelSource(_WIDEN, (("NARROW", source.dtype), ("WIDE", copy.dtype)))
    args = (source.strided(), copy.strided(), constant("I", inner), constant("I", lines))
    return Step("widen", Launch((blocks, 1, 1), (_THREADS, 1, 1), args, programmatic=True), code)


def _matrices(source: Operand, operands: Operands) -> tuple[int, int]:
    """How many different matrices an operand has along the two axes of the stack."""
    sizes = operands.stack_of(source)
    counts = [1 if step == 0 else size for size, step in zip(sizes, source.stack, strict=True)]
    outer, inner = (1, 1, *counts)[-2:]
    return outer, inner


def _step(entry: str, blocks: int, args: tuple[Slot, ...], source: Operand) -> Step:
    code = KernelSource(_FILE, (("ELEMENT_BYTES", source.itemsize),))
    return Step(entry, Launch((blocks, 1, 1), (_THREADS, 1, 1), args, programmatic=True), code, spread=True)
