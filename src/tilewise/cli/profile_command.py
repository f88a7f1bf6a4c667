"""``tilewise profile``: print a launch's metrics in ncu's terms."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewise.bench.hardware import DURATION, RungLaunch, compare_with_measured, measure
from tilewise.bench.launch_spec import LaunchSpec, open_launch
from tilewise.bench.product import fresh_seed
from tilewise.bench.unwritten import Unwritten
from tilewise.cli import draw
from tilewise.cli.launch_options import is_file, launch_spec, rung_size, settings
from tilewise.errors import ArgumentError
from tilewise.gpus import find
from tilewise.instruments.compare import compare_profiles, compare_rows
from tilewise.instruments.line_figures import LineFigures, figure_names, listed_rows, listing
from tilewise.instruments.metric import EXACT
from tilewise.instruments.metric_names import check_metric_names
from tilewise.instruments.occupancy import Occupancy
from tilewise.instruments.profile import Profile
from tilewise.instruments.profile_launch import DEFAULT_GPU
from tilewise.instruments.roofline import Roofline
from tilewise.ladder import ladder

__all__ = ["profile"]

_EXAMPLE = (512, 512, 256)


@dataclass(frozen=True)
class _ProfiledLaunch:
    """A profile, with the seed and the unwritten outputs of a launch of a file's kernel."""

    name: str
    profile: Profile
    seed: int | None = None  # None of a rung, whose operands are zeros
    unwritten: list[Unwritten] = field(default_factory=list)

    def to_dict(self, patterns: Sequence[str] | None, seconds: float | None) -> dict[str, Any]:
        plain = {"target": self.name, "seed": self.seed, **self.profile.to_dict(patterns)}
        plain["unwritten"] = [item.to_dict() for item in self.unwritten]
        if seconds is not None:
            plain["of_the_roofline"] = self.profile.roofline.reached(seconds)
        return plain


def profile(args: Namespace) -> int:
    """``tilewise profile``"""
    names = _targets(args)
    patterns = _patterns(args.metrics)
    check_metric_names(patterns)
    launches = [args, args.second or args]
    if args.compare and args.seed is None:  # the same numbers for both
        seed = fresh_seed()
        for launch in launches:
            launch.seed = seed
    found = [_profile(launch, name) for launch, name in zip(launches, names, strict=False)]
    if args.on == "gpu":
        return _beside(args, found[0], patterns)
    if args.json:
        draw.write_json("profile", _plain(args, found, patterns))
    elif args.csv:
        print("".join(item.profile.csv(patterns) for item in found), end="")
    else:
        if args.compare:
            _print_comparison(found, patterns)
        else:
            _print(args, found[0].profile, patterns)
        _print_remarks(found)
    return 0


def _titles(found: Sequence[_ProfiledLaunch]) -> list[str]:
    """What two launches are called side by side: their targets, or their kernels where those are the same."""
    names = [item.name for item in found]
    return names if len(set(names)) > 1 else [item.profile.kernel for item in found]


def _print_remarks(found: Sequence[_ProfiledLaunch]) -> None:
    """What was not written, and the seeds of the random arguments."""
    titles = [f"{name}: " for name in _titles(found)] if len(found) > 1 else [""]
    remarks = [
        f"note: {title}{what}" for title, item in zip(titles, found, strict=True) for what in item.unwritten
    ]
    seeds = [str(item.seed) for item in found if item.seed is not None]
    remarks += [f"seed {' and '.join(dict.fromkeys(seeds))}"] if seeds else []
    if remarks:
        draw.line()
    for remark in remarks:
        draw.line(remark, "yellow" if remark.startswith("note") else "")


