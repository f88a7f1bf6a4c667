"""The run-time support of mbarriers: their state, and each operation on one.

The 64 bits in shared memory, of our own making: arrivals pending (20 bits), arrivals expected in a phase (20),
bytes expected and not come (21, signed), the parity of the phase (1), the layout (2): 1 for .layout::v0 and 2 for
.layout::v1. The last two tell an mbarrier from memory that is none: neither zeros nor what memory holds before it is
written has them so. The layouts differ in what reports they keep of copies: none makes one here, so that in both the
conditional phase is the primary one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from tilewise.emulator.layout import BLOCK, WARP, FaultKind, Mbarrier, MbarrierFault, Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, POINTERS, MutableValue, Ptr, Routine, routine
from tilewise.emulator.support.memory_access import find_memory, record_fault

__all__ = ["COUNT_BITS", "arrive_each", "complete_bytes", "describe"]

COUNT_BITS = 20
_MOST = (1 << COUNT_BITS) - 1
_MOST_V1 = (1 << 9) - 1  # arrivals
_EXPECTED, _BYTES, _PHASE, _LAYOUT = 20, 40, 61, 62
_ARRIVING = (Mbarrier.ARRIVE, Mbarrier.DROP, Mbarrier.ARRIVE_INCOMPLETE, Mbarrier.DROP_INCOMPLETE)


def describe(address: int, state: int) -> str:
    """Describe what an mbarrier's phase lacks, as text for a message."""
    if state >> _LAYOUT not in (1, 2):
        return f"at the mbarrier at shared address {address:#x}, which has been written over"
    pending, raw = state & _MOST, state >> _BYTES & ((1 << 21) - 1)
    missing = raw - (1 << 21) if raw >> 20 else raw
    expected, parity = state >> _EXPECTED & _MOST, state >> _PHASE & 1
    lacks = [f"{pending:,} of {expected:,} arrivals"] * bool(pending) + [f"{missing:,} bytes"] * (missing > 0)
    comes = [f"to which {' and '.join(lacks)} must still come"] * bool(lacks)
    comes += [f"to which {-missing:,} bytes more than it expects have come"] * (missing < 0)
    return (
        f"at the mbarrier at shared address {address:#x} for its phase of parity {parity}, "
        f"{', '.join(comes) or 'to which no_bytes must still come'}"
    )


class _State:
    """The fields of an mbarrier, as variables of a routine."""

    def __init__(self, r: Routine, place: Value) -> None:
        self.r, self.place = r, place
        self.whole = r.field(place, 0, "i64")
        self.pending = r.variable("i64", r.op("and", self.whole, _MOST))
        self.expected = r.variable("i64", r.op("and", r.op("lshr", self.whole, _EXPECTED), _MOST))
        self.bytes = r.variable("i64", r.op("ashr", r.op("shl", self.whole, 3), 43))
        self.phase = r.variable("i64", r.op("and", r.op("lshr", self.whole, _PHASE), 1))
        self.layout = r.op("lshr", self.whole, _LAYOUT)

    @property
    def valid(self) -> Value:
        return self.r.is_below(self.r.op("sub", self.layout, 1), 2)

    @property
    def most(self) -> Value:
        """The most arrivals that may be pending."""
        first = self.r.equals(self.layout, 1)
        return self.r.select(first, self.r.const("i64", _MOST), _MOST_V1)

    def settle(self) -> None:
        """Begin the next phase if no arrivals and no bytes are pending; write the state to memory."""
        r = self.r
        no_arrivals = r.equals(self.pending.get(), 0)
        no_bytes = r.equals(self.bytes.get(), 0)
        with r.when(r.both(no_arrivals, no_bytes)):
            self.phase.put(r.op("xor", self.phase.get(), 1))
            self.pending.put(self.expected.get())
        self.write()

    def write(self) -> None:
        r = self.r
        count = r.op("and", self.bytes.get(), (1 << 21) - 1)
        whole = r.op("or", self.pending.get(), r.op("shl", self.expected.get(), _EXPECTED))
        whole = r.op("or", whole, r.op("shl", count, _BYTES))
        whole = r.op("or", whole, r.op("shl", self.phase.get(), _PHASE))
        r.put(self.place, 0, r.op("or", whole, r.op("shl", self.layout, _LAYOUT)))


@routine("tw_mbarrier_change", "i32")
def _change(r: Routine, place: Ptr, operation: I32, value: I64, length: I64, result: Ptr) -> None:
    """Perform one thread's operation on an mbarrier: 0, or what is wrong. ``result`` gets the operation's result."""
    for verb, layout, most in ((Mbarrier.INIT, 1, _MOST), (Mbarrier.INIT_V1, 2, _MOST_V1)):
        with _is_operation(r, verb):
            _refuse_unless(r, r.is_below(r.op("sub", value, 1), most), MbarrierFault.COUNT)
            twice = r.op("or", value, r.op("shl", value, _EXPECTED))
            r.put(place, 0, r.op("or", twice, r.op("shl", r.const("i64", layout), _LAYOUT)))
            r.give(0)
    state = _State(r, place)
    _refuse_unless(r, state.valid, MbarrierFault.NOT_INITIALISED)
    with _is_operation(r, Mbarrier.INVALIDATE):
        r.put(place, 0, r.const("i64", -1))
        r.give(0)
    with _is_operation(r, Mbarrier.IS_LAYOUT):
        r.put(result, 0, r.wide(r.equals(state.layout, value)))
        r.give(0)
    with _is_operation(r, Mbarrier.TEST_STATE):
        over = r.differs(r.op("and", r.op("lshr", value, _PHASE), 1), state.phase.get())
        r.put(result, 0, r.wide(over))
        r.give(0)
    with _is_operation(r, Mbarrier.TEST_PARITY):
        over = r.differs(r.op("and", value, 1), state.phase.get())
        r.put(result, 0, r.wide(over))
        r.give(0)
    r.put(result, 0, state.whole)
    with _is_operation(r, Mbarrier.INCREMENT):
        more = r.op("add", state.pending.get(), 1)
        _refuse_unless(r, r.is_at_most(more, state.most), MbarrierFault.COUNT)
        state.pending.put(more)
        state.write()
        r.give(0)
    wanted = r.variable("i64", length)
    with _is_operation(r, Mbarrier.COMPLETE):
        wanted.put(r.op("sub", 0, length))
    _expect(r, state, wanted)
    arrives = r.op("and", r.op("lshr", sum(1 << item for item in _ARRIVING), r["operation"]), 1)
    with r.when(r.differs(arrives, 0)):
        _arrive_count(r, state, value)
    state.settle()


