"""The call frame of XLA's foreign function interface, as ``xla/ffi/api/c_api.h`` lays it out.

The header comes with jaxlib: ``jax.ffi.include_dir()``. Here is what a handler needs of versions 0.1 to 0.4 of the
interface, which differ in none of it. Every structure begins with its size, so that later ones may be longer.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

__all__ = ["INTERNAL", "INVALID_ARGUMENT", "CallFrame", "Handler", "XlaFailure"]

INVALID_ARGUMENT, INTERNAL = 3, 13  # of XLA_FFI_Error_Code
# Of XLA_FFI_DataType, the types that a product may have to do with.
_ELEMENT_TYPES = {
    1: "bool",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "uint8",
    7: "uint16",
    8: "uint32",
    9: "uint64",
    10: "float16",
    11: "float32",
    12: "float64",
    15: "complex64",
    16: "bfloat16",
    18: "complex128",
    19: "float8_e5m2",
    20: "float8_e4m3fn",
}

_MAJOR, _MINOR_LEAST, _MINOR_MOST = 0, 1, 4  # the versions that this file is for
_METADATA = 1  # XLA_FFI_Extension_Metadata
_EXECUTE = 3  # XLA_FFI_ExecutionStage_EXECUTE
_STRING = 4  # XLA_FFI_AttrType_STRING
_BASE: list[Any] = [("struct_size", c_size_t), ("extension_start", c_void_p)]


class XlaFailure(Exception):
    """XLA refused something: its own error, which is handed back to it."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


class _Version(ctypes.Structure):
    _fields_ = (*_BASE, ("major", c_int), ("minor", c_int))


class _Metadata(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32))


class _Extension(ctypes.Structure):
    """XLA_FFI_Extension_Base and what XLA_FFI_Metadata_Extension has behind it."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("type", c_int),
        ("next", c_void_p),
        ("metadata", POINTER(_Metadata)),
    )


class _Api(ctypes.Structure):
    """The functions that XLA offers, in the header's order. Those of later versions follow behind."""

    _fields_ = (
        *_BASE,
        ("version", _Version),
        ("internal_api", c_void_p),
        ("Error_Create", c_void_p),
        ("Error_GetMessage", c_void_p),
        ("Error_Destroy", c_void_p),
        ("Handler_Register", c_void_p),
        ("Stream_Get", c_void_p),
        ("Type_Register", c_void_p),
        ("ExecutionContext_Get", c_void_p),
        ("State_Set", c_void_p),
        ("State_Get", c_void_p),
        ("DeviceMemory_Allocate", c_void_p),
        ("DeviceMemory_Free", c_void_p),
    )


class _ErrorArgs(ctypes.Structure):
    _fields_ = (*_BASE, ("message", c_char_p), ("code", c_int))


class _StreamArgs(ctypes.Structure):
    _fields_ = (*_BASE, ("ctx", c_void_p), ("stream", c_void_p))


class _AllocateArgs(ctypes.Structure):
    _fields_ = (
        *_BASE,
        ("ctx", c_void_p),
        ("size", c_size_t),
        ("alignment", c_size_t),
        ("data", c_void_p),
    )


class _FreeArgs(ctypes.Structure):
    _fields_ = (*_BASE, ("ctx", c_void_p), ("size", c_size_t), ("data", c_void_p))


class _Buffer(ctypes.Structure):
    _fields_ = (
        *_BASE,
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    )


class _ByteSpan(ctypes.Structure):
    _fields_ = (("ptr", c_void_p), ("len", c_size_t))

    def read(self) -> bytes:
        return ctypes.string_at(self.ptr, self.len) if self.len else b""


class _Buffers(ctypes.Structure):
    """XLA_FFI_Args and XLA_FFI_Rets, which differ in their names alone."""

    _fields_ = (*_BASE, ("size", c_int64), ("types", POINTER(c_int)), ("items", POINTER(c_void_p)))


class _Attributes(ctypes.Structure):
    _fields_ = (
        *_BASE,
        ("size", c_int64),
        ("types", POINTER(c_int)),
        ("names", POINTER(POINTER(_ByteSpan))),
        ("items", POINTER(c_void_p)),
    )


