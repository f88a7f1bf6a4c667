"""A kernel ready to be lowered: its flow, the liveness of its registers, and the places of its variables."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import prod

from tilewise.emulator.analysis.control_flow import Flow, build_flow
from tilewise.emulator.analysis.groups import find_groups
from tilewise.emulator.analysis.inline import inline_calls
from tilewise.emulator.analysis.liveness import Liveness
from tilewise.emulator.analysis.schedule import schedule
from tilewise.emulator.analysis.shapes import UNIFORM, Analysis, thread_lanes
from tilewise.emulator.analysis.variable_layout import align_up, lay_out
from tilewise.emulator.layout import WARP
from tilewise.emulator.operations.operands import reads, wgmma_registers, writes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import PtxError, PtxModule
from tilewise.emulator.ptx.types import TYPE_BYTES
from tilewise.emulator.support.wgmma_queue import CAPACITY, RECORD

__all__ = ["Program", "register_bytes"]

_MANY_BLOCKS = 200
_CPU_REGISTERS = 12  # vectors of 32 lanes that stay in a CPU's registers at best
_MOST_SLOT_BYTES = 1 << 26


def register_bytes(type_: str) -> int:
    """Return the bytes of a register in 32 lanes, rounded up to whole cache lines of the CPU."""
    return align_up(32 * TYPE_BYTES[type_], 64)


@dataclass(frozen=True, slots=True)
class Products:
    """Where a warp's memory holds ``wgmma`` products in flight."""

    sums: list[str]  # registers that they change, which lie one behind the other
    others: list[str]  # registers that they read
    records: int  # where their list is, from the start of the warp
    away: int  # from a sum's register to where it is while it is away


class Program:
    """A kernel for blocks of one shape, analysed: all that lowering reads."""

    def __init__(self, module: PtxModule, entry: str, block: tuple[int, int, int]) -> None:
        self.module, self.block = module, block
        self.function = inline_calls(module, entry)
        self.flow = build_flow(self.function)
        _mark_read_as_bits(self.flow)
        schedule(self.flow)
        self.thread_count = prod(block)
        self.warps = -(-self.thread_count // 32)
        self.threads = thread_lanes(block, self.warps)
        layout = lay_out(module, self.function)
        self.places, sizes = layout.by_name, layout.sizes
        self.constants, self.globals = layout.constants, layout.globals
        self.shared_bytes, self.local_bytes = sizes["shared"], sizes["local"]  # static; of one thread
        self.parameter_bytes, self.constant_bytes = sizes["param"], sizes["const"]
        self.fast = self._analyse(speculate=True)
        self.leaders, self.covered = find_groups(self.flow, self.fast)
        # Ids of the instructions before which the fast build may hand a warp to the general one.
        self.deopts = self.fast.guarded | self.leaders.keys()
        self.liveness = Liveness(self.flow, self.function.registers)
        self.slots: dict[str, int] = {}  # offset of each register that is kept, from the start of the warp
        self.products: Products | None = None  # room for products in flight, if the kernel has any
        self.stride = self._place_registers()  # bytes of a warp
        # Registers that live in the warp's memory, not in the CPU's registers.
        self.resident = self._find_residents()
        if self.products:
            self.resident |= {*self.products.sums, *self.products.others}

    @functools.cached_property
    def general(self) -> Analysis:
        """The analysis for the general build, made on first use: most launches need none."""
        return self._analyse(speculate=False)

    def _analyse(self, speculate: bool) -> Analysis:
        shapes = {name: shape for name, (_, shape) in self.threads.items()}
        local = {name for name, place in self.places.items() if place.space == "local"}
        return Analysis(self.flow, self.function.registers, shapes, local, speculate)

    def _find_residents(self) -> set[str]:
        """Find the registers to keep in memory throughout.

        A kernel with more sums than the CPU has registers would have them copied to the warp's memory and back
        at every barrier, and to the stack and back in between. In memory from the start, each is read once and
        written once where it is used. In one with very many blocks that lanes run apart, LLVM takes very long to
        find a place for each of them at every block.
        """
        vectors = {name for name in self.slots if self.fast.shapes.get(name, UNIFORM) is None}
        if len(self.fast.divergent) > _MANY_BLOCKS:
            return vectors
        if not any(block.terminator.kind == "wait" for block in self.flow.blocks):
            return set()
        vectors = {name for name in vectors if self.function.registers[name] != "pred"}
        return vectors if len(vectors) > _CPU_REGISTERS else set()

    def _place_registers(self) -> int:
        """Place products in flight, and registers that they name or that live at a stop; return the end."""
        types = self.function.registers
        kept: set[str] = set().union(*self.liveness.entry)
        for block in self.flow.blocks:
            for position, instruction in enumerate(block.instructions):
                if id(instruction) in self.deopts:
                    kept |= self.liveness.before(block, position)
        at = self._place_products(align_up(WARP.HEADER + 4 * len(self.flow.blocks), 64))
        if self.products is not None:
            kept |= set(self.products.others)
        for name, type_ in types.items():
            if name in kept and name not in self.slots:
                self.slots[name] = at
                at += register_bytes(type_)
        if at > _MOST_SLOT_BYTES:
            raise PtxError(self.function.line, f"the kernel keeps {at:,} bytes of registers a warp")
        return align_up(at, 64)

    def _place_products(self, at: int) -> int:
        """Place the sums of ``wgmma``, twice, and the list of those in flight; return where that ends."""
        types = self.function.registers
        pairs = [wgmma_registers(item) for item in self.flow.instructions]
        named = [dict.fromkeys(name for pair in pairs for name in pair[i]) for i in (0, 1)]
        sums, others = ([name for name in names if types.get(name, "pred") != "pred"] for names in named)
        if not sums:
            return at
        end = at
        for name in sums:
            self.slots[name] = end
            end += 32 * TYPE_BYTES[types[name]]
        away = align_up(end - at, 64)
        records = at + 2 * away
        self.products = Products(sums, [name for name in others if name not in self.slots], records, away)
        return records + CAPACITY * RECORD.SIZE


def _mark_read_as_bits(flow: Flow) -> None:
    """Mark instructions whose float result a ``mov.b32`` reads as an integer: a NaN's bits matter there."""
    moved = {
        name
        for item in flow.instructions
        if operation_of(item).lanes == "moved" and item.parts in (("b32",), ("b64",))
        for name in reads(item)
    }
    for item in flow.instructions:
        item.read_as_bits = not moved.isdisjoint(writes(item))
