"""Products of tensors that record gradients, are compiled, transformed or cast: beside torch's own, in float64."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewise
from tilewise.errors import ArgumentError, TilewiseError
from tilewise.expression import ACTIVATIONS

tw: Any = tilewise
torch: Any = pytest.importorskip("torch")
operators: Any = pytest.importorskip("tilewise.interop.torch.operators")
from tilewise.interop.torch import gradients  # noqa: E402 -- it imports torch
from tilewise.interop.torch.activation_gradients import Passed  # noqa: E402
from tilewise.interop.torch.terms import Terms  # noqa: E402

functional = torch.nn.functional

REFERENCE: dict[str | None, Callable[[Any], Any]] = {
    None: lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}

# What torch itself calls for the first tangent in a process, whichever test that is.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def random(*shape: int, grad: bool = True, dtype: Any = None) -> Any:
    return torch.randn(shape, dtype=dtype or torch.float64).requires_grad_(grad)


def linear(*args: Any) -> Any:
    """A linear layer by torch: x, weight, bias, activation and residual, of which the last may be missing."""
    x, weight, bias, activation, residual = (*args, *(None,) * 5)[:5]
    y = REFERENCE[activation](functional.linear(x, weight, bias))
    return y if residual is None else y + residual


@pytest.fixture
def quiet() -> Iterator[None]:
    """What torch's own machinery warns of is not about us."""
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.compiler.reset()


def assert_same(ours: Callable[..., Any], theirs: Callable[..., Any], *inputs: Any) -> None:
    """That results and all gradients agree, and have the inputs' types and shapes."""
    y, wanted = ours(*inputs), theirs(*inputs)
    torch.testing.assert_close(y, wanted)
    needing = [one for one in inputs if one is not None and one.requires_grad]
    assert y.requires_grad == bool(needing)
    if needing:
        direction = torch.randn_like(wanted)
        found = torch.autograd.grad(y, needing, direction)
        torch.testing.assert_close(found, torch.autograd.grad(wanted, needing, direction))
        assert [(one.shape, one.dtype) for one in found] == [(one.shape, one.dtype) for one in needing]


# ── gradients ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("activation", REFERENCE)
def test_first_and_second_derivatives(activation: str | None) -> None:
    """By differences: of the operator and of the way without torch's dispatcher, with a residual and without."""
    assert {*ACTIVATIONS} == {*REFERENCE} - {None}
    x, weight, bias, residual = random(2, 1, 3), random(2, 3), random(2), random(1, 2)

    def operator(*args: Any) -> Any:
        return torch.ops.tilewise.linear(*args[:3], activation, *args[3:])

    def direct(*args: Any) -> Any:
        return tw.linear(*args[:3], activation=activation, residual=args[3] if args[3:] else None)

    for function in (operator, direct):
        assert torch.autograd.gradcheck(function, (x, weight, bias, residual), fast_mode=function is operator)
        assert torch.autograd.gradgradcheck(function, (x, weight, bias), fast_mode=True)


def test_what_was_not_kept_is_computed_again() -> None:
    """As where a transform hides that gradients are recorded."""

    def ours(*args: Any) -> Any:
        return torch.ops.tilewise._product(*args, "gelu", 0.5, 2.0, False)[0]

    def theirs(a: Any, b: Any, bias: Any, c: Any, residual: Any) -> Any:
        return functional.gelu(0.5 * (a @ b) + 2 * c + bias) + residual

    assert_same(ours, theirs, random(3, 4), random(4, 5), random(5), random(3, 5), random(3, 5))


