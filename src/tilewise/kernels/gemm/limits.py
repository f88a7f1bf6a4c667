"""What the production kernels share: how much a launch takes, and settings that sources have by their names."""

from __future__ import annotations

from tilewise.errors import ArgumentError, LaunchError
from tilewise.kernels.spec import AS_IT_IS, SCALED_LINES, Settings
from tilewise.operands import Operands
from tilewise.problem import EIGHT_BITS, FLOAT8, INTEGERS

__all__ = [
    "BYTE_SETTINGS",
    "STACK_AXES",
    "define_bytes",
    "name_defines",
    "refuse_blocks",
    "refuse_sizes",
    "refuse_types",
    "scales_terms",
]

STACK_AXES = 2  # of a stack that one launch takes
_MOST_BLOCKS = 2**31 - 1
BYTE_SETTINGS: dict[str, tuple[int | str, ...]] = {
    "b_element": (AS_IT_IS, *FLOAT8),  # of B, where it is the other float8
    "scales_a": SCALED_LINES,
    "scales_b": SCALED_LINES,
}
"""Of kernels that multiply 8 bits: what operands decide."""


def scales_terms(settings: Settings) -> bool:
    """Whether operands have scales that differ along K."""
    return bool(settings["scales_a"] or settings["scales_b"])


def refuse_sizes(operands: Operands, kernel: str, most: int = 2**31) -> LaunchError | None:
    """Refuse sizes that a kernel's coordinates do not reach."""
    for argument, size in zip("mnk", operands.sizes, strict=True):
        if size >= most:
            return LaunchError(argument, f"must be less than {most:,} for kernel {kernel}", f"{size:,}")
    return None


def refuse_types(operands: Operands, settings: Settings) -> ArgumentError | None:
    """Refuse results that no sums of the elements become. Integers are their sums; only to those of int8 may something
    happen."""
    element, result = str(settings["element"]), str(settings["result"])
    if element == "int8" and not operands.epilogue.is_plain:
        if result in INTEGERS.values():
            return ArgumentError("result", "must be no integer of 32 bits with an epilogue", result)
        if operands.epilogue.summed:
            rule = "must add up no columns or rows of int8"
            return ArgumentError("epilogue", rule, operands.epilogue.expression)
    elif element in INTEGERS:
        if result != INTEGERS[element]:
            return ArgumentError("result", f"must be {INTEGERS[element]!r} for {element}", result)
        if not operands.epilogue.is_plain:
            return ArgumentError("epilogue", "must be left out for integers", operands.epilogue.expression)
    elif result in EIGHT_BITS and element == "float64":
        return ArgumentError("result", "must be no type of 8 bits of float64", result)
    elif result in INTEGERS.values():
        return ArgumentError("result", f"must be no integer of {element}", result)
    return None


def refuse_blocks(count: int) -> LaunchError | None:
    """Refuse more blocks than a grid has."""
    if count <= _MOST_BLOCKS:
        return None
    return LaunchError("batch", f"must make at most {_MOST_BLOCKS:,} blocks", f"{count:,}")


def name_defines(settings: Settings, *names: str) -> dict[str, object]:
    """Settings whose values a source has under their own names, in capitals."""
    return {name.upper(): settings[name] for name in names}


def define_bytes(settings: Settings) -> dict[str, object]:
    """What a source has of :data:`BYTE_SETTINGS`, if they are not as usual."""
    found: dict[str, object] = {}
    if settings["b_element"] != AS_IT_IS:
        found["B_ELEMENT"] = settings["b_element"]
    if scales_terms(settings):
        found |= name_defines(settings, "scales_a", "scales_b")
    return found
