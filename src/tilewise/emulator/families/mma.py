"""``mma.sync``: D = A·B + C, each matrix spread over the registers of a warp.

*Layouts*, the formulas of the PTX ISA, map each element: from (lane, register, part of the
register) to (row, column). All else follows from them: for every element of D that a lane holds and every
k, a shuffle brings each lane the element of A and the element of B that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewise.emulator.families.sparse import SPARSE, find_sparsity
from tilewise.emulator.llvm.emit import Emitter, Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.fragments import OperandAddresses
from tilewise.emulator.lowering.tables import effect, unsupported
from tilewise.emulator.numerics.hardware_sums import Sums, exponents, in_turn, rule_of
from tilewise.emulator.numerics.tensor_core import (
    ELEMENTS,
    Sparsity,
    accumulate,
    bit_counts,
    decode,
    encode,
    integer_sums,
)
from tilewise.emulator.ptx.syntax import Instruction, Operand, items_of
from tilewise.emulator.ptx.types import llvm_scalar

__all__ = ["Layout", "MmaForm", "Place", "gathered", "product"]

Place = tuple[int, int, int]  # which of several independent products, row, column
Layout = Callable[[int, int], Place]  # from lane and the number of its element
Pick = tuple[int, int]  # which of a lane's elements, which lane


# -- layouts ----------------------------------------------------------------------------------------
def _a_by_rows(per: int, tall: bool) -> Layout:
    """Lane 4·g + t has ``per`` neighbouring elements a register: of rows g and g + 8, then further right."""

    def place(lane: int, index: int) -> Place:
        register, part = divmod(index, per)
        low, block = (register % 2, register // 2) if tall else (0, register)
        return 0, lane // 4 + 8 * low, lane % 4 * per + part + 4 * per * block

    return place


def _b_by_columns(per: int) -> Layout:
    def place(lane: int, index: int) -> Place:
        register, part = divmod(index, per)
        return 0, lane % 4 * per + part + 4 * per * register, lane // 4

    return place


def _sums(lane: int, index: int) -> Place:
    return 0, lane // 4 + 8 * (index // 2), lane % 4 * 2 + index % 2


_VOLTA = 4  # k of the only form of f16 that has so few


# m8n8k4 of f16 are four products: lanes 4·q to 4·q + 3 and 16 + 4·q to 16 + 4·q + 3 share one.
def _quad(lane: int) -> tuple[int, int, int]:
    """Which product a lane is part of, its number in its group of four, and 4 for the second group."""
    return lane % 16 // 4, lane % 4, lane // 16 * 4


def _volta_whole(lane: int, index: int) -> Place:
    """A by rows, and sums in f16: a lane has one row."""
    product, own, half = _quad(lane)
    return product, own + half, index


def _volta_cut(lane: int, index: int) -> Place:
    """B by rows: a lane has half a row."""
    product, own, half = _quad(lane)
    return product, own, index + half


def _volta_sums(lane: int, index: int) -> Place:
    product, _, half = _quad(lane)
    return product, (lane & 1) + (index & 2) + half, (index & 4) + (lane & 2) + (index & 1)


def _turned(layout: Layout) -> Layout:
    def place(lane: int, index: int) -> Place:
        product, row, column = layout(lane, index)
        return product, column, row

    return place


def holders(layout: Layout, count: int) -> dict[Place, Pick]:
    """For each element of a matrix, the lanes and indices that hold it."""
    return {layout(lane, index): (index, lane) for lane in range(32) for index in range(count)}


# -- forms ------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class MmaForm:
    """One instruction's types, layouts, and how many elements of each matrix a lane holds."""

    k: int  # steps: elements of a sum, or words of 32 for b1
    a_type: str
    b_type: str
    c_type: str
    d_type: str
    a: Layout
    b: Layout
    c: Layout
    d: Layout
    a_count: int
    b_count: int
    d_count: int
    sparsity: Sparsity | None = None

    def registers(self) -> tuple[int, int, int, int]:
        """How many registers D, A, B and C have."""
        counts = (self.d_count, self.a_count, self.b_count, self.d_count)
        types = (self.d_type, self.a_type, self.b_type, self.c_type)
        d, a, b, c = (count // per_register(type_) for count, type_ in zip(counts, types, strict=True))
        return d, a, b, c


_HALF = ("f16", "f32")
# Shape and element type → the types that sums may have.
_DENSE: dict[tuple[str, str], tuple[str, ...]] = {
    ("m16n8k8", "f16"): _HALF,
    ("m16n8k16", "f16"): _HALF,
    ("m16n8k8", "bf16"): ("f32",),
    ("m16n8k16", "bf16"): ("f32",),
    ("m16n8k4", "tf32"): ("f32",),
    ("m16n8k8", "tf32"): ("f32",),
    ("m16n8k16", "f8"): _HALF,
    ("m16n8k32", "f8"): _HALF,
    ("m8n8k4", "f64"): ("f64",),
    ("m16n8k4", "f64"): ("f64",),
    ("m16n8k8", "f64"): ("f64",),
    ("m16n8k16", "f64"): ("f64",),
    ("m8n8k16", "i8"): ("s32",),
    ("m16n8k16", "i8"): ("s32",),
    ("m16n8k32", "i8"): ("s32",),
    ("m8n8k32", "i4"): ("s32",),
    ("m16n8k32", "i4"): ("s32",),
    ("m16n8k64", "i4"): ("s32",),
    ("m8n8k128", "b1"): ("s32",),
    ("m16n8k128", "b1"): ("s32",),
    ("m16n8k256", "b1"): ("s32",),
}
_KIND = {"e4m3": "f8", "e5m2": "f8", "s8": "i8", "u8": "i8", "s4": "i4", "u4": "i4"}


def _form(instruction: Instruction, words: list[str], selector: Operand | None) -> MmaForm:
    """The form of what is left of an instruction's words: shape, layouts of A and B, and types."""
    if len(words) != 7 or words[4] not in ELEMENTS or words[5] not in ELEMENTS:
        raise unsupported(instruction, "this form of mma is not supported")
    shape, a_way, b_way, d_type, a_type, b_type, c_type = words
    if (shape, a_type, b_type) == ("m8n8k4", "f16", "f16") and selector is None:
        return _volta(instruction, words)
    kind = _KIND.get(a_type, a_type)
    allowed = (_DENSE if selector is None else SPARSE).get((shape, kind))
    if allowed is None or kind != _KIND.get(b_type, b_type):
        raise unsupported(instruction, f"not the shape {shape} with the types {a_type} and {b_type}")
    if d_type not in allowed or c_type != d_type:
        raise unsupported(instruction, f"the types of C and D must be alike, and {' or '.join(allowed)}")
    if (a_way, b_way) != ("row", "col"):
        raise unsupported(instruction, "A must be row and B col")
    m, k = int(shape[1 : shape.index("n")]), int(shape[shape.index("k") + 1 :])
    bits, per = ELEMENTS[a_type].bits, per_register(a_type)
    sparsity = find_sparsity(instruction, bits, k, selector) if selector else None
    b_count = 8 * k // 32
    # b1 goes by words: of 32 bits that lie side by side in A and in B.
    k, b_count = (k // 32, b_count // 32) if bits == 1 else (k, b_count)
    k = k // 2 if sparsity else k
    layouts = _a_by_rows(per, m == 16), _b_by_columns(per), _sums, _sums
    return MmaForm(k, a_type, b_type, c_type, d_type, *layouts, m * k // 32, b_count, m * 8 // 32, sparsity)


def _volta(instruction: Instruction, words: list[str]) -> MmaForm:
    _, a_way, b_way, d_type, a_type, b_type, c_type = words
    ways = {"row", "col"}
    if a_way not in ways or b_way not in ways or d_type not in _HALF or c_type not in _HALF:
        raise unsupported(instruction, "A and B must be row or col, C and D f16 or f32")
    if c_type == "f32" and d_type != "f32":
        raise unsupported(instruction, "with C in f32, D must be too")
    sums = {"f16": _volta_whole, "f32": _volta_sums}
    a = _volta_whole if a_way == "row" else _turned(_volta_cut)
    b = _volta_cut if b_way == "row" else _turned(_volta_whole)
    return MmaForm(4, a_type, b_type, c_type, d_type, a, b, sums[c_type], sums[d_type], 4, 4, 8)


# -- the instruction --------------------------------------------------------------------------------
@effect("mma", lanes="own", multiplies_matrices=True, ptx="6.4", arch="sm_70")
@effect("mma.sp", lanes="own", multiplies_matrices=True, ptx="7.1", arch="sm_80")
@effect("mma.sp::ordered_metadata", lanes="own", multiplies_matrices=True, ptx="8.5", arch="sm_80")
def mma(e: Context, instruction: Instruction) -> None:
    words = list(instruction.parts)
    sparse = words[:1] in (["sp"], ["sp::ordered_metadata"])
    words = words[1:] if sparse else words
    if words[:2] != ["sync", "aligned"]:
        raise unsupported(instruction, "this form of mma is not supported")
    if len(instruction.operands) != (6 if sparse else 4):
        raise unsupported(
            instruction, "it takes D, A, B and C" + (", metadata and a selector" if sparse else "")
        )
    saturate = "satfinite" in words
    op = next((word for word in ("xor", "and") if word in words), "")
    words = [word for word in words[2:] if word not in ("satfinite", "xor", "and", "popc", "rn")]
    form = _form(instruction, words, instruction.operands[5] if sparse else None)
    _check_modifiers(instruction, form, saturate, op)
    groups = [items_of(operand) for operand in instruction.operands[: 5 if sparse else 4]]
    name = f"{instruction.name.replace('::', '_')}.{form.sparsity.first if form.sparsity else ''}"
    product(e, name, form, groups, saturate, op)


def product(
    e: Context, name: str, form: MmaForm, groups: list[tuple[Operand, ...]], saturate: bool, op: str
) -> None:
    """Multiply. ``groups`` are the registers of D, A, B and C, and the metadata of a sparse A."""
    d, a, b, c = groups[:4]
    for matrix, group, count in zip("DABC", groups, form.registers(), strict=False):
        if len(group) != count:
            raise unsupported(e.now, f"{len(group)} registers for {matrix} where it takes {count}")
    if name not in e.definitions:
        _define(e, name, form, saturate, op)
    places = OperandAddresses(e)
    listed = places.results(d, _REGISTER[form.d_type], c, _REGISTER[form.c_type])
    listed += places.of(a, _factor(form.a_type)) + places.of(b, _factor(form.b_type))
    for metadata in groups[4:]:
        listed += places.of(metadata, "b32")
    e.call(name, "void", *listed)
    places.write()


def _check_modifiers(instruction: Instruction, form: MmaForm, saturate: bool, op: str) -> None:
    bits = form.a_type == "b1"
    if bits != bool(op) or bits != ("popc" in instruction.parts):
        raise unsupported(instruction, "b1 takes and.popc or xor.popc, and no other type does")
    if saturate and (bits or form.d_type != "s32"):
        raise unsupported(instruction, "satfinite is for integers")
    if "rn" in instruction.parts and form.d_type != "f64":
        raise unsupported(instruction, "it does not say how to round")


# The type of a register of D or C; one of A or B is b32, but for f64.
_REGISTER = {"f16": "b32", "f32": "f32", "f64": "f64", "s32": "s32"}


def _factor(type_: str) -> str:
    return "f64" if type_ == "f64" else "b32"


def per_register(type_: str) -> int:
    """Elements of A, B, C or D in one register; b1 counts words."""
    bits = 16 if type_ == "f16" else ELEMENTS[type_].bits if type_ in ELEMENTS else 32
    return 32 // bits if 1 < bits < 32 else 1


# -- the function -----------------------------------------------------------------------------------
def _define(e: Context, name: str, form: MmaForm, saturate: bool, op: str) -> None:
    """Define the function that does an instruction: from addresses of C and D's registers, A's and B's."""
    inner = Emitter(e)
    d_count, a_count, b_count, c_count = form.registers()
    first = max(c_count, d_count)
    names = [f"%p{i}" for i in range(first + a_count + b_count + (1 if form.sparsity else 0))]
    sums, rest = names[:first], names[first:]
    a = _elements(inner, form.a_type, rest[:a_count])
    b = _elements(inner, form.b_type, rest[a_count : a_count + b_count])
    metadata = inner.load("<32 x i32>", rest[-1], 4) if form.sparsity else None
    steps = _steps(inner, form, a, b, metadata)
    start = _start(inner, form, sums)
    rule = rule_of(form.a_type, form.b_type, form.c_type, form.d_type, asynchronous=False)
    if rule and e.sums == "hardware" and form.k == _VOLTA and form.a_type == "f16":
        results = in_turn(inner, start, steps, form.d_type)
    elif rule and e.sums == "hardware":
        of_a, of_b = (
            [exponents(inner, number, type_) for number in listed]
            for listed, type_ in ((a, form.a_type), (b, form.b_type))
        )
        results = Sums(inner, rule).all(start, steps, _steps(inner, form, of_a, of_b, metadata))
    elif op:
        results = bit_counts(inner, start, steps, op)
    elif form.d_type == "s32":
        results = integer_sums(inner, start, steps, saturate)
    else:
        results = accumulate(inner, start, steps, ELEMENTS[form.a_type].exact)
    for place, value in zip(sums, encode(inner, form.d_type, results), strict=False):
        inner.store(value, place, 4)
    inner.line("ret void")
    e.define(name, "void", ", ".join(f"ptr {place}" for place in names), inner)


def _elements(e: Emitter, type_: str, places: list[str]) -> list[Value]:
    """A lane's elements of A or B, as numbers."""
    word = vector("double" if type_ == "f64" else "i32")
    registers = [e.load(word, place, 4) for place in places]
    parts = range(per_register(type_))
    return [ELEMENTS[type_].number(e, register, part) for register in registers for part in parts]


def _start(e: Emitter, form: MmaForm, places: list[str]) -> list[Value]:
    """C as the elements of D start from it."""
    word = vector(llvm_scalar(_REGISTER[form.c_type]))
    count = form.d_count // per_register(form.c_type)
    elements = decode(e, form.c_type, [e.load(word, place, 4) for place in places[:count]])
    if form.c is form.d:
        return elements
    where = holders(form.c, form.d_count)
    return [
        gathered(e, elements, [where[form.d(lane, index)] for lane in range(32)])
        for index in range(form.d_count)
    ]


def _steps(
    e: Emitter, form: MmaForm, a: list[Value], b: list[Value], metadata: Value | None
) -> list[list[tuple[Value, Value]]]:
    """For every k: what each lane multiplies, for each of its elements of D."""
    in_a, in_b = holders(form.a, form.a_count), holders(form.b, form.b_count)
    brought: dict[tuple[str, tuple[Pick, ...]], Value] = {}

    def bring(name: str, parts: list[Value], picks: list[Pick]) -> Value:
        key = (name, tuple(picks))
        if key not in brought:
            brought[key] = gathered(e, parts, picks)
        return brought[key]

    def right(places: list[Place], k: int) -> Value:
        return bring("b", b, [in_b[product, k, column] for product, _, column in places])

    steps = []
    for k in range(form.k):
        pairs = []
        for index in range(form.d_count):
            places = [form.d(lane, index) for lane in range(32)]
            left = bring("a", a, [in_a[product, row, k] for product, row, _ in places])
            if form.sparsity and metadata:
                options = [right(places, option) for option in form.sparsity.options(k)]
                pairs.append((left, form.sparsity.chosen(e, metadata, k, index >= 2, options)))
            else:
                pairs.append((left, right(places, k)))
        steps.append(pairs)
    return steps


def gathered(e: Emitter, parts: list[Value], picks: list[Pick]) -> Value:
    """For each lane, the element that it is to have, out of several vectors."""
    first, *others = sorted({index for index, _ in picks})
    found = e.shuffle(parts[first], [lane for _, lane in picks])
    for name in others:
        # Lanes that take theirs from this vector; the others keep what they have.
        chosen = [32 + lane if index == name else own for own, (index, lane) in enumerate(picks)]
        found = e.shuffle(found, chosen, parts[name])
    return found
