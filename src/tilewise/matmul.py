"""tw.matmul: the front door. Any array in, an array of the same kind out.

view (what each array is, without a copy) → describe (the product, by NumPy's rules) → choose (a plan) → bind (compiled,
its arguments laid out) → call. A product whose like came before finds its bound in a table and goes straight to the
last step.

NOTE: this module has the name of its function, which is what the package shows under that name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from tilewise import interop
from tilewise.calls import (
    Arrays,
    BoundProduct,
    Choice,
    check_out,
    find_overlap,
    overlap_error,
    prepare,
    recall_bound,
    start,
)
from tilewise.describe import result_shapes
from tilewise.devices import Device, gpu
from tilewise.devices import device as resolve
from tilewise.epilogue import EpilogueCall, Fused, fit, join_epilogue, view_arrays
from tilewise.errors import ArgumentError
from tilewise.host_arrays import multiply_staged, needs_own_memory, overwrite, written_type
from tilewise.interop import HOST, Common, View, numpy_of
from tilewise.kernels.gemm.limits import STACK_AXES
from tilewise.kernels.spec import KernelSpec
from tilewise.plan import Plan
from tilewise.problem import can_multiply, multiplied_type
from tilewise.quantize import scale_sums, shape_of, unwrap
from tilewise.split_float32 import take_parts
from tilewise.warm_calls import WarmCalls, can_compile, describe_extras

__all__ = ["Offer", "matmul", "matmul_in_python", "multiply", "multiply_scaled", "multiply_views"]

ArrayT = TypeVar("ArrayT")
_ADDED_UP = {"a": -1, "b": -2}  # axes
# Lets the next call of this kind skip the long way: takes what was bound, the arrays, whether there is an out, where.
Offer = Callable[[BoundProduct, Arrays, bool, Device], None]
_OPEN = Choice()


def matmul(
    a: ArrayT,
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
    scale_a: Any = None,
    scale_b: Any = None,
    arithmetic: str | None = None,
    device: Device | str | None = None,
    plan: Plan | None = None,
    copy: bool | None = None,
) -> ArrayT:
    """Multiply matrices: C[m, n] = A[m, k] · B[k, n].

    ``a`` and ``b`` are arrays of NumPy, PyTorch, CuPy, JAX, of anything with DLPack or the CUDA array interface, or
    tilewise's own, in float16, bfloat16, float32, float64, complex64, complex128, float8, int8, int32 or int64, of any
    sizes and strides. They
    may be of different libraries where they lie on one device. Stacks, broadcasting and operands of one axis work as in
    ``numpy.matmul``. 16-bit types are summed in float32, integers modulo 2ⁿ in int32 (int64 in int64), which is also
    what the result of int8 holds. The result is of the caller's kind, made by the caller's
    library, on its current stream; nothing waits for the GPU.

    ``arithmetic`` is what to multiply in, if not in what the operands' type says: "tf32" is for float32 on the tensor
    cores of GPUs since Ampere. It rounds operands to 10 bits of mantissa, keeps sums and the result in float32, and is
    several times as fast. "exact32" is for float32 too: on Hopper's tensor cores, where large products are three to
    four times as fast so, with errors no larger than without it; elsewhere it is the same as without. "f16" is for
    float16, and keeps sums in float16 too: less exact, infinite beyond 65,504, and on GeForce GPUs twice as fast by
    NVIDIA's figures. "f32" and "f64" name what float32 and float64 are multiplied in anyway.

    Of float32 ``a`` and ``b`` may be what :func:`tilewise.split_float32` gives, too: matrices that stay, for "exact32".

    ``out`` is written if given, and returned. ``device`` is where host arrays are multiplied: a GPU if there is one,
    else the emulator. ``plan`` is how, instead of what the planner chooses. ``copy=False`` refuses plans that copy
    an operand on the device first, because their kernel has no form for how it lies.

    With ``bias``, ``activation`` ("relu", "gelu", "gelu_tanh", "silu", "tanh" or "sigmoid"), ``residual``, ``alpha``
    and ``beta`` with ``c`` the result is activation(alpha·A·B + beta·c + bias) + residual, in one launch and rounded
    once; the arrays broadcast to the result. ``beta`` is 1 if only ``c`` is given. ``epilogue`` is anything else that
    shall happen to the sums: see :func:`tilewise.epilogue`.

    One operand may have 8 bits and the other 16, such as bfloat16 and int8: those of 8 are widened, which is exact, and
    the result has 16. ``a`` and ``b`` may be what :func:`tilewise.quantize` gives: numbers of 8 bits with scales.
    ``scale_a`` and ``scale_b`` are such scales by themselves, numbers or arrays that are the same along k: of shape
    (m, 1) and (1, n), say. Each sum is multiplied by them before anything else happens to it. Those of an operand of 8
    bits may have an element for each 128 along k, and for each row of ``a`` or column of ``b``, or 128 of those: of
    shape (m, k / 128) and (k / 128, n / 128), say. Products of float8, of which there are two types, hold bfloat16
    unless ``out`` is given, and scaled ones of int8 float32. Sums of float8 are float32, also where tensor cores keep
    fewer places.

    torch's gradients are recorded where a tensor requires one: see docs/torch.md. Inside jax.jit, jax.grad and jax.vmap
    it is part of what they compile and differentiate: see docs/jax.md.

    >>> import numpy as np, tilewise as tw
    >>> tw.matmul(np.ones((2, 3), "float32"), np.ones((3, 4), "float32"))[0, 0]
    np.float32(3.0)
    """
    if plan is not None and not isinstance(plan, Plan):
        raise ArgumentError("plan", "must be a Plan", type(plan).__name__, "tw.plan(m, n, k) makes one")
    call = join_epilogue(bias, activation, residual, alpha, beta, c, epilogue)
    a, scale_a = unwrap("a", a, scale_a)
    b, scale_b = unwrap("b", b, scale_b)
    given = () if epilogue is None else getattr(epilogue, "given", {}).values()
    if scale_a is not None or scale_b is not None:
        scales = {"scale_a": scale_a, "scale_b": scale_b}
        shapes = {"scale_a": shape_of("a", a), "scale_b": shape_of("b", b)}
        scaled: ArrayT = multiply_scaled(
            a, b, scale_sums(call, scales, shapes), scales, (a, b, bias, residual, c, *given),
            out=out, arithmetic=arithmetic, device=device, plan=plan, copy=copy,
        )  # fmt: skip
        return scaled
    found, parts, arithmetic = take_parts({"a": a, "b": b}, _ADDED_UP, arithmetic)
    a, b = found.values()
    operators = interop.operators_for(a, b, bias, residual, c, *given)
    if operators is not None:
        operators.refuse(out=out, epilogue=epilogue, plan=plan, copy=copy, split_float32=parts or None)
        recorded: ArrayT = operators.matmul(
            a, b, bias=bias, activation=activation, residual=residual, alpha=alpha, beta=beta, c=c,
            arithmetic=arithmetic, device=device,
        )  # fmt: skip
        return recorded
    open_ = plan is None and copy is None and arithmetic is None
    choice = _OPEN if open_ else Choice(plan=plan, copy=copy, arithmetic=arithmetic)
    result: ArrayT = _multiply_plainly(
        a, b, out, device, choice, call, activation if epilogue is None else epilogue, parts
    )
    return result


def multiply_scaled(
    a: Any,
    b: Any,
    epilogue: EpilogueCall | None,
    scales: dict[str, Any],
    operands: tuple[Any, ...],
    **given: Any,
) -> Any:
    """A call with an epilogue instead of scales: compiled code knows no scales, nor arguments that are None.

    No gradients are recorded of ``operands``; what is refused for that is ``scales``, by their names in the call.
    """
    function = matmul_in_python if _warm is None else _warm.function
    try:
        return function(
            a, b, epilogue=epilogue, **{name: value for name, value in given.items() if value is not None}
        )
    except ArgumentError:
        # NOTE: before the call it would cost microseconds
        operators = interop.operators_for(*operands, *scales.values())
        if operators is not None:
            operators.refuse(**scales)
        raise


def _multiply_plainly(
    a: Any,
    b: Any,
    out: Any,
    device: Device | str | None,
    choice: Choice,
    call: EpilogueCall | None,
    source: EpilogueCall | str | None,
    parts: Mapping[str, View],
) -> Any:
    """A product that no gradient is recorded of. ``source`` is what its epilogue came from: see `describe_extras`."""
    left = interop.view("a", interop.as_array("a", a))
    right = interop.view("b", interop.as_array("b", b))
    if parts:  # which compiled code does not know
        left, right = left._replace(parts=parts.get("a")), right._replace(parts=parts.get("b"))
        return multiply_views(left, right, out, device, choice, view_arrays(call))

    def offer(made: BoundProduct, arrays: Arrays, has_out: bool, where: Device) -> None:
        if _warm is not None:
            extras = describe_extras(arrays.fused, source, arithmetic=choice.arithmetic)
            _warm.offer(made, arrays[:3], has_out, where, extras)

    return multiply_views(left, right, out, device, choice, view_arrays(call), offer)


def multiply(
    a: Any,
    b: Any,
    out: Any,
    device: Device | str | None,
    choice: Choice,
    epilogue: EpilogueCall | None = None,
) -> Any:
    """The product of two arrays, in the way that ``choice`` leaves open."""
    left = interop.view("a", interop.as_array("a", a))
    right = interop.view("b", interop.as_array("b", b))
    return multiply_views(left, right, out, device, choice, view_arrays(epilogue))


def multiply_views(
    left: View,
    right: View,
    out: Any,
    device: Device | str | None,
    choice: Choice,
    fused: Fused,
    offer: Offer | None = None,
) -> Any:
    """The same of arrays that have been looked at. What was bound goes to ``offer`` if the plan is ours to choose."""
    # NOTE: the compiled call knows no arrays of sums.
    if choice._replace(arithmetic=None) != _OPEN or fused.summed:
        offer = None
    choice = choice if fused.is_plain else choice._replace(changed=True)
    if out is None:
        return _multiply_anew(left, right, device, choice, fused, offer)
    _multiply_into(left, right, out, device, choice, fused, offer)
    return out


def _multiply_anew(
    left: View, right: View, device: Device | str | None, choice: Choice, fused: Fused, offer: Offer | None
) -> Any:
    """The product in memory of its own, made by the operands' library."""
    common = interop.common({"a": left, "b": right, **fused.arrays})
    where = find_device(common, device, (left, right, *fused.views))
    shapes = result_shapes(left.shape, right.shape)
    types = left.dtype, right.dtype
    left, right = in_one_type(left, right, common, choice)
    dtype = multiplied_type(left.dtype, right.dtype)
    fused = fused if fused.is_plain else fit(fused, shapes.result, dtype, types)
    array = common.library.empty(shapes.result, choice.result_type(dtype), common.like)
    result = interop.view("out", array)
    if common.space == HOST and where.runs_on_gpu:
        overwrite(result, multiply_staged(left, right, fused, shapes, where, choice, result))
    else:
        arrays = Arrays(left, right, result, fused)
        made = prepare(arrays, shapes, where, choice)
        if not fused.is_plain and (shared := find_overlap(made, arrays)):
            raise overlap_error(*shared)
        start(made, arrays, where, common.streams)
        if offer is not None and where.runs_on_gpu:
            offer(made, arrays, False, where)
    finished = common.library.finish(array, common.like)
    return finished if shapes.result or type(finished) is not np.ndarray else finished[()]


