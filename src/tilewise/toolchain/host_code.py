"""A CUDA program as nvcc takes it → what NVRTC takes of it: kernels, without the host's part.

NVRTC compiles device code alone: it has no headers of the host, and refuses every function and variable that says not
where it lives. Those are the host's, and are blanked out here, so that lines stay where they are. NOTE: this is for
sources that NVRTC has refused; what it takes is compiled as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["HOST_HEADERS", "implicit_headers", "without_host_code"]

_TYPES = """
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef unsigned long long uintptr_t; typedef long long intptr_t;
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t; using ::uintptr_t; using ::intptr_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
}
"""
_CONSTANTS = """
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#define HUGE_VALF INFINITY
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000)
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_E 2.7182818284590452354
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
"""
_MATH = f"""
{_CONSTANTS}
namespace std {{
using ::sqrt; using ::cbrt; using ::hypot; using ::pow; using ::exp; using ::exp2; using ::expm1; using ::log;
using ::log2; using ::log10; using ::log1p; using ::sin; using ::cos; using ::tan; using ::asin; using ::acos;
using ::atan; using ::atan2; using ::sinh; using ::cosh; using ::tanh; using ::asinh; using ::acosh; using ::atanh;
using ::erf; using ::erfc; using ::tgamma; using ::lgamma; using ::fabs; using ::abs; using ::floor; using ::ceil;
using ::round; using ::trunc; using ::rint; using ::nearbyint; using ::lround; using ::fmod; using ::remainder;
using ::fma; using ::fmin; using ::fmax; using ::fdim; using ::copysign; using ::ldexp; using ::frexp;
using ::isnan; using ::isinf; using ::isfinite; using ::signbit;
}}
"""
_FLOAT = """
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-016
"""
_INTEGER = """
#define CHAR_BIT 8
#define SHRT_MAX 32767
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 0xffffffffU
#define LLONG_MAX 9223372036854775807LL
#define LLONG_MIN (-LLONG_MAX - 1)
#define ULLONG_MAX 0xffffffffffffffffULL
"""
_EMPTY = """
algorithm array atomic cassert cctype cerrno chrono cinttypes complex condition_variable cstdarg cstddef cstdio cstdlib
cstring ctime deque exception filesystem fstream functional future initializer_list iomanip iostream iterator list
istream limits map memory mutex new numeric optional ostream queue random ratio set sstream stack stdexcept string
string_view thread tuple type_traits typeinfo unordered_map unordered_set utility variant vector
assert.h errno.h getopt.h inttypes.h stddef.h stdio.h stdlib.h string.h time.h sys/time.h unistd.h
cuda.h cuda_runtime.h cuda_runtime_api.h device_launch_parameters.h cuda_profiler_api.h curand.h cublas_v2.h
"""
# What stands in for a header that is found nowhere: what kernels need of it.
HOST_HEADERS = {
    **dict.fromkeys(_EMPTY.split(), "\n"),
    **dict.fromkeys(("cstdint", "stdint.h"), _TYPES),
    **dict.fromkeys(("cmath", "math.h"), _MATH),
    **dict.fromkeys(("cfloat", "float.h"), _FLOAT),
    **dict.fromkeys(("climits", "limits.h"), _INTEGER),
}

# What nvcc has without any #include, by the name of the header that brings it here.
_IMPLICIT = {"cuda_math_constants": _CONSTANTS, "cuda_integer_limits": _INTEGER, "cuda_integer_types": _TYPES}
_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')

_SKIPPED = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^()\\ ]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"""|^[ \t]*\#(?:\\\n|[^\n])*""",
    re.DOTALL | re.MULTILINE,
)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.MULTILINE)
_PLACES = {"__global__", "__device__", "__constant__", "__managed__", "__shared__"}
_OF_THE_HOST = re.compile(
    r"\bstd\s*::|\bcuda(?:Error|Event|Stream|Graph|DeviceProp|Array)\w*|\b(?:FILE|curandGenerator_t)\b"
)
_SIZE = re.compile(r"\[[^\[\]]*\]")  # of an array, which may hold parentheses without being a function
_SCOPE = re.compile(r"\s*(?:(?:inline\s+)?namespace\b[^;{}()=]*|extern\s*(?=\{))")
_CLASS = re.compile(
    r"\s*(?:template\s*<[^{};]*>\s*)?(?:typedef\s+)?(?:struct|class|union)\b[^;{}()=]*(?:alignas\s*\([^()]*\)[^;{}()=]*)?"
)
_KEPT = re.compile(
    r"\s*(?:using|typedef|enum|static_assert|template\s*<[^{};]*>\s*(?:struct|class|using|union|extern)\b|struct|class|union|asm)\b"
)


