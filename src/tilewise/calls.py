"""Choose → bind → call: a product bound once for operands of one layout, and started as often as wanted."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewise import interop
from tilewise.bound import Bound
from tilewise.describe import Shapes, describe, result_shapes
from tilewise.devices import Device
from tilewise.devices.emulated import EmulatedArray
from tilewise.devices.gpu import GpuArray, GpuDevice
from tilewise.devices.strides import extent
from tilewise.epilogue import PLAIN, Fused, bits_of
from tilewise.errors import ArgumentError
from tilewise.interop import View, numpy_of
from tilewise.kernels import KERNELS
from tilewise.kernels.bind import bind, bind_steps
from tilewise.kernels.spec import KernelSpec, Step
from tilewise.operands import ALIGNMENT_MOST, Operands, alignment_of
from tilewise.plan import Plan
from tilewise.planner import Candidate, choose, target_of_device
from tilewise.problem import COMPLEX, EIGHT_BITS, INTEGERS, Problem, resolve_arithmetic, result_of
from tilewise.slots import places_of

__all__ = [
    "Arrays",
    "BoundProduct",
    "Call",
    "Choice",
    "argument_of",
    "check_out",
    "extent_of",
    "find_overlap",
    "forget",
    "itemsize",
    "may_overlap_in_place",
    "measure_new_kinds",
    "overlap_error",
    "prepare",
    "ready",
    "recall_bound",
    "share_elements",
    "start",
    "start_on_gpu",
    "start_steps",
]

_MOST = 512  # bounds that are remembered
_WRITTEN = ("float16", "bfloat16", "float32", "float64", "int32", "int64", *EIGHT_BITS)
_MOST_WORK = 10_000  # steps of NumPy's search for an element that two arrays share


class Arrays(NamedTuple):
    """The arrays of a product: A, B, the result, those of the epilogue, and where groups of A's rows end.

    Where A, B and the result are lists of matrices, ``matrices`` are all of these. ``tables`` say by operand where they
    lie, if the launch is to find them by pointers.
    """

    a: View
    b: View
    out: View
    fused: Fused = PLAIN
    offsets: View | None = None
    matrices: tuple[View, ...] = ()
    tables: Mapping[str, int] | None = None

    @property
    def named(self) -> dict[str, View]:
        """All of them, by the names of their operands."""
        extras = {f"epilogue.{name}": view for name, view in self.fused.arrays.items()}
        split = {"parts_a": self.a.parts, "parts_b": self.b.parts}
        extras.update({name: parts for name, parts in split.items() if parts is not None})
        if self.offsets is not None:
            extras["offsets"] = self.offsets
        return {"a": self.a, "b": self.b, "c": self.out, **extras}


class Choice(NamedTuple):
    """What the caller has fixed of how to multiply; nothing by default."""

    plan: Plan | None = None
    specs: tuple[KernelSpec, ...] | None = None
    settings: tuple[tuple[str, object], ...] = ()
    copy: bool | None = None
    arithmetic: str | None = None
    changed: bool = False  # whether something happens to the sums

    @property
    def is_open(self) -> bool:
        """Whether kernel and settings are the planner's to choose."""
        return self.plan is None and self.specs is None and not self.settings

    @property
    def kernels(self) -> tuple[KernelSpec, ...] | None:
        """Those to choose among; None is all practical ones."""
        return self.specs if self.plan is None else (KERNELS[self.plan.kernel],)

    def result_type(self, operand_type: str) -> str:
        """What a result holds that the caller gives no memory for."""
        if self.plan is not None:
            return self.plan.problem.c
        for name, value in self.settings:
            if name == "result":
                return str(value)
        return result_of(operand_type, self.changed)


@dataclass(frozen=True, slots=True, eq=False)
class BoundProduct:
    """What was chosen and bound for a product."""

    operands: Operands
    candidate: Candidate
    plan: Plan
    bound: Bound
    extents: tuple[tuple[int, int], ...]
    """Of each array: the first byte that is touched and the one after the last, from the first element on."""


def prepare(arrays: Arrays, shapes: Shapes, where: Device, choice: Choice) -> BoundProduct:
    """The bound product for operands of this layout on a device: cached, or chosen and bound now."""
    key = _key(arrays, where, choice)
    made = _recall(key)
    if made is None:
        made = _make(arrays, shapes, where, choice)
        _remember(key, made, choice.plan)
    return made


