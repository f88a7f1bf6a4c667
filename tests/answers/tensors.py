"""Products of PyTorch's tensors: results, derivatives, what is saved for those, and what is refused.

Numbers are multiples of 1/64, so that sums of products are exact; others are shown by as many digits as every machine has.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import math
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch as imported_torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import tilewise
import tilewise.interop.torch
from tests.answers.shown import show
from tests.fake_device import FakeDevice
from tilewise import calls, interop
from tilewise.bound import Bound
from tilewise.interop.torch import activation_gradients, gradients, layers, operators, tensors, terms
from tilewise.interop.torch.batching import product_shape
from tilewise.operands import ALIGNMENT_MOST

torch: Any = imported_torch

LINES = """
derived(product('«matmul|op|kept|again»', «None|'relu'|'gelu'|'gelu_tanh'|'silu'|'tanh'|'sigmoid'»), n(2, 3), n(3, 4), n(4), None, n(1, 4))
derived(product('«matmul|op|again»', «'relu'|'gelu'|'gelu_tanh'|'silu'|'tanh'|'sigmoid'»), n(2, 3), n(3, 4), n(4), None, None)
derived(product('«matmul|op|kept|again»', 'silu', «1.0|0.5», «1.0|-2.0»), n(2, 3), n(3, 4), n(4), n(2, 4), n(2, 4))
derived(product('«matmul|op|kept|again»', «None|'silu'», «1.0|0.5», -2.0), n(2, 3), n(3, 4), None, n(2, 4))
derived(product('«matmul|again»', «None|'silu'», 0.5, 3.0), n(2, 3), n(3, 4), «n(4)|n(1)|n(2, 1)|n()», «n(2, 4)|n(4)|n(1, 1)», «None|n(2, 1)»)
derived(product('«matmul|op|again»', 'silu', 0.5, -2.0), n(2, 3), n(3, 4), n(4), n(2, 4), n(2, 4), needs='«0|1»«0|1»«0|1»«0|1»«0|1»')
derived(product('«matmul|op»', «None|'tanh'»), n(2, 3), n(3, 4), n(4), n(2, 4), n(2, 4), needs='«0|1»«0|1»«0|1»«0|1»«0|1»', order=1)
derived(layer('«linear|op|module|functional»', «None|'tanh'|'silu'»), n(2, 3), n(4, 3), «None|n(4)», «None|n(4)»)
derived(layer('«linear|op|module»', 'silu'), n(2, 3), n(4, 3), n(4), n(2, 4), needs='«0|1»«0|1»«0|1»«0|1»', order=1)
derived(layer('«linear|op|module»', «None|'silu'»), n(«3|2, 2, 3|0, 3|2, 0, 3|1, 3», at=1), n(4, 3), n(4), «None|n(4)»)
derived(layer('«linear|op»'), «n(3, 2).T|n(4, 6)[::2, 1::2]|n(3).expand(2, 3)|n(2, 3, 2).mT», «n(4, 3)|n(3, 4).T|n(8, 6)[::2, ::2]»)
derived(product('matmul', «None|'silu'»), «n(2, 3)|n(3, 2).T|n(3)|n(2, 2, 3)|n(2, 1, 2, 3)|n(2, 3, 2).mT|n(0, 3)|n(0, 2, 3)|n(1, 2).T.expand(2, 3)», «n(3, 4)|n(4, 3).T|n(3)|n(2, 3, 4)|n(3, 3, 4)|n(2, 4, 3).mT|n(3, 0)»)
derived(product('«op|again»', 'silu'), «n(3, 2).T|n(3)|n(2, 1, 2, 3)|n(2, 3, 2).mT», «n(4, 3).T|n(3)|n(3, 3, 4)|n(2, 4, 3).mT|n(3, 0)»)
derived(product('matmul', None, 0.5), «n(2, 0)|n(2, 2, 0)|n(0)», «n(0, 4)|n(0)»)
derived(product('«matmul|again»', 'silu', 0.5, -2.0), «n(3)|n(2, 2, 3)», «n(3)|n(3, 4)|n(2, 3, 4)», «n(1)|n()|None», «n()|n(1)»)
derived(product('matmul'), «n(2, 3)|n(1, 3)|n(3, 1)|n(1, 1)», «n(3, 4)|n(3, 1)|n(1, 3)|n(1, 1)»)
derived(product('«matmul|op»', None, 0.5, -2.0), n(2, 3, dtype=«'complex128'|'float64'»), n(3, 4, dtype='complex128'), «None|n(4, dtype='complex128')», «None|n(4, dtype='complex128')»)
derived(product('matmul'), n(3, 2, dtype='complex128').T, n(4, 3, dtype=«'complex128'|'float64'»).T), derived(layer('linear'), n(3, 2, dtype='complex128').T, n(4, 3, dtype=«'complex128'|'float64'»))
derived(product('«matmul|op»'), n(2, 3, dtype='complex128')«.conj()|.resolve_conj()», n(3, 4, dtype='complex128')), derived(product('matmul'), n(2, 3, dtype='complex128').«imag|conj().imag|real», n(3, 4))
derived(product('«matmul|op»'), n(2, 3, dtype=«'float32'|'float64'|'float16'|'bfloat16'»), n(3, 4, dtype=«'float32'|'float64'|'bfloat16'»), needs='«11|01|10»', order=1)
derived(product('«matmul|op»', «None|'relu'»), n(2, 3, dtype='float32'), n(3, 4, dtype='float32'), n(4, dtype=«'float32'|'float16'»), None, n(4, dtype=«'float32'|'bfloat16'»), order=1)
derived(product('«matmul|op»'), n(2, 3, dtype='float64'), n(3, 4, dtype=«'int8'|'int32'|'int64'|'bool'|'float8_e5m2'»), needs='10', order=1)
derived(product('again'), n(2, 3, dtype=«'float32'|'float16'|'int8'»), n(3, 4, dtype=«'float32'|'bfloat16'|'int8'»), needs='00')
derived(lambda a, b: tw.matmul(a, b, bias=«b[0]|a[:, :1]|(a @ b)», residual=«a @ b|None», activation='silu'), n(2, 3), n(3, 4))
derived(lambda a: «tw.matmul(a, a.mT)|tw.linear(a, a)|tw.matmul(a, a.mT, c=a @ a.mT)|tw.linear(a, a, a[:, 0])», n(2, 3))
launched(lambda: derived(product('«matmul|op»', «None|'silu'», 1.0, 0.0), n(2, 3), n(3, 4), None, n(2, 4)«|.fill_(float('inf'))», order=1))
kept(product('«matmul|op|kept|again»', «None|'relu'|'gelu'|'silu'|'tanh'|'sigmoid'»), n(2, 3), n(3, 4), n(4), n(2, 4), «None|n(4)», needs='«111|100|010|001|000»11')
kept(layer('«linear|op|module»', «None|'relu'|'silu'»), n(2, 3), n(4, 3), n(4), «None|n(4)», needs='«111|100|010|001|000»1')
launched(lambda: product('«matmul|op|kept|again»', «None|'silu'», «1.0|0.5», -2.0, «None|DEVICE»)(n(2, 3), n(3, 4), «None|n(4)», «None|n(2, 4)», «None|n(4)»))
launched(lambda: product('«matmul|op|kept|again»', «None|'relu'|'silu'», 0.5, «1|0.0»)(n(2, 3), n(3, 4), None, n(2, 4)))
launched(lambda: derived(product('«matmul|op|kept|again»', «None|'relu'|'silu'», 0.5, -2.0), n(«2, 3|3|2, 2, 3»), n(3, 4), «None|n(4)», n(4), order=1))
launched(lambda: derived(layer('«linear|op|module»', «None|'silu'», device=«None|'emulator'»), n(«2, 3|2, 2, 3»), n(4, 3), «None|n(4)», needs='«11|10|01»1', order=1))
launched(lambda: derived(product('matmul'), «n(2, 3)|n(3, 2).T», «n(3, 4)|n(4, 3).T», order=«1|2»)), launched(lambda: derived(layer('linear'), «n(2, 3)|n(3, 2).T», «n(4, 3)|n(3, 4).T», order=«1|2»))
t(lambda: torch.ops.tilewise._product(n(2, 3), n(3, 4), n(4), None, None, «None|'relu'|'silu'», 1.0, 1.0, «True|False»«|, None|, 'emulator'»))
t(lambda: torch.ops.tilewise._product(n(2, 3), n(3, 4)«|, n(4)|, None, n(4)|, None, None, n(4)|, None, None, None, None, 0.5»))
both(lambda a, b: torch.ops.tilewise._product(a, b, None, None, None, «'silu'|'relu'|None», 1.0, 1.0, True), n(2, 3), n(3, 4), '«11|10|01»', '«11|10|01»')
both(lambda a, b: torch.ops.tilewise._product(a, b, n(4), n(2, 4), n(4), 'silu', 0.5, -2.0, True), n(2, 3), n(3, 4), '«11|10|01»', '«11|10|01»')
passed(product('matmul', «'silu'|'relu'|None»), n(2, 3), n(3, 4), «n(4)|n(2, 4)|n(1)|None|n(4, dtype='float32')», None, «None|n(4)», needs='«111|110|011»11', gives=«'both'|'neither'»)
passed(layer('linear', «'gelu'|None»), n(«2, 3|2, 2, 3|3»), n(4, 3), n(4), needs='111', gives=«'both'|'neither'»)
passed(lambda *given: torch.ops.tilewise._product(*given, None, None, «'silu'|None», 1.0, 1.0, True), n(2, 3), n(3, 4), n(4), needs='111', gives='both', beside=«0|1»)
went_back(«None|'relu'|'silu'», «True|False», «True|False»), went_back('gelu', False, True, «'grad'|'cpu'|'few'|'captured'|'func'|'watched'|'float64'|'empty'|'vector'|'turned'|'kept turned'|'kept of another shape'|'kept of another type'|'kept elsewhere'|'negative'|'stack'|'without'|'exactly'»)
went_back(None, False, «True|False», 'without')
on_gpu((«1|3|200», 5), «None|'gelu'», «True|False», «True|False», 'float16'), on_gpu((2, 3, 5), 'relu', True, True, 'bfloat16')
t(lambda: [product_shape(«()|(3,)|(2, 3)|(5, 2, 3)|(4, 1, 2, 3)», «()|(3,)|(3, 4)|(5, 3, 4)|(2, 3, 4)|(2,)|(4, 3)|(4, 5, 3, 1)»)])
t(lambda: terms.result_dtype(n(1, dtype=«'float16'|'bfloat16'|'float32'|'float64'|'complex64'|'int8'|'uint8'|'int32'|'int64'|'bool'|'float8_e4m3fn'|'float8_e5m2'»), n(1, dtype=«'float16'|'bfloat16'|'float32'|'float64'|'complex64'|'int8'|'int32'|'int64'|'float8_e4m3fn'|'uint8'»)))
t(lambda: terms.needs_pre(«None|'relu'|'gelu'|'gelu_tanh'|'silu'|'tanh'|'sigmoid'», «None|n(1)»))
t(lambda: terms.check_activation(«None|'relu'|'Relu'|''|'acc'|5|'gelu_tanh'|'keep'»)), t(lambda: terms.have_tangents([n(1), None])), t(lambda: terms.needs_dispatcher([«None|n(1)|n(1).to('meta')|fake(1)», «None|n(1).to('meta')»]))
t(lambda: tw.linear(«X|X.detach()», «W|W.detach()», «None|n(4)», out=«None|n(2, 4)», plan=«None|tw.plan(2, 4, 3, dtype='float64')», copy=«None|False», arithmetic=«None|'f64'»))
t(lambda: tw.matmul(«X|X.detach()», W.T, «out=n(2, 4)|out=W|epilogue=tw.epilogue('acc * 2')|epilogue=tw.epilogue('acc + x', x=W[0, 0].detach())|plan=tw.plan(2, 4, 3, dtype='float64')|copy=True|copy=False|arithmetic='f64'|scale_a=2.0|scale_a=torch.ones(2, 1)|scale_b=torch.ones(1, 4).requires_grad_()»))
t(lambda: tw.matmul(n(2, 3), n(3, 4), out=«n(2, 4)|n(2, 4).requires_grad_()|n(4, 2).T|n(2, 4, dtype='float32')|n(2, 5)|n(2, 4).conj()|np.zeros((2, 4))», bias=«None|n(4)»))
t(lambda: operators.refuse(out=None, «plan|epilogue|split_float32|scale_b|copy|arithmetic»=«None|1|False»)), t(lambda: operators.refuse(**{'weight.scale': 1}))
t(lambda: tw.matmul(quantized(2, 3, axis=-1), W.T.float())), t(lambda: tw.linear(X.float(), «quantized(4, 3, axis=-1)|quantized(4, 3, axis=-1, dtype='bfloat16')»)), t(lambda: tw.matmul(X.float(), tw.split_float32(n(3, 4, dtype='float32'), axis=-2)))
t(lambda: tw.linear(«X|X[0, 0]|NESTED|np.ones((2, 3))|[[1.0, 2.0, 3.0]]|X.to('meta')|X[:, :2]», «W|W.T|W[0]|W[None]|W.detach().numpy()|W.to('meta')|W.long()|W.float()», activation=«None|'swish'»))
t(lambda: tw.linear(«X|X.detach()», W, «np.zeros(4)|n(3)|n(4).to('meta')|5.0|n(4, dtype='complex64')|n(1, 1, 4)», residual=«None|np.zeros(4)|n(3)|n(4).to('meta')»))
t(lambda: tw.matmul(«X|np.ones((2, 3))|X[0, 0]|NESTED», «W.T|W|np.ones((3, 4))|W.T.to('meta')|W[0, 0]|W.T.long()», bias=«None|np.zeros(4)|n(5)|n(4).to('meta')»))
t(lambda: tw.matmul(X, W.T, «alpha='2'|alpha=n()|alpha=None|beta=2.0|beta='2'|c=n(4), beta=n()|c=n(5)|c=np.zeros(4)|c=n(4).to('meta')|residual=n(3, 2, 4)|residual=[1.0]|activation='Relu'|activation=5|device='nowhere'|device=5|device=DEVICE|c=n(4), beta=0|c=n(5), beta=0.0|c=n(4), beta=None|c=n(4), beta=3|alpha=True|bias=n(2, 1, 1)»))
t(lambda: torch.ops.tilewise.matmul(«X|X.to('meta')|X[0, 0]», «W.T|W|W.T.to('meta')», «None|n(5)», activation=«None|'exp'»))
t(lambda: torch.ops.tilewise.linear(«X|X[0, 0]|NESTED|X.to('meta')», «W|W.T|W[0]|W.to('meta')», «None|n(3)|n(4)», «None|'relu(acc)'»))
t(lambda: torch.ops.tilewise.«linear(X, W, device='nowhere')|matmul(X, W.T, device='nowhere')|linear(n(2, 3), n(4, 3), device='nowhere')|linear(X, W, None, None, None, 'emulator')|matmul(X, W.T, c=n(4), beta=0.0)|matmul(n(2, 3), n(3, 4), c=n(4), beta=0.0)|matmul(X, W.T, alpha=0.0)|linear(n(2, 3), n(4, 3), residual=n(5, 4))»)
really(lambda: tw.grouped_matmul(«n(4, 3)|n(4, 3).requires_grad_()|n(3, 4).T|n(4, 3).to('meta')|n(4, 3, dtype='float32')|n(4, 3).neg()», «n(2, 3, 2)|n(2, 2, 3).mT|n(2, 3, 2).requires_grad_()|n(2, 3, 2).numpy()», torch.tensor([1, 4], dtype=torch.int32)))
really(lambda: tw.grouped_matmul(n(4, 3), n(2, 3, 2), «torch.tensor([1, 4])|torch.tensor([1.0, 4.0])|[1, 4]|torch.tensor([1, 4], dtype=torch.int32)», out=«None|n(4, 2)|n(4, 2).requires_grad_()|n(2, 4).T», device=«None|DEVICE»))
really(lambda: tw.batched_matmul(«n(2, 2, 3)|[n(2, 3), n(2, 3, at=1)]|[n(2, 3), n(3, 2).T]|[n(2, 3).requires_grad_(), n(2, 3)]|[n(2, 3), n(2, 3).to('meta')]|[n(2, 3), n(2, 3).numpy()]|n(2, 2, 3).requires_grad_()|[n(2, 3), n(2, 3, dtype='float32')]», «n(2, 3, 2)|[n(3, 2), n(3, 2, at=1)]|n(3, 2)|[n(3, 2).requires_grad_()] * 2»))
t(lambda: func.«vmap|grad|functionalize»(lambda x: tw.«grouped_matmul(x, n(1, 3, 2), torch.tensor([2]))|batched_matmul(x[None], n(1, 3, 2))|matmul(x, n(3, 2), out=n(2, 2))|linear(x, np.ones((4, 3)))|matmul(x, n(3, 2), bias=n(3, 2, 2))|linear(x, n(4, 3), n(4).to('meta'))|linear(x, n(2, 2))|matmul(x, n(2, 2))|matmul(x, n(3, 2), activation='swish')».sum())(n(2, 2, 3)«|[0]»))
really(lambda: derived(layer('«linear|op»', «None|'silu'»), n(2, 3), n(4, 3), n(4))), really(lambda: derived(product('«matmul|kept»', None, 0.5), n(2, 2, 3, dtype='float32'), n(3, 4, dtype='float32'), order=1))
really(lambda: [func.vmap(func.grad(squares(layer('«linear|op»'))), (0, None))(n(2, 2, 3), n(4, 3)), made()(n(2, 3))])
"""

tw: Any = tilewise
nn: Any = torch.nn
func: Any = SimpleNamespace(**{name: getattr(torch.func, name) for name in torch.func.__all__})
DispatchMode: Any = TorchDispatchMode
forward_ad: Any = torch.autograd.forward_ad
DEVICE = tw.device("emulator", threads=2)
_matmul_module: Any = importlib.import_module(
    "tilewise.matmul"
)  # the package has the function under that name
_DIGITS = {torch.float64: 5, torch.complex128: 5, torch.float32: 3, torch.complex64: 3}  # 3 of narrower ones
_FLOATS = ("float64", "float32", "float16", "bfloat16", "complex128", "complex64")


# ── tensors, and how they are shown ──────────────────────────────────────────────────────────────────────


def n(*shape: int, at: int = 0, dtype: str = "float64") -> Any:
    """Numbers of both signs, each another one: multiples of 1/64, or what another type makes of them."""
    found = _numbers(shape, at, dtype)
    wide = torch.complex128 if dtype.startswith("complex") else torch.float64
    return torch.tensor(found, dtype=wide).reshape(shape).to(getattr(torch, dtype))


@functools.cache
def _numbers(shape: tuple[int, ...], at: int, dtype: str) -> list[Any]:
    count = math.prod(shape)
    steps = [i * 37 + 11 * count + 29 * len(shape) + 17 * at + 5 for i in range(count)]
    if dtype.startswith("complex"):
        return [complex((step % 101 - 50) / 64, (step * 5 % 89 - 44) / 64) for step in steps]
    if dtype in _FLOATS:
        return [(step % 101 - 50) / 64 for step in steps]
    return [step % 5 - (2.0 if dtype.startswith(("int", "float")) else 0.0) for step in steps]


X, W = n(2, 3).requires_grad_(), n(4, 3).requires_grad_()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they are a prototype
    NESTED = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 3)])


def _number(value: Any, digits: int) -> str:
    if isinstance(value, complex):
        return f"{_number(value.real, digits)}{'' if value.imag < 0 else '+'}{_number(value.imag, digits)}j"
    least = 1e-12 if digits > 3 else 1e-7
    return f"{0.0 if abs(value) < least else value:.{digits}g}"


def told(value: Any) -> str:
    """Tensors by type, shape, strides unless they are dense, and numbers; and what else there may be."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(told, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {told(one)}' for key, one in value.items())}}}"
    if isinstance(value, torch.dtype):
        return str(value)
    if not isinstance(value, torch.Tensor):
        return show(value)
    kind = "" if type(value) is torch.Tensor else f"{type(value).__name__} "
    dense = value.is_contiguous() or value.numel() < 2
    head = f"{kind}{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}{'' if dense else f' by {value.stride()}'}{_way(value)}"
    if value.is_meta or kind == "FakeTensor ":
        return f"{head} of nothing"
    plain = value.detach().resolve_conj().resolve_neg().as_subclass(torch.Tensor)
    wide = plain if plain.dtype.is_complex else plain.double()
    digits = _DIGITS.get(value.dtype, 3)
    return f"{head} {' '.join(_number(one, digits) for one in wide.reshape(-1).tolist())}"


