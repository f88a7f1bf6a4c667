"""The initial bytes of a variable: numbers, addresses of other variables and functions, nested in braces."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilewise.emulator.ptx.constants import constant
from tilewise.emulator.ptx.syntax import Link, PtxError
from tilewise.emulator.ptx.types import TYPE_BYTES, literal_bits

if TYPE_CHECKING:
    from tilewise.emulator.ptx.parse import Parser

__all__ = ["initial_bytes"]

_MOST_DIMENSIONS = 16


class _Scalar:
    """One element: its bytes, and the address that belongs there."""

    def __init__(
        self, data: bytes, name: str = "", addend: int = 0, generic: bool = False, byte: int = -1
    ) -> None:
        self.data, self.name, self.addend, self.generic = data, name, addend, generic
        self.byte = byte  # which byte of the address it is, where a mask cuts it up


_Nested = list["_Nested | _Scalar"]


def initial_bytes(
    parser: Parser, type_: str, dimensions: list[int], most: int
) -> tuple[bytes, tuple[Link, ...], int]:
    """Read what stands behind ``=``: the first bytes, the addresses among them, and how many bytes there are.

    All bytes behind the first ones are zero. A dimension of 0 is as long as it needs to be. Missing elements
    of every dimension are zero, as in C.
    """
    if len(dimensions) > _MOST_DIMENSIONS:
        raise parser.error("an array of so many dimensions is not supported; ';' expected")
    width, line = TYPE_BYTES[type_], parser.now.line
    tree = _nested(parser, type_, len(dimensions))
    scalars: dict[int, _Scalar] = {}
    inner = prod(dimensions[1:])
    end = _place(tree, dimensions, 0, scalars) if isinstance(tree, list) else _put(tree, 0, scalars)
    count = dimensions[0] or -(-end // max(inner, 1))
    if end > count * inner or count * inner * width > most:
        raise PtxError(line, "an initialiser longer than its variable")
    data = bytearray((max(scalars, default=-1) + 1) * width)
    for at, scalar in scalars.items():
        data[at * width : (at + 1) * width] = scalar.data
    return bytes(data), _links(scalars, width, line), count * inner * width


def _nested(parser: Parser, type_: str, depth: int) -> _Nested | _Scalar:
    if not parser.accept("{"):
        return _scalar(parser, type_)
    if not depth:
        raise parser.error(
            "an initialiser with more braces than its variable has dimensions: a number expected"
        )
    items: _Nested = []
    while not parser.accept("}"):
        items.append(_nested(parser, type_, depth - 1))
        if not parser.accept(",") and parser.now.text != "}":
            raise parser.error("',' or '}' expected")
    return items


def _put(scalar: _Scalar, at: int, scalars: dict[int, _Scalar]) -> int:
    scalars[at] = scalar
    return at + 1


def _place(items: _Nested, dimensions: list[int], start: int, scalars: dict[int, _Scalar]) -> int:
    """Lay elements out from ``start``; where they end. Braces within begin the next row."""
    row = prod(dimensions[1:])
    at = start
    for item in items:
        if isinstance(item, list):
            at = start + -(-(at - start) // max(row, 1)) * row
            if _place(item, dimensions[1:], at, scalars) > at + row:
                return 1 << 62
            at += row
        else:
            at = _put(item, at, scalars)
    return at


def _scalar(parser: Parser, type_: str) -> _Scalar:
    width = TYPE_BYTES[type_]
    if parser.now.kind == "word" and parser.now.text != "WARP_SZ":
        return _address(parser, width, -1)
    line = parser.now.line
    value = constant(parser)
    if parser.now.text == "(" and not value.width:  # a mask: one byte of an address
        byte = (value.value.bit_length() - 1) // 8
        if width != 1 or value.value != 0xFF << (8 * byte):
            raise PtxError(line, "a mask of an address must take one byte of it into one byte")
        parser.expect("(")
        scalar = _address(parser, width, byte)
        parser.expect(")")
        return scalar
    bits = literal_bits(value.value, value.width, type_)
    return _Scalar((bits % (1 << (8 * width))).to_bytes(width, "little"))


def _address(parser: Parser, width: int, byte: int) -> _Scalar:
    name = parser.word()
    generic = name == "generic" and parser.now.text == "("
    if generic:
        parser.expect("(")
        name = parser.variable_name(parser.word())
        parser.expect(")")
    else:
        name = parser.variable_name(name)
    return _Scalar(bytes(width), name, parser.offset(), generic, byte)


def _links(scalars: dict[int, _Scalar], width: int, line: int) -> tuple[Link, ...]:
    found: list[Link] = []
    whole = {at: scalar for at, scalar in scalars.items() if scalar.name}
    for at, scalar in whole.items():
        if scalar.byte < 0 and width != 8:
            raise PtxError(line, f"the address of {scalar.name} needs 8 bytes")
        if scalar.byte > 0:
            first = whole.get(at - scalar.byte)
            if first is None or (first.name, first.addend, first.byte) != (scalar.name, scalar.addend, 0):
                raise PtxError(line, f"the address of {scalar.name} must be there with all of its 8 bytes")
        elif scalar.byte == 0 and not all(at + i in whole and whole[at + i].byte == i for i in range(8)):
            raise PtxError(line, f"the address of {scalar.name} must be there with all of its 8 bytes")
        if scalar.byte <= 0:
            found.append((at * width, scalar.name, scalar.addend, scalar.generic))
    return tuple(found)
