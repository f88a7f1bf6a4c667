"""Rungs 01 to 09 and 11 on the emulator: any size, any lie of the operands, the bits of the GPU.

A kernel without tensor cores does one chain of fused multiply-adds per sum, so its result is known to the
last bit. Operands lie in the middle of larger arrays of NaN: one stray read spoils a sum, and one stray
write shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.framed import Framed, marked
from tests.nothing.test_rungs_simt import sums_in_order
from tests.thorough import examples
from tilewise.devices.emulated import EmulatedArray, EmulatedDevice, open_emulator
from tilewise.errors import ArchError, ArgumentError, LaunchError
from tilewise.interop import numpy_dtype
from tilewise.kernels.ladder.rung_11_parallel_k import slices
from tilewise.operands import Operands
from tilewise.problem import Problem
from tilewise.reference import compare

Array = npt.NDArray[Any]
Chosen = Mapping[str, Any]
Gaps = tuple[int, int]  # columns of NaN left and right of an operand

EMULATOR = open_emulator()
# NaN, and not the one that arithmetic makes.
TILES: Mapping[str, tuple[int, int, int]] = {  # whose edges matter
    "04_tiled": (32, 32, 32),
    "08_register_tiled": (128, 128, 8),
    "09_warp_tiled": (128, 256, 8),
    "11_parallel_k": (128, 128, 24),
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("01_single_thread", {}),
    ("03_simple", {}),
    *(
        ("04_tiled", {"tile": t, "element": e})
        for t in (32, 16, 8)
        for e in ("float32", "float64", "float16", "bfloat16")
    ),
    *(("05_tiled_conflicted", {"tile": tile}) for tile in (32, 16, 8)),
    *(("06_tiled_branchless", {"tile": tile}) for tile in (32, 16, 8)),
    ("08_register_tiled", {}),
    *(("09_warp_tiled", {"raster": raster}) for raster in ("hilbert", "row", "column")),
    ("11_parallel_k", {}),  # then the planner chooses the split
    *(("11_parallel_k", {"split": split}) for split in (1, 2, 8, 64)),
]


@pytest.fixture(autouse=True, scope="module")
def _memory_of_nan() -> Iterator[None]:
    """Every array of the device begins as NaN: results and workspaces that a kernel leaves out show."""
    empty = EmulatedDevice.empty

    def poisoned(self: EmulatedDevice, shape: Any, dtype: Any = "float32") -> EmulatedArray:
        made = empty(self, shape, dtype)
        made._allocation.bytes[:] = 0xFF
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmulatedDevice, "empty", poisoned)
        yield


# -- what to expect -----------------------------------------------------------------------------------
def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The product of doubles and what rounding took from it, from halves of 26 bits."""

    def halves(x: Array) -> tuple[Array, Array]:
        high = x * 134_217_729.0
        high = high - (high - x)
        return high, x - high

    product, (a1, a2), (b1, b2) = a * b, halves(a), halves(b)
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def fused_double(a: Array, b: Array, c: Array) -> Array:
    """a·b + c in float64 with one rounding: the small parts are summed to an odd last digit first."""
    product, lost = two_product(a, b)
    tail, tail_lost = two_sum(c, lost)
    total, total_lost = two_sum(product, tail)
    small, error = two_sum(total_lost, tail_lost)
    even = small.view(np.int64) % 2 == 0
    odd = np.where((error != 0) & even, np.nextafter(small, np.where(error > 0, np.inf, -np.inf)), small)
    result: Array = total + odd
    return result


