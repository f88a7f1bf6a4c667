"""Small tables that the run-time support keeps, beside dictionaries: what is found again, and what when they are full."""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.emulator import native
from tilewise.emulator.check_layout import CHECK, CLOCK, CLOCKS, SYNC
from tilewise.emulator.checking.vector_clocks import _find_sync_var
from tilewise.emulator.layout import BLOCK, LAUNCH
from tilewise.emulator.llvm.routine import Routine, join_modules
from tilewise.emulator.profiling.slow_path_counts import CLASSES, TABLE, _count
from tilewise.emulator.running.plain_memory import PlainMemory


def compiled(routine: Routine, result: Any, *parameters: Any) -> Callable[..., Any]:
    """A routine that calls no others, as a function of Python."""
    code = native.load(native.assemble(join_modules([routine]), native.host_cpu()), routine.name)
    function = ctypes.CFUNCTYPE(result, *parameters)(code.address(routine.name))
    return functools.partial(_call, function, code)  # which must live as long


def _call(function: Callable[..., Any], _code: native.Code, *given: Any) -> Any:
    return function(*given)


# -- clocks by the address that warps synchronise by ----------------------------------------------------
WIDTH = 3  # warps


@functools.cache
def find_sync_var() -> Callable[..., int]:
    u64 = ctypes.c_uint64
    return compiled(_find_sync_var.write(), u64, u64, u64, ctypes.c_uint32, u64)


class SyncVars:
    """The tables of a launch and of a cluster, of so many sync variables."""

    def __init__(self, of_cluster: int, of_launch: int) -> None:
        self.row = SYNC.KEY_BYTES + 4 * WIDTH + CLOCK.TAIL
        self.sizes = (of_launch, of_cluster)
        self.tables = [PlainMemory(self.row * size) for size in self.sizes]
        state = {CHECK.WIDTH: WIDTH, CHECK.SYNC_VARS: self.tables[0].address, CHECK.SYNC_VAR_COUNT: of_launch}
        clocks = {CLOCKS.SYNC_VARS: self.tables[1].address, CLOCKS.SYNC_VAR_COUNT: of_cluster}
        self.state, self.clocks = PlainMemory(CHECK.SIZE, state), PlainMemory(CLOCKS.SIZE, clocks)
        self.context = PlainMemory(LAUNCH.SIZE, {LAUNCH.WATCH: self.state.address})
        self.block = PlainMemory(BLOCK.WARPS, {BLOCK.CLOCKS: self.clocks.address})

    def find(self, shared: int, key: int) -> int:
        """The number of a key's row in the table."""
        found = find_sync_var()(self.context.address, self.block.address, shared, key)
        number, rest = divmod(found - self.tables[shared].address, self.row)
        assert rest == SYNC.KEY_BYTES and 0 <= number < self.sizes[shared]
        return number

    def clock(self, shared: int, number: int) -> Any:
        start = number * self.row + SYNC.KEY_BYTES
        return self.tables[shared].bytes[start : start + self.row - SYNC.KEY_BYTES]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 11), st.booleans()), max_size=40))
@settings(max_examples=40, deadline=None)
def test_each_sync_variable_keeps_a_clock_of_its_own(asked: list[tuple[int, int, bool]]) -> None:
    """New ones are clean. Beyond what there is room for they share one; those that were there stay where they are."""
    made = SyncVars(4, 8)
    for table in made.tables:
        table.bytes.reshape(-1, made.row)[:, SYNC.KEY_BYTES :] = 0xEE  # what a cluster before has left
    known: tuple[dict[int, int], ...] = ({}, {})
    for shared, number, far in asked:
        key = 8 * number + far * (1 << 40)
        found = made.find(shared, key)
        if key in known[shared]:
            assert found == known[shared][key]
        elif len(known[shared]) < made.sizes[shared]:
            assert found not in known[shared].values()
            assert not made.clock(shared, found).any()
            known[shared][key] = found
            made.clock(shared, found)[:] = 0xEE
        else:
            assert made.clock(shared, found).all()


# -- lanes that take the slow path, by class ------------------------------------------------------------
@functools.cache
def count(kind: str) -> Callable[..., None]:
    u64 = ctypes.c_uint64
    return compiled(_count(kind), None, u64, u64, u64, u64, ctypes.c_uint32)


# Of a reciprocal: a number of each class, the first of which takes the quick path.
NUMBERS = np.array([3.0, 0.0, 1e-42, 1e-38, 2e38, np.inf, np.nan, 1e-45, -0.0, 1.0], np.float32)


@functools.cache
def class_of(number: int) -> int:
    """The class of one of the numbers, as a lane alone has it; 0 for the quick path."""
    found = counted([(np.full(32, NUMBERS[number]), 1)])
    return next((i for i, lanes in enumerate(found.lanes) if lanes), 0)


def counted(warps: list[tuple[Any, int]], table: PlainMemory | None = None) -> SimpleNamespace:
    """What some warps' reciprocals came to: lanes by class, warps by set of classes, warps of the slow path."""
    table, totals = table or PlainMemory(TABLE.SIZE), PlainMemory(8)
    for numbers, mask in warps:
        operand = PlainMemory(128)
        operand.bytes.view(np.float32)[:] = numbers
        count("rcp.f32")(table.address, totals.address, operand.address, operand.address, mask)
    words = table.bytes.view(np.int64)
    pairs = words[TABLE.SETS // 8 :].reshape(-1, 2)
    lanes = words[: len(CLASSES["rcp.f32"]) + 1].tolist()
    return SimpleNamespace(lanes=lanes, sets=pairs[pairs[:, 1] > 0].tolist(), total=totals.get(0, 8))


warps = st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 2**32 - 1)))


@given(warps)
@settings(max_examples=60, deadline=None)
def test_sets_of_classes_are_counted_each_in_a_place_of_its_own(drawn: list[tuple[list[int], int]]) -> None:
    """In the order in which they came. A warp without a lane of the slow path counts for nothing."""
    listed = [(np.resize(numbers, 32), mask) for numbers, mask in drawn]
    lanes, sets = Counter[int](), Counter[int]()
    for numbers, mask in listed:
        here = [class_of(int(number)) for lane, number in enumerate(numbers) if mask >> lane & 1]
        if any(here):
            lanes.update(here)
            sets[sum(1 << number for number in {*here})] += 1
    found = counted([(NUMBERS[numbers], mask) for numbers, mask in listed])
    assert found.lanes == [lanes[i] for i in range(len(found.lanes))]
    assert found.sets == [[*pair] for pair in sets.items()]
    assert found.total == sets.total()


def test_sets_that_find_no_place_are_counted_in_the_last() -> None:
    """As one set of all their classes."""
    table = PlainMemory(TABLE.SIZE)
    pairs = table.bytes.view(np.int64)[TABLE.SETS // 8 :].reshape(-1, 2)
    pairs[:-1] = [[1 << 40, 1]] * (TABLE.SLOTS - 1)
    zero, infinite = (1 << class_of(number) for number in (1, 5))
    warp = [(np.full(32, NUMBERS[1]), -1 % 2**32), (np.full(32, NUMBERS[5]), 7), (np.full(32, NUMBERS[1]), 1)]
    assert zero != infinite
    assert counted(warp, table).sets[-1] == [zero | infinite, 3]
    assert (pairs[:-1] == [1 << 40, 1]).all()


def test_the_numbers_are_of_every_class() -> None:
    assert {class_of(i) for i in range(len(NUMBERS))} == {*range(len(CLASSES["rcp.f32"]) + 1)}