def _is_operation(r: Routine, operation: Mbarrier) -> AbstractContextManager[None]:
    return r.when(r.equals(r["operation"], operation))


def _refuse_unless(r: Routine, holds: Value, why: MbarrierFault) -> None:
    r.give_if(r.negation(holds), int(why))


def _expect(r: Routine, state: _State, wanted: MutableValue) -> None:
    """Add to the bytes that the phase waits for."""
    total = r.op("add", state.bytes.get(), wanted.get())
    inside = r.is_at_most(r.op("add", total, _MOST), 2 * _MOST)
    _refuse_unless(r, inside, MbarrierFault.BYTES)
    state.bytes.put(total)


def _arrive_count(r: Routine, state: _State, count: Value) -> None:
    """Subtract arrivals from those pending."""
    _refuse_unless(r, r.is_at_most(count, state.pending.get()), MbarrierFault.TOO_MANY)
    _refuse_unless(r, r.differs(count, 0), MbarrierFault.COUNT)
    state.pending.put(r.op("sub", state.pending.get(), count))
    for operation in (Mbarrier.ARRIVE_INCOMPLETE, Mbarrier.DROP_INCOMPLETE):
        with _is_operation(r, operation):
            _refuse_unless(r, r.differs(state.pending.get(), 0), MbarrierFault.COMPLETES)
    for operation in (Mbarrier.DROP, Mbarrier.DROP_INCOMPLETE):
        with _is_operation(r, operation):
            state.expected.put(r.intrinsic("llvm.usub.sat", state.expected.get(), count))


@routine("tw_mbarrier", "i32", *POINTERS)
def _each_lane(
    r: Routine,
    places: Ptr,
    values: Ptr,
    counts: Ptr,
    results: Ptr,
    operation: I32,
    space: I32,
    mask: I32,
    line: I32,
) -> None:
    """Perform an operation for each lane of a warp, one after the other: 0, or 1 after a fault."""
    missed = r.variable("i32", 0)
    with r.each_lane(mask) as lane:
        address = r.element(places, lane, "i64")
        place = find_memory(r, address, 8, space, lane, 1)
        value, count = (r.element(source, lane, "i64") for source in (values, counts))
        result = r.item(results, lane, 8)
        wrong = _change(r, place, operation, value, count, result)
        _fault_if_wrong(r, wrong, lane, address)
        tests = r.is_at_most(r.op("sub", operation, Mbarrier.TEST_STATE), 1)
        with r.when(r.both(tests, r.equals(r.field(result, 0, "i64"), 0))):
            missed.put(r.op("or", missed.get(), r.op("shl", 1, lane)))
            _note(r, place, address)
    r.put(r["warp"], WARP.AWAITING, missed.get())


def _note(r: Routine, place: Value, address: Value) -> None:
    """Record the mbarrier whose phase the warp found incomplete, for the message of a deadlock."""
    phase = r.op("and", r.op("lshr", r.field(place, 0, "i64"), _PHASE), 1)
    r.put(r["warp"], WARP.AWAITED, r.narrow(address))
    r.put(r["warp"], WARP.AWAITED_LINE, r["line"])
    r.put(r["warp"], WARP.AWAITED_PHASE, r.narrow(phase))


def _fault_if_wrong(r: Routine, wrong: Value, lane: Value, address: Value) -> None:
    """Leave with a fault if an operation gave one."""
    with r.when(r.differs(wrong, 0)):
        record_fault(r, FaultKind.BAD_MBARRIER, lane, address, wrong, Space.SHARED)
        r.give(1)


@routine("tw_arrive", "i32", *POINTERS)
def arrive_each(r: Routine, places: Ptr, mask: I32, line: I32) -> None:
    """Arrive once for each lane, at the lane's own mbarrier."""
    ones, none, results = (r.reserve("[32 x i64]", 64) for _ in range(3))
    with r.count(32) as lane:
        r.put(r.item(ones, lane, 8), 0, r.const("i64", 1))
    r.fill(none, 0, 256)
    r.give(_each_lane(r, places, ones, none, results, Mbarrier.ARRIVE, Space.SHARED, mask))


@routine("tw_complete", "i32", *POINTERS)
def complete_bytes(r: Routine, address: I64, length: I64, lane: I32, line: I32) -> None:
    """Subtract bytes that a copy wrote from those that an mbarrier in the cluster's shared memory waits for."""
    place = find_memory(r, address, 8, Space.SHARED, lane, 1)
    wrong = _change(r, place, Mbarrier.COMPLETE, 0, length, r.reserve("i64", 8))
    _fault_if_wrong(r, wrong, lane, address)
    r.change(r["block"], BLOCK.PROGRESS, "add", 1, "i64")
