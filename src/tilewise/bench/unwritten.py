"""The elements of its outputs that a launch has not written.

A checked launch records it for every byte. For others an uninitialised array is filled with a pattern before the
launch, and what still has it afterwards was not written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.bench.argument_specs import ParsedArgument
from tilewise.devices.emulated import EmulatedArray

__all__ = ["Unwritten", "fill_with_patterns", "find_unset", "find_unwritten", "list_unwritten"]

# By type of float: a NaN that no operation of a GPU gives, and which of its bits may differ from element to element.
_PATTERNS = {
    "float64": (0xFFF8_0000_0000_0000, 0x0007_FFFF_FFFF_FFFF),
    "float32": (0xFFC0_0000, 0x003F_FFFF),
    "float16": (0xFE00, 0x01FF),
    "bfloat16": (0xFFC0, 0x003F),
    "float8_e4m3fn": (0xFF, 0),
    "float8_e5m2": (0xFE, 0x01),
}
_SURE_BYTES = 4  # of integers, any bits may be a result: so many bytes of the pattern are no chance


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Elements of an argument's array that the launch has not written."""

    argument: int  # its number on the command line, from 1
    word: str
    count: int
    elements: int
    first: tuple[int, ...]
    last: tuple[int, ...]

    def __str__(self) -> str:
        places = (
            f"at {list(self.first)}" if self.count == 1 else f"from {list(self.first)} to {list(self.last)}"
        )
        whole = (
            "no element"
            if self.count == self.elements
            else f"{self.count:,} of {self.elements:,} elements not"
        )
        where = "" if self.count == self.elements else f", {places}"
        return f"{whole} written of --arg {self.word!r} (number {self.argument}){where}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def fill_with_patterns(made: Sequence[ParsedArgument], seed: int) -> dict[int, npt.NDArray[Any]]:
    """Fill every array of which nothing is set with a pattern of its own; by the argument's number."""
    patterns = {}
    for item in made:
        if item.array is not None and item.is_new:
            pattern = _pattern(item.array.shape, item.array.dtype, np.random.default_rng([seed, item.number]))
            item.array.fill(pattern)
            patterns[item.number] = pattern
    return patterns


def find_unwritten(
    made: Sequence[ParsedArgument], patterns: dict[int, npt.NDArray[Any]]
) -> dict[int, npt.NDArray[np.bool_]]:
    """By the argument's number: which elements have the pattern that they were filled with."""
    found = {}
    for item in made:
        if item.array is not None and item.number in patterns:
            pattern, held = patterns[item.number], item.array.numpy()
            found[item.number] = _same_bits(held, pattern)
    return found


def find_unset(made: Sequence[ParsedArgument]) -> dict[int, npt.NDArray[np.bool_]]:
    """By the argument's number: which elements of the emulator's arrays a checked launch has not written."""
    return {
        item.number: item.array.unset
        for item in made
        if item.is_new and isinstance(item.array, EmulatedArray)
    }


def list_unwritten(
    made: Sequence[ParsedArgument], masks: dict[int, npt.NDArray[np.bool_]]
) -> list[Unwritten]:
    """What is not written, argument by argument."""
    found = []
    for item in made:
        mask = masks.get(item.number)
        if mask is None or not mask.any():
            continue
        places = np.flatnonzero(mask)
        first, last = (
            tuple(int(i) for i in np.unravel_index(int(place), mask.shape))
            for place in (places[0], places[-1])
        )
        found.append(Unwritten(item.number, item.word, len(places), mask.size, first, last))
    return found


def _pattern(shape: tuple[int, ...], dtype: np.dtype[Any], random: np.random.Generator) -> npt.NDArray[Any]:
    base, free = _PATTERNS.get(dtype.name, (0, 2 ** (8 * dtype.itemsize) - 1))
    bits = np.frombuffer(random.bytes(math.prod(shape) * dtype.itemsize), _bits(dtype)).reshape(shape)
    pattern: npt.NDArray[Any] = (bits & bits.dtype.type(free) | bits.dtype.type(base)).view(dtype)
    return pattern


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"uint{8 * dtype.itemsize}")


def _same_bits(held: npt.NDArray[Any], pattern: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    bits = _bits(held.dtype)
    same: npt.NDArray[np.bool_] = held.view(bits) == pattern.view(bits)
    least = 1 if held.dtype.name in _PATTERNS else -(-_SURE_BYTES // held.dtype.itemsize)
    return same if least == 1 else _long_runs(same, least)


def _long_runs(mask: npt.NDArray[np.bool_], least: int) -> npt.NDArray[np.bool_]:
    """Without what stands in runs of fewer than ``least`` neighbours."""
    flat = np.concatenate([[False], mask.reshape(-1), [False]])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    kept = np.zeros(mask.size, np.bool_)
    for start, end in edges.reshape(-1, 2):
        kept[start:end] = end - start >= least
    return kept.reshape(mask.shape)
