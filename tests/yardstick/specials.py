"""Special registers: an array over the block's threads, or a function of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .registry import Threads

if TYPE_CHECKING:
    from .machine import Machine


def special_registers(machine: Machine) -> dict[str, Any]:
    """All of them by name."""
    x, y, _ = machine.block
    ids, lane = machine.ids, machine.lane.astype(np.uint64)
    one = np.uint64(1)

    def always(value: int) -> Any:
        return np.full(machine.threads, value, np.uint64)

    def now(shift: int) -> Any:
        def read(g: Threads) -> Any:
            machine.clock_reads += 1
            return np.array([(machine.counts.steps + machine.clock_reads) >> shift], np.uint64)

        return read

    def block_index(axis: int) -> Any:
        return lambda g: np.array([machine.index[axis]], np.uint64)

    def warp_mask(g: Threads) -> Any:
        present = np.zeros((machine.threads + 31) // 32 * 32, np.uint64)
        present[machine.members(g)] = 1
        masks = (present.reshape(-1, 32) << np.arange(32, dtype=np.uint64)).sum(1, dtype=np.uint64)
        return masks[machine.warp[g]]

    found: dict[str, Any] = {
        "%laneid": lane,
        "%warpid": machine.warp,
        "%nwarpid": always(64),
        "%smid": always(0),
        "%nsmid": always(1),
        "%gridid": always(0),
        "%lanemask_eq": one << lane,
        "%lanemask_lt": (one << lane) - one,
        "%lanemask_le": (one << lane << one) - one,
        "%lanemask_gt": np.uint64(0xFFFFFFFF) & ~((one << lane << one) - one),
        "%lanemask_ge": np.uint64(0xFFFFFFFF) & ~((one << lane) - one),
        "%clock": now(0),
        "%clock64": now(0),
        "%clock_hi": now(32),
        "%globaltimer": now(0),
        "%globaltimer_lo": now(0),
        "%globaltimer_hi": now(32),
        "%dynamic_smem_size": always(machine.linker.dynamic_shared),
        "%total_smem_size": always(machine.linker.shared_size),
        "%aggr_smem_size": always(machine.linker.shared_size),
        "%cluster_ctarank": always(0),
        "%cluster_nctarank": always(1),
        "%is_explicit_cluster": always(0),
        "(activemask)": warp_mask,
    }
    positions = (ids % x, ids // x % y, ids // (x * y))
    for axis, letter in enumerate("xyz"):
        found[f"%tid.{letter}"] = positions[axis]
        found[f"%ntid.{letter}"] = always(machine.block[axis])
        found[f"%ctaid.{letter}"] = block_index(axis)
        found[f"%nctaid.{letter}"] = always(machine.grid[axis])
        found[f"%clusterid.{letter}"] = block_index(axis)
        found[f"%nclusterid.{letter}"] = always(machine.grid[axis])
        found[f"%cluster_ctaid.{letter}"] = always(0)
        found[f"%cluster_nctaid.{letter}"] = always(1)
    return found
