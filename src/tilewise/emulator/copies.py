"""Asynchronous copies from global to shared memory: ``cp.async`` and its groups.

They complete at once, which is one of the orders that the hardware allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewise.emulator.emit import Value, vector
from tilewise.emulator.layout import Space
from tilewise.emulator.memory import Access, every_address, fast_path, pointers, take_address
from tilewise.emulator.syntax import Address, Immediate, Instruction, Operand
from tilewise.emulator.tables import other, unknown

if TYPE_CHECKING:
    from tilewise.emulator.lower import Lowering

__all__: list[str] = []


@other("cp")
def cp(e: Lowering, instruction: Instruction) -> None:
    parts = instruction.parts
    if parts[:1] != ("async",) or "bulk" in parts or "mbarrier" in parts or "reduce" in parts:
        raise unknown(instruction, "this form of cp is not supported")
    if "commit_group" in parts or "wait_group" in parts or "wait_all" in parts:
        return
    _copy(e, instruction)


def _copy(e: Lowering, instruction: Instruction) -> None:
    """``cp.async [shared], [global], size {, bytes to read}``; what is not read is filled with zeros."""
    operands = instruction.operands
    if len(operands) < 3 or not isinstance(operands[2], Immediate) or operands[2].value not in (4, 8, 16):
        raise unknown(instruction, "it copies 4, 8 or 16 bytes")
    size = operands[2].value
    source = _access(e, instruction, operands[1], Space.GLOBAL, size)
    target = _access(e, instruction, operands[0], Space.SHARED, size)
    bytes_read = _bytes_read(e, operands[3] if len(operands) > 3 else None, size)
    slow, done = e.label("slow"), e.label("done")
    whole = e.compare("icmp eq", bytes_read, e.const(bytes_read, size))
    whole_bits = e.op("or", e.bits(whole), e.op("xor", e.mask(), e.const("i32", -1)))
    every = e.op("and", e.mask(), e.const("i32", -1))
    whole_all = e.compare("icmp eq", whole_bits, e.const("i32", -1))
    full = e.compare("icmp eq", every, e.const("i32", -1))
    fast = e.label("fast")
    e.branch(e.op("and", whole_all, full), fast, slow, likely=True)
    e.place(fast)
    from_rows = pointers(e, source, fast_path(e, source, slow))
    to_rows = pointers(e, target, fast_path(e, target, slow))
    for lane in range(32):
        start = e.set("ptr", f"extractelement {from_rows}, i64 {lane}")
        place = e.set("ptr", f"extractelement {to_rows}, i64 {lane}")
        e.store(e.load(f"<{size // 4} x i32>", start.ref, 4), place.ref, 4)
    e.jump(done)
    e.place(slow)
    _slow(e, source, target, bytes_read)
    e.jump(done)
    e.place(done)


def _access(e: Lowering, instruction: Instruction, operand: Operand, space: Space, size: int) -> Access:
    if not isinstance(operand, Address):
        raise unknown(instruction, "an address in brackets expected")
    base, lanes = take_address(e, operand)
    return Access(space, "b32", size // 4, lanes, base, False, instruction.line)


def _bytes_read(e: Lowering, operand: Operand | None, size: int) -> Value:
    """How many bytes each lane reads; a predicate says to read none."""
    if operand is None:
        return e.const(vector("i32"), size)
    if isinstance(operand, Immediate):
        return e.const(vector("i32"), min(max(operand.value, 0), size))
    name = getattr(operand, "name", "")
    if e.types.get(name) == "pred":
        ignored = e.read(operand, "pred", True)
        return e.select(ignored, e.const(vector("i32"), 0), e.const(vector("i32"), size))
    if e.types.get(name) in ("b64", "u64", "s64"):
        return e.const(vector("i32"), size)  # a cache policy
    return e.intrinsic("llvm.umin", e.read(operand, "u32", True), e.const(vector("i32"), size))


def _slow(e: Lowering, source: Access, target: Access, bytes_read: Value) -> None:
    addresses, sizes = e.buffers()
    e.store(every_address(e, source), addresses, 64)
    e.store(bytes_read, sizes, 64)
    places = e.offset(sizes, 256)
    e.store(every_address(e, target), places, 64)
    answer = e.call(
        "tw_copy",
        "i32",
        *e.pointers(),
        Value("ptr", addresses),
        Value("ptr", places),
        e.mask(),
        e.const("i32", source.size),
        Value("ptr", sizes),
        e.const("i32", source.line),
    )
    good = e.label("good")
    e.branch(e.compare("icmp eq", answer, e.const("i32", 0)), good, "failed")
    e.place(good)
    from tilewise.emulator.barriers import first_lane
    from tilewise.emulator.memory import learn

    learn(e, source, first_lane(e, every_address(e, source)))
