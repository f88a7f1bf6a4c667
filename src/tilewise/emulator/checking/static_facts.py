"""PTX of a kernel → facts that the checker uses: its allocations, constants, strong and ordering instructions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

from tilewise.emulator.check_layout import ACCESS, WHO, Action
from tilewise.emulator.operations.operands import reads, writes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Address, Immediate, Instruction, Register, Symbol

__all__ = [
    "STRONG_MODIFIERS",
    "address_of",
    "find_allocations",
    "find_constants",
    "find_uses",
    "is_cluster_scoped",
    "is_doubtful",
    "map_lanes_to_words",
    "orders_accesses",
]

STRONG_MODIFIERS = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}
_ORDERING = {"acquire", "release", "acq_rel", "sc"}
_BLOCK_REGISTER, _SIZE_OFFSET = "%at~", 4  # in ``malloc``: the register of a block, and where its size is put
_MOST_WORDS = 256  # of an access that the fast path checks


def address_of(item: Instruction) -> tuple[str, int]:
    """The register or variable and the offset of an instruction's address, as written; ("", 0) if it has none."""
    address = next((operand for operand in item.operands if isinstance(operand, Address)), None)
    if address is None:
        return "", 0
    base = address.base
    return base.name if base else "", address.offset + (base.offset if isinstance(base, Symbol) else 0)


def find_allocations(body: Iterable[Instruction]) -> dict[str, int]:
    """By the register that a ``malloc`` returns its block in: the line of the call."""
    found, line = {}, 0
    for item in body:
        line = item.line or line
        register, offset = address_of(item)
        puts_size = not item.line and operation_of(item).stores and offset == _SIZE_OFFSET
        if puts_size and register.startswith(_BLOCK_REGISTER):
            found[register] = line
    return found


def find_constants(body: Iterable[Instruction]) -> set[str]:
    """The registers that hold one constant wherever they are written."""
    found: dict[str, set[int | str | None]] = {}
    for item in body:
        for name in writes(item):
            source = item.operands[-1] if operation_of(item).lanes == "moved" else None
            value = source.value if isinstance(source, Immediate) else None
            found.setdefault(name, set()).add(value)
    return {name for name, values in found.items() if len(values) == 1 and None not in values}


def find_uses(body: Iterable[Instruction]) -> dict[str, set[str]]:
    """By register: the operations that read it; "" where it is the base of an address."""
    found: dict[str, set[str]] = {}
    for item in body:
        for name in reads(item):
            found.setdefault(name, set()).add(operation_of(item).name)
        for operand in item.operands:
            if isinstance(operand, Address) and isinstance(operand.base, Register):
                found.setdefault(operand.base.name, set()).add("")
    return found


def is_cluster_scoped(item: Instruction | None) -> bool:
    barrier = operation_of(item).barrier if item is not None else None
    return barrier is not None and barrier.scope == "cluster"


def is_doubtful(item: Instruction) -> bool:
    words = set(item.parts)
    return operation_of(item).stores and "shared::cluster" in words and not STRONG_MODIFIERS & words


def orders_accesses(item: Instruction) -> bool:
    """Whether it orders other accesses of its thread: a fence, or an access with acquire or release semantics."""
    operation, words = operation_of(item), set(item.parts)
    if operation.is_fence:
        aliases = {"alias", "tensormap::generic"} & words and {"acquire", "release", "acq_rel"} & words
        return "proxy" not in words or bool(aliases)
    return bool(operation.accesses) and bool(_ORDERING & words)


def map_lanes_to_words(
    lanes: tuple[int, ...], size: int, action: Action
) -> dict[int, tuple[int, int]] | None:
    """By word, from the lowest lane's on: its lane and bytes; None if it is not for the fast path."""
    low = min(lanes)
    found: dict[int, dict[int, int]] = {}  # by word, by lane: a bit for each byte
    for lane, start in enumerate(lanes):
        for at in range(start - low, start - low + size):
            users = found.setdefault(at // 4, {})
            users[lane] = users.get(lane, 0) | 1 << at % 4
    result = {}
    for word, users in found.items():
        who = WHO.SEVERAL if len({*users.values()}) == 1 else WHO.MIXED
        result[word] = (next(iter(users)) if len(users) == 1 else who, reduce(or_, users.values()))
    if action == Action.ATOMIC or len(result) > _MOST_WORDS:
        return None
    if action == Action.STORE and any(
        who >= WHO.SEVERAL or bytes_ != ACCESS.BYTES for who, bytes_ in result.values()
    ):
        return None
    return result
