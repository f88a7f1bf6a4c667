"""Functions of the run-time support, written with loops and conditions rather than labels and jumps.

``Routine`` is an emitter for one LLVM function, and ``routine`` declares one together with what writes its body:

    @routine("tw_sum", "i64")
    def sum_numbers(r: Routine, first: Ptr, count: I64) -> None:
        total = r.variable("i64", 0)
        with r.count(count) as i:
            total.add(r.element(first, i, "i64"))
        r.give(total.get())

In the body of another routine, ``sum_numbers(r, first, count)`` emits a call of it.

Only scalars: nothing here knows lanes, but for ``each_lane``, which goes over the bits of a mask.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeAlias

from tilewise.emulator.llvm.emit import NULL, Emitter, Value

__all__ = [
    "I32",
    "I64",
    "NULL",
    "POINTERS",
    "ZERO_I32",
    "ZERO_I64",
    "Declaration",
    "Loop",
    "MutableValue",
    "Ptr",
    "Routine",
    "join_modules",
    "routine",
]

# A parameter's annotation says its LLVM type.
Ptr: TypeAlias = Value
I32: TypeAlias = Value
I64: TypeAlias = Value

ZERO_I32, ZERO_I64 = Value("i32", "0"), Value("i64", "0")  # what parameters may be if they are not given
POINTERS = ("ctx", "worker", "block", "warp")  # that most routines take first


@dataclass(frozen=True, slots=True)
class MutableValue:
    """A variable of a routine: a stack slot, which LLVM keeps in a register."""

    routine: Routine
    type: str
    slot: str

    def get(self) -> Value:
        return self.routine.set(self.type, f"load {self.type}, ptr {self.slot}")

    def put(self, value: Value | int) -> None:
        self.routine.line(f"store {self.routine.fixed(value, self.type)}, ptr {self.slot}")

    def add(self, value: Value | int) -> None:
        self.put(self.routine.op("add", self.get(), value))


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop being written: ``leave`` and ``again`` jump to its end and its top."""

    routine: Routine
    top: str
    end: str

    def leave(self, condition: Value) -> None:
        self.routine.branch(condition, self.end)

    def again(self, condition: Value) -> None:
        self.routine.branch(condition, self.top)


