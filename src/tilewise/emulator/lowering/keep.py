"""Stopping a warp and going on: which registers are kept, where, and for which of the two builds."""

from __future__ import annotations

from tilewise.emulator.analysis.flow import EXIT, Block
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.analysis.shapes import UNIFORM, Analysis
from tilewise.emulator.layout import WARP, Answer
from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.lowering.values import Values, shape_in
from tilewise.emulator.lowering.watch import Watcher
from tilewise.emulator.ptx.syntax import Instruction

__all__ = ["APART", "Keeping", "chain_of", "parts"]

# Resume numbers: 0 starts the kernel, 1 goes on where lanes are apart, then come the instructions at which
# the fast build may give up, which both builds number alike, then what each build needs for itself.
APART = 1
_FIRST_DEOPT = 2
_AT_HAND = 24  # masks of waiting lanes


def parts(program: Program, analysis: Analysis, block: Block) -> bool:
    """Whether lanes may leave a block in different ways."""
    condition = block.terminator.condition
    if condition is None:
        return False
    shape = shape_in(program, analysis, condition)
    return shape is None or not shape.uniform


def chain_of(program: Program, analysis: Analysis) -> list[int]:
    """The blocks that lanes may wait for: those run apart, and those that lanes come to from apart."""
    found = set(analysis.divergent)
    for block in program.flow.blocks:
        if block.index in analysis.divergent or parts(program, analysis, block):
            found |= {t for t in block.terminator.targets if t != EXIT}
    return sorted(found)


class Keeping(Values):
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
    def many(self) -> bool:
        """Whether lanes may wait for more blocks than a CPU can do well to keep at hand.

        All those masks live throughout; it takes LLVM long to find each of them a place at every block.
        They are then in the warp's memory all the time.
        """
        return len(self.chain) > _AT_HAND

    def new_resume(self) -> int:
        self._numbers += 1
        return self._numbers

    def needed(self, block: Block, position: int) -> set[str]:
        """Registers to keep when the warp stops before an instruction of a block."""
        needed = self.program.liveness.before(block, position)
        return needed | self.needed_apart() if block.index in self.analysis.divergent else needed

    def needed_apart(self) -> set[str]:
        return set().union(*(self.program.liveness.entry[index] for index in self.chain))

    def stop(self, answer: Answer, number: int, names: set[str], to: Analysis | None = None) -> None:
        """Keep what is needed and return; ``to`` is the build that goes on, if it is not this one."""
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
        for index in () if self.many else self.chain:
            self.store(self.load("i32", self.pending[index], 4), self.pending_slot(index), 4)
        if to is not None:
            for index in sorted(set(chain_of(self.program, to)) - set(self.chain)):
                self.store(self.const("i32", 0), self.pending_slot(index), 4)
        current = self.load("i32", self.current, 4)
        self.store(current, self.offset("%warp", WARP.PENDING), 4)

    def pending_slot(self, index: int) -> str:
        return self.offset("%warp", WARP.HEADER + 4 * index)

    def resume(self, number: int, names: set[str], to: str, from_fast: bool = False) -> None:
        """The point where a warp that stopped goes on."""
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
        for index in () if self.many else self.chain:
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
        """Go on in the general build unless ``holds``: the lanes are not where the shape says."""
        number, position = self.deopts[id(instruction)]
        on, off = self.label("as"), self.label("not")
        self.branch(holds, on, off, likely=True)
        self.place(off)
        if self.watcher:
            self.watcher.hand_over(instruction)
        if not self.is_apart:
            self.store(self.const("i32", 0), self.current, 4)
        self.stop(Answer.DEOPT, number, self.needed(self.block, position), self.program.general)
        self.place(on)
