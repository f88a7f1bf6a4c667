"""A kernel's flow → one LLVM function that runs a warp until it stops.

The function is entered at the warp's resume point, runs all lanes together where they cannot diverge
(*together* blocks: plain jumps, no masks beyond the lanes that have left) and block by block with masks
where they can (*apart* blocks: the lanes that wait for each block are a mask; the lowest block with lanes
goes next, and at the end of a loop the lanes that went back). It returns when the warp leaves, waits,
yields or fails. Registers that are still needed are then in the warp's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from tilewise.emulator.analysis.control_flow import EXIT
from tilewise.emulator.analysis.pieces import Cut
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.layout import WARP, Answer
from tilewise.emulator.lowering.apart import end_chain, list_stations, repeat_loop_apart
from tilewise.emulator.lowering.blocks import lower_block
from tilewise.emulator.lowering.context import WARP_PARAMETERS, Apart, Context
from tilewise.emulator.lowering.piece_functions import Pieces
from tilewise.emulator.lowering.suspend import can_diverge, masks_in_memory, number_deopts, waiting_blocks
from tilewise.emulator.lowering.watch import MODES

__all__ = ["Lowered", "lower"]

_WEIGHTS = """
!0 = !{!"branch_weights", i32 2000, i32 1}
!1 = !{!"branch_weights", i32 1, i32 2000}
"""


@dataclass(frozen=True, slots=True)
class Lowered:
    """One build of a kernel as LLVM text, and what running it needs to know."""

    text: str  # of a whole module
    hints: int  # memory instructions, each of which remembers an array
    notes: list[Any]  # of its watcher


def lower(program: Program, general: bool, name: str, mode: str = "plain", sums: str = "fast") -> Lowered:
    """Lower a kernel to a function ``name``: its fast build, or the general one, with the watcher that a mode has."""
    e = Context(program, general, name, sums)
    number_deopts(e)
    if mode in MODES:
        e.watcher, e.watched = resolve_name(MODES[mode])(e), True
    e.apart = _find_apart(e)
    e.full = program.thread_count % 32 == 0 and not _lanes_leave(e)
    e.grouped = not general and e.full
    function = _write_function(e, Pieces(e))
    text = "\n".join([function, *e.definitions.values(), _WEIGHTS])
    return Lowered(text, e.hints, e.watcher.notes)


def _find_apart(e: Context) -> Apart:
    chain, blocks = waiting_blocks(e.analysis), e.program.flow.blocks
    ends = {blocks[index].terminator.kind for index in e.analysis.divergent}
    gates = sorted(e.analysis.gates.intersection(chain))
    leaving = [i for i in chain if gates and i not in e.analysis.divergent and blocks[i].leaves]
    pending, stations = dict.fromkeys(chain, ""), list_stations(e.program.flow, chain)
    meets, waits = "meet" in ends, not ends.isdisjoint(("meet", "wait"))
    return Apart(chain, pending, stations, meets, waits, gates, leaving)


def _lanes_leave(e: Context) -> bool:
    """Whether some lanes may leave before others."""
    if e.apart.leaving:
        return True
    return any(
        EXIT in block.terminator.targets
        and (block.index in e.analysis.divergent or can_diverge(e.analysis, block))
        for block in e.program.flow.blocks
    )


def _name_places(e: Context, cut: Cut) -> None:
    """Name where registers, lanes and counters are kept."""
    for name in e.types:
        if name in e.program.resident:
            e.registers[name] = f"%kept.{e.program.slots[name]}"
        elif not cut.pieces:
            e.registers[name] = e.alloca(e.stored_type(name))
    if cut.homes:
        e.allocas.append(f"  %frame = alloca [{cut.bytes} x i8], align 64")
    e.live = e.alloca("i32")
    e.current = e.alloca("i32")
    e.loops.turns = e.alloca("i32")
    e.loops.rounds = e.alloca("i32")
    looped = e.program.flow.loop_end.keys() & e.analysis.spins
    e.loops.fairness = {target: e.alloca("i32") for target in sorted(looped)}
    for index in e.apart.chain:
        e.apart.pending[index] = f"%pending.{index}" if masks_in_memory(e) else e.alloca("i32")


def _enter(e: Context, cut: Cut) -> None:
    """The function's first lines: pointers, empty registers, the jump to the resume point."""
    e.launch_values()
    read_first = e.merged | e.program.liveness.entry[0]
    for name, home in cut.homes.items():
        e.line(f"{e.registers[name]} = getelementptr i8, ptr %frame, i64 {home}")
    for name, slot in e.registers.items():
        if name in e.program.resident:
            offset = e.program.slots[name]
            e.line(f"{slot} = getelementptr i8, ptr %warp, i64 {offset}")
        elif name in read_first:  # NOTE: of each that is emptied, LLVM looks for the end of its emptiness
            e.store(e.zero(e.stored_type(name)), slot, 4)
    live = e.load("i32", e.offset("%warp", WARP.LIVE), 4)
    e.store(live, e.live, 4)
    counters = (e.loops.turns, e.loops.rounds, *e.loops.fairness.values())
    masks = list(e.apart.pending.values())
    for slot in (e.current, *counters, *(() if masks_in_memory(e) else masks)):
        e.store(e.const("i32", 0), slot, 4)
    if masks_in_memory(e):
        for index in e.apart.chain:
            place = WARP.HEADER + 4 * index
            e.line(f"{e.apart.pending[index]} = getelementptr i8, ptr %warp, i64 {place}")
    resume = e.load("i32", e.offset("%warp", WARP.RESUME), 4)
    cases = " ".join(f"i32 {label.split('.')[1]}, label %{label}" for label in e.stops.labels)
    e.line(f"switch i32 {resume.ref}, label %start [ {cases} ]")
    e.place("start")
    for slot in masks if masks_in_memory(e) else ():
        e.store(e.const("i32", 0), slot, 4)
    for name in sorted(e.program.resident):
        e.store(e.zero(e.stored_type(name)), e.registers[name], 64)
    if 0 in e.analysis.divergent:
        e.store(live, e.apart.pending[0], 4)
        e.jump("check.0")
    else:
        e.jump("body.0")


def _write_function(e: Context, pieces: Pieces) -> str:
    _name_places(e, pieces.cut)
    for block in e.program.flow.blocks:
        lower_block(e, block, pieces)
    for target in e.program.flow.loop_end:
        if target in e.apart.pending:
            repeat_loop_apart(e, target)
    if e.apart.chain:
        end_chain(e)
    e.place("leave")
    if e.watched:
        e.watcher.leave(e.load("i32", e.live, 4))
    for label, answer in (("", Answer.EXIT), ("failed", Answer.FAULT), ("stopped", Answer.STOP)):
        if label:
            e.place(label)
        e.line(f"ret i32 {int(answer)}")
    body = e.lines
    e.lines = []
    _enter(e, pieces.cut)
    head = f"define i32 @{e.name}({WARP_PARAMETERS}) nounwind {{"
    return "\n".join([head, "entry:", *e.allocas, *e.lines, *body, "}"])
