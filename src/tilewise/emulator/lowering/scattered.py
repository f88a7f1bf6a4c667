"""Lanes whose addresses lie anywhere: gathers and scatters, each kind once in a kernel's code.

A CPU takes a hundred instructions for what is one to a GPU. They stand in functions of their own, called
where they are needed: written out at every load and store they would be most of a kernel's code, and of
the time to compile it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewise.emulator.llvm.emit import Emitter, Value, join, vector
from tilewise.emulator.lowering.memory import MemoryAccess
from tilewise.emulator.ptx.types import llvm_scalar

if TYPE_CHECKING:
    from tilewise.emulator.lowering.lower import Lowering

__all__ = ["gather", "scatter"]

_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_ROWS, _MASK = Value("<32 x ptr>", "%rows"), Value("i32", "%mask")


def gather(e: Lowering, access: MemoryAccess, rows: Value) -> list[Value]:
    """Load from a pointer in each lane that runs; the other lanes get anything."""
    element, count = llvm_scalar(access.type), access.elements
    vectors = [vector(element)] * count
    result = vectors[0] if count == 1 else "{ " + ", ".join(vectors) + " }"
    name = f"gather.{element}.{count}.{access.width}"
    if not e.has_function(name):
        body = _one(element, access.width) if count == 1 else _several(element, count, access.width, result)
        e.add_function(
            name, f"define internal {result} @{name}({_ROWS}, {_MASK}, ptr %safe) #0 noinline", body
        )
    safe = e.buffers()[1]
    whole = e.set(result, f"call {result} @{name}({rows}, {e.mask()}, ptr {safe})")
    if count == 1:
        return [whole]
    return [e.set(vectors[0], f"extractvalue {whole}, {i}") for i in range(count)]


def _one(element: str, align: int) -> Emitter:
    """One element a lane: LLVM's own gather."""
    body, type_ = Emitter(), vector(element)
    name = f"llvm.masked.gather.v32{_SUFFIX.get(element, element)}.v32p0"
    body.declare(name, type_, ["<32 x ptr>", "i32", "<32 x i1>", type_])
    mask = body.bits(_MASK)
    found = body.set(type_, f"call {type_} @{name}({_ROWS}, i32 {align}, {mask}, {type_} zeroinitializer)")
    body.line(f"ret {found}")
    return body


def _several(element: str, count: int, align: int, result: str) -> Emitter:
    """Several elements a lane: a load for each lane, from where reading is allowed if it does not run."""
    body = Emitter()
    elsewhere = Value("<32 x ptr>", body.splat_pointer("%safe"))
    rows = body.select(body.bits(_MASK), _ROWS, elsewhere)
    pieces = []
    for lane in range(32):
        place = body.set("ptr", f"extractelement {rows}, i64 {lane}")
        pieces.append(body.load(f"<{count} x {element}>", place.ref, align))
    whole = join(body, pieces)
    answer = Value(result, "poison")
    for i in range(count):
        part = body.shuffle(whole, [lane * count + i for lane in range(32)])
        answer = body.set(result, f"insertvalue {answer}, {part}, {i}")
    body.line(f"ret {answer}")
    return body


def scatter(e: Lowering, access: MemoryAccess, rows: Value, values: list[Value]) -> None:
    """Store at a pointer in each lane that runs; of lanes that share a place the last stays."""
    element = llvm_scalar(access.type)
    type_, name = vector(element), f"scatter.{element}.{access.width}"
    if not e.has_function(name):
        body = Emitter()
        intrinsic = f"llvm.masked.scatter.v32{_SUFFIX.get(element, element)}.v32p0"
        body.declare(intrinsic, "void", [type_, "<32 x ptr>", "i32", "<32 x i1>"])
        mask = body.bits(_MASK)
        body.line(f"call void @{intrinsic}({type_} %values, {_ROWS}, i32 {access.width}, {mask})")
        body.line("ret void")
        e.add_function(
            name, f"define internal void @{name}({type_} %values, {_ROWS}, {_MASK}) #0 noinline", body
        )
    for i, value in enumerate(values):
        places = rows
        if i:
            places = e.set("<32 x ptr>", f"getelementptr i8, {rows}, i64 {i * access.width}")
        e.line(f"call void @{name}({value}, {places}, {e.mask()})")
