"""Run a build: memory for blocks and warps, worker threads, time limit, faults and deadlocks."""

from __future__ import annotations

import math
import os
import random
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.emulator import native
from tilewise.emulator.build import Build, Store, build_general
from tilewise.emulator.layout import (
    BARRIER,
    BARRIERS,
    BLOCK,
    FAULT,
    GENERIC,
    LAUNCH,
    OFFSETS,
    QUEUE,
    RANK_SHIFT,
    WARP,
    Outcome,
    Status,
)
from tilewise.emulator.lowering.memory import FIRST_HINT, HINT_BYTES
from tilewise.emulator.lowering.suspend import RESUME_APART
from tilewise.emulator.lowering.watch import WORKER_WATCH, Memories
from tilewise.emulator.running import workers
from tilewise.emulator.running.block_order import count_interleaved, order_clusters
from tilewise.emulator.running.checked_launch import Checks
from tilewise.emulator.running.fault_report import Range, Waiting, deadlock, fault, name_arguments
from tilewise.emulator.running.host_calls import HostCallHandler
from tilewise.emulator.running.plain_memory import PlainMemory
from tilewise.emulator.support.flights import CAPACITY, queue_bytes
from tilewise.emulator.support.mbarrier import describe
from tilewise.emulator.support.memory_access import ZERO_BYTES
from tilewise.emulator.support.wgmma_queue import PRODUCTS
from tilewise.errors import DeviceError, LaunchTimeout, TilewiseError
from tilewise.launch import Launch, readable

__all__ = ["Range", "RangeTable", "Runner"]

_ORDERS: dict[str | int, int] = {"eager": 0, "late": 1}
_SEEDED = 2
_STUCK_SECONDS = 5.0  # without any progress, when every warp only asks and waits
_CLOSED_SECONDS = 1.0  # the same, when all that they wait for is of their own clusters
_SNAPSHOT_SECONDS = 0.25  # between looks at the registers of blocks that do not get on
_SNAPSHOT_BYTES = 1 << 20
_RESIDENT_BYTES = 1 << 30  # of blocks that are there together, of all workers
_MOST_RESIDENT = 4_096  # such blocks, of each worker
# Clusters of a worker that may wait for others before the next ones are started by number.
_CHOSEN_FREELY = 16
_TURNS_FREELY = 8  # that may, before every other time they take their turns by number
_LOOK = 0.02  # seconds between looks of the waiting thread
_SPARE_BYTES = 1 << 24  # of blocks' memory that waits for another launch
_GENERAL = threading.Lock()


def _unlock() -> None:
    """In a forked child: replace the locks that threads of the parent may have held."""
    global _GENERAL, _RESIDENT_POOL
    _GENERAL, _RESIDENT_POOL = threading.Lock(), _ResidentPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


