"""How operands lie: what is said of a layout against the addresses of its elements, one by one."""

from __future__ import annotations

import dataclasses
import itertools
import math
import struct
from dataclasses import replace
from operator import mul

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilewise as tw
from tilewise.kernels import KERNELS
from tilewise.kernels.bind import _regions, readable
from tilewise.kernels.epilogue import fits_boxes, partial_bytes, partial_sums
from tilewise.kernels.gemm import limits, real_form
from tilewise.kernels.gemm.add_parts import add_step
from tilewise.kernels.gemm.arrange import _matrices, arranged, copy_bytes, transposes_runs, with_zeros
from tilewise.kernels.spec import ComplexForm, cut, straddling
from tilewise.operands import Operand, Operands, alignment_of, ceil_div
from tilewise.planner import list_candidates, operands_of, target_of
from tilewise.problem import Epilogue, EpilogueArray, Problem, Tile
from tilewise.slots import MapSlot, Slot, constant

COUNT = st.integers(0, 4)
STRIDE = st.integers(0, 6)
matrices = st.builds(
    lambda rows, columns, row, column: Operand("a", rows, columns, row, "float32", column),
    COUNT,
    COUNT,
    STRIDE,
    STRIDE,
)


def places(operand: Operand) -> npt.NDArray[np.int64]:
    """Where each element of a matrix lies, in elements from the first."""
    rows, columns = np.ogrid[: operand.rows, : operand.columns]
    return np.asarray(rows * operand.row_stride + columns * operand.column_stride)


def is_in_rows(at: npt.NDArray[np.int64]) -> bool:
    """Whether neighbours of a row lie side by side, and each row behind the one before."""
    side_by_side = bool((np.diff(at, axis=1) == 1).all())
    return side_by_side and bool((at[1:, :1] > at[:-1, -1:]).all())


@given(matrices)
@settings(max_examples=300)
def test_a_layout_is_what_the_elements_places_say(operand: Operand) -> None:
    at = places(operand)
    assert operand.has_rows == is_in_rows(at)
    assert operand.layout == ("row" if is_in_rows(at) else "column" if is_in_rows(at.T) else "strided")
    turned = operand.transposed()
    assert np.array_equal(places(turned), at.T) and turned.transposed() == operand
    assert real_form._has_neighbours(operand) == bool((np.diff(at, axis=1) == 1).all())


def test_numbers_are_covered_and_divided() -> None:
    for a, b in itertools.product(range(30), range(1, 9)):
        assert ceil_div(a, b) == len(range(0, a, b))
    for numbers in itertools.product((0, 1, 2, 6, 8, 12, 16, 24, 64), repeat=2):
        assert alignment_of(*numbers) == max(
            one for one in (1, 2, 4, 8, 16) if not any(n % one for n in numbers)
        )
    assert alignment_of() == 16


@pytest.mark.parametrize(
    ("name", "own"), [("a", False), ("workspace", True), ("copy_a", True), ("parts_b", True)]
)
def test_the_pitch_of_one_row_is_that_of_dense_ones_unless_a_kernel_of_ours_made_it(
    name: str, own: bool
) -> None:
    for rows, columns in ((1, 5), (1, 0), (0, 5)):
        assert Operand(name, rows, columns, 9, "int8").pitch == (9 if own else max(columns, 1))
    assert Operand(name, 2, 5, 9, "int8").pitch == 9


def test_a_stack_has_two_steps_for_kernels_the_outer_one_first() -> None:
    for stack, expected in (((), (0, 0)), ((7,), (0, 7)), ((5, 7), (5, 7)), ((3, 5, 7), (5, 7))):
        assert Operand("a", 2, 2, 2, "int8", stack=stack).stack_strides == expected
    anywhere = Operand("a", 2, 2, 2, "int8", stack=(7,), by_pointers=True)
    assert anywhere.stack_strides == (7 * 2**31, 7)


