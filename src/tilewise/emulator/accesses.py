"""How the hardware counts an access to memory: banks, wavefronts, sectors.

Shared memory has 32 banks of 4 bytes. A warp's access goes in phases, as many lanes each as 128 bytes hold:
all 32 of up to 4 bytes, 16 of 8 bytes, 8 of 16. A phase takes as many *wavefronts* as the most wanted bank
has different words wanted; lanes that want the same word share it. *Ideal* is one wavefront for each phase
that has a lane; what is beyond are *bank conflicts*. Global memory moves in *sectors* of 32 bytes, of which
a cache line has four.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["BANKS", "LINE_BYTES", "SECTOR_BYTES", "ideal", "lanes_a_phase", "lines", "sectors", "wavefronts"]

BANKS = 32
WORD_BYTES = 4
SECTOR_BYTES = 32
LINE_BYTES = 128


def lanes_a_phase(size: int) -> int:
    """Lanes that go together in an access of ``size`` bytes a lane."""
    return 32 if size <= WORD_BYTES else BANKS * WORD_BYTES // size


def _phases(addresses: Sequence[int | None], size: int) -> list[list[int]]:
    """Addresses by phase; None is a lane that does not take part."""
    step = lanes_a_phase(size)
    found = [[a for a in addresses[i : i + step] if a is not None] for i in range(0, len(addresses), step)]
    return [phase for phase in found if phase]


def wavefronts(addresses: Sequence[int | None], size: int) -> int:
    """The wavefronts of one access of a warp to shared memory, by lane."""
    total = 0
    for phase in _phases(addresses, size):
        words = {(a + byte) // WORD_BYTES for a in phase for byte in range(0, size, min(size, WORD_BYTES))}
        wanted = [0] * BANKS
        for word in words:
            wanted[word % BANKS] += 1
        total += max(wanted)
    return total


def ideal(addresses: Sequence[int | None], size: int) -> int:
    """The wavefronts that it would take without conflicts."""
    return len(_phases(addresses, size))


def sectors(addresses: Sequence[int | None], size: int) -> int:
    """The sectors that one access of a warp to global memory touches."""
    return _pieces(addresses, size, SECTOR_BYTES)


def lines(addresses: Sequence[int | None], size: int) -> int:
    """The cache lines that it touches."""
    return _pieces(addresses, size, LINE_BYTES)


def _pieces(addresses: Sequence[int | None], size: int, unit: int) -> int:
    given = [a for a in addresses if a is not None]
    return len({piece for a in given for piece in range(a // unit, (a + size - 1) // unit + 1)})
