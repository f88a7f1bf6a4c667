"""A record of the compiled call: one bound problem as plain data, and in native memory."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewise.call_stub.shared_memory import (
    BLOCK_BYTES,
    FIRST_EXTRA,
    FIRST_NUMBER,
    FORM_BITS,
    KEY_WORDS,
    MAX_EXTRAS,
    MAX_GIVEN,
    MAX_LAUNCHES,
    MAX_NDIM,
    MAX_PARAMETERS,
    OPERAND_WORDS,
    PIECE_BYTES,
    PLAIN_WORDS,
    structure,
)
from tilewise.devices.strides import extent
from tilewise.errors import ArgumentError

__all__ = [
    "PLAIN_FORM",
    "CallForm",
    "CallRecord",
    "DriverEntries",
    "MapPatch",
    "NativeLaunch",
    "NativeRecord",
    "TensorPattern",
    "compact_strides",
]

_CLUSTER_DIMENSION = 4  # CUlaunchAttributeID
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_COMPLEX = 5  # DLPack's type codes
_UINT8 = (1, 8, 1)
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_WORD = 2**64 - 1
_NOWHERE = 2**62
_NO_STRIDE = 16  # of a map of one axis: the driver looks for a stride all the same


@dataclass(frozen=True, slots=True)
class DriverEntries:
    """Addresses of the driver's functions.

    ``launch`` is cuLaunchKernelEx, ``encode_tiled`` cuTensorMapEncodeTiled, and the others are
    cuCtxGetCurrent, cuCtxPushCurrent and cuCtxPopCurrent.
    """

    launch: int
    encode_tiled: int
    get_context: int
    push_context: int
    pop_context: int


@dataclass(frozen=True, slots=True)
class TensorPattern:
    """What an operand has to be, in DLPack's terms: ``strides`` in elements, ``alignment`` in bytes.

    ``exactly`` is for what was chosen because the array is aligned for no more: one that is has a record of its own.
    """

    device: tuple[int, int]
    dtype: tuple[int, int, int]  # code, bits, lanes
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int = 1
    exactly: bool = False


@dataclass(frozen=True, slots=True)
class MapPatch:
    """One tensor map to encode into an argument block: cuTensorMapEncodeTiled's arguments."""

    offset: int  # in the block
    operand: int  # 0 a, 1 b, 2 c, 3 workspace, the extras
    addend: int  # bytes past the operand's address
    data_type: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # bytes, one less than sizes
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    promotion: int = 0
    fill: int = 0


@dataclass(frozen=True, slots=True)
class NativeLaunch:
    """One launch of a call. ``pointers`` are (offset in the template, operand, addend).

    Operands are 0 a, 1 b, 2 c, 3 the workspace, and from 4 on the extras. ``numbers`` are (offset, which of the call's
    numbers, bytes: 4 of a float or 8 of a double).
    """

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    cluster: tuple[int, int, int] | None
    template: bytes
    offsets: tuple[int, ...]  # of each parameter in the template
    pointers: tuple[tuple[int, int, int], ...] = ()
    maps: tuple[MapPatch, ...] = ()
    programmatic: bool = False  # may begin while the launch before it ends
    numbers: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class CallForm:
    """Which arguments a call has beside a, b and out.

    ``names`` are those of the usual epilogue, in any order, ``text`` is its activation or None; or, with
    ``by_object``, what an epilogue object gives, in its order, and ``text`` is its expression. ``numbers`` are those of
    the names that are no arrays. An activation is the very string that the builtin was given; names and expression of
    an object are compared by identity.
    """

    names: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    text: object = None
    by_object: bool = False
    has_offsets: bool = False  # they are the first of the extras
    arithmetic: int = 0  # the number of its name among the activations that the builtin was given, from 1 on

    @property
    def extra_count(self) -> int:
        """How many arrays there are."""
        return self.has_offsets + len(self.names) - len(self.numbers)

    @property
    def bits(self) -> int:
        """The form as the key has it."""
        known = [*(["offsets"] if self.has_offsets else ()), *(() if self.by_object else self.names)]
        bits = sum(1 << FORM_BITS[name] for name in known)
        if self.by_object:
            bits |= 1 << FORM_BITS["epilogue"] | len(self.names) << FORM_BITS["count"]
            arrays = (place for place, name in enumerate(self.names) if name not in self.numbers)
            bits |= sum(1 << FORM_BITS["arrays"] + place for place in arrays)
        if bits or self.text is not None:
            bits |= 1 << FORM_BITS["not_plain"]
        return bits | self.arithmetic << FORM_BITS["arithmetic"]


