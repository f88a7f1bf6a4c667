"""The functions that multiply for ``wgmma``, made for the forms that a kernel has.

Two for each form. ``pack`` brings matrix B of a few instructions that add to the same sums into a *panel*, as
numbers: by eights of columns, k after k, the even ones before the odd ones. ``multiply`` brings a warp's 16
rows of A into a panel of its own and multiplies the two.

The sums stay as registers have them: lane 4·g + t has, of eight columns, columns 2t and 2t + 1 of rows g and
g + 8, in a register each. So a vector of sums is eight rows by four columns; for each k it wants a row's
element of A four times over, and four elements of B over and over, which a CPU loads so.

Sums as hardware makes them are made an instruction at a time, and go over its k twice: for the largest
exponent, and to add. Both panels then have their numbers' exponents, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewise.emulator.layout import WARP
from tilewise.emulator.llvm.emit import LANES, Value, vector
from tilewise.emulator.llvm.routine import MutableValue, Routine
from tilewise.emulator.numerics import halves, tensor_core
from tilewise.emulator.numerics.hardware_sums import EXPONENT, Rule, Sums, exponents, rule_of
from tilewise.emulator.support.wgmma_descriptor import BRICKS, ROWS, Matrix
from tilewise.emulator.support.wgmma_queue import BATCH, INFO, RANKS, RECORD

__all__ = ["WgmmaForm", "multiply", "pack"]

_WORDS = 4  # of a brick's row
_OF_FOUR = 3  # the bits of a warp's number that say which of its warpgroup it is
_FLOATS, _SHORTS = 4, 2  # bytes
_VECTOR = LANES * _FLOATS
_PAIR = 2 * _VECTOR
_RANKS = LANES * _SHORTS
_NUMBERS = vector("float")
# The columns of eight as panels have them: t of the even ones, then of the odd ones.
_COLUMNS = [2 * t + part for part in range(2) for t in range(4)]
_ARGUMENTS = {
    "ctx": "ptr", "worker": "ptr", "block": "ptr", "warp": "ptr",
    "records": "ptr", "count": "i64", "panel": "ptr", "base": "ptr",
}  # fmt: skip
# A brick of 16-bit elements turned over: where element (row, k) is in one of rows k.
_TURNED = [(2 * (lane % 4) + part) * ROWS + lane // 4 for lane in range(LANES) for part in range(2)]


@dataclass(frozen=True, slots=True)
class WgmmaForm:
    """What makes one form's functions different from another's. The number of columns does not."""

    a_type: str
    b_type: str
    d_type: str
    a_shared: bool  # A is in shared memory
    a_across: bool  # M-major
    b_across: bool  # N-major
    negative: bool  # of every product
    saturate: bool
    sparsity: tensor_core.Sparsity | None = None  # of A
    hardware: bool = False  # sums are hardware's

    @property
    def bits(self) -> int:
        return tensor_core.ELEMENTS[self.a_type].bits

    @property
    def per(self) -> int:
        """Elements in a word; words, of single bits."""
        return max(1, 32 // self.bits) if self.bits > 1 else 1

    @property
    def brick(self) -> int:
        """Elements of K in a brick."""
        return _WORDS * self.per

    @property
    def k(self) -> int:
        """Elements in a row of one instruction's A, and in a column of its B if A is dense."""
        return BRICKS * self.brick

    @property
    def depth(self) -> int:
        """Elements in a column of one instruction's B."""
        return self.k * (2 if self.sparsity else 1)

    @property
    def rule(self) -> Rule | None:
        """How hardware adds, if that is wanted and not as the plain model."""
        return rule_of(self.a_type, self.b_type, self.d_type, self.d_type, True) if self.hardware else None

    @property
    def most(self) -> int:
        """Instructions that can be done in one go: not if sums are rounded or saturated after each."""
        if self.rule:
            return 1
        return BATCH // self.depth if self.d_type == "f32" or self.bits == 1 else 1

    @property
    def number(self) -> str:
        return vector("i32") if self.bits == 1 else _NUMBERS

    @property
    def pack_name(self) -> str:
        return f"wgmma_pack_{self.b_type}_{int(self.b_across)}_{self.depth}"

    @property
    def name(self) -> str:
        flags = (self.a_shared, self.a_across, self.negative, self.saturate)
        words = [self.a_type, self.b_type, self.d_type, "".join(str(int(flag)) for flag in flags)]
        words += [f"sp{self.sparsity.first}"] if self.sparsity else []
        return f"wgmma_{'_'.join(words)}"


