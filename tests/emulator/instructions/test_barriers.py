"""Barriers that only a part of a warp comes to: reported where all must come, counted lane by lane elsewhere."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewise as tw

ORDERS: list[str | int] = ["eager", "late", 7]
every_order = pytest.mark.parametrize("order", ORDERS, ids=map(str, ORDERS))
BLOCK = 96
LOW, HIGH, ALL = 0x0000_FFFF, 0xFFFF_0000, 0xFFFF_FFFF


def launched(body: str, order: str | int = "eager") -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """What each thread has in ``o`` in the end; ``t`` is the thread, ``l`` its lane."""
    kernel = tw.Kernel(
        'extern "C" __global__ void k(int *o, int *box)\n{\nint t = threadIdx.x, l = t % 32;\n' + body + "}",
        "k",
        "sm_80",
    )
    out, box = np.full(BLOCK, -1, np.int32), np.zeros(8, np.int32)
    kernel(1, BLOCK, [out, box], device=tw.device("emulator", order=order), timeout=20.0)
    return out


def fault_of(body: str, order: str | int = "eager") -> tuple[int, int, str]:
    """The lanes that are at a barrier and those that are not, as the error tells them; and the error."""
    with pytest.raises(tw.errors.KernelFault, match="a barrier in divergent code") as caught:
        launched(body, order)
    said = str(caught.value)
    found = re.search(r"lanes (\w+) of a warp are at this barrier, lanes (\w+) do not", said)
    assert found is not None
    return int(found[1], 16), int(found[2], 16), said


@every_order
def test_a_barrier_on_one_side(order: str | int) -> None:
    here, others, said = fault_of("if (l < 16)\n__syncthreads();\no[t] = 1;", order)
    assert (here, others) == (LOW, HIGH)
    assert "kernel k, block (0, 0, 0), thread (" in said
    assert re.search(r"PTX line \d+: bar.sync", said)
    assert "kernel.cu:5" in said
    here, others, said = fault_of("if (l > 15) __syncthreads();\no[t] = 1;", order)
    thread = re.search(r"thread \((\d+)", said)
    assert (here, others) == (HIGH, LOW) and thread and int(thread[1]) % 32 == 16  # the first that is there


def test_of_the_lanes_that_do_not_come_those_that_have_left_are_none() -> None:
    here, others, _ = fault_of("if (l > 24) return; o[t] = 2; if (l < 16) __syncthreads(); o[t] += 1;")
    assert (here, others) == (LOW, 0x01FF_0000)


@every_order
def test_another_barrier_on_each_side(order: str | int) -> None:
    body = "if (l < 16) { o[t] = 1; __syncthreads(); o[t] += box[0]; }\nelse { __syncthreads(); o[t] = 2; }\no[t] += 3;"
    here, others, said = fault_of(body, order)
    assert {here, others} == {LOW, HIGH}
    assert "bar.sync" in said


@pytest.mark.parametrize("after", ["", "__syncthreads();"])
@every_order
def test_a_barrier_in_a_loop_of_which_lanes_take_different_turns(after: str, order: str | int) -> None:
    here, others, _ = fault_of(
        f"for (int i = 0; i < l % 3; ++i) {{ __syncthreads(); o[t] = i; }}\n{after} o[t] += 5;", order
    )
    assert here | others == ALL
    assert others == sum(1 << lane for lane in range(32) if lane % 3 == 0)


@pytest.mark.parametrize(
    "barrier",
    [
        "__syncthreads();",
        'asm volatile("bar.sync 3, 96;");',
        'asm volatile("bar.arrive 3, 96;");',
        'asm volatile("barrier.sync.aligned 3;");',
        "box[2] = __syncthreads_count(t);",
        "box[2] = __syncthreads_or(t);",
    ],
)
def test_every_form_that_wants_the_whole_warp(barrier: str) -> None:
    here, others, _ = fault_of(f"if (l >= 16) {{ {barrier} }} o[t] = 1;")
    assert (here, others) == (HIGH, LOW)


@pytest.mark.parametrize("name", ["bar", "bar.cta", "barrier", "barrier.cta"])
def test_every_name_of_a_barrier_of_the_block(name: str) -> None:
    out = launched(
        f'''__shared__ int s[96], n;
s[t] = t;
asm volatile("{name}.sync 1;" ::: "memory");
o[t] = s[95 - t];
int low;
asm volatile("{{ .reg .pred p; setp.lt.s32 p, %1, 40; {name}.red.popc.u32 %0, 2, p; }}" : "=r"(low) : "r"(t) : "memory");
o[t] += 100 * low;
if (t < 32) {{ n = 7; asm volatile("{name}.arrive 3, 64;" ::: "memory"); }}
else if (t < 64) {{ asm volatile("{name}.sync 3, 64;" ::: "memory"); o[t] += 10000 * n; }}'''
    )
    wanted = [4000 + 95 - t + (70_000 if 32 <= t < 64 else 0) for t in range(BLOCK)]
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("mask", ["0xffffffff", "0x0000ffff"])
def test_lanes_at_a_barrier_of_the_warp_and_lanes_at_one_of_the_block(mask: str) -> None:
    here, _, _ = fault_of(f"if (l < 16) {{ __syncwarp({mask}); o[t] = 4; }} else __syncthreads(); o[t] += 1;")
    assert here == HIGH


@every_order
def test_lanes_that_part_and_come_to_one_barrier(order: str | int) -> None:
    out = launched(
        "int s = 0; if (l % 3 == 1) for (int i = 0; i < t; ++i) s += i * box[i % 8] + i; else if (l & 4) s = 3;\n"
        "__syncthreads(); o[t] = s; if (l < 9) return; if (l == 20) o[t] = -5; __syncthreads(); o[t] += 1;",
        order,
    )
    for t in range(BLOCK):
        lane = t % 32
        s = t * (t - 1) // 2 if lane % 3 == 1 else 3 if lane & 4 else 0
        assert out[t] == (s if lane < 9 else -4 if lane == 20 else s + 1)


@every_order
def test_a_barrier_after_some_lanes_have_left(order: str | int) -> None:
    np.testing.assert_array_equal(
        launched("if (t % 5 > 2) return; __syncthreads(); o[t] = t; __syncthreads(); o[t] += 1;", order),
        [t + 1 if t % 5 < 3 else -1 for t in range(BLOCK)],
    )
    np.testing.assert_array_equal(  # they leave one after another
        launched(
            "for (int i = 0;; ++i) { __syncthreads(); if (i == t % 7) return; o[t] = i; __syncthreads(); }",
            order,
        ),
        [t % 7 - 1 if t % 7 else -1 for t in range(BLOCK)],
    )
    np.testing.assert_array_equal(  # and do something before they leave
        launched(
            "for (int i = 0; i < box[0] + 9; ++i) { __syncthreads(); if (i == t % 7) { o[t] = 40 + i; return; } "
            "o[t] = i; __syncthreads(); } o[t] = 5;",
            order,
        ),
        [40 + t % 7 for t in range(BLOCK)],
    )
    np.testing.assert_array_equal(  # from one side only
        launched(
            "if (l & 1) { o[t] = 1; if (l & 2) return; o[t] += 1; } else { o[t] = 6; if (l & 4) return; } "
            "__syncthreads(); o[t] += 10;",
            order,
        ),
        [(1 if t & 2 else 12) if t & 1 else (6 if t & 4 else 16) for t in range(BLOCK)],
    )


@every_order
@pytest.mark.parametrize("first", ["those that leave", "those that come"])
def test_where_a_barrier_counts_threads_those_that_have_left_count_too(first: str, order: str | int) -> None:
    """A warp comes as a whole one, with whoever is left of it: 96 threads of which 36 are there."""
    wait = 'asm volatile("barrier.sync 3, 96;" ::: "memory"); o[t] += 2;'
    if first == "those that leave":
        body = f"o[t] = l; if (l % 5 < 3) return; {wait} o[t] += 1; {wait}"
    else:
        body = f"o[t] = l; if (l % 5 > 2) {{ {wait} o[t] += 3; }} else for (int i = 0; i < 99; ++i) o[t] += box[0];"
    np.testing.assert_array_equal(
        launched(body, order), [t % 32 + 5 * (t % 32 % 5 > 2) for t in range(BLOCK)]
    )


@every_order
def test_lanes_that_leave_are_not_waited_for(order: str | int) -> None:
    for mine, others in (("l > 15", "__syncwarp();"), ("l < 16", "__syncwarp(0xFFFFF);")):
        body = f"if ({mine}) {{ {others} o[t] = 7; return; }}\nfor (int i = 0; i < box[0] + 99; ++i) o[t] += box[1] + 1;"
        wanted = [7 if (t % 32 > 15) == (mine == "l > 15") else 98 for t in range(BLOCK)]
        np.testing.assert_array_equal(launched(body, order), wanted)


@every_order
def test_a_barrier_after_a_lock(order: str | int) -> None:
    out = launched(
        "bool done = false; while (!done) { if (atomicCAS(box, 0, 1) == 0) { *(volatile int *)(box + 1) += 1; "
        "__threadfence(); atomicExch(box, 0); done = true; } }\n__syncthreads(); o[t] = box[1];",
        order,
    )
    np.testing.assert_array_equal(out, BLOCK)


@every_order
def test_the_form_that_lanes_may_run_apart_counts_them(order: str | int) -> None:
    out = launched(
        'if (l < 16) { o[t] = 3; asm volatile("barrier.sync 1;" ::: "memory"); o[t] += box[0]; } '
        'else { box[0] = 4; asm volatile("barrier.sync 1;" ::: "memory"); o[t] = 9; }',
        order,
    )
    np.testing.assert_array_equal(out, [7 if t % 32 < 16 else 9 for t in range(BLOCK)])


@every_order
def test_a_barrier_that_counts_threads_counts_those_of_a_warp_once(order: str | int) -> None:
    """Every warp comes in two parts; what the last part of the last warp writes, all read behind it."""
    come = 'asm volatile("barrier.sync 1, 96;" ::: "memory");'
    body = f"""__shared__ volatile int s[3]; if (t < 3) s[t] = 0; __syncthreads();
    if (l < 8) {{ {come} o[t] = s[0] + s[1] + s[2]; }}
    else {{ for (int i = 0; i < 40 * (t / 32); ++i) o[t] = box[i % 8]; if (l == 31) s[t / 32] = 1 << t / 32;
            {come} o[t] = s[0] + s[1] + s[2]; }}"""
    np.testing.assert_array_equal(launched(body, order), 7)


def test_whole_warps_may_come_alone() -> None:
    out = launched(
        'if (t / 32 == 1) asm volatile("bar.sync 2, 32;"); if (t < 64) asm volatile("bar.sync 3, 64;"); o[t] = 1;'
    )
    np.testing.assert_array_equal(out, 1)


def test_a_deadlock_names_eight_warps_and_counts_the_others() -> None:
    kernel = tw.Kernel('extern "C" __global__ void k() { asm volatile("bar.sync 1, 512;"); }', "k", "sm_80")
    for warps in (8, 9, 12):
        with pytest.raises(tw.errors.Deadlock) as caught:
            kernel(1, 32 * warps, [], device="emulator", timeout=20.0)
        more = f" and {warps - 8} more" * (warps > 8)
        named = ", ".join(f"warp {i}" for i in range(8))
        assert f"  {named}{more} wait at barrier 1" in str(caught.value)


def test_a_deadlock_names_lanes_at_both_kinds_of_barrier() -> None:
    with pytest.raises(tw.errors.Deadlock) as caught:
        launched('if (l < 16) asm volatile("barrier.sync 4, 128;");\nelse __syncthreads();\no[t] = 1;')
    said = str(caught.value)
    named, apart = said.split(
        "lanes 0x0000ffff of warp 2 wait at barrier 4, where 48 of 128 threads have come"
    )[1].split("lanes 0xffff0000 of warp 2 wait at a barrier in divergent code for other lanes")
    assert "kernel.cu:4" in named and "kernel.cu:5" in apart


@pytest.mark.parametrize("come", ["bar.arrive %n, 64;", "bar.sync %n, 32;"])
def test_behind_a_barrier_that_there_is_not_nothing_happens(come: str) -> None:
    """Even to those who need not wait."""
    head = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 o, .param .u32 number) {"
    body = f"ld.param.u64 %a, [o]; ld.param.u32 %n, [number]; st.global.u32 [%a], 1; {come} st.global.u32 [%a], 2;"
    kernel = tw.Kernel.from_ptx(f"{head}\n.reg .b64 %a; .reg .b32 %n;\n{body}\nret;\n}}", "k")
    device = tw.device("emulator")
    out = device.array(np.zeros(1, np.uint32))
    with pytest.raises(tw.errors.KernelFault, match="a barrier above 15"):
        kernel(1, 32, [out, 16], device=device)
    assert out.numpy() == 1


@pytest.mark.parametrize("given", ["0", "%n", "48", "%m"])
@pytest.mark.parametrize("name", ["bar.sync", "bar.arrive", "barrier.sync", "barrier.arrive"])
def test_a_count_of_threads_is_a_multiple_of_a_warp_and_not_0(name: str, given: str) -> None:
    """0 is no way to say all of them."""
    head = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 n, .param .u32 m) {"
    body = f".reg .b32 %n, %m; ld.param.u32 %n, [n]; ld.param.u32 %m, [m]; {name} 1, {given};"
    kernel = tw.Kernel.from_ptx(f"{head}\n{body}\nret;\n}}", "k")
    with pytest.raises(tw.errors.KernelFault, match=re.escape(f"{name} 1, {given}")):
        kernel(1, 64, [0, 33], device="emulator")


@pytest.mark.parametrize("leaving", [0, 1, 2])
@every_order
def test_lanes_that_leave_one_by_one_come_to_no_barrier(leaving: int, order: str | int) -> None:
    """Of the other two warps one reads behind a barrier of 64 threads what the other writes before it."""
    reader, writer = (warp for warp in range(3) if warp != leaving)
    found = launched(
        f"""__shared__ int s[32];
        if (t / 32 == {leaving}) {{ o[t] = l; for (int i = 0; i < 32; ++i)
            asm volatile("{{ .reg .pred p; setp.eq.u32 p, %0, %1; @p exit; }}" :: "r"(l), "r"(i)); }}
        if (t / 32 == {writer}) {{ s[l] = 100 + l; asm volatile("bar.sync 1, 64;" ::: "memory"); o[t] = l; }}
        if (t / 32 == {reader}) {{ asm volatile("bar.sync 1, 64;" ::: "memory"); o[t] = s[l]; }}""",
        order,
    )
    assert found[32 * reader :][:32].tolist() == [100 + lane for lane in range(32)]
    for warp in (leaving, writer):
        assert found[32 * warp :][:32].tolist() == [*range(32)]


def of_registers(body: str, block: int, *numbers: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """What each thread of a kernel in PTX has in %d0, %d1, …; %t is the thread, %l its lane, %n a number given."""
    head = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 o, .param .u32 n) {"
    text = f"""{head}
