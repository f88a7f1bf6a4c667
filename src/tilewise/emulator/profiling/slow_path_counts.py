"""The slow paths of divisions and roots: which lanes take them, derived from their operands.

Machine code divides and takes roots in a few instructions where a test of the operands says that nothing can
overflow, and calls a routine of the assembler's own for the others. Which way goes through that routine is up to the
operands again. The tests, and what distinguishes the ways, are read from the machine code, which has the same ones for
compute capabilities 7.5 to 12.0; ``FCHK``, which tests the operands of a division, is known from measurements.

A lane is in one *class*: 0 if the test lets it through, else one of ``CLASSES``. A warp has a set of classes, written
as the bits of a number; how often there was which set is counted of every such instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.llvm.routine import Routine
from tilewise.emulator.numerics.rounding import FORMATS, ROUNDINGS
from tilewise.emulator.ptx.syntax import Instruction

__all__ = ["CLASSES", "TABLE", "kind_of", "operands_of", "routine_of", "routines"]

_RESULTS = ("whole", "too large", "too small", "subnormal")
_SPECIAL = ("NaN", "zeros", "infinities", "to zero", "to infinity")
_DIVISION = (*_RESULTS, *(f"{name} of subnormals" for name in _RESULTS), *_SPECIAL)
_DIRECTED = (
    *_RESULTS, *(f"{name} of a subnormal" for name in _RESULTS), *(f"{name} by a subnormal" for name in _RESULTS),
    *_SPECIAL,
)  # fmt: skip
_WAYS_TO_ROUND = {("rsqrt", "f64"): ("approx",), ("rcp", "f32"): ROUNDINGS, ("sqrt", "f32"): ROUNDINGS}


class TABLE:
    """The table of one instruction: lanes by class, then pairs of a set of classes and its count of warps."""

    LANES = 0  # 24 numbers of 64 bits
    SETS = 192  # pairs: the set, how often
    SLOTS = 256
    SIZE = SETS + 16 * SLOTS


def kind_of(instruction: Instruction) -> str | None:
    """Return an instruction's key in ``CLASSES``; None if it has no slow path, or none that is known."""
    parts = instruction.parts
    if instruction.opcode == "div" and parts[0] in ("rz", "rm", "rp") and parts[-1] == "f32":
        return ".".join(("div.directed", *parts[1:]))
    if not parts or parts[0] not in _WAYS_TO_ROUND.get((instruction.opcode, parts[-1]), ("rn",)):
        return None
    kind = ".".join((instruction.opcode, *parts[1:]))
    return kind if kind in CLASSES else None


def operands_of(kind: str) -> tuple[int, str]:
    """Return how many operands a kind reads, and their type."""
    return 2 if kind.startswith("div") else 1, kind.rpartition(".")[2]


def routine_of(kind: str) -> str:
    """Return the name of the routine that counts a kind."""
    return f"tw_slow_{kind.replace('.', '_')}"


def routines() -> list[Routine]:
    return [_count(kind) for kind in CLASSES]


def _count(kind: str) -> Routine:
    """Count the lanes that take the slow path, by class; write nothing where no lane does."""
    r = Routine(routine_of(kind), "void", table="ptr", totals="ptr", a="ptr", b="ptr", mask="i32")
    count, type_ = operands_of(kind)
    bits = vector(f"i{type_[1:]}")
    given = [r.load(bits, r[name].ref, 64) for name in ("a", "b")[:count]]
    stem = kind.replace(".ftz", "")
    # Of a reciprocal of floats, flushing changes no class.
    flushed = (stem != kind,) if stem != "rcp.f32" and type_ == "f32" else ()
    slow, classes = _TESTS[stem][1](r, *given, *flushed)
    lanes = r.bits(slow) & r["mask"]
    r.give_if(r.equals(lanes, 0))
    found = r.variable("i32", 0)
    for number in range(len(CLASSES[kind]) + 1):
        if number:
            here = r.bits(r.equals(classes, number)) & lanes
        else:
            here = r.without(r["mask"], lanes)
        some = r.resize(r.differs(here, 0), "i32", False)
        found.put(found.get() | (some << number))
        _add(r, r["table"], TABLE.LANES + 8 * number, r.wide(r.count_bits(here)))
    _add(r, r["totals"], 0, r.const("i64", 1))
    _note_set(r, r.wide(found.get()))
    return r


def _add(r: Routine, place: Value, offset: int, amount: Value) -> None:
    r.change(place, offset, "add", amount, "i64")


def _note_set(r: Routine, found: Value) -> None:
    """Count a set of classes in its slot of the table, else in the first free slot, else in the last."""
    slot = r.variable("i64", 0)
    with r.loop() as loop:
        known = r.field(r.item(r["table"], slot.get(), 16), TABLE.SETS, "i64")
        right = r.equals(known, found) | r.equals(known, 0)
        loop.leave(right | r.equals(slot.get(), TABLE.SLOTS - 1))
        slot.add(1)
    place = r.item(r["table"], slot.get(), 16)
    r.put(place, TABLE.SETS, found | r.field(place, TABLE.SETS, "i64"))
    _add(r, place, TABLE.SETS + 8, r.const("i64", 1))


