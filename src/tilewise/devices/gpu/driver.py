"""The CUDA driver: loaded on first use, its errors translated, its current context restored.

Nothing here imports ``cuda.*`` before a function is called: a machine without a GPU pays nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tilewise.errors import DeviceError, DeviceUnavailable, TilewiseError

__all__ = [
    "ADVICE",
    "LOST",
    "Context",
    "ContextScope",
    "NativeEntries",
    "beside_captures",
    "check",
    "core",
    "driver",
    "explain",
    "find_native_entries",
    "probe",
    "translate_error",
]

_FORKED = (
    "CUDA was started before this process was forked, and a forked process cannot use it; "
    "start workers with multiprocessing.get_context('spawn')"
)
_without_driver: list[Any] = []  # the bindings, once they have found no driver
_started_in: int | None = None  # the process that started CUDA
# Whose signatures compiled calls know. NOTE: the driver refuses a version that is newer than itself.
_ENTRY_VERSION = 12_000

# After one of these the driver refuses every later call on the context.
LOST = frozenset(
    "CUDA_ERROR_" + name
    for name in (
        "ASSERT",
        "CONTAINED",
        "CONTEXT_IS_DESTROYED",
        "ECC_UNCORRECTABLE",
        "EXTERNAL_DEVICE",
        "HARDWARE_STACK_ERROR",
        "ILLEGAL_ADDRESS",
        "ILLEGAL_INSTRUCTION",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "LAUNCH_FAILED",
        "LAUNCH_TIMEOUT",
        "MISALIGNED_ADDRESS",
        "NVLINK_UNCORRECTABLE",
    )
)

_LOST_TEXT = "the context is lost: start a new process"
_RECOMPILE = "compile it again for the arch of this GPU"
_FIND_IT = "find it on the emulator, which names the line: tilewise check"
_ADVICE = {
    "ASSERT": "an assert in the kernel failed",
    "COMPAT_NOT_SUPPORTED_ON_DEVICE": "the driver is too old for its compatibility library: update it",
    "COOPERATIVE_LAUNCH_TOO_LARGE": "a cooperative launch must fit on the GPU at once: use fewer blocks",
    "DEVICE_UNAVAILABLE": "another process holds this GPU, or its compute mode forbids it: see nvidia-smi",
    "ECC_UNCORRECTABLE": "the GPU's memory has an error that it could not correct: reset the GPU",
    "HARDWARE_STACK_ERROR": "the kernel overran its stack",
    "ILLEGAL_ADDRESS": _FIND_IT,
    "ILLEGAL_INSTRUCTION": _RECOMPILE,
    "INVALID_CLUSTER_SIZE": "no such cluster fits on this GPU: use smaller clusters or less shared memory",
    "INVALID_IMAGE": "the machine code is damaged: empty the cache and compile again",
    "INVALID_PTX": "the driver's own compiler refuses the PTX",
    "INVALID_SOURCE": f"the driver cannot read this code: {_RECOMPILE}",
    "JIT_COMPILER_NOT_FOUND": "the driver has no PTX compiler installed: build machine code instead",
    "LAUNCH_FAILED": _FIND_IT,
    "LAUNCH_OUT_OF_RESOURCES": "the block needs more registers or shared memory than there are",
    "LAUNCH_TIMEOUT": "the kernel ran longer than the display driver allows: split the work",
    "MISALIGNED_ADDRESS": f"a vector load or store needs a multiple of its size as address; {_FIND_IT}",
    "MPS_CLIENT_TERMINATED": "another client of the CUDA MPS server failed",
    "NO_BINARY_FOR_GPU": f"the machine code is for another GPU: {_RECOMPILE}",
    "NO_DEVICE": "the driver finds no NVIDIA GPU",
    "NOT_INITIALIZED": "if this process was forked after CUDA was started, use multiprocessing's 'spawn'",
    "OPERATING_SYSTEM": "the driver's device files cannot be opened: check the rights of /dev/nvidia*",
    "OUT_OF_MEMORY": "free arrays that are no longer needed, with .free() or del, or use smaller ones",
    "STREAM_CAPTURE_INVALIDATED": "something that cannot be captured ran inside capture()",
    "STREAM_CAPTURE_ISOLATION": "captured work cannot wait for work outside the capture",
    "STREAM_CAPTURE_UNSUPPORTED": "this cannot be captured in a graph: do it before or after the capture",
    "STUB_LIBRARY": "a stub of libcuda is on the library path: take the toolkit's stubs folder off it",
    "SYSTEM_DRIVER_MISMATCH": "the driver's library and kernel module differ: restart after the update",
    "SYSTEM_NOT_READY": "the GPUs' fabric is not ready: is the nvidia-fabricmanager service running?",
    "UNKNOWN": "restart the process; if it stays, see dmesg and nvidia-smi",
    "UNSUPPORTED_PTX_VERSION": "the PTX is newer than the driver: update the driver or build machine code",
}
ADVICE = {"CUDA_ERROR_" + name: advice for name, advice in _ADVICE.items()}


@functools.cache
def driver() -> Any:
    """``cuda.bindings.driver``: the driver's calls as they are."""
    return importlib.import_module("cuda.bindings.driver")


