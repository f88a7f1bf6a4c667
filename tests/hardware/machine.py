"""Where jobs run: a GPU through the driver's own calls, or the emulator."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tests.hardware.job import Array, Job, Matrix, Start

__all__ = ["Emulated", "Failed", "Gpu", "Hung", "Machine", "machine"]

_NOT_READY = 600
_LOG_BYTES = 8192


class Failed(Exception):
    """The driver refused, or the kernel broke."""


class Hung(Failed):
    """The kernel does not end; the process has to."""


class Machine(Protocol):
    def run(self, job: Job, seconds: float = 30.0) -> dict[str, Array]:
        """Run a job; its results by buffer."""


def machine(name: str) -> Machine:
    return Emulated() if name == "emulator" else Gpu()


class Emulated:
    """The emulator with some options, through tilewise's own front."""

    def __init__(self, **options: Any) -> None:
        import tilewise as tw

        self._tw = tw
        self._device = tw.device("emulator", **options)

    def run(self, job: Job, seconds: float = 30.0) -> dict[str, Array]:
        arrays = {name: self._device.array(array) for name, array in job.buffers.items()}
        for start in job.starts:
            args: list[Any] = []
            for arg in start.args:
                if isinstance(arg, Matrix):
                    args.append(arg.packed(arrays[arg.buffer].ptr))
                else:
                    args.append(arrays[arg] if isinstance(arg, str) else arg)
            kernel = self._tw.Kernel.from_ptx(job.ptx, start.entry)
            self.start(kernel, start, args, seconds)
        return {name: arrays[name].numpy() for name in job.results}

    def start(self, kernel: Any, start: Start, args: list[Any], seconds: float) -> None:
        """Run one launch to its end."""
        kernel(start.grid, start.block, args, start.shared, device=self._device, timeout=seconds)


class Gpu:
    """GPU 0 of this machine, by the CUDA driver alone: no package of a certain version is needed."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._modules: dict[int, tuple[Any, ctypes.c_void_p]] = {}

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._cuda, name)(*args)
        if status:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(status, ctypes.byref(text))
            raise Failed(f"{name}: {(text.value or b'?').decode()}")

    def driver(self) -> int:
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def load(self, job: Job) -> ctypes.c_void_p:
        """A job's module; the last few are kept."""
        code = job.cubin if job.cubin is not None else job.ptx.encode() + b"\0"
        key = hash(code)
        if key not in self._modules:
            if len(self._modules) > 16:
                for _, old in self._modules.values():
                    self._call("cuModuleUnload", old)
                self._modules.clear()
            self._modules[key] = (code, self._load(code))
        return self._modules[key][1]

    def _load(self, code: bytes) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        # CU_JIT_ERROR_LOG_BUFFER and its size.
        options = (ctypes.c_int * 2)(5, 6)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), code, 2, options, values)
        except Failed as error:
            raise Failed(f"{error}; {log.value.decode(errors='replace').strip()}") from None
        return module

    def allocate(self, array: Array) -> int:
        pointer = ctypes.c_uint64()
        host = np.ascontiguousarray(array)
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(host.nbytes, 16)))
        if host.nbytes:
            self.put(pointer.value, host)
        return pointer.value

    def put(self, pointer: int, host: Array) -> None:
        address = ctypes.c_void_p(host.ctypes.data)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), address, ctypes.c_size_t(host.nbytes))

    def get(self, pointer: int, like: Array) -> Array:
        host = np.empty(like.shape, like.dtype)
        address = ctypes.c_void_p(host.ctypes.data)
        self._call("cuMemcpyDtoH_v2", address, ctypes.c_uint64(pointer), ctypes.c_size_t(host.nbytes))
        return host

    def free(self, pointers: Sequence[int]) -> None:
        for pointer in pointers:
            self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def function(self, module: ctypes.c_void_p, start: Start) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, start.entry.encode())
        if start.shared:
            self._call("cuFuncSetAttribute", function, 8, start.shared)
        return function

    def launch(self, function: ctypes.c_void_p, start: Start, addresses: dict[str, int]) -> None:
        """Start a kernel on the default stream."""
        held = []
        for arg in start.args:
            if isinstance(arg, Matrix):
                data = arg.packed(addresses[arg.buffer])
            elif isinstance(arg, str):
                data = addresses[arg].to_bytes(8, "little")
            else:
                data = np.asarray(arg).tobytes()
            held.append(ctypes.create_string_buffer(data, max(len(data), 8)))
        pointers = (ctypes.c_void_p * max(len(held), 1))(*(ctypes.addressof(one) for one in held))
        sizes = [*start.grid, *start.block, start.shared]
        self._call("cuLaunchKernel", function, *map(ctypes.c_uint, sizes), None, pointers, None)

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            status = self._cuda.cuStreamQuery(None)
            if not status:
                return
            if status != _NOT_READY:
                self._call("cuStreamQuery", None)
            if time.monotonic() > end:
                raise Hung(f"not ended after {seconds:.0f} s")

    def run(self, job: Job, seconds: float = 30.0) -> dict[str, Array]:
        module = self.load(job)
        addresses = {name: self.allocate(array) for name, array in job.buffers.items()}
        for start in job.starts:
            self.launch(self.function(module, start), start, addresses)
        self.wait(seconds)
        found = {name: self.get(addresses[name], job.buffers[name]) for name in job.results}
        self.free(list(addresses.values()))
        return found
