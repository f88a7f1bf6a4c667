"""The compiled call: what it launches, whose memory it holds meanwhile, and which records are refused."""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import llvmlite
import llvmlite.binding
import pytest

from tests.call_stub_cases import (
    DOC,
    POINTERS,
    A,
    Array,
    B,
    C,
    OwnBench,
    Slow,
    a_record,
    callback_entries,
    operands,
    pattern,
    python_calls,
)
from tilewise.call_stub import (
    CallStub,
    EncodedMap,
    MapPatch,
    decode_map,
    machine_code,
)
from tilewise.call_stub.call_text import call_text
from tilewise.call_stub.counting_driver import counting_text
from tilewise.call_stub.machine_code import is_supported_python, link
from tilewise.call_stub.shared_memory import (
    BLOCK_BYTES,
    DESCRIBED_FUNCTIONS,
    MAX_PARAMETERS,
    RING_LAUNCHES,
    STRUCTS,
    structure,
)
from tilewise.errors import ArgumentError

pytestmark = pytest.mark.skipif(not is_supported_python(), reason="this Python has no compiled call")


@pytest.fixture
def bench() -> OwnBench:
    bench = OwnBench()
    assert bench.stub.add(a_record(bench))
    return bench


# What is launched


def test_a_launch_is_as_the_record_says(bench: OwnBench) -> None:
    bench.driver.describe_function(7, (8, 8, 8, 4))
    bench.matmul(*operands()[:2], out=operands()[2])
    launch = bench.driver.last()
    assert launch.function == 7
    assert (launch.grid, launch.block, launch.shared) == ((3, 2, 1), (128, 1, 1), 49152)
    assert (launch.cluster, launch.programmatic, launch.stream) == (None, False, 0)
    assert launch.params == tuple(
        struct.pack(form, value) for form, value in (("<Q", A), ("<Q", B + 32), ("<Q", C - 16), ("<i", -5))
    )


def test_clusters_and_dependent_are_attributes(bench: OwnBench) -> None:
    for cluster in (None, (2, 1, 1), (4, 2, 1)):
        for overlap in (False, True):
            launch = replace(POINTERS, cluster=cluster, programmatic=overlap)
            bench.stub.add(a_record(bench, launches=(launch,)))
            assert bench.is_fast(*operands()[:2], out=operands()[2])
            last = bench.driver.last()
            assert (last.cluster, last.programmatic) == (cluster, overlap)


MAPS = tuple(
    MapPatch(
        offset=128 * place,
        operand=place % 3,
        addend=16 * place,
        data_type=6 + place,
        sizes=(24, 16, 3, 2, 1)[:rank],
        strides=(2**40, 96, 192, 384)[: rank - 1],
        box=(64, 8, 1, 1, 1)[:rank],
        steps=(1, 2, 1, 1, 1)[:rank],
        interleave=place % 3,
        swizzle=3 - place % 4,
        promotion=place % 4,
        fill=place % 2,
    )
    for place, rank in enumerate((2, 2, 3, 4, 5, 1))
)


def test_maps_are_encoded_from_the_addresses_of_the_call(bench: OwnBench) -> None:
    template = bytes(128 * len(MAPS)) + struct.pack("<f", 0.5)
    offsets = (*(patch.offset for patch in MAPS), 128 * len(MAPS))
    launch = replace(POINTERS, template=template, offsets=offsets, pointers=(), maps=MAPS)
    bench.driver.describe_function(7, (*[128] * len(MAPS), 4))
    bench.stub.add(a_record(bench, launches=(launch,)))
    for shift in (0, 4096):
        arrays = Array(A + shift, (8, 16)), Array(B + shift, (16, 24)), Array(C + shift, (8, 24))
        assert bench.is_fast(*arrays[:2], out=arrays[2])
        *maps, scalar = bench.driver.last().params
        assert scalar == struct.pack("<f", 0.5)
        for patch, data in zip(MAPS, maps, strict=True):
            address = (A, B, C)[patch.operand] + shift + patch.addend
            fields = {name: getattr(patch, name) for name in EncodedMap._fields[1:]}
            assert decode_map(data) == EncodedMap(address, **fields)
    assert bench.driver.encodes() == 2 * len(MAPS)


