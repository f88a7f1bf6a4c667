"""Arrays that an epilogue reads and writes: an optimiser's step in the launch that makes the gradient."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.errors import ArgumentError
from tilewise.expression import EpilogueCall
from tilewise.kernels import KERNELS
from tilewise.matmul import multiply
from tilewise.problem import Epilogue, EpilogueArray
from tilewise.reference import compare

RANDOM = np.random.default_rng()
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HOPPER: dict[str, Any] = {"partition": "64x64x64"}
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("general", {}),
    ("mma", {"partition": "64x64x64", "split": 2}),
    ("wgmma", HOPPER),
    ("wgmma", {**HOPPER, "split": 2}),
    ("wgmma", {**HOPPER, "parts": 2}),
    ("wgmma", {**HOPPER, "exchanged": 1, "a_in_rows": 1, "b_in_rows": 0}),
)


def draw(*shape: int, dtype: Any = "float32") -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def step_of(arrays: dict[str, Any]) -> EpilogueCall:
    return tw.sgd(**arrays, rate=0.1, mu=0.75, decay=0.01, scale=0.5)


@given(
    m=st.integers(1, 90),
    n=st.integers(1, 12).map(lambda eights: 8 * eights),
    k=st.sampled_from([8, 200]),
    way=st.sampled_from(WAYS),
    copies=st.booleans(),
    columns=st.booleans(),
    order=st.sampled_from(["eager", "late", 3]),
)
@examples(2, 4)
def test_a_step_in_every_kernel(
    m: int,
    n: int,
    k: int,
    way: tuple[str, dict[str, Any]],
    copies: bool,
    columns: bool,
    order: Any,
) -> None:
    """Float32 arrays under 16-bit operands, in rows or columns; the result is a copy of the weight, or itself."""
    kernel, given = way
    a = draw(m, -(-k // 8) * 8, dtype=BFLOAT16)[:, :k]
    b = draw(n, k, dtype=BFLOAT16).T if given.get("exchanged") else draw(k, n, dtype=BFLOAT16)
    names = ("master", "momentum")
    arrays = {name: draw(n, m).T if columns else draw(m, n) for name in names}
    before = {name: array.copy() for name, array in arrays.items()}
    out = np.full((m, n), np.nan, BFLOAT16) if copies else np.ascontiguousarray(arrays["master"])
    if not copies:
        arrays["master"] = out
    choice = Choice(specs=(KERNELS[kernel],), settings=(*given.items(), ("result", out.dtype.name)))
    device = tw.device("emulator", order=order)
    multiply(a, b, out, device, choice, step_of(arrays))

    reference = step_of(before)
    compared = compare(out, a, b, epilogue=reference, terms=64)
    assert compared.ok, compared
    for name in reference.expression.kept:
        compared = compare(arrays[name], a, b, epilogue=reference, terms=64, kept=name)
        assert compared.ok, (name, str(compared))


@pytest.mark.parametrize(("optimiser", "betas"), [("sgd", ()), ("adam", (0.9, 0.999)), ("adam", (0.0, 0.5))])
def test_a_step_is_that_of_torch(optimiser: str, betas: Any) -> None:
    """Also where a beta is 0, and so the mean the last gradient."""
    torch: Any = pytest.importorskip("torch")
    x, dy, weight = draw(16, 12), draw(16, 20), draw(20, 12)
    parameter = torch.nn.Parameter(torch.tensor(weight))
    first, second = np.zeros((2, 20, 12), np.float32)
    if optimiser == "sgd":
        theirs = torch.optim.SGD([parameter], 0.1, 0.9, weight_decay=0.1)
    else:
        theirs = torch.optim.AdamW([parameter], 0.1, betas, weight_decay=0.1)
    for step in (1, 2, 3):
        if optimiser == "sgd":
            ours = tw.sgd(weight, rate=0.1, momentum=first, mu=0.9, decay=0.1)
        else:
            ours = tw.adam(weight, first=first, second=second, step=step, rate=0.1, betas=betas, decay=0.1)
        tw.matmul(dy.T, x, weight, epilogue=ours, device="emulator")
        parameter.grad = torch.tensor(dy.T @ x)
        theirs.step()
    assert np.allclose(weight, parameter.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_scaled_gradient_makes_the_step_of_the_gradient(optimiser: str) -> None:
    """Of a loss that was multiplied by 8, all that is kept is as of the loss itself."""
    x, dy, weight = draw(16, 12), draw(16, 20), draw(20, 12)
    found = []
    for times in (1, 8):
        state = np.stack([weight, np.zeros_like(weight), np.zeros_like(weight)])
        given: dict[str, Any] = {"rate": 0.1, "decay": 0.1, "scale": 1 / times}
        if optimiser == "sgd":
            step = tw.sgd(state[0], momentum=state[1], **given)
        else:
            step = tw.adam(state[0], first=state[1], second=state[2], step=1, **given)
        tw.matmul(times * dy.T, x, state[0], epilogue=step, device="emulator")
        found.append(state)
    assert np.allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


def test_a_stack_is_updated() -> None:
    """Momentum that is read under another name, the same array."""
    a, b, p = draw(2, 1, 3, 20, 40), draw(2, 2, 3, 40, 24), draw(2, 2, 3, 20, 24)
    before = p.copy()
    tw.matmul(a, b, epilogue=tw.epilogue("2 * keep(p, p + r * acc)", p=p, r=p), device="emulator")
    compared = compare(p, a, b, epilogue=tw.epilogue("p + p * acc", p=before))
    assert compared.ok, compared


@pytest.mark.few("h200")
@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h200"])
def test_the_checker_finds_nothing_wrong_with_a_step(gpu: str) -> None:
    state = draw(2, 72, 40)
    step = tw.sgd(state[0], rate=1, momentum=state[1])
    plan = tw.plan(72, 40, 100, dtype="bfloat16", gpu=gpu, epilogue=step)
    assert tw.check(plan, "late") == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "given", [{"partition": "128x256x64"}, {"partition": "128x128x64", "pingpong": 1}], ids=str
)
def test_a_step_spills_nothing(given: dict[str, object]) -> None:
    arrays = tuple(EpilogueArray(name, "float32") for name in ("master", "first", "second"))
    p = draw(2, 2)
    expression = tw.adam(p, first=p, second=p, step=1, rate=1, decay=1).expression
    numbers = tuple(name for name in expression.names if name not in ("master", "first", "second"))
    spec = KERNELS["wgmma"]
    code = spec.code(spec.complete(given), Epilogue(expression.text, arrays, numbers))
    resources = code.kernel("wgmma_gemm", "sm_90a").build().entries["wgmma_gemm"].resources
    assert resources is not None and resources.spill_store_bytes == resources.spill_load_bytes == 0


def test_what_cannot_be_updated_is_named() -> None:
    a, b, p = draw(4, 4), draw(4, 4), draw(4, 4)
    wide = draw(5, 4)
    for out, epilogue, message in (
        (
            p,
            tw.sgd(p, rate=1, momentum=p),
            r"^out must not overlap momentum|^master must not overlap momentum",
        ),
        (p, tw.sgd(draw(4, 4), rate=1, momentum=p), "^out must not overlap momentum"),
        (wide[1:], tw.sgd(wide[:4], rate=1), "^out must not overlap master"),
        (None, tw.sgd(p.astype("float64"), rate=1), "^master must have a type of"),
        (None, tw.sgd(a, rate=1), "^master must not overlap a"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tw.matmul(a, b, out, epilogue=epilogue, device="emulator")
    with pytest.raises(ArgumentError, match=r"^master must be an array"):
        tw.sgd(1.0, rate=1)
    for betas in ((1.0, 0.5), (0.5, 1.0), (-0.1, 0.5), (0.5, float("nan"))):
        with pytest.raises(ArgumentError, match=r"^betas must be at least 0 and less than 1"):
            tw.adam(p, first=p, second=p, step=1, rate=1, betas=betas)
    with pytest.raises(ArgumentError, match=r"^kept must be a name that the epilogue keeps"):
        compare(p, a, b, kept="p")
