"""float32 on a GPU beside float64: on the SIMT units, and in parts on tensor cores; the last tiles in parts of K."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tilewise.calls import Choice
from tilewise.devices import gpu
from tilewise.kernels import KERNELS
from tilewise.matmul import multiply
from tilewise.operands import Operands
from tilewise.planner import list_candidates, operands_of, target_of_device
from tilewise.problem import Problem
from tilewise.reference import compare

pytestmark = pytest.mark.gpu

RANDOM = np.random.default_rng()
Matrix = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def device() -> Any:
    assert gpu.count(), gpu.why_not()
    return gpu.open(0)


def normal(*shape: int) -> Matrix:
    return RANDOM.standard_normal(shape, np.float32)


def need(device: Any, name: str) -> None:
    if not KERNELS[name].runs_on(device.arch):
        pytest.skip(f"{device.title} is {device.arch}")


@pytest.mark.parametrize(("name", "arithmetic"), [("simt", None), ("exact32", "exact32")])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_plans_are_right(device: Any, name: str, arithmetic: str | None, layout: str) -> None:
    """Four at random of all that the planner has, for sizes that end inside of tiles, one matrix or a stack."""
    need(device, name)
    m, n, k = (int(size) for size in RANDOM.integers((1, 1, 64), (500, 500, 900)))
    for stack in ((), (3,)):
        a = normal(*stack, m, k) if layout[0] == "n" else normal(*stack, k, m).swapaxes(-1, -2)
        b = normal(k, n) if layout[1] == "n" else normal(n, k).T
        operands = operands_of(m, n, k, layout=layout, arithmetic=arithmetic, batch=3 if stack else 1)
        found, _ = list_candidates(operands, target_of_device(device), specs=(KERNELS[name],))
        for which in RANDOM.integers(len(found), size=4):
            partition = (("partition", found[which].settings["partition"]),)
            choice = Choice(specs=(KERNELS[name],), settings=partition, arithmetic=arithmetic)
            bias = normal(n)
            epilogue = tw.epilogue("acc + bias", bias=bias)
            compared = compare(
                multiply(a, b, None, device, choice, epilogue), a, b, terms=64, epilogue=epilogue
            )
            assert compared.ok, (m, n, k, partition, str(compared))


@pytest.mark.parametrize(("name", "dtype"), [("simt", "float32"), ("mma", "float16"), ("mma", "float64")])
def test_the_last_tiles_may_be_in_parts(device: Any, name: str, dtype: str) -> None:
    """As many as the planner would have it, more than SMs hold at once before them, twice with the same bits."""
    need(device, name)
    m, n, k = (int(size) for size in RANDOM.integers((2000, 1400, 500), (2500, 1600, 900)))
    a, b, bias = normal(m, k).astype(dtype), normal(k, n).astype(dtype), normal(n)
    operands = operands_of(m, n, k, dtype=dtype)
    found, _ = list_candidates(operands, target_of_device(device), specs=(KERNELS[name],))
    tails = [one for one in found if one.settings["tail"] and not one.copies]
    for one in (tails[int(which)] for which in RANDOM.integers(len(tails), size=3)):
        names = ("partition", "tail", "parts" if name == "simt" else "split")
        chosen = tuple((each, one.settings[each]) for each in names)
        choice, epilogue = (
            Choice(specs=(KERNELS[name],), settings=chosen),
            tw.epilogue("acc + bias", bias=bias),
        )
        first, again = (multiply(a, b, None, device, choice, epilogue) for _ in range(2))
        compared = compare(first, a, b, terms=64, epilogue=epilogue)
        assert compared.ok and (first == again).all(), (m, n, k, chosen, str(compared))


def plan_in_parts(m: int, n: int, k: int) -> tw.Plan:
    spec = KERNELS["exact32"]
    return spec.plan(Operands.of(Problem(m, n, k, arithmetic="exact32")), "h200", spec.complete({}))


def test_what_tensor_cores_would_lose_is_computed_in_float32(device: Any) -> None:
    """There the bits are the emulator's; the regions of the others, 128×128, have none of it."""
    need(device, "exact32")
    a, b = normal(500, 700), normal(700, 300)
    a[5, 3], a[130, 7], b[9, 290] = -np.inf, np.nan, np.inf
    here, there = (
        tw.matmul(a, b, plan=plan_in_parts(500, 300, 700), device=one) for one in (device, "emulator")
    )
    assert compare(here, a, b).ok
    assert np.array_equal(here[:256], there[:256], equal_nan=True)
    assert np.array_equal(here[:, 256:], there[:, 256:], equal_nan=True)


