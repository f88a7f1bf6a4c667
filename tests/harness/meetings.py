"""One kernel of many pairs of accesses to one place: what one thread does, how the two meet, and what another does then.

The arguments choose both accesses, the way of meeting, and the threads; a kernel is of places in one space.
"""

from __future__ import annotations

from typing import Any

import tilewise as tw

__all__ = ["ACTIONS", "BLOCK", "MEETINGS", "make_pair_kernel", "pack_pair"]

BLOCK = 64

# What a thread does at the place {a}; {w} is the space. Those of an asynchronous copy are of one space alone.
_PLAIN = """
ld.{w}u32 %r0, [{a}]
ld.{w}u8 %r0, [{a}+1]
ld.{w}v4.u32 {%r0, %r1, %r2, %r3}, [{a}]
st.{w}u32 [{a}], 7
st.{w}u32 [{a}], 8
st.{w}u8 [{a}+3], 7
st.{w}v2.u32 [{a}], {%r1, %r2}
atom.{w}add.u32 %r0, [{a}], 1
red.{w}add.u32 [{a}], 2
atom.{w}cas.b32 %r0, [{a}], 99, 1
atom.{w}exch.b64 %d0, [{a}], 3
ld.volatile.{w}u32 %r0, [{a}]
st.volatile.{w}u32 [{a}], 7
ld.acquire.gpu.{w}u32 %r0, [{a}]
st.release.gpu.{w}u32 [{a}], 7
ld.relaxed.cluster.{w}u32 %r0, [{a}]
atom.acq_rel.gpu.{w}or.b32 %r0, [{a}], 1
""".strip().splitlines()
_LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_OUT = "cp.async.bulk.global.shared::cta.bulk_group"
_SHARED = f"""
cp.async.ca.shared.global [%s], [%x], 4
cp.async.cg.shared.global [%s], [%x], 16; cp.async.commit_group
cp.async.ca.shared.global [%s], [%x], 8; cp.async.commit_group; cp.async.wait_group 0
cp.async.ca.shared.global [%s], [%x], 4; cp.async.commit_group; cp.async.wait_group 1
cp.async.ca.shared.global [%s], [%x], 4; cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1
cp.async.ca.shared.global [%s], [%x], 4; cp.async.wait_all
cp.async.ca.shared.global [%s], [%x], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [%told]
{_LOAD} [%s], [%x], 16, [%bar]
{_LOAD} [%s], [%x], 16, [%bar]; mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 16; AWAIT %bar
fence.proxy.async; {_LOAD} [%s], [%x], 16, [%bar]; mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 16; AWAIT %bar
{_OUT} [%x], [%s], 16
{_OUT} [%x], [%s], 16; cp.async.bulk.commit_group
fence.proxy.async.shared::cta; {_OUT} [%x], [%s], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0
fence.proxy.async; {_OUT} [%x], [%s], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0
fence.proxy.async; {_OUT} [%x], [%s], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 1
fence.proxy.async
mbarrier.init.shared.b64 [%s], 1
mbarrier.init.shared.b64 [%s], 2; mbarrier.arrive.shared.b64 %d0, [%s]
mbarrier.test_wait.parity.shared.b64 %p2, [%s], 0
""".strip()
_GLOBAL = f"""
{_OUT} [%x], [%sh], 16; cp.async.bulk.commit_group
{_OUT} [%x], [%sh], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0
{_OUT} [%x], [%sh], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%x], [%sh], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0
{_LOAD} [%sh], [%x], 16, [%bar]; mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 16; AWAIT %bar
cp.async.ca.shared.global [%sh], [%x], 4; cp.async.wait_all
ld.global.nc.u32 %r0, [%x]
""".strip()
_SEND = "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%c], 5, [%far]"
_CLUSTER = f"""
{_SEND}
{_SEND}; mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%far], 4
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%c], [%sh], 16, [%far]
st.shared.u32 [%s], 9
ld.shared.u32 %r0, [%s]
""".strip()
_WAYS = {
    "shared": ("shared.", "%s", _SHARED), "global": ("global.", "%x", _GLOBAL),
    "cluster": ("shared::cluster.", "%c", _CLUSTER), "generic": ("", "%y", "ld.global.u32 %r0, [%x]"),
}  # fmt: skip
ACTIONS: dict[str, list[str]] = {
    name: [line.replace("{w}", word).replace("{a}", place) for line in _PLAIN] + more.splitlines()
    for name, (word, place, more) in _WAYS.items()
}

