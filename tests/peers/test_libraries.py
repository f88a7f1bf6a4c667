"""Kernels over NVIDIA's own libraries: CUB, libcu++, cooperative groups. ``make test-peers`` brings their headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewise as tw
from tests.harness.lanes import Array

pytestmark = pytest.mark.peers
FOLDER = Path(__file__).parent / "libraries"
ARCHS = {"sort": "sm_75", "pipeline": "sm_90a", "barrier": "sm_90a"}


class Case(NamedTuple):
    """A launch of each entry in turn, with the same arguments; then what the arrays hold."""

    file: str
    launches: list[tuple[str, Any, int]]  # entry, grid, block
    args: list[Any]
    wanted: dict[int, Array]  # by the number of the argument


def scan(rng: np.random.Generator) -> Case:
    x = rng.integers(-100, 100, 20 * 512 + 77).astype(np.int32)
    args = [x, np.zeros_like(x), np.zeros(1 << 12, np.uint8), x.size]
    return Case("scan", [("begin", 1, 128), ("scan", 21, 128)], args, {1: np.cumsum(x, dtype=np.int32)})


def sort(rng: np.random.Generator) -> Case:
    x = rng.integers(-1000, 1000, 512).astype(np.int32)
    order = np.argsort(x, kind="stable")
    wanted: dict[int, Array] = {1: x[order], 2: order, 3: x[order][::-1]}
    return Case("sort", [("sort", 1, 128)], [x, *(np.zeros_like(x) for _ in range(3))], wanted)


def pipeline(rng: np.random.Generator) -> Case:
    x = rng.standard_normal((8, 128)).astype(np.float32)
    return Case("pipeline", [("pipeline", 1, 128)], [x, np.zeros_like(x)], {1: x[:, ::-1]})


def barrier(rng: np.random.Generator) -> Case:
    x = rng.integers(0, 100, 128).astype(np.int32)
    other = x[np.arange(128) ^ 1]
    return Case("barrier", [("barrier", 1, 128)], [x, np.zeros_like(x)], {1: other + other[::-1] + 1})


def groups(rng: np.random.Generator) -> Case:
    x = rng.integers(-99, 99, 128).astype(np.int32)
    wanted = np.zeros((5, x.size), np.int32)
    for warp in np.arange(x.size).reshape(-1, 32):
        there = warp[x[warp] > 0]
        for rank, i in enumerate(there):
            alike = there[x[there] % 4 == x[i] % 4]
            large = ((x[there] > 50) == (x[i] > 50)).sum()
            fours = min(4, there.size - rank // 4 * 4)
            before = x[there[:rank]].sum()
            wanted[:, i] = (
                there.size * 100 + rank,
                x[there].sum(),
                before,
                x[alike].sum(),
                large * 10 + fours,
            )
    args = [x, *(np.zeros_like(x) for _ in range(5))]
    return Case("groups", [("groups", 1, 128)], args, dict(enumerate(wanted, 1)))


def tiles(rng: np.random.Generator) -> Case:
    x = rng.integers(-99, 100, 256).astype(np.int32)
    each = x.reshape(2, 128)
    sums = np.repeat(each.sum(1) + (each > 98).any(1), 128)
    args = [x, np.zeros_like(x), np.zeros_like(x)]
    return Case("tiles", [("tiles", 1, 256)], args, {1: sums, 2: np.cumsum(each, 1).ravel()})


MAKERS: Sequence[Callable[[np.random.Generator], Case]] = (
    scan,
    sort,
    pipeline,
    barrier,
    groups,
    tiles,
)


def kernels(case: Case) -> list[tuple[tw.Kernel, Any, int]]:
    file = FOLDER / f"{case.file}.cu"
    text, arch = file.read_text(encoding="utf-8"), ARCHS.get(case.file, "sm_80")
    return [
        (tw.Kernel(text, entry, arch, filename=file.name), grid, block)
        for entry, grid, block in case.launches
    ]


def fresh(case: Case) -> list[Any]:
    return [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in case.args]


def right(case: Case, args: list[Any], said: str) -> None:
    for i, wanted in case.wanted.items():
        np.testing.assert_array_equal(args[i], wanted, f"{said}, argument {i}")


@pytest.mark.parametrize("make", MAKERS)
def test_results(make: Callable[[np.random.Generator], Case]) -> None:
    """Right in every order of warps."""
    seed = int(np.random.default_rng().integers(2**32))
    case = make(np.random.default_rng(seed))
    for order in ("eager", "late", seed):
        args = fresh(case)
        for kernel, grid, block in kernels(case):
            kernel(grid, block, args, device=tw.device("emulator", order=order), timeout=60)
        right(case, args, f"seed {seed}, order {order}")


@pytest.mark.parametrize("make", MAKERS)
def test_nothing_is_wrong_with_them(make: Callable[[np.random.Generator], Case]) -> None:
    case = make(np.random.default_rng())
    args = fresh(case)
    for kernel, grid, block in kernels(case):
        found = kernel.check(grid, block, args)
        assert not found, "\n".join(map(str, found))