def test_what_was_split_before_gives_the_same_bits(device: Any) -> None:
    """Of torch's tensors and of our own arrays, on a stream of its own and in a graph; the first launch is left out."""
    torch: Any = pytest.importorskip("torch")
    need(device, "exact32")
    x, weight = (torch.randn(*shape, device="cuda") for shape in ((300, 1000), (200, 1000)))
    weight[7, ::3] *= 1e-12  # which is left to float32
    plan = plan_in_parts(300, 200, 1000)
    want, out = tw.linear(x, weight, plan=plan), torch.empty(300, 200, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        kept = tw.split_float32(weight, axis=-1)
        tw.linear(x, kept, plan=plan, out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            tw.linear(x, kept, plan=plan, out=out)
        out.zero_()
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, want) and compare(out.cpu(), x.cpu(), weight.T.cpu(), terms=64).ok
    own = tw.matmul(
        device.array(x.cpu().numpy()),
        tw.split_float32(device.array(weight.T.cpu().numpy()), axis=0),
        plan=plan,
    )
    assert np.array_equal(own.numpy(), want.cpu().numpy())
    free = tw.linear(x, kept)  # as the planner has it
    assert compare(free.cpu(), x.cpu(), weight.T.cpu(), terms=64).ok


def spread(shape: tuple[int, int], binades: int) -> Matrix:
    """Normal numbers, each times a power of two at random."""
    return normal(*shape) * np.float32(2) ** RANDOM.integers(-binades, binades, shape).astype(np.float32)


def against(m: int, n: int, k: int) -> tuple[Matrix, Matrix]:
    """Columns of A grow as rows of B shrink: all products are alike, and A and B are spread over 60 binades."""
    scales = np.float32(2) ** RANDOM.integers(-30, 30, k).astype(np.float32)
    return normal(m, k) * scales, normal(k, n) / scales[:, None]


def sparse(m: int, n: int, k: int) -> tuple[Matrix, Matrix]:
    """As after a relu: half of either is zero."""
    return np.maximum(normal(m, k), 0), np.maximum(normal(k, n), 0)


def cancelling(m: int, n: int, k: int) -> tuple[Matrix, Matrix]:
    """The second half of K takes away almost all that the first adds up."""
    a, b = normal(m, k // 2), normal(k // 2, n)
    near = (one + np.float32(0.1) * normal(*one.shape) for one in (a, b))
    return np.concatenate([a, -next(near)], axis=1), np.concatenate([b, next(near)])


def one_large(m: int, n: int, k: int) -> tuple[Matrix, Matrix]:
    """The first product is 2¹⁷ times the others, all of which are positive: sums in order lose bits of every one."""
    a, b = (RANDOM.uniform(0.5, 1, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    a[:, 1:] *= 2.0**-9
    a[:, 0] *= 2.0**8
    return a, b


DATA = {
    "normal": lambda m, n, k: (normal(m, k), normal(k, n)),
    "uniform, 0 to 1": lambda m, n, k: (RANDOM.random((m, k), np.float32), RANDOM.random((k, n), np.float32)),
    "half of them zeros": sparse,
    "spread over 16 binades": lambda m, n, k: (spread((m, k), 8), spread((k, n), 8)),
    "spread over 40 binades": lambda m, n, k: (spread((m, k), 20), spread((k, n), 20)),
    "spread against each other": against,
    "the second half takes the first away": cancelling,
    "one large before small ones": one_large,
}


@pytest.mark.parametrize("kind", DATA)
def test_parts_on_tensor_cores_err_no_more_than_float32(device: Any, kind: str) -> None:
    """Than sums in order, as ours on the SIMT units are and PyTorch's, where K is not split; with -s it prints a table:
    the error's norm over the result's, and its median and its largest in units of 2⁻²⁴ of the sum of |a|·|b|."""
    torch: Any = pytest.importorskip("torch")
    need(device, "exact32")
    torch.backends.cuda.matmul.allow_tf32 = False
    m, n, k = 2048, 2048, 4096
    a, b = DATA[kind](m, n, k)
    on_gpu = [torch.from_numpy(one).cuda() for one in (a, b)]
    exact, sizes = (left.double() @ right.double() for left, right in (on_gpu, [one.abs() for one in on_gpu]))
    in_order = (("partition", "128x256x8"), ("parts", 1))
    results = {
        "PyTorch": torch.matmul(*on_gpu),
        "float32": multiply(
            on_gpu[0], on_gpu[1], None, None, Choice(specs=(KERNELS["simt"],), settings=in_order)
        ),
        "exact32": tw.matmul(*on_gpu, plan=plan_in_parts(m, n, k)),
    }
    norms, shares = {}, {}
    for name, found in results.items():
        errors = (found.double() - exact).abs()
        norms[name] = float(errors.norm() / exact.norm())
        shares[name] = [float(x) * 2**24 for x in ((errors / sizes).median(), (errors / sizes).max())]
    row = (f"{norms[name]:.1e} | {shares[name][0]:.2f} | {shares[name][1]:.1f}" for name in results)
    print(f"\n| {kind} | {' | '.join(row)} |")
    for other in ("PyTorch", "float32"):
        assert norms["exact32"] <= 1.02 * norms[other] and shares["exact32"][0] <= 1.02 * shares[other][0]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers_are_exact(device: Any, dtype: str) -> None:
    """Modulo 2ⁿ, as NumPy has them; a matrix, and a vector."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a, b = (RANDOM.integers(low, high, shape, dtype, endpoint=True) for shape in ((65, 200), (200, 77)))
    for left, right in ((a, b), (a, b[:, :1]), (a[:1], b)):
        assert compare(tw.matmul(left, right, device=device), left, right).ok
