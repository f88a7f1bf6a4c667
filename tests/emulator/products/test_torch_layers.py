"""tilewise's linear layer for torch, and models whose layers are swapped for it: beside torch's own."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from typing import Any

import pytest

from tilewise.errors import ArgumentError, UnknownNameError

torch: Any = pytest.importorskip("torch")
interop_torch: Any = pytest.importorskip("tilewise.interop.torch")
patching: Any = pytest.importorskip("tilewise.interop.torch.patching")
nn, Linear, patch = torch.nn, interop_torch.Linear, interop_torch.patch


def assert_near(found: Any, wanted: Any) -> None:
    """float32 beside float64: a few roundings of sums of a few dozen terms, most of them below 1."""
    torch.testing.assert_close(found.double(), wanted.double(), rtol=1e-4, atol=2e-5)


def assert_same_training(model: Any, reference: Any, *inputs: Any) -> None:
    """That results, and gradients of parameters and inputs, are those of ``reference``, which is in float64."""
    ours = [one.clone().requires_grad_() for one in inputs]
    theirs = [one.double().requires_grad_() for one in inputs]
    y, wanted = model(*ours), reference(*theirs)
    assert_near(y, wanted)
    direction = torch.randn_like(y)
    y.backward(direction)
    wanted.backward(direction.double())
    for one, other in zip((*ours, *model.parameters()), (*theirs, *reference.parameters()), strict=True):
        assert_near(one.grad, other.grad)


# ── Linear ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_layer_takes_over_torchs() -> None:
    plain = nn.Linear(6, 5).eval()
    layer = Linear.from_torch(plain, activation="gelu")
    assert layer.weight is plain.weight and layer.bias is plain.bias and not layer.training
    assert layer.state_dict().keys() == plain.state_dict().keys()
    assert repr(layer) == "Linear(in_features=6, out_features=5, bias=True, activation='gelu')"
    assert repr(Linear(6, 5, bias=False)) == repr(nn.Linear(6, 5, bias=False))
    given = Linear(6, 5, True, "meta", torch.float16)
    assert {(one.dtype, one.device.type) for one in given.parameters()} == {(torch.float16, "meta")}
    x, residual = torch.randn(2, 3, 6), torch.randn(3, 5)
    wanted = nn.functional.gelu(plain(x))
    torch.testing.assert_close(layer(x), wanted)
    torch.testing.assert_close(layer(x, residual), wanted + residual)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, residual), wanted + residual)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.activation == "gelu" and twin.weight is not layer.weight
        torch.testing.assert_close(twin(x), wanted)
    fresh = Linear(6, 5, activation="gelu")
    fresh.load_state_dict(plain.state_dict())
    torch.testing.assert_close(fresh(x), wanted)
    moved = fresh.to(torch.bfloat16)
    assert moved(x.bfloat16()).dtype == torch.bfloat16
    assert moved.to("meta")(x.to("meta", torch.bfloat16)).shape == (2, 3, 5)


def test_a_layer_in_torchs_machinery() -> None:
    layer, x = Linear(6, 5, activation="silu"), torch.randn(3, 6)
    wanted = layer(x)
    parameters = dict(layer.named_parameters())
    torch.testing.assert_close(torch.func.functional_call(layer, parameters, (x,)), wanted)

    def loss(parameters: Any, x: Any) -> Any:
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    each = torch.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    loss(parameters, x).backward()
    torch.testing.assert_close(each["weight"].sum(0), layer.weight.grad)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
        with torch.no_grad():
            assert layer(x).dtype == torch.bfloat16
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        layer(x).sum().backward()
    assert counter.get_total_flops() == 2 * (2 * 3 * 6 * 5)  # forward, and for the weight; x needs none
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        traced = torch.jit.trace(layer, x)
        torch.testing.assert_close(traced(2 * x), layer(2 * x))
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), wanted)
        exported = torch.export.export(layer, (x,))
    assert "tilewise.linear" in str(exported.graph)
    torch.compiler.reset()


class Own(torch.nn.Linear):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 2


def with_weight(weight: Any) -> Any:
    """A layer whose weight is another, or none of its parameters."""
    layer = nn.Linear(2, 2)
    layer._parameters["weight"] = weight
    return layer


class OwnWeight(torch.nn.Parameter):  # type: ignore[misc]
    pass


def test_what_a_layer_does_not_take_over() -> None:
    with pytest.raises(UnknownNameError, match="activation 'swish' is not known"):
        Linear(2, 2, activation="swish")
    for module, why in (
        (Own(2, 2), "is a Own"),
        (torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), "is a Parametrized"),
        (nn.Linear(2, 2, dtype=torch.complex64), "has a weight of torch.complex64"),
        (nn.ReLU(), "is a ReLU"),
        (Linear(2, 2), "is tilewise's already"),
        (with_weight(None), "computes its weight"),
        (
            with_weight(OwnWeight(torch.ones(2, 2))),
            "has a weight that is a OwnWeight of layout torch.strided",
        ),
        (
            with_weight(nn.Parameter(torch.eye(2).to_sparse())),
            "has a weight that is a Parameter of layout torch.sparse_coo",
        ),
    ):
        with pytest.raises(
            ArgumentError, match=rf"^module must be a plain torch\.nn\.Linear, not ['\"]{why}"
        ):
            Linear.from_torch(module)


# ── patch ────────────────────────────────────────────────────────────────────────────────────────────────


class Block(torch.nn.Module):  # type: ignore[misc]
    """A transformer's block: attention and a feed-forward part, each on what was normalised, each added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU("tanh"), nn.Linear(2 * width, width))

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.feed(self.between(x))


