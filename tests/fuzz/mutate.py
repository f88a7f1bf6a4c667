"""Damaged PTX, run by the emulator: whatever it is, it runs, or it is refused with an error that says why.

    python -m tests.fuzz.mutate --count 5000 --seed 1

Each program runs in a child process, many in a row. Never may there be an error that is not tilewise's own,
an end by a signal, a launch that goes on past its limit, memory that grows and grows, or a byte changed
outside the arrays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.corpus import Sample, by_hand, compiled

__all__ = ["Report", "damaged", "run"]

SECONDS = 0.5  # that a launch may take
SILENCE = 60.0  # after which a child is taken to hang; compiling counts, and so do other processes
GROWTH = 1 << 30  # bytes that a child may grow by, over all its programs
CANARY = 0xA5
PROGRAMS_OF_A_CHILD = 400
_TOKEN = re.compile(
    r"//[^\n]*|\"[^\"\n]*\"|[%$A-Za-z_][\w$]*|\.\w+(?:::\w+)*|0[xXfFdD][0-9a-fA-F]+|\d+|\s+|.", re.DOTALL
)
_NUMBERS = [
    "0", "1", "-1", "2", "3", "4", "7", "8", "15", "16", "31", "32", "33", "63", "64", "127", "128", "255", "4095",
    "65535", "65536", "0x7fffffff", "0x80000000", "0xffffffff", "4294967296", "2147483647", "-2147483648",
    "0x7fffffffffffffff", "0xffffffffffffffff", "99999999999999999999", "0f7FC00000", "0fFF800000", "0d7FF0000000000000",
]  # fmt: skip
_TYPES = [
    "b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "b128", "f16", "f16x2", "bf16", "bf16x2",
    "f32", "f64", "tf32", "pred", "e4m3x2", "e5m2x2", "f32x2", "v2", "v4", "v8",
]  # fmt: skip
_PARTS = [
    "sat", "ftz", "rn", "rz", "rm", "rp", "rni", "rzi", "approx", "full", "lo", "hi", "wide", "cc", "eq", "ne", "lt", "gtu", "num",
    "nan", "and", "or", "xor", "add", "min", "max", "exch", "cas", "inc", "global", "shared", "local", "const", "param", "volatile",
    "relaxed", "acquire", "release", "gpu", "cta", "sys", "sync", "aligned", "arrive", "red", "popc", "up", "down", "bfly", "idx",
    "all", "any", "uni", "ballot", "x1", "x2", "x4", "trans", "row", "col", "m16n8k16", "m8n8", "wrap", "clamp", "NaN", "relu",
    "uni", "nc", "to", "async", "ca", "cg", "bulk", "warp", "finite", "shiftamt", "pack", "satfinite",
]  # fmt: skip


def corpus(with_compiler: bool = True) -> list[Sample]:
    """The texts to damage, always in the same order."""
    found = {**by_hand(), **(compiled() if with_compiler else {})}
    return [found[name] for name in sorted(found)]


# -- damage ---------------------------------------------------------------------------------------------
def damaged(sample: Sample, choose: random.Random) -> Sample:
    """A sample with a few things changed."""
    kind = choose.random()
    if kind < 0.02:
        return sample._replace(text=_rubbish(choose))
    if kind < 0.06:
        return sample._replace(text=_bytes(sample.text, choose))
    tokens = _TOKEN.findall(sample.text)
    for _ in range(choose.choice([1, 1, 1, 2, 3, 6])):
        choose.choice(_DAMAGES)(tokens, choose)
    block = choose.choice([sample.block] * 6 + [1, 33, 48, 100, 1024])
    return sample._replace(text="".join(tokens), block=block)


def _rubbish(choose: random.Random) -> str:
    words = [
        "{",
        "}",
        "(",
        ")",
        ";",
        ":",
        ",",
        "[",
        "]",
        ".reg",
        ".b32",
        "%r1",
        "add.u32",
        "bra",
        "L",
        "@",
        "|",
        "<",
        "9",
        "-",
        "=",
        ".entry",
        "k",
    ]
    text = " ".join(choose.choice(words) for _ in range(choose.randint(1, 200)))
    head = ".version 9.0\n.target sm_90\n.address_size 64\n" if choose.random() < 0.8 else ""
    return head + (f".entry k() {{ {text} }}" if choose.random() < 0.5 else ".entry k() { ret; }" + text)


def _bytes(text: str, choose: random.Random) -> str:
    data = bytearray(text.encode())
    for _ in range(choose.randint(1, 8)):
        at = choose.randrange(len(data))
        if choose.random() < 0.5:
            data[at] = choose.randint(1, 255)
        else:
            del data[at : at + choose.randint(1, 40)]
    return data.decode("latin-1")


def _places(tokens: list[str], good: Callable[[str], bool]) -> list[int]:
    return [i for i, token in enumerate(tokens) if good(token)]


def _some(tokens: list[str], choose: random.Random, good: Callable[[str], bool]) -> int | None:
    places = _places(tokens, good)
    return choose.choice(places) if places else None


def _solid(token: str) -> bool:
    return not token.isspace() and not token.startswith("//")


def _delete(tokens: list[str], choose: random.Random) -> None:
    if (at := _some(tokens, choose, _solid)) is not None:
        del tokens[at]


def _repeat(tokens: list[str], choose: random.Random) -> None:
    if (at := _some(tokens, choose, _solid)) is not None:
        tokens.insert(at, tokens[at] + choose.choice(["", " "]))


def _swap(tokens: list[str], choose: random.Random) -> None:
    a, b = _some(tokens, choose, _solid), _some(tokens, choose, _solid)
    if a is not None and b is not None:
        tokens[a], tokens[b] = tokens[b], tokens[a]


def _renumber(tokens: list[str], choose: random.Random) -> None:
    if (at := _some(tokens, choose, lambda token: token[0].isdigit())) is not None:
        tokens[at] = choose.choice([*_NUMBERS, str(choose.getrandbits(choose.randint(1, 64)))])


def _rename(tokens: list[str], choose: random.Random) -> None:
    """Another register, or another name that the text has."""
    at = _some(tokens, choose, lambda token: token[0] in "%")
    other = _some(tokens, choose, lambda token: token[0] in "%$_" or token[0].isalpha())
    if at is not None and other is not None:
        tokens[at] = tokens[other]


def _relabel(tokens: list[str], choose: random.Random) -> None:
    names = {tokens[i - 1] for i, token in enumerate(tokens) if token == ":" and i}
    if names and (at := _some(tokens, choose, names.__contains__)) is not None:
        tokens[at] = choose.choice(sorted(names))


def _retype(tokens: list[str], choose: random.Random) -> None:
    if (at := _some(tokens, choose, lambda token: token[0] == "." and len(token) > 1)) is not None:
        tokens[at] = "." + choose.choice(_TYPES if choose.random() < 0.6 else _PARTS)


def _extend(tokens: list[str], choose: random.Random) -> None:
    if (at := _some(tokens, choose, lambda token: token[0] == "." and len(token) > 1)) is not None:
        tokens.insert(at, "." + choose.choice(_PARTS))


def _exchange_words(tokens: list[str], choose: random.Random) -> None:
    """Two opcodes, or whatever words."""
    a = _some(tokens, choose, lambda token: token[0].isalpha())
    b = _some(tokens, choose, lambda token: token[0].isalpha())
    if a is not None and b is not None:
        tokens[a] = tokens[b]


def _cut(tokens: list[str], choose: random.Random) -> None:
    if choose.random() < 0.3:
        del tokens[choose.randrange(len(tokens)) :]
        return
    at = choose.randrange(len(tokens))
    del tokens[at : at + choose.randint(1, 12)]


def _copy_lines(tokens: list[str], choose: random.Random) -> None:
    """A few lines, at another place."""
    lines = "".join(tokens).split("\n")
    first = choose.randrange(len(lines))
    some = lines[first : first + choose.randint(1, 4)]
    at = choose.randrange(len(lines))
    tokens[:] = _TOKEN.findall("\n".join([*lines[:at], *some, *lines[at:]]))


def _guard(tokens: list[str], choose: random.Random) -> None:
    """A guard before an instruction."""
    predicates = [token for token in tokens if re.fullmatch(r"%p\d+", token)]
    places = _places(tokens, lambda token: token == ";")
    if predicates and places:
        tokens.insert(choose.choice(places) + 1, f"\n@{choose.choice(['', '!'])}{choose.choice(predicates)} ")


_DAMAGES = [
    _delete, _repeat, _swap, _renumber, _renumber, _rename, _rename, _relabel, _retype, _retype, _extend, _exchange_words, _cut,
    _copy_lines, _guard,
]  # fmt: skip


# -- the child ------------------------------------------------------------------------------------------
class Bench:
    """Arrays to hand to kernels, and bytes around them that nothing may change."""

    def __init__(self) -> None:
        import tilewise as tw

        self.device = tw.device("emulator", threads=2)
        self.canaries = [np.full(1 << 16, CANARY, np.uint8) for _ in range(4)]
        self.arrays: list[Any] = []
        for _ in range(4):
            self.canaries.append(np.full(4096, CANARY, np.uint8))
            self.arrays.append(self.device.empty((4096,), "uint8"))
        self.seams = []
        for array in self.arrays:
            raw = array._allocation.bytes.base  # the allocation with what lies before and behind
            start = array.ptr - raw.ctypes.data
            self.seams += [raw[:start], raw[start + array.nbytes :]]
        for seam in self.seams:
            seam[:] = CANARY
        self.start = np.arange(4096, dtype=np.uint8)

    def arguments(self, parameters: Any) -> list[Any]:
        found: list[Any] = []
        for i, parameter in enumerate(parameters):
            if parameter.is_struct:
                found.append(bytes(min(parameter.size, 1 << 16)))
            elif parameter.size == 8:
                found.append(self.arrays[i % len(self.arrays)])
            else:
                found.append(5)
        return found

    def fresh(self) -> None:
        for array in self.arrays:
            array.fill(self.start)

    def sound(self) -> bool:
        return all((each == CANARY).all() for each in (*self.canaries, *self.seams))


def outcome(sample: Sample, bench: Bench) -> str:
    """What became of a program: the name of its error, or "ran"."""
    import tilewise as tw

    bench.fresh()
    try:
        kernel = tw.Kernel.from_ptx(sample.text, sample.entry)
        arguments = bench.arguments(kernel.parameters)
        kernel(sample.grid, sample.block, arguments, shared=64, device=bench.device, timeout=SECONDS)
    except tw.errors.TilewiseError as error:
        text = str(error)
        if "the emulator failed" in text or "compiled" in text:
            return f"!{type(error).__name__}: {text[:300]}"
        return type(error).__name__
    except Exception as error:  # any other is what is looked for
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"!{type(error).__name__}: {str(error)[:200]} at {os.path.basename(where.filename)}:{where.lineno}"
    return "ran" if bench.sound() else "!a byte outside the arrays was changed"


def child(first: int, count: int, with_compiler: bool) -> None:
    """Run programs one after another; tell of each when it begins and when it ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    samples, bench = corpus(with_compiler), Bench()
    for seed in range(first, first + count):
        out.write(json.dumps([seed]) + "\n")
        choose = random.Random(seed)
        started = time.monotonic()
        ended = outcome(damaged(choose.choice(samples), choose), bench)
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
    slowest: float = 0.0
    most: int = 0  # bytes that a child held

    @property
    def count(self) -> int:
        return sum(self.outcomes.values())


