"""The constants of the cost model: fitted on a GPU that was measured, derived from the GPU table for the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilewise.gpus import Gpu, find

__all__ = ["EMULATOR", "ESTIMATED", "FITTED", "Constants", "UnitCost", "scaled"]


@dataclass(frozen=True, slots=True)
class UnitCost:
    """How fast one SM multiplies with one kind of instruction, as our kernels use it."""

    macs_per_clock: float
    """Multiply-adds of an SM that has warps enough."""
    warp_clocks: float
    """Of a warp in a step of K, beside its multiply-adds: addresses, loads from shared memory, barriers."""
    start_clocks: float
    """Of a block, once: its first bytes from memory, until its pipeline is full."""
    store_bytes_per_clock: float
    """Bytes of C that an SM stores."""
    latency_clocks: float = 0.0
    """The least that a step takes where too few warps hide it, besides what each warp multiplies."""
    warp_macs_per_clock: float = math.inf
    """Multiply-adds of one warp that has the SM to itself."""
    loads_per_clock: float = math.inf
    """Accesses of an SM where A or B must be loaded element by element."""
    stores_per_clock: float = math.inf
    """The same for C."""
    memory_share: float = 0.7
    """Of the memory's bandwidth, as the kernels of this unit read."""
    joules_per_mac: float = 0.0
    shared_read_clocks: float = 0.0
    """Of a turn that a warp reads shared memory in, where they are counted."""
    shared_bytes_per_clock: float = math.inf
    """Bytes that shared memory takes in and gives to the tensor cores, where that is counted."""
    element_clocks: float = 0.0
    """Of an element that a block brings on its way to registers and shared memory."""
    memory_latency_clocks: float = 0.0
    """What a step waits longer if its bytes come from memory, not from L2."""
    split_clocks: float = 0.0
    """Of a cluster that splits K, to add up what its blocks have of a tile of 64×64; more of larger ones."""
    waits: float = 0.0
    """How much of its own work of a step a block does before it waits, which adds to the latency: 1 is all."""
    epilogue_clocks: float = 0.0
    """Of a sum that something happens to before it is stored, and as many for each element of another array."""
    idle_memory: float = 0.0
    """The share of a block's start and end in which memory is idle."""
    cluster_saves: float = 0.0
    """The share of memory's time that two blocks save by asking for what they share once."""
    read_again: float = 0.0
    """How much longer memory takes to give what several blocks read, where both halves of L2 cannot hold it."""
    outside: float = 0.0
    """How much of the memory's bandwidth the part of a tile costs that lies outside of the operands: 1 is its share."""
    taken_in: float = 1.0
    """The share of what an SM, or two of them, can take in that these kernels do while others have nothing to read."""
    block_bytes_per_clock: float = math.inf
    """Bytes from memory that a block takes in while the last ones of many small ones are read to their ends."""
    stored_alone: float = 1.0
    """How many times as long one warpgroup takes to store a tile as several do together."""
    stored_between: float = 1.0
    """How many times as long a tile takes to store of which the copy engine stores no whole boxes."""
    stored_in_runs: float = 1.0
    """How many times as long as by the copy engine it takes threads, where C's rows begin anywhere."""
    stored_beside: float = 0.0
    """The share of the same that is felt though another warpgroup multiplies meanwhile: both use shared memory."""
    felt_beside: float = 1.0
    """The share of a block's start and of its store that is felt where its SM has others, which multiply meanwhile."""


