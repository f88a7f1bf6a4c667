"""All rows, by name, and the way from an instruction to its row.

Rows are entered where the lowerings stand, in ``families/``, when those modules are imported.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from tilewise.emulator.operations.operation import Operation
from tilewise.emulator.ptx.syntax import Instruction

__all__ = ["enter", "operation_of", "operations"]

_ROWS: dict[str, Operation] = {}
_UNKNOWN = Operation(name="")


def enter(*names: str, **facts: Any) -> None:
    """Enter rows, or add to them."""
    for name in names:
        known = _ROWS.get(name)
        _ROWS[name] = replace(known, **facts) if known else Operation(name=name, **facts)
    _find.cache_clear()


def operation_of(instruction: Instruction) -> Operation:
    """Return the row of the longest name that leads an instruction's own; one without a name if none does."""
    found: Operation | None = instruction.operation  # this is called for every instruction, over and over
    if found is None:
        found = instruction.operation = _find(instruction.opcode, instruction.parts)
    return found


@functools.cache
def _find(opcode: str, parts: tuple[str, ...]) -> Operation:
    names = (".".join((opcode, *parts[:count])) for count in range(len(parts), -1, -1))
    return next((_ROWS[name] for name in names if name in _ROWS), _UNKNOWN)


def operations() -> dict[str, Operation]:
    """Return all rows by name."""
    return dict(_ROWS)
