"""What faults and deadlocks say: arrays, spaces, blocks, warps and lanes."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.emulator.layout import FAULT, RANK_SHIFT, WINDOW, WINDOWS, FaultKind, Space
from tilewise.emulator.running.fault_report import (
    Details,
    Range,
    Waiting,
    deadlock,
    describe_fault,
    fault,
    name_arguments,
)
from tilewise.emulator.support.tensor_map_layout import OF_MAPS, WRONG
from tilewise.launch import Launch

ARRAYS = [Range(1 << 20, 64, "x"), Range((1 << 20) + 256, 1000, "y")]
X, Y = (item.start for item in ARRAYS)


@pytest.mark.parametrize(
    ("address", "where"),
    [
        (X - 4, "4 bytes before x (64 bytes)"),
        (X + 62, "it runs over the end of x (64 bytes)"),
        (X + 63, "it runs over the end of x (64 bytes)"),
        (X + 64, "0 bytes past the end of x (64 bytes)"),
        (X + 64 + 95, "95 bytes past the end of x (64 bytes)"),
        (Y - 96, "96 bytes before y (1,000 bytes)"),
        (Y - 95, "95 bytes before y (1,000 bytes)"),
        (Y + 1000, "0 bytes past the end of y (1,000 bytes)"),
        (Y + 12345, "11,345 bytes past the end of y (1,000 bytes)"),
        (0, "a null pointer, or a place near one"),
        ((1 << 16) - 1, "a null pointer, or a place near one"),
        (1 << 16, f"{X - (1 << 16):,} bytes before x (64 bytes)"),
        ((1 << 64) - (1 << 16) + 1, "a null pointer, or a place near one"),
    ],
)
def test_an_address_outside_is_told_from_the_array_that_is_nearest(address: int, where: str) -> None:
    found = Details("OUT_OF_BOUNDS", "read", "global", address, 4, (0, 0, 0))
    said = describe_fault(found, (1, 1, 1), ARRAYS, cast(Any, None), 0)
    assert said == f"out-of-bounds read of 4 bytes at global address {address:#x}: {where}"
    if not where.startswith("a null"):
        assert describe_fault(found, (1, 1, 1), [], cast(Any, None), 0).endswith(": the launch has no arrays")


def test_other_memory_is_told_with_its_size() -> None:
    build = cast(Any, SimpleNamespace(local_bytes=1024, constant_bytes=2048, parameter_bytes=24))
    for space, size in (
        ("shared", "the block has 4,096 bytes of it"), ("own", "the block has 4,096 bytes of it"),
        ("local", "the thread has 1,024 bytes of it"), ("const", "the module has 2,048 bytes of it"),
        ("param", "the kernel has 24 bytes of it"), ("generic", "there are 0 bytes of it"),
    ):  # fmt: skip
        found = Details("OUT_OF_BOUNDS", "write", space, 0x5000, 8, (0, 0, 0))
        told = "shared" if space == "own" else space
        said = describe_fault(found, (1, 1, 1), [], build, 4096)
        assert said == f"out-of-bounds write of 8 bytes at {told} address 0x5000: {size}"


@pytest.mark.parametrize("space", ["param", "const", "shared"])
def test_a_tensor_map_of_a_wrong_copy_is_told_with_the_memory_it_lies_in(space: str) -> None:
    """That whose window has its address; what lies beyond a window's end is in global memory."""
    first = WINDOWS[space]
    for address, where in (
        (first, f"{space} address 0x0"),
        (first + WINDOW - 1, f"{space} address {WINDOW - 1:#x}"),
        (first + WINDOW, f"global address {first + WINDOW:#x}"),
        (first - 1, f"global address {first - 1:#x}"),
    ):
        found = Details("BAD_COPY", "read", "generic", address, 6, (0, 0, 0))
        said = describe_fault(found, (1, 1, 1), [], cast(Any, None), 0)
        assert said == f"the tensor map at {where} and a copy: a size of it is 0"


