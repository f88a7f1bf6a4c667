"""What the emulator makes of PTX, as LLVM text, and a hash of it for every instruction in many forms; and of the routines
that kernels call.

``python -m tests.lowered_texts`` writes ``golden/lowered.txt`` anew, which ``emulator/instructions/test_lowered_code.py``
compares: do so after a change that is meant to change the code of the instructions that the test names. A line has a
hash of the text for each of the builds.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import tilewise as tw
from tests.emulator.instructions.test_modifiers import FORMS, KERNEL
from tests.fuzz.corpus import by_hand
from tilewise.emulator import native
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.lowering.lower import lower
from tilewise.emulator.ptx.parse import parse

__all__ = [
    "COMMAND",
    "GOLDEN",
    "PARTS",
    "describe_part",
    "describe_routines",
    "expand_line",
    "list_lines",
    "llvm_text",
]

COMMAND = "python -m tests.lowered_texts"
GOLDEN = Path(__file__).parent / "golden" / "lowered.txt"
KEPT = Path(__file__).parent / "golden" / "ptxas" / "synchronisation.txt"
BUILDS = {  # by a letter: the mode, and whether it is the general build
    "p": ("plain", False), "P": ("plain", True), "c": ("counted", False), "k": ("checked", False), "K": ("checked", True),
}  # fmt: skip
_VARIABLES = ".reg .b32 %t, %w; .reg .b8 %b1; .shared .align 8 .b64 m; .param .align 8 .b8 given[8];"
_REGISTER = re.compile(r"%([phrfdgq])(\d+)\b")
# What registers hold: a number that lanes have each their own of, side by side in even registers and anyhow in odd ones;
# or one that they have in common. Nothing of it is ever run.
_SET = {
    "p": "setp.lt.u32 %p{n}, {x}, {n};", "h": "cvt.u16.u32 %h{n}, {x};", "f": "cvt.rn.f32.u32 %f{n}, {x};",
    "r": "add.u32 %r{n}, {x}, {n};", "d": "mul.wide.u32 %d{n}, {x}, 4;", "g": "cvt.rn.f64.u32 %g{n}, {x};",
    "q": "cvt.u64.u32 %d62, {x}; mov.b128 %q{n}, {{%d62, %d62}};",
}  # fmt: skip
_ANYHOW = "xor.b32 %r126, %t, 21; mul.lo.u32 %r126, %r126, %r126;"

# Instructions in every type, and with every word, that makes another code of them; {a,b} stands for either, and {,; a} for
# another operand or none.
LINES = """
{add,sub,min,max}.{u16,s16} %h0, %h1, %h2
{add,sub,mul.lo,mul.hi,min,max,div,rem}.{u32,s32} %r0, %r1, %r2
{add,sub,mul.lo,mul.hi,min,max,div,rem}.{u64,s64} %d0, %d1, %d2
{mul.lo,mul.hi,div,rem}.{u16,s16} %h0, %h1, %h2
mul.wide.{u16,s16} %r0, %h1, %h2
mul.wide.{u32,s32} %d0, %r1, %r2
{mad.lo,mad.hi,sad}.{u32,s32} %r0, %r1, %r2, %r3
{mad.lo,mad.hi,sad}.{u64,s64} %d0, %d1, %d2, %d3
mad.wide.{u16,s16} %r0, %h1, %h2, %r3
mad.wide.{u32,s32} %d0, %r1, %r2, %d3
{add,sub}.sat.s32 %r0, %r1, %r2
mad.hi.sat.s32 %r0, %r1, %r2, %r3
mul24.{lo,hi}.{u32,s32} %r0, %r1, %r2
mad24.{lo,hi}.{u32,s32} %r0, %r1, %r2, %r3
{and,or,xor}.b16 %h0, %h1, %h2
{and,or,xor}.b32 %r0, %r1, %r2
{and,or,xor}.b64 %d0, %d1, %d2
{and,or,xor}.pred %p0, %p1, %p2
{not,cnot}.b32 %r0, %r1
{not,cnot}.b64 %d0, %d1
not.b16 %h0, %h1
not.pred %p0, %p1
{shl.b16,shr.u16,shr.s16} %h0, %h1, %r2
{shl.b32,shr.u32,shr.s32} %r0, %r1, %r2
{shl.b64,shr.u64,shr.s64} %d0, %d1, %r2
{shl.b32,shr.u32,shr.s32} %r0, %r1, 5
shf.{l,r}.{clamp,wrap}.b32 %r0, %r1, %r2, %r3
{abs,neg}.s16 %h0, %h1
{abs,neg}.s32 %r0, %r1
{abs,neg}.s64 %d0, %d1
{popc,clz,brev}.b32 %r0, %r1
{popc,clz}.b64 %r0, %d1
brev.b64 %d0, %d1
bfe.{u32,s32} %r0, %r1, %r2, %r3
bfe.{u64,s64} %d0, %d1, %r2, %r3
bfi.b32 %r0, %r1, %r2, %r3, %r4
bfi.b64 %d0, %d1, %d2, %r3, %r4
bfind.{u32,s32,shiftamt.u32,shiftamt.s32} %r0, %r1
bfind.{u64,s64,shiftamt.u64,shiftamt.s64} %r0, %d1
fns.b32 %r0, %r1, %r2, %r3
bmsk.{clamp,wrap}.b32 %r0, %r1, %r2
szext.{clamp,wrap}.{u32,s32} %r0, %r1, %r2
lop3.b32 %r0, %r1, %r2, %r3, {0x96,0x80,0xe8,0x1b}
prmt.b32 %r0, %r1, %r2, {%r3,0x5410}
prmt.b32.{f4e,b4e,rc8,ecl,ecr,rc16} %r0, %r1, %r2, %r3
dp4a.{u32,s32}.{u32,s32} %r0, %r1, %r2, %r3
dp2a.{lo,hi}.{u32,s32}.{u32,s32} %r0, %r1, %r2, %r3
{add,sub}.cc.{u32,s32} %r0, %r1, %r2
{addc,subc}.cc.u32 %r0, %r1, %r2
{addc,subc}.u64 %d0, %d1, %d2
{mad.lo,mad.hi,madc.lo,madc.hi}.cc.u32 %r0, %r1, %r2, %r3
v{add,sub,absdiff,min,max}.{s32,u32}.{u32,s32}.{s32.sat,u32} %r0, %r1, %r2
v{add,absdiff,min}.u32.u32.u32.{add,min,max} %r0, %r1.b2, %r2.h1, %r3
v{shl.u32.u32.u32,shr.s32.s32.u32}.{clamp,wrap} %r0, %r1, %r2
vmad.{s32.s32.u32,u32.u32.u32}{,.sat,.shr7,.shr15} %r0, %r1, %r2, %r3
vset.{u32.u32,s32.s32}.{lt,ge,eq} %r0, %r1, %r2
v{add,sub,avrg,min,max}4.{u32.u32.u32,s32.s32.s32}{,.sat} %r0, %r1, %r2, %r3
v{add,avrg,absdiff}2.{u32.u32.u32,s32.s32.s32}{,.add} %r0, %r1, %r2, %r3
{add,sub,mul}.{rn,rz,rm,rp}{,.ftz,.sat}.f32 %f0, %f1, %f2
{add,sub,mul}.{rn,rz,rm,rp}.f64 %g0, %g1, %g2
fma.{rn,rz,rm,rp}{,.ftz,.ftz.sat}.f32 %f0, %f1, %f2, %f3
fma.{rn,rz,rm,rp}.f64 %g0, %g1, %g2, %g3
{div.full,div.approx,div.approx.ftz,div.full.ftz}.f32 %f0, %f1, %f2
{div.rn,div.rz,div.rm,div.rp}{,.ftz}.f32 %f0, %f1, %f2
div.{rn,rz}.f64 %g0, %g1, %g2
{rcp,sqrt}.{rn,rz,rm,rp}{,.ftz}.f32 %f0, %f1
{rcp,sqrt}.{rn,rp}.f64 %g0, %g1
{rcp,sqrt,rsqrt,sin,cos,lg2,ex2}.approx{,.ftz}.f32 %f0, %f1
{sin,cos}.approx.2pi.ftz.f32 %f0, %f1
{rcp,rsqrt}.approx.ftz.f64 %g0, %g1
tanh.approx.f32 %f0, %f1
{tanh.approx.f16,tanh.approx.bf16,ex2.approx.f16,ex2.approx.ftz.bf16} %h0, %h1
{tanh.approx.f16x2,tanh.approx.bf16x2,ex2.approx.f16x2,ex2.approx.ftz.bf16x2} %r0, %r1
{min,max}{,.ftz,.NaN,.ftz.NaN,.xorsign.abs,.NaN.xorsign.abs}.f32 %f0, %f1, %f2
{min,max}.f64 %g0, %g1, %g2
{abs,neg}{,.ftz}.f32 %f0, %f1
{abs,neg}.f64 %g0, %g1
copysign.f32 %f0, %f1, %f2
copysign.f64 %g0, %g1, %g2
testp.{finite,infinite,number,notanumber,normal,subnormal}.f32 %p0, %f1
testp.{finite,infinite,number,notanumber,normal,subnormal}.f64 %p0, %g1
{add,sub,mul}{,.rn,.ftz,.sat,.ftz.sat}.f16 %h0, %h1, %h2
{add,sub,mul}{,.ftz,.sat}.f16x2 %r0, %r1, %r2
{add,sub,mul}.rn.bf16 %h0, %h1, %h2
{add,sub,mul}.rn.bf16x2 %r0, %r1, %r2
fma.rn{,.ftz,.sat,.relu}.f16 %h0, %h1, %h2, %h3
fma.rn{,.ftz,.sat,.relu}.f16x2 %r0, %r1, %r2, %r3
fma.rn{,.relu}.bf16 %h0, %h1, %h2, %h3
fma.rn{,.relu}.bf16x2 %r0, %r1, %r2, %r3
{min,max}{,.ftz,.NaN,.xorsign.abs}.f16 %h0, %h1, %h2
{min,max}{,.ftz,.NaN}.f16x2 %r0, %r1, %r2
{min,max}{,.NaN,.xorsign.abs}.bf16 %h0, %h1, %h2
{abs,neg}.{f16,bf16} %h0, %h1
{abs,neg}.{f16x2,bf16x2} %r0, %r1
cvt.{u8,s8,u16,s16}.{u32,s32} %r0, %r1
cvt.sat.{u8,s8,u16,s16,u32}.s32 %r0, %r1
cvt.sat.s32.{u64,s64} %r0, %d1
cvt.{u32,s32}.{u8,s8,u16,s16} %r0, %r1
cvt.{u64,s64}.{u32,s32} %d0, %r1
cvt.{rn,rz,rm,rp}.f32.{u32,s32} %f0, %r1
cvt.{rn,rz,rm,rp}.f32.{u64,s64} %f0, %d1
cvt.{rni,rzi,rmi,rpi}{,.ftz}.{u32,s32}.f32 %r0, %f1
cvt.{rni,rzi,rmi,rpi}{,.sat}.{u64,s64}.f32 %d0, %f1
cvt.{rni,rzi}.{u8,s8,u16,s16}.f32 %r0, %f1
cvt.{rni,rzi,rmi,rpi}.{u32,s32}.f64 %r0, %g1
cvt.{rni,rzi,rmi,rpi}{,.ftz,.sat}.f32.f32 %f0, %f1
cvt.{rn,rz,rm,rp}{,.ftz,.sat}.f32.f64 %f0, %g1
cvt.f64.f32 %g0, %f1
cvt.{rn,rz}{,.relu}.{f16,bf16}.f32 %h0, %f1
cvt.{rm,rp}.f16.f32 %h0, %f1
cvt.{rn,rz}{,.relu}.{f16x2,bf16x2}.f32 %r0, %f1, %f2
cvt.rna.tf32.f32 %r0, %f1
cvt.{rn,rz}{,.relu}.tf32.f32 %r0, %f1
cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32 %h0, %f1, %f2
cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2 %h0, %r1
cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2} %r0, %h1
cvt.f32.{f16,bf16} %f0, %h1
cvt.rn.f16.{u32,s32} %h0, %r1
cvt.{rni,rzi}.{u32,s32}.f16 %r0, %h1
setp.{eq,ne,lt,le,gt,ge}.{u16,s16} %p0, %h1, %h2
setp.{eq,ne,lt,le,gt,ge}.s32 %p0, %r1, %r2
setp.{lo,ls,hi,hs}.u32 %p0, %r1, %r2
setp.{eq,lt,ge}.{u64,s64} %p0, %d1, %d2
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.f32 %p0, %f1, %f2
setp.{eq,lt,geu,nan}.f64 %p0, %g1, %g2
setp.{eq,ne,lt,gtu,nan}.{f16,bf16} %p0, %h1, %h2
setp.{lt,equ}.{f16x2,bf16x2} %p0|%p3, %r1, %r2
setp.lt.{and,or,xor}.s32 %p0|%p3, %r1, %r2, {%p4,!%p4}
set.{lt,eq}.{u32.s32,s32.u32,f32.s32} %r0, %r1, %r2
set.{ltu,nan}.{u32,s32}.f32 %r0, %f1, %f2
set.gt.and.u32.u32 %r0, %r1, %r2, %p3
selp.{b16,u16} %h0, %h1, %h2, %p3
selp.{b32,s32} %r0, %r1, %r2, %p3
selp.{b64,f64} %d0, %d1, %d2, %p3
slct.{u32,s32,b32}.s32 %r0, %r1, %r2, %r3
slct{,.ftz}.f32.f32 %f0, %f1, %f2, %f3
mov.{b32,u32,s32} %r0, {%r1,%tid.y,%ntid.x,%ctaid.x,%nctaid.z,%laneid,%warpid,%lanemask_lt,%smid,%clusterid.x,%cluster_ctarank}
mov.b64 %d0, {{%r1, %r2}}
mov.b64 {{%r1, %r2}}, %d3
mov.b32 %r0, {{%h1, %h2}}
mov.b32 {{%h1, %h2}}, %r0
mov.b64 {{%h1, %h2, %h3, %h4}}, %d0
ld.global{,.nc,.ca,.cg,.cs,.lu,.cv,.volatile,.relaxed.gpu,.acquire.sys}.u32 %r0, [%d0+4]
ld.global.{u8,s8,u16,s16} %r0, [%d1]
ld.global.{u64,b64} %d3, [%d0]
ld.{global,shared,local,const,param}.b32 %r0, [%d2]
ld.shared{,::cta,::cluster}.{u8,s16,u32} %r0, [%r2]
ld.{global,shared}.v2.u32 {{%r0, %r1}}, [%d2]
ld.{global,shared,local}.v4.f32 {{%f0, %f1, %f2, %f3}}, [%d2+16]
ld.global.nc.v4.u32 {{%r0, %r1, %r2, %r3}}, [%d3]
ld.global.v2.{u8,s16} {{%r0, %r1}}, [%d2]
ld.u32 %r0, [%d2]
ldu.global.u32 %r0, [%d2]
st.global{,.wb,.cg,.cs,.wt,.volatile,.relaxed.cta,.release.gpu}.u32 [%d0+4], %r0
st.{global,shared,local}.{u8,u16} [%d1], %r0
st.{global,shared,local}.v2.u32 [%d2], {{%r0, %r1}}
st.{global,shared}.v4.f32 [%d2], {{%f0, %f1, %f2, %f3}}
st.shared{,::cta,::cluster}.u32 [%r2], %r4
st.u64 [%d2], %d4
atom.{global,shared}.{add,min,max}.{u32,s32} %r0, [%d2], %r3
atom.{global,shared}.{and,or,xor,exch}.b32 %r0, [%d2], %r3
atom.{global,shared}.{inc,dec}.u32 %r0, [%d2], %r3
atom.{global,shared}.cas.b32 %r0, [%d2], %r3, %r4
atom.{global,shared}.{add.u64,min.s64,max.u64,and.b64,exch.b64} %d5, [%d2], %d4
atom.{global,shared}.cas.b64 %d5, [%d2], %d4, %d6
atom.{global,shared}.cas.b16 %h0, [%d2], %h1, %h2
atom.{global,shared}.add.f32 %f0, [%d2], %f1
atom.{global,shared}.add.f64 %g0, [%d2], %g1
atom.{global,shared}.add.noftz.{f16,bf16} %h0, [%d2], %h1
atom.{global,shared}.add.noftz.{f16x2,bf16x2} %r0, [%d2], %r1
atom{.relaxed,.acquire,.release,.acq_rel}.{cta,gpu,sys}.global.add.u32 %r0, [%d2], %r3
atom.global.v2.f32.add {{%f0, %f1}}, [%d2], {{%f2, %f3}}
atom.exch.b128 %q0, [%d2], %q1
red.{global,shared}.{add,min,max}.{u32,s32} [%d2], %r3
red.{global,shared}.{and,or,xor}.b32 [%d2], %r3
red.{global,shared}.{add.f32,add.u64,add.f64} [%d2], {%f0,%d4,%g0}
red.global.add.noftz.{f16x2,bf16x2} [%d2], %r1
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{add,min,inc}.u32 [%r2], %r3, [%r4]
st.async.shared::cluster.mbarrier::complete_tx::bytes.{b32,u32} [%r2], %r3, [%r4]
shfl.sync.{idx,up,down,bfly}.b32 %r0{,|%p1}, %r1, %r2, {0x1f,0x1c03,%r3}, {-1,%r4}
vote.sync.{any,all,uni}.pred %p0, {%p1,!%p1}, {-1,%r4}
vote.sync.ballot.b32 %r0, %p1, {-1,%r4}
match.any.sync.b32 %r0, %r1, {-1,%r4}
match.all.sync.b32 %r0|%p1, %r1, %r4
match.any.sync.b64 %r0, %d1, -1
redux.sync.{add,min,max}.{u32,s32} %r0, %r1, {-1,%r4}
redux.sync.{and,or,xor}.b32 %r0, %r1, -1
activemask.b32 %r0
elect.sync %r0|%p1, {-1,%r4}
bar.sync {0,%r1}
bar.sync 1, {64,%r2}
bar.{arrive,sync} 9, 96
barrier.sync{,.aligned} 1{,; 64}
barrier.arrive.aligned 1, 64
bar.red.{popc.u32 %r0,and.pred %p0,or.pred %p0}, 0, %p1
barrier.cluster.{arrive,arrive.relaxed,wait,wait.acquire}{,.aligned}
bar.warp.sync {-1,%r1}
fence.{sc,acq_rel}.{cta,cluster,gpu,sys}
membar.{cta,gl,sys}
fence.proxy.{async,async.global,async.shared::cta,alias}
cvta.{global,shared,local,const}.u64 %d0, %d1
cvta.to.{global,shared,local,const}.u64 %d0, %d1
cvta.to.shared.u32 %r0, %r1
isspacep.{global,shared,local,const,shared::cluster} %p0, %d1
mapa.shared::cluster.u32 %r0, %r1, %r2
mapa.u64 %d0, %d1, %r2
getctarank.shared::cluster.u32 %r0, %r1
prefetch{,.global}.{L1,L2} [%d2]
cp.async.{ca,cg}.shared.global{,.L2::128B} [%r2], [%d2], 16
cp.async.ca.shared.global [%r2], [%d2], {4,8}{,; %r4}
cp.async.cg.shared.global [%r2], [%d2], 16{,; %r4; %p1}
cp.async.{commit_group,wait_all,wait_group 0,wait_group 2}
cp.async.mbarrier.arrive{,.noinc}.shared.b64 [%r2]
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d2], %r3, [%r4]
cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r2], %r3
cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%d2], [%r2], %r3, %d4
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2], [%r5], %r3, [%r4]
cp.reduce.async.bulk.global.shared::cta.bulk_group.{add.u32,min.s32,inc.u32,and.b32,xor.b64,add.f64} [%d2], [%r2], %r3
cp.reduce.async.bulk.global.shared::cta.bulk_group.{add.f32,add.noftz.f16,add.noftz.bf16,min.f16} [%d2], [%r2], %r3
cp.async.bulk.{commit_group,wait_group 0,wait_group.read 1}
cp.async.bulk.prefetch.L2.global [%d2], %r3
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%d2, {{%r3, %r4}}], [%r5]
cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d2, {{%r3}}], [%r5]
cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d2, {{%r3, %r4, %r6}}], [%r5]
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%d2, {{%r3, %r4}}], [%r5], %h1
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r2], [%d2, {{%r3, %r4}}], [%r5], %d4
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d2, {{%r3, %r4}}], [%r2]
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%d2, {{%r3, %r4}}], [%r2], %d4
cp.reduce.async.bulk.tensor.2d.global.shared::cta.{add,min,max,inc,dec,and,or,xor}.bulk_group [%d2, {{%r3, %r4}}], [%r2]
cp.async.bulk.prefetch.tensor.2d.L2.global [%d2, {{%r3, %r4}}]
prefetch.tensormap [%d2]
ldmatrix.sync.aligned.m8n8.{x1,x1.trans}.shared.b16 {{%r0}}, [%r2]
ldmatrix.sync.aligned.m8n8.{x2,x2.trans}.shared.b16 {{%r0, %r1}}, [%r2]
ldmatrix.sync.aligned.m8n8.{x4,x4.trans}.shared.b16 {{%r0, %r1, %r3, %r4}}, [%r2]
stmatrix.sync.aligned.m8n8.{x1,x1.trans}.shared.b16 [%r2], {{%r0}}
stmatrix.sync.aligned.m8n8.{x4,x4.trans}.shared.b16 [%r2], {{%r0, %r1, %r3, %r4}}
movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {{%f0, %f1, %f2, %f3}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%f4, %f5, %f6, %f7}}
mma.sync.aligned.m16n8k16.row.col.f32.{f16.f16,bf16.bf16}.f32 {{%f0, %f1, %f2, %f3}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%f4, %f5, %f6, %f7}}
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {{%r0, %r1}}, {{%r2, %r3, %r4, %r5}}, {{%r6, %r7}}, {{%r8, %r9}}
mma.sync.aligned.m16n8k8.row.col.f32.{f16.f16,bf16.bf16}.f32 {{%f0, %f1, %f2, %f3}}, {{%r0, %r1}}, {{%r2}}, {{%f4, %f5, %f6, %f7}}
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{%g0, %g1}}, {{%g2}}, {{%g3}}, {{%g4, %g5}}
mma.sync.aligned.m16n8k32.row.col{,.satfinite}.s32.{s8.s8,u8.u8,s8.u8}.s32 {{%r0, %r1, %r2, %r3}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{%r10, %r11, %r12, %r13}}
mma.sync.aligned.m16n8k64.row.col.s32.{s4.s4,u4.s4}.s32 {{%r0, %r1, %r2, %r3}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{%r10, %r11, %r12, %r13}}
mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.{xor,and}.popc {{%r0, %r1, %r2, %r3}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{%r10, %r11, %r12, %r13}}
mma.sync.aligned.m16n8k32.row.col.f32.{e4m3.e4m3,e5m2.e4m3}.f32 {{%f0, %f1, %f2, %f3}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{%f4, %f5, %f6, %f7}}
wgmma.mma_async.sync.aligned.m64n8k16.f32.{f16.f16,bf16.bf16} {{%f0, %f1, %f2, %f3}}, %d1, %d2, {%p1,1}, 1, {1,-1}, 0, {0,1}
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, {{%r0, %r1, %r2, %r3}}, %d2, 1, 1, 1, 1
wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {{%r0, %r1}}, %d1, %d2, 1, 1, 1, 0, 0
wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {{%f0, %f1, %f2, %f3}}, %d1, %d2, 1, 1, 1
wgmma.mma_async.sync.aligned.m64n8k32.f32.{e4m3.e4m3,e5m2.e4m3} {{%f0, %f1, %f2, %f3}}, %d1, %d2, 1, 1, 1
wgmma.mma_async.sync.aligned.m64n8k32.s32.{s8.s8,u8.u8.satfinite} {{%r0, %r1, %r2, %r3}}, %d1, %d2, 1
wgmma.{fence,commit_group}.sync.aligned
wgmma.wait_group.sync.aligned {0,2}
wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32 {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8, %f9, %f10, %f11}}, %d1, %d2, 1, 1, 1
setmaxnreg.{inc,dec}.sync.aligned.u32 {40,232}
griddepcontrol.{launch_dependents,wait}
createpolicy.fractional.L2::evict_last.b64 %d0, 0.5
nanosleep.u32 %r0
trap
exit
""".strip().splitlines()


def llvm_text(ptx: str, entry: str, threads: int = 128, mode: str = "plain", general: bool = False) -> str:
    """Return the LLVM text of one build of a kernel."""
    return lower(Program(parse(ptx), entry, (threads, 1, 1)), general, "k", mode).text


def expand_line(line: str) -> list[str]:
    """The instructions that a line stands for: with each of the words in braces; doubled braces are PTX's own."""
    pieces = re.split(r"(\{\{|\}\}|\{[^{}]*\})", line)
    choices = [
        ["{" if piece == "{{" else "}"] if piece in ("{{", "}}") else _split_words(piece[1:-1])
        if piece.startswith("{") else [piece]
        for piece in pieces
    ]  # fmt: skip
    return ["".join(one) for one in itertools.product(*choices)]