def test_one_pass_gives_a_biass_gradient_only_if_nothing_else_goes_into_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a GPU it adds up the columns too, but not where a second derivative comes through what was kept."""
    sums: list[bool] = []

    def pass_back(gradient: Any, kept: Any, name: str, _from_result: bool, with_sums: bool) -> Any:
        if torch.is_grad_enabled():
            return None
        sums.append(with_sums)
        with torch.enable_grad():
            x = kept.clone().requires_grad_()
            (made,) = torch.autograd.grad(REFERENCE[name](x), x, gradient)
        return Passed(made, made.sum(0) if with_sums else None)

    monkeypatch.setattr(gradients, "pass_back", pass_back)
    inputs, direction = (random(5, 3), random(2, 3), random(2)), torch.randn(5, 2, dtype=torch.float64)

    def found(linear: Callable[..., Any], penalised: bool) -> Any:
        y = linear(*inputs)
        (slope,) = torch.autograd.grad(y, inputs[0], direction, create_graph=True)
        loss = (y * direction).sum()
        return torch.autograd.grad(loss + (slope**2).sum() if penalised else loss, inputs)

    for penalised in (False, True):
        sums.clear()
        ours = found(functools.partial(tw.linear, activation="gelu"), penalised)
        torch.testing.assert_close(ours, found(lambda *given: linear(*given, "gelu"), penalised))
        assert sums == [not penalised]


@pytest.mark.parametrize("keeps", [True, False])
def test_any_operand_may_need_a_gradient(keeps: bool) -> None:
    """Whether what the activation was given was kept or is computed anew, of operands that need none themselves."""

    def ours(x: Any, weight: Any, bias: Any, residual: Any) -> Any:
        if keeps:
            return tw.linear(x, weight, bias, activation="gelu", residual=residual)
        return torch.ops.tilewise._product(x, weight.mT, bias, None, residual, "gelu")[0]

    for needs in range(16):
        shapes = [(2, 4), (3, 4), (3,), (2, 3)]
        inputs = (random(*shape, grad=bool(needs >> i & 1)) for i, shape in enumerate(shapes))
        assert_same(ours, lambda *args: linear(*args[:3], "gelu", args[3]), *inputs)


STACKS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "matrices": ((3, 4), (4, 5)),
    "a stack by a matrix": ((2, 3, 4), (4, 5)),
    "a matrix by a stack": ((3, 4), (2, 4, 5)),
    "stacks that broadcast": ((2, 1, 3, 4), (3, 4, 5)),
    "two vectors": ((4,), (4,)),
    "a vector by a stack": ((4,), (2, 4, 5)),
    "a stack by a vector": ((2, 3, 4), (4,)),
    "no rows": ((0, 4), (4, 5)),
    "no columns of A": ((3, 0), (0, 5)),
    "an empty stack": ((0, 3, 4), (4, 5)),
}


@pytest.mark.parametrize("name", STACKS)
def test_shapes(name: str) -> None:
    a, b = (random(*shape) for shape in STACKS[name])
    assert_same(tw.matmul, torch.matmul, a, b)
    assert_same(torch.ops.tilewise.matmul, torch.matmul, a, b)


@pytest.mark.parametrize(
    "name", ["stacks that broadcast", "two vectors", "a vector by a stack", "no columns of A"]
)
def test_terms(name: str) -> None:
    a, b = (random(*shape) for shape in STACKS[name])
    shape = torch.matmul(a, b).shape
    bias, c, residual = random(*shape[-1:]), random(*shape), random(*shape)

    def ours(a: Any, b: Any, bias: Any, c: Any, residual: Any) -> Any:
        given = {"bias": bias, "c": c, "residual": residual}
        return tw.matmul(a, b, **given, activation="silu", alpha=0.5, beta=-2.0)

    def theirs(a: Any, b: Any, bias: Any, c: Any, residual: Any) -> Any:
        return functional.silu(0.5 * (a @ b) - 2 * c + bias) + residual

    inputs = (a, b, bias, c, residual)
    assert_same(ours, theirs, *inputs)
    for alone in (bias, c):
        assert_same(ours, theirs, *(one.detach().requires_grad_(one is alone) for one in inputs))


def test_complex_numbers() -> None:
    """First and second derivatives, which have conjugates; beside a real operand, whose gradient is real."""
    kind, real = torch.complex128, random(3, 4)
    a, b, bias = random(2, 3, 4, dtype=kind), random(4, 2, dtype=kind), random(2, dtype=kind)
    assert_same(lambda *all: tw.matmul(*all[:2], bias=all[2], alpha=0.5), lambda *all: 0.5 * (all[0] @ all[1]) + all[2],
                a, b, bias)  # fmt: skip
    assert torch.autograd.gradgradcheck(tw.matmul, (a[0].detach().requires_grad_(), b))
    assert_same(tw.matmul, lambda real, b: real.to(kind) @ b, real, b)


def test_operands_that_lie_in_any_way() -> None:
    x, weight = random(6, 8), random(8, 6)
    views: tuple[Callable[[Any], Any], ...] = (
        lambda t: t[::2, 1::2].T,
        lambda t: t[1].expand(3, -1),
        lambda t: t.mT,
    )
    for take in views:
        assert_same(tw.linear, linear, take(x), random(5, take(x).shape[-1]))
    assert_same(tw.linear, linear, x, weight.T)
    direction = random(1, 1).expand(6, 6)  # a gradient that has no memory of its own for each element
    y = tw.linear(x, weight.T)
    found = torch.autograd.grad(y, (x, weight), direction)
    torch.testing.assert_close(found, torch.autograd.grad(linear(x, weight.T), (x, weight), direction))


@pytest.mark.parametrize("turned", [False, True])
def test_a_gradient_lies_as_its_operand_does(turned: bool) -> None:
    """Autograd would copy that of a parameter which lies in another way."""

    def lie(rows: int, columns: int) -> Any:
        made = random(columns, rows).detach().T if turned else random(rows, columns).detach()
        return made.requires_grad_()

    for multiply, shapes in ((tw.linear, ((6, 4), (5, 4))), (tw.matmul, ((6, 4), (4, 5)))):
        operands = [lie(*shape) for shape in shapes]
        found = torch.autograd.grad(multiply(*operands).sum(), operands)
        assert [one.stride() for one in found] == [one.stride() for one in operands]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_types(dtype: Any) -> None:
    """Of each result and gradient no element is farther from float64's than a few roundings of what was summed."""
    x, weight, bias = (random(*shape, dtype=dtype) for shape in ((3, 8, 16), (24, 16), (24,)))
    wide = [one.detach().double().requires_grad_() for one in (x, weight, bias)]
    y, wanted = tw.linear(x, weight, bias, activation="gelu"), linear(wide[0], wide[1], wide[2], "gelu")
    direction = torch.randn_like(y)
    found = torch.autograd.grad(y, (x, weight, bias), direction)
    reference = torch.autograd.grad(wanted, wide, direction.double())
    sums = (
        abs(wide[0]) @ abs(wide[1]).T + abs(wide[2]),
        1.2 * abs(direction.double()) @ abs(wide[1]),
        1.2 * abs(direction.double()).flatten(0, 1).T @ abs(wide[0]).flatten(0, 1),
        1.2 * abs(direction.double()).sum((0, 1)),
    )
    for one, want, total in zip((y, *found), (wanted, *reference), sums, strict=True):
        assert one.dtype == dtype
        assert (abs(one.double() - want) <= 6 * torch.finfo(dtype).eps * (1 + total)).all()


