"""What the emulator refuses of PTX and in which words, and what it makes of what it accepts: of every instruction many
variants, which ``tests/ptx_variants.py`` makes.

``python -m tests.refusals`` writes ``golden/refusals.txt`` anew, which ``emulator/instructions/test_refusals.py`` compares:
do so after a change that is meant to change what is accepted, or words. ``python -m tests.refusals add cvt`` prints the
variants of some operations with the answers. A line has an operation's name, how many variants there are and are refused, a
hash of these and of the words that refuse each, and one of the code of the others. Below are the words that have to do with
this operation.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import tilewise as tw
from tests.ptx_variants import list_forms, variants_of
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.lowering.lower import lower
from tilewise.emulator.ptx.parse import parse

__all__ = ["COMMAND", "GOLDEN", "PARTS", "answer", "describe_part", "list_blocks"]

COMMAND = "python -m tests.refusals"
GOLDEN = Path(__file__).parent / "golden" / "refusals.txt"
_WATCHED = 12  # one in so many is checked and counted as well
PARTS = 4  # that are compared by themselves
KERNEL = """.version 9.0
.target sm_90a
.address_size 64
{outside}
.visible .entry k(.param .align 64 .b8 pa[128])
{{
  {inside} .reg .pred %p3;
  mov.u32 %w, %tid.x; setp.lt.u32 %p3, %w, 9;
  {line};
{behind}}}
"""
# What an instruction may name, and how that is declared; of more each one takes longer.
_OUTSIDE = {
    r"\bf\b": ".func f() { ret; }", r"\bf2\b": ".func (.param .b32 o) f2(.param .b32 i) { ret; }",
    r"\bgl\b": ".global .align 128 .b8 gl[1024];", r"\bcn\b": ".const .align 128 .b8 cn[64];",
}  # fmt: skip
_INSIDE = {
    "%p": ".reg .pred %p0, %p1, %p2, %p4, %p5;", "%h": ".reg .b16 %h<4>;", "%r": ".reg .b32 %r<{r}>;", "": ".reg .b32 %w;",
    "%f": ".reg .f32 %f<12>;", "%d": ".reg .b64 %d<8>;", "%g": ".reg .f64 %g<12>;", "%q": ".reg .b128 %q<2>;",
    "%b": ".reg .b8 %b1;", r"\bsh\b": ".shared .align 128 .b8 sh[1024];", r"\bm\b": ".shared .align 8 .b64 m;",
    r"\blo\b": ".local .align 128 .b8 lo[64];", r"\bgiven\b": ".param .align 8 .b8 given[8];",
}  # fmt: skip
_BEHIND = {r"\bT\b": "  T: .branchtargets L;\n", r"\bL\b|\bT\b": "  L: ret;\n"}


def kernel_of(line: str) -> str:
    """A kernel of an instruction, with what that names."""
    numbers = [int(number) for number in re.findall(r"%r(\d+)", line)]
    declared = [
        " ".join(text for name, text in names.items() if re.search(name, line))
        for names in (_OUTSIDE, _INSIDE, _BEHIND)
    ]
    inside = declared[1].replace("{r}", str(max((17, *numbers)) + 1))
    return KERNEL.format(outside=declared[0], inside=inside, line=line, behind=declared[2])


def answer(line: str, mode: str = "plain") -> tuple[bool, str]:
    """Whether an instruction is refused; the words of that, or its code."""
    try:
        text = lower(Program(parse(kernel_of(line)), "k", (32, 1, 1)), False, "k", mode).text
    except tw.TilewiseError as error:
        return True, str(error)
    return False, text.replace("readsteadycounter", "readcyclecounter")


# Words that refuse an operand of any instruction.
_OF_ALL = re.compile(
    r"declared|an element of an array|stands where|expected|more than … bits|of a kind that does not|no variable|negated by !|cannot be written"
    r"|destination must be a register$|special register|it has … results|it takes … (sources|operands)$"
    r"|a predicate where a number|so few operands|stands for no value"
)
# What follows these in refusals are names of modifiers, types and shapes: there are many.
_NAMES = re.compile(
    r"(is a part of the opcode, which is written|not the shape|(?:there is no|not with)(?= .*(?:types?|here|tells))"
    r"|registers for|only one of|(?<=does not )fit|(?<=does not )go with).*"
)


def describe_operation(operation: str, instructions: list[str]) -> list[str]:
    """The operation's line, and all words that refuse variants of it and have to do with it alone."""
    refusals, code, words, count = hashlib.sha256(), hashlib.sha256(), set[str](), 0
    for i, line in enumerate(instructions):
        for mode in () if i % _WATCHED else ("checked", "counted"):
            code.update(answer(line, mode)[1].encode())
        refused, text = answer(line)
        (refusals if refused else code).update(f"{line}\n{text}\n".encode())
        if refused:
            count += 1
            words.add(_essence(text))
    hashes = f"{refusals.hexdigest()[:6]}, code {code.hexdigest()[:6]}"
    own = sorted(word for word in words if not _OF_ALL.search(word))
    return [f"{operation}: {count} of {len(instructions)} refused, {hashes}", *(f"  {word}" for word in own)]


def _essence(text: str) -> str:
    """The words of a refusal without its line, the instruction, names and numbers."""
    text = re.sub(r"^PTX line \d+: |'[^']*'", "", text)
    text = re.sub(r"^ ?[a-z][\w.:]*: ", "", text)
    text = re.sub(r"^(the modifier )?\.[\w.:]+", "….", text)
    return _NAMES.sub(lambda found: f"{found[1]} …", re.sub(r"%[\w.]+|(?<![\w.])\d+\b", "…", text))


def describe_part(part: int) -> list[list[str]]:
    """The lines of every fourth operation."""
    listed = itertools.islice(variants_of(list_forms()).items(), part, None, PARTS)
    return [describe_operation(*one) for one in listed]


def list_blocks(text: str) -> list[str]:
    """What is kept of each operation."""
    return re.split(r"\n(?! )", text.rstrip("\n"))


def show(operations: list[str]) -> Iterator[str]:
    """All variants of some operations, with the answers: of code, a hash."""
    found = variants_of(list_forms())
    for line in (line for operation in operations for line in found[operation]):
        refused, text = answer(line)
        yield f"{line}\n    {text if refused else hashlib.sha256(text.encode()).hexdigest()[:6]}"


def main() -> None:
    if operations := sys.argv[1:]:
        print(*show(operations), sep="\n")
        return
    listed = [describe_operation(*one) for one in variants_of(list_forms()).items()]
    GOLDEN.write_text("\n".join(line for lines in listed for line in lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
