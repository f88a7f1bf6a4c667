"""How operands lie for the kernel for Hopper's tensor cores: which of them it reads, as what, in how many clusters."""

from __future__ import annotations

from tilewise.kernels.gemm.wgmma_shapes import shape_of
from tilewise.kernels.spec import Operand, Operands, Settings, ceil_div
from tilewise.operands import alignment_of

__all__ = [
    "CLUSTERS",
    "cluster_of",
    "clusters",
    "exchange",
    "has_whole_rows",
    "is_aligned",
    "is_readable",
    "is_whole",
    "lies_across",
    "lies_of",
    "lines_of",
    "reads_both",
]

ALIGNMENT = 16  # bytes: of a row's beginning, for the copy engine
CLUSTERS = {"1x1": (1, 1), "2x1": (2, 1), "1x2": (1, 2)}


def exchange(operands: Operands, settings: Settings) -> tuple[Operand, Operand]:
    """The operands that the kernel sees as A and B: if they are exchanged, the transposes of B and A."""
    a, b = operands[:2]
    return (b.transposed(), a.transposed()) if settings["exchanged"] else (a, b)


def cluster_of(settings: Settings) -> tuple[int, int]:
    """Blocks of a cluster below one another and side by side, those that split K aside."""
    return CLUSTERS[str(settings["cluster"])]


def clusters(operands: Operands, settings: Settings) -> int:
    """How many clusters cover the stack with a tile for each block, or for all of them where they split K.

    Of groups of rows: the most tiles that they may have.
    """
    if operands.groups:
        return operands.most_tiles(shape_of(settings).m, shape_of(settings).n)
    (m, n, _), shape, (down, across) = operands.sizes, shape_of(settings), cluster_of(settings)
    if settings["exchanged"]:
        m, n = n, m
    return ceil_div(m, shape.m * down) * ceil_div(n, shape.n * across) * operands.batch


def is_whole(operands: Operands, settings: Settings) -> bool:
    """Whether C has whole tiles alone, those of blocks side by side in a cluster together, and whole rows.

    And the epilogue's arrays have rows that begin so, too.
    """
    if operands.groups or not has_whole_rows(operands.c):
        return False
    arrays = zip(operands.epilogue.arrays, operands.extras, strict=True)
    if not all(_begins_aligned(extra) for array, extra in arrays if array.by_column and not array.scales):
        return False
    (m, n, _), shape, (down, across) = operands.sizes, shape_of(settings), cluster_of(settings)
    if settings["exchanged"]:
        m, n = n, m
    return m % (shape.m * down) == 0 and n % (shape.n * across) == 0


def _begins_aligned(extra: Operand) -> bool:
    """Whether rows of an epilogue's array, be it one for all, begin at multiples of 16 bytes and have no gaps."""
    apart = (extra.row_stride, *extra.stack)
    aligned = alignment_of(extra.alignment, *(step * extra.itemsize for step in apart))
    return extra.column_stride == 1 and aligned >= ALIGNMENT


def in_rows(operand: Operand) -> bool:
    """Whether the kernel takes the operand as rows, not as columns. A single column may be either."""
    return is_aligned(operand) or not is_aligned(operand.transposed())


def is_along_k(operand: Operand) -> bool:
    """Whether it lies in rows along K: rows of A, columns of B."""
    return is_aligned(operand.transposed() if operand.name in ("b", "copy_b") else operand)


def is_readable(operand: Operand) -> bool:
    """Whether a tensor map can describe the operand: rows or columns, each beginning at a multiple of 16 bytes.

    Of 8 bits, which are read along K alone, rows of A or columns of B.
    """
    if operand.itemsize == 1:
        return is_along_k(operand)
    return is_aligned(operand) or is_aligned(operand.transposed())


def lies_across(operand: Operand) -> bool:
    """Whether it is of float32 and lies across K, so that it has to go by way of registers."""
    return operand.itemsize == 4 and not is_along_k(operand)


def reads_both(operands: Operands) -> bool:
    """Whether one of the operands at most goes by way of registers, as the other is read from shared memory; of groups
    of rows none."""
    return sum(map(lies_across, operands[:2])) <= (0 if operands.groups else 1)


def lines_of(operand: Operand, along_rows: int | str) -> Operand:
    """The operand as the rows that the settings take it for: of itself, or of its transpose.

    One row, one column and nothing at all may be either.
    """
    return operand if along_rows else operand.transposed()


def is_aligned(rows: Operand) -> bool:
    """Whether there are rows, each beginning at a multiple of 16 bytes. Where there is one, the pitch is nothing.

    And none of them before the first: a tensor map has no steps backwards.
    """
    if rows.alignment % ALIGNMENT or not rows.has_rows:
        return False
    item = rows.itemsize
    if rows.rows > 1 and (rows.pitch < 0 or rows.pitch * item % ALIGNMENT):
        return False
    return not rows.stack or all(step >= 0 and step * item % ALIGNMENT == 0 for step in rows.stack)


def has_whole_rows(c: Operand) -> bool:
    """Whether its rows begin and end at multiples of 16 bytes."""
    return is_aligned(c) and c.columns * c.itemsize % ALIGNMENT == 0


def lies_of(operands: Operands, exchanged: int) -> dict[str, int | str]:
    """The settings that say how the operands lie."""
    a, b = exchange(operands, {"exchanged": exchanged})
    a_in_rows, b_in_rows = a.itemsize == 1 or in_rows(a), b.itemsize == 2 and in_rows(b)
    return {"exchanged": exchanged, "a_in_rows": int(a_in_rows), "b_in_rows": int(b_in_rows)}
