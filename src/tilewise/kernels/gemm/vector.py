"""Launch of the vector kernel: a matrix times a column, or a row times a matrix, stacks and strides as they are.

The kernel knows a matrix, a vector and a result that are columns. A row times B is Bᵀ times a column: the strides say
so, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels.epilogue import epilogue_slot
from tilewise.kernels.gemm.add_parts import add_step, parts_bytes, parts_in_turn, parts_of
from tilewise.kernels.gemm.limits import STACK_AXES, name_defines, refuse_blocks, refuse_sizes, refuse_types
from tilewise.kernels.spec import AS_IT_IS, KernelSpec, Operands, Settings, Step, Work, ceil_div
from tilewise.kernels.stack import TABLE_SIZES, stack_slot
from tilewise.launch import Launch
from tilewise.operands import Operand, alignment_of
from tilewise.problem import COMPLEX, EIGHT_BITS, FLOAT8, INTEGERS, Tile, sum_type

__all__ = ["SPEC"]

WARPS = 8
LANES = 32
RESIDENT = 8  # blocks that an SM holds at once
ROWS = (8, 4, 2, 1)  # of a block, the first of them as many as it has warps
MORE_ROWS = 16  # where bytes are widened: the vector's elements are, too, for two rows at once
PER_LANE = (1, 2, 4, 8)
PARTS = tuple(range(1, 33))
LEAST_DEPTH = 128  # of K that a part has, if it is proposed
ENOUGH = 4  # blocks of an SM: for more of them K is not in parts alone, and accesses are not narrower
UNITS = {AS_IT_IS: "vector", "int8": "vector_widened_int8"}  # of the cost model, by what is widened
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_ELEMENTS = (*_FLOATS, *FLOAT8, *INTEGERS, *COMPLEX)


def as_columns(operands: Operands) -> Operands:
    """The product as the kernel has it: a matrix, a vector and a result that are columns."""
    return operands if operands.b.columns == 1 else operands.transposed()


def as_row(operands: Operands) -> Operands:
    """The same with a result that is a row, as parts of K are added up; of complex numbers their parts in turn."""
    if operands.in_pairs:
        c, *extras = map(_as_pairs_in_row, (operands.c, *operands.extras))
        return operands._replace(c=c, extras=tuple(extras))
    return operands if operands.a.rows == 1 else operands.transposed()


def _as_pairs_in_row(pairs: Operand) -> Operand:
    return replace(pairs, rows=1, columns=2 * pairs.rows, row_stride=2 * pairs.rows)


def _in_one_piece(operands: Operands) -> bool:
    """Whether the result is a row without gaps; of complex numbers, too, what is read and written beside it."""
    if not operands.in_pairs:
        return as_row(operands).c.column_stride == 1
    return all(one.row_stride == 2 for one in (operands.c, *operands.extras)) and not operands.epilogue.summed


def rows_of_block(settings: Settings) -> int:
    """Elements of the result that a block computes."""
    if settings["along"] == "k":
        return int(settings["rows"])
    return LANES * int(settings["per_lane"])


def candidates(operands: Operands, settings: Settings, sms: int) -> Iterator[Settings]:
    matrix = as_columns(operands).a
    if matrix.columns <= 1 or abs(matrix.column_stride) <= abs(matrix.row_stride):
        for rows in ROWS if settings["widened"] == AS_IT_IS else (*ROWS, MORE_ROWS):
            yield {"along": "k", "rows": rows}
    else:
        most = min(matrix.columns // LEAST_DEPTH, PARTS[-1]) if takes_parts(operands) else 1
        widest, *narrower = (8, 4) if matrix.itemsize == 1 else (4, 2, 1)
        for per_lane in (widest, *narrower):
            made: Settings = {"along": "rows", "per_lane": per_lane, "parts": 1}
            count = max(blocks(operands, made), 1)
            if per_lane != widest and count >= ENOUGH * sms:
                break
            shared = {min(each * sms // count, most) for each in (2, 4, RESIDENT)} - {0, 1}
            if count >= ENOUGH * sms or not shared:
                yield made
            for parts in sorted(shared):
                yield {**made, "parts": parts}


def takes_parts(operands: Operands) -> bool:
    """Whether sums of parts of K can be added up: of one product, no integers, with a result in one piece."""
    summed = sums_of(operands) in ("float32", "float64")
    return operands.batch == 1 and summed and _in_one_piece(operands)


def sums_of(operands: Operands) -> str:
    """Their type."""
    return sum_type(operands.element)


def blocks(operands: Operands, settings: Settings) -> int:
    """Of one launch, over all parts of K."""
    return (
        ceil_div(as_columns(operands).a.rows, rows_of_block(settings))
        * operands.batch
        * int(settings["parts"])
    )


def refuse(operands: Operands, settings: Settings) -> ArgumentError | None:
    m, n, _ = operands.sizes
    if m != 1 and n != 1:
        return LaunchError("m or n", "must be 1 for kernel vector", f"{m} and {n}")
    matrix = operands.a if n == 1 else operands.b
    if settings["widened"] != AS_IT_IS and matrix.dtype != settings["widened"]:
        return ArgumentError("widened", f"must be {AS_IT_IS!r} for a vector of 8 bits", settings["widened"])
    if error := refuse_sizes(operands, "vector") or refuse_blocks(
        blocks(operands.inner(STACK_AXES), settings)
    ):
        return error
    if settings["parts"] != 1:
        if settings["along"] != "rows":
            return ArgumentError("parts", "must be 1 along K", settings["parts"])
        if not takes_parts(operands.inner(STACK_AXES)):
            rule = "must be 1 for stacks, for integers and for results not in one piece"
            return ArgumentError("parts", rule, settings["parts"])
    if unfit := refuse_types(operands, settings):
        return unfit
    return None


def steps(operands: Operands, settings: Settings) -> list[Step]:
    given, parts = as_columns(operands), int(settings["parts"])
    sums = _sums_as_columns(operands) if parts > 1 else given.c
    args = (
        *(one.strided() for one in (*given[:2], sums)),
        stack_slot(given),
        epilogue_slot(given),
    )
    launch = Launch((blocks(operands, settings), 1, 1), (WARPS * LANES, 1, 1), args, programmatic=True)
    # NOTE: as if an SM held one block: where several crowd they wait for memory all the same, and no longer.
    multiply = Step("along_k" if settings["along"] == "k" else "along_rows", launch)
    return [multiply] if parts == 1 else [multiply, add_step(as_row(operands), parts, sums=sums_of(operands))]


def _sums_as_columns(operands: Operands) -> Operand:
    """The sums of parts of K as the kernel leaves them."""
    row = parts_of(as_row(operands), sums_of(operands))
    if operands.in_pairs:
        return replace(row, rows=operands.c.rows, columns=2, row_stride=2)
    return row.transposed()


def workspace_bytes(operands: Operands, settings: Settings) -> int:
    """The sums of every part of K, if there are several."""
    return parts_bytes(as_row(operands.inner(STACK_AXES)), int(settings["parts"]), sums_of(operands))


def work(operands: Operands, settings: Settings) -> Work:
    matrix, rows = as_columns(operands).a, rows_of_block(settings)
    along_k = settings["along"] == "k"
    depth = max(LANES * WARPS // rows, LANES) if along_k else WARPS
    tall = operands.b.columns == 1
    if along_k and alignment_of(matrix.row_stride * matrix.itemsize, matrix.alignment) == 16:
        depth *= 16 // matrix.itemsize
    unit = UNITS.get(str(settings["widened"]), "vector_widened")
    return Work(
        unit if along_k else "vector_rows",
        Tile(rows if tall else 1, 1 if tall else rows, depth),
        WARPS * LANES,
        resident=RESIDENT,
        parts=int(settings["parts"]),
        parts_in_turn=parts_in_turn(as_row(operands), int(settings["parts"])),
        extra_bytes=2 * workspace_bytes(operands, settings),
    )


def tiles(settings: Settings) -> dict[str, Tile]:
    return {"block": Tile(rows_of_block(settings), 1, 1)}


def defines(settings: Settings) -> dict[str, object]:
    return {
        "WARPS": WARPS,
        "THREADS": WARPS * LANES,
        **name_defines(settings, "element", "result", "rows", "per_lane", "parts", "pointers"),
        **({} if settings["widened"] == AS_IT_IS else {"MATRIX_ELEMENT": settings["widened"]}),
    }


SPEC = KernelSpec(
    name="vector",
    title="products with a vector, at the speed of memory",
    file=Path(__file__).with_suffix(".cu"),
    entries=("along_k", "along_rows"),
    steps=steps,
    work=work,
    settings={
        "along": ("k", "rows"),
        "rows": (*ROWS, MORE_ROWS),
        "per_lane": PER_LANE,
        "parts": PARTS,  # of K
        "element": _ELEMENTS,
        "widened": (AS_IT_IS, *EIGHT_BITS),  # of the matrix, beside a vector of 16 bits
        "result": (*_FLOATS, "int32", "int64", *EIGHT_BITS),
        "pointers": TABLE_SIZES,
    },
    refuse=refuse,
    workspace=workspace_bytes,
    candidates=candidates,
    element_types=_ELEMENTS,
    accumulate=lambda settings: sum_type(str(settings["element"])),
    arithmetic={"float32": (None, "exact32")},
    defines=defines,
    tiles=tiles,
    strided=True,
    epilogues=True,
    complex_as="elements",
    orient=as_columns,
    stack_axes=STACK_AXES,
)
