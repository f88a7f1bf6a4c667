"""PTX to damage: small kernels of every family, by hand and from compilers."""

from __future__ import annotations

import functools
from typing import NamedTuple

from tests.fuzz import asynchronous
from tests.triton.compiler import golden

__all__ = ["Sample", "by_hand", "compiled"]


class Sample(NamedTuple):
    """A text, its kernel and how to launch it."""

    text: str
    entry: str
    grid: int
    block: int
    shared: int = 64  # bytes besides the kernel's own
    cluster: int | None = None
    weight: int = 4  # how often it is chosen


_REGISTERS = (
    ".reg .b32 %t, %r<12>; .reg .b64 %a, %o, %d<8>; .reg .f32 %f<12>; .reg .f64 %g<4>; .reg .b16 %h<6>;"
    " .reg .pred %p<5>; .reg .b128 %q<2>;"
)
_START = (
    "ld.param.u64 %a, [a]; ld.param.u64 %o, [o]; mov.u32 %t, %tid.x; mul.wide.u32 %d0, %t, 16;"
    " add.s64 %a, %a, %d0; add.s64 %o, %o, %d0; ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%a];"
    " ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%a]; mov.u32 %r4, %r0; mov.u32 %r5, %r1; mov.u32 %r6, 7; mov.u32 %r7, 9;"
    " ld.global.v2.f64 {%g0, %g1}, [%a]; ld.global.v2.u64 {%d1, %d2}, [%a]; cvt.u16.u32 %h0, %r0; cvt.u16.u32 %h1, %r1;"
    " mov.u64 %d3, %d1; mov.f32 %f4, %f0; mov.f32 %f5, %f1; setp.lt.s32 %p0, %r0, %r1; setp.gt.u32 %p1, %t, 5;"
)
_END = "st.global.v4.u32 [%o], {%r4, %r5, %r6, %r7}; st.global.f32 [%o], %f4; st.global.u64 [%o+8], %d3; ret;"

