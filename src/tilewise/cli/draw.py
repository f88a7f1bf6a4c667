"""What the terminal sees: tables, a progress bar, JSON."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from tilewise.bench.progress import Progress, silent

__all__ = [
    "SCHEMA",
    "amount",
    "duration",
    "facts",
    "heading",
    "line",
    "progress",
    "table",
    "width",
    "write_json",
    "write_result",
]

SCHEMA = 1  # of what --json prints
_WIDE = 400  # columns where there is no terminal: nobody wants a file wrapped at 80


def _console() -> Console:
    terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, width=None if terminal else _WIDE, highlight=False)


def line(text: str = "", style: str = "") -> None:
    """Print one line as it is; a terminal wraps it."""
    # NOTE: rich ends the process when a pipe closes; what goes into a pipe goes past it.
    if sys.stdout.isatty():
        _console().print(Text(text, style), soft_wrap=True)
    else:
        print(text)


def heading(text: str) -> None:
    """Print a line that others belong under."""
    line(text, "bold")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table; the columns named in ``right`` are set flush right."""
    drawn = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, show_edge=False)
    for name in columns:
        drawn.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell, _style(cell)) for cell in row))
    _print_trimmed(drawn)


def facts(pairs: Mapping[str, str]) -> None:
    """Print names and what they are, the names in a column."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column()
    drawn.add_column(overflow="fold")
    for name, value in pairs.items():
        drawn.add_row(f"  {name}", Text(value))
    _print_trimmed(drawn)


def _print_trimmed(drawn: Table) -> None:
    """Without the spaces that fill every line up to the table's width."""
    console = _console()
    if sys.stdout.isatty():
        console.print(drawn)
        return
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
        if seconds * factor >= 1:
            return (
                f"{seconds * factor:.3g} {unit}"
                if seconds * factor < 1000
                else f"{seconds * factor:.0f} {unit}"
            )
    return f"{seconds * 1e9:.0f} ns"


def amount(count: int) -> str:
    """A number of bytes in the unit that suits it."""
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "bytes" else f"{value:.1f} {units[0]}"


@contextlib.contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A bar on a terminal, gone when the work is; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield silent
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

    docs/json.md says what is in it; :data:`SCHEMA` changes whenever a program that reads it would have to.
    """
    whole = {"schema": SCHEMA, "command": command, **data}
    print(json.dumps(_finite(whole), indent=2, ensure_ascii=False))


def write_result(
    args: Namespace, result: dict[str, Any], markdown: Callable[[dict[str, Any]], str] | None = None
) -> bool:
    """Write a measurement wherever it was asked for; False where a person waits for it."""
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
