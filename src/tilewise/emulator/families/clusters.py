"""Clusters of blocks: addresses of one another's shared memory, what a launch may depend on, the work of clusters that
have not begun; fences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.emulator.families.bulk import BARRIER, VALUES, Columns, put_cluster_address
from tilewise.emulator.layout import BLOCK, GENERIC, LAUNCH, RANK_SHIFT, WINDOW, Flight, FlightClass
from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.tables import (
    check_operand_count,
    effect,
    pure,
    refuse_other_forms,
    unsupported,
    waits,
)
from tilewise.emulator.lowering.values import read, write
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.ptx.syntax import Address, Immediate, Instruction, Register, Symbol
from tilewise.emulator.support.bulk_requests import COLUMN, NONE, REQUEST, Verb

__all__ = ["in_own_block"]

_OFFSET = (1 << RANK_SHIFT) - 1  # of an address: where in a block's shared memory
_RANKS = (1 << (32 - RANK_SHIFT)) - 1  # one more than the highest rank that an address has room for
_REGISTERS = range(24, 257, 8)
_GRIDS = "it is griddepcontrol.launch_dependents or griddepcontrol.wait"
_SCOPES = ("cta", "cluster", "gpu", "sys")
_MAPS, _MAP_BYTES = "tensormap::generic", 128
_TO_CTA, _TO_CLUSTER = "sync_restrict::shared::cta", "sync_restrict::shared::cluster"


def _forms() -> dict[str, set[frozenset[str]]]:
    """Everything that a fence may say."""
    said = [
        *_SCOPES,
        *(f"{order} {scope}" for order in ("sc", "acq_rel", "acquire", "release") for scope in _SCOPES),
    ]
    said += [f"acquire {_TO_CLUSTER} cluster", f"release {_TO_CTA} cluster", "mbarrier_init release cluster"]
    kinds = ["alias", "async", *(f"async {space}" for space in ("global", "shared::cta", "shared::cluster"))]
    proxies = [f"proxy {kind}" for kind in kinds]
    generic = [f"acquire {_TO_CLUSTER}", f"release {_TO_CTA}", f"release {_TO_CLUSTER}::read"]
    said += [*proxies, *(f"proxy async::generic {limit} cluster" for limit in generic)]
    said += [f"proxy alias {order} sys" for order in ("acquire", "release")]
    said += [
        f"proxy {_MAPS} {order} {scope}" for order in ("acquire", "release", "acq_rel") for scope in _SCOPES
    ]
    membars = ["cta", "gl", "sys", "proxy alias", "proxy async"]
    return {
        opcode: {frozenset(words.split()) for words in listed}
        for opcode, listed in (("fence", said), ("membar", membars))
    }


_FENCES = _forms()


# -- addresses ------------------------------------------------------------------------------------------
def _address(e: Context, instruction: Instruction, as_vector: bool) -> tuple[Value, bool]:
    """The instruction's address, and whether it is a generic one."""
    parts = instruction.parts
    type_ = parts[-1] if parts else ""
    if type_ not in ("u32", "u64") or parts[:-1] not in ((), ("shared::cluster",)):
        raise unsupported(instruction, "it takes the space shared::cluster or none, and the type u32 or u64")
    generic = len(parts) == 1
    source = instruction.operands[1]
    if generic and type_ == "u32":
        raise unsupported(instruction, "a generic address has 64 bits")
    place = e.program.places.get(source.name) if isinstance(source, Symbol) else None
    if place and (generic or place.space != "shared"):
        raise unsupported(instruction, "a variable must be in shared memory, and the space named")
    return e.wide(read(e, source, type_, as_vector)), generic


def _target(instruction: Instruction) -> Register:
    target = instruction.operands[0]
    if not isinstance(target, Register):
        raise unsupported(instruction, "its destination must be a register")
    return target


@effect("mapa", ptx="7.8", arch="sm_90")
def mapa(e: Context, instruction: Instruction) -> None:
    """Where the same variable lies in another block of the cluster.

    NOTE: of no such block, and of what is no shared memory, the result is an address at which every
    access faults: the instruction itself cannot fail.
    """
    check_operand_count(instruction, 3)
    shape = e.result_shape(instruction)
    address, generic = _address(e, instruction, shape is None)
    given = e.wide(read(e, instruction.operands[2], "u32", shape is None))
    rank = e.intrinsic("llvm.umin", given, _RANKS - 1)
    if generic:
        away = e.op("sub", address, GENERIC.SHARED)
        inside = e.is_below(away, WINDOW)
        rank = e.select(inside, rank, _RANKS - 1)
    high = e.op("shl", e.op("add", rank, 1), RANK_SHIFT)
    result = e.op("or", e.op("and", address, _OFFSET), high)
    if generic:
        result = e.op("add", result, GENERIC.SHARED)
    type_ = instruction.parts[-1]
    write(e, _target(instruction), e.resize(result, f"i{type_[1:]}", False), type_, shape)


