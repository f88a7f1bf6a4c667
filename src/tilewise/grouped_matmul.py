"""tw.grouped_matmul: rows in groups, each multiplied by a matrix of its own, in one launch.

The way is that of :func:`tilewise.matmul`. How many rows a group has is read by the kernel, on the device.
"""

from __future__ import annotations

from typing import Any, TypeVar

from tilewise import interop
from tilewise.calls import (
    Arrays,
    BoundProduct,
    Choice,
    check_out,
    find_overlap,
    overlap_error,
    prepare,
    start,
)
from tilewise.describe import Shapes, group_shapes
from tilewise.devices import Device
from tilewise.epilogue import EpilogueCall, fit, view_arrays
from tilewise.errors import ArgumentError
from tilewise.host_arrays import multiply_staged, overwrite
from tilewise.interop import HOST, Common, View
from tilewise.matmul import find_device, in_one_type
from tilewise.plan import Plan
from tilewise.problem import multiplied_type
from tilewise.quantize import scale_sums, shape_of, unwrap
from tilewise.warm_calls import WarmCalls, can_compile, describe_extras

__all__ = ["grouped_matmul", "grouped_matmul_in_python"]

ArrayT = TypeVar("ArrayT")
_OPEN = Choice()


def grouped_matmul(
    a: ArrayT,
    b: Any,
    offsets: Any,
    out: Any = None,
    *,
    epilogue: EpilogueCall | None = None,
    arithmetic: str | None = None,
    device: Device | str | None = None,
    plan: Plan | None = None,
) -> ArrayT:
    """Multiply groups of rows by a matrix each: rows offsets[g-1] to offsets[g] of ``a`` by ``b[g]``.

    ``a`` has shape (rows, k), its rows in the order of their groups, ``b`` (groups, k, columns), in rows, in columns
    (``weight.mT``) or as it lies; ``offsets``, int32 on the same device, has where each group ends. A group may be
    empty. The result has shape (rows, columns). Rows from the last end on belong to no group: in ``out`` they stay as
    they were, else they hold anything.

    ``offsets`` are read on the device alone: nothing waits for the GPU, and a CUDA graph that has captured the call
    takes those of its replay. They must not decrease; what rows hold is undefined if they do, or if they exceed the
    rows of ``a``, but no other memory is touched.

    ``epilogue`` is what happens to the sums, as in :func:`tilewise.matmul`, with arrays that broadcast to the result;
    ``arithmetic`` is what to multiply in, as there; ``device`` is where host arrays are multiplied; ``plan``, made with
    ``groups``, is how.

    ``a`` and ``b`` may be what :func:`tilewise.quantize` gives: a scale for each row of ``a`` and column of each matrix
    of ``b``, say, or ``block=128`` and ``block=(128, 128)``, whose rows are counted from the first of all groups on.
    ``tw.quantize(weight, axis=-1).mT`` is a stack of weights of shape (groups, columns, k).

    >>> import numpy as np, tilewise as tw
    >>> a, b = np.ones((5, 3), "float32"), np.stack([np.full((3, 2), g, "float32") for g in (1, 2, 4)])
    >>> tw.grouped_matmul(a, b, np.array([2, 2, 5], "int32"))[:, 0].tolist()
    [3.0, 3.0, 12.0, 12.0, 12.0]
    """
    if plan is not None and not isinstance(plan, Plan):
        raise ArgumentError(
            "plan", "must be a Plan", type(plan).__name__, "tw.plan(m, n, k, groups=…) makes one"
        )
    scales = {}
    a, scales["scale_a"] = unwrap("a", a, None)
    b, scales["scale_b"] = unwrap("b", b, None)
    if any(one is not None for one in scales.values()):
        given = {"arithmetic": arithmetic, "device": device, "plan": plan}
        scaled: ArrayT = _multiply_scaled(a, b, offsets, out, scales, epilogue, given)
        return scaled
    views = {
        name: interop.view(name, interop.as_array(name, value))
        for name, value in (("a", a), ("b", b), ("offsets", offsets))
    }
    result: ArrayT = _multiply_views(views, out, device, Choice(plan=plan, arithmetic=arithmetic), epilogue)
    return result


