"""Part B: matrix instructions on inputs that show how sums are aligned, rounded and grouped.

A kernel has one warp for each tile, which loads its registers, runs one instruction and stores D.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tests.hardware.floats import FORMATS, Format
from tests.hardware.job import Array, Job, Raw, Start, digest
from tests.harness.fragments import BITS, Form, Layout

__all__ = ["DESIGNS", "TILES", "forms", "job", "jobs", "key", "matrices", "pack_all", "unpack_all"]

TILES = 24  # of each design
INTEGER_TILES = 24

# Exponents of "wide", so that products and their sums do not overflow.
_SPAN = {"f16": 14, "bf16": 50, "tf32": 50, "e4m3": 8, "e5m2": 14, "f64": 400}
DESIGNS = ("near", "wide", "shifts", "cancel", "tiny", "special", "huge", "two", "one", "positive")

Tiles = tuple[Array, Array, Array]


# -- forms ------------------------------------------------------------------------------------------
def forms() -> list[Form]:
    """Every form that sm_90 has."""
    return [*_float_forms(), *_sparse_forms(), *_integer_forms()]


def _float_forms() -> list[Form]:
    found = [Form(f"m16n8k{k}", acc, "f16", "f16", acc) for k in (8, 16) for acc in ("f16", "f32")]
    found += [Form(f"m16n8k{k}", "f32", "bf16", "bf16", "f32") for k in (8, 16)]
    found += [Form(f"m16n8k{k}", "f32", "tf32", "tf32", "f32") for k in (4, 8)]
    found += [
        Form(shape, "f64", "f64", "f64", "f64") for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")
    ]
    eights = [(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
    found += [Form("m16n8k32", "f32", a, b, "f32") for a, b in eights]
    found += [Form("m16n8k16", "f32", a, a, "f32") for a in ("e4m3", "e5m2")]
    found += [Form(f"m16n8k{k}", "f16", a, a, "f16") for k in (16, 32) for a in ("e4m3", "e5m2")]
    volta = (("f16", "f16"), ("f32", "f16"), ("f32", "f32"))
    found += [Form("m8n8k4", d, "f16", "f16", c, ways="row.col") for d, c in volta]
    return [*found, Form("m8n8k4", "f32", "f16", "f16", "f32", ways="col.row")]


def _sparse_forms() -> list[Form]:
    table = [
        ("m16n8k16", "f16", "f16", 0), ("m16n8k32", "f16", "f32", 1), ("m16n8k16", "f16", "f32", 3),
        ("m16n8k16", "bf16", "f32", 2), ("m16n8k32", "bf16", "f32", 0), ("m16n8k8", "tf32", "f32", 3),
        ("m16n8k16", "tf32", "f32", 1), ("m16n8k64", "e4m3", "f32", 0), ("m16n8k64", "e5m2", "f32", 0),
        ("m16n8k32", "s8", "s32", 1), ("m16n8k64", "u8", "s32", 0), ("m16n8k64", "s4", "s32", 1),
        ("m16n8k128", "u4", "s32", 0),
    ]  # fmt: skip
    word = "sp::ordered_metadata"
    return [Form(shape, acc, a, a, acc, sparse=word, selector=which) for shape, a, acc, which in table]


def _integer_forms() -> list[Form]:
    found = []
    for bits, shapes in ((8, ("m8n8k16", "m16n8k16", "m16n8k32")), (4, ("m8n8k32", "m16n8k32", "m16n8k64"))):
        for shape in shapes:
            for a, b, after in (
                ("s", "s", "satfinite"),
                ("u", "s", ""),
                ("s", "u", "satfinite"),
                ("u", "u", ""),
            ):
                found.append(Form(shape, "s32", f"{a}{bits}", f"{b}{bits}", "s32", after=after))
    shapes = ("m8n8k128", "m16n8k128", "m16n8k256")
    return found + [
        Form(s, "s32", "b1", "b1", "s32", end=f"{op}.popc") for s in shapes for op in ("and", "xor")
    ]


def key(form: Form) -> str:
    """A name for files."""
    return form.name.replace("::", "_") + (f".{form.selector}" if form.sparse else "")


# -- registers --------------------------------------------------------------------------------------
def _places(type_: str, layout: Layout, registers: int) -> tuple[Array, Array, Array, Array, Array]:
    """Of each element of each lane: row, column, register, lane and the bit it begins at."""
    bits, width = BITS[type_], 64 if type_ == "f64" else 32
    count = registers * width // bits
    listed = [
        (*layout(lane, i), i * bits // width, lane, i * bits % width)
        for lane in range(32)
        for i in range(count)
    ]
    row, column, register, own, bit = np.array(listed).T
    return row, column, register, own, bit.astype(np.uint64)


def pack_all(matrices: Array, type_: str, layout: Layout, registers: int) -> Array:
    """The registers of warps that hold matrices of bits: [tile][register][lane]."""
    row, column, register, lane, bit = _places(type_, layout, registers)
    words = np.zeros((len(matrices), registers, 32), np.uint64)
    elements = matrices[:, row, column] << bit
    for at in np.unique(bit):
        some = bit == at
        words[:, register[some], lane[some]] |= elements[:, some]
    return words.astype("u8" if type_ == "f64" else "u4")


def unpack_all(words: Array, type_: str, layout: Layout, shape: tuple[int, int]) -> Array:
    """The matrices of bits that registers hold."""
    row, column, register, lane, bit = _places(type_, layout, words.shape[1])
    found = np.zeros((len(words), *shape), np.uint64)
    found[:, row, column] = words.astype(np.uint64)[:, register, lane] >> bit & np.uint64(
        (1 << BITS[type_]) - 1
    )
    return found


# -- inputs -----------------------------------------------------------------------------------------
def matrices(form: Form) -> tuple[Array, Array, Array, Array]:
    """A, B and C of every tile as bits, and the metadata of a sparse form, a word for each lane."""
    raw = Raw(int(digest(key(form))[:8], 16))
    shapes = (form.m, form.kept), (form.k, form.n), (form.m, 8 if form.volta else form.n)
    if form.a not in FORMATS:
        types = (form.a, form.b, form.c)
        a, b, c = (
            _integers(raw, type_, (INTEGER_TILES, *shape)) for type_, shape in zip(types, shapes, strict=True)
        )
    else:
        designs = [_design(raw, form, name, shapes) for name in DESIGNS]
        a, b, c = (np.concatenate(part) for part in zip(*designs, strict=True))
    if form.a == "tf32":  # whose last digits do not count
        a, b = (part | raw.words(*part.shape) >> np.uint64(51) for part in (a, b))
    return a, b, c, _metadata(raw, form, len(a))


def _integers(raw: Raw, type_: str, shape: tuple[int, ...]) -> Array:
    bits = {"s32": 32, "b1": 1}.get(type_) or int(type_[1:])
    found = raw.words(*shape) >> np.uint64(64 - bits)
    if type_ == "s32":  # half of them near the ends, where sums saturate
        ends = raw.choice([0x7FFF_FF00, 0x8000_0000], *shape).astype(np.uint64) + (found & np.uint64(255))
        found = np.where(raw.below(2, *shape) == 1, ends, found)
    return found


def _design(raw: Raw, form: Form, name: str, shapes: Sequence[tuple[int, int]]) -> Tiles:
    """A, B and C of the tiles of a design."""
    of_a, of_b, of_c = (FORMATS[type_] for type_ in (form.a, form.b, form.c))
    in_a, in_b, in_c = ((TILES, *shape) for shape in shapes)
    span_a, span_b = _SPAN[form.a], _SPAN[form.b]
    # What a sum in f16 bears is less than what products of f16 can be.
    span_a, span_b = (min(span, 6) if form.d == "f16" else span for span in (span_a, span_b))

    def made(a: int, b: int, low: int, high: int, signs: bool = True) -> Tiles:
        return (
            of_a.make(raw, -a, a, in_a, signs), of_b.make(raw, -b, b, in_b, signs),
            of_c.make(raw, low, high, in_c, signs),
        )  # fmt: skip

    if name == "near":
        return made(2, 2, -3, 5)
    if name == "positive":
        return made(3, 3, -3, 5, signs=False)
    if name == "wide":
        return made(span_a, span_b, -span_a - span_b, span_a + span_b)
    if name == "shifts":
        return made(min(span_a, 7), min(span_b, 7), -30, 30)
    if name == "cancel":
        return _cancelling(raw, made(min(span_a, 5), min(span_b, 5), -30, 8), of_b)
    if name == "tiny":
        return _tiny(raw, (of_a, of_b, of_c), (in_a, in_b, in_c))
    if name == "special":
        tiles = made(2, 2, -3, 5)
        a, b, c = (_sprinkled(raw, part, of) for part, of in zip(tiles, (of_a, of_b, of_c), strict=True))
        return a, b, c
    if name == "huge":
        a, b = of_a.make(raw, of_a.most - 1, of_a.most, in_a), of_b.make(raw, of_b.most - 1, of_b.most, in_b)
        few = raw.below(8, *in_a) == 0
        return (
            np.where(few, a, of_a.make(raw, -3, 3, in_a)),
            b,
            of_c.make(raw, of_c.most - 2, of_c.most, in_c),
        )
    # What has one or two products, and all the rest zero.
    count = 1 if name == "one" else 2
    a, b, c = made(min(span_a, 15), min(span_b, 15), -35, 35)
    return _sparse_rows(raw, a, count), b, np.where(raw.below(2, *in_c) == 1, c, 0) if count == 2 else c


def _cancelling(raw: Raw, tiles: Tiles, of_b: Format) -> Tiles:
    """Products that take each other away but for a last digit, at random places of k."""
    a, b, c = tiles
    half = min(a.shape[2], b.shape[1]) // 2
    for tile in range(len(a)):
        order = np.argsort(raw.words(a.shape[2]))
        one, other = order[:half], order[half : 2 * half]
        sign = a[tile].max() & ~a[tile].max() >> np.uint64(1)  # at least the highest bit that is used
        top = np.uint64(1) << np.uint64(int(sign).bit_length() - 1)
        a[tile][:, other] = a[tile][:, one] ^ top
        flips = (raw.below(3, half, b.shape[2]) == 0).astype(np.uint64) << np.uint64(of_b.shift)
        b[tile][other] = b[tile][one] ^ flips
    return a, b, np.where(raw.below(3, *c.shape) == 0, 0, c)


def _tiny(raw: Raw, of: Sequence[Format], shapes: Sequence[tuple[int, ...]]) -> Tiles:
    """Subnormal numbers and small ones; C such that they count."""
    of_a, of_b, of_c = of
    a = of_a.join(raw, raw.below(3, *shapes[0]))
    b = of_b.join(raw, raw.below(3, *shapes[1]))
    half = len(b) // 2  # of the second half, each product is within reach of C's smallest
    lift = 1 if of_b.exponent < 8 else of_b.bias
    b[half:] = of_b.join(raw, raw.below(4, half, *shapes[1][1:]) + lift)
    around = of_a.least + of_b.least
    c = np.where(raw.below(2, *shapes[2]) == 1, of_c.join(raw, raw.below(3, *shapes[2])),
                 of_c.make(raw, around - 4, around + 8, shapes[2]))  # fmt: skip
    return a, b, c


def _sprinkled(raw: Raw, values: Array, of: Format) -> Array:
    return np.where(raw.below(24, *values.shape) == 0, of.special(raw, values.shape), values)


def _sparse_rows(raw: Raw, a: Array, count: int) -> Array:
    """All but ``count`` elements of each row set to zero."""
    order = np.argsort(raw.words(*a.shape), axis=2)
    kept = np.zeros(a.shape, bool)
    np.put_along_axis(kept, order[:, :, :count], True, axis=2)
    return np.where(kept, a, 0)


def _metadata(raw: Raw, form: Form, tiles: int) -> Array:
    """A word for each lane, of which every four bits are what they may be."""
    may = [0b0100, 0b1110] if BITS[form.a] == 32 else [0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110]
    fields = raw.choice(may, tiles, 32, 8) << (4 * np.arange(8))
    found: Array = fields.sum(axis=2).astype(np.uint32)
    return found


# -- kernels ----------------------------------------------------------------------------------------
def jobs(which: str = "") -> Iterator[Job]:
    """The job of every form whose name has ``which`` in it."""
    return (job(form) for form in forms() if which in key(form))


def job(form: Form) -> Job:
    a, b, c, metadata = matrices(form)
    given = zip("abc", (a, b, c), strict=True)
    buffers = {
        name: pack_all(values, getattr(form, name), form.layout(name), form.registers(name))
        for name, values in given
    }
    buffers["e"] = metadata
    buffers["d"] = np.zeros((len(a), form.registers("d"), 32), "u8" if form.d == "f64" else "u4")
    start = Start("k", (len(a), 1, 1), (32, 1, 1), ("a", "b", "c", "e", "d"))
    return Job(key(form), _text(form), [start], buffers, ["d"])


def _text(form: Form) -> str:
    wide = form.a == "f64"
    size = 8 if wide else 4
    counts = {name: form.registers(name) for name in "abcd"}
    lines = [
        ".version 9.0", ".target sm_90", ".address_size 64",
        ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pe, .param .u64 pd) {",
        ".reg .b32 %lane, %tile, %e; .reg .b64 %p, %o;",
        *(f".reg .{_type(getattr(form, name))} %{name}<{counts[name]}>;" for name in "abcd"),
        "mov.u32 %lane, %tid.x; mov.u32 %tile, %ctaid.x;",
    ]  # fmt: skip

    def place(name: str, count: int, each: int) -> None:
        lines.append(
            f"ld.param.u64 %p, [p{name}]; mul.wide.u32 %o, %tile, {count * 32 * each}; add.s64 %p, %p, %o;"
        )
        lines.append(f"mul.wide.u32 %o, %lane, {each}; add.s64 %p, %p, %o;")

    for name in "abc":
        place(name, counts[name], size)
        kind = _type(getattr(form, name))
        lines += [f"ld.global.{kind} %{name}{i}, [%p+{32 * size * i}];" for i in range(counts[name])]
    place("e", 1, 4)
    lines.append("ld.global.b32 %e, [%p];")
    groups = ", ".join(f"{{{', '.join(f'%{name}{i}' for i in range(counts[name]))}}}" for name in "dabc")
    lines.append(f"{form.name} {groups}{f', %e, {form.selector}' if form.sparse else ''};")
    place("d", counts["d"], size)
    kind = _type(form.d)
    lines += [f"st.global.{kind} [%p+{32 * size * i}], %d{i};" for i in range(counts["d"])]
    return "\n".join([*lines, "ret;", "}", ""])


def _type(type_: str) -> str:
    return {"f64": "f64", "f32": "f32"}.get(type_, "b32")
