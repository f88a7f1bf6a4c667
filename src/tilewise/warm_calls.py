"""The warm call: what the slow path has bound becomes a record that compiled code compares, fills in and launches.

``tw.matmul``, ``tw.linear`` and ``tw.grouped_matmul`` are builtin functions made by :mod:`tilewise.call_stub`. A call
that fits a record goes from the arrays to the driver without Python; any other goes the slow way, such as
:func:`tilewise.matmul.multiply`, which then offers what it bound here.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilewise.bound import Bound, BoundLaunch
from tilewise.call_stub import (
    PLAIN_FORM,
    CallForm,
    CallRecord,
    CallStub,
    DriverEntries,
    MapPatch,
    NativeLaunch,
    TensorPattern,
    available,
)
from tilewise.call_stub.shared_memory import FIRST_EXTRA, MAX_EXTRAS, MAX_GIVEN, MAX_LAUNCHES
from tilewise.calls import BoundProduct
from tilewise.devices.exchange import type_code
from tilewise.devices.gpu import GpuArray, GpuDevice, streams_entered_address
from tilewise.devices.gpu.driver_tensor_map import driver_values
from tilewise.epilogue import EpilogueCall, Fused
from tilewise.errors import ArgumentError
from tilewise.expression import ACTIVATIONS
from tilewise.interop import Library, View, numpy_dtype
from tilewise.operands import ALIGNMENT_MOST, alignment_of
from tilewise.problem import ARITHMETICS
from tilewise.slots import MapSlot, Slot

__all__ = [
    "PLAIN_CALL",
    "Extras",
    "NativeTarget",
    "WarmCalls",
    "can_compile",
    "describe_extras",
    "forget_all",
    "lay_out",
    "native_record",
]

_OPERANDS = {"a": 0, "b": 1, "c": 2, "workspace": 3}
_MAP_ALIGNMENT = 64
_OFFER_AGAIN = 64  # slow calls of a kind after which its record is made anew
_MOST_OFFERED = 512  # kinds of call whose offers are counted

_NAMES = (*ACTIVATIONS, *ARITHMETICS)  # strings that compiled code compares arguments with

# What each function's builtin takes by place and by name, x and weight being a and b; what else is given is slow.
_ARGUMENTS = {
    "matmul": (
        ("a", "b", "out"),
        ("out", "bias", "activation", "residual", "alpha", "beta", "c", "epilogue", "arithmetic"),
    ),
    "linear": (("a", "b", "bias"), ("bias", "activation", "out", "residual", "arithmetic")),
    "grouped_matmul": (("a", "b", "offsets", "out"), ("out", "epilogue", "offsets", "arithmetic")),
}

# Of call: what was made for it, whether there is an out, whose arrays, and what else there is.
_Kind = tuple[BoundProduct, bool, str, CallForm]


def can_compile() -> bool:
    """Whether this Python can have a compiled call."""
    return available()


@dataclass(frozen=True, slots=True)
class Extras:
    """What a call gives beside its matrices: the arrays by the names of their operands, and which are written."""

    form: CallForm = PLAIN_FORM
    arrays: Mapping[str, View] = field(default_factory=dict)
    kept: tuple[int, ...] = ()

    @property
    def places(self) -> dict[str, int]:
        """Where compiled code has the addresses of what a launch takes."""
        return _OPERANDS | {name: FIRST_EXTRA + place for place, name in enumerate(self.arrays)}

    @property
    def numbers(self) -> dict[str, int]:
        """Which of the call's numbers an operand is."""
        return {f"epilogue.{name}": place for place, name in enumerate(self.form.numbers)}


PLAIN_CALL = Extras()


