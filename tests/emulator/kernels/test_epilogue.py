"""What happens to sums on their way to the result, in every kernel that takes an epilogue, on the emulator."""

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
from tilewise.devices.emulated import open_emulator
from tilewise.error_bounds import _SMOOTH, BoundedArithmetic
from tilewise.errors import ArgumentError
from tilewise.expression import FUNCTIONS, EpilogueCall, parse
from tilewise.kernels import KERNELS
from tilewise.matmul import multiply
from tilewise.planner.listing import operands_of
from tilewise.problem import Epilogue
from tilewise.reference import compare

EMULATOR = open_emulator()
SPEC = KERNELS["wgmma"]
RANDOM = np.random.default_rng()
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {
    "float32": np.dtype("float32"),
    "float16": np.dtype("float16"),
    "bfloat16": BFLOAT16,
    "float64": np.dtype("float64"),
}


def draw(*shape: int, dtype: Any = "float32") -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def multiplied(a: Any, b: Any, epilogue: EpilogueCall, kernel: str, **settings: object) -> Any:
    choice = Choice(specs=(KERNELS[kernel],), settings=tuple(settings.items()))
    return multiply(a, b, None, EMULATOR, choice, epilogue)


def assert_right(result: Any, a: Any, b: Any, epilogue: EpilogueCall) -> None:
    sums = "float64" if np.asarray(a).dtype == np.float64 else "float32"
    compared = compare(result, a, b, accumulate=sums, epilogue=epilogue, terms=64)
    assert compared.ok, compared


@given(
    sizes=st.tuples(*[st.integers(0, 40)] * 3),
    stack=st.sampled_from([(), (3,), (2, 1, 2)]),
    dtype=st.sampled_from(sorted(DTYPES)),
    given=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    transposed=st.booleans(),
)
@examples(4, 8)
def test_arrays_of_any_shape_broadcast(
    sizes: tuple[int, int, int],
    stack: tuple[int, ...],
    dtype: str,
    given: tuple[bool, bool, bool, bool],
    transposed: bool,
) -> None:
    """An array of any shape that broadcasts to the result, of any strides."""
    (m, n, k), kind = sizes, DTYPES[dtype]
    a, b = draw(*stack, m, k, dtype=kind), draw(k, n, dtype=kind)
    by_stack, by_row, by_column, flat = given
    shape = (*(stack if by_stack else (1,) * len(stack)), m if by_row else 1, n if by_column else 1)
    x = draw(*shape, dtype=kind) if not transposed else draw(*shape[::-1], dtype=kind).T
    x = x.reshape(-1) if flat and not by_row and not by_stack else x
    epilogue = tw.epilogue("silu(acc * 0.5) - x * s", x=x, s=1.5)
    result = multiply(a, b, None, EMULATOR, Choice(), epilogue)
    assert result.dtype == kind and result.shape == (*stack, m, n)
    assert_right(result, a, b, epilogue)


def test_tiles_of_no_whole_boxes_are_stored_by_threads_without_races() -> None:
    """Each stores what it has of the last box alone: the rest are results of the tile beside it."""
    epilogue = tw.epilogue("column_sums(s, acc)", s=np.zeros(64, np.float32))
    operands = operands_of(160, 64, 72, dtype="bfloat16", layout="nt", epilogue=epilogue)
    settings = SPEC.complete({"partition": "64x80x64", "exchanged": 1, "a_in_rows": 1, "b_in_rows": 0})
    assert tw.check(SPEC.plan(operands, "h200", settings), 7) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("rows", [1, 70])
