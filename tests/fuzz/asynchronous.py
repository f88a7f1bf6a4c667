"""PTX to damage: small kernels of copies in flight, mbarriers, clusters, tensor maps and wgmma, by hand."""

from __future__ import annotations

from tests.fuzz.hostile import BARRIERS, CASES

__all__ = ["BODIES", "groups", "kernel"]

_REGISTERS = (
    ".reg .b32 %t, %n, %v<4>, %w<8>, %d<8>, %f<4>, %i, %bar, %tile; .reg .b64 %a, %o, %s, %m, %x<8>, %wide;"
    " .reg .b16 %h<6>; .reg .pred %p<4>; .shared .align 1024 .b8 room[12288];"
)
_START = (
    "mov.u32 %t, %tid.x; ld.param.u64 %a, [a]; ld.param.u64 %o, [o]; mov.u64 %m, m; cvta.param.u64 %m, %m;"
    " mov.u32 %bar, room; add.u32 %tile, %bar, 1024; setp.eq.u32 %p0, %t, 0; mov.u64 %s, 0; mov.u32 %v0, 0; mov.u32 %v1, 0;"
    " setp.eq.u32 %p1, 0, 0; cvt.u64.u32 %wide, %t;"
    + "".join(f" mov.b32 %d{i}, 0;" for i in range(8))
    + "".join(f" mov.b32 %f{i}, 0;" for i in range(4))
)
_END = "mad.lo.u64 %x0, %wide, 4, %o; st.global.u32 [%x0], %v1; ret;"
_WAIT = "W{0}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [{1}], {2}; @!%p2 bra W{0};"
_MEET = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
_MATRIX = (
    "shr.u32 %w5, %tile, 4; cvt.u64.u32 %x4, %w5; or.b64 %x4, %x4, 0x4000004000010000; add.u64 %x5, %x4, 64;"
)
_TOLD = "mbarrier::complete_tx::bytes"

