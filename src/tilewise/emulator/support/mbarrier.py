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
from tilewise.emulator.llvm.routine import I32, I64, POINTERS, Ptr, Routine, routine
from tilewise.emulator.support.memory_access import find_memory, record_fault

__all__ = ["COUNT_BITS", "PHASE_BIT", "arrive_each", "complete_bytes", "describe"]

COUNT_BITS = 20
_MOST = (1 << COUNT_BITS) - 1
_MOST_V1 = (1 << 9) - 1  # arrivals
_EXPECTED, _BYTES, PHASE_BIT, _LAYOUT = 20, 40, 61, 62
_ARRIVING = (Mbarrier.ARRIVE, Mbarrier.DROP, Mbarrier.ARRIVE_INCOMPLETE, Mbarrier.DROP_INCOMPLETE)


def describe(address: int, state: int) -> str:
    """Describe what an mbarrier's phase lacks, as text for a message."""
    if state >> _LAYOUT not in (1, 2):
        return f"at the mbarrier at shared address {address:#x}, which has been written over"
    pending, raw = state & _MOST, state >> _BYTES & ((1 << 21) - 1)
    missing = raw - (1 << 21) if raw >> 20 else raw
    expected, parity = state >> _EXPECTED & _MOST, state >> PHASE_BIT & 1
    lacks = [f"{pending:,} of {expected:,} arrivals"] * bool(pending) + [f"{missing:,} bytes"] * (missing > 0)
    comes = [f"to which {' and '.join(lacks)} must still come"] * bool(lacks)
    comes += [f"to which {-missing:,} bytes more than it expects have come"] * (missing < 0)
    return (
        f"at the mbarrier at shared address {address:#x} for its phase of parity {parity}, "
        f"{', '.join(comes) or 'to which nothing must still come'}"
    )


class _ChangeRoutine(Routine):
    """The routine that changes an mbarrier, whose fields are its variables."""

    def read_state(self) -> None:
        self.whole = self.field(self["place"], 0, "i64")
        self.pending = self.variable("i64", self.whole & _MOST)
        self.expected = self.variable("i64", (self.whole >> _EXPECTED) & _MOST)
        self.bytes = self.variable("i64", self.op("ashr", self.whole << 3, 43))
        self.phase = self.variable("i64", (self.whole >> PHASE_BIT) & 1)
        self.layout = self.whole >> _LAYOUT

    def write_state(self) -> None:
        count = self.bytes.get() & ((1 << 21) - 1)
        parts = (self.expected.get(), count, self.phase.get(), self.layout)
        bits = (_EXPECTED, _BYTES, PHASE_BIT, _LAYOUT)
        moved = [value << bit for value, bit in zip(parts, bits, strict=True)]
        self.put(self["place"], 0, self.either(self.pending.get(), *moved))

    def is_operation(self, *operations: Mbarrier) -> AbstractContextManager[None]:
        """Write what one of some operations does."""
        return self.when(self.either(*(self.equals(self["operation"], one) for one in operations)))

    def refuse_unless(self, holds: Value, why: MbarrierFault) -> None:
        self.give_if(self.negation(holds), int(why))

    def answer(self, operation: Mbarrier, holds: Value) -> None:
        """Have an operation give whether something holds."""
        with self.is_operation(operation):
            self.put(self["result"], 0, self.wide(holds))
            self.give(0)

    def initialise(self, operation: Mbarrier, layout: int, most: int) -> None:
        count = self["value"]
        with self.is_operation(operation):
            self.refuse_unless(self.is_below(count - 1, most), MbarrierFault.COUNT)
            twice = count | (count << _EXPECTED)
            self.put(self["place"], 0, twice | (self.const("i64", layout) << _LAYOUT))
            self.give(0)

    def expect(self, wanted: Value) -> None:
        """Add to the bytes that the phase waits for."""
        total = self.bytes.get() + wanted
        self.refuse_unless(self.is_at_most(total + _MOST, 2 * _MOST), MbarrierFault.BYTES)
        self.bytes.put(total)

    def arrive(self, count: Value) -> None:
        """Subtract arrivals from those pending."""
        self.refuse_unless(self.is_at_most(count, self.pending.get()), MbarrierFault.TOO_MANY)
        self.refuse_unless(self.differs(count, 0), MbarrierFault.COUNT)
        self.pending.put(self.pending.get() - count)
        with self.is_operation(Mbarrier.ARRIVE_INCOMPLETE, Mbarrier.DROP_INCOMPLETE):
            self.refuse_unless(self.differs(self.pending.get(), 0), MbarrierFault.COMPLETES)
        with self.is_operation(Mbarrier.DROP, Mbarrier.DROP_INCOMPLETE):
            self.expected.put(self.intrinsic("llvm.usub.sat", self.expected.get(), count))

    def settle(self) -> None:
        """Begin the next phase if no arrivals and no bytes are pending; write the state to memory."""
        with self.when(self.both(self.equals(self.pending.get(), 0), self.equals(self.bytes.get(), 0))):
            self.phase.put(self.phase.get() ^ 1)
            self.pending.put(self.expected.get())
        self.write_state()


@routine("tw_mbarrier_change", "i32")
def _change(r: _ChangeRoutine, place: Ptr, operation: I32, value: I64, length: I64, result: Ptr) -> None:
    """Perform one thread's operation on an mbarrier: 0, or what is wrong. ``result`` gets the operation's result."""
    r.initialise(Mbarrier.INIT, 1, _MOST)
    r.initialise(Mbarrier.INIT_V1, 2, _MOST_V1)
    r.read_state()
    r.refuse_unless(r.is_below(r.layout - 1, 2), MbarrierFault.NOT_INITIALISED)
    with r.is_operation(Mbarrier.INVALIDATE):
        r.put(place, 0, r.const("i64", -1))
        r.give(0)
    r.answer(Mbarrier.IS_LAYOUT, r.equals(r.layout, value))
    r.answer(Mbarrier.TEST_STATE, r.differs((value >> PHASE_BIT) & 1, r.phase.get()))
    r.answer(Mbarrier.TEST_PARITY, r.differs(value & 1, r.phase.get()))
    r.put(result, 0, r.whole)
    with r.is_operation(Mbarrier.INCREMENT):
        more = r.pending.get() + 1
        most = r.select(r.equals(r.layout, 1), r.const("i64", _MOST), _MOST_V1)
        r.refuse_unless(r.is_at_most(more, most), MbarrierFault.COUNT)
        r.pending.put(more)
        r.write_state()
        r.give(0)
    r.expect(r.select(r.equals(operation, Mbarrier.COMPLETE), 0 - length, length))
    with r.is_operation(*_ARRIVING):
        r.arrive(value)
    r.settle()


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
        tests = r.is_at_most(operation - Mbarrier.TEST_STATE, 1)
        with r.when(r.both(tests, r.equals(r.field(result, 0, "i64"), 0))):
            missed.put(missed.get() | (1 << lane))
            # For the message of a deadlock.
            phase = r.narrow((r.field(place, 0, "i64") >> PHASE_BIT) & 1)
            noted = {WARP.AWAITED: r.narrow(address), WARP.AWAITED_LINE: line, WARP.AWAITED_PHASE: phase}
            r.put_fields(r["warp"], noted)
    r.put(r["warp"], WARP.AWAITING, missed.get())


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
