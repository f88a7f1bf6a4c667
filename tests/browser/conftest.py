"""A browser for the tests of pages: Chromium as it is installed, driven by playwright. Without either, tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Where Chromium is: ``TILEWISE_CHROMIUM``, or one of the usual names on the path."""
    given = os.environ.get("TILEWISE_CHROMIUM")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, without a sandbox where it is run by root, which cannot have one."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: make test-browser installs it"
    )
    path = find_chromium()
    if path is None:
        pytest.skip("needs Chromium, such as Debian's package chromium; or its place in TILEWISE_CHROMIUM")
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=options)
        yield started
        started.close()
