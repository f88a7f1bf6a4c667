"""The common parts of memory instructions: address, bounds checks, and the path that checks each lane.

Each access has a fast path, chosen by the shape of its address and taken when one comparison shows that
every byte it may touch is the launch's own, and a careful one (``tw_load``, ``tw_store``) that checks lane
by lane and serves every other case. A fast load may read for lanes that do not run: what it reads is
valid memory, and the lanes do not use it.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewise.emulator.layout import WARP, Space
from tilewise.emulator.llvm.emit import NULL, Emitter, Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.suspend import guard_lanes
from tilewise.emulator.lowering.tables import unsupported
from tilewise.emulator.lowering.values import address_of, read
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.modifiers import elements_of, space_of
from tilewise.emulator.ptx.syntax import Address, Instruction, Operand, Register, Symbol
from tilewise.emulator.ptx.types import TYPE_BYTES

__all__ = [
    "FIRST_HINT",
    "HINT_BYTES",
    "MemoryAccess",
    "access_by_lane",
    "access_of",
    "covered",
    "every_address",
    "fast_path",
    "pointer_of",
    "pointers",
    "remember_array",
    "resolve",
    "runs_of",
    "take_address",
    "take_addresses",
]

_SPACES = {space.name.lower(): space for space in Space if space not in (Space.GENERIC, Space.OWN)}
_BASES = {Space.SHARED: "%shared", Space.CONST: "%constants", Space.PARAM: "%params"}
_LIMITS = {Space.SHARED: "%shared_bytes", Space.CONST: "%const_bytes", Space.PARAM: "%param_bytes"}
# A generic address of global memory is that address; of the other spaces only the careful path knows.
_FLAT = (Space.GLOBAL, Space.GENERIC)
_MODIFIERS = {
    "weak", "volatile", "relaxed", "mmio", "cta", "cluster", "gpu", "sys", "cg", "cs", "v2", "v4", "v8",
}  # fmt: skip
HINT_BYTES = 16
FIRST_HINT = 64  # in the worker's memory; what lies before is its own
_POINTERS = "ptr %ctx, ptr %worker, ptr %block, ptr %warp"
_GAP_BYTES = 32  # read over rather than around


class MemoryAccess(NamedTuple):
    """The parts of a memory instruction."""

    space: Space
    type: str  # of an element
    elements: int  # of each lane
    lanes: tuple[int, ...] | None  # bytes from the lowest lane's address to each lane's; None if not known
    base: Value  # i64: the lowest lane's address, or every lane's
    volatile: bool
    line: int
    own: bool = False  # whether it may not touch shared memory of other blocks

    @property
    def reach(self) -> int:
        """The space as the run-time support numbers it."""
        return int(Space.OWN if self.own else self.space)

    @property
    def width(self) -> int:
        return TYPE_BYTES[self.type]

    @property
    def size(self) -> int:
        """Bytes of one lane."""
        return self.width * self.elements

    @property
    def span(self) -> int:
        """Bytes from the lowest lane's first to the highest lane's last."""
        return max(self.lanes or (0,)) + self.size

    @property
    def uniform(self) -> bool:
        return self.lanes is not None and not any(self.lanes)


def check_modifiers(instruction: Instruction, *others: str) -> None:
    """Refuse modifiers that neither loads nor stores have; ``others`` are those of one of the two."""
    for part in instruction.parts[:-1]:
        hint = part.split("::")[0] in ("L1", "L2") and "::" in part
        if not (part in _MODIFIERS or part in others or hint or part.split("::")[0] in _SPACES):
            raise unsupported(instruction, f".{part} is not supported here")


def access_of(e: Context, instruction: Instruction, operand: Operand) -> MemoryAccess:
    """Return the parts of a memory instruction; ``operand`` is its address."""
    if not isinstance(operand, Address):
        raise unsupported(instruction, "an address in brackets expected")
    name, type_ = space_of(instruction), instruction.parts[-1] if instruction.parts else ""
    count = elements_of(instruction)
    if type_ not in TYPE_BYTES or type_ == "pred" or TYPE_BYTES[type_] * count > 32:
        raise unsupported(instruction, "not with this type")
    if type_ == "bf16" and operation_of(instruction).plain_access is not None:
        type_ = "b16"  # NOTE: LLVM moves vectors of bfloat by way of float, with a function that is nowhere
    if sum(part.split("::")[0] in _SPACES for part in instruction.parts) > 1:
        raise unsupported(instruction, "more than one space")
    space = _SPACES.get(name, Space.GENERIC)
    if isinstance(operand.base, Symbol):
        place = e.program.places.get(operand.base.name)
        if place and space in (Space.GENERIC, Space.PARAM):
            space = _SPACES[place.space]  # a variable names its space; a function's own .param is local
    base, lanes = take_address(e, operand)
    volatile = bool({"volatile", "relaxed", "acquire", "release", "mmio"} & set(instruction.parts))
    volatile = volatile or id(instruction) in e.analysis.polled
    if base.is_vector:
        base = _wrapped(e, base, space)
    own = space == Space.SHARED and "shared::cluster" not in instruction.parts
    return MemoryAccess(space, type_, count, lanes, base, volatile, instruction.line, own)


def take_address(e: Context, operand: Address) -> tuple[Value, tuple[int, ...] | None]:
    if operand.base is None:
        return e.const("i64", operand.offset), (0,) * 32
    if isinstance(operand.base, Symbol):
        value = address_of(e, Symbol(operand.base.name, operand.offset))
        return value, (0,) * 32
    shape = e.analysis.shape_of(operand.base)
    value = _read_address(e, operand.base, shape is None)
    low = min(shape.lanes) if shape else 0
    total = operand.offset + low
    if total:
        value += total
    return value, tuple(lane - low for lane in shape.lanes) if shape else None


def _read_address(e: Context, register: Register, as_vector: bool) -> Value:
    own = e.types.get(register.name, "u64")
    return e.wide(read(e, register, "u64" if TYPE_BYTES.get(own) == 8 else "u32", as_vector))


def take_addresses(e: Context, instruction: Instruction, operand: Operand) -> Value:
    """Return the address of every lane."""
    if not isinstance(operand, Address):
        raise unsupported(instruction, "an address in brackets expected")
    return _spread(e, *take_address(e, operand))


def _spread(e: Emitter, base: Value, lanes: tuple[int, ...] | None) -> Value:
    wide = e.splat(base)
    return wide + e.lanes("i64", lanes) if lanes is not None and any(lanes) else wide


def _wrapped(e: Emitter, address: Value, space: Space) -> Value:
    """Cut addresses to 32 bits, in every space but global memory."""
    if space in (Space.GENERIC, Space.GLOBAL):
        return address
    return address & 0xFFFF_FFFF


def fast_path(e: Context, access: MemoryAccess, slow: str) -> str | None:
    """Branch to ``slow`` unless the access is surely in bounds and aligned; return a pointer to its start, or ""
    for lanes at any addresses. None if there is no fast path.
    """
    if access.lanes is not None and any(lane % access.size for lane in access.lanes):
        return None
    start, limit = _window_of(e, access)
    away = access.base - (e.splat(start) if access.base.is_vector else start)
    bound = e.splat(limit) if away.is_vector else limit
    good = e.is_below(away, bound)
    good &= e.equals(access.base & (access.size - 1), 0)
    if good.is_vector:
        missing = (e.bits(good) ^ -1) & e.mask()
        good = e.equals(missing, 0)
    e.branch(good, no=slow, likely=True)
    if access.base.is_vector or access.space == Space.LOCAL:
        return ""
    return pointer_of(e, access, access.base)


def covered(e: Context, instruction: Instruction) -> bool:
    """Whether a check of its group covers an access; emits that check for the group's first access."""
    if not e.grouped or id(instruction) not in e.program.covered:
        return False
    group = e.program.leaders.get(id(instruction))
    if group is not None:
        base = _read_address(e, group.base, False)
        start = base + group.low
        room = Value("i64", "%shared_bytes", e) + 1
        limit = e.intrinsic("llvm.usub.sat", room, group.high - group.low)
        good = e.is_below(start, limit)
        odd = (base + group.anchor) & (group.align - 1)
        guard_lanes(e, instruction, good & e.equals(odd, 0))
    return True


