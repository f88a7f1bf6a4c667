"""Lanes whose addresses lie anywhere: gathers and scatters, each kind once in a kernel's code.

A CPU takes a hundred instructions for what is one to a GPU. They stand in functions of their own, called
where they are needed: written out at every load and store they would be most of a kernel's code, and of
the time to compile it. What lies side by side after all, which only the run knows, goes as one piece.
"""

from __future__ import annotations

from tilewise.emulator.llvm.emit import Emitter, Value, suffix_of, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.interleave import is_transposed, load_rows, separate
from tilewise.emulator.lowering.memory import MemoryAccess
from tilewise.emulator.ptx.types import llvm_scalar

__all__ = ["gather", "scatter"]

_ROWS, _MASK = Value("<32 x ptr>", "%rows"), Value("i32", "%mask")


def gather(e: Context, access: MemoryAccess, rows: Value) -> list[Value]:
    """Load from a pointer in each lane that runs; the other lanes get anything."""
    element, count = llvm_scalar(access.type), access.elements
    vectors = [vector(element)] * count
    result = vectors[0] if count == 1 else "{ " + ", ".join(vectors) + " }"
    name = f"gather.{element}.{count}.{access.width}"
    if name not in e.definitions:
        body = Emitter(e)
        _load_neighbours(body, element, count, access.width, result)
        mask = body.bits(_MASK)
        if count == 1:  # LLVM's own gather
            intrinsic = f"llvm.masked.gather.{suffix_of(result)}.v32p0"
            parts = [body.call(intrinsic, result, _ROWS, access.width, mask, body.zero(result))]
        else:  # a load for each lane, from where reading is allowed if it does not run
            allowed = body.select(mask, _ROWS, body.splat(Value("ptr", "%safe")))
            places = [body.set("ptr", f"extractelement {allowed}, i64 {lane}").ref for lane in range(32)]
            parts = load_rows(body, element, count, places, access.width)
        _return_parts(body, parts, result)
        e.define(name, result, f"{_ROWS}, {_MASK}, ptr %safe", body)
    safe = e.buffers()[1]
    whole = e.call(name, result, rows, e.mask(), safe)
    if count == 1:
        return [whole]
    return [e.set(vectors[0], f"extractvalue {whole}, {i}") for i in range(count)]


def _load_neighbours(body: Emitter, element: str, count: int, width: int, result: str) -> None:
    """Where all lanes run and each has what lies behind the last one's: one load. The others go on."""
    first, size = body.set("ptr", f"extractelement {_ROWS}, i64 0"), count * width
    steps = body.lanes("i64", [lane * size for lane in range(32)])
    wanted = body.set("<32 x ptr>", f"getelementptr i8, {first}, {steps}")
    near = body.bits(body.equals(_ROWS, wanted)) & _MASK
    with body.when(body.equals(near, -1)):
        if is_transposed(element, count):
            places = [body.offset(first.ref, lane * size) for lane in range(32)]
            parts = load_rows(body, element, count, places, width)
        else:
            parts = separate(body, body.load(f"<{32 * count} x {element}>", first.ref, width), count)
        _return_parts(body, parts, result)


def _return_parts(body: Emitter, parts: list[Value], result: str) -> None:
    """Return the vectors of the lanes' first elements, second ones, …"""
    if len(parts) == 1:
        body.line(f"ret {parts[0]}")
        return
    answer = Value(result, "poison")
    for i, part in enumerate(parts):
        answer = body.set(result, f"insertvalue {answer}, {part}, {i}")
    body.line(f"ret {answer}")


def scatter(e: Context, access: MemoryAccess, rows: Value, values: list[Value]) -> None:
    """Store at a pointer in each lane that runs; of lanes that share a place the last stays."""
    element = llvm_scalar(access.type)
    type_, name = vector(element), f"scatter.{element}.{access.width}"
    if name not in e.definitions:
        body = Emitter(e)
        intrinsic = f"llvm.masked.scatter.{suffix_of(type_)}.v32p0"
        body.call(intrinsic, "void", Value(type_, "%values"), _ROWS, access.width, body.bits(_MASK))
        body.line("ret void")
        e.define(name, "void", f"{type_} %values, {_ROWS}, {_MASK}", body)
    for i, value in enumerate(values):
        places = rows
        if i:
            places = e.set("<32 x ptr>", f"getelementptr i8, {rows}, i64 {i * access.width}")
        e.call(name, "void", value, places, e.mask())
