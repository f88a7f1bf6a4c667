"""Choose → bind → call: what multiplies operands that lie so, made once and started as often as wanted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise import interop
from tilewise.bound import Bound
from tilewise.describe import Shapes, describe, result_shapes
from tilewise.devices import Device
from tilewise.devices.emulated import EmulatedArray
from tilewise.devices.gpu import GpuArray
from tilewise.devices.strides import extent
from tilewise.errors import ArgumentError
from tilewise.interop import View
from tilewise.kernels import KERNELS
from tilewise.kernels.bind import bind
from tilewise.kernels.spec import KernelSpec
from tilewise.operands import ALIGNMENT_MOST, Operands, alignment_of
from tilewise.plan import Plan
from tilewise.planner import Candidate, choose, target_of_device

__all__ = [
    "Call",
    "Choice",
    "Made",
    "check_out",
    "find_made",
    "find_overlap",
    "forget",
    "itemsize",
    "numpy_of",
    "overlap_error",
    "prepare",
    "ready",
    "start",
]

_MOST = 512  # bounds that are remembered
_WRITTEN = ("float16", "bfloat16", "float32", "float64")
_MOST_WORK = 10_000  # steps of NumPy's search for an element that two arrays share


class Choice(NamedTuple):
    """What is fixed of how to multiply; all of it open by default."""

    plan: Plan | None = None
    specs: tuple[KernelSpec, ...] | None = None
    settings: tuple[tuple[str, object], ...] = ()
    copy: bool | None = None

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
        return operand_type


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """What was chosen and bound for a product."""

    operands: Operands
    candidate: Candidate
    plan: Plan
    bound: Bound
    extents: tuple[tuple[int, int], ...]
    """Of a, b and out: the first byte that is touched and the one after the last, from the first element on."""


def prepare(left: View, right: View, result: View, shapes: Shapes, where: Device, choice: Choice) -> Made:
    """What multiplies operands that lie like these on a device: remembered, or chosen and bound now."""
    key = _key(left, right, result, where, choice)
    made = _recall(key)
    if made is None:
        made = _make((left, right, result), shapes, where, choice)
        _remember(key, made, choice.plan)
    return made


def find_made(left: View, right: View, result: View, where: Device, choice: Choice) -> Made | None:
    """What :func:`prepare` remembers for operands like these: they passed every check but that of overlaps."""
    return _recall(_key(left, right, result, where, choice))


def _make(views: tuple[View, View, View], shapes: Shapes, where: Device, choice: Choice) -> Made:
    operands = describe(*views, shapes)
    target = target_of_device(where)
    given = dict(choice.settings)
    if choice.plan is not None:
        _check_plan(choice.plan, operands)
        given = dict(KERNELS[choice.plan.kernel].settings_of(choice.plan))
    candidate = choose(operands, target, specs=choice.kernels, given=given, copy=choice.copy)
    plan = candidate.plan(operands, target)
    bound = bind(candidate.spec, candidate.settings, operands, candidate.operands, where)
    return Made(operands, candidate, plan, bound, tuple(_extent(view) for view in views))


def _extent(view: View) -> tuple[int, int]:
    item = itemsize(view)
    return extent(view.shape, tuple(step * item for step in view.strides), item)


def start(
    made: Made, left: View, right: View, result: View, where: Device, streams: tuple[int | None, ...]
) -> None:
    """Fill in the addresses and launch, on the first of the streams and in order with the others.

    NOTE: ``result`` must share no element with an operand: see :func:`find_overlap`.
    """
    bound = made.bound
    if not bound.launches:
        return
    addresses = {"a": left.ptr, "b": right.ptr, "c": result.ptr}
    workspace = None
    if bound.workspace_bytes:
        workspace = interop.view("workspace", result.library.empty((bound.workspace_bytes,), "uint8", result))
        addresses["workspace"] = workspace.ptr
    if where.runs_on_gpu:
        used = (left, right, result) if workspace is None else (left, right, result, workspace)
        _start_on_gpu(bound, addresses, used, where, streams)
        return
    held = [
        _adopt(one, *reach, where) for one, reach in zip((left, right, result), made.extents, strict=True)
    ]
    if workspace is not None:
        held.append(_adopt(workspace, 0, bound.workspace_bytes, where))
    bound(addresses)
    del held  # up to here launches may touch their memory


def _start_on_gpu(
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


def _adopt(view: View, first: int, end: int, where: Any) -> object:
    """What lets the emulator's launches touch a host array for as long as it lives."""
    if isinstance(view.owner, EmulatedArray):
        return view.owner
    name = f"the {view.dtype} array of shape {view.shape}"
    return where.adopt(view.ptr + first, end - first, name, view.owner)


class Call:
    """A product of arrays that stay the same, ready to be multiplied again and again."""

    __slots__ = ("_held", "_start", "made")

    def __init__(self, made: Made, views: tuple[View, View, View], where: Device) -> None:
        self.made, bound = made, made.bound
        addresses = {"a": views[0].ptr, "b": views[1].ptr, "c": views[2].ptr}
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
    left, right, result = (interop.view(name, one) for name, one in (("a", a), ("b", b), ("out", out)))
    made = prepare(left, right, result, result_shapes(left.shape, right.shape), device, choice)
    if shared := find_overlap(made, left, right, result):
        raise overlap_error(shared)
    return Call(made, (left, right, result), device)


