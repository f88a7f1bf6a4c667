"""Arrays handed to and taken from other libraries without a copy: DLPack and the CUDA array interface.

Only layouts are handled here; the caller orders the streams.
The C structures are those of DLPack 1.0; a capsule of either generation is read and written.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tilewise.devices.strides import contiguous
from tilewise.errors import ArgumentError

__all__ = [
    "CPU",
    "CUDA",
    "CUDA_MANAGED",
    "LEGACY_STREAM",
    "THREAD_STREAM",
    "Foreign",
    "are_others_capturing",
    "capsule",
    "from_capsule",
    "from_interface",
    "request",
    "type_code",
]

CPU, CUDA, CUDA_MANAGED = 1, 2, 13  # DLPack's device types
LEGACY_STREAM, THREAD_STREAM = 1, 2  # what both protocols call the driver's default streams
_READ_ONLY = 1
_VERSION = (1, 0)
_BUILTIN = {0: "i", 1: "u", 2: "f", 5: "c"}
_NARROW = {
    (4, 16): "bfloat16",
    (7, 8): "float8_e3m4",
    (8, 8): "float8_e4m3",
    (9, 8): "float8_e4m3b11fnuz",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}
_CODES = {name: code for code, name in _NARROW.items()}


_CAPTURING: Mapping[str, Callable[[Any], bool]] = {
    "torch": lambda torch: torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing(),
    "cupy": lambda cupy: cupy.cuda.get_current_stream().is_capturing(),
}


def are_others_capturing() -> bool:
    """Whether this thread's current stream of another library becomes a graph, as far as those say that are loaded."""
    for name, ask in _CAPTURING.items():
        with contextlib.suppress(AttributeError):  # loaded in part, or an older one
            if (library := sys.modules.get(name)) is not None and ask(library):
                return True
    return False


class Foreign(NamedTuple):
    """Another library's array: where it lies, its layout in bytes, and what keeps it alive."""

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    read_only: bool
    owner: Any
    device_type: int = CUDA
    ordinal: int | None = None  # None: ask the driver


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_KINDS: dict[bytes, type[_Managed] | type[_Versioned]] = {
    b"dltensor": _Managed,
    b"dltensor_versioned": _Versioned,
}
_USED = {name: b"used_" + name for name in _KINDS}

_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)
# NOTE: these take an address, not a py_object: the capsule's destructor calls them on an object that has
# no references left, and a py_object would bring it back to life.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", _api))
# With the GIL held: some libraries' deleters count on it, and none minds.
_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


# ── out ────────────────────────────────────────────────────────────────────────────────────────────────

_lent: dict[
    int, tuple[Any, ...]
] = {}  # the structures that others hold, by address, and the arrays behind them


def _delete(address: int) -> None:
    _lent.pop(address, None)


def _discard(capsule_address: int) -> None:
    """Delete a tensor that is still in its capsule."""
    for name in _KINDS:
        if _is_valid(capsule_address, name):
            _lent.pop(_pointer(capsule_address, name), None)


_callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_delete_from_c, _discard_from_c = _callback(_delete), _callback(_discard)

# C calls the functions and capsules point at the names as late as the interpreter's end.
for _lasting in (_delete_from_c, _discard_from_c, *_KINDS, *_USED.values()):
    _api.Py_IncRef(ctypes.py_object(_lasting))


def capsule(
    ptr: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    device: tuple[int, int],
    owner: Any,
    *,
    read_only: bool = False,
    versioned: bool = True,
) -> Any:
    """A DLPack capsule over memory that ``owner`` keeps alive until the receiver is done with it."""
    if any(stride % dtype.itemsize for stride in strides):
        raise BufferError(
            f"DLPack counts strides in elements, and {strides} bytes are not multiples of {dtype.itemsize}"
        )
    if read_only and not versioned:
        raise BufferError(
            "this array is read-only, which DLPack can tell only from version 1.0 on: pass max_version"
        )
    code, bits = type_code(dtype)
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    steps = (ctypes.c_int64 * len(shape))(*(stride // dtype.itemsize for stride in strides))
    tensor = _Tensor(
        ptr,
        _Device(*device),
        len(shape),
        _DataType(code, bits, 1),
        ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)),
        ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64)),
        0,
    )
    deleter = ctypes.cast(_delete_from_c, ctypes.c_void_p)
    managed: Any
    if versioned:
        name = b"dltensor_versioned"
        managed = _Versioned(*_VERSION, None, deleter, _READ_ONLY if read_only else 0, tensor)
    else:
        name = b"dltensor"
        managed = _Managed(tensor, None, deleter)
    address = ctypes.addressof(managed)
    _lent[address] = (managed, sizes, steps, owner)
    named = next(key for key in _KINDS if key == name)  # the one bytes object that outlives the capsule
    return _new(address, named, ctypes.cast(_discard_from_c, ctypes.c_void_p))


