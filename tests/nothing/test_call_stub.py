"""The compiled call: what it takes, what it launches, and that everything else reaches the Python path."""

from __future__ import annotations

import ctypes
import gc
import inspect
import pickle
import re
import struct
import sys
import types
import weakref
from dataclasses import replace
from typing import Any

import pytest

from tests.call_stub_cases import (
    DOC,
    GPU,
    HALF,
    POINTERS,
    A,
    Array,
    B,
    C,
    OwnBench,
    Slow,
    a_record,
    operands,
    pattern,
)
from tilewise.call_stub import (
    CallStub,
    TensorPattern,
    available,
    builtin,
    slot_offset,
)
from tilewise.call_stub.machine_code import is_supported_python
from tilewise.call_stub.operand_text import OPERAND_TEXT
from tilewise.call_stub.shared_memory import KEY_WORDS, TABLE_SLOTS
from tilewise.errors import ArgumentError

pytestmark = pytest.mark.skipif(not is_supported_python(), reason="this Python has no compiled call")


@pytest.fixture
def bench() -> OwnBench:
    bench = OwnBench()
    assert bench.stub.add(a_record(bench))
    return bench


# The face


def test_the_builtin_says_what_it_is(bench: OwnBench) -> None:
    matmul = bench.matmul
    assert type(matmul) is types.BuiltinFunctionType
    assert (matmul.__name__, matmul.__module__, matmul.__doc__) == ("matmul", "tilewise", "Multiply.")
    assert str(inspect.signature(matmul)) == "(a, b, *, out=None)"
    assert "built-in function matmul" in repr(matmul)


def test_a_builtin_of_a_module_can_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("a_module")
    monkeypatch.setitem(sys.modules, "a_module", module)
    stub = CallStub("matmul", DOC, Slow(), module="a_module")
    module.__dict__["matmul"] = stub.function
    assert pickle.loads(pickle.dumps(stub.function)) is stub.function


def test_it_is_to_be_had_unless_the_environment_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available()
    monkeypatch.setenv("TILEWISE_STUB", "0")
    assert not available()


def test_a_known_call_launches_and_gives_out_back(bench: OwnBench) -> None:
    a, b, c = operands()
    assert bench.matmul(a, b, out=c) is c
    assert bench.slow.calls == []
    assert bench.driver.launches() == 1


@pytest.mark.parametrize(
    ("positional", "names"),
    [
        ("", ""),
        ("a", ""),
        ("abc", ""),
        ("a", "b"),
        ("", "a b out"),
        ("ab", "bias"),
        ("ab", "out bias"),
        ("ab", "bias out"),
        ("abc", "out"),
        ("a", "out"),
    ],
)
def test_every_other_form_of_call_is_slow_and_unchanged(bench: OwnBench, positional: str, names: str) -> None:
    a, b, c = operands()
    values = {"a": a, "b": b, "c": c, "out": c, "bias": a}
    args = tuple(values[name] for name in positional)
    keywords = {name: values[name] for name in names.split()}
    assert bench.matmul(*args, **keywords) == "slow"
    assert bench.slow.calls == [(args, keywords)]
    assert bench.driver.launches() == 0


def test_an_out_of_none_is_no_out(bench: OwnBench) -> None:
    a, b, _ = operands()
    assert bench.matmul(a, b, out=None) == "slow"
    assert bench.slow.calls == [((a, b), {"out": None})]


def test_an_equal_name_that_is_another_object_is_only_slow(bench: OwnBench) -> None:
    a, b, c = operands()
    name = "".join(["o", "u", "t"])
    assert bench.matmul(a, b, **{name: c}) == "slow"
    assert bench.slow.calls == [((a, b), {"out": c})]


def test_errors_of_the_slow_path_come_through() -> None:
    def slow(*args: Any) -> None:
        raise LookupError("of the slow path")

    with pytest.raises(LookupError, match="of the slow path"):
        OwnBench(slow).matmul(1, 2)


