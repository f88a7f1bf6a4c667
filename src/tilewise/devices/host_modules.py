"""Variables of modules in host memory: made and initialised once, the same from launch to launch.

A module's variables belong to it and to the memory that they lie in, not to one kernel of it: what a kernel writes,
the module's next kernel finds. They are known by what the module was made from, whatever the arch: what a program
sets is there in a profile that compiles for another GPU.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.devices.host_memory import Allocation
from tilewise.toolchain.binary import Binary

if TYPE_CHECKING:
    from tilewise.emulator import Initial

__all__ = ["HostModules", "SavedVariables"]

_LOCK = threading.RLock()


def _unlock() -> None:
    """In a forked child: replace the lock that a thread of the parent may have held."""
    global _LOCK
    _LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)

SavedVariables = dict[str, dict[str, npt.NDArray[np.uint8]]]  # by module and variable: what it holds


class HostModules:
    """The variables of every module that runs in one memory."""

    def __init__(self) -> None:
        self._modules: dict[str, dict[str, Allocation]] = {}

    def find(self, binary: Binary, names: Sequence[str]) -> list[Allocation]:
        """Variables in global or constant memory by their names in the PTX; made where they are not there yet."""
        with _LOCK:
            variables = self._modules.setdefault(binary.module_key, {})
            if missing := [name for name in names if name not in variables]:
                _make(binary, missing, variables)
            return [variables[name] for name in names]

    def get(self, binary: Binary, name: str) -> Allocation | None:
        """A variable, if a launch or a program has used it."""
        return self._modules.get(binary.module_key, {}).get(name)

    @contextlib.contextmanager
    def apart(self, binaries: Iterable[Binary], kept: SavedVariables) -> Iterator[None]:
        """Give the variables of some modules contents of their own meanwhile, and put back what they held.

        They begin with what ``kept`` has of them, else with what they hold; ``kept`` gets what they come to.
        NOTE: they stay where they are, since some may hold the addresses of others.
        """
        modules = {binary.module_key: binary for binary in binaries}
        with _LOCK:
            before = {key: _contents(self._modules.get(key, {})) for key in modules}
            for key in modules.keys() & kept.keys():
                _restore(self._modules.get(key, {}), kept[key])
        try:
            yield
        finally:
            with _LOCK:
                for key, binary in modules.items():
                    variables = self._modules.get(key, {})
                    kept[key] = _contents(variables)
                    _restore(variables, before[key])
                    _initialise(binary, variables.keys() - before[key].keys(), variables)


def _contents(variables: dict[str, Allocation]) -> dict[str, npt.NDArray[np.uint8]]:
    return {name: variable.bytes.copy() for name, variable in variables.items()}


def _restore(variables: dict[str, Allocation], contents: dict[str, npt.NDArray[np.uint8]]) -> None:
    for name in variables.keys() & contents.keys():
        np.copyto(variables[name].bytes, contents[name])


def _make(binary: Binary, names: Sequence[str], variables: dict[str, Allocation]) -> None:
    """Make variables, and those whose addresses they hold, with their initial contents."""
    fresh: dict[str, Allocation] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in variables and name not in fresh:
            content = _initial(binary, name)
            fresh[name] = Allocation(content.size, f"the variable {name}")
            waiting += [target for _, target, _ in content.links]
    _initialise(binary, fresh, {**variables, **fresh})
    variables.update(fresh)  # all of them, or, where one cannot be, none


def _initialise(binary: Binary, names: Iterable[str], variables: dict[str, Allocation]) -> None:
    for name in names:
        content, memory = _initial(binary, name), variables[name].bytes
        memory[: len(content.data)] = np.frombuffer(content.data, np.uint8)
        memory[len(content.data) :] = 0
        for offset, target, addend in content.links:
            address = ((variables[target].address + addend) % (1 << 64)).to_bytes(8, "little")
            memory[offset : offset + 8] = np.frombuffer(address, np.uint8)


def _initial(binary: Binary, name: str) -> Initial:
    from tilewise import emulator

    return emulator.initial_content(emulator.parse(binary.ptx), name)
