"""Programs run in child processes, many in a row, and what became of them.

Never may there be an error that is not tilewise's own, an end by a signal, a launch that goes on past its limit,
memory that grows and grows, or a byte changed outside the arrays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Bench", "Report", "command_line", "outcome", "run"]

SECONDS = 0.5  # that a launch may take
SILENCE = 240.0  # after which a child is taken to hang; compiling counts, and so do other processes
GROWTH = 1 << 30  # bytes that a child may grow by, over all its programs
CANARY = 0xA5
PROGRAMS_OF_A_CHILD = 400
BYTES = 4096  # of an array


class Bench:
    """Arrays to hand to kernels, and bytes around them that nothing may change."""

    def __init__(self) -> None:
        import tilewise as tw

        self.device = tw.device("emulator", threads=2)
        self.canaries = [np.full(1 << 16, CANARY, np.uint8) for _ in range(4)]
        self.arrays: list[Any] = []
        for _ in range(4):
            self.canaries.append(np.full(BYTES, CANARY, np.uint8))
            self.arrays.append(self.device.empty((BYTES,), "uint8"))
        self.seams = []
        for array in self.arrays:
            raw = array._allocation.bytes.base  # the allocation with what lies before and behind
            start = array.ptr - raw.ctypes.data
            self.seams += [raw[:start], raw[start + array.nbytes :]]
        for seam in self.seams:
            seam[:] = CANARY
        self.start = np.arange(BYTES, dtype=np.uint8)

    def fresh(self) -> None:
        for array in self.arrays:
            array.fill(self.start)

    def sound(self) -> bool:
        return all((each == CANARY).all() for each in (*self.canaries, *self.seams))

    def launch(
        self,
        kernel: Any,
        grid: int,
        block: int,
        args: list[Any],
        shared: int,
        cluster: int | None,
        how: tuple[str, Any],
    ) -> None:
        """Launch in a build ("plain", "checked" or "counted") and an order."""
        from tilewise.devices.emulated import open_emulator

        mode, order = how
        if mode == "checked":
            kernel.check(grid, block, args, shared, cluster, order=order, timeout=SECONDS)
        elif mode == "counted":
            kernel.profile(grid, block, args, shared, cluster, timeout=SECONDS)
        else:
            kernel(grid, block, args, shared, cluster, device=open_emulator(order, 2), timeout=SECONDS)


def outcome(run: Callable[[], None], bench: Bench) -> str:
    """What became of a program: the name of its error, or "ran"."""
    import tilewise as tw

    bench.fresh()
    try:
        run()
    except tw.errors.TilewiseError as error:
        text = str(error)
        if "the emulator failed" in text or "compiled" in text:
            cause = error.__cause__
            told = "".join(traceback.format_exception(cause))[-500:] if cause else ""
            return f"!{type(error).__name__}: {text[:300]} {told}"
        return type(error).__name__
    except Exception as error:  # any other is what is looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"!{type(error).__name__}: {str(error)[:200]} at {os.path.basename(where.filename)}:{where.lineno}"
    return "ran" if bench.sound() else "!a byte outside the arrays was changed"


# -- the child ------------------------------------------------------------------------------------------
def child(first: int, count: int, play: Callable[[random.Random, Bench], str]) -> None:
    """Run programs one after another; tell of each when it begins and when it ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    bench = Bench()
    for seed in range(first, first + count):
        out.write(json.dumps([seed]) + "\n")
        started = time.monotonic()
        ended = play(random.Random(seed), bench)
        taken = time.monotonic() - started
        if not bench.sound():
            ended = "!a byte outside the arrays was changed"
        out.write(json.dumps([seed, ended, round(taken, 3), _resident()]) + "\n")


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- the parent -----------------------------------------------------------------------------------------
@dataclass
class Report:
    """What became of many programs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, 0)  # seconds, and the seed
    most: int = 0  # bytes that a child held

    @property
    def count(self) -> int:
        return sum(self.outcomes.values())


def run(module: str, seed: int, count: int, *options: str) -> Report:
    """Run ``count`` programs of a module from ``seed`` on, in children."""
    report, at = Report(), seed
    while at < seed + count:
        at = _one_child(report, module, at, min(PROGRAMS_OF_A_CHILD, seed + count - at), options)
    return report


def _one_child(report: Report, module: str, first: int, count: int, options: tuple[str, ...]) -> int:
    """The seed to go on with."""
    command = [sys.executable, "-m", module, "--child", "--seed", str(first), "--count", str(count), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        running, least = first, 0
        while True:
            if not select.select([process.stdout], [], [], SILENCE)[0]:
                process.kill()
                return _lost(report, running, f"!no answer for {SILENCE:g} s")
            line = process.stdout.readline()
            if not line:
                break
            message = json.loads(line)
            if len(message) == 1:
                running = message[0]
                continue
            seed, ended, taken, resident = message
            least = least or resident
            if resident - least > GROWTH:
                process.kill()
                return _lost(report, seed, f"!{resident - least:,} bytes more than at the start")
            _note(report, seed, ended, taken, resident)
            running = seed + 1
        assert process.stderr is not None
        said = process.stderr.read()
    if process.returncode:
        return _lost(report, running, f"!the process ended with {process.returncode}: {said[-600:]}")
    return first + count


def _note(report: Report, seed: int, ended: str, taken: float, resident: int) -> None:
    report.outcomes[ended.split(":")[0]] += 1
    report.slowest, report.most = max(report.slowest, (taken, seed)), max(report.most, resident)
    if ended.startswith("!"):
        report.wrong.append(f"seed {seed}: {ended[1:]}")


def _lost(report: Report, seed: int, ended: str) -> int:
    _note(report, seed, ended, 0.0, 0)
    return seed + 1


def command_line(
    module: str,
    described: str,
    play: Callable[[argparse.Namespace], Callable[[random.Random, Bench], str]],
    show: Callable[[argparse.Namespace, random.Random], str],
    *flags: tuple[str, str],
) -> None:
    """Run programs and tell what became of them. ``flags`` are options of the module, with their help."""
    parser = argparse.ArgumentParser(description=described)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--show", action="store_true", help="only print the program of this seed")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    for flag, explained in flags:
        parser.add_argument(flag, action="store_true", help=explained)
    options = parser.parse_args()
    if options.child:
        child(options.seed, options.count, play(options))
        return
    if options.show:
        print(show(options, random.Random(options.seed)))
        return
    passed = [flag for flag, _ in flags if getattr(options, flag.strip("-").replace("-", "_"))]
    with contextlib.ExitStack() as stack:
        if "TILEWISE_CACHE_DIR" not in os.environ:
            os.environ["TILEWISE_CACHE_DIR"] = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="tilewise-fuzz-")
            )
        started = time.monotonic()
        report = run(module, options.seed, options.count, *passed)
    for line in report.wrong:
        print(line)
    print(dict(report.outcomes.most_common()))
    taken = time.monotonic() - started
    print(
        f"{report.count} programs in {taken:.0f} s, {len(report.wrong)} wrong; slowest {report.slowest[0]:.2f} s (seed {report.slowest[1]}), {report.most:,} bytes"
    )
    sys.exit(bool(report.wrong))
