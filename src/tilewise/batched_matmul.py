"""tw.batched_matmul: matrices of one shape that lie anywhere, each pair multiplied, in one launch.

The way is that of :func:`tilewise.matmul`. Where the matrices lie evenly they are a stack, and the launch is that of a
stack; else it brings tables of where they lie among its arguments, so that nothing is copied or kept for it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise import interop
from tilewise.calls import Arrays, Choice, check_out, itemsize, prepare, start
from tilewise.describe import Shapes, result_shapes
from tilewise.devices import Device
from tilewise.epilogue import (
    ARRAY_TYPES,
    EpilogueCall,
    Fused,
    fit,
    join_epilogue,
    refuse_scales,
    sums_of,
    view_arrays,
)
from tilewise.errors import ArgumentError
from tilewise.host_arrays import needs_own_memory, overwrite
from tilewise.interop import HOST, Common, View, numpy_of
from tilewise.kernels.stack import pointers_most
from tilewise.matmul import find_device, in_one_type, multiply_views
from tilewise.matrices import Matrices, check_overlaps, matrices_of, view_matrices
from tilewise.plan import Plan
from tilewise.problem import COMPLEX

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
    is for all products, a stack has one for each, and a list of matrices or rows too; ``c`` may be ``out`` itself. The
    other arguments are those of :func:`tilewise.matmul`; ``plan``, made with ``batch`` and ``pointers=True``, is how.

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
    joined = join_epilogue(bias, activation, residual, alpha, beta, c, epilogue)
    left, right = view_matrices("a", a), view_matrices("b", b)
    target = None if out is None else view_matrices("out", out, output=True)
    count = _count_products({"a": left, "b": right} | ({} if out is None else {"out": target}))
    if left is None or right is None:
        return [] if out is None else out
    found = _multiply_all(left, right, target, count, joined, choice, device)
    return found if out is None else out


def _multiply_all(
    left: Matrices,
    right: Matrices,
    target: Matrices | None,
    count: int,
    joined: EpilogueCall | None,
    choice: Choice,
    device: Device | str | None,
) -> list[Any]:
    """Multiply all pairs, into ``target`` or, without one, into a new list, which is returned."""
    extras = _view_lists(joined, count)
    stacks = {name: one.as_stack(count, 0) for name, one in extras.items()}
    fused = view_arrays(joined if joined is None or not extras else joined.replace(stacks))
    refuse_scales(fused, "lists of matrices")
    choice = choice._replace(changed=not fused.is_plain)
    given = [one for one in (left, right, target, *extras.values()) if one is not None]
    firsts = {name: view for one in given for name, view in one.libraries.items()}
    common = interop.common({**firsts, **fused.arrays})
    where = find_device(common, device, (*firsts.values(), *fused.views))
    call = _Call(result_shapes((count, *left.shape), (count, *right.shape)), common, where, choice)
    dtype = choice.result_type(left.dtype)
    if target is not None:
        check_out(target.as_stack(count, 0), call.shapes, dtype)
    if common.space == HOST and (where.runs_on_gpu or _needs_copies(left, right, target, extras, choice)):
        values = _multiply_copies(left, right, target, fused, extras, call)
        return [] if target is not None else _split_in_callers_kind(values, common)
    in_one_type(left.first, right.first, common, choice, widens=False)
    if not fused.is_plain:
        fused = fit(fused, call.shapes.result, left.dtype, (left.dtype, right.dtype))
    if target is not None:
        check_overlaps(left, right, target, fused, extras)
        _multiply((left, right, target), fused, extras, call)
        return []
    memory = common.library.empty(call.shapes.result, dtype, common.like)
    target = matrices_of("out", interop.view("out", memory))
    if fused.written:
        check_overlaps(left, right, target, fused, extras)
    _multiply((left, right, target), fused, extras, call)
    return common.library.split(common.library.finish(memory, common.like))


class _Call(NamedTuple):
    """The common facts of a call's launches."""

    shapes: Shapes
    common: Common
    where: Device
    choice: Choice


def _count_products(given: dict[str, Matrices | None]) -> int:
    """Return how many products there are: the length that all lists share. A None is an empty list."""
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


def _view_lists(call: EpilogueCall | None, count: int) -> dict[str, Matrices]:
    """Return the epilogue's arguments that are lists: a matrix, or a row, for each product."""
    found = {}
    for name, value in getattr(call, "given", {}).items():
        if (
            call is None
            or not isinstance(value, list | tuple)
            or not any(hasattr(one, "shape") for one in value)
        ):
            continue
        if name in call.expression.summed:
            rule = "must be one array with the sums of all products"
            raise ArgumentError(name, rule, "a list", "give a stack, with an axis for the products")
        made = view_matrices(name, value, output=name in call.expression.written, rows=True)
        if made is None or made.count != count:
            raise ArgumentError(name, f"must have an array for each of {count} products", len(value))
        found[name] = made
    return found


Lists = tuple[Matrices, Matrices, Matrices]


