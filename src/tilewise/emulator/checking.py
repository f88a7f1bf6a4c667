"""The checked build: who read and wrote each word last, and whether anything came between.

Every access is compared with what is known of its memory: writes and reads by others that no barrier, fence or
flag puts before it (races), memory that nobody wrote, copies that are in flight. See ``check_support.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewise.emulator.check_layout import (
    ACQUIRE,
    ACTIONS,
    BARRIERS_OF_BLOCK,
    NARROW,
    RELEASE,
    SEEN,
    STRONG,
    TOLD,
    Action,
)
from tilewise.emulator.emit import Value
from tilewise.emulator.layout import Space
from tilewise.emulator.mbarriers import lane_addresses
from tilewise.emulator.memory import space_of
from tilewise.emulator.syntax import Immediate, Instruction
from tilewise.emulator.watch import Touch, Watcher, touches

if TYPE_CHECKING:
    from tilewise.emulator.lower import Lowering

__all__ = ["watcher"]

_STRONG_WORDS = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}
_CHECKED = (Space.SHARED, Space.GLOBAL, Space.GENERIC, Space.OWN)


def watcher(e: Lowering) -> Watcher:
    return _Checker(e)


class _Checker(Watcher):
    """Emits the calls of the run-time half."""

    def __init__(self, e: Lowering) -> None:
        super().__init__(e)
        inside = [item for block in e.program.flow.blocks for item in block.instructions]
        if any(self._talks(item) for item in inside):
            self.notes.append("talks")  # blocks may synchronise with one another, through global memory

    def _talks(self, item: Instruction) -> bool:
        if any(part.startswith("shared") for part in item.parts):
            return False
        return item.opcode in ("atom", "red") or (item.opcode in ("ld", "st") and self._strong(item))

    def before(self, instruction: Instruction) -> Any:
        e, parts = self.e, instruction.parts
        found = [item for item in touches(e, instruction) if item.access.space in _CHECKED]
        spot = self._mbarrier(instruction)
        for item in found:
            if item.action in ("store", "atomic") and (item.action == "atomic" or self._strong(instruction)):
                self._sync(item, RELEASE, instruction)
        if spot is not None and instruction.opcode == "mbarrier" and parts[0].startswith("arrive"):
            self._spot(instruction, spot, RELEASE, e.mask())
        elif spot is not None and instruction.opcode == "cp":
            self._spot(instruction, spot, TOLD | RELEASE, e.mask())
        return found, spot

    def after(self, instruction: Instruction, seen: Any) -> None:
        found, spot = seen
        opcode, parts = instruction.opcode, instruction.parts
        for item in found:
            strong = item.action == "atomic" or self._strong(instruction)
            if strong and item.action != "store":
                self._sync(item, ACQUIRE, instruction)
            if item.action in ACTIONS:
                self._access(item, instruction, strong)
            else:
                self._fill(item, instruction)
        if spot is not None and parts[0] in ("test_wait", "try_wait"):
            over = self.e.bits(self.e.splat(self.e.read(instruction.operands[0], "pred", True)))
            self._spot(instruction, spot, ACQUIRE | SEEN, self.e.op("and", over, self.e.mask()))
        elif opcode == "bar" and "arrive" in parts:
            self._arrive(instruction)
        elif opcode == "cp" and parts[:2] == ("async", "commit_group"):
            self._call("tw_check_commit", self.e.mask())
        elif opcode == "cp" and parts[:2] in (("async", "wait_group"), ("async", "wait_all")):
            first = instruction.operands[0] if instruction.operands else None
            keep = first.value if isinstance(first, Immediate) else -1
            self._call("tw_check_landed", self.e.mask(), self.e.const("i32", min(keep, 1 << 30)))

    def _mbarrier(self, instruction: Instruction) -> Value | None:
        """The addresses of the mbarriers that an instruction works on."""
        opcode, parts, operands = instruction.opcode, instruction.parts, instruction.operands
        if opcode == "cp" and parts[:3] == ("async", "mbarrier", "arrive"):
            return lane_addresses(self.e, instruction, operands[0])
        if opcode != "mbarrier" or parts[0] not in ("arrive", "arrive_drop", "test_wait", "try_wait"):
            return None
        return lane_addresses(self.e, instruction, operands[1])

    def wait(self, instruction: Instruction) -> None:
        if instruction.opcode in ("bar", "barrier") and "warp" not in instruction.parts:
            self._arrive(instruction)

    def through(self, instruction: Instruction) -> None:
        if "warp" in instruction.parts:
            self._call("tw_check_met")
        elif instruction.opcode in ("bar", "barrier") and "arrive" not in instruction.parts:
            self._call("tw_check_through")

    # -- calls ----------------------------------------------------------------------------------
    def _call(self, name: str, *given: Value) -> None:
        ctx, _, block, warp = self.e.pointers()
        self.e.call(name, "void", ctx, block, warp, *given)

    def _arrive(self, instruction: Instruction) -> None:
        if "cluster" in instruction.parts and "wait" in instruction.parts:
            return
        self._call("tw_check_arrive", self._number(instruction))

    def _number(self, instruction: Instruction) -> Value:
        """Of the barrier: 0 to 15, or 16 for the cluster's."""
        from tilewise.emulator.barriers import first_lane

        e = self.e
        if "cluster" in instruction.parts:
            return e.const("i32", BARRIERS_OF_BLOCK - 1)
        at = 1 if "red" in instruction.parts else 0
        if len(instruction.operands) <= at:
            return e.const("i32", 0)
        shape = e.shape_of(instruction.operands[at])
        uniform = shape is not None and shape.uniform
        value = e.read(instruction.operands[at], "u32", not uniform)
        return e.op("and", value if uniform else first_lane(e, value), e.const("i32", 15))

    def _strong(self, instruction: Instruction) -> bool:
        polled = id(instruction) in self.e.analysis.polled
        return polled or bool(_STRONG_WORDS & set(instruction.parts))

    def _rows(self, instruction: Instruction) -> Value:
        """The lanes whose addresses count."""
        e = self.e
        few = {"x1": 0xFF, "x2": 0xFFFF}
        known = next((few[part] for part in instruction.parts if part in few), None)
        if known is None or not instruction.opcode.endswith("matrix"):
            return e.mask()
        return e.op("and", e.mask(), e.const("i32", known))

    def _access(self, item: Touch, instruction: Instruction, strong: bool) -> None:
        e = self.e
        addresses, _ = e.buffers()
        e.store(item.addresses, addresses, 64)
        flags = STRONG if strong else 0
        if strong and "cta" in instruction.parts:
            flags |= NARROW
        action = Action.ATOMIC if item.action == "atomic" else ACTIONS[item.action]
        numbers = (item.size, self._space(item), int(action), flags, instruction.line)
        size, space, kind, marks, line = (e.const("i32", number) for number in numbers)
        self._call(
            "tw_check", Value("ptr", addresses), self._rows(instruction), size, space, kind, marks, line
        )

    @staticmethod
    def _space(item: Touch) -> int:
        return int(Space.SHARED if item.access.space == Space.OWN else item.access.space)

    def _fill(self, item: Touch, instruction: Instruction) -> None:
        """A copy to shared memory sets off."""
        e = self.e
        addresses, _ = e.buffers()
        e.store(item.addresses, addresses, 64)
        size, line = e.const("i32", item.size), e.const("i32", instruction.line)
        self._call("tw_check_copy", Value("ptr", addresses), e.mask(), size, line)

    def _sync(self, item: Touch, how: int, instruction: Instruction) -> None:
        narrow = "cta" in instruction.parts
        self._synchronise(item.addresses, self._space(item), how, narrow, self.e.mask())

    def _spot(self, instruction: Instruction, addresses: Value, how: int, mask: Value) -> None:
        space = Space.SHARED if space_of(instruction) == "shared" else Space.GENERIC
        self._synchronise(addresses, int(space), how, False, mask)

    def _synchronise(self, addresses: Value, space: int, how: int, narrow: bool, mask: Value) -> None:
        e = self.e
        place, _ = e.buffers()
        e.store(addresses, place, 64)
        kind, way, scope = (e.const("i32", number) for number in (space, how, int(narrow)))
        self._call("tw_check_sync", Value("ptr", place), mask, kind, way, scope)