def _way(tensor: Any) -> str:
    """By which of ours a tensor has been recorded, if any."""
    if not tensor.requires_grad:
        return ""
    name = type(tensor.grad_fn).__name__
    return f" {name}" if "Product" in name or "Linear" in name else " recorded"


@contextlib.contextmanager
def _emulator_asked_for() -> Iterator[None]:
    """NOTE: mock.patch.dict would write all variables anew, for each answer."""
    before = os.environ.get("TILEWISE_DEVICE")
    os.environ["TILEWISE_DEVICE"] = "emulator"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TILEWISE_DEVICE"]
        else:
            os.environ["TILEWISE_DEVICE"] = before


_DEPTH: list[str] = []  # the calls that go on
# What is bound and runs nothing is remembered apart from what does, all of it, and however arrays are aligned.
_REMEMBERED: dict[str, Any] = {
    "_remembered": OrderedDict(),
    "_MOST": 1 << 14,
    "_ALIGNMENTS": (256,) * ALIGNMENT_MOST,
}


def on_emulator(function: Callable[..., Any]) -> Callable[..., str]:
    """A function whose products are as on the emulator, and whose answer is told."""

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> str:
        with contextlib.ExitStack() as stack:
            if not _DEPTH:
                stack.enter_context(_emulator_asked_for())
                if function.__name__ != "really":
                    # What is bound for this runs nothing.
                    stack.enter_context(
                        mock.patch.object(calls, "bind", lambda *_, **__: Bound(DEVICE, (), ()))
                    )
                    stack.enter_context(mock.patch.object(_matmul_module, "start", _multiply))
                    stack.enter_context(mock.patch.multiple(calls, **_REMEMBERED))
            _DEPTH.append(function.__name__)
            stack.callback(_DEPTH.pop)
            found = function(*args, **given)
            return found if isinstance(found, str) else told(found)

    return call