def _multiply(lists: Lists, fused: Fused, extras: Mapping[str, Matrices], call: _Call) -> None:
    """Multiply matrices that lie evenly as a stack, others by pointers, as many at once as tables have room for.

    Complex ones are laid out anew, which no table serves: uneven lists of them are multiplied one by one.
    """
    count, plan = call.shapes.stack[0], call.choice.plan
    for one in (*lists, *extras.values()):
        one.check_alike()
    uneven = {name for name, one in extras.items() if one.step(count) is None}
    by_pointers = bool(uneven) or any(one.step(count) is None for one in lists)
    if not (by_pointers or (plan is not None and plan.problem.pointers)):
        _launch(lists, fused, extras, None, call)
        return
    most = 1 if lists[0].dtype in COMPLEX else pointers_most(len(uneven))
    if count > most and fused.summed:
        rule = f"must add up no columns or rows of more than {most:,} matrices that lie unevenly"
        raise ArgumentError("epilogue", rule, f"{count:,}", "multiply them in several calls")
    for begin in range(0, count, most):
        some = slice(begin, min(begin + most, count))
        _launch(
            tuple(one.part(some) for one in lists),
            fused._replace(views=tuple(_slice_view(view, some) for view in fused.views)),
            {name: one.part(some) for name, one in extras.items()},
            uneven if some.stop - some.start > 1 else None,
            call._replace(shapes=_slice_shapes(call.shapes, some)),
        )


def _launch(
    lists: Sequence[Matrices],
    fused: Fused,
    extras: Mapping[str, Matrices],
    uneven: Container[str] | None,
    call: _Call,
) -> None:
    """Start the launch that multiplies some pairs: by pointers, unless ``uneven``, a set of argument names, is None."""
    count = call.shapes.stack[0]
    stacks: dict[str, View] = {}
    tables: dict[str, int] = {}
    named = dict(zip("abc", lists, strict=True)) | {f"epilogue.{name}": one for name, one in extras.items()}
    for name, one in named.items():
        if uneven is not None and (name in "abc" or one.argument in uneven):
            stacks[name], tables[name] = one.as_scattered(count)
        else:
            stacks[name] = one.as_stack(count, one.step(count) or 0)
    views = (stacks.get(f"epilogue.{name}", view) for name, view in fused.arrays.items())
    arrays = Arrays(
        stacks["a"],
        stacks["b"],
        stacks["c"],
        fused._replace(views=tuple(views)),
        matrices=_views_to_notify(named.values(), call),
        tables=None if uneven is None else tables,
    )
    made = prepare(arrays, call.shapes, call.where, call.choice)
    start(made, arrays, call.where, call.common.streams)


def _views_to_notify(lists: Iterable[Matrices], call: _Call) -> tuple[View, ...]:
    """Return the views whose owners must learn of the launch: of a GPU our own arrays, of the emulator all."""
    if not call.where.runs_on_gpu:
        return tuple(view for one in lists for view in one.views)
    ours = (one for one in lists if one.each is not None or one.first.library.name == "tilewise")
    return tuple(view for one in ours for view in one.views)


def _slice_shapes(shapes: Shapes, some: slice) -> Shapes:
    """Return the shapes of a slice of the products."""
    count = some.stop - some.start
    return shapes._replace(stack=(count,), result=(count, *shapes.result[1:]))


def _slice_view(view: View, some: slice) -> View:
    """Return the part of an epilogue's array that belongs to a slice of the products."""
    if len(view.shape) < 3 or view.shape[0] == 1:
        return view
    ptr = view.ptr + some.start * view.strides[0] * itemsize(view)
    return view._replace(ptr=ptr, shape=(some.stop - some.start, *view.shape[1:]))


# ── host arrays that are stacked first ───────────────────────────────────────────────────────────────────


def _needs_copies(
    left: Matrices,
    right: Matrices,
    target: Matrices | None,
    extras: Mapping[str, Matrices],
    choice: Choice,
) -> bool:
    """Whether host arrays must be copied: to another type, or because their strides differ."""
    dtype = interop.result_type(left.dtype, right.dtype)
    types = ARRAY_TYPES[sums_of(dtype, next(iter(extras)))] if extras else ()
    read = (left, right, *extras.values())
    if not (left.dtype == right.dtype == dtype and all(one.are_alike for one in read)):
        return True
    if any(one.dtype not in types for one in extras.values()):
        return True
    if target is None:
        return False
    return not target.are_alike or needs_own_memory(target.as_stack(1, 0), dtype, choice)


def _multiply_copies(
    left: Matrices,
    right: Matrices,
    target: Matrices | None,
    fused: Fused,
    extras: Mapping[str, Matrices],
    call: _Call,
) -> npt.NDArray[Any]:
    """Multiply host arrays by way of stacks in host memory, as :func:`tilewise.matmul` does.

    They are written to ``target``, if there is one.
    """
    if target is not None:
        check_overlaps(left, right, target, fused, extras)
    for name in fused.written:
        if name in extras:
            rule = "must be one array where host arrays are copied first"
            raise ArgumentError(name, rule, "a list", "give a stack, with an axis for the products")
    x, y = (interop.view(one.argument, _copy_to_stack(one)) for one in (left, right))
    stacks = {name: interop.view(name, _copy_to_stack(one)) for name, one in extras.items()}
    fused = fused._replace(views=tuple(stacks.get(name, view) for name, view in fused.arrays.items()))
    if target is None:
        made: npt.NDArray[Any] = multiply_views(x, y, None, call.where, call.choice, fused)
        return made
    made = np.empty(call.shapes.result, interop.numpy_dtype(target.dtype))
    multiply_views(x, y, made, call.where, call.choice, fused)
    for view, values in zip(target.views, made, strict=True):
        overwrite(view, values)
    return made


def _copy_to_stack(matrices: Matrices) -> npt.NDArray[Any]:
    """Copy matrices into one stack in host memory."""
    return np.stack([numpy_of(view) for view in matrices.views])


def _split_in_callers_kind(values: npt.NDArray[Any], common: Common) -> list[Any]:
    """Split a stack in host memory into a list of the caller's kind of arrays."""
    memory = common.library.empty(values.shape, interop.view("out", values).dtype, common.like)
    overwrite(interop.view("out", memory), values)
    return common.library.split(common.library.finish(memory, common.like))
