"""A launch: how many threads, grouped how, with how much shared memory and which arguments.

Plain data. A device runs it; :func:`check_launch` refuses what no device of the kind could run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.errors import ArgumentError, LaunchError, integer

__all__ = [
    "Dim3",
    "Launch",
    "LaunchLimits",
    "Parameter",
    "check_block",
    "check_launch",
    "check_registers",
    "dim3",
    "readable",
]

Dim3 = tuple[int, int, int]

_GRID_MOST = (2**31 - 1, 65_535, 65_535)  # of every CUDA capability that tilewise knows
_BLOCK_MOST = (1_024, 1_024, 64)
_WARPGROUP = 128  # threads
_REGISTERS_APART = 8  # of a thread: what an SM gives out


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel, as its PTX declares it.

    ``type`` is a PTX type such as ``"u64"``; for a struct by value it is ``"b8"`` and ``size`` tells
    its bytes. ``declared`` is what C++ calls it (``"const float *x"``), empty where that is not known;
    ``element`` is the element type that it points to (``"float32"``), and ``writable`` whether the kernel may
    write there, None for what is no pointer or not known to be one.
    """

    name: str
    type: str
    size: int
    align: int
    declared: str = ""
    element: str | None = None
    writable: bool | None = None

    @property
    def is_struct(self) -> bool:
        return self.type == "b8" and self.size != 1

    def label(self, number: int) -> str:
        """What to call the argument for it, the one of this number among the launch's."""
        return f"args[{number}] ({self.declared})" if self.declared else f"args[{number}]"

    @property
    def is_number(self) -> bool:
        """Whether C++ declares it as a number, even one of the size of an address."""
        return bool(self.declared) and self.writable is None


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """What one block may have on a device; the figures come from the GPU table or the driver."""

    name: str = "CUDA"
    threads_per_block: int = 1_024
    shared_bytes_per_block: int = 227 * 1_024
    clusters: bool = True
    blocks_per_cluster: int = 16  # 8 without the kernel's consent to a size that not every GPU has


@dataclass(frozen=True, slots=True)
class Launch:
    """Grid, block, cluster, dynamic shared bytes, arguments.

    ``cooperative``: all blocks are resident at once, and may wait for one another (``grid.sync()``).
    ``programmatic``: it may begin before the launch before it has ended, if that one lets it.
    """

    grid: Dim3
    block: Dim3
    args: tuple[Any, ...] = ()
    shared: int = 0
    cluster: Dim3 | None = None
    cooperative: bool = False
    programmatic: bool = False

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def threads_per_block(self) -> int:
        return math.prod(self.block)

    def __str__(self) -> str:
        cluster = f", cluster {self.cluster}" if self.cluster else ""
        shared = f", {self.shared:,} dynamic shared bytes" if self.shared else ""
        cooperative = ", cooperative" if self.cooperative else ""
        programmatic = ", programmatic" if self.programmatic else ""
        return f"grid {self.grid} × block {self.block}{cluster}{shared}{cooperative}{programmatic}"


def dim3(argument: str, value: int | Sequence[int]) -> Dim3:
    """Return ``value`` (an integer or up to three) as x, y, z, the missing ones being 1."""
    parts: Sequence[Any]
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        parts = [value] if hasattr(value, "__index__") else list(_iterable(argument, value))
    else:
        parts = value
    if not 1 <= len(parts) <= 3:
        raise ArgumentError(argument, "must be one integer or a tuple of one to three", value)
    filled = [*parts, 1, 1][:3]
    x, y, z = (integer(f"{argument}[{'xyz'[i]}]", part, least=1) for i, part in enumerate(filled))
    return (x, y, z)


def _iterable(argument: str, value: Any) -> list[Any]:
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise ArgumentError(argument, "must be one integer or a tuple of one to three", value)
    return list(value)


_BUILTIN = {"f": "float", "d": "double", "i": "int", "j": "unsigned", "b": "bool", "l": "long", "m": "unsigned long",
            "x": "long long", "y": "unsigned long long", "s": "short", "t": "unsigned short", "c": "char",
            "h": "unsigned char"}  # fmt: skip


def readable(entry: str) -> str:
    """The C++ name of a kernel that a mangled one begins with: namespaces and simple template arguments.

    >>> readable("_Z5tiledILi32EfEvPf")
    'tiled<32, float>'
    """
    nested = entry.startswith("_ZN")
    rest = entry.removeprefix("_ZN" if nested else "_Z")
    names: list[str] = []
    while rest != entry and (match := re.match(r"\d+", rest)):
        end = match.end() + int(match[0])
        names.append(
            "(anonymous)" if rest[match.end() :].startswith("_GLOBAL__N_") else rest[match.end() : end]
        )
        rest = rest[end:]
        if rest.startswith("I"):
            arguments, rest = _template(rest[1:])
            names[-1] += f"<{arguments}>"
        if not nested:
            break
    return "::".join(names) or entry


