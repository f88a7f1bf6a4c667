"""PyTorch's tensors, in host memory and on GPUs."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

from tilewise.errors import ArgumentError
from tilewise.interop.view import CUDA, HOST, Library, View

__all__ = ["TorchLibrary", "keep_out_of_dynamo", "operators_for"]

_TYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class TorchLibrary(Library):
    """Tensors of ``torch``, which the caller has imported."""

    name = "torch"
    preference = 3

    def __init__(self) -> None:
        torch: Any = sys.modules["torch"]
        self._torch = torch
        self._names = {getattr(torch, name): name for name in _TYPES if hasattr(torch, name)}
        self._dtypes = {name: dtype for dtype, name in self._names.items()}
        self._complex = frozenset(dtype for dtype in self._names if dtype.is_complex)
        self._dense = torch.strided
        self._gradients_on: Callable[[], bool] = torch.is_grad_enabled
        self._forward_ad = torch.autograd.forward_ad
        self._plain = frozenset((torch.Tensor, torch.nn.Parameter))
        # Present where torch was built for CUDA; the public way makes a Stream object at every call.
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def view(self, argument: str, array: Any) -> View:
        """The view of a tensor. NOTE: every warm call runs this; what is rare is sorted out in ``_refusal``."""
        try:
            ptr, shape = array.data_ptr(), tuple(array.shape)
        except (RuntimeError, ValueError):
            raise self._refusal(argument, array) from None
        dtype = array.dtype
        if (
            dtype not in self._names
            or array.layout is not self._dense
            or (array.requires_grad and self._gradients_on())
            or array.is_neg()
            or (self._forward_ad._current_level >= 0 and _has_tangent(array))
            or (dtype in self._complex and array.is_conj())
            or (not ptr and 0 not in shape)
            or (type(array) not in self._plain and self._dispatches(array))
        ):
            raise self._refusal(argument, array)
        if array.is_cpu:
            space = HOST
        elif array.is_cuda:
            space = CUDA, array.get_device()
        else:
            raise self._refusal(argument, array)
        return View(ptr, shape, array.stride(), self._names[dtype], space, self, array)

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        """A new tensor on the device of ``like`` and torch's current stream there."""
        return self._torch.empty(shape, dtype=self._dtypes[dtype], device=like.owner.device)

    def addresses_like(self, like: View, arrays: Sequence[Any]) -> list[int] | None:
        """Where tensors begin that are as the first one is.

        NOTE: each question is put to all tensors in turn, which takes a fraction of the time of a view of each.
        """
        first = like.owner
        if not self._plain.issuperset(map(type, arrays)) or self._forward_ad._current_level >= 0:
            return None
        dtype, where, shape, strides = first.dtype, first.get_device(), first.shape, first.stride()
        if (
            dtype in self._complex
            or any(one.dtype is not dtype for one in arrays)
            or any(one.shape != shape for one in arrays)
            or any(one.layout is not self._dense for one in arrays)
            or any(one.stride() != strides for one in arrays)
            or any(one.get_device() != where for one in arrays)
            or any(one.is_neg() for one in arrays)
            or (self._gradients_on() and any(one.requires_grad for one in arrays))
        ):
            return None
        try:
            found = [one.data_ptr() for one in arrays]
        except (RuntimeError, ValueError):
            return None
        return found if all(found) or 0 in shape else None

    def split(self, stack: Any) -> list[Any]:
        """What lies along the first axis of a tensor, by one call of torch."""
        return list(stack.unbind(0))

    def stream(self, like: View) -> int | None:
        """torch's current stream on the GPU of ``like``; 0 is the driver's default stream."""
        if self._raw_stream is not None:
            return int(self._raw_stream(like.space[1]))
        return int(self._torch.cuda.current_stream(like.space[1]).cuda_stream)

    def exchange_api(self) -> Any:
        """DLPack's C exchange functions for tensors; None before torch 2.10."""
        return getattr(self._torch.Tensor, "__dlpack_c_exchange_api__", None)

    def exchange_types(self) -> tuple[type, ...]:
        """Tensors and parameters; subclasses may mean more than their memory."""
        return (self._torch.Tensor, self._torch.nn.Parameter)

    @property
    def tracks_gradients(self) -> bool:
        """Tensors do: compiled code has to look at ``requires_grad`` and torch's grad mode."""
        return True

    def gradients_on(self) -> Callable[[], bool]:
        """torch's own question whether operations are recorded for gradients now."""
        return self._gradients_on

    def ordinary_state(self) -> tuple[dict[str, Any], str, object]:
        """The level of forward-mode differentiation: -1 outside of it, and only inside have tensors tangents."""
        return vars(self._forward_ad), "_current_level", -1

    def convert(self, argument: str, dtype: str) -> str:
        """How to convert a tensor."""
        return f"{argument}.to(torch.{dtype})"

    def move(self, argument: str, space: tuple[int, int]) -> str:
        """How to copy a tensor elsewhere."""
        return f"{argument}.cpu()" if space == HOST else f"{argument}.to('cuda:{space[1]}')"

    def _dispatches(self, array: Any) -> bool:
        """Whether the type takes operations over: then its memory, if any, is not what it stands for."""
        return type(array).__torch_dispatch__ is not self._torch.Tensor.__torch_dispatch__

    def _refusal(self, argument: str, array: Any) -> ArgumentError:
        """Why there is no view of a tensor, and what to do about it."""
        for rule, value, fix in self._faults(array):
            return ArgumentError(argument, rule, value, fix.replace("{x}", argument))
        rule = "must have memory of its own"
        return ArgumentError(argument, rule, type(array).__name__, f"copy it first: {argument}.clone()")

    def _faults(self, array: Any) -> Iterator[tuple[str, str | None, str]]:
        """The rules of :meth:`view` that a tensor breaks, the most telling first: rule, value, remedy.

        NOTE: in this order. What comes later cannot be asked of a tensor that fails before.
        """
        torch, kind = self._torch, type(array).__name__
        lazy = getattr(torch.nn.parameter, "UninitializedTensorMixin", ())
        if isinstance(array, lazy):
            yield "must be initialised", kind, "run its module once"
        wrapped = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
        if wrapped is not None and wrapped(array):
            rule = "must be a concrete tensor, and inside torch.vmap and torch.func it is none"
            yield rule, None, "call it outside; a stack of matrices multiplies without them"
        if self._dispatches(array):
            fix = "turn it into a plain tensor first: .to_local(), .full_tensor(), .dequantize()"
            yield "must be a plain tensor", kind, fix
        if array.is_meta:
            yield "must have elements", "a meta tensor", "load or initialise them first"
        if array.is_nested:
            yield "must be one dense tensor", "a nested tensor", "use {x}.to_padded_tensor(0)"
        if array.layout is not self._dense:
            yield "must be dense", str(array.layout), "use {x}.to_dense()"
        if array.is_quantized:
            yield "must not be quantised", str(array.dtype), "use {x}.dequantize()"
        if array.dtype not in self._names:
            yield "must have numbers as elements", str(array.dtype), "convert it: {x}.float()"
        if array.is_conj():
            yield "must be conjugated in memory", "a conjugate view", "use {x}.resolve_conj()"
        if array.is_neg():
            yield "must be negated in memory", "a negated view", "use {x}.resolve_neg()"
        if array.requires_grad and self._gradients_on():
            rule = "must not require a gradient: only what tw.matmul and tw.linear are given may, and not out"
            yield rule, None, "use {x}.detach() or torch.no_grad()"
        if self._forward_ad._current_level >= 0 and _has_tangent(array):
            fix = "use torch.autograd.forward_ad.unpack_dual({x}).primal"
            yield (
                "must carry no tangent: only what tw.matmul and tw.linear are given may, and not out",
                None,
                fix,
            )
        if not (array.is_cpu or array.is_cuda):
            rule = "must lie on the CPU or on a CUDA device"
            yield rule, str(array.device), "use {x}.cpu() or {x}.to('cuda')"


