"""JAX: its arrays as views; and, loaded when asked for, products that are compiled, differentiated and mapped.

Importing this imports no JAX. ``matmul`` and ``linear`` do, when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilewise.interop.jax.jax_arrays import JaxLibrary, functions_for
from tilewise.interop.jax.xla_buffers import XlaBuffer, XlaLibrary

if TYPE_CHECKING:
    from tilewise.interop.jax.functions import linear, matmul

__all__ = ["JaxLibrary", "XlaBuffer", "XlaLibrary", "functions_for", "linear", "matmul"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.functions"), name)
    globals()[name] = value
    return value
