"""cp.async: copies that a thread starts and later waits for.

``asynchronous="late"``: a copy happens only when its thread waits for it; until then its destination holds
poison, so that reading too early shows. ``"eager"``: it happens at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .errors import Unsupported
from .memory_ops import Access
from .ptx_types import Array
from .registry import Operation, Threads, allow, expect, operation
from .syntax import Immediate, Instruction, Operand

if TYPE_CHECKING:
    from .machine import Machine


@dataclass
class Copies:
    """The copies one instruction started, one row per thread."""

    threads: Array
    group: Array
    size: int
    destination: Array
    source: Array
    taken: Array
    done: Array


class AsynchronousCopies:
    """Copies under way in the block."""

    def __init__(self, machine: Machine) -> None:
        self.m = machine
        self.reset()

    def reset(self) -> None:
        """A new block."""
        self.pending: list[Copies] = []
        self.committed: Array = np.zeros(self.m.threads, np.int64)

    def start(self, copies: Copies) -> None:
        """Issue: poison the destination, or copy at once."""
        if self.m.options.asynchronous == "eager":
            self.perform(copies, np.ones(len(copies.threads), bool))
            return
        # All ones is NaN in every float format.
        span = np.arange(copies.size)
        self.m.shared.bytes[copies.destination[:, None] + span] = 0xFF
        self.pending.append(copies)

    def perform(self, copies: Copies, those: Array) -> None:
        """Copy ``taken`` bytes and fill the rest with zeros."""
        span = np.arange(copies.size)
        inside = span < copies.taken[those, None]
        # NOTE: bytes beyond the source size are not read, so their addresses need not exist.
        at = np.where(inside, copies.source[those, None] + span, 0)
        values = np.where(inside, self.m.global_memory.bytes[at], 0).astype(np.uint8)
        self.m.shared.bytes[copies.destination[those, None] + span] = values
        copies.done[those] = True

    def wait(self, g: Threads, newest_left: int) -> None:
        """Finish each thread's committed copies but those of its ``newest_left`` last groups."""
        m = self.m
        waiting = np.zeros(m.threads, bool)
        waiting[g] = True
        for copies in self.pending:
            ripe = waiting[copies.threads] & ~copies.done
            ripe &= copies.group < self.committed[copies.threads] - newest_left
            if ripe.any():
                self.perform(copies, ripe)
        self.pending = [copies for copies in self.pending if not copies.done.all()]

    def finish_block(self) -> None:
        """Nobody waited: the copies still happen, and nobody can see them."""
        self.pending = []


@operation("cp")
def copy_async(m: Machine, inst: Instruction) -> Operation:
    """The non-bulk cp.async family."""
    if not inst.modifiers or inst.modifiers[0] != "async":
        raise Unsupported("cp other than cp.async")
    if "commit_group" in inst.modifiers:
        allow(inst, "async", "commit_group")
        return lambda g: commit(m, g)
    if "wait_all" in inst.modifiers:
        allow(inst, "async", "wait_all")

        def wait_all(g: Threads) -> None:
            commit(m, g)
            m.asynchronous.wait(g, 0)

        return wait_all
    if "wait_group" in inst.modifiers:
        allow(inst, "async", "wait_group")
        operand = inst.operands[0]
        if not isinstance(operand, Immediate):
            raise Unsupported("wait_group needs a literal")
        left = operand.value
        return lambda g: m.asynchronous.wait(g, left)
    return issue(m, inst)


def commit(m: Machine, g: Threads) -> None:
    """Close the current group of each thread."""
    m.asynchronous.committed[g] += 1


def issue(m: Machine, inst: Instruction) -> Operation:
    """``cp.async.{ca,cg}.shared.global [dst], [src], size{, src-size or ignore-src}``."""
    hints = ("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B")
    allow(inst, "async", "ca", "cg", "shared", "shared::cta", "global", *hints)
    operands: list[Operand] = list(inst.operands)
    if "L2::cache_hint" in inst.modifiers:
        operands.pop()
    expect(operands, 3, 4)
    size = operands[2].value if isinstance(operands[2], Immediate) else 0
    if size not in ((16,) if "cg" in inst.modifiers else (4, 8, 16)):
        raise Unsupported(f"a copy of {size} bytes")
    to, source = Access(m, "shared", operands[0]), Access(m, "global", operands[1])
    taken_reader = None
    if len(operands) > 3:
        ignore = not isinstance(operands[3], Immediate) and getattr(operands[3], "type", "") == "pred"
        taken_reader = m.operands.read(operands[3], "pred" if ignore else "u32")

    def run(g: Threads) -> None:
        count = m.count(g)
        taken = np.full(count, size, np.int64)
        if taken_reader is not None:
            given = np.broadcast_to(taken_reader(g), (count,))
            taken = np.where(given, 0, size) if given.dtype == np.bool_ else given.astype(np.int64)
        if int(taken.max()) > size:
            thread = int(m.members(g)[int(taken.argmax())])
            raise m.fault(inst, thread, f"source size {int(taken.max())} is more than {size}")
        destination = m.shared.locate(to.address(g), size, g).astype(np.int64)
        members = m.members(g)
        start = np.zeros(count, np.int64)
        reads = taken > 0
        if reads.any():
            addresses, readers = source.address(g)[reads], members[reads]
            if (taken[reads] == size).all():
                start[reads] = m.global_memory.locate(addresses, size, readers).astype(np.int64)
            else:
                last = addresses + (taken[reads] - 1).astype(np.uint64)
                m.global_memory.locate(last, 1, readers)
                start[reads] = m.global_memory.locate(addresses, 1, readers).astype(np.int64)
        group = m.asynchronous.committed[members].copy()
        m.asynchronous.start(Copies(members, group, size, destination, start, taken, np.zeros(count, bool)))

    return run
