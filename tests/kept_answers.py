"""Answers that are kept by groups: a line for each group, with how many answers it has, and hashes of some of them each.

Modules of kept answers (``kept_findings.py`` and the like) list their groups, and write and compare them with this.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

__all__ = ["Groups", "describe_group", "kept_lines", "run_command"]

Groups = Mapping[str, Callable[[], Iterable[str]]]
"""What makes the answers of each group, as texts; each is of one question, and says which."""

_TOGETHER = 12  # answers with one hash: a change is shown near where it is, and the file stays short


def describe_group(name: str, answers: Iterable[str]) -> str:
    """The line that is kept of a group."""
    listed = [*answers]
    hashes = [
        hashlib.sha256("\n".join(some).encode()).hexdigest()[:5] for some in _batched(listed, _TOGETHER)
    ]
    return f"{name}: {len(listed)} {' '.join(hashes)}"


def _batched(items: list[str], size: int) -> Iterator[tuple[str, ...]]:
    rest = iter(items)
    while some := tuple(itertools.islice(rest, size)):
        yield some


def kept_lines(golden: Path, groups: Iterable[str]) -> str:
    """The lines of a file that are of these groups."""
    wanted = {*groups}
    lines = golden.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if re.sub(r": \d+( |$).*", "", line) in wanted)


def run_command(golden: Path, groups: Groups, head: str = "") -> None:
    """Write the file anew; or print all answers of the groups that are named. What is installed decides nothing of it."""
    os.environ["TILEWISE_ASSEMBLER"] = "off"
    if names := sys.argv[1:]:
        for name in names:
            print(*groups[name](), sep="\n")
        return
    lines = [describe_group(name, make()) for name, make in groups.items()]
    golden.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