def implicit_headers(log: str) -> dict[str, str]:
    """The headers that define what a log of NVRTC calls undefined and nvcc would know."""
    missing = set(_UNDEFINED.findall(log))
    return {
        name: text for name, text in _IMPLICIT.items() if not missing.isdisjoint(re.findall(r"\w+", text))
    }


def without_host_code(source: str) -> str:
    """The source with spaces in the place of the host's functions, variables and types; itself where there are none."""
    masked = _SKIPPED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    directives = bytearray(len(source))
    for found in _SKIPPED.finditer(source):
        if found[0].lstrip().startswith("#"):  # it stays, so that each #if keeps its #endif
            directives[found.start() : found.end()] = b"\1" * len(found[0])
    device_words = _PLACES | {
        macro[1] for macro in _MACRO.finditer(source) if any(place in macro[2] for place in _PLACES)
    }
    text = list(source)
    for start, end, constant in _host_parts(masked, 0, len(masked), device_words):
        if constant:  # a function that the host's compiler would let kernels use
            text[start] = f"__host__ __device__ {text[start]}"
            continue
        for at in range(start, min(end, len(text))):
            if text[at] != "\n" and not directives[at]:
                text[at] = " "
    return "".join(text)


def _host_parts(
    text: str, at: int, end: int, device_words: set[str], within: bool = False
) -> Iterator[tuple[int, int, bool]]:
    """Where the host's declarations are: begin, end, and whether it is a constexpr function.

    ``within`` says that the declarations are those of a class.
    """
    while at < end:
        start = at + len(text[at:end]) - len(text[at:end].lstrip())
        if start >= end:
            return
        label = re.compile(r"(?:public|private|protected)\s*:").match(text, start, end) if within else None
        if label:
            at = label.end()
            continue
        head_end, at = _declaration(text, start, end)
        head, whole = text[start:head_end], text[start:at]
        if head_end < at and text[head_end] == "{" and (_SCOPE.fullmatch(head) or (_CLASS.fullmatch(head))):
            close = _closing(text, head_end, end)
            if (
                _CLASS.fullmatch(head)
                and _OF_THE_HOST.search(whole)
                and device_words.isdisjoint(re.findall(r"\w+", whole))
            ):
                yield start, at, False
            else:
                yield from _host_parts(text, head_end + 1, close, device_words, bool(_CLASS.fullmatch(head)))
        elif not device_words.isdisjoint(re.findall(r"\w+", head)) or _is_type(head):
            continue
        elif "(" in _SIZE.sub("", head.partition("=")[0]):
            if re.search(r"=\s*(?:default|delete)\s*;?\s*$", whole):
                continue
            yield start, at, bool(re.search(r"\bconstexpr\b", head)) and not _OF_THE_HOST.search(whole)
        elif not within and not _is_constant(head):
            yield start, at, False


def _is_type(head: str) -> bool:
    """Whether a type is declared, or another name for one, that is not the host's."""
    other_name = head.startswith(("using", "typedef"))
    return _KEPT.match(head) is not None and not (other_name and _OF_THE_HOST.search(head))


def _is_constant(head: str) -> bool:
    """Whether a variable is a number that is known when compiling, which kernels may use."""
    return not _OF_THE_HOST.search(head) and (
        "constexpr" in head or (re.search(r"\bconst\b", head) is not None and "*" not in head)
    )


def _declaration(text: str, start: int, end: int) -> tuple[int, int]:
    """Where a declaration's body or initialiser begins (its end, if it has none), and where it ends."""
    at, depth, initialised = start, 0, False
    while at < end:
        character = text[at]
        depth += (character in "([") - (character in ")]")
        initialised |= character == "=" and depth <= 0  # not a default argument
        if character == ";" and depth <= 0:
            return at, at + 1
        if character == "{" and depth <= 0:
            close = _closing(text, at, end)
            behind = text[close + 1 : end].lstrip()[:1]
            named = _CLASS.fullmatch(text[start:at]) or re.match(r"\s*(?:typedef|enum)\b", text[start:at])
            if initialised or named or behind == ";":
                stop = text.find(";", close, end)
                return at, (stop + 1 if stop >= 0 else end)
            if behind in (",", "{"):  # a constructor's list of members
                at = close + 1
                continue
            return at, close + 1
        at += 1
    return end, end


def _closing(text: str, at: int, end: int) -> int:
    """Where the brace is that closes the one at a place."""
    depth = 0
    while at < end:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return at
        at += 1
    return end
