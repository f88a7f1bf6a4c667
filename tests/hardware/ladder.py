"""Part A: every rung of the ladder on fixed operands.

The machine code is compiled for sm_90a by whoever makes the jobs, and goes along with its PTX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.hardware.job import Array, Job, Matrix, Raw, Start, bare, code_digest, digest

if TYPE_CHECKING:  # the machine with the GPU may have nothing of tilewise
    from tilewise.kernels.spec import KernelSpec, Operands, Settings

__all__ = [
    "ARCH",
    "Case",
    "Size",
    "argument",
    "cases",
    "dense",
    "job",
    "jobs",
    "operands",
    "restored",
    "stored",
]

ARCH = "sm_90a"
Size = tuple[int, int, int]  # m, n, k
Case = tuple[str, Size, dict[str, int | str]]
_BUFFERS = {"a": "a", "b": "b", "c": "c", "workspace": "w"}  # a job's, by the names of operands

_SMALL: tuple[Size, ...] = ((256, 192, 128), (129, 65, 77), (64, 48, 1040))
_ONE_BLOCK: tuple[Size, ...] = ((32, 32, 96), (17, 29, 77))
_MORE: dict[str, tuple[dict[str, int | str], ...]] = {
    "10_turing_tensor_core": (
        {"partition": "64x64x32", "accumulate": "float32", "result": "float16"},
        {"partition": "64x64x32", "accumulate": "float32", "result": "float32"},
        {"partition": "64x64x32", "accumulate": "float16", "result": "float16"},
        {"partition": "64x64x32", "accumulate": "float16", "result": "float32"},
        {"partition": "128x128x32", "result": "float32"},
        {"partition": "128x256x32", "result": "float32"},
    ),
    "11_parallel_k": ({"split": 1}, {"split": 4}, {"split": 16}),
    "12_multistage": ({"result": "float16"}, {"result": "float32"}),
    "04_tiled": ({}, {"element": "float64"}, {"element": "float16"}),
}


def cases() -> Iterator[Case]:
    """Rungs, sizes and settings; nothing is left to be chosen by a GPU's number of SMs."""
    from tilewise.kernels import RUNGS

    for name in told():
        spec = RUNGS[name]
        for settings in _MORE.get(name, ({},)):
            for size in (*_SMALL, *_ONE_BLOCK) if name == "02_one_block" else _SMALL:
                whole = tuple(-(-edge // 128) * 128 for edge in size)
                fitting = [s for s in (size, whole) if _fits(spec, s, settings)]
                if fitting:
                    m, n, k = fitting[0]
                    yield name, (m, n, k), dict(settings)


def told() -> list[str]:
    """The rungs whose arguments a job can tell: numbers and matrices, no tensor maps."""
    from tilewise.kernels import RUNGS

    return [name for name in RUNGS if not name.startswith("13")]


def dense(spec: KernelSpec, size: Sequence[int], complete: Settings) -> Operands:
    """The operands of a size, as they lie in a job's buffers."""
    from tilewise.operands import Operands
    from tilewise.problem import Problem

    m, n, k = size
    element = spec.element(complete)
    return Operands.of(Problem(m, n, k, a=element, b=element, c=spec.result_type(complete)))


def _fits(spec: KernelSpec, size: Sequence[int], settings: Mapping[str, Any]) -> bool:
    complete = spec.complete(settings)
    return spec.why_not(dense(spec, size, complete), complete) is None


def operands(element: str, size: Size) -> tuple[Array, Array]:
    """Numbers from -1 to 1."""
    m, n, k = size
    raw = Raw(m, n, k)
    return raw.numbers(m, k).astype(element), raw.numbers(k, n).astype(element)


def job(name: str, size: Size, settings: Mapping[str, Any], random: bool = True) -> Job:
    """A rung's launches as a job."""
    from tilewise.kernels import RUNGS
    from tilewise.toolchain.compile import compile_source

    spec = RUNGS[name]
    complete = spec.complete(settings)
    m, n, k = size
    element, result = spec.element(complete), spec.result_type(complete)
    binary = compile_source(
        spec.source, spec.entries, ARCH, defines=spec.defines(complete), filename=spec.file.name
    )
    given = dense(spec, size, complete)
    spec.check(given, complete)
    room = spec.workspace(given, complete)
    starts = []
    for step in spec.steps(given, complete):
        launch = step.launch
        args = [argument(slot) for slot in launch.args]
        entry = binary.lowered[step.entry]
        starts.append(Start(entry, launch.grid, launch.block, args, launch.shared))
    a, b = operands(element, size) if random else (np.zeros((m, k), element), np.zeros((k, n), element))
    buffers = {"a": a, "b": b, "c": np.full((m, n), np.nan, result), "w": np.zeros(max(room, 16), np.uint8)}
    label = f"{name} {m}x{n}x{k} {' '.join(f'{key}={value}' for key, value in settings.items())}".strip()
    about = {
        "rung": name,
        "size": size,
        "settings": dict(settings),
        "machine code": digest(binary.cubin or b""),
        "code": code_digest(binary.cubin or b""),
    }
    return Job(label, binary.ptx, starts, buffers, ["c"], binary.cubin, about)


def argument(slot: Any) -> Any:
    """A launch's argument as a job has it: a matrix over a buffer, or a number."""
    if len(slot.template) == 4:
        assert not slot.gaps
        return np.frombuffer(slot.template, np.uint32)[0]
    if len(slot.template) != 24:
        raise ValueError(f"an argument of {len(slot.template)} bytes")
    width, height, pitch = np.frombuffer(slot.template[:12], np.uint32).tolist()
    (gap,) = slot.gaps
    assert (gap.offset, gap.addend, gap.size, pitch) == (16, 0, 8, width)
    return Matrix(_BUFFERS[gap.operand], height, width)


def jobs() -> Iterator[Job]:
    for case in cases():
        yield job(*case)


# -- as they were recorded --------------------------------------------------------------------------
def stored(job: Job) -> dict[str, Any]:
    """A job as JSON, but for its operands: compilers and rungs may change, what was recorded does not."""
    starts = [
        {"entry": start.entry, "grid": start.grid, "block": start.block, "shared": start.shared,
         "args": [[arg.buffer, arg.rows, arg.columns] if isinstance(arg, Matrix) else
                  arg if isinstance(arg, str) else int(arg) for arg in start.args]}
        for start in job.starts
    ]  # fmt: skip
    buffers = {name: [array.shape, array.dtype.name] for name, array in job.buffers.items()}
    return {"name": job.name, "text": bare(job.ptx), "starts": starts, "buffers": buffers, "about": job.about}


def restored(row: Mapping[str, Any]) -> Job:
    """The job that was stored."""
    starts = []
    for start in row["starts"]:
        args = [
            Matrix(*arg) if isinstance(arg, list) else arg if isinstance(arg, str) else np.uint32(arg)
            for arg in start["args"]
        ]
        starts.append(
            Start(start["entry"], tuple(start["grid"]), tuple(start["block"]), args, start["shared"])
        )
    (m, n, k), shapes = row["about"]["size"], row["buffers"]
    a, b = operands(shapes["a"][1], (m, n, k))
    c, w = (np.zeros(*shapes[name]) for name in "cw")
    c.fill(np.nan)
    return Job(row["name"], row["text"], starts, {"a": a, "b": b, "c": c, "w": w}, ["c"], None, row["about"])
