"""The machine code of every production kernel, on every kind of GPU: nothing spilled, the instructions that were meant, and
no change that nobody has seen (``tests/golden/code``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.generated_code import (
    CASES,
    COMMAND,
    GOLDEN,
    Case,
    at_fault,
    beyond,
    count_in_one_bank,
    generate,
    hash_sources,
    later,
    main_loop,
    summary,
)
from tests.golden_text import assert_unchanged
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm import FAMILIES
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.compile import compile_source
from tilewise.toolchain.lines import MachineInstruction, SourceLine, line_table
from tilewise.toolchain.nvrtc import version

LOCAL = ("LDL", "STL")
LOADS = ("LDG", "LDGSTS")
RARE = "tilewise/guarded_load.cuh"  # loads at the edges of matrices


# All of them where something changed since the files were written.
IS_NEW = f"# of sources {hash_sources()}" not in (GOLDEN / "mma.txt").read_text(encoding="utf-8").splitlines()
SOME = len(CASES) if IS_NEW else 6
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel} {case.name}")


@pytest.mark.few(SOME)
@every_case
def test_the_code_is_as_meant(case: Case) -> None:
    found = generate(case)
    resources, local = found.resources, [one for one in found.code if one.family in LOCAL]
    assert not local and not resources.stack_bytes + resources.spills, f"local memory at{at_fault(local)}"
    assert found.warnings == (), "\n".join(
        found.warnings
    )  # such as wgmma that were serialised, with their line
    assert found.loop, (
        f"no loop has {case.math}: {at_fault(one for one in found.code if one.family in case.math)}"
    )
    for patterns, code in ((case.loop, found.loop), (case.code, found.code)):
        for pattern in patterns:
            family = re.split(r"\W", pattern)[0]
            like = [one for one in code if one.opcode.startswith(family[:4])]
            there = any(re.fullmatch(pattern, one.opcode) for one in code if not one.never)
            assert there, f"no {pattern}, but{at_fault(like)}"
    narrow = [
        one for one in found.loop
        if one.family in LOADS and one.bits != 128 and not (one.cuda and one.cuda.file == RARE)
    ]  # fmt: skip
    assert not narrow or not case.wide, f"loads of less than 16 bytes at{at_fault(narrow)}"
    assert found.fits.blocks >= found.planned, (
        f"{found.planned} blocks are planned on an SM, and it holds {found.fits.blocks} of {resources.registers} registers "
        f"a thread: {dict(found.fits.limits)}; more registers than that leaves are used at"
        f"{at_fault(beyond(found.code, int(np.prod(found.step.launch.block)), found.planned))}"
    )


@pytest.mark.few(SOME)
@every_case
def test_a_change_of_the_code_is_seen(case: Case) -> None:
    """If it is meant, the command writes the file anew, and the difference can be reviewed."""
    head, *parts = sections(case.kernel)
    known, here = re.search(r"# NVRTC (\d+)\.(\d+)", head), version()
    assert known is not None
    if (int(known[1]), int(known[2])) != here:
        pytest.skip(
            f"{GOLDEN.name}/{case.kernel}.txt is of NVRTC {known[1]}.{known[2]}, here is {here[0]}.{here[1]}"
        )
    now = summary(case)
    golden = next((part for part in parts if part.splitlines()[0] == now.splitlines()[0]), "")
    assert_unchanged(golden, now, "the code", COMMAND, context=8)


@pytest.mark.parametrize("kernel", FAMILIES)
def test_a_file_has_the_cases_of_its_kernel(kernel: str) -> None:
    names = [part.splitlines()[0] for part in sections(kernel)[1:]]
    assert names == [f"[{case.name}]" for case in CASES if case.kernel == kernel], COMMAND


def sections(kernel: str) -> list[str]:
    """The head of a kernel's file, and what it says of each case."""
    return (GOLDEN / f"{kernel}.txt").read_text(encoding="utf-8").rstrip("\n").split("\n\n")


def test_every_kernel_has_cases_on_the_gpus_it_is_for() -> None:
    archs = {name: {case.arch for case in CASES if case.kernel == name} for name in FAMILIES}
    everywhere = {"sm_75", "sm_80", "sm_89", "sm_90a"}
    assert archs == {
        "exact32": {"sm_90a"},
        "general": everywhere,
        "mma": everywhere,
        "simt": everywhere - {"sm_75"},
        "vector": everywhere,
        "wgmma": {"sm_90a"},
    }
    for name in ("mma", "general"):
        assert {case.dtype for case in CASES if case.kernel == name} == set(KERNELS[name].element_types)


