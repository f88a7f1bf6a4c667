"""These tests are about the emulator, on a machine with a GPU too."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_DEVICE", "emulator")
