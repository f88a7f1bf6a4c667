"""Modules: several kernels of one text, and the variables that they share."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.thorough import examples
from tilewise.errors import ArgumentError, KernelFault, PtxError, UnknownNameError
from tilewise.toolchain.variables import plain_name, read_variables

_SERIAL = itertools.count()


def fresh(source: str, arch: str | None = "sm_80", **more: Any) -> tw.Module:
    """A module that no test has used: equal texts are one module."""
    return tw.Module(
        f"// {next(_SERIAL)} {np.random.default_rng().integers(1 << 60)}\n{source}", arch, **more
    )


SOURCE = r"""
struct Pair { int a; float b; };
__constant__ float c[4] = {1, 2, 3, 4};
__constant__ Pair pair;
__constant__ double scale = 0.5;
__device__ int count = -3;
__device__ float table[2][3];
__device__ unsigned long long *where;
__device__ float4 planes[2];
static __device__ short hidden[3];
namespace deep { __device__ unsigned char mask; }
extern "C" __global__ void read(float *out)
{
    out[threadIdx.x] = c[threadIdx.x] * (float)scale + table[1][threadIdx.x % 3] + pair.b * pair.a + planes[1].y;
    if (threadIdx.x == 0) atomicAdd(&count, 5 + hidden[1] + deep::mask + (where != nullptr));
}
extern "C" __global__ void write(float value) { table[0][threadIdx.x] = value; }
template <int N> __global__ void add(int *out) { *out = count + N; }
"""


def test_a_module_lists_what_it_holds() -> None:
    module = fresh(SOURCE, names=["add<7>"])
    assert set(module.entries) == {"read", "write", "add<7>"}
    assert [module.kernel(name).name for name in ("read", "add<7>")] == ["read", "add<7>"]
    shown = {name: (v.space, v.bytes, str(v.dtype), v.shape) for name, v in module.globals.items()}
    assert shown == {
        "c": ("constant", 16, "float32", (4,)),
        "pair": ("constant", 8, "None", (8,)),
        "scale": ("constant", 8, "float64", ()),
        "count": ("global", 4, "int32", ()),
        "table": ("global", 24, "float32", (2, 3)),
        "where": ("global", 8, "uint64", ()),
        "planes": ("global", 32, "float32", (2, 4)),
        "hidden": ("global", 6, "int16", (3,)),
        "deep::mask": ("global", 1, "uint8", ()),
    }
    assert len(module) == 9 and "c" in module and "d" not in module and [*module] == [*module.globals]
    assert str(module.globals["c"]) == "c: constant, 16 bytes, float c[4]"
    there = module.on("emulator")
    assert len(there) == 9 and "c" in there and "d" not in there and [*there] == [*module.globals]
    assert repr(there) == f"<9 variables of {module.filename} on emulator>"
    assert repr(module) == f"<tilewise.Module {module.filename} for {module.arch}: 3 kernels, 9 variables>"


def test_without_the_gpu_that_is_asked_for_there_is_an_arch_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But a device that there never is has none."""
    source = 'extern "C" __global__ void k() {}'
    monkeypatch.setenv("TILEWISE_DEVICE", "gpu:77")
    assert tw.Module(source).arch == "sm_90a"
    monkeypatch.setenv("TILEWISE_DEVICE", "nonsense")
    with pytest.raises(ArgumentError, match="nonsense"):
        tw.Module(source)


def test_variables_begin_as_the_ptx_says_and_are_read_and_written() -> None:
    module = fresh(SOURCE)
    out = np.zeros(4, np.float32)
    assert (module["c"] == (1, 2, 3, 4)).all() and module["count"] == -3 and module["scale"] == 0.5
    module["c"] = np.array([10, 20, 30, 40], np.float32)
    module["table"] = np.arange(6, dtype=np.float32).reshape(2, 3)
    module["pair"] = np.array((3, 0.25), [("a", "i4"), ("b", "f4")])
    module["planes"] = [[0, 0, 0, 0], [0, 7, 0, 0]]
    module["deep::mask"], module["hidden"], module["scale"] = 2, [0, 4, 0], 2
    module.kernel("read")(1, 4, [out])
    assert (out == np.array([10, 20, 30, 40]) * 2 + (3, 4, 5, 3) + 0.75 + 7).all()
    assert module["count"] == -3 + 4 * 0 + 5 + 4 + 2
    assert module["pair"].view(np.float32)[1] == 0.25


