"""The model of the caches: what blocks touch is what they really touch; and models of it on cases known by hand."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tests.hardware import bulk
from tests.hardware.bulk import Case, Map
from tests.hardware.keep import KEPT
from tilewise import gpus
from tilewise.devices.emulated import open_emulator
from tilewise.emulator.profiling.tracing import BYPASS, PREFETCH, READ, WRITE, Tracer
from tilewise.instruments import profile_launch
from tilewise.instruments.cache_model import Trace, model_traffic
from tilewise.kernels import raster
from tilewise.launch import Launch, dim3
from tilewise.toolchain.compile import compile_source

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


@pytest.mark.few(1)
@pytest.mark.parametrize("order", ["grouped", "hilbert"])
def test_orders_on_a_grid_of_any_shape(order: str) -> None:
    """A kernel that only reads its tiles' row of A and column of B, one element for each k."""
    rows, columns = 19, 13
    device = tw.device("emulator")
    a, b = device.array(np.zeros(rows * 256, np.float32)), device.array(np.zeros(columns * 128, np.float32))
    kernel = tw.Kernel(ORDERED, "k", "sm_90a", {"ORDER": order})
    trace = kernel.profile(rows * columns, 32, [a, b, b, rows, columns], gpu="h200", cache=True).trace
    assert trace is not None
    for sms in (34, 58, 132):
        expected = raster.waves(raster.ORDERS[order], rows, columns, *TILE, sms)
        assert [read / 4 for read in trace.waves(sms)] == [wave.total for wave in expected]


def test_a_sector_is_read_from_memory_once() -> None:
    """Four blocks on two multiprocessors read one array: the L1 serves the second block of each, the L2 the other."""
    source = """extern "C" __global__ void k(const float *a, float *b) {
        b[blockIdx.x * 256 + threadIdx.x] = a[threadIdx.x]; }"""
    device = tw.device("emulator")
    a, b = device.array(np.zeros(256, np.float32)), device.array(np.zeros(1024, np.float32))
    profile = tw.Kernel(source, "k", "sm_90a").profile(4, 256, [a, b], gpu="h200", cache=True)
    trace = profile.trace
    assert trace is not None
    assert trace.footprint() == 1024 and trace.footprint(writes=True) == 4096
    whole = model_traffic(trace, "h200", in_flight=4)
    assert (whole.requested, whole.memory_read, whole.memory_written) == (4 * 32, 32, 128)
    assert whole.l1_read == 4 * 32  # each block on a multiprocessor of its own
    assert (whole.l2_read, whole.l2_hits) == (2 * 32, 32)  # merged on the way, two and two
    assert whole.l2_across == 16  # half of what one part of the L2 wants belongs to the other
    other = model_traffic(trace, "a100", in_flight=4)  # where nothing is known of the way
    assert (other.l2_read, other.l2_hits, other.l2_across) == (4 * 32, 3 * 32, 0)
    assert profile["dram__bytes_read.sum"] == 1024
    assert profile.metrics["dram__bytes_read.sum"].label == "model"


def _blocks(*touched: range) -> Trace:
    return Trace(
        {
            i: (np.array(sectors, np.int64), np.zeros(len(sectors), np.int8))
            for i, sectors in enumerate(touched)
        }
    )


