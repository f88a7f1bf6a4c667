"""Instructions that need several lanes of a warp at once: they gather their lanes, then run together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import Unsupported
from .memory import ALL
from .operands import Reader, Writer
from .ptx_types import Array, type_of
from .registry import (
    EXITED,
    GATHERING,
    RUNNING,
    Control,
    Operation,
    Threads,
    allow,
    control,
    distinct,
    expect,
    last_type,
    operation,
)
from .syntax import Instruction, Operand, Pair, Sink

if TYPE_CHECKING:
    from .machine import Machine

FULL = 0xFFFFFFFF


@dataclass
class Warps:
    """What a gathered instruction computes on: arrays of shape (warps, 32), one row per gathered mask."""

    present: Array
    threads: Array


Compute = Callable[[Warps, list[Array]], list[Array]]


@dataclass
class Gathered:
    """One instruction that gathers: its inputs, what it computes per warp, and its outputs."""

    key: object
    readers: list[Reader]
    compute: Compute
    writers: list[Writer]
    mask: Reader | None


class Gathering:
    """Threads waiting for the other lanes of their mask."""

    def __init__(self, machine: Machine) -> None:
        self.m = machine
        self.at: dict[int, Gathered] = {}
        self.masks: Array = np.zeros(machine.threads, np.uint32)

    def present_mask(self, warp: int) -> int:
        """Lanes of a warp that exist and have not exited."""
        lanes = self.m.status[warp * 32 : warp * 32 + 32] != EXITED
        return int((lanes.astype(np.uint64) << np.arange(len(lanes), dtype=np.uint64)).sum())

    def arrive(self, g: Threads, pc: int) -> int | None:
        """A group reaches the gathering instruction at ``pc``."""
        m, gathered = self.m, self.at[pc]
        masks = np.full(m.count(g), FULL, np.uint32) if gathered.mask is None else gathered.mask(g)
        if self.is_whole(g) and (masks == FULL).all():
            self.perform_whole(gathered, m.count(g), g)
            return pc + 1
        members = m.members(g)
        masks = np.broadcast_to(masks, members.shape)
        if gathered.mask is not None and not (masks >> m.lane[members].astype(np.uint32) & 1).all():
            outside = members[(masks >> m.lane[members].astype(np.uint32) & 1) == 0]
            raise m.fault(m.instructions[pc], int(outside[0]), "the thread is not in its own mask")
        self.masks[members] = masks
        m.status[members] = GATHERING
        m.pc[members] = pc + 1
        for warp in distinct(m.warp[members]):
            self.try_release(warp)
        return None

    def is_whole(self, g: Threads) -> bool:
        """Whether the group consists of whole warps (the fast path)."""
        if g is ALL:
            return self.m.threads % 32 == 0
        if len(g) % 32:
            return False
        first = g[::32]
        return bool((first % 32 == 0).all() and (g[31::32] - first == 31).all())

    def try_release(self, warp: int) -> None:
        """Run whatever is complete among the waiting lanes of a warp."""
        m = self.m
        here = m.ids[warp * 32 : warp * 32 + 32]
        waiting = here[m.status[here] == GATHERING]
        alive = self.present_mask(warp)
        parties: dict[tuple[object, int], list[int]] = {}
        for thread in waiting.tolist():
            key = (self.at[int(m.pc[thread]) - 1].key, int(self.masks[thread]) & alive)
            parties.setdefault(key, []).append(thread)
        for (_, mask), threads in parties.items():
            if mask == sum(1 << (t % 32) for t in threads):
                self.complete(np.array(threads))

    def complete(self, threads: Array) -> None:
        """Run one instruction for lanes that may stand at different places in the code."""
        m = self.m
        places = m.pc[threads] - 1
        for_all = self.at[int(places[0])]
        if (places == places[0]).all():
            self.perform(for_all, threads, threads)
        else:
            self.perform_apart(threads, places)
        m.status[threads] = RUNNING

    def perform_whole(self, gathered: Gathered, count: int, g: Threads) -> None:
        """Whole warps with full masks: nothing to rearrange."""
        shape = (count // 32, 32)
        warps = Warps(np.ones(shape, bool), self.m.members(g).reshape(shape))
        inputs = [np.broadcast_to(read(g), (count,)).reshape(shape) for read in gathered.readers]
        outputs = gathered.compute(warps, inputs)
        for write, values in zip(gathered.writers, outputs, strict=True):
            write(g, values.reshape(-1))

    def perform(self, gathered: Gathered, threads: Array, g: Threads) -> None:
        """All lanes stand at the same instruction."""
        warps, rows = self.spread(threads)
        inputs = [self.dense(read(g), threads, rows) for read in gathered.readers]
        outputs = gathered.compute(warps, inputs)
        flat = (rows, threads % 32)
        for write, values in zip(gathered.writers, outputs, strict=True):
            write(g, values[flat])

    def perform_apart(self, threads: Array, places: Array) -> None:
        """Lanes meet from several places: each place's operands and results are its own."""
        parts = [(self.at[place], places == place) for place in distinct(places)]
        warps, rows = self.spread(threads)
        inputs = []
        for number in range(len(parts[0][0].readers)):
            merged = None
            for gathered, those in parts:
                values = np.broadcast_to(gathered.readers[number](threads[those]), (int(those.sum()),))
                if merged is None:
                    merged = np.zeros(len(threads), values.dtype)
                merged[those] = values
            inputs.append(self.dense(merged, threads, rows))
        outputs = parts[0][0].compute(warps, inputs)
        for gathered, those in parts:
            for write, values in zip(gathered.writers, outputs, strict=True):
                write(threads[those], values[rows[those], threads[those] % 32])

    def spread(self, threads: Array) -> tuple[Warps, Array]:
        """Rows for a sorted set of threads: one per warp."""
        numbers, rows = np.unique(self.m.warp[threads], return_inverse=True)
        present = np.zeros((len(numbers), 32), bool)
        present[rows, threads % 32] = True
        return Warps(present, numbers[:, None] * 32 + np.arange(32)), rows

    @staticmethod
    def dense(values: Any, threads: Array, rows: Array) -> Array:
        """Values of the threads as (warps, 32); absent lanes hold 0xCD bytes, as undefined values do."""
        values = np.broadcast_to(values, (len(threads), *values.shape[1:]))
        found = np.zeros((int(rows[-1]) + 1, 32, *values.shape[1:]), values.dtype)
        if len(threads) != found.shape[0] * 32 and values.dtype != np.bool_:
            found.view(np.uint8)[:] = 0xCD
        found[rows, threads % 32] = values
        return found

    def after_exit(self) -> None:
        """Exited lanes are not waited for any longer."""
        m = self.m
        for warp in distinct(m.warp[m.status == GATHERING]):
            self.try_release(warp)


