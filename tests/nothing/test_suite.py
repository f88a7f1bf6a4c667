"""The suite itself: a test that never comes back ends, is named as failed, and the others go on; and a few of many cases
are those that differ most."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.thorough import spread

ROOT = Path(__file__).parents[2]
# Native code that keeps the interpreter's lock: no signal handler and no thread of Python's gets a turn.
HANGING = """
import ctypes

def test_before(): pass
def test_hanging(): ctypes.PyDLL(None).pause()
def test_after(): pass
"""


@pytest.mark.skipif(sys.platform == "win32", reason="pause() is POSIX's")
def test_a_test_that_hangs_in_native_code_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "test_hanging.py"
    file.write_text(HANGING)
    settings = ("-c", ROOT / "pyproject.toml", "-o", "faulthandler_timeout=1", "-p", "no:cacheprovider", "-v")
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, "-n", "1", file],
        capture_output=True,
        text=True,
        env=plain,
        timeout=100,
    )
    assert ran.returncode == 1
    assert "worker 'gw0' crashed while running" in ran.stdout and "1 failed, 2 passed" in ran.stdout
    assert "line 5 in test_hanging" in ran.stderr  # where it hung


def test_every_test_has_a_time_limit(pytestconfig: pytest.Config) -> None:
    assert 0 < float(pytestconfig.getini("faulthandler_timeout")) <= 600
    assert pytestconfig.getini("faulthandler_exit_on_timeout") is True


def test_a_few_cases_lie_apart_and_have_as_many_values_as_they_can() -> None:
    tiles = [{("tile", str(tile))} for tile in range(7)]
    assert spread(tiles, 1) == [0]
    assert spread(tiles, 3) == [0, 6, 3]
    assert sorted(spread(tiles, 9)) == [*range(7)]
    layouts, types = ["nn", "nt", "tn", "tt"], ["float16", "bfloat16", "float32"]
    crossed = [{("layout", one), ("type", other)} for one, other in itertools.product(layouts, types)]
    assert set().union(*(crossed[place] for place in spread(crossed, 4))) == set().union(*crossed)
