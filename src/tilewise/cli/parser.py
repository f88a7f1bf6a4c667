"""The command line: which commands there are and what each takes."""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Sequence
from typing import NoReturn

from tilewise.errors import ArgumentError, TilewiseError, UnknownNameError

__all__ = ["COMMANDS", "parse"]

COMMANDS = {
    "demo": "multiply: what tw.matmul chooses, then every rung of the ladder, each checked",
    "ladder": "list the rungs, or show one",
    "run": "multiply with one rung and check the result, or run a kernel out of a file",
    "plan": "choose how to multiply on a GPU that need not be here, and say why",
    "profile": "count what a launch does, in the terms of ncu",
    "explain": "say what binds a launch, and draw what it does: tiles, lanes, banks, order",
    "check": "find races, unset memory, bad accesses and unsafe copies in a launch",
    "tune": "measure plans of a product on the device that is here, and keep the fastest",
    "train": "train a network that recognises digits, by fused kernels",
    "doctor": "what is here, what is missing, and what to do about it",
    "bench": "measure: what a call costs, how long compiling takes, how fast the emulator is",
}

_SECOND = "--second"

_HELP = """\
usage: tilewise COMMAND [OPTION …]

Matrix multiplication on NVIDIA GPUs, tile by tile.

commands:
{commands}

options:
  --version  print the version
  --help     print this; after a command, print that command's options

Every command takes --json. Exit codes: 0 good, 1 a check failed, 2 wrong use.
"""


class _Parser(argparse.ArgumentParser):
    """argparse, with errors that go the way of all others."""

    def error(self, message: str) -> NoReturn:
        raise TilewiseError(f"{message}; see {self.prog} --help")


class _TopParser(_Parser):
    """The parser of ``tilewise`` itself, whose help reads the same under every Python."""

    def format_help(self) -> str:
        return _HELP.format(commands="\n".join(f"  {name:<9}  {about}" for name, about in COMMANDS.items()))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command line; ``run`` among them is the function to call with all of them."""
    _check_command(argv)
    if argv and argv[0] == "profile" and _SECOND in argv:
        return _parse_second(argv)
    return _parser().parse_args(argv)


def _parse_second(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of a comparison; ``second`` are those of its second launch, which begins as the first."""
    at = argv.index(_SECOND)
    own = _Parser(
        prog="tilewise profile", allow_abbrev=False, argument_default=argparse.SUPPRESS, add_help=False
    )
    _add_second(own)
    given, rest = own.parse_known_args(argv[at + 1 :])
    first = _parser().parse_args([*argv[:at], *rest])
    if not first.compare:
        raise ArgumentError(_SECOND, "is for --compare: it begins what the second launch has of its own")
    # NOTE: argparse appends to a default list, so that what is given takes the place of the first's only this way.
    first.second = argparse.Namespace(**{**vars(first), **vars(given)})
    return first


def _add_second(parser: argparse.ArgumentParser) -> None:
    """The options of a launch, none of which has a value unless it is given."""
    _rung(parser)
    _file(parser)
    for action in parser._actions:
        action.default = argparse.SUPPRESS


def _check_command(argv: Sequence[str]) -> None:
    """Name the nearest command when there is none of that name, which argparse would not do."""
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise UnknownNameError("command", argv[0], COMMANDS)


def _parser() -> argparse.ArgumentParser:
    from tilewise import __version__

    top = _TopParser(prog="tilewise", allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"tilewise {__version__}")
    top.set_defaults(run=_show_help(top))
    commands = top.add_subparsers(parser_class=_Parser, metavar="COMMAND")
    for name, about in COMMANDS.items():
        parser = commands.add_parser(name, help=about, description=f"{name}: {about}", allow_abbrev=False)
        _ARGUMENTS[name](parser)
    return top


