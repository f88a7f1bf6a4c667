"""One kernel of many accesses to memory by whole warps: its arguments choose which of them runs, and where each lane goes.

Beside the accesses of ``accesses.py`` there are bulk copies of any size, tensor copies, and divisions and roots, whose
operands decide how they are done.
"""

from __future__ import annotations

import struct
from typing import Any

import tilewise as tw
from tests.harness.accesses import ACCESSES

__all__ = [
    "COPIES",
    "GROUPS",
    "QUOTIENTS",
    "ROOM",
    "Pattern",
    "make_kernel",
    "make_quotients",
    "pack_pattern",
]

ROOM = 16_384  # bytes of the array and of shared memory
Pattern = tuple[int, int, int, int, int]
"""Bytes from lane to lane, what a lane's number is cut to and turned by before that, bytes more, and which lanes run."""

_ALONE = ("mbarrier", "bulk", "st.async", "red.async", "prefetch")
GROUPS = {
    space: [line for line in ACCESSES[space] if not any(word in line for word in _ALONE)]
    for space in ("global", "shared", "cluster", "generic")
}
_TOLD = "mbarrier::complete_tx::bytes"
_TENSOR = f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.{_TOLD} [%s], [%m, {{%r0, %r1}}], [%bar]"
# Of one lane, where {n} is the size.
COPIES = [
    f"cp.async.bulk.shared::cluster.global.{_TOLD} [%s], [%g], %n, [%bar]",
    f"cp.async.bulk.shared::cluster.global.{_TOLD}.multicast::cluster [%s], [%g], %n, [%bar], 3",
    f"cp.async.bulk.shared::cluster.shared::cta.{_TOLD} [%c], [%s], %n, [%far]",
    f"cp.reduce.async.bulk.shared::cluster.shared::cta.{_TOLD}.add.u32 [%c], [%s], %n, [%far]",
    "cp.async.bulk.global.shared::cta.bulk_group [%g], [%s], %n",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%g], [%s], %n",
    "cp.async.bulk.prefetch.L2.global [%g], %n",
    f"st.async.shared::cluster.{_TOLD}.u32 [%c], 5, [%far]",
    f"st.async.shared::cluster.{_TOLD}.v4.b32 [%c], {{%r0, %r1, %r2, %r3}}, [%far]",
    f"red.async.relaxed.cluster.shared::cluster.{_TOLD}.add.u32 [%c], 5, [%far]",
    _TENSOR, f"{_TENSOR.replace('[%m', '[%wide')}",
    _TENSOR.replace(" [%s]", ".multicast::cluster [%s]") + ", 3",
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%m, {%r0, %r1}], [%s]",
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%wide, {%r0, %r1}], [%s]",
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%m, {%r0, %r1}], [%s]",
    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%m, {%r0, %r1}]",
    "prefetch.global.L2 [%g]", "prefetch.global.L1 [%g]",
]  # fmt: skip

