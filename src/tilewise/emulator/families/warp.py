"""Instructions that lanes of a warp run with one another: shuffles, votes, matches, reductions, elections.

The lanes that take part are those that run the instruction now (``e.mask()``), and of them those that the
membermask names. A ``.sync`` instruction stands behind a ``bar.warp.sync`` of the same membermask, which
``control_flow.py`` puts there: by the time it runs, the lanes it names are here, or have left the kernel.
"""

from __future__ import annotations

from tilewise.emulator.layout import WARP
from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.tables import (
    check_operand_count,
    effect,
    refuse_other_forms,
    unsupported,
    waits,
)
from tilewise.emulator.lowering.values import read, read_bits, write
from tilewise.emulator.ptx.syntax import Immediate, Instruction, Operand, Pair, Register

__all__ = ["await_lanes", "shuffled_from", "source_lanes"]

_LANES = list(range(32))
_MODES = ("up", "down", "bfly", "idx")
_CANONICAL_NAN = 0x7FFF_FFFF
_ELECT_FORM = "it is elect.sync d|p, membermask"
_MATCH_FORM = "it is any or all, sync, of type b32 or b64"
_REDUX_FORM = "it is sync; add, min, max of u32, s32; min, max of f32; and, or, xor of b32"
refuse_other_forms("elect", _ELECT_FORM)
refuse_other_forms("match", _MATCH_FORM)
refuse_other_forms("redux", _REDUX_FORM)


# -- operands -----------------------------------------------------------------------------------------
def _operands(instruction: Instruction, plain: int) -> tuple[tuple[Operand, ...], Operand | None]:
    """The operands without the membermask, and the membermask of a ``.sync`` form."""
    synced = "sync" in instruction.parts
    check_operand_count(instruction, plain + synced)
    return instruction.operands[:plain], instruction.operands[plain] if synced else None


def _destinations(instruction: Instruction, paired: bool) -> tuple[Register, Register | None]:
    first = instruction.operands[0]
    both = (first.first, first.second) if isinstance(first, Pair) and paired else (first, None)
    if not isinstance(both[0], Register) or not (both[1] is None or isinstance(both[1], Register)):
        raise unsupported(instruction, "its destination must be a register")
    return both[0], both[1]


def _members(e: Context, membermask: Operand | None) -> Value:
    """The lanes that take part: one mask for the warp, or one for each lane if they name different ones."""
    if membermask is None:
        return e.mask()
    named = read(e, membermask, "u32", not e.analysis.is_uniform(membermask))
    here = e.splat(e.mask()) if named.is_vector else e.mask()
    return e.op("and", named, here)


def _like(e: Context, value: Value, members: Value) -> Value:
    """A mask of the warp beside what may be a mask for each lane."""
    return e.splat(value) if members.is_vector else value


# -- shfl ---------------------------------------------------------------------------------------------
def shuffled_from(mode: str, b: int, c: int) -> list[tuple[int, bool]]:
    """For each lane, the lane that ``shfl`` takes its value from, and whether that lane is in range."""
    by, clamp, segment = b & 31, c & 31, c >> 8 & 31
    found = []
    for lane in _LANES:
        low = lane & segment
        most = low | (clamp & ~segment)
        source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": low | (by & ~segment)}[mode]
        good = source >= most if mode == "up" else source <= most
        found.append((source if good else lane, good))
    return found


def _mode(shuffle: Instruction) -> str:
    mode = next((part for part in shuffle.parts if part in _MODES), "")
    if not mode or shuffle.parts[-1] != "b32":
        raise unsupported(shuffle, "it takes a mode (up, down, bfly or idx) and the type b32")
    return mode