def test_products_with_a_vector(rows: int, flip: bool) -> None:
    """A row times a matrix is computed transposed: what runs along its columns then runs along rows."""
    a, b = draw(1, 33, dtype="float16"), draw(33, rows, dtype="float16")
    bias, x = draw(rows), draw(1, rows, dtype="float16")
    if flip:
        a, b, bias, x = b.T, a.T, bias[:, None], x.T
    epilogue = tw.epilogue("gelu(acc + bias) * x", bias=bias, x=x)
    for along in ("k", "rows"):
        assert_right(multiplied(a, b, epilogue, "vector", along=along), a, b, epilogue)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "given", [{}, {"split": 2}, {"exchanged": 1, "a_in_rows": 1, "b_in_rows": 0}], ids=str
)
def test_on_hoppers_tensor_cores(given: dict[str, int]) -> None:
    """A tile that ends outside of C, operands in rows and columns, a stack, and an array that is kept."""
    stack, m, n, k = 2, 72, 100, 200
    a, b = draw(stack, m, k, dtype=BFLOAT16), np.swapaxes(draw(stack, n, k, dtype=BFLOAT16), 1, 2)
    pre = np.full((stack, m, n), np.nan, np.float32)
    arrays = {"bias": draw(n), "row": draw(m, 1, dtype="float16"), "whole": draw(n, m, dtype=BFLOAT16).T}
    epilogue = tw.epilogue("tanh(keep(pre, acc * 0.1 + bias)) * row + whole", pre=pre, **arrays)
    assert_right(multiplied(a, b, epilogue, "wgmma", partition="64x64x64", **given), a, b, epilogue)
    assert_right(pre, a, b, tw.epilogue("acc * 0.1 + bias", bias=arrays["bias"]))


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [256, 203])  # rows of C that the engine stores, or threads
@pytest.mark.parametrize(
    ("m", "partition"), [(80, "128x80x64"), (40, "64x48x64"), (15, "128x16x64"), (130, "128x144x64")]
)
def test_lines_of_an_epilogue_where_results_lie_across(m: int, partition: str, n: int) -> None:
    """Operands are exchanged, so that neighbours in a row of C are sums of different lanes."""
    a, b = draw(m, 136, dtype="float16"), draw(n, 136, dtype="float16").T
    epilogue = tw.epilogue(
        "max(acc * s + bias, -x)", s=draw(m, 1), bias=draw(n, dtype="float16"), x=draw(1, n)
    )
    given = {"partition": partition, "exchanged": 1, "b_in_rows": 0, "tiles": 2}
    assert_right(multiplied(a, b, epilogue, "wgmma", **given), a, b, epilogue)


@pytest.mark.parametrize(
    ("kernel", "given", "products"),
    [("wgmma", {"partition": "64x16x64", "exchanged": 1}, "wgmma.mma"),
     ("wgmma", {"partition": "64x64x64", "split": 2}, "wgmma.mma"), ("simt", {"partition": "32x32x16"}, "fma.rn.f32"),
     ("mma", {"partition": "64x64x64"}, "mma.sync"), ("vector", {"along": "rows"}, "")],
    ids=str,
)  # fmt: skip
def test_lines_of_an_epilogue_are_fetched_before_the_products(
    kernel: str, given: dict[str, object], products: str
) -> None:
    """To L2, beside the first bytes of the operands; or a tile ends with a wait for memory."""
    spec, m, dtype = (
        KERNELS[kernel],
        1 if kernel == "vector" else 64,
        "float32" if kernel == "simt" else "float16",
    )
    code = []
    for epilogue in (tw.epilogue("acc + bias", bias=np.zeros(64, dtype)), None):
        operands = operands_of(m, 64, 64, dtype=dtype, epilogue=epilogue)
        settings = spec.complete({**spec.for_types(operands), **given})
        source = spec.code(settings, spec.orient(operands).epilogue)
        code.append(source.kernel(spec.entries[kernel == "vector"], "sm_90a").build().ptx)
    assert code[0].find("prefetch.global.L2") > 0 and "prefetch.global.L2" not in code[1]
    assert not products or code[0].find("prefetch.global.L2") < code[0].find(products)


IN_REGISTERS = (
    "acc * rows * columns",
    "relu(acc + columns)",
    "max(acc, s) - columns",
    "clamp(acc, -s, s)",
    "gelu(0.1 * acc + columns) + whole",
    "whole * (acc - rows)",
    "silu(keep(kept, s * acc + columns))",
    "keep(kept, acc + whole) * rows",
    "keep(kept, s * kept + acc)",
)
SCHEDULES: tuple[dict[str, Any], ...] = ({}, {"cluster": "2x1", "tiles": 2}, {"split": 2}, {"pingpong": 1})