@effect("getctarank", ptx="7.8", arch="sm_90")
def getctarank(e: Context, instruction: Instruction) -> None:
    """The rank of the block whose shared memory an address names; any rank if it names none."""
    check_operand_count(instruction, 2)
    shape = e.result_shape(instruction)
    address, _ = _address(e, instruction, shape is None)
    number = e.op("and", e.op("lshr", address, RANK_SHIFT), _RANKS)
    named = e.resize(e.op("sub", number, 1), "i32", False)
    own = e.equals(number, 0)
    write(e, _target(instruction), e.select(own, _own_rank(e, named), named), "u32", shape)


def _own_rank(e: Context, like: Value) -> Value:
    rank = e.load("i32", e.offset("%block", BLOCK.RANK), 4)
    return e.splat(rank) if like.is_vector else rank


def in_own_block(e: Context, away: Value) -> Value:
    """Whether an address, less the start of the window of shared memory, is of the block's own."""
    number = e.op("lshr", away, RANK_SHIFT)
    own = e.op("add", e.wide(_own_rank(e, away)), 1)
    none = e.equals(number, 0)
    return e.op("or", none, e.equals(number, own))


# -- what changes nothing here ----------------------------------------------------------------------------
@effect("setmaxnreg", has_result=False, ptx="8.0", arch="sm_90a")
def setmaxnreg(e: Context, instruction: Instruction) -> None:
    """How many registers a thread may have: here all of them do."""
    check_operand_count(instruction, 1)
    count = instruction.operands[0]
    if instruction.parts not in (("inc", "sync", "aligned", "u32"), ("dec", "sync", "aligned", "u32")):
        raise unsupported(instruction, "it is setmaxnreg.inc or .dec, .sync.aligned.u32")
    if not isinstance(count, Immediate) or count.width or count.value not in _REGISTERS:
        raise unsupported(instruction, "it takes a constant from 24 to 256 that is a multiple of 8")


refuse_other_forms("griddepcontrol", _GRIDS)


@effect(
    "griddepcontrol.launch_dependents", has_result=False, launches_dependents=True, ptx="7.8", arch="sm_90"
)
def launch_dependents(e: Context, instruction: Instruction) -> None:
    """The next launch may begin. Here it does so later, and finds what this one wrote as if it had begun now."""
    check_operand_count(instruction, 0)
    if instruction.parts != ("launch_dependents",):
        raise unsupported(instruction, _GRIDS)


@waits("griddepcontrol.wait", has_result=False, waits_for="launch", ptx="7.8", arch="sm_90")
def await_launch(e: Context, instruction: Instruction) -> Value:
    """Wait for the end of the launch before: 0 if it has ended, 1 if the lanes are held up."""
    check_operand_count(instruction, 0)
    if instruction.parts != ("wait",):
        raise unsupported(instruction, _GRIDS)
    return e.call("tw_await_launch", "i32", *e.pointers(), e.mask())


# -- another cluster's work ---------------------------------------------------------------------------------
# A response is the canceled cluster's first block (x, y, z), 32 bits each, and whether there is one.
_RESPONSE_BYTES = 16
_TO_ALL = "multicast::cluster::all"
_QUERIES = {"is_canceled": 0, "get_first_ctaid": 0, "get_first_ctaid::x": 0, "get_first_ctaid::y": 1,
            "get_first_ctaid::z": 2}  # fmt: skip

refuse_other_forms("clusterlaunchcontrol", "it is clusterlaunchcontrol.try_cancel.async or .query_cancel")


