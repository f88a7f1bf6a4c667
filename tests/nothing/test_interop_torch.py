"""Tensors of PyTorch as views, what is refused and why, and calls from code that torch.compile compiles."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.odd_tensors import Tagged, Wrapper
from tilewise import interop
from tilewise.errors import ArgumentError
from tilewise.interop import HOST

torch: Any = pytest.importorskip("torch")

from tilewise.interop.torch import gradients  # noqa: E402


def read_back(view: interop.View) -> Any:
    """The elements that a view describes, read by its address alone."""
    dtype = interop.numpy_dtype(view.dtype)
    count = sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True)) + 1
    memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(view.ptr)
    return np.ndarray(view.shape, dtype, memory, 0, tuple(step * dtype.itemsize for step in view.strides))


SOURCE = torch.arange(5 * 6 * 4, dtype=torch.float32).reshape(5, 6, 4)


@pytest.mark.parametrize(
    "tensor",
    [SOURCE, SOURCE.mT, SOURCE[1::2, :, ::3], SOURCE[2].expand(3, 6, 4), SOURCE[1, :, 2], SOURCE[1, 1, 1]],
)
def test_a_view_describes_every_layout(tensor: Any) -> None:
    view = interop.view("a", tensor)
    assert (view.dtype, view.space, view.library.name) == ("float32", HOST, "torch")
    assert view.shape == tuple(tensor.shape) and type(view.shape) is tuple and view.owner is tensor
    np.testing.assert_array_equal(read_back(view), tensor.numpy())


@pytest.mark.parametrize(
    "name",
    [
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "uint8",
        "int64",
        "bool",
        "float8_e4m3fn",
        "float8_e5m2",
    ],
)
def test_element_types(name: str) -> None:
    tensor = torch.tensor([0, 1, 1, 0]).to(getattr(torch, name))
    view = interop.view("a", tensor)
    assert view.dtype == name
    np.testing.assert_array_equal(read_back(view).astype(np.float32), [0, 1, 1, 0])
    result = view.library.empty((2, 3), name, view)
    assert type(result) is torch.Tensor and (result.dtype, tuple(result.shape)) == (tensor.dtype, (2, 3))
    assert view.library.finish(result, view) is result


def test_tensors_without_elements() -> None:
    view = interop.view("a", torch.empty(0, 3))
    assert (view.shape, view.alignment) == ((0, 3), 256)


def test_subclasses_and_parameters() -> None:
    tensor = torch.ones(2, 3)
    for made in (
        tensor.as_subclass(Tagged),
        torch.nn.Parameter(tensor, requires_grad=False),
        torch.nn.Buffer(tensor),
    ):
        view = interop.view("a", made)
        assert view.ptr == tensor.data_ptr() and view.shape == (2, 3)
        assert type(view.library.empty((2, 2), "float32", view)) is torch.Tensor


def test_gradients_are_refused_only_where_they_would_be_lost() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 3))
    message = r"^weight must not require a gradient: .*; use weight\.detach\(\) or torch"
    with pytest.raises(ArgumentError, match=message):
        interop.view("weight", weight)
    with pytest.raises(ArgumentError, match="must not require a gradient"):
        interop.view("a", weight * 2)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert interop.view("weight", weight).ptr == weight.data_ptr()
    assert interop.view("weight", weight.detach()).ptr == weight.data_ptr()
    with torch.inference_mode():
        made = torch.ones(3)
    interop.view("a", made)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own
def test_a_tangent_is_refused_where_there_is_one() -> None:
    """And only there: in a level of differentiation too, what has no view for another reason is told that."""
    forward = torch.autograd.forward_ad
    plain, empty = torch.ones(2, 2), torch._efficientzerotensor((2, 2))
    with forward.dual_level():
        for tensor, said in (
            (forward.make_dual(plain, plain), "carry no tangent"),
            (empty, "have memory of its own"),
        ):
            with pytest.raises(ArgumentError, match=f"^a must {said}"):
                interop.view("a", tensor)
        assert interop.view("a", plain).ptr == plain.data_ptr()


def fake_tensor() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(3, 3)


def quantised() -> Any:
    return torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (fake_tensor, "must be a plain tensor, not 'FakeTensor'"),
        (lambda: Wrapper((2, 2)), r"must be a plain tensor, not 'Wrapper'.*\.to_local\(\)"),
        (lambda: Wrapper((0, 2)), "must be a plain tensor, not 'Wrapper'"),
        (lambda: torch.empty(2, 2, device="meta"), "must have elements, not 'a meta tensor'"),
        (lambda: torch.empty(0, 2, device="meta"), "must have elements"),
        (lambda: torch.eye(3).to_sparse(), r"must be dense, not 'torch\.sparse_coo'; use a\.to_dense\(\)"),
        (lambda: torch.eye(3).to_sparse_csr(), r"must be dense, not 'torch\.sparse_csr'"),
        (lambda: torch.eye(3).to_mkldnn(), r"must be dense, not 'torch\._mkldnn'; use a\.to_dense\(\)"),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            r"one dense tensor.*to_padded_tensor",
        ),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            "must be a plain tensor, not 'NestedTensor'",
        ),
        (quantised, r"must not be quantised.*a\.dequantize\(\)"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj(), r"a\.resolve_conj\(\)"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, r"negated view.*a\.resolve_neg\(\)"),
        (lambda: torch.nn.UninitializedParameter(), "must be initialised.*run its module once"),
        (lambda: torch._efficientzerotensor((2, 2)), r"must have memory of its own.*a\.clone\(\)"),
        (lambda: torch.empty(2, 2, dtype=torch.complex32), r"must have numbers as elements.*complex32"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_has_no_view(make: Callable[[], Any], message: str) -> None:
    tensor = make()
    with pytest.raises(ArgumentError, match=rf"^a {message}|^a .*{message}") as caught:
        interop.view("a", tensor)
    assert caught.value.argument == "a" and caught.value.fix and "{x}" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")  # once in a process
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_the_remedies_work() -> None:
    ones = torch.eye(3)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    conjugate = torch.ones(2, dtype=torch.complex64).conj()
    for mended in (
        ones.to_sparse().to_dense(),
        ones.to_mkldnn().to_dense(),
        nested.to_padded_tensor(0),
        quantised().dequantize(),
        conjugate.resolve_conj(),
        conjugate.imag.resolve_neg(),
        torch._efficientzerotensor((2, 2)).clone(),
        ones.requires_grad_().detach(),
    ):
        seen = interop.view("a", mended)
        assert (seen.ptr, seen.shape) == (mended.data_ptr(), tuple(mended.shape))


@pytest.mark.parametrize("name", ["vmap", "grad", "functionalize"])
def test_transformations_have_no_memory(name: str) -> None:
    def product(x: Any) -> Any:
        interop.view("a", x)
        return x.sum()

    with pytest.raises(ArgumentError, match=r"a must be a concrete tensor.*torch\.vmap and torch\.func"):
        getattr(torch.func, name)(product)(torch.ones(2, 3))


def test_mixed_with_numpy_the_result_is_a_tensor() -> None:
    tensor, array = torch.ones(2, 3), np.ones((3, 2), "f4")
    for first, second in ((tensor, array), (array, tensor)):
        views = {"a": interop.view("a", first), "b": interop.view("b", second)}
        found = interop.common(views)
        assert (found.library.name, found.space, found.like.owner) == ("torch", HOST, tensor)


def test_tensors_elsewhere() -> None:
    """A GPU's tensor, by a stand-in: this machine may have none."""
    view = interop.view("a", torch.ones(2, 3))
    library: Any = view.library
    on_gpu = SimpleNamespace(
        **{
            name: getattr(view.owner, name)
            for name in ("data_ptr", "shape", "stride", "dtype", "layout", "is_neg")
        },
        requires_grad=False,
        is_cpu=False,
        is_cuda=True,
        get_device=lambda: 3,
        __torch_dispatch__=None,
    )
    plain = library._plain
    try:
        library._plain = frozenset([SimpleNamespace])
        there = library.view("a", on_gpu)
    finally:
        library._plain = plain
    assert there.space == (2, 3) and there.ptr == view.ptr
    raw, library._raw_stream = library._raw_stream, lambda index: 0xD00 + index
    try:
        assert library.stream(there) == 0xD03
        assert interop.common({"a": there, "b": there}).streams == (0xD03,)
        with pytest.raises(
            ArgumentError, match=r"a \(torch\) lies on gpu:3 .*use a\.cpu\(\) or b\.to\('cuda:3'\)"
        ):
            interop.common({"a": there, "b": view})
    finally:
        library._raw_stream = raw


