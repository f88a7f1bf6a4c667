"""Occupancy: published figures, and the rules told another way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tilewise import gpus
from tilewise.errors import ArgumentError, ToolError
from tilewise.explain.panels import residency
from tilewise.instruments.metrics import _launch
from tilewise.instruments.occupancy import occupancy


def test_a_published_report() -> None:
    """RTX 3070, 196 blocks of 256 threads, 16 registers."""
    found = occupancy("rtx-3070", 256, 16, grid=196)
    assert dict(found.limits) == {"registers": 16, "shared": 8, "warps": 6, "blocks": 16}
    assert found.waves == pytest.approx(0.7101449, abs=5e-8)
    assert found.binding == ("warps",) and found.ratio == 1


def test_a_gpu_that_the_compiler_makes_no_code_for() -> None:
    """A V100's multiprocessor: 64 warps, 32 blocks, 96 KiB in units of 256 bytes, all of it for one block."""
    limits = {"registers": 32, "shared": 5, "warps": 32, "blocks": 32}
    assert dict(occupancy("v100", 64, 32, 19 * 1024).limits) == limits
    assert [occupancy("v100", 32, 32, 3072 + more).blocks for more in (0, 1)] == [32, 29]
    assert occupancy("v100", 256, 32).warps == 64 and occupancy("v100", 256, 33).blocks == 6
    assert [occupancy("titan-v", 1024, 32, kib * 1024).blocks for kib in (48, 49, 96)] == [2, 1, 1]
    assert occupancy("v100", 1024, 32, 96 * 1024 + 1).blocks == 0


@pytest.mark.parametrize(("registers", "divided"), [(40, 1638), (46, 1424)])
def test_what_dividing_registers_gives(registers: int, divided: int) -> None:
    """Turing holds 1,024 threads, whatever is left of its registers."""
    found = occupancy("rtx-2060-super", 1024, registers, 8192)
    assert found.threads_by_division == divided
    assert found.threads_per_sm == 1024 and found.blocks == 1 and found.ratio == 1
    assert found.limits["registers"] == 1 and "warps" in found.binding


def test_what_a_little_less_gives() -> None:
    found = occupancy("a100", 256, 65)  # 72 registers are given: 28 warps
    assert found.blocks == 3 and found.binding == ("registers",)
    assert found.next_registers == 64 and found.with_less(registers=1).blocks == 4
    listed = {fact.name: fact.value for fact in residency._list_facts(found)}
    assert listed["residency.next"] == 64
    shared = occupancy("h200", 128, 32, 48 * 1024)
    assert shared.blocks == 4 and shared.binding == ("shared",)
    assert shared.next_shared == 228 * 1024 // 5 // 128 * 128 - 1024
    assert occupancy("h200", 128, 32, shared.next_shared).blocks == 5
    assert occupancy("h200", 128, 32, shared.next_shared + 1).blocks == 4


def test_no_thread_has_fewer_than_16_registers() -> None:
    for gpu, blocks in (("h200", 16), ("rtx-3070", 16), ("t4", 16)):
        assert occupancy(gpu, 256, 8).limits == occupancy(gpu, 256, 16).limits
        assert occupancy(gpu, 256, 8).limits["registers"] == blocks and occupancy(gpu, 256, 8).registers == 8
    assert occupancy("h200", 256, 17).limits["registers"] == 10


@pytest.mark.parametrize(
    ("threads", "registers", "blocks"), [(1, 32, 32), (256, 16, 32), (256, 34, 32), (1024, 32, 8)]
)
def test_an_h200_without_shared_memory(threads: int, registers: int, blocks: int) -> None:
    """As its profiler has it."""
    found = occupancy("h200", threads, registers)
    assert found.limits["shared"] == blocks and found.shared_config == blocks * 1024