def type_code(dtype: np.dtype[Any]) -> tuple[int, int]:
    """DLPack's code of an element type and its bits; a BufferError for one that it lacks."""
    if dtype.name in _CODES:
        return _CODES[dtype.name]
    if dtype == np.bool_:
        return 6, 8
    for code, kind in _BUILTIN.items():
        if dtype.kind == kind and dtype.isbuiltin == 1:
            return code, dtype.itemsize * 8
    raise BufferError(f"DLPack has no element type for {dtype}")


# ── in ─────────────────────────────────────────────────────────────────────────────────────────────────


class _ReceivedTensor:
    """A tensor taken out of its capsule: calls the deleter when it is collected."""

    __slots__ = ("_address", "_deleter", "_source")

    def __init__(self, address: int, deleter: int | None, source: Any) -> None:
        self._address, self._source = address, source
        self._deleter = _Deleter(deleter) if deleter else None

    def __del__(self) -> None:
        if self._deleter is not None:
            self._deleter(self._address)


def request(source: Any, stream: int) -> Any:
    """The capsule that ``source`` makes for use on ``stream``."""
    try:
        try:
            return source.__dlpack__(stream=stream, max_version=_VERSION)
        except TypeError:  # it speaks the protocol from before versions
            return source.__dlpack__(stream=stream)
    except (BufferError, RuntimeError, TypeError) as error:
        refusal = " ".join(str(error).split())
        raise ArgumentError("source", f"must be handed over by DLPack, but refuses: {refusal}") from error


def from_capsule(given: Any, source: Any) -> Foreign:
    """Take the tensor out of a DLPack capsule that ``source`` made."""
    address = id(given)
    name = next((name for name in _KINDS if _is_valid(address, name)), None)
    if name is None:
        raise ArgumentError("source", "must give an unused DLPack capsule", type(given).__name__)
    kind = _KINDS[name]
    at = _pointer(address, name)
    managed: Any = kind.from_address(at)
    if kind is _Versioned and managed.major != _VERSION[0]:
        # By DLPack's rule nothing but the version and the deleter may be read then; the capsule keeps it.
        raise ArgumentError("source", "must speak DLPack 1.x", f"version {managed.major}.{managed.minor}")
    tensor = managed.tensor
    dtype = _dtype(tensor.dtype)
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.strides:
        strides = tuple(step * dtype.itemsize for step in tensor.strides[: tensor.ndim])
    else:
        strides = contiguous(shape, dtype.itemsize)
    _rename(address, _USED[name])
    return Foreign(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        strides,
        dtype,
        kind is _Versioned and bool(managed.flags & _READ_ONLY),
        _ReceivedTensor(at, managed.deleter, source),
        tensor.device.device_type,
        tensor.device.device_id,
    )


def _dtype(given: _DataType) -> np.dtype[Any]:
    code, bits = int(given.code), int(given.bits)
    if given.lanes == 1:
        if (code, bits) in _NARROW:
            narrow: np.dtype[Any] = np.dtype(
                getattr(importlib.import_module("ml_dtypes"), _NARROW[code, bits])
            )
            return narrow
        if (code, bits) == (6, 8):
            return np.dtype(np.bool_)
        if code in _BUILTIN:
            with contextlib.suppress(TypeError):  # no such width: refused below
                return np.dtype(f"{_BUILTIN[code]}{bits // 8}")
    raise ArgumentError(
        "source", "must have a known element type", f"DLPack code {code}, {bits} bits × {given.lanes}"
    )


def from_interface(described: Mapping[str, Any], source: Any) -> tuple[Foreign, int | None]:
    """Read a ``__cuda_array_interface__``; also the stream of its work, if it names one."""
    if described.get("mask") is not None:
        raise ArgumentError("source", "must have no mask", type(source).__name__)
    dtype = np.dtype(described["typestr"])
    if dtype.hasobject or dtype.kind in "V" or not dtype.isnative:
        raise ArgumentError(
            "source", "must have a plain element type", described["typestr"], "hand it over by DLPack"
        )
    shape = tuple(int(size) for size in described["shape"])
    strides = described.get("strides")
    steps = contiguous(shape, dtype.itemsize) if strides is None else tuple(int(step) for step in strides)
    ptr, read_only = described["data"]
    stream = described.get("stream")
    if stream is not None and int(stream) <= 0:
        raise ArgumentError("source", "must name its stream by a positive number", stream)
    return Foreign(
        int(ptr or 0), shape, steps, dtype, bool(read_only), source
    ), None if stream is None else int(stream)
