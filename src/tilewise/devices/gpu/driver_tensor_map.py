"""Tensor maps of a GPU: made by its driver, which alone knows their bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tilewise.devices.gpu.driver import check, driver
from tilewise.devices.tensor_map import Description
from tilewise.errors import ArgumentError

__all__ = ["DriverValues", "driver_values", "encode"]

_FIRST = 90  # the compute capability, times ten, from which GPUs have them
_PROMOTIONS = {0: "NONE", 64: "L2_64B", 128: "L2_128B", 256: "L2_256B"}
_NO_STRIDE = 16  # for a single axis: the driver looks for a stride all the same


def encode(
    name: str,
    arch: str,
    scope: Callable[[str], AbstractContextManager[None]],
    described: Description,
    address: int,
) -> bytes:
    """The 128 bytes that the GPU called ``name`` reads; ``scope(doing)`` makes its context current."""
    found = re.match(r"sm_(\d+)", arch)
    if found and int(found[1]) < _FIRST:
        raise ArgumentError(
            "device",
            "must have compute capability 9.0 or newer for a tensor map",
            f"{name} ({arch})",
        )
    cuda = driver()
    doing = f"making a tensor map on {name}"
    with scope(doing):
        if described.corners is None:
            box = [cuda.cuuint32_t(length) for length in described.box]
            made = check(
                cuda.cuTensorMapEncodeTiled(
                    *_address_arguments(cuda, described, address), box, *_mode_arguments(cuda, described)
                ),
                doing,
            )
        else:
            lower, upper = map(list, described.corners)
            made = check(
                cuda.cuTensorMapEncodeIm2col(
                    *_address_arguments(cuda, described, address),
                    lower,
                    upper,
                    *described.box,
                    *_mode_arguments(cuda, described),
                ),
                doing,
            )
    return b"".join(int(word).to_bytes(8, "little") for word in made.opaque)


class DriverValues(NamedTuple):
    """The arguments of cuTensorMapEncodeTiled but for the address, as numbers; axes innermost first."""

    data_type: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int
    swizzle: int
    promotion: int
    fill: int


def driver_values(described: Description) -> DriverValues:
    """What compiled code passes to the driver to make a tiled map. Needs no GPU."""
    cuda = driver()
    steps, *modes = _mode_arguments(cuda, described)
    type_ = getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{described.element.driver}")
    return DriverValues(
        int(type_), described.sizes, described.strides, described.box, tuple(int(step) for step in steps),
        *(int(mode) for mode in modes),
    )  # fmt: skip


def _address_arguments(cuda: Any, described: Description, address: int) -> tuple[Any, ...]:
    """The first arguments of cuTensorMapEncode…: type, rank, address, sizes and strides."""
    type_ = getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{described.element.driver}")
    sizes = [cuda.cuuint64_t(size) for size in described.sizes]
    strides = [cuda.cuuint64_t(stride) for stride in described.strides or (_NO_STRIDE,)]
    return type_, len(sizes), address, sizes, strides


def _mode_arguments(cuda: Any, described: Description) -> tuple[Any, ...]:
    """Its last arguments: steps, interleave, swizzle, promotion and fill."""
    width, span = (f"{size}B" if size else "NONE" for size in (described.interleave, described.swizzle))
    fill = "NAN_REQUEST_ZERO_FMA" if described.nan else "NONE"
    return (
        [cuda.cuuint32_t(step) for step in described.steps],
        getattr(cuda.CUtensorMapInterleave, f"CU_TENSOR_MAP_INTERLEAVE_{width}"),
        getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{span}"),
        getattr(
            cuda.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{_PROMOTIONS[described.promotion]}"
        ),
        getattr(cuda.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{fill}"),
    )