@dataclass(frozen=True, slots=True)
class Constants:
    """What the cost model knows of one GPU. Seconds, Hz and bytes."""

    clock: float
    """Of an SM, as long as power does not lower it."""
    memory_bandwidth: float
    launch: float
    """Seconds that a launch adds, one after another on a stream."""
    pass_seconds: float
    """What every launch after the first takes beside its bytes: a pass over a copy or over partial sums."""
    workspace_bandwidth: float
    """Bytes/s that a pass writes and another reads soon after, much of it in L2."""
    add_seconds: float = 0.0
    """What the launch takes that adds up parts of K and begins before the sums are there."""
    part_seconds: float = 0.0
    """What each of those parts takes that a thread adds up, beside its bytes."""
    copied_per_clock: float = math.inf
    """Elements that an SM lays out in rows anew, beside their bytes."""
    units: Mapping[str, UnitCost] = field(default_factory=dict)
    l2_bytes_per_clock: float = math.inf
    """Bytes that reach an SM from L2 while all of them read."""
    sm_bytes_per_clock: float = math.inf
    """Bytes from memory that reach an SM while most others have all of theirs."""
    pair_bytes_per_clock: float = math.inf
    """The same of two SMs side by side, which share their way."""
    held_twice: float = 0.0
    """Bytes of operands that both halves of L2 can hold, each for its own SMs."""
    straddling: float = 0.0
    """How much more L2 has to read where the rows of a tile do not begin with its lines: 1 is twice as much."""
    cut_lines: float = 0.0
    """The same where rows do, but tiles have no whole lines of them."""
    cluster_share: Mapping[int, float] = field(default_factory=dict)
    """The share of its SMs that clusters of so many blocks can lie on at once; all of them if it is not said."""
    cluster_start_clocks: float = 0.0
    cluster_step_clocks: float = 0.0
    """What a step takes longer where the blocks of a cluster wait for each other."""
    cluster_bytes_per_clock: float = math.inf
    """Bytes that an SM takes in of stages that the blocks of a cluster load for each other."""
    cluster_turns: float = 1.0
    """How many times as long it takes to take them in where warpgroups of the blocks take turns."""
    watts: float = math.inf
    """Of the power limit, what is left for multiplying and for bytes from L2."""
    sustained: float = 1.0
    """The share of these watts that products have which multiply for longer than what evens out peaks of power."""
    peak_seconds: float = math.inf
    """How long peaks of power are evened out."""
    joules_per_l2_byte: float = 0.0


# How many clusters of 2, 3, … 16 blocks an H200 holds at once, if an SM holds one block: as its driver says.
_CLUSTERS = (66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7, 7, 7, 7)

_WGMMA = UnitCost(
    1574.5, 2.6101, 1947, 11.508, 155.9, 374.23,
    stores_per_clock=5.6063, memory_share=0.95, joules_per_mac=9.905e-13,
    split_clocks=1650, taken_in=0.85, outside=0.08046, epilogue_clocks=0.3, idle_memory=0.6,
    memory_latency_clocks=115.03, waits=0.02525, cluster_saves=0.02469, stored_alone=1.0698, stored_between=2.0401,
    stored_beside=0.3, read_again=0.28, shared_bytes_per_clock=160,
)  # fmt: skip

