"""Asynchronous copies from global to shared memory: ``cp.async``, its groups, and what arrives after it.

In the eager order they complete at once, here; in the others they become flights (``flights.py``). Until such
a copy completes its destination counts as uninitialised.
"""

from __future__ import annotations

from tilewise.emulator.families.mbarriers import change, lane_addresses
from tilewise.emulator.layout import FLIGHT, LAUNCH, Flight, FlightClass, Mbarrier, Space
from tilewise.emulator.llvm.emit import NULL, Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.memory import (
    MemoryAccess,
    every_address,
    fast_path,
    pointers,
    remember_array,
    take_address,
)
from tilewise.emulator.lowering.tables import check_operand_count, effect, refuse_other_forms, unsupported
from tilewise.emulator.lowering.values import read
from tilewise.emulator.operations.operation import Access, GroupUse, MbarrierUse
from tilewise.emulator.ptx.syntax import Address, Immediate, Instruction, Operand
from tilewise.emulator.support.flights import COPY_PLACES, COPY_READS, COPY_SIZE, COPY_SOURCES

__all__ = ["bytes_to_read", "issue", "set_off", "wait_groups"]

_WORDS = {
    "async",
    "ca",
    "cg",
    "shared",
    "shared::cta",
    "global",
    "L2::cache_hint",
    "L2::64B",
    "L2::128B",
    "L2::256B",
}


_AMPERE = {"has_result": False, "changes": True, "ptx": "7.0", "arch": "sm_80"}
_FORM = "it is cp.async.ca or cp.async.cg, from .global to .shared"
refuse_other_forms("cp", "this form of cp is not supported")
refuse_other_forms("cp.async", _FORM)


@effect("cp.async.commit_group", group=GroupUse("commit", "copies"), **_AMPERE)
@effect("cp.async.wait_group", "cp.async.wait_all", group=GroupUse("wait", "copies"), **_AMPERE)
def commit_or_wait(e: Context, instruction: Instruction) -> None:
    wait_groups(e, instruction, FlightClass.COPIES)


def wait_groups(e: Context, instruction: Instruction, group: FlightClass) -> None:
    """``commit_group``, ``wait_group`` and ``wait_all``. In the eager order there is nothing to wait for."""
    keep = -1
    if "wait_group" in instruction.parts:
        check_operand_count(instruction, 1)
        if not isinstance(instruction.operands[0], Immediate) or instruction.operands[0].value < 0:
            raise unsupported(instruction, "it takes the number of groups that may be left, a constant")
        keep = min(instruction.operands[0].value, 1 << 30)
    else:
        check_operand_count(instruction, 0)
    some, done = e.label("some"), e.label("done")
    e.branch(_is_eager(e), done, some, likely=True)
    e.place(some)
    if "commit_group" in instruction.parts:
        e.call("tw_commit", "void", "%warp", e.mask(), group)
    else:
        e.call_or_leave("tw_await", e.mask(), group, keep)
    e.jump(done)
    e.place(done)


def _is_eager(e: Context) -> Value:
    order = e.load("i64", e.offset("%ctx", LAUNCH.ORDER), 8)
    return e.equals(order, 0)


def issue(e: Context, instruction: Instruction, kind: Flight, group: FlightClass, mask: Value) -> str:
    """A new flight of the lanes in ``mask``: a pointer to its data, for the caller to fill in."""
    flight = e.call("tw_flight", "ptr", *e.pointers(), kind, group, mask, instruction.line)
    good = e.label("good")
    e.branch(e.differs(flight, NULL), good, "failed", likely=True)
    e.place(good)
    return e.offset(flight.ref, FLIGHT.DATA)


def set_off(e: Context, data: str) -> None:
    """Issue a flight whose data is filled in."""
    e.call_or_leave("tw_fly", e.offset(data, -FLIGHT.DATA))


@effect("cp.async.mbarrier.arrive", asynchronous=True, mbarrier=MbarrierUse("arrive after copies"), **_AMPERE)
def arrive_after_copies(e: Context, instruction: Instruction) -> None:
    """``cp.async.mbarrier.arrive``: arrive once the thread's earlier copies are there."""
    check_operand_count(instruction, 1)
    allowed = {"async", "mbarrier", "arrive", "noinc", "shared", "shared::cta", "b64"}
    if extra := [part for part in instruction.parts if part not in allowed]:
        raise unsupported(instruction, f".{extra[0]} is not supported here")
    place = instruction.operands[0]
    if "noinc" not in instruction.parts:
        change(e, instruction, Mbarrier.INCREMENT, place)
    data = issue(e, instruction, Flight.ARRIVE, FlightClass.MBARRIER, e.mask())
    e.store(lane_addresses(e, instruction, place), data, 64)
    set_off(e, data)


def size_of(instruction: Instruction) -> int:
    """Return the bytes that a copy writes for each lane."""
    size = instruction.operands[2]
    return size.value if isinstance(size, Immediate) else 4


