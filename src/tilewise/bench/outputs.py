"""Options for a launch's outputs, parsed: which to save, to print and to compare with what.

An output is named by the number of its ``--arg``, from 1: ``4=y.npy``. Without a number it is the one array that was
given as ``new:``, or the only array there is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.bench.argument_specs import ParsedArgument, load_array
from tilewise.errors import ArgumentError
from tilewise.reference import compare

__all__ = [
    "Expectation",
    "ExpectedProduct",
    "OutputVerdict",
    "check_folder",
    "find_output",
    "read_expectation",
    "save_output",
    "split_spec",
]

_NUMBERED = re.compile(r"(?:(?P<number>\d+)=)?(?P<rest>.+)")
_PRODUCT = re.compile(r"(\d+)@(\d+)")
# Of an element: |it - expected| ≤ absolute + relative·|expected|. Integers must be equal.
_RELATIVE = {"float64": 1e-7, "float32": 1e-5, "float16": 1e-3, "bfloat16": 1.6e-2}
_RELATIVE_8_BITS = 0.125
_ABSOLUTE = {"float64": 1e-7}
_ABSOLUTE_USUAL = 1e-5


@dataclass(frozen=True, slots=True)
class OutputVerdict:
    """Whether an output is as expected, and how it differs."""

    argument: int
    expected: str
    ok: bool
    failures: int
    elements: int
    message: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "argument": self.argument,
            "expected": self.expected,
            "correct": self.ok,
            "failures": self.failures,
            "elements": self.elements,
            "told": self.message,
        }


@dataclass(frozen=True, slots=True)
class Expectation:
    """An array that an output is to be equal to, within a tolerance."""

    argument: int
    word: str
    values: npt.NDArray[Any]
    relative: float
    absolute: float

    def judge(self, got: npt.NDArray[Any], unwritten: npt.NDArray[np.bool_] | None) -> OutputVerdict:
        """Compare element by element: NaN is equal to nothing, and unwritten elements are wrong."""
        exact = got.dtype.kind in "iub"
        held, values = (
            (got, self.values) if exact else (got.astype(np.float64), self.values.astype(np.float64))
        )
        with np.errstate(all="ignore"):
            right = held == values
            if not exact:
                right |= np.isfinite(values) & (
                    np.abs(held - values) <= self.absolute + self.relative * np.abs(values)
                )
        if unwritten is not None:
            right &= ~unwritten
        failures = int(right.size - np.count_nonzero(right))
        rule = "equal" if exact else f"within {self.absolute:g} + {self.relative:g}·|expected|"
        if not failures:
            message = f"all {right.size:,} elements {rule}"
        else:
            where = tuple(int(i) for i in np.unravel_index(int(np.argmin(right)), right.shape))
            missing = unwritten is not None and bool(unwritten[where])
            shown = "not written" if missing else f"{got[where]}"
            message = f"{failures:,} of {right.size:,} elements not {rule}; the first at {list(where)}: "
            message += f"{shown}, expected {self.values[where]}"
        return OutputVerdict(self.argument, self.word, not failures, failures, right.size, message)


@dataclass(frozen=True, slots=True)
class ExpectedProduct:
    """The matrix product that an output is to be, within the rounding bound of its sums."""

    argument: int
    word: str
    a: npt.NDArray[Any]
    b: npt.NDArray[Any]

    def judge(self, got: npt.NDArray[Any], unwritten: npt.NDArray[np.bool_] | None) -> OutputVerdict:
        """Compare with the product in float64."""
        if unwritten is not None and got.dtype.kind not in "iu":
            got = np.where(unwritten, np.array(np.nan, got.dtype), got)
        accumulate = "float64" if got.dtype == np.float64 else "float32"
        found = compare(got, self.a, self.b, accumulate=accumulate)
        return OutputVerdict(self.argument, self.word, found.ok, found.failures, found.elements, str(found))


def split_spec(option: str, word: str) -> tuple[int | None, str]:
    """``"4=y.npy"`` as number and rest; no number is None."""
    found = _NUMBERED.fullmatch(word)
    if not found:
        raise ArgumentError(option, "must look like FILE.npy or NUMBER=FILE.npy", word)
    return None if found["number"] is None else int(found["number"]), found["rest"]


def find_output(option: str, number: int | None, made: Sequence[ParsedArgument]) -> ParsedArgument:
    """The argument of a number; without one, the only array given as ``new:``, or the only array."""
    arrays = [item for item in made if item.array is not None]
    if number is not None:
        chosen = [item for item in arrays if item.number == number]
        rule = "must name an array by the number of its --arg"
    else:
        chosen = [item for item in arrays if item.is_new] or arrays
        rule = "must say which array, by the number of its --arg"
    if len(chosen) != 1:
        if not arrays:
            raise ArgumentError(option, rule, number, fix="the launch has none")
        listed = ", ".join(f"{item.number} for {item.word}" for item in arrays)
        raise ArgumentError(option, rule, number, fix=f"{listed}; such as {arrays[-1].number}=…")
    return chosen[0]


def check_folder(file: str) -> None:
    """Refuse to save into a folder that is not there, before anything runs."""
    if not Path(file).parent.is_dir():
        raise ArgumentError("-o", "must lie in a folder that exists", file)


def save_output(item: ParsedArgument, file: str, values: npt.NDArray[Any]) -> None:
    """Write an array as ``np.load`` reads it; floats that NumPy has no type for become float32, which holds them."""
    if values.dtype.isbuiltin == 2:  # another package's
        values = values.astype(np.float32)
    try:
        with Path(file).open("wb") as stream:
            np.save(stream, values, allow_pickle=False)
    except OSError as error:
        raise ArgumentError(f"-o {file!r}", f"cannot be written: {error.strerror or error}") from None


def read_expectation(
    word: str, made: Sequence[ParsedArgument], relative: float | None, absolute: float | None
) -> Expectation | ExpectedProduct:
    """The expectation that ``--expect`` gives: a .npy file, or the product of two arguments such as ``1@2``."""
    number, rest = split_spec("--expect", word)
    item = find_output("--expect", number, made)
    assert item.array is not None
    shape, dtype = item.array.shape, item.array.dtype
    if product := _PRODUCT.fullmatch(rest):
        if relative is not None or absolute is not None:
            raise ArgumentError(
                "--expect", "has a bound of its own for a product", word, "leave --rtol and --atol out"
            )
        a, b = (_operand(word, int(text), made) for text in product.groups())
        if (*a.shape[:1], *b.shape[1:]) != shape or a.shape[1] != b.shape[0]:
            rule = "must be a product whose shapes fit"
            raise ArgumentError("--expect", rule, f"{a.shape} @ {b.shape} for an output of shape {shape}")
        return ExpectedProduct(item.number, rest, a, b)
    values = load_array("--expect", rest)
    if values.shape != shape:
        raise ArgumentError(f"--expect {rest!r}", f"must have the shape {shape} of {item}", values.shape)
    if values.dtype.kind not in "biuf":
        raise ArgumentError(f"--expect {rest!r}", "must hold real numbers", values.dtype)
    usual = _RELATIVE.get(dtype.name, _RELATIVE_8_BITS)
    return Expectation(
        item.number,
        rest,
        values,
        usual if relative is None else relative,
        _ABSOLUTE.get(dtype.name, _ABSOLUTE_USUAL) if absolute is None else absolute,
    )


def _operand(word: str, number: int, made: Sequence[ParsedArgument]) -> npt.NDArray[Any]:
    for item in made:
        if item.number == number and item.before is not None and item.before.ndim == 2:
            return item.before.copy()
    rule = "must name two matrices that were given, such as 1@2"
    raise ArgumentError(
        "--expect", rule, word, f"argument {number} is no array of two dimensions that is set"
    )
