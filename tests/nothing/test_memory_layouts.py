"""Structures that compiled code and Python share: no field of one lies in another, or reaches beyond its end.

How many bytes a field has is what the run-time support reads and writes there. Nothing is compiled or run.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tilewise.emulator import check_layout, layout, native
from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.llvm.routine import Routine
from tilewise.emulator.profiling import copies as profiled_copies
from tilewise.emulator.profiling import support as profiling_support
from tilewise.emulator.profiling.support import Figure
from tilewise.emulator.support import bulk_requests, tensor, tensor_map_layout, wgmma_queue

_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "ptr": 8}
_LANES, _BARRIERS, _AXES = 32 * 4, 16 * 4, 5 * 8  # bytes of an array with an element for each


class _Field(int):
    """An offset that remembers of which field it is, though something is added to it."""

    of: tuple[str, str]

    def __add__(self, other: Any) -> Any:
        return _field(int(self) + int(other), self.of) if isinstance(other, int) else other + int(self)

    __radd__ = __add__


def _field(offset: int, of: tuple[str, str]) -> _Field:
    found = _Field(offset)
    found.of = of
    return found


# Their fields, without names of bits, of counts and of sizes, which are no offsets.
STRUCTURES: Mapping[type, str] = MappingProxyType({
    layout.LAUNCH: "", layout.BLOCK: "", layout.BARRIER: "", layout.WARP: "", layout.QUEUE: "",
    layout.FLIGHT: "", layout.FAULT: "",
    check_layout.CHECK: "", check_layout.RANGE: "", check_layout.SHADOW: "", check_layout.FINDING: "",
    check_layout.CLOCKS: "BARRIERS_OF_BLOCK GROUP_KINDS SHARED_SYNC_VARS",
    check_layout.COPY: "REQUEST_BYTES MOST",
    bulk_requests.REQUEST: "COLUMNS", wgmma_queue.PRODUCTS: "", wgmma_queue.RECORD: "", wgmma_queue.INFO: "",
    tensor.PLAN: "", tensor_map_layout.MAP: "", profiled_copies._SINK: "", profiling_support.WAY: "KNOWN",
})  # fmt: skip
# Where a structure ends, where SIZE is not that.
ENDS: dict[type, str] = {
    layout.BLOCK: "WARPS", layout.WARP: "HEADER", layout.QUEUE: "SLOTS", layout.FAULT: "BYTES", tensor.PLAN: "BYTES",
    bulk_requests.REQUEST: "", wgmma_queue.INFO: "", tensor_map_layout.MAP: "",
}  # fmt: skip

# Bytes of fields that are arrays or structures themselves.
ARRAYS: dict[type, dict[str, int]] = {
    layout.BLOCK: {"BARRIERS": 16 * layout.BARRIER.SIZE},
    layout.WARP: {
        **dict.fromkeys(("NAMED", "COPIES", "BULKS"), _LANES), **dict.fromkeys(("WAITING", "RESULTS", "LINES"), _BARRIERS),
        "PRODUCTS": wgmma_queue.PRODUCTS.SIZE,
    },
    layout.FLIGHT: {"GROUPS": _LANES, "DATA": bulk_requests.REQUEST.VALUES + 16},
    check_layout.COPY: {"GROUPS": _LANES, "PLACES": check_layout.COPY.REQUEST_BYTES},
    bulk_requests.REQUEST: {"COORDINATES": _AXES, "OFFSETS": 3 * 8, "MAP": 128, "VALUES": 16},
    tensor.PLAN: dict.fromkeys(
        ("START", "COUNT", "STEP", "SIZE", "STRIDE", "LOWER", "UPPER", "BOUNDED", "OFFSETS"), _AXES
    ),
    tensor_map_layout.MAP: {"STRIDES": 4 * 8, "SIZES": 5 * 8, "BOX": 5 * 2, "STEPS": 5, "LOWER": 3 * 2, "UPPER": 3 * 2},
    profiling_support.WAY: {"FIGURES": 8 * len(Figure)},
}  # fmt: skip


def fields_of(structure: type) -> dict[str, int]:
    """The offsets of a structure's fields, by their names."""
    left_out = {*STRUCTURES[structure].split(), ENDS.get(structure, "SIZE")}
    return {name: value for name, value in vars(structure).items() if name.isupper() and name not in left_out}


