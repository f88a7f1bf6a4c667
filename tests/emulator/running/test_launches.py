"""Launches on the emulator, one after another and at once: what they share, they share unnoticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilewise as tw
from tests.clocks import least_seconds, seconds
from tests.terminal import Terminal
from tilewise import emulator
from tilewise.devices import device, host_launches
from tilewise.emulator.running import host_calls, run, workers
from tilewise.errors import DeviceError, KernelFault, LaunchError, LaunchTimeout
from tilewise.launch import Launch, check_registers

SOURCE = """
extern "C" __global__ void sums(const float *x, float *y, int n)
{
    __shared__ float s[128];
    float total = 0;
    for (int i = threadIdx.x + blockIdx.x * 128; i < n; i += gridDim.x * 128)
        total += x[i];
    s[threadIdx.x] = total;
    __syncthreads();
    for (int half = 64; half; half /= 2) {
        if (threadIdx.x < half)
            s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (!threadIdx.x)
        y[blockIdx.x] = s[0];
}

extern "C" __global__ void peek(float *y)
{
    __shared__ volatile float s[128];
    y[threadIdx.x] = s[threadIdx.x];
    s[threadIdx.x] = 1;
}

extern "C" __global__ void store(unsigned long long address)
{
    *(int *)address = 7;
}

extern "C" __global__ void spin(volatile int *x)
{
    while (!*x)
        ;
}
"""
ONE, THREE = device("emulator", threads=1), device("emulator", threads=3)


def kernel(name: str) -> tw.Kernel:
    return tw.Kernel(SOURCE, name)


def check_sums(launches: int) -> None:
    random, sums = np.random.default_rng(), kernel("sums")
    for i in range(launches):
        n, grid = int(random.integers(1, 3000)), int(random.integers(1, 9))
        x, y = random.integers(0, 8, n).astype(np.float32), np.full(grid, np.nan, np.float32)
        sums(grid, 128, [x, y, n], device=(ONE, THREE)[i % 2])
        assert y.sum() == x.sum()


def test_several_threads_launch_at_once() -> None:
    wrong: list[BaseException] = []

    def one() -> None:
        try:
            check_sums(30)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_worker_threads_are_kept_and_used_again() -> None:
    check_sums(4)
    before = {thread.ident for thread in threading.enumerate()}
    check_sums(20)
    assert {thread.ident for thread in threading.enumerate()} == before


def test_masks_of_lanes() -> None:
    relations = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
    stores = "".join(
        f"mov.u32 %r1, %lanemask_{name}; st.global.u32 [%x+{128 * i}], %r1;"
        for i, name in enumerate(relations)
    )
    text = f""".version 8.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 x) {{ .reg .b64 %x, %i;
.reg .b32 %r<2>; ld.param.u64 %x, [x]; mov.u32 %r0, %tid.x; mul.wide.u32 %i, %r0, 4; add.u64 %x, %x, %i; {stores} ret; }}"""
    found, lanes = np.zeros((5, 32), np.uint32), np.arange(32)
    tw.Kernel.from_ptx(text, "k")(1, 32, [found], device=device("emulator"))
    for masks, relation in zip(found, relations.values(), strict=True):
        assert np.array_equal(masks[:, None] >> lanes & 1, relation(lanes, lanes[:, None]))


def test_shared_memory_is_poisoned_in_each_launch() -> None:
    peek = kernel("peek")
    for _ in range(3):
        y = np.zeros(128, np.float32)
        peek(1, 128, [y], device=ONE)
        assert np.isnan(y).all()


def test_memory_is_reachable_while_its_array_lives() -> None:
    store = kernel("store")
    others = [ONE.array(np.zeros(3)) for _ in range(20)]
    for _ in range(3):
        array = ONE.array(np.zeros(1, np.int32))
        address = array.ptr
        store(1, 1, [address], device=ONE)
        assert array.numpy()[0] == 7
        del array
        with pytest.raises(KernelFault, match="out-of-bounds write"):
            store(1, 1, [address], device=ONE)
        others.pop()


def test_after_a_launch_that_was_cut_short_all_is_as_before() -> None:
    flag, spin = np.zeros(1, np.int32), kernel("spin")

    def cut_short(where: tw.devices.Device) -> float:
        def launch() -> None:
            with pytest.raises(LaunchTimeout, match=r"0\.2 s"):
                spin(5, 64, [flag], device=where, timeout=0.2)

        return seconds(launch)

    for where in (ONE, THREE):
        assert least_seconds(partial(cut_short, where), 1.2) < 1.2
        check_sums(4)


def test_what_nobody_expected_is_told_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("for a test")

    monkeypatch.setattr(run, "_RESIDENT_POOL", run._ResidentPool())
    monkeypatch.setattr(run, "Resident", fail)
    with pytest.raises(DeviceError, match="ZeroDivisionError: for a test") as caught:
        check_sums(2)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    monkeypatch.undo()
    check_sums(2)


@pytest.mark.parametrize("there_are", [0, 1])
def test_when_the_system_has_no_more_threads(monkeypatch: pytest.MonkeyPatch, there_are: int) -> None:
    start, left = workers.start, [there_are]

    def scarce(job: workers.Job, ended: workers.Job) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(job, ended)

    monkeypatch.setattr(workers, "start", scarce)
    x, y = np.ones(999, np.float32), np.zeros(8, np.float32)
    if there_are:
        kernel("sums")(8, 128, [x, y, 999], device=THREE)
        assert y.sum() == 999
    else:
        with pytest.raises(DeviceError, match="no thread left"):
            kernel("sums")(8, 128, [x, y, 999], device=THREE)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")  # JAX's, once it was used
def test_a_fork_has_workers_of_its_own() -> None:
    check_sums(2)
    child = os.fork()
    if not child:
        code = 1
        try:
            check_sums(4)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


INTERRUPTED = f"""
import numpy as np, signal, tilewise as tw
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
spin = tw.Kernel({SOURCE!r}, "spin")
spin(1, 32, [np.ones(1, np.int32)], device="emulator")
print("ready", flush=True)
spin(4, 32, [np.zeros(1, np.int32)], device="emulator")
"""


def seconds_to_interrupt() -> float:
    """From ctrl-c in the middle of a launch to the end of its process."""
    command, pipe = [sys.executable, "-c", INTERRUPTED], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        assert process.poll() is None
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert said.rstrip().endswith("KeyboardInterrupt")
    return time.monotonic() - started


def test_ctrl_c_ends_a_launch() -> None:
    assert least_seconds(seconds_to_interrupt, 3) < 3  # the launch within a second, then Python's own end


# Address space in which a small piece of memory and a larger one come to lie more than 4 gigabytes apart.
FAR_APART = """
import ctypes
import numpy as np
import tilewise as tw

