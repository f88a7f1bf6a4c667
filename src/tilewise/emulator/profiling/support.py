"""Counting at run time the accesses whose lanes may have any addresses.

Every place of a kernel that touches memory has *figures* in the memory of its multiprocessor, and a few
*ways* that remember what its last accesses came to: lanes mostly lie as they lay before, only elsewhere, and
then nothing is counted anew.
"""

from __future__ import annotations

from enum import IntEnum
from functools import partial

from tilewise.emulator.layout import Space
from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.llvm.routine import I32, MutableValue, Ptr, Routine, routine
from tilewise.emulator.profiling.accesses import SECTOR_BYTES, TAGS, WORD_BYTES, Kind, lanes_a_phase

__all__ = ["FIGURES", "OF_WIDTH", "WAY", "WAYS", "WIDTHS", "Figure", "look_for"]

WAYS = 8
WIDTHS = (1, 2, 4, 8, 16)
FIGURES = 21
_ALL = f"<{FIGURES} x i64>"
_BASE = ~127  # lanes are remembered by their distance from the beginning of a cache line
_WINDOW_BIT = 56  # generic addresses of other spaces than global memory have a bit from here on


class Figure(IntEnum):
    """The figures of an access, 64 bits each."""

    RUNS = 0
    THREADS = 1
    SHARED = 2  # runs that touched shared memory
    GLOBAL = 3
    WAVES = 4  # wavefronts, for accesses of each of WIDTHS bytes a lane at these addresses
    IDEAL_8 = 9
    IDEAL_16 = 10
    PHASES_8 = 11
    PHASES_16 = 12
    SECTORS = 13
    LINES = 14
    PASSES = 15  # wavefronts of a copy that goes past the L1
    LEAST = 16  # sectors that as many bytes side by side would take, and no more than were touched
    ASKED = 17  # sectors that an atomic access asks for
    SHARING = 18  # wavefronts of an atomic access in which lanes share words
    DISTINCT = 19  # different addresses
    TURNS = 20  # of the L1 and shared memory, of a load


class WAY:
    """A way of the pattern cache: the distances between lanes, and the figures of such an access."""

    # At its beginning: the distance of each lane.
    FIGURES = 256
    MASK, WINDOW = 448, 452
    BASE = 456  # where it was seen last
    KNOWN = 464  # where the distances between lanes are known: the lowest lane's address, and behind it which lanes ran
    SIZE = 512


# Figures of an access of so many bytes a lane: the wavefronts that it would take at best, and without conflicts.
OF_WIDTH = {8: (Figure.IDEAL_8, Figure.PHASES_8), 16: (Figure.IDEAL_16, Figure.PHASES_16)}


@routine("tw_count", "void")
def _count_access(
    r: Routine, ways: Ptr, figures: Ptr, addresses: Ptr, mask: I32, size: I32, space: I32, kind: I32
) -> None:
    r.give_if(r.equals(mask, 0))
    first = r.element(addresses, r.find_lowest(mask, True), "i64")
    alone = r.equals(mask & (mask - 1), 0)
    named = r.differs(space, Space.GENERIC)
    with r.when(r.both(alone, named)):
        _one_lane(r)
        r.give()
    base = first & _BASE
    # Lanes that begin in different sectors of a line have ways of their own, too.
    number = ((first >> 2) ^ ((first >> 5) & 3)) & (WAYS - 1)
    way = r.item(ways, number, WAY.SIZE)
    window = r.resize(first >> _WINDOW_BIT, "i32", False)
    many = vector("i64")
    away = r.load(many, addresses.ref, 64) - r.splat(base)
    keys = r.select(r.bits(mask), away, -1)
    same = r.equals(r.bits(r.equals(keys, r.load(many, way.ref, 64))), -1)
    same = r.both(
        same, r.equals(r.field(way, WAY.MASK, "i32"), mask), r.equals(r.field(way, WAY.WINDOW, "i32"), window)
    )
    r.put(way, WAY.BASE, base)
    kept = r.at(way, WAY.FIGURES)
    with r.unless(same):
        r.store(keys, way.ref, 64)
        r.put(way, WAY.MASK, mask)
        r.put(way, WAY.WINDOW, window)
        _count_pattern(r, kept, addresses, mask, size, space, kind, window)
    _add_figures(r, r.load(_ALL, kept.ref, 64))


