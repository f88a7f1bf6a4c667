"""A rung: one kernel of the ladder, with its launch geometry.

Each rung is a pair of files of one stem: ``rung_04_tiled.cu`` holds the CUDA C++, ``rung_04_tiled.py``
the geometry. This module is what they have in common.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.devices import Array, Device
from tilewise.devices import device as resolve
from tilewise.errors import ArchError, ArgumentError, UnknownNameError, integer
from tilewise.gpus import Gpu, arch_capability
from tilewise.kernel import Kernel
from tilewise.launch import Launch

if TYPE_CHECKING:
    from tilewise.instruments.findings import Finding
    from tilewise.instruments.profile import Profile

__all__ = ["Operand", "Rung", "Settings", "Step", "ceil_div", "no_rule", "no_workspace"]

Settings = Mapping[str, int | str]

_KEPT: dict[tuple[object, ...], Kernel] = {}  # kernels that calls of rungs have built
_KEEP = 128
_MANY = 16  # values of a setting, from which on a message does not list them all
_INDEX_MOST = 2**32 - 1  # elements that a kernel's 32-bit index reaches


@dataclass(frozen=True, slots=True)
class Operand:
    """A row-major matrix on a device: where it lies and how far apart its rows are, in elements."""

    address: int
    rows: int
    columns: int
    pitch: int
    dtype: str

    def check_index(self, argument: str) -> None:
        """Refuse a matrix that 32-bit element indices cannot reach."""
        span = (self.rows - 1) * self.pitch + self.columns if self.rows else 0
        if max(span, self.pitch, self.rows) > _INDEX_MOST:
            raise ArgumentError(
                argument, f"must span at most {_INDEX_MOST:,} elements (32-bit index)", f"{span:,}"
            )

    def matrix(self) -> bytes:
        """The bytes of ``struct Matrix`` in ``tilewise/matrix.cuh``: width, height, pitch, pointer."""
        return struct.pack("<IIIxxxxQ", self.columns, self.rows, self.pitch, self.address)

    def transposed(self) -> tuple[int, int, int, int]:
        """Address, rows, columns and leading dimension of the same memory read as column-major."""
        return self.address, self.columns, self.rows, self.pitch


@dataclass(frozen=True, slots=True)
class Step:
    """One launch of a rung: which entry of its source, and how."""

    entry: str
    launch: Launch


def no_rule(_m: int, _n: int, _k: int, _settings: Settings) -> None:
    """The rule of a rung that takes every size."""


def no_workspace(_m: int, _n: int, _k: int, _settings: Settings) -> int:
    """The workspace of a rung that needs none."""
    return 0


@dataclass(frozen=True)
class Rung:
    """What a rung's geometry module says of it.

    ``settings`` maps each compile-time choice to the values it may have, the default first.
    ``steps`` turns operands A, B, C, the workspace's address and the settings into launches.
    ``choose`` may fill in settings the caller left open, from m, n, k and the number of SMs.
    """

    name: str
    title: str
    file: Path
    entries: tuple[str, ...]
    steps: Callable[[Operand, Operand, Operand, int, Settings], list[Step]]
    rows: tuple[str, ...]  # of the requirements that it fulfils, such as "A4"
    least: tuple[int, int] = (7, 5)  # compute capability
    arch: str | None = None  # the only one it can be compiled for, if there is one
    settings: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    rule: Callable[[int, int, int, Settings], None] = no_rule
    workspace: Callable[[int, int, int, Settings], int] = no_workspace  # in bytes
    choose: Callable[[int, int, int, int], Settings] | None = None
    operand_type: str = "float32"
    result_types: tuple[str, ...] = ("float32",)  # the default first
    accumulate: Callable[[Settings], str] = lambda _settings: "float32"

    @property
    def source(self) -> str:
        """The CUDA C++ of the rung."""
        return self.file.read_text(encoding="utf-8")

    def kernel(self, arch: str | None = None, *, entry: str | None = None, **settings: Any) -> Kernel:
        """The rung as a :class:`tilewise.Kernel`, compiled for ``arch`` with these settings.

        ``entry`` names one of :attr:`entries` where the rung has more than one; the first is the default.
        """
        chosen = entry if entry is not None else self.entries[0]
        if chosen not in self.entries:
            raise UnknownNameError(f"entry of {self.name}", chosen, self.entries)
        return self._build(arch, chosen, self.complete(settings))

    def _build(self, arch: str | None, entry: str, settings: Settings) -> Kernel:
        if arch is not None and not self.runs_on(arch):
            newer = "" if self.arch else " or newer"
            raise ArchError(
                f"rung {self.name} needs {self.needs}{newer}, not {arch}; compile it for {self.needs}"
            )
        return Kernel(self.source, entry, arch, self.defines(settings), filename=self.file.name)

    def _kept(self, arch: str, entry: str, settings: Settings) -> Kernel:
        """A kernel as it was built for an earlier call: looking it up on the disk takes longer than a launch."""
        written = self.file.stat().st_mtime_ns
        key = (str(self.file), written, arch, entry, *sorted(self.defines(settings).items()))
        kernel = _KEPT.get(key)
        if kernel is None:
            if len(_KEPT) >= _KEEP:
                _KEPT.clear()
            kernel = _KEPT[key] = self._build(arch, entry, settings)
        return kernel

    @property
    def needs(self) -> str:
        """The least arch that it runs on, or the only one."""
        return self.arch or f"sm_{self.least[0]}{self.least[1]}"

    def runs_on(self, arch: str) -> bool:
        """Whether it can be compiled for this arch."""
        return arch_capability(arch) >= self.least and self.arch in (None, arch)

    def room(self, a: Operand, b: Operand, c: Operand, settings: Settings) -> int:
        """The bytes of workspace that it needs for these operands."""
        return self.workspace(c.rows, c.columns, a.columns, settings)

    def __call__(
        self, a: Any, b: Any, *, out: Any = None, device: Device | str | None = None, **settings: Any
    ) -> Any:
        """Multiply ``a`` (m×k) by ``b`` (k×n): NumPy in, NumPy out; device arrays in, device array out.

        ``out`` is the array to write. ``settings`` are the rung's compile-time choices, such as ``tile``.
        """
        settings = self._with_element(a, settings)
        given = self.complete(settings)
        m, n, k = self._sizes(a, b, self.element(given))
        self.rule(m, n, k, given)
        host = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
        result = self.result_type(given)
        target = resolve(device if device is not None or host else _device_of(a, b))
        _check_out(out, (m, n), result, None if host else target)
        on_device = out if out is not None and not host else target.empty((m, n), result)
        if m and n:
            left, right = _as_rows(target, a), _as_rows(target, b)
            if out is not None and not host:
                _check_apart(out, a=left, b=right)
            self._launch(target, left, right, on_device, settings)
        if not host:
            return on_device
        values = on_device.numpy()
        if out is None:
            return values
        np.copyto(out, values)
        return out

    def profile(
        self,
        m: int,
        n: int,
        k: int,
        gpu: str | Gpu | None = None,
        *,
        cache: bool = False,
        sample: int | None = None,
        **settings: Any,
    ) -> Profile:
        """What multiplying m×k by k×n comes to on ``gpu``, counted on the emulator.

        ``cache`` adds what a model of the caches makes of it; ``sample`` runs so many blocks of each kind in
        place of all.
        """
        from tilewise.instruments.launch import USUAL, ProfilingDevice, gpu_for

        chosen = gpu_for(USUAL if gpu is None else gpu, self.needs)
        blocks = None if sample is None else integer("sample", sample, least=1)
        target = ProfilingDevice(chosen, cache=cache, sample=blocks)
        m, n, k = (integer(name, size, least=1) for name, size in (("m", m), ("n", n), ("k", k)))
        kind = self.element(self.complete(settings))
        a, b = target.empty((m, k), kind), target.empty((k, n), kind)
        for array in (a, b):  # NOTE: what is in memory by chance may be slow to compute with
            array.fill(np.zeros(array.shape, array.dtype))
        self(a, b, device=target, **settings)
        return target.profile

    def check(
        self,
        m: int,
        n: int,
        k: int,
        order: str | int = "late",
        *,
        seed: int | None = None,
        **settings: Any,
    ) -> list[Finding]:
        """What is wrong with multiplying random matrices, m×k by k×n, on the emulator: an empty list is good.

        See :meth:`tilewise.Kernel.check` for what is looked for, and for ``order``.
        """
        from tilewise.instruments.checking import CheckingDevice

        target = CheckingDevice(order)
        m, n, k = (integer(name, size, least=1) for name, size in (("m", m), ("n", n), ("k", k)))
        generator = np.random.default_rng(seed)
        kind = target.empty((1,), self.element(self.complete(settings))).dtype
        a, b = (generator.standard_normal(shape).astype(kind) for shape in ((m, k), (k, n)))
        self(a, b, device=target, **settings)
        return target.findings

    def element(self, settings: Settings) -> str:
        """The element type of the operands: the setting ``element`` decides where the rung has one."""
        return str(settings.get("element", self.operand_type))

    def _with_element(self, a: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that fit the operands where the caller left the element type open."""
        kinds = self.settings.get("element", ())
        kind = str(getattr(a, "dtype", ""))
        return {"element": kind, **settings} if kind in kinds else dict(settings)

    def _sizes(self, a: Any, b: Any, element: str) -> tuple[int, int, int]:
        for argument, operand in (("a", a), ("b", b)):
            if not hasattr(operand, "shape") or not hasattr(operand, "dtype"):
                rule = "must be a NumPy array or a device array"
                raise ArgumentError(argument, rule, type(operand).__name__)
            if len(operand.shape) != 2:
                raise ArgumentError(argument, "must have two dimensions", f"shape {tuple(operand.shape)}")
            if str(operand.dtype) != element:
                kinds = " or ".join(map(str, self.settings.get("element", (element,))))
                raise ArgumentError(
                    argument,
                    f"must have elements of type {kinds} for rung {self.name}",
                    str(operand.dtype),
                    f"convert it: {argument}.astype('{element}')",
                )
        (m, k), (other, n) = a.shape, b.shape
        if k != other:
            rule = f"must have as many rows as a has columns ({k})"
            raise ArgumentError("b", rule, f"shapes {tuple(a.shape)} and {tuple(b.shape)}")
        return int(m), int(n), int(k)

    def result_type(self, settings: Settings) -> str:
        """What C holds: the setting ``result`` decides where the rung has one."""
        if "result" in self.settings:
            return str(settings["result"])
        return str(settings.get("element", self.result_types[0]))

    def _launch(self, target: Device, a: Array, b: Array, c: Array, settings: Mapping[str, Any]) -> None:
        left, right, result = operand("a", a), operand("b", b), operand("out", c)
        m, n, k = left.rows, right.columns, left.columns
        chosen = self.choose(m, n, k, target.multiprocessors) if self.choose else None
        complete = self.complete(settings, chosen)
        size = self.room(left, right, result, complete)
        workspace = target.empty((size,), "uint8") if size else None
        for step in self.steps(left, right, result, workspace.ptr if workspace else 0, complete):
            launch = step.launch
            kernel = self._kept(target.arch, step.entry, complete)
            kernel(launch.grid, launch.block, launch.args, launch.shared, launch.cluster, target)

    def complete(self, given: Mapping[str, object], chosen: Settings | None = None) -> dict[str, int | str]:
        """The settings to build with: given ones first, then chosen ones, then the defaults."""
        complete = {name: values[0] for name, values in self.settings.items()}
        complete.update(chosen or {})
        if {"element", "result"} <= complete.keys() and given.get("element") in self.settings["result"]:
            complete["result"] = str(given["element"])  # what A and B hold, unless it is asked for otherwise
        for name, value in given.items():
            if name not in self.settings:
                raise UnknownNameError(f"setting of {self.name}", name, self.settings)
            plain = value.__index__() if isinstance(value, np.integer) else value
            if not isinstance(plain, int | str) or plain not in self.settings[name]:
                known = self.settings[name]
                listed = ", ".join(map(repr, known if len(known) <= _MANY else (*known[:2], ..., known[-1])))
                raise ArgumentError(name, f"must be one of {listed.replace('Ellipsis', '…')}", value)
            complete[name] = plain
        return complete

    def defines(self, settings: Settings) -> dict[str, int]:
        """Settings as preprocessor definitions; a word becomes NAME_WORD=1."""
        defines = {}
        for name, value in settings.items():
            if isinstance(value, str):
                defines[f"{name}_{value}".upper()] = 1
            else:
                defines[name.upper()] = int(value)
        return defines


