"""What ends a kernel or asks the host: traps, assertions, printf; and the functions that CUDA provides.

A call of a function that the PTX does not define is one of these, or it is refused. ``vprintf`` and
``__assertfail`` ask the host (``host_calls.py``); ``malloc`` and ``free`` are PTX (``ptx/library.py``).
"""

from __future__ import annotations

from tilewise.emulator.layout import FaultKind, HostCall
from tilewise.emulator.llvm.emit import vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.tables import effect, unsupported
from tilewise.emulator.lowering.values import read, write
from tilewise.emulator.ptx.library import EXTERNAL
from tilewise.emulator.ptx.syntax import Instruction, Register

__all__: list[str] = []  # its instructions are in the tables


# -- ends ---------------------------------------------------------------------------------------------
@effect("trap", has_result=False, ptx="1.0")
def trap(e: Context, instruction: Instruction) -> None:
    """End the launch with a fault."""
    _end(e, FaultKind.TRAP, instruction)


@effect("call:nowhere", lanes="own")
def nowhere(e: Context, instruction: Instruction) -> None:
    """A call through a pointer that is not the address of any function that fits."""
    _end(e, FaultKind.BAD_CALL, instruction)


@effect("call:overflow", lanes="own")
def overflow(e: Context, instruction: Instruction) -> None:
    """A call for which a thread's stack has no room."""
    _end(e, FaultKind.STACK_OVERFLOW, instruction)


def _end(e: Context, kind: FaultKind, instruction: Instruction) -> None:
    e.fault_now(kind, instruction)
    e.place(e.label("never"))


@effect("brkpt", has_result=False, ptx="1.0", arch="sm_11")
def brkpt(e: Context, instruction: Instruction) -> None:
    """There is no debugger to stop for."""
    if instruction.parts or instruction.operands:
        raise unsupported(instruction, "it has no operands")


# -- the host -----------------------------------------------------------------------------------------
def _hand_over(e: Context, instruction: Instruction, types: tuple[str, ...]) -> None:
    _, buffer = e.buffers()
    for i, (operand, type_) in enumerate(zip(instruction.operands[1:], types, strict=True)):
        value = e.wide(read(e, operand, type_, True))
        e.store(value, e.offset(buffer, 256 * i), 64)


@effect("call:vprintf", lanes="own", changes=True)
def vprintf(e: Context, instruction: Instruction) -> None:
    """``printf``: the host reads the format and the arguments now, and writes the text when the launch ends."""
    _hand_over(e, instruction, EXTERNAL["vprintf"][1])
    answer, buffer = e.call_host(HostCall.PRINT, instruction.line, e.mask())
    e.leave_on_fault(answer)
    target = instruction.operands[0]
    if isinstance(target, Register) and target.name != "_":
        write(e, target, e.resize(e.load(vector("i64"), buffer, 64), "i32", False), "s32")


@effect("call:assertfail", lanes="own")
def assertfail(e: Context, instruction: Instruction) -> None:
    """A failed ``assert``: the host reads what it says, and the launch ends."""
    _hand_over(e, instruction, EXTERNAL["__assertfail"][1])
    e.call_host(HostCall.ASSERT, instruction.line, e.mask())
    _end(e, FaultKind.ASSERT, instruction)
