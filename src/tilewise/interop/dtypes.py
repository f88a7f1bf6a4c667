"""Element types: NumPy's dtype to a name and back, and the type in which two are multiplied."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tilewise.errors import ArgumentError
from tilewise.problem import COMPLEX, FLOAT8, INTEGERS

__all__ = ["element_type", "numpy_dtype", "result_type"]

_DTYPES: dict[str, np.dtype[Any]] = {}  # filled as names are met
_BUILTIN = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 float32 float64 longdouble complex64 complex128 clongdouble"
)
_NAMES: dict[np.dtype[Any], str] = {np.dtype(name): np.dtype(name).name for name in _BUILTIN.split()}

# The floating-point types that kernels multiply: bits of the significand, and the largest exponent.
_FLOATS = {"bfloat16": (8, 127), "float16": (11, 15), "float32": (24, 127), "float64": (53, 1023)}
# Integers: bits of the magnitude. From 32 bits on the smallest type that NumPy takes is float64.
_INTEGERS = {
    "bool": 1,
    "int8": 7,
    "uint8": 8,
    "int16": 15,
    "uint16": 16,
    "int32": 31,
    "uint32": 32,
    "int64": 63,
    "uint64": 64,
}
_ORDER = ("bfloat16", "float16", "float32", "float64")  # the narrowest first


def element_type(argument: str, dtype: np.dtype[Any]) -> str:
    """The name of a NumPy dtype; refuses what is no number in the machine's byte order."""
    name = _NAMES.get(dtype)
    if name is not None:
        return name
    if dtype.hasobject or not (dtype.kind in "biufc" or dtype.type.__module__ == "ml_dtypes"):
        fix = f"convert it: {argument}.astype('float64')" if dtype.kind == "O" else "multiply numbers"
        raise ArgumentError(argument, "must have numbers as elements", str(dtype), fix)
    if not dtype.isnative:
        fix = f"convert it: {argument}.astype({dtype.name!r})"
        raise ArgumentError(argument, "must be in the machine's byte order", dtype.str, fix)
    return _NAMES.setdefault(dtype, dtype.name)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype, or ml_dtypes', of an element type."""
    found = _DTYPES.get(name)
    if found is None:
        narrow = getattr(importlib.import_module("ml_dtypes"), name, None)
        found = _DTYPES[name] = np.dtype(narrow if narrow is not None else name)
    return found


def result_type(a: str, b: str, *, exact: bool = False, arguments: tuple[str, str] = ("a", "b")) -> str:
    """The type to multiply ``a`` and ``b`` in: the narrowest that holds every value of both.

    It is NumPy's rule, to which bfloat16 is added: float16 with bfloat16 gives float32. A 64-bit integer
    with a floating-point type gives float64, as in NumPy, which rounds integers beyond 2^53; ``exact``
    refuses that. Integers that int8, int32 or int64 hold are multiplied as such. A complex type has parts of the type
    that goes for the parts of both. Refused are other integers with integers, and types that have no rule.
    """
    if a == b and (a in _FLOATS or a in INTEGERS or a in FLOAT8 or a in COMPLEX):
        return a
    if a in COMPLEX or b in COMPLEX:
        parts = result_type(COMPLEX.get(a, a), COMPLEX.get(b, b), exact=exact, arguments=arguments)
        return "complex128" if parts == "float64" else "complex64"
    for argument, dtype in zip(arguments, (a, b), strict=True):
        _check_multiplied(argument, dtype)
    if a in _INTEGERS and b in _INTEGERS:
        wide = max(_INTEGERS[a], _INTEGERS[b])
        if {a, b} & {"bool", "uint32", "uint64"}:
            which, fix = " and ".join(arguments), "convert both: .astype('int64') is exact modulo 2^64"
            rule = "must be integers that int8, int32 or int64 hold, if both are integers"
            raise ArgumentError(which, rule, f"{a} and {b}", fix)
        return "int64" if wide > _INTEGERS["int32"] else "int32"
    if exact:
        for argument, dtype in zip(arguments, (a, b), strict=True):
            if _INTEGERS.get(dtype, 0) > _FLOATS["float64"][0]:
                fix = "convert it first; float64 is exact up to 2^53"
                raise ArgumentError(argument, "must have a type that a floating-point type holds", dtype, fix)
    return next(name for name in _ORDER if _holds(name, a) and _holds(name, b))


def _check_multiplied(argument: str, dtype: str) -> None:
    if dtype in _FLOATS or dtype in _INTEGERS:
        return
    if dtype.startswith("complex"):
        rule, fix = (
            f"must have a type of {', '.join(COMPLEX)}, if it is complex",
            f"convert it: {argument}.astype('complex128')",
        )
    elif dtype.startswith("float8"):
        rule = f"must have a type of {', '.join(_ORDER)}, or both of {' or '.join(FLOAT8)}"
        fix = "float16 holds every value of it"
    else:
        rule, fix = f"must have a type of {', '.join(_ORDER)}", "convert it: float64 is the widest"
    raise ArgumentError(argument, rule, dtype, fix)


def _holds(name: str, other: str) -> bool:
    """Whether the type ``name`` is wide enough for ``other``, by NumPy's rule."""
    bits, exponent = _FLOATS[name]
    if other in _FLOATS:
        other_bits, other_exponent = _FLOATS[other]
        return bits >= other_bits and exponent >= other_exponent
    return name == "float64" or bits >= _INTEGERS[other]
