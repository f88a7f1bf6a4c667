"""JAX's arrays as views, results handed over to it, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewise import interop
from tilewise.errors import ArgumentError
from tilewise.interop import HOST

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


def test_jax_results_of_any_shape() -> None:
    view = interop.view("a", jax.numpy.ones((2, 3)))
    for shape in ((), (0, 3), (7,), (2, 3, 4)):
        assert view.library.finish(view.library.empty(shape, "float32", view), view).shape == shape
    with pytest.raises(ArgumentError, match=r"float64, which JAX has turned off; jax\.config\.update"):
        view.library.empty((2, 2), "float64", view)


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
