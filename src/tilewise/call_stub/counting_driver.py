"""A driver in the place of CUDA's that counts and remembers, for tests and for measuring without a GPU."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import NamedTuple

from tilewise.call_stub.call_record import DriverEntries
from tilewise.call_stub.machine_code import link
from tilewise.call_stub.shared_memory import (
    BLOCK_BYTES,
    DESCRIBED_FUNCTIONS,
    MAX_PARAMETERS,
    RING_LAUNCHES,
    expand_accesses,
    structure,
)
from tilewise.errors import ArgumentError

__all__ = ["CountedLaunch", "CountingDriver", "EncodedMap", "counting_entries", "decode_map"]

_MAP = struct.Struct("<Q5Q4Q5I5I6B2x")
_CLUSTER_DIMENSION = 4  # CUlaunchAttributeID
_PROGRAMMATIC_STREAM_SERIALIZATION = 6


class CountedLaunch(NamedTuple):
    """One launch as the driver got it; ``params`` of functions that were described, else empty."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    cluster: tuple[int, int, int] | None
    programmatic: bool
    params: tuple[bytes, ...]


class EncodedMap(NamedTuple):
    """The arguments that a tensor map of :class:`CountingDriver` was encoded from."""

    address: int
    data_type: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int
    swizzle: int
    promotion: int
    fill: int


class CountingDriver:
    """Native functions with the signatures of the driver's, which launch nothing.

    Parameters are copied for functions that :meth:`describe_function` names: the real driver knows their
    sizes, this one has to be given them. The last 16 launches are remembered.
    """

    def __init__(self) -> None:
        names = ("launch", "encode", "get_context", "push_context", "pop_context")
        addresses = link(counting_text(), ("tw_counting", *(f"tw_count_{name}" for name in names)))
        self._counting = structure("Counting").from_address(addresses["tw_counting"])
        self.entries = DriverEntries(*(addresses[f"tw_count_{name}"] for name in names))

    def describe_function(self, function: int, sizes: Sequence[int]) -> None:
        """Have the parameters of ``function``, of these sizes in bytes, copied at each launch."""
        counting = self._counting
        if sum(sizes) > BLOCK_BYTES or len(sizes) > MAX_PARAMETERS:
            raise ArgumentError(
                "sizes", f"are at most {MAX_PARAMETERS}, and {BLOCK_BYTES} bytes in all", sizes
            )
        known = [one.function for one in counting.described[: counting.described_count]]
        place = known.index(function) if function in known else len(known)
        if place == DESCRIBED_FUNCTIONS:
            raise ArgumentError("function", f"is one of at most {DESCRIBED_FUNCTIONS}", function)
        described = counting.described[place]
        described.function, described.count = function, len(sizes)
        described.sizes[: len(sizes)] = list(sizes)
        counting.described_count = max(len(known), place + 1)

    def launches(self) -> int:
        """How many launches came through."""
        return int(self._counting.launches)

    def encodes(self) -> int:
        """How many tensor maps were encoded."""
        return int(self._counting.encodes)

    def pushes(self) -> int:
        """How often a context was pushed."""
        return int(self._counting.pushes)

    def pops(self) -> int:
        """How often a context was popped."""
        return int(self._counting.pops)

    def set_context(self, context: int) -> None:
        """What the driver says is the current context."""
        self._counting.context = context

    def fail_next(self, status: int) -> None:
        """Have the next launch answer ``status`` and not count."""
        self._counting.fail = status

    def fail_push(self, status: int) -> None:
        """Have every push of a context answer ``status``, until that is 0."""
        self._counting.fail_push = status

    def last(self, back: int = 0) -> CountedLaunch:
        """The last launch, or the one ``back`` before it."""
        if not 0 <= back < min(self.launches(), RING_LAUNCHES):
            raise ArgumentError("back", "names a launch that is remembered", back)
        counted = self._counting.ring[(self.launches() - 1 - back) % RING_LAUNCHES]
        config = counted.config
        attributes = {one.id: one.value for one in counted.attributes[: config.attribute_count]}
        cluster = attributes.get(_CLUSTER_DIMENSION)
        overlap = attributes.get(_PROGRAMMATIC_STREAM_SERIALIZATION)
        return CountedLaunch(
            counted.function,
            tuple(config.grid),
            tuple(config.block),
            config.shared,
            config.stream,
            tuple(cluster[:3]) if cluster else None,
            bool(overlap and overlap[0]),
            self._parameters(counted.function, bytes(counted.block)),
        )

    def _parameters(self, function: int, block: bytes) -> tuple[bytes, ...]:
        counting, start, parameters = self._counting, 0, []
        for one in counting.described[: counting.described_count]:
            if one.function == function:
                for size in one.sizes[: one.count]:
                    parameters.append(block[start : start + size])
                    start += size
        return tuple(parameters)


