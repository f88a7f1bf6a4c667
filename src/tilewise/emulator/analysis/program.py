"""A kernel ready to be lowered: its flow, the liveness of its registers, and the places of its variables."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewise.emulator.analysis.control_flow import Flow, build_flow
from tilewise.emulator.analysis.groups import Group, find_groups
from tilewise.emulator.analysis.inline import inline_calls
from tilewise.emulator.analysis.liveness import Liveness
from tilewise.emulator.analysis.schedule import schedule
from tilewise.emulator.analysis.shapes import UNIFORM, Analysis, Shape, analyse, thread_lanes
from tilewise.emulator.analysis.variable_layout import VariableSlot, lay_out
from tilewise.emulator.layout import WARP
from tilewise.emulator.operations.operands import reads, wgmma_registers, writes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import PtxError, PtxFunction, PtxModule, PtxVariable
from tilewise.emulator.ptx.types import TYPE_BYTES, bits_of
from tilewise.emulator.support.wgmma_queue import CAPACITY, RECORD

__all__ = ["Program", "VariableSlot", "make_program"]

_MANY_BLOCKS = 200
_CPU_REGISTERS = 12  # vectors of 32 lanes that stay in a CPU's registers at best
_MOST_SLOT_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class Products:
    """Where a warp's memory holds ``wgmma`` products in flight."""

    sums: list[str]  # registers that they change, which lie one behind the other
    others: list[str]  # registers that they read
    records: int  # where their list is, from the start of the warp
    away: int  # from a sum's register to where it is while it is away


