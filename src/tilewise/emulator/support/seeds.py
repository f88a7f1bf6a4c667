"""The random numbers of a worker, by which a seeded launch orders what the hardware leaves open."""

from __future__ import annotations

from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import Routine

__all__ = ["advance_seed"]

_SEED = 16  # in a worker's memory


def advance_seed(r: Routine) -> Value:
    """Return the worker's next random number of 64 bits, of which the high ones are the better ones."""
    seed = r.op("mul", r.field(r["worker"], _SEED, "i64"), 6364136223846793005)
    seed = r.op("add", seed, 1442695040888963407)
    r.put(r["worker"], _SEED, seed)
    return seed
