"""Clusters of blocks: addresses of one another's shared memory, what a launch may depend on; fences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewise.emulator.layout import BLOCK, GENERIC_SHARED, RANK_SHIFT, WINDOW
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.tables import (
    check_operand_count,
    effect,
    refuse_other_forms,
    unsupported,
    waits,
)
from tilewise.emulator.ptx.syntax import Address, Immediate, Instruction, Register, Symbol

if TYPE_CHECKING:
    from tilewise.emulator.lowering.lower import Lowering

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
def _address(e: Lowering, instruction: Instruction, as_vector: bool) -> tuple[Value, bool]:
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
    return e.resize(e.read(source, type_, as_vector), "i64", False), generic


def _target(instruction: Instruction) -> Register:
    target = instruction.operands[0]
    if not isinstance(target, Register):
        raise unsupported(instruction, "its destination must be a register")
    return target


@effect("mapa", ptx="7.8", arch="sm_90")
def mapa(e: Lowering, instruction: Instruction) -> None:
    """Where the same variable lies in another block of the cluster.

    NOTE: of no such block, and of what is no shared memory, the result is an address at which every
    access faults: the instruction itself cannot fail.
    """
    check_operand_count(instruction, 3)
    shape = e.result_shape(instruction)
    address, generic = _address(e, instruction, shape is None)
    given = e.resize(e.read(instruction.operands[2], "u32", shape is None), "i64", False)
    rank = e.intrinsic("llvm.umin", given, e.const(given, _RANKS - 1))
    if generic:
        away = e.op("sub", address, e.const(address, GENERIC_SHARED))
        inside = e.compare("icmp ult", away, e.const(away, WINDOW))
        rank = e.select(inside, rank, e.const(rank, _RANKS - 1))
    high = e.op("shl", e.op("add", rank, e.const(rank, 1)), e.const(rank, RANK_SHIFT))
    result = e.op("or", e.op("and", address, e.const(address, _OFFSET)), high)
    if generic:
        result = e.op("add", result, e.const(result, GENERIC_SHARED))
    type_ = instruction.parts[-1]
    e.write(_target(instruction), e.resize(result, f"i{type_[1:]}", False), type_, shape)


@effect("getctarank", ptx="7.8", arch="sm_90")
def getctarank(e: Lowering, instruction: Instruction) -> None:
    """The rank of the block whose shared memory an address names; any rank if it names none."""
    check_operand_count(instruction, 2)
    shape = e.result_shape(instruction)
    address, _ = _address(e, instruction, shape is None)
    number = e.op("and", e.op("lshr", address, e.const(address, RANK_SHIFT)), e.const(address, _RANKS))
    named = e.resize(e.op("sub", number, e.const(number, 1)), "i32", False)
    own = e.compare("icmp eq", number, e.const(number, 0))
    e.write(_target(instruction), e.select(own, _own_rank(e, named), named), "u32", shape)


def _own_rank(e: Lowering, like: Value) -> Value:
    rank = e.load("i32", e.offset("%block", BLOCK.RANK), 4)
    return e.splat(rank) if like.is_vector else rank


def in_own_block(e: Lowering, away: Value) -> Value:
    """Whether an address, less the start of the window of shared memory, is of the block's own."""
    number = e.op("lshr", away, e.const(away, RANK_SHIFT))
    own = e.op("add", e.resize(_own_rank(e, away), "i64", False), e.const(away, 1))
    none = e.compare("icmp eq", number, e.const(number, 0))
    return e.op("or", none, e.compare("icmp eq", number, own))


# -- what changes nothing here ----------------------------------------------------------------------------
@effect("setmaxnreg", has_result=False, ptx="8.0", arch="sm_90a")
def setmaxnreg(e: Lowering, instruction: Instruction) -> None:
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
def launch_dependents(e: Lowering, instruction: Instruction) -> None:
    """The next launch may begin. Here it does so later, and finds what this one wrote as if it had begun now."""
    check_operand_count(instruction, 0)
    if instruction.parts != ("launch_dependents",):
        raise unsupported(instruction, _GRIDS)


@waits("griddepcontrol.wait", has_result=False, waits_for="launch", ptx="7.8", arch="sm_90")
def await_launch(e: Lowering, instruction: Instruction) -> Value:
    """Wait for the end of the launch before: 0 if it has ended, 1 if the lanes are held up."""
    check_operand_count(instruction, 0)
    if instruction.parts != ("wait",):
        raise unsupported(instruction, _GRIDS)
    return e.call("tw_await_launch", "i32", *e.pointers(), e.mask())


@effect("membar", has_result=False, is_fence=True, ptx="1.4")
@effect("fence", has_result=False, is_fence=True, ptx="6.0", arch="sm_70")
@effect("membar.proxy", has_result=False, is_fence=True, ptx="7.5", arch="sm_60")
@effect("fence.proxy", has_result=False, is_fence=True, ptx="7.5", arch="sm_70")
def fence(e: Lowering, instruction: Instruction) -> None:
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
