"""The numerics of tensor cores, in one place, for every instruction that multiplies matrices.

PTX leaves order, rounding and the treatment of subnormal numbers open, and GPUs differ in them. Here:

- Products of f16, bf16, tf32, e4m3 and e5m2 are exact; subnormal numbers count, on both ends.
- A *fast* sum of floats starts from the element of C and adds one product after the other in order of k, each
  rounded to the nearest float (a fused multiply-add). It is rounded once more where D is f16. A GPU adds
  some products at a time and cuts off what lies below the largest; its result is no nearer to the truth.
- A *hardware* sum is an H200's to the last bit (``hardware_sums.py``), and takes about three times as long.
- f64 is one fused multiply-add after the other, as PTX says.
- Sums of integers are exact, and wrap around or saturate once, at the end.
- tf32 operands are floats whose lowest 13 bits are left away, as GPUs do.
- Fast sums of ``wgmma`` have the bits that ``mma`` gives, instruction by instruction, however its matrices lie
  in memory; so have hardware sums, but for 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewise.emulator.llvm.emit import Emitter, Value, vector
from tilewise.emulator.numerics import halves

__all__ = [
    "ELEMENTS",
    "Pair",
    "Sparsity",
    "Steps",
    "accumulate",
    "add_whole",
    "bit_counts",
    "decode",
    "encode",
    "integer_sums",
]

Pair = tuple[Value, Value]  # of factors
Steps = Sequence[Sequence[Pair]]  # for each k, those of every sum


def accumulate(e: Emitter, sums: Sequence[Value], steps: Steps, exact: bool = False) -> list[Value]:
    """``sums``, each with its own product of every step added, as a tensor core of the emulator does.

    ``exact`` says that floats hold the products: then one rounding or two are the same, and a CPU without
    fused multiply-adds need not call a function for each.
    """
    name = "llvm.fmuladd" if exact else "llvm.fma"
    totals = list(sums)
    for pairs in steps:
        totals = [e.intrinsic(name, a, b, total) for (a, b), total in zip(pairs, totals, strict=True)]
    return totals


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type that elements of A and B have: bits, and how they become a number that one can multiply."""

    bits: int
    number: Callable[[Emitter, Value, int], Value]  # (emitter, 32-bit register, which of its elements)
    exact: bool = False  # whether a float holds every product of two of them


# -- elements of A and B as floats ------------------------------------------------------------------
def _f16(e: Emitter, register: Value, part: int) -> Value:
    bits = register >> 16 if part else register
    return halves.up(e, e.cast("bitcast", e.resize(bits, "i16", False), "half"))


def _bf16(e: Emitter, register: Value, part: int) -> Value:
    bits = register & 0xFFFF_0000 if part else register << 16
    return e.cast("bitcast", bits, "float")


def _tf32(e: Emitter, register: Value, part: int) -> Value:
    return e.cast("bitcast", register & 0xFFFF_E000, "float")


def _e5m2(e: Emitter, register: Value, part: int) -> Value:
    """The upper byte of an f16 number."""
    bits = _field(e, register, 8 * part, 8, False) << 8
    return halves.up(e, e.cast("bitcast", e.resize(bits, "i16", False), "half"))


def _e4m3(e: Emitter, register: Value, part: int) -> Value:
    """One bit less of exponent than f16 and a bias that is less by 8; all ones is the only NaN."""
    bits = _field(e, register, 8 * part, 8, False)
    size = bits & 0x7F
    sign = (bits & 0x80) << 8
    half = sign | (size << 7)
    small = halves.up(e, e.cast("bitcast", e.resize(half, "i16", False), "half"))
    number = e.op("fmul", small, e.real(small, 256.0))
    nan = e.equals(size, 0x7F)
    return e.select(nan, 0x7FFF_FFFF, number)


def _integer(bits: int, signed: bool) -> Callable[[Emitter, Value, int], Value]:
    def number(e: Emitter, register: Value, part: int) -> Value:
        """As floats: every sum of the products of one instruction is below 2**24."""
        return e.cast("sitofp", _field(e, register, bits * part, bits, signed), "float")

    return number


def _whole_register(e: Emitter, register: Value, part: int) -> Value:
    return register


def _field(e: Emitter, register: Value, first: int, count: int, signed: bool) -> Value:
    """Some bits of a 32-bit register as an integer."""
    top = 32 - first - count
    if not signed:
        value = register >> first if first else register
        return value & ((1 << count) - 1) if top else value
    value = register << top if top else register
    return e.op("ashr", value, 32 - count)


