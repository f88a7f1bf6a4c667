"""The kernels that serve any layout, on the emulator: general, vector and arrange, beside float64.

Operands are views of buffers with every axis order, steps backwards, gaps and repeated axes; results are views
too, and what lies between their elements must stay as it was.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.matmul import multiply
from tilewise.planner import operands_of
from tilewise.reference import compare

Array = npt.NDArray[Any]
SOURCES = Path(tw.__file__).parent / "kernels" / "gemm"
RANDOM = np.random.default_rng()
DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
PLAIN = b"\0"  # the epilogue that does nothing: a struct without members
ROW_MAJOR = (0, 1, 2, 3)  # axes from the outermost in memory to the innermost: outer, inner, rows, columns
COLUMN_MAJOR = (0, 1, 3, 2)


class Layout(NamedTuple):
    """How a stack of matrices lies in memory."""

    order: tuple[int, ...] = ROW_MAJOR
    backwards: tuple[bool, ...] = (False,) * 4
    repeated: tuple[bool, ...] = (False,) * 4
    gap: int = 0  # elements after each run of the innermost axis
    skip: int = 0  # elements before the first


@st.composite
def layouts(draw: st.DrawFn, *, repeats: bool = True) -> Layout:
    flags = st.tuples(*[st.booleans()] * 4)
    none = (False,) * 4
    return Layout(
        tuple(draw(st.permutations(range(4)))),
        draw(flags),
        draw(st.one_of(st.just(none), flags)) if repeats else none,
        draw(st.integers(0, 3)),
        draw(st.integers(0, 3)),
    )


def filled(count: int, dtype: np.dtype[Any], fill: str) -> Array:
    """Random elements; or what stands for elements that nobody has written."""
    if dtype.kind == "u":
        return np.full(count, 255, dtype) if fill == "nan" else RANDOM.integers(1, 128, count).astype(dtype)
    return np.full(count, np.nan, dtype) if fill == "nan" else RANDOM.standard_normal(count).astype(dtype)


class Operand:
    """A view of a buffer on the device, and ``struct Strided`` of tilewise/strided.cuh for it."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], layout: Layout, fill: str) -> None:
        stored = [1 if layout.repeated[axis] else shape[axis] for axis in layout.order]
        padded = [*stored[:-1], stored[-1] + layout.gap]
        count = layout.skip + math.prod(padded)
        self.buffer = filled(count, dtype, fill)
        if fill == "special" and count:
            places = RANDOM.integers(0, count, 3)
            self.buffer[places] = np.array([np.inf, -np.inf, np.nan]).astype(dtype)
        view = self.buffer[layout.skip :].reshape(padded)[..., : stored[-1]]
        view = view.transpose(np.argsort(layout.order))
        view = view[tuple(slice(None, None, -1 if back else 1) for back in layout.backwards)]
        self.view = np.broadcast_to(view, shape) if any(layout.repeated) else view
        self.array = tw.device("emulator").array(self.buffer)

    def strided(self) -> bytes:
        """rows, columns, row stride, column stride, batch strides, address: 48 bytes."""
        item = self.view.itemsize
        outer, inner, rows, columns = (step // item for step in self.view.strides)
        offset = self.view.ctypes.data - self.buffer.ctypes.data if self.view.size else 0
        return struct.pack(
            "<IIqqqqQ", *self.view.shape[2:], rows, columns, outer, inner, self.array.ptr + offset
        )

    def transposed(self) -> bytes:
        """The same with rows and columns exchanged."""
        rows, columns, row, column, *rest = struct.unpack("<IIqqqqQ", self.strided())
        return struct.pack("<IIqqqqQ", columns, rows, column, row, *rest)

    def read(self) -> Array:
        """What the device has in the view now; fails if anything between its elements has changed."""
        inside = np.zeros(self.buffer.shape, bool)
        steps = [step // self.view.itemsize for step in self.view.strides]
        if not self.view.size:
            return self.view
        first = (self.view.ctypes.data - self.buffer.ctypes.data) // self.view.itemsize
        places = first + sum(
            np.arange(size).reshape([-1 if i == axis else 1 for i in range(4)]) * step
            for axis, (size, step) in enumerate(zip(self.view.shape, steps, strict=True))
        )
        inside[places] = True
        now = self.array.numpy()
        assert now[~inside].tobytes() == self.buffer[~inside].tobytes(), "written outside of the result"
        result: Array = now[places]
        return result


@functools.cache
def built(file: str, entry: str, arch: str, defines: tuple[tuple[str, object], ...]) -> tw.Kernel:
    text = (SOURCES / f"{file}.cu").read_text(encoding="utf-8")
    return tw.Kernel(text, entry, arch, dict(defines), filename=f"{file}.cu")


def even_stack(inner_count: int) -> bytes:
    """EvenStack: matrices one step from each to the next."""
    return struct.pack("<I", inner_count)


def launch(kernel: tw.Kernel, blocks: int, threads: int, args: list[Any], check: bool) -> None:
    if check:
        assert kernel.check(blocks, threads, args) == []
    else:
        kernel(blocks, threads, args, device="emulator")


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


# ── general ──────────────────────────────────────────────────────────────────────────────────────────────

Tile = tuple[int, int, int, int, int]  # BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M, THREAD_N
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "THREAD_M", "THREAD_N")


def general(
    operands: tuple[Operand, Operand, Operand],
    tile: Tile,
    defines: Mapping[str, object],
    *,
    arch: str = "sm_75",
    check: bool = False,
) -> Array:
    a, b, c = operands
    block_m, block_n, _, thread_m, thread_n = tile
    threads = block_m // thread_m * (block_n // thread_n)
    given = {**dict(zip(NAMES, tile, strict=True)), "THREADS": threads, **defines}
    kernel = built("general", "general", arch, tuple(given.items()))
    outer, inner, m, n = c.view.shape
    blocks = ceil_div(m, block_m) * ceil_div(n, block_n) * outer * inner
    if blocks:
        launch(
            kernel, blocks, threads, [a.strided(), b.strided(), c.strided(), even_stack(inner), PLAIN], check
        )
    return c.read()


def stack(
    sizes: tuple[int, int, int, int, int],
    types: tuple[str, str],
    layouts: tuple[Layout, Layout, Layout],
    fill: str = "random",
) -> tuple[Operand, Operand, Operand]:
    """Operands of C[outer, inner, m, n] = A·B."""
    outer, inner, m, n, k = sizes
    element, result = (DTYPES[name] for name in types)
    return (
        Operand((outer, inner, m, k), element, layouts[0], fill),
        Operand((outer, inner, k, n), element, layouts[1], fill),
        Operand((outer, inner, m, n), result, layouts[2], "nan"),
    )


SMALL = ((16, 16, 16, 1, 1), (32, 32, 16, 2, 2), (16, 16, 16, 2, 1))
WAYS = (  # element, result, A_ALONG_K, B_ALONG_N, tile
    ("float32", "float32", 1, 1, SMALL[0]),
    ("float16", "float16", 0, 1, SMALL[1]),
    ("bfloat16", "bfloat16", 1, 0, SMALL[2]),
    ("float64", "float64", 0, 0, SMALL[1]),
)


@pytest.mark.parametrize("way", WAYS, ids=str)
@examples(8, 15)
@given(
    sizes=st.tuples(*[st.integers(0, 3)] * 2, *[st.sampled_from((0, 1, 2, 15, 17, 33, 40))] * 3),
    a=layouts(),
    b=layouts(),
    c=layouts(repeats=False),
    fill=st.sampled_from(("random", "special")),
)
def test_general_in_any_layout(
    way: Any, sizes: tuple[int, int, int, int, int], a: Layout, b: Layout, c: Layout, fill: str
) -> None:
    element, result, along_k, along_n, tile = way
    operands = stack(sizes, (element, result), (a, b, c), fill)
    given = {"ELEMENT": element, "RESULT": result, "A_ALONG_K": along_k, "B_ALONG_N": along_n}
    product = general(operands, tile, given)
    sums = "float64" if element == "float64" else "float32"
    assert compare(product, operands[0].view, operands[1].view, accumulate=sums)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("tile", "along_k", "along_n"),
    [
        ((128, 128, 8, 8, 8), 0, 0),
        ((16, 128, 32, 2, 4), 1, 1),
    ],
)
def test_general_tiles(tile: Tile, along_k: int, along_n: int) -> None:
    """More than one block each way, and an edge within a tile, for the largest tile and for a low one."""
    sizes = (1, 2, tile[0] + 5, tile[1] + 3, 2 * tile[2] + 7)
    lying = (ROW_MAJOR if along_k else COLUMN_MAJOR, ROW_MAJOR if along_n else COLUMN_MAJOR)
    operands = stack(sizes, ("float32", "float32"), (Layout(lying[0]), Layout(lying[1]), Layout(gap=1)))
    product = general(operands, tile, {"A_ALONG_K": along_k, "B_ALONG_N": along_n}, arch="sm_80")
    assert compare(product, operands[0].view, operands[1].view)


