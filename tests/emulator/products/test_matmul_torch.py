"""tw.matmul of PyTorch's tensors in host memory: tensors come out, and what would lose a gradient is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.devices.emulated import EmulatedArray, open_emulator
from tilewise.errors import ArgumentError
from tilewise.matmul import DYNAMO_WARNING
from tilewise.reference import compare

torch: Any = pytest.importorskip("torch")

TYPES = ("float32", "float64", "float16", "bfloat16")
GENERATOR = np.random.default_rng()


def random(*shape: int, dtype: str = "float32") -> Any:
    return torch.from_numpy(GENERATOR.standard_normal(shape)).to(getattr(torch, dtype))


def assert_product(c: Any, a: Any, b: Any) -> None:
    """That the tensor ``c`` is A·B, of the operands' type."""
    assert type(c) is torch.Tensor and c.dtype == a.dtype == b.dtype and c.device.type == "cpu"
    # NumPy has no bfloat16 and torch does not hand it over: both widen it, and compare rounds once more then.
    left, right = (x.detach().double().numpy() for x in (a, b))
    wanted = left @ right
    assert tuple(c.shape) == wanted.shape
    if not wanted.shape:
        c, left, right, wanted = c.reshape(1, 1), left[None], right[:, None], wanted.reshape(1, 1)
    unit = torch.finfo(c.dtype).eps / 2
    if c.dtype in (torch.float32, torch.float64):
        found = compare(c.numpy(), left, right, accumulate=str(c.dtype).removeprefix("torch."))
        assert found, str(found)
        return
    sums = (left.shape[-1] + 1) * 2.0**-24 * (abs(left) @ abs(right))
    assert (abs(c.double().numpy() - wanted) <= unit * abs(wanted) * 1.01 + sums + 2.0**-24).all()


# ── what comes out ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_give_a_tensor(dtype: str) -> None:
    a, b = random(17, 9, dtype=dtype), random(9, 13, dtype=dtype)
    assert_product(tw.matmul(a, b), a, b)
    stack = random(3, 17, 9, dtype=dtype)
    assert_product(tw.matmul(stack, b), stack, b)


STRIDED: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "transposed": lambda x: (x.T, x),
    "both transposed": lambda x: (x[:12].T, x[:, :12].T),
    "sliced": lambda x: (x[::2, 1:19:3], x[2:8, ::4]),
    "expanded": lambda x: (x[0].expand(5, 24), x.T),
    "expanded stack": lambda x: (x.expand(3, 20, 24), x.T.expand(3, 24, 20)),
    "as_strided": lambda x: (x.as_strided((4, 6), (1, 2), 3), x.as_strided((6, 5), (24, 1))),
    "overlapping windows": lambda x: (x.as_strided((9, 8), (3, 1)), x.as_strided((8, 7), (1, 8))),
    "transposed stack": lambda x: (x.reshape(4, 5, 24).mT, x.reshape(4, 5, 24)),
    "a vector": lambda x: (x[3], x.T),
    "a column": lambda x: (x, x[1]),
    "two vectors": lambda x: (x[:, 3], x[:, 20]),
    "no columns": lambda x: (x[:, :0], x[:0, :7]),
    "no rows": lambda x: (x[:0], x.T),
}


@pytest.mark.parametrize("name", STRIDED)
def test_any_strides(name: str) -> None:
    x = random(20, 24)
    a, b = STRIDED[name](x)
    assert_product(tw.matmul(a, b), a, b)


def test_two_vectors_give_a_tensor_without_axes() -> None:
    a, b = random(30), random(30)
    c = tw.matmul(a, b)
    assert c.shape == () and type(c) is torch.Tensor
    assert abs(c.item() - (a.double() @ b.double()).item()) < 1e-4


def test_the_same_bits_every_time() -> None:
    a, b = random(70, 200), random(200, 50)
    first = tw.matmul(a, b)
    assert all(torch.equal(tw.matmul(a, b), first) for _ in range(5))


# ── gradients ────────────────────────────────────────────────────────────────────────────────────────────


def test_parameters() -> None:
    layer = torch.nn.Linear(9, 5, bias=False)
    x = random(4, 9)
    assert tw.matmul(x, layer.weight.T).requires_grad and tw.matmul(layer.weight, x.T).requires_grad
    with pytest.raises(
        ArgumentError, match=r"^out must be None where gradients are recorded.*torch\.no_grad"
    ):
        tw.matmul(x, layer.weight.T, out=torch.empty(4, 5))
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert_product(tw.matmul(x, layer.weight.T), x, layer.weight.T)
            c = tw.matmul(layer.weight, x.T)  # a Parameter itself
            assert type(c) is torch.Tensor and not c.requires_grad
    assert_product(tw.matmul(x, layer.weight.detach().T), x, layer.weight.detach().T)
    frozen = torch.nn.Parameter(random(9, 5), requires_grad=False)
    assert_product(tw.matmul(x, frozen), x, frozen)


def test_an_out_that_requires_a_gradient() -> None:
    a = random(4, 4)
    out = torch.zeros(4, 4, requires_grad=True)
    with pytest.raises(ArgumentError, match=r"^out must not require a gradient"):
        tw.matmul(a, a, out=out)
    assert not out.detach().any()


def test_inference_tensors() -> None:
    with torch.inference_mode():
        a = random(4, 6)
        c = tw.matmul(a, a.T)
    assert c.is_inference()
    assert_product(tw.matmul(a, a.T), a, a.T)