ELEMENTS = {
    "f16": ElementType(16, _f16, exact=True),
    "bf16": ElementType(16, _bf16),
    "tf32": ElementType(32, _tf32),
    "f64": ElementType(64, _whole_register),
    "e4m3": ElementType(8, _e4m3, exact=True),
    "e5m2": ElementType(8, _e5m2, exact=True),
    "s8": ElementType(8, _integer(8, True)),
    "u8": ElementType(8, _integer(8, False)),
    "s4": ElementType(4, _integer(4, True)),
    "u4": ElementType(4, _integer(4, False)),
    "b1": ElementType(1, _whole_register),
}


# -- elements of C and D ----------------------------------------------------------------------------
def decode(e: Emitter, type_: str, registers: Sequence[Value]) -> list[Value]:
    """The elements of C as numbers to start a sum from: floats for f16, else what the registers hold."""
    if type_ != "f16":
        return list(registers)
    return [halves.up(e, part) for register in registers for part in halves.split(e, "f16x2", register)]


def encode(e: Emitter, type_: str, sums: Sequence[Value]) -> list[Value]:
    """The registers of D."""
    if type_ != "f16":
        return list(sums)
    rounded = [halves.down(e, value, "f16") for value in sums]
    return [halves.join(e, low, high) for low, high in zip(rounded[::2], rounded[1::2], strict=True)]


def integer_sums(e: Emitter, sums: Sequence[Value], steps: Steps, saturate: bool) -> list[Value]:
    """s32 elements of C and products of integers that are held in floats."""
    totals = accumulate(e, [e.real(vector("float"), 0.0)] * len(sums), steps, exact=True)
    return [add_whole(e, start, total, saturate) for start, total in zip(sums, totals, strict=True)]


def add_whole(e: Emitter, start: Value, total: Value, saturate: bool) -> Value:
    """An s32 element of C and a sum of whole numbers that a float holds."""
    whole = e.cast("fptosi", total, "i32")
    return e.intrinsic("llvm.sadd.sat", start, whole) if saturate else start + whole


def bit_counts(e: Emitter, sums: Sequence[Value], steps: Steps, op: str) -> list[Value]:
    """s32 elements of C and the bits that are left of pairs of words after ``op``."""
    totals = list(sums)
    for pairs in steps:
        counts = [e.count_bits(e.op(op, a, b)) for a, b in pairs]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    return totals


# -- sparse matrices: metadata → which k each stored element stands for ----------------------------
@dataclass(frozen=True, slots=True)
class Sparsity:
    """Finds, for an element that A stores, the k that it stands for."""

    chunk: int  # neighbours of which half are stored
    group: int  # elements that are stored or dropped together
    whole: bool  # whether 32 bits are for one row
    first: int  # of each four lanes, the first that gives metadata

    def options(self, stored: int) -> list[int]:
        """The k that the stored element ``stored`` of a row may stand for, by its index in the metadata."""
        number = stored // (self.chunk // 2)
        start = number * self.chunk + stored % self.group
        return [start + choice * self.group for choice in range(self.chunk // self.group)]

    def chosen(self, e: Emitter, metadata: Value, stored: int, lower: bool, options: list[Value]) -> Value:
        """Of the elements of B that may belong to ``stored``, the one that does, for a row g or g + 8."""
        word, bit = self._metadata_bits(e, metadata, stored, lower)
        if len(options) == 2:  # tf32: 0b0100 is the first, 0b1110 the second
            return e.select(_bit(e, word, bit + 1), options[1], options[0])
        odd, high = _bit(e, word, bit), _bit(e, word, bit + 1)
        below, above = (e.select(odd, options[i + 1], options[i]) for i in (0, 2))
        return e.select(high, above, below)

    def choice(self, e: Emitter, metadata: Value, stored: int, lower: bool) -> Value:
        """Which of its options ``stored`` stands for, as a number."""
        word, bit = self._metadata_bits(e, metadata, stored, lower)
        bit, mask = (bit + 1, 1) if self.chunk == 2 else (bit, 3)
        return (word >> bit) & mask

    def _metadata_bits(self, e: Emitter, metadata: Value, stored: int, lower: bool) -> tuple[Value, int]:
        """The word of metadata for ``stored``, in every lane that of its row, and the first of two bits in it."""
        number, within = divmod(stored, self.chunk // 2)
        if self.whole:
            giver, place = number // 8 * 2 + lower, number % 8
        else:
            giver, place = number // 4, number % 4 + 4 * lower
        word = e.shuffle(metadata, [lane // 4 * 4 + (self.first + giver) % 4 for lane in range(32)])
        return word, 4 * place + 2 * (within // self.group)


def _bit(e: Emitter, word: Value, number: int) -> Value:
    return e.differs(word & (1 << number), 0)
