"""Fences and sync variables of a checked launch: release into and acquire from the clock of an address."""

from __future__ import annotations

from tilewise.emulator.check_layout import CHECK, CLOCKS, SYNC, SYNC_VAR_KEY
from tilewise.emulator.checking.async_copies import complete_phase
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.checking.vector_clocks import acquire, join, release
from tilewise.emulator.layout import BLOCK, GENERIC_SHARED, RANK_SHIFT, WINDOW, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, Ptr, routine

__all__ = ["sync_by_one"]

_HASH_FACTOR = 0x9E3779B97F4A7C15


@check_routine("tw_check_fence")
def _fence(r: CheckRoutine, mask: I32, wide: I32) -> None:
    """A fence of the block's scope, or of a wider one: relaxed accesses before it acquire, those after it
    release."""
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


@routine("tw_check_spot", "ptr", "ctx", "block")
def _find_sync_var(r: CheckRoutine, shared: I32, key: I64) -> None:
    """Key → clock of a sync variable, in the hash table of its cluster or of the launch; a new one is entered."""
    clocks, state, inside = r.clocks(), r.state(), r.differs(shared, 0)
    here, everywhere = r.field(clocks, CLOCKS.SYNC_VARS, "ptr"), r.field(state, CHECK.SYNC_VARS, "ptr")
    start = r.select(inside, here, everywhere)
    few, many = r.field(clocks, CLOCKS.SYNC_VAR_COUNT, "i64"), r.field(state, CHECK.SYNC_VAR_COUNT, "i64")
    count = r.select(inside, few, many)
    row = r.clock_bytes()
    size, wanted = r.op("add", row, SYNC_VAR_KEY), r.op("add", key, 1)
    slot = r.variable("i64", r.op("lshr", r.op("mul", wanted, _HASH_FACTOR), 40))
    last = r.op("sub", count, 1)
    with r.count(count):
        at = r.op("and", slot.get(), last)
        slot.put(r.op("add", at, 1))
        spot = r.at(start, r.op("mul", at, size))
        there = r.field(spot, 0, "i64")
        with r.when(r.equals(there, 0)):
            r.put(spot, 0, wanted)
            r.fill(r.at(spot, SYNC_VAR_KEY), 0, row)
            r.give(r.at(spot, SYNC_VAR_KEY))
        with r.when(r.equals(there, wanted)):
            r.give(r.at(spot, SYNC_VAR_KEY))
    # NOTE: all are taken. Two addresses that share one seem to synchronise: races may be missed, none made up.
    r.give(r.at(r.at(start, r.op("mul", r.op("and", slot.get(), last), size)), SYNC_VAR_KEY))


def _has_flag(r: CheckRoutine, flag: int) -> Value:
    return r.differs(r.op("and", r["how"], flag), 0)


@check_routine("tw_check_sync")
def _sync(r: CheckRoutine, addresses: Ptr, mask: I32, space: I32, how: I32) -> None:
    """Some lanes synchronise by the sync variables at their addresses; ``how`` is of ``ACQUIRE``, ``RELEASE``, …"""
    alone = r.lone_lane(mask)
    before = r.variable("i64", -1)
    with r.each_lane(mask) as lane:
        address = r.variable("i64", r.element(addresses, lane, "i64"))
        shared = r.variable("i32", 0)
        away = r.op("sub", address.get(), GENERIC_SHARED)
        with r.when(r.both(r.equals(space, 0), r.is_below(away, WINDOW))):
            shared.put(1)
            address.put(away)
        with r.when(r.equals(space, Space.SHARED)):
            shared.put(1)
        inside = r.differs(shared.get(), 0)
        with r.when(r.both(r.is_below(address.get(), 1 << RANK_SHIFT), inside)):
            rank = r.op("add", r.wide(r.field(r["block"], BLOCK.RANK, "i32")), 1)
            address.put(r.op("or", address.get(), r.op("shl", rank, RANK_SHIFT)))
        with r.when(r.differs(before.get(), address.get())):
            before.put(address.get())
            with r.when(r.both(inside, _has_flag(r, SYNC.PHASE_OVER))):
                complete_phase(r, r.op("add", address.get(), 1))
            with r.unless(inside):
                serial = r.wide(r.field(r["block"], BLOCK.SERIAL, "i32"))
                near = r.op("xor", address.get(), r.op("shl", r.op("add", serial, 1), 40))
                sync_by_one(r, shared.get(), near, how, 0, alone)
            with r.unless(r.both(r.negation(inside), _has_flag(r, SYNC.BLOCK_SCOPE))):
                sync_by_one(r, shared.get(), address.get(), how, 1, alone)


@check_routine("tw_check_one")
def sync_by_one(r: CheckRoutine, shared: I32, key: I64, how: I32, wide: I32, lane: I32) -> None:
    """A warp, or one lane of it, synchronises by one sync variable, of its cluster (``shared``) or of the launch."""
    spot = _find_sync_var(r, shared, key)
    far = r.differs(r.op("and", wide, r.op("xor", shared, 1)), 0)
    with r.when(_has_flag(r, SYNC.RELAXED)):
        both = (CLOCKS.RELEASED, CLOCKS.PENDING)
        released, pending = (
            r.select(far, r.scope_clock(field, 1), r.scope_clock(field, 0)) for field in both
        )
        with r.when(_has_flag(r, SYNC.RELEASE)):
            join(r, spot, released, lane)
        with r.when(_has_flag(r, SYNC.ACQUIRE)):
            join(r, pending, spot)
        r.give()
    with r.when(_has_flag(r, SYNC.ACQUIRE)):
        acquire(r, spot, lane)
    with r.when(_has_flag(r, SYNC.RELEASE)):
        release(r, spot, 1, lane)