def _window_of(e: Context, access: MemoryAccess) -> tuple[Value, Value]:
    """Return the first address that the access may touch, and how many addresses it may start at."""
    span = access.span if access.lanes is not None else access.size
    if access.space == Space.LOCAL:
        start, room = e.const("i64", 0), e.const("i64", e.program.local_bytes + 1)
    elif access.space in _FLAT:
        hint = _hint(e)
        start, room = e.load("i64", hint, 8), e.load("i64", e.offset(hint, 8), 8)
    else:
        start, room = e.const("i64", 0), Value("i64", _LIMITS[access.space], e) + 1
    return start, e.intrinsic("llvm.usub.sat", room, span)


def _hint(e: Context) -> str:
    """Return the place in the worker's memory where this instruction caches the array that it touched last."""
    return e.offset("%worker", FIRST_HINT + HINT_BYTES * e.hints)


def pointer_of(e: Context, access: MemoryAccess, address: Value) -> str:
    if access.space in _FLAT:
        return e.as_pointer(address).ref
    return e.offset(_BASES[access.space], address)


def pointers(e: Context, access: MemoryAccess, start: str | None = None) -> Value:
    """Return each lane's pointer, behind the fast path's check; without ``start`` for lanes at any addresses."""
    if start and access.lanes is not None:
        return e.set("<32 x ptr>", f"getelementptr i8, ptr {start}, {e.lanes('i64', access.lanes)}")
    if access.space == Space.LOCAL:  # every thread has a part of its own
        own = e.lanes("i64", [lane * e.program.local_bytes for lane in range(32)])
        mine = e.load("ptr", e.offset("%warp", WARP.LOCAL), 8)
        return e.set("<32 x ptr>", f"getelementptr i8, {mine}, {every_address(e, access) + own}")
    if access.space in _FLAT:
        return e.set("<32 x ptr>", f"inttoptr {access.base} to <32 x ptr>")
    return e.set("<32 x ptr>", f"getelementptr i8, ptr {_BASES[access.space]}, {access.base}")