# Fitted to 3,104 plans of 183 problems, measured on an H200 on 2026-11-22, by least squares on the logarithm of their
# times, and rounded: `python -m tilewise.planner.fit docs/results/plans-*.json` does so again and says how well. What
# it leaves as it is stands in FIXED there. Those of parts of K and of L2 come from a random search for the best
# choices among plans of 151 more problems; those of wgmma_gemm and of clusters, and how lines count that are read in
# part, from one among these and plans of 394 problems on H100s (2026-11-26): `python -m tilewise.planner.search`. So
# do those of exact32, from 26 plans, those of 8 bits, from 312 plans of 21 problems, and those of 8 bits beside 16,
# from 692 of 72 (2026-11-28), of sums times a scale for each column; there half of the times of vectors had to be
# predicted within 11 % as well. The bytes that clusters take in are by hand: copies without products bring 49 to 66 a
# clock. Those of simt, with its shares of waiting (kernels/gemm/simt.py), come from a random search near what they
# had been, among plans of 44 problems on an H100 (2026-11-27), and so do those of mma_f64 and mma_f64_boxes, for
# times as well, among plans of 17 there and of 57, 676 plans, on an H200 (2026-11-30); what is said of vector_rows is
# by hand, from 138 plans of 27 problems there (2026-11-26). What an SM and two of them take in by themselves, and
# with it the memory's share, its idleness and the splits of wgmma_gemm, the splits of int8 beside 16 bits, and the
# share of vector and what its blocks take in, are the best of some hundred values for the choices in all those files
# and in 1,668 plans of 154 problems of 1 to 256 rows (2026-11-29). Those of mma_tf32 come from a random search for
# the choices among plans of 31 problems, and so do those of wgmma_tf32, for times as well, near those of wgmma_gemm:
# among 1,230 plans of 78 (2026-11-29). What several blocks read, and what shared memory gives, are the best of some
# hundred values for choices of bfloat16 in all of those and in plans of 120 problems of 65 to 1,280 rows (2026-11-30);
# tf32 and 8 bits have the same, by which their choices are better, too.
FITTED: Mapping[str, Constants] = {
    "h200": Constants(
        clock=1.98e9,
        memory_bandwidth=4.3e12,
        launch=0.5e-6,
        pass_seconds=1.75e-6,
        workspace_bandwidth=5.2e12,
        add_seconds=1.3366e-06,
        part_seconds=2.2609e-08,
        copied_per_clock=1.76,
        units={
            "thread": UnitCost(18.4, 11.4, 11, 7, 396, 1.09, memory_share=0.63),
            "ffma": UnitCost(91, 24.9, 2990, 7000, 731, 13.6, stores_per_clock=0.43, memory_share=0.67),
            "mma8": UnitCost(401, 2.5, 2250, 13.7, 820, 85, 3.8, 0.92, 0.7, 7.0e-12),
            "mma16": UnitCost(726, 38, 2180, 13.4, 685, 201, 3.25, 1.28, 0.66, 4.4e-12),
            "mma_gemm": UnitCost(
                700, 2.5, 2180, 13.7, 685, 201, 3.8, 1.28, 0.68, 4.4e-12, outside=0.67,
            ),  # see ESTIMATED
            "mma_f16": UnitCost(
                700, 2.5, 2180, 13.7, 685, 201, 3.8, 1.28, 0.68, 4.4e-12, outside=0.67,
            ),
            "mma_tf32": UnitCost(
                358, 10.3, 1372, 8.1, 579, 357, 3.8, 1.28, 0.95, 8.8e-12, outside=0.67, element_clocks=0.0208,
            ),
            "mma_f64": UnitCost(
                124.5, 5.5, 880, 9.86, 318, 30, 7.5, 1.4, 0.859, 2.02e-11, outside=0.565, idle_memory=0.03,
            ),
            "mma_f64_boxes": UnitCost(
                122, 2.5, 3400, 30, 508, 18.4, 7.5, 1.4, 0.622, 1.05e-11, outside=0.333, felt_beside=0.7,
            ),
            "mma_int8": UnitCost(
                1400, 2.5, 2180, 13.7, 685, 402, 3.8, 1.28, 0.68, 2.2e-12, outside=0.67,
            ),
            "mma_fp8": UnitCost(
                1400, 2.5, 2180, 13.7, 685, 402, 3.8, 1.28, 0.68, 2.2e-12, outside=0.67,
            ),
            "wgmma": UnitCost(1860, 3.8, 2920, 15.1, stores_per_clock=1.92, memory_share=0.64, joules_per_mac=1.5e-12),
            "wgmma_gemm": _WGMMA,
            "wgmma_tf32": replace(
                _WGMMA,
                taken_in=1.0,
                macs_per_clock=861.9,
                warp_clocks=1.217,
                start_clocks=1473,
                store_bytes_per_clock=19.06,
                latency_clocks=183.8,
                warp_macs_per_clock=317.7,
                memory_share=0.9663,
                joules_per_mac=_WGMMA.joules_per_mac * 2,
                memory_latency_clocks=118.3,
                split_clocks=1468,
                waits=0.03959,
                cluster_saves=0.01996,
                outside=0.05666,
                stored_alone=1.243,
                stored_between=3.123,
                stored_in_runs=1.656,
            ),
            "wgmma_widened": UnitCost(
                51700, 42.02, 3160, 4.729, 287.1, 192.9, stores_per_clock=2.063,
                memory_share=0.97, joules_per_mac=1.116e-12, split_clocks=546.5, epilogue_clocks=0.3,
                idle_memory=0.4545, memory_latency_clocks=143.9, element_clocks=0.01409,
            ),
            "wgmma_widened_int8": UnitCost(
                100000, 50, 2712, 4.857, 251, 167.7, stores_per_clock=0.5916,
                memory_share=0.97, joules_per_mac=1.116e-12, split_clocks=440, epilogue_clocks=0.3,
                idle_memory=0.5252, memory_latency_clocks=243, element_clocks=0.01222,
            ),
            "wgmma_fp8": UnitCost(
                2879, 1.389, 2269, 19.78, 199.9, 300.1, stores_per_clock=3.1689, memory_share=0.9065,
                joules_per_mac=6.563e-13, split_clocks=1742, outside=0.08763, epilogue_clocks=0.3, idle_memory=1.2,
                stored_between=2.0401, read_again=0.28, shared_bytes_per_clock=160,
            ),
            "wgmma_int8": UnitCost(
                3312, 1.713, 4139, 20.36, 163.5, 784.5, stores_per_clock=3.1689, memory_share=0.8307,
                joules_per_mac=5.976e-13, split_clocks=1275, outside=0.6911, epilogue_clocks=0.3, idle_memory=0.1903,
                memory_latency_clocks=42.5, stored_between=2.0401, read_again=0.28, shared_bytes_per_clock=160,
            ),
            "exact32": UnitCost(
                1100, 1.598, 6316, 4.864, 132.5, 44.8, memory_share=0.85, joules_per_mac=3.471e-12,
                outside=0.08661, epilogue_clocks=0.3, idle_memory=0.4, memory_latency_clocks=335.6,
            ),
            "general": UnitCost(
                128, 0, 2540, 29, 394, memory_share=0.9,
                shared_read_clocks=0.76, element_clocks=0.18, memory_latency_clocks=250, waits=1,
            ),
            "simt": UnitCost(
                128, 30, 2575, 74, 325, 39.82, memory_share=0.4214,
                shared_read_clocks=0.333, waits=0.385, epilogue_clocks=0.3,
            ),
            "general64": UnitCost(
                64, 0, 1530, 23, 394, memory_share=0.9,
                shared_read_clocks=1.02, element_clocks=0.005, memory_latency_clocks=250, waits=1,
            ),
            "vector": UnitCost(128, 0, 3230, 64, 434, memory_share=1.0, block_bytes_per_clock=14),
            "vector_widened": UnitCost(
                41.62, 18.19, 3179, 64, 628.3, memory_share=0.8051, idle_memory=0.4276,
            ),
            "vector_widened_int8": UnitCost(
                55.35, 19.21, 2520, 64, 914.7, memory_share=0.8269, idle_memory=0.992,
            ),
            "vector_rows": UnitCost(128, 0, 3000, 64, 240, memory_share=0.85),
        },
        l2_bytes_per_clock=65.842,
        sm_bytes_per_clock=32,
        pair_bytes_per_clock=65,
        held_twice=22e6,
        straddling=1.8663,
        cut_lines=1.0264,
        cluster_share={blocks: blocks * held / 132 for blocks, held in enumerate(_CLUSTERS, 2)},
        cluster_start_clocks=623.58,
        cluster_step_clocks=21.061,
        cluster_bytes_per_clock=60.5,
        watts=600,
        sustained=0.83,
        peak_seconds=0.45e-3,
        joules_per_l2_byte=1.2992e-11,
    )
}  # fmt: skip