def recall_bound(arrays: Arrays, where: Device, choice: Choice) -> BoundProduct | None:
    """What :func:`prepare` remembers for operands like these: they passed every check but that of overlaps."""
    return _recall(_key(arrays, where, choice))


def _make(arrays: Arrays, shapes: Shapes, where: Device, choice: Choice) -> BoundProduct:
    operands = describe(*arrays[:3], shapes, arrays.fused, arrays.offsets, arrays.tables or ())
    operands = operands._replace(arithmetic=_arithmetic_of(choice, operands.element))
    target = target_of_device(where)
    given = dict(choice.settings)
    if choice.plan is not None:
        _check_plan(choice.plan, operands)
        given = dict(KERNELS[choice.plan.kernel].settings_of(choice.plan, operands))
    elif _measure is not None and choice.is_open and not _is_captured(arrays.out, where):
        _measure(operands, where)
    candidate = choose(operands, target, specs=choice.kernels, given=given, copy=choice.copy)
    plan = candidate.plan(operands, target)
    bound = bind(candidate.spec, candidate.settings, operands, candidate.operands, where)
    return BoundProduct(
        operands, candidate, plan, bound, tuple(extent_of(view) for view in arrays.named.values())
    )


_measure: Callable[[Operands, Device], None] | None = None


@contextlib.contextmanager
def measure_new_kinds(measure: Callable[[Operands, Device], None]) -> Iterator[None]:
    """Within it ``measure`` is called for each new kind of product before its plan is chosen, in whatever thread."""
    global _measure
    before, _measure = _measure, measure
    try:
        yield
    finally:
        _measure = before


def _is_captured(out: View, where: Device) -> bool:
    """Whether launches for a result become part of a graph, where nothing can be measured."""
    return isinstance(where, GpuDevice) and where.is_capturing(out.library.stream(out))


def _arithmetic_of(choice: Choice, dtype: str) -> str | None:
    """What operands of a type are multiplied in: as was asked for, or else as the plan has it."""
    if choice.arithmetic is None and choice.plan is not None:
        return choice.plan.problem.arithmetic
    return resolve_arithmetic(choice.arithmetic, dtype)


def extent_of(view: View) -> tuple[int, int]:
    """The first byte that an array reaches to and the one after the last, from its first element on."""
    item = itemsize(view)
    return extent(view.shape, tuple(step * item for step in view.strides), item)


def start(made: BoundProduct, arrays: Arrays, where: Device, streams: tuple[int | None, ...]) -> None:
    """Fill in addresses and numbers and launch, on the first of the streams and in order with the others.

    NOTE: the result must share no element with an operand: see :func:`find_overlap`.
    """
    bound = made.bound
    if not bound.launches:
        return
    named, result = arrays.named, arrays.out
    addresses = {name: view.ptr for name, view in named.items()}
    if arrays.fused.numbers:
        addresses.update(bits_of(arrays.fused.numbers, made.operands.epilogue_type))
    if arrays.tables is not None:
        addresses.update({places_of(name): table for name, table in arrays.tables.items()})
    workspace = None
    if bound.workspace_bytes:
        workspace = interop.view("workspace", result.library.empty((bound.workspace_bytes,), "uint8", result))
        addresses["workspace"] = workspace.ptr
    views = (*arrays.matrices, *tuple(named.values())[3 if arrays.matrices else 0 :])
    if where.runs_on_gpu:
        used = views if workspace is None else (*views, workspace)
        start_on_gpu(bound, addresses, used, where, streams)
        return
    reaches = map(extent_of, views) if arrays.matrices else made.extents
    held = [_adopt(one, *reach, where) for one, reach in zip(views, reaches, strict=True)]
    if workspace is not None:
        held.append(_adopt(workspace, 0, bound.workspace_bytes, where))
    bound(addresses)
    del held  # up to here launches may touch their memory


def start_on_gpu(
    bound: Bound,
    addresses: dict[str, int],
    used: tuple[View, ...],
    where: Any,
    streams: tuple[int | None, ...],
) -> None:
    stream = streams[0]
    if stream is not None:
        for view in used:
            if isinstance(view.owner, GpuArray):
                view.owner.lend_to(stream)
    let_others_wait = where.order_streams(streams) if len(streams) > 1 else None
    bound(addresses, stream)
    if let_others_wait is not None:
        let_others_wait()


