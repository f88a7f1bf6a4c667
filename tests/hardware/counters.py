"""Part E: hardware counters, of the ladder's kernels and of tiny ones whose addresses are known.

A profiler counts while ``python -m tests.hardware.counters GROUP`` launches. Counts depend on the machine
code, so that is made beforehand and goes along.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.hardware import slow_paths
from tests.hardware.job import Array, Job, Start, digest
from tests.hardware.patterns import WINDOW, Pattern, global_patterns, matrix_patterns, shared_patterns

__all__ = ["GROUPS", "SIZES", "jobs", "metrics"]

TURNS = 16
_SOURCE = Path(__file__).with_name("counters.cu")
_WIDTHS = {
    "lds_8": 1, "lds_16": 2, "lds_32": 4, "lds_64": 8, "lds_128": 16, "sts_8": 1, "sts_16": 2, "sts_32": 4, "sts_64": 8,
    "sts_128": 16, "atom_add": 4, "red_add": 4, "atom_exch": 4, "atom_cas": 4, "copy_4": 4, "copy_8": 8, "copy_16": 16,
    "copy_16g": 16, "ldmatrix_1": 0, "ldmatrix_2": 0, "ldmatrix_4": 0, "ldmatrix_4t": 0, "stmatrix_4": 0, "ldg_8": 1,
    "ldg_32": 4, "ldg_64": 8, "ldg_128": 16, "stg_32": 4, "stg_64": 8, "stg_128": 16, "red_global": 4, "atom_global": 4,
}  # fmt: skip
_GLOBAL = ("ldg", "stg", "red_global", "atom_global")

# What one run of the profiler launches. Groups that matter most come first.
GROUPS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(slow_paths.GROUPS, ()),
    "ladder": (),
    "wide loads": ("lds_64", "lds_128"),
    "programs": ("transpose_32", "transpose_33", "strides"),
    "matrices": ("ldmatrix_1", "ldmatrix_2", "ldmatrix_4", "ldmatrix_4t", "stmatrix_4"),
    "stores": ("sts_64", "sts_128"),
    "global loads": ("ldg_32", "ldg_64", "ldg_128"),
    "global stores": ("stg_32", "stg_128"),
    "narrow": ("lds_32", "sts_32"),
    "atomics": ("atom_exch", "red_add"),
    "copies": ("copy_4", "copy_16"),
    "others": ("red_global", "atom_global", "sts_8", "lds_16"),
}

SIZES: dict[str, tuple[int, int, int]] = {
    "01_single_thread": (32, 48, 64),
    "02_one_block": (32, 32, 96),
    "04_tiled": (640, 352, 448),
    "05_tiled_conflicted": (640, 352, 448),
}
_SIZE = (512, 512, 256)

_SHARED = [
    f"smsp__sass_l1tex_data_{what}_mem_shared{op}.sum"
    for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
    for op in ("", "_op_ld", "_op_st", "_op_ldsm", "_op_ldgsts", "_op_atom")
] + [
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_ideal.sum",
    *(f"smsp__sass_inst_executed_op_shared{op}.sum" for op in ("", "_ld", "_st")),
    "smsp__sass_inst_executed_op_ldsm.sum", "smsp__sass_inst_executed_op_shared_atom.sum",
    *(
        f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared{op}.sum"
        for op in ("", "_op_ld", "_op_st", "_op_atom", "_op_red", "_op_ldgsts")
    ),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared{op}.sum" for op in ("", "_op_ld", "_op_st", "_op_atom", "_op_red")),
    *(f"l1tex__data_bank_{op}.sum" for op in ("reads", "writes", "conflicts_pipe_lsu")),
    "l1tex__data_pipe_lsu_wavefronts.sum",
]  # fmt: skip
_GLOBALS = [
    *(f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for what in ("requests", "sectors") for op in ("ld", "st", "red", "atom")),
    *(f"smsp__sass_inst_executed_op_global_{op}.sum" for op in ("ld", "st")),
    *(f"smsp__sass_l1tex_t_{what}_pipe_lsu_mem_global_op_{op}.sum" for what in ("requests", "sectors") for op in ("ld", "st")),
    "smsp__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts.sum", "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "smsp__sass_l1tex_m_xbar2l1tex_read_sectors_mem_lg_op_ld.sum",
    "lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum", "lts__t_requests_srcunit_tex.sum", "lts__t_sectors_srcunit_tex.sum",
    "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ld.sum", "l1tex__data_pipe_lsu_wavefronts_mem_lg.sum",
]  # fmt: skip
_INSTRUCTIONS = [
    *(f"sm__sass_inst_executed_op_{op}.sum" for op in ("shared", "shared_ld", "shared_st", "global_ld", "global_st", "ldsm", "ldgsts", "branch", "local")),
    *(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("ffma", "fadd", "fmul", "hfma", "dfma", "integer", "fp32", "memory", "control")),
    "smsp__inst_executed.sum", "smsp__thread_inst_executed.sum", "smsp__thread_inst_executed_pred_on.sum",
    "sm__sass_inst_executed.sum", "smsp__inst_issued.sum", "smsp__sass_inst_executed.sum",
    *(f"smsp__inst_executed_pipe_{pipe}.sum" for pipe in ("lsu", "fma", "fmaheavy", "fmalite", "alu", "fp16", "fp64", "tensor", "uniform", "xu", "adu", "cbu")),
    "sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__warps_launched.sum", "smsp__warps_launched.sum",
    "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum", "gpu__time_duration.sum", "sm__cycles_elapsed.max",
]  # fmt: skip
_LAUNCH = [
    f"launch__{name}"
    for name in (
        "grid_size", "block_size", "registers_per_thread", "waves_per_multiprocessor", "occupancy_limit_blocks",
        "occupancy_limit_registers", "occupancy_limit_shared_mem", "occupancy_limit_warps", "shared_mem_per_block_static",
        "shared_mem_per_block_dynamic", "shared_mem_per_block_driver", "shared_mem_config_size",
    )
]  # fmt: skip
_SPREAD = [
    name.replace(".sum", way)
    for name in (_SHARED[0], "smsp__inst_executed.sum")
    for way in (".avg", ".min", ".max")
]


def metrics(group: str, known: set[str] | None = None) -> list[str]:
    """What to count in a group, of those that the profiler knows."""
    wanted = [*_SHARED, *_GLOBALS]
    if group in slow_paths.GROUPS:
        wanted = slow_paths.metrics(group)
    elif group == "ladder":
        wanted += [*_INSTRUCTIONS, *_LAUNCH, *_SPREAD, "sm__maximum_warps_per_active_cycle_pct"]
    elif "global" in group or group == "others":
        wanted = [*_GLOBALS, *(name for name in _SHARED if "sass" in name and "conflict" not in name)]
    else:
        wanted = [*_SHARED, "smsp__inst_executed.sum"] + (_GLOBALS if group in ("copies", "programs") else [])
    if known is None:
        return wanted
    families = {name.split("_")[0] + ("_sass" if "__sass" in name else "") for name in known}
    # A profiler that lists nothing of a family may have it all the same.
    return [
        name
        for name in wanted
        if name.split(".")[0] in known
        or name.startswith("launch__")
        or name.split("_")[0] + ("_sass" if "__sass" in name else "") not in families
    ]


# -- jobs -------------------------------------------------------------------------------------------
def jobs(group: str) -> Iterator[Job]:
    """What a group launches, in order."""
    if group == "ladder":
        yield from _rungs()
        return
    if group in slow_paths.GROUPS:
        yield from slow_paths.jobs(group)
        return
    from tilewise.toolchain.compile import compile_source

    source = _SOURCE.read_text(encoding="utf-8")
    names = [*re.findall(r"^(?:SHARED|MATRIX|COPY|GLOBAL)\((\w+)", source, re.M), *GROUPS["programs"]]
    binary = compile_source(source, names, "sm_90a", filename=_SOURCE.name)
    about = {"machine code": digest(binary.cubin or b"")}
    for name in GROUPS[group]:
        for label, start, buffers in _launches(name):
            job = Job(f"{name}: {label}", binary.ptx, [start], buffers, [], binary.cubin, dict(about))
            if buffers["offsets"].size == 32:
                job.about["offsets"] = buffers["offsets"].tolist()
            yield job


def _rungs() -> Iterator[Job]:
    from tests.hardware import ladder

    for name in ladder.told():
        size = SIZES.get(name, _SIZE)
        every: list[dict[str, int | str]] = [{}]
        if name == "11_parallel_k":
            every = [{"split": 4}]
        elif name == "10_turing_tensor_core":
            every = [{"partition": one, "result": "float32"} for one in ("64x64x32", "128x128x32")]
        for settings in every:
            yield ladder.job(name, size, settings, random=False)


def _launches(name: str) -> Iterator[tuple[str, Start, dict[str, Array]]]:
    grid, block = (1, 1, 1), (32, 1, 1)
    if name.startswith("transpose"):
        squares: dict[str, Array] = {one: np.zeros((1024, 1024), np.float32) for one in ("offsets", "out")}
        yield "1024 x 1024", Start(name, (32, 32, 1), (32, 32, 1), tuple(squares)), squares
        return
    for label, offsets in _patterns(name):
        buffers: dict[str, Array] = {"offsets": offsets.astype(np.int32), "out": np.zeros(4096, np.uint32)}
        if name.startswith(_GLOBAL):
            buffers["data"] = np.zeros(64 * 1024, np.uint8)
        shared = 0 if name.startswith(_GLOBAL) else WINDOW
        yield label, Start(name, grid, block, tuple(buffers), shared), buffers


def _patterns(name: str) -> Iterator[Pattern]:
    if name == "strides":
        for words in (1, 2, 8, 32, 33):
            yield f"stride {words}", np.arange(32) * 4 * words
    elif "matrix" in name:
        yield from matrix_patterns()
    elif name.startswith(_GLOBAL):
        yield from global_patterns(_WIDTHS[name])
    else:
        yield from shared_patterns(_WIDTHS[name])


def main() -> None:
    """Launch a group's jobs once each; a profiler counts."""
    from tests.hardware.carry import load
    from tests.hardware.machine import Gpu

    gpu = Gpu()
    for job in load(f"counters {sys.argv[1]}", lambda: jobs(sys.argv[1])):
        gpu.run(job)


if __name__ == "__main__":
    main()
