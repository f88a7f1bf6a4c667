"""The driver of GPUs: why it cannot be used, and what becomes of its errors and of the context of the caller."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pretended_gpu import PretendedDriver, pretend
from tilewise.bench import doctor
from tilewise.devices import gpu
from tilewise.devices.gpu import driver as words
from tilewise.errors import ArgumentError, DeviceError, DeviceUnavailable


class DynamicLibNotFoundError(RuntimeError):
    """As the bindings call it."""


def raising(error: Exception) -> Any:
    def call(*_: object) -> Any:
        raise error

    return call


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Nothing is known of a driver yet; what is learnt of drivers that are not there."""
    monkeypatch.setattr(words, "_started_in", None)
    monkeypatch.setattr(words, "_without_driver", [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return words._without_driver


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("it is\n  broken"),
            "the CUDA driver cannot be loaded (it is broken); update the NVIDIA driver",
        ),
        (OSError("no such thing"), "the CUDA driver cannot be used: no such thing"),
        (OSError(), "the CUDA driver cannot be used: OSError"),
        (DynamicLibNotFoundError("gone"), words._NO_DRIVER),
    ],
)
def test_a_driver_that_cannot_be_loaded_says_why(
    error: Exception, said: str, unstarted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not there is looked for once."""
    broken = SimpleNamespace(cuInit=raising(error))
    monkeypatch.setattr(words, "driver", lambda: broken)
    assert words.probe() == (0, said)
    assert unstarted == ([broken] if isinstance(error, DynamicLibNotFoundError) else [])
    broken.cuInit = raising(RuntimeError("looked for again"))
    assert ("looked for again" in words.probe()[1]) is not bool(unstarted)
    assert words._started_in is None


def test_packages_that_are_missing_are_named(unstarted: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "driver", raising(ImportError("no module")))
    said = "cuda-bindings cannot be imported (no module); pip install cuda-core cuda-bindings"
    assert words.probe() == (0, said)
    monkeypatch.setattr(words, "driver", SimpleNamespace)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: {"cuda.core": None}[name])
    assert words.probe() == (0, "cuda-core is not installed; pip install cuda-core")


@pytest.mark.parametrize("hidden", ["", " ", "-1", " -1 "])
def test_a_variable_that_hides_every_gpu_is_named(hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert words._no_device() == f"CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU; unset it"


def test_a_result_of_the_driver_is_what_comes_behind_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    assert words.check((0,), "resting") is None
    assert words.check((0, 7), "resting") == 7 and words.check((0, 7, 8), "resting") == (7, 8)
    full = words.driver().CUresult.CUDA_ERROR_OUT_OF_MEMORY
    monkeypatch.setattr(
        words, "driver", lambda: SimpleNamespace(cuGetErrorString=lambda _: (0, b"out of memory"))
    )
    with pytest.raises(DeviceError, match=r"^CUDA_ERROR_OUT_OF_MEMORY \(out of memory\) while resting"):
        words.check((full, 7), "resting")
    for answer in ((1, b"?"), (0, None)):
        pretended = SimpleNamespace(cuGetErrorString=lambda _, answer=answer: answer)
        monkeypatch.setattr(words, "driver", lambda pretended=pretended: pretended)
        assert words.explain(full, "resting", "so it is").startswith(
            "CUDA_ERROR_OUT_OF_MEMORY while resting; so it is"
        )
    monkeypatch.setattr(words, "driver", raising(RuntimeError()))
    assert words.explain(full, "resting").startswith("CUDA_ERROR_OUT_OF_MEMORY while resting")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("it is broken"), r"^it is broken, while opening gpu:1$"),
        (DeviceError("it is busy"), r"^it is busy$"),
        (OSError("no such thing"), r"^no such thing while opening gpu:1$"),
        (
            RuntimeError("CUDA_ERROR_INVALID_DEVICE: invalid"),
            r"^CUDA_ERROR_INVALID_DEVICE .*while opening gpu:1",
        ),
        (
            RuntimeError("CUDA_ERROR_NO_SUCH_NAME: what"),
            r"^CUDA_ERROR_NO_SUCH_NAME: what while opening gpu:1$",
        ),
    ],
)
def test_a_gpu_that_cannot_be_opened_leaves_the_callers_context(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = pretend(monkeypatch)
    driver.current = 99
    monkeypatch.setattr(PretendedDriver, "Device", raising(error))
    with pytest.raises(DeviceUnavailable, match=said):
        gpu.open(1)
    assert driver.current == 99


def test_errors_within_a_scope_become_ours_and_say_what_the_gpu_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what may have broken the context; those that are no errors of the driver go on as they are."""
    driver = pretend(monkeypatch)
    device = gpu.open(0)
    with device._scope("resting"):
        assert driver.current == 10
    device._ledger.record_launch(1, None, "kernel 'slow'")
    lost = words.driver().CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError) as error, device._scope("resting"):
        words.check((lost,), "reading")
    assert error.value.__notes__ == ["gpu:0 was last seen running kernel 'slow'"] and driver.current == 0
    with pytest.raises(DeviceError) as error, device._scope("resting"):
        words.check((lost,), "running kernel 'slow'")
    assert not hasattr(error.value, "__notes__"), "it says so itself"
    full = words.driver().CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceError) as error, device._scope("resting"):
        words.check((full,), "reading")
    assert not hasattr(error.value, "__notes__")
    with (
        pytest.raises(DeviceError, match=r"^it is broken, while resting$") as error,
        device._scope("resting"),
    ):
        raise RuntimeError("it is broken")
    assert isinstance(error.value.__cause__, RuntimeError)
    for other in (KeyError("x"), ArgumentError("x", "must be y")):
        with pytest.raises(type(other)) as kept, device._scope("resting"):
            raise other
        assert kept.value is other and driver.current == 0


@pytest.mark.parametrize(("version", "said"), [(12_040, "12.4"), (13_000, "13.0"), (11_080, "11.8")])
def test_a_driver_is_for_one_cuda_and_older_ones(
    version: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "driver", lambda: SimpleNamespace(cuDriverGetVersion=lambda: (0, version)))
    assert doctor._driver_version() == f"for CUDA {said} and older"