def _multiply(_made: Any, arrays: Any, _where: Any, _streams: Any) -> None:
    """What stands for a launch: a product in float64 by NumPy, and what happens to the sums."""
    a, b, out = (interop.numpy_of(one) for one in arrays[:3])
    fused = arrays.fused
    given = {name: interop.numpy_of(view) for name, view in fused.arrays.items()}

    def keep(array: Any, value: Any) -> Any:
        array[...] = value
        return value

    with np.errstate(all="ignore"):
        acc = np.matmul(_wide(a), _wide(b))
        read = {name: one if name in fused.written else _wide(one) for name, one in given.items()}
        out[...] = eval(
            fused.expression, {**_FUNCTIONS, "keep": keep, "acc": acc, **dict(fused.numbers), **read}
        )


def _wide(array: Any) -> Any:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


_erf = np.vectorize(math.erf, otypes=[np.float64])
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2 if np.size(x) else x,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@on_emulator
def really(work: Callable[[], Any]) -> Any:
    """The same by the emulator itself."""
    return work()


@on_emulator
def t(work: Callable[[], Any]) -> Any:
    return work()


@on_emulator
def within(context: Callable[[], Any], work: Callable[[], Any]) -> Any:
    with context():
        return work()


# ── products ─────────────────────────────────────────────────────────────────────────────────────────────