@dataclass(slots=True)
class Program:
    """A kernel for blocks of one shape, analysed: all that lowering reads."""

    module: PtxModule
    function: PtxFunction
    block: tuple[int, int, int]
    flow: Flow
    liveness: Liveness
    fast: Analysis
    threads: dict[str, tuple[list[list[int]], Shape | None]]
    places: dict[str, VariableSlot]
    slots: dict[str, int]  # offset of each register that is kept, from the start of the warp
    stride: int  # bytes of a warp
    shared_bytes: int  # static
    local_bytes: int  # of one thread
    parameter_bytes: int
    constants: list[PtxVariable]
    constant_bytes: int
    leaders: dict[int, Group]  # by id of the instruction that checks for its group
    covered: set[int]
    resident: set[str]  # registers that live in the warp's memory, not in the CPU's registers
    products: Products | None  # room for products in flight, if the kernel has any
    globals: list[PtxVariable] = field(default_factory=list)
    _general: Analysis | None = None

    @property
    def general(self) -> Analysis:
        """The analysis for the general build, made on first use: most launches need none."""
        if self._general is None:
            shapes = {name: shape for name, (_, shape) in self.threads.items()}
            local = {name for name, place in self.places.items() if place.space == "local"}
            self._general = analyse(self.flow, self.function.registers, shapes, local, False)
        return self._general

    @property
    def deopts(self) -> set[int]:
        """Ids of the instructions before which the fast build may hand a warp to the general one."""
        return self.fast.guarded | self.leaders.keys()

    @property
    def warps(self) -> int:
        return -(-self.thread_count // 32)

    @property
    def thread_count(self) -> int:
        x, y, z = self.block
        return x * y * z


def _mark_read_as_bits(flow: Flow) -> None:
    """Mark instructions whose float result a ``mov.b32`` reads as an integer: a NaN's bits matter there."""
    every = [item for block in flow.blocks for item in block.instructions]
    moved = {
        register.name
        for item in every
        if operation_of(item).lanes == "moved" and item.parts in (("b32",), ("b64",))
        for register in reads(item)
    }
    for item in every:
        item.read_as_bits = any(register.name in moved for register in writes(item))


def make_program(module: PtxModule, entry: str, block: tuple[int, int, int]) -> Program:
    """Analyse one kernel of a module for blocks of one shape."""
    function = inline_calls(module, entry)
    flow = build_flow(function)
    _mark_read_as_bits(flow)
    schedule(flow)
    warps = -(-(block[0] * block[1] * block[2]) // 32)
    threads = thread_lanes(block, warps)
    laid = lay_out(module, function)
    shapes = {name: shape for name, (_, shape) in threads.items()}
    local = {name for name, place in laid.by_name.items() if place.space == "local"}
    fast = analyse(flow, function.registers, shapes, local, True)
    leaders, covered = find_groups(flow, fast)
    liveness = Liveness(flow, function.registers)
    slots, stride, products = _slots(function, flow, liveness, fast.guarded | leaders.keys())
    resident = _find_residents(function, flow, fast, slots)
    resident |= {*products.sums, *products.others} if products else set()
    return Program(
        module,
        function,
        block,
        flow,
        liveness,
        fast,
        threads,
        laid.by_name,
        slots,
        stride,
        laid.sizes["shared"],
        laid.sizes["local"],
        laid.sizes["param"],
        laid.constants,
        laid.sizes["const"],
        leaders,
        covered,
        resident,
        products,
        laid.globals,
    )


def _find_residents(function: PtxFunction, flow: Flow, fast: Analysis, slots: dict[str, int]) -> set[str]:
    """Find the registers to keep in memory throughout.

    A kernel with more sums than the CPU has registers would have them copied to the warp's memory and back
    at every barrier, and to the stack and back in between. In memory from the start, each is read once and
    written once where it is used. In one with very many blocks that lanes run apart, LLVM takes very long to
    find a place for each of them at every block.
    """
    vectors = {name for name in slots if fast.shapes.get(name, UNIFORM) is None}
    if len(fast.divergent) > _MANY_BLOCKS:
        return vectors
    if not any(block.terminator.kind == "wait" for block in flow.blocks):
        return set()
    vectors = {name for name in vectors if function.registers[name] != "pred"}
    return vectors if len(vectors) > _CPU_REGISTERS else set()


def _slots(
    function: PtxFunction, flow: Flow, liveness: Liveness, deopts: set[int]
) -> tuple[dict[str, int], int, Products | None]:
    """Offsets in the warp's memory for every register that may be live where a warp stops, or that a product in flight
    names; and for the products themselves."""
    kept: set[str] = set().union(*liveness.entry)
    for block in flow.blocks:
        for position, instruction in enumerate(block.instructions):
            if id(instruction) in deopts:
                kept |= liveness.before(block, position)
    at = -(-(WARP.HEADER + 4 * len(flow.blocks)) // 64) * 64
    slots, products = _place_products(function, flow, at)
    if products is not None:
        at = products.records + CAPACITY * RECORD.SIZE
        kept |= set(products.others)
    for name in function.registers:
        if name in kept and name not in slots:
            slots[name] = at
            bits = bits_of(function.registers[name])
            at += 64 if bits == 1 else -(-32 * TYPE_BYTES[function.registers[name]] // 64) * 64
    if at > _MOST_SLOT_BYTES:
        raise PtxError(function.line, f"the kernel keeps {at:,} bytes of registers a warp")
    return slots, -(-at // 64) * 64, products


def _place_products(function: PtxFunction, flow: Flow, at: int) -> tuple[dict[str, int], Products | None]:
    """Place in the warp's memory the sums of ``wgmma``, twice, and the list of those in flight."""
    sums: dict[str, None] = {}
    others: dict[str, None] = {}
    for block in flow.blocks:
        for instruction in block.instructions:
            changed, read = wgmma_registers(instruction)
            sums |= dict.fromkeys(
                register.name for register in changed if register.name in function.registers
            )
            others |= dict.fromkeys(register.name for register in read if register.name in function.registers)
    if not sums:
        return {}, None
    room = [name for name in sums if function.registers[name] != "pred"]
    slots, end = {}, at
    for name in room:
        slots[name] = end
        end += 32 * TYPE_BYTES[function.registers[name]]
    away = -(-(end - at) // 64) * 64
    kept = [name for name in others if name not in slots and function.registers[name] != "pred"]
    return slots, Products(room, kept, at + 2 * away, away)
