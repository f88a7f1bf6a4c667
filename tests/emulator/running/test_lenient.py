"""Faults that GPUs usually let pass: the end of a launch, or findings of one that is lenient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tests.harness.cases import HEAD
from tilewise.cli.main import main
from tilewise.devices.seam import Device
from tilewise.errors import ArgumentError, KernelFault

Array = npt.NDArray[np.int32]
ORDERS: tuple[str | int, ...] = ("eager", "late", 3)
LENIENT = [tw.device("emulator", order=order, lenient=True) for order in ORDERS]


def kernel(name: str, body: str, arch: str = "sm_80") -> tw.Kernel:
    text = f'{HEAD}extern "C" __global__ void {name}(int *x, int *y, int n) {{\n{body}\n}}'
    return tw.Kernel(text, name, arch)


def given() -> Array:
    return np.arange(1, 33, dtype=np.int32)


GONE = """
    __shared__ __align__(16) int s[32]; __shared__ u64 m;
    s[T] = x[T] + B;
    if (T == 0) init(&m, 32);
    cluster();
    volatile int *left = x + 32;
    if (B == 0) { if (T == 0) *left = 1; return; }
    while (!*left) {}
    u32 there = remote(at(n == 2 ? (void *)(s + T) : (void *)&m), 0);
    if (n == 1) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(there) : "memory");
    int value = 5;
    if (n == 2) asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(there) : "memory");
    y[T] = value;
"""


@pytest.mark.parametrize(("how", "result"), [(1, np.full(32, 5)), (2, given())])
def test_a_block_that_has_exited_is_found_as_it_was(how: int, result: Array) -> None:
    remote, fresh = kernel("gone", GONE, "sm_90a"), np.append(given(), 0).astype(np.int32)
    args: list[Any] = [fresh.copy(), np.zeros(32, np.int32), how]
    with pytest.raises(KernelFault, match="has exited"):
        remote(2, 32, args, cluster=2, device="emulator")
    for order, device in zip(ORDERS, LENIENT, strict=True):
        args[0][:] = fresh
        (ended,) = [
            item for item in remote.check(2, 32, args, cluster=2, order=order) if item.tool == "memcheck"
        ]
        assert (ended.kind, ended.count) == ("block-gone", 1)
        args[0][:], args[1][:] = fresh, 0
        found = remote.check(2, 32, args, cluster=2, order=order, lenient=True)
        (gone,) = [item for item in found if item.tool == "memcheck"]
        assert (gone.kind, gone.count, gone.message) == ("block-gone", 32, ended.message)
        assert gone.now and ended.now and gone.now.location == ended.now.location
        assert np.array_equal(args[1], result)
        args[0][:], args[1][:] = fresh, 0
        remote(2, 32, args, cluster=2, device=device)
        assert np.array_equal(args[1], result)


READS = {
    "shared": "__shared__ int s[32]; s[T] = x[T]; __syncthreads(); y[T] = s[T + n];",
    "generic": "__shared__ int s[32]; s[T] = x[T]; __syncthreads(); int *p = n < 0 ? x : s; y[T] = p[T + n];",
    "array": "y[T] = x[T + n];",
    "copied": "__shared__ int s[32]; cp4(s + T, x + T + n); commit(); landed<0>(); y[T] = s[T];",
}
ROOM = {"shared": 228 << 10, "generic": 228 << 10, "array": 512, "copied": 512}  # bytes that reads may reach


@pytest.mark.parametrize("name", READS)
def test_reads_a_little_too_far_find_zeros(name: str) -> None:
    reads, last = kernel(name, READS[name]), ROOM[name] // 4 - 32
    for order, device in zip(ORDERS, LENIENT, strict=True):
        for n in (1, 31, last, last + 1):
            args: list[Any] = [given(), np.zeros(32, np.int32), n]
            with pytest.raises(KernelFault, match="out-of-bounds read"):
                reads(1, 32, args, device="emulator")
            found = reads.check(1, 32, args, order=order, lenient=True)
            wide = [item for item in found if item.kind == "out-of-bounds"]
            if n > last:
                assert len(wide) == 2  # the second ends it
                continue
            assert [(item.tool, item.count) for item in wide] == [("memcheck", min(n, 32))]
            behind = [*given()[n:], *[0] * min(n, 32)]
            assert args[1].tolist() == behind
            args[1][:] = 7
            reads(1, 32, args, device=device)
            assert args[1].tolist() == behind


@pytest.mark.parametrize(
    "body",
    [
        "y[T + n] = x[T];",
        "__shared__ int s[32]; s[T + n] = x[T]; y[T] = s[T];",
        "y[T] = x[T - n];",
        "atomicAdd(y + T + n, 1);",
        "y[T] = *(int *)((char *)x + n);",
    ],
)
def test_what_gpus_do_not_let_pass_ends_a_lenient_launch(body: str) -> None:
    args: list[Any] = [given(), np.zeros(32, np.int32), 1]
    wrong = kernel("wrong", body)
    for device in LENIENT:
        with pytest.raises(KernelFault):
            wrong(1, 32, args, device=device)
    (found,) = wrong.check(1, 32, args, lenient=True)
    assert (found.tool, found.count) == ("memcheck", 1)


def test_only_the_emulator_is_lenient() -> None:
    assert isinstance(LENIENT[0], Device) and LENIENT[0] is tw.device("emulator", order="eager", lenient=True)
    assert tw.device("emulator", lenient=False) is tw.device("emulator")
    with pytest.raises(ArgumentError, match="lenient"):
        tw.device("gpu", lenient=True)


def test_the_command_is_lenient_if_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "far.cu"
    path.write_text(
        'extern "C" __global__ void far(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x + 4]; }\n'
    )
    how = ["check", str(path), "--grid", "1", "--block", "32", "--arg", "f32[32]", "--arg", "new:f32[32]"]
    for more, times in (([], ""), (["--lenient"], " (4 times)")):
        assert main([*how, *more]) == 1
        first = capsys.readouterr().out.splitlines()[0]
        assert first.endswith(f"the float32 array of shape (32,) (128 bytes){times}")
