"""Compiles the kernels with the Triton that is installed; needs no GPU.

``python -m tests.triton.compiler`` writes the golden file anew: for every case and target the PTX, and what else a
launch needs to know; and the kernel that ``tilewise bench emulator`` measures. A name as
an argument chooses the cases that begin with it.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.triton.cases import CASES, Case, Setting

__all__ = ["GOLDEN", "MEASURED", "Compiled", "compile_case", "golden"]

_ROOT = Path(__file__).parents[2]
GOLDEN = _ROOT / "tests" / "golden" / "triton.json.gz"
_TYPES = ("SUMS", "KIND")  # constants that name types
MEASURED = _ROOT / "src" / "tilewise" / "bench" / "triton_matmul.ptx", "matmul_f16_wide-sm_80"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel's PTX, with what Triton says about it."""

    case: str
    arch: int
    entry: str
    warps: int
    blocks: int  # of each program: a cluster of them
    shared: int
    scratch: int  # bytes of global memory that each program wants
    scratch_align: int
    maps: list[
        dict[str, Any]
    ]  # of each tensor descriptor that the host makes: its box and its swizzle in bytes
    signature: dict[str, str]
    constants: dict[str, Setting]
    triton: str
    ptx: str

    @property
    def key(self) -> str:
        return f"{self.case}-sm_{self.arch}"


def golden() -> dict[str, Compiled]:
    """What the golden file holds, by case and target."""
    found = [Compiled(**row) for row in json.loads(gzip.decompress(GOLDEN.read_bytes()))]
    return {item.key: item for item in found}


def _keep(kernels: Iterable[Compiled]) -> None:
    text = json.dumps([asdict(kernel) for kernel in kernels], indent=0)
    GOLDEN.write_bytes(gzip.compress(text.encode(), mtime=0))  # the same bytes for the same kernels


def compile_case(
    case: Case, arch: int, more: Mapping[str, Setting] | None = None, *, lines: bool = False
) -> Compiled:
    """Have Triton compile a case, with ``more`` options than its own; with ``lines`` as Triton gives it out,
    else without what is for debuggers."""
    os.environ["TRITON_DISABLE_LINE_INFO"] = "0" if lines else "1"
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(importlib.import_module(f"tests.triton.{case.module}"), case.function)
    constants = {
        name: getattr(tl, str(value)) if name in _TYPES else value for name, value in case.constants.items()
    }
    source = ASTSource(
        fn=function,
        signature={**case.signature, **dict.fromkeys(constants, "constexpr")},
        constexprs=constants,
        attrs={(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in case.aligned},
    )
    options = {"enable_fp_fusion": True, **case.options, **(more or {})}
    made: Any = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    about = made.metadata
    return Compiled(
        case.name,
        arch,
        about.name,
        about.num_warps,
        about.num_ctas,
        about.shared,
        about.global_scratch_size,
        about.global_scratch_align,
        [
            {"box": list(each["block_size"]), "swizzle": (None, 32, 64, 128)[each["swizzle"]]}
            for each in about.tensordesc_meta or ()
        ],
        dict(case.signature),
        dict(case.constants),
        triton.__version__,
        made.asm["ptx"] if lines else _stripped(made.asm["ptx"]),
    )


def _stripped(ptx: str) -> str:
    """Without comments, empty lines and what is for debuggers."""
    ptx = re.sub(r"//.*", "", ptx)
    ptx = re.sub(r"(?m)^\s*\.section.*?^\s*\}\s*$", "", ptx, flags=re.DOTALL)
    lines = [line.rstrip() for line in ptx.splitlines()]
    kept = [line for line in lines if line.strip() and not re.match(r"\s*\.(loc|file)\b", line)]
    return "\n".join(kept) + "\n"


def main(prefixes: list[str]) -> None:
    """Write the golden file, with the cases whose names begin so made anew."""
    kept = golden() if prefixes else {}
    for case in CASES:
        for arch in case.archs:
            if not prefixes or case.name.startswith(tuple(prefixes)):
                made = compile_case(case, arch)
                kept[made.key] = made
                print(f"{made.key}: {len(made.ptx):,} characters, {made.shared:,} bytes shared", flush=True)
    wanted = [f"{case.name}-sm_{arch}" for case in CASES for arch in case.archs]
    _keep(kept[key] for key in wanted if key in kept)
    file, key = MEASURED
    file.write_text(kept[key].ptx, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