def _show_help(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    def show(_args: argparse.Namespace) -> int:
        parser.print_help()
        return 2

    return show


def _finish(parser: argparse.ArgumentParser, command: str) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.set_defaults(run=_import_command(command))


def _import_command(command: str) -> Callable[[argparse.Namespace], int]:
    """A function of ``cli/commands.py`` that is imported when it is called: imports take time."""

    def run(args: argparse.Namespace) -> int:
        code: int = getattr(importlib.import_module("tilewise.cli.commands"), command)(args)
        return code

    return run


def _device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", metavar="NAME", help="where to run, such as gpu:1 (default: the best there is)"
    )


def _seed(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--seed",
        type=_at_least(0),
        metavar="N",
        help="of the random data (default: a fresh one, which is printed)",
    )


def _demo(parser: argparse.ArgumentParser) -> None:
    _device(parser)
    _seed(parser)
    parser.add_argument(
        "--arch", default="sm_90a", help="what to compile for where nothing can run (%(default)s)"
    )
    _finish(parser, "demo")


def _ladder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rung", nargs="?", help="the rung to show, such as 04_tiled")
    parser.add_argument(
        "--source", action="store_true", help="print the rung's CUDA C++, with what it includes"
    )
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/ladder.md")
    _finish(parser, "ladder")


def _run(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(compare=None)
    parser.add_argument("target", help="a rung, such as 04_tiled, or a .cu or .ptx file")
    _device(parser)
    _rung(parser)
    _launch(parser)
    _file(parser)
    outputs = parser.add_argument_group("the outputs of a file's kernel")
    outputs.add_argument(
        "-o", "--output", action="append", default=[], metavar="[N=]FILE.npy",
        help="save the array of the N-th --arg (default: the only one given as new:)",
    )  # fmt: skip
    outputs.add_argument(
        "--expect", action="append", default=[], metavar="[N=]WHAT",
        help="compare it with an array, ref.npy, or with the matrix product of two arguments, 1@2; exit code 1 if it "
        "differs",
    )  # fmt: skip
    outputs.add_argument(
        "--rtol", type=_not_below_zero, metavar="X", help="relative tolerance of --expect (default: by type)"
    )
    outputs.add_argument(
        "--atol", type=_not_below_zero, metavar="X", help="absolute tolerance of --expect (default: by type)"
    )
    outputs.add_argument(
        "--print", action="append", nargs="?", const=0, default=[], type=_at_least(1), metavar="N", dest="show",
        help="print every element of it",
    )  # fmt: skip
    _finish(parser, "run")


def _plan(parser: argparse.ArgumentParser) -> None:
    for size in "mnk":
        parser.add_argument(f"-{size}", type=_at_least(0), metavar=size.upper(), required=True)
    _types(parser)
    parser.add_argument(
        "--gpu", default="h200", metavar="NAME", help="of the GPU table, or emulator (%(default)s)"
    )
    parser.add_argument(
        "--batch", type=_at_least(0), default=1, metavar="N", help="how many products (%(default)s)"
    )
    parser.add_argument(
        "--layout",
        default="nn",
        metavar="XY",
        help="of A and B: n in rows, t as the transpose of rows (%(default)s)",
    )
    parser.add_argument("--no-copy", action="store_true", help="leave out plans that copy an operand first")
    parser.add_argument(
        "--most", type=_at_least(1), default=10, metavar="N", help="plans to list (%(default)s)"
    )
    parser.add_argument("--save", metavar="FILE", help="write the first plan as JSON, for tw.Plan.load")
    _finish(parser, "plan")


def _types(parser: argparse.ArgumentParser) -> None:
    """What a product is of, and what it is multiplied in."""
    parser.add_argument("--dtype", default="bfloat16", help="of A and B (%(default)s)")
    parser.add_argument(
        "--b-dtype", metavar="DTYPE", help="of B, if it is not A's: 8 bits beside 16, or 16 beside 8"
    )
    parser.add_argument("--result", metavar="DTYPE", help="of C (default: as A and B)")
    parser.add_argument(
        "--arithmetic",
        metavar="NAME",
        help="what to multiply in: tf32 or exact32 for float32, f16 for float16, with sums in it (default: as --dtype "
        "says)",
    )


def _tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "product", nargs="*",
        help="what to measure, such as 4096x4096x4096, 64x512x512x512 (a stack), 1024x1024x1024:nt (a layout)",
    )  # fmt: skip
    _types(parser)
    _device(parser)
    parser.add_argument(
        "--most",
        type=_at_least(1),
        default=16,
        metavar="N",
        help="plans of a product to measure (%(default)s)",
    )
    parser.add_argument(
        "--seconds", type=_above_zero, default=20.0, metavar="S",
        help="after which no more plans of a product are begun (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--again", action="store_true", help="also what was measured before")
    kept = parser.add_argument_group("what is kept for the kind of device that is here")
    kept.add_argument("--list", action="store_true", help="list it")
    kept.add_argument("--merge", metavar="FILE", help="add what another machine with such a device has kept")
    kept.add_argument("--forget", action="store_true", help="drop it")
    _finish(parser, "tune")


