"""Control flow of every shape: lanes that part, meet, wait and leave, against an interpreter of single threads."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilewise as tw
from tests.fuzz.programs import TooLong, check, make
from tilewise.emulator import native
from tilewise.emulator.analysis.control_flow import EXIT, build_flow
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.ptx.parse import parse

ORDERS: list[str | int] = ["eager", "late", 1, 2, 3]
EMULATORS = [tw.device("emulator", order=order, threads=2) for order in ORDERS]
every_order = pytest.mark.parametrize("device", EMULATORS, ids=map(str, ORDERS))


@pytest.mark.few("5")
@pytest.mark.parametrize("count", [5, 18])
def test_random_programs_do_what_single_threads_do(count: int) -> None:
    """Others each time; ``python -m tests.fuzz.programs --one --seed`` shows the one of a seed."""
    first, compared = random.randrange(2**32), 0
    for seed in range(first, first + count):
        try:
            check(make(random.Random(seed).randint))
            compared += 1
        except TooLong:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert compared > count // 3


@pytest.mark.parametrize("seed", [910_321])
def test_programs_that_were_wrong_once(seed: int) -> None:
    """910321: a choice by a constant, under a mask, in a loop, which LLVM's AVX-512 instruction got wrong."""
    check(make(random.Random(seed).randint))


@pytest.mark.parametrize(
    ("code", "doubtful"),
    [
        # vpternlogd zmm0 {k1}, zmm1, zmm2, by each of the tables that choose
        *((f"62 f3 75 49 25 c2 {table}", True) for table in ("ac", "b8", "ca", "d8", "e2", "e4")),
        ("62 f3 75 48 25 c2 ca", False),  # not masked
        ("62 f3 75 49 25 c2 96", False),  # no choice, but exclusive or
        ("62 f2 75 49 25 c2 ca", False),  # another instruction
        ("62 f3 75 49 25 40 01 ca", True),  # from memory, 1 byte of displacement
        ("62 f3 75 49 25 44 24 01 ca", True),  # and a second byte of addressing
        ("62 f3 75 49 25 04 24 ca", True),  # no displacement
        ("62 f3 75 49 25 80 00 01 00 00 ca", True),  # 4 bytes of it
        ("62 f3 75 49 25 05 00 01 00 00 ca", True),  # relative to the instruction
        ("62 f3 75 49 25 80 ca ca 00 00 96", False),
    ],
)
def test_what_llvm_may_have_got_wrong_is_seen_in_the_machine_code(code: str, doubtful: bool) -> None:
    """It is compiled again without AVX-512: a masked choice of bits, in every form of address."""
    assert native._doubtful(b"\x90" * 3 + bytes.fromhex(code) + b"\x90" * 8) == doubtful


def compiled(body: str, name: str = "k", arch: str = "sm_80") -> tw.Kernel:
    return tw.Kernel('extern "C" __global__ void ' + body, name, arch=arch)


@every_order
def test_loops_whose_lanes_leave_at_different_turns(device: tw.devices.Device) -> None:
    kernel = compiled("""k(int *out, const int *trips) {
        int t = threadIdx.x, last = -1, sum = 0;
        for (int i = 0; i < trips[t]; ++i) {
            int j = 0;
            while (true) {
                if (j > (t + i) % 5) break;
                if ((j ^ t) & 1) { ++j; continue; }
                sum += i * j; ++j;
            }
            last = i;                      // the same in all lanes of a turn, not of the loop
            if (t % 7 == 3 && i == 4) break;
        }
        out[t] = sum * 100 + last;
    }""")
    trips = np.random.default_rng().integers(0, 12, 100).astype(np.int32)
    out = np.zeros(100, np.int32)
    kernel(1, 100, [out, trips], device=device)
    for t in range(100):
        total, last = 0, -1
        for i in range(trips[t]):
            total += sum(i * j for j in range((t + i) % 5 + 1) if not (j ^ t) & 1)
            last = i
            if t % 7 == 3 and i == 4:
                break
        assert out[t] == total * 100 + last


@every_order
def test_a_lock_among_the_lanes_of_a_warp(device: tw.devices.Device) -> None:
    kernel = compiled("""k(int *lock, int *count) {
        bool done = false;
        while (!done) {
            if (atomicCAS(lock, 0, 1) == 0) {
                *(volatile int *)count += 1;
                __threadfence();
                atomicExch(lock, 0);
                done = true;
            }
        }
    }""")
    lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    kernel(3, 40, [lock, count], device=device, timeout=30.0)
    assert (lock[0], count[0]) == (0, 120)


