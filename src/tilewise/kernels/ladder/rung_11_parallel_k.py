"""Launch of rung 11: rung 08's tiles once per slice of K, then one kernel that adds the slices up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilewise.gpus import arch_capability
from tilewise.kernels.spec import (
    KernelSpec,
    Operand,
    Operands,
    Settings,
    Step,
    Work,
    access_bytes,
    ceil_div,
    constant,
)
from tilewise.launch import Launch
from tilewise.problem import Tile

_BLOCK = Tile(128, 128, 8)  # BLOCK_M, BLOCK_N, BLOCK_K, THREADS and FOUR of tilewise/register_tile.cuh
_THREADS = 256
_FOUR = 4
SPLITS = (1, 2, 4, 8, 16, 32, 64)


def slices(operands: Operands, settings: Settings) -> int:
    """How many slices K is cut into: as asked for, but never more than it has steps."""
    return min(int(settings["split"]), max(1, ceil_div(operands.a.columns, _BLOCK.k)))


def workspace_bytes(operands: Operands, settings: Settings) -> int:
    """The bytes of one C per slice in float32, with rows padded to whole fours; 0 for one slice."""
    count = slices(operands, settings)
    return 0 if count == 1 else 4 * count * operands.c.rows * _padded(operands.c.columns)


def candidates(operands: Operands, _settings: Settings, _sms: int) -> Iterator[Settings]:
    for split in SPLITS:
        if slices(operands, {"split": split}) == split:
            yield {"split": split}


def steps(operands: Operands, settings: Settings) -> list[Step]:
    a, b, c = operands[:3]
    count = slices(operands, settings)
    tiles = ceil_div(c.rows, _BLOCK.m) * ceil_div(c.columns, _BLOCK.n)
    sums = c
    if count > 1:
        width = _padded(c.columns)
        sums = Operand("workspace", c.rows, width, width, "float32")
        sums.check_index("workspace")
    slice_args = (a.matrix(), b.matrix(), sums.matrix(), constant("I", count))
    sliced = [Step("slice", Launch((tiles, count, 1), (_THREADS, 1, 1), slice_args))]
    if count == 1:
        return sliced
    fours = c.rows * sums.columns // _FOUR
    launch = Launch(
        (ceil_div(fours, _THREADS), 1, 1), (_THREADS, 1, 1), (sums.matrix(), c.matrix(), constant("I", count))
    )
    return [*sliced, Step("reduce", launch)]


def work(operands: Operands, settings: Settings) -> Work:
    count = slices(operands, settings)
    load = access_bytes(*operands[:2])
    store = access_bytes(operands.c)
    if count == 1:
        return Work("ffma", _BLOCK, _THREADS, resident=2, load_bytes=load, store_bytes=store)
    moved = 2 * workspace_bytes(operands, settings)
    return Work(
        "ffma", _BLOCK, _THREADS, resident=2, split=count, launches=2, extra_bytes=moved, load_bytes=load
    )  # fmt: skip


def _padded(columns: int) -> int:
    return ceil_div(columns, _FOUR) * _FOUR


SPEC = KernelSpec(
    name="11_parallel_k",
    title="K in slices side by side, added up by a second kernel",
    file=Path(__file__).with_suffix(".cu"),
    entries=("slice", "reduce"),
    steps=steps,
    work=work,
    settings={"split": SPLITS},
    workspace=workspace_bytes,
    candidates=candidates,
    tiles=lambda _settings: {"block": _BLOCK, "thread": Tile(8, 8, 1)},
    superseded=lambda _dtype, arch: arch_capability(arch) >= (8, 0),  # by simt
)
