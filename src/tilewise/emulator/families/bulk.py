"""Bulk copies: ``cp.async.bulk``, ``cp.reduce.async.bulk``, their groups and prefetches; ``st.async`` and
``red.async``, which are copies of a few bytes.

An instruction leaves its operands in columns, one for each operand with a number for each lane, and calls
``tw_bulk``, which makes a flight of each lane's (``support/bulk_requests.py``). Copies of tensors are in
``tensor_copies.py``.
"""

from __future__ import annotations

from tilewise.emulator.families.cp_async import wait_groups
from tilewise.emulator.layout import GENERIC, WINDOWS, Flight, FlightClass
from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.memory import take_addresses
from tilewise.emulator.lowering.tables import check_operand_count, effect, unsupported
from tilewise.emulator.lowering.values import read, read_bits
from tilewise.emulator.operations.operation import GroupUse
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
    Vector,
    items_of,
)
from tilewise.emulator.ptx.types import TYPE_BYTES
from tilewise.emulator.support.bulk_requests import COLUMN, NONE, REQUEST, Verb
from tilewise.emulator.support.reduction import OPERATIONS, element_of, valid

__all__ = [
    "BARRIER",
    "COPY",
    "GROUP",
    "PREFETCH",
    "VALUES",
    "Columns",
    "put_cluster_address",
    "put_prefetch",
    "refuse_others",
    "spaces_of",
]

BARRIER, GROUP = "mbarrier::complete_tx::bytes", "bulk_group"  # how a copy signals that it is complete
_SPACES = ("global", "shared::cta", "shared::cluster")
# Where a copy may go from where, and the words that only some of them have.
_WAYS: dict[tuple[str, str], set[str]] = {
    ("shared::cta", "global"): {"L2::cache_hint"},
    ("shared::cluster", "global"): {"L2::cache_hint", "multicast::cluster"},
    ("shared::cluster", "shared::cta"): set(),
    ("global", "shared::cta"): {"L2::cache_hint"},
}
_NEWER = {"ignore_oob", "cp_mask"}
_SHARED_TYPES = {
    "add": {"u32", "s32", "u64"},
    "min": {"u32", "s32"},
    "max": {"u32", "s32"},
    "inc": {"u32"},
    "dec": {"u32"},
    "and": {"b32"},
    "or": {"b32"},
    "xor": {"b32"},
}
_STORED = {f"{kind}{bits}" for kind in "bus" for bits in (32, 64)} | {"f32", "f64", "b128"}
VALUES = 16 * COLUMN  # where, behind the columns, each lane's own values are
_LANE_BYTES = 16


def kind_of_copy(instruction: Instruction) -> str:
    """Return the kind of a copy: load, multicast, store, reduce, send or send_reduce."""
    target, source = spaces_of(instruction)
    if source == "global":
        return "multicast" if "multicast::cluster" in instruction.parts else "load"
    kind = "store" if target == "global" else "send"
    if instruction.parts[0] != "reduce":
        return kind
    return "reduce" if kind == "store" else "send_reduce"


HOPPER = {"has_result": False, "changes": True, "ptx": "8.0", "arch": "sm_90"}
COPY = {**HOPPER, "asynchronous": True, "bulk_copy": kind_of_copy}
PREFETCH = {**HOPPER, "asynchronous": True, "bulk_copy": "prefetch"}
_REMOTE = {"has_result": False, "changes": True, "asynchronous": True, "ptx": "8.1", "arch": "sm_90"}


@effect("cp.async.bulk.commit_group", **HOPPER, group=GroupUse("commit", "bulk copies"))
@effect("cp.async.bulk.wait_group", **HOPPER, group=GroupUse("wait", "bulk copies"))
def commit_or_wait(e: Context, instruction: Instruction) -> None:
    refuse_others(instruction, {"async", "bulk", "commit_group", "wait_group", "read"})
    wait_groups(e, instruction, FlightClass.BULKS)


def refuse_others(instruction: Instruction, allowed: set[str]) -> None:
    for part in instruction.parts:
        if part in _NEWER:
            raise unsupported(instruction, f".{part} is for newer GPUs than the emulator's sm_90")
        if part not in allowed:
            raise unsupported(instruction, f".{part} is not supported here")


def spaces_of(instruction: Instruction) -> tuple[str, str]:
    """Where a copy goes, and where it comes from."""
    found = [part for part in instruction.parts if part in _SPACES]
    if len(found) != 2:
        raise unsupported(instruction, "it names two spaces: where it goes and where it comes from")
    return found[0], found[1]


