"""Matrices of one shape that lie anywhere: what is the same of them all, where each lies, and what overlaps."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise import interop
from tilewise.calls import (
    argument_of,
    extent_of,
    itemsize,
    may_overlap_in_place,
    overlap_error,
    share_elements,
)
from tilewise.epilogue import Fused
from tilewise.errors import ArgumentError
from tilewise.interop import View
from tilewise.operands import alignment_of
from tilewise.slots import table_of

__all__ = ["Matrices", "check_overlaps", "matrices_of", "view_matrices"]


@dataclass(frozen=True, slots=True)
class Matrices:
    """The matrices that an argument gives: ``count`` of them, or one for all products (None).

    ``first`` is the view of the first one; of others there are views only if they differ in more than their address
    (``each``), since making them takes most of a call's time. ``are_alike``: they have the same strides.
    """

    argument: str
    first: View
    addresses: Sequence[int]
    arrays: Sequence[Any]  # that the matrices are, or are parts of
    count: int | None
    libraries: Mapping[str, View]
    """The first matrix of each library in each space, by how a message names it."""
    each: tuple[View, ...] | None = None
    are_alike: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """That of each matrix."""
        return self.first.shape

    @property
    def dtype(self) -> str:
        """The element type of all."""
        return self.first.dtype

    @property
    def views(self) -> tuple[View, ...]:
        """The view of every matrix."""
        if self.each is not None:
            return self.each
        first = self.first
        places = zip(self.addresses, self.arrays, strict=True)
        return tuple(first._replace(ptr=address, owner=array) for address, array in places)

    def part(self, some: slice) -> Matrices:
        """Those of some of the products."""
        if self.count is None:
            return self
        each = None if self.each is None else self.each[some]
        addresses, arrays = self.addresses[some], self.arrays[some]
        first = self.first._replace(ptr=addresses[0], owner=arrays[0])
        return replace(self, first=first, addresses=addresses, arrays=arrays, count=len(addresses), each=each)

    def check_alike(self) -> None:
        """Refuse matrices of different strides, which no launch takes at once."""
        if self.are_alike:
            return
        i, other = next((i, one) for i, one in enumerate(self.views) if _steps(one) != _steps(self.first))
        rule = f"must have the strides of {self.argument}[0], {self.first.strides}"
        fix = "copy it first, or multiply those of other strides in another call"
        raise ArgumentError(f"{self.argument}[{i}]", rule, f"strides {other.strides}", fix)

    def step(self, count: int) -> int | None:
        """Elements from each matrix to the next; None if they do not lie evenly."""
        if self.count is None or count < 2 or 0 in self.shape:
            return 0
        begin, second = self.addresses[:2]
        apart, odd = divmod(second - begin, itemsize(self.first))
        if odd:
            return None
        if second == begin:
            return 0 if len(set(self.addresses)) == 1 else None
        even = range(begin, begin + count * (second - begin), second - begin)
        return apart if self.addresses == even or list(even) == self.addresses else None

    def as_stack(self, count: int, step: int) -> View:
        """The matrices as a stack, so many elements from each to the next."""
        return self.first._replace(shape=(count, *self.shape), strides=(step, *self.first.strides))

    def as_scattered(self, count: int) -> tuple[View, int]:
        """The same where they lie anywhere, and the table of where they do.

        The stack begins with the one that lies first; its step is what they are all a multiple of apart.
        """
        addresses = self.addresses if self.count is not None else list(self.addresses) * count
        if 0 in self.shape:
            addresses = [0] * count
        unit, base, item = alignment_of(*addresses), min(addresses), itemsize(self.first)
        if unit < item:
            rule = f"must lie at multiples of its {item}-byte elements"
            raise ArgumentError(self.argument, rule, f"of {unit} bytes", "copy it first")
        stack = self.as_stack(count, unit // item)._replace(ptr=base)
        return stack, table_of([(address - base) // unit for address in addresses])


def view_matrices(argument: str, value: Any, *, output: bool = False, rows: bool = False) -> Matrices | None:
    """The matrices that a list of arrays holds, or a stack; or the one of an array with two dimensions.

    None of an empty list. With ``rows`` an array of a list that has one dimension is a row.
    """
    if isinstance(value, list | tuple):
        return _of_list(argument, value, output, rows) if value else None
    array = value if output else interop.as_array(argument, value)
    whole = interop.view_output(argument, array) if output else interop.view(argument, array)
    if len(whole.shape) == 3:
        return matrices_of(argument, whole) if whole.shape[0] else None
    if len(whole.shape) != 2:
        rule = "must be a list of matrices, a matrix or a stack of matrices"
        raise ArgumentError(argument, rule, f"shape {whole.shape}")
    return Matrices(argument, whole, [whole.ptr], [whole.owner], None, {argument: whole})


def matrices_of(argument: str, stack: View) -> Matrices:
    """The matrices of a stack."""
    (count, *shape), (step, *strides) = stack.shape, stack.strides
    apart = step * itemsize(stack)
    ends = range(stack.ptr, stack.ptr + count * apart, apart) if apart else [stack.ptr] * count
    first = stack._replace(shape=tuple(shape), strides=tuple(strides))
    return Matrices(argument, first, ends, [stack.owner] * count, count, {argument: stack})


def _of_list(argument: str, arrays: Sequence[Any], output: bool, rows: bool) -> Matrices:
    """Matrices of one shape and type, checked."""
    name = f"{argument}[0]"
    first = _view(name, arrays[0], output, rows)
    if len(first.shape) != 2:
        raise ArgumentError(name, "must have two dimensions", f"shape {first.shape}")
    addresses = first.library.addresses_like(first, arrays)
    if addresses is not None:
        return Matrices(argument, first, addresses, arrays, len(arrays), {name: first})
    views = tuple(_view(f"{argument}[{i}]", array, output, rows) for i, array in enumerate(arrays))
    libraries = {name: first}
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
    alike = all(one.strides == first.strides or _steps(one) == _steps(first) for one in views)
    addresses = [one.ptr for one in views]
    return Matrices(argument, first, addresses, arrays, len(arrays), libraries, views, alike)


def _view(argument: str, array: Any, output: bool, rows: bool) -> View:
    if output:
        found = interop.view_output(argument, array)
    else:
        found = interop.view(argument, interop.as_array(argument, array))
    if rows and len(found.shape) == 1:
        return found._replace(shape=(1, *found.shape), strides=(found.shape[0], *found.strides))
    return found


def _steps(view: View) -> tuple[int, ...]:
    """The strides that matter: those of axes with more than one element, where there are elements at all."""
    if 0 in view.shape:
        return ()
    return tuple(step if size > 1 else 0 for size, step in zip(view.shape, view.strides, strict=True))


# ── what overlaps ────────────────────────────────────────────────────────────────────────────────────────


class _Intervals:
    """The memory of the matrices of one operand: from where to where each reaches, in order of their addresses."""

    def __init__(self, matrices: Matrices) -> None:
        self._matrices = matrices
        bounds = [extent_of(one) for one in matrices.each or (matrices.first,)]
        if matrices.are_alike:
            del bounds[1:]
        reaches = np.array(matrices.addresses, np.int64)[:, None] + np.array(bounds, np.int64)
        self.order: npt.NDArray[np.int64] = np.argsort(reaches[:, 0], kind="stable")
        self.begins: npt.NDArray[np.int64] = reaches[self.order, 0]
        self.ends: npt.NDArray[np.int64] = reaches[self.order, 1]
        self.reached = np.maximum.accumulate(self.ends)  # by this one and those before it

    @functools.cached_property
    def views(self) -> list[View]:
        """Their views, in that order."""
        views = self._matrices.views
        return [views[i] for i in self.order]

    def pairs(self, other: _Intervals) -> Iterator[tuple[View, View]]:
        """One of these and one of the others, of all whose bounds overlap."""
        lows = np.searchsorted(self.reached, other.begins, "right")
        highs = np.searchsorted(self.begins, other.ends, "left")
        for j in np.flatnonzero(lows < highs):
            for i in range(lows[j], highs[j]):
                if self.ends[i] > other.begins[j]:
                    yield self.views[i], other.views[j]

    def find_own_overlap(self) -> tuple[int, int] | None:
        """The numbers of two of these that share elements."""
        highs = np.searchsorted(self.begins, self.ends, "left")
        shared: dict[tuple[object, ...], bool] = {}  # by how they lie, and how far apart
        for i in np.flatnonzero(highs > np.arange(1, len(highs) + 1)):
            for j in range(i + 1, highs[i]):
                one, other = self.views[i], self.views[j]
                key = (one.strides, other.strides, other.ptr - one.ptr)
                if key not in shared:
                    shared[key] = share_elements(one, other)
                if shared[key]:
                    numbers = int(self.order[i]), int(self.order[j])
                    return min(numbers), max(numbers)
        return None


def check_overlaps(
    left: Matrices, right: Matrices, target: Matrices, fused: Fused, extras: Mapping[str, Matrices]
) -> None:
    """Refuse results that share elements with one another or with an operand, as :func:`calls.find_overlap` does.

    ``extras`` are arrays of the epilogue that are lists.
    """
    groups = {"a": left, "b": right, "c": target}
    for name, view in fused.arrays.items():
        whole = Matrices(name, view, [view.ptr], [view.owner], None, {})
        groups[f"epilogue.{name}"] = extras.get(name) or (
            matrices_of(name, view) if len(view.shape) == 3 else whole
        )
    # What has no elements overlaps nothing.
    found = {name: _Intervals(one) for name, one in groups.items() if one.addresses and 0 not in one.shape}
    written = [name for name in ("c", *(f"epilogue.{name}" for name in fused.written)) if name in found]
    for name in written:
        if pair := found[name].find_own_overlap():
            argument = argument_of(name)
            raise overlap_error(f"{argument}[{pair[1]}]", f"{argument}[{pair[0]}]")
    for i, name in enumerate(written):
        for other in found:
            if other == name or other in written[:i]:
                continue
            in_place = may_overlap_in_place(fused, name, other)
            for one, two in found[name].pairs(found[other]):
                if not (in_place and one[:5] == two[:5]) and share_elements(one, two):
                    raise overlap_error(argument_of(name), argument_of(other))
