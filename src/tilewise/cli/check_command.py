"""``tilewise check``: print the findings of a launch."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, field

from tilewise.bench.launch_spec import open_launch
from tilewise.bench.product import fresh_seed
from tilewise.bench.unwritten import Unwritten
from tilewise.cli import draw
from tilewise.cli.launch_options import is_file, launch_spec, rung_size, settings
from tilewise.devices.emulated import open_emulator
from tilewise.instruments.findings import Finding, at_least
from tilewise.ladder import ladder
from tilewise.launch import readable

__all__ = ["check"]

GOOD, FAILED = 0, 1
_EXAMPLE = (96, 64, 128)


@dataclass(frozen=True)
class _CheckedLaunch:
    """A checked launch and its findings; ``notes`` are no faults of this launch."""

    title: str
    order: str | int
    seed: int
    findings: list[Finding]
    notes: list[Finding] = field(default_factory=list)
    unwritten: list[Unwritten] = field(default_factory=list)


def check(args: Namespace) -> int:
    """``tilewise check``"""
    order = int(args.order) if args.order.isdecimal() else args.order
    found = _file(args, order) if is_file(args.target) else _rung(args, order)
    if args.json:
        draw.write_json(
            "check",
            {
                "target": args.target,
                "order": found.order,
                "seed": found.seed,
                "findings": [item.plain() for item in found.findings],
                "notes": [item.plain() for item in found.notes],
                "unwritten": [item.to_dict() for item in found.unwritten],
            },
        )
    else:
        _print(found)
    return FAILED if found.findings else GOOD


def _rung(args: Namespace, order: str | int) -> _CheckedLaunch:
    m, n, k = rung_size(args, args.target, _EXAMPLE)
    rung = ladder[args.target]
    seed = fresh_seed() if args.seed is None else args.seed
    found = rung.check(m, n, k, order=order, seed=seed, **settings(args.set))
    return _CheckedLaunch(f"{rung.name}, {m}×{n}×{k}", order, seed, found)


def _file(args: Namespace, order: str | int) -> _CheckedLaunch:
    launch = open_launch(launch_spec(args, args.target), open_emulator().arch)
    found, unwritten = launch.check(order, args.timeout, level="info", lenient=args.lenient)
    findings = at_least("warning", found)
    notes = [item for item in found if item not in findings]
    title = f"{readable(launch.kernel.name)} of {args.target}"
    return _CheckedLaunch(title, order, launch.seed, findings, notes, unwritten)


def _print(found: _CheckedLaunch) -> None:
    for items, style in ((found.findings, "bold red"), (found.notes, "bold")):
        for item in items:
            for i, line in enumerate(str(item).splitlines()):
                draw.line(line, style if i == 0 else "")
            draw.line()
    for note in found.unwritten:
        draw.line(f"note: {note}", "yellow")
    count, notes = len(found.findings), len(found.notes)
    what = f"{count} finding{'s' * (count != 1)}" if count else "nothing found"
    what += f", {notes} note{'s' * (notes != 1)}" if notes else ""
    missing = sum(item.count for item in found.unwritten)
    what += f", {missing:,} element{'s' * (missing != 1)} not written" if missing else ""
    style = "bold red" if count else "yellow" if found.unwritten else "green"
    draw.line(f"{found.title}, order {found.order}, seed {found.seed}: {what}", style)