class RangeTable:
    """The memory that launches may touch, sorted, as compiled code searches it. Launches may share one."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = sorted(ranges, key=lambda item: item.start)
        self.memory = PlainMemory(16 * len(ranges) + 64)
        ends = [(item.start, item.start + item.size) for item in self.ranges]
        self.memory.bytes[: 16 * len(ranges)] = np.array(ends, np.uint64).view(np.uint8).reshape(-1)


def _block_bytes(build: Build) -> int:
    """Return the bytes from one block of a cluster to the next."""
    return BLOCK.WARPS + build.warps * build.stride


class Resident:
    """The memory of a resident cluster: for each block its shared memory, warps and local memory."""

    def __init__(
        self, build: Build, shared_bytes: int, blocks: int, flights: int, checks: Checks | None = None
    ) -> None:
        self.blocks = blocks
        self.key: tuple[Any, ...] = ()  # of the pool that it belongs to
        self.queue = PlainMemory(queue_bytes(flights))
        self.queue.set(QUEUE.CAPACITY, flights)
        self.size = blocks * (build.warps * (build.stride + 32 * build.local_bytes) + shared_bytes)
        self.size += queue_bytes(flights)
        self.stride = _block_bytes(build)
        self.memory = PlainMemory(blocks * self.stride)
        room = -(-(shared_bytes + 64) // 64) * 64
        self.shared = PlainMemory(blocks * room)
        self.local = PlainMemory(blocks * build.warps * 32 * build.local_bytes)
        for rank in range(blocks):
            start = rank * self.stride
            self.memory.set(start + BLOCK.SHARED, self.shared.address + rank * room)
            self.memory.set(start + BLOCK.FIRST, self.memory.address)
            self.memory.set(start + BLOCK.FLIGHTS, self.queue.address if flights else 0)
            for warp in range(build.warps):
                at = start + BLOCK.WARPS + warp * build.stride
                local = (rank * build.warps + warp) * 32 * build.local_bytes
                self.memory.set(at + WARP.LOCAL, self.local.address + local)

        self.checked = checks.attach(self.memory, self.stride, shared_bytes) if checks else []

    def waiting(self, build: Build) -> list[Waiting]:
        """List the warps that are not done, and what their lanes wait for."""
        found = []
        get = self.memory.get
        for rank, warp in product(range(self.blocks), range(build.warps)):
            start = rank * self.stride
            at = start + BLOCK.WARPS + warp * build.stride
            if get(at + WARP.STATUS) == Status.DONE:
                continue
            item = Waiting(warp, self.index(rank), get(at + WARP.LIVE), get(at + WARP.LOOP))
            for i in range(BARRIERS):
                barrier = start + BLOCK.BARRIERS + i * BARRIER.SIZE
                expected = get(barrier + BARRIER.EXPECTED)
                arrived = get(barrier + (BARRIER.UNITS if expected else BARRIER.THREADS))
                why = f"at barrier {i}, where {arrived} of {expected or get(start + BLOCK.LIVE)} threads have come"
                item.add(get(at + WARP.WAITING + 4 * i), why, get(at + WARP.LINES + 4 * i))
            why = f"at barrier.cluster, where {get(BLOCK.ARRIVED)} of {get(BLOCK.PRESENT)} threads have come"
            item.add(get(at + WARP.HELD), why, get(at + WARP.HELD_LINE))
            item.add(get(at + WARP.MEETING), "for other lanes of the warp", get(at + WARP.LINE))
            products = at + WARP.PRODUCTS
            if groups := get(products + PRODUCTS.AWAITED):
                why = f"for its warpgroup's four warps to have committed {groups} groups of wgmma each"
                item.add(item.live, why, get(products + PRODUCTS.LINE))
            if get(at + WARP.RESUME) == RESUME_APART:
                why = "at a barrier in divergent code for other lanes"
                item.add(get(at + WARP.GATE), why, get(at + WARP.GATE_LINE))
            if lanes := get(at + WARP.AWAITING):
                item.add(lanes, self._awaited(rank, get(at + WARP.AWAITED)), get(at + WARP.AWAITED_LINE))
            found.append(item)
        return found

    def _awaited(self, rank: int, address: int) -> str:
        """Describe what the mbarrier that a warp waits at still lacks."""
        named = (address >> RANK_SHIFT) - 1
        offset, owner = address & OFFSETS, named if named >= 0 else rank
        room = self.shared.bytes.size // self.blocks
        if owner >= self.blocks or offset + 8 > room:
            return "at an mbarrier that is not there"
        return describe(offset, self.shared.get(owner * room + offset, 8))

    def end_wait(self, build: Build) -> None:
        """Resume the lanes that wait for the end of the previous launch."""
        get, put = self.memory.get, self.memory.set
        for rank, warp in product(range(self.blocks), range(build.warps)):
            at = rank * self.stride + BLOCK.WARPS + warp * build.stride
            if lanes := get(at + WARP.DEPENDENT):
                put(at + WARP.DEPENDENT, 0, 4)
                put(at + WARP.BLOCKED, get(at + WARP.BLOCKED) & ~lanes, 4)
                if get(at + WARP.STATUS) == Status.WAITING:
                    put(at + WARP.STATUS, Status.READY, 4)

    def index(self, rank: int = 0) -> tuple[int, int, int]:
        """Return the index of a block of the cluster in the grid."""
        at, get = rank * self.stride, self.memory.get
        return get(at + BLOCK.X), get(at + BLOCK.Y), get(at + BLOCK.Z)

    @property
    def progress(self) -> int:
        """The sum of the blocks' progress counts."""
        return sum(self.memory.get(rank * self.stride + BLOCK.PROGRESS, 8) for rank in range(self.blocks))


