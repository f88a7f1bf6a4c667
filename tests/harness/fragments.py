"""Where the PTX ISA says that each lane's elements of mma's matrices lie, section by section, and kernels
that run many forms at once.

Written from the formulas of the document; the emulator has one rule for all of them instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import tilewise as tw
from tests.harness.many import Array
from tilewise.emulator import Range, Runner, build_kernel
from tilewise.emulator.native import CpuTarget
from tilewise.launch import Launch

__all__ = ["BITS", "NUMPY", "Form", "codes", "numbers", "pack", "run_alike", "run_forms", "unpack"]

Layout = Callable[[int, int], tuple[int, int]]  # lane and element → row and column

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4,
    "b1": 1, "f32": 32, "s32": 32,
}  # fmt: skip
NUMPY: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32, "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
    "s32": np.int32,
}  # fmt: skip


def _g(lane: int) -> int:
    return lane >> 2


def _t(lane: int) -> int:
    return lane % 4


def _down(lane: int, low: bool) -> int:
    """groupID where the document says so, else groupID + 8."""
    return _g(lane) if low else _g(lane) + 8


# Shape and bits of an element → the layout of A.
A: dict[tuple[str, int], Layout] = {
    ("m16n8k8", 16): lambda lane, i: (_down(lane, i < 2), _t(lane) * 2 + (i & 1)),
    ("m16n8k16", 16): lambda lane, i: (
        _down(lane, 0 <= i < 2 or 4 <= i < 6),
        _t(lane) * 2 + (i & 1) + (8 if i >= 4 else 0),
    ),
    ("m16n8k4", 32): lambda lane, i: (_down(lane, i == 0), _t(lane)),
    ("m16n8k8", 32): lambda lane, i: (_down(lane, i in (0, 2)), _t(lane) + (0 if i < 2 else 4)),
    ("m8n8k4", 64): lambda lane, i: (lane >> 2, lane % 4),
    ("m16n8k4", 64): lambda lane, i: (_down(lane, i == 0), _t(lane)),
    ("m16n8k8", 64): lambda lane, i: (_down(lane, i in (0, 2)), _t(lane) + (0 if i < 2 else 4)),
    ("m16n8k16", 64): lambda lane, i: (_down(lane, i % 2 == 0), i * 2 - (0 if i % 2 == 0 else 2) + _t(lane)),
    ("m8n8k16", 8): lambda lane, i: (_g(lane), _t(lane) * 4 + i),
    ("m16n8k16", 8): lambda lane, i: (_down(lane, i < 4), _t(lane) * 4 + (i & 3)),
    ("m16n8k32", 8): lambda lane, i: (
        _down(lane, 0 <= i < 4 or 8 <= i < 12),
        _t(lane) * 4 + (i & 3) + (0 if i < 8 else 16),
    ),
    ("m8n8k32", 4): lambda lane, i: (_g(lane), _t(lane) * 8 + i),
    ("m16n8k32", 4): lambda lane, i: (_down(lane, i < 8), _t(lane) * 8 + (i & 7)),
    ("m16n8k64", 4): lambda lane, i: (
        _down(lane, 0 <= i < 8 or 16 <= i < 24),
        _t(lane) * 8 + (i & 7) + (0 if i < 16 else 32),
    ),
    ("m8n8k128", 1): lambda lane, i: (_g(lane), _t(lane) * 32 + i),
    ("m16n8k128", 1): lambda lane, i: (_down(lane, i < 32), _t(lane) * 32 + (i & 31)),
    ("m16n8k256", 1): lambda lane, i: (
        _down(lane, 0 <= i < 32 or 64 <= i < 96),
        _t(lane) * 32 + (i & 31) + (0 if i < 64 else 128),
    ),
}

B: dict[tuple[str, int], Layout] = {
    ("m16n8k8", 16): lambda lane, i: (_t(lane) * 2 + i, _g(lane)),
    ("m16n8k16", 16): lambda lane, i: (_t(lane) * 2 + (i & 1) + (0 if i < 2 else 8), _g(lane)),
    ("m16n8k4", 32): lambda lane, i: (_t(lane), _g(lane)),
    ("m16n8k8", 32): lambda lane, i: (_t(lane) + (0 if i == 0 else 4), _g(lane)),
    ("m8n8k4", 64): lambda lane, i: (lane % 4, lane >> 2),
    ("m16n8k4", 64): lambda lane, i: (_t(lane), _g(lane)),
    ("m16n8k8", 64): lambda lane, i: (_t(lane) + (0 if i == 0 else 4), _g(lane)),
    ("m16n8k16", 64): lambda lane, i: (_t(lane) + i * 4, _g(lane)),
    ("m8n8k16", 8): lambda lane, i: (_t(lane) * 4 + i, _g(lane)),
    ("m16n8k16", 8): lambda lane, i: (_t(lane) * 4 + i, _g(lane)),
    ("m16n8k32", 8): lambda lane, i: (_t(lane) * 4 + (i & 3) + (0 if i < 4 else 16), _g(lane)),
    ("m8n8k32", 4): lambda lane, i: (_t(lane) * 8 + i, _g(lane)),
    ("m16n8k32", 4): lambda lane, i: (_t(lane) * 8 + (i & 7), _g(lane)),
    ("m16n8k64", 4): lambda lane, i: (_t(lane) * 8 + (i & 7) + (0 if i < 8 else 32), _g(lane)),
    ("m8n8k128", 1): lambda lane, i: (_t(lane) * 32 + i, _g(lane)),
    ("m16n8k128", 1): lambda lane, i: (_t(lane) * 32 + i, _g(lane)),
    ("m16n8k256", 1): lambda lane, i: (_t(lane) * 32 + (i & 31) + (0 if i < 32 else 128), _g(lane)),
    # Of sparse forms, where a larger B than any above is told by a figure.
    ("m16n8k32", 16): lambda lane, i: (_t(lane) * 2 + (i & 1) + 8 * (i >> 1), _g(lane)),
    ("m16n8k16", 32): lambda lane, i: (_t(lane) + i * 4, _g(lane)),
    ("m16n8k64", 8): lambda lane, i: (_t(lane) * 4 + (i & 3) + 16 * (i >> 2), _g(lane)),
    ("m16n8k128", 4): lambda lane, i: (_t(lane) * 8 + (i & 7) + 32 * (i >> 3), _g(lane)),
}


def _c(lane: int, i: int) -> tuple[int, int]:
    return _down(lane, i < 2), _t(lane) * 2 + (i & 1)


# m8n8k4 of f16 is four products; each has rows of its own here: those of product q begin at 8·q in A and C,
# its columns at 8·q in B.
def _volta(lane: int, row: int, column: int) -> tuple[int, int]:
    return lane % 16 // 4 * 8 + row, column


def _volta_a_row(lane: int, i: int) -> tuple[int, int]:
    return _volta(lane, lane % 4 if lane < 16 else lane % 4 + 4, i)


def _volta_a_col(lane: int, i: int) -> tuple[int, int]:
    return _volta(lane, i % 4 if lane < 16 else i % 4 + 4, lane % 4)


def _volta_b_row(lane: int, i: int) -> tuple[int, int]:
    return lane % 4, lane % 16 // 4 * 8 + (i if lane < 16 else i + 4)


def _volta_b_col(lane: int, i: int) -> tuple[int, int]:
    return i, lane % 16 // 4 * 8 + (lane % 4 if lane < 16 else lane % 4 + 4)


def _volta_c_f16(lane: int, i: int) -> tuple[int, int]:
    return _volta(lane, lane % 4 if lane < 16 else lane % 4 + 4, i)


def _volta_c_f32(lane: int, i: int) -> tuple[int, int]:
    x = (lane & 1) + (i & 2)
    return _volta(lane, x if lane < 16 else x + 4, (i & 4) + (lane & 2) + (i & 1))


@dataclass
class Form:
    """One instruction: the text of its name, and what its matrices are like."""

    shape: str
    d: str
    a: str
    b: str
    c: str
    ways: str = "row.col"
    after: str = ""  # words after the ways
    end: str = ""  # words at the end
    sparse: str = ""  # "sp", with the metadata of one register, or none
    selector: int = 0
    guard: str = ""
    in_place: bool = False  # D in C's registers
    blocks: dict[str, Array] = field(default_factory=dict)  # registers by operand: [register][lane]

    @property
    def name(self) -> str:
        words = ["mma", self.sparse, "sync.aligned", self.shape, self.ways, self.after]
        return ".".join(word for word in [*words, self.d, self.a, self.b, self.c, self.end] if word)

    @property
    def volta(self) -> bool:
        return self.shape == "m8n8k4" and self.a == "f16"

    @property
    def m(self) -> int:
        return 32 if self.volta else int(self.shape[1 : self.shape.index("n")])

    @property
    def n(self) -> int:
        return 32 if self.volta else 8

    @property
    def k(self) -> int:
        return int(self.shape[self.shape.index("k") + 1 :])

    @property
    def kept(self) -> int:
        """Columns of A that are there."""
        return self.k // 2 if self.sparse else self.k

    def layout(self, which: str) -> Layout:
        if self.volta:
            a_way, b_way = self.ways.split(".")
            sums = _volta_c_f16 if getattr(self, which) == "f16" else _volta_c_f32
            return {
                "a": _volta_a_row if a_way == "row" else _volta_a_col,
                "b": _volta_b_row if b_way == "row" else _volta_b_col,
            }.get(which, sums)
        if which in "cd":
            return _c
        bits = BITS[getattr(self, which)]
        shape = f"{self.shape[: self.shape.index('k')]}k{self.kept}" if which == "a" else self.shape
        return (A if which == "a" else B)[shape, bits]

    def registers(self, which: str) -> int:
        bits = BITS[getattr(self, which)]
        elements = {
            "a": 4 if self.volta else self.m * self.kept // 32,
            "b": 4 if self.volta else self.n * self.k // 32,
        }.get(which, 8 if self.volta else self.m * self.n // 32)
        return max(1, elements * bits // 64 if bits == 64 else elements * bits // 32)


# -- matrices and registers -------------------------------------------------------------------------
def codes(values: Array, type_: str) -> Array:
    """Numbers as the bits that stand for them."""
    if type_ in ("s4", "u4", "b1"):
        return values.astype(np.int64) & ((1 << BITS[type_]) - 1)
    bits = BITS[type_]
    found = values.astype(NUMPY[type_]).view(f"u{bits // 8}").astype(np.uint64)
    return found & 0xFFFF_E000 if type_ == "tf32" else found


def numbers(bits: Array, type_: str) -> Array:
    """What bits stand for, as doubles, or integers."""
    if type_ in ("u4", "b1"):
        return bits.astype(np.int64)
    if type_ == "s4":
        return (bits.astype(np.int64) ^ 8) - 8
    found = bits.astype(f"u{BITS[type_] // 8}").view(NUMPY[type_])
    with np.errstate(invalid="ignore"):  # NaN
        wide: Array = found.astype(np.int64 if found.dtype.kind in "iu" else np.float64)
    return wide


def pack(matrix: Array, type_: str, layout: Layout, registers: int) -> Array:
    """The registers of a warp that hold a matrix of bits."""
    bits = BITS[type_]
    width = 64 if bits == 64 else 32
    found = np.zeros((registers, 32), f"u{width // 8}")
    for lane in range(32):
        for i in range(registers * width // bits):
            row, column = layout(lane, i)
            found[i * bits // width, lane] |= found.dtype.type(int(matrix[row, column]) << (i * bits % width))
    return found


def unpack(found: Array, type_: str, layout: Layout, shape: tuple[int, int]) -> Array:
    """The matrix of bits that registers hold."""
    bits, width = BITS[type_], found.dtype.itemsize * 8
    matrix = np.zeros(shape, np.uint64)
    for lane in range(32):
        for i in range(len(found) * width // bits):
            word = int(found[i * bits // width, lane])
            matrix[layout(lane, i)] = word >> (i * bits % width) & ((1 << bits) - 1)
    return matrix


# -- kernels ----------------------------------------------------------------------------------------
def _word(type_: str) -> tuple[str, str, int]:
    return {"f64": ("f64", "%d", 8), "f32": ("f32", "%f", 4)}.get(type_, ("b32", "%r", 4))


class _Text:
    """The text of a kernel that loads registers, runs instructions and stores registers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.data: list[Array] = []
        self.inputs = self.outputs = 0
        self.counts = {"%r": 0, "%f": 0, "%d": 0}

    def new(self, stem: str) -> str:
        self.counts[stem] += 1
        return f"{stem}{self.counts[stem]}"

    def load(self, type_: str, block: Array) -> list[str]:
        word, stem, size = _word(type_)
        names = []
        for row in block:
            names.append(self.new(stem))
            self.lines.append(f"ld.global.{word} {names[-1]}, [%in{size} + {self.inputs}];")
            self.data.append(np.frombuffer(row.tobytes(), np.uint8))
            self.inputs += 32 * size
        return names

    def store(self, type_: str, names: Sequence[str]) -> None:
        word, _, size = _word(type_)
        for name in names:
            self.lines.append(f"st.global.{word} [%out{size} + {self.outputs}], {name};")
            self.outputs += 32 * size

    def whole(self) -> str:
        declared = [
            f".reg .{word} {stem}<{self.counts[stem] + 1}>;"
            for word, stem in (("b32", "%r"), ("f32", "%f"), ("f64", "%d"))
        ]
        head = [
            ".version 9.0", ".target sm_90a", ".address_size 64",
            ".visible .entry k(.param .u64 in, .param .u64 out) {", *declared,
            ".reg .b64 %in, %out, %in4, %in8, %out4, %out8, %w; .reg .b32 %lane, %bit; .reg .pred %odd;",
            "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %lane, %tid.x;",
            "mov.u32 %bit, %ctaid.x;",  # each block has inputs and outputs of its own
            f"mul.wide.u32 %w, %bit, {self.inputs}; add.s64 %in, %in, %w;",
            f"mul.wide.u32 %w, %bit, {self.outputs}; add.s64 %out, %out, %w;",
            "and.b32 %bit, %lane, 1; setp.eq.u32 %odd, %bit, 1;",
        ]  # fmt: skip
        for size in (4, 8):
            head.append(f"mul.wide.u32 %w, %lane, {size};")
            head.append(f"add.s64 %in{size}, %in, %w; add.s64 %out{size}, %out, %w;")
        return "\n".join([*head, *self.lines, "ret;", "}", ""])


