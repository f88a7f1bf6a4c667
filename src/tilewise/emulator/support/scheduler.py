"""The scheduler: clusters one after another, how each begins, and of each the warps that can run, of any block."""

from __future__ import annotations

import platform

from tilewise.emulator.layout import BARRIER, BARRIERS, BLOCK, LAUNCH, WARP, Answer, Outcome, Status
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I64, MutableValue, Ptr, Routine, routine
from tilewise.emulator.support import flights
from tilewise.emulator.support.barriers import remove_lanes
from tilewise.emulator.support.cluster_parts import each_block, each_warp, find_block, find_warp

__all__: list[str] = []

_TURNS = 64  # that a cluster has before others of its worker run, if it may wait for those
_BACKWARDS, _SEEDED = 1, 2  # of the orders in which a round takes warps
_NEAREST = 0x1F80  # of MXCSR: no exception, rounded to the nearest, subnormal floats as they are
_POISON = 0xFF  # shared and local memory before it is written: NaN as a float


@routine("tw_enter", "i32", "ctx", "worker", "block")
def _run_with_own_floats(r: Routine) -> None:
    """Run clusters with floats rounded to the nearest and none of them flushed to zero, whatever the caller has set.

    NOTE: a thread begins with what the one that started it had, and keeps it: of a worker that was started by a
    library which flushes subnormal floats every later launch would be wrong.
    """
    if platform.machine().lower() in ("x86_64", "amd64"):
        callers, own = r.reserve("i32", 4), r.reserve("i32", 4)
        r.put(own, 0, _NEAREST, 4)
        r.call("llvm.x86.sse.stmxcsr", "void", callers)
        r.call("llvm.x86.sse.ldmxcsr", "void", own)
        outcome = _run_clusters(r)
        r.call("llvm.x86.sse.ldmxcsr", "void", callers)
    elif platform.machine().lower() in ("aarch64", "arm64"):
        control = r.call("llvm.aarch64.get.fpcr", "i64")
        r.call("llvm.aarch64.set.fpcr", "void", r.const("i64", 0))
        outcome = _run_clusters(r)
        r.call("llvm.aarch64.set.fpcr", "void", control)
    else:
        outcome = _run_clusters(r)
    r.give(outcome)


@routine("tw_work", "i32", "ctx", "worker", "block")
def _run_clusters(r: Routine) -> None:
    """Run clusters, those that are under way first, until one cannot go on or none is left: an ``Outcome``."""
    ctx, block = r["ctx"], r["block"]
    with r.loop():
        _give_if_stopped(r)
        with r.when(r.equals(r.field(block, BLOCK.ACTIVE, "i32"), 0)):
            number = choose_next(r)
            r.give_if(r.compare("icmp slt", number, 0), Outcome.FINISHED)
            r.atomic("add", r.at(ctx, LAUNCH.BEGUN), r.const("i64", 1), "monotonic")
            cluster, chosen = r.variable("i64", number), r.field(ctx, LAUNCH.CHOSEN, "ptr")
            with r.unless(r.is_null(chosen)):
                cluster.put(r.element(chosen, number, "i64"))
            begin_cluster(r, block, cluster.get())
        outcome = _run_cluster(r, block)
        r.give_if(r.differs(outcome, Outcome.FINISHED), outcome)
        r.put(block, BLOCK.ACTIVE, 0)
        r.atomic("add", r.at(ctx, LAUNCH.DONE), r.field(ctx, LAUNCH.CLUSTER, "i64"), "monotonic")


def _give_if_stopped(r: Routine) -> None:
    stop = r.load_atomic(r.at(r["ctx"], LAUNCH.STOP), "i32", "acquire")
    r.give_if(r.differs(stop, 0), Outcome.ENDED)


