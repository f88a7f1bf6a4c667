"""Copies of tensors against a model in NumPy: ranks, boxes, swizzles, coordinates, element types."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.tensor_cases import Case, boxes, images, run_load, run_store
from tests.tensor_kernels import OPERATIONS, REDUCTIONS, kernel, reduced
from tilewise.devices.tensor_map import ELEMENTS
from tilewise.emulator.support.tensor_map_layout import MAP, WRONG
from tilewise.errors import Deadlock, KernelFault, LaunchTimeout

ORDERS = ("eager", "late", 3)
DEVICE = tw.device("emulator", threads=1)


@given(boxes(), st.sampled_from(ORDERS))
@settings(max_examples=120, deadline=None)
def test_a_box_is_loaded(case: Case, order: str | int) -> None:
    run_load(case, tw.device("emulator", order=order))


@given(boxes(stores=True), st.sampled_from(ORDERS))
@settings(max_examples=80, deadline=None)
def test_a_box_is_stored(case: Case, order: str | int) -> None:
    run_store(case, tw.device("emulator", order=order))


@pytest.mark.parametrize("interleave", [16, 32])
@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("first", [1, -1])  # inside or outside
def test_slices_are_copied_with_gaps(first: int, step: int, interleave: int) -> None:
    memory = np.random.default_rng().integers(0, 256, 3 * 2 * 9 * interleave, np.uint8)
    strides = (2 * 9 * interleave, 9 * interleave)
    case = Case(
        *(memory, "float16", (first, 1, 1), (3, 2, 9, interleave // 2), strides, (2, 1, 8), (1, 1, step)),
        swizzle=interleave if interleave == 32 else None,
        interleave=interleave,
    )
    run_load(case, DEVICE)
    if first > 0:
        run_store(case, DEVICE)


@given(images(), st.sampled_from(ORDERS))
@settings(max_examples=80, deadline=None)
def test_pixels_are_gathered(case: Case, order: str | int) -> None:
    run_load(case, tw.device("emulator", order=order))


@given(images(stores=True))
@settings(max_examples=30, deadline=None)
def test_pixels_are_put_back(case: Case) -> None:
    run_store(case, DEVICE)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_elements_are_combined_with_those_that_are_there(operation: str) -> None:
    """Of floating-point numbers whole ones, whose sums are exact."""
    combine: Any = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor, "inc": lambda old, new: np.where(old >= new, 0, old + 1),
        "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
    }[operation]  # fmt: skip
    for dtype in REDUCTIONS[operation].split():
        name = {"float32_ftz": "float32", "tfloat32": "float32"}.get(dtype, dtype)
        kind = np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)
        small = np.random.default_rng().integers(0, 5, (2, 2 * 256 // kind.itemsize))
        old, new = ((-one if kind.kind != "u" else one).astype(kind) for one in small)
        found = reduced(DEVICE, dtype, operation, old.view(np.uint8), new.view(np.uint8)).view(kind)
        assert (found == combine(old, new)).all() and (found != old).any(), dtype


def test_a_reduction_that_an_element_type_has_not_is_a_fault() -> None:
    for operation, dtype in itertools.product(OPERATIONS, ELEMENTS):
        if dtype not in REDUCTIONS[operation].split() and dtype not in ("tfloat32_ftz", "int64"):
            with pytest.raises(KernelFault, match="none that its element type has"):
                reduced(DEVICE, dtype, operation, np.zeros(512, np.uint8), np.zeros(512, np.uint8))


@pytest.mark.parametrize("fill", ["zero", "nan"])
@pytest.mark.parametrize("dtype", [name for name, element in ELEMENTS.items() if element.floating])
def test_what_is_outside_is_filled(dtype: str, fill: str) -> None:
    size = ELEMENTS[dtype].size
    memory = np.frombuffer(os.urandom(4 * 256), np.uint8)
    count = 16 // size
    run_load(Case(memory, dtype, (-count, -1), (4, 3 * count - 1), (256,), (3, 4 * count), fill=fill), DEVICE)


def test_tf32_is_rounded_to_the_nearest_even() -> None:
    special = [0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0x7F7FFFFF, 0x7F800001, 0xFFFFFFFF, 0x1FFF]
    memory = np.array(special * 4, np.uint32).view(np.uint8)
    run_load(Case(memory, "tfloat32", (0, 0), shape=(1, 32), strides=(128,), box=(1, 32)), DEVICE)


def _one(shape: tuple[int, ...], box: tuple[int, ...], **how: Any) -> tuple[tw.TensorMap, Any]:
    x = DEVICE.array(np.arange(math.prod(shape), dtype=np.float32).reshape(shape))
    return tw.TensorMap(x, box, **how), x


def _go(
    what: str,
    given: Any,
    coordinates: tuple[int, ...],
    kind: int = 2,
    at: int = 0,
    size: int = 8192,
    timeout: float | None = 20,
) -> None:
    numbers = [kind, at, 1024, size, *coordinates, *[0] * (8 - len(coordinates))]
    with_bytes = DEVICE.array(np.zeros(size, np.uint8))
    args = [given, DEVICE.array(np.array(numbers, np.int64).astype(np.int32)), with_bytes]
    kernel(what)(1, 32, args, shared=size, device=DEVICE, timeout=timeout)


@pytest.mark.parametrize(
    ("coordinates", "kind", "at", "said"),
    [
        ((3, 0), 2, 0, "innermost coordinate"),
        ((0, 0), 2, 64, "not a multiple of 128"),
        ((0, 0, 0), 3, 0, "rank"),
        ((0, 0, 0), 13, 0, "rank"),
    ],
)
def test_a_copy_that_hardware_refuses_is_a_fault(
    coordinates: tuple[int, ...], kind: int, at: int, said: str
) -> None:
    with pytest.raises(KernelFault, match=said) as caught:
        _go("load", _one((32, 64), (8, 32))[0], coordinates, kind, at)
    assert "block (0, 0, 0), thread (0, 0, 0)" in str(caught.value)
    assert "cp.async.bulk.tensor" in str(caught.value)


def test_more_misuse_is_a_fault() -> None:
    tiled, _ = _one((4, 32, 64), (1, 8, 32))
    with pytest.raises(KernelFault, match="for tiled copies"):
        _go("load", tiled, (0, 0, 0), 13)
    with pytest.raises(KernelFault, match="negative coordinate"):
        _go("store", tiled, (0, -1, 0), 3)
    with pytest.raises(KernelFault, match="none that its element type has"):
        _go("store", _one((32, 64), (8, 32))[0], (0, 0), 32)  # a minimum of f32
    with pytest.raises(KernelFault, match=r"out-of-bounds write of 1,?024 bytes at shared"):
        _go("load", _one((32, 64), (8, 32))[0], (0, 0), size=896)
    turned, _ = _one((2, 2, 8, 4), (1, 1, 4), interleave=16, swizzle=32)  # within whole lines of 128 bytes
    with pytest.raises(KernelFault, match=r"out-of-bounds write of 128 bytes at shared"):
        _go("load", turned, (0, 0, 0), 3, size=64)
    images = tw.TensorMap.im2col(
        DEVICE.array(np.zeros((2, 8, 8, 16), np.float32)), lower=(0, 0), upper=(0, 0), channels=16, pixels=16
    )
    with pytest.raises(KernelFault, match="outside the bounding box"):
        _go("load", images, (0, 8, 0, 0), 14)
    with pytest.raises(KernelFault, match="for im2col copies"):
        _go("load", images, (0, 0, 0, 0), 4)


SYMBOL = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 y) {
.reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .pred %p<2>;
.shared .align 128 .b8 s[256]; .shared .align 8 .b64 bar;
mbarrier.init.shared::cta.b64 [bar], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [map, {0, 1}], [bar];
$L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
@!%p1 bra $L;
ld.param.u64 %rd1, [y];
ld.shared.u32 %r1, [s+132];
st.global.u32 [%rd1], %r1;
ret; }"""


