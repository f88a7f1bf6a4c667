"""Metadata of a sparse matrix → which k each of its stored elements stands for."""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.emulator.llvm.emit import Emitter, Value

__all__ = ["Sparsity"]


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
        return e.op("and", e.op("lshr", word, bit), mask)

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
    return e.differs(e.op("and", word, 1 << number), 0)