def describe_extras(
    fused: Fused,
    source: EpilogueCall | str | None,
    offsets: View | None = None,
    arithmetic: str | None = None,
) -> Extras:
    """What a call has beside its matrices.

    ``source`` is what its epilogue came from: an epilogue object, or the activation of the usual one. ``arithmetic`` is
    as the call names it.
    """
    if source is None and offsets is None and arithmetic is None and fused.is_plain:
        return PLAIN_CALL
    numbers = tuple(name for name, _ in fused.numbers)
    arrays = {} if offsets is None else {"offsets": offsets}
    arrays |= {f"epilogue.{name}": view for name, view in fused.arrays.items()}
    names: tuple[str, ...] = (*fused.names, *numbers)
    text: object = None
    if isinstance(source, EpilogueCall):
        names, text = tuple(source.given), source.expression
    elif source is not None:
        text = ACTIVATIONS[ACTIVATIONS.index(source)]  # the very one that the builtin was given
    number = 0 if arithmetic is None else 1 + _NAMES.index(arithmetic)
    form = CallForm(names, numbers, text, isinstance(source, EpilogueCall), offsets is not None, number)
    written = {f"epilogue.{name}" for name in fused.kept}
    kept = tuple(place for place, name in enumerate(arrays) if name in written)
    return Extras(form, arrays, kept)


@dataclass(frozen=True, slots=True)
class NativeTarget:
    """Where compiled code launches: the driver's functions, the context, and how a kernel is loaded."""

    entries: DriverEntries
    context: int
    load: Callable[[BoundLaunch], int]  # the address of its CUfunction, ready for the launch's shape
    empty: Callable[[tuple[int, ...], Any], Any] | None = None  # an array of ours there: shape, element type

    @classmethod
    def of(cls, device: GpuDevice) -> NativeTarget:
        """A GPU."""
        found = device.native_entries()
        entries = DriverEntries(
            found.launch_kernel_ex,
            found.tensor_map_encode_tiled,
            found.ctx_get_current,
            found.ctx_push_current,
            found.ctx_pop_current,
        )

        def load(launch: BoundLaunch) -> int:
            return device.load_for(launch.binary, launch.entry, launch.launch)

        return cls(entries, device.context_address, load, device.empty)


_made: weakref.WeakSet[WarmCalls] = weakref.WeakSet()


def forget_all() -> None:
    """Forget the records of every function: the next call of each kind goes the slow way."""
    for one in list(_made):
        one.forget()