def test_what_a_compiled_call_needs() -> None:
    library = interop.view("a", torch.ones(2)).library
    assert library.exchange_types() == (torch.Tensor, torch.nn.Parameter) and library.tracks_gradients
    api = library.exchange_api()
    assert api is getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    other = interop.view("a", np.ones(2)).library
    assert (other.exchange_api(), other.exchange_types(), other.tracks_gradients) == (None, (), False)


# ── torch.compile ──────────────────────────────────────────────────────────────────────────────────────


def multiply(a: Any, b: Any) -> Any:
    """A product as tw.matmul makes it: by address, into memory of the library's own."""
    views = {"a": interop.view("a", a), "b": interop.view("b", b)}
    found = interop.common(views)
    shape = (views["a"].shape[0], views["b"].shape[1])
    result = found.library.empty(shape, views["a"].dtype, found.like)
    np.matmul(read_back(views["a"]), read_back(views["b"]), out=read_back(interop.view("out", result)))
    return found.library.finish(result, found.like)


@pytest.fixture
def dynamo() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what importing Dynamo says is not about us
        import torch._dynamo
    torch._dynamo.reset()
    yield torch._dynamo
    torch._dynamo.reset()


def test_compiled_code_calls_it_as_it_is(dynamo: Any) -> None:
    product = interop.keep_out_of_dynamo(multiply)
    graphs: list[list[str]] = []

    def backend(module: Any, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in module.graph.nodes if node.op == "call_function"])
        return module.forward

    compiled = torch.compile(lambda a, b: product(a * 2, b) + 1, backend=backend)
    for rows in (4, 4, 5, 6):
        a, b = torch.randn(rows, 3), torch.randn(3, 2)
        torch.testing.assert_close(compiled(a, b), a * 2 @ b + 1)
    # What comes before and after is compiled; nothing of ours is in a graph.
    assert (
        all(len(graph) == 1 and ("mul" in graph[0] or "add" in graph[0]) for graph in graphs)
        and len(graphs) >= 2
    )


