"""The checker finds nothing where there is nothing: idioms that look like races, and every rung of the ladder."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw
from tests.harness.cases import HEAD, Case, arrays
from tests.harness.checked import check_product
from tests.harness.sound import SOUND, kernel_of

ORDERS = ("eager", "late", 1, 2)


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.name)
def test_nothing_is_wrong(case: Case) -> None:
    for order in ORDERS:
        x, y = arrays()
        found = kernel_of(case).check(
            case.grid, case.block, [x, y, case.block], shared=case.shared, cluster=case.cluster, order=order
        )
        assert not found, f"{order}\n" + "\n".join(map(str, found))


@pytest.mark.few(4)
@pytest.mark.parametrize("name", tw.ladder)
def test_a_rung_is_clean(name: str) -> None:
    rung = tw.ladder[name]
    element = rung.spec.element_types[0]
    if element == "float16" or name.startswith("07"):  # the second takes whole tiles only
        m, n, k = 96, 64, 128
    else:
        m, n, k = (16, 32, 24) if name.startswith("02") else (100, 70, 129)
    generator = np.random.default_rng()
    a = generator.standard_normal((m, k)).astype(element)
    b = generator.standard_normal((k, n)).astype(element)
    for order in ORDERS:
        c, findings = check_product(name, a, b, order)
        assert not findings, f"{order}\n" + "\n".join(map(str, findings))
        assert np.allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=0.3)


def test_clusters_that_take_several_tiles_each_are_clean() -> None:
    a = np.random.default_rng().standard_normal((300, 260)).astype(np.float16)
    for order in ORDERS:
        _, findings = check_product("13_warp_specialised", a, a.T.copy(), order)
        assert not findings, f"{order}\n" + "\n".join(map(str, findings))


@pytest.mark.parametrize("name", ["all_fence_and_one_counts", "release_and_acquire"])
def test_what_blocks_hand_on_by_a_flag_is_ordered(name: str) -> None:
    case = next(case for case in SOUND if case.name == name)
    assert not kernel_of(case).check(case.grid, case.block, [*arrays(), case.block])


@pytest.mark.parametrize("lane", [0, 1, 31])
def test_of_neighbours_only_those_that_run_have_written(lane: int) -> None:
    """The other warp writes where the lanes would have that do not run."""
    text = """extern "C" __global__ void alone(const int *on, int *y) {
        __shared__ int s[64];
        int t = threadIdx.x;
        s[t] = -1;
        __syncthreads();
        if (t < 32 && on[t]) s[t] = t;
        if (t >= 32 && !on[t - 32]) s[t - 32] = t;
        __syncthreads();
        y[t] = s[t % 32];
    }"""
    on, y = (np.arange(32) == lane).astype(np.int32), np.zeros(64, np.int32)
    assert not tw.Kernel(text, "alone", "sm_80").check(1, 64, [on, y])
    assert (y % 32 == np.arange(64) % 32).all()


def test_there_are_enough() -> None:
    assert len({case.name for case in SOUND}) + len(tw.ladder) >= 40


@pytest.mark.parametrize(
    ("first", "second", "writer", "races"),
    [(0, 1, 0, False), (0, 0, 2, True), (0, 0, 0, True), (1, 0, 1, False)],
)
def test_lanes_that_read_one_word_read_their_own_bytes_or_the_same(
    first: int, second: int, writer: int, races: bool
) -> None:
    """Lanes 0 and 1 each read a byte of a word; then a lane of their warp writes the byte 0."""
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k() {{
.reg .b32 %t, %v; .reg .pred %p, %q, %w; .shared .align 4 .b32 s;
mov.u32 %t, %tid.x; setp.eq.u32 %p, %t, 0; setp.eq.u32 %q, %t, 1; setp.eq.u32 %w, %t, {writer};
@%p st.shared.u32 [s], 0; bar.sync 0;
@%p ld.shared.u8 %v, [s+{first}]; @%q ld.shared.u8 %v, [s+{second}]; @%w st.shared.u8 [s], 1; ret; }}"""
    found = tw.Kernel.from_ptx(text, "k").check(1, 32, [])
    assert [item.kind for item in found] == ["read-write"] * races, "\n".join(map(str, found))


