"""``mma.sp``: A has only half of its elements, and metadata that says where each of them belongs.

Every chunk of neighbours in a row of A keeps half of them: two of four (16 and 8 bits), one of two (tf32),
two pairs of four pairs (4 bits). Four bits of metadata say which. 32 bits of it, in one register of one
lane, are for one row of A (8 and 4 bits) or for half a row, in the low half, and half of the row eight
further down, in the high half (the others). What A does not keep is skipped: no element of B meets a zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.emulator.lowering.emit import Emitter, Value
from tilewise.emulator.lowering.tables import unknown
from tilewise.emulator.ptx.syntax import Immediate, Instruction, Operand

__all__ = ["SPARSE", "Sparsity", "find_sparsity"]

_HALF = ("f16", "f32")
# Shape and element type → the types that sums may have.
SPARSE: dict[tuple[str, str], tuple[str, ...]] = {
    ("m16n8k16", "f16"): _HALF,
    ("m16n8k32", "f16"): _HALF,
    ("m16n8k16", "bf16"): ("f32",),
    ("m16n8k32", "bf16"): ("f32",),
    ("m16n8k8", "tf32"): ("f32",),
    ("m16n8k16", "tf32"): ("f32",),
    ("m16n8k64", "f8"): ("f32",),
    ("m16n8k32", "i8"): ("s32",),
    ("m16n8k64", "i8"): ("s32",),
    ("m16n8k64", "i4"): ("s32",),
    ("m16n8k128", "i4"): ("s32",),
}


@dataclass(frozen=True, slots=True)
class Sparsity:
    """How to find, for an element that A keeps, the k that it stands for."""

    chunk: int  # neighbours of which half are kept
    group: int  # elements that are kept or left together
    whole: bool  # whether 32 bits are for one row
    first: int  # of each four lanes, the first that gives metadata

    def options(self, kept: int) -> list[int]:
        """The k that the element ``kept`` of a row may stand for, by its index in the metadata."""
        number = kept // (self.chunk // 2)
        start = number * self.chunk + kept % self.group
        return [start + choice * self.group for choice in range(self.chunk // self.group)]

    def chosen(self, e: Emitter, metadata: Value, kept: int, lower: bool, options: list[Value]) -> Value:
        """Of the elements of B that may belong to ``kept``, the one that does, for a row g or g + 8."""
        word, bit = self._where(e, metadata, kept, lower)
        if len(options) == 2:  # tf32: 0b0100 is the first, 0b1110 the second
            return e.select(_bit(e, word, bit + 1), options[1], options[0])
        odd, high = _bit(e, word, bit), _bit(e, word, bit + 1)
        below, above = (e.select(odd, options[i + 1], options[i]) for i in (0, 2))
        return e.select(high, above, below)

    def choice(self, e: Emitter, metadata: Value, kept: int, lower: bool) -> Value:
        """Which of its options ``kept`` stands for, as a number."""
        word, bit = self._where(e, metadata, kept, lower)
        bit, mask = (bit + 1, 1) if self.chunk == 2 else (bit, 3)
        return e.op("and", e.op("lshr", word, e.const(word, bit)), e.const(word, mask))

    def _where(self, e: Emitter, metadata: Value, kept: int, lower: bool) -> tuple[Value, int]:
        """The word of metadata for ``kept``, in every lane that of its row, and the first of two bits in it."""
        number, within = divmod(kept, self.chunk // 2)
        if self.whole:
            giver, place = number // 8 * 2 + lower, number % 8
        else:
            giver, place = number // 4, number % 4 + 4 * lower
        word = e.shuffle(metadata, [lane // 4 * 4 + (self.first + giver) % 4 for lane in range(32)])
        return word, 4 * place + 2 * (within // self.group)


def _bit(e: Emitter, word: Value, number: int) -> Value:
    return e.compare("icmp ne", e.op("and", word, e.const(word, 1 << number)), e.const(word, 0))


def find_sparsity(instruction: Instruction, bits: int, k: int, operand: Operand) -> Sparsity:
    """The sparsity of a form, by the bits of an element of A and its selector."""
    chunk = {32: 2, 4: 8}.get(bits, 4)
    lanes = 2 * (4 * k // chunk) // 32  # of each four, that give metadata: for two rows, 32 bits each
    if not isinstance(operand, Immediate) or not 0 <= operand.value < 4 // lanes:
        raise unknown(instruction, f"its sparsity selector must be a number below {4 // lanes}")
    return Sparsity(chunk, 2 if bits == 4 else 1, bits < 16, operand.value * lanes)