# -- B ----------------------------------------------------------------------------------------------
def pack(form: WgmmaForm) -> Routine:
    """Matrices B of some records as one panel."""
    r = Routine(form.pack_name, "i32", **_ARGUMENTS)
    info = r.field(r["records"], RECORD.INFO, "ptr", 8)
    columns = r.wide(r.field(info, INFO.COLUMNS, "i32", 4))
    total = r["count"] * form.depth
    with r.count(r["count"]) as i:
        record = r.item(r["records"], i, RECORD.SIZE)
        matrix = Matrix(r, r.field(record, RECORD.B, "i64", 8), form.b_across)
        with r.count(columns) as j:
            for c in range(form.depth // form.brick):
                words = matrix.brick(r.resize(j, "i32", False), c)
                k = i * form.depth + (c * form.brick)
                row = j * total + k
                ranks = r.item(r.at(r["panel"], RANKS), row, ROWS * _SHORTS)
                _columns(r, form, words, r.item(r["panel"], row, ROWS * _FLOATS), ranks)
        matrix.check(r.field(record, RECORD.LINE, "i32", 4))
    return r


def _columns(r: Routine, form: WgmmaForm, words: Value, place: Value, ranks: Value) -> None:
    """Put a brick of B into the panel: for each of its k, eight columns."""

    def put(numbers: Value, exponents: Value | None, k: int) -> None:
        r.store(numbers, r.offset(place.ref, k * ROWS * _FLOATS), 4)
        if exponents is not None:
            r.store(exponents, r.offset(ranks.ref, k * ROWS * _SHORTS), 2)

    if form.bits == 16:
        bits = r.set("<64 x i16>", f"bitcast {words} to <64 x i16>")
        away, onward = (1, ROWS) if form.b_across else (ROWS, 1)  # from column to column, from k to k
        for first in (0, 4):
            picks = [column * away + (first + k) * onward for k in range(4) for column in _COLUMNS]
            halved = r.cast("bitcast", r.shuffle(bits, picks), "half" if form.b_type == "f16" else "bfloat")
            numbers = halves.up(r, halved)
            put(numbers, _ranks(r, form, numbers, form.b_type), first)
        return
    for part in range(form.per):
        number = tensor_core.ELEMENTS[form.b_type].number(r, words, part)
        ordered = r.shuffle(number, [_WORDS * column + word for word in range(_WORDS) for column in _COLUMNS])
        listed = _ranks(r, form, ordered, form.b_type)
        if form.per == 1:
            put(ordered, listed, 0)
            continue
        for word in range(_WORDS):
            eight = list(range(ROWS * word, ROWS * word + ROWS))
            few = r.shuffle(listed, eight) if listed is not None else None
            put(r.shuffle(ordered, eight), few, word * form.per + part)


def _ranks(r: Routine, form: WgmmaForm, numbers: Value, type_: str) -> Value | None:
    """The exponents of 32 numbers, where sums want them."""
    return exponents(r, numbers, type_) if form.rule else None


# -- A ----------------------------------------------------------------------------------------------
class _Panel:
    """A warp's 16 rows of A: for each k two vectors, each with eight rows' elements four times over. Of a
    sparse A, for each of them also the lanes that have one."""

    def __init__(self, r: Routine, form: WgmmaForm) -> None:
        self.r, self.form = r, form
        self.numbers = r.reserve(f"[{BATCH * _PAIR} x i8]", 64)
        self.lanes = r.reserve(f"[{BATCH * 2} x i32]", 64) if form.sparsity else None
        self.ranks = r.reserve(f"[{BATCH * 2 * _RANKS} x i8]", 64) if form.rule else None

    def fill(self, i: Value) -> None:
        """Bring in the i-th record's A."""
        r, form = self.r, self.form
        record = r.item(r["records"], i, RECORD.SIZE)
        start = i * form.depth
        metadata = self._register(r.field(record, RECORD.METADATA, "i32", 4)) if form.sparsity else None
        for half, elements in enumerate(self._elements(record)):
            if metadata is not None:
                self._scatter(start, half, elements, metadata)
                continue
            for k, element in enumerate(elements):
                self._put(start + k, half, element)

    def _register(self, place: Value) -> Value:
        """What a register of the warp holds."""
        return self.r.field(self.r.at(self.r["warp"], place), 0, vector("i32"), 4)

    def _elements(self, record: Value) -> tuple[list[Value], list[Value]]:
        """The elements that rows g, and rows g + 8, have of each k, or keep."""
        r, form = self.r, self.form
        matrix = Matrix(r, r.field(record, RECORD.A, "i64", 8), form.a_across) if form.a_shared else None
        first = (r.field(r["warp"], WARP.INDEX, "i32", 4) & _OF_FOUR) << 1
        places = r.field(record, RECORD.A, "ptr", 8)
        found: tuple[list[Value], list[Value]] = ([], [])
        for c in range(BRICKS):
            for half in range(2):
                if matrix is not None:
                    words = matrix.brick(first + half, c)
                    words = _turned(r, words) if form.a_across else words
                else:
                    words = self._register(r.field(places, 4 * (2 * c + half), "i32", 4))
                found[half].extend(_repeated(r, form, words))
        if matrix is not None:
            matrix.check(r.field(record, RECORD.LINE, "i32", 4))
        return found

    def _scatter(self, start: Value, half: int, elements: list[Value], metadata: Value) -> None:
        """Store what a sparse A keeps, each element where its metadata says."""
        r, sparsity = self.r, self.form.sparsity
        assert sparsity is not None and self.lanes is not None
        kept = sparsity.chunk // 2
        for chunk in range(len(elements) // kept):
            numbers = range(chunk * kept, chunk * kept + kept)
            choices = [sparsity.choice(r, metadata, number, half == 1) for number in numbers]
            for option in range(sparsity.chunk):
                value, lanes = r.zero(self.form.number), r.zero(vector("i1"))
                for number, choice in zip(numbers, choices, strict=True):
                    here = r.equals(choice, option)
                    value = r.select(here, elements[number], value)
                    lanes |= here
                k = start + (chunk * sparsity.chunk + option)
                self._put(k, half, value)
                r.put(r.item(self.lanes, k, 8), 4 * half, r.bits(lanes), 4)

    def _put(self, k: Value, half: int, numbers: Value) -> None:
        r = self.r
        r.put(r.item(self.numbers, k, _PAIR), half * _VECTOR, numbers, 4)
        listed = _ranks(r, self.form, numbers, self.form.a_type)
        if self.ranks is not None and listed is not None:
            r.put(r.item(self.ranks, k, 2 * _RANKS), half * _RANKS, listed, 2)

    def rank(self, k: Value, half: int) -> Value:
        """The exponents of a row."""
        assert self.ranks is not None
        return self.r.field(self.r.item(self.ranks, k, 2 * _RANKS), half * _RANKS, EXPONENT, 2)

    def row(self, k: Value, half: int) -> Value:
        return self.r.field(self.r.item(self.numbers, k, _PAIR), half * _VECTOR, self.form.number, 4)

    def there(self, k: Value, half: int) -> Value | None:
        """The lanes that have an element of this k, if not all do."""
        if self.lanes is None:
            return None
        return self.r.bits(self.r.field(self.r.item(self.lanes, k, 8), 4 * half, "i32", 4))


def _turned(r: Routine, words: Value) -> Value:
    bits = r.set("<64 x i16>", f"bitcast {words} to <64 x i16>")
    return r.set(words.type, f"bitcast {r.shuffle(bits, _TURNED)} to {words.type}")


def _repeated(r: Routine, form: WgmmaForm, words: Value) -> list[Value]:
    """For each k of a brick of A each row's element, four times."""
    numbers = [tensor_core.ELEMENTS[form.a_type].number(r, words, part) for part in range(form.per)]
    if form.negative:
        numbers = [r.negate(number) for number in numbers]
    return [
        r.shuffle(number, [lane // 4 * 4 + word for lane in range(LANES)])
        for word in range(_WORDS)
        for number in numbers
    ]


# -- the product ------------------------------------------------------------------------------------
def multiply(form: WgmmaForm) -> Routine:
    """What some records of one warp add to its sums."""
    r = Routine(form.name, "i32", **_ARGUMENTS)
    info = r.field(r["records"], RECORD.INFO, "ptr", 8)
    columns = r.wide(r.field(info, INFO.COLUMNS, "i32", 4))
    panel = _Panel(r, form)
    with r.count(r["count"]) as i:
        panel.fill(i)
    tile = _Tile(r, form, panel, r.field(info, INFO.PLACES, "ptr", 8), r["count"] * form.depth)
    if form.rule:
        with r.count(columns) as j:
            tile.hardware(j, Sums(r, form.rule))
        return r
    with r.count(columns & -2, step=2) as j:
        tile.product(j, 2)
    with r.when(r.has_any(columns, 1)):
        tile.product(columns - 1, 1)
    return r


class _Tile:
    """Sums that a CPU holds in its registers while it goes through all k."""

    def __init__(self, r: Routine, form: WgmmaForm, panel: _Panel, places: Value, total: Value) -> None:
        self.r, self.form, self.panel, self.places, self.total = r, form, panel, places, total
        self.fresh = r.equals(r.field(r["records"], RECORD.ADDS, "i32", 4), 0)

    def product(self, j: Value, width: int) -> None:
        """``width`` times eight columns, from the j-th eight on."""
        r, form = self.r, self.form
        registers = 2 if form.d_type == "f16" else 4
        places = self._addresses(j, width * registers, registers)
        starts = self._starts(places)
        whole = form.d_type == "s32" and form.bits > 1
        zero = Value(form.number, "zeroinitializer")
        sums = [r.variable(form.number, zero if whole else start) for start in starts]
        lefts = [r.item(r["panel"], (j + eight) * self.total, ROWS * _FLOATS) for eight in range(width)]
        with r.count(self.total, step=2) as k:
            for more in range(2):
                self._step(sums, k + more, lefts)
        totals = [item.get() for item in sums]
        if whole:
            totals = [
                tensor_core.add_whole(r, start, total, form.saturate)
                for start, total in zip(starts, totals, strict=True)
            ]
        for place, value in zip(places, tensor_core.encode(r, form.d_type, totals), strict=True):
            r.store(value, place.ref, 4)

    # -- as hardware does it --------------------------------------------------------------------
    def hardware(self, j: Value, made: Sums) -> None:
        """The j-th eight columns: four sums of each lane, by rows and by even and odd columns."""
        r, form = self.r, self.form
        count = 2 if form.d_type == "f16" else 4
        places = self._addresses(j, count, count)
        starts = self._starts(places)
        listed = j * self.total
        numbers = r.item(r["panel"], listed, ROWS * _FLOATS)
        ranks = r.item(r.at(r["panel"], RANKS), listed, ROWS * _SHORTS)
        tops = [r.variable(EXPONENT, r.const(EXPONENT, -0x8000)) for _ in starts]
        with r.count(self.total) as k:
            for item, (row, column) in zip(tops, self._pairs(k, ranks, self.panel.rank, "i16"), strict=True):
                item.put(r.intrinsic("llvm.smax", item.get(), row + column))
        most = [item.get() for item in tops]
        lows = [exponents(r, start, made.rule.start) for start in starts]
        unfit = made.unfit(most, lows)
        found = [r.variable(_NUMBERS, start) for start in starts]
        with r.when(r.equals(unfit, 0)):
            scales = [made.scales(*pair) for pair in zip(most, lows, strict=True)]
            totals = [r.variable(vector("i32"), r.const(vector("i32"), 0)) for _ in starts]
            with r.count(self.total, step=2) as k:
                for more in range(2):
                    pairs = self._pairs(k + more, numbers, self.panel.row, "float")
                    for total, (scale, _), pair in zip(totals, scales, pairs, strict=True):
                        total.add(made.term(r.op("fmul", *pair), scale))
            for i, (scale, unit) in enumerate(scales):
                found[i].put(made.quick(totals[i].get(), starts[i], scale, unit, most[i]))
        with r.otherwise():
            self._sure(made, starts, numbers, found)
        results = [item.get() for item in found]
        for place, value in zip(places, tensor_core.encode(r, form.d_type, results), strict=True):
            r.store(value, place.ref, 4)

    def _sure(self, made: Sums, starts: list[Value], numbers: Value, found: list[MutableValue]) -> None:
        r = self.r
        room = [[r.reserve(f"[{BATCH * _VECTOR} x i8]", 64) for _ in range(2)] for _ in starts]
        with r.count(self.total) as k:
            there = [self.panel.there(k, half) for half in range(2)]
            for i, (own, pair) in enumerate(
                zip(room, self._pairs(k, numbers, self.panel.row, "float"), strict=True)
            ):
                for place, number in zip(own, pair, strict=True):
                    mask = there[i // 2]
                    kept = number if mask is None else r.select(mask, number, r.zero(_NUMBERS))
                    r.put(r.item(place, k, _VECTOR), 0, kept, 4)
        for own, start, item in zip(room, starts, found, strict=True):
            made.call(own[0].ref, own[1].ref, self.total, start, item.slot)

    def _pairs(
        self, k: Value, listed: Value, of_row: Callable[[Value, int], Value], scalar: str
    ) -> list[tensor_core.Pair]:
        """Of the four sums, what they multiply at one k; or the exponents of that."""
        columns = self._columns(listed, k, scalar)
        return [(of_row(k, half), column) for half in range(2) for column in columns]

    def _columns(self, panel: Value, k: Value, scalar: str) -> list[Value]:
        """Of the even and of the odd columns in a panel of B, what the sums' lanes have at one k."""
        r, size = self.r, _SHORTS if scalar == "i16" else _FLOATS
        here = r.item(panel, k, ROWS * size)
        fours = [r.field(here, 4 * part * size, f"<4 x {scalar}>", size) for part in range(2)]
        return [r.shuffle(four, list(range(4)) * 8) for four in fours]

    # -- plainly --------------------------------------------------------------------------------
    def _step(self, sums: list[MutableValue], k: Value, panels: list[Value]) -> None:
        r, form = self.r, self.form
        rows = [self.panel.row(k, half) for half in range(2)]
        there = [self.panel.there(k, half) for half in range(2)]
        pairs, masks = [], []
        for panel in panels:
            columns = self._columns(panel, k, form.number.split(" x ")[1][:-1])
            pairs += [(row, column) for row in rows for column in columns]
            masks += [mask for mask in there for _ in columns]
        before = [item.get() for item in sums]
        if form.bits == 1:
            after = tensor_core.bit_counts(r, before, [pairs], "and")
        else:
            after = tensor_core.accumulate(
                r, before, [pairs], tensor_core.ELEMENTS[form.a_type].exact or form.d_type == "s32"
            )
        for item, old, value, mask in zip(sums, before, after, masks, strict=True):
            item.put(value if mask is None else r.select(mask, value, old))

    def _addresses(self, j: Value, count: int, per: int) -> list[Value]:
        r = self.r
        first = r.item(self.places, j * per, 4)
        return [r.at(r["base"], r.field(first, 4 * index, "i32", 4)) for index in range(count)]

    def _starts(self, places: list[Value]) -> list[Value]:
        r, word = self.r, vector("float" if self.form.d_type == "f32" else "i32")
        held = [r.select(self.fresh, r.zero(word), r.field(place, 0, word, 4)) for place in places]
        return tensor_core.decode(r, self.form.d_type, held)
