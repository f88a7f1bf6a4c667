"""Files of kernels as command lines name them: which kernels they have, which is meant, and what is defined."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tilewise.bench import file_run, launch_spec
from tilewise.bench.argument_specs import ArgumentMaker, triple
from tilewise.bench.launch_spec import (
    FileLaunch,
    LaunchSpec,
    _defines,
    _kernels,
    _only_kernel,
    _read,
    open_launch,
)
from tilewise.bench.outputs import OutputVerdict
from tilewise.errors import ArgumentError, Deadlock, KernelFault, LaunchTimeout, TilewiseError
from tilewise.launch import Parameter

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
    for name, said in (
        ("a.cu", "must be a text: CUDA C++ (.cu) or PTX (.ptx)"),
        ("b.cu", "cannot be read: No such file or directory"),
    ):
        with pytest.raises(ArgumentError) as error:
            _read(tmp_path / name)
        assert str(error.value) == f"file {str(tmp_path / name)!r} {said}"


# ── launches ─────────────────────────────────────────────────────────────────────────────────────────────


class NotingKernel:
    """A kernel that notes what is done with it: of a number, a pointer and a struct unless told otherwise."""

    name = "k"

    def __init__(self, *given: Any, parameters: Any = None, **named: Any) -> None:
        self.made = given, named
        self.told: Any = []
        types = (("u32", 4), ("u64", 8), ("b8", 24))
        self.parameters = [Parameter("p", *one, 8) for one in types] if parameters is None else parameters

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self.told.append((name, given, named)) or []

    def __call__(self, *given: Any, **named: Any) -> None:
        self.told.append(("call", given, named))


def open_noting(monkeypatch: pytest.MonkeyPatch, words: LaunchSpec, **made: Any) -> FileLaunch:
    monkeypatch.setattr(launch_spec, "Kernel", functools.partial(NotingKernel, **made))
    return open_launch(words, "sm_80")


def test_a_launch_is_as_its_words_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    file.write_text("__global__ void k(int n, float *x, S s) {}")
    words = LaunchSpec(
        str(file), "2,3", "32", cluster="2,1", shared=48, args=("1", "null", "2"), defines=["A=3"],
        include=["there"], seed=0, cooperative=True,
    )  # fmt: skip
    found = open_noting(monkeypatch, words)
    kernel = cast(NotingKernel, found.kernel)
    folders = {"include_dirs": [tmp_path, Path("there")], "filename": str(file)}
    assert kernel.made == ((file.read_text(), "k", "sm_80", {"A": "3"}), folders)
    assert (found.grid, found.block, found.cluster, found.shared) == ((2, 3), (32,), (2, 1), 48)
    assert (found.words, found.seed, found.cooperative) == (("1", "null", "2"), 0, True)
    named = cast(NotingKernel, open_noting(monkeypatch, replace(words, arch="sm_75", kernel="other")).kernel)
    assert named.made[0][1:3] == ("other", "sm_75")
    plain = open_noting(monkeypatch, LaunchSpec(str(file), "1", "1", args=("1", "2", "3")))
    assert (plain.cluster, plain.shared, plain.cooperative) == (None, 0, False)
    assert plain.seed != open_noting(monkeypatch, LaunchSpec(str(file), "1", "1", args=("1", "2", "3"))).seed
    device: Any = object()
    call = ((2, 3), (32,), [1, None, 2], 48, (2, 1))
    found.start(device, 1.5)
    found.bind(found.make_arguments(device), device)
    assert found.check("eager", 2.5, level="info", lenient=True) == ([], [])
    found.check()
    assert kernel.told == [
        ("call", (*call, device, 1.5), {"cooperative": True}),
        ("bind", (*call, device), {"cooperative": True}),
        ("check", (*call, "eager", 2.5), {"level": "info", "lenient": True, "cooperative": True}),
        ("check", (*call, "late", None), {"level": "warning", "lenient": False, "cooperative": True}),
    ]
    kernel.told.clear()
    profiled: Any = found.profile("a100", cache=True, sample=3, timeout=4.5)
    assert profiled == ([], [])
    assert kernel.told == [("profile", (*call, "a100", 4.5, True, 3), {"cooperative": True})]
    monkeypatch.setattr(launch_spec, "list_unwritten", lambda *_: ["an element"])
    assert cast(Any, found.profile(sample=3))[1] == [] and cast(Any, found.profile())[1] == ["an element"]
    assert kernel.told[-1] == ("profile", (*call, None, None, False, None), {"cooperative": True})
    assert cast(Any, found.check()) == ([], ["an element"])
    fault = SimpleNamespace(kind="out-of-bounds")
    monkeypatch.setattr(kernel, "check", lambda *_, **__: [fault], raising=False)
    assert cast(Any, found.check()) == ([fault], [])  # what came later was not written, and that is no wonder


@pytest.mark.parametrize("foreign", [False, True])
def test_a_run_as_plain_data_has_the_first_elements_or_all(foreign: bool) -> None:
    """Of foreign PTX nobody knows the registers; where nothing was expected nothing is right or wrong."""
    launch: Any = SimpleNamespace(
        kernel=SimpleNamespace(name="k", arch="sm_80"), grid=(2,), block=(32, 4), seed=0, shared=48
    )
    used: Any = None if foreign else SimpleNamespace(registers=40, shared_bytes=1024, spills=8)
    unwritten = np.arange(10) % 3 == 1
    results = [
        file_run.Result(1, "w", np.arange(10, dtype=np.int16), None, False),
        file_run.Result(2, "x", np.arange(10, dtype=np.float16) / 2, unwritten, False),
        file_run.Result(3, "y", np.arange(10, dtype=np.uint64).reshape(2, 5) + 2**63, unwritten.reshape(2, 5), True),
    ]  # fmt: skip
    device: Any = SimpleNamespace(name="gpu:1")
    right, wrong = (OutputVerdict(1, "r.npy", ok, 0 if ok else 3, 10, "told") for ok in (True, False))
    found = file_run.FileRun(launch, device, 0.5, used, results, [], [], ["a.npy"])
    plain = found.to_dict()
    halves = [None if missing else i / 2 for i, missing in enumerate(unwritten[:8])]
    wholes = [None if missing else i + 2**63 for i, missing in enumerate(unwritten)]
    assert plain.pop("results") == [
        {"argument": 1, "word": "w", "type": "int16", "shape": [10], "values": [*range(8)]},
        {"argument": 2, "word": "x", "type": "float16", "shape": [10], "values": halves},
        {"argument": 3, "word": "y", "type": "uint64", "shape": [2, 5], "values": wholes},
    ]
    known = {"registers": 40, "shared_bytes": 1072, "spills": 8}
    assert plain == {
        "kernel": "k", "device": "gpu:1", "arch": "sm_80", "grid": [2, 1, 1], "block": [32, 4, 1], "seed": 0, "seconds": 0.5,
        **(dict.fromkeys(known) if foreign else known), "unwritten": [], "expected": [], "saved": ["a.npy"], "correct": None,
    }  # fmt: skip
    for verdicts, ok in (([right], True), ([right, wrong], False)):
        judged = replace(found, verdicts=verdicts)
        assert judged.ok is ok and judged.to_dict()["correct"] is ok
    assert judged.to_dict()["expected"][1] == {
        "argument": 1, "expected": "r.npy", "correct": False, "failures": 3, "elements": 10, "told": "told",
    }  # fmt: skip
    assert found.ok


def test_a_run_saves_compares_and_shows_what_is_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What has changed, or is to be shown, is a result; and compiling for a CPU is not among its time."""
    (tmp_path / "a.cu").write_text("__global__ void k(int n, float *x, S s) {}")
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float32))
    np.save(tmp_path / "r.npy", np.ones(4, np.float32))
    words = LaunchSpec(
        str(tmp_path / "a.cu"), "1", "4", args=("3", str(tmp_path / "x.npy"), "new:f32[4]"), seed=0
    )
    launch = open_noting(monkeypatch, words)
    order: list[str] = []
    resources = object()
    call = SimpleNamespace(bound=SimpleNamespace(launches=[SimpleNamespace(resources=resources), None]))

    class Held:
        """An array whose values a launch sets."""

        def __init__(self, host: Any, after: Any) -> None:
            self.shape, self.dtype, self.after = host.shape, host.dtype, after

        def fill(self, _pattern: Any) -> None:
            order.append("fill")

        def numpy(self) -> Any:
            return self.after

    class Timing:
        name = "timing"

        def array(self, host: Any) -> Any:
            return Held(host, host.copy())

        def empty(self, shape: Any, dtype: Any) -> Any:
            return Held(np.empty(shape, dtype), np.ones(shape, dtype))

        def time(self, given: Any, repeat: int) -> list[float]:
            assert given is call and repeat == 1
            order.append("time")
            return [0.25]

        def synchronize(self) -> None:
            order.append("wait")

    monkeypatch.setattr(FileLaunch, "bind", lambda *_: order.append("bind") or call)  # type: ignore[func-returns-value]
    device: Any = Timing()
    saved = str(tmp_path / "y.npy")
    for show, shown in (((), [(3, False)]), ((2,), [(2, True), (3, False)]), ((0,), [(3, True)])):
        order.clear()
        wanted = file_run.OutputSpec((f"3={saved}",), (str(tmp_path / "r.npy"),), show, 0.5, 0.25)
        found = file_run.run_file(launch, device, wanted)
        assert order == ["fill", "bind", "time", "wait"]
        assert [(one.argument, one.whole) for one in found.results] == shown
        assert (found.seconds, found.resources, found.saved, found.ok) == (0.25, resources, [saved], True)
        assert found.verdicts[0].message == "all 4 elements within 0.25 + 0.5·|expected|"
        assert found.unwritten == [] and np.load(saved).tolist() == [1] * 4
    order.clear()
    with pytest.raises(ArgumentError, match=r"^-o must lie in a folder that exists, not 'no/y\.npy'$"):
        file_run.run_file(launch, device, file_run.OutputSpec(("no/y.npy",)))
    assert order == []  # nothing has run