.reg .b32 %t, %l, %n, %m, %d<4>; .reg .b64 %o; .reg .pred %p, %q;
mov.u32 %t, %tid.x; mov.u32 %l, %laneid; ld.param.u32 %n, [n]; ld.param.u64 %o, [o]; mad.wide.u32 %o, %t, 16, %o;
mov.u32 %d0, 0; mov.u32 %d1, 0; mov.u32 %d2, 0; mov.u32 %d3, 0;
{body}
st.global.v4.u32 [%o], {{%d0, %d1, %d2, %d3}};
ret; }}"""
    out = np.full((block, 4), 77, np.uint32)
    tw.Kernel.from_ptx(text, "k")(1, block, [out, *(numbers or (0,))], device="emulator", timeout=20.0)
    return out


def test_what_votes_come_to() -> None:
    """Of more threads than a byte counts, at a barrier whose number takes four bits."""
    body = """setp.lt.u32 %p, %t, %n; bar.red.popc.u32 %d0, 9, %p; bar.red.popc.u32 %d3, 9, !%p;
bar.red.and.pred %q, 9, %p; selp.u32 %d1, 1, 0, %q; bar.red.or.pred %q, 9, %p; selp.u32 %d2, 1, 0, %q;"""
    for yes in (0, 1, 40, 319, 320):
        assert (of_registers(body, 320, yes) == (yes, yes == 320, yes > 0, 320 - yes)).all()


def test_of_a_vote_in_two_parts_each_lane_counts_once() -> None:
    body = """setp.lt.u32 %q, %l, 13; setp.ne.u32 %p, %t, 50; @%q bra LOW;
