"""The rasters: every tile once, neighbours adjacent, the device's orders the same as Python's."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.yardstick import run
from tilewise.kernels.raster import ORDERS, elements_read, hilbert, waves
from tilewise.toolchain.compile import compile_source

SIDE = st.integers(1, 48)
# Grids too large to list, but whose blocks a launch can still number.
LONG_SIDE = st.integers(1, 46_340)

SOURCE = """
#include <tilewise/raster.cuh>
extern "C" __global__ void orders(unsigned first, unsigned rows, unsigned columns, uint2 *tiles)
{
    const unsigned block = first + threadIdx.x;
    const TileIndex found[] = {row_by_row(block, rows, columns), column_by_column(block, rows, columns),
                               grouped(block, rows, columns), hilbert(block, rows, columns)};
    for (int i = 0; i < 4; ++i)
        tiles[i * blockDim.x + threadIdx.x] = {found[i].row, found[i].column};
}
"""
NAMES = ("row", "column", "grouped", "hilbert")  # in the order of the source


@functools.cache
def device_orders_ptx() -> str:
    return compile_source(SOURCE, ["orders"], "sm_75").ptx


def device_orders(first: int, count: int, rows: int, columns: int) -> dict[str, list[tuple[int, int]]]:
    """The tiles of `count` blocks from `first` on, by each order of the device header."""
    tiles = np.zeros((len(NAMES), count, 2), np.uint32)
    run(device_orders_ptx(), "orders", 1, count, [first, rows, columns, tiles])
    return {name: [(int(r), int(c)) for r, c in tiles[i]] for i, name in enumerate(NAMES)}


def adjacent(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return abs(one[0] - other[0]) + abs(one[1] - other[1]) == 1


@pytest.mark.parametrize("name", ORDERS)
@given(rows=SIDE, columns=SIDE)
@settings(max_examples=40, deadline=None)
def test_every_tile_once(name: str, rows: int, columns: int) -> None:
    tiles = {ORDERS[name](block, rows, columns) for block in range(rows * columns)}
    assert tiles == {(row, column) for row in range(rows) for column in range(columns)}


@given(rows=SIDE, columns=SIDE)
@settings(max_examples=60, deadline=None)
def test_hilbert_steps_to_neighbours_on_any_grid(rows: int, columns: int) -> None:
    tiles = [hilbert(block, rows, columns) for block in range(rows * columns)]
    assert all(map(adjacent, tiles, tiles[1:]))


@given(rows=LONG_SIDE, columns=LONG_SIDE, where=st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_hilbert_steps_to_neighbours_far_along_a_large_grid(rows: int, columns: int, where: float) -> None:
    first = int(where * max(rows * columns - 100, 0))
    tiles = [hilbert(block, rows, columns) for block in range(first, min(first + 100, rows * columns))]
    assert all(map(adjacent, tiles, tiles[1:]))
    assert len(set(tiles)) == len(tiles)
    assert all(0 <= row < rows and 0 <= column < columns for row, column in tiles)


@pytest.mark.parametrize("power", [1, 2, 3, 5])
def test_hilbert_fills_squares_within_squares(power: int) -> None:
    """On a grid of 2^p by 2^p, 4^q blocks from a multiple of 4^q on fill a square of 2^q by 2^q tiles."""
    side = 2**power
    tiles = [hilbert(block, side, side) for block in range(side * side)]
    for inner in range(power + 1):
        part = 2**inner
        for first in range(0, side * side, part * part):
            squares = {(r // part, c // part) for r, c in tiles[first : first + part * part]}
            assert len(squares) == 1


@given(rows=SIDE, columns=SIDE)
@settings(max_examples=25, deadline=None)
def test_device_orders_are_the_same(rows: int, columns: int) -> None:
    count = min(rows * columns, 1024)
    first = random.randrange(rows * columns - count + 1)
    for name, tiles in device_orders(first, count, rows, columns).items():
        assert tiles == [ORDERS[name](first + i, rows, columns) for i in range(count)], name


@pytest.mark.parametrize(
    ("rows", "columns"), [(46_340, 46_340), (2**31 - 1, 1), (3, 715_827_882), (40_001, 53_000)]
)
def test_device_orders_do_not_overflow(rows: int, columns: int) -> None:
    last = rows * columns - 1
    for first in (last - 31, random.randrange(last - 31)):
        for name, tiles in device_orders(first, 32, rows, columns).items():
            assert tiles == [ORDERS[name](first + i, rows, columns) for i in range(32)], name


def test_elements_that_64_blocks_read() -> None:
    """With tiles of 256×128: a column reads 16,512 elements for each k, a square of 8×8 reads 3,072."""
    assert elements_read(ORDERS["column"], 64, 64, 256, 128, 64).total == 16_512
    assert elements_read(ORDERS["row"], 8, 8, 256, 128, 64).total == 3_072
    assert elements_read(ORDERS["hilbert"], 64, 64, 256, 128, 64).total == 3_072
    assert elements_read(ORDERS["hilbert"], 64, 64, 256, 128, 64) == (2_048, 1_024)


def test_waves_end_with_the_grid() -> None:
    assert [wave.total for wave in waves(ORDERS["row"], 3, 5, 10, 1, 6)] == [25, 25, 13]


@given(rows=st.integers(8, 48), columns=st.integers(8, 48), in_flight=st.integers(40, 148))
@settings(max_examples=25, deadline=None)
def test_hilbert_reads_little_for_any_number_of_sms(rows: int, columns: int, in_flight: int) -> None:
    """It need not know how many blocks are in flight, and stays near the best of the others."""
    read = {name: elements_read(ORDERS[name], rows, columns, 128, 128, in_flight).total for name in ORDERS}
    assert read["hilbert"] < 1.4 * min(read.values())
