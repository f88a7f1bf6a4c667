"""The kernel by wgmma on a GPU in float32 by tf32, and in float16 with sums in float16, beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.calls import Choice
from tilewise.devices import gpu
from tilewise.kernels import KERNELS
from tilewise.matmul import multiply
from tilewise.planner import list_candidates, operands_of, target_of_device
from tilewise.reference import compare

pytestmark = pytest.mark.gpu

SPEC = KERNELS["wgmma"]
RANDOM = np.random.default_rng()
ARITHMETIC = {"float32": "tf32", "float16": "f16"}


@pytest.fixture(scope="module")
def device() -> Any:
    assert gpu.count(), gpu.why_not()
    found = gpu.open(0)
    if found.arch != SPEC.arch:
        pytest.skip(f"{found.title} is {found.arch}")
    return found


def normal(rows: int, columns: int, dtype: str) -> Any:
    return RANDOM.standard_normal((rows, columns)).astype(dtype)


def operand(device: Any, rows: int, columns: int, dtype: str, in_rows: bool) -> tuple[Any, Any]:
    """A random matrix in rows or in columns: on the host, and on the device."""
    if not in_rows:
        values, held = operand(device, columns, rows, dtype, True)
        return values.T, held.T
    values = normal(rows, columns, dtype)
    return values, device.array(values)


@pytest.mark.parametrize("element", ARITHMETIC)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_plans_are_right(device: Any, element: str, layout: str) -> None:
    """Four at random of all that the planner has, for sizes that end inside of tiles."""
    m, n, k = (int(size) for size in RANDOM.integers(1, (500, 500, 900)))
    operands = operands_of(m, n, k, dtype=element, layout=layout, arithmetic=ARITHMETIC[element])
    found, _ = list_candidates(operands, target_of_device(device), specs=(SPEC,))
    (a, left), (b, right) = (
        operand(device, rows, columns, element, letter == "n")
        for rows, columns, letter in ((m, k, layout[0]), (k, n, layout[1]))
    )
    for which in RANDOM.integers(len(found), size=4):
        given = tuple(found[which].settings.items())
        out = device.array(np.full((m, n), np.nan, element))
        choice = Choice(specs=(SPEC,), settings=given, arithmetic=ARITHMETIC[element])
        multiply(left, right, out, None, choice)
        compared = compare(out.numpy(), a, b, terms=16 + 64, arithmetic=ARITHMETIC[element])
        assert compared.ok, (m, n, k, given, str(compared))


def test_the_copy_engine_rounds_as_the_emulator_has_it(device: Any) -> None:
    """Halves of a step among them, and NaN and infinity; large k, where cut off operands would show."""
    a, b = normal(200, 4096, "float32"), normal(4096, 136, "float32")
    for values in (a, b):
        bits = values.view(np.uint32)
        bits[..., ::3] = bits[..., ::3] & np.uint32(0xFFFFE000) | np.uint32(0x1000)
    a[3, 4], a[5, 6], a[7] = np.nan, np.inf, 0
    a[7, 9] = 1 + 2.0**-11  # as near to 1 as to the next
    found = [
        tw.matmul(a, b, arithmetic="tf32", device=where, plan=_plan(a, b)) for where in (device, "emulator")
    ]
    for one in found:
        assert compare(one, a, b, arithmetic="tf32").ok
    assert found[0][7].tobytes() == found[1][7].tobytes()  # a product alone is exact on both


def _plan(a: Any, b: Any) -> tw.Plan:
    return tw.plan(a.shape[0], b.shape[1], a.shape[1], arithmetic="tf32", gpu="h200")