def _rung(parser: argparse.ArgumentParser) -> None:
    """What a rung is launched with."""
    for size, what in (
        ("m", "rows of A and C"),
        ("n", "columns of B and C"),
        ("k", "columns of A, rows of B"),
    ):
        parser.add_argument(
            f"-{size}",
            type=_at_least(1),
            metavar=size.upper(),
            help=f"of a rung: {what} (default: a fitting one)",
        )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the rung, such as tile=16",
    )


def _launch(parser: argparse.ArgumentParser) -> None:
    """What holds for the launches of rungs and of files."""
    _seed(parser)
    parser.add_argument(
        "--timeout", type=_above_zero, metavar="SECONDS", help="of a file: end the launch after so long"
    )


def _file(parser: argparse.ArgumentParser) -> None:
    """What a kernel out of a file is launched with."""
    files = parser.add_argument_group("a file")
    files.add_argument("--kernel", metavar="NAME", help="which kernel of the file")
    files.add_argument("--grid", metavar="X,Y,Z")
    files.add_argument("--block", metavar="X,Y,Z")
    files.add_argument("--cluster", metavar="X,Y,Z")
    files.add_argument(
        "--cooperative", action="store_true", help="all blocks resident at once, as grid.sync() needs it"
    )
    files.add_argument(
        "--shared", type=_at_least(0), default=0, metavar="BYTES", help="dynamic shared memory"
    )
    files.add_argument("--arch", metavar="ARCH", help="what to compile for, such as sm_90a")
    files.add_argument(
        "--define", "-D", action="append", default=[], metavar="NAME=VALUE", help="of the preprocessor"
    )
    files.add_argument(
        "--include", "-I", action="append", default=[], metavar="FOLDER", help="where headers are, too"
    )
    files.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="WORD",
        help="an argument: f32[640,448] (random), s32[64] (0, 1, 2, … in random order), s32[64]<10 (below 10), "
        "new:f32[64] (not set), zeros:f32[64], matrix:f32[640,448] (a Matrix by value), data.npy, 42, 0.5, null",
    )


