"""Whatever the PTX is, it runs or is refused: no crash, no hang, no byte outside the launch's own arrays."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tests.clocks import least_seconds, seconds
from tests.fuzz import children, mutate
from tests.harness.many import refused as said_of
from tilewise.emulator.lowering.tables import edit_distance
from tilewise.emulator.running import run

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


@pytest.mark.few(
    "100"
)  # of texts that need no compiler: those of one take a while before the first can be damaged
@pytest.mark.parametrize("count", [100, 400])
def test_damaged_programs_run_or_are_refused(count: int) -> None:
    unharmed(mutate.run(1_000, count, with_compiler=count > 100), count)


@pytest.mark.few("200")
@pytest.mark.parametrize("count", [200, 1_000])
def test_forms_that_no_instruction_has_are_refused(count: int) -> None:
    unharmed(children.run("tests.fuzz.forms", 1_000, count), count)


@pytest.mark.few("12")  # as each mode and size of a block has the large kernel compiled anew
@pytest.mark.parametrize("count", [12, 1_000])
def test_hostile_operands_do_no_harm(count: int) -> None:
    """To copies in flight, mbarriers, clusters, tensor maps and wgmma, in every build and order."""
    unharmed(children.run("tests.fuzz.hostile", 1_000, count), count)


def unharmed(report: children.Report, count: int) -> None:
    assert not report.wrong, report.wrong
    assert report.count == count
    assert len(report.outcomes) > 1 or count < 50  # of many, not one and the same answer to everything


SOON = 30.0  # seconds of the CPU: what grew with the square of these texts' lengths would take many minutes


def refused(body: str) -> str:
    """The error of a program that must not run; it must come soon."""
    started = time.process_time()
    with pytest.raises(tw.TilewiseError) as caught:
        tw.Kernel.from_ptx(HEAD + body, "k")(1, 32, [], device="emulator", timeout=1.0)
    assert time.process_time() - started < SOON
    return str(caught.value)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "body",
    [
        ".visible .entry k() { .shared .b8 s[2147483648]; .reg .u32 r; mov.u32 r, s; ret; }",
        ".visible .entry k() { .local .align 8 .b8 s[4294967296]; .reg .u32 r; mov.u32 r, s; ret; }",
        ".global .b8 g[99999999999];\n.visible .entry k() { ret; }",
        ".visible .entry k() { .reg .b32 %r<2000000000>; ret; }",
        ".visible .entry k() { .shared .align 3 .b8 s[4]; ret; }",
        ".visible .entry k() { bra nowhere; }",
        ".visible .entry k() { .reg .b32 %r; mov.u32 %r, %tid.q; }",
        ".visible .entry k(",
        ".visible .entry k() " + "{" * 100_000,
        ".visible .entry k() { .reg .b64 a; mov.b64 a, " + "{" * 100_000 + "a" + "}" * 100_000 + "; ret; }",
        ".visible .entry k() { .reg .u32 r; mov.u32 r, " + "(" * 100_000 + "1" + ")" * 100_000 + "; ret; }",
        ".visible .entry k() { .reg .u32 r; mov.u32 r, " + "1?2:" * 100_000 + "1; ret; }",
        ".visible .entry k() { .reg .b64 a; ld.global.b64 a, [a" + ", [a" * 100_000 + "; ret; }",
        ".visible .entry k() { .reg .b64 a; ld.global.b64 a, [a+" + "-" * 100_000 + "1]; ret; }",
        ".global .u32 g[2] = " + "{" * 100_000 + "1;\n.visible .entry k() { ret; }",
        ".global .u32 g[2] = {" + "~" * 100_000 + "1};\n.visible .entry k() { ret; }",
        ".const .b8 c[65537];\n.visible .entry k() { .reg .u32 r; mov.u32 r, c; ret; }",
        ".visible .entry k() { .local .b8 s[524289]; .reg .u32 r; mov.u32 r, s; ret; }",
        ".visible .entry k() { .shared .b8 s[300000]; .reg .u32 r; mov.u32 r, s; ret; }",
    ],
)
def test_what_no_machine_could_run_is_refused_at_once(body: str) -> None:
    assert "\n  File" not in refused(body)


def test_parameters_have_as_much_room_as_on_a_gpu() -> None:
    kernel = tw.Kernel.from_ptx(HEAD + ".visible .entry k(.param .b8 p[32768]) { ret; }", "k")
    with pytest.raises(tw.TilewiseError, match="32,764"):
        kernel(1, 32, [bytes(32_768)], device="emulator")


SCARCE = """
import resource, sys, numpy as np, tilewise as tw
device = tw.device("emulator")
tw.Kernel.from_ptx(sys.argv[1] + ".visible .entry k() { ret; }", "k")(1, 32, [], device=device)  # compiler loaded
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)
for body, block in (
    (".visible .entry k() { .local .align 8 .b8 s[524288]; .reg .u32 r; mov.u32 r, s; st.local.u32 [r], r; ret; }", 1024),
    (".global .b8 g[1500000000]; .visible .entry k() { .reg .u64 r; mov.u64 r, g; ret; }", 32),
):
    try:
        tw.Kernel.from_ptx(sys.argv[1] + body, "k")(1, block, [], device=device)
        print("ran")
    except tw.errors.DeviceError as error:
        print(error)
