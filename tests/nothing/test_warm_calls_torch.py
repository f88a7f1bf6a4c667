"""tw.matmul over torch's tensors, with and without compiled code: one call, two ways, the same launches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.warm_call_cases import LAYOUTS, Front, empty, lay_out, share
from tilewise import calls, interop
from tilewise.call_stub.machine_code import is_supported_python

torch: Any = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")  # whose numbers describe tensor maps
if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    pytest.skip("this torch has no exchange table", allow_module_level=True)
pytestmark = pytest.mark.skipif(not is_supported_python(), reason="this Python has no compiled call")

half = torch.bfloat16


@pytest.fixture(scope="module")
def one_front() -> Iterator[Front]:
    with pytest.MonkeyPatch.context() as patch:
        yield Front(patch)
    calls.forget()


@pytest.fixture
def front(one_front: Front) -> Front:
    one_front.forget()
    return one_front


def operands(dtype: Any = torch.float32) -> tuple[Any, Any, Any]:
    return empty(8, 16, dtype=dtype), empty(16, 24, dtype=dtype), empty(8, 24, dtype=dtype)


CASES: dict[str, tuple[Any, ...]] = {
    "float32": operands(),
    "float16": operands(torch.float16),
    "bfloat16": operands(half),
    "float64": operands(torch.float64),
    "odd": (empty(9, 17), empty(17, 25), empty(9, 25)),
    "transposed": (empty(16, 8).t(), empty(24, 16).t(), empty(24, 8).t()),
    "pitched": (empty(8, 33)[:, :16], empty(16, 25)[:, :24], empty(8, 27)[:, :24]),
    "unaligned": (empty(129)[1:].view(8, 16), empty(16, 24), empty(193)[1:].view(8, 24)),
    "stack": (empty(3, 8, 16), empty(3, 16, 24), empty(3, 8, 24)),
    "stack of one matrix": (empty(3, 8, 16), empty(16, 24), empty(3, 8, 24)),
    "two stacks": (empty(2, 3, 8, 16), empty(1, 3, 16, 24), empty(2, 3, 8, 24)),
    "vectors": (empty(16), empty(16, 24), empty(24)),
    "a large one": tuple(empty(1024, 1024, dtype=half) for _ in range(3)),
    "large, transposed": (
        *(empty(1024, 1024, dtype=half).t() for _ in range(2)),
        empty(1024, 1024, dtype=half),
    ),
    "large, of an odd pitch": (
        empty(1024, 1025, dtype=half)[:, :1024],
        empty(1024, 1023, dtype=half),
        empty(1024, 1023, dtype=half),
    ),
    "large stack": tuple(empty(2, 512, 512, dtype=half) for _ in range(3)),
}


@pytest.mark.parametrize("case", CASES)
def test_compiled_code_launches_what_python_does(front: Front, case: str) -> None:
    a, b, c = CASES[case]
    for _ in range(2):
        assert front.is_equal_and_fast(a, b, out=c)
        assert front.is_equal_and_fast(a, b)
        assert front.is_equal_and_fast(a, b, out=None)


def test_the_cases_have_maps_and_workspaces(front: Front) -> None:
    """So that the test above compares them."""
    encodes = front.gpu.driver.encodes()
    assert front.is_equal_and_fast(*CASES["a large one"][:2])
    assert front.gpu.driver.encodes() > encodes
    a, b, _ = CASES["large, of an odd pitch"]
    assert len(front.in_python(a, b)[2]) > 1


# Any calls


DTYPES = [torch.float32, half, torch.float32, torch.float16, torch.float64]


@st.composite
def calls_of_matmul(draw: st.DrawFn) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """Positional arguments, keywords, and whether gradients are recorded."""
    m, n, k = (draw(st.sampled_from((8, 5, 1, 0))) for _ in range(3))
    stack = draw(st.sampled_from(((), (), (2,), (2, 3))))
    dtype = draw(st.sampled_from(DTYPES))
    a_shape, b_shape = (*stack, m, k), (*draw(st.sampled_from((stack, ()))), k, n)
    if draw(st.integers(0, 9)) == 0:
        a_shape, stack = (k,), ()
        b_shape = (k, n)
    result = (*stack, m, n) if len(a_shape) > 1 else (n,)
    a, b = (lay_out(one, dtype, draw(st.sampled_from(LAYOUTS))) for one in (a_shape, b_shape))
    keywords: dict[str, Any] = {}
    outs: dict[str, Callable[[], Any]] = {
        "good": lambda: lay_out(result, dtype, draw(st.sampled_from(LAYOUTS[:-1]))),
        "None": lambda: None,
        "other": lambda: draw(st.sampled_from((7, [1.0], "out", a.numel()))),
        "shape": lambda: empty(*result, 1, dtype=dtype),
        "type": lambda: empty(result, dtype=draw(st.sampled_from((*DTYPES, torch.int32)))),
        "a": lambda: a,
        "b": lambda: b,
        "beside": lambda: share(a, result, draw(st.integers(0, 80))),
    }
    kind = draw(
        st.sampled_from(("none", "good", "good", "None", "other", "shape", "type", "a", "b", "beside"))
    )
    if kind != "none":
        keywords["out"] = outs[kind]()
    operands = [a, b, *([keywords["out"]] if torch.is_tensor(keywords.get("out")) else [])]
    change = draw(
        st.sampled_from(("", "", "", "gradient", "parameter", "type", "object", "keyword", "position"))
    )
    which = draw(st.integers(0, 1))
    if change == "gradient" and not any(x.requires_grad for x in operands):
        operands[which] = operands[which].detach().requires_grad_()
    elif change == "parameter":
        operands[which] = torch.nn.Parameter(operands[which], draw(st.booleans()))
    elif change == "type":
        operands[which] = operands[which].to(draw(st.sampled_from(DTYPES)))
    elif change == "object":
        operands[which] = draw(st.sampled_from((None, 3, "a", operands[which].tolist())))
    elif change == "keyword":
        keywords[draw(st.sampled_from(("outt", "device", "plan", "copy", "a")))] = draw(
            st.sampled_from((None, 1, "gpu:0", False))
        )
    if draw(st.integers(0, 3)) == 0:
        keywords["arithmetic"] = draw(
            st.sampled_from(("tf32", "exact32", "f16", "f32", "f64", "f3", "relu", None, 1))
        )
    arguments = tuple(operands[:2])
    if change == "position":
        arguments += (keywords.pop("out", None),)
    return arguments, keywords, draw(st.booleans())


def test_any_call_is_the_same_with_and_without_compiled_code(front: Front) -> None:
    ways = []

    @given(calls_of_matmul())
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    def check(call: Any) -> None:
        arguments, keywords, records_gradients = call
        with torch.set_grad_enabled(records_gradients):
            ways.append(front.is_equal_and_fast(*arguments, **keywords))

    check()
    assert ways.count(True) > 10 and ways.count(False) > 10  # of 150, as chance has it


# Calls that have to be slow


def test_an_out_over_an_operand_is_refused_after_a_good_call(front: Front) -> None:
    memory = empty(4096)
    a, b, c = memory[:128].view(8, 16), memory[1024:1408].view(16, 24), memory[2048:2240].view(8, 24)
    assert front.is_equal_and_fast(a, b, out=c)
    for start in (0, 64, 1024 - 128, 1024, 1344):
        assert not front.is_equal_and_fast(a, b, out=memory[start : start + 192].view(8, 24))
    for start in (128, 1024 - 192, 1408):
        assert front.is_equal_and_fast(a, b, out=memory[start : start + 192].view(8, 24))
    theirs, error, _ = front.in_python(a, b, out=memory[64:256].view(8, 24))
    assert theirs is None and "must not overlap a" in error[1]


def test_an_arithmetic_has_a_record_of_its_own(front: Front) -> None:
    """And so has a call without one; the same string or an equal one."""
    a, b, c = empty(80, 96), empty(96, 72), empty(80, 72)
    kernels = []
    for arithmetic in (None, "tf32", "exact32", None, "".join(("t", "f32")), "f32"):
        keywords = {} if arithmetic is None else {"arithmetic": arithmetic}
        assert front.is_equal_and_fast(a, b, out=c, **keywords)
        assert front.is_equal_and_fast(a, b, **keywords)
        assert front.is_equal_and_fast(a, b, bias=c[0], activation="relu", out=c.clone(), **keywords)
        assert front.is_equal_and_fast(a, b, epilogue=tw.epilogue("acc * x", x=c[0]), **keywords)
        front.in_python(a, b, out=c, **keywords)
        kernels.append(tuple(one.grid for one in front.gpu.launched))
    assert kernels[0] == kernels[3] == kernels[5] != kernels[1] == kernels[4]
    for wrong in ("relu", "fp8", "tf33", 3):
        assert not front.is_equal_and_fast(a, b, out=c, arithmetic=wrong)
    assert not front.is_equal_and_fast(a, b, out=c, activation="tf32")
    bias, offsets = empty(72), torch.tensor([30, 80], dtype=torch.int32)
    assert front.is_equal_and_fast(a, b.T.contiguous(), bias, arithmetic="tf32", function="linear")
    groups = a, empty(2, 96, 72), offsets
    assert front.is_equal_and_fast(*groups, arithmetic="tf32", function="grouped_matmul")


def test_an_operand_of_another_alignment_has_a_record_of_its_own(front: Front) -> None:
    a, b, c = operands()
    unaligned = empty(129)[1:].view(8, 16)
    assert front.is_equal_and_fast(a, b, out=c)
    before = front.gpu.driver.launches()
    front.matmul(unaligned, b, out=c)
    assert front.gpu.driver.launches() == before
    for first in (unaligned, a, unaligned):
        assert front.is_equal_and_fast(first, b, out=c)
    front.forget()  # and whichever comes first does not decide for the other
    assert front.is_equal_and_fast(unaligned, b, out=c)
    before = front.gpu.driver.launches()
    front.matmul(a, b, out=c)
    assert front.gpu.driver.launches() == before
    assert front.is_equal_and_fast(a, b, out=c)


def test_what_autograd_follows_is_slow(front: Front) -> None:
    a, b, c = operands()
    assert front.is_equal_and_fast(a, b, out=c)
    wanted = a.clone().requires_grad_()
    for arguments in ((wanted, b), (wanted * 2, b), (a, torch.nn.Parameter(b))):
        assert not front.is_equal_and_fast(*arguments, out=c)
        assert not front.is_equal_and_fast(*arguments)
        with torch.no_grad():
            assert front.is_equal_and_fast(*arguments, out=c)
            assert front.is_equal_and_fast(*arguments)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own
def test_a_tensor_with_a_tangent_is_left_to_torch(front: Front) -> None:
    forward = torch.autograd.forward_ad
    a, b, c = operands()
    assert front.is_equal_and_fast(a, b, out=c)
    with forward.dual_level():
        dual = forward.make_dual(a, empty(8, 16))
        for arguments in ((dual, b), (b.t(), dual.t())):
            assert not front.is_equal_and_fast(*arguments)
            assert front.in_python(*arguments)[1] is None  # torch has multiplied, on no device of ours
        assert not front.is_equal_and_fast(a, b, out=c)
    assert front.is_equal_and_fast(a, b, out=c)
    assert front.is_equal_and_fast(dual, b, out=c)  # what it carried went with the level


def test_without_a_table_of_exchange_functions_all_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a torch before 2.10."""
    monkeypatch.setattr(interop.library_of("a", empty(1)), "exchange_api", lambda: None)
    front, (a, b, c) = Front(monkeypatch), operands()
    for _ in range(2):
        assert not front.is_equal_and_fast(a, b, out=c)


