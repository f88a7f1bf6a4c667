"""Plain data of what the profiler gives, the same on every machine: numbers with as many digits as do not depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

__all__ = ["plain"]

_LARGE = 1 << 32  # what is beyond is an address
_DIGITS = 6  # of numbers that are not whole: a sum in another order differs in the last ones


def plain(value: Any, start: int = 0) -> Any:
    """For JSON; addresses by their distance from the start of an array, and of arrays of figures those that are not zero."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name), start) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item, start) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        flat = value.reshape(-1)
        return {int(i): plain(flat[i].item(), start) for i in np.flatnonzero(flat)} | {"of": flat.size}
    if isinstance(value, list | tuple):
        return [plain(item, start) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item, start) for item in value)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value - start if abs(value) > _LARGE and start and value < 1 << 56 else value
    number = float(value)
    return number if number.is_integer() else float(f"{number:.{_DIGITS}g}")