@effect(
    "clusterlaunchcontrol.try_cancel", has_result=False, changes=True, asynchronous=True, bulk_copy="remote",
    ptx="8.6", arch="sm_100",
)  # fmt: skip
def try_cancel(e: Context, instruction: Instruction) -> None:
    """Ask for the work of a cluster that has not begun. The answer is always that there is none, as it may be: every
    block of a launch runs here. It comes as any copy does, some time later, and completes on an mbarrier."""
    check_operand_count(instruction, 2)
    words = {*instruction.parts}
    if (
        BARRIER not in words
        or instruction.parts[:2] != ("try_cancel", "async")
        or instruction.parts[-1] != "b128"
    ):
        raise unsupported(
            instruction, f"it is clusterlaunchcontrol.try_cancel.async, .{BARRIER}, of type .b128"
        )
    if bad := sorted(words - {"try_cancel", "async", "shared::cta", BARRIER, _TO_ALL, "b128"}):
        raise unsupported(instruction, f".{bad[0]} does not fit here")
    columns, offsets = Columns(e, instruction), (REQUEST.GLOBAL, REQUEST.MBARRIER)
    for offset, operand in zip(offsets, instruction.operands, strict=True):
        put_cluster_address(columns, offset, operand, "shared::cta" not in words)
    columns.put(REQUEST.SIZE, _RESPONSE_BYTES)
    columns.put(REQUEST.REDUCTION, NONE)
    e.store(e.zero("<64 x i64>"), e.offset(columns.place, VALUES), 64)
    if _TO_ALL not in words:
        columns.issue(Flight.REMOTE, FlightClass.MBARRIER, Verb.WRITE)
        return
    places = [e.offset(columns.place, offset // 8 * COLUMN) for offset in offsets]
    within = [e.op("and", held, _OFFSET) for held in (e.load("<32 x i64>", p, 64) for p in places)]
    with _each_rank(e) as rank:
        named = e.splat(e.op("shl", e.op("add", rank, 1), RANK_SHIFT))
        for place, address in zip(places, within, strict=True):
            e.store(e.op("or", address, named), place, 64)
        columns.issue(Flight.REMOTE, FlightClass.MBARRIER, Verb.WRITE)


@contextmanager
def _each_rank(e: Context) -> Iterator[Value]:
    """Emit a loop over the blocks of the cluster; yield the rank."""
    number, top, done = e.alloca("i64", 8), e.label("rank"), e.label("ranks")
    e.store(e.const("i64", 0), number, 8)
    e.jump(top)
    e.place(top)
    rank = e.load("i64", number, 8)
    yield rank
    following = e.op("add", rank, 1)
    e.store(following, number, 8)
    count = e.load("i64", e.offset("%ctx", LAUNCH.CLUSTER), 8)
    e.branch(e.is_below(following, count), top, done)
    e.place(done)


def _query_form(instruction: Instruction) -> OperandTypes:
    query, *types = instruction.parts[1:]
    if query not in _QUERIES:
        raise unsupported(instruction, f"it asks for one of .{', .'.join(_QUERIES)}")
    wanted = {"is_canceled": ["pred", "b128"], "get_first_ctaid": ["v4", "b32", "b128"]}.get(
        query, ["b32", "b128"]
    )
    if types != wanted:
        raise unsupported(instruction, f"of .{query} the types are .{'.'.join(wanted)}")
    return OperandTypes((types[-2],) * (4 if "v4" in types else 1), ("b128",))


@pure("clusterlaunchcontrol.query_cancel", form=_query_form, ptx="8.6", arch="sm_100")
def query_cancel(e: Emitter, instruction: Instruction, response: Value) -> Value | tuple[Value, ...]:
    """Whether a response names a canceled cluster, or the place of that cluster's first block in the grid."""
    words = [e.resize(e.op("lshr", response, 32 * i), "i32", False) for i in range(4)]
    query = instruction.parts[1]
    if query == "is_canceled":
        return e.differs(words[3], 0)
    if query == "get_first_ctaid":  # of the fourth element the manual says nothing
        return tuple(words)
    return words[_QUERIES[query]]


@effect("membar", has_result=False, is_fence=True, ptx="1.4")
@effect("fence", has_result=False, is_fence=True, ptx="6.0", arch="sm_70")
@effect("membar.proxy", has_result=False, is_fence=True, ptx="7.5", arch="sm_60")
@effect("fence.proxy", has_result=False, is_fence=True, ptx="7.5", arch="sm_70")
def fence(e: Context, instruction: Instruction) -> None:
    """Order among accesses: every fence orders all of them."""
    words = frozenset(instruction.parts)
    if any("fabric" in word for word in words):
        raise unsupported(
            instruction, "a fence of the fabric's proxy is for newer GPUs than the emulator's sm_90"
        )
    known = frozenset().union(*_FENCES[instruction.opcode])
    if bad := sorted(words - known):
        raise unsupported(instruction, f".{bad[0]} is not supported here")
    if words not in _FENCES[instruction.opcode] or len(words) != len(instruction.parts):
        raise unsupported(
            instruction, "there is no such fence: it names a scope, or a proxy, or what it is limited to"
        )
    operands = instruction.operands
    if _MAPS in words and "release" not in words and operands:
        check_operand_count(instruction, 2)
        if not isinstance(operands[0], Address) or operands[1] != Immediate(_MAP_BYTES):
            raise unsupported(instruction, f"it takes the address of a map, and {_MAP_BYTES}")
    else:
        check_operand_count(instruction, 2 if {_MAPS, "acquire"} <= words else 0)
    e.line("fence seq_cst")
