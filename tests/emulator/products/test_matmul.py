"""tw.matmul on the emulator: what goes in and out is as with numpy.matmul."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.clocks import times_as_long
from tilewise import interop
from tilewise.calls import Arrays, BoundProduct, Choice, find_overlap, prepare
from tilewise.describe import result_shapes
from tilewise.devices.emulated import EmulatedArray, open_emulator
from tilewise.errors import ArgumentError, DeviceError
from tilewise.host_arrays import overwrite
from tilewise.planner import plan
from tilewise.problem import Epilogue
from tilewise.reference import compare

Array = npt.NDArray[Any]
Ints = tuple[int, ...]

EMULATOR = open_emulator()
RANDOM = np.random.default_rng()
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = ("float32", "float64", "float16", "bfloat16")


def matmul(a: Any, b: Any, out: Any = None, **more: Any) -> Any:
    return tw.matmul(a, b, out, device="emulator", **more)


def floats(*shape: int, dtype: str = "float32") -> Array:
    return RANDOM.standard_normal(shape).astype(interop.numpy_dtype(dtype))


def assert_product(c: Any, a: Any, b: Any) -> None:
    """That ``c`` is A·B by NumPy's rules, each element as near as sums in the type of the sums allow."""
    left, right = np.asarray(a), np.asarray(b)
    wanted = np.matmul(left.astype(np.float64), right.astype(np.float64))
    assert np.shape(c) == wanted.shape
    left, right = left if left.ndim > 1 else left[None], right if right.ndim > 1 else right[:, None]
    got = np.reshape(c, (*result_shapes(left.shape, right.shape).result,))
    sums = "float64" if "float64" in (left.dtype.name, right.dtype.name) else "float32"
    found = compare(got, left, right, accumulate=sums)
    assert found, str(found)


def arrays_of(a: Any, b: Any, out: Any) -> Arrays:
    return Arrays(interop.view("a", a), interop.view("b", b), interop.view("out", out))


def made_for(a: Any, b: Any, out: Any, choice: Choice | None = None) -> BoundProduct:
    arrays = arrays_of(a, b, out)
    shapes = result_shapes(arrays.a.shape, arrays.b.shape)
    return prepare(arrays, shapes, EMULATOR, choice or Choice())


# ── any shapes, stacks, types and layouts ────────────────────────────────────────────────────────────────


@st.composite
def laid_out(draw: st.DrawFn, shape: Ints, dtype: str, *, writable: bool = False) -> tuple[Array, Array]:
    """A random array in any layout, and the memory that it is a view of."""
    order = draw(st.permutations(range(len(shape)))) if draw(st.booleans()) else range(len(shape))
    steps = [draw(st.sampled_from((1, 1, 1, 2, 3, -1, -2))) for _ in shape]
    whole = floats(*(abs(steps[axis]) * shape[axis] for axis in order), dtype=dtype)
    made = whole.transpose(np.argsort(order))[tuple(slice(None, None, step) for step in steps)]
    strides = list(made.strides)
    for axis, size in enumerate(shape):
        if size == 1 and draw(st.booleans()):
            strides[axis] = draw(st.sampled_from((0, -7, 12_345))) * made.itemsize
        elif not writable and size > 1 and draw(st.integers(0, 7)) == 0:
            strides[axis] = 0
    return np.lib.stride_tricks.as_strided(made, shape, strides), whole


SIZES = st.sampled_from((0, 1, 1, 2, 3, 16, 31, 33)) | st.integers(1, 40)


@st.composite
def shapes(draw: st.DrawFn, axes: int = 4, sizes: st.SearchStrategy[int] = SIZES) -> tuple[Ints, Ints]:
    """The shapes of two operands: stacks that broadcast, of up to so many axes, and vectors."""
    stack = draw(st.lists(st.sampled_from((2, 1, 2, 3, 2, 0)), max_size=axes))
    each = sizes if len(stack) < 2 else st.integers(0, 5)  # large products take kernels of their own
    m, n, k = draw(each), draw(each), draw(each)
    found: list[Ints] = []
    for matrix in ((m, k), (k, n)):
        if draw(st.integers(0, 5)) == 0:
            found.append((k,))
            continue
        own = stack[draw(st.integers(0, len(stack))) :]
        found.append((*(1 if draw(st.integers(0, 3)) == 0 else size for size in own), *matrix))
    return found[0], found[1]


