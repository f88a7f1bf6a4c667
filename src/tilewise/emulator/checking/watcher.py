"""The checked build: the code that a kernel's memory accesses and synchronisation get.

Every access is compared with the shadow of its memory, for races, reads of uninitialised memory and copies in flight.
The routines that this code calls are in ``race_check.py``, ``synchronisation.py``, ``copies.py`` and
``vector_clocks.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewise.emulator.check_layout import ACCESS, ACTIONS, CLOCKS, SYNC, WHO, Action
from tilewise.emulator.checking.copies import BULKS, COPIED, PRODUCTS
from tilewise.emulator.checking.race_check import ROW
from tilewise.emulator.checking.shuffled import ShuffledValues
from tilewise.emulator.checking.static_facts import (
    STRONG_MODIFIERS,
    address_of,
    find_allocations,
    find_constants,
    find_uses,
    is_cluster_scoped,
    is_doubtful,
    map_lanes_to_words,
    orders_accesses,
)
from tilewise.emulator.families.cp_async import bytes_to_read
from tilewise.emulator.families.mbarriers import completion, lane_addresses
from tilewise.emulator.families.wgmma import matrices_of
from tilewise.emulator.layout import Space
from tilewise.emulator.llvm.emit import LANES, NULL, Value
from tilewise.emulator.lowering.context import Context, Watcher
from tilewise.emulator.lowering.values import read
from tilewise.emulator.lowering.watch import Touch, named_space, touches
from tilewise.emulator.operations.operands import reads, registers_in, wgmma_registers, writes
from tilewise.emulator.operations.operation import BarrierUse, GroupUse
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Immediate, Instruction, Operand, Register, Vector, items_of

__all__ = ["Checker"]

_FROM_L2 = {"cg", "cv"}  # plain reads, but each of them loads anew
_GROUPS = {"copies": COPIED, "bulk copies": BULKS, "products": PRODUCTS}
_MBARRIER_BYTES = 8


def _act_of(instruction: Instruction) -> str:
    """What an instruction does to an mbarrier; "" if it uses none."""
    use = operation_of(instruction).mbarrier
    return use.act if use else ""


class Checker(Watcher):
    """Emits the calls of the checker's run-time routines."""

    def __init__(self, e: Context) -> None:
        super().__init__(e)
        blocks = e.program.flow.blocks
        inside = e.program.flow.instructions
        self.swapped = {
            address_of(item) for item in inside if operation_of(item).is_atomic and "cas" in item.parts
        }
        # Whether blocks of a cluster may use one another's memory.
        self.shares_memory = any("shared::cluster" in item.parts or item.opcode == "mapa" for item in inside)
        self.fences = any(orders_accesses(item) for item in inside)  # else relaxed accesses order nothing
        others = (item for item in inside if not any(part.startswith("shared") for part in item.parts))
        # Whether blocks may synchronise with one another, through global memory.
        syncs = self.fences and any(operation_of(item).accesses and self._strong(item) for item in others)
        products = e.program.products
        listed = [*products.sums, *products.others] if products else []
        self.sums = set(products.sums if products else ())
        self.numbers = {name: i + 1 for i, name in enumerate(dict.fromkeys(listed))}  # in a table's entries
        self.shuffled = ShuffledValues(e, self._call)
        counts = {"registers": len(self.numbers), "shuffled": len(self.shuffled.rows)}
        self.notes = [{"syncs_blocks": syncs, **counts}]
        written = [item for item in e.program.function.body if isinstance(item, Instruction)]
        self.allocations, self.uses = find_allocations(written), find_uses(written)
        self.constants = find_constants(written)
        # The blocks at which lanes go on that waited while their warp was diverged; whether at a cluster's barrier.
        self.resume_points = {
            block.terminator.targets[0]: is_cluster_scoped(block.terminator.instruction)
            for block in blocks
            if block.terminator.kind == "wait" and block.index in e.analysis.divergent
        }

    def block(self) -> None:
        if self.e.block.index in self.resume_points:
            self._pass_barrier(self.resume_points[self.e.block.index])

    def before(self, instruction: Instruction) -> Any:
        e, operation = self.e, operation_of(instruction)
        barrier, use = operation.barrier, operation.mbarrier
        found = touches(e, instruction)
        spot = lane_addresses(e, instruction, instruction.operands[use.operand]) if use else None
        for item in found:
            if item.action in ("store", "atomic") and (self._strong(instruction) or is_doubtful(instruction)):
                self._synchronise_access(item, instruction, SYNC.RELEASE)
            if item.action == "store":
                self._access(item, instruction)
        if barrier is not None:
            self._arrive(instruction, barrier, False)
        if spot is not None:
            self._before_mbarrier(instruction, spot)
        return found, spot, self.shuffled.before(instruction)

    def after(self, instruction: Instruction, seen: Any) -> None:
        found, spot, shuffled = seen
        self.shuffled.after(instruction, shuffled)
        operation = operation_of(instruction)
        for item in found:
            if item.action in ("load", "atomic") and self._strong(instruction):
                self._synchronise_access(item, instruction, SYNC.ACQUIRE)
            if item.action == "fill":
                addresses = self.e.list_addresses(item.addresses)
                self._call("tw_check_copy", addresses, self.e.mask(), item.access.size, instruction.line)
            elif item.action == "store" and not instruction.line:
                # ``malloc`` has allocated a block: record the lanes and the line of the call.
                if line := self.allocations.get(address_of(instruction)[0]):
                    self._call("tw_check_took", self.e.list_addresses(item.addresses), self.e.mask(), line)
            elif item.action != "store":
                self._access(item, instruction)
        if spot is not None and _act_of(instruction) == "ask":
            complete = completion(instruction.operands[0])
            over = self.e.bits(self.e.splat(read(self.e, complete, "pred", True)))
            space, lanes = named_space(instruction), self.e.op("and", over, self.e.mask())
            self._synchronise(spot, space, SYNC.ACQUIRE | SYNC.PHASE_OVER, lanes)
        elif operation.is_fence:
            self._fence(instruction)
        elif operation.group is not None:
            self._group(instruction, operation.group)
        elif operation.multiplies_matrices and operation.asynchronous:
            self._product(instruction)
        else:
            self._registers(instruction)

    def _registers(self, instruction: Instruction) -> None:
        """Check that no wgmma in flight uses the registers that an instruction reads or writes."""
        line, mask = instruction.line, self.e.mask()
        for name in sorted(self.sums.intersection(reads(instruction))):
            self._call("tw_check_sums", self.numbers[name], mask, line)
        for name in writes(instruction):
            if number := self.numbers.get(name):
                counts = int(operation_of(instruction).lanes != "moved")
                self._call("tw_check_wrote", number, mask, counts, line)

    # -- accesses -------------------------------------------------------------------------------
    def _strong(self, instruction: Instruction) -> bool:
        operation = operation_of(instruction)
        if operation.is_atomic:
            return True
        if id(instruction) in self.e.analysis.polled or STRONG_MODIFIERS & set(instruction.parts):
            return True
        # A compare-and-swap of the same address makes its value good: it need not be current.
        return operation.loads and address_of(instruction) in self.swapped

    def _is_plain_poll(self, instruction: Instruction) -> bool:
        """Whether a polling loop reads memory by plain loads: a compiler may load once."""
        return (
            operation_of(instruction).loads
            and not (STRONG_MODIFIERS | _FROM_L2) & set(instruction.parts)
            and address_of(instruction) not in self.swapped
        )

    def _lanes(self, item: Touch, instruction: Instruction) -> Value:
        """The lanes whose addresses the instruction accesses."""
        e = self.e
        if item.action == "copy" and len(instruction.operands) > 3:
            size = bytes_to_read(e, instruction.operands[3], item.access.size)
            return e.mask() & e.bits(e.differs(size, 0))
        return e.mask() & ((1 << item.rows) - 1) if 0 < item.rows < LANES else e.mask()

    def _access(self, item: Touch, instruction: Instruction) -> None:
        e = self.e
        strong = self._strong(instruction) and not self._is_plain_poll(instruction) and item.action != "copy"
        flags = ACCESS.STRONG if strong else ACCESS.DOUBTFUL if is_doubtful(instruction) else 0
        if strong and "cta" in instruction.parts:
            flags |= ACCESS.BLOCK_SCOPED
        operation = operation_of(instruction)
        if item.rows and item.action == "load":
            flags |= ACCESS.WHOLE_WARP
        if operation.is_atomic and not operation.has_result and {"and", "or"} & set(instruction.parts):
            flags |= ACCESS.BITWISE
        if operation.loads and self._is_passed_on(instruction):
            flags |= ACCESS.PASSED_ON
        if operation.stores and self._is_constant(instruction.operands[1]):
            flags |= ACCESS.CONSTANT
        action, needs_care = ACTIONS[item.action], flags & ~(ACCESS.PASSED_ON | ACCESS.CONSTANT)
        done = "" if needs_care else self._fast_path(item, instruction, action)
        addresses, values = e.list_addresses(item.addresses), e.buffers()[1]
        written = action == Action.STORE and self._buffer_values(item, instruction, values)
        lanes = self._lanes(item, instruction)
        described = (lanes, item.access.size, item.access.space, action, flags, instruction.line)
        self._call("tw_check", addresses, *described, values if written else NULL, item.access.width)
        if done:
            e.jump(done)
            e.place(done)

    def _is_passed_on(self, instruction: Instruction) -> bool:
        """Whether a vector is read only to be written elsewhere: a structure is copied, its padding with it."""
        target = instruction.operands[0]
        if not isinstance(target, Vector):
            return False
        return all(self.uses.get(name) == {"st"} for name in registers_in(target))

    def _is_constant(self, source: Operand) -> bool:
        """Whether what a store writes is the same each time."""
        return all(
            isinstance(item, Immediate) or (isinstance(item, Register) and item.name in self.constants)
            for item in items_of(source)
        )

    def _buffer_values(self, item: Touch, instruction: Instruction, buffer: str) -> bool:
        """Copy a store's values to a buffer, where they are compared with memory; false for other instructions."""
        e = self.e
        if not operation_of(instruction).stores:
            return False
        for i, operand in enumerate(items_of(instruction.operands[1])):
            value = read(e, operand, item.access.type, True)
            e.store(value, e.offset(buffer, i * 32 * item.access.width), 4)
        return True

    def _fast_path(self, item: Touch, instruction: Instruction, action: Action) -> str:
        """Emit the fast path, for an access whose lanes' offsets are known, and start the full check behind it.

        Returns the label behind both, or "" if there is no fast path.
        """
        e, access = self.e, item.access
        table = map_lanes_to_words(access.lanes, access.size, action) if access.lanes is not None else None
        if table is None or item.rows or item.action == "copy":
            return ""
        first = min(access.lanes or (0,))
        words = sorted(table)
        row = len(words) % 32 == 0 and words[-1] - words[0] == len(words) - 1
        name = self._table([(word - words[0], *table[word]) for word in words])
        careful, done = e.label("careful"), e.label("done")
        e.branch(e.equals(e.mask(), -1), no=careful, likely=True)
        low = access.base + first if first else access.base
        if access.space == Space.SHARED:
            low &= 0xFFFF_FFFF
        ctx, _, block, warp = e.pointers()
        count, span = (e.const("i64", number) for number in (len(words), words[-1] - words[0] + 1))
        given = (low, name, count, item.access.space, int(action != Action.LOAD), instruction.line, span)
        good = e.call("tw_check_row" if row else "tw_check_few", "i1", ctx, block, warp, *given)
        e.branch(good, done, careful, likely=True)
        e.place(careful)
        return done

    def _table(self, words: list[tuple[int, int, int]]) -> str:
        """A constant table of words, lanes and bytes, 32 of each at a time, for the fast path."""
        padded = words + [words[-1]] * (-len(words) % 32)
        rows = [padded[start : start + 32] for start in range(0, len(padded), 32)]
        numbers = [number for row in rows for column in zip(*row, strict=True) for number in column]
        assert len(numbers) * 4 == ROW * len(padded) // 32
        return self.e.constant_table(numbers)

    def tile(self, space: Space, base: Value, step: Value, shape: tuple[int, int], loads: bool) -> None:
        """Check that ``wmma`` accesses lines of a matrix; ``shape`` is how many, and the bytes of each."""
        lines, size = shape
        e = self.e
        action = Action.LOAD if loads else Action.STORE
        lane = WHO.WHOLE if loads else WHO.SEVERAL
        for number in range(lines):
            at = base + step * number if number else base
            self._call("tw_check_touch", lane, at, e.const("i64", size), space, action, 0, e.now.line, NULL)

    # -- what orders accesses -------------------------------------------------------------------
    def _synchronise_access(self, item: Touch, instruction: Instruction, way: int) -> None:
        """Synchronise by what an access touches: ``way`` is ACQUIRE or RELEASE; its modifiers give the rest."""
        words = set(instruction.parts)
        ordered = words & {"acquire" if way == SYNC.ACQUIRE else "release", "acq_rel"}
        how = way | (0 if ordered else SYNC.RELAXED) | (SYNC.BLOCK_SCOPE if "cta" in words else 0)
        self._synchronise(item.addresses, item.access.space, how)

    def _synchronise(self, addresses: Value, space: int, how: int, mask: Value | None = None) -> None:
        """Emit a call of ``tw_check_sync``."""
        if not how & SYNC.RELAXED or self.fences:
            self._call("tw_check_sync", self.e.list_addresses(addresses), mask or self.e.mask(), space, how)

    def _fence(self, instruction: Instruction) -> None:
        parts = instruction.parts
        proxy = bool({"async", "async::generic"} & {*parts})
        if proxy or "mbarrier_init" in parts:
            self._call("tw_check_proxy", int(proxy))
        if orders_accesses(instruction):
            self._call("tw_check_fence", self.e.mask(), int("cta" not in parts))

    def _pass_barrier(self, cluster: bool) -> None:
        self._call("tw_check_through", int(cluster), int(self.fences))

    def split(self, yes: Value, no: Value) -> None:
        self.shuffled.branch(self.e.op("or", yes, no))

    def switch(self, lanes: Value, ways: Sequence[tuple[int, Value]]) -> None:
        self.shuffled.branch(lanes)

    def leave(self, lanes: Value) -> None:
        if self.shares_memory:
            self._call("tw_check_leave", lanes)

    def wait(self, instruction: Instruction) -> None:
        barrier = operation_of(instruction).barrier
        if barrier is not None:
            self._arrive(instruction, barrier, barrier.waits)

    def through(self, instruction: Instruction) -> None:
        operation = operation_of(instruction)
        if operation.group is not None:
            keep = instruction.operands[0]
            left = keep.value if isinstance(keep, Immediate) else 0
            self._call("tw_check_landed", 1, left, PRODUCTS, 0)
            self._call("tw_check_done", left)
        elif operation.waits_for == "warpgroup":
            self._call("tw_check_ordered")
        elif operation.waits_for == "warp":
            self._check_named_lanes(instruction)
            self._call("tw_check_met")
        elif operation.barrier is not None and operation.barrier.waits:
            self._pass_barrier(operation.barrier.scope == "cluster")

    def _check_named_lanes(self, instruction: Instruction) -> None:
        """Check that the lanes that run a warp-wide instruction are in the mask that it names."""
        e, named = self.e, instruction.operands[0]
        if isinstance(named, Immediate) and named.value & 0xFFFF_FFFF == 0xFFFF_FFFF:
            return
        lanes = read(e, named, "u32", True)
        own = e.lanes("i32", [1 << lane for lane in range(32)])
        missing = e.bits(e.equals(lanes & own, 0))
        self._call("tw_check_named", missing & e.mask(), instruction.line)

    def _call(self, name: str, *given: Value | int | str) -> None:
        ctx, _, block, warp = self.e.pointers()
        self.e.call(name, "void", ctx, block, warp, *given)

    def _arrive(self, instruction: Instruction, barrier: BarrierUse, waits: bool) -> None:
        if not barrier.arrives:
            return
        cluster = barrier.scope == "cluster"
        goes_on = not waits or cluster or self.e.is_apart
        flags = (waits and not cluster, goes_on, "relaxed" in instruction.parts, self.fences)
        self._call("tw_check_arrive", self._barrier_number(instruction, barrier), *map(int, flags))

    def _barrier_number(self, instruction: Instruction, barrier: BarrierUse) -> Value | int:
        """The number of the barrier: 0 to 15, or 16 for the cluster's."""
        e, at = self.e, barrier.number
        if barrier.scope == "cluster":
            return CLOCKS.BARRIERS_OF_BLOCK - 1
        uniform = e.analysis.is_uniform(instruction.operands[at])
        value = read(e, instruction.operands[at], "u32", not uniform)
        return (value if uniform else e.first_lane(value)) & 15

    # -- mbarriers ------------------------------------------------------------------------------
    def _before_mbarrier(self, instruction: Instruction, spot: Value) -> None:
        e, act = self.e, _act_of(instruction)
        window = named_space(instruction)
        place = e.list_addresses(spot)
        kind = (Action.STORE, 0) if act == "make" else (Action.ATOMIC, ACCESS.STRONG)
        self._call("tw_check", place, e.mask(), _MBARRIER_BYTES, window, *kind, instruction.line, NULL, 4)
        if act == "arrive after copies":
            self._call("tw_check_told", place, e.mask())
        if act in ("arrive", "arrive after copies"):
            relaxed = SYNC.RELAXED if "relaxed" in instruction.parts else 0
            self._synchronise(spot, window, SYNC.RELEASE | relaxed)

    # -- copies and products --------------------------------------------------------------------
    def _group(self, instruction: Instruction, group: GroupUse) -> None:
        kind = _GROUPS[group.of]
        if group.act == "commit":
            self._call("tw_check_commit", 1 if group.of == "products" else self.e.mask(), kind)
            return
        first = instruction.operands[0] if instruction.operands else None
        keep = min(first.value, 1 << 30) if isinstance(first, Immediate) else -1
        self._call("tw_check_landed", self.e.mask(), keep, kind, int("read" in instruction.parts))

    def _product(self, instruction: Instruction) -> None:
        used = {name for names in wgmma_registers(instruction) for name in names}
        places = sorted(number for name, number in self.numbers.items() if name in used)
        count = self.e.const("i64", len(places))
        self._call("tw_check_used", self.e.constant_table(places), count, instruction.line)
        for descriptor, of_a, rows, bricks, across in matrices_of(self.e, instruction):
            numbers = (int(of_a), rows, bricks, int(across), instruction.line)
            self._call("tw_check_product", descriptor, *numbers)