@every_order
def test_blocks_that_wait_for_later_blocks(device: tw.devices.Device) -> None:
    kernel = compiled("""k(volatile int *flag, int *out) {
        if (blockIdx.x + 1 < gridDim.x && threadIdx.x == 0)
            while (flag[blockIdx.x + 1] == 0) { }
        __syncthreads();
        out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) flag[blockIdx.x] = 1;
    }""")
    flag, out = np.zeros(9, np.int32), np.full(9 * 64, -1, np.int32)
    kernel(9, 64, [flag, out], device=device, timeout=60.0)
    assert flag.all()
    np.testing.assert_array_equal(out, np.repeat(np.arange(9), 64))


@every_order
def test_named_barriers_among_some_warps_and_warps_that_leave(device: tw.devices.Device) -> None:
    kernel = compiled("""k(int *out) {
        __shared__ int box[256];
        int warp = threadIdx.x / 32;
        if (warp == 7) return;                                  // one warp leaves at once
        if (warp < 2) { box[threadIdx.x] = threadIdx.x; asm volatile("bar.arrive 1, 128;" ::: "memory"); }
        else if (warp < 4) {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            out[threadIdx.x] = box[threadIdx.x - 64] * 3;
        }
        __syncthreads();                                        // all that are left
        if (warp >= 4) out[threadIdx.x] = box[threadIdx.x % 64];
    }""")
    out = np.full(256, -1, np.int32)
    kernel(1, 256, [out], device=device, timeout=30.0)
    expected = np.full(256, -1)
    expected[64:128] = np.arange(64) * 3
    expected[128:224] = np.arange(128, 224) % 64
    np.testing.assert_array_equal(out, expected)


@every_order
def test_votes_of_a_block_and_switches(device: tw.devices.Device) -> None:
    kernel = compiled("""k(int *out, const int *in) {
        int t = threadIdx.x, x = in[t];
        int count = __syncthreads_count(x > 3), all = __syncthreads_and(x >= 0), any = __syncthreads_or(x == 9);
        int y;
        switch (x) {
        case 0: y = t; break;
        case 1: y = t * 2;
        case 2: y = t + 7; break;
        case 3: y = -t; break;
        case 4: y = t ^ 5; break;
        case 5: y = 11; break;
        case 6: return;
        default: y = 1000 + x;
        }
        out[t] = y + 10000 * count + (all ? 1 : 0) + (any ? 2 : 0);
    }""")
    values = np.random.default_rng().integers(0, 9, 97).astype(np.int32)
    out = np.full(97, -1, np.int32)
    kernel(1, 97, [out, values], device=device)
    extra = 10_000 * np.count_nonzero(values > 3) + 1
    for t, x in enumerate(values):
        y = {0: t, 1: t + 7, 2: t + 7, 3: -t, 4: t ^ 5, 5: 11}.get(int(x), 1000 + int(x))
        assert out[t] == (-1 if x == 6 else y + extra)


@pytest.mark.parametrize("leave", ["brx.idx i, T;", "@p bra STAY; bra GO;", "@p bra GO;"])
@pytest.mark.parametrize(
    "meeting", ["bar.sync 0;", "bar.warp.sync 0x55555555;", "wgmma.fence.sync.aligned;", ""]
)
def test_lanes_leave_at_once_where_others_come_to_a_barrier(meeting: str, leave: str) -> None:
    """Those that come to nothing but an exit, also over jumps to it; else they gather there."""
    behind = f"{meeting} mov.u32 t, 3; ret;"
    for body in (f"STAY: {behind} GO: exit;", f"bra STAY; GO: bra OUT; OUT: ret; STAY: {behind}"):
        text = f""".version 8.0 .target sm_90a .address_size 64 .visible .entry k() {{
.reg .pred p; .reg .u32 t, i; mov.u32 t, %tid.x; and.b32 i, t, 1; setp.eq.u32 p, i, 0; T: .branchtargets STAY, GO;
{leave} {body} }}"""
        function = parse(text).function("k")
        assert function is not None
        (parts,) = [
            block for block in build_flow(function).blocks if block.terminator.kind in ("branch", "table")
        ]
        assert (EXIT in parts.terminator.targets) == bool(meeting)


