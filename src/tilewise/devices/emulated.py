"""The emulator's side of the seam: arrays in the host's memory, launches compiled for the CPU."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tilewise.devices import exchange
from tilewise.devices.host_launches import HostLauncher
from tilewise.devices.host_memory import AdoptedMemory, Allocation
from tilewise.devices.host_modules import HostModules
from tilewise.devices.seam import Array, Device
from tilewise.devices.strides import as_dtype, as_shape, slice_layout
from tilewise.devices.tensor_map import Description
from tilewise.errors import ArgumentError, DeviceError, integer
from tilewise.launch import Launch, LaunchLimits
from tilewise.toolchain.binary import Binary

__all__ = ["EmulatedArray", "EmulatedDevice", "observe_arrays", "open_emulator"]


class EmulatedArray:
    """An array of the emulator. Slicing gives a view of the same memory."""

    __array_ufunc__ = None  # NumPy's functions refuse it, as they do a GPU's

    def __init__(self, device: EmulatedDevice, allocation: Allocation, view: npt.NDArray[Any]) -> None:
        self._device, self._allocation, self._view = device, allocation, view

    @property
    def ptr(self) -> int:
        return int(self._view.ctypes.data) if self._view.size else self._allocation.address

    @property
    def shape(self) -> tuple[int, ...]:
        return self._view.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._view.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._view.dtype

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return self._view.ndim

    @property
    def size(self) -> int:
        """How many elements there are."""
        return self._view.size

    @property
    def nbytes(self) -> int:
        return self._view.nbytes

    @property
    def T(self) -> EmulatedArray:  # noqa: N802  # NumPy's name
        """A view with the axes in reverse order."""
        return EmulatedArray(self._device, self._allocation, self._view.T)

    @property
    def device(self) -> EmulatedDevice:
        return self._device

    def numpy(self) -> npt.NDArray[Any]:
        """A copy on the host."""
        return self._view.copy()

    @property
    def unset(self) -> npt.NDArray[np.bool_]:
        """Which elements, or parts of them, are uninitialised; only checked launches record what they write."""
        state = self._allocation.unset
        if isinstance(state, bool) or not self.size:
            return np.full(self.shape, state is True)
        view, offset = self._view, self.ptr - self._allocation.address
        sizes, strides = (*view.shape, view.itemsize), (*view.strides, 1)
        by_byte: npt.NDArray[np.bool_] = np.ndarray(sizes, np.bool_, state.data, offset, strides)
        return np.asarray(by_byte.any(-1))

    def fill(self, value: npt.NDArray[Any]) -> None:
        """Overwrite the elements with those of a host array of the same shape and type."""
        source = np.asarray(value)
        if source.shape != self.shape or source.dtype != self.dtype:
            raise ArgumentError(
                "value",
                f"must have shape {self.shape} and type {self.dtype}",
                f"{source.shape} of {source.dtype}",
            )
        np.copyto(self._view, source)
        self._allocation.fill(self._view)

    def __getitem__(self, key: Any) -> EmulatedArray:
        """A view of the same memory; integers, slices, ``...`` and None."""
        offset, shape, strides = slice_layout(self.shape, self.strides, key)
        memory = self._allocation.bytes
        view: npt.NDArray[Any] = np.empty(shape, self.dtype)
        if view.size:
            offset += self.ptr - self._allocation.address
            view = np.ndarray(shape, self.dtype, memory, offset, strides)
        return EmulatedArray(self._device, self._allocation, view)

    def __dlpack_device__(self) -> tuple[int, int]:
        return exchange.CPU, 0

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over the same memory, or with ``copy`` over a copy of it."""
        if stream is not None:
            raise ArgumentError("stream", "must be None: the host's memory has no streams", stream)
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                f"this array lies in the host's memory and is handed over only there, not {dl_device}"
            )
        given = self._device.array(self._view) if copy else self
        given._allocation.fill(given._view)  # the receiver may write it, unseen
        return exchange.capsule(
            given.ptr,
            given.shape,
            given.strides,
            given.dtype,
            self.__dlpack_device__(),
            given,
            versioned=max_version is not None and max_version[0] >= 1,
        )

    def __iter__(self) -> NoReturn:
        raise TypeError("an array on a device is not walked element by element; use .numpy()")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError("an array on a device becomes a NumPy array only by .numpy(), which copies it")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<array of shape {self.shape}, {self.dtype}, on the emulator>"


