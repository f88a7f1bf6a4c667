"""What a kernel's code tells the checker before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewise.emulator.check_layout import BYTES, MIXED, SEVERAL, Action
from tilewise.emulator.ptx.operands import reads, writes
from tilewise.emulator.ptx.syntax import Address, Immediate, Instruction, Label, Register

__all__ = [
    "STRONG_WORDS",
    "blocks_taken",
    "constants_in",
    "is_doubtful",
    "is_ordering",
    "of_cluster",
    "place_in",
    "uses_of",
    "words_of",
]

STRONG_WORDS = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}
_ORDERED = {"acquire", "release", "acq_rel", "sc"}
_BLOCK, _SIZE_OF_BLOCK = "%at~", 4  # in ``malloc``: the register of a block, and where its size is put
_MOST_WORDS = 256  # of an access that is looked at word by word


def place_in(item: Instruction) -> tuple[str, int]:
    """The register and the offset of an address, such as it stands there."""
    address = next((operand for operand in item.operands if isinstance(operand, Address)), None)
    base = address.base if address else None
    return (base.name, address.offset) if address and isinstance(base, Register) else ("", 0)


def blocks_taken(body: Iterable[Instruction | Label]) -> dict[str, int]:
    """By the register that has the block which a ``malloc`` found: the line of its call."""
    found, line = {}, 0
    for item in body:
        if isinstance(item, Instruction):
            line = item.line or line
            register, offset = place_in(item)
            if (
                not item.line
                and item.opcode == "st"
                and offset == _SIZE_OF_BLOCK
                and register.startswith(_BLOCK)
            ):
                found[register] = line
    return found


def constants_in(body: Iterable[Instruction | Label]) -> set[str]:
    """The registers to which nothing but one constant is moved."""
    found: dict[str, int | str] = {}
    others: set[str] = set()
    for item in body:
        if not isinstance(item, Instruction):
            continue
        for register in writes(item):
            source = item.operands[-1] if item.opcode == "mov" else None
            if (
                isinstance(source, Immediate)
                and found.setdefault(register.name, source.value) == source.value
            ):
                continue
            others.add(register.name)
    return set(found) - others


def uses_of(body: Iterable[Instruction | Label]) -> dict[str, set[str]]:
    """By register: the opcodes of what reads it; "" for what makes an address of it."""
    found: dict[str, set[str]] = {}
    for item in body:
        if not isinstance(item, Instruction):
            continue
        for register in reads(item):
            found.setdefault(register.name, set()).add(item.opcode)
        for operand in item.operands:
            if isinstance(operand, Address) and isinstance(operand.base, Register):
                found.setdefault(operand.base.name, set()).add("")
    return found


def of_cluster(item: Instruction | None) -> bool:
    return item is not None and "cluster" in item.parts


def is_doubtful(item: Instruction) -> bool:
    return item.opcode == "st" and "shared::cluster" in item.parts and not STRONG_WORDS & set(item.parts)


def is_ordering(item: Instruction) -> bool:
    """Whether it orders other accesses, of its thread, to global memory or among all."""
    if item.opcode in ("membar", "fence"):
        aliases = {"alias", "tensormap::generic"} & {*item.parts} and {"acquire", "release", "acq_rel"} & {
            *item.parts
        }
        return "proxy" not in item.parts or bool(aliases)
    return item.opcode in ("atom", "red", "ld", "st") and bool(_ORDERED & set(item.parts))


def words_of(lanes: tuple[int, ...], size: int, action: Action) -> dict[int, tuple[int, int]] | None:
    """By word, counted from the lowest lane's: who accesses it, and which bytes; None if it is for the
    careful way."""
    low = min(lanes)
    found: dict[int, list[tuple[int, int]]] = {}
    for lane, start in enumerate(lanes):
        for word, bytes_ in _pieces(start - low, size):
            found.setdefault(word, []).append((lane, bytes_))
    result = {}
    for word, users in found.items():
        bytes_ = 0
        for _, part in users:
            bytes_ |= part
        alike = all(part == bytes_ for _, part in users)
        result[word] = (users[0][0] if len(users) == 1 else SEVERAL if alike else MIXED, bytes_)
    if action == Action.ATOMIC or len(result) > _MOST_WORDS:
        return None
    if action == Action.STORE and any(who >= SEVERAL or bytes_ != BYTES for who, bytes_ in result.values()):
        return None
    return result


def _pieces(start: int, size: int) -> Iterator[tuple[int, int]]:
    """The words of a stretch, and which of their bytes are in it."""
    at = start
    while at < start + size:
        within = at % 4
        length = min(4 - within, start + size - at)
        yield at // 4, ((1 << length) - 1) << within
        at += length