def product(
    name: str, activation: str | None = None, alpha: float = 1.0, beta: float = 1.0, device: Any = None
) -> Callable[..., Any]:
    """A product by tw.matmul, by the operator, or by what that is made of: what an activation was given kept, or not."""

    def multiply(a: Any, b: Any, bias: Any = None, c: Any = None, residual: Any = None) -> Any:
        if name == "matmul":
            given = {"activation": activation, "device": device, "beta": None if c is None else beta}
            return tw.matmul(a, b, bias=bias, c=c, residual=residual, alpha=alpha, **given)
        where = getattr(device, "name", device)
        more = a, b, bias, c, residual, activation, alpha, beta
        if name == "op":
            return torch.ops.tilewise.matmul(*more, where)
        return torch.ops.tilewise._product(*more, name == "kept", where)[0]

    return multiply


def layer(name: str, activation: str | None = None, device: Any = None) -> Callable[..., Any]:
    """A linear layer by tw.linear, by the operator, by a module that has these parameters, or gets them."""
    modules = [layers.Linear(3, 4, bias, "meta", activation=activation) for bias in (False, True)]

    def call(x: Any, weight: Any, bias: Any = None, residual: Any = None) -> Any:
        if name == "linear":
            return tw.linear(x, weight, bias, activation=activation, residual=residual, device=device)
        if name == "op":
            return torch.ops.tilewise.linear(x, weight, bias, activation, residual, device)
        module = modules[bias is not None]
        parameters = {"weight": weight} | ({} if bias is None else {"bias": bias})
        if name == "functional":
            return func.functional_call(module, parameters, (x, residual))
        for one in ("weight", "bias"):
            module._parameters.pop(one, None)
            vars(module)[one] = parameters.get(one)
        return module(x, residual)

    return call


