"""The options of a launch → plain data for ``bench``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from tilewise.bench.file_run import OutputSpec
from tilewise.bench.launch_spec import LaunchSpec
from tilewise.errors import ArgumentError
from tilewise.ladder import ladder

__all__ = ["is_file", "launch_spec", "output_spec", "refuse_file_options", "rung_size", "settings"]

_FILE_OPTIONS = (
    *(
        "grid",
        "block",
        "cluster",
        "arg",
        "kernel",
        "define",
        "include",
        "arch",
        "shared",
        "timeout",
        "cooperative",
    ),
    *("output", "expect", "rtol", "atol", "show"),
)
_OPTION_NAMES = {"show": "print"}  # options whose values go by another name
_RUNG_OPTIONS = ("m", "n", "k", "set")


def is_file(target: str) -> bool:
    """Whether a target is a file, not a rung: rungs' names have neither a dot nor a slash."""
    return "." in target or "/" in target


def launch_spec(args: Namespace, file: str) -> LaunchSpec:
    """The launch of a file's kernel; options that belong to rungs alone are refused."""
    if not args.compare:
        _refuse(args, _RUNG_OPTIONS, "is for rungs", "a file takes --grid, --block and --arg")
    return LaunchSpec(
        file, args.grid, args.block, args.kernel, args.cluster, args.shared, args.arch, args.arg, args.define,
        args.include, args.seed, args.cooperative,
    )  # fmt: skip


def output_spec(args: Namespace) -> OutputSpec:
    """Which outputs of a file's kernel to save, compare and print."""
    if (args.rtol is not None or args.atol is not None) and not args.expect:
        raise ArgumentError(
            "--rtol and --atol", "are tolerances of --expect", fix="give one, such as --expect ref.npy"
        )
    return OutputSpec(args.output, args.expect, args.show, args.rtol, args.atol)


def refuse_file_options(args: Namespace) -> None:
    """Refuse options that belong to files, for a rung."""
    _refuse(args, _FILE_OPTIONS, "is for files", "a rung has its own; it takes -m, -n, -k and --set")


def rung_size(args: Namespace, name: str, default: tuple[int, int, int]) -> tuple[int, int, int]:
    """The size that a rung is launched with; options that belong to files alone are refused.

    What is not given is ``default``, or less where the rung takes no more.
    """
    if not args.compare:
        refuse_file_options(args)
    m, n, k = ladder[name].fitting_size(default)
    return args.m or m, args.n or n, args.k or k


def _refuse(args: Namespace, names: Sequence[str], rule: str, fix: str) -> None:
    for name in names:
        if getattr(args, name, None) not in (None, [], 0):
            option = _OPTION_NAMES.get(name, name)
            raise ArgumentError(f"{'-' if len(option) == 1 else '--'}{option}", rule, fix=fix)


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """``["tile=16", "raster=hilbert"]`` as a rung's settings."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or not value:
            raise ArgumentError("--set", "must look like name=value", pair)
        found[name] = int(value) if value.lstrip("-").isdigit() else value
    return found
