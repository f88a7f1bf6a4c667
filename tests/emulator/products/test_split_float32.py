"""tw.split_float32: matrices split once, multiplied to the same bits as those that are split at each product."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise import calls
from tilewise.calls import forget
from tilewise.devices import gpu
from tilewise.errors import ArgumentError
from tilewise.interop import CUDA
from tilewise.interop.jax import XlaBuffer
from tilewise.kernels import KERNELS
from tilewise.operands import Operands, ceil_div
from tilewise.planner import operands_of, target_of
from tilewise.problem import Problem
from tilewise.reference import compare

RANDOM = np.random.default_rng()
SPEC = KERNELS["exact32"]
Matrix = npt.NDArray[np.float32]


def lay(across: bool, apart: int, *shape: int) -> Matrix:
    """Normal numbers, a column of which is spread too wide for parts; in rows or columns, elements apart."""
    rows, columns = shape[::-1] if across else shape
    found = RANDOM.standard_normal((rows, columns * apart), np.float32)[:, ::apart]
    found = found.T if across else found
    found[:, -1] *= np.float32(2) ** RANDOM.integers(-40, 40, shape[0]).astype(np.float32)
    return found


def plan_of(m: int, n: int, k: int, batch: int = 1, dtype: str = "float32") -> tw.Plan:
    problem = Problem(m, n, k, batch, c=dtype, arithmetic="exact32")
    return SPEC.plan(Operands.of(problem), "h200", SPEC.complete({"partition": "64x64x64", "result": dtype}))


@pytest.mark.few(2)
@given(
    size=st.tuples(st.integers(1, 150), st.integers(1, 150), st.integers(64, 200)),
    across=st.tuples(st.booleans(), st.booleans()),
    apart=st.integers(1, 2),
    split=st.sampled_from(["a", "b", "ab"]),
    order=st.sampled_from(["eager", "late", 3]),
)
@examples(3, 12)
def test_the_bits_are_those_of_a_product_that_splits(
    size: tuple[int, int, int], across: tuple[bool, bool], apart: int, split: str, order: Any
) -> None:
    """Whichever operand brings its parts, however it lies; what they would lose is computed of the matrix itself."""
    m, n, k = size
    a, b = lay(across[0], apart, m, k), lay(across[1], apart, k, n)
    device, plan = tw.device("emulator", order=order), plan_of(m, n, k)
    x: Any = tw.split_float32(a, axis=-1) if "a" in split else a
    y: Any = tw.split_float32(b, axis=0) if "b" in split else b
    got = tw.matmul(x, y, plan=plan, device=device)
    assert np.array_equal(got, tw.matmul(a, b, plan=plan, device=device))
    assert compare(got, a, b, terms=64).ok


@pytest.mark.parametrize("order", [("a", "", "b", "ab"), ("ab", "b", "a", "")], ids=str)
def test_what_is_remembered_is_for_the_parts_that_an_operand_brings(order: tuple[str, ...]) -> None:
    """Of matrices that lie alike, with parts and without, one after another."""
    forget()
    device = tw.device("emulator")
    a, b = device.array(lay(False, 1, 40, 64)), device.array(lay(False, 1, 64, 24))
    for split in order:
        left: Any = tw.split_float32(a, axis=-1) if "a" in split else a
        right: Any = tw.split_float32(b, axis=-2) if "b" in split else b
        found: Any = tw.matmul(left, right, arithmetic="exact32")
        assert compare(found.numpy(), a.numpy(), b.numpy(), terms=64).ok
        assert [one.operands.split for one, _ in calls._remembered.values()][-1] == tuple(split)


@pytest.mark.parametrize(("axis", "lines", "length", "depth"), [(-1, 3, 4100, 4160), (-2, 35, 1100, 1152)])
def test_parts_have_22_bits_of_each_element_and_count_those_that_lose_some(
    axis: int, lines: int, length: int, depth: int
) -> None:
    """Of lines so long that each block has several pieces, or more than threads keep, and in lanes that have no line."""
    limits = np.float32(2) ** np.array([-12, -28], np.float32)
    picked = np.concatenate([limits, np.nextafter(limits, 0), [0, 0.7, 1 / 3000, 2**-28.5, 2**-33.7]])
    x = (RANDOM.choice(picked, (lines, length)) * RANDOM.choice([-1, 1], (lines, length))).astype(np.float32)
    x[:, -1] = 1  # the largest, which is scaled by 2^14
    made = tw.split_float32(
        tw.device("emulator", order="late").array(x if axis == -1 else x.T), axis=axis
    ).parts.numpy()
    scaled = x * np.float64(2**14)
    halves = made[: lines * depth * 4].view(np.float16).reshape(lines, 2, depth).astype(np.float64)
    found = halves[:, 0] + halves[:, 1] / 2048
    assert (np.abs(found[:, :length] - scaled) <= np.maximum(np.abs(scaled), 2**-14) * 2**-22).all()
    assert not found[:, length:].any()
    size = np.abs(scaled)
    counts = np.stack([size >= 4, (size < 2**-14) & (size > 0)]).sum(2).T
    begin = ceil_div(lines * depth * 4, 256) * 256
    assert (made[begin : begin + 8 * lines].view(np.uint32).reshape(lines, 2) == counts).all()


def test_stacks_epilogues_and_layers_take_it() -> None:
    """A stack by one weight, into memory of the caller; a layer's weight; our own arrays."""
    x, weight = lay(False, 1, 6, 100).reshape(2, 3, 100), lay(False, 1, 40, 100)
    bias, kept = RANDOM.standard_normal(40, np.float32), tw.split_float32(weight, axis=-1)
    assert kept.shape == (40, 100) and kept.parts is not None
    out = np.empty((2, 3, 40), np.float32)
    tw.linear(x, kept, bias, activation="relu", out=out)
    assert compare(out, x, weight.T, epilogue=tw.epilogue("relu(acc + bias)", bias=bias)).ok
    plan = plan_of(6, 40, 100)
    assert np.array_equal(tw.linear(x, kept, plan=plan), tw.linear(x, weight, plan=plan))
    rows = x.reshape(6, 100)
    split: Any = tw.split_float32(rows, axis=-1)
    assert np.array_equal(tw.linear(split, kept, plan=plan), tw.linear(rows, weight, plan=plan))
    stack = np.stack([weight.T.copy()] * 3)
    left: Any = tw.split_float32(weight, axis=1)
    both = tw.matmul(left, stack, plan=plan_of(40, 40, 100, 3))
    assert np.array_equal(both, tw.matmul(weight, stack, plan=plan_of(40, 40, 100, 3)))
    device = tw.device("emulator")
    own = tw.split_float32(device.array(weight), axis=-1)
    assert np.array_equal(tw.linear(device.array(x), own, plan=plan).numpy(), tw.linear(x, weight, plan=plan))


