"""Part A: every rung of the ladder on fixed operands.

The machine code is compiled for sm_90a by whoever makes the jobs, and goes along with its PTX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tests.hardware.job import Array, Job, Matrix, Raw, Start, bare, digest

__all__ = ["ARCH", "Case", "Size", "cases", "job", "jobs", "operands", "restored", "stored"]

ARCH = "sm_90a"
Size = tuple[int, int, int]  # m, n, k
Case = tuple[str, Size, dict[str, int | str]]

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
    import tilewise as tw

    for name in told():
        rung = tw.ladder[name]
        for settings in _MORE.get(name, ({},)):
            for size in (*_SMALL, *_ONE_BLOCK) if name == "02_one_block" else _SMALL:
                whole = tuple(-(-edge // 128) * 128 for edge in size)
                fitting = [s for s in (size, whole) if _fits(rung, s, settings)]
                if fitting:
                    m, n, k = fitting[0]
                    yield name, (m, n, k), dict(settings)


def told() -> list[str]:
    """The rungs whose arguments a job can tell: numbers and matrices, no tensor maps."""
    import tilewise as tw

    return [name for name in tw.ladder if not name.startswith("13")]


def _fits(rung: Any, size: Sequence[int], settings: Mapping[str, Any]) -> bool:
    import tilewise as tw

    try:
        rung.rule(*size, rung.complete(settings))
    except tw.TilewiseError:
        return False
    return True


def operands(element: str, size: Size) -> tuple[Array, Array]:
    """Numbers from -1 to 1."""
    m, n, k = size
    raw = Raw(m, n, k)
    return raw.numbers(m, k).astype(element), raw.numbers(k, n).astype(element)


def job(name: str, size: Size, settings: Mapping[str, Any], random: bool = True) -> Job:
    """A rung's launches as a job."""
    import tilewise as tw
    from tilewise.kernels.rung import Operand
    from tilewise.toolchain.compile import compile_source

    rung = tw.ladder[name]
    complete = rung.complete(settings)
    m, n, k = size
    element, result = rung.element(complete), rung.result_type(complete)
    binary = compile_source(
        rung.source, rung.entries, ARCH, defines=rung.defines(complete), filename=rung.file.name
    )
    room = rung.workspace(m, n, k, complete)
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    # Addresses that a step's arguments are told by afterwards.
    stand_in = {name: 0x7E57_0000_0000 + (i << 32) for i, name in enumerate(("a", "b", "c", "w"))}
    given = [
        Operand(stand_in[one], *shape, shape[1], result if one == "c" else element)
        for one, shape in shapes.items()
    ]
    starts = []
    for step in rung.steps(given[0], given[1], given[2], stand_in["w"] if room else 0, complete):
        launch = step.launch
        args = [_told(arg, stand_in) for arg in launch.args]
        entry = binary.lowered[step.entry]
        starts.append(Start(entry, launch.grid, launch.block, args, launch.shared))
    a, b = (
        operands(element, size)
        if random
        else (np.zeros(shapes["a"], element), np.zeros(shapes["b"], element))
    )
    buffers = {"a": a, "b": b, "c": np.full((m, n), np.nan, result), "w": np.zeros(max(room, 16), np.uint8)}
    label = f"{name} {m}x{n}x{k} {' '.join(f'{key}={value}' for key, value in settings.items())}".strip()
    about = {
        "rung": name,
        "size": size,
        "settings": dict(settings),
        "machine code": digest(binary.cubin or b""),
    }
    return Job(label, binary.ptx, starts, buffers, ["c"], binary.cubin, about)


def _told(arg: Any, stand_in: Mapping[str, int]) -> Any:
    """An argument as a job has it."""
    if isinstance(arg, bytes):
        if len(arg) != 24:
            raise ValueError(f"an argument of {len(arg)} bytes")
        width, height, pitch = np.frombuffer(arg[:12], np.uint32).tolist()
        address = int.from_bytes(arg[16:], "little")
        name = next(name for name, start in stand_in.items() if start == address)
        assert pitch == width
        return Matrix(name, height, width)
    return np.uint32(arg)


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
