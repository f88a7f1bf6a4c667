"""C++ source → names, element types and shapes of a module's variables.

PTX has an array of floats as bytes. The declaration in the source is read for what it was.
NOTE: what is not sure stays unknown, because values are refused by what is found here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from tilewise.toolchain.declarations import DeclarationScope

__all__ = ["CppVariable", "plain_name", "read_variables"]

_DECLARATION = re.compile(
    r"\b(?:__constant__|__device__|__managed__)\b(?P<words>[^;(){}=\[\]<>]*?)\b(?P<name>\w+)\s*"
    r"(?P<sizes>(?:\[[^\]]*\]\s*)*)(?=[;={])"
)
_SIZE = re.compile(r"\[\s*([^\]]*?)\s*\]")
_VECTOR = re.compile(r"(u?)(char|short|int|long|longlong|float|double)([1-4])")
_PLACES = {
    "__constant__", "__device__", "__managed__", "static", "extern", "inline", "constexpr", "const", "volatile",
    "__restrict__",
}  # fmt: skip


class CppVariable(NamedTuple):
    """A declaration: its text, the element type by NumPy's name, and the dimensions; None for one that is no number."""

    text: str
    element: str
    sizes: tuple[int | None, ...]

    def shape(self, nbytes: int, width: int) -> tuple[int, ...] | None:
        """The shape of so many bytes of elements of ``width`` bytes; None where they cannot be these."""
        known = math.prod(size for size in self.sizes if size is not None)
        unknown = sum(size is None for size in self.sizes)
        count, rest = divmod(nbytes, width)
        if rest or unknown > 1 or not known or count % known or (not unknown and count != known):
            return None
        return tuple(count // known if size is None else size for size in self.sizes)


def read_variables(source: str, headers: Iterable[str] = ()) -> dict[str, CppVariable]:
    """By plain name: the variables of a source whose type is sure; without those that are declared twice."""
    scope = DeclarationScope(source, {str(i): text for i, text in enumerate(headers)}, ())
    found: dict[str, CppVariable] = {}
    doubtful = set()
    for match in _DECLARATION.finditer(scope.declarations_text):
        words = [word for word in re.findall(r"::|\w+|\S", match["words"]) if word not in _PLACES]
        name, declared = match["name"], _variable(scope, words, match)
        if declared is None or found.get(name, declared) != declared:
            doubtful.add(name)
        else:
            found[name] = declared
    return {name: declared for name, declared in found.items() if name not in doubtful}


def _variable(scope: DeclarationScope, words: list[str], match: re.Match[str]) -> CppVariable | None:
    text = " ".join(f"{' '.join(words)} {match['name']}{match['sizes'].strip()}".split())
    sizes = tuple(int(size) if size.isdecimal() else None for size in _SIZE.findall(match["sizes"]))
    if scope.has_macro(words):
        return None
    if "*" in words:
        return CppVariable(text, "uint64", sizes)
    if len(words) == 1 and (vector := _VECTOR.fullmatch(words[0])) and not scope.defines(words[0]):
        base = {"longlong": "long long"}.get(vector[2], vector[2])
        element = scope.element([*(["unsigned"] if vector[1] else []), *base.split()])
        return CppVariable(text, element, (*sizes, int(vector[3]))) if element else None
    element = scope.element(words)
    return CppVariable(text, element, sizes) if element else None


def plain_name(symbol: str) -> str:
    """The C++ name of a variable that a mangled one begins with, unnamed namespaces left out.

    >>> plain_name("_ZN2ns1uE"), plain_name("_ZL4mine"), plain_name("table")
    ('ns::u', 'mine', 'table')
    """
    if not symbol.startswith("_Z"):
        return symbol
    nested = symbol.startswith("_ZN")
    rest, names = symbol[3:] if nested else symbol[2:].removeprefix("L"), []
    while match := re.match(r"L?(\d+)", rest):
        end = match.end() + int(match[1])
        names.append(rest[match.end() : end])
        rest = rest[end:]
        if not nested:
            break
    names = [name for name in names if not name.startswith(("_GLOBAL__N_", "_INTERNAL_"))]
    return "::".join(names) if names and (rest in ("", "E")) else symbol
