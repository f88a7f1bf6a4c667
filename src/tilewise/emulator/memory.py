"""Loads and stores of every space.

Each access has a fast path, chosen by the shape of its address and taken when one comparison shows that
every byte it may touch is the launch's own, and a careful one (``tw_load``, ``tw_store``) that checks lane
by lane and serves every other case. A fast load may read for lanes that do not run: what it reads is
valid memory, and the lanes do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tilewise.emulator.emit import Value, vector
from tilewise.emulator.layout import (
    GENERIC_CONST,
    GENERIC_LOCAL,
    GENERIC_PARAM,
    GENERIC_SHARED,
    LAUNCH,
    Space,
)
from tilewise.emulator.syntax import Address, Instruction, Operand, Register, Symbol, Vector
from tilewise.emulator.tables import other, unknown
from tilewise.emulator.types import TYPE_BYTES, llvm_scalar

if TYPE_CHECKING:
    from tilewise.emulator.lower import Lowering
    from tilewise.emulator.values import Values

__all__ = [
    "Access",
    "access_of",
    "address_of",
    "every_address",
    "fast_path",
    "learn",
    "pointers",
    "take_address",
]

_SPACES = {
    "global": Space.GLOBAL,
    "shared": Space.SHARED,
    "local": Space.LOCAL,
    "const": Space.CONST,
    "param": Space.PARAM,
}
_WINDOWS = {
    "shared": GENERIC_SHARED,
    "local": GENERIC_LOCAL,
    "const": GENERIC_CONST,
    "param": GENERIC_PARAM,
}
HINT_BYTES = 16
FIRST_HINT = 64  # in the worker's memory; what lies before is its own
_GAP_BYTES = 32  # read over rather than around
_MOST_RUNS = 8


class Access(NamedTuple):
    """One memory instruction, taken apart."""

    space: Space
    type: str  # of an element
    elements: int  # of each lane
    lanes: tuple[int, ...] | None  # bytes from the lowest lane's address to each lane's; None if not known
    base: Value  # i64: the lowest lane's address, or every lane's
    volatile: bool
    line: int

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


def space_of(instruction: Instruction) -> str:
    for part in instruction.parts:
        name = part.split("::")[0]
        if name in _SPACES:
            return name
    return "generic"


def access_of(e: Lowering, instruction: Instruction, operand: Operand) -> Access:
    """Take a memory instruction apart; ``operand`` is its address."""
    if not isinstance(operand, Address):
        raise unknown(instruction, "an address in brackets expected")
    name, type_ = space_of(instruction), instruction.parts[-1]
    count = next((int(part[1:]) for part in instruction.parts if part in ("v2", "v4", "v8")), 1)
    if type_ not in TYPE_BYTES or type_ == "pred" or TYPE_BYTES[type_] * count > 32:
        raise unknown(instruction, "not with this type")
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
    return Access(space, type_, count, lanes, base, volatile, instruction.line)


def take_address(e: Lowering, operand: Address) -> tuple[Value, tuple[int, ...] | None]:
    if operand.base is None:
        return e.const("i64", operand.offset), (0,) * 32
    if isinstance(operand.base, Symbol):
        value = address_of(e, Symbol(operand.base.name, operand.offset))
        return value, (0,) * 32
    shape = e.shape_of(operand.base)
    own = e.types.get(operand.base.name, "u64")
    value = e.read(operand.base, "u64" if TYPE_BYTES.get(own) == 8 else "u32", shape is None)
    value = e.resize(value, "i64", False)
    low = min(shape.lanes) if shape else 0
    total = operand.offset + low
    if total:
        value = e.op("add", value, e.const(value, total))
    return value, tuple(lane - low for lane in shape.lanes) if shape else None


def _wrapped(e: Lowering, address: Value, space: Space) -> Value:
    """Addresses of all spaces but global memory have 32 bits: what goes beyond comes round again."""
    if space in (Space.GENERIC, Space.GLOBAL):
        return address
    return e.op("and", address, e.const(address, 0xFFFF_FFFF))


def address_of(e: Values, symbol: Symbol) -> Value:
    """Where a variable lies, within its own space."""
    place = e.program.places.get(symbol.name)
    if place is None:
        raise unknown(e.now, f"there is no variable {symbol.name!r}")
    if place.space != "global":
        return e.const("i64", place.offset + symbol.offset)
    table = e.load("ptr", e.offset("%ctx", LAUNCH.GLOBALS), 8)
    address = e.load("i64", e.offset(table.ref, 8 * place.offset), 8)
    return e.op("add", address, e.const("i64", symbol.offset)) if symbol.offset else address


# -- loads ------------------------------------------------------------------------------------------
@other("ld", "ldu")
def load(e: Lowering, instruction: Instruction) -> None:
    access = access_of(e, instruction, instruction.operands[1])
    first = instruction.operands[0]
    targets = first.items if isinstance(first, Vector) else (first,)
    if len(targets) != access.elements:
        raise unknown(instruction, f"it loads {access.elements} elements")
    scalar = access.uniform and e.result_shape(instruction) is not None
    if _covered(e, instruction):
        _set_all(e, targets, _fast_load(e, access, _pointer(e, access, access.base), scalar), access.type)
        return
    slow, done = e.label("slow"), e.label("done")
    pointer = fast_path(e, access, slow)
    if pointer is not None:
        _set_all(e, targets, _fast_load(e, access, pointer, scalar), access.type)
        e.jump(done)
    else:
        e.jump(slow)
    e.place(slow)
    _set_all(e, targets, _slow_load(e, access, scalar), access.type)
    e.jump(done)
    e.place(done)


def _set_all(e: Lowering, targets: tuple[Operand, ...], values: list[Value], type_: str) -> None:
    for target, value in zip(targets, values, strict=True):
        if not isinstance(target, Register):
            raise unknown(e.now, "its destination must be a register")
        e.write(target, value, type_)


def fast_path(e: Lowering, access: Access, slow: str) -> str | None:
    """Branch to ``slow`` unless all of the access is plainly allowed; a pointer to its start, or "" for
    lanes that lie anywhere. None if there is no fast path."""
    if access.space in (Space.GENERIC, Space.LOCAL):
        return None
    if access.lanes is not None and any(lane % access.size for lane in access.lanes):
        return None
    start, limit = _window_of(e, access)
    away = e.op("sub", access.base, e.splat(start) if access.base.is_vector else start)
    bound = e.splat(limit) if away.is_vector else limit
    good = e.compare("icmp ult", away, bound)
    odd = e.op("and", access.base, e.const(access.base, access.size - 1))
    good = e.op("and", good, e.compare("icmp eq", odd, e.const(odd, 0)))
    if good.is_vector:
        missing = e.op("and", e.op("xor", e.bits(good), e.const("i32", -1)), e.mask())
        good = e.compare("icmp eq", missing, e.const("i32", 0))
    fast = e.label("fast")
    e.branch(good, fast, slow, likely=True)
    e.place(fast)
    if access.base.is_vector:
        return ""
    return _pointer(e, access, access.base)


def _covered(e: Lowering, instruction: Instruction) -> bool:
    """Whether one check covers a group of accesses that this one is of; the first of them makes it."""
    if not e.grouped or id(instruction) not in e.program.covered:
        return False
    group = e.program.leaders.get(id(instruction))
    if group is not None:
        own = e.types.get(group.base.name, "u64")
        value = e.read(group.base, "u64" if TYPE_BYTES.get(own) == 8 else "u32", False)
        base = e.resize(value, "i64", False)
        start = e.op("add", base, e.const("i64", group.low))
        room = e.op("add", Value("i64", "%shared_bytes"), e.const("i64", 1))
        limit = e.intrinsic("llvm.usub.sat", room, e.const("i64", group.high - group.low))
        good = e.compare("icmp ult", start, limit)
        place = e.op("add", base, e.const("i64", group.anchor))
        odd = e.op("and", place, e.const("i64", group.align - 1))
        e.guard_lanes(instruction, e.op("and", good, e.compare("icmp eq", odd, e.const("i64", 0))))
    return True


def _window_of(e: Lowering, access: Access) -> tuple[Value, Value]:
    """Where the bytes that may be touched begin, and how far from there an access may start."""
    span = access.span if access.lanes is not None else access.size
    if access.space == Space.GLOBAL:
        hint = _hint(e)
        start, room = e.load("i64", hint, 8), e.load("i64", e.offset(hint, 8), 8)
    else:
        name = {Space.SHARED: "%shared_bytes", Space.CONST: "%const_bytes", Space.PARAM: "%param_bytes"}[
            access.space
        ]
        start, room = e.const("i64", 0), e.op("add", Value("i64", name), e.const("i64", 1))
    return start, e.intrinsic("llvm.usub.sat", room, e.const("i64", span))


def _hint(e: Lowering) -> str:
    """The place where this instruction remembers the array that it touched last."""
    return e.offset("%worker", FIRST_HINT + HINT_BYTES * e.hints)


def _pointer(e: Lowering, access: Access, address: Value) -> str:
    if access.space == Space.GLOBAL:
        return e.set("ptr", f"inttoptr {address} to ptr").ref
    base = {Space.SHARED: "%shared", Space.CONST: "%constants", Space.PARAM: "%params"}[access.space]
    return e.offset(base, address)


def _pointers(e: Lowering, access: Access) -> Value:
    """A pointer for every lane of an access whose lanes lie anywhere."""
    if access.space == Space.GLOBAL:
        return e.set("<32 x ptr>", f"inttoptr {access.base} to <32 x ptr>")
    base = {Space.SHARED: "%shared", Space.CONST: "%constants", Space.PARAM: "%params"}[access.space]
    return e.set("<32 x ptr>", f"getelementptr i8, ptr {base}, {access.base}")


def pointers(e: Lowering, access: Access, start: str | None) -> Value:
    """A pointer for every lane, once the fast path has been taken."""
    if not start:
        return _pointers(e, access)
    assert access.lanes is not None
    return e.set("<32 x ptr>", f"getelementptr i8, ptr {start}, {e.lanes('i64', access.lanes)}")


def _fast_load(e: Lowering, access: Access, pointer: str, scalar: bool) -> list[Value]:
    element = llvm_scalar(access.type)
    if not pointer:
        return _load_anywhere(e, access, _pointers(e, access))
    assert access.lanes is not None
    if access.uniform:
        values = [
            e.load(element, e.offset(pointer, i * access.width), access.width, access.volatile)
            for i in range(access.elements)
        ]
        return values if scalar else [e.splat(value) for value in values]
    return _load_runs(e, access, pointer)


def _runs(access: Access) -> list[tuple[int, int]]:
    """Start and end of each stretch of memory that the lanes touch, in bytes; small gaps belong to it."""
    assert access.lanes is not None
    runs: list[list[int]] = []
    for lane in sorted(set(access.lanes)):
        if runs and lane - runs[-1][1] <= _GAP_BYTES:
            runs[-1][1] = max(runs[-1][1], lane + access.size)
        else:
            runs.append([lane, lane + access.size])
    return [(start, end) for start, end in runs]


def _load_runs(e: Lowering, access: Access, pointer: str) -> list[Value]:
    """Load each stretch as one vector and hand every lane its part."""
    element, width, size = llvm_scalar(access.type), access.width, access.elements
    assert access.lanes is not None
    runs = _runs(access)
    if len(runs) > _MOST_RUNS:
        offsets = e.lanes("i64", access.lanes)
        rows = e.set("<32 x ptr>", f"getelementptr i8, ptr {pointer}, {offsets}")
        return [_gather(e, access, rows, i) for i in range(size)]
    longest = max(end - start for start, end in runs)
    pieces = []
    for start, end in runs:
        piece = _load_row(e, f"<{(end - start) // width} x {element}>", e.offset(pointer, start), access)
        short = (longest - end + start) // width
        filled = [*range((end - start) // width), *([0] * short)]
        pieces.append(e.shuffle(piece, filled) if short else piece)
    whole = _join(e, pieces)
    places = [
        index * (longest // width) + (lane - start) // width
        for lane in access.lanes
        for index, (start, end) in enumerate(runs)
        if start <= lane < end
    ]
    if whole.type == vector(element) and places == list(range(32)):
        return [whole]
    return [e.shuffle(whole, [place + i for place in places]) for i in range(size)]


def _load_row(e: Lowering, type_: str, pointer: str, access: Access) -> Value:
    return e.load(type_, pointer, access.width, access.volatile)


def _join(e: Lowering, pieces: list[Value]) -> Value:
    """Vectors one behind the other."""
    while len(pieces) > 1:
        if len(pieces) % 2:
            pieces = [*pieces, pieces[-1]]
        length = int(pieces[0].type[1:].split(" ")[0])
        pieces = [
            e.shuffle(pieces[i], list(range(2 * length)), pieces[i + 1]) for i in range(0, len(pieces), 2)
        ]
    return pieces[0]


def _load_anywhere(e: Lowering, access: Access, rows: Value) -> list[Value]:
    """Lanes that lie anywhere: one gather for single elements, a load for each lane for several."""
    if access.elements == 1:
        return [_gather(e, access, rows, 0)]
    if e.masked:  # lanes that do not run read where reading is allowed
        buffer = Value("<32 x ptr>", e.splat_pointer(e.buffers()[1]))
        rows = e.select(e.bits(e.mask()), rows, buffer)
    type_ = f"<{access.elements} x {llvm_scalar(access.type)}>"
    pieces = []
    for lane in range(32):
        place = e.set("ptr", f"extractelement {rows}, i64 {lane}")
        pieces.append(_load_row(e, type_, place.ref, access))
    whole = _join(e, pieces)
    size = access.elements
    return [e.shuffle(whole, [lane * size + i for lane in range(32)]) for i in range(size)]


def _gather(e: Lowering, access: Access, rows: Value, index: int) -> Value:
    element = llvm_scalar(access.type)
    type_ = vector(element)
    if index:
        rows = e.set("<32 x ptr>", f"getelementptr i8, {rows}, i64 {index * access.width}")
    suffix = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(element, element)
    name = f"llvm.masked.gather.v32{suffix}.v32p0"
    e.declare(name, type_, ["<32 x ptr>", "i32", "<32 x i1>", type_])
    mask = e.bits(e.mask())
    return e.set(type_, f"call {type_} @{name}({rows}, i32 {access.width}, {mask}, {type_} zeroinitializer)")


def _slow_load(e: Lowering, access: Access, scalar: bool) -> list[Value]:
    element = llvm_scalar(access.type)
    if scalar:
        pointer = _resolve(e, access, write=0)
        return [
            e.load(element, e.offset(pointer, i * access.width), 1, access.volatile)
            for i in range(access.elements)
        ]
    buffer = _careful(e, access, "tw_load")
    whole = e.load(f"<{32 * access.elements} x {element}>", buffer, 64)
    if access.elements == 1:
        return [whole]
    return [
        e.shuffle(whole, [lane * access.elements + i for lane in range(32)]) for i in range(access.elements)
    ]


def learn(e: Lowering, access: Access, pointer_bits: Value) -> None:
    """Let the instruction remember the array that a global address lies in."""
    if access.space == Space.GLOBAL:
        size = e.const("i64", access.size)
        e.call("tw_find", "i1", Value("ptr", "%ctx"), pointer_bits, size, Value("ptr", _hint(e)))
        e.hints += 1


def _resolve(e: Lowering, access: Access, write: int) -> str:
    """The pointer of an address that all lanes share; leaves with a fault if it may not be touched."""
    from tilewise.emulator.barriers import first_lane

    address = first_lane(e, access.base) if access.base.is_vector else access.base
    address = _wrapped(e, address, access.space)
    e.declare("llvm.cttz.i32", "i32", ["i32", "i1"])
    lane = e.set("i32", f"call i32 @llvm.cttz.i32({e.mask()}, i1 false)")
    pointer = e.call(
        "tw_resolve",
        "ptr",
        *e.pointers(),
        address,
        e.const("i32", access.size),
        e.const("i32", int(access.space)),
        lane,
        e.const("i32", access.line),
        e.const("i32", write),
    )
    good = e.label("good")
    e.branch(e.compare("icmp ne", pointer, Value("ptr", "null")), good, "failed")
    e.place(good)
    learn(e, access, address)
    return pointer.ref


def every_address(e: Lowering, access: Access) -> Value:
    """The address of every lane."""
    if access.base.is_vector:
        return _wrapped(e, access.base, access.space)
    wide = e.splat(access.base)
    assert access.lanes is not None
    listed = e.op("add", wide, e.lanes("i64", access.lanes)) if any(access.lanes) else wide
    return _wrapped(e, listed, access.space)


def _careful(e: Lowering, access: Access, function: str) -> str:
    """Copy lane by lane between memory and a buffer with room for each lane; returns the buffer."""
    addresses, buffer = e.buffers()
    listed = every_address(e, access)
    e.store(listed, addresses, 64)
    answer = e.call(
        function,
        "i32",
        *e.pointers(),
        Value("ptr", addresses),
        e.mask(),
        e.const("i32", access.size),
        e.const("i32", int(access.space)),
        e.const("i32", access.line),
        Value("ptr", buffer),
    )
    good = e.label("good")
    e.branch(e.compare("icmp eq", answer, e.const("i32", 0)), good, "failed")
    e.place(good)
    if access.space == Space.GLOBAL:
        from tilewise.emulator.barriers import first_lane

        learn(e, access, first_lane(e, listed))
    return buffer


# -- stores -----------------------------------------------------------------------------------------
@other("st")
def store(e: Lowering, instruction: Instruction) -> None:
    access = access_of(e, instruction, instruction.operands[0])
    source = instruction.operands[1]
    items = source.items if isinstance(source, Vector) else (source,)
    if len(items) != access.elements:
        raise unknown(instruction, f"it stores {access.elements} elements")
    # NOTE: one local address, or a generic one that is local, is another place for every lane.
    one_place = access.uniform and access.space not in (Space.LOCAL, Space.GENERIC)
    scalar = one_place and all(_is_scalar(e, item) for item in items)
    values = [e.read(item, access.type, not scalar) for item in items]
    if _covered(e, instruction):
        _fast_store(e, access, _pointer(e, access, access.base), values)
        return
    slow, done = e.label("slow"), e.label("done")
    pointer = fast_path(e, access, slow)
    if pointer is not None:
        _fast_store(e, access, pointer, values)
        e.jump(done)
    else:
        e.jump(slow)
    e.place(slow)
    _slow_store(e, access, values, scalar)
    e.jump(done)
    e.place(done)


def _is_scalar(e: Lowering, item: Operand) -> bool:
    shape = e.shape_of(item)
    return shape is not None and shape.uniform


def _fast_store(e: Lowering, access: Access, pointer: str, values: list[Value]) -> None:
    if not pointer:
        _scatter(e, access, _pointers(e, access), values)
        return
    assert access.lanes is not None
    if access.uniform:
        for i, value in enumerate(values):
            last = _last_lane(e, value) if value.is_vector else value
            e.store(last, e.offset(pointer, i * access.width), access.width, access.volatile)
        return
    if list(access.lanes) != [lane * access.size for lane in range(32)]:
        runs = _runs(access)
        if not e.masked and len(runs) <= _MOST_RUNS and _filled(access, runs):
            _store_runs(e, access, pointer, values, runs)
            return
        offsets = e.lanes("i64", access.lanes)
        rows = e.set("<32 x ptr>", f"getelementptr i8, ptr {pointer}, {offsets}")
        _scatter(e, access, rows, values)
        return
    whole = _interleave(e, values)
    if not e.masked:
        e.store(whole, pointer, access.width, access.volatile)
        return
    mask = e.bits(e.mask())
    if access.elements > 1:
        mask = e.shuffle(mask, [lane for lane in range(32) for _ in range(access.elements)])
    count, element = 32 * access.elements, llvm_scalar(access.type)
    suffix = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(element, element)
    name = f"llvm.masked.store.v{count}{suffix}.p0"
    e.declare(name, "void", [whole.type, "ptr", "i32", mask.type])
    e.line(f"call void @{name}({whole}, ptr {pointer}, i32 {access.width}, {mask})")


def _filled(access: Access, runs: list[tuple[int, int]]) -> bool:
    """Whether the lanes write every byte of the stretches: a store may not touch a gap."""
    assert access.lanes is not None
    return sum(end - start for start, end in runs) == len(set(access.lanes)) * access.size


def _store_runs(
    e: Lowering, access: Access, pointer: str, values: list[Value], runs: list[tuple[int, int]]
) -> None:
    """Put the lanes' values in order of address and store each stretch at once."""
    assert access.lanes is not None
    whole = _interleave(e, values)
    last = {offset: lane for lane, offset in enumerate(access.lanes)}  # of two lanes the later one stays
    for start, end in runs:
        picks = [
            last[offset] * access.elements + i
            for offset in range(start, end, access.size)
            for i in range(access.elements)
        ]
        e.store(e.shuffle(whole, picks), e.offset(pointer, start), access.width, access.volatile)


