"""What orders accesses in a checked launch: barriers of a block and of a cluster, fences, and sync variables.

Arriving at a barrier releases into its clock, passing it acquires; a sync variable has the clock of its address.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import CLOCKS, SYNC, WHO
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.checking.copies import complete_phase, with_rank
from tilewise.emulator.checking.vector_clocks import acquire, join, release, sync_by_one, widen
from tilewise.emulator.layout import BARRIER, BLOCK, GENERIC, WARP, WINDOW, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, Ptr
from tilewise.emulator.support.checked import serial_of
from tilewise.emulator.support.cluster_parts import each_block

__all__: list[str] = []

_CLUSTER_BARRIER = CLOCKS.BARRIERS_OF_BLOCK - 1


def _arrived_phase(r: CheckRoutine, number: Value | int) -> Value:
    """Pointer to the phase of a barrier that a warp arrived in; behind the last barrier's, to the number and 1 more of
    the barrier that it waits at, or 0."""
    row = r.index() * (CLOCKS.BARRIERS_OF_BLOCK + 1)
    return r.item(r.table(CLOCKS.ARRIVED_PHASE), row + number, 4)


def _barrier_slots(r: CheckRoutine, number: Value) -> tuple[Value, Value]:
    """The index of a barrier in the cluster's tables, and the pointer to the phase that this warp arrived in."""
    rank = r.wide(r.field(r["block"], BLOCK.RANK, "i32"))
    whole = r.equals(number, _CLUSTER_BARRIER)
    owner = r.select(whole, 0, rank)
    return owner * CLOCKS.BARRIERS_OF_BLOCK + number, _arrived_phase(r, number)


def _slot_of_phase(r: CheckRoutine, which: Value, phase: Value) -> Value:
    """The index of a barrier's phase in the tables that have two of each."""
    return which * 2 + r.wide(phase & 1)


def _barrier_clock(r: CheckRoutine, slot: Value) -> Value:
    return r.at(r.table(CLOCKS.BARRIERS), slot * r.clock_bytes())


def _fence_clock(r: CheckRoutine, slot: Value, wide: int) -> Value:
    """The clock of what fences of one scope before a barrier covered: warps behind it may release that too."""
    row = slot * 2 + wide
    return r.at(r.table(CLOCKS.FENCES), row * r.clock_bytes())


@check_routine("tw_check_arrive")
def _arrive(r: CheckRoutine, number: I32, waits: I32, goes_on: I32, relaxed: I32, fences: I32) -> None:
    """A warp arrives at a barrier: 0 to 15 of its block, 16 of its cluster.

    ``goes_on`` is whether some of its lanes do anything before they pass. ``relaxed``: only
    what a fence covers is released.

    What the warp read from others before counts from now on as if a fence had followed: programs that let
    one thread wait for a flag, and the others for that thread at a barrier, hold on every GPU. What fences
    before the barrier covered, a flag set behind it releases: all threads fence, synchronise, and one sets it.
    """
    with r.when(r.differs(fences, 0)):
        for wide in (0, 1):
            acquire(r, r.scope_clock(CLOCKS.PENDING, wide))
            widen(r, r.scope_clock(CLOCKS.RELEASED, wide))
    which, came = _barrier_slots(r, r.wide(number))
    with r.when(r.differs(waits, 0)):
        r.put(_arrived_phase(r, CLOCKS.BARRIERS_OF_BLOCK), 0, number + 1)
    phases = r.item(r.table(CLOCKS.PHASES), which, 4)
    own = r.item(r.at(r["block"], BLOCK.BARRIERS), number & 15, BARRIER.SIZE)
    arrived = r.variable("i32", r.field(own, BARRIER.THREADS, "i32"))
    with r.when(r.equals(number, _CLUSTER_BARRIER)):
        arrived.put(r.field(r.field(r["block"], BLOCK.FIRST, "ptr"), BLOCK.ARRIVED, "i32"))
        _release_other_blocks(r)
    with r.when(r.equals(arrived.get(), 0)):
        fresh = _slot_of_phase(r, which, r.change(phases, 0, "add", 1))
        r.fill(_barrier_clock(r, fresh), 0, r.clock_bytes())
        with r.when(r.differs(fences, 0)):
            r.fill(_fence_clock(r, fresh, 0), 0, r.clock_bytes() * 2)
        r.put(r.item(r.table(CLOCKS.ENDS), fresh, 4), 0, 0)
    phase = r.field(phases, 0, "i32")
    r.put(came, 0, phase)
    slot = _slot_of_phase(r, which, phase)
    clock = _barrier_clock(r, slot)
    with r.when(r.differs(relaxed, 0)):
        join(r, clock, r.scope_clock(CLOCKS.RELEASED, 1))
    with r.otherwise():
        release(r, clock, goes_on)
    with r.when(r.differs(fences, 0)):
        for wide in (0, 1):
            join(r, _fence_clock(r, slot, wide), r.scope_clock(CLOCKS.RELEASED, wide))