def _targets(args: Namespace) -> list[str]:
    """What to profile, once the options have been found to go together."""
    forms = [name for name in ("json", "csv", "lines") if getattr(args, name)]
    forms += ["occupancy"] if args.occupancy and not args.json else []
    if len(forms) > 1:
        raise ArgumentError(f"--{forms[0]} and --{forms[1]}", "are two ways to print; choose one")
    if args.compare and args.target:
        raise ArgumentError("--compare", "takes the place of a target", args.target)
    if args.compare and (args.lines or args.occupancy):
        raise ArgumentError("--compare", "compares metrics; leave --lines and --occupancy away")
    if not args.compare and not args.target:
        raise ArgumentError(
            "target", "must be a rung or a .cu or .ptx file", fix="such as 05_tiled_conflicted"
        )
    return list(args.compare or [args.target])


def _patterns(words: Sequence[str]) -> list[str] | None:
    """Names and patterns of metrics; a regular expression may have commas of its own."""
    found: list[str] = []
    for word in words:
        parts = [word] if word.startswith("regex:") else [part.strip() for part in word.split(",")]
        if not all(parts):
            raise ArgumentError("--metrics", "must name metrics, such as l1tex__*", word)
        found += parts
    return found or None


def _profile(args: Namespace, name: str) -> _ProfiledLaunch:
    if not is_file(name):
        m, n, k = rung_size(args, name, _EXAMPLE)
        if args.seed is not None and not args.compare:
            raise ArgumentError("--seed", "is for files: a rung is profiled on zeros", fix="leave it out")
        rung = ladder[name]
        found = rung.profile(
            m, n, k, gpu=args.gpu, cache=args.cache, sample=args.sample, **settings(args.set)
        )
        return _ProfiledLaunch(name, found)
    launch = open_launch(launch_spec(args, name), find(args.gpu or DEFAULT_GPU).arch)
    found, unwritten = launch.profile(args.gpu, cache=args.cache, sample=args.sample, timeout=args.timeout)
    return _ProfiledLaunch(name, found, launch.seed, unwritten)


def _plain(
    args: Namespace, found: Sequence[_ProfiledLaunch], patterns: Sequence[str] | None
) -> dict[str, Any]:
    """For JSON: a profile, or two under "profiles" where they are compared."""
    if args.occupancy:
        first = found[0].profile
        return {
            "target": found[0].name,
            "kernel": first.kernel,
            "occupancy": first.occupancy.to_dict() if first.occupancy else None,
            "spills": first.spills.to_dict() if first.spills else None,
        }
    plain = [item.to_dict(patterns, args.seconds) for item in found]
    return {"profiles": plain} if args.compare else plain[0]


def _print(args: Namespace, found: Profile, patterns: Sequence[str] | None) -> None:
    if args.lines:
        lines = {"cuda": found.lines, "ptx": found.ptx_lines, "machine": found.machine_lines}[args.lines]
        _print_lines(lines[: args.most])
        return
    if not args.occupancy:
        if patterns is None:
            _print_verdicts(found, args.seconds)
        _print_figures(found, patterns)
    for item in found.all:
        if item.occupancy is not None and (args.occupancy or patterns is None):
            draw.line()
            draw.heading(f"occupancy of {item.kernel}")
            draw.facts(_occupancy(item.occupancy) | _spills(item))
        if patterns is None and not args.occupancy:
            draw.line()
            draw.heading(f"bytes of {item.kernel}, by level")
            rows = [
                [
                    level.name,
                    f"{level.read:,.0f}",
                    f"{level.written:,.0f}",
                    "" if level.label == EXACT else level.label,
                ]
                for level in item.levels
            ]
            draw.table(["", "read", "written", ""], rows, right=["read", "written"])
        if patterns is None and not args.occupancy and item.machine.ran:
            draw.line()
            draw.heading(f"roofline of {item.kernel}")
            draw.facts(_roofline(item.roofline, args.seconds) | _spills(item))


def _print_verdicts(found: Profile, seconds: float | None) -> None:
    """What binds each launch, before all figures."""
    for item in found.all:
        verdict = item.verdict
        if verdict is None:
            continue
        draw.heading(f"verdict on {item.kernel}")
        for text in verdict.lines():
            draw.line(text, hanging=4)
        if seconds is not None and item is found:
            draw.line(f"{item.roofline.reached(seconds):.1%} of that is reached in {draw.duration(seconds)}")
        draw.line()