IRREDUCIBLE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred p, q; .reg .u32 t, i, s; .reg .u64 a, b;
    ld.param.u64 a, [out];
    mov.u32 t, %tid.x;
    mov.u32 i, 0;
    mov.u32 s, 0;
    and.b32 s, t, 1;
    setp.eq.u32 p, s, 1;
    @p bra second;
first:
    add.u32 i, i, 1;
    add.u32 s, s, t;
    setp.gt.u32 q, i, t;
    @q bra done;
second:
    add.u32 i, i, 2;
    mad.lo.u32 s, s, 3, i;
    setp.lt.u32 q, i, 40;
    @q bra first;
done:
    mul.wide.u32 b, t, 4;
    add.u64 b, b, a;
    st.global.u32 [b], s;
    ret;
}
"""


@every_order
def test_a_loop_with_two_ways_in(device: tw.devices.Device) -> None:
    out = np.zeros(64, np.uint32)
    tw.Kernel.from_ptx(IRREDUCIBLE, "k")(1, 64, [out], device=device)
    for t in range(64):
        i, s, at_first = 0, t & 1, not t & 1
        while True:
            if at_first:
                i, s = i + 1, s + t
                if i > t:
                    break
            i += 2
            s = s * 3 + i
            if i >= 40:
                break
            at_first = True
        assert out[t] == s % 2**32


@every_order
def test_lanes_that_leave_two_loops_of_one_end_wait_for_those_still_in_either(
    device: tw.devices.Device,
) -> None:
    """A switch goes back to the inner loop, to the outer one, or out of both, where the lanes go on together; some of
    the warp never came."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {
.reg .b32 %t, %i, %j, %n, %m, %go; .reg .b64 %at, %w; .reg .pred %p;
ld.param.u64 %at, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, 4; add.u64 %at, %at, %w;
setp.ge.u32 %p, %t, 20; @%p bra LAST;
mov.u32 %i, 0; shr.u32 %n, %t, 2; and.b32 %m, %t, 3;
OUTER: add.u32 %i, %i, 1; mov.u32 %j, 0;
INNER: add.u32 %j, %j, 1;
setp.lt.u32 %p, %i, %n; selp.u32 %go, 1, 2, %p; setp.lt.u32 %p, %j, %m; selp.u32 %go, 0, %go, %p;
WAYS: .branchtargets INNER, OUTER, TOGETHER;
brx.idx %go, WAYS;
TOGETHER: activemask.b32 %m; st.global.u32 [%at], %m;
LAST: ret; }"""
    ends = Program(parse(text), "k", (32, 1, 1)).flow.loop_end
    assert len(ends) == 2 and len(set(ends.values())) == 1
    out = np.zeros(32, np.uint32)
    tw.Kernel.from_ptx(text, "k")(1, 32, [out], device=device, timeout=20.0)
    np.testing.assert_array_equal(out, [0xFFFFF] * 20 + [0] * 12)


@pytest.mark.parametrize("waits", [0, 1])
@pytest.mark.parametrize("way", [0, 1])
@every_order
def test_a_loop_with_two_ways_in_waits_for_another_warp(
    device: tw.devices.Device, way: int, waits: int
) -> None:
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 way) {{
.reg .b32 %t, %v, %n, %way; .reg .pred %p, %q; .shared .b32 flag;
mov.u32 %t, %tid.x; shr.u32 %t, %t, 5; mov.u32 %n, 0; ld.param.u32 %way, [way]; setp.eq.u32 %p, %t, {waits};
st.volatile.shared.u32 [flag], 0; bar.sync 0;
@!%p bra SET;
setp.eq.u32 %q, %way, 0; @%q bra SECOND;
FIRST: add.u32 %n, %n, 1;
SECOND: ld.volatile.shared.u32 %v, [flag]; setp.eq.u32 %p, %v, 0; @%p bra FIRST;
ret;
SET: st.volatile.shared.u32 [flag], 1; ret; }}"""
    assert not Program(parse(text), "k", (64, 1, 1)).flow.reducible
    tw.Kernel.from_ptx(text, "k")(1, 64, [way], device=device, timeout=20.0)


