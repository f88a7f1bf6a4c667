"""The counted build against counts made the long way, for lanes at known places and at any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tests.harness.counts import Array, banks, copy_passes, copy_waves, counted, groups, pieces
from tilewise.emulator.profiling.accesses import LaneAccess
from tilewise.emulator.profiling.counted import AccessCounts, Counts
from tilewise.emulator.profiling.counting import BLOCK_COUNTS

HEAD = """.version 8.0
.target sm_80
.address_size 64
"""
TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "v2.u64"}
REGISTER = {1: "%h1", 2: "%h1", 4: "%r9", 8: "%rd9", 16: "{%rd9, %rd10}"}
MASKS = {"all": -1, "some": 0x0F3A_5501, "one": 1 << 7, "a half": 0xFFFF}


def kernel(body: str, extra: str = "") -> tw.Kernel:
    text = f"""{HEAD}
{extra}
.visible .entry k(.param .u64 offsets, .param .u64 data, .param .u32 mask) {{
.reg .pred %p<9>;
.reg .b16 %h<9>;
.reg .b32 %r<20>;
.reg .b64 %rd<20>;
.shared .align 16 .b8 window[32768];
ld.param.u64 %rd1, [offsets];
ld.param.u64 %rd2, [data];
ld.param.u32 %r1, [mask];
mov.u32 %r2, %tid.x;
mul.wide.u32 %rd3, %r2, 4;
add.u64 %rd3, %rd1, %rd3;
ld.global.u32 %r3, [%rd3];
mov.u32 %r4, window;
add.u32 %r5, %r4, %r3;
cvt.u64.u32 %rd4, %r3;
add.u64 %rd5, %rd2, %rd4;
shr.u32 %r6, %r1, %r2;
and.b32 %r6, %r6, 1;
setp.ne.u32 %p1, %r6, 0;
{body}
ret;
}}
"""
    return tw.Kernel.from_ptx(text, "k")


def offsets(rng: np.random.Generator, width: int) -> Array:
    """Lanes close together, far apart, in step, all the same: what programs do."""
    kind = rng.integers(5)
    lanes = np.arange(32)
    if kind == 0:
        found = rng.integers(0, 2 ** rng.integers(3, 11), 32)
    elif kind == 1:
        found = lanes * rng.integers(0, 40) + rng.integers(0, 40)
    elif kind == 2:
        found = (lanes ^ rng.integers(0, 32)) + 32 * rng.integers(0, 8, 32)
    elif kind == 3:
        found = lanes // rng.choice([2, 4, 8]) * rng.integers(1, 40)
    else:
        found = np.full(32, rng.integers(0, 500))
    return (found * width % (32768 // width * width)).astype(np.int32)


@pytest.mark.few("1", "4", "16")
@pytest.mark.parametrize("width", TYPES)
def test_any_lanes(width: int) -> None:
    """Loads and stores at addresses out of an array; of both spaces, guarded or not."""
    seed = int(np.random.default_rng().integers(2**32))
    rng = np.random.default_rng(seed)
    type_, register = TYPES[width], REGISTER[width]
    atomic = (
        f"""@%p1 red.shared.add.u{8 * width} [%r5], {register};
        @%p1 red.global.add.u{8 * width} [%rd5], {register};"""
        if width in (4, 8)
        else ""
    )
    k = kernel(
        f"""@%p1 ld.global.{type_} {register}, [%rd5];
        @%p1 st.{type_} [%rd5], {register};
        @%p1 st.shared.{type_} [%r5], {register};
        @%p1 ld.shared.{type_} {register}, [%r5];
        {atomic}"""
    )
    data = np.zeros(65536, np.uint8)
    device = tw.device("emulator")
    lanes = np.arange(32)
    # Lanes that share an address with one neighbour each, which need not be the next one.
    paired = [((lanes & ~by) * 17 * width).astype(np.int32) for by in (1, 2, 4)]
    for mask in MASKS.values():
        for where in [*paired, *(offsets(rng, width) for _ in range(9))]:
            there = device.array(data)
            active = np.array([mask >> i & 1 for i in range(32)], bool)
            _, *places = counted(k, 1, 32, [device.array(where), there, mask]).places()
            context = f"seed {seed}, {where.tolist()}, mask {mask:#x}"
            for place, kind in zip(places[2:5], ("store", "load", "atomic"), strict=False):
                check_shared(place, kind, where, active, context)
            assert places[3].turns.sum() == turns(where, active, width, cached=False), context
            for place in places[4:5]:
                assert place.sharing.sum() == banks(where, active, width, "store"), context
            for place in places[5:]:
                assert place.asked.sum() == asked(where.astype(np.int64) + there.ptr, active, width), context
            for place in (*places[:2], *places[5:]):
                at = where.astype(np.int64) + there.ptr
                assert place.sectors.sum() == pieces(at, active, width, 32), context
                assert place.lines.sum() == pieces(at, active, width, 128), context
                if place.action == "load":
                    assert place.turns.sum() == turns(at, active, width, cached=True), context
                least = min(pieces(at, active, width, 32), -(-int(active.sum()) * width // 32))
                assert place.least.sum() == least, context
                assert place.outside.sum() == 1 and place.shared.sum() == 0, context


FIGURES = ("shared", "outside", "sectors", "least", "asked", "lines", "sharing", "distinct", "turns")


def figures(counts: Counts) -> dict[str, int]:
    """What each access of a launch came to."""
    found: dict[str, int] = {}
    for i, place in enumerate(counts.places()):
        found |= {f"{i} {name}": int(getattr(place, name).sum()) for name in FIGURES}
        for name in ("waves", "phases", "ideals"):
            widths = getattr(place, name).items()
            found |= {f"{i} {name} of {width}": int(figure.sum()) for width, figure in widths}
    return found


@pytest.mark.parametrize("width", [1, 4, 16])
def test_lanes_that_lay_so_before_count_for_what_they_come_to_here(width: int) -> None:
    """Warps whose lanes lie as those of an earlier warp lay, but elsewhere: in all as much as each of them alone."""
    seed = int(np.random.default_rng().integers(2**32))
    rng = np.random.default_rng(seed)
    type_, register = TYPES[width], REGISTER[width]
    atomic = "red.global.add.u32 [%rd5], %r9; red.shared.add.u32 [%r5], %r9;" if width == 4 else ""
    k = kernel(
        f"""ld.global.{type_} {register}, [%rd5];
        st.{type_} [%rd5], {register};
        ld.shared.{type_} {register}, [%r5];
        {atomic}"""
    )
    rows = []
    for lanes in (np.arange(32, dtype=np.int32) * width, *(offsets(rng, width) % 4096 for _ in range(3))):
        rows += [lanes + start for start in (0, 32, 64, 96, 128, *rng.integers(0, 128 // width, 2) * width)]
    where = rng.permutation(np.array(rows, np.int32))
    data = tw.device("emulator").array(np.zeros(65536, np.uint8))
    alone: dict[str, int] = {}
    for row in where:
        for name, figure in figures(counted(k, 1, 32, [row, data, -1])).items():
            alone[name] = alone.get(name, 0) + figure
    together = figures(counted(k, 1, 32 * len(where), [where, data, -1]))
    assert together == alone, f"seed {seed}"


def turns(at: Array, active: Array, width: int, cached: bool) -> int:
    """Turns of a load: the words of the most wanted bank; and of the L1, one for every four lines."""
    words = {int(a) // 4 + i for a in at[active] for i in range(max(width // 4, 1))}
    most = max(sum(word % 32 == bank for word in words) for bank in range(32))
    return max(most, -(-pieces(at, active, width, 128) // 4)) if cached else most


def asked(at: Array, active: Array, width: int) -> int:
    """Sectors of an atomic access: each as often as its most wanted word."""
    words = [int(a) // 4 + i for a in at[active] for i in range(width // 4)]
    sectors = {word // 8 for word in words}
    return sum(max(words.count(8 * sector + i) for i in range(8)) for sector in sectors)


def check_shared(place: AccessCounts, kind: str, where: Array, active: Array, context: str) -> None:
    context = f"{kind}, {context}"
    assert place.runs.sum() == 1 and place.threads.sum() == active.sum(), context
    for wide, waves in place.waves.items():
        down = where // wide * wide
        if (where % wide != where[0] % wide).any():
            continue  # no such access can be one of this width
        lanes = 32 if wide <= 4 else 128 // wide
        expected = banks(down, active, wide, kind)
        assert waves.sum() == expected, f"{context}, {wide} bytes"
        assert place.phases[wide].sum() == len(groups(down, active, wide, kind)), f"{context}, {wide} bytes"
        assert place.ideals[wide].sum() == min(expected, -(-int(active.sum()) // lanes)), (
            f"{context}, {wide} bytes"
        )


@pytest.mark.few(5)
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("words", [0, 1, 3, 17, 32])
def test_lanes_in_step(width: int, words: int) -> None:
    """At ``tid × stride`` from anywhere, whole or guarded; the place within a sector counts."""
    seed = int(np.random.default_rng().integers(2**32))
    rng = np.random.default_rng(seed)
    type_, register, stride = TYPES[width], REGISTER[width], words * width
    k = kernel(
        f"""mul.lo.u32 %r7, %r2, {stride};
        add.u32 %r7, %r7, %r4;
        add.u32 %r7, %r7, %r1;
        st.shared.{type_} [%r7], {register};
        ld.shared.{type_} {register}, [%r7];
        mul.wide.u32 %rd6, %r2, {stride};
        add.u64 %rd6, %rd6, %rd2;
        ld.global.{type_} {register}, [%rd6];
        setp.gt.u32 %p2, %r2, 20;
        @%p2 st.global.{type_} [%rd6], {register};"""
    )
    device = tw.device("emulator")
    there: Any = device.array(np.zeros(65536, np.uint8))
    lanes, every = np.arange(32), np.ones(32, bool)
    for _ in range(6):
        base, start = (int(x) * width for x in rng.integers(0, 64, 2))
        _, shared, back, load, store = counted(
            k, 1, 32, [np.zeros(32, np.int32), there[start:], base]
        ).places()
        context = f"seed {seed}, from {base}, {start}"
        assert shared.waves[width].sum() == banks(base + lanes * stride, every, width), context
        assert back.waves[width].sum() == banks(base + lanes * stride, every, width, "load"), context
        at = there.ptr + start + lanes * stride
        assert load.sectors.sum() == pieces(at, every, width, 32), context
        assert load.lines.sum() == pieces(at, every, width, 128), context
        assert load.seen == tuple(at.tolist()), context
        assert load.turns.sum() == turns(at, every, width, cached=True), context
        assert back.turns.sum() == turns(base + lanes * stride, every, width, cached=False), context
        assert store.sectors.sum() == pieces(at, lanes > 20, width, 32), context
        assert store.threads.sum() == 11, context
    for threads in (7, 40):  # of the warp that ran last, whichever that is
        some = counted(k, 2, threads, [np.zeros(64, np.int32), there, 0]).places()[3]
        at = [there.ptr + thread * stride if thread < threads else None for thread in range(64)]
        assert list(some.seen or ()) in (at[:32], at[32:]), seed


@pytest.mark.parametrize("width", [1, 2])
def test_narrow_lanes_share_banks_by_where_they_begin_in_a_word(width: int) -> None:
    """Lanes in step that just go around the banks once: whether two meet in one depends on the first."""
    stride = 33 * width
    k = kernel(
        f"""mad.lo.u32 %r7, %r2, {stride}, %r4;
        add.u32 %r7, %r7, %r1;
        st.shared.{TYPES[width]} [%r7], %h1;
        ld.shared.{TYPES[width]} %h1, [%r7];"""
    )
    found = []
    for base in range(0, 8, width):
        at, every = base + np.arange(32) * stride, np.ones(32, bool)
        places = counted(k, 1, 32, [np.zeros(32, np.int32), np.zeros(1, np.int32), base]).places()
        for place, kind in zip(places[1:], ("store", "load"), strict=True):
            found.append(int(place.waves[width].sum()))
            assert found[-1] == banks(at, every, width, kind), (base, kind)
    assert len({*found}) == 2


def test_runs_threads_and_multiprocessors() -> None:
    """A loop whose turns depend on the thread, barriers, a branch that parts the warp; blocks dealt in turn."""
    text = f"""{HEAD}