_MODULE = {
    "calls": ".func (.reg .u32 %res) twice(.reg .u32 %x) { add.u32 %res, %x, %x; ret; }\n"
    ".func (.param .b32 back) thrice(.param .b32 given) { .reg .b32 %v; ld.param.b32 %v, [given]; "
    "mul.lo.u32 %v, %v, 3; st.param.b32 [back], %v; ret; }",
    "printf": ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
    ".global .align 1 .b8 form[7] = {104, 105, 32, 37, 100, 10, 0};",
    "spaces": ".const .align 4 .b32 con[4] = {1, 2, 3, 4};\n.global .align 8 .u64 glo[2] = {5, con};\n"
    ".global .align 4 .b32 zero[64];\n.extern .shared .align 16 .b8 dyn[];",
}
_BODIES = {
    "integers": "add.s32 %r4, %r0, %r1; sub.u32 %r5, %r4, 3; mad.lo.s32 %r6, %r0, %r1, %r2; mul.wide.u32 %d3, %r0, %r1;"
    " add.cc.u32 %r4, %r4, %r1; addc.u32 %r5, %r5, 0; div.s32 %r7, %r0, %r1; rem.u64 %d3, %d3, %d1; sad.s32 %r6, %r0, %r1, %r2;"
    " min.s64 %d3, %d1, %d2; abs.s32 %r4, %r4; mul24.lo.u32 %r5, %r0, %r1; dp4a.s32.u32 %r6, %r0, %r1, %r2;",
    "bits": "and.b32 %r4, %r0, %r1; lop3.b32 %r5, %r0, %r1, %r2, 0x96; shl.b64 %d3, %d1, %r2; shf.r.clamp.b32 %r6, %r0, %r1, 5;"
    " bfe.s32 %r7, %r0, 3, 9; bfi.b32 %r4, %r0, %r1, 4, 8; popc.b64 %r5, %d1; clz.b32 %r6, %r0; brev.b32 %r7, %r1;"
    " prmt.b32 %r4, %r0, %r1, 0x5140; bfind.u32 %r5, %r2; fns.b32 %r6, %r0, 3, 2; szext.clamp.u32 %r7, %r1, 9;",
    "floats": "add.rn.f32 %f4, %f0, %f1; fma.rz.ftz.f32 %f4, %f4, %f1, %f2; mul.sat.f32 %f5, %f0, %f4; div.rn.f32 %f4, %f4, %f5;"
    " sqrt.approx.f32 %f5, %f4; rcp.rn.f64 %g2, %g0; fma.rn.f64 %g2, %g2, %g1, %g0; ex2.approx.ftz.f32 %f5, %f0;"
    " min.NaN.f32 %f4, %f4, %f5; copysign.f32 %f4, %f0, %f1; testp.finite.f32 %p2, %f4; tanh.approx.f32 %f4, %f4;",
    "halves": "mov.b32 {%h2, %h3}, %r0; add.rn.f16 %h4, %h2, %h3; fma.rn.f16x2 %r4, %r0, %r1, %r2; max.bf16x2 %r5, %r0, %r1;"
    " mul.rn.bf16 %h5, %h0, %h1; cvt.f32.f16 %f4, %h4; cvt.rn.bf16x2.f32 %r6, %f0, %f1; neg.f16x2 %r7, %r0; set.lt.f16x2.f16x2 %r7, %r0, %r1;",
    "conversions": "cvt.rni.s32.f32 %r4, %f0; cvt.rn.f32.u64 %f4, %d1; cvt.sat.s8.s32 %r5, %r0; cvt.u16.u32 %h2, %r1;"
    " cvt.rzi.u64.f64 %d3, %g0; cvt.rn.satfinite.e4m3x2.f32 %h3, %f0, %f1; cvt.rna.tf32.f32 %r6, %f0; cvt.rpi.f32.f32 %f5, %f1; cvt.pack.sat.s8.s32.b32 %r7, %r0, %r1, %r2;",
    "choices": "setp.lt.and.s32 %p2|%p3, %r0, %r1, !%p0; selp.b32 %r4, %r0, %r1, %p2; slct.s32.f32 %r5, %r0, %r1, %f0;"
    " set.gt.u32.f32 %r6, %f0, %f1; @%p3 mov.u32 %r7, 3; @!%p1 mov.b64 %d3, {%r0, %r1}; mov.b64 {%r4, %r5}, %d3; mov.pred %p4, %p2; cnot.b32 %r6, %r6;",
    "flow": "mov.u32 %r8, 0;\nT: .branchtargets A, B, C;\nL: rem.u32 %r9, %r0, 3; brx.idx %r9, T;\nA: add.u32 %r4, %r4, 1; bra N;\n"
    "B: add.u32 %r5, %r5, %r8;\nC: @%p0 bra N; mul.lo.u32 %r6, %r6, 3;\nN: add.u32 %r8, %r8, 1; shr.u32 %r0, %r0, 1;"
    " setp.lt.u32 %p2, %r8, 9; @%p2 bra L; @%p1 exit; setp.eq.u32 %p3, %t, 3; @%p3 ret;",
    "memory": ".shared .align 16 .b32 sh[64]; .local .align 16 .b32 lo[8]; mov.u32 %r8, sh; shl.b32 %r9, %t, 2; add.u32 %r8, %r8, %r9;"
    " st.shared.u32 [%r8], %r0; bar.sync 0; ld.shared.u32 %r4, [sh+8]; st.local.v2.u32 [lo], {%r1, %r2}; ld.local.u32 %r5, [lo+4];"
    " ld.global.nc.L1::no_allocate.u8 %r6, [%a]; cvta.shared.u64 %d4, %d0; cvta.to.global.u64 %d5, %a; ld.u32 %r7, [%d5+4];"
    " mov.u64 %d4, lo; cvta.local.u64 %d4, %d4; st.u32 [%d4+12], %r7; isspacep.local %p2, %d4; prefetch.global.L2 [%a]; membar.gl; fence.acq_rel.gpu;",
    "atomics": ".shared .align 8 .b32 sh[8]; st.shared.u32 [sh], 0; bar.sync 0; atom.global.add.u32 %r4, [%o], %r0; red.shared.add.u32 [sh], 1;"
    " atom.global.cas.b32 %r5, [%o+4], 0, 7; atom.acq_rel.gpu.global.max.s64 %d3, [%o+8], %d1; atom.shared.exch.b32 %r6, [sh+4], %r1;"
    " red.global.add.f32 [%o], %f0; atom.add.noftz.f16x2 %r7, [%o+4], %r0; bar.sync 0; atom.shared.inc.u32 %r7, [sh], 3; red.global.add.v2.f32 [%o], {%f0, %f1};",
    "warp": "shfl.sync.bfly.b32 %r4|%p2, %r0, 3, 31, -1; shfl.sync.idx.b32 %r5, %r0, %r1, 0x1f, 0xffffffff; vote.sync.ballot.b32 %r6, %p0, -1;"
    " vote.sync.all.pred %p3, %p0, -1; match.any.sync.b32 %r7, %r0, -1; redux.sync.add.u32 %r8, %r0, -1; activemask.b32 %r9; elect.sync %r10|%p4, -1; bar.warp.sync 0xffffffff;",
    "barriers": "bar.sync 0; barrier.sync 1, 64; bar.red.popc.u32 %r4, 2, %p0; barrier.red.and.pred %p2, 3, 64, !%p1; setp.lt.u32 %p3, %t, 32;"
    " @%p3 bar.arrive 4, 64; @!%p3 bar.sync 4, 64; selp.u32 %r5, 1, 0, %p2;",
    "matrices": ".shared .align 16 .b8 sm[2048]; mov.u32 %r8, sm; shl.b32 %r9, %t, 4; and.b32 %r9, %r9, 511; add.u32 %r8, %r8, %r9; st.shared.v4.u32 [%r8], {%r0, %r1, %r2, %r3};"
    " bar.sync 0; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%r8]; mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f4, %f5, %f6, %f7},"
    " {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3}; mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%r4, %r5, %r6, %r7}, {%r0, %r1, %r2, %r3},"
    " {%r0, %r1}, {%r4, %r5, %r6, %r7}; movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r0; stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r8], {%r4, %r5};",
    "copies": ".shared .align 16 .b8 sc[1024]; mov.u32 %r8, sc; shl.b32 %r9, %t, 4; add.u32 %r8, %r8, %r9; cp.async.cg.shared.global [%r8], [%a], 16;"
    " cp.async.ca.shared.global [%r8], [%a], 4, 2; cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all; bar.sync 0; ld.shared.u32 %r4, [%r8];",
    "video": "vadd4.s32.s32.s32 %r4, %r0, %r1, %r2; vabsdiff2.u32.u32.u32.add %r5, %r0, %r1, %r2; vmax.s32.u32.s32 %r6, %r0.b1, %r1.h0; vset4.u32.u32.lt %r7, %r0, %r1, %r2;",
    "special": "mov.u32 %r4, %laneid; mov.u32 %r5, %lanemask_lt; mov.u64 %d3, %globaltimer; mov.u32 %r6, %clock; mov.u32 %r7, %smid; mov.u32 %r8, %nctaid.x; mov.u32 %r9, %dynamic_smem_size;",
    "calls": "{ call.uni (%r4), twice, (%r0); } { .param .b32 p0; .param .b32 q0; st.param.b32 [p0], %r1; call.uni (q0), thrice, (p0); ld.param.b32 %r5, [q0]; } @%p0 call (%r6), twice, (%r6);",
    "printf": "{ .local .align 8 .b8 args[8]; .param .b64 p0; .param .b64 p1; .param .b32 q0; mov.u64 %d4, args; cvta.local.u64 %d4, %d4; st.u32 [%d4], %r0;"
    " mov.u64 %d5, form; cvta.global.u64 %d5, %d5; st.param.b64 [p0], %d5; st.param.b64 [p1], %d4; setp.eq.u32 %p2, %t, 0; @%p2 call.uni (q0), vprintf, (p0, p1); }",
    "spaces": "ld.const.u32 %r4, [con+4]; ld.global.u64 %d3, [glo]; mov.u64 %d4, zero; st.global.u32 [%d4+8], %r0; mov.u32 %r8, dyn; st.shared.u32 [%r8], %r1; ld.shared.u32 %r5, [%r8];",
    "spins": "setp.eq.u32 %p2, %t, 40; @%p2 st.volatile.global.u32 [%o+12], 1;\nS: ld.volatile.global.u32 %r8, [%a+4]; setp.ne.u32 %p3, %r8, %r1; @%p3 bra S; nanosleep.u32 20;",
    "end": "setp.gt.u32 %p2, %t, 900; @%p2 trap; brkpt; @%p2 bra X; bra Y;\nX: exit;\nY: nanosleep.u32 5;",
}  # fmt: skip

