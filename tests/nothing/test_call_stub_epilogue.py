"""The compiled call with arrays and numbers beside its matrices: which calls fit, and whose memory it holds."""

from __future__ import annotations

import gc
import math
import struct
import sys
import tracemalloc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.call_stub_cases import (
    POINTERS,
    A,
    Array,
    B,
    C,
    OwnBench,
    a_record,
    callback_entries,
    pattern,
    python_calls,
)
from tilewise import calls
from tilewise.call_stub import CallForm, NativeLaunch, TensorPattern
from tilewise.call_stub.machine_code import is_supported_python
from tilewise.errors import ArgumentError, TilewiseError

pytestmark = pytest.mark.skipif(not is_supported_python(), reason="this Python has no compiled call")

BIAS, RESIDUAL, ENDS = 0x40000, 0x50000, 0x60000
FLOAT = (2, 32, 1)
USUAL: dict[str, Any] = {
    "positional": ("a", "b", "out"),
    "keywords": ("out", "bias", "activation", "residual", "alpha", "beta", "c", "epilogue", "offsets"),
}
# a, b, out, the two extras, a float and a double.
LAUNCH = NativeLaunch(
    function=9,
    grid=(1, 1, 1),
    block=(32, 1, 1),
    shared=0,
    cluster=None,
    template=bytes(60),
    offsets=(0, 8, 16, 24, 32, 44, 48),
    pointers=((0, 0, 0), (8, 1, 0), (16, 2, 0), (24, 4, 0), (32, 5, 4)),
    numbers=((44, 0, 4), (48, 1, 8)),
)
SIZES = (8, 8, 8, 8, 8, 4, 8)


class Given:
    """Stands in for an epilogue object."""

    __slots__ = ("expression", "given")

    def __init__(self, expression: object, given: Any) -> None:
        self.expression, self.given = expression, given


EXPRESSION = ("an expression",)  # any object
FORM = CallForm(names=("alpha", "beta", "c", "bias"), numbers=("alpha", "beta"))
OBJECT = CallForm(names=("s", "x", "t", "y"), numbers=("s", "t"), text=EXPRESSION, by_object=True)
EXTRAS = (pattern((8, 24)), pattern((24,), dtype=FLOAT))


@pytest.fixture
def bench() -> OwnBench:
    bench = OwnBench(**USUAL)
    bench.stub.register_epilogue(Given, "expression", "given")
    bench.stub.register_activations(("relu", "gelu"))
    bench.driver.describe_function(9, SIZES)
    for form in (FORM, OBJECT):
        assert bench.stub.add(a_record(bench, form=form, extras=EXTRAS, launches=(LAUNCH,)))
    return bench


def operands(**changes: Any) -> tuple[Array, Array, dict[str, Any]]:
    """a, b, and by name what a usual epilogue takes."""
    keywords = {
        "alpha": 2.5,
        "beta": -4,
        "c": Array(RESIDUAL, (8, 24)),
        "bias": Array(BIAS, (24,), dtype=FLOAT),
        "out": Array(C, (8, 24)),
    }
    return Array(A, (8, 16)), Array(B, (16, 24)), {**keywords, **changes}


def given(**changes: Any) -> Given:
    values = {"s": 2.5, "x": Array(RESIDUAL, (8, 24)), "t": -4, "y": Array(BIAS, (24,), dtype=FLOAT)}
    return Given(EXPRESSION, {**values, **changes})


def launched(bench: OwnBench) -> tuple[Any, ...]:
    params = bench.driver.last().params
    return tuple(struct.unpack(form, one)[0] for form, one in zip("QQQQQfd", params, strict=True))


def test_addresses_and_numbers_are_patched(bench: OwnBench) -> None:
    a, b, keywords = operands()
    expected = (A, B, C, RESIDUAL, BIAS + 4, 2.5, -4.0)
    for order in (list(keywords), list(reversed(keywords))):
        assert bench.is_fast(a, b, **{name: keywords[name] for name in order})
        assert launched(bench) == expected
    out = keywords.pop("out")
    assert bench.is_fast(a, b, out, **keywords)
    assert bench.is_fast(a, b, epilogue=given(), out=out)
    assert launched(bench) == expected
    for alpha, kept in (
        (1e300, math.inf),
        (-0.0, -0.0),
        (np.float64(0.1), np.float32(0.1)),
        (2**60, 2.0**60),
    ):
        assert bench.is_fast(a, b, out, **{**keywords, "alpha": alpha, "beta": 0.1})
        assert struct.pack("<fd", *launched(bench)[5:]) == struct.pack("<fd", kept, 0.1)


