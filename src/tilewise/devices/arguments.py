"""Check a kernel's arguments one by one before a launch, and turn them into the bytes of its parameters."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.host_views import gpu_of, is_array, view_on_host
from tilewise.devices.seam import Array, Device
from tilewise.devices.tensor_map import BYTES, TensorMap
from tilewise.errors import ArgumentError
from tilewise.launch import Parameter

__all__ = ["Packed", "fits", "pack"]

_SCRATCH = 2  # pointers that Triton adds to the parameters of a kernel
_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


_BYTES = ("bool", "int8", "uint8")  # elements as which kernels read anything of one byte
_INTEGERS_16 = ("int16", "uint16")  # as which kernels read the bits of 16-bit floats
_DEVICE_ARRAYS: set[type] = set()  # types that were found to be device arrays: the protocol is slow to ask


@dataclass(slots=True)
class Packed:
    """The bytes of each argument, the objects that keep their memory alive, and the copies to make back.

    ``copies`` has the copies of host arrays, ``back`` those to copy back, ``read_only`` those that no result can
    be copied back from, with the arguments' names. ``adopted`` are host arrays that the kernel finds where they
    lie. ``copy`` says whether host arrays are copied as they are met, or by :meth:`copy_in` alone.
    """

    parts: list[bytes] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)
    copies: list[tuple[Array, npt.NDArray[Any]]] = field(default_factory=list)
    back: list[tuple[Array, npt.NDArray[Any]]] = field(default_factory=list)
    adopted: list[npt.NDArray[Any]] = field(default_factory=list)
    read_only: list[tuple[str, Array, npt.NDArray[Any]]] = field(default_factory=list)
    copy: bool = True

    def copy_in(self) -> None:
        """Overwrite the copies with what the host arrays hold now."""
        for array, host in self.copies:
            array.fill(host)

    def copy_back(self) -> None:
        """Copy results back to the host arrays; waits for the launch."""
        for array, host in self.back:
            np.copyto(host, array.numpy().reshape(host.shape), casting="no")
        for argument, array, host in self.read_only:
            if array.numpy().tobytes() != host.tobytes():
                raise ArgumentError(
                    argument,
                    "must be writable: the kernel wrote to it, and the result is lost",
                    "a read-only array",
                    "pass a copy: x.copy()",
                )


def pack(
    kernel: str, parameters: Sequence[Parameter], args: Sequence[Any], device: Device, *, copy: bool = True
) -> Packed:
    """Check ``args`` against ``parameters`` and make bytes of them; host arrays are copied to the device.

    With ``copy=False`` they have memory there, and :meth:`Packed.copy_in` copies them before each launch.
    """
    if isinstance(args, np.ndarray | str | bytes) or not isinstance(args, Sequence):
        raise ArgumentError("args", "must be a list or tuple of arguments", type(args).__name__)
    if len(args) != len(parameters):
        wanted = ", ".join(_describe_parameter(parameter) for parameter in parameters) or "nothing"
        raise ArgumentError(
            "args",
            f"must have {len(parameters)} entries for kernel {kernel!r} ({wanted})",
            len(args),
            _missing_scratch_advice(parameters, len(args)),
        )
    packed = Packed(copy=copy)
    for i, (parameter, value) in enumerate(zip(parameters, args, strict=True)):
        packed.parts.append(_pack_one(f"args[{i}]", parameter, value, device, packed))
    return packed


def _missing_scratch_advice(parameters: Sequence[Parameter], given: int) -> str:
    """Return the advice if only the two arguments that Triton adds to a kernel are missing; else ""."""
    added = parameters[given:]
    if len(added) == _SCRATCH and all(parameter.type == "u64" for parameter in added):
        return "Triton's kernels end in two pointers to scratch memory: pass None for each that is not needed"
    return ""


def _describe_parameter(parameter: Parameter) -> str:
    return f"{parameter.size}-byte struct" if parameter.is_struct else parameter.type


def _pack_one(argument: str, parameter: Parameter, value: Any, device: Device, packed: Packed) -> bytes:
    if isinstance(value, TensorMap):
        return _tensor_map(argument, parameter, value, device, packed)
    if parameter.is_struct or isinstance(value, bytes | bytearray | memoryview | np.void):
        return _structure(argument, parameter, value)
    if value is None:
        return _null(argument, parameter)
    if isinstance(value, np.ndarray) and value.ndim == 0 and not _takes_address(parameter):
        value = value[()]
    # NOTE: arrays come before what has __index__: NumPy's all have it, tensors of one element answer it.
    if isinstance(value, int | float | complex | np.generic):
        return _scalar(argument, parameter, value)
    if hasattr(value, "__index__") and not _is_device_array(value) and not is_array(value):
        return _scalar(argument, parameter, value)
    return _pointer(argument, parameter, value, device, packed)


def _is_device_array(value: Any) -> bool:
    if type(value) in _DEVICE_ARRAYS:
        return True
    if isinstance(value, np.ndarray) or not hasattr(value, "ptr") or not isinstance(value, Array):
        return False
    _DEVICE_ARRAYS.add(type(value))
    return True


def _takes_address(parameter: Parameter) -> bool:
    return parameter.size == 8 and parameter.type != "f64" and not parameter.is_number


def _null(argument: str, parameter: Parameter) -> bytes:
    if parameter.size != 8 or parameter.type == "f64":
        rule = f"must be a number for the kernel's {parameter.type} parameter, not None"
        raise ArgumentError(argument, rule, fix="None is a null pointer")
    return bytes(8)


def _tensor_map(
    argument: str, parameter: Parameter, value: TensorMap, device: Device, packed: Packed
) -> bytes:
    if parameter.size != BYTES:
        raise ArgumentError(
            argument,
            f"must be a tensor map only for a parameter of {BYTES} bytes, a CUtensorMap by value",
            f"one for {_describe_parameter(parameter)}",
        )
    if isinstance(value.array, int):
        return value.encode(device)
    address = _place_on_device(argument, parameter, value.array, device, packed)
    value.check_address(argument, address)
    return value.encode(device, address)


def _structure(argument: str, parameter: Parameter, value: Any) -> bytes:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.generic):
        value = value.tobytes()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ArgumentError(
            argument,
            f"must be a NumPy structured scalar or bytes ({parameter.size} of them, for a struct by value)",
            type(value).__name__,
        )
    data = bytes(value)
    if len(data) != parameter.size:
        raise ArgumentError(
            argument,
            f"must have {parameter.size} bytes, the size of the kernel's parameter",
            f"{len(data)} bytes",
            "a NumPy structured type has C's padding only with align=True",
        )
    return data


def _scalar(argument: str, parameter: Parameter, value: Any) -> bytes:
    kind, bits = parameter.type.rstrip("0123456789"), parameter.size * 8
    is_float = isinstance(value, float | np.floating) or (
        isinstance(value, np.generic) and value.dtype.kind not in "biuc"
    )
    if kind == "f" or (kind == "b" and is_float):
        if isinstance(value, complex | np.complexfloating):
            raise ArgumentError(argument, f"must be a real number for a {parameter.type} parameter", value)
        if isinstance(value, np.generic) and kind == "b" and value.dtype.itemsize == parameter.size:
            return bytes(value.tobytes())
        return _float(argument, f"f{bits}", float(value))
    if is_float or isinstance(value, complex | np.complexfloating):
        raise ArgumentError(
            argument,
            f"must be an integer for the kernel's {parameter.type} parameter",
            value,
            "round it first",
        )
    number = int(value)
    least = 0 if number >= 0 else -(2 ** (bits - 1))
    if not least <= number < 2**bits:
        raise ArgumentError(argument, f"must fit the kernel's {parameter.type} parameter", number)
    return int(number % 2**bits).to_bytes(parameter.size, "little")


def _float(argument: str, type_: str, number: float) -> bytes:
    if type_ not in _FLOATS:
        raise ArgumentError(argument, f"must be an integer for a parameter of {type_[1:]} bits", number)
    try:
        return struct.pack(_FLOATS[type_], number)
    except OverflowError:
        raise ArgumentError(argument, f"must fit the kernel's {type_} parameter", number) from None


def _pointer(argument: str, parameter: Parameter, value: Any, device: Device, packed: Packed) -> bytes:
    if not _takes_address(parameter):
        what = f"parameter `{parameter.declared}`" if parameter.is_number else f"{parameter.type} parameter"
        fix = "x.item() is the number in an array of one element" if hasattr(value, "item") else ""
        if parameter.size == 8 and _is_device_array(value):
            fix = "x.ptr is its address"
        raise ArgumentError(
            argument, f"must be a number for the kernel's {what}", f"{type(value).__name__}", fix
        )
    return _place_on_device(argument, parameter, value, device, packed).to_bytes(8, "little")


def _place_on_device(argument: str, parameter: Parameter, value: Any, device: Device, packed: Packed) -> int:
    """Return the address at which ``device`` reads an array; ``packed`` keeps its memory alive."""
    if _is_device_array(value):
        if value.device is not device and not device.shares_memory_with(value.device):
            raise ArgumentError(
                argument,
                f"must lie on {device.name}, where the kernel runs",
                f"an array on {value.device.name}",
                "copy it: device.array(x.numpy())",
            )
        return _address_of(argument, parameter, value, value, packed)
    if type(value) is np.ndarray:
        return _copy_to_device(argument, parameter, value, value, device, packed)
    if not is_array(value):
        raise ArgumentError(
            argument,
            "must be a device array, a NumPy array, a scalar, or bytes for a struct",
            type(value).__name__,
            "np.array(x, dtype) is one, and results are written to it"
            if isinstance(value, list | tuple)
            else "",
        )
    gpu = "" if isinstance(value, np.ndarray) else gpu_of(argument, value)
    if not gpu:
        host = view_on_host(argument, value)
        if not device.runs_on_gpu and not isinstance(value, np.ndarray):
            return _adopt_host_array(argument, parameter, host, value, device, packed)
        return _copy_to_device(argument, parameter, host, value, device, packed)
    if not device.runs_on_gpu:
        raise ArgumentError(
            argument,
            "must lie in host memory: the kernel runs on the emulator",
            f"{type(value).__name__} on {gpu}",
            "x.cpu()" if _is_torch(value) else "copy it to the host first",
        )
    try:
        array = device.array(value)
    except ArgumentError as error:  # it calls its argument by another name
        raise ArgumentError(argument, error.rule, error.value, error.fix) from error
    return _address_of(argument, parameter, array, value, packed)


def _address_of(argument: str, parameter: Parameter, array: Array, given: Any, packed: Packed) -> int:
    """Check a device array, the caller's own or a view of it, and return its address."""
    if parameter.element is not None:
        _check_element(argument, parameter, array.dtype, given)
    if parameter.writable and getattr(array, "read_only", False):
        raise _must_be_writable(argument, parameter, given)
    packed.keep.append(array)
    return array.ptr


