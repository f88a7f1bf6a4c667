"""A matrix product by Triton's interpreter and by the emulator, one after the other: which is how much faster.

Triton's interpreter runs a kernel's operations on NumPy arrays; it takes anything that has an address.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SIZE = 512
TILE = (128, 128, 32)


class Tensor:
    """A NumPy array as Triton's interpreter takes one: a tensor on the host, and its own storage."""

    def __init__(self, array: Any, dtype: Any) -> None:
        self.array, self.dtype = array, dtype

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def size(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def storage_offset(self) -> int:
        return 0

    def untyped_storage(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def new_empty(self, *_: object, **__: object) -> Tensor:
        return Tensor(self.array, self.dtype)

    def set_(self, *_: object) -> None:
        """It is the same memory already."""

    def copy_(self, other: Tensor) -> None:
        """It was written in place."""


def main() -> None:
    """Both, each checked against float64."""
    os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, str(ROOT))
    import numpy as np
    import triton.language as tl

    import tilewise as tw
    from tests.triton.matmuls import matmul
    from tilewise.bench.foreign import TritonProduct

    rng = np.random.default_rng()
    a, b = (rng.standard_normal((SIZE, SIZE)).astype(np.float16) for _ in range(2))
    c = tw.reference.poisoned((SIZE, SIZE), np.float32)
    tensors = [Tensor(a, tl.float16), Tensor(b, tl.float16), Tensor(c, tl.float32)]
    grid = ((SIZE // TILE[0]) * (SIZE // TILE[1]),)
    product = TritonProduct(SIZE, tw.device("emulator", threads=1), 1)
    product.check()
    rates = [product.rate() for _ in range(5)]
    start = time.perf_counter()
    matmul[grid](*tensors, *[SIZE] * 6, *TILE, True, "tf32", tl.float32, False, False)
    interpreted = 2e-9 * SIZE**3 / (time.perf_counter() - start)
    found = tw.reference.compare(c, a, b)
    assert found, str(found)
    rates += [product.rate() for _ in range(5)]  # before and after: others may use the machine, too
    emulated = statistics.median(rates)
    print(
        f"float16, {SIZE}³: {emulated:.3g} GFLOP/s on the emulator with one thread, "
        f"{interpreted:.3g} GFLOP/s by Triton's interpreter: {emulated / interpreted:.1f} times"
    )


if __name__ == "__main__":
    main()
