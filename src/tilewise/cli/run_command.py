"""``tilewise run`` of a kernel out of a file: its launch, its outputs, and whether they are what was expected."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.bench.file_run import FileRun, Result, run_file
from tilewise.bench.launch_spec import open_launch
from tilewise.cli import draw
from tilewise.cli.launch_options import launch_spec, output_spec
from tilewise.devices import Device
from tilewise.launch import dim3

__all__ = ["run_kernel"]

GOOD, FAILED = 0, 1
_EDGE = 3  # rows and elements at each end of an array that are printed unless all are asked for
_CELL = 9  # characters of a number, which a few have more of


def run_kernel(args: Namespace, device: Device) -> int:
    """Run the kernel that a command line names, once, on a device."""
    words, wanted = launch_spec(args, args.target), output_spec(args)
    found = run_file(open_launch(words, device.arch), device, wanted, args.timeout)
    if args.json:
        draw.write_json("run", {"target": args.target, **found.to_dict()})
    else:
        _print(found, args.target)
    return GOOD if found.ok else FAILED


def _print(found: FileRun, target: str) -> None:
    launch, used = found.launch, found.resources
    draw.heading(f"{launch.kernel.name} of {target}, on {found.device.name}")
    cluster = f", cluster {dim3('cluster', launch.cluster)}" if launch.cluster else ""
    grid, block = dim3("grid", launch.grid), dim3("block", launch.block)
    facts = {"launch": f"grid {grid} × block {block}{cluster}"}
    if used is not None:
        facts["registers"] = str(used.registers)
        facts["shared bytes"] = f"{used.shared_bytes + launch.shared:,}"
        facts["spills"] = str(used.spills)
    draw.facts(facts | {"time": draw.duration(found.seconds), "seed": str(launch.seed)})
    for result in found.results:
        draw.line()
        _print_result(result)
    if not found.results:
        draw.line()
        draw.line("No array has changed.")
    draw.line()
    for item in found.unwritten:
        draw.line(f"note: {item}", "yellow")
    for file in found.saved:
        draw.line(f"saved {file}")
    for verdict in found.verdicts:
        draw.line(
            f"{'correct' if verdict.ok else 'WRONG'}: --arg number {verdict.argument} beside {verdict.expected}: "
            f"{verdict.message}",
            "green" if verdict.ok else "bold red",
        )


def _print_result(result: Result) -> None:
    values = result.values
    draw.line(
        f"--arg {result.word!r} (number {result.argument}), {values.dtype} of {'×'.join(map(str, values.shape))}:"
    )
    if not values.size:
        draw.line("  no elements")
        return
    missing = np.zeros(values.shape, np.bool_) if result.unwritten is None else result.unwritten
    length = values.shape[-1]
    rows, unwritten = values.reshape(-1, length), missing.reshape(-1, length)
    for number in range(len(rows)) if result.whole else _first_and_last(len(rows), 2 * _EDGE + 1):
        if number < 0:
            draw.line("  …")
            continue
        place = [int(i) for i in np.unravel_index(number, values.shape[:-1])] if values.ndim > 1 else []
        _print_row(place, rows[number], unwritten[number], result.whole, len(str(list(values.shape))))


def _first_and_last(count: int, most: int) -> list[int]:
    """Numbers below ``count``, at most ``most`` of them: -1 stands for those between the first and the last few."""
    return (
        list(range(count)) if count <= most else [*range(most - 1 - _EDGE), -1, *range(count - _EDGE, count)]
    )


def _print_row(
    place: list[int], row: npt.NDArray[Any], unwritten: npt.NDArray[np.bool_], whole: bool, label: int
) -> None:
    """Elements along the last axis, "--" for those not written; each line begins with the index of its first."""
    per_line = max((draw.width() - label - 2) // (_CELL + 1), 2 * _EDGE)
    shown = range(len(row)) if whole else _first_and_last(len(row), per_line)
    cells = ["…" if i < 0 else "--" if unwritten[i] else _number(row[i]) for i in shown]
    for start in range(0, len(cells), per_line):
        line = "".join(f" {cell:>{_CELL}}" for cell in cells[start : start + per_line])
        draw.line(f"  {[*place, shown[start]]!s:<{label}}{line}")


def _number(value: Any) -> str:
    return str(int(value)) if isinstance(value, np.integer) else f"{float(value):.5g}"