def _check_host(argument: str, parameter: Parameter, host: npt.NDArray[Any], given: Any) -> None:
    if host.dtype.hasobject:
        raise ArgumentError(argument, "must have elements of a fixed size", f"dtype {host.dtype}")
    if not host.dtype.isnative:
        raise ArgumentError(
            argument,
            "must be in the machine's byte order",
            f"dtype {host.dtype}",
            "x.astype(x.dtype.newbyteorder('='))",
        )
    if parameter.element is not None:
        _check_element(argument, parameter, host.dtype, given)
    if parameter.writable and not host.flags.writeable:
        raise _must_be_writable(argument, parameter, given)


def _must_be_writable(argument: str, parameter: Parameter, given: Any) -> ArgumentError:
    copy = "x.clone()" if _is_torch(given) else "x.copy()"
    return ArgumentError(
        argument,
        f"must be writable for the kernel's parameter `{parameter.declared}`",
        f"a read-only {type(given).__name__}",
        f"pass a copy, {copy}, or declare the parameter const",
    )


def _copy_to_device(
    argument: str, parameter: Parameter, host: npt.NDArray[Any], given: Any, device: Device, packed: Packed
) -> int:
    """Return the address of a copy of a host array, to be copied back after the launch if it is writable."""
    _check_host(argument, parameter, host, given)
    for array, other in packed.back:
        if other is host or (np.may_share_memory(other, host) and _is_same(other, host)):
            return array.ptr  # given twice: one copy, as it is one memory
    _check_overlap(argument, host, [*(other for _, other in packed.back), *packed.adopted])
    array = device.array(np.ascontiguousarray(host)) if packed.copy else device.empty(host.shape, host.dtype)
    packed.keep.append(array)
    packed.copies.append((array, host))
    if host.flags.writeable:
        packed.back.append((array, host))
    elif parameter.writable is None:
        packed.read_only.append((argument, array, host))
    return array.ptr


