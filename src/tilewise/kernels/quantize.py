"""Launches that make 8 bits with scales of numbers, and numbers of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tilewise.kernels.spec import KernelSource, Step
from tilewise.launch import Launch
from tilewise.operands import Operand, ceil_div
from tilewise.slots import Slot, constant

__all__ = ["MOST", "dequantize_steps", "quantize_steps", "quantize_tiles_steps"]

MOST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "int8": 127.0}
"""What the largest number of a line becomes."""

_FILE = Path(__file__).with_suffix(".cu")
_TILES_FILE = Path(__file__).with_name("quantize_tiles.cu")
_THREADS = 256
_ROWS, _COLUMNS = 64, 256  # of a block
_TILE = 128  # rows and columns of a block, where so many share a scale


def quantize_steps(
    numbers: Operand, largest: Operand, values: Operand, scales: Operand, stack: tuple[int, int], lines: int
) -> list[Step]:
    """The launches for a stack of matrices; ``largest`` has one for each of so many lines, as the scales lie."""
    code = _code(numbers.dtype, values.dtype)
    clear = _step("clear", ceil_div(lines, _THREADS), (largest.pointer(), constant("I", lines)), code)
    inner = constant("I", stack[1])
    find = _matrices("find_largest", numbers, (numbers, largest), stack, inner, code)
    make = _matrices("quantize", numbers, (numbers, largest, values, scales), stack, inner, code)
    return [clear, find, make]


def quantize_tiles_steps(
    numbers: Operand, values: Operand, scales: Operand, stack: tuple[int, int], shared: tuple[int, int]
) -> list[Step]:
    """The launch for scales that so many rows and columns share."""
    code = _code(numbers.dtype, values.dtype, _TILES_FILE, shared)
    blocks = ceil_div(numbers.rows, _TILE) * ceil_div(numbers.columns, _TILE) * stack[0] * stack[1]
    args = (numbers.strided(), values.strided(), scales.strided(), constant("I", stack[1]))
    return [_step("quantize_tiles", blocks, args, code)]


def dequantize_steps(
    values: Operand, scales: Operand, numbers: Operand, *, stack: tuple[int, int], shared: tuple[int, int]
) -> list[Step]:
    """The launch that gives numbers back; so many rows and columns share a scale, or all along strides of 0."""
    code = _code(numbers.dtype, values.dtype, _FILE, shared)
    return [_matrices("dequantize", values, (values, scales, numbers), stack, constant("I", stack[1]), code)]


def _matrices(
    entry: str,
    like: Operand,
    operands: Iterable[Operand],
    stack: tuple[int, int],
    inner: Slot,
    code: KernelSource,
) -> Step:
    tiles = ceil_div(like.rows, _ROWS) * ceil_div(like.columns, _COLUMNS)
    return _step(entry, tiles * stack[0] * stack[1], (*(one.strided() for one in operands), inner), code)


def _step(entry: str, blocks: int, args: tuple[Slot, ...], code: KernelSource) -> Step:
    return Step(entry, Launch((blocks, 1, 1), (_THREADS, 1, 1), args, programmatic=True), code)


def _code(element: str, value: str, file: Path = _FILE, shared: tuple[int, int] = (1, 1)) -> KernelSource:
    defines = (
        ("ELEMENT", element),
        ("VALUE", value),
        ("SHARED_ROWS", shared[0]),
        ("SHARED_COLUMNS", shared[1]),
    )
    return KernelSource(file, defines)