def test_general_has_no_findings() -> None:
    element, result, along_k, along_n, tile = WAYS[2]
    backwards = Layout(COLUMN_MAJOR, (False, True, True, False), (True, False, False, False), 1)
    operands = stack((2, 2, 19, 35, 18), (element, result), (backwards, Layout(gap=2), Layout(COLUMN_MAJOR)))
    given = {"ELEMENT": element, "RESULT": result, "A_ALONG_K": along_k, "B_ALONG_N": along_n}
    assert compare(general(operands, tile, given, check=True), operands[0].view, operands[1].view)


def test_general_adds_in_the_order_of_k() -> None:
    """From first to last: 2²⁴ + 1 rounds to 2²⁴, so that only another order leaves something over."""
    a, b, c = stack((1, 1, 1, 1, 3), ("float32", "float32"), (Layout(),) * 3)
    a.buffer[:], b.buffer[:] = (2.0**24, 1, -(2.0**24)), 1
    a.array, b.array = (tw.device("emulator").array(one.buffer) for one in (a, b))
    assert general((a, b, c), SMALL[0], {}).item() == 0


# ── vector ───────────────────────────────────────────────────────────────────────────────────────────────


def vector(
    operands: tuple[Operand, Operand, Operand],
    entry: str,
    defines: Mapping[str, object],
    *,
    row: bool = False,
    check: bool = False,
) -> Array:
    """A·x, or x·B if ``row``: the matrix of the kernel is then B transposed."""
    a, b, c = operands
    warps = int(str(defines.get("WARPS", 8)))
    along_rows = 32 * int(str(defines.get("PER_LANE", 1)))
    per_block = along_rows if entry == "along_rows" else int(str(defines.get("ROWS", warps)))
    kernel = built("vector", entry, "sm_75", tuple({**defines, "THREADS": warps * 32}.items()))
    outer, inner, m, n = c.view.shape
    blocks = ceil_div(max(m, n) if m and n else 0, per_block) * outer * inner
    matrix, other = (b.transposed(), a.transposed()) if row else (a.strided(), b.strided())
    result = c.transposed() if row else c.strided()
    if blocks:
        launch(kernel, blocks, warps * 32, [matrix, other, result, even_stack(inner), PLAIN], check)
    return c.read()