def start_steps(
    steps: list[Step], used: Mapping[str, View], where: Device, streams: tuple[int | None, ...]
) -> None:
    """Start launches that are no product, on arrays by the names of their operands."""
    bound = bind_steps(steps, where)
    addresses = {name: view.ptr for name, view in used.items()}
    if where.runs_on_gpu:
        start_on_gpu(bound, addresses, tuple(used.values()), where, streams)
        return
    held = [_adopt(view, *extent_of(view), where) for view in used.values()]
    bound(addresses)
    del held


def _adopt(view: View, first: int, end: int, where: Any) -> object:
    """What lets the emulator's launches touch a host array for as long as it lives."""
    if isinstance(view.owner, EmulatedArray):
        return view.owner
    name = f"the {view.dtype} array of shape {view.shape}"
    return where.adopt(view.ptr + first, end - first, name, view.owner)


class Call:
    """A product of fixed arrays, ready to be multiplied again and again."""

    __slots__ = ("_held", "_start", "made")

    def __init__(self, made: BoundProduct, arrays: Arrays, where: Device) -> None:
        self.made, bound = made, made.bound
        views = tuple(arrays.named.values())
        addresses = {name: view.ptr for name, view in arrays.named.items()}
        workspace = where.empty((max(bound.workspace_bytes, 1),), "uint8")
        addresses["workspace"] = workspace.ptr
        reaches = [] if where.runs_on_gpu else zip(views, made.extents, strict=True)
        self._held = views, [_adopt(view, *reach, where) for view, reach in reaches]
        self._start = bound.prepare(addresses, [*(view.owner for view in views), workspace])

    def __call__(self) -> None:
        """Multiply, on the device's current stream; on a GPU nothing waits for the end."""
        self._start()


def ready(a: Any, b: Any, out: Any, device: Device, choice: Choice) -> Call:
    """The product of two arrays on a device into a third: chosen and bound, and not started."""
    arrays = Arrays(interop.view("a", a), interop.view("b", b), interop.view("out", out))
    made = prepare(arrays, result_shapes(arrays.a.shape, arrays.b.shape), device, choice)
    if shared := find_overlap(made, arrays):
        raise overlap_error(*shared)
    return Call(made, arrays, device)


def find_overlap(made: BoundProduct, arrays: Arrays) -> tuple[str, str] | None:
    """An array that is written and an operand that it shares elements with, by name; None if there are none.

    What an epilogue reads may be the very array that it keeps values in, or the result: each element is read before
    it is written, by one thread. The result may be what the whole expression is kept in, which holds the same.
    """
    views = list(arrays.named.items())
    written = {"c", *(f"epilogue.{name}" for name in arrays.fused.written)}
    for i, (target, result) in enumerate(views):
        if target not in written:
            continue
        at, (first, end) = result.ptr, made.extents[i]
        for j, (name, one) in enumerate(views):
            one_first, one_end = made.extents[j]
            apart = at + first >= one.ptr + one_end or one.ptr + one_first >= at + end
            if i == j or apart or (name in written and j < i):
                continue
            in_place = may_overlap_in_place(arrays.fused, target, name)
            if not (in_place and one[:5] == result[:5]) and share_elements(one, result):
                return argument_of(target), argument_of(name)
    return None


def may_overlap_in_place(fused: Fused, target: str, name: str) -> bool:
    """Whether an array may be the very one that is written: if it is read for the same element, or holds the same."""
    if target.removeprefix("epilogue.") in fused.summed or name in ("a", "b", "c"):
        return False
    array = name.removeprefix("epilogue.")
    return array not in fused.written or (target == "c" and bool(fused.kept) and array == fused.value_array)


def argument_of(operand: str) -> str:
    """The argument of a call that an operand comes from."""
    return "out" if operand == "c" else operand.removeprefix("epilogue.")


def overlap_error(written: str, operand: str) -> ArgumentError:
    """The error for an array that is written and shares elements with an operand."""
    return ArgumentError(written, f"must not overlap {operand}", fix="give it memory of its own")