BODIES = {
    "ring": "@%p0 mbarrier.init.shared.b64 [%bar], 64; @%p0 mbarrier.init.shared.b64 [%bar+8], 64; bar.sync 0;"
    " shl.b32 %w0, %t, 4; and.b32 %w0, %w0, 1023; add.u32 %w0, %w0, %tile; setp.lt.u32 %p3, %t, 64; mov.u32 %n, 0;\n"
    "L: and.b32 %w1, %n, 1; @!%p3 bra USE; xor.b32 %w2, %w1, 1; " + _WAIT.format(0, "%bar+8", "%w2")
    + " and.b32 %w3, %t, 15; mad.wide.u32 %x0, %w3, 16, %a; cp.async.cg.shared.global [%w0], [%x0], 16;"
    " cp.async.mbarrier.arrive.noinc.shared.b64 [%bar]; bra NEXT;\n"
    "USE: " + _WAIT.format(1, "%bar", "%w1") + " ld.shared.u32 %v0, [%w0]; add.u32 %v1, %v1, %v0;"
    " mbarrier.arrive.shared.b64 %s, [%bar+8];\nNEXT: add.u32 %n, %n, 1; setp.lt.u32 %p2, %n, 4; @%p2 bra L;",
    "bulk": "@%p0 mbarrier.init.shared.b64 [%bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0; @!%p0 bra U;"
    f" mbarrier.arrive.expect_tx.shared.b64 %s, [%bar], 1024; cp.async.bulk.shared::cluster.global.{_TOLD} [%tile], [%a], 1024, [%bar];\n"
    "U: " + _WAIT.format(0, "%bar", "0") + " shl.b32 %w0, %t, 2; add.u32 %w0, %w0, %tile; ld.shared.u32 %v1, [%w0];"
    " st.shared.u32 [%w0], %t; fence.proxy.async.shared::cta; bar.sync 0; @!%p0 bra E; cp.async.bulk.global.shared::cta.bulk_group [%o], [%tile], 256;"
    " cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%o+256], [%tile+16], 128; cp.async.bulk.commit_group;"
    " cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;\nE: bar.sync 0;",
    "tensor": "@%p0 mbarrier.init.shared.b64 [%bar], 1; bar.sync 0; @!%p0 bra U; prefetch.tensormap [%m];"
    " mbarrier.arrive.expect_tx.shared.b64 %s, [%bar], 256;"
    f" cp.async.bulk.tensor.2d.shared::cluster.global.tile.{_TOLD} [%tile], [%m, {{32, 3}}], [%bar];\n"
    "U: " + _WAIT.format(0, "%bar", "0") + " ld.shared.u32 %v1, [%tile+4]; bar.sync 0; @!%p0 bra E;"
    " fence.proxy.async; cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%m, {0, 30}], [%tile];"
    " cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%m, {64, 1}], [%tile]; cp.async.bulk.commit_group;"
    " cp.async.bulk.wait_group 0;\nE: cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%m, {0, 0}];",
    "maps": "shl.b32 %w0, %t, 2; add.u32 %w0, %w0, %tile; setp.lt.u32 %p2, %t, 32; @%p2 st.shared.u32 [%w0], 0; bar.sync 0; @!%p0 bra C;"
    " tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%tile], %a; tensormap.replace.tile.rank.shared::cta.b1024.b32 [%tile], 1;"
    " tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%tile], 0, 16; tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%tile], 1, 4;"
    " tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%tile], 0, 64; tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%tile], 1, 8;"
    " mov.u64 %x1, 128; tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%tile], 0, %x1;"
    " tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%tile], 0, 1; tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%tile], 1, 1;"
    " tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%tile], 0; tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%tile], 0;"
    " tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%tile], 0; tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%tile], 0;\n"
    "C: bar.sync 0; tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%o], [%tile], 128;"
    " fence.proxy.tensormap::generic.acquire.gpu [%o], 128; @%p0 mbarrier.init.shared.b64 [%bar], 1; bar.sync 0; @!%p0 bra U;"
    f" mbarrier.arrive.expect_tx.shared.b64 %s, [%bar], 64; cp.async.bulk.tensor.2d.shared::cluster.global.{_TOLD} [%tile], [%o, {{0, 2}}], [%bar];\n"
    "U: " + _WAIT.format(0, "%bar", "0") + " ld.shared.u32 %v1, [%tile];",
    "cluster": "mov.u32 %w0, %cluster_ctarank; mov.u32 %w1, %cluster_nctarank; add.u32 %w2, %w0, 1; rem.u32 %w2, %w2, %w1;"
    " shl.b32 %w3, %t, 2; add.u32 %w3, %w3, %tile; st.shared.u32 [%w3], %w0; @%p0 mbarrier.init.shared.b64 [%bar], 64;"
    f" fence.mbarrier_init.release.cluster; {_MEET} mapa.shared::cluster.u32 %w4, %w3, %w2; ld.shared::cluster.u32 %v0, [%w4];"
    f" mapa.shared::cluster.u32 %w5, %bar, %w2; {_MEET} st.async.shared::cluster.{_TOLD}.u32 [%w4], %t, [%w5];"
    f" red.async.relaxed.cluster.shared::cluster.{_TOLD}.add.u32 [%w4], 3, [%w5]; mbarrier.arrive.expect_tx.shared.b64 %s, [%bar], 8; "
    + _WAIT.format(0, "%bar", "0") + " ld.shared.u32 %v1, [%w3]; cvta.shared::cluster.u64 %x0, %w4; isspacep.shared::cluster %p3, %x0;"
    f" getctarank.u64 %v2, %x0; atom.add.u32 %v3, [%x0], 1; atom.shared::cluster.add.u32 %v3, [%w4], 2; {_MEET}",
    "multicast": "mov.u32 %w0, %cluster_ctarank; @%p0 mbarrier.init.shared.b64 [%bar], 1; fence.mbarrier_init.release.cluster;"
    f" {_MEET} @%p0 mbarrier.arrive.expect_tx.shared.b64 %s, [%bar], 256; setp.eq.and.u32 %p3, %w0, 0, %p0; mov.b16 %h0, 3; @!%p3 bra U;"
    f" cp.async.bulk.tensor.2d.shared::cluster.global.tile.{_TOLD}.multicast::cluster [%tile], [%m, {{0, 0}}], [%bar], %h0;\nU: "
    + _WAIT.format(0, "%bar", "0") + f" ld.shared.u32 %v1, [%tile]; {_MEET}",
    "products": f"{_MATRIX} wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}},"
    " %x4, %x5, %p1, 1, 1, 0, 1; wgmma.commit_group.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {%w0, %w1, %w2, %w3}, %x4, %x5, 0;"
    " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1; add.u32 %v1, %d0, %d7;"
    " wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0, %d1, %d2, %d3}, {%f0, %f1, %f2, %f3}, %x5, %p1, -1, 1, 0;"
    " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; add.u32 %v1, %v1, %d3;",
    "sparse": f"{_MATRIX} mov.b32 %w2, 0x44444444; wgmma.fence.sync.aligned;"
    " wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%d0, %d1, %d2, %d3}, %x4, %x5, %w2, 0, %p1, 1, 1, 0, 0;"
    " wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%d4, %d5, %d6, %d7}, %x4, %x5, %p1, 1, 1;"
    " wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%w0, %w1, %w2, %w3}, %x4, %x5, %p1;"
    " wgmma.mma_async.sync.aligned.m64n16k32.f16.e4m3.e5m2 {%v0, %v1, %v2, %v3}, %x4, %x5, 0, 1, -1; wgmma.commit_group.sync.aligned;"
    " wgmma.wait_group.sync.aligned 0; add.u32 %v1, %v1, %w3;",
    "specialised": "@%p0 mbarrier.init.shared.b64 [%bar], 1; @%p0 mbarrier.init.shared.b64 [%bar+8], 128; fence.mbarrier_init.release.cluster; bar.sync 0;"
    " setp.ge.u32 %p3, %t, 128; mov.u32 %n, 0; @%p3 bra P; setmaxnreg.inc.sync.aligned.u32 240;\n"
    "C: and.b32 %w1, %n, 1; " + _WAIT.format(0, "%bar", "%w1") + f" {_MATRIX} wgmma.fence.sync.aligned;"
    " wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}, %x4, %x5, %p1, 1, 1, 0, 0;"
    " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; mbarrier.arrive.shared.b64 %s, [%bar+8]; add.u32 %n, %n, 1;"
    " setp.lt.u32 %p2, %n, 3; @%p2 bra C; add.u32 %v1, %d0, %d5; bra E;\nP: setmaxnreg.dec.sync.aligned.u32 40; setp.ne.u32 %p3, %t, 128; @%p3 bra E;\n"
    "Q: and.b32 %w1, %n, 1; xor.b32 %w2, %w1, 1; " + _WAIT.format(1, "%bar+8", "%w2") + " mbarrier.arrive.expect_tx.shared.b64 %s, [%bar], 2048;"
    f" cp.async.bulk.shared::cluster.global.{_TOLD} [%tile], [%a], 2048, [%bar]; add.u32 %n, %n, 1; setp.lt.u32 %p2, %n, 3; @%p2 bra Q;\nE: mov.u32 %w7, 1;",
}  # fmt: skip
BLOCKS = {"ring": 128, "products": 128, "sparse": 128, "specialised": 256}
CLUSTERS = {"cluster": 2, "multicast": 2, "bulk": 1}


