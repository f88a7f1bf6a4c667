"""Fused calls over torch's tensors, with and without compiled code: one call, two ways, the same launches.

Nothing is compiled for a GPU here: what is compared is which launches come, with which bytes, and which errors.
"""

from __future__ import annotations

import contextlib
import fractions
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.warm_call_cases import LAYOUTS, Front, empty, lay_out, share
from tilewise import calls
from tilewise.call_stub.machine_code import is_supported_python
from tilewise.expression import parse
from tilewise.matmul import matmul_in_python

torch: Any = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")  # whose numbers describe tensor maps
if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    pytest.skip("this torch has no exchange table", allow_module_level=True)
pytestmark = pytest.mark.skipif(not is_supported_python(), reason="this Python has no compiled call")

half = torch.bfloat16
M, N, K = 8, 24, 16


@pytest.fixture(scope="module")
def one_front() -> Iterator[Front]:
    with pytest.MonkeyPatch.context() as patch:
        yield Front(patch, compiles=False)
    calls.forget()


@pytest.fixture
def front(one_front: Front) -> Front:
    one_front.forget()
    return one_front


def operands(dtype: Any = half) -> tuple[Any, Any, Any]:
    return empty(M, K, dtype=dtype), empty(K, N, dtype=dtype), empty(M, N, dtype=dtype)


def fused(dtype: Any = half) -> dict[str, Any]:
    residual = empty(M, N, dtype=dtype)
    return {"bias": empty(N, dtype=dtype), "activation": "gelu", "residual": residual}


@pytest.mark.parametrize("dtype", [half, torch.float32, torch.float64], ids=str)
def test_every_usual_epilogue_is_fast(front: Front, dtype: Any) -> None:
    a, b, out = operands(dtype)
    whole = fused(dtype)
    c = empty(M, N, dtype=dtype)
    forms: list[dict[str, Any]] = [{name: value} for name, value in whole.items()]
    forms += [
        whole,
        {"alpha": 2.5},
        {"alpha": 3, "c": c},
        {"c": c, "beta": -0.5},
        {**whole, "alpha": 2, "beta": 3, "c": c},
        dict(reversed(whole.items())),
        {"alpha": 1, "beta": None, "bias": None, "activation": None},
        {"beta": 0, "c": c, "bias": whole["bias"]},
        {"bias": empty(M, 1, dtype=dtype), "residual": empty(1, N, dtype=dtype)},
    ]
    for form in forms:
        for _ in range(2):
            assert front.is_equal_and_fast(a, b, out=out, **form), form
            assert front.is_equal_and_fast(a, b, **form), form


@pytest.mark.parametrize(
    "types", [(torch.float8_e4m3fn,) * 2, (torch.int8,) * 2, (half, torch.int8)], ids=str
)
def test_scales_are_an_epilogue_of_compiled_code(front: Front, types: tuple[Any, Any]) -> None:
    """From the second call on: of each form alike, whatever the scales are then."""
    a, b = empty(M, K, dtype=types[0]), empty(K, N, dtype=types[1])
    rows, columns, bias = torch.rand(M, 1), torch.rand(1, N), empty(N, dtype=half)
    for form in (
        {"scale_a": rows, "scale_b": columns},
        {"scale_b": columns, "bias": bias, "activation": "relu"},
    ):
        matmul_in_python(a, b, **form)
        front.gpu.launched.clear()
        for _ in range(2):
            before = front.gpu.driver.launches()
            form["scale_b"] = torch.rand(1, N)
            out = matmul_in_python(a, b, **form)
            assert front.gpu.driver.launches() > before and not front.gpu.launched
            assert out.shape == (M, N) and out.dtype == (torch.float32 if types[0] == torch.int8 else half)


