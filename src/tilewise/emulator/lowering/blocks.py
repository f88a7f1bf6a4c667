"""A block of the flow: its instructions, and how its lanes go on."""

from __future__ import annotations

from tilewise.emulator.analysis.control_flow import EXIT, Block
from tilewise.emulator.layout import Answer, FaultKind
from tilewise.emulator.lowering.apart import diverge, end_apart, next_station, send, take_lanes
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.instructions import complete, lower_instruction
from tilewise.emulator.lowering.loops import ROUNDS, every_nth, name_loop, poll, poll_if_due
from tilewise.emulator.lowering.piece_functions import Pieces
from tilewise.emulator.lowering.suspend import can_diverge, live_at, new_resume, resume, stop
from tilewise.emulator.lowering.tables import check_operand_count, unsupported
from tilewise.emulator.lowering.values import read
from tilewise.emulator.operations.registry import operation_of

__all__ = ["lower_block"]

_STRETCH = 256  # instructions in a row between looks; LLVM's time grows with the square of what lies between


def lower_block(e: Context, block: Block, pieces: Pieces) -> None:
    """Emit a block: its instructions, those in pieces as calls."""
    e.block = block
    if block.index in e.apart.pending:
        take_lanes(e, block)
    e.place(f"body.{block.index}")
    e.watcher.block()
    begins = {piece.start: piece for piece in pieces.cut.pieces.get(block.index, ())}
    behind = polled = 0
    for position, instruction in enumerate(block.instructions):
        if position < behind:
            continue
        if position - polled >= _STRETCH:
            poll(e)
            polled = position
        if position in begins:
            pieces.lower(block, begins[position])
            behind = begins[position].end
            continue
        if e.general and id(instruction) in e.stops.deopts:
            number, _ = e.stops.deopts[id(instruction)]
            here = e.label("at")
            e.jump(here)
            resume(e, number, live_at(e, block, position), here, from_fast=True)
            e.place(here)
        lower_instruction(e, instruction)
    _terminator(e, block)


def _terminator(e: Context, block: Block) -> None:
    terminator = block.terminator
    if terminator.instruction is not None:
        e.now, e.guard = terminator.instruction, None
    if terminator.kind in ("wait", "meet"):
        assert terminator.instruction is not None
        with complete(terminator.instruction):
            (_wait if terminator.kind == "wait" else _sync_lanes)(e, block)
    elif e.is_apart:
        end_apart(e, block)
    elif terminator.kind == "go":
        _go(e, block.index, terminator.targets[0])
    elif can_diverge(e.analysis, block):
        diverge(e, block)
    elif terminator.kind == "table":
        _table(e, block)
    else:
        assert terminator.condition is not None
        yes, no = terminator.targets[::-1] if terminator.negated else terminator.targets
        condition = read(e, terminator.condition, "pred", False)
        with e.when(condition):
            _go(e, block.index, yes)
        _go(e, block.index, no)


def _go(e: Context, source: int, target: int) -> None:
    """All lanes go on together."""
    if target == EXIT:
        e.jump("leave")
        return
    if target <= source:
        _repeat_loop(e, target)
    if target in e.analysis.divergent:
        e.store(e.mask(), e.apart.pending[target], 4)
        e.jump(f"check.{target}")
    else:
        e.jump(f"body.{target}")


def _repeat_loop(e: Context, target: int) -> None:
    """Go back to a loop's start: poll the stop flag now and then, and yield if the loop waits for other warps."""
    # NOTE: a counter for each period: what other loops count could keep this one off its multiples.
    if target not in e.analysis.spins:
        poll_if_due(e, target)
        return
    label, look, saved = e.label("turn"), e.label("look"), live_at(e, e.program.flow.blocks[target], 0)
    e.branch(every_nth(e, e.loops.rounds, ROUNDS), look, label, likely=False)
    e.place(look)
    poll(e)
    name_loop(e, target)
    number = new_resume(e)
    stop(e, Answer.YIELD, number, saved)
    resume(e, number, saved, label)
    e.place(label)


def _table(e: Context, block: Block) -> None:
    terminator = block.terminator
    assert terminator.instruction is not None
    index = read(e, terminator.instruction.operands[0], "u32", False)
    bad = e.label("bad")
    labels = [e.label("case") for _ in terminator.targets]
    cases = " ".join(f"i32 {i}, label %{label}" for i, label in enumerate(labels))
    e.line(f"switch i32 {index.ref}, label %{bad} [ {cases} ]")
    for label, target in zip(labels, terminator.targets, strict=True):
        e.place(label)
        _go(e, block.index, target)
    e.place(bad)
    e.fault_now(FaultKind.BAD_INDEX, terminator.instruction)


# -- lanes apart ----------------------------------------------------------------------------


def _wait(e: Context, block: Block) -> None:
    """A barrier: go on if it lets the lanes through at once, else stop."""
    instruction, target = e.now, block.terminator.targets[0]
    e.watcher.wait(instruction)
    operation = operation_of(instruction)
    if operation.wait is None:
        raise unsupported(instruction)
    answer = operation.wait(e, instruction)
    e.branch(e.equals(answer, 2), "failed", likely=False)
    if e.is_apart:
        send(e, target, e.load("i32", e.current, 4))
        e.jump(next_station(e, block.index))
        return
    if not operation.waits_for:
        _go(e, block.index, target)
        return
    through = e.label("through")
    e.branch(e.equals(answer, 0), through)
    saved = set() if target == EXIT else live_at(e, e.program.flow.blocks[target], 0)
    number = new_resume(e)
    stop(e, Answer.WAIT, number, saved)
    resume(e, number, saved, through)
    e.place(through)
    e.watcher.through(instruction)
    _go(e, block.index, target)


def _sync_lanes(e: Context, block: Block) -> None:
    """``bar.warp.sync``: where lanes are apart, those that are here wait for the others that the mask names."""
    instruction, target = e.now, block.terminator.targets[0]
    check_operand_count(instruction, 1)
    if not e.is_apart:
        e.watcher.through(instruction)
        _go(e, block.index, target)
        return
    await_lanes = operation_of(instruction).wait
    assert await_lanes is not None
    await_lanes(e, instruction)
    e.watcher.through(instruction)
    send(e, target, e.load("i32", e.current, 4))
    e.jump(next_station(e, block.index))
