"""What is measured in an epoch: plain data, which a checkpoint keeps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["EpochFigures", "read_epochs"]


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """One epoch: ``curve`` has means of the training loss, over ``steps_a_point`` steps each.

    ``loss`` and ``accuracy`` are of the test, after it; ``seconds`` of its steps alone.
    """

    epoch: int
    loss: float
    accuracy: float
    training_loss: float
    steps: int
    seconds: float
    steps_a_point: int
    curve: list[float]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_epochs(plain: object) -> list[EpochFigures]:
    """The figures of all epochs so far, of what JSON gave; a ValueError says what is wrong with them."""
    if not isinstance(plain, list):
        raise ValueError(f"epochs must be a list, not {type(plain).__name__}")
    return [_read_epoch(one, number) for number, one in enumerate(plain, 1)]


def _read_epoch(plain: object, number: int) -> EpochFigures:
    names = {field.name: field.type for field in fields(EpochFigures)}
    if not isinstance(plain, dict) or plain.keys() != names.keys():
        raise ValueError(f"epoch {number} must have {', '.join(names)} and nothing else")
    for name, kind in names.items():
        value = plain[name]
        listed = value if kind == "list[float]" and isinstance(value, list) else [value]
        if not all(_is_number(one, whole=kind == "int") for one in listed):
            raise ValueError(f"epoch {number} has a {name} of another type")
    if plain["epoch"] != number or min(plain["steps"], plain["steps_a_point"]) < 1:
        raise ValueError(f"epoch {number} must have that number, and steps")
    return EpochFigures(**plain)


def _is_number(value: object, whole: bool) -> bool:
    return isinstance(value, int if whole else int | float) and not isinstance(value, bool)
