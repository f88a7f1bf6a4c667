"""What C++ says of a kernel's parameters: element types and const, from names and from sources."""

from __future__ import annotations

import numpy as np
import pytest

from tilewise.launch import Parameter
from tilewise.toolchain.binary import Entry
from tilewise.toolchain.compile import compile_source
from tilewise.toolchain.declarations import declare
from tilewise.toolchain.mangling import Unreadable, parameter_types
from tilewise.toolchain.variables import CppVariable, read_variables

Known = tuple[str, str | None, bool | None]


def declared(source: str, name: str, count: int, **given: object) -> list[Known]:
    """What is found for an ``extern "C"`` kernel of so many pointers."""
    parameters = tuple(Parameter(f"p{i}", "u64", 8, 8) for i in range(count))
    headers = given.get("headers", {})
    options = given.get("options", ())
    assert isinstance(headers, dict) and isinstance(options, tuple)
    entry = declare({name: Entry(name, parameters)}, source, headers, options)[name]
    return [(parameter.declared, parameter.element, parameter.writable) for parameter in entry.parameters]


def one(parameter: str, before: str = "", **given: object) -> Known:
    (found,) = declared(f'{before}\nextern "C" __global__ void f({parameter}) {{ }}', "f", 1, **given)
    return found


def compiled(source: str, name: str) -> list[Known]:
    binary = compile_source(source, [name], "sm_90a")
    entry = binary.entries[binary.lowered[name]]
    return [(parameter.declared, parameter.element, parameter.writable) for parameter in entry.parameters]


NOTHING: Known = ("", None, None)


@pytest.mark.parametrize(
    ("parameter", "element", "writable"),
    [
        ("float *x", "float32", True),
        ("const float *x", "float32", False),
        ("float const *__restrict__ x", "float32", False),
        ("float *const x", "float32", True),
        ("const volatile int *const __restrict x", "int32", False),
        ("double*", "float64", True),
        ("unsigned x[]", "uint32", True),
        ("const long long unsigned int x[4]", "uint64", False),
        ("float x[][16]", "float32", True),
        ("signed char *x", "int8", True),
        ("bool *x", "bool", True),
        ("unsigned short *x", "uint16", True),
        ("long *x", np.dtype("l").name, True),
        ("const unsigned long *x", np.dtype("L").name, False),
        ("uint8_t *x", "uint8", True),
        ("const ::std::int64_t *x", "int64", False),
        ("__half *x", "float16", True),
        ("const half *x", "float16", False),
        ("__nv_bfloat16 *x", "bfloat16", True),
        ("const __nv_fp8_e4m3 *x", "float8_e4m3fn", False),
        ("void *x", None, True),
        ("const void *x", None, False),
        ("const Particle *x", None, False),
        ("/* the */ float *x // result", "float32", True),
        ("float \\\n *x", "float32", True),
    ],
)
def test_pointers_in_a_source(parameter: str, element: str | None, writable: bool) -> None:
    text, *found = one(parameter + "\n")
    assert found == [element, writable] and text


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_names_of_cstdint_are_the_types_with_so_many_bits(bits: int) -> None:
    for name, element in ((f"int{bits}_t", f"int{bits}"), (f"std::uint{bits}_t", f"uint{bits}")):
        assert one(f"{name} *x") == (f"{name} *x", element, True)


@pytest.mark.parametrize(
    "parameter",
    [
        "real *x",
        "Matrix<float> x",
        "float **x",
        "float *x[4]",
        "float (*x)[4]",
        "float *const *x",
        "long double *x",
        "T x",
        "float &x",
    ],
)
def test_what_is_not_sure_stays_unknown(parameter: str) -> None:
    assert one(parameter) == NOTHING


@pytest.mark.parametrize(
    "parameter", ["unsigned long long n", "size_t n", "long", "const long n", "double d"]
)
def test_numbers_in_a_source(parameter: str) -> None:
    assert one(parameter) == (parameter, None, None)


@pytest.mark.parametrize(
    ("before", "given"),
    [
        ("#define float double", {}),
        ("  #  define float double", {}),
        ("", {"options": ("--define-macro=float=double",)}),
        ("", {"options": ("-D", "float=double")}),
        ("", {"options": ("--pre-include=types.h",)}),
        ("", {"headers": {"types.h": "#define float double\n"}}),
        ("#if 1\nextern __global__ void f(double *x);\n#endif", {}),
        (
            '#define STRANGE\nextern "C" __global__ void f(\n#ifdef STRANGE\ndouble *x\n#else\nint *x\n#endif\n);',
            {},
        ),
    ],
)
def test_a_source_that_may_mean_something_else(before: str, given: dict[str, object]) -> None:
    assert one("float *x", **given, before=before) == NOTHING


