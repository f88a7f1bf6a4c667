"""XLA's side of its foreign function interface: call frames as XLA makes them, and the functions that handlers call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewise.interop.jax import call_frame
from tilewise.interop.jax.call_frame import CallFrame
from tilewise.interop.jax.product_attributes import ProductAttributes

_DTYPES = {"float16": 10, "float32": 11, "float64": 12, "bfloat16": 16}
_EXECUTE = 3
_CALL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

Buffer = tuple[int, tuple[int, ...], str]


class FakeXla:
    """One call after another of a handler, with buffers by address, shape and element type."""

    def __init__(self, stream: int = 0, allocate: Callable[[int], int] | None = None) -> None:
        self.stream = stream
        self.freed: list[tuple[int, int]] = []
        self.messages: list[tuple[int, str]] = []
        self._give = allocate
        self._functions = {
            name: _CALL(function)
            for name, function in (
                ("Error_Create", self._create_error),
                ("Stream_Get", self._get_stream),
                ("DeviceMemory_Allocate", self._allocate),
                ("DeviceMemory_Free", self._free),
            )
        }
        self.api = call_frame._Api(struct_size=ctypes.sizeof(call_frame._Api))
        self.api.version.minor = 3
        for name, function in self._functions.items():
            setattr(self.api, name, ctypes.cast(function, ctypes.c_void_p).value)

    def call(
        self,
        handler: Any,
        operands: Sequence[Buffer],
        results: Sequence[Buffer],
        attributes: ProductAttributes,
        **changes: Any,
    ) -> tuple[int, str] | None:
        """The code and message of the error that the handler gives; None if it multiplied. ``changes`` go to the frame."""
        held: list[Any] = []
        frame = CallFrame(
            struct_size=ctypes.sizeof(CallFrame),
            api=ctypes.pointer(self.api),
            ctx=1,
            stage=_EXECUTE,
            args=_buffers(operands, held),
            rets=_buffers(results, held),
            attrs=_attributes({"product": attributes.to_json()}, held),
        )
        for name, value in changes.items():
            setattr(frame, name, value)
        token = handler(ctypes.pointer(frame))
        return None if token is None else self.messages[token - 1]

    def ask_version(self, handler: Any, minor: int) -> tuple[int, int, int]:
        """The version of the interface and the traits that a handler has, asked as at registration."""
        self.api.version.minor = minor
        metadata = call_frame._Metadata(traits=77)
        extension = call_frame._Extension(type=1, metadata=ctypes.pointer(metadata))
        frame = CallFrame(api=ctypes.pointer(self.api), extension_start=ctypes.addressof(extension))
        assert handler(ctypes.pointer(frame)) is None
        return metadata.version.major, metadata.version.minor, metadata.traits

    def _create_error(self, address: int) -> int:
        args = call_frame._ErrorArgs.from_address(address)
        self.messages.append((args.code, args.message.decode()))
        return len(self.messages)

    def _get_stream(self, address: int) -> None:
        call_frame._StreamArgs.from_address(address).stream = self.stream

    def _allocate(self, address: int) -> int | None:
        args = call_frame._AllocateArgs.from_address(address)
        if self._give is None:
            self.messages.append((8, "out of memory"))
            return len(self.messages)
        args.data = self._give(args.size)
        return None

    def _free(self, address: int) -> None:
        args = call_frame._FreeArgs.from_address(address)
        self.freed.append((args.data, args.size))


def _buffers(given: Sequence[Buffer], held: list[Any]) -> Any:
    items = (ctypes.c_void_p * len(given))()
    for i, (ptr, shape, dtype) in enumerate(given):
        dims = (ctypes.c_int64 * len(shape))(*shape)
        buffer = call_frame._Buffer(dtype=_DTYPES[dtype], data=ptr, rank=len(shape), dims=dims)
        buffer.struct_size = ctypes.sizeof(buffer)
        held += (dims, buffer)
        items[i] = ctypes.addressof(buffer)
    held.append(items)
    return call_frame._Buffers(size=len(given), items=items)


def _attributes(given: dict[str, str], held: list[Any]) -> Any:
    """All strings. One more stands before them, as of another name and kind."""
    names = ["aaa", *given]
    spans = [_span(text.encode(), held) for text in (*names, "", *given.values())]
    types = (ctypes.c_int * len(names))(3, *(4 for _ in given))
    pointers = (ctypes.POINTER(call_frame._ByteSpan) * len(names))(*map(ctypes.pointer, spans[: len(names)]))
    items = (ctypes.c_void_p * len(names))(*map(ctypes.addressof, spans[len(names) :]))
    held += (spans, types, pointers, items)
    return call_frame._Attributes(size=len(names), types=types, names=pointers, items=items)


def _span(text: bytes, held: list[Any]) -> Any:
    buffer = ctypes.create_string_buffer(text, max(len(text), 1))
    held.append(buffer)
    return call_frame._ByteSpan(ctypes.addressof(buffer), len(text))


class PlacedArray:
    """What a jax.Array is asked, of one that lies on devices that are not here."""

    dtype = np.dtype("float32")

    def __init__(self, *platforms: str, ordinal: int = 1) -> None:
        self._devices = [SimpleNamespace(platform=platform) for platform in platforms]
        self._ordinal = ordinal

    def is_deleted(self) -> bool:
        return False

    def devices(self) -> list[Any]:
        return self._devices

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._ordinal