def _split_words(text: str) -> list[str]:
    """The words between commas; a semicolon is a comma of PTX's."""
    return [word.replace(";", ",") for word in text.split(",")]


def list_lines() -> dict[str, list[str]]:
    """By a line, the instructions that it stands for: of the assembler's orders of modifiers, and of LINES."""
    found = {line: [line] for form in FORMS for line in [form.line(".".join(form.parts)).rstrip(";")]}
    listed = (line.split(None, 1) for line in KEPT.read_text().splitlines())
    found |= {line.rstrip(";"): [line.rstrip(";")] for verdict, line in listed if verdict == "takes"}
    return found | {line: expand_line(line) for line in LINES}


def list_kernels() -> dict[str, list[tuple[str, int, str]]]:
    """By a line, PTX, threads and builds: two kernels for each instruction that it stands for; and one for each family."""
    kernels = {
        line: [one for each in instructions for one in _kernels_of(each)]
        for line, instructions in list_lines().items()
    }
    families = {f"({name})": [(one.text, one.block, "pPckK")] for name, one in by_hand().items()}
    return kernels | families


def _kernels_of(line: str) -> Iterator[tuple[str, int, str]]:
    """An instruction where lanes have each their own numbers: said of all, under a guard, and apart; where they have them in
    common; and where only some lanes have the result."""
    used = [*dict.fromkeys(_REGISTER.findall(line))]
    alike = " ".join(_SET[kind].format(n=n, x="%w") for kind, n in used)
    own = " ".join(_SET[kind].format(n=n, x="%r126" if int(n) % 2 else "%t") for kind, n in used)
    start = f"{_VARIABLES} ld.param.u32 %w, [pa]; setp.lt.u32 %p6, %w, 9;"
    apart = f"{line}; @%p7 {line}; @!%p6 {line}; @%p7 bra L; {line}; add.u32 %r127, %t, 1; L:"
    lanes = f"mov.u32 %t, %tid.x; {_ANYHOW} {own} setp.lt.u32 %p7, %t, 9; {apart}"
    yield KERNEL.format(line=f"{start} {lanes}"), 128, "pPckK"
    yield KERNEL.format(line=f"{start} {alike} {line}; @%p6 {line};"), 128, "pck"
    some = f"mov.u32 %t, %tid.x; setp.lt.u32 %p7, %t, 9; {alike} @!%p7 {line};"
    yield KERNEL.format(line=f"{start} {some}"), 128, "p"


