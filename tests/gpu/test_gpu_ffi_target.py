"""The handler of products in compiled JAX on a GPU, called as XLA calls it, on a stream of its own. JAX is not needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewise
from tests.fake_xla import Buffer, FakeXla
from tilewise.interop import numpy_dtype
from tilewise.interop.jax.ffi_target import handlers
from tilewise.interop.jax.product_attributes import ProductAttributes

tw: Any = tilewise
pytestmark = pytest.mark.gpu

DRAW = np.random.default_rng(3)


def buffer(array: Any) -> Buffer:
    return array.ptr, array.shape, array.dtype.name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 48, 32), (512, 256, 128), (64, 64, 16384), (1, 512, 512)])
def test_products_as_they_lie(dtype: str, m: int, n: int, k: int) -> None:
    device = tw.device("gpu")
    stream = device.stream()
    drawn = DRAW.standard_normal((k, m)) / k**0.5, DRAW.standard_normal((n, k)), DRAW.standard_normal(n)
    a, b, bias = (one.astype(numpy_dtype(dtype)) for one in drawn)
    pre_of = a.astype("float64").T @ b.astype("float64").T + bias.astype("float64")
    operands = [device.array(one) for one in (a, b, bias)]
    results = [device.empty((m, n), numpy_dtype(dtype)) for _ in range(2)]
    workspaces: list[Any] = []

    def allocate(size: int) -> int:
        workspaces.append(device.empty((size,), "uint8"))
        device.synchronize()  # it is ours, in the order of another stream
        return int(workspaces[-1].ptr)

    xla = FakeXla(stream.driver_handle, allocate)
    attributes = ProductAttributes(
        ("bias",), transpose_a=True, transpose_b=True, activation="tanh", keep=True
    )
    given = [*map(buffer, operands)], [*map(buffer, results)]
    device.synchronize()
    assert xla.call(handlers["CUDA"], *given, attributes) is None
    stream.synchronize()
    assert [address for address, _ in xla.freed] == [one.ptr for one in workspaces]
    out, pre = (one.numpy().astype("float64") for one in results)
    # In float32 the order of sums decides, and in 16 bits the rounding of the result.
    most = {"float32": 2.0**-18, "float16": 2.0**-9, "bfloat16": 2.0**-6}[dtype]
    for found, wanted in ((pre, pre_of), (out, np.tanh(pre_of))):
        assert np.linalg.norm(found - wanted) < most * np.linalg.norm(wanted)


def test_what_xla_refuses_is_its_own_error() -> None:
    device = tw.device("gpu")
    a, b, out = (device.array(np.ones(shape, "float32")) for shape in ((64, 65536), (65536, 64), (64, 64)))
    stream = device.stream()
    xla = FakeXla(stream.driver_handle)  # which has no memory to give
    error = xla.call(handlers["CUDA"], [buffer(a), buffer(b)], [buffer(out)], ProductAttributes())
    assert error in (None, (8, "out of memory"))  # None where the plan needs no workspace
