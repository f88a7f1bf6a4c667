"""Machine code on a GPU: loaded once, its kernels found once, launched with arguments given as bytes."""

from __future__ import annotations

import ctypes
import hashlib
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tilewise.devices.gpu.driver import check, core, driver, explain, translate_error
from tilewise.devices.gpu.ledger import Shape, launch_of, shape_of
from tilewise.errors import DeviceError, LaunchError, UnknownNameError
from tilewise.launch import Dim3, Launch, LaunchLimits, check_launch
from tilewise.toolchain.binary import Binary

__all__ = ["ArgumentBlock", "Configuration", "Function", "Launcher", "Programs", "launcher", "start"]

_ALIGN = 64  # of an argument in host memory; the most that a parameter asks for (a tensor map)
_LOG_BYTES = 16 * 1024
_CLUSTER_PORTABLE = 8
_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_CONFIGURATIONS = 256  # remembered of a kernel

# cuLaunchKernelEx(configuration, function, addresses of the arguments, extra) → status
Launcher = Callable[[int, int, int, None], int]
_LAUNCHER = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)  # NOTE: lets other threads run meanwhile


def launcher(address: int) -> Launcher:
    """The driver's cuLaunchKernelEx, called without Python objects of its structures."""
    return _LAUNCHER(address)


# ── how a launch is described ──────────────────────────────────────────────────────────────────────────


class _Attribute(ctypes.Structure):
    """The driver's CUlaunchAttribute. Its value is a cluster's size, or one number in the place of the first."""

    _fields_ = (
        ("id", ctypes.c_uint32),
        ("gap", ctypes.c_uint32),
        ("value", ctypes.c_uint32 * 3),
        ("rest", ctypes.c_uint8 * 52),
    )


