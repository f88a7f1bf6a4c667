"""Parse the text of an ``--arg`` to a kernel's argument: an array, a matrix by value, a number or a null pointer."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilewise.devices import Array, Device
from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.launch import Parameter

__all__ = ["EXAMPLES", "ArgumentMaker", "ParsedArgument", "load_array", "triple"]

EXAMPLES = (
    "such as f32[640,448], s32[64], s32[64]<10, new:f32[64], zeros:f32[64], matrix:f32[640,448], data.npy, 42, 0.5 "
    "or null"
)

_TYPES: Mapping[str, Any] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_ARRAY = re.compile(
    r"(?:(?P<content>new|zeros):)?(?P<type>\w+)\[(?P<shape>[\d, ×x]+)\](?:\s*<\s*(?P<below>\d+))?"
)
_SEPARATOR = re.compile(r"\s*[,x×]\s*")
_MATRIX = "matrix:"
_MATRIX_BYTES = 24  # of a Matrix of tilewise/matrix.cuh: unsigned width, height, pitch; T *elements


@dataclass(slots=True)
class ParsedArgument:
    """An argument from the text of an ``--arg``, its ``word``: ``value`` is what a kernel's call takes.

    ``array`` is the array behind it, if there is one, and ``before`` what it held; for an array of which nothing is
    set yet, ``before`` is None.
    """

    number: int  # from 1, in the order of the command line
    word: str
    value: Any
    array: Array | None = None
    before: npt.NDArray[Any] | None = None

    @property
    def is_new(self) -> bool:
        """Whether its array held no values before the launch."""
        return self.array is not None and self.before is None

    def __str__(self) -> str:
        return f"--arg {self.word!r} (number {self.number})"


class ArgumentMaker:
    """Makes arguments on a device, one ``--arg`` after another; the same seed makes the same numbers."""

    def __init__(self, device: Device, seed: int) -> None:
        self._device, self._random = device, np.random.default_rng(seed)

    def make(self, number: int, word: str, parameter: Parameter) -> ParsedArgument:
        """Return the argument for a parameter of a kernel, from the text of an ``--arg``."""
        if word.startswith(_MATRIX):
            return self._make_matrix(number, word, parameter)
        if found := _ARRAY.fullmatch(word):
            return self._make_array(number, word, found)
        if word.endswith(".npy"):
            return self._place_on_device(number, word, load_array("--arg", word))
        return ParsedArgument(number, word, _number(word))

    def _make_matrix(self, number: int, word: str, parameter: Parameter) -> ParsedArgument:
        """Return a ``Matrix`` by value, as in ``tilewise/matrix.cuh``, over an array of two dimensions."""
        if parameter.size != _MATRIX_BYTES or not parameter.is_struct:
            raise ArgumentError(
                f"--arg {word!r} (number {number})",
                f"must be for a struct of {_MATRIX_BYTES} bytes, as a Matrix of tilewise/matrix.cuh is",
                f"a parameter of type {parameter.type} and {parameter.size} bytes",
            )
        made = self.make(number, word.removeprefix(_MATRIX), parameter)
        if made.array is None or len(made.array.shape) != 2:
            raise ArgumentError("--arg", f"must be {_MATRIX} and an array of two dimensions", word)
        height, width = made.array.shape
        if height * width >= 2**32:
            raise ArgumentError(
                "--arg", "must have less than 2³² elements: a Matrix has 32-bit indices", word
            )
        made.word, made.value = word, struct.pack("<IIIxxxxQ", width, height, width, made.array.ptr)
        return made

    def _make_array(self, number: int, word: str, found: re.Match[str]) -> ParsedArgument:
        name, content, below = found["type"], found["content"], found["below"]
        if name not in _TYPES:
            raise UnknownNameError("--arg", name, _TYPES)
        dtype, sizes = np.dtype(_TYPES[name]), _SEPARATOR.split(found["shape"].strip())
        is_integer = dtype.kind in "iu"
        if not all(size.isdecimal() for size in sizes):
            raise ArgumentError("--arg", f"must be {EXAMPLES}", word)
        if below is not None and (content or not is_integer or not int(below)):
            raise ArgumentError("--arg", "must have a bound above 0, of an array of integers, behind <", word)
        shape = tuple(int(size) for size in sizes)
        try:
            if content == "new":
                array = self._device.empty(shape, dtype)
                return ParsedArgument(number, word, array, array)
            if content == "zeros":
                return self._place_on_device(number, word, np.zeros(shape, dtype))
            if is_integer:
                return self._place_on_device(
                    number, word, self._integers(shape, dtype, int(below) if below else None)
                )
            floats = self._random.standard_normal(math.prod(shape), np.float32)
            return self._place_on_device(number, word, floats.reshape(shape).astype(dtype))
        except (MemoryError, ValueError):  # more than there is, or than an index reaches
            raise ArgumentError("--arg", "must fit into the host's memory", word) from None

    def _integers(self, shape: tuple[int, ...], dtype: Any, below: int | None) -> npt.NDArray[Any]:
        """Return 0, 1, 2, … in random order: mostly different, and each a valid index of an array as long."""
        count = math.prod(shape)
        limit = min(below or count or 1, int(np.iinfo(dtype).max) + 1, max(count, 1))
        return (self._random.permutation(count) % limit).reshape(shape).astype(dtype)

    def _place_on_device(self, number: int, word: str, host: npt.NDArray[Any]) -> ParsedArgument:
        """Copy a host array to the device; one without dimensions is a number or a struct by value."""
        if not host.ndim:
            return ParsedArgument(number, word, host)
        array = self._device.array(np.ascontiguousarray(host))
        return ParsedArgument(number, word, array, array, host)


def triple(argument: str, text: str) -> tuple[int, ...]:
    """Parse ``"11,20"`` or ``"11x20"`` to numbers."""
    words = _SEPARATOR.split(text.strip())
    if not 1 <= len(words) <= 3 or not all(word.isdecimal() and int(word) for word in words):
        raise ArgumentError(argument, "must be one to 3 numbers above 0, such as 11,20", text)
    return tuple(int(word) for word in words)


def _number(word: str) -> int | float | None:
    if word in ("null", "none"):
        return None
    try:
        return int(word, 0)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        raise ArgumentError("--arg", f"must be {EXAMPLES}", word) from None


def load_array(option: str, name: str) -> npt.NDArray[Any]:
    """Load the array of a .npy file, which an option of the command line names."""
    try:
        loaded = np.load(name, allow_pickle=False)
    except OSError as error:
        raise ArgumentError(f"{option} {name!r}", f"cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError):  # NumPy speaks of pickles where a file is something else
        raise ArgumentError(f"{option} {name!r}", "must be a file that np.save wrote, of numbers") from None
    if not isinstance(loaded, np.ndarray):  # a .npz under another name
        raise ArgumentError(f"{option} {name!r}", "must hold one array, as np.save writes it")
    return loaded