def check_product(
    data: st.DataObject, dtype: str, operands: tuple[Ints, Ints], layouts: Callable[..., Any]
) -> None:
    left, right = operands
    (a, _), (b, _) = data.draw(layouts(left, dtype)), data.draw(layouts(right, dtype))
    c = matmul(a, b)
    shape = result_shapes(left, right).result
    assert type(c) is (np.ndarray if shape else interop.numpy_dtype(dtype).type)
    assert c.dtype == interop.numpy_dtype(dtype)
    assert_product(c, a, b)
    if data.draw(st.booleans()):
        out, whole = data.draw(layouts(shape, dtype, writable=True))
        whole[...], out[...] = 77, np.nan
        assert matmul(a, b, out) is out
        assert_product(out, a, b)
        out[...] = 77
        assert (whole == 77).all()  # nothing beside it was written


@settings(max_examples=40, deadline=None)
@given(data=st.data(), operands=shapes())
def test_any_shapes_and_layouts(data: st.DataObject, operands: tuple[Ints, Ints]) -> None:
    check_product(data, "float32", operands, laid_out)


@st.composite
def in_rows(draw: st.DrawFn, shape: Ints, dtype: str, *, writable: bool = False) -> tuple[Array, Array]:
    """A random array with contiguous rows, and its memory: layouts for which there are fewer kernels to compile."""
    whole = (
        floats(*shape[:-1], shape[-1] + draw(st.sampled_from((0, 0, 1, 8))), dtype=dtype)
        if shape
        else floats(1, dtype=dtype)
    )
    return whole[..., : shape[-1]] if shape else whole.reshape(()), whole


@pytest.mark.parametrize("dtype", TYPES[1:])
@settings(max_examples=8, deadline=None)
@given(data=st.data(), operands=shapes(2, st.sampled_from((0, 1, 2, 5))))
def test_any_types(dtype: str, data: st.DataObject, operands: tuple[Ints, Ints]) -> None:
    check_product(data, dtype, operands, in_rows)


@pytest.mark.parametrize("dtype", TYPES)
def test_transposes_of_every_type(dtype: str) -> None:
    a, b = floats(37, 9, dtype=dtype), floats(21, 37, dtype=dtype)
    assert_product(matmul(a.T, b.T), a.T, b.T)
    out = np.empty((9, 21), a.dtype, order="F")
    assert_product(matmul(a.T, b.T, out), a.T, b.T)


def test_vectors_give_scalars() -> None:
    a, b = floats(40, dtype="float64"), floats(40, dtype="float64")
    assert type(matmul(a, b)) is np.float64
    out = np.empty((), np.float64)
    assert matmul(a, b, out) is out and out == matmul(a, b)


def test_small_integers_are_exact() -> None:
    for dtype in TYPES:
        a, b = (
            RANDOM.integers(-3, 4, shape).astype(interop.numpy_dtype(dtype))
            for shape in ((3, 17, 11), (11, 9))
        )
        np.testing.assert_array_equal(matmul(a, b), np.matmul(a.astype(np.int64), b.astype(np.int64)))


# ── values that are not finite ───────────────────────────────────────────────────────────────────────────


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", TYPES)
def test_values_that_are_not_finite_go_where_numpys_go(dtype: str) -> None:
    a, b = floats(40, 37, dtype=dtype), floats(37, 35, dtype=dtype)
    a[3, 36], a[39, 0], b[5, 34], b[36, 2] = np.inf, np.nan, -np.inf, np.inf
    a[7, 36] = 0  # by which infinity becomes NaN
    with np.errstate(all="ignore"):
        wanted = np.matmul(a.astype(np.float64), b.astype(np.float64))
    special = ~np.isfinite(wanted)
    assert 0 < special.sum() < special.size
    for c in (matmul(a, b), matmul(EMULATOR.array(a), EMULATOR.array(b)).numpy()):
        np.testing.assert_array_equal(c[special].astype(np.float64), wanted[special])
        np.testing.assert_allclose(c[~special].astype(np.float64), wanted[~special], rtol=0, atol=0.5)
    row = matmul(a[3], b)  # the vector kernel
    np.testing.assert_array_equal(np.isfinite(row), ~special[3])