def test_kernels_of_a_module_share_its_variables_under_every_verb() -> None:
    """A call, a warm call, another order, a profile for another GPU and a check find what the program wrote."""
    module = fresh(SOURCE, None)
    read, write = module.kernel("read"), module.kernel("write")
    out = np.zeros(3, np.float32)
    call = read.bind(1, 3, [out], device="emulator")
    module["c"], module["pair"] = np.zeros(4, np.float32), bytes(8)
    module["table"] = np.zeros((2, 3), np.float32)
    for value in (3.0, 5.0):
        table = module["table"]
        table[1] = value
        module["table"] = table
        runs = (
            call,
            lambda: read(1, 3, [out], device=tw.device("emulator", order="late", threads=1)),
            lambda: read.profile(1, 3, [out], gpu="a100", cache=True),
            lambda: read.profile(1, 3, [out]),
            lambda: read.check(1, 3, [out]),
        )
        for run in runs:
            out[:] = 0
            run()
            assert (out == value).all()
    write(1, 3, [9.0])
    assert (module["table"][0] == 9).all() and (module["table"][1] == 5).all()


def test_profiles_and_checks_leave_variables_as_they_were() -> None:
    """They begin with what the program has, and each is a program of its own."""
    module = fresh("__device__ int n = 1; __device__ int *at = &n; extern \"C\" __global__ void k(int *out)"
                   " { *out = (*at)++; }")  # fmt: skip
    kernel, out = module.kernel("k"), np.zeros(1, np.int32)
    for _ in range(2):  # before the variables were ever used, too
        kernel.check(1, 1, [out])
        assert out[0] == 1
    module["n"] = 5
    for run in (kernel.check, kernel.profile, kernel.check):
        run(1, 1, [out])
        assert out[0] == 5 and module["n"] == 5
    kernel(1, 1, [out])
    kernel(1, 1, [out])
    assert out[0] == 6 and module["n"] == 7


PTX = """
.version 8.0
.target sm_80
.address_size 64
// {serial}
.visible .const .align 4 .b8 c[8] = {{1, 0, 0, 0, 2}};
.visible .global .align 4 .s32 n = -7;
.visible .global .align 4 .f32 f[2] = {{0f3F800000, 2.5}};
.visible .global .align 8 .u64 at = generic(n);
.visible .entry first(.param .u64 out)
{{ .reg .b64 %o; .reg .b32 %x, %y; ld.param.u64 %o, [out]; ld.const.u32 %x, [c+4]; ld.global.u32 %y, [n];
  add.s32 %x, %x, %y; st.global.u32 [%o], %x; ret; }}
.visible .entry second()
{{ .reg .b64 %a; ld.global.u64 %a, [at]; st.u32 [%a], 12; ret; }}
"""