def test_a_wrong_number_of_a_bulk_copy_is_told() -> None:
    for why in (0, *range(OF_MAPS.stop, len(WRONG))):
        found = Details("BAD_COPY", "read", "generic", 0x18, why, (0, 0, 0))
        said = describe_fault(found, (1, 1, 1), [], cast(Any, None), 0)
        assert said == f"a bulk copy: {WRONG[why]} (0x18)"


@given(st.tuples(*[st.integers(1, 3)] * 3), st.tuples(*[st.integers(0, 3)] * 3), st.data())
def test_shared_memory_of_another_block_is_told_with_that_block(
    cluster: tuple[int, int, int], which: tuple[int, int, int], data: st.DataObject
) -> None:
    """Ranks go along x first; the block that asks may be any of its cluster."""
    inside, owner = (tuple(data.draw(st.integers(0, size - 1)) for size in cluster) for _ in range(2))
    rank = owner[0] + cluster[0] * (owner[1] + cluster[1] * owner[2])
    first = [at * size for at, size in zip(which, cluster, strict=True)]
    asks, owns = (tuple(map(sum, zip(first, one, strict=True))) for one in (inside, owner))
    found = Details("MISALIGNED", "read", "shared", (rank + 1 << RANK_SHIFT) + 0x123, 4, cast(Any, asks))
    said = describe_fault(found, cluster, [], cast(Any, None), 0)
    assert said == f"misaligned read of 4 bytes at shared address 0x123 of block {owns}: no multiple of 4"
    beyond = replace(found, kind="NO_BLOCK", address=math.prod(cluster) + 1 << RANK_SHIFT)
    assert describe_fault(beyond, cluster, [], cast(Any, None), 0) == (
        f"read of 4 bytes at shared address {beyond.address:#x}: the cluster has no block of rank {math.prod(cluster)}"
    )


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (1, "warp 0 waits"),
        (2, "warp 0, warp 1 wait"),
        (8, "warp 6, warp 7 wait"),
        (9, "warp 7 and 1 more wait"),
    ],
)
@pytest.mark.parametrize("left", [0, 3])
def test_warps_that_wait_for_the_same_are_told_together(count: int, shown: str, left: int) -> None:
    build = cast(Any, SimpleNamespace(entry="k", warps=count + left))
    waiting = [Waiting(warp, (1, 0, 0), 0xFFFF_FFFF, 0) for warp in range(count)]
    for item in waiting:
        item.add(0xFFFF_FFFF, "at barrier 3", 0)
    head, line = str(deadlock(build, (1, 0, 0), waiting)).split("\n")
    assert line.startswith("  warp 0") and line.endswith(f"{shown} at barrier 3")
    gone = f"; {left} of its {count + left} warps have left" if left else ""
    assert head == f"deadlock in kernel k, block (1, 0, 0): every warp waits{gone}"


def test_lanes_that_wait_for_different_things_are_told_apart() -> None:
    """What a lane waits for first counts; those left over wait for the others, or for memory that they look at."""
    build = cast(Any, SimpleNamespace(entry="k", warps=1))
    for asks, title, rest in (
        (False, "every warp waits", "for those"),
        (True, "no block gets on", "in a loop for memory to change"),
    ):
        (item,) = waiting = [Waiting(0, (2, 4, 0), 0x0000_0FFF, 0)]
        item.add(0x0000_000F, "here", 0)
        item.add(0x0000_00FF, "there", 0)
        item.add(0xFFFF_0003, "nowhere", 0)
        said = str(deadlock(build, (2, 4, 0), waiting, asks, (2, 1, 1))).split("\n")
        assert said == [
            f"deadlock in kernel k, cluster (1, 4, 0) of 2 blocks from block (2, 4, 0) on: {title}; 1 of its 2 warps have left",
            "  lanes 0x0000000f of warp 0 of block (2, 4, 0) wait here",
            "  lanes 0x000000f0 of warp 0 of block (2, 4, 0) wait there",
            f"  lanes 0x00000f00 of warp 0 of block (2, 4, 0) wait {rest}",
        ]


