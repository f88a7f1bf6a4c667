"""What is taken where it is not given: the defaults of all functions, methods and fields that modules offer.

``python -m tests.defaults`` writes ``tests/golden/defaults.txt`` anew, which ``tests/nothing/test_package.py`` compares.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import tilewise

GOLDEN = Path(__file__).parent / "golden" / "defaults.txt"
COMMAND = "python -m tests.defaults"
_LONG = 300  # characters
# What needs packages that tilewise does without.
_ELSEWHERE = ("tilewise.interop.torch", "tilewise.interop.jax", "tilewise.bench.torch_training")


def list_defaults() -> str:
    """A line for each function with defaults, and for each record: whether it can change, and its fields' defaults."""
    lines: list[str] = []
    for found in pkgutil.walk_packages(tilewise.__path__, "tilewise."):
        if not found.name.startswith(_ELSEWHERE) and not found.name.endswith("__main__"):
            lines += _of_module(importlib.import_module(found.name))
    return "\n".join(lines) + "\n"


def _of_module(module: ModuleType) -> Iterator[str]:
    home = module.__name__.removeprefix("tilewise.")
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue  # imported from where it is at home
        if dataclasses.is_dataclass(value) and isinstance(value, type):
            yield _of_record(f"{home}.{name}", value)
        offered = name in getattr(module, "__all__", ())
        if offered and inspect.isfunction(value):
            yield from _of_function(f"{home}.{name}", value)
        elif offered and isinstance(value, type):
            for method, what in vars(value).items():
                made = dataclasses.is_dataclass(value) and method == "__init__"
                function = what.__func__ if isinstance(what, classmethod | staticmethod) else what
                if inspect.isfunction(function) and not made:
                    yield from _of_function(f"{home}.{name}.{method}", function)


def _of_function(name: str, function: FunctionType) -> Iterator[str]:
    given = inspect.signature(function).parameters.values()
    listed = [f"{one.name}={_shown(one.default)}" for one in given if one.default is not one.empty]
    if listed:
        yield f"{name}({', '.join(listed)})"


def _of_record(name: str, record: type) -> str:
    how = [] if record.__dataclass_params__.frozen else ["mutable"]  # type: ignore[attr-defined]
    how += ["slots"] if "__slots__" in vars(record) else []
    how += [] if record.__dataclass_params__.eq else ["equal to itself alone"]  # type: ignore[attr-defined]
    listed = []
    for one in dataclasses.fields(record):
        if one.default is not dataclasses.MISSING:
            listed.append(f"{one.name}={_shown(one.default)}")
        elif one.default_factory is not dataclasses.MISSING:
            listed.append(f"{one.name}={_shown(one.default_factory())}")
    return f"{name} {' '.join(how)}: {', '.join(listed)}".replace(" :", ":").rstrip(" :")


def _shown(value: object) -> str:
    """A default in a line: of what is long, or shows itself by its address, its name or its kind."""
    text = getattr(value, "__qualname__", None) or repr(value)
    return f"<{type(value).__name__}>" if re.search(r" at 0x|\n", text) or len(text) > _LONG else text


if __name__ == "__main__":
    GOLDEN.write_text(list_defaults(), encoding="utf-8")