def test_scales_along_k_are_too(front: Front) -> None:
    """Of both types of float8, as `quantize` gives them, with a bias or without."""
    left = tw.quantize(torch.randn(M, 300), axis=-1, block=128)
    right = tw.quantize(torch.randn(N, 300), "float8_e5m2", block=(128, 128))
    assert left.scale.stride() == (1, M)
    for bias in (None, empty(N, dtype=half)):
        tw.linear(left, right, bias)
        front.gpu.launched.clear()
        for _ in range(2):
            before = front.gpu.driver.launches()
            out: Any = tw.linear(left, right, bias)
            assert front.gpu.driver.launches() > before and not front.gpu.launched
            assert out.shape == (M, N) and out.dtype == half


@pytest.mark.parametrize("shape", [(M,), (3, M), (2, 3, M)])
def test_a_linear_layer_is_fast(front: Front, shape: tuple[int, ...]) -> None:
    x, weight, bias = empty(*shape, K, dtype=half), empty(N, K, dtype=half), empty(N, dtype=half)
    out, residual = empty(*shape, N, dtype=half), empty(*shape, N, dtype=half)
    for arguments in ((x, weight), (x, weight, bias), (x, weight, None)):
        for more in ({}, {"activation": "gelu"}, {"residual": residual, "activation": "silu"}):
            assert front.is_equal_and_fast(*arguments, function="linear", **more)
            assert front.is_equal_and_fast(*arguments, function="linear", out=out, **more)
    assert front.is_equal_and_fast(x, weight, function="linear", bias=bias)
    assert not front.is_equal_and_fast(x, weight, bias, function="linear", bias=bias)
    assert not front.is_equal_and_fast(x, weight.t(), bias, function="linear")
    large = (empty(1024, 1024, dtype=half), empty(1024, 1024, dtype=half), empty(1024, dtype=half))
    encodes = front.gpu.driver.encodes()
    assert front.is_equal_and_fast(*large, function="linear", activation="gelu")
    assert front.gpu.driver.encodes() > encodes  # so that tensor maps of a transposed weight are compared


def test_a_weight_that_wants_a_gradient_is_slow_outside_of_no_grad(front: Front) -> None:
    x, weight, bias = empty(M, K), torch.nn.Parameter(empty(N, K)), torch.nn.Parameter(empty(N))
    for arguments in ((x, weight, bias), (x, weight.detach(), bias), (x, weight.detach(), None, bias)):
        keywords = {"residual": arguments[3]} if len(arguments) > 3 else {}
        assert not front.is_equal_and_fast(*arguments[:3], function="linear", **keywords)
        with torch.no_grad():
            assert front.is_equal_and_fast(*arguments[:3], function="linear", **keywords)


def test_groups_are_fast(front: Front) -> None:
    a, b, out = empty(20, K, dtype=half), empty(3, K, N, dtype=half), empty(20, N, dtype=half)
    ends = torch.tensor([5, 5, 20], dtype=torch.int32)
    epilogue = tw.epilogue("silu(acc) * gate + s", gate=empty(20, N, dtype=half), s=0.5)
    for more in ({}, {"epilogue": epilogue}):
        assert front.is_equal_and_fast(a, b, ends, function="grouped_matmul", **more)
        assert front.is_equal_and_fast(a, b, ends, out, function="grouped_matmul", **more)
        assert front.is_equal_and_fast(a, b, function="grouped_matmul", offsets=ends, out=out, **more)
    shifted = torch.zeros(4, dtype=torch.int32)[1:]
    assert front.is_equal_and_fast(a, b, shifted, out, function="grouped_matmul")
    for wrong in (ends.long(), ends[:2], ends[::2], None, [5, 5, 20], ends.float()):
        assert not front.is_equal_and_fast(a, b, wrong, out, function="grouped_matmul")
    assert not front.is_equal_and_fast(a, b, function="grouped_matmul", out=out)


# Epilogue objects


