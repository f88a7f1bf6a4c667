"""Cut long straight code into pieces, each of which becomes a function of its own.

LLVM's time for a function grows faster than its length: with the uses of one register, with the values that
live at once, with the checks on one index. A block of thousands of instructions is therefore cut. Registers
that a piece shares with what comes before or behind it have a home in one frame of memory; the others live
within their piece.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tilewise.emulator.analysis.control_flow import Block
from tilewise.emulator.analysis.program import Program, register_bytes
from tilewise.emulator.analysis.shapes import Analysis
from tilewise.emulator.operations.operands import reads, writes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Instruction

__all__ = ["Cut", "Piece", "cut"]

_LONG = 1_000  # instructions of a block that is cut
_MOST = 192  # instructions of a piece
_FEWEST = 24  # that are worth a call
_MOST_FRAME_BYTES = 1 << 19  # a thread's stack has to have room for the frame
_ROW = 24  # instructions of one kind that are worth a table

Needed = Callable[[Block, int], set[str]]  # the registers to keep before an instruction of a block


@dataclass(frozen=True, slots=True)
class Piece:
    """Instructions of a block, from ``start`` up to ``end``; in a ``row`` all do the same."""

    start: int
    end: int
    row: bool = False


@dataclass(slots=True)
class Cut:
    """The pieces of each block that is cut, and where in the frame registers lie between pieces."""

    pieces: dict[int, list[Piece]] = field(default_factory=dict)
    homes: dict[str, int] = field(default_factory=dict)
    bytes: int = 0

    def reserve(self, size: int) -> int:
        """Reserve bytes of the frame; returns their offset."""
        self.bytes += size
        return self.bytes - size


def cut(
    program: Program, analysis: Analysis, needed: Needed, alike: Callable[[Block, Instruction], object]
) -> Cut:
    """Cut every long block. ``alike`` has one answer, and not None, for instructions that may be in a row with one
    another. Nothing is cut where the frame would be too large."""
    result, types = Cut(), program.function.registers
    for block in program.flow.blocks:
        if len(block.instructions) >= _LONG:
            result.pieces[block.index] = list(_pieces(block, alike))
    spread: set[str] = set()
    for index, pieces in result.pieces.items():
        block = program.flow.blocks[index]
        shared = set().union(*(_shared(program, block, piece, needed) for piece in pieces)) - program.resident
        spread |= shared - analysis.local
        _place(result, block, shared & analysis.local, types)
    for name in sorted(spread):
        result.homes[name] = result.reserve(register_bytes(types[name]))
    return result if result.bytes <= _MOST_FRAME_BYTES else Cut()


def _pieces(block: Block, alike: Callable[[Block, Instruction], object]) -> Iterator[Piece]:
    """Yield a block's pieces: each row whole, and between rows the instructions that may be in a piece."""
    start = end = 0
    for kind, group in itertools.groupby([alike(block, item) for item in block.instructions]):
        at, end = end, end + len(list(group))
        if kind is not None and end - at >= _ROW:
            yield from _plain(start, at)
            yield Piece(at, end, row=True)
            start = end
            continue
        for position in range(at, end):
            operation = operation_of(block.instructions[position])
            # Any other instruction may suspend the warp, or counts turns of loops.
            if not operation.is_pure and operation.plain_access is None:
                yield from _plain(start, position)
                start = position + 1
    yield from _plain(start, len(block.instructions))


def _plain(start: int, end: int) -> Iterator[Piece]:
    for at in range(start, end, _MOST):
        if min(end - at, _MOST) >= _FEWEST:
            yield Piece(at, min(at + _MOST, end))


def _shared(program: Program, block: Block, piece: Piece, needed: Needed) -> set[str]:
    """Return the registers of a piece that other code reads too, or that a warp keeps if it leaves the piece early."""
    inside = block.instructions[piece.start : piece.end]
    used = {name for item in inside for name in (*reads(item), *writes(item))}
    used &= program.function.registers.keys()
    if piece.row:
        return used
    found = used & (needed(block, piece.start) | needed(block, piece.end))
    for position, item in enumerate(inside, piece.start):
        if id(item) in program.deopts:
            found |= needed(block, position)
    return found


def _place(result: Cut, block: Block, names: set[str], types: Mapping[str, str]) -> None:
    """Give registers that one block uses places in the frame; registers that do not live at once may share one."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    end = block.terminator
    for position, item in enumerate(block.all_instructions):
        for name in (*reads(item), *writes(item)):
            if name in names:
                first.setdefault(name, position)
                last[name] = position
    if end.condition is not None:
        last[end.condition.name] = len(block.instructions)
    free: dict[int, list[int]] = {}  # homes by size
    busy: list[tuple[int, int, int]] = []  # last use, size, home
    for name, position in first.items():
        while busy and busy[0][0] < position:
            _, size, home = heapq.heappop(busy)
            free[size].append(home)
        size = register_bytes(types[name])
        homes = free.setdefault(size, [])
        result.homes[name] = homes.pop() if homes else result.reserve(size)
        heapq.heappush(busy, (last[name], size, result.homes[name]))