def describe_line(line: str, kernels: list[tuple[str, int, str]]) -> str:
    """A hash for each build of all that the line stands for; a refusal has that of its words."""
    hashes: dict[str, hashlib._Hash] = {}
    for ptx, threads, builds in kernels:
        for build in builds:
            mode, general = BUILDS[build]
            try:
                text = llvm_text(ptx, "k", threads, mode, general)
            except tw.TilewiseError as error:
                text = f"[{error}]"
            made = hashes.setdefault(build, hashlib.sha256())
            made.update(text.replace("readsteadycounter", "readcyclecounter").encode())
    return " ".join((*(build + made.hexdigest()[:6] for build, made in hashes.items()), f" {line}"))


def describe_routines() -> list[str]:
    """A line for each routine of the run-time support that kernels call, of the checker's and of the profiler's."""
    with mock.patch("platform.machine", return_value="x86_64"):  # whose registers one of them sets
        text = native.support_text()
    first, *others = re.split(r"^(?=define )", text, flags=re.MULTILINE)
    named = {"(declarations)": first}
    for text in others:
        named[text[text.index("@") : text.index("(")]] = text
    return [f"s{hashlib.sha256(text.encode()).hexdigest()[:6]}  {name}" for name, text in named.items()]


PARTS = 4  # that are compared by themselves


def describe_part(part: int) -> list[str]:
    """The lines of every fourth one."""
    return [describe_line(*one) for one in itertools.islice(list_kernels().items(), part, None, PARTS)]


def main() -> None:
    GOLDEN.write_text(
        "\n".join((*(describe_line(*one) for one in list_kernels().items()), *describe_routines())) + "\n"
    )


if __name__ == "__main__":
    main()