def _print_figures(found: Profile, patterns: Sequence[str] | None) -> None:
    """The profile's own table; in a narrow terminal with the figures first, since names are long."""
    text = found.table(patterns)
    if draw.fits(text):
        print(text, end="")
        return
    for item in found.all:
        draw.heading(str(item))
        rows = [
            [figure, ", ".join(filter(None, [name, unit, label]))]
            for name, figure, unit, label in item.rows(patterns)
        ]
        draw.table(["figure", "metric, unit, and what it is if it is not exact"], rows, right=["figure"])
        for note in item.notes:
            draw.line(f"note: {note}")


def _print_lines(lines: Sequence[LineFigures]) -> None:
    """Figures by line; in a narrow terminal below the line that they are of."""
    text = listing(lines, len(lines))
    if draw.fits(text):
        print(text)
        return
    rows = [[f"{place}  {source}", *figures] for *figures, place, source in listed_rows(lines, len(lines))]
    names = figure_names(lines)
    draw.table(["line", *names], rows, right=names)


def _print_comparison(found: Sequence[_ProfiledLaunch], patterns: Sequence[str] | None) -> None:
    """Two profiles side by side; in a narrow terminal the figures stand below the name of the metric."""
    first, second = (item.profile for item in found)
    titles = _titles(found)
    text = compare_profiles(titles, [first, second], patterns)
    if draw.fits(text):
        print(text, end="")
        return
    draw.line(str(first))
    draw.line(str(second))
    draw.line()
    columns = (
        [*titles, "ratio"]
        if titles[0] != titles[1]
        else [f"first {titles[0]}", f"second {titles[1]}", "ratio"]
    )
    draw.table(["", *columns], compare_rows(first, second, patterns), right=columns)


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


def _spills(found: Profile) -> dict[str, str]:
    return {"spills": str(found.spills)} if found.spills else {}


def _roofline(found: Roofline, seconds: float | None) -> dict[str, str]:
    rows = {
        bound.name: f"{bound.amount:,.4g} {bound.unit}: {draw.duration(bound.seconds)}"
        for bound in found.bounds
    }
    rows["bound"] = f"{found.binding.name}: {draw.duration(found.seconds)} at least"
    if found.intensity is not None:
        rows["operations a byte"] = f"{found.intensity:,.1f}"
    if seconds is not None:
        rows["reached"] = f"{found.reached(seconds):.1%} of it in {draw.duration(seconds)}"
    return rows


def _beside(args: Namespace, profiled: _ProfiledLaunch, patterns: Sequence[str] | None) -> int:
    """The same launch under ncu, beside what was counted here."""
    if args.compare:
        raise ArgumentError("--on gpu", "runs one launch", "a comparison")
    found = profiled.profile
    if is_file(args.target):
        what: LaunchSpec | RungLaunch = replace(launch_spec(args, args.target), seed=profiled.seed)
    else:
        what = RungLaunch(args.target, rung_size(args, args.target, _EXAMPLE), settings(args.set))
    names = [metric.name for metric in found.select(patterns)]
    measured = measure(what, names)
    rows = compare_with_measured(found, measured, names)
    times = [row[DURATION] * 1e-9 for row in measured if row.get(DURATION)]
    reached = [item.roofline.reached(time) for item, time in zip(found.all, times, strict=False)]
    if args.json:
        draw.write_json("profile", {"metrics": rows, "seconds": times, "of_the_roofline": reached})
        return 0
    draw.table(
        ["metric", "measured", "emulated", "difference"],
        [[row["metric"], row["measured"], row["emulated"], row["difference"]] for row in rows],
        right=["measured", "emulated", "difference"],
    )
    for item, time, part in zip(found.all, times, reached, strict=False):
        draw.line(f"{item.kernel} took {draw.duration(time)} under ncu: {part:.1%} of its roofline")
    return 0
