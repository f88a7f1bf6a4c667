"""Reading and writing operands: each operand becomes a function of the group of threads."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import Unsupported
from .memory import BASES
from .ptx_types import SIGNED, UNSIGNED, Array, Type, register_bits, type_of
from .registry import Threads
from .syntax import Address, Immediate, Not, Operand, Register, Sink, Special, Symbol

if TYPE_CHECKING:
    from .machine import Machine

Reader = Callable[[Threads], Array]
Writer = Callable[[Threads, Any], None]


def constant_bits(operand: Immediate, kind: Type) -> int:
    """The bits of a literal used as a value of ``kind`` (one lane, or all lanes of a packed type)."""
    value = operand.value
    if kind.family == "f" and kind.lanes == 1 and operand.kind != "int":
        source: float = (
            struct.unpack("<f", value.to_bytes(4, "little"))[0]
            if operand.kind == "f32"
            else struct.unpack("<d", value.to_bytes(8, "little"))[0]
        )
        if operand.kind != f"f{kind.bits}":
            with np.errstate(all="ignore"):
                return int(np.array([source]).astype(kind.dtype).view(UNSIGNED[kind.bits])[0])
    elif kind.family == "f" and kind.bits >= 32:
        with np.errstate(all="ignore"):
            return int(np.array([value]).astype(kind.dtype).view(UNSIGNED[kind.bits])[0])
    return value & ((1 << kind.total) - 1)


def constant(bits: int, kind: Type) -> Array:
    """An array of one element (so that arithmetic on it wraps silently) with these bits."""
    raw = np.array([bits & ((1 << kind.total) - 1)], UNSIGNED[kind.total])
    if kind.family == "p":
        return raw.astype(np.bool_)
    found = raw.view(kind.dtype)
    return found.reshape(1, kind.lanes) if kind.lanes > 1 else found


def typed_view(raw: Array, width: int, kind: Type) -> Array:
    """The low ``kind.total`` bits of a register file row of ``width``-bit values, as ``kind``."""
    if kind.total > width:
        raise Unsupported(f"a .{kind.name} in a register of {width} bits")
    view = raw.view(kind.dtype)
    if kind.lanes > 1:
        return view.reshape(len(raw), -1)[:, : kind.lanes]
    # NOTE: little-endian: the low part of a wider register is the first of its pieces.
    return view[:: width // kind.bits]


class Operands:
    """The part of the machine that turns operands into readers and writers."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def read(self, operand: Operand, kind: Type | str) -> Reader:
        """A function from a group to the operand's values as ``kind``."""
        kind = type_of(kind) if isinstance(kind, str) else kind
        if isinstance(operand, Register):
            return self.read_register(operand, kind)
        if isinstance(operand, Immediate):
            value = constant(constant_bits(operand, kind), kind)
            return lambda g: value
        if isinstance(operand, Special):
            return self.read_special(operand, kind)
        if isinstance(operand, Symbol):
            return self.read_symbol(operand, kind)
        if isinstance(operand, Not) and kind.family == "p":
            inner = self.read(operand.operand, kind)
            return lambda g: ~inner(g)
        if isinstance(operand, Address) and isinstance(operand.base, Symbol) and not operand.more:
            return self.read_symbol(Symbol(operand.base.name, operand.base.offset + operand.offset), kind)
        raise Unsupported(f"operand {operand} as .{kind.name}")

    def read_register(self, operand: Register, kind: Type) -> Reader:
        raw = self.machine.row(operand)
        width = register_bits(operand.type)
        if (width == 1) != (kind.family == "p"):
            raise Unsupported(f"register {operand.name} (.{operand.type}) as .{kind.name}")
        if width == 1:
            return raw.__getitem__
        return typed_view(raw, width, kind).__getitem__

    def read_special(self, operand: Special, kind: Type) -> Reader:
        source = self.machine.special(operand.name)
        if callable(source):
            return lambda g: source(g).astype(kind.dtype)
        values: Array = source.astype(kind.dtype)
        return values.__getitem__

    def read_symbol(self, operand: Symbol, kind: Type) -> Reader:
        space, address = self.machine.address_of(operand.name)
        address += operand.offset
        if space != "local":
            value = constant(address, kind)
            return lambda g: value
        pointers = self.machine.local_pointer
        return lambda g: (pointers[g] + np.uint64(address)).astype(kind.dtype)

    def write(self, operand: Operand, kind: Type | str) -> Writer:
        """A function that stores values of ``kind`` into a destination, extending them if it is wider."""
        kind = type_of(kind) if isinstance(kind, str) else kind
        if isinstance(operand, Sink):
            return lambda g, value: None
        if not isinstance(operand, Register):
            raise Unsupported(f"destination {operand}")
        raw = self.machine.row(operand)
        width = register_bits(operand.type)
        if (width == 1) != (kind.family == "p"):
            raise Unsupported(f"register {operand.name} (.{operand.type}) as .{kind.name}")
        if width == 1 or width == kind.total:
            return (raw if width == 1 else typed_view(raw, width, kind)).__setitem__
        if kind.total > width:
            raise Unsupported(f"a .{kind.name} in a register of {width} bits")
        view = raw.view(SIGNED[width] if kind.family == "s" else UNSIGNED[width])
        narrow = kind.dtype if kind.family == "s" else UNSIGNED[kind.total]

        def extended(g: Threads, value: Any) -> None:
            view[g] = np.ascontiguousarray(value, kind.dtype).view(narrow).reshape(-1).astype(view.dtype)

        return extended

    def address(self, operand: Operand) -> Reader:
        """A function from a group to the uint64 addresses of ``[base + offset]``."""
        if not isinstance(operand, Address) or operand.more:
            raise Unsupported(f"address {operand}")
        if not isinstance(operand.base, Register):
            base = operand.base
            if isinstance(base, Immediate):
                base = Immediate("int", base.value + operand.offset)
            elif isinstance(base, Symbol):
                base = Symbol(base.name, base.offset + operand.offset)
            read = self.read(base, "u64")
            machine = self.machine

            def spread(g: Threads) -> Array:
                return np.broadcast_to(read(g), (machine.count(g),))

            return spread
        width = register_bits(operand.base.type)
        read = self.read(operand.base, f"u{width}")
        offset = np.array([operand.offset & ((1 << width) - 1)], UNSIGNED[width])
        if width == 64:
            return (lambda g: read(g) + offset) if operand.offset else read
        # NOTE: a 32-bit address wraps at 32 bits, as the register would.
        return lambda g: (read(g) + offset).astype(np.uint64)


def shared_address(machine: Machine, addresses: Array) -> Array:
    """Shared-space offsets of addresses that may be generic."""
    base = np.uint64(BASES["shared"])
    return np.where(addresses >= base, addresses - base, addresses)