@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 1},
        {"alpha": None},
        {"alpha": True},
        {"alpha": np.float32(2)},
        {"alpha": 10**400},
        {"beta": None},
        {"beta": 1},
        {"beta": 0},
        {"beta": "2"},
        {"c": None},
        {"bias": None},
        {"bias": 3.0},
        {"residual": Array(RESIDUAL, (8, 24))},
        {"activation": "gelu"},
        {"activation": "elu"},
        {"activation": 0},
        {"epilogue": given()},
        {"offsets": Array(ENDS, (3,))},
        {"outt": None},
    ],
    ids=lambda change: ", ".join(f"{name}: {type(value).__name__}" for name, value in change.items()),
)
def test_another_form_is_slow(bench: OwnBench, change: dict[str, Any]) -> None:
    a, b, keywords = operands()
    assert bench.is_fast(a, b, **keywords)
    assert not bench.is_fast(a, b, **{**keywords, **change})
    assert bench.slow.calls == [((a, b), {**keywords, **change})]


def test_what_is_no_argument_leaves_the_form_as_it_is(bench: OwnBench) -> None:
    a, b, keywords = operands(activation=None, residual=None, epilogue=None, offsets=None)
    assert bench.is_fast(a, b, **keywords)
    assert bench.is_fast(
        a, b, epilogue=given(), out=keywords["out"], alpha=1, beta=0.0, c="anything", bias=None
    )
    assert bench.stub.add(a_record(bench))
    assert bench.is_fast(a, b, keywords["out"], alpha=1.0, beta=0, c="anything", activation=None)


def test_an_activation_is_its_text(bench: OwnBench) -> None:
    a, b, keywords = operands()
    assert bench.stub.add(a_record(bench, form=CallForm(text="gelu")))
    for text in ("gelu", "".join(["ge", "lu"])):
        assert bench.is_fast(a, b, keywords["out"], activation=text)
    others: list[Any] = ["relu", "gel", np.str_("gelu"), b"gelu", a]
    for other in others:
        assert not bench.is_fast(a, b, keywords["out"], activation=other)


def test_an_argument_that_comes_twice_is_slow(bench: OwnBench) -> None:
    a, b, keywords = operands()
    assert not bench.is_fast(a, b, None, **keywords)
    assert not bench.is_fast(a, b, keywords["out"], None)
    assert bench.driver.launches() == 0


@pytest.mark.parametrize("name", ["c", "bias"])
@pytest.mark.parametrize(
    "change",
    [
        {"device": (2, 1)},
        {"device": (1, 0)},
        {"dtype": (2, 64, 1)},
        {"strides": (48, 2)},
        {"shape": (1, 24)},
        {"shape": ()},
        {"data": 0x40008},
        {"freed": True},
    ],
    ids=str,
)
def test_another_array_is_slow(bench: OwnBench, name: str, change: dict[str, Any]) -> None:
    a, b, keywords = operands()
    known = (
        {"data": RESIDUAL, "shape": (8, 24)}
        if name == "c"
        else {"data": BIAS, "shape": (24,), "dtype": FLOAT}
    )
    change = dict(change)
    freed = change.pop("freed", False)
    if "strides" in change and name == "bias":
        change["strides"] = (2,)
    other = Array(**{**known, **change})
    other.live.value = not freed
    assert bench.is_fast(a, b, **keywords)
    assert not bench.is_fast(a, b, **{**keywords, name: other})
    place = "x" if name == "c" else "y"
    assert not bench.is_fast(a, b, epilogue=given(**{place: other}), out=keywords["out"])
    if freed:
        other.live.value = 1  # its memory is used again
        assert bench.is_fast(a, b, **{**keywords, name: other})


def test_read_only_arrays_are_read_and_not_kept(bench: OwnBench) -> None:
    a, b, keywords = operands(c=Array(RESIDUAL, (8, 24), flags=1))
    assert bench.is_fast(a, b, **keywords)
    bench.stub.clear()
    assert bench.stub.add(a_record(bench, form=OBJECT, extras=EXTRAS, launches=(LAUNCH,), kept=(0,)))
    assert bench.is_fast(a, b, epilogue=given(), out=keywords["out"])
    assert not bench.is_fast(a, b, epilogue=given(x=keywords["c"]), out=keywords["out"])