def _multiply_scaled(
    a: Any,
    b: Any,
    offsets: Any,
    out: Any,
    scales: dict[str, Any],
    epilogue: EpilogueCall | None,
    given: dict[str, Any],
) -> Any:
    """A call with an epilogue instead of scales: compiled code knows no scales, nor arguments that are None."""
    sizes = {"scale_a": shape_of("a", a), "scale_b": shape_of("b", b)}
    call = scale_sums(epilogue, scales, sizes, grouped=True)
    function = grouped_matmul_in_python if _warm is None else _warm.function
    return function(
        a, b, offsets, out, epilogue=call, **{name: one for name, one in given.items() if one is not None}
    )


def _multiply_views(
    views: dict[str, View],
    out: Any,
    device: Device | str | None,
    choice: Choice,
    epilogue: EpilogueCall | None,
) -> Any:
    """The same of arrays that have been looked at."""
    left, right, ends = views.values()
    shapes = group_shapes(left.shape, right.shape, ends.shape)
    _check_ends(ends)
    fused = view_arrays(epilogue)
    choice = choice._replace(changed=not fused.is_plain)
    target = {} if out is None else {"out": interop.view_output("out", out)}
    common = interop.common({**views, **target, **fused.arrays})
    where = find_device(common, device, (*views.values(), *target.values(), *fused.views))
    types = left.dtype, right.dtype
    left, right = in_one_type(left, right, common, choice)
    dtype = multiplied_type(left.dtype, right.dtype)
    fused = fused if fused.is_plain else fit(fused, shapes.result, dtype, types)
    if out is not None:
        check_out(target["out"], shapes, choice.result_type(dtype))
        arrays = Arrays(left, right, target["out"], fused, ends)
        made = _multiply(arrays, shapes, where, common, choice, keeps=True)
        _offer(made, arrays, True, where, choice, epilogue)
        return out
    memory = common.library.empty(shapes.result, choice.result_type(dtype), common.like)
    arrays = Arrays(left, right, interop.view("out", memory), fused, ends)
    made = _multiply(arrays, shapes, where, common, choice, keeps=False)
    _offer(made, arrays, False, where, choice, epilogue)
    return common.library.finish(memory, common.like)


def _check_ends(ends: View) -> None:
    """Refuse ends of groups that a kernel cannot read."""
    if ends.dtype != "int32":
        fix = f"convert it: {ends.library.convert('offsets', 'int32')}"
        raise ArgumentError("offsets", "must hold int32", ends.dtype, fix)
    if ends.shape[0] > 1 and ends.strides[0] != 1:
        raise ArgumentError("offsets", "must be contiguous", f"strides {ends.strides}", "copy it first")


def _multiply(
    arrays: Arrays, shapes: Shapes, where: Device, common: Common, choice: Choice, *, keeps: bool
) -> BoundProduct | None:
    """Multiply into ``arrays.out``, which ``keeps`` what it has where there are no groups.

    The answer is what was bound; None where host arrays went to a GPU and back.
    """
    left, right, result, fused, ends = arrays[:5]
    if common.space == HOST and where.runs_on_gpu:
        overwrite(result, multiply_staged(left, right, fused, shapes, where, choice, result, ends, keeps))
        return None
    made = prepare(arrays, shapes, where, choice)
    if shared := find_overlap(made, arrays):
        raise overlap_error(*shared)
    start(made, arrays, where, common.streams)
    return made


def _offer(
    made: BoundProduct | None,
    arrays: Arrays,
    has_out: bool,
    where: Device,
    choice: Choice,
    epilogue: EpilogueCall | None,
) -> None:
    """Let the next call of this kind skip all of the above, if the plan is ours to choose."""
    is_open = choice._replace(changed=False, arithmetic=None) == _OPEN
    if _warm is not None and made is not None and where.runs_on_gpu and is_open:
        extras = describe_extras(arrays.fused, epilogue, arrays.offsets, choice.arithmetic)
        _warm.offer(made, arrays[:3], has_out, where, extras)


# ── the compiled call ────────────────────────────────────────────────────────────────────────────────────

grouped_matmul_in_python = grouped_matmul  # the whole of it, without the short way
_uncompiled = interop.keep_out_of_dynamo(grouped_matmul)
_SIGNATURE = (
    "grouped_matmul($module, a, b, offsets, out=None, *, epilogue=None, arithmetic=None, device=None, "
    "plan=None)\n--\n\n"
)
_DOC = _SIGNATURE + (grouped_matmul.__doc__ or "")
_warm = WarmCalls("grouped_matmul", _DOC, _uncompiled) if can_compile() else None
globals()["grouped_matmul"] = _uncompiled if _warm is None else _warm.function
