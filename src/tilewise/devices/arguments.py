"""Arguments → the bytes that a kernel's parameters want, checked one by one before the launch."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulated import EmulatedDevice
from tilewise.devices.seam import Array, Device
from tilewise.devices.tensor_map import BYTES, TensorMap
from tilewise.errors import ArgumentError
from tilewise.launch import Parameter

__all__ = ["Packed", "pack"]

_SCRATCH = 2  # pointers that Triton adds to the parameters of a kernel
_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


@dataclass(slots=True)
class Packed:
    """The bytes of each argument; the device arrays behind them; what to copy back afterwards."""

    parts: list[bytes] = field(default_factory=list)
    keep: list[Array] = field(default_factory=list)
    back: list[tuple[Array, npt.NDArray[Any]]] = field(default_factory=list)

    def copy_back(self) -> None:
        """Give host arrays what the kernel made of their copies; waits for the launch."""
        for array, host in self.back:
            np.copyto(host, array.numpy().reshape(host.shape), casting="no")


def pack(kernel: str, parameters: Sequence[Parameter], args: Sequence[Any], device: Device) -> Packed:
    """Check ``args`` against ``parameters`` and make bytes of them; host arrays are copied to the device."""
    if isinstance(args, np.ndarray | str | bytes) or not isinstance(args, Sequence):
        raise ArgumentError("args", "must be a list or tuple of arguments", type(args).__name__)
    if len(args) != len(parameters):
        wanted = ", ".join(_described(parameter) for parameter in parameters) or "nothing"
        raise ArgumentError(
            "args",
            f"must have {len(parameters)} entries for kernel {kernel!r} ({wanted})",
            len(args),
            _hidden(parameters, len(args)),
        )
    packed = Packed()
    for i, (parameter, value) in enumerate(zip(parameters, args, strict=True)):
        packed.parts.append(_one(f"args[{i}]", parameter, value, device, packed))
    return packed


def _hidden(parameters: Sequence[Parameter], given: int) -> str:
    """What to say where the arguments lack just what Triton adds to a kernel's own."""
    added = parameters[given:]
    if len(added) == _SCRATCH and all(parameter.type == "u64" for parameter in added):
        return "Triton's kernels end in two pointers to scratch memory: pass None for each that is not needed"
    return ""


def _described(parameter: Parameter) -> str:
    return f"{parameter.size}-byte struct" if parameter.is_struct else parameter.type


def _one(argument: str, parameter: Parameter, value: Any, device: Device, packed: Packed) -> bytes:
    if isinstance(value, TensorMap):
        return _tensor_map(argument, parameter, value, device, packed)
    if parameter.is_struct or isinstance(value, bytes | bytearray | memoryview | np.void):
        return _structure(argument, parameter, value)
    if value is None:
        return _null(argument, parameter)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    # NOTE: every NumPy array has __index__, which only one of no dimension can answer.
    if isinstance(value, np.ndarray):
        return _pointer(argument, parameter, value, device, packed)
    if isinstance(value, int | float | complex | np.generic) or hasattr(value, "__index__"):
        return _scalar(argument, parameter, value)
    return _pointer(argument, parameter, value, device, packed)


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
            f"one for {_described(parameter)}",
        )
    if isinstance(value.array, int):
        return value.encode(device)
    array = _on_device(argument, value.array, device, packed)
    packed.keep.append(array)
    value.check_address(argument, array.ptr)
    return value.encode(device, array.ptr)


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
    if parameter.size != 8:
        raise ArgumentError(
            argument,
            f"must be a number for the kernel's {parameter.type} parameter",
            f"{type(value).__name__}",
        )
    array = _on_device(argument, value, device, packed)
    packed.keep.append(array)
    return array.ptr.to_bytes(8, "little")


def _on_device(argument: str, value: Any, device: Device, packed: Packed) -> Array:
    if isinstance(value, Array):
        if value.device is not device and not _one_memory(value.device, device):
            raise ArgumentError(
                argument,
                f"must lie on {device.name}, where the kernel runs",
                f"an array on {value.device.name}",
                "copy it: device.array(x.numpy())",
            )
        return value
    if isinstance(value, np.ndarray):
        return _copied(argument, value, device, packed)
    if hasattr(value, "__cuda_array_interface__") or hasattr(value, "__dlpack__"):
        return device.array(value)
    raise ArgumentError(
        argument,
        "must be a device array, a NumPy array, a scalar, or bytes for a struct",
        type(value).__name__,
    )


def _one_memory(a: Device, b: Device) -> bool:
    """Whether two devices share their arrays: emulators do, whatever their order and threads."""
    return isinstance(a, EmulatedDevice) and isinstance(b, EmulatedDevice)


def _copied(argument: str, host: npt.NDArray[Any], device: Device, packed: Packed) -> Array:
    if host.dtype.hasobject:
        raise ArgumentError(argument, "must have elements of a fixed size", f"dtype {host.dtype}")
    for array, other in packed.back:
        if other is host:
            return array  # given twice: one copy, as it is one memory
        if np.may_share_memory(other, host):
            raise ArgumentError(
                argument,
                "must not overlap another argument: each host array is copied by itself",
                fix="make one device array and pass views of it",
            )
    array = device.array(np.ascontiguousarray(host))
    if host.flags.writeable:
        packed.back.append((array, host))
    return array