def test_a_module_of_ptx_knows_what_ptx_says() -> None:
    module = tw.Module.from_ptx(PTX.format(serial=next(_SERIAL)))
    assert module.entries == ("first", "second")
    kinds = {name: (v.space, str(v.dtype), v.shape) for name, v in module.globals.items()}
    assert kinds == {
        "c": ("constant", "None", (8,)),
        "n": ("global", "int32", ()),
        "f": ("global", "float32", (2,)),
        "at": ("global", "uint64", ()),
    }
    assert (
        module["n"] == -7
        and (module["f"] == (1, 2.5)).all()
        and module["c"].tolist() == [1, 0, 0, 0, 2, 0, 0, 0]
    )
    out = np.zeros(1, np.int32)
    module["c"] = np.array([0, 40], np.int32)  # of unknown type: any that has its bytes
    module.kernel("first")(1, 1, [out], device="emulator")
    assert out[0] == 33
    module.kernel("second")(1, 1, [], device="emulator")
    assert module["n"] == 12
    assert tw.Kernel.from_ptx(module.source, "first").module["n"] == 12, "equal texts are one module"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("c", np.zeros(4), r"module\['c'\] must hold float32 for `float c\[4\]`, not 'float64'; x.astype\('float32'\)"),
        ("c", np.zeros(5, np.float32), r"must have the 16 bytes of `float c\[4\]`, not .20 bytes, an array of shape \(5,\)"),
        ("c", b"123", "must have the 16 bytes"),
        ("c", 1.0, "must have the 16 bytes"),
        ("c", "abcd", "must be an array, a number or bytes, not 'str'"),
        ("c", np.ones(4, ">f4"), r"module\['c'\] must have elements of the machine's own byte order"),
        ("table", np.zeros((3, 2), np.float32), r"must have the shape \(2, 3\) of `float table\[2\]\[3\]`, or be flat"),
        ("count", 1.5, "must be integers for `int count`, not 1.5; round them first"),
        ("count", 1 << 40, r"^module\['count'\] must be int32 for `int count`, not 1099511627776$"),
        ("count", [[1], [2, 3]], "must be int32 for `int count`"),
        ("pair", 3, r"^module\['pair'\] must be an array or bytes, as the type of the variable pair is not known"),
        ("where", None, "must be an array, a number or bytes"),
        ("c", SimpleNamespace(__cuda_array_interface__={}), r"^module\['c'\] must lie in host memory, not 'SimpleN"),
        ("tabel", 1, "variable 'tabel' is not known; did you mean 'table'"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(name: str, value: Any, message: str) -> None:
    module = tw.Module(SOURCE, "sm_80")
    before = {known: module[known].tobytes() for known in module}
    with pytest.raises(ArgumentError, match=message):
        module[name] = value
    assert {known: module[known].tobytes() for known in module} == before


def test_names_that_a_module_lacks() -> None:
    module = tw.Module(SOURCE, "sm_80")
    with pytest.raises(UnknownNameError, match="kernel 'raed' is not known; did you mean 'read'"):
        module.kernel("raed")
    with pytest.raises(ArgumentError, match="add"):
        module.kernel("add<3>")
    with pytest.raises(UnknownNameError, match="variable 'x' is not known"):
        _ = module["x"]


@examples(12, 25)
@given(st.data())
def test_what_is_written_is_what_kernels_find(data: st.DataObject) -> None:
    kinds = {
        "float": "float32",
        "double": "float64",
        "int": "int32",
        "unsigned short": "uint16",
        "char": "int8",
    }
    declared, wanted = [], {}
    for i in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(sorted(kinds)))
        sizes = data.draw(st.lists(st.integers(1, 5), max_size=2))
        place = data.draw(st.sampled_from(["__constant__", "__device__"]))
        declared.append(f"{place} {kind} v{i}{''.join(f'[{size}]' for size in sizes)};")
        wanted[f"v{i}"] = np.random.default_rng(i).integers(-9, 9, sizes).astype(kinds[kind])
    names = [*wanted]
    copy = "".join(f"for (int i = 0; i < sizeof({n}); i++) *out++ = ((const char *)&{n})[i];" for n in names)
    module = fresh("\n".join([*declared, f'extern "C" __global__ void k(char *out) {{ {copy} }}']))
    for name, value in wanted.items():
        assert module.globals[name].dtype == value.dtype and module.globals[name].shape == value.shape
        module[name] = value
        assert np.array_equal(module[name], value) and module[name].shape == value.shape
    out = np.zeros(sum(value.nbytes for value in wanted.values()), np.int8)
    module.kernel("k")(1, 1, [out], device="emulator")
    assert out.tobytes() == b"".join(value.tobytes() for value in wanted.values())


def test_a_variable_is_an_array_and_an_address_an_argument() -> None:
    """Raw addresses: of an array, of a variable, of a place within; any other is a fault that says so."""
    module = fresh('__device__ float t[8]; extern "C" __global__ void k(float *x) { x[threadIdx.x] += 1; }')
    kernel, emulator = module.kernel("k"), tw.device("emulator")
    t = module.on(emulator).array("t")
    x = emulator.array(np.zeros(8, np.float32))
    kernel(1, 8, [t], device=emulator)
    kernel(1, 4, [t.ptr + 16], device=emulator)
    kernel(1, 8, [x.ptr], device=emulator)
    assert module.on(emulator)["t"].tolist() == [1, 1, 1, 1, 2, 2, 2, 2] and (x.numpy() == 1).all()
    for address, threads in (
        (t.ptr, 9),
        (x.ptr + 8, 8),
        (0, 1),
        (8, 1),
        (2**64 - 4, 1),
        (1 << 56, 1),
        (2**63, 1),
    ):
        with pytest.raises(KernelFault, match=r"at (global|shared) address"):
            kernel(1, threads, [address], device=emulator)
    with pytest.raises(ArgumentError, match=r"args\[0\] must fit the kernel's u64 parameter"):
        kernel(1, 1, [1 << 64], device=emulator)