def test_a_result_is_as_torch_makes_it_but_for_its_storage(front: Front) -> None:
    a, b, _ = operands()
    front.matmul(a, b)
    result = front.matmul(a, b)
    assert type(result) is torch.Tensor and result.is_leaf and not result.requires_grad
    assert (result.shape, result.stride(), result.storage_offset()) == ((8, 24), (24, 1), 0)
    version = result._version
    assert front.matmul(a, b, out=result) is result
    assert result._version == version  # as of any kernel that is not torch's own
    result.add_(1)
    assert result._version == version + 1


# Threads


def test_threads_call_while_the_records_are_forgotten(front: Front) -> None:
    stop, wrong = threading.Event(), []

    def call(rows: int) -> None:
        a, b, c = empty(rows, 16), empty(16, 24), empty(rows, 24)
        while not stop.is_set():
            good = front.matmul(a, b, out=c) is c and front.matmul(a, b).shape == c.shape
            wrong.extend([] if good else [rows])

    threads = [threading.Thread(target=call, args=(rows,)) for rows in (8, 16, 24)]
    before = front.gpu.driver.launches()
    for thread in threads:
        thread.start()
    for _ in range(40):
        time.sleep(0.005)
        front.warm.forget()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert front.gpu.driver.launches() > before
    front.warm.forget()
    assert front.warm._stub._records == {} and not front.warm._offered
    a, b, c = operands()
    assert front.is_equal_and_fast(a, b, out=c)  # what was forgotten is offered anew


def test_what_records_a_gradient_is_left_to_autograd(front: Front) -> None:
    """Whichever array requires one; and inside, with nothing to record, the same call is fast."""
    arrays = [empty(8, 16), empty(24, 16), empty(24), empty(8, 24)]
    for needing in range(4):
        given = [one.clone().requires_grad_(place == needing) for place, one in enumerate(arrays)]
        call = {"function": "linear", "residual": given[3], "activation": "relu"}
        with torch.no_grad():
            for _ in range(2):
                fast = front.is_equal_and_fast(*given[:3], **call)
            assert fast
        assert not front.is_equal_and_fast(*given[:3], **call)
        assert front.doors["linear"].call(*given[:3], residual=given[3], activation="relu").requires_grad
