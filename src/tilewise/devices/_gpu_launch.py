"""Machine code on a GPU: loaded once, its kernels found once, launched with arguments given as bytes."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewise.devices._gpu_driver import check, core, driver, explain, translated
from tilewise.errors import DeviceError, LaunchError, UnknownNameError
from tilewise.launch import Launch
from tilewise.toolchain.binary import Binary

if TYPE_CHECKING:
    from tilewise.devices._gpu_streams import Stream
    from tilewise.devices.gpu import GpuDevice

__all__ = ["Function", "Programs", "start"]

_ALIGN = 64  # of an argument in host memory; the most that a parameter asks for (a tensor map)
_LOG_BYTES = 16 * 1024
_CLUSTER_PORTABLE = 8


class Function:
    """A kernel that is loaded on one GPU, with what one block of it may have."""

    __slots__ = (
        "_clusters_raised",
        "_dynamic",
        "code",
        "entry",
        "raw",
        "registers",
        "sizes",
        "static",
        "threads",
    )

    def __init__(self, code: Any, raw: Any, entry: str, sizes: tuple[int, ...]) -> None:
        self.code, self.raw, self.entry, self.sizes = code, raw, entry, sizes
        self._clusters_raised = False
        attributes = driver().CUfunction_attribute
        self.threads = self._attribute(attributes.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        self.registers = self._attribute(attributes.CU_FUNC_ATTRIBUTE_NUM_REGS)
        self.static = self._attribute(attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        self._dynamic = self._attribute(attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)

    def _attribute(self, which: Any) -> int:
        return int(check(driver().cuFuncGetAttribute(which, self.raw), f"asking about kernel {self.entry!r}"))

    def check(self, launch: Launch, packed: Sequence[bytes]) -> None:
        """Refuse what this kernel cannot run, before the driver says less about it."""
        if launch.threads_per_block > self.threads:
            raise LaunchError(
                "block",
                f"must have at most {self.threads:,} threads for kernel {self.entry!r}, "
                f"which takes {self.registers} registers a thread",
                launch.threads_per_block,
                "use smaller blocks, or compile with __launch_bounds__",
            )
        # NOTE: the driver reads as many pointers as the kernel has parameters, whatever we pass.
        if tuple(map(len, packed)) != self.sizes:
            raise LaunchError(
                "packed",
                f"must hold arguments of {list(self.sizes)} bytes for kernel {self.entry!r}",
                list(map(len, packed)),
            )

    def allow(self, launch: Launch) -> None:
        """Ask the driver for what it gives only when asked: much shared memory, large clusters."""
        cuda = driver()
        attributes = cuda.CUfunction_attribute
        if launch.shared > self._dynamic:
            doing = f"asking for {launch.shared:,} dynamic shared bytes for kernel {self.entry!r}"
            wanted = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(cuda.cuFuncSetAttribute(self.raw, wanted, launch.shared), doing)
            self._dynamic = launch.shared
        if launch.cluster is not None and not self._clusters_raised:
            x, y, z = launch.cluster
            if x * y * z > _CLUSTER_PORTABLE:
                doing = f"asking for clusters of {x * y * z} blocks for kernel {self.entry!r}"
                wanted = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                check(cuda.cuFuncSetAttribute(self.raw, wanted, 1), doing)
                self._clusters_raised = True


class Programs:
    """What is loaded on one GPU: machine code by its content, kernels by their entry. Never unloaded."""

    def __init__(self, device: GpuDevice) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._codes: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Function] = {}

    def function(self, binary: Binary, entry: str) -> Function:
        """The loaded kernel ``entry``; call it with the GPU's context current."""
        key = binary.key or _content(binary)
        found = self._functions.get((key, entry))
        if found is not None:
            return found
        if entry not in binary.entries:
            raise UnknownNameError("entry", entry, binary.entries)
        with self._lock:
            if (key, entry) not in self._functions:
                self._functions[key, entry] = self._find(key, binary, entry)
            return self._functions[key, entry]

    def _find(self, key: str, binary: Binary, entry: str) -> Function:
        device = self._device
        what = f"machine code for {binary.arch}" if binary.cubin is not None else "PTX"
        doing = f"loading {what} with kernel {entry!r} on {device.name} ({device.arch})"
        with device._scope(doing):
            code = self._codes.get(key)
            if code is None:
                if binary.cubin is not None:
                    code = core().ObjectCode.from_cubin(binary.cubin, name=binary.filename)
                else:
                    code = core().ObjectCode.from_ptx(_terminated(binary.ptx), name=binary.filename)
            try:
                kernel = code.get_kernel(entry)
                raw = check(driver().cuKernelGetFunction(kernel.handle), doing)
                # Drivers load late, some only at the first launch: what is wrong is to be told here.
                check(driver().cuFuncLoad(raw), doing)
            except Exception as error:
                said = self._compiler_log(binary.ptx) if binary.cubin is None else ""
                if said:
                    raise DeviceError(f"{translated(error, doing) or error}; it says: {said}") from error
                raise
            self._codes[key] = code
            sizes = tuple(parameter.size for parameter in binary.entries[entry].parameters)
            return Function((code, kernel), raw, entry, sizes)

    def _compiler_log(self, ptx: str) -> str:
        """What the driver's own PTX compiler says of ``ptx``; cuda.core does not pass it on."""
        cuda = driver()
        log = bytearray(_LOG_BYTES)
        options = [
            cuda.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
            cuda.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ]
        status, module = cuda.cuModuleLoadDataEx(_terminated(ptx), len(options), options, [log, len(log)])
        if not int(status):
            cuda.cuModuleUnload(module)
        return " ".join(log.split(b"\0", 1)[0].decode(errors="replace").split())


