"""CUDA C++ → PTX → machine code: resources, names and parameters, headers, the cache."""

from __future__ import annotations

import importlib
import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise import Kernel
from tilewise.errors import ArchError, ArgumentError, LaunchError, ToolError, UnknownNameError
from tilewise.gpus import arch_capability
from tilewise.kernels import RUNGS
from tilewise.kernels.spec import KernelSpec
from tilewise.toolchain import cache, nvrtc
from tilewise.toolchain.binary import Binary, Resources
from tilewise.toolchain.compile import _reachable, compile_source, known_archs
from tilewise.toolchain.report import constant_bytes, read_report
from tilewise.toolchain.signature import entry_named, read_entries, read_moved_registers

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")


def compiled(source: str, name: str = "f", arch: str = "sm_80", **rest: object) -> Binary:
    return compile_source(source, [name], arch, **rest)  # type: ignore[arg-type]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The file name of each real compilation."""
    calls: list[str] = []
    real = nvrtc.compile_program

    def count(source: str, filename: str, *rest: object) -> nvrtc.Output:
        calls.append(filename)
        return real(source, filename, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(nvrtc, "compile_program", count)
    return calls


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


# ── the rungs ──


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("spec", RUNGS.values(), ids=RUNGS)
def test_every_rung_compiles_without_spills_or_says_what_it_needs(spec: KernelSpec, arch: str) -> None:
    if not spec.runs_on(arch):
        newer = "" if spec.arch else " or newer"
        with pytest.raises(
            ArchError, match=f"{spec.name} needs {spec.needs}{newer}, not {arch}; compile it for"
        ):
            spec.kernel(arch)
        return
    for entry in spec.entries:
        kernel = spec.kernel(arch, entry=entry)
        assert kernel.resources.spills == 0
        assert not kernel.warnings
        assert 0 < kernel.resources.registers <= 255
        assert kernel.cubin.startswith(b"\x7fELF")
        assert f".entry {entry}" in kernel.ptx


def test_rung_04_takes_what_was_published() -> None:
    """On sm_75: 40 registers, 8,192 shared bytes, one barrier, 424 constant bytes, no spills.

    The registers are the compiler's choice, and vary a little between its versions.
    """
    kernel = RUNGS["04_tiled"].kernel("sm_75")
    found = kernel.resources
    assert (found.shared_bytes, found.barriers, found.constant_bytes, found.spills) == (8192, 1, 424, 0)
    assert 36 <= found.registers <= 44
    assert [parameter.size for parameter in kernel.parameters] == [24, 24, 24]


@pytest.mark.parametrize("tile", [8, 16, 32])
def test_a_setting_reaches_the_source(tile: int) -> None:
    assert RUNGS["04_tiled"].kernel("sm_75", tile=tile).resources.shared_bytes == 2 * 4 * tile * tile


# ── the report ──


def test_spills_are_counted() -> None:
    values = " ".join(f"float v{i} = x[{i}];" for i in range(64))
    sums = " ".join(f"x[{i}] = v{i} * v{63 - i} + v0;" for i in range(64))
    source = f'extern "C" __global__ void f(volatile float *x) {{ {values} __syncthreads(); {sums} }}'
    found = compiled(source, options=["--maxrregcount=32"]).entries["f"].resources
    assert found is not None
    assert found.spill_store_bytes > 0
    assert found.spills == found.spill_store_bytes + found.spill_load_bytes == found.to_dict()["spills"]
    assert compiled(source).entries["f"].resources != found


def test_a_report_of_several_kernels_is_told_apart() -> None:
    log = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_75'
ptxas info    : Function properties for one
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 2 barriers, 8192+16 bytes smem, 424 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compiling entry function 'two' for 'sm_75'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 6 registers, 352 bytes cmem[0]
ptxas info    : Compiling entry function 'unused' for 'sm_75'
ptxas info    : Function properties for unused
    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'silent' for 'sm_75'
ptxas info    : Used 2 registers
"""
    assert read_report(log, b"") == {
        "one": Resources(40, 8208, 432, 2, 8, 4, 12),
        "two": Resources(6, 0, 352, 0, 0, 0, 0),
        "silent": Resources(2, 0, 0, 0, 0, 0, 0),
    }


def test_constant_bytes_come_from_the_machine_code_where_the_report_is_silent() -> None:
    """From sm_90 on; the parameters start at byte 0x210 of the bank, so 8 of them end at 536."""
    binary = compiled('extern "C" __global__ void f(float *x) { *x = 1; }', arch="sm_90a")
    assert binary.cubin
    assert binary.entries["f"].resources
    assert constant_bytes(binary.cubin)["f"] == binary.entries["f"].resources.constant_bytes == 0x210 + 8
    assert constant_bytes(b"no ELF file") == {}


# ── names and parameters ──


def test_templates_are_named_with_their_arguments() -> None:
    source = (
        "template <int N> __global__ void tiled(float *x)"
        " { __shared__ float s[N]; s[threadIdx.x] = *x; __syncthreads(); *x = s[0]; }"
    )
    kernels = {tile: Kernel(source, f"tiled<{tile}>", "sm_75") for tile in (32, 64)}
    assert {tile: kernel.resources.shared_bytes for tile, kernel in kernels.items()} == {32: 128, 64: 256}
    assert kernels[32].entry_in(kernels[32].build()) == "_Z5tiledILi32EEvPf"


def test_a_template_without_its_arguments_is_explained() -> None:
    source = "template <int N> __global__ void __launch_bounds__(N) tiled(float *x) { *x = N; }"
    with pytest.raises(ArgumentError, match=r"one instance of the template.*'tiled<32>'"):
        Kernel(source, "tiled", "sm_75")
    entry = Kernel(source, "tiled<64>", "sm_75")
    with pytest.raises(LaunchError, match=r"at most 64 threads.*__launch_bounds__"):
        entry(1, (65, 1, 1), [None], device="emulator")


def test_a_kernel_is_found_by_its_name_where_a_template_has_it_too() -> None:
    source = "namespace n { template <int N> __global__ void f(int *x) { *x = N; } }\n"
    binary = compile_source(source + 'extern "C" __global__ void f(int *x) { *x = 0; }', ["f"], "sm_80")
    assert binary.lowered["f"] == "f"


def test_a_c_plus_plus_name_is_found_without_its_mangling() -> None:
    assert compiled("__global__ void f(float *x, int n) { *x = n; }").lowered == {"f": "_Z1fPfi"}
    assert compiled("namespace a { __global__ void f(float *x) { *x = 1; } }", "a::f").lowered == {
        "a::f": "_ZN1a1fEPf"
    }


def test_a_c_plus_plus_name_is_no_part_of_a_longer_one() -> None:
    entries = ["_Z1fPf", "_Z2ffPf", "_Z10f_and_morePf"]
    assert [entry_named(name, entries) for name in ("f", "ff")] == entries[:2]
    for part in ("f_and_mor", "and_more"):
        with pytest.raises(UnknownNameError):
            entry_named(part, entries)


def test_an_instance_is_found_however_its_name_is_spaced() -> None:
    entries = ["_Z5tiledILi1ELi2EEvPf", "_Z5tiledILi12EEvPf"]
    for name in ("tiled<1, 2>", "tiled<1,2>", "tiled< 1 , 2 >"):
        assert entry_named(name, entries) == entries[0]


def test_parameters_are_read_from_the_ptx() -> None:
    source = (
        "struct Matrix { unsigned width, height, pitch; float *elements; };\n"
        'extern "C" __global__ void f(Matrix m, const double *p, float s, short i, bool b)'
        " { m.elements[i] = *p + s * b; }"
    )
    (entry,) = compiled(source).entries.values()
    assert [(p.type, p.size, p.align, p.is_struct) for p in entry.parameters] == [
        ("b8", 24, 8, True),
        ("u64", 8, 8, False),
        ("f32", 4, 4, False),
        ("u16", 2, 2, False),
        ("u8", 1, 1, False),
    ]


def test_parameters_of_other_compilers_are_read_too() -> None:
    ptx = """
.version 8.7
.target sm_80 // a comment
.visible .entry triton(
    .param .u64 .ptr .global .align 1 triton_param_0,
    .param .align 4 .b8 triton_param_1[12], /* a struct */
    .param .u32 triton_param_2
) .reqntid 128 { ret; }
.entry bare { ret; }
.entry bounded(.param .b8 few) .maxntid 64, 2 { ret; }
"""
    entries = read_entries(ptx)
    assert [(p.type, p.size, p.align) for p in entries["triton"].parameters] == [
        ("u64", 8, 8),
        ("b8", 12, 4),
        ("u32", 4, 4),
    ]
    assert (entries["triton"].block, entries["triton"].most_threads) == ((128, 1, 1), None)
    assert entries["bare"].parameters == () and entries["bare"].block is None
    assert (entries["bare"].most_threads, entries["bounded"].most_threads) == (None, 128)
    kernel = Kernel.from_ptx(ptx, "triton")
    assert kernel.arch == "sm_80"
    for unknown in ("cubin", "resources", "sass"):
        with pytest.raises(ToolError, match="foreign PTX"):
            getattr(kernel, unknown)


_MOVES = st.lists(
    st.tuples(st.sampled_from(["inc", "dec"]), st.integers(3, 32).map(lambda n: 8 * n)), max_size=4
)


@given(_MOVES, st.lists(_MOVES, min_size=2, max_size=2))
def test_registers_that_a_kernel_moves_are_the_fewest_of_its_own(
    moves: list[tuple[str, int]], others: list[list[tuple[str, int]]]
) -> None:
    bodies = [
        "".join(f"setmaxnreg.{way}.sync.aligned.u32 {count}; " for way, count in body)
        for body in (others[0], moves, others[1])
    ]
    ptx = f".entry before {{ {bodies[0]} }}\n.entry own {{ {bodies[1]} }}\n.func behind {{ {bodies[2]} }}\n"
    fewest = [
        min((count for way, count in moves if way == wanted), default=None) for wanted in ("inc", "dec")
    ]
    assert read_moved_registers(ptx, "own") == tuple(fewest)


def test_archs_are_those_of_the_library() -> None:
    archs = known_archs()
    assert {*ARCHS} <= {*archs}
    assert archs == sorted(archs, key=lambda arch: (arch_capability(arch), arch))


def test_what_is_no_arch_and_no_macro_is_told() -> None:
    source = "__global__ void f() { }"
    wrong: Any = 80
    with pytest.raises(ArgumentError, match=r"^arch must be a text such as 'sm_90a', not 80$"):
        compile_source(source, ["f"], wrong)
    for defines, told in (
        ({"MY TILE": 1}, "defines must map C identifiers to values, not 'MY TILE'"),
        ({"T": [1]}, "defines['T'] must be a number or a text, not [1]"),
    ):
        with pytest.raises(ArgumentError) as caught:
            compiled(source, defines=defines)
        assert str(caught.value) == told


# ── headers and the cache ──


def test_our_own_headers_are_found_and_nobody_has_to_say_where() -> None:
    source = (
        '#include <tilewise/matrix.cuh>\nextern "C" __global__ void f(Matrix<float> m) { m.at(0, 1) = 2; }'
    )
    assert compiled(source).entries["f"].parameters[0].size == 24


def test_names_that_few_kernels_use_are_known(empty_cache: Path, counted: list[str]) -> None:
    """They are left out first, and the kernel is compiled with them where it cannot be without."""
    plain = 'extern "C" __global__ void f(float *x) { *x = erff(tanhf(*x)); }'
    assert compiled(plain).cubin
    assert len(counted) == 1
    textured = """extern "C" __global__ void f(cudaTextureObject_t image, float *x)
    { *x = tex1Dfetch<float>(image, 1); }"""
    assert "tex.1d" in compiled(textured).ptx
    assert len(counted) == 3


def test_the_second_compilation_comes_from_the_cache(empty_cache: Path, counted: list[str]) -> None:
    source = "__global__ void f(float *x) { *x = 3; }"
    first = compiled(source)
    again = compiled(source)
    assert (again.ptx, again.cubin, again.entries, again.lowered, again.key) == (
        first.ptx,
        first.cubin,
        first.entries,
        first.lowered,
        first.key,
    )
    assert len(counted) == 1
    assert cache.default().stats().entries == 1


@pytest.mark.parametrize(
    "change",
    [
        {"source": "__global__ void f(float *x) { *x = 4; }"},
        {"arch": "sm_86"},
        {"defines": {"TILE": 16}},
        {"options": ["--use_fast_math"]},
        {"filename": "other.cu"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_the_result_changes_the_key(
    empty_cache: Path, counted: list[str], change: dict[str, object]
) -> None:
    given: dict[str, object] = {"source": "__global__ void f(float *x) { *x = 3; }", "arch": "sm_80"}
    keys = {compiled(**how).key for how in (given, {**given, **change})}  # type: ignore[arg-type]
    assert (len(keys), len(counted)) == (2, 2)


def test_a_changed_header_is_compiled_again(empty_cache: Path, counted: list[str], tmp_path: Path) -> None:
    """Whether it is included itself or by another header, from memory or from a folder."""
    source = '#include "outer.cuh"\nextern "C" __global__ void f(int *x) { *x = VALUE; }'
    outer, folder = '#include "inner.cuh"\n', tmp_path / "include"
    folder.mkdir()
    (folder / "outer.cuh").write_text(outer)

    def ptx(value: int) -> tuple[str, str]:
        inner = f"#define VALUE {value}\n"
        (folder / "inner.cuh").write_text(inner)
        from_memory = compiled(source, headers={"outer.cuh": outer, "inner.cuh": inner})
        return from_memory.ptx, compiled(source, include_dirs=[folder]).ptx

    one, two, again = ptx(1234567), ptx(7654321), ptx(1234567)
    assert one == again
    assert all("1234567;" in text for text in one)
    assert all("7654321;" in text for text in two)
    assert len(counted) == 4


def test_a_changed_header_beside_another_is_compiled_again(empty_cache: Path, tmp_path: Path) -> None:
    """A header's own folder is none of those that are given."""
    source = '#include "deep/outer.cuh"\nextern "C" __global__ void f(int *x) { *x = VALUE; }'
    (folder := tmp_path / "deep").mkdir()
    (folder / "outer.cuh").write_text('#include "inner.cuh"\n')
    for value in (1234567, 7654321):
        (folder / "inner.cuh").write_text(f"#define VALUE {value}\n")
        assert f"{value};" in compiled(source, include_dirs=[tmp_path]).ptx


def test_every_header_that_a_text_reaches_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its text: of one in memory first, then beside the file that includes it; None if there is none to read."""
    (tmp_path / "deep").mkdir()
    texts = {
        "a.cuh": '#include "in_memory.cuh"\n',
        "deep/b.cuh": "# include <c.cuh>\n#include WHICH\n",
        "deep/c.cuh": "int c;",
        "in_memory.cuh": "not this",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    memory = {"in_memory.cuh": '#include "deep/b.cuh"\n'}
    source = '#include "a.cuh"\n#include "a.cuh"\n#include "gone.cuh"\n'

    def reached() -> dict[str, str | None]:
        found = [*_reachable(source, memory, [tmp_path])]
        assert len(found) == len(dict(found))
        return dict(found)

    everything = {
        "a.cuh": texts["a.cuh"],
        "gone.cuh": None,
        **memory,
        "deep/b.cuh": texts["deep/b.cuh"],
        "c.cuh": "int c;",
        "\0computed": None,
    }
    assert reached() == everything

    def refuse(_path: Path, **_how: str) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert reached() == {"a.cuh": None, "gone.cuh": None}


def test_a_computed_include_is_never_taken_from_the_cache(
    empty_cache: Path, counted: list[str], tmp_path: Path
) -> None:
    """Which file it names is known to nobody but the preprocessor."""
    source = '#define WHICH "value.cuh"\n#include WHICH\nextern "C" __global__ void f(int *x) { *x = VALUE; }'
    found = []
    for value in (1234567, 7654321):
        (tmp_path / "value.cuh").write_text(f"#define VALUE {value}\n")
        found.append(compiled(source, include_dirs=[tmp_path]))
    assert [binary.key for binary in found] == ["", ""]
    assert "7654321;" in found[1].ptx
    assert len(counted) == 2


def test_a_damaged_entry_is_made_again(empty_cache: Path, counted: list[str]) -> None:
    source = "__global__ void f(float *x) { *x = 3; }"
    first = compiled(source)
    (entry,) = [file for file in empty_cache.rglob("*") if file.name == first.key]
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)
    assert compiled(source).cubin == first.cubin
    assert len(counted) == 2


def test_no_cache_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "file"))
    assert compiled("__global__ void f(float *x) { *x = 3; }").cubin
    assert "file" in (cache.default().problem or "")


def test_constant_memory_of_a_kernel_is_that_of_all_its_banks() -> None:
    """In an ELF file of a table of names and sections, each with its size; those of other kernels are apart."""
    sizes = {
        ".nv.constant0.f": 400,
        ".nv.constant2.f": 24,
        ".nv.constant0.ff": 8,
        ".nv.constant3": 99,
        ".text.f": 7,
    }
    names = b"\0" + b"".join(name.encode() + b"\0" for name in sizes)
    begins = [names.index(name.encode() + b"\0") for name in sizes]
    sections = [(0, len(names)), *zip(begins, sizes.values(), strict=True)]
    head = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<Q", 64 + len(names))
    head = head.ljust(58, b"\0") + struct.pack("<HHH", 64, len(sections), 0)
    table = b"".join(
        struct.pack("<IIQQQQ", name, 1, 0, 0, 64, size).ljust(64, b"\0") for name, size in sections
    )
    assert constant_bytes(head + names + table) == {"f": 424, "ff": 8}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("no libnvrtc.so.13\nsought in /usr"), "no libnvrtc.so.13"),
        (KeyError(), "KeyError"),
        (None, "import of cuda.bindings.nvrtc halted"),  # there are no bindings for it
    ],
)
def test_a_compiler_that_cannot_be_loaded_is_told_at_its_first_use(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, reason: str
) -> None:
    """Its bindings look for it when they are called first, and raise what they like."""
    bindings = importlib.import_module("cuda.bindings")

    def load() -> None:
        assert error is not None
        raise error

    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    monkeypatch.delattr(bindings, "nvrtc", raising=False)
    if error is not None:
        pretended = SimpleNamespace(nvrtcVersion=load, nvrtcGetSupportedArchs=lambda: (0, [75]))
        monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", pretended)
        monkeypatch.setattr(bindings, "nvrtc", pretended, raising=False)
    functions: tuple[Any, ...] = (nvrtc._library, nvrtc.supported, nvrtc.version)
    for function in functions:
        function.cache_clear()
    try:
        for function in functions:
            with pytest.raises(ToolError) as told:
                function()
            assert str(told.value).startswith(
                "NVRTC, the CUDA C++ compiler library, cannot be loaded (" + reason
            )
            assert str(told.value).endswith("); pip install nvidia-cuda-nvrtc cuda-bindings")
    finally:
        for function in functions:
            function.cache_clear()


def test_a_call_of_the_compiler_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    result = type("Result", (int,), {"name": "NVRTC_ERROR_OUT_OF_MEMORY"})
    library = SimpleNamespace(nvrtcCreateProgram=lambda *_: (result(1),))
    monkeypatch.setattr(nvrtc, "_library", lambda: library)
    with pytest.raises(ToolError, match=r"^NVRTC failed: NVRTC_ERROR_OUT_OF_MEMORY$"):
        nvrtc.compile_program("", "x.cu", (), {})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no processes that fork")
def test_threads_of_a_forked_process_and_of_its_parent_compile() -> None:
    """A lock that the fork left closed would keep them waiting."""
    script = """
        import os, threading, time, types
        from tilewise.toolchain import nvrtc

        def thread_enters():
            def enter():
                with nvrtc._UNFORKED:
                    entered.append(True)

            entered, one = [], threading.Thread(target=enter, daemon=True)
            one.start()
            one.join(5)
            return bool(entered)

        child = os.fork()
        if not child:
            os._exit(0 if thread_enters() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child waits"
        assert thread_enters(), "the parent waits"

        def create(*_):
            began.set()
            time.sleep(0.2)
            over.append(True)
            raise RuntimeError

        began, over = threading.Event(), []
        nvrtc._library = lambda: types.SimpleNamespace(nvrtcCreateProgram=create)
        threading.excepthook = lambda *_: None
        threading.Thread(target=nvrtc.compile_program, args=("", "x.cu", (), {})).start()
        began.wait()
        child = os.fork()
        if not child:
            os._exit(0 if over else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "in the child a compiler still runs"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