def test_nothing_is_recorded_where_nothing_needs_it() -> None:
    x, weight = random(2, 4), random(3, 4)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert not tw.linear(x, weight, activation="gelu").requires_grad
            assert not torch.ops.tilewise.linear(x, weight, None, "gelu").requires_grad
    with torch.profiler.profile() as profile:
        tw.linear(x.detach(), weight.detach())
        assert tw.linear(x, weight).requires_grad
    assert not [event.name for event in profile.events() if "tilewise::" in event.name]  # no dispatcher


def test_what_an_activation_was_given_is_kept_for_gradients_alone() -> None:
    place = Terms._fields.index("keep")

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]  # its class is not known
        kept: list[bool] = []  # noqa: RUF012 -- of this test alone

        def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.tilewise._product.default:
                self.kept.append(len(args) > place and args[place])
            return function(*args, **(kwargs or {}))

    x, weight = random(2, 4), random(3, 4)
    with Seen() as seen:
        torch.ops.tilewise.linear(x.detach(), weight.detach(), None, "gelu")
        torch.ops.tilewise.linear(x.detach(), weight, None, "gelu")
        torch.ops.tilewise.linear(x, weight.detach(), None, "gelu")
        torch.ops.tilewise.linear(x, weight, None, "relu")  # whose result says enough
        with torch.no_grad():
            torch.ops.tilewise.linear(x, weight, None, "gelu")
    assert seen.kept == [False, True, True, False, False]


