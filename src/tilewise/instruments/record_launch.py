"""Record some blocks of a bound."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewise.bound import Bound, BoundLaunch
from tilewise.devices.host_launches import HostLauncher
from tilewise.emulator.profiling.recording import EventKind, Recorder
from tilewise.errors import ArgumentError
from tilewise.gpus import Gpu
from tilewise.instruments.profile_launch import check_on_host, modules_of
from tilewise.instruments.recording import Extents, NamedMatrix, Recording
from tilewise.instruments.sample import clusters_of
from tilewise.instruments.tensor_boxes import TensorBoxes, read_map
from tilewise.launch import Launch, Parameter

__all__ = ["MOST_EVENTS", "find_roles", "name_arguments", "record_bound"]

MOST_EVENTS = 1 << 17  # that something did not fit is said
_LAST_WORD = re.compile(r"(\w+)\W*$")  # of a declaration: the parameter's name


def record_bound(
    bound: Bound,
    launch: BoundLaunch,
    packed: list[bytes],
    gpu: Gpu,
    matrices: Sequence[NamedMatrix],
    *,
    blocks: Sequence[int] = (0,),
    element: tuple[str, int, int] | None = None,
    order: str | int = "eager",
    most: int = MOST_EVENTS,
    timeout: float | None = None,
    undo: bool = True,
) -> Recording:
    """Record some blocks of one launch of a bound, whole clusters of them.

    With ``undo`` memory is as before at the end.

    ``element`` is of a matrix, row and column: then the blocks that write it are recorded, which takes a run of the
    whole grid to find them.
    """
    check_on_host(bound)
    modules = modules_of(bound)
    launcher = HostLauncher(order, multiprocessors=gpu.sms, modules=modules)
    run = _RecordedLaunch(launch, packed, launcher, list(matrices), timeout, undo)
    with modules.apart(bound.binaries, {}):
        if element is not None:
            blocks = run.find_writers(*element)
        return run.record(run.clusters(blocks), most)


class _RecordedLaunch:
    """One launch to be recorded."""

    def __init__(
        self,
        launch: BoundLaunch,
        packed: list[bytes],
        launcher: HostLauncher,
        matrices: list[NamedMatrix],
        timeout: float | None,
        undo: bool,
    ) -> None:
        self.launch, self.packed, self.launcher, self.timeout = launch, packed, launcher, timeout
        self.undo = undo
        self.matrices = {matrix.name: matrix for matrix in matrices}
        self.whole = launcher.resolve_clusters(launch.binary, launch.entry, launch.launch)

    def clusters(self, blocks: Sequence[int]) -> list[int]:
        """Return the numbers of the clusters with these blocks; of the blocks, without clusters."""
        count = math.prod(self.whole.grid)
        for block in blocks:
            if not 0 <= block < count:
                raise ArgumentError("blocks", f"must be from 0 to {count - 1:,}, as the grid has them", block)
        if self.whole.cooperative:
            return list(range(count))  # its blocks wait for one another
        owners = clusters_of(self.whole.grid, self.whole.cluster or (1, 1, 1))
        return sorted({int(owners[block]) for block in blocks})

    def record(
        self, chosen: Sequence[int] | None, most: int, window: tuple[int, int] | None = None
    ) -> Recording:
        """Run clusters in the recorded build. ``window``: record only stores that touch it, and bulk copies."""
        made: list[Recorder] = []
        maps: dict[int, TensorBoxes] = {}

        def watch(build: Any, _launch: Launch, _reachable: Any) -> Recorder:
            made.append(Recorder(build, most, window))
            for (offset, _), raw in zip(build.parameters, self.packed, strict=False):
                boxes = read_map(raw)
                if boxes is not None:
                    maps[offset] = boxes
            return made[-1]

        bound = self.launch
        with self.launcher.undo_changes() if self.undo else contextlib.nullcontext():
            self.launcher.run(
                bound.binary, bound.entry, bound.launch, self.packed, self.timeout, "recorded", watch, chosen
            )
        events = made[0].events()
        blocks = [int(block) for block in np.unique(events.block)]
        found = Recording(
            bound.name, self.whole, bound.binary, events, made[0].places, blocks, made[0].lost, self.matrices,
            maps=maps,
        )  # fmt: skip
        roles = find_roles(found)
        named = {**found.matrices, **{one.name: one for one in roles.values()}}
        return replace(found, matrices=named, roles={role: one.name for role, one in roles.items()})

    def find_writers(self, name: str, row: int, column: int) -> list[int]:
        """Return the blocks that write an element of a matrix."""
        matrix = self.matrices.get(name)
        if matrix is None:
            known = ", ".join(self.matrices) or "no matrix is known"
            raise ArgumentError("element", f"must be of one of the matrices ({known})", name)
        if not (0 <= row < matrix.rows and 0 <= column < matrix.columns):
            rule = f"must lie in {name}, which is {matrix.rows}×{matrix.columns}"
            raise ArgumentError("element", rule, f"{row}, {column}")
        at = matrix.address + (row * matrix.row_stride + column * matrix.column_stride) * matrix.itemsize
        recording = self.record(None, MOST_EVENTS, (at, at + matrix.itemsize))
        moves = recording.touched(name, EventKind.STORE, EventKind.ATOMIC)
        mine = (moves.row == row) & (moves.column == column) & (moves.stack == 0)
        blocks = [int(block) for block in np.unique(recording.events.block[moves.event[mine]])]
        if not blocks:
            raise ArgumentError(
                "element", f"must be one that the launch writes of {name}", f"{row}, {column}"
            )
        return blocks


def find_roles(recording: Recording) -> dict[str, NamedMatrix]:
    """Find the matrices of a product: C is stored, A and B are read, and their sizes fit.

    Where sizes do not, as of arrays that are wider than their matrices, what is touched of them does. A and B may be
    transposes of what the arguments are.
    """
    matrices = recording.matrices
    if {"a", "b", "c"} <= {*matrices}:
        return {name: matrices[name] for name in "abc"}
    stores = {name: recording.extents(name, EventKind.STORE, EventKind.ATOMIC) for name in matrices}
    loads = {name: recording.extents(name, EventKind.LOAD, EventKind.COPY) for name in matrices}
    read = [name for name, extents in loads.items() if len(extents)]
    for c in sorted(
        (name for name, found in stores.items() if len(found)), key=lambda name: -len(stores[name])
    ):
        sizes: dict[str, tuple[Any, Any]] = {name: (one.rows, one.columns) for name, one in matrices.items()}
        touched: dict[str, tuple[Any, Any]] = {name: _range_of_extents(loads[name]) for name in read}
        touched[c] = _range_of_extents(stores[c])
        for known, turn_a, turn_b in itertools.product((sizes, touched), (False, True), (False, True)):
            for first, second in itertools.permutations(read, 2):
                (rows, k), (other_k, columns) = (
                    _transpose_if(known[first], turn_a),
                    _transpose_if(known[second], turn_b),
                )
                if (rows, columns) == known[c] and k == other_k:
                    a, b = matrices[first], matrices[second]
                    return {
                        "a": a.transposed() if turn_a else a, "b": b.transposed() if turn_b else b, "c": matrices[c]
                    }  # fmt: skip
        return {"c": matrices[c]}
    return {}


def _transpose_if(sizes: tuple[Any, Any], turn: bool) -> tuple[Any, Any]:
    return sizes[::-1] if turn else sizes


def _range_of_extents(found: Extents) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the first and last row, and the first and last column."""
    rows = int(found.first_row.min()), int(found.last_row.max())
    return rows, (int(found.first_column.min()), int(found.last_column.max()))


def name_arguments(
    parameters: Sequence[Parameter], args: Sequence[Any], packed: Sequence[bytes]
) -> list[NamedMatrix]:
    """Return the array arguments as matrices (of one axis: a row), named as C++ or the PTX names them."""
    found = []
    for number, (parameter, given, raw) in enumerate(zip(parameters, args, packed, strict=False)):
        shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
        if not shape or dtype is None or len(shape) > 2 or len(raw) != struct.calcsize("P"):
            continue
        rows, columns = shape if len(shape) == 2 else (1, shape[0])
        if rows * columns:
            word = _LAST_WORD.search(parameter.declared)
            name = word[1] if word else f"args[{number}]"
            address, itemsize = struct.unpack("P", raw)[0], int(getattr(dtype, "itemsize", 1))
            found.append(NamedMatrix(name, address, rows, columns, columns, 1, str(dtype), itemsize))
    return found