def _adopt_host_array(
    argument: str,
    parameter: Parameter,
    host: npt.NDArray[Any],
    given: Any,
    device: Any,
    packed: Packed,
) -> int:
    """Return the address of another library's host array itself, for the emulator to read and write in place."""
    if not host.flags.writeable or not host.flags.c_contiguous or not host.size:
        return _copy_to_device(argument, parameter, host, given, device, packed)
    _check_host(argument, parameter, host, given)
    _check_overlap(argument, host, [other for _, other in packed.back])
    address, name = int(host.ctypes.data), f"the {host.dtype} {type(given).__name__} of shape {host.shape}"
    packed.keep.append(device.adopt(address, host.nbytes, name, host))
    packed.adopted.append(host)
    return address


def _is_same(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether two views of one memory are the same elements."""
    layouts = [(x.shape, x.strides, x.dtype, x.ctypes.data) for x in (a, b)]
    return layouts[0] == layouts[1]


def _check_overlap(argument: str, host: npt.NDArray[Any], others: Sequence[npt.NDArray[Any]]) -> None:
    for other in others:
        if np.may_share_memory(other, host):
            raise ArgumentError(
                argument,
                "must not overlap another argument: each host array is copied by itself",
                fix="make one device array and pass views of it",
            )


# ── element types ──


@functools.cache
def _fitting_types(element: str) -> frozenset[np.dtype[Any]]:
    """Return the NumPy types whose elements have the bits of ``element``."""
    import ml_dtypes

    names = {element}
    if element.startswith(("int", "uint")):
        unsigned = element if element.startswith("u") else f"u{element}"
        names = {unsigned, unsigned[1:]}  # the same bits
    if element in _INTEGERS_16:
        names |= {"float16", "bfloat16"}
    if element == "bfloat16":
        names.add("uint16")  # as which NumPy holds their bits
    if element.startswith("float8"):
        names.add("uint8")
    return frozenset(np.dtype(getattr(ml_dtypes, name, name)) for name in names)


def fits(element: str, dtype: np.dtype[Any]) -> bool:
    """Whether a NumPy type has the elements, or the bits, of the C++ type ``element``."""
    return dtype in _fitting_types(element) or (dtype.itemsize == 1 and element in _BYTES)


def _check_element(argument: str, parameter: Parameter, dtype: np.dtype[Any], given: Any) -> None:
    """Refuse an array whose element type is not the one that the kernel's parameter points to."""
    element = parameter.element or ""
    if fits(element, dtype):
        return
    raise ArgumentError(
        argument,
        f"must hold {element} for the kernel's parameter `{parameter.declared}`",
        str(dtype),
        _conversion(element, dtype, given),
    )


def _conversion(element: str, dtype: np.dtype[Any], given: Any) -> str:
    """Return the Python expression that converts the given array to ``element``."""
    if _is_torch(given):
        return f"x.to(torch.{element})"
    narrow = element == "bfloat16" or element.startswith("float8")
    name = f"ml_dtypes.{element}" if narrow else f"'{element}'"
    if dtype.kind not in "biuf" and dtype.isbuiltin != 2:  # 2: a number that another library defines
        return f"x.view({name}) for its bits"
    if _is_device_array(given):
        return f"device.array(x.numpy().astype({name}))"
    return f"x.astype({name})"


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"
