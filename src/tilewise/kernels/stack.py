"""The stack of a launch as kernels have it, ``Stack`` of ``tilewise/stack.cuh``: with tables if pointers give it."""

from __future__ import annotations

import struct

from tilewise.errors import ArgumentError
from tilewise.operands import Operand, Operands
from tilewise.slots import Gap, Slot, places_of

__all__ = ["POINTERS_MOST", "TABLE_SIZES", "refuse_table", "stack_slot", "table_size"]

POINTERS_MOST = 1024
"""Matrices of each operand that a launch takes by pointers: three tables fit into its 32,764 bytes of arguments."""
TABLE_SIZES = (0, 16, 128, POINTERS_MOST)
"""What tables are compiled for: 0 is none, for matrices that lie evenly."""
_ENTRY = struct.Struct("<Q")


def table_size(operands: Operands) -> int:
    """The smallest table that has room for the matrices."""
    if not operands.by_pointers:
        return 0
    return next((size for size in TABLE_SIZES if size >= operands.batch), POINTERS_MOST)


def refuse_table(operands: Operands, size: int) -> ArgumentError | None:
    """Refuse more matrices than there are entries, or another table than they need."""
    if operands.by_pointers and operands.batch > POINTERS_MOST:
        rule = f"must be at most {POINTERS_MOST:,} with pointers"
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
        template += bytes(_ENTRY.size - len(template))
        a, b, c = operands[:3]
        for one in (b, a, c) if exchanged else (a, b, c):
            gaps.append(_table(one, len(template), operands.batch))
            template += bytes(size * _ENTRY.size)
    return Slot(bytes(template), tuple(gaps))


def _table(operand: Operand, offset: int, count: int) -> Gap:
    return Gap(offset, places_of(operand.name), 0, count * _ENTRY.size)
