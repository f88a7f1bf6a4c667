"""The parameter types of a C++ function, read from its mangled name.

Names are mangled by the Itanium C++ ABI. Parsed is what signatures of kernels are made of: numbers,
classes, pointers, references, arrays, functions, templates. What else there is raises :class:`Unreadable`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["CppType", "Unreadable", "parameter_types"]

_BUILTIN = {
    "v": "void", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "e": "long double", "g": "__float128", "w": "wchar_t", "z": "...", "Dn": "std::nullptr_t", "Du": "char8_t",
    "Ds": "char16_t", "Di": "char32_t", "DF16_": "_Float16", "DF16b": "__bf16",
}  # fmt: skip
_STANDARD = {"Sa": "std::allocator", "Ss": "std::string", "Sb": "std::basic_string", "Si": "std::istream",
             "So": "std::ostream", "Sd": "std::iostream"}  # fmt: skip
_QUALIFIERS = {"K": "const", "V": "volatile", "r": "__restrict__"}
_DEPTH_MOST = 64  # of types within types: a name that goes deeper is not worth a recursion error


class Unreadable(Exception):
    """A name that is not mangled, or that has a part which is not parsed here."""


class CppType(NamedTuple):
    """A C++ type. ``target`` is what a pointer points to; ``arithmetic`` says that it is a built-in number."""

    text: str
    const: bool = False
    target: CppType | None = None
    arithmetic: bool = False


def parameter_types(mangled: str) -> list[CppType]:
    """The types of the parameters of a mangled function, outermost qualifiers dropped, as C++ does.

    >>> [type_.text for type_ in parameter_types("_Z5tiledILi32EfEvPKT0_PfPS3_i")]
    ['const float *', 'float *', 'float **', 'int']
    """
    if not mangled.startswith("_Z"):
        raise Unreadable(mangled)
    parser = _Parser(mangled[2:])
    try:
        return parser.function()
    except (IndexError, ValueError) as error:
        raise Unreadable(mangled) from error


class _Parser:
    """A recursive descent. ``_seen`` holds what ``S_``, ``S0_``, … stand for, ``_given`` what ``T_``, … do."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._seen: list[CppType] = []
        self._given: list[list[CppType]] = []

    def function(self) -> list[CppType]:
        is_template = self._function_name()
        if is_template:
            self._type()  # templates have their result's type before the parameters
        found: list[CppType] = []
        while self._at < len(self._text):
            found.append(self._type())
        return [] if [type_.text for type_ in found] == ["void"] else found

    # ── the text ──

    def _take(self, part: str) -> bool:
        if not self._text.startswith(part, self._at):
            return False
        self._at += len(part)
        return True

    def _expect(self, part: str) -> None:
        if not self._take(part):
            raise Unreadable(self._text)

    def _match(self, pattern: str) -> str:
        match = re.compile(pattern).match(self._text, self._at)
        if not match:
            raise Unreadable(self._text)
        self._at = match.end()
        return match[0]

    def _peek(self) -> str:
        return self._text[self._at]

    def _remember(self, type_: CppType) -> CppType:
        self._seen.append(type_)
        return type_

    # ── names ──

    def _function_name(self) -> bool:
        """Read the function's own name; whether it is an instance of a template."""
        if self._take("N"):
            is_template = self._nested()[1]
            self._seen.pop()  # what is whole is a function, which nothing refers to
            return is_template
        self._take("L")  # of a function that other files do not see
        name = CppType(self._source_name())
        if self._at < len(self._text) and self._peek() == "I":
            self._remember(name)
            self._arguments()
            return True
        return False

    def _source_name(self) -> str:
        length = int(self._match(r"[1-9]\d*"))
        self._at += length
        if self._at > len(self._text):
            raise Unreadable(self._text)
        return self._text[self._at - length : self._at]

    def _nested(self) -> tuple[CppType, bool]:
        """A name of several parts, up to its E; whether it ends in template arguments."""
        whole, is_template = CppType(""), False
        while not self._take("E"):
            is_template = self._peek() == "I"
            if is_template:
                whole = self._remember(CppType(f"{whole.text}<{self._arguments()}>"))
            elif self._peek() == "S":
                whole = self._substitution()
            else:
                self._take("L")
                joint = "::" if whole.text else ""
                whole = self._remember(CppType(f"{whole.text}{joint}{self._source_name()}"))
        return whole, is_template

    def _arguments(self) -> str:
        """Template arguments; those of the innermost template are what T_ means from then on."""
        self._expect("I")
        found: list[list[CppType]] = []
        while not self._take("E"):
            if self._take("J"):
                pack: list[CppType] = []
                while not self._take("E"):
                    pack.append(self._argument())
                found.append(pack)
            else:
                found.append([self._argument()])
        if not self._depth:
            self._given = found
        return ", ".join(type_.text for pack in found for type_ in pack)

    def _argument(self) -> CppType:
        if self._take("L"):
            type_ = self._type()
            value = self._match(r"n?\d*").replace("n", "-")
            self._expect("E")
            return CppType(value if type_.arithmetic else f"({type_.text}){value}")
        return self._type()

    def _number(self, base: int) -> int:
        """What stands between the letter of a reference and its underscore: nothing is 0, 0 is 1."""
        digits = self._match(r"[0-9A-Z]*_")[:-1]
        return int(digits, base) + 1 if digits else 0

    def _substitution(self) -> CppType:
        for short, name in _STANDARD.items():
            if self._take(short):
                return CppType(name)
        if self._take("St"):
            if not self._peek().isdigit():
                raise Unreadable(self._text)
            return self._remember(CppType(f"std::{self._source_name()}"))
        self._expect("S")
        return self._seen[self._number(36)]

    # ── types ──

    def _type(self) -> CppType:
        self._depth += 1
        if self._depth > _DEPTH_MOST:
            raise Unreadable(self._text)
        try:
            return self._one_type()
        finally:
            self._depth -= 1

    def _one_type(self) -> CppType:
        for short, name in _BUILTIN.items():
            if self._take(short):
                return CppType(name, arithmetic=name not in ("void", "..."))
        letter = self._peek()
        if letter in _QUALIFIERS:
            return self._qualified()
        if letter in "PRO":
            return self._pointer()
        if letter == "A":
            return self._array()
        if letter == "F":
            return self._function_type()
        if letter == "T":
            self._at += 1
            (type_,) = self._given[self._number(10)]
            return self._with_arguments(self._remember(type_))
        if letter == "S":
            return self._with_arguments(self._substitution())
        if letter == "N":
            self._at += 1
            return self._nested()[0]
        return self._with_arguments(self._remember(CppType(self._source_name())))

    def _with_arguments(self, type_: CppType) -> CppType:
        if self._at < len(self._text) and self._peek() == "I":
            return self._remember(CppType(f"{type_.text}<{self._arguments()}>"))
        return type_

    def _qualified(self) -> CppType:
        words = sorted(_QUALIFIERS[letter] for letter in self._match("r?V?K?"))
        type_ = self._type()
        text = f"{type_.text} {' '.join(words)}" if type_.target else f"{' '.join(words)} {type_.text}"
        return self._remember(type_._replace(text=text, const=type_.const or "const" in words))

    def _pointer(self) -> CppType:
        sign = {"P": "*", "R": "&", "O": "&&"}[self._match("[PRO]")]
        target = self._type()
        space = "" if target.text.endswith("*") else " "
        return self._remember(CppType(f"{target.text}{space}{sign}", target=target if sign == "*" else None))

    def _array(self) -> CppType:
        """An array; as a parameter it is a pointer to its elements."""
        self._expect("A")
        if self._peek() == "T":
            self._at += 1
            self._number(10)
        else:
            self._match(r"\d*")
        self._expect("_")
        return self._remember(self._type())

    def _function_type(self) -> CppType:
        self._expect("F")
        self._take("Y")
        types = []
        while not self._take("E"):
            types.append(self._type().text)
        return self._remember(CppType(f"{types[0]} ({', '.join(types[1:])})"))
