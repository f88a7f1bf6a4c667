"""CuPy's arrays on a GPU: its current stream, its memory pool, and its own arithmetic beside ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.errors import ArgumentError
from tilewise.reference import compare

pytestmark = pytest.mark.gpu

cupy: Any = pytest.importorskip("cupy")


def drawn(*shape: int, dtype: str = "float32") -> tuple[Any, Any]:
    """Random numbers in host memory, and the same as a CuPy array."""
    host = np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)
    return host, cupy.asarray(host)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_products_are_cupy_arrays(dtype: str) -> None:
    (a, on_a), (b, on_b) = drawn(130, 70, dtype=dtype), drawn(70, 50, dtype=dtype)
    found = tw.matmul(on_a, on_b)
    assert type(found) is cupy.ndarray and found.dtype == dtype and found.device.id == on_a.device.id
    assert compare(found.get(), a, b).ok
    turned = tw.matmul(on_b.T, on_a.T)
    assert compare(turned.get(), b.T, a.T).ok


def test_views_and_results_in_place() -> None:
    (a, on_a), (b, on_b) = drawn(96, 200), drawn(200, 64)
    out = cupy.full((96, 200), np.nan, np.float32)
    assert tw.matmul(on_a[::2, 1::3], on_b[1::3], out=out[::2, 7:71]) is not None
    assert compare(out[::2, 7:71].get(), a[::2, 1::3], b[1::3]).ok
    out[::2, 7:71] = np.nan
    assert bool(cupy.isnan(out).all())


def test_a_bias_and_a_residual_of_cupys() -> None:
    (a, on_a), (b, on_b), (bias, on_bias), (rest, on_rest) = (
        drawn(64, 48),
        drawn(48, 80),
        drawn(80),
        drawn(64, 80),
    )
    found = tw.matmul(on_a, on_b, bias=on_bias, activation="relu", residual=on_rest).get()
    exact = np.maximum(a.astype("f8") @ b.astype("f8") + bias, 0) + rest
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-4)


def test_products_are_in_the_order_of_the_current_stream() -> None:
    """On a stream that is busy: what comes before is read, and what comes after reads the product."""
    size = 2048
    a, b = (cupy.random.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    expected = tw.matmul(a, b)
    cupy.cuda.Device().synchronize()
    for stream in (cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream.null, cupy.cuda.Stream.ptds):
        with stream:
            late = cupy.zeros_like(a)
            for _ in range(20):  # a while's work, so that what does not wait comes too early
                cupy.matmul(a, b)
            late[...] = a
            product = tw.matmul(late, b)
            late[...] = 0
            doubled = product * 2
        stream.synchronize()
        np.testing.assert_array_equal(doubled.get(), 2 * expected.get())


def test_results_come_from_cupys_pool_and_go_back_to_it() -> None:
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        _, a = drawn(512, 256)
        tw.matmul(a, a.T)  # compiles, and takes what it needs
        before = pool.used_bytes()
        found = tw.matmul(a, a.T)
        assert pool.used_bytes() - before == found.nbytes
        del found
        assert pool.used_bytes() == before
        held = pool.total_bytes()
        for _ in range(10):
            tw.matmul(a, a.T)
        assert pool.total_bytes() == held


def test_a_graph_that_cupy_captures_replays_products() -> None:
    (_, a), (_, b) = drawn(300, 200), drawn(200, 100)
    stream, out = cupy.cuda.Stream(non_blocking=True), cupy.empty((300, 100), np.float32)
    with stream:
        tw.matmul(a, b, out=out)
        stream.synchronize()
        stream.begin_capture()
        tw.matmul(a, b, out=out)
        graph = stream.end_capture()
        a[...] = cupy.random.standard_normal(a.shape, dtype=np.float32)
        graph.launch()
    stream.synchronize()
    assert compare(out.get(), a.get(), b.get()).ok


def test_mixed_libraries_are_refused_or_served() -> None:
    _, on_a = drawn(16, 16)
    with pytest.raises(ArgumentError, match=r"cupy.asnumpy|cupy.asarray"):
        tw.matmul(on_a, np.ones((16, 16), np.float32))
    torch: Any = pytest.importorskip("torch")
    both = tw.matmul(on_a, torch.ones(16, 16, device="cuda"))
    np.testing.assert_allclose(
        cupy.asarray(both).get(), on_a.get() @ np.ones((16, 16), np.float32), rtol=0, atol=1e-4
    )
