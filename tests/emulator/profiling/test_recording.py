"""Recordings: what a block did, event by event, with names for what it touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.tensor_kernels import kernel
from tilewise.emulator.layout import Space
from tilewise.emulator.profiling.recording import EventKind
from tilewise.errors import ArgumentError
from tilewise.instruments.block_views import find_owners, find_steps, list_patterns, machine_widths
from tilewise.instruments.recording import NamedMatrix, Recording
from tilewise.kernels import KERNELS
from tilewise.planner import operands_of

CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
NAIVE = """extern "C" __global__ void mm(const float*A, const float *B, float *C, int n, int k) {
    int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
    float s = 0;
    for (int i = 0; i < k; ++i) s += A[r * k + i] * B[i * n + c];
    C[r * n + c] = s;
}"""


def rung(name: str, m: int, n: int, k: int, **given: Any) -> Recording:
    return tw.record(tw.ladder[name].plan(m, n, k, gpu="h200"), **given)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("plan", "tile", "step"),
    [
        (lambda: tw.ladder["04_tiled"].plan(64, 64, 96, gpu="h200"), (32, 32), 32),
        (lambda: tw.ladder["09_warp_tiled"].plan(256, 512, 64, gpu="h200"), (128, 256), 8),
        (lambda: tw.ladder["12_multistage"].plan(256, 256, 128, gpu="h200"), (64, 64), 32),
        (lambda: tw.ladder["13_warp_specialised"].plan(256, 256, 256, gpu="h200"), (128, 128), 64),
        (lambda: tw.plan(512, 512, 256, dtype="float16", gpu="h200"), (64, 64), 64),
        (lambda: tw.plan(300, 300, 300, dtype="float16", gpu="h200"), (64, 64), 64),  # read from copies
        (lambda: plan_of_blocks_with_tiles(512, 128, 256), (64, 128), 64),  # read for others too, later
    ],
)  # fmt: skip
def test_the_first_tile_is_written_once_and_read_step_by_step(plan: Any, tile: Any, step: int) -> None:
    made = plan()
    recording = tw.record(made)
    owners = find_owners(recording)
    assert recording.lost == 0 and owners is not None
    assert (owners.rows, owners.columns) == tile and (owners.lane >= 0).all() and (owners.warp >= 0).all()
    steps = find_steps(recording, owners)
    k = made.problem.k
    assert [(one.first, one.end) for one in steps] == [(at, min(at + step, k)) for at in range(0, k, step)]
    for one in steps:
        assert one.a_rows == (owners.first_row, owners.first_row + owners.rows)
        assert one.b_columns == (owners.first_column, owners.first_column + owners.columns)
    if k != 300:  # every thread has as many elements, unless rows end inside of what a thread stores
        assert len({*np.unique(owners.warp * 32 + owners.lane, return_counts=True)[1].tolist()}) == 1


def test_tensor_cores_leave_elements_where_their_instruction_says() -> None:
    """A warp's 16 rows of wgmma: row g and g + 8 of lanes 4·g, pairs of columns; through stmatrix and the copy engine."""
    owners = find_owners(rung("13_warp_specialised", 128, 128, 64))
    assert owners is not None and owners.by_engine
    rows, columns = np.meshgrid(np.arange(128), np.arange(128), indexing="ij")
    assert (owners.lane == rows % 8 * 4 + columns % 8 // 2).all()
    assert (owners.warp == rows // 16).all()


@pytest.mark.parametrize("turned", [False, True])
def test_a_matrix_in_shared_memory_is_of_the_lanes_that_hold_its_values(turned: bool) -> None:
    """The copy engine stores what stmatrix put there: of a row four lanes hold two values each; turned, eight one."""
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 c)
{{
  .reg .u64 %g; .reg .u32 %t, %s, %v; .reg .pred %p;
  .shared .align 128 .b8 room[128];
  ld.param.u64 %g, [c]; mov.u32 %t, %tid.x; mov.u32 %s, room;
  and.b32 %v, %t, 7; mad.lo.u32 %s, %v, 16, %s; mov.u32 %v, 0;
  stmatrix.sync.aligned.m8n8.x1{".trans" if turned else ""}.shared.b16 [%s], {{%v}};
  fence.proxy.async.shared::cta; bar.sync 0;
  setp.ne.u32 %p, %t, 0; @%p ret;
  cp.async.bulk.global.shared::cta.bulk_group [%g], [room], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
  ret;
}}
"""
    recording = tw.Kernel.from_ptx(text, "k").record(1, 32, [np.ones((8, 8), np.float16)])
    owners = find_owners(recording)
    assert owners is not None and owners.by_engine and owners.lane.shape == (8, 8)
    rows, columns = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
    assert (owners.lane == (columns * 4 + rows // 2 if turned else rows * 4 + columns // 2)).all()


def test_a_tile_may_be_written_half_by_the_copy_engine_and_half_by_lanes() -> None:
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 c)
{
  .reg .u64 %g, %at; .reg .u32 %t, %s; .reg .pred %p;
  .shared .align 128 .b8 room[128];
  ld.param.u64 %g, [c]; mov.u32 %t, %tid.x; mov.u32 %s, room;
  mul.wide.u32 %at, %t, 4; add.u64 %at, %at, %g; st.global.u32 [%at+128], 0;
  sub.u32 %t, 31, %t; mad.lo.u32 %s, %t, 4, %s; st.shared.u32 [%s], 0;
  fence.proxy.async.shared::cta; bar.sync 0;
  setp.ne.u32 %p, %t, 31; @%p ret;
  cp.async.bulk.global.shared::cta.bulk_group [%g], [room], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
  ret;
}
"""
    recording = tw.Kernel.from_ptx(text, "k").record(1, 32, [np.ones((16, 8), np.float16)])
    owners = find_owners(recording)
    assert owners is not None and owners.by_engine
    lanes = np.arange(32).repeat(2)
    assert owners.lane.ravel().tolist() == [*lanes[::-1], *lanes]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(1, 4), (2, 2), (4, 1)]), st.integers(1, 9))