# Which calls a record fits


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize(
    "change",
    [
        {"device": (2, 1)},
        {"device": (13, 0)},
        {"dtype": (4, 16, 1)},
        {"dtype": (2, 32, 1)},
        {"dtype": (2, 16, 2)},
        {"strides": (32, 1)},
        {"strides": (1, 8)},
        {"strides": (-16, 1)},
        {"strides": (0, 0)},
        {"shape": (8, 48)},
        {"shape": (16, 8)},
        {"shape": (8,)},
        {"shape": (1, 8, 16)},
        {"shape": (1, 1, 1, 8, 16)},
        {"shape": ()},
        {"data": 0x10008},
    ],
)
def test_another_operand_is_slow(bench: OwnBench, which: int, change: dict[str, Any]) -> None:
    shape = ((8, 16), (16, 24), (8, 24))[which]
    array = Array(**{"data": 0x10000, "shape": shape, **change})
    arrays = [*operands()]
    assert bench.is_fast(arrays[0], arrays[1], out=arrays[2])
    arrays[which] = array
    assert not bench.is_fast(arrays[0], arrays[1], out=arrays[2])


def test_strides_of_any_sign_and_axes_of_any_number_can_be_known(bench: OwnBench) -> None:
    for shape, strides in (
        ((8,), (-3,)),
        ((8, 16), (0, 1)),
        ((2, 8, 16), (-128, 1, 8)),
        ((2, 3, 8, 16), (128, 256, 16, 1)),
    ):
        record = a_record(bench, a=pattern(shape, strides), b=pattern(shape, strides), c=pattern(shape))
        assert bench.stub.add(record)
        arrays = Array(A, shape, strides), Array(B, shape, strides)
        assert bench.is_fast(*arrays, out=Array(C, shape))
        assert not bench.is_fast(arrays[0], Array(B, shape), out=Array(C, shape))


def test_a_record_of_more_axes_stays_slow(bench: OwnBench) -> None:
    assert not bench.stub.add(a_record(bench, a=pattern((1, 1, 1, 8, 16))))
    assert not bench.stub.add(a_record(bench, a=pattern(())))


def test_of_two_records_that_fit_the_stricter_wins(bench: OwnBench) -> None:
    loose = replace(POINTERS, function=1)
    strict = replace(POINTERS, function=2)
    for order in ((1, 256), (256, 1)):
        bench.stub.clear()
        for alignment in order:
            launch = strict if alignment == 256 else loose
            bench.stub.add(a_record(bench, a=pattern((8, 16), alignment=alignment), launches=(launch,)))
        _, b, c = operands()
        for data, function in ((0x10000, 2), (0x10002, 1)):
            assert bench.is_fast(Array(data, (8, 16)), b, out=c)
            assert bench.driver.last().function == function


def test_a_like_record_takes_the_place_of_the_old_one(bench: OwnBench) -> None:
    a, b, c = operands()
    for function in (11, 12):
        bench.stub.add(a_record(bench, launches=(replace(POINTERS, function=function),)))
        assert bench.is_fast(a, b, out=c)
        assert bench.driver.last().function == function
    assert len(bench.stub._records) == 1


def test_many_records_stay_exact_and_bounded(bench: OwnBench) -> None:
    a, _, _ = operands()
    for width in range(1, 1500):
        launch = replace(POINTERS, function=width)
        record = a_record(bench, b=pattern((16, width)), c=pattern((8, width)), launches=(launch,))
        assert bench.stub.add(record)
        assert bench.is_fast(a, Array(B, (16, width)), out=Array(C, (8, width)))
        assert bench.driver.last().function == width
    assert len(bench.stub._records) <= TABLE_SLOTS
    fast = sum(bench.is_fast(a, Array(B, (16, w)), out=Array(C, (8, w))) for w in range(1, 1500))
    assert TABLE_SLOTS * 0.8 < fast <= TABLE_SLOTS


def test_a_cleared_stub_knows_nothing(bench: OwnBench) -> None:
    a, b, c = operands()
    bench.stub.clear()
    assert not bench.is_fast(a, b, out=c)
    assert bench.stub._records == {}


def test_a_record_keeps_its_owner_until_it_is_dropped(bench: OwnBench) -> None:
    class Owner:
        pass

    owner = Owner()
    gone = weakref.ref(owner)
    bench.stub.add(a_record(bench, owner=owner))
    del owner
    gc.collect()
    assert gone() is not None
    bench.stub.clear()
    gc.collect()
    assert gone() is None


# Arrays of our own