def test_an_object_is_known_by_its_text(front: Front) -> None:
    a, b, out = operands()
    for value in (2, 0.25, np.float64(-3), float("nan"), 1e300, True):
        residual = empty(M, N, dtype=half)
        epilogue = tw.epilogue("max(acc * s, 0) + r", s=value, r=residual)
        fast = value is not True  # which float() takes as well, and compiled code leaves to it
        assert front.is_equal_and_fast(a, b, epilogue=epilogue, out=out) == fast
        assert front.is_equal_and_fast(a, b, epilogue=epilogue) == fast
    other = tw.epilogue("max(acc * s, 0) - r", s=2, r=residual)
    before = front.gpu.driver.launches()
    front.matmul(a, b, epilogue=other, out=out)
    assert front.gpu.driver.launches() == before
    assert front.is_equal_and_fast(a, b, epilogue=other, out=out)
    for keywords in ({"bias": empty(N, dtype=half)}, {"activation": "relu"}, {"alpha": 2}):
        assert not front.is_equal_and_fast(a, b, epilogue=other, out=out, **keywords)
    assert front.is_equal_and_fast(a, b, epilogue=other, out=out, alpha=1.0, bias=None)


def test_what_a_changed_object_gives_counts(front: Front) -> None:
    """Its dictionary is no more than a dictionary."""
    a, b, out = operands()
    epilogue = tw.epilogue("acc * s + r", s=2, r=empty(M, N, dtype=half))
    given: Any = epilogue.given
    assert front.is_equal_and_fast(a, b, epilogue=epilogue, out=out)
    given["s"] = -7.5
    assert front.is_equal_and_fast(a, b, epilogue=epilogue, out=out)
    given["s"] = empty(N, dtype=half)
    assert front.is_equal_and_fast(a, b, epilogue=epilogue, out=out)
    given["s"], given["r"] = 2, 3
    assert front.is_equal_and_fast(a, b, epilogue=epilogue, out=out)
    for name, value in (("r", None), ("s", 10**400), ("s", "2"), ("s", fractions.Fraction(1, 2))):
        before = given[name]
        given[name] = value
        assert not front.is_equal_and_fast(a, b, epilogue=epilogue, out=out)
        given[name] = before
    front.matmul(a, b, epilogue=epilogue, out=out)
    launches = front.gpu.driver.launches()
    given["s"] = given.pop("s")  # another order
    front.matmul(a, b, epilogue=epilogue, out=out)
    assert front.gpu.driver.launches() == launches


def test_what_is_kept_is_written_and_shares_no_memory(front: Front) -> None:
    a, b, out = operands(torch.float32)
    memory = empty(8 * M * N)
    first, second = memory[: M * N].view(M, N), memory[4 * M * N : 5 * M * N].view(M, N)
    epilogue = "keep(x, acc + bias) + r"
    bias = empty(N)

    def of(x: Any, r: Any) -> Any:
        return tw.epilogue(epilogue, x=x, r=r, bias=bias)

    assert front.is_equal_and_fast(a, b, epilogue=of(first, second))
    assert front.is_equal_and_fast(a, b, epilogue=of(first, second), out=out)
    assert front.is_equal_and_fast(a, b, epilogue=of(first, second), out=second)
    assert not front.is_equal_and_fast(a, b, epilogue=of(first, second), out=first)
    assert not front.is_equal_and_fast(a, b, epilogue=of(first, first))
    for start in (M * N - N, M * N - 4):
        shifted = memory[start : start + M * N].view(M, N)
        assert not front.is_equal_and_fast(a, b, epilogue=of(first, shifted))
        assert not front.is_equal_and_fast(a, b, epilogue=of(first, second), out=shifted)
    within = memory[: M * K].view(M, K)
    assert front.is_equal_and_fast(within, b, epilogue=of(second, out))
    assert not front.is_equal_and_fast(within, b, epilogue=of(first, second))