class _Config(ctypes.Structure):
    """The driver's CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint32),
    )


class Configuration:
    """Grid, block, shared bytes, attributes and stream of a launch, laid out as the driver reads them."""

    __slots__ = ("_attributes", "_config", "address", "shape")

    def __init__(self, shape: Shape, stream_handle: int) -> None:
        grid, block, shared, cluster, cooperative, programmatic = self.shape = shape
        triple = ctypes.c_uint32 * 3
        self._config = _Config(triple(*grid), triple(*block), shared, stream_handle)
        found = [_Attribute(_CLUSTER_DIMENSION, 0, triple(*cluster))] if cluster is not None else []
        found += [_Attribute(_COOPERATIVE, 0, triple(1))] if cooperative else []
        found += [_Attribute(_PROGRAMMATIC, 0, triple(1))] if programmatic else []
        self._attributes = (_Attribute * len(found))(*found)
        if found:
            self._config.attributes = ctypes.addressof(self._attributes)
            self._config.attribute_count = len(found)
        self.address = ctypes.addressof(self._config)


class ArgumentBlock:
    """Memory for the arguments of a launch, one behind the other, and the pointers to them.

    ``pointers`` is the address of the pointers, which is what the driver wants; ``offsets`` says where each
    argument begins in the memory at ``address``.
    """

    __slots__ = ("_buffer", "_layout", "_pointers", "_start", "address", "offsets", "pointers")

    def __init__(self, sizes: Sequence[int]) -> None:
        offsets, end = [], 0
        for size in sizes:
            offsets.append(end)
            end += -(-size // _ALIGN) * _ALIGN
        self._buffer = ctypes.create_string_buffer(end + _ALIGN)
        start = ctypes.addressof(self._buffer)
        self.address = -(-start // _ALIGN) * _ALIGN
        self._start, self.offsets = self.address - start, tuple(offsets)
        self._layout = struct.Struct("=" + "".join(f"{size}s{-size % _ALIGN}x" for size in sizes))
        self._pointers = (ctypes.c_void_p * max(len(offsets), 1))(*(self.address + at for at in offsets))
        self.pointers = ctypes.addressof(self._pointers)

    def write(self, packed: Sequence[bytes]) -> None:
        """Copy the bytes of every argument to its offset; each must have the size given at first."""
        self._layout.pack_into(self._buffer, self._start, *packed)


# ── kernels ────────────────────────────────────────────────────────────────────────────────────────────


class Function:
    """A kernel that is loaded on one GPU, with what one block of it may have.

    ``address`` is the driver's CUfunction handle. It lives as long as the process: nothing is unloaded.
    """

    __slots__ = (
        "_blocks",
        "_clusters_raised",
        "_configurations",
        "_dynamic",
        "_lock",
        "address",
        "code",
        "device_name",
        "entry",
        "label",
        "launching",
        "raw",
        "registers",
        "sizes",
        "static",
        "threads",
    )

    def __init__(self, code: Any, raw: Any, entry: str, sizes: tuple[int, ...], device_name: str) -> None:
        self.code, self.raw, self.entry, self.sizes = code, raw, entry, sizes
        self.address, self.device_name = int(raw), device_name
        self.label, self.launching = f"kernel {entry!r}", f"launching kernel {entry!r} on {device_name}"
        self._lock = threading.Lock()
        self._clusters_raised = False
        self._configurations: dict[tuple[Shape, int], Configuration] = {}
        self._blocks: list[ArgumentBlock] = []  # that no launch is using
        attributes = driver().CUfunction_attribute
        self.threads = self._attribute(attributes.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        self.registers = self._attribute(attributes.CU_FUNC_ATTRIBUTE_NUM_REGS)
        self.static = self._attribute(attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        self._dynamic = self._attribute(attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)

    def _attribute(self, which: Any) -> int:
        return int(check(driver().cuFuncGetAttribute(which, self.raw), f"asking about kernel {self.entry!r}"))

    def check_threads(self, launch: Launch) -> None:
        """Refuse a block that this kernel cannot have, before the driver says less about it."""
        if launch.threads_per_block > self.threads:
            raise LaunchError(
                "block",
                f"must have at most {self.threads:,} threads for kernel {self.entry!r}, "
                f"which takes {self.registers} registers a thread",
                launch.threads_per_block,
                "use smaller blocks, or compile with __launch_bounds__",
            )

    def check_sizes(self, packed: Sequence[bytes]) -> None:
        """Refuse arguments whose bytes are not those of the kernel's parameters."""
        # NOTE: the driver reads as many pointers as the kernel has parameters, whatever we pass.
        if tuple(map(len, packed)) != self.sizes:
            raise LaunchError(
                "packed",
                f"must hold arguments of {list(self.sizes)} bytes for kernel {self.entry!r}",
                list(map(len, packed)),
            )

    def allow(self, shared: int, cluster: Dim3 | None) -> None:
        """Ask the driver for what it gives only when asked: much shared memory, large clusters.

        What was asked for once stays. Call it with the GPU's context current.
        """
        cuda = driver()
        attributes = cuda.CUfunction_attribute
        with self._lock:
            if shared > self._dynamic:
                doing = f"asking for {shared:,} dynamic shared bytes for kernel {self.entry!r}"
                wanted = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                check(cuda.cuFuncSetAttribute(self.raw, wanted, shared), doing)
                self._dynamic = shared
            if cluster is not None and not self._clusters_raised:
                x, y, z = cluster
                if x * y * z > _CLUSTER_PORTABLE:
                    doing = f"asking for clusters of {x * y * z} blocks for kernel {self.entry!r}"
                    wanted = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                    check(cuda.cuFuncSetAttribute(self.raw, wanted, 1), doing)
                    self._clusters_raised = True

    def check_cooperative(self, launch: Launch) -> None:
        """Refuse a cooperative launch of more blocks than the GPU holds; call it with the context current."""
        cuda, doing = driver(), f"asking how many blocks of kernel {self.entry!r} fit on {self.device_name}"
        held = check(
            cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                self.raw, launch.threads_per_block, launch.shared
            ),
            doing,
        )
        which = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        count = check(cuda.cuDeviceGetAttribute(which, check(cuda.cuCtxGetDevice(), doing)), doing)
        if launch.blocks > held * count:
            raise LaunchError(
                "grid",
                f"must have at most {held * count:,} blocks in a cooperative launch of kernel {self.entry!r} on "
                f"{self.device_name}: each of its {count} multiprocessors holds {held}, of {self.registers} registers "
                f"a thread and {self.static + launch.shared:,} shared bytes",
                f"{' × '.join(map(str, launch.grid))} = {launch.blocks:,}",
                "let each block do several blocks' work; kernel.occupancy says what bounds them",
            )

    def configure(self, launch: Launch, limits: LaunchLimits, stream_handle: int) -> Configuration:
        """The checked configuration of a launch on a stream, remembered: call it with the context current."""
        key = shape_of(launch), stream_handle
        found = self._configurations.get(key)
        if found is None:
            check_launch(launch, limits, self.static)
            self.check_threads(launch)
            self.allow(launch.shared, launch.cluster)
            if launch.cooperative:
                self.check_cooperative(launch)
            if len(self._configurations) >= _CONFIGURATIONS:
                self._configurations.clear()  # launches under way hold their own
            found = self._configurations[key] = Configuration(*key)
        return found

    def take_block(self, packed: Sequence[bytes]) -> ArgumentBlock:
        """Memory with these arguments in it, to be given back after the launch."""
        self.check_sizes(packed)
        try:
            block = self._blocks.pop()  # NOTE: one step, as append is: no block is ever in two launches
        except IndexError:
            block = ArgumentBlock(self.sizes)
        block.write(packed)
        return block

    def give_back(self, block: ArgumentBlock) -> None:
        """Let another launch use this memory: the driver copies the arguments before it returns."""
        self._blocks.append(block)