def ceil_div(a: int, b: int) -> int:
    """How many pieces of size b cover a."""
    return -(-a // b)


def operand(argument: str, array: Array) -> Operand:
    """A device array of two dimensions as an operand; its rows must be contiguous."""
    rows, columns = array.shape
    size = array.dtype.itemsize
    pitch = array.strides[0] // size if rows > 1 else columns
    found = Operand(array.ptr, rows, columns, pitch, str(array.dtype))
    found.check_index(argument)
    return found


def _as_rows(target: Device, source: Any) -> Array:
    """``source`` on the device with contiguous rows: as it is where it lies so, else a copy."""
    here = isinstance(source, Array) and source.device.name == target.name
    array: Array = source if here else target.array(source)
    size = array.dtype.itemsize
    row, column = array.strides
    in_rows = (column == size or array.shape[1] <= 1) and row % size == 0
    if in_rows and (array.shape[0] <= 1 or row >= array.shape[1] * size) and array.ptr % size == 0:
        return array
    return target.array(np.ascontiguousarray(array.numpy()))


def _device_of(a: Any, b: Any) -> Device | None:
    return next((operand.device for operand in (a, b) if isinstance(operand, Array)), None)


def _check_out(out: Any, shape: tuple[int, int], dtype: str, target: Device | None) -> None:
    """Refuse an output that cannot be written; ``target`` is the device it must lie on, None for the host."""
    if out is None:
        return
    if isinstance(out, np.ndarray) is not (target is None):
        raise ArgumentError("out", "must be of the same kind as the operands", type(out).__name__)
    if tuple(getattr(out, "shape", ())) != shape or str(getattr(out, "dtype", "")) != dtype:
        got = f"{getattr(out, 'shape', '')} of {getattr(out, 'dtype', type(out).__name__)}"
        raise ArgumentError("out", f"must have shape {shape} and type {dtype}", got)
    if target is None:
        if not out.flags.writeable:
            raise ArgumentError("out", "must be writable", "a read-only array")
        return
    if not isinstance(out, Array) or out.device.name != target.name:
        where = f"an array on {out.device.name}" if isinstance(out, Array) else type(out).__name__
        raise ArgumentError("out", f"must lie on {target.name}, where the result is made", where)
    rows, columns = shape if 0 not in shape else (0, 0)
    size = out.dtype.itemsize
    if (columns > 1 and out.strides[1] != size) or (rows > 1 and out.strides[0] < columns * size):
        raise ArgumentError("out", "must have contiguous rows, one after another", f"strides {out.strides}")


def _check_apart(out: Array, **operands: Array) -> None:
    """Refuse an output that shares memory with an operand: it would be written while that is read."""
    for argument, array in operands.items():
        if np.shares_memory(_span(out), _span(array)):
            raise ArgumentError("out", f"must not overlap {argument}", fix="give it memory of its own")


class _Span:
    """Where an array lies, as NumPy wants to be told it. Nothing reads what is there."""

    def __init__(self, array: Array) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "strides": array.strides,
            "typestr": f"|V{array.dtype.itemsize}",
            "data": (array.ptr, True),
        }


def _span(array: Array) -> Any:
    return np.asarray(_Span(array))
