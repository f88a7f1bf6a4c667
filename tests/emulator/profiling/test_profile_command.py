"""``tilewise profile``: rungs and files, and what it prints; a profiler of the hardware beside it."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.terminal import in_terminal
from tilewise.bench import hardware
from tilewise.bench.hardware import DURATION, RungLaunch, compare_with_measured, find_ncu, measure, read_raw
from tilewise.cli import draw, profile_command
from tilewise.cli.main import main
from tilewise.cli.parser import parse
from tilewise.errors import DeviceUnavailable, ToolError
from tilewise.instruments.line_figures import LineFigures
from tilewise.ladder import ladder

CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
SOURCE = """
__global__ void copy(const float *from, float *to, int words) {
    __shared__ float s[1024];
    s[words * threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = s[words * threadIdx.x];
}
"""


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["profile", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_published_figures_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys,
        "05_tiled_conflicted",
        "-m",
        "640",
        "-n",
        "352",
        "-k",
        "448",
        "--gpu",
        "rtx-2060-super",
        "--csv",
    )
    rows = {row["Metric Name"]: row["Metric Value"] for row in csv.DictReader(io.StringIO(out))}
    assert code == 0
    assert rows[f"{CONFLICTS}.sum"] == "28,188,160" and rows[f"{CONFLICTS}.avg"] == "829,063.53"
    assert rows[f"{CONFLICTS}.max"] == "896,896" and rows[f"{CONFLICTS}.min"] == "768,768"


def test_json_and_patterns(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("04_tiled", "-m", "64", "-n", "64", "-k", "32", "--gpu", "a100")
    code, out, _ = run(capsys, *argv, "--json", "--metrics", f"{CONFLICTS}.*,launch__grid_size")
    found = json.loads(out)
    assert code == 0 and found["level"] == "machine code"
    assert list(found["metrics"]) == [
        *(f"{CONFLICTS}.{way}" for way in ("avg", "max", "min", "sum")),
        "launch__grid_size",
    ]
    code, _, err = run(capsys, *argv, "--metrics", "l2tex__nothing")
    assert code == 2 and "l2tex__nothing" in err


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("-m", "64", "-n", "64", "-k", "32", "--gpu", "rtx-2060-super")
    _, out, _ = run(capsys, "04_tiled", *argv)
    assert "limited by registers and warps" in out and "roofline of tiled" in out and "1,638" in out
    _, out, _ = run(capsys, "05_tiled_conflicted", *argv, "--lines", "--most", "1")
    head, line = out.splitlines()
    assert head.split()[:3] == ["instructions", "wavefronts", "conflicts"]
    assert "rung_05_tiled_conflicted.cu:36" in line and "sum += a_tile" in line
    _, out, _ = run(capsys, "--compare", "04_tiled", "05_tiled_conflicted", *argv)
    assert out.splitlines()[3].split()[:2] == ["04_tiled", "05_tiled_conflicted"]
    _, out, _ = run(capsys, "04_tiled", *argv, "--occupancy")
    assert out.startswith("\noccupancy of tiled\n") and "__" not in out
    _, out, _ = run(capsys, "03_simple", *argv)
    assert [line.split()[2:] for line in out.splitlines() if line.startswith("shared memory")] == [["0", "0"]]


class Figures(dict[str, float]):
    """A profile's metrics, and its line about the launch."""

    def __init__(self, title: str, **figures: float) -> None:
        super().__init__(figures)
        self.title = self.kernel = title

    def __str__(self) -> str:
        return f"{self.title}: 4 blocks"

    def select(self, _patterns: object) -> None: ...


@pytest.mark.parametrize("narrow", [False, True])
def test_a_comparison_names_both_launches_above_its_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, narrow: bool
) -> None:
    """With a line between that is empty, also where a terminal is too narrow for the metrics' names beside figures."""
    monkeypatch.setattr(draw, "fits", lambda _text: not narrow)
    found: Any = [
        SimpleNamespace(name=name, profile=Figures(name, one__sum=1234.0, other__sum=figure))
        for name, figure in (("first", 2.0), ("second", 3.0))
    ]
    profile_command._print_comparison(found, ["one__sum", "other__sum"])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["first:", "4", "blocks"], ["second:", "4", "blocks"], [],
        ["first", "second", "ratio"], ["one__sum", "1,234", "1,234", "1"], ["other__sum", "2", "3", "1.5"],
    ]  # fmt: skip


