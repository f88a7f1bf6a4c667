"""Batches given by pointers on a GPU: right beside float64, captured in graphs, on streams, and from one end of memory
to the other."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.interop import numpy_dtype
from tilewise.problem import Problem
from tilewise.reference import compare

pytestmark = pytest.mark.gpu

RANDOM = np.random.default_rng()
KINDS = ["bfloat16", "float16", "float32", "float64"]


def draw(*shape: int, dtype: str) -> Any:
    return RANDOM.standard_normal(shape).astype(numpy_dtype(dtype))


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("torch has no GPU")
    return found


def lay_out(
    torch: Any, count: int, rows: int, columns: int, kind: Any, columns_first: bool = False
) -> list[Any]:
    """Random matrices, in a random order among others, so that they lie evenly by chance alone."""
    shape = (columns, rows) if columns_first else (rows, columns)
    many = [torch.randn(shape, device="cuda").to(kind) for _ in range(2 * count)]
    some = random.sample(many, count)
    return [one.mT for one in some] if columns_first else some


def are_products(torch: Any, out: list[Any], a: list[Any], b: list[Any]) -> bool:
    def host(x: Any) -> Any:
        if x.dtype == torch.bfloat16:
            return x.float().cpu().numpy().astype(numpy_dtype("bfloat16"))
        return x.cpu().numpy()

    sums = "float64" if out[0].dtype == torch.float64 else "float32"
    return all(compare(*map(host, three), accumulate=sums).ok for three in zip(out, a, b, strict=True))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    ("count", "m", "n", "k"),
    [
        (3, 200, 136, 264),
        (17, 1024, 512, 128),
        (130, 64, 64, 64),
        (5, 301, 203, 77),
        (9, 1, 500, 300),
        (4, 16, 24, 0),
    ],
)
def test_matrices_that_lie_anywhere_are_multiplied(
    torch: Any, count: int, m: int, n: int, k: int, columns: bool, dtype: str
) -> None:
    """In a list of results that torch allocates, and in ones that lie anywhere themselves."""
    kind = getattr(torch, dtype)
    a, b = lay_out(torch, count, m, k, kind), lay_out(torch, count, k, n, kind, columns)
    out = [one.fill_(float("nan")) for one in lay_out(torch, count, m, n, kind)]
    assert tw.batched_matmul(a, b, out) is out
    assert are_products(torch, out, a, b)
    made = tw.batched_matmul(a, b)
    assert all(one.is_cuda and one.dtype == kind for one in made) and are_products(torch, made, a, b)
    assert are_products(torch, tw.batched_matmul(a, b[0]), a, b[:1] * count)
    assert are_products(torch, tw.batched_matmul(a[0], b), a[:1] * count, b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_matrices_may_lie_aligned_for_nothing(torch: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    a = [torch.randn(65 * 72 + 9, device="cuda").to(kind)[1 + i :][: 65 * 72].view(65, 72) for i in range(7)]
    b = lay_out(torch, 7, 72, 40, kind)
    assert are_products(torch, tw.batched_matmul(a, b), a, b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_matrices_may_lie_further_apart_than_an_inner_step_counts(torch: Any, dtype: str) -> None:
    """From one end of 40 GiB to the other, in no order: beyond 2^31 steps of 16 bytes the outer axis counts."""
    kind, size = getattr(torch, dtype), 40 << 30
    if torch.cuda.mem_get_info()[0] < size + (4 << 30):
        pytest.skip("the GPU has not as much memory free")
    memory = torch.empty(size, dtype=torch.uint8, device="cuda").view(kind)
    m, n, k = 192, 136, 200
    last = memory.numel() - max(m, k) * max(n, k)
    a: list[Any] = []
    b: list[Any] = []
    out: list[Any] = []
    for i, share in enumerate((0.97, 0.0, 0.41, 0.83, 0.5)):
        begin = int(share * last) // 64 * 64
        for found, rows, columns in ((a, m, k), (b, k, n), (out, m, n)):
            found.append(memory[begin : begin + rows * columns].view(rows, columns))
            begin += 1 << 20
        a[i].normal_(), b[i].normal_()
    tw.batched_matmul(a, b, out)
    assert are_products(torch, out, a, b)
    addresses = [one.data_ptr() for one in out]
    assert max(addresses) - min(addresses) > 2**31 * 16


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_graph_goes_to_the_same_matrices(torch: Any, dtype: str) -> None:
    """The tables are arguments of the captured launch: lists and results of the capture may be gone at its replay."""
    kind = getattr(torch, dtype)
    a, b = lay_out(torch, 20, 256, 128, kind), lay_out(torch, 20, 128, 192, kind)
    out = lay_out(torch, 20, 256, 192, kind)
    bias = torch.ones(192, device="cuda", dtype=torch.float32)
    tw.batched_matmul(a, b, out)
    tw.batched_matmul(a, b, bias=bias)  # kernels are loaded before a capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tw.batched_matmul(list(a), tuple(b), list(out))
        made = tw.batched_matmul(a, b, bias=bias)
    for _ in range(3):
        for one in (*a, *b):
            one.normal_()
        for one in out:
            one.fill_(float("nan"))
        tw.batched_matmul(b[::-1], [one.mT for one in b])  # another call between, with tables of its own
        graph.replay()
        assert are_products(torch, out, a, b)
        assert torch.allclose(made[7].double(), a[7].double() @ b[7].double() + 1, rtol=2**-6, atol=0.3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_products_are_added_up_where_they_are(torch: Any, dtype: str) -> None:
    """Lists in the epilogue: the results' own memory, and a row for each; in a graph they are added at each replay."""
    kind = getattr(torch, dtype)
    a, b, out = (lay_out(torch, 11, 192, 192, kind) for _ in range(3))
    rows = [torch.randn(192, device="cuda") for _ in range(11)]
    tw.batched_matmul(a, b, out, c=out, beta=0.5, bias=rows)
    for one in out:
        one.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tw.batched_matmul(a, b, out, c=out, beta=0.5, bias=rows)
    for _ in range(3):
        graph.replay()
    for one, x, y, row in zip(out, a, b, rows, strict=True):
        wanted = (x.double() @ y.double() + row.double()) * 1.75
        assert torch.allclose(one.double(), wanted, rtol=2**-6, atol=0.5)