# -- tests: which lanes take the longer way, and the class of each -----------------------------------------
_Found = tuple[Value, Value]


class _Number:
    """The parts of a float or a double."""

    def __init__(self, r: Routine, bits: Value, flushed: bool = False) -> None:
        single = bits.scalar == "i32"
        self.format = FORMATS["f32" if single else "f64"]
        self.bits, self.number = bits, r.cast("bitcast", bits, "float" if single else "double")
        self.exponent = self._exponent_of(bits)
        self.size = bits & ((1 << (self.format.bits - 1)) - 1)
        self.small = r.equals(self.exponent, 0)  # zero or subnormal
        self.zero = self.small if flushed else r.equals(self.size, 0)
        self.infinite = r.equals(self.size, self.format.infinity)
        self.nan = r.is_above(self.size, self.format.infinity)
        self.negative = r.compare("icmp slt", bits, 0)

    def _exponent_of(self, bits: Value) -> Value:
        return (bits >> self.format.fraction) & ((1 << self.format.exponent) - 1)

    def scaled(self, r: Routine) -> tuple[Value, Value]:
        """Return the biased exponent, as if there were no smallest one, and the digits as a number from 1 to 2."""
        larger = r.cast("bitcast", r.op("fmul", self.number, r.real(self.number, 2.0**64)), self.bits.scalar)
        bits = r.select(self.small, larger, self.bits)
        exponent = self._exponent_of(bits)
        digits, of = bits & ((1 << self.format.fraction) - 1), self.format
        unit = r.cast("bitcast", digits | (of.bias << of.fraction), self.number.scalar)
        return r.select(self.small, exponent - 64, exponent), unit


def _first(r: Routine, cases: list[tuple[Value, int]], rest: Value) -> Value:
    """Return the number of the first case that holds, else ``rest``."""
    found = rest
    for condition, number in reversed(cases):
        found = r.select(condition, number, found)
    return found


def _divide_single(r: Routine, a: Value, b: Value, flushed: bool) -> _Found:
    one, other = _Number(r, a, flushed), _Number(r, b, flushed)
    of_subnormals = r.const(a, len(_RESULTS))
    return _division_test(r, one, other), _division_class(r, one, other, of_subnormals, _DIVISION)


def _divide_directed(r: Routine, a: Value, b: Value, flushed: bool) -> _Found:
    """Classify a directed division: every lane calls the routine; rounding does not change the exponent."""
    one, other = _Number(r, a, flushed), _Number(r, b, flushed)
    more = r.select(other.small, r.const(a, 2 * len(_RESULTS)), len(_RESULTS))
    return r.equals(a, a), _division_class(r, one, other, more, _DIRECTED)


def _division_test(r: Routine, one: _Number, other: _Number) -> Value:
    apart = one.exponent - other.exponent
    return r.either(
        r.is_at_most(other.exponent, 1),
        r.is_at_least(other.exponent, 252),
        r.is_at_most(one.exponent, 24),
        r.equals(one.exponent, 255),
        r.compare("icmp sge", apart, 127),
        r.compare("icmp sle", apart, -125),
    )


def _division_class(
    r: Routine, one: _Number, other: _Number, of_subnormals: Value, names: Sequence[str]
) -> Value:
    """Return each lane's class; subnormal operands add ``of_subnormals`` to the class of a result."""
    first = 1 + names.index(_SPECIAL[0])
    result = _exponent_of_quotient(r, one, other)
    bounds = (("sgt", 254, 2), ("sgt", 0, 1), ("slt", -24, 3))
    sizes = [(r.compare(f"icmp {than}", result, bound), number) for than, bound, number in bounds]
    size = _first(r, sizes, r.const(result, 4))
    # Neither operand is zero, subnormal, infinite or NaN.
    plain = r.is_below(one.exponent - 1, 254) & r.is_below(other.exponent - 1, 254)
    alike = (one.nan | other.nan, one.zero & other.zero, one.infinite & other.infinite)
    special = (*alike, other.infinite | one.zero, one.infinite | other.zero)  # in the order of _SPECIAL
    cases = [(holds, first + i) for i, holds in enumerate(special)]
    return _first(r, cases, r.select(plain, size, size + of_subnormals))


def _exponent_of_quotient(r: Routine, one: _Number, other: _Number) -> Value:
    """Return the quotient's biased exponent, as if floats had no smallest and largest one."""
    (high, above), (low, below) = one.scaled(r), other.scaled(r)
    quotient = r.cast("bitcast", r.op("fdiv", above, below), "i32")
    return high - low + (quotient >> 23)


