"""``tilewise explain``: what binds a launch, and pictures of what it does."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

from tilewise.bench.gemm_cases import parse_shape
from tilewise.bench.launch_spec import open_launch
from tilewise.cli import draw
from tilewise.cli.launch_options import is_file, launch_spec, refuse_file_options, rung_size, settings
from tilewise.errors import ArgumentError
from tilewise.explain.climb import Climb, explain_ladder
from tilewise.explain.explanation import Explanation, explain_plan
from tilewise.gpus import find
from tilewise.instruments.profile_launch import DEFAULT_GPU, find_gpu
from tilewise.ladder import ladder
from tilewise.plan import Plan
from tilewise.planner import plan as make_plan
from tilewise.whole_file import replace_when_whole

__all__ = ["explain"]

LADDER = "ladder"
_EXAMPLE = (512, 512, 256)
_PRODUCT = re.compile(r"\d+[x×]\d+")


def explain(args: Namespace) -> int:
    """``tilewise explain``"""
    if args.picture and not args.figure:
        raise ArgumentError(
            "--output", "is where a picture goes", args.picture, "say which by --figure, such as levels"
        )
    if args.target == LADDER:
        return _climb(args)
    element, thread = _pair("--element", args.element), _pair("--thread", args.thread)
    with draw.progress("explain") as progress:
        progress(0, 2, "run the launch on the emulator")
        found = _explain(args, element)
        progress(1, 2, "draw")
        files = _write(args, found)
    if args.json:
        plain = found.to_dict() | {"files": files}
        if element:
            plain["element"] = found.element(*element)
        draw.write_json("explain", plain)
        return 0
    asked = []
    if element:
        asked.append(found.element(*element))
    if thread:
        asked.append(found.thread(*thread))
    if args.line is not None:
        asked.append(found.line(args.line))
    if asked:
        for text in "\n\n".join(asked).splitlines():
            draw.line(text, hanging=4)
    elif not files:
        _print(found)
    for file in files:
        draw.line(f"wrote {file}")
    return 0


def _climb(args: Namespace) -> int:
    """All rungs: a line each, the picture, or the page."""
    refuse_file_options(args)
    for option in ("m", "n", "k", "set", "dtype", "seed", "element", "thread", "line", "trace"):
        if getattr(args, option) not in (None, []):
            dashes = "-" if len(option) == 1 else "--"
            raise ArgumentError(
                f"{dashes}{option}", "is for one launch", fix="name a rung in place of the ladder"
            )
    with draw.progress("explain") as progress:
        found = explain_ladder(args.gpu or DEFAULT_GPU, progress)
        files = _write(args, found)
    if args.json:
        draw.write_json("explain", found.to_dict() | {"files": files})
        return 0
    if not files:
        draw.heading(found.title)
        for line in found.verdict:
            draw.line(line, hanging=4)
        draw.line()
        draw.table(*found.table, right=["at most", "measured", "of it"])
        draw.line()
        for line in found.about:
            draw.line(line, hanging=4)
        draw.line("more: --html FILE for the page, --figure climb for the picture", hanging=4)
    for file in files:
        draw.line(f"wrote {file}")
    return 0


def _print(found: Explanation) -> None:
    draw.heading(found.subject.title)
    for line in found.verdict:
        draw.line(line, hanging=4)
    draw.line()
    draw.facts({panel.key: panel.answer for panel in found.panels})
    draw.line()
    for line in found.about:
        draw.line(line, hanging=4)
    draw.line(
        "more: --html FILE for the page, --figure NAME, --element R,C, --thread B,T, --line N", hanging=4
    )


def _explain(args: Namespace, element: tuple[int, int] | None) -> Explanation:
    target = args.target
    if target.endswith(".json"):
        refuse_file_options(args)
        return explain_plan(Plan.load(target), element=element)
    if _PRODUCT.match(target) and not is_file(target):
        refuse_file_options(args)
        case = parse_shape(target, "a product")
        return explain_plan(
            make_plan(
                case.m, case.n, case.k, dtype=args.dtype or "bfloat16", batch=case.batch, layout=case.layout,
                gpu=args.gpu or DEFAULT_GPU,
            ),
            element=element,
        )  # fmt: skip
    if not is_file(target):
        m, n, k = rung_size(args, target, _EXAMPLE)
        rung = ladder[target]
        gpu = find_gpu(args.gpu or DEFAULT_GPU, rung.spec.needs)
        return explain_plan(rung.plan(m, n, k, gpu=gpu, **settings(args.set)), element=element)
    launch = open_launch(launch_spec(args, target), find(args.gpu or DEFAULT_GPU).arch)
    return launch.explain(args.gpu, element=element, timeout=args.timeout)


def _pair(option: str, word: str | None) -> tuple[int, int] | None:
    if word is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,9})\s*,\s*(\d{1,9})\s*", word)
    if match is None:
        raise ArgumentError(option, "must be two numbers, such as 3,2", word)
    return int(match[1]), int(match[2])


def _write(args: Namespace, found: Explanation | Climb) -> list[str]:
    """Write what was asked for; the names of the files."""
    files = []
    if args.figure:
        files.append(_write_file(args.picture or f"{args.figure}.svg", found.figure(args.figure)))
    if args.html:
        files.append(_write_file(args.html, found.html()))
    if args.trace and isinstance(found, Explanation):
        files.append(_write_file(args.trace, found.trace()))
    return files


def _write_file(name: str, text: str) -> str:
    """Write a file, whole or not at all."""
    try:
        with replace_when_whole(Path(name)) as file:
            file.write(text.encode())
    except OSError as error:
        raise ArgumentError("the output", f"cannot be written: {error.strerror}", name) from None
    return name