def test_sums_beyond_the_type_are_infinite() -> None:
    a = np.full((2, 40), 200, np.float16)
    np.testing.assert_array_equal(matmul(a, a.T), np.full((2, 2), np.inf, np.float16))
    np.testing.assert_array_equal(matmul(a, -a.T[:, :1]), np.full((2, 1), -np.inf, np.float16))
    out = np.empty((2, 2), np.float32)
    np.testing.assert_array_equal(matmul(a, a.T, out), np.full((2, 2), 40 * 200.0**2))  # which float32 holds


# ── what operands may be ─────────────────────────────────────────────────────────────────────────────────


def test_lists_and_sequences() -> None:
    a = [[1.0, 2.0], [3.0, 4.0]]
    for left, right in ((a, a), (a, np.array(a)), (np.array(a), ((1.0, 2.0), (3.0, 4.0)))):
        c = matmul(left, right)
        assert type(c) is np.ndarray and c.dtype == np.float64
        np.testing.assert_array_equal(c, [[7, 10], [15, 22]])
    assert matmul([1, 2, 3], np.ones(3, np.float32)) == 6
    assert matmul(range(3), [0.5, 0.5, 0.5]) == 1.5
    out = np.zeros((2, 2))
    assert matmul(a, a, out=out) is out and out[1, 1] == 22


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("int8", "float16"),
        ("int16", "float16"),
        ("int32", "float32"),
        ("uint8", "float32"),
        ("int64", "float32"),
        ("bool", "float64"),
        ("float16", "float32"),
        ("float32", "float64"),
        ("bfloat16", "float32"),
    ],
)
def test_types_are_mixed_as_by_numpy(a: str, b: str) -> None:
    x: Array = RANDOM.integers(0, 2 if a == "bool" else 9, (4, 6)).astype(interop.numpy_dtype(a))
    y = RANDOM.integers(0, 9, (6, 5)).astype(interop.numpy_dtype(b))
    wanted = np.result_type(x, y)
    for left, right in ((x, y), (y.T, x.T)):
        c = matmul(left, right)
        assert c.dtype == wanted
        np.testing.assert_array_equal(c, np.matmul(left.astype(np.int64), right.astype(np.int64)))
        out = np.empty(c.shape, np.float64)
        np.testing.assert_array_equal(matmul(left, right, out), c)


def test_both_short_types_together_are_multiplied_in_float32() -> None:
    a, b = floats(5, 6, dtype="bfloat16"), floats(6, 4, dtype="float16")
    assert matmul(a, b).dtype == np.float32
    assert_product(matmul(a, b), a, b)


def test_operands_in_the_other_byte_order() -> None:
    a, b = floats(5, 6), floats(6, 4)
    assert_product(matmul(a.astype(">f4"), b.astype(">f4")), a, b)
    assert matmul(a.astype(">f8"), b).dtype == np.float64


def test_operands_whose_elements_are_not_aligned() -> None:
    raw = np.zeros(4 * 30 + 1, np.uint8)
    a = raw[1:].view(np.float32).reshape(5, 6)
    a[...] = floats(5, 6)
    field = np.zeros((6, 4), [("x", "f4"), ("y", "u1")])["x"]
    field[...] = floats(6, 4)
    assert_product(matmul(a, field), a, field)


def test_read_only_operands(tmp_path: Path) -> None:
    a, b = floats(5, 6), floats(6, 4)
    a.tofile(tmp_path / "a")
    mapped = np.memmap(tmp_path / "a", np.float32, "r", shape=(5, 6))
    b.setflags(write=False)
    c = matmul(mapped, b)
    assert type(c) is np.ndarray
    assert_product(c, a, b)
    twos = np.broadcast_to(np.float32(2), (6, 3))
    assert_product(matmul(mapped[0], twos), a[0], twos)


