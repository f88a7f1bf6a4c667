"""Kernels that Triton compiled: their PTX is kept in tests/golden, and needs no Triton to run."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import tilewise as tw
from tests.triton.cases import CASES
from tests.triton.compiler import MEASURED, golden
from tests.triton.runs import Run, check, launch, prepare
from tilewise.bench import foreign

KERNELS = golden()


def instructions(ptx: str) -> str:
    """PTX without comments, lines of the source, what is for debuggers, and what it was made for."""
    code = ptx.partition("\t.section")[0]
    return re.sub(r"//.*|^\s*\.(version|target|loc|file)\b.*|\s+", " ", code, flags=re.MULTILINE)


# Those of a case that are the same for two architectures run once.
DIFFERENT = {(key.rpartition("-")[0], instructions(made.ptx)): key for key, made in KERNELS.items()}.values()


@pytest.mark.few(
    "softmax-sm_90",
    "layer_norm_back-sm_90",
    "layer_norm-sm_80",
    "softmax_of_long_rows-sm_80",
    "matmul_f32-sm_75",
    "described-sm_90",
    "host_described-sm_90",
    "matmul_f16_one_warp-sm_90",
    "persistent_described-sm_90",
    "matmul_i8-sm_90",
    "matmul_f8e4_turned-sm_90",
    "matmul_tf32x3-sm_80",
    "host_specialised-sm_90",
    "attention_f16-sm_80",
)
@pytest.mark.parametrize("key", DIFFERENT)
def test_results(key: str) -> None:
    """Right in every order of warps, and the same bits."""
    made = KERNELS[key]
    seed = int(np.random.default_rng().integers(2**32))
    try:
        found: list[bytes] = []
        for order in ("eager", "late", seed):
            run = prepare(made, np.random.default_rng(seed))
            launch(made, run, tw.device("emulator", order=order))
            run.check()
            found.append(written(run))
        assert found[0] == found[1] == found[2]
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {error}") from None


def written(run: Run) -> bytes:
    return b"".join(run.args[name].tobytes() for name in run.outputs)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "key", ["matmul_f16-sm_80", "matmul_f16-sm_90", "persistent_described-sm_90", "softmax-sm_75"]
)
def test_nothing_is_wrong_with_them(key: str) -> None:
    found = check(KERNELS[key], prepare(KERNELS[key], np.random.default_rng()))
    assert not found, "\n".join(map(str, found))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("left_out", "tool"), [("bar.sync", "racecheck"), ("cp.async.wait_group", "asyncheck")]
)
def test_what_was_left_out_of_one_is_found(left_out: str, tool: str) -> None:
    made = KERNELS["matmul_f16-sm_80"]
    lines = [line for line in made.ptx.splitlines() if left_out not in line]
    broken = replace(made, ptx="\n".join(lines))
    found = check(broken, prepare(broken, np.random.default_rng()))
    assert tool in {finding.tool for finding in found}


def test_every_kernel_is_there() -> None:
    assert {*KERNELS} == {f"{case.name}-sm_{arch}" for case in CASES for arch in case.archs}


def test_the_measured_kernel_is_one_of_them() -> None:
    file, key = MEASURED
    made = KERNELS[key]
    assert file.read_text(encoding="utf-8") == made.ptx
    assert (made.shared, made.warps, made.constants["BM"], made.constants["BN"]) == (
        foreign._SHARED,
        foreign._WARPS,
        foreign._TILE,
        foreign._TILE,
    )
