"""The yardstick: a small PTX interpreter in NumPy, made to be obviously right rather than fast.

Tests use it to run real kernels with no GPU, and to judge the product's compiler. Product code never
imports it. One block runs at a time; each PTX register is an array over the block's threads; each thread
has its own pc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import (
    async_ops,
    barriers,
    compare,
    control,
    convert,
    floats,
    integers,
    matrix_ops,
    memory_ops,
    warp_ops,
)
from .errors import Deadlock, Fault, LimitReached, SyntaxFault, Unsupported, YardstickError
from .link import Linker, aligned
from .machine import Counts, Machine, Options
from .memory import Memory, Pointer
from .parse import parse
from .ptx_types import type_of
from .syntax import Variable

__all__ = [
    "Counts",
    "Deadlock",
    "Fault",
    "LimitReached",
    "Memory",
    "Pointer",
    "SyntaxFault",
    "Unsupported",
    "YardstickError",
    "run",
]

# Importing these modules fills the instruction tables.
FAMILIES = (
    async_ops,
    barriers,
    compare,
    control,
    convert,
    floats,
    integers,
    matrix_ops,
    memory_ops,
    warp_ops,
)


def three(size: int | Sequence[int], name: str) -> tuple[int, int, int]:
    """A grid or block size as three numbers."""
    sizes = [int(size)] if isinstance(size, (int, np.integer)) else [int(x) for x in size]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise ValueError(f"{name}={size!r}: one to three positive numbers")
    x, y, z = [*sizes, 1, 1][:3]
    return x, y, z


def argument_bytes(value: Any, parameter: Variable, memory: Memory) -> bytes:
    """One kernel argument as the bytes of its parameter."""
    size = parameter.size
    if isinstance(value, (bytes, bytearray, np.void)):
        raw = bytes(value) if not isinstance(value, np.void) else value.tobytes()
    elif isinstance(value, Pointer):
        raw = (memory.alloc(value.array) + value.offset_bytes).to_bytes(8, "little")
    elif isinstance(value, np.ndarray):
        raw = memory.alloc(value).to_bytes(8, "little")
    else:
        kind = type_of(parameter.type)
        if kind.family == "b" and isinstance(value, np.generic) and value.itemsize == size:
            raw = value.tobytes()
        elif kind.family == "b" and isinstance(value, float):
            raw = np.array([value], f"f{size}").tobytes()
        elif kind.family == "f":
            raw = np.array([value]).astype(kind.dtype).tobytes()
        else:
            raw = (int(value) & ((1 << kind.total) - 1)).to_bytes(size, "little")
    if len(raw) != size:
        raise ValueError(f"argument for {parameter.name}: {len(raw)} bytes, the parameter has {size}")
    return raw


def run(
    ptx: str,
    entry: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    *,
    shared: int = 0,
    schedule: str = "lowest",
    seed: int = 0,
    asynchronous: str = "late",
    limit: int = 1_000_000_000,
    blocks: str = "in-order",
    poison: int = 0xCD,
    memory: Memory | None = None,
) -> Counts:
    """Run one launch of ``entry`` and change its array arguments in place.

    An argument is a NumPy array (a pointer to it), a :class:`Pointer`, a scalar (typed by the kernel's own
    parameter), or bytes (a struct).

    ``schedule``: "lowest" (all threads at the lowest pc together), "thread" (one thread until it blocks) or
    "random". ``asynchronous``: "late" or "eager" cp.async. ``blocks``: "in-order", "reversed" or "random".
    ``limit``: instructions over all threads. ``poison``: the byte that fills registers and memory at first.
    """
    options = Options(schedule, seed, asynchronous, limit, blocks, poison)
    memory = Memory() if memory is None else memory
    registered = len(memory.allocations)
    try:
        linker = Linker(parse(ptx), entry, memory, shared)
        parameters = linker.entry.function.parameters
        if len(args) != len(parameters):
            raise ValueError(f"args: {entry} has {len(parameters)} parameters, not {len(args)}")
        image = bytearray(aligned(linker.parameter_size, 8))
        for value, parameter in zip(args, parameters, strict=True):
            at = linker.parameters[parameter.name]
            image[at : at + parameter.size] = argument_bytes(value, parameter, memory)
        memory.begin()
        machine = Machine(linker, memory, three(grid, "grid"), three(block, "block"), bytes(image), options)
        try:
            return machine.run()
        finally:
            memory.finish()
    finally:
        memory.forget(registered)
