"""Two kernels of many things that programs do wrongly other than by an address: barriers and mbarriers that are not used as
they must be, lanes that name others that do not come, registers of products in flight, memory that holds nothing yet, calls
that lead nowhere. Arguments choose one of them.

Kernels are written out of the texts below, by label; all threads come to each, and %own is one of them.
"""

from __future__ import annotations

import tilewise as tw

__all__ = ["BLOCK", "MISUSES", "SLOW", "make_kernel"]

BLOCK = 128

_BAR = "mbarrier.init.shared.b64 [%bar]"
_TOLD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_TENSOR = "cp.async.bulk.tensor.{0}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%sh], [%m, {{{1}}}], [%bar]"
_PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}"
_SUMS = f"{_PRODUCT}, %m0, %m1, 1, 1, 1, 0, 0"
_OF_REGISTERS = f"{_PRODUCT}, {{%a0, %a1, %a2, %a3}}, %m1, 1, 1, 1, 0"
_TOGETHER = "barrier.cluster.arrive; barrier.cluster.wait"

_GROUPS = {
    "ends": [
        "@%own trap", "mov.u64 %d0, text; @%own call fail, (%d0, %d0, 77, %d0, 1)", "mov.u32 %r0, 2; @%own brx.idx %r0, TWO; TWO: .branchtargets ON0, ON0; ON0:",
        "@%own call (%r0), deeper, (%t)", "mov.u64 %d0, 0; @%own call (%r0), %d0, (%t), kindly", "mov.u64 %d0, none; @%own call (%r0), %d0, (%t), kindly",
        "mov.u64 %d0, 64; @%own call (%d1), malloc, (%d0)", "mov.u64 %d0, 24; call (%d1), malloc, (%d0); @%own call free, (%d1)",
        "mov.u64 %d0, 8; @%own call (%d1), malloc, (%d0); @%own call free, (%d1); @%own call free, (%d1)", "@%own call free, (%x)",
        "mov.u64 %d0, 8; @%own call (%d1), malloc, (%d0); @%own st.u32 [%d1+16], 5", "mov.u64 %d0, 99; @%own call (%r0), vprintf, (%d0, %x)",
        "mov.u64 %d0, 0; cvta.global.u64 %d1, %x; @%own call (%r0), vprintf, (%d0, %d1)", "@%own call (%r0), vprintf, (%x, %x)", "@%own exit; bar.sync 0",
        "@%own ret", "setp.lt.u32 %p1, %t, 40; @%p1 exit; bar.warp.sync -1; bar.sync 0", "nanosleep.u32 10", "griddepcontrol.wait",
    ],
    "barriers": [
        "@%own bar.sync 0", "setp.lt.u32 %p1, %t, 32; @%p1 bar.sync 1, 64", "mov.u32 %r0, 33; bar.sync 1, %r0", "mov.u32 %r0, 16; barrier.sync %r0, 128",
        "mov.u32 %r0, 0; barrier.sync 2, %r0", "setp.lt.u32 %p1, %t, 32; selp.u32 %r0, 64, 96, %p1; bar.sync 1, %r0", "and.b32 %r0, %t, 1; barrier.sync %r0, 128",
        "@%own barrier.sync 3, 128", "@!%own barrier.sync 3, 128", "bar.arrive 4, 128; bar.sync 4, 128", "setp.lt.u32 %p1, %t, 96; @%p1 bar.sync 0", "mov.u32 %r0, 160; barrier.sync 2, %r0",
        "setp.eq.u32 %p1, %t, 5; @%p1 bar.red.popc.u32 %r0, 0, %p0", "setp.lt.u32 %p1, %t, 64; @%p1 bra L1; bar.sync 5; bra L2; L1: bar.sync 5; L2:",
        "and.b32 %r0, %t, 1; setp.eq.u32 %p1, %r0, 0; @%p1 bra L3; bar.sync 6; bra L4; L3: bar.sync 6; L4:",
        "@%own bar.warp.sync 1", "@%own bar.warp.sync 0xffffffff", "@!%own bar.warp.sync 0xffffffff", "shl.b32 %r0, 1, %lane; bar.warp.sync %r0", "bar.warp.sync 0xf0f0f0f0",
        "@%own barrier.cluster.arrive", "barrier.cluster.arrive; barrier.cluster.arrive", "barrier.cluster.wait", "@%own barrier.cluster.arrive; @%own barrier.cluster.wait",
        "setp.eq.u32 %p1, %rank, 0; @%p1 barrier.cluster.arrive; @%p1 barrier.cluster.wait; exit", "setp.eq.u32 %p1, %rank, 1; @%p1 exit; bar.sync 0", "setp.eq.u32 %p1, %rank, 1; @%p1 bar.sync 7, 192",
    ],
    "lanes": [
        "vote.sync.any.pred %p1, %p0, 0xfffffff0", "@%own vote.sync.all.pred %p1, %p0, -1", "setp.lt.u32 %p1, %lane, 16; @%p1 vote.sync.ballot.b32 %r0, %p0, 0xffff", "setp.lt.u32 %p1, %lane, 16; @%p1 vote.sync.ballot.b32 %r0, %p0, -1",
        "setp.lt.u32 %p1, %lane, 16; @%p1 shfl.sync.idx.b32 %r0, %t, 20, 31, 0xffff; st.global.u32 [%y], %r0", "setp.lt.u32 %p1, %lane, 16; @%p1 shfl.sync.down.b32 %r0, %t, 8, 31, -1; st.global.u32 [%y], %r0",
        "setp.lt.u32 %p1, %lane, 16; @%p1 shfl.sync.bfly.b32 %r0|%p2, %t, 16, 31, 0xffff; @%p2 st.global.u32 [%y], %r0", "setp.lt.u32 %p1, %lane, 16; @%p1 shfl.sync.up.b32 %r0, %t, 1, 0, 0xffff; add.u32 %r0, %r0, 1; st.global.u32 [%y], %r0",
        "setp.lt.u32 %p1, %lane, 16; @%p1 shfl.sync.idx.b32 %r0, %t, 20, 31, 0xffff; mov.u32 %r0, 5; st.global.u32 [%y], %r0", "setp.lt.u32 %p1, %lane, 16; @%p1 shfl.sync.idx.b32 %r0, %t, 20, 31, 0xffff; setp.eq.u32 %p2, %r0, 7; @%p2 bra L5; add.u32 %r1, %r1, 1; L5:",
        "setp.lt.u32 %p1, %lane, 16; @%p1 shfl.sync.idx.b32 %r0, %t, 3, 31, 0xffff; st.global.u32 [%y], %r0", "match.any.sync.b32 %r0, %t, 0xff", "setp.lt.u32 %p1, %lane, 8; @%p1 redux.sync.add.u32 %r0, %t, 0xff", "setp.lt.u32 %p1, %lane, 8; @%p1 redux.sync.add.u32 %r0, %t, 0x1ff",
        "setp.lt.u32 %p1, %lane, 8; @%p1 elect.sync _|%p2, 0xff", "setp.lt.u32 %p1, %lane, 8; @%p1 match.all.sync.b32 %r0|%p2, %t, 0x1fe", "setp.ge.u32 %p1, %lane, 20; @%p1 exit; shfl.sync.down.b32 %r0, %t, 16, 31, -1; st.global.u32 [%y], %r0",
        "setp.ge.u32 %p1, %lane, 20; @%p1 exit; shfl.sync.down.b32 %r0, %t, 4, 31, -1; shfl.sync.down.b32 %r1, %r0, 4, 31, -1; st.global.u32 [%y], %r1",
    ],
    "mbarriers": [
        f"@%own {_BAR}, 0", f"@%own {_BAR}, 1048575", "mov.u32 %r0, 1048576; @%own mbarrier.init.shared.b64 [%bar], %r0", f"@%own {_BAR}, 2; @%own mbarrier.arrive.shared.b64 _, [%bar], 3",
        f"@%own {_BAR}, 2; @%own mbarrier.arrive.noComplete.shared.b64 %d0, [%bar], 2", f"@%own {_BAR}, 2; @%own mbarrier.arrive.noComplete.shared.b64 %d0, [%bar], 1", f"@%own {_BAR}, 3; @%own mbarrier.arrive_drop.shared.b64 _, [%bar], 4",
        f"@%own {_BAR}, 9; mov.u32 %r0, 0; @%own mbarrier.arrive.shared.b64 %d0, [%bar], %r0", f"@%own {_BAR}, 2; @%own mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 1048575; @%own mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 1",
        f"@%own {_BAR}, 2; @%own mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 16; @%own mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 1048570", "@%own st.shared.u32 [%bar], 5; @%own mbarrier.arrive.shared.b64 _, [%bar]",
        f"@%own {_BAR}, 2; @%own mbarrier.inval.shared.b64 [%bar]; @%own mbarrier.arrive.shared.b64 _, [%bar]", f"@%own {_BAR}, 1; @%own mbarrier.arrive.shared.b64 _, [%bar]; @%own mbarrier.arrive.shared.b64 _, [%bar]; @%own mbarrier.arrive.shared.b64 _, [%bar]",
        f"@%own {_BAR}, 128; mbarrier.arrive.shared.b64 _, [%bar]", f"@%own {_BAR}, 128; bar.sync 0; mbarrier.arrive.shared.b64 _, [%bar]; mbarrier.arrive.shared.b64 _, [%bar]", "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%far]",
        f"{_BAR}, 1", f"@%own {_BAR}, 5; @%own mbarrier.pending_count.b64 %r0, 77", f"@%own {_TOLD} [%sh], [%x], 32, [%bar+8]", f"@%own {_TOLD} [%sh], [%x], 24, [%bar]", f"@%own {_TOLD} [%sh+8], [%x], 32, [%bar]",
        f"mov.u32 %r0, 0; @%own {_TOLD} [%sh], [%x], %r0, [%bar]", f"mov.u32 %r0, 1048576; @%own {_TOLD} [%sh], [%x], %r0, [%bar]", "@%own cp.async.bulk.commit_group",
    ],
    "tensors": [
        *(f"@%own {_TENSOR.format(1, '0')}; @%own {_TENSOR.format(2, '0, 0')}", f"@%own {_TENSOR.format(3, '0, 0, 0')}", f"@%own {_TENSOR.format(2, '1, 0')}", f"@%own {_TENSOR.format(2, '-4, -1')}", f"@%own {_TENSOR.format(2, '100, 100')}"),
        "@%own cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%m, {-4, 0}], [%sh]", "@%own cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%m, {2, 2}], [%sh+16]",
        "@%own cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%m, {4, 3}], [%sh]", "@%own cp.reduce.async.bulk.tensor.2d.global.shared::cta.and.tile.bulk_group [%m, {0, 0}], [%sh]", "@%own cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%m, {0, 0}], [%sh]",
        "@%own cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%sh], [%m, {0, 0, 0}], [%bar], {%h0}", "@%own cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%m, {0, 0}]",
        "@%own prefetch.tensormap [%m]", f"@%own {_TENSOR.format(2, '0, 0').replace('%m', '%x')}", f"@%own {_TENSOR.format(2, '0, 0').replace('%sh', '%sh+64')}",
    ],
    "products": [
        f"wgmma.fence.sync.aligned; {_SUMS}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0", f"{_SUMS}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0",
        f"wgmma.fence.sync.aligned; {_SUMS}; wgmma.commit_group.sync.aligned; st.global.f32 [%y], %f0; wgmma.wait_group.sync.aligned 0", f"wgmma.fence.sync.aligned; {_SUMS}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1; st.global.f32 [%y], %f3",
        f"wgmma.fence.sync.aligned; {_OF_REGISTERS}; wgmma.commit_group.sync.aligned; mov.b32 %a1, 5; wgmma.wait_group.sync.aligned 0", f"wgmma.fence.sync.aligned; mov.b32 %a2, 5; {_OF_REGISTERS}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0",
        f"mov.b32 %f1, 0; wgmma.fence.sync.aligned; {_SUMS}; {_SUMS}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0", f"wgmma.fence.sync.aligned; {_SUMS}; mov.b32 %f2, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0",
        f"st.shared.u32 [%at], %t; fence.proxy.async; wgmma.fence.sync.aligned; {_SUMS}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0", f"st.shared.u32 [%at], %t; wgmma.fence.sync.aligned; {_SUMS}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0",
        f"wgmma.fence.sync.aligned; {_SUMS}; wgmma.commit_group.sync.aligned; st.shared.u32 [%at], %t; wgmma.wait_group.sync.aligned 0", f"setp.lt.u32 %p1, %t, 32; @%p1 {_SUMS}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0",
        f"setp.lt.u32 %p1, %lane, 8; @%p1 {_SUMS}", f"mov.u64 %m0, 0x0000000000003fff; wgmma.fence.sync.aligned; {_SUMS}", f"mov.u64 %m1, 0x4000004000100000; wgmma.fence.sync.aligned; {_SUMS}", f"or.b64 %m1, %m1, 0x3fff000000000000; or.b64 %m1, %m1, 0x00003fff00000000; wgmma.fence.sync.aligned; {_SUMS}",
    ],
    "unset": [
        "@%own ld.shared.u32 %r0, [other]", "@%own st.shared.u8 [other+1], 5; @%own ld.shared.u8 %h0, [other+1]", "@%own st.shared.u8 [other+1], 5; @%own ld.shared.u16 %h0, [other]", "@%own st.shared.u16 [other+2], %h0; @%own ld.shared.u32 %r0, [other]",
        "@%own st.shared.v2.u32 [other], {%r0, %r0}; @%own ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [other]", "@%own atom.shared.add.u32 %r0, [other], 1", "@%own red.shared.add.u32 [other], 1", "@%own ld.global.u32 %r0, [%new]", "@%own st.global.u8 [%new+4], 1; @%own ld.global.u32 %r0, [%new+4]",
        "@%own st.global.u32 [%new+8], 1; @%own ld.global.u64 %d0, [%new+8]", "@%own st.global.v4.u32 [%new], {%r0, %r0, %r0, %r0}; @%own ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%new]", "@%own atom.global.exch.b32 %r0, [%new], 1", "@%own ld.u32 %r0, [%new+12]", "@%own cp.async.ca.shared.global [%sh], [%new], 4; cp.async.wait_all",
        "@%own cp.async.bulk.global.shared::cta.bulk_group [%x], [%oth], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0", "@%own cp.async.ca.shared.global [%oth], [%x], 8, 3; cp.async.wait_all; @%own ld.shared.u64 %d0, [%oth]", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%oth]",
        f"@%own {_TOLD} [%sh], [%new], 16, [%bar]", "@%own cp.async.bulk.global.shared::cta.bulk_group [%new+16], [%sh], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; @%own ld.global.u64 %d0, [%new+16]", "@%own ld.volatile.shared.u32 %r0, [other]", "@%own ld.global.nc.u32 %r0, [%new+20]",
    ],
    "exits": [
        "setp.eq.u32 %p1, %rank, 1; @%p1 exit; mapa.shared::cluster.u32 %r0, %sh, 1; ld.shared::cluster.u32 %r1, [%r0]; exit", "setp.eq.u32 %p1, %rank, 0; mapa.shared::cluster.u32 %r0, %sh, 1; @%p1 st.shared::cluster.u32 [%r0], 5; exit",
        "mapa.shared::cluster.u32 %r0, %sh, 1; @%own atom.shared::cluster.add.u32 %r1, [%r0], 5; exit", f"@%own {_TOLD} [%sh], [%x], 16, [%bar]; exit", "@%own cp.async.ca.shared.global [%sh], [%x], 4; exit", "@%own cp.async.bulk.global.shared::cta.bulk_group [%x], [%sh], 16; exit",
        "@%own st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%away], 5, [%far]; exit", f"mapa.shared::cluster.u32 %r0, %sh, 1; @%own ld.shared::cluster.u32 %r1, [%r0]; {_TOGETHER}; exit", "mov.u32 %r0, 0x5000000; @%own ld.shared::cluster.u32 %r1, [%r0]",
    ],
}  # fmt: skip
MISUSES = {f"{group} {i}": text for group, texts in _GROUPS.items() for i, text in enumerate(texts)}