def _multiply_into(
    left: View,
    right: View,
    out: Any,
    device: Device | str | None,
    choice: Choice,
    fused: Fused,
    offer: Offer | None,
) -> None:
    """The product, written into ``out``."""
    result = interop.view("out", out)
    common = interop.common({"a": left, "b": right, "out": result, **fused.arrays})
    where = find_device(common, device, (left, right, result, *fused.views))
    arrays = Arrays(left, right, result, fused)
    made = None if result.read_only else recall_bound(arrays, where, choice)
    if made is None:
        result = interop.view_output("out", out)
        shapes = result_shapes(left.shape, right.shape)
        types = left.dtype, right.dtype
        left, right = in_one_type(left, right, common, choice)
        dtype = multiplied_type(left.dtype, right.dtype)
        fused = fused if fused.is_plain else fit(fused, shapes.result, dtype, types)
        check_out(result, shapes, choice.result_type(dtype))
        if common.space == HOST and where.runs_on_gpu:
            overwrite(result, multiply_staged(left, right, fused, shapes, where, choice, result))
            return
        if needs_own_memory(result, dtype, choice):
            _multiply_apart(left, right, result, where, choice, fused)
            return
        arrays = Arrays(left, right, result, fused)
        made = prepare(arrays, shapes, where, choice)
    shared = find_overlap(made, arrays)
    if shared and common.space == HOST and shared[0] == "out" and shared[1] not in fused.written:
        _multiply_apart(left, right, result, where, choice, fused)
        return
    if shared:
        raise overlap_error(*shared)
    start(made, arrays, where, common.streams)
    if offer is not None and where.runs_on_gpu:
        offer(made, arrays, True, where)


