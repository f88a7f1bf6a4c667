"""Lanes that are apart: the lanes that wait for each block are a mask; the lowest block with lanes goes next, and at
the end of a loop the lanes that went back."""

from __future__ import annotations

import bisect

from tilewise.emulator.analysis.control_flow import EXIT, Block, Flow
from tilewise.emulator.layout import WARP, Answer, FaultKind
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.loops import FAIR, ROUNDS, every_nth, name_loop, poll, poll_if_due
from tilewise.emulator.lowering.suspend import RESUME_APART, live_apart, resume, stop
from tilewise.emulator.lowering.values import read

__all__ = [
    "diverge",
    "end_apart",
    "end_chain",
    "list_stations",
    "next_station",
    "repeat_loop_apart",
    "send",
    "take_lanes",
]


def list_stations(flow: Flow, chain: list[int]) -> list[tuple[int, int, int, str]]:
    """What lanes apart pass on their way down: blocks, and the ends of loops, inner ones first."""
    found = [(index, 0, 0, f"check.{index}") for index in chain]
    for target, end in flow.loop_end.items():
        if target in chain:
            found.append((end, 1, -target, f"back.{target}"))
    return sorted(found)


def take_lanes(e: Context, block: Block) -> None:
    """Take the lanes that wait for a block, or pass on to the next."""
    e.place(f"check.{block.index}")
    free, some = _find_ready(e, block.index)
    e.branch(some, no=next_station(e, block.index))
    left = e.load("i32", e.apart.pending[block.index], 4) ^ free
    e.store(left, e.apart.pending[block.index], 4)
    if block.index in e.analysis.divergent:
        e.store(free, e.current, 4)
    e.jump(f"body.{block.index}")


def _find_ready(e: Context, index: int) -> tuple[Value, Value]:
    """The lanes that wait for a block and are not blocked; whether they can run it.

    A block that all lanes run together waits until all are there.
    """
    free = e.load("i32", e.apart.pending[index], 4)
    if e.apart.waits:
        blocked = e.load("i32", e.offset("%warp", WARP.BLOCKED), 4)
        free = e.without(free, blocked)
    some = e.differs(free, 0)
    if index not in e.analysis.divergent:
        live = e.const("i32", -1) if e.full else e.load("i32", e.live, 4)
        some &= e.equals(free, live)
    return free, some


def next_station(e: Context, index: int, kind: int = 0, target: int = 0) -> str:
    at = bisect.bisect_right(e.apart.stations, (index, kind, -target, "~"))
    return e.apart.stations[at][3] if at < len(e.apart.stations) else "chain.end"


def end_apart(e: Context, block: Block) -> None:
    _split(e, block, e.load("i32", e.current, 4))
    e.jump(next_station(e, block.index))


def diverge(e: Context, block: Block) -> None:
    """Lanes run together so far go different ways."""
    _split(e, block, e.mask())
    down = [t for t in block.terminator.targets if t > block.index]
    e.jump(f"check.{min(down)}" if down else next_station(e, block.index))


def _split(e: Context, block: Block, lanes: Value) -> None:
    """Send the lanes of a block to its targets."""
    terminator = block.terminator
    if terminator.kind == "go":
        send(e, terminator.targets[0], lanes)
        return
    if terminator.kind == "table":
        _split_table(e, block, lanes)
        return
    assert terminator.condition is not None
    condition = e.bits(e.splat(read(e, terminator.condition, "pred", True)))
    yes, no = terminator.targets[::-1] if terminator.negated else terminator.targets
    taken = lanes & condition
    rest = e.without(lanes, condition)
    e.watcher.split(taken, rest)
    send(e, yes, taken)
    send(e, no, rest)


def _split_table(e: Context, block: Block, lanes: Value) -> None:
    terminator = block.terminator
    assert terminator.instruction is not None
    index = read(e, terminator.instruction.operands[0], "u32", True)
    left, ways = lanes, []
    for i, target in enumerate(terminator.targets):
        chosen = e.bits(e.equals(index, i))
        some = left & chosen
        ways.append((target, some))
        send(e, target, some)
        left = e.without(left, chosen)
    e.watcher.switch(lanes, ways)
    with e.unless(e.equals(left, 0), likely=True):
        e.fault_now(FaultKind.BAD_INDEX, terminator.instruction, left)


def send(e: Context, target: int, lanes: Value) -> None:
    if target == EXIT:
        _exit_lanes(e, lanes)
        return
    waiting = e.load("i32", e.apart.pending[target], 4)
    e.store(waiting | lanes, e.apart.pending[target], 4)


def _exit_lanes(e: Context, lanes: Value) -> None:
    """Some lanes exit the kernel."""
    live = e.without(e.load("i32", e.live, 4), lanes)
    e.store(live, e.live, 4)
    e.watcher.leave(lanes)
    e.call("tw_depart", "void", *e.pointers(), lanes)
    if e.apart.meets:
        e.call("tw_meet", "void", "%warp", 0, 0)


