"""tw.plan: the best plan for a problem on a GPU that need not be here, and the list of all plans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tilewise.epilogue import EpilogueCall, describe_dense
from tilewise.errors import ArgumentError, UnknownNameError, integer
from tilewise.gpus import Gpu
from tilewise.kernels import KERNELS
from tilewise.kernels.spec import AS_IT_IS
from tilewise.operands import Operands
from tilewise.plan import Plan
from tilewise.planner.choose import Refusal, choose, list_candidates
from tilewise.planner.target import Target, target_of
from tilewise.problem import (
    ELEMENT_BYTES,
    Layout,
    Problem,
    can_multiply,
    multiplied_type,
    result_of,
    sum_type,
)

__all__ = ["PlanRow", "list_plans", "operands_of", "plan", "plan_rows"]

_LAYOUTS = ("nn", "nt", "tn", "tt")
_SIZES = ("m", "n", "k", "batch")


def plan(
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float32",
    b_dtype: str | None = None,
    gpu: str | Gpu = "h200",
    batch: int = 1,
    groups: int = 0,
    pointers: bool = False,
    result: str | None = None,
    layout: str = "nn",
    epilogue: EpilogueCall | None = None,
    arithmetic: str | None = None,
    copy: bool | None = None,
) -> Plan:
    """The best plan for C[m, n] = A[m, k] · B[k, n] on a GPU of the table, or on the "emulator".

    ``b_dtype`` is the type of B if it is not A's: 8 bits beside 16, 16 beside 8, or the other float8. ``layout``
    says how A and B lie: "n" in rows, "t" as the transpose of rows. ``result`` is the element type of C, that of A
    and B if not given. ``epilogue`` is what :func:`tilewise.epilogue` gives, with arrays of the right shapes and
    types. ``copy=False`` excludes plans that copy an operand first. ``groups`` is how many groups of rows of A have
    a B each, as in :func:`tilewise.grouped_matmul`; ``pointers``: the matrices of the batch lie anywhere, as in
    :func:`tilewise.batched_matmul`. ``arithmetic`` is as in :func:`tilewise.matmul`. No GPU and no arrays are
    needed.

    >>> import tilewise as tw
    >>> tw.plan(4096, 4096, 4096, dtype="bfloat16", gpu="h200").kernel
    'wgmma'
    """
    operands = operands_of(
        m,
        n,
        k,
        dtype=dtype,
        b_dtype=b_dtype,
        batch=batch,
        groups=groups,
        pointers=pointers,
        result=result,
        layout=layout,
        epilogue=epilogue,
        arithmetic=arithmetic,
    )
    target = target_of(gpu)
    return choose(operands, target, copy=copy).plan(operands, target)


def list_plans(
    operands: Operands, target: Target, *, copy: bool | None = None
) -> tuple[list[Plan], list[Refusal]]:
    """Every plan for these operands on a target, the fastest first, and the kernels that cannot have them."""
    found, refused = list_candidates(operands, target, copy=copy)
    return [candidate.plan(operands, target) for candidate in found], refused


class PlanRow(NamedTuple):
    """A plan as a row of a table."""

    kernel: str
    block: str
    settings: str
    microseconds: float
    tflops: float
    bound: str
    copies: str


_OFF = (0, 1, "1x1", "float32", AS_IT_IS)  # of a switch: what it usually is, if it is among them


def plan_rows(plans: Iterable[Plan]) -> list[PlanRow]:
    """Plans as rows of a table, in their order."""
    return [_row(one) for one in plans]


def _row(plan: Plan) -> PlanRow:
    settings: dict[str, object] = dict(plan.parameters)
    known = KERNELS[plan.kernel].settings
    settings.update({name: getattr(plan, name) for name in ("stages", "split", "raster") if name in known})
    for name in ("element", "result"):
        settings.pop(name, None)  # the problem says them
    for name in [name for name, value in settings.items() if value in _OFF and value == known[name][0]]:
        del settings[name]  # a switch that is as usual says nothing
    seconds = plan.seconds or 0.0
    return PlanRow(
        plan.kernel,
        str(plan.tiles.get("block", "")),
        ", ".join(f"{name} {value}" for name, value in settings.items()),
        seconds * 1e6,
        plan.problem.flops / seconds / 1e12 if seconds else 0.0,
        plan.bound,
        " and ".join(plan.copies),
    )


def operands_of(
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float32",
    b_dtype: str | None = None,
    batch: int = 1,
    groups: int = 0,
    pointers: bool = False,
    result: str | None = None,
    layout: str = "nn",
    epilogue: EpilogueCall | None = None,
    arithmetic: str | None = None,
) -> Operands:
    """Dense operands of these sizes."""
    m, n, k, batch = (integer(name, size) for name, size in zip(_SIZES, (m, n, k, batch), strict=True))
    if layout not in _LAYOUTS:
        raise UnknownNameError("layout", layout, _LAYOUTS)
    served = {name for spec in KERNELS.values() for name in spec.element_types}
    _check_type("dtype", dtype, served)
    second = dtype if b_dtype is None else b_dtype
    _check_type("b_dtype", second, ELEMENT_BYTES)
    if not can_multiply(dtype, second):
        rule = f"must be {dtype}, unless one has 8 bits and the other 16, or both are of float8"
        raise ArgumentError("b_dtype", rule, second)
    if result is not None:
        _check_type("result", result, served)
    lie: list[Layout] = ["row" if letter == "n" else "column" for letter in layout]
    a, b = lie
    multiplied = multiplied_type(dtype, second)
    form = describe_dense(epilogue, (m, n) if batch == 1 else (batch, m, n), k, (dtype, second), groups > 0)
    wide = "float16" if arithmetic == "f16" else sum_type(multiplied, form.scales_terms)
    made = result or result_of(multiplied, not form.is_plain)
    return Operands.of(
        Problem(m, n, k, batch, dtype, second, made, wide, a, b, "row", form, groups, arithmetic, pointers)
    )


def _check_type(argument: str, name: str, served: Iterable[str]) -> None:
    """Refuse an element type that is unknown, or that no kernel has."""
    if name not in ELEMENT_BYTES:
        raise UnknownNameError(argument, name, ELEMENT_BYTES)
    served = sorted(served)
    if name not in served:
        raise ArgumentError(argument, f"must be one that a kernel has: {', '.join(served)}", name)
