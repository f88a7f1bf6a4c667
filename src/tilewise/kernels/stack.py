"""The stack of a launch as kernels have it, ``Stack`` of ``tilewise/stack.cuh``: with tables if pointers give it."""

from __future__ import annotations

import struct

from tilewise.errors import ArgumentError
from tilewise.operands import Operands
from tilewise.slots import Gap, Slot, places_of

__all__ = ["TABLE_SIZES", "pointers_most", "refuse_table", "stack_slot", "table_size"]

TABLE_SIZES = (0, 16, 128, 512, 1024)
"""What tables are compiled for: 0 is none, for matrices that lie evenly."""
_ENTRY_BYTES = 8
_TABLES_MOST = 30 << 10  # bytes of the 32,764 that a launch has for arguments
_OPERANDS = 3


def pointers_most(extras: int = 0) -> int:
    """Matrices of each operand that a launch takes by pointers, with so many arrays of an epilogue that have tables."""
    fitting = [size for size in TABLE_SIZES if size * _ENTRY_BYTES * (_OPERANDS + extras) <= _TABLES_MOST]
    return fitting[-1]


def table_size(operands: Operands) -> int:
    """The smallest table that has room for the matrices."""
    if not operands.by_pointers:
        return 0
    most = pointers_most(_count_extras(operands))
    return next((size for size in TABLE_SIZES if operands.batch <= size <= most), most)


def _count_extras(operands: Operands) -> int:
    return sum(one.by_pointers for one in operands.extras)


def refuse_table(operands: Operands, size: int) -> ArgumentError | None:
    """Refuse more matrices than there are entries, or another table than they need."""
    most = pointers_most(_count_extras(operands))
    if operands.by_pointers and operands.batch > most:
        rule = f"must be at most {most:,} with pointers"
        return ArgumentError("batch", rule, operands.batch, "multiply the others in another launch")
    if table_size(operands) != size:
        rule = f"must be {table_size(operands)} for {'' if operands.by_pointers else 'no '}pointers"
        return ArgumentError("pointers", rule, size)
    return None


def stack_slot(operands: Operands, exchanged: bool = False, inner: int | None = None) -> Slot:
    """The argument of a launch that says which matrix is which; ``inner`` are along the inner axis, if not the stack's.

    ``exchanged``: the kernel sees B as its first operand.
    """
    if inner is None:
        inner = operands.stack[-1] if operands.stack else 1
    template, gaps = bytearray(struct.pack("<I", max(inner, 1))), []
    size = table_size(operands)
    if size:
        template += bytes(_ENTRY_BYTES - len(template))
        a, b, c = operands[:3]
        extras = (one for one in operands.extras if one.by_pointers)
        for one in (*((b, a, c) if exchanged else (a, b, c)), *extras):
            gaps.append(Gap(len(template), places_of(one.name), 0, operands.batch * _ENTRY_BYTES))
            template += bytes(size * _ENTRY_BYTES)
    return Slot(bytes(template), tuple(gaps))
