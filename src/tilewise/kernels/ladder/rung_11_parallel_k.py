"""Geometry of rung 11: rung 08's tiles once per slice of K, then one kernel that adds the slices up."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.rung import Operand, Rung, Settings, Step, ceil_div
from tilewise.launch import Launch

_BLOCK_M = _BLOCK_N = 128  # BLOCK_M, BLOCK_N, BLOCK_K, THREADS and FOUR of tilewise/register_tile.cuh
_BLOCK_K = 8
_THREADS = 256
_FOUR = 4
_SPLITS = (1, 2, 4, 8, 16, 32, 64)
_SMS = 64  # taken for an automatic split where nobody says how many there are

# What the second kernel costs, in K steps of one block: a step keeps an SM's multipliers busy for about 1,024
# clocks. 128×128 sums written and read again are 128 KiB, at some 10 bytes a clock for each SM; a launch and
# the start and end of a kernel are a few microseconds.
_REDUCE_STEPS = 12.0
_LAUNCH_STEPS = 8.0


def automatic_split(m: int, n: int, k: int, sms: int = _SMS) -> int:
    """Return the number of slices that should finish first on a GPU of so many SMs."""
    tiles = ceil_div(m, _BLOCK_M) * ceil_div(n, _BLOCK_N)
    steps = ceil_div(k, _BLOCK_K)

    def cost(split: int) -> float:
        busiest = ceil_div(tiles * split, sms) * ceil_div(steps, split)
        if split == 1:
            return busiest
        written = split * m * n / (_BLOCK_M * _BLOCK_N) / sms
        return busiest + _LAUNCH_STEPS + _REDUCE_STEPS * written

    return min(_SPLITS, key=cost)


def choose(m: int, n: int, k: int, sms: int) -> Settings:
    return {"split": automatic_split(m, n, k, sms)}


def slices(m: int, n: int, k: int, settings: Settings) -> int:
    """Return how many slices K is cut into: as asked for, but never more than it has steps."""
    split = int(settings["split"]) or automatic_split(m, n, k)
    return min(split, max(1, ceil_div(k, _BLOCK_K)))


def workspace_bytes(m: int, n: int, k: int, settings: Settings) -> int:
    """Return the bytes of one C per slice in float32, with rows padded to whole fours; 0 for one slice.

    The workspace must begin at a multiple of 16 bytes, as whatever a device allocates does.
    """
    count = slices(m, n, k, settings)
    return 0 if count == 1 else 4 * count * m * _padded(n)


def steps(a: Operand, b: Operand, c: Operand, workspace: int, settings: Settings) -> list[Step]:
    count = slices(c.rows, c.columns, a.columns, settings)
    tiles = ceil_div(c.rows, _BLOCK_M) * ceil_div(c.columns, _BLOCK_N)
    sums = c
    if count > 1:
        width = _padded(c.columns)
        sums = Operand(workspace, c.rows, width, width, "float32")
        sums.check_index("workspace")
    slice_args = (a.matrix(), b.matrix(), sums.matrix(), count)
    sliced = [Step("slice", Launch((tiles, count, 1), (_THREADS, 1, 1), slice_args))]
    if count == 1:
        return sliced
    fours = c.rows * sums.columns // _FOUR
    reduce_args = (sums.matrix(), c.matrix(), count)
    launch = Launch((ceil_div(fours, _THREADS), 1, 1), (_THREADS, 1, 1), reduce_args)
    return [*sliced, Step("reduce", launch)]


def _padded(columns: int) -> int:
    return ceil_div(columns, _FOUR) * _FOUR


class _Split(Rung):
    """A rung whose split is an argument of the launch, so that no split needs a binary of its own."""

    def defines(self, settings: Settings) -> dict[str, int]:
        return super().defines({name: value for name, value in settings.items() if name != "split"})


RUNG = _Split(
    name="11_parallel_k",
    title="K in slices side by side, added up by a second kernel",
    file=Path(__file__).with_suffix(".cu"),
    entries=("slice", "reduce"),
    steps=steps,
    rows=("C5",),
    settings={"split": (0, *_SPLITS)},
    workspace=workspace_bytes,
    choose=choose,
)