PLAIN_FORM = CallForm()


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One bound problem: what the operands must be, and what to launch then.

    ``make_result`` is for arrays of our own, where there is no out: a Python callable that gives a new array
    like ``c``, described in its slot. Other libraries allocate through their exchange table.
    ``owner`` is kept alive with the record: whatever keeps its functions loaded.
    ``extras`` are the arrays of ``form``, offsets first; the call writes those that ``kept`` counts.
    """

    a: TensorPattern
    b: TensorPattern
    c: TensorPattern
    has_out: bool
    library: int
    entries: DriverEntries
    context: int
    launches: tuple[NativeLaunch, ...]
    workspace_bytes: int = 0
    make_result: Callable[[], object] | None = None
    owner: Any = field(default=None, compare=False, repr=False)
    form: CallForm = PLAIN_FORM
    extras: tuple[TensorPattern, ...] = ()
    kept: tuple[int, ...] = ()

    @property
    def operands(self) -> tuple[TensorPattern, ...]:
        """What the caller gives."""
        return (self.a, self.b, *((self.c,) if self.has_out else ()), *self.extras)

    @property
    def has_workspace_operand(self) -> bool:
        """Whether a launch takes the workspace's address."""
        patches = (patch for launch in self.launches for patch in _operands(launch))
        return any(operand == 3 for operand in patches)


