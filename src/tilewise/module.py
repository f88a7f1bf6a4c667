"""tw.Module: what one source or PTX text holds: kernels, and the variables that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Array, Device
from tilewise.devices import device as resolve
from tilewise.devices.arguments import fits
from tilewise.devices.emulated import open_emulator
from tilewise.devices.host_views import gpu_of, is_array, view_on_host
from tilewise.errors import ArgumentError, DeviceUnavailable, UnknownNameError
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.compile import compile_source, read_ptx
from tilewise.toolchain.variables import plain_name, read_variables

if TYPE_CHECKING:
    from tilewise.kernel import Kernel

__all__ = ["Module", "ModuleVariable", "VariablesOnDevice", "check_text"]

_DEFAULT_ARCH = "sm_90a"  # where there is no GPU to ask
_SPACES = {"global": "global", "const": "constant"}
_FLOATS = {"f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16"}
_INTEGERS = {
    f"{kind}{bits}": f"{name}{bits}"
    for kind, name in (("u", "uint"), ("s", "int"))
    for bits in (8, 16, 32, 64)
}
_PTX_TYPES = {**_FLOATS, **_INTEGERS}


@dataclass(frozen=True, slots=True)
class ModuleVariable:
    """A ``__device__`` or ``__constant__`` variable of a module.

    ``dtype`` is None where the element type is not known: PTX has an array of floats as bytes, and only the C++
    source says what they are. Its shape is then that of its bytes. ``symbol`` is its name in the PTX.
    """

    name: str
    space: str  # "global" or "constant"
    bytes: int
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    symbol: str
    declared: str = ""

    def __str__(self) -> str:
        what = self.declared or (str(self.dtype) if self.dtype is not None else "of unknown type")
        return f"{self.name}: {self.space}, {self.bytes:,} bytes, {what}"


class Module:
    """A CUDA C++ source: its kernels, and the variables that they share.

    The arguments are those of :class:`tilewise.Kernel`; ``names`` are the instances of templates that are wanted,
    such as ``"tiled<32>"``: kernels that are no templates need not be named. The source is compiled here and now,
    once for all of its kernels.

    >>> import numpy as np, tilewise as tw
    >>> module = tw.Module('''__constant__ float c[4]; __device__ int calls;
    ... extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= c[1]; if (!threadIdx.x) calls++; }''', "sm_80")
    >>> module["c"] = np.array([1, 2, 3, 4], "float32")
    >>> x = np.ones(2, "float32")
    >>> module.kernel("scale")(1, 2, [x])
    >>> x, module["calls"]
    (array([2., 2.], dtype=float32), array(1, dtype=int32))

    A module is a mapping from the names of its variables to what they hold. On every device they begin with their
    initial values and live as long as the process: what a kernel writes, the module's next kernel finds, as in CUDA.
    ``module[name] = value`` writes them on the device that a launch takes when none is named, and on the emulator,
    where ``profile`` and ``check`` run; :meth:`on` names one device.
    """

    def __init__(
        self,
        source: str,
        arch: str | None = None,
        defines: Mapping[str, object] | None = None,
        *,
        names: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        include_dirs: Sequence[str | Path] = (),
        options: Sequence[str] = (),
        filename: str = "kernel.cu",
    ) -> None:
        self.source, self.filename = check_text("source", source), filename
        self.given_arch = arch
        self._names = _texts("names", names)
        self._how = {
            "defines": dict(_mapping("defines", defines)),
            "headers": dict(_mapping("headers", headers)),
            "include_dirs": _texts("include_dirs", include_dirs),
            "options": _texts("options", options),
        }
        self._binaries: dict[str, Binary] = {}
        self._foreign: Binary | None = None
        self._variables: Mapping[str, ModuleVariable] | None = None
        self.arch = arch if arch is not None else _default_arch()
        self.build(self.arch)

    @classmethod
    def from_ptx(cls, text: str, *, filename: str = "kernel.ptx") -> Module:
        """A module of PTX that any compiler made: nvcc's, Triton's, one's own hand."""
        module = cls.__new__(cls)
        module.source, module.filename = check_text("text", text), filename
        module._foreign = read_ptx(text, filename)
        module.given_arch = module.arch = module._foreign.arch
        module._names, module._how, module._binaries, module._variables = (), {}, {}, None
        return module

    @property
    def is_foreign(self) -> bool:
        """Whether it is PTX that another compiler made."""
        return self._foreign is not None

    def build(self, arch: str | None = None) -> Binary:
        """Compile for ``arch`` (the module's own if None) and return PTX, machine code and report."""
        if self._foreign:
            return self._foreign
        target = arch if arch is not None else self.arch
        binary = self._binaries.get(target)
        if binary is None:
            binary = compile_source(
                self.source,
                self._names,
                target,
                filename=self.filename,
                **self._how,  # type: ignore[arg-type]  # a dict of differing types, as compile_source names them
            )
            self._binaries[target] = binary
        return binary

    def build_for(self, device: Device) -> Binary:
        """What runs on a device: built for its arch, if the module was not made for another."""
        return self.build(None if self.given_arch is not None else device.arch)

    # -- kernels --------------------------------------------------------------------------------
    def kernel(self, name: str) -> Kernel:
        """A kernel of this module: nothing is compiled again."""
        from tilewise.kernel import Kernel

        return Kernel.of(self, name)

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of its kernels, in the order in which they stand in the PTX."""
        binary = self.build()
        return tuple(binary.shown(entry) for entry in binary.entries)

    # -- variables ------------------------------------------------------------------------------
    @property
    def globals(self) -> Mapping[str, ModuleVariable]:
        """Its ``__device__`` and ``__constant__`` variables by name. One that no kernel uses may be left out by the
        compiler."""
        if self._variables is None:
            self._variables = MappingProxyType(self._read_variables())
        return self._variables

    def on(self, device: Device | str | None = None) -> VariablesOnDevice:
        """Its variables on one device: ``module.on("gpu:1")["c"] = array``."""
        return VariablesOnDevice(self, resolve(device))

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """What a variable holds on the default device, as a NumPy array; waits for the work given to it before."""
        return self.on()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Write a variable on the default device and on the emulator. The value must have its size and, where that is
        known, its type."""
        devices = [resolve()]
        if devices[0].runs_on_gpu:
            devices.append(open_emulator())
        for target in devices:
            self.on(target)[name] = value

    def __contains__(self, name: object) -> bool:
        return name in self.globals

    def __iter__(self) -> Iterator[str]:
        return iter(self.globals)

    def __len__(self) -> int:
        return len(self.globals)

    def __repr__(self) -> str:
        kernels, variables = len(self.entries), len(self.globals)
        return f"<tilewise.Module {self.filename} for {self.arch}: {kernels} kernels, {variables} variables>"

    def variable(self, name: str) -> ModuleVariable:
        """What is known of a variable, by its C++ name or the one in the PTX."""
        known = self.globals
        if name in known:
            return known[name]
        symbols = {variable.symbol: variable for variable in known.values()}
        if name in symbols:
            return symbols[name]
        raise UnknownNameError("variable", name, known)

    def _read_variables(self) -> dict[str, ModuleVariable]:
        from tilewise import emulator

        module = emulator.parse(self.build().ptx)
        found = [
            variable
            for variable in module.variables.values()
            # Those with a colon are a function's own, those with a dollar sign the library's.
            if variable.space in _SPACES
            and variable.size
            and "::" not in variable.name
            and variable.name[0] != "$"
        ]
        plain = [plain_name(variable.name) for variable in found]
        headers: Any = self._how.get("headers", {})
        declared = {} if self._foreign else read_variables(self.source, headers.values())
        listed = {}
        for variable, name in zip(found, plain, strict=True):
            unique = name if plain.count(name) == 1 else variable.name
            space, size = _SPACES[variable.space], variable.size
            dtype, shape, text = _typed(variable, declared.get(name.rpartition("::")[2]))
            listed[unique] = ModuleVariable(unique, space, size, dtype, shape, variable.name, text)
        return listed