@given(axes=st.integers(0, 4), kept=st.integers(0, 4))
def test_what_one_launch_takes_of_a_stack_is_its_innermost_axes(axes: int, kept: int) -> None:
    operands = operands_of(4, 4, 4, epilogue=tw.epilogue("acc + bias", bias=np.zeros(4, np.float32)))
    sizes, steps = tuple(range(2, 2 + axes)), tuple(range(10, 10 + axes))
    a, b, c, *extras = (replace(one, stack=steps) for one in (*operands[:3], *operands.extras))
    inner = operands._replace(a=a, b=b, c=c, extras=tuple(extras), stack=sizes).inner(kept)
    assert inner.stack == sizes[max(axes - kept, 0) :]
    assert {one.stack for one in (*inner[:3], *inner.extras)} == {steps[max(axes - kept, 0) :]}
    assert inner.batch == np.prod(inner.stack, dtype=int)


@given(
    m=st.integers(1, 40),
    n=st.integers(1, 20),
    groups=st.integers(0, 6),
    tile=st.integers(1, 9),
    data=st.data(),
)
def test_the_most_tiles_are_as_many_as_the_worst_groups_need(
    m: int, n: int, groups: int, tile: int, data: st.DataObject
) -> None:
    operands = operands_of(m, n, 4, groups=groups)
    most = operands.most_tiles(tile, 3)
    if not groups:
        assert most == len(range(0, m, tile)) * len(range(0, n, 3))
        return
    ends = sorted(data.draw(st.lists(st.integers(0, m), min_size=groups - 1, max_size=groups - 1)))
    sizes = np.diff([0, *ends, m])
    assert sum(len(range(0, size, tile)) for size in sizes) * len(range(0, n, 3)) <= most
    assert most == (m // tile + min(groups, m)) * len(
        range(0, n, 3)
    )  # each group but the empty may end in a tile


@given(
    m=st.integers(1, 4), n=st.integers(1, 4), k=st.integers(1, 4), layout=st.sampled_from(["nn", "nt", "tn", "tt"]),
    batch=st.integers(1, 3),
)  # fmt: skip
def test_dense_operands_fill_their_memory(m: int, n: int, k: int, layout: str, batch: int) -> None:
    operands = operands_of(m, n, k, layout=layout, batch=batch, dtype="float16")
    for one, shape in zip(operands[:3], ((m, k), (k, n), (m, n)), strict=True):
        assert (one.rows, one.columns) == shape
        steps = one.stack or (0,)
        every = np.concatenate([places(one).reshape(-1) + i * steps[0] for i in range(batch)])
        assert sorted(every) == list(range(batch * shape[0] * shape[1]))
        bytes_apart = 2 * shape[0] * shape[1]
        widest = max(width for width in (1, 2, 4, 8, 16) if bytes_apart % width == 0)
        assert one.alignment == (16 if batch == 1 else widest)
    assert (operands.a.column_stride == 1) or layout[0] == "t" or k <= 1


@pytest.mark.parametrize("dtype", ["int8", "float32", "float16"])
def test_columns_are_turned_16_bytes_at_a_time_where_each_of_them_begins_so(dtype: str) -> None:
    """Those of bytes wherever they begin, those of two bytes nowhere."""
    for alignment, pitch, step in itertools.product((4, 16), (8, 9, 12), (48, 49, 0)):
        source = Operand("a", 8, 4, 1, dtype, pitch, (step,), alignment)
        begins = all(bytes_ % 16 == 0 for bytes_ in (alignment, 4 * pitch, 4 * step))
        assert transposes_runs(source, arranged(source, (2,))) == {"float32": begins, "int8": True}.get(
            dtype, False
        )


