"""Bounds of a launch, one for each part of the GPU, and bytes at each level of the memory, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tilewise.errors import ArgumentError
from tilewise.gpus import find
from tilewise.instruments.levels import Level, levels
from tilewise.instruments.machine import Machine, MachineAccess, MachineRuns
from tilewise.instruments.metric import ESTIMATED, EXACT, Metric
from tilewise.instruments.roofline import ISSUING, MEMORY_CYCLES, roofline
from tilewise.toolchain.lines import MachineInstruction


def test_each_part_of_the_gpu_has_its_work_from_the_instructions() -> None:
    """Two multiprocessors, one of which does three quarters. Scalars count by threads, products by runs."""
    runs = np.array([30.0, 10.0])
    code = ("FFMA R1, R2, R3, R4", "FADD R1, R2, R3", "HFMA2 R1, R2, R3, R4", "HFMA2.MMA R1, -RZ, RZ, RZ, RZ",
            "HMMA.16816.F32 R1, R2, R3, R4", "HGMMA.64x64x16.F32 R1, gdesc", "MOV R1, R2")  # fmt: skip
    items = [MachineInstruction(16 * i, text) for i, text in enumerate(code)]
    machine = Machine("machine code", ran=[MachineRuns(item, 0, runs, 32 * runs, 8 * runs) for item in items])
    two = 2 * runs

    def access(op: str, waves: float) -> MachineAccess:
        counted = two if op == "gmma" else 7 * runs
        return MachineAccess(items[5], op, "shared", 128, counted, waves * runs, two, two, two, two, two)

    machine.accesses += [access("gmma", 0.0), access("ld", 5.0)]
    gpu = find("h200")
    clock = gpu.sms * gpu.boost_mhz * 1e6
    work = {
        "fp32 arithmetic": (40 * 8 * 3, gpu.fp32_peak),
        "fp16 arithmetic": (40 * 8 * 4, 2 * gpu.fp32_peak),
        "fp16_fp32 arithmetic": (40 * 4096 + 80 * 2 * 64 * 64 * 16 // 4, gpu.peaks.fp16_fp32),
        ISSUING: (40 * len(code), 4 * clock),
        MEMORY_CYCLES: (200, clock),
    }
    for metrics, operands, name, moved in (
        ({}, None, None, 0),
        ({}, 1e12, "memory, each operand once", 1e12),
        ({"dram__bytes_read.sum": 3e12, "dram__bytes_write.sum": 1e12}, 7, "memory", 4e12),
    ):
        found = roofline(machine, metrics, gpu, operands)  # type: ignore[arg-type]
        bounds = {bound.name: bound for bound in found.bounds}
        memory = {name: (moved, gpu.memory_bandwidth)} if name else {}
        assert {key: (one.amount, one.rate) for key, one in bounds.items()} == work | memory
        assert all(one.uneven == (1 if key == name else 1.5) for key, one in bounds.items())
        assert all(one.seconds == pytest.approx(one.amount * one.uneven / one.rate) for one in found.bounds)
        assert found.flops == sum(amount for key, (amount, _) in work.items() if "arithmetic" in key)
        known = name == "memory"
        assert found.memory_bytes == (4e12 if known else None)
        assert found.intensity == (found.flops / 4e12 if known else None)
        assert found.seconds == max(one.seconds for one in found.bounds) == found.binding.seconds
        assert (found.binding.name == name) is bool(name)
        told = found.to_dict()
        assert (told["binding"], told["seconds"], told["intensity"]) == (
            found.binding.name, found.seconds, found.intensity,
        )  # fmt: skip
        assert str(found).startswith(
            f"bound by {found.binding.name}, {found.seconds * 1e6:,.4g} µs on h200\n  "
        )
        assert len(str(found).splitlines()) == 1 + len(bounds)
        assert found.reached(4 * found.seconds) == 0.25
    for seconds in (0, -1.0, float("nan")):
        with pytest.raises(ArgumentError, match="seconds must be above 0"):
            found.reached(seconds)


def test_each_level_has_the_bytes_of_its_accesses() -> None:
    """A copy reads one level and writes another; an atomic access does both. Sectors are of 32 bytes."""
    nothing = np.zeros(1)

    def access(op: str, space: str, bytes_: float, sectors: float = 0.0, exact: bool = True) -> MachineAccess:
        item, counted = MachineInstruction(0, "NOP"), (np.array([sectors]), nothing, np.array([bytes_]))
        return MachineAccess(item, op, space, 32, nothing, nothing, nothing, nothing, *counted, exact)

    accesses = [
        access("ld", "shared", 1), access("ldsm", "shared", 2), access("gmma", "shared", 4),
        access("st", "shared", 8), access("ldgsts", "shared", 16), access("atom", "shared", 32),
        access("ld", "global", 1, 1), access("ldgsts", "global", 2, 4), access("tma_red", "global", 4, 2),
        access("st", "global", 8, 8), access("red", "global", 16, 16, exact=False),
    ]  # fmt: skip
    near = [
        Level("shared memory", 39, 56, EXACT),
        Level("global memory, by lanes", 23, 28, ESTIMATED),
        Level("global memory, by sectors", 32 * 23, 32 * 26, ESTIMATED),
    ]
    assert levels(accesses, {}) == near
    stem, figures = "lts__t_sectors_srcunit_tex_op", {}
    for name, value in (
        (f"{stem}_read", 3),
        (f"{stem}_write", 5),
        ("dram__bytes_read", 7),
        ("dram__bytes_write", 11),
    ):
        figures[f"{name}.sum"] = Metric(f"{name}.sum", value, "model")
    assert levels(accesses, figures) == [
        *near,
        Level("L2", 96, 160, "model"),
        Level("memory", 7, 11, "model"),
    ]


@pytest.mark.parametrize(
    ("space", "read", "written"),
    [
        (
            "shared",
            "ld ldsm gmma tma_st tma_red dshared_tma_st dshared_tma_red atom red",
            "st stsm ldgsts tma_ld tma_mc atom red",
        ),
        ("global", "ld ldgsts tma_ld tma_mc tma_pf tma_red atom red", "st tma_st tma_red atom red"),
    ],
)
def test_each_operation_reads_or_writes_its_level_or_does_both(space: str, read: str, written: str) -> None:
    """What comes in bulk to shared memory is read in global memory, and what goes there in bulk the other way."""
    nothing = np.zeros(2)
    every = "ld st atom red ldsm stsm ldgsts gmma tma_ld tma_mc tma_pf tma_st tma_red dshared_tma_st dshared_tma_red"
    for op in every.split():
        counted = np.array([3.0, 1.0]), nothing, np.array([100.0, 28.0])
        item = MachineInstruction(0, "NOP")
        one = MachineAccess(item, op, space, 32, nothing, nothing, nothing, nothing, *counted)
        found = {level.name: (level.read, level.written) for level in levels([one], {})}
        ways = op in read.split(), op in written.split()
        name = "shared memory" if space == "shared" else "global memory, by lanes"
        assert found.pop(name) == (128 * ways[0], 128 * ways[1]), op
        sectors = (128 * ways[0], 128 * ways[1]) if space == "global" else (0, 0)
        assert found.pop("global memory, by sectors") == sectors, op
        assert set(found.values()) == {(0, 0)}, op