def _profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="?", help="a rung, such as 05_tiled_conflicted, or a .cu or .ptx file"
    )
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"),
        help="two of them side by side, in place of one; what follows --second is of B's launch alone, such as "
        "--second --kernel tiled --grid 8,8",
    )  # fmt: skip
    parser.set_defaults(second=None)
    _rung(parser)
    parser.add_argument("--gpu", metavar="NAME", help="of the GPU table (default: one that runs the kernel)")
    parser.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="NAMES",
        help="as ncu takes them: l1tex__*, regex:…, a,b",
    )
    parser.add_argument("--csv", action="store_true", help="print the columns that ncu --csv prints")
    parser.add_argument(
        "--lines",
        nargs="?",
        const="cuda",
        choices=["cuda", "ptx", "machine"],
        help="by line, the worst first",
    )
    parser.add_argument(
        "--most", type=_at_least(1), default=20, metavar="N", help="lines to print (%(default)s)"
    )
    parser.add_argument(
        "--occupancy", action="store_true", help="print what limits the blocks of an SM, alone"
    )
    parser.add_argument(
        "--on", choices=["emulator", "gpu"], default="emulator", help="gpu: under ncu as well, side by side"
    )
    parser.add_argument("--cache", action="store_true", help="add what a model of the caches makes of it")
    parser.add_argument(
        "--sample",
        type=_at_least(1),
        metavar="N",
        help="run at most N blocks of each kind, not the whole grid",
    )
    parser.add_argument(
        "--seconds", type=_above_zero, metavar="S", help="a measured time: how near to the roofline it comes"
    )
    _launch(parser)
    _file(parser)
    _finish(parser, "profile")


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(compare=None)
    parser.add_argument(
        "target",
        help="a rung, such as 05_tiled_conflicted; ladder, for all of them; a product, such as 4096x4096x4096; a plan, "
        "such as plan.json; or a .cu or .ptx file",
    )
    _rung(parser)
    parser.add_argument("--dtype", help="of a product: the type of A and B (default: bfloat16)")
    parser.add_argument("--gpu", metavar="NAME", help="of the GPU table (default: one that runs the kernel)")
    asked = parser.add_argument_group("what to say, in place of everything")
    asked.add_argument("--element", metavar="R,C", help="who computes this element of C")
    asked.add_argument("--thread", metavar="B,T", help="which elements thread T of block B computes")
    asked.add_argument(
        "--line", type=_at_least(1), metavar="N", help="which lane touches which address, line or bank there"
    )
    written = parser.add_argument_group("what to write")
    written.add_argument(
        "--figure", metavar="NAME", help="a picture, as SVG: tiles, owner, levels, load, banks, …"
    )
    written.add_argument(
        "-o", "--output", dest="picture", metavar="FILE", help="where the picture goes (default: NAME.svg)"
    )
    written.add_argument("--html", metavar="FILE", help="all of it as a page that needs no network")
    written.add_argument(
        "--trace", metavar="FILE", help="the order of events, for Perfetto; in steps, not in time"
    )
    _launch(parser)
    _file(parser)
    _finish(parser, "explain")


def _check(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(compare=None)
    parser.add_argument("target", help="a rung, such as 12_multistage, or a .cu or .ptx file")
    parser.add_argument(
        "--order",
        default="late",
        metavar="ORDER",
        help="which warp goes next: eager, late or a seed (%(default)s)",
    )
    parser.add_argument(
        "--lenient",
        action="store_true",
        help="of a file: go on after faults that GPUs usually let pass",
    )
    _rung(parser)
    _launch(parser)
    _file(parser)
    _finish(parser, "check")


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--clear-cache", action="store_true", help="empty the cache of compiled kernels first"
    )
    _finish(parser, "doctor")


