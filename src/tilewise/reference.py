"""The yardstick of every result: products in float64, and a comparison that NaN fails.

An element passes only when its error is *less than* its bound, so a NaN, an infinity where the reference
has none, or an element that was never written (outputs are filled with NaN beforehand) cannot pass.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.error_bounds import Bounded, BoundedArithmetic
from tilewise.errors import ArgumentError
from tilewise.expression import SUM, EpilogueCall
from tilewise.problem import FLOAT8, multiplied_type, resolve_arithmetic
from tilewise.scales import spread_scale

__all__ = ["Comparison", "compare", "multiply", "poisoned"]

# Unit roundoff of each type that sums may be kept in.
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_LEAST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
# Of what results alone may be: unit roundoff, half of the least step, and the least and largest number.
_EIGHT_BITS = {
    "float8_e4m3fn": (2.0**-4, 2.0**-10, -448.0, 448.0),
    "float8_e5m2": (2.0**-3, 2.0**-17, -57344.0, 57344.0),
    "int8": (0.0, 0.5, -128.0, 127.0),
}
_LARGEST_FLOAT16 = 65504.0
_TF32_ROUNDOFF, _TF32_LEAST = 2.0**-11, 2.0**-137
_DEVIATIONS = 7.0  # of a sum's rounding errors taken as random: see _growth
_LONG = 64  # terms from which they are
_SHORT = ("float16", "bfloat16")
_WIDE = {"float64", "complex128"}
# Of 8-bit floating-point numbers: terms that an instruction of a tensor core adds, and a step of our kernel; the last
# place that is kept, of the largest.
_INSTRUCTION_TERMS, _STEP_TERMS, _PLACES = 32, 128, 2.0**-13


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a result stands against the reference."""

    ok: bool
    worst: float  # the largest error as a share of its bound; infinite where a special value differs
    where: tuple[int, ...] | None  # the element it is at
    got: float | None
    expected: float | None
    failures: int
    elements: int

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.ok:
            return f"all {self.elements:,} elements within the bound; the worst at {self.worst:.3f} of it"
        return (
            f"{self.failures:,} of {self.elements:,} elements outside the bound; the worst at {self.where}: "
            f"{self.got!r}, not {self.expected!r}"
        )