class WarmCalls:
    """The builtin that takes a slow function's place, and the records that it knows.

    ``name`` is that of the function, which decides what arguments the builtin takes apart by itself.

    Any thread may call the builtin and any method here at any time. A builtin that outlives this object goes the slow
    way always.

    NOTE: of torch's tensors. A product that is written to ``out`` does not count as a change of it, as with any
    kernel that is not torch's own: ``out._version`` stays, so autograd cannot notice that ``out`` was saved for a
    backward pass. A result that the builtin allocates owns its memory by way of DLPack: its storage cannot be resized.
    """

    def __init__(self, name: str, doc: str, slow: Callable[..., Any]) -> None:
        positional, keywords = _ARGUMENTS[name]
        self._stub = CallStub(name, doc, slow, positional=positional, keywords=keywords)
        self._stub.register_epilogue(EpilogueCall, "expression", "given")
        self._stub.register_activations(_NAMES)
        self._lock = threading.RLock()  # a signal's handler may multiply as well
        self._libraries: dict[str, int | None] = {}
        self._offered: OrderedDict[_Kind, int] = OrderedDict()  # how often; what was offered last is last
        self._targets: dict[int, NativeTarget] = {}
        _made.add(self)

    @property
    def function(self) -> Any:
        """The builtin."""
        return self._stub.function

    def offer(
        self,
        made: BoundProduct,
        views: tuple[View, View, View],
        has_out: bool,
        device: Any,
        extras: Extras = PLAIN_CALL,
    ) -> None:
        """Let the next call like this one go the short way, if it can. ``views`` are as the caller gave them."""
        library = views[2].library
        every = (*views, *extras.arrays.values())
        if any(one.library is not library for one in every):
            return
        key = made, has_out, library.name, extras.form
        with self._lock:
            for one in every:
                if isinstance(one.owner, GpuArray):
                    one.owner.native()  # what compiled code reads of an array of ours is written down once
            times = self._count(key)
            if times % _OFFER_AGAIN:  # what is slow for a reason stays so; what the table lost comes back
                return
            target = self._targets.get(device.ordinal)
            if target is None:
                target = self._targets[device.ordinal] = NativeTarget.of(device)
            self.add(made, views, has_out, target, extras)

    def _count(self, key: _Kind) -> int:
        """How often a kind of call was offered before."""
        times = self._offered[key] = self._offered.get(key, -1) + 1
        self._offered.move_to_end(key)
        if len(self._offered) > _MOST_OFFERED:
            self._offered.popitem(last=False)
        return times

    def add(
        self,
        made: BoundProduct,
        views: tuple[View, View, View],
        has_out: bool,
        target: NativeTarget,
        extras: Extras = PLAIN_CALL,
    ) -> bool:
        """Make the record of a bound product; False where calls like it have to stay slow."""
        with self._lock:
            number = self._number_of(views[2].library)
            if number is None:
                return False
            record = native_record(made, views, has_out, number, target, extras)
            return record is not None and self._stub.add(record)

    def _number_of(self, library: Library) -> int | None:
        """The stub's number of a library, registered when it is first met; None if compiled code cannot read it."""
        if library.name not in self._libraries:
            self._libraries[library.name] = self._register(library)
        return self._libraries[library.name]

    def _register(self, library: Library) -> int | None:
        if library.name == "tilewise":
            return self._stub.register_arrays(GpuArray, "_native", streams_entered_address())
        try:
            return self._stub.register_library(
                library.exchange_types(),
                library.exchange_api(),
                library.tracks_gradients,
                library.gradients_on(),
                library.ordinary_state(),
            )
        except ArgumentError:  # it has no table, or one of a version that compiled code does not speak
            return None

    def forget(self) -> None:
        """Forget every record."""
        with self._lock:
            self._offered.clear()
            self._stub.clear()


def native_record(
    made: BoundProduct,
    views: tuple[View, View, View],
    has_out: bool,
    library: int,
    target: NativeTarget,
    extras: Extras = PLAIN_CALL,
) -> CallRecord | None:
    """The record of a bound product; None where it takes more than compiled code can launch or fill in."""
    bound, form = made.bound, extras.form
    launches = [*bound.copies, *(bound.launches * len(bound.shifts))]
    if not bound.launches or len(launches) > MAX_LAUNCHES:
        return None
    if len(extras.arrays) != form.extra_count or form.extra_count > MAX_EXTRAS or len(form.names) > MAX_GIVEN:
        return None
    slots = [slot for launch in launches for slot in launch.launch.args]
    if not all(_can_fill(slot, bound, extras) for slot in slots) or not _can_start(target.entries, slots):
        return None
    prepared = [_native_launch(launch, bound, {}, target, extras) for launch in bound.copies]
    repeated = [
        _native_launch(launch, bound, shift, target, extras)
        for shift in bound.shifts
        for launch in bound.launches
    ]
    a, b, c = (_pattern(view) for view in views)
    c = c if has_out else replace(c, exactly=False)
    return CallRecord(
        a, b, c, has_out, library, target.entries, target.context, (*prepared, *repeated),
        bound.workspace_bytes, None if has_out else _result_maker(views[2], target), (made, form),
        form, tuple(_extra_pattern(name, view) for name, view in extras.arrays.items()), extras.kept,
    )  # fmt: skip


def _can_start(entries: DriverEntries, slots: list[Slot | MapSlot]) -> bool:
    """Whether the driver has the functions that launches with these slots take."""
    always = entries.launch, entries.get_context, entries.push_context, entries.pop_context
    return all(always) and bool(entries.encode_tiled or not any(isinstance(slot, MapSlot) for slot in slots))