def _multiply_apart(
    left: View, right: View, result: View, where: Device, choice: Choice, fused: Fused
) -> None:
    """Multiply two host arrays in memory of its own, and write what it holds to the result."""
    a, b = (interop.view(name, numpy_of(one)) for name, one in (("a", left), ("b", right)))
    views = tuple(interop.view(name, numpy_of(one)) for name, one in fused.arrays.items())
    multiplied = multiplied_type(left.dtype, right.dtype)
    dtype = written_type(result, multiplied, choice)
    as_usual = dtype == choice.result_type(multiplied)
    memory = None if as_usual else np.empty(result.shape, interop.numpy_dtype(dtype))
    overwrite(result, multiply_views(a, b, memory, where, choice, fused._replace(views=views)))


def in_one_type(
    left: View, right: View, common: Common, choice: Choice, *, widens: bool = True
) -> tuple[View, View]:
    """Both operands in the type that they are multiplied in; host arrays of another are converted, as by NumPy.

    With ``widens`` one of 8 bits beside one of 16 stays as it is: it is widened on the device.
    """
    # NOTE: of stacks with more axes than a pass knows some kernels would find no way to widen.
    widens = widens and max(left.ndim, right.ndim) <= STACK_AXES + 2
    if widens and left.dtype != right.dtype and can_multiply(left.dtype, right.dtype):
        multiplied = multiplied_type(left.dtype, right.dtype)
        if choice.kernels is None or any(multiplied in spec.element_types for spec in choice.kernels):
            return left, right
    dtype = interop.result_type(left.dtype, right.dtype, exact=common.library.name in ("torch", "jax"))
    if left.dtype == right.dtype == dtype:
        return left, right
    views = {"a": left, "b": right}
    if choice.kernels is not None:
        _check_types(views, dtype, choice.kernels)
    for argument, view in views.items():
        if view.dtype == dtype:
            continue
        if view.space != HOST:
            rule = f"must hold {dtype}, in which {left.dtype} and {right.dtype} are multiplied"
            fix = "convert it: on a GPU tw.matmul makes no copy of an operand in another type"
            raise ArgumentError(argument, rule, view.dtype, fix)
        views[argument] = interop.view(argument, numpy_of(view).astype(interop.numpy_dtype(dtype)))
    return views["a"], views["b"]


