"""Loads, stores, atomics, and address-space conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import Unsupported
from .memory import BASES, WINDOW_BITS, WINDOWS, BadAddress, Space
from .numerics import add_f32, add_odd, decode, encode, format_of
from .operands import Reader
from .ptx_types import UNSIGNED, Array, Type, type_of
from .registry import Operation, Threads, allow, expect, last_type, operation, types_in
from .syntax import Address, Instruction, Operand, Symbol, Vector

if TYPE_CHECKING:
    from .machine import Machine

SPACES = ("global", "shared", "local", "const", "param")
# Hints and orderings: blocks run one at a time and each instruction completes at once, so none changes a
# result.
HINTS = {
    *("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "volatile", "weak", "relaxed", "acquire", "release"),
    *("acq_rel", "sc", "cta", "cluster", "gpu", "sys", "unified", "uni", "mmio", "sync"),
    *("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"),
    *("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"),
    *("L2::evict_first", "L2::evict_last", "L2::evict_normal"),
}


def space_name(inst: Instruction) -> str:
    """The state space among the modifiers; '' is generic."""
    for modifier in inst.modifiers:
        name, _, where = modifier.partition("::")
        if name in SPACES:
            if where == "cluster":
                raise Unsupported(f"modifier .{modifier}")
            return name
    return ""


class Access:
    """Typed access to the memory one operand addresses: a fixed space, or generic."""

    def __init__(self, m: Machine, space: str, operand: Operand) -> None:
        self.m = m
        self.address = m.operands.address(operand)
        self.spaces: dict[str, Space] = {
            "global": m.global_memory,
            "shared": m.shared,
            "local": m.local,
            "const": m.constants,
            "param": m.parameters,
        }
        if space == "param" and self.in_frame(operand):
            space = "local"
        self.space = self.spaces[space] if space else None

    def in_frame(self, operand: Operand) -> bool:
        """Whether a parameter belongs to a device function or a call, and so lives in the local frame."""
        if isinstance(operand, Address) and isinstance(operand.base, Symbol):
            return self.m.address_of(operand.base.name)[0] == "local"
        return not self.m.binding.function.entry

    def pieces(self, addresses: Array, g: Threads) -> list[tuple[Space, Array, Array, Any]]:
        """Generic addresses by window: (space, its addresses, their positions, their threads)."""
        windows = addresses >> np.uint64(WINDOW_BITS)
        first = int(windows[0])
        found = []
        members = self.m.members(g)
        for window in [first] if (windows == first).all() else np.unique(windows).tolist():
            name = next((n for n, w in WINDOWS.items() if w == window), "")
            positions = np.flatnonzero(windows == window)
            threads = g if len(positions) == len(addresses) else members[positions]
            if name not in self.spaces:
                raise BadAddress(0, int(addresses[positions[0]]), "is in no address window", threads)
            inside = addresses[positions]
            if name in ("shared", "local"):
                inside = inside - np.uint64(BASES[name])
            found.append((self.spaces[name], inside, positions, threads))
        return found

    def load(self, g: Threads, width: int, lanes: int) -> list[Array]:
        """``lanes`` consecutive unsigned values of ``width`` bytes per thread."""
        addresses = self.address(g)
        if self.space is not None:
            return read_lanes(self.space, addresses, width, lanes, g)
        pieces = self.pieces(addresses, g)
        if len(pieces) == 1:
            return read_lanes(pieces[0][0], pieces[0][1], width, lanes, g)
        result = [np.zeros(len(addresses), UNSIGNED[8 * width]) for _ in range(lanes)]
        for space, inside, positions, threads in pieces:
            for lane, values in enumerate(read_lanes(space, inside, width, lanes, threads)):
                result[lane][positions] = values
        return result

    def store(self, g: Threads, values: list[Array], width: int) -> None:
        """The reverse of load."""
        addresses = self.address(g)
        if self.space is not None:
            write_lanes(self.space, addresses, width, values, g)
            return
        for space, inside, positions, threads in self.pieces(addresses, g):
            parts = [v if v.shape[0] == 1 else v[positions] for v in values]
            write_lanes(space, inside, width, parts, threads)


def read_lanes(space: Space, addresses: Array, width: int, lanes: int, g: Threads) -> list[Array]:
    """Gather; the whole vector must be aligned to its size."""
    index = (space.locate(addresses, width * lanes, g) // np.uint64(width)).view(np.int64)
    view = space.views[width]
    return [view[index + lane] if lane else view[index] for lane in range(lanes)]


def write_lanes(space: Space, addresses: Array, width: int, values: list[Array], g: Threads) -> None:
    """Scatter; if several threads hit one address the last wins (PTX lets any one win)."""
    index = (space.locate(addresses, width * len(values), g) // np.uint64(width)).view(np.int64)
    view = space.views[width]
    for lane, value in enumerate(values):
        view[index + lane if lane else index] = value


def lanes_of(inst: Instruction) -> int:
    """Vector length from .v2, .v4 or .v8."""
    return next((int(x[1:]) for x in inst.modifiers if x in ("v2", "v4", "v8")), 1)


def parts_of(operand: Operand, lanes: int) -> list[Operand]:
    """The registers of a vector operand."""
    parts: list[Operand] = list(operand.items) if isinstance(operand, Vector) else [operand]
    if len(parts) != lanes:
        raise Unsupported(f"{len(parts)} registers for {lanes} values")
    return parts


def memory_type(inst: Instruction) -> Type:
    """The type of each element: plain bits, but signed integers keep their sign to extend."""
    kind = last_type(inst)
    return kind if kind.family == "s" else kind.raw


@operation("ld", "ldu")
def load(m: Machine, inst: Instruction) -> Operation:
    """``ld{.space}{.vec}.type d, [a]``."""
    allow(inst, *HINTS, "v2", "v4", "v8", *SPACES, "shared::cta", "param::entry", "param::func")
    expect(inst.operands, 2, 3)
    kind, lanes = memory_type(inst), lanes_of(inst)
    access = Access(m, space_name(inst), inst.operands[1])
    writers = [m.operands.write(part, kind) for part in parts_of(inst.operands[0], lanes)]
    width, dtype = kind.bits // 8, kind.dtype

    def run(g: Threads) -> None:
        for write, value in zip(writers, access.load(g, width, lanes), strict=True):
            write(g, value.view(dtype))

    return run


@operation("st")
def store(m: Machine, inst: Instruction) -> Operation:
    """``st{.space}{.vec}.type [a], b``."""
    allow(inst, *HINTS, "v2", "v4", "v8", *SPACES, "shared::cta", "param::func")
    expect(inst.operands, 2, 3)
    space = space_name(inst)
    if space == "const":
        raise Unsupported("a store to constant memory")
    kind, lanes = last_type(inst).raw, lanes_of(inst)
    access = Access(m, space, inst.operands[0])
    readers = [m.operands.read(part, kind) for part in parts_of(inst.operands[1], lanes)]
    width = kind.bits // 8
    return lambda g: access.store(g, [read(g) for read in readers], width)


@operation(
    "membar",
    "fence",
    "prefetch",
    "prefetchu",
    "nanosleep",
    "pragma",
    "applypriority",
    "discard",
    "griddepcontrol",
)
def nothing(m: Machine, inst: Instruction) -> Operation:
    """Orderings and hints: no effect on results here."""
    return lambda g: None


# -- atomics ---------------------------------------------------------------------------------------


def f16_add(old: Array, new: Array, kind: Type) -> Array:
    """One rounding to the 16-bit format."""
    fmt = format_of(kind)
    return encode(add_odd(decode(old, fmt), decode(new, fmt)), fmt)


def unsigned_inc(old: Array, limit: Array) -> Array:
    """Up by one, from the limit to zero."""
    return np.where(old >= limit, np.zeros_like(old), old + np.ones_like(old))


def unsigned_dec(old: Array, limit: Array) -> Array:
    """Down by one, from zero or above the limit to the limit."""
    return np.where((old == 0) | (old > limit), limit, old - np.ones_like(old))


def atomic_function(name: str, kind: Type) -> Callable[[Array, Array], Array]:
    """From (old bits, operand bits) to new bits."""
    raw = UNSIGNED[kind.bits]
    if name == "add" and kind.is_float and kind.bits == 16:
        return lambda old, new: f16_add(old, new, kind)
    if name == "add" and kind.name == "f32":
        return lambda old, new: add_f32(old.view(np.float32), new.view(np.float32)).view(raw)
    if name in ("inc", "dec"):
        return unsigned_inc if name == "inc" else unsigned_dec
    if name == "exch":
        return lambda old, new: new
    table: dict[str, Callable[[Array, Array], Array]] = {
        "add": np.add, "min": np.minimum, "max": np.maximum,
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }  # fmt: skip
    if name not in table or (kind.family == "f" and (name != "add" or kind.bits != 64)):
        raise Unsupported(f"atomic .{name} of .{kind.name}")
    function, dtype = table[name], kind.dtype
    return lambda old, new: function(old.view(dtype), new.view(dtype)).view(raw)


def turns(index: Array) -> list[Array]:
    """Positions in rounds: in each round every place occurs once, the earlier positions in earlier rounds."""
    count = len(index)
    order = np.argsort(index, kind="stable")
    fresh = np.ones(count, bool)
    fresh[1:] = index[order][1:] != index[order][:-1]
    rank = np.arange(count) - np.maximum.accumulate(np.where(fresh, np.arange(count), 0))
    rounds = order[np.argsort(rank, kind="stable")]
    return np.split(rounds, np.cumsum(np.bincount(rank))[:-1])


class Atomic:
    """atom and red: threads that hit the same place take turns in thread order."""

    def __init__(self, m: Machine, inst: Instruction, address: Operand, kind: Type, lanes: int) -> None:
        self.access = Access(m, space_name(inst), address)
        self.width, self.lanes = kind.bits // 8, lanes * kind.lanes

    def places(self, g: Threads) -> list[tuple[Space, Array, Array]]:
        """(space, element index of the first lane, positions in the group)."""
        addresses = self.access.address(g)
        size = self.width * self.lanes
        if self.access.space is not None:
            pieces = [(self.access.space, addresses, np.arange(len(addresses)), g)]
        else:
            pieces = self.access.pieces(addresses, g)
        return [
            (space, (space.locate(inside, size, threads) // np.uint64(self.width)).view(np.int64), positions)
            for space, inside, positions, threads in pieces
        ]

    def run(self, g: Threads, count: int, change: Callable[[int, Array, Array], Array]) -> list[Array]:
        """Apply ``change(lane, old values, positions)``; the old values of each lane."""
        old = [np.zeros(count, UNSIGNED[8 * self.width]) for _ in range(self.lanes)]
        for space, index, positions in self.places(g):
            view = space.views[self.width]
            for turn in turns(index):
                for lane in range(self.lanes):
                    values = view[index[turn] + lane]
                    old[lane][positions[turn]] = values
                    view[index[turn] + lane] = change(lane, values, positions[turn])
        return old


def packed_readers(m: Machine, operand: Operand, kind: Type, lanes: int) -> list[Reader]:
    """One reader per scalar lane of a (possibly packed, possibly vector) operand, as bits."""
    raw = type_of(f"b{kind.bits}")
    if kind.lanes == 1:
        return [m.operands.read(part, raw) for part in parts_of(operand, lanes)]
    readers: list[Reader] = []
    for part in parts_of(operand, lanes):
        whole = m.operands.read(part, "b32")
        readers += [half_reader(whole, 0), half_reader(whole, 16)]
    return readers


def half_reader(whole: Reader, shift: int) -> Reader:
    """16 of the 32 bits that another reader gives."""
    return lambda g: (whole(g) >> np.uint32(shift)).astype(np.uint16)


@operation("atom", "red")
def atomic(m: Machine, inst: Instruction) -> Operation:
    """``atom.op.type d, [a], b{, c}`` and ``red.op.type [a], b``."""
    names = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
    allow(inst, *HINTS, *SPACES, *names, "noftz", "shared::cta", "v2", "v4", "v8")
    if "b128" in inst.modifiers or "async" in inst.modifiers:
        raise Unsupported("this atomic")
    name = next(x for x in inst.modifiers if x in names)
    kind, lanes = last_type(inst), lanes_of(inst)
    operands = list(inst.operands)
    target = operands.pop(0) if inst.name == "atom" else None
    body = Atomic(m, inst, operands[0], kind, lanes)
    sources = [packed_readers(m, operand, kind, lanes) for operand in operands[1:]]
    if len(sources) != (2 if name == "cas" else 1):
        raise Unsupported(f"{len(inst.operands)} operands")
    function = None if name == "cas" else atomic_function(name, kind)
    writers = [] if target is None else [m.operands.write(part, kind.raw) for part in parts_of(target, lanes)]

    def run(g: Threads) -> None:
        count = m.count(g)
        values = [[np.broadcast_to(read(g), (count,)) for read in readers] for readers in sources]

        def change(lane: int, old: Array, positions: Array) -> Array:
            new = values[0][lane][positions]
            if function is not None:
                return function(old, np.ascontiguousarray(new))
            return np.where(old == new, values[1][lane][positions], old)

        old = body.run(g, count, change)
        for number, write in enumerate(writers):
            if kind.lanes == 1:
                write(g, old[number])
            else:
                low, high = (old[2 * number + half].astype(np.uint32) for half in range(2))
                write(g, low | high << np.uint32(16))

    return run


# -- addresses -------------------------------------------------------------------------------------


@operation("cvta")
def convert_address(m: Machine, inst: Instruction) -> Operation:
    """``cvta.space.u64`` makes an address generic, ``cvta.to.space.u64`` the reverse."""
    allow(inst, "to", *SPACES, "shared::cta", "param::entry")
    expect(inst.operands, 2)
    space, kind = space_name(inst), types_in(inst)[-1]
    read, write = m.operands.read(inst.operands[1], kind), m.operands.write(inst.operands[0], kind)
    if space not in ("shared", "local"):
        return lambda g: write(g, read(g))
    base = np.array([BASES[space]]).astype(kind.dtype)
    if "to" in inst.modifiers:
        return lambda g: write(g, read(g) - base)
    return lambda g: write(g, read(g) + base)


@operation("isspacep")
def is_space(m: Machine, inst: Instruction) -> Operation:
    """``isspacep.space p, a``."""
    allow(inst, *SPACES, "shared::cta", "param::entry")
    expect(inst.operands, 2)
    read, write = m.operands.read(inst.operands[1], "u64"), m.operands.write(inst.operands[0], "pred")
    window = np.uint64(WINDOWS[space_name(inst)])
    return lambda g: write(g, read(g) >> np.uint64(WINDOW_BITS) == window)