def test_compiled_code_gets_our_errors(dynamo: Any) -> None:
    product = interop.keep_out_of_dynamo(multiply)
    weight = torch.nn.Parameter(torch.ones(3, 2))
    compiled = torch.compile(lambda a: product(a * 2, weight), backend="eager")
    with pytest.raises(ArgumentError, match="b must not require a gradient"):
        compiled(torch.ones(2, 3))
    with torch.no_grad():
        assert compiled(torch.ones(2, 3)).tolist() == [[6, 6], [6, 6]]


def test_what_keeps_out_of_dynamo_is_the_same_function() -> None:
    product = interop.keep_out_of_dynamo(multiply)
    assert (product.__name__, product.__doc__) == ("multiply", multiply.__doc__)
    a, b = torch.ones(2, 3), torch.ones(3, 2)
    assert product(a, b=b).tolist() == multiply(a, b).tolist()
    assert "torch" in sys.modules


def test_tensors_alike_are_found_by_their_addresses_at_once_and_others_are_looked_at_one_by_one() -> None:
    """Those with anything that the first has not, or that is not in their memory as it is."""
    first, like = torch.ones(3, 4), torch.zeros(3, 4)
    view = interop.view("a[0]", first)

    def addresses(*tensors: Any) -> Any:
        return view.library.addresses_like(view, tensors)

    assert addresses(first, like) == [first.data_ptr(), like.data_ptr()]
    assert addresses(first, torch.ones(4, 4)[1:]) is not None
    parts = torch.ones(5, 3, 4)
    assert addresses(*parts[3:]) == [parts.data_ptr() + 4 * 12 * i for i in (3, 4)]
    with torch.autograd.forward_ad.dual_level():  # the outermost is number 0
        assert addresses(first, like) is None
    others = {
        "type": like.double(),
        "shape": torch.ones(4, 4),
        "strides": torch.ones(4, 3).T,
        "sign": torch._neg_view(like),
        "layout": like.to_sparse(),
        "gradients": torch.ones(3, 4, requires_grad=True),
        "library": np.ones((3, 4), np.float32),
    }
    found = {what: addresses(first, other) for what, other in others.items()}
    assert not any(found.values()), found
    assert addresses(first, torch.nn.Parameter(like, requires_grad=False)) is not None
    with torch.no_grad():
        assert addresses(first, others["gradients"]) is not None
    complex_one = torch.ones(3, 4, dtype=torch.complex64)
    assert view.library.addresses_like(interop.view("a[0]", complex_one), (complex_one,)) is None


def test_the_gradient_of_a_weight_is_one_product_over_all_rows_of_a_stack() -> None:
    """Not one for each matrix, to be added up. Of a weight for each matrix there is one of each."""
    multiplied: list[tuple[tuple[int, ...], ...]] = []

    def multiply(x: Any, y: Any, alpha: float) -> Any:
        multiplied.append((tuple(x.shape), tuple(y.shape)))
        return alpha * (x @ y)

    for shape in ((3, 5, 6), (2, 3, 5, 6), (5, 6)):
        for weight in ((6, 4), (3, 6, 4)):
            a, b = torch.rand(*shape), torch.rand(*weight)
            gradient = torch.rand(*(a @ b).shape)
            ctx = SimpleNamespace(
                likes=[(a.shape, None), (b.shape, None)],
                needs=(False, True), turned=(False, False), has_weight=False, alpha=0.5,
            )  # fmt: skip
            multiplied.clear()
            _, made = gradients._of_factors(ctx, a, b, gradient, multiply)
            found: Any = made
            rows = a.numel() // 6
            one = ((6, rows), (rows, 4)) if len(weight) == 2 else ((*shape[:-2], 6, 5), tuple(gradient.shape))
            assert multiplied == [one] and (len(weight) == 3 or tuple(found.shape) == weight)
            wanted = 0.5 * (a.mT @ gradient).sum_to_size(b.shape)
            torch.testing.assert_close(found.sum_to_size(b.shape), wanted)
