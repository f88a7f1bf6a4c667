"""Values as text that is the same everywhere: of arrays how they lie and what they hold, of objects their fields."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulated import EmulatedArray
from tilewise.errors import TilewiseError
from tilewise.interop import View

__all__ = ["show", "show_array"]

_FEW = 16  # elements of an array that are shown
_WORDS = re.compile(
    r"(cannot be read: |must fit the shape [^;]*; |convertible to an array: ).*"
)  # of another library, or of Python, which change with it
_NUMPY = re.compile(r"np\.\w+\(([^()]*)\)")  # NumPy's numbers, which its versions show differently
_NVRTC = re.compile(r"NVRTC [0-9.]+ compiles for \w+ to \w+")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def show(value: Any) -> str:
    """A value in one line, unless it is a text of several."""
    match value:
        case str():
            return value.replace("\n", "⏎").replace("\0", "␀").replace("\r", "␍")
        case bool() | None | int() | enum.Enum():
            return str(value)
        case float() | complex() | np.floating() | np.complexfloating():
            return _number(value)
        case np.generic():
            return f"{value.dtype} {value.item()}"
        case bytes() | bytearray():
            return _bytes(bytes(value))
        case np.ndarray():
            return show_array(value)
        case EmulatedArray():
            return f"emulated {show_array(value.numpy())}{f' strides {value.strides}' if value.size else ''}"
        case View():
            by = value.strides if 0 not in value.shape else "any"  # which differ by NumPy's version
            shown = f"{value.dtype} {value.shape} by {by} in {value.space} of {value.library.name}"
            return f"{shown}{' read-only' * value.read_only}{' with parts' * (value.parts is not None)}"
        case TilewiseError():
            said = _WORDS.sub(r"\1…", f"{type(value).__name__}: {value}").replace("\n", "⏎")
            return _NVRTC.sub("the compiler", _NUMPY.sub(r"\1", said))
        case np.dtype() | Path():
            return str(value)
        case type() | FunctionType() | MethodType():
            return f"<{value.__qualname__}>"
    return _compound(value)


def _compound(value: Any) -> str:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _fields(type(value).__name__, {name: getattr(value, name) for name in value._fields})
    if dataclasses.is_dataclass(value):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.repr}
        return _fields(type(value).__name__, fields)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{show(key)}: {show(one)}" for key, one in value.items()) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(show, value))) + "}"
    if isinstance(value, list | tuple | range):
        left, right = "()" if isinstance(value, tuple) else "[]"
        return f"{left}{', '.join(map(show, value))}{right}"
    if hasattr(value, "__next__"):
        return show(list(value))
    return _ADDRESS.sub("", repr(value)).replace("\n", "⏎")


def _fields(name: str, fields: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={show(one)}' for key, one in fields.items())})"


def _number(value: Any) -> str:
    """Six digits: of the last ones of sums in floating point the machine decides."""
    return (
        f"{complex(value):.6g}" if isinstance(value, complex | np.complexfloating) else f"{float(value):.6g}"
    )


def _bytes(value: bytes) -> str:
    if len(value) <= _FEW:
        return f"b'{value.hex()}'"
    return f"{len(value)} bytes {hashlib.sha256(value).hexdigest()[:8]}"


def show_array(array: npt.NDArray[Any]) -> str:
    """Type, shape, strides unless they are dense, and what is in it."""
    dense = array.flags.c_contiguous or not array.size
    how = f"{array.dtype} {array.shape}{'' if dense else f' by {array.strides}'}"
    if array.size <= _FEW and array.dtype.kind in "biufc":
        return f"{how} {', '.join(map(show, array.reshape(-1).tolist()))}"
    return f"{how} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:8]}"