def test_an_extra_may_be_the_out_of_a_single_launch(bench: OwnBench) -> None:
    a, b, keywords = operands()
    assert bench.is_fast(a, b, **{**keywords, "c": keywords["out"]})
    assert bench.is_fast(a, b, **{**keywords, "c": Array(C, (8, 24))})
    for shifted in (Array(C + 16, (8, 24)), Array(C - 8 * 24 * 2 + 16, (8, 24))):
        assert not bench.is_fast(a, b, **{**keywords, "c": shifted})
    assert bench.is_fast(a, b, **{**keywords, "c": Array(C - 8 * 24 * 2, (8, 24))})
    bench.stub.add(a_record(bench, form=FORM, extras=EXTRAS, launches=(LAUNCH, LAUNCH)))
    assert not bench.is_fast(a, b, **{**keywords, "c": keywords["out"]})


@pytest.mark.parametrize(
    "c",
    [
        pattern((8, 24), device=(2, 1)),
        pattern((8, 24), dtype=(4, 16, 1)),
        pattern((8, 8)),
        pattern((8, 24), (1, 8)),
    ],
    ids=["device", "dtype", "shape", "strides"],
)
def test_an_extra_at_the_out_s_address_that_is_described_otherwise_is_slow(
    bench: OwnBench, c: TensorPattern
) -> None:
    """Each element is read where it is written, and only then: of whatever one record expects."""
    assert bench.stub.add(a_record(bench, form=FORM, extras=(c, EXTRAS[1]), launches=(LAUNCH,)))
    a, b, keywords = operands()

    def at(address: int) -> Array:
        return Array(address, c.shape, c.strides, dtype=c.dtype, device=c.device)

    assert bench.is_fast(a, b, **{**keywords, "c": at(RESIDUAL)})
    assert not bench.is_fast(a, b, **{**keywords, "c": at(C)})


# Epilogue objects


def test_an_object_is_its_expression_and_what_it_gives(bench: OwnBench) -> None:
    a, b, keywords = operands()
    out = keywords["out"]

    class Dictionary(dict[str, Any]):
        pass

    class Mine(Given):
        __slots__ = ()

    values = given().given
    assert bench.is_fast(a, b, epilogue=Given(EXPRESSION, dict(values)), out=out)
    unset = Given(EXPRESSION, values)
    del unset.given
    for other in (
        Given(("an expression", 2), values),
        Given(EXPRESSION, Dictionary(values)),
        Given(EXPRESSION, None),
        Given(EXPRESSION, dict(reversed(values.items()))),
        Given(EXPRESSION, {**values, "z": 1.0}),
        Given(EXPRESSION, {name: values[name] for name in "sxt"}),
        Given(EXPRESSION, {("u" if name == "s" else name): value for name, value in values.items()}),
        Given(EXPRESSION, dict.fromkeys("abcdefghij", 1.0)),
        Given(EXPRESSION, dict.fromkeys("abcdef", values["x"])),
        Mine(EXPRESSION, values),
        unset,
        "acc",
        values,
    ):
        assert not bench.is_fast(a, b, epilogue=other, out=out)


def test_references_and_memory_stay_level(bench: OwnBench) -> None:
    a, b, keywords = operands()
    out, known, unknown = keywords["out"], given(), given(y=Array(BIAS, (1, 24), dtype=FLOAT))
    objects = [a, b, out, *known.given.values(), *unknown.given.values(), known, unknown]
    counts = [sys.getrefcount(one) for one in objects]
    for _ in range(100):
        assert bench.is_fast(a, b, epilogue=known, out=out)
        assert bench.matmul(a, b, epilogue=unknown, out=out) == "slow"
    bench.slow.calls.clear()
    del _
    assert [sys.getrefcount(one) for one in objects] == counts
    assert python_calls(lambda: bench.matmul(a, b, epilogue=known, out=out)) == []
    assert python_calls(lambda: bench.matmul(a, b, alpha=2.5, beta=-4, c=keywords["c"], out=out)) == [
        "__call__"
    ]  # a form without a record
    usual, bias = keywords["c"], keywords["bias"]
    tracemalloc.start()
    try:
        bench.matmul(a, b, alpha=2.5, beta=-4, c=usual, bias=bias, out=out)
        before, _peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        bench.matmul(a, b, alpha=2.5, beta=-4, c=usual, bias=bias, out=out)
        bench.matmul(a, b, epilogue=known, out=out)
        assert tracemalloc.get_traced_memory()[1] == before
    finally:
        tracemalloc.stop()


