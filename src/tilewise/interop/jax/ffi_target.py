"""The handler that XLA calls for a product in compiled code: its buffers as arrays, multiplied by tilewise.matmul."""

from __future__ import annotations

import functools
from typing import Any

import tilewise as tw
from tilewise.devices import gpu
from tilewise.errors import ArgumentError, TilewiseError
from tilewise.interop.jax.call_frame import INTERNAL, INVALID_ARGUMENT, CallFrame, Handler, XlaFailure
from tilewise.interop.jax.product_attributes import ProductAttributes
from tilewise.interop.jax.xla_buffers import XlaBuffer
from tilewise.interop.view import CUDA, HOST

__all__ = ["TARGET", "handlers"]

TARGET = "tilewise.product"
"""The name that XLA knows the handler by."""


def _handle(on_gpu: bool, pointer: Any) -> int | None:
    """Multiply; an error of XLA if that fails, None if not. NOTE: nothing may be raised through C."""
    frame: CallFrame = pointer.contents
    try:
        if not frame.answer_metadata():
            frame.check()
            _multiply(frame, on_gpu)
    except XlaFailure as failure:
        return failure.error
    except TilewiseError as error:
        return frame.make_error(
            INVALID_ARGUMENT if isinstance(error, ArgumentError) else INTERNAL, str(error)
        )
    except BaseException as error:
        return frame.make_error(INTERNAL, f"tilewise: {type(error).__name__}: {error}")
    return None


def _multiply(frame: CallFrame, on_gpu: bool) -> None:
    """The product of a frame's arguments, into its results."""
    attributes = ProductAttributes.from_json(frame.read_text(b"product"))
    operands, results = frame.operands(), frame.results()
    if 0 in results[0][1]:
        return
    allocated: list[tuple[int, int]] = []
    where: dict[str, Any] = {"space": HOST}
    if on_gpu:

        def allocate(size: int) -> int:
            address = frame.allocate(size)
            allocated.append((size, address))
            return address

        ordinal = gpu.find_gpu(results[0][0]).ordinal
        where = {"space": (CUDA, ordinal), "stream": frame.stream(), "allocate": allocate}
    try:
        a, b, *added = (XlaBuffer.in_rows(*one, **where) for one in operands)
        out, *pre = (XlaBuffer.in_rows(*one, **where) for one in results)
        given: dict[str, Any] = dict(zip(attributes.arrays, added, strict=True))
        if attributes.keep:
            (given["pre"],) = pre
        tw.matmul(
            a.transposed() if attributes.transpose_a else a,
            b.transposed() if attributes.transpose_b else b,
            out,
            epilogue=tw.epilogue(attributes.expression, **given, **attributes.numbers)
            if attributes.changes_sums
            else None,
            arithmetic=attributes.arithmetic,
            device=None if on_gpu else attributes.device,
        )
    finally:
        for size, address in allocated:
            frame.free(size, address)


handlers: dict[str, Any] = {
    "cpu": Handler(functools.partial(_handle, False)),
    "CUDA": Handler(functools.partial(_handle, True)),
}
"""By XLA's name of the platform. NOTE: they must live as long as XLA may call them, which is always."""