@effect(
    "cp.async.ca",
    "cp.async.cg",
    asynchronous=True,
    accesses=(Access("copy", 1, "global", size=size_of), Access("fill", 0, "shared", size=size_of)),
    **_AMPERE,
)
def copy(e: Context, instruction: Instruction) -> None:
    """``cp.async [shared], [global], size {, bytes to read}``; what is not read is filled with zeros."""
    operands = instruction.operands
    for part in instruction.parts:
        if part not in _WORDS:
            raise unsupported(instruction, f".{part} is not supported here")
    if instruction.parts[3:4] != ("global",):
        raise unsupported(instruction, _FORM)
    check_operand_count(instruction, 3, 4, 5)
    sizes = (4, 8, 16) if "ca" in instruction.parts else (16,)
    if not isinstance(operands[2], Immediate) or operands[2].value not in sizes:
        raise unsupported(instruction, f"it copies {' or '.join(map(str, sizes))} bytes")
    size = operands[2].value
    source = _access(e, instruction, operands[1], Space.GLOBAL, size)
    target = _access(e, instruction, operands[0], Space.SHARED, size)
    bytes_read = bytes_to_read(e, operands[3] if len(operands) > 3 else None, size)
    now, later, done = e.label("now"), e.label("later"), e.label("done")
    e.branch(_is_eager(e), now, later, likely=True)
    e.place(now)
    _at_once(e, source, target, bytes_read, done)
    e.place(later)
    _in_flight(e, instruction, source, target, bytes_read)
    e.jump(done)
    e.place(done)


def _in_flight(
    e: Context, instruction: Instruction, source: MemoryAccess, target: MemoryAccess, bytes_read: Value
) -> None:
    data = issue(e, instruction, Flight.COPY, FlightClass.COPIES, e.mask())
    e.store(every_address(e, source), e.offset(data, COPY_SOURCES), 64)
    e.store(every_address(e, target), e.offset(data, COPY_PLACES), 64)
    e.store(bytes_read, e.offset(data, COPY_READS), 64)
    e.store(e.const("i32", source.size), e.offset(data, COPY_SIZE), 4)
    e.call_or_leave("tw_spoil", e.offset(data, COPY_PLACES), e.mask(), source.size, instruction.line)
    set_off(e, data)


def _at_once(e: Context, source: MemoryAccess, target: MemoryAccess, bytes_read: Value, done: str) -> None:
    size = source.size
    if _never_aligned(source) or _never_aligned(target):
        _slow(e, source, target, bytes_read)
        e.jump(done)
        return
    slow = e.label("slow")
    whole = e.equals(bytes_read, size)
    whole_bits = e.op("or", e.bits(whole), e.op("xor", e.mask(), -1))
    every = e.op("and", e.mask(), -1)
    whole_all = e.equals(whole_bits, -1)
    full = e.equals(every, -1)
    fast = e.label("fast")
    e.branch(e.op("and", whole_all, full), fast, slow, likely=True)
    e.place(fast)
    from_rows = pointers(e, source, fast_path(e, source, slow))
    to_rows = pointers(e, target, fast_path(e, target, slow))
    for lane in range(32):
        start = e.set("ptr", f"extractelement {from_rows}, i64 {lane}")
        place = e.set("ptr", f"extractelement {to_rows}, i64 {lane}")
        e.store(e.load(f"<{size // 4} x i32>", start.ref, 4), place.ref, 4)
    e.jump(done)
    e.place(slow)
    _slow(e, source, target, bytes_read)
    e.jump(done)


def _never_aligned(access: MemoryAccess) -> bool:
    """Whether some lanes, which a guard may keep from running, have an address that no copy may have."""
    return access.lanes is not None and any(lane % access.size for lane in access.lanes)


def _access(e: Context, instruction: Instruction, operand: Operand, space: Space, size: int) -> MemoryAccess:
    if not isinstance(operand, Address):
        raise unsupported(instruction, "an address in brackets expected")
    base, lanes = take_address(e, operand)
    return MemoryAccess(space, "b32", size // 4, lanes, base, False, instruction.line)


def bytes_to_read(e: Context, operand: Operand | None, size: int) -> Value:
    """How many bytes each lane reads; a predicate says to read none."""
    if operand is None:
        return e.const(vector("i32"), size)
    if isinstance(operand, Immediate):
        return e.const(vector("i32"), min(max(operand.value, 0), size))
    name = getattr(operand, "name", "")
    if e.types.get(name) == "pred":
        ignored = read(e, operand, "pred", True)
        return e.select(ignored, e.const(vector("i32"), 0), size)
    if e.types.get(name) in ("b64", "u64", "s64"):
        return e.const(vector("i32"), size)  # a cache policy
    return e.intrinsic("llvm.umin", read(e, operand, "u32", True), size)


def _slow(e: Context, source: MemoryAccess, target: MemoryAccess, bytes_read: Value) -> None:
    addresses, sizes = e.buffers()
    e.store(every_address(e, source), addresses, 64)
    e.store(bytes_read, sizes, 64)
    places = e.offset(sizes, 256)
    e.store(every_address(e, target), places, 64)
    e.call_or_leave("tw_copy", addresses, places, e.mask(), source.size, sizes, source.line)
    remember_array(e, source, e.first_lane(every_address(e, source)))
