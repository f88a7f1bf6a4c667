"""The cost model: how long a kernel takes for a problem on a GPU, and what bounds it.

One set of formulas over all kernels. A block goes through K in steps. A step takes as long as its multiply-adds and
what its warps do beside them, or as its latency where too few warps hide that, or as its bytes from L2. Blocks come in
waves over the SMs, and start and store once each. Nothing is faster than memory allows, nor than the power limit.

A prediction names its seconds:

=============  =====================================================================================================
math           the multiply-adds of the problem, on all SMs
waves          SMs without a tile, and what tiles have outside the matrices
latency        steps that wait, since too few warps hide it
L2             steps that wait for bytes from L2
narrow loads   steps that load element by element, since rows lie aligned for nothing wider
fill           the start of a block: the first bytes until its pipeline is full
store          storing C
launch         the launches
passes         copies and partial sums: what goes through the workspace
memory         reading A and B and writing C once, and waiting for the SMs that have more to read than others
power          what the power limit allows
=============  =====================================================================================================

All but the last two add up to what the blocks take; memory and power run beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tilewise.gpus import arch_capability, limits
from tilewise.kernels.epilogue import partial_bytes
from tilewise.kernels.gemm.arrange import copied, copy_bytes, moves_lines, transposes_runs
from tilewise.kernels.spec import KernelSpec, Settings, Work, access_bytes
from tilewise.operands import Operands, ceil_div
from tilewise.planner.constants import Constants, UnitCost
from tilewise.planner.target import Target

__all__ = ["Prediction", "copy_seconds", "count_resident", "estimate", "predict", "predict_work"]

_SHARPNESS = 6  # of the maximum of things that overlap: equal ones take 12 % longer than one alone
_LARGE_SPLIT = 16  # blocks of a cluster, the most there can be
_LEAST = 4  # bytes: the widest access where 16 bytes at once cannot be
_IN_BOXES = 0.4  # of what an array of an epilogue takes element by element, where it goes by way of boxes


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds that a plan is predicted to take, and what they are spent on; ``bound`` names what most of them are."""

    seconds: float
    bound: str
    terms: Mapping[str, float]


def predict(
    spec: KernelSpec, operands: Operands, settings: Settings, copying: float, target: Target
) -> Prediction:
    """What multiplying these operands by this kernel takes on the target, after ``copying`` for so many seconds."""
    inner = operands.inner(spec.stack_axes)
    found = predict_work(spec.work(inner, settings), inner, operands, copying, target)
    if not operands.epilogue.summed:
        return found
    repeats = operands.batch // inner.batch if operands.batch else 1
    return _with_sums(found, partial_bytes(inner, spec.sum_slots(inner, settings)), inner, repeats, target)


def _with_sums(found: Prediction, moved: int, inner: Operands, repeats: int, target: Target) -> Prediction:
    """The same with partial sums of columns and rows, which are written and read, and the launches that add them up."""
    constants = target.constants
    once = len(inner.epilogue.summed) * constants.pass_seconds + 2 * moved / constants.workspace_bandwidth
    terms = {**found.terms, "passes": found.terms["passes"] + once * repeats}
    bound = "passes" if terms["passes"] >= terms.get(found.bound, 0.0) else found.bound
    return Prediction(found.seconds + once * repeats, bound, terms)


def predict_work(
    work: Work, inner: Operands, operands: Operands, copying: float, target: Target
) -> Prediction:
    """The same with the work of one launch, which serves ``inner``, as many axes of the stack as it takes."""
    repeats = operands.batch // inner.batch if operands.batch else 1
    found = estimate(work, inner if operands.batch else operands, target)
    if repeats == 1 and not copying:
        return found
    terms = {name: seconds * repeats for name, seconds in found.terms.items()}
    terms["passes"] += copying
    bound = "passes" if terms["passes"] >= terms.get(found.bound, 0.0) else found.bound
    return Prediction(found.seconds * repeats + copying, bound, terms)


def copy_seconds(operands: Operands, sources: Operands, target: Target) -> float:
    """What it takes to make those operands that are copies of ``sources``: the bytes of source and copy; and the way
    of each element through an SM, one by one where lines do not stay lines. Those whose lines do are copied together.
    """
    constants, passes, spent = target.constants, set(), 0.0
    for source, copy in copied(sources, operands):
        moved, alike = copy_bytes(copy, operands.stack_of(copy)), moves_lines(source, copy)
        elements = source.rows * source.columns / max(copy.rows * copy.columns, 1)
        spent += moved * (1 + elements * source.itemsize / copy.itemsize) / constants.workspace_bandwidth
        if not alike and not transposes_runs(source, copy):
            spent += moved / copy.itemsize / (constants.copied_per_clock * target.sms) / constants.clock
        passes.add("align" if alike and source.dtype == copy.dtype else copy.name)
    return spent + len(passes) * constants.pass_seconds