_CUDA = {
    "saxpy": 'extern "C" __global__ void k(float *a, float *o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;'
    " if (i < n) o[i] = 2.0f * a[i] + o[i]; }",
    "sum": 'extern "C" __global__ void k(float *a, float *o, int n) { __shared__ float s[64]; int t = threadIdx.x; s[t] = a[t];'
    " for (int w = 32; w; w /= 2) { __syncthreads(); if (t < w) s[t] += s[t + w]; } if (!t) atomicAdd(o, s[0]); }",
    "walk": 'extern "C" __global__ void k(int *a, int *o, int n) { int v = a[threadIdx.x] & 63, c = 0; while (v != 5 && c < n) {'
    " switch (v & 3) { case 0: v = v * 3 + 1; break; case 1: v ^= 9; case 2: v += 2; break; default: if (c > 20) return; v -= 1; }"
    " v &= 63; ++c; } o[threadIdx.x] = c; }",
}


def by_hand() -> dict[str, Sample]:
    """One kernel for each family."""
    found = {}
    for name, body in _BODIES.items():
        text = (
            f".version 9.0\n.target sm_90a\n.address_size 64\n{_MODULE.get(name, '')}\n"
            f".visible .entry k(.param .u64 a, .param .u64 o)\n{{\n{_REGISTERS}\n{_START}\n{body}\n{_END}\n}}\n"
        )
        found[name] = Sample(text.replace("; ", ";\n"), "k", 2, 64)
    for name, body in asynchronous.BODIES.items():
        block, cluster = asynchronous.BLOCKS.get(name, 64), asynchronous.CLUSTERS.get(name)
        found[f"async {name}"] = Sample(asynchronous.kernel(body), "k", 2, block, cluster=cluster, weight=8)
    for name, body in asynchronous.groups().items():
        found[f"async {name}"] = Sample(asynchronous.kernel(body), "k", 2, 128, cluster=2, weight=6)
    return found