VECTORS: tuple[tuple[str, dict[str, object]], ...] = (
    ("along_k", {"ELEMENT": "float32"}),
    ("along_k", {"ELEMENT": "float16", "WARPS": 4, "ROWS": 1, "RESULT": "float32"}),
    ("along_k", {"ELEMENT": "float64", "WARPS": 4, "ROWS": 2}),
    ("along_k", {"ELEMENT": "float16", "WARPS": 4, "ROWS": 12}),
    ("along_rows", {"ELEMENT": "float32"}),
    ("along_rows", {"ELEMENT": "bfloat16", "WARPS": 4, "PER_LANE": 2}),
)


@pytest.mark.parametrize("way", VECTORS, ids=str)
@examples(6, 15)
@given(
    sizes=st.tuples(*[st.integers(0, 3)] * 2, *[st.sampled_from((0, 1, 7, 31, 33, 64, 160, 263))] * 2),
    row=st.booleans(),
    a=st.one_of(st.just(Layout()), layouts()),
    b=st.one_of(st.just(Layout()), layouts()),
    c=layouts(repeats=False),
    fill=st.sampled_from(("random", "special")),
)
@example((1, 1, 7, 64), False, Layout(), Layout(skip=1), Layout(), "random")  # less aligned than the other
@example((1, 1, 7, 64), False, Layout(skip=1), Layout(), Layout(), "random")
def test_vector_in_any_layout(
    way: Any, sizes: tuple[int, int, int, int], row: bool, a: Layout, b: Layout, c: Layout, fill: str
) -> None:
    entry, given = way
    outer, inner, length, k = sizes
    shape = (outer, inner, 1, length, k) if row else (outer, inner, length, 1, k)
    element = str(given["ELEMENT"])
    operands = stack(shape, (element, str(given.get("RESULT", element))), (a, b, c), fill)
    product = vector(operands, entry, given, row=row)
    sums = "float64" if element == "float64" else "float32"
    assert compare(product, operands[0].view, operands[1].view, accumulate=sums, terms=8)


