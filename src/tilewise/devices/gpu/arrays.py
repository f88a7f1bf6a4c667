"""Arrays in a GPU's memory: views, copies to and from the host, and handing over to other libraries."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from tilewise.devices import exchange
from tilewise.devices.gpu.driver import check, driver
from tilewise.devices.strides import Rectangle, contiguous, is_contiguous, rectangles, slice_layout
from tilewise.errors import ArgumentError

if TYPE_CHECKING:
    from tilewise.devices.gpu.device import GpuDevice
    from tilewise.devices.gpu.pool_memory import Memory
    from tilewise.devices.gpu.streams import Stream

__all__ = ["GpuArray"]

_NATIVE = struct.Struct("<QQiiiBBHQ")

_Place = tuple[int, tuple[int, ...]]  # the address of an array's first element, and its strides


class GpuArray:
    """An array in a GPU's memory.

    ``x[2:5, ::2]`` is a view of the same memory. The memory goes back to the pool when the last view is
    collected, or at once with :meth:`free`. Other libraries take the array without a copy
    (``torch.from_dlpack(x)``, ``cupy.from_dlpack(x)``), and ``device.array(tensor)`` views theirs.
    """

    __array_ufunc__ = None  # NumPy's functions refuse it, rather than copy it element by element
    __slots__ = ("__weakref__", "_memory", "_native", "_offset", "dtype", "read_only", "shape", "strides")

    def __init__(
        self,
        memory: Memory,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        read_only: bool = False,
    ) -> None:
        self._memory, self._offset = memory, offset
        self.shape, self.strides, self.dtype, self.read_only = shape, strides, dtype, read_only
        self._native: bytes | None = None

    # ── what it is ──

    @property
    def ptr(self) -> int:
        """The address of the first element.

        NOTE: taking it counts as a use on the current stream, so that the memory outlives that.
        """
        self._memory.use(self.device.current_stream)
        return self._address

    @property
    def _address(self) -> int:
        return self._memory.ptr + self._offset

    @property
    def device(self) -> GpuDevice:
        """The GPU that holds the elements."""
        return self._memory.device

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without the gaps between them."""
        return self.size * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie densely, the last axis running fastest."""
        return is_contiguous(self.shape, self.strides, self.dtype.itemsize)

    @property
    def freed(self) -> bool:
        """Whether :meth:`free` was called on it or on another view of its memory."""
        return self._memory.freed

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        freed = ", freed" if self.freed else ""
        return f"<{' × '.join(map(str, self.shape)) or 'one'} {self.dtype} on {self.device.name}{freed}>"

    def __getitem__(self, key: Any) -> GpuArray:
        """A view of the same memory; integers, slices, ``...`` and None."""
        self._memory.check()
        offset, shape, strides = slice_layout(self.shape, self.strides, key)
        return GpuArray(self._memory, self._offset + offset, shape, strides, self.dtype, self.read_only)

    @property
    def T(self) -> GpuArray:  # noqa: N802  # NumPy's name
        """A view with the axes in reverse order."""
        return GpuArray(
            self._memory, self._offset, self.shape[::-1], self.strides[::-1], self.dtype, self.read_only
        )

    def __iter__(self) -> NoReturn:
        raise TypeError("an array on a GPU is not walked element by element; use .numpy()")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError("an array on a GPU becomes a NumPy array only by .numpy(), which copies it")

    def lend_to(self, stream_handle: int) -> None:
        """Note that work on another library's stream, given by its CUstream, is about to use the elements."""
        self._memory.lend_to(self.device._stream_of(stream_handle))

    def free(self) -> None:
        """Give the memory back now, without waiting for the collector; every view of it ends with it."""
        self._memory.free()

    # ── copies ──

    def numpy(self) -> npt.NDArray[Any]:
        """A copy on the host; waits for the work that was given to the device before."""
        host = np.empty(self.shape, self.dtype)
        self.copy_to(host)
        return host

    def fill(self, value: npt.NDArray[Any]) -> None:
        """Overwrite the elements with those of a host array of the same shape and type."""
        self.copy_from(value)

    def copy_from(self, source: Any) -> None:
        """Overwrite the elements with those of a host array or of another array on this GPU.

        The host waits until its array has been read, unless it lies in ``device.pinned`` memory: then
        the copy is asynchronous, and the host must leave the array alone until it is done.
        """
        if self.read_only:
            raise ArgumentError("array", "must be writable", fix="copy it first: device.array(x.numpy())")
        if isinstance(source, GpuArray):
            self._copy_within(source)
            return
        host = np.asarray(source)
        self._fits("source", host)
        pinned = host.flags.c_contiguous and self._pinned(host)
        if not pinned:
            self.device._refuse_in_capture("a copy from host memory that is not pinned")
            host = np.asarray(host, order="C")
        stream = self._settled()
        dense = host.ctypes.data, contiguous(host.shape, host.itemsize)
        self._transfer(stream, "to", to=(self._address, self.strides), from_=dense)
        self._finish(stream, host, pinned)

    def copy_to(self, target: npt.NDArray[Any]) -> None:
        """Write the elements into a host array of the same shape and type.

        The host waits until they are there, unless the array lies in ``device.pinned`` memory: then the
        copy is asynchronous, and ``device.synchronize()`` or an event tells when it is done.
        """
        if not isinstance(target, np.ndarray) or not target.flags.writeable:
            raise ArgumentError("target", "must be a writable NumPy array", type(target).__name__)
        self._fits("target", target)
        dense = target.flags.c_contiguous
        pinned = dense and self._pinned(target)
        if not pinned:
            self.device._refuse_in_capture("a copy to host memory that is not pinned")
        host = target if dense else np.empty(target.shape, target.dtype)
        stream = self._settled()
        layout = host.ctypes.data, contiguous(host.shape, host.itemsize)
        self._transfer(stream, "from", to=layout, from_=(self._address, self.strides))
        self._finish(stream, host, pinned)
        if host is not target:
            target[...] = host

    def _fits(self, argument: str, other: npt.NDArray[Any] | GpuArray) -> None:
        if other.shape != self.shape:
            raise ArgumentError(argument, f"must have the shape {self.shape}", other.shape)
        if other.dtype != self.dtype:
            raise ArgumentError(argument, f"must hold {self.dtype}", other.dtype, "use .astype first")

    def _settled(self) -> Stream:
        stream = self.device.current_stream
        if self.device._capturing is None:
            self._memory.settle(stream)
        else:
            self._memory.use(stream)
        return stream

    def _pinned(self, host: npt.NDArray[Any]) -> bool:
        """Whether a host array lies in page-locked memory."""
        if not host.size:
            return False
        cuda = driver()
        with self.device._scope("looking at host memory"):
            status, kind = cuda.cuPointerGetAttribute(
                cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host.ctypes.data
            )
        return not int(status) and int(kind) == int(cuda.CUmemorytype.CU_MEMORYTYPE_HOST)

    def _finish(self, stream: Stream, host: npt.NDArray[Any], pinned: bool) -> None:
        capture = self.device._capturing
        if capture is not None:
            capture.keep_host(host)
        elif pinned:
            self.device._ledger.keep_until_done(host, [stream])
        else:
            stream.synchronize()

    def _copy_within(self, source: GpuArray) -> None:
        """Copy from another array on the same GPU, in stream order; the host does not wait."""
        if source.device is not self.device:
            raise self.device._elsewhere("source", source.device.name)
        self._fits("source", source)
        if source._memory is self._memory:  # they may overlap, and the copy engine minds
            source = source.copy()
        source._settled()
        stream = self._settled()
        from_ = (source._address, source.strides)
        self._transfer(stream, "on", to=(self._address, self.strides), from_=from_)

    def _transfer(self, stream: Stream, way: str, to: _Place, from_: _Place) -> None:
        """Copy every element: ``way`` is "to" the GPU, "from" it, or "on" it."""
        cuda, doing = driver(), f"copying {self.nbytes:,} bytes {way} {self.device.name}"
        rows = {"to": cuda.cuMemcpyHtoDAsync, "from": cuda.cuMemcpyDtoHAsync, "on": cuda.cuMemcpyDtoDAsync}
        row = rows[way]
        with self.device._scope(doing):
            for part in rectangles(self.shape, self.dtype.itemsize, to[1], from_[1]):
                target, source = to[0] + part.to, from_[0] + part.from_
                if part.height == 1:
                    check(row(target, source, part.width, stream.raw), doing)
                else:
                    check(cuda.cuMemcpy2DAsync(_describe_copy(part, way, target, source), stream.raw), doing)

    def copy(self) -> GpuArray:
        """A dense copy on the same GPU, in stream order; the host does not wait."""
        made = self.device.empty(self.shape, self.dtype)
        made._copy_within(self)
        return made

    # ── to compiled calls and other libraries ──

    def native(self) -> bytes:
        """The descriptor by which a compiled call reads this array, made once; empty if the array has none.

        As ``<QQiiiBBHQ``: the address of its memory's state word (:attr:`Memory.state_address`) and of its
        first element; DLPack's device type and number, number of axes, type code, bits and lanes; 1 if it is
        read-only. Then the shape and the strides in elements, 8 bytes each.
        """
        if self._native is None:
            self._native = self._described_natively()
        return self._native

    def _described_natively(self) -> bytes:
        itemsize = self.dtype.itemsize
        try:
            code, bits = exchange.type_code(self.dtype)
        except BufferError:
            return b""
        if any(stride % itemsize for stride in self.strides):
            return b""
        head = _NATIVE.pack(
            *(self._memory.state_address, self._address, exchange.CUDA, self.device.ordinal),
            *(self.ndim, code, bits, 1, int(self.read_only)),
        )
        steps = [stride // itemsize for stride in self.strides]
        return head + struct.pack(f"<{2 * self.ndim}q", *self.shape, *steps)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.kind == "V":
            # An AttributeError lets the other library try DLPack, which has these types.
            raise AttributeError(f"the CUDA array interface has no element type for {self.dtype}; use DLPack")
        self.device._refuse_in_capture("handing an array over")
        stream = self._settled()
        self._memory.lend()
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._address if self.size else 0, self.read_only),
            "strides": None if self.contiguous else self.strides,
            "stream": stream.handle,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return exchange.CUDA, self.device.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule; ``stream`` is where the receiver will use it, and waits for our work here."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                f"this array lies on {self.device.name} and is handed over only there, not {dl_device}"
            )
        self.device._refuse_in_capture("handing an array over")
        given = self.copy() if copy else self
        given._lend(stream)
        return exchange.capsule(
            given._address,
            self.shape,
            given.strides,
            self.dtype,
            self.__dlpack_device__(),
            given,
            read_only=given.read_only,
            versioned=max_version is not None and max_version[0] >= 1,
        )

    def _lend(self, stream: int | None) -> None:
        if stream is not None and (
            isinstance(stream, bool) or not hasattr(stream, "__index__") or stream == 0
        ):
            raise ArgumentError("stream", "must be 1, 2, a stream's address, -1 or None", stream)
        self._memory.check()
        number = exchange.LEGACY_STREAM if stream is None else int(stream)
        if number == -1:  # the receiver orders the work itself
            self._memory.lend()
            return
        self._memory.lend_to(self.device.stream(number))


def _describe_copy(part: Rectangle, way: str, target: int, source: int) -> Any:
    """The driver's description of a two-dimensional copy."""
    cuda = driver()
    host, here = cuda.CUmemorytype.CU_MEMORYTYPE_HOST, cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    made = cuda.CUDA_MEMCPY2D()
    made.WidthInBytes, made.Height = part.width, part.height
    made.dstPitch, made.srcPitch = part.to_pitch, part.from_pitch
    if way == "from":
        made.dstMemoryType, made.dstHost = host, target
    else:
        made.dstMemoryType, made.dstDevice = here, target
    if way == "to":
        made.srcMemoryType, made.srcHost = host, source
    else:
        made.srcMemoryType, made.srcDevice = here, source
    return made
