"""Instructions made of others by one change each: what somebody may write who has a modifier or an operand wrong.

Every modifier is left out, said twice, moved, and replaced by all words of its kind; modifiers and operands are added that
do not belong there; every operand is replaced by each of another kind, and numbers by those about every limit. Which of
them there are depends on the instructions alone: of what makes too many, one in so many is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tests.lowered_texts import expand_line, list_lines
from tilewise.emulator.operations.registry import operations

__all__ = ["changed_instructions", "list_forms", "variants_of"]

# Instructions that lowered_texts has no line for, or none of their rarer words.
MORE = """
{min,max}.f32 %f0, %f1, %f2, %f3{,; %f4}
bra L
bra.uni L
brx.idx %r0, T
call f
call {f2,(%r0)}
call.uni f
ret
ret.uni
brkpt
pmevent {5,15,16}
pmevent.mask 3
prefetchu.L1 [%d2]
prefetch.global.L2::evict_last [%d2]
discard.global.L2 [%d2], 128
applypriority.global.L2::evict_normal [%d2], 128
isspacep.param %p0, %d1
clmad.{lo,hi}.u64 %d0, %d1, %d2, %d3
st.bulk.weak.shared::cta [%r2], {16,%d3}, 0
createpolicy.range.{L2::evict_first,global.L2::evict_last.L2::evict_first}.b64 %d0, [%d1], %r1, %r2
createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %d0
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r2], [%r4]
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p0, %q0
clusterlaunchcontrol.query_cancel.get_first_ctaid::{x,z}.b32.b128 %r0, %q0
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%r0, %r1, %r2, %r3}}, %q0
mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {{%f0, %f1, %f2, %f3}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5, %r6, %r7}}, {{%f4, %f5, %f6, %f7}}, %r8, {0,1}
mma.sp.sync.aligned.m16n8k16.row.col.f32.{tf32.tf32}.f32 {{%f0, %f1, %f2, %f3}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5, %r6, %r7}}, {{%f4, %f5, %f6, %f7}}, %r8, 0
mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {{%r0, %r1, %r2, %r3}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9, %r14, %r15}}, {{%r10, %r11, %r12, %r13}}, %r16, 0
mma.sync.aligned.m8n8k4.{row.col,col.row}.f32.f16.f16.f32 {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}, {{%r0, %r1}}, {{%r2, %r3}}, {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}
mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {{%r0, %r1}}, {{%r2}}, {{%r3}}, {{%r4, %r5}}
mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {{%g0, %g1, %g2, %g3}}, {{%g0, %g1, %g2, %g3, %g4, %g5, %g6, %g7}}, {{%g8, %g9, %g10, %g11}}, {{%g0, %g1, %g2, %g3}}
wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %d1, %d2, %r8, 0, 1, 1, 1, 0, 0
wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {{%r0, %r1, %r2, %r3}}, %d1, %d2, 1
wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}}, [%d2], %r3
wmma.load.b.sync.aligned.col.m16n16k16.global.s8 {{%r0, %r1}}, [%d2]
wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}, [%d2], 16
wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%d2], {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}, %r3
wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32 {{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}}, {{%r0, %r1}}, {{%r2, %r3}}, {{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}}
wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {{%r0, %r1}}, {{%r2}}, {{%r3}}, {{%r4, %r5}}
cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r2], [%d2, {{%r3, %r4, %r5, %r6}}], [%r7], {{%h1, %h2}}
cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%d2, {{%r3, %r4, %r5}}], {{%h1}}
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d2], 64, [%r4]
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%d2], %r3, [%r4], %h1
cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d2], [%r2], %r3, %h1
tensormap.replace.tile.{global_address,rank,box_dim,elemtype,interleave_layout,fill_mode}.global.b1024.b32 [%d2], {1,%r1}
tensormap.replace.tile.{box_dim,element_stride,global_dim}.shared::cta.b1024.b32 [%d2], {0,4,5}, %r1
cvt.pack.sat.{u8,s8}.s32.b32 %r0, %r1, %r2, %r3
cvt.pack.sat.{u16,s16}.s32 %r0, %r1, %r2
cvt.rs{,.relu}.satfinite.{e4m3x4,e2m1x4}.f32 %r0, {{%f1, %f2, %f3, %f4}}, %r5
cvt.rs.{f16x2,bf16x2}.f32 %r0, %f1, %f2, %r3
cvt.rn.satfinite.e2m1x2.f32 %b1, %f1, %f2
cvt.rz.ue8m0x2.f32 %h0, %f1, %f2
vset{2,4}.u32.u32.lt{,.add} %r0, %r1, %r2, %r3
v{add,min}2.u32.u32.u32 %r0.{h0,h1,h10}, %r1.{h10,h32,h13}, %r2, %r3
v{add,min}4.u32.u32.u32 %r0.{b0,b3210}, %r1.{b7654,b0123}, %r2, %r3
vmad.u32.u32.u32.po %r0, %r1.b0, %r2.h0, %r3
vadd.u32.u32.u32 %r0.{b0,h1}, %r1, -%r2.b3, %r3
{tex.1d.v4.f32.s32,tld4.r.2d.v4.f32.f32,suld.b.1d.b32.trap,tcgen05.alloc,multimem.red.add.u32,alloca.u64,stacksave.u64} %r0, %r1
{txq.width.b32,istypep.texref,sust.b.1d.b32.trap,sured.b.add.1d.u32.trap,suq.width.b32,fabric.x,spcompress.x} %r0, %r1
{ad,addd,mvo,brar,shlf,mbarier.init.b64,wgmma.mma_asyn,ldmatrx.x,xyz} %r0, %r1
""".strip().splitlines()

_KINDS = [
    kind.split()
    for kind in (
        "u8 s8 b8 u16 s16 b16 f16 bf16 u32 s32 b32 f32 tf32 u64 s64 b64 f64 b128 pred f16x2 bf16x2 f32x2 s16x2 u16x2 u8x4"
        " s8x4 e4m3 e5m2 e4m3x2 e5m2x2 e2m1x2 e2m3x2 e3m2x2 ue8m0x2 e4m3x4 b1 u4 s4 s2 u2 f32.bf16 f32.f16",
        "rn rz rm rp rna rni rzi rmi rpi rs approx full",
        "global shared local const param shared::cta shared::cluster generic",
        "cta cluster gpu sys gl",
        "relaxed acquire release acq_rel sc volatile weak mmio",
        "ca cg cs cv lu wb wt nc",
        "v2 v4 v8", "x1 x2 x4 x8", "row col", "1d 2d 3d 4d 5d 0d 6d", "lo hi wide", "l r", "to up down bfly idx",
        "add sub min max inc dec and or xor exch cas popc",
        "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan",
        "m8n8k4 m16n8k4 m16n8k8 m16n8k16 m16n8k32 m16n8k64 m16n8k128 m16n8k256 m8n8k16 m8n8k32 m8n8k128 m16n16k16 m8n32k16"
        " m32n8k16 m16n16k8 m64n8k8 m64n8k16 m64n8k32 m64n8k64 m64n8k256 m64n24k32 m64n12k16 m64n256k16 m64n264k16"
        " m64n0k16 m8n8 m16n8 m16n16 m8n16",
        "all any uni ballot", "wrap clamp", "f4e b4e rc8 ecl ecr rc16", "sync aligned", "tile im2col im2col_no_offs im2col::w",
        "sat satfinite ftz relu NaN xorsign abs noftz", "sat shr7 shr15 shr8 po", "load store mma",
        "finite infinite number notanumber normal subnormal zero", "arrive wait red sync",
        "commit_group wait_group wait_all fence mma_async", "launch_dependents wait",
        "init inval expect_tx complete_tx arrive arrive_drop test_wait try_wait parity pending_count",
        "L1 L2 L3", "L2::64B L2::128B L2::256B L2::512B L2::cache_hint L1::evict_last L1::no_allocate L2::evict_first"
        " L2::evict_normal L2::evict_last L2::evict_unchanged",
        "bulk_group mbarrier::complete_tx::bytes multicast::cluster read trans noinc",
        "async proxy alias mbarrier_init async.global tensormap", "a b c d", "fractional range", "b0 b3 b4 h0 h1 h2",
    )
]  # fmt: skip
# Words that are put where they may not belong: of each kind some.
_EXTRA = """
frob ftz sat rn rz relu satfinite NaN abs xorsign approx full cc wide lo noftz volatile nc v2 v4 sync aligned trans global
shared shared::cluster cta cluster gpu relaxed acquire release u32 f32 b64 f16 pred and popc uni L2::cache_hint
multicast::cluster L1::no_allocate 2pi to clamp row x2 read noinc sp m16n8k16 cta_group::2 shared::foo
"""
_KIND_OF_WORD: dict[str, list[list[str]]] = {}
for _kind in _KINDS:
    for _word in _kind:
        _KIND_OF_WORD.setdefault(_word, []).append(_kind)

_OPERANDS = (
    "%p0", "%h0", "%r0", "%d0", "%q0", "%f0", "%g0", "%b1", "1", "1.5", "0f3F800000", "0d3FF0000000000000", "[%d0]", "[%r0]",
    "[sh+4]", "{%r0, %r1}", "{%h0, %h1}", "{}", "sh", "gl+8", "nothing", "_", "!%p0", "!%r0", "%r0|%p0", "%p0|%p1", "%tid.x",
    "%tid", "%clock64", "%nope", "WARP_SZ", "-%r0", "%r0+4", "[%r0+4, {%r1}]", "(1+2)*3", "\"text\"", "%d0.x", "sh[2]", "L",
)  # fmt: skip
_NUMBERS = (
    "0", "-1", "2", "3", "4", "5", "6", "7", "8", "9", "12", "15", "16", "17", "23", "24", "31", "32", "33", "63", "64", "65",
    "96", "127", "128", "129", "255", "256", "257", "264", "1023", "1024", "1025", "4095", "4096", "32767", "65535", "65536",
    "1048575", "1048576", "0x7fffffff", "0x80000000", "0xffffffff", "0x100000000", "0xffffffffffffffff", "0x10000000000000000",
    "-128", "-129", "-2147483648", "-2147483649", "0.25", "0.0", "1.0", "-0.5", "1.25", "0f3E800000",
)  # fmt: skip
_SOME_NUMBERS = ("0", "-1", "32", "255", "256", "0x80000000", "0x100000000", "0.0")
_PLACES = (
    "[%d0+1]", "[%d0-4]", "[%d0+0x7fffffff]", "[%d0+0x100000000]", "[gl]", "[gl+1024]", "[cn]", "[lo+4]", "[pa+8]", "[sh]",
    "[m]", "[16]", "[%h0]", "[%f0]", "[%p0]", "[%g0]", "[%q0]", "[nothing]", "[%tid.x]", "[{%r0}]", "[%d0", "[1.5]",
    "[%d0, {%r0}]", "[%d0, {%r0, %r1}]", "[%d0, {%r0, %r1, %r2}]", "[%d0, {%d0, %r1}]", "[%d0, {1, 2}]", "[%d0, {%h0, %h1}]",
)  # fmt: skip
_ITEMS = ("%p0", "%h0", "%r0", "%d0", "%f0", "%g0", "%b1", "_", "1", "1.5", "sh", "{%r0}", "[%d0]", "%tid.x")
_LEAST, _OF_WORDS, _OF_OTHERS, _FEW = 30, 5, 11, 100
_OPERAND_KIND = re.compile(r"%([phrfdgqb])\d+")


def list_forms() -> dict[str, list[str]]:
    """By a line of the lists, the instructions that it stands for."""
    return list_lines() | {line: expand_line(line) for line in MORE}


def variants_of(forms: dict[str, list[str]]) -> dict[str, list[str]]:
    """By operation, its instructions, and variants of them, none twice: those without one modifier; and of other kinds of
    change one each, of many only one in so many. Of what is no operation there are a few.
    """
    instructions = dict.fromkeys(each for listed in forms.values() for each in listed)
    seen, known = set(instructions), set[tuple[str, str]]()
    found: dict[str, tuple[list[str], list[str], list[str]]] = {}
    for instruction in instructions:
        operation = _operation_of(instruction)
        all_of, words, others = found.setdefault(operation, ([], [], []))
        all_of.append(instruction)
        for what, variant in changed_instructions(instruction):
            less = what.startswith("word without ")
            if variant in seen or ((operation, what) in known and not less):
                continue
            seen.add(variant)
            known.add((operation, what))
            (all_of if less else words if " to " in what else others).append(variant)
    return {
        operation: [*all_of, *_evenly(words, _OF_WORDS), *_evenly(others, _OF_OTHERS)]
        if operation in operations()
        else [*all_of, *_evenly([*words, *others], _FEW)]
        for operation, (all_of, words, others) in found.items()
    }


def _evenly(listed: list[str], share: int) -> list[str]:
    """Some of a list, from all places of it: a few, and of more than those one of ``share``."""
    count = len(listed)
    most = min(_LEAST + max(count - _LEAST, 0) // share, count)
    return [listed[i * count // most] for i in range(most)]


def _operation_of(instruction: str) -> str:
    """The operation, by the words that the tables have for it; of what they do not have, the opcode."""
    opcode, *parts = instruction.split(None, 1)[0].split(".")
    names = [".".join((opcode, *parts[:count])) for count in range(len(parts) + 1)]
    return next((name for name in reversed(names) if name in operations()), opcode)


def changed_instructions(instruction: str) -> Iterator[tuple[str, str]]:
    """What is changed, and the instruction with the change."""
    name, _, text = instruction.partition(" ")
    opcode, *parts = name.split(".")
    operands = [one for one in _split(text) if one]
    for what, changed in _changed_words(parts):
        yield f"word {what}", " ".join((".".join((opcode, *changed)), text)).rstrip()
    for what, listed in _changed_operands(operands):
        yield f"operand {what}", " ".join((name, ", ".join(listed))).rstrip()


def _changed_words(parts: list[str]) -> Iterator[tuple[str, list[str]]]:
    for i, word in enumerate(parts):
        before, behind = parts[:i], parts[i + 1 :]
        yield f"without {word}", [*before, *behind]
        yield f"twice {word}", [*before, word, word, *behind]
        yield f"unknown for {word}", [*before, "frob", *behind]
        for kind in _KIND_OF_WORD.get(word, ()):
            for other in kind:
                yield f"{word} to {other} of {i - len(parts)}", [*before, other, *behind]
        yield f"{word} in capitals", [*before, word.swapcase(), *behind]
    for word in _EXTRA.split():
        yield f"with {word}", [*parts[:-1], word, *parts[-1:]]
    yield "turned round", parts[::-1]
    yield "moved", [*parts[1:], *parts[:1]]
    yield "last first", [*parts[-1:], *parts[:-1]]


def _changed_operands(operands: list[str]) -> Iterator[tuple[str, list[str]]]:
    yield "none", []
    yield "without the last", operands[:-1]
    yield "without the first", operands[1:]
    yield "twice the last", [*operands, *operands[-1:]]
    yield "turned round", operands[::-1]
    for more in ("%r7", "%d7", "[%d7]", "1", "%p5"):
        yield f"and {more}", [*operands, more]
    for i, operand in enumerate(operands):
        kind = _OPERAND_KIND.match(operand)
        sort = kind[1] if kind else operand[:1]
        for what, changed in _other_operands(operand, first=not i):
            yield f"{i} of {len(operands)}, {sort}: {what}", [*operands[:i], changed, *operands[i + 1 :]]


def _other_operands(operand: str, first: bool) -> Iterator[tuple[str, str]]:
    others: Iterable[str] = _OPERANDS
    if operand.startswith("["):
        others = (*_OPERANDS, *_PLACES)
    elif operand[0].isdigit() or operand[0] == "-":
        others = (*_OPERANDS, *_NUMBERS)
    elif operand.startswith("%"):  # the first one is most often a result
        others = (*_OPERANDS, *(() if first else _SOME_NUMBERS))
    for other in others:
        yield other, other
    if operand.startswith("{"):
        items = _split(operand[1:-1])
        yield "less", f"{{{', '.join(items[:-1])}}}"
        yield "more", f"{{{', '.join((*items, items[-1]))}}}"
        yield "first alone", items[0]
        for i in {0, len(items) - 1}:
            for item in _ITEMS:
                yield f"{i} is {item}", f"{{{', '.join((*items[:i], item, *items[i + 1 :]))}}}"


def _split(text: str) -> list[str]:
    """Operands between the commas that are in no brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [one.strip() for one in found]