"""


def test_memory_that_the_host_does_not_have() -> None:
    command = [sys.executable, "-c", SCARCE, HEAD]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    first, second = ended.stdout.splitlines()
    assert first == "the host's memory does not hold another block of kernel k"
    assert second == "the host has no room for an array of 1,500,000,000 bytes"


def test_a_loop_without_end_obeys_the_timeout() -> None:
    body = ".visible .entry k() { .reg .pred p; .reg .u32 r; again: add.u32 r, r, 1; setp.ne.u32 p, r, 0; bra again; }"
    assert "1 s" in refused(body)


def test_a_grid_without_end_obeys_the_timeout() -> None:
    kernel = tw.Kernel.from_ptx(HEAD + ".visible .entry k() { ret; }", "k")

    def stopped() -> None:
        with pytest.raises(tw.errors.LaunchTimeout):
            kernel((2**31 - 1, 65_535), 32, [], device="emulator", timeout=0.5)

    assert least_seconds(lambda: seconds(stopped), 5) < 5


INTERRUPTED = """
import numpy as np, signal, sys, tilewise as tw
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
text = sys.stdin.read()
x = tw.device("emulator").array(np.arange(8.0))
kernel = tw.Kernel.from_ptx(text, "k")
print("ready", flush=True)
try:
    kernel(1, 32, [], device="emulator")
except KeyboardInterrupt:
    print(x.numpy().sum(), flush=True)