def prepare_operands(operands: Any, needs: str) -> list[Any]:
    """The operands that need gradients: of numbers that can have them."""
    needing = []
    for one, need in zip(operands, needs, strict=False):
        if one is not None and need == "1":
            needing.append(one.requires_grad_())
    return needing


def sum_of(found: Any) -> Any:
    """A number that each of these goes into in another way."""
    total = 0
    for at, one in enumerate(found):
        if one is not None and one.requires_grad:
            part = (one * n(*one.shape, at=3 + at).to(one.dtype)).sum()
            total = total + (part.real if part.is_complex() else part)
    return total


@on_emulator
def derived(function: Callable[..., Any], *operands: Any, needs: str = "11111", order: int = 2) -> Any:
    """A result, its gradients, and gradients of those, the direction's too."""
    needing = prepare_operands(operands, needs)
    y = function(*operands)
    if not y.requires_grad:
        return y
    direction = n(*y.shape, at=1).to(y.dtype)
    if order == 1:
        return y, torch.autograd.grad(y, needing, direction, allow_unused=True)
    needing.append(direction.requires_grad_())
    firsts = torch.autograd.grad(y, needing[:-1], direction, allow_unused=True, create_graph=True)
    total = sum_of(firsts)
    seconds = (
        torch.autograd.grad(total, needing, allow_unused=True)
        if isinstance(total, torch.Tensor) and total.requires_grad
        else None
    )
    return y, firsts, seconds


