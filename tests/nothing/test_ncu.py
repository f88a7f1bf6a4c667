"""A profiler that is run beside us: how it is called, and what it says when it does not end well."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tilewise.bench.hardware import RungLaunch, _count
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
