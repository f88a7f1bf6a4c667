"""One row: what is known of an operation of PTX, whoever asks. Data, and small functions of the instruction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tilewise.emulator.ptx.syntax import Instruction

__all__ = ["Access", "BarrierUse", "GroupUse", "LaneRule", "MbarrierUse", "OperandTypes", "Operation"]


@dataclass(frozen=True, slots=True)
class OperandTypes:
    """The PTX types of an instruction's results and sources."""

    results: tuple[str, ...]
    sources: tuple[str, ...]


# How a result differs from lane to lane.
LaneRule = Literal[
    "as sources",  # the same in all lanes if the sources are
    "own",  # each lane has its own
    "uniform",
    "loaded",  # what is at the lanes' addresses
    "moved",  # the source itself
    "address",  # the source, an address, and the start of a window
    "shuffled",  # another lane's source
    "voted",  # one for all the lanes that the membermask names
    "matched",  # the lanes with this lane's source
    "sum",
    "difference",
    "product",
    "product and sum",
    "shifted left",
    "shifted right",
    "and",
    "or",
    "xor",
    "converted",
    "selected",
    "compared",
]


@dataclass(frozen=True, slots=True)
class Access:
    """Memory that every running lane accesses at an address of its own."""

    action: Literal["load", "store", "atomic", "copy", "fill"]  # a copy reads what a fill writes
    operand: int  # the address
    space: Literal["", "global", "shared"] = ""  # "": the one that the instruction says
    rows: bool = False  # whether it is 16 bytes, a row of a matrix; else elements of the instruction's type
    size: Callable[[Instruction], int] | None = None  # bytes, where it is no type that says how many


@dataclass(frozen=True, slots=True)
class BarrierUse:
    """What an operation does at a barrier of threads."""

    scope: Literal["block", "cluster"]
    arrives: bool = True
    waits: bool = True
    number: int = 0  # the operand that says which barrier of the block it is
    votes: bool = False  # whether the threads combine predicates there


@dataclass(frozen=True, slots=True)
class MbarrierUse:
    """What an operation does to an mbarrier."""

    act: Literal["make", "expect", "arrive", "arrive after copies", "ask", "inspect"]
    operand: int = 0  # its address


@dataclass(frozen=True, slots=True)
class GroupUse:
    """What an operation does with groups of asynchronous operations: it closes one, or waits for some."""

    act: Literal["commit", "wait"]
    of: Literal["copies", "bulk copies", "products"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Operation:
    """What is known of an operation. Defaults are those of arithmetic."""

    name: str  # as it is written: the opcode and the words that make it an operation of its own

    # Its lowering. A pure one has a form and computes; others emit code; at some a warp may stop.
    form: Callable[[Instruction], OperandTypes] | None = None
    compute: Callable[..., Any] | None = None  # (emitter, instruction, *sources) → result(s)
    emit: Callable[[Any, Instruction], None] | None = None  # (context, instruction)
    wait: Callable[[Any, Instruction], Any] | None = None  # (context, instruction) → answer

    # Operands and results.
    has_result: bool = True  # whether its first operand is a destination
    adds_to_result: bool = False  # whether it reads its destination too
    lanes: LaneRule = "as sources"

    # Memory.
    accesses: tuple[Access, ...] = ()  # of lanes one by one; of tiles and bulk copies there are none
    bulk_copy: str | Callable[[Instruction], str] = ""  # the kind of copy that a unit of its own performs
    asynchronous: bool = False  # whether it may complete after instructions behind it
    is_fence: bool = False
    changes: bool = False  # whether it changes what others may see: memory, output, copies in flight
    polls: bool = False  # whether threads run it over and over until others have done something

    # Threads together.
    exchanges: bool = False  # whether lanes, those of the membermask (the last operand), swap values
    waits_for: Literal["", "warp", "warpgroup", "block", "cluster", "launch"] = ""
    gathers: Literal["", "always", "where aligned"] = ""  # whether all lanes of a warp run it together
    barrier: BarrierUse | None = None
    mbarrier: MbarrierUse | None = None
    group: GroupUse | None = None
    multiplies_matrices: bool = False
    launches_dependents: bool = False  # whether the next launch may begin once it has run

    # Since when there is it.
    ptx: str = ""  # the version; "" where that is not known
    arch: str = ""  # the least one; "": any

    # What follows from the above.
    is_pure: bool = field(init=False)  # whether it computes results, lane by lane, and nothing else
    is_lowered: bool = field(init=False)
    is_atomic: bool = field(init=False)
    returns_old: bool = field(init=False)  # whether it is atomic, and its result is what was in memory
    plain_access: Access | None = field(init=False)  # of a load or store of elements
    loads: bool = field(init=False)  # whether it is a plain load
    stores: bool = field(init=False)  # whether it is a plain store

    def __post_init__(self) -> None:
        first = self.accesses[0] if len(self.accesses) == 1 else None
        plain = first if first and first.action in ("load", "store") and not first.rows else None
        for name, value in (
            ("is_pure", self.compute is not None),
            ("is_lowered", any(lower is not None for lower in (self.compute, self.emit, self.wait))),
            ("is_atomic", first is not None and first.action == "atomic"),
            ("returns_old", first is not None and first.action == "atomic" and self.has_result),
            ("plain_access", plain),
            ("loads", plain is not None and plain.action == "load"),
            ("stores", plain is not None and plain.action == "store"),
        ):
            object.__setattr__(self, name, value)

    def copy_kind(self, instruction: Instruction) -> str:
        """Return the kind of a bulk copy; "" for any other operation."""
        return self.bulk_copy if isinstance(self.bulk_copy, str) else self.bulk_copy(instruction)

    def gathers_lanes(self, instruction: Instruction) -> bool:
        """Whether all lanes of a warp have to come to an instruction before it runs."""
        return self.gathers == "always" or (bool(self.gathers) and "aligned" in instruction.parts)