def test_neighbours_share_the_way_to_the_l2() -> None:
    """Blocks go to GPCs in runs, clusters to one after the other; requests meet within a GPC alone."""
    alike = [range(64)] * 132
    blocks = model_traffic(_blocks(*alike), "h200")
    assert (blocks.l1_read, blocks.memory_read) == (132 * 64, 64)
    gpcs = np.bincount(np.arange(132) * 8 // 132)
    assert blocks.l2_read == 64 * sum(-(-int(size) // 2) for size in gpcs) and blocks.l2_across == 64
    pairs = Trace(_blocks(*alike[:16]).blocks, clusters=np.arange(16) // 2)
    assert model_traffic(pairs, "h200").l2_read == 8 * 64  # a cluster a GPC
    apart = _blocks(*(range(64 * i, 64 * i + 64) for i in range(132)))
    assert model_traffic(apart, "h200").l2_read == 132 * 64


def test_what_the_way_is_modelled_on() -> None:
    """Multiprocessors that read one stream in step: two of one GPC ask for it once, all of them 3.8 times less
    often than they get it. Blocks go to a GPC in runs."""
    kept = json.loads((KEPT / "bulk.json").read_text())
    (alone, *pairs), stream = kept["readers"][:132], bulk._READERS * 16 // 32
    assert alone["counts"]["L2 tex read"] == pytest.approx(stream, rel=0.02)
    asked = {row["case"][1]: row["counts"]["L2 tex read"] / stream for row in pairs}
    neighbours = {sm for sm, streams in asked.items() if streams < 1.5}
    assert len(neighbours) + 1 in (14, 16, 18)  # chips differ
    for sm, streams in asked.items():
        assert streams == pytest.approx(1 if sm in neighbours else 2, rel=0.05)
    counts = kept["readers"][-1]["counts"]
    assert 3.5 < counts["L1 read"] / counts["L2 tex read"] < 4
    assert counts["L2 read"] - counts["L2 tex read"] == pytest.approx(stream, rel=0.1)
    runs = [sm in neighbours | {0} for sm in kept["where"]["where"]]
    assert sum(a != b for a, b in pairwise(runs)) <= 4


@pytest.mark.parametrize("mask", [1, 2, 3])
def test_a_multicast_is_asked_for_once(mask: int) -> None:
    """Whoever gets it; bulk copies are in the trace of the block that issues them."""
    box = Map("f16", (512, 64), (1024,), (64, 32), 128)
    case = Case("tensor_multi2", 64 * 32 * 2, step=32, mask=mask, map=box)
    array: Any = tw.device("emulator").array(np.zeros((64, 512), np.float16))
    tensor = tw.TensorMap(array, (32, 64), swizzle=128)
    text = compile_source(bulk.source(), bulk.ENTRIES, "sm_90a", filename="bulk.cu").ptx
    what = np.array([case.size, 0, 2, 32, 0, 0, 0, mask], np.int32)
    kernel = tw.Kernel.from_ptx(text, case.entry)
    profile = kernel.profile(2, 32, [tensor, what, array], 1 << 16, gpu="h200", cache=True)
    trace, model = profile.trace, profile.traffic
    assert trace is not None and model is not None and trace.clusters is not None
    sectors, kinds = trace.blocks[0]
    rows = array.ptr // 32 + 32 * np.arange(64)[:, None] + np.arange(4)
    assert sorted(sectors[kinds == BYPASS]) == sorted(rows.reshape(-1))
    assert BYPASS not in trace.blocks[1][1]
    blocks = bin(mask).count("1")
    more = profile["l1tex__m_xbar2l1tex_read_sectors.sum"] - model.l1_read
    assert more == (blocks - 1) * 256
    assert profile["l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum"] == blocks * 256


@pytest.mark.few("08")
@pytest.mark.parametrize("rung", ["08", "12", "13"])
def test_rungs_beside_a_gpu(rung: str) -> None:
    """Sectors that come to SMs, that the L2 is asked for and that come from memory, against an H200."""
    rows = json.loads((KEPT / "bulk.json").read_text())["rungs"]
    for row in rows:
        case, counts = row["case"], row["counts"]
        if case["rung"][:2] != rung or case["size"][0] > 512:
            continue
        m, n, k = case["size"]
        profile = tw.ladder[case["rung"]].profile(m, n, k, gpu="h200", cache=True, **case["settings"])
        assert profile["l1tex__m_xbar2l1tex_read_sectors.sum"] == pytest.approx(counts["L1 read"], rel=1e-3)
        assert profile["lts__t_sectors_srcunit_tex_op_write.sum"] == counts["L2 tex written"]
        assert profile["lts__t_sectors_op_write.sum"] == pytest.approx(counts["L2 written"], rel=0.03)
        assert profile["dram__bytes_read.sum"] == pytest.approx(counts["memory read"], rel=0.04)
        for name, measured in (
            ("lts__t_sectors_srcunit_tex_op_read", "L2 tex read"),
            ("lts__t_sectors_op_read", "L2 read"),
        ):
            assert 0.5 < profile[f"{name}.sum"] / counts[measured] < 1.7, case


def test_what_is_pushed_out_is_read_again() -> None:
    """Two passes over an array: the second hits the L2 if the array fits, and else does not."""
    gpu = gpus.find("rtx-2060-super")
    fits, beyond = (int(gpu.l2_bytes * part) // 32 for part in (0.4, 3))
    for size, missing in ((fits, fits), (beyond, 2 * beyond)):
        found = model_traffic(_blocks(range(size), range(size)), gpu, in_flight=1)
        assert found.memory_read == pytest.approx(missing, rel=0.01)


def test_what_was_touched_long_ago_is_pushed_out_first() -> None:
    """512 sectors that are read again and again stay in an L1 of 768; each time 256 others go."""
    often, some, others = (np.arange(first, end) for first, end in ((0, 512), (1000, 1256), (2000, 2256)))
    sectors = np.concatenate([often, some, often, others, often])
    trace = Trace({0: (sectors, np.full(sectors.size, READ, np.int8))})
    found = model_traffic(trace, "h200", shared_bytes=1 << 20)
    assert (found.requested, found.l1_read) == (2048, 512 + 256 + 256)


@pytest.mark.parametrize("more", [0, 40])
def test_sectors_are_told_as_bytes_too(more: int) -> None:
    """Those besides as well, that reach a multiprocessor and no L1."""
    traffic = model_traffic(_blocks(range(64), range(32, 96)), "h200")
    figures = {one.name: one.value for one in traffic.metrics(more)}
    to_bytes = {name: name.replace("_sectors", "_bytes") for name in figures if "_sectors" in name}
    told = {name: other for name, other in to_bytes.items() if other in figures}
    assert {figures[other] for other in told.values()} == {32 * figures[name] for name in told}
    assert figures["l1tex__m_xbar2l1tex_read_bytes.sum"] == 32 * (128 + more)


@pytest.mark.parametrize("touched", [(), (range(0),)])
def test_where_nothing_is_read_nothing_is_hit(touched: tuple[range, ...]) -> None:
    figures = {one.name: one.value for one in model_traffic(_blocks(*touched), "h200").metrics()}
    rates = [value for name, value in figures.items() if name.endswith("hit_rate.pct")]
    assert len(rates) >= 2 and not any(rates)


def test_what_shared_memory_takes_the_l1_has_not() -> None:
    """2,048 sectors are 64 KiB, read twice: they stay in 228 KiB, and not in the 28 KiB beside 200 of shared memory."""
    sectors = np.tile(np.arange(2048), 2)
    trace = Trace({0: (sectors, np.full(sectors.size, READ, np.int8))})
    assert model_traffic(trace, "h200").l1_read == 2048
    assert model_traffic(trace, "h200", shared_bytes=200 << 10).l1_read > 3000


def test_what_is_written_goes_to_memory_once() -> None:
    sectors = np.tile(np.arange(64), 3)
    kinds = np.repeat(np.array([READ, WRITE, WRITE], np.int8), 64)
    found = model_traffic(Trace({0: (sectors, kinds)}), "h200")
    assert (found.l2_written, found.memory_written, found.memory_read) == (128, 64, 64)


def test_a_prefetch_goes_no_further_than_the_l2() -> None:
    sectors = np.arange(64)
    kinds = np.repeat(np.array([PREFETCH, READ], np.int8), 64)
    found = model_traffic(Trace({0: (np.concatenate([sectors, sectors]), kinds)}), "h200")
    assert (found.requested, found.l1_read, found.l2_prefetched) == (64, 64, 64)
    assert (found.l2_hits, found.memory_read) == (64, 64)


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
    array = tw.device("emulator").array(np.zeros(512, np.float32))
    trace = tw.Kernel.from_ptx(text, "k").profile(1, 32, [array], gpu="a100", cache=True).trace
    assert trace is not None
    sectors, touched = trace.blocks[0]
    start = array.ptr // 32
    assert (sectors - start).tolist() == list(range(64))
    assert touched.tolist() == [2] * 16 + [1] * 32 + [0] * 16


def test_a_full_trace_says_how_much_it_lacks() -> None:
    """Of two launches, six blocks each, four sectors a block behind a word that says whose; there is room for seven."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .b32 %r; .reg .b64 %a, %b;
ld.param.u64 %a, [a]; mov.u32 %r, %tid.x; mul.wide.u32 %b, %r, 4; add.u64 %a, %a, %b; ld.global.u32 %r, [%a]; ret; }
"""
    tracer, kernel, device = Tracer(7), tw.Kernel.from_ptx(text, "k"), open_emulator(threads=1)
    binary, launch = kernel.build(), Launch(dim3("grid", 6), dim3("block", 32))
    array = tw.device("emulator").array(np.zeros(32, np.float32))
    packed = [array.ptr.to_bytes(8, "little")]
    for runs in (1, 2):  # each has a log of its own
        device.launcher.run(
            binary, kernel.entry_in(binary), launch, packed, None, "traced", lambda *_: tracer
        )
        assert [len(rows) for rows in tracer.rows()] == [7] * runs
        assert tracer.lost == runs * (6 * (1 + 4) - 7)
        assert {block: len(kinds) for block, (_, kinds) in tracer.blocks().items()} == {0: 4 * runs, 1: runs}


def test_a_profile_says_that_its_trace_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one block, which touches four sectors, with room for its own word and two of them."""
    source = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = 1; }'
    kernel, x = tw.Kernel(source, "k", "sm_80"), np.zeros(32, np.float32)
    assert not kernel.profile(1, 32, [x], gpu="a100", cache=True).notes
    for name in ("_MOST_TRACED", "_LEAST_TRACED"):
        monkeypatch.setattr(profile_launch, name, 3)
    assert kernel.profile(1, 32, [x], gpu="a100", cache=True).notes == [
        "the model of the caches lacks 2 sectors, as its trace was full: its figures are too low; profile a smaller grid"
    ]


def test_the_trace_changes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """It takes a run of its own: arrays, variables and what is printed are those of one launch."""
    source = """
    extern "C" int printf(const char *, ...);
    __device__ int turns;
    extern "C" __global__ void k(float *x) {
        if (atomicAdd(&turns, 1) == 0) x[threadIdx.x] *= 2;
        if (threadIdx.x == 0) printf("turn %d\\n", turns);
    }"""
    x = np.ones(32, np.float32)
    profile = tw.Kernel(source, "k", "sm_80").profile(1, 32, [x], gpu="a100", cache=True)
    assert (x[0], x[1:].max()) == (2, 1) and profile.trace is not None
    assert capfd.readouterr().out == "turn 32\n"


def test_what_several_blocks_write_or_prefetch_the_l2_is_asked_for_by_each() -> None:
    """And memory once."""
    for kind, figures in ((WRITE, (128, 0, 64, 0)), (PREFETCH, (0, 128, 0, 64))):
        one = np.arange(64), np.full(64, kind, np.int8)
        found = model_traffic(Trace({0: one, 1: one}), "h200")
        told = found.l2_written, found.l2_prefetched, found.memory_written, found.memory_read
        assert told == figures
        assert (found.requested, found.l1_read, found.l2_read) == (0, 0, 0)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 24])
def test_clusters_go_to_one_gpc_after_the_other(count: int) -> None:
    """Where requests of two are merged, and of no more."""
    trace = Trace(_blocks(*[range(64)] * count).blocks, clusters=np.arange(count))
    there = [len(range(gpc, count, 8)) for gpc in range(8)]
    assert model_traffic(trace, "h200").l2_read == 64 * sum(-(-many // 2) for many in there)


def test_blocks_of_a_cluster_begin_together() -> None:
    """Blocks 0 and 2 read what 1 and 3 do not: each pair on both multiprocessors, one pair after the other."""
    touched = [range(64), range(100, 164)] * 2
    apart = model_traffic(_blocks(*touched), "h200", in_flight=2)
    assert (apart.l1_read, apart.memory_read) == (128, 128)
    together = Trace(_blocks(*touched).blocks, clusters=np.array([0, 1, 0, 1]))
    found = model_traffic(together, "h200", in_flight=2)
    assert (found.l1_read, found.l2_read, found.memory_read) == (256, 128, 128)


@pytest.mark.parametrize(("gpc", "across"), [(1, 32), (3, 32), (4, 64), (7, 64)])
def test_each_half_of_the_gpcs_has_a_part_of_the_l2(gpc: int, across: int) -> None:
    """Half of what a part is asked for the first time belongs to the other; copies in bulk come past the L1."""
    for kind in (READ, BYPASS):
        one = np.arange(64), np.full(64, kind, np.int8)
        found = model_traffic(Trace({0: one, 1: one}, clusters=np.array([0, gpc])), "h200")
        assert (found.requested, found.l1_read, found.l2_read, found.l2_across) == (128, 128, 128, across)
