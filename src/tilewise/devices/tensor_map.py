"""tw.TensorMap: what a kernel needs to know of an array that the tensor memory accelerator is to copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.devices.host_views import gpu_of, is_array, view_on_host
from tilewise.devices.seam import Array
from tilewise.errors import ArgumentError, UnknownNameError, integer, rename_arguments

if TYPE_CHECKING:
    from tilewise.devices.seam import Device

__all__ = ["BYTES", "ELEMENTS", "Description", "Element", "TensorMap"]

BYTES = 128  # of the object that a kernel is given
_MOST_SIZE = 2**32
_MOST_IMAGE = 2**31 - 1  # along an axis of an image, which im2col copies count with a sign
_MOST_STRIDE = 2**40  # bytes
_MOST_BOX = 256
_MOST_PIXELS = 1_024
_MOST_STEP = 8
_MOST_BYTES = 227 * 1_024  # of a box: what a block has of shared memory at most
_UNIT = 16  # bytes of which everything is a multiple
_SWIZZLES = (None, 32, 64, 128)
_INTERLEAVES = (None, 16, 32)
_PROMOTIONS = (None, 64, 128, 256)
_FILLS = ("zero", "nan")
_RANKS = {"tiled": (1, 5), "interleaved": (3, 5), "im2col": (3, 5)}
# What each corner of the bounding box may be, by the array's axes.
_CORNERS = {3: (-32_768, 32_767), 4: (-128, 127), 5: (-16, 15)}


class Element(NamedTuple):
    """An element type: its bytes, whether NaN is one of its values, and its number in PTX and in the driver."""

    size: int
    floating: bool
    ptx: int
    driver: str


ELEMENTS = {
    "uint8": Element(1, False, 0, "UINT8"),
    "uint16": Element(2, False, 1, "UINT16"),
    "uint32": Element(4, False, 2, "UINT32"),
    "int32": Element(4, False, 3, "INT32"),
    "uint64": Element(8, False, 4, "UINT64"),
    "int64": Element(8, False, 5, "INT64"),
    "float16": Element(2, True, 6, "FLOAT16"),
    "bfloat16": Element(2, True, 10, "BFLOAT16"),
    "float32": Element(4, True, 7, "FLOAT32"),
    "float32_ftz": Element(4, True, 8, "FLOAT32_FTZ"),
    "tfloat32": Element(4, True, 11, "TFLOAT32"),
    "tfloat32_ftz": Element(4, True, 12, "TFLOAT32_FTZ"),
    "float64": Element(8, True, 9, "FLOAT64"),
}
_ALIASES = {"int16": "uint16", "bool": "uint8"}


class Description(NamedTuple):
    """All that a tensor map holds but the address. Axes come innermost first, as hardware counts them.

    ``box`` of an im2col map is what is copied of a pixel and how many pixels; it has corners besides.
    """

    element: Element
    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # bytes, of every axis but the innermost
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int
    swizzle: int
    promotion: int
    nan: bool
    corners: tuple[tuple[int, ...], tuple[int, ...]] | None  # of an im2col map: lower, upper

    @property
    def alignment(self) -> int:
        """What the address must be a multiple of."""
        return max(self.interleave, _UNIT)


class TensorMap:
    """A descriptor of an array, or of memory at an address, for ``cp.async.bulk.tensor``.

    Every tuple has one entry for each axis, in the array's own order: the last axis is the one whose
    elements lie side by side. ``box`` is how much one copy takes along each axis. It is passed to a kernel
    whose parameter is ``const __grid_constant__ CUtensorMap`` (128 bytes by value). An array in host memory is
    copied to the device for the launch, and back after it, as any other argument is.

    >>> import numpy as np
    >>> import tilewise as tw
    >>> a = np.zeros((256, 512), np.float16)
    >>> tw.TensorMap(a, box=(128, 64), swizzle=128)
    <tilewise.TensorMap of (256, 512) float16, box (128, 64), swizzle 128>

    ``array`` is a device array, one of NumPy, PyTorch or another library that speaks DLPack, or an address
    (with ``shape`` and ``dtype``). ``dtype`` is the array's own if not given; "tfloat32" rounds what is
    loaded, "float32_ftz" flushes what is added up.
    ``strides`` are in bytes, for each axis but the last; by default the array's own. ``element_strides`` of
    2 takes every other element. ``swizzle`` (None, 32, 64, 128) is how bytes lie in shared memory,
    ``l2_promotion`` (None, 64, 128, 256) what the L2 cache fetches at once, ``fill`` ("zero", "nan") what is
    read outside. ``interleave`` (None, 16, 32) is for arrays N, C/k, [[D,] H,] W, k whose last axis is a slice
    of channels of 16 or 32 bytes: a copy takes slices whole, so nothing but ``shape`` counts that axis.
    """

    __slots__ = ("_encoded", "array", "described", "dtype")

    def __init__(
        self,
        array: Any,
        box: Sequence[int],
        *,
        dtype: str | npt.DTypeLike | None = None,
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        element_strides: Sequence[int] | None = None,
        interleave: int | None = None,
        swizzle: int | None = None,
        l2_promotion: int | None = 128,
        fill: str = "zero",
    ) -> None:
        given = _MapArguments(array, dtype, shape, strides, interleave, swizzle, l2_promotion, fill)
        given.check_rank("interleaved" if given.interleave else "tiled")
        lengths = _numbers("box", box, len(given.sizes), 1, _MOST_BOX)
        if given.interleave and lengths[1] != 1:
            raise ArgumentError(
                "box[1]", "must be 1 with interleave: a copy takes slices one by one", lengths[1]
            )
        self._take(given, lengths, element_strides, None)

    @classmethod
    def im2col(
        cls,
        array: Any,
        *,
        lower: Sequence[int],
        upper: Sequence[int],
        channels: int,
        pixels: int,
        dtype: str | npt.DTypeLike | None = None,
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        element_strides: Sequence[int] | None = None,
        interleave: int | None = None,
        swizzle: int | None = None,
        l2_promotion: int | None = 128,
        fill: str = "zero",
    ) -> TensorMap:
        """A map whose copies gather pixels of images: an array of axes N, [[D,] H,] W, C.

        A copy takes ``channels`` elements of each of ``pixels`` pixels, which it goes through along W, then
        H, D and N. ``lower`` and ``upper`` bound where it goes, as ([D, [H,]] W) from the image's first pixel
        and from its last one.

        >>> import numpy as np
        >>> import tilewise as tw
        >>> images = np.zeros((8, 32, 32, 64), np.float16)
        >>> tw.TensorMap.im2col(images, lower=(-1, -1), upper=(-1, -1), channels=64, pixels=128, swizzle=128)
        <tilewise.TensorMap of (8, 32, 32, 64) float16, im2col of 128 pixels by 64 channels, swizzle 128>
        """
        made = cls.__new__(cls)
        given = _MapArguments(array, dtype, shape, strides, interleave, swizzle, l2_promotion, fill)
        given.check_rank("im2col")
        rank = len(given.sizes)
        least, most = _CORNERS[rank]
        corners = (
            _numbers("lower", lower, rank - 2, least, most),
            _numbers("upper", upper, rank - 2, least, most),
        )
        images = given.sizes[2:] if given.interleave else given.sizes[1:-1]
        for i, (size, low, high) in enumerate(zip(images, *corners, strict=True)):
            if size > _MOST_IMAGE:
                axis = i + (2 if given.interleave else 1)
                raise ArgumentError(
                    f"shape[{axis}]", f"must be at most {_MOST_IMAGE:,} for im2col copies", size
                )
            if size + high <= low:
                raise ArgumentError(
                    f"upper[{i}]",
                    f"must leave a pixel beyond lower[{i}] = {low} of an axis of {size:,}",
                    high,
                )
        box = (
            integer("pixels", pixels, least=1, most=_MOST_PIXELS),
            integer("channels", channels, least=1, most=_MOST_BOX),
        )
        made._take(given, box, element_strides, corners)
        return made

    def _take(
        self,
        given: _MapArguments,
        box: tuple[int, ...],
        steps: Sequence[int] | None,
        corners: tuple[tuple[int, ...], tuple[int, ...]] | None,
    ) -> None:
        given.check_row("channels" if corners else f"box[{len(box) - 1}]", box[-1], bool(corners))
        self._check_bytes(given, box, steps, bool(corners))
        self.array, self.dtype = given.array, given.dtype
        self.described = Description(
            ELEMENTS[given.dtype],
            given.sizes[::-1],
            given.outer_strides()[::-1],
            box[::-1],
            given.steps(steps)[::-1],
            given.interleave,
            given.swizzle,
            given.promotion,
            given.nan,
            (corners[0][::-1], corners[1][::-1]) if corners else None,
        )
        if isinstance(self.array, int):
            self.check_address("array", self.array)
        self._encoded: tuple[Device, int, bytes] | None = None

    @staticmethod
    def _check_bytes(
        given: _MapArguments, box: tuple[int, ...], steps: Sequence[int] | None, im2col: bool
    ) -> None:
        """Refuse a box that no block has room for; drivers refuse some of them too."""
        counts = box if im2col else [-(-n // step) for n, step in zip(box, given.steps(steps), strict=True)]
        total = math.prod(counts) * (given.interleave if not im2col and given.interleave else given.size)
        if total > _MOST_BYTES:
            what = "pixels" if im2col else "box"
            fix = "copy it in several boxes"
            raise ArgumentError(what, f"must make at most {_MOST_BYTES:,} bytes", f"{total:,}", fix)

    def check_address(self, argument: str, address: int) -> None:
        """Refuse an address that hardware would."""
        if address % self.described.alignment:
            raise ArgumentError(
                argument, f"must lie at a multiple of {self.described.alignment} bytes", hex(address)
            )

    def encode(self, device: Device, address: int | None = None) -> bytes:
        """The 128 bytes that kernels on ``device`` read, for arrays of maps in memory.

        ``address`` is where the array lies; None means the address, or device array, that the map was made
        with. A kernel's own arguments need no call of this.
        """
        if address is None:
            if isinstance(self.array, np.ndarray):
                raise ArgumentError(
                    "array", "must lie on the device to be encoded", "a NumPy array", "device.array(x)"
                )
            address = self.array if isinstance(self.array, int) else int(self.array.ptr)
        self.check_address("address", address)
        last = self._encoded
        if last is None or last[0] is not device or last[1] != address:
            last = self._encoded = (device, address, device.encode_map(self.described, address))
        return last[2]

    def __repr__(self) -> str:
        described = self.described
        shape, box = described.sizes[::-1], described.box[::-1]
        what = f"im2col of {box[0]:,} pixels by {box[1]:,} channels" if described.corners else f"box {box}"
        how = f", interleave {described.interleave}" if described.interleave else ""
        how += f", swizzle {described.swizzle}" if described.swizzle else ""
        how += ", nan outside" if described.nan else ""
        return f"<tilewise.TensorMap of {shape} {self.dtype}, {what}{how}>"


class _MapArguments:
    """The arguments that tiled and im2col maps share, checked."""

    def __init__(
        self,
        array: Any,
        dtype: str | npt.DTypeLike | None,
        shape: Sequence[int] | None,
        strides: Sequence[int] | None,
        interleave: int | None,
        swizzle: int | None,
        promotion: int | None,
        fill: str,
    ) -> None:
        self.array = _array(array)
        self.interleave = _one_of("interleave", interleave, _INTERLEAVES) or 0
        self.swizzle = _one_of("swizzle", swizzle, _SWIZZLES) or 0
        self.promotion = _one_of("l2_promotion", promotion, _PROMOTIONS) or 0
        if self.interleave == 32 and self.swizzle != 32:
            raise ArgumentError("swizzle", "must be 32 with interleave 32", swizzle)
        if fill not in _FILLS:
            raise UnknownNameError("fill", fill, _FILLS)
        self.nan = fill == "nan"
        self.dtype = self._type(dtype)
        if self.nan and not ELEMENTS[self.dtype].floating:
            raise ArgumentError("fill", f"must be 'zero' for {self.dtype}, which has no NaN", fill)
        if isinstance(self.array, int) and shape is None:
            raise ArgumentError("shape", "must be given with an address")
        self._plain = shape is not None or isinstance(self.array, int | np.ndarray)
        self.sizes = self._sizes(self.array.shape if shape is None else shape)
        self._strides = strides

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return ELEMENTS[self.dtype].size

    def _sizes(self, shape: Any) -> tuple[int, ...]:
        """Along each axis; slices count as one."""
        found = _tuple("shape", shape)
        sizes = _numbers("shape", found, len(found), 1, _MOST_SIZE)
        size = ELEMENTS[self.dtype].size
        if self.interleave and (not sizes or sizes[-1] * size != self.interleave):
            raise ArgumentError(
                "shape",
                f"must end with an axis of {self.interleave // size}, the {self.dtype} elements of a slice",
                sizes,
            )
        return sizes[:-1] if self.interleave else sizes

    def check_rank(self, kind: str) -> None:
        least, most = _RANKS[kind]
        if not least <= len(self.sizes) <= most:
            extra = " besides the slice" if self.interleave else ""
            raise ArgumentError(
                "shape", f"must have {least} to {most} axes{extra}, for {kind} copies", self.sizes
            )

    def _type(self, dtype: str | npt.DTypeLike | None) -> str:
        own = None if isinstance(self.array, int) else np.dtype(self.array.dtype)
        if dtype is None and own is None:
            raise ArgumentError("dtype", "must be given with an address")
        if isinstance(dtype, str) and dtype in ELEMENTS:
            name = dtype
        else:
            name = _name_of(dtype if dtype is not None else own)
        if own is not None and own.itemsize != ELEMENTS[name].size:
            raise ArgumentError("dtype", f"must have {own.itemsize} bytes, as the array's {own} has", name)
        return name

    def steps(self, steps: Sequence[int] | None) -> tuple[int, ...]:
        rank = len(self.sizes)
        if steps is None:
            return (1,) * rank
        found = _numbers("element_strides", steps, rank, 1, _MOST_STEP)
        if not self.interleave and found[-1] != 1:
            raise ArgumentError(
                f"element_strides[{rank - 1}]", "must be 1: the last axis is copied without gaps", found[-1]
            )
        return found

    def outer_strides(self) -> tuple[int, ...]:
        """Bytes from one element (or slice) to the next along each axis but the last."""
        unit = max(self.interleave, _UNIT)
        width = self.interleave or ELEMENTS[self.dtype].size
        if self._strides is not None:
            found = _numbers("strides", self._strides, len(self.sizes) - 1, 0, _MOST_STRIDE - 1)
        else:
            found = self._own_strides(width)
        for i, stride in enumerate(found):
            if stride % unit:
                raise ArgumentError(
                    f"strides[{i}]", f"must be a multiple of {unit} bytes", stride, "pad the axes after it"
                )
            if not 0 <= stride < _MOST_STRIDE:
                raise ArgumentError(f"strides[{i}]", f"must be from 0 to {_MOST_STRIDE:,} bytes", stride)
        if isinstance(self.array, np.ndarray):
            ends = zip(self.sizes, (*found, width), strict=True)
            last = sum((size - 1) * stride for size, stride in ends) + width
            if last > self.array.nbytes:
                raise ArgumentError(
                    "shape", f"must stay within the array's {self.array.nbytes:,} bytes", f"{last:,} bytes"
                )
        return found

    def _own_strides(self, width: int) -> tuple[int, ...]:
        if self._plain:  # a NumPy array is copied without gaps
            return tuple(math.prod(self.sizes[i + 1 :]) * width for i in range(len(self.sizes) - 1))
        strides, size = self.array.strides, ELEMENTS[self.dtype].size
        if strides[-1] != size or (self.interleave and strides[-2] != width):
            what = "slices of its last two axes" if self.interleave else "elements of its last axis"
            raise ArgumentError("array", f"must have the {what} side by side", f"strides {strides}")
        return tuple(strides[: len(self.sizes) - 1])

    def check_row(self, argument: str, length: int, channels: bool) -> None:
        """Refuse a box whose last axis has a size in bytes that no copy can have."""
        element = ELEMENTS[self.dtype]
        row = length * element.size
        if self.interleave and channels and row != self.interleave:
            count = self.interleave // element.size
            raise ArgumentError(argument, f"must be {count} with interleave: one slice", length)
        if row % _UNIT:
            raise ArgumentError(
                argument, f"must make a multiple of {_UNIT} bytes", f"{length} × {element.size} = {row}"
            )
        if self.swizzle and not self.interleave and row > self.swizzle:
            raise ArgumentError(
                argument,
                f"must make at most {self.swizzle} bytes with swizzle {self.swizzle}",
                f"{length} × {element.size} = {row}",
                "take a narrower box or a wider swizzle",
            )


def _array(array: Any) -> Any:
    """A device array, a NumPy array or an address: another library's array is viewed as one of these."""
    if isinstance(array, np.ndarray | Array):
        return array
    if is_array(array) and not isinstance(array, np.generic):
        return _view(array)
    if hasattr(array, "__index__") and not isinstance(array, bool):
        return integer("array", array, most=2**64 - 1)
    raise ArgumentError(
        "array",
        "must be an array or an address",
        type(array).__name__,
        "numpy.asarray(x) makes one",
    )


