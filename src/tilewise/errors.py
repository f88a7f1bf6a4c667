"""Every error that tilewise raises, in one tree.

TilewiseError
├── ArgumentError          a call that breaks a rule: which argument, which rule, which value, what to do
│   ├── UnknownNameError   a name that is not in a table; suggests the nearest
│   └── LaunchError        a launch that no device of the kind could run
├── CompileError           the CUDA C++ does not compile: file, line, source text, caret
│   ├── ArchError          the source needs another arch than the one it was compiled for
│   └── PtxError           a PTX text that cannot be read, or an instruction that is not supported
├── DeviceError            the driver refused or failed
│   ├── DeviceUnavailable  there is no such device here
│   ├── KernelFault        a kernel did what it must not: where, and which lines
│   ├── Deadlock           no warp of a block can go on: who waits for what
│   └── LaunchTimeout      a launch took longer than it was given
└── ToolError              a program or library that tilewise builds on is missing or broken
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "ArchError",
    "ArgumentError",
    "CompileError",
    "Deadlock",
    "DeviceError",
    "DeviceUnavailable",
    "KernelFault",
    "LaunchError",
    "LaunchTimeout",
    "PtxError",
    "TilewiseError",
    "ToolError",
    "UnknownNameError",
    "integer",
    "rename_arguments",
]


_OVERLAPPED = re.compile(r"(?<=^must not overlap )\w+$")  # the other argument that a rule names


class TilewiseError(Exception):
    """The root: catch this to catch everything that tilewise raises on purpose."""


class ArgumentError(TilewiseError, ValueError):
    """A call that breaks a rule.

    The message is one line: the argument, the rule, the value that broke it, and what to do.
    """

    def __init__(self, argument: str, rule: str, value: object = None, fix: str = "") -> None:
        self.argument, self.rule, self.value, self.fix = argument, rule, value, fix
        got = "" if value is None else f", not {_short(value)}"
        advice = f"; {fix}" if fix else ""
        super().__init__(f"{argument} {rule}{got}{advice}")


@contextlib.contextmanager
def rename_arguments(names: Mapping[str, str]) -> Iterator[None]:
    """Errors about an argument that the caller gave by another name have that name."""
    try:
        yield
    except ArgumentError as error:
        argument = names.get(error.argument, error.argument)
        rule = _OVERLAPPED.sub(lambda found: names.get(found[0], found[0]), error.rule)
        if type(error) is not ArgumentError or (argument, rule) == (error.argument, error.rule):
            raise
        raise ArgumentError(argument, rule, error.value, error.fix) from None


class UnknownNameError(ArgumentError, LookupError):
    """A name that is not in a table of names."""

    def __init__(self, argument: str, name: object, known: Iterable[str]) -> None:
        known = list(known)
        super().__init__(argument, "is not known", None, _nearest(str(name), known))
        self.value = name
        self.args = (f"{argument} {_short(name)} is not known{self._advice()}",)

    def _advice(self) -> str:
        return f"; {self.fix}" if self.fix else ""


class LaunchError(ArgumentError):
    """A launch that no device of the kind could run: too many threads, too much shared memory."""


class CompileError(TilewiseError):
    """The CUDA C++ does not compile. The message shows the user's line with a caret."""


class ArchError(CompileError, ValueError):
    """The source uses what the arch does not have, or the arch is not known to the compiler."""


class PtxError(CompileError):
    """A PTX text that cannot be read, or that uses what is not supported.

    Names its line, and ``source``, the line of the CUDA source that it came from, where that is known.
    """

    def __init__(self, line: int, what: str, source: int = 0) -> None:
        self.line, self.what, self.source = line, what, source
        origin = f" (from line {source} of the CUDA source)" if source else ""
        super().__init__(f"PTX line {line}{origin}: {what}")


class DeviceError(TilewiseError, RuntimeError):
    """The driver refused or failed; the message carries the driver's own name for it."""


class DeviceUnavailable(DeviceError):
    """There is no such device here."""


class KernelFault(DeviceError):
    """A kernel did what it must not: out of bounds, misaligned, a trap. Names block, thread and lines.

    ``details`` has the same one by one, where the emulator ran the kernel: see ``emulator/running/fault_report.py``.
    """

    details: object = None


class Deadlock(DeviceError):
    """No warp of a block can go on. Says who waits for what."""


class LaunchTimeout(DeviceError):
    """A launch took longer than it was given."""


class ToolError(TilewiseError, RuntimeError):
    """A program or library that tilewise builds on is missing or broken."""


def integer(argument: str, value: object, least: int = 0, most: float = math.inf) -> int:
    """Return ``value`` as an int, or raise an ArgumentError that names ``argument``.

    Takes anything with ``__index__`` (NumPy integers too) but no bool and no float.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(argument, "must be an integer", value)
    try:
        number = int(value.__index__())
    except TypeError:  # a NumPy array has the method and cannot answer
        raise ArgumentError(argument, "must be an integer", value) from None
    if number < least:
        raise ArgumentError(argument, f"must be at least {least:,}", number)
    if number > most:
        raise ArgumentError(argument, f"must be at most {most:,}", number)
    return number


def _nearest(name: str, known: list[str]) -> str:
    folded = {item.lower(): item for item in known}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(folded[item]) for item in close) + "?"
    within = [item for item in known if name and name.lower() in item.lower()][:3]
    if within:
        return "did you mean " + " or ".join(map(repr, within)) + "?"
    listed = ", ".join(repr(item) for item in known[:12])
    more = f" and {len(known) - 12} more" if len(known) > 12 else ""
    return f"known: {listed}{more}" if known else "none is known"


def _short(value: object, limit: int = 80) -> str:
    try:
        text = repr(value)
    except Exception:  # an argument's own __repr__ may fail; the error about it must not
        text = f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
