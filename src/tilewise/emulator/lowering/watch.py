"""Watchers: what a build may do beside running a kernel, such as count or check its accesses.

The *plain* build of a lowering only runs. The others (``MODES``: counted, traced, recorded, checked) have a
watcher, which is called while code is made: at every block, before and after every instruction, where warps
wait. It emits code of its own there. What that code writes down lies in memory that belongs to the launch
(``LAUNCH.WATCH``) or to one of its workers (``WORKER_WATCH`` in the worker's memory, so that no two threads
write there); what it means is in the build's ``notes``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.emulator.layout import Space
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.memory import MemoryAccess, access_of, every_address, take_address
from tilewise.emulator.operations.operation import Access
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.modifiers import elements_of
from tilewise.emulator.ptx.syntax import Address, Instruction, Operand, PtxError
from tilewise.emulator.ptx.types import TYPE_BYTES

__all__ = ["MODES", "WORKER_WATCH", "Memories", "Touch", "access_at", "named_space", "touches"]

MODES = {
    "counted": "tilewise.emulator.profiling.counting:Counting",
    "checked": "tilewise.emulator.checking.watcher:Checker",
    "traced": "tilewise.emulator.profiling.tracing:Tracing",
    "recorded": "tilewise.emulator.profiling.recording:RecordingWatcher",
}
_WATCHED = (Space.GENERIC, Space.GLOBAL, Space.SHARED)  # whose accesses watchers look at
_NAMED = {"": Space.GENERIC, "global": Space.GLOBAL, "shared": Space.SHARED}
WORKER_WATCH = 24  # in a worker's memory: pointer to what its code writes down


class Memories:
    """Gives compiled code of a watched launch the memory that it logs to: none, unless a subclass has some."""

    launch = 0  # the address of the memory that all workers share

    @property
    def is_full(self) -> bool:
        """Whether the memory is full, so that the launch may end."""
        return False

    def worker(self) -> int:
        """Return the address of another worker's own memory."""
        return 0


@dataclass(frozen=True, slots=True)
class Touch:
    """The memory that an instruction accesses: ``size`` bytes at one address, for every running lane."""

    action: str  # "load", "store", "atomic", "copy" (the reading half of cp.async), "fill" (its writing half)
    access: MemoryAccess
    addresses: Value  # of all lanes, as 64-bit numbers within the space
    rows: int  # how many lanes name rows of matrices that the warp moves together; 0 if it is no such access


def touches(e: Context, instruction: Instruction) -> list[Touch]:
    """Return an instruction's memory accesses, with the current values of its operands.

    Instructions whose accesses are not of this kind (whole tiles, operations of other units) give none, and neither
    do those to memory that is a thread's own or only read.
    """
    found = [_touch(e, instruction, access) for access in operation_of(instruction).accesses]
    return [touch for touch in found if touch.access.space in _WATCHED]


def _touch(e: Context, instruction: Instruction, access: Access) -> Touch:
    operand = instruction.operands[access.operand]
    rows = 0
    if access.rows:  # of 16 bytes, for each lane that names one: eight of a matrix
        rows = 8 * next((int(part[1:]) for part in instruction.parts if part in ("x1", "x2")), 4)
        found = access_at(e, instruction, operand, named_space(instruction), 16)
    elif access.size is not None:
        found = access_at(e, instruction, operand, _NAMED[access.space], access.size(instruction))
    elif access.action == "atomic":
        space = Space.GLOBAL if "global" in instruction.parts else named_space(instruction)
        type_ = instruction.parts[-1] if instruction.parts[-1] in TYPE_BYTES else "b32"
        found = access_at(e, instruction, operand, space, elements_of(instruction))._replace(type=type_)
    else:
        found = access_of(e, instruction, operand)
    return Touch(access.action, found, every_address(e, found), rows)


def access_at(
    e: Context, instruction: Instruction, operand: Operand, space: Space, size: int
) -> MemoryAccess:
    """Return the access of ``size`` bytes a lane at the address that an operand names."""
    if not isinstance(operand, Address):
        raise PtxError(instruction.line, f"{instruction.name}: an address in brackets expected")
    base, lanes = take_address(e, operand)
    return MemoryAccess(space, "b8", size, lanes, base, False, instruction.line)


def named_space(instruction: Instruction) -> Space:
    """Return the space of an instruction's address: shared memory if it says so, else any."""
    return Space.SHARED if any(part.startswith("shared") for part in instruction.parts) else Space.GENERIC
