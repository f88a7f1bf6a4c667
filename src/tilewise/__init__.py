"""tilewise multiplies matrices on NVIDIA GPUs from Python, tile by tile.

Importing it loads nothing heavy: the compiler, the driver and their bindings come with first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewise import errors, gpus, reference
    from tilewise.devices import device
    from tilewise.devices.tensor_map import TensorMap
    from tilewise.errors import TilewiseError
    from tilewise.kernel import Kernel
    from tilewise.kernels.ladder import ladder
    from tilewise.launch import Launch
    from tilewise.multiply import matmul
    from tilewise.plan import Plan
    from tilewise.problem import Epilogue, Problem, Tile
    from tilewise.instruments.occupancy import occupancy

__version__ = "0.1.0"

__all__ = [
    "Epilogue",
    "Kernel",
    "Launch",
    "Plan",
    "Problem",
    "TensorMap",
    "Tile",
    "TilewiseError",
    "device",
    "errors",
    "gpus",
    "ladder",
    "matmul",
    "occupancy",
    "reference",
]

_HOMES = {
    "Epilogue": "problem",
    "Kernel": "kernel",
    "Launch": "launch",
    "Plan": "plan",
    "Problem": "problem",
    "TensorMap": "devices.tensor_map",
    "Tile": "problem",
    "TilewiseError": "errors",
    "device": "devices",
    "ladder": "kernels",
    "matmul": "multiply",
    "occupancy": "instruments.occupancy",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tilewise' has no attribute {name!r}")
    home = importlib.import_module(f"tilewise.{_HOMES.get(name, name)}")
    value = getattr(home, name) if name in _HOMES else home
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