@functools.cache
def sizes() -> dict[tuple[str, str], int]:
    """The most bytes that the run-time support reads or writes at once of each field."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    pointers: dict[tuple[Emitter, str], tuple[str, str]] = {}

    def note(of: tuple[str, str] | None, type_: str) -> None:
        if of is not None and type_ in _BYTES:
            found[of] = max(found[of], _BYTES[type_])

    offset, load, store, field, put = (
        Emitter.offset, Emitter.load, Emitter.store, Routine.field, Routine.put
    )  # fmt: skip

    def noted_offset(self: Emitter, pointer: str, by: int | Value) -> str:
        result = offset(self, pointer, by)
        if isinstance(by, _Field) and by:
            pointers[self, result] = by.of
        return result

    def noted_load(self: Emitter, type_: str, pointer: str, *how: Any, **more: Any) -> Value:
        note(pointers.get((self, pointer)), type_)
        return load(self, type_, pointer, *how, **more)

    def noted_store(self: Emitter, value: Value, pointer: str, *how: Any, **more: Any) -> None:
        note(pointers.get((self, pointer)), value.type)
        store(self, value, pointer, *how, **more)

    def noted_field(self: Routine, pointer: Value, by: int, type_: str, align: int = 1) -> Value:
        note(by.of if isinstance(by, _Field) else None, type_)
        return field(self, pointer, by, type_, align)

    def noted_put(self: Routine, pointer: Value, by: int, value: Value | int, align: int = 1) -> None:
        note(by.of if isinstance(by, _Field) else None, self.fixed(value, "i32").type)
        put(self, pointer, by, value, align)

    with pytest.MonkeyPatch.context() as patch:
        for structure in STRUCTURES:
            for name, at in fields_of(structure).items():
                patch.setattr(structure, name, _field(at, (structure.__name__, name)))
        patch.setattr(Emitter, "offset", noted_offset)
        patch.setattr(Emitter, "load", noted_load)
        patch.setattr(Emitter, "store", noted_store)
        patch.setattr(Routine, "field", noted_field)
        patch.setattr(Routine, "put", noted_put)
        native.support_text()
    return dict(found)


def extents_of(structure: type) -> list[tuple[int, int, str]]:
    """Where each field of a structure begins and ends."""
    found = []
    for name, at in fields_of(structure).items():
        size = ARRAYS.get(structure, {}).get(name) or sizes().get((structure.__name__, name), 4)
        if structure is layout.LAUNCH:  # Python writes it as words of 64 bits
            size = 8
        found.append((at, at + size, name))
    return sorted(found)


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.__name__)
def test_no_field_lies_in_another(structure: type) -> None:
    fields = extents_of(structure)
    end = getattr(structure, ENDS.get(structure, "SIZE") or "", 1 << 30)
    ends = [(end, end, "end"), *([(128, 128, "end")] if structure is tensor_map_layout.MAP else [])]
    for (_, last, name), (first, _, other) in itertools.pairwise([*fields, min(ends)]):
        assert last <= first, f"{structure.__name__}.{name} reaches into {other}"


def test_most_fields_are_read_or_written_where_they_are_known() -> None:
    """So that the test above has their sizes."""
    total = [(structure.__name__, name) for structure in STRUCTURES for name in fields_of(structure)]
    assert len(sizes()) > 0.85 * len(total)
    assert sizes()["LAUNCH", "PAUSES"] == 8 and sizes()["MAP", "STEPS"] == 1 and sizes()["BLOCK", "X"] == 4
