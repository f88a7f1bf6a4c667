"""Tensor maps that kernels change: ``tensormap.replace`` and ``tensormap.cp_fenceproxy`` in the run-time
support."""

from __future__ import annotations

from tilewise.emulator.layout import Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, POINTERS, Ptr, Routine, routine
from tilewise.emulator.support.bulk_requests import refuse_if
from tilewise.emulator.support.memory_access import find_memory
from tilewise.emulator.support.tensor_map_layout import BYTES, MAGIC, MAP

__all__: list[str] = []

_HALF = BYTES // 2  # what the address of a map has to be a multiple of
_FOREIGN = 1  # in tensor_map.WRONG


def _whole(r: Routine, address: Value, space: Value | int, write: int) -> Value:
    """Return the pointer to a map; leave the routine after a fault."""
    halves = [
        find_memory(r, r.op("add", address, i * _HALF), _HALF, space, r["lane"], write) for i in range(2)
    ]
    return halves[0]


@routine("tw_map_set", "i32", *POINTERS)
def _one(
    r: Routine, address: I64, space: I32, field: I64, length: I64, value: I64, lane: I32, line: I32
) -> None:
    """Set the field of ``length`` bytes at offset ``field`` of the map at an address."""
    place = _whole(r, address, space, 1)
    some = r.variable("i64", 0)
    for offset in range(0, BYTES, 8):
        some.put(r.op("or", some.get(), r.field(place, offset, "i64")))
    ours = r.equals(r.field(place, MAP.MAGIC, "i64"), MAGIC)
    fresh = r.equals(some.get(), 0)
    refuse_if(r, r.negation(r.op("or", ours, fresh)), _FOREIGN, address)
    r.put(place, MAP.MAGIC, r.const("i64", MAGIC))
    there = r.at(place, field)
    for size in (1, 2, 8):
        with r.when(r.equals(length, size)):
            # What does not fit becomes the largest number, which no map may have there.
            most = r.const("i64", (1 << 8 * size) - 1)
            r.put(there, 0, r.resize(r.intrinsic("llvm.umin", value, most), f"i{8 * size}", False))


@routine("tw_map_replace", "i32", *POINTERS)
def _replace(
    r: Routine, addresses: Ptr, values: Ptr, space: I32, field: I64, length: I64, mask: I32, line: I32
) -> None:
    """Set a field of the map at each lane's address."""
    with r.each_lane(mask) as lane:
        address, value = (r.element(source, lane, "i64") for source in (addresses, values))
        r.give_unless_zero(_one(r, address, space, field, length, value, lane))


@routine("tw_map_copy", "i32", *POINTERS)
def _copy(r: Routine, target: I64, source: I64, lane: I32, line: I32) -> None:
    """Copy a map from shared to global memory. NOTE: a warp does it together, so its first lane does it for all."""
    given = _whole(r, source, Space.OWN, 0)
    place = _whole(r, target, Space.GLOBAL, 1)
    r.copy(place, given, BYTES)