def lay(values: Any, how: str) -> Any:
    """The same numbers in rows that begin at multiples of 16 bytes, one element beside those, or in columns."""
    if how == "columns":
        return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
    shift, width = how == "odd", values.shape[-1]
    wide = np.zeros((*values.shape[:-1], width // 8 * 8 + 16 + shift), values.dtype)
    wide[..., shift : shift + width] = values
    return wide[..., shift : shift + width]


@given(
    m=st.integers(1, 300) | st.just(256), n=st.integers(1, 200) | st.just(128), k=st.integers(1, 200),
    text=st.sampled_from(IN_REGISTERS), element=st.sampled_from(("bfloat16", "int8", "float8_e4m3fn")), stack=st.sampled_from([(), (2,)]),
    odd=st.integers(0, 1), schedule=st.sampled_from(SCHEDULES), result=st.sampled_from(("bfloat16", "float32")),
    other=st.sampled_from(("bfloat16", "float16")), how=st.sampled_from(("rows", "odd", "columns")),
    columns=st.sampled_from((64, 64, 80, 112)),
)  # fmt: skip
@examples(3, 60)
def test_what_a_thread_does_to_its_own_sums(
    m: int, n: int, k: int, text: str, element: str, stack: tuple[int, ...], odd: int, schedule: dict[str, Any],
    result: str, other: str, how: str, columns: int,
) -> None:  # fmt: skip
    """And the copy engine stores them; threads where rows of C begin anywhere, and what is no whole box. What is read and
    kept of each element may lie anyhow.
    """
    kind: Any = np.dtype(getattr(ml_dtypes, element, element))
    a = (10 * draw(*stack, m, k)).astype(kind)
    b = (4 * draw(*stack, n, k)).astype(kind).swapaxes(-1, -2)
    has_none = "pingpong" in schedule and element == "float8_e4m3fn"
    deep = 64 if element == "bfloat16" else 128
    given = {**({} if has_none else schedule), "partition": f"128x{columns}x{deep}", "result": result}
    line = lay(draw(n, dtype="float16"), "odd" if how == "odd" else "rows")
    names: dict[str, Any] = {"rows": draw(*stack, m, 1), "columns": line, "s": 1.5}
    for name in ("whole", "kept"):
        names[name] = lay(draw(*stack, m, n, dtype=DTYPES[other]), how)
    names = {name: names[name] for name in parse(text).given}
    before = tw.epilogue(text, **{name: np.copy(value) for name, value in names.items()})
    whole = np.full((*stack, m, n + odd), np.nan, np.dtype(getattr(ml_dtypes, result, result)))
    choice = Choice(specs=(KERNELS["wgmma"],), settings=tuple(given.items()))
    multiply(a, b, whole[..., :n], EMULATOR, choice, tw.epilogue(text, **names))
    assert_right(whole[..., :n], a, b, before)
    assert np.isnan(whole[..., n:].astype(np.float32)).all()
    if "kept" in names:
        compared = compare(names["kept"], a, b, epilogue=before, kept="kept", terms=64)
        assert compared.ok, compared


def test_arrays_that_go_through_boxes_are_read_and_kept_without_races() -> None:
    """Warpgroups that have several tiles each: what is read of the next one is copied before its products."""
    whole = np.zeros((300, 200), BFLOAT16)
    epilogue = tw.epilogue("gelu(keep(p, acc + bias)) + r", p=whole, r=whole, bias=whole[0])
    operands = operands_of(300, 200, 72, dtype="bfloat16", epilogue=epilogue)
    settings = SPEC.complete({"partition": "128x128x64", "pingpong": 1, "tiles": 3})
    for order in ("late", 7):
        assert tw.check(SPEC.plan(operands, "h200", settings), order) == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "text",
    ["gelu(alpha * acc + bias) + beta * c + r", "gelu(keep(p, acc + bias)) + r", "gelu(acc * s + bias)"],
)
@pytest.mark.parametrize(
    "given",
    [
        {"partition": "128x256x64"},
        {"partition": "128x128x64", "pingpong": 1},
        {"partition": "128x240x64", "exchanged": 1, "b_in_rows": 0},
        {"partition": "64x64x64", "exchanged": 1},
    ],
    ids=str,
)
def test_large_tiles_keep_their_sums_in_registers(given: dict[str, object], text: str) -> None:
    """An epilogue that reads three arrays, or reads one and keeps one, spills nothing, and no warning says that products
    wait for one another.
    """
    whole = np.zeros((8, 8), BFLOAT16)
    names = {"alpha": 1, "beta": 1, "bias": whole[0], "s": whole[:, :1], "c": whole, "r": whole, "p": whole}
    epilogue = tw.epilogue(text, **{name: names[name] for name in parse(text).given})
    plan = tw.plan(8, 8, 64, dtype="bfloat16", gpu="h200", epilogue=epilogue)
    code = SPEC.code(SPEC.complete(given), plan.problem.epilogue)
    built = code.kernel("wgmma_gemm", "sm_90a").build()
    resources = built.entries["wgmma_gemm"].resources
    assert resources is not None
    assert resources.spill_store_bytes == resources.spill_load_bytes == 0
    assert not built.warnings


def test_plans_are_profiled_and_checked() -> None:
    whole = np.zeros((40, 24), np.float32)
    epilogue = tw.epilogue("relu(keep(p, acc + r)) * s", p=whole.copy(), r=whole, s=3)
    plans = [tw.plan(40, 24, 9, gpu="h200", epilogue=one) for one in (epilogue, None)]
    assert plans[0].kernel == "general" and plans[0].problem.epilogue.numbers == ("s",)
    assert tw.check(plans[0], "late") == []
    name = "smsp__sass_inst_executed_op_global_st.sum"
    assert tw.profile(plans[0])[name] > tw.profile(plans[1])[name]


# ── the front door ──


def test_the_usual_epilogue() -> None:
    a, b, c = draw(20, 30), draw(30, 24), draw(20, 24)
    bias, residual = draw(24), draw(20, 1)
    result = tw.matmul(
        a,
        b,
        bias=bias,
        activation="gelu_tanh",
        residual=residual,
        alpha=0.5,
        beta=2.0,
        c=c,
        device="emulator",
    )
    expression = "gelu_tanh(alpha * acc + beta * c + bias) + residual"
    same = tw.epilogue(expression, alpha=0.5, beta=2.0, c=c, bias=bias, residual=residual)
    assert_right(result, a, b, same)
    assert np.array_equal(result, tw.matmul(a, b, epilogue=same, device="emulator"))


def test_numbers_change_without_compiling() -> None:
    """A plan is for an expression; the numbers come with the call."""
    a, b = draw(8, 8), draw(8, 8)
    for alpha in (2.0, -0.25, np.float16(3)):
        epilogue = tw.epilogue("acc * alpha", alpha=alpha)
        assert_right(tw.matmul(a, b, alpha=float(alpha), device="emulator"), a, b, epilogue)
    plan = tw.plan(8, 8, 8, gpu="emulator", epilogue=tw.epilogue("alpha * acc", alpha=7))
    assert np.allclose(tw.matmul(a, b, alpha=3.0, plan=plan, device="emulator"), 3 * (a @ b), atol=1e-4)


def test_c_is_added_once_and_may_be_the_result() -> None:
    a, b, c = draw(20, 30), draw(30, 24), draw(20, 24)
    before = c.copy()
    assert tw.matmul(a, b, c, c=c, device="emulator") is c
    assert_right(c, a, b, tw.epilogue("acc + c", c=before))
    shifted = np.concatenate([before, before])
    assert_right(
        tw.matmul(a, b, shifted[1:21], residual=shifted[:20], device="emulator"),
        a, b, tw.epilogue("acc + r", r=before),
    )  # fmt: skip
    nothing = np.full_like(c, np.nan)  # times 0 that would be NaN
    assert (
        tw.matmul(a, b, c=nothing, beta=0, device="emulator").tolist()
        == tw.matmul(a, b, device="emulator").tolist()
    )


def test_a_linear_layer_has_torchs_layout() -> None:
    torch = pytest.importorskip("torch")
    x, layer = torch.randn(2, 5, 16, dtype=torch.float64), torch.nn.Linear(16, 12, dtype=torch.float64)
    with torch.no_grad():
        wanted = torch.nn.functional.silu(layer(x))
        result = tw.linear(x, layer.weight, layer.bias, activation="silu", device="emulator")
    assert isinstance(result, torch.Tensor) and torch.allclose(result, wanted, atol=1e-12)
    vector = tw.linear(np.ones(3, "float32"), np.eye(4, 3, dtype="float32"), np.arange(4, dtype="float32"))
    assert vector.tolist() == [1, 2, 3, 3]


def test_every_function_has_the_digits_of_float64() -> None:
    """None goes by way of float32, which has half of them."""
    arguments = ("acc", "0.5", "1.5")
    terms = [
        f"{name}({', '.join(arguments[:count])})" for name, count in FUNCTIONS.items() if name != "where"
    ]
    a, b = RANDOM.uniform(0.1, 1.5, (6, 1)), RANDOM.uniform(0.5, 1.5, (1, 4))
    for epilogue in map(tw.epilogue, ("abs(-acc) + where(acc > 1, acc, 2)", " + ".join(terms))):
        result = tw.matmul(a, b, epilogue=epilogue, device="emulator")
        assert result.dtype == np.float64
        assert_right(result, a, b, epilogue)


APPROXIMATED = tuple(
    f"{name}{end}" for name in ("gelu", "gelu_tanh", "silu", "sigmoid") for end in ("", "_grad")
)


def test_activations_of_float32_are_as_near_as_the_documentation_says() -> None:
    """In units in the last place of the larger of 1 and |x|; what is left of a sum far below 0 in parts of itself."""
    x = np.concatenate([np.linspace(-20, 20, 2**14, dtype=np.float32), RANDOM.uniform(-9, 9, 2**12)]).astype(
        "f4"
    )
    found = np.full((len(APPROXIMATED), len(x)), np.nan, np.float32)
    lines = "".join(f"found[{i} * n + i] = activation::{name}(x[i]);" for i, name in enumerate(APPROXIMATED))
    source = f"""#include <tilewise/activation.cuh>
        extern "C" __global__ void all(const float *x, unsigned n, float *found)
        {{ const unsigned i = blockIdx.x * blockDim.x + threadIdx.x; {lines} }}"""
    tw.Kernel(source, "all", "sm_80")(len(x) // 256, 256, [x, np.uint32(len(x)), found], device="emulator")
    wide = x.astype(np.float64)
    for name, got in zip(APPROXIMATED, found, strict=True):
        exact = np.asarray(_SMOOTH[name][0](wide), np.float64)
        apart = np.abs(got - exact)
        assert (apart / np.maximum(np.abs(wide), 1) * 2**24).max() < 3, name
        left = (wide < 0) & (wide > -5) & (np.abs(exact) > 1e-6)
        most = {"gelu": 0.02, "gelu_tanh": 3e-6, "silu": 5e-7}.get(name, 1)
        assert (apart[left] / np.abs(exact[left])).max() < most, name


@pytest.mark.parametrize("name", APPROXIMATED)
def test_activations_of_float32_end_where_float64s_do(name: str) -> None:
    """Beyond what powers of two reach, and of what is no number."""
    x = np.array([[-np.inf, -3e38, -200, -100, -0.0, 0, 100, 200, 3e38, np.inf, np.nan]], np.float32)
    zeros = np.zeros((1, 1), np.float32), np.zeros((1, x.size), np.float32)
    epilogue = tw.epilogue(f"acc + {name}(x)", x=x)
    with np.errstate(all="ignore"):
        exact = _SMOOTH[name][0](x.astype(np.float64))
    got = tw.matmul(*zeros, epilogue=epilogue, device="emulator")
    finite = np.isfinite(exact)
    assert np.allclose(got[finite], exact[finite], rtol=1e-6, atol=1e-30), (got, exact)


SPECIAL = (-np.inf, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, np.inf, np.nan)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_function_by_itself_has_the_references_value_at_special_values(dtype: str) -> None:
    """Of one argument, or of each pair and triple of them; NaN in any of them stays NaN."""
    counts = {name: count for name, count in FUNCTIONS.items() if name != "where"}
    x = np.array(SPECIAL * 100, dtype)
    y, z = x.reshape(10, 10, 10).swapaxes(1, 2).reshape(-1), x.reshape(10, 10, 10).swapaxes(0, 2).reshape(-1)
    found = np.full((len(counts), x.size), 7, dtype)
    lines = "".join(
        f"found[{i} * n + at] = activation::{name}({', '.join(('x[at]', 'y[at]', 'z[at]')[:count])});"
        for i, (name, count) in enumerate(counts.items())
    )
    kind = "float" if dtype == "float32" else "double"
    arrays = ", ".join(f"const {kind} *{name}" for name in "xyz")
    source = f"""#include <tilewise/activation.cuh>
        extern "C" __global__ void all({arrays}, unsigned n, {kind} *found)
        {{ const unsigned at = blockIdx.x * blockDim.x + threadIdx.x; if (at < n) {{ {lines} }} }}"""
    tw.Kernel(source, "all", "sm_80")(4, 256, [x, y, z, np.uint32(x.size), found], device="emulator")
    arithmetic = BoundedArithmetic(2.0**-53, 2.0**-1074)
    given = [arithmetic.array(one) for one in (x, y, z)]
    for (name, count), got in zip(counts.items(), found, strict=True):
        with np.errstate(all="ignore"):
            exact = arithmetic.call(name, *given[:count]).value
        unknown = np.isnan(np.stack([one.value for one in given[:count]])).any(0)
        assert np.isnan(got[unknown]).all(), name
        sure = np.isfinite(exact) if name in _SMOOTH else np.full(x.shape, True)
        assert np.allclose(got[sure], exact[sure], rtol=1e-6, atol=1e-7, equal_nan=True), name


def test_special_values_come_through() -> None:
    a, b = draw(6, 5), draw(5, 4)
    a[1, 2], a[2, 0], b[3, 1] = np.inf, np.nan, -np.inf
    epilogue = tw.epilogue(
        "relu(acc) - min(acc, 1) if acc > -2 else clamp(acc, -9, 1) + relu_grad(acc) + 1 / acc"
    )
    assert_right(tw.matmul(a, b, epilogue=epilogue, device="emulator"), a, b, epilogue)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bias": np.zeros(5)}, "bias must broadcast to the result's shape (4, 6)"),
        ({"bias": np.zeros((4, 6, 1))}, "bias must broadcast"),
        ({"bias": np.zeros(6, "float64")}, "bias must have a type of float16, bfloat16, float32"),
        ({"bias": np.zeros(6, "complex64")}, "bias must have a type of float16, bfloat16, float32"),
        ({"bias": "a lot"}, "bias must be an array"),
        ({"alpha": "2"}, "alpha must be a number"),
        ({"alpha": True}, "alpha must be a number"),
        ({"activation": "gelou"}, "activation 'gelou' is not known; did you mean 'gelu'"),
        ({"beta": 1.0}, "c must be given with beta"),
        ({"epilogue": "relu(acc)"}, "epilogue must be what tw.epilogue gives"),
        ({"epilogue": tw.epilogue("relu(acc)"), "alpha": 2}, "epilogue must stand alone"),
        (
            {"epilogue": tw.epilogue("keep(p, acc)", p=np.zeros((4, 5), "float32"))},
            "p must have the result's shape",
        ),
        (
            {"epilogue": tw.epilogue("keep(p, acc)", p=np.zeros((1, 6), "float32"))},
            "p must have the result's shape",
        ),
        (
            {"epilogue": tw.epilogue("keep(p, acc)", p=np.broadcast_to(np.float32(0), (4, 6)))},
            "p must be writable",
        ),
    ],
)
def test_what_cannot_be_had_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        tw.matmul(draw(4, 3), draw(3, 6), device="emulator", **given)
    assert str(caught.value).startswith(message), caught.value


def test_what_is_kept_shares_no_memory() -> None:
    a, b, p = draw(4, 4), draw(4, 4), np.zeros((4, 4), "float32")
    with pytest.raises(ArgumentError, match=r"^out must not overlap p"):
        tw.matmul(a, b, p, epilogue=tw.epilogue("keep(p, acc) + 1", p=p), device="emulator")
    with pytest.raises(ArgumentError, match=r"^p must not overlap r"):
        tw.matmul(a, b, epilogue=tw.epilogue("keep(p, acc) + r", p=p, r=p.T), device="emulator")


def test_integers_become_the_type_of_the_sums() -> None:
    a, b, bias = draw(4, 3), draw(3, 6), np.arange(6, dtype="int16")
    assert_right(tw.matmul(a, b, bias=bias, device="emulator"), a, b, tw.epilogue("acc + b", b=bias))


def test_lessons_have_none() -> None:
    with pytest.raises(ArgumentError, match="epilogue must be plain for 04_tiled"):
        multiplied(draw(4, 4), draw(4, 4), tw.epilogue("relu(acc)"), "04_tiled")


def test_an_epilogue_is_plain_data() -> None:
    with pytest.raises(ArgumentError, match="must give bias"):
        Epilogue("acc + bias")