def _release_other_blocks(r: CheckRoutine) -> None:
    """Clear this warp's uses of other blocks' memory as it arrives at the cluster's barrier: they may exit behind it.

    To arrive is enough, even if the barrier orders nothing.
    """
    with each_block(r, r.field(r["block"], BLOCK.FIRST, "ptr")) as (_, other):
        user = r.field(other, BLOCK.USER, "i32") >> WHO.LANE_BITS
        with r.when(r.equals(user, serial_of(r))):
            r.put(other, BLOCK.USED, 0)


@check_routine("tw_check_through")
def _pass_barrier(r: CheckRoutine, cluster: I32, fences: I32) -> None:
    """A warp passes the barrier that it waits at, or that of its cluster: it acquires what others released there."""
    number = r.variable("i32", _CLUSTER_BARRIER + 1)
    with r.when(r.equals(cluster, 0)):
        waiting = _arrived_phase(r, CLOCKS.BARRIERS_OF_BLOCK)
        number.put(r.field(waiting, 0, "i32"))
        r.give_if(r.equals(number.get(), 0))
        # NOTE: where lanes are apart, others of the warp may come by while these still wait.
        held = r.element(r.at(r["warp"], WARP.WAITING), number.get() - 1, "i32")
        r.give_if(r.differs(held, 0))
        r.put(waiting, 0, 0)
    with r.otherwise(), r.when(r.differs(r.field(r["warp"], WARP.HELD, "i32"), 0)):
        r.give()
    which, came = _barrier_slots(r, r.wide(number.get() - 1))
    slot = _slot_of_phase(r, which, r.field(came, 0, "i32"))
    clock, end = _barrier_clock(r, slot), r.item(r.table(CLOCKS.ENDS), slot, 4)
    # When the first warp passes, the phase ends: the barrier's clock covers nothing beyond it.
    with r.when(r.equals(r.field(end, 0, "i32"), 0)):
        now = r.now()
        r.put(end, 0, now)
        r.tick()
        with r.count(r.clock_width()) as i:
            place = r.item(clock, i, 4)
            r.put(place, 0, r.intrinsic("llvm.umin", r.field(place, 0, "i32"), now))
    r.mark_synced(r.field(end, 0, "i32"))
    # NOTE: by the letter it takes a fence; compilers let a barrier do.
    r.put(r.slot_of_warp(CLOCKS.PUBLISHED), 0, r.field(end, 0, "i32"))
    acquire(r, clock)
    with r.when(r.differs(fences, 0)):
        for wide in (0, 1):
            join(r, r.scope_clock(CLOCKS.RELEASED, wide), _fence_clock(r, slot, wide))


# -- fences and sync variables ---------------------------------------------------------------------
@check_routine("tw_check_fence")
def _fence(r: CheckRoutine, mask: I32, wide: I32) -> None:
    """A fence of some scope: relaxed accesses before it acquire, those after it release."""
    far, lane = r.differs(wide, 0), r.lone_lane(mask)
    for scope in (0, 1):
        with r.when(far if scope else Value("i1", "true")):
            acquire(r, r.scope_clock(CLOCKS.PENDING, scope), lane)
            release(r, r.scope_clock(CLOCKS.RELEASED, scope), 1, lane, 1)


@check_routine("tw_check_proxy")
def _proxy_fence(r: CheckRoutine, accesses: I32) -> None:
    """A proxy fence: the asynchronous proxy sees this warp's accesses; without ``accesses``, its mbarriers alone."""
    r.put(r.slot_of_warp(CLOCKS.PUBLISHED), 0, r.now())
    with r.when(r.differs(accesses, 0)):
        r.put(r.slot_of_warp(CLOCKS.FENCED), 0, r.now())
    r.tick()


@check_routine("tw_check_sync")
def _sync(r: CheckRoutine, addresses: Ptr, mask: I32, space: I32, how: I32) -> None:
    """Some lanes synchronise by the sync variables at their addresses; ``how`` is of ``ACQUIRE``, ``RELEASE``, …"""
    alone = r.lone_lane(mask)
    before = r.variable("i64", -1)
    with r.each_lane(mask) as lane:
        given = r.element(addresses, lane, "i64")
        away = given - GENERIC.SHARED
        generic = r.both(r.equals(space, 0), r.is_below(away, WINDOW))
        inside, address = generic | r.equals(space, Space.SHARED), r.select(generic, away, given)
        address = r.select(inside, with_rank(r, address), address)
        shared = r.cast("zext", inside, "i32")
        with r.when(r.differs(before.get(), address)):
            before.put(address)
            with r.when(r.both(inside, r.has_any(how, SYNC.PHASE_OVER))):
                complete_phase(r, address + 1)
            with r.unless(inside):
                serial = r.wide(r.field(r["block"], BLOCK.SERIAL, "i32"))
                near = address ^ ((serial + 1) << 40)
                sync_by_one(r, shared, near, how, 0, alone)
            with r.unless(r.both(r.negation(inside), r.has_any(how, SYNC.BLOCK_SCOPE))):
                sync_by_one(r, shared, address, how, 1, alone)