.visible .entry k(.param .u64 out, .param .u32 turns) {{
.reg .pred %p<4>;
.reg .b32 %r<9>;
ld.param.u32 %r1, [turns];
mov.u32 %r2, %tid.x;
mov.u32 %r3, 0;
TOP:
add.u32 %r3, %r3, 1;
setp.lt.u32 %p1, %r3, %r1;
@%p1 bra TOP;
bar.sync 0;
setp.lt.u32 %p2, %r2, 40;
@%p2 bra LOW;
sub.u32 %r4, %r2, 1;
bra.uni END;
LOW:
add.u32 %r4, %r2, %r2;
END:
bar.sync 0;
exit;
}}
"""
    k = tw.Kernel.from_ptx(text, "k")
    for workers in (1, 3):
        counts = counted(k, 7, 80, [np.zeros(1, np.uint8), 9], multiprocessors=3, threads=workers)
        by_name = {item.name + str(item.line): item for item in counts.instruction_runs()}
        top = next(item for item in by_name.values() if item.name == "add.u32" and item.runs.sum() > 100)
        assert top.runs.tolist() == [3 * 9 * blocks for blocks in (3, 2, 2)]  # 80 threads are 3 warps
        assert top.threads.tolist() == [80 * 9 * blocks for blocks in (3, 2, 2)]
        bars = [item for item in by_name.values() if item.name == "bar.sync"]
        assert len(bars) == 2 and all(bar.runs.sum() == 21 and bar.threads.sum() == 560 for bar in bars)
        split = [item for item in by_name.values() if item.splits is not None]
        assert (
            sum(int(item.splits.sum()) for item in split if item.splits is not None) == 7
        )  # the second warp of each
        low = [item for item in by_name.values() if item.name == "sub.u32"]
        assert low[0].runs.sum() == 7 * 2 and low[0].threads.sum() == 7 * 40


def test_what_ends_a_block_ran_once_for_each_warp_that_came_to_it() -> None:
    """Also where a guard leaves it out; lanes that a table sends to one target are not parted. Of a barrier those warps are counted that its guard lets come to it."""
    text = f"""{HEAD}
