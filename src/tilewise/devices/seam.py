"""The seam: what a device is, whichever side of it stands behind.

A device holds arrays and runs launches. There are two sides, a GPU and the emulator; everything above
speaks to these two protocols alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tilewise.launch import Launch, LaunchLimits
from tilewise.toolchain.binary import Binary

if TYPE_CHECKING:
    from tilewise.devices.tensor_map import Description

__all__ = ["Array", "Device"]


@runtime_checkable
class Array(Protocol):
    """An array in a device's memory."""

    @property
    def ptr(self) -> int:
        """The address of the first element on the device."""
        ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def device(self) -> Device: ...

    def numpy(self) -> npt.NDArray[Any]:
        """A copy on the host; waits for the work that was given to the device before."""
        ...

    def fill(self, value: npt.NDArray[Any]) -> None:
        """Overwrite the elements with those of a host array of the same shape and type."""
        ...


@runtime_checkable
class Device(Protocol):
    """Holds arrays and runs launches."""

    @property
    def name(self) -> str:
        """How a user asks for it: ``"gpu:0"`` or ``"emulator"``."""
        ...

    @property
    def title(self) -> str:
        """What a person calls it: the GPU's marketing name, or the emulator and its CPU."""
        ...

    @property
    def arch(self) -> str:
        """The arch that kernels are compiled for by default."""
        ...

    @property
    def runs_on_gpu(self) -> bool:
        """Whether launches run on a GPU: which kernels and which sizes are worth while follows from it."""
        ...

    @property
    def limits(self) -> LaunchLimits: ...

    @property
    def multiprocessors(self) -> int: ...

    def shares_memory_with(self, other: Device) -> bool:
        """Whether kernels here can use the arrays of ``other`` as they are."""
        ...

    def array(self, source: Any) -> Array:
        """A device array: a copy of a host array, or a view of one that lies on this device already."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array whose elements are not set."""
        ...

    def variable(self, binary: Binary, symbol: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """A module's variable in global or constant memory, ``symbol`` in its PTX, as an array over its memory."""
        ...

    def encode_map(self, described: Description, address: int) -> bytes:
        """The 128 bytes by which kernels here know the array at ``address`` that is described."""
        ...

    def run(
        self,
        binary: Binary,
        entry: str,
        launch: Launch,
        packed: list[bytes],
        timeout: float | None = None,
        stream: int | None = None,
    ) -> None:
        """Start a launch. ``packed`` holds each argument's bytes as the kernel's parameters want them.

        ``stream`` is another library's stream by its handle; None is the device's current one.
        On a GPU the launch is asynchronous: :meth:`synchronize` waits for it.
        """
        ...

    def prepare(
        self, binary: Binary, entry: str, launch: Launch, packed: list[bytes], arrays: Sequence[Any] = ()
    ) -> Callable[[], None]:
        """A launch made ready: calling the result starts it. ``arrays`` are those that it uses."""
        ...

    def time(self, function: Callable[[], Any], repeat: int = 10) -> list[float]:
        """Seconds that each of ``repeat`` calls of ``function`` took here, by the clock that suits the device:
        a GPU's own, the host's for the emulator."""
        ...

    def synchronize(self) -> None:
        """Wait for everything that was started; raise what went wrong meanwhile."""
        ...