def _interleave(e: Lowering, values: list[Value]) -> Value:
    """Each lane's values side by side."""
    if len(values) == 1:
        return values[0]
    joined = _join(e, list(values))
    return e.shuffle(joined, [i * 32 + lane for lane in range(32) for i in range(len(values))])


def _last_lane(e: Lowering, value: Value) -> Value:
    """The value in the last lane that runs: of several stores to one place, the last stays."""
    e.declare("llvm.ctlz.i32", "i32", ["i32", "i1"])
    zeros = e.set("i32", f"call i32 @llvm.ctlz.i32({e.mask()}, i1 false)")
    lane = e.op("and", e.op("sub", e.const("i32", 31), zeros), e.const("i32", 31))
    return e.set(value.scalar, f"extractelement {value}, {lane}")


def _scatter(e: Lowering, access: Access, rows: Value, values: list[Value]) -> None:
    element = llvm_scalar(access.type)
    suffix = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(element, element)
    name = f"llvm.masked.scatter.v32{suffix}.v32p0"
    e.declare(name, "void", [vector(element), "<32 x ptr>", "i32", "<32 x i1>"])
    mask = e.bits(e.mask())
    for i, value in enumerate(values):
        places = rows
        if i:
            places = e.set("<32 x ptr>", f"getelementptr i8, {rows}, i64 {i * access.width}")
        e.line(f"call void @{name}({value}, {places}, i32 {access.width}, {mask})")


