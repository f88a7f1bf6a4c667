"""Launches on the host, with no kernel behind them: memory that overlaps, what is undone, variables, faults, hints."""

from __future__ import annotations

import contextlib
import ctypes
import io
import sys
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.answers.driver_calls import A, Handed, OfHost, counting, describe_refusal, shape
from tests.telling_driver import X
from tilewise import emulator
from tilewise.devices import exchange, host_launches
from tilewise.devices.gpu import launches
from tilewise.devices.host_launches import HostLauncher
from tilewise.devices.host_memory import ALLOCATIONS, AdoptedMemory, Allocation
from tilewise.devices.host_modules import HostModules
from tilewise.devices.host_views import view_on_host
from tilewise.errors import KernelFault
from tilewise.launch import Launch
from tilewise.toolchain.binary import Binary, Entry, Resources

LINES = """
hosted(shape(), mode=«'plain'|'checked'|'counted'», watch=«None|lambda build, launch, held: [one.name for one in held]», chosen=«None|[1, 2]», timeout=«None|5», lenient=«True|False», multiprocessors=«None|9»)
hosted(shape(4, 32), shape(4, 64, programmatic=True), shape(4, 32, programmatic=True), shape(4, 64), order=«'eager'|'late'|0|1», build={'launches_dependents': «True|False»}, mode='«plain|checked»')
hosted(shape(4, 32, cooperative=True), shape(70000, (32, 32, 2)), sums=«None|'hardware'», fails=«None|KernelFault('kernel k: it')|KeyError('x')», mode='«plain|checked»')
hosted(shape(8, 32, cluster=«None|(2, 1, 1)|(4, 1, 1)|(3, 1, 1)|(16, 1, 1)»), build={«'cluster': (2, 1, 1)|'max_cluster': 3|'explicit_cluster': True|'blocks_are_clusters': True|'shared_bytes': 500_000|'cluster': (2, 1, 1), 'blocks_are_clusters': True|'globals': ['first', 'third'], 'constants': []»})
hosted(shape(8, «32|1024|2048»), resources=Resources(«32|255», «0|300_000», 0, 0, 0, 0, 0))
hosted(shape(), terminal=«True|False», wait=«1.0|1.99|2.0|3.0», fails=«None|KeyError()»)
undone(fails=«True|False»)
freed_fault(«0|15|16|-1»), freed_fault(0, «kind='X'|array='y'|space='shared'|none=True»)
reached(8, «16|0», adopted=«()|[(0, 8)]|[(4, 8)]|[(0, 4), (2, 8)]|[(0, 0)]», drop=«0|1|2»)
allocated(«8|9|2», unset=«True|False», zeros=«True|False»)
Allocation(2**62, 'x')
variables('«first|second|third|first third|second first|none|third none»', origin='«|o»')
apart(«True|False», «True|False»)
view_on_host('x', Handed(SimpleNamespace(__dlpack__=lambda **how: exchange.capsule(A.ctypes.data, (3,), (4,), A.dtype, (1, 0), A, read_only=«True|False»)), 1, 0)).flags.writeable
view_on_host('x', «OfHost()|Handed(SimpleNamespace(__dlpack__=lambda **how: counting(2, 3)[::-1, 1:].__dlpack__(), device=None), 1, 0)|counting(3)»)
"""

VARIABLES = """.version 8.0
.target sm_75
.address_size 64
.global .align 8 .u64 first[2] = {second, 5};
.global .align 4 .u32 second[3] = {7, 8};
.const .align 4 .f32 third = 0f3F800000;
.global .align 4 .u32 fourth[3];
.visible .entry k(.param .u64 x) { ret; }
"""


