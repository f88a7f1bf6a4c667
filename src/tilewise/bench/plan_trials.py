"""Plans of one product tried on a device: random arrays as the operands lie, results compared, times taken in turns.

On a GPU that is device time: a plan's launches are captured in a graph, in a row over rotated buffers, so that L2
does not serve the next launch. On the emulator it is the time of a call.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.bench.product import fresh_seed
from tilewise.bound import Bound
from tilewise.devices import Array, Device
from tilewise.devices.gpu import GpuDevice
from tilewise.epilogue import bits_of
from tilewise.interop import numpy_dtype
from tilewise.kernels.bind import bind
from tilewise.operands import ALIGNMENT_MOST, Operand, Operands, ceil_div
from tilewise.planner import Candidate
from tilewise.problem import COMPLEX, ELEMENT_BYTES
from tilewise.slots import places_of, table_of

__all__ = ["ProductArrays", "ReadyPlan", "bind_all", "make_ready", "time_in_turns"]

_CACHE_BYTES = 120 << 20  # of buffers, so that L2 does not serve the next launch
_MOST_SETS = 8
_GRAPH_SECONDS = 2e-3  # of launches in a row
_MOST_LAUNCHES = 40
_BLOCK = 1 << 22  # different random numbers; larger operands repeat them
_SAMPLE = 1 << 20  # elements of a result that are compared
_FAR = 8  # times what a matrix spans in memory from one to the next: no array is as sparse
_LINE_BYTES = 128
_NUMBER = 0.5  # each of an epilogue's: what is updated again and again stays finite
_SPREAD = 16  # of random integers
_COMPILERS = 8  # threads
# How far apart two right results may be, of the largest: some roundings of the coarser of operands and result.
_APART = {1: 2.0**-2, 2: 2.0**-6, 4: 2.0**-12, 8: 2.0**-40}
_APART_IN = {"f16": 2.0**-4, "tf32": 2.0**-8}


class ProductArrays:
    """Sets of a product's arrays, as its operands lie: dense where they do, as aligned as they are.

    ``host`` has what A and B of each set hold, from their first element in memory on.
    """

    def __init__(self, device: Device, operands: Operands) -> None:
        self.device, self._operands = device, operands
        random = np.random.default_rng(fresh_seed())
        given = [*operands[:2], *operands.extras]
        self.host = {one.name: _numbers(random, _reach(one, operands)[1], one) for one in given}
        nbytes = sum(values.nbytes for values in self.host.values())
        count = min(max(_CACHE_BYTES // max(nbytes, 1), 1) + 1, _MOST_SETS) if device.runs_on_gpu else 1
        self._offsets = _even_groups(operands)
        self._sets = [self._make_set() for _ in range(count)]

    def _make_set(self) -> dict[str, tuple[Array, int]]:
        """Each array, and the address of its first element."""
        made: dict[str, tuple[Array, int]] = {}
        for one in (*self._operands[:3], *self._operands.extras):
            first, size = _reach(one, self._operands)
            shift = one.alignment % ALIGNMENT_MOST  # bytes: as aligned as it is, and no better
            array = self.device.empty((size * one.itemsize + ALIGNMENT_MOST,), "uint8")
            values = self.host.get(one.name)
            if values is not None:
                _fill_from(array, shift, values)
            made[one.name] = array, array.ptr + shift + first * one.itemsize
        if self._offsets is not None:
            array = self.device.array(self._offsets)
            made["offsets"] = array, array.ptr
        return made

    def addresses(self, which: int) -> dict[str, int]:
        """Where the arrays of a set lie, with the numbers of the epilogue."""
        found = {name: address for name, (_, address) in self._sets[which % len(self._sets)].items()}
        epilogue = self._operands.epilogue
        found |= bits_of([(name, _NUMBER) for name in epilogue.numbers], self._operands.epilogue_type)
        for one in (*self._operands[:3], *self._operands.extras):
            if one.by_pointers:
                steps = _matrix_reach(one) // one.stack[0]
                found[places_of(one.name)] = table_of([steps * i for i in range(self._operands.batch)])
        return found

    def poison(self) -> None:
        """Overwrite the first set's result with NaN, or with what no product is."""
        array, _ = self._sets[0]["c"]
        array.fill(np.full(array.shape, 0xFF, "uint8"))

    def result(self) -> npt.NDArray[Any]:
        """What the first set's result holds, from its first element in memory on."""
        c = self._operands.c
        array, _ = self._sets[0]["c"]
        shift = c.alignment % ALIGNMENT_MOST
        return array.numpy()[shift : shift + _reach(c, self._operands)[1] * c.itemsize].view(
            numpy_dtype(c.dtype)
        )