def _slow_store(e: Lowering, access: Access, values: list[Value], scalar: bool) -> None:
    if scalar:
        pointer = _resolve(e, access, write=1)
        for i, value in enumerate(values):
            e.store(value, e.offset(pointer, i * access.width), 1, access.volatile)
        return
    _, buffer = e.buffers()
    e.store(_interleave(e, values), buffer, 64)
    _careful(e, access, "tw_store")


# -- addresses --------------------------------------------------------------------------------------
@other("cvta")
def cvta(e: Lowering, instruction: Instruction) -> None:
    """An address of one space as a generic one, or the other way round."""
    window = _WINDOWS.get(space_of(instruction), 0)
    shape = e.result_shape(instruction)
    target, source = instruction.operands
    if not isinstance(target, Register):
        raise unknown(instruction, "its destination must be a register")
    type_ = instruction.parts[-1]
    value = e.resize(e.read(source, type_, shape is None), "i64", False)
    if isinstance(source, Symbol) and "to" not in instruction.parts:
        place = e.program.places.get(source.name)
        window = _WINDOWS.get(place.space, 0) if place else window
    if window:
        value = e.op("sub" if "to" in instruction.parts else "add", value, e.const(value, window))
    e.write(target, value, "u64", shape)


@other("isspacep")
def isspacep(e: Lowering, instruction: Instruction) -> None:
    """Whether a generic address lies in a space."""
    name = space_of(instruction)
    shape = e.result_shape(instruction)
    target, source = instruction.operands
    if not isinstance(target, Register) or name == "generic":
        raise unknown(instruction)
    value = e.read(source, "u64", shape is None)
    if name == "global":
        result = e.compare("icmp ult", value, e.const(value, GENERIC_SHARED))
    else:
        away = e.op("sub", value, e.const(value, _WINDOWS[name]))
        result = e.compare("icmp ult", away, e.const(value, 1 << 32))
    e.write(target, result, "pred", shape)


@other(
    "membar",
    "fence",
    "prefetch",
    "prefetchu",
    "discard",
    "applypriority",
    "createpolicy",
    "nanosleep",
    "pmevent",
)
def no_effect(e: Lowering, instruction: Instruction) -> None:
    """Order and hints: memory here is in order already, and there is no cache to steer."""
    if instruction.opcode == "createpolicy":
        first = instruction.operands[0]
        if isinstance(first, Register):
            e.write(first, e.const("i64", 0), "u64")
    if instruction.opcode in ("membar", "fence"):
        e.line("fence seq_cst")