def test_a_launch_that_cannot_be_is_told_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("__global__ void k() {}")
    file = str(tmp_path / "a.cu")
    need = "must be given 3 times, for u32, u64, b8 of 24 bytes, not 1; such as f32[640,448], s32[64]"
    none = "must be given 0 times: the kernel takes none, not 1; such as f32[640,448], s32[64]"
    how = "must be given for a file; such as --grid 11,20 --block 32,32"
    launches: list[tuple[LaunchSpec, dict[str, Any], str]] = [
        (LaunchSpec("a.c", "1", "1"), {}, "a file must end in .cu (CUDA C++) or .ptx, not 'a.c'"),
        (LaunchSpec(file, None, "1"), {}, f"--grid {how}"),
        (LaunchSpec(file, "1", None), {}, f"--block {how}"),
        (LaunchSpec(file, "1", "1", args=("1",)), {}, f"--arg {need}"),
        (LaunchSpec(file, "1", "1", args=("1",)), {"parameters": []}, f"--arg {none}"),
        (LaunchSpec(file, "1", "0"), {"parameters": []}, "--block must be one to 3 numbers above 0, such as 11,20, not '0'"),
        (LaunchSpec(file, "x", "1"), {"parameters": []}, "--grid must be one to 3 numbers above 0, such as 11,20, not 'x'"),
        (LaunchSpec(file, "1", "1", cluster="0"), {"parameters": []}, "--cluster must be one to 3 numbers above 0, such as 11,20, not '0'"),
    ]  # fmt: skip
    for words, made, said in launches:
        with pytest.raises(ArgumentError) as error:
            open_noting(monkeypatch, words, **made)
        assert str(error.value).startswith(said)


