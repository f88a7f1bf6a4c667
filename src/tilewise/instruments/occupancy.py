"""Occupancy: how many blocks of a kernel a multiprocessor holds at once, and what keeps it from more.

A multiprocessor gives registers to warps in units of 256 and within the part of it that a warp lives in,
shared memory to blocks in units of 128 or 256 bytes with 1 KiB on top on most GPUs, and has room for so many
warps and blocks. The least of these limits binds. Dividing all registers by a thread's, as is often done, gives
a number of threads that no launch reaches: it is kept beside, as ``threads_by_division``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewise.errors import ArgumentError, integer
from tilewise.gpus import Gpu, find

__all__ = ["Occupancy", "occupancy"]

_MANY = 1 << 20
# Measured on an H200, under its driver: of kernels without shared memory, room is made for more blocks than fit.
_ROOMY, _ROOM = (9, 0), 4


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How a launch fills one multiprocessor of a GPU."""

    gpu: str
    threads: int
    """Of a block."""
    registers: int
    """Of a thread, as the kernel was compiled; no thread has fewer than 16."""
    shared: int
    """Of a block, static and dynamic."""
    limits: Mapping[str, int]
    """Blocks on a multiprocessor by what limits them: "registers", "shared", "warps", "blocks", "barriers"."""
    shared_config: int
    """Bytes that the shared memory of a multiprocessor is set to: the least size that serves the others."""
    shared_most: int
    """Blocks on a multiprocessor by shared memory if it is set to all that there is."""
    warps_per_block: int
    warps_most: int
    """That a multiprocessor has room for."""
    sms: int
    threads_by_division: int
    """65,536 registers divided by a thread's: not what a launch reaches."""
    grid: int | None = None
    """Blocks of the launch."""
    barriers: int = 0
    """Of a block."""

    @property
    def blocks(self) -> int:
        """Blocks on a multiprocessor at once."""
        return min(self.limits.values())

    @property
    def binding(self) -> tuple[str, ...]:
        """The limits that bind; more than one where several allow the same number of blocks.

        Shared memory does only where it could not be set to a larger size.
        """
        limits = {**self.limits, "shared": self.shared_most}
        return tuple(name for name, limit in limits.items() if limit == self.blocks)

    @property
    def warps(self) -> int:
        return self.blocks * self.warps_per_block

    @property
    def threads_per_sm(self) -> int:
        """Threads of the blocks on a multiprocessor at once."""
        return self.blocks * self.threads

    @property
    def ratio(self) -> float:
        """Resident warps as a share of the most that there may be."""
        return self.warps / self.warps_most

    @property
    def waves(self) -> float | None:
        """How many times the grid fills the GPU; the fraction is the tail."""
        if self.grid is None or not self.blocks:
            return None
        return self.grid / (self.blocks * self.sms)

    @property
    def tail(self) -> float | None:
        """The share of the last wave that has blocks; 1 if it is full."""
        if self.waves is None or self.grid is None:
            return None
        per_wave = self.blocks * self.sms
        return (self.grid % per_wave or per_wave) / per_wave

    def with_less(self, registers: int = 0, shared: int = 0) -> Occupancy:
        """Return the occupancy with fewer registers a thread or bytes of shared memory a block."""
        return self._with(max(self.registers - registers, 0), max(self.shared - shared, 0))

    def _with(self, registers: int, shared: int) -> Occupancy:
        """Return the occupancy with other registers a thread and bytes of shared memory a block."""
        return occupancy(self.gpu, self.threads, registers, shared, grid=self.grid, barriers=self.barriers)

    @property
    def next_registers(self) -> int | None:
        """The most registers a thread with which one more block fits; None if none does."""
        for registers in range(self.registers - 1, 0, -1):
            if self._with(registers, self.shared).blocks > self.blocks:
                return registers
        return None

    @property
    def next_shared(self) -> int | None:
        """The most bytes of shared memory a block with which one more block fits; None if none does."""
        unit = find(self.gpu).limits.shared_unit
        for shared in range(self.shared // unit * unit, -1, -unit):
            if self._with(self.registers, shared).blocks > self.blocks:
                return shared
        return None

    def to_dict(self) -> dict[str, Any]:
        less = {"one register less": {"registers": 1}, "one KiB less": {"shared": 1024}}
        return {
            "gpu": self.gpu,
            "threads": self.threads,
            "registers": self.registers,
            "shared": self.shared,
            "barriers": self.barriers,
            "limits": dict(self.limits),
            "blocks": self.blocks,
            "binding": list(self.binding),
            "warps": self.warps,
            "ratio": self.ratio,
            "threads per SM": self.threads_per_sm,
            "threads by division": self.threads_by_division,
            "waves": self.waves,
            "tail": self.tail,
            "next": {"registers": self.next_registers, "shared": self.next_shared},
            **{name: self.with_less(**by).blocks for name, by in less.items()},
        }

    def __str__(self) -> str:
        return (
            f"{self.blocks} blocks of {self.threads:,} threads on an SM of {self.gpu}: {self.warps} of "
            f"{self.warps_most} warps, {self.ratio:.1%}; limited by {' and '.join(self.binding)}"
        )


def occupancy(
    gpu: str | Gpu,
    threads: int,
    registers: int,
    shared: int = 0,
    *,
    grid: int | None = None,
    barriers: int = 0,
) -> Occupancy:
    """Blocks of ``threads`` threads that a multiprocessor of ``gpu`` holds.

    ``registers`` are of a thread, ``shared`` the bytes of a block, static and dynamic, ``barriers`` the named
    barriers of a block; ``grid`` is the number of blocks of the launch, where waves are wanted.
    """
    found = find(gpu)
    limits = found.limits
    threads = integer("threads", threads, least=1)
    registers, shared = integer("registers", registers, least=0), integer("shared", shared, least=0)
    barriers = integer("barriers", barriers, least=0)
    if threads > limits.threads_per_block:
        raise ArgumentError("threads", f"must be at most {limits.threads_per_block:,}", threads)
    warps = -(-threads // limits.threads_per_warp)
    bound = {
        "registers": _by_registers(found, warps, registers),
        "warps": limits.warps_per_sm // warps,
        "blocks": limits.blocks_per_sm,
    }
    if barriers:
        bound["barriers"] = limits.barriers_per_sm // barriers
    others = min(bound.values())
    if not shared and found.capability == _ROOMY:
        others = min(_ROOM * min(bound["warps"], bound["blocks"]), limits.blocks_per_sm)
    by_shared, config, most = _by_shared(found, shared, others)
    ordered = {name: bound[name] for name in ("registers",)} | {"shared": by_shared} | bound
    division = min(limits.registers_per_sm // registers, _MANY) if registers else limits.threads_per_sm
    return Occupancy(
        found.name, threads, registers, shared, ordered, config, most,
        warps, limits.warps_per_sm, found.sms, division, grid, barriers,
    )  # fmt: skip


def _by_registers(gpu: Gpu, warps: int, registers: int) -> int:
    """Return the blocks that registers allow: each warp's registers lie in one part of the multiprocessor."""
    limits = gpu.limits
    if not registers:
        return limits.blocks_per_sm
    unit = limits.register_unit
    registers = max(registers, limits.min_registers_per_thread)
    each = -(-registers * limits.threads_per_warp // unit) * unit
    parts = limits.partitions_per_sm
    if (
        registers > limits.max_registers_per_thread
        or each * -(-warps // parts) * parts > limits.registers_per_block
    ):
        return 0
    return limits.registers_per_sm // parts // each * parts // warps


def _by_shared(gpu: Gpu, shared: int, others: int) -> tuple[int, int, int]:
    """Return the blocks that shared memory allows, the size it is set to for as many blocks as fit otherwise, and the
    blocks that all of it would allow.
    """
    limits = gpu.limits
    unit = limits.shared_unit
    if shared > limits.shared_per_block_optin:
        return 0, limits.shared_per_sm, 0
    each = -(-(shared + limits.shared_reserved_per_block) // unit) * unit
    if not each:
        return limits.blocks_per_sm, limits.shared_carveouts[0], _MANY
    fitting = [size for size in limits.shared_carveouts if size >= each * others]
    config = fitting[0] if fitting else limits.shared_per_sm
    return config // each, config, limits.shared_per_sm // each
