"""Loops: looks at the stop flag now and then, turns to other warps where a loop waits for them, and progress.

A loop that only looks at memory and goes round again waits; when all that runs does so, nothing ever will
end it: that is a deadlock. A loop that changes memory gets on, however long it takes: a queue that blocks take their
work from, a counter of blocks that are done. Code in such loops counts what it changes; ``running/run.py`` reads the
counts.
"""

from __future__ import annotations

from tilewise.emulator.analysis.control_flow import Block
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.values import read
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Instruction, Register
from tilewise.emulator.ptx.types import is_signed

__all__ = [
    "FAIR",
    "ROUNDS",
    "count_progress",
    "every_nth",
    "look_before",
    "name_loop",
    "poll",
    "poll_if_due",
    "yield_soon",
]

_POLL = 1 << 15  # instructions in loops between looks at the stop flag
FAIR = 64  # turns of a loop of lanes apart before others of the warp are let run
ROUNDS = 16  # times that lanes start over from the top before other warps are let run
_TYPES = {f"{kind}{bits}" for kind in "bus" for bits in (32, 64)}
_OPERATIONS = ("exch", "cas", "add", "xor", "or", "and", "min", "max")
_CLOCKS = ("%clock", "%globaltimer")

Before = tuple[str, str, list[Value]] | None  # of an atom: operation, type, operands


def yield_soon(e: Context, idle: Value) -> None:
    """Where ``idle`` holds, as what the warp waits for has not happened: yield at the next turn of its loop."""
    inside = [target for target in e.loops.fairness if e.block in blocks_of_loop(e, target)]
    counters = [(e.loops.rounds, ROUNDS), *((e.loops.fairness[target], FAIR) for target in inside)]
    for counter, every in counters:
        last = e.const("i32", every - 1)
        e.store(e.select(idle, last, e.load("i32", counter, 4)), counter, 4)


def every_nth(e: Context, counter: str, every: int) -> Value:
    """Count up: whether the count is a multiple of ``every``, a power of two."""
    count = e.load("i32", counter, 4) + 1
    e.store(count, counter, 4)
    return e.equals(count & (every - 1), 0)


def poll(e: Context, on: str = "") -> None:
    """Return if the launch's stop flag is set; else go on, at a label if there is one."""
    e.store(e.const("i32", 0), e.loops.turns, 4)
    stop = e.load("i32", e.offset("%ctx", LAUNCH.STOP), 4, volatile=True)
    e.branch(e.equals(stop, 0), on, "stopped", likely=True)


def _poll_due(e: Context, target: int) -> Value:
    """Count the instructions of one more turn of a loop: whether it is time to poll the stop flag."""
    length = sum(len(block.instructions) for block in blocks_of_loop(e, target))
    count = e.load("i32", e.loops.turns, 4) + min(length + 8, _POLL)
    e.store(count, e.loops.turns, 4)
    return e.is_at_least(count, _POLL)


def poll_if_due(e: Context, target: int) -> None:
    """Count one more turn of a loop; poll the stop flag if that is due."""
    label, look = e.label("turn"), e.label("look")
    e.branch(_poll_due(e, target), look, label, likely=False)
    e.place(look)
    poll(e, label)
    e.place(label)


def name_loop(e: Context, target: int) -> None:
    """Record the line of the loop, for the message of a deadlock in it."""
    instructions = [item for block in blocks_of_loop(e, target) for item in block.instructions]
    rows = [(item, operation_of(item)) for item in instructions]
    asking = [item for item, row in rows if row.returns_old or "volatile" in item.parts]
    asking += [item for item, row in rows if row.loads or id(item) in e.analysis.polled]
    if first := next(iter(asking or instructions), None):
        e.store(e.const("i32", first.line), e.offset("%warp", WARP.LOOP), 4)


def blocks_of_loop(e: Context, target: int) -> list[Block]:
    """The blocks of the loop that begins with a block."""
    return e.program.flow.blocks[target : e.program.flow.loop_end[target] + 1]


# -- progress -----------------------------------------------------------------------------------------------------
def look_before(e: Context, instruction: Instruction) -> Before:
    """Read the operands of an ``atom`` in a loop that may wait, before it changes them."""
    operands, parts = instruction.operands, instruction.parts
    if not operation_of(instruction).returns_old or len(operands) < 3 or parts[-1] not in _TYPES:
        return None
    verb = next((part for part in _OPERATIONS if part in parts), "")
    if not verb or not isinstance(operands[0], Register) or operands[0].name == "_":
        return None
    return verb, parts[-1], [read(e, operand, parts[-1], True) for operand in operands[2:]]


def count_progress(e: Context, instruction: Instruction, before: Before) -> None:
    """Count an instruction that changed memory or read a clock as progress."""
    names = [item.name for item in instruction.operands if isinstance(item, Register)]
    if before is not None:
        changed = e.bits(_changed(e, instruction, before)) & e.mask()
        step = e.cast("zext", e.differs(changed, 0), "i64")
    elif operation_of(instruction).changes or any(name.startswith(_CLOCKS) for name in names):
        step = e.const("i64", 1)
    else:
        return
    place = e.offset("%block", BLOCK.PROGRESS)
    e.store(e.load("i64", place, 8) + step, place, 8)


def _changed(e: Context, instruction: Instruction, before: Before) -> Value:
    """The lanes whose ``atom`` changed the value in memory."""
    assert before is not None
    operation, type_, (given, *more) = before
    old = read(e, instruction.operands[0], type_, True)
    zero = e.zero(given.type)
    match operation:
        case "exch":
            return e.differs(old, given)
        case "cas":
            return e.equals(old, given) if more else e.differs(old, given)
        case "add" | "xor":
            return e.differs(given, zero)
        case "or":
            return e.differs(old | given, old)
        case "and":
            return e.differs(old & given, old)
    sign = "s" if is_signed(type_) else "u"
    return e.compare(f"icmp {sign}{'lt' if operation == 'min' else 'gt'}", given, old)