def test_an_mlp_and_a_transformer() -> None:
    mlp = nn.Sequential(
        nn.Linear(6, 12), nn.ReLU(), nn.Sequential(nn.Linear(12, 8), nn.SiLU()), nn.Linear(8, 3)
    )
    for model, x, table in (
        (
            mlp,
            torch.randn(5, 6),
            "3 of 3 linear layers swapped\n0    6 → 12  relu, of 1\n2.0  12 → 8  silu, of 2.1\n3    8 → 3",
        ),
        (Block(8, 2), torch.randn(2, 5, 8), None),
    ):
        reference = copy.deepcopy(model).double()
        text, keys, parameters = repr(model), [*model.state_dict()], [*model.parameters()]
        with patch(model) as patched:
            assert table is None or str(patched) == table
            assert all(type(one) is not nn.Linear for one in model.modules()) and not patched.left
            assert [*model.state_dict()] == keys
            assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
            assert_same_training(model, reference, x)
            torch.testing.assert_close(copy.deepcopy(model)(x), model(x))
            with torch.no_grad():
                assert_near(model(x), reference(x.double()))
        assert repr(model) == text
        model.zero_grad()
        patched.undo()
        assert [one.activation for one in patched.swapped] == (
            ["relu", "silu", None] if model is mlp else [None, None, "gelu_tanh", None]
        )


