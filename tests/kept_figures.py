"""What the profiler counts and reckons, as it is kept: of single accesses in every pattern of lanes, of bulk and tensor copies
of every size, of divisions that leave their fast path, of samples and caches.

``python -m tests.kept_figures`` writes ``golden/figures.txt`` anew, which ``emulator/profiling/test_kept_figures.py`` compares:
do so after a change that is meant to change figures. ``python -m tests.kept_figures GROUP`` prints what is kept of a group,
whole; so what has changed is seen by a comparison of what it prints before and after.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import tilewise as tw
from tests.harness import patterns
from tests.harness.counts import counted
from tests.kept_answers import Groups, run_command
from tests.kept_models import MODELS
from tests.kept_plain import plain
from tilewise.devices.emulated import open_emulator
from tilewise.emulator.profiling.counted import Counts
from tilewise.instruments.compare import compare_profiles
from tilewise.instruments.profile import Profile

__all__ = ["COMMAND", "GOLDEN", "GROUPS", "PARTS", "list_part"]

COMMAND = "python -m tests.kept_figures"
GOLDEN = Path(__file__).parent / "golden" / "figures.txt"
GPUS = ("h200", "a100", "rtx-2060-super", "l4")
_ALL = 2**32 - 1
_WIDTHS = (1, 2, 4, 8, 16)  # bytes, of which places are multiples
# Bytes from lane to lane by the width of an access, what numbers of lanes are cut to, turned by; and which lanes run.
_STEPS = (0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33)
_CUTS = ((31, 0), (31, 5), (30, 0), (29, 0), (15, 0), (28, 31), (1, 0), (24, 3))
_RUNNING = (_ALL, 1, 0xFFFF, 0x5555_5555, 0xF0F0_F0F0, 0x8000_0001, 0xFFFF_FFFE, 0x7, 0xFF00_0000, 0)


@cache
def _device() -> Any:
    return open_emulator(threads=1)


def _array() -> Any:
    return _device().array(np.zeros(patterns.ROOM // 4 + 1024, np.uint32))


def _maps(swizzle: int | None, box: tuple[int, int]) -> tuple[Any, Any]:
    """Tensor maps of an array of 32 rows and 64 columns, of whole boxes and of few columns."""
    array = _device().array(np.zeros((32, 64), np.float32))
    return tw.TensorMap(array, box=box), tw.TensorMap(array, box=(3, 8), swizzle=swizzle)


# -- counts ------------------------------------------------------------------------------------------------
def _width(line: str) -> int:
    """Bytes of a lane's access, which its place is a multiple of."""
    if "matrix" in line or "b128" in line:
        return 16
    if line.startswith("cp.async"):
        return int(line.split("],")[-1].split(",")[0])
    parts = line.split()[0].split(".")
    bits = next(
        int(part.lstrip("bsuf").removesuffix("x2")) * (1 + part.endswith("x2"))
        for part in reversed(parts)
        if part[-1:].isdigit() and part[0] in "bsuf" and part[1:2].isdigit()
    )
    return bits // 8 * next((int(part[1]) for part in parts if part in ("v2", "v4")), 1)


