"""CUDA programs as nvcc takes them, with main and the host's headers: their kernels compile and run as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewise as tw
from tilewise.toolchain.host_code import without_host_code

PROGRAM = r"""
#include <cstdio>
#include <cstdint>
#include <cmath>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) { fprintf(stderr, "%s\n", cudaGetErrorString(e)); exit(1); } \
    } while (0)
#define DEVICE __device__ __forceinline__

using namespace std;
using Floats = std::vector<float>;
constexpr int BLOCK = 64;
const float FACTOR = 0.5f;
static int runs = 0;
const char *names[] = {"a }", "b {"};

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
struct Params { int n; float scale; Params(int n, float s) : n(n), scale(s) {} float twice() const { return 2 * scale; } };
struct Timer {
    cudaEvent_t begin, end;
    Timer() { cudaEventCreate(&begin); }
    ~Timer() { cudaEventDestroy(begin); }
};
enum class Mode { one, two };
template <typename T> struct Pair { T a, b; };

namespace detail {
DEVICE float half_of(float x) { return x * FACTOR; }
float on_host(const Floats &v) { return v[0] > '{' ? v.at(0) : 0; }
}  // namespace detail

__constant__ float bias = 1.0f;
void forward(Floats &v);
template <typename T> T host_sum(const std::vector<T> &v) { T s{}; for (auto x : v) s += x; return s; }

template <int N>
__global__ void __launch_bounds__(BLOCK) scale(float *x, int n)
{
    __shared__ float s[ceil_div(N, 2) * 2];
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? detail::half_of(x[i]) : 0;
    __syncthreads();
    if (i < n) x[i] = std::sqrt(s[threadIdx.x]) + bias + (M_PI > 3);
    if (i == 0) printf("on the device\n");
}
extern "C" __global__ void plain(float *x) { Pair<float> p{x[0], x[1]}; x[0] = p.a + p.b; }

#ifdef __linux__
int parse(int argc, char **argv) { return argc > 1 ? atoi(argv[1]) : 100; }
#else
int parse(int, char **) { return 100; }
#endif

auto main(int argc, char **argv) -> int {
    const int n = parse(argc, argv);
    std::vector<float> host(n, 4.0f);
    float *x;
    CHECK(cudaMalloc(&x, n * sizeof(float)));
    scale<BLOCK><<<ceil_div(n, BLOCK), BLOCK>>>(x, n);
    printf(R"(%f "}" )", host_sum(host));
    runs++;
    return 0;
}
"""


def test_the_kernels_of_a_program_run(capfd: pytest.CaptureFixture[str]) -> None:
    module = tw.Module(PROGRAM, "sm_80", names=["scale<64>"])
    assert set(module.entries) == {"scale<64>", "plain"} and module["bias"] == 1
    x = np.full(100, 8, np.float32)
    module.kernel("scale<64>")(2, 64, [x, 100], device="emulator")
    assert (x == 4).all() and "on the device" in capfd.readouterr().out
    module.kernel("plain")(1, 1, [x], device="emulator")
    assert x[0] == 8


def test_a_mistake_in_a_kernel_is_shown_at_its_line() -> None:
    wrong = PROGRAM.replace("x[0] = p.a + p.b;", "x[0] = p.a + wrong;")
    line = wrong[: wrong.index("wrong")].count("\n") + 1
    with pytest.raises(
        tw.errors.CompileError, match=f'^mine.cu:{line}: error: identifier "wrong" is undefined'
    ):
        tw.Kernel(wrong, "plain", "sm_80", filename="mine.cu")


def test_what_is_blanked_keeps_its_lines_and_all_else() -> None:
    left = without_host_code(PROGRAM)
    assert [line for line in left.splitlines() if line.startswith("#")] == [
        line for line in PROGRAM.splitlines() if line.startswith("#")
    ]
    assert left.count("\n") == PROGRAM.count("\n")
    for gone in (
        "main",
        "forward",
        "host_sum",
        "Timer",
        "on_host",
        "runs",
        "*names",
        "parse",
        "twice",
        "Floats",
    ):
        assert gone not in left, gone
    for kept in (
        "half_of",
        "Params",
        "float scale;",
        "Mode",
        "Pair",
        "bias",
        "FACTOR",
        "BLOCK = 64",
        "plain",
    ):
        assert kept in left, kept


@pytest.mark.parametrize(
    "file", sorted(Path(tw.__file__).parent.glob("kernels/**/*.cu")), ids=lambda file: file.name
)
def test_sources_of_kernels_alone_stay_as_they_are(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert without_host_code(source) == source


@pytest.mark.parametrize(
    "source",
    [
        "int main() {",
        "}}}",
        "struct A",
        "__global__ void k(",
        "a(b{c)d}",
        "#define x {\nint f() {",
        "",
        "int x = {",
    ],
)
def test_broken_sources_are_told_by_the_compiler(source: str) -> None:
    assert without_host_code(source).count("\n") == source.count("\n")
    with pytest.raises(tw.TilewiseError):
        tw.Kernel(f"{source}\n", "k", "sm_80")


@pytest.mark.parametrize("include", ["", "#include <cmath>\n#include <climits>\n#include <cstdint>\n"])
def test_what_nvcc_knows_without_an_include(include: str) -> None:
    source = "__global__ void k(double *x) { uint8_t u = 255; x[0] = -INFINITY; x[1] = NAN; x[2] = M_PI; x[3] = INT_MAX; x[4] = u; }"
    x = np.zeros(5)
    tw.Kernel(include + source, "k", "sm_80")(1, 1, [x], device="emulator")
    assert x.tolist() == [-np.inf, pytest.approx(np.nan, nan_ok=True), np.pi, 2**31 - 1, 255]
    with pytest.raises(tw.errors.CompileError) as caught:
        tw.Kernel(
            "__global__ void k(float *x) {\n    x[0] = INFINITY + nothing;\n}",
            "k",
            "sm_80",
            filename="mine.cu",
        )
    assert str(caught.value).startswith('mine.cu:2: error: identifier "nothing"')


def test_default_arguments_are_no_initialisers() -> None:
    source = """
    struct Walk {
        unsigned index;
        __device__ bool more(unsigned later = 0)
        {
            const unsigned sought = index + later * (gridDim.x / 2);
            return sought < 9;
        }
    };
    """
    assert without_host_code(source) == source
    left = without_host_code("""
    __device__ float twice(float x = 1) { return 2 * x; }
    int on_host(int x = 1) { return x; }
    __device__ float half(float x) { return x / 2; }
    """)
    assert "on_host" not in left and "twice" in left and "half" in left


def test_what_stands_right_behind_the_hosts_part_stays() -> None:
    kernel = "__global__ void k(int *x){*x=1;}"
    for host in ("int f();", "int n=1;", "int f(){return 1;}", "int n[]={1};"):
        assert without_host_code(host + kernel + host) == " " * len(host) + kernel + " " * len(host)


def test_a_kernel_by_a_macro_stays_at_the_end_too() -> None:
    """Where no semicolon ends it, nor anything else."""
    macro = "#define KERNEL(name, type) __global__ void name(type *x) { *x = 1; }\n"
    for use in ("KERNEL(k, float)", "KERNEL(k, float)\n"):
        assert without_host_code(f"{macro}int f();\n{use}") == f"{macro}{' ' * 8}\n{use}"


def test_directives_within_the_hosts_part_stay_and_so_do_tables_of_numbers() -> None:
    source = """const int table[(2 + 2)] = {1, 2, 3, 4};
