"""``tilewise profile``: what a launch comes to, in ncu's terms."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from tilewise.bench.given import file_launch, triple
from tilewise.cli import draw
from tilewise.cli.parser import settings
from tilewise.errors import ArgumentError
from tilewise.kernels import ladder
from tilewise.profiler.compare import comparison
from tilewise.profiler.listing import listing
from tilewise.profiler.occupancy import Occupancy
from tilewise.profiler.profile import Profile
from tilewise.profiler.roofline import Roofline

__all__ = ["profile"]

_EXAMPLE = (512, 512, 256)


def profile(args: Namespace) -> int:
    """``tilewise profile``"""
    names = args.compare or ([args.target] if args.target else [])
    if not names:
        raise ArgumentError(
            "target", "must be a rung or a .cu or .ptx file", fix="such as 05_tiled_conflicted"
        )
    profiles = [_profile(args, name) for name in names]
    patterns = [part for word in args.metrics for part in word.split(",") if part] or None
    if args.on == "gpu":
        return _beside(args, profiles[0], patterns)
    if args.json:
        found = [item.to_dict(patterns) for item in profiles]
        draw.write_json(found if args.compare else found[0])
    elif args.csv:
        print("".join(item.csv(patterns) for item in profiles), end="")
    elif args.compare:
        print(comparison(names, profiles, patterns), end="")
    else:
        _print(args, profiles[0], patterns)
    return 0


def _profile(args: Namespace, name: str) -> Profile:
    if not name.endswith((".cu", ".ptx")):
        m, n, k = (given or size for given, size in zip((args.m, args.n, args.k), _EXAMPLE, strict=True))
        return ladder[name].profile(
            m, n, k, gpu=args.gpu, cache=args.cache, sample=args.sample, **settings(args.set)
        )
    if not args.grid or not args.block:
        raise ArgumentError(
            "--grid and --block", "must be given for a file", fix="such as --grid 11,20 --block 32,32"
        )
    found = file_launch(
        name,
        name=args.kernel,
        grid=triple("--grid", args.grid),
        block=triple("--block", args.block),
        args=args.arg,
        shared=args.shared,
        arch=args.arch,
    )
    return found.kernel.profile(
        found.grid, found.block, found.args, found.shared, gpu=args.gpu, cache=args.cache, sample=args.sample
    )


def _print(args: Namespace, found: Profile, patterns: Sequence[str] | None) -> None:
    if args.lines:
        lines = {"cuda": found.lines, "ptx": found.ptx_lines, "machine": found.machine_lines}[args.lines]
        print(listing(lines, args.most))
        return
    if not args.occupancy:
        print(found.table(patterns), end="")
    for item in found.all:
        if item.occupancy is not None and (args.occupancy or patterns is None):
            draw.line()
            draw.heading(f"occupancy of {item.kernel}")
            draw.facts(_occupancy(item.occupancy))
        if patterns is None and not args.occupancy and item.machine.ran:
            draw.line()
            draw.heading(f"roofline of {item.kernel}")
            draw.facts(_roofline(item.roofline))


def _occupancy(found: Occupancy) -> dict[str, str]:
    def less(name: str, by: int, unit: str, enough: int | None) -> str:
        now = found.with_less(**{name: by}).blocks
        more = (
            f"; {enough:,} would give one more block" if enough is not None else "; none would give one more"
        )
        return f"{now} block{'s' * (now != 1)} with one {unit} less{more}"

    return {
        "blocks on an SM": f"{found.blocks}, limited by {' and '.join(found.binding)}",
        "limits": ", ".join(f"{name} {limit}" for name, limit in found.limits.items()),
        "warps": f"{found.warps} of {found.warps_most}: {found.ratio:.1%}",
        "threads": f"{found.threads_per_sm:,}; registers divided alone would say {found.threads_by_division:,}",
        "registers": less("registers", 1, "register", found.next_registers),
        "shared bytes": less("shared", 1024, "KiB", found.next_shared),
        **({"waves": f"{found.waves:.7g}"} if found.waves is not None else {}),
    }


def _roofline(found: Roofline) -> dict[str, str]:
    rows = {
        bound.name: f"{bound.amount:,.4g} {bound.unit}: {draw.duration(bound.seconds)}"
        for bound in found.bounds
    }
    rows["bound"] = f"{found.binding.name}: {draw.duration(found.seconds)} at least"
    if found.intensity is not None:
        rows["operations a byte"] = f"{found.intensity:,.1f}"
    return rows


def _beside(args: Namespace, found: Profile, patterns: Sequence[str] | None) -> int:
    """The same launch under ncu, beside what was counted here."""
    from tilewise.bench.hardware import beside, measure

    if args.target not in ladder or args.compare:
        raise ArgumentError("--on gpu", "runs rungs", args.target or "a comparison")
    m, n, k = (given or size for given, size in zip((args.m, args.n, args.k), _EXAMPLE, strict=True))
    names = [metric.name for metric in found.chosen(patterns)]
    measured = measure(args.target, (m, n, k), settings(args.set), names)
    rows = beside(found, measured, names)
    if args.json:
        draw.write_json(rows)
    else:
        draw.table(
            ["metric", "measured", "emulated", "difference"],
            [[row["metric"], row["measured"], row["emulated"], row["difference"]] for row in rows],
            right=["measured", "emulated", "difference"],
        )
    return 0
