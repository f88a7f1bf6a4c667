"""Branches, calls, returns and exits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .errors import Unsupported
from .link import Linked
from .memory import ALL, BASES
from .operands import Reader
from .ptx_types import register_bits
from .registry import EXITED, Control, Threads, allow, control, distinct, expect
from .syntax import Group, Immediate, Instruction, Label, Operand, Register, Symbol, Targets, Variable

if TYPE_CHECKING:
    from .machine import Machine


@control("bra")
def branch(m: Machine, inst: Instruction) -> Control:
    """``bra label``."""
    allow(inst, "uni")
    expect(inst.operands, 1)
    label = inst.operands[0]
    if not isinstance(label, Label):
        raise Unsupported(f"target {label}")
    target = m.binding.start + label.position
    return lambda g, pc: target


@control("brx")
def indexed_branch(m: Machine, inst: Instruction) -> Control:
    """``brx.idx index, targets``."""
    allow(inst, "idx", "uni")
    expect(inst.operands, 2)
    index = m.operands.read(inst.operands[0], "u32")
    listed = inst.operands[1]
    if not isinstance(listed, Targets):
        raise Unsupported(f"targets {listed}")
    targets = np.array([m.binding.start + label.position for label in listed.labels])

    def run(g: Threads, pc: int) -> int | None:
        which = index(g)
        if int(which.max()) >= len(targets):
            thread = int(m.members(g)[int(which.argmax())])
            raise m.fault(inst, thread, f"index {int(which.max())} is past the {len(targets)} targets")
        chosen = targets[which]
        if (chosen == chosen[0]).all():
            return int(chosen[0])
        m.pc[g] = chosen
        return None

    return run


@control("exit")
def leave(m: Machine, inst: Instruction) -> Control:
    """``exit``: the threads are gone; whoever waits for them is looked at again."""
    expect(inst.operands, 0)
    return lambda g, pc: finish(m, g)


def finish(m: Machine, g: Threads) -> None:
    """End threads."""

    m.status[g] = EXITED
    m.barriers.after_exit()
    m.gathering.after_exit()


@control("trap", "brkpt")
def trap(m: Machine, inst: Instruction) -> Control:
    """``trap``."""

    def run(g: Threads, pc: int) -> int | None:
        raise m.fault(inst, int(m.members(g)[0]), "trapped")

    return run


class Call:
    """One call instruction, bound: how arguments go in and results come out."""

    def __init__(
        self, m: Machine, inst: Instruction, returns: list[Operand], arguments: list[Operand]
    ) -> None:
        self.m, self.inst, self.caller = m, inst, m.binding
        self.returns = [x if isinstance(x, Register) else self.offset_of(x) for x in returns]
        self.arguments = [self.value_of(x) for x in arguments]

    def offset_of(self, operand: Operand) -> int:
        """Where a .param variable of the call lies in the caller's frame."""
        if isinstance(operand, Symbol):
            space, offset = self.m.linker.address_of(self.caller, operand.name)
            if space == "local":
                return offset
        raise Unsupported(f"call parameter {operand}")

    def value_of(self, operand: Operand) -> Reader | int:
        """The caller's side of an argument: how to read it, or where it lies in the frame."""
        if isinstance(operand, Register):
            return self.m.operands.read(operand, f"b{register_bits(operand.type)}")
        if isinstance(operand, Immediate):
            return self.m.operands.read(operand, "b64")
        return self.offset_of(operand)

    def copy(self, g: Threads, size: int, source: int, source_frame: int, to: int, to_frame: int) -> None:
        """Move bytes between two frames of each thread's local memory."""
        m = self.m
        memory = m.local.bytes[: m.local.size * m.threads].reshape(m.threads, m.local.size)
        members = m.members(g)
        pointer = m.local_pointer[g].astype(np.int64)
        span = np.arange(size)
        values = memory[members[:, None], (pointer + source_frame + source)[:, None] + span]
        memory[members[:, None], (pointer + to_frame + to)[:, None] + span] = values

    def enter(self, g: Threads, pc: int, callee: Linked) -> int:
        """Push a frame for each thread of the group; the new pc."""
        m = self.m
        function = callee.function
        if len(function.parameters) != len(self.arguments) or len(function.returns) != len(self.returns):
            raise m.fault(self.inst, int(m.members(g)[0]), f"{function.name} takes other parameters")
        room = m.linker.stack_size - self.caller.frame_size - callee.frame_size
        if int(m.local_pointer[g].max()) > room:
            raise m.fault(self.inst, int(m.members(g)[0]), "the call stack is full")
        values = [None if isinstance(a, int) else a(g).copy() for a in self.arguments]
        self.push(g, pc, callee)
        for p, a, value in zip(function.parameters, self.arguments, values, strict=True):
            if isinstance(a, int):
                self.copy(g, p.size, a, 0, callee.frame[p.name], self.caller.frame_size)
            elif p.register is not None:
                row = m.rows[callee.first_slot + p.register.slot]
                row[g] = value
        m.local_pointer[g] += np.uint64(self.caller.frame_size)
        return callee.start

    def push(self, g: Threads, pc: int, callee: Linked) -> None:
        m = self.m
        depth = m.depth[g]
        while len(m.return_to) <= int(depth.max()):
            m.return_to.append(np.zeros(m.threads, np.int64))
            m.saved.append({})
        for level in distinct(depth):
            those = m.members(g)[depth == level]
            m.return_to[level][those] = pc
            if callee.recursive:
                for slot in callee.slots:
                    store = m.saved[level].setdefault(slot, m.rows[slot].copy())
                    store[those] = m.rows[slot][those]
        m.depth[g] += 1

    def leave(self, g: Threads, callee: Linked) -> None:
        """Pop the frame of each thread (all return to this call)."""
        m = self.m
        m.local_pointer[g] -= np.uint64(self.caller.frame_size)
        function = callee.function
        results = [self.result(g, r, a, callee) for r, a in zip(function.returns, self.returns, strict=True)]
        m.depth[g] -= 1
        if callee.recursive:
            depth = m.depth[g]
            for level in distinct(depth):
                those = m.members(g)[depth == level]
                for slot in callee.slots:
                    m.rows[slot][those] = m.saved[level][slot][those]
        for slot, value in results:
            if slot >= 0:
                m.rows[slot][g] = value

    def result(
        self, g: Threads, variable: Variable, to: Register | int, callee: Linked
    ) -> tuple[int, object]:
        m = self.m
        if isinstance(to, int):
            source = callee.frame[variable.name]
            self.copy(g, variable.size, source, self.caller.frame_size, to, 0)
            return -1, None
        if variable.register is None:
            raise m.fault(self.inst, int(m.members(g)[0]), "the result goes nowhere")
        value = m.rows[callee.first_slot + variable.register.slot][g].copy()
        return self.caller.first_slot + to.slot, value


