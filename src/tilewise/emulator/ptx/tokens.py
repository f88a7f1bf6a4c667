"""PTX text cut into words, numbers and marks."""

from __future__ import annotations

import re
from typing import NamedTuple

from tilewise.emulator.ptx.syntax import PtxError

__all__ = ["Token", "TokenReader", "integer_of", "tokens"]

_MARKS = re.compile(r"""[{}"/]""")
_SKIPPED = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*\"""", re.DOTALL)

_TOKEN = re.compile(
    r"""
    (?P<space>^[ \t]*\#[ \t]*(?:line\b)?[ \t]*\d[^\n]*|[ \t\r\f\v]+|//[^\n]*)
  | (?P<newline>\n)
  | (?P<comment>/\*.*?\*/)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+
      |\.\d+(?:[eE][+-]?\d+)?(?![\w:]))
  | (?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
  | (?P<word>[%$A-Za-z_][\w$]*)
  | (?P<dotted>\.[\w]+(?:::[\w]+)*)
  | (?P<mark>[{}\[\](),;:|!@=<>+\-*/~&^?])
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


class Token(NamedTuple):
    kind: str  # "block": braces and all that is between them, not cut up
    text: str
    line: int


def tokens(text: str, line: int = 1, outside: bool = True) -> list[Token]:
    """A text from a line on, cut up; what it has no word for is a PtxError.

    An initialiser in braces stays in one piece, and ``outside`` of functions so does all that is in braces: what
    a launch does not reach is not looked at any closer.
    """
    found: list[Token] = []
    at = 0
    end = len(text)
    match = _TOKEN.match
    while at < end:
        m = match(text, at)
        if m is None:
            if text[at] == "\0" and not text[at:].strip("\0 \n"):
                break
            raise PtxError(line, f"a character that PTX does not have: {text[at]!r}")
        kind = m.lastgroup or ""
        at = m.end()
        if kind == "mark" and m[0] == "{" and (outside or (found and found[-1].text == "=")):
            at = _end_of_block(text, m.start(), line)
            found.append(Token("block", text[m.start() : at], line))
            line += text.count("\n", m.start(), at)
            continue
        if kind == "newline":
            line += 1
        elif kind == "comment":
            line += m[0].count("\n")
        elif kind != "space":
            found.append(Token(kind, m[0], line))
    found.append(Token("end", "", line))
    return found


def _end_of_block(text: str, start: int, line: int) -> int:
    """Where the braces end that are opened at ``start``."""
    depth, at = 0, start
    while found := _MARKS.search(text, at):
        at = found.end()
        if found[0] == "{":
            depth += 1
        elif found[0] == "}":
            depth -= 1
            if not depth:
                return at
        elif skipped := _SKIPPED.match(text, found.start()):
            at = skipped.end()
    raise PtxError(line + text.count("\n", start), "'}' expected, not 'the end of the text'")


def integer_of(text: str) -> int:
    """An integer as PTX writes it."""
    text = text.rstrip("U")
    if text[:2] in ("0x", "0X", "0b", "0B"):
        return int(text, 0)
    octal = len(text) > 1 and text[0] == "0" and text.isdigit() and not {"8", "9"} & {*text}
    return int(text, 8 if octal else 10)


class TokenReader:
    """Reads the tokens of a text one after another."""

    def __init__(self, text: str, line: int = 1, outside: bool = True) -> None:
        self.tokens = tokens(text, line, outside)
        self.at = 0

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.now.text == text and self.now.kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        if self.now.text != text:
            raise self.error(f"{text!r} expected")
        return self.take()

    def error(self, what: str) -> PtxError:
        got = "{" if self.now.kind == "block" else self.now.text or "the end of the text"
        return PtxError(self.now.line, f"{what}, not {got!r}")

    def word(self) -> str:
        if self.now.kind != "word":
            raise self.error("a name expected")
        return self.take().text

    def integer(self) -> int:
        negative = self.accept("-")
        if self.now.kind != "int":
            raise self.error("an integer expected")
        value = integer_of(self.take().text)
        return -value if negative else value

    def skip_to(self, text: str) -> None:
        while self.now.text != text:
            if self.now.kind == "end":
                raise self.error(f"{text!r} expected")
            self.take()
        self.take()

    def skip_braces(self) -> None:
        if self.now.kind == "block":
            self.take()
            return
        self.expect("{")
        depth = 1
        while depth:
            token = self.take()
            if token.kind == "end":
                raise self.error("'}' expected")
            depth += {"{": 1, "}": -1}.get(token.text, 0)
