"""The kernel by mma.sync on a GPU: layouts, alignments, stacks, parts of K, epilogues, beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tilewise.calls import Choice
from tilewise.devices import gpu
from tilewise.gpus import arch_capability
from tilewise.interop import numpy_dtype
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.mma import AMPERE, TWO_STAGES, refuse_arch
from tilewise.kernels.gemm.mma_shapes import SHAPES, SHAPES_OF
from tilewise.matmul import multiply
from tilewise.reference import compare

pytestmark = pytest.mark.gpu

SPEC = KERNELS["mma"]
RANDOM = np.random.default_rng()
LAYOUTS = ("nn", "nt", "tn", "tt")
Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def device() -> Any:
    assert gpu.count(), gpu.why_not()
    return gpu.open(0)


def elements(device: Any) -> tuple[str, ...]:
    return ("float16", "bfloat16") if arch_capability(device.arch) >= AMPERE else ("float16",)


def operand(device: Any, rows: int, columns: int, dtype: str, in_rows: bool, gap: int) -> tuple[Array, Any]:
    """A random matrix in rows or columns, with NaN between the lines: on the host, and on the device."""
    if not in_rows:
        values, held = operand(device, columns, rows, dtype, True, gap)
        return values.T, held.T
    values = RANDOM.standard_normal((rows, columns)).astype(numpy_dtype(dtype))
    whole = np.full((rows, columns + gap), np.nan, values.dtype)
    whole[:, :columns] = values
    return values, device.array(whole)[:, :columns]


def check(
    device: Any,
    size: tuple[int, int, int],
    layout: str,
    dtype: str,
    gaps: tuple[int, int] = (0, 0),
    **given: Any,
) -> None:
    m, n, k = size
    a, left = operand(device, m, k, dtype, layout[0] == "n", gaps[0])
    b, right = operand(device, k, n, dtype, layout[1] == "n", gaps[1])
    arithmetic, sums = "tf32" if dtype == "float32" else None, "float64" if dtype == "float64" else "float32"
    choice = Choice(specs=(SPEC,), settings=tuple(given.items()), copy=False, arithmetic=arithmetic)
    result = multiply(left, right, None, device, choice).numpy()
    found = compare(result, a, b, terms=16, accumulate=sums, arithmetic=arithmetic)
    assert found.ok, (size, layout, dtype, gaps, given, str(found))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("gaps", [(0, 0), (1, 2), (4, 3)])
def test_any_layout_and_alignment(device: Any, layout: str, gaps: tuple[int, int]) -> None:
    for dtype in elements(device):
        for size in ((512, 768, 1024), (333, 257, 190), (8, 4096, 512), (300, 500, 0)):
            check(device, size, layout, dtype, gaps)


@pytest.mark.parametrize("partition", SHAPES)
def test_every_tile(device: Any, partition: str) -> None:
    shape = SHAPES[partition]
    stages = shape.stages[0] if arch_capability(device.arch) >= AMPERE else TWO_STAGES
    given: dict[str, Any] = {"partition": partition, "stages": stages, "result": "float32"}
    if refuse_arch(SPEC.complete(given), device.arch):
        pytest.skip(f"does not fit on {device.arch}")
    for layout in LAYOUTS:
        check(device, (776, 656, 520), layout, "float16", **given)


WIDE = [(dtype, partition) for dtype in ("float32", "float64") for partition in SHAPES_OF[dtype]]


@pytest.mark.parametrize(("dtype", "partition"), WIDE)
def test_every_tile_of_wide_types(device: Any, dtype: str, partition: str) -> None:
    """float64, and float32 in tf32; the whole product, and in parts."""
    given = {"element": dtype, "partition": partition, "stages": SHAPES_OF[dtype][partition].stages[0]}
    if refuse_arch(SPEC.complete(given), device.arch):
        pytest.skip(f"not on {device.arch}")
    for number, layout in enumerate(LAYOUTS):
        check(device, (776, 656, 520), layout, dtype, (number % 3, number % 2), split=1 + number % 2, **given)


@pytest.mark.parametrize("partition", [name for name, one in SHAPES_OF["float64"].items() if one.box_stages])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_float64_in_boxes(device: Any, layout: str, partition: str) -> None:
    """Sizes that end inside of tiles and steps; the whole product, in parts, its last tiles in parts; an epilogue."""
    given = {"element": "float64", "partition": partition, "boxes": 1}
    given["stages"] = SHAPES_OF["float64"][partition].box_stages[0]
    if refuse_arch(SPEC.complete(given), device.arch):
        pytest.skip(f"not on {device.arch}")
    sizes = [(776, 656, 531), (1040, 1048, 17), (2056, 2048, 8), (136, 72, 4099)]
    for size, (split, tail) in zip(sizes, ((1, 0), (3, 0), (5, 7), (32, 0)), strict=True):
        odd = size[2] % 2
        gaps = (
            odd if layout[0] == "n" else 2,
            odd if layout[1] == "t" else 0,
        )  # lines begin at multiples of 16 bytes
        check(device, size, layout, "float64", gaps, split=split, tail=tail, **given)
    choice = Choice(specs=(SPEC,), settings=tuple(given.items()))
    a, b = (RANDOM.standard_normal(shape) for shape in ((3, 200, 264), (3, 264, 136)))
    row, full = RANDOM.standard_normal(136), RANDOM.standard_normal((200, 136))
    epilogue = tw.epilogue("gelu(acc * s + row) + full", s=0.25, row=row, full=full)
    found = compare(
        multiply(a, b, None, device, choice, epilogue),
        a,
        b,
        epilogue=epilogue,
        terms=64,
        accumulate="float64",
    )
    assert found.ok, found


def test_many_at_once_give_the_same_bits(device: Any) -> None:
    """More blocks than the GPU runs at a time, again and again: a race would show as a difference."""
    for dtype in elements(device):
        (a, left), (b, right) = (
            operand(device, *shape, dtype, True, 0) for shape in ((3000, 1504), (1504, 3000))
        )
        choice = Choice(specs=(SPEC,))
        results = [multiply(left, right, None, device, choice).numpy() for _ in range(10)]
        assert compare(results[0], a, b).ok
        assert len({result.tobytes() for result in results}) == 1


@pytest.mark.parametrize("split", [2, 16])
def test_parts_of_k(device: Any, split: int) -> None:
    for layout in LAYOUTS:
        check(device, (100, 200, 5000), layout, "float16", split=split)


def test_an_epilogue_and_a_stack(device: Any) -> None:
    a, b = (RANDOM.standard_normal(shape).astype(np.float16) for shape in ((3, 200, 264), (3, 264, 136)))
    full, row = (
        RANDOM.standard_normal((200, 136)).astype(np.float16),
        RANDOM.standard_normal(136).astype(np.float32),
    )
    epilogue = tw.epilogue("gelu(acc * s + row) + full", s=0.25, row=row, full=full)
    result = multiply(a, b, None, device, Choice(specs=(SPEC,)), epilogue)
    found = compare(result, a, b, epilogue=epilogue, terms=64)
    assert found.ok, found
