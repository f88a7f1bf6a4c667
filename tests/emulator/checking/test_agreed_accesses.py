"""Accesses of two threads that nothing orders, and which of them agree with one another nevertheless."""

from __future__ import annotations

import pytest

import tilewise as tw

_HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k() {
.reg .b32 %t, %a, %r, %v, %w; .reg .pred %p, %q, %u; .shared .align 16 .b32 s[32];
mov.u32 %t, %tid.x;
"""
_ATOMIC = "atom.relaxed.cluster.shared::cluster.add.u32 %v, [%a], 5;"
_OF_BLOCK = "atom.relaxed.cta.shared::cluster.add.u32 %v, [%a], 5;"
_PLAIN = "st.shared::cluster.u32 [%a], 3;"
_STRONG = "st.relaxed.cluster.shared::cluster.u32 [%a], 3;"
_READ = "ld.shared::cluster.u32 %v, [%a];"
_STRONG_READ = "ld.relaxed.cluster.shared::cluster.u32 %v, [%a];"
_OTHER = "st.shared::cluster.u32 [%a], 4;"


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        (_ATOMIC, _ATOMIC, []), (_ATOMIC, _OF_BLOCK, ["write-write"]), (_OF_BLOCK, _ATOMIC, ["write-write"]),
        (_ATOMIC, _PLAIN, []), (_PLAIN, _ATOMIC, []), (_ATOMIC, _STRONG, []), (_PLAIN, _OTHER, ["write-write"]),
        (_PLAIN, _READ, ["read-write"]), (_READ, _PLAIN, ["read-write"]), (_PLAIN, _STRONG_READ, []),
        (_STRONG, _READ, ["read-write"]), (_STRONG_READ, _STRONG, []), (_READ, _READ, []), (_READ, _ATOMIC, ["read-write"]),
    ],
)  # fmt: skip
def test_blocks_of_a_cluster_agree_where_both_are_atomic_or_may_be(
    first: str, second: str, kinds: list[str]
) -> None:
    """A plain store to another block's memory may be one of those that are atomic; two of them are none."""
    text = f"""{_HEAD}mov.u32 %r, %cluster_ctarank;
setp.eq.u32 %u, %t, 0; setp.eq.and.u32 %p, %r, 0, %u; setp.eq.and.u32 %q, %r, 1, %u;
@%u st.shared.u32 [s], 0;
barrier.cluster.arrive; barrier.cluster.wait;
mov.u32 %a, s; mapa.shared::cluster.u32 %a, %a, 0;
@%p {first}
@%q {second}
barrier.cluster.arrive; barrier.cluster.wait;
ret; }}"""
    for order in ("eager", "late"):
        found = tw.Kernel.from_ptx(text, "k").check(2, 32, [], cluster=2, order=order)
        assert [item.kind for item in found] == kinds, "\n".join(map(str, found))


@pytest.mark.parametrize(
    ("read", "block", "kinds"),
    [
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%v}, [%a];", 32, []),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%v}, [%a];", 64, ["read-write"]),
        ("ld.shared.u32 %v, [%a];", 32, ["read-write"]), ("ld.shared.u32 %v, [%w];", 32, []),
    ],
)  # fmt: skip
def test_a_warp_may_overwrite_what_all_its_lanes_have_read_as_one(
    read: str, block: int, kinds: list[str]
) -> None:
    """What a lane alone has read, it alone may overwrite; and other warps nothing of either."""
    text = f"""{_HEAD}and.b32 %r, %t, 7; mov.u32 %w, s; mad.lo.u32 %a, %r, 16, %w;
and.b32 %r, %t, 31; mad.lo.u32 %w, %r, 4, %w; setp.lt.u32 %p, %t, 32; setp.ge.u32 %q, %t, {block - 32};
@%p st.shared.u32 [%w], 0;
bar.sync 0;
@!%p bra SECOND;
{read}
SECOND:
@%q st.shared.u32 [%w], %t;
ret; }}"""
    for order in ("eager", "late"):
        found = tw.Kernel.from_ptx(text, "k").check(1, block, [], order=order)
        assert [item.kind for item in found] == kinds, "\n".join(map(str, found))
