"""Stores: ``st`` to every space, of several lanes that write one place the last stays; zeros by ``st.bulk``."""

from __future__ import annotations

from tilewise.emulator.layout import GENERIC, Space
from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.interleave import interleave
from tilewise.emulator.lowering.memory import (
    MemoryAccess,
    access_by_lane,
    access_of,
    check_modifiers,
    covered,
    fast_path,
    pointer_of,
    pointers,
    resolve,
    runs_of,
    take_addresses,
)
from tilewise.emulator.lowering.scattered import scatter
from tilewise.emulator.lowering.tables import check_operand_count, effect, unsupported
from tilewise.emulator.lowering.values import check_operand, read
from tilewise.emulator.operations.operation import Access
from tilewise.emulator.ptx.syntax import Immediate, Instruction, Operand, Register, items_of
from tilewise.emulator.ptx.types import bits_of, llvm_scalar
from tilewise.emulator.support.bulk_requests import MOST_BYTES, STEP

__all__: list[str] = []

_MOST_RUNS = 8


@effect("st", has_result=False, accesses=(Access("store", 0),), changes=True, ptx="1.0")
def store(e: Context, instruction: Instruction) -> None:
    check_operand_count(instruction, 2, 3)  # the third is a cache policy
    check_modifiers(instruction, "release", "wb", "wt")
    access = access_of(e, instruction, instruction.operands[0])
    items = items_of(instruction.operands[1])
    if len(items) != access.elements:
        raise unsupported(instruction, f"it stores {access.elements} elements")
    # NOTE: one local address, or a generic one that is local, is another place for every lane.
    one_place = access.uniform and access.space not in (Space.LOCAL, Space.GENERIC)
    scalar = one_place and all(e.analysis.is_uniform(item) for item in items)
    values = [read(e, item, access.type, not scalar) for item in items]
    if covered(e, instruction):
        _fast_store(e, access, pointer_of(e, access, access.base), values)
        return
    slow, done = e.label("slow"), e.label("done")
    pointer = fast_path(e, access, slow)
    if pointer is not None:
        _fast_store(e, access, pointer, values)
        e.jump(done)
    else:
        e.jump(slow)
    e.place(slow)
    _slow_store(e, access, values, scalar)
    e.jump(done)
    e.place(done)


def _fast_store(e: Context, access: MemoryAccess, pointer: str, values: list[Value]) -> None:
    if not pointer:
        scatter(e, access, pointers(e, access), values)
        return
    assert access.lanes is not None
    if access.uniform:
        for i, value in enumerate(values):
            last = _last_lane(e, value) if value.is_vector else value
            e.store(last, e.offset(pointer, i * access.width), access.width, access.volatile)
        return
    if list(access.lanes) != [lane * access.size for lane in range(32)]:
        runs = runs_of(access)
        if not e.masked and len(runs) <= _MOST_RUNS and _filled(access, runs):
            _store_runs(e, access, pointer, values, runs)
            return
        offsets = e.lanes("i64", access.lanes)
        rows = e.set("<32 x ptr>", f"getelementptr i8, ptr {pointer}, {offsets}")
        scatter(e, access, rows, values)
        return
    whole = interleave(e, values)
    if not e.masked:
        e.store(whole, pointer, access.width, access.volatile)
        return
    mask = e.bits(e.mask())
    if access.elements > 1:
        mask = e.shuffle(mask, [lane for lane in range(32) for _ in range(access.elements)])
    count, element = 32 * access.elements, llvm_scalar(access.type)
    suffix = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(element, element)
    e.call(f"llvm.masked.store.v{count}{suffix}.p0", "void", whole, pointer, access.width, mask)


def _filled(access: MemoryAccess, runs: list[tuple[int, int]]) -> bool:
    """Whether the lanes write every byte of the stretches: a store may not touch a gap."""
    assert access.lanes is not None
    return sum(end - start for start, end in runs) == len(set(access.lanes)) * access.size


def _store_runs(
    e: Context, access: MemoryAccess, pointer: str, values: list[Value], runs: list[tuple[int, int]]
) -> None:
    """Put the lanes' values in order of address and store each stretch at once."""
    assert access.lanes is not None
    whole = interleave(e, values)
    last = {offset: lane for lane, offset in enumerate(access.lanes)}  # of two lanes the later one stays
    for start, end in runs:
        picks = [
            last[offset] * access.elements + i
            for offset in range(start, end, access.size)
            for i in range(access.elements)
        ]
        e.store(e.shuffle(whole, picks), e.offset(pointer, start), access.width, access.volatile)


def _last_lane(e: Context, value: Value) -> Value:
    """The value in the last lane that runs: of several stores to one place, the last stays."""
    zeros = e.intrinsic("llvm.ctlz", e.mask(), e.const("i1", 0))
    lane = e.op("and", e.op("sub", 31, zeros), 31)
    return e.set(value.scalar, f"extractelement {value}, {lane}")


def _slow_store(e: Context, access: MemoryAccess, values: list[Value], scalar: bool) -> None:
    if scalar:
        pointer = resolve(e, access, write=1)
        for i, value in enumerate(values):
            e.store(value, e.offset(pointer, i * access.width), 1, access.volatile)
        return
    _, buffer = e.buffers()
    e.store(interleave(e, values), buffer, 64)
    access_by_lane(e, access, "tw_store")


# -- st.bulk ---------------------------------------------------------------------------------------------
@effect("st.bulk", has_result=False, changes=True, ptx="8.6", arch="sm_100")
def fill(e: Context, instruction: Instruction) -> None:
    """Zeros in shared memory, as many bytes as the second operand says.

    The row has no ``accesses``: their size would have to be known from the instruction alone. ``tw_fill`` itself
    has the checker look at what it writes.
    """
    check_operand_count(instruction, 3)
    words = instruction.parts[1:]
    for word in words:
        if word not in ("weak", "shared::cta") or words.count(word) > 1:
            raise unsupported(instruction, f".{word} does not fit here")
    place, size, value = instruction.operands
    if value != Immediate(0):
        raise unsupported(instruction, "what it writes must be the constant 0")
    addresses, sizes = e.buffers()
    e.store(_shared_addresses(e, instruction, place), addresses, 64)
    e.store(_fill_sizes(e, instruction, size), sizes, 64)
    e.call_or_leave("tw_fill", addresses, sizes, e.mask(), instruction.line)


def _shared_addresses(e: Context, instruction: Instruction, operand: Operand) -> Value:
    """Each lane's address in shared memory; of a generic one that leads elsewhere, one beyond its end."""
    wide = take_addresses(e, instruction, operand)
    if "shared::cta" not in instruction.parts:
        wide = e.op("sub", wide, GENERIC.SHARED)
    return e.intrinsic("llvm.umin", wide, 0xFFFF_FFF0)


def _fill_sizes(e: Context, instruction: Instruction, operand: Operand) -> Value:
    if isinstance(operand, Immediate):
        if operand.value % STEP or not 0 <= operand.value <= MOST_BYTES:
            raise unsupported(instruction, f"its size must be a multiple of {STEP} from 0 to {MOST_BYTES}")
        return e.const(vector("i64"), operand.value)
    if not isinstance(operand, Register):
        raise unsupported(instruction, "its size must be a register or a constant")
    declared = e.types.get(operand.name, "u32")
    type_ = "u64" if declared != "pred" and bits_of(declared) == 64 else "u32"
    check_operand(e, instruction, operand, type_)
    return e.wide(read(e, operand, type_, True))
