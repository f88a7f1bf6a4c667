"""LLVM text, a line at a time. Knows LLVM and vectors of 32 lanes; knows nothing of PTX."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

__all__ = ["LANES", "NULL", "Emitter", "Results", "Value", "join", "suffix_of", "vector"]

LANES = 32
_ENDS = ("  br ", "  ret ", "  unreachable", "  switch ")  # lines that end a block


def _integer_operator(name: str, swapped: bool = False) -> Callable[[Value, Value | int], Value]:
    """Return the method of an operator, by which the emitter of one of its operands emits an operation."""

    def emit(self: Value, other: Value | int) -> Value:
        emitter = self.emitter or (other.emitter if isinstance(other, Value) else None)
        if emitter is None:
            raise TypeError(f"no emitter has made {self} or {other}")
        return emitter.op(name, other, self) if swapped else emitter.op(name, self, other)

    return emit


def _comparison(name: str) -> Callable[[Emitter, Value, Value | int], Value]:
    """Return the method that emits a comparison."""
    return lambda emitter, a, b: emitter.compare(f"icmp {name}", a, b)


@dataclass(slots=True, unsafe_hash=True)
class Value:
    """An LLVM value: its type, its name or constant, and what made it: there an operator emits its operation.

    NOTE: operators are those of unsigned integers. A constant of one function is made anew for another.
    """

    type: str
    ref: str
    emitter: Emitter | None = field(default=None, compare=False, repr=False)

    __add__, __radd__ = _integer_operator("add"), _integer_operator("add", True)
    __sub__, __rsub__ = _integer_operator("sub"), _integer_operator("sub", True)
    __mul__, __mod__ = _integer_operator("mul"), _integer_operator("urem")
    __floordiv__, __rfloordiv__ = _integer_operator("udiv"), _integer_operator("udiv", True)
    __and__, __or__, __xor__ = map(_integer_operator, ("and", "or", "xor"))
    __lshift__, __rlshift__ = _integer_operator("shl"), _integer_operator("shl", True)
    __rshift__, __rrshift__ = _integer_operator("lshr"), _integer_operator("lshr", True)

    @property
    def is_vector(self) -> bool:
        return self.type.startswith("<32 x ")

    @property
    def scalar(self) -> str:
        """The type of one lane."""
        return self.type[6:-1] if self.is_vector else self.type

    def __str__(self) -> str:
        return f"{self.type} {self.ref}"


NULL = Value("ptr", "null")


def vector(scalar: str) -> str:
    return f"<32 x {scalar}>"


def float_bits(scalar: str, bits: int) -> str:
    """A floating-point constant as LLVM writes it, from its own bits."""
    if scalar == "half":
        return f"0xH{bits:04X}"
    if scalar == "bfloat":
        return f"0xR{bits:04X}"
    if scalar == "float":
        return f"0x{_double_of_single(bits):016X}"
    return f"0x{bits:016X}"


def _double_of_single(bits: int) -> int:
    """Return the bits of the double by which LLVM's text writes a float; NaN payloads are kept."""
    sign, exponent, fraction = bits >> 31, (bits >> 23) & 0xFF, bits & 0x7F_FFFF
    if exponent == 0xFF:
        return (sign << 63) | (0x7FF << 52) | (fraction << 29)
    number = struct.unpack("<f", struct.pack("<I", bits))[0]
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])


Results = Value | tuple[Value, ...]


