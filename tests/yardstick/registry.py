"""The tables from instruction name to the function that binds one instruction to a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import Unsupported
from .ptx_types import Type, is_type, type_of
from .syntax import Instruction, Operand

if TYPE_CHECKING:
    from .machine import Machine

# What a thread is doing.
RUNNING, AT_BARRIER, GATHERING, EXITED = 0, 1, 2, 3

# A group of threads: slice(None) when it is the whole block, else an index array.
Threads = Any
Operation = Callable[[Threads], None]
Control = Callable[[Threads, int], "int | None"]

OPERATIONS: dict[str, Callable[[Machine, Instruction], Operation]] = {}
CONTROLS: dict[str, Callable[[Machine, Instruction], Control]] = {}


def operation(
    *names: str,
) -> Callable[[Callable[[Machine, Instruction], Operation]], Callable[[Machine, Instruction], Operation]]:
    """Register a binder whose result runs for a group and falls through to the next instruction."""

    def register(
        bind: Callable[[Machine, Instruction], Operation],
    ) -> Callable[[Machine, Instruction], Operation]:
        for name in names:
            OPERATIONS[name] = bind
        return bind

    return register


def control(
    *names: str,
) -> Callable[[Callable[[Machine, Instruction], Control]], Callable[[Machine, Instruction], Control]]:
    """Register a binder whose result returns where the whole group goes next.

    None means that the group parted or has to wait: then it has set ``machine.pc`` and ``machine.status``.
    """

    def register(
        bind: Callable[[Machine, Instruction], Control],
    ) -> Callable[[Machine, Instruction], Control]:
        for name in names:
            CONTROLS[name] = bind
        return bind

    return register


def types_in(inst: Instruction) -> list[Type]:
    """The types among an instruction's modifiers, in order."""
    return [type_of(m) for m in inst.modifiers if is_type(m)]


def last_type(inst: Instruction) -> Type:
    """The type an instruction ends with."""
    found = types_in(inst)
    if not found:
        raise Unsupported("no type")
    return found[-1]


def allow(inst: Instruction, *known: str) -> None:
    """Raise Unsupported if a modifier is neither a type nor among ``known``."""
    for modifier in inst.modifiers:
        if not is_type(modifier) and modifier not in known:
            raise Unsupported(f"modifier .{modifier}")


def expect(operands: list[Operand], low: int, high: int | None = None) -> None:
    """Raise Unsupported unless the number of operands is as told."""
    if not low <= len(operands) <= (low if high is None else high):
        raise Unsupported(f"{len(operands)} operands")


def distinct(values: Any) -> list[Any]:
    """The different values of an array, ascending."""
    found: list[Any] = np.unique(values).tolist()
    return found
