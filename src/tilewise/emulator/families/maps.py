"""``tensormap``: kernels that make or change tensor maps in memory."""

from __future__ import annotations

from tilewise.emulator.families.mbarriers import lane_addresses
from tilewise.emulator.layout import Space
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.memory import take_addresses
from tilewise.emulator.lowering.tables import check_operand_count, effect, refuse_other_forms, unsupported
from tilewise.emulator.lowering.values import read
from tilewise.emulator.ptx.modifiers import space_of
from tilewise.emulator.ptx.syntax import Address, Immediate, Instruction, Operand
from tilewise.emulator.support.tensor_map_layout import AXES, BYTES, ELEMENT_SIZES, MAP

__all__: list[str] = []

# By the name of a field: where it is, bytes of one, how many there are, and the type of its operand.
_FIELDS = {
    "global_address": (MAP.ADDRESS, 8, 0, "b64"),
    "rank": (MAP.RANK, 1, 0, "b32"),
    "box_dim": (MAP.BOX, 2, AXES, "b32"),
    "global_dim": (MAP.SIZES, 8, AXES, "b32"),
    "global_stride": (MAP.STRIDES, 8, AXES - 1, "b64"),
    "element_stride": (MAP.STEPS, 1, AXES, "b32"),
    "elemtype": (MAP.ELEMENT, 1, 0, "b32"),
    "interleave_layout": (MAP.INTERLEAVE, 1, 0, "b32"),
    "swizzle_mode": (MAP.SWIZZLE, 1, 0, "b32"),
    "swizzle_atomicity": (0, 0, 0, "b32"),
    "fill_mode": (MAP.NAN, 1, 0, "b32"),
}
# The largest constant that a field takes; larger ones are for newer GPUs, or there are none.
_CONSTANTS = {
    "elemtype": len(ELEMENT_SIZES) - 1,
    "interleave_layout": 2,
    "swizzle_mode": 3,
    "swizzle_atomicity": 0,
    "fill_mode": 1,
}


refuse_other_forms("tensormap", "not in this form")


@effect("tensormap.replace", has_result=False, ptx="8.3", arch="sm_90a")
def replace(e: Context, instruction: Instruction) -> None:
    parts = instruction.parts
    name = next((part for part in parts if part in _FIELDS), "")
    if not name or "tile" not in parts or "b1024" not in parts:
        raise unsupported(instruction, "not in this form")
    offset, size, count, type_ = _FIELDS[name]
    allowed = {"replace", "tile", name, "global", "shared::cta", "shared", "b1024", type_}
    if extra := [part for part in parts if part not in allowed]:
        raise unsupported(instruction, f".{extra[0]} is not supported here")
    if parts[-1] != type_:
        raise unsupported(instruction, f"its type must be {type_}")
    check_operand_count(instruction, 3 if count else 2)
    value = instruction.operands[-1]
    if count:
        which = instruction.operands[1]
        if not isinstance(which, Immediate) or not 0 <= which.value < count:
            raise unsupported(instruction, f"which of the {count} it is must be a constant")
        offset += size * which.value
    if name in _CONSTANTS:
        if not isinstance(value, Immediate) or not 0 <= value.value <= _CONSTANTS[name]:
            raise unsupported(instruction, f"it takes a constant from 0 to {_CONSTANTS[name]}")
        if not size:
            return  # swizzles keep 16 bytes together; there is nothing else on sm_90
    _set(e, instruction, value, name == "rank", (offset, size, type_))


def _set(
    e: Context, instruction: Instruction, operand: Operand, from_zero: bool, field: tuple[int, int, str]
) -> None:
    offset, size, type_ = field
    addresses, values = e.buffers()
    e.store(lane_addresses(e, instruction, instruction.operands[0]), addresses, 64)
    value = e.wide(read(e, operand, type_, True))
    if from_zero:  # the instruction counts ranks from 0
        value = e.op("add", value, 1)
    e.store(value, values, 64)
    space = {"shared": Space.OWN, "global": Space.GLOBAL}.get(space_of(instruction), Space.GENERIC)
    where = (space, e.const("i64", offset), e.const("i64", size))
    e.call_or_leave("tw_map_replace", addresses, values, *where, e.mask(), instruction.line)


@effect("tensormap.cp_fenceproxy", has_result=False, ptx="8.3", arch="sm_90")
def copy_map(e: Context, instruction: Instruction) -> None:
    """``cp_fenceproxy``: a map from shared memory to global memory, from where copies may use it."""
    words = {"cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"}
    if extra := [p for p in instruction.parts if p not in words | {"cta", "cluster", "gpu", "sys"}]:
        raise unsupported(instruction, f".{extra[0]} is not supported here")
    if [p for p in instruction.parts if p in ("global", "shared::cta")] != ["global", "shared::cta"]:
        raise unsupported(instruction, "it copies to .global, which is named first, from .shared::cta")
    check_operand_count(instruction, 3)
    target, source, size = instruction.operands
    if not isinstance(size, Immediate) or size.value != BYTES:
        raise unsupported(instruction, f"its size is {BYTES}")
    if not isinstance(target, Address) or not isinstance(source, Address):
        raise unsupported(instruction, "it takes two addresses")
    lane = e.find_lowest(e.mask())
    to, wide = (e.first_lane(take_addresses(e, instruction, operand)) for operand in (target, source))
    here = e.op("and", wide, 0xFFFF_FFFF)
    e.call_or_leave("tw_map_copy", to, here, e.op("and", lane, 31), instruction.line)
