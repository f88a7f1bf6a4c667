"""JAX's arrays as views, results handed over to it, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fake_xla import PlacedArray
from tilewise import interop
from tilewise.errors import ArgumentError
from tilewise.interop import HOST
from tilewise.interop.handover import HandedOverArray
from tilewise.interop.jax import jax_arrays
from tilewise.interop.jax.xla_buffers import XlaBuffer, XlaLibrary

jax: Any = pytest.importorskip("jax")

SOURCE = np.arange(6 * 4, dtype=np.float32).reshape(6, 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8"])
def test_jax_arrays(dtype: str) -> None:
    values = SOURCE.astype(interop.numpy_dtype(dtype))
    given_array = jax.numpy.asarray(values)
    view = interop.view("a", given_array)
    assert (view.library.name, view.space, view.dtype) == ("jax", HOST, dtype)
    assert view.ptr == given_array.unsafe_buffer_pointer() and view.read_only
    assert view.shape == values.shape and view.strides == (4, 1)
    buffer = view.library.empty(values.shape, dtype, view)
    address = interop.view_output("out", buffer).ptr
    buffer[...] = values
    result = view.library.finish(buffer, view)
    assert isinstance(result, jax.Array) and result.unsafe_buffer_pointer() == address
    np.testing.assert_array_equal(np.asarray(result), values)


def test_xla_is_told_of_each_platforms_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name under which the primitive asks for it, and by the interface whose frames it reads."""
    primitive = pytest.importorskip("tilewise.interop.jax.primitive")
    told: list[tuple[Any, ...]] = []
    monkeypatch.setattr(jax.ffi, "pycapsule", lambda handler: handler)
    monkeypatch.setattr(
        jax.ffi,
        "register_ffi_target",
        lambda name, handler, platform, api_version: told.append((name, platform, handler, api_version)),
    )
    primitive._register()
    assert told == [(primitive.TARGET, name, primitive.handlers[name], 1) for name in ("cpu", "CUDA")]


def test_jax_results_of_any_shape() -> None:
    view = interop.view("a", jax.numpy.ones((2, 3)))
    for shape in ((), (0, 3), (7,), (2, 3, 4)):
        assert view.library.finish(view.library.empty(shape, "float32", view), view).shape == shape
    with pytest.raises(ArgumentError, match=r"float64, which JAX has turned off; jax\.config\.update"):
        view.library.empty((2, 2), "float64", view)


def test_results_lie_where_the_operands_do() -> None:
    for device in jax.devices():
        view = interop.view("a", jax.device_put(jax.numpy.ones(3), device))
        assert view.library.finish(view.library.empty((3,), "float32", view), view).devices() == {device}
    assert len(jax.devices()) > 1


def test_jax_arrays_never_change() -> None:
    with pytest.raises(ArgumentError, match=r"out must be writable.*JAX arrays never change"):
        interop.view_output("out", jax.numpy.ones(3))


def test_jax_tracers_are_refused() -> None:
    def product(x: Any) -> Any:
        interop.view("a", x)
        return x.sum()

    for transform in (jax.jit, jax.grad, jax.vmap):
        with pytest.raises(ArgumentError, match=r"a must be a concrete array.*jax\.pure_callback"):
            transform(product)(jax.numpy.ones((2, 3)) if transform is jax.vmap else jax.numpy.ones(3))


def test_other_jax_arrays_that_have_no_view() -> None:
    donated = jax.numpy.ones(3) + 1
    donated.delete()
    with pytest.raises(ArgumentError, match="a must not have been deleted"):
        interop.view("a", donated)
    with pytest.raises(ArgumentError, match="a must have numbers as elements"):
        interop.view("a", jax.random.key(0))


@pytest.mark.parametrize("platform", ["gpu", "cuda"])
def test_a_jax_array_on_a_gpu_is_viewed_there_and_never_changes(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    adopted, array = object(), PlacedArray(platform, ordinal=3)
    viewed = interop.view("a", jax.numpy.ones(3))._replace(read_only=False)
    monkeypatch.setattr(jax_arrays, "adopt_gpu_array", lambda *given: {("a", array, 3): adopted}[given])
    monkeypatch.setattr(
        jax_arrays,
        "describe_gpu",
        lambda argument, held, library, owner: viewed._replace(owner=(held, owner)),
    )
    found = jax_arrays.JaxLibrary().view("a", array)
    held, owner = found.owner
    assert held is adopted and found.read_only and isinstance(owner, HandedOverArray)
    assert owner.source is array


def test_jax_arrays_elsewhere_are_refused_with_the_way_to_copy_them() -> None:
    library = jax_arrays.JaxLibrary()
    with pytest.raises(
        ArgumentError, match=r"^a must lie on the CPU or on an NVIDIA GPU, not 'tpu'"
    ) as refused:
        library.view("a", PlacedArray("tpu", ordinal=3))
    assert refused.value.fix == "jax.device_put(a, jax.devices('cpu')[0])"
    assert library.move("b", (2, 1)) == "jax.device_put(b, jax.devices('gpu')[1])"
    with pytest.raises(ArgumentError, match=r"^a must lie on one device, not 'on 2'; gather it first"):
        library.view("a", PlacedArray("gpu", "gpu", ordinal=3))


def test_memory_within_a_call_is_xlas_own() -> None:
    """On a GPU; and NumPy's on the host. What is made goes the way of what it is like."""
    asked: list[int] = []

    def allocate(nbytes: int) -> int:
        asked.append(nbytes)
        return 4096

    library = XlaLibrary()
    given = XlaBuffer.in_rows(64, (4, 5), "float16", space=(2, 1), stream=7, allocate=allocate)
    view = library.view("a", given)
    assert (view.ptr, view.shape, view.strides, view.dtype, view.space) == (
        64,
        (4, 5),
        (5, 1),
        "float16",
        (2, 1),
    )
    assert library.stream(view) == 7
    made = library.empty((3, 4, 5), "float32", view)
    assert asked == [3 * 4 * 5 * 4]
    assert (made.ptr, made.shape, made.strides, made.dtype) == (4096, (3, 4, 5), (20, 5, 1), "float32")
    assert (made.space, made.stream, made.allocate) == ((2, 1), 7, allocate)
    turned = made.transposed()
    assert (turned.ptr, turned.shape, turned.strides) == (4096, (3, 5, 4), (20, 1, 5))
    assert (turned.dtype, turned.space, turned.stream, turned.allocate) == ("float32", (2, 1), 7, allocate)
    here = library.view("a", XlaBuffer.in_rows(64, (4, 5), "float16", space=HOST))
    there = library.empty((2, 3), "bfloat16", here)
    assert isinstance(there, np.ndarray) and (there.shape, there.dtype.name) == ((2, 3), "bfloat16")
    assert library.stream(here) is None and asked == [240]
    assert library.move("b", HOST) == "jax.device_put(b, …)"
