"""Matrices in shared memory as ``wgmma`` reads them: descriptors, and where they say that elements lie.

Memory is read by *bricks*: eight rows of 16 bytes, each at a multiple of 16. In a K-major matrix a brick has
eight neighbouring rows of A (columns of B), each with 16 bytes of neighbours in K; in an MN-major one, which
only types of 16 bits have, eight neighbours in K, each with 16 bytes of neighbouring rows. A matrix is bricks
(j, c): the j-th along M or N, the c-th along K. There are two along K, and four in the B of a sparse A.

The bits of a descriptor: 0 to 13 the start, 16 to 29 the leading and 32 to 45 the stride byte offset, all
three without their lowest four bits; 49 to 51 the base offset; 62 and 63 the swizzle: 0 none, 1 of 128 bytes,
2 of 64, 3 of 32. With S the bytes of a swizzle, the rows of a brick are S bytes apart, and 16 without one:

    K-major     no swizzle   brick (j, c) at start + j·stride + c·leading
                swizzle S                    start + j·stride + c % (S/16)·16 + c / (S/16)·leading
    MN-major    no swizzle                   start + j·stride + c·leading
                swizzle S                    start + j % (S/16)·16 + j / (S/16)·leading + c·stride

A swizzle then puts each row elsewhere within its S bytes: bits 4 and up of its address are changed by those
from bit 7 on, as many as S needs, counted from where the pattern starts, which the base offset says.
"""

from __future__ import annotations

from tilewise.emulator.layout import BLOCK, LAUNCH, FaultKind, Space
from tilewise.emulator.llvm.emit import Value, join
from tilewise.emulator.llvm.routine import Routine
from tilewise.emulator.support.memory_access import record_fault

__all__ = ["BRICKS", "ROWS", "Descriptor", "Matrix", "described"]

ROWS = 8  # of a brick
BRICKS = 2  # along K, of every instruction
_ROW_BYTES = 16
_ROW = f"<{ROWS} x i32>"


class Descriptor:
    """A descriptor taken apart, in a routine: numbers of 32 bits."""

    def __init__(self, r: Routine, bits: Value) -> None:
        self.r, self.bits = r, bits
        self.start, self.leading, self.stride = (self._field(low, 0x3FFF) << 4 for low in (0, 16, 32))
        mode = self._field(62, 3)
        self.plain = r.equals(mode, 0)
        self.span = r.select(self.plain, _ROW_BYTES, 256 >> mode)
        self.chunks = (self.span >> 4) - 1  # less one; a mask
        self.wide = r.select(self.plain, 0, 4 - mode)
        self.base = self._field(49, 7)

    def _field(self, low: int, mask: int) -> Value:
        r = self.r
        return r.narrow((self.bits >> low) & mask)

    def find_brick(self, inner: Value, outer: Value, across: Value | bool) -> Value:
        """Return where a brick starts before the swizzle; of a swizzled matrix, some bricks lie side by side."""
        r = self.r
        beside = (inner & self.chunks) << 4
        beyond = inner >> self.wide
        near, far = self.leading, self.stride
        if across is not False:
            near, far = r.select(self.plain, far, near), r.select(self.plain, near, far)
        if isinstance(across, Value):
            near, far = r.select(across, near, self.leading), r.select(across, far, self.stride)
        return (self.start + (beside + beyond * near)) + outer * far


class Matrix(Descriptor):
    """A matrix of one instruction, taken apart in a routine that has ``ctx`` and ``block``."""

    def __init__(self, r: Routine, bits: Value, across: bool) -> None:
        self.shared = r.field(r["block"], BLOCK.SHARED, "ptr", 8)
        self.room = r.field(r["ctx"], LAUNCH.SHARED_BYTES, "i64", 8)
        super().__init__(r, bits)
        self.across = across
        self.phase, self.mask = r.splat(self.base, ROWS), r.splat(self.chunks, ROWS)
        numbers = ", ".join(f"i32 {row}" for row in range(ROWS))
        self.rows = r.splat(self.span, ROWS) * Value(_ROW, f"<{numbers}>")
        # The last place where a row may start, and the furthest place where one does.
        last = r.intrinsic("llvm.usub.sat", self.room, _ROW_BYTES)
        self.last = r.narrow(r.intrinsic("llvm.umin", last, 0x7FFF_FFFF))
        self.limit = r.splat(self.last, ROWS)
        self.furthest = r.alloca(_ROW, 32)
        r.store(Value(_ROW, "zeroinitializer"), self.furthest, 32)

    def brick(self, j: Value, c: int) -> Value:
        """The words of a brick, row by row; others where it leaves shared memory, which ``check`` finds."""
        r = self.r
        inner, outer = (j, r.const("i32", c)) if self.across else (r.const("i32", c), j)
        places = self.rows + r.splat(self.find_brick(inner, outer, self.across), ROWS)
        turns = places >> 7
        turns = (turns - self.phase) & self.mask
        places ^= turns << 4
        furthest = r.load(_ROW, self.furthest, 32)
        r.store(r.intrinsic("llvm.umax", furthest, places), self.furthest, 32)
        places = r.intrinsic("llvm.umin", places, self.limit)
        found = []
        for row in range(ROWS):
            place = r.set("i32", f"extractelement {places}, i64 {row}")
            found.append(r.load("<4 x i32>", r.at(self.shared, place).ref, 1))
        return join(r, found)

    def check(self, line: Value) -> None:
        """Leave the routine with a fault unless all that was read lies in shared memory."""
        r = self.r
        furthest = r.load(_ROW, self.furthest, 32)
        most = r.call("llvm.vector.reduce.umax.v8i32", "i32", furthest)
        small = r.is_below(self.room, _ROW_BYTES)
        with r.when(small | r.is_above(most, self.last)):
            access = (self.bits, most, Space.SHARED, self.across)
            record_fault(r, FaultKind.MATRIX, 0, *access, line=line)
            r.give(1)


def described(bits: int, furthest: int, across: bool) -> str:
    """A descriptor in words, and where its matrix ends."""
    start, leading, stride = ((bits >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    swizzle = ("no swizzle", *(f"a swizzle of {size} bytes" for size in (128, 64, 32)))[bits >> 62]
    kind = "an MN-major" if across else "a K-major"
    return (
        f"{kind} matrix up to shared address {furthest + _ROW_BYTES - 1:#x}: its descriptor {bits:#018x} has start "
        f"{start:#x}, leading offset {leading}, stride offset {stride} and {swizzle}"
    )
