"""Atomic operations on memory: ``atom`` and ``red``.

Lanes go one after another, in the order of their numbers, each with an atomic operation of the CPU: blocks
run on several threads. What the CPU has no instruction for is a loop around compare-and-swap. Each kind of
operation is a function of its own in the compiled module, made when the first instruction asks for it.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewise.emulator.layout import BLOCK, GENERIC, LAUNCH, WINDOW, Space
from tilewise.emulator.llvm.emit import Emitter, Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.memory import (
    FIRST_HINT,
    HINT_BYTES,
    MemoryAccess,
    every_address,
    take_address,
)
from tilewise.emulator.lowering.tables import effect, unsupported
from tilewise.emulator.lowering.values import read_bits, write
from tilewise.emulator.numerics import halves
from tilewise.emulator.numerics.rounding import flush
from tilewise.emulator.operations.operation import Access
from tilewise.emulator.ptx.syntax import Address, Instruction, Operand, Register, Symbol, items_of
from tilewise.emulator.ptx.types import TYPE_BYTES, is_signed

__all__: list[str] = []

_WORDS = {f"{kind}{bits}" for kind in "bus" for bits in (32, 64)}
_NUMBERS = {f"{kind}{bits}" for kind in "us" for bits in (32, 64)}
_HALVES = {"f16", "f16x2", "bf16", "bf16x2"}
_TYPES = {
    "and": _WORDS,
    "or": _WORDS,
    "xor": _WORDS,
    "exch": _WORDS | {"b128"},
    "cas": _WORDS | {"b16", "b128"},
    "add": _NUMBERS | {"f32", "f64"} | _HALVES,
    "min": _NUMBERS,
    "max": _NUMBERS,
    "inc": {"u32"},
    "dec": {"u32"},
}
_VECTORS = {"f32": {2, 4}, "f16x2": {2, 4}, "bf16x2": {2, 4}, "f16": {2, 4, 8}, "bf16": {2, 4, 8}}
_VECTOR_OPS = {"f32": {"add"}}
_ORDERS = {"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys"}
_SPACES = {
    "global": Space.GLOBAL,
    "shared": Space.SHARED,
    "shared::cta": Space.SHARED,
    "shared::cluster": Space.SHARED,
}
_RMW = {
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
    "add": "add",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
}
_SECOND = 512  # in the buffer: where the second operand of cas begins
_NAN = 0x7FFF_FFFF  # the f32 one that GPUs give
_HALF = {"f16": "half", "bf16": "bfloat"}


class _Kind(NamedTuple):
    """What is done, to what, where."""

    op: str
    type: str  # of an element
    elements: int
    space: Space
    own: bool  # whether it may not touch shared memory of other blocks

    @property
    def width(self) -> int:
        return TYPE_BYTES[self.type]

    @property
    def size(self) -> int:
        return self.width * self.elements

    @property
    def name(self) -> str:
        space = (Space.OWN if self.own else self.space).name.lower()
        return f"atom.{self.op}.{self.type}.{self.elements}.{space}"


@effect(
    "atom",
    lanes="own",
    accesses=(Access("atomic", 1),),
    changes=True,
    polls=True,
    ptx="1.1",
    arch="sm_11",
)
@effect("red", has_result=False, accesses=(Access("atomic", 0),), changes=True, ptx="1.2", arch="sm_11")
def atom(e: Context, instruction: Instruction) -> None:
    """Change memory atomically for each lane; ``atom`` also returns the old value."""
    kind = _kind(e, instruction)
    operands = list(instruction.operands)
    targets: tuple[Operand, ...] = ()
    if instruction.opcode == "atom" and operands:
        targets = _items(instruction, operands.pop(0), kind.elements)
    if any("cache_hint" in part for part in instruction.parts) and operands:
        operands.pop()  # a policy of caches, of which there are none
    wanted = 3 if kind.op == "cas" else 2
    if len(operands) != wanted or not isinstance(operands[0], Address):
        more = "one operand" if wanted == 2 else "two operands"
        raise unsupported(instruction, f"it takes an address and {more}")
    base, lanes = take_address(e, operands[0])
    access = MemoryAccess(kind.space, kind.type, kind.elements, lanes, base, True, instruction.line)
    addresses, buffer = e.buffers()
    e.store(every_address(e, access), addresses, 64)
    for number, operand in enumerate(operands[1:]):
        for i, item in enumerate(_items(instruction, operand, kind.elements)):
            value = read_bits(e, item, kind.type)
            e.store(value, e.offset(buffer, number * _SECOND + i * 32 * kind.width), 32)
    _run(e, instruction, kind, addresses, buffer)
    for i, target in enumerate(targets):
        if not isinstance(target, Register):
            raise unsupported(instruction, "its destination must be a register")
        old = e.load(vector(f"i{8 * kind.width}"), e.offset(buffer, i * 32 * kind.width), 32)
        write(e, target, old, f"b{8 * kind.width}")


def _items(instruction: Instruction, operand: Operand, elements: int) -> tuple[Operand, ...]:
    items = items_of(operand)
    if len(items) != elements:
        raise unsupported(instruction, f"it takes {elements} elements")
    return items


def _kind(e: Context, instruction: Instruction) -> _Kind:
    op = type_ = shape = ""
    space = Space.GENERIC
    for part in instruction.parts:
        if part in _TYPES and not op:
            op = part
        elif part in TYPE_BYTES and not type_:
            type_ = part
        elif part in ("v2", "v4", "v8") and not shape:
            shape = part
        elif part in _SPACES:
            space = _SPACES[part]
        elif part not in _ORDERS and part not in ("noftz", "L2::cache_hint"):
            raise unsupported(instruction, f".{part} is not supported here")
    if shape:
        good = int(shape[1:]) in _VECTORS.get(type_, ()) and op in _VECTOR_OPS.get(
            type_, {"add", "min", "max"}
        )
    else:
        good = type_ in _TYPES.get(op, ())
    if not good or (instruction.opcode == "red" and op in ("exch", "cas")):
        raise unsupported(
            instruction, f"there is no {op or 'such'} operation of type {type_ or '(none)'} here"
        )
    if shape and space == Space.SHARED:
        raise unsupported(instruction, "a vector is changed in global memory only")
    address = next((operand for operand in instruction.operands if isinstance(operand, Address)), None)
    if space == Space.GENERIC and address is not None and isinstance(address.base, Symbol):
        place = e.program.places.get(address.base.name)
        space = _SPACES.get(place.space, space) if place else space
    own = space == Space.SHARED and "shared::cluster" not in instruction.parts
    return _Kind(op, type_, int(shape[1:]) if shape else 1, space, own)


def _run(e: Context, instruction: Instruction, kind: _Kind, addresses: str, buffer: str) -> None:
    _define(e, kind)
    hint = e.offset("%worker", FIRST_HINT + HINT_BYTES * e.hints)
    if kind.space != Space.SHARED:
        e.hints += 1
    e.call_or_leave(kind.name, addresses, e.mask(), instruction.line, buffer, hint)


# -- the function of one kind -----------------------------------------------------------------------
_FUNCTION = """
define internal i32 @{name}({pointers}, ptr %addresses, i32 %mask, i32 %line, ptr %data, ptr %hint) noinline nounwind {{
entry:
{window}  %limit = call i64 @llvm.usub.sat.i64(i64 %room, i64 {size})
  br label %loop
loop:
  %left = phi i32 [ %mask, %entry ], [ %rest, %done ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %end, label %one
one:
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %rest = and i32 %left, %less
  %at = zext i32 %lane to i64
  %ap = getelementptr i64, ptr %addresses, i64 %at
  %address = load i64, ptr %ap
  %away = sub i64 %address, %start
  %near = icmp ult i64 %away, %limit
  %low = and i64 %address, {size_less_one}
  %even = icmp eq i64 %low, 0
  %plain = and i1 %near, %even
  %quick = getelementptr i8, ptr %base, i64 %away
  br i1 %plain, label %found, label %search
search:
  %p = call ptr @tw_resolve({pointers}, i64 %address, i32 {size}, i32 {space}, i32 %lane, i32 %line, i32 1)
  %bad = icmp eq ptr %p, null
  br i1 %bad, label %failed, label %learn
learn:
{learn}  br label %found
found:
  %place = phi ptr [ %quick, %one ], [ %p, %learn ]
{body}
  br label %done
done:
  br label %loop
end:
  ret i32 0
failed:
  ret i32 1
}}"""
_POINTERS = "ptr %ctx, ptr %worker, ptr %block, ptr %warp"


def _define(e: Context, kind: _Kind) -> None:
    """The function that does it for every lane of a mask: 0, or 1 after a fault.

    ``%data`` holds 32 operands, then after 512 bytes 32 second operands; each operand is replaced by what
    was in memory.
    """
    if kind.name in e.definitions:
        return
    e.definitions.setdefault("tw_find", "declare i1 @tw_find(ptr, i64, i64, ptr)")
    resolve = "declare ptr @tw_resolve(ptr, ptr, ptr, ptr, i64, i32, i32, i32, i32, i32)"
    e.definitions.setdefault("tw_resolve", resolve)
    inner = Emitter(e)
    for i in range(kind.elements):
        _element(inner, kind, i)
    learn = f"  %k = call i1 @tw_find(ptr %ctx, i64 %address, i64 {kind.size}, ptr %hint)\n"
    e.definitions[kind.name] = _FUNCTION.format(
        name=kind.name,
        pointers=_POINTERS,
        window=_window(kind),
        size=kind.size,
        size_less_one=kind.size - 1,
        space=int(Space.OWN if kind.own else kind.space),
        learn="" if kind.space == Space.SHARED else learn,
        body="\n".join(inner.lines),
    )


def _window(kind: _Kind) -> str:
    """Where plainly good addresses begin, how many there are, and the pointer to the first."""
    if kind.space == Space.SHARED:
        return f"""  %base.p = getelementptr i8, ptr %block, i64 {BLOCK.SHARED}
  %base = load ptr, ptr %base.p
  %bytes.p = getelementptr i8, ptr %ctx, i64 {LAUNCH.SHARED_BYTES}
  %bytes = load i64, ptr %bytes.p
  %room = add i64 %bytes, 1
  %start = add i64 0, 0
"""
    return """  %start = load i64, ptr %hint
  %base = inttoptr i64 %start to ptr
  %room.p = getelementptr i64, ptr %hint, i64 1
  %room = load i64, ptr %room.p
"""


def _element(e: Emitter, kind: _Kind, index: int) -> None:
    """One element of one lane, at ``%place``."""
    type_ = f"i{8 * kind.width}"
    place = Value("ptr", e.offset("%place", index * kind.width))
    row = e.offset("%data", index * 32 * kind.width)
    mine = e.set("ptr", f"getelementptr {type_}, ptr {row}, i64 %at").ref
    operand = new = e.load(type_, mine, kind.width)
    if kind.op == "cas":
        second = e.set("ptr", f"getelementptr {type_}, ptr {e.offset('%data', _SECOND)}, i64 %at").ref
        new = e.load(type_, second, kind.width)
    if kind.width == 16:
        old = _locked(e, kind, place, operand, new)
    elif kind.op == "cas":
        pair = e.set("", f"cmpxchg {place}, {operand}, {new} seq_cst seq_cst")
        old = e.set(type_, f"extractvalue {{ {type_}, i1 }} {pair.ref}, 0")
    elif kind.type[0] in "bus" and not kind.type.startswith("bf"):
        word = _RMW.get(kind.op) or ("" if is_signed(kind.type) else "u") + kind.op
        old = e.set(type_, f"atomicrmw {word} {place}, {operand} seq_cst")
    else:
        old = _attempts(e, kind, place, operand)
    e.store(old, mine, kind.width)


def _attempts(e: Emitter, kind: _Kind, place: Value, operand: Value) -> Value:
    """A loop of compare-and-swap around an operation."""
    type_ = operand.type
    before, again, done = e.label("before"), e.label("again"), e.label("swapped")
    e.jump(before)
    e.place(before)
    first = e.set(type_, f"load atomic {type_}, {place} monotonic, align {kind.width}")
    e.jump(again)
    e.place(again)
    old, seen = e.fresh(), e.fresh()
    e.line(f"{old} = phi {type_} [ {first.ref}, %{before} ], [ {seen}, %{again}.end ]")
    new = _combined(e, kind, Value(type_, old, e), operand)
    e.jump(f"{again}.end")
    e.place(f"{again}.end")
    pair = e.set("", f"cmpxchg {place}, {type_} {old}, {new} seq_cst seq_cst")
    e.line(f"{seen} = extractvalue {{ {type_}, i1 }} {pair.ref}, 0")
    won = e.set("i1", f"extractvalue {{ {type_}, i1 }} {pair.ref}, 1")
    e.branch(won, done, again)
    e.place(done)
    return Value(type_, old, e)


def _locked(e: Emitter, kind: _Kind, place: Value, operand: Value, new: Value) -> Value:
    """128 bits, for which not every CPU has an instruction: one lane of the launch at a time."""
    lock, type_ = e.offset("%ctx", LAUNCH.LOCK), operand.type
    wait, mine = e.label("wait"), e.label("mine")
    e.jump(wait)
    e.place(wait)
    pair = e.set("", f"cmpxchg ptr {lock}, i32 0, i32 1 acquire monotonic")
    e.branch(e.set("i1", f"extractvalue {{ i32, i1 }} {pair.ref}, 1"), mine, wait, likely=True)
    e.place(mine)
    old = e.load(type_, place.ref, kind.width)
    if kind.op == "cas":
        new = e.select(e.equals(old, operand), new, old)
    e.store(new, place.ref, kind.width)
    e.line(f"store atomic i32 0, ptr {lock} release, align 4")
    return old


def _combined(e: Emitter, kind: _Kind, old: Value, operand: Value) -> Value:
    """The new bits of an element."""
    if kind.type == "f64":
        total = e.op("fadd", e.cast("bitcast", old, "double"), e.cast("bitcast", operand, "double"))
        return e.cast("bitcast", total, "i64")
    if kind.type == "f32":
        return _single_sum(e, kind, old, operand)

    def half(type_: str, a: Value, b: Value) -> Value:
        # A sum of two in single precision, rounded again, is the sum rounded once.
        x, y = (halves.up(e, e.cast("bitcast", value, _HALF[type_])) for value in (a, b))
        result = e.op("fadd", x, y) if kind.op == "add" else e.intrinsic(f"llvm.{kind.op}imumnum", x, y)
        return e.cast("bitcast", halves.down(e, result, type_), "i16")

    return halves.each(e, kind.type, half, old, operand)


def _single_sum(e: Emitter, kind: _Kind, old: Value, operand: Value) -> Value:
    """f32: in global memory, but not in shared memory, subnormal numbers count as zeros."""
    a, b = e.cast("bitcast", old, "float"), e.cast("bitcast", operand, "float")
    total = _no_payload(e, e.op("fadd", a, b))
    if kind.space == Space.SHARED:
        return e.cast("bitcast", total, "i32")
    flushed = _no_payload(e, flush(e, e.op("fadd", flush(e, a), flush(e, b))))
    if kind.space == Space.GENERIC:
        offset = e.op("sub", Value("i64", "%address"), GENERIC.SHARED)
        flushed = e.select(e.is_below(offset, WINDOW), total, flushed)
    return e.cast("bitcast", flushed, "i32")


def _no_payload(e: Emitter, value: Value) -> Value:
    return e.select(e.compare("fcmp uno", value, value), _NAN, value)