def kernel(body: str) -> str:
    """A kernel of a body; its parameters are an array to read, one to write, and a tensor map."""
    text = (
        ".version 8.4\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 a, .param .u64 o, .param .align 64 .b8 m[128])\n"
        f"{{\n{_REGISTERS}\n{_START}\n{body}\n{_END}\n}}\n"
    )
    return text.replace("; ", ";\n")


def groups(size: int = 8) -> dict[str, str]:
    """Kernels of a few instructions each, as different from one another as there are."""
    start = "".join(f"@%p0 mbarrier.init.shared.b64 [%bar+{8 * i}], 1; " for i in range(BARRIERS))
    count = -(-len(CASES) // size)
    found = {}
    for number in range(count):
        lines = [start]
        for i, case in list(enumerate(CASES))[number::count]:
            lines += [
                f"mov.u64 %x{at}, {_VALUES.get(kind, '1')};" for at, kind in enumerate(case.kinds.split())
            ]
            lines += [
                f"cvt.u32.u64 %w{at}, %x{at}; cvt.u16.u64 %h{at}, %x{at};"
                for at in range(len(case.kinds.split()))
            ]
            alone = (
                "sync" not in case.text and "barrier.cluster" not in case.text and ":" not in case.text[:8]
            )
            lines.append("@%p0 " * alone + case.text.replace("AGAIN", f"A{i}"))
        found[f"group {number:02}"] = " ".join(lines)
    return found


# What an operand of each kind may be.
_VALUES = {
    "bar": "room", "place": "room+1024", "away": "room+2048", "memory": "%a", "words": "%a", "generic": "%a", "owned": "%o",
    "size": "64", "bit": "0", "at": "0", "mask": "1", "few": "0", "matrix": "0x4000004000010000",
    **{f"map{rank}": "%m" for rank in range(1, 9)},
}  # fmt: skip
