"""How Hopper counts wavefronts of shared memory, as recorded counters bear out; see ``counters.json``.

An access runs in phases: of 32 lanes up to 4 bytes each, of 16 for 8 bytes, of 8 for 16 bytes and for the
rows of ldmatrix and stmatrix. A phase has as many wavefronts as distinct words are wanted of one bank.

- Loads of 8 and 16 bytes have phases twice as long where every active lane n shares its address with lane
  n^1, or every one with lane n^2.
- An asynchronous copy and an exchange count a word once for each lane that writes it, the same or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["WIDTHS", "wavefronts"]

WIDTHS = {
    "lds_16": 2, "lds_32": 4, "lds_64": 8, "lds_128": 16, "sts_8": 1, "sts_32": 4, "sts_64": 8, "sts_128": 16,
    "ldmatrix_1": 16, "ldmatrix_2": 16, "ldmatrix_4": 16, "ldmatrix_4t": 16, "stmatrix_4": 16,
    "copy_4": 4, "copy_16": 16, "atom_exch": 4,
}  # fmt: skip
_ALONE = ("copy", "atom_exch")


def wavefronts(name: str, offsets: Sequence[int]) -> int:
    """Of one instruction, by the byte offset of each lane; below zero where a lane does nothing."""
    width = WIDTHS[name]
    if "matrix" in name:
        rows = 8 * int(name.split("_")[1][0])
        offsets = [*offsets[:rows], *[-1] * (32 - rows)]
    phase = 32 if width <= 4 else 128 // width
    active = [lane for lane in range(32) if offsets[lane] >= 0]
    if name in ("lds_64", "lds_128") and any(
        all(offsets[lane] == offsets[lane ^ apart] for lane in active) for apart in (1, 2)
    ):
        phase *= 2
    found = 0
    for start in range(0, 32, phase):
        lanes = [offset // 4 for offset in offsets[start : start + phase] if offset >= 0]
        words = [first + i for first in lanes for i in range(max(width // 4, 1))]
        banks = Counter(word % 32 for word in (words if name.startswith(_ALONE) else set(words)))
        found += max(banks.values(), default=0)
    return found