class Columns:
    """The operands of one instruction, for every lane."""

    def __init__(self, e: Context, instruction: Instruction) -> None:
        self.e, self.instruction, self.place = e, instruction, e.columns()

    def put(self, offset: int, value: Value | int) -> None:
        """``offset`` is that of REQUEST."""
        e = self.e
        wide = e.const(vector("i64"), value) if isinstance(value, int) else e.splat(value)
        e.store(wide, e.offset(self.place, offset // 8 * COLUMN), 64)

    def number(self, offset: int, operand: Operand, type_: str = "u32") -> None:
        e = self.e
        if isinstance(operand, Address | Vector):
            raise unsupported(self.instruction, "a number expected")
        self.put(offset, e.resize(read(e, operand, type_, True), "i64", type_[0] == "s"))

    def address(self, offset: int, operand: Operand, space: str) -> None:
        """An address of 32 bits in shared memory, or one of 64 bits, generic or in global memory."""
        e = self.e
        wide = take_addresses(e, self.instruction, operand)
        if space.startswith("shared"):
            wide = e.op("and", wide, 0xFFFF_FFFF)
        elif space == "generic" and isinstance(operand, Address) and isinstance(operand.base, Symbol):
            place = e.program.places.get(operand.base.name)
            wide = e.op("add", wide, WINDOWS.get(place.space, 0) if place else 0)
        self.put(offset, wide)

    def issue(self, kind: Flight, group: FlightClass, verb: int) -> None:
        e = self.e
        values = e.offset(self.place, VALUES)
        e.call_or_leave("tw_bulk", self.place, values, kind, group, verb, e.mask(), self.instruction.line)


# -- copies and reductions ------------------------------------------------------------------------------
@effect("cp.async.bulk", "cp.reduce.async.bulk", **COPY)
def copy(e: Context, instruction: Instruction) -> None:
    parts = instruction.parts
    reduces = parts[0] == "reduce"
    target, source = spaces_of(instruction)
    words = _WAYS.get((target, source))
    if words is None or (reduces and source == "global"):
        raise unsupported(instruction, f"there is no such copy from {source} to {target}")
    completion = BARRIER if target != "global" else GROUP
    allowed = {"async", "bulk", completion, target, source} | words
    reduction = -1
    if reduces:
        operation, type_ = _reduction(instruction, target)
        reduction = element_of(operation, type_)
        allowed |= {"reduce", operation, type_, "noftz"}
    refuse_others(instruction, allowed)
    if completion not in parts:
        raise unsupported(instruction, f"it lacks .{completion}")
    operands = list(instruction.operands)
    extra = [part for part in ("multicast::cluster", "L2::cache_hint") if part in parts]
    check_operand_count(instruction, (4 if completion == BARRIER else 3) + len(extra))
    columns = Columns(e, instruction)
    columns.put(REQUEST.REDUCTION, reduction)
    columns.number(REQUEST.SIZE, operands[2])
    columns.put(REQUEST.BLOCKS, NONE)
    if "multicast::cluster" in extra:
        columns.number(REQUEST.BLOCKS, operands[4], "u16")
    here, there = (operands[1], operands[0]) if source == "shared::cta" else (operands[0], operands[1])
    columns.address(REQUEST.SHARED, here, "shared")
    columns.address(REQUEST.GLOBAL, there, target if source == "shared::cta" else source)
    if completion == BARRIER:
        columns.address(REQUEST.MBARRIER, operands[3], "shared")
        verb = Verb.LOAD if source == "global" else Verb.SEND_REDUCE if reduces else Verb.SEND
        columns.issue(Flight.BULK, FlightClass.MBARRIER, verb)
    else:
        columns.issue(Flight.BULK, FlightClass.BULKS, Verb.REDUCE if reduces else Verb.STORE)


def _reduction(instruction: Instruction, target: str) -> tuple[str, str]:
    """Operation and type of a reduction."""
    parts = instruction.parts
    operation = next((part for part in parts[3:] if part in OPERATIONS), "")
    type_ = parts[-1] if parts[-1] in TYPE_BYTES else ""
    good = bool(valid(operation, type_))
    if target != "global":
        good = type_ in _SHARED_TYPES.get(operation, set())
    bits = operation in ("and", "or", "xor")
    halves = type_ in ("f16", "bf16") and operation == "add"
    if not good or bits != (type_ in ("b32", "b64")):
        raise unsupported(
            instruction, f"there is no {operation or 'such'} reduction of type {type_ or '(none)'} here"
        )
    if halves != ("noftz" in parts):
        raise unsupported(instruction, "f16 and bf16 are added with .noftz, and nothing else is")
    return operation, type_


def put_prefetch(columns: Columns, instruction: Instruction) -> None:
    """Put the operands of a prefetch."""
    columns.address(REQUEST.GLOBAL, instruction.operands[0], "global")
    columns.number(REQUEST.SIZE, instruction.operands[1])


@effect("cp.async.bulk.prefetch", **PREFETCH)
def prefetch(e: Context, instruction: Instruction) -> None:
    """A hint to a cache, of which there is none."""
    refuse_others(instruction, {"async", "bulk", "prefetch", "L2", "global", "L2::cache_hint"})
    check_operand_count(instruction, 3 if "L2::cache_hint" in instruction.parts else 2)
    if not isinstance(instruction.operands[0], Address) or not {"L2", "global"} <= {*instruction.parts}:
        raise unsupported(instruction, "it takes an address of global memory and a size")


# -- a thread's own values --------------------------------------------------------------------------------
@effect("st.async", **_REMOTE, bulk_copy="remote")
@effect("red.async", **_REMOTE, bulk_copy="remote_reduce")
def remote(e: Context, instruction: Instruction) -> None:
    """``st.async`` and ``red.async``: values to shared memory of the cluster, which complete on an mbarrier there."""
    parts = instruction.parts
    reduces = operation_of(instruction).bulk_copy == "remote_reduce"
    type_ = parts[-1]
    shape = next((part for part in parts if part in ("v2", "v4")), "")
    count = int(shape[1:]) if shape else 1
    operation = next((part for part in parts if part in OPERATIONS), "") if reduces else ""
    allowed = {"async", "shared::cluster", BARRIER, type_}
    allowed |= {"relaxed", "cluster", operation} if reduces else {"weak", "cluster", shape}
    for part in parts:
        if part in ("release", "mmio", "global", "gpu", "sys"):
            raise unsupported(instruction, f".{part} is for newer GPUs than the emulator's sm_90")
        if part not in allowed:
            raise unsupported(instruction, f".{part} is not supported here")
    good = type_ in (_SHARED_TYPES.get(operation, ()) if reduces else _STORED)
    if not good or BARRIER not in parts or TYPE_BYTES[type_] * count > _LANE_BYTES:
        raise unsupported(instruction, "not in this form")
    check_operand_count(instruction, 3)
    place, given, barrier = instruction.operands
    columns = Columns(e, instruction)
    generic = "shared::cluster" not in parts
    for offset, operand in ((REQUEST.GLOBAL, place), (REQUEST.MBARRIER, barrier)):
        put_cluster_address(columns, offset, operand, generic)
    columns.put(REQUEST.SIZE, TYPE_BYTES[type_] * count)
    columns.put(REQUEST.REDUCTION, element_of(operation, type_) if reduces else NONE)
    _values(e, instruction, given, type_, count)
    columns.issue(Flight.REMOTE, FlightClass.MBARRIER, Verb.CHANGE if reduces else Verb.WRITE)


def put_cluster_address(columns: Columns, offset: int, operand: Operand, generic: bool) -> None:
    """An address of the cluster's shared memory; a generic one is made one by what it has beyond the window."""
    e = columns.e
    columns.address(offset, operand, "generic" if generic else "shared")
    if generic:
        place = e.offset(columns.place, offset // 8 * COLUMN)
        wide = e.load(vector("i64"), place, 64)
        e.store(e.op("sub", wide, GENERIC.SHARED), place, 64)


def _values(e: Context, instruction: Instruction, operand: Operand, type_: str, count: int) -> None:
    """Leave each lane's values where ``tw_bulk`` takes them from, 16 bytes apart."""
    items = items_of(operand)
    if len(items) != count or any(not isinstance(item, Register | Immediate) for item in items):
        raise unsupported(instruction, f"it takes {count} values")
    size = TYPE_BYTES[type_]
    rows = e.offset(e.columns(), VALUES)
    for i, item in enumerate(items):
        value = read_bits(e, item, type_)
        for lane in range(32):
            one = e.set(value.scalar, f"extractelement {value}, i64 {lane}")
            e.store(one, e.offset(rows, lane * _LANE_BYTES + i * size), 1)
