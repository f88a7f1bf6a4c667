"""What can go wrong while the yardstick runs a launch.  One root, so that a test may catch them all."""

from __future__ import annotations


class YardstickError(Exception):
    """Root of everything the yardstick raises on purpose."""


class SyntaxFault(YardstickError):
    """The text is not PTX that the parser knows."""


class Unsupported(YardstickError):
    """An instruction, modifier or operand that the yardstick does not define; names the PTX line."""


class Fault(YardstickError):
    """The program did something wrong: a bad address, a trap, a barrier misused; names line and thread."""


class Deadlock(YardstickError):
    """Threads remain and none can go on."""


class LimitReached(YardstickError):
    """The instruction limit was spent, so the program probably never ends."""
