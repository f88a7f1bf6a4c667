"""Products of PyTorch's tensors that are transformed, mapped, recorded in forward mode or traced; tensors without memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch as imported_torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tilewise
import tilewise.interop.torch
from tests.answers.shown import show
from tests.answers.tensors import (
    DEVICE,
    DispatchMode,
    derived,
    fake,
    forward_ad,
    func,
    kept,
    launched,
    layer,
    made,
    n,
    on_emulator,
    prepare_operands,
    product,
    squares,
    sum_of,
    tw,
    within,
)
from tilewise import calls, interop
from tilewise.interop.torch import gradients, operators, tensors, terms

torch: Any = imported_torch

LINES = """
mapped(product('«matmul|op|kept|again»', «None|'silu'»), («0|None», «0|None», «0|None», None, «0|None»), n(3, 3, 3), n(3, 3, 4), n(3, 4), None, n(3, 4))
mapped(product('«matmul|op»', 'tanh', 0.5, -2.0), («0|1|-1», «None|0|1», None, 0), n(3, 3, 3), n(3, 3, 3), n(3), n(3, 1, 3), out=«0|1|-1»)
mapped(product('«matmul|op|again»'), (0, «0|None»), n(«3, 3|3, 2, 3|3, 2, 2, 3»), n(«3, 3|3, 3, 2|3, 2, 3, 2»)), mapped(product('matmul'), («None|0», 0), n(3, 3), n(3, 3, 2))
mapped(product('«matmul|op»', 'silu'), (0, «0|None», «0|None|1», «0|None», «None|0»), n(3, 3), n(3, 3, 3), n(3, 3), n(3, 3), n(3, 3))
mapped(product('«matmul|op»', 'silu'), (0, «0|None», «0|None», None, 0), n(3, «3|2, 3»), n(3, 3), n(3«|, 1|, 2»), None, n(3))
mapped(layer('«linear|op|module|functional»', «None|'silu'»), (0, «0|None», «0|None», 0), n(3, «3|2, 3»), n(3, 3, 3)«|[0]», n(3, 3), n(3, 3))
mapped(lambda x, w: torch.vmap(layer('«linear|op»', 'silu'), («0|None», «0|None»))(x, w), («0|1», 0), n(2, 2, 3), n(2, 2, 4, 3))
mapped(lambda x: tw.matmul(x, n(3, 4))«|.sum()», (0,), n(0, 2, 3))
transformed(lambda f: «func.grad(squares(f), (0, 1, 2))|func.jacrev(f, (0, 1, 2))|func.hessian(squares(f), 1)|func.jacfwd(f, 1)|func.jacrev(func.grad(squares(f), 1), 0)|func.grad_and_value(squares(f), 1)|func.vmap(func.grad(squares(f), (1, 2)), (0, None, None))|func.grad(lambda *a: func.vmap(f, (0, None, None))(*a).sin().sum(), (0, 1, 2))|func.vmap(func.jacrev(f, 1), (0, None, None))|func.functionalize(f)|func.grad(lambda *a: func.grad(squares(f), 0)(*a).sin().sum(), 1)», layer('«linear|op|module»', «None|'relu'|'silu'»), n(2, 3), n(4, 3), n(4))
transformed(lambda f: lambda *a: «func.vjp(f, *a)[1](n(2, 4))|func.jvp(f, a, (n(2, 3, at=1), n(4, 3, at=2), n(4, at=3)))|func.linearize(f, *a)[1](*a)|func.vjp(func.grad(squares(f), (0, 1)), *a)[1]((n(2, 3), n(4, 3)))|func.jvp(func.grad(squares(f)), a, a)|func.jvp(lambda x: func.vmap(f, (0, None, None))(x, a[1], a[2]), a[:1], a[:1])», layer('«linear|op|module»', «None|'tanh'|'gelu'»), n(2, 3), n(4, 3), n(4))
transformed(lambda f: «func.grad(squares(f), (0, 1, 2, 3, 4))|lambda *a: func.jvp(f, a, a)|func.hessian(squares(f), (2, 3))|lambda *a: func.vjp(f, *a)[1](n(2, 4))», product('«matmul|op|kept|again»', «None|'silu'|'gelu_tanh'», 0.5, -2.0), n(2, 3), n(3, 4), n(4), n(2, 4), n(4))
transformed(lambda f: func.grad(lambda a, *rest: func.grad(squares(f), «0|1|2»)(a, *rest).sin().sum(), «0|1»), product('«matmul|op»', «'silu'|'tanh'»), n(2, 3), n(3, 4), n(4))
launched(lambda: transformed(lambda f: «func.grad(squares(f), (0, 1))|func.vmap(f, (0, None))|func.vmap(func.grad(squares(f), 1), (0, None))|lambda *a: func.jvp(f, a, a)|func.functionalize(f)», product('«matmul|op»', «None|'tanh'|'silu'»), n(2, 3), n(3, 4)))
transformed(lambda f: lambda a, b: [escaped(f, a, b), torch.autograd.grad(f(escaped(lambda x, y: x, a, b), b.requires_grad_()).sum(), b)], product('matmul', «None|'silu'»), n(2, 3), n(3, 4))
captured(product('«matmul|op»', «None|'silu'»), n(2, 3), n(3, 4), «(0,)|(1,)»)
forward(product('«matmul|op|kept»', «None|'relu'|'gelu'|'gelu_tanh'|'silu'|'tanh'|'sigmoid'», «1.0|0.5», -2.0), '«11111|10000|01000|00100|00010|00001|00000»', n(2, 3), n(3, 4), n(4), n(2, 4), n(4))
forward(layer('«linear|op|module»', 'silu'), '«1111|1000|0100|0010|0001|0000»', n(2, 3), n(4, 3), n(4), n(4))
forward(product('«matmul|op»'), '«11|01|00»', n(2, 3, dtype=«'float32'|'float64'»), n(3, 4, dtype=«'float64'|'float32'»), «None|n(4, dtype='float32')»)
forward(product('matmul'), '10', n(2, 3), «n(2, 4)|n()|n(3, 4, dtype='int64')», «None|n(5)»), forward(product('«matmul|op»', 'silu'), '10', n(2, 3), n(3, 4), «n(5)|n(3, 2, 4)|None», «None|n(4, 4)», «None|n(2, 5)»)
forward(lambda a, b: «tw.matmul(a, b, out=n(2, 4))|tw.matmul(a, b, plan=tw.plan(2, 4, 3, dtype='float64'))|tw.matmul(n(2, 2), n(2, 2), out=a[:, :2])|interop.view('x', a)», '10', n(2, 3), n(3, 4))
together(layer('«linear|op»', «None|'silu'»), n(2, 3), n(4, 3), n(4))
without(product('«matmul|kept»', 'silu'), '«meta|fake|fake outside»', n(«2, 3|3|2, 2, 3», dtype='float32'), n(«3, 4|3|2, 3, 4|4, 3», dtype='float32'), «None|n(5)»)
without(product('«op|kept»', «None|'swish'», 1.0, 1.0, «None|'nowhere'»), 'meta', n(2, 3), n(3, 4, dtype=«'float64'|'int64'|'complex64'|'int8'»))
without(product('kept'), 'meta', n(2, 3), n(3, 4), «None|n(2, 1)|n(3, 1)|n(1, 1, 4)», «None|n(1, 4)|n(2)», «None|n(4, 4)»)
without(layer('«linear|op|module»', «None|'silu'»), '«meta|fake»', «n(2, 3)|n(3)|n(2, 4)|n()».float(), n(4, 3, dtype='float32'), «None|n(4)|n(3)»)
without(lambda a, b: tw.matmul(a, b, device=«DEVICE|None|'emulator'»), 'fake', n(2, 3), n(3, 4)), without(lambda a, b: torch.ops.tilewise._product(a, b, None, None, None, «None|'silu'», 1.0, 1.0, «True|False»), '«meta|fake»', n(2, 3), n(3, 4))
without(lambda a, b: tw.matmul(a, b, «out=n(2, 4)|arithmetic='f64'|epilogue=tw.epilogue('acc * 2')|copy=False»), '«meta|fake»', n(2, 3), n(3, 4))
recorded_without(product('«op|matmul|kept»', «None|'silu'»), n(2, 3), n(3, 4), n(4))
watched(lambda: «terms.needs_dispatcher([n(1)])|tw.matmul(n(2, 3), n(3, 4))|torch.ops.tilewise.matmul(n(2, 3), n(3, 4), None, None, None, 'silu')|tw.linear(n(2, 3).requires_grad_(), n(4, 3), activation='silu')|tw.linear(n(2, 3), n(4, 3).requires_grad_(), n(4), activation='relu')|tw.matmul(n(2, 3).requires_grad_(), n(3, 4), device=DEVICE)|made('silu')(n(2, 3))|torch.ops.tilewise.linear(n(2, 3).requires_grad_(), n(4, 3), n(4), 'silu').sum().backward()»)
watched(lambda: within(torch.no_grad, lambda: torch.ops.tilewise.«linear(n(2, 3).requires_grad_(), n(4, 3), None, 'silu')|matmul(n(2, 3), n(3, 4).requires_grad_(), None, None, n(4), 'relu')»)), watched(lambda: torch.ops.tilewise.matmul(n(2, 3), n(3, 4), None, None, n(4).requires_grad_(), «'relu'|None»))
traced(«layer('op', 'relu')|layer('module', 'silu')»)
within(torch.«no_grad|inference_mode|enable_grad», lambda: [grad_of(f) for f in («layer('linear', 'silu')|layer('op', 'silu')|layer('module')»,)])
within(torch.«no_grad|inference_mode», lambda: tw.matmul(n(2, 3).requires_grad_(), n(3, 4), «out=n(2, 4)|epilogue=tw.epilogue('acc * 2')|copy=True|bias=n(4).requires_grad_()»))
in_autocast(«layer('linear', 'relu')|layer('op', 'relu')|layer('module', 'relu')», n(2, 3, dtype=«'float32'|'float64'|'float16'|'int8'»), n(4, 3, dtype=«'float32'|'float64'»), «None|n(4, dtype='float32')»)
in_autocast(lambda x, w, *_: torch.ops.tilewise.matmul(x, w.mT«|, None, None, None, 'relu', 0.5|, c=n(4, dtype='float32'), beta=2.0»), n(2, 3, dtype=«'float32'|'float64'|'bfloat16'|'complex64'»), n(4, 3, dtype='float32'))
in_autocast(lambda *given: derived(layer('«op|module»', 'relu'), *given, order=1), n(2, 3, dtype='float32'), n(4, 3, dtype='float32'), n(4, dtype='float32'), n(4, dtype='float32')), in_autocast(lambda x, w: torch.ops.tilewise.linear(x.to('meta'), w.to('meta')), n(2, 3, dtype='float32'), n(4, 3, dtype='float32'))
flops(lambda: «tw.matmul(n(2, 3), n(3, 4))|torch.ops.tilewise.matmul(n(5, 2, 3), n(3, 4))|torch.ops.tilewise.matmul(n(3), n(3))|tw.linear(n(2, 3), n(4, 3))|tw.linear(n(2, 3).requires_grad_(), n(4, 3).requires_grad_()).sum().backward()|made('silu')(n(2, 3)).sum().backward()»)
batches(layer('«linear|op|module»', «None|'relu'|'silu'»), n(2, 3), n(4, 3), n(4)), vectorised(layer('«linear|op»', «None|'tanh'»), n(2, 3), n(4, 3))
changed(layer('«linear|op»', «'relu'|'silu'|None»), «'x'|'w'|'y'|'b'»), twice(layer('«linear|op»', 'silu'))
"""

# ── transforms ───────────────────────────────────────────────────────────────────────────────────────────


@on_emulator
def mapped(function: Callable[..., Any], in_dims: Any, *operands: Any, out: int = 0) -> Any:
    """What vmap makes of a function."""
    given = [one for one in zip(operands, in_dims, strict=False) if one[0] is not None]
    places = [at for at, one in enumerate(operands[: len(in_dims)]) if one is not None]

    def call(*args: Any) -> Any:
        every: list[Any] = [None] * len(operands)
        for at, one in zip(places, args, strict=True):
            every[at] = one
        return function(*every)

    return launched(
        lambda: torch.vmap(call, tuple(axis for _, axis in given), out)(*(one for one, _ in given))
    )


@on_emulator
def transformed(transform: Callable[..., Any], function: Callable[..., Any], *operands: Any) -> Any:
    return transform(function)(*operands)


def escaped(function: Callable[..., Any], a: Any, b: Any) -> Any:
    """A tensor of a transform that has ended."""
    found: list[Any] = []

    def note(x: Any) -> Any:
        found.append(function(x, b))
        return x.sum()

    func.grad(note)(a)
    return found[0]


@on_emulator
def captured(function: Callable[..., Any], a: Any, b: Any, inner: Any) -> Any:
    """A gradient of torch.func whose function holds tensors that autograd outside records."""
    prepare_operands((a, b), "11")
    other = b if inner == (0,) else a
    one = a.detach() if inner == (0,) else b.detach()
    call = (lambda x: function(x, b)) if inner == (0,) else (lambda x: function(a, x))
    found = func.grad(squares(call))(one)
    return found, torch.autograd.grad(sum_of([found]), other)


@on_emulator
def forward(function: Callable[..., Any], needs: str, *operands: Any) -> Any:
    """A result and its tangent, of operands some of which have one."""
    with forward_ad.dual_level():
        given = [
            forward_ad.make_dual(one, n(*one.shape, at=5 + at).to(one.dtype))
            if one is not None and need == "1"
            else one
            for at, (one, need) in enumerate(zip(operands, needs.ljust(5, "0"), strict=False))
        ]
        found = function(*given)
        return tuple(forward_ad.unpack_dual(found)) if isinstance(found, torch.Tensor) else show(found)


@on_emulator
def together(function: Callable[..., Any], x: Any, weight: Any, bias: Any) -> Any:
    """Tangents of what autograd records, too."""
    prepare_operands((x, weight, bias), "111")
    with forward_ad.dual_level():
        y, tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(x, n(2, 3, at=4)), weight, bias))
        return y, tangent, torch.autograd.grad(sum_of([tangent]), [x, weight, bias], allow_unused=True)


@on_emulator
def in_level(work: Callable[[Any], Any]) -> Any:
    with forward_ad.dual_level():
        return work(forward_ad.make_dual)


@on_emulator
def in_transform(name: str, work: Callable[[Any], Any]) -> Any:
    """What is answered inside of a transform."""
    found: list[Any] = []

    def call(x: Any) -> Any:
        found.append(show(work(x)))
        return x.sum()

    if name == "legacy":
        from torch._vmap_internals import _vmap

        _vmap(call)(n(2, 2))
    else:
        getattr(torch.func, name)(call)(n(2, 2))
    return found


@on_emulator
def without(function: Callable[..., Any], how: str, *operands: Any) -> Any:
    """What comes of tensors without elements."""
    if how == "meta":
        return function(*(one if one is None else one.to("meta") for one in operands))
    with FakeTensorMode() as mode:
        given = [one if one is None else mode.from_tensor(one) for one in operands]
        if how == "fake":
            return function(*given)
    return function(*given)


@on_emulator
def recorded_without(function: Callable[..., Any], *operands: Any) -> Any:
    """Gradients of tensors without elements."""
    given = [one.to("meta").requires_grad_() for one in operands]
    y = function(*given)
    firsts = torch.autograd.grad(y.sum(), given, create_graph=True)
    return y, firsts, torch.autograd.grad(sum(one.sum() for one in firsts), given, allow_unused=True)


class Seen(DispatchMode):  # type: ignore[misc]  # its class is not known
    """Notes our operators with what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace == "tilewise":
            plain = [tuple(one.shape) if isinstance(one, torch.Tensor) else one for one in args]
            self.calls.append((str(function), plain, kwargs))
        return function(*args, **(kwargs or {}))