def test_operands_may_be_names() -> None:
    x, y = np.arange(128, dtype=np.uint32).reshape(4, 32), np.zeros(1, np.uint32)
    tw.Kernel.from_ptx(SYMBOL, "k")(1, 1, [tw.TensorMap(x, (2, 32)), y], device=DEVICE, timeout=20)
    assert y[0] == x[2, 1]


# What becomes of the map's rows 1 and 2, and of shared memory.
HINTED: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes {hint} [s], [map, {0, 1}], [bar]": lambda x, s: (x, x),
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group {hint} [map, {0, 1}], [s]": lambda x, s: (s, s),
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group {hint} [map, {0, 1}], [s]": lambda x, s: (x + s, s),
    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile {hint} [map, {0, 1}]": lambda x, s: (x, s),
}  # fmt: skip


def hinted(form: str, word: str, operand: str) -> tuple[Any, Any]:
    """The array behind the map, and shared memory, after a copy with a cache policy; both had numbers from 0 on, and 2."""
    loads = "mbarrier" in form
    wait = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256; $L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra $L;"
    after = wait if loads else "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    text = f"""
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 y) {{
.reg .b32 %t, %r<2>; .reg .b64 %rd<2>, %hint; .reg .pred %p<2>;
.shared .align 128 .b8 s[256]; .shared .align 8 .b64 bar;
mov.u32 %t, %tid.x; shl.b32 %t, %t, 2; mov.u32 %r0, s; add.u32 %r0, %r0, %t; mov.u32 %r1, 2; st.shared.u32 [%r0], %r1;
ld.param.u64 %rd1, [y]; cvt.u64.u32 %rd0, %t; add.u64 %rd1, %rd1, %rd0;
fence.proxy.async.shared::cta; setp.ne.u32 %p0, %t, 0; bar.sync 0; @%p0 bra $END;
mbarrier.init.shared::cta.b64 [bar], 1; mov.u64 %hint, 0x12F0000000000000;
{form.replace(" {hint}", word)}{operand}; {after}
$END: bar.sync 0; ld.shared.u32 %r1, [%r0]; st.global.u32 [%rd1], %r1; ret; }}"""
    x, y = DEVICE.array(np.arange(128, dtype=np.uint32).reshape(4, 32)), np.zeros(64, np.uint32)
    tw.Kernel.from_ptx(text, "k")(1, 64, [tw.TensorMap(x, (2, 32)), y], device=DEVICE, timeout=20)
    return x.numpy(), y


@pytest.mark.parametrize("form", HINTED)
def test_a_cache_policy_changes_nothing_and_stands_where_the_word_does(form: str) -> None:
    rows, shared = np.arange(128, dtype=np.uint32).reshape(4, 32), np.full((2, 32), 2, np.uint32)
    rows[1:3], shared = HINTED[form](rows[1:3], shared)
    for word, operand in (("", ""), (".L2::cache_hint", ", %hint")):
        x, y = hinted(form, word, operand)
        assert (x == rows).all() and (y.reshape(2, 32) == shared).all()
    for word, operand in ((".L2::cache_hint", ""), ("", ", %hint")):
        with pytest.raises(tw.errors.PtxError, match=r"operands?"):
            hinted(form, word, operand)


def test_bytes_that_never_come_are_a_deadlock() -> None:
    """The kernel expects 1,024 bytes, and the box has 512. Without a time limit the emulator finds out."""
    with pytest.raises(Deadlock, match="512 bytes must still come"):
        _go("load", _one((32, 64), (4, 32))[0], (0, 0), timeout=None)


def test_memory_of_nobody_is_a_fault() -> None:
    x = DEVICE.array(np.zeros((8, 64), np.float32))
    beyond = tw.TensorMap(x.ptr, (8, 32), shape=(16, 64), dtype="float32")
    with pytest.raises(KernelFault, match="out-of-bounds read of 128 bytes at global address"):
        _go("load", beyond, (0, 8))
    with pytest.raises(KernelFault, match="out-of-bounds write of 128 bytes at global address"):
        _go("store", beyond, (0, 4))


def test_a_foreign_map_is_a_fault() -> None:
    for foreign in (bytes(128), os.urandom(128)):
        with pytest.raises(KernelFault, match=r"tensor map at param address 0x0 .* tw\.TensorMap"):
            _go("load", foreign, (0, 0))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_map_does_no_harm(data: st.DataObject) -> None:
    """Whatever is in a map, a copy by it does what it says or is a fault."""
    made, _x = _one((32, 64), (8, 32), swizzle=128)
    damaged = bytearray(made.encode(DEVICE))
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(MAP.ADDRESS, 127))] = data.draw(st.integers(0, 255))
    numbers = st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, 4, 8, 32]))
    coordinates = tuple(data.draw(numbers) for _ in range(5))
    kind = data.draw(st.sampled_from([1, 2, 3, 4, 5, 13, 14, 15, 22, 52]))
    # For more or fewer bytes than it expects the kernel would wait for ever.
    with contextlib.suppress(KernelFault, LaunchTimeout):
        _go("load" if kind < 20 else "store", bytes(damaged), coordinates, kind, timeout=0.3)


def test_every_fault_is_told() -> None:
    assert all(why for why in WRONG[1:])
