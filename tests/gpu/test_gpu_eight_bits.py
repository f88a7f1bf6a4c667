"""Operands of 8 bits on a GPU: beside float64 and NumPy, and bit for bit beside the emulator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewise as tw
from tests.framed import numbers
from tilewise.calls import Choice
from tilewise.devices import gpu
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.mma_shapes import SHAPES_OF
from tilewise.matmul import multiply
from tilewise.planner import list_candidates, operands_of, target_of_device
from tilewise.reference import compare

pytestmark = pytest.mark.gpu

RANDOM = np.random.default_rng()
TYPES = ("float8_e4m3fn", "float8_e5m2", "int8")
RESULT = {"int8": "int32"}


@pytest.fixture(scope="module")
def device() -> Any:
    assert gpu.count(), gpu.why_not()
    return gpu.open(0)


def lying(device: Any, shape: tuple[int, int], element: str, letter: str) -> tuple[Any, Any]:
    """A random matrix in rows or in columns: on the host, and on the device."""
    values = numbers(shape if letter == "n" else shape[::-1], element)
    held = device.array(values)
    return (values, held) if letter == "n" else (values.T, held.T)


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_plans_are_right(device: Any, element: str, layout: str) -> None:
    """Four at random of all that the planner has, for sizes that end inside of tiles."""
    m, n, k = (int(size) for size in RANDOM.integers(1, (500, 500, 1200)))
    operands = operands_of(m, n, k, dtype=element, layout=layout)
    found, _ = list_candidates(operands, target_of_device(device))
    (a, left), (b, right) = (
        lying(device, (m, k), element, layout[0]),
        lying(device, (k, n), element, layout[1]),
    )
    for which in RANDOM.integers(len(found), size=4):
        spec, given = found[which].spec, tuple(found[which].settings.items())
        out = device.empty((m, n), ml_dtypes.bfloat16 if element != "int8" else np.int32)
        multiply(left, right, out, None, Choice(specs=(spec,), settings=given))
        compared = compare(out.numpy(), a, b, terms=16)
        assert compared.ok, (m, n, k, spec.name, given, str(compared))


@pytest.mark.parametrize("element", TYPES)
def test_tiles_of_mma_are_right(device: Any, element: str) -> None:
    """Three at random, which no plan for this GPU has."""
    for partition in RANDOM.choice(list(SHAPES_OF[element]), 3, replace=False):
        m, n, k = (int(size) for size in RANDOM.integers(1, (500, 500, 1200)))
        (a, left), (b, right) = lying(device, (m, k), element, "n"), lying(device, (k, n), element, "t")
        out = device.empty((m, n), ml_dtypes.bfloat16 if element != "int8" else np.int32)
        given = ("partition", str(partition)), ("split", int(RANDOM.choice([1, 2])))
        multiply(left, right, out, None, Choice(specs=(KERNELS["mma"],), settings=given))
        compared = compare(out.numpy(), a, b, terms=16)
        assert compared.ok, (m, n, k, given, str(compared))


@pytest.mark.parametrize("element", TYPES)
def test_the_emulator_has_the_same_bits(device: Any, element: str) -> None:
    """As the hardware adds: of the fastest plan, whose result is not rounded any more."""
    if device.arch != KERNELS["wgmma"].arch:
        pytest.skip(f"{device.title} is {device.arch}")
    a, b = numbers((200, 700), element), numbers((700, 136), element)
    result = RESULT.get(element, "float32")
    plan = tw.plan(200, 136, 700, dtype=element, result=result, gpu="h200")
    assert plan.kernel == "wgmma"
    found = []
    for where in (device, tw.device("emulator", sums="hardware")):
        out = np.zeros((200, 136), result)
        found.append(tw.matmul(a, b, out, plan=plan, device=where))
    assert compare(found[0], a, b).ok and found[0].tobytes() == found[1].tobytes()


def test_scales_are_applied_where_the_result_is_stored(device: Any) -> None:
    a, b = numbers((300, 512), "float8_e4m3fn"), numbers((512, 200), "float8_e4m3fn")
    rows, columns = RANDOM.random((300, 1)).astype(np.float32), RANDOM.random(200).astype(np.float32)
    on_device = tw.epilogue("acc * rows * columns", rows=device.array(rows), columns=device.array(columns))
    out = tw.matmul(device.array(a), device.array(b), epilogue=on_device)
    scaled = tw.epilogue("acc * rows * columns", rows=rows, columns=columns)
    assert compare(out.numpy(), a, b, epilogue=scaled).ok


FORMS = {"1x128·128x128": (1, 128), "1x128·1x128": (1, 1), "128x128·1x128": (128, 1)}


def scales(lines: int, rows: int, k: int) -> Any:
    """Of very different sizes, in columns."""
    shape = -(-k // 128), -(-rows // lines)
    return (2.0 ** RANDOM.integers(-6, 6, shape) * RANDOM.uniform(1, 2, shape)).astype(np.float32).T


@pytest.mark.parametrize("lines", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "types",
    [
        ("float8_e4m3fn",) * 2,
        TYPES[:2],
        TYPES[1::-1],
        ("int8",) * 2,
        ("bfloat16", "float8_e4m3fn"),
        ("float16", "int8"),
    ],
    ids="·".join,
)
def test_scales_along_k_are_right(device: Any, lines: tuple[int, int], types: tuple[str, str]) -> None:
    """Four at random of all plans, and bit for bit as the emulator has those that multiply by wgmma."""
    m, n, k = (int(size) for size in RANDOM.integers(1, (500, 500, 1200)))
    a, b = numbers((m, k), types[0]), numbers((n, k), types[1]).T
    left, right = scales(lines[0], m, k), scales(lines[1], n, k).T
    given = {"s": left, "t": right} if types[0] in TYPES else {"t": right}
    text = "scaled(acc, s, t)" if types[0] in TYPES else "scaled(acc, 1, t)"
    form = tw.epilogue(text, **given)
    there = tw.epilogue(text, **{name: device.array(one) for name, one in given.items()})
    wanted = tw.Quantized(a, left) if types[0] in TYPES else a, tw.Quantized(b, right)
    operands = operands_of(
        m, n, k, dtype=types[0], b_dtype=types[1], layout="nt", result="float32", epilogue=form
    )
    found, _ = list_candidates(operands, target_of_device(device))
    for which in RANDOM.integers(len(found), size=4):
        spec, settings = found[which].spec, tuple(found[which].settings.items())
        choice = Choice(specs=(spec,), settings=settings)
        out = device.empty((m, n), np.float32)
        multiply(device.array(a), device.array(b), out, None, choice, there)
        compared = compare(out.numpy(), *wanted, terms=16)
        assert compared.ok, (m, n, k, spec.name, settings, str(compared))
        if spec.name == "wgmma":
            own = np.zeros((m, n), np.float32)
            multiply(a, b, own, tw.device("emulator", sums="hardware"), choice, form)
            assert own.tobytes() == out.numpy().tobytes()


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("types", [TYPES[:2], TYPES[1::-1]], ids="·".join)
def test_two_types_of_float8(device: Any, types: tuple[str, str], layout: str) -> None:
    m, n, k = (int(size) for size in RANDOM.integers(1, (500, 500, 1200)))
    (a, left), (b, right) = (
        lying(device, (m, k), types[0], layout[0]),
        lying(device, (k, n), types[1], layout[1]),
    )
    out = device.empty((m, n), np.float32)
    assert compare(tw.matmul(left, right, out).numpy(), a, b, terms=16).ok


@pytest.mark.parametrize(
    ("axis", "block"), [(None, None), (-1, None), (-2, None), (-1, 128), (-2, 128), (None, (128, 128))]
)
@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_are_quantised_as_on_the_host(device: Any, dtype: str, axis: int | None, block: Any) -> None:
    for shape, turned in (((300, 517), False), ((290, 140), True), ((2, 3, 40, 90), False)):
        x = (RANDOM.standard_normal(shape) * 2.0 ** RANDOM.integers(-9, 9, shape)).astype(np.float32)
        held = device.array(x)
        x, held = (x.T, held.T) if turned else (x, held)
        expected, found = (tw.quantize(one, dtype, axis=axis, block=block) for one in (x, held))
        assert found.scale.numpy().tobytes() == expected.scale.tobytes()
        assert np.array_equal(found.values.numpy().view(np.uint8), expected.values.view(np.uint8))
        assert np.array_equal(found.dequantize().numpy(), expected.dequantize())
