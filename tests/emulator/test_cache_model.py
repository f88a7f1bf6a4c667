"""The model of the caches: what blocks touch is what they really touch; and models of it on cases known by hand."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw
from tilewise import gpus
from tilewise.kernels import raster
from tilewise.profiler.cache import Trace, traffic
from tilewise.profiler.launch import ProfilingDevice

K = 8
TILE = 256, 128  # of rung 09, rows and columns as it sees them


def trace_of(rows: int, columns: int, order: str) -> Trace:
    """Rung 09 on so many tiles. Its rows are the columns of the caller's C."""
    m, n = columns * TILE[1], rows * TILE[0]
    found = tw.ladder["09_warp_tiled"].profile(m, n, K, gpu="h200", cache=True, raster=order).trace
    assert found is not None and found.lost == 0 and len(found.blocks) == rows * columns
    return found


def elements(read: int) -> float:
    """For each term of the sums."""
    return read / 4 / K


def test_sixty_four_blocks_in_a_column_and_in_a_square() -> None:
    """16,512·K elements of A and B against 3,072·K, from the addresses that were touched."""
    column = trace_of(64, 2, "column")
    assert elements(column.footprint(range(64))) == 16_512
    square = trace_of(8, 8, "hilbert")
    assert elements(square.footprint(range(64))) == 3_072


def test_what_rasters_achieve() -> None:
    """On 34, 58 and 132 multiprocessors: as the arithmetic of tiles says, wave by wave."""
    for order in ("hilbert", "column"):
        trace = trace_of(16, 12, order)
        for sms in (34, 58, 132):
            expected = raster.waves(raster.ORDERS[order], 16, 12, *TILE, sms)
            assert [elements(read) for read in trace.waves(sms)] == [wave.total for wave in expected]


ORDERED = """
#include <tilewise/raster.cuh>
extern "C" __global__ void k(const float *a, const float *b, float *sink, unsigned rows, unsigned columns) {
    const TileIndex tile = ORDER(blockIdx.x, rows, columns);
    float sum = 0;
    for (unsigned i = threadIdx.x; i < 256; i += 32) sum += a[tile.row * 256 + i];
    for (unsigned i = threadIdx.x; i < 128; i += 32) sum += b[tile.column * 128 + i];
    if (sum == 12345) *sink = sum;
}"""


@pytest.mark.parametrize("order", ["grouped", "hilbert"])
def test_orders_on_a_grid_of_any_shape(order: str) -> None:
    """A kernel that only reads its tiles' row of A and column of B, one element for each k."""
    rows, columns = 19, 13
    device = ProfilingDevice(gpus.find("h200"), cache=True)
    a, b = device.array(np.zeros(rows * 256, np.float32)), device.array(np.zeros(columns * 128, np.float32))
    kernel = tw.Kernel(ORDERED, "k", "sm_90a", {"ORDER": order})
    kernel(rows * columns, 32, [a, b, b, rows, columns], device=device)
    trace = device.profile.trace
    assert trace is not None
    for sms in (34, 58, 132):
        expected = raster.waves(raster.ORDERS[order], rows, columns, *TILE, sms)
        assert [read / 4 for read in trace.waves(sms)] == [wave.total for wave in expected]


def test_a_sector_is_read_from_memory_once() -> None:
    """Four blocks on two multiprocessors read one array: the L1 serves the second block of each, the L2 the other."""
    source = """extern "C" __global__ void k(const float *a, float *b) {
        b[blockIdx.x * 256 + threadIdx.x] = a[threadIdx.x]; }"""
    device = ProfilingDevice(gpus.find("h200"), cache=True)
    a, b = device.array(np.zeros(256, np.float32)), device.array(np.zeros(1024, np.float32))
    tw.Kernel(source, "k", "sm_90a")(4, 256, [a, b], device=device)
    trace = device.profile.trace
    assert trace is not None
    assert trace.footprint() == 1024 and trace.footprint(writes=True) == 4096
    whole = traffic(trace, "h200", in_flight=4)
    assert (whole.requested, whole.memory_read, whole.memory_written) == (4 * 32, 32, 128)
    assert whole.l2_read == 4 * 32  # each block on a multiprocessor of its own
    assert whole.l2_hits == 3 * 32
    assert device.profile["dram__bytes_read.sum"] == 1024
    assert device.profile.metrics["dram__bytes_read.sum"].label == "model"


def _blocks(*touched: range) -> Trace:
    return Trace(
        {
            i: (np.array(sectors, np.int64), np.zeros(len(sectors), np.int8))
            for i, sectors in enumerate(touched)
        }
    )


def test_what_is_pushed_out_is_read_again() -> None:
    """Two passes over an array: the second hits the L2 if the array fits, and else does not."""
    gpu = gpus.find("rtx-2060-super")
    fits, beyond = (int(gpu.l2_bytes * part) // 32 for part in (0.4, 3))
    for size, missing in ((fits, fits), (beyond, 2 * beyond)):
        found = traffic(_blocks(range(size), range(size)), gpu, in_flight=1)
        assert found.memory_read == pytest.approx(missing, rel=0.01)


def test_the_trace_knows_spaces_and_kinds() -> None:
    """Shared memory is not in it; stores, atomics, copies and generic addresses are."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .b32 %r<9>;
.reg .b64 %rd<9>;
.shared .align 16 .b8 s[2048];
ld.param.u64 %rd1, [a];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 16;
add.u64 %rd3, %rd1, %rd2;
mov.u32 %r2, s;
shl.b32 %r3, %r1, 4;
add.u32 %r4, %r2, %r3;
st.shared.u32 [%r4], %r1;
cp.async.cg.shared.global [%r4], [%rd3], 16;
cp.async.wait_all;
st.global.u32 [%rd3+512], %r1;
red.global.add.u32 [%rd3+1024], %r1;
ld.u32 %r5, [%rd3+1536];
cvta.shared.u64 %rd4, s;
st.u32 [%rd4], %r5;
ret;
}
"""
    device = ProfilingDevice(gpus.find("a100"), cache=True)
    array = device.array(np.zeros(512, np.float32))
    tw.Kernel.from_ptx(text, "k")(1, 32, [array], device=device)
    trace = device.profile.trace
    assert trace is not None
    sectors, touched = trace.blocks[0]
    start = array.ptr // 32
    assert (sectors - start).tolist() == list(range(64))
    assert touched.tolist() == [2] * 16 + [1] * 32 + [0] * 16