def find_overlap(made: Made, left: View, right: View, result: View) -> str:
    """The name of an operand that ``result`` shares elements with; empty if there is none."""
    at, (first, end) = result.ptr, made.extents[2]
    for name, one, (one_first, one_end) in (("a", left, made.extents[0]), ("b", right, made.extents[1])):
        if at + first < one.ptr + one_end and one.ptr + one_first < at + end and _share_elements(one, result):
            return name
    return ""


def overlap_error(operand: str) -> ArgumentError:
    """What is wrong where ``out`` shares elements with an operand."""
    return ArgumentError("out", f"must not overlap {operand}", fix="give it memory of its own")


def _share_elements(one: View, other: View) -> bool:
    """Whether two arrays whose memory is interleaved share any of it; so taken where that is hard to find out."""
    search: Any = np.shares_memory  # it takes any bound of its work, against what its types say
    try:
        return bool(search(numpy_of(one), numpy_of(other), max_work=_MOST_WORK))
    except np.exceptions.TooHardError:
        return True


def numpy_of(view: View) -> npt.NDArray[Any]:
    """An array of any library as a NumPy array over the same memory. NOTE: on a GPU, to look at its strides alone."""
    dtype = interop.numpy_dtype(view.dtype)
    if 0 in view.shape:
        return np.empty(view.shape, dtype)
    described = {
        "version": 3,
        "shape": view.shape,
        "strides": tuple(step * dtype.itemsize for step in view.strides),
        "typestr": f"|V{dtype.itemsize}",
        "data": (view.ptr, view.read_only),
    }
    return np.asarray(_Holder(described, view.owner)).view(dtype)


class _Holder:
    """Memory in the form that NumPy takes; NumPy keeps this, and this keeps the owner."""

    def __init__(self, described: dict[str, Any], owner: object) -> None:
        self.__array_interface__, self._owner = described, owner


def check_out(result: View, shapes: Shapes, dtype: str) -> None:
    """Refuse an ``out`` of another shape than the result, or that cannot hold products of ``dtype``."""
    if result.shape != shapes.result:
        raise ArgumentError("out", f"must have shape {shapes.result}", f"{result.shape} of {result.dtype}")
    if not np.can_cast(interop.numpy_dtype(dtype), interop.numpy_dtype(result.dtype), "same_kind"):
        rule = f"must have a type that {dtype} can be cast to without losing its kind"
        raise ArgumentError("out", rule, result.dtype, f"give one of {dtype}")
    if result.space != interop.HOST and result.dtype not in _WRITTEN:
        rule = f"must have a type that kernels write: {', '.join(_WRITTEN)}"
        raise ArgumentError("out", rule, result.dtype, f"give one of {dtype}")


def _check_plan(plan: Plan, operands: Operands) -> None:
    problem = operands.problem()
    if plan.problem.epilogue != problem.epilogue:
        rule = "must be of a plain product: no kernel does anything to the sums yet"
        raise ArgumentError("plan", rule, plan.problem.epilogue, "leave the epilogue out")
    for name in ("m", "n", "k", "batch", "a", "b", "c", "accumulate"):
        want, have = getattr(plan.problem, name), getattr(problem, name)
        if want != have:
            raise ArgumentError("plan", f"must be for {name} = {have!r}, as the operands are", want)


def itemsize(view: View) -> int:
    """Bytes of an element."""
    return int(interop.numpy_dtype(view.dtype).itemsize)


# ── what was made before ─────────────────────────────────────────────────────────────────────────────────

_Key = tuple[object, ...]
_remembered: OrderedDict[_Key, tuple[Made, object]] = OrderedDict()
_lock = threading.Lock()
_ALIGNMENTS = tuple(alignment_of(address) for address in range(ALIGNMENT_MOST))


def _key(left: View, right: View, result: View, where: Device, choice: Choice) -> _Key:
    """What decides how to multiply: two products of one key share a bound.

    Of each array its shape, strides, type and space, which are the fields 1 to 4 of its view, and its alignment.
    """
    return (
        left[1:5], _ALIGNMENTS[left.ptr % ALIGNMENT_MOST],
        right[1:5], _ALIGNMENTS[right.ptr % ALIGNMENT_MOST],
        result[1:5], _ALIGNMENTS[result.ptr % ALIGNMENT_MOST],
        where, choice[1:], id(choice.plan),
    )  # fmt: skip


def _recall(key: _Key) -> Made | None:
    try:
        found = _remembered.get(key)
    except TypeError:  # a setting that cannot be hashed is none that any kernel has
        return None
    return None if found is None else found[0]


def _remember(key: _Key, made: Made, plan: Plan | None) -> None:
    """NOTE: the plan is kept alive with the entry, since its id is part of the key."""
    with _lock:
        _remembered[key] = made, plan
        while len(_remembered) > _MOST:
            _remembered.popitem(last=False)


def forget() -> None:
    """Forget every bound: the next call of each kind chooses and binds anew."""
    with _lock:
        _remembered.clear()
