"""Suspending and resuming a warp: which registers are saved, where, and for which of the two builds."""

from __future__ import annotations

from tilewise.emulator.analysis.control_flow import EXIT, Block
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.analysis.shapes import UNIFORM, Analysis
from tilewise.emulator.layout import WARP, Answer
from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.lowering.values import Values, shape_in
from tilewise.emulator.lowering.watch import Watcher
from tilewise.emulator.ptx.syntax import Instruction

__all__ = ["RESUME_APART", "SuspendPoints", "can_diverge", "waiting_blocks"]

# Resume numbers: 0 starts the kernel, 1 goes on where lanes are apart, then come the instructions at which
# the fast build may give up, which both builds number alike, then what each build needs for itself.
RESUME_APART = 1
_FIRST_DEOPT = 2
_MOST_LOCAL_MASKS = 24  # masks of waiting lanes


def can_diverge(program: Program, analysis: Analysis, block: Block) -> bool:
    """Whether lanes may leave a block in different ways."""
    condition = block.terminator.condition
    if condition is None:
        return False
    shape = shape_in(program, analysis, condition)
    return shape is None or not shape.uniform


def waiting_blocks(program: Program, analysis: Analysis) -> list[int]:
    """The blocks that lanes may wait for: those run apart, and those entered from apart."""
    found = set(analysis.divergent)
    for block in program.flow.blocks:
        if block.index in analysis.divergent or can_diverge(program, analysis, block):
            found |= {t for t in block.terminator.targets if t != EXIT}
    return sorted(found)


class SuspendPoints(Values):
    """Stop and resume points of one build."""

    watcher: Watcher | None = None  # of a build that counts or checks

    def __init__(self, program: Program, general: bool, name: str) -> None:
        super().__init__(program, general, name)
        self.resumes: list[str] = []  # labels, each ending in its number
        self.chain: list[int] = []  # blocks that lanes may wait for
        self.pending: dict[int, str] = {}  # block → where the lanes are that wait for it
        self.deopts = self._deopt_points()
        self._numbers = _FIRST_DEOPT + len(self.deopts)

    def _deopt_points(self) -> dict[int, tuple[int, int]]:
        """Guarded instructions by id → (resume number, position in the block)."""
        points: dict[int, tuple[int, int]] = {}
        number = _FIRST_DEOPT
        for block in self.program.flow.blocks:
            for position, instruction in enumerate(block.instructions):
                if id(instruction) in self.program.deopts:
                    points[id(instruction)] = (number, position)
                    number += 1
        return points

    @property
    def masks_in_memory(self) -> bool:
        """Whether lanes may wait for more blocks than a CPU has registers for their masks.

        All those masks live throughout; it takes LLVM long to find each of them a place at every block.
        They are then in the warp's memory all the time.
        """
        return len(self.chain) > _MOST_LOCAL_MASKS

    def new_resume(self) -> int:
        self._numbers += 1
        return self._numbers

    def live_at(self, block: Block, position: int) -> set[str]:
        """Registers to save when the warp stops before an instruction of a block."""
        live = self.program.liveness.before(block, position)
        return live | self.live_apart() if block.index in self.analysis.divergent else live

    def live_apart(self) -> set[str]:
        """Registers to save when the warp stops while its lanes are apart."""
        return set().union(*(self.program.liveness.entry[index] for index in self.chain))

    def stop(self, answer: Answer, number: int, names: set[str], to: Analysis | None = None) -> None:
        """Save registers and return; ``to`` is the build that goes on, if it is not this one."""
        for name in sorted(names - self.program.resident):
            self.keep(name, self.registers[name], to or self.analysis)
        self.keep_lanes(to)
        self.store(self.const("i32", number), self.offset("%warp", WARP.RESUME), 4)
        self.line(f"ret i32 {int(answer)}")

    def keep(self, name: str, place: str, to: Analysis) -> None:
        """Copy a register to the warp's memory, as the build with an analysis expects it there."""
        value = self.load(self.stored_type(name), place, 4)
        if to.shapes.get(name, UNIFORM) is None:
            value = self.expand(value, self.analysis.shapes.get(name, UNIFORM))
        if value.type == vector("i1"):
            value = self.bits(value)
        self.store(value, self.offset("%warp", self.program.slots[name]), 64)

    def keep_lanes(self, to: Analysis | None) -> None:
        """Keep which lanes run here and which wait for other blocks."""
        for index in () if self.masks_in_memory else self.chain:
            self.store(self.load("i32", self.pending[index], 4), self.pending_slot(index), 4)
        if to is not None:
            for index in sorted(set(waiting_blocks(self.program, to)) - set(self.chain)):
                self.store(self.const("i32", 0), self.pending_slot(index), 4)
        current = self.load("i32", self.current, 4)
        self.store(current, self.offset("%warp", WARP.PENDING), 4)

    def pending_slot(self, index: int) -> str:
        return self.offset("%warp", WARP.HEADER + 4 * index)

    def resume(self, number: int, names: set[str], to: str, from_fast: bool = False) -> None:
        """The point where a suspended warp goes on: load its registers."""
        label = f"resume.{number}"
        self.resumes.append(label)
        self.place(label)
        for name in sorted(names - self.program.resident):
            type_ = self.stored_type(name)
            place = self.offset("%warp", self.program.slots[name])
            if type_ == vector("i1"):
                value = self.bits(self.load("i32", place, 64))
            else:
                value = self.load(type_, place, 64)
            self.store(value, self.registers[name], 4)
        for index in () if self.masks_in_memory else self.chain:
            self.store(self.load("i32", self.pending_slot(index), 4), self.pending[index], 4)
        current = self.load("i32", self.offset("%warp", WARP.PENDING), 4)
        if from_fast and self.is_apart:
            # The fast build may have run this block together: then all lanes are here.
            live = self.load("i32", self.live, 4)
            none = self.compare("icmp eq", current, self.const("i32", 0))
            current = self.select(none, live, current)
        self.store(current, self.current, 4)
        self.jump(to)

    def guard_lanes(self, instruction: Instruction, holds: Value) -> None:
        """Go on in the general build unless ``holds``: the lanes' values do not have the shape that the fast build
        assumes."""
        number, position = self.deopts[id(instruction)]
        on, off = self.label("as"), self.label("not")
        self.branch(holds, on, off, likely=True)
        self.place(off)
        if self.watcher:
            self.watcher.hand_over(instruction)
        if not self.is_apart:
            self.store(self.const("i32", 0), self.current, 4)
        self.stop(Answer.DEOPT, number, self.live_at(self.block, position), self.program.general)
        self.place(on)