def test_arrays_of_an_epilogue_lie_along_what_they_differ_along() -> None:
    for shape, strides in (
        ((6,), (0, 1)),
        ((4, 1), (1, 0)),
        ((1, 6), (0, 1)),
        ((4, 6), (6, 1)),
        ((1, 1), (0, 0)),
    ):
        epilogue = tw.epilogue("acc + x", x=np.zeros(shape, np.float32))
        for batch in (1, 3):
            operands = operands_of(4, 6, 8, epilogue=epilogue, batch=batch)
            (extra,), (form,) = operands.extras, operands.epilogue.arrays
            assert (form.by_row, form.by_column) == (strides[0] > 0, strides[1] > 0)
            (turned,) = operands.transposed().epilogue.arrays
            assert (turned.by_row, turned.by_column) == (form.by_column, form.by_row)
            assert (extra.rows, extra.columns, extra.row_stride, extra.column_stride) == (4, 6, *strides)
            assert extra.stack == (() if batch == 1 else (0,) if strides != (6, 1) else extra.stack)


def test_scales_of_terms_have_lines_of_their_own_operand_and_runs_of_k() -> None:
    for lines, of_a, of_b in ((1, (300, 4), (4, 200)), (128, (3, 4), (4, 2))):
        arrays = [EpilogueArray(f"of_{one}", "float32", scales=one, lines=lines) for one in ("a", "b")]
        scaled = Epilogue("scaled(acc, of_a, of_b)", tuple(arrays))
        problem = Problem(300, 200, 400, a="float8_e4m3fn", b="float8_e4m3fn", c="bfloat16", epilogue=scaled)
        first, second = Operands.of(problem).extras
        assert (first.rows, first.columns) == of_a and (second.rows, second.columns) == of_b


@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 2),
    slots=st.tuples(*[st.integers(1, 4)] * 2),
    stack=st.lists(st.integers(1, 4), max_size=2).map(tuple),
)
def test_partial_sums_of_a_stack_lie_one_behind_another(
    sizes: tuple[int, int], slots: tuple[int, int], stack: tuple[int, ...]
) -> None:
    """Matrix by matrix, as the launch that adds them up reads them; none of two arrays in one place."""
    m, n = sizes
    given = {"down": np.zeros(n, np.float32), "across": np.zeros(m, np.float32)}
    sums = tw.epilogue("column_sums(down, acc) + row_sums(across, acc)", **given)
    operands = operands_of(m, n, 8, epilogue=sums)._replace(stack=stack)
    axes, end = (1, 1, *stack)[-2:], 0
    for one, shape in zip(partial_sums(operands, slots), ((slots[0], n), (m, slots[1])), strict=True):
        steps = struct.unpack("<4q", one.strides(stack))
        order = itertools.product(*map(range, (*axes, *shape)))
        places = [sum(map(mul, index, (*steps[2:], *steps[:2]))) for index in order]
        assert places == list(range(len(places)))
        assert one.offset >= end
        end = one.offset + 4 * len(places)
    assert end <= partial_bytes(operands, slots)


@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 2),
    axes=st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=2),
    dtype=st.sampled_from(["int8", "float16", "float64"]),
)
@example(sizes=(3, 5), axes=[(2, False), (3, True)], dtype="float16")
def test_a_copy_has_each_matrix_of_a_stack_once(
    sizes: tuple[int, int], axes: list[tuple[int, bool]], dtype: str
) -> None:
    """What the stack repeats has one place, and all of them fill what the copy takes."""
    rows, columns = sizes
    stack = tuple(size for size, _ in axes)
    steps = tuple(0 if same else step for (_, same), step in zip(axes, (1000, 100), strict=False))
    source = Operand("a", rows, columns, columns, dtype, 1, steps)
    copy = arranged(source, stack)
    places = {
        sum(map(mul, index, source.stack)): sum(map(mul, index, copy.stack))
        for index in itertools.product(*map(range, stack))
    }
    whole = rows * copy.row_stride
    assert math.prod(_matrices(source, operands_of(*sizes, 1)._replace(stack=stack))) == len(places)
    assert sorted(places.values()) == [i * whole for i in range(len(places))]
    assert copy_bytes(copy, stack) == len(places) * whole * copy.itemsize
    for index in itertools.product(*map(range, stack)):
        assert places[sum(map(mul, index, source.stack))] == sum(map(mul, index, copy.stack))


