"""A linear layer as torch's, multiplied by tilewise, with an activation in the same launch."""

from __future__ import annotations

from typing import Any

import torch

import tilewise as tw
from tilewise.errors import ArgumentError
from tilewise.interop.torch import operators
from tilewise.interop.torch.terms import check_activation

__all__ = ["Linear", "reason_to_skip"]

_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Linear(torch.nn.Linear):
    """A torch.nn.Linear whose product is :func:`tilewise.linear`: activation(x · weightᵀ + bias) + residual.

    The same parameters, state dict and arguments, and ``activation`` ("relu", "gelu", "gelu_tanh", "silu", "tanh",
    "sigmoid" or None), which is part of the launch.

    >>> import torch
    >>> from tilewise.interop.torch import Linear
    >>> Linear(3, 4, activation="relu")
    Linear(in_features=3, out_features=4, bias=True, activation='relu')
    """

    activation: str | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        activation: str | None = None,
    ) -> None:
        check_activation(activation)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    @classmethod
    def from_torch(cls, module: torch.nn.Linear, activation: str | None = None) -> Linear:
        """A layer of the very parameters of ``module``, in its mode of training. Hooks stay with ``module``."""
        why = reason_to_skip(module)
        if why is not None:
            fix = "tilewise.interop.torch.Linear(in_features, out_features) makes a new one"
            raise ArgumentError("module", "must be a plain torch.nn.Linear", why, fix)
        made = cls(
            module.in_features, module.out_features, module.bias is not None, "meta", activation=activation
        )
        made.weight, made.bias = module.weight, module.bias
        return made.train(module.training)

    def forward(self, input: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """The layer's result, to which ``residual`` is added in the same launch."""
        weight, bias, activation = self.weight, self.bias, self.activation
        if not isinstance(input, torch.Tensor):
            raise ArgumentError(
                "input", "must be a torch.Tensor", type(input).__name__, "use torch.as_tensor"
            )
        if (
            type(input) not in _PLAIN  # whose results are of its class, which the dispatcher sees to
            or torch.compiler.is_compiling()
            or operators.needs_dispatcher((input,))  # NOTE: first, for autocast knows not every device
            or torch.is_autocast_enabled(input.device.type)
        ):
            result: torch.Tensor = torch.ops.tilewise.linear(input, weight, bias, activation, residual)
            return result
        if torch.is_grad_enabled() and (
            weight.requires_grad or input.requires_grad
        ):  # else tw.linear finds out
            return operators.linear(input, weight, bias, activation=activation, residual=residual)
        return tw.linear(input, weight, bias, activation=activation, residual=residual)

    def extra_repr(self) -> str:
        """As torch's, and the activation."""
        return super().extra_repr() + (f", activation={self.activation!r}" if self.activation else "")


def reason_to_skip(module: torch.nn.Module) -> str | None:
    """Why a layer cannot be taken over, None if it can."""
    if type(module) is Linear:
        return "is tilewise's already"
    if type(module) is not torch.nn.Linear:
        return f"is a {type(module).__name__}, whose forward may be its own"
    if "forward" in vars(module) or module._compiled_call_impl is not None:
        return "has a forward of its own"
    weight = module._parameters.get("weight")
    if weight is None:
        return "computes its weight"
    if type(weight) is not torch.nn.Parameter or weight.layout is not torch.strided:
        return f"has a weight that is a {type(weight).__name__} of layout {weight.layout}"
    if weight.dtype not in _TYPES:
        return f"has a weight of {weight.dtype}"
    return None