def _number(resident: Resident) -> int:
    """Return the number of a cluster's first block in the grid."""
    return resident.memory.get(BLOCK.NUMBER, 8)


class _ProgressWatch:
    """Detects progress of waiting blocks, by their progress counts and sometimes a checksum of their memory."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.picture, self.taken = 0, 0.0
        self.lively = False  # whether they counted anything since the last look

    def changed(self, residents: list[Resident]) -> bool:
        counts = [cluster.progress for cluster in residents]
        self.lively, self.counts = counts != self.counts, counts
        if self.lively or time.monotonic() - self.taken < _SNAPSHOT_SECONDS:
            return self.lively
        before, self.taken, self.picture = self.picture, time.monotonic(), 0
        for cluster in residents:
            if cluster.memory.bytes.size <= _SNAPSHOT_BYTES:
                self.picture = zlib.crc32(cluster.memory.bytes.data, self.picture)
        return self.picture != before


class _ResidentPool:
    """The memory of finished clusters, reused by later launches of the same kernel.

    A cluster that has finished leaves its memory to the next one of its launch, and so it may to one of
    another launch. What was interrupted is not kept.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spares: OrderedDict[tuple[Any, ...], list[Resident]] = OrderedDict()
        self._bytes = 0

    def take(self, build: Build, shared_bytes: int, blocks: int, flights: int) -> Resident:
        # NOTE: the symbol alone is a digest cut short; memory of another size must never be found.
        key = build.symbol, build.warps, build.stride, build.local_bytes, shared_bytes, blocks, flights
        with self._lock:
            if found := self._spares.get(key):
                self._bytes -= found[-1].size
                return found.pop()
        resident = Resident(build, shared_bytes, blocks, flights)
        resident.key = key
        return resident

    def give(self, resident: Resident) -> None:
        with self._lock:
            self._spares.setdefault(resident.key, []).append(resident)
            self._spares.move_to_end(resident.key)
            self._bytes += resident.size
            while self._bytes > _SPARE_BYTES:
                _, dropped = self._spares.popitem(last=False)
                self._bytes -= sum(item.size for item in dropped)


_RESIDENT_POOL = _ResidentPool()


@dataclass(slots=True)
class Runner:
    """One launch of a build. ``keep`` is anything that must live as long as the launch may touch memory."""

    build: Build
    launch: Launch
    packed: Sequence[bytes]
    ranges: Sequence[Range] | RangeTable
    globals: Sequence[int]  # the addresses of the build's
    constants: Sequence[npt.NDArray[np.uint8]] = ()  # what the build's hold
    threads: int = 1
    order: str | int = "eager"
    timeout: float | None = None
    multiprocessors: int = 1
    store: Store | None = None
    progress: Callable[[int, int], None] | None = None
    keep: object = None
    watch: Memories | None = None  # for a build that counts or checks
    chosen: Sequence[int] | None = None  # the clusters to run, if not all of the grid
    # Lets the launch before end, which is taken to be under way still.
    awaited: Callable[[], None] | None = None
    workspace: int = 0  # of a cooperative launch: the address of the memory that its blocks meet by
    lenient: bool = False  # whether what GPUs usually let pass does not end it
    labels: Sequence[str] = ()  # what to call the arguments, one for each of ``packed``

    def __call__(self) -> None:
        """Run every block, or raise what went wrong."""
        work = _LaunchRun(self)
        if work.total:
            work.run()


