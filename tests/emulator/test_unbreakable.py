"""Whatever the PTX is, it runs or is refused: no crash, no hang, no byte outside the launch's own arrays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tilewise as tw
from tests.fuzz.mutate import run

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


@pytest.mark.parametrize("seed", [1_000, 2_000])
def test_damaged_programs_run_or_are_refused(seed: int) -> None:
    report = run(seed, 750)
    assert not report.wrong, report.wrong
    assert report.count == 750
    assert len(report.outcomes) > 1  # not one and the same answer to everything


def refused(body: str, seconds: float = 5.0) -> str:
    """The error of a program that must not run; it must come soon."""
    started = time.monotonic()
    with pytest.raises(tw.TilewiseError) as caught:
        tw.Kernel.from_ptx(HEAD + body, "k")(1, 32, [], device="emulator", timeout=1.0)
    assert time.monotonic() - started < seconds
    return str(caught.value)


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
        ".visible .entry k() " + "{" * 5_000,
    ],
)
def test_what_no_machine_could_run_is_refused_at_once(body: str) -> None:
    assert "\n  File" not in refused(body)


def test_a_loop_without_end_obeys_the_timeout() -> None:
    body = ".visible .entry k() { .reg .pred p; .reg .u32 r; again: add.u32 r, r, 1; setp.ne.u32 p, r, 0; bra again; }"
    assert "1 s" in refused(body)


def test_a_grid_without_end_obeys_the_timeout() -> None:
    kernel = tw.Kernel.from_ptx(HEAD + ".visible .entry k() { ret; }", "k")
    started = time.monotonic()
    with pytest.raises(tw.errors.LaunchTimeout):
        kernel((2**31 - 1, 65_535), 32, [], device="emulator", timeout=0.5)
    assert time.monotonic() - started < 5


def test_ctrl_c_ends_a_launch_within_a_second_and_arrays_live_on() -> None:
    code = """
import numpy as np, sys, tilewise as tw
text = sys.stdin.read()
x = tw.device("emulator").array(np.arange(8.0))
kernel = tw.Kernel.from_ptx(text, "k")
print("ready", flush=True)
try:
    kernel(1, 32, [], device="emulator")
except KeyboardInterrupt:
    print(x.numpy().sum(), flush=True)
"""
    text = HEAD + ".visible .entry k() { again: bra again; }"
    command = [sys.executable, "-c", code]
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
        assert time.monotonic() - asked < 1.0


def test_a_fault_says_who_and_where() -> None:
    kernel = tw.Kernel(
        """
        extern "C" __global__ void late(float *x, int n)
        {
            if (threadIdx.x % 3 == 1)
                for (int i = 0; i < threadIdx.x; ++i)
                    x[n + i] = i;
        }
        """,
        "late",
        arch="sm_80",
    )
    x = np.zeros(10, np.float32)
    with pytest.raises(tw.errors.KernelFault) as caught:
        kernel(2, 32, [x, 9], device="emulator")
    said = str(caught.value)
    assert "write of 4 bytes" in said
    assert "0 bytes past the end of the float32 array of shape (10,)" in said
    assert "kernel late, block (0, 0, 0), thread (4, 0, 0)" in said
    assert "PTX line" in said
    assert "kernel.cu:6" in said


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


def test_an_unknown_instruction_is_named_with_both_its_lines() -> None:
    kernel = tw.Kernel(
        'extern "C" __global__ void k()\n{\n    asm volatile("wgmma.fence.sync.aligned;");\n}', "k", "sm_90a"
    )
    number = next(i for i, line in enumerate(kernel.ptx.splitlines(), 1) if "wgmma" in line)
    with pytest.raises(tw.errors.PtxError) as caught:
        kernel(1, 128, [], device="emulator")
    said = str(caught.value)
    assert said.startswith(f"PTX line {number} (from line 3 of the CUDA source)")
    assert "wgmma.fence.sync.aligned" in said