constexpr cudaError_t good() { return cudaSuccess; }
constexpr int three() { return 3; }
int main() {
#if 1
  return 0;
#endif
}
"""
    left = [line.rstrip() for line in without_host_code(source).splitlines()]
    assert left == [
        "const int table[(2 + 2)] = {1, 2, 3, 4};", "", "__host__ __device__ constexpr int three() { return 3; }",
        "", "#if 1", "", "#endif", "",
    ]  # fmt: skip


def test_a_class_keeps_what_is_made_by_default() -> None:
    source = "struct A { A() = default; A(const A &) = delete; int x; __device__ int f() { return x; } };"
    assert without_host_code(source) == source
    host = "int g() { return x; }"
    assert without_host_code(source.replace("int x;", f"int x; {host}")) == source.replace(
        "int x;", f"int x; {' ' * len(host)}"
    )


def test_a_class_keeps_who_may_use_its_members() -> None:
    begin, rest = "class A { private: ", "public: __device__ int f() { return x; } int x; };"
    for host in ("int g() { return x; }", "A() : x{1}{ x = 2; }"):
        assert without_host_code(begin + host + rest) == begin + " " * len(host) + rest


def test_a_class_of_host_and_device_loses_the_hosts_part_alone() -> None:
    left = without_host_code("""
    struct Both {
        float *data;
        void fill(const std::vector<float> &v) { cudaMemcpy(data, v.data(), 4 * v.size(), cudaMemcpyDefault); }
        __device__ float at(int i) const { return data[i]; }
    };
    """)
    assert "fill" not in left and "struct Both" in left and "float at(int i)" in left


def test_the_types_of_whole_numbers_have_the_size_and_sign_that_they_are_named_for() -> None:
    """Those that a header of the host would bring, with ``std::`` and without."""
    checks = [
        f"static_assert(sizeof({scope}{sign}int{bits}_t) == {bits // 8} && (({scope}{sign}int{bits}_t)-1 < 0) == {not sign:d});"
        for scope in ("", "std::")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    ]
    checks.append("static_assert(sizeof(uintptr_t) == 8 && (uintptr_t)-1 > 0 && (intptr_t)-1 < 0);")
    program = "#include <cstdint>\n#include <vector>\nint main() { std::vector<int> v; }\n" + "\n".join(
        checks
    )
    tw.Kernel(program + '\nextern "C" __global__ void k() {}', "k", "sm_80").build()
