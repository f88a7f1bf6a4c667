"""The products that ``tilewise bench gemm`` measures, in classes; and those that a command line names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewise.errors import ArgumentError
from tilewise.problem import COMPLEX, ELEMENT_BYTES, Problem, result_of

__all__ = ["DTYPES", "GIVEN", "SUITES", "GemmCase", "check_dtype", "has_rival", "parse_shape", "select_cases"]

DTYPES = ("bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "int8", "complex64", "complex128")
GIVEN = "given"  # the class of shapes that the command line names

_Size = tuple[int, int, int]  # m, n, k
_MEMORY_BOUND = 128.0  # operations for each byte, below which bytes a second are what tells


@dataclass(frozen=True, slots=True)
class GemmCase:
    """One product to measure: its sizes, its layout, and whether bias, gelu and a residual are fused to it.

    Letters of the layout are for A and B: n is in rows, t the transpose of a matrix in rows.
    """

    suite: str
    m: int
    n: int
    k: int
    layout: str = "nn"
    batch: int = 1
    fused: bool = False

    def flops(self, dtype: str) -> int:
        """Floating-point operations: two for each multiply-add, of which one of complex numbers has four."""
        return Problem(self.m, self.n, self.k, self.batch, dtype, dtype).flops

    def bytes(self, dtype: str) -> int:
        """The fewest bytes that must move: each input read once, the result written once."""
        result = self.m * self.n
        inputs = self.m * self.k + self.k * self.n + (self.n + result if self.fused else 0)
        return math.ceil(
            self.batch * (inputs * ELEMENT_BYTES[dtype] + result * ELEMENT_BYTES[result_of(dtype)])
        )

    def is_memory_bound(self, dtype: str) -> bool:
        """Whether bytes a second say more than operations a second."""
        return self.flops(dtype) < _MEMORY_BOUND * self.bytes(dtype)

    def __str__(self) -> str:
        batch = f"{self.batch} × " if self.batch != 1 else ""
        return f"{batch}{self.m}×{self.n}×{self.k}"


def _cases(
    suite: str, *sizes: _Size, layout: str = "nn", batch: int = 1, fused: bool = False
) -> Iterator[GemmCase]:
    return (GemmCase(suite, *size, layout, batch, fused) for size in sizes)


def _cubes(*sizes: int) -> tuple[_Size, ...]:
    return tuple((size, size, size) for size in sizes)


# fmt: off
SUITES: Mapping[str, tuple[GemmCase, ...]] = {
    "large": (*_cases("large", *_cubes(4096, 6144, 8192), (4096, 6144, 4096), (4096, 4096, 14336),
                      (8192, 10240, 8192), (16384, 1024, 8192), (1024, 16384, 8192)),),
    "medium": (*_cases("medium", *_cubes(768, 1024, 1536, 2048, 2560, 3072), (2048, 4096, 1024), (1024, 2048, 4096)),),
    "small": (*_cases("small", *_cubes(128, 256, 384, 512), (32, 256, 784), (32, 1024, 1024)),),
    "ragged": (*_cases("ragged", (4096, 2112, 7168), (4224, 2048, 8192), (5632, 3072, 8192), (4480, 4480, 4096)),),
    "short-k": (*_cases("short-k", (4096, 24576, 1536), (4096, 32768, 512), (5632, 3072, 512)),),
    "deep-k": (*_cases("deep-k", (64, 64, 16384), (256, 256, 16384)),),
    "unaligned": (*_cases("unaligned", *_cubes(1021, 2039, 4093, 8191), (1760, 7133, 1760), (1024, 50257, 768),
                          (5124, 9124, 2560), (7680, 5481, 2560)),),
    "decode": (*_cases("decode", (1, 28672, 4096), (1, 4096, 14336), (8, 6144, 4096), (16, 7168, 2048),
                       (64, 2112, 7168), (64, 24576, 1536), (35, 8457, 2560)),),
    "layouts": tuple(case for layout in ("nt", "tn", "tt")
                     for case in _cases("layouts", *_cubes(1024, 4096), (4096, 2112, 7168), layout=layout)),
    "batched": (*_cases("batched", (512, 512, 512), batch=64), *_cases("batched", (2048, 2048, 2048), batch=8),
                *_cases("batched", (128, 128, 64), batch=512)),
    "fused": (*_cases("fused", *_cubes(1024, 4096), (4096, 16384, 4096), fused=True),),
}
# fmt: on


def has_rival(case: GemmCase, dtype: str) -> bool:
    """Whether PyTorch multiplies such operands: of 8 bits neither stacks nor with what is fused. It has no gelu of
    complex numbers, nor have we."""
    if dtype in COMPLEX:
        return not case.fused
    return ELEMENT_BYTES[dtype] > 1 or (case.batch == 1 and not case.fused)


_SHAPE = re.compile(r"(?:(\d+)[x×])?(\d+)[x×](\d+)[x×](\d+)(?::([nt]{2}))?")


def parse_shape(text: str, argument: str = "--shape") -> GemmCase:
    """A product from its sizes, MxNxK or BATCHxMxNxK, and its layout behind a colon if it is not nn."""
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        rule = "must be MxNxK or BATCHxMxNxK"
        raise ArgumentError(argument, rule, text, "write 4096x4096x4096, or 64x512x512x512:nt with a layout")
    batch, m, n, k = (int(size or 1) for size in found.groups()[:4])
    if not batch * m * n * k:
        raise ArgumentError(argument, "must have sizes of at least 1", text)
    return GemmCase(GIVEN, m, n, k, found[5] or "nn", batch)


def select_cases(suites: Sequence[str] = (), shapes: Sequence[str] = ()) -> list[GemmCase]:
    """The cases of these suites and shapes; without any, those of every suite."""
    for name in suites:
        if name not in SUITES:
            raise ArgumentError("--suite", f"must be one of {', '.join(SUITES)}", name)
    given = [parse_shape(text) for text in shapes]
    names = dict.fromkeys(suites or ([] if given else SUITES))
    return [*(case for name in names for case in SUITES[name]), *given]


def check_dtype(dtype: str) -> str:
    """The element type, or an error that names those there are."""
    if dtype not in DTYPES:
        raise ArgumentError("--dtype", f"must be one of {', '.join(DTYPES)}", dtype)
    return dtype
