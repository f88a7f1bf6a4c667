"""The kernel by mma.sync as machine code: no tile spills on any kind of GPU, and the instructions are the intended ones."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.errors import ArgumentError
from tilewise.gpus import arch_capability
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.arrange import ways_to_read
from tilewise.kernels.gemm.mma import AMPERE, TWO_STAGES, lies, refuse_arch, resident
from tilewise.kernels.gemm.mma_shapes import SHAPES, SHAPES_OF
from tilewise.planner import choose, list_plans, operands_of, target_of
from tilewise.problem import Epilogue

SPEC = KERNELS["mma"]
RANDOM = np.random.default_rng()
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_90a")
PLAIN = Epilogue()
LINES = [{"a_in_rows": a, "b_in_rows": b} for a in (1, 0) for b in (1, 0)]


def settings_for(arch: str, partition: str, **given: Any) -> dict[str, Any] | None:
    """Settings of a tile as an arch has them; None if it does not fit there."""
    stages = SHAPES[partition].stages[0] if arch_capability(arch) >= AMPERE else TWO_STAGES
    found = {"stages": stages, "partition": partition, **given}
    return None if refuse_arch(SPEC.complete(found), arch) else found


def busy_epilogue(dtype: str) -> Epilogue:
    """One that reads three arrays."""
    whole = np.zeros((8, 8), dtype)
    text = "gelu(alpha * acc + bias) + beta * c + r"
    epilogue = tw.epilogue(text, alpha=1, beta=1, bias=whole[0], c=whole, r=whole)
    return operands_of(8, 8, 64, dtype=dtype, epilogue=epilogue).epilogue


@pytest.mark.few("sm_86")
@pytest.mark.parametrize("arch", ARCHS)
def test_every_tile_keeps_its_sums_in_registers(arch: str) -> None:
    """As many blocks as the launch bounds promise, without a spill; layouts in turns.

    On sm_86, which has the instructions and registers of sm_80, every third tile, other ones each time.
    """
    built, every = [], 3 if arch == "sm_86" else 1
    tiles = list(enumerate(SHAPES))[int(RANDOM.integers(every)) :: every]
    for number, partition in tiles:
        found = settings_for(arch, partition, **LINES[(number + ARCHS.index(arch)) % 4])
        if found is None:
            continue
        binary = SPEC.kernel(arch, **found).build()
        resources = binary.entries["mma_gemm"].resources
        assert resources is not None
        assert (resources.spills, resources.stack_bytes, binary.warnings) == (0, 0, ()), partition
        threads = SHAPES[partition].threads
        assert resources.registers * threads * resident(SPEC.complete(found)) <= 65_536
        built.append(partition)
    assert len(built) >= (len(SHAPES) if arch in ("sm_80", "sm_90a") else len(tiles) - 2)


WIDE = {"float32": ("sm_80", "sm_86", "sm_90a"), "float64": ("sm_80", "sm_90a")}


def test_tiles_are_what_their_names_say() -> None:
    for shapes in SHAPES_OF.values():
        assert {name: f"{one.tile.m}x{one.tile.n}x{one.tile.k}" for name, one in shapes.items()} == {
            name: name for name in shapes
        }


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_operands_are_taken_as_they_lie_and_bytes_along_k(layout: str) -> None:
    """In accesses of 16 bytes where lines are, and else of an element."""
    rows = [int(letter == "n") for letter in layout]
    for dtype, in_rows in (("float16", rows), ("bfloat16", rows), ("int8", [1, 0]), ("float8_e5m2", [1, 0])):
        found = lies(operands_of(64, 64, 64, dtype=dtype, layout=layout))
        wide = [16 if taken == lying else 1 for taken, lying in zip(in_rows, rows, strict=True)]
        assert found == {
            "a_in_rows": in_rows[0], "a_bytes": wide[0], "b_in_rows": in_rows[1], "b_bytes": wide[1], "whole_copies": 1,
        }  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("element", WIDE)
def test_tiles_of_wide_elements_keep_their_sums_in_registers(element: str) -> None:
    """Three each time, other ones, of float64 or of float32 in tf32, lying in any way, one with an epilogue."""
    shapes, forms = SHAPES_OF[element], [PLAIN, PLAIN, busy_epilogue(element)]
    for number in RANDOM.choice(len(shapes), 3, replace=False):
        partition, arch = list(shapes)[number], str(RANDOM.choice(WIDE[element]))
        lines = LINES[int(RANDOM.integers(4))]
        found = {"element": element, "partition": partition, "stages": shapes[partition].stages[0], **lines}
        if refuse_arch(SPEC.complete(found), arch):
            continue
        form, complete = forms.pop(), SPEC.complete(found)
        binary = SPEC.code(complete, form).kernel("mma_gemm", arch).build()
        resources = binary.entries["mma_gemm"].resources
        assert resources is not None
        assert (resources.spills, resources.stack_bytes, binary.warnings) == (0, 0, ()), (arch, found)
        operands = operands_of(64, 64, 64, dtype=element)._replace(epilogue=form)
        blocks = SPEC.work(operands, complete).resident
        assert resources.registers * shapes[partition].threads * blocks <= 65_536, (arch, found)


@pytest.mark.few(2)
@pytest.mark.parametrize("given", [{"a_bytes": 8, "b_bytes": 4}, {"b_bytes": 2, "stages": TWO_STAGES}])
@pytest.mark.parametrize("partition", ["128x256x32", "64x64x64"])
def test_narrow_accesses_spill_nothing(partition: str, given: dict[str, Any]) -> None:
    binary = SPEC.kernel("sm_80", partition=partition, **given).build()
    resources = binary.entries["mma_gemm"].resources
    assert resources is not None and resources.spills == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
@pytest.mark.parametrize("partition", ["128x256x32", "64x64x64"])
def test_an_epilogue_that_reads_three_arrays_spills_nothing(arch: str, partition: str) -> None:
    found = settings_for(arch, partition)
    assert found is not None
    built = SPEC.code(SPEC.complete(found), busy_epilogue("float16")).kernel("mma_gemm", arch).build()
    resources = built.entries["mma_gemm"].resources
    assert resources is not None and resources.spills == 0


OPCODES = re.compile(r"\*/\s+(?:@!?U?P\w+\s+)?((?:HMMA|LDSM|LDGSTS|LDG|STS)[\w.]*)")


def opcodes(arch: str, **given: Any) -> Counter[str]:
    """How often the multiplying kernel's machine code has each instruction of the main loop's kinds."""
    sass = SPEC.kernel(arch, partition="64x64x64", **given).sass
    body = next(part for part in sass.split(".section\t.text.") if part.startswith("mma_gemm"))
    return Counter(OPCODES.findall(body))


@pytest.mark.few(2)
@pytest.mark.parametrize("number", range(4))
def test_the_instructions_of_ampere(number: int) -> None:
    """Of a step: for each 16 of K two ldmatrix for each operand and 8 products; 8 copies of 16 bytes."""
    lines, element = LINES[number], ("float16", "bfloat16")[number % 2]
    name = "HMMA.16816.F32" + ("", ".BF16")[number % 2]
    found = opcodes("sm_80", element=element, **lines)
    assert {key for key in found if key.startswith("HMMA")} == {name}
    assert found[name] == 32
    plain, transposed = found["LDSM.16.M88.4"], found["LDSM.16.MT88.4"]
    assert plain + transposed == 20  # of four slices, and of the first before the loop
    wanted = {(1, 1): (10, 10), (0, 0): (10, 10), (1, 0): (20, 0), (0, 1): (0, 20)}
    assert (plain, transposed) == wanted[lines["a_in_rows"], lines["b_in_rows"]]
    copies = {key: count for key, count in found.items() if key.startswith("LDGSTS")}
    assert all(".BYPASS" in key and ".128" in key for key in copies)
    whole = sum(count for key, count in copies.items() if "ZFILL" not in key)
    assert whole == sum(copies.values()) - whole == 16  # before the loop, and in it


def test_the_instructions_of_turing() -> None:
    found = opcodes("sm_75", stages=TWO_STAGES)
    assert found["HMMA.1688.F32"] == 64
    assert found["LDSM.16.M88.4"] + found["LDSM.16.MT88.4"] == 16
    assert not any(key.startswith("LDGSTS") for key in found)
    assert found["LDG.E.128.SYS"] == found["STS.128"] == 8


@pytest.mark.parametrize("gpu", ["a100", "rtx4090", "rtx3090", "t4"])
def test_the_planner_takes_it_where_there_is_no_wgmma(gpu: str) -> None:
    for layout in ("nn", "nt", "tn"):
        for size in ((4096, 4096, 4096), (1024, 1024, 1024), (16, 4096, 4096), (200, 300, 5000)):
            found = choose(operands_of(*size, dtype="float16", layout=layout), target_of(gpu))
            assert (found.spec.name, found.copies) == ("mma", ()), (gpu, layout, size)


def test_the_planner_takes_it_for_float64_where_its_tensor_cores_are_fast() -> None:
    large, small = operands_of(4096, 4096, 4096, dtype="float64"), operands_of(100, 300, 200, dtype="float64")
    for gpu, wanted in (("a100", "mma"), ("h200", "mma"), ("rtx4090", "general"), ("rtx3090", "general")):
        assert choose(large, target_of(gpu)).spec.name == wanted, gpu
        assert choose(small, target_of(gpu)).spec.name in ("mma", wanted), gpu
        plans, _ = list_plans(large, target_of(gpu))
        assert wanted == "mma" or "mma" not in {one.kernel for one in plans}


def test_the_planner_takes_it_for_float32_only_in_tf32() -> None:
    for gpu in ("a100", "rtx4090"):
        for layout in ("nn", "nt", "tn"):
            found = choose(operands_of(4096, 1000, 512, layout=layout, arithmetic="tf32"), target_of(gpu))
            assert (found.spec.name, found.copies) == ("mma", ())
            assert choose(operands_of(4096, 1000, 512, layout=layout), target_of(gpu)).spec.name != "mma"


def test_the_planner_takes_wgmma_where_there_is_one() -> None:
    for size in (
        (8192, 8192, 8192),
        (4096, 4096, 4096),
        (1024, 1024, 1024),
        (4096, 2112, 7168),
        (64, 2112, 7168),
    ):
        assert choose(operands_of(*size, dtype="bfloat16"), target_of("h200")).spec.name == "wgmma"
        sums = operands_of(*size, dtype="float16", arithmetic="f16")
        assert choose(sums, target_of("h200")).spec.name == "wgmma"


def test_the_planner_takes_wgmma_for_large_products_in_tf32() -> None:
    """One operand may lie across K; of two the one is copied for it that is smaller, unless that is refused."""
    for layout, size, copies in (
        ("nt", (4096, 4096, 4096), ()), ("nn", (4096, 4096, 4096), ()), ("tt", (4096, 4096, 4096), ()),
        ("tn", (4096, 4096, 4096), ("b",)), ("tn", (1024, 8192, 4096), ("a",)), ("tn", (8192, 1024, 4096), ("b",)),
    ):  # fmt: skip
        operands = operands_of(*size, layout=layout, arithmetic="tf32")
        found = choose(operands, target_of("h200"))
        assert (found.spec.name, found.copies) == ("wgmma", copies), layout
        assert choose(operands, target_of("h200"), copy=False).spec.name == ("mma" if copies else "wgmma")


def test_what_no_kernel_reads_in_tf32_is_copied_beside_what_lies_across_k() -> None:
    """A that begins anywhere, of groups of rows and of a matrix; B of groups is copied as well, that of a matrix is not."""
    for groups, copies in ((3, ("a", "b")), (0, ("a",))):
        operands = operands_of(900, 400, 72, groups=groups, arithmetic="tf32")
        operands = operands._replace(a=replace(operands.a, row_stride=75, alignment=4))
        ways = [names for _, names in ways_to_read(KERNELS["wgmma"], operands)]
        assert ("a", "b") in ways and all("a" in names for names in ways)
        found = choose(operands, target_of("h200"), specs=[KERNELS["wgmma"]])
        assert found.copies == copies


def test_sums_in_float16_count_as_fast_as_the_gpu_has_them() -> None:
    """Twice as fast on a GeForce, by the table; there is no kernel for groups but on Hopper."""
    for gpu, least in (("rtx-2060-super", 1.5), ("rtx4090", 1.5), ("a100", 0.99), ("h200", 0.99)):
        slow, fast = (
            choose(operands_of(4096, 4096, 4096, dtype="float16", arithmetic=arithmetic), target_of(gpu))
            for arithmetic in (None, "f16")
        )
        assert slow.prediction.seconds >= least * fast.prediction.seconds, gpu
    groups = operands_of(64, 64, 64, dtype="float16", arithmetic="f16", groups=2)
    with pytest.raises(ArgumentError, match="groups must be 0 for mma, not 2; leave arithmetic='f16' out"):
        choose(groups, target_of("a100"))


def test_large_operands_that_lie_at_odd_elements_are_copied_first_only_if_they_may() -> None:
    operands, target = operands_of(4093, 4093, 4093, dtype="float16"), target_of("a100")
    assert choose(operands, target).spec is choose(operands, target, copy=False).spec is SPEC
    assert choose(operands, target, copy=False).settings["a_bytes"] == 2
    found = choose(operands, target)
    assert found.settings["a_bytes"] == (16 if "a" in found.copies else 2)
