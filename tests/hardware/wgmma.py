"""Part B, second half: the asynchronous products of Hopper on the same tiles as mma's.

All four warps of a group hold the same tile of A and C, so that one of them tells the result. B goes to
shared memory, where its two registers of every lane lie as the core matrices of a layout without swizzle.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.hardware.job import Job, Start
from tests.hardware.matrix import forms as all_forms
from tests.hardware.matrix import job as plain
from tests.hardware.matrix import key
from tests.harness.fragments import Form

__all__ = ["forms", "job", "jobs"]

# Bytes of a row of A are always 32: so a lane has four registers of A and two of B.
_SHAPES = {
    "m16n8k16": ("f16", "bf16"), "m16n8k8": ("tf32",), "m16n8k32": ("e4m3", "e5m2", "s8", "u8"),
}  # fmt: skip


def forms() -> list[Form]:
    return [form for form in all_forms() if not form.sparse and form.a in _SHAPES.get(form.shape, ())]


def job(form: Form) -> Job:
    made = plain(form)
    start = Start("k", made.starts[0].grid, (128, 1, 1), made.starts[0].args)
    return Job(key(form).replace("mma", "wgmma", 1), _text(form), [start], made.buffers, ["d"])


def jobs() -> Iterator[Job]:
    return map(job, forms())


def _text(form: Form) -> str:
    kind = "f32" if form.d == "f32" else "b32"
    count = form.registers("d")
    lines = [
        ".version 9.0", ".target sm_90a", ".address_size 64",
        ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pe, .param .u64 pd) {",
        f".reg .b32 %lane, %tile, %s, %x, %a<4>, %b<2>; .reg .{kind} %d<{count}>; .reg .b64 %p, %o, %desc;",
        ".reg .pred %first, %yes; .shared .align 128 .b8 tile_b[256];",
        "mov.u32 %x, %tid.x; and.b32 %lane, %x, 31; mov.u32 %tile, %ctaid.x; setp.lt.u32 %first, %x, 32;",
    ]  # fmt: skip

    def place(name: str, registers: int) -> None:
        lines.append(
            f"ld.param.u64 %p, [p{name}]; mul.wide.u32 %o, %tile, {registers * 128}; add.s64 %p, %p, %o;"
        )
        lines.append("mul.wide.u32 %o, %lane, 4; add.s64 %p, %p, %o;")

    place("a", 4)
    lines += [f"ld.global.b32 %a{i}, [%p+{128 * i}];" for i in range(4)]
    place("b", 2)
    lines += [f"ld.global.b32 %b{i}, [%p+{128 * i}];" for i in range(2)]
    place("c", count)
    lines += [f"ld.global.{kind} %d{i}, [%p+{128 * i}];" for i in range(count)]
    # Lane 4·g + t has the t-th word of the g-th column: columns are 16 bytes apart, core matrices 128.
    lines += ["mov.u32 %s, tile_b; shl.b32 %x, %lane, 2; add.u32 %x, %s, %x;"]
    lines += [f"@%first st.shared.b32 [%x+{128 * i}], %b{i};" for i in range(2)]
    lines += ["fence.proxy.async.shared::cta; bar.sync 0;"]
    # The descriptor: the address and both distances in units of 16 bytes.
    lines += ["shr.u32 %x, %s, 4; and.b32 %x, %x, 0x3fff; cvt.u64.u32 %desc, %x;"]
    lines += [f"or.b64 %desc, %desc, {8 << 16 | 8 << 32};", "setp.eq.u32 %yes, 0, 0;"]
    d, a = (", ".join(f"%{name}{i}" for i in range(n)) for name, n in (("d", count), ("a", 4)))
    flags = {"f16": ", 1, 1, 0", "bf16": ", 1, 1, 0", "s8": "", "u8": ""}.get(form.a, ", 1, 1")
    finite = ".satfinite" if form.after else ""
    shape = form.shape.replace("m16", "m64")
    lines += ["wgmma.fence.sync.aligned;"]
    lines += [
        f"wgmma.mma_async.sync.aligned.{shape}{finite}.{form.d}.{form.a}.{form.b} {{{d}}}, {{{a}}}, %desc, %yes{flags};"
    ]
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    place("d", count)
    lines += [f"@%first st.global.{kind} [%p+{128 * i}], %d{i};" for i in range(count)]
    return "\n".join([*lines, "ret;", "}", ""])