def test_devices_have_variables_of_their_own() -> None:
    from tilewise.devices.emulated import EmulatedDevice

    module = fresh('__device__ int n = 4; extern "C" __global__ void k(int *out) { *out = n; }')
    first, second = EmulatedDevice(), EmulatedDevice()
    module.on(first)["n"] = 8
    assert [int(variables["n"]) for variables in (module.on(first), module.on(second), module)] == [8, 4, 4]
    out = np.zeros(1, np.int32)
    for device, value in ((first, 8), (second, 4)):
        module.kernel("k")(1, 1, [out], device=device)
        assert out[0] == value


def test_what_is_written_without_a_device_is_there_for_profiles_and_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a GPU is the default device, the emulator is written as well."""
    from tilewise.devices import device as resolve
    from tilewise.devices.emulated import EmulatedDevice

    class Gpu(EmulatedDevice):
        name, runs_on_gpu = "gpu:0", True

    default = Gpu()
    monkeypatch.setattr(
        "tilewise.module.resolve", lambda device=None: default if device is None else resolve(device)
    )
    module = fresh('__constant__ int n; extern "C" __global__ void k(int *out) { *out = n; }')
    module["n"] = 6
    module.on(default)["n"] = 7
    assert [int(variables["n"]) for variables in (module, module.on("emulator"))] == [7, 6]
    out = np.zeros(1, np.int32)
    assert module.kernel("k").check(1, 1, [out]) == [] and out[0] == 6


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ("__device__ __align__(16) float x[4];", ("float32", (4,))),
        ("const __device__ unsigned x[N][2];", ("uint32", (None, 2))),
        ("__constant__ uint2 x[3];", ("uint32", (3, 2))),
        ("__constant__ int *const x[2];", ("uint64", (2,))),
        ("__device__ size_t x = 3;", ("uint64", ())),
        ("typedef short size_t; __device__ size_t x;", None),
        ("struct float2 { short x, y; }; __device__ float2 x;", None),
        ("#define int short\n__device__ int x;", None),
        ("namespace a { __device__ int x; } __device__ float x;", None),
        ("// __device__ int x;\n__device__ float x;", ("float32", ())),
        ("__device__ float f(int x); __device__ T x;", None),
    ],
)
def test_types_of_variables_are_read_where_they_are_sure(source: str, known: Any) -> None:
    found = read_variables(source).get("x")
    assert (found and (found.element, found.sizes)) == known


def test_names_of_variables_are_shown_as_written() -> None:
    names = {
        "_ZN12_GLOBAL__N_11nE": "n",
        "_Z2tvILi3EE": "_Z2tvILi3EE",
        "_Z": "_Z",
        "_ZL4mine": "mine",
        "_ZN1a1bE": "a::b",
    }
    assert {name: plain_name(name) for name in names} == names


# -- what is read of a module --------------------------------------------------------------------
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def test_variables_of_one_written_name_keep_those_of_the_ptx() -> None:
    symbols = ("_ZN12_GLOBAL__N_11nE", "_ZL1n", "_ZL1m")
    variables = "".join(f".global .u32 {symbol} = {i};\n" for i, symbol in enumerate(symbols))
    module = tw.Module.from_ptx(f"{HEAD}{variables}.entry k() {{ ret; }}")
    assert {name: int(module[name]) for name in module} == {symbols[0]: 0, symbols[1]: 1, "m": 2}


@pytest.mark.parametrize(
    ("type_", "written", "bits"),
    [
        ("b32", "1.0", "0000803f"), ("b32", "0d3ff8000000000000", "0000c03f"), ("b32", "1.5 + 2.0", "00006040"),
        ("b32", "0f3f800000", "0000803f"), ("b32", "3e9", "5ed0324f"), ("b16", "1.5", "0000"), ("b8", "1.0", "00"),
        ("b64", "1.0 + 2.0", "0000000000000840"), ("b64", "0f3f800000", "0000803f00000000"), ("b64", "1", "01" + 7 * "00"),
        ("f32", "0d3ff8000000000000", "0000c03f"), ("f64", "0f3f800000", "000000000000f03f"), ("u8", "300", "2c"),
    ],
)  # fmt: skip
def test_bits_of_a_number_are_those_that_the_assembler_takes(type_: str, written: str, bits: str) -> None:
    """As nvJitLink puts them into its machine code ; alone, and among others, which are read at once."""
    for text in (f"t = {written}", f"t[1] = {{{written}}}", f"t[2] = {{{written}, {written}}}"):
        module = tw.Module.from_ptx(f"{HEAD}.global .{type_} {text};\n.entry k() {{ ret; }}")
        assert module["t"].tobytes().hex() in (bits, 2 * bits)


@pytest.mark.parametrize(
    ("type_", "written", "message"),
    [
        ("f32", "1", "the integer 1 stands where .f32 wants a floating-point number"),
        ("f64", "{2.5, 3}", "the integer 3 stands where .f64 wants a floating-point number"),
        ("u32", "{1, 2.5}", "a floating-point number stands where .u32 wants an integer"),
        ("s64", "1.5", "a floating-point number stands where .s64 wants an integer"),
        ("f16", "1.0", "no initial value of .f16 expected"),
    ],
)
def test_an_initial_value_of_another_kind_is_refused(type_: str, written: str, message: str) -> None:
    name = "t[2]" if written.startswith("{") else "t"
    with pytest.raises(PtxError, match=re.escape(message)):
        tw.Module.from_ptx(f"{HEAD}.global .{type_} {name} = {written};\n.entry k() {{ ret; }}")["t"]


_FORMS = {
    "u8": (0, 255), "s8": (-128, 127), "b8": (-128, 255), "u16": (0, 65_535), "s16": (-32_768, 32_767),
    "u32": (0, 2**32 - 1), "s32": (-(2**31), 2**31 - 1), "b64": (-(2**63), 2**64 - 1),
}  # fmt: skip
_INT = (
    str,
    lambda n: str(n) if n < 0 else f"{n}U",
    hex,
    lambda n: f"0{n:o}" if n >= 0 else str(n),
    "({})".format,
)


@pytest.mark.parametrize("comment", ["/**/", "/* 5, */", "// \n"])
def test_a_comment_parts_what_stands_beside_it(comment: str) -> None:
    with pytest.raises(tw.errors.PtxError):
        tw.Module.from_ptx(f"{HEAD}.global .u32 t[2] = {{1, 2{comment}3}};\n.entry k() {{ ret; }}")["t"]


_SPACE = st.sampled_from(["", " ", "\n", "\t // one, two }\n", " /* { */ "])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_initial_values_in_every_form(data: st.DataObject) -> None:
    """Plain numbers, which are read many at once, and expressions, comments, braces and gaps among them."""
    from tilewise.emulator import initial_content, parse

    draw = data.draw
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    nested, type_ = draw(st.booleans()), draw(st.sampled_from([*_FORMS, "f32", "f64"]))
    wanted = np.zeros((rows, columns), f"{'f' if type_[0] == 'f' else 'u'}{int(type_[1:]) // 8}")
    plain = draw(st.booleans())  # all in one form
    lines = []
    for row in range(draw(st.integers(1, rows))):
        line = []
        for column in range(draw(st.integers(1, columns)) if nested else columns):
            if type_[0] == "f":
                number = draw(
                    st.floats(width=32 if type_ == "f32" else 64, allow_nan=False, allow_infinity=False)
                )
                mark = wanted.dtype.type(number).tobytes()[::-1].hex()
                forms = [f"0{'f' if type_ == 'f32' else 'd'}{mark}", f"{number:.17e}"]
                wanted[row, column] = number
            else:
                number = draw(st.integers(*_FORMS[type_]))
                forms = [form(number) for form in _INT]
                wanted[row, column] = np.array(number % (1 << int(type_[1:])), wanted.dtype)
            text = forms[0] if plain else draw(st.sampled_from(forms))
            line.append(draw(_SPACE) + text + draw(_SPACE))
        lines.append(f"{{{','.join(line)}}}" if nested else ",".join(line))
    size = f"[{rows}][{columns}]" if nested else f"[{rows * columns}]"
    ptx = f"{HEAD}.global .{type_} t{size} = {{{','.join(lines)}}};"
    found = initial_content(parse(ptx), "t")
    assert found.size == wanted.nbytes and found.data.ljust(found.size, b"\0") == wanted.tobytes()


def test_what_a_launch_does_not_reach_is_not_read() -> None:
    """Bodies and tables stay as text: tokens are made of what is declared, and of the functions that are called."""
    from tilewise.emulator import parse
    from tilewise.emulator.ptx.tokens import tokens

    table = f".global .b8 t[20000] = {{{', '.join(['7'] * 20_000)}}};\n"
    body = "{ .reg .b32 %r; " + "add.s32 %r, %r, 1; // } \n" * 5_000 + "ret; }\n"
    ptx = f"""{HEAD}{table}