# How the two meet, by all threads: %first and %second say which of them a thread is.
_FLAG = "@%first {set}; @!%second bra PAST{n}; SPIN{n}: {look}; setp.eq.u32 %p2, %r3, 0; @%p2 bra SPIN{n}; {then} PAST{n}:"
_SETS = {
    "st.volatile.global.u32 [%f], 1": "ld.volatile.global.u32 %r3, [%f]",
    "st.release.gpu.global.u32 [%f], 1": "ld.acquire.gpu.global.u32 %r3, [%f]",
    "st.relaxed.gpu.global.u32 [%f], 1": "ld.acquire.gpu.global.u32 %r3, [%f]",
    "st.release.gpu.global.u32 [%f], 1 ": "ld.relaxed.gpu.global.u32 %r3, [%f]",
    "atom.global.exch.b32 %r3, [%f], 1": "atom.global.or.b32 %r3, [%f], 0",
    "red.release.gpu.global.add.u32 [%f], 1": "atom.acquire.gpu.global.add.u32 %r3, [%f], 0",
    "membar.gl; @%first st.volatile.global.u32 [%f], 1": "ld.volatile.global.u32 %r3, [%f]",
    "fence.acq_rel.cta; @%first st.volatile.global.u32 [%f], 1": "ld.volatile.global.u32 %r3, [%f]",
    "fence.sc.sys; @%first st.relaxed.sys.global.u32 [%f], 1": "ld.relaxed.sys.global.u32 %r3, [%f]",
    "st.release.cta.shared.u32 [flag], 1": "ld.acquire.cta.shared.u32 %r3, [flag]",
    "membar.cta; @%first st.volatile.shared.u32 [flag], 1": "ld.volatile.shared.u32 %r3, [flag]",
}
MEETINGS = [
    "", "bar.warp.sync 0xffffffff;", "bar.warp.sync 0xffff;" , "bar.sync 0;", "barrier.sync 3, 64;", "bar.red.popc.u32 %r3, 1, %first;",
    "setp.lt.u32 %p2, %t, 32; @%p2 bar.arrive 2, 64; @!%p2 bar.sync 2, 64;", "setp.lt.u32 %p2, %t, 32; @%p2 bar.sync 2, 64; @!%p2 bar.arrive 2, 64;",
    "barrier.cluster.arrive; barrier.cluster.wait;", "barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;",
    "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;",
    "shfl.sync.idx.b32 %r3, %t, 0, 31, -1;", "vote.sync.any.pred %p2, %first, -1;", "membar.gl;", "fence.proxy.async; bar.sync 0;",
    "cp.async.wait_all; bar.sync 0;", "cp.async.bulk.wait_group 0; bar.sync 0;", "cp.async.bulk.wait_group.read 0; bar.sync 0;",
    "@%first mbarrier.arrive.shared.b64 _, [%met]; @!%second bra PAST; AWAIT %met; PAST:",
    "@%first mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%met]; @!%second bra PASU; AWAIT %met; PASU:",
    "fence.proxy.async; @%first mbarrier.arrive.shared.b64 _, [%met]; @!%second bra PASV; AWAIT %met; PASV:",
    *(_FLAG.format(n=f"f{i}", set=one, look=look, then="") for i, (one, look) in enumerate(_SETS.items())),
    *(_FLAG.format(n=f"g{i}", set=one, look=look, then="membar.gl;") for i, (one, look) in enumerate(_SETS.items())),
]  # fmt: skip

