"""What results say of the machine that they were measured on."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import tilewise
from tilewise.bench import environment
from tilewise.bench.environment import cpu_name, machine, package_version, versions

CPUINFO = (
    "processor\t: 0\nmodel name\t: A CPU: 3.5 GHz \nflags\t: a b\n\nprocessor\t: 1\nmodel name\t: Another\n"
)


@pytest.mark.parametrize(
    ("text", "processor", "name"),
    [
        (CPUINFO, "x86", "A CPU: 3.5 GHz"),
        ("processor\t: 0\n", "x86", "x86"),  # as Arm's have it
        (None, "x86", "x86"),
        (None, "", "a machine"),
    ],
)
def test_a_cpu_is_called_what_it_calls_itself_or_what_it_is(
    monkeypatch: pytest.MonkeyPatch, text: str | None, processor: str, name: str
) -> None:
    def read(path: Path, **_: object) -> str:
        assert str(path) == "/proc/cpuinfo"
        if text is None:
            raise FileNotFoundError(2, "there is no such file")
        return text

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(platform, "processor", lambda: processor)
    monkeypatch.setattr(platform, "machine", lambda: "a machine")
    assert cpu_name() == name


@pytest.mark.parametrize(
    ("system", "release", "told"),
    [
        ("linux", {"PRETTY_NAME": "A Linux 1.2", "NAME": "A"}, "A Linux 1.2"),
        ("linux", {"NAME": "A"}, "Linux"),
        ("linux", None, "Linux 6.7"),
        ("darwin", {"PRETTY_NAME": "A Linux 1.2"}, "Darwin 6.7"),
    ],
)
def test_a_system_is_called_by_its_release(
    monkeypatch: pytest.MonkeyPatch, system: str, release: dict[str, str] | None, told: str
) -> None:
    def released() -> dict[str, str]:
        if release is None:
            raise FileNotFoundError(2, "there is no such file")
        return release

    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "system", system.capitalize)
    monkeypatch.setattr(platform, "release", lambda: "6.7")
    monkeypatch.setattr(platform, "freedesktop_os_release", released)
    assert machine()["system"] == told


def test_cores_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "cpu_name", lambda: "a CPU")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {2, 5, 7}, raising=False)
    assert {**machine(), "system": ""} == {"cpu": "a CPU", "cores": 3, "system": ""}
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 9)
    assert machine()["cores"] == 9


def test_versions_are_those_of_what_is_installed() -> None:
    found = versions()
    assert (found["tilewise"], found["Python"]) == (tilewise.__version__, platform.python_version())
    assert found["numpy"] == package_version("numpy") == version("numpy")
    assert package_version("no-such-package-of-anyone") is None
