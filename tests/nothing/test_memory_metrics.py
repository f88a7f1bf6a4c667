"""Metrics of shared and global memory by operation, of made-up accesses whose figures are powers of two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tilewise.instruments.machine import MachineAccess
from tilewise.instruments.metric import EXACT, Metric
from tilewise.instruments.metrics import _bytes, _global, _shared
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
