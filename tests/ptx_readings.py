"""What is read of the texts of ``tests/ptx_texts.py``: the words of a refusal; or of what is accepted, which variables,
parameters and clusters there are, how many bytes and instructions, and a hash of the code.

``python -m tests.ptx_readings`` writes ``golden/ptx_readings.txt`` anew, which ``emulator/running/test_ptx_readings.py``
compares: do so after a change that is meant to change what a text means, or words.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
from pathlib import Path

import tilewise as tw
from tests.ptx_texts import BLOCKS, BUILT, FRAMES, TEXTS, list_expressions
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.analysis.variable_layout import initial_content
from tilewise.emulator.lowering.lower import lower
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import PtxModule

__all__ = ["COMMAND", "GOLDEN", "GROUPS", "describe_group"]

COMMAND = "python -m tests.ptx_readings"
GOLDEN = Path(__file__).parent / "golden" / "ptx_readings.txt"
GROUPS = (*TEXTS, "constants")
_SHOWN = 24  # bytes of initial content
_LONG = 30
_SINGLE = ("several operators", "deep")  # those that have a line each
_DECLARED = re.compile(r"\.(?:global|const|shared) [^;@]*?(\w+)(?:\[\w+\])?(?: = [^;]*)?;")
_USUAL = ("9.0 sm_90a", "parameters [(0, 8)]", "const 8")  # of most texts


def describe_group(group: str) -> str:
    """A line for each text of a group; for several that one stands for, that one above and what they differ by."""
    if group == "constants":
        return "\n".join(_constants(name, listed) for name, listed in list_expressions().items())
    lines: list[str] = []
    known = frozenset(prefix + name for name in _DECLARED.findall(FRAMES[group]) for prefix in ("", "k::"))
    for line in TEXTS[group].strip().splitlines():
        texts = expand(line)
        lines += [line] if len(texts) > 1 else []
        for chosen, text in texts:
            whole = FRAMES[group].replace("¤", text.replace("\\n", "\n").replace("\\0", "\0"))
            answer = builds(whole) if group in BUILT else read(whole, known, BLOCKS.get(group, (64, 1, 1)))
            lines.append(f"  {chosen if len(texts) > 1 else text} | {answer}")
    return "\n".join(lines)


def expand(line: str) -> list[tuple[str, str]]:
    """The texts that a line stands for, behind the words that each has where there is a choice."""
    pieces = re.split("[«»]", line)  # every other one is a choice
    choices = [piece.split("¦") if i % 2 else [piece] for i, piece in enumerate(pieces)]
    return [(" ¦ ".join(one[1::2]), "".join(one)) for one in itertools.product(*choices)]


def read(text: str, known: frozenset[str] = frozenset(), block: tuple[int, int, int] = (64, 1, 1)) -> str:
    """What a user is told of a text, or what the kernel ``k`` of it is, but for variables that are ``known``."""
    try:
        module = parse(text)
        program = Program(module, "k", block)
        code = lower(program, False, "k").text
    except tw.TilewiseError as error:
        return str(error).replace("PTX line ", "").replace("\0", "\\0")
    function = program.function
    places = [(program.places[one.name].offset, one.size) for one in function.parameters]
    found = {
        "": f"{module.version[0]}.{module.version[1]} {module.target}",
        "parameters ": places, "cluster ": function.cluster, "at most ": function.max_cluster,
        "explicit ": function.explicit_cluster, "grid of clusters ": function.blocks_are_clusters,
        "shared ": program.shared_bytes, "local ": program.local_bytes, "const ": program.constant_bytes,
    }  # fmt: skip
    shown = [f"{name}{value}" for name, value in found.items() if value]
    return " ".join(
        (
            *(one for one in shown if one not in _USUAL),
            *variables_of(module, known),
            hashlib.sha256(code.encode()).hexdigest()[:6],
        )
    )


def builds(text: str) -> str:
    """A hash for each build of a kernel: the fast one and the general one, plain, counted and checked."""
    found = []
    for mode, general in itertools.product(("plain", "counted", "checked"), (False, True)):
        try:
            code = lower(Program(parse(text), "k", (64, 1, 1)), general, "k", mode).text
        except tw.TilewiseError as error:
            return str(error).replace("PTX line ", "")
        found.append(_hash(code))
    return " ".join(found)


def _hash(code: str) -> str:
    return hashlib.sha256(code.replace("readsteadycounter", "readcyclecounter").encode()).hexdigest()[:6]


def variables_of(module: PtxModule, known: frozenset[str]) -> list[str]:
    """The variables of a module: where, of what, how aligned, how many bytes, and those that it begins with."""
    found = []
    for name, one in module.variables.items():
        if name in known:
            continue
        what = f"{name}.{one.space} {one.type}×{one.count}/{one.align} {one.size}"
        if one.space in ("global", "const") and (one.data or one.links):
            content = initial_content(module, name)
            what += f"={content.data[:_SHOWN].hex()}{''.join(f'&{link}' for link in content.links)}"
        found.append(what)
    return found


def _constants(name: str, expressions: list[str]) -> str:
    """What constant expressions come to, those with one operator by their second number."""
    values = [f"{_short(one.removeprefix(name).strip())} → {_value(one)}" for one in expressions]
    return (
        "\n".join((name, *(f"  {one}" for one in values)))
        if name in _SINGLE
        else f"{name} | {'; '.join(values)}"
    )


def _short(text: str) -> str:
    """An expression; of a long one its beginning, its end and how long it is."""
    return text if len(text) <= _LONG else f"{text[:3]}…{text[-3:]}({len(text)})"


def _value(expression: str) -> str:
    """An integer, or else a double."""
    found = ""
    for type_, code in (("s64", "<q"), ("f64", "<d")):
        text = f".version 9.0\n.target sm_90\n.global .{type_} v = {expression};"
        try:
            data = parse(text).variables["v"].data or b""
        except tw.TilewiseError as error:
            found = found or str(error).removeprefix("PTX line 3: ")
        else:
            return str(struct.unpack(code, data.ljust(8, b"\0"))[0])
    return found


def main() -> None:
    groups = (f"[{group}]\n{describe_group(group)}\n" for group in GROUPS)
    GOLDEN.write_text("\n".join(groups), encoding="utf-8")


if __name__ == "__main__":
    main()