@pytest.mark.parametrize(
    ("entry", "size"), [("arrange", 1), ("transpose", 1), ("transpose", 4), ("align", 1)]
)
def test_copies_wait_for_the_launch_before_and_let_the_next_begin_when_they_have_read(
    entry: str, size: int
) -> None:
    code = machine_code("arrange", entry, {"ELEMENT_BYTES": size})
    reads, writes = ({i for i, one in enumerate(code) if one.family == name} for name in ("LDG", "STG"))
    after_waiting, after_letting = later(code, "ACQBULK"), later(code, "PREEXIT")
    assert reads and writes and after_letting
    assert reads | writes <= after_waiting and not reads & after_letting
    assert not any(one.family == "PREEXIT" for one in (code[i] for i in later(code, "STG")))


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if (case.kernel, case.gpu) == ("simt", "h200")],
    ids=lambda case: case.name,
)
def test_few_multiply_adds_wait_for_a_bank_of_registers(case: Case) -> None:
    """Where sums are in the registers that their stores want, a third of them do, or more; of complex numbers two in five."""
    loop = generate(case).loop
    count = sum(one.family == "FFMA" for one in loop)
    assert count >= 1024 and count_in_one_bank(loop) < count / (3 if case.dtype == "complex64" else 5)


@pytest.mark.parametrize(
    ("file", "entry", "given"),
    [
        ("add_parts", "add_parts", {}),
        ("add_sums", "add_sums", {"OF_COLUMNS": 1}),
        ("add_sums", "add_sums", {"OF_COLUMNS": 0}),
        ("general", "remedy", {"REGION_M": 64, "REGION_N": 64}),
        ("real_form", "expand", {}),
        ("split_halves", "split_halves", {}),
        ("vector", "along_k", {}),
        ("vector", "along_rows", {}),
        ("widen", "widen", {}),
    ],
    ids=str,
)
def test_a_launch_that_may_begin_early_waits_before_it_touches_memory(
    file: str, entry: str, given: dict[str, object]
) -> None:
    code = compiled(file, entry, given).ptx
    body = code.partition(f".entry {entry}(")[2].partition(".entry")[0]
    first = re.search(r"griddepcontrol\.wait|\b(?:ld|st|red|atom|cp)\.[\w.:]*global", body)
    assert first is not None and first[0] == "griddepcontrol.wait"


@pytest.mark.parametrize(
    ("file", "entry", "given"),
    [
        ("add_parts", "add_parts", {}),
        ("arrange", "align", {}),
        ("arrange", "arrange", {}),
        ("arrange", "transpose", {"ELEMENT_BYTES": 1}),
        ("real_form", "expand", {}),
        ("simt", "simt", {}),
        ("vector", "along_k", {}),
        ("vector", "along_rows", {}),
        ("widen", "widen", {}),
    ],
    ids=str,
)
def test_a_launch_divides_before_it_waits(file: str, entry: str, given: dict[str, object]) -> None:
    """So that it knows where it reads. The assembler waits first, where nothing keeps it from that."""
    code = machine_code(file, entry, given)
    waits, reads = (
        next(i for i, one in enumerate(code) if one.family in names) for names in (("ACQBULK",), LOADS)
    )
    assert divisions(code) & {*range(waits)} and not divisions(code) & {*range(waits, reads)}


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.kernel == "wgmma" and not case.groups][::5],
    ids=lambda case: case.name,
)
def test_tiles_are_found_before_the_launch_waits_and_before_they_are_multiplied(case: Case) -> None:
    code = generate(case).code
    assert divisions(code) - later(code, "ACQBULK")
    last = max(i for i, one in enumerate(code) if one.family.endswith("GMMA"))
    stored = min(i for i, one in enumerate(code) if i > last and one.family in ("STS", "STSM"))
    assert not divisions(code) & {*range(last, stored)}


def compiled(file: str, entry: str, given: dict[str, object]) -> Binary:
    """A kernel of the production sources, with these compile-time values."""
    source = Path(KERNELS["mma"].file).with_name(f"{file}.cu").read_text(encoding="utf-8")
    return compile_source(source, [entry], "sm_90a", defines=given)