.func used(.param .b64 at) {{ .reg .b64 %a; ld.param.u64 %a, [at]; st.global.u32 [%a], 5; ret; }}
.func unused() {body}
.entry k(.param .u64 out) {{ .reg .b64 %a; ld.param.u64 %a, [out]; .param .b64 p; st.param.b64 [p], %a;
  call used, (p); ret; }}
.entry other() {body}"""
    assert len(tokens(ptx)) < 100
    out = np.zeros(1, np.int32)
    tw.Module.from_ptx(ptx).kernel("k")(1, 1, [out], device="emulator")
    module = parse(ptx)
    assert out[0] == 5 and module is parse(ptx)
    assert {name for name, function in module.functions.items() if function.unread} == {"unused", "other"}
    other = module.function("other")
    assert other is not None and len(other.body) == 5_001 and other.body[-1].line == ptx.count("\n")


def test_what_a_functions_own_variable_begins_with_is_known_before_the_function_is_read() -> None:
    from tilewise.emulator import initial_content, parse

    module = parse(f"{HEAD}.entry k() {{ .global .u32 own = 77; ret; }}\n// {next(_SERIAL)}")
    assert module.functions["k"].unread
    assert initial_content(module, "k::own").data == (77).to_bytes(4, "little")


def test_functions_are_called_through_pointers_that_another_kernel_stored() -> None:
    """Whose address is taken where no launch has been is a candidate all the same."""
    signature = ".callprototype (.param .b32 _) _ (.param .b32 _);"
    functions = "".join(
        f".func (.param .b32 r) f{i}(.param .b32 x) {{ .reg .b32 %x; ld.param.b32 %x, [x]; add.s32 %x, %x, {i}; "
        "st.param.b32 [r], %x; ret; }\n"
        for i in (1, 2)
    )
    ptx = f"""{HEAD}.global .u64 chosen;
{functions}
.entry use(.param .u64 out) {{ .reg .b64 %o, %f; .reg .b32 %x; .param .b32 a; .param .b32 r; proto: {signature}
  ld.param.u64 %o, [out]; ld.global.u64 %f, [chosen]; st.param.b32 [a], 40; call (r), %f, (a), proto;
  ld.param.b32 %x, [r]; st.global.u32 [%o], %x; ret; }}
