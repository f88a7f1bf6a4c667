"""``tilewise run`` of a file: its arguments, its outputs, and what it says of elements that nobody wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.documented import documented_keys
from tilewise.bench.argument_specs import ArgumentMaker, ParsedArgument
from tilewise.bench.outputs import read_expectation
from tilewise.bench.unwritten import fill_with_patterns, find_unset, find_unwritten, list_unwritten
from tilewise.cli import run_command
from tilewise.cli.main import main
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError
from tilewise.kernel import Kernel
from tilewise.launch import Parameter

SOURCE = """
extern "C" __global__ void scale(int n, float factor, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
extern "C" __global__ void odd(unsigned char *y) { y[2 * threadIdx.x + 1] = 7; }
extern "C" __global__ void twice(int *x) { x[threadIdx.x] *= 2; }
extern "C" __global__ void fault(float *y) { if (threadIdx.x > 3) y[1 << 30] = 1; else y[threadIdx.x] = 0; }
"""
POINTER = Parameter("p", "u64", 8, 8)
MATRIX = Parameter("p", "b8", 24, 8)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWISE_DEVICE", "emulator")
    Path("k.cu").write_text(SOURCE)
    np.save("x.npy", np.arange(100, dtype=np.float32))
    return "k.cu"


def scale(blocks: int, x: str = "x.npy", y: str = "new:f32[100]") -> list[str]:
    launch = ["--kernel", "scale", "--grid", str(blocks), "--block", "32", "--arg", "100", "--arg", "2.5"]
    return [*launch, "--arg", x, "--arg", y]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["run", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def run_json(capsys: pytest.CaptureFixture[str], command: str, *argv: str) -> Any:
    assert main([command, *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_output_is_printed_and_saved(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out, _ = run(capsys, file, *scale(4), "-o", "y.npy", "-o", "3=again.npy")
    assert code == 0 and out.startswith("scale of k.cu, on emulator\n") and "not written" not in out
    assert np.array_equal(np.load("y.npy"), 2.5 * np.arange(100, dtype=np.float32))
    assert np.array_equal(np.load("again.npy"), np.load("x.npy"))
    assert "--arg 'new:f32[100]' (number 4), float32 of 100:\n  [0]" in out
    assert run_json(capsys, "run", file, *scale(4), "-o", "3=again.npy")["saved"] == ["again.npy"]
    _, out, _ = run(capsys, file, *scale(4), "--print", "--shared", "1000")
    assert re.search(r"shared bytes +1,000$", out, re.MULTILINE)
    shown = [float(word) for line in out.splitlines() if line.startswith("  [") for word in line.split()[1:]]
    assert shown == [2.5 * i for i in range(100)]


def test_the_device_that_is_named_is_the_only_one_asked(
    capsys: pytest.CaptureFixture[str], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWISE_DEVICE", "gpu:1000")  # what is not named, and cannot be opened
    launch = [file, *scale(4), "--device", "emulator"]
    code, out, err = run(capsys, *launch)
    assert (code, err) == (0, "") and out.startswith("scale of k.cu, on emulator\n")
    assert [run_json(capsys, "run", *launch, *more)["arch"] for more in ([], ["--arch", "sm_80"])] == [
        open_emulator().arch,
        "sm_80",
    ]


def test_an_output_without_elements_is_called_that(capsys: pytest.CaptureFixture[str], file: str) -> None:
    launch = ["--kernel", "scale", "--grid", "1", "--block", "32"]
    code, out, _ = run(
        capsys, file, *launch, *(f"--arg={word}" for word in ("0", "2", "new:f32[0]", "new:f32[3,0]"))
    )
    assert code == 0 and out.count("  no elements\n") == 2
    assert "--arg 'new:f32[3,0]' (number 4), float32 of 3×0:\n  no elements\n" in out


@pytest.mark.parametrize(("columns", "most"), [(20, 6), (76, 6), (77, 7), (87, 8)])
def test_as_many_elements_are_printed_as_a_line_has_room_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: str, columns: int, most: int
) -> None:
    """A label of "[100]", two spaces before it, ten characters for each element; but six at least."""
    monkeypatch.setattr("tilewise.cli.draw.width", lambda: columns)
    _, out, _ = run(capsys, file, *scale(4), "--print")
    rows = [line.split()[1:] for line in out.splitlines() if line.startswith("  [")]
    assert [len(row) for row in rows[:-1]] == [most] * (99 // most) and sum(map(len, rows)) == 100
    assert most == 6 or max(len(line) for line in out.splitlines() if line.startswith("  [")) <= columns


@given(st.integers(0, 40), st.integers(7, 20))
def test_rows_are_left_out_where_there_are_more_than_have_room(count: int, most: int) -> None:
    found = run_command._first_and_last(count, most)
    if count <= most:
        assert found == list(range(count))
    else:
        assert len(found) == most and found[-4:] == [-1, count - 3, count - 2, count - 1]
        assert found[:-4] == list(range(most - 4))


@pytest.mark.parametrize("command", ["run", "check", "profile"])
def test_what_nobody_wrote_is_told(capsys: pytest.CaptureFixture[str], file: str, command: str) -> None:
    assert main([command, file, *scale(3)]) == 0
    told = "note: 4 of 100 elements not written of --arg 'new:f32[100]' (number 4), from [96] to [99]"
    assert told in capsys.readouterr().out
    (item,) = run_json(capsys, command, file, *scale(3))["unwritten"]
    assert (item["argument"], item["count"], item["elements"]) == (4, 4, 100)
    assert (item["first"], item["last"]) == ([96], [99])
    assert run_json(capsys, command, file, *scale(4))["unwritten"] == []


def test_check_knows_of_every_byte(capsys: pytest.CaptureFixture[str], file: str) -> None:
    argv = [file, "--kernel", "odd", "--grid", "1", "--block", "32", "--arg", "new:u8[8,8]"]
    (item,) = run_json(capsys, "check", *argv)["unwritten"]
    assert (item["count"], item["first"], item["last"]) == (32, [0, 0], [7, 6])


def test_nothing_is_told_of_the_outputs_of_a_launch_that_was_ended(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    argv = [file, "--kernel", "fault", "--grid", "1", "--block", "32", "--arg", "new:f32[64]", "--json"]
    assert main(["check", *argv]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["unwritten"] == [] and [item["kind"] for item in found["findings"]] == ["out-of-bounds"]


@pytest.mark.parametrize("name", ["f64", "f32", "f16", "bf16", "e4m3", "e5m2"])
def test_what_a_type_makes_of_more_digits_is_as_expected(tmp_path: Path, name: str) -> None:
    digits = np.random.default_rng(1).uniform(1, 2, 500)
    np.save(tmp_path / "ref.npy", digits)
    output = make(f"new:{name}[500]")
    assert output.array is not None
    expected = read_expectation(str(tmp_path / "ref.npy"), [output], None, None)
    for got, right in ((digits, True), (digits[::-1], False)):
        assert expected.judge(got.astype(output.array.dtype), None).ok is right


@pytest.mark.parametrize(
    ("expected", "blocks", "options", "code"),
    [
        (2.5 * np.arange(100), 4, [], 0),
        (2.5 * np.arange(100), 3, [], 1),  # the last four are not written
        (2.5 * np.arange(100) * (1 + 5e-5), 4, [], 1),
        (2.5 * np.arange(100) * (1 + 5e-5), 4, ["--rtol", "1e-4"], 0),
        (2.5 * np.arange(100) + 0.5, 4, ["--atol", "0.6", "--rtol", "0"], 0),
        (np.where(np.arange(100) == 7, np.nan, 2.5 * np.arange(100)), 4, [], 1),
        (np.where(np.arange(100) == 7, np.inf, 2.5 * np.arange(100)), 4, [], 1),  # no number is near it
    ],
)
def test_an_output_is_compared(
    capsys: pytest.CaptureFixture[str], file: str, expected: Any, blocks: int, options: list[str], code: int
) -> None:
    np.save("ref.npy", expected)
    found, out, _ = run(capsys, file, *scale(blocks), "--expect", "ref.npy", *options)
    assert found == code and ("correct: " in out) == (not code) and ("WRONG: " in out) == bool(code)


def test_what_is_not_written_is_wrong_whatever_it_holds(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """The very values that the memory held before."""
    made = ArgumentMaker(open_emulator(), 5).make(4, "new:f32[100]", POINTER)
    np.save("held.npy", np.nan_to_num(fill_with_patterns([made], 5)[4]))
    argv = [file, *scale(3), "--seed", "5", "--expect", "held.npy", "--atol", "1e30"]
    code, out, _ = run(capsys, *argv)
    assert code == 1 and "4 of 100 elements not within" in out and "not written, expected" in out


def test_integers_have_to_be_equal(capsys: pytest.CaptureFixture[str], file: str) -> None:
    argv = [file, "--kernel", "twice", "--grid", "1", "--block", "8", "--arg", "x.npy"]
    np.save("x.npy", np.arange(8, dtype=np.int32) + 2**30 - 9)
    np.save("ref.npy", 2 * np.load("x.npy"))
    assert run(capsys, *argv, "--expect", "ref.npy")[0] == 0
    np.save("ref.npy", 2 * np.load("x.npy") + (np.arange(8) == 3))
    code, out, _ = run(capsys, *argv, "--expect", "1=ref.npy", "--rtol", "1")
    assert code == 1 and "1 of 8 elements not equal; the first at [3]" in out


@pytest.mark.parametrize("command", ["run", "profile"])
def test_a_fault_tells_its_seed(capsys: pytest.CaptureFixture[str], file: str, command: str) -> None:
    argv = [file, "--kernel", "fault", "--grid", "1", "--block", "32", "--arg", "f32[64]", "--json"]
    assert main([command, *argv, "--seed", "77"]) == 1
    out, err = capsys.readouterr()
    assert err.endswith("\n--seed 77 makes the same arguments again\n") and "out-of-bounds" in err
    found = json.loads(out)
    assert (found["exit_code"], found["error"]["kind"]) == (1, "KernelFault")
    assert found["error"]["notes"] == ["--seed 77 makes the same arguments again"]


def test_an_edited_rung(capsys: pytest.CaptureFixture[str], file: str) -> None:
    """As printed, with matrices as words, it is what float64 says; with an edit that spoils it, it is not."""
    main(["ladder", "04_tiled", "--source"])
    source = capsys.readouterr().out
    launch = ["--grid", "3,2", "--block", "32,32", "--arg", "matrix:f32[50,40]", "--arg", "matrix:f32[40,70]"]
    launch += ["--arg", "matrix:new:f32[50,70]", "--expect", "1@2"]
    Path("mine.cu").write_text(source)
    code, out, _ = run(capsys, "mine.cu", *launch)
    assert code == 0 and "all 3,500 elements within the bound" in out
    Path("mine.cu").write_text(source.replace("sum += widen", "sum -= widen"))
    assert run(capsys, "mine.cu", *launch)[0] == 1
    grid = [word.replace("3,2", "2,2") for word in launch]
    Path("mine.cu").write_text(source)
    code, out, _ = run(capsys, "mine.cu", *grid)
    assert code == 1 and "300 of 3,500 elements not written" in out


def test_json_of_a_run(capsys: pytest.CaptureFixture[str], file: str) -> None:
    found = run_json(capsys, "run", file, *scale(3), "--seed", "3", "--print")
    assert (found["kernel"], found["grid"], found["seed"], found["correct"]) == ("scale", [3, 1, 1], 3, None)
    (result,) = found["results"]
    assert (result["argument"], result["type"], result["shape"]) == (4, "float32", [100])
    assert result["values"] == [*(2.5 * i for i in range(96)), *[None] * 4]


def test_an_array_that_is_as_it_was_is_no_result(capsys: pytest.CaptureFixture[str], file: str) -> None:
    np.save("x.npy", np.where(np.arange(100) % 3, np.nan, 1).astype(np.float32))
    assert [result["argument"] for result in run_json(capsys, "run", file, *scale(4))["results"]] == [4]
    np.save("y.npy", np.full(100, -0.0, np.float32))
    np.save("x.npy", np.zeros(100, np.float32))
    found = run_json(capsys, "run", file, *scale(4, y="y.npy"))  # what was -0 is 0 now
    assert [result["argument"] for result in found["results"]] == [4]
    printed = run_json(capsys, "run", file, *scale(4, y="y.npy"), "--print", "3")["results"]
    assert [(one["argument"], len(one["values"])) for one in printed] == [
        (3, 100),
        (4, 8),
    ]  # one that is asked for is


def test_json_has_the_keys_that_are_documented(capsys: pytest.CaptureFixture[str], file: str) -> None:
    np.save("ref.npy", 2.5 * np.arange(100))
    main(["run", file, *scale(3), "--expect", "ref.npy", "--json"])
    ran = json.loads(capsys.readouterr().out)
    checked = run_json(capsys, "check", file, *scale(3))
    profiled = run_json(capsys, "profile", file, *scale(3), "--seconds", "1")
    sliced = run_json(capsys, "profile", file, *scale(3), "--occupancy")
    assert (
        main(
            [
                "check",
                file,
                "--kernel",
                "fault",
                "--grid",
                "1",
                "--block",
                "32",
                "--arg",
                "new:f32[64]",
                "--json",
            ]
        )
        == 1
    )
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    for row, found in (
        ("`run` of a file", ran), ("`check`", checked), ("`profile`", profiled), ("`profile --occupancy`", sliced),
    ):  # fmt: skip
        assert {*found} - {"schema", "command"} == documented_keys(row)
    for row, found in (
        ("`findings`", finding), ("`now`, `before`", finding["now"]), ("`unwritten`", checked["unwritten"][0]),
        ("`results`", ran["results"][0]), ("`expected`", ran["expected"][0]),
    ):  # fmt: skip
        assert {*found} == documented_keys(row)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["-o", "5=y.npy"], "-o must name an array by the number of its --arg, not 5; 3 for x.npy, 4 for new:f32[100]"),
        (["-o", "no/y.npy"], "-o must lie in a folder that exists"),
        (["--expect", "none.npy"], "--expect 'none.npy' cannot be read: No such file"),
        (["--expect", "k.cu"], "--expect 'k.cu' must be a file that np.save wrote"),
        (["--expect", "short.npy"], "must have the shape (100,)"),
        (["--expect", "1@2"], "must name two matrices that were given"),
        (["--rtol", "0.1"], "--rtol and --atol are tolerances of --expect"),
        (["--atol", "0.1"], "--rtol and --atol are tolerances of --expect"),
        (["--print", "1"], "--print must name an array"),
        (["-m", "3"], "-m is for rungs"),
        (["-D", "3=4"], "--define must look like NAME or NAME=VALUE, not '3=4'"),
    ],
)  # fmt: skip
def test_wrong_use(capsys: pytest.CaptureFixture[str], file: str, options: list[str], told: str) -> None:
    np.save("short.npy", np.zeros(3))
    code, out, err = run(capsys, file, *scale(4), *options)
    assert (code, out) == (2, "") and told in err


def test_the_only_kernel_of_a_file_needs_no_name(capsys: pytest.CaptureFixture[str], file: str) -> None:
    """Declared beforehand, behind attributes, and beside others that are comments."""
    Path("one.cu").write_text(
        "__global__ void k(int *y); // __global__ void old(int *y) {}\n/* __global__ void older() {} */\n"
        "__global__ void __launch_bounds__(32 * (1 + 1)) __cluster_dims__(2) k(int *y) { y[blockIdx.x] = 5; }\n"
    )
    argv = ["one.cu", "--arch", "sm_90", "--grid", "2", "--block", "32", "--arg"]
    assert run(capsys, *argv, "new:s32[2]")[0] == 0
    code, _, err = run(capsys, *argv, "null")
    assert (
        code == 1 and "write of 4 bytes at global address 0x0: a null pointer, or a place near one\n" in err
    )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", "--kernel must name an instance of k<…>; a template is named with its arguments, such as"),
        (
            SOURCE,
            "--kernel must be given, as k.cu has several: k<…>, scale, odd, twice, fault; a template is",
        ),
    ],
)
def test_a_template_is_named_with_its_arguments(
    capsys: pytest.CaptureFixture[str], file: str, more: str, told: str
) -> None:
    Path(file).write_text("template <int N> __global__ void k(int *y) { *y = N; }\n" + more)
    argv = [file, "--grid", "1", "--block", "1", "--arg", "zeros:s32[1]"]
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "") and told in err
    assert run(capsys, *argv, "--kernel", "k<7>")[0] == 0


def test_a_launch_has_the_shared_memory_and_the_time_that_are_given(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    Path(file).write_text(
        '__global__ void k(unsigned *y) { asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(*y)); }\n'
        "__global__ void endless(unsigned *y) { while (true) { y[0] += 1; __threadfence(); } }\n"
    )
    argv = [file, "--grid", "1", "--block", "1", "--arg", "zeros:u32[1]", "--kernel"]
    found = run_json(capsys, "run", *argv, "k", "--shared", "48", "--print")
    assert found["results"][0]["values"] == [48]
    code, _, err = run(capsys, *argv, "endless", "--timeout", "0.1")
    assert code == 1 and "0.1 s" in err


def test_of_several_outputs_one_has_to_be_named(capsys: pytest.CaptureFixture[str], file: str) -> None:
    argv = [file, *scale(4, y="zeros:f32[100]")]
    code, _, err = run(capsys, *argv, "-o", "y.npy")
    assert code == 2 and "-o must say which array, by the number of its --arg; 3 for x.npy, 4 for" in err
    assert run(capsys, *argv, "-o", "4=y.npy")[0] == 0


def test_options_of_files_are_refused_for_rungs(capsys: pytest.CaptureFixture[str]) -> None:
    for options, told in ((["-o", "y.npy"], "--output is for files"), (["--print"], "--print is for files")):
        code, _, err = run(capsys, "04_tiled", *options)
        assert code == 2 and told in err


# ── arguments ──


def make(word: str, seed: int = 1, parameter: Parameter = POINTER) -> ParsedArgument:
    return ArgumentMaker(open_emulator(), seed).make(1, word, parameter)


@given(
    st.sampled_from(["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]),
    st.integers(1, 700),
    st.none() | st.integers(1, 900),
)
@settings(max_examples=60, deadline=None)
def test_integers_differ_and_are_indices(name: str, count: int, below: int | None) -> None:
    made = make(f"{name}[{count}]" + (f"<{below}" if below else ""))
    assert made.before is not None
    values = made.before
    limit = min(below or 2**63, int(np.iinfo(values.dtype).max) + 1)
    assert values.min() >= 0 and int(values.max()) < min(limit, count)
    assert len(np.unique(values)) == min(count, limit)
    assert np.array_equal(values, make(made.word).before)  # type: ignore[arg-type]


def test_a_race_of_integers_is_seen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Equal values would make it none."""
    file = tmp_path / "race.cu"
    file.write_text(
        "__global__ void f(const int *x, int *y) { __shared__ int s; s = x[threadIdx.x]; __syncthreads(); *y = s; }"
    )
    argv = [str(file), "--grid", "1", "--block", "64", "--arg", "s32[64]", "--arg", "new:s32[1]"]
    assert main(["check", *argv]) == 1
    assert "racecheck: two threads write at shared address" in capsys.readouterr().out


@pytest.mark.parametrize(
    "word", ["s32[4]<0", "f32[4]<3", "new:s32[4]<3", "matrix:f32[4]", "matrix:f32[4,5]x", "q32[4]"]
)
def test_words_that_mean_nothing(capsys: pytest.CaptureFixture[str], file: str, word: str) -> None:
    code, _, err = run(capsys, file, "--kernel", "twice", "--grid", "1", "--block", "1", "--arg", word)
    assert code == 2 and err.startswith("tilewise: error: --arg")


def test_a_matrix_is_a_struct_of_its_sizes_and_its_address() -> None:
    made = make("matrix:zeros:f16[3,5]", parameter=MATRIX)
    assert made.array is not None and made.before is not None and made.before.shape == (3, 5)
    words = np.frombuffer(made.value, np.uint32)
    assert [*words[:3]] == [5, 3, 5] and int(np.frombuffer(made.value, np.uint64)[2]) == made.array.ptr


def test_a_matrix_has_fewer_elements_than_an_index_has_numbers() -> None:
    class Endless:
        def empty(self, shape: tuple[int, ...], _dtype: object) -> Any:
            return SimpleNamespace(shape=shape, ptr=4096)

    maker = ArgumentMaker(cast(Any, Endless()), 1)
    assert maker.make(1, "matrix:new:u8[65535,65537]", MATRIX).value
    with pytest.raises(ArgumentError, match="less than 2³² elements"):
        maker.make(1, "matrix:new:u8[65536,65536]", MATRIX)


def test_numbers_are_as_python_writes_them() -> None:
    words = {
        "42": 42,
        "-3": -3,
        "0x20": 32,
        "0b11": 3,
        "1_000": 1000,
        "0.5": 0.5,
        "1e3": 1000.0,
        "null": None,
    }
    for word, value in words.items():
        assert (made := make(word).value) == value and type(made) is type(value)


# ── what nobody wrote ──

TYPES = ["f64", "f32", "f16", "bf16", "e4m3", "e5m2", "u8", "s16", "u32", "s64"]


@given(st.sampled_from(TYPES), st.integers(1, 400), st.data())
@settings(max_examples=60, deadline=None)
def test_patterns_tell_what_is_written(name: str, count: int, data: st.DataObject) -> None:
    """A run of elements that is left out is found, and nothing else, whatever is written elsewhere: NaN too."""
    start = data.draw(st.integers(0, count))
    end = data.draw(st.integers(start, count))
    made = make(f"new:{name}[{count}]")
    assert made.array is not None
    patterns = fill_with_patterns([made], 1)
    values = made.array.numpy()
    usual = np.zeros(count) if values.dtype.kind in "iu" else np.where(np.arange(count) % 2, np.nan, 1.0)
    written = np.ones(count, bool)
    written[start:end] = False
    bits = f"uint{8 * values.itemsize}"
    # NOTE: what is written may be the pattern by chance, one in 256 of bytes: beside the run it could not be told from it.
    chance = usual.astype(values.dtype).view(bits) == patterns[1].view(bits)
    usual[chance] = 2
    values[written] = usual.astype(values.dtype)[written]
    made.array.fill(values)
    found = find_unwritten([made], patterns)[1]
    assert not (found & written).any()
    if end - start >= 4:  # of 8-bit integers fewer may be chance
        assert np.array_equal(found, ~written)
        (told,) = list_unwritten([made], {1: found})
        assert (told.count, told.first, told.last) == (end - start, (start,), (end - 1,))


@pytest.mark.parametrize(("name", "least"), [("u8", 4), ("s16", 2), ("u32", 1), ("bf16", 1)])
def test_four_bytes_of_a_pattern_are_no_chance(name: str, least: int) -> None:
    for length in range(1, 6):
        made = make(f"new:{name}[40]")
        pattern = fill_with_patterns([made], 1)[1]
        assert made.array is not None
        bits = ~pattern.view(f"uint{8 * pattern.itemsize}")
        bits[7 : 7 + length] = pattern.view(bits.dtype)[7 : 7 + length]
        made.array.fill(bits.view(pattern.dtype))
        found = np.flatnonzero(find_unwritten([made], {1: pattern})[1])
        assert found.tolist() == ([*range(7, 7 + length)] if length >= least else [])


def test_no_pattern_is_the_nan_that_a_gpu_gives() -> None:
    for name, canonical in (
        ("f32", 0x7FFFFFFF),
        ("f16", 0x7FFF),
        ("bf16", 0x7FFF),
        ("e4m3", 0x7F),
        ("e5m2", 0x7F),
    ):
        made = make(f"new:{name}[4096]")
        pattern = fill_with_patterns([made], 9)[1]
        assert np.isnan(pattern.astype(np.float32)).all()
        assert not (pattern.view(f"uint{8 * pattern.itemsize}") == canonical).any()


def test_a_view_of_an_array_tells_what_of_it_is_unset() -> None:
    kernel = Kernel(SOURCE, "odd", "sm_80")
    array = open_emulator().empty((8, 8), "uint8")
    assert array.unset.all()
    kernel.check(1, 8, [array])
    assert array.unset.sum() == 64 - 8 and not array[:2, 1::2].unset.any() and array[2:].unset.all()
    assert find_unset([ParsedArgument(1, "", array, array)])[1].shape == (8, 8)


def test_bfloat16_is_saved_as_float32(capsys: pytest.CaptureFixture[str], file: str) -> None:
    Path("b.cu").write_text(
        "__global__ void f(const unsigned short *x, unsigned short *y) { y[threadIdx.x] = x[threadIdx.x]; }"
    )
    argv = ["b.cu", "--grid", "1", "--block", "8", "--arg", "bf16[8]", "--arg", "new:bf16[8]", "-o", "y.npy"]
    assert run(capsys, *argv, "--seed", "2")[0] == 0
    given = make("bf16[8]", seed=2).before
    assert given is not None and given.dtype == ml_dtypes.bfloat16
    assert np.array_equal(np.load("y.npy"), given.astype(np.float32))
