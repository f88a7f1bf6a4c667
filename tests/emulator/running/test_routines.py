"""Loops, conditions and early returns of ``llvm/routine.py``, compiled and run beside the same in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from tilewise.emulator import native
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I64, ZERO_I64, Routine, join_modules, routine


def run(write: Callable[[Routine, Value], None], number: int) -> int:
    """Return what a routine of one number answers."""
    r = Routine("answer", "i64", number="i64")
    write(r, r["number"])
    lines = [*r.definitions.values(), r.text()]
    code = native.load(native.assemble("\n".join(lines), native.host_cpu()), "answer")
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("answer"))(number))


def sort_number(r: Routine, number: Value) -> None:
    found = r.variable("i64", 0)
    with r.when(r.is_below(number, 10)):
        found.put(1)
    with r.otherwise_when(r.equals(r.op("and", number, 1), 0)):
        r.give_if(r.is_above(number, 100), 7)
        found.put(2)
    with r.otherwise_when(r.equals(number, 33)):
        found.put(3)
    with r.otherwise():
        found.put(4)
    r.give(found.get())


@pytest.mark.parametrize(("number", "kind"), [(9, 1), (8, 1), (20, 2), (102, 7), (33, 3), (103, 4)])
def test_of_conditions_the_first_that_holds_counts(number: int, kind: int) -> None:
    assert run(sort_number, number) == kind


def count_steps(r: Routine, number: Value) -> None:
    """Write the number of steps of Collatz's sequence down to 1, in a loop that only a return leaves."""
    now, steps = r.variable("i64", number), r.variable("i64", 0)
    with r.loop():
        here = now.get()
        r.give_if(r.equals(here, 1), steps.get())
        odd = r.differs(r.op("and", here, 1), 0)
        now.put(r.select(odd, r.op("add", r.op("mul", here, 3), 1), r.op("lshr", here, 1)))
        steps.add(1)


def test_a_loop_that_is_never_left_needs_no_return_behind_it() -> None:
    assert run(count_steps, 27) == 111


def mix(number: Any) -> Any:
    """Compute with every operator; of a Python number, or of a value that is being emitted."""
    sums = (number + 3) * 5 - 7 + (1000 - number)
    bits = (sums & 0xFFF) | (number << 2) ^ (0x5555 >> (number & 3)) ^ (1 << (number & 7)) ^ (9 + number)
    return bits + sums // 3 + sums % 7 + 5_000 // (number + 1)


def test_operators_of_values_are_those_of_numbers() -> None:
    for number in (0, 1, 27, 999):
        assert run(lambda r, given: r.give(mix(given)), number) == mix(number)


def test_operators_of_signs_are_those_of_unsigned_numbers() -> None:
    assert run(lambda r, given: r.give(given >> 60), -1) == 15
    assert run(lambda r, given: r.give((given - 2) // 3), 1) == (2**64 - 1) // 3


def test_values_that_no_emitter_made_have_no_operators() -> None:
    with pytest.raises(TypeError, match="no emitter"):
        ZERO_I64 + 1


def add_lanes(r: Routine, number: Value) -> None:
    total = r.variable("i64", 0)
    with r.each_lane(r.narrow(number)) as lane:
        total.add(r.wide(lane))
    with r.count(3) as i:
        total.add(i)
    r.give(total.get())


def test_lanes_of_a_mask_and_numbers_are_counted() -> None:
    assert run(add_lanes, 0x8000_0011) == 31 + 4 + 0 + 3


def test_an_alternative_stands_right_behind_its_condition() -> None:
    r = Routine("answer", "void", number="i64")
    with pytest.raises(ValueError, match="no condition right before"), r.loop(), r.otherwise():
        pass


@routine("twice_and_more", "i64")
def twice_and_more(r: Routine, number: I64, more: I64 = ZERO_I64) -> None:
    r.give(r.op("add", r.op("mul", number, 2), more))


@routine("answer", "i64")
def call_twice(r: Routine, number: I64) -> None:
    r.give(r.op("add", twice_and_more(r, number), twice_and_more(r, 3, more=number)))


def test_a_declared_routine_is_called_like_a_function() -> None:
    text = join_modules([twice_and_more.write(), call_twice.write()])
    code = native.load(native.assemble(text, native.host_cpu()), "answer")
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("answer"))(7) == 2 * 7 + 2 * 3 + 7


def test_a_call_with_arguments_that_a_routine_does_not_have_is_an_error() -> None:
    with pytest.raises(TypeError, match="twice_and_more has no parameter less"):
        twice_and_more(call_twice.write(), 1, less=2)
    with pytest.raises(ValueError, match="longer"):
        twice_and_more(call_twice.write(), 1, 2, 3)
    with pytest.raises(KeyError, match="number"):
        twice_and_more(call_twice.write(), more=2)
