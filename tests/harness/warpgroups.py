"""Kernels of wgmma and a model of them: matrices in shared memory and in registers, as the PTX ISA draws them.

Nothing here is the emulator's: where elements lie is told by the document's canonical layouts, evaluated as
the nested shapes and strides that they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilewise as tw
from tests.harness.fragments import BITS, numbers
from tests.harness.many import Array
from tilewise.emulator import Range, Runner, build_kernel
from tilewise.emulator.native import CpuTarget
from tilewise.launch import Launch

__all__ = [
    "SWIZZLES",
    "THREADS",
    "Case",
    "Modes",
    "Operand",
    "copied",
    "descriptor",
    "put",
    "run_cases",
    "whole",
]

THREADS = 128
Modes = tuple[tuple[int, int], ...]  # nested: size and stride of each
SWIZZLES = (0, 32, 64, 128)
_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
_K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}


@dataclass
class Operand:
    """A matrix in shared memory: rows (of A, or columns of B) by k."""

    bits: int
    rows: int
    k: int
    swizzle: int
    across: bool = False  # MN-major
    start: int = 0
    leading: int = 0
    stride: int = 0
    base: int = 0  # the base offset

    def descriptor(self) -> int:
        word = (self.start >> 4) & 0x3FFF | ((self.leading >> 4) & 0x3FFF) << 16
        return word | ((self.stride >> 4) & 0x3FFF) << 32 | self.base << 49 | _MODES[self.swizzle] << 62

    def places(self) -> Array:
        """The byte that each element starts in, and for single bits that it is in: [row, k]."""
        t = 128 // self.bits
        times = max(1, self.swizzle // 16)
        leading, stride = self.leading * 8 // self.bits, self.stride * 8 // self.bits  # in elements
        many = 1 << 20
        rows: Modes
        columns: Modes
        if self.across and not self.swizzle:
            rows, columns = ((t, 1), (1, t), (many, stride)), ((8, t), (many, leading))
        elif self.across:
            rows, columns = ((t, 1), (times, t), (many, leading)), ((8, times * t), (many, stride))
        elif not self.swizzle:
            rows, columns = ((8, t), (many, stride)), ((t, 1), (many, leading))
        else:
            # The document has no more than one swizzle's bytes in a row; GPUs go on as without one.
            rows, columns = ((8, times * t), (many, stride)), ((t, 1), (times, t), (many, leading))
        offsets = _walk(rows, self.rows)[:, None] + _walk(columns, self.k)[None, :]
        address = self.start + offsets * self.bits // 8
        digits = (times - 1).bit_length()
        pattern = (address >> 7) - self.base & ((1 << digits) - 1)
        found: Array = address ^ pattern << 4
        return found


def _walk(modes: Modes, count: int) -> Array:
    """The offset of each coordinate in a nested mode of (size, stride) pairs."""
    at = np.arange(count)
    total = np.zeros(count, np.int64)
    for size, stride in modes:
        total += at % size * stride
        at = at // size
    return total


@dataclass
class Case:
    """One instruction with its matrices as bits: A is 64 by k, B is n by k, C is 64 by n."""

    n: int
    d: str
    a: str
    b: str
    in_registers: bool = False
    left: Operand | None = None
    right: Operand | None = None
    scale: tuple[int, int] = (1, 1)
    adds: bool = True
    satfinite: bool = False
    selector: int | None = None  # of a sparse A
    matrices: dict[str, Array] = field(default_factory=dict)
    image: Array = field(default_factory=lambda: np.zeros(0, np.uint8))

    @property
    def k(self) -> int:
        """Columns of A that are there."""
        return _K[self.a]

    @property
    def depth(self) -> int:
        return self.k if self.selector is None else 2 * self.k

    @property
    def registers(self) -> int:
        return self.n // (4 if self.d == "f16" else 2)

    def text(self, a: str, b: str) -> str:
        """The instruction, given its operands A and B."""
        end = ""
        if self.a in ("f16", "bf16", "tf32", "e4m3", "e5m2"):
            end = f", {self.scale[0]}, {self.scale[1]}"
        if self.a in ("f16", "bf16"):
            assert self.right
            turns = ([] if self.in_registers else [self.left]) + [self.right]
            end += "".join(f", {int(turn.across)}" for turn in turns if turn)
        words = f"{self.d}.{self.a}.{self.b}" + (".and.popc" if self.a == "b1" else "")
        words += ".satfinite" if self.satfinite else ""
        listed = ", ".join(f"%d{i}" for i in range(self.registers))
        sparse, more = ("", "") if self.selector is None else (".sp", f" %m, {self.selector},")
        kind = f"wgmma.mma_async{sparse}.sync.aligned.m64n{self.n}k{self.depth}.{words}"
        return f"{kind} {{{listed}}}, {a}, {b},{more} {'%yes' if self.adds else '%no'}{end};"

    def spread(self, random: np.random.Generator) -> None:
        """Choose what a sparse A keeps: "full" is the whole of it, "used" where it has elements, and "e" the
        metadata, by thread: what is nobody's is junk."""
        bits, chunk = BITS[self.a], 2 if self.a == "tf32" else 4
        words = random.integers(0, 2**32, THREADS, dtype=np.uint32)
        full, used = np.zeros((64, self.depth), np.uint64), np.zeros((64, self.depth), bool)
        for row in range(64):
            for number in range(self.depth // chunk):
                if chunk == 2:
                    chosen = [int(random.integers(2))]
                    code = (0b0100, 0b1110)[chosen[0]]
                else:
                    chosen = sorted(int(x) for x in random.choice(4, 2, replace=False))
                    code = chosen[0] | chosen[1] << 2
                first = row // 16 * 32 + row % 8 * 4
                lower, pair = row % 16 // 8, 2 * (self.selector or 0)
                if bits < 16:
                    thread, low = first + lower + 2 * (number // 8), number % 8 * 4
                else:
                    thread, low = first + number // 4 + pair, number % 4 * 4 + 16 * lower
                words[thread] = (int(words[thread]) & ~(15 << low)) | code << low
                for i, place in enumerate(chosen):
                    full[row, number * chunk + place] = self.matrices["a"][row, number * chunk // 2 + i]
                    used[row, number * chunk + place] = True
        self.matrices |= {"full": full, "used": used, "e": words}

    def fragment(self) -> Array:
        """The four registers of A of every thread."""
        bits = BITS[self.a]
        per = 32 // bits
        found = np.zeros((4, THREADS), np.uint64)
        for thread in range(THREADS):
            warp, g, t = thread // 32, thread % 32 // 4, thread % 4
            for register in range(4):
                for part in range(per):
                    row, column = (
                        16 * warp + g + 8 * (register % 2),
                        t * per + part + 4 * per * (register // 2),
                    )
                    found[register, thread] |= np.uint64(int(self.matrices["a"][row, column]) << part * bits)
        return found.astype(np.uint32)

    def sums(self, matrix: Array) -> Array:
        """The registers that hold a matrix of 64 by n."""
        thread, element = np.arange(THREADS)[None, :], np.arange(self.n // 2)[:, None]
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (element // 2 % 2)
        column = 8 * (element // 4) + 2 * (thread % 4) + element % 2
        found: Array = matrix[row, column].astype(np.uint32)
        return found[0::2] | found[1::2] << 16 if self.d == "f16" else found

    def matrix(self, registers: Array) -> Array:
        """The matrix of 64 by n that registers hold, as numbers."""
        bits = registers
        if self.d == "f16":
            bits = np.stack([registers & 0xFFFF, registers >> 16], 1).reshape(-1, THREADS)
        found = np.zeros((64, self.n), np.uint32)
        thread, element = np.arange(THREADS)[None, :], np.arange(self.n // 2)[:, None]
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (element // 2 % 2)
        found[row, 8 * (element // 4) + 2 * (thread % 4) + element % 2] = bits
        return numbers(found, self.d)

    def exact(self) -> tuple[Array, Array]:
        """D as exact as doubles or 64-bit integers are, and the sum of the sizes of what is added up."""
        a = numbers(self.matrices["a" if self.selector is None else "full"], self.a)
        b, c = numbers(self.matrices["b"], self.b), numbers(self.matrices["c"], self.d)
        c = c if self.adds else np.zeros_like(c)
        product, size = a @ b.T * (self.scale[0] * self.scale[1]), np.abs(a) @ np.abs(b).T
        total = product + c
        if self.satfinite:
            total = np.clip(total, -(2**31), 2**31 - 1)
        elif self.d == "s32":
            total = (total + 2**31) % 2**32 - 2**31
        return total, size + np.abs(c)


def put(image: Array, operand: Operand, matrix: Array) -> None:
    """Write a matrix of bits where its descriptor says."""
    places = operand.places()
    if operand.bits == 1:
        packed = np.packbits(matrix.astype(np.uint8), axis=1, bitorder="little")
        image[places[:, ::8]] = packed
        return
    size = operand.bits // 8
    for byte in range(size):
        image[places + byte] = matrix.astype(np.uint64) >> np.uint64(8 * byte) & np.uint64(0xFF)


def copied(number: int, room: int) -> list[str]:
    """Fill shared memory from the images, the number-th of ``room`` bytes."""
    return [
        "bar.sync 0;", f"ld.param.u64 %at, [images]; add.u64 %at, %at, {number * room};", "shl.b32 %i, %t, 4;",
        f"L{number}: cvt.u64.u32 %x, %i; add.u64 %y, %at, %x; mov.u32 %s, s; add.u32 %s, %s, %i;",
        "ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%y]; st.shared.v4.b32 [%s], {%v0, %v1, %v2, %v3};",
        f"mov.u32 %s, %ntid.x; shl.b32 %s, %s, 4; add.u32 %i, %i, %s; setp.lt.u32 %p, %i, {room}; @%p bra L{number};",
        "fence.proxy.async; bar.sync 0;", "mul.wide.u32 %x, %t, 4;",
    ]  # fmt: skip


def descriptor(name: str, operand: Operand) -> list[str]:
    """A descriptor in a register; the matrices' places count from the start of the array."""
    return [
        f"mov.u32 %s, s; shr.u32 %s, %s, 4; cvt.u64.u32 {name}, %s;",
        f"add.u64 {name}, {name}, {operand.descriptor()};",
    ]


def whole(lines: list[str], room: int) -> str:
    """A kernel of given lines: parameters are images, fragments, metadata, C, D."""
    head = [
        ".version 8.4", ".target sm_90a", ".address_size 64",
        ".visible .entry k(.param .u64 images, .param .u64 fragments, .param .u64 e, .param .u64 c, .param .u64 d) {",
        f".shared .align 1024 .b8 s[{room}];",
        ".reg .b32 %d<128>, %e<32>, %a<4>, %t, %i, %v<4>, %s, %m; .reg .b64 %l, %r, %at, %x, %y;",
        ".reg .pred %yes, %no, %p;",
        "mov.u32 %t, %tid.x; setp.eq.u32 %yes, 0, 0; setp.ne.u32 %no, 0, 0;",
    ]  # fmt: skip
    return "\n".join([*head, *lines, "ret;", "}", ""])


def text_of(cases: list[Case], room: int) -> str:
    """A kernel that runs one case after the other."""
    lines: list[str] = []
    before = 0
    for number, case in enumerate(cases):
        lines += copied(number, room)
        a = "%l"
        if case.in_registers:
            lines.append("ld.param.u64 %at, [fragments]; add.u64 %at, %at, %x;")
            lines += [f"ld.global.b32 %a{i}, [%at+{(number * 4 + i) * 4 * THREADS}];" for i in range(4)]
            a = "{%a0, %a1, %a2, %a3}"
        if case.selector is not None:
            lines.append(
                f"ld.param.u64 %at, [e]; add.u64 %at, %at, %x; ld.global.b32 %m, [%at+{number * 4 * THREADS}];"
            )
        lines.append("ld.param.u64 %at, [c]; add.u64 %at, %at, %x;")
        ids = range(case.registers)
        lines += [f"ld.global.b32 %d{i}, [%at+{(before + i) * 4 * THREADS}];" for i in ids]
        for name, operand in (("%l", case.left), ("%r", case.right)):
            lines += descriptor(name, operand) if operand else []
        lines += ["wgmma.fence.sync.aligned;", case.text(a, "%r")]
        lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
        lines.append("ld.param.u64 %at, [d]; add.u64 %at, %at, %x;")
        lines += [f"st.global.b32 [%at+{(before + i) * 4 * THREADS}], %d{i};" for i in ids]
        before += case.registers
    return whole(lines, room)


def run_cases(cases: list[Case], device: Any = "emulator", target: CpuTarget | None = None) -> list[Array]:
    """The matrices D, as numbers; with a target, of code for that CPU instead of this one."""
    room = max(len(case.image) for case in cases)
    images = np.zeros((len(cases), room), np.uint8)
    fragments = np.zeros((len(cases), 4, THREADS), np.uint32)
    metadata = np.zeros((len(cases), THREADS), np.uint32)
    for number, case in enumerate(cases):
        images[number, : len(case.image)] = case.image
        if case.in_registers:
            fragments[number] = case.fragment()
        if case.selector is not None:
            metadata[number] = case.matrices["e"]
    c = np.concatenate([case.sums(case.matrices["c"]) for case in cases])
    d = np.zeros_like(c)
    text = text_of(cases, room)
    arrays: list[Array] = [images, fragments, metadata, c, d]
    if target is None:
        tw.Kernel.from_ptx(text, "k")(1, THREADS, arrays, device=device)
    else:
        made = build_kernel(text, "k", (THREADS, 1, 1), target, None)
        ranges = [Range(array.ctypes.data, array.nbytes, "array") for array in arrays]
        addresses = [item.start.to_bytes(8, "little") for item in ranges]
        Runner(made, Launch((1, 1, 1), (THREADS, 1, 1)), addresses, ranges, [])()
    found, start = [], 0
    for case in cases:
        found.append(case.matrix(d[start : start + case.registers]))
        start += case.registers
    return found
