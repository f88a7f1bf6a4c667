"""What is told of a machine: by results that were measured there, and by the doctor."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tilewise
from tilewise.bench import doctor, environment
from tilewise.bench.doctor import Report
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


# ── the doctor ───────────────────────────────────────────────────────────────────────────────────────────


def told(report: Report) -> list[tuple[str, str, bool]]:
    return [(one.what, one.todo, one.essential) for one in report.troubles]


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch) -> Report:
    """What the doctor finds where all is well: a GPU, and the emulator."""
    devices = [
        SimpleNamespace(name="gpu:0", title="a GPU", arch="sm_80"),
        SimpleNamespace(name="emulator", title="a CPU", arch="sm_75"),
    ]
    monkeypatch.setattr("tilewise.devices.available", lambda: devices)
    monkeypatch.setattr("tilewise.devices.gpu.count", lambda: 1)
    monkeypatch.setattr(doctor, "_driver_version", lambda: "for CUDA 1.2 and older")
    monkeypatch.setattr("tilewise.toolchain.nvrtc.version", lambda: (98, 7))
    monkeypatch.setattr("tilewise.toolchain.compile.known_archs", lambda: ["sm_75", "sm_80"])
    for variable in doctor.VARIABLES:
        if variable != "TILEWISE_CACHE_DIR":
            monkeypatch.delenv(variable, raising=False)
    return doctor.examine()


def test_the_doctor_tells_what_is_here(well: Report) -> None:
    assert well.ok and not well.troubles
    assert well.versions == {**versions(), "NVRTC": "98.7"}
    assert well.machine == {**machine(), "python": platform.python_implementation()}
    assert well.archs == ["sm_75", "sm_80"] and well.compile_ms is not None and 0 < well.compile_ms < 10_000
    assert (well.driver, well.default_device) == ("for CUDA 1.2 and older", "gpu:0")
    assert well.devices == [
        {"name": "gpu:0", "title": "a GPU", "arch": "sm_80"},
        {"name": "emulator", "title": "a CPU", "arch": "sm_75"},
    ]
    assert list(well.environment) == list(doctor.VARIABLES)
    assert {name for name, value in well.environment.items() if value} <= {"TILEWISE_CACHE_DIR"}
    assert well.cache["cleared"] is False and well.cache["writable"] is True


def test_the_doctor_tells_of_no_gpu_and_of_archs_that_are_too_new(
    well: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.devices.gpu.count", lambda: 0)
    monkeypatch.setattr("tilewise.devices.gpu.why_not", lambda: "it was taken out")
    monkeypatch.setattr("tilewise.toolchain.compile.known_archs", lambda: ["sm_75"])
    monkeypatch.setenv("TILEWISE_DEVICE", "emulator")
    report = doctor.examine()
    upgrade = "pip install --upgrade nvidia-cuda-nvrtc"
    assert told(report) == [
        ("no GPU: it was taken out", "", False),
        ("NVRTC 98.7 does not compile for sm_80 of gpu:0", upgrade, False),
    ]
    assert report.ok and report.driver is None and report.default_device == "emulator"


@pytest.mark.parametrize(("ok", "cubin"), [(False, b"code"), (True, None), (False, None)])
def test_the_doctor_tells_of_a_compiler_that_compiles_nothing(
    well: Report, monkeypatch: pytest.MonkeyPatch, ok: bool, cubin: bytes | None
) -> None:
    output = SimpleNamespace(ok=ok, cubin=cubin, log="it does\nnot work")
    looked: list[bytes] = []
    monkeypatch.setattr("tilewise.toolchain.nvrtc.compile_program", lambda *_: output)
    monkeypatch.setattr("tilewise.toolchain.lines.disassemble", looked.append)
    report = doctor.examine()
    reinstall = "pip install --force-reinstall nvidia-cuda-nvrtc"
    assert told(report) == [("NVRTC does not compile a small kernel: it does not work", reinstall, True)]
    assert not report.ok and looked == ([cubin] if cubin else [])


def test_the_doctor_tells_what_a_part_ends_with(well: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the disassembler tilewise works; without its compiler, its cache or its devices it does not."""

    def fail(said: str) -> Callable[..., Any]:
        def failing(*_: object) -> Any:
            raise RuntimeError(said)

        return failing

    for target, said, essential in (
        ("tilewise.toolchain.cache.default", "a\ncache", True),
        ("tilewise.toolchain.nvrtc.compile_program", "a compiler", True),
        ("tilewise.toolchain.lines.disassemble", "", False),
        ("tilewise.devices.available", "devices", True),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(target, fail(said))
            report = doctor.examine()
        assert told(report) == [(" ".join(said.split()) or "RuntimeError", "", essential)]
        assert report.ok is not essential


def test_the_doctor_tells_what_the_cache_says_of_itself(
    well: Report, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stats = SimpleNamespace(
        directory=tmp_path, entries=3, bytes=40, limit=500, writable=False, problem="it cannot be written"
    )
    cleared: list[bool] = []
    found = SimpleNamespace(stats=lambda: stats, clear=lambda: cleared.append(True))
    monkeypatch.setattr("tilewise.toolchain.cache.default", lambda: found)
    report = doctor.examine()
    assert told(report) == [("it cannot be written", "", False)] and not cleared
    assert report.cache == {
        "directory": str(tmp_path), "entries": 3, "bytes": 40, "limit": 500, "writable": False, "cleared": False,
    }  # fmt: skip
    stats.directory, stats.problem = None, ""
    report = doctor.examine(clear_cache=True)
    assert (report.cache["directory"], report.cache["cleared"], cleared) == (None, True, [True])
    assert not report.troubles


def test_the_doctor_tells_of_packages_that_cannot_be_imported(
    well: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(doctor._MODULES, "rich", "no_such_module_of_anyone")
    report = doctor.examine()
    ((what, todo, essential),) = told(report)
    assert what == "rich cannot be imported (No module named 'no_such_module_of_anyone')"
    assert (todo, essential) == ("pip install --force-reinstall rich", True)


@pytest.mark.parametrize(("number", "text"), [(13_020, "13.2"), (12_090, "12.9"), (9_000, "9.0")])
def test_a_driver_is_for_versions_of_cuda(monkeypatch: pytest.MonkeyPatch, number: int, text: str) -> None:
    def checked(result: tuple[int, int], doing: str) -> int:
        assert doing == "asking for the driver's version"
        return result[1]

    driver = SimpleNamespace(cuDriverGetVersion=lambda: (0, number))
    monkeypatch.setattr("tilewise.devices.gpu.driver.driver", lambda: driver)
    monkeypatch.setattr("tilewise.devices.gpu.driver.check", checked)
    assert doctor._driver_version() == f"for CUDA {text} and older"
