"""Records made of what the slow path bound: over arrays of our own, on a GPU that only counts."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.call_stub_cases import DOC, PretendGpu, Slow, callback_entries, exchange_capsule
from tilewise import interop
from tilewise.call_stub import PLAIN_FORM
from tilewise.call_stub.machine_code import is_supported_python
from tilewise.call_stub.shared_memory import structure
from tilewise.calls import Arrays, BoundProduct, Choice, prepare
from tilewise.describe import result_shapes
from tilewise.devices.emulated import open_emulator
from tilewise.devices.gpu import GpuArray
from tilewise.interop import Library, View
from tilewise.slots import Gap, Slot
from tilewise.warm_calls import NativeTarget, WarmCalls, native_record

pytestmark = pytest.mark.skipif(not is_supported_python(), reason="this Python has no compiled call")

Views = tuple[View, View, View]


class Bench:
    """A builtin, what a slow path would offer it for one product, and arrays for that."""

    def __init__(self, slow: Callable[..., Any] | None = None) -> None:
        self.slow, self.gpu = Slow(), PretendGpu()
        self.warm = WarmCalls("matmul", DOC, slow or self.slow)
        self.matmul = self.warm.function
        self.arrays = [self.gpu.empty(shape, "float32") for shape in ((8, 16), (16, 24), (8, 24))]
        self.views: Views = tuple(interop.view("a", one) for one in self.arrays)  # type: ignore[assignment]
        shapes = result_shapes((8, 16), (16, 24))
        self.made = prepare(Arrays(*self.views), shapes, open_emulator(), Choice())

    def offer(self, has_out: bool = True, made: BoundProduct | None = None) -> None:
        self.warm.offer(made or self.made, self.views, has_out, self.gpu)

    def target(self, **changes: Any) -> NativeTarget:
        return replace(NativeTarget.of(self.gpu), **changes)  # type: ignore[arg-type]

    def is_fast(self) -> bool:
        a, b, c = self.arrays
        before = self.gpu.driver.launches()
        answer = self.matmul(a, b, out=c)
        assert answer is (c if self.gpu.driver.launches() > before else "slow")
        return self.gpu.driver.launches() > before


@pytest.fixture
def bench() -> Bench:
    return Bench()


def expected_launch(bench: Bench, made: BoundProduct, result: GpuArray) -> Any:
    """What Python starts for the same arrays."""
    bound = replace(made.bound, device=bench.gpu)  # type: ignore[arg-type]
    addresses = dict(zip("abc", (one.ptr for one in (*bench.arrays[:2], result)), strict=True))
    bench.gpu.launched.clear()
    bound(addresses)
    (launch,) = bench.gpu.launched
    return launch


def test_what_was_offered_is_launched_without_python(bench: Bench) -> None:
    assert not bench.is_fast()
    bench.offer()
    assert bench.is_fast()
    assert bench.gpu.driver.last() == expected_launch(bench, bench.made, bench.arrays[2])


def test_the_builtin_says_what_it_is(bench: Bench) -> None:
    assert bench.matmul.__name__ == "matmul" and bench.matmul.__doc__ == "Multiply."


def test_an_array_is_slow_once(bench: Bench) -> None:
    """What compiled code reads of it is written down when the slow path has met it."""
    bench.offer()
    bench.arrays[0] = bench.gpu.empty((8, 16), "float32")
    assert not bench.is_fast()
    bench.views = (interop.view("a", bench.arrays[0]), *bench.views[1:])
    bench.offer()
    assert bench.is_fast()


def test_results_of_our_own_are_made_on_the_device(bench: Bench) -> None:
    a, b, _ = bench.arrays
    assert bench.matmul(a, b) == "slow"
    bench.offer(has_out=False)
    before = len(bench.gpu.made)
    result = bench.matmul(a, b)
    assert type(result) is GpuArray and result is bench.gpu.made[-1]()
    assert (result.shape, str(result.dtype)) == ((8, 24), "float32")
    assert len(bench.gpu.made) == before + 1
    launched = bench.gpu.driver.last()
    assert launched == expected_launch(bench, bench.made, result)
    bench.arrays[0] = bench.gpu.empty((8, 16), "float32")
    assert bench.matmul(result, b) == "slow"  # of another shape than a
    assert bench.slow.calls[-1] == ((result, b), {})


@pytest.mark.parametrize("fault", ["no memory", "lent", "launch"])
def test_a_result_that_cannot_be_used_is_given_back(bench: Bench, fault: str) -> None:
    a, b, _ = bench.arrays
    make = bench.gpu.empty

    def empty(shape: tuple[int, ...], dtype: Any) -> GpuArray:
        if fault == "no memory":
            raise MemoryError
        made = make(shape, dtype)
        if fault == "lent":
            made._memory.lend()
        return made

    bench.gpu.empty = empty  # type: ignore[method-assign,assignment]
    bench.offer(has_out=False)
    before = len(bench.gpu.made)
    bench.gpu.driver.fail_next(700 if fault == "launch" else 0)
    assert bench.matmul(a, b) == "slow"
    assert [one() for one in bench.gpu.made[before:]] == [None] * (fault != "no memory")
    assert bench.gpu.driver.launches() == 0


def test_a_record_that_was_lost_comes_back(bench: Bench) -> None:
    bench.offer()
    bench.warm._stub.clear()
    offers = 0
    while not bench.is_fast():
        bench.offer()
        offers += 1
    assert offers == 64
    bench.warm.forget()
    assert not bench.is_fast()
    bench.offer()
    assert bench.is_fast()


def test_what_is_remembered_is_bounded(bench: Bench) -> None:
    def alive() -> int:
        gc.collect()
        return sum(type(one) is BoundProduct for one in gc.get_objects())

    before = alive()
    bench.offer()
    for _ in range(1200):
        bench.offer(made=replace(bench.made))
    assert len(bench.warm._offered) == 512
    assert alive() - before <= 512
    assert bench.is_fast()
    bench.warm.forget()
    assert (len(bench.warm._offered), alive()) == (0, before)


def test_what_is_offered_often_is_counted_longest(bench: Bench) -> None:
    bench.offer()
    for _ in range(600):
        bench.offer(made=replace(bench.made))
        bench.offer()
    assert bench.warm._offered[bench.made, True, "tilewise", PLAIN_FORM] == 600


def test_the_builtin_outlives_its_records(bench: Bench) -> None:
    bench.offer()
    assert bench.is_fast()
    del bench.warm
    gc.collect()
    assert not bench.is_fast()


def test_records_go_in_the_middle_of_a_launch(bench: Bench) -> None:
    def launch() -> int:
        if hasattr(bench, "warm"):
            del bench.warm
            gc.collect()
        return 0

    entries, _function = callback_entries(bench.gpu.driver, launch)
    bench.offer()  # so that the arrays are described
    assert bench.warm.add(bench.made, bench.views, True, bench.target(entries=entries))
    a, b, c = bench.arrays
    assert bench.matmul(a, b, out=c) is c
    assert bench.matmul(a, b, out=c) == "slow"


def test_threads_offer_call_and_forget() -> None:
    bench = Bench(lambda *_, **__: "slow")
    stop, found = threading.Event(), {"fast": 0, "slow": 0, "wrong": 0}
    lock = threading.Lock()

    def call() -> None:
        a, b, c = bench.arrays
        counts = dict.fromkeys(found, 0)
        while not stop.is_set():
            answer = bench.matmul(a, b, out=c)
            counts["fast" if answer is c else "slow" if answer == "slow" else "wrong"] += 1
            if answer == "slow":
                bench.offer(made=replace(bench.made))
        with lock:
            for name, count in counts.items():
                found[name] += count

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        stop.wait(0.002)
        bench.warm.forget()
    stop.set()
    for thread in threads:
        thread.join()
    assert found["wrong"] == 0 and min(found["fast"], found["slow"]) > 0
    assert bench.gpu.driver.launches() == found["fast"]
    bench.warm.forget()
    assert bench.warm._stub._records == {}


# What gets no record


class Foreign(Library):
    """A library whose exchange table is of a version to come."""

    name, preference = "a library", 3

    def __init__(self) -> None:
        self.table = structure("Exchange")(version=9)

    def exchange_api(self) -> Any:
        return exchange_capsule(self.table)

    def exchange_types(self) -> tuple[type, ...]:
        return (list,)

    def view(self, argument: str, array: Any) -> View:
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        raise NotImplementedError

    def move(self, argument: str, space: tuple[int, int]) -> str:
        return ""


def test_a_library_that_cannot_be_read_stays_slow(bench: Bench) -> None:
    views: Any = tuple(view._replace(library=Foreign()) for view in bench.views)
    views = tuple(view._replace(library=views[0].library) for view in views)
    for _ in range(2):
        assert not bench.warm.add(bench.made, views, True, bench.target())
    bench.warm.offer(bench.made, views, True, bench.gpu)
    assert bench.warm._stub._records == {}


def test_operands_of_two_libraries_stay_slow(bench: Bench) -> None:
    views = (bench.views[0]._replace(library=Foreign()), *bench.views[1:])
    bench.warm.offer(bench.made, views, True, bench.gpu)
    assert bench.warm._stub._records == {}
    assert len(bench.warm._offered) == 0


def changed(made: BoundProduct, **changes: Any) -> BoundProduct:
    return replace(made, bound=replace(made.bound, **changes))


def with_slot(made: BoundProduct, slot: Slot) -> BoundProduct:
    (launch,) = made.bound.launches
    args = (*launch.launch.args[:-1], slot)
    return changed(made, launches=(replace(launch, launch=replace(launch.launch, args=args)),))


def test_what_compiled_code_cannot_launch_has_no_record(bench: Bench) -> None:
    made, target = bench.made, bench.target()
    assert native_record(made, bench.views, True, 0, target) is not None
    for other in (
        changed(made, launches=()),
        changed(made, shifts=({},) * 5),
        changed(made, copies=made.bound.launches * 4),
        with_slot(made, Slot(bytes(4), (Gap(0, "alpha", 0, 4),))),
        with_slot(made, Slot(bytes(8), (Gap(0, "bias"),))),
    ):
        assert native_record(other, bench.views, True, 0, target) is None
    for name in ("launch", "get_context", "push_context", "pop_context"):
        lacking = bench.target(entries=replace(target.entries, **{name: 0}))
        assert native_record(made, bench.views, True, 0, lacking) is None
    lacking = bench.target(entries=replace(target.entries, encode_tiled=0))
    assert native_record(made, bench.views, True, 0, lacking) is not None  # it makes no tensor map


def test_stacks_are_launched_one_after_the_other(bench: Bench) -> None:
    shifts: tuple[dict[str, int], ...] = ({}, {"a": 64, "c": 128}, {"a": 128, "c": 256})
    made = changed(bench.made, shifts=shifts)
    bench.offer(made=made)
    assert bench.matmul(*bench.arrays[:2], out=bench.arrays[2]) is bench.arrays[2]
    bound = replace(made.bound, device=bench.gpu)  # type: ignore[arg-type]
    bound(dict(zip("abc", (one.ptr for one in bench.arrays), strict=True)))
    assert [bench.gpu.driver.last(back) for back in (2, 1, 0)] == bench.gpu.launched
