"""Parameters and results of inlined calls: keep them in registers instead of memory.

A ``.param`` variable that is only stored to and loaded from, always in the same pieces, becomes one register
for each piece. What is known of an argument, such as that all lanes have the same, is then known in the
function too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tilewise.emulator.operations.operands import symbols_in
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.modifiers import elements_of, space_of
from tilewise.emulator.ptx.syntax import (
    Address,
    Instruction,
    Label,
    Operand,
    PtxFunction,
    Register,
    Symbol,
    Vector,
    items_of,
)
from tilewise.emulator.ptx.types import TYPE_BYTES, is_signed

__all__ = ["pass_in_registers"]

_Piece = tuple[int, int]  # offset and bytes
_Access = tuple[str, int, int, tuple[Operand, ...]]  # variable, offset, bytes of an element, operands
_MOVED = {f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64)} | {"f32", "f64", "b128"}


def pass_in_registers(function: PtxFunction) -> None:
    """Replace parameters and results by registers in a kernel whose calls are inlined."""
    pieces = _find_pieces(function)
    if not pieces:
        return
    registers = {}
    for name, found in pieces.items():
        for offset, size in found:
            registers[name, offset] = Register(f"{name}~at{offset}")
            # Bytes are kept in a register of 32 bits: there are none of 8.
            function.registers[f"{name}~at{offset}"] = f"b{max(8 * size, 32) if size == 1 else 8 * size}"
        del function.variables[name]
    body: list[Instruction | Label] = []
    for item in function.body:
        if isinstance(item, Instruction) and (access := _access(item)) and access[0] in pieces:
            body += _make_moves(function, item, access, registers)
        else:
            body.append(item)
    function.body = body


def _find_pieces(function: PtxFunction) -> dict[str, set[_Piece]]:
    """Map each variable that can live in registers to the pieces in which it is stored and loaded."""
    pieces: dict[str, set[_Piece]] = defaultdict(set)
    stored: dict[str, set[_Piece]] = defaultdict(set)
    unfit: set[str] = set()
    for item in function.body:
        if not isinstance(item, Instruction):
            continue
        access = _access(item)
        if access is not None and _can_be_move(function, item, access):
            name, offset, width, items = access
            found = {(offset + i * width, width) for i in range(len(items))}
            pieces[name] |= found
            if operation_of(item).stores:
                stored[name] |= found
        elif access is not None:
            unfit.add(access[0])
        symbols = [*symbols_in(*item.operands)]
        unfit.update(symbols[1:] if access else symbols)  # the first is the variable that is accessed
    whole = {
        name: _drop_prefixes(found, stored[name], function.variables[name].size)
        for name, found in pieces.items()
        if name not in unfit and name in function.variables
    }
    return {name: found for name, found in whole.items() if found}


def _drop_prefixes(pieces: set[_Piece], stored: set[_Piece], size: int) -> set[_Piece]:
    """Drop pieces that begin a wider one, from which loads can take them; return none if pieces overlap otherwise."""
    widest: dict[int, int] = {}
    for offset, width in pieces:
        widest[offset] = max(width, widest.get(offset, 0))
    end = 0
    for offset, width in sorted(widest.items()):
        if offset < end:
            return set()
        end = offset + width
    if end > size or any(widest[offset] != width for offset, width in stored):
        return set()
    return set(widest.items())


def _access(item: Instruction) -> _Access | None:
    """Return the access of an ld.param or st.param; None for anything else."""
    operation = operation_of(item)
    if operation.plain_access is None or space_of(item) != "param":
        return None
    if len(item.operands) != 2 or item.parts[-1] not in TYPE_BYTES:
        return None
    address, value = item.operands if operation.stores else item.operands[::-1]
    if not isinstance(address, Address) or not isinstance(address.base, Symbol):
        return None
    items = items_of(value)
    return address.base.name, address.offset + address.base.offset, TYPE_BYTES[item.parts[-1]], items


def _can_be_move(function: PtxFunction, item: Instruction, access: _Access) -> bool:
    """Whether a move between registers can replace an access."""
    _, offset, width, items = access
    if elements_of(item) != len(items) or offset < 0:
        return False
    for value in items:
        if isinstance(value, Vector) or (isinstance(value, Symbol) and width != 8):
            return False
        own = function.registers.get(value.name) if isinstance(value, Register) else None
        if own == "pred" or (own is not None and TYPE_BYTES[own] < width):
            return False
    return True


def _make_moves(
    function: PtxFunction, item: Instruction, access: _Access, registers: dict[tuple[str, int], Register]
) -> list[Instruction]:
    """Return the moves between registers that replace an access."""
    name, offset, width, items = access
    found = []
    for i, value in enumerate(items):
        slot = registers[name, offset + i * width]
        out = not operation_of(item).stores
        if not out or value != Register("_"):
            opcode, parts = _choose_move(function, slot, value, item.parts[-1], width, out)
            operands = (value, slot) if out else (slot, value)
            found.append(replace(item, opcode=opcode, parts=parts, operands=operands))
    return found


def _choose_move(
    function: PtxFunction, slot: Register, value: Operand, type_: str, width: int, out: bool
) -> tuple[str, tuple[str, ...]]:
    """Return opcode and parts of the instruction that moves a value into a slot's register, or out of it."""
    kept = TYPE_BYTES[function.registers[slot.name]]
    register = function.registers.get(value.name) if isinstance(value, Register) else None
    own = TYPE_BYTES[register] if register else kept
    if own == kept == width:
        return "mov", (type_ if type_ in _MOVED else f"b{8 * width}",)
    if out:
        sign = "s" if is_signed(type_) and own != width else "u"
        return "cvt", (f"{sign}{8 * own}", f"{sign}{8 * (kept if own == width else width)}")
    if register is None:
        return "mov", (f"u{8 * kept}",)  # a byte written as a number: what is above it is never looked at
    return ("mov", (f"b{8 * own}",)) if own == kept else ("cvt", (f"u{8 * kept}", f"u{8 * own}"))