def _patterns(line: str, start: int, every: int) -> Iterator[patterns.Pattern]:
    """Some of all patterns, in turn: those of another access are others."""
    width, each = _width(line), [*itertools.product(_STEPS, _CUTS)]
    for number, (step, (cut, turned)) in list(enumerate(each))[start % every :: every]:
        more = (0, 4, 16, 96)[(number + start) % 4]
        yield (
            step * width,
            cut,
            turned,
            -(-more // width) * width,
            _RUNNING[(number // every + start) % len(_RUNNING)],
        )


def _tell_counts(counts: Counts, array: Any) -> str:
    """Every count of a launch; places in the array by their distance from its start."""
    listed = [*counts.places(), *counts.copies(), *counts.products(), *counts.slow_paths()]
    runs = [item for item in counts.instruction_runs() if item.runs.any() and item.line > 55]
    return json.dumps([plain(item, array.ptr) for item in (*listed, *runs) if _counted(item)])


def _counted(item: Any) -> bool:
    figures = getattr(item, "figures", None)
    return any(part.any() for part in figures.values()) if figures is not None else bool(item.runs.any())


def _list_counts(group: str, start: int = 0, every: int = 16) -> Iterator[str]:
    """Each access in some patterns."""
    lines = patterns.GROUPS[group]
    kernel = patterns.make_kernel(lines)
    for which, line in enumerate(lines):
        for number, pattern in enumerate(_patterns(line, which + start, every)):
            array, size = _array(), (0, 5, 7)[(which + number) % 3] if group == "generic" else 0
            args = patterns.pack_pattern(array, which, pattern, size)
            found = counted(kernel, 2, 64, args, multiprocessors=1 + number % 3, threads=1, cluster=2)
            yield f"{line} {pattern} {size}: {_tell_counts(found, array)}"


def _list_copies() -> Iterator[str]:
    """Bulk copies of every size and place, tensor copies at every edge; counts, and the figures that are made of them."""
    kernel = patterns.make_kernel(patterns.COPIES)
    sizes = (16, 32, 48, 112, 128, 144, 256, 1008, 4096)
    places = ((0, 0), (4, 3), (-4, 0), (60, 0), (0, 31), (64, 2), (-64, 1), (36, -2))
    for which, line in enumerate(patterns.COPIES):
        tensor = "tensor" in line
        for number, (size, at) in enumerate(zip(sizes, (*places, (0, 0)), strict=True)):
            if tensor and "global.shared::cta" in line:
                at = abs(at[0]), abs(at[1])  # stores have no negative ones
            array, swizzle = _array(), (None, 32, 64)[number % 3]
            maps = _maps(swizzle if "wide" in line else None, ((4, 32), (1, 4), (9, 20))[number % 3])
            pattern = (
                128 if tensor else 16,
                31,
                0,
                0 if tensor else 16 * (number * 5 % 9),
                (1, 9, 0x8000_0000)[number % 3],
            )
            args = patterns.pack_pattern(array, which, pattern, size, at, maps)
            found = kernel.profile(2, 64, args, cluster=2, gpu="h200", cache=number % 3 == 0)
            yield f"{line} {pattern} {size} {at}: {_tell_counts(found.counts, array)}; {_tell_figures(found)}"


def _tell_figures(found: Profile) -> str:
    """Metrics that are not zero, and all else that JSON has."""
    shown = found.to_dict()
    shown["metrics"] = {name: item for name, item in shown["metrics"].items() if item["value"]}
    return json.dumps(plain(shown), ensure_ascii=False)


# -- profiles ------------------------------------------------------------------------------------------------
def _list_profiles(group: str) -> Iterator[str]:
    """Each access once, as it is shown in every way, with the model of the caches."""
    lines = patterns.GROUPS[group]
    kernel, before = patterns.make_kernel(lines), None
    for which, line in enumerate(lines):
        array, width = _array(), _width(line)
        pattern = (width * (1, 2, 9)[which % 3], 31, which % 4, 16 * (which % 3), _RUNNING[which % 4])
        args = patterns.pack_pattern(array, which, pattern, 7)
        found = kernel.profile((4, 2), 64, args, cluster=2, gpu=GPUS[which % 4], cache=which % 2 == 0)
        told = [
            _tell_figures(found),
            found.table(),
            found.csv(["launch__*", "l1tex__t_*.sum"]),
            _tell_places(found, array),
        ]
        if before is not None:
            told.append(
                compare_profiles(
                    ("one", "other"), (before, found), ("*.sum", "*.ratio") if which % 2 else None
                )
            )
        before = found
        yield f"{line}: " + "\n".join(told)


def _tell_places(found: Profile, array: Any) -> str:
    """The tables of lanes behind the lines that touch memory."""
    told, start = [], array.ptr
    for line in dict.fromkeys(place.line for place in found.counts.places() if place.runs.any()):
        for what in range(3):
            try:
                rows = found.lanes(line, what)
                head = found.explain(line, what).splitlines()[0] if rows else ""
            except tw.TilewiseError as error:
                told.append(str(error))
                break
            apart = [
                (row, start if start <= row.address < 1 << 56 else 0) for row in rows
            ]  # from the start of the array, or of shared memory
            listed = [
                (row.lane, row.address - by, row.line - by // 128, row.sector - by // 32) for row, by in apart
            ]
            told.append(f"{line} {what} {head} {listed}")
    return "\n".join(told)


def _list_samples() -> Iterator[str]:
    """Some blocks of each kind in place of all; of grids along each axis, with clusters and without."""
    kernel = patterns.make_kernel(patterns.GROUPS["global"][:2])
    for grid, cluster in (
        ((70, 1, 1), 1),
        ((9, 5, 1), 1),
        ((3, 3, 4), 1),
        ((2, 1, 1), 2),
        ((40, 3, 1), 2),
        ((8, 2, 3), (2, 1, 1)),
        ((1, 6, 1), (1, 2, 1)),
    ):
        for sample in (1, 2, 3, 8):
            array = _array()
            args = patterns.pack_pattern(array, 1, (4, 31, 0, 0, _ALL))
            found = kernel.profile(grid, 64, args, cluster=cluster, gpu=GPUS[sample % 3], sample=sample)
            places = [plain(place, array.ptr) for place in found.counts.places()]
            yield f"{grid} {cluster} {sample}: {_tell_figures(found)}; {json.dumps(places)}"


_NUMBERS = (
    1.0, 3.0, -7.5, 1e-39, 1e-45, 3e38, 1.7e38, 0.0, -0.0, float("inf"), float("nan"), 1e-310, 1e308, 5e-324, 2.0**-126, 2.0**-125, 2.0**126, 2.0**127,
    2.0**-1022, 2.0**1023, -1.0, -1e-40, 1e-36, 4.0,
)  # fmt: skip


def _list_quotients() -> Iterator[str]:
    """Operands on both sides of every test for a slow path, alone and mixed in a warp; counts, and results in bits."""
    kernel = patterns.make_quotients()
    count = len(_NUMBERS)
    for one in range(count):
        pairs = [
            (_NUMBERS[one], _NUMBERS[(one + lane // (1, 8, 32)[one % 3] * 5) % count]) for lane in range(64)
        ]
        array = _device().array(np.array(pairs).reshape(-1))
        found = counted(kernel, 3, 64, [array, (64, 9, 33)[one % 3]], multiprocessors=2, threads=1)
        yield f"{one}: {_tell_counts(found, array)}"


_SPACES = ("global", "shared", "cluster", "generic")
GROUPS: Groups = {
    **{f"counts in {space}": partial(_list_counts, space) for space in _SPACES},
    **{f"profiles in {space}": partial(_list_profiles, space) for space in _SPACES},
    "copies": _list_copies,
    "samples": _list_samples,
    "quotients": _list_quotients,
    **MODELS,
}
PARTS = ("counts", "profiles", "others")  # that are compared by themselves


def list_part(part: str) -> list[str]:
    """The groups of a part."""
    of = {name: next((one for one in PARTS if name.startswith(one)), "others") for name in GROUPS}
    return [name for name in GROUPS if of[name] == part]


if __name__ == "__main__":
    run_command(GOLDEN, GROUPS)
