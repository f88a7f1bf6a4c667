"""What every test shares: an environment of its own."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile

import pytest
from hypothesis import settings

from tests.thorough import PROFILE, leave_some

# How long an example takes is no verdict on a machine that is slow, or busy.
settings.register_profile("tests", deadline=None)
settings.register_profile(PROFILE, deadline=None)
settings.load_profile("tests")

_CACHE = "TILEWISE_CACHE_DIR"
_MADE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Give a run one empty cache for all its processes, so that no result is of another day's making."""
    if config.option.markexpr == "thorough":
        settings.load_profile(PROFILE)
    if not hasattr(config, "workerinput"):  # a worker inherits what its parent set
        for name in (
            "TILEWISE_DEVICE",
            "TILEWISE_THREADS",
            "TILEWISE_SUMS",
            "TILEWISE_CACHE_SIZE",
            "TILEWISE_STUB",
        ):
            os.environ.pop(name, None)
        os.environ["JAX_NUM_CPU_DEVICES"] = "2"  # results are to lie where operands do
        os.environ["TILEWISE_ASSEMBLER"] = (
            "off"  # what is installed is not to decide what tests see; some turn it on
        )
        os.environ[_CACHE] = config.stash[_MADE] = tempfile.mkdtemp(prefix="tilewise-tests-")


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_some(items)


def pytest_collection_finish() -> None:
    _set_aside()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and nextitem.path != item.path:
        _set_aside()


def _set_aside() -> None:
    """Keep the garbage collector from what lives on: it would go through all of that again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it where there is no browser: then the pages were not tried."""
    skipped = [
        report for report in terminalreporter.stats.get("skipped", []) if "tests/browser" in report.nodeid
    ]
    if skipped:
        reasons = {str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped}
        terminalreporter.write_line(
            f"{len(skipped)} tests in a browser were skipped: {'; '.join(sorted(reasons))}"
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    if _MADE in config.stash:
        shutil.rmtree(config.stash[_MADE], ignore_errors=True)