@pytest.mark.parametrize(
    ("code", "apart"),
    [
        ("@%p bra END; st.global.u32 [%at], 1; END: ret;", {1}),
        ("@%p bra END; st.global.u32 [%at], 1; ret; END: bra END;", {1, 2}),
        ("@%p bra END; st.global.u32 [%at], 1; END: bra END;", {1}),
        ("@%p bra ONE; bra TWO; ONE: bra ONE; TWO: bra TWO;", {1, 2, 3}),
        ("@%p bra END; ONE: bra ONE; END: st.global.u32 [%at], 1; ret;", {1, 2}),
    ],
)
def test_lanes_in_an_endless_loop_meet_no_others(code: str, apart: set[int]) -> None:
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y) {{
.reg .b32 %t; .reg .b64 %at; .reg .pred %p;
ld.param.u64 %at, [y]; mov.u32 %t, %tid.x; setp.gt.u32 %p, %t, 40;
{code} }}"""
    program = Program(parse(text), "k", (64, 1, 1))
    assert program.general.divergent == apart


@pytest.mark.parametrize(
    ("condition", "apart"),
    [
        ("setp.gt.u32 %p, %t, 40;", True),
        ("setp.ge.u32 %p, %t, 32;", False),  # the second warp
        ("ld.param.u64 %at, [y]; setp.eq.u64 %p, %at, 0;", False),
        ("ld.global.u32 %u, [%at]; setp.eq.u32 %p, %u, 0;", False),
        ("cvt.u64.u32 %l, %t; ld.global.u8 %u, [%l]; setp.eq.u32 %p, %u, 0;", True),
        ("setp.gt.u32 %q, %t, 40; vote.sync.any.pred %p, %q, -1;", False),
    ],
)
@pytest.mark.parametrize(
    ("code", "blocks"),
    [
        ("@%p bra END; st.global.u32 [%at], 1; END: ret;", 1),
        ("@%p bra ONE; st.global.u32 [%at], 1; bra END; ONE: st.global.u32 [%at], 2; END: ret;", 2),
        ("@%p ret; st.global.u32 [%at], 1; ret;", 0),  # who left is gone
        ("AGAIN: st.global.u32 [%at], 1; @%p bra AGAIN; ret;", 1),
    ],
)
def test_lanes_run_apart_behind_branches_that_differ_between_them(
    condition: str, apart: bool, code: str, blocks: int
) -> None:
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y) {{
.reg .b32 %t, %u; .reg .b64 %at, %l; .reg .pred %p, %q;
ld.param.u64 %at, [y]; mov.u32 %t, %tid.x; {condition}
{code} }}"""
    program = Program(parse(text), "k", (64, 1, 1))
    assert len(program.general.divergent) == len(program.fast.divergent) == (blocks if apart else 0)