"""


def seconds_to_interrupt() -> float:
    """From ctrl-c in the middle of a launch to what its process says next."""
    text = HEAD + ".visible .entry k() { again: bra again; }"
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(text)
        process.stdin.close()
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.5)
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "28.0\n"
        return time.monotonic() - asked


def test_ctrl_c_ends_a_launch_within_a_second_and_arrays_live_on() -> None:
    assert least_seconds(seconds_to_interrupt, 1.0) < 1.0


def test_a_fault_says_who_and_where() -> None:
    kernel = tw.Kernel(
        """
        extern "C" __global__ void late(float *x, int n)
        {
            if (threadIdx.x % 3 == 1 && blockIdx.x + 2 * blockIdx.y + 4 * blockIdx.z == 7)
                for (int i = 0; i < threadIdx.x; ++i)
                    x[n + i] = i;
        }
        """,
        "late",
        arch="sm_80",
    )
    x = np.zeros(10, np.float32)
    with pytest.raises(tw.errors.KernelFault) as caught:
        kernel((2, 2, 2), 32, [x, 9], device="emulator")
    said = str(caught.value)
    assert "write of 4 bytes" in said
    assert "0 bytes past the end of args[0] (float *x), the float32 array of shape (10,)" in said
    assert "kernel late, block (1, 1, 1), thread (4, 0, 0)" in said
    assert "PTX line" in said
    assert "kernel.cu:6" in said


def test_a_fault_in_ptx_that_came_from_nowhere_names_its_line_and_no_other() -> None:
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n.reg .b64 %a;\nmov.u64 %a, 0;\nst.global.u32 [%a], 1;\nret; }"
    with pytest.raises(tw.errors.KernelFault) as caught:
        tw.Kernel.from_ptx(text, "k")(1, 1, [], device="emulator")
    assert str(caught.value).splitlines()[-1].strip() == "PTX line 7: st.global.u32 [%a], 1;"


def test_a_deadlock_says_who_waits_for_what() -> None:
    kernel = tw.Kernel(
        """
        extern "C" __global__ void stuck()
        {
            if (threadIdx.x < 32)
                asm volatile("bar.sync 3, 64;");
        }
        """,
        "stuck",
        arch="sm_80",
    )
    with pytest.raises(tw.errors.Deadlock) as caught:
        kernel(1, 96, [], device="emulator", timeout=10.0)
    said = str(caught.value)
    assert "warp 0" in said
    assert "barrier 3" in said
    assert "2 of its 3 warps have left" in said


@pytest.mark.parametrize(
    ("loop", "named"),
    [
        # Of several instructions of a loop, the one that may see what others do.
        ("ld.global.u32 %r1, [%l0+8]; ld.volatile.global.u32 %r2, [%l0];", "volatile"),
        ("ld.global.u32 %r1, [%l0+8]; atom.global.or.b32 %r2, [%l0], 0;", "atom"),
        ("add.u32 %r1, %r1, 1; ld.global.u32 %r2, [%l0];", "ld.global.u32 %r2"),
        ("add.u32 %r1, %r1, 1; nanosleep.u32 0;", "add.u32 %r1"),
    ],
)
def test_a_deadlock_in_a_loop_names_the_line_that_waits(
    loop: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_CLOSED_SECONDS", 0.02)
    monkeypatch.setattr(run, "_STUCK_SECONDS", 0.05)
    lines = "\n".join(f"{one.strip()};" for one in loop.split(";") if one.strip())
    text = f"""{HEAD}.visible .entry k(.param .u64 x) {{
.reg .b32 %r<4>; .reg .b64 %l0; .reg .pred %p;
ld.param.u64 %l0, [x];
mov.u32 %r1, 0; mov.u32 %r2, 0;
ld.global.u32 %r3, [%l0+4];
again:
{lines}
setp.eq.u32 %p, %r2, 0;
@%p bra again;
ret; }}"""
    with pytest.raises(tw.errors.Deadlock, match="no block gets on") as caught:
        tw.Kernel.from_ptx(text, "k")(1, 32, [np.zeros(4, np.uint32)], device="emulator")
    (number, line), *_ = ((i, line) for i, line in enumerate(text.splitlines(), 1) if named in line)
    assert f"warp 0 waits in a loop for memory to change\n    PTX line {number}: {line}" in str(caught.value)


UNCHANGED = [  # of a word that is 0, and one that is 6; %r0 is 0 in the one lane that runs
    *("add.u32 %r2, [%l0], 0", "xor.b32 %r2, [%l0], 0", "or.b32 %r2, [%l0], 0", "and.b32 %r2, [%l0], 6"),
    *(
        "exch.b32 %r2, [%l0], 0",
        "cas.b32 %r2, [%l0], 5, 6",
        "max.u32 %r2, [%l0], 0",
        "min.u32 %r2, [%l0], 0xFFFFFFFF",
    ),
    *("max.s32 %r2, [%l0], -5", "min.s32 %r2, [%l0], 5", "or.b32 %r2, [%l0+4], 2", "add.u32 %r2, [%l0], %r0"),
]
CHANGED = [
    *(
        "add.u32 %r2, [%l0], 1",
        "xor.b32 %r2, [%l0], 9",
        "exch.b32 %r2, [%l0], %r1",
        "max.u32 %r2, [%l0], %r1",
    ),
    *("cas.b32 %r2, [%l0], %r2, %r1", "max.s32 %r2, [%l0], %r1", "min.s32 %r2, [%l0], %r3"),
    *("inc.u32 %r2, [%l0], 77", "dec.u32 %r2, [%l0], 77"),
]


@pytest.mark.parametrize("clock", ["%clock64", "%globaltimer"])
def test_a_loop_that_waits_for_a_time_gets_on(clock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take many times as long as one may that waits for memory to change."""
    monkeypatch.setattr(run, "_CLOSED_SECONDS", 0.005)
    monkeypatch.setattr(run, "_STUCK_SECONDS", 0.005)
    text = f"""{HEAD}.visible .entry k() {{
.reg .b64 %l<3>; .reg .pred %p; mov.u64 %l0, {clock};
again: nanosleep.u32 0; mov.u64 %l1, {clock}; sub.u64 %l1, %l1, %l0; setp.lt.u64 %p, %l1, 150000000; @%p bra again;
ret; }}"""
    launch_on_a_busy_machine(functools.partial(tw.Kernel.from_ptx(text, "k"), 1, 1, [], device="emulator"))


