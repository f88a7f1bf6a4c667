"""A view of an array of any library, and the operations that tilewise needs of each library."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from tilewise.devices.strides import extent
from tilewise.errors import ArgumentError

__all__ = ["CUDA", "HOST", "Library", "View", "describe_space", "may_overlap", "strides_in_elements"]

CUDA = 2  # DLPack's device type of a GPU's memory
HOST = (1, 0)  # DLPack's device of host memory
_ALIGNMENT_MOST = 256


class View(NamedTuple):
    """An array of any library, as a launch needs it: no copy, and whatever keeps the memory alive."""

    ptr: int  # address of the first element; anything where there are no elements
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements; may be 0 or negative
    dtype: str  # a name of tilewise.problem.ELEMENT_BYTES, else NumPy's name
    space: tuple[int, int]  # DLPack's device: (1, 0) is host memory, (2, n) is GPU n
    library: Library  # whose array it is
    owner: Any  # keeps the memory alive
    read_only: bool = False
    parts: View | None = None  # what was made of it before, for products that take that: see split_float32

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def alignment(self) -> int:
        """The largest power of two, up to 256, that divides the address; 256 where nothing is read."""
        if 0 in self.shape:
            return _ALIGNMENT_MOST
        bits = self.ptr | _ALIGNMENT_MOST
        return bits & -bits


class Library(abc.ABC):
    """The operations that tilewise needs of an array library. One object for each library, made when it is
    first met."""

    name: ClassVar[str]
    preference: ClassVar[int]  # where libraries are mixed, the highest gives the result
    read_only_fix: ClassVar[str] = "copy it first"

    @abc.abstractmethod
    def view(self, argument: str, array: Any) -> View:
        """The view of one of this library's arrays; an ArgumentError that names ``argument`` if it has none."""

    @abc.abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        """Memory for a result, where ``like`` lies and on its stream; ``like`` is a view of this library."""

    def finish(self, result: Any, like: View) -> Any:
        """The caller's kind of array, from what :meth:`empty` gave once it is written."""
        return result

    def addresses_like(self, like: View, arrays: Sequence[Any]) -> list[int] | None:
        """Where each of some arrays begins, if nothing but that tells them from the first of them, of which ``like`` is
        the view. None if something does, or a view of each is needed to find out."""
        return None

    def split(self, stack: Any) -> list[Any]:
        """What lies along the first axis of an array, as arrays of this library."""
        return [stack[i] for i in range(stack.shape[0])]

    def stream(self, like: View) -> int | None:
        """The CUstream that this library's work on ``like`` goes to; None for tilewise's current stream."""
        return None

    def exchange_api(self) -> Any:
        """The capsule of DLPack's C exchange functions, which compiled code calls; None if there is none."""
        return None

    def exchange_types(self) -> tuple[type, ...]:
        """The exact types that :meth:`exchange_api` takes."""
        return ()

    @property
    def tracks_gradients(self) -> bool:
        """Whether arrays may carry a gradient, which has to be refused."""
        return False

    def gradients_on(self) -> Callable[[], bool] | None:
        """A function that returns whether gradients are recorded now; None where they never are."""
        return None

    def ordinary_state(self) -> tuple[dict[str, Any], str, object] | None:
        """A variable, by its dictionary and name, and its value while no array may carry what is not in its memory.

        None where there is no such thing. Compiled code compares it at every call.
        """
        return None

    def convert(self, argument: str, dtype: str) -> str:
        """The Python expression that converts ``argument`` to a type; for error messages."""
        return f"{argument}.astype({dtype!r})"

    @abc.abstractmethod
    def move(self, argument: str, space: tuple[int, int]) -> str:
        """The Python expression that copies ``argument`` to ``space``; for error messages."""


def describe_space(space: tuple[int, int]) -> str:
    """Where an array lies, for error messages."""
    return "in host memory" if space == HOST else f"on gpu:{space[1]}"


def may_overlap(x: View, y: View, x_bytes: int, y_bytes: int) -> bool:
    """Whether two arrays may share memory, with ``x_bytes`` and ``y_bytes`` an element. Compares bounds alone."""
    if x.space != y.space or 0 in x.shape or 0 in y.shape:
        return False
    x_first, x_end = extent(x.shape, tuple(step * x_bytes for step in x.strides), x_bytes)
    y_first, y_end = extent(y.shape, tuple(step * y_bytes for step in y.strides), y_bytes)
    return x.ptr + x_first < y.ptr + y_end and y.ptr + y_first < x.ptr + x_end


def strides_in_elements(argument: str, strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes as strides in elements, which a kernel counts in."""
    if any(step % itemsize for step in strides):
        rule = f"must have strides that are multiples of its {itemsize}-byte elements"
        raise ArgumentError(argument, rule, strides, f"copy it first: numpy.array({argument})")
    return tuple(step // itemsize for step in strides)
