"""Which registers hold a value that may still be read, at the places where a warp may stop."""

from __future__ import annotations

from tilewise.emulator.analysis.flow import EXIT, Block, Flow
from tilewise.emulator.ptx.operands import reads, writes
from tilewise.emulator.ptx.syntax import Instruction

__all__ = ["Liveness"]


class Liveness:
    """Live registers at block entries, and before any one instruction."""

    def __init__(self, flow: Flow, registers: dict[str, str]) -> None:
        self.flow, self.registers = flow, registers
        self.entry: list[frozenset[str]] = [frozenset()] * len(flow.blocks)
        changed = True
        while changed:
            changed = False
            for block in reversed(flow.blocks):
                live = frozenset(self._through(block, self.at_end(block), 0))
                if live != self.entry[block.index]:
                    self.entry[block.index] = live
                    changed = True

    def at_end(self, block: Block) -> set[str]:
        """Registers live after a block's own instructions and its terminator."""
        live: set[str] = set()
        for target in block.terminator.targets:
            if target != EXIT:
                live |= self.entry[target]
        return live

    def before(self, block: Block, position: int) -> set[str]:
        """Registers live before instruction ``position`` of a block."""
        return self._through(block, self.at_end(block), position)

    def _through(self, block: Block, live: set[str], position: int) -> set[str]:
        terminator = block.terminator
        found = set(live)
        if terminator.instruction is not None:
            self._step(terminator.instruction, found)
        if terminator.condition is not None:
            found.add(terminator.condition.name)
        for instruction in reversed(block.instructions[position:]):
            self._step(instruction, found)
        return found & self.registers.keys()

    def _step(self, instruction: Instruction, live: set[str]) -> None:
        if instruction.guard is None:
            live.difference_update(register.name for register in writes(instruction))
        live.update(register.name for register in reads(instruction))