def test_a_map_of_one_axis_gives_the_driver_a_stride(bench: OwnBench) -> None:
    """It wants a valid one, although it has no use for it."""
    strides = []

    def encode(*arguments: int) -> int:
        strides.append(ctypes.c_uint64.from_address(arguments[5]).value)
        return 0

    words = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 5, *[ctypes.c_int] * 4]
    function = ctypes.CFUNCTYPE(ctypes.c_int, *words)(encode)
    entries = replace(bench.driver.entries, encode_tiled=ctypes.cast(function, ctypes.c_void_p).value or 0)
    launch = replace(POINTERS, template=bytes(768), offsets=(0,), pointers=(), maps=(MAPS[5], MAPS[0]))
    bench.stub.add(a_record(bench, launches=(launch,), entries=entries))
    assert bench.is_fast(*operands()[:2], out=operands()[2])
    assert strides == [16, 2**40]


def test_several_launches_run_in_order_each_with_its_own_block(bench: OwnBench) -> None:
    launches = (
        replace(POINTERS, function=20, template=bytes(4080), offsets=(0,), pointers=((0, 0, 0),)),
        replace(
            POINTERS, function=21, template=bytes(16) + b"1" * 4080, offsets=(0,), pointers=((16, 1, 1),)
        ),
        replace(POINTERS, function=22, template=b"", offsets=(), pointers=()),
    )
    bench.driver.describe_function(20, (4080,))
    bench.driver.describe_function(21, (4096,))
    bench.stub.add(a_record(bench, launches=launches))
    arrays = operands()
    assert bench.matmul(*arrays[:2], out=arrays[2]) is arrays[2]
    third, second, first = (bench.driver.last(back) for back in range(3))
    assert (first.function, second.function, third.function) == (20, 21, 22)
    assert first.params == (struct.pack("<Q", A) + bytes(4072),)
    assert second.params == (bytes(16) + struct.pack("<Q", B + 1) + b"1" * 4072,)


def test_a_full_block_of_parameters_is_copied(bench: OwnBench) -> None:
    template = bytes(range(256)) * 16
    offsets = tuple(range(0, 4096, 32))
    launch = replace(POINTERS, template=template, offsets=offsets, pointers=((4088, 0, 0),))
    bench.driver.describe_function(7, (32,) * len(offsets))
    bench.stub.add(a_record(bench, launches=(launch,)))
    assert bench.is_fast(*operands()[:2], out=operands()[2])
    assert b"".join(bench.driver.last().params) == template[:4088] + struct.pack("<Q", A)


def test_the_counting_driver_remembers_so_much_and_refuses_more(bench: OwnBench) -> None:
    driver, (a, b, c) = bench.driver, operands()
    with pytest.raises(ArgumentError, match="back"):
        driver.last()
    for function in range(RING_LAUNCHES + 2):
        bench.stub.add(a_record(bench, launches=(replace(POINTERS, function=function),)))
        assert bench.is_fast(a, b, out=c)
    remembered = [driver.last(back).function for back in range(RING_LAUNCHES)]
    assert remembered == list(range(RING_LAUNCHES + 1, 1, -1))
    for back in (-1, RING_LAUNCHES):
        with pytest.raises(ArgumentError, match="back"):
            driver.last(back)
    for function in range(DESCRIBED_FUNCTIONS):
        driver.describe_function(function, (BLOCK_BYTES,))
    driver.describe_function(0, (1,) * MAX_PARAMETERS)  # again, otherwise
    for sizes in ((BLOCK_BYTES, 1), (1,) * (MAX_PARAMETERS + 1)):
        with pytest.raises(ArgumentError, match="sizes"):
            driver.describe_function(0, sizes)
    with pytest.raises(ArgumentError, match="function"):
        driver.describe_function(DESCRIBED_FUNCTIONS, (8,))


