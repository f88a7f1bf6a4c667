"""Branches, calls and ends: no lowering. ``analysis/`` makes them edges of the flow, and inlines calls."""

from __future__ import annotations

from tilewise.emulator.operations.registry import enter

__all__: list[str] = []

enter("bra", "exit", "ret", has_result=False, ptx="1.0")
enter("call", ptx="1.0")  # its results come first, if it has some
enter("brx.idx", has_result=False, ptx="6.0", arch="sm_30")
