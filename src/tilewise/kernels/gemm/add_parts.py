"""Launch of the kernel that adds up the sums of parts of K, which blocks left in the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilewise.errors import ArgumentError
from tilewise.kernels.epilogue import HEADER, epilogue_header, epilogue_slot
from tilewise.kernels.gemm.limits import STACK_AXES
from tilewise.kernels.spec import KernelSource, Step
from tilewise.kernels.stack import stack_slot, table_size
from tilewise.launch import Launch
from tilewise.operands import Operand, Operands, alignment_of, ceil_div
from tilewise.problem import Tile, finished_type
from tilewise.slots import constant

__all__ = [
    "MOST_TAIL",
    "Tail",
    "add_blocks",
    "add_step",
    "parts_bytes",
    "parts_in_turn",
    "parts_of",
    "tail_parts",
]

MOST_TAIL = 1 << 14  # tiles: more than the SMs of a GPU hold at once
MOST_TAIL_PARTS = 16  # that are proposed
RUN = 4  # neighbours in a row of C that a thread has
THREADS = 256
MOST_SHARERS, LEAST_PARTS = 8, 4  # threads that share the parts of a run, and parts that each has then
ENOUGH_THREADS = 1 << 17  # for a GPU's memory to be busy
_FILE = Path(__file__).with_suffix(".cu")


@dataclass(frozen=True, slots=True)
class Tail:
    """The last ``count`` tiles of a matrix, behind as many ``whole`` ones, where they alone are in parts."""

    tile: Tile
    whole: int
    count: int

    @classmethod
    def of(cls, operands: Operands, tile: Tile, count: int) -> Tail | None:
        """The last ``count`` tiles of the product; None if there are none."""
        m, n, _ = operands.sizes
        return cls(tile, ceil_div(m, tile.m) * ceil_div(n, tile.n) - count, count) if count else None

    def refuse(self, operands: Operands, parts: int) -> ArgumentError | None:
        """Why these tiles cannot be in so many parts."""
        if parts == 1:
            return ArgumentError("tail", "must be 0 where K is in one part", self.count)
        if operands.inner(STACK_AXES).batch != 1:
            return ArgumentError("tail", "must be 0 for stacks", self.count)
        if self.whole < 0:
            rule = f"must be at most {self.whole + self.count}, as there are tiles"
            return ArgumentError("tail", rule, self.count)
        if operands.epilogue.summed:
            return ArgumentError("tail", "must be 0 where columns or rows are added up", self.count)
        return None

    def sums(self, parts: int, dtype: str = "float32") -> Operand:
        """Their sums, as they lie in the workspace: tiles one behind another, then those of the next part."""
        return Operand("workspace", parts * self.count * self.tile.m, self.tile.n, self.tile.n, dtype)

    def sum_bytes(self, parts: int, dtype: str = "float32") -> int:
        """What those take of it."""
        one = self.sums(parts, dtype)
        return one.rows * one.columns * one.itemsize


def tail_parts(tail: int, most: int, at_once: int) -> list[int]:
    """In how many parts of K to multiply the last ``tail`` tiles, where the SMs hold so many blocks ``at_once``.

    The two largest of those numbers with which the tiles take less time than with any smaller one.
    """
    found, least = [], 1.0  # of the time that a whole tile takes
    for parts in range(2, min(most, MOST_TAIL_PARTS) + 1 if tail else 0):
        if (turns := ceil_div(tail * parts, at_once) / parts) < least:
            least = turns
            found.append(parts)
    return found[-2:]


def parts_of(operands: Operands, sums: str = "float32") -> Operand:
    """The sums of one matrix, of that type, as they lie in the workspace; the stack's axis is that of the parts."""
    c = operands.c
    pitch = ceil_div(c.columns, RUN) * RUN
    return Operand("workspace", c.rows, c.columns, pitch, sums, stack=(c.rows * pitch,))


def parts_bytes(operands: Operands, count: int, sums: str = "float32") -> int:
    """What so many parts of a whole stack take of the workspace; one part leaves nothing there."""
    if count == 1:
        return 0
    one = parts_of(operands, sums)
    return count * operands.batch * one.stack[0] * one.itemsize


def add_blocks(operands: Operands, count: int, tail: Tail | None = None) -> int:
    """Blocks of the launch that adds them up."""
    return ceil_div(_runs(operands, tail), THREADS // _sharers(operands, count, tail)) * operands.batch


def parts_in_turn(operands: Operands, count: int, tail: Tail | None = None) -> int:
    """How many of them a thread adds up, one after another."""
    return ceil_div(count, _sharers(operands, count, tail))


def _sharers(operands: Operands, count: int, tail: Tail | None) -> int:
    """Threads that share the parts of a run: several, where there are few runs and many parts."""
    sharers, runs = 1, _runs(operands, tail) * operands.batch
    while sharers < MOST_SHARERS and runs * sharers < ENOUGH_THREADS and count >= 2 * sharers * LEAST_PARTS:
        sharers *= 2
    return sharers


def _runs(operands: Operands, tail: Tail | None = None) -> int:
    """Runs of neighbours in the rows of one matrix, or of its tail."""
    if tail is not None:
        return tail.count * tail.tile.m * tail.tile.n // RUN
    return operands.c.rows * ceil_div(operands.c.columns, RUN)


def add_step(
    operands: Operands, count: int, resident: int = 1, sums: str = "float32", tail: Tail | None = None
) -> Step:
    """The launch that adds them up and stores C.

    An SM holds ``resident`` blocks of the kernel that left them at once. If that is one, its next launch may begin
    before this one has ended: else its blocks would be unevenly spread over the SMs.
    """
    c, form = operands.c, operands.epilogue
    apart = (c.row_stride if c.rows > 1 else 0, *c.stack)
    wide = alignment_of(c.alignment, *(step * c.itemsize for step in apart)) >= min(RUN * c.itemsize, 16)
    args = (
        (parts_of(operands, sums) if tail is None else tail.sums(count, sums)).pointer(),
        c.strided(),
        stack_slot(operands),
        constant("I", wide),
        constant("I", 0 if tail is None else tail.whole),
        epilogue_slot(operands),
    )
    headers = () if form.is_plain else ((HEADER, epilogue_header(form, finished_type(sums))),)
    defines: tuple[tuple[str, object], ...] = (
        ("PARTS", count),
        ("SHARERS", _sharers(operands, count, tail)),
        ("SUM", sums),
        ("RESULT", c.dtype),
        ("THREADS", THREADS),
        ("NEXT_MAY_BEGIN", int(resident == 1)),
        ("POINTERS", table_size(operands)),
        ("EXTRA_POINTERS", sum(one.pointers for one in form.arrays)),
    )
    if tail is not None:
        defines += (("TILE_M", tail.tile.m), ("TILE_N", tail.tile.n))
    code = KernelSource(_FILE, defines, headers)
    launch = Launch((add_blocks(operands, count, tail), 1, 1), (THREADS, 1, 1), args, programmatic=True)
    return Step("add_parts", launch, code)