def test_a_context_that_is_not_current_is_pushed_and_popped(bench: OwnBench) -> None:
    bench.stub.add(a_record(bench, context=0xC0))
    a, b, c = operands()
    bench.driver.set_context(0xC0)
    assert bench.is_fast(a, b, out=c)
    assert (bench.driver.pushes(), bench.driver.pops()) == (0, 0)
    bench.driver.set_context(0xD0)
    assert bench.is_fast(a, b, out=c)
    assert (bench.driver.pushes(), bench.driver.pops()) == (1, 1)
    bench.driver.fail_push(201)
    assert not bench.is_fast(a, b, out=c)
    assert (bench.driver.pushes(), bench.driver.pops()) == (1, 1)


def test_a_failing_launch_is_slow_and_leaves_the_context_as_it_was(bench: OwnBench) -> None:
    bench.stub.add(a_record(bench, context=0xC0, launches=(POINTERS, POINTERS)))
    a, b, c = operands()
    bench.driver.fail_next(719)
    assert bench.matmul(a, b, out=c) == "slow"
    assert bench.slow.calls == [((a, b), {"out": c})]
    assert (bench.driver.launches(), bench.driver.pushes(), bench.driver.pops()) == (0, 1, 1)
    assert bench.matmul(a, b, out=c) is c
    assert bench.driver.launches() == 2


def test_a_failing_encode_or_question_for_the_context_is_slow(bench: OwnBench) -> None:
    launch = replace(POINTERS, template=bytes(128), offsets=(0,), pointers=(), maps=MAPS[:1])
    fail = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(lambda *_: 1)
    address = ctypes.cast(fail, ctypes.c_void_p).value or 0
    a, b, c = operands()
    for name in ("encode_tiled", "get_context"):
        entries = replace(bench.driver.entries, **{name: address})
        bench.stub.add(a_record(bench, launches=(launch,), entries=entries))
        assert not bench.is_fast(a, b, out=c)


# Memory and threads


def test_references_and_memory_stay_level(bench: OwnBench) -> None:
    a, b, c = operands()
    matmul = bench.matmul
    matmul(a, b, out=c)
    references = [sys.getrefcount(one) for one in (a, b, c, None, "out")]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(100_000):
            matmul(a, b, out=c)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(after, peak) - before < 1000  # the loop's own numbers
    assert bench.driver.launches() == 100_001
    assert [sys.getrefcount(one) for one in (a, b, c)] == references[:3]
    for shared, old in zip((None, "out"), references[3:], strict=True):
        assert abs(sys.getrefcount(shared) - old) < 100


def test_a_slow_call_keeps_references_level_too(bench: OwnBench) -> None:
    def slow(*args: Any, **keywords: Any) -> None:
        return None

    matmul = OwnBench(slow).matmul
    a, b, c = operands()
    references = [sys.getrefcount(one) for one in (a, b, c)]
    for _ in range(1000):
        matmul(a, b, out=c)
    assert [sys.getrefcount(one) for one in (a, b, c)] == references


def test_a_known_call_runs_no_python_function(bench: OwnBench) -> None:
    a, b, c = operands()
    assert python_calls(lambda: bench.matmul(a, b, out=c)) == []
    assert python_calls(lambda: bench.matmul(b, a, out=c)) == ["__call__"]