def _check_types(views: dict[str, View], dtype: str, kernels: tuple[KernelSpec, ...]) -> None:
    """Refuse the first operand of a type that the kernels do not have, if they do not have the common type either."""
    types = dict.fromkeys(name for spec in kernels for name in spec.element_types)
    for argument, view in views.items():
        if dtype not in types and view.dtype not in types:
            rule = f"must have elements of type {' or '.join(types)} for {kernels[0].name}"
            raise ArgumentError(
                argument, rule, view.dtype, f"convert it: {argument}.astype('{next(iter(types))}')"
            )


def find_device(common: Common, device: Device | str | None, views: tuple[View, ...]) -> Device:
    """Where to multiply: the GPU that holds the arrays; for host arrays the device asked for, or the default."""
    if common.space == HOST:
        if device is None and common.library.name != "numpy":
            for view in views:
                if view.library.name == "tilewise":
                    own: Device = view.owner.device
                    return own
        return resolve(device)
    here = gpu.open(common.space[1])
    if device is not None and resolve(device) is not here:
        rule = f"must be {here.name}, where the operands lie, or None"
        raise ArgumentError("device", rule, device if isinstance(device, str) else device.name)
    return here


# ── the compiled call ────────────────────────────────────────────────────────────────────────────────────

matmul_in_python = matmul  # the whole of it, without the short way
_uncompiled = interop.keep_out_of_dynamo(matmul)
_SIGNATURE = (
    "matmul($module, a, b, out=None, *, bias=None, activation=None, residual=None, alpha=1.0, beta=None, c=None, "
    "epilogue=None, scale_a=None, scale_b=None, arithmetic=None, device=None, plan=None, copy=None)\n--\n\n"
)
_warm = WarmCalls("matmul", _SIGNATURE + (matmul.__doc__ or ""), _uncompiled) if can_compile() else None
globals()["matmul"] = _uncompiled if _warm is None else _warm.function
# torch.compile leaves the builtin as it is, which is what is wanted, and warns of it.
# NOTE: pytest puts its own filters before this one for each test; where they make errors of warnings, ignore it there.
DYNAMO_WARNING = "Dynamo does not know how to trace the builtin .tilewise"
warnings.filterwarnings("ignore", DYNAMO_WARNING, UserWarning)
