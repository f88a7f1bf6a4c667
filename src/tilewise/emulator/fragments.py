"""Registers of a warp as memory, for instructions that are compiled as functions of their own.

Such a function takes its operands by address. The registers of one warp's sums are far more than a CPU has,
so they lie in memory anyway; as LLVM values they would be moved about there, and take long to compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewise.emulator.emit import Emitter, vector
from tilewise.emulator.syntax import Operand, Register, Vector
from tilewise.emulator.tables import unknown
from tilewise.emulator.types import bits_of, llvm_scalar

if TYPE_CHECKING:
    from tilewise.emulator.values import Values

__all__ = ["Results", "define", "in_memory", "items"]


def items(e: Values, operand: Operand, count: int) -> tuple[Operand, ...]:
    """The registers of an operand in braces, or the only one without."""
    found = operand.items if isinstance(operand, Vector) else (operand,)
    if len(found) != count:
        raise unknown(e.now, f"{len(found)} registers where it takes {count}")
    return found


def _own_place(e: Values, item: Operand, type_: str) -> str | None:
    """The address of a register that holds a vector of the type's width."""
    if not isinstance(item, Register) or item.name not in e.types:
        return None
    held = e.types[item.name]
    whole = e.stored_type(item.name).startswith("<32 x ") and held != "pred"
    return e.registers[item.name] if whole and bits_of(held) == bits_of(type_) else None


def in_memory(e: Values, item: Operand, type_: str) -> str:
    """The address of an operand's value in every lane: its register's own, or a copy's."""
    place = _own_place(e, item, type_)
    if place is None:
        value = e.read(item, type_, True)
        place = e.alloca(value.type)
        e.store(value, place, 4)
    return place


class Results:
    """Where a function puts its results: in their registers, or beside them if some lanes keep theirs.

    ``start`` are operands with whose values the places begin, such as C where the results are D.
    """

    def __init__(
        self, e: Values, operand: Operand, types: list[str], start: list[tuple[Operand, str]] | None = None
    ) -> None:
        self.e, self.types = e, types
        self.targets: list[Register] = []
        for item in items(e, operand, len(types)):
            if not isinstance(item, Register):
                raise unknown(e.now, "its destination must be registers")
            self.targets.append(item)
        own = [_own_place(e, item, type_) for item, type_ in zip(self.targets, types, strict=True)]
        alike = start is None or self.targets == [item for item, _ in start]
        merged = e.guard is not None or e.is_apart
        self.places = [place for place in own if place]
        self.direct = alike and not merged and len(self.places) == len(own)
        if not self.direct:
            self.places = self._beside(start or [])

    def _beside(self, start: list[tuple[Operand, str]]) -> list[str]:
        e, places = self.e, []
        for i in range(max(len(start), len(self.types))):
            value = e.read(*start[i], True) if i < len(start) else None
            scalar = llvm_scalar(self.types[i]) if i < len(self.types) else "i32"
            place = e.alloca(value.type if value else vector(scalar), 64)
            if value:
                e.store(value, place, 4)
            places.append(place)
        return places

    def write(self) -> None:
        """Set the registers, in the lanes that run the instruction."""
        if self.direct:
            return
        e = self.e
        for target, type_, place in zip(self.targets, self.types, self.places, strict=False):
            e.write(target, e.load(vector(llvm_scalar(type_)), place, 4), type_)


def define(e: Values, name: str, head: str, inner: Emitter) -> None:
    """Add a function to the kernel's module, with what it needs itself."""
    for key, text in inner.declared.items():
        e.declared.setdefault(key, text)
    e.declared[name] = "\n".join([f"define internal {head} noinline nounwind {{", *inner.lines, "}"])
