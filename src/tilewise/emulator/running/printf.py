"""``printf`` as C has it: a format, and arguments fetched one by one, as the bits of so many bytes."""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Callable

__all__ = ["format_printf"]

_SPECIFICATION = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|-?\d+)?(?P<dot>))?"
    rb"(?P<length>hh|ll|[hljztL])?(?P<kind>[diouxXcspnfFeEgGaA%])",
    re.DOTALL,
)
# A long of the device's C++ is as wide as the host's, for which the source was compiled.
_WIDE = {b"ll", b"j", b"z", b"t"} | ({b"l"} if os.name != "nt" else set())
_BEFORE_ZEROS = re.compile(rb"^[-+ ]?(?:0[xX])?")
_MOST_WIDTH = 1 << 16


_Fetch = Callable[[int], int]  # takes the next argument, of so many bytes, and returns its bits
_ReadText = Callable[[int], bytes]  # returns what is at an address up to a zero


def format_printf(form: bytes, fetch: _Fetch, read_text: _ReadText) -> tuple[bytes, int]:
    """Format a printf text; return it and how many arguments it took."""
    out: list[bytes] = []
    taken = at = 0
    for match in _SPECIFICATION.finditer(form):
        out.append(form[at : match.start()])
        at = match.end()
        if match["kind"] == b"%":
            out.append(b"%")
            continue
        flags, numbers = match["flags"].decode(), []
        for name in ("width", "precision"):
            number = match[name]
            if number == b"*":
                number = _signed(fetch(4), 32)
                taken += 1
            numbers.append(min(int(number), _MOST_WIDTH) if number is not None else None)
        width, precision = numbers
        if match["dot"] is not None and precision is None:
            precision = 0
        if width is not None and width < 0:
            flags, width = flags + "-", min(-width, _MOST_WIDTH)
        if precision is not None and precision < 0:
            precision = None
        kind, length = match["kind"].decode(), match["length"] or b""
        body, zeros = _one(kind, length, flags, precision, fetch, read_text)
        taken += 1
        out.append(_padded(body, flags, width or 0, zeros))
    out.append(form[at:])
    return b"".join(out), taken


def _one(
    kind: str, length: bytes, flags: str, precision: int | None, fetch: _Fetch, read_text: _ReadText
) -> tuple[bytes, bool]:
    """One argument's text, and whether zeros may stand before it."""
    if kind in "diouxX":
        bits = 64 if length in _WIDE else 32
        value = fetch(bits // 8)
        bits = {b"h": 16, b"hh": 8}.get(length, bits)
        return _integer(kind, value % (1 << bits), bits, flags, precision), precision is None
    if kind == "c":
        return bytes([fetch(4) & 0xFF]), False
    bits = fetch(8)
    if kind == "s":
        return (read_text(bits) if bits else b"(null)")[:precision], False
    if kind == "p":
        return (f"{bits:#x}" if bits else "(nil)").encode(), False
    if kind == "n":  # it would write; CUDA's printf does not either
        return b"", False
    return _real(kind, struct.unpack("<d", struct.pack("<Q", bits))[0], flags, precision)


def _integer(kind: str, value: int, bits: int, flags: str, precision: int | None) -> bytes:
    sign = ""
    if kind in "di":
        value = _signed(value, bits)
        sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
    digits = format(abs(value), {"o": "o", "x": "x", "X": "X"}.get(kind, "d"))
    if precision is not None:
        digits = "" if not precision and not value else digits.zfill(precision)
    if "#" in flags and kind == "o" and not digits.startswith("0"):
        digits = "0" + digits
    if "#" in flags and kind in "xX" and value:
        sign = "0" + kind
    return (sign + digits).encode()


def _signed(value: int, bits: int) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def _real(kind: str, value: float, flags: str, precision: int | None) -> tuple[bytes, bool]:
    minus = math.copysign(1.0, value) < 0
    sign = "-" if minus else "+" if "+" in flags else " " if " " in flags else ""
    if not math.isfinite(value):
        word = "nan" if math.isnan(value) else "inf"
        return (sign + (word.upper() if kind.isupper() else word)).encode(), False
    if kind in "aA":
        text = _hexadecimal(abs(value), precision, "#" in flags)
        return (sign + (text.upper() if kind == "A" else text)).encode(), True
    mark = "#" if "#" in flags else ""
    digits = 6 if precision is None else precision
    return (sign + f"%{mark}.{digits}{kind}" % abs(value)).encode(), True


def _hexadecimal(value: float, precision: int | None, point: bool) -> str:
    """``%a``: one digit before the point, rounded to even where a precision cuts."""
    mantissa, _, exponent = value.hex().removeprefix("0x").partition("p")
    places = 13 if precision is None else min(precision, 13)
    digits = int(mantissa.replace(".", "").ljust(14, "0"), 16)
    text = f"{round(digits / 16 ** (13 - places)):0{places + 1}x}"
    lead, tail = text[: len(text) - places], text[len(text) - places :]
    tail = tail.rstrip("0") if precision is None else tail.ljust(precision, "0")
    return f"0x{lead}{'.' if tail or point else ''}{tail}p{exponent}"


def _padded(body: bytes, flags: str, width: int, zeros: bool) -> bytes:
    if "-" in flags:
        return body.ljust(width)
    if "0" not in flags or not zeros:
        return body.rjust(width)
    head = len(_BEFORE_ZEROS.findall(body)[0])
    return body[:head] + body[head:].rjust(width - head, b"0")
