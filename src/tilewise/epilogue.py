"""tw.epilogue: what happens to each sum before it is rounded, as a call gives it: an expression, arrays and numbers.

The usual ones, bias, activation, residual, alpha and beta, are written as an expression too. What a kernel is compiled
for is the expression and how the arrays lie; numbers and addresses come with the call.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np

from tilewise import interop
from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.expression import ACTIVATIONS, SUM, EpilogueCall, Expression, parse
from tilewise.interop import HOST, View
from tilewise.problem import (
    COMPLEX,
    EIGHT_BITS,
    INTEGERS,
    SCALED_TERMS,
    Epilogue,
    EpilogueArray,
    finished_type,
    multiplied_type,
    sum_type,
)

__all__ = [
    "ARRAY_TYPES",
    "PLAIN",
    "EpilogueCall",
    "Fused",
    "bits_of",
    "describe_dense",
    "epilogue",
    "express",
    "fit",
    "join_epilogue",
    "refuse_scales",
    "scales_form",
    "sums_of",
    "view_arrays",
]

ARRAY_TYPES = {
    "float32": ("float16", "bfloat16", "float32"),
    "float64": ("float32", "float64"),
    "complex64": ("complex64",),
    "complex128": ("complex64", "complex128"),
}
"""What kernels read of an epilogue's arrays, by the type of the sums."""