def test_training_goes_on() -> None:
    """Optimizers hold the same parameters, before and after."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    reference, optimizers = copy.deepcopy(model), []
    patched = patch(model)
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    for one in (model, reference):
        optimizers.append(torch.optim.Adam(one.parameters(), lr=0.01))
        for _ in range(3):
            optimizers[-1].zero_grad()
            nn.functional.mse_loss(one(x), y).backward()
            optimizers[-1].step()
    patched.undo()
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_what_is_left_and_why() -> None:
    shared, seen = nn.Linear(4, 4), []
    watched = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    watched[0].register_forward_hook(lambda module, given, result: seen.append(result))
    model = nn.ModuleDict(
        {
            "own": Own(4, 4),
            "normed": torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
            "complex": nn.Linear(4, 4, dtype=torch.complex64),
            "mixed": nn.MultiheadAttention(4, 2),
            "shared": nn.Sequential(shared, nn.ReLU()),
            "again": shared,
            "tied": nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)),
            "watched": watched,
            "already": Linear(4, 4),
            "not": nn.Linear(4, 4),
        }
    )
    model["tied"][0].weight = shared.weight
    model["not"].forward = model["not"].forward
    x = torch.randn(3, 4)
    before = [model[name](x) for name in ("own", "normed", "shared", "again", "tied", "watched", "not")]
    patched = patch(model, select=lambda name, layer: name != "tied.0" or layer.in_features == 4)
    after = [model[name](x) for name in ("own", "normed", "shared", "again", "tied", "watched", "not")]
    for one, other in zip(after, before, strict=True):
        torch.testing.assert_close(one, other)
    assert {one.name: one.activation for one in patched.swapped} == {
        "shared.0": None,
        "tied.0": "relu",
        "watched.0": None,
    }
    torch.testing.assert_close(seen[0], seen[1])  # the hook sees what it saw
    assert model["tied"][0].weight is shared.weight and model["shared"][0] is model["again"]
    left = {one.name: one.why for one in patched.left}
    assert left.keys() == {"own", "normed", "complex", "mixed.out_proj", "already", "not"}
    for name, why in (
        ("own", "is a Own"),
        ("normed", "is a Parametrized"),
        ("complex", "complex64"),
        ("already", "already"),
        ("not", "has a forward of its own"),
    ):
        assert why in left[name]
    plain = json.loads(json.dumps(patched.to_dict()))
    assert plain["left"][0] == {"name": "own", "why": left["own"]}
    fields = ("name", "in_features", "out_features", "activation", "activation_name")
    assert plain["swapped"] == [{field: getattr(one, field) for field in fields} for one in patched.swapped]
    assert len(str(patched).splitlines()) == 1 + 3 + 6
    patched.undo()
    assert (
        type(shared) is nn.Linear and type(model["tied"][1]) is nn.ReLU and type(model["already"]) is Linear
    )
    assert not patch(model, select=lambda name, layer: False).swapped


def test_a_model_that_is_one_layer() -> None:
    layer = nn.Linear(3, 2)
    with patch(layer) as patched:
        assert str(patched) == "1 of 1 linear layers swapped\n(the model)  3 → 2" and type(layer) is Linear
    assert type(layer) is nn.Linear and "activation" not in vars(layer)
    none = "linear layers swapped\n(the model)  left  was not selected"
    assert str(patch(layer, select=lambda name, one: False)) == f"0 of 1 {none}"
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    assert patch(model, fuse=False).swapped[0].activation is None and type(model[1]) is nn.ReLU
    with pytest.raises(ArgumentError, match=r"model must be a torch\.nn\.Module, not 'list'"):
        patch([layer])


def test_neighbours_in_a_sequential_are_those_that_run_one_after_another() -> None:
    """A module that occurs twice stands between others each time; and some run theirs in an order of their own."""
    norm = nn.LayerNorm(4)
    model, x = nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 4), norm, nn.ReLU()), torch.randn(3, 4)
    backwards = Backwards(nn.Linear(4, 4), nn.ReLU())
    for one in (model, backwards):
        before = one(x)
        assert {layer.activation for layer in patch(one).swapped} == {None}
        torch.testing.assert_close(one(x), before)


class Backwards(torch.nn.Sequential):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return reversed([*self._modules.values()])


def test_undoing_changes_nothing_that_is_computed() -> None:
    """Where the activation was moved, in a slice that holds what stood in its place, and of a layer that was changed."""
    x = torch.randn(3, 4)
    moved, slice_of, changed = (nn.Sequential(nn.Linear(4, 4), nn.GELU(approximate="tanh")) for _ in range(3))
    gelu = moved[1]
    patches = [patch(moved), patch(slice_of), patch(changed)]
    moved.insert(0, nn.Identity())
    part = slice_of[:2]
    torch.nn.utils.parametrizations.weight_norm(changed[0])
    before = [one(x) for one in (moved, part, changed)]
    for one in patches[:2]:
        one.undo()
    with pytest.warns(
        UserWarning, match=r"^0 is a ParametrizedLinear by now: it stays tilewise's, and so does its act"
    ):
        patches[2].undo()
    for one, was in zip((moved, part, changed), before, strict=True):
        torch.testing.assert_close(one(x), was)
    assert moved[2] is gelu and type(moved[1]) is nn.Linear and type(part[1]) is nn.GELU


class OwnTensor(torch.Tensor):  # type: ignore[misc]
    pass


def test_a_tensor_of_a_class_of_its_own_stays_one() -> None:
    layer, x = Linear(4, 3), torch.randn(2, 4)
    for grad in (True, False):
        layer.requires_grad_(grad)
        y = layer(x.as_subclass(OwnTensor))
        assert type(y) is OwnTensor and y.requires_grad == grad
        torch.testing.assert_close(y.as_subclass(torch.Tensor), layer(x))


def test_what_goes_wrong_leaves_a_model_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with pytest.raises(ZeroDivisionError):
        patch(model, select=lambda name, layer: 1 // (name == "0") > 0)
    assert {type(one) for one in model} == {nn.Linear}
    wrong: Any = "0"
    with pytest.raises(ArgumentError, match=r"^select must be a function of a name and a layer, not '0'"):
        patch(model, select=wrong)
    patch(model)
    with pytest.raises(
        ArgumentError, match=r"^input must be a torch\.Tensor, not 'list'; use torch\.as_tensor"
    ):
        model([[1.0]])


def test_what_was_swapped_is_a_table() -> None:
    swapped = (
        patching.SwappedLayer("a", 3, 2),
        patching.SwappedLayer("up", 4096, 16384, "gelu", "act"),
    )
    left = (patching.SkippedLayer("head", "computes its weight"),)
    assert str(patching.Patch(swapped, left)).splitlines() == [
        "2 of 3 linear layers swapped",
        "a     3 → 2",
        "up    4096 → 16384  gelu, of act",
        "head  left          computes its weight",
    ]