class EmulatedDevice:
    """Runs launches on the CPU.

    ``order`` decides which warp goes next and which block starts next: "eager" the first that can, "late" the
    last, a number a random one from that seed. ``threads`` bounds the CPU threads; None asks ``TILEWISE_THREADS``, then
    takes every core. ``sums`` decides how instructions of tensor cores add: "fast" as suits a CPU,
    "hardware" bit for bit as an H200 does; None asks ``TILEWISE_SUMS``, then is fast. ``lenient`` lets
    pass what GPUs usually do, rather than end the launch: docs/checker.md says what.
    """

    name = "emulator"
    runs_on_gpu = False

    def __init__(
        self,
        order: str | int = "eager",
        threads: int | None = None,
        sums: str | None = None,
        modules: HostModules | None = None,
        lenient: bool = False,
    ) -> None:
        """``modules`` has the variables that kernels find; its own if not given."""
        self.launcher = HostLauncher(order, threads, sums, modules=modules, lenient=lenient)

    @property
    def title(self) -> str:
        return f"the emulator on {self.threads} CPU thread{'s' if self.threads > 1 else ''}"

    @property
    def arch(self) -> str:
        return "sm_90a"

    @property
    def limits(self) -> LaunchLimits:
        return LaunchLimits("the emulator")

    @property
    def order(self) -> str | int:
        """Which warp goes next, and which block starts next."""
        return self.launcher.order

    @property
    def threads(self) -> int:
        """The CPU threads that a launch uses at most."""
        return self.launcher.threads

    @property
    def sums(self) -> str:
        """How instructions of tensor cores add."""
        return self.launcher.sums

    @property
    def multiprocessors(self) -> int:
        return self.launcher.multiprocessors

    def array(self, source: Any) -> EmulatedArray:
        """A copy of a host array (or of anything NumPy takes); an array of the emulator as it is."""
        if isinstance(source, EmulatedArray):
            return source
        host = source.numpy() if isinstance(source, Array) else np.asarray(source)
        made = self.empty(host.shape, host.dtype)
        np.copyto(made._view, host)
        made._allocation.unset = False
        return made

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = "float32") -> EmulatedArray:
        """An array whose elements are not set."""
        return self._allocate(shape, dtype, zeros=False)

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = "float32") -> EmulatedArray:
        """An array of zeros: memory that no launch touches costs nothing."""
        return self._allocate(shape, dtype, zeros=True)

    def _allocate(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike, zeros: bool) -> EmulatedArray:
        sizes, kind = as_shape(shape), as_dtype(dtype)
        size = math.prod(sizes) * kind.itemsize
        allocation = Allocation(size, f"the {kind} array of shape {sizes}", unset=not zeros, zeros=zeros)
        view = allocation.bytes.view(kind).reshape(sizes) if size else np.empty(sizes, kind)
        for listener in tuple(_LISTENERS):
            listener(allocation)
        return EmulatedArray(self, allocation, view)

    def adopt(self, address: int, nbytes: int, name: str, owner: object) -> AdoptedMemory:
        """Let launches touch another owner's host memory, where it lies, for as long as the handle lives.

        ``name`` is what messages call it; ``owner`` is kept alive by the handle. What is in it counts as
        initialised. It may overlap other adopted memory and lie inside an array of the emulator's own.
        """
        return AdoptedMemory(address, nbytes, name, owner)

    def shares_memory_with(self, other: Device) -> bool:
        """Whether kernels here can use the arrays of ``other``: emulators share theirs, whatever their order."""
        return isinstance(other, EmulatedDevice)

    def variable(
        self, binary: Binary, symbol: str, shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> EmulatedArray:
        """A module's variable, ``symbol`` in its PTX, as an array over its memory."""
        (allocation,) = self.launcher.modules.find(binary, [symbol])
        return EmulatedArray(self, allocation, allocation.bytes.view(as_dtype(dtype)).reshape(shape))

    def encode_map(self, described: Description, address: int) -> bytes:
        """The 128 bytes by which kernels here know an array at ``address``."""
        from tilewise.emulator.support.tensor_map_layout import encode

        lower, upper = described.corners or ((), ())
        return encode(
            described.element.ptx,
            address,
            described.sizes,
            described.strides,
            described.box,
            described.steps,
            described.interleave,
            described.swizzle,
            described.nan,
            lower,
            upper,
            im2col=described.corners is not None,
        )

    def run(
        self,
        binary: Binary,
        entry: str,
        launch: Launch,
        packed: list[bytes],
        timeout: float | None = None,
        stream: int | None = None,
    ) -> None:
        """Run a launch to its end: there are no streams here."""
        try:
            self.launcher.run(binary, entry, launch, packed, timeout)
        except MemoryError:
            raise DeviceError(
                f"the host has not enough memory for kernel {entry} and its variables"
            ) from None

    def prepare(
        self, binary: Binary, entry: str, launch: Launch, packed: list[bytes], arrays: Sequence[Any] = ()
    ) -> Callable[[], None]:
        """A launch made ready: calling the result runs it. ``arrays`` are kept as long."""
        held = tuple(arrays)

        def run_again() -> None:
            self.run(binary, entry, launch, packed)
            _ = held

        return run_again

    def time(self, function: Callable[[], Any], repeat: int = 10) -> list[float]:
        """Seconds that each of ``repeat`` calls of ``function`` took on the host's clock."""
        taken = []
        for _ in range(integer("repeat", repeat, least=1)):
            started = time.perf_counter()
            function()
            taken.append(time.perf_counter() - started)
        return taken

    def synchronize(self) -> None:
        """Nothing to wait for: a launch here ends before its call does."""

    def __repr__(self) -> str:
        return f"<tilewise device: {self.title}>"


_LISTENERS: list[Callable[[Allocation], None]] = []


@contextlib.contextmanager
def observe_arrays(listener: Callable[[Allocation], None]) -> Iterator[None]:
    """Call ``listener`` with the memory of every array that is made on the emulator meanwhile."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


_MODULES = HostModules()  # emulators share their memory, whatever their order
_EMULATORS: dict[tuple[str | int, int | None, str | None, bool], EmulatedDevice] = {}


def open_emulator(
    order: str | int = "eager", threads: int | None = None, sums: str | None = None, lenient: bool = False
) -> EmulatedDevice:
    """The emulator with its options; one device for each choice of them."""
    made = EmulatedDevice(order, threads, sums, _MODULES, lenient)
    return _EMULATORS.setdefault(made.launcher.options, made)