# ── out ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float64", "float16", "complex64", "complex128", "longdouble", "bfloat16"])
def test_an_out_of_another_type_gets_numpys_cast(dtype: str) -> None:
    a, b = floats(3, 5, 6), floats(6, 4)
    kind = interop.numpy_dtype(dtype)
    for out in (np.empty((3, 5, 4), kind), np.empty((4, 5, 3), kind).T, EMULATOR.empty((3, 5, 4), kind)):
        assert matmul(a, b, out) is out
        got = out.numpy() if isinstance(out, EmulatedArray) else out
        np.testing.assert_array_equal(got, matmul(a, b).astype(kind))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_types_write_whole_sums(dtype: str) -> None:
    a, b = floats(9, 50, dtype=dtype), floats(50, 7, dtype=dtype)
    out = np.empty((9, 7), np.float32)
    assert_product(matmul(a, b, out), a, b)  # to float32's bound, which a sum rounded to 16 bits would break


OVERLAPPING: tuple[Callable[[Array], tuple[Array, Array, Array]], ...] = (
    lambda x: (x[0], x[1], x[0]),
    lambda x: (x[0], x[1], x[1]),
    lambda x: (x[0], x[0], x[0]),
    lambda x: (x[0], x[1], x[0].T),
    lambda x: (x[0], x[1], x[0, ::-1]),
    lambda x: (x[:2], x[1:], x[:2]),
    lambda x: (x[0, 0], x[0], x[0, 0]),
    lambda x: (x[0], x[1], x.reshape(-1)[8:6408].reshape(80, 80)),
)


def test_out_may_overlap_host_operands() -> None:
    memory = floats(3, 80, 80)  # more than a tile: what is written early is read late
    for place in OVERLAPPING:
        mine, numpys = memory.copy(), memory.copy()
        a, b, out = place(mine)
        assert matmul(a, b, out) is out
        left, right, theirs = place(numpys)
        np.matmul(left, right, out=theirs)
        np.testing.assert_allclose(mine, numpys, rtol=0, atol=1e-3)


def test_interleaved_arrays_do_not_overlap() -> None:
    whole = floats(16, 48)
    a, b, out = whole[:, :16], whole[:, 16:32], whole[:, 32:]
    made = made_for(a, b, out)
    assert find_overlap(made, arrays_of(a, b, out)) is None
    assert_product(matmul(a, b, out), a, b)
    shifted = whole[:, 31:47]
    assert find_overlap(made, arrays_of(a, b, shifted)) == ("out", "b")
    assert find_overlap(made, arrays_of(whole[:, 17:33], out, shifted)) == ("out", "a")


def test_a_reversed_operand_overlaps_what_lies_before_its_first_element() -> None:
    whole, b = floats(24, 16), floats(16, 16)
    made = made_for(whole[23:3:-1], b, np.empty((20, 16), np.float32))
    for first in (0, 2, 4):
        assert find_overlap(made, arrays_of(whole[23:3:-1], b, whole[first : first + 20])) == ("out", "a")
    beside = floats(44, 16)
    assert find_overlap(made, arrays_of(beside[43:23:-1], b, beside[4:24])) is None