class _LaunchRun:
    def __init__(self, runner: Runner) -> None:
        self.runner, self.build = runner, runner.build
        build, launch = self.build, runner.launch
        self.total = launch.blocks
        self.cluster = launch.cluster or (1, 1, 1)
        self.blocks = math.prod(self.cluster)  # of a cluster
        self.clusters = self.total // self.blocks
        self.chosen = None if runner.chosen is None else np.array(runner.chosen, np.int64)
        if self.chosen is not None:
            self.clusters = len(self.chosen)
            self.total = self.clusters * self.blocks
        self.fault = PlainMemory(FAULT.BYTES)
        self.parameters = PlainMemory(build.parameter_bytes + 64)
        for (offset, size), data in zip(build.parameters, runner.packed, strict=True):
            self.parameters.bytes[offset : offset + size] = np.frombuffer(data, np.uint8)
        self.constants = PlainMemory(build.constant_bytes + 64)
        for (_, start), content in zip(build.constants, runner.constants, strict=True):
            self.constants.bytes[start : start + len(content)] = content
        given = runner.ranges
        self.table_of_ranges = given if isinstance(given, RangeTable) else RangeTable(given)
        self.ranges = self.table_of_ranges.ranges
        self.table = PlainMemory(8 * len(runner.globals) + 64)
        for i, address in enumerate(runner.globals):
            self.table.set(8 * i, address)
        self.zeros = PlainMemory(ZERO_BYTES)
        self.shared_bytes = build.shared_bytes + launch.shared
        windows = (
            (GENERIC.CONST, self.constants.address, build.constant_bytes),
            (GENERIC.PARAM, self.parameters.address, build.parameter_bytes),
        )
        self.host = HostCallHandler(build, self.ranges, self.shared_bytes, windows)
        self.sequence = order_clusters(runner.order, self.clusters)
        self.started = np.zeros(0 if self.sequence is None else self.clusters, np.uint8)
        self.interleaved = count_interleaved(runner.order, self.clusters)
        self.context = self._context()
        self.error: TilewiseError | None = None
        self.lock = threading.Lock()
        self.over: list[int] = []  # workers that have ended
        self.wake: SimpleQueue[None] = SimpleQueue()
        self.moved = time.monotonic()
        self.work = native.support()

    def _context(self) -> PlainMemory:
        build, launch = self.build, self.runner.launch
        assert build.code is not None
        clusters = [size // part for size, part in zip(launch.grid, self.cluster, strict=True)]
        axes = {
            (LAUNCH.GRID_X, LAUNCH.GRID_Y, LAUNCH.GRID_Z): launch.grid,
            (LAUNCH.CLUSTER_X, LAUNCH.CLUSTER_Y, LAUNCH.CLUSTER_Z): self.cluster,
            (LAUNCH.CLUSTERS_X, LAUNCH.CLUSTERS_Y, LAUNCH.CLUSTERS_Z): clusters,
        }
        words = {
            offset: size for places, sizes in axes.items() for offset, size in zip(places, sizes, strict=True)
        }
        words |= {
            LAUNCH.TOTAL: self.clusters,
            LAUNCH.CLUSTER: self.blocks,
            LAUNCH.BLOCK_STRIDE: _block_bytes(build),
            LAUNCH.EXPLICIT: int(launch.cluster is not None),
            LAUNCH.PARAMS: self.parameters.address,
            LAUNCH.PARAM_BYTES: build.parameter_bytes,
            LAUNCH.RANGES: self.table_of_ranges.memory.address,
            LAUNCH.RANGE_COUNT: len(self.ranges),
            LAUNCH.CONST: self.constants.address,
            LAUNCH.CONST_BYTES: build.constant_bytes,
            LAUNCH.SHARED_BYTES: self.shared_bytes,
            LAUNCH.LOCAL_BYTES: build.local_bytes,
            LAUNCH.FAST: build.code.address(build.symbol),
            LAUNCH.GENERAL: build.general.address(build.symbol + "g") if build.general else 0,
            LAUNCH.FAULT: self.fault.address,
            LAUNCH.ORDER: _ORDERS.get(self.runner.order, _SEEDED),
            LAUNCH.WARPS: build.warps,
            LAUNCH.THREADS: launch.threads_per_block,
            LAUNCH.WARP_STRIDE: build.stride,
            LAUNCH.DYNAMIC_BYTES: launch.shared,
            LAUNCH.MULTIPROCESSORS: self.runner.multiprocessors,
            LAUNCH.GLOBALS: self.table.address,
            LAUNCH.HOST: self.host.entry,
            LAUNCH.LENIENT: int(self.runner.lenient),
            LAUNCH.ZEROS: self.zeros.address,
            LAUNCH.WATCH: self.runner.watch.launch if self.runner.watch else 0,
            LAUNCH.CHOSEN: 0 if self.chosen is None else int(self.chosen.ctypes.data),
            LAUNCH.SEQUENCE: 0 if self.sequence is None else int(self.sequence.ctypes.data),
            LAUNCH.STARTED: int(self.started.ctypes.data),
            LAUNCH.PREREQUISITES: int(self.runner.awaited is not None),
            LAUNCH.WORKSPACE: self.runner.workspace,
            LAUNCH.PAUSES: int(self.interleaved > 1),
        }
        return PlainMemory(LAUNCH.SIZE, words)

    # -- the waiting thread -----------------------------------------------------------------------
    def run(self) -> None:
        begun = 0
        started = time.monotonic()
        try:
            for number in range(max(1, min(self.runner.threads, self.clusters))):
                try:
                    workers.start(partial(self._worker, number), partial(self._end, number))
                except RuntimeError:  # the system gives no more threads: fewer will do
                    if not begun:
                        raise DeviceError("the system has no thread left to run a kernel on") from None
                    break
                begun += 1
            # NOTE: what workers did is counted by them: Ctrl-C may come between any two steps here.
            while len(self.over) < begun:
                if not self._await_worker_end():
                    self._check_timeout(started)
        finally:
            self.context.set(LAUNCH.STOP, 1, 4)
            while len(self.over) < begun:
                self._await_worker_end()
            self.host.write_out()
        if error := self.error or self.host.error:
            raise error
        if self.fault.get(FAULT.KIND):
            record, assertions = self.fault.bytes.tobytes(), self.host.assertions
            runner = self.runner
            ranges = name_arguments(self.ranges, runner.packed, runner.labels)
            raise fault(self.build, record, ranges, self.shared_bytes, assertions, runner.launch)

    def _end(self, number: int) -> None:
        self.over.append(number)
        self.wake.put(None)

    def _await_worker_end(self) -> bool:
        """Wait a moment for a worker to end; whether one did."""
        try:
            self.wake.get(timeout=_LOOK)
        except Empty:
            return False
        return True

    def _check_timeout(self, started: float) -> None:
        """End the launch if its time is over or its log is full; report progress."""
        now = time.monotonic()
        timeout = self.runner.timeout
        if timeout is not None and now - started > timeout and not self.error:
            done = self.context.get(LAUNCH.DONE, 8)
            late = LaunchTimeout(
                f"kernel {readable(self.build.entry)} did not end within {timeout:g} s: {done:,} of {self.total:,} "
                "blocks were done; give more time, or look for a loop that does not end"
            )
            self._fail(late)
        if self.runner.watch is not None and self.runner.watch.is_full:
            self.context.set(LAUNCH.STOP, 1, 4)
        if self.runner.progress:
            self.runner.progress(self.context.get(LAUNCH.DONE, 8), self.total)

    def _fail(self, error: TilewiseError) -> None:
        with self.lock:
            self.error = self.error or error
        self.context.set(LAUNCH.STOP, 1, 4)

    def _deadlock(self, resident: Resident, asks: bool = False) -> TilewiseError:
        return deadlock(self.build, resident.index(), resident.waiting(self.build), asks, self.cluster)

    def _new_resident(self) -> Resident:
        """Return the memory of one more resident cluster."""
        flights = 0
        if self.build.flies:
            flights = 1 if self.runner.order == "eager" else CAPACITY
        if isinstance(self.runner.watch, Checks):
            return Resident(self.build, self.shared_bytes, self.blocks, flights, self.runner.watch)
        return _RESIDENT_POOL.take(self.build, self.shared_bytes, self.blocks, flights)

    # -- workers ----------------------------------------------------------------------------------
    def _worker(self, number: int) -> None:
        try:
            self._work(number)
        except MemoryError:
            unit, kernel = "block" if self.blocks == 1 else "cluster", readable(self.build.entry)
            self._fail(DeviceError(f"the host's memory does not hold another {unit} of kernel {kernel}"))
        except TilewiseError as error:
            self._fail(error)
        except BaseException as error:  # handed to the thread that waits, which raises it
            failure = DeviceError(f"the emulator failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._fail(failure)

    def _work(self, number: int) -> None:
        own = PlainMemory(FIRST_HINT + HINT_BYTES * self.build.hints)
        seeded = not isinstance(self.runner.order, str)
        seed = self.runner.order if isinstance(self.runner.order, int) else 0
        own.set(WORKER_WATCH, self.runner.watch.worker() if self.runner.watch else 0)
        own.set(16, (seed * 0x9E37_79B9_7F4A_7C15 + number + 1) % 2**64)
        awake, waiting = [self._new_resident()], list[Resident]()
        most = self._most_residents(awake[0])
        if most < 2:  # no room for one that another one waits for
            self.context.set(LAUNCH.BY_NUMBER, 1, 8)
        awake += [self._new_resident() for _ in range(min(self.interleaved, most) - 1)]
        draw, watch, finished, by_number = random.Random(f"{seed} {number}"), _ProgressWatch(), False, False
        while awake:
            at = draw.randrange(len(awake)) if seeded and not by_number else -1
            outcome = self.work(self.context.address, own.address, awake[at].memory.address)
            if outcome == Outcome.FINISHED:
                resident = awake.pop(at)
                if not resident.checked:
                    _RESIDENT_POOL.give(resident)
                finished, self.moved = True, time.monotonic()
            elif outcome == Outcome.STUCK:
                waiting.append(awake.pop(at))
            elif outcome == Outcome.GENERAL:
                self._generalize()
            elif outcome == Outcome.DEADLOCK:
                if not self.context.get(LAUNCH.PREREQUISITES):
                    raise self._deadlock(awake[at])
                waiting.append(awake.pop(at))
            elif outcome != Outcome.PAUSED:
                return
            if not awake:
                # The last of the list goes first. Turns in vain take long: where each waits for the one before it,
                # turns by number set all of them free.
                by_number = len(waiting) > _TURNS_FREELY and not by_number
                waiting.sort(key=_number, reverse=by_number or self.runner.order != "late")
                if not finished:
                    self._widen_or_wait(waiting, watch)
                awake, waiting, finished = waiting, [], False

    def _most_residents(self, resident: Resident) -> int:
        """Return how many such clusters one worker may have resident; of a cooperative launch all."""
        if self.runner.launch.cooperative:
            return self.clusters
        room = _RESIDENT_BYTES // (self.runner.threads * resident.size + 1)
        return max(min(_MOST_RESIDENT // self.blocks, room), 1)

    def _widen_or_wait(self, residents: list[Resident], watch: _ProgressWatch) -> None:
        """Start as many clusters again, as all of this worker's may wait for others; else sleep or report deadlock."""
        if watch.changed(sorted(residents, key=_number)):  # as they take turns, their order changes
            self.moved = time.monotonic()
        most = self._most_residents(residents[0])
        fresh = min(len(residents), most - len(residents), self.clusters - self.context.get(LAUNCH.BEGUN, 8))
        if fresh > 0:
            # NOTE: a block that waits for blocks of lower numbers, which GPUs start first, must get them in any order.
            if len(residents) + fresh > min(_CHOSEN_FREELY, most // 2):
                self.context.set(LAUNCH.BY_NUMBER, 1, 8)
            residents += [self._new_resident() for _ in range(fresh)]
            self.moved = time.monotonic()
        elif self.runner.awaited and self.context.get(LAUNCH.PREREQUISITES):
            self.runner.awaited()
            self.context.set(LAUNCH.PREREQUISITES, 0)
            for resident in residents:
                resident.end_wait(self.build)
            self.moved = time.monotonic()
        elif self._is_stuck(residents):
            raise self._deadlock(min(residents, key=_number), asks=True)
        elif not watch.lively:
            time.sleep(0.0005)

    def _is_stuck(self, residents: list[Resident]) -> bool:
        """Whether no cluster gets on: soon if each waits within itself, else after long without a timeout."""
        idle = time.monotonic() - self.moved
        if idle < _CLOSED_SECONDS:
            return False
        if not any(item.free for cluster in residents for item in cluster.waiting(self.build)):
            return True
        return self.runner.timeout is None and idle > _STUCK_SECONDS

    def _generalize(self) -> None:
        # NOTE: launches share a build, so a lock of one launch would not do: a second general build would
        # take the place of the first while warps of another launch run in that one.
        with _GENERAL:
            if self.build.general is None:
                build_general(self.build, self.runner.store)
            assert self.build.general is not None
            self.context.set(LAUNCH.GENERAL, self.build.general.address(self.build.symbol + "g"))