@control("call")
def call(m: Machine, inst: Instruction) -> Control:
    """``call (returns), function, (arguments)``; also through an address."""
    allow(inst, "uni")
    operands = list(inst.operands)
    returns = list(operands.pop(0).items) if isinstance(operands[0], Group) else []  # type: ignore[union-attr]
    target = operands.pop(0)
    arguments = list(operands.pop(0).items) if operands and isinstance(operands[0], Group) else []  # type: ignore[union-attr]
    bound = Call(m, inst, returns, arguments)
    m.call_sites[len(m.code)] = bound
    if isinstance(target, Symbol):
        if target.name in ("vprintf", "__assertfail"):
            return from_outside(m, inst, target.name)
        callee = m.linker.by_name.get(target.name)
        if callee is None or callee.function.code is None:
            raise Unsupported(f"function {target.name} has no body")
        known = callee
        return lambda g, pc: bound.enter(g, pc, known)
    address = m.operands.read(target, "u64")
    starts = {BASES["code"] + f.start: f for f in m.linker.functions}

    def run(g: Threads, pc: int) -> int | None:
        targets = np.broadcast_to(address(g), (m.count(g),))
        for value in distinct(targets):
            those = m.members(g)[targets == value]
            if value not in starts:
                raise m.fault(inst, int(those[0]), f"no function at {value:#x}")
            m.pc[those] = bound.enter(those, pc, starts[value])
        return None

    return run


def from_outside(m: Machine, inst: Instruction, name: str) -> Control:
    """The two system calls that device code makes: printf (says nothing here) and assert."""

    def run(g: Threads, pc: int) -> int | None:
        if name == "__assertfail":
            raise m.fault(inst, int(m.members(g)[0]), "assertion failed")
        return pc + 1

    return run


@control("ret")
def give_back(m: Machine, inst: Instruction) -> Control:
    """``ret``: from a device function to after the call; from an entry it is ``exit``."""
    allow(inst, "uni")
    callee = m.binding
    if callee.function.entry:
        return lambda g, pc: finish(m, g)

    def run(g: Threads, pc: int) -> int | None:
        members = m.members(g)
        sites = np.stack(m.return_to)[m.depth[g] - 1, members]
        for site in distinct(sites):
            those = members[sites == site]
            bound = m.call_sites[site]
            bound.leave(ALL if len(those) == m.threads else those, callee)
            m.pc[those] = site + 1
        return None

    return run
