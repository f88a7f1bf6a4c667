"""One launch: links the code, holds the state of one block at a time, and decides who runs next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .async_ops import AsynchronousCopies
from .barriers import Barriers
from .errors import Deadlock, Fault, LimitReached, Unsupported
from .link import Linked, Linker
from .memory import ALL, BASES, BadAddress, LocalSpace, Memory, ParameterSpace, SharedSpace
from .operands import Operands
from .ptx_types import UNSIGNED, Array, register_bits
from .registry import CONTROLS, EXITED, OPERATIONS, RUNNING, Control, Threads
from .specials import special_registers
from .syntax import Instruction, Register
from .warp_ops import Gathering

# Steps that a group may run: while others stand elsewhere, and otherwise.
FAIRNESS, PATIENCE = 1000, 50_000
FAR = 1 << 40


@dataclass
class Options:
    """How to run; every combination must give a correct program the same results."""

    schedule: str = "lowest"
    seed: int = 0
    asynchronous: str = "late"
    limit: int = 1_000_000_000
    blocks: str = "in-order"
    poison: int = 0xCD

    def __post_init__(self) -> None:
        for name, value, known in (
            ("schedule", self.schedule, ("lowest", "thread", "random")),
            ("asynchronous", self.asynchronous, ("late", "eager")),
            ("blocks", self.blocks, ("in-order", "reversed", "random")),
        ):
            if value not in known:
                raise ValueError(f"{name}={value!r}: one of {', '.join(known)}")


@dataclass
class Counts:
    """What a launch executed."""

    steps: int = 0
    thread_instructions: int = 0


class Machine:
    """The state of a launch; instructions are bound to it once and then run for groups of threads."""

    def __init__(
        self,
        linker: Linker,
        memory: Memory,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        parameters: bytes,
        options: Options,
    ) -> None:
        self.linker, self.options = linker, options
        self.grid, self.block = grid, block
        self.threads = block[0] * block[1] * block[2]
        self.global_memory = memory
        self.constants = linker.constants
        self.parameters = ParameterSpace(len(parameters), BASES["param"])
        self.parameters.bytes[: len(parameters)] = np.frombuffer(parameters, np.uint8)
        self.shared = SharedSpace(linker.shared_size)
        self.local = LocalSpace(linker.local_size, self.threads)
        self.random = np.random.default_rng(options.seed)
        self.counts = Counts()
        self.clock_reads = 0
        self.index = (0, 0, 0)
        self.new_state()
        self.operands = Operands(self)
        self.specials = special_registers(self)
        self.barriers = Barriers(self)
        self.gathering = Gathering(self)
        self.asynchronous = AsynchronousCopies(self)
        self.call_sites: dict[int, Any] = {}
        self.bind()

    def new_state(self) -> None:
        n = self.threads
        self.ids: Array = np.arange(n)
        self.warp: Array = self.ids // 32
        self.lane: Array = self.ids % 32
        self.pc: Array = np.zeros(n, np.int64)
        self.status: Array = np.zeros(n, np.uint8)
        self.depth: Array = np.zeros(n, np.int64)
        self.local_pointer: Array = np.zeros(n, np.uint64)
        self.carry: Array = np.zeros(n, np.uint64)
        self.return_to: list[Array] = []
        self.saved: list[dict[int, Array]] = []
        self.rows: list[Array] = []
        for name in self.linker.register_types:
            bits = register_bits(name)
            self.rows.append(np.zeros(n, np.bool_ if bits == 1 else UNSIGNED[bits]))

    # -- what the instructions ask -----------------------------------------------------------------

    def row(self, register: Register) -> Array:
        """The values of a register over all threads."""
        return self.rows[self.binding.first_slot + register.slot]

    def count(self, g: Threads) -> int:
        """Number of threads in a group."""
        return self.threads if g is ALL else len(g)

    def members(self, g: Threads) -> Array:
        """Thread indices of a group."""
        return self.ids if g is ALL else g

    def special(self, name: str) -> Any:
        if name not in self.specials:
            raise Unsupported(f"special register {name}")
        return self.specials[name]

    def address_of(self, name: str) -> tuple[str, int]:
        """Space and address of a variable, parameter or function seen from the function being bound."""
        return self.linker.address_of(self.binding, name)

    def where(self, thread: int) -> str:
        """A thread's coordinates, for messages."""
        x, y = self.block[0], self.block[1]
        at = (thread % x, thread // x % y, thread // (x * y))
        return f"block {self.index} thread {at}"

    def fault(self, inst: Instruction, thread: int, why: str) -> Fault:
        return Fault(f"PTX line {inst.line}: {inst.text}: {self.where(thread)}: {why}")

    # -- code --------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Turn every instruction into a closure over this machine's arrays."""
        self.code: list[Any] = []
        self.is_control: list[bool] = []
        self.instructions: list[Instruction] = []
        for linked in self.linker.functions:
            self.binding: Linked = linked
            for inst in linked.instructions:
                self.bind_one(inst)

    def bind_one(self, inst: Instruction) -> None:
        self.instructions.append(inst)
        try:
            if inst.name in CONTROLS:
                step: Any = CONTROLS[inst.name](self, inst)
                run: Any = self.predicated_control(inst, step) if inst.predicate else step
            elif inst.name in OPERATIONS:
                step = OPERATIONS[inst.name](self, inst)
                run = self.predicated(inst, step) if inst.predicate else step
            else:
                raise Unsupported("unknown instruction")
            self.is_control.append(inst.name in CONTROLS)
        except Unsupported as reason:
            # Raised only when reached: real modules carry paths (printf, trap) that a launch never takes.
            message = f"PTX line {inst.line}: {inst.text}: {reason}"

            def run(g: Threads, pc: int = 0) -> int | None:
                raise Unsupported(message)

            self.is_control.append(False)
        self.code.append(run)

    def chosen(self, inst: Instruction) -> Any:
        """A function from a group to (those whose predicate holds, the others); None for nobody."""
        assert inst.predicate is not None
        row, negated, ids = self.row(inst.predicate), inst.negated, self.ids

        def choose(g: Threads) -> tuple[Threads, Threads]:
            flags = ~row[g] if negated else row[g]
            if flags.all():
                return g, None
            if not flags.any():
                return None, g
            members = ids if g is ALL else g
            return members[flags], members[~flags]

        return choose

    def predicated(self, inst: Instruction, step: Any) -> Any:
        choose = self.chosen(inst)

        def run(g: Threads) -> None:
            those, _ = choose(g)
            if those is not None:
                step(those)

        return run

    def predicated_control(self, inst: Instruction, step: Control) -> Control:
        choose = self.chosen(inst)
        pcs = self.pc

        def run(g: Threads, pc: int) -> int | None:
            those, others = choose(g)
            if those is None:
                return pc + 1
            if others is None:
                return step(those, pc)
            pcs[others] = pc + 1
            target = step(those, pc)
            if target is not None:
                pcs[those] = target
            return None

        return run

    # -- running -----------------------------------------------------------------------------------

    def run(self) -> Counts:
        """All blocks, one after another."""
        gx, gy, gz = self.grid
        order: Any = np.arange(gx * gy * gz)
        if self.options.blocks == "reversed":
            order = order[::-1]
        elif self.options.blocks == "random":
            order = self.random.permutation(order)
        with np.errstate(all="ignore"):
            for number in order.tolist():
                self.index = (number % gx, number // gx % gy, number // (gx * gy))
                self.run_block()
        return self.counts

    def reset(self) -> None:
        """A fresh block: nothing survives from the one before."""
        poison = self.options.poison
        for space in (self.shared, self.local):
            space.bytes[:] = poison
        for row in self.rows:
            row.view(np.uint8)[:] = 0 if row.dtype == np.bool_ else poison
        self.pc[:] = self.linker.entry.start
        self.status[:] = RUNNING
        self.depth[:] = 0
        self.local_pointer[:] = 0
        self.barriers.reset()
        self.asynchronous.reset()

    def run_block(self) -> None:
        self.reset()
        schedule = {"lowest": self.lowest, "thread": self.one_thread, "random": self.any_group}
        choose = schedule[self.options.schedule]
        self.current, self.tired = 0, False
        while True:
            running = self.status == RUNNING
            if not running.any():
                if (self.status == EXITED).all():
                    break
                raise Deadlock(self.who_waits())
            group, pc, stop, budget = choose(running)
            self.burst(group, pc, stop, budget)
        self.asynchronous.finish_block()

    def burst(self, g: Threads, pc: int, stop: int, budget: int) -> None:
        """Run a group from ``pc`` until it parts, waits, reaches ``stop`` or has spent its budget."""
        code, is_control = self.code, self.is_control
        left = budget
        try:
            while True:
                left -= 1
                if is_control[pc]:
                    target = code[pc](g, pc)
                    if target is None:
                        break
                    pc = target
                else:
                    code[pc](g)
                    pc += 1
                if pc >= stop or left <= 0:
                    self.pc[g] = pc
                    break
        except BadAddress as bad:
            thread = int(self.members(bad.group)[bad.at])
            inst = self.instructions[pc]
            raise self.fault(inst, thread, f"address {bad.address:#x} {bad.why}") from None
        finally:
            self.counts.steps += budget - left
            self.counts.thread_instructions += (budget - left) * self.count(g)
        self.tired = left <= 0
        if self.counts.thread_instructions > self.options.limit:
            raise LimitReached(f"more than {self.options.limit} instructions executed by threads")

    def who_waits(self) -> str:
        """The deadlock report."""
        found = []
        for pc in np.unique(self.pc[self.status != EXITED]).tolist():
            inst = self.instructions[pc - 1]
            waiting = np.flatnonzero((self.pc == pc) & (self.status != EXITED))
            first = self.where(int(waiting[0]))
            found.append(f"{len(waiting)} threads (first: {first}) wait at PTX line {inst.line}: {inst.text}")
        return "no thread can go on: " + "; ".join(found)

    # -- who runs next -----------------------------------------------------------------------------

    def lowest(self, running: Array) -> tuple[Threads, int, int, int]:
        """Everybody at the lowest pc, as one group; it stops where others stand, to join them."""
        pcs = self.pc[running]
        # NOTE: a group that spins for long while others stand higher gives way to some other group, or a spin
        # loop waiting for those others would never end.
        pc = int(self.random.choice(np.unique(pcs))) if self.tired else int(pcs.min())
        mine = running & (self.pc == pc)
        group = ALL if mine.all() else np.flatnonzero(mine)
        if (pcs == pc).all():
            return group, pc, FAR, PATIENCE
        above = pcs[pcs > pc]
        return group, pc, int(above.min()) if len(above) else FAR, FAIRNESS

    def one_thread(self, running: Array) -> tuple[Threads, int, int, int]:
        """The first thread that can run, until it waits; one that runs for very long gives way."""
        able = np.flatnonzero(running)
        if self.tired:
            able = np.roll(able, -int(np.searchsorted(able, self.current, "right")))
        self.current = int(able[0])
        return self.ids[self.current : self.current + 1], int(self.pc[self.current]), FAR, PATIENCE

    def any_group(self, running: Array) -> tuple[Threads, int, int, int]:
        """Those of one warp's threads that share a pc."""
        able = np.flatnonzero(running)
        warp = self.random.choice(np.unique(self.warp[able]))
        able = able[self.warp[able] == warp]
        pc = int(self.random.choice(np.unique(self.pc[able])))
        # Mostly a few instructions; now and then many, so that one warp gets far ahead of the others.
        steps = self.random.integers(1, 24) if self.random.random() < 0.9 else 2000
        return able[self.pc[able] == pc], pc, FAR, int(steps)