def test_names_that_the_source_gives_to_types_of_its_own() -> None:
    for own in (
        "struct half { float x; };",
        "class half;",
        "union half { float x; };",
        "enum half { x };",
        "typedef unsigned half;",
        "using half = int;",
        "#define half float",
    ):
        assert one("half *x", own) == NOTHING
    assert one("half *x", headers={"cuda_fp16.h": "typedef __half half;"}) == ("half *x", "float16", True)


def test_a_comma_of_a_template_parts_no_parameters() -> None:
    source = 'extern "C" __global__ void f(Pair<int, float> *p, int n, float *y) { }'
    assert declared(source, "f", 3)[1:] == [("int n", None, None), ("float *y", "float32", True)]


def test_kernels_are_found_where_they_stand() -> None:
    source = 'extern "C" { __global__ void __launch_bounds__(64, 2) g(int *x);\n__global__ void f(float *x, int *y) { } }'
    assert declared(source, "f", 2) == [("float *x", "float32", True), ("int *y", "int32", True)]
    assert declared(source, "g", 1) == [("int *x", "int32", True)]
    assert declared("#include <f.h>", "g", 1, headers={"f.h": source}) == [("int *x", "int32", True)]
    for other in (
        "KERNEL f(float *x, int *y);",
        "// __global__ void f(float *x, int *y)",
        '"__global__ f(int *x, int *y)"',
    ):
        assert declared(other, "f", 2) == [NOTHING] * 2
    assert declared(source, "f", 3) == [NOTHING] * 3  # what the compiler says counts


def test_a_pointer_is_one_to_the_compiler_too() -> None:
    entry = Entry("f", (Parameter("n", "u32", 4, 4),))
    assert declare({"f": entry}, "__global__ void f(float *x)", {}, ()) == {"f": entry}


TEMPLATES = """
namespace a {
template <typename T> struct Box { T *held; };
struct Point { float x; };
template <int N, typename T> __global__ void all(const T *__restrict__ x, const T *y, Box<T> box, Point *p,
    const Point *q, T (*rows)[N], T **pointers, unsigned long long n, double d) { *box.held = *x + *y; }
}
enum class Kind { A, B };
template <Kind kind, int shift, bool on, typename... Ts> __global__ void kinds(const unsigned char *x, float *y) { *y = *x; }
static __global__ void hidden(const short *x, volatile int *y, void (*call)(int)) { *y = *x; }
"""


def test_names_of_templates() -> None:
    for name, text, element in (
        ("float", "float", "float32"),
        ("unsigned short", "unsigned short", "uint16"),
    ):
        assert compiled(TEMPLATES, f"a::all<32, {name}>") == [
            (f"const {text} *", element, False),
            (f"const {text} *", element, False),
            NOTHING,
            ("a::Point *", None, True),
            ("const a::Point *", None, False),
            (f"{text} *", element, True),
            (f"{text} **", None, True),
            ("unsigned long long", None, None),
            ("double", None, None),
        ]
    expected = [("const unsigned char *", "uint8", False), ("float *", "float32", True)]
    assert compiled(TEMPLATES, "kinds<Kind::B, -3, true, int, float *>") == expected
    assert compiled(TEMPLATES, "hidden")[:2] == [
        ("const short *", "int16", False),
        ("volatile int *", "int32", True),
    ]


def test_names_of_cudas_types() -> None:
    # As NVRTC mangles them, without the headers that not every machine has.
    name = "_Z1sPKfPfPK6__halfP13__nv_bfloat16PViPVKjPS1_PvPKvPbPayld"
    types = [type_.text for type_ in parameter_types(name)]
    assert types[:6] == [
        "const float *", "float *", "const __half *", "__nv_bfloat16 *", "volatile int *", "const volatile unsigned int *"
    ]  # fmt: skip
    assert types[6:] == [
        "float **",
        "void *",
        "const void *",
        "bool *",
        "signed char *",
        "unsigned long long",
        "long",
        "double",
    ]


