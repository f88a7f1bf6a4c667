"""``tilewise check``: what is wrong with a launch."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace

from tilewise.bench.given import open_launch
from tilewise.cli import draw
from tilewise.cli.words import file_words, is_file, rung_size, settings
from tilewise.devices.emulated import open_emulator
from tilewise.instruments.findings import Finding
from tilewise.ladder import ladder

__all__ = ["check"]

GOOD, FAILED = 0, 1
_EXAMPLE = (96, 64, 128)


@dataclass(frozen=True)
class _Checked:
    """What was checked, and what was found."""

    title: str
    order: str | int
    findings: list[Finding]


def check(args: Namespace) -> int:
    """``tilewise check``"""
    order = int(args.order) if args.order.isdecimal() else args.order
    found = _file(args, order) if is_file(args.target) else _rung(args, order)
    if args.json:
        draw.write_json(
            {
                "target": args.target,
                "order": found.order,
                "findings": [item.plain() for item in found.findings],
            }
        )
    else:
        _print(found)
    return FAILED if found.findings else GOOD


def _rung(args: Namespace, order: str | int) -> _Checked:
    m, n, k = rung_size(args, _EXAMPLE)
    rung = ladder[args.target]
    found = rung.check(m, n, k, order=order, seed=args.seed, **settings(args.set))
    return _Checked(f"{rung.name}, {m}×{n}×{k}", order, found)


def _file(args: Namespace, order: str | int) -> _Checked:
    words = file_words(args, args.target)
    launch = open_launch(replace(words, arch=words.arch or open_emulator().arch))
    findings = launch.check(order, args.timeout)
    return _Checked(f"{launch.kernel.name} of {args.target}", order, findings)


def _print(found: _Checked) -> None:
    for item in found.findings:
        for i, line in enumerate(str(item).splitlines()):
            draw.line(line, "bold red" if i == 0 else "")
        draw.line()
    count = len(found.findings)
    what = f"{count} finding{'s' * (count != 1)}" if count else "nothing found"
    draw.line(f"{found.title}, order {found.order}: {what}", "bold red" if count else "green")