def test_what_an_object_gave_lives_until_the_launch_is_made(bench: OwnBench) -> None:
    a, b, keywords = operands()
    epilogue = given()
    gone = weakref.ref(epilogue.given["x"])
    alive = []

    def launch() -> int:
        epilogue.given.clear()
        gc.collect()
        alive.append(gone() is not None)
        return 0

    entries, _function = callback_entries(bench.driver, launch)
    bench.stub.add(a_record(bench, form=OBJECT, extras=EXTRAS, launches=(LAUNCH,), entries=entries))
    assert bench.matmul(a, b, epilogue=epilogue, out=keywords["out"]) is keywords["out"]
    assert alive == [True] and gone() is None


# What no record can have


def test_a_record_that_does_not_fit_its_form_is_refused(bench: OwnBench) -> None:
    good: dict[str, Any] = {"form": FORM, "extras": EXTRAS, "launches": (LAUNCH,)}
    for change in (
        {"extras": EXTRAS[:1]},
        {"form": replace(FORM, has_offsets=True)},
        {"form": replace(OBJECT, numbers=("s", "z"))},
        {"kept": (2,)},
        {"launches": (replace(LAUNCH, numbers=((44, 2, 4),)),)},
        {"launches": (replace(LAUNCH, numbers=((57, 0, 4),)),)},
        {"launches": (replace(LAUNCH, numbers=((40, 0, 2),)),)},
        {"launches": (replace(LAUNCH, pointers=((0, 6, 0),)),)},
        {"extras": (EXTRAS[0], pattern((24,), (1, 1)))},
    ):
        with pytest.raises(ArgumentError):
            bench.stub.add(a_record(bench, **{**good, **change}))
    assert not bench.stub.add(a_record(bench, **{**good, "extras": (EXTRAS[0], pattern(()))}))
    many = CallForm(names=tuple("abcde"), by_object=True, text=EXPRESSION)
    with pytest.raises(ArgumentError, match="at most 4"):
        bench.stub.add(a_record(bench, form=many, extras=EXTRAS[:1] * 5))


def test_records_of_many_forms_stay_apart(bench: OwnBench) -> None:
    a, b, keywords = operands()
    bench.stub.clear()
    names = [("alpha",), ("bias",), ("residual",), ("bias", "residual"), ("alpha", "residual"), ()]
    for place, some in enumerate(names):
        form = CallForm(some, tuple(name for name in some if name == "alpha"), "relu" if place % 2 else None)
        extras = (pattern((8, 24)),) * form.extra_count
        launch = replace(POINTERS, function=100 + place)
        assert bench.stub.add(a_record(bench, form=form, extras=extras, launches=(launch,)))
    values = {"alpha": 3.0, "bias": keywords["c"], "residual": keywords["c"]}
    for place, some in enumerate(names):
        activation = {"activation": "relu"} if place % 2 else {}
        arguments = {name: values[name] for name in some}
        assert bench.is_fast(a, b, keywords["out"], **arguments, **activation)
        assert bench.driver.last().function == 100 + place


# Arrays of our own, from the front door on


@pytest.fixture
def front() -> Iterator[Any]:
    pytest.importorskip("cuda.bindings")
    cases = pytest.importorskip("tests.warm_call_cases")
    with pytest.MonkeyPatch.context() as patch:
        yield cases.Front(patch, compiles=False)
    calls.forget()


def test_our_own_arrays_are_fast_until_they_are_freed(front: Any) -> None:
    import tilewise as tw

    def make(*shape: int) -> Any:
        return front.gpu.empty(shape, "float32")

    x, weight, bias, residual, out = make(8, 16), make(24, 16), make(24), make(8, 24), make(8, 24)
    for more in ({}, {"out": out}, {"residual": out, "out": out}):
        assert front.is_equal_and_fast(x, weight, bias, function="linear", activation="gelu", **more)
    a, b = x, make(16, 24)
    epilogue = tw.epilogue("keep(r, acc + bias) * s", r=residual, bias=bias, s=2)
    assert front.is_equal_and_fast(a, b, epilogue=epilogue, out=out)
    residual._memory.lend()  # another library may use it: Python sees to the order
    assert not front.is_equal_and_fast(a, b, epilogue=epilogue, out=out)
    usual = {"bias": bias, "activation": "relu", "out": out}
    assert front.is_equal_and_fast(a, b, **usual)
    bias._memory.freed = True
    bias._memory._write_state()
    assert not front.is_equal_and_fast(a, b, **usual)
    with pytest.raises(TilewiseError):
        front.matmul(a, b, **usual)
    again = make(24)
    front.in_python(a, b, **{**usual, "bias": again})  # an array is slow once
    assert front.is_equal_and_fast(a, b, **{**usual, "bias": again})
