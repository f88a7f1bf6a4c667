"""The CUDA sources, each beside its spec, and the catalogue of them by name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tilewise.errors import UnknownNameError
from tilewise.kernels.gemm import FAMILIES
from tilewise.kernels.spec import KernelSpec

__all__ = ["KERNELS", "RUNGS", "Catalogue"]

_FOLDER = Path(__file__).parent


class Catalogue(Mapping[str, KernelSpec]):
    """Specs by name, in the order of their names. A spec is read when it is first asked for."""

    def __init__(self, what: str, modules: Mapping[str, str]) -> None:
        self._what, self._modules = what, modules
        self._specs: dict[str, KernelSpec] = {}

    def __getitem__(self, name: str) -> KernelSpec:
        if name not in self._modules:
            raise UnknownNameError(self._what, name, self._modules)
        if name not in self._specs:
            self._specs[name] = importlib.import_module(self._modules[name]).SPEC
        return self._specs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules


def _rungs() -> dict[str, str]:
    files = sorted((_FOLDER / "ladder").glob("rung_*.cu"))
    return {file.stem.removeprefix("rung_"): f"tilewise.kernels.ladder.{file.stem}" for file in files}


def _families() -> dict[str, str]:
    return {name: f"tilewise.kernels.gemm.{name}" for name in FAMILIES}


RUNGS = Catalogue("rung", _rungs())
KERNELS = Catalogue("kernel", {**_families(), **_rungs()})
