"""Groups of accesses to shared memory that one bounds check covers.

Within a block that all lanes run together, accesses at known distances from one register are within
bounds together: if the lowest and the highest byte of all of them are, all are. The first access checks
for all; where the check fails, the warp goes on in the general build, which checks each for itself and
finds the fault, if it is one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.emulator.analysis.control_flow import Block, Flow
from tilewise.emulator.analysis.shapes import UNIFORM, Analysis
from tilewise.emulator.operations.operands import writes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.modifiers import elements_of, space_of
from tilewise.emulator.ptx.syntax import Address, Instruction, Register
from tilewise.emulator.ptx.types import TYPE_BYTES

__all__ = ["Group", "find_groups"]

_FEWEST = 2  # accesses that make a group worth while


@dataclass(slots=True)
class Group:
    """Accesses relative to one register's ``u``: they touch bytes from ``low`` up to ``high``."""

    base: Register
    low: int
    high: int
    align: int
    anchor: int  # an offset that must be a multiple of ``align`` once u is added
    members: list[Instruction]


def find_groups(flow: Flow, analysis: Analysis) -> tuple[dict[int, Group], set[int]]:
    """Return the groups by the id of their first instruction, and the ids of all instructions in groups."""
    leaders: dict[int, Group] = {}
    covered: set[int] = set()
    for block in flow.blocks:
        if block.index in analysis.divergent:
            continue
        for group in _in_block(block, analysis):
            if len(group.members) >= _FEWEST:
                leaders[id(group.members[0])] = group
                covered |= {id(member) for member in group.members}
    return leaders, covered


def _in_block(block: Block, analysis: Analysis) -> list[Group]:
    done: list[Group] = []
    current: dict[str, list[Group]] = {}
    for instruction in block.instructions:
        alone = _group_of_one(instruction, analysis)
        if alone is not None:
            groups = current.setdefault(alone.base.name, [])
            for group in groups:
                # They are aligned for the same values of u.
                if (alone.low - group.anchor) % min(alone.align, group.align) == 0:
                    _join(group, alone)
                    break
            else:
                groups.append(alone)
                done.append(alone)
        for name in writes(instruction):
            current.pop(name, None)
    return done


def _group_of_one(instruction: Instruction, analysis: Analysis) -> Group | None:
    """Return an access that may be in a group with others; None for any other instruction."""
    access = operation_of(instruction).plain_access
    if access is None or instruction.guard is not None or len(instruction.operands) != 2:
        return None  # refused later, where it is lowered
    if space_of(instruction) != "shared" or "shared::cluster" in instruction.parts:
        return None
    place = instruction.operands[access.operand]
    if not isinstance(place, Address) or not isinstance(place.base, Register):
        return None
    type_ = instruction.parts[-1]
    shape = analysis.shapes.get(place.base.name, UNIFORM)
    if shape is None or type_ not in TYPE_BYTES or place.base.name.startswith("%tid"):
        return None
    size = TYPE_BYTES[type_] * elements_of(instruction)
    low = place.offset + min(shape.lanes)
    if any((lane - min(shape.lanes)) % size for lane in shape.lanes):
        return None
    return Group(place.base, low, place.offset + max(shape.lanes) + size, size, low, [instruction])


def _join(group: Group, other: Group) -> None:
    if other.align > group.align:
        group.align, group.anchor = other.align, other.anchor
    group.low, group.high = min(group.low, other.low), max(group.high, other.high)
    group.members += other.members