def share_elements(one: View, other: View) -> bool:
    """Whether two arrays whose memory is interleaved share an element; yes if that takes too long to find out."""
    search: Any = np.shares_memory  # it takes any bound of its work, against what its types say
    try:
        return bool(search(numpy_of(one), numpy_of(other), max_work=_MOST_WORK))
    except np.exceptions.TooHardError:
        return True


def check_out(result: View, shapes: Shapes, dtype: str) -> None:
    """Refuse an ``out`` of another shape than the result, or that cannot hold products of ``dtype``.

    What a kernel cannot write goes by way of another array, in host memory; of groups nothing does.
    """
    if result.shape != shapes.result:
        raise ArgumentError("out", f"must have shape {shapes.result}", f"{result.shape} of {result.dtype}")
    saturates = result.dtype in EIGHT_BITS and dtype not in ("float64", *INTEGERS)
    rounds = (dtype, result.dtype) == ("bfloat16", "float16")  # as from float32, which NumPy allows
    if not (saturates or rounds) and not np.can_cast(
        interop.numpy_dtype(dtype), interop.numpy_dtype(result.dtype), "same_kind"
    ):
        rule = f"must have a type that {dtype} can be cast to without losing its kind"
        raise ArgumentError("out", rule, result.dtype, f"give one of {dtype}")
    written = (*COMPLEX,) if dtype in COMPLEX else _WRITTEN
    if (result.space != interop.HOST or shapes.groups) and result.dtype not in written:
        rule = f"must have a type that kernels write: {', '.join(written)}"
        raise ArgumentError("out", rule, result.dtype, f"give one of {dtype}")


def _check_plan(plan: Plan, operands: Operands) -> None:
    problem = operands.problem()
    for name in (field for field in Problem.__dataclass_fields__ if not field.endswith("_layout")):
        want, have = getattr(plan.problem, name), getattr(problem, name)
        if want != have:
            raise ArgumentError("plan", f"must be for {name} = {have!r}, as the operands are", want)


def itemsize(view: View) -> int:
    """Bytes of an element."""
    return int(interop.numpy_dtype(view.dtype).itemsize)


# ── what was made before ─────────────────────────────────────────────────────────────────────────────────

_Key = tuple[object, ...]
_remembered: OrderedDict[_Key, tuple[BoundProduct, object]] = OrderedDict()
_lock = threading.Lock()
_ALIGNMENTS = tuple(alignment_of(address) for address in range(ALIGNMENT_MOST))


def _key(arrays: Arrays, where: Device, choice: Choice) -> _Key:
    """What decides how to multiply: two products of one key share a bound.

    Of each array its shape, strides, type and space, which are the fields 1 to 4 of its view, and its alignment.
    """
    left, right, result, fused, offsets, _, tables = arrays
    return (
        left[1:5], _ALIGNMENTS[left.ptr % ALIGNMENT_MOST],
        right[1:5], _ALIGNMENTS[right.ptr % ALIGNMENT_MOST],
        result[1:5], _ALIGNMENTS[result.ptr % ALIGNMENT_MOST],
        where, choice[1:], id(choice.plan), left.parts is None, right.parts is None,
        None if fused.is_plain else _fused_key(fused),
        None if offsets is None else offsets[1:5],
        None if tables is None else tuple(tables),
    )  # fmt: skip


def _fused_key(fused: Fused) -> _Key:
    views = ((view[1:5], _ALIGNMENTS[view.ptr % ALIGNMENT_MOST]) for view in fused.views)
    return fused.expression, fused.names, *views, *(name for name, _ in fused.numbers)


def _recall(key: _Key) -> BoundProduct | None:
    try:
        found = _remembered.get(key)
    except TypeError:  # a setting that cannot be hashed is none that any kernel has
        return None
    return None if found is None else found[0]


def _remember(key: _Key, made: BoundProduct, plan: Plan | None) -> None:
    """NOTE: the plan is kept alive with the entry, since its id is part of the key."""
    with _lock:
        _remembered[key] = made, plan
        while len(_remembered) > _MOST:
            _remembered.popitem(last=False)


def forget() -> None:
    """Forget every bound: the next call of each kind chooses and binds anew."""
    with _lock:
        _remembered.clear()
