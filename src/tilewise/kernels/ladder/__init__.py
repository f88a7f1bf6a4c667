"""The ladder: from one thread to the hardware's limit, a rung at a time."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tilewise.errors import UnknownNameError
from tilewise.kernels.rung import Rung

__all__ = ["Ladder", "ladder"]


class Ladder(Mapping[str, Rung]):
    """The rungs by name, in the order they are climbed: ``ladder["04_tiled"](a, b)``.

    A rung is read when it is first asked for.
    """

    def __init__(self) -> None:
        folder = Path(__file__).parent
        self._names = sorted(file.stem.removeprefix("rung_") for file in folder.glob("rung_*.cu"))
        self._rungs: dict[str, Rung] = {}

    def __getitem__(self, name: str) -> Rung:
        if name not in self._names:
            raise UnknownNameError("rung", name, self._names)
        if name not in self._rungs:
            self._rungs[name] = importlib.import_module(f"tilewise.kernels.ladder.rung_{name}").RUNG
        return self._rungs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __repr__(self) -> str:
        return f"<tilewise.ladder: {', '.join(self._names)}>"


ladder = Ladder()
