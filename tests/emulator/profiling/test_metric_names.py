"""Names of metrics are checked before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw
from tilewise.cli.main import main
from tilewise.errors import UnknownNameError
from tilewise.instruments.metric_names import check_metric_names, known_metric_names
from tilewise.instruments.profile import DEFAULT

ODD = """extern "C" __global__ void odd(float *x) {
    __shared__ float s[128]; s[threadIdx.x] = atomicAdd(x + 200, 1.0f); __syncthreads(); x[threadIdx.x] = s[127 - threadIdx.x]; }"""


@pytest.mark.few(2)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_every_name_of_a_profile_is_known(arch: str) -> None:
    profile = tw.Kernel(ODD, "odd", arch).profile(1, 128, [np.zeros(256, np.float32)], cache=True)
    assert {*profile} <= {*known_metric_names()} and len(profile) > 400


def test_a_part_of_a_multiprocessor_has_a_quarter_of_what_is_in_it() -> None:
    """Of the least and the most of all counters that both have, whoever counts them."""
    profile = tw.Kernel(ODD, "odd", "sm_90").profile(3, 128, [np.zeros(256, np.float32)])
    for name in ("inst_executed", "inst_executed_pipe_lsu", "warps_launched"):
        assert profile[f"sm__{name}.max"] > 0
        for way in ("max", "min"):
            assert profile[f"smsp__{name}.{way}"] == profile[f"sm__{name}.{way}"] / 4


def test_names_of_bulk_copies_and_of_ptx_are_known() -> None:
    copies = tw.ladder["13_warp_specialised"].profile(128, 128, 64, gpu="h200")
    foreign = tw.Kernel.from_ptx(tw.Kernel(ODD, "odd", "sm_90").ptx, "odd").profile(
        1, 128, [np.zeros(256, np.float32)]
    )
    assert {*copies, *foreign} <= {*known_metric_names()}


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    check_metric_names(["smsp__inst_executed.sum", "l1tex__*", "regex:^dram", "launch__grid_size"])
    check_metric_names(None)
    check_metric_names(DEFAULT)  # what a table shows
    with pytest.raises(UnknownNameError, match=r"smsp__inst_executed\.sum"):
        check_metric_names(["l1tex__*", "smsp__inst_execute.sum"])


def test_the_command_line_refuses_before_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise AssertionError("it ran")

    monkeypatch.setattr("tilewise.cli.profile_command._profile", run)
    assert main(["profile", "05_tiled_conflicted", "--metrics", "smsp__inst_execute.sum"]) == 2
    assert "did you mean 'smsp__inst_executed.sum'" in capsys.readouterr().err