@effect("shfl.sync", lanes="shuffled", exchanges=True, ptx="6.0", arch="sm_30")
@effect("shfl", lanes="shuffled", ptx="3.0", arch="sm_30")
def shfl(e: Context, instruction: Instruction) -> None:
    """A value from another lane. Of a lane that does not take part it is what its register holds."""
    mode = _mode(instruction)
    (_, a, b, c), _ = _operands(instruction, 4)
    target, flag = _destinations(instruction, True)
    if e.result_shape(instruction) is not None:
        value = (
            read(e, a, "b32", False)
            if e.analysis.is_uniform(a)
            else _lane(e, read(e, a, "b32", True), read(e, b, "u32", False))
        )
        write(e, target, value, "b32")
        if flag is not None:
            write(e, flag, e.const("i1", 1), "pred")
        return
    values = read(e, a, "b32", True)
    by, clamp = _constant_of(e, b), _constant_of(e, c)
    if by is not None and clamp is not None:
        picks = shuffled_from(mode, by, clamp)
        result = e.shuffle(values, [source for source, _ in picks])
        good = e.lanes("i1", [int(inside) for _, inside in picks])
    else:
        sources, good = _sources(e, mode, read(e, b, "u32", True), read(e, c, "u32", True))
        result = _permute(e, values, sources)
    write(e, target, result, "b32")
    if flag is not None:
        write(e, flag, good, "pred")


def source_lanes(e: Context, instruction: Instruction) -> Value:
    """For each lane, the lane whose value ``shfl`` gives it: itself if that is out of range."""
    _, _, b, c = instruction.operands[:4]
    return _sources(e, _mode(instruction), read(e, b, "u32", True), read(e, c, "u32", True))[0]


def _constant_of(e: Context, operand: Operand) -> int | None:
    if isinstance(operand, Immediate):
        return operand.value
    shape = e.analysis.shape_of(operand)
    return shape.value if shape is not None and shape.uniform else None


def _lane(e: Context, values: Value, lane: Value) -> Value:
    safe = e.op("and", lane, 31)
    return e.set(values.scalar, f"extractelement {values}, {safe}")


def _sources(e: Context, mode: str, b: Value, c: Value) -> tuple[Value, Value]:
    """As :func:`shuffled_from`, for operands that are not constants."""
    lane = e.lanes("i32", _LANES)
    by, clamp = e.op("and", b, 31), e.op("and", c, 31)
    segment = e.op("and", e.op("lshr", c, 8), 31)
    beyond = e.op("xor", segment, -1)
    low = e.op("and", lane, segment)
    most = e.op("or", low, e.op("and", clamp, beyond))
    if mode == "idx":
        source = e.op("or", low, e.op("and", by, beyond))
    else:
        source = e.op({"up": "sub", "down": "add", "bfly": "xor"}[mode], lane, by)
    good = e.compare("icmp sge" if mode == "up" else "icmp sle", source, most)
    return e.select(good, source, lane), good


def _permute(e: Context, values: Value, sources: Value) -> Value:
    """Each lane's pick of all lanes' values, through memory."""
    _, buffer = e.buffers()
    e.store(values, buffer, 64)
    indices = e.cast("zext", sources, "i64")
    rows = e.set("<32 x ptr>", f"getelementptr i32, ptr {buffer}, {indices}")
    every, none = e.const("<32 x i1>", 1), e.zero(values.type)
    return e.call("llvm.masked.gather.v32i32.v32p0", values.type, rows, 4, every, none)


# -- vote, activemask, elect ----------------------------------------------------------------------------
@effect("vote.sync", lanes="voted", exchanges=True, ptx="6.0", arch="sm_30")
@effect("vote", lanes="voted", ptx="1.2", arch="sm_12")
def vote(e: Context, instruction: Instruction) -> None:
    """What the lanes' predicates come to."""
    parts = [part for part in instruction.parts if part != "sync"]
    if parts not in (["all", "pred"], ["any", "pred"], ["uni", "pred"], ["ballot", "b32"]):
        raise unsupported(instruction, "it is all, any or uni of a pred, or ballot of type b32")
    (_, predicate), membermask = _operands(instruction, 2)
    target, _ = _destinations(instruction, False)
    members = _members(e, membermask)
    ayes = e.op("and", _like(e, _ballot(e, predicate), members), members)
    if parts[0] == "ballot":
        write(e, target, ayes, "b32")
        return
    every = e.equals(ayes, members)
    none = e.equals(ayes, 0)
    match parts[0]:
        case "all":
            result = every
        case "any":
            result = e.op("xor", none, 1)
        case _:
            result = e.op("or", every, none)
    write(e, target, result, "pred")