_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 which, .param .align 4 .b8 how[20], .param .u32 size, .param .u32 across,
    .param .u32 down, .param .align 64 .b8 m[128], .param .align 64 .b8 wide[128])
{
.reg .b32 %r<4>, %t, %s, %sh, %c, %bar, %far, %which, %n, %at, %cut, %lane, %apart; .reg .b64 %d<2>, %g, %x, %y, %m, %wide; .reg .b16 %h<3>;
.reg .f32 %f<4>; .reg .b128 %q<2>; .reg .pred %p<4>, %own;
.shared .align 1024 .b8 room[18432]; .shared .align 8 .b8 bar[8];
"""
_START = """
ld.param.u64 %x, [x]; ld.param.u32 %which, [which]; mov.u64 %m, m; cvta.param.u64 %m, %m; mov.u64 %wide, wide; cvta.param.u64 %wide, %wide;
mov.u32 %t, %tid.x; mov.u32 %lane, %laneid; ld.param.u32 %cut, [how+4]; and.b32 %at, %lane, %cut; ld.param.u32 %cut, [how+8]; xor.b32 %at, %at, %cut;
ld.param.u32 %cut, [how]; mul.lo.u32 %at, %at, %cut; ld.param.u32 %cut, [how+12]; add.u32 %at, %at, %cut;
ld.param.u32 %cut, [how+16]; shr.u32 %cut, %cut, %lane; and.b32 %cut, %cut, 1; setp.ne.u32 %own, %cut, 0;
mov.u32 %sh, room; mov.u32 %bar, bar; setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [%bar], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive; barrier.cluster.wait; mapa.shared::cluster.u32 %far, %bar, 1; mapa.shared::cluster.u32 %c, %sh, 1;
add.u32 %s, %sh, %at; add.u32 %c, %c, %at; cvt.u64.u32 %d0, %at; add.u64 %g, %x, %d0; cvt.u64.u32 %d0, %s; cvta.shared.u64 %y, %d0;
ld.param.u32 %n, [size]; setp.eq.u32 %p1, %n, 0; @%p1 mov.u64 %y, %g; setp.gt.u32 %p1, %t, 40; setp.eq.and.u32 %p2, %n, 7, %p1; @%p2 mov.u64 %y, %g;
mov.b16 %h0, 1; mov.b16 %h1, 2; mov.b16 %h2, 3; mov.b64 %d0, 5; mov.b64 %d1, 6; mov.f32 %f0, 0f3F800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0;
mov.f32 %f3, %f0; mov.b128 %q0, {%d0, %d1}; mov.b128 %q1, {%d1, %d0}; ld.param.u32 %r0, [across]; ld.param.u32 %r1, [down]; mov.b32 %r2, 2; mov.b32 %r3, 3;
"""
_END = """
END:
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; cp.async.wait_all;
barrier.cluster.arrive; barrier.cluster.wait;
ret;
}
"""


def make_kernel(lines: list[str]) -> tw.Kernel:
    """The kernel of these accesses, chosen by their places."""
    found = [f"T: .branchtargets {', '.join(f'A{i}' for i in range(len(lines)))};", "brx.idx %which, T;"]
    for i, line in enumerate(lines):
        guard = "" if ".sync." in line else "@%own "
        found.append(f"A{i}: {guard}{line.replace('{s}', '%sh').replace('{x}', '%x')}; bra END;")
    return tw.Kernel.from_ptx(_HEAD + (_START + "\n".join(found)).replace("; ", ";\n") + _END, "k")


def pack_pattern(
    x: Any,
    which: int,
    pattern: Pattern,
    size: int = 0,
    at: tuple[int, int] = (0, 0),
    maps: Any = (bytes(128), bytes(128)),
) -> list[Any]:
    """The kernel's arguments; a size of 0 has generic addresses in global memory, of 7 in both."""
    return [
        x,
        which,
        struct.pack("<5I", *(number % 2**32 for number in pattern)),
        size,
        *(one % 2**32 for one in at),
        *maps,
    ]


# -- divisions and roots ------------------------------------------------------------------------------------
QUOTIENTS = [
    *(f"{op}.{way}{flush}.f32 %f2, %f0{', %f1' * (op == 'div')}" for op in ("div", "rcp", "sqrt") for way in ("rn", "rz", "rm", "rp") for flush in ("", ".ftz")),
    "div.full.f32 %f2, %f0, %f1", "div.approx.f32 %f2, %f0, %f1", "div.rn.f64 %g2, %g0, %g1", "div.rz.f64 %g2, %g0, %g1", "rcp.rn.f64 %g2, %g0", "rcp.rp.f64 %g2, %g0",
    "sqrt.rn.f64 %g2, %g0", "sqrt.rm.f64 %g2, %g0", "rsqrt.approx.f64 %g2, %g0", "rsqrt.approx.f32 %f2, %f0", "div.u32 %r2, %r0, %r1", "rem.s64 %d2, %d0, %d1",
]  # fmt: skip


def make_quotients() -> tw.Kernel:
    """A kernel of all of them, one after another, of what lies side by side in an array: two operands for each lane."""
    lines = """.version 8.6
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 few) {
.reg .b32 %t, %r<3>, %n; .reg .b64 %x, %at, %d<3>; .reg .f32 %f<3>; .reg .f64 %g<3>; .reg .pred %p;
ld.param.u64 %x, [x]; ld.param.u32 %n, [few]; mov.u32 %t, %tid.x; mad.wide.u32 %at, %t, 16, %x;
ld.global.v2.f64 {%g0, %g1}, [%at]; ld.global.v2.u64 {%d0, %d1}, [%at]; cvt.rn.f32.f64 %f0, %g0; cvt.rn.f32.f64 %f1, %g1;
cvt.u32.u64 %r0, %d0; cvt.u32.u64 %r1, %d1; setp.lt.u32 %p, %t, %n;
"""
    body = "\n".join(f"{'@%p ' * (i % 3 == 1)}{line};" for i, line in enumerate(QUOTIENTS))
    return tw.Kernel.from_ptx(f"{lines}{body}\nret;\n}}\n", "k")
