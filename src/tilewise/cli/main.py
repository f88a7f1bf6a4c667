"""The command's entry: from the command line to an exit code.

Exit codes: 0 good, 1 a check failed or a kernel did, 2 wrong use; 130 after Ctrl-C and 141 after a closed pipe,
as shells have it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence

from tilewise.cli.parser import COMMANDS, parse
from tilewise.errors import ArgumentError, Deadlock, KernelFault, LaunchTimeout, TilewiseError

__all__ = ["main"]

_ON_ONE_LINE = ("train",)  # commands whose last line is JSON, errors too


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (or the process's own arguments) names; return its exit code."""
    _print_anything()
    given = sys.argv[1:] if argv is None else argv
    try:
        code = _run(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # NOTE: the interpreter flushes once more at its end, and would complain of the same closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO):  # not of writing: a fault of ours
            raise
        print(f"tilewise: error: the output cannot be written: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _run(argv: Sequence[str]) -> int:
    """Run a command; print an error of ours, with --json as JSON too."""
    try:
        args = parse(argv)
        code: int = args.run(args)
        return code
    except TilewiseError as error:
        code = 1 if isinstance(error, KernelFault | Deadlock | LaunchTimeout) else 2
        print("\n".join([f"tilewise: error: {error}", *_notes(error)]), file=sys.stderr)
        if "--json" in argv:
            from tilewise.cli.draw import write_json, write_json_line

            write = write_json_line if argv[0] in _ON_ONE_LINE else write_json
            write(argv[0] if argv[0] in COMMANDS else "", {"error": _plain(error), "exit_code": code})
        return code


def _notes(error: TilewiseError) -> list[str]:
    """The notes that were added to an error, such as the seed of a launch."""
    return list(getattr(error, "__notes__", []))


def _plain(error: TilewiseError) -> dict[str, object]:
    """An error for JSON: its kind and message, and of a wrong argument which, the rule, and what to do."""
    plain: dict[str, object] = {"kind": type(error).__name__, "message": str(error), "notes": _notes(error)}
    if isinstance(error, ArgumentError):
        value = None if error.value is None else str(error.value)
        plain |= {"argument": error.argument, "rule": error.rule, "value": value, "fix": error.fix}
    return plain


def _print_anything() -> None:
    """Let a character that the terminal's encoding lacks come out as "?" rather than as an error."""
    if sys.stdout is None:  # closed by who started this
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
