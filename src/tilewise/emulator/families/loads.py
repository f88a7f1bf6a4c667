"""Loads: ``ld`` from every space, as a scalar, as stretches of memory, or lane by lane."""

from __future__ import annotations

from tilewise.emulator.llvm.emit import Value, join, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.interleave import is_transposed, separate, separate_rows
from tilewise.emulator.lowering.memory import (
    MemoryAccess,
    access_by_lane,
    access_of,
    check_modifiers,
    covered,
    fast_path,
    pointer_of,
    pointers,
    resolve,
    runs_of,
)
from tilewise.emulator.lowering.scattered import gather
from tilewise.emulator.lowering.tables import check_operand_count, effect, unsupported
from tilewise.emulator.lowering.values import write
from tilewise.emulator.operations.operation import Access
from tilewise.emulator.ptx.syntax import Instruction, Operand, Register, items_of
from tilewise.emulator.ptx.types import llvm_scalar

__all__: list[str] = []

_MOST_RUNS = 8


@effect("ld", lanes="loaded", accesses=(Access("load", 1),), ptx="1.0")
@effect("ldu", lanes="loaded", accesses=(Access("load", 1),), ptx="2.0", arch="sm_20")
def load(e: Context, instruction: Instruction) -> None:
    check_operand_count(instruction, 2, 3)  # the third is a cache policy
    check_modifiers(instruction, "acquire", "nc", "ca", "lu", "cv")
    access = access_of(e, instruction, instruction.operands[1])
    targets = items_of(instruction.operands[0])
    if len(targets) != access.elements:
        raise unsupported(instruction, f"it loads {access.elements} elements")
    scalar = access.uniform and e.result_shape(instruction) is not None
    if covered(e, instruction):
        set_all(e, targets, _fast_load(e, access, pointer_of(e, access, access.base), scalar), access.type)
        return
    slow, done = e.label("slow"), e.label("done")
    pointer = fast_path(e, access, slow)
    if pointer is not None:
        set_all(e, targets, _fast_load(e, access, pointer, scalar), access.type)
        e.jump(done)
    else:
        e.jump(slow)
    e.place(slow)
    set_all(e, targets, _slow_load(e, access, scalar), access.type)
    e.jump(done)
    e.place(done)


def set_all(e: Context, targets: tuple[Operand, ...], values: list[Value], type_: str) -> None:
    for target, value in zip(targets, values, strict=True):
        if not isinstance(target, Register):
            raise unsupported(e.now, "its destination must be a register")
        write(e, target, value, type_)


def _fast_load(e: Context, access: MemoryAccess, pointer: str, scalar: bool) -> list[Value]:
    element = llvm_scalar(access.type)
    if not pointer:
        return gather(e, access, pointers(e, access))
    assert access.lanes is not None
    if access.uniform:
        values = [
            e.load(element, e.offset(pointer, i * access.width), access.width, access.volatile)
            for i in range(access.elements)
        ]
        return values if scalar else [e.splat(value) for value in values]
    return _load_runs(e, access, pointer)


def _load_runs(e: Context, access: MemoryAccess, pointer: str) -> list[Value]:
    """Load each stretch as one vector and hand every lane its part."""
    element, width, size = llvm_scalar(access.type), access.width, access.elements
    assert access.lanes is not None
    runs = runs_of(access)
    if len(runs) > _MOST_RUNS:
        offsets = e.lanes("i64", access.lanes)
        rows = e.set("<32 x ptr>", f"getelementptr i8, ptr {pointer}, {offsets}")
        return gather(e, access, rows)
    if is_transposed(element, size):
        row = f"<{size} x {element}>"  # NOTE: lanes at one place share a load, so that they see the same
        found = {at: _load_row(e, row, e.offset(pointer, at), access) for at in sorted(set(access.lanes))}
        return separate_rows(e, [found[at] for at in access.lanes])
    longest = max(end - start for start, end in runs)
    pieces = []
    for start, end in runs:
        piece = _load_row(e, f"<{(end - start) // width} x {element}>", e.offset(pointer, start), access)
        short = (longest - end + start) // width
        filled = [*range((end - start) // width), *([0] * short)]
        pieces.append(e.shuffle(piece, filled) if short else piece)
    whole = join(e, pieces)
    places = [
        index * (longest // width) + (lane - start) // width
        for lane in access.lanes
        for index, (start, end) in enumerate(runs)
        if start <= lane < end
    ]
    if whole.type == vector(element) and places == list(range(32)):
        return [whole]
    return [e.shuffle(whole, [place + i for place in places]) for i in range(size)]


def _load_row(e: Context, type_: str, pointer: str, access: MemoryAccess) -> Value:
    return e.load(type_, pointer, access.width, access.volatile)


def _slow_load(e: Context, access: MemoryAccess, scalar: bool) -> list[Value]:
    element = llvm_scalar(access.type)
    if scalar:
        pointer = resolve(e, access, write=0)
        return [
            e.load(element, e.offset(pointer, i * access.width), 1, access.volatile)
            for i in range(access.elements)
        ]
    buffer = access_by_lane(e, access, "tw_load")
    whole = e.load(f"<{32 * access.elements} x {element}>", buffer, 64)
    return separate(e, whole, access.elements)