def repeat_loop_apart(e: Context, target: int) -> None:
    """Lanes gathered at a loop's end go back to its start, but let the rest of the warp run now and then."""
    e.place(f"back.{target}")
    _, some = _find_ready(e, target)
    on = next_station(e, e.program.flow.loop_end[target], 1, target)
    e.branch(some, no=on)
    poll_if_due(e, target)
    if target in e.analysis.spins:
        name_loop(e, target)
        rare = every_nth(e, e.loops.fairness[target], FAIR)
        e.branch(rare, on, f"check.{target}")
    else:
        e.jump(f"check.{target}")


def end_chain(e: Context) -> None:
    """No lanes wait further down: start over from the top, stop, or leave."""
    e.place("chain.end")
    waiting = able = e.const("i32", 0)
    for index in e.apart.chain:
        waiting |= e.load("i32", e.apart.pending[index], 4)
        if e.apart.waits or e.apart.gates:
            free, ready = _find_ready(e, index)
            able |= e.select(ready, free, 0)
    e.branch(e.differs(waiting, 0), no="leave")
    saved, first = live_apart(e), e.apart.stations[0][3]
    if e.apart.waits or e.apart.gates:
        with e.unless(e.differs(able, 0)):
            _suspend_blocked(e, waiting, saved)
    poll(e)
    e.branch(every_nth(e, e.loops.rounds, ROUNDS), no=first)
    if e.apart.gates:
        _record_gate_lanes(e)
    stop(e, Answer.YIELD, RESUME_APART, saved)
    resume(e, RESUME_APART, saved, first)


def _suspend_blocked(e: Context, waiting: Value, saved: set[str]) -> None:
    """Suspend the warp, as no lanes can run. Those that only its other lanes can release go on alone."""
    if e.apart.leaving:
        _exit_waiting(e)
    if e.apart.gates:
        _fault_if_stuck(e, *_record_gate_lanes(e))
    if not e.apart.waits:
        return
    blocked = e.load("i32", e.offset("%warp", WARP.BLOCKED), 4)
    if not e.general:
        with e.when(e.differs(e.without(waiting, blocked), 0)):
            stop(e, Answer.DEOPT, RESUME_APART, saved, e.program.general)
    stop(e, Answer.WAIT, RESUME_APART, saved)


def _exit_waiting(e: Context) -> None:
    """Let lanes exit that wait for the others where nothing but the exit follows."""
    lanes = zero = e.const("i32", 0)
    for index in e.apart.leaving:
        waiting = e.load("i32", e.apart.pending[index], 4)
        free, _ = _find_ready(e, index)
        e.store(waiting ^ free, e.apart.pending[index], 4)
        lanes |= free
    with e.when(e.differs(lanes, zero)):
        _exit_lanes(e, lanes)
        e.jump(e.apart.stations[0][3])


def _record_gate_lanes(e: Context) -> tuple[Value, Value]:
    """The lanes at the first gate that has some, and its line; recorded for the message of a deadlock."""
    lanes = line = e.const("i32", 0)
    for index in reversed(e.apart.gates):
        instruction = e.program.flow.blocks[index].terminator.instruction
        assert instruction is not None
        here = e.load("i32", e.apart.pending[index], 4)
        some = e.differs(here, 0)
        lanes = e.select(some, here, lanes)
        line = e.select(some, instruction.line, line)
    e.store(lanes, e.offset("%warp", WARP.GATE), 4)
    e.store(line, e.offset("%warp", WARP.GATE_LINE), 4)
    return lanes, line


def _fault_if_stuck(e: Context, lanes: Value, line: Value) -> None:
    """End the launch with a fault if lanes at a gate wait for lanes of their warp that can never come there."""
    if not e.apart.waits:
        _fault_apart(e, lanes, line)
        return
    helped = e.load("i32", e.offset("%warp", WARP.BLOCKED), 4)  # lanes that others may let go
    if e.general:
        meeting = e.load("i32", e.offset("%warp", WARP.MEETING), 4)
        helped = e.without(helped, meeting)
    no_help = e.equals(helped, 0)
    some = e.differs(lanes, 0)
    with e.when(no_help & some, likely=False):
        _fault_apart(e, lanes, line)


def _fault_apart(e: Context, lanes: Value, line: Value) -> None:
    """End the launch with a fault: some lanes of the warp wait at a barrier to which the others do not come."""
    others = e.without(e.load("i32", e.live, 4), lanes)
    high = e.cast("zext", others, "i64") << 32
    both = e.cast("zext", lanes, "i64") | high
    lane = e.find_lowest(lanes) & 31
    e.call("tw_fault_at", "void", *e.pointers(), FaultKind.APART, line, lane, both, 0, 0, 0)
    e.jump("failed")