def test_what_is_hard_to_tell_apart_overlaps(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_hard(*_given: object, **_more: object) -> bool:
        raise np.exceptions.TooHardError

    whole = floats(16, 48)
    a, b, out = whole[:, :16], whole[:, 16:32], whole[:, 32:]
    made = made_for(a, b, out)
    monkeypatch.setattr(np, "shares_memory", too_hard)
    assert find_overlap(made, arrays_of(a, b, out)) == ("out", "a")


# ── arrays of the device ─────────────────────────────────────────────────────────────────────────────────


def test_device_arrays_give_a_device_array() -> None:
    a, b = floats(20, 30), floats(30, 12)
    x, y = EMULATOR.array(a), EMULATOR.array(b)
    for left, right in ((x, y), (a, y), (x, b), (x.T.T, y), (EMULATOR.array(a.T.copy()).T, y)):
        c = tw.matmul(left, right)  # goes where an operand is
        assert isinstance(c, EmulatedArray)
        assert (c.device, c.shape, c.dtype) == (EMULATOR, (20, 12), np.dtype("float32"))
        assert_product(c.numpy(), a, b)
    whole = EMULATOR.array(np.full((22, 20), np.nan, np.float32))
    part = whole[1:-1, 3:15]
    assert tw.matmul(x, y, out=part) is part
    assert_product(part.numpy(), a, b)
    assert int(np.isnan(whole.numpy()).sum()) == 22 * 20 - 20 * 12
    assert_product(matmul(x[2:9, 4:], y[4:]).numpy(), a[2:9, 4:], b[4:])
    assert_product(matmul(x[::-2, ::3], y[:10]).numpy(), a[::-2, ::3], b[:10])
    vector = tw.matmul(x[0], y)
    assert isinstance(vector, EmulatedArray) and vector.shape == (12,)
    single = tw.matmul(x[0], x[1])
    assert isinstance(single, EmulatedArray) and single.shape == ()


def test_two_emulators() -> None:
    """They share their arrays: the first operand's multiplies, or the device that is asked for."""
    late = open_emulator("late")
    a, b = floats(20, 30), floats(30, 12)
    x, y = EMULATOR.array(a), late.array(b)
    for left, right, where in ((x, y, EMULATOR), (y.T, x.T, late), (a, y, late)):
        c = tw.matmul(left, right)
        assert isinstance(c, EmulatedArray) and c.device is where
    assert_product(matmul(x, y).numpy(), a, b)
    # What is converted stays where it was.
    integers = late.array(np.arange(30, dtype=np.int16))
    c = tw.matmul(integers, b)
    assert isinstance(c, EmulatedArray) and c.device is late
    np.testing.assert_allclose(c.numpy(), np.arange(30) @ b.astype(np.float64), rtol=0, atol=1e-2)


def test_an_overwritten_device_array_counts_as_initialised() -> None:
    out = EMULATOR.empty((4, 6), "float64")[:, 1:5]
    overwrite(interop.view("out", out), floats(4, 4))
    missing: Any = out._allocation.unset
    assert not missing.reshape(4, 6, 8)[:, 1:5].any() and missing.sum() == 4 * 2 * 8


def test_an_out_on_the_device_may_overlap_its_operands() -> None:
    both = EMULATOR.array(floats(80, 80))
    wanted = tw.matmul(both, both).numpy()
    assert tw.matmul(both, both, out=both) is both
    np.testing.assert_array_equal(both.numpy(), wanted)


def test_what_is_remembered_is_for_arrays_that_lie_alike() -> None:
    memory = floats(40, 48)
    a, b, out = memory[:8, :16], memory[8:24, :32], np.empty((8, 32), np.float32)
    first = made_for(a, b, out)
    assert made_for(memory[24:32, 16:32], memory[24:40, 16:48], np.empty((8, 32), np.float32)) is first
    assert made_for(memory[:8, 1:17], b, out) is not first  # less aligned
    assert made_for(a, memory[8:24, 2:34], out) is not first
    assert made_for(a[::-1], b, out) is not first
    assert made_for(a.astype(np.float64), b.astype(np.float64), np.empty((8, 32))) is not first
    assert made_for(a, b, out, Choice(plan=plan(8, 32, 16, gpu="emulator"))) is not first


# ── plan, copy, device ───────────────────────────────────────────────────────────────────────────────────


def test_a_plan_decides_how() -> None:
    a, b = floats(33, 20), floats(20, 17)
    for made in (
        plan(33, 17, 20, gpu="emulator"),
        tw.ladder["04_tiled"].plan(33, 17, 20, gpu="emulator"),
        plan(33, 17, 20, gpu="rtx-2060-super"),
    ):
        assert_product(matmul(a, b, plan=made), a, b)
        found = made_for(a, b, np.empty((33, 17), np.float32), Choice(plan=made))
        assert found.candidate.spec.name == made.kernel
    stacked = plan(33, 17, 20, batch=3, gpu="emulator")
    x, y = floats(3, 33, 20), floats(3, 20, 17)
    assert_product(matmul(x, y, plan=stacked), x, y)


def test_a_plan_may_widen_the_result() -> None:
    a, b = floats(9, 8, dtype="float16"), floats(8, 7, dtype="float16")
    c = matmul(a, b, plan=plan(9, 7, 8, dtype="float16", result="float32", gpu="emulator"))
    assert c.dtype == np.float32
    assert_product(c, a, b)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"m": 34}, "plan must be for m = 33, as the operands are, not 34"),
        ({"n": 16}, "plan must be for n = 17"),
        ({"k": 21}, "plan must be for k = 20"),
        ({"batch": 2}, "plan must be for batch = 1"),
        ({"dtype": "float64"}, "plan must be for a = 'float32'"),
    ],
)
def test_a_plan_for_another_problem(change: dict[str, Any], message: str) -> None:
    problem: dict[str, Any] = {"m": 33, "n": 17, "k": 20, **change}
    other = plan(**problem, gpu="emulator")
    with pytest.raises(ArgumentError) as caught:
        matmul(floats(33, 20), floats(20, 17), plan=other)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epilogue": Epilogue("acc * 2")}, "plan must be for epilogue = Epilogue(expression='acc'"),
        ({"accumulate": "float64"}, "plan must be for accumulate = 'float32'"),
    ],
)
def test_a_plan_for_more_than_is_done(change: dict[str, Any], message: str) -> None:
    made = plan(33, 17, 20, gpu="emulator")
    other = dataclasses.replace(made, problem=dataclasses.replace(made.problem, **change))
    with pytest.raises(ArgumentError) as caught:
        matmul(floats(33, 20), floats(20, 17), plan=other)
    assert str(caught.value).startswith(message)