def _content(binary: Binary) -> str:
    code = binary.cubin if binary.cubin is not None else binary.ptx.encode()
    return hashlib.sha256(code).hexdigest()


def _terminated(ptx: str) -> bytes:
    return ptx.rstrip("\0").encode() + b"\0"


def start(function: Function, launch: Launch, packed: Sequence[bytes], stream: Stream) -> None:
    """Start a launch; the driver copies the arguments before it returns."""
    function.allow(launch)
    keep, addresses = _arguments(packed)
    cuda = driver()
    if launch.cluster is None:
        grid, block = launch.grid, launch.block
        (status,) = cuda.cuLaunchKernel(function.raw, *grid, *block, launch.shared, stream.raw, addresses, 0)
    else:
        (status,) = cuda.cuLaunchKernelEx(_configuration(launch, stream), function.raw, addresses, 0)
    del keep  # up to here the driver read from it
    if int(status):
        raise DeviceError(
            explain(status, f"starting kernel {function.entry!r} ({launch}) on {stream.device.name}")
        )


def _configuration(launch: Launch, stream: Stream) -> Any:
    cuda = driver()
    made = cuda.CUlaunchConfig()
    made.gridDimX, made.gridDimY, made.gridDimZ = launch.grid
    made.blockDimX, made.blockDimY, made.blockDimZ = launch.block
    made.sharedMemBytes, made.hStream = launch.shared, stream.raw
    if launch.cluster is not None:
        attribute = cuda.CUlaunchAttribute()
        attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = attribute.value.clusterDim
        size.x, size.y, size.z = launch.cluster
        made.attrs, made.numAttrs = [attribute], 1
    return made


def _arguments(packed: Sequence[bytes]) -> tuple[Any, int]:
    """The arguments' bytes in memory of their own, and the address of the pointers to each of them."""
    offsets, end = [], 0
    for part in packed:
        offsets.append(end)
        end += -(-len(part) // _ALIGN) * _ALIGN
    block = ctypes.create_string_buffer(end + _ALIGN)
    base = -(-ctypes.addressof(block) // _ALIGN) * _ALIGN
    for offset, part in zip(offsets, packed, strict=True):
        ctypes.memmove(base + offset, part, len(part))
    pointers = (ctypes.c_void_p * max(len(packed), 1))(*(base + offset for offset in offsets))
    return (block, pointers), ctypes.addressof(pointers)