@on_emulator
def both(function: Callable[..., Any], a: Any, b: Any, needs: str, used: str) -> Any:
    """Gradients of a result, of what was kept, or of both."""
    needing = prepare_operands((a, b), needs)
    results = function(a, b)
    outputs = [one for one, use in zip(results, used, strict=True) if use == "1" and one.requires_grad]
    if not outputs:
        return results
    firsts = torch.autograd.grad(sum_of(outputs), needing, allow_unused=True, create_graph=True)
    again = sum_of(firsts)
    seconds = (
        torch.autograd.grad(again, needing, allow_unused=True) if isinstance(again, torch.Tensor) else None
    )
    return results, firsts, seconds


@on_emulator
def kept(function: Callable[..., Any], *operands: Any, needs: str = "11111") -> Any:
    """What is saved for a backward pass."""
    prepare_operands(operands, needs)
    names = {one.data_ptr(): name for name, one in zip("abcde", operands, strict=False) if one is not None}
    saved: list[Any] = []

    def keep(tensor: Any) -> Any:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = function(*operands)
    names[y.data_ptr()] = "result"
    return _way(y), [(names.get(one.data_ptr(), "another"), one.shape, one.stride()) for one in saved]


@on_emulator
def launched(work: Callable[[], Any]) -> Any:
    """The products that are launched for a call, with what they are given, and its answer."""
    launches: list[Any] = []
    matmul = tw.matmul

    def note(a: Any, b: Any, *args: Any, **given: Any) -> Any:
        more = {name: one for name, one in given.items() if one is not None}
        if "epilogue" in more:
            more["epilogue"] = more["epilogue"].expression.text
        for name in ("bias", "c", "residual"):
            if name in more:
                more[name] = tuple(more[name].shape)
        if "device" in more:
            more["device"] = getattr(more["device"], "name", more["device"])
        launches.append((tuple(a.shape), a.stride(), tuple(b.shape), b.stride(), len(args), more))
        return matmul(a, b, *args, **given)

    with mock.patch.object(tw, "matmul", note):
        found = told(work())
    return found, launches


