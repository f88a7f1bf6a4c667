"""tw.Kernel: its verbs and what it says of itself, by one small kernel."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.devices import arguments
from tilewise.errors import ArgumentError, DeviceUnavailable, LaunchError, LaunchTimeout, ToolError

SCALE = """
#include "amount.h"
extern "C" __global__ void __launch_bounds__(64) scale(float *x, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) x[threadIdx.x] = s[threadIdx.x] * BY + PLUS;
}
"""
COPY = 'extern "C" __global__ void copy(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }'
SPIN = 'extern "C" __global__ void spin(int *x) { while (atomicAdd(x, 0) == 0); }'


@cache
def scale(arch: str | None = "sm_80") -> tw.Kernel:
    return tw.Kernel(
        SCALE, "scale", arch, {"BY": 2}, headers={"amount.h": "#define PLUS 1"}, filename="scale.cu"
    )


@cache
def foreign() -> tw.Kernel:
    return tw.Kernel.from_ptx(scale().ptx, "scale")


def ones(count: int = 32) -> Any:
    return np.ones(count, np.float32)


# -- a launch made ready --------------------------------------------------------------------------------
@pytest.mark.parametrize("timeout", [None, 20.0])
def test_a_bound_call_reads_host_arrays_anew_and_writes_them(timeout: float | None) -> None:
    x = ones()
    call = scale().bind(1, 32, [x, 16], device="emulator")
    assert (x == 1).all()  # binding runs nothing
    call(timeout)
    assert (x[:16] == 3).all() and (x[16:] == 1).all()
    x[:] = 5
    call(timeout)
    assert (x[:16] == 11).all() and (x[16:] == 5).all()


@pytest.mark.parametrize("timeout", [None, 20.0])
@pytest.mark.parametrize("of_ptx", [False, True])
def test_a_bound_call_reads_arrays_anew_that_cannot_be_written(timeout: float | None, of_ptx: bool) -> None:
    """The memory is its owner's to change; no result is copied back to it."""
    copy = tw.Kernel(COPY, "copy", "sm_80")
    kernel = tw.Kernel.from_ptx(copy.ptx, "copy") if of_ptx else copy
    memory, y = ones(), tw.device("emulator").array(np.zeros(32, np.float32))
    x = memory[:]
    x.flags.writeable = False
    call = kernel.bind(1, 32, [x, y], device="emulator")
    for wanted in (5, 7):
        memory[:] = wanted
        call(timeout)
        assert (y.numpy() == wanted).all()


@pytest.mark.parametrize("timeout", [None, 20.0])
def test_a_bound_call_works_on_device_arrays_where_they_lie(timeout: float | None) -> None:
    x = tw.device("emulator").array(ones())
    call = scale().bind(1, 32, [x, 32], device="emulator")
    for wanted in (3, 7, 15):
        call(timeout)
        assert (x.numpy() == wanted).all()


def test_a_bound_call_says_where_a_result_is_lost() -> None:
    """Foreign PTX does not say whether it writes; whether a result is lost shows after the launch."""
    x = ones()
    x.flags.writeable = False
    for timeout in (None, 20.0):
        with pytest.raises(ArgumentError, match="must be writable: the kernel wrote to it"):
            foreign().bind(1, 32, [x, 32], device="emulator")(timeout)
    foreign().bind(1, 32, [x, 0], device="emulator")()  # nothing is written, nothing is lost


def test_launches_that_do_not_end() -> None:
    spin = tw.Kernel(SPIN, "spin", "sm_80")
    x = np.zeros(1, np.int32)
    verbs: tuple[Any, ...] = (spin, spin.profile, spin.check)
    for launch in verbs[:2]:
        with pytest.raises(LaunchTimeout, match=r"0\.1 s"):
            launch(1, 1, [x], timeout=0.1)
    assert [finding.kind for finding in spin.check(1, 1, [x], timeout=0.1)] == ["timeout"]
    for array in (x, tw.device("emulator").array(x)):
        with pytest.raises(LaunchTimeout, match=r"0\.1 s"):
            spin.bind(1, 1, [array], device="emulator")(0.1)
    for launch in verbs:
        for wrong in (0, -1, "1"):
            with pytest.raises(ArgumentError, match="timeout must be a number of seconds above 0, or None"):
                launch(1, 1, [x], timeout=wrong)