def estimate(work: Work, operands: Operands, target: Target) -> Prediction:
    """What one launch of a kernel takes, with its copies and partial sums."""
    constants, (m, n, k), batch = target.constants, _sizes(work, operands), operands.groups or operands.batch
    unit, block, split, cluster = constants.units[work.unit], work.block, work.split, work.cluster
    item_a, item_b = _itemsizes(work, operands)
    if not m * n * batch:
        return Prediction(constants.launch, "launch", {"launch": constants.launch, "passes": 0.0})

    # How many blocks, one after another, an SM has, and how many at once.
    tiles_m, tiles_n = ceil_div(m, block.m), ceil_div(n, block.n)
    clusters = ceil_div(tiles_m, cluster) * tiles_n * split * work.parts * batch
    if operands.groups:  # whose last tile has half its rows, on average
        clusters = math.ceil(operands.groups * (m / block.m + 0.5) * tiles_n)
    steps = ceil_div(ceil_div(k, block.k), split * work.parts)
    launched = [(clusters, steps)]
    if work.tail:
        launched = [(tiles_m * tiles_n - work.tail, ceil_div(k, block.k)), (work.tail * work.parts, steps)]
    multiplied = sum(count * of_each for count, of_each in launched)
    waves = [wave for count, of_each in launched for wave in _waves(work, count, of_each, target)]

    step_bytes = block.k * (item_a * min(block.m, m) + item_b * min(block.n, n) / cluster)
    read_bytes = batch * k * (item_a * m + item_b * n)
    cold = min(read_bytes / max(multiplied * cluster * step_bytes, 1), 1.0)
    # Where few SMs read, L2 has time for lines that are read in part.
    more = constants.straddling * work.straddling + constants.cut_lines * work.cut
    l2_bytes = step_bytes * (1 + more * min(clusters * cluster / target.sms, 1.0))
    spent = _spend(work, operands, (m, n), constants, (l2_bytes, cold), waves)

    seconds = 1 / constants.clock
    terms = {name: clocks * seconds for name, clocks in spent.items()}
    blocks = sum(terms.values())
    useful = m * n * k * batch / (unit.macs_per_clock * target.sms) * seconds
    terms["waves"] = max(terms["math"] - useful, 0.0)
    terms["math"] = min(useful, terms["math"])
    terms["launch"] = constants.launch
    terms["passes"] = work.extra_bytes / constants.workspace_bandwidth
    terms["passes"] += (work.launches - 1) * constants.pass_seconds
    if work.parts > 1:
        terms["passes"] += constants.add_seconds + work.parts_in_turn * constants.part_seconds
    if work.split > 1:
        # Blocks of a cluster read what the others have; large clusters take longer to begin.
        longer = math.sqrt(block.m * block.n) / 64 * (1 + (split / _LARGE_SPLIT) ** 2)
        terms["passes"] += unit.split_clocks * longer / constants.clock
    memory = _memory_seconds(work, operands, (m, n), (clusters, read_bytes), target)
    # Nothing is read until the first bytes of a block are asked for, nor while its last tile is stored.
    memory += unit.idle_memory * (terms["fill"] + terms["store"] / work.tiles)
    macs = block.m * block.n * block.k
    joules = multiplied * cluster * (macs * unit.joules_per_mac + step_bytes * constants.joules_per_l2_byte)
    power = joules / (constants.watts * (constants.sustained if useful > constants.peak_seconds else 1))
    whole = _overlap(blocks, memory, power) + terms["launch"] + terms["passes"]

    outdone = blocks >= memory and blocks >= power
    named = tuple(terms) if outdone else ("memory" if memory >= power else "power", "launch", "passes")
    terms["memory"], terms["power"] = memory, power
    return Prediction(whole, max(named, key=terms.__getitem__), terms)


def _sizes(work: Work, operands: Operands) -> tuple[int, int, int]:
    """m, n and k of the product that the kernel sees.

    NOTE: how many rows groups have is not known: they count as even, and as having all rows between them.
    """
    m, n, k = operands.sizes
    m = ceil_div(m, operands.groups or 1)
    return (n, m, k) if work.exchanged else (m, n, k)