class VariablesOnDevice:
    """The variables of a module on one device: a mapping from names to what they hold."""

    def __init__(self, module: Module, device: Device) -> None:
        self.module, self.device = module, device

    def array(self, name: str) -> Array:
        """A variable as a device array over its own memory: an argument for kernels, an address by its ``ptr``."""
        variable = self.module.variable(name)
        dtype = np.dtype(np.uint8) if variable.dtype is None else variable.dtype
        return self.device.variable(
            self.module.build_for(self.device), variable.symbol, variable.shape, dtype
        )

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """What a variable holds; waits for the work that was given to the device before."""
        array = self.array(name)
        self.device.synchronize()
        return array.numpy()

    def __setitem__(self, name: str, value: Any) -> None:
        """Write a variable, after the work that was given to the device before and before what comes next."""
        content = _content(self.module.variable(name), value)
        array = self.array(name)
        # NOTE: a launch does not say which variables it uses, so all streams have to be waited for.
        self.device.synchronize()
        array.fill(content)
        self.device.synchronize()

    def __contains__(self, name: object) -> bool:
        return name in self.module

    def __iter__(self) -> Iterator[str]:
        return iter(self.module)

    def __len__(self) -> int:
        return len(self.module)

    def __repr__(self) -> str:
        return f"<{len(self)} variables of {self.module.filename} on {self.device.name}>"