# ── out ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_out() -> None:
    a, b = random(3, 7, 9), random(9, 5)
    whole = torch.full((3, 5, 8), torch.nan)
    for out in (torch.empty(3, 7, 5), whole[:, :, 1:].mT, torch.empty(7, 3, 5).transpose(0, 1)):
        assert tw.matmul(a, b, out=out) is out
        assert_product(out, a, b)
    assert whole[:, :, 0].isnan().all()
    wide = torch.empty(3, 7, 5, dtype=torch.float64)
    assert tw.matmul(a, b, out=wide) is wide
    assert torch.equal(wide, tw.matmul(a, b).double())
    short, sums = a.bfloat16(), torch.empty(3, 7, 5)
    tw.matmul(short, b.bfloat16(), out=sums)
    np.testing.assert_allclose(sums, short.double() @ b.bfloat16().double(), rtol=0, atol=1e-4)


def test_out_may_overlap_an_operand() -> None:
    a, b = random(8, 8), random(8, 8)
    wanted = a.clone() @ b
    assert tw.matmul(a, b, out=a) is a
    torch.testing.assert_close(a, wanted)
    wanted = b.T.clone() @ a
    tw.matmul(b.T, a, out=b)
    torch.testing.assert_close(b, wanted)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (torch.zeros(0), "out must have shape (4, 5), not '(0,) of float32'"),  # which torch would resize
        (torch.zeros(5, 4), "out must have shape (4, 5), not '(5, 4) of float32'"),
        (torch.zeros(4, 5, dtype=torch.int32), "out must have a type that float32 can be cast to"),
        (torch.zeros(5).expand(4, 5), "out must have elements that share no memory"),
        (torch.zeros(4, 5, device="meta"), "out must have elements, not 'a meta tensor'"),
    ],
)
def test_wrong_outs(out: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        tw.matmul(random(4, 3), random(3, 5), out=out)
    assert str(caught.value).startswith(message)


# ── with other arrays ────────────────────────────────────────────────────────────────────────────────────


def test_mixed_with_other_host_arrays() -> None:
    """A framework's kind goes before ours, ours before NumPy's."""
    a, b = random(7, 9), random(9, 5)
    x, y = open_emulator().array(a.numpy()), open_emulator().array(b.numpy())
    for left, right in ((a, b.numpy()), (a.numpy(), b), (a, y), (x, b), (a, b.tolist())):
        c: Any = tw.matmul(left, right)
        assert type(c) is torch.Tensor
        torch.testing.assert_close(c.float(), a @ b)
    for out in (np.empty((7, 5), np.float32), open_emulator().empty((7, 5))):
        assert tw.matmul(a, b, out=out) is out
        written = out.numpy() if isinstance(out, EmulatedArray) else out
        np.testing.assert_allclose(written, a @ b, rtol=1e-4, atol=1e-4)
    out = torch.empty(7, 5)
    assert tw.matmul(x, b.numpy(), out=out) is out
    torch.testing.assert_close(out, a @ b)


def test_mixed_types() -> None:
    a = random(4, 6)
    assert tw.matmul(a, a.T.double()).dtype == torch.float64
    assert tw.matmul(a.bfloat16(), a.T.half()).dtype == torch.float32
    whole = torch.arange(24, dtype=torch.int16).reshape(6, 4)
    torch.testing.assert_close(tw.matmul(a, whole), a @ whole.float())
    product = tw.matmul(whole.T, whole)
    assert product.dtype == torch.int32 and (product == whole.T.int() @ whole.int()).all()
    with pytest.raises(ArgumentError, match="b must have a type that a floating-point type holds"):
        tw.matmul(a, whole.long())


# ── what stands for a tensor ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.to_sparse(), "a must be dense"),
        (lambda x: x.to("meta"), "a must have elements"),
        (lambda x: torch.complex(x, x).conj(), "a must be conjugated in memory"),
        (lambda x: x.bool(), "a and b must be integers that int8, int32 or int64 hold"),
    ],
)
def test_tensors_without_such_memory(change: Callable[[Any], Any], message: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of its beta features
        a = change(random(3, 4))
    b = torch.ones(4, 2, dtype=a.dtype if a.dtype == torch.bool else torch.float32)
    with pytest.raises(ArgumentError) as caught:
        tw.matmul(a, b)
    assert str(caught.value).startswith(message)


# ── torch.compile and threads ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_code_that_torch_compiles(backend: str) -> None:
    """What comes before and after is compiled; the product itself is called as it is."""
    calls = []

    def between(x: Any, y: Any) -> Any:
        product = tw.matmul(x * 2, y + 1)
        calls.append(type(product))
        return product.relu() - 1

    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # torch's own
        warnings.filterwarnings("ignore", DYNAMO_WARNING, UserWarning)  # which pytest took away
        compiled = torch.compile(between, backend=backend)
        into = torch.compile(lambda x, y, out: tw.matmul(x, y, out=out), backend=backend)
        with torch.no_grad():
            for m in (8, 8, 12):
                a, b = random(m, 6), random(6, 10)
                torch.testing.assert_close(compiled(a, b), ((a * 2) @ (b + 1)).relu() - 1)
            out = torch.empty(m, 10)
            into(a, b, out)
            torch.testing.assert_close(out, a @ b)
    assert len(calls) == 3 and set(calls) == {torch.Tensor}
    torch.compiler.reset()


def test_eight_threads_at_once() -> None:
    operands = [(random(m, 40), random(40, n)) for m, n in ((33, 20), (64, 7), (1, 50), (20, 33))]
    wanted = [tw.matmul(a, b) for a, b in operands]

    def work(seed: int) -> bool:
        order = np.random.default_rng(seed).integers(0, len(operands), 12)
        return all(torch.equal(tw.matmul(*operands[i]), wanted[i]) for i in order)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    for c, (a, b) in zip(wanted, operands, strict=True):
        assert_product(c, a, b)
