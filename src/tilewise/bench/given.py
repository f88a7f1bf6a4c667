"""A launch given in words: a rung and a size, or a file, a grid, a block and what the arguments are."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.kernel import Kernel
from tilewise.toolchain.signature import read_entries

__all__ = ["FileLaunch", "argument", "file_launch", "triple"]

_TYPES: Mapping[str, Any] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_ARRAY = re.compile(r"(\w+)\[([\d, ×x]+)\]")
_ENTRY = re.compile(
    r'(?:extern\s+"C"\s+)?__global__\s+\w[\w\s*]*?(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\('
)


@dataclass(frozen=True)
class FileLaunch:
    """A kernel out of a file and how to launch it."""

    kernel: Kernel
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: list[Any] = field(repr=False)
    shared: int = 0


def file_launch(
    file: str,
    *,
    name: str | None,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[str],
    shared: int,
    arch: str | None,
    seed: int | None = None,
) -> FileLaunch:
    """The launch of a kernel in a ``.cu`` or ``.ptx`` file.

    ``args`` are such as "f32[640,448]" (an array of random numbers), "42", "0.5" or "null", in order.
    """
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentError("file", f"cannot be read ({error.strerror})", file) from None
    foreign = path.suffix == ".ptx"
    entry = name or _only(list(read_entries(text)) if foreign else _ENTRY.findall(text), file)
    if foreign:
        kernel = Kernel.from_ptx(text, entry, filename=path.name)
    else:
        kernel = Kernel(text, entry, arch, filename=path.name, include_dirs=[path.parent])
    if len(args) != len(kernel.parameters):
        listed = ", ".join(
            f"{p.type}{f' of {p.size} bytes' if p.is_struct else ''}" for p in kernel.parameters
        )
        raise ArgumentError("--arg", f"must be given {len(kernel.parameters)} times, for {listed}", len(args))
    rng = np.random.default_rng(secrets.randbits(32) if seed is None else seed)
    made = [argument(word, rng) for word in args]
    return FileLaunch(kernel, tuple(grid), tuple(block), made, shared)


def argument(word: str, rng: np.random.Generator) -> Any:
    """An argument from a word: an array, a number or a null pointer."""
    if word in ("null", "none"):
        return None
    if found := _ARRAY.fullmatch(word):
        kind = _TYPES.get(found[1])
        if kind is None:
            raise UnknownNameError("--arg", found[1], _TYPES)
        shape = triple("--arg", found[2], most=8)
        numbers = rng.standard_normal(math.prod(shape), np.float32).reshape(shape)
        if np.dtype(kind).kind in "iu":
            return np.zeros(shape, kind)
        return numbers.astype(kind)
    try:
        return int(word, 0)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        raise ArgumentError("--arg", "must be such as f32[640,448], 42, 0.5 or null", word) from None


def triple(argument: str, text: str, most: int = 3) -> tuple[int, ...]:
    """``"11,20"`` or ``"11x20"`` as numbers."""
    words = re.split(r"\s*[,x×]\s*", text.strip())
    if not 1 <= len(words) <= most or not all(word.isdecimal() and int(word) for word in words):
        raise ArgumentError(argument, f"must be one to {most} numbers such as 11,20", text)
    return tuple(int(word) for word in words)


def _only(names: Sequence[str], file: str) -> str:
    if len(names) == 1:
        return names[0]
    if not names:
        raise ArgumentError("file", "must hold a kernel", file)
    raise ArgumentError("--kernel", f"must be one of {', '.join(names)}", fix=f"{file} has several")