.visible .entry k(.param .u64 out) {{
.reg .pred %p, %q, %s; .reg .b32 %r<4>; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1;
setp.lt.u32 %p, %r1, 7;
setp.lt.u32 %q, %r1, 32;
or.pred %s, %p, %q;
T: .branchtargets A, B;
@%p brx.idx %r2, T;
A: not.b32 %r3, %r3;
B: @%q bar.sync 0, 32;
@%p exit;
@!%s bra C;
@%q ret;
C: brx.idx %r2, U;
U: .branchtargets D, E;
D: neg.s32 %r3, %r3;
E: brx.idx %r2, V;
V: .branchtargets F, F;
F: exit;
}}
"""
    listed = counted(
        tw.Kernel.from_ptx(text, "k"), 3, 96, [np.zeros(1, np.uint8)], threads=1
    ).instruction_runs()
    found = {
        f"{item.line} {item.name}": (
            int(item.runs.sum()) // 3, int(item.threads.sum()) // 3, item.splits is not None and int(item.splits.sum()) // 3
        )
        for item in listed if item.line > 9
    }  # fmt: skip
    assert found == {
        "11 brx.idx": (3, 96, 1), "12 not.b32": (3, 93, False), "13 bar.sync": (1, 32, False), "14 exit": (3, 96, 1),
        "15 bra": (3, 89, 0), "16 ret": (1, 25, 0), "17 brx.idx": (2, 64, 2), "19 neg.s32": (2, 32, False), "20 brx.idx": (2, 64, 0),
        "22 exit": (2, 64, False),
    }  # fmt: skip
    assert len(found) == len([item for item in listed if item.line > 9])
    tests = {item.line: item.tests for item in listed if item.tests}
    assert tests == {11: (7,), 14: (7,), 15: (7, 8, 9), 16: (8,)}  # of what is made of others, those as well


def test_barriers_of_the_block_are_no_other_meetings_of_lanes() -> None:
    """A warp's own, which every shuffle has as well, and the cluster's are none of them."""
    text = f"""{HEAD.replace("sm_80", "sm_90")}
