"""Part F: how long rungs take beside the vendor's library, on the same data, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from tests.hardware.job import Job

__all__ = ["jobs", "record"]

SIZE = (4096, 4096, 4096)
TURNS, WARM = 20, 3
_FIRST = 8  # rungs before it are not meant to be fast
_CHOSEN = ("partition", "stages", "split")  # settings that a plan chooses


def jobs() -> Iterator[Job]:
    """Each rung at the size, with the settings that it chooses itself and some others; without operands."""
    import tilewise as tw
    from tests.hardware import ladder
    from tilewise.operands import Operands

    for name in ladder.told():
        if int(name[:2]) < _FIRST:
            continue
        rung = tw.ladder[name]
        made = rung.plan(*SIZE, gpu="h200")
        plan = rung.spec.settings_of(made, Operands.of(made.problem))
        every: list[dict[str, Any]] = [{key: plan[key] for key in _CHOSEN if key in plan}]
        if name.startswith("10"):
            every = [{"partition": one} for one in rung.settings["partition"]]
        for settings in every:
            job = ladder.job(name, SIZE, settings, random=False)
            job.about["buffers"] = {
                one: (array.shape, str(array.dtype)) for one, array in job.buffers.items()
            }
            job.buffers = {}
            yield job


def record(listed: list[Job]) -> dict[str, Any]:
    """TFLOP/s of every rung and of the library, medians of runs that took turns."""
    import torch

    from tests.hardware.machine import Gpu

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)
    m, n, k = SIZE
    gpu = Gpu()
    found: dict[str, Any] = {"torch": torch.__version__, "size": SIZE, "rows": {}}
    for element in ("float32", "float16"):
        kind = getattr(torch, element)
        a, b = (
            torch.rand(shape, device="cuda", dtype=torch.float32).sub_(0.5).to(kind)
            for shape in ((m, k), (k, n))
        )
        exact = a.double() @ b.double()
        runs: dict[str, Callable[[], None]] = {}
        for job in listed:
            if job.about["buffers"]["a"][1] != element:
                continue
            try:
                runs[job.name] = _checked(gpu, job, a, b, exact, torch)
            except Exception as error:  # the others are worth timing still
                found["rows"][job.name] = {"failed": f"{type(error).__name__}: {error}"}
        out = torch.empty((m, n), device="cuda", dtype=kind)
        library = f"cublas {element}"
        runs[library] = lambda a=a, b=b, out=out: torch.matmul(a, b, out=out)  # type: ignore[misc, assignment]
        times = _timed(runs, torch)
        best = statistics.median(times[library])
        for name, listed_times in times.items():
            middle = statistics.median(listed_times)
            found["rows"][name] = {
                "tflops": round(2 * m * n * k / middle / 1e9, 2), "ratio": round(best / middle, 4),
                "milliseconds": [round(one, 4) for one in listed_times],
            }  # fmt: skip
    return found


def _checked(gpu: Any, job: Job, a: Any, b: Any, exact: Any, torch: Any) -> Callable[[], None]:
    """A rung's launches, known to give the right result."""
    shape, result = job.about["buffers"]["c"]
    c = torch.full(shape, float("nan"), device="cuda", dtype=getattr(torch, result))
    room = torch.empty(job.about["buffers"]["w"][0], device="cuda", dtype=torch.uint8)
    addresses = {name: tensor.data_ptr() for name, tensor in (("a", a), ("b", b), ("c", c), ("w", room))}
    module = gpu.load(job)
    functions = [(gpu.function(module, start), start) for start in job.starts]

    def run(keep: Any = (a, b, c, room)) -> None:
        for function, start in functions:
            gpu.launch(function, start, addresses)

    run()
    torch.cuda.synchronize()
    error = float((c.double() - exact).norm() / exact.norm())
    if not error < (1e-5 if result == "float32" and a.dtype == torch.float32 else 2e-3):
        raise ValueError(f"the result is off by {error:.2g}")
    return run


def _timed(runs: dict[str, Callable[[], None]], torch: Any) -> dict[str, list[float]]:
    """Milliseconds of each turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(WARM + TURNS):
        for name, run in runs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            end.synchronize()
            if turn >= WARM:
                times[name].append(start.elapsed_time(end))
    return times