_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 f, .param .u32 one, .param .u32 meeting, .param .u32 two, .param .u32 first,
    .param .u32 second, .param .u32 by, .param .u32 further)
{
.reg .b32 %r<4>, %t, %i, %s, %c, %sh, %sc, %bar, %met, %told, %far, %one, %two, %meeting, %n, %by, %more; .reg .b64 %d<2>, %x, %f, %y, %z;
.reg .pred %p<4>, %first, %second;
.shared .align 128 .b8 sh[256]; .shared .align 8 .b64 bars[4]; .shared .b32 flag;
"""
_START = """
ld.param.u64 %x, [x]; ld.param.u64 %f, [f]; ld.param.u32 %one, [one]; ld.param.u32 %two, [two]; ld.param.u32 %meeting, [meeting];
ld.param.u32 %by, [by]; ld.param.u32 %more, [further];
mov.u32 %t, %tid.x; mov.u32 %n, %ctaid.x; mad.lo.u32 %i, %n, 64, %t; ld.param.u32 %n, [first]; setp.eq.u32 %first, %i, %n;
ld.param.u32 %n, [second]; setp.eq.u32 %second, %i, %n; mov.u32 %sh, sh; mov.u32 %bar, bars; add.u32 %met, %bar, 8; add.u32 %told, %bar, 16;
setp.eq.u32 %p0, %t, 0; mov.b32 %r0, 0; mov.b32 %r1, 1; mov.b32 %r2, 2;
mad.lo.u32 %s, %t, 4, %sh; st.shared.u32 [%s], 0; @%p0 mbarrier.init.shared.b64 [%bar], 1; @%p0 mbarrier.init.shared.b64 [%met], 1;
@%p0 mbarrier.init.shared.b64 [%told], 1; @%p0 st.shared.u32 [flag], 0; fence.mbarrier_init.release.cluster; fence.proxy.async;
barrier.cluster.arrive; barrier.cluster.wait;
mapa.shared::cluster.u32 %sc, %sh, 1; mapa.shared::cluster.u32 %far, %bar, 1; cvt.u64.u32 %z, %sh; cvta.shared.u64 %y, %z;
add.u32 %s, %sh, %by; add.u32 %c, %sc, %by; cvt.u64.u32 %z, %by; add.u64 %x, %x, %z; add.u64 %y, %y, %z;
"""
_END = """
cp.async.wait_all; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
barrier.cluster.arrive; barrier.cluster.wait;
ret;
}
"""


def _await(text: str, label: str) -> str:
    """The text with waits for the first phase of an mbarrier written out, as a loop each."""
    parts = text.split("AWAIT ")
    for i, part in enumerate(parts[1:], 1):
        name, rest = (
            part[: part.find(";") if ";" in part else None],
            part[part.find(";") :] if ";" in part else "",
        )
        loop = f"{label}{i}: mbarrier.try_wait.parity.shared.b64 %p3, [{name}], 0; @!%p3 bra {label}{i}"
        parts[i] = loop + rest
    return "".join(parts)


def _chosen(name: str, by: str, texts: list[str], guard: str = "") -> list[str]:
    """One of the texts, by a number; only for threads for which the guard holds."""
    lines = [f"@!{guard} bra {name}END;"] if guard else []
    lines += [
        f"{name}T: .branchtargets {', '.join(f'{name}{i}' for i in range(len(texts)))};",
        f"brx.idx {by}, {name}T;",
    ]
    for i, text in enumerate(texts):
        lines.append(
            f"{name}{i}: {_await(text, f'{name}W{i}_')}{'' if text.endswith((';', ':')) else ';'} bra {name}END;"
        )
    return [*lines, f"{name}END:"]


def make_pair_kernel(space: str) -> tw.Kernel:
    """The kernel of pairs of accesses to places in a space."""
    move = "add.u32 %s, %s, %more; add.u32 %c, %c, %more; cvt.u64.u32 %z, %more; add.u64 %x, %x, %z; add.u64 %y, %y, %z;"
    lines = [
        *_chosen("A", "%one", ACTIONS[space], "%first"), *_chosen("M", "%meeting", [one or "mov.u32 %n, 0;" for one in MEETINGS]), move,
        *_chosen("B", "%two", ACTIONS[space], "%second"),
    ]  # fmt: skip
    return tw.Kernel.from_ptx(_HEAD + (_START + "\n".join(lines)).replace("; ", ";\n") + _END, "k")


def pack_pair(
    x: Any,
    flag: Any,
    one: int,
    meeting: int,
    two: int,
    threads: tuple[int, int],
    by: int = 0,
    further: int = 0,
) -> list[Any]:
    """The kernel's arguments: the second access is ``further`` bytes from the first."""
    return [x, flag, one, meeting, two, *threads, by, further]
