"""Copies of tensors: ``cp.async.bulk.tensor``, ``cp.reduce.async.bulk.tensor`` and prefetches of them.

How one is performed is in ``support/tensor.py``; here its operands are taken apart.
"""

from __future__ import annotations

from tilewise.emulator.families.bulk import BARRIER, COPY, GROUP, PREFETCH, Columns, refuse_others, spaces_of
from tilewise.emulator.layout import Flight, FlightClass
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.tables import check_operand_count, effect, unsupported
from tilewise.emulator.ptx.syntax import Address, Instruction, Operand, Vector, items_of
from tilewise.emulator.support.bulk_requests import NONE, REQUEST, Verb
from tilewise.emulator.support.reduction import OPERATIONS

__all__ = ["put_tensor_prefetch"]

_DIMENSIONS = {f"{rank}d": rank for rank in range(1, 6)}
_LOADS = {"tile": False, "im2col": True}
_STORES = {"tile": False, "im2col_no_offs": True}
_NEWER = {"tile::gather4", "tile::scatter4", "im2col::w", "im2col::w::128", "cta_group::1", "cta_group::2"}


@effect("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", **COPY)
def copy(e: Context, instruction: Instruction) -> None:
    rank = _rank(instruction)
    if BARRIER in instruction.parts and instruction.parts[0] != "reduce":
        _load(e, instruction, rank)
    else:
        _store(e, instruction, rank)


def _rank(instruction: Instruction) -> int:
    for part in instruction.parts:
        if part in _NEWER:
            raise unsupported(instruction, f".{part} is for newer GPUs than the emulator's sm_90")
    ranks = [part for part in instruction.parts if part in _DIMENSIONS]
    if len(ranks) != 1:
        raise unsupported(instruction, "it says how many dimensions, .1d to .5d")
    return _DIMENSIONS[ranks[0]]


def _mode(instruction: Instruction, rank: int, modes: dict[str, bool]) -> tuple[bool, set[str]]:
    """Whether it is an im2col copy, and the words that a copy may have."""
    named = [part for part in instruction.parts if part in modes]
    im2col = bool(named) and modes[named[0]]
    if len(named) > 1 or (im2col and rank < 3):
        raise unsupported(instruction, "one mode, of which im2col needs 3 dimensions or more")
    return im2col, {"async", "bulk", "tensor", f"{rank}d", "L2::cache_hint", *named}


def _load(e: Context, instruction: Instruction, rank: int) -> None:
    im2col, allowed = _mode(instruction, rank, _LOADS)
    target, source = spaces_of(instruction)
    if source != "global" or target == "global":
        raise unsupported(instruction, f"there is no copy from {source} to {target} that tells an mbarrier")
    several = "multicast::cluster" in instruction.parts
    if target == "shared::cluster":
        allowed |= {"multicast::cluster"}
    refuse_others(instruction, allowed | {target, source, BARRIER})
    check_operand_count(instruction, 3 + im2col + several + ("L2::cache_hint" in instruction.parts))
    operands = list(instruction.operands)
    columns = Columns(e, instruction)
    columns.address(REQUEST.SHARED, operands.pop(0), "shared")
    _tensor_operand(columns, operands.pop(0), rank)
    columns.address(REQUEST.MBARRIER, operands.pop(0), "shared")
    _offsets(columns, operands.pop(0) if im2col else None, rank)
    columns.put(REQUEST.IM2COL, int(im2col))
    columns.put(REQUEST.BLOCKS, NONE)
    if several:
        columns.number(REQUEST.BLOCKS, operands.pop(0), "u16")
    columns.issue(Flight.TENSOR, FlightClass.MBARRIER, Verb.LOAD)


def _store(e: Context, instruction: Instruction, rank: int) -> None:
    parts, reduces = instruction.parts, instruction.parts[0] == "reduce"
    im2col, allowed = _mode(instruction, rank, _STORES)
    if spaces_of(instruction) != ("global", "shared::cta") or GROUP not in parts:
        raise unsupported(instruction, f"it is from .shared::cta to .global, told by .{GROUP}")
    operations = [part for part in parts if part in OPERATIONS]
    if len(operations) != reduces:
        raise unsupported(instruction, "a reduction, and nothing else, names one operation")
    refuse_others(
        instruction,
        allowed | {"global", "shared::cta", GROUP, *operations} | ({"reduce"} if reduces else set()),
    )
    check_operand_count(instruction, 2 + ("L2::cache_hint" in parts))
    columns = Columns(e, instruction)
    _tensor_operand(columns, instruction.operands[0], rank)
    columns.address(REQUEST.SHARED, instruction.operands[1], "shared")
    _offsets(columns, None, rank)
    columns.put(REQUEST.IM2COL, int(im2col))
    columns.put(REQUEST.REDUCTION, OPERATIONS.index(operations[0]) if reduces else NONE)
    columns.issue(Flight.TENSOR, FlightClass.BULKS, Verb.REDUCE if reduces else Verb.STORE)


def _tensor_operand(columns: Columns, operand: Operand, rank: int) -> None:
    """``[map, {coordinates}]``."""
    place, coordinates = _parted(columns.instruction, operand, rank)
    columns.address(REQUEST.GLOBAL, place, "generic")
    columns.put(REQUEST.SIZE, rank)
    for i, item in enumerate(coordinates):
        columns.number(REQUEST.COORDINATES + 8 * i, item, "s32")


def _parted(instruction: Instruction, operand: Operand, rank: int) -> tuple[Operand, tuple[Operand, ...]]:
    match operand:
        case Vector(items=(Address() as place, Vector(items=coordinates))) if len(coordinates) == rank:
            return place, coordinates
    raise unsupported(instruction, f"a tensor map with {rank} coordinates in brackets expected")


def _offsets(columns: Columns, operand: Operand | None, rank: int) -> None:
    """Where an im2col copy begins, from the filter's corner: along W, H and D."""
    items: tuple[Operand, ...] = ()
    if operand is not None:
        items = items_of(operand)
        if len(items) != rank - 2:
            raise unsupported(columns.instruction, f"it takes {rank - 2} im2col offsets")
    for i in range(3):
        if i < len(items):
            columns.number(REQUEST.OFFSETS + 8 * i, items[i], "u16")
        else:
            columns.put(REQUEST.OFFSETS + 8 * i, 0)


def put_tensor_prefetch(columns: Columns, instruction: Instruction) -> None:
    """Put the operands of a prefetch."""
    rank = next(_DIMENSIONS[part] for part in instruction.parts if part in _DIMENSIONS)
    im2col, _ = _mode(instruction, rank, _LOADS)
    _tensor_operand(columns, instruction.operands[0], rank)
    _offsets(columns, instruction.operands[1] if im2col else None, rank)
    columns.put(REQUEST.IM2COL, int(im2col))
    columns.put(REQUEST.SHARED, 0)


@effect("cp.async.bulk.prefetch.tensor", **PREFETCH)
def prefetch(e: Context, instruction: Instruction) -> None:
    """A hint to a cache, of which there is none."""
    rank = _rank(instruction)
    im2col, allowed = _mode(instruction, rank, _LOADS)
    refuse_others(instruction, allowed | {"prefetch", "L2", "global"})
    check_operand_count(instruction, 1 + im2col + ("L2::cache_hint" in instruction.parts))
    _parted(instruction, instruction.operands[0], rank)