barrier.red.popc.u32 %d0, 2, %p; bra.uni ON; LOW: barrier.red.popc.u32 %d0, 2, %p; ON:"""
    assert (of_registers(body, 96)[:, 0] == 95).all()


@pytest.mark.parametrize(
    "body",
    [
        "and.b32 %m, %l, 1; barrier.sync %m;",
        "shr.u32 %m, %l, 4; mad.lo.u32 %m, %m, 32, 32; barrier.sync 1, %m;",
        "setp.lt.u32 %p, %t, 32; @%p bra LOW; barrier.sync 1, 64; bra.uni ON; LOW: barrier.sync 1, 96; ON:",
    ],
)
def test_lanes_and_warps_agree_on_a_barrier_and_its_count(body: str) -> None:
    with pytest.raises(tw.errors.KernelFault, match="two counts at one barrier, or lanes of one warp"):
        of_registers(body, 64)


def test_of_lanes_that_do_not_come_the_number_does_not_matter() -> None:
    body = "shr.u32 %m, %l, 4; setp.eq.u32 %p, %m, 0; @%p barrier.arrive %m, 64; mov.u32 %d0, 5;"
    assert (of_registers(body, 32)[:, 0] == 5).all()


@pytest.mark.parametrize("name", ["bar", "barrier"])
def test_who_does_not_wait_says_for_how_many_threads_the_barrier_is(name: str) -> None:
    with pytest.raises(tw.errors.PtxError, match="how many threads"):
        of_registers(f"{name}.arrive 1;", 32)
