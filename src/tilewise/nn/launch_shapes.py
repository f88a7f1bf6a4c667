"""How the layers of a network are launched: tiles, rings and clusters, by sizes, and what a device has room for.

NOTE: in what order sums are added depends on no more of the device than whether it has clusters, and which batches
share an update on its shared memory as well: GPUs of one kind and an emulator of it have the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "LayerShape",
    "shape_backward",
    "shape_classify",
    "shape_forward",
    "shape_products",
    "updates_at_once",
]

WARPS = 8
THREADS = 32 * WARPS
_CHUNK = 32  # of K: what a warp of the forward kernel takes at once
_TILE = 16  # outputs: what a warp of the backward kernel takes at once
_BLOCKS = 132  # that run side by side on the GPU that this is tuned for
_FITTING = {2: 132, 4: 120, 8: 120}  # of them by how many make a cluster: which lies in one part of the GPU
_ENOUGH_BLOCKS = 128  # with fewer of wide columns, narrower ones are taken
_CLUSTER_MOST = 8
_STAGES_MOST = 4
_BACKWARD_STAGES = 2  # two blocks on a multiprocessor have enough under way; with more it is slower
_UPDATES_MOST = 4
_MANY_WEIGHTS = 4096 * 4096  # of a layer: what its batches take is little beside them
_SHARED_MOST = 227 * 1024  # of a block on the GPU that this is tuned for: others have 163 or 99 KB


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A launch of a layer: blocks along x have ``columns`` each, ``split`` of them along y share out a sum."""

    columns: int
    stages: int
    blocks: int
    split: int
    shared: int
    deep: int = 1  # blocks along z
    resident: int = 1  # blocks that a multiprocessor is to have at once

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.blocks, self.split, self.deep

    @property
    def defines(self) -> dict[str, int]:
        return {"TILE_COLUMNS": self.columns, "TILE_STAGES": self.stages}


def shape_forward(
    batch: int, inputs: int, outputs: int, clusters: bool, room: int = _SHARED_MOST
) -> LayerShape:
    """The widest columns of which there are enough blocks: inputs are read once for each block along x."""
    for columns in (64, 32):
        if batch * columns <= 32 * 64 and outputs % columns == 0:
            found = _forward(batch, columns, inputs, outputs // columns, clusters, room)
            if found.blocks * found.split >= _ENOUGH_BLOCKS and found.shared <= room:
                return found
    return _forward(batch, 16, inputs, outputs // 16, clusters, room)


def shape_classify(batch: int, inputs: int, clusters: bool, room: int = _SHARED_MOST) -> LayerShape:
    """One block of 16 columns, or one cluster."""
    return _forward(batch, 16, inputs, 1, clusters, room)


def _forward(batch: int, columns: int, inputs: int, blocks: int, clusters: bool, room: int) -> LayerShape:
    chunks = inputs // _CHUNK
    split = _split(blocks, chunks) if clusters else 1
    stage = (batch * (_CHUNK + 8) + columns * _CHUNK) * 2 * WARPS
    stages = _stages(stage, room, -(-chunks // (WARPS * split)))
    return LayerShape(columns, stages, blocks, split, max(stages * stage, _sums(batch, columns)))


def updates_at_once(batch: int, inputs: int, outputs: int, momentum: bool, room: int = _SHARED_MOST) -> int:
    """By how many batches' gradients the weights of a layer are updated at once (see layer_earlier.cuh).

    A velocity moves the weights that the next batch sees: more than one such would have to be kept besides.
    """
    if inputs * outputs < _MANY_WEIGHTS:
        return 1
    wanted = (2,) if momentum else (_UPDATES_MOST, 2)
    fits = (
        count
        for count in wanted
        if shape_backward(batch, inputs, outputs, momentum, True, True, count).shared <= room
    )
    return next(fits, 1)


def shape_products(batch: int, inputs: int, earlier: int, clusters: bool) -> LayerShape:
    """A batch times so many earlier ones."""
    tiles = batch // _TILE
    blocks = earlier * tiles
    split = _split(blocks * tiles, inputs // _CHUNK) if clusters else 1
    return LayerShape(_TILE, 1, blocks, split, _sums(_TILE, _TILE), tiles)


def shape_backward(
    batch: int,
    inputs: int,
    outputs: int,
    momentum: bool,
    propagates: bool,
    clusters: bool,
    batches: int = 1,
) -> LayerShape:
    """Columns are of the inputs, two blocks for a multiprocessor; blocks that add up no gradients need no cluster.

    ``batches``: by how many the weights are updated.
    """
    # Each block reads all gradients, which is much beside weights that are only read. With velocities and two batches a
    # multiprocessor has room for one block.
    one = momentum and batches > 1
    columns = 64 if (one or not batches) and batch <= 32 and inputs % 64 == 0 else 32
    blocks, tiles = inputs // columns, outputs // _TILE
    if propagates:
        split = _split(blocks, tiles, 1 if one else 2) if clusters else 1
    else:
        split = max(1, min(2 * _BLOCKS // blocks, -(-tiles // WARPS)))
    halves, velocities = _TILE * columns * 2, _TILE * columns * 4 if momentum else 0
    read = max(batches, 1)
    weights = 2 * halves + velocities + (halves if one else 0) if batches else halves
    stage = (weights + read * batch * _TILE * 2) * WARPS
    own = read * batch * (columns + 8) * 2
    shared = own + max(_BACKWARD_STAGES * stage, _sums(batch, columns))
    return LayerShape(
        columns, _BACKWARD_STAGES, blocks, split, shared, resident=1 if one or batch > 32 else 2
    )


def _sums(batch: int, columns: int) -> int:
    """Bytes of all warps' sums, which take the place of the ring (see layer_sums.cuh)."""
    return WARPS * batch * (columns + 8) * 4


def _split(blocks: int, parts: int, resident: int = 1) -> int:
    """How many blocks of a cluster share out so many parts of a sum: while there is work for all of their warps.

    ``resident``: how many blocks a multiprocessor is to have.
    """
    split = 1
    while (
        split < _CLUSTER_MOST
        and blocks * split * 2 <= _FITTING[split * 2] * resident
        and parts > WARPS * split
    ):
        split *= 2
    return split


def _stages(stage: int, shared: int, rounds: int) -> int:
    """No more than there is memory for, or use for."""
    return max(2, min(_STAGES_MOST, shared // stage, rounds + 1))
