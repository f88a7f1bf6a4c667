"""The way in: from the command line to an exit code.

Exit codes: 0 good, 1 a check failed or a kernel did, 2 wrong use; 130 after Ctrl-C and 141 after a closed pipe,
as shells have it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence

from tilewise.cli.parser import parse
from tilewise.errors import Deadlock, KernelFault, LaunchTimeout, TilewiseError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (or the process's own arguments) names; return its exit code."""
    _print_anything()
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
        code: int = args.run(args)
        sys.stdout.flush()
    except (KernelFault, Deadlock, LaunchTimeout) as error:
        print(f"tilewise: error: {error}", file=sys.stderr)
        return 1
    except TilewiseError as error:
        print(f"tilewise: error: {error}", file=sys.stderr)
        return 2
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


def _print_anything() -> None:
    """Let a character that the terminal's encoding lacks come out as "?" rather than as an error."""
    if sys.stdout is None:  # closed by who started this
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
