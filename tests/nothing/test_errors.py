"""Wrong use: each mistake is refused in one line that names the argument and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.fake_device import FakeDevice
from tilewise import (
    Epilogue,
    Kernel,
    Launch,
    Module,
    Plan,
    Problem,
    Tile,
    TilewiseError,
    device,
    epilogue,
    gpus,
    linear,
    matmul,
    reference,
)
from tilewise.devices.arguments import pack
from tilewise.errors import (
    ArchError,
    ArgumentError,
    CompileError,
    DeviceUnavailable,
    LaunchError,
    UnknownNameError,
    integer,
    rename_arguments,
)
from tilewise.kernels.spec import Operand
from tilewise.ladder import ladder
from tilewise.launch import LaunchLimits, Parameter, check_launch, dim3
from tilewise.toolchain.compile import compile_source, read_ptx

FAKE = FakeDevice()
GOOD = 'extern "C" __global__ void twice(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }'
OVERLOADED = "__global__ void f(float *x) { *x = 1; }\n__global__ void f(int *x) { *x = 1; }"
BAD = 'extern "C" __global__ void twice(float *x)\n{ *x = 2 * y; }'
TEMPLATE = "template <int N> __global__ void f(float *x) { *x = N; }"
NOTHING = "__device__ int unused() { return 1; }"

F32, U32, U64 = Parameter("p", "f32", 4, 4), Parameter("p", "u32", 4, 4), Parameter("p", "u64", 8, 8)
F16, STRUCT = Parameter("p", "b16", 2, 2), Parameter("p", "b8", 24, 8)
A = np.ones((16, 16), np.float32)
LIMITS = LaunchLimits("the small GPU", 1024, 64 * 1024, clusters=False)
WITH_CLUSTERS = LaunchLimits("the large GPU")


def packed(parameter: Parameter, value: Any) -> object:
    return pack("twice", [parameter], [value], FAKE)


def plan(**changes: Any) -> Plan:
    return Plan.from_dict({**Plan(Problem(1, 2, 3), "h200", "04_tiled").to_dict(), **changes})


def launched(grid: Any, block: Any, limits: LaunchLimits = LIMITS, static: int = 0, **rest: Any) -> None:
    check_launch(Launch(dim3("grid", grid), dim3("block", block), **rest), limits, static)


def compiled(source: str, name: str = "twice", arch: str = "sm_75", **rest: Any) -> object:
    return compile_source(source, [name], arch, **rest)


def twice_given() -> object:
    return pack("twice", [U64, U64], [A, A[:4]], FAKE)


# What is done wrong; the error it must raise; what its first line must say.
Case = tuple[Callable[[], object], type[TilewiseError], tuple[str, ...]]
CASES: dict[str, Case] = {
    # sizes
    "negative m": (lambda: Problem(-1, 2, 3), ArgumentError, ("m must be at least 0", "-1")),
    "m as a float": (lambda: Problem(cast(Any, 2.0), 2, 3), ArgumentError, ("m must be an integer", "2.0")),
    "m as a bool": (lambda: Problem(True, 2, 3), ArgumentError, ("m must be an integer", "True")),
    "k as a text": (lambda: Problem(1, 2, cast(Any, "3")), ArgumentError, ("k must be an integer", "'3'")),
    "negative batch": (lambda: Problem(1, 2, 3, batch=-4), ArgumentError, ("batch", "at least 0", "-4")),
    "empty tile": (lambda: Tile(16, 0, 16), ArgumentError, ("Tile.n", "at least 1", "0")),
    "too large": (lambda: integer("stages", 9, most=8), ArgumentError, ("stages", "at most 8", "9")),
    # types and layouts
    "unknown element type": (
        lambda: Problem(1, 2, 3, a="float23"),
        UnknownNameError,
        ("element type of a", "'float23'", "did you mean"),
    ),
    "unknown accumulator": (
        lambda: Problem(1, 2, 3, accumulate="double"),
        UnknownNameError,
        ("element type of accumulate", "'double'"),
    ),
    "unknown layout": (
        lambda: Problem(1, 2, 3, b_layout=cast(Any, "diagonal")),
        ArgumentError,
        ("b_layout", "'row' or 'column'", "'diagonal'"),
    ),
    "unknown activation": (
        lambda: matmul(np.ones((2, 2)), np.ones((2, 2)), activation="rellu"),
        UnknownNameError,
        ("activation", "'relu'"),
    ),
    "epilogue that uses what is not given": (
        lambda: Epilogue("acc + bias"),
        ArgumentError,
        ("bias", "acc + bias"),
    ),
    "epilogue given what it does not use": (
        lambda: epilogue("acc", bias=1.0),
        ArgumentError,
        ("bias", "a name in the expression"),
    ),
    "bias of a type without a rule": (
        lambda: matmul(np.ones((2, 2)), np.ones((2, 2)), bias=np.ones(2, "longdouble")),
        ArgumentError,
        ("bias must have a type of", "convert it: float64"),
    ),
    "beta without a matrix": (
        lambda: matmul(np.ones((2, 2)), np.ones((2, 2)), beta=2.0),
        ArgumentError,
        ("c", "must be given with beta"),
    ),
    "sums of the columns of a vector": (
        lambda: matmul(np.ones(3), np.ones((3, 4)), epilogue=epilogue("column_sums(p, acc)", p=np.zeros(4))),
        ArgumentError,
        ("p", "of a result with rows and columns", "(4,)"),
    ),
    "weights of another width": (
        lambda: linear(np.ones((2, 3)), np.ones((4, 5))),
        ArgumentError,
        ("weight", "as many columns as x (3)", "(4, 5)"),
    ),
    "epilogue as a text": (
        lambda: Problem(1, 2, 3, epilogue=cast(Any, "relu")),
        ArgumentError,
        ("epilogue",),
    ),
    # plans and problems as JSON
    "problem with a strange field": (
        lambda: Problem.from_dict({"m": 1, "n": 2, "k": 3, "mm": 4}),
        UnknownNameError,
        ("field of a problem", "'mm'"),
    ),
    "problem without k": (lambda: Problem.from_dict({"m": 1, "n": 2}), ArgumentError, ("problem", "'k'")),
    "epilogue as a list": (
        lambda: Problem.from_dict({"m": 1, "n": 2, "k": 3, "epilogue": [1]}),
        ArgumentError,
        ("problem", "cannot be read"),
    ),
    "plan of another format": (
        lambda: plan(format=9),
        ArgumentError,
        ("plan", "format 1", "9", "make it again"),
    ),
    "plan with a strange field": (lambda: plan(stagse=2), UnknownNameError, ("'stagse'", "'stages'")),
    "plan without a kernel": (
        lambda: Plan.from_dict({"format": 1, "problem": {}, "gpu": "h200"}),
        ArgumentError,
        ("plan", "'kernel'"),
    ),
    "plan with a flat tile": (
        lambda: plan(tiles={"block": [1, 2]}),
        ArgumentError,
        ("plan", "cannot be read"),
    ),
    "plan with no tile at all": (lambda: plan(tiles=7), ArgumentError, ("plan", "cannot be read")),
    "plan with a strange level": (
        lambda: plan(tiles={"wrap": [1, 2, 3]}),
        UnknownNameError,
        ("level of a tile", "'wrap'", "'warp'?"),
    ),
    "plan with no problem inside": (lambda: plan(problem=3), ArgumentError, ("plan", "cannot be read")),
    "plan with stages of 0": (lambda: plan(stages=0), ArgumentError, ("stages", "at least 1", "0")),
    "plan with a strange raster": (
        lambda: plan(raster="hilbret"),
        UnknownNameError,
        ("raster", "'hilbert'?"),
    ),
    "plan file that is not there": (
        lambda: Plan.load("/no/plan.json"),
        ArgumentError,
        ("path", "cannot be read"),
    ),
    "plan saved nowhere": (
        lambda: plan().save("/no/plan.json"),
        ArgumentError,
        ("path", "cannot be written: No such file or directory", "'/no/plan.json'"),
    ),
    # names
    "unknown rung": (lambda: ladder["04_tilde"], UnknownNameError, ("rung", "'04_tilde'", "'04_tiled'")),
    "unknown GPU": (lambda: gpus.find("h20O"), UnknownNameError, ("gpu", "'h20O'", "'h200'")),
    "GPU by number": (lambda: gpus.find(cast(Any, 3)), ArgumentError, ("gpu", "3")),
    "unknown device": (lambda: device("cpu"), ArgumentError, ("device", "'cpu'")),
    "device by number": (lambda: device(0), ArgumentError, ("device", "int")),
    "GPU that is not here": (lambda: device("gpu:99"), TilewiseError, ("gpu:99",)),
    "unknown arch": (lambda: compiled(GOOD, arch="sm_76"), ArchError, ("arch 'sm_76'", "'sm_75'", "NVRTC")),
    "arch from before the compiler's": (
        lambda: compiled(GOOD, arch="sm_70"),
        ArchError,
        ("arch", "must be sm_75 or newer", "'sm_70'", "NVRTC", "compiles for sm_75 to"),
    ),
    "GPU from before the compiler's": (
        lambda: ladder["04_tiled"].plan(64, 64, 64, gpu="v100"),
        ArgumentError,
        ("gpu", "must be sm_75 or newer", "compiles for sm_75 to", "v100-sxm-16gb (sm_70)", "tw.occupancy"),
    ),
    "arch as a number": (
        lambda: compiled(GOOD, arch=cast(Any, 75)),
        ArgumentError,
        ("arch", "'sm_90a'", "75"),
    ),
    "arch in other words": (lambda: gpus.arch_capability("turing"), UnknownNameError, ("arch", "'turing'")),
    # sources
    "missing entry": (lambda: compiled(GOOD, "twcie"), UnknownNameError, ("kernel 'twcie'", "'twice'?")),
    "source without a kernel": (
        lambda: compiled(NOTHING),
        ArgumentError,
        ("name", "'twice'", "no __global__"),
    ),
    "overloaded entry": (lambda: compiled(OVERLOADED, "f"), ArgumentError, ("'f' is overloaded", "_Z1fPf")),
    "bad source": (lambda: compiled(BAD), CompileError, ("kernel.cu:2: error:", '"y" is undefined')),
    "bad template": (
        lambda: compiled(GOOD, "twice<3>"),
        CompileError,
        ("name 'twice<3>' is not a kernel of kernel.cu",),
    ),
    "template without arguments": (
        lambda: compiled(TEMPLATE, "f"),
        ArgumentError,
        ("name", "'f'", "'f<32>'"),
    ),
    "empty source": (lambda: Kernel("  ", "f"), ArgumentError, ("source", "empty")),
    "source as bytes": (lambda: Kernel(cast(Any, b"x"), "f"), ArgumentError, ("source", "bytes")),
    "source with a NUL": (lambda: Kernel("int f();\0", "f"), ArgumentError, ("source", "NUL")),
    "empty name": (lambda: Kernel(GOOD, ""), ArgumentError, ("name", "empty")),
    "define with a space": (
        lambda: compiled(GOOD, defines={"MY TILE": 1}),
        ArgumentError,
        ("defines", "identifiers", "'MY TILE'"),
    ),
    "define of a list": (lambda: compiled(GOOD, defines={"T": [1]}), ArgumentError, ("defines['T']", "[1]")),
    "defines as a list": (
        lambda: Kernel(GOOD, "twice", "sm_75", cast(Any, ["T=1"])),
        ArgumentError,
        ("defines", "list"),
    ),
    "options as one text": (
        lambda: Kernel(GOOD, "twice", "sm_75", options="-G"),
        ArgumentError,
        ("options", "list", "str"),
    ),
    "unknown option": (lambda: compiled(GOOD, options=["--no-such"]), CompileError, ("--no-such",)),
    "text that is no PTX": (lambda: read_ptx("hello"), ArgumentError, ("ptx", ".target")),
    "PTX without the kernel": (
        lambda: Kernel.from_ptx(".version 8.0\n.target sm_75\n.entry twice() { ret; }", "twcie"),
        UnknownNameError,
        ("'twcie'", "'twice'?"),
    ),
    # arguments
    "too few arguments": (
        lambda: pack("twice", [U64, U32], [A], FAKE),
        ArgumentError,
        ("args", "2 entries", "u64, u32"),
    ),
    "arguments not in a list": (
        lambda: pack("twice", [U64], cast(Any, A), FAKE),
        ArgumentError,
        ("args", "ndarray"),
    ),
    "float for an integer": (lambda: packed(U32, 1.5), ArgumentError, ("args[0]", "integer", "u32", "1.5")),
    "integer too large": (lambda: packed(U32, 2**32), ArgumentError, ("args[0]", "fit", "4294967296")),
    "integer too small": (lambda: packed(U32, -(2**31) - 1), ArgumentError, ("args[0]", "fit")),
    "float too large": (lambda: packed(F32, 1e39), ArgumentError, ("args[0]", "fit", "f32", "1e+39")),
    "complex number": (lambda: packed(F32, np.complex64(1j)), ArgumentError, ("args[0]", "real")),
    "text for a pointer": (lambda: packed(U64, "x"), ArgumentError, ("args[0]", "device array", "str")),
    "array for a number": (lambda: packed(U32, A), ArgumentError, ("args[0]", "number", "u32", "ndarray")),
    "None for a number": (lambda: packed(U32, None), ArgumentError, ("args[0]", "u32", "not None", "null")),
    "None for a struct": (lambda: packed(STRUCT, None), ArgumentError, ("args[0]", "structured", "NoneType")),
    "without Triton's own two": (
        lambda: pack("twice", [U32, U64, U64], [1], FAKE),
        ArgumentError,
        ("args", "3 entries", "Triton", "None for each"),
    ),
    "short struct": (
        lambda: packed(STRUCT, b"x" * 20),
        ArgumentError,
        ("args[0]", "24 bytes", "20 bytes", "align=True"),
    ),
    "array for a struct": (
        lambda: packed(STRUCT, A),
        ArgumentError,
        ("args[0]", "structured", "24", "ndarray"),
    ),
    "array of objects": (lambda: packed(U64, np.array([{}])), ArgumentError, ("args[0]", "object")),
    "overlapping arrays": (twice_given, ArgumentError, ("args[1]", "overlap")),
    "array of another device": (
        lambda: packed(U64, FakeDevice().array(A)),
        ArgumentError,
        ("args[0]", "must lie on fake", "copy it"),
    ),
    # launches
    "four dimensions": (lambda: dim3("grid", (1, 2, 3, 4)), ArgumentError, ("grid", "one to three")),
    "no dimension": (lambda: dim3("block", ()), ArgumentError, ("block", "one to three")),
    "block as a text": (lambda: dim3("block", cast(Any, "32")), ArgumentError, ("block", "'32'")),
    "empty grid": (lambda: dim3("grid", (4, 0)), ArgumentError, ("grid[y]", "at least 1", "0")),
    "block of floats": (lambda: dim3("block", cast(Any, (1.5, 2))), ArgumentError, ("block[x]", "1.5")),
    "too many threads": (
        lambda: launched(1, (32, 33)),
        LaunchError,
        ("block", "1,024 threads", "the small GPU", "32 × 33 × 1 = 1,056"),
    ),
    "block too deep": (lambda: launched(1, (1, 1, 65)), LaunchError, ("block.z", "64", "65")),
    "grid too high": (lambda: launched((1, 65_536), 1), LaunchError, ("grid.y", "65,535", "65536")),
    "too much shared memory": (
        lambda: launched(1, 32, static=8192, shared=60_000),
        LaunchError,
        ("shared", "65,536", "8,192 static + 60,000 dynamic = 68,192"),
    ),
    "cluster on an old GPU": (
        lambda: launched(4, 32, cluster=(2, 1, 1)),
        LaunchError,
        ("cluster", "9.0 or newer"),
    ),
    "cluster too large": (
        lambda: launched(32, 32, WITH_CLUSTERS, cluster=(32, 1, 1)),
        LaunchError,
        ("cluster", "16 blocks", "32"),
    ),
    "cluster that does not divide": (
        lambda: launched(5, 32, WITH_CLUSTERS, cluster=(2, 1, 1)),
        LaunchError,
        ("grid.x", "multiple of cluster.x = 2", "5"),
    ),
    "kernel launched too large without a GPU": (
        lambda: Kernel(GOOD, "twice", "sm_75")(1, 2048, (A, 1)),
        LaunchError,
        ("block", "2048"),
    ),
    "negative shared bytes": (
        lambda: Kernel(GOOD, "twice", "sm_75")(1, 32, (A, 1), shared=-1),
        ArgumentError,
        ("shared", "-1"),
    ),
    # rungs
    "one block too large": (
        lambda: ladder["02_one_block"](np.ones((33, 4), np.float32), np.ones((4, 32), np.float32)),
        LaunchError,
        ("m*n", "1,024", "33 × 32 = 1,056", "03_simple"),
    ),
    "not whole tiles": (
        lambda: ladder["07_tiled_exact"](np.ones((16, 20), np.float32), np.ones((20, 16), np.float32)),
        ArgumentError,
        ("k must be a whole multiple of the tile, 16", "20", "pad with zeros to 32", "04_tiled"),
    ),
    "unknown setting": (
        lambda: ladder["04_tiled"](A, A, tlie=16),
        UnknownNameError,
        ("setting of 04_tiled", "'tile'?"),
    ),
    "setting of a wrong value": (
        lambda: ladder["04_tiled"](A, A, tile=24),
        ArgumentError,
        ("tile", "32, 16, 8", "24"),
    ),
    "unknown entry of a rung": (
        lambda: ladder["04_tiled"].kernel("sm_75", entry="til"),
        UnknownNameError,
        ("'til'", "'tiled'?"),
    ),
    "operand of another type": (
        lambda: ladder["03_simple"](A.astype(np.float64), A),
        ArgumentError,
        ("a must have elements of type float32", "float64", "a.astype('float32')"),
    ),
    "operand that is no array": (
        lambda: ladder["04_tiled"](A, {1.0}),
        ArgumentError,
        ("b must be an array of NumPy", "set", "use numpy.asarray(b)"),
    ),
    "operand of one dimension": (
        lambda: ladder["04_tiled"](A[0], A),
        ArgumentError,
        ("a", "two dimensions", "(16,)"),
    ),
    "operands that do not fit": (lambda: ladder["04_tiled"](A, A[:8]), ArgumentError, ("b", "16", "(8, 16)")),
    "out of another shape": (
        lambda: ladder["04_tiled"](A, A, out=A[:8]),
        ArgumentError,
        ("out", "(16, 16)", "(8, 16)"),
    ),
    "out of another kind": (
        lambda: ladder["04_tiled"](A, A, out=[1]),
        ArgumentError,
        ("out must be an array of NumPy", "list", "use numpy.asarray(out)"),
    ),
    "out that is read-only": (
        lambda: ladder["04_tiled"](A, A, out=np.broadcast_to(np.float32(0), (16, 16))),
        ArgumentError,
        ("out", "writable"),
    ),
    "rung for an old arch": (
        lambda: ladder["09_warp_tiled"].kernel("sm_75"),
        ArchError,
        ("09_warp_tiled", "sm_80 or newer", "sm_75"),
    ),
    "index past 32 bits": (
        lambda: Operand("a", 70_000, 70_000, 70_000, "float32").check_index("a"),
        ArgumentError,
        ("a must span at most 4,294,967,295 elements (32-bit index)", "4,900,000,000"),
    ),
    "pitch past 32 bits": (
        lambda: Operand("b", 2, 8, 2**32, "float32").check_index("b"),
        ArgumentError,
        ("b must span at most", "32-bit index"),
    ),
    # the yardstick
    "result of another shape": (
        lambda: reference.compare(A[:4], A, A),
        ArgumentError,
        ("result", "(16, 16)", "(4, 16)"),
    ),
    "unknown sums": (
        lambda: reference.compare(A, A, A, accumulate="int8"),
        ArgumentError,
        ("accumulate", "float32", "'int8'"),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_mistake_is_named_in_one_line(case: Case) -> None:
    wrong, kind, said = case
    with pytest.raises(kind) as caught:
        wrong()
    message = str(caught.value)
    first = message.splitlines()[0]
    for part in said:
        assert part in first
    assert "Traceback" not in message
    assert len(first) < 300
    assert isinstance(caught.value, CompileError) or message == first


def test_the_cases_are_many() -> None:
    assert len(CASES) >= 40


def test_gpu_errors_say_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewise.devices.gpu.count", lambda: 0)
    monkeypatch.setattr("tilewise.devices.gpu.why_not", lambda: "no driver; install one")
    with pytest.raises(DeviceUnavailable, match="'gpu:0' cannot be used: no driver; install one"):
        device("gpu:0")
    monkeypatch.setenv("TILEWISE_DEVICE", "gpx")
    with pytest.raises(ArgumentError, match=r"TILEWISE_DEVICE must be .*'gpx'"):
        device()


def test_a_module_is_compiled_when_it_is_made() -> None:
    with pytest.raises(CompileError, match='"y" is undefined'):
        Module(BAD, "sm_80")


@pytest.mark.parametrize(
    ("count", "rest"), [(5, ""), (6, "\n… and 1 more error"), (9, "\n… and 4 more errors")]
)
def test_a_crowd_of_errors_is_cut_short(count: int, rest: str) -> None:
    source = "\n".join(f"__device__ int f{i}() {{ return wrong{i}; }}" for i in range(count))
    with pytest.raises(CompileError) as caught:
        compiled(source)
    assert str(caught.value).count("error:") == 5
    assert str(caught.value).partition("\n…")[1:] == rest.partition("\n…")[1:]


def test_errors_are_what_python_programmers_catch(tmp_path: Path) -> None:
    """A ValueError for a wrong value, a LookupError for an unknown name."""
    with pytest.raises(ValueError, match="at least 0"):
        Problem(-1, 1, 1)
    with pytest.raises(LookupError, match="not known"):
        gpus.find("voodoo")
    (tmp_path / "plan.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match="JSON object"):
        Plan.load(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(ValueError, match="as JSON"):
        Plan.load(tmp_path / "plan.json")


def test_an_argument_whose_repr_fails_is_still_named() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(ArgumentError, match="m must be an integer, not a Broken"):
        Problem(cast(Any, Broken()), 1, 1)


@pytest.mark.parametrize(
    ("count", "end"), [(12, "'n11'"), (13, "'n11' and 1 more"), (20, "'n11' and 8 more")]
)
def test_a_name_like_no_other_is_answered_with_the_first_dozen(count: int, end: str) -> None:
    said = str(UnknownNameError("kernel", "zzzz", [f"n{i}" for i in range(count)]))
    assert "known: 'n0', " in said and said.endswith(end)


@pytest.mark.parametrize(
    ("name", "meant"), [("gelou", "GELU"), ("GEMM_MIAN", "gemm_main"), ("MAIN", "gemm_main")]
)
def test_a_name_is_near_another_however_it_is_capitalised(name: str, meant: str) -> None:
    assert str(UnknownNameError("kernel", name, ["GELU", "gemm_main", "zzzz"])).endswith(
        f"did you mean '{meant}'?"
    )


@pytest.mark.parametrize("length", [1, 77, 78, 79, 80, 500])
def test_a_long_value_is_cut_at_80_characters(length: int) -> None:
    """Of which quotation marks are two, and the sign of what is missing is one."""
    shown = f"'{'y' * length}'" if length <= 78 else f"'{'y' * 78}…"
    assert str(ArgumentError("x", "must be short", "y" * length)) == f"x must be short, not {shown}"
    assert str(UnknownNameError("x", "y" * length, [])) == f"x {shown} is not known; none is known"


@pytest.mark.parametrize("count", [1, 2, 12, 13, 40])
def test_of_many_names_twelve_are_listed(count: int) -> None:
    known = [f"name{i}" for i in range(count)]
    listed = ", ".join(map(repr, known[:12]))
    more = f" and {count - 12} more" if count > 12 else ""
    assert (
        str(UnknownNameError("x", "????????", known)) == f"x '????????' is not known; known: {listed}{more}"
    )


def test_three_names_are_suggested_at_most_those_that_are_near_or_contain_what_was_given() -> None:
    """Whatever their case; at least half of the letters have to be alike, or all of those that were given be in it."""
    near = ["Float16", "float32", "float64", "bfloat16"]
    found = UnknownNameError("x", "FLOAT16", near).fix
    assert found.startswith("did you mean 'Float16' or ") and found.count("'") == 6
    longer = ["a" + "-" * 20 + str(i) for i in range(5)]
    assert UnknownNameError("x", "A-", longer).fix == f"did you mean {' or '.join(map(repr, longer[:3]))}?"
    assert UnknownNameError("x", "abcd", ["abxy"]).fix == "did you mean 'abxy'?"  # two of four
    assert UnknownNameError("x", "abcd", ["axyz"]).fix == "known: 'axyz'"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ArgumentError("b", "must be dense", "sparse", "use b.to_dense()"),
            "weight must be dense, not 'sparse'",
        ),
        (ArgumentError("out", "must not overlap a", fix="copy it"), "out must not overlap x; copy it"),
        (ArgumentError("c", "must be a number", "a"), "c must be a number, not 'a'"),
        (UnknownNameError("b", "x", ["y"]), "b 'x' is not known"),
        (LaunchError("a", "must be small"), "a must be small"),
    ],
)
def test_errors_name_arguments_as_the_caller_does(error: ArgumentError, said: str) -> None:
    with pytest.raises(type(error)) as caught, rename_arguments({"a": "x", "b": "weight"}):
        raise error
    assert str(caught.value).startswith(said)