def run(seed: int, count: int, with_compiler: bool = True) -> Report:
    """Run ``count`` programs from ``seed`` on, in children."""
    report, at = Report(), seed
    while at < seed + count:
        at = _one_child(report, at, min(PROGRAMS_OF_A_CHILD, seed + count - at), with_compiler)
    return report


def _one_child(report: Report, first: int, count: int, with_compiler: bool) -> int:
    """The seed to go on with."""
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.mutate",
        "--child",
        "--seed",
        str(first),
        "--count",
        str(count),
    ]
    command += [] if with_compiler else ["--by-hand"]
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
    report.slowest, report.most = max(report.slowest, taken), max(report.most, resident)
    if ended.startswith("!"):
        report.wrong.append(f"seed {seed}: {ended[1:]}")


def _lost(report: Report, seed: int, ended: str) -> int:
    _note(report, seed, ended, 0.0, 0)
    return seed + 1


def main() -> None:
    """Run damaged programs and tell what became of them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--by-hand", action="store_true", help="only texts that need no compiler")
    parser.add_argument("--show", action="store_true", help="only print the program of this seed")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.seed, options.count, not options.by_hand)
        return
    if options.show:
        choose = random.Random(options.seed)
        print(damaged(choose.choice(corpus(not options.by_hand)), choose))
        return
    with contextlib.ExitStack() as stack:
        if "TILEWISE_CACHE_DIR" not in os.environ:
            os.environ["TILEWISE_CACHE_DIR"] = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="tilewise-fuzz-")
            )
        started = time.monotonic()
        report = run(options.seed, options.count, not options.by_hand)
    for line in report.wrong:
        print(line)
    print(dict(report.outcomes.most_common()))
    taken = time.monotonic() - started
    print(
        f"{report.count} programs in {taken:.0f} s, {len(report.wrong)} wrong; slowest {report.slowest:.2f} s, {report.most:,} bytes"
    )
    sys.exit(bool(report.wrong))


if __name__ == "__main__":
    main()