def launch_on_a_busy_machine(launch: Callable[[], object]) -> None:
    """Some times, if need be: a busy machine may leave a launch without its turn for as long as is taken for a deadlock."""
    for left in reversed(range(5)):
        try:
            launch()
        except tw.errors.Deadlock:
            if not left:
                raise
        else:
            break


# Many times as long as a launch may go without progress here; and still longer, for the end of one to be looked for.
TURNS, MANY_TURNS = 1_000_000, 200_000_000


@pytest.mark.parametrize(
    ("atom", "changes"), [*((one, False) for one in UNCHANGED), *((one, True) for one in CHANGED)]
)
def test_an_atom_that_changes_memory_is_progress(
    atom: str, changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that ends by itself, after long, or once memory has what it never has."""
    monkeypatch.setattr(run, "_CLOSED_SECONDS", 0.005)
    monkeypatch.setattr(run, "_STUCK_SECONDS", 0.005)
    text = f"""{HEAD}.visible .entry k(.param .u64 x) {{
.reg .b32 %r<4>; .reg .b64 %l0; .reg .pred %p;
ld.param.u64 %l0, [x];
mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r0, %laneid;
again:
add.u32 %r1, %r1, 1; sub.u32 %r3, %r3, 1;
atom.global.{atom};
setp.lt.u32 %p, %r1, {TURNS if changes else MANY_TURNS}; setp.ne.and.u32 %p, %r2, 0xFFFFFFF, %p;
@%p bra again;
ret; }}"""
    launch = functools.partial(
        tw.Kernel.from_ptx(text, "k"), 1, 1, [np.array([0, 6], np.uint32)], device="emulator"
    )
    if not changes:
        with pytest.raises(tw.errors.Deadlock, match="no block gets on"):
            launch()
        return
    launch_on_a_busy_machine(launch)


def test_a_deadlock_names_no_barrier_at_which_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes that went apart wait for memory to change, each half before the barrier that wants all of them."""
    monkeypatch.setattr(run, "_CLOSED_SECONDS", 0.02)
    monkeypatch.setattr(run, "_STUCK_SECONDS", 0.05)
    kernel = tw.Kernel(
        """extern "C" __global__ void k(volatile int *x) {
    if (threadIdx.x < 16) { while (!x[1]) {} x[4] = 1; } else { while (!x[2]) {} x[5] = 2; }
    __syncthreads();
    x[6] = x[4];
}""",
        "k",
        "sm_80",
    )
    with pytest.raises(tw.errors.Deadlock, match="no block gets on") as caught:
        kernel(1, 32, [np.zeros(8, np.int32)], device="emulator")
    said = str(caught.value)
    assert "warp 0 waits in a loop for memory to change" in said and "barrier" not in said


def test_an_unknown_instruction_is_named_with_both_its_lines() -> None:
    kernel = tw.Kernel(
        'extern "C" __global__ void k()\n{\n    asm volatile("{ .reg .u64 a; stacksave.u64 a; }");\n}',
        "k",
        "sm_90a",
    )
    number = next(i for i, line in enumerate(kernel.ptx.splitlines(), 1) if "stacksave" in line)
    with pytest.raises(tw.errors.PtxError) as caught:
        kernel(1, 128, [], device="emulator")
    said = str(caught.value)
    assert said.startswith(f"PTX line {number} (from line 3 of the CUDA source)")
    assert "stacksave.u64" in said


@pytest.mark.parametrize(
    ("instruction", "family"),
    [
        (
            "tex.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [a, {%r0, %r1}];",
            "texture instructions are not supported",
        ),
        (
            "tld4.r.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [a, {%r0, %r1}];",
            "texture instructions are not supported",
        ),
        ("suld.b.1d.b32.trap %r0, [a, {%r1}];", "surface instructions are not supported"),
        ("tcgen05.wait::ld.sync.aligned;", "(tcgen05) are not supported"),
        ("multimem.red.add.u32 [%l0], %r0;", "(multimem) are not supported"),
    ],
)
def test_what_is_not_supported_is_named_by_its_family(instruction: str, family: str) -> None:
    said = said_of(instruction)
    assert family in said
    assert "nearest" not in said


@given(
    st.sampled_from(
        [
            "madd",
            "ad",
            "lop4",
            "shlf",
            "atmo",
            "mbarier",
            "mxmbxr",
            "rexxx",
            "cosine",
            "qq",
            "v",
            "zzzzzzzz",
            "ex",
        ]
    ),
    st.sampled_from(["", ".f32", ".b32"]),
)
def test_only_what_is_really_near_is_offered(opcode: str, type_: str) -> None:
    """As far as one letter for words of up to five and two for longer ones."""
    near = {"madd": 1, "ad": 1, "lop4": 1, "shlf": 1, "atmo": 1, "mbarier": 1, "mxmbxr": 2, "ex": 1}
    said = said_of(f"{opcode}{type_} %r0, %r1;")
    assert f"the instruction '{opcode}{type_}' is not supported" in said
    hint = said.partition("the nearest known one is ")[2]
    assert bool(hint) == (opcode in near)
    if hint:
        offered = hint.strip("'").partition("'")[0]
        assert edit_distance(offered, opcode) == near[opcode]


def test_how_far_words_are_apart() -> None:
    for first, second, count in (("tex", "ex2", 2), ("add", "add", 0), ("atmo", "atom", 1), ("", "mul", 3)):
        assert edit_distance(first, second) == edit_distance(second, first) == count


SHORT = """mbarrier r; st.global.u32 [a]; st; ld.global.u32 r; ld.global.u32; st.global.v2.u32 [a], {r}; atom.global.add.u32 r; atom.add.u32;
red.global.add.u32 [a]; cp.async.ca.shared.global [a]; cp.async.cg.shared.global; ldmatrix.sync.aligned.m8n8.x1.shared.b16;
bar.sync; bar.red.popc.u32; bar.red.and.pred p; bar.warp.sync; shfl.sync.bfly.b32; vote.sync.all.pred; elect.sync; mov.u32;
setp.eq.u32; selp.u32 r; mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32; mbarrier.init.shared.b64; brx.idx r;
mbarrier.arrive.shared.b64 a; mbarrier.try_wait.parity.shared.b64 p; stmatrix.sync.aligned.m8n8.x1.shared.b16 [a]; call;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16; mapa.u32; isspacep.global; wgmma; mbarrier; cp; wgmma.mma_async;
mbarrier.arrive.expect_tx.shared.b64 a, [r]; mbarrier.arrive_drop.noComplete.shared.b64 a, [r];"""


@pytest.mark.parametrize("mode", ["plain", "checked", "counted", "recorded"])
def test_instructions_without_their_operands(mode: str) -> None:
    declared = ".reg .u32 r; .reg .u64 a; .reg .pred p; ld.param.u64 a, [o];"
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    array = tw.device("emulator").array(np.zeros(64, np.uint32))
    for text in SHORT.replace("\n", " ").split("; "):
        kernel = tw.Kernel.from_ptx(
            f"{head}.visible .entry k(.param .u64 o) {{ {declared}\n{text}; ret; }}", "k"
        )
        launches: dict[str, Callable[..., object]] = {
            "plain": kernel,
            "checked": kernel.check,
            "counted": kernel.profile,
            "recorded": kernel.record,
        }
        with pytest.raises(tw.errors.PtxError, match="PTX line 5"):
            launches[mode](1, 32, [array])