def counting_entries() -> CountingDriver:
    """A new counting driver, with counts of its own."""
    return CountingDriver()


def decode_map(data: bytes) -> EncodedMap:
    """Read a tensor map that a counting driver encoded."""
    words = _MAP.unpack(data)
    data_type, rank, *modes = words[20:]
    return EncodedMap(
        words[0],
        data_type,
        *(words[1 : 1 + rank], words[6 : 5 + rank], words[10 : 10 + rank], words[15 : 15 + rank]),
        *modes,
    )


def counting_text() -> str:
    """LLVM text of a driver that counts and remembers, in the place of CUDA's."""
    text = _COUNTING.replace("{CONFIG_BYTES}", str(ctypes.sizeof(structure("Config"))))
    return expand_accesses(text.replace("{ATTRIBUTE_BYTES}", str(ctypes.sizeof(structure("Attribute")))))


_COUNTING = f"""
@tw_counting = global %Counting zeroinitializer, align 64

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i32 @tw_count_launch(ptr %config, i64 %function, ptr %parameters, ptr %extra) {{
entry:
  %fail_at = at Counting.fail @tw_counting
  %fail = atomicrmw xchg ptr %fail_at, i32 0 monotonic
  %good = icmp eq i32 %fail, 0
  br i1 %good, label %count, label %failed
failed:
  ret i32 %fail
count:
  %launches_at = at Counting.launches @tw_counting
  %number = atomicrmw add ptr %launches_at, i64 1 monotonic
  %place = urem i64 %number, {RING_LAUNCHES}
  %ring = at Counting.ring @tw_counting
  %counted = getelementptr %Counted, ptr %ring, i64 %place
  set Counted.function %counted = %function
  %config_to = at Counted.config %counted
  call void @llvm.memcpy.p0.p0.i64(ptr %config_to, ptr %config, i64 {{CONFIG_BYTES}}, i1 false)
  %attribute_count = get Config.attribute_count %config
  %attributes_from = get Config.attributes %config
  %attributes_to = at Counted.attributes %counted
  br label %attribute
attribute:
  %i = phi i32 [ 0, %count ], [ %next_i, %copy_attribute ]
  %more_attributes = icmp ult i32 %i, %attribute_count
  %fit = icmp ult i32 %i, 4
  %take = and i1 %more_attributes, %fit
  br i1 %take, label %copy_attribute, label %describe
copy_attribute:
  %attribute_from = getelementptr %Attribute, ptr %attributes_from, i32 %i
  %attribute_to = getelementptr %Attribute, ptr %attributes_to, i32 %i
  call void @llvm.memcpy.p0.p0.i64(ptr %attribute_to, ptr %attribute_from, i64 {{ATTRIBUTE_BYTES}}, i1 false)
  %next_i = add i32 %i, 1
  br label %attribute

describe:
  %described = at Counting.described @tw_counting
  %described_count = get Counting.described_count @tw_counting
  br label %search
search:
  %d = phi i64 [ 0, %describe ], [ %next_d, %other ]
  %more_described = icmp ult i64 %d, %described_count
  br i1 %more_described, label %compare, label %end
compare:
  %one = getelementptr %Described, ptr %described, i64 %d
  %its_function = get Described.function %one
  %same = icmp eq i64 %its_function, %function
  br i1 %same, label %copying, label %other
other:
  %next_d = add i64 %d, 1
  br label %search

copying:
  %sizes = at Described.sizes %one
  %count_of = get Described.count %one
  %block = at Counted.block %counted
  br label %parameter
parameter:
  %p = phi i64 [ 0, %copying ], [ %next_p, %copied ]
  %to = phi ptr [ %block, %copying ], [ %next_to, %copied ]
  %more_parameters = icmp ult i64 %p, %count_of
  br i1 %more_parameters, label %copy, label %end
copy:
  %size_at = getelementptr i32, ptr %sizes, i64 %p
  %size = load i32, ptr %size_at
  %bytes = zext i32 %size to i64
  %from_at = getelementptr ptr, ptr %parameters, i64 %p
  %from = load ptr, ptr %from_at
  br label %byte
byte:
  %k = phi i64 [ 0, %copy ], [ %next_k, %copy_byte ]
  %more_bytes = icmp ult i64 %k, %bytes
  br i1 %more_bytes, label %copy_byte, label %copied
copy_byte:
  %byte_from = getelementptr i8, ptr %from, i64 %k
  %value = load i8, ptr %byte_from
  %byte_to = getelementptr i8, ptr %to, i64 %k
  store i8 %value, ptr %byte_to
  %next_k = add i64 %k, 1
  br label %byte
copied:
  %next_to = getelementptr i8, ptr %to, i64 %bytes
  %next_p = add i64 %p, 1
  br label %parameter
end:
  ret i32 0
}}

; The 128 bytes are the arguments themselves: address; 5 sizes, 4 strides of 8 bytes; 5 boxes, 5 steps of 4;
; then one byte each: data type, rank, interleave, swizzle, promotion, fill, and two of zero.
define i32 @tw_count_encode(ptr %map, i32 %data_type, i32 %rank, i64 %address, ptr %sizes, ptr %strides,
    ptr %box, ptr %steps, i32 %interleave, i32 %swizzle, i32 %promotion, i32 %fill) {{
entry:
  %encodes_at = at Counting.encodes @tw_counting
  %number = atomicrmw add ptr %encodes_at, i64 1 monotonic
  store [16 x i64] zeroinitializer, ptr %map
  store i64 %address, ptr %map
  %sizes_to = getelementptr i8, ptr %map, i64 8
  %strides_to = getelementptr i8, ptr %map, i64 48
  %box_to = getelementptr i8, ptr %map, i64 80
  %steps_to = getelementptr i8, ptr %map, i64 100
  br label %axis
axis:
  %i = phi i32 [ 0, %entry ], [ %next, %stepped ]
  %more = icmp ult i32 %i, %rank
  br i1 %more, label %copy, label %modes
copy:
  %size_at = getelementptr i64, ptr %sizes, i32 %i
  %size = load i64, ptr %size_at
  %size_to = getelementptr i64, ptr %sizes_to, i32 %i
  store i64 %size, ptr %size_to, align 4
  %extent_at = getelementptr i32, ptr %box, i32 %i
  %extent = load i32, ptr %extent_at
  %extent_to = getelementptr i32, ptr %box_to, i32 %i
  store i32 %extent, ptr %extent_to
  %step_at = getelementptr i32, ptr %steps, i32 %i
  %step = load i32, ptr %step_at
  %step_to = getelementptr i32, ptr %steps_to, i32 %i
  store i32 %step, ptr %step_to
  %next = add i32 %i, 1
  %outer = icmp ult i32 %next, %rank
  br i1 %outer, label %stride, label %stepped
stride:
  %stride_at = getelementptr i64, ptr %strides, i32 %i
  %stride_bytes = load i64, ptr %stride_at
  %stride_to = getelementptr i64, ptr %strides_to, i32 %i
  store i64 %stride_bytes, ptr %stride_to, align 4
  br label %stepped
stepped:
  br label %axis
modes:
{
    "".join(
        f'''  %{name}_byte = trunc i32 %{name} to i8
  %{name}_to = getelementptr i8, ptr %map, i64 {120 + place}
  store i8 %{name}_byte, ptr %{name}_to
'''
        for place, name in enumerate(("data_type", "rank", "interleave", "swizzle", "promotion", "fill"))
    )
}  ret i32 0
}}

define i32 @tw_count_get_context(ptr %context_to) {{
  %context = get Counting.context @tw_counting
  store i64 %context, ptr %context_to
  ret i32 0
}}

define i32 @tw_count_push_context(i64 %context) {{
entry:
  %fail = get Counting.fail_push @tw_counting
  %good = icmp eq i32 %fail, 0
  br i1 %good, label %push, label %failed
failed:
  ret i32 %fail
push:
  %pushes_at = at Counting.pushes @tw_counting
  %number = atomicrmw add ptr %pushes_at, i64 1 monotonic
  ret i32 0
}}

define i32 @tw_count_pop_context(ptr %context_to) {{
  %pops_at = at Counting.pops @tw_counting
  %number = atomicrmw add ptr %pops_at, i64 1 monotonic
  ret i32 0
}}
"""
