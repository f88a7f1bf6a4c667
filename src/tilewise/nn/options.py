"""What a training run is: plain data, checked."""

from __future__ import annotations

import math
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
        integer("hidden", self.hidden, least=_WIDTH, most=_HIDDEN_MOST)
        if self.hidden % _WIDTH:
            nearest = max(_WIDTH, round(self.hidden / _WIDTH) * _WIDTH)
            raise ArgumentError("hidden", f"must be a multiple of {_WIDTH}", self.hidden, f"take {nearest}")
        integer("epochs", self.epochs, least=1)
        integer("seed", self.seed)
        if self.batch not in BATCHES:
            raise ArgumentError("batch", f"must be one of {', '.join(map(str, BATCHES))}", self.batch)
        if self.limit is not None:
            integer("limit", self.limit)
            if self.limit < self.batch:
                raise ArgumentError("limit", f"must be at least the batch, {self.batch}", self.limit)
        _check("rate", self.rate, 0.0, math.inf)
        _check("momentum", self.momentum, 0.0, 1.0)
        _check("decay", self.decay, 0.0, math.inf)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _check(name: str, value: object, least: float, below: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(name, "must be a number", value)
    if not least <= value < below:
        rule = f"must be at least {least:g} and " + (
            "finite" if below == math.inf else f"less than {below:g}"
        )
        raise ArgumentError(name, rule, value)
