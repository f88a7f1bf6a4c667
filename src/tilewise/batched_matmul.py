"""tw.batched_matmul: matrices of one shape that lie anywhere, each pair multiplied, in one launch.

The way is that of :func:`tilewise.matmul`. Where the matrices lie evenly they are a stack, and the launch is that of a
stack; else it brings tables of where they lie among its arguments, so that nothing is copied or kept for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise import interop
from tilewise.calls import Arrays, Choice, check_out, itemsize, prepare, start
from tilewise.describe import Shapes, result_shapes
from tilewise.devices import Device
from tilewise.epilogue import EpilogueCall, Fused, fit, join_epilogue, sums_of, view_arrays
from tilewise.errors import ArgumentError
from tilewise.host_arrays import needs_own_memory, overwrite
from tilewise.interop import HOST, Common, View, numpy_of
from tilewise.kernels.stack import POINTERS_MOST
from tilewise.matmul import find_device, in_one_type, multiply_views
from tilewise.matrices import Matrices, check_overlaps, matrices_of, view_matrices
from tilewise.plan import Plan

__all__ = ["batched_matmul"]


@interop.keep_out_of_dynamo
def batched_matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    alpha: float = 1.0,
    beta: float | None = None,
    c: Any = None,
    epilogue: EpilogueCall | None = None,
    arithmetic: str | None = None,
    device: Device | str | None = None,
    plan: Plan | None = None,
) -> Any:
    """Multiply pairs of matrices, ``a[i]`` by ``b[i]``, that lie anywhere: in one launch, and no matrix is copied.

    ``a`` and ``b`` are lists or tuples of matrices, of any kind that :func:`tilewise.matmul` takes. Those of one list
    have the same shape, element type and strides. An array in the place of a list is one matrix for all products, or
    with three dimensions a stack of one for each. The result is a list of matrices of the caller's kind, views of one
    allocation; ``out``, a list too, is written if given, and returned. None of its matrices may overlap another.

    ``bias``, ``residual``, ``c`` and the arrays of ``epilogue`` broadcast to the shape (count, m, n): a matrix or a row
    is for all products, a stack has one for each. The other arguments are those of :func:`tilewise.matmul`; ``plan``,
    made with ``batch`` and ``pointers=True``, is how.

    Where the matrices lie is part of the launch: nothing waits for the GPU, and a CUDA graph that captures the call
    goes to the same matrices in each replay. A launch takes 1,024 pairs; more are multiplied in several.

    >>> import numpy as np, tilewise as tw
    >>> a = [np.full((2, 3), i, "float32") for i in (1, 2, 5)]
    >>> [c[0, 0].item() for c in tw.batched_matmul(a, np.ones((3, 4), "float32"))]
    [3.0, 6.0, 15.0]
    """
    if plan is not None and not isinstance(plan, Plan):
        fix = "tw.plan(m, n, k, batch=…, pointers=True) makes one"
        raise ArgumentError("plan", "must be a Plan", type(plan).__name__, fix)
    choice = Choice(plan=plan, arithmetic=arithmetic)
    fused = view_arrays(join_epilogue(bias, activation, residual, alpha, beta, c, epilogue))
    left, right = view_matrices("a", a), view_matrices("b", b)
    target = None if out is None else view_matrices("out", out, output=True)
    count = _count_products({"a": left, "b": right} | ({} if out is None else {"out": target}))
    if left is None or right is None:
        return [] if out is None else out
    firsts = {**left.libraries, **right.libraries, **({} if target is None else target.libraries)}
    common = interop.common({**firsts, **fused.arrays})
    where = find_device(common, device, (*firsts.values(), *fused.views))
    shapes = result_shapes((count, *left.shape), (count, *right.shape))
    dtype = choice.result_type(left.dtype)
    if target is not None:
        check_out(target.as_stack(count, 0), shapes, dtype)
    call = _Call(shapes, common, where, choice)
    if common.space == HOST and (where.runs_on_gpu or _needs_copies(left, right, target, choice)):
        values = _multiply_copies(left, right, target, fused, call)
        return out if target is not None else _own_list(values, common)
    in_one_type(left.first, right.first, common, choice)
    if not fused.is_plain:
        fused = fit(fused, shapes.result, sums_of(left.dtype))
    if target is not None:
        check_overlaps(left, right, target, fused)
        _multiply(left, right, target, fused, call)
        return out
    memory = common.library.empty(shapes.result, dtype, common.like)
    target = matrices_of("out", interop.view("out", memory))
    if fused.written:
        check_overlaps(left, right, target, fused)
    _multiply(left, right, target, fused, call)
    return common.library.split(common.library.finish(memory, common.like))


class _Call(NamedTuple):
    """What the launches of a call have in common."""

    shapes: Shapes
    common: Common
    where: Device
    choice: Choice


def _count_products(given: dict[str, Matrices | None]) -> int:
    """How many products there are: what all lists have. None is an empty one."""
    counts = {name: 0 if one is None else one.count for name, one in given.items()}
    if counts["a"] is None and counts["b"] is None:
        rule, fix = "must be lists of matrices, or one of them", "tw.matmul multiplies two matrices"
        raise ArgumentError("a and b", rule, "two matrices", fix)
    if counts.get("out", 0) is None:
        raise ArgumentError("out", "must be a list of matrices", "one matrix")
    first = "b" if counts["a"] is None else "a"
    for name, count in counts.items():
        if count not in (None, counts[first]):
            raise ArgumentError(name, f"must have as many matrices as {first}, {counts[first]}", count)
    return int(counts[first] or 0)


def _multiply(left: Matrices, right: Matrices, target: Matrices, fused: Fused, call: _Call) -> None:
    """Multiply matrices that lie evenly as a stack, others by pointers, as many at once as tables have room for."""
    lists, count, plan = (left, right, target), call.shapes.stack[0], call.choice.plan
    for one in lists:
        one.check_alike()
    steps = [one.step(count) for one in lists]
    if None not in steps and not (plan is not None and plan.problem.pointers):
        stacks = [one.as_stack(count, step or 0) for one, step in zip(lists, steps, strict=True)]
        _launch(lists, stacks, None, fused, call)
        return
    if count > POINTERS_MOST and fused.summed:
        rule = f"must add up no columns or rows of more than {POINTERS_MOST:,} matrices that lie unevenly"
        raise ArgumentError("epilogue", rule, f"{count:,}", "multiply them in several calls")
    for begin in range(0, count, POINTERS_MOST):
        some = slice(begin, min(begin + POINTERS_MOST, count))
        _multiply_by_pointers(
            [one.part(some) for one in lists],
            fused._replace(views=tuple(_part(view, some) for view in fused.views)),
            call._replace(shapes=_some_of(call.shapes, some)),
        )


def _multiply_by_pointers(lists: Sequence[Matrices], fused: Fused, call: _Call) -> None:
    count = call.shapes.stack[0]
    if count == 1:
        _launch(lists, [one.as_stack(1, 0) for one in lists], None, fused, call)
        return
    stacks, tables = zip(*(one.as_scattered(count) for one in lists), strict=True)
    _launch(lists, stacks, dict(zip("abc", tables, strict=True)), fused, call)


def _launch(
    lists: Sequence[Matrices],
    stacks: Sequence[View],
    tables: dict[str, int] | None,
    fused: Fused,
    call: _Call,
) -> None:
    # A GPU has to be told of those that are ours; the emulator of all.
    own = "tilewise" if call.where.runs_on_gpu else None
    matrices = tuple(
        view for one in lists if own in (None, one.first.library.name) or one.each for view in one.views
    )
    a, b, c = stacks
    arrays = Arrays(a, b, c, fused, None, matrices, tables)
    made = prepare(arrays, call.shapes, call.where, call.choice)
    start(made, arrays, call.where, call.common.streams)


def _some_of(shapes: Shapes, some: slice) -> Shapes:
    """The shapes of some of the products."""
    count = some.stop - some.start
    return shapes._replace(stack=(count,), result=(count, *shapes.result[1:]))


def _part(view: View, some: slice) -> View:
    """The part of an epilogue's array that belongs to some of the products."""
    if len(view.shape) < 3 or view.shape[0] == 1:
        return view
    ptr = view.ptr + some.start * view.strides[0] * itemsize(view)
    return view._replace(ptr=ptr, shape=(some.stop - some.start, *view.shape[1:]))


