"""The builtin function that a warm call goes through, and its tables."""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewise.call_stub.call_record import CallRecord, NativeRecord, may_hide_state
from tilewise.call_stub.call_text import RELEASE_GIL, call_text
from tilewise.call_stub.machine_code import is_supported_python, link
from tilewise.call_stub.shared_memory import (
    ARGUMENTS,
    MAX_ACTIVATIONS,
    MAX_NDIM,
    MAX_POSITIONAL,
    MAX_TYPES,
    PROBES,
    TABLE_SLOTS,
    structure,
)
from tilewise.errors import ArgumentError

__all__ = ["CallStub", "available", "slot_offset"]

_FASTCALL_KEYWORDS = 0x80 | 0x02  # METH_FASTCALL | METH_KEYWORDS
_EXCHANGE_NAME = b"dlpack_exchange_api"
_DLPACK_MAJOR = 1
_OBJECT_SLOT = 16  # Py_T_OBJECT_EX, the type of a member that __slots__ makes
_DESCRIPTOR_BYTES = 48  # of a member's or a getter's descriptor; what it describes is pointed to at 40
_DESCRIBED = 40

# The field of State, and the function of CPython's that it calls.
_FUNCTIONS = {
    "vectorcall": "PyObject_Vectorcall",
    "call_no_args": "PyObject_CallNoArgs",
    "get_item": "PyDict_GetItemWithError",
    "next_item": "PyDict_Next",
    "float_as_double": "PyFloat_AsDouble",
    "int_as_double": "PyLong_AsDouble",
    "error_occurred": "PyErr_Occurred",
    "compare_texts": "PyUnicode_Compare",
    "clear_error": "PyErr_Clear",
    "save_thread": "PyEval_SaveThread",
    "restore_thread": "PyEval_RestoreThread",
    "add_reference": "Py_IncRef",
    "drop_reference": "Py_DecRef",
}

# NOTE: what native code points to; a builtin may be called for as long as Python runs.
_IMMORTAL: list[Any] = []


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def available() -> bool:
    """Whether a :class:`CallStub` can be had here; ``TILEWISE_STUB=0`` says no."""
    return os.environ.get("TILEWISE_STUB") != "0" and is_supported_python() and _links()


@functools.cache
def _links() -> bool:
    try:
        link(call_text(), ("tw_call",))
    except (ImportError, OSError, RuntimeError):
        return False
    return True