def _can_fill(slot: Slot | MapSlot, bound: Bound, extras: Extras) -> bool:
    """Whether compiled code can fill in a slot: addresses and numbers of a call, maps that it can encode."""
    if isinstance(slot, MapSlot):
        return slot.described.corners is None and _is_address(slot.operand, bound, extras)
    return all(
        gap.operand in extras.numbers or (gap.size == 8 and _is_address(gap.operand, bound, extras))
        for gap in slot.gaps
    )


def _is_address(operand: str, bound: Bound, extras: Extras) -> bool:
    return operand in extras.places or operand in bound.regions


def _result_maker(like: View, target: NativeTarget) -> Callable[[], object] | None:
    """What makes results of our own, which no exchange table allocates; None for other libraries."""
    empty = target.empty
    if like.library.name != "tilewise" or empty is None:
        return None
    shape, dtype = like.shape, numpy_dtype(like.dtype)

    def make() -> object:
        made = empty(shape, dtype)
        made.native()
        return made

    return make


def _pattern(view: View) -> TensorPattern:
    type_, alignment = (*type_code(numpy_dtype(view.dtype)), 1), alignment_of(view.ptr)
    return TensorPattern(view.space, type_, view.shape, view.strides, alignment, alignment < ALIGNMENT_MOST)


def _extra_pattern(name: str, view: View) -> TensorPattern:
    """NOTE: kernels take offsets of groups as they come: nothing was chosen by their alignment."""
    found = _pattern(view)
    return replace(found, alignment=1, exactly=False) if name == "offsets" else found


def _native_launch(
    launch: BoundLaunch, bound: Bound, shift: Any, target: NativeTarget, extras: Extras
) -> NativeLaunch:
    template, offsets, pointers, maps = lay_out(launch, bound.regions, shift, extras.places)
    shape = launch.launch
    return NativeLaunch(
        target.load(launch),
        shape.grid,
        shape.block,
        shape.shared,
        shape.cluster,
        template,
        offsets,
        pointers,
        maps,
        shape.programmatic,
        _numbers(launch, offsets, extras.numbers),
    )


def lay_out(
    launch: BoundLaunch, regions: Any, shift: Any, places: Mapping[str, int] = _OPERANDS
) -> tuple[bytes, tuple[int, ...], tuple[tuple[int, int, int], ...], tuple[MapPatch, ...]]:
    """The argument block of a launch with its gaps: bytes, offsets of the parameters, pointers and maps to fill in."""
    block, offsets = bytearray(), []
    pointers: list[tuple[int, int, int]] = []
    maps: list[MapPatch] = []

    def place(operand: str, addend: int) -> tuple[int, int]:
        number = places.get(operand, places["workspace"])  # a region is a part of it
        return number, addend + regions.get(operand, 0) + shift.get(operand, 0)

    for slot in launch.launch.args:
        alignment = _MAP_ALIGNMENT if isinstance(slot, MapSlot) or len(slot.template) == 128 else 8
        block += bytes(-len(block) % alignment)
        at = len(block)
        offsets.append(at)
        if isinstance(slot, MapSlot):
            block += bytes(128)
            operand, addend = place(slot.operand, slot.addend)
            maps.append(MapPatch(at, operand, addend, *driver_values(slot.described)))
        else:
            block += slot.template
            found = [gap for gap in slot.gaps if gap.operand in places or gap.operand in regions]
            pointers += [(at + gap.offset, *place(gap.operand, gap.addend)) for gap in found]
    return bytes(block), tuple(offsets), tuple(pointers), tuple(maps)


def _numbers(
    launch: BoundLaunch, offsets: tuple[int, ...], numbers: Mapping[str, int]
) -> tuple[tuple[int, int, int], ...]:
    """Where in the argument block numbers go: offset, which one, bytes."""
    slots = zip(launch.launch.args, offsets, strict=True)
    gaps = [(at, gap) for slot, at in slots if not isinstance(slot, MapSlot) for gap in slot.gaps]
    return tuple(
        (at + gap.offset, numbers[gap.operand], gap.size) for at, gap in gaps if gap.operand in numbers
    )
