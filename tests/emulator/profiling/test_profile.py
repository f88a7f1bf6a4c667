"""Profiles: every published figure, from kernels written here; names, tables, lines."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

import tilewise as tw
from tests.triton.compiler import golden
from tests.triton.runs import prepare, profiled
from tilewise import gpus
from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.instruments.compare import compare_profiles
from tilewise.instruments.line_figures import LineFigures
from tilewise.instruments.metrics import select_names
from tilewise.instruments.predict import predict
from tilewise.instruments.profile import Profile
from tilewise.instruments.roofline import flops_of

CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
WAVES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared"


def shared(profile: Mapping[str, float], op: str = "") -> tuple[float, float]:
    """Wavefronts and conflicts."""
    conflicts = WAVES.replace("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
    return profile[f"{WAVES}{op}.sum"], profile[f"{conflicts}{op}.sum"]


# -- published measurements -----------------------------------------------------------------------------
def test_the_conflicted_rung() -> None:
    """The worked example: 220 blocks on 34 multiprocessors."""
    profile = tw.ladder["05_tiled_conflicted"].profile(m=640, n=352, k=448, gpu="rtx-2060-super")
    assert profile.launch.grid == (11, 20, 1) and profile.launch.block == (32, 32, 1)
    assert profile.level == "machine code" and profile.notes == []
    assert profile[f"{CONFLICTS}.sum"] == 28_188_160
    assert profile[f"{CONFLICTS}.max"] == 896_896 and profile[f"{CONFLICTS}.min"] == 768_768
    assert round(profile[f"{CONFLICTS}.avg"], 2) == 829_063.53
    assert profile["l1tex__data_bank_conflicts_pipe_lsu_mem_global.sum"] == 0
    assert profile["smsp__sass_inst_executed_op_shared_ld.sum"] == 220 * 32 * 14 * (32 + 8)
    straight = tw.ladder["04_tiled"].profile(m=640, n=352, k=448, gpu="rtx-2060-super")
    assert all(straight[f"{CONFLICTS}.{way}"] == 0 for way in ("sum", "avg", "min", "max"))


def test_the_conflicted_rung_without_its_machine_code() -> None:
    """From its PTX alone the merging of loads is predicted, and the figure is the same."""
    text = tw.ladder["05_tiled_conflicted"].kernel("sm_75").ptx
    kernel = tw.Kernel.from_ptx(text, "tiled_conflicted")
    device = tw.device("emulator")
    arrays = [device.array(np.zeros(shape, np.float32)) for shape in ((640, 448), (448, 352), (640, 352))]
    args = [struct.pack("<IIIxxxxQ", a.shape[1], a.shape[0], a.shape[1], a.ptr) for a in arrays]
    profile = kernel.profile((11, 20), (32, 32), args, gpu="rtx-2060-super")
    assert profile.level == "predicted" and profile.metrics[f"{CONFLICTS}.sum"].label == "predicted"
    assert profile[f"{CONFLICTS}.sum"] == 28_188_160


TRANSPOSE = """
extern "C" __global__ void transpose(const float *from, float *to) {
    __shared__ float tile[32][PITCH];
    int x = 32 * blockIdx.x + threadIdx.x, y = 32 * blockIdx.y + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = from[y * 1024 + x];
    __syncthreads();
    x = 32 * blockIdx.y + threadIdx.x, y = 32 * blockIdx.x + threadIdx.y;
    to[y * 1024 + x] = tile[threadIdx.x][threadIdx.y];
}"""


@pytest.mark.few(1)
@pytest.mark.parametrize(("pitch", "wavefronts"), [(32, 1_048_576), (33, 32_768)])
def test_a_transpose(pitch: int, wavefronts: int) -> None:
    matrix = np.random.default_rng().random((1024, 1024), np.float32)
    result = np.zeros_like(matrix)
    kernel = tw.Kernel(TRANSPOSE, "transpose", "sm_110", {"PITCH": pitch})
    profile = kernel.profile((32, 32), (32, 32), [matrix, result])
    assert (result == matrix.T).all()
    assert profile["smsp__sass_inst_executed_op_shared_ld.sum"] == 32_768
    assert shared(profile, "_op_ld") == (wavefronts, wavefronts - 32_768)
    assert shared(profile, "_op_st") == (32_768, 0)
    assert profile["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 4 * 32_768
    assert profile["l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum"] == 128 * 32_768
    assert profile["l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"] == 4
    data = "smsp__sass_average_data_bytes_per_wavefront_mem_shared"  # of the 128 that fit
    assert profile[f"{data}_op_st.ratio"] == 128 and profile[f"{data}_op_st.pct"] == 100
    assert profile[f"{data}_op_ld.pct"] == 100 * 32_768 / wavefronts


def test_a_stride_of_four_words() -> None:
    source = """extern "C" __global__ void k(float *x) {
        __shared__ float s[256];
        s[4 * threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[4 * threadIdx.x]; }"""
    profile = tw.Kernel(source, "k", "sm_80").profile(1, 64, [np.zeros(64, np.float32)])
    assert profile[f"{CONFLICTS}_op_ld.sum"] == 6 and profile[f"{CONFLICTS}_op_st.sum"] == 6


@pytest.mark.parametrize(("words", "conflicts"), [(32, 310_000), (1, 0)])
def test_a_loop_of_loads_and_stores(words: int, conflicts: int) -> None:
    source = """extern "C" __global__ void k(float *x, int words) {
        __shared__ float s[32 * 32];
        volatile float *own = s + words * threadIdx.x;
        for (int turn = 0; turn < 10000; turn++) *own = *own + 1;
        x[threadIdx.x] = *own; }"""
    profile = tw.Kernel(source, "k", "sm_90a").profile(1, 32, [np.zeros(32, np.float32), words])
    last = 31 if conflicts else 0
    assert profile[f"{CONFLICTS}_op_ld.sum"] == conflicts + last
    assert profile[f"{CONFLICTS}_op_st.sum"] == conflicts


@pytest.mark.parametrize("swizzled", [0, 1])
def test_matrices_with_and_without_swizzle(swizzled: int) -> None:
    """Rows of 64 halves, read as 16 × 16 tiles for mma.m16n8k16."""
    source = """extern "C" __global__ void k(unsigned *x) {
        __shared__ __align__(128) unsigned short s[16 * 64];
        const int row = threadIdx.x % 16, half = threadIdx.x / 16;
        unsigned a, b, c, d, sum = 0;
        for (int i = 0; i < 1024; i += 32) s[i + threadIdx.x] = i;
        __syncwarp();
        for (int tile = 0; tile < 4; tile++) {
            const int piece = (2 * tile + half) ^ (SWIZZLED ? row % 8 : 0);
            unsigned at = __cvta_generic_to_shared(s + 64 * row + 8 * piece);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at));
            sum += a + b + c + d; }
        x[threadIdx.x] = sum; }"""
    kernel = tw.Kernel(source, "k", "sm_80", {"SWIZZLED": swizzled})
    profile = kernel.profile(1, 32, [np.zeros(32, np.uint32)])
    assert shared(profile, "_op_ldsm") == ((16, 0) if swizzled else (128, 112))
    assert profile["smsp__sass_inst_executed_op_ldsm.sum"] == 4


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("apart", "wavefronts", "conflicts"), [(4, 35_377_920, 0), (32, 283_023_360, 247_645_440)]
)
def test_wide_loads_in_a_good_and_a_bad_layout(apart: int, wavefronts: int, conflicts: int) -> None:
    """8,844,480 loads of 128 bits: lanes side by side, or each in a row of its own."""
    source = """extern "C" __global__ void k(float *x, int apart) {
        __shared__ __align__(16) float s[32 * 32];
        float sum = 0, a, b, c, d;
        unsigned at = __cvta_generic_to_shared(s + apart * (threadIdx.x % 32));
        for (int turn = 0; turn < 2664; turn++) {
            asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "r"(at));
            sum += a + b + c + d; }
        x[threadIdx.x] = sum; }"""
    profile = tw.Kernel(source, "k", "sm_80").profile(415, 256, [np.zeros(256, np.float32), apart])
    assert profile["smsp__sass_inst_executed_op_shared_ld.sum"] == 8_844_480
    assert shared(profile) == (wavefronts, conflicts)


# -- coalescing -----------------------------------------------------------------------------------------
def test_warps_are_cut_from_the_linear_index() -> None:
    """A block of (16, 8) is four whole warps, and each touches two rows of a matrix."""
    source = """extern "C" __global__ void k(const float *a, float *b) {
        const int at = (threadIdx.y) * 64 + threadIdx.x;
        b[at] = a[511 - at]; }"""
    kernel = tw.Kernel(source, "k", "sm_75", filename="rows.cu")
    device = tw.device("emulator")
    a, b = (device.array(np.zeros(8 * 64, np.float32)) for _ in range(2))
    profile = kernel.profile(1, (16, 8), [a, b])
    assert profile.warps_per_block == 4
    assert profile["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 4
    assert profile["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 16
    rows = profile.lanes(3)
    assert [row.lane for row in rows] == list(range(32))
    first = rows[0].address
    assert [first - row.address for row in rows] == [4 * (64 * (i // 16) + i % 16) for i in range(32)]
    assert len({row.sector for row in rows}) == 4 and len({row.line for row in rows}) == 2
    head, names, *table = profile.explain(3).splitlines()
    assert head.endswith(", 4 bytes a lane, 32 lanes: 4 sectors in 2 lines of 128 bytes")
    assert names.split() == ["lane", "address", "offset", "line", "sector"] and {len(names)} == {
        *map(len, table)
    }
    assert a.ptr % 128 == 0  # so the lowest address, that of element 432, is 64 bytes into its line
    for lane, (row, line) in enumerate(zip(rows, table, strict=True)):
        offset = 380 - 4 * lane if lane < 16 else 124 - 4 * (lane - 16)
        places = [hex(row.address), str(offset), str(offset // 128), str(offset // 32)]
        assert line.split() == [str(lane), *places]
    with pytest.raises(ArgumentError, match="line must be a line that touches memory, not 1"):
        profile.lanes(1)
    for what in (2, -1):
        with pytest.raises(ArgumentError, match=f"what must be below 2, the accesses of line 3, not {what}"):
            profile.lanes(3, what)


MERGING = {"04_tiled", "10_turing_tensor_core"}  # rungs of whose shared accesses the assembler merges some
RUNGS = [
    ("04_tiled", "rtx-2060-super", (256, 128, 96)),
    ("08_register_tiled", "h200", (256, 256, 64)),
    ("09_warp_tiled", "h200", (256, 256, 64)),
    ("10_turing_tensor_core", "rtx-2060-super", (256, 256, 64)),
    ("11_parallel_k", "h200", (256, 256, 256)),
    ("12_multistage", "a100", (256, 256, 128)),
]


@cache
def profile_of(name: str, gpu: str, size: tuple[int, int, int]) -> Profile:
    return tw.ladder[name].profile(*size, gpu=gpu)


@pytest.mark.few(3)
@pytest.mark.parametrize(("name", "gpu", "size"), RUNGS)
def test_rungs_are_free_of_conflicts_and_coalesced(name: str, gpu: str, size: tuple[int, int, int]) -> None:
    """For sizes that are whole tiles. The machine code moves as many bytes as the PTX asks for.

    Asynchronous copies aside: lanes that read from several lines of global memory are as if in conflict.
    """
    for profile in profile_of(name, gpu, size).all:
        assert all(profile[f"{CONFLICTS}_op_{op}.sum"] == 0 for op in ("ld", "st", "atom"))
        if name not in ("09_warp_tiled", "12_multistage"):
            assert profile[f"{CONFLICTS}.sum"] == 0
        assert (
            profile["memory_l2_theoretical_sectors_global"]
            == profile["memory_l2_theoretical_sectors_global_ideal"]
        )
        assert profile.notes == [] and profile.level == "machine code"
        assert 0 < profile["sm__maximum_warps_per_active_cycle_pct"] <= 100


@pytest.mark.parametrize(("name", "gpu", "size"), [row for row in RUNGS if row[0][:2] in ("08", "11")])
def test_blocks_read_their_own_tiles_and_no_more(name: str, gpu: str, size: tuple[int, int, int]) -> None:
    """Each element of A once for every tile of columns, each of B once for every tile of rows."""
    m, n, k = size
    product = profile_of(name, gpu, size).all[0]
    wanted = k * (m * (n // 128) + n * (m // 128)) * 4 // 32
    assert product["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == wanted


def test_multiply_adds_are_counted() -> None:
    """m·n·k of them, whatever else the machine code does."""
    profile = tw.ladder["08_register_tiled"].profile(256, 128, 64, gpu="h200")
    assert profile["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 256 * 128 * 64
    assert profile.opcodes["FFMA"] == 256 * 128 * 64 / 32
    tensor = tw.ladder["10_turing_tensor_core"].profile(256, 256, 64, gpu="rtx-2060-super")
    assert tensor["tilewise__inst_executed_op_hmma.sum"] == 256 * 256 * 64 / (16 * 8 * 8)


# -- foreign PTX ----------------------------------------------------------------------------------------
@pytest.mark.few(2)
@pytest.mark.parametrize("key", ["matmul_f16-sm_80", "matmul_f16_one_stage-sm_80", "softmax-sm_90"])
def test_tritons_kernels(key: str) -> None:
    """Their PTX alone: the matrices of a product are read without conflicts, and memory is read coalesced."""
    made = golden()[key]
    run = prepare(made, np.random.default_rng())
    profile = profiled(made, run, "a100")
    run.check()
    assert profile.level == "predicted" and profile.occupancy is None
    assert profile["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] > 0
    if "matmul" in key:
        assert profile["smsp__sass_inst_executed_op_ldsm.sum"] > 0
        assert shared(profile, "_op_ldsm")[1] == 0


@pytest.mark.parametrize(("name", "gpu", "size"), RUNGS)
def test_what_is_predicted_of_rungs(name: str, gpu: str, size: tuple[int, int, int]) -> None:
    """Without its machine code, a rung has the same wavefronts."""
    profile = profile_of(name, gpu, size)
    counts, binary = profile.counts, profile.binary
    machine = predict(binary.ptx, profile.kernel, counts)
    accesses, (note,) = machine.accesses, machine.notes
    merged = "which shared loads and stores the assembler merges is predicted"
    assert (
        note == f"no machine code here: {merged if name in MERGING else 'accesses are as the PTX has them'}"
    )
    for figure in ("waves", "phases", "sectors"):
        predicted, joined = (
            sum(float(getattr(access, figure).sum()) for access in some)
            for some in (accesses, profile.machine.accesses)
        )
        assert predicted == pytest.approx(joined), figure
    assert {access.instruction.offset for access in accesses} == {0}  # they have no place in machine code


# -- names and shapes of output -------------------------------------------------------------------------
def test_patterns() -> None:
    names = ["a__x.sum", "a__x.avg", "a__y.sum", "b__x"]
    assert select_names(names, ["a__x"]) == ["a__x.avg", "a__x.sum"]
    for pattern in ("*__x*", "*__x", "?__x"):
        assert select_names(names, [pattern]) == ["a__x.avg", "a__x.sum", "b__x"]
    assert select_names(names, ["a__y.sum", "a__*.sum"]) == ["a__y.sum", "a__x.sum"]
    assert select_names(names, ["regex:^b"]) == ["b__x"]


def test_csv_is_as_ncu_prints_it() -> None:
    profile = tw.ladder["05_tiled_conflicted"].profile(m=640, n=352, k=448, gpu="rtx-2060-super")
    names = ["l1tex__data_bank_conflicts_pipe_lsu_mem_global", CONFLICTS]
    rows = list(csv.DictReader(io.StringIO(profile.csv(names))))
    assert [(row["Metric Name"].split("mem_")[1], row["Metric Value"]) for row in rows] == [
        *((f"global.{way}", "0") for way in ("avg", "max", "min", "sum")),
        ("shared.avg", "829,063.53"),
        ("shared.max", "896,896"),
        ("shared.min", "768,768"),
        ("shared.sum", "28,188,160"),
    ]
    assert {row["Block Size"] for row in rows} == {"(32, 32, 1)"} and {row["CC"] for row in rows} == {"7.5"}
    assert {tuple(row[name] for name in ("ID", "Context", "Stream", "Device")) for row in rows} == {
        ("0", "1", "7", "0")
    }
    assert all(line.startswith('"') for line in profile.csv(names).splitlines())


@pytest.mark.parametrize("patterns", [[f"{CONFLICTS}.sum"], ["launch__*", "smsp__inst_executed.avg"], None])
def test_every_form_has_the_figures_that_are_asked_for(patterns: list[str] | None) -> None:
    """In a table without patterns are those alone that are not zero, or are looked for everywhere."""
    profile = tw.ladder["05_tiled_conflicted"].profile(m=64, n=64, k=64, gpu="rtx-2060-super")
    wanted = {metric.name for metric in profile.select(patterns)}
    assert patterns is None or 0 < len(wanted) < len(profile.select())
    rows = csv.DictReader(io.StringIO(profile.csv(patterns)))
    assert {row["Metric Name"] for row in rows} == wanted
    for plain in (profile.to_dict(patterns), json.loads(profile.json(patterns))):
        assert plain["metrics"].keys() == wanted
    table = {line.split()[0] for line in profile.table(patterns).splitlines() if line.startswith("  ")}
    assert table & wanted == {row[0] for row in profile.rows(patterns)}
    assert table == wanted if patterns else table < wanted | {"note:"}


def test_lines_of_the_source_the_worst_first() -> None:
    profile = tw.ladder["05_tiled_conflicted"].profile(m=64, n=64, k=64, gpu="rtx-2060-super")
    lines = profile.lines
    assert lines[0].text.startswith("sum += a_tile") and lines[0].conflicts == 8 * 28 * 2 * 4 * 32
    assert sum(line.conflicts for line in lines) == profile[f"{CONFLICTS}.sum"]
    assert sum(line.conflicts for line in profile.ptx_lines) == profile[f"{CONFLICTS}.sum"]
    assert profile.machine_lines[0].text.startswith("STS")
    assert sum(line.sectors for line in lines) == profile["memory_l2_theoretical_sectors_global"]


def test_a_line_has_no_fewer_sectors_than_none_too_many() -> None:
    found = [
        LineFigures("k.cu", 1, "", sectors=many, ideal_sectors=4.0).excess_sectors for many in (3.0, 4.0, 9.0)
    ]
    assert found == [0, 0, 5]


def test_a_metric_that_is_not_there() -> None:
    source = 'extern "C" __global__ void k(float *x) { *x = 1; }'
    profile = tw.Kernel(source, "k", "sm_75").profile(1, 1, [np.zeros(1, np.float32)])
    with pytest.raises(UnknownNameError, match="did you mean"):
        profile["launch__grid_sizes"]
    assert "launch__grid_size" in profile and "launch__grid_sizes" not in profile
    assert profile["launch__grid_size"] == 1 and len(list(profile)) == len(profile)


# -- sampling and the roofline --------------------------------------------------------------------------
def test_what_malloc_does_inside_is_not_the_kernels() -> None:
    source = """extern "C" __global__ void k(int *y) {
        int *p = (int *)malloc(4); *p = threadIdx.x; y[threadIdx.x] = *p; free(p); }"""
    kernel = tw.Kernel(source, "k", "sm_80")
    own = [kernel, tw.Kernel.from_ptx(kernel.ptx, "k")]
    for profile in (one.profile(1, 32, [np.zeros(32, "int32")]) for one in own):
        assert profile["tilewise__bytes_global_op_st.sum"] == 2 * 32 * 4
        assert all(line.line and line.instructions <= 1 for line in profile.ptx_lines)
        assert (
            "malloc and free are CUDA's own code: what they do inside is in none of the figures"
            in profile.notes
        )
        assert not [note for note in profile.notes if "PTX asks for" in note]


LAST_BLOCK = """
__device__ unsigned count;
extern "C" __global__ void sum(const int *in, volatile int *part, int *out, int n) {
    __shared__ int sums[32];
    __shared__ bool last;
    int v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    for (int o = 16; o; o /= 2) v += __shfl_down_sync(~0u, v, o);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0;
        for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
        if (threadIdx.x == 0) {
            part[blockIdx.x] = v;
            __threadfence();
            last = atomicInc(&count, gridDim.x) == gridDim.x - 1;
        }
    }
    __syncthreads();
    if (last) {
        __threadfence();
        if (threadIdx.x == 0) {
            int s = 0;
            for (int b = 0; b < gridDim.x; b++) s += part[b];
            *out = s;
        }
    }
}"""


def test_copies_of_a_loop_that_share_its_runs_lack_no_bytes() -> None:
    """The machine code has the last loop in four lengths, and the PTX in others: no byte is missing or too many."""
    arguments = [np.ones(5000, "int32"), np.zeros(7, "int32"), np.zeros(1, "int32"), 5000]
    profile = tw.Kernel(LAST_BLOCK, "sum", "sm_80").profile(7, 96, arguments)
    assert profile["smsp__sass_inst_executed_op_global_ld.sum"] == 157 + 4 + 3
    assert not profile.notes


def test_a_sample_of_blocks_stands_for_all() -> None:
    """Edges are kinds of their own: where blocks of a kind do the same, nothing is lost."""
    rung = tw.ladder["04_tiled"]
    whole = rung.profile(600, 500, 100, gpu="rtx-2060-super")
    part = rung.profile(600, 500, 100, gpu="rtx-2060-super", sample=2)
    assert part.notes == ["sampled: 14 of 304 blocks were run, and stand for the others of their kind"]
    assert {name: part[name] for name in part} == {name: whole[name] for name in whole}
    assert part.metrics[f"{CONFLICTS}.sum"].label == "sampled"
    assert part.metrics["launch__grid_size"].label == "exact"


def test_the_roofline_of_a_tiled_kernel() -> None:
    """Shared memory holds it up: a load for each multiply-add."""
    profile = tw.ladder["04_tiled"].profile(256, 256, 256, gpu="h200", cache=True)
    found = profile.roofline
    gpu = gpus.find("h200")
    bounds = {bound.name: bound for bound in found.bounds}
    assert bounds["fp32 arithmetic"].amount == 2 * 256**3
    assert bounds["fp32 arithmetic"].seconds == pytest.approx(2 * 256**3 / gpu.fp32_peak * 132 / 64)
    assert bounds["memory"].amount == 3 * 256 * 256 * 4
    # 64 blocks on 132 SMs, each with 8 slices: two loads of a word for each product of a warp, those of A four at once.
    cycles = 64 * 8 * 32 * (32 + 8 + 2) + 64 * 32 * 8 * 2
    assert found.binding.name == "L1 and shared memory" and found.binding.amount == cycles
    assert found.seconds == pytest.approx(cycles / 64 / (gpu.boost_mhz * 1e6))
    assert found.reached(2 * found.seconds) == 0.5
    assert found.intensity == pytest.approx(256 / 6)


def test_operations_of_machine_instructions() -> None:
    assert flops_of("FFMA") == ("fp32", 64)
    assert flops_of("HMMA.16816.F32") == ("fp16_fp32", 2 * 16 * 8 * 16)
    assert flops_of("HMMA.16816.F32.BF16") == ("bf16", 2 * 16 * 8 * 16)
    assert flops_of("HMMA.1688.F32.TF32") == ("tf32", 2 * 16 * 8 * 8)
    assert flops_of("HGMMA.64x128x16.F32") == ("fp16_fp32", 2 * 64 * 128 * 16 // 4)
    assert flops_of("QGMMA.64x8x32.F32.E4M3.E5M2") == ("fp8_fp32", 2 * 64 * 8 * 32 // 4)
    assert flops_of("QGMMA.64x8x32.F16.E4M3.E4M3") == ("fp8_fp16", 2 * 64 * 8 * 32 // 4)
    assert flops_of("IMMA.16832.S8.S8") == ("int8", 2 * 16 * 8 * 32)
    assert flops_of("IADD3") == flops_of("BMMA.168256.XOR.POPC") == ("", 0)  # no peak of bits is known
    tensor = tw.ladder["10_turing_tensor_core"].profile(256, 128, 64, gpu="h200").roofline
    assert tensor.flops == 2 * 256 * 128 * 64


def test_side_by_side() -> None:
    names = ["04_tiled", "05_tiled_conflicted"]
    profiles = [tw.ladder[name].profile(64, 64, 32, gpu="rtx-2060-super") for name in names]
    text = compare_profiles(names, profiles)
    assert "wavefronts_mem_shared.sum" in text
    row = next(
        line
        for line in text.splitlines()
        if line.startswith("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared.sum")
    )
    assert row.split()[1:] == ["6,400", "45,056", "7.04"]
    with pytest.raises(UnknownNameError, match="metric 'nothing' is not known"):
        compare_profiles(names, profiles, ["nothing"])


def test_bytes_by_space_and_operation() -> None:
    """What the tiles of a product take, from loads of 4 and of 16 bytes alike."""
    profile = tw.ladder["08_register_tiled"].profile(256, 128, 64, gpu="h200")
    assert profile["tilewise__bytes_global_op_ld.sum"] == 4 * 2 * (
        128 * 64 + 64 * 128
    )  # two blocks, each two tiles
    assert profile["tilewise__bytes_global_op_st.sum"] == 4 * 256 * 128
    assert profile["tilewise__bytes_shared_op_st.sum"] >= 4 * 2 * (128 * 64 + 64 * 128)
    tensor = tw.ladder["10_turing_tensor_core"].profile(256, 128, 64, gpu="rtx-2060-super")
    assert (
        tensor["tilewise__bytes_shared_op_ldsm.sum"] == 512 * tensor["smsp__sass_inst_executed_op_ldsm.sum"]
    )
    spilling = """extern "C" __global__ void k(int *x) {
        int a[64];
        for (int i = 0; i < 64; i++) a[x[i] & 63] = i;
        x[threadIdx.x] = a[x[threadIdx.x] & 63]; }"""
    local = tw.Kernel(spilling, "k", "sm_80").profile(1, 32, [np.arange(64, dtype=np.int32)])
    assert local["smsp__sass_inst_executed_op_local_ld.sum"] == 1
    assert local["smsp__sass_inst_executed_op_local_st.sum"] > 0


def test_a_product_of_fragments_in_a_straight_line() -> None:
    """A line of ``wmma`` becomes several instructions; each runs as often as the line."""
    source = """
    extern "C" __global__ void product(const unsigned *a, const unsigned *b, float *c) {
        unsigned x[8], y[8]; float z[8];
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], 16;"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]), "=r"(x[5]), "=r"(x[6]), "=r"(x[7])
            : "l"(a));
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], 16;"
            : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3]), "=r"(y[4]), "=r"(y[5]), "=r"(y[6]), "=r"(y[7])
            : "l"(b));
        asm volatile("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, "
            "{%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19,%20,%21,%22,%23}, {%24,%24,%24,%24,%24,%24,%24,%24};"
            : "=f"(z[0]), "=f"(z[1]), "=f"(z[2]), "=f"(z[3]), "=f"(z[4]), "=f"(z[5]), "=f"(z[6]), "=f"(z[7])
            : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]),
              "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(y[4]), "r"(y[5]), "r"(y[6]), "r"(y[7]), "f"(0.f));
        for (int i = 0; i < 8; i++) c[threadIdx.x * 8 + i] = z[i];
    }"""
    words = [np.zeros(256, np.float16).view(np.uint32) for _ in range(2)]
    arrays = [*words, np.zeros(256, np.float32)]
    profile = tw.Kernel(source, "product", "sm_80").profile(3, 32, arrays, gpu="a100")
    assert profile.opcodes["HMMA"] == 3 * 2
    assert {float(item.runs.sum()) for item in profile.machine.ran if not item.instruction.never} == {3.0}


def test_bytes_by_level() -> None:
    """64 × 64 × 32 in tiles of 32: each of 4 blocks reads two tiles, and its threads 32 pairs of elements."""
    profile = tw.ladder["04_tiled"].profile(64, 64, 32, gpu="a100", cache=True)
    found = {level.name: (level.read, level.written, level.label) for level in profile.levels}
    shared, tiles, out = found["shared memory"], 4 * 2 * 32 * 32 * 4, 64 * 64 * 4
    assert shared[1:] == (tiles, "exact") and shared[0] == profile["tilewise__bytes_shared_op_ld.sum"]
    assert found["global memory, by lanes"] == found["global memory, by sectors"] == (tiles, out, "exact")
    assert found["L2"] == (tiles, out, "model") and found["memory"] == (tiles // 2, out, "model")
    assert profile.to_dict()["levels"][0]["name"] == "shared memory"


def test_what_an_atomic_operation_adds_to_is_read_and_written() -> None:
    source = """extern "C" __global__ void add(int *x, int *y) {
        __shared__ int sums[32];
        sums[threadIdx.x] = 0;
        atomicAdd(x + threadIdx.x, atomicAdd(sums + threadIdx.x, 1));
        y[threadIdx.x] = atomicAdd(x + threadIdx.x, 1); }"""
    arrays = [np.zeros(32, np.int32), np.zeros(32, np.int32)]
    profile = tw.Kernel(source, "add", "sm_80").profile(1, 32, arrays)
    found = {level.name: (level.read, level.written) for level in profile.levels}
    assert found["shared memory"] == (128, 2 * 128)
    assert found["global memory, by lanes"] == found["global memory, by sectors"] == (2 * 128, 3 * 128)


def test_the_lanes_of_an_asynchronous_copy_are_shown_at_both_its_ends() -> None:
    source = """extern "C" __global__ void k(const float *x) {
        __shared__ float s[64];
        unsigned to = __cvta_generic_to_shared(s + 2 * threadIdx.x);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(x + threadIdx.x));
        asm volatile("cp.async.wait_all;"); }"""
    profile = tw.Kernel(source, "k", "sm_80").profile(1, 30, [np.zeros(32, np.float32)])
    ends = [profile.lanes(4, what) for what in (0, 1)]
    steps = sorted([row.address - rows[0].address for row in rows] for rows in ends)
    assert steps == [[4 * i for i in range(30)], [8 * i for i in range(30)]]
