"""Normalise each instruction to one spelling, so that the tables of instructions need no other.

PTX keeps a carry that no operand names, calls two instructions cvt, and has waits with two destinations. Here a carry
is an operand like any other, cvt.pack is an opcode of its own, and there is one destination, of several registers.
"""

from __future__ import annotations

from dataclasses import replace

from tilewise.emulator.ptx.syntax import Instruction, Operand, Pair, Register

__all__ = ["CARRY", "MARKED", "normalise"]

CARRY = "%cc#"  # the carry flag, as a register: a name that no text can declare
_ROUNDINGS = {"rn", "rz", "rm", "rp"}
_SET_CARRY = {"add", "addc", "sub", "subc", "mad", "madc"}
_USE_CARRY = {"addc", "subc", "madc"}
# Video instructions: their operands may have selectors and signs.
_VIDEO = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset")
MARKED = {
    *(f"{opcode}{count}" for opcode in (*_VIDEO, "vavrg") for count in ("2", "4")),
    *(*_VIDEO, "vshl", "vshr", "vmad"),
}


def normalise(instruction: Instruction, registers: dict[str, str], version: tuple[int, int]) -> Instruction:
    """Return an instruction in its one spelling; declare the carry register if it needs one."""
    plain = not _ROUNDINGS & {*instruction.parts}
    if plain and instruction.opcode == "mad" and instruction.parts[-1:] == ("f32",) and version <= (3, 1):
        # What it means if it is not said.
        instruction = replace(instruction, parts=("rn", *instruction.parts))
    if instruction.opcode == "cvt" and "pack" in instruction.parts:
        parts = tuple(part for part in instruction.parts if part != "pack")
        return replace(instruction, opcode="cvt.pack", parts=parts)
    if instruction.opcode == "mbarrier":
        return _with_report(instruction)
    return _with_carry(instruction, registers)


def _with_report(instruction: Instruction) -> Instruction:
    """Join a wait's destinations, ``p|q, value``, to one destination of three registers."""
    operands = instruction.operands
    waits = instruction.parts[:1] in (("test_wait",), ("try_wait",))
    if waits and len(operands) > 2 and isinstance(operands[0], Pair) and isinstance(operands[1], Register):
        return replace(instruction, operands=(Pair(*operands[:2]), *operands[2:]))
    return instruction


def _with_carry(instruction: Instruction, registers: dict[str, str]) -> Instruction:
    operands: list[Operand] = list(instruction.operands)
    if not operands:
        return instruction
    carry = Register(CARRY)
    if instruction.opcode in _USE_CARRY:
        operands.append(carry)
    if instruction.opcode in _SET_CARRY and "cc" in instruction.parts:
        operands[0] = Pair(operands[0], carry)
    if len(operands) == len(instruction.operands) and operands[0] is instruction.operands[0]:
        return instruction
    registers[CARRY] = "pred"
    return replace(instruction, operands=tuple(operands))
