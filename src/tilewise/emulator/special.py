"""Special registers: where a thread is, how large everything is, what time it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewise.emulator.emit import Value
from tilewise.emulator.layout import BLOCK, LAUNCH
from tilewise.emulator.tables import unknown

if TYPE_CHECKING:
    from tilewise.emulator.values import Values

__all__ = ["special"]

_BLOCK = {"%ctaid.x": BLOCK.X, "%ctaid.y": BLOCK.Y, "%ctaid.z": BLOCK.Z}
_LAUNCH = {
    "%nctaid.x": LAUNCH.GRID_X,
    "%nctaid.y": LAUNCH.GRID_Y,
    "%nctaid.z": LAUNCH.GRID_Z,
    "%nsmid": LAUNCH.MULTIPROCESSORS,
    "%dynamic_smem_size": LAUNCH.DYNAMIC_BYTES,
    "%total_smem_size": LAUNCH.SHARED_BYTES,
}
_LANE_MASKS = {
    "%lanemask_eq": lambda lane: 1 << lane,
    "%lanemask_lt": lambda lane: (1 << lane) - 1,
    "%lanemask_le": lambda lane: (2 << lane) - 1,
    "%lanemask_gt": lambda lane: 0xFFFF_FFFF & ~((2 << lane) - 1),
    "%lanemask_ge": lambda lane: 0xFFFF_FFFF & ~((1 << lane) - 1),
}
_NONE = {"%tid.w", "%ctaid.w", "%nsmid_reserved", "%envreg0", "%gridid", "%is_explicit_cluster"}


def special(e: Values, name: str) -> tuple[Value, str]:
    """A special register: the ``u`` of its shape, or its vector if it has none; and its PTX type."""
    if name in e.program.threads:
        return _thread(e, name), "u32"
    if name in _BLOCK:
        return e.load("i32", e.offset("%block", _BLOCK[name]), 4), "u32"
    if name in _LAUNCH:
        return e.cast("trunc", e.load("i64", e.offset("%ctx", _LAUNCH[name]), 8), "i32"), "u32"
    if name in ("%ntid.x", "%ntid.y", "%ntid.z"):
        return e.const("i32", e.program.block["xyz".index(name[-1])]), "u32"
    if name in ("%ntid.w", "%nctaid.w"):
        return e.const("i32", 1), "u32"
    if name == "%laneid":
        return e.const("i32", 0), "u32"
    if name in _LANE_MASKS:
        return e.lanes("i32", [_LANE_MASKS[name](lane) for lane in range(32)]), "u32"
    if name == "%warpid":
        return Value("i32", "%index"), "u32"
    if name == "%nwarpid":
        return e.const("i32", e.program.warps), "u32"
    if name == "%smid":
        number = e.load("i64", e.offset("%block", BLOCK.NUMBER), 8)
        count = e.load("i64", e.offset("%ctx", LAUNCH.MULTIPROCESSORS), 8)
        return e.cast("trunc", e.op("urem", number, count), "i32"), "u32"
    if name.startswith(("%clock", "%globaltimer")):
        return _time(e, name)
    if name in _NONE or name.startswith("%envreg"):
        return e.const("i32", 0), "u32"
    raise unknown(e.now, f"the special register {name} is not supported")


def _thread(e: Values, name: str) -> Value:
    """A thread index: from a table with a row for each warp."""
    rows, shape = e.program.threads[name]
    if shape is not None and shape.value is not None:
        return e.const("i32", shape.value)
    table = f"{e.name}.{name[1:]}"
    index = e.cast("zext", Value("i32", "%index"), "i64")
    if shape is not None:
        values = ", ".join(f"i32 {row[0]}" for row in rows)
        _table(e, table, f"[{len(rows)} x i32] [{values}]")
        place = e.set("ptr", f"getelementptr i32, ptr @{table}, {index}")
        return e.load("i32", place.ref, 4)
    values = ", ".join(e.lanes("i32", row).type + " " + e.lanes("i32", row).ref for row in rows)
    _table(e, table, f"[{len(rows)} x <32 x i32>] [{values}]")
    place = e.set("ptr", f"getelementptr <32 x i32>, ptr @{table}, {index}")
    return e.load("<32 x i32>", place.ref, 128)


def _table(e: Values, name: str, text: str) -> None:
    line = f"@{name} = private unnamed_addr constant {text}, align 128"
    if line not in e.globals:
        e.globals.append(line)


def _time(e: Values, name: str) -> tuple[Value, str]:
    e.declare("llvm.readcyclecounter", "i64", [])
    now = e.set("i64", "call i64 @llvm.readcyclecounter()")
    if name in ("%clock64", "%globaltimer"):
        return now, "u64"
    if name in ("%clock_hi", "%globaltimer_hi"):
        now = e.op("lshr", now, e.const("i64", 32))
    return e.cast("trunc", now, "i32"), "u32"
