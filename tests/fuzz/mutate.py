"""Damaged PTX, run by the emulator: whatever it is, it runs, or it is refused with an error that says why.

    python -m tests.fuzz.mutate --count 5000 --seed 1

Programs run in children (``children.py``), in the plain build, the checked and the counted one, in any order.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from typing import Any

from tests.fuzz import children
from tests.fuzz.children import Bench, Report, command_line, outcome
from tests.fuzz.corpus import Sample, by_hand, compiled

__all__ = ["PARTS", "TYPES", "damaged", "run"]

_TOKEN = re.compile(
    r"//[^\n]*|\"[^\"\n]*\"|[%$A-Za-z_][\w$]*|\.\w+(?:::\w+)*|0[xXfFdD][0-9a-fA-F]+|\d+|\s+|.", re.DOTALL
)
_NUMBERS = [
    "0", "1", "-1", "2", "3", "4", "7", "8", "15", "16", "31", "32", "33", "63", "64", "127", "128", "255", "4095",
    "65535", "65536", "0x7fffffff", "0x80000000", "0xffffffff", "4294967296", "2147483647", "-2147483648",
    "0x7fffffffffffffff", "0xffffffffffffffff", "99999999999999999999", "0f7FC00000", "0fFF800000", "0d7FF0000000000000",
]  # fmt: skip
TYPES = [
    "b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "b128", "f16", "f16x2", "bf16", "bf16x2",
    "f32", "f64", "tf32", "pred", "e4m3x2", "e5m2x2", "f32x2", "v2", "v4", "v8",
]  # fmt: skip
PARTS = [
    "sat", "ftz", "rn", "rz", "rm", "rp", "rni", "rzi", "approx", "full", "lo", "hi", "wide", "cc", "eq", "ne", "lt", "gtu", "num",
    "nan", "and", "or", "xor", "add", "min", "max", "exch", "cas", "inc", "global", "shared", "local", "const", "param", "volatile",
    "relaxed", "acquire", "release", "gpu", "cta", "sys", "sync", "aligned", "arrive", "red", "popc", "up", "down", "bfly", "idx",
    "all", "any", "uni", "ballot", "x1", "x2", "x4", "trans", "row", "col", "m16n8k16", "m8n8", "wrap", "clamp", "NaN", "relu",
    "uni", "nc", "to", "async", "ca", "cg", "bulk", "warp", "finite", "shiftamt", "pack", "satfinite",
    "shared::cta", "shared::cluster", "cluster", "parity", "expect_tx", "complete_tx", "noComplete", "arrive_drop", "init", "inval",
    "test_wait", "try_wait", "noinc", "mbarrier", "mbarrier::complete_tx::bytes", "bulk_group", "commit_group", "wait_group", "read",
    "multicast::cluster", "L2::cache_hint", "tensor", "tile", "im2col", "im2col_no_offs", "1d", "2d", "3d", "4d", "5d", "reduce",
    "prefetch", "L2", "noftz", "replace", "rank", "box_dim", "global_dim", "global_stride", "element_stride", "global_address",
    "elemtype", "swizzle_mode", "fill_mode", "b1024", "mma_async", "sp", "fence", "m64n8k16", "m64n8k32", "m64n16k16", "m64n256k16",
    "m64n8k8", "m64n8k256", "e4m3", "e5m2", "b1", "wait", "proxy", "mbarrier_init", "weak", "wait_all", "dec", "unified",
]  # fmt: skip


def corpus(with_compiler: bool = True) -> list[Sample]:
    """The texts to damage, always in the same order, each as often as it should be chosen."""
    found = {**by_hand(), **(compiled() if with_compiler else {})}
    return [found[name] for name in sorted(found) for _ in range(found[name].weight)]


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
    cluster = sample.cluster if choose.random() < 0.8 else choose.choice([None, 1, 2, 4, 16])
    return sample._replace(
        text="".join(tokens), block=block, cluster=cluster, grid=max(sample.grid, cluster or 1)
    )


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
        tokens[at] = "." + choose.choice(TYPES if choose.random() < 0.6 else PARTS)


def _extend(tokens: list[str], choose: random.Random) -> None:
    if (at := _some(tokens, choose, lambda token: token[0] == "." and len(token) > 1)) is not None:
        tokens.insert(at, "." + choose.choice(PARTS))


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
def _arguments(bench: Bench, parameters: Any, choose: random.Random) -> list[Any]:
    found: list[Any] = []
    for i, parameter in enumerate(parameters):
        if parameter.is_struct and parameter.size == 128:
            found.append(_map(bench, choose))
        elif parameter.is_struct:
            found.append(_struct(bench, min(parameter.size, 1 << 16), choose))
        elif parameter.size == 8:
            found.append(bench.arrays[i % len(bench.arrays)])
        else:
            found.append(choose.choice([5, 5, 64, 0]))
    return found


def _map(bench: Bench, choose: random.Random) -> bytes:
    """A tensor map; now and then, of what damage leaves of it."""
    import tilewise as tw

    made = bytearray(
        tw.TensorMap(bench.arrays[2].ptr, (8, 32), shape=(32, 128), dtype="uint8").encode(bench.device)
    )
    for _ in range(choose.choice([0, 0, 0, 1, 3])):
        made[choose.randrange(128)] = choose.randrange(256)
    return bytes(made)


def _struct(bench: Bench, size: int, choose: random.Random) -> bytes:
    """Zeros, or what a matrix of the ladder's kernels is: sizes, a pitch, an address."""
    if size != 24 or choose.random() < 0.3:
        return bytes(size)
    numbers = [choose.choice([0, 1, 16, 64]) for _ in range(3)]
    return struct.pack("<IIIxxxxQ", *numbers, bench.arrays[choose.randrange(4)].ptr)


def _player(options: Any) -> Callable[[random.Random, Bench], str]:
    samples = corpus(not options.by_hand)

    def play(choose: random.Random, bench: Bench) -> str:
        import tilewise as tw

        sample = damaged(choose.choice(samples), choose)
        mode = choose.choice(["plain"] * 7 + ["checked"] * 2 + ["counted"])
        order = choose.choice(["eager", "late", 1, choose.getrandbits(20)])

        def go() -> None:
            kernel = tw.Kernel.from_ptx(sample.text, sample.entry)
            given = _arguments(bench, kernel.parameters, choose)
            bench.launch(
                kernel, sample.grid, sample.block, given, sample.shared, sample.cluster, (mode, order)
            )

        return outcome(go, bench)

    return play


def _show(options: Any, choose: random.Random) -> str:
    sample = damaged(choose.choice(corpus(not options.by_hand)), choose)
    mode = choose.choice(["plain"] * 7 + ["checked"] * 2 + ["counted"])
    order = choose.choice(["eager", "late", 1, choose.getrandbits(20)])
    return f"{sample.text}\n// {sample._replace(text='')}, {mode}, order {order}"


def run(seed: int, count: int, with_compiler: bool = True) -> Report:
    """Run ``count`` damaged programs from ``seed`` on, in children."""
    return children.run("tests.fuzz.mutate", seed, count, *([] if with_compiler else ["--by-hand"]))


if __name__ == "__main__":
    command_line(
        "tests.fuzz.mutate", str(__doc__), _player, _show, ("--by-hand", "only texts that need no compiler")
    )
