"""NVRTC, the compiler library: one function that compiles, one that gives its version.

NVRTC comes from a wheel. It needs no CUDA toolkit, no host compiler and no driver, and returns PTX and
machine code from one call.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.errors import ToolError

__all__ = ["Output", "compile_program", "supported", "version"]


@dataclass(frozen=True, slots=True)
class Output:
    """What NVRTC gave back. ``ptx`` is empty when ``ok`` is false."""

    ok: bool
    log: str
    ptx: str = ""
    cubin: bytes = b""
    lowered: Mapping[str, str] | None = None


class _Unforked:
    """What a fork must not interrupt. Any number of threads may do it at once; a fork waits for them all.

    In the child, NVRTC's own locks would be held for ever by threads that it does not have.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        if hasattr(os, "register_at_fork"):
            open_ = self._changed.release
            os.register_at_fork(before=self._close, after_in_parent=open_, after_in_child=open_)

    def __enter__(self) -> None:
        with self._changed:
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def _close(self) -> None:
        self._changed.acquire()
        while self._inside:
            self._changed.wait()


_UNFORKED = _Unforked()


@functools.cache
def _library() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:  # the loader raises types of its own, unknown before it is imported
        reason = str(error).strip().splitlines()
        raise ToolError(
            "NVRTC, the CUDA C++ compiler library, cannot be loaded "
            f"({reason[0] if reason else type(error).__name__}); pip install nvidia-cuda-nvrtc cuda-bindings"
        ) from None
    return nvrtc


@functools.cache
def version() -> tuple[int, int]:
    """NVRTC's own version, such as (13, 5)."""
    _, major, minor = _library().nvrtcVersion()
    return int(major), int(minor)


@functools.cache
def supported() -> tuple[int, ...]:
    """The compute capabilities that this NVRTC compiles for, such as 75 and 90."""
    _, archs = _library().nvrtcGetSupportedArchs()
    return tuple(sorted(int(arch) for arch in archs))


def compile_program(
    source: str,
    filename: str,
    options: Sequence[str],
    headers: Mapping[str, str],
    expressions: Sequence[str] = (),
) -> Output:
    """Compile ``source`` once. ``headers`` are found by the names they are included by."""
    with _UNFORKED:
        return _compile_program(source, filename, options, headers, expressions)


def _compile_program(
    source: str,
    filename: str,
    options: Sequence[str],
    headers: Mapping[str, str],
    expressions: Sequence[str],
) -> Output:
    nvrtc = _library()
    names = [name.encode() for name in headers]
    texts = [text.encode() for text in headers.values()]
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), filename.encode(), len(names), texts, names))
    try:
        for expression in expressions:
            _checked(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if int(result) != 0:
            reason = _checked(nvrtc.nvrtcGetErrorString(result)).decode()
            return Output(False, log or f"{filename}: error: {reason}")
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
        cubin = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        lowered = {
            expression: _checked(nvrtc.nvrtcGetLoweredName(program, expression.encode())).decode()
            for expression in expressions
        }
        return Output(True, log, ptx, cubin, lowered)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(answer: Any) -> Any:
    result, *values = answer
    if int(result) != 0:
        raise ToolError(f"NVRTC failed: {result.name}")
    return values[0] if values else None


def _bytes(size: Any, get: Any, program: Any) -> bytes:
    buffer = bytes(_checked(size(program)))
    if buffer:
        _checked(get(program, buffer))  # NOTE: the binding writes into the bytes object that it is given
    return buffer


def _text(size: Any, get: Any, program: Any) -> str:
    # NVRTC's texts end in a NUL.
    return _bytes(size, get, program).rstrip(b"\0 ").decode("utf-8", "replace").strip("\n")