def multiply(a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[Any]:
    """A·B in float64, whatever the operands' type; of complex numbers in complex128."""
    left, right = np.asarray(a), np.asarray(b)
    wide = np.complex128 if "c" in (left.dtype.kind, right.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        product: npt.NDArray[Any] = left.astype(wide) @ right.astype(wide)
    return product


def poisoned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An output to be written: every element NaN (or the least integer), so that a missed one shows."""
    kind = np.dtype(dtype)
    value: Any = np.iinfo(kind).min if kind.kind in "iu" else np.nan
    value = complex(np.nan, np.nan) if kind.kind == "c" else value
    return np.full(shape, value, kind)


def compare(
    result: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    accumulate: str | None = None,
    terms: int = 0,
    epilogue: EpilogueCall | None = None,
    kept: str | None = None,
    arithmetic: str | None = None,
) -> Comparison:
    """Compare ``result`` with A·B, element by element.

    The bound of an element is what the sums' type and the length of the sum allow of rounding, times the
    sum of |a|·|b|, plus one rounding to the result's type. Long sums kept in float16 or bfloat16 lose so
    much that this would let a wrong result pass: for them |a|·|b| gives way to how large the partial sums
    of operands with random signs get. ``terms`` adds to the length of the sum, for
    kernels that add partial sums. ``epilogue`` is what :func:`tilewise.epilogue` gave for what happened to
    the sums, with host arrays; those that are kept and read hold what they held before. ``kept`` names one of its
    arrays: ``result`` is compared with what is kept there, or with the sums of columns or rows. ``arithmetic`` is what
    operands were multiplied in, if not in their own: "tf32" rounds each float32 by up to 2⁻¹¹ of itself; "f16" keeps
    sums of float16 in float16, and everything else in ``accumulate``: if that is not said, in float64 where operands
    and result have 64 bits, else in float32. Where sums in float16 may have got beyond the largest float16, any number
    passes, or the infinity of the right sign. Integers must be equal, modulo 2ⁿ of the result's type. ``a`` and ``b``
    may be what :func:`tilewise.quantize` gives. Of complex numbers each part has its bound and counts by itself. Of
    float8 operands it allows for the few places that Hopper's tensor cores keep of sums.
    """
    (left, left_type), (right, right_type) = _numbers("a", a), _numbers("b", b)
    got = np.asarray(result)
    if accumulate is None:
        accumulate = "float64" if got.dtype.name in _WIDE and {left_type, right_type} & _WIDE else "float32"
    if {left.dtype.kind, right.dtype.kind, got.dtype.kind} <= {"i", "u"} and epilogue is None:
        return _compare_integers(got, left, right)
    if "c" in (left.dtype.kind, right.dtype.kind):
        how = {"accumulate": accumulate, "terms": terms, "kept": kept, "arithmetic": arithmetic}
        return _compare_complex(got, left, right, epilogue, **how)
    expected = multiply(left, right)
    if kept is not None and (epilogue is None or kept not in epilogue.expression.written):
        raise ArgumentError("kept", "must be a name that the epilogue keeps values in, or sums", kept)
    if accumulate not in _ROUNDOFF:
        raise ArgumentError("accumulate", f"must be one of {', '.join(_ROUNDOFF)}", accumulate)
    with np.errstate(all="ignore"):
        multiplied = resolve_arithmetic(arithmetic, multiplied_type(left_type, right_type))
        types = (left_type, right_type)
        errors = _bound_sums(left, right, types, expected, accumulate, multiplied, terms)
        unit, least = _ROUNDOFF[accumulate], _LEAST[accumulate]
        if epilogue is not None:
            expected, errors = _finish(epilogue, expected, errors, BoundedArithmetic(unit, least), kept)
            if kept in epilogue.expression.summed:
                axes = _summed_axes(kept in epilogue.expression.column_sums, got.ndim, expected.ndim)
                expected, errors = _add_up(expected, errors, axes, (unit, least))
        if got.shape != expected.shape:
            raise ArgumentError("result", f"must have the shape {expected.shape}", got.shape)
        name = got.dtype.name
        if name in _EIGHT_BITS:
            return _judge_saturated(got.astype(np.float64), expected, errors, name)
        bound = _bound(expected, errors, _ROUNDOFF.get(name, unit), _LEAST.get(name, least))
        return _judge(got.astype(np.float64), expected, bound, _largest(got.dtype))


def _bound_sums(
    left: npt.NDArray[Any],
    right: npt.NDArray[Any],
    types: tuple[str, str],
    expected: npt.NDArray[np.float64],
    accumulate: str,
    multiplied: str | None,
    terms: int,
) -> npt.NDArray[np.float64]:
    """By how much each sum of products may be off; ``types`` are those of the operands before they were scaled."""
    sizes = np.abs(left.astype(np.float64)) @ np.abs(right.astype(np.float64))
    summed = "float16" if multiplied == "f16" else accumulate
    scaled = (left.dtype.name != types[0]) + (right.dtype.name != types[1])
    count = left.shape[-1] + terms + 2 * scaled
    if summed in _SHORT and count > _LONG:
        sizes = np.minimum(sizes, _walk(left, right, expected))
    errors = _growth(count + 1, _ROUNDOFF[summed]) * sizes + (count + 1) * _LEAST[summed]
    if multiplied == "tf32":
        errors = errors + _rounded_to_tf32(left, right, sizes) * (
            1 + _growth(count + 1, _ROUNDOFF[accumulate])
        )
    if {*types} <= {*FLOAT8}:
        errors = errors + _cut_off(left.astype(np.float64), right.astype(np.float64))
    if multiplied == "f16":
        errors = np.where(sizes + errors < _LARGEST_FLOAT16, errors, np.inf)
    return np.asarray(errors)


def _numbers(argument: str, operand: Any) -> tuple[npt.NDArray[Any], str]:
    """An operand as an array, and its type; of what was quantised the numbers that it stands for, in float64."""
    found = getattr(operand, "scale", None)
    if found is None:
        array = np.asarray(operand)
        return array, array.dtype.name
    values, scale = np.asarray(operand.values), np.asarray(found)
    with np.errstate(all="ignore"):
        return values * spread_scale(argument, scale, values.shape), values.dtype.name


def _compare_integers(got: npt.NDArray[Any], left: npt.NDArray[Any], right: npt.NDArray[Any]) -> Comparison:
    """Whether products of integers are what they are modulo 2ⁿ; NumPy's int64 wraps around as well."""
    expected = (left.astype(np.int64) @ right.astype(np.int64)).astype(got.dtype)
    if got.shape != expected.shape:
        raise ArgumentError("result", f"must have the shape {expected.shape}", got.shape)
    different = np.asarray(got != expected, np.float64)
    return _judge(different, np.zeros(expected.shape), np.full(expected.shape, 0.5), math.inf)


def _compare_complex(
    got: npt.NDArray[Any],
    left: npt.NDArray[Any],
    right: npt.NDArray[Any],
    epilogue: EpilogueCall | None,
    **how: Any,
) -> Comparison:
    """The same for complex numbers, by their parts: rows of A with real and imaginary parts in turn, times four real
    numbers for each of B."""
    if got.dtype.kind != "c":
        raise ArgumentError("result", "must have complex elements, as a or b has", got.dtype.name)
    if right.ndim == 1:
        right, got = right[:, None], got[..., None]
    # NOTE: 1j * right has 0 times infinity.
    parts, turned = _parts_of(right), _in_turn(-right.imag, right.real)
    rows = np.stack([parts, turned], axis=-2).reshape(*right.shape[:-2], 2 * right.shape[-2], parts.shape[-1])
    if epilogue is not None:
        arrays = {name: one for name, one in epilogue.given.items() if not isinstance(one, numbers.Real)}
        epilogue = epilogue.replace(
            {name: _parts_of(np.broadcast_to(one, got.shape)) for name, one in arrays.items()}
        )
    found = compare(_parts_of(got), _parts_of(left), rows, epilogue=epilogue, **how)
    if found.where is None:
        return found
    return replace(found, where=(*found.where[:-1], found.where[-1] // 2))


def _parts_of(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Real and imaginary parts in turn along the last axis."""
    return _in_turn(values.real, values.imag)


def _in_turn(real: npt.NDArray[Any], imaginary: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Elements of both in turn along the last axis, in float32 or, if that does not hold them, float64."""
    part = np.result_type(real, np.float32)
    return np.stack([real, imaginary], axis=-1).astype(part).reshape(*real.shape[:-1], 2 * real.shape[-1])


def _rounded_to_tf32(left: npt.NDArray[Any], right: npt.NDArray[Any], sizes: npt.NDArray[np.float64]) -> Any:
    """What rounding the operands to the nearest number of tf32 can make of the sum of |a|·|b|.

    Each becomes x·(1 + d) with |d| up to 2⁻¹¹, or, below the least normal number, x + d with |d| up to 2⁻¹³⁷.
    """
    share, least = _TF32_ROUNDOFF, _TF32_LEAST
    rows = np.abs(left.astype(np.float64)).sum(-1)[..., :, None]
    columns = np.abs(right.astype(np.float64)).sum(-2)[..., None, :]
    return (2 * share + share**2) * sizes + (1 + share) * least * (rows + columns) + left.shape[-1] * least**2


def _cut_off(left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> Any:
    """What tensor cores may cut off of products of 8-bit floating-point numbers.

    An instruction brings 32 products and the sum before to one exponent and drops what lies 13 places below the largest
    of them, and as much of the result; every four instructions the sum begins anew. Each term loses half a unit towards
    zero on average: what that comes to where most have one sign, and so many standard deviations of the rest.
    """
    lost: Any = 0.0
    variance: Any = 0.0
    for step in range(0, left.shape[-1], _STEP_TERMS):
        total: Any = 0.0
        for k in range(step, min(step + _STEP_TERMS, left.shape[-1]), _INSTRUCTION_TERMS):
            a, b = left[..., k : k + _INSTRUCTION_TERMS], right[..., k : k + _INSTRUCTION_TERMS, :]
            largest = np.abs(a).max(-1)[..., :, None] * np.abs(b).max(-2)[..., None, :]
            before, total = total, total + a @ b
            unit = _PLACES * np.maximum(largest, np.maximum(np.abs(before), np.abs(total)))
            lean = np.abs(np.sign(a) @ np.sign(b)) + 1
            lost = lost + unit * (lean / 2 + 1)
            variance = variance + unit**2 * (_INSTRUCTION_TERMS + 1) / 12
    return lost + _DEVIATIONS * np.sqrt(variance)


def _walk(left: npt.NDArray[Any], right: npt.NDArray[Any], expected: npt.NDArray[np.float64]) -> Any:
    """How large the partial sums of each element get on their way: a random walk to the result."""
    squares = (left.astype(np.float64) ** 2) @ (right.astype(np.float64) ** 2)
    return np.abs(expected) + 4 * np.sqrt(squares)


def _largest(dtype: np.dtype[Any]) -> float:
    try:
        return float(np.finfo(dtype).max)
    except ValueError:
        import ml_dtypes

        finfo: Any = ml_dtypes.finfo  # it has no types
        return float(finfo(dtype).max)


def _growth(terms: int, unit: float) -> float:
    """The largest relative error of a sum of ``terms`` products, each step rounded.

    The certain bound is n·u/(1 − n·u). For long sums in short types it says nothing; there the errors
    are taken as independent, and seven standard deviations of their random walk stand in.
    """
    if terms > _LONG:
        return _DEVIATIONS * math.sqrt(terms) * unit
    return terms * unit / (1 - terms * unit)


def _finish(
    epilogue: EpilogueCall,
    expected: npt.NDArray[np.float64],
    errors: npt.NDArray[np.float64],
    arithmetic: BoundedArithmetic,
    kept: str | None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What an epilogue makes of sums with these errors, or what it keeps of that."""
    values = {
        name: arithmetic.number(float(value)) if isinstance(value, numbers.Real) else arithmetic.array(value)
        for name, value in epilogue.given.items()
    }
    values[SUM] = Bounded(expected, errors)
    found = epilogue.expression.evaluate(arithmetic, values)
    found = found if kept is None else arithmetic.kept[kept]
    shape = expected.shape
    return np.broadcast_to(found.value, shape), np.broadcast_to(found.error, shape)


def _summed_axes(of_columns: bool, dimensions: int, axes: int) -> tuple[int, ...]:
    """The axes that sums of columns or rows are over: of a stack with one array for all matrices, its own too."""
    if not of_columns:
        return (-1,)
    return tuple(range(axes - 1)) if dimensions == 1 else (-2,)


def _add_up(
    values: npt.NDArray[np.float64],
    errors: npt.NDArray[np.float64],
    axes: tuple[int, ...],
    rounding: tuple[float, float],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The sums of values along axes, in any order, in a type of this unit roundoff and least positive."""
    count = math.prod(values.shape[axis] for axis in axes)
    sizes = (np.abs(values) + errors).sum(axes)
    unit, least = rounding
    return values.sum(axes), errors.sum(axes) + _growth(count + 1, unit) * sizes + (count + 1) * least


def _bound(
    expected: npt.NDArray[np.float64], errors: npt.NDArray[np.float64], unit: float, least: float
) -> npt.NDArray[np.float64]:
    """The error allowed of results, with their rounding to a type."""
    bound: npt.NDArray[np.float64] = errors + least
    if unit:  # NOTE: nothing of an infinite error would be NaN
        bound = bound + unit * (np.abs(expected) + errors)
    return bound * (1 + 1e-9)  # the bound is itself computed in float64


def _judge_saturated(
    got: npt.NDArray[np.float64],
    expected: npt.NDArray[np.float64],
    errors: npt.NDArray[np.float64],
    name: str,
) -> Comparison:
    """How results of 8 bits stand, of which the largest stands for all beyond it; of integers 0 stands for NaN."""
    unit, least, lowest, highest = _EIGHT_BITS[name]
    clipped = np.clip(expected, lowest, highest)
    if name == "int8":
        clipped = np.where(np.isnan(expected), 0.0, clipped)
    special = ~np.isfinite(expected)  # and so are the errors
    return _judge(got, clipped, _bound(clipped, np.where(special, 0.0, errors), unit, least), math.inf)


def _judge(
    got: npt.NDArray[np.float64],
    expected: npt.NDArray[np.float64],
    bound: npt.NDArray[np.float64],
    largest: float,
) -> Comparison:
    share = np.abs(got - expected) / bound
    passed = share < 1
    # What is not finite must be the same: NaN where NaN, infinity of one sign where that infinity. A sum
    # at the edge of the type's range may round to infinity.
    special = ~np.isfinite(expected)
    passed[special] = ((got == expected) | (np.isnan(got) & np.isnan(expected)))[special]
    over = np.isfinite(expected) & (np.abs(expected) + bound >= largest) & (np.sign(got) == np.sign(expected))
    passed |= over & np.isinf(got)
    failures = int(got.size - np.count_nonzero(passed))
    share = np.where(
        passed, np.where(np.isfinite(share), share, 0.0), np.where(np.isfinite(share), share, np.inf)
    )
    if not got.size:
        return Comparison(True, 0.0, None, None, None, 0, 0)
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(share)), got.shape))
    return Comparison(
        not failures,
        float(share[where]),
        where,
        float(got[where]),
        float(expected[where]),
        failures,
        got.size,
    )