class CallStub:
    """A builtin ``name(a, b, *, out=None, ...)`` that launches known calls by itself.

    A call is compared with the records that :meth:`add` gave. Where one fits, its launches go to the driver
    without any Python code; every other call, and every failure on the way, goes to ``slow`` with the same
    arguments. So does a call whose ``out`` may share memory with an operand. When this object is gone, the builtin
    goes to ``slow`` always.

    ``positional`` and ``keywords`` are names of :data:`ARGUMENTS`: what arguments are by place, of which the first two
    have to be there, and which ones may be given by that name. All others are unknown to the builtin, and slow.

    ``doc`` begins with the signature as CPython's own functions have it, ``"matmul($module, a, b, *,
    out=None)\\n--\\n\\n"``. ``release_gil=False`` is for measuring what releasing costs.
    """

    def __init__(
        self,
        name: str,
        doc: str,
        slow: Callable[..., Any],
        module: str = "tilewise",
        release_gil: bool = RELEASE_GIL,
        positional: Sequence[str] = ("a", "b"),
        keywords: Sequence[str] = ("out",),
    ) -> None:
        if not is_supported_python():
            raise ArgumentError("CallStub", "needs CPython 3.11 to 3.14 with the GIL", sys.version)
        addresses = link(call_text(release_gil), ("tw_call", "tw_state", "tw_hash"))
        self._state = structure("State").from_address(addresses["tw_state"])
        self._hash = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(addresses["tw_hash"])
        self._records: dict[int, NativeRecord] = {}
        self._lock = threading.RLock()  # held while the records or the table change
        self._exchanges: dict[int, int] = {}  # address of an exchange table → library
        self._libraries = 0
        self._guarded: set[int] = set()  # libraries whose tensors may be lazily conjugated or negated
        self._own: set[int] = set()
        self._fill_state(slow)
        self._fill_arguments(positional, keywords)
        method = _Method(name.encode(), addresses["tw_call"], _FASTCALL_KEYWORDS, doc.encode())
        owner = sys.modules.get(module) or types.ModuleType(module)
        _IMMORTAL.extend((method, owner))
        make = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.c_void_p
        )(("PyCMethod_New", ctypes.pythonapi))
        self.function: Any = make(ctypes.addressof(method), owner, module, None)
        weakref.finalize(self, _retire, self._state, self._records).atexit = False

    def _fill_state(self, slow: Callable[..., Any]) -> None:
        state = self._state
        held = {"slow": slow, "none": None, "false": False}
        held |= {"bytes_type": bytes, "float_type": float, "wide_type": np.float64, "int_type": int}
        held |= {"dict_type": dict, "text_type": str}
        for field, value in held.items():
            setattr(state, field, id(value))
        _IMMORTAL.append(held)
        state.bytes_start = bytes.__basicsize__ - 1  # its size counts the zero at the end
        state.tuple_start = tuple.__basicsize__
        probe = (b"probe",)
        _check_layout(_word(id(probe) + state.tuple_start) == id(probe[0]))
        _check_layout(ctypes.string_at(id(probe[0]) + state.bytes_start, 6) == b"probe\0")
        _check_layout(_word(id(probe[0]) + 8) == id(bytes) and _word(id(probe) + 16) == 1)
        for field, symbol in _FUNCTIONS.items():
            setattr(state, field, _symbol(symbol))

    def _fill_arguments(self, positional: Sequence[str], keywords: Sequence[str]) -> None:
        state, names = self._state, [sys.intern(name) for name in keywords]
        if list(positional[:2]) != ["a", "b"] or len(positional) > MAX_POSITIONAL:
            raise ArgumentError("positional", f"are a, b and at most {MAX_POSITIONAL - 2} more", positional)
        state.positional_count, state.keyword_count = len(positional), len(names)
        for place, name in enumerate(positional):
            state.positional[place] = ARGUMENTS.index(name)
        for place, name in enumerate(names):
            state.keywords[place] = structure("Keyword")(id(name), ARGUMENTS.index(name))
        _IMMORTAL.append(names)

    def register_activations(self, names: Sequence[str]) -> None:
        """Take these activations, and arithmetics. A record names an activation by the very string that is given here,
        an arithmetic by its number.
        """
        if len(names) > MAX_ACTIVATIONS:
            raise ArgumentError("names", f"are at most {MAX_ACTIVATIONS}", names)
        _IMMORTAL.append(tuple(names))
        for place, name in enumerate(names):
            self._state.activations[place] = id(name)
        self._state.activation_count = len(names)

    def register_epilogue(self, type_: type, expression: str, given: str) -> None:
        """Take epilogue objects of exactly this type, whose ``__slots__`` have an expression and a dictionary.

        Records name an expression by identity. The dictionary gives arrays and numbers, in the order of a record.
        """
        _IMMORTAL.append(type_)
        self._state.expression_slot = slot_offset(type_, expression)
        self._state.given_slot = slot_offset(type_, given)
        self._state.epilogue_type = id(type_)

    def register_library(
        self,
        types: Sequence[type],
        exchange_api: object,
        check_grad: bool,
        grad_enabled: Callable[[], bool] | None = None,
        ordinary: tuple[dict[str, Any], str, object] | None = None,
    ) -> int:
        """Take tensors of exactly these types, through their library's DLPack exchange capsule.

        The answer is the library's number, which records name; the same capsule gives the same number again.
        With ``check_grad`` an operand whose ``requires_grad`` is not False makes a call slow, unless
        ``grad_enabled`` is given and answers False. ``ordinary`` is a dictionary, a key of it and a value:
        while the dictionary has another object there, every call is slow.
        """
        exchange = _exchange(exchange_api)
        library = self._exchanges.get(exchange)
        if library is None:
            library = self._exchanges[exchange] = self._new_library()
        if check_grad:
            self._guarded.add(library)
        variables, variable, value = ordinary or (None, "", None)
        variable = sys.intern(variable)
        _IMMORTAL.append((exchange_api, grad_enabled, variables, variable, value))
        state = (0, 0, 0) if variables is None else (id(variables), id(variable), id(value))
        for type_ in types:
            getter, closure = _grad_getter(type_) if check_grad else (0, 0)
            mode = id(grad_enabled) if check_grad and grad_enabled is not None else 0
            self._register(type_, (exchange, library, 0, 0, getter, closure, mode, *state))
        return library

    def register_arrays(self, type_: type, slot: str, streams_entered_address: int) -> int:
        """Take arrays of exactly this type of our own; the answer is their library's number.

        ``slot`` is one of its ``__slots__`` and holds None or bytes: ``struct.pack("<QQiiiBBHQ",
        state_address, data, device_type, device_id, ndim, code, bits, lanes, flags)`` with the shape and
        the strides, int64, behind. The word at ``state_address`` is 1 while the array may be used; flag 1
        says read-only. While the word at ``streams_entered_address`` is not 0 every call is slow.
        """
        offset = slot_offset(type_, slot)
        library = self._new_library()
        self._own.add(library)
        self._register(type_, (0, library, offset, streams_entered_address))
        return library

    def _new_library(self) -> int:
        self._libraries += 1
        return self._libraries - 1

    def _register(self, type_: type, fields: tuple[int, ...]) -> None:
        state = self._state
        entry = structure("TypeEntry")(id(type_), *fields)
        places = [place for place in range(state.type_count) if state.types[place].type == entry.type]
        place = places[0] if places else state.type_count
        if place == MAX_TYPES:
            raise ArgumentError("types", f"are at most {MAX_TYPES} in all", type_)
        _IMMORTAL.append(type_)
        state.types[place] = entry
        state.type_count = max(state.type_count, place + 1)

    def add(self, record: CallRecord) -> bool:
        """Let calls like ``record`` go to the driver; False where they have to stay slow.

        That is so where an operand has no axes or more than four; where a torch tensor like it may be lazily
        conjugated or negated; and where arrays of our own would need a workspace, or a result that the record
        has no ``make_result`` for.
        """
        native = NativeRecord(record)
        if not self._can_serve(record):
            return False
        native.native.hash = self._hash(native.address)
        with self._lock:
            self._insert(native)
            self._records[native.address] = native
            self._free_dropped()
        return True

    def _can_serve(self, record: CallRecord) -> bool:
        if not 0 <= record.library < self._libraries:
            raise ArgumentError("record.library", "is what a register method answered", record.library)
        arrays = (record.a, record.b, record.c, *record.extras)
        if any(not 1 <= len(operand.shape) <= MAX_NDIM for operand in arrays):
            return False
        if record.library in self._own:
            return (record.has_out or record.make_result is not None) and not record.workspace_bytes
        if record.make_result is not None:
            raise ArgumentError("record.make_result", "is for arrays of our own", record.library)
        return record.library not in self._guarded or not any(map(may_hide_state, record.operands))

    def _insert(self, native: NativeRecord) -> None:
        """Place a record in the table: instead of its like, else in a free slot, else over the first.

        NOTE: records that differ in alignment alone may both fit a call. The one that asks for more comes first.
        """
        table, home = self._state.table, native.native.hash >> (64 - (TABLE_SLOTS - 1).bit_length())
        window = [(home + probe) % TABLE_SLOTS for probe in range(PROBES)]
        group = [native]
        slots = []
        for slot in window:
            there = self._records.get(table[slot])
            if there is not None and there.key == native.key:
                slots.append(slot)
                if there.alignments != native.alignments:
                    group.append(there)
        if len(group) > len(slots):
            free = [slot for slot in window if not table[slot]]
            others = [slot for slot in window if slot not in slots]
            slots.append((free or others[:1] or slots[-1:])[0])
        group.sort(key=lambda one: sum(one.native.masks), reverse=True)
        for slot, one in zip(sorted(slots, key=window.index), group, strict=False):
            table[slot] = one.address

    def _free_dropped(self) -> None:
        """Free the records that are out of the table and that no thread is launching.

        NOTE: both change with the GIL held alone, and a call takes a record from the table and counts itself
        among its users without letting go of it.
        """
        listed = set(self._state.table)
        for address, native in list(self._records.items()):
            if address not in listed and not native.is_in_use:
                self._records.pop(address, None)

    def clear(self) -> None:
        """Forget every record. What a thread is launching at this moment stays in memory until it is done."""
        with self._lock:
            self._state.table[:] = [0] * TABLE_SLOTS
            self._free_dropped()