class Routine(Emitter):
    """A function of the run-time support being written, with loops and conditions."""

    attributes = "noinline"  # as LLVM calls them

    def __init__(self, name: str, result: str, /, **parameters: str) -> None:
        super().__init__()
        self.name, self.result = name, result
        self.parameters = {key: Value(type_, f"%{key}", self) for key, type_ in parameters.items()}
        self._named = dict(self.parameters)

    def __getitem__(self, name: str) -> Value:
        return self._named[name]

    def __setitem__(self, name: str, value: Value) -> None:
        """Name a value, for what is written next, as parameters have names."""
        self._named[name] = value

    def text(self) -> str:
        """Return the function's text; one that comes to its end returns nothing, or 0 where it has an i32 to return."""
        if not self._ended and self.result in ("void", "i32"):
            self.give(None if self.result == "void" else 0)
        elif not self._ended:
            self.line("unreachable")  # behind a loop that is never left
        listed = ", ".join(map(str, self.parameters.values()))
        head = f"define {self.result} @{self.name}({listed}) {self.attributes} {{"
        return "\n".join([head, "entry:", *self.allocas, *self.lines, "}"])

    def define_in(self, module: Emitter) -> None:
        """Define the routine in another module, as one of its own functions, with what it needs itself."""
        own = {self.name: self.text().replace("define ", "define internal ", 1)}
        for name, text in (self.definitions | own).items():
            module.definitions.setdefault(name, text)

    # -- values ---------------------------------------------------------------------------------
    def pointers(self) -> tuple[Value, Value, Value, Value]:
        """Return the parameters ``POINTERS``, to be passed on."""
        return self["ctx"], self["worker"], self["block"], self["warp"]

    def both(self, *conditions: Value) -> Value:
        """Return whether all conditions hold; all are evaluated."""
        return reduce(partial(self.op, "and"), conditions)

    def either(self, *conditions: Value) -> Value:
        """Return whether some condition holds; all are evaluated."""
        return reduce(partial(self.op, "or"), conditions)

    def negation(self, condition: Value) -> Value:
        return self.op("xor", condition, Value("i1", "true"))

    def has_any(self, value: Value, bits: Value | int) -> Value:
        """Return whether a number has some of these bits."""
        return self.differs(self.op("and", value, bits), 0)

    def narrow(self, value: Value) -> Value:
        """Return the low 32 bits of a number."""
        return self.cast("trunc", value, "i32")

    def variable(self, type_: str, start: Value | int) -> MutableValue:
        made = MutableValue(self, type_, self.alloca(type_))
        made.put(start)
        return made

    # -- memory ---------------------------------------------------------------------------------
    def reserve(self, type_: str, align: int = 0) -> Value:
        """Return the pointer to memory of the routine's own."""
        return Value("ptr", self.alloca(type_, align))

    def at(self, pointer: Value, by: Value | int) -> Value:
        return Value("ptr", self.offset(pointer.ref, by if isinstance(by, int) else self.wide(by)))

    def item(self, pointer: Value, index: Value, size: int) -> Value:
        """Return the pointer to an element of an array."""
        return self.at(pointer, self.op("mul", self.wide(index), size))

    def element(self, pointer: Value, index: Value, type_: str) -> Value:
        """Return an element of an array of integers."""
        return self.field(self.item(pointer, index, int(type_[1:]) // 8), 0, type_)

    def field(self, pointer: Value, offset: int, type_: str, align: int = 1) -> Value:
        return self.load(type_, self.offset(pointer.ref, offset), align)

    def put(self, pointer: Value, offset: int, value: Value | int, align: int = 1) -> None:
        """Write a field; a plain number is an i32."""
        self.store(self.fixed(value, "i32"), self.offset(pointer.ref, offset), align)

    def put_fields(self, pointer: Value, fields: Mapping[int, Value | int]) -> None:
        """Write fields, by their offsets."""
        for offset, value in fields.items():
            self.put(pointer, offset, value)

    def change(self, pointer: Value, offset: int, name: str, by: Value | int, type_: str = "i32") -> Value:
        """Apply an operation to a field; return its new value."""
        value = self.op(name, self.field(pointer, offset, type_), by)
        self.put(pointer, offset, value)
        return value

    def load_atomic(self, pointer: Value, type_: str, order: str) -> Value:
        return self.set(type_, f"load atomic {type_}, {pointer} {order}, align {int(type_[1:]) // 8}")

    def store_atomic(self, pointer: Value, value: Value, order: str) -> None:
        self.line(f"store atomic {value}, {pointer} {order}, align {int(value.type[1:]) // 8}")

    def atomic(self, name: str, pointer: Value, value: Value, order: str) -> Value:
        """Apply an operation to memory in one step; return what was there."""
        return self.set(value.type, f"atomicrmw {name} {pointer}, {value} {order}")

    def swap_if(self, pointer: Value, old: Value, new: Value, order: str) -> tuple[Value, Value]:
        """Replace ``old`` in memory by ``new`` in one step; return what was there, and whether that was ``old``."""
        pair = self.set(f"{{ {old.type}, i1 }}", f"cmpxchg {pointer}, {old}, {new} {order} {order}")
        return self.set(old.type, f"extractvalue {pair}, 0"), self.set("i1", f"extractvalue {pair}, 1")

    def copy(self, target: Value, source: Value, size: Value | int) -> None:
        self._call_memory("llvm.memcpy.p0.p0.i64", target, source, size)

    def move(self, target: Value, source: Value, size: Value | int) -> None:
        """Copy memory that may overlap."""
        self._call_memory("llvm.memmove.p0.p0.i64", target, source, size)

    def fill(self, target: Value, byte: int, size: Value | int) -> None:
        self._call_memory("llvm.memset.p0.i64", target, self.const("i8", byte), size)

    def _call_memory(self, name: str, target: Value, given: Value, size: Value | int) -> None:
        self.call(name, "void", target, given, self.fixed(size, "i64"), self.const("i1", 0))  # not volatile

    # -- course ---------------------------------------------------------------------------------
    def give(self, value: Value | int | None = None) -> None:
        """Return from the routine."""
        self.line("ret void" if value is None else f"ret {self.fixed(value, self.result)}")

    def give_if(self, condition: Value, value: Value | int | None = None) -> None:
        """Return from the routine where a condition holds."""
        with self.when(condition):
            self.give(value)

    def give_unless_zero(self, answer: Value, result: int | None = None) -> None:
        """Return an answer that is not 0, or another result in its place."""
        self.give_if(self.differs(answer, 0), answer if result is None else result)

    @contextmanager
    def loop(self) -> Iterator[Loop]:
        """Write a loop that runs until ``leave``."""
        top, end = self.label("loop"), self.label("end")
        self.jump(top)
        self.place(top)
        yield Loop(self, top, end)
        if not self._ended:
            self.jump(top)
        self.place(end)

    @contextmanager
    def count(self, end: Value | int, start: Value | int = 0, step: int = 1) -> Iterator[Value]:
        """Write a loop from ``start`` up to, not including, ``end``; yield the 64-bit number."""
        number = self.variable("i64", start)
        last = self.fixed(end, "i64")
        with self.loop() as loop:
            now = number.get()
            loop.leave(self.compare("icmp sge", now, last))
            number.put(self.op("add", now, step))
            yield now

    @contextmanager
    def each_lane(self, mask: Value) -> Iterator[Value]:
        """Write a loop over the set bits of a mask, lowest first; yield the 32-bit lane number."""
        left = self.variable("i32", mask)
        with self.loop() as loop:
            rest = left.get()
            loop.leave(self.compare("icmp eq", rest, 0))
            left.put(self.op("and", rest, self.op("sub", rest, 1)))
            yield self.find_lowest(rest, True)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A function of the run-time support as others call it, and what writes its body."""

    name: str
    result: str
    context: tuple[str, ...]  # pointers that come first, and that routines hand on to one another
    write_body: Callable[..., None]

    @property
    def parameters(self) -> dict[str, str]:
        """The LLVM types of the parameters behind the context."""
        notes = self.write_body.__annotations__
        return {name: type_.lower() for name, type_ in notes.items() if name not in ("r", "return")}

    @property
    def defaults(self) -> dict[str, Value]:
        found = inspect.signature(self.write_body).parameters.items()
        return {name: item.default for name, item in found if item.default is not item.empty}

    def write(self) -> Routine:
        """Write the routine; it is of the class that the body's annotation of ``r`` names."""
        kind = self.write_body.__globals__[self.write_body.__annotations__["r"]]
        r: Routine = kind(self.name, self.result, **dict.fromkeys(self.context, "ptr"), **self.parameters)
        self.write_body(r, *(r[name] for name in self.parameters))
        return r

    def __call__(self, r: Routine, *given: Value | int, **named: Value | int) -> Value:
        """Emit a call; a plain number has its parameter's type.

        The context and the line of the PTX are the caller's own where they are not named.
        """
        types = {**dict.fromkeys(self.context, "ptr"), **self.parameters}
        if stray := named.keys() - types.keys():
            raise TypeError(f"{self.name} has no parameter {', '.join(sorted(stray))}")
        own = {name: r.parameters[name] for name in (*self.context, "line") if name in r.parameters}
        left = [name for name in self.parameters if name not in named and name != "line"]
        known = {**self.defaults, **own, **named, **dict(zip(left[: len(given)], given, strict=True))}
        return r.call(self.name, self.result, *(r.fixed(known[name], type_) for name, type_ in types.items()))


def routine(name: str, result: str, *context: str) -> Callable[[Callable[..., None]], Declaration]:
    """Declare a function of the run-time support: decorates what writes its body."""
    return partial(Declaration, name, result, context)


def join_modules(routines: Iterable[Routine]) -> str:
    """Join routines to one module, declaring the functions that none of them defines."""
    items = list(routines)
    there = {item.name for item in items}
    missing = {name: line for item in items for name, line in item.definitions.items() if name not in there}
    return "\n\n".join([*(item.text() for item in items), "\n".join(missing.values())]) + "\n"
