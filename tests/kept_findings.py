"""What the checker finds, and how launches end that go wrong, as it is kept: of single accesses at every edge of every space,
of pairs of accesses with all that may lie between them, and of what else programs do wrongly.

``python -m tests.kept_findings`` writes ``golden/findings.txt`` anew, which ``emulator/checking/test_kept_findings.py``
compares: do so after a change that is meant to change findings. ``python -m tests.kept_findings GROUP`` prints the findings
of a group, whole; so what has changed is seen by a comparison of what it prints before and after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import tilewise as tw
from tests.harness import accesses, meetings, misuses
from tests.kept_answers import Groups, run_command
from tilewise.devices.emulated import open_emulator
from tilewise.instruments.checking import Checker
from tilewise.instruments.findings import LEVELS, Finding

__all__ = ["COMMAND", "GOLDEN", "GROUPS", "PARTS", "list_part", "tell"]

COMMAND = "python -m tests.kept_findings"
GOLDEN = Path(__file__).parent / "golden" / "findings.txt"
ORDERS: tuple[str | int, ...] = ("late", "eager", 1, 2)
_ADDRESS = re.compile(r"\b0x[0-9a-f]{9,}\b")
_AWAY = re.compile(
    r"\b\d+,[\d,]+ bytes (before|past the end of) .*?\([\d,]+ bytes\)"
)  # which array is the next is by chance
_FAR = 1 << 41  # from an array: numbers beyond are no addresses
_SHARED_EDGES = (
    -16,
    -4,
    -1,
    0,
    1,
    2,
    4,
    8,
    64,
    1008,
    1016,
    1020,
    1022,
    1023,
    1024,
    1025,
    1031,
    1040,
    1 << 20,
)
_GLOBAL_EDGES = (*_SHARED_EDGES[:-1], -32, 1087)
_SMALL_EDGES = (-8, -1, 0, 2, 4, 8, 48, 56, 60, 62, 63, 64, 65, 80, 1 << 16)
_EDGES = {
    "global": _GLOBAL_EDGES, "shared": _SHARED_EDGES, "cluster": _SHARED_EDGES, "local": _SMALL_EDGES, "const": _SMALL_EDGES,
    "param": (0,), "generic": (-4, 0, 1, 8, 60, 64, 1024),
}  # fmt: skip


@cache
def _device() -> Any:
    return open_emulator(threads=1)


# -- what is told ---------------------------------------------------------------------------------------
def tell(text: str, arrays: Sequence[Any]) -> str:
    """A text with addresses told by the arrays that they are in, or near: those differ from run to run."""

    def name(match: re.Match[str]) -> str:
        address = int(match[0], 16)
        near = [(abs(address - array.ptr), address - array.ptr, i) for i, array in enumerate(arrays)]
        far, away, i = min(near)
        return f"[{'xyzuvw'[i]}{away:+}]" if far <= _FAR else match[0]

    return _ADDRESS.sub(name, _AWAY.sub("far from all arrays", text))


def _tell_findings(found: Sequence[Finding], arrays: Sequence[Any]) -> str:
    """Findings as they are shown, and their plain data."""
    shown = []
    for item in found:
        plain = item.plain()
        plain["address"] = None if item.address is None else hex(item.address)
        told = {name: value for name, value in plain.items() if name not in ("message", "advice")}
        shown.append(tell(f"{item}\n{json.dumps(told, ensure_ascii=False)}", arrays))
    return "\n".join(shown) or "nothing"


def _end(run: Callable[[], object], arrays: Sequence[Any]) -> str:
    """How a run ends: a refusal, a fault, or well."""
    try:
        run()
    except tw.TilewiseError as error:
        details = getattr(error, "details", None)
        details = details and {**asdict(details), "address": hex(details.address)}
        return tell(f"{type(error).__name__}: {error}\n{details}", arrays)
    return "well"


# -- single accesses --------------------------------------------------------------------------------------
@cache
def _access_kernel(space: str) -> tw.Kernel:
    return accesses.make_kernel(space)


def _choices(space: str) -> Iterator[tuple[str, int, int, int, int, int]]:
    """Access, thread, place, kind of a generic address and rank of another block; of all but one the usual."""
    kinds = range(7) if space == "generic" else (0,)
    for which, name in enumerate(accesses.ACCESSES[space]):
        for kind in kinds:
            for number, by in enumerate(_EDGES[space]):
                who = (0, 37, 63, 64, 127)[(which + number + kind) % 5]
                rank = 1 if space != "cluster" or number % 3 else number // 3 % 4
                if by < 1 << 20 or "%g" not in name:  # so far from a global array there may be another one
                    yield name, which, who, by, kind, rank


def _list_accesses(space: str, way: str) -> Iterator[str]:
    """Each access at each place: what the checker finds; or how it ends unchecked."""
    kernel, device = _access_kernel(space), _device()
    for name, which, who, by, kind, rank in _choices(space):
        array = accesses.map_array(device)
        args = accesses.pack_choice(array, which, who, by, kind, rank)
        if way == "checked":
            lenient = space in ("shared", "generic") and which % 4 == 3
            found = kernel.check(2, accesses.BLOCK, args, cluster=2, level="info", lenient=lenient)
            answer = _tell_findings(found, [array])
        else:
            answer = _end(partial(kernel, 2, accesses.BLOCK, args, cluster=2, device=device), [array])
            answer += f"; {int(array.numpy().sum())}"
        yield f"{name} by thread {who} at {by}, kind {kind}, rank {rank}: {answer}"


_SHAPES = (((4, 2, 1), (2, 2, 1)), ((2, 2, 2), (1, 1, 2)), ((4, 1, 2), (2, 1, 2)), ((3, 1, 1), None))


def _list_shapes() -> Iterator[str]:
    """Accesses to other blocks, where blocks of a cluster lie along each axis."""
    kernel, device = _access_kernel("cluster"), _device()
    for grid, cluster in _SHAPES:
        for rank in range(5):
            for which, who, by in ((2, 70, 0), (2, 70, 1024), (9, 129, 2), (12, 3, 1024)):
                array = accesses.map_array(device)
                args = accesses.pack_choice(array, which, who, by, 0, rank)
                found = kernel.check(grid, accesses.BLOCK, args, cluster=cluster, level="info")
                ended = _end(
                    partial(kernel, grid, accesses.BLOCK, args, cluster=cluster, device=device), [array]
                )
                yield f"{grid} in {cluster}, rank {rank}: {which} {who} {by}: {_tell_findings(found, [array])}; {ended}"


# -- pairs of accesses --------------------------------------------------------------------------------------
_THREADS = ((0, 32), (0, 1), (5, 5), (32, 0), (3, 64), (64, 40), (33, 70))


@cache
def _pair_kernel(space: str) -> tw.Kernel:
    return meetings.make_pair_kernel(space)


def _list_pairs(space: str, part: int, parts: int) -> Iterator[str]:
    """Every pair of accesses, each with a few of the ways of meeting, of the threads and of the orders, all in turn."""
    kernel, device = _pair_kernel(space), _device()
    actions, ways = meetings.ACTIONS[space], meetings.MEETINGS
    for one in range(part, len(actions), parts):
        for two in range(len(actions)):
            for turn in (0, 2):
                number = one * 31 + two * 7 + turn * 5
                meeting = (0, number % len(ways), (number * 3 + 11) % len(ways))[turn]
                threads = _THREADS[(one + two + turn) % len(_THREADS)]
                further = (0, 0, 0, 2, 4, 16)[(one + 2 * two + turn) % 6] if one < 17 and two < 17 else 0
                order = ORDERS[(one + two // 2 + turn) % 4]
                twice = (
                    "AWAIT" in actions[one] and "AWAIT" in actions[two]
                )  # one phase, which only one of them gets
                if not twice and _comes(meetings.MEETINGS[meeting], threads):
                    yield _check_pair(kernel, device, (one, meeting, two), threads, further, order, space)


def _comes(meeting: str, threads: tuple[int, int]) -> bool:
    """Whether the second thread gets to see what it waits for: not in the shared memory of another block."""
    one, two = (thread // meetings.BLOCK for thread in threads)
    return one == two or not any(word in meeting for word in ("%met", "[flag]"))


def _check_pair(
    kernel: tw.Kernel, device: Any, what: tuple[int, int, int], threads: tuple[int, int], further: int,
    order: str | int, space: str,
) -> str:  # fmt: skip
    x, flag = device.array(np.zeros(64, np.uint32)), device.array(np.zeros(2, np.uint32))
    args = meetings.pack_pair(x, flag, *what, threads, 16, further)
    found = kernel.check(2, meetings.BLOCK, args, cluster=2, order=order, level="info")
    one, meeting, two = what
    names = f"{meetings.ACTIONS[space][one]} | {meetings.MEETINGS[meeting]} | {meetings.ACTIONS[space][two]}"
    return f"{names}: {threads} {further} {order}: {_tell_findings(found, [x, flag])}"


def _list_meetings(space: str) -> Iterator[str]:
    """Every way of meeting between a write and a read, in every order and of all threads."""
    kernel, device = _pair_kernel(space), _device()
    for meeting in range(len(meetings.MEETINGS)):
        for i, threads in enumerate(_THREADS):
            for order in ORDERS[i % 2 :: 2] if _comes(meetings.MEETINGS[meeting], threads) else ():
                yield _check_pair(kernel, device, (3, meeting, i % 2), threads, 0, order, space)


# -- other things ----------------------------------------------------------------------------------------
@cache
def _misuse_kernel() -> tw.Kernel:
    return misuses.make_kernel([*misuses.MISUSES.values()])


def _list_misuses(group: str) -> Iterator[str]:
    """Each of them in several orders, checked and not."""
    device = _device()
    orders = ORDERS[:2] if group in ("ends", "barriers") else ORDERS  # a fault takes long to describe
    for which, (name, text) in enumerate(misuses.MISUSES.items()):
        if name.split()[0] != group:
            continue
        for number, order in enumerate(orders):
            who = (37, 0, 255, 128)[(which + number) % 4]
            yield f"{name}: {text}: {order}, thread {who}: {_misuse(_misuse_kernel(), which, who, order, device)}"


def _misuse(kernel: tw.Kernel, which: int, who: int, order: str | int, device: Any) -> str:
    x, y = (device.array(np.zeros(256, np.uint32)) for _ in range(2))
    new, floats = device.empty((256,), "uint8"), device.array(np.zeros((8, 8), np.float32))
    args = [x, y, new, which, who, tw.TensorMap(floats, box=(2, 4))]
    lenient = order == 1
    arrays = [x, y, new, floats]
    found = kernel.check(2, misuses.BLOCK, args, cluster=2, order=order, level="info", lenient=lenient)
    plain = partial(kernel, 2, misuses.BLOCK, args, cluster=2, device=open_emulator(order, threads=1))
    return f"{_tell_findings(found, arrays)}; {_end(plain, arrays)}; {int(x.numpy().sum())} {int(y.numpy().sum())}"


def _list_slow() -> Iterator[str]:
    kernel = misuses.make_kernel([*misuses.SLOW.values()])
    for which, name in enumerate(misuses.SLOW):
        x, y, new = (_device().array(np.zeros(256, np.uint32)) for _ in range(3))
        args = [x, y, new, which, 3, bytes(128)]
        found = kernel.check(2, misuses.BLOCK, args, cluster=2, order="eager")
        yield f"{name}: {_tell_findings(found, [x, y, new])}"


def _list_leaks() -> Iterator[str]:
    """Arrays that are still there at the end of a checker, of each level."""
    for level in LEVELS:
        with Checker(level=level) as checker:
            kept = [_device().array(np.zeros(size, np.float32)) for size in (1, 3000)]
            gone = _device().empty((7,), "uint8")
            kept.append(_device().empty((2, 5), "int64"))
            del gone
        found = [
            f"{item.tool} {item.kind}: {item.message}; {item.array}; {item.advice}; {item.level}"
            for item in checker.findings
        ]
        yield f"{level}, {len(kept)} kept: {found}"
    for level in ("none", "Error", ""):
        yield f"{level}: {_end(partial(Checker, level=level), [])}"


# -- all of it -------------------------------------------------------------------------------------------
_HALVES = {"shared": 3, "global": 2, "cluster": 2}  # that pairs are listed in
GROUPS: Groups = {
    **{f"{space} {way}": partial(_list_accesses, space, way) for space in _EDGES for way in ("checked", "run")},
    "clusters along each axis": _list_shapes,
    **{
        f"pairs in {space} {part}": partial(_list_pairs, space, part, parts)
        for space, parts in _HALVES.items() for part in range(parts)
    },
    **{f"meetings in {space}": partial(_list_meetings, space) for space in ("shared", "global", "cluster")},
    **{f"misuses: {group}": partial(_list_misuses, group) for group in dict.fromkeys(name.split()[0] for name in misuses.MISUSES)},
    "nobody gets on": _list_slow,
    "leaks": _list_leaks,
}  # fmt: skip
PARTS = ("shared", "global", "cluster", "others")  # that are compared by themselves: of one kernel each


def list_part(part: str) -> list[str]:
    """The groups of a part."""
    of = {name: next((one for one in PARTS if one in name), "others") for name in GROUPS}
    return [name for name in GROUPS if of[name] == part]


if __name__ == "__main__":
    run_command(GOLDEN, GROUPS)
