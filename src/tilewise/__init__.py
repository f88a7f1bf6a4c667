"""tilewise multiplies matrices on NVIDIA GPUs from Python, tile by tile.

Importing it loads nothing heavy: the compiler, the driver and their bindings come with first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewise import errors, gpus, nn, reference
    from tilewise.batched_matmul import batched_matmul
    from tilewise.bench.tune import tune, tuning
    from tilewise.devices import device
    from tilewise.devices.tensor_map import TensorMap
    from tilewise.epilogue import epilogue
    from tilewise.errors import TilewiseError
    from tilewise.explain.explain import explain
    from tilewise.grouped_matmul import grouped_matmul
    from tilewise.instruments.occupancy import occupancy
    from tilewise.kernel import Kernel
    from tilewise.ladder import ladder
    from tilewise.launch import Launch
    from tilewise.linear import linear
    from tilewise.matmul import matmul
    from tilewise.module import Module
    from tilewise.optimisers import adam, sgd
    from tilewise.planner import Plan, plan
    from tilewise.problem import Epilogue, Problem, Tile
    from tilewise.quantize import Quantized, quantize
    from tilewise.split_float32 import SplitFloat32, split_float32
    from tilewise.verbs import check, profile, record

__version__ = "0.1.0"

__all__ = [
    "Epilogue",
    "Kernel",
    "Launch",
    "Module",
    "Plan",
    "Problem",
    "Quantized",
    "SplitFloat32",
    "TensorMap",
    "Tile",
    "TilewiseError",
    "adam",
    "batched_matmul",
    "check",
    "device",
    "epilogue",
    "errors",
    "explain",
    "gpus",
    "grouped_matmul",
    "ladder",
    "linear",
    "matmul",
    "nn",
    "occupancy",
    "plan",
    "profile",
    "quantize",
    "record",
    "reference",
    "sgd",
    "split_float32",
    "tune",
    "tuning",
]

_HOMES = {
    "Epilogue": "problem",
    "Kernel": "kernel",
    "Launch": "launch",
    "Module": "module",
    "Plan": "plan",
    "Problem": "problem",
    "Quantized": "quantize",
    "SplitFloat32": "split_float32",
    "TensorMap": "devices.tensor_map",
    "Tile": "problem",
    "TilewiseError": "errors",
    "adam": "optimisers",
    "batched_matmul": "batched_matmul",
    "check": "verbs",
    "device": "devices",
    "epilogue": "epilogue",
    "explain": "explain.explain",
    "grouped_matmul": "grouped_matmul",
    "ladder": "ladder",
    "linear": "linear",
    "matmul": "matmul",
    "occupancy": "instruments.occupancy",
    "plan": "planner",
    "profile": "verbs",
    "quantize": "quantize",
    "record": "verbs",
    "sgd": "optimisers",
    "split_float32": "split_float32",
    "tune": "bench.tune",
    "tuning": "bench.tune",
}


class _Package(ModuleType):
    """The package. A function that has its module's name is not replaced by the module once that is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tilewise' has no attribute {name!r}")
    home = importlib.import_module(f"tilewise.{_HOMES.get(name, name)}")
    value = getattr(home, name) if name in _HOMES else home
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
