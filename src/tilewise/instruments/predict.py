"""Predict which shared loads and stores the assembler merges, where there is no machine code.

Loads of 4 or 8 bytes in one basic block, at constant distances from one register that nothing changes in
between, become loads of 8 or 16 bytes where they are neighbours and every lane's address allows it; stores of 2
to 8 bytes become wider ones alike. What the assembler can prove of alignment is not known here: that every
address which was seen is aligned stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewise.emulator.operations.operands import writes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.profiling.counted import AccessCounts, Counts
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Address, Instruction, Label, Register
from tilewise.instruments.machine import Machine, MachineAccess, shared_figures
from tilewise.toolchain.lines import MachineInstruction

__all__ = ["predict", "predict_widths"]

# Bytes of types whose loads and stores the assembler merges, by their bits.
_SIZES = {"ld": {"32": 4, "64": 8}, "st": {"16": 2, "32": 4, "64": 8}}
_BRANCHES = ("bra", "brx", "ret", "exit", "call")
_MERGED = ("load", "store")
_OPS = {"load": "ld", "store": "st", "atomic": "atom", "copy": "ldgsts", "fill": "ldgsts"}


@dataclass(frozen=True, slots=True)
class _Item:
    """A load or store that may be merged with others of its group."""

    line: int
    offset: int
    size: int


_Group = tuple[str, str, int]  # "ld" or "st", the base register, bytes of a lane


def predict_widths(ptx: str, entry: str, aligned: Mapping[int, int]) -> dict[int, int]:
    """Map PTX lines to the bytes a lane of their merged load or store; 0 where another line's does the work.

    ``aligned`` tells of each line to how many bytes all addresses seen were aligned.
    """
    found: dict[int, int] = {}
    groups: dict[_Group, list[_Item]] = {}

    def finish(*names: _Group) -> None:
        for name in names:
            found.update(_merge_group(groups.pop(name), name[2], aligned))

    function = parse(ptx).function(entry)
    for item in function.body if function else ():
        if isinstance(item, Label) or _ends_groups(item) or _changes_shared(item):
            finish(*groups)
            continue
        access = _access(item)
        if access is not None:
            group, offset = access
            # Loads are not merged over a store, nor stores over anything else.
            finish(*(name for name in groups if name != group and "st" in (name[0], group[0])))
            groups.setdefault(group, []).append(_Item(item.line, offset, group[2]))
        elif _loads(item) and "global" not in item.parts and "param" not in item.parts:
            finish(*(name for name in groups if name[0] == "st"))
        for register in writes(item):
            finish(*(name for name in groups if name[1] == register))
    finish(*groups)
    return found


def _ends_groups(item: Instruction) -> bool:
    """Whether nothing is merged across an instruction: a branch, a barrier, a fence."""
    operation = operation_of(item)
    meets = operation.barrier is not None or operation.waits_for == "warp"
    return meets or operation.is_fence or item.opcode in _BRANCHES


def _loads(item: Instruction) -> bool:
    return any(access.action == "load" for access in operation_of(item).accesses)


def _changes_shared(item: Instruction) -> bool:
    """Whether an instruction may write shared memory in a way that loads are not merged across."""
    operation = operation_of(item)
    if operation.stores:
        return "global" not in item.parts and _access(item) is None
    return operation.changes


def _access(item: Instruction) -> tuple[_Group, int] | None:
    """Return group and offset of a load or store that may be merged; None for other instructions."""
    parts = item.parts
    if item.opcode not in _SIZES or item.guard is not None or "shared" not in parts:
        return None
    size = _SIZES[item.opcode].get(parts[-1][1:])
    if size is None or any(
        part in ("v2", "v4", "volatile", "relaxed", "acquire", "release") for part in parts
    ):
        return None
    at = 1 if item.opcode == "ld" else 0
    place = item.operands[at] if len(item.operands) > at else None
    if not isinstance(place, Address) or not isinstance(place.base, Register):
        return None
    return (item.opcode, place.base.name, size), place.offset


def _merge_group(items: list[_Item], size: int, aligned: Mapping[int, int]) -> dict[int, int]:
    by_offset = {item.offset: item for item in items}
    done: dict[int, int] = {}
    used: set[int] = set()
    for wide in (16, 8, 4):
        for offset in sorted(by_offset) if wide > size else ():
            wanted = range(offset, offset + wide, size)
            fits = aligned.get(by_offset[offset].line, 1) >= wide
            if fits and all(o in by_offset and o not in used for o in wanted):
                used.update(wanted)
                done[by_offset[offset].line] = wide
                done |= {by_offset[o].line: 0 for o in wanted if o != offset}
    return done


def predict(ptx: str, entry: str, counts: Counts) -> Machine:
    """Predict the machine code's accesses of a launch."""
    places = counts.places()
    widths = predict_widths(
        ptx, entry, {place.line: _alignment(place) for place in places if place.action in _MERGED}
    )
    machine = Machine("predicted")
    if widths:
        machine.notes.append(
            "no machine code here: which shared loads and stores the assembler merges is predicted"
        )
    else:
        machine.notes.append("no machine code here: accesses are as the PTX has them")
    for place in places:
        width = widths.get(place.line, place.size) if place.action in _MERGED else place.size
        if not width:
            continue
        op = _OPS[place.action]
        if place.name.startswith(("ldmatrix", "stmatrix")):
            op = "ldsm" if place.name.startswith("ld") else "stsm"
        elif place.name.startswith("red"):
            op = "red"
        item = MachineInstruction(0, place.name, ptx=place.line)
        waves, phases, ideals = shared_figures(
            place, min(width, 16), "cg" in place.name.split("."), place.fills
        )
        nothing = place.sectors * 0.0
        if place.shared.any() or place.space == "shared":
            machine.accesses.append(
                MachineAccess(item, op, "shared", 8 * width, place.shared * 1.0, waves * 1.0,
                       phases * 1.0, ideals * 1.0, nothing, nothing, place.threads * width * 1.0,
                       True, None, None, place.distinct * width * 1.0)
            )  # fmt: skip
        if place.outside.any() or place.space == "global":
            asked = place.asked if place.action == "atomic" else place.sectors
            machine.accesses.append(
                MachineAccess(
                    item,
                    op,
                    "global",
                    8 * width,
                    place.outside * 1.0,
                    nothing,
                    nothing,
                    nothing,
                    asked * 1.0,
                    place.least * 1.0,
                    place.threads * width * 1.0,
                    True,
                    place.sectors * 1.0,
                    place.lines * 1.0,
                    place.distinct * width * 1.0,
                )
            )
    return machine


def _alignment(place: AccessCounts) -> int:
    """Return the bytes, 16 at most, to which all seen addresses were aligned."""
    if place.seen is None:
        return place.size
    found = 16
    for address in place.seen:
        while address is not None and found > place.size and address % found:
            found //= 2
    return found
