"""Printing to the terminal: tables, a progress bar, JSON."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from tilewise.bench.progress import Progress, ignore_progress

__all__ = [
    "SCHEMA",
    "amount",
    "duration",
    "facts",
    "fits",
    "heading",
    "line",
    "progress",
    "table",
    "width",
    "write_json",
    "write_json_line",
    "write_result",
]

SCHEMA = 1  # of what --json prints
_INSET = 4  # of what stands below the first cell of a row
_WIDE = 400  # columns where there is no terminal: a file should not be wrapped at 80


def _console() -> Console:
    terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, width=None if terminal else _WIDE, highlight=False)


def line(text: str = "", style: str = "", hanging: int = 0) -> None:
    """Print text as it is; a line that a terminal is too narrow for is broken between words.

    What follows the break stands ``hanging`` characters further in.
    """
    # NOTE: rich ends the process when a pipe closes; what goes into a pipe goes past it.
    if not sys.stdout.isatty():
        print(text)
        return
    console = _console()
    for whole in text.split("\n"):
        for part in _broken(whole, console.width, hanging):
            console.print(Text(part, style), soft_wrap=True)


def fits(text: str) -> bool:
    """Whether the lines of a text have room where they are printed."""
    return not sys.stdout.isatty() or max(map(len, text.splitlines()), default=0) <= width()


def _broken(text: str, most: int, hanging: int) -> list[str]:
    """A line as lines of at most ``most`` characters, broken between words where there are any."""
    if len(text) <= most:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text,
        most,
        subsequent_indent=indent + " " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def heading(text: str) -> None:
    """Print a line that others belong under."""
    line(text, "bold")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table; the columns named in ``right`` are set flush right.

    No word is broken. A terminal that is too narrow for the longest words side by side gets the first cell of each row
    on a line of its own, and the others below it.
    """
    most = width() if sys.stdout.isatty() else _WIDE
    for gap in (2, 1):
        sizes = _column_sizes(columns, rows, right, most - gap * (len(columns) - 1))
        if sizes is not None:
            _print_cells([columns], sizes, gap, columns, right, heading=True)
            _print_cells(rows, sizes, gap, columns, right)
            return
    below = columns[1:]
    sizes = (
        _column_sizes(below, [row[1:] for row in rows], right, most - len(below) - _INSET) if below else None
    )
    if sizes is not None:
        _print_cells([below], sizes, 1, below, right, heading=True, inset=_INSET)
    for first, *others in rows:
        line(first)
        if sizes is not None:
            _print_cells([others], sizes, 1, below, right, inset=_INSET)
        else:
            cells = zip(below, others, strict=True)
            named = [f"{name}: {cell}" if name else cell for name, cell in cells if cell]
            if named:
                line("  " + ", ".join(named), hanging=2)


def _print_cells(
    rows: Sequence[Sequence[str]],
    sizes: Sequence[int],
    gap: int,
    columns: Sequence[str],
    right: Sequence[str],
    *,
    heading: bool = False,
    inset: int = 0,
) -> None:
    """Rows of a table, each cell as many lines as it takes; with ``heading`` a rule below them, on a terminal."""
    for row in rows:
        wrapped = [
            textwrap.wrap(cell, max(size, 1), break_on_hyphens=False) or [""]
            for cell, size in zip(row, sizes, strict=True)
        ]
        for number in range(max(map(len, wrapped))):
            shown = Text(" " * inset)
            for i, (cell, parts) in enumerate(zip(row, wrapped, strict=True)):
                part = parts[number] if number < len(parts) else ""
                side = part.rjust if columns[i] in right else part.ljust
                shown.append(" " * gap * bool(i)).append(side(sizes[i]), "bold" if heading else _style(cell))
            shown.rstrip()
            _print_text(shown)
    if heading and sys.stdout.isatty():
        _print_text(Text(" " * inset + "─" * (sum(sizes) + gap * (len(sizes) - 1))))


def _print_text(text: Text) -> None:
    if sys.stdout.isatty():
        _console().print(text, soft_wrap=True)
    else:
        print(text.plain)


def _column_sizes(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str], most: int
) -> list[int] | None:
    """How wide each column is, together at most ``most``; None where even the longest words have no room."""
    wanted, least = [], []
    for i, name in enumerate(columns):
        cells = [row[i] for row in rows]
        wanted.append(max(map(len, [name, *cells])))
        # Numbers stay whole.
        parts = cells if name in right else [word for cell in cells for word in cell.split()]
        least.append(max([len(part) for part in (*name.split(), *parts)], default=0))
    spare, missing = most - sum(least), sum(wanted) - sum(least)
    if spare < 0:
        return None
    if missing <= spare:
        return wanted
    return [size + (more - size) * spare // missing for size, more in zip(least, wanted, strict=True)]


def facts(pairs: Mapping[str, str]) -> None:
    """Print names and what they are, the names in a column."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs.items():
        drawn.add_row(f"  {name}", Text(value))
    _print_trimmed(drawn)


def _print_trimmed(drawn: Table) -> None:
    """Without the spaces that fill every line up to the table's width."""
    console = _console()
    with console.capture() as captured:
        console.print(drawn)
    sys.stdout.write("".join(f"{text.rstrip()}\n" for text in captured.get().splitlines()))


def _style(cell: str) -> str:
    if cell.startswith("yes") or cell == "ok":
        return "green"
    return "bold red" if cell.startswith(("NO", "WRONG", "failed", "over", "under")) else ""


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        count = seconds * factor
        if count >= 1:  # NOTE: three digits of 999.5 and more would be 1e+03
            return f"{count:.3g} {unit}" if count < 999.5 else f"{count:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def amount(count: int) -> str:
    """A number of bytes in the unit that suits it."""
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while round(value, 1) >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "bytes" else f"{value:.1f} {units[0]}"


@contextlib.contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A bar on a terminal, gone when the work is; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield ignore_progress
        return
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield show


def width() -> int:
    """Columns that a line has: the terminal's, or 80 where there is none."""
    return _console().width if sys.stdout.isatty() else 80


def write_json(command: str, data: Mapping[str, Any]) -> None:
    """Print what a command found as JSON that every reader takes: a number that is not finite becomes a text.

    docs/command.md says what is in it; :data:`SCHEMA` changes whenever a program that reads it would have to.
    """
    whole = {"schema": SCHEMA, "command": command, **data}
    print(json.dumps(_finite(whole), indent=2, ensure_ascii=False))


def write_json_line(command: str, data: Mapping[str, Any]) -> None:
    """The same on one line."""
    whole = {"schema": SCHEMA, "command": command, **data}
    print(json.dumps(_finite(whole), ensure_ascii=False))


def write_result(
    args: Namespace, result: dict[str, Any], markdown: Callable[[dict[str, Any]], str] | None = None
) -> bool:
    """Write a measurement to a file, as JSON or as Markdown, as the options say; False if a table has to be printed."""
    if args.out:
        Path(args.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if args.json:
        write_json("bench", {"measured": args.what, "result": result})
    elif args.markdown and markdown is not None:
        print(markdown(result), end="")
    return bool(args.json or args.markdown)


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(item) for item in data]
    return data