def test_lines_of_every_level(capsys: pytest.CaptureFixture[str]) -> None:
    argv = (
        "05_tiled_conflicted",
        "-m",
        "32",
        "-n",
        "32",
        "-k",
        "32",
        "--gpu",
        "rtx-2060-super",
        "--most",
        "2",
    )
    for level, mark in (("cuda", ".cu:"), ("ptx", "PTX:"), ("machine", "machine code:0x")):
        _, out, _ = run(capsys, *argv, "--lines", level)
        head, *lines = out.splitlines()
        assert "conflicts" in head and len(lines) == 2 and all(mark in line for line in lines)
        first, second = (int(line.split()[2].replace(",", "")) for line in lines)
        assert first >= second > 0


def test_sections_behind_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Occupancy, bytes by level and the roofline, by figures that are known by hand."""
    argv = ("05_tiled_conflicted", "-m", "64", "-n", "64", "-k", "32", "--gpu", "rtx-2060-super")
    _, out, _ = run(capsys, *argv)
    text = " ".join(out.split())
    for told in (
        "blocks on an SM 1, limited by registers and warps",
        "limits registers 1, shared 4, warps 1, blocks 16",
        "warps 32 of 32: 100.0%",
        "threads 1,024; registers divided alone would say",
        "1 block with one register less; none would give one more",
        "1 block with one KiB less; none would give one more",
        f"waves {4 / 34:.7g}",
        "shared memory 1,048,576 32,768",  # a warp reads two floats for each of 64 · 64 · 32 / 32 products
        "global memory, by sectors 32,768 16,384",
        "fp32 arithmetic",
        "bound L1 and shared memory:",
    ):
        assert told in text, told
    assert "exact" not in text.partition(", by level")[2]  # what is estimated says so
    _, out, _ = run(capsys, *argv, "--occupancy")
    text = " ".join(out.split())
    assert text.startswith("occupancy of") and "bytes of" not in text and "roofline of" not in text
    _, out, _ = run(capsys, *argv, "--metrics", "launch__grid_size")
    assert "occupancy of" not in out and "roofline of" not in out and "bytes of" not in out


def test_two_side_by_side_as_json_and_csv(capsys: pytest.CaptureFixture[str]) -> None:
    argv = (
        "--compare",
        "04_tiled",
        "05_tiled_conflicted",
        "-m",
        "64",
        "-n",
        "64",
        "-k",
        "32",
        "--gpu",
        "a100",
    )
    alone = [run(capsys, name, *argv[3:], "--metrics", f"{CONFLICTS}.sum", "--json")[1] for name in argv[1:3]]
    code, out, _ = run(capsys, *argv, "--metrics", f"{CONFLICTS}.sum", "--json")
    both = json.loads(out)["profiles"]
    for one in both:
        one.update(schema=1, command="profile")
    assert code == 0 and both == [json.loads(one) for one in alone]
    assert [item["kernel"] for item in both] == ["tiled", "tiled_conflicted"]
    plain, conflicted = (item["metrics"][f"{CONFLICTS}.sum"]["value"] for item in both)
    assert plain == 0 < conflicted
    code, out, _ = run(capsys, *argv, "--occupancy", "--json")
    assert code == 2
    code, out, _ = run(capsys, *argv, "--metrics", f"{CONFLICTS}.sum", "--csv")
    assert code == 0 and [row[-1] for row in csv.reader(io.StringIO(out))][1::2] == [
        "0",
        f"{conflicted:,.0f}",
    ]


@pytest.mark.parametrize("more", [[], ["--gpu", "a100"], ["--set", "tile=16"]], ids=str)
def test_the_occupancy_as_plain_data_is_the_profiles(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("04_tiled", "-m", "64", "-n", "32", "-k", "32", *more)
    code, out, _ = run(capsys, *argv, "--occupancy", "--json")
    given = {"--gpu": {"gpu": "a100"}, "--set": {"tile": 16}}[more[0]] if more else {}
    profile = ladder["04_tiled"].profile(64, 32, 32, **given)  # type: ignore[arg-type]
    assert profile.occupancy is not None
    assert code == 0 and json.loads(out) == {
        "schema": 1,
        "command": "profile",
        "target": "04_tiled",
        "kernel": profile.kernel,
        "occupancy": json.loads(json.dumps(profile.occupancy.to_dict())),
        "spills": None,
    }


@pytest.mark.parametrize("given", [{}, {"m": 96}, {"n": 96}, {"k": 96}], ids=str)
def test_a_rung_whose_size_is_not_given_multiplies_512_by_512_by_256(
    given: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    few = [f"-{name}={size}" for name, size in given.items()]
    every = [f"-{name}={size}" for name, size in ({"m": 512, "n": 512, "k": 256} | given).items()]
    argv = ("04_tiled", "--sample", "1", "--json")
    code, out, _ = run(capsys, *argv, *few)
    assert (code, out) == run(capsys, *argv, *every)[:2] and code == 0


FAULTY = """
__global__ void beyond(float *x) { x[threadIdx.x + 16] = 1; }
__global__ void endless(float *x) { while (true) { x[0] += 1; __threadfence(); } }
"""


@pytest.mark.parametrize(
    ("name", "told", "form"),
    [
        *(
            ("beyond", "out-of-bounds write", [form] if form else [])
            for form in ("", "--json", "--csv", "--lines")
        ),
        ("beyond", "out-of-bounds write", ["--occupancy"]),
        ("endless", "0.2 s", ["--timeout", "0.2"]),
    ],
)
def test_a_launch_that_fails_ends_with_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, told: str, form: list[str]
) -> None:
    file = tmp_path / "faulty.cu"
    file.write_text(FAULTY)
    launch = ["--kernel", name, "--grid", "1", "--block", "32", "--arg", "f32[32]"]
    code, out, err = run(capsys, str(file), *launch, *form)
    assert code == 1 and told in out + err and name in out + err
    assert out == "" or form == ["--json"]


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A source and the PTX of one, the launch in words."""
    file = tmp_path / "copy.cu"
    file.write_text(SOURCE)
    launch = ("--grid", "2", "--block", "32", "--arg", "f32[32]", "--arg", "f32[32]", "--arg", "4")
    code, out, _ = run(
        capsys, str(file), *launch, "--arch", "sm_80", "--metrics", f"{CONFLICTS}.sum", "--json"
    )
    assert code == 0 and json.loads(out)["metrics"][f"{CONFLICTS}.sum"]["value"] == 2 * (3 + 3)
    ptx = tmp_path / "tiled.ptx"
    ptx.write_text(ladder["03_simple"].kernel("sm_80").ptx)
    code, _, err = run(capsys, str(ptx), "--grid", "1", "--block", "32")
    assert code == 2 and "--arg must be given 3 times, for b8 of 24 bytes" in err
    code, _, err = run(capsys, str(file), "--block", "32")
    assert code == 2 and "--grid" in err
    code, _, err = run(capsys, str(file), *launch[:4], "--arg", "f33[3]", "--arg", "null", "--arg", "1")
    assert code == 2 and "f32" in err
    for name, content in (("none.cu", None), ("binary.cu", b"\x7fELF\xff\xfe")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        code, _, err = run(capsys, str(tmp_path / name))
        assert code == 2 and "file" in err
    assert run(capsys)[0] == 2


OF_A_LAUNCH = {  # the word before it, and what it is read as: of a first launch, and of a second
    "m": (("-m", "3", 3), ("-m", "5", 5)),
    "set": (("--set", "tile=16", ["tile=16"]), ("--set", "tile=8", ["tile=8"])),
    "kernel": (("--kernel", "one", "one"), ("--kernel", "other", "other")),
    "grid": (("--grid", "4", "4"), ("--grid", "8,8", "8,8")),
    "shared": (("--shared", "8", 8), ("--shared", "0", 0)),
    "define": (("--define", "A=1", ["A=1"]), ("-D", "B=2", ["B=2"])),
    "include": (("--include", "x", ["x"]), ("-I", "y", ["y"])),
    "arg": (("--arg", "f32[8]", ["f32[8]"]), ("--arg", "7", ["7"])),
    "arch": (("--arch", "sm_80", "sm_80"), ("--arch", "sm_90", "sm_90")),
}


@given(st.sets(st.sampled_from(sorted(OF_A_LAUNCH))), st.sets(st.sampled_from(sorted(OF_A_LAUNCH))))
def test_a_second_launch_is_the_first_but_for_what_is_given(first: set[str], second: set[str]) -> None:
    words = [word for name in sorted(first) for word in OF_A_LAUNCH[name][0][:2]]
    others = [word for name in sorted(second) for word in OF_A_LAUNCH[name][1][:2]]
    parsed = parse(["profile", "--compare", "a.cu", "b.cu", *words, "--second", *others])
    defaults = vars(parse(["profile", "--compare", "a.cu", "b.cu"]))
    for name, (one, two) in OF_A_LAUNCH.items():
        own = one[2] if name in first else defaults[name]
        assert getattr(parsed, name) == own
        assert getattr(parsed.second, name) == (two[2] if name in second else own)


def test_two_kernels_of_a_file_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What follows --second is of the second launch alone, whose data are the first's."""
    file = tmp_path / "two.cu"
    file.write_text(
        "__global__ void one(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }\n"
        "__global__ void other(const float *x, float *y, int n) { y[n * threadIdx.x] = x[n * threadIdx.x]; }\n"
    )
    first = ["--kernel", "one", "--grid", "1", "--block", "64", "--arg", "f32[64]", "--arg", "new:f32[64]"]
    second = [
        "--kernel",
        "other",
        "--grid",
        "3",
        "--block",
        "32",
        "--arg",
        "f32[256]",
        "--arg",
        "new:f32[256]",
    ]
    argv = ["--compare", str(file), str(file), *first, "--second", *second, "--arg", "8"]
    code, out, _ = run(capsys, *argv, "--json", "--metrics", "launch__grid_size,launch__block_size")
    found = json.loads(out)["profiles"]
    assert code == 0 and [item["kernel"] for item in found] == ["one", "other"]
    assert [item["metrics"]["launch__grid_size"]["value"] for item in found] == [1, 3]
    assert [item["metrics"]["launch__block_size"]["value"] for item in found] == [64, 32]
    assert [len(item["unwritten"]) for item in found] == [0, 1] and found[0]["seed"] == found[1]["seed"]
    code, out, _ = run(capsys, *argv)
    assert code == 0 and ["one", "other", "ratio"] in [line.split() for line in out.splitlines()]
    assert "note: other: 224 of 256 elements not written" in out
    code, out, _ = run(capsys, "--compare", "04_tiled", "04_tiled", "-m", "32", "-n", "32", "-k", "32", "--second",
                       "-m", "64", "--set", "tile=16", "--json")  # fmt: skip
    assert [item["grid"] for item in json.loads(out)["profiles"]] == [[1, 1, 1], [2, 4, 1]]


def test_arrays_of_a_file_and_definitions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Indices come from a file, an output is not set before, a width is defined on the command line."""
    file = tmp_path / "gather.cu"
    file.write_text(
        "__global__ void gather(const float *x, const int *where, float *y) {\n"
        "    y[threadIdx.x] = x[WIDTH * where[threadIdx.x]];\n}\n"
    )
    np.save(tmp_path / "where.npy", np.arange(32, dtype=np.int32)[::-1].copy())
    launch = ["--grid", "1", "--block", "32", "-D", "WIDTH=8", "--seed", "1", "--arg", "f32[256]"]
    launch += ["--arg", str(tmp_path / "where.npy"), "--arg", "new:f32[32]"]
    code, out, _ = run(capsys, str(file), *launch, "--json")
    sectors = json.loads(out)["metrics"]["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]["value"]
    assert (code, sectors) == (0, 32 + 4)
    code, _, err = run(capsys, str(file), *launch[:-3], str(tmp_path / "no.npy"), "--arg", "null")
    assert code == 2 and "no.npy" in err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["04_tiled", "--metrics", "smsp__inst_executed, nope"], "'nope' is not known"),
        (["04_tiled", "--metrics", "regex:("], "cannot be read"),
        (["04_tiled", "--metrics", "regexes, nope"], "'regexes' is not known"),
        (["04_tiled", "--metrics", ","], "--metrics must name metrics"),
        (["04_tiled", "--csv", "--json"], "choose one"),
        (["04_tiled", "--compare", "04_tiled", "05_tiled_conflicted"], "takes the place of a target"),
        (["04_tiled", "--seconds", "nan"], "must be above 0"),
        (["04_tiled", "--seed", "1"], "--seed is for files"),
        (["04_tiled", "--second", "-m", "3"], "--second is for --compare"),
        (["05"], "did you mean '05_tiled_conflicted'"),
        (["kernel.c", "--grid", "1"], "must end in .cu"),
    ],
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], argv: list[str], told: str) -> None:
    code, out, err = run(capsys, *argv)
    assert code == 2 and told in err
    assert json.loads(out)["error"]["message"] in err if "--json" in argv else not out


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("f32[99999999999999]", "memory"),
        ("nan", "number 1) must be an integer for the kernel's u64 parameter; an array is such as"),
        ("none.npy", "'none.npy' cannot be read: No such file"),
    ],
)
def test_a_wrong_argument_is_told_as_it_was_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, word: str, told: str
) -> None:
    file = tmp_path / "copy.cu"
    file.write_text(SOURCE)
    args = ["--arg", word, "--arg", "f32[32]", "--arg", "4"]
    code, _, err = run(capsys, str(file), "--grid", "2", "--block", "32", *args)
    assert code == 2 and told in err and "args[" not in err


def test_a_measured_time_beside_the_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("04_tiled", "-m", "64", "-n", "64", "-k", "32", "--gpu", "a100")
    _, out, _ = run(capsys, *argv, "--seconds", "1e-3")
    assert re.search(r"reached +0\.\d+% of it in 1 ms", out)
    _, out, _ = run(capsys, *argv, "--seconds", "1e-3", "--json")
    found = json.loads(out)
    assert found["of_the_roofline"] == pytest.approx(found["roofline"]["seconds"] / 1e-3)


def test_a_measured_time_is_that_of_the_launch_that_multiplies(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("11_parallel_k", "-m", "32", "-n", "32", "-k", "64", "--set", "split=2", "--gpu", "a100")
    _, out, _ = run(capsys, *argv, "--seconds", "1e-3")
    assert (out.count("verdict on "), out.count(" of that is reached in 1 ms")) == (2, 1)


def test_without_a_profiler_of_the_hardware(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.bench.hardware.shutil.which", lambda _name: None)
    monkeypatch.setattr("tilewise.bench.hardware.glob.glob", lambda _pattern: [])
    code, _, err = run(capsys, "04_tiled", "-m", "32", "-n", "32", "-k", "32", "--on", "gpu", "--gpu", "h200")
    assert code == 1 or code == 2
    assert "ncu" in err and "Nsight Compute" in err
    monkeypatch.setattr("tilewise.bench.hardware.shutil.which", lambda _name: "/usr/bin/ncu")
    assert find_ncu() == "/usr/bin/ncu"
    monkeypatch.setattr("tilewise.devices.gpu.count", lambda: 0)
    with pytest.raises(DeviceUnavailable, match="--on gpu needs a GPU: "):
        measure(None, [])  # type: ignore[arg-type]  # it does not come as far


def test_what_ncu_does_not_know_is_left_out_whatever_it_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what follows the dot it names all of a counter at once."""
    asked: list[list[str]] = []
    unknown = iter(["lost__x", "lost__y.sum"])

    def count(_ncu: str, _what: object, names: list[str]) -> Any:
        asked.append(names)
        said = f"==ERROR== Failed to find metric {name}\n" if (name := next(unknown, "")) else ""
        return SimpleNamespace(stdout=said or '"ID","kept__z.sum"\n"",""\n"0","7"\n', stderr="", returncode=1)

    monkeypatch.setattr("tilewise.bench.hardware.find_ncu", lambda: "ncu")
    monkeypatch.setattr("tilewise.bench.hardware._count", count)
    monkeypatch.setattr("tilewise.devices.device", lambda _kind: None)
    names = ["lost__x.sum", "kept__z.sum", "lost__x.max", "lost__y.sum", "tilewise__own"]
    what: Any = None
    assert measure(what, names) == [{"kept__z.sum": 7.0}]
    assert asked == [
        ["lost__x.sum", "kept__z.sum", "lost__x.max", "lost__y.sum", DURATION],
        ["kept__z.sum", "lost__y.sum", DURATION],
        ["kept__z.sum", DURATION],
    ]


def test_ncu_is_asked_for_numbers_in_base_units_at_the_clocks_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def run_it(command: list[str], **how: Any) -> Any:
        asked.append((command, how))
        raise OSError("no such program")

    monkeypatch.setattr("tilewise.bench.hardware.subprocess.run", run_it)
    what = RungLaunch("04_tiled", (1, 2, 3), {"tile": 16})
    with pytest.raises(ToolError, match=r"^/a/ncu cannot be run \(no such program\)$"):
        hardware._count("/a/ncu", what, ["a", "b"])
    ((command, how),) = asked
    *words, described = command
    assert words == [
        *("/a/ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--metrics", "a,b"),
        *(sys.executable, "-m", "tilewise.bench.hardware", "RungLaunch"),
    ]  # fmt: skip
    assert json.loads(described) == {"rung": "04_tiled", "size": [1, 2, 3], "settings": {"tile": 16}}
    assert how == {"capture_output": True, "text": True, "timeout": 600, "check": False}


@pytest.mark.parametrize(
    ("out", "error", "said"),
    [
        ("one\n", "two\n\n", "two"), ("==ERROR== no rights\n\n", "", "==ERROR== no rights"),
        ("", "", "exit status 9"),
    ],
)  # fmt: skip
def test_where_ncu_counts_nothing_its_last_word_is_told(
    out: str, error: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = SimpleNamespace(stdout=out, stderr=error, returncode=9)
    monkeypatch.setattr(hardware, "find_ncu", lambda: "ncu")
    monkeypatch.setattr(hardware, "_count", lambda *_: ran)
    monkeypatch.setattr("tilewise.devices.device", lambda _kind: None)
    with pytest.raises(ToolError) as raised:
        measure(RungLaunch("04_tiled", (1, 2, 3), {}), ["a"])
    assert str(raised.value) == f"ncu counted nothing: {said}"


def test_the_newest_profiler_is_taken_where_none_is_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"/opt/nvidia/nsight-compute/*/ncu": ["/b/ncu", "/c/ncu"], "/usr/local/cuda*/bin/ncu": ["/a/ncu"]}
    monkeypatch.setattr("tilewise.bench.hardware.shutil.which", lambda name: {"ncu": None}[name])
    monkeypatch.setattr("tilewise.bench.hardware.glob.glob", there.__getitem__)
    assert find_ncu() == "/c/ncu"


def test_what_ncu_prints_is_read() -> None:
    """Its raw page: words of its own first, then names, units, and a row for each launch."""
    name = f"{CONFLICTS}.sum"
    text = f'==PROF== Connected\n"ID","Kernel Name","{name}","launch__grid_size"\n"","","",""\n'
    text += '"0","tiled","1,234","4"\n"1","reduce","n/a","2"\n'
    measured = read_raw(text)
    assert measured == [{name: 1234.0, "launch__grid_size": 4.0}, {"launch__grid_size": 2.0}]
    assert read_raw("==ERROR== nothing") == []
    profile = ladder["04_tiled"].profile(64, 64, 32, gpu="h200")
    rows = compare_with_measured(profile, measured, [name, "launch__grid_size"])
    assert rows[0] == {
        "metric": name,
        "measured": "1,234",
        "emulated": "0",
        "difference": "-1,234 (-100.00%)",
    }
    assert rows[1]["difference"] == "none"
    counted: Any = SimpleNamespace(all=[{"whole": 4.005, "part": 2.505, "other": 2.52}])
    rows = compare_with_measured(
        counted, [{"whole": 4.0, "part": 2.5, "other": 2.5}], ["whole", "part", "other"]
    )
    assert [row["difference"] == "none" for row in rows] == [False, True, False]  # ncu prints two digits


# ── what is asked for, of launches that are not made ──


class Noted:
    """A launch, of a file or a rung, that notes how it is to be profiled."""

    seed = 0

    def __init__(self, kernel: str = "k") -> None:
        self.told: list[Any] = []
        self.roofline: Any = SimpleNamespace(reached=lambda seconds: 1e-3 / seconds)
        self.found: Any = SimpleNamespace(
            kernel=kernel, to_dict=lambda patterns: {"patterns": patterns}, csv=lambda patterns: f"{patterns}\n",
            roofline=self.roofline, select=lambda patterns: [SimpleNamespace(name="a"), SimpleNamespace(name="b")],
        )  # fmt: skip
        self.found.all = [self.found, SimpleNamespace(kernel="reduce", roofline=self.roofline)]

    def profile(self, *given: Any, **named: Any) -> Any:
        self.told.append((given, named))
        return (self.found, []) if "timeout" in named else self.found


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    launch = Noted()

    def open_launch(words: Any, arch: str) -> Noted:
        launch.told.append((words.file, words.seed, arch))
        launch.seed = words.seed
        return launch

    monkeypatch.setattr(profile_command, "open_launch", open_launch)
    monkeypatch.setattr(profile_command, "ladder", {"04_tiled": launch})
    return launch


def test_a_launch_is_profiled_as_the_options_say(noted: Noted, capsys: pytest.CaptureFixture[str]) -> None:
    file = ("a.cu", "--grid", "1", "--block", "2")
    code, out, _ = run(
        capsys, *file, *["--gpu", "a100", "--cache", "--sample", "3", "--timeout", "4", "--seed", "0", "--seconds", "0.5"], "--json",
        "--metrics", "launch__grid_size, launch__block_size", "--metrics", "regex:launch__.{1,2}",
    )  # fmt: skip
    patterns = ["launch__grid_size", "launch__block_size", "regex:launch__.{1,2}"]
    assert code == 0 and json.loads(out) == {
        "schema": 1, "command": "profile", "target": "a.cu", "seed": 0, "patterns": patterns, "unwritten": [],
        "of_the_roofline": 2e-3,
    }  # fmt: skip
    assert noted.told == [
        ("a.cu", 0, "sm_80"),
        (("a100",), {"cache": True, "sample": 3, "timeout": 4.0}),
    ]
    noted.told.clear()
    assert run(capsys, *file, "--csv") == (0, "None\n", "")
    assert noted.told == [
        ("a.cu", None, "sm_90a"),
        ((None,), {"cache": False, "sample": None, "timeout": None}),
    ]
    noted.told.clear()
    code, out, _ = run(
        capsys, "04_tiled", "-n", "96", "--set", "tile=16", "--gpu", "t4", "--sample", "2", "--csv"
    )
    assert (code, out) == (0, "None\n")
    assert noted.told == [((512, 96, 256), {"gpu": "t4", "cache": False, "sample": 2, "tile": 16})]


def test_launches_that_are_compared_have_the_same_numbers(
    noted: Noted, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ("--compare", "a.cu", "b.cu", "--grid", "1", "--block", "2", "--json")
    drawn = []
    for seed in ([], ["--seed", "0"], []):
        noted.told.clear()
        assert run(capsys, *line, *seed, "--second", "--grid", "2")[0] == 0
        (first, second) = noted.told[::2]
        assert (first[0], second[0]) == ("a.cu", "b.cu") and first[1] == second[1] is not None
        drawn.append(first[1])
    assert drawn[1] == 0 and drawn[0] != drawn[2]


def test_remarks_stand_below_with_the_names_of_their_launches(capsys: pytest.CaptureFixture[str]) -> None:
    def launch(name: str, kernel: str, seed: int | None, *unwritten: str) -> Any:
        return profile_command._ProfiledLaunch(name, Noted(kernel).found, seed, list[Any](unwritten))

    for found, said in (
        ([launch("04_tiled", "k", None)], ""),
        ([launch("a.cu", "k", 0)], "\nseed 0\n"),
        ([launch("a.cu", "k", 3, "one")], "\nnote: one\nseed 3\n"),
        ([launch("a.cu", "k", 3, "one"), launch("b.cu", "l", 3, "two")], "\nnote: a.cu: one\nnote: b.cu: two\nseed 3\n"),
        ([launch("a.cu", "k", 3, "one"), launch("a.cu", "l", 4)], "\nnote: k: one\nseed 3 and 4\n"),
        ([launch("04_tiled", "k", None), launch("a.cu", "l", 4)], "\nseed 4\n"),
    ):  # fmt: skip
        profile_command._print_remarks(found)
        assert capsys.readouterr().out == said


@pytest.mark.parametrize("as_json", [False, True])
def test_what_the_hardware_counts_stands_beside_what_is_counted_here(
    noted: Noted, as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Any = []
    row = {"metric": "a", "measured": "1", "emulated": "2", "difference": "1 (+100.00%)"}
    measured = [{DURATION: 4e6}, {DURATION: 2e6}]
    monkeypatch.setattr(profile_command, "measure", lambda *given: asked.append(given) or measured)
    monkeypatch.setattr(profile_command, "compare_with_measured", lambda *given: asked.append(given) or [row])
    more = ["--on", "gpu", *["--json"] * as_json]
    code, out, _ = run(capsys, "04_tiled", "-m", "96", "--set", "tile=16", *more)
    (what, names), compared = asked
    assert code == 0 and what == RungLaunch("04_tiled", (96, 512, 256), {"tile": 16}) and names == ["a", "b"]
    assert compared == (noted.found, measured, names)
    if as_json:
        assert json.loads(out) == {
            "schema": 1, "command": "profile", "metrics": [row], "seconds": [4e-3, 2e-3], "of_the_roofline": [0.25, 0.5],
        }  # fmt: skip
    else:
        assert [line.split() for line in out.splitlines()] == [
            ["metric", "measured", "emulated", "difference"], ["a", "1", "2", "1", "(+100.00%)"],
            ["k", "took", "4", "ms", "under", "ncu:", "25.0%", "of", "its", "roofline"],
            ["reduce", "took", "2", "ms", "under", "ncu:", "50.0%", "of", "its", "roofline"],
        ]  # fmt: skip
    asked.clear()
    assert run(capsys, "a.cu", "--grid", "1", "--block", "2", "--seed", "0", *more)[0] == 0
    assert (asked[0][0].file, asked[0][0].grid, asked[0][0].seed) == ("a.cu", "1", 0)
    code, _, err = run(capsys, "--compare", "04_tiled", "04_tiled", "--on", "gpu")
    assert (code, err) == (2, "tilewise: error: --on gpu runs one launch, not 'a comparison'\n")


@pytest.mark.parametrize("many", [False, True])
def test_what_limits_an_sm_says_what_one_less_would_give(many: bool) -> None:
    asked: list[Any] = []
    blocks = {"registers": 1200 if many else 1, "shared": 2 if many else 1}

    def with_less(**less: int) -> Any:
        asked.append(less)
        return SimpleNamespace(blocks=blocks[next(iter(less))])

    found: Any = SimpleNamespace(
        with_less=with_less, blocks=3, binding=["registers", "warps"], limits={"registers": 3, "warps": 3, "shared": 9},
        warps=24, warps_most=64, ratio=0.375, threads_per_sm=1768, threads_by_division=2048,
        next_registers=1040 if many else None, next_shared=None if many else 0, waves=1.23456789 if many else None,
    )  # fmt: skip
    registers = "1200 blocks with one register less; 1,040 would give one more block"
    shared = "1 block with one KiB less; 0 would give one more block"
    none = "; none would give one more"
    assert profile_command._occupancy(found) == {
        "blocks on an SM": "3, limited by registers and warps", "limits": "registers 3, warps 3, shared 9",
        "warps": "24 of 64: 37.5%", "threads": "1,768; registers divided alone would say 2,048",
        "registers": registers if many else f"1 block with one register less{none}",
        "shared bytes": f"2 blocks with one KiB less{none}" if many else shared, **({"waves": "1.234568"} if many else {}),
    }  # fmt: skip
    assert asked == [{"registers": 1}, {"shared": 1024}]


def test_a_verdict_says_how_near_a_measured_time_comes(
    noted: Noted, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the launch that multiplies alone, which the time is of."""
    for item, lines in zip(noted.found.all, (["one", "two"], ["three"]), strict=True):
        item.verdict = SimpleNamespace(lines=lambda lines=lines: lines)
    noted.found.all.append(SimpleNamespace(kernel="none", verdict=None))
    for seconds, said in ((None, ""), (4e-3, "25.0% of that is reached in 4 ms\n")):
        profile_command._print_verdicts(noted.found, seconds)
        first = f"verdict on k\none\ntwo\n{said}\n"
        assert capsys.readouterr().out == f"{first}verdict on reduce\nthree\n\n"


# ── in a terminal ──


class Counted(dict[str, float]):
    """A profile of which its name and its figures are looked at."""

    kernel = "f"

    def select(self, patterns: Any) -> None: ...

    def __str__(self) -> str:
        return f"{self.kernel} on a GPU"


def test_figures_by_line_stand_below_their_lines_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [
        LineFigures("a.cu", 3, "x[i] = y;", 1200, 24, 8, 96, 48),
        LineFigures("b.cu", 7, "f();", 10, local=5),
    ]

    def printed(columns: int) -> list[str]:
        return in_terminal(monkeypatch, columns, lambda: profile_command._print_lines(lines))

    assert printed(40) == [
        "a.cu:3  x[i] = y;", "  instructions: 1,200, wavefronts: 24,", "    conflicts: 8, sectors: 96, ideal: 48",
        "b.cu:7  f();", "  instructions: 10, local: 5",
    ]  # fmt: skip
    assert printed(120) == [
        "instructions  wavefronts  conflicts  sectors  ideal  local  line",
        "       1,200          24          8       96     48         a.cu:3  x[i] = y;",
        "          10                                             5  b.cu:7  f();",
    ]


@pytest.mark.parametrize("columns", [30, 44])
def test_two_profiles_stand_side_by_side_as_far_as_there_is_room(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one name, the columns of a table are told apart."""
    first, second = (Counted(a__name__that__is__long=long, short=short) for long, short in ((4, 2), (6, 0.5)))

    def printed(*names: str) -> list[str]:
        both: Any = [
            SimpleNamespace(profile=one, name=name) for one, name in zip((first, second), names, strict=True)
        ]
        return in_terminal(monkeypatch, columns, lambda: profile_command._print_comparison(both, ["*"]))

    same = ["first", "f", "second", "f"] if columns == 30 else ["f", "f"]
    for names, titles in ((("one", "two"), ["one", "two"]), (("one", "one"), same)):
        lines = printed(*names)
        assert lines[:3] == ["f on a GPU", "f on a GPU", ""] and max(map(len, lines)) <= columns
        assert columns == 30 or len({len(line) for line in lines[3:]}) == 1  # figures end below their titles
        words = [word for word in " ".join(lines[3:]).split() if not word.startswith("─")]
        assert words == [
            *titles,
            "ratio",
            "a__name__that__is__long",
            "4",
            "6",
            "1.5",
            "short",
            "2",
            "0.5",
            "0.25",
        ]


def test_figures_come_before_their_long_names_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Launch(SimpleNamespace):
        def __str__(self) -> str:
            return "f on a GPU"

    rows = [("first__metric__of__many", "1,234", "inst", "sampled"), ("second", "0.5", "", "")]
    launch = Launch(rows=lambda patterns: rows if patterns is None else rows[:1], notes=["so it is"])
    found: Any = SimpleNamespace(table=lambda patterns: "metric " * 8 + "\n", all=[launch])

    def printed(columns: int, patterns: Any = None) -> list[str]:
        return in_terminal(monkeypatch, columns, lambda: profile_command._print_figures(found, patterns))

    assert printed(40) == [
        "f on a GPU", "figure  metric, unit, and what it is if", "        it is not exact", "─" * 40,
        " 1,234  first__metric__of__many, inst,", "        sampled", "   0.5  second", "note: so it is",
    ]  # fmt: skip
    assert printed(40, ["first*"])[-2:] == ["        sampled", "note: so it is"]
    assert printed(80) == ["metric " * 8]
