"""A kernel compiled for one shape of block: what it takes to run it, small enough to keep on disk."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from tilewise.emulator import native
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.lowering.lower import Lowered, lower
from tilewise.emulator.lowering.special import WORKSPACE_HALVES
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Register

__all__ = ["Build", "Store", "build_general", "build_kernel"]


class Store(Protocol):
    """Stores compiled kernels between processes; a toolchain cache is one."""

    def get(self, kind: str, key: str) -> dict[str, bytes] | None: ...

    def put(self, kind: str, key: str, parts: dict[str, bytes]) -> bool: ...


@dataclass(slots=True)
class Build:
    """What a launch needs. ``object`` is the fast build's machine code."""

    entry: str
    block: tuple[int, int, int]
    warps: int
    stride: int
    shared_bytes: int
    local_bytes: int
    parameter_bytes: int
    parameters: list[tuple[int, int]]  # offset and size of each
    constants: list[tuple[str, int]]  # variables in constant memory, and where each begins
    constant_bytes: int
    globals: list[str]  # variables in global memory that it names
    hints: int
    symbol: str
    ptx: str
    target: native.CpuTarget
    object: bytes = b""
    mode: str = "plain"
    sums: str = "fast"
    finds_workspace: bool = False  # whether it asks for what only a cooperative launch has
    launches_dependents: bool = False  # whether it lets the next launch begin before its end
    notes: list[Any] = field(default_factory=list)  # what a watcher's figures mean
    flies: bool = False  # whether some of its operations complete some time after they are issued
    cluster: tuple[int, int, int] | None = None  # what the kernel says of its clusters, as in ``Function``
    explicit_cluster: bool = False
    max_cluster: int = 0
    blocks_are_clusters: bool = False
    code: native.Code | None = field(default=None, repr=False)
    general: native.Code | None = field(default=None, repr=False)


@functools.cache
def own_version() -> str:
    """A digest of this package: machine code made by another version of it is not used."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def build_kernel(
    ptx: str,
    entry: str,
    block: tuple[int, int, int],
    target: native.CpuTarget,
    store: Store | None,
    mode: str = "plain",
    sums: str = "fast",
) -> Build:
    """Compile a kernel for blocks of one shape, or fetch what an earlier process compiled.

    ``mode`` is "plain", "counted" or "checked": what the code does beside running (``watch.py``). ``sums``
    is "fast" or "hardware": how instructions of tensor cores add (``tensor_core.py``).
    """
    key = _key(ptx, entry, block, target, mode, sums)
    parts = store.get("emulated", key) if store else None
    build = _read(parts, ptx, target) if parts else None
    if build is None:
        program = Program(parse(ptx), entry, block)
        symbol = f"k{key[:16]}"
        lowered = lower(program, False, symbol, mode, sums)
        build = _describe(program, lowered, symbol=symbol, ptx=ptx, target=target, mode=mode, sums=sums)
        build.object = native.assemble(lowered.text, target, _effort(program, mode))
        if store:
            about = {
                item.name: getattr(build, item.name) for item in fields(Build) if item.name not in _NOT_SAVED
            }
            store.put("emulated", key, {"about": json.dumps(about).encode(), "object": build.object})
    _support(store)
    build.code = native.load(build.object, build.symbol)
    return build


def _support(store: Store | None) -> None:
    """Have the run-time support ready, from the disk if an earlier process left it there."""
    if native.is_supported() or not store:
        return
    key = hashlib.sha256(f"{own_version()} {native.host_cpu().key}".encode()).hexdigest()
    parts = store.get("emulated-support", key)
    if fresh := native.offer_support(parts["object"] if parts and "object" in parts else None):
        store.put("emulated-support", key, {"object": fresh})


def build_general(build: Build, store: Store | None) -> None:
    """Add the general build, to which warps go whose lanes are not where their shapes say."""
    key = _key(build.ptx, build.entry, build.block, build.target, build.mode, build.sums)
    parts = store.get("emulated-general", key) if store else None
    if parts is None or "object" not in parts:
        program = Program(parse(build.ptx), build.entry, build.block)
        lowered = lower(program, True, f"{build.symbol}g", build.mode, build.sums)
        parts = {"object": native.assemble(lowered.text, build.target, _effort(program, build.mode))}
        if store:
            store.put("emulated-general", key, parts)
    build.general = native.load(parts["object"], build.symbol + "g")


_LITTLE = 0.2  # of the instructions: so few in loops make a launch hardly faster by being compiled better


def _effort(program: Program, mode: str) -> native.Effort:
    """Whether good machine code saves as much time as it takes to make.

    It does in loops of plain code only: what watches a launch costs the same in either, and code outside of
    loops runs once for each warp.
    """
    flow = program.flow
    looped = set[int]().union(*flow.loops)
    counts = [len(block.instructions) for block in flow.blocks]
    seldom = sum(counts[index] for index in looped) <= _LITTLE * sum(counts)
    return "brief" if seldom or mode != "plain" else "good"


def _key(
    ptx: str, entry: str, block: tuple[int, int, int], target: native.CpuTarget, mode: str, sums: str
) -> str:
    digest = hashlib.sha256()
    for part in (own_version(), target.key, mode, sums, entry, repr(block), ptx):
        digest.update(f"{len(part)}:".encode())
        digest.update(part.encode())
    return digest.hexdigest()


_OF_PROGRAM = (
    "block", "warps", "stride", "shared_bytes", "local_bytes", "parameter_bytes", "constant_bytes",
)  # fmt: skip
_OF_FUNCTION = ("cluster", "explicit_cluster", "max_cluster", "blocks_are_clusters")
_NOT_SAVED = ("object", "ptx", "target", "code", "general")


def _describe(program: Program, lowered: Lowered, **given: Any) -> Build:
    function, places = program.function, program.places
    instructions = program.flow.instructions
    rows = [operation_of(item) for item in instructions]
    registers = {
        operand.name for item in instructions for operand in item.operands if isinstance(operand, Register)
    }
    return Build(
        entry=function.name,
        parameters=[(places[p.name].offset, p.size) for p in function.parameters],
        constants=[(variable.name, places[variable.name].offset) for variable in program.constants],
        globals=[variable.name for variable in program.globals],
        # NOTE: both builds share a worker's memory, and the general one may have more instructions to
        # remember arrays for: room for every load and store twice over.
        hints=lowered.hints * 2 + 64,
        flies=any(
            row.group.of != "products" if row.group else row.asynchronous and not row.multiplies_matrices
            for row in rows
        ),
        finds_workspace=not registers.isdisjoint(WORKSPACE_HALVES),
        launches_dependents=any(row.launches_dependents for row in rows),
        notes=lowered.notes,
        **given,
        **{name: getattr(program, name) for name in _OF_PROGRAM},
        **{name: getattr(function, name) for name in _OF_FUNCTION},
    )


def _read(parts: dict[str, bytes], ptx: str, target: native.CpuTarget) -> Build | None:
    try:
        build = Build(**json.loads(parts["about"]), object=parts["object"], ptx=ptx, target=target)
        x, y, z = build.block
        build.block = (x, y, z)
        if build.cluster:
            x, y, z = build.cluster
            build.cluster = (x, y, z)
        build.constants = [(str(name), int(offset)) for name, offset in build.constants]
        build.parameters = [(int(offset), int(size)) for offset, size in build.parameters]
    except (KeyError, TypeError, ValueError):
        return None
    return build