# -- types ------------------------------------------------------------------------------------------
def _typed(variable: Any, declared: Any) -> tuple[np.dtype[Any] | None, tuple[int, ...], str]:
    """The element type and the shape of a variable, and how it is declared, as far as they are known."""
    if declared is not None:
        dtype = _dtype(declared.element)
        shape = declared.shape(variable.size, dtype.itemsize)
        if shape is not None:
            return dtype, shape, declared.text
    if variable.type in _PTX_TYPES:
        dtype = _dtype(_PTX_TYPES[variable.type])
        count = variable.size // dtype.itemsize
        # NOTE: PTX does not tell an array of one element from a scalar, once it is read.
        return dtype, () if count == 1 else (count,), f".{variable.type}"
    return None, (variable.size,), ""


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def _content(variable: ModuleVariable, value: Any) -> npt.NDArray[Any]:
    """The elements to write to a variable; a value that does not fit is refused."""
    argument = f"module[{variable.name!r}]"
    if isinstance(value, bytes | bytearray | memoryview | np.void):
        raw = value.tobytes() if isinstance(value, np.void) else bytes(value)
        host: npt.NDArray[Any] = np.frombuffer(raw, np.uint8)
        return _shaped(argument, variable, host)
    if isinstance(value, Array) and not isinstance(value, np.ndarray):
        value = value.numpy()
    if isinstance(value, int | float | list | tuple | np.generic) and not isinstance(value, np.void):
        return _shaped(argument, variable, _converted(argument, variable, value))
    if not is_array(value):
        raise ArgumentError(argument, "must be an array, a number or bytes", type(value).__name__)
    if not isinstance(value, np.ndarray) and gpu_of(argument, value):
        raise ArgumentError(
            argument, "must lie in host memory", type(value).__name__, "copy it to the host first"
        )
    host = view_on_host(argument, value)
    if not host.dtype.isnative or host.dtype.hasobject:
        raise ArgumentError(
            argument, "must have elements of the machine's own byte order and size", str(host.dtype)
        )
    if variable.dtype is not None and host.dtype.names is None and not fits(variable.dtype.name, host.dtype):
        fix = f"x.astype({variable.dtype.name!r})"
        raise ArgumentError(
            argument, f"must hold {variable.dtype} for {_shown(variable)}", str(host.dtype), fix
        )
    return _shaped(argument, variable, host)


def _converted(argument: str, variable: ModuleVariable, value: Any) -> npt.NDArray[Any]:
    """Numbers, or lists of them, as the variable's type has them; refused where that type would change them."""
    if variable.dtype is None:
        rule = f"must be an array or bytes, as the type of {_shown(variable)} is not known"
        raise ArgumentError(argument, rule, value, "such as np.float32(0.5).tobytes()")
    try:
        given, found = np.asarray(value), np.asarray(value, variable.dtype)
    except (OverflowError, TypeError, ValueError):
        raise ArgumentError(argument, f"must be {variable.dtype} for {_shown(variable)}", value) from None
    if given.dtype.kind in "fc" and variable.dtype.kind in "iub":
        raise ArgumentError(argument, f"must be integers for {_shown(variable)}", value, "round them first")
    return found


def _shaped(argument: str, variable: ModuleVariable, host: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The elements in the variable's own shape: those of an array with another shape, if one of the two is flat."""
    if host.nbytes != variable.bytes:
        shape = (
            f"{host.nbytes:,} bytes, an array of shape {host.shape}"
            if host.ndim
            else f"{host.nbytes:,} bytes"
        )
        raise ArgumentError(argument, f"must have the {variable.bytes:,} bytes of {_shown(variable)}", shape)
    dtype = np.dtype(np.uint8) if variable.dtype is None else variable.dtype
    if min(host.ndim, len(variable.shape)) > 1 and host.shape != variable.shape:
        rule = f"must have the shape {variable.shape} of {_shown(variable)}, or be flat"
        raise ArgumentError(argument, rule, host.shape)
    flat = np.frombuffer(np.ascontiguousarray(host).tobytes(), np.uint8)
    return flat.view(dtype).reshape(variable.shape)


def _shown(variable: ModuleVariable) -> str:
    return f"`{variable.declared}`" if variable.declared else f"the variable {variable.name}"


# -- arguments --------------------------------------------------------------------------------------
def _default_arch() -> str:
    try:
        return resolve().arch
    except DeviceUnavailable:
        return _DEFAULT_ARCH


def check_text(argument: str, value: object) -> str:
    """The value, if it is a text with something in it."""
    if not isinstance(value, str) or not value.strip():
        shown = "an empty text" if isinstance(value, str) else type(value).__name__
        raise ArgumentError(argument, f"must be a text that is not empty, not {shown}")
    if "\0" in value:
        raise ArgumentError(argument, "must not hold a NUL character")
    return value


def _mapping(argument: str, value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ArgumentError(argument, "must map names to values", type(value).__name__)
    return value


def _texts(argument: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ArgumentError(argument, "must be a list of texts", type(value).__name__)
    return tuple(str(item) for item in value)