def test_a_freed_array_is_slow(bench: OwnBench) -> None:
    for which in range(3):
        arrays = operands()
        arrays[which].live.value = 0
        assert not bench.is_fast(*arrays[:2], out=arrays[2])


@pytest.mark.parametrize("description", [None, b"", b"short", bytes(56), bytes(72), bytearray(72), "text", 7])
def test_an_array_without_a_description_is_slow(bench: OwnBench, description: Any) -> None:
    a, b, c = operands()
    a.description = description
    assert not bench.is_fast(a, b, out=c)


def test_an_array_whose_slot_is_unset_is_slow(bench: OwnBench) -> None:
    a, b, c = operands()
    del a.description
    assert not bench.is_fast(a, b, out=c)


def test_a_read_only_array_may_be_read_alone(bench: OwnBench) -> None:
    _, b, c = operands()
    assert bench.is_fast(Array(A, (8, 16), flags=1), b, out=c)
    assert not bench.is_fast(Array(A, (8, 16)), b, out=Array(C, (8, 24), flags=1))


def test_an_entered_stream_makes_every_call_slow(bench: OwnBench) -> None:
    a, b, c = operands()
    bench.entered.value = 1
    assert not bench.is_fast(a, b, out=c)
    bench.entered.value = 0
    assert bench.is_fast(a, b, out=c)
    assert bench.driver.last().stream == 0


def test_a_subclass_and_any_other_object_are_slow(bench: OwnBench) -> None:
    class Mine(Array):
        __slots__ = ()

    a, b, c = operands()
    for other in (Mine(A, (8, 16)), 1, None, object()):
        assert not bench.is_fast(other, b, out=c)
        assert not bench.is_fast(a, other, out=c)
        if other is not None:
            assert not bench.is_fast(a, b, out=other)


def test_arrays_of_our_own_get_no_workspace_here_and_no_result_that_nobody_makes(bench: OwnBench) -> None:
    assert not bench.stub.add(a_record(bench, has_out=False))
    assert not bench.stub.add(a_record(bench, workspace_bytes=64))
    assert not bench.stub.add(a_record(bench, has_out=False, make_result=list, workspace_bytes=64))


def test_a_result_of_our_own_is_made_by_the_record(bench: OwnBench) -> None:
    made: list[Array] = []

    def make() -> Array:
        made.append(Array(C + 0x100 * len(made), (8, 24)))
        return made[-1]

    bench.driver.describe_function(7, (8, 8, 8, 4))
    assert bench.stub.add(a_record(bench, has_out=False, make_result=make))
    a, b, _ = operands()
    for place, keywords in enumerate(({}, {"out": None})):
        result = bench.matmul(a, b, **keywords)
        assert result is made[place]
        assert bench.driver.last().params[2] == struct.pack("<Q", C + 0x100 * place - 16)
        assert sys.getrefcount(result) == 3  # its name here, the list, the argument
    assert bench.slow.calls == []


@pytest.mark.parametrize(
    "fault", ["raises", "another type", "bytes", "freed", "unaligned", "read-only", "launch"]
)
def test_a_result_of_our_own_that_will_not_do_is_dropped(bench: OwnBench, fault: str) -> None:
    gone: list[weakref.ref[Any]] = []

    class Other:
        pass

    def make() -> object:
        if fault == "raises":
            raise MemoryError
        result: Any = Array(C + 8 * (fault == "unaligned"), (8, 24), flags=int(fault == "read-only"))
        if fault == "another type":
            result = Other()
        elif fault == "bytes":
            result.description = b""
        elif fault == "freed":
            result.live.value = 0
        gone.append(weakref.ref(result))
        return result

    assert bench.stub.add(a_record(bench, has_out=False, make_result=make))
    bench.driver.fail_next(1 if fault == "launch" else 0)
    a, b, _ = operands()
    assert bench.matmul(a, b) == "slow"
    assert bench.driver.launches() == 0
    assert [one() for one in gone] == [None] * (fault != "raises")
    bench.stub.clear()
    assert bench.stub._records == {}  # it left no record in use


# An out that shares memory with an operand