def test_owners_are_those_that_the_kernel_says(seed: int, shape: tuple[int, int], rows: int) -> None:
    """Each thread writes one element of its own of a shuffled matrix."""
    columns = 32 * shape[0] * shape[1]
    count = rows * columns
    source = """extern "C" __global__ void put(const int *where, float *out) {
        int i = (blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        out[where[i]] = i;
    }"""
    where = np.random.default_rng(seed).permutation(count).astype("int32")
    out = np.zeros((rows, columns), "float32")
    kernel = tw.Kernel(source, "put", "sm_90")
    block = (32 * shape[0], shape[1])
    recording = kernel.record(rows, block, [where, out], blocks=range(rows))
    owners = find_owners(recording)
    assert owners is not None and recording.roles == {"c": "out"} and not out.any()
    thread = np.argsort(where).reshape(rows, columns)
    assert (owners.block == thread // columns).all()
    assert (owners.warp == thread % columns // 32).all() and (owners.lane == thread % 32).all()
    (element,) = owners.elements(0, 0, 5)
    assert owners.at(*element) == (0, 0, 5) and where[5] == element[0] * columns + element[1]


@pytest.mark.parametrize(("element", "first"), [((1, 3), 0), ((9, 0), 8), ((11, 5), 8)])
def test_a_tile_ends_where_its_block_leaves_rows_to_others(element: tuple[int, int], first: int) -> None:
    source = """extern "C" __global__ void apart(float *out) {
        if (threadIdx.y % 8 < 4 && threadIdx.x < 6) out[threadIdx.y * 8 + threadIdx.x] = 1;
    }"""
    out = np.zeros((16, 8), "float32")
    recording = tw.Kernel(source, "apart", "sm_90").record(1, (8, 16), [out], blocks=range(1))
    owners = find_owners(recording, element)
    assert owners is not None and (owners.first_row, owners.first_column) == (first, 0)
    assert owners.warp.shape == (4, 6) and owners.at(*element) == (
        0, element[0] // 4, element[0] % 4 * 8 + element[1],
    )  # fmt: skip


def plan_of_blocks_with_tiles(m: int, n: int, k: int) -> tw.Plan:
    """A plan whose blocks compute four tiles, one after another."""
    spec, operands = KERNELS["wgmma"], operands_of(m, n, k, dtype="float16")
    given = {"tiles": 4, "partition": "64x128x64", "cluster": "1x1"}
    return spec.plan(operands, "h200", spec.complete({**spec.for_types(operands), **given}))


def test_the_tile_that_is_written_first_is_the_one_of_the_first_lane() -> None:
    """Lanes that write a diagonal, backwards."""
    source = """extern "C" __global__ void diagonal(float *out) { out[(7 - threadIdx.x) * 9] = 1; }"""
    recording = tw.Kernel(source, "diagonal", "sm_90").record(1, 8, [np.zeros((8, 8), "float32")])
    owners = find_owners(recording)
    assert owners is not None and (owners.first_row, owners.first_column) == (7, 7)
    assert owners.lane.tolist() == [[0]]


@pytest.mark.parametrize("element", [(0, 0), (20, 40), (63, 63)])
def test_the_block_of_an_element_is_found(element: tuple[int, int]) -> None:
    arrays = [np.ones(shape, "float32") for shape in ((64, 48), (48, 64), (64, 64))]
    kernel = tw.Kernel(NAIVE, "mm", "sm_90")
    recording = kernel.record((4, 4), (16, 16), [*arrays, 64, 48], element=("C", *element))
    row, column = element
    assert recording.roles == {"a": "A", "b": "B", "c": "C"}
    assert recording.blocks == [row // 16 * 4 + column // 16]
    owners = find_owners(recording, element)
    assert owners is not None
    assert owners.at(*element) == (recording.blocks[0], row % 16 // 2, row % 2 * 16 + column % 16)
    assert len(find_steps(recording, owners)) == 48


SIZES = st.integers(1, 4)


@given(
    SIZES,
    SIZES,
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(0, 3),
    st.sampled_from([1, 4]),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_an_element_is_found_at_its_address_and_nothing_between_or_beside_them(
    rows: int, columns: int, count: int, pad: int, gap: int, itemsize: int, turned: bool
) -> None:
    stride = columns + pad
    stack = rows * stride + gap if count > 1 else 0
    matrix = NamedMatrix("a", 4096, rows, columns, stride, 1, "x", itemsize, count, stack)
    held = {
        4096 + itemsize * (which * stack + row * stride + column): (row, column, which)
        for which in range(count) for row in range(rows) for column in range(columns)
    }  # fmt: skip
    if turned:
        matrix, held = matrix.transposed(), {at: (column, row, n) for at, (row, column, n) in held.items()}
    assert matrix.bytes == max(held) + itemsize - 4096
    addresses = np.arange(4096 - 8 * itemsize, max(held) + 64 * itemsize, itemsize)
    found = zip(*(one.tolist() for one in matrix.find(addresses)), strict=True)
    assert [*found] == [held.get(at, (-1, -1, -1)) for at in addresses.tolist()]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("stride", [0, 1])
def test_of_elements_in_one_place_the_first_is_found(stride: int, turned: bool) -> None:
    """All of a matrix lie there, or those of each row."""
    matrix = NamedMatrix("a", 4096, 3, 2, stride, 0, "float32", 4)
    held = {4096: (0, 0, 0), 4100: (1, 0, 0), 4104: (2, 0, 0)} if stride else {4096: (0, 0, 0)}
    if turned:
        matrix, held = matrix.transposed(), {at: (column, row, n) for at, (row, column, n) in held.items()}
    assert matrix.bytes == 4 * len(held)
    addresses = np.arange(4092, 4112, 4)
    found = zip(*(one.tolist() for one in matrix.find(addresses)), strict=True)
    assert [*found] == [held.get(at, (-1, -1, -1)) for at in addresses.tolist()]


def test_a_matrix_that_is_read_as_its_transpose_is_named_as_one() -> None:
    """What is told of it are its rows and columns in the product; the argument goes on under its own name."""
    source = NAIVE.replace("A[r * k + i]", "A[i * 64 + r]")
    arrays = [np.ones(shape, "float32") for shape in ((48, 64), (48, 32), (64, 32))]
    recording = tw.Kernel(source, "mm", "sm_90").record((2, 4), (16, 16), [*arrays, 32, 48])
    assert recording.roles == {"a": "Aᵀ", "b": "B", "c": "C"}
    sizes = {name: (one.rows, one.columns) for name, one in recording.matrices.items()}
    assert sizes == {"A": (48, 64), "Aᵀ": (64, 48), "B": (48, 32), "C": (64, 32)}
    moves, given = recording.touched("Aᵀ", EventKind.LOAD), recording.touched("A", EventKind.LOAD)
    assert (moves.row == given.column).all() and (moves.column == given.row).all()
    assert len(moves) == len(moves.row) > 0


def test_elements_that_are_loaded_are_not_those_that_are_stored() -> None:
    """Of one array: even ones are read, and odd ones written of what was kept in shared memory."""
    source = """extern "C" __global__ void turn(float *x) {
        __shared__ float held[32];
        held[31 - threadIdx.x] = x[2 * threadIdx.x];
        __syncthreads();
        x[2 * threadIdx.x + 1] = held[threadIdx.x];
    }"""
    recording = tw.Kernel(source, "turn", "sm_90").record(1, 32, [np.ones((8, 8), "float32")])
    for kind, first in ((EventKind.LOAD, 0), (EventKind.STORE, 1)):
        moves = recording.touched("x", kind)
        assert {*recording.events.what[moves.event].tolist()} == {kind} and not recording.in_shared[
            moves.event
        ].any()
        assert (moves.row * 8 + moves.column).tolist() == [*range(first, 64, 2)]
        extents = recording.extents("x", kind)
        assert [*zip(extents.first_row.tolist(), extents.last_row.tolist(), strict=True)] == [(0, 7)]
        assert (extents.first_column.tolist(), extents.last_column.tolist()) == ([first], [6 + first])


def test_one_element_is_one() -> None:
    """What a single thread loads and stores, an element each."""
    recording = tw.Kernel('extern "C" __global__ void one(float *x) { x[9] = x[5]; }', "one", "sm_90").record(
        1, 1, [np.ones((4, 4), "float32")]
    )
    for kind, place in ((EventKind.LOAD, (1, 1)), (EventKind.STORE, (2, 1))):
        moves, extents = recording.touched("x", kind), recording.extents("x", kind)
        assert [*zip(moves.row.tolist(), moves.column.tolist(), strict=True)] == [place]
        found = [extents.first_row, extents.last_row, extents.first_column, extents.last_column]
        assert [one.tolist() for one in found] == [[place[0]], [place[0]], [place[1]], [place[1]]]


def test_of_a_block_that_writes_nothing_there_are_no_owners() -> None:
    source = NAIVE.replace("float s = 0;", "float s = 0; if (blockIdx.x) return;")
    arrays = [np.ones(shape, "float32") for shape in ((64, 48), (48, 32), (64, 32))]
    kernel = tw.Kernel(source, "mm", "sm_90")
    for block, is_owned in ((0, True), (1, False)):
        recording = kernel.record((2, 4), (16, 16), [*arrays, 32, 48], blocks=[block])
        named = replace(recording, roles={"c": "C"})
        assert (find_owners(named) is not None) is is_owned and find_owners(recording, (0, 31)) is None
        assert find_owners(replace(recording, roles={})) is None


@pytest.mark.parametrize(
    ("sizes", "roles"),
    [
        (((8, 4), (4, 6), (8, 6)), {"a": "x", "b": "y", "c": "z"}),
        (((4, 6), (8, 4), (8, 6)), {"a": "y", "b": "x", "c": "z"}),
        (((8, 4), (6, 4), (8, 6)), {"a": "x", "b": "yᵀ", "c": "z"}),
        (((4, 8), (4, 6), (8, 6)), {"a": "xᵀ", "b": "y", "c": "z"}),
        (((4, 8), (6, 4), (8, 6)), {"a": "xᵀ", "b": "yᵀ", "c": "z"}),
        (((8, 4), (5, 6), (8, 6)), {"c": "z"}),  # what is summed over differs
        (((8, 4), (4, 6), (8, 7)), {"c": "z"}),
        (((8, 4), (4, 6), (7, 6)), {"c": "z"}),
    ],
)
def test_arrays_are_those_of_a_product_where_all_three_sizes_fit(sizes: Any, roles: dict[str, str]) -> None:
    source = """extern "C" __global__ void some(const float *x, const float *y, float *z, int a, int b, int c) {
        float sum = 0;
        for (int i = 0; i < a; ++i) sum += x[i];
        for (int i = 0; i < b; ++i) sum += y[i];
        for (int i = 0; i < c; ++i) z[i] = sum;
    }"""
    arrays = [np.ones(size, "float32") for size in sizes]
    recording = tw.Kernel(source, "some", "sm_90").record(1, 1, [*arrays, *(array.size for array in arrays)])
    assert {role: recording.matrices[name].name for role, name in recording.roles.items()} == roles


@pytest.mark.parametrize("name", ["12_multistage", "13_warp_specialised"])
def test_the_extents_of_an_event_are_those_of_the_elements_that_it_touched(name: str) -> None:
    """Of lanes and of the copy engine; in matrices that are not square, so that rows are no columns."""
    recording = rung(name, 128, 256, 192)
    for role, kinds in (
        ("a", (EventKind.LOAD, EventKind.COPY)),
        ("b", (EventKind.LOAD, EventKind.COPY)),
        ("c", (EventKind.STORE, EventKind.ATOMIC)),
    ):
        matrix = recording.roles[role]
        moves, extents = recording.touched(matrix, *kinds), recording.extents(matrix, *kinds)
        events, first = np.unique(moves.event, return_index=True)
        assert len(events) and (extents.event == events).all()
        for numbers, least, most in (
            (moves.row, extents.first_row, extents.last_row),
            (moves.column, extents.first_column, extents.last_column),
        ):
            assert (np.minimum.reduceat(numbers, first) == least).all()
            assert (np.maximum.reduceat(numbers, first) == most).all()
        middle = int(events[len(events) // 2])
        assert (recording.extents(matrix, *kinds, before=middle).event == events[events < middle]).all()
        copied = [recording.bulk_places(int(e)) for e in events if recording.kinds[int(e)] == EventKind.BULK]
        assert all(places is not None and places[2] is (role != "c") for places in copied)
        assert bool(copied) is (name == "13_warp_specialised")


def test_the_element_of_a_plan_is_found_in_its_tile() -> None:
    recording = rung("13_warp_specialised", 256, 256, 64, element=(200, 130))
    owners = find_owners(recording, (200, 130))
    assert owners is not None and owners.has(200, 130) and not owners.has(0, 0)
    assert recording.blocks == [owners.at(200, 130)[0]]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["04_tiled", "05_tiled_conflicted", "08_register_tiled", "12_multistage"])
def test_patterns_times_their_runs_are_the_profile_s_figures(name: str) -> None:
    """Of a launch of one block, all of which is recorded."""
    size = {"04_tiled": (32, 32, 64), "05_tiled_conflicted": (32, 32, 64)}.get(name, (64, 64, 64))
    plan = tw.ladder[name].plan(*size, gpu="h200")
    recording = tw.record(plan)
    (profile,) = [one for one in tw.profile(plan).all if one.kernel == recording.kernel]
    assert len(recording.blocks) == profile.launch.blocks == 1
    patterns = list_patterns(recording, machine_widths(profile))
    for op, what in (("ld", EventKind.LOAD), ("st", EventKind.STORE)):
        found = sum(
            (one.wavefronts - one.phases) * one.runs
            for one in patterns if one.shared and one.what == what and one.width
        )  # fmt: skip
        assert found == profile[CONFLICTS.format(op)]
    sectors = sum(
        one.sectors * one.runs
        for one in patterns
        if not one.shared and one.what in (EventKind.LOAD, EventKind.COPY)
    )
    assert sectors == profile["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]


@pytest.mark.parametrize("name", ["04_tiled", "09_warp_tiled", "12_multistage", "13_warp_specialised"])
@pytest.mark.parametrize("what", ["eager", 7])
def test_who_waits_at_a_barrier_comes_through(name: str, what: Any) -> None:
    recording = rung(name, 256, 256, 64)
    for warp in np.unique(recording.events.warp):
        mine = recording.events.what[recording.events.warp == warp]
        met = mine[np.isin(mine, (EventKind.WAIT, EventKind.THROUGH))]
        assert (
            (met[::2] == EventKind.WAIT).all()
            and (met[1::2] == EventKind.THROUGH).all()
            and len(met) % 2 == 0
        )


def test_a_full_recording_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewise.instruments import record_launch

    arrays = [np.ones((16, 16), "float32") for _ in range(3)]
    kernel = tw.Kernel(NAIVE, "mm", "sm_90")
    whole = kernel.record(1, (16, 16), [*arrays, 16, 16])
    monkeypatch.setitem(record_launch.record_bound.__kwdefaults__ or {}, "most", 100)
    short = kernel.record(1, (16, 16), [*arrays, 16, 16])
    assert len(short) == 100 and 0 < short.lost <= len(whole) - 100
    assert (short.events.place == whole.events.place[:100]).all()


def test_a_launch_ends_once_its_recording_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that would go on for minutes; memory is as it was, and the next launch of it begins anew."""
    source = """extern "C" __global__ void count(unsigned *x, unsigned n) {
        for (unsigned i = 0; i < n; ++i) atomicAdd(x, 1), __syncthreads();
    }"""
    kernel, x = tw.Kernel(source, "count", "sm_90"), np.zeros(1, "uint32")
    found = kernel.record(1, 64, [x, 1 << 31], timeout=60)
    assert found.lost > 0 and x[0] == 0
    kernel(1, 64, (x, 10), device="emulator")
    assert x[0] == 640


def test_what_cannot_be_recorded_is_told() -> None:
    plan = tw.ladder["04_tiled"].plan(64, 64, 32, gpu="h200")
    with pytest.raises(ArgumentError, match="blocks must be from 0 to 3, as the grid has them"):
        tw.record(plan, blocks=[4])
    for element in ((64, 0), (0, 64), (-1, 0), (0, -1)):
        with pytest.raises(ArgumentError, match="element must lie in c, which is 64×64"):
            tw.record(plan, element=element)
    with pytest.raises(ArgumentError, match="plan must be a Plan"):
        tw.record("04_tiled")  # type: ignore[arg-type]


def test_an_element_that_no_block_writes_is_told() -> None:
    source = """extern "C" __global__ void some(float *out) { if (threadIdx.x == 0) out[blockIdx.x] = 1; }"""
    kernel, out = tw.Kernel(source, "some", "sm_75"), np.zeros((2, 4), "float32")
    for column in (0, 2):
        assert kernel.record(3, 32, [out], element=("out", 0, column)).blocks == [column]
    for element in ((0, 3), (1, 0)):
        with pytest.raises(ArgumentError) as caught:
            kernel.record(3, 32, [out], element=("out", *element))
        said = f"element must be one that the launch writes of out, not '{element[0]}, {element[1]}'"
        assert str(caught.value) == said


def test_a_recording_is_of_the_gpus_multiprocessors() -> None:
    source = """extern "C" __global__ void ask(int *out, int wanted) {
        int count; asm volatile("mov.u32 %0, %%nsmid;" : "=r"(count));
        if (count == wanted) out[threadIdx.x] = 1;
    }"""
    kernel = tw.Kernel(source, "ask", "sm_75")
    with pytest.raises(ArgumentError) as caught:
        kernel.record(1, 32, [np.zeros(32, np.int32), 40], element=("c", 0, 0))
    assert str(caught.value) == "element must be of one of the matrices (out), not 'c'"
    with pytest.raises(ArgumentError, match=r"\(no matrix is known\), not 'c'"):
        kernel.record(1, 32, [0, 41], element=("c", 0, 0))
    for gpu, wanted, stores in (
        ("t4", 40, True),
        ("rtx-2060-super", 40, False),
        ("rtx-2060-super", 34, True),
    ):
        recording = kernel.record(1, 32, [np.zeros(32, np.int32), wanted], gpu=gpu)
        assert (EventKind.STORE in recording.kinds) is stores


@pytest.mark.parametrize(
    "product",
    [
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, {%f0, %f1, %f2, %f3};",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2, %r3}, {%f0, %f1, %f2, %f3}, %r4, 0;",
    ],
)
def test_a_product_of_tensor_cores_is_an_event(product: str) -> None:
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out) { .reg .f32 %f<4>; .reg .b32 %r<5>; .reg .b64 %d;"
    empty = " ".join([f"mov.f32 %f{i}, 0f00000000; mov.b32 %r{i}, 0;" for i in range(4)])
    text = f"{head} {empty} mov.b32 %r4, 0x44444444; {product} ld.param.u64 %d, [out]; st.global.f32 [%d], %f0; ret; }}"
    recording = tw.Kernel.from_ptx(text, "k").record(1, 32, [np.zeros(1, np.float32)])
    assert EventKind.PRODUCT in recording.kinds


# A warp, the upper half of which does what is guarded; lane 0 does what is for one.
EACH_KIND = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 half)
{
  .reg .u64 %a, %g, %b, %s; .reg .u32 %t, %h, %r<5>, %v<4>; .reg .f32 %f<4>; .reg .pred %p, %q, %first;
  .shared .align 16 .b8 room[1024]; .shared .align 8 .b64 bar;
  ld.param.u64 %g, [data]; ld.param.u64 %b, [half]; mov.u32 %t, %tid.x;
  setp.ge.u32 %p, %t, 16; setp.eq.u32 %first, %t, 0;
  mul.wide.u32 %a, %t, 16; add.u64 %g, %g, %a; mad.wide.u32 %b, %t, 2, %b; shl.b32 %h, %t, 4;
  mov.u32 %r0, room; add.u32 %h, %h, %r0;
  LINES
  ret;
}
"""
UPPER, EVERY, ONE = 0xFFFF_0000, 0xFFFF_FFFF, 1
GLOBAL, SHARED = int(Space.GLOBAL), int(Space.SHARED)
# Each with its events: kind, space, bytes of a lane, lanes, what the addresses of lanes 16 and 17 are apart.
LOGGED: list[tuple[str, list[tuple[EventKind, int, int, int, int | None]]]] = [
    ("ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%g];", [(EventKind.LOAD, GLOBAL, 16, EVERY, 16)]),
    ("@%p ld.global.u16 %v0, [%b];", [(EventKind.LOAD, GLOBAL, 2, UPPER, 2)]),
    ("@%p st.global.v2.u32 [%g], {%v0, %v1};", [(EventKind.STORE, GLOBAL, 8, UPPER, 16)]),
    ("st.shared.u32 [%h], %v0;", [(EventKind.STORE, SHARED, 4, EVERY, 16)]),
    ("ld.shared.u64 %s, [room];", [(EventKind.LOAD, SHARED, 8, EVERY, 0)]),
    ("@%p atom.global.add.u64 %s, [%g], 1;", [(EventKind.ATOMIC, GLOBAL, 8, UPPER, 16)]),
    ("red.shared.add.u32 [room], 1;", [(EventKind.ATOMIC, SHARED, 4, EVERY, 0)]),
    (
        "cp.async.ca.shared.global [%h], [%g], 8;",
        [(EventKind.COPY, GLOBAL, 8, EVERY, 16), (EventKind.FILL, SHARED, 8, EVERY, 16)],
    ),
    (  # of lanes that only fill with zeros nothing is read
        "cp.async.ca.shared.global [%h], [%g], 8, %r3;",
        [(EventKind.COPY, GLOBAL, 8, UPPER, 16), (EventKind.FILL, SHARED, 8, EVERY, 16)],
    ),
    (
        "cp.async.cg.shared.global [%h], [%g], 16, 0;",
        [(EventKind.FILL, SHARED, 16, EVERY, 16)],
    ),
    ("@%p cp.async.commit_group;", [(EventKind.CLOSE, 0, 0, UPPER, None)]),
    ("cp.async.wait_group 0;", [(EventKind.DRAIN, 0, 0, EVERY, None)]),
    ("bar.sync 0;", [(EventKind.WAIT, 0, 0, EVERY, None), (EventKind.THROUGH, 0, 0, EVERY, None)]),
    ("@%first mbarrier.init.shared.b64 [bar], 1;", []),
    ("@%first mbarrier.arrive.shared.b64 %s, [bar];", [(EventKind.ARRIVE, SHARED, 8, ONE, None)]),
    ("mbarrier.test_wait.parity.shared.b64 %q, [bar], 0;", [(EventKind.AWAIT, SHARED, 8, EVERY, 0)]),
    (
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, {%f0, %f1, %f2, %f3};",
        [(EventKind.PRODUCT, 0, 0, EVERY, None)],
    ),
    ("ld.local.u32 %v0, [own]; ld.param.u64 %a, [data];", []),
]


def test_of_a_box_that_begins_outside_the_array_what_lies_in_it_is_read() -> None:
    """Its first row and its first four columns are outside: three rows of four elements are left."""
    array = tw.device("emulator").array(np.zeros((16, 8), np.float32))
    what = np.array([2, 0, 128, 128, -4, -1, *[0] * 6], np.int32)
    given = [tw.TensorMap(array, (4, 8)), what, np.zeros(128, np.uint8)]
    recording = kernel("load").record(1, 32, given, shared=1024)
    (event,) = np.flatnonzero(recording.events.what == EventKind.BULK)
    places = recording.bulk_places(int(event))
    assert places is not None and places[2]
    row, column = np.divmod(places[0] - array.ptr, 32)
    assert sorted(zip(row, column, strict=True)) == [(r, 4 * c) for r in range(3) for c in range(4)]
    assert (places[1] - places[1].min() == 32 * row + column).all()


def test_a_generic_address_is_in_shared_memory_or_not() -> None:
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 c)
{
  .reg .u64 %g, %s; .shared .align 4 .b8 room[4];
  ld.param.u64 %g, [c]; mov.u64 %s, room; cvta.shared.u64 %s, %s;
  st.u32 [%s], 1; st.u32 [%g], 2; st.shared.u32 [room], 3; st.global.u32 [%g], 4;
  ret;
}
"""
    recording = tw.Kernel.from_ptx(text, "k").record(1, 1, [np.zeros(1, np.uint32)])
    stores = recording.events.what == EventKind.STORE
    assert recording.in_shared[stores].tolist() == [True, False, True, False]


def test_lanes_that_take_no_part_touch_nothing() -> None:
    """Whichever they are: a generic store by odd lanes alone is where these store, and of no other elements."""
    source = """extern "C" __global__ void mm(const float *A, const float *B, float *C, int n, int k) {
        int at = threadIdx.x;
        float sum = A[at / n * k] * B[at % n];
        if (at % 2) C[at] = sum;
    }"""
    arrays = [np.ones(shape, "float32") for shape in ((4, 8), (8, 16), (4, 16))]
    recording = tw.Kernel(source, "mm", "sm_90").record(1, 64, [*arrays, 16, 8])
    stores = recording.touched("C", EventKind.STORE)
    wanted = [(lane, (32 * warp + lane) // 16, lane % 16) for warp in (0, 1) for lane in range(1, 32, 2)]
    found = zip(stores.lane.tolist(), stores.row.tolist(), stores.column.tolist(), strict=True)
    assert sorted(found) == sorted(wanted)
    assert not recording.in_shared[recording.events.what == EventKind.STORE].any()


def test_where_an_event_is_says_its_first_lane_that_takes_part() -> None:
    """Through generic addresses, of which a lane that takes none has none."""
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 c)
{
  .reg .u64 %g, %s; .reg .u32 %t; .reg .pred %odd; .shared .align 4 .b8 room[4];
  ld.param.u64 %g, [c]; mov.u64 %s, room; cvta.shared.u64 %s, %s;
  mov.u32 %t, %tid.x; and.b32 %t, %t, 1; setp.ne.u32 %odd, %t, 0;
  @%odd st.u32 [%s], 1; @%odd st.u32 [%g], 2;
  ret;
}
"""
    recording = tw.Kernel.from_ptx(text, "k").record(1, 32, [np.zeros(1, np.uint32)])
    stores = recording.events.what == EventKind.STORE
    assert recording.in_shared[stores].tolist() == [True, False]
    assert {*recording.events.mask[stores].tolist()} == {0xAAAA_AAAA}


def test_each_kind_of_event_has_its_space_its_bytes_and_its_lanes() -> None:
    lines = [line for line, _ in LOGGED]
    own = ".local .b32 own; mov.b32 %r1, 0; mov.b32 %r2, 0; selp.b32 %r3, 4, 0, %p;" + "".join(
        f"mov.f32 %f{i}, 0f00000000;" for i in range(4)
    )
    kernel = tw.Kernel.from_ptx(EACH_KIND.replace("LINES", "\n".join([own, *lines])), "k")
    recording = kernel.record(1, 32, [np.zeros(1024, np.uint8), np.zeros(64, np.uint8)])
    first, events = EACH_KIND[: EACH_KIND.index("LINES")].count("\n") + 2, recording.events
    found: dict[int, list[Any]] = {}
    for i, what in enumerate(recording.kinds):
        apart = int(events.addresses[i, 17] - events.addresses[i, 16])
        row = (what, int(events.space[i]), int(events.size[i]), int(events.mask[i]), apart)
        found.setdefault(recording.places[events.place[i]].line - first, []).append(row)
    for number, (line, wanted) in enumerate(LOGGED):
        logged = [
            (*row[:4], None if one[4] is None else row[4])
            for row, one in zip(found.pop(number, []), wanted, strict=True)
        ]
        assert logged == wanted, line
    assert not found
