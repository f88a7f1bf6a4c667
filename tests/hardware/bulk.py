"""What bulk copies and asynchronous products move, and what is merged on the way to the L2: ask a GPU.

    python -m tests.hardware.bulk --out FOLDER

``tests/golden/hardware/bulk.json`` is what one said. Kernels do one thing each, TURNS times; the profiler's
counters are divided by that. They are made here, as machine code, if this machine has a compiler, else there.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tests.hardware.machine import Gpu

__all__ = [
    "ENTRIES",
    "METRICS",
    "SIZES",
    "TURNS",
    "Case",
    "Map",
    "Product",
    "cases",
    "products",
    "source",
    "wgmma_source",
]

TURNS = 64
SIZES = {"u8": 1, "f16": 2, "f32": 4}
_SOURCE = Path(__file__).with_name("bulk.cu")
_READERS = 65_536  # elements of 16 bytes
_SMS = 132

# Names of counters, less their .sum, by what they are called here.
_L1, _LTS = "l1tex__", "lts__t_sectors_srcunit_tex"
METRICS = {
    "in": f"{_L1}m_xbar2l1tex_read_sectors_mem_global_op_tma_ld",
    "in multicast": f"{_L1}m_xbar2l1tex_read_sectors_mem_global_op_tma_ld_dest_multicast",
    "out": f"{_L1}m_l1tex2xbar_write_sectors_mem_global_op_tma_st",
    "out reduced": f"{_L1}m_l1tex2xbar_write_sectors_mem_global_op_tma_red",
    "out bytes": f"{_L1}m_l1tex2xbar_write_bytes_mem_global_op_tma_st",
    "sent": f"{_L1}m_l1tex2xbar_write_sectors_mem_dshared_op_tma_st",
    "sent reduced": f"{_L1}m_l1tex2xbar_write_sectors_mem_dshared_op_tma_red",
    "received": f"{_L1}m_xbar2l1tex_read_sectors_mem_dshared_op_tma_st",
    "bank reads": f"{_L1}data_bank_reads",
    "bank writes": f"{_L1}data_bank_writes",
    "shared wavefronts": f"{_L1}data_pipe_lsu_wavefronts_mem_shared",
    "shared conflicts": f"{_L1}data_bank_conflicts_pipe_lsu_mem_shared",
    "gmma wavefronts": f"{_L1}data_pipe_lsu_wavefronts_mem_shared_op_gmma",
    "gmma conflicts": f"{_L1}data_bank_conflicts_pipe_lsu_mem_shared_op_gmma",
    "gmma bytes": "smsp__sass_data_bytes_mem_shared_op_gmma",
    "sass wavefronts": "smsp__sass_l1tex_pipe_lsu_wavefronts_mem_shared",
    "L2": _LTS,
    "L2 read": f"{_LTS}_op_read",
    "L2 written": f"{_LTS}_op_write",
    "L2 reduced": f"{_LTS}_op_red",
    "copies": "smsp__sass_inst_executed_op_tma",
    "loads": "smsp__sass_inst_executed_op_tma_ld",
    "stores": "smsp__sass_inst_executed_op_tma_st",
    "reductions": "smsp__sass_inst_executed_op_tma_red",
    "sends": "smsp__sass_inst_executed_op_dshared_tma_st",
    "sent reductions": "smsp__sass_inst_executed_op_dshared_tma_red",
    "remote stores": "smsp__sass_inst_executed_op_dshared_stas",
    "remote reductions": "smsp__sass_inst_executed_op_dshared_redas",
}
_MERGED = {
    "L1 read": f"{_L1}m_xbar2l1tex_read_sectors",
    "L2 tex read": f"{_LTS}_op_read",
    "L2 tex written": f"{_LTS}_op_write",
    "L2 read": "lts__t_sectors_op_read",
    "L2 written": "lts__t_sectors_op_write",
    "memory read": "dram__bytes_read",
}


@dataclass(frozen=True)
class Map:
    """A tensor of two or three dimensions, the innermost first; ``pitch`` in bytes. A map of pixels has corners:
    its box is the channels and how many pixels.
    """

    element: str
    sizes: tuple[int, ...]
    pitch: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    step: int = 1  # along the second dimension
    corners: tuple[int, int] | None = None


@dataclass(frozen=True)
class Case:
    """Copies of one kind. ``at`` is where in shared memory, ``base`` how far the array is from a multiple of 256."""

    entry: str
    size: int
    at: int = 0
    step: int = 8192
    coordinates: tuple[int, int, int] = (0, 0, 0)
    mask: int = 0  # of the blocks that get something
    map: Map | None = None
    base: int = 0

    @property
    def blocks(self) -> int:
        ends = re.search(r"(\d)$", self.entry) if "multi" in self.entry else None
        return int(ends[1]) if ends else 2 if self.mask else 1

    @property
    def what(self) -> list[int]:
        return [self.size, self.at, TURNS, self.step, *self.coordinates, self.mask]


@dataclass(frozen=True)
class Product:
    """Products of one form; a descriptor is told by swizzle, start, leading and stride offset."""

    entry: str
    a: tuple[int, int, int, int]
    b: tuple[int, int, int, int]

    def descriptors(self) -> tuple[int, int]:
        """B lies 64 KiB behind A. The kernel adds where shared memory begins."""
        found = []
        for start, (mode, first, leading, stride) in ((0, self.a), (1 << 16, self.b)):
            word = (start + first) >> 4 | leading >> 4 << 16 | stride >> 4 << 32
            found.append(word | {0: 0, 128: 1, 64: 2, 32: 3}[mode] << 62)
        return found[0], found[1]


# -- copies ---------------------------------------------------------------------------------------
def cases() -> Iterator[Case]:
    for size, at, base in [
        (16, 0, 0), (32, 0, 0), (48, 0, 0), (64, 0, 0), (128, 0, 0), (128, 16, 0), (128, 0, 16), (128, 16, 16),
        (128, 64, 32), (256, 0, 0), (256, 0, 64), (1024, 0, 0), (1024, 0, 16), (4096, 0, 0), (4096, 128, 0),
        (4096, 16, 0), (4096, 48, 80), (16384, 0, 0),
    ]:  # fmt: skip
        yield Case("bulk_load", size, at, 16384, base=base)
    for entry in ("bulk_store", "bulk_reduce"):
        for size, at, base in [(16, 0, 0), (48, 0, 0), (128, 0, 0), (128, 16, 0), (128, 0, 16), (128, 16, 16),
                               (1024, 0, 0), (4096, 16, 0), (4096, 0, 16), (4096, 48, 80)]:  # fmt: skip
            yield Case(entry, size, at, base=base)
    yield Case("bulk_reduce_f16", 4096)
    for size, base in ((16, 0), (128, 0), (128, 16), (4096, 0)):
        yield Case("bulk_prefetch", size, base=base)
    yield from _tensors()
    for size, base in (
        (16, 0),
        (32, 0),
        (48, 0),
        (64, 32),
        (96, 0),
        (96, 32),
        (128, 0),
        (128, 16),
        (16, 112),
        (4096, 0),
    ):
        yield Case("bulk_multi2", size, mask=3, base=base)
    yield Case("bulk_multi4", 4096, mask=15)
    yield Case("bulk_multi4", 4096, mask=6)
    for size, base in ((16, 0), (128, 0), (4096, 0)):
        yield Case("bulk_send", size, mask=2, base=base)
        yield Case("bulk_send_add", size, mask=2, base=base)
    for step in (4, 8, 32, 128):
        yield Case("st_async", 128, step=step, mask=2)
        yield Case("red_async", 128, step=step, mask=2)


def _box(entry: str, element: str, box: tuple[int, int], swizzle: int, **more: Any) -> Case:
    """Boxes from a tensor with rows of 1 KiB, 4096 of them unless told otherwise."""
    pitch, rows = more.pop("pitch", 1024), more.pop("rows", 4096)
    width = more.pop("width", pitch // SIZES[element])
    tensor = Map(element, (width, rows), (pitch,), box, swizzle)
    return Case(entry, box[0] * box[1] * SIZES[element], step=min(box[1], 32), map=tensor, **more)


def _tensors() -> Iterator[Case]:
    boxes = ((8, 0), (16, 0), (24, 0), (32, 0), (40, 0), (48, 0), (56, 0), (64, 0), (128, 0), (8, 32), (16, 32), (16, 64),
             (32, 64), (16, 128), (32, 128), (48, 128), (64, 128))  # fmt: skip
    for inner, swizzle in boxes:
        yield _box("tensor_load", "f16", (inner, 32), swizzle)
    for rows in (1, 9, 64):
        yield _box("tensor_load", "f16", (64, rows), 128)
    yield _box("tensor_load", "f16", (256, 8), 0)
    yield _box("tensor_load", "u8", (128, 32), 128)
    yield _box("tensor_load", "f32", (4, 32), 0)
    yield _box("tensor_load", "f32", (32, 32), 128)
    for base in (16, 32, 64):
        yield _box("tensor_load", "f16", (64, 32), 128, base=base)
        yield _box("tensor_load", "f16", (32, 32), 64, base=base)
    for entry in ("tensor_load", "tensor_store", "tensor_reduce"):
        yield _box(entry, "f16", (64, 32), 128, pitch=1040)
        yield _box(entry, "f16", (64, 32), 128, coordinates=(8, 0, 0))
        yield _box(entry, "f16", (64, 32), 128, coordinates=(488, 0, 0))
        yield _box(entry, "f16", (64, 32), 128, rows=16)
    for column in (-32, 600):
        yield _box("tensor_load", "f16", (64, 32), 128, coordinates=(column, 0, 0))
    yield _box("tensor_load", "f16", (64, 32), 128, width=40, pitch=80)
    yield Case("tensor_load3", 4096, step=8, map=Map("f16", (512, 512, 8), (1024, 1 << 19), (64, 8, 4), 128))
    for step in (2, 3):
        every = Map("f16", (512, 4096), (1024,), (64, 32), 128, step)
        yield Case("tensor_load", 64 * -(-32 // step) * 2, step=32, map=every)
    for channels, pixels, corners in ((64, 32, (0, 0)), (64, 48, (-1, -1)), (24, 32, (0, 0))):
        images = Map("f16", (64, 40, 256), (128, 128 * 40), (channels, pixels), 0, corners=corners)
        yield Case("tensor_pixels", channels * pixels * 2, step=1, coordinates=(0, corners[0], 0), map=images)
    for entry in ("tensor_store", "tensor_reduce"):
        for inner, swizzle in ((8, 0), (64, 0), (16, 32), (32, 64), (64, 128)):
            yield _box(entry, "f16", (inner, 32), swizzle)
        yield _box(entry, "f32", (32, 32), 128)
    for inner, base in ((64, 0), (8, 0), (48, 0), (64, 16)):
        yield _box("tensor_prefetch", "f16", (inner, 32), 0, base=base)
    for mask in (1, 2, 3):
        yield _box("tensor_multi2", "f16", (64, 32), 128, mask=mask)
    for inner, swizzle in ((8, 0), (16, 0), (32, 64), (48, 0)):
        yield _box("tensor_multi2", "f16", (inner, 32), swizzle, mask=3)
    yield _box("tensor_multi4", "f16", (64, 32), 128, mask=15)


# -- products -------------------------------------------------------------------------------------
_COLUMNS = (8, 16, 32, 64, 96, 128, 192, 256)
_SPARSE = (8, 128)
_GOOD = (128, 0, 16, 1024)
_OTHER_TYPES = {"tf32": ("k8", "f32.tf32.tf32", ", 1, 1"), "e4m3": ("k32", "f32.e4m3.e4m3", ", 1, 1"),
                "s8": ("k32", "s32.s8.s8", "")}  # fmt: skip


def products() -> Iterator[Product]:
    for n in _SPARSE:
        yield Product(f"sparse_s_{n}", _GOOD, _GOOD)
        yield Product(f"sparse_r_{n}", _GOOD, _GOOD)
    for n in _COLUMNS:
        yield Product(f"f16_s_{n}", _GOOD, _GOOD)
        yield Product(f"f16_r_{n}", _GOOD, _GOOD)
    for mode in ((0, 0, 128, 256), (32, 0, 16, 256), (64, 0, 16, 512)):
        yield Product("f16_s_64", mode, mode)
        yield Product("f16_r_128", mode, mode)
    # Layouts that make rows share banks, as far as a descriptor can say so.
    for leading, stride in ((256, 128), (1024, 128), (128, 2048), (16, 16), (0, 0), (144, 272), (32, 64)):
        yield Product("f16_s_128", _GOOD, (0, 0, leading, stride))
        yield Product("f16_s_128", (0, 0, leading, stride), _GOOD)
    for swizzle, start, stride in (
        (128, 16, 1024),
        (128, 128, 1024),
        (128, 0, 128),
        (128, 0, 1152),
        (64, 0, 128),
        (32, 0, 128),
    ):
        yield Product("f16_s_128", _GOOD, (swizzle, start, 16, stride))
    for n in (64, 128):
        for mode in (
            (128, 0, 8192, 1024),
            (64, 0, 4096, 512),
            (32, 0, 2048, 256),
            (0, 0, 128, 256),
            (0, 0, 1024, 128),
        ):
            yield Product(f"f16_s_{n}_t", mode, mode)
            yield Product(f"f16_r_{n}_t", mode, mode)
        for kind in _OTHER_TYPES:
            yield Product(f"{kind}_s_{n}", _GOOD, _GOOD)
            yield Product(f"{kind}_s_{n}", (0, 0, 128, 256), (0, 0, 128, 256))


def wgmma_source() -> str:
    """CUDA C++ with a kernel for each form."""
    parts = [
        "typedef unsigned u32;\ntypedef unsigned long long u64;\n"
        "extern __shared__ __align__(1024) unsigned char tile[];\n"
    ]
    for n in _COLUMNS:
        parts += [
            _kernel(f"f16_{how}_{n}", "k16", "f32.f16.f16", n, ", 1, 1" + ", 0" * (1 + (how == "s")))
            for how in "sr"
        ]
    for n in _SPARSE:
        parts += [
            _kernel(f"sparse_{how}_{n}", "k32", "f32.f16.f16", n, ", 1, 1" + ", 0" * (1 + (how == "s")))
            for how in "sr"
        ]
    for n in (64, 128):
        parts += [
            _kernel(f"f16_{how}_{n}_t", "k16", "f32.f16.f16", n, ", 1, 1" + ", 1" * (1 + (how == "s")))
            for how in "sr"
        ]
        parts += [_kernel(f"{kind}_s_{n}", *form[:2], n, form[2]) for kind, form in _OTHER_TYPES.items()]
    return "\n".join(parts)


def _kernel(name: str, k: str, types: str, n: int, flags: str) -> str:
    """A is in shared memory, or in registers if the name says so."""
    count, whole, in_registers = n // 2, types.startswith("s32"), "_r_" in name
    sums = ", ".join(f"%{i}" for i in range(count))
    given = 4 * ['"r"(x)'] if in_registers else ['"l"(a)']
    a = ", ".join(f"%{count + i}" for i in range(len(given)))
    sparse, b = name.startswith("sparse"), count + len(given)
    text = f"wgmma.mma_async{'.sp' * sparse}.sync.aligned.m64n{n}{k}.{types} {{{sums}}}, "
    text += f"{'{' + a + '}' if in_registers else a}, %{b}, {f'%{b + 1}, 0, ' * sparse}1{flags};"
    given += ['"l"(b)', *['"r"(0x44444444)'] * sparse]
    kind, letter = ("int", "r") if whole else ("float", "f")
    outs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    return f"""