def _retire(state: Any, records: dict[int, NativeRecord]) -> None:
    """Remove all records from a builtin, whose memory is about to be freed."""
    state.table[:] = [0] * TABLE_SLOTS
    _IMMORTAL.extend(native for native in records.values() if native.is_in_use)


def slot_offset(type_: type, slot: str) -> int:
    """Where in an instance a slot of ``__slots__`` lies, in bytes."""

    class Probe:
        __slots__ = ("first", "second")
        first: object
        second: object

    probe, marker = Probe(), object()
    probe.second = marker
    _check_layout(_word(id(probe) + _member_offset(Probe, "second")) == id(marker))
    return _member_offset(type_, slot)


def _member_offset(type_: type, slot: str) -> int:
    descriptor = inspect.getattr_static(type_, slot, None)
    if not isinstance(descriptor, types.MemberDescriptorType):
        raise ArgumentError("slot", f"is one of the __slots__ of {type_.__name__}", slot)
    _check_layout(types.MemberDescriptorType.__basicsize__ == _DESCRIPTOR_BYTES)
    member = _word(id(descriptor) + _DESCRIBED)  # PyMemberDef: name, type, offset
    offset = _word(member + 16)
    _check_layout(ctypes.string_at(_word(member)).decode() == slot)
    _check_layout(ctypes.c_int.from_address(member + 8).value == _OBJECT_SLOT)
    _check_layout(16 <= offset <= type_.__basicsize__ - 8)
    return offset