def _train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["mnist"], help="mnist: handwritten digits of 28 × 28 pixels")
    network = parser.add_argument_group("the network, 784-H-H-H-10, and how it is trained")
    for option, about in (
        ("--hidden", "H: units of a hidden layer, a multiple of 32 (default: 512; on the emulator 64)"),
        ("--epochs", "passes over the samples (default: 5; on the emulator 2)"),
        ("--batch", "samples a step: 16, 32 or 64 (default: 32)"),
        ("--limit", "take so many samples at most (default: all; on the emulator 2000)"),
    ):
        network.add_argument(option, type=int, metavar="N", help=about)
    for options, name, about in (
        (("--rate", "--lr"), "rate", "of a step down the gradient (default: 0.02)"),
        (("--momentum",), "momentum", "share of the last step that goes on (default: 0.9)"),
        (
            ("--decay", "--weight-decay"),
            "decay",
            "share of a weight that counts as gradient (default: 0.0001)",
        ),
    ):
        network.add_argument(*options, dest=name, type=float, metavar="X", help=about)
    network.add_argument(
        "--seed", type=int, metavar="N", help="of weights, order and made digits (default: 0)"
    )
    _device(parser)
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        help="with MNIST's files (default: those downloaded before, else made digits)",
    )
    parser.add_argument(
        "--download", action="store_true", help="fetch MNIST's files (11 MB) into that folder, or the cache"
    )
    parser.add_argument("--out", metavar="FOLDER", help="write a checkpoint and pictures of the curves there")
    parser.add_argument("--resume", metavar="FILE", help="go on from this checkpoint, up to --epochs in all")
    parser.add_argument(
        "--compare",
        type=_at_least(1),
        metavar="STEPS",
        help="train the first epoch's first so many steps in float64 as well, to compare; not with --resume",
    )
    _finish(parser, "train")


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        choices=["toolchain", "emulator", "dispatch", "gemm", "plans", "train"],
        help="toolchain: compile times of rungs and plans; import time. emulator: beside OpenBLAS and numba's "
        "simulator; compile times, launches, memory. dispatch: what a warm tw.matmul costs the host. "
        "gemm: tw.matmul beside torch.matmul on a GPU. plans: every plan that is proposed, measured on a GPU. "
        "train: a step of training beside PyTorch's on a GPU",
    )
    parser.add_argument(
        "--arch", action="append", metavar="ARCH", help="toolchain: compile for this one; may be repeated"
    )
    parser.add_argument(
        "--quick", action="store_true", help="emulator: smaller sizes, which the budgets are not for"
    )
    parser.add_argument(
        "--repeats",
        type=_at_least(1),
        default=5,
        metavar="N",
        help="runs a median is of (%(default)s; dispatch, gemm and train take 15 or more)",
    )
    parser.add_argument("--out", metavar="FILE", help="write the result file as well")
    _gemm(parser.add_argument_group("gemm"))
    train = parser.add_argument_group("train")
    train.add_argument(
        "--hidden", action="append", default=[], type=int, metavar="H", help="measure this H; may be repeated"
    )
    train.add_argument("--momentum", type=float, metavar="X", help="with this momentum (default: 0.9)")
    parser.add_argument("--markdown", action="store_true", help="print the table of the documentation")
    _finish(parser, "bench")


def _gemm(parser: argparse._ArgumentGroup) -> None:
    """Which products ``bench gemm`` measures, and under what load."""
    parser.add_argument(
        "--suite",
        action="append",
        default=[],
        metavar="NAME",
        help="measure this class, such as large; may be repeated",
    )
    parser.add_argument(
        "--shape", action="append", default=[], metavar="MxNxK",
        help="measure this product, such as 4096x4096x4096, 64x512x512x512 (a stack), 1024x1024x1024:nt (a layout)",
    )  # fmt: skip
    parser.add_argument(
        "--dtype",
        metavar="TYPE",
        help="of the elements: bfloat16 (the default), float16, float32, float64, complex64, complex128, "
        "float8_e4m3fn or int8",
    )
    parser.add_argument(
        "--arithmetic",
        metavar="NAME",
        help="what ours multiplies in, such as exact32 for float32, beside PyTorch's own",
    )
    parser.add_argument(
        "--sustained",
        action="store_true",
        help="under load that lasts, with clocks and power; takes 10 s a product",
    )


_ARGUMENTS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "demo": _demo,
    "ladder": _ladder,
    "run": _run,
    "plan": _plan,
    "profile": _profile,
    "explain": _explain,
    "check": _check,
    "tune": _tune,
    "train": _train,
    "doctor": _doctor,
    "bench": _bench,
}


def _above_zero(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return number


def _not_below_zero(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"must be 0 or above, not {text}")
    return number


def _at_least(least: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {number}")
        return number

    return integer
