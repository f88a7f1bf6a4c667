"""One kernel of many accesses to memory: its arguments choose which of them runs, where, and in which thread.

Beside the usual loads and stores there are atomic operations, asynchronous copies, matrix loads, bulk copies, and what
changes mbarriers; through each of the spaces that memory has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tilewise as tw

__all__ = ["ACCESSES", "BLOCK", "BYTES", "make_kernel", "map_array", "pack_choice"]

BYTES = 1024  # of the array, and of the shared memory that accesses reach
BLOCK = 64

# By name: what an access is through each kind of address. {a} is its place, which the arguments move; {s} and {x} are
# places in shared and in global memory that stay.
_PLAIN = """
ld.{w}u8 %r0, {a}
ld.{w}s16 %r0, {a}
ld.{w}u32 %r0, {a}
ld.{w}b64 %d0, {a}
ld.{w}v2.u8 {%r0, %r1}, {a}
ld.{w}v2.u32 {%r0, %r1}, {a}
ld.{w}v4.f32 {%f0, %f1, %f2, %f3}, {a}
ld.{w}v2.u64 {%d0, %d1}, {a}
st.{w}u8 {a}, %r0
st.{w}u32 {a}, %r0
st.{w}v4.u16 {a}, {%h0, %h1, %h0, %h1}
st.{w}v2.b64 {a}, {%d0, %d1}
""".strip().splitlines()
_SYNCHRONISING = """
ld.volatile.{w}u32 %r0, {a}
ld.acquire.gpu.{w}u64 %d0, {a}
st.volatile.{w}u16 {a}, %h0
st.release.cta.{w}u32 {a}, %r0
atom.{w}add.u32 %r0, {a}, 1
atom.{w}cas.b16 %h0, {a}, %h1, %h0
atom.{w}exch.b64 %d0, {a}, %d1
atom.{w}cas.b128 %q0, {a}, %q1, %q1
red.{w}add.f32 {a}, %f0
red.{w}max.u64 {a}, %d0
""".strip().splitlines()
_GLOBAL = """
ld.global.nc.u32 %r0, {a}
ld.global.nc.v4.u32 {%r0, %r1, %r2, %r3}, {a}
ldu.global.u32 %r0, {a}
red.global.add.v2.f32 {a}, {%f0, %f1}
atom.global.add.noftz.f16x2 %r0, {a}, %r1
prefetch.global.L2 {a}
cp.async.ca.shared.global [{s}], {a}, 4
cp.async.ca.shared.global [{s}], {a}, 8, 3
cp.async.cg.shared.global [{s}], {a}, 16
cp.async.cg.shared.global [{s}], {a}, 16, 0
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{s}], {a}, 32, [%bar]
cp.async.bulk.global.shared::cta.bulk_group {a}, [{s}], 48
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 {a}, [{s}], 16
cp.async.bulk.prefetch.L2.global {a}, 64
""".strip().splitlines()
_SHARED = """
cp.async.ca.shared.global {a}, [{x}], 4
cp.async.ca.shared.global {a}, [{x}], 8, 5
cp.async.cg.shared.global {a}, [{x}], 16
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, {a}
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r0, %r1, %r2, %r3}, {a}
stmatrix.sync.aligned.m8n8.x2.shared.b16 {a}, {%r0, %r1}
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes {a}, [{x}], 32, [%bar]
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{s}], [{x}], 16, {a}
cp.async.bulk.global.shared::cta.bulk_group [{x}], {a}, 48
cp.reduce.async.bulk.global.shared::cta.bulk_group.min.s32 [{x}], {a}, 16
mbarrier.init.shared.b64 {a}, 3
mbarrier.inval.shared.b64 {a}
mbarrier.arrive.shared.b64 %d0, {a}
mbarrier.arrive.expect_tx.shared.b64 %d0, {a}, 16
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {a}, 16
mbarrier.test_wait.parity.shared.b64 %p2, {a}, 1
cp.async.mbarrier.arrive.shared.b64 {a}
""".strip().splitlines()
_CLUSTER = """
mbarrier.arrive.release.cluster.shared::cluster.b64 _, {a}
st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 {a}, {%r0, %r1}, [%away]
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [{c}], %r0, {a}
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 {a}, %r0, [%away]
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes {a}, [{s}], 32, [%away]
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [{s}], {a}, 16, [%bar], %h2
""".strip().splitlines()


def _spelt(lines: Sequence[str], word: str, place: str) -> list[str]:
    return [line.replace("{w}", word).replace("{a}", place) for line in lines]


# By the space, the accesses: places in the order of the kernel's labels.
ACCESSES: dict[str, list[str]] = {
    "global": [*_spelt(_PLAIN, "global.", "[%g]"), *_spelt(_SYNCHRONISING, "global.", "[%g]"), *_spelt(_GLOBAL, "", "[%g]")],
    "shared": [*_spelt(_PLAIN, "shared.", "[%s]"), *_spelt(_SYNCHRONISING, "shared.", "[%s]"), *_spelt(_SHARED, "", "[%s]")],
    "cluster": [
        *_spelt(_PLAIN, "shared::cluster.", "[%c]"), *_spelt(_SYNCHRONISING[4:], "shared::cluster.", "[%c]"),
        *_spelt(_CLUSTER[:5], "", "[%c]"), *_spelt(_CLUSTER[5:], "", "[%g]"),
    ],
    "local": [*_spelt(_PLAIN, "local.", "[%l]")],
    "const": _spelt([line for line in _PLAIN if line.startswith("ld")], "const.", "[%k]"),
    "param": ["ld.param.u32 %r0, [four]", "ld.param.v4.u32 {%r0, %r1, %r2, %r3}, [four]"],
    "generic": [*_spelt(_PLAIN, "", "[%y]"), *_spelt(_SYNCHRONISING, "", "[%y]")],
}  # fmt: skip

_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.const .align 16 .b8 con[64] = {1, 2, 3};
.visible .entry k(.param .u64 x, .param .u32 which, .param .u32 who, .param .u64 by, .param .u32 kind, .param .u32 rank,
    .param .align 16 .b8 four[16])
{
.reg .b32 %r<4>, %t, %i, %s, %c, %bar, %away, %which, %who, %n, %kind, %rank, %sh, %sc; .reg .b64 %d<4>, %g, %l, %k, %y, %x, %by, %z;
.reg .b16 %h<3>; .reg .f32 %f<4>; .reg .b128 %q<2>; .reg .pred %p<4>, %own;
.shared .align 128 .b8 sh[1024]; .shared .align 8 .b8 bar[8]; .local .align 16 .b8 lo[64];
"""
# Kinds of generic addresses: of global, shared, local and constant memory, of a parameter, of another block's shared memory,
# and a number as it is.
_START = """
ld.param.u64 %x, [x]; ld.param.u32 %which, [which]; ld.param.u32 %who, [who]; ld.param.u64 %by, [by]; ld.param.u32 %kind, [kind];
ld.param.u32 %rank, [rank]; mov.u32 %t, %tid.x; mov.u32 %n, %ctaid.x; mad.lo.u32 %i, %n, 64, %t; setp.eq.u32 %own, %i, %who;
mov.u32 %sh, sh; mov.u32 %bar, bar; mad.lo.u32 %s, %t, 16, %sh; mov.b32 %r0, 0; mov.b32 %r1, 1; mov.b32 %r2, 2; mov.b32 %r3, 3;
st.shared.v4.u32 [%s], {%r0, %r0, %r0, %r0}; st.local.v4.u32 [lo], {%r0, %r0, %r0, %r0}; st.local.v4.u32 [lo+16], {%r0, %r0, %r0, %r0};
st.local.v4.u32 [lo+32], {%r0, %r0, %r0, %r0}; st.local.v4.u32 [lo+48], {%r0, %r0, %r0, %r0};
mov.b16 %h0, 1; mov.b16 %h1, 2; mov.b16 %h2, 3; mov.b64 %d0, 5; mov.b64 %d1, 6; mov.f32 %f0, 0f3F800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0;
mov.f32 %f3, %f0; mov.b128 %q0, {%d0, %d1}; mov.b128 %q1, {%d1, %d0}; setp.eq.u32 %p0, %t, 0;
@%p0 mbarrier.init.shared.b64 [%bar], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;
barrier.cluster.arrive; barrier.cluster.wait;
mapa.shared::cluster.u32 %sc, %sh, %rank; mapa.shared::cluster.u32 %away, %bar, %rank;
@!%own mov.u64 %by, 0;
cvt.u32.u64 %r0, %by; add.u32 %s, %sh, %r0; add.u32 %c, %sc, %r0; add.u64 %g, %x, %by; mov.u64 %l, lo; mov.u64 %k, con;
setp.eq.u32 %p1, %kind, 0; @%p1 mov.u64 %y, %x; setp.eq.u32 %p1, %kind, 1; cvt.u64.u32 %z, %sh; @%p1 cvta.shared.u64 %y, %z;
setp.eq.u32 %p1, %kind, 2; @%p1 cvta.local.u64 %y, %l; setp.eq.u32 %p1, %kind, 3; @%p1 cvta.const.u64 %y, %k;
setp.eq.u32 %p1, %kind, 4; mov.u64 %z, four; @%p1 cvta.param.u64 %y, %z; setp.eq.u32 %p1, %kind, 5; cvt.u64.u32 %z, %sc;
@%p1 cvta.shared::cluster.u64 %y, %z; setp.eq.u32 %p1, %kind, 6; @%p1 mov.u64 %y, 0;
add.u64 %l, %l, %by; add.u64 %k, %k, %by; add.u64 %y, %y, %by; mov.b32 %r0, 0;
shr.u32 %n, %i, 5; shr.u32 %rank, %who, 5; setp.ne.u32 %p1, %n, %rank; @%p1 bra END;
"""
# Only what a whole warp does together is run by more than the one thread.
_END = """
END:
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; cp.async.wait_all;
mov.u32 %n, 0;
barrier.cluster.arrive; barrier.cluster.wait;
ret;
}
"""


def make_kernel(space: str) -> tw.Kernel:
    """The kernel of the accesses of a space."""
    names = ACCESSES[space]
    lines = [f"T: .branchtargets {', '.join(f'A{i}' for i in range(len(names)))};", "brx.idx %which, T;"]
    for i, name in enumerate(names):
        line = name.replace("{s}", "%sh").replace("{x}", "%x").replace("{c}", "%sc")
        guard = "" if ".sync." in name else "@%own "
        lines.append(f"A{i}: {guard}{line}; bra END;")
    text = _HEAD + _START.replace("; ", ";\n") + "\n".join(lines).replace("; ", ";\n") + _END
    return tw.Kernel.from_ptx(text, "k")


def map_array(device: Any) -> Any:
    """The array that the accesses reach."""
    return device.array(np.zeros(BYTES // 4, np.uint32))


def pack_choice(array: Any, which: int, who: int, by: int, kind: int = 0, rank: int = 1) -> list[Any]:
    """The kernel's arguments."""
    return [array, which, who, by % 2**64, kind, rank, bytes(16)]
