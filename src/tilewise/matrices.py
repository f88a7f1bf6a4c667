"""Matrices of one shape that lie anywhere: what is the same of them all, where each lies, and what overlaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise import interop
from tilewise.calls import argument_of, extent_of, may_overlap_in_place, overlap_error, share_elements
from tilewise.epilogue import Fused
from tilewise.errors import ArgumentError
from tilewise.interop import View
from tilewise.operands import alignment_of
from tilewise.slots import table_of

__all__ = ["Matrices", "check_overlaps", "view_matrices"]


@dataclass(frozen=True, slots=True)
class Matrices:
    """The matrices that an argument gives: ``count`` of them, or one for all products (None).

    ``are_alike``: they have the same strides.
    """

    argument: str
    views: tuple[View, ...]
    count: int | None
    are_alike: bool
    libraries: Mapping[str, View]
    """The first matrix of each library in each space, by how a message names it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """That of each matrix."""
        return self.views[0].shape

    @property
    def dtype(self) -> str:
        """The element type of all."""
        return self.views[0].dtype

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return int(interop.numpy_dtype(self.dtype).itemsize)

    def part(self, some: slice) -> Matrices:
        """Those of some of the products."""
        if self.count is None:
            return self
        return replace(self, views=self.views[some], count=len(self.views[some]))

    def check_alike(self) -> None:
        """Refuse matrices of different strides, which no launch takes at once."""
        if self.are_alike:
            return
        first, *others = self.views
        i, other = next((i, one) for i, one in enumerate(others, 1) if _steps(one) != _steps(first))
        rule = f"must have the strides of {self.argument}[0], {first.strides}"
        fix = "copy it first, or multiply those of other strides in another call"
        raise ArgumentError(f"{self.argument}[{i}]", rule, f"strides {other.strides}", fix)

    def addresses(self, count: int) -> list[int]:
        """Where the matrix of each product begins."""
        return [view.ptr for view in self.views] if self.count is not None else [self.views[0].ptr] * count

    def step(self, count: int) -> int | None:
        """Elements from each matrix to the next; None if they do not lie evenly."""
        if self.count is None or count < 2 or 0 in self.shape:
            return 0
        first, second, *rest = self.addresses(count)
        apart, odd = divmod(second - first, self.item)
        at = second
        for address in rest:
            if address - at != second - first:
                return None
            at = address
        return None if odd else apart

    def as_stack(self, count: int, step: int) -> View:
        """The matrices as a stack, so many elements from each to the next."""
        first = self.views[0]
        return first._replace(shape=(count, *first.shape), strides=(step, *first.strides))

    def as_scattered(self, count: int) -> tuple[View, int]:
        """The same where they lie anywhere, and the table of where they do.

        The stack begins with the one that lies first; its step is what they are all a multiple of apart.
        """
        addresses = self.addresses(count)
        if 0 in self.shape:
            addresses = [0] * count
        unit, base = alignment_of(*addresses), min(addresses)
        if unit < self.item:
            rule = f"must lie at multiples of its {self.item}-byte elements"
            raise ArgumentError(self.argument, rule, f"of {unit} bytes", "copy it first")
        stack = self.as_stack(count, unit // self.item)._replace(ptr=base)
        return stack, table_of([(address - base) // unit for address in addresses])


def view_matrices(argument: str, value: Any, *, output: bool = False) -> Matrices:
    """The matrices that a list of arrays holds, or a stack; or the one of an array with two dimensions."""
    if isinstance(value, list | tuple):
        return _of_list(argument, _view_each(argument, value, output))
    array = value if output else interop.as_array(argument, value)
    whole = interop.view_output(argument, array) if output else interop.view(argument, array)
    if len(whole.shape) == 3:
        views = tuple(split(whole))
        return Matrices(argument, views, len(views), True, {argument: whole})
    if len(whole.shape) != 2:
        rule = "must be a list of matrices, a matrix or a stack of matrices"
        raise ArgumentError(argument, rule, f"shape {whole.shape}")
    return Matrices(argument, (whole,), None, True, {argument: whole})


def split(stack: View) -> Iterator[View]:
    """The matrices of a stack."""
    (count, *shape), (step, *strides) = stack.shape, stack.strides
    apart = step * int(interop.numpy_dtype(stack.dtype).itemsize)
    for i in range(count):
        yield stack._replace(ptr=stack.ptr + i * apart, shape=tuple(shape), strides=tuple(strides))


def _view_each(argument: str, arrays: Sequence[Any], output: bool) -> tuple[View, ...]:
    """The views of arrays. NOTE: each is named only where it is refused: naming all takes as long as viewing them."""
    try:
        return tuple(_view(argument, array, output) for array in arrays)
    except ArgumentError:
        return tuple(_view(f"{argument}[{i}]", array, output) for i, array in enumerate(arrays))


def _view(argument: str, array: Any, output: bool) -> View:
    if output:
        return interop.view_output(argument, array)
    return interop.view(argument, interop.as_array(argument, array))


def _of_list(argument: str, views: tuple[View, ...]) -> Matrices:
    """Matrices of one shape and type, checked."""
    if not views:
        return Matrices(argument, (), 0, True, {})
    first = views[0]
    if len(first.shape) != 2:
        raise ArgumentError(f"{argument}[0]", "must have two dimensions", f"shape {first.shape}")
    libraries = {f"{argument}[0]": first}
    same = first[1:6]
    if all(one[1:6] == same for one in views):  # shape, strides, type, space, library
        return Matrices(argument, views, len(views), True, libraries)
    met = {(first.library.name, first.space)}
    for i, one in enumerate(views):
        if one.shape != first.shape:
            rule = f"must have the shape of {argument}[0], {first.shape}"
            raise ArgumentError(f"{argument}[{i}]", rule, one.shape, "multiply it in another call")
        if one.dtype != first.dtype:
            rule = f"must have the element type of {argument}[0], {first.dtype}"
            raise ArgumentError(f"{argument}[{i}]", rule, one.dtype, "convert it first")
        if (one.library.name, one.space) not in met:
            met.add((one.library.name, one.space))
            libraries[f"{argument}[{i}]"] = one
    alike = all(_steps(one) == _steps(first) for one in views)
    return Matrices(argument, views, len(views), alike, libraries)


def _steps(view: View) -> tuple[int, ...]:
    """The strides that matter: those of axes with more than one element, where there are elements at all."""
    if 0 in view.shape:
        return ()
    return tuple(step if size > 1 else 0 for size, step in zip(view.shape, view.strides, strict=True))


# ── what overlaps ────────────────────────────────────────────────────────────────────────────────────────


class _Intervals:
    """The memory of some arrays of one operand: from where to where each reaches, in order of their addresses."""

    def __init__(self, views: Sequence[View]) -> None:
        alike = all(one[1:4] == views[0][1:4] for one in views)
        bounds = [extent_of(one) for one in (views[:1] if alike else views)]
        reaches = np.array([one.ptr for one in views], np.int64)[:, None] + np.array(bounds, np.int64)
        order = np.argsort(reaches[:, 0], kind="stable")
        self.views = [views[i] for i in order]
        self.begins: npt.NDArray[np.int64] = reaches[order, 0]
        self.ends: npt.NDArray[np.int64] = reaches[order, 1]
        self.reached = np.maximum.accumulate(self.ends)  # by this one and those before it

    def meets(self, other: _Intervals) -> bool:
        """Whether the memory from the first to the last overlaps at all."""
        return bool(self.begins[0] < other.reached[-1] and other.begins[0] < self.reached[-1])

    def pairs(self, other: _Intervals) -> Iterator[tuple[View, View]]:
        """One of these and one of the others, of all whose bounds overlap."""
        if not self.meets(other):
            return
        lows = np.searchsorted(self.reached, other.begins, "right")
        highs = np.searchsorted(self.begins, other.ends, "left")
        for j in np.flatnonzero(lows < highs):
            for i in range(lows[j], highs[j]):
                if self.ends[i] > other.begins[j]:
                    yield self.views[i], other.views[j]

    def find_own_overlap(self) -> tuple[View, View] | None:
        """Two of these that share elements. They have the same shape and strides."""
        highs = np.searchsorted(self.begins, self.ends, "left")
        answers: dict[int, bool] = {}  # by how far they lie apart
        for i in np.flatnonzero(highs > np.arange(1, len(highs) + 1)):
            for j in range(i + 1, highs[i]):
                apart = int(self.views[j].ptr - self.views[i].ptr)
                if apart not in answers:
                    answers[apart] = share_elements(self.views[i], self.views[j])
                if answers[apart]:
                    return self.views[i], self.views[j]
        return None


def check_overlaps(left: Matrices, right: Matrices, target: Matrices, fused: Fused) -> None:
    """Refuse results that share elements with one another or with an operand, as :func:`calls.find_overlap` does."""
    groups: dict[str, Sequence[View]] = {"a": left.views, "b": right.views, "c": target.views}
    for name, view in fused.arrays.items():
        groups[f"epilogue.{name}"] = tuple(split(view)) if len(view.shape) == 3 else (view,)
    found = {
        name: _Intervals(views)
        for name, views in groups.items()
        if views and 0 not in views[0].shape  # what has no elements overlaps nothing
    }
    if target.count is not None and "c" in found and (pair := found["c"].find_own_overlap()):
        i, j = (next(i for i, one in enumerate(target.views) if one is found_one) for found_one in pair)
        raise overlap_error(f"out[{max(i, j)}]", f"out[{min(i, j)}]")
    written = [name for name in ("c", *(f"epilogue.{name}" for name in fused.written)) if name in found]
    for i, name in enumerate(written):
        for other in found:
            if other == name or other in written[:i]:
                continue
            in_place = may_overlap_in_place(fused, name, other)
            for one, two in found[name].pairs(found[other]):
                if not (in_place and one[:5] == two[:5]) and share_elements(one, two):
                    raise overlap_error(argument_of(name), argument_of(other))