def test_calls_on_streams_do_not_disturb_one_another(torch: Any) -> None:
    """Many calls with tables of their own, started at once: each launch has the table of its call."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    cases = [[lay_out(torch, 12, 128, 128, torch.bfloat16) for _ in range(2)] for _ in range(30)]
    torch.cuda.synchronize()
    results = []
    for i, (a, b) in enumerate(cases):
        with torch.cuda.stream(streams[i % 3]):
            results.append(tw.batched_matmul(a, b))
    torch.cuda.synchronize()
    assert all(are_products(torch, out, a, b) for out, (a, b) in zip(results, cases, strict=True))


def test_our_own_arrays_and_a_graph_of_ours() -> None:
    device = tw.device("gpu")
    a, b = ([device.array(draw(96, 96, dtype="float16")) for _ in range(9)] for _ in range(2))
    order = random.sample(range(9), 5)
    out = [device.empty((96, 96), "float16") for _ in range(5)]
    x, y = [a[i] for i in order], [b[i] for i in order]
    tw.batched_matmul(x, y, out)
    assert all(compare(*(one.numpy() for one in three)).ok for three in zip(out, x, y, strict=True))
    made = tw.batched_matmul(x, b[0])
    assert all(
        compare(one.numpy(), one_a.numpy(), b[0].numpy()).ok for one, one_a in zip(made, x, strict=True)
    )


def test_host_arrays_go_by_way_of_the_gpu() -> None:
    a, b = (
        [draw(40, 30, dtype="float32") for _ in range(4)],
        [draw(30, 20, dtype="float32") for _ in range(4)],
    )
    for out in (
        tw.batched_matmul(a, b, device="gpu"),
        tw.batched_matmul(a, b, [np.empty((40, 20), "f4") for _ in a], device="gpu"),
    ):
        assert all(compare(*three).ok for three in zip(out, a, b, strict=True))


def test_more_pairs_than_a_launch_takes(torch: Any) -> None:
    a, b = lay_out(torch, 1500, 24, 16, torch.float32), lay_out(torch, 1500, 16, 8, torch.float32)
    assert are_products(torch, tw.batched_matmul(a, b), a, b)


@pytest.mark.parametrize("kernel", ["wgmma", "mma"])
def test_tables_of_every_size_are_read(torch: Any, kernel: str) -> None:
    """The largest takes most of what a launch may have of arguments. Mma serves on Hopper too, where a plan says so."""
    for count in (16, 128, 129, 1024):
        a, b = lay_out(torch, count, 64, 64, torch.bfloat16), lay_out(torch, count, 64, 64, torch.bfloat16)
        plan = choose_plan(kernel, count)
        assert are_products(torch, tw.batched_matmul(a, b, plan=plan), a, b)


def choose_plan(kernel: str, count: int) -> tw.Plan:
    """The best plan of a kernel for so many bfloat16 products of 64×64×64."""
    from tilewise.kernels import KERNELS
    from tilewise.operands import Operands
    from tilewise.planner import choose, target_of_device

    problem = Problem(64, 64, 64, count, "bfloat16", "bfloat16", "bfloat16", pointers=True)
    device, operands = tw.device("gpu"), Operands.of(problem)
    spec, target = KERNELS[kernel], target_of_device(device)
    if not spec.runs_on(device.arch):
        pytest.skip(f"{kernel} does not run on {device.arch}")
    return choose(operands, target, specs=(spec,)).plan(operands, target)


def test_what_a_gpu_cannot_take_is_named(torch: Any) -> None:
    a = [torch.ones(8, 8, device="cuda") for _ in range(3)]
    with pytest.raises(tw.TilewiseError, match=r"a\[1\] must have the strides of a\[0\], \(8, 1\)"):
        tw.batched_matmul([a[0], a[1].T, a[2]], a)
    with pytest.raises(tw.TilewiseError, match="must lie on one device"):
        tw.batched_matmul([a[0], a[1].cpu(), a[2]], a)
    with pytest.raises(tw.TilewiseError, match=r"out\[1\] must not overlap out\[0\]"):
        tw.batched_matmul(a, a, [torch.empty_like(a[0])] * 3)
    with pytest.raises(tw.TilewiseError, match="out must not overlap a"):
        tw.batched_matmul(a, [one.clone() for one in a], a)
