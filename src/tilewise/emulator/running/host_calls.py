"""Calls from compiled code to the host while it runs: printing, failed assertions, the time."""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from tilewise.emulator.build import Build
from tilewise.emulator.layout import BLOCK, GENERIC, LAUNCH, WARP, HostCall
from tilewise.emulator.running.fault_report import Range, locate_thread
from tilewise.emulator.running.printf import format_printf
from tilewise.errors import KernelFault, TilewiseError

__all__ = ["HostCallHandler"]

_MOST_TEXT = 1 << 26  # bytes that one launch prints
_MOST_STRING = 1 << 20
_CHUNK = 256
# Launch, worker, block, warp; question, lanes, PTX line; operands.
_Prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4, *[ctypes.c_uint32] * 3, ctypes.c_void_p)


class _UnreadableAddress(Exception):
    """An address that cannot be read."""


class _Caller(NamedTuple):
    """The calling lane: the addresses of its block and warp, and its number."""

    block: int
    warp: int
    lane: int

    def word(self, base: int, offset: int, size: int = 4) -> int:
        return int.from_bytes(ctypes.string_at(base + offset, size), "little")

    @property
    def block_index(self) -> tuple[int, int, int]:
        """The index of the calling block in the grid."""
        return self.word(self.block, BLOCK.X), self.word(self.block, BLOCK.Y), self.word(self.block, BLOCK.Z)

    @property
    def thread(self) -> int:
        return self.word(self.warp, WARP.INDEX) * 32 + self.lane


class HostCallHandler:
    """Handles the host calls of one launch. ``entry`` is the address that compiled code calls."""

    def __init__(
        self,
        build: Build,
        ranges: Sequence[Range],
        shared_bytes: int,
        windows: Sequence[tuple[int, int, int]],
    ) -> None:
        """``windows``: of those that all threads share, where it begins, and address and size of its memory."""
        self.build, self.ranges, self.shared_bytes, self.windows = build, ranges, shared_bytes, windows
        self.lock = threading.Lock()
        self.printed: list[tuple[int, bytes]] = []  # block, text
        self.size = 0
        # Block, thread → text of its failed assertion.
        self.assertions: dict[tuple[tuple[int, int, int], int], str] = {}
        self.error: TilewiseError | None = None
        self._function = _Prototype(self._handle)
        self.entry = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def write_out(self) -> None:
        """Print what the blocks printed, block by block."""
        text = b"".join(piece for _, piece in sorted(self.printed, key=lambda item: item[0]))
        if self.size > _MOST_TEXT:
            text += f"\n(what the kernel printed beyond {_MOST_TEXT:,} bytes is left out)\n".encode()
        if text:
            print(text.decode("utf-8", "replace"), end="")

    # -- called by compiled code ------------------------------------------------------------------
    def _handle(
        self, launch: int, worker: int, block: int, warp: int, question: int, lanes: int, line: int, data: int
    ) -> int:
        """Handle a call of some lanes: 0 to go on, 1 to end the launch."""
        try:
            if question == HostCall.TIME:
                ctypes.memmove(data, struct.pack("<Q", time.monotonic_ns()), 8)
                return 0
            with self.lock:
                for lane in range(32):
                    if lanes >> lane & 1:
                        self._handle_lane(_Caller(block, warp, lane), HostCall(question), line, data)
            return 0
        except BaseException as error:  # nothing may pass into compiled code
            if not isinstance(error, TilewiseError):
                error = KernelFault(f"the host failed to answer the kernel: {type(error).__name__}: {error}")
            self.error = self.error or error
            ctypes.c_uint32.from_address(launch + LAUNCH.STOP).value = 1
            return 1

    def _handle_lane(self, who: _Caller, question: HostCall, line: int, data: int) -> None:
        operands = [who.word(data, 256 * i + 8 * who.lane, 8) for i in range(4)]
        try:
            if question == HostCall.PRINT:
                result = self._print(who, operands[0], operands[1])
                ctypes.memmove(data + 8 * who.lane, struct.pack("<q", result), 8)
            else:
                message, file, function = (self._string(who, operands[i]).decode() for i in (0, 1, 3))
                said = f"assertion `{message}` failed in {function} at {file}:{operands[2] & 0xFFFF_FFFF}"
                self.assertions.setdefault((who.block_index, who.thread), said)
        except _UnreadableAddress as error:
            what = "printf" if question == HostCall.PRINT else "a failed assertion"
            where = locate_thread(self.build, who.block_index, who.thread, line)
            raise KernelFault(f"{what} was handed {error}{where}") from None

    def _print(self, who: _Caller, form: int, arguments: int) -> int:
        if not form:
            return -1
        at = arguments

        def fetch(size: int) -> int:
            """Take the next argument: they lie one behind the other, each at a multiple of its size."""
            nonlocal at
            start = -(-at // size) * size
            at = start + size
            return int.from_bytes(self._bytes(who, start, size), "little")

        text, taken = format_printf(self._string(who, form), fetch, partial(self._string, who))
        self.size += len(text)
        if self.size <= _MOST_TEXT:
            self.printed.append((who.word(who.block, BLOCK.NUMBER, 8), text))
        return taken

    # -- memory -----------------------------------------------------------------------------------
    def _string(self, who: _Caller, address: int) -> bytes:
        """Bytes up to a zero."""
        found = b""
        while len(found) < _MOST_STRING:
            pointer, room = self._resolve(who, address + len(found))
            piece = ctypes.string_at(pointer, min(room, _CHUNK))
            end = piece.find(b"\0")
            if end >= 0:
                return found + piece[:end]
            found += piece
        return found

    def _bytes(self, who: _Caller, address: int, size: int) -> bytes:
        pointer, room = self._resolve(who, address)
        if room < size:
            raise _UnreadableAddress(f"the address {address:#x}, which has no {size} bytes")
        return ctypes.string_at(pointer, size)

    def _resolve(self, who: _Caller, address: int) -> tuple[int, int]:
        """A generic address as a pointer, and the bytes from there on."""
        local = self.build.local_bytes
        windows = (
            (GENERIC.SHARED, who.word(who.block, BLOCK.SHARED, 8), self.shared_bytes),
            (GENERIC.LOCAL, who.word(who.warp, WARP.LOCAL, 8) + who.lane * local, local),
            *self.windows,
        )
        arrays = ((item.start, item.start, item.size) for item in self.ranges)
        for start, base, size in chain(windows, arrays):
            if 0 <= address - start < size:
                return base + address - start, size - (address - start)
        raise _UnreadableAddress(f"the address {address:#x}, which cannot be read")