def start(launch_kernel: Launcher, function: Function, configuration: Configuration, pointers: int) -> None:
    """Start a launch of arguments that ``pointers`` is the address of; call it with the context current."""
    status = launch_kernel(configuration.address, function.address, pointers, None)
    if status:
        doing = (
            f"starting kernel {function.entry!r} ({launch_of(configuration.shape)}) on {function.device_name}"
        )
        raise DeviceError(explain(driver().CUresult(status), doing))


class Programs:
    """What is loaded on one GPU: machine code by its content, kernels by their entry. Never unloaded."""

    def __init__(self, name: str, arch: str, scope: Callable[[str], AbstractContextManager[None]]) -> None:
        """``scope(doing)`` makes the context of the GPU called ``name`` current."""
        self._name, self._arch, self._scope = name, arch, scope
        self._lock = threading.Lock()
        self._codes: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Function] = {}

    def function(self, binary: Binary, entry: str) -> Function:
        """The kernel ``entry``, loaded on first use."""
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

    def variable(self, binary: Binary, symbol: str) -> tuple[int, int]:
        """The address and the bytes of a variable of a binary, which is loaded when it is first asked for."""
        key = binary.key or _content(binary)
        doing = f"looking for the variable {symbol!r} of {binary.filename} on {self._name}"
        with self._lock, self._scope(doing):
            code = self._codes.get(key) or _code_of(binary)
            try:
                found = driver().cuLibraryGetGlobal(code.handle, symbol.encode())
                if found[0].name == "CUDA_ERROR_NOT_FOUND":  # managed variables have a list of their own
                    found = driver().cuLibraryGetManaged(code.handle, symbol.encode())
                address, nbytes = check(found, doing)
            except Exception as error:
                self._raise_with_log(error, binary, doing)
                raise
            self._codes[key] = code
            return int(address), int(nbytes)

    def _find(self, key: str, binary: Binary, entry: str) -> Function:
        what = f"machine code for {binary.arch}" if binary.cubin is not None else "PTX"
        doing = f"loading {what} with kernel {entry!r} on {self._name} ({self._arch})"
        with self._scope(doing):
            code = self._codes.get(key) or _code_of(binary)
            try:
                kernel = code.get_kernel(entry)
                raw = check(driver().cuKernelGetFunction(kernel.handle), doing)
                # Drivers load late, some only at the first launch: what is wrong is reported here.
                check(driver().cuFuncLoad(raw), doing)
            except Exception as error:
                self._raise_with_log(error, binary, doing)
                raise
            self._codes[key] = code
            sizes = tuple(parameter.size for parameter in binary.entries[entry].parameters)
            return Function((code, kernel), raw, entry, sizes, self._name)

    def _raise_with_log(self, error: Exception, binary: Binary, doing: str) -> None:
        """Raise an error of loading a binary with the log of the driver's compiler of its PTX, if there is one."""
        said = self._compiler_log(binary.ptx) if binary.cubin is None else ""
        if said:
            raise DeviceError(f"{translate_error(error, doing) or error}; it says: {said}") from error

    def _compiler_log(self, ptx: str) -> str:
        """The log of the driver's own PTX compiler for ``ptx``; cuda.core does not pass it on."""
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


def _code_of(binary: Binary) -> Any:
    """A binary as a cuda.core object, which loads it on first use."""
    if binary.cubin is not None:
        return core().ObjectCode.from_cubin(binary.cubin, name=binary.filename)
    return core().ObjectCode.from_ptx(_terminated(binary.ptx), name=binary.filename)


def _content(binary: Binary) -> str:
    code = binary.cubin if binary.cubin is not None else binary.ptx.encode()
    return hashlib.sha256(code).hexdigest()


def _terminated(ptx: str) -> bytes:
    return ptx.rstrip("\0").encode() + b"\0"
