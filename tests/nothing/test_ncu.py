"""A profiler that is run beside us: how it is called, and what it says when it does not end well."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fake_device import FakeDevice
from tilewise.bench import hardware
from tilewise.bench.hardware import RungLaunch, _count
from tilewise.bench.launch_spec import LaunchSpec
from tilewise.errors import ToolError

WHAT = RungLaunch("04_tiled", (8, 16, 32), {"tiles": 2})


def test_it_is_told_what_to_launch_and_its_answer_is_kept_however_it_ends(tmp_path: Path) -> None:
    script = tmp_path / "ncu"
    script.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\nsys.exit(3)\n")
    script.chmod(0o755)
    ran = _count(str(script), WHAT, ["one", "two"])
    assert ran.returncode == 3
    said = json.loads(ran.stdout)
    assert said[:9] == [
        *("--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"), "--metrics", "one,two",
    ]  # fmt: skip
    assert said[9:13] == [sys.executable, "-m", "tilewise.bench.hardware", "RungLaunch"]
    assert json.loads(said[13]) == {"rung": "04_tiled", "size": [8, 16, 32], "settings": {"tiles": 2}}


def test_one_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"ncu cannot be run \(.*No such file"):
        _count(str(tmp_path / "ncu"), WHAT, ["one"])


class Waiting(FakeDevice):
    """Counts how often it was waited for: ncu has figures of launches that have ended."""

    waits = 0

    def synchronize(self) -> None:
        self.waits += 1
        super().synchronize()


def test_the_process_that_it_looks_at_runs_the_rung_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Waiting()
    monkeypatch.setattr("tilewise.device", lambda name: {"gpu": device}[name])
    what = RungLaunch("04_tiled", (64, 96, 16), {"tile": 32})
    hardware.main([type(what).__name__, json.dumps(asdict(what))])
    ((entry, launch, _),) = device.launches
    assert (entry, launch.grid, launch.threads_per_block) == ("tiled", (3, 2, 1), 32 * 32) and device.waits


def test_the_process_that_it_looks_at_runs_the_kernel_of_a_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device, told = Waiting(), list[object]()
    opened = SimpleNamespace(start=told.append)
    what = LaunchSpec("a.cu", "2", "32")
    monkeypatch.setattr("tilewise.device", lambda name: {"gpu": device}[name])
    monkeypatch.setattr(
        hardware, "open_launch", lambda spec: {what: opened}[replace(spec, args=(), defines=(), include=())]
    )
    hardware.main([type(what).__name__, json.dumps(asdict(what))])
    assert told == [device] and device.waits