.visible .entry k(.param .u64 out) .reqnctapercluster 2 {{
.reg .pred %p; .reg .b32 %r<4>;
mov.u32 %r1, %tid.x; setp.lt.u32 %p, %r1, 7; @%p bra LOW;
bar.warp.sync 0xffffff80; shfl.sync.bfly.b32 %r2, %r1, 8, 31, 0xffffff80; bra.uni END;
LOW: bar.warp.sync 0x7f; vote.sync.ballot.b32 %r2, %p, 0x7f;
END: bar.warp.sync -1; bar.sync 0; barrier.cluster.arrive; barrier.cluster.wait; barrier.sync 1, 64; bar.arrive 2, 96;
exit;
}}
"""
    profile = tw.Kernel.from_ptx(text, "k").profile(4, 64, [np.zeros(1, np.uint8)], gpu="h200")
    assert profile["tilewise__inst_executed_op_barrier.sum"] == 4 * 2 * 3


LOOPS = {
    "A": "add.u32 %r3, %r3, 1; mov.u32 %r5, 0; bra B;",
    "B": "add.u32 %r5, %r5, 1; and.b32 %r6, %r2, 3; setp.gt.u32 %p1, %r5, %r6; @%p1 bra D; bra C;",
    "C": "add.u32 %r4, %r4, 3; and.b32 %r7, %r4, 5; setp.eq.u32 %p2, %r7, %r6; @%p2 bra E; bra B;",
    "D": "add.u32 %r4, %r4, 7; shr.u32 %r8, %r2, 2; setp.lt.u32 %p3, %r3, %r8; @%p3 bra A; bra F;",
    "E": "add.u32 %r4, %r4, 11; setp.gt.u32 %p4, %r4, 90; @%p4 bra F; bra D;",
    "F": "mul.lo.u32 %r4, %r4, 3; and.b32 %r9, %r2, 1; setp.eq.u32 %p5, %r9, 0; @%p5 bra G; bra H;",
    "G": "add.u32 %r4, %r4, 13; bra H;",
    "H": "mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r4; ret;",
}


def test_how_often_blocks_run_does_not_depend_on_where_they_stand() -> None:
    """Lanes that leave a loop wait for the others, also where what follows the loop stands before it."""
    found = set()
    for order in ("ABCDEFGH", "EGFDCHBA", "HFEABGDC", "".join(np.random.default_rng().permutation([*LOOPS]))):
        blocks = "\n".join(f"{name}: {LOOPS[name]}" for name in order)
        text = f"""{HEAD}
