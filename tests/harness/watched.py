"""Instructions of which something is to be seen in a recording, or in what a block does with global memory; and some of which
there is nothing to be seen."""

from __future__ import annotations

from collections.abc import Iterator

from tests.emulator.instructions.test_modifiers import KERNEL

__all__ = ["list_watched"]

_TOLD = "mbarrier::complete_tx::bytes"
_PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}"
_LINES = f"""
ld.global.u32 %r0, [%d2]
ld.global.nc.v4.f32 {{%f0, %f1, %f2, %f3}}, [%d2]
ld.u64 %d0, [%d2]
ld.shared.u16 %h0, [%r2]
ld.param.u32 %r0, [pa+8]
ld.const.u32 %r0, [%d2]
ld.local.u32 %r0, [%d2]
st.global.u32 [%d2], %r3
st.v2.u32 [%d2], {{%r3, %r4}}
st.local.u32 [%d2], %r3
st.shared::cluster.u32 [%r2], %r3
atom.global.add.u32 %r0, [%d2], %r3
atom.add.f64 %g0, [%d2], %g1
red.shared.add.u32 [%r2], %r3
red.async.relaxed.cluster.shared::cluster.{_TOLD}.add.u32 [%r2], %r3, [%r4]
st.async.shared::cluster.{_TOLD}.b32 [%r2], %r3, [%r4]
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r0, %r1}}, [%r2]
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {{%r0}}
prefetch.global.L2 [%d2]
cp.async.ca.shared.global [%r2], [%d2], 4
cp.async.cg.shared.global [%r2], [%d2], 16
cp.async.ca.shared.global [%r2], [%d2], 8, %r4
cp.async.cg.shared.global [%r2], [%d2], 16, 0
cp.async.commit_group
cp.async.wait_group 1
cp.async.wait_all
cp.async.mbarrier.arrive.noinc.shared.b64 [%r2]
cp.async.bulk.shared::cluster.global.{_TOLD} [%r2], [%d2], %r3, [%r4]
cp.async.bulk.shared::cluster.global.{_TOLD}.multicast::cluster [%r2], [%d2], %r3, [%r4], %h1
cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r2], %r3
cp.async.bulk.shared::cluster.shared::cta.{_TOLD} [%r2], [%r5], %r3, [%r4]
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d2], [%r2], %r3
cp.reduce.async.bulk.shared::cluster.shared::cta.{_TOLD}.add.u32 [%r2], [%r5], %r3, [%r4]
cp.async.bulk.prefetch.L2.global [%d2], %r3
cp.async.bulk.tensor.2d.shared::cluster.global.tile.{_TOLD} [%r2], [%d2, {{%r3, %r4}}], [%r5]
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d2, {{%r3, %r4}}], [%r2]
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%d2, {{%r3, %r4}}], [%r2]
cp.async.bulk.prefetch.tensor.2d.L2.global [%d2, {{%r3, %r4}}]
cp.async.bulk.commit_group
cp.async.bulk.wait_group.read 1
mbarrier.init.shared.b64 [%r2], 1
mbarrier.arrive.shared.b64 %d0, [%r2]
mbarrier.arrive.expect_tx.shared.b64 _, [%r2], %r3
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 16
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2]
mbarrier.test_wait.shared.b64 %p0, [%r2], %d1
mbarrier.try_wait.parity.shared.b64 %p0, [%r2], %r3
mbarrier.inval.shared.b64 [%r2]
mbarrier.pending_count.b64 %r0, %d1
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{%g0, %g1}}, {{%g2}}, {{%g3}}, {{%g4, %g5}}
{_PRODUCT}, %d1, %d2, 1, 1, 1, 0, 1
{_PRODUCT}, {{%r0, %r1, %r2, %r3}}, %d2, 1, 1, 1, 1
wgmma.fence.sync.aligned
wgmma.commit_group.sync.aligned
wgmma.wait_group.sync.aligned 1
bar.sync 0
bar.arrive 9, 96
barrier.sync 1, 64
bar.red.popc.u32 %r0, 0, %p1
barrier.cluster.arrive
barrier.cluster.wait
bar.warp.sync -1
vote.sync.any.pred %p0, %p1, -1
griddepcontrol.wait
""".strip().splitlines()
_HEAD = """.reg .b32 %t, %w; mov.u32 %t, %tid.x; setp.lt.u32 %p7, %t, 9; mul.lo.u32 %w, %t, %t;
mul.wide.u32 %d2, %t, 4; cvt.u32.u64 %r2, %d2; mov.u32 %r4, %w; mov.u32 %r5, %w; cvt.u64.u32 %d1, %w;"""


def list_watched() -> Iterator[tuple[str, str]]:
    """Each instruction, run by all lanes of a warp and by some; and the PTX of a kernel of it."""
    for line in _LINES:
        for way in ("{};", "@%p7 bra ON; {}; add.u32 %r6, %r2, 1; ON:"):
            yield way.format(line), KERNEL.format(line=f"{_HEAD} {way.format(line)}")