def filled(name: str, a: Array, b: Array, chosen: Chosen) -> tuple[Array, Array]:
    """A and B with the terms that the rung's last step adds: 0 · 0 turns a sum of −0 into 0."""
    k = a.shape[1]
    step = 8 if name >= "08" else int(chosen.get("tile", 32)) if name >= "04" else 1
    more = np.arange(k, -(-k // step) * step) % max(k, 1)
    if name == "06_tiled_branchless":  # takes what is inside times 0, which keeps its sign
        return np.hstack([a, a[:, more] * 0]), np.vstack([b, b[more] * 0])
    return np.pad(a, ((0, 0), (0, more.size))), np.pad(b, ((0, more.size), (0, 0)))


def expected(name: str, a: Array, b: Array, chosen: Chosen) -> Array:
    """What the rung must give, bit for bit."""
    (m, k), n = a.shape, b.shape[1]
    a, b = filled(name, a, b, chosen)
    if a.dtype.itemsize == 2:
        return sums_in_order(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    if a.dtype == np.float64:
        sums = np.zeros((m, n))
        for i in range(a.shape[1]):
            sums = fused_double(a[:, i, None], b[None, i, :], sums)
        return sums
    if name != "11_parallel_k":
        return sums_in_order(a, b)
    split = chosen.get("split") or tw.ladder[name].plan(m, n, k, gpu="emulator").split
    count = slices(Operands.of(Problem(m, n, k)), {"split": split})
    if count == 1:
        return sums_in_order(a, b)
    total = np.zeros((m, n), np.float32)
    for steps in np.array_split(np.arange(a.shape[1] // 8), count):  # the first are a step longer, too
        of_k = slice(8 * int(steps[0]), 8 * int(steps[-1]) + 8)
        total = total + sums_in_order(a[:, of_k], b[of_k])
    return total


def assert_bits(got: Array, wanted: Array) -> None:
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    kind = f"u{got.itemsize}"
    np.testing.assert_array_equal(
        np.ascontiguousarray(got).view(kind), np.ascontiguousarray(wanted).view(kind)
    )


# -- what to multiply ---------------------------------------------------------------------------------
def random(shape: tuple[int, int], dtype: str, seed: int, scale: int = 0) -> Array:
    values = np.random.default_rng(seed).standard_normal(shape) * 2.0**scale
    return values.astype(numpy_dtype(dtype))


def multiply(name: str, a: Array, b: Array, chosen: Chosen, gaps: tuple[Gaps, Gaps, Gaps]) -> Array:
    left, right = Framed(EMULATOR, a, *gaps[0]), Framed(EMULATOR, b, *gaps[1])
    out = Framed(EMULATOR, marked((a.shape[0], b.shape[1]), str(a.dtype)), *gaps[2])
    assert tw.ladder[name](left.part, right.part, out=out.part, **chosen) is out.part
    assert_bits(left.taken(), a)
    assert_bits(right.taken(), b)
    return out.taken()


def near(edge: int, most: int) -> st.SearchStrategy[int]:
    """1, primes, an edge of a tile or one beside it, or anything."""
    edges = [size for size in (1, 2, 3, 7, 31, edge - 1, edge, edge + 1) if 0 < size <= most]
    return st.sampled_from(edges) | st.integers(1, most)


def sizes(name: str) -> st.SearchStrategy[tuple[int, int, int]]:
    """Sizes for a rung: any, skinny in both ways, and deep."""
    if name == "01_single_thread":
        return st.tuples(*[st.integers(1, 7)] * 3)
    tile_m, tile_n, tile_k = TILES.get(name, TILES["04_tiled"])
    any_size = st.tuples(near(tile_m, tile_m + 5), near(tile_n, tile_n + 5), near(tile_k, 3 * tile_k + 2))
    wide = st.tuples(st.integers(1, 3), near(2 * tile_n, 2 * tile_n + 3), near(tile_k, tile_k + 2))
    high = st.tuples(near(2 * tile_m, 2 * tile_m + 3), st.integers(1, 3), near(tile_k, tile_k + 2))
    deep = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(500, 700))
    return any_size | wide | high | deep


GAPS = st.tuples(*[st.tuples(st.integers(0, 5), st.integers(0, 5)) | st.just((0, 0))] * 3)
SEEDS = st.integers(0, 2**32)


def parameters(variants: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    return [pytest.param(*one, id="-".join([one[0], *map(str, one[1].values())])) for one in variants]


# -- sizes and lies -----------------------------------------------------------------------------------
@pytest.mark.few(8)
@pytest.mark.parametrize(("name", "chosen"), parameters(VARIANTS))
@examples(2, 8)
@given(data=st.data(), gaps=GAPS, seed=SEEDS, scale=st.sampled_from((0, 0, -70)))
def test_any_size_and_any_lie(
    name: str,
    chosen: dict[str, Any],
    data: st.DataObject,
    gaps: tuple[Gaps, Gaps, Gaps],
    seed: int,
    scale: int,
) -> None:
    m, n, k = data.draw(sizes(name))
    element = chosen.get("element", "float32")
    scale = scale if element == "float32" else 0  # then sums are subnormal numbers, which count too
    a, b = random((m, k), element, seed, scale), random((k, n), element, seed + 1, scale)
    c = multiply(name, a, b, chosen, gaps)
    accumulate = tw.ladder[name].spec.accumulate({"element": element})
    assert compare(c, a, b, accumulate=accumulate, terms=64 if name == "11_parallel_k" else 0)
    assert_bits(c, expected(name, a, b, chosen))


@pytest.mark.parametrize("shape", [(1, 1), (1, 1024), (1024, 1), (31, 33), (7, 13)])
def test_one_block_of_any_shape(shape: tuple[int, int]) -> None:
    a, b = random((shape[0], 19), "float32", 1), random((19, shape[1]), "float32", 2)
    assert_bits(multiply("02_one_block", a, b, {}, ((1, 2), (3, 0), (0, 5))), sums_in_order(a, b))


@pytest.mark.parametrize("tile", [16, 32])
@settings(max_examples=8, deadline=None)
@given(tiles=st.tuples(*[st.integers(1, 3)] * 3), gaps=GAPS, seed=SEEDS)
def test_whole_multiples(
    tile: int, tiles: tuple[int, int, int], gaps: tuple[Gaps, Gaps, Gaps], seed: int
) -> None:
    m, n, k = (tile * count for count in tiles)
    a, b = random((m, k), "float32", seed), random((k, n), "float32", seed + 1)
    assert_bits(multiply("07_tiled_exact", a, b, {"tile": tile}, gaps), sums_in_order(a, b))


def laid(values: Array, how: str) -> Array:
    """A host array with these values (but for "broadcast") and strides of every kind."""
    rows, columns = values.shape
    match how:
        case "transposed":
            return np.asfortranarray(values)
        case "reversed":
            return values[::-1, ::-1].copy()[::-1, ::-1]
        case "stepped":
            wide = marked((2 * rows, 3 * columns), str(values.dtype))
            wide[::2, 1::3] = values
            return wide[::2, 1::3]
        case "row":
            return np.broadcast_to(values[0], values.shape)
        case "column":
            return np.broadcast_to(values[:, :1], values.shape)
        case "unaligned":
            raw = np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:]  # cannot be written, either
            return raw.view(values.dtype).reshape(values.shape)
    return values


LAYOUTS = st.sampled_from(("plain", "transposed", "reversed", "stepped", "row", "column", "unaligned"))


@pytest.mark.parametrize("name", ["04_tiled", "08_register_tiled", "09_warp_tiled", "11_parallel_k"])
@settings(max_examples=12, deadline=None)
@given(data=st.data(), how=st.tuples(LAYOUTS, LAYOUTS, LAYOUTS), seed=SEEDS)
def test_host_arrays_of_any_strides(
    name: str, data: st.DataObject, how: tuple[str, str, str], seed: int
) -> None:
    m, n, k = data.draw(sizes(name))
    a, b = laid(random((m, k), "float32", seed), how[0]), laid(random((k, n), "float32", seed + 1), how[1])
    wanted = expected(name, np.ascontiguousarray(a), np.ascontiguousarray(b), {})
    got = tw.ladder[name](a, b, device="emulator")
    assert isinstance(got, np.ndarray)
    assert_bits(got, wanted)
    out = laid(marked((m, n), "float32"), how[2] if how[2] in ("transposed", "reversed", "stepped") else "")
    assert tw.ladder[name](a, b, out=out, device="emulator") is out
    assert_bits(out, wanted)


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS, how=st.sampled_from(("transposed", "reversed", "stepped", "mixed")))
def test_device_views_that_are_no_rows_are_copied(seed: int, how: str) -> None:
    a, b = random((9, 20), "float32", seed), random((20, 12), "float32", seed + 1)
    left = EMULATOR.array(a[::-1])[::-1] if how == "reversed" else EMULATOR.array(a)
    if how == "stepped":
        left = EMULATOR.array(np.repeat(a, 2, axis=1))[:, ::2]
    right: Any = b if how == "mixed" else EMULATOR.array(b[::-1, ::-1])[::-1, ::-1]
    c = tw.ladder["03_simple"](left, right)
    assert isinstance(c, EmulatedArray)
    assert_bits(c.numpy(), sums_in_order(a, b))


@pytest.mark.parametrize(
    "name", [*dict.fromkeys(name for name, _ in VARIANTS), "02_one_block", "07_tiled_exact"]
)
def test_nothing_to_add_or_nothing_to_write(name: str) -> None:
    gaps = (1, 1), (2, 1), (3, 2)
    for m, n, k in ((16, 32, 0), (0, 32, 16), (16, 0, 16), (0, 0, 0)):
        a, b = random((m, k), "float32", 0), random((k, n), "float32", 1)
        c = multiply(name, a, b, {}, gaps)
        assert (c.shape, bool(c.any())) == ((m, n), False)
        assert np.array_equal(tw.ladder[name](a, b, device="emulator"), c)


# -- values that are not finite -----------------------------------------------------------------------
@pytest.mark.parametrize("name", ["04_tiled", "05_tiled_conflicted", "08_register_tiled", "09_warp_tiled"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_value_that_is_not_finite_spoils_its_own_sums_alone(name: str, value: float) -> None:
    a, b = np.ones((5, 33), np.float32), np.ones((33, 7), np.float32)
    a[2, 0] = value
    wanted = np.full((5, 7), 33, np.float32)
    wanted[2] = value
    np.testing.assert_array_equal(multiply(name, a, b, {}, ((1, 2), (0, 3), (2, 0))), wanted)


def test_a_factor_of_zero_does_not_wipe_out_an_infinity() -> None:
    """What rung 06 warns of: its last step wraps round to column 0 of A, and infinity · 0 is NaN."""
    a, b = np.ones((5, 33), np.float32), np.ones((33, 7), np.float32)
    a[2, 0] = np.inf
    wanted = np.full((5, 7), 33, np.float32)
    wanted[2] = np.nan
    np.testing.assert_array_equal(multiply("06_tiled_branchless", a, b, {}, ((1, 2), (0, 3), (2, 0))), wanted)


# -- what is refused ----------------------------------------------------------------------------------
def zeros(*shape: int, dtype: str = "float32") -> Array:
    return np.zeros(shape, dtype)


def test_rules_of_rungs() -> None:
    with pytest.raises(LaunchError, match=r"^m\*n must be at most 1,024.*25 × 41 = 1,025.*03_simple"):
        tw.ladder["02_one_block"](zeros(25, 3), zeros(3, 41), device="emulator")
    for argument, m, n, k in (("m", 33, 32, 32), ("n", 32, 48, 32), ("k", 32, 32, 31)):
        with pytest.raises(
            ArgumentError, match=rf"^{argument} must be a whole multiple of the tile, 32.*pad"
        ):
            tw.ladder["07_tiled_exact"](zeros(m, k), zeros(k, n), tile=32, device="emulator")
    with pytest.raises(ArchError, match="needs sm_80 or newer, not sm_75"):
        tw.ladder["09_warp_tiled"].kernel("sm_75")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": "A"}, "^a must be an array of NumPy, .*, not 'str'"),
        ({"a": [[1.0]]}, r"^b must have as many rows as a has columns \(1\)"),
        ({"a": zeros(4)}, "^a must have two dimensions"),
        ({"b": zeros(3, 2, dtype="float64")}, r"^b must have elements of type float32 .*astype\('float32'\)"),
        ({"b": zeros(4, 2)}, r"^b must have as many rows as a has columns \(3\)"),
        ({"out": zeros(2, 3)}, r"^out must have shape \(4, 2\), not '\(2, 3\) of float32'"),
        ({"out": zeros(4, 2, dtype="int32")}, "^out must have a type that float32 can be cast to"),
        ({"out": np.broadcast_to(zeros(1, 2), (4, 2))}, "^out must be writable"),
        ({"out": "C"}, "^out must be"),
        ({"device": "emulators"}, "^device must be"),
        ({"tile": 64}, "^tile must be one of 32, 16, 8, not 64"),
        ({"tile": 16.0}, "^tile must be one of"),
        ({"tiles": 16}, "^setting of 05_tiled_conflicted 'tiles' is not known; did you mean 'tile'"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    given_ = {"a": zeros(4, 3), "b": zeros(3, 2), "device": "emulator", **change}
    with pytest.raises(ArgumentError, match=message) as caught:
        tw.ladder["05_tiled_conflicted"](given_.pop("a"), given_.pop("b"), **given_)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["another type", "the emulator's"])
def test_an_output_of_another_kind_is_written(kind: str) -> None:
    a, b = random((4, 3), "float32", 0), random((3, 2), "float32", 1)
    wanted = sums_in_order(a, b)
    if kind == "another type":
        wide = zeros(4, 2, dtype="float64")
        assert tw.ladder["05_tiled_conflicted"](a, b, out=wide, device="emulator") is wide
        assert_bits(wide, wanted.astype(np.float64))
    else:
        out = Framed(EMULATOR, marked((4, 2), "float32"), 2, 3)
        assert tw.ladder["05_tiled_conflicted"](a, b, out=out.part) is out.part
        assert_bits(out.taken(), wanted)


@pytest.mark.parametrize(
    "inside",
    [
        np.s_[:4, 4:],  # beside a
        np.s_[:4, ::2],  # rows with gaps, and part of a
        np.s_[3::-1, 4:],  # backwards
        np.s_[1:5, 3:7],  # one element is a's
        np.s_[:4, :4],  # a itself
    ],
)
@pytest.mark.parametrize("which", ["a", "b"])
def test_an_output_on_the_device_may_lie_anyhow(which: str, inside: Any) -> None:
    """Where a kernel cannot write it as it lies, or would still read it, the product is made elsewhere first."""
    values, other = random((8, 8), "float32", 0), random((4, 4), "float32", 1)
    whole, apart = EMULATOR.array(values), EMULATOR.array(other)
    operands = (whole[:4, :4], apart) if which == "a" else (apart, whole[:4, :4])
    wanted = values.copy()
    wanted[inside] = sums_in_order(*(one.numpy() for one in operands))
    out = whole[inside]
    assert tw.ladder["03_simple"](*operands, out=out) is out
    assert_bits(whole.numpy(), wanted)


def test_a_setting_may_be_a_numpy_integer() -> None:
    complete = tw.ladder["04_tiled"].spec.complete({"tile": np.int64(8)})
    assert (complete["tile"], type(complete["tile"])) == (8, int)
