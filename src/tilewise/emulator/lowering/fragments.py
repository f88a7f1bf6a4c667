"""Registers of a warp as memory, for instructions that are compiled as functions of their own.

Such a function takes its operands by address. The registers of one warp's sums are far more than a CPU has,
so they lie in memory anyway; as LLVM values they would be moved about there, and take long to compile.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.emulator.llvm.emit import vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.tables import unsupported
from tilewise.emulator.lowering.values import read, write
from tilewise.emulator.ptx.syntax import Operand, Register
from tilewise.emulator.ptx.types import bits_of, llvm_scalar

__all__ = ["OperandAddresses"]


class OperandAddresses:
    """The addresses of one instruction's operands: their registers', or those of copies."""

    def __init__(self, e: Context) -> None:
        self.e = e
        self._used = 0
        self._targets: list[tuple[Register, str, str]] = []  # with its type and its copy

    def of(self, items: Sequence[Operand], type_: str) -> list[str]:
        """The addresses of operands' values in every lane."""
        return [self._own(item, type_) or self._copy(item, type_) for item in items]

    def results(
        self, targets: Sequence[Operand], type_: str, starts: Sequence[Operand] = (), start_type: str = ""
    ) -> list[str]:
        """Where to put results, which begin as the values of ``starts``; more or fewer than there are
        targets. If some lanes are to keep what they have, or the starts what they are, these are copies."""
        registers: list[Register] = []
        for target in targets:
            if not isinstance(target, Register):
                raise unsupported(self.e.now, "its destination must be registers")
            registers.append(target)
        own = [self._own(target, type_) for target in registers]
        found = [place for place in own if place is not None]
        merged = self.e.guard is not None or self.e.is_apart
        if not merged and len(found) == len(own) and (not starts or list(starts) == registers):
            return found
        copies = [self._copy(start, start_type) for start in starts]
        copies += [self._new() for _ in range(len(registers) - len(copies))]
        self._targets = [(register, type_, copies[i]) for i, register in enumerate(registers)]
        return copies

    def write(self) -> None:
        """Set the registers of results, in the lanes that run the instruction."""
        for register, type_, place in self._targets:
            write(self.e, register, self.e.load(vector(llvm_scalar(type_)), place, 4), type_)

    def _own(self, item: Operand, type_: str) -> str | None:
        """The address of a register that holds a vector of the type's width."""
        e = self.e
        if not isinstance(item, Register) or item.name not in e.types:
            return None
        held = e.types[item.name]
        whole = e.stored_type(item.name).startswith("<32 x ") and held != "pred"
        return e.registers[item.name] if whole and bits_of(held) == bits_of(type_) else None

    def _copy(self, item: Operand, type_: str) -> str:
        value = read(self.e, item, type_, True)
        place = self._new()
        self.e.store(value, place, 4)
        return place

    def _new(self) -> str:
        room = self.e.operand_copies
        if self._used == len(room):
            room.append(self.e.alloca(vector("i64"), 64))
        self._used += 1
        return room[self._used - 1]