class CallFrame(ctypes.Structure):
    """XLA_FFI_CallFrame: what a handler is given.

    NOTE: all of it is XLA's and is gone after the call.
    """

    _fields_ = (
        *_BASE,
        ("api", POINTER(_Api)),
        ("ctx", c_void_p),
        ("stage", c_int),
        ("args", _Buffers),
        ("rets", _Buffers),
        ("attrs", _Attributes),
    )

    def answer_metadata(self) -> bool:
        """Tell XLA which version of its interface this is, if that is what it asks, as it does at registration.

        No traits: what a call launches on a GPU may depend on addresses, so XLA must not record it.
        """
        if not self.extension_start:
            return False
        extension = _Extension.from_address(self.extension_start)
        if extension.type != _METADATA:
            return False
        metadata = extension.metadata.contents
        # NOTE: XLA takes its own version and some before it. With one that is newer than those known here, it decides.
        minor = min(self.api.contents.version.minor, _MINOR_MOST) if self.api else _MINOR_LEAST
        metadata.version = _Version(ctypes.sizeof(_Version), None, _MAJOR, minor)
        metadata.traits = 0
        return True

    def check(self) -> None:
        """Refuse a frame that is none of a call, or shorter than the structures here."""
        if self.stage != _EXECUTE:
            raise RuntimeError(
                f"XLA called a handler of tilewise in stage {self.stage}, which it has none for"
            )
        # NOTE: in version 0.1 XLA has the functions behind Stream_Get as well, and leaves them out of the size.
        for name, size, least in (
            ("call frame", self.struct_size, ctypes.sizeof(CallFrame)),
            ("API", self.api.contents.struct_size, _Api.Type_Register.offset),
        ):
            if size < least:
                rule = f"XLA's {name} has {size} bytes, and tilewise needs {least}"
                raise RuntimeError(f"{rule}; use a newer jaxlib")

    def read_text(self, name: bytes) -> bytes:
        """The attribute of a name, which must be a string."""
        attrs = self.attrs
        for i in range(attrs.size):
            if attrs.types[i] == _STRING and attrs.names[i].contents.read() == name:
                return _ByteSpan.from_address(attrs.items[i]).read()
        raise RuntimeError(f"XLA's call of tilewise has no attribute {name.decode()}")

    def operands(self) -> list[tuple[int, tuple[int, ...], str]]:
        """Of each argument its address, shape and element type."""
        return _read_buffers(self.args)

    def results(self) -> list[tuple[int, tuple[int, ...], str]]:
        """The same of each result."""
        return _read_buffers(self.rets)

    def stream(self) -> int:
        """The CUstream that XLA has ordered the call on; 0 is the driver's default stream."""
        args = _StreamArgs(ctypes.sizeof(_StreamArgs), None, self.ctx, None)
        self._call("Stream_Get", args)
        return args.stream or 0

    def allocate(self, size: int) -> int:
        """The address of memory on the call's device."""
        args = _AllocateArgs(ctypes.sizeof(_AllocateArgs), None, self.ctx, size, 1, None)
        self._call("DeviceMemory_Allocate", args)
        return args.data or 0

    def free(self, size: int, address: int) -> None:
        """Give memory back; what is on the call's stream before may still use it."""
        self._call("DeviceMemory_Free", _FreeArgs(ctypes.sizeof(_FreeArgs), None, self.ctx, size, address))

    def make_error(self, code: int, message: str) -> int:
        """An error of XLA, which takes it over when a handler returns it."""
        args = _ErrorArgs(ctypes.sizeof(_ErrorArgs), None, message.encode(), code)
        error: int = _Function(self.api.contents.Error_Create)(ctypes.byref(args))
        return error

    def _call(self, name: str, args: ctypes.Structure) -> None:
        error = _Function(getattr(self.api.contents, name))(ctypes.byref(args))
        if error:
            raise XlaFailure(error)


_Function = ctypes.CFUNCTYPE(c_void_p, c_void_p)
Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(CallFrame))
"""A handler as C calls it. It takes the GIL itself, on whichever of XLA's threads it is called."""


def _read_buffers(buffers: _Buffers) -> list[tuple[int, tuple[int, ...], str]]:
    found = []
    for i in range(buffers.size):
        buffer = _Buffer.from_address(buffers.items[i])
        shape = tuple(buffer.dims[: buffer.rank]) if buffer.rank else ()
        found.append((buffer.data or 0, shape, _ELEMENT_TYPES[buffer.dtype]))
    return found