@pytest.fixture
def quick_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("quick_switches")
def test_threads_call_while_records_come_and_go() -> None:
    bench = OwnBench(lambda *_, **__: "slow")
    counts, wrong = [], []
    stop = threading.Event()

    def call(place: int) -> None:
        height = 8 * (place + 1)
        a, b, c = Array(A, (height, 16)), Array(B, (16, 24)), Array(C, (height, 24))
        fast = slow = other = 0
        end = time.monotonic() + 30
        while min(fast // 1000, slow // 10) < 1 and time.monotonic() < end:
            for _ in range(100):
                answer = bench.matmul(a, b, out=c)
                fast += answer is c
                slow += answer == "slow"
                other += answer is not c and answer != "slow"
        counts.append(fast)
        if other or fast < 1000 or slow < 10:
            wrong.append((place, fast, slow, other))

    def change() -> None:
        while not stop.is_set():
            for height in (8, 16, 24):
                bench.stub.add(a_record(bench, a=pattern((height, 16)), c=pattern((height, 24))))
            time.sleep(0.001)
            bench.stub.clear()

    threads = [threading.Thread(target=call, args=(place,)) for place in range(3)]
    changers = [threading.Thread(target=change) for _ in range(2)]
    for thread in threads + changers:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    for thread in changers:
        thread.join()
    assert wrong == []
    assert sum(counts) == bench.driver.launches()
    bench.stub.clear()
    assert bench.stub._records == {}


def test_a_record_that_is_cleared_in_the_middle_of_its_launch_lives_until_the_end(bench: OwnBench) -> None:
    alive = []

    def launch() -> int:
        bench.stub.clear()
        gc.collect()
        alive.append(len(bench.stub._records))
        return 0

    entries, _function = callback_entries(bench.driver, launch)
    bench.stub.add(a_record(bench, entries=entries, launches=(POINTERS,) * 3))
    a, b, c = operands()
    assert bench.matmul(a, b, out=c) is c
    assert alive == [1, 1, 1]
    bench.stub.clear()
    assert bench.stub._records == {}


def test_a_builtin_that_outlives_its_stub_is_slow() -> None:
    bench = OwnBench()
    assert bench.stub.add(a_record(bench))
    a, b, c = operands()
    assert bench.is_fast(a, b, out=c)
    state = bench.stub._state
    del bench.stub
    gc.collect()
    assert not any(state.table)
    assert not bench.is_fast(a, b, out=c)


def test_a_stub_that_goes_in_the_middle_of_a_launch_leaves_its_record() -> None:
    bench = OwnBench()

    def launch() -> int:
        if hasattr(bench, "stub"):
            del bench.stub
            gc.collect()
        return 0

    entries, _function = callback_entries(bench.driver, launch)
    bench.stub.add(a_record(bench, entries=entries, launches=(POINTERS,) * 3))
    a, b, c = operands()
    assert bench.matmul(a, b, out=c) is c
    assert bench.matmul(a, b, out=c) == "slow"


WAITING_LAUNCH = """
@tw_words = global [2 x i64] zeroinitializer

; Say so in the first word, and wait for the second: 0 when it is set, 1 when it never is.
define i32 @tw_wait(ptr %config, i64 %function, ptr %parameters, ptr %extra) {
entry:
  store volatile i64 1, ptr @tw_words
  %go_at = getelementptr i64, ptr @tw_words, i64 1
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %look ]
  %go = load volatile i64, ptr %go_at
  %set = icmp ne i64 %go, 0
  %next = add i64 %i, 1
  %tired = icmp eq i64 %next, 3000000000
  %end = or i1 %set, %tired
  br i1 %end, label %done, label %look
done:
  %status = select i1 %set, i32 0, i32 1
  ret i32 %status
}
"""


def test_another_thread_runs_while_a_launch_waits(bench: OwnBench) -> None:
    code = link(WAITING_LAUNCH, ["tw_words", "tw_wait"])
    words = (ctypes.c_uint64 * 2).from_address(code["tw_words"])

    def other() -> None:
        while not words[0]:
            time.sleep(0.001)
        words[1] = 1

    bench.stub.add(a_record(bench, entries=replace(bench.driver.entries, launch=code["tw_wait"])))
    thread = threading.Thread(target=other)
    thread.start()
    a, b, c = operands()
    assert bench.matmul(a, b, out=c) is c
    thread.join()


def test_without_releasing_the_same_is_launched() -> None:
    stub = CallStub("matmul", DOC, Slow(), release_gil=False)
    bench = OwnBench()
    library = stub.register_arrays(Array, "description", ctypes.addressof(bench.entered))
    stub.add(a_record(bench, library=library))
    a, b, c = operands()
    assert stub.function(a, b, out=c) is c
    assert bench.driver.launches() == 1


def test_two_builtins_have_tables_of_their_own(bench: OwnBench) -> None:
    other = OwnBench()
    a, b, c = operands()
    assert bench.is_fast(a, b, out=c)
    assert not other.is_fast(a, b, out=c)


# What is refused


@pytest.mark.parametrize(
    "change",
    [
        {"library": 9},
        {"launches": ()},
        {"launches": (POINTERS,) * 5},
        {"launches": (replace(POINTERS, template=bytes(4097)),)},
        {"launches": (replace(POINTERS, offsets=(28,)),)},
        {"launches": (replace(POINTERS, offsets=(0,) * 129),)},
        {"launches": (replace(POINTERS, pointers=((24, 0, 0),)),)},
        {"launches": (replace(POINTERS, pointers=((0, 4, 0),)),)},
        {"launches": (replace(POINTERS, pointers=((0, 3, 0),)),)},
        {"launches": (replace(POINTERS, maps=MAPS[:1]),)},
        {"launches": (replace(POINTERS, template=bytes(256), maps=(replace(MAPS[0], offset=32),)),)},
        {"launches": (replace(POINTERS, template=bytes(256), maps=(replace(MAPS[0], box=(64,)),)),)},
        {"a": pattern((8, 16), (16,))},
        {"a": pattern((8, 16), alignment=12)},
        {"c": pattern((8, 24), (1, 8)), "has_out": False},
        {"make_result": list},
    ],
)
def test_a_record_that_contradicts_itself_is_an_error(bench: OwnBench, change: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        bench.stub.add(a_record(bench, **change))


def test_more_than_eight_types_are_refused(bench: OwnBench) -> None:
    kinds = [type(f"T{number}", (), {"__slots__": ("slot",)}) for number in range(8)]
    for kind in kinds[:7]:  # and Array
        bench.stub.register_arrays(kind, "slot", ctypes.addressof(bench.entered))
    with pytest.raises(ArgumentError, match="at most 8"):
        bench.stub.register_arrays(kinds[7], "slot", ctypes.addressof(bench.entered))


def test_something_else_than_an_exchange_capsule_is_refused(bench: OwnBench) -> None:
    for value in (None, 1, object()):
        with pytest.raises(ArgumentError, match="exchange_api"):
            bench.stub.register_library([Array], value, False)


def test_python_and_llvm_lay_the_memory_out_alike() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    data = llvm.Target.from_default_triple().create_target_machine().target_data
    module = llvm.parse_assembly(call_text())
    for name, fields in STRUCTS.items():
        native, ours = module.get_struct_type(name), structure(name)
        assert data.get_abi_size(native) == ctypes.sizeof(ours)
        for place, (field, _) in enumerate(fields):
            assert data.get_element_offset(native, place) == getattr(ours, field).offset
    assert ctypes.sizeof(structure("Config")) == 56
    assert ctypes.sizeof(structure("Attribute")) == 72
    assert "tw_count_launch" in counting_text()


def test_memory_is_laid_out_as_the_driver_has_it() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    config, attribute = structure("Config"), structure("Attribute")
    theirs = driver.CUlaunchConfig()
    theirs.gridDimX, theirs.gridDimY, theirs.gridDimZ = 1, 2, 3
    theirs.blockDimX, theirs.blockDimY, theirs.blockDimZ = 4, 5, 6
    theirs.sharedMemBytes, theirs.hStream = 7, driver.CUstream(8)
    one = driver.CUlaunchAttribute()
    one.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    one.value.clusterDim.x, one.value.clusterDim.y, one.value.clusterDim.z = 9, 10, 11
    theirs.attrs, theirs.numAttrs = [one], 1
    ours = config.from_address(theirs.getPtr())
    assert (*ours.grid, *ours.block, ours.shared, ours.stream, ours.attribute_count) == (*range(1, 9), 1)
    first = attribute.from_address(ours.attributes)
    assert (first.id, *first.value[:3]) == (4, 9, 10, 11)
    assert int(driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) == 6


def test_objects_of_another_machine_or_llvm_are_not_taken_from_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cache may be shared, as on a network drive."""
    made: list[str] = []
    text = f"; {time.time_ns()}"

    def assemble(_text: str, triple: str) -> bytes:
        made.append(triple)
        return triple.encode()

    monkeypatch.setattr(machine_code, "_assemble", assemble)
    take = machine_code._object_code.__wrapped__
    for triple in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"):
        monkeypatch.setattr(llvmlite.binding, "get_default_triple", lambda triple=triple: triple)
        assert take(text) == take(text) == triple.encode() and made[-1] == triple
    for name, owner, value in (
        ("__version__", llvmlite, "0.0"),
        ("llvm_version_info", llvmlite.binding, (1, 2, 3)),
    ):
        monkeypatch.setattr(owner, name, value)
        take(text)
    take(text + ";")
    assert len(made) == 5