def _ballot(e: Context, predicate: Operand) -> Value:
    """The lanes in which a predicate holds."""
    if e.analysis.is_uniform(predicate):
        return e.select(read(e, predicate, "pred", False), -1, 0)
    return e.bits(read(e, predicate, "pred", True))


@effect("activemask", lanes="uniform", ptx="6.2", arch="sm_30")
def activemask(e: Context, instruction: Instruction) -> None:
    """The lanes that run together now."""
    if instruction.parts != ("b32",):
        raise unsupported(instruction, "its type must be b32")
    check_operand_count(instruction, 1)
    target, _ = _destinations(instruction, False)
    write(e, target, e.mask(), "b32")


@effect("elect.sync", lanes="own", exchanges=True, ptx="8.0", arch="sm_90")
def elect(e: Context, instruction: Instruction) -> None:
    """One leader of the lanes: the lowest."""
    if instruction.parts != ("sync",) or not isinstance(instruction.operands[0], Pair):
        raise unsupported(instruction, _ELECT_FORM)
    _, membermask = _operands(instruction, 1)
    target, flag = _destinations(instruction, True)
    members = _members(e, membermask)
    leader = _first(e, members)
    write(e, target, leader, "b32")
    if flag is not None:
        write(e, flag, e.equals(e.lanes("i32", _LANES), e.splat(leader)), "pred")


def _first(e: Context, lanes: Value) -> Value:
    """The lowest lane of a mask."""
    return e.op("and", e.find_lowest(lanes), 31)


# -- match ----------------------------------------------------------------------------------------------
@effect("match.any.sync", lanes="matched", exchanges=True, ptx="6.0", arch="sm_70")
@effect("match.all.sync", lanes="voted", exchanges=True, ptx="6.0", arch="sm_70")
def match_(e: Context, instruction: Instruction) -> None:
    """The lanes that hold the same value: as this lane (any), or as all (all)."""
    parts = instruction.parts
    kind = parts[0]
    if parts[2:] not in (("b32",), ("b64",)):
        raise unsupported(instruction, _MATCH_FORM)
    (_, a), membermask = _operands(instruction, 2)
    target, flag = _destinations(instruction, kind == "all")
    members = _members(e, membermask)
    if e.analysis.is_uniform(a):
        equal: Value = members
    elif kind == "all" and not members.is_vector:
        equal = _equal_to_first(e, read(e, a, parts[-1], True), members)
    else:
        members = e.splat(members)
        equal = e.op("and", _equal_by_lane(e, read(e, a, parts[-1], True)), members)
    if kind == "any":
        write(e, target, equal, "b32")
        return
    every = e.equals(equal, members)
    write(e, target, e.select(every, members, 0), "b32")
    if flag is not None:
        write(e, flag, every, "pred")


def _equal_to_first(e: Context, values: Value, members: Value) -> Value:
    first = e.splat(_lane(e, values, _first(e, members)))
    return e.op("and", e.bits(e.equals(values, first)), members)


def _equal_by_lane(e: Context, values: Value) -> Value:
    """For each lane, the lanes that hold its value."""
    found = e.zero("<32 x i32>")
    for lane in _LANES:
        mine = e.splat(e.set(values.scalar, f"extractelement {values}, i64 {lane}"))
        lanes = e.bits(e.equals(values, mine))
        found = e.set(found.type, f"insertelement {found}, {lanes}, i64 {lane}")
    return found


