"""Launch of the kernel that adds up the sums of parts of K, which blocks left in the workspace."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels.epilogue import HEADER, epilogue_header, epilogue_slot
from tilewise.kernels.spec import KernelSource, Step
from tilewise.kernels.stack import stack_slot, table_size
from tilewise.launch import Launch
from tilewise.operands import Operand, Operands, alignment_of, ceil_div
from tilewise.problem import finished_type
from tilewise.slots import constant

__all__ = ["add_blocks", "add_step", "parts_bytes", "parts_in_turn", "parts_of"]

RUN = 4  # neighbours in a row of C that a thread has
THREADS = 256
MOST_SHARERS, LEAST_PARTS = 8, 4  # threads that share the parts of a run, and parts that each has then
ENOUGH_THREADS = 1 << 17  # for a GPU's memory to be busy
_FILE = Path(__file__).with_suffix(".cu")


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


def add_blocks(operands: Operands, count: int) -> int:
    """Blocks of the launch that adds them up."""
    return ceil_div(_runs(operands), THREADS // _sharers(operands, count)) * operands.batch


def parts_in_turn(operands: Operands, count: int) -> int:
    """How many of them a thread adds up, one after another."""
    return ceil_div(count, _sharers(operands, count))


def _sharers(operands: Operands, count: int) -> int:
    """Threads that share the parts of a run: several, where there are few runs and many parts."""
    sharers, runs = 1, _runs(operands) * operands.batch
    while sharers < MOST_SHARERS and runs * sharers < ENOUGH_THREADS and count >= 2 * sharers * LEAST_PARTS:
        sharers *= 2
    return sharers


def _runs(operands: Operands) -> int:
    """Runs of neighbours in the rows of one matrix."""
    return operands.c.rows * ceil_div(operands.c.columns, RUN)


def add_step(operands: Operands, count: int, resident: int = 1, sums: str = "float32") -> Step:
    """The launch that adds them up and stores C.

    An SM holds ``resident`` blocks of the kernel that left them at once. If that is one, its next launch may begin
    before this one has ended: else its blocks would be unevenly spread over the SMs.
    """
    c, form = operands.c, operands.epilogue
    apart = (c.row_stride if c.rows > 1 else 0, *c.stack)
    wide = alignment_of(c.alignment, *(step * c.itemsize for step in apart)) >= min(RUN * c.itemsize, 16)
    args = (
        parts_of(operands, sums).pointer(),
        c.strided(),
        stack_slot(operands),
        constant("I", wide),
        epilogue_slot(operands),
    )
    headers = () if form.is_plain else ((HEADER, epilogue_header(form, finished_type(sums))),)
    defines = (
        ("PARTS", count),
        ("SHARERS", _sharers(operands, count)),
        ("SUM", sums),
        ("RESULT", c.dtype),
        ("THREADS", THREADS),
        ("NEXT_MAY_BEGIN", int(resident == 1)),
        ("POINTERS", table_size(operands)),
        ("EXTRA_POINTERS", sum(one.pointers for one in form.arrays)),
    )
    code = KernelSource(_FILE, defines, headers)
    launch = Launch((add_blocks(operands, count), 1, 1), (THREADS, 1, 1), args, programmatic=True)
    return Step("add_parts", launch, code)
