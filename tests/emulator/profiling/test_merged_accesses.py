"""Accesses that the assembler merges, or takes apart, as the profiler counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import tilewise as tw
from tilewise.instruments.predict import predict_widths
from tilewise.instruments.profile import Profile


def _apart(*lines: str) -> list[tuple[str, int | None]]:
    return [(line, None) for line in lines]


# What stands in a block of code, each line with the bytes of a lane that it becomes where addresses are
# aligned to 16; 0 where another line does its work, None where it stays as it is.
MERGED: list[list[tuple[str, int | None]]] = [
    [("ld.shared.u32 %r1, [%a];", 16), *((f"ld.shared.f32 %f{i}, [%a+{4 * i}];", 0) for i in (1, 2, 3))],
    [("ld.shared.b64 %l1, [%a+16];", 16), ("ld.shared.b64 %l2, [%a+24];", 0), ("ld.shared.b64 %l3, [%a+40];", None)],
    [("ld.shared.u32 %r1, [%a];", 8), ("ld.shared.u32 %r2, [%a+4];", 0), ("ld.shared.u32 %r3, [%a+12];", None)],
    [("st.shared.u16 [%a], %h1;", 8), *((f"st.shared.b16 [%a+{2 * i}], %h1;", 0) for i in (1, 2, 3))],
    [("st.shared.u16 [%a], %h1;", 4), ("st.shared.u16 [%a+2], %h1;", 0)],
    [("ld.shared.u16 %h1, [%a];", None), ("ld.shared.u16 %h2, [%a+2];", None)],
    [("ld.shared.u32 %r1, [%a+4];", 0), ("ld.shared.u32 %r2, [%a];", 8)],
    [("ld.shared.u32 %r1, [%a];", 8), ("ld.global.u32 %r3, [%g];", None), ("ld.shared.u32 %r2, [%a+4];", 0)],
    *(
        _apart("ld.shared.u32 %r1, [%a];", between, "ld.shared.u32 %r2, [%a+4];")
        for between in (
            "atom.shared.add.u32 %r9, [%b], 1;", "red.shared.add.u32 [%b], 1;", "atom.global.add.u32 %r9, [%g], 1;",
            "bar.sync 0;", "bar.warp.sync -1;", "membar.cta;", "fence.acq_rel.cta;", "st.shared.u32 [%b], 1;", "st.shared.u8 [%b], %h1;",
            "L: mov.u32 %r8, 1;", "add.u32 %a, %a, 4;", "bra M; M: mov.u32 %r8, 1;", "st.u32 [%g], %r8;",
            "cp.async.ca.shared.global [%b], [%g], 4;",
        )
    ),
    *(
        _apart("st.shared.u32 [%a], %r1;", between, "st.shared.u32 [%a+4], %r2;")
        for between in ("ld.shared.u32 %r9, [%b];", "ld.u32 %r9, [%g];", "atom.shared.add.u32 %r9, [%b], 1;", "bar.sync 0;")
    ),
    [("st.shared.u32 [%a], %r1;", 8), ("ld.global.u32 %r9, [%g];", None), ("st.shared.u32 [%a+4], %r2;", 0)],
    [("st.shared.u32 [%a], %r1;", 8), ("ld.param.u32 %r9, [n];", None), ("st.shared.u32 [%a+4], %r2;", 0)],
    [("st.shared.u32 [%a], %r1;", 8), ("st.global.u32 [%g], %r9;", None), ("st.shared.u32 [%a+4], %r2;", 0)],
    [("ld.shared.u32 %r1, [%a];", None), ("ld.shared.u32 %r2, [%b+4];", None)],
    [("ld.volatile.shared.u32 %r1, [%a];", None), ("ld.volatile.shared.u32 %r2, [%a+4];", None)],
    [("ld.relaxed.cta.shared.u32 %r1, [%a];", None), ("ld.relaxed.cta.shared.u32 %r2, [%a+4];", None)],
    [("@%p ld.shared.u32 %r1, [%a];", None), ("@%p ld.shared.u32 %r2, [%a+4];", None)],
    [("ld.shared.v2.u32 {%r1, %r2}, [%a];", None), ("ld.shared.v2.u32 {%r3, %r4}, [%a+8];", None)],
    [("ld.shared.u32 %r1, [s];", None), ("ld.shared.u32 %r2, [s+4];", None)],
]  # fmt: skip


def _merged(lines: Sequence[str], aligned: Mapping[int, int] | int) -> dict[int, int]:
    head = [".version 8.0", ".target sm_80", ".address_size 64", ".visible .entry k() {",
            ".reg .b32 %a, %b, %r<10>; .reg .f32 %f<9>; .reg .b16 %h<9>; .reg .b64 %g, %l<9>; .reg .pred %p;",
            ".shared .align 16 .b8 s[64];"]  # fmt: skip
    text = "\n".join([*head, *lines, "ret;", "}"])
    each = dict.fromkeys(range(20), aligned) if isinstance(aligned, int) else aligned
    return {line - len(head) - 1: size for line, size in predict_widths(text, "k", each).items()}


@pytest.mark.parametrize("lines", MERGED, ids=lambda lines: lines[1][0])
def test_loads_and_stores_that_the_assembler_will_merge(lines: list[tuple[str, int | None]]) -> None:
    wanted = {i: size for i, (_, size) in enumerate(lines) if size is not None}
    assert _merged([line for line, _ in lines], 16) == wanted


def test_what_is_merged_is_aligned() -> None:
    loads = [f"ld.shared.u32 %r{i}, [%a+{4 * i}];" for i in range(5)]
    assert _merged(loads, 4) == {}
    assert _merged(loads, 8) == {0: 8, 1: 0, 2: 8, 3: 0}
    assert _merged(loads, 16) == {0: 16, 1: 0, 2: 0, 3: 0}
    assert _merged(loads, {7: 4, 8: 16, 9: 4, 10: 8, 11: 4}) == {1: 16, 2: 0, 3: 0, 4: 0}
    assert _merged(loads[:4], {7: 4, 8: 8, 9: 4, 10: 4}) == {1: 8, 2: 0}


@pytest.mark.parametrize(
    ("step", "first", "loads"), [(16, 0, 1), (16, 16, 1), (16, 8, 2), (8, 0, 2), (16, 4, 3), (4, 0, 4)]
)
def test_how_addresses_were_aligned_is_seen(step: int, first: int, loads: int) -> None:
    """Four words a lane, merged as far as all addresses allow it, and no further."""
    text = f"""