_WAIT = "W{0}: mbarrier.try_wait.parity.shared.b64 %p1, [{1}], 0; @!%p1 bra W{0}"
# Those of which it takes a while until it is sure that nobody gets on.
SLOW = {
    "never complete": f"@%own {_BAR}, 2; bar.sync 0; @%own mbarrier.arrive.shared.b64 _, [%bar]; {_WAIT.format(0, '%bar')}",
    "bytes that never come": f"@%own {_BAR}, 1; fence.proxy.async; bar.sync 0; @%own mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 48; @%own {_TOLD} [%sh], [%x], 32, [%bar]; {_WAIT.format(1, '%bar')}",
    "another's mbarrier": f"{_TOGETHER}; setp.eq.u32 %p1, %rank, 0; @%p1 bra L9; {_WAIT.format(2, '%bar')}; L9: bar.sync 3, 256",
}  # fmt: skip

_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.extern .func (.param .b64 r) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 text[5] = {119, 104, 121, 63, 0};
.func (.reg .b32 r) none(.reg .b64 a, .reg .b64 b) { mov.u32 r, 1; ret; }
.func (.reg .b32 r) deeper(.reg .b32 n) { .reg .b32 v; .local .b8 more[256]; st.local.u32 [more], n; add.u32 v, n, 1; call (r), deeper, (v); ld.local.u32 v, [more]; add.u32 r, r, v; ret; }
.func fail(.reg .b64 a, .reg .b64 b, .reg .b32 c, .reg .b64 d, .reg .b64 e) {
.param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4; cvta.global.u64 a, a; cvta.global.u64 b, b; cvta.global.u64 d, d;
st.param.b64 [p0], a; st.param.b64 [p1], b; st.param.b32 [p2], c; st.param.b64 [p3], d; st.param.b64 [p4], e; call.uni __assertfail, (p0, p1, p2, p3, p4); ret; }
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 new, .param .u32 which, .param .u32 who, .param .align 64 .b8 m[128])
{
.reg .b32 %r<4>, %t, %i, %n, %lane, %rank, %sh, %at, %bar, %far, %away, %oth, %which, %a<4>; .reg .b64 %d<2>, %x, %y, %new, %m, %m0, %m1; .reg .f32 %f<4>; .reg .b16 %h<2>;
.reg .pred %p<4>, %own;
.shared .align 1024 .b8 sh[1024]; .shared .align 16 .b8 other[64]; .shared .align 8 .b64 bars[2];
kindly: .callprototype (.param .b32 _) _ (.param .b32 _);
"""
_START = """
ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.u64 %new, [new]; ld.param.u32 %which, [which]; ld.param.u32 %n, [who]; mov.u64 %m, m; cvta.param.u64 %m, %m;
mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mov.u32 %lane, %laneid; mov.u32 %rank, %cluster_ctarank; mad.lo.u32 %i, %i, 128, %t; setp.eq.u32 %own, %i, %n;
cvt.u64.u32 %d0, %i; mad.lo.u64 %y, %d0, 4, %y; mov.u32 %sh, sh; mov.u32 %oth, other; mov.u32 %bar, bars; mapa.shared::cluster.u32 %far, %bar, 1; mapa.shared::cluster.u32 %away, %sh, 1;
shr.u32 %r0, %sh, 4; cvt.u64.u32 %m0, %r0; or.b64 %m0, %m0, 0x0000000400010000; add.u64 %m1, %m0, 16; mov.b32 %r0, 0; mov.b32 %r1, 1; mov.b32 %r2, 2; mov.b32 %r3, 3;
mov.b32 %a0, 0; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0; mov.b16 %h0, 0; mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
setp.eq.u32 %p0, %t, 0; mad.lo.u32 %at, %t, 8, %sh; st.shared.v2.u32 [%at], {%r0, %r0}; @%p0 mbarrier.init.shared.b64 [%bar], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;
barrier.cluster.arrive; barrier.cluster.wait;
"""
_END = """
END:
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; cp.async.wait_all;
barrier.cluster.arrive; barrier.cluster.wait;
ret;
}
"""


def make_kernel(texts: list[str]) -> tw.Kernel:
    """The kernel of these misuses, chosen by their places."""
    lines = [f"T: .branchtargets {', '.join(f'S{i}' for i in range(len(texts)))};", "brx.idx %which, T;"]
    lines += [f"S{i}: {text}{'' if text.endswith(':') else ';'} bra END;" for i, text in enumerate(texts)]
    return tw.Kernel.from_ptx(_HEAD + (_START + "\n".join(lines)).replace("; ", ";\n") + _END, "k")