.entry choose() {{ .reg .b64 %f; mov.u64 %f, f2; st.global.u64 [chosen], %f; ret; }}
// {next(_SERIAL)}"""
    module, out = tw.Module.from_ptx(ptx), np.zeros(1, np.int32)
    module.kernel("choose")(1, 1, [], device="emulator")
    module.kernel("use")(1, 1, [out], device="emulator")
    assert out[0] == 42


def test_a_mistake_in_a_body_is_told_each_time_it_is_reached() -> None:
    ptx = f"{HEAD}.entry good() {{ ret; }}\n.entry bad()\n{{ .reg .b32 %r;\n add.s32 %r, %r, %q; }}"
    module = tw.Module.from_ptx(ptx)
    for _ in range(2):
        with pytest.raises(tw.errors.PtxError, match="PTX line 7: '%q' is not declared"):
            module.kernel("bad")(1, 1, [], device="emulator")
    module.kernel("good")(1, 1, [], device="emulator")
    with pytest.raises(tw.errors.PtxError, match="PTX line 5: '}' expected, not 'the end of the text'"):
        tw.Module.from_ptx(f"{HEAD}.entry k()\n{{ ret; // }}").kernel("k")(1, 1, [], device="emulator")
    with pytest.raises(tw.errors.PtxError, match="PTX line 6: a name expected, not '5'"):
        tw.Module.from_ptx(f"{HEAD}.entry k()\n{{ ret;\n .reg .b32 5;\n }}").kernel("k")(
            1, 1, [], device="emulator"
        )
    with pytest.raises(tw.errors.PtxError, match="PTX line 5: '%p' is not declared"):
        tw.Module.from_ptx(f"{HEAD}.entry k()\n{{ @%p ret; }}").kernel("k")(1, 1, [], device="emulator")