@given(
    st.sampled_from(gpus.names()),
    st.integers(1, 1024),
    st.integers(1, 255),
    st.integers(0, 227 * 1024),
)
def test_blocks_fit_and_one_more_does_not(name: str, threads: int, registers: int, shared: int) -> None:
    """Blocks are placed by hand, warp by warp, each in the part with most room."""
    gpu = gpus.find(name)
    limits = gpu.limits
    found = occupancy(gpu, threads, registers, shared)
    parts = [limits.registers_per_sm // 4] * 4
    room, warps, blocks = limits.shared_per_sm, limits.threads_per_sm // 32, 0
    each = -(-max(registers, 16) // 8) * 256
    needed = -(-(shared + limits.shared_reserved_per_block) // limits.shared_unit) * limits.shared_unit
    own = -(-threads // 32)
    while blocks < limits.blocks_per_sm and needed <= room and own <= warps:
        for _ in range(own):
            most = max(range(4), key=lambda i: parts[i])
            if parts[most] < each:
                break
            parts[most] -= each
        else:
            blocks, room, warps = blocks + 1, room - needed, warps - own
            continue
        break
    if shared > limits.shared_per_block_optin or each * -(-own // 4) * 4 > limits.registers_per_block:
        blocks = 0
    assert found.blocks == blocks
    assert found.shared_config >= blocks * needed


def test_waves_and_the_tail() -> None:
    found = occupancy("h200", 256, 128, 0, grid=132 * 2 * 2 + 33)
    assert found.blocks == 2 and found.waves == 2.125 and found.tail == 0.125
    assert occupancy("h200", 256, 128, 0, grid=132 * 2).tail == 1


def test_barriers_that_bind_are_kept_with_less_of_the_rest() -> None:
    found = occupancy("h200", 32, 32, 0, barriers=16)  # of 64 on a multiprocessor
    assert (found.blocks, found.barriers, found.binding) == (4, 16, ("barriers",))
    assert found.with_less().blocks == found.with_less(registers=16).blocks == 4
    assert found.next_registers is None and found.next_shared is None
    plain = found.to_dict()
    assert (plain["barriers"], plain["limits"]["barriers"], plain["one register less"]) == (16, 4, 4)
    assert plain["next"] == {"registers": None, "shared": None}


@given(
    st.sampled_from(gpus.names()),
    st.integers(1, 16).map(lambda warps: 32 * warps),
    st.integers(1, 128),
    st.integers(0, 48 * 1024),
    st.integers(0, 16),
)
@settings(max_examples=50)
def test_what_one_more_block_needs_is_the_most_that_gives_it(
    name: str, threads: int, registers: int, shared: int, barriers: int
) -> None:
    """By trying: the figure gives more blocks, and one above it does not."""
    found = occupancy(name, threads, registers, shared, barriers=barriers)

    def blocks(registers: int, shared: int) -> int:
        return occupancy(name, threads, registers, shared, barriers=barriers).blocks

    assert found.with_less() == found
    assert found.with_less(3, 700).blocks == blocks(max(registers - 3, 0), max(shared - 700, 0))
    enough = found.next_registers
    if enough is None:
        assert blocks(1, shared) == found.blocks
    else:
        assert enough < registers and blocks(enough, shared) > found.blocks == blocks(enough + 1, shared)
    enough = found.next_shared
    if enough is None:
        assert blocks(registers, 0) == found.blocks
    else:
        assert enough < shared and blocks(registers, enough) > found.blocks == blocks(registers, enough + 1)


def test_all_that_is_said_of_a_launch() -> None:
    """65 registers are given as 72: 28 warps on an SM, of blocks of 3; 6,144 bytes a block, 64 KiB set aside."""
    found = occupancy("a100", 96, 65, 5000, grid=1000, barriers=3)
    plain = found.to_dict()
    assert (plain.pop("waves"), plain.pop("tail")) == (1000 / 972, 28 / 972)
    assert plain == {
        "gpu": gpus.find("a100").name, "threads": 96, "registers": 65, "shared": 5000, "barriers": 3,
        "limits": {"registers": 9, "shared": 10, "warps": 21, "blocks": 32, "barriers": 21},
        "blocks": 9, "binding": ["registers"], "warps": 27, "ratio": 27 / 64,
        "threads per SM": 864, "threads by division": 1008, "next": {"registers": 64, "shared": None},
        "one register less": 10, "one KiB less": 9,
    }  # fmt: skip
    assert (found.shared_config, found.shared_most) == (65_536, 164 * 1024 // 6144)
    assert str(found).startswith("9 blocks of 96 threads on an SM of a100")
    assert str(found).endswith(": 27 of 64 warps, 42.2%; limited by registers")
    assert occupancy("a100", 96, 66, 5000).to_dict()["one register less"] == 9
    assert occupancy("a100", 96, 16, 17_000).to_dict()["one KiB less"] == 9  # of 16,000 bytes; 8 before


def test_what_does_not_fit_or_has_no_grid() -> None:
    assert occupancy("h200", 32, 256).blocks == 0 < occupancy("h200", 32, 255).blocks
    assert occupancy("h200", 32, 32, 227 * 1024).blocks == 1
    none = occupancy("h200", 32, 32, 227 * 1024 + 1, grid=10)
    assert (none.blocks, none.waves, none.tail, none.binding) == (0, None, None, ("shared",))
    assert none.next_shared == 227 * 1024 and occupancy("h200", 1024, 128, grid=4).next_registers == 64
    assert (occupancy("h200", 32, 32).waves, occupancy("h200", 32, 32).tail) == (None, None)
    least = occupancy("h200", 64, 40, 1000).with_less(registers=50, shared=2000)
    assert (least.registers, least.shared) == (0, 0)
    with pytest.raises(ArgumentError, match="barriers must be at least 0"):
        occupancy("h200", 32, 32, barriers=-1)


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="threads must be at most 1,024"):
        occupancy("h200", 2048, 32)
    with pytest.raises(ArgumentError, match="gpu"):
        occupancy("h2000", 256, 32)
    assert occupancy("h200", 1024, 128).blocks == 0


HALVES = """
extern "C" __global__ void halves(float *x, int n) {
    __shared__ float fixed[2560];
    extern __shared__ float open[];
    fixed[threadIdx.x] = open[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = fixed[n - threadIdx.x] + open[n - threadIdx.x];
}"""


def test_a_kernel_of_no_arch_is_compiled_for_the_gpu() -> None:
    """One of an arch is what it is, whatever the GPU."""
    source = """extern "C" __global__ void turn(float *x) {
        __shared__ float held[__CUDA_ARCH__];
        held[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = held[31 - threadIdx.x]; }"""
    for arch, gpu, shared in ((None, "t4", 750), (None, "a100", 800), ("sm_80", "h200", 800)):
        assert tw.Kernel(source, "turn", arch).occupancy(32, gpu=gpu).shared == 4 * shared


def test_of_a_kernel() -> None:
    """By what it was compiled to: its registers, its own shared memory and the launch's, its barriers."""
    kernel = tw.Kernel(HALVES, "halves", "sm_80")
    own = kernel.resources
    assert (own.shared_bytes, own.barriers) == (10_240, 1)
    for block, shared in ((128, 0), ((32, 4), 10_240), ((8, 4, 4), 60_000)):
        found = kernel.occupancy(block, shared, gpu="a100")
        assert (found.gpu, found.threads, found.registers) == (gpus.find("a100").name, 128, own.registers)
        assert (found.shared, found.barriers) == (10_240 + shared, 1)
        assert found == occupancy("a100", 128, own.registers, 10_240 + shared, barriers=1)
    assert kernel.occupancy(128, gpu="a100").blocks == 14  # of 11 KiB and 164
    assert kernel.occupancy(128, 10_240, gpu="a100", grid=108 * 14).waves == 2
    assert gpus.find(kernel.occupancy(128).gpu).arch == "sm_80"
    turing = kernel.occupancy(64, gpu="rtx-2060-super", grid=68)
    assert (turing.gpu, turing.grid, turing.registers) == (
        gpus.find("rtx-2060-super").name,
        68,
        own.registers,
    )
    anywhere = tw.Kernel(HALVES, "halves").occupancy(64, gpu="rtx-2060-super")
    assert (anywhere.gpu, anywhere.shared) == (turing.gpu, 10_240)
    with pytest.raises(ArgumentError, match="shared must be at least 0"):
        kernel.occupancy(128, -1)
    with pytest.raises(ToolError, match=r"halves is foreign PTX, .* registers are not known"):
        tw.Kernel.from_ptx(kernel.ptx, "halves").occupancy(128)


def test_the_door() -> None:
    assert tw.occupancy is occupancy


def test_shared_memory_that_could_grow_does_not_bind() -> None:
    """Its size is chosen for as many blocks as fit otherwise, and then the limit it gives says nothing."""
    found = occupancy("a100", 128, 92, 16_384)
    assert found.limits["registers"] == found.limits["shared"] == 5
    assert found.binding == ("registers",) and found.next_registers == 80


@pytest.mark.parametrize(
    ("registers", "allocated"), [(3, (16, 16)), (16, (16, 16)), (17, (17, 24)), (40, (40, 40)), (255, (255, 256))]
)  # fmt: skip
@pytest.mark.parametrize(("barriers", "limit"), [(0, 32), (1, 32), (2, 32), (3, 21), (16, 4)])
def test_metrics_of_a_launch_are_those_of_its_occupancy(
    registers: int, allocated: tuple[int, int], barriers: int, limit: int
) -> None:
    """Registers are allocated by eights; of barriers there are no more blocks than of all else."""
    found = occupancy("h200", 96, registers, 5000, grid=1000, barriers=barriers)
    metrics = {one.name: one.value for one in _launch(found, {"grid_size": 1000.0})}
    names = {"registers": "registers", "shared": "shared_mem", "warps": "warps", "blocks": "blocks"}
    expected = {f"launch__occupancy_limit_{name}": found.limits[what] for what, name in names.items()}
    assert metrics == pytest.approx({
        **expected, "launch__occupancy_limit_barriers": limit, "launch__grid_size": 1000,
        "launch__registers_per_thread": allocated[0], "launch__registers_per_thread_allocated": allocated[1],
        "launch__shared_mem_config_size": found.shared_config, "launch__waves_per_multiprocessor": found.waves,
        "sm__maximum_warps_per_active_cycle_pct": 100 * found.warps / 64,
        "sm__maximum_warps_avg_per_active_cycle": found.warps, "tilewise__last_wave.ratio": found.tail,
    })  # fmt: skip
    assert [one.name for one in _launch(None, {"grid_size": 7.0})] == ["launch__grid_size"]


def test_registers_of_h200_blocks_without_shared_memory_alone_leave_room_for_more_of_them() -> None:
    """With any shared memory, it is set to what as many blocks need as fit otherwise."""
    for shared, fitting, config in (
        (0, 32, 32 << 10),
        (1, 7, 8 << 10),
        (1024, 4, 8 << 10),
        (30_000, 2, 64 << 10),
    ):
        found = occupancy("h200", 256, 128, shared)
        assert (found.limits["shared"], found.shared_config, found.blocks) == (fitting, config, 2), shared
    assert (
        occupancy("h200", 256, 0).threads_by_division == 2048
    )  # nothing to divide by: all that there may be


@pytest.mark.parametrize(("more", "blocks"), [(0, 5), (1023, 5), (1024, 5), (1025, 4)])
def test_a_kib_less_is_of_1024_bytes(more: int, blocks: int) -> None:
    most = occupancy("h200", 128, 32, 48 * 1024).next_shared
    assert most is not None
    assert occupancy("h200", 128, 32, most + more).to_dict()["one KiB less"] == blocks
