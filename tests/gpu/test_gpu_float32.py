"""float32 on a GPU beside float64: on the SIMT units, and in parts on tensor cores."""

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
        operands = operands_of(m, n, k, layout=layout, arithmetic=arithmetic, batch=len(stack) and 3 or 1)
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


def test_parts_on_tensor_cores_have_the_emulators_bits(device: Any) -> None:
    """And what tensor cores cannot keep is computed in float32: there too the bits are the same."""
    need(device, "exact32")
    a, b = normal(300, 700), normal(700, 200)
    a[5] *= np.float32(2) ** RANDOM.integers(-60, 60, 700).astype(np.float32)
    a[130, 7], b[9, 190] = np.nan, np.inf
    spec = KERNELS["exact32"]
    plan = spec.plan(Operands.of(Problem(300, 200, 700, arithmetic="exact32")), "h200", spec.complete({}))
    here, there = (tw.matmul(a, b, plan=plan, device=one) for one in (device, "emulator"))
    assert compare(here, a, b).ok
    assert here.tobytes() == there.tobytes()


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers_are_exact(device: Any, dtype: str) -> None:
    """Modulo 2ⁿ, as NumPy has them; a matrix, and a vector."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a, b = (RANDOM.integers(low, high, shape, dtype, endpoint=True) for shape in ((65, 200), (200, 77)))
    for left, right in ((a, b), (a, b[:, :1]), (a[:1], b)):
        assert compare(tw.matmul(left, right, device=device), left, right).ok
