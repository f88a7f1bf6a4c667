"""A gradient back through an activation on a GPU, with the gradient of a bias out of the same pass."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch

from tilewise.devices import gpu
from tilewise.devices.seam import Device
from tilewise.interop import view
from tilewise.interop.torch.terms import needs_dispatcher
from tilewise.kernels.activation_gradient import ELEMENTS, SUMS, activation_gradient_steps, count_parts
from tilewise.kernels.bind import bind_steps
from tilewise.operands import Operand

__all__ = ["Passed", "pass_back", "pass_on_gpu"]

# Elements: with fewer, torch's own launches take the host as much less time as they take the GPU more. A graph has no
# such costs.
_WORTH = 1 << 24


class Passed(NamedTuple):
    """The gradient of what an activation was given, and what its columns add up to, if that was wanted."""

    gradient: torch.Tensor
    sums: torch.Tensor | None


def pass_back(
    gradient: torch.Tensor,
    kept: torch.Tensor | None,
    activation: str | None,
    from_result: bool,
    with_sums: bool,
) -> Passed | None:
    """dY · activation'(P) by one launch; None where torch's own operations have to do it, or do it as fast.

    ``kept`` is P, or activation(P) if ``from_result``. ``with_sums`` also adds up the columns.
    """
    if activation is None and not with_sums:
        return None
    if torch.is_grad_enabled() or not gradient.is_cuda or not gradient.numel():
        return None
    if gradient.numel() < _WORTH and not torch.cuda.is_current_stream_capturing():
        return None
    if torch._C._are_functorch_transforms_active() or needs_dispatcher((gradient, kept)):
        return None
    given = (gradient,) if kept is None else (gradient, kept)
    if any(one.ndim < 2 or one.shape != gradient.shape or not one.is_contiguous() for one in given):
        return None
    if any(one.dtype != gradient.dtype or one.device != gradient.device for one in given):
        return None
    if str(gradient.dtype).removeprefix("torch.") not in ELEMENTS or any(one.is_neg() for one in given):
        return None
    made = gradient if activation is None else torch.empty_like(gradient)
    sums = (
        torch.empty(gradient.shape[-1], dtype=gradient.dtype, device=gradient.device) if with_sums else None
    )
    pass_on_gpu(gradient, gradient if kept is None else kept, made, sums, activation, from_result)
    return Passed(made, sums)


def pass_on_gpu(
    gradient: torch.Tensor,
    kept: torch.Tensor,
    made: torch.Tensor,
    sums: torch.Tensor | None,
    activation: str | None,
    from_result: bool,
) -> None:
    """Start the launches on torch's current stream. All are contiguous; ``sums`` has one for each column."""
    columns = gradient.shape[-1]
    rows = gradient.numel() // columns
    used = {"gradient": gradient, "kept": kept, "made": made}
    if sums is not None:
        parts = torch.empty(count_parts(rows) * columns, dtype=torch.float32, device=gradient.device)
        used |= {"bias": sums, SUMS: parts}
    _launch((rows, columns, activation, from_result, sums is not None), used)


def _launch(shape: tuple[Any, ...], used: dict[str, torch.Tensor]) -> None:
    """Start what is bound for matrices of a shape, on the caller's stream, on the GPU that holds them."""
    like = view("gradient", used["gradient"])
    bound = _bind(gpu.open(like.space[1]), like.dtype, *shape)
    bound({name: one.data_ptr() for name, one in used.items()}, like.library.stream(like))


@functools.lru_cache(256)
def _bind(
    device: Device,
    dtype: str,
    rows: int,
    columns: int,
    activation: str | None,
    from_result: bool,
    with_sums: bool,
) -> Any:
    """The launches for contiguous matrices of a shape and type."""
    matrices = [Operand(name, rows, columns, columns, dtype) for name in ("gradient", "kept", "made")]
    bias = Operand("bias", columns, 1, 1, dtype) if with_sums else None
    gradient, kept, made = matrices
    return bind_steps(activation_gradient_steps(gradient, kept, made, bias, activation, from_result), device)