ESTIMATED = ("mma_gemm", "mma_f16", "mma_int8", "mma_fp8")
"""Units of which nothing was measured. "mma_gemm" has what fits the rungs with mma.sync, "mma8" and "mma16": mostly the
better of the two, multiply-adds and a warp's work as they come to together in large tiles; and what lies outside of the
operands as of "wgmma_gemm". "mma_f16", with sums in float16, is the same; those of 8 bits are taken as it with twice as
many multiply-adds, each of which takes half the energy. Sums in float16 are taken to cost "wgmma_gemm" what those in
float32 do, and nearly do so where they were measured (docs/planner.md)."""

EMULATOR = Constants(
    clock=1.0e9,
    memory_bandwidth=20e9,
    launch=0.6e-3,
    pass_seconds=1.0e-3,
    add_seconds=1.0e-3,
    workspace_bandwidth=4e9,
    units={
        "thread": UnitCost(1.0, 0, 20_000, 4),
        "ffma": UnitCost(3.2, 0, 100_000, 4),
        "mma8": UnitCost(2.0, 0, 50_000, 4),
        "mma16": UnitCost(3.2, 0, 50_000, 4),
        "mma_gemm": UnitCost(3.2, 0, 50_000, 4),
        "mma_f16": UnitCost(3.2, 0, 50_000, 4),
        "mma_tf32": UnitCost(3.2, 0, 50_000, 4),
        "mma_f64": UnitCost(1.0, 0, 50_000, 4),
        "mma_f64_boxes": UnitCost(0.9, 0, 50_000, 4),
        "mma_int8": UnitCost(3.2, 0, 50_000, 4),
        "mma_fp8": UnitCost(3.2, 0, 50_000, 4),
        "wgmma": UnitCost(3.5, 0, 400_000, 4),
        "wgmma_gemm": UnitCost(3.5, 0, 400_000, 4),
        "wgmma_tf32": UnitCost(3.5, 0, 400_000, 4),
        "wgmma_widened": UnitCost(3.0, 0, 400_000, 4),
        "wgmma_widened_int8": UnitCost(3.0, 0, 400_000, 4),
        "wgmma_fp8": UnitCost(3.5, 0, 400_000, 4),
        "wgmma_int8": UnitCost(3.5, 0, 400_000, 4),
        "exact32": UnitCost(1.2, 0, 400_000, 4),
        "general": UnitCost(4.5, 0, 4_000, 4, shared_read_clocks=7, element_clocks=6),
        "simt": UnitCost(3.0, 0, 20_000, 4),
        "general64": UnitCost(2.5, 0, 4_000, 4, shared_read_clocks=8, element_clocks=10),
        "vector": UnitCost(4.0, 600, 20_000, 4),
        "vector_widened": UnitCost(3.0, 600, 20_000, 4),
        "vector_widened_int8": UnitCost(3.0, 600, 20_000, 4),
        "vector_rows": UnitCost(2.1, 90, 20_000, 4),
    },
)
"""The emulator's: its SMs are threads of the CPU, and its clock counts nanoseconds. By hand, from 120 products,
squares of 16 to 1024, stacks and vectors, on a CPU with two cores that others used as well (2026-11-22): good to a
factor of two."""


