"""tw.matmul on the emulator: what goes in and out is as with numpy.matmul."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tilewise.devices.emulated import EmulatedArray, open_emulator
from tilewise.errors import ArgumentError
from tilewise.multiply import choose
from tilewise.reference import compare, poisoned

Array = npt.NDArray[Any]

EMULATOR = open_emulator()
RANDOM = np.random.default_rng()
TYPES = ("float32", "float64", "float16")
SUMS = {"float32": "float32", "float64": "float64", "float16": "float32"}


def matmul(a: Any, b: Any, **more: Any) -> Any:
    return tw.matmul(a, b, device="emulator", **more)


def floats(*shape: int, dtype: str = "float32") -> Array:
    return RANDOM.standard_normal(shape).astype(dtype)


def view(shape: tuple[int, ...], dtype: str, data: st.DataObject) -> Array:
    """A random array of this shape whose axes lie in any order, backwards or with gaps."""
    order = data.draw(st.permutations(range(len(shape))), "order of axes")
    steps = [data.draw(st.sampled_from((1, 1, 2, 3, -1, -2)), "step") for _ in shape]
    sizes = [abs(steps[axis]) * shape[axis] for axis in order]
    whole = floats(*sizes, dtype=dtype).transpose(np.argsort(order))
    return whole[tuple(slice(None, None, step) for step in steps)]


SIZE = st.sampled_from((0, 1, 2, 3, 31, 32, 33)) | st.integers(1, 70)


@pytest.mark.parametrize("dtype", TYPES)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), m=SIZE, n=SIZE, k=SIZE)
def test_any_sizes_and_strides(dtype: str, data: st.DataObject, m: int, n: int, k: int) -> None:
    a, b = view((m, k), dtype, data), view((k, n), dtype, data)
    c = matmul(a, b)
    assert (type(c), c.shape, c.dtype) == (np.ndarray, (m, n), np.dtype(dtype))
    assert compare(c, a, b, accumulate=SUMS[dtype])
    out = view((m, n), dtype, data)
    out[...] = np.nan
    assert matmul(a, b, out=out) is out
    assert np.array_equal(out, c)


STACKS = st.sampled_from(
    (((), ()), ((2,), ()), ((), (3,)), ((2,), (2,)), ((2, 1), (3,)), ((1, 2), (2, 2)), ((0,), ()))
)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), stacks=STACKS, dtype=st.sampled_from(TYPES))
def test_stacks_and_single_dimensions_are_numpys(data: st.DataObject, stacks: Any, dtype: str) -> None:
    m, n, k = (data.draw(st.integers(1, 6)) for _ in range(3))
    left, right = (*stacks[0], m, k), (*stacks[1], k, n)
    if data.draw(st.booleans(), "one-dimensional a"):
        left = (k,)
    if data.draw(st.booleans(), "one-dimensional b"):
        right = (k,)
    a, b = view(left, dtype, data), view(right, dtype, data)
    wanted, got = np.matmul(a.astype(np.float64), b.astype(np.float64)), matmul(a, b)
    assert (np.shape(got), got.dtype) == (wanted.shape, np.dtype(dtype))
    assert type(got) is (np.ndarray if wanted.ndim else np.dtype(dtype).type)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=float(20 * k * np.finfo(dtype).eps))
    out = poisoned(wanted.shape, dtype)
    assert matmul(a, b, out=out) is out
    assert np.array_equal(out, got)


@pytest.mark.parametrize(
    ("m", "n", "k", "rung"),
    [(129, 130, 131, "08_register_tiled"), (9, 11, 22_000, "11_parallel_k"), (126, 127, 131, "04_tiled")],
)
def test_large_ones_go_to_other_rungs(m: int, n: int, k: int, rung: str) -> None:
    assert choose(m, n, k, "float32", EMULATOR)[0].name == rung
    a, b = floats(m, k), floats(k, n)
    assert compare(matmul(a, b), a, b, terms=64)


@pytest.mark.parametrize("dtype", TYPES)
def test_values_that_are_not_finite_go_where_numpys_go(dtype: str) -> None:
    a, b = floats(40, 37, dtype=dtype), floats(37, 35, dtype=dtype)
    a[3, 36], a[39, 0], b[5, 34], b[36, 2] = np.inf, np.nan, -np.inf, np.inf
    a[7, 36] = 0  # by which infinity becomes NaN
    a[9, 5] = np.finfo(dtype).max / 64
    with np.errstate(all="ignore"):
        wanted = a.astype(np.float64) @ b.astype(np.float64)
    for c in (matmul(a, b), matmul(EMULATOR.array(a), EMULATOR.array(b)).numpy()):
        assert compare(c, a, b, accumulate=SUMS[dtype])
        special = ~np.isfinite(wanted)
        np.testing.assert_array_equal(c[special].astype(np.float64), wanted[special])


def test_sums_beyond_the_type_are_infinite() -> None:
    a = np.full((2, 40), 200, np.float16)
    np.testing.assert_array_equal(matmul(a, a.T), np.full((2, 2), np.inf, np.float16))
    np.testing.assert_array_equal(matmul(a, -a.T[:, :1]), np.full((2, 1), -np.inf, np.float16))


# -- arrays of the device -----------------------------------------------------------------------------
def test_device_arrays_give_a_device_array() -> None:
    a, b = floats(20, 30), floats(30, 12)
    x, y = EMULATOR.array(a), EMULATOR.array(b)
    wanted = matmul(a, b)
    for left, right in ((x, y), (a, y), (x, b)):
        c = tw.matmul(left, right)  # goes where an operand is
        assert isinstance(c, EmulatedArray)
        assert (c.device, c.shape, c.dtype) == (EMULATOR, (20, 12), np.dtype("float32"))
        assert np.array_equal(c.numpy(), wanted)
    whole = EMULATOR.array(np.full((22, 20), np.nan, np.float32))
    part = whole[1:-1, 3:15]
    assert tw.matmul(x, y, out=part) is part
    assert np.array_equal(part.numpy(), wanted)
    assert int(np.isnan(whole.numpy()).sum()) == 22 * 20 - 20 * 12
    c = tw.matmul(x[2:9, 4:], y[4:])  # zero copy: rows of a larger matrix
    assert compare(c.numpy(), a[2:9, 4:], b[4:])
    late = tw.device("emulator", order="late")
    assert np.array_equal(tw.matmul(x, y, device=late).numpy(), wanted)


def test_host_arrays_may_overlap_the_output() -> None:
    a = floats(16, 16)
    wanted = matmul(a, a)
    both = a.copy()
    assert matmul(both, both, out=both) is both
    assert np.array_equal(both, wanted)


# -- what is refused ----------------------------------------------------------------------------------
ON_DEVICE = EMULATOR.array(floats(3, 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": [[1.0]]}, "a must be a NumPy array or a device array, not 'list'; use numpy.asarray"),
        ({"b": 3.0}, "b must be a NumPy array or a device array, not 'float'"),
        (
            {"a": np.zeros((2, 3), "int32")},
            "a must have elements of type float32, float64, float16, not 'int32'",
        ),
        ({"a": np.zeros((2, 3), ">f4")}, "a must have elements of type float32"),
        ({"b": np.zeros((3, 4), "float64")}, "b must have the type of a, float32, not 'float64'"),
        ({"a": np.float32(1)}, "a must be a NumPy array"),
        ({"a": np.zeros((), "float32")}, "a must have at least one dimension"),
        ({"b": np.zeros((4, 3), "float32")}, "b must have as many rows as a has columns (3)"),
        ({"b": np.zeros(4, "float32")}, "b must have as many rows as a has columns (3)"),
        ({"a": floats(2, 2, 3), "b": floats(3, 3, 4)}, "a and b must have stacks that broadcast"),
        ({"out": np.zeros((4, 2), "float32")}, "out must have shape (2, 4) and type float32"),
        ({"out": np.zeros((2, 4), "float16")}, "out must have shape (2, 4) and type float32"),
        ({"out": np.broadcast_to(np.float32(0), (2, 4))}, "out must be writable"),
        ({"out": [0]}, "out must be of the same kind as the operands, not 'list'"),
        ({"a": floats(3), "out": np.zeros((1, 4), "float32")}, "out must be a NumPy array of shape (4,)"),
        ({"a": floats(3), "out": np.broadcast_to(np.float32(0), (4,))}, "out must be writable"),
        ({"a": floats(3), "b": ON_DEVICE}, "a and b must have two dimensions on a device, not '1 and 2'"),
        (
            {"a": ON_DEVICE, "out": np.zeros((3, 4), "float32")},
            "out must be of the same kind as the operands",
        ),
        ({"a": ON_DEVICE, "b": ON_DEVICE, "out": ON_DEVICE}, "out must not overlap a"),
        ({"device": "gpu:x"}, "device must be 'gpu', 'gpu:N' or 'emulator'"),
        ({"device": 7}, "device must be 'gpu', 'gpu:N', 'emulator', a device or None, not 'int'"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    how = {"a": floats(2, 3), "b": floats(3, 4), "device": "emulator", **change}
    with pytest.raises(ArgumentError) as caught:
        tw.matmul(how.pop("a"), how.pop("b"), **how)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