@pytest.mark.parametrize(
    ("element", "count", "reach"),
    [("int8", 2, 0), ("int8", 4, 4), ("int8", 8, 8), ("float16", 1, 0), ("float16", 2, 4), ("float16", 8, 16),
     ("float32", 2, 8), ("float64", 2, 16)],
)  # fmt: skip
def test_a_lane_reads_its_rows_of_a_column_at_once(element: str, count: int, reach: int) -> None:
    """In words at least and in 16 bytes at most; else, and where not all of them exist, one by one."""
    given = {"ELEMENT": element, "WARPS": 4, "THREADS": 128, "PER_LANE": count}
    given["RESULT"] = "int32" if element == "int8" else element
    ptx = built("vector", "along_rows", "sm_75", tuple(given.items())).ptx.partition(".entry along_rows")[2]
    loads = re.findall(r"ld\.global(?:\.nc)?(?:\.v(\d))?\.[a-z]+(\d+)", ptx.partition(".entry")[0])
    widths = {int(many or 1) * int(bits) // 8 for many, bits in loads}
    assert widths == {np.dtype(element).itemsize} | ({reach} if reach else set())


@pytest.mark.parametrize("way", VECTORS[2:5], ids=str)
def test_vector_has_no_findings_and_one_result(way: Any) -> None:
    entry, given = way
    element = str(given["ELEMENT"])
    types = (element, str(given.get("RESULT", element)))
    operands = stack((1, 2, 37, 1, 300), types, (Layout(), Layout(), Layout()))
    checked = vector(operands, entry, given, check=True)
    assert compare(checked, operands[0].view, operands[1].view, accumulate=element, terms=8)
    assert checked.tobytes() == vector(operands, entry, given).tobytes()


def shared_k(parts: int) -> Choice:
    """A vector's product with K in so many parts."""
    settings = ("along", "rows"), ("per_lane", 2), ("parts", parts)
    return Choice(specs=(KERNELS["vector"],), settings=settings)


@pytest.mark.parametrize("row", [True, False])
@pytest.mark.parametrize(
    ("dtype", "result"), [("float32", "float16"), ("float64", "float64"), ("bfloat16", "float32")]
)
def test_blocks_that_share_k_leave_sums_that_are_added_up(dtype: str, result: str, row: bool) -> None:
    """More parts than there are of K leave some without any; something happens to the whole sum."""
    sums = "float64" if dtype == "float64" else "float32"
    for k, parts in ((300, 7), (3, 5)):
        matrix = RANDOM.standard_normal((k, 77)).astype(DTYPES[dtype])
        line = RANDOM.standard_normal((1, k)).astype(DTYPES[dtype])
        a, b = (line, matrix) if row else (matrix.T, line.T)
        bias = RANDOM.standard_normal((1, 77) if row else (77, 1)).astype(sums)
        epilogue = tw.epilogue("relu(acc) + bias", bias=bias)
        found = np.full(77, np.nan, DTYPES[result]).reshape((1, 77) if row else (77, 1))
        multiply(a, b, found, tw.device("emulator", order="late"), shared_k(parts), epilogue)
        assert compare(found, a, b, accumulate=sums, terms=8 + parts, epilogue=epilogue).ok


@pytest.mark.parametrize("m", [1, 77])
def test_blocks_that_share_k_have_no_findings(m: int) -> None:
    """Nor has what adds up their sums, whole runs of them."""
    spec = KERNELS["vector"]
    settings = spec.complete({"along": "rows", "per_lane": 2, "parts": 3})
    operands = operands_of(m, 77 if m == 1 else 1, 300, layout="nn" if m == 1 else "tn")
    assert tw.check(spec.plan(operands, "h200", settings), "late") == []


def test_what_cannot_share_k_is_refused() -> None:
    of_integers, matrix = RANDOM.integers(0, 9, (1, 64)), RANDOM.standard_normal((64, 64))
    cases = ((of_integers, of_integers.reshape(64, 1) * np.ones((1, 64), int), None),
             (matrix[:1], np.stack([matrix, matrix]), None),
             (matrix.T, matrix[:, :1], np.empty((64, 2))[:, :1]))  # fmt: skip
    for a, b, out in cases:
        with pytest.raises(
            ArgumentError, match="parts must be 1 for stacks, for integers and for results not in one"
        ):
            multiply(a, b, out, tw.device("emulator"), shared_k(2))
    along_k = Choice(specs=(KERNELS["vector"],), settings=(("along", "k"), ("parts", 2)))
    with pytest.raises(ArgumentError, match="parts must be 1 along K, not 2"):
        multiply(matrix[:1], matrix, None, tw.device("emulator"), along_k)


# ── arrange ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@examples(8, 15)
@given(
    sizes=st.tuples(*[st.integers(0, 3)] * 2, *[st.sampled_from((0, 1, 2, 31, 33, 70))] * 2),
    layout=layouts(),
    zeros=st.integers(0, 9),
)
def test_arrange_makes_rows(size: int, sizes: tuple[int, int, int, int], layout: Layout, zeros: int) -> None:
    outer, inner, rows, columns = sizes
    pitch = columns + zeros
    kind = np.dtype(f"u{size}")
    source = Operand(sizes, kind, layout, "random")
    target = Operand((outer, inner, rows, pitch), kind, Layout(gap=zeros % 2, skip=1), "nan")
    kernel = built("arrange", "arrange", "sm_75", (("ELEMENT_BYTES", size), ("THREADS", 256)))
    blocks = ceil_div(rows, 32) * ceil_div(pitch, 32) * outer * inner
    if blocks:
        launch(kernel, blocks, 256, [source.strided(), target.strided(), pitch, inner], check=False)
    made = target.read()
    assert (made[..., :columns] == source.view).all()
    assert (made[..., columns:] == 0).all()


@pytest.mark.parametrize("size", [1, 2])
def test_where_arrange_turns_columns_into_rows_no_banks_conflict(size: int) -> None:
    """Lines of its tile in shared memory are an odd number of words long."""
    kind = np.dtype(f"u{size}")
    source = Operand((1, 1, 64, 64), kind, Layout(COLUMN_MAJOR), "random")
    target = Operand((1, 1, 64, 64), kind, Layout(), "nan")
    kernel = built("arrange", "arrange", "sm_75", (("ELEMENT_BYTES", size), ("THREADS", 256)))
    profile = kernel.profile(4, 256, [source.strided(), target.strided(), 64, 1])
    assert profile["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] == 0


@pytest.mark.parametrize("size", [1, 4])
@examples(8, 15)
@given(
    sizes=st.tuples(*[st.integers(0, 2)] * 2, *[st.sampled_from((1, 2, 15, 63, 64, 67, 130))] * 2),
    skip=st.integers(0, 5),
    gap=st.integers(0, 5),
)
def test_transpose_makes_rows_of_dense_columns(
    size: int, sizes: tuple[int, int, int, int], skip: int, gap: int
) -> None:
    """16 bytes at a time where columns begin at multiples of that, and elsewhere; rows go on as zeros to the pitch."""
    outer, inner, rows, columns = sizes
    pitch, tile = ceil_div(columns, 16 // size) * (16 // size), {1: 128, 4: 64}[size]
    kind = np.dtype(f"u{size}")
    source = Operand(sizes, kind, Layout(COLUMN_MAJOR, skip=skip, gap=gap), "random")
    target = Operand((outer, inner, rows, pitch), kind, Layout(), "nan")
    kernel = built("arrange", "transpose", "sm_75", (("ELEMENT_BYTES", size), ("THREADS", 256)))
    blocks = ceil_div(rows, tile) * ceil_div(pitch, tile) * outer * inner
    if blocks:
        launch(kernel, blocks, 256, [source.strided(), target.strided(), pitch, inner], check=False)
    made = target.read()
    assert (made[..., :columns] == source.view).all() and (made[..., columns:] == 0).all()


class CopyCounts(NamedTuple):
    """An operand whose lines ``align`` copies, and the copy."""

    source: Operand
    target: Operand

    @classmethod
    def of(cls, sizes: tuple[int, int, int, int], kind: np.dtype[Any], layout: Layout) -> CopyCounts:
        run = 16 // kind.itemsize
        wide = (*sizes[:3], max(ceil_div(sizes[3], run), 1) * run)
        return cls(Operand(sizes, kind, layout, "random"), Operand(wide, kind, Layout(), "nan"))

    @property
    def blocks(self) -> int:
        return ceil_div(self.target.view.nbytes, 16 * 256)

    def argument(self) -> bytes:
        outer, inner, rows, _ = self.source.view.shape
        numbers = struct.pack("<IIII", inner, outer * inner * rows, self.blocks, 0)
        return self.source.strided() + self.target.strided() + numbers

    def is_right(self) -> bool:
        made, columns = self.target.read(), self.source.view.shape[3]
        return bool((made[..., :columns] == self.source.view).all() and (made[..., columns:] == 0).all())


def align(pairs: list[CopyCounts], size: int, check: bool) -> bool:
    """Copy the lines of one or two operands by one launch; whether they are right then."""
    kernel = built("arrange", "align", "sm_75", (("ELEMENT_BYTES", size), ("THREADS", 256)))
    args = [one.argument() for one in pairs]
    blocks = sum(one.blocks for one in pairs)
    if blocks:
        launch(kernel, blocks, 256, [*args, bytes(len(args[0]))][:2], check)
    return all(one.is_right() for one in pairs)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@examples(8, 15)
@given(
    shapes=st.lists(
        st.tuples(*[st.integers(1, 3)] * 2, *[st.sampled_from((1, 2, 7, 8, 15, 33, 70))] * 2),
        min_size=1,
        max_size=2,
    ),
    layout=layouts(repeats=False),
)
@example(
    shapes=[(1, 1, 3, 16), (1, 1, 2, 33)], layout=Layout(skip=1)
)  # lines that end in a word with one of their runs
def test_lines_are_copied_wherever_they_begin(
    size: int, shapes: list[tuple[int, int, int, int]], layout: Layout
) -> None:
    """One operand or two, of their own sizes: rows of stacks in any order, with steps backwards, at odd elements."""
    rows = layout._replace(
        order=(*(axis for axis in layout.order if axis != 3), 3), backwards=(*layout.backwards[:3], False)
    )
    kind = np.dtype(f"u{size}")
    assert align([CopyCounts.of(sizes, kind, rows) for sizes in shapes], size, check=False)


def test_align_has_no_findings() -> None:
    """It reads whole words, but none that lie beside a line, where nothing has been written."""
    layouts_of_rows = (Layout(gap=0, skip=1), Layout(gap=3, skip=2))
    pairs = [CopyCounts.of((1, 2, 20, 37), np.dtype("u2"), layout) for layout in layouts_of_rows]
    for source, _ in pairs:
        array: Any = tw.device("emulator").empty(source.buffer.shape, source.buffer.dtype)
        for index in np.ndindex(source.view.shape[:3]):
            begin = (source.view[index].ctypes.data - source.buffer.ctypes.data) // 2
            array[begin : begin + 37].fill(source.view[index])
        source.array = array
    assert align(pairs, 2, check=True)


def test_arrange_has_no_findings() -> None:
    source = Operand((2, 1, 40, 37), np.dtype("u2"), Layout(COLUMN_MAJOR, gap=1), "random")
    target = Operand((2, 1, 40, 40), np.dtype("u2"), Layout(), "nan")
    kernel = built("arrange", "arrange", "sm_75", (("ELEMENT_BYTES", 2), ("THREADS", 256)))
    launch(kernel, 8, 256, [source.strided(), target.strided(), 40, 1], check=True)
    assert (target.read()[..., :37] == source.view).all()
