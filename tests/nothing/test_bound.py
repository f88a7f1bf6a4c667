"""Launches that lack only the addresses of their operands: which are started, in which order, and where operands lie then."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tilewise.bound import Bound, BoundLaunch
from tilewise.devices import device
from tilewise.kernels import KERNELS
from tilewise.kernels import bind as binding
from tilewise.launch import Launch
from tilewise.planner import choose, operands_of, target_of
from tilewise.slots import Gap, Slot


class Device:
    """One that notes what it is to run: the kernel, and the addresses that it is given."""

    def __init__(self) -> None:
        self.started: list[tuple[str, list[int]]] = []
        self.kept: list[Sequence[object]] = []
        self.how: list[tuple[object, object]] = []

    def run(
        self, _binary: Any, entry: str, _launch: Launch, packed: list[bytes], timeout: Any, stream: Any
    ) -> None:
        self.started.append((entry, [int.from_bytes(part, "little") for part in packed]))
        self.how.append((timeout, stream))

    def prepare(
        self, binary: Any, entry: str, launch: Launch, packed: list[bytes], arrays: Sequence[object]
    ) -> Callable[[], None]:
        self.kept.append(arrays)
        return lambda: self.run(binary, entry, launch, packed, None, None)


def launch_of(entry: str, *operands: str) -> BoundLaunch:
    """A launch whose arguments are the addresses of operands."""
    binary: Any = entry
    return BoundLaunch(
        binary, entry, Launch((1, 1, 1), (1, 1, 1), tuple(Slot(bytes(8), (Gap(0, one),)) for one in operands))
    )


def bind(device: Any, copies: int, launches: int, **how: Any) -> Bound:
    return Bound(
        device,
        tuple(launch_of(f"copy {i}", "a") for i in range(copies)),
        tuple(launch_of(f"launch {i}", "a") for i in range(launches)),
        **how,
    )


@pytest.mark.parametrize(("copies", "launches"), [(0, 1), (0, 2), (0, 3), (1, 1), (2, 2), (1, 0), (0, 0)])
def test_what_is_prepared_starts_every_launch_each_time_the_copies_first(copies: int, launches: int) -> None:
    device = Device()
    bound = bind(device, copies, launches)
    names = [f"copy {i}" for i in range(copies)] + [f"launch {i}" for i in range(launches)]
    start = bound.prepare({"a": 64}, arrays := ["an array"])
    assert not device.started and device.kept == [arrays] * len(names)
    start()
    start()
    assert device.started == [(name, [64]) for name in names * 2]
    device.started.clear()
    bound({"a": 80}, 7, 2.5)
    assert device.started == [(name, [80]) for name in names] and device.how[-len(names) :] == [
        (2.5, 7)
    ] * len(names)
    assert list[object](bound.binaries) == names


def test_launches_are_repeated_for_each_shift_and_copies_are_not() -> None:
    """What is not named stays where it is; what lies in the workspace begins so many bytes after it."""
    device: Any = Device()
    bound = Bound(
        device,
        (launch_of("copy", "a", "copy_a"),),
        (launch_of("multiply", "copy_a", "b"), launch_of("add", "sums", "workspace")),
        regions={"copy_a": 256, "sums": 512},
        shifts=({}, {"copy_a": 16, "b": -32}, {"sums": 1}),
        main=1,
    )
    addresses = {"a": 1000, "b": 2000, "workspace": 10_000}
    bound(addresses)
    assert device.started == [
        ("copy", [1000, 10_256]),
        ("multiply", [10_256, 2000]), ("add", [10_512, 10_000]),
        ("multiply", [10_272, 1968]), ("add", [10_512, 10_000]),
        ("multiply", [10_256, 2000]), ("add", [10_513, 10_000]),
    ]  # fmt: skip
    assert addresses == {"a": 1000, "b": 2000, "workspace": 10_000}
    assert bound.main_packed == 2 and bind(device, 0, 1).main_packed == 0


@pytest.mark.parametrize(
    ("kernel", "given", "launched", "main"),
    [
        ("mma", {"split": 2, "partition": "16x64x64"}, ["mma_gemm", "add_parts"], 0),
        ("exact32", {}, ["split_halves", "exact32", "remedy"], 1),
    ],
)
def test_the_main_launch_is_the_one_that_multiplies(
    kernel: str, given: dict[str, Any], launched: list[str], main: int
) -> None:
    spec = KERNELS[kernel]
    type_: dict[str, Any] = {"arithmetic": "exact32"} if kernel == "exact32" else {"dtype": "float16"}
    operands = operands_of(64, 64, 512, **type_)
    settings = spec.complete({**spec.for_types(operands), **given})
    bound = binding.bind(spec, settings, operands, operands, device("emulator"), "sm_90a")
    assert ([launch.name for launch in bound.launches], bound.main) == (launched, main)


def test_kernels_are_compiled_one_by_one_where_there_are_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while Python ends, when a last product may be multiplied."""

    def refuse(_count: int) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", refuse)
    binding.forget_kernels()
    operands, target = operands_of(64, 64, 4096, dtype="float16"), target_of("a100")
    chosen = choose(operands, target)
    made = binding.bind(
        chosen.spec, chosen.settings, operands, chosen.operands, device("emulator"), target.arch
    )
    assert [one.entry for one in made.launches] == ["mma_gemm", "add_parts"]