class _ClusterRoutine(Routine):
    """The routine that runs a cluster, by rounds of its warps."""

    order: Value
    warps: Value  # of a block
    count_of_warps: Value  # of the cluster
    begin: Value  # where a seeded round starts
    step: Value  # and how far it steps
    progress: MutableValue  # whether a warp ended or came to a barrier
    ready: MutableValue  # whether a warp was in a loop that waits for others

    def launch(self, offset: int, type_: str = "i64") -> Value:
        return self.field(self["ctx"], offset, type_)

    def begin_round(self) -> Value:
        """Begin a round; return its random number."""
        # Where a seeded round starts, and how far it steps: it meets every warp once, in an order of its own.
        seed, step = flights.advance_seed(self), self.variable("i64", 1)
        with self.when(self.equals(self.order, _SEEDED)):
            step.put(_choose_step(self, self.count_of_warps, seed >> 17))
        self.progress, self.ready = self.variable("i1", 0), self.variable("i1", 0)
        self.begin, self.step = seed >> 33, step.get()
        return seed

    def choose_warp(self, i: Value) -> tuple[Value, Value]:
        """Return the block and the warp that are next in the round's order."""
        count = self.count_of_warps
        backwards = count - 1 - i
        chosen = self.variable("i64", self.select(self.equals(self.order, _BACKWARDS), backwards, i))
        with self.when(self.equals(self.order, _SEEDED)):
            chosen.put((self.begin + i * self.step) % count)
        # NOTE: 32 bits are divided in a third of the time.
        rank = self.wide(self.narrow(chosen.get()) // self.narrow(self.warps))
        number = chosen.get() - rank * self.warps
        block = find_block(self, self["first"], rank)
        return block, find_warp(self, block, number)

    def run_warp(self, block: Value, warp: Value) -> None:
        """Run a warp until it stops, in the general build if it must."""
        general, fast = self.launch(LAUNCH.GENERAL, "ptr"), self.launch(LAUNCH.FAST, "ptr")
        with self.loop() as attempts:
            slow = self.differs(self.field(warp, WARP.GENERAL, "i32"), 0)
            code = self.select(slow, general, fast)
            self.give_if(self.is_null(code), Outcome.GENERAL)
            self.give_unless_zero(flights.maybe_complete_random(self, block=self["first"]), Outcome.ENDED)
            answer = self.call_at(code, "i32", self["ctx"], self["worker"], block, warp)
            attempts.leave(self.differs(answer, Answer.DEOPT))
            self.put(warp, WARP.GENERAL, 1)
        with self.when(self.equals(answer, Answer.WAIT)):
            self.progress.put(1)
            blocked = self.differs(self.field(warp, WARP.BLOCKED, "i32"), 0)
            self.put(warp, WARP.STATUS, self.select(blocked, Status.WAITING, Status.READY))
        with self.otherwise_when(self.equals(answer, Answer.EXIT)):
            self.progress.put(1)
            self.end_warp(block, warp)
        with self.otherwise_when(self.equals(answer, Answer.YIELD)):
            self.ready.put(1)
        with self.otherwise():
            self.give(Outcome.ENDED)

    def end_warp(self, block: Value, warp: Value) -> None:
        """Count a warp as done, and with the last one of a cluster complete what is in flight: it is finished."""
        remove_lanes(self, -1, block=block, warp=warp)
        self.put(warp, WARP.STATUS, Status.DONE)
        done = self.change(block, BLOCK.DONE, "add", 1)
        with self.when(self.equals(self.wide(done), self.warps)):
            left = self.change(self["first"], BLOCK.LEFT, "add", 1)
            with self.when(self.equals(self.wide(left), self.launch(LAUNCH.CLUSTER))):
                self.give_unless_zero(flights.complete_all_flights(self, block=self["first"]), Outcome.ENDED)
                self.give(Outcome.FINISHED)

    def give_if_stuck(self) -> None:
        """End the turn of a cluster that does not get on or, as it may wait for others, has had its turns."""
        first = self["first"]
        turns = self.change(first, BLOCK.TURNS, "add", self.wide(self.ready.get()), "i64")
        self.change(first, BLOCK.PROGRESS, "add", self.wide(self.progress.get()), "i64")
        total = self.variable("i64", 0)
        with each_block(self, first) as (_, block):
            total.add(self.field(block, BLOCK.PROGRESS, "i64"))
        count, seen = total.get(), self.field(first, BLOCK.SEEN, "i64")
        self.put(first, BLOCK.SEEN, count)
        still = self.equals(count, seen)
        with self.when(self.either(still, self.is_above(turns, _TURNS))):
            # Something in flight may be what the warps wait for.
            landed = flights.complete_one_flight(self, block=first)
            self.give_if(self.is_above(landed, 1), Outcome.ENDED)
            with self.unless(self.both(still, self.equals(landed, 1))):
                self.give_if(self.both(still, self.negation(self.ready.get())), Outcome.DEADLOCK)
                self.put(first, BLOCK.TURNS, self.const("i64", 0))
                self.give(Outcome.STUCK)


@routine("tw_run", "i32", "ctx", "worker")
def _run_cluster(r: _ClusterRoutine, first: Ptr) -> None:
    """Run a cluster's warps by turns until the cluster is complete or cannot go on: an ``Outcome``."""
    r.warps, r.order = r.launch(LAUNCH.WARPS), r.launch(LAUNCH.ORDER)
    r.count_of_warps = r.warps * r.launch(LAUNCH.CLUSTER)
    with r.loop():
        _give_if_stopped(r)
        seed = r.begin_round()
        with r.count(r.count_of_warps) as i:
            block, warp = r.choose_warp(i)
            with r.when(r.equals(r.field(warp, WARP.STATUS, "i32"), Status.READY)):
                r.run_warp(block, warp)
        r.give_unless_zero(flights.free_waiting(r, block=first), Outcome.ENDED)
        r.give_if_stuck()
        # Where clusters take turns, every other round is the last for now.
        pauses, tails = r.differs(r.launch(LAUNCH.PAUSES), 0), r.is_below(seed >> 60, 8)
        r.give_if(r.both(tails, pauses), Outcome.PAUSED)


@routine("tw_step", "i64")
def _choose_step(r: Routine, warps: I64, wish: I64) -> None:
    """Return a step like ``wish`` that meets every one of some warps: it and their number have no common divisor."""
    step = r.variable("i64", wish % warps)
    with r.loop():
        divided, divisor = r.variable("i64", warps), r.variable("i64", step.get())
        with r.loop() as euclid:
            a, b = divided.get(), divisor.get()
            euclid.leave(r.equals(b, 0))
            divided.put(b)
            divisor.put(a % b)
        r.give_if(r.equals(divided.get(), 1), step.get())
        step.add(1)


# -- the beginning of a cluster --------------------------------------------------------------------


@routine("tw_next", "i64", "ctx")
def choose_next(r: Routine) -> None:
    """Return the number of the cluster to start next, or -1 if all were started.

    In a sequence each is marked when it is started, so that those that are left can be started by number at any time.
    """
    ctx, total, one = r["ctx"], r.field(r["ctx"], LAUNCH.TOTAL, "i64"), r.const("i64", 1)
    sequence, started = r.field(ctx, LAUNCH.SEQUENCE, "ptr"), r.field(ctx, LAUNCH.STARTED, "ptr")
    following, lowest = r.at(ctx, LAUNCH.NEXT), r.at(ctx, LAUNCH.LOWEST)
    with r.when(r.is_null(sequence)):
        number = r.atomic("add", following, one, "monotonic")
        r.give(r.select(r.is_below(number, total), number, -1))
    with r.loop() as loop:
        ascending = r.differs(r.load_atomic(r.at(ctx, LAUNCH.BY_NUMBER), "i64", "monotonic"), 0)
        place = r.atomic("add", r.select(ascending, lowest, following), one, "monotonic")
        loop.leave(r.is_at_least(place, total))
        cluster = r.select(ascending, place, r.wide(r.element(sequence, place, "i32")))
        before = r.atomic("xchg", r.at(started, cluster), r.const("i8", 1), "monotonic")
        r.give_if(r.equals(before, 0), cluster)
    r.give(-1)


@routine("tw_begin", "void", "ctx")
def begin_cluster(r: Routine, first: Ptr, number: I64) -> None:
    """Make a cluster ready to run."""
    ctx = r["ctx"]
    threads = r.field(ctx, LAUNCH.THREADS, "i64") * r.field(ctx, LAUNCH.CLUSTER, "i64")
    r.put_fields(first, {BLOCK.PRESENT: r.narrow(threads), BLOCK.ARRIVED: 0, BLOCK.LEFT: 0})
    r.put(first, BLOCK.TURNS, r.const("i64", 0))
    with each_block(r, first) as (rank, block):
        _place_block(r, number, rank, block=block)
        _reset_block(r, block=block)
        r.call("tw_check_begin", "void", ctx, block, number)
    r.put(first, BLOCK.ACTIVE, 1)


@routine("tw_place", "void", "ctx", "block")
def _place_block(r: Routine, number: I64, rank: I64) -> None:
    """Record in a block which block of which cluster it is."""
    ctx = r["ctx"]
    fields = (LAUNCH.CLUSTERS_X, LAUNCH.CLUSTERS_Y, LAUNCH.CLUSTER_X, LAUNCH.CLUSTER_Y, LAUNCH.CLUSTER_Z)
    columns, rows, *size = (r.field(ctx, field, "i64") for field in fields)
    cluster = _coordinates(r, number, columns, rows)
    within = [r.variable("i64", 0) for _ in size]
    with r.when(r.differs(rank, 0)):  # most clusters have one block, and divisions take long
        for axis, coordinate in zip(within, _coordinates(r, rank, *size[:2]), strict=True):
            axis.put(coordinate)
    inside = [axis.get() for axis in within]
    x, y, z = (at * length + offset for at, length, offset in zip(cluster, size, inside, strict=True))
    targets = [BLOCK.X, BLOCK.Y, BLOCK.Z, BLOCK.CLUSTER_X, BLOCK.CLUSTER_Y, BLOCK.CLUSTER_Z]
    targets += [BLOCK.RANK_X, BLOCK.RANK_Y, BLOCK.RANK_Z, BLOCK.RANK]
    for offset, value in zip(targets, (x, y, z, *cluster, *inside, rank), strict=True):
        r.put(r["block"], offset, r.narrow(value))
    row = z * r.field(ctx, LAUNCH.GRID_Y, "i64") + y
    r.put(r["block"], BLOCK.NUMBER, row * r.field(ctx, LAUNCH.GRID_X, "i64") + x)


def _coordinates(r: Routine, number: Value, width: Value, height: Value) -> tuple[Value, Value, Value]:
    """Return the place of a number in a box that is counted along x first, then y, then z."""
    rest = number // width
    return number % width, rest % height, rest // height


@routine("tw_init", "void", "ctx", "block")
def _reset_block(r: Routine) -> None:
    """Make the memory of a block what it is before the block runs."""
    ctx, block = r["ctx"], r["block"]
    threads = r.narrow(r.field(ctx, LAUNCH.THREADS, "i64"))
    r.put(block, BLOCK.DONE, 0)
    r.put(block, BLOCK.LIVE, threads)
    r.fill(r.at(block, BLOCK.BARRIERS), 0, BARRIERS * BARRIER.SIZE)
    r.fill(r.field(block, BLOCK.SHARED, "ptr"), _POISON, r.field(ctx, LAUNCH.SHARED_BYTES, "i64"))
    local = r.field(ctx, LAUNCH.LOCAL_BYTES, "i64") * 32
    with each_warp(r, block) as (number, warp):
        zeros = (WARP.RESUME, WARP.STATUS, WARP.BLOCKED, WARP.MEETING, WARP.GENERAL, WARP.AWAITING)
        r.put_fields(warp, dict.fromkeys(zeros, 0))
        for field, size in ((WARP.CAME, 16), (WARP.COPIES, 256), (WARP.PRODUCTS, 64), (WARP.WAITING, 64)):
            r.fill(r.at(warp, field), 0, size)
        index = r.narrow(number)
        r.put(warp, WARP.INDEX, index)
        room = threads - (index << 5)
        some = (1 << (room & 31)) - 1
        r.put(warp, WARP.LIVE, r.select(r.is_below(room, 32), some, -1))
        r.fill(r.field(warp, WARP.LOCAL, "ptr"), _POISON, local)