@on_emulator
def passed(function: Callable[..., Any], *operands: Any, needs: str, gives: str, beside: int = 0) -> Any:
    """Gradients where a launch of a GPU gives dY · activation'(P), and sums of columns: what it is asked for."""
    asked: list[Any] = []

    def pass_back(gradient: Any, saved: Any, name: Any, from_result: Any, with_sums: Any) -> Any:
        asked.append((gradient, saved, name, from_result, with_sums))
        if gives == "neither" or torch.is_grad_enabled():
            return None
        sums = n(gradient.shape[-1], at=9) if with_sums and gives == "both" else None
        return activation_gradients.Passed(gradient * 2 if name else gradient, sums)

    needing = prepare_operands(operands, needs)
    with mock.patch.object(gradients, "pass_back", pass_back):
        made_ = function(*operands)
        y, *others = made_ if isinstance(made_, tuple) else (made_,)
        outputs = [y, *others[:beside]]
        found = torch.autograd.grad(
            outputs, needing, [n(*one.shape, at=1) for one in outputs], allow_unused=True
        )
    return found, asked


class OnGpu(torch.Tensor):  # type: ignore[misc]  # its class is not known
    """What takes itself to lie on a GPU."""

    is_cuda = True


def _gpus(tensor: Any) -> Any:
    return tensor.as_subclass(OnGpu)