def _template(text: str) -> tuple[str, str]:
    """Template arguments at the beginning of a mangled text, "…" from the first that is not simple, and the rest."""
    found = []
    while text and not text.startswith("E"):
        if match := re.match(r"L([a-z])(n?)(\d+)E", text):
            number = ("-" if match[2] else "") + match[3]
            found.append({"0": "false", "1": "true"}[number] if match[1] == "b" else number)
            text = text[match.end() :]
        elif match := re.match(r"\d+", text):
            end = match.end() + int(match[0])
            found.append(text[match.end() : end])
            text = text[end:]
        elif text[0] in _BUILTIN:
            found.append(_BUILTIN[text[0]])
            text = text[1:]
        else:
            return ", ".join([*found, "…"]), ""
    return ", ".join(found), text[1:]


def check_launch(launch: Launch, limits: LaunchLimits, static_shared: int = 0) -> None:
    """Refuse a launch that breaks a limit, naming the limit; run before anything reaches a device."""
    for argument, value, most in (("grid", launch.grid, _GRID_MOST), ("block", launch.block, _BLOCK_MOST)):
        for axis, size, bound in zip("xyz", value, most, strict=True):
            if size > bound:
                raise LaunchError(f"{argument}.{axis}", f"must be at most {bound:,} on {limits.name}", size)
    threads = launch.threads_per_block
    if threads > limits.threads_per_block:
        raise LaunchError(
            "block",
            f"must have at most {limits.threads_per_block:,} threads on {limits.name}",
            f"{' × '.join(map(str, launch.block))} = {threads:,}",
            "use smaller blocks and more of them",
        )
    shared = static_shared + launch.shared
    if shared > limits.shared_bytes_per_block:
        raise LaunchError(
            "shared",
            f"must leave a block within {limits.shared_bytes_per_block:,} bytes on {limits.name}",
            f"{static_shared:,} static + {launch.shared:,} dynamic = {shared:,}",
            "use a smaller tile or fewer stages",
        )
    if launch.cluster is not None:
        _check_cluster(launch.grid, launch.cluster, limits)


def check_block(block: Dim3, most: int | None, needed: Dim3 | None) -> None:
    """Refuse a block that the kernel itself was not compiled for."""
    if needed is not None and block != needed:
        raise LaunchError("block", f"must be {needed}: the kernel says so (.reqntid)", block)
    if most is not None and math.prod(block) > most:
        raise LaunchError(
            "block",
            f"must have at most {most:,} threads: the kernel says so (__launch_bounds__)",
            f"{' × '.join(map(str, block))} = {math.prod(block):,}",
        )


def check_registers(launch: Launch, registers: int, taken: int, left: int | None) -> None:
    """Refuse a block whose warpgroups would wait for ever, as the first to take registers finds too few.

    Threads begin with ``registers`` each. Warpgroups take so many by setmaxnreg, once the others have no more than are
    ``left`` (None: none leaves any).
    """
    threads = launch.threads_per_block
    begun = -(-registers // _REGISTERS_APART) * _REGISTERS_APART
    least = begun if left is None else min(begun, left)
    others = max(threads - _WARPGROUP, 0)
    if taken * min(threads, _WARPGROUP) + least * others > begun * threads:
        raise LaunchError(
            "block",
            f"must leave a warpgroup the {taken} registers a thread that setmaxnreg.inc takes, or it waits for ever",
            f"{threads:,} threads that begin with {begun} each, of which others keep {least}",
            "let more registers be had at the start (__launch_bounds__ with fewer blocks), or take fewer",
        )


def _check_cluster(grid: Dim3, cluster: Dim3, limits: LaunchLimits) -> None:
    if not limits.clusters:
        raise LaunchError(
            "cluster",
            f"must be None on {limits.name}",
            cluster,
            "clusters need compute capability 9.0 or newer",
        )
    blocks = math.prod(cluster)
    if blocks > limits.blocks_per_cluster:
        raise LaunchError(
            "cluster",
            f"must have at most {limits.blocks_per_cluster} blocks on {limits.name}",
            f"{cluster} = {blocks}",
        )
    for axis, size, part in zip("xyz", grid, cluster, strict=True):
        if size % part:
            raise LaunchError(f"grid.{axis}", f"must be a multiple of cluster.{axis} = {part}", size)
