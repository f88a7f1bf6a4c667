"""The programs that the emulator is compared with, each in a process of its own.

``python -m tilewise.bench.rivals WHAT SIZE`` prints a line of JSON about itself, then for each line that it
reads the seconds of one product. The result is compared with float64 before anything is timed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.bench.product import random_operands
from tilewise.errors import ToolError
from tilewise.reference import compare, poisoned

__all__ = ["ONE_THREAD", "Rival", "blas_name", "main"]

# What the libraries that numpy may have been built with read.
_THREADS = ("OPENBLAS", "OMP", "MKL", "BLIS")
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in _THREADS} | {"VECLIB_MAXIMUM_THREADS": "1"}
_TILE = 16  # the simulated kernel's
_SEED = 20

Once = Callable[[], float]


class Rival:
    """A process that multiplies on request, and reports the time."""

    def __init__(self, what: str, size: int, environment: dict[str, str] | None = None) -> None:
        # NOTE: -P keeps the working directory out of the search, as it is for the command.
        command = [sys.executable, "-P", "-m", "tilewise.bench.rivals", what, str(size)]
        pipe = subprocess.PIPE
        self._what = what
        self._process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            self.about: dict[str, Any] = self._answer()
        except BaseException:
            self.close()
            raise

    def seconds(self) -> float:
        """The time of one product, by the process's own clock."""
        assert self._process.stdin
        with contextlib.suppress(OSError):  # it is gone; why, its answer says
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout
        assert self._process.stderr
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        said = self._process.stderr.read().strip().splitlines() or ["no message"]
        raise ToolError(f"the {self._what} process ended early: {said[-1]}")

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Rival:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def blas_name() -> str:
    """The library that multiplies for this numpy, with its version."""
    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{found['name']} {found['version']}"
    except (KeyError, TypeError):
        return "a BLAS that numpy does not name"


# -- in the process ---------------------------------------------------------------------------------


def _blas(size: int) -> tuple[dict[str, Any], Once]:
    """numpy's product."""
    a, b = random_operands("float32", (size, size, size), _SEED)
    out = poisoned((size, size), "float32")
    np.matmul(a, b, out=out)
    _check(out, a, b)

    def once() -> float:
        start = time.perf_counter()
        np.matmul(a, b, out=out)
        return time.perf_counter() - start

    return {"blas": blas_name()}, once


cuda: Any = None  # numba's, once it is imported: the simulator looks for it among a kernel's globals
float32: Any = None


def _tiled(a: Any, b: Any, c: Any) -> None:
    """A kernel for numba: tiles of A and B in shared memory, two barriers a step."""
    # NOTE: the simulator distinguishes shared arrays by their lines.
    a_tile = cuda.shared.array((_TILE, _TILE), float32)
    b_tile = cuda.shared.array((_TILE, _TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * _TILE + y, cuda.blockIdx.x * _TILE + x
    total = float32(0)
    for start in range(0, a.shape[1], _TILE):
        a_tile[y, x] = a[row, start + x]
        b_tile[y, x] = b[start + y, column]
        cuda.syncthreads()
        for k in range(_TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    c[row, column] = total


def _simulator(size: int) -> tuple[dict[str, Any], Once]:
    """numba's CUDA simulator. What is checked is what was timed: one product takes it seconds."""
    global cuda, float32
    import numba
    from numba import cuda, float32

    kernel = cuda.jit(_tiled)

    def multiply(n: int) -> float:
        a, b = random_operands("float32", (n, n, n), _SEED)
        out = poisoned((n, n), "float32")
        start = time.perf_counter()
        kernel[(n // _TILE, n // _TILE), (_TILE, _TILE)](a, b, out)
        seconds = time.perf_counter() - start
        _check(out, a, b)
        return seconds

    multiply(_TILE)
    return {"numba": numba.__version__}, lambda: multiply(size)


def _memory(size: int) -> tuple[dict[str, Any], Once]:
    """How far a launch's memory grows beyond the arrays: the most there was, less what there was before."""
    from tilewise import emulator
    from tilewise.bench.product import Product
    from tilewise.devices import device
    from tilewise.kernels import RUNGS
    from tilewise.toolchain import cache

    product = Product((size, size, size), device("emulator"), _SEED, RUNGS["08_register_tiled"])
    for item in product.launches:
        emulator.build_kernel(
            item.binary.ptx, item.entry, item.launch.block, emulator.host_cpu(), cache.default()
        )
    before = _status("VmRSS")
    # NOTE: not getrusage: after an exec its peak begins at that of the process before. And the peak so far is
    # the compiler's, where the machine code did not come from the disk: forget it.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    product.launch()
    growth = _status("VmHWM") - before
    product.check()
    return {"growth": growth}, lambda: 0.0


def _status(name: str) -> int:
    """A figure of this process in bytes, as Linux keeps it."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


def _check(out: Any, a: Any, b: Any) -> None:
    found = compare(out, a, b)
    if not found.ok:
        raise SystemExit(f"wrong result: {found}")


_RIVALS = {"blas": _blas, "simulator": _simulator, "memory": _memory}


def main(argv: list[str]) -> None:
    """Do what the first argument names, at the size that the second one gives."""
    about, once = _RIVALS[argv[0]](int(argv[1]))
    print(json.dumps(about), flush=True)
    for _ in sys.stdin:
        print(json.dumps(once()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