_TENSOR_SHARE = (
    0.75  # of the tensor cores' peak, the most that mma.sync is taken to reach where that is little
)
_FLOAT64_SHARE = 0.9  # the same of float64, which takes so long that all else is done meanwhile
_ASSUMED = "h200"
# Of GPUs with the measured one's chip, the power limit by its share of the measured one's 700 W. A GH200 has its limit
# together with its CPU, and is taken to have what an H200 has.
_SAME_CHIP = {"h100-sxm": 1.0, "h800-sxm": 1.0, "gh200": 1.0, "h100-nvl": 400 / 700, "h100-pcie": 350 / 700}
# What is another on those with less L2: lines that are read in part, stages that blocks share, how clusters begin and
# split K. From that search, but for the bytes that clusters take in: these are as clusters were measured to take them,
# 87 a nanosecond, and 8 to 17 % fewer where warpgroups take turns.
_STRADDLING_IN_LESS_L2, _CUT_IN_LESS_L2 = 1.7156, 3.4361
_CLUSTER_START_IN_LESS_L2, _CLUSTER_BYTES_IN_LESS_L2 = 165.87, 44.0
_CLUSTER_TURNS_IN_LESS_L2 = 1.1
# Their memory is slower, too, so that few SMs take in what it gives: even shares matter little, as measured on an H100.
_WGMMA_IN_LESS_L2 = {"split_clocks": 2637.9, "memory_share": 0.86317, "idle_memory": 0.47416}
# Of 8 bits beside 16 there: from a search among 396 plans of 42 problems on an H100 (2026-11-27) and those on an H200,
# and the start of a block by hand; int8 is as float8. NOTE: two of those problems change plans, and lose 20 %, if a
# constant moves by 1 %.
_WIDENED_IN_LESS_L2 = {
    "wgmma_widened": UnitCost(
        7582, 19.45, 2400, 5.217, 342.3, 183.7, stores_per_clock=1.57, memory_share=0.9158,
        joules_per_mac=1.116e-12, split_clocks=2170, epilogue_clocks=0.3, idle_memory=1.2,
        memory_latency_clocks=59.09, element_clocks=0.01066,
    ),
    "vector_widened": UnitCost(21.37, 0, 9266, 64, 280.5, memory_share=0.8048),
}  # fmt: skip
_WIDENED_IN_LESS_L2 |= {f"{name}_int8": unit for name, unit in _WIDENED_IN_LESS_L2.items()}