def _itemsizes(work: Work, operands: Operands) -> tuple[int, int]:
    """The bytes of an element of A and of B as the kernel sees them."""
    a, b = operands.a.itemsize, operands.b.itemsize
    return (b, a) if work.exchanged else (a, b)


def _count_slots(work: Work, target: Target) -> int:
    """How many blocks, or clusters that share an operand, have an SM each at once."""
    blocks = work.split if work.split_in_cluster and work.split > 1 else work.cluster
    held = max(int(target.sms * target.constants.cluster_share.get(blocks, 1.0)) // blocks, 1)
    return held * (blocks // work.cluster)


def _waves(work: Work, blocks: int, steps: int, target: Target) -> list[tuple[int, int, int]]:
    """The waves of an SM: full ones of as many blocks as it holds at once, and one of the rest."""
    per_sm = ceil_div(ceil_div(blocks, work.tiles), _count_slots(work, target))
    resident = count_resident(work, target)
    count, rest = divmod(per_sm, resident)
    return [wave for wave in ((count, resident, steps), (1, rest, steps)) if wave[0] * wave[1]]


def _memory_seconds(
    work: Work, operands: Operands, size: tuple[int, int], read: tuple[int, int], target: Target
) -> float:
    """What memory takes to give A and B and to take C, of this size as the kernel sees it.

    ``read``: by how many clusters, a tile each, and how many bytes in all.
    """
    constants, unit, block, (m, n) = target.constants, target.constants.units[work.unit], work.block, size
    (clusters, read_bytes), batch = read, operands.groups or operands.batch
    outside = 1 - (min(block.m, m) + min(block.n, n)) / (block.m + block.n)
    bandwidth = constants.memory_bandwidth * unit.memory_share * (1 - unit.outside * outside)
    again = unit.read_again * _bytes_read_again(work, operands, size, read_bytes, constants)
    moved = read_bytes + again + batch * operands.c.itemsize * m * n + operands.extra_bytes
    spent = moved / bandwidth * (1 - unit.cluster_saves * (work.cluster > 1))
    return spent + _wait_for_last(work, clusters, read_bytes, bandwidth, target)


def _bytes_read_again(
    work: Work, operands: Operands, size: tuple[int, int], read_bytes: int, constants: Constants
) -> float:
    """Bytes that several blocks read, which half of the SMs get by way of the other half of L2.

    Of operands that both halves hold none; of larger ones a share.
    """
    (m, n), k, batch = size, operands.sizes[2], operands.groups or operands.batch
    item_a, item_b = _itemsizes(work, operands)
    down, across = ceil_div(ceil_div(m, work.block.m), work.cluster), ceil_div(n, work.block.n)
    shared = batch * k * (item_a * m * (across > 1) + item_b * n * (down > 1))
    return shared * max(1 - constants.held_twice / max(read_bytes, 1), 0.0)


def _wait_for_last(work: Work, clusters: int, read_bytes: int, bandwidth: float, target: Target) -> float:
    """How much longer reading takes where some SMs, or pairs of them, have a block more than others.

    As long as all read, each has an equal share of the memory's bandwidth. Those that have more read on by themselves
    once the others have what they want, and so few may not take in what memory gives. So do the last of many small
    blocks, each by itself.
    """
    constants, slots = target.constants, _count_slots(work, target) * work.cluster
    unit = constants.units[work.unit]
    blocks, waiting = max(ceil_div(clusters, work.tiles) * work.cluster, 1), 0.0
    for units, rate in (
        (slots, constants.sm_bytes_per_clock),
        (slots // 2, constants.pair_bytes_per_clock),
    ):
        last = blocks % units if units else 0
        if last:
            waiting = max(waiting, 1 / (rate * unit.taken_in * constants.clock) - last / bandwidth)
    waiting += 1 / (unit.block_bytes_per_clock * constants.clock)
    return waiting * read_bytes / blocks


def count_resident(work: Work, target: Target) -> int:
    """How many blocks an SM holds at once: as the registers allow, and the shared memory of the target."""
    if not work.shared_bytes:
        return work.resident
    known = limits(arch_capability(target.arch))
    fit = known.shared_per_sm // (work.shared_bytes + known.shared_reserved_per_block)
    return max(min(work.resident, fit), 1)


def _spend(
    work: Work,
    operands: Operands,
    size: tuple[int, int],
    constants: Constants,
    step_bytes: tuple[float, float],
    blocks: list[tuple[int, int, int]],
) -> dict[str, float]:
    """The clocks of the SM that has the most blocks, by what they are spent on.

    ``size`` is that of C as the kernel sees it; ``step_bytes`` those that L2 reads for a step, and the share of them
    that no other block reads first; ``blocks`` how many waves an SM has, of how many blocks of how many steps.
    """
    unit, block = constants.units[work.unit], work.block
    l2_bytes, cold = step_bytes
    item = operands.a.itemsize

    # What one block's step takes of an SM, in clocks, by each of what it needs.
    macs, warps = block.m * block.n * block.k, work.threads / 32
    math = macs / unit.macs_per_clock + warps * unit.warp_clocks
    math += work.shared_reads * unit.shared_read_clocks + work.step_clocks
    math += block.k * (block.m + block.n) * unit.element_clocks
    latency = unit.latency_clocks + macs / warps / unit.warp_macs_per_clock + unit.waits * math
    latency += cold * unit.memory_latency_clocks
    l2 = l2_bytes / constants.l2_bytes_per_clock
    narrow = 0.0
    if work.load_bytes < 16:
        lines = ((block.m, access_bytes(operands.a)), (block.n, access_bytes(operands.b)))
        accesses = sum(count / min(width, _LEAST) for count, width in lines if width < 16)
        narrow = block.k * item * accesses / unit.loads_per_clock
    # On their way in, and to the tensor cores: A's once, B's for every 64 rows of A.
    shared = block.k * item * (2 * block.m + block.n * (1 + block.m / 64)) / unit.shared_bytes_per_clock
    store = _store_clocks(work, operands, size, unit)
    start, wait = unit.start_clocks, 0.0
    if work.cluster > 1:
        start, wait = start + constants.cluster_start_clocks, constants.cluster_step_clocks
        # Each block's SM takes in what the others load for it, too.
        item_a, item_b = _itemsizes(work, operands)
        taken = block.k * (item_a * block.m + item_b * block.n)
        turns = constants.cluster_turns if work.pingpong else 1.0
        latency = max(latency, taken * turns / constants.cluster_bytes_per_clock)

    clocks = {"math": 0.0, "latency": 0.0, "L2": 0.0, "narrow loads": 0.0, "fill": 0.0, "store": 0.0}
    for count, resident, steps in blocks:
        loops = count * work.tiles * steps
        busy = resident * math + wait
        slowest = max(busy + resident * narrow, latency + narrow, resident * shared)
        step = _overlap(slowest, resident * l2)
        clocks["math"] += loops * busy
        clocks["L2"] += loops * (step - slowest)
        loading = min(resident * narrow, slowest - busy)
        clocks["narrow loads"] += loops * loading
        clocks["latency"] += loops * (slowest - busy - loading)
        felt = unit.felt_beside if resident > 1 else 1.0
        clocks["fill"] += felt * count * start
        clocks["store"] += felt * count * work.tiles * _felt_store(work, unit, resident * store, steps * busy)
    return clocks


def _felt_store(work: Work, unit: UnitCost, stored: float, products: float) -> float:
    """What a tile's store adds to its products: little, where another warpgroup multiplies meanwhile."""
    if not work.pingpong:
        return stored
    beside = min(products, stored) * (work.tiles - 1) / work.tiles
    return stored - beside * (1 if work.whole_boxes else 1 - unit.stored_beside)


def _store_clocks(work: Work, operands: Operands, size: tuple[int, int], unit: UnitCost) -> float:
    """What storing a tile of C, which is of this size, takes of an SM."""
    block, (m, n) = work.block, size
    # What lies outside of C takes turns as well, but not element by element.
    store = block.m * block.n * operands.c.itemsize / unit.store_bytes_per_clock
    if work.store_bytes < 16:
        # Of warpgroups that have tiles of their own one stores alone.
        store += min(block.m, m) * min(block.n, n) / unit.stores_per_clock * (2 if work.pingpong else 1)
    if not work.whole_boxes:
        store *= unit.stored_between
    if work.stored_in_runs:
        store *= unit.stored_in_runs
    if work.storers == 1 and work.parts == 1:
        store *= unit.stored_alone
    if not operands.epilogue.is_plain:
        arrays = sum(one.by_row and one.by_column and not one.scales for one in operands.epilogue.arrays)
        each = _IN_BOXES if work.finishes_in_boxes else 1.0
        store += block.m * block.n * unit.epilogue_clocks * (1 + each * arrays) * 2 / work.storers
    return store


def _overlap(*times: float) -> float:
    """What things take that run beside each other: the longest, and a little more where others are as long."""
    longest = max(times)
    if not longest:
        return 0.0
    powers = 0.0
    for time in times:
        powers += (time / longest) ** _SHARPNESS
    return longest * float(powers ** (1 / _SHARPNESS))