def _view(array: Any) -> Any:
    """Another library's array, where it lies."""
    from tilewise.devices import device, gpu  # which import this module

    where = gpu_of("array", array)
    if not where:
        return view_on_host("array", array)
    with rename_arguments({"source": "array"}):
        if where.startswith("gpu:"):
            return device(where).array(array)
        # The CUDA array interface does not say on which GPU it is.
        return gpu.find_gpu(int(array.__cuda_array_interface__["data"][0] or 0)).array(array)


def _name_of(dtype: Any) -> str:
    """The element type that holds a NumPy type: its own, or the unsigned integer of its size."""
    if isinstance(dtype, str) and dtype.startswith("float8_"):
        return "uint8"  # NOTE: NumPy knows the name only once ml_dtypes is imported
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise UnknownNameError("dtype", dtype, ELEMENTS) from None
    name = _ALIASES.get(kind.name, str(kind.name))
    if name not in ELEMENTS and kind.itemsize == 1 and kind.kind != "S":
        name = "uint8"  # int8, and the formats of 8 bits and fewer that ml_dtypes has
    if name not in ELEMENTS:
        raise UnknownNameError("dtype", name, ELEMENTS)
    return name


def _one_of(argument: str, value: Any, known: tuple[int | None, ...]) -> int | None:
    if isinstance(value, bool) or value not in (*known, 0):
        listed = ", ".join(map(str, known[:-1]))
        raise ArgumentError(argument, f"must be {listed} or {known[-1]}", value)
    return None if value is None else int(value)


def _tuple(argument: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise ArgumentError(argument, "must be a tuple of integers", values)
    return tuple(values)


def _numbers(argument: str, values: Any, count: int, least: int, most: int) -> tuple[int, ...]:
    found = _tuple(argument, values)
    if len(found) != count:
        raise ArgumentError(argument, f"must have {count} {'entry' if count == 1 else 'entries'}", found)
    return tuple(integer(f"{argument}[{i}]", value, least=least, most=most) for i, value in enumerate(found))