def gathered_control(
    m: Machine,
    inst: Instruction,
    readers: list[Reader],
    compute: Compute,
    writers: list[Writer],
    mask: Operand | None,
) -> Control:
    """Bind a gathering instruction; without a mask it is .aligned and gathers at its own place."""
    place = len(m.code)
    key: object = place if mask is None else (inst.name, inst.modifiers)
    read_mask = None if mask is None else m.operands.read(mask, "u32")
    m.gathering.at[place] = Gathered(key, readers, compute, writers, read_mask)
    return m.gathering.arrive


def warp_barrier(m: Machine, inst: Instruction) -> Control:
    """``bar.warp.sync mask``: lanes only meet."""
    expect(inst.operands, 1)
    return gathered_control(m, inst, [], lambda warps, inputs: [], [], inst.operands[0])


def pair_of(operand: Operand) -> tuple[Operand, Operand]:
    """Both destinations of ``d|p``; the second may be missing."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())


@control("shfl")
def shuffle(m: Machine, inst: Instruction) -> Control:
    """``shfl.sync.mode.b32 d|p, a, b, c, mask``."""
    allow(inst, "sync", "up", "down", "bfly", "idx")
    expect(inst.operands, 5)
    mode = next(x for x in inst.modifiers if x in ("up", "down", "bfly", "idx"))
    value, flag = pair_of(inst.operands[0])
    kind = last_type(inst).raw
    readers = [m.operands.read(inst.operands[1], kind)]
    readers += [m.operands.read(x, "u32") for x in inst.operands[2:4]]

    def compute(warps: Warps, inputs: list[Array]) -> list[Array]:
        values, b, c = inputs
        lane = np.arange(32)
        b = b.astype(np.int64) & 31
        clamp, segment = c.astype(np.int64) & 31, (c.astype(np.int64) >> 8) & 31
        last = (lane & segment) | (clamp & ~segment)
        first = lane & segment
        if mode == "up":
            source = lane - b
            inside = source >= last
        elif mode == "down":
            source = lane + b
            inside = source <= last
        elif mode == "bfly":
            source = lane ^ b
            inside = source <= last
        else:
            source = first | (b & ~segment)
            inside = source <= last
        source = np.where(inside, source, lane)
        row = np.arange(len(values))[:, None]
        result = values[row, source]
        # NOTE: the value of a lane that takes no part is undefined; poison makes a use of it show.
        result[~warps.present[row, source]] = kind.dtype(0xCDCDCDCD)
        return [result, inside]

    writers = [m.operands.write(value, kind), m.operands.write(flag, "pred")]
    return gathered_control(m, inst, readers, compute, writers, inst.operands[4])


def ballot(flags: Array) -> Array:
    """One uint32 per lane: the flags of its row as bits."""
    bits = (flags.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(1, dtype=np.uint64)
    return np.repeat(bits.astype(np.uint32)[:, None], 32, 1)


@control("vote")
def vote(m: Machine, inst: Instruction) -> Control:
    """``vote.sync.{all,any,uni}.pred p, {!}a, mask`` and ``vote.sync.ballot.b32 d, {!}a, mask``."""
    allow(inst, "sync", "all", "any", "uni", "ballot")
    expect(inst.operands, 3)
    mode = next(x for x in inst.modifiers if x in ("all", "any", "uni", "ballot"))

    def compute(warps: Warps, inputs: list[Array]) -> list[Array]:
        flags = inputs[0] & warps.present
        if mode == "ballot":
            return [ballot(flags)]
        every: Array = np.all(inputs[0] | ~warps.present, axis=1)
        some: Array = np.any(flags, axis=1)
        result = {"all": every, "any": some, "uni": every | ~some}[mode]
        return [np.repeat(result[:, None], 32, 1)]

    kind = "b32" if mode == "ballot" else "pred"
    readers = [m.operands.read(inst.operands[1], "pred")]
    writers = [m.operands.write(inst.operands[0], kind)]
    return gathered_control(m, inst, readers, compute, writers, inst.operands[2])


@control("match")
def match(m: Machine, inst: Instruction) -> Control:
    """``match.any.sync.b32 d, a, mask`` and ``match.all.sync.b32 d|p, a, mask``."""
    allow(inst, "sync", "any", "all")
    expect(inst.operands, 3)
    value, flag = pair_of(inst.operands[0])

    def compute(warps: Warps, inputs: list[Array]) -> list[Array]:
        values = inputs[0]
        both = warps.present[:, :, None] & warps.present[:, None, :]
        same = (values[:, :, None] == values[:, None, :]) & both
        bits = (same.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(2, dtype=np.uint64)
        if "any" in inst.modifiers:
            return [bits.astype(np.uint32), warps.present]
        members = ballot(warps.present)
        agreed: Array = np.where(warps.present, bits == members, True).min(axis=1, keepdims=True)
        agreed = np.repeat(agreed, 32, 1)
        return [np.where(agreed, members, np.uint32(0)), agreed]

    readers = [m.operands.read(inst.operands[1], last_type(inst))]
    writers = [m.operands.write(value, "b32"), m.operands.write(flag, "pred")]
    return gathered_control(m, inst, readers, compute, writers, inst.operands[2])


@control("redux")
def reduce(m: Machine, inst: Instruction) -> Control:
    """``redux.sync.op.type d, a, mask`` on integers."""
    tables: dict[str, tuple[Any, Any]] = {
        "add": (np.add, 0),
        "min": (np.minimum, None),
        "max": (np.maximum, None),
        "and": (np.bitwise_and, -1),
        "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
    }
    allow(inst, "sync", *tables)
    expect(inst.operands, 3)
    kind = last_type(inst)
    function, neutral = tables[next(x for x in inst.modifiers if x in tables)]
    if kind.family not in "sub":
        raise Unsupported(f"redux of .{kind.name}")

    def compute(warps: Warps, inputs: list[Array]) -> list[Array]:
        start = neutral
        if start is None:
            limits = np.iinfo(inputs[0].dtype)
            start = limits.max if function is np.minimum else limits.min
        identity = np.array(start).astype(inputs[0].dtype)
        values = np.where(warps.present, inputs[0], identity)
        result = function.reduce(values, axis=1, dtype=values.dtype)
        return [np.repeat(result[:, None], 32, 1)]

    readers = [m.operands.read(inst.operands[1], kind)]
    writers = [m.operands.write(inst.operands[0], kind)]
    return gathered_control(m, inst, readers, compute, writers, inst.operands[2])


@control("elect")
def elect(m: Machine, inst: Instruction) -> Control:
    """``elect.sync d|p, mask``: the lowest lane leads."""
    allow(inst, "sync")
    expect(inst.operands, 2)
    value, flag = pair_of(inst.operands[0])

    def compute(warps: Warps, inputs: list[Array]) -> list[Array]:
        leader = np.repeat(warps.present.argmax(1)[:, None], 32, 1).astype(np.uint32)
        return [leader, leader == np.arange(32)]

    writers = [m.operands.write(value, type_of("b32")), m.operands.write(flag, "pred")]
    return gathered_control(m, inst, [], compute, writers, inst.operands[1])


@operation("activemask")
def active_mask(m: Machine, inst: Instruction) -> Operation:
    """``activemask.b32 d``: the lanes that happen to execute it together."""
    write = m.operands.write(inst.operands[0], "b32")
    masks = m.special("(activemask)")
    return lambda g: write(g, masks(g).astype(np.uint32))


@operation("fns")
def find_nth_set(m: Machine, inst: Instruction) -> Operation:
    """``fns.b32 d, mask, base, offset``."""
    expect(inst.operands, 4)
    mask, base = (m.operands.read(x, "u32") for x in inst.operands[1:3])
    offset = m.operands.read(inst.operands[3], "s32")
    write = m.operands.write(inst.operands[0], "b32")

    def one(bits: int, start: int, n: int) -> int:
        if n == 0:
            return start if bits >> start & 1 else FULL
        places = range(start, 32) if n > 0 else range(start, -1, -1)
        found = [p for p in places if bits >> p & 1]
        return found[abs(n) - 1] if len(found) >= abs(n) else FULL

    def run(g: Threads) -> None:
        rows = np.broadcast_arrays(mask(g), base(g) & np.uint32(31), offset(g), m.ids[g])[:3]
        write(g, np.array([one(*map(int, row)) for row in zip(*rows, strict=True)], np.uint32))

    return run