c, wall, page = ctypes.CDLL(None), 5 << 30, 1 << 16
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_long]
c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
a = np.random.default_rng().standard_normal((70, 70)).astype("float16")
for partition in ("128x128x32", "64x64x32"):
    start = c.mmap(None, wall, 0, 0x4022, -1, 0)  # nothing may be done there, and it takes no memory
    for i in range(64):
        c.munmap(start + wall - (2 * i + 2) * page, page // 4)
    rung = tw.ladder["10_turing_tensor_core"]
    assert tw.reference.compare(rung(a, a, partition=partition, device="emulator"), a, a)
print("right")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="maps memory as Linux does")
def test_code_does_not_mind_where_memory_is_free() -> None:
    """Machine code and its constants belong together, however scattered the free addresses are."""
    done = subprocess.run([sys.executable, "-c", FAR_APART], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


MOVES_REGISTERS = """
extern "C" __global__ void __launch_bounds__(384, RESIDENT) moves(float *x)
{
    if (threadIdx.x < 256)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    x[threadIdx.x] = 1;
}
"""


def test_a_launch_prints_so_much_and_no_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = tw.Kernel('extern "C" __global__ void k() { printf("lane %d\\n", threadIdx.x); }', "k", "sm_80")
    lines = [f"lane {lane}\n" for lane in range(4)]
    left_out = "\n(what the kernel printed beyond 21 bytes is left out)\n"
    monkeypatch.setattr(host_calls, "_MOST_TEXT", 21)
    for lanes in (2, 3, 4):
        kernel(1, lanes, [], device=ONE)
        assert capsys.readouterr().out == "".join(lines[: min(lanes, 3)]) + left_out * (lanes > 3)


def test_a_long_launch_shows_in_a_terminal_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_launches, "_BAR_AFTER", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with pytest.raises(LaunchTimeout):
        kernel("spin")(1, 1, [np.zeros(1, np.int32)], device=ONE, timeout=0.3)
    assert terminal.getvalue() == f"\rspin: [{' ' * 30}] 0 of 1 blocks\n"


def test_a_bar_is_drawn_after_two_seconds_and_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = SimpleNamespace(now=0.0), list[str]()
    terminal = Terminal()
    monkeypatch.setattr(terminal, "flush", lambda: seen.append(terminal.getvalue()))
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(host_launches, "time", SimpleNamespace(monotonic=lambda: clock.now))
    first, second, last = (
        f"\rk: [{'█' * full}{' ' * (30 - full)}] {done} of 4 blocks"
        for full, done in ((7, 1), (15, 2), (30, 4))
    )
    for earlier, drawn in ((0.0, f"{first}{second}{last}\n"), (1.0, "")):
        terminal.truncate(terminal.seek(0))
        clock.now = 0.0
        with host_launches._progress_bar("k") as show:
            for now, done in ((1.9, 0), (2.0, 1), (2.5, 2), (2.7, 2), (2.9, 4)):
                clock.now = now - earlier
                assert show
                show(done, 4)
        assert terminal.getvalue() == drawn
    assert seen == [first, first + second, first + second + last]


def test_registers_that_a_block_can_never_have_are_refused() -> None:
    """One of two blocks on an SM begins with half of the registers: a GPU would wait for the others for ever."""
    x = np.zeros(384, np.float32)
    alone, shared = (tw.Kernel(MOVES_REGISTERS, "moves", "sm_90a", {"RESIDENT": n}) for n in (1, 2))
    alone(1, 384, [x], device="emulator")
    assert (x == 1).all()
    with pytest.raises(LaunchError, match="must leave a warpgroup the 232 registers a thread"):
        shared(1, 384, [x], device="emulator")


@given(
    warpgroups=st.integers(1, 8),
    registers=st.integers(1, 255),
    taken=st.integers(3, 29).map(lambda eights: 8 * eights),
    left=st.one_of(st.none(), st.integers(3, 29).map(lambda eights: 8 * eights)),
)
@example(warpgroups=3, registers=168, taken=232, left=136)
@example(warpgroups=3, registers=168, taken=240, left=136)
@example(warpgroups=1, registers=161, taken=168, left=None)
def test_a_warpgroup_may_take_all_registers_that_the_others_leave(
    warpgroups: int, registers: int, taken: int, left: int | None
) -> None:
    """To the last one. A GPU gives out 8 for each thread at a time."""
    begun = 8 * -(-registers // 8)
    others = [begun if left is None else min(begun, left)] * (warpgroups - 1)
    launch = Launch((1, 1, 1), (128 * warpgroups, 1, 1))
    if sum(others) + taken <= warpgroups * begun:
        check_registers(launch, registers, taken, left)
    else:
        with pytest.raises(LaunchError, match=f"must leave a warpgroup the {taken} registers a thread"):
            check_registers(launch, registers, taken, left)


def test_so_many_compiled_kernels_are_kept_and_the_one_used_longest_ago_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[Any] = []

    def build(_ptx: str, entry: str, _block: Any, _cpu: Any, _store: Any, mode: str, _sums: str) -> Any:
        built.append((entry, mode))
        return entry, mode

    monkeypatch.setattr(host_launches, "_BUILT", OrderedDict())
    monkeypatch.setattr(host_launches, "_BUILDS", 2)
    monkeypatch.setattr(emulator, "build_kernel", build)
    binary: Any = SimpleNamespace(key="k", ptx="")
    launcher = host_launches.HostLauncher()
    for entry in "abacab":
        assert launcher.build(binary, entry, (1, 1, 1)) == (entry, "plain")
    assert built == [(entry, "plain") for entry in "abcb"]
    assert launcher.build(binary, "b", (1, 1, 1), "counted") == ("b", "counted")
    assert launcher.build(binary, "b", (1, 1, 2)) == ("b", "plain") and len(built) == 6