class Emitter:
    """Collects the lines of one function, and what else its module needs for them."""

    def __init__(self, whole: Emitter | None = None) -> None:
        """Begin a function: of the module that ``whole`` writes another one of, or of a module of its own."""
        self.lines: list[str] = []
        self.allocas: list[str] = []
        # Texts of declarations, other functions and constants, by name.
        self.definitions: dict[str, str] = whole.definitions if whole else {}
        self._serial = 0
        self._last_condition: tuple[str, Sequence[int]] = (":", ())  # its end, and which lines jump there

    # -- lines ----------------------------------------------------------------------------------
    def fresh(self, stem: str = "t") -> str:
        self._serial += 1
        return f"%{stem}{self._serial}"

    def label(self, stem: str) -> str:
        self._serial += 1
        return f"{stem}.{self._serial}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def place(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def set(self, type_: str, text: str) -> Value:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return Value(type_, name, self)

    def alloca(self, type_: str, align: int = 0) -> str:
        name = self.fresh("v")
        self.allocas.append(f"  {name} = alloca {type_}" + (f", align {align}" if align else ""))
        return name

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, condition: Value, yes: str = "", no: str = "", likely: bool | None = None) -> None:
        """Emit a branch; a label that is not given is that of what comes next."""
        weights = {None: "", True: ", !prof !0", False: ", !prof !1"}[likely]
        on = "" if yes and no else self.label("on")
        self.line(f"br i1 {condition.ref}, label %{yes or on}, label %{no or on}{weights}")
        if on:
            self.place(on)

    @property
    def _ended(self) -> bool:
        """Whether the last line is the end of a block."""
        return bool(self.lines) and self.lines[-1].startswith(_ENDS)

    @contextmanager
    def when(
        self, condition: Value, likely: bool | None = None, holds: bool = True, exits: Sequence[int] = ()
    ) -> Iterator[None]:
        """Write what runs only where a condition holds; with ``holds=False`` where it does not.

        ``exits`` are as of ``_end_condition``.
        """
        end = self.label("end")
        self.branch(condition, *(("", end) if holds else (end, "")), likely)
        yield
        self._end_condition(end, exits)

    def unless(self, condition: Value, likely: bool | None = None) -> AbstractContextManager[None]:
        return self.when(condition, likely, holds=False)

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Write what runs where the ``when`` just before does not."""
        exits = self._exits_before()
        yield
        self._end_condition(self.label("end"), exits)

    def otherwise_when(self, condition: Value) -> AbstractContextManager[None]:
        """Write what runs where the ``when`` just before does not, and a condition holds, which is found there."""
        return self.when(condition, exits=self._exits_before())

    def _end_condition(self, end: str, exits: Sequence[int]) -> None:
        """Place the end of a condition's alternatives; ``exits`` are the lines from which earlier ones jump there."""
        if not self._ended:
            exits = [*exits, len(self.lines)]
            self.jump(end)
        for i in exits:
            self.lines[i] = f"  br label %{end}"
        self.place(end)
        self._last_condition = (f"{end}:", exits)

    def _exits_before(self) -> Sequence[int]:
        """Return the lines from which alternatives jump here, behind the condition that was written just before."""
        end, exits = self._last_condition
        if next((line for line in reversed(self.lines) if not line.startswith(" ")), "") != end:
            raise ValueError("there is no condition right before this")
        return exits

    # -- constants ------------------------------------------------------------------------------
    def const(self, like: Value | str, value: int) -> Value:
        """Return an integer constant of a type, in every lane if the type is a vector."""
        type_ = like if isinstance(like, str) else like.type
        scalar = type_.rpartition(" x ")[2].rstrip(">")
        if scalar == "i1":
            text = "true" if value & 1 else "false"
        elif scalar.startswith("i"):
            bits = int(scalar[1:])
            text = str(((value + (1 << (bits - 1))) % (1 << bits)) - (1 << (bits - 1)))
        else:
            text = float_bits(scalar, value)
        if type_ == scalar:
            return Value(type_, text, self)
        return Value(type_, f"splat ({scalar} {text})", self)

    def real(self, like: Value | str, number: float) -> Value:
        """Return a floating-point constant, which must be exact in the type."""
        type_ = like if isinstance(like, str) else like.type
        scalar = type_.rpartition(" x ")[2].rstrip(">")
        packed = struct.pack({"half": "<e", "double": "<d"}.get(scalar, "<f"), number)
        bits = int.from_bytes(packed, "little")
        return self.const(type_, bits >> 16 if scalar == "bfloat" else bits)

    def lanes(self, scalar: str, values: tuple[int, ...] | list[int]) -> Value:
        """Return a vector constant from one value for each lane."""
        items = ", ".join(f"{scalar} {self.const(scalar, value).ref}" for value in values)
        return Value(vector(scalar), f"<{items}>", self)

    def zero(self, type_: str) -> Value:
        return Value(type_, "zeroinitializer" if type_[0] == "<" else self.const(type_, 0).ref, self)

    def fixed(self, value: Value | int, type_: str) -> Value:
        """Return a value, or the constant of ``type_`` that a plain number stands for."""
        return self.const(type_, value) if isinstance(value, int) else value

    # -- operations -----------------------------------------------------------------------------
    def op(self, name: str, a: Value | int, b: Value | int) -> Value:
        """Emit an operation of two values; a plain number is a constant of the other one's type."""
        type_ = self._common_type(a, b)
        return self.set(type_, f"{name} {type_} {self.fixed(a, type_).ref}, {self.fixed(b, type_).ref}")

    @staticmethod
    def _common_type(a: Value | int, b: Value | int) -> str:
        return a.type if isinstance(a, Value) else b.type if isinstance(b, Value) else "i32"

    def negate(self, a: Value) -> Value:
        return self.set(a.type, f"fneg {a}")

    def compare(self, name: str, a: Value, b: Value | int) -> Value:
        """Emit a comparison; ``name`` is such as "icmp slt" or "fcmp olt"."""
        type_ = vector("i1") if a.is_vector else "i1"
        return self.set(type_, f"{name} {a.type} {a.ref}, {self.fixed(b, a.type).ref}")

    equals, differs = _comparison("eq"), _comparison("ne")
    # NOTE: these compare unsigned numbers.
    is_below, is_above = _comparison("ult"), _comparison("ugt")
    is_at_most, is_at_least = _comparison("ule"), _comparison("uge")

    def is_null(self, pointer: Value) -> Value:
        return self.equals(pointer, NULL)

    def select(self, condition: Value, a: Value | int, b: Value | int) -> Value:
        """Emit a choice; a plain number is a constant of the other one's type, two are i32."""
        type_ = self._common_type(a, b)
        return self.set(type_, f"select {condition}, {self.fixed(a, type_)}, {self.fixed(b, type_)}")

    def cast(self, name: str, a: Value, scalar: str) -> Value:
        if a.scalar == scalar:
            return a
        type_ = vector(scalar) if a.is_vector else scalar
        return self.set(type_, f"{name} {a} to {type_}")

    def resize(self, a: Value, scalar: str, signed: bool) -> Value:
        """Emit a widening or narrowing of an integer."""
        have, want = int(a.scalar[1:]), int(scalar[1:])
        if have == want:
            return a
        return self.cast("trunc" if want < have else "sext" if signed else "zext", a, scalar)

    def wide(self, a: Value) -> Value:
        """Emit an unsigned number widened to 64 bits."""
        return self.resize(a, "i64", False)

    def without(self, mask: Value, lanes: Value) -> Value:
        """Emit a mask without some of its lanes."""
        return self.op("and", mask, self.op("xor", lanes, -1))

    def count_bits(self, mask: Value) -> Value:
        return self.intrinsic("llvm.ctpop", mask)

    def find_lowest(self, mask: Value, nonzero: bool = False) -> Value:
        """Emit the number of a mask's lowest set bit; without ``nonzero``, its width if none is set."""
        return self.intrinsic("llvm.cttz", mask, self.const("i1", nonzero))

    def intrinsic(self, name: str, first: Value, *others: Value | int) -> Value:
        """Emit a call of an LLVM intrinsic overloaded on the type of its first argument, which its result has too.

        A plain number is of that type as well.
        """
        given = [self.fixed(other, first.type) for other in others]
        return self.call(f"{name}.{suffix_of(first.type)}", first.type, first, *given)

    def convert(self, name: str, a: Value, scalar: str) -> Value:
        """Emit a call of an intrinsic overloaded on result and argument, such as llvm.fptosi.sat."""
        type_ = vector(scalar) if a.is_vector else scalar
        return self.call(f"{name}.{suffix_of(type_)}.{suffix_of(a.type)}", type_, a)

    def call(self, name: str, result: str, *args: Value | int | str) -> Value:
        """Emit a call of a function of any module; a plain number is an i32, a text names a pointer."""
        values = self._arguments(args)
        types = ", ".join(value.type for value in values)
        self.definitions.setdefault(name, f"declare {result} @{name}({types})")
        listed = ", ".join(map(str, values))
        if result == "void":
            self.line(f"call void @{name}({listed})")
            return Value("void", "")
        return self.set(result, f"call {result} @{name}({listed})")

    def call_at(self, function: Value, result: str, *args: Value | int | str) -> Value:
        """Emit a call of the function that a pointer leads to; its arguments are as of ``call``."""
        return self.set(result, f"call {result} {function.ref}({', '.join(map(str, self._arguments(args)))})")

    def _arguments(self, args: tuple[Value | int | str, ...]) -> list[Value]:
        return [Value("ptr", arg) if isinstance(arg, str) else self.fixed(arg, "i32") for arg in args]

    def define(
        self,
        name: str,
        result: str,
        parameters: str,
        body: Emitter,
        linkage: str = "internal",
        attributes: str = "noinline nounwind",
    ) -> None:
        """Define a function of the module, whose lines another emitter of it has."""
        head = f"define {linkage} {result} @{name}({parameters}) {attributes} {{"
        self.definitions[name] = "\n".join([head, *body.allocas, *body.lines, "}"])

    def constant(self, type_: str, value: str, align: int = 4) -> str:
        """Return the name of the module's constant with a content."""
        content = f"{type_} {value}, align {align}"
        fresh = f"@constant.{len(self.definitions)} = private unnamed_addr constant {content}"
        return self.definitions.setdefault(content, fresh).partition(" ")[0]

    def constant_table(self, numbers: Iterable[int]) -> str:
        """Return the name of the module's constant table of these numbers, of 32 bits each."""
        listed = [f"i32 {number}" for number in numbers]
        return self.constant(f"[{len(listed)} x i32]", f"[{', '.join(listed)}]")

    def load(self, type_: str, pointer: str, align: int, volatile: bool = False) -> Value:
        word = "load volatile" if volatile else "load"
        return self.set(type_, f"{word} {type_}, ptr {pointer}, align {align}")

    def store(self, value: Value, pointer: str, align: int, volatile: bool = False) -> None:
        word = "store volatile" if volatile else "store"
        self.line(f"{word} {value}, ptr {pointer}, align {align}")

    def offset(self, pointer: str, by: int | Value) -> str:
        if isinstance(by, int) and by == 0:
            return pointer
        amount = f"i64 {by}" if isinstance(by, int) else str(by)
        return self.set("ptr", f"getelementptr i8, ptr {pointer}, {amount}").ref

    def as_pointer(self, address: Value) -> Value:
        """Emit the pointer that a number of 64 bits stands for."""
        return self.set("ptr", f"inttoptr {address} to ptr")

    def splat(self, a: Value, lanes: int = LANES) -> Value:
        """Emit a vector with a scalar in every lane."""
        if a.is_vector:
            return a
        type_ = f"<{lanes} x {a.type}>"
        if not a.ref.startswith("%"):
            return Value(type_, f"splat ({a.type} {a.ref})", self)
        first = self.set(type_, f"insertelement {type_} poison, {a}, i64 0")
        return self.set(type_, f"shufflevector {first}, {type_} poison, <{lanes} x i32> zeroinitializer")

    def shuffle(self, a: Value, picks: list[int], b: Value | None = None) -> Value:
        """Emit a vector of the elements ``picks`` of a (and b)."""
        scalar = a.type.split(" x ")[1][:-1]
        other = b.ref if b else "poison"
        chosen = ", ".join(f"i32 {pick}" for pick in picks)
        type_ = f"<{len(picks)} x {scalar}>"
        return self.set(type_, f"shufflevector {a}, {a.type} {other}, <{len(picks)} x i32> <{chosen}>")

    def bits(self, mask: Value) -> Value:
        """Emit the cast of a mask of lanes to an i32, or of an i32 to a mask."""
        if mask.type == "i32":
            return self.set("<32 x i1>", f"bitcast i32 {mask.ref} to <32 x i1>")
        return self.set("i32", f"bitcast {mask} to i32")


def suffix_of(type_: str) -> str:
    """Return how the names of intrinsics that are overloaded on a type end."""
    scalar, prefix = type_, ""
    if type_.startswith("<"):
        count, scalar = type_[1:-1].split(" x ")
        prefix = f"v{count}"
    return prefix + {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(scalar, scalar)


def join(e: Emitter, pieces: list[Value]) -> Value:
    """Concatenate vectors."""
    while len(pieces) > 1:
        if len(pieces) % 2:
            pieces = [*pieces, pieces[-1]]
        length = int(pieces[0].type[1:].split(" ")[0])
        pieces = [
            e.shuffle(pieces[i], list(range(2 * length)), pieces[i + 1]) for i in range(0, len(pieces), 2)
        ]
    return pieces[0]
