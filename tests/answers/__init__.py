"""What calls answer, systematically: results, refusals and descriptions, as they are kept in ``golden/answers``.

A subject is a module here: lines of Python, each of which stands for as many calls as its words in ``«one|another»``
make, and the names that they use. ``python -m tests.answers`` writes the files anew, which
``nothing/test_answers.py`` compares: do so after a change that is meant to change an answer, and look at the difference.
``python -m tests.answers SUBJECT TEXT`` prints every call of the lines that have the text, with its whole answer.

An answer that is short is kept as it is; of long ones there is a hash, and how many there are.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.answers.shown import show
from tilewise.errors import TilewiseError

__all__ = [
    "COMMAND",
    "FOLDER",
    "SUBJECTS",
    "answers_of",
    "describe_line",
    "expand_line",
    "file_of",
    "subject",
]

COMMAND = "python -m tests.answers"
FOLDER = Path(__file__).parent.parent / "golden" / "answers"
SUBJECTS = (
    "arguments", "arrays", "call_stub", "calls_made_ready", "choices", "commands", "driver_calls", "epilogues",
    "explanations", "fitting", "host_launches", "kernels", "other_libraries", "own_kernels", "panels", "plans", "products",
    "tensor_maps", "tensor_transforms", "tensors", "toolchain", "torch_modules", "traced", "training",
)  # fmt: skip
_SHORT = 360  # characters of a line's answers that are kept whole
_WIDE = 110  # characters of a line that say which it is
_HEAD = 60  # characters that a long answer begins with
_LONGEST = 400  # of one that is the only one of its line


def file_of(name: str) -> Path:
    """Where the answers of a subject are kept."""
    return FOLDER / f"{name}.txt"


def expand_line(line: str) -> list[str]:
    """The calls that a line stands for: with each of the words in «…|…»."""
    pieces = re.split(r"(«[^«»]*»)", line)
    choices = [piece[1:-1].split("|") if piece.startswith("«") else [piece] for piece in pieces]
    return ["".join(one) for one in itertools.product(*choices)]


def answers_of(line: str, names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each call of a line, and its answer; of an error its kind, and of one of ours the words."""
    for call in expand_line(line):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                answer = show(eval(call, {**names}))
        except TilewiseError as error:
            answer = show(error)
        except Exception as error:  # whose words are Python's or a library's, and change with it
            answer = type(error).__name__
        yield call, answer


def describe_line(line: str, names: Mapping[str, Any]) -> str:
    """A line and its answers: equal ones in a row once, and of what is long a hash."""
    found = [answer for _, answer in answers_of(line, names)]
    kept = [(answer, len(list(same))) for answer, same in itertools.groupby(found)]
    whole = "\n".join(f"    {answer}{f'  ×{count}' if count > 1 else ''}" for answer, count in kept)
    if len(whole) > (_SHORT if len(kept) > 1 else _LONGEST):
        hashed = hashlib.sha256("\n".join(found).encode()).hexdigest()[:8]
        head = (
            f"{found[0].partition('⏎')[0][:_HEAD]}…"
            if len(found) == 1
            else f"{len(found)} answers, {len(set(found))} different"
        )
        whole = f"    [{head}, {hashed}]"
    shown = line if len(line) <= _WIDE else f"{line[:_WIDE]}…"
    return f"{shown}\n{whole}"


def subject(name: str) -> tuple[list[str], Mapping[str, Any]]:
    """The lines of a subject, and the names that they use."""
    module = importlib.import_module(f"tests.answers.{name}")
    lines = [line for line in module.LINES.strip().splitlines() if line and not line.startswith("#")]
    return lines, vars(module)