def _reach(one: Operand, operands: Operands) -> tuple[int, int]:
    """How many elements lie before the first one, and how many there are from the first to the last in memory."""
    if one.by_pointers:
        return 0, max(_matrix_reach(one) * operands.batch, 1)
    sizes = (one.rows, one.columns, *operands.stack_of(one))
    ends = [
        (size - 1) * step
        for size, step in zip(sizes, (one.row_stride, one.column_stride, *one.stack), strict=True)
    ]
    if 0 in sizes:
        return 0, 1
    before = -sum(end for end in ends if end < 0)
    return before, before + sum(end for end in ends if end > 0) + 1


def bring_together(operands: Operands) -> Operands:
    """The operands with the matrices of a list near one another, as aligned as they are: two lie anywhere in memory."""
    a, b, c, *extras = map(_bring_together, (*operands[:3], *operands.extras))
    return operands._replace(a=a, b=b, c=c, extras=tuple(extras))


def _bring_together(one: Operand) -> Operand:
    span = (one.rows - 1) * abs(one.row_stride) + (one.columns - 1) * abs(one.column_stride) + 1
    if one.by_pointers or len(one.stack) != 1 or abs(one.stack[0]) <= _FAR * span:
        return one
    line = max(_LINE_BYTES // one.itemsize, 1)
    return replace(one, stack=(ceil_div(span, line) * line + one.stack[0] % line,))


def _matrix_reach(one: Operand) -> int:
    """Elements from one matrix of those that lie anywhere to the next, which are as near as they may be."""
    span = (one.rows - 1) * one.row_stride + (one.columns - 1) * one.column_stride + 1
    return ceil_div(max(span, 1), one.stack[0]) * one.stack[0]


def _even_groups(operands: Operands) -> npt.NDArray[Any] | None:
    """Where each group of rows ends, if there are groups and they are even."""
    if not operands.groups:
        return None
    ends = np.arange(1, operands.groups + 1) * operands.a.rows // operands.groups
    return ends.astype("int32")


def _numbers(random: np.random.Generator, size: int, one: Operand) -> npt.NDArray[Any]:
    kind = numpy_dtype(one.dtype)
    drawn = random.standard_normal(min(size, _BLOCK))
    if kind.kind in "iu":
        return np.resize((drawn * _SPREAD).astype(kind), size)
    if kind.kind == "c":
        drawn = drawn + 1j * drawn[::-1]
    return np.resize(drawn.astype(kind), size)


def _fill_from(array: Array, shift: int, values: npt.NDArray[Any]) -> None:
    held = np.zeros(array.shape, "uint8")
    held[shift : shift + values.nbytes] = values.view("uint8")
    array.fill(held)


# ── plans ────────────────────────────────────────────────────────────────────────────────────────────────


def bind_all(
    device: Device, operands: Operands, candidates: Sequence[Candidate], until: float = math.inf
) -> Iterator[Bound]:
    """Compile each plan, several at once; those that were not begun at a time (of ``time.monotonic``) are left out,
    but for the first.
    """
    pool = ThreadPoolExecutor(min(_COMPILERS, os.cpu_count() or 1))
    jobs: list[Future[Bound]] = [
        pool.submit(bind, one.spec, one.settings, operands, one.operands, device) for one in candidates
    ]
    try:
        for i, job in enumerate(jobs):
            if i and time.monotonic() > until:
                return
            yield job.result()
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class ReadyPlan:
    """A plan that was run once. ``launch`` starts it ``count`` times; ``sample`` is some of its result."""

    launch: Callable[[], None]
    count: int
    sample: npt.NDArray[Any]
    held: object  # memory that launches touch

    def agrees_with(self, other: ReadyPlan, operands: Operands) -> bool:
        """Whether both results are the same, but for roundings."""
        if self.sample.dtype.kind in "iu":
            return bool(np.array_equal(self.sample, other.sample))
        one, two = (sample.astype(_wide(sample.dtype)) for sample in (self.sample, other.sample))
        finite = np.isfinite(two)
        if not np.array_equal(finite, np.isfinite(one)):
            return False
        scale = np.abs(two[finite]).max(initial=0.0)
        return bool(np.all(np.abs(one[finite] - two[finite]) <= _how_far_apart(operands) * scale))


def _how_far_apart(operands: Operands) -> float:
    """Two right results of the same operands, of the largest of their elements."""
    if operands.arithmetic in _APART_IN:
        return _APART_IN[operands.arithmetic]
    result = COMPLEX.get(operands.c.dtype, operands.c.dtype)
    summed = COMPLEX.get(operands.element, operands.element)
    # Numbers of 8 bits are exact, and sums of them nearly so.
    coarsest = min(ELEMENT_BYTES[result], max(ELEMENT_BYTES[summed], 2))
    return _APART[int(coarsest)]


def _wide(dtype: np.dtype[Any]) -> str:
    return "complex128" if dtype.kind == "c" else "float64"


def make_ready(bound: Bound, seconds: float, arrays: ProductArrays) -> ReadyPlan:
    """Run a plan once and keep some of its result; on a GPU capture as many launches as a graph is to hold.

    ``seconds`` is how long one is taken to last.
    """
    device = arrays.device
    workspace = device.empty((max(bound.workspace_bytes, 1),), "uint8")

    def start(which: int) -> None:
        bound(arrays.addresses(which) | {"workspace": workspace.ptr})

    arrays.poison()
    start(0)
    found = arrays.result()
    sample = found[:: max(len(found) // _SAMPLE, 1) | 1].copy()
    if not isinstance(device, GpuDevice):
        return ReadyPlan(lambda: start(0), 1, sample, workspace)
    count = int(min(max(_GRAPH_SECONDS / seconds, 2), _MOST_LAUNCHES))
    with device.capture() as graph:
        for which in range(count):
            start(which)
    return ReadyPlan(graph.launch, count, sample, workspace)


def time_in_turns(
    device: Device, plans: Sequence[ReadyPlan], rounds: int, until: float = math.inf
) -> list[float]:
    """Seconds of one product by each plan, the median of the rounds; one round before them is not counted.

    Each round takes the plans in another order: a GPU at its power limit is up to 5 % faster behind a plan that took
    little power, and one that always followed such a plan would seem better than it is. After a time (of
    ``time.monotonic``) no round is begun but the first that counts.
    """
    times: list[list[float]] = [[] for _ in plans]
    order, random = list(range(len(plans))), Random(0)
    for turn in range(rounds + 1):
        if turn > 1 and time.monotonic() > until:
            break
        random.shuffle(order)
        for index in order:
            seconds = _time(device, plans[index].launch)
            if turn:
                times[index].append(seconds / plans[index].count)
    return [statistics.median(spent) for spent in times]


def _time(device: Device, launch: Callable[[], None]) -> float:
    if isinstance(device, GpuDevice):
        begin = device.current_stream.record()
        launch()
        return device.current_stream.record().elapsed_ms(begin) / 1000
    began = time.perf_counter()
    launch()
    return time.perf_counter() - began
