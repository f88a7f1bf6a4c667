"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["replace_when_whole"]


@contextmanager
def replace_when_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which gets its name, and takes the place of one that has it, when all is written.

    NOTE: the umask says who may read it, as of any other file; what ``tempfile`` makes is its owner's alone.
    """
    # A short name, however long the file's own is.
    temporary = path.parent / f".tilewise-{secrets.token_hex(8)}"
    try:
        with open(temporary, "xb") as opened:
            yield opened
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
