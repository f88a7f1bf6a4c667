"""Constants as PTX writes them: literals, and expressions of them, as in C.

Integers have 64 bits; one is unsigned if it ends in U or has no room in a signed one. Floats are doubles,
and a single literal keeps its own bits.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from tilewise.emulator.ptx.syntax import Immediate, PtxError
from tilewise.emulator.ptx.tokens import TokenReader, integer_of

__all__ = ["constant", "constant_integer", "read_offset"]

_LOGIC: dict[str, Callable[[bool, bool], bool]] = {"||": operator.or_, "&&": operator.and_}
# What integers and floats have; a quotient of integers is cut off, of floats it is none of these.
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
    "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip
_BITWISE: dict[str, Callable[[int, int], int]] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
# Operators that bind more weakly come first.
_LEVELS = [
    words.split() for words in ("||", "&&", "|", "^", "&", "== !=", "<= >= < >", "<< >>", "+ -", "* / %")
]
_DEEPEST = 64


class _Number(NamedTuple):
    kind: str  # "s", "u" or "f"
    value: float
    bits: int = 0  # a float literal's own bits
    width: int = 64


def constant(parser: TokenReader, level: int = 0) -> Immediate:
    """Read a constant expression whose operators bind at least as strongly as those of a level."""
    number = _Reader(parser).level(level) if level else _Reader(parser).choice()
    if number.kind != "f":
        return Immediate(int(number.value))
    return Immediate(number.bits, number.width)


def constant_integer(parser: TokenReader, terms: bool = False) -> int:
    """Read a constant expression of integers; with ``terms``, one of those between ``+`` and ``-``."""
    line = parser.now.line
    found = constant(parser, len(_LEVELS) - 1 if terms else 0)
    if found.width:
        raise PtxError(line, "an integer expected, not a float")
    return found.value


def read_offset(parser: TokenReader) -> int:
    """Read what is added to a name: ``+4-8``, or nothing."""
    total = 0
    while parser.now.kind == "mark" and parser.now.text in ("+", "-"):
        if parser.now.text == "+":
            parser.take()
        total += constant_integer(parser, terms=True)
    return total


def _wrapped(kind: str, value: int) -> _Number:
    value %= 1 << 64
    return _Number(kind, value - (1 << 64) if kind == "s" and value >> 63 else value)


def _real(value: float) -> _Number:
    return _Number("f", value, int(struct.unpack("<Q", struct.pack("<d", value))[0]))


class _Reader:
    """Reads by precedence: each level reads the next one's operands."""

    def __init__(self, parser: TokenReader) -> None:
        self.parser = parser
        self.depth = 0

    def _go_deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.parser.error(
                "an expression of so many parentheses is not supported; a number expected"
            )

    def choice(self) -> _Number:
        """``a ? b : c``."""
        self._go_deeper()
        first = self.level(0)
        if self.parser.accept("?"):
            yes = self.choice()
            self.parser.expect(":")
            no = self.choice()
            first = yes if first.value else no
        self.depth -= 1
        return first

    def level(self, index: int) -> _Number:
        if index == len(_LEVELS):
            return self.unary()
        left = self.level(index + 1)
        while word := self._operator(_LEVELS[index]):
            left = self._apply(word, left, self.level(index + 1))
        return left

    def _operator(self, words: list[str]) -> str:
        """Take one of some operators if it is next; ``<`` is not that of ``<<``."""
        tokens, at = self.parser.tokens, self.parser.at
        first, second = tokens[at].text, tokens[at + 1].text if at + 1 < len(tokens) else ""
        pair = first + second
        found = pair if pair in {"||", "&&", "==", "!=", "<=", ">=", "<<", ">>"} else first
        if found not in words or tokens[at].kind == "string":
            return ""
        self.parser.at += len(found) if len(found) == 2 else 1
        return found

    def unary(self) -> _Number:
        parser = self.parser
        token = parser.now
        self._go_deeper()
        if token.text in ("+", "-", "!", "~"):
            parser.take()
            number = self._signed(token.text, self.unary())
        elif parser.accept("("):
            if parser.now.text in (".s64", ".u64"):
                kind = parser.take().text[1]
                parser.expect(")")
                number = self._integer(kind, self.unary())
            else:
                number = self.choice()
                parser.expect(")")
        else:
            number = self.literal()
        self.depth -= 1
        return number

    def literal(self) -> _Number:
        token = self.parser.take()
        text = token.text
        if token.kind == "int":
            value = integer_of(text)
            if value >> 64:
                raise PtxError(token.line, f"an integer of more than 64 bits: {text}")
            return _Number("u" if text.endswith("U") or value >> 63 else "s", value)
        if text == "WARP_SZ":
            return _Number("s", 32)
        if token.kind != "float":
            self.parser.at -= token.kind != "end"
            raise self.parser.error("a number expected")
        if text[:2] in ("0f", "0F"):
            bits = int(text[2:], 16)
            return _Number("f", struct.unpack("<f", struct.pack("<I", bits))[0], bits, 32)
        if text[:2] in ("0d", "0D"):
            bits = int(text[2:], 16)
            return _Number("f", struct.unpack("<d", struct.pack("<Q", bits))[0], bits)
        return _real(float(text))

    def _signed(self, word: str, number: _Number) -> _Number:
        if word == "+":
            return number
        if word == "!":
            return _Number("s", int(not number.value))
        if number.kind == "f" and word == "-":
            return _Number("f", -number.value, number.bits ^ (1 << (number.width - 1)), number.width)
        value = int(self._integer(number.kind, number).value)
        return _wrapped("u", ~value) if word == "~" else _wrapped(number.kind, -value)

    def _integer(self, kind: str, number: _Number) -> _Number:
        if number.kind == "f":
            raise PtxError(self.parser.now.line, "an operation that floats do not have")
        return _wrapped(kind, int(number.value))

    def _apply(self, word: str, a: _Number, b: _Number) -> _Number:
        if word in _LOGIC:
            return _Number("s", int(_LOGIC[word](bool(a.value), bool(b.value))))
        if "f" in (a.kind, b.kind):
            return self._apply_real(word, float(a.value), float(b.value))
        if word in ("<<", ">>"):
            x, by = int(a.value), int(b.value) % 64  # what a shift by more bits does is not said
            return _wrapped(a.kind, x << by if word == "<<" else x >> by)
        kind = "u" if "u" in (a.kind, b.kind) else "s"
        x, y = int(_wrapped(kind, int(a.value)).value), int(_wrapped(kind, int(b.value)).value)
        if word in ("/", "%"):
            if not y:
                raise PtxError(self.parser.now.line, "a constant divided by zero")
            if word == "%":  # of unsigned numbers, whatever they are
                return _wrapped("u", (x % (1 << 64)) % (y % (1 << 64)))
            return _wrapped(kind, abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))
        found = (_ARITHMETIC | _BITWISE)[word](x, y)
        return _Number("s", int(found)) if isinstance(found, bool) else _wrapped(kind, found)

    def _apply_real(self, word: str, x: float, y: float) -> _Number:
        if word == "/" and not y:
            raise PtxError(self.parser.now.line, "a constant divided by zero")
        if word not in _ARITHMETIC and word != "/":
            raise PtxError(self.parser.now.line, f"floats do not have the operation {word}")
        found = x / y if word == "/" else _ARITHMETIC[word](x, y)
        return _Number("s", int(found)) if isinstance(found, bool) else _real(found)