def machine_code(file: str, entry: str, given: dict[str, object]) -> tuple[MachineInstruction, ...]:
    """Its instructions."""
    made = compiled(file, entry, given)
    assert made.cubin is not None
    return line_table(made.cubin, entry).instructions


def divisions(code: Sequence[MachineInstruction]) -> set[int]:
    """The places where integers are divided: by what a float says of one over the divisor."""
    return {i for i, one in enumerate(code) if one.family == "I2F"}


# ── the checks themselves ──


@pytest.mark.parametrize(
    "case", [one for one in CASES if one.epilogue == "bfloat16"], ids=lambda case: case.name
)
def test_an_epilogue_takes_the_sums_of_a_box_as_they_are(case: Case) -> None:
    """Selected by the box's number from those of all boxes, each takes as many instructions as there are boxes."""
    assert not [one.text for one in generate(case).code if one.family == "FSEL"]


def test_operands_in_one_bank_are_counted() -> None:
    """Of registers that are even, or odd; not what is kept for reuse in its place, nor what is no register."""
    texts = {
        "FFMA R0, R2, R4, R1": 1,  # two even ones
        "FFMA R0, R2.reuse, R3, R6": 1,
        "FFMA R0, R2, -R5, R8": 0,  # R2 is kept
        "FFMA R0, R2, R7, R8": 1,  # and now not
        "FFMA R9, R1.reuse, R3.reuse, R5": 1,
        "LDS.128 R12, [R1]": 0,
        "FFMA R9, R1, R3, R7": 0,  # both are, whatever else is done meanwhile
        "@!P0 FFMA R9, R2, c[0x0][0x4], R3": 0,
        "FFMA R9, |R2|, 2, -R4.reuse": 1,
        "FFMA R9, R4, R3, RZ": 0,  # kept in another place
    }
    for last in range(len(texts)):
        code = [MachineInstruction(16 * i, text) for i, text in enumerate((*texts,)[: last + 1])]
        assert count_in_one_bank(code) == sum((*texts.values(),)[: last + 1]), (*texts,)[last]


def test_a_loop_is_found_by_its_jumps() -> None:
    """The innermost one, with a part that lies outside of it; not what goes around both."""
    texts = ["MOV R1, R2", "outer: MOV R3, R4", "BRA `(inner)", "far: LDG.E R5, [R6]", "BRA `(math)",
             "inner: ISETP P0, R1", "@P0 BRA `(far)", "math: FFMA R1, R2", "@P1 BRA `(inner)", "FFMA R3, R4",
             "@P2 BRA `(outer)", "EXIT"]  # fmt: skip
    code = []
    for i, text in enumerate(texts):
        label, _, rest = text.rpartition(": ")
        code.append(MachineInstruction(16 * i, rest, label=label))
    assert [one.offset // 16 for one in main_loop(tuple(code), ("FFMA",))] == list(range(1, 11))
    assert [one.offset // 16 for one in main_loop(tuple(code[:9] + code[10:]), ("FFMA",))] == [
        3,
        4,
        5,
        6,
        7,
        8,
    ]
    assert main_loop(tuple(code), ("HMMA",)) == ()


def test_a_fault_is_shown_where_the_source_has_it() -> None:
    source = Path(KERNELS["mma"].file)
    number = next(i for i, line in enumerate(source.read_text().splitlines(), 1) if "fragments[2]" in line)
    one = MachineInstruction(0, "STL [R1], R2", SourceLine("mma.cu", number))
    assert f"mma.cu:{number} `WarpFragment fragments[2];" in at_fault([one])
    assert "1 × STL [R1], R2" in at_fault([one]) and "no line" in at_fault(
        [MachineInstruction(0, "STL", None)]
    )


def test_registers_that_an_occupancy_forbids_are_shown_where_they_are_used() -> None:
    """Two blocks of 256 threads leave a thread 128 registers, three 80: R0 to R79."""
    texts = ("FFMA R79, R2, R3, R79", "FFMA R3, R127, R3, RZ", "@P80 IADD3 R4, UR99, R80.reuse, RZ", "EXIT")
    code = [MachineInstruction(16 * i, text, SourceLine("general.cu", i + 1)) for i, text in enumerate(texts)]
    assert beyond(code, 256, 2) == []
    assert beyond(code, 256, 3) == code[1:3]
    assert "general.cu:2 `" in at_fault(beyond(code, 256, 3))