class _Runner:
    """The emulator's runner, which tells what it is given."""

    told: list[Any]
    fails: Exception | None

    def __init__(
        self, build: Any, launch: Launch, packed: Any, ranges: Any, variables: Any, constants: Any, **how: Any
    ) -> None:
        known = {one.address: one.name for one in how["keep"]}
        self.held = next(one for one in how["keep"] if one.name == "an array")
        how["keep"] = [(one.name, one.size) for one in how["keep"]]
        how["awaited"] = bool(how["awaited"])
        how["workspace"] = known.get(how["workspace"]) and ctypes.string_at(how["workspace"], 64)
        how.pop("store")
        self.told.append(
            (launch, packed, [known[one] for one in variables], [one.tolist() for one in constants], how)
        )

    def __call__(self) -> None:
        self.told.append(("runs", getattr(self, "progress", None) is not None, self.held.bytes.tolist()))
        self.held.bytes[:] += 1
        if self.progress:  # type: ignore[attr-defined]
            for done in (0, 1, 1, 4):
                self.progress(done, 4)  # type: ignore[attr-defined]
        if self.fails:
            raise self.fails


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def hosted(
    *given: Launch, fails: Exception | None = None, terminal: bool = False, wait: float = 3.0, build: Any = (),
    resources: Any = None, mode: str = "plain", watch: Any = None, chosen: Any = None, timeout: Any = None, **how: Any,
) -> Any:  # fmt: skip
    """What the emulator's runner is told of launches one after the other, and what is said and left of them."""
    told: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        known = type(ALLOCATIONS)()
        for name in ("host_launches", "host_memory"):
            patch.setattr(f"tilewise.devices.{name}.ALLOCATIONS", known)
        patch.setattr(_Runner, "told", told, raising=False)
        patch.setattr(_Runner, "fails", fails, raising=False)
        patch.setattr(emulator, "Runner", _Runner)
        fields = {
            "entry": "k", "cluster": None, "max_cluster": None, "explicit_cluster": False, "blocks_are_clusters": False,
            "shared_bytes": 1000, "globals": ["first"], "constants": [("third", 4)], "launches_dependents": False,
        } | dict(build)  # fmt: skip
        built = SimpleNamespace(**fields)

        def build_kernel(ptx: str, entry: str, block: Any, cpu: Any, store: Any, kind: str, sums: str) -> Any:
            told.append(("built", len(ptx), entry, block, kind, sums))
            return built

        patch.setattr(emulator, "build_kernel", build_kernel)
        patch.setattr(emulator, "host_cpu", lambda: "a CPU")
        patch.setattr(host_launches, "_BUILT", OrderedDict())
        patch.setattr(host_launches, "_BUILDS", 1)
        clock = iter((0.0, *[wait] * 50))
        patch.setattr(host_launches, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        patch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
        launcher = HostLauncher(threads=3, **how)
        code = Binary("sm_90a", VARIABLES, None, {"k": Entry("k", (X,), resources)}, key="h")
        held = Allocation(8, "an array", unset=True)
        held.bytes[:] = 0
        answers: list[Any] = []
        for launch in given:
            try:
                launcher.run(code, "k", launch, [b"12345678"], timeout, mode, watch, chosen)
            except Exception as error:
                answers.append(describe_refusal(error))
        answers.append([np.sum(held.unset), launcher.find_heap(code), launcher.resolve_clusters(code, "k", given[0])
                        if not fails else None, repr(getattr(sys.stderr, "getvalue", str)())])  # fmt: skip
        return told, answers


def undone(*, fails: bool = False) -> Any:
    """What memory holds once launches within are undone."""
    with pytest.MonkeyPatch.context() as patch:
        known = type(ALLOCATIONS)()
        for name in ("host_launches", "host_memory"):
            patch.setattr(f"tilewise.devices.{name}.ALLOCATIONS", known)
        one, other = Allocation(4, "one", unset=True), Allocation(4, "other", zeros=True)
        one.bytes[:] = 3
        with contextlib.suppress(KeyError), HostLauncher().undo_changes():
            print("dropped")
            one.bytes[1:], one.unset = 5, False
            inside = one.bytes.tolist()
            if fails:
                raise KeyError
        return inside, one.bytes.tolist(), one.unset, other.bytes.tolist()


def freed_fault(offset: int, **changes: Any) -> Any:
    """A fault at an address where an array lay."""
    from dataclasses import make_dataclass

    details = make_dataclass("Details", ["kind", "array", "space", "address"])
    gone = Allocation(16, "an array that is gone")
    address = gone.address + offset
    del gone
    error = KernelFault("kernel k: reads at nowhere\n  line 3")
    fields = {"kind": "OUT_OF_BOUNDS", "array": "", "space": "global"} | changes
    error.details = None if changes.get("none") else details(**{**fields, "address": address})
    found: Any = host_launches._name_freed_array(error)
    return (
        str(found),
        found is error,
        found.details and found.details.kind,
        found.details and found.details.array,
    )


def reached(*sizes: int, adopted: Any = (), drop: int = 0) -> Any:
    """The memory that launches reach, and whether the table of it is the same again."""
    with pytest.MonkeyPatch.context() as patch:
        known = type(ALLOCATIONS)()
        patch.setattr("tilewise.devices.host_memory.ALLOCATIONS", known)
        made: list[Any] = [Allocation(size, f"{i}") for i, size in enumerate(sizes)]
        made += [AdoptedMemory(made[0].address + at, size, f"lent {at}", None) for at, size in adopted]
        first, held = known.reachable()
        shown = sorted((one.name, one.size) for one in held)
        again = known.reachable()[0] is first
        del held
        del made[len(made) - drop :]
        later, held = known.reachable()
        return (
            shown,
            again,
            later is first,
            sorted((one.name, one.size, type(one).__name__) for one in held),
            known._adopted,
        )


def allocated(size: int, **how: Any) -> Any:
    """Memory of the host: how it lies, and what launches know of a part that is filled."""
    made = Allocation(size, "it", **how)
    before = made.unset
    made.fill(made.bytes[1 : size // 2])
    part = np.sum(made.unset)
    made.fill(made.bytes[: size // 2 : 2])
    parts = np.sum(made.unset)
    made.fill(made.bytes[:0])
    made.fill(made.bytes)
    return (
        made.address % 256,
        made.size,
        before,
        part,
        parts,
        made.unset,
        len(ALLOCATIONS.freed(made.address)),
    )


def variables(names: str, ptx: str = VARIABLES, origin: str = "") -> Any:
    """Variables of a module as launches find them, and where those lie that others hold."""
    modules = HostModules()
    code = Binary("sm_75", ptx, None, {}, key="m", origin=origin)
    found = modules.find(code, names.split())
    again = modules.find(code, names.split())
    other = modules.find(Binary("sm_90a", ptx, None, {}, key="n", origin=origin), names.split())
    second = modules.get(code, "second")
    linked = second and second.address
    shown = [
        np.where(one.bytes[:8].view("u8") == linked, 1, 0).tolist() if one.size >= 8 else None
        for one in found
    ]
    return (
        [(one.name, one.size, one.bytes.tolist() if one.name != "the variable first" else one.bytes[8:].tolist()) for one in found],
        shown, [a is b for a, b in zip(found, again, strict=True)], [a is b for a, b in zip(found, other, strict=True)],
        modules.get(code, "none"),
    )  # fmt: skip


def apart(kept: bool, makes: bool) -> Any:
    """What variables hold within and after a time of their own."""
    modules, code = HostModules(), Binary("sm_75", VARIABLES, None, {}, key="m")
    second = modules.find(code, ["second"])[0]
    second.bytes[:4] = 9
    saved: dict[str, Any] = {"m": {"second": np.full(12, 4, np.uint8), "none": np.zeros(1)}} if kept else {}
    with modules.apart([code, code], saved):
        inside = second.bytes.tolist()
        second.bytes[4:8] = 6
        third = modules.find(code, ["fourth"])[0] if makes else second
        third.bytes[:] = 5
    return (
        inside,
        second.bytes.tolist(),
        third.bytes.tolist(),
        {key: sorted(one) for key, one in saved.items()},
        saved["m"],
    )