@functools.cache
def core() -> Any:
    """``cuda.core``: owns contexts, streams, events, memory, graphs and loaded code."""
    found = importlib.import_module("cuda.core")
    if not hasattr(found, "Device"):  # before 0.5 it was all in cuda.core.experimental
        raise DeviceUnavailable("this cuda-core is too old; pip install --upgrade 'cuda-core>=1'")
    return found


# ── whether there is a GPU to use ──────────────────────────────────────────────────────────────────────


def probe() -> tuple[int, str]:
    """How many GPUs there are; if none, one line that says why and what to do. Never raises."""
    global _started_in
    if _started_in is not None and _started_in != os.getpid():
        return 0, _FORKED
    try:
        count, why = _count()
    except Exception as error:  # whatever a broken driver does, the answer is that there is no GPU
        return 0, f"the CUDA driver cannot be used: {_one_line(error)}"
    if count:
        _started_in = os.getpid()
    return count, why


def _count() -> tuple[int, str]:
    try:
        cuda = driver()
    except ImportError as error:
        return (
            0,
            f"cuda-bindings cannot be imported ({_one_line(error)}); pip install cuda-core cuda-bindings",
        )
    if cuda in _without_driver:
        return 0, _NO_DRIVER
    if importlib.util.find_spec("cuda.core") is None:
        return 0, "cuda-core is not installed; pip install cuda-core"
    try:
        (status,) = cuda.cuInit(0)
    except RuntimeError as error:
        if type(error).__name__ == "DynamicLibNotFoundError":
            _without_driver.append(cuda)  # looking for the library takes long, and it will not appear
            return 0, _NO_DRIVER
        return 0, f"the CUDA driver cannot be loaded ({_one_line(error)}); update the NVIDIA driver"
    if int(status):
        return 0, _why_not_started(status)
    version = check(cuda.cuDriverGetVersion(), "asking for the driver's version")
    bindings = str(importlib.import_module("cuda.bindings").__version__)
    if version // 1000 < int(bindings.split(".")[0]):
        return 0, _too_old(version, bindings)
    count = check(cuda.cuDeviceGetCount(), "counting the GPUs")
    return int(count), "" if count else _no_device()


_NO_DRIVER = (
    "there is no NVIDIA driver library (libcuda.so.1 or nvcuda.dll); install the NVIDIA driver, "
    "or start the container with its GPUs (docker run --gpus all)"
)


def _too_old(version: int, bindings: str) -> str:
    have, need = f"{version // 1000}.{version % 1000 // 10}", bindings.split(".")[0]
    return (
        f"the NVIDIA driver is too old: it supports CUDA {have} and cuda-bindings {bindings} needs {need}.0; "
        "update the driver (580 or newer for CUDA 13)"
    )


def _why_not_started(status: Any) -> str:
    if status.name == "CUDA_ERROR_NO_DEVICE":
        return _no_device()
    return explain(status, "starting CUDA")


def _no_device() -> str:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is None:
        return "the driver finds no NVIDIA GPU; is one fitted, and passed to this container?"
    if hidden.strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU; unset it"
    return f"the driver finds no NVIDIA GPU with CUDA_VISIBLE_DEVICES={hidden!r}; is that the right one?"


# ── the driver's functions by their address ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class NativeEntries:
    """Addresses of the driver's C functions, for compiled code to call."""

    launch_kernel_ex: int  # cuLaunchKernelEx
    tensor_map_encode_tiled: int  # cuTensorMapEncodeTiled, or 0 if this driver lacks it
    ctx_get_current: int  # cuCtxGetCurrent
    ctx_push_current: int  # cuCtxPushCurrent_v2
    ctx_pop_current: int  # cuCtxPopCurrent_v2


def find_native_entries() -> NativeEntries:
    """Ask the driver where its functions are."""

    def address(name: str) -> int:
        # The driver takes names without their version, and gives the newest that the version asked for has.
        status, found, *_ = driver().cuGetProcAddress(name.encode(), _ENTRY_VERSION, 0)
        return int(found) if not int(status) and found else 0

    def required(name: str) -> int:
        found = address(name)
        if not found:
            raise DeviceUnavailable(
                f"the NVIDIA driver has no {name}: it is too old; update it to CUDA 12 or newer"
            )
        return found

    return NativeEntries(
        required("cuLaunchKernelEx"),
        address("cuTensorMapEncodeTiled"),
        required("cuCtxGetCurrent"),
        required("cuCtxPushCurrent"),
        required("cuCtxPopCurrent"),
    )


# ── errors in words ────────────────────────────────────────────────────────────────────────────────────


def check(result: tuple[Any, ...], doing: str) -> Any:
    """Return what a driver call gave back after its status; raise a DeviceError if it failed."""
    if int(result[0]):
        raise DeviceError(explain(result[0], doing))
    if len(result) == 2:
        return result[1]
    return result[1:] or None