@pytest.mark.parametrize(
    ("mangled", "types"),
    [
        ("_Z1fRf", [("float &", None, False, False)]),
        ("_Z1fOKi", [("const int &&", None, False, False)]),
        (
            "_Z1fRPKf",
            [("const float *&", None, False, False)],
        ),  # a pointer is what it refers to, not what it is
        ("_Z1fPKf", [("const float *", "const float", False, False)]),
        ("_Z1fPKPKf", [("const float * const *", "const float * const", False, False)]),
        ("_Z1fPfi", [("float *", "float", False, False), ("int", None, False, True)]),
        ("_Z1f3Box", [("Box", None, False, False)]),
        ("_Z1f3BoxIJifEE", [("Box<int, float>", None, False, False)]),  # of as many types as one likes
        ("_Z1fPFfiE", [("float (int) *", "float (int)", False, False)]),
        ("_Z1fPFYfiE", [("float (int) *", "float (int)", False, False)]),  # extern "C"
    ],
)
def test_what_a_type_points_to(mangled: str, types: list[tuple[str, str | None, bool, bool]]) -> None:
    """Pointers alone have elements: of a reference, or of a structure, none are told."""
    found = [
        (one.text, one.target.text if one.target else None, one.const, one.arithmetic)
        for one in parameter_types(mangled)
    ]
    assert found == types


@pytest.mark.parametrize(
    ("mangled", "types"),
    [
        ("_ZN1a1fEPfi", ["float *", "int"]),
        ("_ZN1a1bL1cEPfi", ["float *", "int"]),
        ("_ZN1a1fEPNS_3BoxES1_", ["a::Box *", "a::Box *"]),  # S_ is a, S0_ a::Box, S1_ a pointer to that
        ("_ZN1a1fIfEEvPT_i", ["float *", "int"]),  # of an instance of a template the first is what it returns
        ("_Z1fIiEvPT_f", ["int *", "float"]),
        (
            "_Z1fIfEv3BoxIiEPT_",
            ["Box<int>", "float *"],
        ),  # T is the function's, whatever its parameters are made of
        ("_Z1fIfEvP4PairIi3BoxIiEEPT_", ["Pair<int, Box<int>> *", "float *"]),
    ],
)
def test_parameters_of_functions_in_namespaces(mangled: str, types: list[str]) -> None:
    assert [one.text for one in parameter_types(mangled)] == types


def test_a_template_with_its_arguments_is_one_type_to_come_back_to() -> None:
    # S_ is Box, S0_ Box<float>, S1_ a pointer to that.
    types = [type_.text for type_ in parameter_types("_Z1fP3BoxIfES0_S1_PKS0_S_IiE")]
    assert types == ["Box<float> *", "Box<float>", "Box<float> *", "const Box<float> *", "Box<int>"]


def test_types_to_come_back_to_are_counted_in_36_digits() -> None:
    """S_ is the first, S0_ the second, S9_ the eleventh, SA_ the one behind it."""
    some = "".join(f"P1{letter}" for letter in "ABCDEFG")  # each one, and a pointer to it
    types = [one.text for one in parameter_types(f"_Z1f{some}S8_S9_SA_SC_")]
    assert types[7:] == ["E *", "F", "F *", "G *"]
    with pytest.raises(Unreadable):
        parameter_types(f"_Z1f{some}SD_")


@pytest.mark.parametrize(
    "name",
    ["f", "_Z", "_Z9f", "_Z1fP", "_Z1fPS9_", "_Z1fPT_", "_ZN1aIJfKiEE1fEDpPT_", "_Z1fDv4_f", "_Z1f" + "P" * 999 + "f", "_Z1fIXadL_Z1gEEEvPf"],
)  # fmt: skip
def test_names_that_cannot_be_read(name: str) -> None:
    with pytest.raises(Unreadable):
        parameter_types(name)
    parameters = (Parameter("p", "u64", 8, 8),)
    assert declare({name: Entry(name, parameters)}, "", {}, ())[name].parameters == parameters


def test_what_is_known_comes_back_from_the_cache() -> None:
    source = "__global__ void f(const float *x, int *y) { *y = *x; } // for the cache"
    assert compiled(source, "f") == compiled(source, "f") == [
        ("const float *", "float32", False), ("int *", "int32", True)
    ]  # fmt: skip


@pytest.mark.parametrize("place", ["__constant__", "__device__", "__managed__"])
def test_a_variable_is_known_whatever_stands_before_its_type(place: str) -> None:
    for word in ("static", "extern", "inline", "constexpr", "const", "volatile", place):
        found = read_variables(f"{place} {word} float scale[3] = {{1, 2, 3}};")
        assert found == {"scale": CppVariable("float scale[3]", "float32", (3,))}, word
    assert read_variables(f"{place} struct Point origin;") == {}
