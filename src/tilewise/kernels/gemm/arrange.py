"""Launch of the copy that lays an operand out in rows, for kernels that have no form for how it lies."""

from __future__ import annotations

import math
from pathlib import Path

from tilewise.kernels.spec import KernelSource, KernelSpec, Step
from tilewise.launch import Launch
from tilewise.operands import ALIGNMENT_MOST, Operand, Operands, ceil_div
from tilewise.slots import constant

__all__ = ["arrange_steps", "arranged", "readable", "ways_to_read", "with_copies"]

STACK_AXES = 2  # of a stack that one launch takes
_TILE = 32
_THREADS = 256
_FILE = Path(__file__).with_suffix(".cu")


def readable(spec: KernelSpec, operands: Operands) -> tuple[Operands, tuple[str, ...]]:
    """The operands as a kernel can read them, and the names of those that are copied to rows for that."""
    if spec.strided or len(operands.stack) > STACK_AXES:
        return operands, ()
    copies = tuple(one.name for one in operands[:2] if not spec.readable(one))
    return with_copies(operands, copies), copies


def with_copies(operands: Operands, copies: tuple[str, ...]) -> Operands:
    """The operands with copies in rows in the place of those that are named."""
    a, b = (arranged(one, operands.stack_of(one)) if one.name in copies else one for one in operands[:2])
    return operands._replace(a=a, b=b)


def ways_to_read(spec: KernelSpec, operands: Operands) -> list[tuple[Operands, tuple[str, ...]]]:
    """What :func:`readable` says; and the same with copies of operands too that the kernel reads slowly as they lie."""
    read, copies = readable(spec, operands)
    slow = tuple(one.name for one in operands[:2] if one.name not in copies and spec.reads_slowly(one))
    if not slow or len(operands.stack) > STACK_AXES:
        return [(read, copies)]
    more = tuple(one.name for one in operands[:2] if one.name in copies + slow)
    return [(read, copies), (with_copies(operands, more), more)]


def arranged(operand: Operand, stack: tuple[int, ...]) -> Operand:
    """The copy of an operand: rows that begin at multiples of 16 bytes, one matrix behind the other."""
    item = operand.itemsize
    pitch = max(ceil_div(operand.columns * item, ALIGNMENT_MOST), 1) * ALIGNMENT_MOST // item
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
    return count * copy.rows * copy.row_stride * copy.itemsize


def arrange_steps(operands: Operands, read: Operands) -> list[Step]:
    """The launches that make the copies among ``read`` from ``operands``."""
    steps = []
    for source, copy in zip(operands[:2], read[:2], strict=True):
        if copy is source or not source.rows * source.columns:
            continue
        sizes = operands.stack_of(source)
        counts = [1 if step == 0 else size for size, step in zip(sizes, source.stack, strict=True)]
        outer, inner = (1, 1, *counts)[-2:]
        blocks = ceil_div(copy.rows, _TILE) * ceil_div(copy.row_stride, _TILE) * outer * inner
        code = KernelSource(_FILE, (("ELEMENT_BYTES", source.itemsize),))
        args = (source.strided(), copy.strided(), constant("I", copy.row_stride), constant("I", inner))
        steps.append(Step("arrange", Launch((blocks, 1, 1), (_THREADS, 1, 1), args), code))
    return steps