.version 8.0 .target sm_80 .address_size 64 .visible .entry k() {{
.shared .align 16 .b8 s[2048]; .reg .b32 %a, %r<4>; mov.u32 %a, s; mad.lo.u32 %a, %tid.x, {step}, %a; add.u32 %a, %a, {first};
ld.shared.u32 %r0, [%a];
ld.shared.u32 %r1, [%a+4];
ld.shared.u32 %r2, [%a+8];
ld.shared.u32 %r3, [%a+12]; ret; }}"""
    profile = tw.Kernel.from_ptx(text, "k").profile(1, 32, gpu="a100")
    assert profile["smsp__sass_inst_executed_op_shared_ld.sum"] == loads


ATOMICS = """
extern "C" __global__ void spread(float *o, const float *d) { atomicAdd(o + threadIdx.x % 8, d[threadIdx.x]); }
extern "C" __global__ void counted(int *o, const int *d) {
    __shared__ int bins[64];
    bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[d[threadIdx.x]], 1);
    __syncthreads();
    o[threadIdx.x] = bins[threadIdx.x];
}
extern "C" __global__ void one(int *o, const int *d) { atomicAdd(o, 3); }
extern "C" __global__ void tried(float *o, const float *d) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, d[threadIdx.x]);
    __syncthreads();
    o[threadIdx.x] = sum;
}
"""


RED = "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"


ATOM = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum"


def atomics(name: str) -> Profile:
    kernel = tw.Kernel(ATOMICS, name, "sm_90a")
    elements = np.dtype(kernel.parameters[0].element)
    data = np.arange(64, dtype=elements) // 4
    return kernel.profile(1, 64, [np.zeros(64, elements), data], gpu="h200")


def test_atomics_ask_for_a_sector_for_every_lane_that_wants_a_word() -> None:
    profile = atomics("spread")
    assert (profile[RED], profile.metrics[RED].label) == (2 * 4, "exact")
    assert profile["memory_l2_theoretical_sectors_global"] == 2 * (4 + 1)
    assert profile[RED.replace("l1tex__t", "smsp__sass_l1tex_t")] == 2


def test_what_the_assembler_makes_of_atomics() -> None:
    """It counts lanes of a word at once, has one lane add for all, and tries floats until they are in."""
    profile = atomics("counted")
    assert "ATOMS.POPC.INC" in tw.Kernel(ATOMICS, "counted", "sm_90a").sass
    assert (profile[ATOM], profile.metrics[ATOM].label) == (0, "exact")
    assert atomics("one")[RED] == 2
    profile = atomics("tried")
    assert profile.metrics[ATOM].label == "estimated" and "until they succeed" in "".join(profile.notes)


TILES = """
template <int SIZE, int DEEP>
__global__ void tiles(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float left[SIZE * DEEP], right[DEEP * SIZE];
    float sums[8 * 8] = {0}, of_a[8] = {0}, of_b[8] = {0};
    const unsigned x = threadIdx.x % (SIZE / 8), y = threadIdx.x / (SIZE / 8), threads = SIZE * SIZE / 64;
    const unsigned row_a = threadIdx.x / DEEP, column_a = threadIdx.x % DEEP;
    const unsigned row_b = threadIdx.x / SIZE, column_b = threadIdx.x % SIZE;
    a += blockIdx.x * SIZE * k;
    b += blockIdx.y * SIZE;
    c += blockIdx.x * SIZE * n + blockIdx.y * SIZE;
    for (unsigned step = 0; step < k; step += DEEP) {
        #pragma unroll
        for (unsigned i = 0; i < SIZE; i += threads / DEEP)
            left[(row_a + i) * DEEP + column_a] = a[(row_a + i) * k + column_a];
        #pragma unroll
        for (unsigned i = 0; i < DEEP; i += threads / SIZE)
            right[(row_b + i) * SIZE + column_b] = b[(row_b + i) * n + column_b];
        __syncthreads();
        a += DEEP;
        b += DEEP * n;
        for (unsigned d = 0; d < DEEP; ++d) {
            for (unsigned i = 0; i < 8; ++i) of_a[i] = left[(y * 8 + i) * DEEP + d];
            for (unsigned i = 0; i < 8; ++i) of_b[i] = right[d * SIZE + x * 8 + i];
            for (unsigned i = 0; i < 8; ++i)
                for (unsigned j = 0; j < 8; ++j) sums[i * 8 + j] += of_a[i] * of_b[j];
        }
        __syncthreads();
    }
    #pragma unroll
    for (unsigned i = 0; i < 8; ++i)
        #pragma unroll
        for (unsigned j = 0; j < 8; ++j) c[(y * 8 + i) * n + x * 8 + j] += sums[i * 8 + j];
}
"""


def test_loads_that_are_merged_over_turns_of_a_loop() -> None:
    """The assembler for sm_89 unrolls what the PTX has as a loop, and reads four turns' elements at once."""
    kernel, steps = tw.Kernel(TILES, "tiles<64, 8>", "sm_89"), 5
    arrays = [np.zeros(shape, np.float32) for shape in ((64, 8 * steps), (8 * steps, 64), (64, 64))]
    profile = kernel.profile(1, 64, [*arrays, 64, 64, 8 * steps], gpu="rtx-4090")
    wide = [line for line in profile.machine_lines if line.text.startswith("LDS.128")]
    assert len(wide) >= 16 and {line.instructions for line in wide} == {2 * steps}, profile.notes
    ran = {item.instruction.offset: item.runs.sum() for item in profile.machine.ran}
    for access in profile.machine.accesses:
        assert access.runs.sum() == ran[access.instruction.offset], access.instruction