def test_a_profile_and_a_check_write_their_results() -> None:
    x = ones()
    profile = scale().profile(1, 32, [x, 32], gpu="a100")
    assert (x == 3).all() and profile["launch__block_size"] == 32
    assert scale().check(1, 32, [x, 32]) == [] and (x == 7).all()
    with pytest.raises(ArgumentError, match="sample must be at least 1"):
        scale().profile(1, 32, [x, 32], sample=0)
    assert profile["launch__grid_size"] == scale().profile(3, 32, [x, 0], sample=1)["launch__grid_size"] / 3


OPEN = """
.version 8.0 .target sm_80 .address_size 64 .visible .entry open(.param .u64 out) {
.reg .b32 %r; .reg .b64 %at; ld.param.u64 %at, [out]; mov.u32 %r, %dynamic_smem_size; st.global.u32 [%at], %r; ret; }
"""


@pytest.mark.few(3)
@pytest.mark.parametrize("verb", ["call", "bind", "profile", "check"])
@pytest.mark.parametrize("shared", [None, 0, 512])
def test_every_verb_takes_dynamic_shared_memory_and_none_by_default(verb: str, shared: int | None) -> None:
    kernel, x = tw.Kernel.from_ptx(OPEN, "open"), np.full(1, 7, np.uint32)
    how: dict[str, Any] = {} if shared is None else {"shared": shared}
    if verb == "call":
        kernel(1, 1, [x], **how, device="emulator")
    elif verb == "bind":
        kernel.bind(1, 1, [x], **how, device="emulator")()
    else:
        getattr(kernel, verb)(1, 1, [x], **how)
    assert x[0] == (shared or 0)


