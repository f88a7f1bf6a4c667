"""How to multiply: the kernel, a tile for each level, stages, raster, split. Plain data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewise.errors import ArgumentError, UnknownNameError, integer
from tilewise.problem import COMPLEX, Problem, Tile
from tilewise.whole_file import replace_when_whole

__all__ = ["LEVELS", "RASTERS", "Plan"]

LEVELS = ("grid", "cluster", "block", "warp", "thread", "instruction")
RASTERS = ("row", "column", "grouped", "hilbert")
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything needed to run a problem again in the same way.

    ``tiles`` holds a tile for each level that the kernel has, from the grid down.
    """

    problem: Problem
    gpu: str
    kernel: str
    tiles: Mapping[str, Tile] = field(default_factory=dict)
    stages: int = 1
    raster: str = "row"
    split: int = 1
    parameters: Mapping[str, int | str | bool] = field(default_factory=dict)
    copies: tuple[str, ...] = ()
    """Operands that are copied to rows first, since the kernel has no form for how they lie."""
    seconds: float | None = None
    """What the cost model predicts, if it was asked."""
    bound: str = ""
    """What most of that time is spent on."""
    measured: float | None = None
    """Seconds that it took where `tilewise tune` found it the fastest."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", integer("stages", self.stages, least=1))
        object.__setattr__(self, "split", integer("split", self.split, least=1))
        if self.raster not in RASTERS:
            raise UnknownNameError("raster", self.raster, RASTERS)
        for level in self.tiles:
            if level not in LEVELS:
                raise UnknownNameError("level of a tile", level, LEVELS)
        ordered = {level: self.tiles[level] for level in LEVELS if level in self.tiles}
        object.__setattr__(self, "tiles", ordered)

    def __str__(self) -> str:
        lines = [f"{self.problem}", f"  on {self.gpu} by {self.kernel}"]
        lines += [f"  {level:<11} {tile}" for level, tile in self.tiles.items()]
        lines.append(f"  stages {self.stages}, raster {self.raster}, split {self.split}")
        if self.parameters:
            lines.append("  " + ", ".join(f"{name} {value}" for name, value in self.parameters.items()))
        if self.copies:
            form = (
                "lays out {} as real numbers first"
                if self.problem.a in COMPLEX
                else "copies {} to rows first"
            )
            lines.append("  " + form.format(" and ".join(self.copies)))
        if self.seconds is not None:
            rate = self.problem.flops / self.seconds / 1e12
            lines.append(
                f"  predicted {self.seconds * 1e6:,.1f} µs, {rate:,.1f} TFLOP/s, bound by {self.bound}"
            )
        if self.measured is not None:
            lines.append(f"  measured {self.measured * 1e6:,.1f} µs, the fastest of the measured plans")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "problem": self.problem.to_dict(),
            "gpu": self.gpu,
            "kernel": self.kernel,
            "tiles": {level: [tile.m, tile.n, tile.k] for level, tile in self.tiles.items()},
            "stages": self.stages,
            "raster": self.raster,
            "split": self.split,
            "parameters": dict(self.parameters),
            "copies": list(self.copies),
            "seconds": self.seconds,
            "bound": self.bound,
            "measured": self.measured,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """The inverse of :meth:`to_dict`; says which field is missing, unknown or of another format."""
        if data.get("format") != _FORMAT:
            raise ArgumentError("plan", f"must be of format {_FORMAT}", data.get("format"), "make it again")
        for name in data:
            if name != "format" and name not in cls.__dataclass_fields__:
                raise UnknownNameError("field of a plan", name, cls.__dataclass_fields__)
        for name in ("problem", "gpu", "kernel"):
            if name not in data:
                raise ArgumentError("plan", f"must have the field {name!r}")
        rest = {name: value for name, value in data.items() if name not in ("format", "problem", "tiles")}
        rest["copies"] = tuple(rest.get("copies", ()))
        try:
            tiles = {level: Tile(*sizes) for level, sizes in data.get("tiles", {}).items()}
            return cls(problem=Problem.from_dict(data["problem"]), tiles=tiles, **rest)
        except (TypeError, AttributeError) as error:
            raise ArgumentError("plan", f"cannot be read: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON: whole or not at all, so that a reader never sees half of one."""
        target = Path(path)
        text = json.dumps(self.to_dict(), indent=2) + "\n"
        try:
            with replace_when_whole(target) as file:
                file.write(text.encode())
        except OSError as error:
            raise ArgumentError("path", f"cannot be written: {error.strerror}", str(target)) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that :meth:`save` wrote."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ArgumentError("path", f"cannot be read: {error.strerror}", str(path)) from None
        except ValueError as error:
            raise ArgumentError("path", f"must hold a plan as JSON: {error}", str(path)) from None
        if not isinstance(data, dict):
            raise ArgumentError("path", "must hold a plan as a JSON object", str(path))
        return cls.from_dict(data)
