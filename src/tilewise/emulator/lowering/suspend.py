"""Suspending and resuming a warp: which registers are saved, where, and for which of the two builds."""

from __future__ import annotations

from tilewise.emulator.analysis.control_flow import EXIT, Block
from tilewise.emulator.analysis.shapes import UNIFORM, Analysis
from tilewise.emulator.layout import WARP, Answer
from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.values import expand
from tilewise.emulator.ptx.syntax import Instruction

__all__ = [
    "RESUME_APART",
    "can_diverge",
    "guard_lanes",
    "keep",
    "keep_lanes",
    "live_apart",
    "live_at",
    "masks_in_memory",
    "new_resume",
    "number_deopts",
    "resume",
    "stop",
    "waiting_blocks",
]

# Resume numbers: 0 starts the kernel, 1 goes on where lanes are apart, then come the instructions at which
# the fast build may give up, which both builds number alike, then what each build needs for itself.
RESUME_APART = 1
_FIRST_DEOPT = 2
_MOST_LOCAL_MASKS = 24  # masks of waiting lanes


def can_diverge(analysis: Analysis, block: Block) -> bool:
    """Whether lanes may leave a block in different ways."""
    condition = block.terminator.condition
    return condition is not None and not analysis.is_uniform(condition)


def waiting_blocks(analysis: Analysis) -> list[int]:
    """The blocks that lanes may wait for: those run apart, and those entered from apart."""
    found = set(analysis.divergent)
    for block in analysis.flow.blocks:
        if block.index in analysis.divergent or can_diverge(analysis, block):
            found |= {t for t in block.terminator.targets if t != EXIT}
    return sorted(found)


def number_deopts(e: Context) -> None:
    """Give each instruction at which the fast build may give up its number."""
    number = _FIRST_DEOPT
    for block in e.program.flow.blocks:
        for position, instruction in enumerate(block.instructions):
            if id(instruction) in e.program.deopts:
                e.stops.deopts[id(instruction)] = (number, position)
                number += 1
    e.stops.last_number = number


def masks_in_memory(e: Context) -> bool:
    """Whether lanes may wait for more blocks than a CPU has registers for their masks.

    All those masks live throughout; it takes LLVM long to find each of them a place at every block.
    They are then in the warp's memory all the time.
    """
    return len(e.apart.chain) > _MOST_LOCAL_MASKS


def new_resume(e: Context) -> int:
    e.stops.last_number += 1
    return e.stops.last_number


def live_at(e: Context, block: Block, position: int) -> set[str]:
    """Registers to save when the warp stops before an instruction of a block."""
    live = e.program.liveness.before(block, position)
    return live | live_apart(e) if block.index in e.analysis.divergent else live


def live_apart(e: Context) -> set[str]:
    """Registers to save when the warp stops while its lanes are apart."""
    return set().union(*(e.program.liveness.entry[index] for index in e.apart.chain))


def stop(e: Context, answer: Answer, number: int, names: set[str], to: Analysis | None = None) -> None:
    """Save registers and return; ``to`` is the build that goes on, if it is not this one."""
    if e.stops.hand_over is not None:  # in a piece, which is left for the general build alone
        assert to is e.program.general and answer == Answer.DEOPT
        e.stops.hand_over(number, names)
        return
    for name in sorted(names - e.program.resident):
        keep(e, name, e.registers[name], to or e.analysis)
    keep_lanes(e, to)
    e.store(e.const("i32", number), e.offset("%warp", WARP.RESUME), 4)
    e.line(f"ret i32 {int(answer)}")


def keep(e: Context, name: str, place: str, to: Analysis) -> None:
    """Copy a register to the warp's memory, as the build with an analysis expects it there."""
    value = e.load(e.stored_type(name), place, 4)
    if to.shapes.get(name, UNIFORM) is None:
        value = expand(e, value, e.analysis.shapes.get(name, UNIFORM))
    if value.type == vector("i1"):
        value = e.bits(value)
    e.store(value, e.offset("%warp", e.program.slots[name]), 64)


def keep_lanes(e: Context, to: Analysis | None) -> None:
    """Keep which lanes run here and which wait for other blocks."""
    for index in () if masks_in_memory(e) else e.apart.chain:
        e.store(e.load("i32", e.apart.pending[index], 4), pending_slot(e, index), 4)
    if to is not None:
        for index in sorted(set(waiting_blocks(to)) - set(e.apart.chain)):
            e.store(e.const("i32", 0), pending_slot(e, index), 4)
    e.store(e.load("i32", e.current, 4), e.offset("%warp", WARP.PENDING), 4)


def pending_slot(e: Context, index: int) -> str:
    return e.offset("%warp", WARP.HEADER + 4 * index)


def resume(e: Context, number: int, names: set[str], to: str, from_fast: bool = False) -> None:
    """The point where a suspended warp goes on: load its registers."""
    label = f"resume.{number}"
    e.stops.labels.append(label)
    e.place(label)
    for name in sorted(names - e.program.resident):
        type_ = e.stored_type(name)
        packed = type_ == vector("i1")  # as the bits of one number
        value = e.load("i32" if packed else type_, e.offset("%warp", e.program.slots[name]), 64)
        e.store(e.bits(value) if packed else value, e.registers[name], 4)
    for index in () if masks_in_memory(e) else e.apart.chain:
        e.store(e.load("i32", pending_slot(e, index), 4), e.apart.pending[index], 4)
    current = e.load("i32", e.offset("%warp", WARP.PENDING), 4)
    if from_fast and e.is_apart:
        # The fast build may have run this block together: then all lanes are here.
        live = e.load("i32", e.live, 4)
        none = e.equals(current, 0)
        current = e.select(none, live, current)
    e.store(current, e.current, 4)
    e.jump(to)


def guard_lanes(e: Context, instruction: Instruction, holds: Value) -> None:
    """Go on in the general build unless ``holds``: values do not have the shape that this one assumes."""
    number, position = e.stops.deopts[id(instruction)]
    with e.unless(holds, likely=True):
        e.watcher.hand_over(instruction)
        if not e.is_apart:
            e.store(e.const("i32", 0), e.current, 4)
        stop(e, Answer.DEOPT, number, live_at(e, e.block, position), e.program.general)
