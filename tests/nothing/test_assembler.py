"""Which wheels have an assembler of PTX: whichever is there."""

from __future__ import annotations

import importlib.metadata

import pytest

from tilewise.toolchain import assemble


@pytest.mark.parametrize(
    "wheel", ["nvidia-nvjitlink", "nvidia-nvjitlink-cu13", "nvidia-nvjitlink-cu12", "another"]
)
def test_a_wheel_of_any_name_is_found(monkeypatch: pytest.MonkeyPatch, wheel: str) -> None:
    def version(name: str) -> str:
        if name != wheel:
            raise importlib.metadata.PackageNotFoundError(name)
        return "13.5.1"

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.delenv(assemble.VARIABLE, raising=False)
    assemble.assembler_version.cache_clear()
    try:
        assert assemble.assembler_version() == ("" if wheel == "another" else "13.5.1")
        assert assemble.has_assembler() == (wheel != "another")
    finally:
        assemble.assembler_version.cache_clear()
