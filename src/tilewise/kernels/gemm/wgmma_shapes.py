"""Tiles of the kernel for Hopper's tensor cores, and what each takes: threads, sums, stages, shared memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from tilewise.errors import ArgumentError
from tilewise.kernels.spec import AS_IT_IS, Settings, ceil_div
from tilewise.problem import FLOAT8, Tile

__all__ = [
    "BETWEEN",
    "BETWEEN_SIZES",
    "BOX",
    "BYTE_PARTITIONS",
    "FLAT",
    "INSTRUCTION_BYTES",
    "INSTRUCTION_ROWS",
    "NARROW",
    "PARTITIONS",
    "PARTITIONS_OF",
    "ROW_BYTES",
    "TALL",
    "TALL_SIZES",
    "TILES",
    "WARPGROUP",
    "WIDE_PARTITIONS",
    "Shape",
    "depth_of",
    "refuse_partition",
    "shape_of",
    "tile_of",
]

ROW_BYTES = 128  # of a box, the most that its swizzle allows
INSTRUCTION_BYTES = 32  # of a row that an instruction reads
INSTRUCTION_ROWS = 64  # of A
WARPGROUP = 128  # threads
BARRIER_BYTES = 16  # of a stage: one that says it is full, one that says it is empty
BOX = 64  # rows and columns of results, or of sums, that a warpgroup puts at a time
NARROW_SCALED = 64  # columns of a tile up to which the scales of its rows lie in shared memory too
_SHAPES = 4096  # that are remembered
MOST_STAGES, MOST_STAGES_BESIDE = 8, 12  # of a block that has an SM alone, and of one beside another
SHARED_MOST = 227 << 10  # bytes of shared memory that a block can have


@dataclass(frozen=True)  # without slots, for what is computed once
class Shape:
    """The tile of a block, and the schedule of the warpgroups that multiply it."""

    tile: Tile
    pingpong: bool = False
    exchanged: bool = False
    b_in_rows: bool = False
    in_pairs: bool = False  # whether two sums share a register, in float16
    in_steps: bool = (
        False  # whether sums of a step are added up beside the tensor cores, which keep few places of them
    )
    widens: bool = False  # whether A has 8 bits and B 16
    scaled: tuple[int, int] = (0, 0)  # rows of A and columns of B that share scales of terms
    transposes: bool = False  # whether A is float32 across K, which goes by way of registers

    @property
    def m(self) -> int:
        """Rows of the block's tile, as the kernel sees it."""
        return self.tile.m

    @property
    def n(self) -> int:
        """Columns of the block's tile."""
        return self.tile.n

    @functools.cached_property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return 2 if self.pingpong or self.m == 256 else self.m // 64

    @functools.cached_property
    def sums(self) -> int:
        """Sums of a thread."""
        return self.m * self.n // (WARPGROUP * (1 if self.pingpong else self.consumers))

    @functools.cached_property
    def sum_registers(self) -> int:
        """Registers of a thread that its sums take."""
        return self.sums // 2 if self.in_pairs else self.sums

    @functools.cached_property
    def product_registers(self) -> int:
        """Those, and what the sums of a step take besides, of one instruction at a time; or the rows of two steps."""
        apart = self.in_steps or (self.widens and any(self.scaled))
        rows = self.m // self.consumers // 2 if self.transposes else 0
        return self.sum_registers + (self.n // 2 if apart else 0) + rows

    @property
    def threads(self) -> int:
        """Threads of a block: the warpgroups that multiply, and the one that copies."""
        return (self.consumers + 1) * WARPGROUP

    @functools.cached_property
    def resident(self) -> int:
        """Blocks that an SM holds at once: two of those for a few columns, which wait for memory."""
        narrow = self.n <= {64: 64, 128: 16}.get(self.m, 0)
        return 2 if self.exchanged and narrow and not self.pingpong else 1

    @functools.cached_property
    def stages(self) -> int:
        """As many as there is room for, up to eight, or to twelve of a block beside another.

        NOTE: those narrow ones are to leave no room for a third block: blocks of a cluster would take it, on fewer SMs.
        """
        stage = self.operand_bytes + BARRIER_BYTES + self._scale_bytes
        most = MOST_STAGES if self.resident == 1 else MOST_STAGES_BESIDE
        return min((SHARED_MOST // self.resident - self._result_bytes) // stage, most)

    @functools.cached_property
    def shared_bytes(self) -> int:
        """The stages with their barriers, and the boxes of results."""
        return self.stages * (self.operand_bytes + BARRIER_BYTES + self._scale_bytes) + self._result_bytes

    @functools.cached_property
    def loaded_columns(self) -> int:
        """Columns of B in a stage: rows of B come in whole boxes."""
        return ceil_div(self.n, BOX) * BOX if self.b_in_rows else self.n

    @functools.cached_property
    def operand_bytes(self) -> int:
        """Bytes of both operands in a stage."""
        return (self.m + self.loaded_columns * (2 if self.widens else 1)) * ROW_BYTES

    @property
    def _scale_bytes(self) -> int:
        """Of a stage, StageScales of tilewise/term_scales.cuh: what there is none of takes 16 bytes beside others."""
        narrow = self.n <= NARROW_SCALED
        rows = self.m if self.scaled[0] and narrow else 0
        columns = self.n if self.scaled[1] == 1 or (self.scaled[1] and narrow) else 0
        return ceil_div(rows or 4, 4) * 16 + ceil_div(columns or 4, 4) * 16 if rows or columns else 0

    @property
    def box_rows(self) -> int:
        """Rows of C in a box."""
        return min(self.n, BOX) if self.exchanged else BOX

    @property
    def _result_bytes(self) -> int:
        return self.consumers * self.box_rows * BOX * 4


def _tiles(m: int, *columns: int) -> tuple[Tile, ...]:
    return tuple(Tile(m, n, 64) for n in columns)


def named(tile: Tile) -> str:
    """What a tile is called in plans."""
    return f"{tile.m}x{tile.n}x{tile.k}"


TILES = (
    *_tiles(128, 256, 192, 128, 64),
    *_tiles(256, 128, 192),
    *_tiles(192, 192),
    *_tiles(64, 64, 128, 256),
)
"""What the kernel has for operands as they are."""
NARROW = (*_tiles(64, 8, 16, 32, 48, 64), *_tiles(128, 8, 16, 32, 48, 64))
"""What it has besides, if they are exchanged, for a few rows of C."""
TALL = _tiles(192, 48, 64, 128)
"""The same of three warpgroups, for more rows of C, where these heights fill the SMs in one wave and others do not. The
widest is for 8 bits that are widened."""
TALL_SIZES = frozenset((one.m, one.n) for one in TALL)
BETWEEN = (
    *_tiles(128, 80, 96, 112, 144, 160, 176, 208, 224, 240),
    *_tiles(256, 80, 96, 112, 144, 160),
)
"""What it has for sizes that no other tile covers without much waste."""
BETWEEN_SIZES = frozenset((one.m, one.n) for one in BETWEEN)
FLAT = _tiles(64, 80, 96, 112, 144, 160, 176, 192, 208, 224, 240)
"""What it has for few rows, by whose widths the SMs have even shares of the columns."""
WIDENING = (*NARROW[:5], *_tiles(64, 128, 256))
"""What it has for 8 bits that are widened, or with twice the rows: by the columns of the other operand."""
PARTITIONS = {named(one): one for one in dict.fromkeys((*TILES, *NARROW, *TALL, *FLAT, *BETWEEN))}
"""By name, those of 16-bit elements."""
WIDE_PARTITIONS = {named(one): one for one in (replace(one, k=one.k // 2) for one in PARTITIONS.values())}
"""Of float32: as many bytes, half as deep."""
BYTE_PARTITIONS = {named(one): one for one in (replace(one, k=one.k * 2) for one in PARTITIONS.values())}
"""Of 8 bits: as many bytes, twice as deep."""
PARTITIONS_OF = {
    "bfloat16": PARTITIONS,
    "float16": PARTITIONS,
    "float32": WIDE_PARTITIONS,
    **dict.fromkeys((*FLOAT8, "int8"), BYTE_PARTITIONS),
}


def depth_of(element: str) -> int:
    """How many elements of a type a tile has along K."""
    return next(iter(PARTITIONS_OF[element].values())).k


def loaded_element(settings: Settings) -> str:
    """The type of A's elements in shared memory, which says how deep a tile is."""
    element, widened = str(settings["element"]), str(settings["widened"])
    return element if widened == AS_IT_IS else widened


def tile_of(settings: Settings) -> Tile:
    """The tile that the settings name, of those for their elements."""
    element, partition = loaded_element(settings), str(settings["partition"])
    tiles = PARTITIONS_OF[element]
    if partition not in tiles:
        raise refuse_partition(element, partition)
    return tiles[partition]


def refuse_partition(element: str, partition: str) -> ArgumentError:
    """Refuse a tile that is not as deep as its elements want."""
    first = next(iter(PARTITIONS_OF[element].values()))
    return ArgumentError(
        "partition", f"must be {first.k} deep for {element}, such as {named(first)}", partition
    )


def scaled_lines(settings: Settings) -> tuple[int, int]:
    """How many rows of A and columns of B, as the kernel sees them, share scales of terms."""
    names = ("scales_b", "scales_a") if settings["exchanged"] else ("scales_a", "scales_b")
    return int(settings[names[0]]), int(settings[names[1]])


def _adds_steps(settings: Settings) -> bool:
    """Whether a step's sums are added up beside the tensor cores: of float8, and of int8 that has scales."""
    element = settings["element"]
    return element in FLOAT8 or (element == "int8" and any(scaled_lines(settings)))


_OF_SHAPES = (
    "partition", "element", "widened", "pingpong", "exchanged", "a_in_rows", "b_in_rows", "accumulate", "scales_a",
    "scales_b",
)  # fmt: skip


def shape_of(settings: Settings) -> Shape:
    """The tile and the schedule that the settings name."""
    return _shape(*map(settings.__getitem__, _OF_SHAPES))


@functools.lru_cache(_SHAPES)
def _shape(*values: Any) -> Shape:
    """The shape of these settings; the planner asks for each several times."""
    settings = dict(zip(_OF_SHAPES, values, strict=True))
    return Shape(
        tile_of(settings),
        bool(settings["pingpong"]),
        bool(settings["exchanged"]),
        bool(settings["b_in_rows"]),
        settings["accumulate"] == "float16",
        _adds_steps(settings),
        settings["widened"] != AS_IT_IS,
        scaled_lines(settings),
        settings["element"] == "float32" and not settings["a_in_rows"],
    )
