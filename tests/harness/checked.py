"""A product of given matrices by a given kernel, in the checked build."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

import tilewise as tw
from tilewise.calls import Choice, ready
from tilewise.devices.emulated import open_emulator
from tilewise.instruments.checking import check_bound
from tilewise.instruments.findings import Finding
from tilewise.interop import numpy_dtype
from tilewise.kernels.spec import KernelSpec

__all__ = ["check_product"]

Array = npt.NDArray[Any]


def check_product(
    spec: KernelSpec | str, a: Array, b: Array, order: str | int = "late", **settings: int | str
) -> tuple[Array, list[Finding]]:
    """A·B by a kernel, or by the rung of that name, and what is wrong with how it was made."""
    kernel = tw.ladder[spec].spec if isinstance(spec, str) else spec
    choice = Choice(specs=(kernel,), settings=tuple(settings.items()))
    device = open_emulator()
    left, right = device.array(a), device.array(b)
    out = device.empty((a.shape[0], b.shape[1]), numpy_dtype(choice.result_type(str(a.dtype))))
    bound = ready(left, right, out, device, choice).made.bound
    workspace = device.empty((bound.workspace_bytes,), "uint8")
    addresses = {"a": left.ptr, "b": right.ptr, "c": out.ptr, "workspace": workspace.ptr}
    findings = check_bound(bound, addresses, order)
    return out.numpy(), findings
