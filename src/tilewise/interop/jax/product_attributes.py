"""What a product in compiled code is beside its arrays: plain data, which XLA keeps as one JSON text."""

from __future__ import annotations

import functools
import json
from typing import NamedTuple

from tilewise.expression import SUM

__all__ = ["ADDED", "ProductAttributes", "needs_pre"]

ADDED = ("c", "bias", "residual")
"""The arrays of a product beside its matrices, in the order of its operands."""

# Activations whose derivative is known from their own value: nothing else is kept for it.
_KNOWN_FROM_RESULT = ("relu", "tanh", "sigmoid")


class ProductAttributes(NamedTuple):
    """activation(alpha·A·B + beta·c + bias) + residual: which of it there is, and how the matrices lie."""

    arrays: tuple[str, ...] = ()  # of ADDED, those that there are
    transpose_a: bool = False  # whether A is the transpose of what lies in memory
    transpose_b: bool = False
    activation: str | None = None
    alpha: float = 1.0
    beta: float = 1.0
    keep: bool = False  # whether ``pre``, what the activation was given, is a second result
    arithmetic: str | None = None
    device: str | None = None  # where arrays in host memory are multiplied

    @property
    def is_bilinear(self) -> bool:
        """Whether it is a product and nothing else, up to a factor."""
        return not self.arrays and self.activation is None

    @property
    def changes_sums(self) -> bool:
        """Whether anything happens to the sums."""
        return not self.is_bilinear or self.alpha != 1

    @property
    def numbers(self) -> dict[str, float]:
        """The factors that the expression has."""
        every = {"alpha": self.alpha, "beta": self.beta if "c" in self.arrays else 1.0}
        return {name: value for name, value in every.items() if value != 1}

    @property
    def expression(self) -> str:
        """What happens to each sum, in the words of :func:`tilewise.epilogue`; its arrays have their own names."""
        numbers = self.numbers
        text = f"alpha * {SUM}" if "alpha" in numbers else SUM
        if "c" in self.arrays:
            text += " + beta * c" if "beta" in numbers else " + c"
        if "bias" in self.arrays:
            text += " + bias"
        if self.keep:
            text = f"keep(pre, {text})"
        if self.activation is not None:
            text = f"{self.activation}({text})"
        return f"{text} + residual" if "residual" in self.arrays else text

    def to_json(self) -> str:
        """All of it as a text, from which :meth:`from_json` makes it again."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: bytes) -> ProductAttributes:
        """What :meth:`to_json` wrote."""
        return _read(text)


@functools.lru_cache(4096)
def _read(text: bytes) -> ProductAttributes:
    found = json.loads(text)
    return ProductAttributes(**{**found, "arrays": tuple(found["arrays"])})


def needs_pre(attributes: ProductAttributes) -> bool:
    """Whether the derivative of the activation needs what it was given, beside the result."""
    known = attributes.activation is None or attributes.activation in _KNOWN_FROM_RESULT
    return not known or (attributes.activation is not None and "residual" in attributes.arrays)