@given(columns=st.integers(1, 5000), dtype=st.sampled_from(["int8", "float16", "float32", "float64"]))
@example(columns=960, dtype="float16")  # 15 lines of the memory, to the byte
@example(columns=1020, dtype="float32")  # a line more would be a sixteenth, less 16 bytes
def test_lines_of_a_copy_are_whole_lines_of_the_memory_where_that_takes_little_more(
    columns: int, dtype: str
) -> None:
    source = Operand("a", 3, columns, columns, dtype)
    copy = arranged(source, ())
    apart, item = copy.row_stride * copy.itemsize, copy.itemsize
    least, lines = (-(-columns * item // unit) * unit for unit in (16, 128))
    assert apart == (lines if lines <= 1.0625 * least else least)
    assert with_zeros(copy).columns == copy.row_stride and with_zeros(source) is source


@pytest.mark.parametrize(
    ("size", "layout", "given", "rows"),
    [
        ((65, 190, 136), "nt", {}, (72, 64)),  # of A and of B, in eights
        ((128, 249, 136), "nt", {}, (0, 0)),  # nothing to spare
        ((72, 184, 136), "tn", {}, (0, 0)),  # boxes side by side, which are left out as wholes
        ((200, 104, 136), "nn", {}, (72, 0)),
        ((200, 100, 136), "nt", {"cluster": "2x1"}, (72, 0)),  # what blocks share is loaded as a whole
        ((9, 200, 136), "nt", {"partition": "128x16x64", "exchanged": 1}, (72, 0)),
        ((20, 200, 136), "nt", {"partition": "128x48x64", "exchanged": 1}, (72, 24)),
    ],
)
def test_the_last_tile_of_an_operand_along_k_has_a_map_of_as_many_rows(
    size: tuple[int, int, int], layout: str, given: dict[str, int | str], rows: tuple[int, int]
) -> None:
    spec, operands = KERNELS["wgmma"], operands_of(*size, dtype="bfloat16", layout=layout)
    in_rows = [int(one == "n") for one in layout]
    if given.get("exchanged"):
        in_rows = [1 - in_rows[1], 1 - in_rows[0]]
    lies = {"partition": "128x128x64", "a_in_rows": in_rows[0], "b_in_rows": in_rows[1]}
    step = spec.steps(operands, spec.complete({**spec.for_types(operands), **lies, **given}))[0]
    found = step.launch.args[3:5]
    assert tuple(one.described.box[1] if isinstance(one, MapSlot) else 0 for one in found) == rows


def test_what_a_launch_is_given_is_a_value_that_nothing_changes() -> None:
    """Bound calls share it, in several threads."""
    spec, operands = KERNELS["wgmma"], operands_of(256, 256, 256, dtype="bfloat16")
    complete = spec.complete(spec.for_types(operands))
    one, again = (spec.steps(operands, complete)[0].launch.args for _ in range(2))
    assert {type(slot) for slot in one} == {Slot, MapSlot} and {*one} == {*again}
    for slot in one:
        name = dataclasses.fields(slot)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(slot, name, getattr(slot, name))


# ── what a step of a kernel reads ──


@given(
    a=st.sampled_from([64, 96, 128]), b=st.sampled_from([64, 100, 128]), rows=st.integers(1, 3),
    tile=st.tuples(st.sampled_from([64, 128]), st.sampled_from([32, 256])), cluster=st.sampled_from([1, 2]),
)  # fmt: skip
def test_rows_straddle_lines_where_they_are_no_multiples_of_128_bytes_apart(
    a: int, b: int, rows: int, tile: tuple[int, int], cluster: int
) -> None:
    of_a, of_b = Operand("a", rows, 8, a, "float16"), Operand("b", rows, 8, b, "float16")
    apart_a, apart_b = rows > 1 and a % 64 > 0, rows > 1 and b % 64 > 0
    bytes_a, bytes_b = tile[0], tile[1] / cluster
    every, block = bytes_a + bytes_b, Tile(*tile, 64)
    found = straddling(of_a, of_b, block, cluster)
    assert found == pytest.approx((bytes_a * apart_a + bytes_b * apart_b) / every)
    # What is cut besides does not straddle lines already.
    assert cut(of_b, block, cluster) == pytest.approx(0 if apart_b else bytes_b / every)


def test_a_grid_and_coordinates_end_where_they_do() -> None:
    assert limits.refuse_blocks(2**31 - 1) is None and limits.refuse_blocks(2**31) is not None
    for name, axis in (("a", "m"), ("b", "n")):
        for size, fits in ((999, True), (1000, False)):
            operands = operands_of(*((size, 1, 1) if name == "a" else (1, size, 1)))
            error = limits.refuse_sizes(operands, "simt", 1000)
            assert (error is None) == fits
            assert error is None or str(error).startswith(f"{axis} must be less than 1,000")
    assert limits.refuse_sizes(operands_of(1, 1, 2**31 - 1), "simt") is None
    assert limits.refuse_sizes(operands_of(1, 1, 2**31), "simt") is not None


RESULTS = [
    # elements, result, with an epilogue, which argument is refused
    ("float32", "float32", False, ""),
    ("float16", "float8_e5m2", True, ""),
    ("float64", "float8_e5m2", False, "result"),
    ("float64", "int8", False, "result"),
    ("float64", "float64", True, ""),
    ("float32", "int32", False, "result"),
    ("float16", "int64", True, "result"),
    ("int8", "int32", False, ""),
    ("int8", "float32", False, "result"),
    ("int8", "float32", True, ""),
    ("int8", "int8", True, ""),
    ("int8", "int32", True, "result"),
    ("int32", "int64", False, "result"),
    ("int32", "int32", False, ""),
    ("int32", "int32", True, "epilogue"),
    ("int64", "int64", False, ""),
]


@pytest.mark.parametrize(("element", "result", "changed", "refused"), RESULTS)
def test_results_are_those_that_sums_of_the_elements_become(
    element: str, result: str, changed: bool, refused: str
) -> None:
    plain = operands_of(
        8, 8, 8, dtype=element, result=result if element not in ("int8", "int32", "int64") else None
    )
    operands = plain._replace(c=replace(plain.c, dtype=result))
    if changed:
        operands = operands._replace(epilogue=replace(operands.epilogue, expression="relu(acc)"))
    found = limits.refuse_types(operands, {"element": element, "result": result})
    assert (found.argument if found else "") == refused


# ── complex numbers in their real form ──


FORMS: tuple[tuple[ComplexForm, bool], ...] = (("pairs", True), ("matrices", False))


def view(memory: npt.NDArray[np.float32], operand: Operand) -> npt.NDArray[np.float32]:
    """A matrix of real numbers in the memory of an operand."""
    strides = (operand.row_stride * 4, operand.column_stride * 4)
    return np.lib.stride_tricks.as_strided(memory, (operand.rows, operand.columns), strides)


def draw_complex(rows: int, columns: int, seed: int) -> npt.NDArray[np.complex64]:
    parts = np.random.default_rng(seed).integers(-4, 5, (2, rows, columns))
    return np.asarray(parts[0] + 1j * parts[1], np.complex64)


@given(m=st.integers(2, 5), n=st.integers(1, 5), k=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_complex_product_is_a_real_one_in_the_same_memory(m: int, n: int, k: int, seed: int) -> None:
    a, b = draw_complex(m, k, seed), draw_complex(k, n, seed + 1)
    operands = operands_of(m, n, k, dtype="complex64")
    c = np.zeros((m, n), np.complex64)
    of = {"a": a, "b": b, "c": c}
    for form, in_pairs in FORMS:
        real = real_form.in_real_form(operands, form)
        assert (real.a.dtype, real.b.dtype, real.c.dtype, real.in_pairs) == (*("float32",) * 3, in_pairs)
        assert real.sizes == (m, 2 * n, 2 * k) and (real.b.rows, real.b.columns) == (
            k if in_pairs else 2 * k,
            2 * n,
        )
        left = view(of[real.a.name].reshape(-1).view(np.float32), real.a)
        first, second = b.view(np.float32), (1j * b).view(np.float32)
        four = np.stack([first, second], axis=1).reshape(2 * k, 2 * n)
        if in_pairs:
            assert np.array_equal(view(b.reshape(-1).view(np.float32), real.b), first)
        view(c.reshape(-1).view(np.float32), real.c)[...] = left @ four
        assert np.array_equal(c, a @ b)
    assert real_form.laid_out(operands, "pairs") == () and real_form.laid_out(operands, "matrices") == ("b",)


def test_as_elements_operands_lie_as_they_do_and_the_result_is_pairs() -> None:
    """A row by a matrix is turned, so that each element of the result is a row of two numbers."""
    operands = operands_of(1, 5, 6, dtype="complex64", layout="tn")
    assert real_form.laid_out(operands, "elements") == () and real_form.is_complex(operands)
    real = real_form.in_real_form(operands, "elements")
    turned = operands.transposed()
    assert (real.a, real.b, real.in_pairs) == (turned.a, turned.b, True) and not real_form.is_complex(real)
    assert (real.c.rows, real.c.columns, real.c.row_stride, real.c.column_stride) == (5, 2, 2, 1)
    assert real.c.dtype == "float32"


@pytest.mark.parametrize(
    ("layout", "pairs", "fourfold"),
    [("nn", (), ("b",)), ("tn", ("a",), ("a", "b")), ("tt", ("a", "b"), ("a", "b")), ("nt", ("b",), ("b",))],
)
def test_what_lies_in_columns_is_laid_out_first(
    layout: str, pairs: tuple[str, ...], fourfold: tuple[str, ...]
) -> None:
    operands = operands_of(4, 5, 6, dtype="complex64", layout=layout)
    assert (real_form.laid_out(operands, "pairs"), real_form.laid_out(operands, "matrices")) == (
        pairs,
        fourfold,
    )


@pytest.mark.parametrize("size", [(1, 64, 128), (64, 1, 128), (3, 5, 40)])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_pairs_of_numbers_lie_side_by_side_in_copies_too(size: tuple[int, int, int], layout: str) -> None:
    """Every plan that is proposed has them so, those with more copies as well; another one is refused."""
    operands = operands_of(*size, dtype="complex64", layout=layout)
    found = [one for one in list_candidates(operands, target_of("h200"))[0] if one.spec.name == "simt"]
    assert found and all(one.settings["b_along_n"] and one.operands.b.column_stride == 1 for one in found)
    error = KERNELS["simt"].refuse(found[0].operands, {**found[0].settings, "b_along_n": 0})
    assert error is not None and error.argument == "b_along_n"


def test_a_product_is_turned_where_its_result_lies_in_columns() -> None:
    operands = operands_of(4, 5, 6, dtype="complex64")
    assert real_form.faced(operands) is operands
    turned = operands._replace(c=operands.c.transposed())
    for rows, columns, is_turned in ((4, 5, True), (1, 5, True), (5, 1, False), (1, 1, False)):
        lies = replace(turned.c, rows=rows, columns=columns, row_stride=1, column_stride=4)
        assert (real_form.faced(turned._replace(c=lies)).a.name == "b") == is_turned
    row = replace(operands.c, rows=1)  # a row is a column as well, of which there is less to lay out
    assert real_form.faced(operands._replace(c=row)).a.name == "b"
    assert real_form.faced(operands._replace(c=replace(row, columns=1))).a.name == "a"


def test_the_launch_that_lays_out_has_a_block_for_each_32_by_32_elements_and_sets_what_lies_behind_a_line() -> (
    None
):
    operands = operands_of(40, 50, 70, dtype="complex64", batch=3)
    source = operands.b
    for step in (source.stack[0], 0):
        given_ = operands._replace(b=replace(source, stack=(step,)))
        for rows, columns, stride, other, width, height, fourfold in (
            (140, 100, 104, 1, 52, 70, 1), (140, 100, 1, 144, 50, 72, 1), (70, 100, 104, 1, 52, 70, 0), (70, 100, 1, 72, 50, 72, 0),
        ):  # fmt: skip
            copy = Operand("copy_b", rows, columns, stride, "float32", other, (rows * columns,))
            made = real_form.expand_step(given_.b, copy, given_)
            counts = 3 if step else 1
            assert made.launch.grid == (len(range(0, height, 32)) * len(range(0, width, 32)) * counts, 1, 1)
            assert made.launch.block == (256, 1, 1) and made.code is not None
            assert dict(made.code.defines) == {"PART": "float32", "FOURFOLD": fourfold}
            numbers = [int.from_bytes(one.template, "little") for one in made.launch.args[2:]]
            assert numbers == [height, width, counts]


def test_the_parts_of_a_stack_are_twice_as_far_apart_as_its_elements() -> None:
    operands = operands_of(4, 5, 6, dtype="complex64", batch=3)
    real = real_form.in_real_form(operands, "pairs")
    assert [one.stack for one in operands[:3]] == [(24,), (30,), (20,)]
    assert [one.stack for one in real[:3]] == [(48,), (60,), (40,)]
    assert [one.row_stride for one in real[:3]] == [12, 10, 10]


def test_of_groups_b_alone_has_a_matrix_for_each() -> None:
    operands = operands_of(4, 5, 6, groups=3)
    assert [one.stack for one in operands[:3]] == [(), (30,), ()]
    assert (
        operands.stack == () and operands.stack_of(operands.b) == (3,) and operands.stack_of(operands.a) == ()
    )
    assert operands.offsets is not None and (operands.offsets.columns, operands.offsets.dtype) == (3, "int32")


@pytest.mark.parametrize(("dtype", "run"), [("bfloat16", 8), ("float32", 16), ("float64", 16)])
def test_four_results_are_stored_at_once_where_they_begin_at_multiples_of_their_bytes(
    dtype: str, run: int
) -> None:
    for alignment, pitch, step, rows in itertools.product((4, 8, 16), (30, 32), (62, 64), (1, 3)):
        operands = operands_of(rows, 28, 64, dtype="float32")
        c = Operand("c", rows, 28, pitch, dtype, stack=(step,), alignment=alignment)
        item = c.itemsize
        apart = [alignment, step * item, pitch * item if rows > 1 else 0]
        wide = add_step(operands._replace(c=c, stack=(2,)), 4).launch.args[3]
        assert wide == constant("I", not any(bytes_ % run for bytes_ in apart))


@pytest.mark.parametrize(
    ("text", "types", "fits"),
    [
        ("acc + p", {"p": "float16"}, True),
        ("acc + p + q", {"p": "float16", "q": "bfloat16"}, False),
        ("acc + p", {"p": "float32"}, False),
        ("keep(p, acc) + q", {"p": "float16", "q": "float16"}, True),
        ("keep(p, keep(q, acc) + 1)", {"p": "float16", "q": "float16"}, False),
        ("keep(p, acc)", {"p": "float32"}, False),
        ("row_sums(p, acc)", {"p": "float32"}, False),
    ],
)
def test_boxes_have_room_for_one_array_that_is_read_and_one_that_is_kept_of_16_bits(
    text: str, types: dict[str, str], fits: bool
) -> None:
    arrays = tuple(EpilogueArray(name, dtype, by_column="sums" not in text) for name, dtype in types.items())
    assert fits_boxes(Epilogue(text, arrays)) == fits


def test_parts_of_a_workspace_begin_at_multiples_of_256_bytes_one_behind_another() -> None:
    spec = replace(KERNELS["wgmma"], workspace=lambda *_: 20)
    operands = operands_of(30, 34, 38, dtype="bfloat16", layout="tn")
    read, copies = readable(spec, operands)
    found, size = _regions(spec, spec.complete(spec.for_types(read)), read)
    sizes = [20, *(copy_bytes(one, ()) for one in read[:2])]
    assert copies == ("a", "b") and list(found) == ["workspace", "copy_a", "copy_b"]
    begins = [*found.values(), size]
    assert begins == [0, *np.cumsum([ceil_div(one, 256) * 256 for one in sizes])]
