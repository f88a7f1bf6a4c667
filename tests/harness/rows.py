"""Rows of instructions and models: what each must give, checked on edge values and fresh random ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tests.harness.many import Array, run

__all__ = ["WAYS", "Model", "Row", "check", "clamped", "elements", "inputs", "joined", "number", "signed"]

Model = Callable[..., int]
# How operands reach an instruction, and how many to try.
WAYS = [("vector", 96), ("uniform", 40), ("guarded", 32)]
_EDGES = (0, 1, 2, 7, 31, 32, 33, 63, 64, 255, 256, 0x7F, 0x80, 0x7FFF, 0x8000, 0xFFFF)


class Row(NamedTuple):
    """One instruction (or a few), the bits of its result, and what the result must be."""

    text: str
    bits: int
    model: Model


def signed(value: int, bits: int) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def clamped(value: int, type_: str) -> int:
    bits = int(type_[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type_[0] == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def number(type_: str) -> Callable[[int], int]:
    """What a register's bits mean in a type."""
    bits = int(type_[1:])
    return (lambda x: signed(x, bits)) if type_[0] == "s" else (lambda x: x % (1 << bits))


def elements(value: int, bits: int, is_signed: bool = False) -> list[int]:
    """The numbers packed into 32 bits, the lowest first."""
    found = [value >> bits * i & ((1 << bits) - 1) for i in range(32 // bits)]
    return [signed(x, bits) for x in found] if is_signed else found


def joined(found: Sequence[int], bits: int) -> int:
    return sum(x % (1 << bits) << bits * i for i, x in enumerate(found))


def _values(bits: int, count: int, generator: np.random.Generator) -> list[int]:
    """Numbers around the edges of the type, and any."""
    top = 1 << bits
    edges = [*_EDGES, *(top - 1 - x for x in _EDGES), *(top // 2 + x for x in (-2, -1, 0, 1, 2))]
    found = []
    for edge, is_edge in zip(
        generator.integers(len(edges), size=count), generator.random(count) < 0.6, strict=True
    ):
        found.append((edges[edge] if is_edge else int.from_bytes(generator.bytes(8), "little")) % top)
    return found


def inputs(bits: Sequence[int], count: int) -> list[Array]:
    """Arrays of so many bits each; some of the numbers in the first two are equal."""
    generator = np.random.default_rng()
    found = [np.array(_values(width, count, generator), f"u{width // 8}") for width in bits]
    if len(bits) > 1 and bits[0] == bits[1]:
        found[1][: count // 4] = found[0][: count // 4]
    return found


def check(rows: Sequence[Row], given: Sequence[Array], way: str) -> None:
    """Run every row on every element and compare."""
    results = run([(row.text, row.bits) for row in rows], given, way)
    for row, result in zip(rows, results, strict=True):
        for i, found in enumerate(result.tolist()):
            operands = [int(array[i]) for array in given]
            want = operands[0] if way == "guarded" and i % 2 == 0 else row.model(*operands)
            shown = f"{row.text} of {[hex(x) for x in operands]}, {way}"
            assert found == want % (1 << row.bits), f"{shown}: {found:#x}, not {want % (1 << row.bits):#x}"
