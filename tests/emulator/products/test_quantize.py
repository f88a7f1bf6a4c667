"""tw.quantize: 8 bits with scales, by NumPy and by the kernel, bit by bit; products of them as of the numbers."""

from __future__ import annotations

import importlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise import interop
from tilewise.calls import Choice
from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.kernels import KERNELS
from tilewise.kernels.bind import bind_steps
from tilewise.matmul import multiply
from tilewise.reference import compare

TYPES = ("float8_e4m3fn", "float8_e5m2", "int8")
NUMBERS = ("float32", "float16", "bfloat16")
RANDOM = np.random.default_rng()
module: Any = importlib.import_module("tilewise.quantize")
torch: Any = pytest.importorskip("torch")


def numbers(shape: tuple[int, ...], element: str = "float32") -> Any:
    """Of very different sizes, zeros and lines of zeros among them."""
    found = RANDOM.standard_normal(shape) * 2.0 ** RANDOM.integers(-12, 12, shape)
    found[RANDOM.random(shape) < 0.1] = 0
    if shape[-2] > 2:
        found[..., 1, :] = 0
    return found.astype(getattr(ml_dtypes, element, element))


@pytest.fixture
def on_emulator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the launches for a GPU do, on the emulator."""
    device: Any = tw.device("emulator", order=int(RANDOM.integers(2**30)))

    def launch(steps: Any, used: Any, common: Any) -> None:
        held = [device.adopt(one.ptr, one.owner.nbytes, name, one.owner) for name, one in used.items()]
        bind_steps(steps, device)({name: view.ptr for name, view in used.items()})
        del held

    monkeypatch.setattr(module, "_launch", launch)
    return device


@pytest.mark.parametrize(
    ("name", "operand", "of_sums", "of_terms"),
    [
        ("scale_a", (256, 300), [(), (256, 1), (1, 1)], [(256, 3), (1, 3), (2, 3), (2, 1), (1, 300)]),
        ("scale_a", (300,), [(), (1,)], [(3,)]),
        ("scale_a", (4, 256, 300), [(4, 1, 1), (256, 1)], [(4, 256, 3), (4, 2, 3), (4, 2, 1)]),
        ("scale_b", (300, 256), [(), (256,), (1, 256), (1, 1)], [(3, 256), (3, 2), (1, 2), (3, 1)]),
        ("scale_b", (300,), [(), (1,)], [(3, 1)]),
    ],
)
def test_scales_are_of_terms_where_they_differ_along_k_or_tiles_share_them(
    name: str, operand: tuple[int, ...], of_sums: list[tuple[int, ...]], of_terms: list[tuple[int, ...]]
) -> None:
    def text_with(shape: tuple[int, ...], **given: bool) -> str:
        scale = np.ones(shape, np.float32) if shape else 2.0
        text: str = module.scale_sums(None, {name: scale}, {name: operand}, **given).expression.text
        return text

    terms = "(scaled(acc, scale_a, 1))" if name == "scale_a" else "(scaled(acc, 1, scale_b))"
    assert [*map(text_with, of_sums)] == [f"(acc * {name})"] * len(of_sums)
    assert [*map(text_with, of_terms)] == [terms] * len(of_terms)
    if name == "scale_b":  # of matrices for groups of rows: no array of the result's shape has them
        assert {text_with(shape, grouped=True) for shape in (*of_sums[1:], *of_terms)} == {terms}


@pytest.mark.parametrize(
    ("name", "operand", "along"),
    [("scale_a", (3, 300), "k"), ("scale_a", (2, 3, 300), "k"), ("scale_b", (300,), "columns")],
)
def test_scales_in_one_axis_are_refused_where_they_would_be_of_others_lines(
    name: str, operand: tuple[int, ...], along: str
) -> None:
    """Of A's rows they would be of the result's columns, and of the runs of a vector of its rows."""
    with pytest.raises(ArgumentError, match=rf"^{name} must have an axis for {along} too.*shape \(3, 1\)$"):
        module.scale_sums(None, {name: np.ones(3, np.float32)}, {name: operand})


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("dtype", "element"), list(zip(TYPES, ("bfloat16", "float32", "float16"), strict=True))
)
@pytest.mark.parametrize("axis", [-1, None, -2])
@examples(2, 5, suppress_health_check=list(HealthCheck))
@given(
    m=st.integers(1, 150), n=st.integers(1, 600), stack=st.sampled_from([(), (3,), (2, 2)]), turned=st.booleans()
)  # fmt: skip
def test_the_kernel_does_as_numpy(
    on_emulator: Any, m: int, n: int, stack: tuple[int, ...], axis: int | None, turned: bool, dtype: str, element: str
) -> None:  # fmt: skip
    x = numbers((*stack, n, m), element).swapaxes(-1, -2) if turned else numbers((*stack, m, n), element)
    assert_as_numpy(x, dtype, element, axis, None)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("dtype", "element", "axis", "block"),
    [
        ("float8_e4m3fn", "bfloat16", -1, 128),
        ("float8_e5m2", "float32", None, (128, 128)),
        ("int8", "float16", -2, 128),
    ],
)
@examples(1, 8, suppress_health_check=list(HealthCheck))
@given(
    m=st.integers(1, 260), n=st.integers(1, 260), stack=st.sampled_from([(), (3,)]), turned=st.booleans()
)  # fmt: skip
def test_the_kernel_of_blocks_does_as_numpy(
    on_emulator: Any, m: int, n: int, stack: tuple[int, ...], axis: int | None, block: Any, turned: bool,
    dtype: str, element: str,
) -> None:  # fmt: skip
    x = numbers((*stack, n, m), element).swapaxes(-1, -2) if turned else numbers((*stack, m, n), element)
    assert_as_numpy(x, dtype, element, axis, block)


def assert_as_numpy(x: Any, dtype: str, element: str, axis: int | None, block: Any) -> None:
    """The kernels' values, scales and numbers of these are those of the host, with NaN and infinity among them."""
    m, n = x.shape[-2:]
    if n > 5:
        x[..., 0, 3] = np.nan
    if n > 8 and m > 5:
        x[..., 4, 7] = np.inf
    expected = tw.quantize(x, dtype, axis=axis, block=block)
    values, scale = np.zeros(x.shape, expected.values.dtype), np.full_like(expected.scale, np.nan)
    views = [
        interop.view(name, one)
        for name, one in (("x", x.copy(order="K")), ("values", values), ("scale", scale))
    ]
    common = interop.common({"x": views[0]})
    shared = module._shared_along(axis, block, views[0])
    module._quantize_on_gpu(*views, shared, common)
    assert scale.tobytes() == expected.scale.tobytes()
    nan = np.isnan(values.astype(np.float32))  # of which there is more than one
    assert (nan == np.isnan(expected.values.astype(np.float32))).all()
    assert (values.view(np.uint8) == expected.values.view(np.uint8))[~nan].all()
    back = np.zeros(x.shape, x.dtype)
    module._dequantize_on_gpu(*views[1:], shared, interop.view("numbers", back), common)
    known = expected.dequantize(element)
    assert np.array_equal(back.astype(np.float32), known.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_beside_the_middle_of_two_are_rounded_once(dtype: str) -> None:
    """To the nearer one, however little is missing: by way of another type they would come to the middle first."""
    kind, most = getattr(ml_dtypes, dtype, dtype), np.float32(module.MOST[dtype])
    below = np.arange(4, 126) if dtype == "int8" else np.arange(0x20, 0x78, dtype=np.uint8).view(kind)
    exact = np.unique(below.astype(np.float32))
    middle = (exact[1:] + exact[:-1]) / 2
    x = np.stack([np.nextafter(middle, np.float32(way)) for way in (0, np.inf)])
    x = np.concatenate([x, np.full((2, 1), most)], axis=1)
    found, (lower, upper) = tw.quantize(x, dtype), (exact[:-1], exact[1:])
    assert (found.scale == 1).all()
    np.testing.assert_array_equal(found.values[:, :-1].astype(np.float32), [lower, upper])


@pytest.mark.parametrize("block", [(-1, 128), (-2, 128), (None, (128, 128))])
def test_a_block_has_the_scale_of_its_largest_number(block: tuple[Any, Any]) -> None:
    x = numbers((300, 260))
    found = tw.quantize(x, axis=block[0], block=block[1])
    rows, columns = (128 if block[0] in (None, -2) else 1), (128 if block[0] in (None, -1) else 1)
    for i in range(found.scale.shape[0]):
        for j in range(found.scale.shape[1]):
            part = np.s_[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
            alone = tw.quantize(x[part])
            assert (
                alone.scale[0, 0] == found.scale[i, j]
                and alone.values.tobytes() == found.values[part].tobytes()
            )
    assert found.dequantize().shape == x.shape


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [None, -1, -2, 0, 1])
def test_the_largest_number_of_a_line_is_the_largest_there_is(dtype: str, axis: int | None) -> None:
    x = RANDOM.standard_normal((40, 50)).astype(np.float32)
    values, scale = tw.quantize(x, dtype, axis=axis)
    most = {"float8_e4m3fn": 448, "float8_e5m2": 57344, "int8": 127}[dtype]
    assert (np.abs(values.astype(np.float32)).max(axis=axis) == most).all()
    assert scale.shape == ((1, 1) if axis is None else (40, 1) if axis in (-1, 1) else (1, 50))
    step = {"float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3, "int8": 0.0}[dtype]
    error = np.abs(tw.Quantized(values, scale).dequantize() - x)
    assert (error <= step * np.abs(x) + scale * 0.5 + 1e-6).all()


def test_scales_multiply_the_sum_and_no_name_that_has_its_letters() -> None:
    call = tw.epilogue("max(acc, accent) + pacc", accent=1.0, pacc=2.0)
    scales, shapes = {"scale_a": 3.0, "scale_b": None}, {"scale_a": (4, 8), "scale_b": (8, 4)}
    found = module.scale_sums(call, scales, shapes)
    assert found.expression.text == "max((acc * scale_a), accent) + pacc"
    assert found.given == {"scale_a": 3.0, "accent": 1.0, "pacc": 2.0}


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", TYPES)
def test_products_are_those_of_the_numbers(dtype: str) -> None:
    """With whatever else happens to the sums; in every way to say so."""
    x, w = numbers((40, 200)), RANDOM.standard_normal((30, 200)).astype(np.float32)
    bias, residual = RANDOM.standard_normal(30).astype(np.float32), numbers((40, 30))
    left, right = tw.quantize(x, dtype, axis=-1), tw.quantize(w, dtype, axis=-1)
    turned = tw.Quantized(right.values.T, right.scale.T)
    names = {"rows": left.scale, "columns": right.scale.T, "bias": bias, "residual": residual}
    known = tw.epilogue("relu(acc * rows * columns + bias) + residual", **names)
    for kernel in ("general", "wgmma"):
        out = np.zeros((40, 30), np.float32)
        multiply(
            left.values, turned.values, out, tw.device("emulator"), Choice(specs=(KERNELS[kernel],)), known
        )
        assert compare(out, left.values, turned.values, epilogue=known).ok
    linear: Any = tw.linear(left, right, bias, activation="relu", residual=residual, device="emulator")
    assert linear.dtype == (np.float32 if dtype == "int8" else ml_dtypes.bfloat16)
    assert compare(linear, left.values, turned.values, epilogue=known).ok
    own: Any = tw.matmul(left.values, turned.values, scale_a=left.scale, scale_b=turned.scale, device="emulator",
                    epilogue=tw.epilogue("relu(acc + bias) + residual", bias=bias, residual=residual))  # fmt: skip
    assert own.tobytes() == linear.tobytes()
    planned = tw.plan(40, 30, 200, dtype=dtype, layout="nt", gpu="h200", epilogue=known)
    assert planned.problem.c == linear.dtype.name and tw.check(planned) == []
    wide = left.dequantize() @ turned.dequantize()
    plain: Any = tw.matmul(left, turned, device="emulator")
    assert np.abs(plain.astype(np.float32) - wide).max() <= 0.01 * np.abs(wide).max()


def test_arrays_of_the_emulator_become_such_of_which_everything_is_set() -> None:
    """So that no kernel that is checked is told to read what nobody wrote."""
    found: Any = tw.quantize(tw.device("emulator").array(numbers((6, 40))), axis=-1)
    assert not found.values.unset.any() and not found.scale.unset.any()


def test_tensors_become_tensors() -> None:
    x = torch.randn(6, 40)
    found = tw.quantize(x.to(torch.bfloat16), axis=-1)
    assert found.values.dtype == torch.float8_e4m3fn and found.scale.shape == (6, 1)
    assert (found.dequantize("float32") - x).abs().max() < 0.3
    product: Any = tw.matmul(found, tw.quantize(x.T.contiguous(), axis=-2), device="emulator")
    assert product.dtype == torch.bfloat16 and product.shape == (6, 6)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x: tw.quantize(x, axis=2), "axis must be one of the last two, or None"),
        (lambda x: tw.quantize(x[0]), "x must have two to 4 dimensions"),
        (lambda x: tw.quantize(x.astype("float64")), "x must have a type of float32, float16, bfloat16"),
        (lambda x: tw.matmul(tw.quantize(x, axis=-2), tw.quantize(x, axis=-2)), r"scale_a must be the same along k, or have one for each 128 of it: the shape \(8, 1\) or \(1, 1\), not \(1, 8\)"),
        (lambda x: tw.matmul(tw.quantize(x), tw.quantize(x, axis=-1)), r"scale_b must be the same along k, .* the shape \(1, 8\) or \(1, 1\), not \(8, 1\)"),
        (lambda x: tw.matmul(tw.quantize(x), x, scale_a=2.0), "scale_a must be left out where a brings its own"),
        (lambda x: tw.matmul(x, x, scale_a=2.0, epilogue=tw.epilogue("acc * scale_a", scale_a=2.0)), "not be a name in"),
        (
            lambda x: tw.matmul(x, x, scale_a=2.0, scale_b=2.0, epilogue=tw.epilogue("acc * scale_b", scale_b=2.0)),
            "scale_b must not be a name in",
        ),
        (lambda x: tw.matmul(x, x, scale_b=2.0, epilogue=tw.epilogue("acc * scale_b", scale_b=2.0)), "scale_b must not be"),
        (lambda x: tw.matmul(tw.quantize(x), x), "a must have a type of"),
        (lambda x: tw.batched_matmul([tw.quantize(x)], [x]), r"a\[0\] must be an array here, not 'Quantized'; its values and its scale are"),
        (lambda x: tw.matmul(x, x, residual=tw.quantize(x)), "residual must be an array here, not 'Quantized'"),
        (lambda x: tw.batched_matmul([tw.split_float32(x, axis=-1)], [x]), r"a\[0\] must be an array here, not 'SplitFloat32'; its source is one"),
        (lambda x: tw.quantize(x, block=128), r"block must be \(128, 128\) without axis, not 128; with block=128 give axis=-1"),
        (lambda x: tw.quantize(x, axis=-1, block=64), "block must be 128 with axis, or None"),
        (lambda x: tw.matmul(x.astype("float16"), tw.quantize(x, block=(128, 128)), scale_a=np.ones((3, 1), "float32")), "scale_a must broadcast"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_sentence(call: Any, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        call(np.ones((8, 8), np.float32))


def test_unknown_types_are_told() -> None:
    with pytest.raises(UnknownNameError, match="float8_e4m3"):
        tw.quantize(np.ones((2, 2), np.float32), "float8_e4m3")
    with pytest.raises(UnknownNameError, match="float16"):
        tw.quantize(np.ones((2, 2), np.float32)).dequantize("f16")
    for wrong in (np.float32(1), np.ones(2, np.float32), np.ones((2, 1)), np.ones((3, 1), np.float32)):
        with pytest.raises(ArgumentError, match="scale must have"):
            tw.Quantized(np.ones((2, 2), np.int8), np.asarray(wrong)).dequantize()
    with pytest.raises(ArgumentError, match="scale must have"):  # 128 matrices of a stack share none
        tw.Quantized(np.ones((200, 2, 2), np.int8), np.ones((2, 1, 1), np.float32)).dequantize()
    with pytest.raises(ArgumentError, match="values must have a type of"):
        tw.Quantized(np.ones((2, 2), np.int32), np.ones((2, 1), np.float32)).dequantize()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "axis", "scale"),
    [((0, 5), -1, (0, 1)), ((5, 0), -1, (5, 1)), ((5, 0), -2, (1, 0)), ((0, 5), None, (1, 1)), ((5, 0), None, (1, 1))],
)  # fmt: skip
def test_nothing_has_a_scale_where_something_would(
    dtype: str, shape: tuple[int, int], axis: int | None, scale: tuple[int, int]
) -> None:
    found = tw.quantize(np.ones(shape, np.float32), dtype, axis=axis)
    assert found.values.shape == shape and found.scale.shape == scale and (found.scale == 1).all()
    assert found.dequantize().shape == shape
    if axis == -1:
        product: Any = tw.linear(found, found, device="emulator")
        assert product.shape == (shape[0],) * 2 and not product.astype(np.float32).any()


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1), (0, 5), (5, 0), (3, 1, 4), (2, 0, 4)])
def test_what_lies_on_a_gpu_is_quantized_there_and_back_unless_it_is_nothing(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    launched: list[Any] = []
    monkeypatch.setattr(module, "_launch", lambda steps, *_: launched.extend(steps))
    monkeypatch.setattr(module, "HOST", "elsewhere")
    found = tw.quantize(np.ones(shape, np.float32), "int8", axis=-1)
    quantized = len(launched)
    assert found.values.shape == shape and found.scale.shape == (*shape[:-1], 1)
    assert found.dequantize().shape == shape
    assert (quantized > 0) == (len(launched) > quantized) == (0 not in shape)


def test_no_gradient_goes_through_scales() -> None:
    """What is refused is the scale, by its name in the call; without gradients the same call multiplies."""
    x, weight = (
        torch.randn(4, 16, dtype=torch.bfloat16, requires_grad=True),
        tw.quantize(torch.randn(24, 16), axis=-1),
    )
    with pytest.raises(ArgumentError, match=r"^weight\.scale must be None where gradients are recorded"):
        tw.linear(x, weight, device="emulator")
    with pytest.raises(ArgumentError, match=r"^x\.scale must be None where gradients are recorded"):
        tw.linear(weight, x.new_zeros(8, 16).requires_grad_(), device="emulator")
    with pytest.raises(
        ArgumentError,
        match=r"^scale_b must be None where gradients are recorded.*multiply by what Quantized\.dequantize",
    ):
        tw.matmul(x, weight.values.T, scale_b=weight.scale.T, device="emulator")
    with pytest.raises(ArgumentError, match=r"^scale_a must be None where gradients are recorded"):
        tw.matmul(
            weight.values, weight.values.T, scale_a=weight.scale.clone().requires_grad_(), device="emulator"
        )
    with torch.no_grad():
        assert tw.linear(x, weight, device="emulator").shape == (4, 24)


def test_layers_of_scales_name_their_own_arguments() -> None:
    weight = tw.quantize(torch.randn(24, 16), axis=-1)
    for x, told in (
        (torch.randn(4, 16).to_sparse(), "x must be dense"),
        (torch.randn(4, 15), r"weight must have as many columns as x \(15\)"),
        (torch.tensor(1.0), "x must have at least one dimension"),
    ):
        with pytest.raises(ArgumentError, match=f"^{told}"):
            tw.linear(x, weight, device="emulator")


def test_numbers_too_small_for_their_scale_end_where_int8_does() -> None:
    """190 of the least steps of float32 over 127 are rounded to one step: the numbers would be 190."""
    least = np.float32(2.0**-149)
    found = tw.quantize(np.array([[190, -190]], "float32") * least, "int8")
    assert found.scale.item() == least and found.values.tolist() == [[127, -128]]


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_whose_scale_would_be_nothing_have_the_least_there_is(dtype: str) -> None:
    """They are a few of the least steps of float32, which 8 bits hold; in arrays of NumPy, and in our own on the host."""
    least = np.float32(2.0**-149)
    numbers = np.array([[40, -8, 1, 0], [0, 0, 0, 0]], "float32") * least
    there = tw.device("emulator").array(numbers)
    axis: Any = np.int64(-1)
    for x in (numbers, there):
        found = tw.quantize(x, dtype, axis=axis)
        values, scale = (one if x is numbers else one.numpy() for one in (found.values, found.scale))
        assert scale.tolist() == [[least], [1]] and values.astype("float32").tolist() == [
            [40, -8, 1, 0],
            [0] * 4,
        ]


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("axis", "block"), [(-1, None), (None, None), (-2, 128), (None, (128, 128))])
def test_the_kernels_do_as_numpy_with_the_least_numbers_that_there_are(
    on_emulator: Any, axis: int | None, block: Any, dtype: str
) -> None:
    """Lines of one to some steps of float32: of some no scale would be left, of others the least one."""
    steps = RANDOM.integers(-3, 4, (6, 4)) * np.array([[0], [1], [10], [100], [1000], [100000]])
    x = (steps * 2.0**-149).astype(np.float32)
    for rows in (slice(0, 1), slice(0, 3), slice(0, 6)):
        assert_as_numpy(x[rows].copy(), dtype, "float32", axis, block)


def test_scales_of_terms_are_refused_where_sums_are_not_float32() -> None:
    weight = tw.quantize(np.ones((256, 4), "float32"), "int8", axis=-2, block=128)
    for dtype in ("float64", "complex64"):
        with pytest.raises(ArgumentError, match=f"^scale_b must be the same along k, for sums in {dtype}"):
            tw.matmul(np.ones((3, 256), dtype), weight, device="emulator")