# ── torch's machinery ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("quiet")
def test_torchs_own_check_of_operators() -> None:
    x, weight, bias, residual = random(2, 3, 4), random(5, 4), random(5), random(3, 5)
    check = torch.library.opcheck
    check(torch.ops.tilewise.linear.default, (x, weight, bias, "gelu", residual))
    check(torch.ops.tilewise.matmul.default, (x.detach(), weight.detach().mT, bias.detach()))
    check(torch.ops.tilewise._product.default, (x, weight.mT, bias, None, residual, "silu", 0.5, 1.0, True))


@pytest.mark.usefixtures("quiet")
def test_compiled() -> None:
    def ours(x: Any, weight: Any, bias: Any) -> Any:
        return torch.ops.tilewise.linear(x * 2, weight, bias, "gelu").sin()

    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    weight, bias = random(5, 4), random(5)
    for rows in (3, 6):
        assert_same(
            compiled, lambda x, *rest: linear(x * 2, *rest, "gelu").sin(), random(2, rows, 4), weight, bias
        )
    assert_same(
        compiled,
        lambda x, *rest: linear(x * 2, *rest, "gelu").sin(),
        *map(torch.detach, (random(2, 3, 4), weight, bias)),
    )


@pytest.mark.usefixtures("quiet")
def test_calls_that_torch_compile_traces() -> None:
    """NOTE: torch does not forget what it has in a function's place: so it is for all tests that follow."""
    for _ in range(2):
        operators.allow_in_graph()

    def ours(x: Any, weight: Any) -> Any:
        return tw.linear(x * 2, weight, activation="relu") + tw.matmul(x, weight.T, alpha=0.5)

    def theirs(x: Any, weight: Any) -> Any:
        return linear(x * 2, weight, None, "relu") + 0.5 * (x @ weight.T)

    assert_same(torch.compile(ours, backend="eager", fullgraph=True), theirs, random(3, 4), random(5, 4))
    x, weight, out = (
        random(3, 4, grad=False),
        random(5, 4, grad=False),
        torch.empty(3, 5, dtype=torch.float64),
    )
    torch.compile(lambda x, w, out: tw.linear(x + 1, w, out=out), backend="eager")(x, weight, out)
    torch.testing.assert_close(out, (x + 1) @ weight.T)


