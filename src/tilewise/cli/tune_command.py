"""``tilewise tune``: plans of products measured on the device that is here; what is kept of that, merged, dropped."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.bench.gemm_cases import parse_shape
from tilewise.bench.tune import Tuned, tune
from tilewise.cli import draw
from tilewise.devices import device as resolve
from tilewise.errors import ArgumentError
from tilewise.planner import plan_rows, target_of_device
from tilewise.planner.measured import KeptPlan, file_of, forget, merge, read

__all__ = ["tune_products"]

GOOD, FAILED = 0, 1
_SHOWN = 6  # plans of a product


def tune_products(args: Namespace) -> int:
    """``tilewise tune``"""
    asked = [name for name in ("list", "forget", "merge") if getattr(args, name)]
    if len(asked) + bool(args.product) != 1:
        rule = "must be given, such as 4096x4096x4096, or one of --list, --merge and --forget in its place"
        raise ArgumentError(
            "product", rule, " and ".join([*args.product, *(f"--{name}" for name in asked)]) or None
        )
    return _measure(args) if args.product else _look_after(args)


def _measure(args: Namespace) -> int:
    device = resolve(args.device)
    cases, found = [parse_shape(text, "product") for text in args.product], list[Tuned]()
    with draw.progress("tune") as progress:
        for case in cases:
            found.append(
                tune(
                    case.m, case.n, case.k, dtype=args.dtype, b_dtype=args.b_dtype, batch=case.batch,
                    result=args.result, layout=case.layout, arithmetic=args.arithmetic, device=device,
                    most=args.most, seconds=args.seconds, again=args.again, progress=progress,
                )
            )  # fmt: skip
            if not args.json:
                _print(found[-1])
    if args.json:
        path = file_of(target_of_device(device))
        draw.write_json("tune", {"file": _path_for_json(path), "products": [one.to_dict() for one in found]})
    elif len(found) > 1:
        draw.heading(f"{len(found)} products, kept {_say_where(file_of(target_of_device(device)))}")
    return FAILED if any(one.wrong for one in found) else GOOD


def _print(tuned: Tuned) -> None:
    first, *more = str(tuned).splitlines()
    draw.heading(first)
    for line in more:
        draw.line(line.strip())
    if tuned.tried:
        rows = [
            [
                row.kernel, row.block, row.settings, f"{one.seconds * 1e6:,.2f}", f"{row.microseconds:,.2f}",
                row.copies, "" if one.agrees else "DIFFERS",
            ]
            for row, one in zip(plan_rows(one.plan for one in tuned.tried), tuned.tried, strict=True)
        ]  # fmt: skip
        columns = ["kernel", "block tile", "settings", "measured µs", "predicted µs", "copies", ""]
        draw.table(columns, rows[:_SHOWN], right=["measured µs", "predicted µs"])
    for one in tuned.wrong:
        draw.line(f"{one.plan.kernel} gave another result than the predicted best and is left out", "red")
    draw.line()


def _look_after(args: Namespace) -> int:
    """What is kept for the kind of device that is here: listed, merged with a file's, or dropped."""
    device = resolve(args.device)
    target = target_of_device(device)
    path = file_of(target)
    if args.merge:
        merge(target, args.merge)
    dropped = forget(target) if args.forget else 0
    plans = {} if path is None else read(path)
    if args.json:
        draw.write_json(
            "tune",
            {"file": _path_for_json(path), "plans": len(plans), "dropped": dropped, "kept": _kept(plans)},
        )
        return GOOD
    draw.heading(f"measured plans for {device.title}: {len(plans)}, {_say_where(path)}")
    if args.forget:
        draw.line(f"{dropped} dropped")
    rows = [
        [
            name, plan.kernel, f"{plan.seconds * 1e6:,.2f}", f"{plan.predicted_best / plan.seconds:.2f}", plan.date,
            "" if plan.is_current else f"not used: by {plan.versions}",
        ]
        for name, plan in plans.items()
    ]  # fmt: skip
    columns = ["product", "kernel", "measured µs", "gain", "date", ""]
    draw.table(columns, rows, right=["measured µs", "gain"])
    return GOOD


def _path_for_json(path: Path | None) -> str | None:
    """The file of measured plans; None where none are kept."""
    return None if path is None else str(path)


def _say_where(path: Path | None) -> str:
    """Where measured plans are kept, as part of a sentence."""
    return "nowhere: there is no directory for a cache" if path is None else f"in {path}"


def _kept(plans: Mapping[str, KeptPlan]) -> dict[str, Any]:
    return {
        name: {
            "kernel": plan.kernel,
            "settings": dict(plan.settings),
            "copies": list(plan.copies),
            "seconds": plan.seconds,
            "predicted_best": plan.predicted_best,
            "date": plan.date,
            "versions": plan.versions,
            "used": plan.is_current,
        }
        for name, plan in plans.items()
    }
