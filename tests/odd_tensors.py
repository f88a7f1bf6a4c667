"""Subclasses of PyTorch's tensors: one that is a tensor, and one that stands for another."""

from __future__ import annotations

from typing import Any

import torch as imported_torch

torch: Any = imported_torch


class Tagged(torch.Tensor):  # type: ignore[misc]
    pass


class Wrapper(torch.Tensor):  # type: ignore[misc]
    """A tensor that stands for another, as quantised and distributed ones do."""

    @staticmethod
    def __new__(cls, shape: tuple[int, ...]) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, shape)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented
