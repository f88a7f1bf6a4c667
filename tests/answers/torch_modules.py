"""Tensors as they are viewed, and layers: tilewise's own, and those of models that are patched."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch as imported_torch

import tilewise
import tilewise.interop.torch
from tests.answers.shown import show
from tests.answers.tensor_transforms import changed, forward, in_level, in_transform, twice
from tests.answers.tensors import (
    NESTED,
    W,
    X,
    fake,
    fill_parameters,
    forward_ad,
    layer,
    made,
    n,
    nn,
    on_emulator,
    product,
    quantised,
    told,
    tw,
    within,
)
from tests.odd_tensors import Tagged, Wrapper
from tilewise import interop
from tilewise.interop.torch import gradients, layers, operators, patching, tensors

torch: Any = imported_torch

LINES = """
interop.view('a', «n(2, 3)|n(2, 3).T|n(4, 6)[::2, ::3]|n(3).expand(2, 3)|n()|n(0, 3)|n(2, 3).to('meta')|n(0, 3).to('meta')|fake(2, 3)|X|X.detach()|torch.nn.Parameter(n(2, 2))|torch.nn.Parameter(n(2, 2), requires_grad=False)|torch.nn.Buffer(n(2, 2))|n(2, 2).as_subclass(Tagged)|Wrapper((2, 2))|Wrapper((0, 2))|n(2, 2).to_sparse()|n(2, 2).to_sparse_csr()|n(2, 2, dtype='float32').to_mkldnn()|NESTED|jagged()|quantised()|n(2, 2, dtype='complex64').conj()|n(2, 2, dtype='complex64').conj().imag|n(2, 2, dtype='complex64').conj().resolve_conj()|torch._neg_view(n(2, 2))|torch.nn.UninitializedParameter()|torch._efficientzerotensor((2, 2))|torch.empty(2, 2, dtype=torch.complex32)|torch.empty(2, dtype=torch.quint4x2)|made().weight»)
interop.view('weight', n(2, 2, dtype=«'bool'|'uint8'|'uint16'|'uint32'|'uint64'|'int8'|'int16'|'int32'|'int64'|'float16'|'bfloat16'|'float32'|'float64'|'complex64'|'complex128'|'float8_e4m3fn'|'float8_e4m3fnuz'|'float8_e5m2'|'float8_e5m2fnuz'|'float8_e8m0fnu'»))
within(torch.«no_grad|inference_mode|enable_grad», lambda: show(interop.view('a', «X|n(2, 3)|X * 2|torch.nn.Parameter(n(2))»))), in_level(lambda dual: show(interop.view('a', «dual(n(2, 3), n(2, 3))|n(2, 3)|torch._efficientzerotensor((2, 2))|X»)))
in_transform('«vmap|grad|functionalize»', lambda x: interop.view('a', «x|n(2, 2)|x.detach()»))
elsewhere(«2|None», «torch.float32|torch.complex64»), both_sides('a', «n(2, 2)|np.ones((2, 2))», «n(2, 2)|np.ones((2, 2))»)
addresses(«[n(2, 3), n(2, 3)]|[n(2, 3), n(2, 3, dtype='float32')]|[n(2, 3), n(3, 2)]|[n(2, 3), n(3, 2).T]|[n(2, 3), X]|[n(2, 3), X.detach()]|[n(2, 3), n(2, 3).to_sparse()]|[n(2, 3), n(2, 3).to('meta')]|[n(2, 3), torch._neg_view(n(2, 3))]|[n(2, 3, dtype='complex64')] * 2|[n(2, 3), n(2, 3).as_subclass(Tagged)]|[n(0, 3), n(0, 3)]|[n(2, 3), n(2, 3).numpy()]|[n(2, 3), torch._efficientzerotensor((2, 3), dtype=torch.float64)]|[n(2, 3), torch.nn.Parameter(n(2, 3))]|[n(4, 3)[::2], n(4, 3)[1::2]]», «contextlib.nullcontext|torch.no_grad|torch.autograd.forward_ad.dual_level»)
library_does()
chosen(«n(2, 3)|X|X.detach()|fake(2, 3)|n(2, 3).to('meta')|X.to_sparse()|np.ones(2)|5|NESTED|None», «n(2)|X|1|fake(1)», «contextlib.nullcontext|torch.no_grad|torch.inference_mode»)
chosen(n(2)), in_level(lambda dual: chosen(«dual(n(2), n(2))|n(2)|X», n(1))), in_transform('«vmap|grad|functionalize|legacy»', lambda x: chosen(«x|n(2)», n(1))), without_torch(«{}|{'torch': SimpleNamespace()}|{'torch': torch}|{'torch': torch, 'tilewise': 1}»)
kept_out(«{}|{'torch._dynamo': 1}|{'torch': 1}»)
[getattr(tilewise.interop.torch, '«Linear|Patch|TorchLibrary|allow_in_graph|keep_out_of_dynamo|operators_for|patch|layers_|Follower|_HOME»')], sorted(tilewise.interop.torch.__all__), tilewise.interop.torch.operators.__name__
tilewise.interop.torch.__getattr__('«operators|Patch|patch|nothing|layer»').__name__
in_graph(lambda matmul, linear: «matmul(n(2, 3), n(3, 4))|matmul(n(2, 3), n(3, 4), n(2, 4))|matmul(n(2, 3), n(3, 4), out=None, plan=None, copy=None, epilogue=None, activation='relu', bias=n(4))|matmul(n(2, 3), n(3, 4), c=n(4), beta=0, alpha=0.5)|matmul(n(2, 3), n(3, 4), c=n(4))|matmul(n(2, 3), n(3, 4), c=n(4), beta=2, alpha=0.5)|matmul(X, W.T, c=n(4), beta=0)|matmul(n(2, 3), n(3, 4), copy=False)|matmul(n(2, 3), n(3, 4), c=n(4), beta=2, epilogue=tw.epilogue('acc'))|matmul(n(2, 3), n(3, 4), c=n(4), beta=2, copy=True)|matmul(n(2, 3), n(3, 4), plan=tw.plan(2, 4, 3, dtype='float64'))|matmul(X, W.T, device='emulator')|linear(n(2, 3), n(4, 3))|linear(n(2, 3), n(4, 3), n(4), activation='relu', out=None, plan=None, copy=None)|linear(n(2, 3), n(4, 3), out=n(2, 4))|linear(n(2, 3), n(4, 3), n(4), copy=False)|linear(X, W, residual=n(4))|linear(n(2, 3), n(4, 3), plan=tw.plan(2, 4, 3, dtype='float64'))|linear(n(2, 3), n(4, 3), arithmetic='f64')»)
torch.ops.tilewise.«linear|matmul|_product».default._schema
repr(layers.Linear(3, 4, «bias=True|False|True, 'meta'|True, 'meta', torch.float16», activation=«None|'relu'|'swish'»)), [(str(one.dtype), str(one.device), one.shape) for one in layers.Linear(3, 4, «True|False», «None|'meta'», «None|torch.float64»).parameters()]
taken_over(«nn.Linear(3, 4)|nn.Linear(3, 4, bias=False).eval()|nn.Linear(3, 4, dtype=torch.float64)|nn.ReLU()|Own(3, 4)|layers.Linear(3, 4)|nn.Linear(3, 4, dtype=torch.complex64)|weighted(None)|weighted(OwnWeight(torch.ones(2, 2)))|weighted(nn.Parameter(torch.eye(2).to_sparse()))|weighted(torch.ones(2, 2))|nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))|with_forward(nn.Linear(3, 4))|compiled_alone(nn.Linear(3, 4))|nn.Linear(3, 4, dtype=torch.float16)|nn.Linear(3, 4, dtype=torch.bfloat16)|weighted(nn.Parameter(torch.ones(2, 2).to(torch.float8_e5m2), requires_grad=False))|hooked(nn.Linear(3, 4))|nn.LazyLinear(4)|nn.Bilinear(2, 2, 2)|5», «None|'silu'|'swish'»)
way(made('silu'), «n(2, 3)|n(2, 3).requires_grad_()|n(3)|n(2, 3).as_subclass(Tagged)|torch.nn.Parameter(n(2, 3))|n(2, 3).to('meta')|[[1.0]]|np.ones((2, 3))|n(2, 4)|n()|None|n(2, 3, dtype='float32')|NESTED|fake(2, 3)», «None|n(4)|n(3)|n(4).requires_grad_()», «'grad'|'frozen'|'no_grad'|'compiling'|'autocast'»)
way(made(None, False), «n(2, 3)|n(2, 3).requires_grad_()|n(2, 3).as_subclass(Tagged)|n(2, 3).to('meta')|fake(2, 3)», «None|n(4).requires_grad_()», «'grad'|'frozen'|'no_grad'|'compiling'|'autocast'»)
way(made('relu').«to('meta')|float()|bfloat16()|eval()|double()», n(2, 3, dtype=«'float32'|'bfloat16'|'float64'»)«|.to('meta')», None, 'grad')
again(copy.«deepcopy|copy»(made('silu'))), again(pickle.loads(pickle.dumps(made('relu', False)))), again(loaded()), made('gelu').state_dict().keys()
patched(«seq(lin(), nn.ReLU(), lin())|seq(lin(), nn.GELU(), lin(), nn.GELU('tanh'))|seq(lin(), nn.SiLU(), nn.Tanh(), lin(), nn.Sigmoid())|seq(lin(), nn.Identity(), nn.ReLU())|seq(nn.ReLU(), lin())|seq(lin(), nn.ReLU6())|seq(lin(), nn.ReLU(inplace=True))|seq(seq(lin(), nn.Tanh()), nn.ReLU(), seq(nn.ReLU(), lin()))|lin()|nn.ReLU()|seq()|seq(lin(bias=False), nn.SiLU(inplace=True))|seq(lin(), lin(), nn.ReLU())», fuse=«True|False»)
patched(«seq(hooked(lin()), nn.ReLU())|seq(hooked(lin(), 'pre'), nn.ReLU())|seq(hooked(lin(), 'backward'), nn.ReLU())|seq(hooked(lin(), 'backward_pre'), nn.ReLU())|seq(lin(), hooked(nn.ReLU()))|seq(lin(), hooked(nn.Tanh(), 'pre'))|seq(lin(), with_forward(nn.ReLU()))|seq(lin(), OwnReLU())|Backwards(lin(), nn.ReLU())|OwnSequential(lin(), nn.ReLU())|with_forward(seq(lin(), nn.ReLU()))|Plainer(lin(), nn.ReLU())|shared()|repeated()|tied()|absent()|mixed()|seq(Own(3, 3), nn.ReLU())|seq(lin().half(), nn.ReLU())|seq(layers.Linear(3, 3), nn.ReLU(), lin())|named()», fuse=«True|False»)
patched(seq(lin(), nn.ReLU(), seq(lin())), select=«None|lambda name, layer: name == '0'|lambda name, layer: layer.in_features > 9|lambda name, layer: 1 // 0|'0'|5|lambda name: True»)
patched(«[lin()]|None|lin|nn.Linear»)
trained(seq(lin(), nn.«ReLU|GELU|SiLU|Tanh|Sigmoid»(), lin())), trained(seq(lin(), nn.GELU(approximate='tanh'))), trained(«lin()|seq(hooked(lin()), nn.ReLU())|shared()»)
undone('«plain|twice|with|moved|slice|replaced|parametrised|parametrised alone|mode|other activation|copied|gone»')
str(patching.Patch(«()|(patching.SwappedLayer('a', 3, 2),)|(patching.SwappedLayer('', 3, 20), patching.SwappedLayer('up.long', 4096, 2, 'gelu', 'act'))», «()|(patching.SkippedLayer('head', 'why'), patching.SkippedLayer('', 'so'))»)), patching.Patch().to_dict(), repr(patching.Patch((patching.SwappedLayer('a', 3, 2),)))
sorted((one.__name__, name) for one, name in patching._ACTIVATIONS.items())
"""

# ── views ────────────────────────────────────────────────────────────────────────────────────────────────


def jagged() -> Any:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def _library() -> Any:
    return interop.view("a", n(2, 3)).library


def elsewhere(number: int | None, dtype: Any) -> Any:
    """A view of what lies on a GPU, or nowhere, by a stand-in."""
    one, library = n(2, 3).to(dtype), _library()
    names = ("data_ptr", "shape", "stride", "dtype", "layout", "is_neg", "is_conj", "is_meta", "is_nested")
    stand_in = SimpleNamespace(
        **{name: getattr(one, name) for name in names}, requires_grad=False, is_cpu=False, is_quantized=False,
        is_cuda=number is not None, get_device=lambda: number, __torch_dispatch__=None, device="xpu:0",
    )  # fmt: skip
    with (
        mock.patch.object(library, "_plain", frozenset([SimpleNamespace])),
        mock.patch.object(library, "_dispatches", lambda _: False),
        mock.patch.object(
            library,
            "_torch",
            SimpleNamespace(nn=nn, _C=SimpleNamespace(), cuda=SimpleNamespace(current_stream=_stream)),
        ),
    ):
        found = library.view("a", stand_in)
        streams = []
        for raw in (None, lambda index: 0xD00 + index):
            with mock.patch.object(library, "_raw_stream", raw):
                streams.append(library.stream(found))
    return show(found), streams


def _stream(index: int) -> Any:
    return SimpleNamespace(cuda_stream=0xE00 + index)


def both_sides(argument: str, left: Any, right: Any) -> Any:
    views = {argument: interop.view(argument, left), "b": interop.view("b", right)}
    found = interop.common(views)
    return found.library.name, found.space, type(found.like.owner).__name__


@on_emulator
def addresses(arrays: Any, context: Callable[[], Any]) -> Any:
    """Whether tensors are alike, so that their addresses are all there is to say."""
    library = _library()
    first = interop.view("a", arrays[0])
    with context():
        found = library.addresses_like(first, arrays)
    return (
        None if found is None else [one == other.data_ptr() for one, other in zip(found, arrays, strict=True)]
    )


def library_does() -> Any:
    library, like = _library(), interop.view("a", n(2, 3))
    made_ = library.empty((2, 3), "bfloat16", like)
    return (
        (library.name, library.preference, library.tracks_gradients),
        (type(made_).__name__, str(made_.dtype), tuple(made_.shape), str(made_.device)),
        [told(one) for one in library.split(n(2, 2, 3))],
        library.convert("x", "float16"),
        [library.move("x", space) for space in (interop.HOST, (2, 0), (2, 3))],
        library.exchange_types(),
        library.exchange_api() is getattr(torch.Tensor, "__dlpack_c_exchange_api__", None),
        [within(context, library.gradients_on()) for context in (torch.no_grad, torch.enable_grad)],
        library.ordinary_state()[0] is vars(forward_ad),
        library.ordinary_state()[1:],
        sorted(library._dtypes),
    )


def chosen(*arrays: Any) -> Any:
    """Which module a product of these goes through; the last may be a context."""
    context = arrays[-1] if callable(arrays[-1]) and not isinstance(arrays[-1], torch.Tensor) else None
    with (context or contextlib.nullcontext)():
        found = tensors.operators_for(*(arrays[:-1] if context else arrays))
    return getattr(found, "__name__", None)


def without_torch(modules: Any) -> Any:
    """The same where torch is not imported, or only begun."""
    with mock.patch.object(tensors, "sys", SimpleNamespace(modules=modules)):
        return chosen(X, fake(2))


def kept_out(modules: dict[str, Any]) -> Any:
    """Whether a function is called as it is, or as torch's compiler has it."""
    asked: list[Any] = []

    def disable(function: Any, **how: Any) -> Any:
        asked.append(how)
        return lambda *args, **given: ("disabled", function(*args, **given))

    def function(x: int, y: int = 2) -> int:
        """A function."""
        return x * 10 + y

    if "torch._dynamo" in modules:
        modules = modules | {"torch": SimpleNamespace(compiler=SimpleNamespace(disable=disable))}
    with mock.patch.object(tensors, "sys", SimpleNamespace(modules=modules)):
        found: Any = tensors.keep_out_of_dynamo(function)
    flags = found._torchdynamo_disable, found._torchdynamo_disable_msg, found.__name__, found.__doc__
    return found(1), found(1, y=3), asked, flags


@on_emulator
def in_graph(work: Callable[[Any, Any], Any]) -> Any:
    """What torch.compile would trace in the place of tw.matmul and tw.linear."""
    traces: dict[Any, Any] = {}
    disabled: list[int] = []

    def substitute(function: Any, **how: Any) -> Any:
        return lambda trace: traces.setdefault(function, (trace, how))[0]

    def disable(function: Any, **_: Any) -> Any:
        def call(*args: Any, **given: Any) -> Any:
            disabled.append(len(args))
            return function(*args, **given)

        return call

    with mock.patch.multiple(torch.compiler, substitute_in_graph=substitute, disable=disable):
        operators.allow_in_graph.__wrapped__()
    (matmul, how), (linear, other) = traces[tw.matmul], traces[tw.linear]
    return work(matmul, linear), disabled, how, other


# ── layers ───────────────────────────────────────────────────────────────────────────────────────────────


class Own(torch.nn.Linear):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 2


class OwnWeight(torch.nn.Parameter):  # type: ignore[misc]
    pass


class OwnReLU(torch.nn.ReLU):  # type: ignore[misc]
    pass


class Backwards(torch.nn.Sequential):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return reversed([*self._modules.values()])


class OwnSequential(torch.nn.Sequential):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 2


class Plainer(torch.nn.Sequential):  # type: ignore[misc]
    """What does the same as its kind."""


def lin(bias: bool = True) -> Any:
    return fill_parameters(nn.Linear(3, 3, bias, dtype=torch.float64))


def seq(*modules: Any) -> Any:
    return nn.Sequential(*modules)


def weighted(weight: Any) -> Any:
    """A layer whose weight is another, or none of its parameters."""
    module = nn.Linear(2, 2)
    module._parameters["weight"] = weight
    return module


def with_forward(module: Any) -> Any:
    module.forward = module.forward
    return module


def compiled_alone(module: Any) -> Any:
    module._compiled_call_impl = module._call_impl
    return module


def hooked(module: Any, kind: str = "") -> Any:
    register = {
        "": module.register_forward_hook,
        "pre": module.register_forward_pre_hook,
        "backward": module.register_full_backward_hook,
        "backward_pre": module.register_full_backward_pre_hook,
    }
    register[kind](lambda *_: None)
    return module


@on_emulator
def taken_over(module: Any, activation: Any) -> Any:
    found = layers.Linear.from_torch(module, activation)
    flags = found.training, found.weight is module.weight, found.bias is module.bias, found.activation
    return repr(found), type(found).__name__, flags, sorted(found.state_dict())


@on_emulator
def way(module: Any, x: Any, residual: Any, how: str) -> Any:
    """A layer's result, and which way it went."""
    contexts: dict[str, Callable[[], Any]] = {
        "no_grad": torch.no_grad,
        "compiling": lambda: mock.patch.object(torch.compiler, "is_compiling", lambda: True),
        "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    }
    ways: list[str] = []

    def note(name: str, function: Any) -> Any:
        def call(*args: Any, **given: Any) -> Any:
            ways.append(name)
            return function(*args, **given)

        return call

    module.requires_grad_(how != "frozen")
    operator = torch.ops.tilewise.linear
    with (
        mock.patch.object(layers, "tw", SimpleNamespace(linear=note("tw.linear", tw.linear))),
        mock.patch.object(operators, "linear", note("operators.linear", operators.linear)),
        mock.patch.object(torch.ops.tilewise, "linear", note("the operator", operator)),
        contexts.get(how, contextlib.nullcontext)(),
    ):
        found = module(x) if residual is None else module(x, residual)
    return found, ways


@on_emulator
def again(module: Any) -> Any:
    return repr(module), module(n(2, 3))


def loaded() -> Any:
    plain, fresh = (
        fill_parameters(nn.Linear(3, 4, dtype=torch.float64)),
        layers.Linear(3, 4, dtype=torch.float64),
    )
    fresh.load_state_dict(plain.state_dict())
    return fresh


# ── patching ─────────────────────────────────────────────────────────────────────────────────────────────


def shared() -> Any:
    """A layer that is used twice, of which an activation follows one use alone."""
    one = lin()
    return seq(seq(one, nn.ReLU()), one)


def repeated() -> Any:
    norm = nn.Tanh()
    return seq(lin(), nn.Identity(), norm, lin(), norm)


def tied() -> Any:
    model = seq(lin(), nn.ReLU(), lin(), nn.SiLU())
    model[2].weight = model[0].weight
    return model


def absent() -> Any:
    """A Sequential that has lost modules."""
    model = seq(lin(), nn.ReLU(), lin(), nn.Tanh())
    model._modules["1"] = None
    return nn.ModuleList([model, seq(lin(), nn.ReLU())])


def mixed() -> Any:
    return nn.ModuleDict({"attention": nn.MultiheadAttention(4, 2), "own": Own(3, 3), "plain": lin()})


def named() -> Any:
    return nn.Sequential(
        OrderedDict(up=lin(), act=nn.GELU(), down=nn.Sequential(OrderedDict(one=lin(), two=nn.ReLU())))
    )


def _kinds(model: Any) -> Any:
    return [
        (name, type(one).__name__, getattr(one, "activation", "-"), one.training)
        for name, one in model.named_modules()
        if name
    ]


@on_emulator
def patched(model: Any, **how: Any) -> Any:
    """What becomes of a model, and what does when that is undone."""
    before = _kinds(model) if isinstance(model, nn.Module) else []
    objects = [*model.modules()] if isinstance(model, nn.Module) else []
    try:
        found = patching.patch(model, **how)
    except ZeroDivisionError:
        return "as it was" if _kinds(model) == before else "changed"
    after, same = _kinds(model), [any(one is other for other in objects) for one in model.modules()]
    found.undo()
    back = all(one is other for one, other in zip(model.modules(), objects, strict=True))
    return str(found), found.to_dict(), after, same, back, _kinds(model) == before


@on_emulator
def trained(model: Any) -> Any:
    """Results and gradients before, while and after a model is patched: once in numbers, and whether others are near."""
    x, found = n(2, 3), []
    with patching.patch(model) as one:
        for undo in (False, True):
            if undo:
                one.undo()
            model.zero_grad()
            y = model(x)
            y.sin().sum().backward()
            found.append([y.detach(), *(each.grad for each in model.parameters())])
    near = [torch.allclose(ours, theirs, 1e-9, 1e-12) for ours, theirs in zip(*found, strict=True)]
    return found[0], near


@on_emulator
def undone(how: str) -> Any:
    """A patch that is undone after something else has changed the model."""
    model, x, more = seq(lin(), nn.GELU(approximate="tanh"), lin()), n(2, 3), None
    gelu = model[1]
    if how == "mode":
        model.eval()
    one = patching.patch(model)
    identity = type(model[1]).__name__, model[1].training
    if how == "moved":
        model.insert(0, nn.Identity())
    elif how == "slice":
        more = model[:2]
    elif how == "replaced":
        model[1] = nn.ReLU()
    elif how == "parametrised":
        torch.nn.utils.parametrizations.weight_norm(model[0])
    elif how == "parametrised alone":
        torch.nn.utils.parametrizations.weight_norm(model[2])
    elif how == "other activation":
        model[0].activation = "relu"
    elif how == "copied":
        more = copy.deepcopy(model)
    elif how == "gone":
        del model[1]
    if how == "with":
        with one as entered:
            entered.undo()
    said = []
    for _ in range(2 if how == "twice" else 1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            one.undo()
        said += [(str(each.message), os.path.basename(each.filename)) for each in caught]
    found = [
        _kinds(model),
        model(x),
        said,
        identity,
        [each is gelu for each in model],
        "activation" in vars(model[0]),
    ]
    if more is not None:
        found += [_kinds(more), more(x), repr(more)]
    return found