def recorded(kind: FaultKind, address: int, space: Space = Space.GLOBAL, line: int = 0, **given: Any) -> Any:
    """The error for a fault of thread 70, a write of 8 bytes, in block (5, 3, 1) of a launch."""
    build = SimpleNamespace(entry="k", block=(32, 2, 4), finds_workspace=False, ptx="")
    build.__dict__.update(given.pop("more", {}))
    record = bytearray(256)
    struct.pack_into("<iIIIII", record, 0, kind, line, 5, 3, 1, 70)
    struct.pack_into("<Q", record, FAULT.ADDRESS, address)
    struct.pack_into("<III", record, FAULT.SIZE, 8, space, 1)
    launch = Launch((8, 4, 2), (32, 2, 4), **given)
    return fault(cast(Any, build), bytes(record), ARRAYS, 64, {((5, 3, 1), 70): "asserted"}, launch)


@pytest.mark.parametrize(
    ("address", "space", "array"),
    [
        (X - 1, Space.GLOBAL, ""), (X, Space.GLOBAL, "x"), (X + 63, Space.GLOBAL, "x"), (X + 64, Space.GLOBAL, ""),
        (Y + 999, Space.GLOBAL, "y"), (Y + 1000, Space.GLOBAL, ""), (X + 8, Space.SHARED, ""), (X + 8, Space.LOCAL, ""),
    ],
)  # fmt: skip
def test_a_fault_names_the_array_of_global_memory_that_it_lies_in(
    address: int, space: Space, array: str
) -> None:
    found = recorded(FaultKind.MISALIGNED, address, space).details
    assert (found.array, found.what, found.size, found.thread) == (array, "write", 8, (6, 0, 1))


def test_a_fault_is_told_with_its_block_and_rank_of_a_cluster() -> None:
    for cluster, where in (
        (None, "block (5, 3, 1), thread (6, 0, 1)"),
        ((1, 1, 1), "block (5, 3, 1), thread (6, 0, 1)"),
        ((2, 2, 2), "block (5, 3, 1) (rank 7 in cluster (2, 1, 0)), thread (6, 0, 1)"),
        ((1, 1, 2), "block (5, 3, 1) (rank 1 in cluster (5, 3, 0)), thread (6, 0, 1)"),
        ((4, 2, 1), "block (5, 3, 1) (rank 5 in cluster (1, 1, 1)), thread (6, 0, 1)"),
    ):
        said = str(recorded(FaultKind.TRAP, 0, cluster=cluster))
        assert said == f"the kernel trapped\n  in kernel k, {where}"
    assert str(recorded(FaultKind.ASSERT, 0)).startswith("asserted\n")


def test_a_trap_is_that_of_a_grids_barrier_only_in_a_launch_that_has_none() -> None:
    for finds, cooperative, told in (
        (True, False, True), (True, True, False), (False, False, False), (False, True, False),
    ):  # fmt: skip
        said = str(recorded(FaultKind.TRAP, 0, more={"finds_workspace": finds}, cooperative=cooperative))
        assert ("give it cooperative=True" in said) == told
        assert said.startswith("the kernel trapped\n") != told


def test_a_long_line_of_ptx_is_cut() -> None:
    for length in (199, 200, 201, 5000):
        text = "y" * length
        build = {"ptx": f".version 8.0\n.target sm_80\n// {text[3:]}\n"}
        said = str(recorded(FaultKind.TRAP, 0, line=3, more=build))
        shown = f"// {text[3:]}"
        assert said.endswith(f"PTX line 3: {shown if length <= 200 else shown[:200] + '…'}")


def test_arrays_have_the_names_of_the_arguments_whose_addresses_are_theirs() -> None:
    """Alone or within a struct; what points behind an array's end names none."""
    packed = [struct.pack("<Q", number) for number in (X, X + 63, X + 64, Y + 999, Y + 1000, X - 1, X)]
    packed.append(struct.pack("<IIQ", 7, 8, Y))
    packed.append(struct.pack("<I", 5))
    labels = ["a", "b", "c", "d", "e", "f", "a", "struct", "n"]
    named = [item.name for item in name_arguments(ARRAYS, packed, labels)]
    assert named == ["a and b, x", "d and struct, y"]
    assert [item.name for item in name_arguments(ARRAYS, packed, [])] == ["x", "y"]