def _grad_getter(type_: type) -> tuple[int, int]:
    """A function (object, closure) that gives ``requires_grad`` as a new reference, and its closure.

    That of the type's own getter saves the search for it; without one it is PyObject_GetAttr and the name.
    """
    descriptor = inspect.getattr_static(type_, "requires_grad", None)
    if (
        isinstance(descriptor, types.GetSetDescriptorType)
        and types.GetSetDescriptorType.__basicsize__ == _DESCRIPTOR_BYTES
    ):
        getset = _word(id(descriptor) + _DESCRIBED)  # PyGetSetDef: name, get, set, doc, closure
        if ctypes.string_at(_word(getset)) == b"requires_grad" and _word(getset + 8):
            _IMMORTAL.append(descriptor)
            return _word(getset + 8), _word(getset + 32)
    name = sys.intern("requires_grad")
    _IMMORTAL.append(name)
    return _symbol("PyObject_GetAttr"), id(name)


def _exchange(capsule: object) -> int:
    """The address of a capsule's exchange table, of the version that is known here."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    try:
        address = get(capsule, _EXCHANGE_NAME) or 0
    except ValueError:
        raise ArgumentError("exchange_api", 'is a capsule named "dlpack_exchange_api"', capsule) from None
    while address:
        table = structure("Exchange").from_address(address)
        if table.version & 0xFFFFFFFF == _DLPACK_MAJOR:
            if table.to_tensor and table.current_stream and table.allocate and table.to_object:
                return int(address)
            raise ArgumentError("exchange_api", "has a function that describes a tensor in place", capsule)
        address = table.previous
    raise ArgumentError("exchange_api", f"speaks version {_DLPACK_MAJOR} of DLPack", capsule)


def _symbol(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    _check_layout(address is not None)
    return int(address or 0)


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _check_layout(good: bool) -> None:
    if not good:
        raise ArgumentError("CallStub", "needs objects laid out as in CPython 3.11 to 3.14", sys.version)