@pytest.mark.parametrize(
    "ours",
    [
        lambda *args: tw.linear(*args, activation="gelu"),
        lambda *args: torch.ops.tilewise.linear(*args, "gelu"),
    ],
    ids=["direct", "operator"],
)
def test_transforms(ours: Callable[..., Any]) -> None:
    def theirs(*args: Any) -> Any:
        return linear(*args, "gelu")

    def loss(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, weight, bias: function(x, weight, bias).square().sum()

    vmap, grad = torch.vmap, torch.func.grad
    given = random(3, 2, 4, grad=False), random(5, 4, grad=False), random(5, grad=False)
    stacked = random(3, 4, 5, grad=False), random(3, 5, grad=False)
    transforms: tuple[tuple[Callable[..., Any], Any], ...] = (
        (lambda f: vmap(f, (0, None, None)), given),
        (lambda f: vmap(f, (1, None, None), out_dims=1), given),
        (lambda f: vmap(f, (0, 0, 0)), (given[0], stacked[0].mT, stacked[1])),
        (lambda f: vmap(f, (None, None, 0)), (given[0], given[1], stacked[1])),
        (lambda f: vmap(vmap(f, (0, None, None)), (None, 0, None)), (given[0], stacked[0].mT, given[2])),
        (lambda f: vmap(lambda x, w, b: f(x[0], w, b[:1]), (0, None, None)), given),
        (lambda f: grad(loss(f), (0, 1, 2)), given),
        (lambda f: vmap(grad(loss(f), (1, 2)), (0, None, None)), given),
        (lambda f: grad(lambda *a: vmap(f, (0, None, None))(*a).sum(), (0, 1)), given),
        (lambda f: torch.func.jacrev(grad(loss(f), 2), 2), given),
    )
    for make, args in transforms:
        torch.testing.assert_close(make(ours)(*args), make(theirs)(*args))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh"])
@pytest.mark.parametrize("ours", [tw.linear, torch.ops.tilewise.linear], ids=["direct", "operator"])
def test_every_way_to_differentiate(ours: Callable[..., Any], activation: str | None) -> None:
    """Backward with one operand captured, of a gradient again, forward, and both; outside of torch.func, and in batches."""
    x, weight = random(3, 4, grad=False), random(5, 4, grad=False)

    def product(w: Any) -> Any:
        return ours(x, w, activation=activation)

    def theirs(w: Any) -> Any:
        return linear(x, w, None, activation)

    def squares(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda w: of(w).square().sum()

    def forward(of: Callable[[Any], Any]) -> Any:
        with torch.autograd.forward_ad.dual_level():
            return tuple(
                torch.autograd.forward_ad.unpack_dual(of(torch.autograd.forward_ad.make_dual(weight, weight)))
            )

    def batched(of: Callable[[Any], Any]) -> Any:
        needing = weight.clone().requires_grad_()
        return torch.autograd.grad(of(needing), needing, directions, is_grads_batched=True)

    func, directions = torch.func, random(2, 3, 5, grad=False)
    for differentiate in (
        lambda of: func.vjp(of, weight)[1](directions[0]),
        lambda of: func.vjp(func.grad(squares(of)), weight)[1](weight),
        lambda of: func.jvp(of, (weight,), (weight,)),
        lambda of: func.jacfwd(of)(weight),
        lambda of: func.hessian(squares(of))(weight),
        forward,
        batched,
    ):
        torch.testing.assert_close(differentiate(product), differentiate(theirs))


def test_what_carries_a_tangent_has_every_term() -> None:
    terms = [random(*shape, grad=False) for shape in ((2, 4), (4, 3), (3,), (2, 3), (2, 3))]

    def ours(a: Any, b: Any, bias: Any, c: Any, residual: Any) -> Any:
        return tw.matmul(a, b, bias=bias, c=c, residual=residual, alpha=0.5, beta=-2.0, activation="tanh")

    def theirs(a: Any, b: Any, bias: Any, c: Any, residual: Any) -> Any:
        return torch.tanh(0.5 * (a @ b) - 2 * c + bias) + residual

    directions = tuple(map(torch.randn_like, terms))
    for function in (ours, theirs):
        terms_and = torch.func.jvp(function, tuple(terms), directions)
        wanted = torch.func.jvp(theirs, tuple(terms), directions)
        torch.testing.assert_close(terms_and, wanted)
    halves = torch.func.jvp(
        tw.matmul, (terms[0].half(), terms[1].float()), (terms[0].half(), terms[1].float())
    )
    assert {one.dtype for one in halves} == {torch.float32}


def test_vmap_of_vectors() -> None:
    matrices, vectors = random(3, 5, 4, grad=False), random(3, 4, grad=False)
    for function in (
        lambda product, m, v: product(m, v),
        lambda product, m, v: product(v, m.mT),
        lambda product, m, v: product(v, v),
    ):
        torch.testing.assert_close(
            torch.vmap(lambda m, v, f=function: f(tw.matmul, m, v))(matrices, vectors),
            torch.vmap(lambda m, v, f=function: f(torch.matmul, m, v))(matrices, vectors),
        )
    found = torch.vmap(lambda m, v: tw.matmul(v, m.mT, bias=v[0]))(matrices, vectors)
    torch.testing.assert_close(found, torch.vmap(lambda m, v: v @ m.mT + v[0])(matrices, vectors))


def test_autocast() -> None:
    dtype = torch.bfloat16
    x, weight, bias = (random(*shape, dtype=torch.float32) for shape in ((2, 3, 4), (5, 4), (5,)))
    with torch.autocast("cpu", dtype=dtype):
        y, wanted = torch.ops.tilewise.linear(x, weight, bias, "gelu"), functional.linear(x, weight, bias)
        assert y.dtype == wanted.dtype == dtype
        assert torch.ops.tilewise.matmul(x.double(), weight.double().mT).dtype == torch.float64
        assert tw.linear(x, weight).dtype == torch.float32  # which multiplies what it is given
    torch.testing.assert_close(y.float(), linear(x, weight, bias, "gelu"), rtol=0.02, atol=0.05)
    found, reference = (
        torch.autograd.grad(one.float().sum(), (x, weight, bias))
        for one in (y, linear(x, weight, bias, "gelu"))
    )
    torch.testing.assert_close(found, reference, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("shape", [(3, 2, 3), (3, 3), (2,), (4, 1)])
@pytest.mark.parametrize("name", ["bias", "c", "residual"])
def test_in_a_transform_terms_broadcast_to_the_result_of_one_example(
    name: str, shape: tuple[int, ...]
) -> None:
    """Also what would broadcast to those of all three."""
    a, b, term = random(2, 4, grad=False), random(4, 3, grad=False), random(*shape, grad=False)

    def product(x: torch.Tensor) -> torch.Tensor:
        return tw.matmul(x, b, **{name: term})

    calls: tuple[Callable[[], Any], ...] = (
        lambda: torch.vmap(product)(torch.stack([a, a, a])),
        lambda: torch.func.grad(lambda x: product(x).sum())(a),
        lambda: torch.func.jvp(product, (a,), (a,)),
    )
    for call in calls:
        message = rf"{name} must broadcast to the result's shape \(2, 3\), not {re.escape(str(shape))}"
        with pytest.raises(ArgumentError, match=message):
            call()


def test_tensors_without_elements() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x, weight = torch.empty(2, 3, 4, dtype=torch.bfloat16), torch.empty(5, 4, dtype=torch.bfloat16)
        y = tw.linear(x, weight, activation="gelu")
    assert (type(y).__name__, tuple(y.shape), y.dtype) == ("FakeTensor", (2, 3, 5), torch.bfloat16)
    meta = torch.ops.tilewise.matmul(torch.empty(2, 3, device="meta"), torch.empty(3, 4, device="meta"))
    assert meta.is_meta and meta.shape == (2, 4)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────

X, W = random(2, 4), random(3, 4)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they are a prototype
    NESTED = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tw.linear(X, W, out=torch.empty(2, 3)), "out must be None where gradients are recorded"),
        (
            lambda: tw.matmul(X, W.T, epilogue=tw.epilogue("acc * 2")),
            "epilogue must be None where gradients are recorded, in torch.func and for fake tensors; use torch.no_grad() or .detach(), or bias=, activation=",
        ),
        *(
            (call, "arithmetic must be None where gradients are recorded")
            for call in (
                lambda: tw.matmul(X, W.T, arithmetic="exact32"),
                lambda: tw.linear(X, W, arithmetic="exact32"),
            )
        ),
        (lambda: tw.linear(X, W, activation="geloo"), "activation 'geloo' is not known; did you mean 'gelu'"),
        (lambda: tw.linear(X, W.T), "weight must have as many columns as x (4)"),
        (lambda: tw.linear(X, W.to(torch.float8_e5m2)), "weight must have a type of bfloat16, float16"),
        (
            lambda: tw.linear(X.detach().to(torch.float8_e5m2), W.detach()),
            "x must have a type of bfloat16, float16",
        ),
        (lambda: tw.linear(X[0, 0], W), "x must have at least one dimension"),
        (
            lambda: tw.linear(NESTED, W),
            "x must be one dense tensor, not 'a nested tensor'; use x.to_padded_tensor(0)",
        ),
        (lambda: torch.ops.tilewise.matmul(X, W.T, activation="exp"), "activation 'exp' is not known"),
        (
            lambda: torch.ops.tilewise._product(X, W.T, activation="relu(acc) + relu"),
            "activation 'relu(acc) + relu' is",
        ),
        (
            lambda: tw.matmul(X, W.T, alpha=torch.ones(())),
            "alpha must be a number, not 'Tensor'; multiply an operand by it",
        ),
        (
            lambda: tw.matmul(X.detach(), W.detach().T, c=X, beta=np.ones(1)),
            "beta must be a number, not 'ndarray'; multiply c",
        ),
        (
            lambda: tw.matmul(X.detach().half(), W.detach().half().T, bias=torch.ones(3).double()),
            "bias must have a type of float16, bfloat16, float32, not 'float64'; convert it: bias.to(torch.float32)",
        ),
        (lambda: tw.matmul(X, W.T, beta=2.0), "c must be given with beta"),
        (lambda: tw.matmul(X, W.T, alpha="2"), "alpha must be a number, not 'str'"),
        (lambda: tw.matmul(X, W), "b must have as many rows as a has columns (4)"),
        (
            lambda: torch.ops.tilewise.matmul(X.detach().to("meta"), W.to("meta")),
            "b must have as many rows as a has columns (4)",
        ),
        (
            lambda: tw.matmul(X, random(2, 4, 3), c=random(5)),
            "c must broadcast to the result's shape (2, 2, 3)",
        ),
        (
            lambda: tw.linear(X, W.to("meta")),
            "weight must lie on the device of x, cpu, not 'meta'; use weight.to('cpu')",
        ),
        (lambda: tw.linear(X, W, torch.ones(3, device="meta")), "bias must lie on the device"),
        (
            lambda: tw.linear(X, W.detach().numpy()),
            "weight must be a torch.Tensor where another one requires a gradient",
        ),
        (lambda: tw.matmul(X.detach().numpy(), W.T), "a must be a torch.Tensor where another one requires"),
        (
            lambda: tw.matmul(X, torch.ones(4, 3, dtype=torch.int64)),
            "b must have a type that a floating-point type holds, not 'int64'",
        ),
        (
            lambda: torch.ops.tilewise.matmul(
                X.detach().to("meta"), torch.ones(4, 3, dtype=torch.int64, device="meta")
            ),
            "b must have a type that a floating-point type holds, not 'int64'",
        ),
        (lambda: tw.grouped_matmul(X, W.T[None], torch.tensor([2])), "a must not require a gradient"),
    ],
)
def test_mistakes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TilewiseError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_a_mistake_in_what_is_compiled_is_ours(quiet: None) -> None:
    with pytest.raises(Exception, match="weight must have as many columns as x") as caught:
        torch.compile(torch.ops.tilewise.linear, backend="eager")(X, W.T)
    assert caught.value is not None
    with pytest.raises(ArgumentError, match="bias must broadcast"):
        torch.ops.tilewise.linear(X.to("meta"), W.to("meta"), torch.empty(7, device="meta"))


def test_a_backward_pass_needs_no_second_product_where_the_result_tells_the_derivative() -> None:
    """Of relu the result is kept; of gelu what it was given, which no second product makes anew."""
    weight, bias = random(3, 4), random(3)
    for activation, told in (("relu", True), ("gelu", False)):
        saved: list[int] = []

        def keep(tensor: Any, saved: list[int] = saved) -> Any:
            saved.append(tensor.data_ptr())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            y = tw.linear(X, weight, bias, activation=activation)
        assert (y.data_ptr() in saved, bias.data_ptr() in saved) == (told, False)


def test_what_was_saved_must_not_change() -> None:
    weight = random(3, 4, grad=False)
    y = tw.linear(X, weight)
    weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
