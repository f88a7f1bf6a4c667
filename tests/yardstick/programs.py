"""Small programs for tests: CUDA C++ by NVRTC, a body of PTX for one block, one instruction over arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from cuda.bindings import nvrtc

from . import run
from .ptx_types import Array

# Ways to run that must not change what a correct program computes.
SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "lowest"},
    {"schedule": "thread"},
    {"schedule": "random", "blocks": "random"},
]


WIDTHS = {
    "pred": 32,
    "f16x2": 32,
    "bf16x2": 32,
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "e4m3x2": 16,
    "e5m2x2": 16,
}
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def width(kind: str) -> int:
    """Bits of a PTX type."""
    return WIDTHS[kind] if kind in WIDTHS else int(kind[1:])


def apply(code: str, result: str, *sources: tuple[str, Array], **options: Any) -> Array:
    """Run ``code`` once per element: sources are %x0, %x1, …; the result, %y, comes back as unsigned bits."""
    bits = width(result)
    count = sources[0][1].nbytes // (width(sources[0][0]) // 8)
    lines = [
        f".reg .b{max(bits, 16)} %y; .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .b16 %h<8>;"
    ]
    lines += [
        "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;"
    ]
    lines += [f"setp.ge.u32 %p0, %r0, {count}; @%p0 exit;"]
    args: list[Array] = [np.zeros(count, UNSIGNED[bits])]
    for number, (kind, values) in enumerate(sources):
        w = width(kind)
        lines += [f".reg .b{max(w, 16)} %x{number}; ld.param.u64 %d0, [a{number}];"]
        lines += [f"mad.wide.u32 %d0, %r0, {w // 8}, %d0; ld.global.u{w} %x{number}, [%d0];"]
        args.append(np.ascontiguousarray(values).view(UNSIGNED[w]))
    lines += [
        code,
        f"ld.param.u64 %d0, [o]; mad.wide.u32 %d0, %r0, {bits // 8}, %d0; st.global.u{bits} [%d0], %y;",
    ]
    parameters = ", ".join(f".param .u64 {n}" for n in ["o", *(f"a{i}" for i in range(len(sources)))])
    text = f".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k({parameters})\n{{\n"
    run(text + "\n".join(lines) + "\nret;\n}\n", "k", -(-count // 256), min(count, 256), args, **options)
    return args[0]


@functools.cache
def compile_cuda(source: str, arch: str = "sm_80") -> str:
    """CUDA C++ to PTX."""
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    flags = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytes(size)  # NOTE: it is written into, so it must not be the one b" " that Python has
    nvrtc.nvrtcGetProgramLog(program, log)
    assert not error, log.decode()
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = bytes(size)
    nvrtc.nvrtcGetPTX(program, text)
    return str(text.rstrip(b"\0"), "ascii")


def assembly(body: str, parameters: str = ".param .u64 a, .param .u64 o", module: str = "") -> str:
    """PTX around a body: thread index in %t, parameters a and o in %a and %o."""
    registers = (
        ".reg .b32 %t, %r<9>; .reg .b64 %a, %o, %d<9>; .reg .pred %p<9>; .reg .f32 %f<9>; .reg .b16 %h<9>;"
    )
    loads = "mov.u32 %t, %tid.x; ld.param.u64 %a, [a]; ld.param.u64 %o, [o];"
    loads += "mad.wide.u32 %a, %t, 4, %a; mad.wide.u32 %o, %t, 4, %o;"
    return (
        f".version 9.0\n.target sm_90\n.address_size 64\n{module}\n"
        f".visible .entry k({parameters})\n{{\n{registers}\n{loads}\n{body}\nret;\n}}\n"
    )


def launch(body: str, threads: int, a: Array | None = None, module: str = "", **options: Any) -> Array:
    """Run a body on one block; the first 32 bits that each thread stored at %o."""
    out = np.zeros(threads, np.uint32)
    given = np.arange(threads, dtype=np.uint32) if a is None else a
    run(assembly(body, module=module), "k", 1, threads, [given, out], **options)
    return out
