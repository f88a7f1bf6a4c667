"""Loads and stores of one to four elements a lane: at places that only the run knows, and side by side."""

from __future__ import annotations

import contextlib
import functools
import itertools

import numpy as np
import pytest

import tilewise as tw
from tests.harness.lanes import entry
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.lowering.lower import lower
from tilewise.emulator.ptx.parse import parse
from tilewise.errors import KernelFault, PtxError

LANES = 32
BLOCKS = 8  # that all do the same: the first one of each thread goes the careful way
PLACES = {
    "side by side": np.arange(LANES),
    "further on": np.arange(LANES) + 5,
    "one elsewhere": np.where(np.arange(LANES) == 17, 3, np.arange(LANES)),
    "the last one elsewhere": np.where(np.arange(LANES) == 31, 30, np.arange(LANES)),
    "backwards": np.arange(LANES)[::-1],
    "every second one": 2 * np.arange(LANES),
    "all at one": np.full(LANES, 7),
}
RUNNING = {
    "true": np.full(LANES, True),
    "threadIdx.x != 9": np.arange(LANES) != 9,
    "threadIdx.x < 31": np.arange(LANES) < 31,
}


@functools.cache
def kernel(element: str, threads: str) -> tw.Kernel:
    source = f"""
    extern "C" __global__ void move({element} *to, {element} *beside, const {element} *from, const int *reads,
                                   const int *writes)
    {{
        const {element} *place = from + (threadIdx.x == 9 && !({threads}) ? 1ll << 44 : reads[threadIdx.x]);
        asm volatile("mov.u64 %0, %0;" : "+l"(place)); // of every lane, whether it runs or not
        if ({threads}) to[writes[threadIdx.x]] = beside[threadIdx.x] = *place;
    }}"""
    return tw.Kernel(source, "move", "sm_90")


@pytest.mark.few(4)
@pytest.mark.parametrize("threads", RUNNING)
@pytest.mark.parametrize(
    ("element", "dtype", "each"),
    [
        ("int", "int32", 1),
        ("float2", "float32", 2),
        ("float4", "float32", 4),
        ("uint4", "uint32", 4),
        ("ushort4", "uint16", 4),
        ("double2", "float64", 2),
        ("uchar4", "uint8", 4),
    ],
)
def test_each_lane_has_its_own(element: str, dtype: str, each: int, threads: str) -> None:
    """The arrays end where the highest lane's elements do: nothing beyond is touched, nor what no lane writes."""
    random = np.random.default_rng(1)
    running = RUNNING[threads]
    for reads in PLACES.values():
        for writes in PLACES.values():
            source = random.integers(0, 200, (reads.max() + 1, each)).astype(dtype)
            target = random.integers(0, 200, (writes.max() + 1, each)).astype(dtype)
            wanted = target.copy()
            wanted[writes[running]] = source[reads[running]]
            lists = [np.ascontiguousarray(places, np.int32) for places in (reads, writes)]
            beside = np.zeros((LANES, each), dtype)
            arrays = [target, beside, source, *lists]
            kernel(element, threads)(BLOCKS, LANES, arrays, device="emulator")
            np.testing.assert_array_equal(target, wanted)
            np.testing.assert_array_equal(beside, np.where(running[:, None], source[reads], 0))


ACCESSED = {2: ("b16", "%h"), 4: ("b32", "%r"), 8: ("b64", "%w"), 16: ("v2.b64", "{%w, %v}")}


@pytest.mark.parametrize("space", ["global", "shared", "local"])
@pytest.mark.parametrize("size", ACCESSED)
def test_an_access_lies_at_a_multiple_of_its_size(size: int, space: str) -> None:
    """From any other address on it is a fault, also where the turn before touched the same memory."""
    words, value = ACCESSED[size]
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 by, .param .u32 stores) {{
.reg .b16 %h; .reg .b32 %r, %s, %turn; .reg .b64 %w, %v, %at, %by; .reg .pred %p, %q;
.shared .align 16 .b8 in_shared[64]; .local .align 16 .b8 in_local[64];
ld.param.u64 %at, [x]; ld.param.u64 %by, [by]; ld.param.u32 %s, [stores]; setp.ne.u32 %p, %s, 0;
{"" if space == "global" else f"mov.u64 %at, in_{space};"} mov.b16 %h, 1; mov.b32 %r, 1; mov.b64 %w, 1; mov.b64 %v, 1;
mov.u32 %turn, 0;
TURN: @%p bra STORE; ld.{space}.{words} {value}, [%at]; bra NEXT; STORE: st.{space}.{words} [%at], {value};
NEXT: add.u64 %at, %at, %by; add.u32 %turn, %turn, 1; setp.lt.u32 %q, %turn, 2; @%q bra TURN; ret; }}"""
    kernel, x = tw.Kernel.from_ptx(text, "k"), tw.device("emulator").array(np.zeros(64, np.uint8))
    for by, stores in itertools.product((0, 1, 2, 4, 8, 16, 32), (0, 1)):
        expected = f"misaligned {'write' if stores else 'read'} of {size} bytes"
        with pytest.raises(KernelFault, match=expected) if by % size else contextlib.nullcontext():
            kernel(1, 1, [x, by, stores], device="emulator")


@pytest.mark.parametrize("verb", ["ld", "st"])
@pytest.mark.parametrize("form", ["v8.b64", "v4.b128", "pred", "v4.b64", "v8.b32", "v2.b128"])
def test_an_access_has_32_bytes_a_lane_at_most(verb: str, form: str) -> None:
    size = {"pred": "p", "b32": "r", "b64": "l", "b128": "q"}[form.split(".")[-1]]
    count = int(form[1]) if "." in form else 1
    items = ", ".join(f"%{size}{i}" for i in range(count))
    value = f"{{{items}}}" if count > 1 else items
    operands = f"{value}, [%a]" if verb == "ld" else f"[%a], {value}"
    registers = ".reg .pred %p<8>; .reg .b32 %r<8>; .reg .b64 %l<8>; .reg .b128 %q<8>; .reg .b64 %a;"
    text = entry(f"{registers} ld.param.u64 %a, [x]; {verb}.global.{form} {operands};", ".param .u64 x")
    refused = form in ("v8.b64", "v4.b128", "pred")
    with pytest.raises(PtxError, match="not with this type") if refused else contextlib.nullcontext():
        lower(Program(parse(text), "k", (32, 1, 1)), False, "k")