def test_an_argument_that_its_kernel_refuses_is_named_as_it_was_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.cu").write_text("__global__ void k() {}")
    found = open_noting(
        monkeypatch, LaunchSpec(str(tmp_path / "a.cu"), "1", "1", args=("a", "b", "c"), seed=7)
    )
    array = "an array is such as f32[640,448], a null pointer null"
    matrix = (
        "a Matrix of tilewise/matrix.cuh is such as matrix:f32[640,448]; any struct by value comes from a file: an "
        "array of no dimension of a structured type, in data.npy"
    )
    for name, said in (
        ("args[0]", "--arg 'a' (number 1) must be right"),
        ("args[1]", f"--arg 'b' (number 2) must be right; {array}"),
        ("args[2]", f"--arg 'c' (number 3) must be right; {matrix}"),
        ("grid", "grid must be right, not 9"),
    ):
        with pytest.raises(ArgumentError) as error, found.rename_errors():
            raise ArgumentError(name, "must be right", 9)
        assert str(error.value) == said
    for kind in (KernelFault, Deadlock, LaunchTimeout):
        with pytest.raises(kind) as fault, found.rename_errors():
            raise kind("it ended")
        assert fault.value.__notes__ == ["--seed 7 makes the same arguments again"]


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────


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


class HostDevice:
    """A device whose arrays are NumPy's."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return SimpleNamespace(shape=shape, dtype=np.dtype(dtype), ptr=4096)

    def array(self, host: Any) -> Any:
        return SimpleNamespace(shape=host.shape, dtype=host.dtype, ptr=4096)


POINTER, STRUCT = Parameter("p", "u64", 8, 8), Parameter("p", "b8", 24, 8)


@pytest.mark.parametrize(
    ("word", "dtype", "shape"),
    [
        ("f64[3]", "float64", (3,)), ("f32[2,3]", "float32", (2, 3)), ("f16[2x3×4]", "float16", (2, 3, 4)),
        ("bf16[ 2 , 3 ]", "bfloat16", (2, 3)), ("e4m3[5]", "float8_e4m3fn", (5,)), ("e5m2[5]", "float8_e5m2", (5,)),
        ("u8[4]", "uint8", (4,)), ("u16[4]", "uint16", (4,)), ("u32[4]", "uint32", (4,)), ("u64[4]", "uint64", (4,)),
        ("s8[4]", "int8", (4,)), ("s16[4]", "int16", (4,)), ("s32[4] < 3", "int32", (4,)), ("s64[0]", "int64", (0,)),
        ("new:f32[2,3]", "float32", (2, 3)), ("zeros:s32[3]", "int32", (3,)),
    ],
)  # fmt: skip
def test_an_array_is_of_the_type_and_the_sizes_of_its_word(
    word: str, dtype: str, shape: tuple[int, ...]
) -> None:
    found = ArgumentMaker(cast(Any, HostDevice()), 3).make(2, word, POINTER)
    assert found.array is not None and found.value is found.array and (found.number, found.word) == (2, word)
    assert (found.array.dtype.name, found.array.shape) == (dtype, shape)
    assert found.is_new is word.startswith("new:") and str(found) == f"--arg {word!r} (number 2)"
    if found.before is None:
        return
    assert (found.before.dtype.name, found.before.shape) == (dtype, shape)
    held = found.before.astype(np.float64).ravel()
    if word.startswith("zeros:"):
        assert not held.any()
    elif word.startswith(("u", "s")):
        below = 3 if "<" in word else found.before.size
        assert sorted(held) == sorted(i % below for i in range(found.before.size))
    else:
        drawn = np.random.default_rng(3).standard_normal(held.size, np.float32)
        assert np.array_equal(held, drawn.astype(dtype).astype(np.float64))


def test_what_a_file_holds_is_an_array_or_without_dimensions_a_value(tmp_path: Path) -> None:
    maker = ArgumentMaker(cast(Any, HostDevice()), 3)
    np.save(tmp_path / "x.npy", np.arange(6).reshape(2, 3).T)
    np.save(tmp_path / "one.npy", np.float32(2.5))
    found = maker.make(1, str(tmp_path / "x.npy"), POINTER)
    assert found.array is not None and found.array.shape == (3, 2) and found.before is not None
    one = maker.make(2, str(tmp_path / "one.npy"), POINTER)
    assert one.array is None and one.value == 2.5 and one.value.dtype == np.float32


def test_an_argument_that_is_refused_says_what_it_must_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "not.npy").write_text("text")
    examples = (
        "such as f32[640,448], s32[64], s32[64]<10, new:f32[64], zeros:f32[64], matrix:f32[640,448], data.npy, 42, 0.5 "
        "or null"
    )
    bound = "--arg must have a bound above 0, of an array of integers, behind <"
    matrix = "--arg must be matrix: and an array of two dimensions"
    struct = "must be for a struct of 24 bytes, as a Matrix of tilewise/matrix.cuh is"
    none, other = str(tmp_path / "none.npy"), str(tmp_path / "not.npy")
    maker = ArgumentMaker(cast(Any, HostDevice()), 3)
    for word, parameter, said in (
        ("4,5", POINTER, f"--arg must be {examples}, not '4,5'"), ("f32[2,]", POINTER, f"--arg must be {examples}, not 'f32[2,]'"),
        ("s32[4]<0", POINTER, f"{bound}, not 's32[4]<0'"), ("f32[4]<3", POINTER, f"{bound}, not 'f32[4]<3'"),
        ("zeros:s32[4]<3", POINTER, f"{bound}, not 'zeros:s32[4]<3'"),
        ("matrix:f32[4]", STRUCT, f"{matrix}, not 'matrix:f32[4]'"), ("matrix:4", STRUCT, f"{matrix}, not 'matrix:4'"),
        ("matrix:f32[4,4]", POINTER, f"--arg 'matrix:f32[4,4]' (number 1) {struct}, not 'a parameter of type u64 and 8 bytes'"),
        ("matrix:f32[4,4]", Parameter("p", "u64", 24, 8),
         f"--arg 'matrix:f32[4,4]' (number 1) {struct}, not 'a parameter of type u64 and 24 bytes'"),
        ("matrix:new:u8[65536,65536]", STRUCT,
         "--arg must have less than 2³² elements: a Matrix has 32-bit indices, not 'matrix:new:u8[65536,65536]'"),
        ("zeros:f64[1000000,1000000,1000000]", POINTER,
         "--arg must fit into the host's memory, not 'zeros:f64[1000000,1000000,1000000]'"),
        (none, POINTER, f"--arg {none!r} cannot be read: No such file or directory"),
        (other, POINTER, f"--arg {other!r} must be a file that np.save wrote, of numbers"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError) as error:
            maker.make(1, word, parameter)
        assert str(error.value) == said
