"""Loops: looks at the stop flag now and then, and turns to other warps where a loop waits for them."""

from __future__ import annotations

from tilewise.emulator.analysis.control_flow import Block
from tilewise.emulator.layout import LAUNCH, WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.operations.registry import operation_of

__all__ = ["FAIR", "ROUNDS", "every_nth", "name_loop", "poll", "poll_apart", "poll_due", "yield_soon"]

_POLL = 1 << 15  # instructions in loops between looks at the stop flag
FAIR = 64  # turns of a loop of lanes apart before others of the warp are let run
ROUNDS = 16  # times that lanes start over from the top before other warps are let run


def yield_soon(e: Context, idle: Value) -> None:
    """Where ``idle`` holds, as what the warp waits for has not happened: yield at the next turn of its loop."""
    inside = [target for target in e.loops.fairness if e.block in blocks_of_loop(e, target)]
    counters = [(e.loops.rounds, ROUNDS), *((e.loops.fairness[target], FAIR) for target in inside)]
    for counter, every in counters:
        last = e.const("i32", every - 1)
        e.store(e.select(idle, last, e.load("i32", counter, 4)), counter, 4)


def every_nth(e: Context, counter: str, every: int) -> Value:
    """Count up: whether the count is a multiple of ``every``, a power of two."""
    count = e.op("add", e.load("i32", counter, 4), 1)
    e.store(count, counter, 4)
    low = e.op("and", count, every - 1)
    return e.equals(low, 0)


def poll(e: Context, on: str) -> None:
    """Return if the launch's stop flag is set; else go on."""
    e.store(e.const("i32", 0), e.loops.turns, 4)
    stop = e.load("i32", e.offset("%ctx", LAUNCH.STOP), 4, volatile=True)
    on = on or e.label("go")
    e.branch(e.equals(stop, 0), on, "stopped", likely=True)
    if on.startswith("go."):
        e.place(on)


def poll_due(e: Context, target: int) -> Value:
    """Count the instructions of one more turn of a loop: whether it is time to poll the stop flag."""
    length = sum(len(block.instructions) for block in blocks_of_loop(e, target))
    count = e.op("add", e.load("i32", e.loops.turns, 4), min(length + 8, _POLL))
    e.store(count, e.loops.turns, 4)
    return e.is_at_least(count, _POLL)


def poll_apart(e: Context, target: int) -> None:
    """Poll the stop flag if that is due, while lanes are apart."""
    label, look = e.label("turn"), e.label("look")
    e.branch(poll_due(e, target), look, label, likely=False)
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
