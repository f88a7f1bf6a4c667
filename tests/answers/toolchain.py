"""The toolchain where it compiles nothing: names, declarations, logs, listings and host code as they are read; the cache."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from tilewise.errors import TilewiseError
from tilewise.launch import Parameter
from tilewise.toolchain import assemble, cache, diagnostics, lines
from tilewise.toolchain.binary import Binary, Entry, Resources
from tilewise.toolchain.compile import _definitions, _reachable, _templates, with_kernel
from tilewise.toolchain.declarations import DeclarationScope, declare
from tilewise.toolchain.host_code import HOST_HEADERS, implicit_headers, without_host_code
from tilewise.toolchain.mangling import Unreadable, parameter_types
from tilewise.toolchain.report import constant_bytes, read_report
from tilewise.toolchain.signature import entry_named, read_entries, read_moved_registers, read_target
from tilewise.toolchain.variables import CppVariable, plain_name, read_variables

LINES = r"""
mangled('_Z1k«v|i|Pf|PKf|PVf|PrKf|PPf|PPKf|Rf|RKf|Of|A4_f|PA4_f|P3Foo|PK3Foo|3Foo|N2ns3FooE|PN2ns3FooE|Pvi|DF16_|PDF16b|PDn|z|PFivE|PFYviE|St4byte|PSt4byte|Ss|PSa|hahstjlmxyno|cwDuDsDi|iz|bbb|K|P|Q|3Fo|A_f|AT_f|g»')
mangled('_Z1kI«f|Li3E|Lin3E|Lb1E|Lj4E|3Foo|N2ns3FooE|Jfi|JfiE|Pf|Li3Ef|L3Foo5E|LDF16_0E|»EvPT_«|i|T0_|PT0_|S0_|PS1_»')
mangled('_ZN«2ns1kE|2ns1kIfE|1a1b1kE|12_GLOBAL__N_11kE|2nsL1kE|2ns»«vPf|Pf|PNS_1sE|PS_|PKNS_1sE|PNS_1sIfEE|PT_»')
mangled(«''|'k'|'_Z'|'_Zk'|'_Z1'|'_Z2k'|'_ZL1kPf'|'_Z1kP' * 1 + 'P' * 62 + 'f'|'_Z1k' + 'P' * 63 + 'f'|'_Z1k' + 'P' * 64 + 'f'|'_Z1k3FooS_'|'_Z1kP3FooS_S0_'|'_Z1kP3FooS0_S1_'|'_Z1kPKfS0_S_'|'_Z1kN1a1bES_S0_'|'_Z1kSt6vectorIfSaIfEE'»)
declared('k', 'extern "C" __global__ void k(«float *x|const float *x|float const *x|float *const x|float *__restrict__ x|const float *__restrict__ x|volatile float *x|float x[4]|float x[]|float x[2][2]|float **x|float *x[2]|int n|unsigned n|unsigned long long n|long unsigned int *n|short int *s|signed char *c|uint8_t *x|std::uint8_t *x|cuda::std::uint8_t *x|size_t n|half *h|__half *h|nv_bfloat16 *b|__nv_fp8_e4m3 *e|Foo *f|const Foo *f|Foo f|T *t|void *p|const void *p|void|float|float *|bool *b|double *d|long *l|std::byte *b|float &x|float (*x)(int)|__grid_constant__ const CUtensorMap m|const __grid_constant__ Foo f|unsigned char|char *c, int n|float *x = nullptr|auto x»)')
declared('k', «'extern "C" __global__ void k(float *x); extern "C" __global__ void k(float *x) {}'|'extern "C" __global__ void k(float *x); extern "C" __global__ void k(int *x) {}'|'__global__ void kk(float *x) {} __global__ void k(int *y) {}'|'/* __global__ void k(float *x) */ __global__ void k(int *x) {}'|'// __global__ void k(float *x)\n__global__ void k(int *x) {}'|'__global__ void __launch_bounds__(256) k(float *x) {}'|'void k(float *x) {}'|'__global__ void k(float *x'|'__global__ void k(#if 1\nfloat *x)'|'#define float int\n__global__ void k(float *x) {}'|'#define N 3\n__global__ void k(float *x) {}'|'typedef struct S half; __global__ void k(half *x) {}'|'struct half {}; __global__ void k(half *x) {}'|'using half = int; __global__ void k(half *x) {}'|'"__global__ void k(float *x)" __global__ void k(int *x) {}'|'__global__ void\nk (float *x, void (*f)(int, int), T<int, 2> t, int n) {}'|'template <int N> __global__ void k(float *x) {}'»)
declared('k', '__global__ void k(float *x, int n) {}', headers=«{}|{'a.h': '#define float double'}|{'cuda_fp16.h': '#define float double'}|{'a.h': None}|{'a.h': '__global__ void k(int *x, int n);'}», options=«[]|['-Dfloat=int']|['-DN=1']|['--define-macro=float=x']|['-include a.h']|['--pre-include=a.h']|['-DF']»)
[[(one.declared, one.element, one.writable) for one in declare({'«k|_Z1kPfi|_Z1kPf|_Z1kfi»': entry('«k|_Z1kPfi»', «8, 4|8, 8|4, 4|8»)}, '__global__ void k(float *x, int n) {}', {}, ())['«k|_Z1kPfi|_Z1kPf|_Z1kfi»'].parameters]]
read_variables('«__constant__ float c[4];|__device__ int calls;|__constant__ float c[2][3] = {};|__device__ float4 v;|__device__ ulonglong2 v[3];|static __device__ unsigned long long n = 0;|__constant__ float *p;|__device__ Foo f;|extern __constant__ float c[];|__device__ float f(int x) { return x; }|__device__ half h[8];|__constant__ const int N = 3;|__device__ float a, b;|__device__ volatile bool flag;|__shared__ float s[4];|__device__ float c[N];|__device__ float c; __device__ int c;|__device__ float c; __device__ float c;|#define float int\n__device__ float c;|__device__ __align__(16) float c[4];|struct S { float x; }; __device__ S s;|__managed__ double d[2];|// __device__ float c;|__device__ char3 t;|__device__ int5 t;|struct float2 {}; __device__ float2 v;»')
CppVariable('x', 'float32', «()|(None,)|(None, 3)|(None, None)|(2, 3)|(0,)»).shape(«4|24|12|0|10», 4)
plain_name(«'table'|'_ZL4mine'|'_ZN2ns1uE'|'_ZN2nsL1uE'|'_ZN12_GLOBAL__N_11uE'|'_ZN2ns1uIfE'|'_Z4mine'|'_Z'|'_ZN'|'_Z3tableX'|'_ZN38_INTERNAL_00000000_9_kernel_cu_000000001xE'»)
read_target(«'.target sm_90a'|'.version 8\n.target sm_75, debug'|'// .target sm_80\n.target sm_90'|'.target'|''|'x.target sm_80'|'/* .target sm_80 */'|'.target sm_100f'»)
read_entries('.entry k«|()|(.param .u64 a)|(.param .u64 a, .param .u32 b)|(.param .align 8 .b8 s[24])|(.param .u64 .ptr .global .align 16 p)|(.param .u64 .ptr p)|(.param .f32 x[2])|(.param .pred q)|(.param u64 a)|(.param .align 4 .u8 c)» «|.maxntid 256|.maxntid 16, 16|.reqntid 8, 4, 2|.reqntid 128 .maxntid 64|.minnctapersm 2» { ret; }')
read_entries('// .entry a()\n.visible .entry _Z1kPf(.param .u64 x) { } /* .entry b() {} */ .weak .entry $c_1 { .maxntid 5 }')
read_moved_registers('.entry k() { setmaxnreg.inc.sync.aligned.u32 «240|160»; setmaxnreg.dec.sync.aligned.u32 «24|40»; setmaxnreg.inc.sync.aligned.u32 200; }\n.visible .func f() { setmaxnreg.dec 8; }\n.entry j() { }', «'k'|'j'|'f'|'none'»)
read_moved_registers('.entry k() { ret; }', 'k'), read_moved_registers('.entry k() { // setmaxnreg.inc 5\n }', 'k')
entry_named(«'k'|'_Z1kPf'|'j'|'t<32>'|'t< 32 >'|'t<16>'|'o'|'kk'|''|'t'|'ns::k'», «['k']|['_Z1kPf']|['_Z1oPf', '_Z1oPi']|['_Z1tILi32EEvPf', '_Z1tILi16EEvPf']|[]|['_ZN2ns1kEPf', 'k']»)
_templates(«'template <int N> __global__ void k(float *x) {}'|'template <int N> void k(float *x) {}'|'__global__ void k() {}'|'template <class T, int N>\n__global__ void __launch_bounds__(32) k(T *x);'»)
with_kernel(Binary('sm_80', 'ptx', «None|b"x"», {'k': Entry('k', ())}, source='template <int N> __global__ void t(float *x) {}', lowered={'a': 'k'}), «'k'|'a'|'t'|'u'»).lowered
list(_definitions(«{}|{'A': 1}|{'A': True, 'B': 1.5, 'C': 'x'}|{'A-B': 1}|{5: 1}|{'A': None}|{'A': [1]}|{'': 1}|{'_a1': ''}|{'1a': 1}»))
list(_reachable('#include «<a.h>|"a.h"|"b.h"|<none.h>|NAME|  <a.h> // x|"a.h\n#include <b.h>»', {'a.h': '#include "b.h"\n', 'b.h': 'b\n#include <a.h>'}, []))
read_report("ptxas info : Compiling entry function '«k|_Z1kPf»' for 'sm_80'\nptxas info : Function properties for k\n    «0|8» bytes stack frame, «0|4» bytes spill stores, «0|12» bytes spill loads\nptxas info : Used «32|255» registers«|, used 1 barriers|, used 16 barriers, 4096+16 bytes smem, 352 bytes cmem[0], 8 bytes cmem[2]|, 40 bytes lmem»\n", b'')
read_report("Used 5 registers\nCompiling entry function 'a'\nCompiling entry function 'b'\nUsed 7 registers\nUsed 9 registers", elf([('.nv.constant0.b', 100), ('.nv.constant3.b', 28), ('.nv.constantx.b', 5), ('.text.b', 9)]))
constant_bytes(«b''|b'x' * 100|elf([])|elf([('.nv.constant0.k', 7)])|elf([('.nv.constant0.k', 7), ('.nv.constant2.k', 3), ('.nv.constant0.j', 1)])|elf([('.nv.constant0.k', 7)])[:63]|b'\x7fELF\x01\x01' + bytes(90)»)
diagnostics.read_log('k.cu(3): «error|warning|warning #177-D|catastrophic error|remark|error #20|note»: bad thing\n«|          goes on here\n|  \n»  «\tint x = y;|int x;»\n  «\t        ^|    ^|»\n')
diagnostics.read_log('«ptxas kernel.ptx, line 12; error   : Bad|ptxas kernel.ptx, line 12; warning : Slow|ptxas kernel.ptx, line 7; fatal : X|ptxas fatal   : Ptx assembly aborted due to errors|ptxas error   : Entry function uses too much shared data|ptxas warning : Something|ptxas info    : (C7510) Potential Performance Loss: wgmma is serialized in line 9|ptxas info : (C7510) Potential Performance Loss: wgmma is serialized in function k|error: no file|nvrtc: error: failed|other»\n')
str(diagnostics.Diagnostic(«'error'|'warning'», 'text', «''|'k.cu'», «0|12», «''|'\tint  x;'», «0|1|2|7», «''|'177-D'»))
failed(«''|'\n  \n'|'something else\nlast line'|'k.cu(3): error: bad\n'|'k.cu(3): error: bad\n' * 5|'k.cu(3): error: bad\n' * 6|'k.cu(3): error: bad\n' * 9|'__nv_name_map(1): error: no such\n  nv_mangled_name foo<1>\n  ^\n\n'|'k.cu(1): error: cannot open source file "cuda_fp16.h"\n'|'k.cu(1): error: cannot open source file "vector"\n'|'k.cu(1): error: calling a host function from a kernel\n'|'k.cu(1): error: identifier "cudaMalloc" is undefined\n'|'ptxas k.ptx, line 6; error : Feature requires .target sm_90 or higher\n'|'ptxas k.ptx, line 99; error : Feature X\n'|'k.cu(1): error: requires SM 80, sm_80\n'|'ptxas k.ptx, line 3; error : Y\n'»)
diagnostics.warnings('k.cu(3): warning #177-D: unused\n  int x;\n      ^\n\nptxas k.ptx, line «5|6|7|9|0»; warning : slow\nk.cu(3): error: no', PTX, 'line one\nline two\n  line three', 'k.cu')
without_host_code(«'int main() { return 0; }\n__global__ void k() {}'|'__global__ void k() {}'|'int x = 3;\nconst int N = 4;\nconstexpr int M = 5;\nconst char *s = "a";'|'static void f(int a = 2) { g(); }\n'|'constexpr int f(int x) { return x; }\n__global__ void k() {}'|'#define KERNEL __global__\nKERNEL void k() {}\nvoid h() {}'|'struct S { float x; void f() { std::cout << 1; } };'|'struct S { __device__ void f() {} void g() {} int x; S() = default; };'|'namespace n { void f() {} __device__ int d; }'|'std::vector<int> v;'|'using T = std::vector<int>;\nusing U = int;'|'cudaStream_t s;\ncudaError_t e = f();'|'template <class T> struct A { T x; };\ntemplate <class T> void f(T x) {}'|'enum E { a, b };\ntypedef struct { int x; } P;'|'extern "C" { void f(); __global__ void k(); }'|'// void f() {}\n/* x */ __device__ int y;'|'void f() {\n#if 1\n  int x;\n#endif\n}'|'int a[f(3)];'|'static_assert(sizeof(int) == 4);'|'class C { public: C(int x) : y{x} {} private: int y; FILE *f; };'|'auto f = [](int x) { return x; };'|'void f() {'|'const float T[2] = {1, 2};'»)
implicit_headers(«''|'identifier "INFINITY" is undefined'|'identifier "uint8_t" is undefined\nidentifier "INT_MAX" is undefined'|'identifier "foo" is undefined'|'identifier "M_PI" is undefined'»).keys()
sorted(HOST_HEADERS), [len(HOST_HEADERS[«'cstdint'|'cmath'|'cfloat'|'climits'|'vector'»])]
lines._read_listing(LISTING), lines.ptx_locations(LOCATED)
[getattr(lines.MachineInstruction(16, «'@!P0 LDS.U.128 R4, [R2]'|'@!PT LDS RZ, [RZ]'|'@!UPT UIADD3 UR4'|'LDG.E.64.CONSTANT R2'|'ST.U8 R1'|'FFMA R1, R2'|''|'@P3 EXIT'|'LDGSTS.E.BYPASS.128 [R1]'|'LDC.S16 R1'|'STL R3'|'ULDC.64 UR4'»), each) for each in ('predicate', 'opcode', 'never', 'family', 'bits')]
lines._listed_name(«'/a/b.cu'|r'/a/\303/244.cu'|r'a\/b'|r'\303\244.cu'|'a'»), lines._path_parts(«'/a//b/./c'|r'a\b'|''»)
[len(table().at(«'k.cu'|'b/k.cu'|'x/k.cu'|'/a/b/k.cu'|'ak.cu'», «3|4|9»)), sorted(table().by_ptx)]
lines._load(«lines._dump(table().instructions)|b'{}'|b'x'|b'{"files": [], "rows": [[1, "a", [0, 1], [], null, ""]]}'») == table()
lines.disassemble(«b''|b'abc'|'text'»)
cached(lambda store: (store.put(«'k'|'K'|''|'a b'|'a' * 200|'a' * 201|5», 'key', {'a': b'1'}), store.get('k', 'key')))
cached(lambda store: [store.put('k', 'key', {'a': b'x' * «0|10|700|2000»}), store.get('k', 'key') is not None, store.stats().entries, store.stats().writable], «1000|100|0»)
cached(lambda store: ([store.put('k', f'key{i}', {'a': bytes(«100|300»)}) for i in range(«3|9»)], [store.get('k', f'key{i}') is not None for i in range(«3|9»)][-1]), 1500)
cached(lambda store: (store.put('k', 'key', {'a': b'1', 'b': b''}), damage(store, «0|8|12|20|30|-1|-40|None»), store.get('k', 'key'), store.problem))
cached(lambda store: (store.put('k', 'key', {'a': b'1'}), store.put('j', 'key', {'a': b'22'}), store.stats().kinds, store.clear(), store.stats().entries, sorted(os.listdir(store.directory))))
size_of(«''|'1'|'1000'|'1k'|'1KB'|'1KiB'|'1.5MiB'|'2g'|'3 GiB'|'1t'|'-1'|'1x'|'0'|'1.5.5'|'1iB'|'GiB'|'  7  '»)
cache.Cache(Path('/x'), limit_bytes=«-1|0|1.5|True|7»).limit
place(«'linux'|'darwin'|'win32'», **«{}|{'HOME': '/h'}|{'HOME': ''}|{'HOME': '/h', 'XDG_CACHE_HOME': '/x'}|{'HOME': '/h', 'XDG_CACHE_HOME': 'x'}|{'TILEWISE_CACHE_DIR': '/t'}|{'HOME': '/h', 'LOCALAPPDATA': '/l'}»)
[cache.digest(), cache.digest('a'), cache.digest(b'a'), cache.digest('a', 'b'), cache.digest('ab'), cache.digest('a', '')]
assembled(«'.reg .b32 %r<5>;'|'.reg .b32 %r<16777216>;'|'.reg .b32 %r<16777217>;'|'.reg .b32 %a<3>, %b<0x1000001>;'|'x<99999999>'»)
[Binary('sm_80', 'p', None, {}, source=«'p'|'s'», key=«''|'K'», origin=«''|'O'», lowered={'a<1>': '_Z1aILi1EE'})].pop().module_key
[Binary('sm_80', 'p', None, {}, source=«'p'|'s'», lowered={'a< 1 >': '_Z1aILi1EEvv'}).shown(«'_Z1aILi1EEvv'|'_Z1bILi2EEvv'|'k'»), Binary('sm_80', 'p', None, {}, source=«'p'|'s'»).is_foreign]
Resources(1, 2, 3, 4, 5, 6, 7, 8).to_dict()
"""

PTX = """.version 8
.target sm_80
.entry k()
{
.loc 1 3 5
mov.u32 %r1, 5;
.loc 1 0 0
.loc 2 1 1
mov.u32 %r2, 6;
}"""
LISTING = """\t.section\t.text._Z1kPf,"ax",@progbits
.text._Z1kPf:
\t//## File "/a/k.cu", line 3
\t//## File ".nv_debug_ptx_txt.12", line 40
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/a/k.cu", line 7 inlined at "/a/k.cu", line 9
\t//## File "/a/k.cu", line 9
\t//## File ".nv_debug_ptx_txt", line 0
.L_x_1:
        /*0010*/              @!P0 IMAD  R2,  R3, R4 ;   /* 0x00 */
        /*0020*/                   { HADD2 R1, R2 ;
$__internal_0_$__cuda_sm20_div:
        /*0030*/                   MUFU.RCP R1 ;
\t.section\t.text.empty,"ax"
\t.section\t.text.other,"ax"
        /*0000*/                   EXIT ;
"""
LOCATED = """.file 1 "/a/k.cu"
.file 2 "/a/\\\\b.cuh" // no
// .loc 1 99 1
.loc 1 1 1
.entry k() {
.loc 1 3 5
mov "}";
.loc 2 8 1, function_name x, inlined_at 1 3 5
add; /* .loc 1
2 2 */
.loc 1 0 0
sub;
}
after;
.entry j() { .loc 3 4 4
x; }
"""


def mangled(name: str) -> Any:
    """The types in a mangled name, with what they point to."""
    try:
        return [
            (one.text, one.const, one.arithmetic, one.target and one.target.text)
            for one in parameter_types(name)
        ]
    except Unreadable:
        return "unreadable"


def declared(
    kernel: str, source: str, headers: Mapping[str, str | None] | None = None, options: tuple[str, ...] = ()
) -> Any:
    return DeclarationScope(source, headers or {}, options).declarations(kernel)


def entry(name: str, *sizes: int) -> Entry:
    return Entry(name, tuple(Parameter(f"p{i}", f"u{8 * size}", size, size) for i, size in enumerate(sizes)))


def elf(sections: list[tuple[str, int]]) -> bytes:
    """An ELF file that has sections of names and sizes alone."""
    texts = b"\0" + b"".join(name.encode() + b"\0" for name, _ in sections)
    head = (
        b"\x7fELF\x02\x01"
        + bytes(34)
        + struct.pack("<Q", 64)
        + bytes(10)
        + struct.pack("<HHH", 40, len(sections) + 1, 0)
    )
    at, table = (
        64 + 40 * (len(sections) + 1),
        struct.pack("<IIQQQQ", 0, 3, 0, 0, 64 + 40 * (len(sections) + 1), len(texts)),
    )
    place = 1
    for name, size in sections:
        table += struct.pack("<IIQQQQ", place, 1, 0, 0, at, size)
        place += len(name) + 1
    return head + table + texts


def failed(log: str) -> Any:
    error = diagnostics.failure(log, "line one\nline two\n  line three", "k.cu", "sm_75", lambda: PTX)
    return f"{type(error).__name__}: {error}"


def table() -> lines.LineTable:
    found = [
        lines.MachineInstruction(16 * i, "NOP", lines.SourceLine(file, line), (), ptx)
        for i, (file, line, ptx) in enumerate(
            (("/a/b/k.cu", 3, 7), ("/a/x/k.cu", 3, 8), ("/a/b/k.cu", 4, 7), ("k.cu", 3, None))
        )
    ]
    return lines.LineTable(tuple(found))


def cached(work: Callable[[cache.Cache], Any], limit: int = 10**6) -> Any:
    """What is done with a cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return work(cache.Cache(Path(folder), limit))


def damage(store: cache.Cache, at: int | None) -> None:
    """Change a byte of the one entry; with None cut it."""
    (path,) = [path for path in Path(str(store.directory)).rglob("key") if path.is_file()]
    data = bytearray(path.read_bytes())
    if at is None:
        data.pop()
    else:
        data[at] ^= 1
    path.write_bytes(data)


def size_of(text: str) -> Any:
    with mock.patch.dict(os.environ, {"TILEWISE_CACHE_SIZE": text}):
        return cache._limit_of_environment()


def place(platform: str, **variables: str) -> Any:
    with (
        mock.patch.dict(os.environ, variables, clear=True),
        mock.patch("os.path.expanduser", lambda path: path.replace("~", os.environ.get("HOME", "~"))),
    ):
        return cache._directory_of_environment(platform)


def assembled(ptx: str) -> Any:
    try:
        return assemble._refuse_registers(ptx)
    except TilewiseError as error:
        return error
