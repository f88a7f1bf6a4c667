"""Block-wide named barriers: bar / barrier with sync, arrive and red."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import Unsupported
from .operands import Reader
from .ptx_types import Array
from .registry import AT_BARRIER, EXITED, RUNNING, Control, Threads, allow, control, distinct
from .syntax import Instruction

if TYPE_CHECKING:
    from .machine import Machine

BARRIERS = 16


class Barrier:
    """One named barrier in its current phase."""

    def __init__(self, threads: int) -> None:
        self.expected: int | None = None
        self.started = False
        self.arrivals: Array = np.zeros(threads, np.int64)
        self.waiting: Array = np.zeros(threads, bool)
        self.flags: Array = np.zeros(threads, bool)


class Barriers:
    """All barriers of the block."""

    def __init__(self, machine: Machine) -> None:
        self.m = machine
        self.reset()

    def reset(self) -> None:
        """A new block."""
        self.all = [Barrier(self.m.threads) for _ in range(BARRIERS)]
        self.writers: dict[int, Any] = {}

    def arrive(
        self, inst: Instruction, number: int, count: int | None, g: Array, waits: bool, flags: Any = None
    ) -> None:
        """Threads ``g`` arrive at a barrier that expects ``count`` threads, or everybody (None)."""
        barrier = self.all[number]
        if barrier.started and barrier.expected != count:
            raise self.m.fault(
                inst, int(g[0]), f"barrier {number} expects {barrier.expected}, not {count} threads"
            )
        barrier.started, barrier.expected = True, count
        barrier.arrivals[g] += 1
        if waits:
            barrier.waiting[g] = True
            self.m.status[g] = AT_BARRIER
        if flags is not None:
            barrier.flags[g] = flags
        self.try_release(inst, number)

    def arrived(self, barrier: Barrier) -> int:
        """Arrivals; a warp all of whose threads are there or gone counts whole, as on hardware."""

        m = self.m
        padded = np.zeros((m.threads + 31) // 32 * 32, np.int64)
        padded[: m.threads] = barrier.arrivals
        gone = np.ones(len(padded), bool)
        gone[: m.threads] = m.status == EXITED
        gone = gone.reshape(-1, 32) & (padded.reshape(-1, 32) == 0)
        counts = padded.reshape(-1, 32)
        least = np.where(gone, np.iinfo(np.int64).max, counts).min(1)
        whole = (counts > 0).any(1)
        return int((counts.sum(1) + np.where(whole, gone.sum(1) * np.where(whole, least, 0), 0)).sum())

    def try_release(self, inst: Instruction, number: int) -> None:
        """End the phase if everybody expected has arrived."""

        barrier, m = self.all[number], self.m
        if barrier.expected is None:
            alive = m.status != EXITED
            if not (barrier.arrivals[alive] > 0).all():
                return
        else:
            total = self.arrived(barrier)
            if total < barrier.expected:
                return
            if total > barrier.expected:
                thread = int(np.flatnonzero(barrier.arrivals)[0])
                raise m.fault(
                    inst,
                    thread,
                    f"{total} threads arrived at barrier {number}, which expects {barrier.expected}",
                )
        released = np.flatnonzero(barrier.waiting)
        writer = self.writers.pop(number, None)
        if writer is not None:
            writer(barrier, released)
        m.status[released] = RUNNING
        self.all[number] = Barrier(m.threads)

    def after_exit(self) -> None:
        """Exited threads no longer hold up a barrier for everybody."""
        for number, barrier in enumerate(self.all):
            if barrier.started and barrier.waiting.any():
                thread = int(np.flatnonzero(barrier.waiting)[0])
                self.try_release(self.m.instructions[int(self.m.pc[thread]) - 1], number)


def barrier_operands(m: Machine, inst: Instruction, wanted: int) -> tuple[Reader, Reader | None]:
    """Readers of the barrier's number and its optional thread count."""
    operands = inst.operands
    number = m.operands.read(operands[0], "u32")
    return number, m.operands.read(operands[1], "u32") if wanted > 1 else None


def each_barrier(
    m: Machine, inst: Instruction, number: Reader, count: Reader | None, g: Threads
) -> list[tuple[int, int | None, Array]]:
    """The group split by barrier number: (number, count, threads)."""
    members = m.members(g)
    numbers = np.broadcast_to(number(g), members.shape)
    counts = None if count is None else np.broadcast_to(count(g), members.shape)
    found: list[tuple[int, int | None, Array]] = []
    for which in distinct(numbers):
        if which >= BARRIERS:
            raise m.fault(inst, int(members[0]), f"barrier {which}: there are {BARRIERS}")
        here = numbers == which
        if counts is None:
            found.append((which, None, members[here]))
            continue
        for expected in distinct(counts[here]):
            if expected % 32 or expected == 0:
                raise m.fault(inst, int(members[0]), f"barrier for {expected} threads: a multiple of 32")
            found.append((which, expected, members[here & (counts == expected)]))
    return found


@control("bar", "barrier")
def barrier(m: Machine, inst: Instruction) -> Control:
    """bar.sync, bar.arrive, bar.red, bar.warp.sync and their barrier.* spellings."""
    if "warp" in inst.modifiers:
        from .warp_ops import warp_barrier

        return warp_barrier(m, inst)
    allow(inst, "sync", "arrive", "red", "cta", "aligned", "popc", "and", "or")
    if "red" in inst.modifiers:
        return reducing_barrier(m, inst)
    if not 1 <= len(inst.operands) <= 2:
        raise Unsupported(f"{len(inst.operands)} operands")
    waits = "arrive" not in inst.modifiers
    number, count = barrier_operands(m, inst, len(inst.operands))

    def run(g: Threads, pc: int) -> int | None:
        m.pc[g] = pc + 1
        for which, expected, those in each_barrier(m, inst, number, count, g):
            m.barriers.arrive(inst, which, expected, those, waits)
        return None

    return run


def reducing_barrier(m: Machine, inst: Instruction) -> Control:
    """``bar.red.popc.u32 d, a{, b}, p`` and ``bar.red.{and,or}.pred``."""
    kind = "u32" if "popc" in inst.modifiers else "pred"
    write = m.operands.write(inst.operands[0], kind)
    operands = inst.operands[1:]
    flag = m.operands.read(operands[-1], "pred")
    number = m.operands.read(operands[0], "u32")
    count = m.operands.read(operands[1], "u32") if len(operands) > 2 else None

    def finish(barrier: Barrier, released: Array) -> None:
        taking_part = barrier.flags[barrier.arrivals > 0]
        value: Any = int(taking_part.sum())
        if kind == "pred":
            value = bool(taking_part.all() if "and" in inst.modifiers else taking_part.any())
        write(released, value)

    def run(g: Threads, pc: int) -> int | None:
        m.pc[g] = pc + 1
        for which, expected, those in each_barrier(m, inst, number, count, g):
            m.barriers.writers[which] = finish
            m.barriers.arrive(inst, which, expected, those, True, flag(those))
        return None

    return run