def _has_tangent(array: Any) -> bool:
    """Whether a tensor has a forward-mode tangent; to be asked inside a level of differentiation alone."""
    torch: Any = sys.modules["torch"]
    return torch.autograd.forward_ad.unpack_dual(array).tangent is not None


def operators_for(*arrays: Any) -> Any:
    """The module of operators that a product of these goes through: of tensors that record gradients or carry tangents,
    are in ``torch.func`` or in a batch of gradients, or are fake. None where a product is a launch and nothing else.
    """
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "autograd"):  # absent, or about to be imported
        return None
    tensors = [array for array in arrays if isinstance(array, torch.Tensor)]
    records = tensors and torch.is_grad_enabled()
    functorch = getattr(torch._C, "_functorch", None)
    wrapped = getattr(functorch, "is_functorch_wrapped_tensor", None)
    batched = getattr(functorch, "is_legacy_batchedtensor", None)
    dual = torch.autograd.forward_ad._current_level >= 0
    fakes = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", ())
    for tensor in tensors:
        if isinstance(tensor, fakes) or (wrapped is not None and wrapped(tensor)):
            break
        if (batched is not None and batched(tensor)) or (dual and _has_tangent(tensor)):
            break
        if records and tensor.requires_grad and tensor.layout is torch.strided:
            break
    else:
        return None
    return importlib.import_module("tilewise.interop.torch.operators")


def keep_out_of_dynamo(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """``function`` so that ``torch.compile`` calls it as it is and compiles what comes before and after.

    Imports nothing: as long as the caller has not loaded Dynamo, nothing is being compiled.
    """
    uncompiled: list[Callable[_Parameters, _Result]] = []
    modules = sys.modules

    @functools.wraps(function)
    def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if "torch._dynamo" not in modules:
            return function(*args, **kwargs)
        if not uncompiled:
            disable = modules["torch"].compiler.disable
            uncompiled.append(disable(function, reason="it launches kernels of its own"))
        return uncompiled[0](*args, **kwargs)

    # NOTE: Dynamo looks for these two before it traces into a function; without them it would trace this
    # one as far as the call of ``disable``.
    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    call._torchdynamo_disable_msg = "it launches kernels of its own"  # type: ignore[attr-defined]
    return call