.visible .entry k(.param .u64 out) {{
.reg .pred %p<6>; .reg .b32 %r<10>; .reg .b64 %rd<3>;
ld.param.u64 %rd1, [out]; mov.u32 %r2, %tid.x; mov.u32 %r3, 0; mov.u32 %r4, 0; bra A;
{blocks}
}}"""
        out = np.zeros(32, np.int32)
        runs = counted(tw.Kernel.from_ptx(text, "k"), 1, 32, [out]).instruction_runs()
        found.add((tuple(out), tuple(sorted(int(item.runs.sum()) for item in runs))))
        assert max(int(item.runs.sum()) for item in runs if item.name == "st.global.u32") == 1, order
    assert len(found) == 1


def test_guards() -> None:
    """What a guard leaves out is counted apart; the instruction itself ran."""
    k = kernel("@%p1 add.u32 %r7, %r2, 1;\n@!%p1 st.global.u32 [%rd3], %r7;")
    counts = counted(k, 2, 32, [np.zeros(32, np.int32), np.zeros(4, np.int32), 0xFF])
    add = next(
        item
        for item in counts.instruction_runs()
        if item.name == "add.u32" and item.on_threads is not item.threads
    )
    assert (add.runs.sum(), add.threads.sum(), add.on_runs.sum(), add.on_threads.sum()) == (2, 64, 2, 16)
    _, store = counts.places()
    assert store.threads.sum() == 48 and store.sectors.sum() == 6
    for mask, running in ((0, 0), (1 << 31, 2)):  # of no lane, and of one
        ran = counted(k, 2, 32, [np.zeros(32, np.int32), np.zeros(4, np.int32), mask]).instruction_runs()
        (add,) = [item for item in ran if item.name == "add.u32" and item.on_threads is not item.threads]
        assert (add.runs.sum(), add.on_runs.sum(), add.on_threads.sum()) == (2, running, running)


def test_a_generic_access_that_goes_to_either_memory() -> None:
    """To the same offsets within shared and global memory in turn."""
    k = kernel(
        """mov.u32 %r7, %ctaid.x;
        and.b32 %r7, %r7, 1;
        setp.ne.u32 %p2, %r7, 0;
        cvt.u64.u32 %rd6, %r5;
        cvta.shared.u64 %rd6, %rd6;
        selp.b64 %rd7, %rd6, %rd5, %p2;
        @%p1 ld.u32 %r9, [%rd7];"""
    )
    lanes = np.arange(32, dtype=np.int32) * 4
    for mask, sectors in ((-1, 4), (1 << 9, 1)):
        _, place = counted(k, 7, 32, [lanes, np.zeros(32, np.int32), mask], threads=1).places()
        assert (place.shared.sum(), place.outside.sum(), place.sectors.sum()) == (3, 4, 4 * sectors)
        assert place.waves[4].sum() == 3


def test_nothing_is_ideal_that_takes_more_than_was_taken() -> None:
    same, apart = [128] * 32, [16 * lane for lane in range(32)]
    wide = [LaneAccess(same, 16), LaneAccess(apart, 16), LaneAccess(same, 4)]
    assert [access.ideal() for access in wide] == [2, 4, 1]
    narrow = [LaneAccess(lanes, 4) for lanes in (same, apart, [None] * 31 + [30])]
    assert [access.least_sectors() for access in narrow] == [1, 4, 1]


def test_what_the_fast_build_gives_up() -> None:
    """A warp that goes on in the general build within a block is counted once; so is what it does there from then on."""
    k = kernel(
        """mov.u32 %r7, %ctaid.x;
        mul.lo.u32 %r8, %r7, 0x7ffffff8;
        add.u32 %r10, %r8, %r2;
        ld.shared.u32 %r9, [%r4];
        ld.shared.u32 %r9, [%r4+4];
        ON: mul.wide.u32 %rd6, %r10, 2;
        and.b64 %rd7, %rd6, 1023;
        add.u64 %rd8, %rd7, %rd2;
        ld.shared.u32 %r9, [%r4+8];
        ld.global.u8 %h1, [%rd8];
        setp.lt.u32 %p2, %r2, 5;
        @%p2 bra BEHIND;
        not.b32 %r11, %r2;
        BEHIND: neg.s32 %r12, %r2;
        @%p2 cnot.b32 %r12, %r2;"""
    )
    counts = counted(k, 3, 32, [np.zeros(32, np.int32), np.zeros(2048, np.uint8), 1])
    # Behind the counts of blocks: how often a warp left the fast build, by place.
    start = 2 * len(counts.about["blocks"]) * BLOCK_COUNTS
    assert any(counts.rows[:, start // 8 + 2 * number].any() for number, _, _ in counts.about["handed"])
    assert [(int(place.runs.sum()), int(place.threads.sum())) for place in counts.places()] == [(3, 96)] * 5
    ran = counts.instruction_runs()
    assert {int(item.runs.sum()) for item in ran} == {3}
    threads = {item.name: (int(item.threads.sum()), int(item.on_threads.sum())) for item in ran}
    assert [threads[name] for name in ("ld.global.u8", "not.b32", "neg.s32", "cnot.b32")] == [
        (96, 96), (81, 81), (96, 96), (96, 15),
    ]  # fmt: skip
    assert [int(item.splits.sum()) for item in ran if item.splits is not None] == [3]


@pytest.mark.parametrize("threads", [1, 20, 32])
def test_each_lane_that_runs_adds_to_one_counter_by_itself(threads: int) -> None:
    k = kernel(
        """atom.shared.add.u32 %r7, [%r4], 1;
        atom.global.add.u32 %r7, [%rd2], 1;
        and.b32 %r8, %r2, 1; mul.wide.u32 %rd6, %r8, 4; add.u64 %rd6, %rd6, %rd2; atom.global.add.u32 %r7, [%rd6], 1;"""
    )
    _, near, far, either = counted(k, 1, threads, [np.zeros(32, np.int32), np.zeros(4, np.int32), 0]).places()
    for place in (near, far):
        assert (place.runs.sum(), place.threads.sum(), place.distinct.sum()) == (1, threads, 1)
    assert (near.waves[4].sum(), near.sharing.sum()) == (threads, 1)
    assert (far.asked.sum(), far.sectors.sum()) == (threads, 1)
    # Every second lane adds to the one, the others to its neighbour in the sector.
    assert (either.asked.sum(), either.sectors.sum(), either.distinct.sum()) == (
        -(-threads // 2),
        1,
        min(threads, 2),
    )


def test_matrix_rows() -> None:
    """ldmatrix: eight rows of 16 bytes a phase, and only the lanes that name a row."""
    rng = np.random.default_rng()
    k = kernel(
        """ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r5];
        ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r9, %r10}, [%r5];
        ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r9, %r10, %r11, %r12}, [%r5];"""
    )
    lanes = np.arange(32)
    for _ in range(8):
        where = (rng.integers(0, 64, 32) * 16).astype(np.int32)
        _, *places = counted(k, 1, 32, [where, np.zeros(4, np.int32), 1]).places()
        for place, count in zip(places, (8, 16, 32), strict=True):
            assert place.waves[16].sum() == banks(where, lanes < count, 16)
            assert place.ideals[16].sum() == count // 8
            assert [one is not None for one in place.seen or ()] == [lane < count for lane in range(32)]
    known = kernel(
        "mad.lo.u32 %r7, %r2, 16, %r4; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r9, %r10}, [%r7];"
    )
    _, place = counted(known, 1, 32, [np.zeros(32, np.int32), np.zeros(4, np.int32), 1]).places()
    assert place.seen == tuple(16 * lane if lane < 16 else None for lane in range(32))


def test_copies_count_both_ways() -> None:
    """cp.async reads global memory and writes shared memory; its wavefronts depend on both."""
    k = kernel(
        """cp.async.cg.shared.global [%r5], [%rd5], 16;
        @%p1 cp.async.ca.shared.global [%r5], [%rd3], 4;
        cp.async.wait_all;"""
    )
    seed = int(np.random.default_rng().integers(2**32))
    rng = np.random.default_rng(seed)
    device = tw.device("emulator")
    there: Any = device.array(np.zeros(4096, np.uint8))
    every = np.ones(32, bool)
    for turn in range(20):
        mask = (0xF0F1, 1, 1 << 31, 0)[turn % 4]
        some = np.array([mask >> i & 1 for i in range(32)], bool)
        where: Any = device.array((rng.integers(0, 64, 32) * 16).astype(np.int32))
        _, read, fill, read_4, fill_4 = counted(k, 1, 32, [where, there, mask]).places()
        context = f"seed {seed}, mask {mask:#x}"
        into = where.numpy().astype(np.int64)
        wide, narrow = into + there.ptr, where.ptr + 4 * np.arange(32)
        assert read.sectors.sum() == pieces(wide, every, 16, 32) and read.space == "global", context
        assert read_4.sectors.sum() == pieces(narrow, some, 4, 32), context
        assert fill.action == "fill" and fill.passes is not None and not fill.fills, context
        assert fill.waves[16].sum() == copy_waves(into, wide, every, 16), context
        assert fill_4.waves[4].sum() == copy_waves(into, narrow, some, 4), context
        assert fill.passes.sum() == copy_passes([int(a) for a in into], [int(a) for a in wide]), context
        sides = ([int(a) for a in side[some]] for side in (into, narrow))
        assert fill_4.passes is not None, context
        assert fill_4.passes.sum() == (copy_passes(*sides) if some.any() else 0), context
        assert fill.phases[16].sum() == 4 and fill_4.phases[4].sum() == some.any(), context
        assert fill_4.threads.sum() == some.sum() and fill_4.runs.sum() == some.any(), context


def test_a_copy_that_may_read_less_than_it_writes_is_known() -> None:
    k = kernel(
        """cp.async.cg.shared.global [%r4], [%rd2], 16;
        cp.async.cg.shared.global [%r4], [%rd2], 16, %r1;
        cp.async.ca.shared.global [%r4], [%rd2], 4, 0;"""
    )
    places = counted(k, 1, 32, [np.zeros(32, np.int32), np.zeros(4, np.int32), 8]).places()
    assert [place.fills for place in places if place.action == "fill"] == [False, True, True]


def test_a_warp_s_figures_do_not_depend_on_the_warp_before() -> None:
    """Lanes at the same distances from one another, but elsewhere within a sector; and copies that differ at one end."""
    lanes, every = np.arange(32), np.ones(32, bool)
    bytes_, copy = kernel("ld.global.u8 %h1, [%rd5];"), kernel("cp.async.ca.shared.global [%r5], [%rd3], 4;")
    for first, second in ((0, 1), (3, 2), (1, 0)):
        where = np.concatenate([lanes + first, lanes + second]).astype(np.int32)
        _, read = counted(bytes_, 1, 64, [where, np.zeros(256, np.uint8), 0]).places()
        assert read.sectors.sum() == 2 + (first > 0) + (second > 0)
    for steps in ((128, 4), (4, 128), (4, 4)):
        where = np.concatenate([lanes * step for step in steps]).astype(np.int32)
        *_, fill = counted(copy, 1, 64, [where, np.zeros(4, np.uint8), 0]).places()
        assert fill.waves[4].sum() == sum(copy_waves(lanes * step, lanes * 4, every, 4) for step in steps), (
            steps
        )
    to_neighbours = kernel("mad.lo.u32 %r7, %r2, 4, %r4; cp.async.ca.shared.global [%r7], [%rd5], 4;")
    data = np.zeros(4096, np.uint8)
    for steps in ((128, 4), (4, 128), (8, 4), (4, 8)):
        where = np.concatenate([lanes * step for step in steps]).astype(np.int32)
        *_, fill = counted(to_neighbours, 1, 64, [where, data, 0]).places()
        waves = passes = 0
        for step in steps:
            *_, alone = counted(to_neighbours, 1, 32, [(lanes * step).astype(np.int32), data, 0]).places()
            assert alone.passes is not None
            waves, passes = waves + alone.waves[4].sum(), passes + alone.passes.sum()
        assert fill.passes is not None
        assert (fill.waves[4].sum(), fill.passes.sum()) == (waves, passes), steps


def test_a_lane_alone_in_shared_memory_touches_no_sector() -> None:
    k = kernel("@%p1 ld.shared.u32 %r9, [%r5];")
    _, read = counted(k, 1, 32, [np.zeros(32, np.int32), np.zeros(4, np.int32), 1 << 5]).places()
    assert (read.waves[4].sum(), read.sectors.sum(), read.lines.sum()) == (1, 0, 0)
