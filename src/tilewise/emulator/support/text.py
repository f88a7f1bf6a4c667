"""The run-time support that compiled kernels call, as one LLVM module, which is linked to every kernel.

It is compiled once, and its machine code kept on the disk. Nothing in it knows an instruction.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from tilewise.emulator.llvm.routine import Declaration, Routine, join_modules

__all__ = ["support_text"]

# Packages whose modules declare routines (``llvm/routine.py``), or make some in ``routines()``.
_PACKAGES = ("tilewise.emulator.support", "tilewise.emulator.checking", "tilewise.emulator.profiling")


def support_text() -> str:
    """The whole module."""
    packages = [import_module(name) for name in _PACKAGES]
    names = [
        item.name for found in packages for item in pkgutil.iter_modules(found.__path__, f"{found.__name__}.")
    ]
    return join_modules(routine for name in names for routine in _routines_of(name))


def _routines_of(name: str) -> Iterator[Routine]:
    module = import_module(name)
    for item in vars(module).values():
        if isinstance(item, Declaration) and item.write_body.__module__ == name:
            yield item.write()
    if hasattr(module, "routines"):
        yield from module.routines()