def compact_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements, as the compiled call has them for a tensor that gives none."""
    return tuple(itertools.accumulate((extent or 1 for extent in shape[:0:-1]), int.__mul__, initial=1))[
        ::-1
    ][: len(shape)]


def may_hide_state(pattern: TensorPattern) -> bool:
    """Whether a torch tensor like this may be a lazy conjugate or negative, which DLPack does not tell.

    A lazily negated tensor is the imaginary part of a conjugate: its strides count in pairs.
    """
    return pattern.dtype[0] == _COMPLEX or all(stride % 2 == 0 for stride in pattern.strides)


class NativeRecord:
    """A record in native memory, as long as this object lives."""

    def __init__(self, record: CallRecord) -> None:
        check_record(record)
        self.record = record
        self._parts: list[Any] = []
        self.native = structure("Record")()
        self.native.key[:] = _key(record)
        self.address = ctypes.addressof(self.native)
        arrays = enumerate((record.a, record.b, record.c, None, *record.extras))
        for place, operand in arrays:
            if operand is not None:
                least = operand.alignment
                self.native.masks[place] = least - 1 | least * operand.exactly
                self.native.wants[place] = least * operand.exactly
                first, end = _extent(operand)
                self.native.firsts[place], self.native.ends[place] = first & _WORD, end
        self.native.written = 1 << 2 | sum(1 << FIRST_EXTRA + which for which in record.kept)
        self.native.context = record.context
        for name in DriverEntries.__slots__:
            address = getattr(record.entries, name)
            setattr(self.native, name, address)
        launches = (structure("Launch") * len(record.launches))(*map(self._launch, record.launches))
        self.native.launches, self.native.launch_count = self._address(launches), len(launches)
        if record.make_result is not None:
            self.native.make_result = id(record.make_result)
        elif not record.has_out:
            self.native.result = self._prototype(record.c.device, record.c.dtype, record.c.shape)
        if record.workspace_bytes:
            self.native.workspace = self._prototype(record.a.device, _UINT8, (record.workspace_bytes,))

    @property
    def key(self) -> bytes:
        """What is compared with the operands of a call, but for the alignment."""
        return bytes(self.native.key)

    @property
    def alignments(self) -> tuple[list[int], list[int]]:
        """What is compared with the addresses of a call's arrays."""
        return list(self.native.masks), list(self.native.wants)

    @property
    def is_in_use(self) -> bool:
        """Whether some thread is launching it now."""
        return bool(self.native.users)

    def _address(self, part: Any) -> int:
        self._parts.append(part)
        return ctypes.addressof(part)

    def _prototype(self, device: tuple[int, int], dtype: tuple[int, int, int], shape: tuple[int, ...]) -> int:
        extents = (ctypes.c_int64 * len(shape))(*shape)
        strides = (ctypes.c_int64 * len(shape))(*compact_strides(shape))
        words = _describe(device, dtype, len(shape))
        return self._address(
            structure("Tensor")(0, *words, self._address(extents), self._address(strides), 0)
        )

    def _launch(self, launch: NativeLaunch) -> Any:
        pieces = -(-len(launch.template) // PIECE_BYTES)
        template = ctypes.create_string_buffer(launch.template, max(1, pieces) * PIECE_BYTES)
        offsets = (ctypes.c_uint32 * len(launch.offsets))(*launch.offsets)
        pointers = [(offset, operand, addend & _WORD, 8) for offset, operand, addend in launch.pointers]
        numbers = [(offset, FIRST_NUMBER + number, 0, size) for offset, number, size in launch.numbers]
        patches = (structure("Patch") * (len(pointers) + len(numbers)))(*pointers, *numbers)
        maps = (structure("Map") * len(launch.maps))(*map(_map, launch.maps))
        attributes = _attributes(launch)
        config = structure("Config")(
            launch.grid, launch.block, launch.shared, 0, self._address(attributes), len(attributes)
        )
        return structure("Launch")(
            config,
            launch.function,
            *(self._address(template), pieces),
            *(self._address(offsets), len(offsets)),
            *(self._address(patches), len(patches)),
            *(self._address(maps), len(maps)),
        )


def _extent(pattern: TensorPattern) -> tuple[int, int]:
    """Where the lowest byte of a tensor lies and where it ends, in bytes from its address.

    NOTE: without elements it begins far behind its end, so that it overlaps nothing wherever it lies.
    """
    if 0 in pattern.shape:
        return _NOWHERE, 0
    itemsize = -(-pattern.dtype[1] * pattern.dtype[2] // 8)
    return extent(pattern.shape, tuple(stride * itemsize for stride in pattern.strides), itemsize)


def _attributes(launch: NativeLaunch) -> Any:
    attributes = []
    if launch.cluster:
        attributes.append((_CLUSTER_DIMENSION, 0, tuple(launch.cluster)))
    if launch.programmatic:
        attributes.append((_PROGRAMMATIC_STREAM_SERIALIZATION, 0, (1,)))
    return (structure("Attribute") * len(attributes))(*attributes)


def _map(patch: MapPatch) -> Any:
    return structure("Map")(
        patch.offset,
        patch.operand,
        patch.addend & _WORD,
        patch.data_type,
        len(patch.sizes),
        patch.sizes,
        patch.strides or (_NO_STRIDE,),
        patch.box,
        patch.steps,
        *(patch.interleave, patch.swizzle, patch.promotion, patch.fill),
    )


def _describe(device: tuple[int, int], dtype: tuple[int, int, int], ndim: int) -> tuple[int, int]:
    """The two words of a DLTensor that say where it is and of what."""
    code, bits, lanes = dtype
    layout = ndim | code << 32 | bits << 40 | lanes << 48
    return (device[0] & 0xFFFFFFFF) | (device[1] & 0xFFFFFFFF) << 32, layout


def _key(record: CallRecord) -> list[int]:
    words, form = [0] * KEY_WORDS, record.form
    own = (record.a, record.b, record.c) if record.has_out else (record.a, record.b)
    first_words = [place * OPERAND_WORDS for place in range(len(own))]
    first_extra = PLAIN_WORDS + MAX_GIVEN
    first_words += [first_extra + place * OPERAND_WORDS for place in range(len(record.extras))]
    for first, operand in zip(first_words, (*own, *record.extras), strict=True):
        ndim = len(operand.shape)
        words[first : first + 2] = _describe(operand.device, operand.dtype, ndim)
        words[first + 2 : first + 2 + ndim] = operand.shape
        words[first + 2 + MAX_NDIM : first + 2 + MAX_NDIM + ndim] = (s & _WORD for s in operand.strides)
    words[3 * OPERAND_WORDS] = record.library | record.has_out << FORM_BITS["out"] | form.bits
    words[3 * OPERAND_WORDS + 1] = 0 if form.text is None else id(form.text)
    if form.by_object:
        words[PLAIN_WORDS : PLAIN_WORDS + len(form.names)] = map(id, form.names)
    return words


def check_record(record: CallRecord) -> None:
    """Refuse a record whose native form would be wrong."""
    extras = {f"extras[{place}]": operand for place, operand in enumerate(record.extras)}
    for name, operand in {"a": record.a, "b": record.b, "c": record.c, **extras}.items():
        _require(len(operand.shape) == len(operand.strides), f"record.{name}", "has a stride for every axis")
        alignment = operand.alignment
        _require(
            alignment > 0 and not alignment & (alignment - 1),
            f"record.{name}",
            "is aligned to a power of two",
        )
    form = record.form
    counted = len(record.extras) == form.extra_count <= MAX_EXTRAS and len(form.names) <= MAX_GIVEN
    _require(
        counted, "record.extras", f"are the arrays of its form, at most {MAX_EXTRAS}", len(record.extras)
    )
    given = set(form.numbers) <= set(form.names) and all(0 <= one < len(record.extras) for one in record.kept)
    _require(given, "record.form", "has its numbers among its names, and what it keeps among the extras")
    compact = record.has_out or record.c.strides == compact_strides(record.c.shape)
    _require(compact, "record.c", "is compact where the call allocates it")
    _require(record.has_out or not record.c.exactly, "record.c", "lies anywhere where the call allocates it")
    unasked = record.make_result is None or not record.has_out
    _require(unasked, "record.make_result", "is None where the call has an out")
    _require(1 <= len(record.launches) <= MAX_LAUNCHES, "record.launches", f"are 1 to {MAX_LAUNCHES}")
    _require(
        record.workspace_bytes > 0 or not record.has_workspace_operand,
        "record.workspace_bytes",
        "is the size of the workspace that a launch takes",
    )
    for launch in record.launches:
        _check_launch(launch)
        _check_values(launch, len(record.extras), len(form.numbers))


def _check_values(launch: NativeLaunch, extras: int, numbers: int) -> None:
    known = all(0 <= operand < FIRST_EXTRA + extras for operand in _operands(launch))
    rule = "takes operands 0 (a), 1 (b), 2 (c), 3 (the workspace) and, from 4 on, the extras"
    _require(known, "launch", rule)
    size = len(launch.template)
    for offset, number, width in launch.numbers:
        good = 0 <= offset <= size - width and 0 <= number < numbers and width in (4, 8)
        _require(
            good, "launch.numbers", f"are 4 or 8 bytes in the template's {size}, of one of {numbers}", offset
        )


def _check_launch(launch: NativeLaunch) -> None:
    size = len(launch.template)
    _require(size <= BLOCK_BYTES, "launch.template", f"has at most {BLOCK_BYTES} bytes", size)
    _require(
        len(launch.offsets) <= MAX_PARAMETERS,
        "launch.offsets",
        f"are at most {MAX_PARAMETERS}",
        launch.offsets,
    )
    inside = all(0 <= offset < size for offset in launch.offsets)
    _require(inside, "launch.offsets", f"lie in the template's {size} bytes", launch.offsets)
    for offset, _, _ in launch.pointers:
        _require(0 <= offset <= size - 8, "launch.pointers", f"lie in the template's {size} bytes", offset)
    for patch in launch.maps:
        good = 0 <= patch.offset <= size - _MAP_BYTES and patch.offset % _MAP_ALIGNMENT == 0
        _require(good, "launch.maps", f"lie at multiples of 64 in the template's {size} bytes", patch.offset)
        rank = len(patch.sizes)
        ranks = (len(patch.strides) + 1, len(patch.box), len(patch.steps))
        _require(1 <= rank <= 5 and ranks == (rank,) * 3, "launch.maps", "have 1 to 5 axes throughout", ranks)


def _operands(launch: NativeLaunch) -> list[int]:
    return [operand for _, operand, _ in launch.pointers] + [patch.operand for patch in launch.maps]


def _require(good: bool, argument: str, rule: str, value: object = None) -> None:
    if not good:
        raise ArgumentError(argument, rule, value)