@contextlib.contextmanager
def beside_captures() -> Iterator[None]:
    """Within, this thread's calls that take or give back memory do not end what is captured elsewhere."""
    relaxed = driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    earlier = check(driver().cuThreadExchangeStreamCaptureMode(relaxed), "preparing for a capture elsewhere")
    try:
        yield
    finally:
        driver().cuThreadExchangeStreamCaptureMode(earlier)


def explain(status: Any, doing: str, more: str = "") -> str:
    """The driver's name and words for a status, what it happened while doing, and what to do about it."""
    try:
        failed, text = driver().cuGetErrorString(status)
        words = text.decode(errors="replace") if not int(failed) and text else ""
    except Exception:  # no driver to ask, which may be just what the error is about
        words = ""
    return _sentence(status.name, words, doing, more)


def _sentence(name: str, words: str, doing: str, more: str = "") -> str:
    said = f"{name} ({words})" if words else name
    parts = [f"{said} while {doing}", more, ADVICE.get(name, "")]
    if name in LOST:
        parts.append(_LOST_TEXT)
    return "; ".join(part for part in parts if part)


def translate_error(error: BaseException, doing: str) -> DeviceError | None:
    """The DeviceError for an error of cuda.core; None if it is no driver's error."""
    if isinstance(error, DeviceError):
        return error
    found = re.match(r"(CUDA_ERROR_\w+)", str(error))
    if found:
        status = getattr(driver().CUresult, found[1], None)
        return DeviceError(
            explain(status, doing) if status is not None else f"{_one_line(error)} while {doing}"
        )
    if type(error).__module__.startswith("cuda.") or isinstance(error, RuntimeError):
        return DeviceError(f"{_one_line(error)}, while {doing}")
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# ── the current context ────────────────────────────────────────────────────────────────────────────────


class Context:
    """The primary context of one GPU: the one that PyTorch, CuPy, JAX and the CUDA runtime share."""

    __slots__ = ("address", "blame", "handle", "name", "ordinal", "process")

    def __init__(self, ordinal: int, blame: Callable[[], str]) -> None:
        """``blame`` returns what the GPU was given last: it may have broken the context."""
        self.blame = blame
        self.ordinal, self.name, self.process = ordinal, f"gpu:{ordinal}", os.getpid()
        doing = f"opening {self.name}"
        cuda = driver()
        before = check(cuda.cuCtxGetCurrent(), doing)
        try:
            core().Device(ordinal).set_current()
            self.handle = check(cuda.cuCtxGetCurrent(), doing)
        except TilewiseError as error:
            raise DeviceUnavailable(str(error)) from error
        except Exception as error:
            raise DeviceUnavailable(
                str(translate_error(error, doing) or f"{_one_line(error)} while {doing}")
            ) from error
        finally:
            cuda.cuCtxSetCurrent(before)
        self.address = int(self.handle)

    def quick_check(self, get_current: int) -> Callable[[], bool]:
        """A function that checks whether this context is current in a thread, by the driver's cuCtxGetCurrent at an
        address.

        In a fork, where nothing of CUDA may be called, it says no.
        """
        ask = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(
            get_current
        )  # NOTE: holds the GIL: one answer at a time
        answer = ctypes.c_void_p()
        place, address, process, getpid = ctypes.addressof(answer), self.address, self.process, os.getpid

        def is_current() -> bool:
            return getpid() == process and not ask(place) and answer.value == address

        return is_current

    def enter(self, doing: str) -> bool:
        """Make this context current; whether it was not and :meth:`leave` has to put the other one back."""
        if self.process != os.getpid():
            raise DeviceUnavailable(f"{self.name} cannot be used: {_FORKED}")
        cuda = driver()
        status, current = cuda.cuCtxGetCurrent()
        if int(status):
            raise DeviceError(explain(status, doing))
        if int(current) == self.address:
            return False
        check(cuda.cuCtxPushCurrent(self.handle), doing)
        return True

    def leave(self) -> None:
        """Put back the context that was current before :meth:`enter`."""
        driver().cuCtxPopCurrent()

    def scope(self, doing: str) -> ContextScope:
        """A block in which this context is current; ``doing`` goes into the error if it fails."""
        return ContextScope(self, doing)

    def device(self) -> Any:
        """cuda.core's device; it has one per thread, and this context must be current in the thread."""
        found = core().Device(self.ordinal)
        found.set_current()
        return found


class ContextScope:
    """Makes a context current, restores the previous one, and translates cuda.core's errors."""

    __slots__ = ("_context", "_doing", "_pushed")

    def __init__(self, context: Context, doing: str) -> None:
        self._context, self._doing = context, doing

    def __enter__(self) -> None:
        self._pushed = self._context.enter(self._doing)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pushed:
            self._context.leave()
        if error is None:
            return
        raised = error if isinstance(error, TilewiseError) else translate_error(error, self._doing)
        if isinstance(raised, DeviceError) and _LOST_TEXT in str(raised):
            blame = self._context.blame()
            if blame not in str(raised):
                raised.add_note(f"{self._context.name} was last seen {blame}")
        if raised is not None and raised is not error:
            raise raised from error
