"""The tiles that the kernel by mma.sync has, by their elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewise.errors import ArgumentError
from tilewise.kernels.gemm.limits import scales_terms
from tilewise.kernels.spec import Settings
from tilewise.problem import FLOAT8, Tile

__all__ = ["DOUBLE_SHAPES", "SHAPES", "SHAPES_OF", "Shape", "shape_of", "shapes_for"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The tile of a block, and its warps below one another and side by side.

    Of an SM's registers ``resident`` blocks can have enough. ``stages`` are proposed from Ampere on, ``part_stages``
    for parts of K if not the first of them, and no fewer parts than ``least_parts``, ``box_stages`` for operands that
    come in boxes, which pays where warps' tiles are large.
    """

    tile: Tile
    warps: tuple[int, int]
    resident: int
    stages: tuple[int, ...]
    box_stages: tuple[int, ...] = ()
    part_stages: int | None = None
    least_parts: int = 2

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps[0] * self.warps[1] * 32

    @property
    def warp(self) -> Tile:
        """The tile of a warp."""
        return Tile(self.tile.m // self.warps[0], self.tile.n // self.warps[1], self.tile.k)

    def for_elements_of(self, itemsize: int) -> Shape:
        """The same as deep in bytes, for elements of so many; it is said for 2."""
        return replace(self, tile=replace(self.tile, k=self.tile.k * 2 // itemsize))


SHAPES = {
    "128x128x32": Shape(Tile(128, 128, 32), (2, 2), 2, (3, 4)),
    "128x256x32": Shape(Tile(128, 256, 32), (2, 4), 1, (4,)),
    "256x128x32": Shape(Tile(256, 128, 32), (4, 2), 1, (4,)),
    "128x256x64": Shape(Tile(128, 256, 64), (2, 4), 1, (3,)),
    "256x128x64": Shape(Tile(256, 128, 64), (4, 2), 1, (3,)),
    "128x64x32": Shape(Tile(128, 64, 32), (2, 2), 3, (4,)),
    "64x128x32": Shape(Tile(64, 128, 32), (2, 2), 3, (4,)),
    "64x64x64": Shape(Tile(64, 64, 64), (2, 2), 4, (3,)),
    "64x32x64": Shape(Tile(64, 32, 64), (2, 2), 4, (4,)),
    "32x64x64": Shape(Tile(32, 64, 64), (2, 2), 4, (4,)),
    "128x16x64": Shape(Tile(128, 16, 64), (4, 1), 4, (4,)),
    "16x128x64": Shape(Tile(16, 128, 64), (1, 4), 4, (4,)),
    "64x16x64": Shape(Tile(64, 16, 64), (4, 1), 4, (4,)),
    "16x64x64": Shape(Tile(16, 64, 64), (1, 4), 4, (4,)),
}


DOUBLE_SHAPES = {
    "128x128x16": Shape(Tile(128, 128, 16), (2, 4), 1, (3, 4), (6,)),
    "128x64x16": Shape(Tile(128, 64, 16), (2, 2), 2, (3, 4), (4,)),
    "64x128x16": Shape(Tile(64, 128, 16), (1, 4), 2, (3, 4), (4,)),
    "64x64x16": Shape(Tile(64, 64, 16), (2, 2), 3, (4, 3)),
    "64x32x16": Shape(Tile(64, 32, 16), (2, 2), 4, (4,)),
    "32x64x16": Shape(Tile(32, 64, 16), (2, 2), 4, (4,)),
    "32x32x32": Shape(Tile(32, 32, 32), (2, 2), 4, (3,), part_stages=4, least_parts=32),
    "32x32x16": Shape(Tile(32, 32, 16), (2, 2), 4, (4,)),
    "128x16x16": Shape(Tile(128, 16, 16), (4, 1), 4, (4,)),
    "16x128x16": Shape(Tile(16, 128, 16), (1, 4), 4, (4,)),
    "64x16x16": Shape(Tile(64, 16, 16), (4, 1), 4, (4,)),
    "16x64x16": Shape(Tile(16, 64, 16), (1, 4), 4, (4,)),
}
"""Of float64, whose sums take twice the registers."""


def _named(shape: Shape) -> str:
    return f"{shape.tile.m}x{shape.tile.n}x{shape.tile.k}"


# For the largest tiles as deep as 128 bytes of K there are not enough registers.
WIDE_SHAPES = {
    _named(shape): shape
    for shape in (one.for_elements_of(4) for one in SHAPES.values())
    if shape.tile.m * shape.tile.n < 128 * 256 or shape.tile.k < 32
}
"""Of float32: as many bytes, registers and instructions as of 16-bit elements."""

INT8_SHAPES = {_named(shape): shape for shape in (one.for_elements_of(1) for one in SHAPES.values())}

FLOAT8_SHAPES = {
    "128x128x64": Shape(Tile(128, 128, 64), (2, 4), 1, (3, 4)),
    "128x64x64": Shape(Tile(128, 64, 64), (2, 2), 2, (4,)),
    "64x128x64": Shape(Tile(64, 128, 64), (2, 2), 2, (4,)),
    "64x64x128": Shape(Tile(64, 64, 128), (2, 2), 3, (3,)),
    "64x32x128": Shape(Tile(64, 32, 128), (2, 2), 4, (4,)),
    "32x64x128": Shape(Tile(32, 64, 128), (2, 2), 4, (4,)),
    "128x16x128": Shape(Tile(128, 16, 128), (4, 1), 4, (4,)),
    "16x128x128": Shape(Tile(16, 128, 128), (1, 4), 4, (4,)),
    "64x16x128": Shape(Tile(64, 16, 128), (4, 1), 4, (4,)),
    "16x64x128": Shape(Tile(16, 64, 128), (1, 4), 4, (4,)),
}
"""Of float8, whose sums take twice the registers: those of 128 of K, and all."""

SCALED_SHAPES = {
    "128x128x32": Shape(Tile(128, 128, 32), (2, 4), 1, (3, 4)),
    "128x64x32": Shape(Tile(128, 64, 32), (4, 2), 1, (4,)),
    "64x128x32": Shape(Tile(64, 128, 32), (2, 4), 1, (4,)),
    "64x64x64": Shape(Tile(64, 64, 64), (2, 2), 2, (3,)),
    "64x32x64": Shape(Tile(64, 32, 64), (2, 2), 3, (4,)),
    "32x64x64": Shape(Tile(32, 64, 64), (2, 2), 3, (4,)),
    "128x16x64": Shape(Tile(128, 16, 64), (4, 1), 3, (4,)),
    "16x128x64": Shape(Tile(16, 128, 64), (1, 4), 3, (4,)),
    "64x16x64": Shape(Tile(64, 16, 64), (4, 1), 3, (4,)),
    "16x64x64": Shape(Tile(16, 64, 64), (1, 4), 3, (4,)),
}
"""Of 16 bits and, twice as deep, of int8 with scales that differ along K: 128 of it are whole steps."""

SHAPES_OF: Mapping[str, Mapping[str, Shape]] = {
    "float16": SHAPES,
    "bfloat16": SHAPES,
    "float32": WIDE_SHAPES,
    "float64": DOUBLE_SHAPES,
    "int8": INT8_SHAPES,
    **dict.fromkeys(FLOAT8, FLOAT8_SHAPES),
}
SCALED_SHAPES_OF: Mapping[str, Mapping[str, Shape]] = {
    **dict.fromkeys(("float16", "bfloat16"), SCALED_SHAPES),
    "int8": {
        _named(shape): shape
        for shape in (one.for_elements_of(1) for one in SCALED_SHAPES.values())
        if shape.tile.m * shape.tile.n < 128 * 128  # for which there are too few registers
    },
    **dict.fromkeys(FLOAT8, FLOAT8_SHAPES),
}


def shapes_for(settings: Settings) -> Mapping[str, Shape]:
    """The tiles that elements have, by their names; none for scales that they cannot have."""
    element = str(settings["element"])
    return SCALED_SHAPES_OF.get(element, {}) if scales_terms(settings) else SHAPES_OF[element]


def shape_of(settings: Settings) -> Shape:
    """The tile that the settings name, of those for their elements."""
    element, partition = str(settings["element"]), str(settings["partition"])
    shapes = shapes_for(settings)
    if partition not in shapes:
        raise ArgumentError("partition", f"must be one of {', '.join(shapes)} for {element}", partition)
    return shapes[partition]
