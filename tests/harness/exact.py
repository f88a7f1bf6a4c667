"""Floating-point arithmetic on bit patterns by exact rational numbers: slow, and plain enough to trust."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

__all__ = ["FORMATS", "NAN", "Format", "Number", "Special", "decode", "evaluate", "integer", "round_to"]


class Format(NamedTuple):
    exponent: int
    fraction: int
    bias: int
    kind: str = "ieee"  # "ieee"; "nan" (no infinity, all ones is NaN); "finite" (neither)

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def largest(self) -> int:
        return {"ieee": self.infinity - 1, "nan": self.sign - 2, "finite": self.sign - 1}[self.kind]


FORMATS = {
    "f64": Format(11, 52, 1023),
    "f32": Format(8, 23, 127),
    "tf32": Format(8, 10, 127),
    "f16": Format(5, 10, 15),
    "bf16": Format(8, 7, 127),
    "e4m3": Format(4, 3, 7, "nan"),
    "e5m2": Format(5, 2, 15),
    "e2m3": Format(2, 3, 1, "finite"),
    "e3m2": Format(3, 2, 3, "finite"),
    "e2m1": Format(2, 1, 1, "finite"),
}


class Special(NamedTuple):
    """An infinity of some sign, or NaN: the sign 0."""

    sign: int


class Number(NamedTuple):
    value: Fraction
    negative: bool  # also of zeros
    more: bool = False  # the exact number is a little further from zero


NAN = Special(0)


@lru_cache(1 << 16)  # many instructions are tried on the same numbers
def decode(bits: int, of: Format) -> Number | Special:
    negative, size = bool(bits & of.sign), bits & (of.sign - 1)
    if size > of.largest:
        return NAN if of.kind == "nan" or size > of.infinity else Special(-1 if negative else 1)
    digits, power = size & ((1 << of.fraction) - 1), size >> of.fraction
    if power:
        digits += 1 << of.fraction
    up = max(power, 1) - of.bias - of.fraction
    value = Fraction(digits << up) if up > 0 else Fraction(digits, 1 << -up)
    return Number(-value if negative else value, negative)


def round_to(number: Number | Special, to: Format, mode: str = "rn", finite: bool = False) -> int | None:
    """The bits of the number in a format; None is NaN."""
    if isinstance(number, Special):
        if number == NAN:
            return None
        return (to.largest if finite else to.infinity) | (to.sign if number.sign < 0 else 0)
    sign = to.sign if number.negative else 0
    over, under = abs(number.value.numerator), number.value.denominator  # its size, as a quotient
    if not over:
        return sign
    power = over.bit_length() - under.bit_length()
    power -= over << max(-power, 0) < under << max(power, 0)  # 2**power ≤ size < 2**(power + 1)
    power = max(power, 1 - to.bias)
    last = power - to.fraction  # of the last digit
    whole = under << max(last, 0)
    digits, rest = divmod(over << max(-last, 0), whole)
    up = {
        "rz": False,
        "rm": number.negative and (rest > 0 or number.more),
        "rp": not number.negative and (rest > 0 or number.more),
        "rna": 2 * rest >= whole,
        "rn": 2 * rest > whole or (2 * rest == whole and (number.more or bool(digits & 1))),
    }[mode]
    result = ((power + to.bias - 1) << to.fraction) + digits + up
    if result > to.largest:
        inward = finite or mode == "rz" or mode == ("rp" if number.negative else "rm")
        result = to.largest if inward else to.infinity
    return result | sign


def _sum(a: Number | Special, b: Number | Special, mode: str) -> Number | Special:
    if isinstance(a, Special) or isinstance(b, Special):
        signs = {item.sign for item in (a, b) if isinstance(item, Special)}
        return Special(signs.pop()) if len(signs) == 1 else NAN
    total = a.value + b.value
    if not total and not (a.negative == b.negative and not a.value):
        return Number(total, mode == "rm")
    return Number(total, total < 0 or (not total and a.negative))


def _negative(a: Number | Special) -> bool:
    return a.negative if isinstance(a, Number) else a.sign < 0


def _product(a: Number | Special, b: Number | Special) -> Number | Special:
    negative = _negative(a) != _negative(b)
    if isinstance(a, Special) or isinstance(b, Special):
        nothing = NAN in (a, b) or any(isinstance(item, Number) and not item.value for item in (a, b))
        return NAN if nothing else Special(-1 if negative else 1)
    return Number(a.value * b.value, negative)


def _quotient(a: Number | Special, b: Number | Special) -> Number | Special:
    negative = _negative(a) != _negative(b)
    if NAN in (a, b) or (isinstance(a, Special) and isinstance(b, Special)):
        return NAN
    if isinstance(a, Special):
        return Special(-1 if negative else 1)
    if isinstance(b, Special):
        return Number(Fraction(0), negative)
    if not b.value:
        return Special(-1 if negative else 1) if a.value else NAN
    return Number(a.value / b.value, negative)


def _root(a: Number | Special) -> Number | Special:
    if isinstance(a, Special):
        return a if a.sign > 0 else NAN
    if a.value <= 0:
        return a if not a.value else NAN
    scale = 1200  # more digits than any result has
    number = a.value * 4**scale
    assert number.denominator == 1
    root = isqrt(number.numerator)
    return Number(Fraction(root, 2**scale), False, root * root != number)


def evaluate(operation: str, mode: str, *numbers: Number | Special) -> Number | Special:
    """add, sub, mul, div, sqrt or fma, not rounded; the mode decides the sign of an exact zero."""
    match operation:
        case "add":
            return _sum(numbers[0], numbers[1], mode)
        case "sub":
            b = numbers[1]
            flipped = Number(-b.value, not b.negative) if isinstance(b, Number) else Special(-b.sign)
            return _sum(numbers[0], flipped, mode)
        case "mul":
            return _product(numbers[0], numbers[1])
        case "div":
            return _quotient(numbers[0], numbers[1])
        case "sqrt":
            return _root(numbers[0])
    return _sum(_product(numbers[0], numbers[1]), numbers[2], mode)


def integer(value: int) -> Number:
    return Number(Fraction(value), value < 0)
