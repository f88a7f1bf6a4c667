"""Launch of the vector kernel: a matrix times a column, or a row times a matrix, stacks and strides as they are.

The kernel knows a matrix, a vector and a result that are columns. A row times B is Bᵀ times a column: the strides say
so, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels.epilogue import epilogue_slot
from tilewise.kernels.gemm.limits import STACK_AXES, name_defines, refuse_blocks, refuse_sizes, refuse_types
from tilewise.kernels.spec import AS_IT_IS, KernelSpec, Operands, Settings, Step, Work, ceil_div
from tilewise.kernels.stack import TABLE_SIZES, stack_slot
from tilewise.launch import Launch
from tilewise.operands import alignment_of
from tilewise.problem import EIGHT_BITS, FLOAT8, INTEGERS, Tile, sum_type

__all__ = ["SPEC"]

WARPS = 8
LANES = 32
PER_LANE = (1, 2, 4, 8)
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_ELEMENTS = (*_FLOATS, *FLOAT8, *INTEGERS)


def as_columns(operands: Operands) -> Operands:
    """The product as the kernel has it: a matrix, a vector and a result that are columns."""
    return operands if operands.b.columns == 1 else operands.transposed()


def rows_of_block(settings: Settings) -> int:
    """Elements of the result that a block computes."""
    if settings["along"] == "k":
        return int(settings["rows"])
    return LANES * int(settings["per_lane"])


def candidates(operands: Operands, _settings: Settings, _sms: int) -> Iterator[Settings]:
    matrix = as_columns(operands).a
    if matrix.columns <= 1 or abs(matrix.column_stride) <= abs(matrix.row_stride):
        for rows in (8, 4, 2, 1):
            yield {"along": "k", "rows": rows}
    else:
        for per_lane in (8, 4) if matrix.itemsize == 1 else PER_LANE[:3]:
            yield {"along": "rows", "per_lane": per_lane}


def blocks(operands: Operands, settings: Settings) -> int:
    return ceil_div(as_columns(operands).a.rows, rows_of_block(settings)) * operands.batch


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
    if unfit := refuse_types(operands, settings):
        return unfit
    return None


def steps(operands: Operands, settings: Settings) -> list[Step]:
    given = as_columns(operands)
    args = (
        *(one.strided() for one in given[:3]),
        stack_slot(given),
        epilogue_slot(given),
    )
    launch = Launch((blocks(operands, settings), 1, 1), (WARPS * LANES, 1, 1), args)
    return [Step("along_k" if settings["along"] == "k" else "along_rows", launch)]


def work(operands: Operands, settings: Settings) -> Work:
    matrix, rows = as_columns(operands).a, rows_of_block(settings)
    along_k = settings["along"] == "k"
    depth = LANES * WARPS // rows if along_k else WARPS
    tall = operands.b.columns == 1
    if along_k and alignment_of(matrix.row_stride * matrix.itemsize, matrix.alignment) == 16:
        depth *= 16 // matrix.itemsize
    unit = "vector" if settings["widened"] == AS_IT_IS else "vector_widened"
    return Work(
        unit if along_k else "vector_rows",
        Tile(rows if tall else 1, 1 if tall else rows, depth),
        WARPS * LANES,
        resident=8,
    )


def tiles(settings: Settings) -> dict[str, Tile]:
    return {"block": Tile(rows_of_block(settings), 1, 1)}


def defines(settings: Settings) -> dict[str, object]:
    return {
        "WARPS": WARPS,
        "THREADS": WARPS * LANES,
        **name_defines(settings, "element", "result", "rows", "per_lane", "pointers"),
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
        "rows": (8, 4, 2, 1),
        "per_lane": PER_LANE,
        "element": _ELEMENTS,
        "widened": (AS_IT_IS, *EIGHT_BITS),  # of the matrix, beside a vector of 16 bits
        "result": (*_FLOATS, "int32", "int64", *EIGHT_BITS),
        "pointers": TABLE_SIZES,
    },
    refuse=refuse,
    candidates=candidates,
    element_types=_ELEMENTS,
    accumulate=lambda settings: sum_type(str(settings["element"])),
    arithmetic={"float32": (None, "exact32")},
    defines=defines,
    tiles=tiles,
    strided=True,
    epilogues=True,
    orient=as_columns,
    stack_axes=STACK_AXES,
)