def remember_array(e: Context, access: MemoryAccess, pointer_bits: Value) -> None:
    """Emit a lookup of the array that a global address lies in, for the instruction's next fast path."""
    if access.space in _FLAT:
        _remember_array(e, access, pointer_bits, _hint(e))
        e.hints += 1


def _remember_array(e: Emitter, access: MemoryAccess, pointer_bits: Value, hint: str) -> None:
    e.call("tw_find", "i1", "%ctx", pointer_bits, e.const("i64", access.size), hint)


def resolve(e: Context, access: MemoryAccess, write: int) -> str:
    """Return the pointer of an address that all lanes share; leave with a fault if it is out of bounds."""
    address = e.first_lane(access.base) if access.base.is_vector else access.base
    address = _wrapped(e, address, access.space)
    lane = e.find_lowest(e.mask())
    given = (address, access.size, access.reach, lane, access.line, write)
    pointer = e.call("tw_resolve", "ptr", *e.pointers(), *given)
    e.branch(e.differs(pointer, NULL), no="failed")
    remember_array(e, access, address)
    return pointer.ref


def every_address(e: Emitter, access: MemoryAccess) -> Value:
    """Return each lane's address."""
    return _wrapped(e, _spread(e, access.base, access.lanes), access.space)


def access_by_lane(e: Context, access: MemoryAccess, function: str) -> str:
    """Copy lane by lane between memory and a buffer with room for each lane; returns the buffer."""
    addresses, buffer = e.buffers()
    hint = _hint(e) if access.space in _FLAT else "null"
    e.hints += access.space in _FLAT
    name = _define_access_by_lane(e, access, function)
    given = (access.base, e.mask(), access.line, addresses, buffer, hint)
    e.call_or_leave(name, *given, likely=None)
    return buffer


def _define_access_by_lane(e: Context, access: MemoryAccess, function: str) -> str:
    """Define a function of the kernel that calls ``function`` for accesses of one kind; return its name.

    What seldom runs stands once in the code, not at every access.
    """
    key = (function, access.space, access.lanes, access.base.type, access.size, access.reach)
    name = e.careful_functions.setdefault(key, f"tw_careful_{len(e.careful_functions)}")
    if name in e.definitions:
        return name
    body, mask = Emitter(e), Value("i32", "%mask")
    listed = every_address(body, access._replace(base=Value(access.base.type, "%base", body)))
    body.store(listed, "%addresses", 64)
    size, reach = body.const("i32", access.size), body.const("i32", access.reach)
    places = (Value("ptr", "%addresses"), mask, size, reach, Value("i32", "%line"), Value("ptr", "%buffer"))
    answer = body.call(function, "i32", *e.pointers(), *places)
    if access.space in _FLAT:
        with body.unless(body.equals(answer, 0)):
            body.line(f"ret {answer}")
        lane = body.find_lowest(mask)
        lane &= 31
        first = body.set("i64", f"extractelement {listed}, {lane}")
        _remember_array(body, access, first, "%hint")
    body.line(f"ret {answer}")
    taken = f"{_POINTERS}, {access.base.type} %base, i32 %mask, i32 %line"
    taken += ", ptr %addresses, ptr %buffer, ptr %hint"
    e.define(name, "i32", taken, body, attributes="noinline nounwind cold")
    return name


def runs_of(access: MemoryAccess) -> list[tuple[int, int]]:
    """Return start and end of each stretch of bytes that the lanes touch; a stretch includes small gaps."""
    assert access.lanes is not None
    runs: list[list[int]] = []
    for lane in sorted(set(access.lanes)):
        if runs and lane - runs[-1][1] <= _GAP_BYTES:
            runs[-1][1] = max(runs[-1][1], lane + access.size)
        else:
            runs.append([lane, lane + access.size])
    return [(start, end) for start, end in runs]