@on_emulator
def watched(work: Callable[[], Any]) -> Any:
    with Seen() as seen:
        found = work()
    return found, seen.calls


@on_emulator
def traced(function: Callable[..., Any]) -> Any:
    """Our operators in what torch.jit.trace sees, and what that gives of another operand."""
    weight, bias = n(4, 3), n(4)
    found = torch.jit.trace(lambda x: function(x, weight, bias), n(2, 3), check_trace=False)
    kinds = [node.kind() for node in found.graph.nodes() if "tilewise" in node.kind()]
    return kinds, found(n(2, 3, at=1))


def grad_of(function: Callable[..., Any]) -> Any:
    y = function(n(2, 3).requires_grad_(), n(4, 3), n(4))
    return y, y.is_inference()


@on_emulator
def in_autocast(function: Callable[..., Any], *operands: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return function(*operands), torch.is_autocast_enabled("cpu")


@on_emulator
def flops(work: Callable[[], Any]) -> Any:
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


@on_emulator
def batches(function: Callable[..., Any], *operands: Any) -> Any:
    """Several gradients at once."""
    needing = prepare_operands(operands, "111")
    directions = n(2, 2, 4, at=6)
    return torch.autograd.grad(function(*operands), needing, directions, is_grads_batched=True)


@on_emulator
def vectorised(function: Callable[..., Any], x: Any, weight: Any) -> Any:
    return torch.autograd.functional.jacobian(lambda w: function(x, w), weight, vectorize=True)


@on_emulator
def changed(function: Callable[..., Any], which: str) -> Any:
    """A backward pass after a tensor has been changed: refused where it was saved."""
    given = {"x": n(2, 3), "w": n(4, 3), "b": n(4)}
    needing = n(2, 3, at=2).requires_grad_()
    y = function(needing + given["x"], given["w"], given["b"])
    with torch.no_grad():
        (y if which == "y" else given[which]).mul_(2)
    return torch.autograd.grad(y.sum(), needing)


@on_emulator
def twice(function: Callable[..., Any]) -> Any:
    """Two backward passes through one graph, and one more when it is gone."""
    x, w = n(2, 3).requires_grad_(), n(4, 3).requires_grad_()
    y = function(x, w)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    try:
        y.sum().backward()
    except RuntimeError:
        return x.grad, w.grad, "gone"
    return x.grad, w.grad, "still there"
