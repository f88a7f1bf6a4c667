"""Instructions in forms that do not exist: other operands, more or fewer of them, words left out and put in.

Each is compiled, in one of the builds, and not run: it compiles, or is refused by an error that says why.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable

from tests.fuzz.children import Bench, command_line, outcome
from tests.fuzz.corpus import by_hand
from tests.fuzz.mutate import PARTS, TYPES

__all__ = ["text"]

_REGISTERS = (
    ".reg .b32 %t, %n, %v<4>, %w<12>, %d<8>, %r<12>, %i, %bar, %tile; .reg .f32 %f<12>; .reg .f64 %g<4>;"
    " .reg .b64 %a, %o, %s, %m, %x<8>, %wide; .reg .b16 %h<6>; .reg .pred %p<5>; .reg .b128 %q<2>;"
    " .shared .align 1024 .b8 room[12288]; .shared .align 16 .b8 sm[2048]; .local .align 16 .b8 lo[64];"
)
_SET = "mov.u32 %t, %tid.x; setp.lt.u32 %p0, %t, 7; cvt.u64.u32 %x0, %t; mov.b32 %w0, %t; mov.b32 %w1, %t;"
_OPERANDS = [
    "%w0", "%x0", "%h0", "%p0", "%f0", "%g0", "%q0", "[%w0]", "[%x0]", "[%x0+8]", "[room]", "[room+4]", "room", "[a]", "lo", "[lo]",
    "0", "1", "-1", "5", "16", "0xffffffff", "0f3f800000", "0d3ff0000000000000", "{%w0, %w1}", "{%w0, %w1, %w2, %w3}", "{%d0}", "{}",
    "{%x0, %x1}", "{%p0}", "[%x0, {%w0, %w1}]", "[%x0, {%w0}]", "[%m, {%w0, %w1, %w2}]", "[%x0, {1, 2}]", "[%x0, %w0]", "{%w0, {%w1}}",
    "!%p0", "-%w0", "%p0|%p1", "%w0|%p0", "_", "%tid.x", "%laneid", "%clock64", "k", "nowhere", "{1, 2}", "[5]", "[0]", "[%h0]",
    "[%p0]", "{_, _}", "%w0.b0", "[%q0]", "{%h0, %h1}", "[%tid.x]", "[[%x0]]", "{[%x0], %w0}", "[{%w0}]",
]  # fmt: skip
_SKIPPED = (".", "bra", "ret", "exit", "{", "}", "call", "brx")


@functools.cache
def _instructions() -> list[str]:
    """Every instruction of the texts by hand, without labels and guards."""
    found = set()
    for sample in by_hand().values():
        body = sample.text[sample.text.index("{") + 1 : sample.text.rindex("}")]
        for line in body.split(";"):
            line = re.sub(r"^(\w+:)?\s*(@!?%p\d+ )?", "", line.strip()).strip()
            if line and not line.startswith(_SKIPPED) and ":" not in line.split()[0].replace("::", ""):
                found.add(" ".join(line.split()))
    return sorted(found)


def _operands(listed: str) -> list[str]:
    found, depth = [""], 0
    for letter in listed:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [item.strip() for item in found if item.strip()]


def _changed(instruction: str, choose: random.Random) -> str:
    name, _, listed = instruction.partition(" ")
    parts, operands = name.split("."), _operands(listed)
    for _ in range(choose.choice([1, 1, 1, 2, 2, 3])):
        kind = choose.randrange(9)
        at = choose.randrange(len(operands)) if operands else 0
        if kind == 0 and operands:
            del operands[at]
        elif kind == 1:
            operands.insert(
                at,
                choose.choice(operands) if operands and choose.random() < 0.4 else choose.choice(_OPERANDS),
            )
        elif kind < 5 and operands:
            operands[at] = choose.choice(_OPERANDS)
        elif kind == 5 and len(parts) > 1:
            del parts[choose.randrange(1, len(parts))]
        elif kind == 6:
            parts.insert(choose.randrange(1, len(parts) + 1), choose.choice(PARTS + TYPES))
        elif kind == 7 and len(parts) > 1:
            parts[choose.randrange(1, len(parts))] = choose.choice(PARTS + TYPES)
        elif operands:
            other = choose.randrange(len(operands))
            operands[at], operands[other] = operands[other], operands[at]
    return f"{'.'.join(parts)} {', '.join(operands)};"


def text(choose: random.Random) -> str:
    """A kernel of one changed instruction."""
    guard = choose.choice(["", "", "@%p0 ", "@!%p1 "])
    line = guard + _changed(choose.choice(_instructions()), choose)
    start = _SET if choose.random() < 0.7 else ""
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n"
    entry = ".visible .entry k(.param .u64 a, .param .u64 o, .param .align 64 .b8 m[128])"
    return f"{head}{entry}\n{{\n{_REGISTERS}\n{start}\n{line}\nst.shared.u32 [room], %w0;\nret;\n}}\n"


def play(choose: random.Random, bench: Bench) -> str:
    made, mode = text(choose), choose.choice(["plain", "plain", "checked", "counted", "traced"])

    def go() -> None:
        import tilewise as tw
        from tilewise.emulator import build_kernel, host_cpu
        from tilewise.toolchain import cache

        tw.Kernel.from_ptx(made, "k")
        # The cache saves each child the compiling of the emulator's run-time support.
        build_kernel(made, "k", (128, 1, 1), host_cpu(), cache.default(), mode)

    return outcome(go, bench)


def _player(_: object) -> Callable[[random.Random, Bench], str]:
    return play


if __name__ == "__main__":
    command_line("tests.fuzz.forms", str(__doc__), _player, lambda _, choose: text(choose))