def test_copies_are_refused_only_where_no_kernel_does_without() -> None:
    a, b = floats(20, 33).T, floats(17, 20).T
    assert_product(matmul(a, b, copy=False), a, b)
    rows = tw.ladder["04_tiled"].plan(33, 17, 20, gpu="emulator")  # reads rows alone
    assert_product(matmul(a, b, plan=rows), a, b)
    assert_product(matmul(a, b, plan=rows, copy=True), a, b)
    message = r"^a must have contiguous rows, one after another, for 04_tiled with copy=False.*leave copy out"
    with pytest.raises(ArgumentError, match=message):
        matmul(a, b, plan=rows, copy=False)
    assert_product(matmul(a.copy(), b.copy(), plan=rows, copy=False), a, b)


def test_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    a = floats(4, 4)
    assert_product(tw.matmul(a, a), a, a)
    monkeypatch.setenv("TILEWISE_DEVICE", "nowhere")
    with pytest.raises(ArgumentError, match="TILEWISE_DEVICE must be 'gpu', 'gpu:N' or 'emulator'"):
        tw.matmul(a, a)
    assert_product(matmul(a, a), a, a)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────


class Quantity(np.ndarray[Any, np.dtype[Any]]):
    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("nobody calls it")


READ_ONLY = np.zeros((2, 4), np.float32)
READ_ONLY.setflags(write=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b": 3.0}, "b must have at least one dimension, not 'a scalar'; use * for scalars"),
        ({"a": np.float32(1)}, "a must have at least one dimension"),
        ({"a": np.zeros((), "float32")}, "a must have at least one dimension"),
        ({"b": object()}, "b must be an array of NumPy, PyTorch, CuPy, JAX or tilewise"),
        ({"a": [[1.0], [1.0, 2.0]]}, "a must be convertible to an array"),
        (
            {"a": np.zeros((2, 3), "uint32"), "b": [[1], [2], [3]]},
            "a and b must be integers that int8, int32 or int64 hold, if both are integers, not 'uint32 and int64'",
        ),
        (
            {"a": np.zeros((2, 3), "clongdouble")},
            "a must have a type of complex64, complex128, if it is complex",
        ),
        ({"b": np.zeros((3, 4), "longdouble")}, "b must have a type of bfloat16, float16, float32, float64"),
        ({"b": np.zeros((3, 4), object)}, "b must have numbers as elements"),
        ({"a": np.zeros((2, 3), "M8[s]")}, "a must have numbers as elements"),
        ({"a": np.ma.MaskedArray(np.zeros((2, 3)))}, "a must have no mask, not 'a masked array'; fill"),
        ({"b": np.zeros((3, 4)).view(Quantity)}, "b must not have arithmetic of its own"),
        ({"b": np.zeros((4, 3), "float32")}, "b must have as many rows as a has columns (3)"),
        ({"b": np.zeros(4, "float32")}, "b must have as many rows as a has columns (3)"),
        ({"a": floats(2, 2, 3), "b": floats(3, 3, 4)}, "a and b must have stacks that broadcast"),
        ({"out": np.zeros((4, 2), "float32")}, "out must have shape (2, 4), not '(4, 2) of float32'"),
        ({"out": np.zeros((1, 2, 4), "float32")}, "out must have shape (2, 4), not '(1, 2, 4) of float32'"),
        (
            {"a": floats(3), "out": np.zeros((1, 4), "float32")},
            "out must have shape (4,), not '(1, 4) of float32'",
        ),
        (
            {"out": np.zeros((2, 4), "int32")},
            "out must have a type that float32 can be cast to without losing its kind, not 'int32'; give one of float32",
        ),
        ({"out": READ_ONLY}, "out must be writable, not 'a read-only array'; copy it first"),
        ({"out": np.broadcast_to(np.float32(0), (2, 4))}, "out must be writable"),
        (
            {"out": np.lib.stride_tricks.as_strided(np.zeros(4, "float32"), (2, 4), (0, 4))},
            "out must have elements that share no memory",
        ),
        ({"out": [[0.0] * 4] * 2}, "out must be an array of NumPy"),
        ({"out": np.zeros((2, 4), ">f4")}, "out must be in the machine's byte order"),
        ({"device": "gpu:x"}, "device must be 'gpu', 'gpu:N' or 'emulator', not 'gpu:x'"),
        ({"device": 7}, "device must be 'gpu', 'gpu:N', 'emulator', a device or None, not 'int'"),
        ({"plan": "fast"}, "plan must be a Plan, not 'str'; tw.plan(m, n, k) makes one"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    how = {"a": floats(2, 3), "b": floats(3, 4), "device": "emulator", **change}
    with pytest.raises(ArgumentError) as caught:
        tw.matmul(how.pop("a"), how.pop("b"), **how)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises((ArgumentError, DeviceError), match="gpu:77"):
        tw.matmul(floats(2, 3), floats(3, 4), device="gpu:77")


def test_types_that_a_kernel_has_not() -> None:
    """Where operands are converted to a type that the kernel has not, the one to blame is the user's own."""
    a, b = floats(5, 6), floats(6, 4)
    rung = tw.ladder["05_tiled_conflicted"]
    with pytest.raises(ArgumentError, match=r"^b must have elements of type float32 for 05_tiled.*'float64'"):
        rung(a, b.astype(np.float64), device="emulator")
    assert_product(rung(a.astype(np.float16), b, device="emulator"), a.astype(np.float16), b)


def test_an_out_that_a_kernel_cannot_write_as_it_lies() -> None:
    a, b = floats(5, 6), floats(6, 4)
    for out in (
        np.empty((4, 5), np.float32).T,
        np.empty((5, 8), np.float32)[:, ::2],
        np.empty((5, 4), np.float32)[::-1],
    ):
        assert tw.ladder["04_tiled"](a, b, out=out, device="emulator") is out
        assert_product(out, a, b)


def test_settings_that_no_kernel_has() -> None:
    with pytest.raises(ArgumentError, match=r"^tile must be one of"):
        tw.ladder["04_tiled"](floats(2, 3), floats(3, 4), device="emulator", tile=[16])


# ── the whole of a stack at once ─────────────────────────────────────────────────────────────────────────


def test_a_stack_of_small_matrices_is_one_launch() -> None:
    a, b = floats(1000, 16, 16), floats(1000, 16, 16)
    out = np.empty_like(a)
    bound = made_for(a, b, out).bound
    assert len(bound.copies) + len(bound.launches) * len(bound.shifts) == 1
    first = a[0], b[0], out[0]
    assert times_as_long(lambda: matmul(a, b, out), lambda: matmul(*first), 250) < 250  # not a thousand times
    assert_product(out, a, b)


def test_a_stack_of_more_axes_than_a_launch_takes_is_several_launches() -> None:
    a, b = floats(1, 3, 1, 16, 16), floats(2, 1, 2, 16, 16)
    out = np.empty((2, 3, 2, 16, 16), np.float32)
    assert len(made_for(a, b, out).bound.shifts) == 2
    assert_product(matmul(a, b, out), a, b)


def test_a_large_matrix_times_a_vector() -> None:
    a, b = floats(4096, 4096), floats(4096)
    out = np.empty(4096, np.float32)

    def ten_by_numpy() -> None:  # as long as one of ours, so that whoever disturbs the one disturbs the other
        for _ in range(10):
            np.matmul(a, b)

    assert times_as_long(lambda: matmul(a, b, out), ten_by_numpy, 1) < 1
    assert_product(out, a, b)
