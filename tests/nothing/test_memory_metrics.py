"""Metrics of shared and global memory by operation, of made-up accesses whose figures are powers of two."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewise.errors import ArgumentError
from tilewise.instruments.machine import MachineAccess
from tilewise.instruments.metric import ESTIMATED, EXACT, Metric
from tilewise.instruments.metrics import _bytes, _global, _shared, select_names
from tilewise.toolchain.lines import MachineInstruction


def access(space: str, op: str, **given: float) -> MachineAccess:
    """An access whose sums over two multiprocessors are those that are given, and else 0."""
    names = "runs", "waves", "phases", "ideal", "sectors", "ideal_sectors", "bytes", "touched"
    sums: dict[str, Any] = {name: np.array([given.get(name, 0), 0.0]) for name in names}
    return MachineAccess(MachineInstruction(0, "NOP"), op, space, 32, **sums)


def sums_of(metrics: Iterable[Metric]) -> dict[str, float]:
    return {
        one.name.removesuffix(".sum"): one.value for one in metrics if one.name.endswith((".sum", ".ratio"))
    }


def test_global_memory() -> None:
    """For the L1 an asynchronous copy is a load, too; of a warp's sectors those count that are touched."""
    runs = {op: 1 << i for i, op in enumerate(("ld", "st", "atom", "red", "ldgsts", "tma_ld"))}
    made = [
        access("global", op, runs=many, sectors=100 * many, touched=7 * many, bytes=9 * many)
        for op, many in runs.items()
    ]
    made.append(access("shared", "ld", runs=1 << 20, sectors=1 << 20, touched=1 << 20, bytes=1 << 20))
    found = sums_of(_global(made, 2, EXACT)) | sums_of(_bytes(made, 2, EXACT))
    for op in ("ld", "st", "atom", "red", "ldgsts"):
        own, seen = runs[op], runs[op] + (runs["ldgsts"] if op == "ld" else 0)
        for name, expected in {
            f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}": seen,
            f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}": 100 * seen,
            f"l1tex__t_bytes_pipe_lsu_mem_global_op_{op}": 3200 * seen,
            f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{op}.ratio": 100,
            f"smsp__sass_l1tex_t_requests_pipe_lsu_mem_global_op_{op}": own,
            f"smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_{op}": 7 * own,
            f"smsp__sass_inst_executed_op_global_{op}": own,
            f"sm__sass_inst_executed_op_global_{op}": own,
            f"tilewise__bytes_global_op_{op}": 9 * own,
        }.items():
            assert found[name] == expected, name


def test_shared_memory() -> None:
    """For the L1 matrices are loaded and stored as the rest; a warp's instructions are told apart."""
    ops = ("ld", "st", "atom", "ldsm", "stsm", "gmma", "ldgsts")
    runs = {op: 1 << i for i, op in enumerate(ops)}
    made = [
        access("shared", op, runs=many, waves=5 * many, phases=2 * many, ideal=3 * many, bytes=9 * many)
        for op, many in runs.items()
    ]
    made.append(access("global", "ld", runs=1 << 20, waves=1 << 20, bytes=1 << 20))
    found = sums_of(_shared(made, 2, EXACT)) | sums_of(_bytes(made, 2, EXACT))
    every, loads, stores = (
        ("ld", "st", "ldsm", "stsm", "atom", "ldgsts", "gmma"),
        ("ld", "ldsm"),
        ("st", "stsm"),
    )
    alone = {f"_op_{op}": (op,) for op in ("ld", "st", "atom", "ldsm", "stsm", "ldgsts")}
    of_l1 = {
        "_op_ld": loads,
        "_op_st": stores,
        "_op_atom": ("atom",),
        "_op_ldgsts": ("ldgsts",),
        "_op_gmma": ("gmma",),
    }
    for family, suffixes in (("l1tex__", of_l1), ("smsp__sass_l1tex_", alone), ("sm__sass_l1tex_", alone)):
        for suffix, some in {"": every, **suffixes}.items():
            many = sum(runs[op] for op in some)
            assert found.pop(f"{family}data_pipe_lsu_wavefronts_mem_shared{suffix}") == 5 * many, (
                family,
                suffix,
            )
            assert found.pop(f"{family}data_bank_conflicts_pipe_lsu_mem_shared{suffix}") == 3 * many, (
                family,
                suffix,
            )
    executed = {f"shared_{op}": runs[op] for op in ("ld", "st", "atom")} | {
        op: runs[op] for op in ("ldsm", "ldgsts")
    }
    executed["shared"] = sum(runs[op] for op in every if op != "ldgsts")
    for name, many in executed.items():
        assert [found.pop(f"{owner}_inst_executed_op_{name}") for owner in ("smsp__sass", "sm__sass")] == [
            many
        ] * 2, name
    total = sum(runs.values())
    assert {name: value for name, value in found.items() if not name.endswith(".ratio")} == {
        "smsp__sass_l1tex_pipe_lsu_wavefronts_mem_shared": 5 * total,
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_ideal": 3 * total,
        **{f"tilewise__bytes_shared_op_{op}": 9 * runs[op] for op in ops},
        "tilewise__bytes_global_op_ld": 1 << 20,
    }