def run_forms(forms: Sequence[Form], target: CpuTarget | None = None) -> list[Array]:
    """Run one instruction of each form on its blocks "a", "b", "c" (and "e"); the registers of each D.

    With a target, compiled for that CPU instead of this one.
    """
    text = _text(forms)
    data, out = np.concatenate(text.data), np.zeros(text.outputs, np.uint8)
    if target is None:
        tw.Kernel.from_ptx(text.whole(), "k")(1, 32, [data, out], device="emulator")
    else:
        made = build_kernel(text.whole(), "k", (32, 1, 1), target, None)
        ranges = [Range(array.ctypes.data, array.nbytes, "array") for array in (data, out)]
        addresses = [item.start.to_bytes(8, "little") for item in ranges]
        Runner(made, Launch((1, 1, 1), (32, 1, 1)), addresses, ranges, [])()
    return _results(forms, out)


def run_alike(forms: Sequence[Form]) -> list[Array]:
    """As ``run_forms``, for forms that differ in their blocks alone: one instruction, compiled once."""
    texts = [_text([form]) for form in forms]
    assert len({text.whole() for text in texts}) == 1
    data = np.concatenate([row for text in texts for row in text.data])
    out = np.zeros(sum(text.outputs for text in texts), np.uint8)
    tw.Kernel.from_ptx(texts[0].whole(), "k")(len(forms), 32, [data, out], device="emulator")
    return _results(forms, out)


def _text(forms: Sequence[Form]) -> _Text:
    text = _Text()
    for form in forms:
        names = {which: text.load(getattr(form, which), form.blocks[which]) for which in ("a", "b", "c")}
        stem = _word(form.d)[1]
        d = names["c"] if form.in_place else [text.new(stem) for _ in range(form.registers("d"))]
        if form.guard and not form.in_place:
            for name in d:
                text.lines.append(f"mov.{_word(form.d)[0]} {name}, {names['c'][0]};")
        operands = [", ".join(group) for group in (d, names["a"], names["b"], names["c"])]
        listed = ", ".join(f"{{{group}}}" for group in operands)
        extra = f", {text.load('b32', form.blocks['e'])[0]}, {form.selector}" if form.sparse else ""
        text.lines.append(f"{form.guard} {form.name} {listed}{extra};")
        text.store(form.d, d)
    return text


def _results(forms: Sequence[Form], out: Array) -> list[Array]:
    found, start = [], 0
    for form in forms:
        size, count = _word(form.d)[2], form.registers("d")
        end = start + 32 * size * count
        found.append(out[start:end].view(f"u{size}").reshape(count, 32))
        start = end
    return found