def test_a_residual_may_be_the_out_and_nothing_beside_it(front: Front) -> None:
    a, b, _ = operands(torch.float32)
    memory = empty(4 * M * N)
    out = memory[: M * N].view(M, N)
    assert front.is_equal_and_fast(a, b, residual=memory[2 * M * N : 3 * M * N].view(M, N), out=out)
    assert front.is_equal_and_fast(a, b, residual=out, out=out)
    assert front.is_equal_and_fast(a, b, residual=memory[: M * N].view(M, N), out=out)
    assert front.is_equal_and_fast(a, b, c=out, beta=0.5, residual=out, out=out)
    for start in (4, N, M * N - 4):
        assert not front.is_equal_and_fast(a, b, residual=memory[start : start + M * N].view(M, N), out=out)
    assert front.is_equal_and_fast(a, b, residual=memory[M * N : 2 * M * N].view(M, N), out=out)
    bias = out[0]
    assert not front.is_equal_and_fast(a, b, bias=bias, out=out)
    assert front.is_equal_and_fast(a, b, bias=bias)


def test_numbers_are_patched_and_arrays_are_looked_up_anew(front: Front) -> None:
    a, b, out = operands()
    assert front.is_equal_and_fast(a, b, alpha=2.0, **fused(), out=out)
    record_count = len(front.warm._stub._records)
    alphas: list[Any] = [-1.0, 0, 1e-45, 1e39, math.inf, math.nan, 2**63, 0.1, np.float64(0.1)]
    for alpha in alphas:
        assert front.is_equal_and_fast(a, b, alpha=alpha, **fused(), out=out), alpha
    assert len(front.warm._stub._records) == record_count
    others: list[Any] = [True, None, "2", np.float32(2), 10**400, fractions.Fraction(1, 3), a]
    for alpha in others:
        assert not front.is_equal_and_fast(a, b, alpha=alpha, **fused(), out=out), alpha


def test_an_activation_is_known_by_what_it_says(front: Front) -> None:
    a, b, out = operands()
    assert front.is_equal_and_fast(a, b, activation="gelu", out=out)
    assert front.is_equal_and_fast(a, b, activation="".join(["ge", "lu"]), out=out)
    assert not front.is_equal_and_fast(a, b, activation=np.str_("gelu"), out=out)
    for wrong in ("Gelu", "gelu_grad", "", 1, b"gelu", a, ["gelu"]):
        assert not front.is_equal_and_fast(a, b, activation=wrong, out=out)


def test_other_arrays_are_other_calls(front: Front) -> None:
    a, b, out = operands()
    known = fused()
    assert front.is_equal_and_fast(a, b, **known, out=out)
    before = front.gpu.driver.launches()
    for bias in (
        empty(N),
        empty(2 * N, dtype=half)[::2],
        empty(1, N, dtype=half),
        empty(N + 1, dtype=half)[1:],
        empty(1, dtype=half).expand(N),
        np.zeros(N, np.float32),
        empty(N, dtype=half, device="meta"),
        empty(N + 1, dtype=half),
        empty(N, dtype=torch.int32),
        empty(N, dtype=half).requires_grad_(),
        empty((), dtype=half),
        empty(N, dtype=half).tolist(),
        3.0,
    ):
        with contextlib.suppress(tw.TilewiseError):
            front.matmul(a, b, **{**known, "bias": bias}, out=out)
        assert front.gpu.driver.launches() == before
        front.is_equal_and_fast(a, b, **{**known, "bias": bias}, out=out)
        before = front.gpu.driver.launches()


# Any call


SHAPES: tuple[tuple[int, ...], ...] = ((N,), (1, N), (M, 1), (M, N), (1,), (), (N + 1,), (2, M, N), (M, N, 1))
EXPRESSIONS = ("acc + x", "gelu(acc * s + x)", "max(acc, y) * x", "keep(x, acc) * s", "s", "acc", "acc + (x)")


@st.composite
def arrays(draw: st.DrawFn, dtype: Any, tensors: list[Any]) -> Any:
    """What is given as a bias, a residual, …: mostly right."""
    kind = draw(st.sampled_from(("good",) * 8 + ("known", "beside", "type", "object", "gradient")))
    if kind == "known":
        return draw(st.sampled_from(tensors))
    if kind == "beside":
        return share(tensors[-1], draw(st.sampled_from(((M, N), (N,)))), draw(st.integers(0, 80)))
    if kind == "object":
        others: tuple[Any, ...] = (None, 2.5, "x", np.zeros((M, N), np.float32), empty(N, device="meta"))
        return draw(st.sampled_from(others))
    if kind == "type":
        dtype = draw(st.sampled_from((torch.float32, torch.float16, torch.float64, torch.int64)))
    made = lay_out(draw(st.sampled_from(SHAPES[:4] * 4 + SHAPES)), dtype, draw(st.sampled_from(LAYOUTS)))
    return made.requires_grad_() if kind == "gradient" and made.is_leaf and made.is_floating_point() else made


