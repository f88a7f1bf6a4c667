"""Liveness: which registers hold a value that may still be read, wherever a warp may stop."""

from __future__ import annotations

from tilewise.emulator.analysis.control_flow import EXIT, Block, Flow
from tilewise.emulator.operations.operands import reads, writes
from tilewise.emulator.ptx.syntax import Instruction

__all__ = ["Liveness", "summarise"]

_APART = 32  # instructions from one noted set of live registers to the next


class Liveness:
    """Live registers at block entries, and before any one instruction."""

    def __init__(self, flow: Flow, registers: dict[str, str]) -> None:
        self.flow, self.registers = flow, registers
        self.entry: list[frozenset[str]] = [frozenset()] * len(flow.blocks)
        self._noted: dict[int, dict[int, frozenset[str]]] = {}  # block → position → what is live before it
        read, written = [], []
        for block in flow.blocks:
            first, over = summarise(block)
            read.append(first & registers.keys())
            written.append(over)
        changed = True
        while changed:
            changed = False
            for block in reversed(flow.blocks):
                i = block.index
                live = frozenset(read[i] | (self.at_end(block) - written[i]))
                if live != self.entry[i]:
                    self.entry[i] = live
                    changed = True

    def at_end(self, block: Block) -> set[str]:
        """Registers live after a block's own instructions and its terminator."""
        return set().union(*(self.entry[target] for target in block.terminator.targets if target != EXIT))

    def before(self, block: Block, position: int) -> set[str]:
        """Registers live before instruction ``position`` of a block.

        NOTE: a block of thousands of instructions may be asked about at each of them; from the block's end
        on every time, that takes a time that grows with the square of its length.
        """
        noted = self._noted.get(block.index)
        if noted is None:
            noted = self._noted[block.index] = self._note(block)
        end = min(-(-position // _APART) * _APART, len(block.instructions))
        live = set(noted[end])
        for instruction in reversed(block.instructions[position:end]):
            _step(instruction, live)
        return live & self.registers.keys()

    def _note(self, block: Block) -> dict[int, frozenset[str]]:
        """What is live before every so many instructions of a block, and behind the last."""
        live = self.at_end(block)
        _end(block, live)
        noted = {len(block.instructions): frozenset(live)}
        for position in range(len(block.instructions) - 1, -1, -1):
            _step(block.instructions[position], live)
            if position % _APART == 0:
                noted[position] = frozenset(live)
        return noted


def summarise(block: Block) -> tuple[set[str], set[str]]:
    """The registers that a block may read before it writes them, and those that it surely writes."""
    read: set[str] = set()
    written: set[str] = set()
    _end(block, read, written)
    for instruction in reversed(block.instructions):
        _step(instruction, read, written)
    return read, written


def _end(block: Block, live: set[str], written: set[str] | None = None) -> None:
    """Go back from behind a block's terminator to before it."""
    terminator = block.terminator
    if terminator.instruction is not None:
        _step(terminator.instruction, live, written)
    if terminator.condition is not None:
        live.add(terminator.condition.name)


def _step(instruction: Instruction, live: set[str], written: set[str] | None = None) -> None:
    """Go back from behind an instruction to before it."""
    if instruction.guard is None:
        names = writes(instruction)
        live.difference_update(names)
        if written is not None:
            written.update(names)
    live.update(reads(instruction))
