"""PyTorch: its tensors as views; and, loaded when asked for, operators, a layer and the patching of models.

Importing this imports no torch. ``operators``, ``Linear`` and ``patch`` do, when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilewise.interop.torch.tensors import TorchLibrary, keep_out_of_dynamo, operators_for

if TYPE_CHECKING:
    from tilewise.interop.torch import operators
    from tilewise.interop.torch.layers import Linear
    from tilewise.interop.torch.operators import allow_in_graph
    from tilewise.interop.torch.patching import Patch, patch

__all__ = [
    "Linear",
    "Patch",
    "TorchLibrary",
    "allow_in_graph",
    "keep_out_of_dynamo",
    "operators",
    "operators_for",
    "patch",
]

_HOMES = {"Linear": "layers", "Patch": "patching", "allow_in_graph": "operators", "patch": "patching"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES.get(name, name)}")
    value = getattr(home, name) if name in _HOMES else home
    globals()[name] = value
    return value
