"""Host memory that the emulator's launches may touch: its own allocations, and other libraries' adopted."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.errors import DeviceError

__all__ = ["ALLOCATIONS", "AdoptedMemory", "Allocation", "Region"]

_ALIGNMENT = 256  # of an allocation's start, as on a GPU
_MOST_FREED_RECORDS = 64  # freed arrays whose names are kept, for messages


class Allocation:
    """Host memory that launches may touch, from the moment it is made until nothing refers to it."""

    def __init__(self, size: int, name: str, unset: bool = False, zeros: bool = False) -> None:
        """``unset``: its bytes are uninitialised; later it may be an array that says so of each byte.

        ``zeros``: they are 0. Of those the system gives none before they are touched.
        """
        try:
            raw = (np.zeros if zeros else np.empty)(size + 3 * _ALIGNMENT, np.uint8)
        except (MemoryError, ValueError):  # more than there is, or than an index reaches
            raise DeviceError(f"the host has no room for an array of {size:,} bytes") from None
        # Unused bytes before and behind it: an index that is one off does not reach another array.
        start = _ALIGNMENT + -raw.ctypes.data % _ALIGNMENT
        self.bytes = raw[start : start + size]
        self.address, self.size, self.name = int(self.bytes.ctypes.data), size, name
        self.unset: bool | npt.NDArray[np.bool_] = unset
        ALLOCATIONS.add(self)

    def fill(self, view: npt.NDArray[Any]) -> None:
        """Mark the bytes of ``view``, a view of a part of it, as initialised."""
        if self.unset is False or not view.size:
            return
        if view.nbytes == self.size:
            self.unset = False
            return
        missing = np.ones(self.size, np.bool_) if self.unset is True else np.asarray(self.unset)
        offset = int(view.ctypes.data) - self.address
        sizes, strides = (*view.shape, view.itemsize), (*view.strides, 1)
        np.ndarray(sizes, np.bool_, missing.data, offset, strides)[...] = False
        self.unset = missing


class AdoptedMemory:
    """Host memory of another owner that launches may touch for as long as this object lives.

    ``owner`` is kept alive as long. All of it counts as initialised.
    """

    __slots__ = ("__weakref__", "address", "name", "owner", "size", "unset")

    def __init__(self, address: int, size: int, name: str, owner: object) -> None:
        self.address, self.size, self.name, self.owner = address, size, name, owner
        self.unset: bool | npt.NDArray[np.bool_] = False
        if size:
            ALLOCATIONS.adopt(self)

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """What is in it, without a copy."""
        return _bytes_at(self.address, self.size)


@dataclass(slots=True)
class Region:
    """Adopted memory whose parts overlap, as one: launches search regions that do not."""

    address: int
    size: int
    name: str
    parts: list[AdoptedMemory | Allocation]
    unset: bool | npt.NDArray[np.bool_] = field(default=False)

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """What is in it, without a copy."""
        return _bytes_at(self.address, self.size)


def _bytes_at(address: int, size: int) -> npt.NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


_Held = Allocation | AdoptedMemory | Region


class _Allocations:
    """All memory that launches may touch, and the table of it that they search."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._all: dict[int, weakref.ref[Allocation | AdoptedMemory]] = {}
        self._table: Any = None  # an emulator.RangeTable of the memory that there was when it was made
        self._in_table = 0  # how many that were
        self._adopted = 0  # at least as many as there are now
        self._freed: deque[tuple[int, int, str]] = deque(maxlen=_MOST_FREED_RECORDS)  # address, size and name

    def add(self, item: Allocation) -> None:
        """Let launches touch an allocation until it is collected."""
        number, record = id(item), (item.address, item.size, item.name)

        def on_collect(_: object) -> None:
            # NOTE: it dies whenever it likes, in this thread too, and this takes no lock.
            self._all.pop(number, None)
            self._freed.append(record)

        with self.lock:
            self._all[number] = weakref.ref(item, on_collect)
            self._table = None
            self._forget(item.address - _ALIGNMENT, item.address + item.size + _ALIGNMENT)

    def adopt(self, item: AdoptedMemory) -> None:
        """Let launches touch another owner's memory until the handle is collected."""
        number, known = id(item), self._all

        def on_collect(_: object) -> None:
            # The memory itself may well live on: it is not among what was freed.
            known.pop(number, None)

        with self.lock:
            known[number] = weakref.ref(item, on_collect)
            self._table = None
            self._adopted += 1
            self._forget(item.address, item.address + item.size)

    def _forget(self, start: int, end: int) -> None:
        """Forget what lay between two addresses: this memory is in use again."""
        for old in [old for old in list(self._freed) if old[0] < end and start < old[0] + old[1]]:
            with contextlib.suppress(ValueError):  # another thread was faster
                self._freed.remove(old)

    def freed(self, address: int) -> str:
        """The name of the allocation that lay at an address and was freed recently; empty if there was none."""
        for start, size, name in reversed(list(self._freed)):
            if start <= address < start + size:
                return name
        return ""

    def reachable(self) -> tuple[Any, list[_Held]]:
        """The table, and what is in it: held until the launch is over, whatever others let go of."""
        from tilewise import emulator

        with self.lock:
            known = [item for ref in list(self._all.values()) if (item := ref()) is not None and item.size]
            held: list[_Held] = list(known)
            if self._adopted:
                self._adopted = sum(isinstance(item, AdoptedMemory) for item in known)
                held = _disjoint(known)
            if self._table is None or self._in_table != len(known):  # one was added, or some are gone
                self._table = emulator.RangeTable(
                    [emulator.Range(item.address, item.size, item.name) for item in held]
                )
                self._in_table = len(known)
            return self._table, held


def _disjoint(items: list[Allocation | AdoptedMemory]) -> list[_Held]:
    """The same memory without overlaps, in order: what lies inside another goes, what reaches out is joined.

    Views of one array overlap, as do two libraries' arrays over one buffer. Arrays side by side stay apart.
    """
    found: list[_Held] = []
    # Of two that are alike, an allocation of our own comes first: it knows what of it is initialised.
    for item in sorted(items, key=lambda item: (item.address, -item.size, isinstance(item, AdoptedMemory))):
        last = found[-1] if found else None
        end = item.address + item.size
        if last is None or item.address >= last.address + last.size:
            found.append(item)
            continue
        if end <= last.address + last.size:
            if isinstance(last, Allocation):
                last.fill(_bytes_at(item.address, item.size))
            continue
        if not isinstance(last, Region):
            last = found[-1] = Region(last.address, last.size, last.name, [last])
        last.size = end - last.address
        last.parts.append(item)
        last.name += f", {item.name}"
    return found


ALLOCATIONS = _Allocations()


def _unlock() -> None:
    """In a forked child: replace the lock that a thread of the parent may have held."""
    ALLOCATIONS.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)