def scaled(gpu: Gpu | None) -> Constants:
    """Constants for a GPU of the table, derived from the measured one: clock, bandwidth, units per SM.

    NOTE: these were never measured. Rates per clock follow the table's peaks, where ours is not lower anyway, and L2
    its memory; what a step costs beside them and latencies are taken as they are on the measured GPU, and power as no
    limit. GPUs with the measured one's chip have its L2, and its power by their limits.
    None stands for a GPU that is in no table: it counts as the measured one.
    """
    model = FITTED[_ASSUMED]
    if gpu is None:
        return model
    known = find(_ASSUMED)
    memory = gpu.memory_bandwidth / known.memory_bandwidth
    cores = gpu.cores_per_sm / known.cores_per_sm
    clock = gpu.boost_mhz * 1e6
    share_of_l2 = memory * known.sms * model.clock / (gpu.sms * clock)
    doubles = (gpu.peaks.fp64 or math.inf) / (2 * gpu.sms * clock)
    peak = (
        max(gpu.peaks.fp16_fp32 or 0.0, gpu.peaks.bf16 or 0.0)
        or gpu.peaks.fp16_fp16
        or gpu.peaks.fp32
        or math.inf
    )
    tensor_clocks = 2 * gpu.sms * gpu.tensor_mhz * 1e6
    tensor = peak / tensor_clocks
    wide = {  # without tf32 or float64 on its tensor cores, a GPU has no plan with them: see the kernel's rules
        "mma_f16": gpu.peaks.fp16_fp16 or peak,  # of a GeForce twice what it has with sums in float32
        "mma_tf32": gpu.peaks.tf32 or peak / 2,
        "mma_f64": gpu.peaks.fp64_tensor or gpu.peaks.fp64 or math.inf,
        "mma_f64_boxes": gpu.peaks.fp64_tensor or gpu.peaks.fp64 or math.inf,
        "mma_int8": gpu.peaks.int8 or 2 * peak,
        "mma_fp8": gpu.peaks.fp8_fp32 or 2 * peak,
    }

    def rescale(name: str, unit: UnitCost) -> UnitCost:
        if name in wide:
            share = _FLOAT64_SHARE if name.startswith("mma_f64") else _TENSOR_SHARE
            most = share * wide[name] / tensor_clocks
            return replace(unit, macs_per_clock=min(unit.macs_per_clock, most))
        if name.startswith("mma"):
            return replace(unit, macs_per_clock=min(unit.macs_per_clock, _TENSOR_SHARE * tensor))
        if name == "general64":
            return replace(unit, macs_per_clock=min(unit.macs_per_clock, doubles))
        return (
            unit
            if name.startswith(("wgmma", "exact32"))
            else replace(unit, macs_per_clock=unit.macs_per_clock * cores)
        )

    model = replace(
        model,
        clock=clock,
        memory_bandwidth=model.memory_bandwidth * memory,
        units={name: rescale(name, unit) for name, unit in model.units.items()},
    )
    if gpu.name in _SAME_CHIP:
        return _of_same_chip(model, gpu, known)
    return replace(
        model,
        l2_bytes_per_clock=model.l2_bytes_per_clock * share_of_l2,
        workspace_bandwidth=model.workspace_bandwidth * memory,
        watts=math.inf,
    )


def _of_same_chip(model: Constants, gpu: Gpu, known: Gpu) -> Constants:
    """The constants of a GPU with the measured one's chip, whose clock and memory the model has already."""
    model = replace(model, watts=model.watts * _SAME_CHIP[gpu.name])
    if gpu.l2_bytes >= known.l2_bytes:
        return model
    own = {name: replace(model.units[name], **_WGMMA_IN_LESS_L2) for name in ("wgmma_gemm", "wgmma_tf32")}
    return replace(
        model,
        sm_bytes_per_clock=math.inf,
        pair_bytes_per_clock=math.inf,
        straddling=_STRADDLING_IN_LESS_L2,
        cut_lines=_CUT_IN_LESS_L2,
        cluster_start_clocks=_CLUSTER_START_IN_LESS_L2,
        cluster_bytes_per_clock=_CLUSTER_BYTES_IN_LESS_L2,
        cluster_turns=_CLUSTER_TURNS_IN_LESS_L2,
        units={**model.units, **own, **_WIDENED_IN_LESS_L2},
    )
