"""Small products in PTX, for recordings: 16×8 times 8×16, by two blocks of 64 threads, whose operands come in several ways."""

from __future__ import annotations

import tilewise as tw

__all__ = ["WAYS", "make_kernel"]

_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k({parameters})
{{
.reg .b32 %t, %i, %j, %n, %at, %s, %bar, %g, %h, %b; .reg .b64 %a, %x, %c, %d<3>, %m<3>; .reg .f32 %f<5>; .reg .pred %p<3>;
.shared .align 1024 .b8 room[4096]; .shared .align 8 .b8 bar[8];
mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; shr.u32 %i, %t, 3; mad.lo.u32 %i, %b, 8, %i; and.b32 %j, %t, 7; mov.u32 %s, room; mov.u32 %bar, bar; setp.eq.u32 %p0, %t, 0;
"""
_ARRAYS = "ld.param.u64 %a, [{a}]; ld.param.u64 %x, [{b}]; ld.param.u64 %c, [{c}];"
# Each thread has two neighbouring columns.
_SUM = """mov.f32 %f2, 0f00000000; mov.f32 %f3, %f2; mov.u32 %n, 0;
LOOP: {load} fma.rn.f32 %f2, %f0, %f1, %f2; fma.rn.f32 %f3, %f0, %f4, %f3; add.u32 %n, %n, 1; setp.lt.u32 %p1, %n, 8; @%p1 bra LOOP;
mad.lo.u32 %g, %i, 16, %j; mad.lo.u32 %g, %j, 1, %g; mul.wide.u32 %d0, %g, 4; add.u64 %d0, %c, %d0;"""
_GLOBAL = """mad.lo.u32 %g, %i, 8, %n; mul.wide.u32 %d0, %g, 4; add.u64 %d0, %a, %d0; ld.global.f32 %f0, [%d0];
mad.lo.u32 %h, %n, 16, %j; add.u32 %h, %h, %j; mul.wide.u32 %d1, %h, 4; add.u64 %d1, %x, %d1; ld.global.v2.f32 {%f1, %f4}, [%d1];"""
_TURNED = """mad.lo.u32 %g, %i, 8, %n; mul.wide.u32 %d0, %g, 4; add.u64 %d0, %a, %d0; ld.global.f32 %f0, [%d0];
mad.lo.u32 %h, %j, 16, %n; mul.wide.u32 %d1, %h, 4; add.u64 %d1, %x, %d1; ld.global.f32 %f1, [%d1]; ld.global.f32 %f4, [%d1+32];"""
_SHARED = """and.b32 %h, %i, 7; mad.lo.u32 %g, %h, 32, %s; mad.lo.u32 %g, %n, 4, %g; ld.shared.f32 %f0, [%g];
mad.lo.u32 %h, %n, 64, %s; mad.lo.u32 %h, %j, 8, %h; ld.shared.v2.f32 {%f1, %f4}, [%h+1024];"""
_STORE = "st.global.v2.f32 [%d0], {%f2, %f3};"
_ADD = "red.global.add.f32 [%d0], %f2; atom.global.add.f32 %f0, [%d0+4], %f3;"
_COPIED = """setp.lt.u32 %p2, %t, 16; mad.lo.u32 %g, %t, 16, %s; mad.lo.u32 %n, %b, 256, 0; mad.lo.u32 %n, %t, 16, %n; cvt.u64.u32 %d0, %n; add.u64 %d0, %a, %d0;
@%p2 cp.async.cg.shared.global [%g], [%d0], 16; setp.lt.u32 %p2, %t, 32; cvt.u64.u32 %d1, %t; mad.lo.u64 %d1, %d1, 16, %x;
@%p2 cp.async.ca.shared.global [%g+1024], [%d1], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;"""
_TOLD = "mbarrier::complete_tx::bytes"
_WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [%bar], 0; @!%p2 bra W;"
_BULK = f"""@%p0 mbarrier.init.shared.b64 [%bar], 1; fence.proxy.async; bar.sync 0; mul.wide.u32 %d0, %b, 256; add.u64 %d0, %a, %d0;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 768; @%p0 cp.async.bulk.shared::cluster.global.{_TOLD} [%s], [%d0], 256, [%bar];
@%p0 cp.async.bulk.shared::cluster.global.{_TOLD} [%s+1024], [%x], 512, [%bar]; {_WAIT}"""
_BOXES = f"""mov.u64 %m0, {{a}}; cvta.param.u64 %m0, %m0; mov.u64 %m1, {{b}}; cvta.param.u64 %m1, %m1; mov.u64 %m2, {{c}}; cvta.param.u64 %m2, %m2; mov.u64 %c, 0; shl.b32 %n, %b, 3;
@%p0 mbarrier.init.shared.b64 [%bar], 1; fence.proxy.async; bar.sync 0; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 768;
@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.{_TOLD} [%s], [%m0, {{{{0, %n}}}}], [%bar];
@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.{_TOLD} [%s+1024], [%m1, {{{{0, 0}}}}], [%bar]; {_WAIT}"""
_OUT = "and.b32 %h, %i, 7; mad.lo.u32 %g, %h, 64, %s; mad.lo.u32 %g, %j, 8, %g; st.shared.v2.f32 [%g+2048], {%f2, %f3}; fence.proxy.async; bar.sync 0;"
_BOX_OUT = f"{_OUT} shl.b32 %n, %b, 3; @%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%m2, {{0, %n}}], [%s+2048]; @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;"
_BULK_OUT = f"{_OUT} mul.wide.u32 %d0, %b, 512; add.u64 %d0, %c, %d0; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%s+2048], 512; @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;"

# By name: names of the arrays, how operands come, what is read in the loop, and how the result goes.
WAYS: dict[str, tuple[str, str, str, str]] = {
    "loads": ("a b c", "", _GLOBAL, _STORE), "other names": ("left right out", "", _GLOBAL, _ADD), "turned": ("p q r", "", _TURNED, _STORE),
    "copies": ("a b c", _COPIED, _SHARED, _STORE), "bulk": ("x w y", _BULK, _SHARED, _BULK_OUT), "boxes": ("a b c", _BOXES, _SHARED, _BOX_OUT),
}  # fmt: skip


def make_kernel(way: str) -> tw.Kernel:
    """The kernel of one way."""
    listed, start, load, end = WAYS[way]
    a, b, c = listed.split()
    boxes = way == "boxes"
    parameters = ", ".join(
        f".param .align 64 .b8 {name}[128]" if boxes else f".param .u64 {name}" for name in (a, b, c)
    )
    begin = start.format(a=a, b=b, c=c) if boxes else _ARRAYS.format(a=a, b=b, c=c) + start
    body = f"{begin}\n{_SUM.replace('{load}', load)}\n{end}\nret;\n}}\n"
    return tw.Kernel.from_ptx((_HEAD.format(parameters=parameters) + body).replace("; ", ";\n"), "k")
