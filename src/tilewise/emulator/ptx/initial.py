"""Parse the initial bytes of a variable: numbers, addresses of other variables and functions, nested in braces.

Tables may be megabytes of text. What stands between two commas and is a plain number is not cut up any further,
and is read once however often it comes.
"""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from math import prod

from tilewise.emulator.ptx.constant_expressions import constant, read_offset
from tilewise.emulator.ptx.scope import Scope
from tilewise.emulator.ptx.syntax import Immediate, Link, PtxError, PtxModule, PtxVariable, name_in_text
from tilewise.emulator.ptx.tokens import TokenReader
from tilewise.emulator.ptx.types import TYPE_BYTES, literal_bits, literal_disagreement

__all__ = ["check_links", "initial_bytes"]

_MOST_DIMENSIONS = 16
_TOO_DEEP = "an initialiser with more braces than its variable has dimensions: a number expected"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LINE_BREAK = re.compile(r"\n")
_BRACE = re.compile(r"[{}]")
# A number without a sign for C's rules to be asked about: no octal one, no -5U.
_PLAIN = re.compile(
    r"\s*(?:(?P<int>-?(?:0[xX][0-9a-fA-F]+|0|[1-9][0-9]*))|0[fF](?P<single>[0-9a-fA-F]{8})"
    r"|0[dD](?P<double>[0-9a-fA-F]{16})|(?P<decimal>-?[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?))\s*"
)