class Fused(NamedTuple):
    """An epilogue whose arrays have been looked at."""

    expression: str = SUM
    names: tuple[str, ...] = ()  # of the arrays
    views: tuple[View, ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()
    kept: tuple[str, ...] = ()  # arrays that are written, each element with that of the result
    column_sums: tuple[str, ...] = ()  # arrays of the sums of columns, with one row
    row_sums: tuple[str, ...] = ()  # with one column
    scales: tuple[str, str] = ("", "")  # arrays of the scales of A's terms, and of B's

    @property
    def is_plain(self) -> bool:
        """Whether nothing happens to the sums."""
        return self.expression == SUM

    @property
    def form(self) -> Epilogue:
        """The epilogue of no arrays."""
        return Epilogue(self.expression, (), tuple(name for name, _ in self.numbers))

    @property
    def written(self) -> tuple[str, ...]:
        """All arrays that are written."""
        return self.kept + self.summed

    @property
    def summed(self) -> tuple[str, ...]:
        """The arrays of the sums of columns and rows."""
        return self.column_sums + self.row_sums

    @property
    def value_array(self) -> str | None:
        """The array that the value of the whole expression is kept in; None if there is none."""
        return parse(self.expression).value_array

    @property
    def arrays(self) -> dict[str, View]:
        """The views by name."""
        return dict(zip(self.names, self.views, strict=True))


PLAIN = Fused()


def epilogue(expression: str, **operands: Any) -> EpilogueCall:
    """What shall happen to each sum of a product before it is rounded, in the same launch.

    ``expression`` is arithmetic over ``acc``, the sum, and names that ``operands`` give: numbers, or arrays that
    broadcast to the result. Known are + - * /, whole powers, comparisons, ``x if condition else y``, and relu, gelu,
    gelu_tanh, silu, tanh, sigmoid, each also as derivative (relu_grad …), abs, exp, log, sqrt, rsqrt, erf, min, max,
    clamp(x, least, most), where(condition, x, y). ``keep(name, x)`` is x and stores it in the array of that name, which
    may be read too: what it held before. ``column_sums(name, x)`` is x and adds it up over the rows of the result, into
    an array with an element for each column (of each matrix of a stack, or of all of them); ``row_sums(name, x)`` adds
    it up over the columns. ``scaled(acc, s, t)`` in the place of ``acc``, in products of float8, is the sum of terms
    that arrays of scales have multiplied, one for each 128 along k: what :func:`tilewise.matmul` makes of ``scale_a``
    and ``scale_b`` that differ along k.

    >>> import numpy as np, tilewise as tw
    >>> a, r = np.ones((2, 3), "float32"), np.full((2, 2), 0.5, "float32")
    >>> tw.matmul(a, a.T, epilogue=tw.epilogue("max(acc * s, 0) + r", s=2.0, r=r))[0, 0]
    np.float32(6.5)
    """
    if not isinstance(expression, str):
        raise ArgumentError("expression", "must be a string", type(expression).__name__)
    parsed = parse(expression)
    used = parsed.given
    for name in used:
        if name not in operands:
            raise ArgumentError(name, f"must be given: {expression!r} has it", fix=f"epilogue(…, {name}=…)")
    for name in operands:
        if name not in used:
            raise ArgumentError(name, "must be a name in the expression", expression, "leave it out")
    for name, value in operands.items():
        if isinstance(value, numbers.Real) and name in parsed.written:
            does = "keeps values in it" if name in parsed.kept else "adds up into it"
            raise ArgumentError(name, f"must be an array: the expression {does}", value)
        if isinstance(value, numbers.Real) and name in parsed.scales:
            raise ArgumentError(name, "must be an array: it has scales of terms", value)
    return EpilogueCall(parsed, {name: operands[name] for name in used})


def express(
    bias: Any, activation: str | None, residual: Any, alpha: float, beta: float | None, c: Any
) -> EpilogueCall | None:
    """The usual epilogue, activation(alpha·sum + beta·c + bias) + residual; None if nothing is to be done."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
            rule = "must be a real number" if isinstance(value, complex) else "must be a number"
            fix = (
                f"multiply {'an operand' if name == 'alpha' else 'c'} by it"
                if hasattr(value, "shape")
                else ""
            )
            raise ArgumentError(name, rule, type(value).__name__, fix)
    if c is None and beta:
        raise ArgumentError("c", "must be given with beta", fix="c is the matrix that beta multiplies")
    if activation is not None and activation not in ACTIVATIONS:
        raise UnknownNameError("activation", activation, ACTIVATIONS)
    given: dict[str, Any] = {}
    text = SUM
    if alpha != 1:
        text, given["alpha"] = f"alpha * {SUM}", alpha
    if c is not None and beta != 0:
        scaled = "c" if beta is None or beta == 1 else "beta * c"
        text, given["c"] = f"{text} + {scaled}", c
        if scaled != "c":
            given["beta"] = beta
    if bias is not None:
        text, given["bias"] = f"{text} + bias", bias
    if activation is not None:
        text = f"{activation}({text})"
    if residual is not None:
        text, given["residual"] = f"{text} + residual", residual
    return epilogue(text, **given) if text != SUM else None


def join_epilogue(
    bias: Any,
    activation: str | None,
    residual: Any,
    alpha: float,
    beta: float | None,
    c: Any,
    call: EpilogueCall | None,
) -> EpilogueCall | None:
    """What shall happen to the sums: the usual epilogue, or any other, of which there may be one."""
    usual = express(bias, activation, residual, alpha, beta, c)
    if usual is not None and call is not None:
        raise ArgumentError("epilogue", "must stand alone", fix="write bias and the rest into its expression")
    return call if usual is None else usual


def view_arrays(call: EpilogueCall | None) -> Fused:
    """The epilogue of a call with views of its arrays."""
    if call is None:
        return PLAIN
    if not isinstance(call, EpilogueCall):
        fix = "tw.epilogue('max(acc, 0)') makes one"
        raise ArgumentError("epilogue", "must be what tw.epilogue gives", type(call).__name__, fix)
    parsed = call.expression
    values = {name: float(value) for name, value in call.given.items() if isinstance(value, numbers.Real)}
    views = {
        name: _view_written(name, value, parsed) if name in parsed.written else _view(name, value)
        for name, value in call.given.items()
        if name not in values
    }
    special = parsed.kept, parsed.column_sums, parsed.row_sums, parsed.scales
    return Fused(parsed.text, tuple(views), tuple(views.values()), tuple(values.items()), *special)


def _view(name: str, value: Any) -> View:
    if isinstance(value, View):
        return value
    return interop.view(name, interop.as_array(name, value))


def _view_written(name: str, value: Any, parsed: Expression) -> View:
    """The view of an array that is written; one of sums has an axis more, of which it is one."""
    view = value if isinstance(value, View) else interop.view_output(name, value)
    if name in parsed.kept:
        return view
    if not view.shape:
        raise ArgumentError(name, "must have an axis at least, of the sums", "a scalar")
    at = len(view.shape) - (name in parsed.column_sums)
    shape, strides = ((*one[:at], size, *one[at:]) for one, size in ((view.shape, 1), (view.strides, 0)))
    return view._replace(shape=shape, strides=strides)


def fit(fused: Fused, shape: tuple[int, ...], dtype: str, types: tuple[str, str]) -> Fused:
    """The epilogue of products in a type, of operands of two, with arrays that kernels read; refuses those that do not
    broadcast to the result, or lose bits. Of scales of terms the types alone are looked at."""
    sums = sums_of(dtype, next(iter((*fused.arrays, *(name for name, _ in fused.numbers))), "an epilogue"))
    for name, operand in zip(fused.scales, types, strict=True):
        if name:
            _check_scales(name, fused.arrays[name], operand)
            if sums != "float32":
                rule = f"must be the same along k, for sums in {sums}"
                raise ArgumentError(name, rule, "scales that differ")
    if sums in COMPLEX and not parse(fused.expression).is_linear([name for name, _ in fused.numbers]):
        rule = "must add arrays and multiply by real numbers alone, of complex numbers"
        raise ArgumentError("epilogue", rule, fused.expression, "do it to the result")
    for name in fused.summed:
        _check_sums(name, fused, shape)
    views = tuple(
        view if name in fused.scales else _fit_array(name, view, fused, shape, sums)
        for name, view in fused.arrays.items()
    )
    return fused._replace(views=views)


def _check_scales(name: str, view: View, dtype: str) -> None:
    """Refuse scales of terms that are not float32, or of an operand of more than 8 bits."""
    if dtype not in EIGHT_BITS:
        rule = f"must be the same along k, for an operand of {dtype}"
        fix = "scales that differ along k are for operands of 8 bits: tw.quantize(…, block=128)"
        raise ArgumentError(name, rule, f"shape {view.shape}", fix)
    if view.dtype != "float32":
        raise ArgumentError(
            name,
            "must have the type float32",
            view.dtype,
            f"convert it: {view.library.convert(name, 'float32')}",
        )


def refuse_scales(fused: Fused, of: str) -> None:
    """Refuse scales of terms where no kernel has them."""
    for name in filter(None, fused.scales):
        raise ArgumentError(name, f"must be the same along k, for {of}", f"shape {fused.arrays[name].shape}")


def _lines_sharing(
    name: str, operand: Literal["a", "b"], shape: tuple[int, ...], lines: int, k: int, may_repeat: bool
) -> int:
    """How many rows of A, or columns of B, have scales of terms in common, of which an array has this shape.

    ``lines`` is how many there are of them. Where the array has scales of one row or column alone, all have those;
    if it ``may_repeat``, so have all k.
    """
    across, along = (1, 1, *shape)[-2:] if operand == "a" else (1, 1, *shape)[:-3:-1]
    runs, tiles = -(-k // SCALED_TERMS), -(-lines // SCALED_TERMS)
    if along not in (runs, 1 if may_repeat else runs) or across not in (1, lines, tiles):
        # What is given as an argument and is the same along k never comes here: it multiplies sums.
        may_be_same = may_repeat or name in ("scale_a", "scale_b")
        fitting = dict.fromkeys((*[(lines, 1)] * may_be_same, (lines, runs), (tiles, runs)))
        shapes = " or ".join(str(one if operand == "a" else one[::-1]) for one in fitting)
        rule = f"must have one for each {SCALED_TERMS} of k"
        if may_be_same:
            rule = f"must be the same along k, or have one for each {SCALED_TERMS} of it"
        raise ArgumentError(name, f"{rule}: the shape {shapes}", shape)
    return 1 if across == lines else SCALED_TERMS


def _check_sums(name: str, fused: Fused, shape: tuple[int, ...]) -> None:
    """Refuse an array of sums of another shape than the result has columns, or rows."""
    if len(shape) < 2:
        raise ArgumentError(name, "must be of a result with rows and columns", f"shape {shape}")
    found = fused.arrays[name].shape
    of_columns = name in fused.column_sums
    axis = -2 if of_columns else -1
    fitting = [tuple(size for i, size in enumerate(shape, -len(shape)) if i != axis)]
    if of_columns and len(shape) > 2:
        fitting.append(shape[-1:])
    given = tuple(size for i, size in enumerate(found, -len(found)) if i != axis)
    if given not in fitting:
        rule = f"must have the shape {' or '.join(map(str, fitting))}"
        raise ArgumentError(
            name, rule, given, "a sum for each column" if of_columns else "a sum for each row"
        )


def _fit_array(name: str, view: View, fused: Fused, shape: tuple[int, ...], sums: str) -> View:
    if name in fused.kept and view.shape != shape:
        raise ArgumentError(name, f"must have the result's shape {shape}", view.shape)
    behind = shape[max(len(shape) - len(view.shape), 0) :]
    if len(view.shape) > len(shape) or any(
        size not in (1, wanted) for size, wanted in zip(view.shape, behind, strict=True)
    ):
        raise ArgumentError(name, f"must broadcast to the result's shape {shape}", view.shape)
    only_kept = name in fused.kept and name not in parse(fused.expression).names
    if view.dtype in ARRAY_TYPES[sums] or (only_kept and sums == "float32" and view.dtype in EIGHT_BITS):
        return _along_columns(name, view, shape) if sums in COMPLEX and view.space == HOST else view
    fix = f"convert it: {view.library.convert(name, sums)}"
    if (
        name in fused.written
        or view.space != HOST
        or interop.result_type(sums, view.dtype, arguments=("a", name)) != sums
    ):
        raise ArgumentError(name, f"must have a type of {', '.join(ARRAY_TYPES[sums])}", view.dtype, fix)
    made = interop.view(name, interop.numpy_of(view).astype(interop.numpy_dtype(sums)))
    return _along_columns(name, made, shape) if sums in COMPLEX else made


def _along_columns(name: str, view: View, shape: tuple[int, ...]) -> View:
    """A complex array with an element for each column of the result, side by side, as kernels read it; maybe a copy."""
    if view.shape[-1:] == shape[-1:] and (view.strides[-1:] == (1,) or shape[-1:] == (1,)):
        return view
    wide = np.broadcast_to(interop.numpy_of(view), (*view.shape[:-1], *shape[-1:]))
    return interop.view(name, np.ascontiguousarray(wide))


def sums_of(dtype: str, given: str = "an epilogue") -> str:
    """The type that an epilogue computes in, of products of a type. Of complex numbers it is their own.

    Integers have none: what is ``given`` of it is refused by name.
    """
    if dtype in COMPLEX:
        return dtype
    if dtype in INTEGERS and dtype != "int8":
        raise ArgumentError(given, "must be left out for integers", dtype, "do it to the result")
    return finished_type(sum_type(dtype))


def bits_of(values: Iterable[tuple[str, float]], sums: str) -> dict[str, int]:
    """The numbers of an epilogue in the type of the sums, as the bits that fill a slot."""
    wide = interop.numpy_dtype(sums)
    with np.errstate(over="ignore"):
        bits = {name: wide.type(value).tobytes() for name, value in values}
    return {f"epilogue.{name}": int.from_bytes(one, "little") for name, one in bits.items()}


def describe_dense(
    call: EpilogueCall | None, shape: tuple[int, ...], k: int, types: tuple[str, str], grouped: bool = False
) -> Epilogue:
    """The epilogue of a result of this shape, for a plan made without arrays: they count as lying densely.

    ``k`` is how many terms its sums have; ``grouped`` says that its rows are in groups.
    """
    fused = view_arrays(call)
    if fused.is_plain:
        return fused.form
    fused = fit(fused, shape, multiplied_type(*types), types)
    arrays = []
    for name, view in fused.arrays.items():
        if name in fused.scales:
            m, n = (1, 1, *shape)[-2:]
            arrays.append(scales_form(fused, name, view, (m, n, k), grouped))
            continue
        rows, columns = (1, 1, *view.shape)[-2:]
        arrays.append(EpilogueArray(name, view.dtype, rows > 1, columns > 1))
    return Epilogue(fused.expression, tuple(arrays), tuple(name for name, _ in fused.numbers))


def scales_form(
    fused: Fused, name: str, scales: View, sizes: tuple[int, int, int], grouped: bool = False
) -> EpilogueArray:
    """An array of the scales of terms, as a problem of these sizes has it.

    Those of B may be the same along k where they differ between groups of rows.
    """
    operand: Literal["a", "b"] = "a" if name == fused.scales[0] else "b"
    may_repeat = grouped and operand == "b"
    lines = _lines_sharing(name, operand, scales.shape, sizes[operand == "b"], sizes[2], may_repeat)
    return EpilogueArray(name, scales.dtype, scales=operand, lines=lines)