@pytest.mark.parametrize(
    ("meeting", "races"), [("", True), ("bar.warp.sync -1;", False), ("bar.sync 0;", False)]
)
def test_a_lane_may_change_what_it_alone_has_read_since_its_warp_met(meeting: str, races: bool) -> None:
    """Before, all lanes of a warp have read what the first changes."""
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k() {{
.reg .b32 %t, %v, %s, %at, %first; .shared .align 128 .b32 s[64];
mov.u32 %t, %tid.x; mov.u32 %s, s; mad.lo.u32 %at, %t, 4, %s; and.b32 %first, %at, -128;
st.shared.u32 [%at], %t; bar.sync 0;
ld.shared.u32 %v, [%first]; {meeting}
ld.shared.u32 %v, [%at]; st.shared.u32 [%at], %v; ret; }}"""
    found = tw.Kernel.from_ptx(text, "k").check(1, 64, [])
    assert [item.kind for item in found] == ["read-write"] * races, "\n".join(map(str, found))


def test_of_several_warps_that_read_what_is_written_the_first_other_one_is_named() -> None:
    """They read one behind the other, by flags that order nothing; then the first of them writes."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k() {
.reg .b32 %t, %lane, %v, %s, %at, %w, %next; .reg .pred %p; .shared .align 128 .b32 s[32]; .shared .b32 turn;
mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; shr.u32 %w, %t, 5; add.u32 %next, %w, 1;
mov.u32 %s, s; mad.lo.u32 %at, %lane, 4, %s;
setp.lt.u32 %p, %t, 32; @%p st.shared.u32 [%at], %t; st.volatile.shared.u32 [turn], 0; bar.sync 0;
WAIT: ld.volatile.shared.u32 %v, [turn]; setp.ne.u32 %p, %v, %w; @%p bra WAIT;
ld.shared.u32 %v, [%at]; st.volatile.shared.u32 [turn], %next;
setp.ne.u32 %p, %w, 0; @%p ret;
LAST: ld.volatile.shared.u32 %v, [turn]; setp.ne.u32 %p, %v, 3; @%p bra LAST;
st.shared.u32 [%at], 7; ret; }"""
    (found,) = tw.Kernel.from_ptx(text, "k").check(1, 96, [])
    assert found.kind == "read-write" and found.now and found.before, str(found)
    assert (found.now.warp, found.before.warp) == (0, 1)


@pytest.mark.parametrize(("most", "kind"), [(2, "write-write"), (1, "equal-writes")])
@pytest.mark.parametrize("rest", ["waits", "writes elsewhere"])
def test_what_one_instruction_writes_in_another_turn_is_in_memory(most: int, kind: str, rest: str) -> None:
    """In turn i lane i writes; what the others have in their registers then is not what they wrote before."""
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k() {{
.reg .b32 %t, %i, %v, %s, %at; .reg .pred %p, %q; .shared .b32 s[33]; mov.u32 %t, %tid.x; mov.u32 %i, 0;
mov.u32 %s, s; add.u32 %s, %s, 4;
TURN: setp.eq.u32 %p, %t, %i; add.u32 %v, %i, 1; min.u32 %v, %v, {most};
mad.lo.u32 %at, %t, 4, %s; @%p mov.u32 %at, s;
{"@%p " if rest == "waits" else ""}st.shared.u32 [%at], %v; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 2; @%q bra TURN; ret; }}"""
    found = tw.Kernel.from_ptx(text, "k").check(1, 32, [], level="info")
    assert [item.kind for item in found] == [kind], "\n".join(map(str, found))


@pytest.mark.parametrize(("told", "count"), [(32, 0), (16, 16)])
def test_an_mbarrier_says_nothing_of_lanes_that_did_not_tell_it(told: int, count: int) -> None:
    """Half of a warp's lanes copy, then the others."""
    text = f"""{HEAD}
    extern "C" __global__ void told(const int *x, int *y, int told) {{
        __shared__ int s[32]; __shared__ u64 m;
        if (T == 0) init(&m, told);
        __syncthreads();
        if (T < 16) cp4(s + T, x + T);
        __syncwarp();
        if (T >= 16) cp4(s + T, x + T);
        if (T < told) asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at(&m)) : "memory");
        await(&m, 0);
        y[T] = s[T ^ 1];
    }}"""
    found = tw.Kernel(text, "told", "sm_90a").check(
        1, 32, [np.arange(32, dtype=np.int32), np.zeros(32, np.int32), told]
    )
    assert sum(item.count for item in found) == count, "\n".join(map(str, found))


