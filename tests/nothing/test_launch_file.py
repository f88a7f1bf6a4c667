"""Files of kernels as command lines name them: which kernels they have, which is meant, and what is defined."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tilewise.bench.argument_specs import ArgumentMaker, triple
from tilewise.bench.launch_spec import _defines, _kernels, _only_kernel, _read
from tilewise.errors import ArgumentError, TilewiseError

SOURCE = """
// __global__ void not_this(int);
/* template <int N> __global__ void nor_this() {} */
template <int N, typename T = float>
__global__ void __launch_bounds__(256, (2 + 1)) tiled(T *x);
template <int N, typename T>
__global__ void tiled(T *x) { x[0] = N; }
extern "C" __global__ __launch_bounds__(128) void plain(const float *x) {}
static __global__ void __cluster_dims__(2, 1, 1) plain(int n) {}
static __device__ void helper(int n);
extern "C"  __global__  void  odd (int n);
"""


def test_kernels_of_a_source_are_listed_once_each() -> None:
    assert _kernels(SOURCE) == ["tiled<…>", "plain", "odd"]
    assert _kernels("__device__ void helper();") == []


def test_the_only_kernel_of_a_file_is_meant() -> None:
    assert _only_kernel(["plain"], "a.cu") == "plain"
    how = "a template is named with its arguments, such as 'tiled<32>'"
    for names, said in (
        ([], "file 'a.cu' must hold a kernel: a __global__ function"),
        (["tiled<…>"], f"--kernel must name an instance of tiled<…>; {how}"),
        (["one", "two"], "--kernel must be given, as a.cu has several: one, two"),
        (["one", "tiled<…>"], f"--kernel must be given, as a.cu has several: one, tiled<…>; {how}"),
    ):
        with pytest.raises(ArgumentError) as error:
            _only_kernel(names, "a.cu")
        assert str(error.value) == said


def test_definitions_are_names_with_values_or_1() -> None:
    assert _defines(["A", "B=2", "_c=x=y", "D="]) == {"A": "1", "B": "2", "_c": "x=y", "D": "1"}
    for wrong in ("", "=1", "2A", "A-B=1", "A B"):
        with pytest.raises(ArgumentError, match=r"^--define must look like NAME or NAME=VALUE"):
            _defines([wrong])


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArgumentError, match=r"a\.cu' must be a text: CUDA C\+\+ \(\.cu\) or PTX \(\.ptx\)$"):
        _read(tmp_path / "a.cu")
    with pytest.raises(ArgumentError, match=r"b\.cu' cannot be read: No such file"):
        _read(tmp_path / "b.cu")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("7", (7,)), ("11,20", (11, 20)), ("11x20×3", (11, 20, 3)), (" 4 , 5 ", (4, 5)), ("1,2,3,4", None), ("0", None),
        ("3,0", None), ("", None), ("3,", None), ("-3", None), ("2.5", None), ("x", None),
    ],
)  # fmt: skip
def test_sizes_of_a_launch_are_one_to_three_numbers_above_0(
    text: str, numbers: tuple[int, ...] | None
) -> None:
    if numbers is not None:
        assert triple("--grid", text) == numbers
        return
    with pytest.raises(ArgumentError, match=r"^--grid must be one to 3 numbers above 0"):
        triple("--grid", text)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("42", 42), ("-7", -7), ("0x10", 16), ("0b11", 3), ("1_000", 1000), ("0.5", 0.5), ("1e3", 1000.0), ("-inf", -np.inf),
        ("null", None), ("none", None),
    ],
)  # fmt: skip
def test_a_word_is_a_number_as_python_writes_it_or_a_null_pointer(word: str, value: float | None) -> None:
    found = ArgumentMaker(cast(Any, None), 0).make(3, word, cast(Any, None))
    assert (found.number, found.word, found.value, found.array) == (3, word, value, None)
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    "word", ["", "nul", "12a", "0.5.5", "x[3]", "f32[]", "f32[3", "f32[3]<2", "zeros:s32[3]<2", "s32[3]<0"]
)
def test_a_word_that_is_no_argument_is_refused(word: str) -> None:
    with pytest.raises(TilewiseError, match=r"^--arg "):
        ArgumentMaker(cast(Any, None), 0).make(1, word, cast(Any, None))
