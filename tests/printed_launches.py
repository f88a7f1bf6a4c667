"""What commands print of launches on the emulator, whole; ``python -m tests.printed_launches`` writes it anew.

``tests/emulator/profiling/test_printed_launches.py`` compares it, where the compiler is the same: registers and what
machine instructions are counted depend on it. Look at the difference after a change that is meant to change something.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tests.emulator.products.panel_marks import list_panels
from tilewise.cli import explain_command
from tilewise.cli.main import main
from tilewise.explain.climb import Climb, explain_ladder
from tilewise.explain.explanation import Explanation
from tilewise.toolchain.nvrtc import version

FOLDER = Path(__file__).parent / "golden" / "launches"
COMMAND = "python -m tests.printed_launches"

_ARRAYS = "--arg f32[1536] --arg new:f32[384] --arg zeros:s32[8] --arg 4 --arg 5 --seed 7"
_MIXED = f"mixed.cu --kernel mixed --grid 3,2 --block 64 {_ARRAYS}"
_BOTH = f"--compare mixed.cu mixed.cu --kernel mixed --grid 3,2 --block 64 {_ARRAYS} --gpu a100"
_CHOSEN = "--metrics launch__*,l1tex__data_bank_conflicts_pipe_lsu_mem_shared.*,tilewise__*"
_CLIMBED = ("02_one_block", "04_tiled", "05_tiled_conflicted")  # for the whole ladder, which takes long
_SECONDS = 1.25e-3  # what a run takes, in place of what it took

# Command lines by the name of the file that has what they print.
LINES = {
    "profile": (
        f"profile {_MIXED} --gpu a100 --cache",
        f"profile {_MIXED} --gpu rtx-2060-super {_CHOSEN} --json --cache",
        f"profile {_MIXED} --gpu h200 {_CHOSEN} --csv --sample 2",
    ),
    "lines": tuple(f"profile {_MIXED} --gpu a100 --most 6 --lines {of}" for of in ("cuda", "ptx", "machine")),
    "occupancy": tuple(
        f"profile {_MIXED} --gpu {gpu} --shared {shared} --occupancy{form}"
        for gpu, shared, form in (("a100", 0, ""), ("h200", 20_000, ""), ("h200", 20_000, " --json"))
    ),
    "compare": (
        f"profile {_BOTH} --second --kernel plain",
        f"profile {_BOTH} --json --metrics launch__grid_size --second --kernel plain",
        f"profile {_MIXED} --gpu a100 --seconds 2e-6 --metrics launch__grid_size --json",
    ),
    "check": (
        f"check {_MIXED}",
        f"check {_MIXED} --json --order eager",
        *(
            f"check ../checker/faults.cu --kernel {kernel} --grid 1 --block 64 {arrays} --seed 7 --json"
            for kernel, arrays in (
                ("reversed", "--arg f32[64] --arg new:f32[64]"),
                ("divergent", "--arg new:f32[64]"),
                ("not_awaited", "--arg f32[64] --arg new:f32[64]"),
            )
        ),
    ),
    "run": tuple(
        f"run {_MIXED} --device emulator{more}" for more in ("", " --print 3", " --json", " --json --print 3")
    ),
    "explain": (
        f"explain {_MIXED} --gpu a100",
        f"explain {_MIXED} --gpu a100 --json",
        f"explain {_MIXED} --gpu a100 --element 0,70 --thread 1,6 --line 10",
    ),
    "explain_ladder": ("explain ladder", "explain ladder --json"),
    **{
        f"explain_{rung}": (f"explain {rung} {size}", f"explain {rung} {size} --element 70,100 --json")
        for rung, size in (
            ("04_tiled", "-m 96 -n 160 -k 64 --set tile=16 --gpu a100"),
            ("09_warp_tiled", "-m 128 -n 256 -k 64 --gpu a100"),
            ("12_multistage", "-m 256 -n 256 -k 128 --gpu h200"),
            ("13_warp_specialised", "-m 128 -n 256 -k 128 --gpu h200"),
        )
    },
}


def head() -> str:
    """What each file begins with: the compiler."""
    return f"# NVRTC {'.'.join(map(str, version()))}\n"


def show(name: str) -> str:
    """Each command line, what it prints, and the code that it ends with; and the panels of the last explanation."""
    explained: list[Explanation | Climb] = []

    def explain(*given: Any) -> Explanation:
        explained.append(found := real(*given))
        return found

    def climb(*given: Any) -> Climb:
        explained.append(found := explain_ladder(*given, rungs=_CLIMBED))
        return found

    real = explain_command._explain
    with mock.patch.multiple(explain_command, _explain=explain, explain_ladder=climb):
        shown = [*_shown(LINES[name])]
    shown += ["\n".join(list_panels(one)) + "\n" for one in explained[-1:]]
    return head() + "\n".join(shown)


def _shown(lines: tuple[str, ...]) -> Iterator[str]:
    """Where the kernels are, so that none of it has the name of a folder."""
    with contextlib.chdir(FOLDER), mock.patch("tilewise.bench.file_run._launch", _launch):
        for line in lines:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                code = main(line.split())
            yield f"$ tilewise {line}\n{out.getvalue()}exit code {code}\n"


def _launch(call: object, *_: object) -> float:
    assert callable(call)
    call()
    return _SECONDS


def file_of(name: str) -> Path:
    """Where what is printed is kept."""
    return FOLDER / f"{name}.txt"


if __name__ == "__main__":
    for one in LINES:
        file_of(one).write_text(show(one), encoding="utf-8")
