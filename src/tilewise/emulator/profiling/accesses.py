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
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["BANKS", "LINE_BYTES", "SECTOR_BYTES", "TAGS", "WORD_BYTES", "Kind", "LaneAccess", "lanes_a_phase"]

BANKS = 32
WORD_BYTES = 4
SECTOR_BYTES = 32
LINE_BYTES = 128
TAGS = 4  # lines that the L1 looks up at a time


class Kind(IntEnum):
    """Whether the lanes of an access share words."""

    LOAD = 0
    STORE = 1  # and matrices
    EACH = 2  # atomics and copies: not at all


def lanes_a_phase(size: int) -> int:
    """Return how many lanes one phase of an access serves, at ``size`` bytes a lane."""
    return 32 if size <= WORD_BYTES else BANKS * WORD_BYTES // size


def _words(addresses: Sequence[int], size: int) -> list[int]:
    return [(a + byte) // WORD_BYTES for a in addresses for byte in range(0, size, min(size, WORD_BYTES))]


@dataclass(frozen=True, slots=True)
class LaneAccess:
    """A warp's access: the address of each lane, or None if it does not take part, and the bytes of each."""

    addresses: Sequence[int | None]
    size: int
    kind: Kind = Kind.LOAD

    @property
    def running(self) -> list[int]:
        """The addresses of the lanes that take part."""
        return [a for a in self.addresses if a is not None]

    # -- shared memory ----------------------------------------------------------------------------
    @property
    def _in_pairs(self) -> bool:
        """Whether neighbouring lanes have one address, as far as both run."""
        there = self.addresses
        return any(
            all(a is None or there[lane ^ by] in (a, None) for lane, a in enumerate(there)) for by in (1, 2)
        )

    def _phases(self) -> list[list[int]]:
        """Return the addresses of each phase that has a running lane."""
        step, every = lanes_a_phase(self.size), self.addresses
        if step < len(every) and self.kind is Kind.LOAD and self._in_pairs:
            step *= 2
        found = [[a for a in every[i : i + step] if a is not None] for i in range(0, len(every), step)]
        return [phase for phase in found if phase]

    def wavefronts(self) -> int:
        """Return the wavefronts of an access to shared memory."""
        total = 0
        for phase in self._phases():
            listed = _words(phase, self.size)
            wanted = [0] * BANKS
            for word in listed if self.kind is Kind.EACH else set(listed):
                wanted[word % BANKS] += 1
            total += max(wanted)
        return total

    def phases(self) -> int:
        """Return the wavefronts if there were no bank conflicts."""
        return len(self._phases())

    def ideal(self) -> int:
        """Return the wavefronts of as many bytes side by side, at most those that the access takes."""
        return min(self.wavefronts(), -(-len(self.running) // lanes_a_phase(self.size)))

    def turns(self, cached: bool) -> int:
        """Return the turns of a load, from shared memory or from lines of global memory in the L1."""
        words = set(_words(self.running, self.size))
        most = max(Counter(word % BANKS for word in words).values(), default=0)
        return max(most, -(-self.lines() // TAGS)) if cached else most

    # -- global memory ----------------------------------------------------------------------------
    def sectors(self) -> int:
        """Return how many sectors the access touches."""
        return self._pieces(SECTOR_BYTES)

    def least_sectors(self) -> int:
        """Return the sectors of as many bytes side by side, at most those that the access touches."""
        return min(self.sectors(), -(-len(self.running) * self.size // SECTOR_BYTES))

    def atomic_sectors(self) -> int:
        """Return the sectors that an atomic access requests."""
        most: dict[int, int] = {}
        for word, count in Counter(_words(self.running, max(self.size, WORD_BYTES))).items():
            sector = word * WORD_BYTES // SECTOR_BYTES
            most[sector] = max(most.get(sector, 0), count)
        return sum(most.values())

    def lines(self) -> int:
        """Return how many cache lines the access touches."""
        return self._pieces(LINE_BYTES)

    def _pieces(self, unit: int) -> int:
        reached = (range(a // unit, (a + self.size - 1) // unit + 1) for a in self.running)
        return len(set().union(*reached))
