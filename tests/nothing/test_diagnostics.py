"""Messages of the compiler and of the assembler, told in the user's own lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewise import Kernel
from tilewise.errors import ArchError, CompileError
from tilewise.toolchain import compile as toolchain
from tilewise.toolchain import diagnostics
from tilewise.toolchain.binary import Binary
from tilewise.toolchain.compile import compile_source

COPY = """\
extern "C" __global__ void copy(float *x)
{
    __shared__ float y[4];
    unsigned to = __cvta_generic_to_shared(y);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(x));
    x[1] = y[0];
}
"""


def compiled(source: str, name: str = "f", arch: str = "sm_80", **rest: object) -> Binary:
    return compile_source(source, [name], arch, **rest)  # type: ignore[arg-type]


def refused(source: str, name: str = "f", arch: str = "sm_80", **rest: object) -> str:
    with pytest.raises(CompileError) as caught:
        compiled(source, name, arch, **rest)
    return str(caught.value)


def test_an_error_shows_the_line_and_a_caret() -> None:
    source = 'extern "C" __global__ void f(float *x)\n{\n    *x = 2 * wrong;\n}\n'
    assert refused(source, filename="mine.cu").splitlines() == [
        'mine.cu:3: error: identifier "wrong" is undefined',
        " 3 |     *x = 2 * wrong;",
        "   |              ^",
    ]


def test_a_caret_stays_below_its_place_after_tabs() -> None:
    text = refused("__global__ void f(float *x)\n{\n\t\t*x =\twrong;\n}\n")
    assert text.splitlines()[1:] == [" 3 | \t\t*x =\twrong;", "   | \t\t    \t^"]


def test_letters_of_any_alphabet_come_back() -> None:
    assert refused("\n#error Größe µ\n", filename="größe.cu").splitlines()[:2] == [
        "größe.cu:2: error: #error directive: Größe µ",
        " 2 | #error Größe µ",
    ]


def test_an_error_in_a_header_shows_the_headers_line() -> None:
    source = '#include "scale.cuh"\n__global__ void f(float *x) { *x = scale(*x); }\n'
    text = refused(
        source, headers={"scale.cuh": "__device__ float scale(float x)\n{\n    return x * y;\n}\n"}
    )
    assert text.splitlines() == [
        'scale.cuh:3: error: identifier "y" is undefined',
        " 3 |     return x * y;",
        "   |                ^",
    ]


def test_wrong_inline_ptx_is_traced_to_the_cuda_line() -> None:
    text = refused(COPY.replace("cp.async.ca", "cp.asink.ca"), "copy")
    first, source, caret = text.splitlines()[:3]
    assert first.startswith("kernel.cu:5: error: Unknown modifier '.asink' (PTX line ")
    assert "cp.asink.ca.shared.global" in first
    assert source.startswith(" 5 |     asm volatile(")
    assert caret == "   |     ^"


def test_a_syntax_error_in_inline_assembly_says_which() -> None:
    """The assembler calls it fatal."""
    with pytest.raises(CompileError, match=r"kernel.cu:1: error: Parsing error near '%': syntax error"):
        compile_source('__global__ void f() { asm volatile("mov.u32 %%r0, 1;"); }', ["f"], "sm_80")


def test_an_instruction_that_the_arch_lacks_names_the_arch_that_has_it() -> None:
    with pytest.raises(ArchError) as caught:
        compiled(COPY, "copy", "sm_75")
    lines = str(caught.value).splitlines()
    assert lines[0] == "kernel.cu needs sm_80 or newer, not sm_75; compile it for sm_80"
    assert lines[1].startswith("kernel.cu:5: error: Feature 'cp.async' requires .target sm_80 or higher")
    assert compiled(COPY, "copy", "sm_80").cubin


def test_a_failing_static_assert_says_why() -> None:
    source = 'template <int N> __global__ void tiled(float *x) { static_assert(N > 4, "too small"); *x = N; }'
    assert 'static assertion failed with "too small"' in refused(source, "tiled<3>")


def test_a_header_that_is_nowhere_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_toolkit_folder", lambda: "")
    assert "or the text in headers=" in refused("#include <boost/any.hpp>\n__global__ void f() {}")
    assert "tilewise[cuda-headers]" in refused("#include <cuda_fp16.h>\n__global__ void f() {}")


def test_a_toolkits_header_is_found_beside_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "of_cuda.h").write_text("#define TWO 2\n")
    monkeypatch.setattr(toolchain, "_toolkit_folder", lambda: str(tmp_path))
    source = '#include "own.cuh"\n#include <of_cuda.h>\n__global__ void f(int *x) { *x = ONE + TWO; }'
    assert compile_source(source, ["f"], "sm_80", headers={"own.cuh": "#define ONE 1\n"}).cubin


def test_host_code_in_a_header_is_told_what_nvrtc_takes() -> None:
    source = '#include "own.h"\n__global__ void f(float *x) { *x = 1; }\n'
    assert "#ifndef __CUDACC_RTC__" in refused(source, headers={"own.h": "inline int g() { return 1; }\n"})
    assert "__CUDACC_RTC__" not in refused("__global__ void f(float *x) { *y = 1; }")
    wrong = source.replace("*x = 1", "*y = 1")  # of which something else is told too
    assert "#ifndef __CUDACC_RTC__" in refused(wrong, headers={"own.h": "inline int g() { return 1; }\n"})


@pytest.mark.parametrize(
    ("kind", "read"),
    [("catastrophic error", "error"), ("error", "error"), ("warning", "warning"), ("remark", "warning")],
)
def test_every_kind_of_message_is_read(kind: str, read: str) -> None:
    log = f"dir (1)/k.cu(3): {kind} #177-D: what is said\n      int n;\n          ^\n"
    (found,) = diagnostics.read_log(log)
    assert (found.kind, found.file, found.line, found.code) == (read, "dir (1)/k.cu", 3, "177-D")
    assert (found.text, found.source, found.column) == ("what is said", "    int n;", 9)


def test_a_message_of_several_lines_is_one_before_its_excerpt() -> None:
    rest = "          two\n            three\n"
    for excerpt, shown in (
        ("            x = wrong;\n                ^\n", ("          x = wrong;", 15)),
        ("", ("", 0)),
    ):
        (found,) = diagnostics.read_log(f"k.cu(1): error: one\n{rest}{excerpt}")
        assert (found.text, found.source, found.column) == ("one two three", *shown)


def test_a_message_without_an_excerpt_takes_none_from_the_next() -> None:
    log = "k.cu(3): error: nothing is shown\nk.cu(9): warning #1: what is seen\n      int n;\n          ^\n"
    first, second = diagnostics.read_log(log)
    assert str(first) == "k.cu:3: error: nothing is shown"
    assert (second.line, second.source, second.column) == (9, "    int n;", 9)


def test_an_instruction_without_a_cuda_line_has_none_of_the_function_before() -> None:
    ptx = ".entry a()\n{\n\t.loc 1 1 0\n\tret;\n}\n.entry b()\n{\n\tbad;\n}\n"
    for number, told in (
        (4, "k.cu:1: error: odd (PTX line 4: ret;)\n 1 | ret"),
        (8, "error: odd (PTX line 8: bad;)"),
    ):
        log = f"ptxas application ptx input, line {number}; error   : odd\n"
        assert str(diagnostics.failure(log, "ret", "k.cu", "sm_80", lambda: ptx)) == told


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (0, "error: odd (line 0 of the PTX)"),
        (1, "error: odd (PTX line 1: .entry a())"),
        (4, "k.cu:2: error: odd (PTX line 4: first;)\n 2 |  two\n   |    ^"),
        (6, "k.cu:2: error: odd (PTX line 6: of a header;)\n 2 |  two\n   |    ^"),
        (8, "k.cu:2: error: odd (PTX line 8: of no line;)\n 2 |  two\n   |    ^"),
        (10, "k.cu:3: error: odd (PTX line 10: last;)\n 3 | three\n   | ^"),
        (12, "k.cu:4: error: odd (PTX line 12: beyond;)"),
        (13, "k.cu:4: error: odd (PTX line 13: })"),
        (14, "error: odd (line 14 of the PTX)"),
    ],
)
def test_a_message_of_the_assembler_is_at_the_line_of_the_source_before_it(number: int, told: str) -> None:
    """Of the file itself, not of a header; and one that the PTX does not have is told by its number."""
    ptx = (
        ".entry a()\n{\n\t.loc 1 2 4\n\tfirst;\n\t.loc 2 1 1\n\tof a header;\n\t.loc 1 0 1\n\tof no line;\n"
        "\t.loc 1 3 1\n\tlast;\n\t.loc 1 4 1\n\tbeyond;\n}\n"
    )
    log = f"ptxas application ptx input, line {number}; error   : odd\n"
    source = "one\n two\nthree\n"
    assert str(diagnostics.failure(log, source, "k.cu", "sm_80", lambda: ptx)) == told


PRODUCTS = """extern "C" __global__ void products(float *out, unsigned long long a, unsigned long long b)
{
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < 2; ++i) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
        // between
    }
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}
"""


def test_warpgroup_instructions_that_are_serialised_are_a_warning_at_their_line() -> None:
    """The assembler calls it information, and names a line of the PTX: a sum is touched before the wait for it."""
    assert Kernel(PRODUCTS, "products", "sm_90a").warnings == ()
    touched = PRODUCTS.replace("// between", "d[0] *= 2;")
    (warning,) = Kernel(touched, "products", "sm_90a").warnings
    assert warning.startswith("kernel.cu:6: warning: Potential Performance Loss: wgmma.mma_async")
    assert re.search(
        r"serialized .*\(PTX line \d+: wgmma\.mma_async.*\[C75\d\d\]\n 6 \|  +asm volatile", warning
    )


def test_a_warning_about_a_header_is_at_the_line_that_calls_it() -> None:
    touched = PRODUCTS.replace("// between", "d[0] *= 2;")
    header = touched.replace(
        'extern "C" __global__ void products', "__device__ __forceinline__ void multiply"
    )
    head, rest = PRODUCTS.split("\n", 1)[0], "{\n    multiply(out, a, b);\n}\n"
    source = f'#include "multiply.h"\n{head}\n{rest}'
    (warning,) = Kernel(source, "products", "sm_90a", headers={"multiply.h": "\n" * 9 + header}).warnings
    assert warning.startswith("kernel.cu:4: warning: Potential")
    assert "\n 4 |     multiply(out, a, b);\n" in warning


def test_what_costs_most_of_the_speed_is_a_warning_without_a_line_too() -> None:
    told = "Potential Performance Loss: wgmma.mma_async instructions are serialized"
    log = f"ptxas info    : (C7510) {told}\nptxas info    : 65 bytes gmem\n"
    assert diagnostics.warnings(log, "", "", "kernel.cu") == (f"warning: {told} [C7510]",)


def test_a_warning_is_kept_with_its_line() -> None:
    source = 'extern "C" __global__ void f(float *x)\n{\n    int idle;\n    *x = 2;\n}\n'
    for _ in range(2):  # the second comes from the cache
        kernel = Kernel(source, "f", "sm_75")
        assert kernel.warnings == (
            'kernel.cu:3: warning: variable "idle" was declared but never referenced [177-D]\n'
            " 3 |     int idle;\n"
            "   |         ^",
        )


@pytest.mark.parametrize(("count", "rest"), [(5, ""), (6, "… and 1 more error"), (8, "… and 3 more errors")])
def test_five_errors_are_shown_and_the_others_counted(count: int, rest: str) -> None:
    log = "\n".join(f"k.cu({i}): error: mistake {i}" for i in range(1, count + 1))
    shown = str(diagnostics.failure(log, "", "k.cu", "sm_80", lambda: "")).splitlines()
    assert shown == [*(f"k.cu:{i}: error: mistake {i}" for i in range(1, 6)), *filter(None, [rest])]
    lines = (f"ptxas application ptx input, line {i}; error   : mistake {i}" for i in range(1, count + 1))
    shown = str(
        diagnostics.failure("\n".join(lines), "", "k.cu", "sm_80", lambda: "ret;\n" * count)
    ).splitlines()
    assert shown == [
        *(f"error: mistake {i} (PTX line {i}: ret;)" for i in range(1, 6)),
        *filter(None, [rest]),
    ]


def test_that_the_assembler_gave_up_is_no_error_of_its_own() -> None:
    log = "ptxas k.ptx, line 3; error   : Not a name\nptxas fatal   : Ptx assembly aborted due to errors\n"
    assert [(item.text, item.line) for item in diagnostics.read_log(log)] == [("Not a name", 3)]
