"""Special registers: where a thread is, how large everything is, what time it is."""

from __future__ import annotations

import platform

from tilewise.emulator.layout import BLOCK, LAUNCH, HostCall
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.tables import unsupported
from tilewise.emulator.ptx.elements import RESERVED
from tilewise.emulator.ptx.types import llvm_scalar

__all__ = ["WORKSPACE_HALVES", "special"]

_AXES = ("x", "y", "z")


def _axes(name: str, x: int, y: int, z: int) -> dict[str, int]:
    return {f"{name}.{axis}": place for axis, place in zip(_AXES, (x, y, z), strict=True)}


_BLOCK = {
    **_axes("%ctaid", BLOCK.X, BLOCK.Y, BLOCK.Z),
    **_axes("%clusterid", BLOCK.CLUSTER_X, BLOCK.CLUSTER_Y, BLOCK.CLUSTER_Z),
    **_axes("%cluster_ctaid", BLOCK.RANK_X, BLOCK.RANK_Y, BLOCK.RANK_Z),
    "%cluster_ctarank": BLOCK.RANK,
}
_LAUNCH = {
    **_axes("%nctaid", LAUNCH.GRID_X, LAUNCH.GRID_Y, LAUNCH.GRID_Z),
    **_axes("%nclusterid", LAUNCH.CLUSTERS_X, LAUNCH.CLUSTERS_Y, LAUNCH.CLUSTERS_Z),
    **_axes("%cluster_nctaid", LAUNCH.CLUSTER_X, LAUNCH.CLUSTER_Y, LAUNCH.CLUSTER_Z),
    "%cluster_nctarank": LAUNCH.CLUSTER,
    "%nsmid": LAUNCH.MULTIPROCESSORS,
    "%dynamic_smem_size": LAUNCH.DYNAMIC_BYTES,
    "%total_smem_size": LAUNCH.SHARED_BYTES,
    "%aggr_smem_size": LAUNCH.SHARED_BYTES,
}
_LANE_MASKS = {
    "%lanemask_eq": lambda lane: 1 << lane,
    "%lanemask_lt": lambda lane: (1 << lane) - 1,
    "%lanemask_le": lambda lane: (2 << lane) - 1,
    "%lanemask_gt": lambda lane: 0xFFFF_FFFF & ~((2 << lane) - 1),
    "%lanemask_ge": lambda lane: 0xFFFF_FFFF & ~((1 << lane) - 1),
}
# The address of the memory that grid.sync() counts arrivals in, which the driver gives a cooperative launch.
WORKSPACE_HALVES = {"%envreg1": 32, "%envreg2": 0}  # the bit of the address from which on each has 32
_FIXED = {
    "%tid.w": (0, "u32"),
    "%ntid.w": (1, "u32"),
    "%ctaid.w": (0, "u32"),
    "%nctaid.w": (1, "u32"),
    "%laneid": (0, "u32"),  # the u of its shape
    "%clusterid.w": (0, "u32"),
    "%nclusterid.w": (1, "u32"),
    "%cluster_ctaid.w": (0, "u32"),
    "%cluster_nctaid.w": (1, "u32"),
    "%gridid": (0, "u64"),
    "%current_graph_exec": (0, "u64"),
    **{f"%envreg{i}": (0, "u32") for i in range(32) if f"%envreg{i}" not in WORKSPACE_HALVES},
    **{f"%pm{i}": (0, "u32") for i in range(8)},
    **{f"%pm{i}_64": (0, "u64") for i in range(8)},
}
# On x86 the cycle counter may be read by every program; elsewhere only a counter of fixed pace may.
_COUNTER = "readcyclecounter" if platform.machine().lower() in ("x86_64", "amd64") else "readsteadycounter"


def special(e: Context, name: str) -> tuple[Value, str]:
    """A special register: the ``u`` of its shape, or its vector if it has none; and its PTX type."""
    if name in e.program.threads:
        return _thread(e, name), "u32"
    if name in _BLOCK:
        return e.load("i32", e.offset("%block", _BLOCK[name]), 4), "u32"
    if name in _LAUNCH:
        found = e.cast("trunc", e.load("i64", e.offset("%ctx", _LAUNCH[name]), 8), "i32")
        if name == "%total_smem_size" and RESERVED in e.program.places:  # the system's own does not count
            found -= e.program.places[RESERVED].size
        return found, "u32"
    if name == "%is_explicit_cluster":
        return e.cast("trunc", e.load("i64", e.offset("%ctx", LAUNCH.EXPLICIT), 8), "i1"), "pred"
    if name in ("%ntid.x", "%ntid.y", "%ntid.z"):
        return e.const("i32", e.program.block["xyz".index(name[-1])]), "u32"
    if name in _FIXED:
        value, type_ = _FIXED[name]
        return e.const(llvm_scalar(type_), value), type_
    if name in WORKSPACE_HALVES:
        address = e.load("i64", e.offset("%ctx", LAUNCH.WORKSPACE), 8)
        return e.cast("trunc", address >> WORKSPACE_HALVES[name], "i32"), "u32"
    if name in _LANE_MASKS:
        return e.lanes("i32", [_LANE_MASKS[name](lane) for lane in range(32)]), "u32"
    if name == "%warpid":
        return Value("i32", "%index", e), "u32"
    if name == "%nwarpid":
        return e.const("i32", e.program.warps), "u32"
    if name == "%smid":
        number = e.load("i64", e.offset("%block", BLOCK.NUMBER), 8)
        count = e.load("i64", e.offset("%ctx", LAUNCH.MULTIPROCESSORS), 8)
        return e.cast("trunc", number % count, "i32"), "u32"
    if name in ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"):
        return _time(e, name)
    raise unsupported(e.now, f"the special register {name} is not supported")


def _thread(e: Context, name: str) -> Value:
    """A thread index: from a table with a row for each warp."""
    rows, shape = e.program.threads[name]
    if shape is not None and shape.value is not None:
        return e.const("i32", shape.value)
    index = e.cast("zext", Value("i32", "%index", e), "i64")
    values = [e.lanes("i32", row) if shape is None else e.const("i32", row[0]) for row in rows]
    type_, listed = values[0].type, ", ".join(map(str, values))
    table = e.constant(f"[{len(rows)} x {type_}]", f"[{listed}]", align=128)
    place = e.set("ptr", f"getelementptr {type_}, ptr {table}, {index}")
    return e.load(type_, place.ref, 128 if shape is None else 4)


def _time(e: Context, name: str) -> tuple[Value, str]:
    """Cycles of the CPU, or nanoseconds."""
    if name.startswith("%clock"):
        now = e.call(f"llvm.{_COUNTER}", "i64")
    else:
        _, buffer = e.call_host(HostCall.TIME, e.now.line, e.const("i32", 1))
        now = e.load("i64", buffer, 64)
    if name in ("%clock64", "%globaltimer"):
        return now, "u64"
    if name in ("%clock_hi", "%globaltimer_hi"):
        now >>= 32
    return e.cast("trunc", now, "i32"), "u32"