PARTED_BY_WRAPPING = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 base) {
.reg .b32 %t, %i, %b, %c, %l, %h; .reg .b64 %out, %w, %x, %z, %o; .reg .pred %p, %odd;
mov.u32 %t, %tid.x; mov.u32 %l, %laneid; ld.param.u32 %b, [base]; ld.param.u64 %out, [out]; mov.u32 %c, %ctaid.x;
mad.lo.u32 %c, %c, 64, %t; mul.wide.u32 %o, %c, 4; add.u64 %out, %out, %o;
mov.u32 %h, %ctaid.x; and.b32 %h, %h, 1; setp.eq.u32 %odd, %h, 1;
add.u32 %i, %t, %b; cvt.u64.u32 %w, %i; cvt.u64.u32 %z, %l; sub.u64 %x, %w, %z; setp.gt.u64 %p, %x, 0xffffffff;
xor.pred %p, %p, %odd; @%p bra far;
barrier.sync 1, 64; atom.global.add.u32 %c, [%out], 1; bra.uni done;
far: barrier.sync 1, 64; atom.global.add.u32 %c, [%out], 100;
done: ret; }"""


@pytest.mark.parametrize("base", [0, 2**32 - 16, 2**32 - 48])
@pytest.mark.parametrize("order", ORDERS, ids=map(str, ORDERS))
def test_of_a_block_s_lanes_none_waits_where_those_of_the_block_before_did(
    order: str | int, base: int
) -> None:
    """Blocks take their turns in one memory, and in each the lanes of a warp whose indices wrap around part the other
    way: no code is run by the lanes that waited for it in the block before."""
    blocks, out = 6, np.zeros((6, 64), np.int32)
    device = tw.device("emulator", order=order, threads=1)
    tw.Kernel.from_ptx(PARTED_BY_WRAPPING, "k")(blocks, 64, [out, base], device=device, timeout=30.0)
    lanes = np.arange(64) % 32
    wraps = (np.arange(64) + base) % 2**32 < lanes  # then the difference is below zero
    far = wraps[None, :] ^ (np.arange(blocks) % 2 == 1)[:, None]
    np.testing.assert_array_equal(out, np.where(far, 100, 1))


GUARDED = {
    "mov.u32 %a, 7;": (7, 9),
    "mov.u32 %b, %t;": (5, None),  # a step from lane to lane
    "mov.b64 {%a, %b}, %both;": (21, 42),
    "add.u32 %a, %a, 3;": (8, 9),
    "ld.global.v2.u32 {%a, %b}, [%in];": (21, 42),
}


@pytest.mark.parametrize("instruction", GUARDED)
@pytest.mark.parametrize("guard", ["@%p", "@!%p", "@%same", "@!%same"])
def test_what_all_lanes_have_alike_changes_only_where_a_guard_holds(guard: str, instruction: str) -> None:
    """Whether it is written ``@%p`` or ``@!%p``, and whether the guard differs between lanes or not."""
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {{
.reg .b32 %a, %b, %t; .reg .b64 %in, %at, %step, %both; .reg .pred %p, %same;
ld.param.u64 %in, [x]; ld.param.u64 %at, [y]; mov.u32 %t, %tid.x; mul.wide.u32 %step, %t, 8; add.u64 %at, %at, %step;
ld.global.u64 %both, [%in]; setp.lt.u32 %p, %t, 11; setp.eq.u64 %same, %both, 0;
mov.u32 %a, 5; mov.u32 %b, 9;
{guard} {instruction}
st.global.v2.u32 [%at], {{%a, %b}}; ret; }}"""
    out, lanes = np.zeros((32, 2), np.uint32), np.arange(32)
    tw.Kernel.from_ptx(text, "k")(1, 32, [np.array([21, 42], np.uint32), out], device=tw.device("emulator"))
    holds = (lanes < 11 if "%p" in guard else lanes < 0) ^ ("!" in guard)
    for place, (before, after) in enumerate(zip((5, 9), GUARDED[instruction], strict=True)):
        np.testing.assert_array_equal(
            out[:, place], np.where(holds, lanes if after is None else after, before)
        )


@pytest.mark.parametrize("instruction", GUARDED)
def test_the_same_among_lanes_that_run_apart_by_a_guard_that_differs_since_others_did(
    instruction: str,
) -> None:
    """The guard is alike in all lanes but for a number that lanes of another branch have changed."""
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {{
.reg .b32 %a, %b, %t, %odd, %z; .reg .b64 %in, %at, %step, %both; .reg .pred %p, %q, %some;
ld.param.u64 %in, [x]; ld.param.u64 %at, [y]; mov.u32 %t, %tid.x; mul.wide.u32 %step, %t, 8; add.u64 %at, %at, %step;
ld.global.u64 %both, [%in]; mov.u32 %z, 1; and.b32 %odd, %t, 1; setp.eq.u32 %q, %odd, 0; @%q bra meet; mov.u32 %z, 2;
meet: setp.eq.u32 %p, %z, 2; setp.gt.u32 %some, %t, 15; @%some bra done; mov.u32 %a, 5; mov.u32 %b, 9;
@%p {instruction}
st.global.v2.u32 [%at], {{%a, %b}};
done: st.global.u32 [%at+256], %z; ret; }}"""
    out, lanes = np.zeros((64, 2), np.uint32), np.arange(16)
    tw.Kernel.from_ptx(text, "k")(1, 32, [np.array([21, 42], np.uint32), out], device=tw.device("emulator"))
    for place, (before, after) in enumerate(zip((5, 9), GUARDED[instruction], strict=True)):
        wanted = np.where(lanes % 2, lanes if after is None else after, before)
        np.testing.assert_array_equal(out[:16, place], wanted)


def test_lanes_that_leave_let_the_others_pass_their_barrier() -> None:
    """Half a warp ends, early or not, while the rest meets for itself and then for the block."""
    source = """extern "C" __global__ void k(int *x) {
        int t = threadIdx.x;
        if (t < 16) { if (x[t] & 2) return; x[t] = 9; }
        else { __syncwarp(0xffff0000); __syncthreads(); x[t] = 8; } }"""
    x = np.arange(32, dtype=np.int32)
    tw.Kernel(source, "k", "sm_90")(1, 32, [x], device="emulator")
    expected = np.where(np.arange(32) < 16, np.where(np.arange(32) & 2, np.arange(32), 9), 8)
    assert np.array_equal(x, expected)
