"""Sums of products, bit for bit as an H200's tensor cores compute them: ``sums="hardware"``.

A group of products and C are added at once. Every term is brought to the largest exponent among them, which
for a product is the sum of its factors' exponents; what lies more than ``kept`` binary places below that is
cut off, towards zero. The sum of what is left is exact, and is cut off to a float, or rounded to nearest for
f16. Zeros have no exponent; the exponent of a subnormal number is that of the smallest normal one.

- f16, bf16, tf32, by ``mma``, ``wmma`` and ``wgmma``: 25 places, and all k of an instruction are one group.
- 8 bits, by ``wgmma``: 13 places, one group, and a float has only 13 places.
- 8 bits, by ``mma``: there is no such unit. Of every four k the first two are one group and the last two
  another, added to the first; C comes last, by an ordinary addition.
- A sparse A is as one that is dense in what it keeps.
- ``mma.m8n8k4`` of f16 has no unit, either: its sums are floats' fused multiply-adds (``in_turn``).

There are two ways to compute it. The *quick* one holds products in floats and adds their cut-off parts as
integers of 32 bits; it is for finite numbers of which no product leaves the range of floats, in any lane. The
*sure* one is a function that goes over a sum's factors in memory, in doubles, and takes everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

from tilewise.emulator.llvm.emit import Emitter, Value, vector
from tilewise.emulator.llvm.routine import Routine
from tilewise.emulator.numerics import halves
from tilewise.emulator.numerics.tensor_core import Pair, Steps

__all__ = ["EXPONENT", "Rule", "Sums", "exponents", "in_turn", "rule_of"]

EXPONENT = vector("i16")  # of what ``exponents`` gives
_NONE, _SPECIAL = -2000, 5000  # in place of an exponent; of a sum of two, both still show
_REACH = 100  # exponents of products that the quick way takes, up and down
_LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}
_EIGHT = ("e4m3", "e5m2")
_SHORT = 0xFFFF_FC00  # the bits of a float of 13 places
_NAN = 0x7FFF_FFFF
_BOTTOM = 2.0**-400  # below every product
_REGISTER = 128  # bytes of 32 floats


@dataclass(frozen=True, slots=True)
class Rule:
    """How the hardware adds products of one kind of instruction."""

    a_type: str
    b_type: str
    start: str  # what a sum starts from and what C is: f16 or f32
    out: str  # what it becomes: f16, f32, or "short", a float of 13 places
    kept: int
    halved: bool = False  # half of every four k at a time, C at the end

    @property
    def name(self) -> str:
        return f"tw_sum_{self.a_type}_{self.b_type}_{self.start}_{self.out}_{self.kept}"


def rule_of(a_type: str, b_type: str, c_type: str, d_type: str, asynchronous: bool) -> Rule | None:
    """Return the rule by which the hardware adds products of these types; None where it adds as the plain model."""
    if a_type not in _LEAST:
        return None
    out = "f16" if (c_type, d_type) == ("f16", "f16") else "f32"
    if a_type not in _EIGHT:
        return Rule(a_type, b_type, c_type, out, 25)
    if asynchronous:
        return Rule(a_type, b_type, c_type, "short" if out == "f32" else out, 13)
    return Rule(a_type, b_type, c_type, out, 25, halved=True)


def exponents(e: Emitter, numbers: Value, type_: str) -> Value:
    """Return the exponents of 32 floats that hold values of a type, as 16-bit integers."""
    size = e.cast("bitcast", numbers, "i32") & 0x7FFF_FFFF
    field = size >> 23
    found = e.intrinsic("llvm.smax", field - 127, _LEAST[type_])
    found = e.select(e.equals(size, 0), _NONE, found)
    return e.resize(e.select(e.equals(field, 255), _SPECIAL, found), "i16", False)


class Sums:
    """Emits sums of products by a rule, into one function."""

    def __init__(self, e: Emitter, rule: Rule) -> None:
        self.e, self.rule = e, rule
        if rule.name not in e.definitions:
            _sure(rule).define_in(e)

    # -- the quick way --------------------------------------------------------------------------
    def unfit(self, products: Sequence[Value], starts: Sequence[Value]) -> Value:
        """Return, as 32 bits, the lanes in which exponents of a sum are too large or small for the fast path."""
        e, found = self.e, self.e.const("i32", 0)
        for product, start in zip(products, starts, strict=True):
            good = e.is_at_most(product + _REACH, 2 * _REACH)
            good |= e.compare("icmp slt", product, _NONE // 2)
            good &= e.compare("icmp slt", start, _SPECIAL)
            found |= e.bits(good) ^ -1
        return found

    def scales(self, products: Value, start: Value) -> tuple[Value, Value]:
        """Return the factor that makes terms whole numbers, and the value of 1 in that unit."""
        e = self.e
        top = e.intrinsic("llvm.smax", products, start)
        top = e.resize(e.intrinsic("llvm.smax", top, -_REACH), "i32", True)
        parts = ((127 + self.rule.kept) - top, top + (127 - self.rule.kept))
        scale, unit = (e.cast("bitcast", part << 23, "float") for part in parts)
        return scale, unit

    def term(self, number: Value, scale: Value) -> Value:
        """Return a term as a whole number, truncated."""
        return self.e.cast("fptosi", self.e.op("fmul", number, scale), "i32")

    def quick(self, total: Value, start: Value, scale: Value, unit: Value, products: Value) -> Value:
        """Return the sum of the terms' total and C, on the fast path."""
        e, out = self.e, self.rule.out
        # A sum of 16 products may fill 32 bits.
        wide = [e.cast("sitofp", part, "double") for part in (total, self.term(start, scale))]
        bits = e.cast("bitcast", e.op("fadd", *wide), "i64")
        cut = bits & (-1 << 29)
        cut = _odd(e, bits, cut) if out == "f16" else cut
        found = e.cast("fptrunc", e.cast("bitcast", cut, "double"), "float")
        found = _shortened(e, found) if out == "short" else found
        found = e.op("fmul", found, unit)
        if out == "f16":
            found = _without_sign_of_zero(e, found)
        alone = _shortened(e, start) if out == "short" else start
        alone = e.op("fadd", alone, e.real(alone, 0.0))  # -0 becomes +0
        nothing = e.compare("icmp slt", products, _NONE // 2)
        return e.select(nothing, alone, found)

    # -- the sure way ---------------------------------------------------------------------------
    def call(self, a: str, b: str, count: Value, start: Value, result: str) -> None:
        """Emit a call that adds ``count`` products of the factors at ``a`` and ``b`` to ``start``; store the sum."""
        self.e.call(self.rule.name, "void", a, b, count, start, result)

    # -- a whole instruction --------------------------------------------------------------------
    def all(self, starts: Sequence[Value], steps: Steps, ranks: Steps) -> list[Value]:
        """Return each of ``starts`` plus its products of all steps; ``ranks`` are the factors' exponents."""
        if self.rule.halved:
            return [self._halved(start, [step[i] for step in steps]) for i, start in enumerate(starts)]
        e = self.e
        places = [e.alloca(vector("float"), 64) for _ in starts]
        lows = [exponents(e, start, self.rule.start) for start in starts]
        tops = []
        for i in range(len(starts)):
            sums = [e.op("add", *step[i]) for step in ranks]
            while len(sums) > 1:
                pairs = zip(sums[::2], sums[1::2], strict=False)
                sums = [e.intrinsic("llvm.smax", *pair) for pair in pairs] + sums[len(sums) & ~1 :]
            tops.append(sums[0])
        unfit = self.unfit(tops, lows)
        sure, done = e.label("sure"), e.label("done")
        e.branch(e.equals(unfit, 0), no=sure, likely=True)
        for i, (start, place) in enumerate(zip(starts, places, strict=True)):
            scale, unit = self.scales(tops[i], lows[i])
            terms = [self.term(e.op("fmul", *step[i]), scale) for step in steps]
            total = reduce(partial(e.op, "add"), terms)
            e.store(self.quick(total, start, scale, unit, tops[i]), place, 64)
        e.jump(done)
        e.place(sure)
        for i, (start, place) in enumerate(zip(starts, places, strict=True)):
            self._listed([step[i] for step in steps], start, place)
        e.jump(done)
        e.place(done)
        return [e.load(vector("float"), place, 64) for place in places]

    def _listed(self, pairs: Sequence[Pair], start: Value, place: str) -> None:
        """Store the factors, and call the slow path on them."""
        e = self.e
        room = [e.alloca(f"[{len(pairs) * _REGISTER} x i8]", 64) for _ in range(2)]
        for k, pair in enumerate(pairs):
            for number, where in zip(pair, room, strict=True):
                e.store(number, e.offset(where, k * _REGISTER), 64)
        self.call(room[0], room[1], e.const("i64", len(pairs)), start, place)

    def _halved(self, start: Value, pairs: Sequence[Pair]) -> Value:
        e = self.e
        place = e.alloca(vector("float"), 64)
        total = e.real(start, 0.0)
        for half in range(2):
            self._listed([pair for k, pair in enumerate(pairs) if k % 4 // 2 == half], total, place)
            total = e.load(vector("float"), place, 64)
            if self.rule.out == "f16":
                total = halves.up(e, halves.down(e, total, "f16"))
        return _one_nan(e, e.op("fadd", total, start))


def in_turn(e: Emitter, starts: Sequence[Value], steps: Steps, d_type: str) -> list[Value]:
    """Return the sums of m8n8k4: products in order from zero, then C; for f16 C comes before the last two."""
    return [_one_in_turn(e, start, [step[i] for step in steps], d_type) for i, start in enumerate(starts)]


def _one_in_turn(e: Emitter, start: Value, pairs: Sequence[Pair], d_type: str) -> Value:
    def chain(some: Sequence[Pair]) -> Value:
        total = e.real(start, 0.0)
        for a, b in some:
            total = e.intrinsic("llvm.fma", a, b, total)
        return total

    first = e.op("fadd", chain(pairs[:2] if d_type == "f16" else pairs), start)
    total = e.op("fadd", first, chain(pairs[2:])) if d_type == "f16" else first
    return _one_nan(e, total)


def _one_nan(e: Emitter, value: Value) -> Value:
    bits = e.cast("bitcast", value, "i32")  # to LLVM one NaN is as good as another
    bits = e.select(e.compare("fcmp uno", value, value), _NAN, bits)
    return e.cast("bitcast", bits, "float")


# -- parts of both ----------------------------------------------------------------------------------
def _odd(e: Emitter, bits: Value, cut: Value) -> Value:
    """Return ``cut``, its last bit set if truncating ``bits`` lost any: then f16 rounds it as the double."""
    lost = e.differs(bits, cut)
    return e.select(lost, cut | (1 << 29), cut)


def _without_sign_of_zero(e: Emitter, value: Value) -> Value:
    """Clear the sign of numbers that f16 rounds to zero."""
    nothing = e.compare("fcmp ole", e.intrinsic("llvm.fabs", value), e.real(value, 2.0**-25))
    return e.select(nothing, e.real(value, 0.0), value)


def _shortened(e: Emitter, value: Value) -> Value:
    return e.cast("bitcast", e.cast("bitcast", value, "i32") & _SHORT, "float")


# -- the sure way -----------------------------------------------------------------------------------
def _sure(rule: Rule) -> Routine:
    """The slow path: add any numbers; the factors of each k are 32 floats."""
    numbers, doubles = vector("float"), vector("double")
    r = Routine(rule.name, "void", a="ptr", b="ptr", count="i64", start=numbers, result="ptr")
    first, power = _wide(r, r["start"], rule.start)
    plain, top = r.variable(doubles, first), r.variable(doubles, power)

    def factors(k: Value) -> tuple[Value, Value]:
        a, b = (r.field(r.item(r[name], k, _REGISTER), 0, numbers, 4) for name in "ab")
        return a, b

    with r.count(r["count"]) as k:
        a, b = factors(k)
        (left, left_power), (right, right_power) = _wide(r, a, rule.a_type), _wide(r, b, rule.b_type)
        plain.put(r.op("fadd", plain.get(), r.op("fmul", left, right)))
        power, most = r.op("fmul", left_power, right_power), top.get()
        top.put(r.select(r.compare("fcmp ogt", power, most), power, most))
    bottom = r.real(doubles, _BOTTOM)
    most = top.get()
    bits = r.cast("bitcast", r.select(r.compare("fcmp ogt", most, bottom), most, bottom), "i64")
    scale = r.cast("bitcast", ((2046 + rule.kept) << 52) - bits, "double")
    unit = r.cast("bitcast", bits - (rule.kept << 52), "double")
    # From zero, so that a sum of zeros is +0.
    total = r.variable(doubles, r.real(doubles, 0.0))

    def add(term: Value) -> None:
        total.put(r.op("fadd", total.get(), r.intrinsic("llvm.trunc", r.op("fmul", term, scale))))

    add(first)
    with r.count(r["count"]) as k:
        a, b = factors(k)
        add(r.op("fmul", *(r.cast("fpext", number, "double") for number in (a, b))))
    exact = r.op("fmul", total.get(), unit)
    found = _rounded(r, exact) if rule.out == "f16" else _cut(r, exact)
    found = _shortened(r, found) if rule.out == "short" else found
    # Infinities and NaN come out of the plain sum, which is finite for all else.
    whole = plain.get()
    finite = r.compare("fcmp olt", r.intrinsic("llvm.fabs", whole), 0x7FF << 52)
    special = _one_nan(r, r.cast("fptrunc", whole, "float"))
    r.put(r["result"], 0, r.select(finite, found, special), 4)
    r.give()
    return r


def _wide(e: Emitter, x: Value, type_: str) -> tuple[Value, Value]:
    """Return a float as a double, and 2 to the power of its exponent; 0 for zero."""
    bits = e.cast("bitcast", x, "i32") & 0x7F80_0000
    power = e.intrinsic("llvm.umax", bits, (_LEAST[type_] + 127) << 23)
    nothing = e.compare("fcmp oeq", x, e.real(x, 0.0))
    power = e.cast("bitcast", e.select(nothing, 0, power), "float")
    return e.cast("fpext", x, "double"), e.cast("fpext", power, "double")


def _cut(e: Emitter, x: Value) -> Value:
    """Truncate a double to a float."""
    normal = e.cast("bitcast", e.cast("bitcast", x, "i64") & (-1 << 29), "double")
    small = e.intrinsic("llvm.trunc", e.op("fmul", x, e.real(x, 2.0**149)))
    small = e.op("fmul", small, e.real(x, 2.0**-149))
    is_small = e.compare("fcmp olt", e.intrinsic("llvm.fabs", x), e.real(x, 2.0**-126))
    return e.cast("fptrunc", e.select(is_small, small, normal), "float")


def _rounded(e: Emitter, x: Value) -> Value:
    """Return a double as a float that f16 rounds as it would the double."""
    bits = e.cast("bitcast", x, "i64")
    value = e.cast("bitcast", _odd(e, bits, bits & (-1 << 29)), "double")
    return _without_sign_of_zero(e, e.cast("fptrunc", value, "float"))
