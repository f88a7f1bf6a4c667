"""Grouped products on a GPU: right beside float64 and torch, waiting for nothing, captured in a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.interop import numpy_dtype
from tilewise.reference import compare, poisoned

pytestmark = pytest.mark.gpu

RANDOM = np.random.default_rng()


def draw(*shape: int, dtype: str) -> Any:
    return RANDOM.standard_normal(shape).astype(numpy_dtype(dtype))


def ends_of(groups: int, rows: int) -> Any:
    """Random ends, some of them equal, the last a few rows before the end."""
    return np.sort(RANDOM.integers(0, rows - 3, groups)).astype("int32")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    ("groups", "rows", "n", "k"),
    [(1, 200, 136, 264), (8, 4096, 1024, 512), (64, 300, 768, 1024), (5, 700, 301, 203), (200, 900, 64, 8)],
)
def test_every_group_is_right(groups: int, rows: int, n: int, k: int, columns: bool, dtype: str) -> None:
    """Host arrays and the device's own, in the layouts that the kernels read, with and without a copy."""
    a, ends = draw(rows, k, dtype=dtype), ends_of(groups, rows)
    b = draw(groups, n, k, dtype=dtype).swapaxes(1, 2) if columns else draw(groups, k, n, dtype=dtype)
    out = poisoned((rows, n), a.dtype)
    tw.grouped_matmul(a, b, ends, out, device="gpu")
    begin = 0
    for group, end in enumerate(ends):
        sums = "float64" if dtype == "float64" else "float32"
        compared = compare(out[begin:end], a[begin:end], b[group], accumulate=sums)
        assert compared.ok, (group, str(compared))
        begin = end
    assert np.isnan(out[begin:].astype(np.float64)).all()


@pytest.mark.parametrize("how", [{"axis": -1}, {"axis": -1, "block": 128}, {"block": (128, 128)}], ids=str)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize(
    ("groups", "rows", "n", "k"), [(8, 2000, 1024, 512), (64, 300, 776, 1024), (5, 700, 301, 203)]
)
def test_every_group_has_its_scales(
    groups: int, rows: int, n: int, k: int, dtype: str, how: dict[str, Any]
) -> None:
    """As the general kernel and the tensor cores have them; twice, the second time by the compiled call if there is one."""
    a = tw.quantize(draw(rows, k, dtype="float32"), dtype, axis=-1, block=128)
    b = tw.quantize(draw(groups, n, k, dtype="float32"), dtype, **how).mT
    ends, begin = ends_of(groups, rows), 0
    out = poisoned((rows, n), np.dtype("float32"))
    tw.grouped_matmul(a, b, ends, out, device="gpu")
    for group, end in enumerate(ends):
        left, right = (
            tw.Quantized(a.values[begin:end], a.scale[begin:end]),
            tw.Quantized(b.values[group], b.scale[group]),
        )
        compared = compare(out[begin:end], left, right, terms=16)
        assert compared.ok, (group, str(compared))
        begin = end
    assert np.isnan(out[begin:]).all()


def test_scales_of_groups_on_the_device(torch: Any) -> None:
    """The second call is the compiled one, with other scales in other memory."""
    for _ in range(2):
        x, w = torch.randn(300, 512, device="cuda"), torch.randn(4, 256, 512, device="cuda")
        a, b = tw.quantize(x, axis=-1, block=128), tw.quantize(w, block=(128, 128)).mT
        ends = torch.tensor([100, 100, 250, 300], dtype=torch.int32, device="cuda")
        made: Any = tw.grouped_matmul(a, b, ends)
        found = made.float()
        whole = expect(torch, a.dequantize(), b.mT.dequantize(), ends)
        assert (found - whole).abs().max() <= 2**-7 * whole.abs().max()


@pytest.mark.parametrize("ends", [[100, 50, -1, 2**31 - 1, 7], [-(2**31), 2**31 - 1, 0, 0, 0], [0] * 5])
def test_no_end_leads_outside_of_the_arrays(ends: list[int]) -> None:
    a, b = draw(100, 64, dtype="bfloat16"), draw(5, 64, 64, dtype="bfloat16")
    out, begin = poisoned((100, 64), a.dtype), 0
    tw.grouped_matmul(a, b, np.array(ends, "int32"), out, device="gpu")
    for group, end in enumerate(ends):
        end = max(begin, min(end, 100))
        assert compare(out[begin:end], a[begin:end], b[group]).ok
        begin = end
    assert np.isnan(out[begin:].astype(np.float32)).all()


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("torch has no GPU")
    return found


def expect(torch: Any, a: Any, weight: Any, ends: Any) -> Any:
    """The groups one by one, in float64; zeros after the last."""
    wanted = torch.zeros(a.shape[0], weight.shape[1], dtype=torch.float64, device=a.device)
    begin = 0
    for group, end in enumerate(ends.tolist()):
        wanted[begin:end] = a[begin:end].double() @ weight[group].double().T
        begin = end
    return wanted


def test_a_mixture_of_experts_agrees_with_torch(torch: Any) -> None:
    """Experts' weights as torch's layers keep them; beside torch's own function where it has one."""
    a = torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(16, 1536, 1024, device="cuda", dtype=torch.bfloat16)
    ends = torch.from_numpy(np.append(ends_of(15, 2048), np.int32(2048))).cuda()
    result = tw.grouped_matmul(a, weight.mT, ends)
    assert result.is_cuda and result.dtype == torch.bfloat16
    wanted = expect(torch, a, weight, ends)
    assert torch.allclose(result.double(), wanted, rtol=2**-7, atol=0.02)
    theirs = getattr(torch, "_grouped_mm", None)
    if theirs is not None:
        assert torch.allclose(
            result.double(), theirs(a, weight.mT, offs=ends).double(), rtol=2**-6, atol=0.04
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_graph_takes_the_ends_of_its_replay(torch: Any, dtype: str) -> None:
    """Nothing of the ends goes to the host: a captured call multiplies the groups that there are at its replay."""
    kind = getattr(torch, dtype)
    a = torch.randn(500, 256, device="cuda", dtype=kind)
    weight = torch.randn(6, 192, 256, device="cuda", dtype=kind)
    ends, out = (
        torch.zeros(6, device="cuda", dtype=torch.int32),
        torch.zeros(500, 192, device="cuda", dtype=kind),
    )
    tw.grouped_matmul(a, weight.mT, ends, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tw.grouped_matmul(a, weight.mT, ends, out)
    for _ in range(3):
        ends.copy_(torch.from_numpy(ends_of(6, 500)))
        out.zero_()
        graph.replay()
        assert torch.allclose(out.double(), expect(torch, a, weight, ends), rtol=2**-7, atol=0.02)


def test_ends_on_the_host_are_refused(torch: Any) -> None:
    a, b = torch.ones(4, 8, device="cuda"), torch.ones(2, 8, 8, device="cuda")
    with pytest.raises(
        tw.TilewiseError, match=r"must lie on one device, but a .* and offsets .* lies in host"
    ):
        tw.grouped_matmul(a, b, torch.tensor([1, 4], dtype=torch.int32))
