"""What a training run is: plain data, checked."""

from __future__ import annotations

import math
import numbers
import sys
from dataclasses import asdict, dataclass
from typing import Any

from tilewise.errors import ArgumentError, integer

__all__ = ["BATCHES", "CLASSES", "FEATURES", "TrainingOptions"]

FEATURES = 784  # pixels of an image
CLASSES = 10
BATCHES = (16, 32, 64)
_WIDTH = 32  # of which hidden widths are multiples: what a warp copies at once
_HIDDEN_MOST = 16_384


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """An MLP 784-H-H-H-10 and how it is trained; the same options give the same bits.

    ``limit``: take so many samples of those there are, for training and for the test each; None takes all.
    """

    hidden: int = 512
    epochs: int = 5
    batch: int = 32
    rate: float = 0.02
    momentum: float = 0.9
    decay: float = 1e-4
    limit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self._set("hidden", integer("hidden", self.hidden, least=_WIDTH, most=_HIDDEN_MOST))
        if self.hidden % _WIDTH:
            nearest = max(_WIDTH, round(self.hidden / _WIDTH) * _WIDTH)
            raise ArgumentError("hidden", f"must be a multiple of {_WIDTH}", self.hidden, f"take {nearest}")
        self._set("epochs", integer("epochs", self.epochs, least=1))
        self._set("seed", integer("seed", self.seed))
        self._set("batch", integer("batch", self.batch))
        if self.batch not in BATCHES:
            raise ArgumentError("batch", f"must be one of {', '.join(map(str, BATCHES))}", self.batch)
        if self.limit is not None:
            self._set("limit", integer("limit", self.limit, least=-sys.maxsize))
            if self.limit < self.batch:
                raise ArgumentError("limit", f"must be at least the batch, {self.batch}", self.limit)
        for name, below in (("rate", math.inf), ("momentum", 1.0), ("decay", math.inf)):
            self._set(name, _number(name, getattr(self, name), below))

    def _set(self, name: str, value: float) -> None:
        """Keep a number as Python's own, which JSON can say."""
        object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _number(name: str, value: object, below: float) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ArgumentError(name, "must be a number", value)
    try:
        number = float(value)
    except OverflowError:  # of an integer, which has no greatest
        number = math.inf
    if not 0 <= number < below:
        rule = "must be at least 0 and " + ("finite" if below == math.inf else f"less than {below:g}")
        raise ArgumentError(name, rule, value)
    return number
