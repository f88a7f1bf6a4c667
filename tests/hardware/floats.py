"""Floating-point numbers made from fields, for inputs that show how sums are made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.hardware.job import Array, Raw

__all__ = ["FORMATS", "Format"]


@dataclass(frozen=True)
class Format:
    """A type of floating-point numbers; ``shift`` is how far its bits lie from the register's end."""

    exponent: int
    mantissa: int
    shift: int = 0
    infinite: bool = True

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def least(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def most(self) -> int:
        return self.bias + (0 if self.infinite else 1)

    def make(self, raw: Raw, low: int, high: int, shape: tuple[int, ...], signs: bool = True) -> Array:
        """Numbers with exponents from ``low`` to ``high``, cut to what is normal, and random digits."""
        low, high = (min(max(value, self.least), self.most) for value in (low, high))
        exponents = raw.between(low, high, *shape) + self.bias
        return self.join(raw, exponents, signs)

    def join(self, raw: Raw, exponents: Array, signs: bool = True) -> Array:
        digits = raw.words(*exponents.shape) >> np.uint64(64 - self.mantissa)
        if not self.infinite:  # the largest of all is NaN
            top = exponents == (1 << self.exponent) - 1
            digits = np.where(top & (digits == (1 << self.mantissa) - 1), digits - np.uint64(1), digits)
        sign = raw.below(2, *exponents.shape).astype(np.uint64) * np.uint64(signs)
        high = sign << np.uint64(self.exponent) | exponents.astype(np.uint64)
        return (high << np.uint64(self.mantissa) | digits) << np.uint64(self.shift)

    def special(self, raw: Raw, shape: tuple[int, ...]) -> Array:
        """Zeros, infinities, NaN, and the ends of what is normal and subnormal."""
        ones = (1 << self.exponent) - 1
        found = [0, 1, (1 << self.mantissa) - 1, 1 << self.mantissa]
        if self.infinite:
            infinity = ones << self.mantissa
            found += [infinity, infinity, infinity | 1 << (self.mantissa - 1), infinity | 1, infinity - 1]
        else:
            top = (1 << (self.exponent + self.mantissa)) - 1
            found += [top, top - 1]
        sign = raw.below(2, *shape).astype(np.uint64) << np.uint64(self.exponent + self.mantissa)
        return (raw.choice(found, *shape).astype(np.uint64) | sign) << np.uint64(self.shift)


FORMATS = {
    "f16": Format(5, 10),
    "bf16": Format(8, 7),
    "tf32": Format(8, 10, shift=13),
    "f32": Format(8, 23),
    "f64": Format(11, 52),
    "e4m3": Format(4, 3, infinite=False),
    "e5m2": Format(5, 2),
}
