"""Results of 8 bits: each sum rounded to the nearest, the largest number for all beyond it, in every kernel of theirs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise.calls import Choice
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.matmul import multiply
from tilewise.problem import EIGHT_BITS
from tilewise.reference import compare

RANDOM = np.random.default_rng()
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in EIGHT_BITS}
NARROW = """
#include <tilewise/element.cuh>
extern "C" __global__ void narrow_all(const float *from, float8_e4m3fn *a, float8_e5m2 *b, int8 *c, unsigned count)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    a[i] = narrow<float8_e4m3fn>(from[i]), b[i] = narrow<float8_e5m2>(from[i]), c[i] = narrow<int8>(from[i]);
}
"""
HOPPER: dict[str, Any] = {"partition": "64x64x64"}
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("general", {}),
    ("wgmma", HOPPER),
    ("wgmma", {**HOPPER, "split": 2}),
    ("wgmma", {**HOPPER, "exchanged": 1, "a_in_rows": 1, "b_in_rows": 0}),
)


def saturated(values: Any, dtype: np.dtype[Any]) -> Any:
    """What NumPy and ml_dtypes make of numbers that are no larger than the largest."""
    with np.errstate(invalid="ignore"):
        if dtype == np.int8:
            return np.nan_to_num(np.clip(np.rint(values), -128, 127)).astype(dtype)
        finfo: Any = ml_dtypes.finfo  # it has no types
        most = float(finfo(dtype).max)
        return np.clip(values, -most, most).astype(dtype)


def hard_numbers() -> Any:
    """Every number of every type, those half way to the next, and their neighbours; and any bits at all."""
    special = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
    found: list[Any] = [RANDOM.integers(0, 2**32, 20_000, np.uint32).view(np.float32), special]
    for dtype in TYPES.values():
        numbers = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        numbers = np.sort(numbers[np.isfinite(numbers)])
        middles = (numbers[1:] + numbers[:-1]) / 2
        found += [numbers, middles, *(np.nextafter(middles, np.float32(end)) for end in (np.inf, -np.inf))]
    return np.concatenate(found).astype(np.float32)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_numbers_are_rounded_as_by_numpy(arch: str) -> None:
    """By instructions, and by whole numbers on GPUs that have none; of NaN float8 has one, whatever its sign."""
    numbers = hard_numbers()
    found = {name: np.zeros(numbers.size, dtype) for name, dtype in TYPES.items()}
    arguments = [numbers, *(one.view(np.uint8) for one in found.values()), numbers.size]
    tw.Kernel(NARROW, "narrow_all", arch)(-(-numbers.size // 256), 256, arguments, device="emulator")
    for name, dtype in TYPES.items():
        wanted, ordinary = saturated(numbers, dtype), ~np.isnan(numbers)
        assert found[name][ordinary].tobytes() == wanted[ordinary].tobytes()
        assert np.array_equal(found[name][~ordinary], wanted[~ordinary], equal_nan=name != "int8")


@given(
    m=st.integers(1, 90),
    n=st.integers(1, 90),
    way=st.sampled_from(WAYS),
    dtype=st.sampled_from(EIGHT_BITS),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    pad=st.sampled_from([0, 5, 16]),
    order=st.sampled_from(["eager", "late", 1]),
)
@examples(2, 4)
def test_products_of_eight_bits(
    m: int, n: int, way: tuple[str, dict[str, Any]], dtype: str, scale: float, pad: int, order: Any
) -> None:
    """Rows that begin anywhere, scaled to sums that vanish and to sums beyond all."""
    (kernel, given), k = way, 72
    a, b = (RANDOM.standard_normal(shape).astype(BFLOAT16) for shape in ((m, k), (n, k)))
    whole = np.zeros((m, n + pad), TYPES[dtype])
    settings = {"b_in_rows": 0, **given} if kernel == "wgmma" else given
    choice = Choice(specs=(KERNELS[kernel],), settings=(*settings.items(), ("result", dtype)))
    epilogue = tw.epilogue("acc * s", s=scale)
    multiply(a, b.T, whole[:, :n], tw.device("emulator", order=order), choice, epilogue)
    compared = compare(whole[:, :n], a, b.T, epilogue=epilogue)
    assert compared.ok, compared
    assert not whole[:, n:].astype(np.float32).any()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
def test_through_the_front_door(dtype: str) -> None:
    """An output is enough; what an epilogue keeps may be of 8 bits too; what is not finite comes through."""
    a, b = (RANDOM.standard_normal(shape).astype("float32") for shape in ((20, 8), (8, 30)))
    a[3, 4], a[5, 0], a[7] = np.inf, np.nan, 1e30
    out, kept = np.zeros((2, 20, 30), TYPES[dtype])
    epilogue = tw.epilogue("2 * keep(kept, relu(acc))", kept=kept)
    assert tw.matmul(a, b, out, epilogue=epilogue, device="emulator") is out
    for found, name in ((out, None), (kept, "kept")):
        compared = compare(found, a, b, epilogue=epilogue, kept=name)
        assert compared.ok, compared


def test_a_plan_has_such_a_result() -> None:
    plan = tw.plan(72, 48, 64, dtype="float16", gpu="h200", result="float8_e5m2")
    assert plan.kernel == "wgmma" and tw.check(plan) == []
    x, y = (RANDOM.standard_normal(shape).astype("float16") for shape in ((72, 64), (64, 48)))
    plan = tw.plan(72, 48, 64, dtype="float16", gpu="emulator", result="float8_e5m2")
    made = tw.matmul(x, y, plan=plan, device="emulator")
    assert made.dtype == TYPES["float8_e5m2"] and compare(made, x, y).ok


def test_torch_has_them() -> None:
    torch: Any = pytest.importorskip("torch")
    a, b = torch.randn(9, 16, dtype=torch.bfloat16), torch.randn(16, 8, dtype=torch.bfloat16)
    out = torch.zeros(9, 8, dtype=torch.float8_e4m3fn)
    assert tw.matmul(a, b, out, alpha=400.0, device="emulator") is out
    wanted = (400 * (a.double() @ b.double())).clamp(-448, 448)
    assert torch.allclose(out.double(), wanted, rtol=2**-4 + 1e-3, atol=2**-9)


def test_a_wrong_one_is_found() -> None:
    a, b = RANDOM.standard_normal((2, 16, 16)).astype("float32")
    for dtype in TYPES.values():
        right = saturated(a.astype(np.float64) @ b.astype(np.float64) * 100, dtype)
        epilogue = tw.epilogue("acc * 100")
        assert compare(right, a, b, epilogue=epilogue).ok
        wrong = right.copy()
        wrong.view(np.uint8)[3, 5] ^= 2
        assert not compare(wrong, a, b, epilogue=epilogue).ok


def test_what_cannot_be_of_eight_bits_is_named() -> None:
    out, kept = np.zeros((4, 6), np.int8), np.zeros((4, 6), TYPES["float8_e5m2"])
    a, b = RANDOM.standard_normal((4, 3)), RANDOM.standard_normal((3, 6))
    with pytest.raises(ArgumentError, match=r"^out must have a type that float64 can be cast to"):
        tw.matmul(a, b, out, device="emulator")
    read = tw.epilogue("keep(kept, kept + acc)", kept=kept)
    with pytest.raises(ArgumentError, match=r"^kept must have a type of float16"):
        tw.matmul(a.astype("f"), b.astype("f"), epilogue=read, device="emulator")
    with pytest.raises(ArgumentError, match=r"result must be no type of 8 bits of float64"):
        tw.plan(4, 6, 3, dtype="float64", result="int8")


@pytest.mark.few(3)
@pytest.mark.parametrize("result", [*EIGHT_BITS, "float32"])
def test_host_arrays_that_go_by_way_of_a_gpus_memory_are_rounded_once(
    result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are copied back as the kernel made them, not cast on the way."""
    device = tw.device("emulator")
    monkeypatch.setattr(type(device), "runs_on_gpu", True)  # so host arrays are copied there and back
    a, b = (RANDOM.standard_normal(shape).astype(BFLOAT16) for shape in ((40, 70), (70, 24)))
    out, scaled = np.zeros((40, 24), TYPES.get(result, result)), tw.epilogue("acc * s", s=100.0)
    tw.matmul(a, b, out, epilogue=scaled, device=device)
    assert compare(out, a, b, epilogue=scaled, terms=64).ok
