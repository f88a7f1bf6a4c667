"""Model of the hardware's counting of one memory access: banks, wavefronts, sectors.

Shared memory has 32 banks of 4 bytes. A warp's access goes in phases, as many lanes each as 128 bytes hold:
all 32 of up to 4 bytes, 16 of 8 bytes, 8 of 16. A phase takes as many *wavefronts* as the most wanted bank
has different words wanted; lanes that want the same word share it. What is beyond a wavefront for each phase
are *bank conflicts*. *Ideal* is what the bytes of the lanes that run would take, and never more than they did.

Exceptions, measured on an H200. Loads of 8 and 16 bytes in which every lane shares its address with its
neighbour (lane n with n^1, or with n^2), or has a neighbour that does not run, go twice as many lanes a phase.
In atomics and asynchronous copies lanes do not share: a word that several lanes access counts several times.

Loads take *turns* of the one memory that the L1 and shared memory are, measured on an H200 as cycles: as many as the
most wanted bank has different words wanted, of all 32 lanes together. So loads of 8 and 16 bytes that share words take
less time than their wavefronts say. The L1 looks up four lines in a turn besides.

Global memory moves in *sectors* of 32 bytes, of which a cache line has four. In atomics lanes do not share there
either: a sector is requested once for every lane that accesses its most accessed word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum

__all__ = [
    "BANKS",
    "LINE_BYTES",
    "SECTOR_BYTES",
    "TAGS",
    "WORD_BYTES",
    "Kind",
    "atomic_sectors",
    "ideal",
    "lanes_a_phase",
    "least_sectors",
    "lines",
    "phases",
    "sectors",
    "turns",
    "wavefronts",
]

BANKS = 32
WORD_BYTES = 4
SECTOR_BYTES = 32
LINE_BYTES = 128
TAGS = 4  # lines that the L1 looks up at a time

Lanes = Sequence[int | None]  # the address of each; None for one that does not take part


class Kind(IntEnum):
    """Whether the lanes of an access share words."""

    LOAD = 0
    STORE = 1  # and matrices
    EACH = 2  # atomics and copies: not at all


def lanes_a_phase(size: int) -> int:
    """Return how many lanes one phase of an access serves, at ``size`` bytes a lane."""
    return 32 if size <= WORD_BYTES else BANKS * WORD_BYTES // size


def _running(addresses: Lanes) -> list[int]:
    """Return the addresses of the lanes that take part."""
    return [a for a in addresses if a is not None]


def _in_pairs(addresses: Lanes) -> bool:
    """Whether neighbouring lanes have one address, as far as both run."""
    return any(
        all(a is None or addresses[lane ^ by] in (a, None) for lane, a in enumerate(addresses))
        for by in (1, 2)
    )


def _phases(addresses: Lanes, size: int, kind: Kind) -> list[list[int]]:
    """Return the addresses of each phase that has a running lane."""
    step = lanes_a_phase(size)
    if step < len(addresses) and kind is Kind.LOAD and _in_pairs(addresses):
        step *= 2
    found = [_running(addresses[i : i + step]) for i in range(0, len(addresses), step)]
    return [phase for phase in found if phase]


def _words(addresses: Sequence[int], size: int) -> list[int]:
    return [(a + byte) // WORD_BYTES for a in addresses for byte in range(0, size, min(size, WORD_BYTES))]


def wavefronts(addresses: Lanes, size: int, kind: Kind = Kind.LOAD) -> int:
    """Return the wavefronts of a warp's access to shared memory."""
    total = 0
    for phase in _phases(addresses, size, kind):
        listed = _words(phase, size)
        wanted = [0] * BANKS
        for word in listed if kind is Kind.EACH else set(listed):
            wanted[word % BANKS] += 1
        total += max(wanted)
    return total


def phases(addresses: Lanes, size: int, kind: Kind = Kind.LOAD) -> int:
    """Return the wavefronts of an access if it had no bank conflicts."""
    return len(_phases(addresses, size, kind))


def ideal(addresses: Lanes, size: int, kind: Kind = Kind.LOAD) -> int:
    """Return the wavefronts of as many bytes side by side, at most those that the access takes."""
    running = len(_running(addresses))
    return min(wavefronts(addresses, size, kind), -(-running // lanes_a_phase(size)))


def turns(addresses: Lanes, size: int, cached: bool) -> int:
    """Return the turns of a warp's load, from shared memory or from lines of global memory in the L1."""
    words = _words(_running(addresses), size)
    most = max(Counter(word % BANKS for word in set(words)).values(), default=0)
    return max(most, -(-lines(addresses, size) // TAGS)) if cached else most


def sectors(addresses: Lanes, size: int) -> int:
    """Return how many sectors a warp's access to global memory touches."""
    return _pieces(addresses, size, SECTOR_BYTES)


def least_sectors(addresses: Lanes, size: int) -> int:
    """Return the sectors of as many bytes side by side, at most those that the access touches."""
    running = len(_running(addresses))
    return min(sectors(addresses, size), -(-running * size // SECTOR_BYTES))


def atomic_sectors(addresses: Lanes, size: int) -> int:
    """Return the sectors that an atomic access requests."""
    wanted = Counter(_words(_running(addresses), max(size, WORD_BYTES)))
    most: dict[int, int] = {}
    for word, count in wanted.items():
        sector = word * WORD_BYTES // SECTOR_BYTES
        most[sector] = max(most.get(sector, 0), count)
    return sum(most.values())


def lines(addresses: Lanes, size: int) -> int:
    """Return how many cache lines an access touches."""
    return _pieces(addresses, size, LINE_BYTES)


def _pieces(addresses: Lanes, size: int, unit: int) -> int:
    reached = (range(a // unit, (a + size - 1) // unit + 1) for a in _running(addresses))
    return len(set().union(*reached))