_HAVE_VALUES = re.compile(r"[bus]\d+|f32|f64|pred")  # types that initial values may be of
_DECIMALS = re.compile(r"[-0-9,\s]*", re.ASCII)
_OCTAL = re.compile(r"(?<![0-9])0[0-9]")
_SINGLES = re.compile(r"(?:\s*0[fF][0-9a-fA-F]{8}\s*,)*\s*0[fF][0-9a-fA-F]{8}\s*", re.ASCII)
# Bytes are not among them: few differ, and what was read before is found faster.
_ARRAYS = {
    **dict.fromkeys(("u16", "b16"), "H"), **dict.fromkeys(("u32", "b32"), "I"), **dict.fromkeys(("u64", "b64"), "Q"),
    "s16": "h", "s32": "i", "s64": "q",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Address:
    """The address that belongs into an element: of a name, or one byte of it where a mask cuts it up."""

    name: str
    addend: int = 0
    generic: bool = False
    byte: int = -1


def initial_bytes(
    parser: TokenReader, scope: Scope, type_: str, dimensions: list[int], most: int
) -> tuple[bytes, tuple[Link, ...], int]:
    """Parse what follows ``=``; return the first bytes, the addresses among them, and the size in bytes.

    All bytes behind the first ones are zero. A dimension of 0 is as long as it needs to be. Missing elements
    of every dimension are zero, as in C.
    """
    if len(dimensions) > _MOST_DIMENSIONS:
        raise parser.error("an array of so many dimensions is not supported; ';' expected")
    width, line = TYPE_BYTES[type_], parser.now.line
    inner = prod(dimensions[1:])
    elements = _Elements(parser, scope, type_, most)
    if parser.now.kind == "block":
        end = elements.read_block(dimensions)
    else:
        elements.put(0, _scalar(parser, scope, type_))
        end = 1
    count = dimensions[0] or -(-end // max(inner, 1))
    if end > count * inner or count * inner * width > most:
        raise PtxError(line, "an initialiser longer than its variable")
    return bytes(elements.data), _links(elements.addresses, width, line), count * inner * width


class _LiteralBytes(dict[str, bytes]):
    """Map the text of a plain number to its bytes, cached; a KeyError for any other text."""

    def __init__(self, type_: str) -> None:
        super().__init__()
        self.type = type_

    def __missing__(self, text: str) -> bytes:
        found = _PLAIN.fullmatch(text)
        if found is None:
            raise KeyError(text)
        if found["int"]:
            value, width = int(found["int"], 0), 0
            if not -(1 << 63) <= value < 1 << 64:
                raise KeyError(text)
        elif bits := found["single"] or found["double"]:
            value, width = int(bits, 16), 4 * len(bits)
        else:
            value, width = int(struct.unpack("<Q", struct.pack("<d", float(found["decimal"])))[0]), 64
        if _mismatch(Immediate(value, width), self.type):
            raise KeyError(text)
        self[text] = data = _stored(value, width, self.type)
        return data


def _mismatch(literal: Immediate, type_: str) -> str:
    """Return why a literal cannot be the initial value of a type; "" if it can. Bits may be of any."""
    if not _HAVE_VALUES.fullmatch(type_):
        return f"no initial value of .{type_} expected"
    return "" if type_[0] == "b" else literal_disagreement(literal, type_)


def _stored(value: int, width: int, type_: str) -> bytes:
    """Return the bytes of an initial value. Floating-point numbers are bits of a float32; in .b64 their own."""
    size = TYPE_BYTES[type_]
    if width and type_[0] == "b" and size < 8:
        value = literal_bits(value, width, "f32")
    return (literal_bits(value, width, type_) % (1 << (8 * size))).to_bytes(size, "little")


class _Elements:
    """The bytes of a variable's elements, appended as they are parsed."""

    def __init__(self, parser: TokenReader, scope: Scope, type_: str, most: int) -> None:
        self.parser, self.scope = parser, scope
        self.type, self.width, self.most = type_, TYPE_BYTES[type_], most
        self.data = bytearray()
        self.addresses: dict[int, _Address] = {}  # by the number of the element
        self.known = _LiteralBytes(type_)
        self.text, self.at = "", 0
        # Where the text begins, and where its lines end.
        self.line, self.breaks = parser.now.line, list[int]()

    def read_block(self, dimensions: list[int]) -> int:
        """Parse a block in braces; return how many elements it has."""
        block = self.parser.take()
        self.text, self.at, self.line = block.text, 1, block.line
        if "/" in self.text:
            self.text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n") or " ", self.text)
        self.breaks = [found.start() for found in _LINE_BREAK.finditer(self.text)]
        if not dimensions:
            raise self._error(_TOO_DEEP)
        return self._read(dimensions, 0)

    def put(self, at: int, element: bytes | _Address) -> None:
        self._reserve(at)
        if isinstance(element, _Address):
            self.addresses[at] = element
            element = bytes(self.width)
        self.data += element

    def _reserve(self, at: int) -> None:
        """Append zeros up to the element with this number."""
        if at * self.width > self.most:
            raise self._error("an initialiser longer than its variable")
        self.data += bytes(at * self.width - len(self.data))

    def _error(self, what: str, at: int | None = None) -> PtxError:
        return PtxError(self._line_of(self.at if at is None else at), what)

    def _line_of(self, at: int) -> int:
        """Return the line of an offset in the text."""
        return self.line + bisect_left(self.breaks, at)

    def _read(self, dimensions: list[int], start: int) -> int:
        """Parse what is between braces, from an element on; return the next element's number. Inner braces are rows."""
        row, at, behind = prod(dimensions[1:]), start, False
        while True:
            brace = _BRACE.search(self.text, self.at)
            if brace is None:
                raise self._error("'}' expected", len(self.text))
            begin, self.at = self.at, brace.end()
            first, last = self._bounds(begin, brace.start(), behind, brace[0] == "}")
            if first < last:
                at = self._numbers(first, last, at)
            if brace[0] == "}":
                return at
            if len(dimensions) == 1:
                raise self._error(f"{_TOO_DEEP}, not '{{'", brace.start())
            at = start + -(-(at - start) // max(row, 1)) * row
            if self._read(dimensions[1:], at) > at + row:
                raise self._error("an initialiser longer than its variable")
            at += row
            behind = True

    def _bounds(self, begin: int, end: int, behind: bool, closing: bool) -> tuple[int, int]:
        """Return where the elements between two braces begin and end, without commas beside the braces.

        ``behind`` says that braces were closed before, ``closing`` that they are behind.
        """
        piece = self.text[begin:end]
        if not piece or piece.isspace():
            return end, end
        if behind:
            if not piece.lstrip().startswith(","):
                raise self._error(f"',' or '}}' expected, not {piece.split()[0]!r}", begin)
            begin += piece.index(",") + 1
            if self.text[begin:end].isspace() or begin == end:
                return end, end
        stripped = self.text[begin:end].rstrip()
        if stripped.endswith(","):  # before the next row, or, as in C, before the end
            return begin, begin + len(stripped) - 1
        if not closing:
            raise self._error("',' or '}' expected, not '{'", end)
        return begin, end

    def _numbers(self, begin: int, end: int, at: int) -> int:
        """Parse elements with commas between them; return the next element's number."""
        piece = self.text[begin:end]
        items = piece.split(",")
        try:
            data = _in_bulk(piece, items, self.type) or b"".join(map(self.known.__getitem__, items))
        except KeyError:
            for item in items:
                self.put(at, self._element(item, begin))
                begin += len(item) + 1
                at += 1
            return at
        self._reserve(at)
        self.data += data
        return at + len(items)

    def _element(self, text: str, begin: int) -> bytes | _Address:
        """Parse an element, which may be an expression or an address."""
        with suppress(KeyError):
            return self.known[text]
        # The comma has errors say what stands behind the element.
        part = TokenReader(f"{text},", self._line_of(begin), outside=False)
        element = _scalar(part, self.scope, self.type)
        if part.now.text != ",":
            raise part.error("',' or '}' expected")
        return element


def _in_bulk(piece: str, items: list[str], type_: str) -> bytes:
    """Return the bytes of integers, or of hexadecimal f32 literals, all at once; b"" for any other elements."""
    code = _ARRAYS.get(type_)
    if type_ == "f32" and _SINGLES.fullmatch(piece):
        found = array("I", bytes.fromhex("".join([item.strip()[2:] for item in items])))
        found.byteswap()
        return found.tobytes()
    if code is None or not _DECIMALS.fullmatch(piece) or _OCTAL.search(piece):
        return b""
    try:
        return array(code, map(int, items)).tobytes()
    except (OverflowError, ValueError):
        return b""


def _scalar(parser: TokenReader, scope: Scope, type_: str) -> bytes | _Address:
    width = TYPE_BYTES[type_]
    if parser.now.kind == "word" and parser.now.text != "WARP_SZ":
        return _address(parser, scope, -1)
    line = parser.now.line
    value = constant(parser)
    if parser.now.text == "(" and not value.width:  # a mask: one byte of an address
        byte = max(value.value.bit_length() - 1, 0) // 8
        if width != 1 or value.value != 0xFF << (8 * byte):
            raise PtxError(line, "a mask of an address must take one byte of it into one byte")
        parser.expect("(")
        found = _address(parser, scope, byte)
        parser.expect(")")
        return found
    if mismatch := _mismatch(value, type_):
        raise PtxError(line, mismatch)
    return _stored(value.value, value.width, type_)


def _address(parser: TokenReader, scope: Scope, byte: int) -> _Address:
    name = parser.word()
    generic = name == "generic" and parser.accept("(")
    if generic:
        name = parser.word()
        parser.expect(")")
    name = scope.variable_name(name)
    return _Address(name, read_offset(parser), generic, byte)


def _links(addresses: dict[int, _Address], width: int, line: int) -> tuple[Link, ...]:
    found: list[Link] = []
    for at, address in addresses.items():
        if address.byte < 0 and width != 8:
            raise PtxError(line, f"the address of {address.name} needs 8 bytes")
        whole = True
        if address.byte > 0:
            first = addresses.get(at - address.byte, _Address(""))
            whole = (first.name, first.addend, first.byte) == (address.name, address.addend, 0)
        elif address.byte == 0:
            whole = all(at + i in addresses and addresses[at + i].byte == i for i in range(8))
        if not whole:
            raise PtxError(line, f"the address of {address.name} must be there with all of its 8 bytes")
        if address.byte <= 0:
            found.append((at * width, address.name, address.addend, address.generic))
    return tuple(found)


def check_links(module: PtxModule, variable: PtxVariable) -> None:
    """Refuse addresses in a variable of what has none: a function or a variable in global or constant memory has."""
    for _, name, _, _ in variable.links:
        known, function = module.variables.get(name), module.functions.get(name)
        if not (known.space in ("global", "const") if known else function and not function.entry):
            raise PtxError(
                variable.line,
                f"{variable.name} holds the address of {name_in_text(name)!r}, which has none here",
            )