def _of_two(space: str, op: str, exact: bool = True, **given: tuple[float, float]) -> MachineAccess:
    """An access with figures of both multiprocessors."""
    names = (
        "runs",
        "waves",
        "phases",
        "ideal",
        "sectors",
        "ideal_sectors",
        "bytes",
        "touched",
        "data",
        "lines",
    )
    figures: dict[str, Any] = {name: np.array(given.get(name, (0, 0)), float) for name in names}
    return MachineAccess(MachineInstruction(0, "NOP"), op, space, 32, exact=exact, **figures)


def test_data_fill_a_part_of_wavefronts_and_of_sectors() -> None:
    """A wavefront has room for 128 bytes, a sector for 32; where there is none, nothing is filled."""
    shared = [
        _of_two("shared", "ld", waves=(6, 2), data=(300, 84)), _of_two("shared", "ldsm", waves=(1, 1), data=(128, 128)),
        _of_two("shared", "atom", waves=(0, 5), data=(0, 20)),
    ]  # fmt: skip
    found = {one.name: one.value for one in _shared(shared, 2, EXACT)}
    stem = "smsp__sass_average_data_bytes_per_wavefront_mem_shared"
    for suffix, ratio in (("", 660 / 15), ("_op_ld", 48), ("_op_st", 0)):
        assert (found[f"{stem}{suffix}.ratio"], found[f"{stem}{suffix}.pct"]) == (ratio, 100 * ratio / 128)
    loads = _of_two("global", "ld", sectors=(9, 9), touched=(6, 2), data=(100, 28))
    found = {one.name: one.value for one in _global([loads], 2, EXACT)}
    stem = "smsp__sass_average_data_bytes_per_sector_mem_global"
    for suffix, ratio in (("_op_ld", 128 / 18), ("_op_st", 0)):
        assert (found[f"{stem}{suffix}.ratio"], found[f"{stem}{suffix}.pct"]) == (ratio, 100 * ratio / 32)


def test_sectors_in_vain_are_those_touched_beyond_those_that_would_do() -> None:
    """Of atomics more are asked for than touched; what comes in bulk does not pass the L1."""
    made = [
        _of_two("global", "ld", sectors=(16, 4), touched=(16, 4), ideal_sectors=(4, 4), lines=(3, 2)),
        _of_two("global", "atom", sectors=(90, 30), touched=(5, 1), ideal_sectors=(1, 1), lines=(1, 1)),
        _of_two(
            "global", "tma_ld", sectors=(512, 0), touched=(512, 0), ideal_sectors=(128, 0), lines=(64, 0)
        ),
    ]
    found = {one.name: one.value for one in _global(made, 2, EXACT)}
    assert found["memory_l2_theoretical_sectors_global"] == 26
    assert found["memory_l2_theoretical_sectors_global_ideal"] == 10
    assert found["derived__memory_l2_theoretical_sectors_global_excessive"] == 16
    assert found["memory_l1_tag_requests_global"] == 7


def test_conflicts_in_global_memory_are_told_to_be_none_where_no_sector_is_in_vain() -> None:
    """On any multiprocessor."""
    for sectors, told in (((4, 4), True), ((4, 3), True), ((4, 5), False), ((5, 5), False), ((0, 0), True)):
        found = {
            one.name: one.value for one in _global([_of_two("global", "ld", sectors=sectors, ideal_sectors=(4, 4))], 2, EXACT)
        }  # fmt: skip
        name = "l1tex__data_bank_conflicts_pipe_lsu_mem_global.sum"
        assert (name in found, found.get(name, 0)) == (told, 0), sectors


def test_figures_of_which_one_part_is_estimated_are_estimates() -> None:
    made = [_of_two("global", "ld"), _of_two("global", "ld", exact=False), _of_two("global", "st")]
    made += [replace(item, space="shared") for item in made]
    labels = {one.name: one.label for one in [*_global(made, 2, EXACT), *_shared(made, 2, EXACT)]}
    for name, label in (
        ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", ESTIMATED),
        ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", EXACT),
        ("memory_l1_tag_requests_global", ESTIMATED), ("memory_l1_wavefronts_shared", ESTIMATED),
        ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum", EXACT),
        ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", ESTIMATED),
    ):  # fmt: skip
        assert labels[name] == label, name


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        (["sm__a"], ["sm__a.avg", "sm__a.sum"]), (["sm__a.sum"], ["sm__a.sum"]), (["sm__"], []), (["sm__a*"], ["sm__a.avg", "sm__a.sum", "sm__ab.sum"]),
        (["sm__?"], ["sm__a.avg", "sm__a.sum"]), (["sm__[xa]"], ["sm__a.avg", "sm__a.sum"]),
        (["regex:b"], ["sm__ab.sum"]), (["regex:^a"], []), (["sm__ab", "*.sum"], ["sm__ab.sum", "launch__x.sum", "sm__a.sum"]),
        (["plain"], ["plain"]), ([], []),
    ],
)  # fmt: skip
def test_metrics_are_chosen_as_ncu_takes_names(patterns: list[str], chosen: list[str]) -> None:
    """Each once, the first pattern's first."""
    names = ["sm__ab.sum", "sm__a.sum", "sm__a.avg", "launch__x.sum", "plain"]
    assert select_names(names, patterns) == chosen
    with pytest.raises(
        ArgumentError, match=r"^metrics has a pattern that cannot be read \(.+\), not 'regex:\['$"
    ):
        select_names(names, [*patterns, "regex:["])
