"""The rungs that need no tensor core and no asynchronous copy: 01 to 08 and 11, on the yardstick."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import yardstick
from tests.rungs import Placed, operands_of, place_steps
from tests.thorough import examples
from tests.yardstick.memory import SharedSpace
from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels import RUNGS as LADDER
from tilewise.kernels.ladder.rung_11_parallel_k import slices
from tilewise.kernels.spec import Operands, Settings
from tilewise.problem import Problem
from tilewise.reference import compare, poisoned

Floats = npt.NDArray[np.float32]

ANY_SIZE = ("01_single_thread", "03_simple", "04_tiled", "05_tiled_conflicted", "06_tiled_branchless")
IN_ORDER = (*ANY_SIZE, "08_register_tiled")  # each sum runs over k from first to last, by fused multiply-adds
RUNGS = (*IN_ORDER, "02_one_block", "07_tiled_exact", "11_parallel_k")
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
MARGIN = 16  # elements of NaN before and after an operand: a stray read poisons the result


@dataclass(frozen=True)
class Place:
    """How an operand lies in memory: elements between its rows, and from a 128-bit boundary to its first."""

    gap: int = 0
    offset: int = 0


TIGHT = (Place(), Place(), Place())


def place(memory: yardstick.Memory, values: Floats, how: Place) -> tuple[Placed, Floats, Floats]:
    """A matrix with these values, all the memory around it, and the part of that memory that it is."""
    rows, columns = values.shape
    pitch, first = columns + how.gap, MARGIN + how.offset
    around = np.full(first + rows * pitch + MARGIN, np.nan, np.float32)
    inside = around[first : first + rows * pitch].reshape(rows, pitch)[:, :columns]
    inside[:] = values
    return Placed(memory.alloc(around) + 4 * first, rows, columns, pitch, "float32"), around, inside


def multiply(
    name: str,
    a: Floats,
    b: Floats,
    places: tuple[Place, Place, Place] = TIGHT,
    arch: str = "sm_75",
    blocks: str = "in-order",
    schedule: str = "lowest",
    chosen: Settings | None = None,
) -> Floats:
    """A·B by a rung. Fails if anything but C is written, or anything but A and B is of influence."""
    spec, memory = LADDER[name], yardstick.Memory()
    m, n = a.shape[0], b.shape[1]
    complete = spec.complete(chosen or {})
    left, around_a, _ = place(memory, a, places[0])
    right, around_b, _ = place(memory, b, places[1])
    result, around, c = place(memory, poisoned((m, n), np.float32), places[2])
    around_a.flags.writeable = around_b.flags.writeable = False  # the yardstick then refuses writes
    workspace = np.full(spec.workspace(operands_of(left, right, result), complete), 0xFF, np.uint8)
    address = memory.alloc(workspace) if workspace.size else 0
    for step in place_steps(spec, left, right, result, address, complete):
        ptx, launch = spec.kernel(arch, entry=step.entry, **(chosen or {})).ptx, step.launch
        yardstick.run(
            *(ptx, step.entry, launch.grid, launch.block, launch.args),
            shared=launch.shared,
            memory=memory,
            blocks=blocks,
            schedule=schedule,
        )
    values = c.copy()
    c[:] = np.nan
    assert np.isnan(around).all(), "written outside C"
    return values


def operands(m: int, n: int, k: int, seed: int | None = None) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)


def dense(m: int, n: int, k: int) -> Operands:
    """float32 operands of these sizes that are not anywhere."""
    return Operands.of(Problem(m, n, k))


def fused(a: Floats, b: Floats, c: Floats) -> Floats:
    """a·b + c with one rounding, exactly.

    The product of two float32 is exact in float64, the sum is not: it is rounded to odd, by the sign of
    its error, which leaves enough for the second rounding to be as good as the only one.
    """
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)  # total + error is the sum exactly
    even = total.view(np.int64) % 2 == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    odd: npt.NDArray[np.float64] = np.where((error != 0) & even, np.nextafter(total, towards), total)
    return odd.astype(np.float32)


def sums_in_order(a: Floats, b: Floats) -> Floats:
    """A·B as one thread per element computes it: from the first k to the last."""
    sums = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        sums = fused(a[:, k, None], b[None, k, :], sums)
    return sums


def same_bits(x: Floats, y: Floats) -> bool:
    return np.array_equal(x.view(np.uint32), y.view(np.uint32))


def near(*edges: int) -> st.SearchStrategy[int]:
    """Sizes at and around the edges of tiles, and any others up to a little more than the largest."""
    around = [size for edge in edges for size in (edge - 1, edge, edge + 1)]
    return st.sampled_from([1, 2, 3, *around]) | st.integers(1, max(edges) + 5)


PLACES = st.tuples(*[st.builds(Place, st.sampled_from((0, 0, 1, 4)), st.integers(0, 3))] * 3)
SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("name", ANY_SIZE)
@examples(10, 20)
@given(data=st.data(), places=PLACES, seed=SEEDS)
def test_any_size_by_fused_multiply_adds_in_order(
    name: str, data: st.DataObject, places: tuple[Place, Place, Place], seed: int
) -> None:
    sizes = st.integers(1, 6) if name == "01_single_thread" else near(8, 16, 32)
    m, n, k = data.draw(sizes), data.draw(sizes), data.draw(sizes)
    choices = {key: values for key, values in LADDER[name].settings.items() if key != "element"}
    chosen = {key: data.draw(st.sampled_from(values)) for key, values in choices.items()}
    a, b = operands(m, n, k, seed)
    c = multiply(name, a, b, places, chosen=chosen)
    assert compare(c, a, b)
    assert same_bits(c, sums_in_order(a, b))


@settings(max_examples=20, deadline=None)
@given(m=near(32), data=st.data(), k=near(8), places=PLACES, seed=SEEDS)
def test_one_block(
    m: int, data: st.DataObject, k: int, places: tuple[Place, Place, Place], seed: int
) -> None:
    a, b = operands(m, data.draw(st.integers(1, 1024 // m)), k, seed)
    assert same_bits(multiply("02_one_block", a, b, places), sums_in_order(a, b))


@settings(max_examples=10, deadline=None)
@given(
    tile=st.sampled_from((16, 32)),
    sizes=st.tuples(*[st.integers(1, 3)] * 3),
    places=PLACES,
    seed=SEEDS,
)
def test_whole_multiples(
    tile: int, sizes: tuple[int, int, int], places: tuple[Place, Place, Place], seed: int
) -> None:
    m, n, k = (tile * size for size in sizes)
    a, b = operands(m, n, k, seed)
    assert same_bits(multiply("07_tiled_exact", a, b, places, chosen={"tile": tile}), sums_in_order(a, b))


@examples(8, 15)
@given(
    m=near(128, 256), n=near(128, 256), k=near(8, 16), places=PLACES, arch=st.sampled_from(ARCHS), seed=SEEDS
)
def test_register_tiled(
    m: int, n: int, k: int, places: tuple[Place, Place, Place], arch: str, seed: int
) -> None:
    a, b = operands(m, n, k, seed)
    assert same_bits(multiply("08_register_tiled", a, b, places, arch), sums_in_order(a, b))


@examples(6, 12)
@given(
    m=near(16, 128),
    n=near(16, 128),
    k=near(8, 64, 130),
    split=st.sampled_from(LADDER["11_parallel_k"].settings["split"]),
    places=PLACES,
    blocks=st.sampled_from(("in-order", "reversed", "random")),
    seed=SEEDS,
)
def test_slices_are_added_in_order_whatever_order_blocks_run_in(
    m: int, n: int, k: int, split: int, places: tuple[Place, Place, Place], blocks: str, seed: int
) -> None:
    a, b = operands(m, n, k, seed)
    c = multiply("11_parallel_k", a, b, places, blocks=blocks, chosen={"split": split})
    steps, count = -(-k // 8), slices(dense(m, n, k), {"split": split})
    assert count == min(split, steps)
    expected = np.zeros_like(c)
    for slice_steps in np.array_split(np.arange(steps), count):  # the first ones get one step more, too
        of_k = slice(8 * int(slice_steps[0]), 8 * int(slice_steps[-1]) + 8)
        expected = expected + sums_in_order(a[:, of_k], b[of_k]) if count > 1 else sums_in_order(a, b)
    assert same_bits(c, expected)


@pytest.mark.parametrize("name", RUNGS)
def test_no_terms_are_zero_and_the_operands_are_not_read(name: str) -> None:
    spec, memory = LADDER[name], yardstick.Memory()
    complete = spec.complete({})
    result, _, c = place(memory, poisoned((16, 32), np.float32), Place(gap=3))
    nowhere = 0xDEAD_BEE0
    a, b = Placed(nowhere, 16, 0, 0, "float32"), Placed(nowhere, 0, 32, 32, "float32")
    assert spec.workspace(operands_of(a, b, result), complete) == 0
    (step,) = place_steps(spec, a, b, result, 0, complete)
    ptx, launch = spec.kernel("sm_75", entry=step.entry).ptx, step.launch
    yardstick.run(ptx, step.entry, launch.grid, launch.block, launch.args, memory=memory)
    assert not c.any()


def test_a_factor_of_zero_does_not_wipe_out_an_infinity() -> None:
    """What rung 06 warns of: the last step wraps round to column 0 of A, and infinity · 0 is NaN."""
    a, b = np.ones((5, 33), np.float32), np.ones((33, 7), np.float32)
    a[2, 0] = np.inf
    expected = np.full((5, 7), 33, np.float32)
    expected[2] = np.inf
    for name in ("04_tiled", "05_tiled_conflicted", "08_register_tiled"):
        assert np.array_equal(multiply(name, a, b), expected)
    branchless = multiply("06_tiled_branchless", a, b)
    assert np.isnan(branchless[2]).all()
    assert (np.delete(branchless, 2, axis=0) == 33).all()


@pytest.mark.few(4)
@pytest.mark.parametrize("name", RUNGS)
def test_what_is_infinite_or_nan_reaches_no_other_sums(name: str) -> None:
    a, b = operands(16, 32, 48) if name == "07_tiled_exact" else operands(14, 29, 43)
    a[13, 5], b[40, 28] = np.nan, np.inf
    spoilt = np.zeros((a.shape[0], b.shape[1]), bool)
    spoilt[13, :] = spoilt[:, 28] = True
    assert np.array_equal(~np.isfinite(multiply(name, a, b)), spoilt)


@pytest.mark.few("04_tiled", "05_tiled_conflicted", "06_tiled_branchless", "07_tiled_exact")
@pytest.mark.parametrize("name", [name for name in RUNGS if name[:2] >= "04"])
def test_no_barrier_is_missing(name: str) -> None:
    """One thread runs as far as it can before the next begins: what it reads too early is wrong."""
    tile = 16 if name == "07_tiled_exact" else 8
    chosen: Settings = {"tile": tile} if "tile" in LADDER[name].settings else {}
    a, b = operands(tile, tile, 2 * tile)  # what the second step overwrites or does not await
    assert compare(multiply(name, a, b, schedule="thread", chosen=chosen), a, b, terms=8)


def test_one_block_refuses_more_elements_than_a_block_has_threads() -> None:
    spec = LADDER["02_one_block"]
    spec.check(dense(32, 32, 5), {})
    with pytest.raises(LaunchError, match=r"1,024.*25 × 41 = 1,025"):
        spec.check(dense(25, 41, 5), {})


@pytest.mark.parametrize(
    ("m", "n", "k", "argument"), [(33, 32, 32, "m"), (32, 48, 32, "n"), (32, 32, 31, "k")]
)
def test_whole_multiples_only(m: int, n: int, k: int, argument: str) -> None:
    spec = LADDER["07_tiled_exact"]
    spec.check(dense(32, 64, 0), {"tile": 32})
    with pytest.raises(ArgumentError, match=rf"^{argument} must be a whole multiple of the tile, 32.*pad"):
        spec.check(dense(m, n, k), {"tile": 32})


def test_a_split_needs_room_for_its_slices_and_no_other_binary() -> None:
    spec = LADDER["11_parallel_k"]
    assert spec.workspace(dense(100, 30, 4096), {"split": 8}) == 8 * 100 * 32 * 4
    assert len({str(spec.defines({"split": split})) for split in spec.settings["split"]}) == 1


@pytest.mark.parametrize("name", LADDER)
def test_a_rung_launches_a_block_for_each_tile_that_its_work_counts(name: str) -> None:
    """Each tile once, whatever its settings, and as many threads: a second block would store the same again."""
    spec = LADDER[name]
    m, n, k = (24, 32, 16) if name == "02_one_block" else (256, 512, 128)
    dtype = "float32" if "float32" in spec.element_types else "float16"
    operands = Operands.of(Problem(m, n, k, 1, dtype, dtype, dtype))
    for setting in spec.settings.keys() & {"tile", "partition", "cluster"} or {""}:
        for value in spec.settings.get(setting, [None]):
            given = {setting: value} if setting else {}
            chosen = spec.complete({**spec.for_types(operands), **given})
            work, launch = spec.work(operands, chosen), spec.steps(operands, chosen)[0].launch
            tiles = -(-m // work.block.m) * -(-n // work.block.n)
            assert (math.prod(launch.grid), math.prod(launch.block)) == (tiles, work.threads), given


def test_the_published_launch() -> None:
    """640×448 by 448×352 in 32×32 tiles: a grid of 11×20 blocks."""
    for name in ("04_tiled", "05_tiled_conflicted", "06_tiled_branchless"):
        (step,) = LADDER[name].steps(dense(640, 352, 448), LADDER[name].complete({}))
        assert (step.launch.grid, step.launch.block) == ((11, 20, 1), (32, 32, 1))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", RUNGS)
def test_resources_on_every_arch(name: str) -> None:
    spec = LADDER[name]
    most = {"02_one_block": 1024, "03_simple": 256, "08_register_tiled": 512, "11_parallel_k": 512}
    for arch in ARCHS:
        for tile in spec.settings.get("tile", (1,)):
            threads = most.get(name, int(tile) ** 2)  # that must fit on an SM together
            chosen: Settings = {"tile": tile} if "tile" in spec.settings else {}
            for entry in spec.entries:
                kernel = spec.kernel(arch, entry=entry, **chosen)
                found = kernel.resources
                assert (found.spills, found.stack_bytes, kernel.warnings) == (0, 0, ())
                assert found.registers * threads <= 65_536


def test_the_published_resources() -> None:
    found = {name: LADDER[name].kernel("sm_75").resources for name in ("04_tiled", "06_tiled_branchless")}
    assert [found[name].registers for name in found] == [40, 46]
    for each in found.values():
        assert (each.shared_bytes, each.constant_bytes, each.barriers) == (8192, 424, 1)


@pytest.mark.parametrize("name", ["04_tiled", "05_tiled_conflicted"])
def test_what_the_assembler_makes_of_a_step(name: str) -> None:
    """64 scalar reads become 32 of 32 bits and 8 of 128: the published conflicts follow from these widths."""
    counts = Counter(re.findall(r"\b(LDS|STS)(?:\.U)?(\.128|\.64)?\b", LADDER[name].kernel("sm_75").sass))
    assert counts == {("LDS", ""): 32, ("LDS", ".128"): 8, ("STS", ""): 2}


def conflicts(addresses: npt.NDArray[np.uint64], lanes: npt.NDArray[np.int64], width: int) -> int:
    """Bank conflicts of one access by the lanes of one warp."""
    extra = 0
    for phase in np.unique(lanes // (128 // max(width, 4))):
        words = {
            int(address) // 4 + i
            for address in addresses[lanes // (128 // max(width, 4)) == phase]
            for i in range(width // 4)
        }
        extra += max(Counter(word % 32 for word in words).values()) - 1
    return extra


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("04_tiled", 0),
        ("05_tiled_conflicted", 32 * (2 * 31 + 32 * 31)),
        ("08_register_tiled", 0),
        ("11_parallel_k", 0),
    ],
)
def test_bank_conflicts_of_the_ptx(name: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of one block; in the PTX every read of rung 05 is scalar, so half of them meet conflicts."""
    found = []
    locate = SharedSpace.locate

    def spy(self: SharedSpace, addresses: Any, width: int, group: Any) -> Any:
        threads = np.arange(len(addresses)) if isinstance(group, slice) else np.asarray(group)
        for warp in np.unique(threads // 32):
            mine = threads // 32 == warp
            found.append(conflicts(addresses[mine], threads[mine] % 32, width))
        return locate(self, addresses, width, group)

    monkeypatch.setattr(SharedSpace, "locate", spy)
    multiply(name, *operands(32, 32, 32))
    assert len(found) > 100
    assert sum(found) == expected
