"""Figures of machine code, as they are kept: profiles of a few kernels that have something of all that decides how machine
code is joined with what was counted, on GPUs of several kinds.

``python -m tests.kept_machine`` writes ``golden/machine.txt`` anew, which ``emulator/profiling/test_kept_figures.py`` compares
where the compiler is the same. ``python -m tests.kept_machine GROUP`` prints what is kept of a group, whole.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tilewise as tw
from tests.kept_answers import Groups, run_command
from tests.kept_plain import plain
from tests.printed_launches import head
from tilewise.devices.emulated import open_emulator
from tilewise.instruments.compare import compare_profiles
from tilewise.instruments.line_figures import SourceFinder, listing
from tilewise.instruments.profile import Profile
from tilewise.instruments.roofline import flops_of

__all__ = ["COMMAND", "GOLDEN", "GROUPS"]

COMMAND = "python -m tests.kept_machine"
GOLDEN = Path(__file__).parent / "golden" / "machine.txt"
SOURCE = Path(__file__).parent / "golden" / "figures.cu"
_ON = (
    ("shapes", "sm_80", "a100"), ("memory", "sm_75", "rtx-2060-super"), ("memory", "sm_90a", "h200"),
    ("numbers", "sm_75", "l4"), ("numbers", "sm_80", "a100"), ("numbers", "sm_90a", "h200"), ("copied", "sm_80", "l4"), ("copied", "sm_90a", "h200"),
)  # fmt: skip
_FAMILIES = """
FFMA FADD FMUL DFMA DADD DMUL HFMA2 HADD2 HMUL2 FFMA2 FADD2 FMUL2 IMAD IADD3 LEA LOP3 SHF MUFU F2F I2F F2I MOV
SEL PRMT LDS LDG LDL LDC LDSM STS STG STL STSM ATOM ATOMG ATOMS  RED REDG REDAS STAS LDGSTS LD ST BAR BRA BRX
EXIT RET CALL BSSY BSYNC WARPSYNC SHFL VOTE MATCH REDUX NANOSLEEP NOP S2R S2UR CS2R R2UR ULDC UIADD3 UMOV USHF
SYNCS UTMALDG UTMASTG UTMAREDG UTMAPF  UBLKCP UBLKRED UBLKPF HMMA IMMA DMMA BMMA HGMMA IGMMA QGMMA BGMMA QMMA
OMMA FSETP ISETP DSETP HSETP2 FMNMX IMNMX VIADD POPC FLO BREV DEPBAR MEMBAR ERRBAR CCTL FENCE ACQBULK PLOP3
P2R R2P ELECT XXXX
"""
_RARE = (1e-39, 3e38, float("inf"), float("nan"), 0.0, 1e-310, -1.0, 1e308)


def _arguments(name: str, turn: int) -> list[Any]:
    """Arrays and a number for a kernel; in a second turn others."""
    device = open_emulator(threads=1)
    if name == "shapes":
        return [
            device.array(np.arange(256, dtype=np.int32) * (37 + turn) % 101),
            device.array(np.zeros(512, np.int32)),
            9 - 5 * turn,
        ]
    if name == "numbers":
        values = np.linspace(0.5, 90, 1280)
        values[5 :: 61 - 30 * turn] = np.resize(_RARE, values[5 :: 61 - 30 * turn].size)
        return [device.array(values), device.array(np.zeros(640)), 5 + turn]
    floats = [
        device.array(np.linspace(0, 1, 1024, dtype=np.float32)),
        device.array(np.zeros(2048, np.float32)),
    ]
    return (
        [*floats, device.array(np.zeros(64, np.int32)), 3 + turn] if name == "memory" else [*floats, 2 + turn]
    )


def _profile(name: str, arch: str, gpu: str, turn: int) -> Profile:
    kernel = tw.Kernel(SOURCE.read_text(encoding="utf-8"), name, arch)
    sample = 1 if turn and name == "copied" else None
    return kernel.profile(2 + 3 * turn, 128, _arguments(name, turn), gpu=gpu, cache=turn == 0, sample=sample)


def _list_profile(name: str, arch: str, gpu: str) -> Iterator[str]:
    """Metrics one by one, and all that is shown beside them; of two launches."""
    both = [_profile(name, arch, gpu, turn) for turn in range(2)]
    for turn, found in enumerate(both):
        shown = found.to_dict()
        for metric, item in shown.pop("metrics").items():
            yield f"{turn} {metric}: {json.dumps(plain(item))}"
        for part, item in shown.items():
            yield f"{turn} {part}: {json.dumps(plain(item), ensure_ascii=False)}"
        for lines in (found.lines, found.ptx_lines, found.machine_lines):
            yield listing(lines, 30)
        yield f"{found.verdict}\n{found.roofline}\n{found.spills}\n{found.categories} {found.warps_per_block}"
        yield from (
            f"{run.instruction.opcode}: {json.dumps(plain([run.runs, run.threads, run.parted]))}"
            for run in found.machine.ran
        )
        yield from (f"{one.instruction.opcode} {one.op}: {_access(one)}" for one in found.machine.accesses)
    yield compare_profiles(("few", "more"), (both[0], both[1]))


def _access(access: Any) -> str:
    told = plain(access)
    del told["instruction"]
    return json.dumps(told)


def _list_opcodes() -> Iterator[str]:
    """What is known of machine instructions by their names."""
    from tilewise.instruments.classes import category_of, class_of, pipes_of
    from tilewise.instruments.machine import width_of
    from tilewise.toolchain.lines import MachineInstruction

    words = (
        "",
        ".64",
        ".128",
        ".E.U8",
        ".16816.F32",
        ".1688.F32.TF32",
        ".16816.F32.BF16",
        ".64x128x16.F32",
        ".64x8x32.F16",
        ".16832.S8.S8",
        ".884",
        ".WIDE.U32",
        ".U16",
        ".S.G",
        ".G.S",
        ".SPIN",
        ".RED",
    )
    for number, family in enumerate(_FAMILIES.split()):
        for word in words[number % 2 :: 2] if not family.endswith("MMA") else words:
            item = MachineInstruction(0, family + word)
            yield f"{item.opcode}: {class_of(item.family)} {category_of(item.family)} {pipes_of(item)} {width_of(item)} {item.bits} {flops_of(item.opcode)}"


_PARTED = """extern "C" __global__ void parted(int *x) {
    x[0] = 1;
#line 2 "FOLDER/deep/part.h"
    x[1] = x[2];
#line 90 "FOLDER/deep/part.h"
    x[3] = x[4];
#line 1 "nowhere.h"
    x[5] = x[6];
#line 1 "FOLDER"
    x[7] = x[8] + x[9];
}
"""


def _list_places() -> Iterator[str]:
    """Lines of a source that names others by #line: such that are there, such that are not, and a folder."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "deep" / "part.h"
        file.parent.mkdir()
        file.write_text("the first line\n   the second line\nthe third line\n", encoding="utf-8")
        binary = tw.Kernel(_PARTED.replace("FOLDER", Path(folder).as_posix()), "parted", "sm_80").build()
        finder = SourceFinder(binary)
        for line in (None, 0, *range(1, binary.ptx.count("\n") + 3)):
            told = f"{line}: {finder.place(line)} {finder.describe(line)}"
            for known in (Path(folder).as_posix(), "/".join(Path(folder).parts[-2:])):
                told = told.replace(known, "folder")
            yield told


GROUPS: Groups = {
    **{f"{name} on {arch}": partial(_list_profile, name, arch, gpu) for name, arch, gpu in _ON},
    "opcodes": _list_opcodes,
    "places": _list_places,
}

if __name__ == "__main__":
    run_command(GOLDEN, GROUPS, head())