# -- what is refused ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ((1, 65), "64"),  # more than its launch bounds
        ((0, 32), r"grid\[x\] must be at least 1"),
        ((1, 32, (), -1), "shared must be at least 0"),
        ((1, 32, (), 1 << 20), "shared"),
        ((1, 32, (), 227 * 1024), "shared"),  # with its own 256 bytes too much
    ],
)
def test_what_no_device_runs_is_refused_before_one_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, launch: tuple[Any, ...], said: str
) -> None:
    kernel = scale("sm_90a")
    with pytest.raises((ArgumentError, LaunchError), match=said) as there:
        kernel(*launch)

    def none(_name: object = None) -> Any:
        raise DeviceUnavailable("there is no device")

    monkeypatch.setattr("tilewise.kernel.resolve", none)
    with pytest.raises(type(there.value), match=said):
        kernel(*launch)
    with pytest.raises(DeviceUnavailable):
        kernel(1, 32, [ones(), 1])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"source": " "}, "source must be a text that is not empty, not an empty text"),
        ({"source": 5}, "source must be a text that is not empty, not int"),
        ({"source": "a\0b"}, "source must not hold a NUL character"),
        ({"name": ""}, "name must be a text that is not empty"),
        ({"defines": ["BY"]}, "defines must map names to values"),
        ({"headers": "x"}, "headers must map names to values"),
        ({"headers": ""}, "headers must map names to values"),
        ({"options": "-G"}, "options must be a list of texts"),
        ({"include_dirs": "here"}, "include_dirs must be a list of texts"),
    ],
)
def test_wrong_ways_to_make_one(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        tw.Kernel(**({"source": SPIN, "name": "spin", "arch": "sm_80"} | how))
    if how.keys() & {"source", "name"}:
        with pytest.raises(ArgumentError, match=said.replace("source", "text")):
            tw.Kernel.from_ptx(how.get("source", scale().ptx), how.get("name", "scale"))


# -- what it says of itself -------------------------------------------------------------------------------
def test_a_kernel_of_a_source() -> None:
    kernel = scale()
    assert (kernel.name, kernel.arch, kernel.source) == ("scale", "sm_80", SCALE)
    assert repr(kernel) == "<tilewise.Kernel scale for sm_80>"
    assert ".target sm_80" in kernel.ptx and ".entry scale" in kernel.ptx
    assert kernel.cubin[:4] == b"\x7fELF" and "BAR.SYNC" in kernel.sass
    assert [item.size for item in kernel.parameters] == [8, 4]
    assert kernel.resources.shared_bytes == 256 and kernel.resources.spills == 0
    assert kernel.warnings == ()


def test_it_is_built_once_for_each_arch() -> None:
    kernel = tw.Kernel(SPIN, "spin", "sm_80")
    own = kernel.build()
    assert kernel.build("sm_80") is own is kernel.build()
    other = kernel.build("sm_90a")
    assert other is not own and ".target sm_90a" in other.ptx and kernel.build("sm_90a") is other
    assert kernel.arch == "sm_80" and kernel.build() is own


def test_an_arch_that_was_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one a kernel is the device's, or the GPU's that a profile is for."""
    emulator = tw.device("emulator")
    x, given, any_ = emulator.array(ones()), scale("sm_75"), scale(None)
    assert any_.arch == emulator.arch
    assert ".target sm_75" in given.profile(1, 32, [x, 1], gpu="a100").binary.ptx
    assert ".target sm_80" in any_.profile(1, 32, [x, 1], gpu="a100").binary.ptx
    assert any_.occupancy(64, gpu="a100").shared == 256

    def none(_name: object = None) -> Any:
        raise DeviceUnavailable("there is no device")

    monkeypatch.setattr("tilewise.kernel.resolve", none)
    assert tw.Kernel(SPIN, "spin").arch == "sm_90a"


def test_warnings_come_with_their_line() -> None:
    kernel = tw.Kernel('extern "C" __global__ void k() {\n    int unused;\n}', "k", "sm_80", filename="w.cu")
    (warning,) = kernel.warnings
    assert "w.cu" in warning and "unused" in warning and "^" in warning


def test_foreign_ptx_is_not_assembled_here() -> None:
    kernel, x = foreign(), ones()
    assert (kernel.arch, kernel.name) == ("sm_80", "scale") and kernel.build("sm_90a") is kernel.build()
    kernel(1, 32, [x, 32], device="emulator")
    assert (x == 3).all()
    for wanted, said in (
        (lambda: kernel.cubin, "which only a GPU's driver assembles: no machine code here"),
        (lambda: kernel.sass, "no machine code here"),
        (lambda: kernel.resources, "its resources are not known"),
        (lambda: kernel.occupancy(32), "its registers are not known"),
    ):
        with pytest.raises(ToolError, match=f"scale is foreign PTX, .*{said}"):
            wanted()


def test_headers_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "amount.h").write_text("#define PLUS 4\n")
    kernel = tw.Kernel(SCALE, "scale", "sm_80", {"BY": 3}, include_dirs=[tmp_path], options=["-DIGNORED"])
    x = ones()
    kernel(1, 32, [x, 32], device="emulator")
    assert (x == 7).all()


def test_a_build_is_of_one_shape_of_block() -> None:
    """The same PTX for other blocks is built anew, and not found where the first build is kept."""
    source = """extern "C" __global__ void place(unsigned *x)
    { unsigned i = threadIdx.x + blockDim.x * threadIdx.y; x[i] = 256 * threadIdx.y + threadIdx.x; }"""
    for block in ((64,), (32, 2), (2, 32), (96,)):
        count = int(np.prod(block))
        x = np.zeros(count, np.uint32)
        tw.Kernel(source, "place", "sm_80")(1, block, [x], device=tw.device("emulator"))
        i = np.arange(count)
        assert np.array_equal(x, 256 * (i // block[0]) + i % block[0])


def test_a_launch_made_ready_copies_no_host_array_to_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an array holds is read anew at each call, which a copy would hide."""
    asked: list[bool] = []
    lay_out = arguments.pack

    def pack(*given: Any, copy: bool = True) -> Any:
        asked.append(copy)
        return lay_out(*given, copy=copy)

    monkeypatch.setattr("tilewise.kernel.pack", pack)
    scale()(1, 32, [ones(), 16], device="emulator")
    scale().bind(1, 32, [ones(), 16], device="emulator")
    assert asked == [True, False]
