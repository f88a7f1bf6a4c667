"""What tilewise/wgmma.cuh writes out for every width of a tile, of which a compilation sees one or two."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tilewise
from tilewise.kernels import KERNELS

HEADER = (Path(tilewise.__file__).parent / "include/tilewise/wgmma.cuh").read_text()
OF_WIDTHS = re.findall(r"^#define TILEWISE_ALL_OF_(\d+) (.*)$", HEADER.replace("\\\n", " "), re.MULTILINE)


def numbers(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"\b\d+\b", text)]


@pytest.mark.parametrize(
    ("macro", "columns", "operands"),
    [("TILEWISE_WIDTHS", 2, 7), ("TILEWISE_WIDTH", 4, 7), ("TILEWISE_FROM_REGISTERS", 2, 21)],
)
def test_operands_are_numbered_in_turn_behind_the_sums(macro: str, columns: int, operands: int) -> None:
    """A register of sums stands for so many columns of the tile."""
    widths = set()
    for of_width, text in OF_WIDTHS:
        for row in re.findall(rf"\b{macro}\((\d[^)]*)\)", text):
            width, count, *numbered = numbers(row)
            assert (count * columns, numbered) == (width, list(range(count, count + operands))), row
            assert width == int(of_width), row
            widths.add(width)
    of_tiles = {numbers(str(one).replace("x", " "))[1] for one in KERNELS["wgmma"].settings["partition"]}
    assert widths and widths <= of_tiles
    assert macro == "TILEWISE_FROM_REGISTERS" or widths == of_tiles


def test_all_widths_are_compiled_where_a_kernel_does_not_say_which() -> None:
    assert re.findall(r"^TILEWISE_ALL_OF_(\d+)$", HEADER, re.MULTILINE) == [width for width, _ in OF_WIDTHS]


def test_registers_of_sums_are_listed_in_turn() -> None:
    lists: dict[int, list[int]] = {0: []}
    for name, before, text in re.findall(
        r'^#define TILEWISE_LIST_(\d+) (?:TILEWISE_LIST_(\d+) )?"(.*)"$', HEADER, re.M
    ):
        lists[int(name)] = [*lists[int(before or 0)], *numbers(text)]
    given = {2: [0, 1]}
    pair = (
        r"^#define TILEWISE_(\d+)\(KIND, i\) TILEWISE_(\d+)\(KIND, i\), TILEWISE_(\d+)\(KIND, i \+ (\d+)\)$"
    )
    for name, first, second, at in (map(int, found) for found in re.findall(pair, HEADER, re.M)):
        given[name] = [*given[first], *(at + one for one in given[second])]
    assert all(listed == list(range(count)) for count, listed in (*lists.items(), *given.items()))
    assert {*lists} - {0} == {*given}


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        ("wgmma", {}),
        ("wgmma", {"partition": "64x64x64"}),
        ("wgmma", {"result": "float32"}),
        ("13_warp_specialised", {}),
        ("13_warp_specialised", {"cluster": 1, "result": "float32"}),
    ],
)
def test_no_block_ends_before_its_results_have_been_read(kernel: str, settings: dict[str, Any]) -> None:
    """The engine reads them in the block's shared memory, which others get as soon as it has ended."""
    spec = KERNELS[kernel]
    ptx = spec.kernel("sm_90a", **settings).ptx
    (body,) = (one for one in re.split(r"\.entry\s+", ptx) if one.startswith(f"{spec.entries[0]}("))
    parts = re.split(r"cp\.async\.bulk\.tensor\.[24]d\.global\.shared::cta\S*", body)
    assert len(parts) > 1 and "cp.async.bulk.commit_group" in parts[-1]
    behind = parts[-1].rpartition("cp.async.bulk.commit_group")[2]
    assert re.search(r"cp\.async\.bulk\.wait_group(\.read)? 0;.*\bret;", behind, re.S), behind[-500:]
