"""The front door as it is on a GPU, over torch's tensors and a GPU that only counts: one call, two ways."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.call_stub_cases import PretendGpu
from tilewise import interop
from tilewise.bound import BoundLaunch
from tilewise.call_stub import CountedLaunch
from tilewise.devices import gpu
from tilewise.grouped_matmul import grouped_matmul_in_python
from tilewise.interop import HOST
from tilewise.launch import Parameter
from tilewise.linear import linear_in_python
from tilewise.matmul import matmul_in_python
from tilewise.slots import MapSlot
from tilewise.warm_calls import PLAIN_CALL, Extras, WarmCalls

torch: Any = pytest.importorskip("torch")

GPU_0 = (2, 0)
LAYOUTS = ("plain", "plain", "transposed", "pitched", "stepped", "unaligned", "repeated")
empty = torch.empty
# Function → the Python path, and how many arguments come before an out by place.
DOORS: dict[str, tuple[Callable[..., Any], int]] = {
    "matmul": (matmul_in_python, 2),
    "linear": (linear_in_python, 3),
    "grouped_matmul": (grouped_matmul_in_python, 3),
}


class Door:
    """One function: its builtin and its Python path."""

    def __init__(self, name: str) -> None:
        self.in_python, self.before_out = DOORS[name]
        self.warm = WarmCalls(name, f"{name}($module, *args)\n--\n\n", self.in_python)
        self.call = self.function = self.warm.function
        self.has_workspace = False  # what was bound last

    def offer(self, made: Any, views: Any, has_out: bool, device: Any, extras: Extras = PLAIN_CALL) -> None:
        """Hand on what the slow path offers, with the tensors where the compiled call finds them."""
        self.has_workspace = made.bound.workspace_bytes > 0
        where_they_lie: Any = tuple(map(in_its_place, views))
        arrays = {name: in_its_place(one) for name, one in extras.arrays.items()}
        self.warm.offer(made, where_they_lie, has_out, device, replace(extras, arrays=arrays))


def in_its_place(view: Any) -> Any:
    return view._replace(space=HOST) if view.library.name == "torch" else view


class Front:
    """tw.matmul and the others as on a GPU, over tensors of the CPU that are said to lie on one which only counts."""

    def __init__(self, patch: pytest.MonkeyPatch, *, compiles: bool = True) -> None:
        self.gpu = PretendGpu()
        self.doors = {name: Door(name) for name in DOORS}
        self.warm, self.matmul = self.doors["matmul"].warm, self.doors["matmul"].call
        library: Any = interop.library_of("a", empty(1))
        view = library.view

        def on_gpu(argument: str, array: Any) -> Any:
            found = view(argument, array)
            return found._replace(space=GPU_0) if found.space == HOST else found

        patch.setattr(library, "view", on_gpu)
        patch.setattr(library, "stream", lambda like: 0)
        patch.setattr(gpu, "open", lambda ordinal=0: self.gpu)
        for name, door in self.doors.items():
            patch.setattr(sys.modules[f"tilewise.{name}"], "_warm", door)
        if not compiles:
            patch.setattr("tilewise.kernels.bind._bound", bind_uncompiled)

    def forget(self) -> None:
        for door in self.doors.values():
            door.warm.forget()

    def in_python(
        self, *args: Any, function: str = "matmul", **keywords: Any
    ) -> tuple[Any, Any, list[CountedLaunch]]:
        """Result, error and launches of a call without compiled code."""
        self.gpu.launched.clear()
        result, error = attempt(self.doors[function].in_python, *args, **keywords)
        return result, error, list(self.gpu.launched)

    def is_equal_and_fast(self, *args: Any, function: str = "matmul", **keywords: Any) -> bool:
        """Make one call both ways; whether compiled code served it. It has to be the same in all respects."""
        door = self.doors[function]
        theirs, error, expected = self.in_python(*args, function=function, **keywords)
        before = self.gpu.driver.launches()
        self.gpu.launched.clear()
        ours, our_error = attempt(door.call, *args, **keywords)
        count = self.gpu.driver.launches() - before
        assert our_error == error
        *_, out = (None, *args[door.before_out :]) if function != "linear" else (None,)
        out = keywords.get("out") if out is None else out
        assert is_alike(ours, theirs, out)
        if not count:
            assert without_params(self.gpu.launched) == without_params(expected)
            return False
        assert self.gpu.launched == [] and error is None
        given = (*args, *keywords.values())
        if torch.is_grad_enabled() and any(getattr(one, "requires_grad", False) for one in given):
            return True  # where gradients are recorded there is no call with ``out`` to compare launches with
        if out is None:
            keywords = {**keywords, "out": ours}
            _, _, expected = self.in_python(*args[: door.before_out], function=function, **keywords)
        launched = [self.gpu.driver.last(back) for back in reversed(range(count))]
        assert_same_launches(launched, expected, door.has_workspace)
        return True


def without_params(launches: list[CountedLaunch]) -> list[CountedLaunch]:
    return [one._replace(params=()) for one in launches]


def bind_uncompiled(step: Any, code: Any, arch: str, device: Any, after_copies: bool) -> BoundLaunch:
    """A launch whose kernel has no machine code: what is compared here are launches, not what they compute."""
    sizes = [128 if isinstance(slot, MapSlot) else len(slot.template) for slot in step.launch.args]
    parameters = tuple(Parameter(f"p{place}", "b8", size, 1) for place, size in enumerate(sizes))
    binary: Any = types.SimpleNamespace(
        key=(repr(code), step.entry), entries={step.entry: types.SimpleNamespace(parameters=parameters)}
    )
    return BoundLaunch(binary, step.entry, step.launch)


def attempt(function: Callable[..., Any], *args: Any, **keywords: Any) -> tuple[Any, Any]:
    try:
        return function(*args, **keywords), None
    except Exception as error:
        return None, (type(error), str(error))


def is_alike(ours: Any, theirs: Any, out: Any) -> bool:
    if theirs is None or out is not None:
        return ours is theirs
    names = ("dtype", "shape", "device", "requires_grad", "layout", "strides")
    same = all(getattr(ours, name, None) == getattr(theirs, name, None) for name in names)
    same_steps = not hasattr(ours, "stride") or ours.stride() == theirs.stride()
    return same and type(ours) is type(theirs) and same_steps


def assert_same_launches(ours: list[CountedLaunch], theirs: list[CountedLaunch], has_workspace: bool) -> None:
    """Equal, but that each way may have a workspace of its own: then words differ, all by the same amount."""
    assert without_params(ours) == without_params(theirs)
    distances = set()
    for mine, their in zip(ours, theirs, strict=True):
        assert [len(one) for one in mine.params] == [len(one) for one in their.params]
        for one, other in zip(mine.params, their.params, strict=True):
            if one != other:
                words = range(0, len(one), 8)
                pairs = [
                    tuple(int.from_bytes(x[at : at + 8], "little") for x in (one, other)) for at in words
                ]
                distances |= {mine_ - theirs_ for mine_, theirs_ in pairs if mine_ != theirs_}
    assert len(distances) <= has_workspace


def lay_out(shape: tuple[int, ...], dtype: Any, layout: str) -> Any:
    """A tensor that lies in memory in one of the ways that torch has."""
    if not shape:
        return empty(shape, dtype=dtype)
    if layout == "transposed" and len(shape) > 1:
        return empty(*shape[:-2], shape[-1], shape[-2], dtype=dtype).mT
    if layout == "pitched":
        return empty(*shape[:-1], shape[-1] + 3, dtype=dtype)[..., 1 : 1 + shape[-1]]
    if layout == "stepped":
        return empty(*shape[:-1], 3 * shape[-1], dtype=dtype)[..., ::3]
    if layout == "unaligned":
        count = torch.Size(shape).numel()
        return empty(count + 1, dtype=dtype)[1:].view(shape)
    if layout == "repeated":
        return empty(1, *shape[1:], dtype=dtype).expand(shape)
    return empty(shape, dtype=dtype)


def share(tensor: Any, shape: tuple[int, ...], start: int) -> Any:
    """A dense tensor that begins so many elements into the memory of another one."""
    flat = empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    count = torch.Size(shape).numel()
    return flat[start : start + count].view(shape) if start + count <= flat.numel() else tensor