@pytest.mark.parametrize(
    ("atomic", "access", "kinds"),
    [
        ("cas.b32 %v, [%x], 0, 1", "ld.global.u32 %v, [%x]", []),
        ("cas.b32 %v, [%x], 0, 1", "st.volatile.global.u32 [%x], 0", []),
        ("cas.b32 %v, [%x], 0, 1", "st.global.u32 [%x], 0", ["write-write"]),
        ("add.u32 %v, [%x], 1", "ld.volatile.global.u32 %v, [%x]", []),
        ("add.u32 %v, [%x], 1", "ld.global.u32 %v, [%x]", ["read-write"]),
        ("add.u32 %v, [%x], 1", "ld.global.cg.u32 %v, [%x]", ["read-write"]),
    ],
)
def test_beside_atomics_plain_accesses_race_but_loads_of_what_is_swapped(
    atomic: str, access: str, kinds: list[str]
) -> None:
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {{
.reg .b64 %x; .reg .b32 %b, %v; .reg .pred %p; ld.param.u64 %x, [x]; mov.u32 %b, %ctaid.x; setp.eq.u32 %p, %b, 0;
@%p atom.global.{atomic};
@!%p {access};
ret; }}"""
    found = tw.Kernel.from_ptx(text, "k").check(2, 1, [np.zeros(1, np.int32)])
    assert [item.kind for item in found] == kinds, "\n".join(map(str, found))


@pytest.mark.parametrize(
    "way", [".global", ".global.ca", ".global.cg", ".global.cv", ".volatile.global", ".relaxed.gpu.global"]
)
def test_a_loop_that_waits_by_plain_loads_races_unless_each_of_them_loads_anew(way: str) -> None:
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {{
.reg .b64 %x; .reg .b32 %b, %v; .reg .pred %p; ld.param.u64 %x, [x]; mov.u32 %b, %ctaid.x; setp.eq.u32 %p, %b, 0;
@%p st.volatile.global.u32 [%x], 1;
@%p exit;
AGAIN: ld{way}.u32 %v, [%x]; setp.eq.u32 %p, %v, 0; @%p bra AGAIN;
ret; }}"""
    found = tw.Kernel.from_ptx(text, "k").check(2, 1, [np.zeros(1, np.int32)])
    assert [item.kind for item in found] == ["read-write"] * (way in (".global", ".global.ca"))


@pytest.mark.parametrize("order", ["eager", "late"])
@pytest.mark.parametrize("number", [0, 1])
def test_lanes_that_come_by_a_barrier_pass_none_again(number: int, order: str) -> None:
    """A warp reads what another has written since they met at a barrier, which others have used since."""
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 last, .param .u32 ordered) {{
.reg .b32 %t, %w, %v, %last; .reg .pred %p, %q, %never; .shared .b32 s, flag;
mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; ld.param.u32 %last, [last]; setp.gt.u32 %never, %t, %last;
ld.param.u32 %v, [ordered]; setp.ne.u32 %q, %v, 0; st.volatile.shared.u32 [flag], 0; bar.sync {number};
setp.eq.u32 %p, %w, 2; @%p bra READER; setp.eq.u32 %p, %w, 1; @%p bra OTHER;
bar.sync {number}, 64; bar.sync {number}, 64;
setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [s], 7;
bar.arrive {number}, 64; @%q bar.arrive 3, 64; st.volatile.shared.u32 [flag], 1; ret;
OTHER: bar.sync {number}, 64; bar.sync {number}, 64; ret;
READER: bar.sync {number}, 64;
AGAIN: ld.volatile.shared.u32 %v, [flag]; setp.eq.u32 %p, %v, 0; @%p bra AGAIN;
@%q bar.sync 3, 64;
@%never barrier.sync 2, 32;
ld.shared.u32 %v, [s];
ret; }}"""
    kernel = tw.Kernel.from_ptx(text, "k")
    for ordered in (0, 1):
        found = kernel.check(1, 96, [1000, ordered], order=order)
        assert [item.kind for item in found] == ["read-write"] * (not ordered), "\n".join(map(str, found))
