"""C++ source or mangled name → what each parameter of a kernel points to, and whether it is written.

A mangled name has the types themselves. ``extern "C"`` names have none, so the declaration in the source is
read. NOTE: what is not sure stays unknown, because arguments are refused by what is found here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tilewise.launch import Parameter
from tilewise.toolchain.binary import Entry
from tilewise.toolchain.mangling import CppType, Unreadable, parameter_types

__all__ = ["DeclarationScope", "declare"]

_LONG = f"int{8 * struct.calcsize('l')}"  # four bytes on Windows, eight elsewhere; NVRTC follows its host
_SIGNED = {"char": "int8", "short": "int16", "int": "int32", "long": _LONG, "long long": "int64"}
_ELEMENTS = {
    "float": "float32",
    "double": "float64",
    "bool": "bool",
    "char": "int8",
    "std::byte": "uint8",
    "__half": "float16",
    "_Float16": "float16",
    "__nv_bfloat16": "bfloat16",
    "__bf16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    **_SIGNED,
    **{f"unsigned {name}": f"u{element}" for name, element in _SIGNED.items()},
    "signed char": "int8",
}
# Names that <cstdint> and CUDA's headers give to types above; a source may give them to others.
_ALIASES = {
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")},
    "size_t": "uint64",
    "half": "float16",
    "nv_bfloat16": "bfloat16",
    **{name: _ELEMENTS[name] for name in ("__half", "__nv_bfloat16", "__nv_fp8_e4m3", "__nv_fp8_e5m2")},
}
_WORDS = {
    "unsigned",
    "signed",
    "char",
    "short",
    "int",
    "long",
    "float",
    "double",
    "bool",
}  # the language's own
_CUDA_HEADERS = {f"cuda_{name}.{end}" for name in ("fp16", "bf16", "fp8") for end in ("h", "hpp")}
_QUALIFIERS = {"const", "volatile", "__restrict__", "__restrict", "__grid_constant__"}

_SKIPPED = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_ALIGNMENT = re.compile(r"\b(?:__align__|alignas)\s*\([^()]*\)")
_DIRECTIVE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_OPTION = re.compile(r"^(?:-D|--define-macro[=\s])\s*(\w+)", re.MULTILINE)
_INCLUDING = re.compile(r"^--?(?:pre-)?include[=\s]", re.MULTILINE)  # a file that the source does not name
_TOKEN = re.compile(r"(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*|\[[^\][]*\]|\S")


def declare(
    entries: Mapping[str, Entry], source: str, headers: Mapping[str, str | None], options: Iterable[str]
) -> dict[str, Entry]:
    """The entries, with what C++ declares of their parameters added.

    ``headers`` are those that the source includes, by name; ``options`` are the compiler's, for the macros in
    them.
    """
    scope: DeclarationScope | None = None
    found = {}
    for name, entry in entries.items():
        declared = entry.parameters
        if name.startswith("_Z"):
            declared = _join(declared, _from_name(name))
        elif declared:
            scope = scope or DeclarationScope(source, headers, options)
            declared = _join(declared, scope.declarations(name))
        found[name] = replace(entry, parameters=declared)
    return found


class _Declared(NamedTuple):
    """What is known of one parameter; no text means nothing."""

    text: str = ""
    element: str | None = None
    writable: bool | None = None


_UNKNOWN = _Declared()


def _join(parameters: tuple[Parameter, ...], declared: Sequence[_Declared]) -> tuple[Parameter, ...]:
    """PTX parameters with what C++ declares of them, if the two agree on which are pointers."""
    if len(parameters) != len(declared):
        return parameters
    if any(
        known.writable is not None and parameter.size != 8
        for parameter, known in zip(parameters, declared, strict=True)
    ):
        return parameters
    return tuple(
        replace(parameter, declared=known.text, element=known.element, writable=known.writable)
        for parameter, known in zip(parameters, declared, strict=True)
    )


# ── from the mangled name ──


def _from_name(name: str) -> list[_Declared]:
    try:
        return [_of_type(type_) for type_ in parameter_types(name)]
    except Unreadable:
        return []


def _of_type(type_: CppType) -> _Declared:
    target = type_.target
    if target is None:
        return _Declared(type_.text) if type_.arithmetic else _UNKNOWN
    plain = target.text.removeprefix("const ").removeprefix("volatile ")
    return _Declared(type_.text, _ELEMENTS.get(plain), not target.const)


# ── from the source ──


class DeclarationScope:
    """The source that a kernel is declared in, and the names that it redefines."""

    def __init__(self, source: str, headers: Mapping[str, str | None], options: Iterable[str]) -> None:
        own = [text for name, text in headers.items() if text and name not in _CUDA_HEADERS]
        texts = [text.replace("\\\n", " ") for text in (source, *own)]
        self._kernels = "\n".join(_SKIPPED.sub(" ", text) for text in texts if "__global__" in text)
        # Comments in them make a name look defined at worst.
        self._all = "\n".join(texts)
        self._texts = texts
        given = "\n".join(options)
        self._macros = {*_MACRO.findall(self._all), *_OPTION.findall(given)}
        if _INCLUDING.search(given):
            self._kernels = ""

    @property
    def declarations_text(self) -> str:
        """The source without comments, strings, directives and alignments."""
        text = "\n".join(_SKIPPED.sub(" ", text) for text in self._texts)
        return _ALIGNMENT.sub(" ", _DIRECTIVE.sub("", text))

    def has_macro(self, words: Iterable[str]) -> bool:
        """Whether one of some words means something else than itself."""
        return not self._macros.isdisjoint(words)

    def declarations(self, kernel: str) -> list[_Declared]:
        """What the declarations of a kernel say of its parameters; nothing where they differ."""
        found: list[list[_Declared]] = []
        for match in re.finditer(rf"\b__global__\b[^;{{}}]*?\b{re.escape(kernel)}\s*\(", self._kernels):
            parts = _split(self._kernels, match.end())
            if parts is None:
                return []
            found.append([self._parameter(part) for part in parts])
        return found[0] if found and all(_types(other) == _types(found[0]) for other in found) else []

    def _parameter(self, text: str) -> _Declared:
        """One parameter, such as ``const float *__restrict__ x`` or ``int n``."""
        tokens = _TOKEN.findall(text)
        words = {token for token in tokens if token.lstrip(":")[:1].isidentifier()}
        is_array = tokens and tokens[-1].startswith("[")
        while tokens and tokens[-1].startswith("["):
            tokens.pop()
        strange = [token for token in tokens if token not in words and token != "*"]
        if not tokens or strange or tokens.count("*") + bool(is_array) > 1 or words & self._macros:
            return _UNKNOWN
        star = tokens.index("*") if "*" in tokens else len(tokens)
        base, behind = tokens[:star], [token for token in tokens[star + 1 :] if token not in _QUALIFIERS]
        plain = [token for token in base if token not in _QUALIFIERS]
        if star == len(tokens) and len(plain) > 1 and plain[-1] not in _WORDS:
            behind = [plain.pop()]
        if len(behind) > 1:
            return _UNKNOWN
        element, is_void = self.element(plain), plain == ["void"]
        shown = " ".join(text.split())
        if star == len(tokens) and not is_array:
            return _Declared(shown) if element else _UNKNOWN
        if element or is_void or "const" in base:
            return _Declared(shown, element, "const" not in base)
        return _UNKNOWN  # another name for a type, which may be const itself

    def element(self, words: list[str]) -> str | None:
        """The element type that C++ words name, if it is one that NumPy knows."""
        if words and set(words) <= _WORDS:
            return _ELEMENTS.get(_canonical(words))
        name = words[0].removeprefix("::").removeprefix("cuda::").removeprefix("std::") if words else ""
        if len(words) != 1 or name not in _ALIASES or self.defines(name):
            return None
        return _ALIASES[name]

    def defines(self, name: str) -> bool:
        """Whether the source gives a name of a type a meaning of its own."""
        other = rf"\b(?:struct|class|union|enum|using)\s+{name}\b|\btypedef\b[^;]*\b{name}\s*;"
        return re.search(other, self._all) is not None


def _types(declared: Sequence[_Declared]) -> list[tuple[str | None, bool | None]]:
    return [(known.element, known.writable) for known in declared]


def _split(text: str, start: int) -> list[str] | None:
    """The parameters of a declaration that ``start`` is inside of; None where its bracket is not closed."""
    depth, parts = 0, [""]
    for character in text[start:]:
        if character == ")" and not depth:
            return [part for part in parts if part.strip() and part.strip() != "void"]
        if character in "{};#":
            return None
        depth += (character in "(<[") - (character in ")>]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return None


def _canonical(words: Sequence[str]) -> str:
    """Words such as ``long unsigned int`` as ``unsigned long``."""
    rest = sorted(word for word in words if word not in ("unsigned", "signed", "int"))
    core = " ".join(rest) or "int"
    if "unsigned" in words:
        return f"unsigned {core}"
    return core
