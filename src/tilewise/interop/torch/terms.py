"""What a product of tensors is made of, and the type of its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tilewise import interop
from tilewise.errors import UnknownNameError
from tilewise.expression import ACTIVATIONS

__all__ = [
    "OPERANDS",
    "Terms",
    "check_activation",
    "have_tangents",
    "multiply_by_torch",
    "needs_dispatcher",
    "needs_pre",
    "result_dtype",
]

_functorch: Any = torch._C._functorch
_forward_ad: Any = torch.autograd.forward_ad

OPERANDS = 5  # of the terms are tensors
# Activations whose derivative is known from their own value: nothing else is kept for the backward pass.
_KNOWN_FROM_RESULT = ("relu", "tanh", "sigmoid")


class Terms(NamedTuple):
    """What a product is made of, in the operator's order: activation(alpha·A·B + beta·c + bias) + residual."""

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None = None
    c: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    activation: str | None = None
    alpha: float = 1.0
    beta: float = 1.0
    keep: bool = False  # whether ``pre`` is stored
    device: Any = None

    @property
    def operands(self) -> tuple[torch.Tensor | None, ...]:
        """The tensors, None where there is none."""
        return self.a, self.b, self.bias, self.c, self.residual


def check_activation(activation: str | None) -> None:
    """Refuse what is no activation."""
    if activation is not None and activation not in ACTIVATIONS:
        raise UnknownNameError("activation", activation, ACTIVATIONS)


def needs_pre(activation: str | None, residual: torch.Tensor | None) -> bool:
    """Whether a backward pass needs what the activation was given, beside the result."""
    return activation is not None and (activation not in _KNOWN_FROM_RESULT or residual is not None)


def result_dtype(a: torch.Tensor, b: torch.Tensor) -> torch.dtype:
    """The element type of a product; an ArgumentError where no kernel has it."""
    if a.dtype == b.dtype and a.dtype.is_floating_point and a.dtype.itemsize > 1:
        return a.dtype
    left, right = (str(one.dtype).removeprefix("torch.") for one in (a, b))
    found: torch.dtype = getattr(torch, interop.result_type(left, right, exact=True))
    return found


def needs_dispatcher(operands: Sequence[torch.Tensor | None]) -> bool:
    """Whether a launch of these is no launch but has to be traced: something is watching, or they stand for tensors."""
    if torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None:
        return True
    for one in operands:  # every call of a layer runs this, and any(...) takes twice as long
        if one is not None and (
            one.is_meta or isinstance(one, FakeTensor) or _functorch.is_legacy_batchedtensor(one)
        ):
            return True
    return False


def have_tangents(operands: Sequence[torch.Tensor | None]) -> bool:
    """Whether forward-mode derivatives are taken of a product of these."""
    if _forward_ad._current_level < 0:
        return False
    # NOTE: of what is wrapped for torch.func nobody can ask for the tangent at every level.
    return torch._C._are_functorch_transforms_active() or any(
        one is not None and _forward_ad.unpack_dual(one).tangent is not None for one in operands
    )


def multiply_by_torch(terms: Terms) -> torch.Tensor:
    """The same by torch's own operations, which have forward-mode derivatives."""
    a, b, bias, c, residual, activation, alpha, beta, _, _ = terms
    check_activation(activation)
    dtype = result_dtype(a, b)
    result = a.to(dtype) @ b.to(dtype)
    result = result if alpha == 1 else alpha * result
    result = result if c is None else result + beta * c
    result = result if bias is None else result + bias
    if activation is not None:
        functional = torch.nn.functional
        result = (
            functional.gelu(result, approximate="tanh")
            if activation == "gelu_tanh"
            else getattr(functional, activation)(result)
        )
    result = result if residual is None else result + residual
    return result.to(dtype)
