"""The operations, family by family: each module has lowerings, and enters a row for each operation."""

from __future__ import annotations

import pkgutil
from importlib import import_module

__all__ = ["enter_rows"]


def enter_rows() -> None:
    """Import every family: that enters its rows."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
