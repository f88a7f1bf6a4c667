"""``tilewise check``: what is wrong with a launch."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

from tilewise.bench.given import file_launch, triple
from tilewise.cli import draw
from tilewise.cli.parser import settings
from tilewise.errors import ArgumentError
from tilewise.kernels import ladder
from tilewise.profiler.checking import CheckingDevice
from tilewise.profiler.findings import Finding

__all__ = ["check"]

GOOD, FAILED = 0, 1
_NEW = "new:"  # before an array of which nothing is set
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
    found = _file(args, order) if args.target.endswith((".cu", ".ptx")) else _rung(args, order)
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
    rung = ladder[args.target]
    for option, given in (("--grid", args.grid), ("--block", args.block), ("--arg", args.arg)):
        if given:
            raise ArgumentError(option, "is for files", fix="a rung has its own; it takes -m, -n and -k")
    m, n, k = (given or size for given, size in zip((args.m, args.n, args.k), _EXAMPLE, strict=True))
    found = rung.check(m, n, k, order=order, seed=args.seed, **settings(args.set))
    return _Checked(f"{rung.name}, {m}×{n}×{k}", order, found)


def _file(args: Namespace, order: str | int) -> _Checked:
    if not args.grid or not args.block:
        raise ArgumentError(
            "--grid and --block", "must be given for a file", fix="such as --grid 4 --block 128"
        )
    found = file_launch(
        args.target,
        name=args.kernel,
        grid=triple("--grid", args.grid),
        block=triple("--block", args.block),
        args=[word.removeprefix(_NEW) for word in args.arg],
        shared=args.shared,
        arch=args.arch or "sm_90a",
        seed=args.seed,
    )
    device = CheckingDevice(order)
    for i, word in enumerate(args.arg):
        if word.startswith(_NEW):
            shape, kind = getattr(found.args[i], "shape", None), getattr(found.args[i], "dtype", None)
            if shape is None or kind is None:
                raise ArgumentError("--arg", f"must name an array behind {_NEW!r}", word)
            found.args[i] = device.empty(shape, kind)
    cluster = triple("--cluster", args.cluster) if args.cluster else None
    found.kernel(found.grid, found.block, found.args, found.shared, cluster, device, args.timeout)
    return _Checked(f"{found.kernel.name} of {args.target}", order, device.findings)


def _print(found: _Checked) -> None:
    for item in found.findings:
        for i, line in enumerate(str(item).splitlines()):
            draw.line(line, "bold red" if i == 0 else "")
        draw.line()
    count = len(found.findings)
    what = f"{count} finding{'s' * (count != 1)}" if count else "nothing found"
    draw.line(f"{found.title}, order {found.order}: {what}", "bold red" if count else "green")