extern "C" __global__ void {name}(u64 a, u64 b, int turns, {kind} *out) {{
    {kind} d[{count}] = {{}}, sum = 0;
    const u32 x = threadIdx.x;
    const u64 base = static_cast<u64>(__cvta_generic_to_shared(tile)) >> 4;
    a += base; b += base;
    #pragma unroll 1
    for (int i = 0; i < turns; i++) {{
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("{text}" : {outs} : {", ".join(given)} : "memory");
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }}
    for (int i = 0; i < {count}; i++) sum += d[i];
    if (sum == 12345) out[x] = sum;
}}
"""


# -- launching ------------------------------------------------------------------------------------
def source() -> str:
    return _SOURCE.read_text(encoding="utf-8")


def _entries(text: str) -> tuple[str, ...]:
    named = re.findall(r"^(?:LOAD|STORE|CLUSTER|WHERE)\((\w+),", text, re.M)
    return (*named, *re.findall(r"__global__ void (\w+)\((?:u64|const int)", text))


ENTRIES = _entries(_SOURCE.read_text(encoding="utf-8"))


class Launcher:
    """Launches of cases on the GPU of this machine."""

    def __init__(self) -> None:
        from tilewise.toolchain.compile import compile_source

        self.gpu = Gpu()
        self.call = self.gpu._call
        self.data = self.gpu.allocate(np.zeros(64 << 20, np.uint8))
        self.small = self.gpu.allocate(np.zeros(1 << 16, np.uint8))
        self.modules: list[ctypes.c_void_p] = []
        for text in (source(), wgmma_source()):
            cubin = compile_source(text, _entries(text), "sm_90a", filename="bulk.cu").cubin
            self.modules.append(self.gpu._load(cubin or b""))

    def start(
        self, module: int, name: str, grid: int, block: int, shared: int, args: Sequence[bytes]
    ) -> None:
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), self.modules[module], name.encode())
        self.call("cuFuncSetAttribute", function, 8, shared)
        held = [ctypes.create_string_buffer(arg, max(len(arg), 8)) for arg in args]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(one) for one in held))
        sizes = map(ctypes.c_uint, (grid, 1, 1, block, 1, 1, shared))
        self.call("cuLaunchKernel", function, *sizes, None, pointers, None)
        self.call("cuCtxSynchronize")

    def case(self, case: Case) -> None:
        self.gpu.put(self.small, np.array(case.what, np.int32))
        array = self.data + case.base
        encoded = self.encoded(case.map, array) if case.map else bytes(128)
        self.start(0, case.entry, case.blocks, 32, 1 << 16, [encoded, _wide(self.small), _wide(array)])

    def product(self, product: Product) -> None:
        a, b = product.descriptors()
        args = [_wide(a), _wide(b), TURNS.to_bytes(4, "little"), _wide(self.small)]
        self.start(1, product.entry, 1, 128, 160 << 10, args)

    def readers(self, some: Sequence[int]) -> None:
        which = np.full(_SMS, -1, np.int32)
        which[list(some)] = 0
        self.gpu.put(self.small, which)
        self.gpu.put(self.small + 4096, np.zeros(16, np.uint32))
        args = [_wide(self.small), _wide(self.small + 4096), _wide(self.data), _wide(self.small + 8192)]
        numbers = [number.to_bytes(4, "little") for number in (_READERS, len(some))]
        self.start(0, "readers", _SMS, 1024, 200 << 10, [*args, *numbers])

    def where(self, name: str, blocks: int) -> list[int]:
        self.start(0, name, blocks, 32, 0, [_wide(self.small)])
        return [int(sm) for sm in self.gpu.get(self.small, np.zeros(blocks, np.uint32))]

    def encoded(self, tensor: Map, address: int) -> bytes:
        room = (ctypes.c_ubyte * 192)()
        start = -ctypes.addressof(room) % 64
        rank = len(tensor.sizes)
        pixels = tensor.corners is not None
        low, high = tensor.corners or (0, 0)
        shape = (
            [(ctypes.c_int * 1)(low), (ctypes.c_int * 1)(high), *map(ctypes.c_uint32, tensor.box)]
            if pixels
            else [(ctypes.c_uint32 * rank)(*tensor.box)]
        )
        number = {"u8": 0, "f16": 6, "f32": 7}[tensor.element]
        self.call(
            "cuTensorMapEncodeIm2col" if pixels else "cuTensorMapEncodeTiled",
            ctypes.c_void_p(ctypes.addressof(room) + start), number, ctypes.c_uint32(rank), ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*tensor.sizes), (ctypes.c_uint64 * (rank - 1))(*tensor.pitch), *shape,
            (ctypes.c_uint32 * rank)(1, tensor.step, *[1] * (rank - 2)), 0, {0: 0, 32: 1, 64: 2, 128: 3}[tensor.swizzle],
            0, 0,
        )  # fmt: skip
        return bytes(room[start : start + 128])


def _wide(number: int) -> bytes:
    return number.to_bytes(8, "little")


# -- the parts of a record ------------------------------------------------------------------------
def _sets() -> Iterator[list[int]]:
    """Multiprocessors that read one stream: the first with each other one, and more and more together."""
    yield [0]
    for other in range(1, _SMS):
        yield [0, other]
    for count in (2, 4, 8, 16, 32, 64, _SMS):
        yield list(range(count))


_RUNGS: tuple[tuple[str, tuple[int, int, int], dict[str, Any]], ...] = (
    ("03_simple", (512, 512, 256), {}), ("04_tiled", (640, 352, 448), {}), ("06_tiled_branchless", (512, 512, 256), {}),
    ("07_tiled_exact", (512, 512, 256), {}), ("08_register_tiled", (512, 512, 256), {}),
    ("09_warp_tiled", (512, 512, 256), {}), ("12_multistage", (512, 512, 256), {}),
    ("08_register_tiled", (2048, 2048, 128), {}), ("09_warp_tiled", (2048, 2048, 128), {}),
    ("12_multistage", (2048, 2048, 256), {}), ("13_warp_specialised", (512, 512, 256), {}),
    ("13_warp_specialised", (1024, 1024, 512), {}), ("13_warp_specialised", (2048, 2048, 256), {}),
)  # fmt: skip


def _rungs() -> None:
    import tilewise as tw

    for name, (m, n, k), settings in _RUNGS:
        rung = tw.ladder[name]
        element = rung.spec.element(rung.spec.complete(settings))
        rung(np.zeros((m, k), element), np.zeros((k, n), element), device="gpu", **settings)


def launch(part: str) -> None:
    """Launch a part once; a profiler counts."""
    if part == "rungs":
        _rungs()
        return
    launcher = Launcher()
    if part == "copies":
        for case in cases():
            launcher.case(case)
    elif part == "products":
        for product in products():
            launcher.product(product)
    elif part == "readers":
        for some in _sets():
            launcher.readers(some)


def _told(part: str) -> list[Any]:
    if part == "rungs":
        return [{"rung": name, "size": size, "settings": settings} for name, size, settings in _RUNGS]
    if part == "readers":
        return list(_sets())
    return [asdict(item) for item in (cases() if part == "copies" else products())]


def record(part: str, metrics: dict[str, str]) -> list[dict[str, Any]]:
    """A row for each launch: what it was, and what counters that are not zero say."""
    from tests.hardware.profile import find, read

    names = ",".join(f"{name}.sum" for name in metrics.values())
    command = [find(), "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--metrics", names,
               sys.executable, "-m", "tests.hardware.bulk", "--launch", part]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
    rows, told = read(ran.stdout), _told(part)
    if len(rows) != len(told):
        raise RuntimeError(f"{part}: {len(rows)} of {len(told)}: {ran.stderr[-600:]}")
    found = []
    for item, row in zip(told, rows, strict=True):
        counts = {
            key: float((row.get(f"{name}.sum") or "0").replace(",", "")) for key, name in metrics.items()
        }
        found.append({"case": item, "counts": {key: int(value) for key, value in counts.items() if value}})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--launch", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.launch:
        launch(given.launch)
        return
    asked = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem"
    gpu = subprocess.run(
        ["nvidia-smi", f"--query-gpu={asked}", "--format=csv"], capture_output=True, text=True
    ).stdout.strip()
    about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "command": "python -m tests.hardware.bulk",
             "gpu": gpu, "turns": TURNS}  # fmt: skip
    launcher = Launcher()
    where = {name: launcher.where(name, _SMS) for name in ("where", "where_pairs")}
    found: dict[str, Any] = {"about": about, "where": where}
    for part in ("copies", "products", "readers", "rungs"):
        found[part] = record(part, METRICS if part in ("copies", "products") else _MERGED)
        print(part, len(found[part]), flush=True)
    text = json.dumps(found).replace('}, {"case"', '},\n{"case"')
    (given.out / "bulk.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