def test_torch_takes_it() -> None:
    torch: Any = pytest.importorskip("torch")
    x, weight = torch.randn(5, 200), torch.randn(30, 200)
    kept = tw.split_float32(weight, axis=-1)
    assert type(kept.parts) is torch.Tensor
    assert torch.equal(
        tw.linear(x, kept, plan=plan_of(5, 30, 200)), tw.linear(x, weight, plan=plan_of(5, 30, 200))
    )
    with pytest.raises(
        ArgumentError, match=r"split_float32 must be None where gradients.*give the matrix itself"
    ):
        tw.linear(x.requires_grad_(), kept)
    with pytest.raises(ArgumentError, match=r"x must not require a gradient"):
        tw.split_float32(weight.requires_grad_(), axis=-1)


def test_what_has_no_parts_is_multiplied_as_it_is() -> None:
    for k in (0, 1, 63):
        b = RANDOM.standard_normal((k, 5), np.float32)
        kept = tw.split_float32(b, axis=-2)
        a = RANDOM.standard_normal((4, k), np.float32)
        assert kept.parts is None and np.array_equal(tw.matmul(a, kept), tw.matmul(a, b))


def test_parts_are_made_on_the_matrixs_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def open_old(ordinal: int) -> Any:
        opened.append(ordinal)
        return SimpleNamespace(arch="sm_80", runs_on_gpu=True)

    monkeypatch.setattr(gpu, "open", open_old)
    matrix = XlaBuffer.in_rows(256, (4, 128), "float32", space=(CUDA, 3), stream=1)
    assert tw.split_float32(matrix, axis=-1).parts is None and opened == [3]


def test_the_planner_knows_what_need_not_be_split() -> None:
    """A few rows by a large weight are faster on tensor cores only then; of one that splits nothing is left to do."""
    operands = operands_of(64, 4096, 4096, layout="nt", arithmetic="exact32")
    target, spec = target_of("h200"), KERNELS["exact32"]
    works = [
        spec.work(operands._replace(split=split), spec.complete({})) for split in ((), ("b",), ("a", "b"))
    ]
    moved = [one.extra_bytes for one in works]
    assert moved[0] > 10 * moved[1] > moved[2] == 0
    assert [one.launches for one in works] == [3, 3, 2]
    steps = [len(spec.steps(operands._replace(split=split), spec.complete({}))) for split in ((), ("a", "b"))]
    assert steps == [3, 2] and target.arch == spec.arch


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: tw.split_float32(x[0], axis=-1), r"x must be a matrix, not 'shape \(80,\)'"),
        (lambda x: tw.split_float32(x.astype("float64"), axis=-1), "x must have the type float32, not 'float64'"),
        (lambda x: tw.split_float32(x, axis=2), "axis must be at most 1, not 2"),
        (lambda x: tw.split_float32(x, axis=x), "axis must be an integer"),
        (lambda x: tw.matmul(x, tw.split_float32(x.T, axis=-1)), "b must be split with axis=-2"),
        (lambda x: tw.matmul(tw.split_float32(x, axis=0), x.T), "a must be split with axis=-1"),
        (lambda x: tw.linear(x, tw.split_float32(x, axis=0)), "weight must be split with axis=-1"),
        (lambda x: tw.linear(tw.split_float32(x, axis=0), x), "x must be split with axis=-1"),
        (lambda x: tw.linear(x, tw.split_float32(x, axis=1), arithmetic="tf32"), 'arithmetic must be "exact32" or'),
        (lambda x: tw.matmul(x, tw.split_float32(x, axis=0)), "b must have as many rows as a has columns"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        call(np.ones((70, 80), np.float32))
