"""Scales of numbers of 8 bits: which numbers share one, by the shapes of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.errors import ArgumentError
from tilewise.problem import SCALED_TERMS

__all__ = ["check_scale", "numbers_sharing", "spread", "spread_scale"]


def numbers_sharing(shape: tuple[int, ...], scales: tuple[int, ...]) -> tuple[int, ...]:
    """How many numbers of this shape share one of these scales, along each axis; 0: all."""
    return tuple(
        1 if many == size else 0 if many == 1 else SCALED_TERMS
        for size, many in zip(shape, scales, strict=True)
    )


def spread_scale(argument: str, scale: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """The scale of each number of an array of this shape, or 1 along axes where it is the same."""
    check_scale(argument, scale.shape, shape)
    return spread(scale.astype(np.float64), shape, numbers_sharing(shape, scale.shape))


def check_scale(argument: str, scale: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Refuse scales of another shape than numbers have, 1 where they are the same, or one for each 128."""
    if len(scale) == len(shape) and all(
        s in (1, v) or (i >= len(shape) - 2 and s == -(-v // SCALED_TERMS))
        for i, (s, v) in enumerate(zip(scale, shape, strict=True))
    ):
        return
    rule = f"must have the shape {shape}, 1 where it is the same, or one for each {SCALED_TERMS}"
    raise ArgumentError(argument, rule, scale, "reshape it")


def spread(scale: npt.NDArray[Any], shape: tuple[int, ...], shared: tuple[int, ...]) -> npt.NDArray[Any]:
    """Scales as many as numbers, or 1 along axes where they are the same."""
    for axis, (size, one) in enumerate(zip(shape, shared, strict=True)):
        if 1 < one < size:
            scale = np.repeat(scale, one, axis).take(range(size), axis)
    return scale
