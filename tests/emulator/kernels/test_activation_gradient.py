"""A gradient back through an activation and the sums of its columns: the launches for a GPU, on the emulator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples

torch: Any = pytest.importorskip("torch")
from tilewise.interop.torch import activation_gradients as module  # noqa: E402 -- it imports torch
from tilewise.kernels.activation_gradient import activation_gradient_steps, count_parts  # noqa: E402
from tilewise.operands import Operand  # noqa: E402

FUNCTIONS = {
    None: lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
KINDS = [(name, False) for name in FUNCTIONS] + [(name, True) for name in ("relu", "tanh", "sigmoid")]


@pytest.fixture
def on_emulator(monkeypatch: pytest.MonkeyPatch) -> Any:
    device: Any = tw.device("emulator", order=int(np.random.default_rng().integers(2**30)))

    def launch(shape: tuple[Any, ...], used: Any) -> None:
        held = [device.adopt(one.data_ptr(), one.nbytes, name, one) for name, one in used.items()]
        element = str(used["gradient"].dtype).removeprefix("torch.")
        module._bind(device, element, *shape)({name: one.data_ptr() for name, one in used.items()})
        del held

    monkeypatch.setattr(module, "_launch", launch)
    return device


def assert_passed_back(shape: tuple[int, ...], name: str | None, from_result: bool, dtype: Any) -> None:
    """Against autograd in float64: of each element no farther than some roundings, of sums as many as there are rows."""
    pre = (3 * torch.randn(shape)).to(dtype)
    gradient = torch.randn(shape).to(dtype)
    kept = FUNCTIONS[name](pre) if from_result else pre
    wide = (kept if from_result else pre).double().requires_grad_()
    if name is None:
        expected = gradient.double()
    elif from_result:  # of what was kept, rounded as it is
        slopes = {"relu": kept.double() > 0, "tanh": 1 - wide**2, "sigmoid": wide * (1 - wide)}
        expected = gradient.double() * slopes[name].detach()
    else:
        (expected,) = torch.autograd.grad(FUNCTIONS[name](wide), wide, gradient.double())
    made = gradient if name is None else torch.full_like(gradient, torch.nan)
    sums = torch.full(shape[-1:], torch.nan, dtype=dtype)
    module.pass_on_gpu(gradient, kept, made, sums, name, from_result)
    eps, least = torch.finfo(dtype).eps, torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    bound = eps * expected.abs() + 1e-6 * gradient.double().abs() + least
    assert ((made.double() - expected).abs() <= bound).all()
    flat = expected.flatten(0, -2)
    rounding = eps * flat.sum(0).abs() + 3e-6 * gradient.double().flatten(0, -2).abs().sum(0)
    assert ((sums.double() - flat.sum(0)).abs() <= rounding + least).all()


@pytest.mark.few("None-False", "relu-False", "gelu-False", "tanh-True")
@pytest.mark.parametrize(("name", "from_result"), KINDS)
def test_every_activation(on_emulator: Any, name: str | None, from_result: bool) -> None:
    assert_passed_back((70, 300), name, from_result, torch.bfloat16)


@examples(3, 12, suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(1, 150), columns=st.integers(1, 600), stack=st.sampled_from([(), (3,)]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
)  # fmt: skip
def test_any_size_and_type(
    on_emulator: Any, rows: int, columns: int, stack: tuple[int, ...], dtype: Any
) -> None:
    assert_passed_back((*stack, rows, columns), "silu", False, dtype)


def test_nan_and_infinities_go_where_torch_has_them_go(on_emulator: Any) -> None:
    values = torch.tensor([-torch.inf, -100.0, -1.0, 0.0, 1.0, 100.0, torch.inf, torch.nan])
    gradient, pre = (grid.contiguous() for grid in torch.meshgrid(values, values, indexing="ij"))
    for name in ("relu", "silu"):
        x = pre.clone().requires_grad_()
        (expected,) = torch.autograd.grad(FUNCTIONS[name](x), x, gradient)
        made = torch.full_like(gradient, torch.nan)
        module.pass_on_gpu(gradient, pre, made, None, name, False)
        ours, theirs = made.isfinite(), expected.isfinite()
        torch.testing.assert_close(made[ours & theirs], expected[ours & theirs], msg=name)
        assert torch.equal(made[:, 1:6].isnan(), expected[:, 1:6].isnan()), name


def test_many_rows_have_few_sums() -> None:
    assert [count_parts(rows) for rows in (1, 64, 65, 4096, 16384, 10**6)] == [1, 1, 2, 64, 256, 256]
    matrix = Operand("gradient", 10**6, 300, 300, "bfloat16")
    (step,) = activation_gradient_steps(matrix, matrix, matrix, None, "gelu", False)
    assert step.launch.grid == (512, 1, 1)


def test_its_launches_go_to_torchs_current_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Any, ...]] = []
    library = SimpleNamespace(stream=lambda _like: 77)
    monkeypatch.setattr(
        module, "view", lambda _name, _one: SimpleNamespace(space=(2, 3), dtype="float32", library=library)
    )
    monkeypatch.setattr("tilewise.devices.gpu.open", lambda ordinal: f"gpu:{ordinal}")
    monkeypatch.setattr(module, "_bind", lambda device, *_: lambda *given: started.append((device, *given)))
    gradient = torch.ones(4, 8)
    module.pass_on_gpu(gradient, gradient, gradient, None, None, False)
    addresses = dict.fromkeys(("gradient", "kept", "made"), gradient.data_ptr())
    assert started == [("gpu:3", addresses, 77)]


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_a_gradient_that_passes_unchanged_is_not_copied(
    monkeypatch: pytest.MonkeyPatch, activation: str | None
) -> None:
    """It is the caller's, so nothing may be written into it: what an activation makes of it lies elsewhere."""
    started: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(module, "_WORTH", 0)
    monkeypatch.setattr(module, "pass_on_gpu", lambda *given: started.append(given))
    gradient = torch.ones(4, 8)
    kept = None if activation is None else torch.ones(4, 8)
    with torch.no_grad():
        passed = module.pass_back(gradient, kept, activation, False, True)
    assert passed is not None and (passed.gradient is gradient) is (activation is None)
    ((given, _, made, sums, *_),) = started
    assert given is gradient and made is passed.gradient and sums is passed.sums


@pytest.mark.parametrize("capturing", [False, True])
@pytest.mark.parametrize(("elements", "worth"), [(31, False), (32, True)])
def test_few_elements_are_torchs_but_for_graphs(
    monkeypatch: pytest.MonkeyPatch, elements: int, worth: bool, capturing: bool
) -> None:
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr(module, "_WORTH", 32)
    monkeypatch.setattr(module, "pass_on_gpu", lambda *_: None)
    gradient = torch.ones(1, elements)
    with torch.no_grad():
        passed = module.pass_back(gradient, gradient, "gelu", False, True)
    assert (passed is not None) == (worth or capturing)
