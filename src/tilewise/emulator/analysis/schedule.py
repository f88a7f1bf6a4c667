"""Reorder a block's instructions so that multiply-adds on one sum stand together.

A register-tiled kernel multiplies a column of A by a row of B for each k, and goes through all its sums
each time. A GPU thread holds them in registers; a CPU core has room for 32 vectors, so every sum would go
to memory and back for every k. Ordered by sum, each is fetched once and gets all its multiply-adds. Only
instructions without side effects change places, and none passes one that it depends on.
"""

from __future__ import annotations

from tilewise.emulator.analysis.control_flow import Flow
from tilewise.emulator.operations.operands import reads, writes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Instruction, Register

__all__ = ["schedule"]

_FEWEST = 16  # multiply-adds of a segment that make it worth while
# Beside loads and multiply-adds, what changes places with others: what addresses and indices are computed by.
_FREE = {
    "moved", "sum", "difference", "product", "product and sum",
    "shifted left", "shifted right", "and", "or", "xor", "converted",
    "selected",
}  # fmt: skip


def schedule(flow: Flow) -> None:
    """Reorder the multiply-adds of every block, in place."""
    for block in flow.blocks:
        ordered: list[Instruction] = []
        segment = _Segment()
        for instruction in block.instructions:
            free = _is_free(instruction)
            if not free or not segment.takes(instruction):
                ordered += _order_by_sum(segment.instructions)
                segment = _Segment()
            if free:
                segment.add(instruction)
            else:
                ordered.append(instruction)
        block.instructions = ordered + _order_by_sum(segment.instructions)


class _Segment:
    """Instructions in whose order only values matter: a register is written once, and not after it was
    read, unless by the multiply-adds that continue the sum which was read."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.written: dict[str, int] = {}  # register → which instruction
        self.readers: dict[str, list[Instruction]] = {}

    def takes(self, instruction: Instruction) -> bool:
        for name in writes(instruction):
            if name in self.written:
                return False
            readers = self.readers.get(name, [])
            if readers and readers != [self._start_of_sum(instruction)]:
                return False
        return True

    def _start_of_sum(self, instruction: Instruction) -> Instruction | None:
        """Return the first multiply-add of the sum that an instruction adds to; None if there is none."""
        position = len(self.instructions)
        while _is_multiply_add(instruction):
            addend = instruction.operands[-1]
            if not isinstance(addend, Register):
                return None
            earlier = self.written.get(addend.name, position)
            if earlier >= position:  # the value that the register had before
                return instruction
            position, instruction = earlier, self.instructions[earlier]
        return None

    def add(self, instruction: Instruction) -> None:
        self.written |= dict.fromkeys(writes(instruction), len(self.instructions))
        self.instructions.append(instruction)
        for name in reads(instruction):
            self.readers.setdefault(name, []).append(instruction)


def _is_free(instruction: Instruction) -> bool:
    if instruction.guard is not None:
        return False
    operation = operation_of(instruction)
    if operation.loads:
        return not {"volatile", "relaxed", "acquire", "mmio"} & set(instruction.parts)
    return (operation.lanes in _FREE or instruction.opcode == "fma") and "cc" not in instruction.parts


def _is_multiply_add(instruction: Instruction) -> bool:
    return (
        instruction.opcode == "fma"
        and instruction.parts[-1:] in (("f32",), ("f64",))
        and len(instruction.operands) == 4
        and len(writes(instruction)) == 1
    )


def _order_by_sum(segment: list[Instruction]) -> list[Instruction]:
    """Reorder a segment: first what the multiply-adds read, then the multiply-adds sum by sum, then the rest."""
    if sum(map(_is_multiply_add, segment)) < _FEWEST:
        return segment
    chain_of: dict[str, list[Instruction]] = {}  # last value of a chain → the chain
    chains: list[list[Instruction]] = []
    before: list[Instruction] = []
    after: list[Instruction] = []
    late: set[str] = set()  # values that come from multiply-adds
    for instruction in segment:
        needed, made = set(reads(instruction)), set(writes(instruction))
        addend = instruction.operands[-1] if _is_multiply_add(instruction) else None
        key = addend.name if isinstance(addend, Register) else ""
        if not needed & late and addend is None:
            before.append(instruction)
        elif addend is not None and not (needed - {key}) & late and (key not in late or key in chain_of):
            chain = chain_of.pop(key, None)
            if chain is None:
                chain = []
                chains.append(chain)
            chain.append(instruction)
            chain_of[next(iter(made))] = chain
            late |= made
        else:
            after.append(instruction)
            late |= made
    return [*before, *(item for chain in chains for item in chain), *after]
