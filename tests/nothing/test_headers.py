"""The headers that kernels are made of: each says itself what it needs. And what stands in for those of the host."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import tilewise
from tilewise.toolchain.compile import compile_source
from tilewise.toolchain.host_code import HOST_HEADERS

HEADERS = sorted((Path(tilewise.__file__).parent / "include/tilewise").glob("*.cuh"))


@pytest.mark.parametrize("part", range(4))
def test_a_header_compiles_alone(part: int) -> None:
    """So that a source may include it anywhere among others."""
    assert len(HEADERS) > 50
    for header in HEADERS[part::4]:
        source = f'#include <tilewise/{header.name}>\nextern "C" __global__ void nothing() {{}}\n'
        assert compile_source(source, ["nothing"], "sm_90a").entries, header.name


# ── what stands in for the host's headers ──


def defines(header: str) -> dict[str, str]:
    """The macros that a header's stand-in defines, with what they stand for."""
    return dict(re.findall(r"^#define (\w+) (.+)$", HOST_HEADERS[header], re.MULTILINE))


def test_constants_of_the_hosts_headers_have_their_values() -> None:
    found = defines("cmath")
    assert (found.pop("INFINITY"), found.pop("HUGE_VALF")) == ("__int_as_float(0x7f800000)", "INFINITY")
    assert found.pop("HUGE_VAL") == "__longlong_as_double(0x7ff0000000000000)"
    assert found.pop("NAN") == "__int_as_float(0x7fffffff)"
    root = math.sqrt(2)
    assert {name: float(text) for name, text in found.items()} == {
        "M_PI": math.pi, "M_PI_2": math.pi / 2, "M_PI_4": math.pi / 4, "M_1_PI": 1 / math.pi,
        "M_2_PI": 2 / math.pi, "M_2_SQRTPI": 2 / math.sqrt(math.pi), "M_E": math.e,
        "M_SQRT2": root, "M_SQRT1_2": math.sqrt(0.5), "M_LN2": math.log(2), "M_LN10": math.log(10),
    }  # fmt: skip
    found = defines("cfloat")
    for prefix, suffix, type_ in (("FLT", "F", np.float32), ("DBL", "", np.float64)):
        limits = np.finfo(type_)
        for name, value in (("MAX", limits.max), ("MIN", limits.tiny), ("EPSILON", limits.eps)):
            text = found.pop(f"{prefix}_{name}")
            assert text.endswith("F") == bool(suffix) and type_(text.removesuffix(suffix)) == value, text
    assert not found
    assert defines("climits") == {
        "CHAR_BIT": "8", "SHRT_MAX": "32767", "INT_MAX": str(2**31 - 1), "INT_MIN": "(-INT_MAX - 1)",
        "UINT_MAX": f"{2**32 - 1:#x}U", "LLONG_MAX": f"{2**63 - 1}LL", "LLONG_MIN": "(-LLONG_MAX - 1)",
        "ULLONG_MAX": f"{2**64 - 1:#x}ULL",
    }  # fmt: skip


def test_types_of_the_hosts_headers_have_as_many_bits_as_their_names_say() -> None:
    text = HOST_HEADERS["cstdint"]
    types = {name: type_ for type_, name in re.findall(r"typedef ([\w ]+) (\w+);", text)}
    bits = {"char": 8, "short": 16, "int": 32, "long long": 64}
    for name, type_ in types.items():
        wanted = int((re.search(r"\d+", name) or ["64"])[0])  # a pointer has 64
        assert bits[type_.removeprefix("unsigned ").removeprefix("signed ")] == wanted, name
        assert type_.startswith("unsigned") == name.startswith("u"), name
    assert types["int8_t"] == "signed char"
    assert sorted(re.findall(r"using ::(\w+);", text)) == sorted(types) and len(types) == 10