def _root_single(r: Routine, a: Value, flushed: bool) -> _Found:
    one = _Number(r, a, flushed)
    slow = r.is_above(a - 0x0D00_0000, 0x727F_FFFF)
    below = one.negative & r.differs(one.exponent, 0)
    return slow, _first(r, [(one.zero, 1), (one.nan, 3), (below, 2), (one.infinite, 4)], r.const(a, 5))


def _invert_single(r: Routine, a: Value) -> _Found:
    one = _Number(r, a)
    slow = r.is_at_most((a + 0x180_0000) & 0x7F80_0000, 0x1FF_FFFF)
    tiny = r.is_at_most(one.size, 0x20_0000)  # whose inverse is too large
    special = r.equals(one.exponent, 255)
    return slow, _first(r, [(one.zero, 1), (tiny, 2), (one.small, 3), (special, 5)], r.const(a, 4))


class _Double(_Number):
    """A double's parts, and its upper word."""

    def __init__(self, r: Routine, bits: Value) -> None:
        super().__init__(r, bits)
        self.high = r.resize(bits >> 32, "i32", False)
        self.high_size = self.high & 0x7FFF_FFFF


def _divide_double(r: Routine, a: Value, b: Value) -> _Found:
    one, other = _Double(r, a), _Double(r, b)
    quotient = r.cast("bitcast", r.op("fdiv", one.number, other.number), "i64")
    result = r.resize(quotient >> 32, "i32", False) & 0x7FFF_FFFF
    whole = r.is_above(result, 0x10_0000)
    slow = r.either(
        r.is_below(one.high_size, 0x360_0000),
        other.small,
        # Upper words are compared as floats: these are NaN there, or infinite times zero.
        r.is_at_least(other.high_size, 0x7F80_0000),
        r.is_above(result, 0x7F80_0000),
        r.is_at_most(result, 0x10_0000),
    )
    number = r.const(one.high, 0)
    alike = (one.zero & other.zero) | (one.infinite & other.infinite)
    special = r.either(one.zero, one.infinite, other.zero, other.infinite)
    cases = [(one.nan, 4), (other.nan, 5), (alike, 6), (special, 7), (whole, 1), (_divides(r, one, other), 3)]
    return slow, _first(r, cases, r.const(number, 2))


def _divides(r: Routine, one: _Double, other: _Double) -> Value:
    """Whether the quotient is exact."""
    (_, above), (_, below) = one.scaled(r), other.scaled(r)
    quotient = r.op("fdiv", above, below)
    rest = r.intrinsic("llvm.fma", r.negate(quotient), below, above)
    return r.compare("fcmp oeq", rest, r.real(rest, 0.0))


def _invert_double(r: Routine, a: Value) -> _Found:
    one = _Double(r, a)
    moved = (one.high + 0x30_0402) & 0x7FFF_FFFF
    special = r.is_at_least(one.high_size - 1, 0x7FEF_FFFF)
    small = r.is_below(one.high_size, 0x100_0001)
    classes = _first(r, [(one.nan, 1), (special, 2), (small, 3)], r.const(one.high, 4))
    return r.is_below(moved, 0x40_0402), classes


def _root_double(r: Routine, a: Value) -> _Found:
    one = _Double(r, a)
    moved = one.high - 0x350_0000
    small = r.is_at_least(moved, 0xFCC0_0000)
    nothing = one.zero | one.nan
    cases = [(small, 1), (nothing, 2), (one.negative, 3), (one.infinite, 4)]
    return r.is_at_least(moved, 0x7CA0_0000), _first(r, cases, r.const(one.high, 5))


def _inverse_root_double(r: Routine, a: Value) -> _Found:
    one = _Double(r, a)
    slow = r.is_at_least(one.high - 0x10_0000, 0x7FE0_0000)
    cases = [(one.zero, 1), (one.nan, 2), (one.negative, 3), (one.infinite, 4)]
    return slow, _first(r, cases, r.const(one.high, 5))


# By kind of operation, flushing aside: the classes of its lanes, the first of which is class 1, and the test.
_TESTS: dict[str, tuple[tuple[str, ...], Callable[..., _Found]]] = {
    "div.f32": (_DIVISION, _divide_single),
    "div.directed.f32": (_DIRECTED, _divide_directed),
    "rcp.f32": (("zero", "tiny", "subnormal", "large", "special"), _invert_single),
    "sqrt.f32": (("zero", "negative", "NaN", "infinite", "small"), _root_single),
    "div.f64": (
        ("whole", "subnormal", "subnormal, exact", "NaN above", "NaN below", "alike", "special"),
        _divide_double,
    ),
    "rcp.f64": (("NaN", "special", "small", "large"), _invert_double),
    "sqrt.f64": (("small", "zero or NaN", "negative", "infinite", "subnormal"), _root_double),
    "rsqrt.f64": (("zero", "NaN", "negative", "infinite", "subnormal"), _inverse_root_double),
}
CLASSES = {
    kind: classes
    for stem, (classes, _) in _TESTS.items()
    for kind in (stem, stem.replace(".f32", ".ftz.f32"))
}
