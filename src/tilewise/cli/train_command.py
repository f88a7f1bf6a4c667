"""``tilewise train mnist``: a network that recognises digits, trained by our kernels."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tilewise.cli import draw
from tilewise.devices import device as resolve
from tilewise.errors import ArgumentError
from tilewise.nn.checkpoint import load_checkpoint
from tilewise.nn.curves import draw_comparison, draw_learning
from tilewise.nn.digits import Digits, download_mnist, has_mnist, load_digits
from tilewise.nn.float64_model import LossCurves, compare_curves
from tilewise.nn.options import TrainingOptions
from tilewise.nn.training import CHECKPOINT, TrainingFigures, train
from tilewise.toolchain import cache

__all__ = ["train_mnist"]

GOOD, FAILED = 0, 1
_LEARNING = "learning.svg"
_EMULATED = {"hidden": 64, "epochs": 2, "limit": 2000}  # defaults where a CPU does the work


def train_mnist(args: Namespace) -> int:
    """``tilewise train mnist``"""
    _check_use(args)
    device = resolve(args.device)
    options = _read_options(args, device.runs_on_gpu)
    digits = _load(args, options)
    out = None if args.out is None else Path(args.out)
    done = 0  # epochs that the checkpoint of this run has

    def keep(so_far: TrainingFigures) -> None:
        nonlocal done
        done = len(so_far.epochs)
        if out is not None:
            _write_picture(out / _LEARNING, draw_learning(so_far))

    curves = None if args.compare is None else compare_curves(options, digits, device, args.compare)
    try:
        with draw.progress("train") as progress:
            figures = train(options, digits, device, out=out, resume=args.resume, report=progress, saved=keep)
    except KeyboardInterrupt:
        print(f"tilewise: stopped; {_say_how_to_go_on(args, options, done)}", file=sys.stderr)
        raise
    pictures = [] if out is None else _write_pictures(out, figures, curves)
    if args.json:
        compared = {} if curves is None else {"compared": curves.to_dict()}
        draw.write_json_line("train", {**figures.to_dict(), **compared})
    else:
        _print_figures(figures, curves, pictures)
    return GOOD if curves is None or curves.ok else FAILED


def _check_use(args: Namespace) -> None:
    if args.out == "":
        raise ArgumentError("--out", "must be a folder", args.out, "leave it out to save nothing")
    if args.compare is not None and args.resume is not None:
        fix = "leave one of them out"
        raise ArgumentError("--compare", "is of a run's first steps, which --resume has not", None, fix)


def _say_how_to_go_on(args: Namespace, options: TrainingOptions, done: int) -> str:
    """What a run that was interrupted has saved, and the command that goes on from there."""
    if not done:
        return "no epoch was done, and nothing saved" if args.out else "nothing was saved, for want of --out"
    path = str(Path(args.out) / CHECKPOINT)
    command = [
        "tilewise",
        "train",
        "mnist",
        "--resume",
        path,
        "--epochs",
        str(options.epochs),
        "--out",
        args.out,
    ]
    for option, value in (("--data", args.data), ("--device", args.device)):
        command += [] if value is None else [option, value]
    return f"{path} has {done} of {options.epochs} epochs; go on with: {shlex.join(command)}"


def _read_options(args: Namespace, on_gpu: bool) -> TrainingOptions:
    """What is given, over what a resumed run began with, over defaults that suit the device."""
    names = [field.name for field in fields(TrainingOptions)]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.resume is not None:
        return replace(load_checkpoint(args.resume).options, **given)
    return TrainingOptions(**({} if on_gpu else _EMULATED) | given)


def _load(args: Namespace, options: TrainingOptions) -> Digits:
    folder = args.data
    if args.download:
        folder = download_mnist(folder or _downloaded())
    elif folder is None:
        before = cache.default().directory
        if before is not None and has_mnist(before / "mnist"):
            folder = before / "mnist"
    return load_digits(folder, options.limit, options.seed)


def _downloaded() -> Path:
    """Where MNIST's files go when no folder is given."""
    directory = cache.default().directory
    if directory is None:
        raise ArgumentError("--download", "needs a folder", fix="give one with --data")
    return directory / "mnist"


def _write_pictures(out: Path, figures: TrainingFigures, curves: LossCurves | None) -> list[str]:
    drawn = {_LEARNING: draw_learning(figures)}
    if curves is not None:
        hidden = figures.options.hidden
        drawn["comparison.svg"] = draw_comparison(curves, f"the first steps at H = {hidden}")
    for name, picture in drawn.items():
        _write_picture(out / name, picture)
    return list(drawn)


def _write_picture(path: Path, picture: str) -> None:
    path.write_text(picture, encoding="utf-8")


def _print_figures(figures: TrainingFigures, curves: LossCurves | None, pictures: list[str]) -> None:
    options = figures.options
    hidden = options.hidden
    draw.heading(f"784-{hidden}-{hidden}-{hidden}-10 on {figures.device}: {figures.title}")
    draw.line(f"{figures.source}; batch {options.batch}, seed {options.seed}")
    if figures.made:
        draw.line("tilewise train mnist --download trains with MNIST; --data FOLDER with files of your own.")
    draw.line()
    columns = ["epoch", "training loss", "test loss", "accuracy", "steps", "a step"]
    rows: list[list[Any]] = [
        [
            str(epoch.epoch), f"{epoch.training_loss:.4f}", f"{epoch.loss:.4f}", f"{epoch.accuracy:.2%}",
            f"{epoch.steps:,}", draw.duration(epoch.seconds / epoch.steps),
        ]
        for epoch in figures.epochs
    ]  # fmt: skip
    draw.table(columns, rows, right=columns)
    draw.line()
    if curves is not None:
        verdict = "within" if curves.ok else "NOT within"
        count, share = len(curves.here), f"at most {curves.share:.2f} of it"
        draw.line(
            f"{count} step{'s' * (count != 1)} beside float64: "
            f"with the same weights every loss is {verdict} its bound ({share});"
        )
        draw.line(f"with weights of their own the curves are at most {curves.farthest:.2g} apart")
    for name in pictures:
        draw.line(f"drawn: {name}")
    if pictures:
        draw.line(f"saved: {CHECKPOINT}, to go on from with --resume")
