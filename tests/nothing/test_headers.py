"""The headers that kernels are made of: each says itself what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewise
from tilewise.toolchain.compile import compile_source

HEADERS = sorted((Path(tilewise.__file__).parent / "include/tilewise").glob("*.cuh"))


@pytest.mark.parametrize("part", range(4))
def test_a_header_compiles_alone(part: int) -> None:
    """So that a source may include it anywhere among others."""
    assert len(HEADERS) > 50
    for header in HEADERS[part::4]:
        source = f'#include <tilewise/{header.name}>\nextern "C" __global__ void nothing() {{}}\n'
        assert compile_source(source, ["nothing"], "sm_90a").entries, header.name
