"""Spilled registers are told where a profile is read: in the table, by line, as plain data, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tilewise as tw
from tilewise.cli.main import main
from tilewise.instruments.line_figures import listing
from tilewise.instruments.profile import Profile

SOURCE = """extern "C" __global__ void __launch_bounds__(1024) sums(const float *x, float *y) {
    float s[10][10] = {};
    for (int k = 0; k < 2; k++) {
        float a[10], b[10];
        for (int i = 0; i < 10; i++) a[i] = x[(k * 20 + i) * 32 + threadIdx.x];
        for (int i = 0; i < 10; i++) b[i] = x[(k * 20 + 10 + i) * 32 + threadIdx.x];
        for (int i = 0; i < 10; i++) for (int j = 0; j < 10; j++) s[i][j] += a[i] * b[j];
    }
    for (int i = 0; i < 10; i++) for (int j = 0; j < 10; j++) y[(i * 10 + j) * 32 + threadIdx.x] = s[i][j];
}"""


@pytest.fixture(scope="module")
def spilled() -> Profile:
    x, y = np.ones(40 * 32, np.float32), np.zeros(100 * 32, np.float32)
    return tw.Kernel(SOURCE, "sums", "sm_90", filename="größe.cu").profile(1, 32, [x, y])


def test_a_table_and_plain_data_tell_spills(spilled: Profile) -> None:
    found = spilled.spills
    assert found and spilled.resources and found.bytes == spilled.resources.spills > 100
    local = [item for item in spilled.machine.ran if item.instruction.family in ("LDL", "STL")]
    assert found.local == sum(float(item.runs.sum()) for item in local) > 50
    assert found.share == pytest.approx(found.local / spilled["smsp__inst_executed.sum"])
    head = spilled.table().splitlines()[1]
    assert head.startswith(f"spills: {found.bytes:,} bytes a thread") and f"{found.share:.1%}" in head
    assert json.loads(spilled.json())["spills"]["bytes"] == found.bytes


def test_a_profile_as_text_has_letters_as_they_are_and_the_metrics_that_were_named(spilled: Profile) -> None:
    for patterns in (None, ["launch__*"]):
        text = spilled.json(patterns)
        assert json.loads(text)["metrics"].keys() == spilled.to_dict(patterns)["metrics"].keys()
        assert "größe.cu" in text and "\\u" not in text


def test_lines_tell_where_local_memory_is_used(spilled: Profile) -> None:
    lines = spilled.lines
    assert sum(line.local for line in lines) > 0 and all(line.local <= line.instructions for line in lines)
    assert listing(lines).splitlines()[0].split() == [
        "instructions", "wavefronts", "conflicts", "sectors", "ideal", "local", "line",
    ]  # fmt: skip
    assert spilled.spills and sum(line.local for line in spilled.machine_lines) == spilled.spills.local
    # By line of the PTX it is what the machine code of that line does.
    by_line: dict[int, float] = {}
    for item in spilled.machine.ran:
        if item.instruction.family in ("LDL", "STL") and item.instruction.ptx:
            by_line[item.instruction.ptx] = by_line.get(item.instruction.ptx, 0) + float(item.runs.sum())
    assert {line.line: line.local for line in spilled.ptx_lines if line.local} == by_line and by_line


def test_every_way_to_list_lines_has_all_accesses_once(spilled: Profile) -> None:
    conflicted = tw.ladder["05_tiled_conflicted"].profile(32, 32, 32, gpu="h200")
    for profile in (spilled, conflicted):
        names = ("wavefronts", "conflicts", "sectors", "ideal_sectors")
        arrays = [
            (one.waves, one.waves - one.phases, one.sectors, one.ideal_sectors)
            for one in profile.machine.accesses
        ]
        whole = [sum(float(row[i].sum()) for row in arrays) for i in range(4)]
        for lines in (profile.lines, profile.ptx_lines, profile.machine_lines):
            assert [sum(getattr(line, name) for line in lines) for name in names] == pytest.approx(
                whole, rel=1e-12
            )
            assert [
                (-line.conflicts, -line.excess_sectors, -line.instructions, line.line) for line in lines
            ] == sorted(
                (-line.conflicts, -line.excess_sectors, -line.instructions, line.line) for line in lines
            )
        ran = sum(float(one.runs.sum()) for one in profile.machine.ran)
        assert sum(line.instructions for line in profile.machine_lines) == pytest.approx(ran, rel=1e-12)
    assert conflicted.lines[0].conflicts > 0


def test_nothing_is_said_where_nothing_spilled() -> None:
    profile = tw.ladder["05_tiled_conflicted"].profile(32, 32, 32, gpu="h200")
    assert (
        profile.spills is None and "spills" not in profile.table() and "local" not in listing(profile.lines)
    )


def test_the_command_line_tells_spills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sums.cu"
    file.write_text(SOURCE)
    launch = [str(file), "--grid", "1", "--block", "32", "--arg", "new:f32[1280]", "--arg", "new:f32[3200]"]
    assert main(["profile", *launch, "--occupancy"]) == 0
    shown = capsys.readouterr().out
    assert "spills" in shown and "bytes a thread" in shown