NUMBERS = st.one_of(
    st.floats(allow_nan=True),
    st.sampled_from((0, 1, 1.0, 2, -0.0, True, None, np.float32(2), np.float64(0.5), 10**400, "1")),
    st.integers(-(2**70), 2**70),
)


@st.composite
def objects(draw: st.DrawFn, array: Any) -> Any:
    """An epilogue object, or what stands wrongly in its place."""
    text = draw(st.sampled_from(EXPRESSIONS))
    parsed = parse(text)
    values = {name: draw(NUMBERS if name == "s" else array) for name in parsed.names + parsed.kept}
    try:
        return tw.epilogue(text, **values)
    except tw.TilewiseError:
        return text


@st.composite
def fused_calls(draw: st.DrawFn) -> tuple[str, tuple[Any, ...], dict[str, Any], bool]:
    """A function, its positional arguments and keywords, and whether gradients are recorded."""
    function = draw(st.sampled_from(("matmul", "matmul", "linear", "grouped_matmul")))
    b_shape = {"matmul": (K, N), "linear": (N, K), "grouped_matmul": (3, K, N)}[function]
    dtype = draw(st.sampled_from((half, half, torch.float32, torch.float64)))
    layouts = st.sampled_from(("plain", "plain", *LAYOUTS))
    a, b = (lay_out(shape, dtype, draw(layouts)) for shape in ((M, K), b_shape))
    out = lay_out((M, N), dtype, draw(st.sampled_from(("plain", "plain", *LAYOUTS[:-1]))))
    keywords: dict[str, Any] = {}
    if draw(st.booleans()):
        keywords["out"] = draw(st.sampled_from((out, out, out, None, a)))
    array = arrays(dtype, [a, b, out])
    names = ["bias", "activation", "residual", "c", "alpha", "beta"] if function == "matmul" else []
    names = ["bias", "activation", "residual"] if function == "linear" else names
    if function != "linear" and draw(st.integers(0, 2)) == 0:
        keywords["epilogue"] = draw(objects(array))
        names = names if draw(st.integers(0, 4)) == 0 else []
    for name in names:
        if draw(st.booleans()):
            if name == "activation":
                keywords[name] = draw(st.sampled_from(("gelu", "relu", "silu", None, "tan", 3)))
            else:
                keywords[name] = draw(NUMBERS if name in ("alpha", "beta") else array)
    positional: tuple[Any, ...] = a, b
    if function == "linear" and "bias" in keywords and draw(st.booleans()):
        positional = (a, b, keywords.pop("bias"))
    if function == "grouped_matmul":
        ends = torch.tensor([2, 2, M], dtype=torch.int32)
        others = ends.long(), ends[:2], torch.zeros(5, dtype=torch.int32)[::2], None, [2, 2, M]
        positional = (a, b, draw(st.sampled_from((ends,) * 6 + others)))
        if "out" in keywords and draw(st.booleans()):
            positional = (*positional, keywords.pop("out"))
    shuffled = draw(st.permutations(list(keywords)))
    return function, positional, {name: keywords[name] for name in shuffled}, draw(st.booleans())


def test_any_fused_call_is_the_same_with_and_without_compiled_code(front: Front) -> None:
    ways = []

    @given(fused_calls())
    @settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
    def check(call: Any) -> None:
        function, arguments, keywords, records_gradients = call
        with torch.set_grad_enabled(records_gradients):
            ways.append(front.is_equal_and_fast(*arguments, function=function, **keywords))

    check()
    assert ways.count(True) > 20 and ways.count(False) > 20  # of 250, as chance has it