@functools.cache
def compiled() -> dict[str, Sample]:
    """What compilers make of a few small kernels and of rungs of the ladder; and Triton's, as it is kept."""
    from tilewise.toolchain.compile import compile_source

    found = {}
    for arch in ("sm_75", "sm_80", "sm_90a"):
        for name, source in _CUDA.items():
            found[f"{name} {arch}"] = Sample(compile_source(source, ["k"], arch).ptx, "k", 2, 64)
        for name in ("03_simple", "04_tiled", "06_tiled_branchless"):
            found[f"{name} {arch}"] = _rung(name, arch, 256 if name == "03_simple" else 1024)
    found["10"] = _rung("10_turing_tensor_core", "sm_75", 256, {"partition": "64x64x32"}, shared=40_000)
    found["11"] = _rung("11_parallel_k", "sm_75", 128, shared=40_000)
    found["12"] = _rung("12_multistage", "sm_80", 128, {"partition": "64x64x32", "stages": 3}, shared=40_000)
    found["13"] = _rung(
        "13_warp_specialised", "sm_90a", 256, {"partition": "128x128x64"}, shared=200_000, cluster=2
    )
    return found | _golden()


def _rung(
    name: str,
    arch: str,
    block: int,
    settings: dict[str, object] | None = None,
    shared: int = 64,
    cluster: int | None = None,
) -> Sample:
    from tilewise.kernels import RUNGS
    from tilewise.toolchain.compile import compile_source

    spec = RUNGS[name]
    complete = spec.complete(settings or {})
    built = compile_source(spec.source, spec.entries, arch, defines=spec.defines(complete))
    entry = next(iter(built.entries))
    large = len(built.ptx) > 20_000
    return Sample(built.ptx, entry, cluster or 1, block, shared, cluster, 1 if large else 4)


def _golden() -> dict[str, Sample]:
    """A few of the kernels that Triton made."""
    names = (
        *(
            "softmax-sm_90",
            "layer_norm-sm_80",
            "matmul_f16-sm_80",
            "matmul_f16-sm_90",
            "host_described-sm_90",
        ),
        *("matmul_i8-sm_90", "persistent_described-sm_90"),
    )
    kept = golden()
    return {
        f"triton {name}": Sample(
            kept[name].ptx, kept[name].entry, 1, 32 * kept[name].warps, kept[name].shared, None, 1
        )
        for name in names
    }