def _one_lane(r: Routine) -> None:
    """Add the figures of an access by a single lane: the address does not matter."""
    here = {Figure.SHARED, *range(Figure.WAVES, Figure.PHASES_16 + 1), Figure.SHARING}
    there = {Figure.GLOBAL, Figure.SECTORS, Figure.LINES, Figure.LEAST, Figure.ASKED}
    both = {Figure.RUNS, Figure.THREADS, Figure.DISTINCT, Figure.TURNS}
    vectors = [
        Value(_ALL, f"<{', '.join(f'i64 {int(i in both | some)}' for i in range(FIGURES))}>")
        for some in (here, there)
    ]
    more = r.select(r.equals(r["space"], Space.SHARED), *vectors)
    _add_figures(r, more)


def _add_figures(r: Routine, more: Value) -> None:
    r.store(r.load(_ALL, r["figures"].ref, 8) + more, r["figures"].ref, 8)


def _put_figure(r: Routine, figure: int, value: Value) -> None:
    r.put(r["figures"], 8 * figure, value)


@routine("tw_count_anew", "void")
def _count_pattern(
    r: Routine, figures: Ptr, addresses: Ptr, mask: I32, size: I32, space: I32, kind: I32, window: I32
) -> None:
    """Compute the figures of an access whose pattern of lanes is not in the cache."""
    r.fill(figures, 0, 8 * FIGURES)
    one = r.const("i64", 1)
    put = partial(_put_figure, r)
    put(Figure.RUNS, one)
    put(Figure.THREADS, r.wide(r.count_bits(mask)))
    generic = r.equals(space, Space.GENERIC)
    each = r.equals(kind, Kind.EACH)
    named = [r.equals(space, one) for one in (Space.SHARED, Space.GLOBAL)]
    there = [r.equals(window, number) for number in (1, 0)]
    shared, outside = (a | (generic & b) for a, b in zip(named, there, strict=True))
    by = r.find_lowest(size, True)
    put(Figure.DISTINCT, r.wide(_count_pieces(r, addresses, mask, by)))
    with r.when(shared):
        put(Figure.SHARED, one)
        pairs = _in_pairs(r)
        running = r.count_bits(mask)
        for i, width in enumerate(WIDTHS):
            lanes = lanes_a_phase(width)
            with r.when(r.is_at_most(size, width)):
                together = r.select(pairs, 2 * lanes, lanes)
                at_once = together if width > WORD_BYTES else lanes
                waves = _count_waves(r, addresses, mask, width, at_once, kind)
                put(Figure.WAVES + i, r.wide(waves))
                if width > WORD_BYTES:
                    ideal, phases = OF_WIDTH[width]
                    least = (running + (lanes - 1)) // lanes
                    put(ideal, r.wide(r.intrinsic("llvm.umin", waves, least)))
                    put(phases, r.wide(r.select(pairs, _phases(r, mask, 2 * lanes), _phases(r, mask, lanes))))
        with r.unless(each):
            put(Figure.TURNS, r.wide(_turns(r)))
        with r.when(each):
            words = r.intrinsic("llvm.umax", size, WORD_BYTES)
            waves = _count_waves(r, addresses, mask, size, 128 // words, Kind.STORE)
            put(Figure.SHARING, r.wide(waves))
    with r.when(outside):
        _count_outside(r, each)


def _count_outside(r: Routine, each: Value) -> None:
    """Compute the figures of an access to global memory. ``each``: lanes do not share words."""
    put = partial(_put_figure, r)
    put(Figure.GLOBAL, r.const("i64", 1))
    touched = {}
    for figure, shift in ((Figure.SECTORS, 5), (Figure.LINES, 7)):
        touched[figure] = _count_pieces(r, r["addresses"], r["mask"], shift)
        put(figure, r.wide(touched[figure]))
    asked = r.count_bits(r["mask"]) * r["size"]
    least = (asked + (SECTOR_BYTES - 1)) >> 5
    put(Figure.LEAST, r.wide(r.intrinsic("llvm.umin", touched[Figure.SECTORS], least)))
    with r.unless(each):
        tags = (touched[Figure.LINES] + (TAGS - 1)) // TAGS
        put(Figure.TURNS, r.wide(r.intrinsic("llvm.umax", _turns(r), tags)))
    with r.when(each):
        put(Figure.ASKED, r.wide(_count_atomic_sectors(r, r["addresses"], r["mask"])))


def _turns(r: Routine) -> Value:
    """Return the turns of a load: the most words that its lanes read of one bank."""
    return _count_waves(r, r["addresses"], r["mask"], r["size"], 32, Kind.STORE)


def _phases(r: Routine, mask: Value, lanes: int) -> Value:
    """Return how many groups of ``lanes`` lanes have a running one."""
    total = r.const("i32", 0)
    for start in range(0, 32, lanes):
        here = mask & (((1 << lanes) - 1) << start)
        total += r.resize(r.differs(here, 0), "i32", False)
    return total


def _in_pairs(r: Routine) -> Value:
    """Whether a load's neighbouring lanes share their addresses, as far as both run."""
    many = vector("i64")
    listed, running = r.load(many, r["addresses"].ref, 64), r.bits(r["mask"])
    found = r.const("i1", 0)
    for by in (1, 2):
        order = [lane ^ by for lane in range(32)]
        other, there = r.shuffle(listed, order), r.shuffle(running, order)
        apart = r.differs(listed, other) & (running & there)
        found |= r.equals(r.bits(apart), 0)
    return found & r.equals(r["kind"], Kind.LOAD)


@routine("tw_count_waves", "i32")
def _count_waves(r: Routine, addresses: Ptr, mask: I32, width: I32, lanes: I32, kind: I32) -> None:
    """Return the wavefronts of accesses of ``width`` bytes, at addresses rounded down to a multiple of that."""
    counts, words = r.reserve("[32 x i32]"), r.reserve("[4096 x i32]")
    wide = r.is_above(width, 4)
    each = r.select(wide, width >> 2, 1)
    shares = r.differs(kind, Kind.EACH)
    whole = r.equals(lanes, 32)
    one_phase = (1 << (lanes & 31)) - 1
    left = r.variable("i32", mask)
    now = r.variable("i32", r.select(whole, -1, one_phase))
    total = r.variable("i32", 0)
    down = (r.wide(width) - 1) ^ -1
    with r.loop() as loop:
        rest = left.get()
        loop.leave(r.equals(rest, 0))
        phase = now.get()
        r.fill(counts, 0, 128)
        most = r.variable("i32", 0)
        with r.each_lane(rest & phase) as lane:
            address = r.element(addresses, lane, "i64") & down
            word = r.resize(address >> 2, "i32", False)
            with r.count(r.wide(each)) as i:
                _note(r, counts, words, word + r.resize(i, "i32", False), most, shares)
        total.add(most.get())
        left.put(r.without(rest, phase))
        now.put(phase << (lanes & 31))
    r.give(total.get())


def _note(r: Routine, counts: Value, words: Value, word: Value, most: MutableValue, shares: Value) -> None:
    """Count a word in its bank, unless the bank has it already and lanes share words."""
    bank = word & 31
    place = r.item(counts, bank, 4)
    there = r.field(place, 0, "i32")
    row = r.item(words, bank, 512)
    found = r.variable("i1", 0)
    look_for(r, found, word, row, there)
    with r.unless(found.get() & shares):
        r.put(r.item(row, there, 4), 0, word)
        more = there + 1
        r.put(place, 0, more)
        most.put(r.intrinsic("llvm.umax", most.get(), more))


def look_for(r: Routine, found: MutableValue, value: Value, listed: Value, count: Value) -> None:
    """Set ``found`` if a value is among the ``count`` first ones of a list."""
    with r.count(r.wide(count)) as i:
        same = r.equals(r.element(listed, i, value.type), value)
        found.put(found.get() | same)


@routine("tw_count_pieces", "i32")
def _count_pieces(r: Routine, addresses: Ptr, mask: I32, shift: I32) -> None:
    """Return how many different pieces of 2^shift bytes the lanes touch."""
    pieces = r.reserve("[32 x i64]")
    total = r.variable("i32", 0)
    by = r.wide(shift)
    with r.each_lane(mask) as lane:
        piece = r.element(addresses, lane, "i64") >> by
        found = r.variable("i1", 0)
        look_for(r, found, piece, pieces, total.get())
        with r.unless(found.get()):
            r.put(r.item(pieces, total.get(), 8), 0, piece)
            total.add(1)
    r.give(total.get())


@routine("tw_count_asked", "i32")
def _count_atomic_sectors(r: Routine, addresses: Ptr, mask: I32) -> None:
    """Return ``LaneAccess.atomic_sectors`` of lanes that are aligned to their size."""
    total = r.variable("i32", 0)
    with r.each_lane(mask) as lane:
        here = r.element(addresses, lane, "i64")
        mine, first = r.variable("i32", 0), r.variable("i1", 1)
        # A lane speaks for its sector if no lane before it lies there; then it looks for the most wanted word.
        with r.each_lane(mask) as other:
            there = r.element(addresses, other, "i64")
            same = r.equals(here >> 5, there >> 5)
            before = r.is_below(other, lane)
            first.put(first.get() & ((same & before) ^ 1))
            with r.when(same):
                wanted = r.variable("i32", 0)
                with r.each_lane(mask) as third:
                    word = r.element(addresses, third, "i64")
                    alike = r.equals(there >> 2, word >> 2)
                    wanted.add(r.resize(alike, "i32", False))
                mine.put(r.intrinsic("llvm.umax", mine.get(), wanted.get()))
        with r.when(first.get()):
            total.add(mine.get())
    r.give(total.get())


@routine("tw_count_copy", "void")
def _count_copy(
    r: Routine, ways: Ptr, others: Ptr, figures: Ptr, targets: Ptr, sources: Ptr, mask: I32, size: I32
) -> None:
    """Count an asynchronous copy by the addresses of both its ends."""
    r.give_if(r.equals(mask, 0))
    lane = r.find_lowest(mask, True)
    many, running = vector("i64"), r.bits(mask)
    firsts = [r.element(r[name], lane, "i64") for name in ("targets", "sources")]
    number = (r.op("xor", *firsts) >> 4) & (WAYS - 1)
    way, other = (r.item(r[name], number, WAY.SIZE) for name in ("ways", "others"))
    same = r.equals(r.field(way, WAY.MASK, "i32"), mask)
    for place, name, first in ((way, "targets", firsts[0]), (other, "sources", firsts[1])):
        base = first & ~127
        keys = r.select(running, r.load(many, r[name].ref, 64) - r.splat(base), -1)
        known = r.equals(keys, r.load(many, place.ref, 64))
        same = r.both(same, r.equals(r.bits(known), -1))
        r.store(keys, place.ref, 64)
        r.put(place, WAY.BASE, base)
    kept = r.at(way, WAY.FIGURES)
    with r.unless(same):
        r.put(way, WAY.MASK, mask)
        _count_pattern(r, kept, targets, mask, size, Space.SHARED, Kind.EACH, 0)
        waves = _count_copy_waves(r, targets, sources, mask, size)
        place = r.find_lowest(size, True) + Figure.WAVES
        r.put(r.item(kept, place, 8), 0, r.wide(waves))
        r.put(kept, 8 * Figure.PASSES, r.wide(_count_passes(r, targets, sources, mask)))
    _add_figures(r, r.load(_ALL, kept.ref, 64))


@routine("tw_count_copy_waves", "i32")
def _count_copy_waves(r: Routine, targets: Ptr, sources: Ptr, mask: I32, size: I32) -> None:
    """Return the wavefronts of an asynchronous copy through the L1.

    Its words come through banks on their way in as well: a lane waits for those before it at both ends, and a copy
    takes as long as the lane that waits longest.
    """
    counts = {name: r.reserve("[32 x i32]") for name in ("targets", "sources")}
    words = r.wide(size >> 2)
    lanes = 128 // size
    phase_mask = (1 << r.wide(lanes)) - 1
    total = r.variable("i32", 0)
    with r.count(32) as start, r.when(r.equals(start % r.wide(lanes), 0)):
        phase = r.resize(phase_mask << start, "i32", False)
        here = mask & phase
        for place in counts.values():
            r.fill(place, 0, 128)
        with r.each_lane(here) as lane, r.count(words) as word:
            for name, place in counts.items():
                r.change(r.item(place, _bank(r, name, lane, word), 4), 0, "add", 1)
        longest = r.variable("i32", 0)
        with r.each_lane(here) as lane:
            most = {name: r.variable("i32", 0) for name in counts}
            with r.count(words) as word:
                for name, place in counts.items():
                    found = r.element(place, _bank(r, name, lane, word), "i32")
                    most[name].put(r.intrinsic("llvm.umax", most[name].get(), found))
            both = most["targets"].get() + most["sources"].get() - 1
            longest.put(r.intrinsic("llvm.umax", longest.get(), both))
        total.add(longest.get())
    r.give(total.get())


def _bank(r: Routine, name: str, lane: Value, word: Value) -> Value:
    address = r.element(r[name], lane, "i64")
    return ((address >> 2) + word) & 31


@routine("tw_count_passes", "i32")
def _count_passes(r: Routine, targets: Ptr, sources: Ptr, mask: I32) -> None:
    """Return the wavefronts of an asynchronous copy past the L1: a pass for each pair of lines that it goes between.

    Sectors go from one line to another together if they keep their distance, or all go backwards. There is a list of
    pairs of lines, and of each a bit for every distance, forwards and backwards.
    """
    # Line of the source, of the target, two sets of bits.
    pairs = r.reserve("[32 x [4 x i64]]", 8)
    count = r.variable("i64", 0)
    with r.each_lane(mask) as lane:
        source, target = (r.element(r[name], lane, "i64") for name in ("sources", "targets"))
        lines = [address >> 7 for address in (source, target)]
        mine = r.variable("i64", count.get())
        with r.count(count.get()) as i:
            pair = r.item(pairs, i, 32)
            same = r.both(*(r.equals(r.field(pair, 8 * k, "i64"), lines[k]) for k in (0, 1)))
            mine.put(r.select(same, i, mine.get()))
        pair = r.item(pairs, mine.get(), 32)
        with r.when(r.equals(mine.get(), count.get())):
            for k, value in enumerate((*lines, r.const("i64", 0), r.const("i64", 0))):
                r.put(pair, 8 * k, value)
            count.add(1)
        within = ((source - target) >> 2) & 7
        one, other = source >> 5, target >> 5
        for k, name in ((2, "sub"), (3, "add")):
            way = (within << 2) | (r.op(name, one, other) & 3)
            bit = 1 << way
            r.change(pair, 8 * k, "or", bit, "i64")
    total = r.variable("i32", 0)
    with r.count(count.get()) as i:
        pair = r.item(pairs, i, 32)
        ways = [r.count_bits(r.field(pair, 8 * k, "i64")) for k in (2, 3)]
        total.add(r.resize(r.intrinsic("llvm.umin", *ways), "i32", False))
    r.give(total.get())
