"""Barriers of a block or a cluster: ``bar`` and ``barrier``, whole or counted, with a vote or not."""

from __future__ import annotations

from tilewise.emulator.layout import BARRIERS, WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.tables import (
    check_operand_count,
    effect,
    refuse_other_forms,
    unsupported,
    waits,
)
from tilewise.emulator.lowering.values import read, write
from tilewise.emulator.operations.operation import BarrierUse
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Instruction, Operand, Register

__all__: list[str] = []

_OF_CLUSTER = "it is barrier.cluster.arrive or barrier.cluster.wait"
_VOTES = ("popc", "and", "or")
_WRONG = 1  # a count of threads that no barrier can have


refuse_other_forms("barrier.cluster", _OF_CLUSTER)

# ``barrier`` is newer than ``bar``; all lanes of a warp run it together where it says ``.aligned``.
_BAR = {"has_result": False, "gathers": "always"}
_BARRIER = {"has_result": False, "gathers": "where aligned", "ptx": "6.0", "arch": "sm_30"}
_VOTE, _ARRIVAL = BarrierUse("block", number=1, votes=True), BarrierUse("block", waits=False)


@waits("bar.sync", "bar.cta.sync", **_BAR, waits_for="block", barrier=BarrierUse("block"), ptx="1.0")
@waits("bar.red", "bar.cta.red", **_BAR, waits_for="block", barrier=_VOTE, ptx="2.0", arch="sm_20")
@waits("bar.arrive", "bar.cta.arrive", **_BAR, barrier=_ARRIVAL, ptx="2.0", arch="sm_20")
@waits("barrier.sync", "barrier.cta.sync", **_BARRIER, waits_for="block", barrier=BarrierUse("block"))
@waits("barrier.red", "barrier.cta.red", **_BARRIER, waits_for="block", barrier=_VOTE)
@waits("barrier.arrive", "barrier.cta.arrive", **_BARRIER, barrier=_ARRIVAL)
def arrive(e: Context, instruction: Instruction) -> Value:
    """Arrive at a barrier: 0 if it lets the lanes through now, 1 if they must wait, 2 if it is wrong."""
    if "cluster" in instruction.parts:
        raise unsupported(instruction, _OF_CLUSTER)
    use = operation_of(instruction).barrier
    assert use is not None
    operands = list(instruction.operands)
    vote: Value | int = 0
    if use.votes:
        vote = _vote(e, instruction, operands.pop())
        operands.pop(0)
    elif not use.waits and len(operands) < 2:
        raise unsupported(instruction, "who arrives and does not wait has to say how many threads it is for")
    number, count = _numbers(e, operands)
    waits = 0 if not use.waits else 2 if e.is_apart else 1
    given = (number, count, waits, e.mask(), vote, instruction.line)
    return e.call("tw_barrier", "i32", *e.pointers(), *given)


def _vote(e: Context, instruction: Instruction, operand: Operand) -> Value:
    if not any(word in instruction.parts for word in _VOTES):
        raise unsupported(instruction, "the vote must be popc, and or or")
    predicate = e.splat(read(e, operand, "pred", True))
    return e.bits(predicate)


def _numbers(e: Context, operands: list[Operand]) -> tuple[Value, Value | int]:
    """The barrier's number and its count of threads (0: all)."""
    if not 1 <= len(operands) <= 2:
        raise unsupported(e.now, "it takes a barrier and a count")
    number = _one_of_all(e, operands[0], BARRIERS)
    if len(operands) < 2:
        return number, 0
    count = _one_of_all(e, operands[1], _WRONG)
    return number, e.select(e.equals(count, 0), _WRONG, count)


def _one_of_all(e: Context, operand: Operand, wrong: int) -> Value:
    """A number that all lanes must agree on; where they do not, one that no barrier can have."""
    if e.analysis.is_uniform(operand):
        return read(e, operand, "u32", False)
    values = read(e, operand, "u32", True)
    first = e.first_lane(values)
    other = e.op("and", e.bits(e.differs(values, e.splat(first))), e.mask())
    return e.select(e.equals(other, 0), first, wrong)


@waits(
    "barrier.cluster.arrive",
    has_result=False,
    gathers="where aligned",
    barrier=BarrierUse("cluster", waits=False),
    ptx="7.8",
    arch="sm_90",
)
@waits(
    "barrier.cluster.wait",
    has_result=False,
    gathers="where aligned",
    waits_for="cluster",
    barrier=BarrierUse("cluster", arrives=False),
    ptx="7.8",
    arch="sm_90",
)
def cluster_barrier(e: Context, instruction: Instruction) -> Value:
    """Arrive at the cluster's barrier or wait at it: 0 to go on, 1 to wait, 2 if it is wrong."""
    check_operand_count(instruction, 0)
    parts = [part for part in instruction.parts if part != "aligned"]
    forms = {"arrive": ((), ("release",), ("relaxed",)), "wait": ((), ("acquire",))}
    kind = parts[1]
    if tuple(parts[2:]) not in forms[kind]:
        raise unsupported(instruction, _OF_CLUSTER)
    return e.call(f"tw_cluster_{kind}", "i32", *e.pointers(), e.mask(), instruction.line)


@effect("barrier.arrive", "barrier.cta.arrive", "barrier.cluster.arrive")
def arrive_and_go_on(e: Context, instruction: Instruction) -> None:
    """What does not stop the warp, where its lanes do not have to come together."""
    lower = operation_of(instruction).wait
    assert lower is not None
    answer = lower(e, instruction)
    good = e.label("good")
    e.branch(e.equals(answer, 2), "failed", good, likely=False)
    e.place(good)


@effect("bar_result", lanes="uniform")
def bar_result(e: Context, instruction: Instruction) -> None:
    """What the votes at a barrier came to."""
    operands = instruction.operands
    number = e.op("and", _one_of_all(e, operands[1], 0), BARRIERS - 1)
    place = e.op("mul", e.cast("zext", number, "i64"), 4)
    result = e.load("i32", e.offset(e.offset("%warp", WARP.RESULTS), place), 4)
    target = operands[0]
    if not isinstance(target, Register):
        raise unsupported(instruction, "its destination must be a register")
    if "popc" in instruction.parts:
        write(e, target, e.op("and", result, 0xFFFF), "u32")
    elif "and" in instruction.parts:
        count = e.op("and", result, 0xFFFF)
        total = e.op("lshr", result, 16)
        write(e, target, e.equals(count, total), "pred")
    else:
        count = e.op("and", result, 0xFFFF)
        write(e, target, e.differs(count, 0), "pred")