def went_back(name: str | None, from_result: bool, with_sums: bool, how: str = "") -> Any:
    """Whether a gradient is passed back by a launch, and by which."""
    gradient, saved = n(6, 4, dtype="float32"), n(6, 4, at=1, dtype="float32")
    few = {"few": 25, "captured": 25, "exactly": 24}.get(how, 1)
    changes: dict[str, Callable[[], Any]] = {
        "float64": lambda: (gradient.double(), saved.double()),
        "empty": lambda: (gradient[:0], saved[:0]),
        "vector": lambda: (gradient[0], saved[0]),
        "turned": lambda: (n(4, 6, dtype="float32").T, saved),
        "kept turned": lambda: (gradient, n(4, 6, dtype="float32").T),
        "kept of another shape": lambda: (gradient, n(1, 4, dtype="float32")),
        "kept of another type": lambda: (gradient, saved.half()),
        "kept elsewhere": lambda: (gradient, saved.to("meta")),
        "negative": lambda: (torch._neg_view(gradient), saved),
        "stack": lambda: (gradient.reshape(2, 3, 4), saved.reshape(2, 3, 4)),
        "without": lambda: (gradient, None),
    }
    gradient, saved = changes[how]() if how in changes else (gradient, saved)
    told_: list[Any] = []

    def note(shape: Any, used: Any) -> None:
        told_.append((shape, [(key, one.shape, str(one.dtype), one.is_cuda) for key, one in used.items()]))

    def modes(stack: contextlib.ExitStack) -> None:
        stack.enter_context(mock.patch.object(activation_gradients, "_launch", note))
        stack.enter_context(mock.patch.object(activation_gradients, "_WORTH", few))
        stack.enter_context(
            mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: how == "captured")
        )
        stack.enter_context(torch.enable_grad() if how == "grad" else torch.no_grad())
        if how == "func":
            stack.enter_context(mock.patch.object(torch._C, "_are_functorch_transforms_active", lambda: True))
        if how == "watched":
            stack.enter_context(mock.patch.object(torch._C, "_len_torch_dispatch_stack", lambda: 1))

    with contextlib.ExitStack() as stack:
        modes(stack)
        there = gradient if how == "cpu" else _gpus(gradient)
        found = activation_gradients.pass_back(
            there, None if saved is None else _gpus(saved), name, from_result, with_sums
        )
    if found is None:
        return "not by a launch"
    same = found.gradient is there
    sums = None if found.sums is None else (tuple(found.sums.shape), str(found.sums.dtype))
    return same, tuple(found.gradient.shape), str(found.gradient.dtype), sums, told_


def on_gpu(shape: tuple[int, ...], name: str | None, from_result: bool, with_sums: bool, dtype: str) -> Any:
    """What is bound for a gradient on a GPU, and where it is started."""
    bound: list[Any] = []
    gradient = n(*shape, dtype=dtype)
    device: Any = FakeDevice()
    sums = n(shape[-1], dtype=dtype) if with_sums else None

    def bind(steps: Any, on: Any) -> Any:
        bound.append(
            (
                on is device,
                [
                    (one.entry, one.launch.grid, one.code and (one.code.file.name, one.code.defines))
                    for one in steps
                ],
            )
        )
        return lambda places, stream: bound.append((sorted(places), stream))

    def view(argument: str, tensor: Any) -> Any:
        found: Any = interop.view(argument, tensor)
        return found._replace(space=(2, 3), library=SimpleNamespace(stream=lambda like: like.space))

    with mock.patch.multiple(
        activation_gradients,
        bind_steps=bind,
        gpu=SimpleNamespace(open=lambda number: [device, bound.append(number)][0]),  # type: ignore[func-returns-value]
        view=view,
    ):
        activation_gradients._bind.cache_clear()
        activation_gradients.pass_on_gpu(gradient, gradient, gradient, sums, name, from_result)
        activation_gradients._bind.cache_clear()
    return bound


def squares(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: (function(*args) ** 3).sum()


def fake(*shape: int) -> Any:
    with FakeTensorMode():
        return torch.empty(shape, dtype=torch.float64)


def quantized(*shape: int, axis: int, dtype: str = "int8") -> Any:
    """A tensor that is quantised, or is said to be."""
    values = n(*shape, dtype=dtype)
    return tw.Quantized(values, torch.ones([1 if at == axis % 2 else size for at, size in enumerate(shape)]))


def quantised() -> Any:
    return torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)


def fill_parameters(module: Any) -> Any:
    """A module whose parameters are numbers that are known."""
    with torch.no_grad():
        for at, one in enumerate(module.parameters()):
            one.copy_(n(*one.shape, at=at))
    return module


def made(activation: str | None = None, bias: bool = True) -> Any:
    return fill_parameters(layers.Linear(3, 4, bias, dtype=torch.float64, activation=activation))
