"""The warm call without Python: a builtin function, compiled here, that reads operands and launches.

A :class:`CallStub` has the builtin; a :class:`CallRecord` is one bound problem that it knows;
:func:`counting_entries` is a driver that records launches in the place of CUDA's.
"""

from __future__ import annotations

from tilewise.call_stub.builtin import CallStub, available, slot_offset
from tilewise.call_stub.call_record import (
    PLAIN_FORM,
    CallForm,
    CallRecord,
    DriverEntries,
    MapPatch,
    NativeLaunch,
    TensorPattern,
    compact_strides,
)
from tilewise.call_stub.counting_driver import (
    CountedLaunch,
    CountingDriver,
    EncodedMap,
    counting_entries,
    decode_map,
)

__all__ = [
    "PLAIN_FORM",
    "CallForm",
    "CallRecord",
    "CallStub",
    "CountedLaunch",
    "CountingDriver",
    "DriverEntries",
    "EncodedMap",
    "MapPatch",
    "NativeLaunch",
    "TensorPattern",
    "available",
    "compact_strides",
    "counting_entries",
    "decode_map",
    "slot_offset",
]
