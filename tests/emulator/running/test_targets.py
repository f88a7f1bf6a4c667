"""Other CPUs than this one: the same PTX compiled for fewer features gives the same bits.

What LLVM has no instruction for, it splits into pieces or turns into calls, and both must be right: masked
gathers and scatters without AVX-512, halves without F16C, fused multiply-adds without FMA, rounding and
population counts without SSE4. For ARM the machine code is looked at, not run.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tests.nothing.test_rungs_simt import fused, sums_in_order
from tests.rungs import Placed, place_steps
from tilewise.devices.arguments import pack
from tilewise.emulator import Build, Range, Runner, build, native
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.lowering.lower import lower
from tilewise.emulator.native import CpuTarget
from tilewise.emulator.ptx.parse import parse
from tilewise.kernels import RUNGS
from tilewise.launch import Launch
from tilewise.reference import poisoned

Array = npt.NDArray[Any]

RANDOM = np.random.default_rng()
HOST = native.host_cpu()
# The features that a level adds, as LLVM calls them, and levels that this CPU can run.
LEVELS = {"x86-64": "sse2", "x86-64-v2": "sse4.2", "x86-64-v3": "avx2", "generic": "neon"}
BELOW = [CpuTarget(cpu, "") for cpu, feature in LEVELS.items() if f"+{feature}" in HOST.features.split(",")]
IDS = [target.cpu for target in BELOW]

MIXTURE = """
extern "C" __global__ void mixture(const float *x, const unsigned *index, const unsigned short *halves,
                                   float *sums, unsigned short *narrow, unsigned *bits, double *doubles,
                                   long long *whole)
{
    __shared__ unsigned char bytes[128];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, at = index[i];
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(halves[i]));
    const float gathered = x[at];
    const float sum = fmaf(gathered, wide, x[i]);
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(sum));
    sums[at] = sum;
    narrow[at] = half;
    bits[i] = __popc(at * 2654435769u) | __clz(at) << 8 | __ffs(at) << 16 | (__brev(at) & 0xFF000000u);

    bytes[threadIdx.x ^ 5] = at;
    __syncthreads();
    const float other = __shfl_xor_sync(~0u, sum, 3);
    double d = fma(double(gathered), double(wide), sqrt(fabs(double(other)))) / (bytes[threadIdx.x] + 3);
    if (i % 3 == 1)
        d = floor(d) + ceil(d * 0.25) + rint(d * 4) + trunc(d * 8);
    doubles[i] = d;
    long long w = __double2ll_rz(d * 1e15) + llrintf(sum * 1000) + __float2uint_rz(sum);
    w = w * 0x9E3779B97F4A7C15ll + __mul64hi(w, d * 1e17) + __popcll(w) + (unsigned long long)w % (at + 7);
    if (sum > 0)
        whole[at] = w / (long long)(at + 1);
}
"""
THREADS, BLOCKS = 96, 3


def run(made: Build, grid: tuple[int, int, int], packed: list[bytes], arrays: list[Array]) -> None:
    ranges = [Range(array.ctypes.data, array.nbytes, f"array {i}") for i, array in enumerate(arrays)]
    Runner(made, Launch(grid, made.block), packed, ranges, [])()


@functools.cache
def mixture() -> tw.Kernel:
    return tw.Kernel(MIXTURE, "mixture", "sm_75")


def mixed(target: CpuTarget, inputs: list[Array]) -> list[Array]:
    count = inputs[0].size
    kinds: list[Any] = ["f4", "u2", "u4", "f8", "i8"]
    results = [np.zeros(count, kind) for kind in kinds]
    made = build.build_kernel(mixture().ptx, "mixture", (THREADS, 1, 1), target, None)
    arrays = [*inputs, *results]
    run(made, (BLOCKS, 1, 1), [array.ctypes.data.to_bytes(8, "little") for array in arrays], arrays)
    return results


def mixture_inputs() -> list[Array]:
    count = THREADS * BLOCKS
    halves = (RANDOM.standard_normal(count) * 8).astype(np.float16)
    halves[:5] = [65504, 2.0**-24, -(2.0**-15), 0, -0.0]
    x = RANDOM.standard_normal(count).astype(np.float32)
    return [x, RANDOM.permutation(count).astype(np.uint32), halves.view(np.uint16)]


def test_this_cpu_does_the_mixture_right() -> None:
    x, index, halves = inputs = mixture_inputs()
    sums, narrow, bits, _, whole = mixed(HOST, inputs)
    wanted = fused(x[index], halves.view(np.float16).astype(np.float32), x)
    np.testing.assert_array_equal(sums[index], wanted)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(narrow[index], wanted.astype(np.float16).view(np.uint16))
    for at, found in zip(index.tolist(), bits.tolist(), strict=True):
        assert found & 0xFF == (at * 2654435769 % 2**32).bit_count()
        assert (found >> 8 & 0xFF, found >> 16 & 0xFF) == (32 - at.bit_length(), (at & -at).bit_length())
        assert found >> 24 == int(f"{at & 0xFF:08b}"[::-1], 2)
    np.testing.assert_array_equal(whole[index][wanted <= 0], 0)


@pytest.mark.few(2)
@pytest.mark.parametrize("target", BELOW, ids=IDS)
def test_the_mixture_for_fewer_features(target: CpuTarget) -> None:
    inputs = mixture_inputs()
    for got, wanted in zip(mixed(target, inputs), mixed(HOST, inputs), strict=True):
        np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["04_tiled", "08_register_tiled"])
@pytest.mark.parametrize("target", BELOW[-1:], ids=IDS[-1:])
def test_rungs_for_fewer_features(name: str, target: CpuTarget) -> None:
    """On operands that no wide access fits, too."""
    spec = RUNGS[name]
    kernel = spec.kernel("sm_75")
    made: Build | None = None
    for m, n, k, gap in ((9, 70, 33, 3), (130, 40, 24, 0)):
        a, b = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((m, k + gap), (k, n + gap)))
        c = poisoned((m, n + gap), np.float32)
        left, right, result = (
            Placed(values.ctypes.data, rows, columns, columns + gap, "float32")
            for values, rows, columns in ((a, m, k), (b, k, n), (c, m, n))
        )
        (step,) = place_steps(spec, left, right, result, 0, spec.complete({}))
        made = made or build.build_kernel(kernel.ptx, step.entry, step.launch.block, target, None)
        device: Any = None  # for there are no pointers among the arguments
        packed = pack(step.entry, kernel.parameters, step.launch.args, device).parts
        run(made, step.launch.grid, packed, [a, b, c])
        np.testing.assert_array_equal(c[:, :n], sums_in_order(a[:, :k], b[:, :n]))
        assert np.isnan(c[:, n:]).all()


# -- ARM ----------------------------------------------------------------------------------------------
ARM = {"linux": ("aarch64-unknown-linux-gnu", "neoverse-n1"), "macos": ("arm64-apple-macosx13", "apple-m1")}
# What the run-time support, the kernel's own code or every C library has.
KNOWN = re.compile(r"_?(tw_\w+|(gather|scatter)\.[\w.]+|mem(cpy|set|move)|fmod|ldexp)")


def for_arm(kernel: tw.Kernel, entry: str, block: tuple[int, int, int], system: str) -> tuple[bytes, str]:
    triple, cpu = ARM[system]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = lower(Program(parse(kernel.ptx), entry, block), False, "kernel").text
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=1, reloc="pic")
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module)), str(machine.emit_assembly(module))


def opcodes(assembly: str) -> Counter[str]:
    lines = [line.split() for line in assembly.splitlines() if re.match(r"\t\w", line)]
    return Counter(
        line[0].split(".")[0].removesuffix("2") for line in lines
    )  # fcvtl2 is fcvtl on the upper half


@pytest.mark.parametrize("system", ARM)
def test_arm_multiplies_whole_vectors(system: str) -> None:
    data, assembly = for_arm(RUNGS["04_tiled"].kernel("sm_75"), "tiled", (32, 32, 1), system)
    assert data[:4] == (b"\x7fELF" if system == "linux" else b"\xcf\xfa\xed\xfe")
    found = opcodes(assembly)
    assert found["fmla"] == 32 * 8  # a warp's fused multiply-add is eight of four lanes
    assert not found["fmadd"]
    assert all(KNOWN.fullmatch(name) for name in re.findall(r"\tbl\t(\S+)", assembly))


def test_arm_has_instructions_for_the_mixture() -> None:
    _, assembly = for_arm(mixture(), "mixture", (THREADS, 1, 1), "linux")
    found = opcodes(assembly)
    for opcode, least in {"fmla": 24, "fcvtl": 8, "fcvtn": 8, "cnt": 8, "clz": 8, "fsqrt": 16}.items():
        assert found[opcode] >= least, opcode
    assert all(KNOWN.fullmatch(name) for name in re.findall(r"\tbl\t(\S+)", assembly))