# -- redux ----------------------------------------------------------------------------------------------
_IDENTITY = {
    ("add", "u32"): 0, ("add", "s32"): 0, ("min", "u32"): -1, ("min", "s32"): 2**31 - 1, ("max", "u32"): 0,
    ("max", "s32"): -(2**31), ("and", "b32"): -1, ("or", "b32"): 0, ("xor", "b32"): 0,
    ("min", "f32"): 2**31 - 1, ("max", "f32"): -(2**31),
}  # fmt: skip


@effect("redux.sync", lanes="voted", exchanges=True, ptx="7.0", arch="sm_80")
def redux(e: Context, instruction: Instruction) -> None:
    """A sum, least, greatest, and, or, exclusive or of the lanes' values."""
    parts = instruction.parts
    extra, real = set(parts[2:-1]), parts[-1:] == ("f32",)
    if (
        len(parts) < 3
        or (parts[1], parts[-1]) not in _IDENTITY
        or extra - ({"abs", "NaN"} if real else set())
    ):
        raise unsupported(instruction, _REDUX_FORM)
    (_, source), membermask = _operands(instruction, 2)
    target, _ = _destinations(instruction, False)
    members = _members(e, membermask)
    values = read_bits(e, source, parts[-1])
    if real:
        write(e, target, _redux_real(e, parts[1], extra, values, members), "b32")
        return
    identity = e.const(values, _IDENTITY[parts[1], parts[-1]])
    write(e, target, _reduce(e, parts[1], parts[-1] == "s32", values, identity, members), "b32")


def _redux_real(e: Context, op: str, extra: set[str], values: Value, members: Value) -> Value:
    """Least and greatest f32: -0 is less than +0, and NaN counts only where ``.NaN`` asks for it."""
    if "abs" in extra:
        values = e.op("and", values, 0x7FFF_FFFF)
    size = e.op("and", values, 0x7FFF_FFFF)
    odd = _like(e, e.bits(e.is_above(size, 0x7F80_0000)), members)
    numbers = e.without(members, odd)
    identity = e.const(values, _IDENTITY[op, "f32"])
    best = _ordered(e, _reduce(e, op, True, _ordered(e, values), identity, numbers))
    nothing = e.equals(numbers, 0)
    if "NaN" in extra:
        some = e.differs(e.op("and", members, odd), 0)
        nothing = e.op("or", nothing, some)
    return e.select(nothing, _CANONICAL_NAN, best)


def _ordered(e: Context, bits: Value) -> Value:
    """The bits of floats as integers of the same order; and back again."""
    sign = e.op("ashr", bits, 31)
    return e.op("xor", bits, e.op("and", sign, 0x7FFF_FFFF))


def _reduce(e: Context, op: str, signed: bool, values: Value, identity: Value, members: Value) -> Value:
    word = {"min": "smin" if signed else "umin", "max": "smax" if signed else "umax"}.get(op, op)
    if not members.is_vector:
        chosen = e.select(e.bits(members), values, identity)
        return e.call(f"llvm.vector.reduce.{word}.v32i32", "i32", chosen)
    result = identity
    for lane in _LANES:
        one = e.splat(e.set("i32", f"extractelement {values}, i64 {lane}"))
        named = e.differs(e.op("and", members, 1 << lane), 0)
        item = e.select(named, one, identity)
        result = (
            e.intrinsic(f"llvm.{word}", result, item) if op in ("min", "max") else e.op(word, result, item)
        )
    return result


# -- bar.warp.sync --------------------------------------------------------------------------------------
@waits("bar.warp.sync", has_result=False, waits_for="warp", ptx="6.0", arch="sm_30")
def await_lanes(e: Context, instruction: Instruction) -> None:
    """Let the lanes that are here wait until every lane that they name has come or has left the kernel.

    For lanes apart; where all lanes run together they have met already.
    """
    check_operand_count(instruction, 1)
    named = read(e, instruction.operands[0], "u32", True)
    here = e.mask()
    place = e.offset("%warp", WARP.NAMED)
    before = e.load(vector("i32"), place, 64)
    e.store(e.select(e.bits(here), named, before), place, 64)
    e.call("tw_meet", "void", "%warp", here, instruction.line)