@pytest.mark.parametrize(
    ("operand", "out", "shared"),
    [
        (Array(A, (8, 16)), Array(A, (8, 24)), True),
        (Array(A, (8, 16)), Array(A + 8 * 16 * 2, (8, 24)), False),  # right behind it
        (Array(A, (8, 16)), Array(A + 8 * 16 * 2 - 16, (8, 24)), True),
        (Array(A, (8, 16)), Array(A - 8 * 24 * 2, (8, 24)), False),  # right before it
        (Array(A, (8, 16)), Array(A - 8 * 24 * 2 + 16, (8, 24)), True),
        (Array(A + 7 * 32, (8, 16), (-16, 1)), Array(A - 8 * 24 * 2, (8, 24)), False),  # rows go downwards
        (Array(A + 7 * 32, (8, 16), (-16, 1)), Array(A - 8 * 24 * 2 + 16, (8, 24)), True),
        (Array(A + 7 * 32, (8, 16), (-16, 1)), Array(A + 8 * 16 * 2, (8, 24)), False),
        (Array(A, (8, 16)), Array(A - 2 * 24 + 16, (8, 24), (-24, 1)), True),
        (Array(A, (8, 16)), Array(A - 2 * 24, (8, 24), (-24, 1)), False),
        (Array(A, (8, 16), (0, 1)), Array(A + 32, (8, 24)), False),
        (Array(A, (8, 16), (0, 1)), Array(A + 16, (8, 24)), True),
        (Array(A, (8, 16), (64, 1)), Array(A + 64, (8, 24)), True),  # between its rows: bounds alone count
        (Array(A + 16, (0, 16)), Array(A, (8, 24)), False),
        (Array(0, (0, 16)), Array(A, (8, 24)), False),
        (Array(2**57, (8, 16)), Array(A, (8, 24)), False),
    ],
)
def test_an_out_that_may_share_memory_with_an_operand_is_slow(
    bench: OwnBench, operand: Array, out: Array, shared: bool
) -> None:
    other = Array(B + 2**32, (16, 24))
    fits = [TensorPattern(GPU, HALF, *axes_of(one), alignment=1) for one in (operand, other, out)]
    bench.stub.add(a_record(bench, a=fits[0], b=fits[1], c=fits[2]))
    assert bench.is_fast(operand, other, out=out) != shared
    bench.stub.add(a_record(bench, a=fits[1], b=fits[0], c=fits[2]))
    assert bench.is_fast(other, operand, out=out) != shared


def axes_of(array: Array) -> tuple[tuple[int, ...], tuple[int, ...]]:
    words = memoryview(array.description or b"")[40:].cast("q").tolist()
    return tuple(words[: len(words) // 2]), tuple(words[len(words) // 2 :])


def test_operands_may_share_memory_with_each_other(bench: OwnBench) -> None:
    assert bench.is_fast(Array(A, (8, 16)), Array(A, (16, 24)), out=operands()[2])


def test_a_slot_is_found_where_it_lies() -> None:
    array = Array(A, (1,))
    offset = slot_offset(Array, "description")
    assert ctypes.c_uint64.from_address(id(array) + offset).value == id(array.description)
    for name in ("nothing", "__init__", "__class__"):
        with pytest.raises(ArgumentError, match="slot"):
            slot_offset(Array, name)


@pytest.mark.parametrize(("known", "other"), [("_DESCRIPTOR_BYTES", 56), ("_OBJECT_SLOT", 6)])
def test_objects_that_are_laid_out_otherwise_are_refused(
    monkeypatch: pytest.MonkeyPatch, known: str, other: int
) -> None:
    """As a Python may have them that is not known yet."""
    monkeypatch.setattr(builtin, known, other)
    with pytest.raises(ArgumentError, match=r"^CallStub needs objects laid out as in CPython 3\.11 to 3\.14"):
        slot_offset(Array, "description")


def test_the_words_of_a_key_are_hashed_by_the_numbers_of_splitmix64() -> None:
    """Those that are published for the seed 0, each made odd, so that no bit of a word is lost."""
    published = (
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
        0xF88BB8A8724C81EC,
        0x1B39896A51A8749B,
    )
    found = re.search(r"@weights = [^\[]*\[[^\]]*\] \[([^\]]*)\]", OPERAND_TEXT)
    assert found
    weights = [int(one.removeprefix("i64 ")) for one in found[1].split(", ")]
    assert weights[:5] == [one | 1 for one in published]
    assert len({*weights}) == KEY_WORDS and all(0 < one < 2**64 and one % 2 for one in weights)