# ── host arrays that are stacked first ───────────────────────────────────────────────────────────────────


def _needs_copies(left: Matrices, right: Matrices, target: Matrices | None, choice: Choice) -> bool:
    """Whether host arrays have to be copied: to another type, out of different strides, or a result to its own type."""
    dtype = interop.result_type(left.dtype, right.dtype)
    if not (left.dtype == right.dtype == dtype and left.are_alike and right.are_alike):
        return True
    if target is None:
        return False
    return not target.are_alike or needs_own_memory(target.as_stack(1, 0), left.first, choice)


def _multiply_copies(
    left: Matrices, right: Matrices, target: Matrices | None, fused: Fused, call: _Call
) -> npt.NDArray[Any]:
    """The products of host arrays by way of stacks in host memory, multiplied as :func:`tilewise.matmul` does.

    They are written to ``target``, if there is one.
    """
    x, y = (interop.view(one.argument, _stack(one)) for one in (left, right))
    if target is None:
        made: npt.NDArray[Any] = multiply_views(x, y, None, call.where, call.choice, fused)
        return made
    check_overlaps(left, right, target, fused)
    made = np.empty(call.shapes.result, interop.numpy_dtype(target.dtype))
    multiply_views(x, y, made, call.where, call.choice, fused)
    for view, values in zip(target.views, made, strict=True):
        overwrite(view, values)
    return made


def _stack(matrices: Matrices) -> npt.NDArray[Any]:
    """A copy of them in host memory, one behind the other."""
    return np.stack([numpy_of(view) for view in matrices.views])


def _own_list(values: npt.NDArray[Any], common: Common) -> list[Any]:
    """A stack in host memory as a list of the caller's kind."""
    memory = common.library.empty(values.shape, interop.view("out", values).dtype, common.like)
    overwrite(interop.view("out", memory), values)
    return common.library.split(common.library.finish(memory, common.like))
