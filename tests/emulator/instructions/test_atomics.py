"""Atomic operations: every lane in turn, against models in plain integers and exact arithmetic."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

import tilewise as tw
from tests.harness.exact import FORMATS, Number, Special, decode, round_to
from tests.harness.lanes import Array, entry
from tilewise.errors import KernelFault, PtxError

BINS = 4  # fewer than lanes: lanes meet at the same place
SPACES = ["global", "shared", "", "generic shared"]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


# -- models -------------------------------------------------------------------------------------------------
def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def integer_model(op: str, type_: str, bits: int) -> Callable[[int, int, int], int]:
    def compute(old: int, b: int, c: int) -> int:
        x, y = (signed(old, bits), signed(b, bits)) if type_[0] == "s" else (old, b)
        return {
            "add": x + y,
            "min": min(x, y),
            "max": max(x, y),
            "and": x & y,
            "or": x | y,
            "xor": x ^ y,
            "exch": y,
            "cas": c if old == b else old,
            "inc": 0 if x >= y else x + 1,
            "dec": y if x == 0 or x > y else x - 1,
        }[op] % (1 << bits)

    return compute


def real_model(op: str, type_: str, flushes: bool) -> Callable[[int, int, int], int]:
    """One element of f16, bf16, f32 or f64."""
    form = FORMATS[type_]
    nan = {"f32": 0x7FFF_FFFF, "f64": None}.get(type_, 0x7FFF)

    def flush(bits: int) -> int:
        tiny = flushes and bits & form.infinity == 0
        return bits & form.sign if tiny else bits

    def add(old: int, b: int) -> int | None:
        x, y = decode(flush(old), form), decode(flush(b), form)
        if isinstance(x, Special) or isinstance(y, Special):
            signs = {n.sign for n in (x, y) if isinstance(n, Special)}
            return nan if signs not in ({1}, {-1}) else form.infinity | (form.sign if signs == {-1} else 0)
        total = x.value + y.value
        negative = total < 0 if total else x.negative and y.negative
        bits = round_to(Number(total, negative), form)
        return nan if bits is None else flush(bits)

    def extreme(old: int, b: int) -> int:
        both = [bits for bits in (old, b) if bits & (form.sign - 1) <= form.infinity]
        order = sorted(both, key=lambda bits: -(bits & (form.sign - 1)) - 1 if bits & form.sign else bits)
        return nan if not order else order[0 if op == "min" else -1]  # type: ignore[return-value]

    return lambda old, b, c: add(old, b) if op == "add" else extreme(old, b)  # type: ignore[return-value]


class Case(NamedTuple):
    op: str
    type: str
    elements: int = 1

    @property
    def element_bits(self) -> int:  # of what a register holds
        return {"f16x2": 32, "bf16x2": 32}.get(self.type) or int(re.sub(r"\D", "", self.type))

    @property
    def size(self) -> int:
        return self.elements * self.element_bits // 8

    def new(self, space: str, old: int, b: int, c: int) -> int:
        """The bits of one element as a register holds it."""
        kind = self.type.removesuffix("x2")
        if kind not in FORMATS:
            return integer_model(self.op, self.type, self.element_bits)(old, b, c)
        model = real_model(self.op, kind, self.type == "f32" and space == "global")
        if kind == self.type:
            return model(old, b, c)
        return sum(model(old >> s & 0xFFFF, b >> s & 0xFFFF, 0) << s for s in (0, 16))


WORDS = [Case(op, type_) for op in ("add", "min", "max") for type_ in ("u32", "s32", "u64", "s64")]
WORDS += [Case(op, type_) for op in ("and", "or", "xor", "exch", "cas") for type_ in ("b32", "b64")]
WORDS += [
    Case("inc", "u32"),
    Case("dec", "u32"),
    Case("cas", "b16"),
    Case("cas", "b128"),
    Case("exch", "b128"),
]
REALS = [Case("add", type_) for type_ in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")]
VECTORS = [Case("add", "f32", 2), Case("add", "f32", 4)]
VECTORS += [
    Case(op, type_, n) for op in ("add", "min", "max") for type_ in ("f16", "bf16") for n in (2, 4, 8)
]
VECTORS += [
    Case(op, type_, n) for op in ("add", "min", "max") for type_ in ("f16x2", "bf16x2") for n in (2, 4)
]


# -- the kernel -----------------------------------------------------------------------------------------------
def snippet(case: Case, space: str, number: int, red: bool) -> str:
    """One operation in its own scope: place, operands and old value at 16 bytes for each lane."""
    bits = case.element_bits
    names = {name: [f"%{name}{i}" for i in range(case.elements)] for name in ("d", "b", "c")}
    every = ", ".join(name for part in names.values() for name in part)
    lines = [
        "{",
        f".reg .b{bits} {every};",
        f".reg .b64 %half<8>; ld.global.u32 %bin, [%index+{128 * number}];",
    ]
    lines.append(f"mul.wide.u32 %place, %bin, {case.size}; add.u64 %place, %place, {16 * BINS * number};")
    lines.append(
        {
            "global": "add.u64 %place, %place, %memory;",
            "shared": "add.u64 %place, %place, %table;",
            "": "add.u64 %place, %place, %memory;",
            "generic shared": "add.u64 %place, %place, %table; cvta.shared.u64 %place, %place;",
        }[space]
    )
    for name, at in (("b", 0), ("c", 512)):
        for i, register in enumerate(names[name]):
            where = f"[%operands+{1024 * number + at + i * bits // 8}]"
            if bits == 128:
                lines.append(
                    f"ld.global.v2.u64 {{%half0, %half1}}, {where}; mov.b128 {register}, {{%half0, %half1}};"
                )
            else:
                lines.append(f"ld.global.b{bits} {register}, {where};")
    d, b, c = (f"{{{', '.join(names[n])}}}" if case.elements > 1 else names[n][0] for n in "dbc")
    parts = [
        "red" if red else "atom",
        *([] if space.startswith("generic") or not space else [space]),
        case.op,
    ]
    parts += [f"v{case.elements}"] if case.elements > 1 else []
    parts += ["noftz"] if "f16" in case.type else []
    word = ".".join([*parts, case.type])
    if number % 2:
        word = word.replace(".shared.", ".shared::cta.")
    lines.append(f"{word} {'' if red else d + ', '}[%place], {b}{', ' + c if case.op == 'cas' else ''};")
    for i, register in enumerate(names["d"] if not red else []):
        where = f"[%old+{512 * number + i * bits // 8}]"
        if bits == 128:
            lines.append(
                f"mov.b128 {{%half0, %half1}}, {register}; st.global.v2.u64 {where}, {{%half0, %half1}};"
            )
        else:
            lines.append(f"st.global.b{bits} {where}, {register};")
    return "\n".join([*lines, "}"])


def kernel_text(cases: Sequence[Case], space: str, red: bool, guard: bool) -> str:
    total = 16 * BINS * len(cases)
    body = [
        ".reg .b64 %memory, %index, %operands, %old, %place, %table, %o, %l; .reg .b32 %lane, %bin; .reg .pred %p;",
        f".shared .align 16 .b8 copy[{total}];",
        "ld.param.u64 %memory, [p0]; ld.param.u64 %index, [p1]; ld.param.u64 %operands, [p2]; ld.param.u64 %old, [p3];",
        "mov.u32 %lane, %laneid; mul.wide.u32 %o, %lane, 4; add.u64 %index, %index, %o;",
        "mul.wide.u32 %o, %lane, 16; add.u64 %operands, %operands, %o; add.u64 %old, %old, %o; mov.u64 %table, copy;",
    ]
    shared = "shared" in space
    each = ".reg .b64 %from, %to, %left; .reg .b32 %w;"
    loop = "mul.wide.u32 %o, %lane, 4; add.u64 %from, {a}, %o; add.u64 %to, {b}, %o; mov.u64 %left, %o;"
    turn = "{n}: setp.ge.u64 %p, %left, {t}; @%p bra {n}_end; ld.{x}.u32 %w, [%from]; st.{y}.u32 [%to], %w;"
    back = "add.u64 %from, %from, 128; add.u64 %to, %to, 128; add.u64 %left, %left, 128; bra {n}; {n}_end: bar.sync 0;"
    body.append(each)
    if shared:
        body.append(
            loop.format(a="%memory", b="%table") + turn.format(n="in", t=total, x="global", y="shared")
        )
        body.append(back.format(n="in"))
    if guard:
        body.append("and.b32 %bin, %lane, 1; setp.eq.u32 %p, %bin, 0; @%p bra skip;")
    body += [snippet(case, space, i, red) for i, case in enumerate(cases)]
    body.append("skip: bar.sync 0;")
    if shared:
        body.append(
            loop.format(a="%table", b="%memory") + turn.format(n="out", t=total, x="shared", y="global")
        )
        body.append(back.format(n="out"))
    return entry("\n".join(body), ", ".join(f".param .u64 p{i}" for i in range(4)))


def bits_for(case: Case, rng: np.random.Generator, count: int) -> Array:
    """Random operands, many of them special."""
    raw = rng.integers(0, 256, (count, case.size), dtype=np.uint8)
    kind = case.type.removesuffix("x2")
    if kind in FORMATS:
        form, width = FORMATS[kind], FORMATS[kind].bits // 8
        edges = [0, form.sign, 1, form.sign | 1, form.infinity, form.sign | form.infinity, form.largest]
        edges += [form.infinity + 1, 1 << form.fraction, (1 << form.fraction) - 1, form.bias << form.fraction]
        values = raw.view(f"u{width}")
        mild = form.bias << form.fraction ^ values & ((1 << (form.fraction + 3)) - 1) | (values & form.sign)
        pick = rng.random(values.shape)
        chosen = np.where(pick < 0.25, rng.choice(np.array(edges, values.dtype), values.shape), values)
        return (
            np.where(pick > 0.5, mild.astype(values.dtype), chosen).view(np.uint8).reshape(count, case.size)
        )
    few = rng.random(count) < 0.5  # small numbers, so that some compare equal
    raw[few] = 0
    raw[few, 0] = rng.integers(0, 3, int(few.sum()))
    return raw


def check(
    cases: Sequence[Case], space: str, rng: np.random.Generator, red: bool = False, guard: bool = False
) -> None:
    memory = np.zeros((len(cases), 16 * BINS), np.uint8)
    index = rng.integers(0, BINS, (len(cases), 32)).astype(np.uint32)
    operands = np.zeros((len(cases), 2, 32, 16), np.uint8)
    old = np.full((len(cases), 32, 16), 0xEE, np.uint8)
    for i, case in enumerate(cases):
        memory[i, : BINS * case.size] = bits_for(case, rng, BINS).ravel()
        operands[i, 0, :, : case.size] = bits_for(case, rng, 32)
        operands[i, 1, :, : case.size] = bits_for(case, rng, 32)
    wanted_memory, wanted_old = memory.copy(), old.copy()
    for i, case in enumerate(cases):
        width = case.element_bits // 8
        for lane in range(32):
            if guard and lane % 2 == 0:
                continue
            for part in range(case.elements):
                at = int(index[i, lane]) * case.size + part * width
                cell = wanted_memory[i, at : at + width]
                b, c = (operands[i, n, lane, part * width : (part + 1) * width] for n in (0, 1))
                if not red:
                    wanted_old[i, lane, part * width : (part + 1) * width] = cell
                numbers = [int.from_bytes(x.tobytes(), "little") for x in (cell, b, c)]
                result = case.new("shared" if "shared" in space else "global", *numbers)
                if result is None:  # f64's NaN: any
                    result = 0x7FF8_0000_0000_0000
                cell[:] = np.frombuffer(result.to_bytes(width, "little"), np.uint8)
    text = kernel_text(cases, space, red, guard)
    tw.Kernel.from_ptx(text, "k")(1, 32, [memory, index, operands, old], device="emulator")
    for i, case in enumerate(cases):
        context = f"{case} in {space or 'generic'}"
        if case.type == "f64":
            for got, want in ((memory[i], wanted_memory[i]), (old[i], wanted_old[i])):
                np.testing.assert_array_equal(plain(got), plain(want), context)
        else:
            np.testing.assert_array_equal(memory[i], wanted_memory[i], context)
            np.testing.assert_array_equal(old[i], wanted_old[i], context)


def plain(data: Array) -> Array:
    """f64 with one NaN for all."""
    values = np.ascontiguousarray(data).view(np.float64).copy()
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


# -- tests ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("space", SPACES)
def test_every_operation_tells_what_was_there(space: str, rng: np.random.Generator) -> None:
    check([*WORDS, *REALS], space, rng)


@pytest.mark.parametrize("space", ["global", "shared"])
def test_reductions_change_memory(space: str, rng: np.random.Generator) -> None:
    check([case for case in (*WORDS, *REALS) if case.op not in ("exch", "cas")], space, rng, red=True)


@pytest.mark.parametrize(("space", "red"), [("global", False), ("", True)])
def test_vectors(space: str, red: bool, rng: np.random.Generator) -> None:
    check(VECTORS, space, rng, red=red)


def test_one_operation_in_every_space_of_one_kernel() -> None:
    """Each finds its own memory: at an address that is the same to look at, and in a window."""
    text = entry(
        """.shared .b32 room; .reg .b32 %r<9>; .reg .b64 %d<9>;
ld.param.u64 %d1, [out]; mov.u32 %r1, room; mov.b32 %r2, 0; st.shared.b32 [%r1], %r2;
cvt.u64.u32 %d2, %r1; cvta.shared.u64 %d2, %d2; bar.sync 0;
atom.shared.add.u32 %r3, [%r1], 1; atom.add.u32 %r3, [%d2], 2; atom.shared::cluster.add.u32 %r3, [%r1], 4;
atom.global.add.u32 %r3, [%d1], 8; atom.add.u32 %r3, [%d1], 16; bar.sync 0;
ld.shared.u32 %r4, [%r1]; st.global.u32 [%d1+4], %r4;""",
        ".param .u64 out",
    )
    out = np.zeros(2, np.uint32)
    tw.Kernel.from_ptx(text, "k")(1, 32, [out], device="emulator")
    assert out.tolist() == [32 * (8 + 16), 32 * (1 + 2 + 4)]


def test_subnormal_sums_are_zeros_in_global_memory_however_it_is_named() -> None:
    text = entry(
        """.shared .align 4 .b32 room[2]; .reg .b32 %r<9>; .reg .f32 %f; .reg .b64 %d<9>;
ld.param.u64 %d1, [out]; mov.u32 %r1, room; mov.b32 %r2, 1; st.shared.b32 [%r1], %r2; st.shared.b32 [%r1+4], %r2;
cvt.u64.u32 %d2, %r1; cvta.shared.u64 %d2, %d2; mov.b32 %f, %r2;
atom.shared.add.f32 %f, [%r1], %f; atom.add.f32 %f, [%d2+4], %f;
atom.global.add.f32 %f, [%d1], %f; atom.add.f32 %f, [%d1+4], %f;
ld.shared.u32 %r3, [%r1]; st.global.u32 [%d1+8], %r3; ld.shared.u32 %r3, [%r1+4]; st.global.u32 [%d1+12], %r3;""",
        ".param .u64 out",
    )
    out = np.array([1, 1, 0, 0], np.uint32)
    tw.Kernel.from_ptx(text, "k")(1, 1, [out], device="emulator")
    assert out.tolist() == [0, 0, 2, 2]


# What is in memory, what is added to it, and their sum where subnormal numbers count as zeros, and where they do not.
SMALL_SUMS = [
    (0x0080_0000, 0x0000_0001, 0x0080_0000, 0x0080_0001),
    (0x0080_0000, 0x807F_FFFF, 0x0080_0000, 0x0000_0001),
    (0x0000_0001, 0x0080_0000, 0x0080_0000, 0x0080_0001),
    (0x8000_0001, 0x8080_0000, 0x8080_0000, 0x8080_0001),
    (0x0040_0000, 0x0040_0000, 0x0000_0000, 0x0080_0000),
    (0x0080_0001, 0x8080_0000, 0x0000_0000, 0x0000_0001),
]


@pytest.mark.parametrize("opcode", ["atom", "red"])
@pytest.mark.parametrize("way", ["global", "global.v2", "shared"])
def test_subnormal_operands_of_sums_count_in_shared_memory_alone(way: str, opcode: str) -> None:
    """Beside the smallest normal numbers, where one that is left out shows in the sum."""
    space, _, vector = way.partition(".")
    value, old = ("{%f, %f}", "{%g, %g}") if vector else ("%f", "%g")
    word = f"{opcode}.{space}.add{'.v2' if vector else ''}.f32"
    text = entry(
        f""".shared .align 8 .b32 room[2]; .reg .b32 %t, %r; .reg .f32 %f, %g; .reg .b64 %at, %add, %o, %place;
mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 8; ld.param.u64 %at, [out]; add.u64 %at, %at, %o;
ld.param.u64 %add, [add]; add.u64 %add, %add, %o; ld.global.f32 %f, [%add];
{"mov.u64 %place, room; ld.global.u32 %r, [%at]; st.shared.u32 [room], %r;" if space == "shared" else "mov.u64 %place, %at;"}
{word} {old + ", " if opcode == "atom" else ""}[%place], {value};
{"ld.shared.u32 %r, [room]; st.global.u32 [%at], %r;" if space == "shared" else ""}""",
        ".param .u64 out, .param .u64 add",
    )
    kernel = tw.Kernel.from_ptx(text, "k")
    for before, added, flushed, whole in SMALL_SUMS:
        out, given = np.array([before, before], np.uint32), np.array([added, 0], np.uint32)
        kernel(1, 1, [out, given], device="emulator")
        assert out[0] == (whole if space == "shared" else flushed), (hex(before), hex(added))


@pytest.mark.parametrize("space", SPACES)
def test_of_sums_every_nan_is_the_one_that_gpus_give(space: str) -> None:
    """Whatever digits the NaN has that is there or is added; and where infinities meet there is one, too."""
    pairs = [
        (0xFFC1_2345, 0x3F80_0000),
        (0x3F80_0000, 0x7FC0_0001),
        (0x7F80_0001, 0xFFC0_0001),
        (0x7F80_0000, 0xFF80_0000),
    ]
    address = {"": "%at", "global": "%at", "shared": "%there", "generic shared": "%window"}[space]
    word = ".".join(part for part in ("red", "" if "generic" in space else space, "add.f32") if part)
    text = entry(
        f""".shared .align 4 .b32 room[32]; .reg .b32 %t, %r; .reg .f32 %f; .reg .b64 %at, %add, %o, %there, %window;
mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; ld.param.u64 %at, [out]; add.u64 %at, %at, %o;
ld.param.u64 %add, [add]; add.u64 %add, %add, %o; ld.global.f32 %f, [%add]; mov.u64 %there, room; add.u64 %there, %there, %o;
cvta.shared.u64 %window, %there; ld.global.u32 %r, [%at]; st.shared.u32 [%there], %r; {word} [{address}], %f;
{"ld.shared.u32 %r, [%there]; st.global.u32 [%at], %r;" if "shared" in space else ""}""",
        ".param .u64 out, .param .u64 add",
    )
    out, added = (np.array(column, np.uint32) for column in zip(*pairs, strict=True))
    tw.Kernel.from_ptx(text, "k")(1, len(pairs), [out, added], device="emulator")
    assert [hex(bits) for bits in out] == ["0x7fffffff"] * len(pairs)


def test_a_variable_says_in_which_space_it_is() -> None:
    """Where the instruction itself names none."""
    text = entry(
        """.shared .align 16 .b32 before[4]; .shared .b32 here; .reg .b32 %r<3>; .reg .b64 %d<2>;
ld.param.u64 %d1, [out]; mov.b32 %r1, 5; st.shared.b32 [here], %r1; st.global.b32 [there], %r1; bar.sync 0;
atom.add.u32 %r1, [here], 2; atom.add.u32 %r1, [there], 3; bar.sync 0;
ld.shared.b32 %r1, [here]; st.global.b32 [%d1], %r1; ld.global.b32 %r1, [there]; st.global.b32 [%d1+4], %r1;""",
        ".param .u64 out",
        ".global .b32 there;",
    )
    out = np.zeros(2, np.uint32)
    tw.Kernel.from_ptx(text, "k")(1, 32, [out], device="emulator")
    assert out.tolist() == [5 + 32 * 2, 5 + 32 * 3]


@pytest.mark.parametrize("word", ["add.u32", "min.s64", "exch.b64", "add.v2.f32", "add.v4.f32"])
def test_an_array_ends_where_it_does_however_often_it_was_found(word: str) -> None:
    """It lacks one byte of what the last lane changes, the turn before was in its bounds."""
    type_ = word.split(".")[-1]
    bits, count = int(type_[1:]), int(word.split(".")[1][1:]) if ".v" in word else 1
    size = count * bits // 8
    old, given = (f"{{{', '.join([name] * count)}}}" if count > 1 else name for name in ("%old", "%b"))
    text = entry(
        f""".reg .b{bits} %b, %old; .reg .b32 %turn; .reg .b64 %at; .reg .pred %p; mov.b{bits} %b, 0; mov.u32 %turn, 0;
ld.param.u64 %at, [p];
again: atom.global.{word} {old}, [%at], {given}; add.u64 %at, %at, {size};
add.u32 %turn, %turn, 1; setp.lt.u32 %p, %turn, 3; @%p bra again;""",
        ".param .u64 p",
    )
    kernel = tw.Kernel.from_ptx(text, "k")
    kernel(1, 1, [np.zeros(3 * size, np.uint8)], device="emulator")
    with pytest.raises(KernelFault, match=f"out-of-bounds write of {size} bytes"):
        kernel(1, 1, [np.zeros(3 * size - 1, np.uint8)], device="emulator")


def test_lanes_apart_change_only_their_own(rng: np.random.Generator) -> None:
    check([*WORDS, *REALS], "global", rng, guard=True)


def test_every_spelling_is_understood() -> None:
    """Order, scope, cache hints, modifiers behind the type, sinks, and immediate operands."""
    body = """
.reg .b64 %at, %policy; .reg .b32 %old; .reg .f32 %f; .reg .b16 %h;
ld.param.u64 %at, [p]; createpolicy.fractional.L2::evict_last.b64 %policy, 0.25;
atom.relaxed.gpu.global.add.u32 %old, [%at], 5;
atom.acq_rel.sys.global.add.L2::cache_hint.s32 _, [%at], -2, %policy;
red.release.cta.global.max.u32 [%at], 9;
atom.global.v2.f32.add {%f, _}, [%at+8], {1.0, 0d4000000000000000};
mov.b16 %h, 0x3C00;
red.global.v2.f16.max.noftz [%at+16], {%h, %h};
atom.global.b128.exch %q, [%at+32], %q;
st.global.f32 [%at+20], %f;
"""
    memory = np.zeros(12, np.uint32)
    memory[2:4] = np.array([1.5, 2.5], np.float32).view(np.uint32)
    text = entry(".reg .b128 %q; .reg .b64 %z; mov.u64 %z, 7; mov.b128 %q, {%z, %z};" + body, ".param .u64 p")
    tw.Kernel.from_ptx(text, "k")(1, 1, [memory], device="emulator")
    assert memory[0] == 9 and memory[4] == 0x3C003C00
    assert list(memory[2:4].view(np.float32)) == [2.5, 4.5] and memory[5:6].view(np.float32)[0] == 1.5
    assert list(memory[8:12]) == [7, 0, 7, 0]


SOURCE = """
extern "C" __global__ void histogram(const unsigned char* in, int n, unsigned* out) {
  __shared__ unsigned mine[256];
  mine[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&mine[in[i]], 1u);
  __syncthreads();
  atomicAdd(&out[threadIdx.x], mine[threadIdx.x]);
}
__device__ double atomic_max(double* place, double value) {
  unsigned long long* bits = (unsigned long long*)place;
  unsigned long long seen = *bits, assumed;
  do {
    assumed = seen;
    seen = atomicCAS(bits, assumed, __double_as_longlong(fmax(value, __longlong_as_double(assumed))));
  } while (seen != assumed);
  return __longlong_as_double(seen);
}
extern "C" __global__ void greatest(const double* in, double* out) {
  atomic_max(out, in[blockIdx.x * blockDim.x + threadIdx.x]);
}
extern "C" __global__ void locked(int* lock, int* total) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      int seen = *(volatile int*)total;
      *(volatile int*)total = seen + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
extern "C" __global__ void tickets(int* next, int* mine) {
  mine[blockIdx.x * blockDim.x + threadIdx.x] = atomicInc((unsigned*)next, 999u);
}
"""


def kernel(name: str) -> tw.Kernel:
    return tw.Kernel(SOURCE, name, arch="sm_80")


def test_blocks_on_several_threads_lose_nothing(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWISE_THREADS", "3")
    data, counts = rng.integers(0, 256, 30_000).astype(np.uint8), np.zeros(256, np.uint32)
    kernel("histogram")(24, 256, [data, len(data), counts], device="emulator")
    assert (counts == np.bincount(data, minlength=256)).all()

    values, most = rng.normal(size=2_048), np.full(1, -np.inf)
    kernel("greatest")(16, 128, [values, most], device="emulator")
    assert most[0] == values.max()

    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
    kernel("locked")(6, 64, [lock, total], device="emulator")
    assert total[0] == 6 * 64 and lock[0] == 0

    first, mine = np.zeros(1, np.int32), np.zeros(1_500, np.int32)
    kernel("tickets")(15, 100, [first, mine], device="emulator")
    assert (np.bincount(mine, minlength=1_000) == np.repeat([2, 1], 500)).all() and first[0] == 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add.u64 %at, %at, 2; atom.global.add.u32 %d, [%at], 1;", "misaligned write of 4 bytes"),
        ("add.u64 %at, %at, 4096; red.global.add.u32 [%at], 1;", "out-of-bounds write of 4 bytes"),
        ("mul.wide.u32 %o, %t, 4; red.shared.add.u32 [%o], 1;", r"shared(.|\n)*thread \(4, 0, 0\)"),
        ("mov.u64 %o, c; cvta.const.u64 %o, %o; atom.add.u32 %d, [%o], 1;", "can only be read"),
        ("add.u64 %at, %at, 8; atom.global.exch.b128 %q, [%at], %q;", "misaligned write of 16 bytes"),
    ],
)
def test_bad_addresses_are_faults(text: str, message: str) -> None:
    head = ".reg .b64 %at, %o; .reg .b32 %d, %t; .reg .b128 %q; mov.u32 %t, %tid.x; ld.param.u64 %at, [p];"
    extra = ".shared .align 16 .b8 s[16]; .const .align 4 .b32 c = 1;"
    faulty = tw.Kernel.from_ptx(entry(head + "ld.shared.u32 %d, [s];" + text, ".param .u64 p", extra), "k")
    with pytest.raises(KernelFault, match=message):
        faulty(1, 32, [np.zeros(8, np.uint32)], device="emulator")


@pytest.mark.parametrize("lane", [0, 31])
@pytest.mark.parametrize("space", ["global", ""])
@pytest.mark.parametrize(
    "case",
    [
        Case("add", "f32", 2),
        Case("add", "f32", 4),
        Case("min", "f16", 8),
        Case("max", "bf16x2", 4),
        Case("xor", "b64"),
    ],
    ids=str,
)
def test_a_place_is_a_multiple_of_all_that_a_lane_changes_there(case: Case, space: str, lane: int) -> None:
    """Of a vector as a whole, also in a lane behind others whose places are good, and where it found the array before."""
    bits = case.element_bits
    values = f"{{{', '.join(['%b'] * case.elements)}}}" if case.elements > 1 else "%b"
    parts = [
        "red",
        space,
        case.op,
        f"v{case.elements}" if case.elements > 1 else "",
        "noftz" if "f16" in case.type else "",
    ]
    word = ".".join(part for part in (*parts, case.type) if part)
    text = entry(
        f""".reg .b32 %t, %by, %turn; .reg .b{bits} %b; .reg .b64 %at, %o; .reg .pred %p, %q; mov.b{bits} %b, 0;
mov.u32 %t, %tid.x; ld.param.u64 %at, [p]; ld.param.u32 %by, [by]; setp.eq.u32 %p, %t, {lane};
mul.wide.u32 %o, %t, {case.size}; add.u64 %at, %at, %o; cvt.u64.u32 %o, %by; mov.u32 %turn, 0;
again: {word} [%at], {values};
@%p add.u64 %at, %at, %o; add.u32 %turn, %turn, 1; setp.lt.u32 %q, %turn, 2; @%q bra again;""",
        ".param .u64 p, .param .u32 by",
    )
    kernel, x = tw.Kernel.from_ptx(text, "k"), tw.device("emulator").array(np.zeros(33 * 16, np.uint8))
    for by in (0, bits // 8 if case.elements > 1 else 4):
        said = rf"misaligned write of {case.size} bytes(.|\n)*thread \({lane}, 0, 0\)"
        with pytest.raises(KernelFault, match=said) if by else contextlib.nullcontext():
            kernel(1, 32, [x, by], device="emulator")


REFUSED = [
    "atom.global.add.b32 %d, [%at], 1;",
    "atom.global.inc.s32 %d, [%at], 1;",
    "atom.global.add.u16 %h, [%at], 1;",
    "atom.global.min.f32 %d, [%at], %d;",
    "atom.global.max.noftz.f16 %h, [%at], %h;",
    "atom.shared.v2.f32.add {%d, %d}, [%at], {%d, %d};",
    "atom.global.v8.f32.add {%d, %d}, [%at], {%d, %d};",
    "atom.global.v4.f32.add {%d, %d}, [%at], {%d, %d};",
    "atom.global.v2.f32.min {%d, %d}, [%at], {%d, %d};",
    "atom.local.add.u32 %d, [%at], 1;",
    "atom.global.cas.b32 %d, [%at], 1;",
    "atom.global.add.u32 %d, %d, 1;",
    "red.global.exch.b32 [%at], %d;",
    "red.global.cas.b32 [%at], %d, %d;",
    "red.async.relaxed.cluster.global.add.u32 [%at], %d, [%at];",
]


@pytest.mark.parametrize("text", REFUSED)
def test_forms_that_ptx_does_not_have_are_refused(text: str) -> None:
    body = f".reg .b64 %at; .reg .b32 %d; .reg .b16 %h;\n{text}"
    with pytest.raises(PtxError, match=re.escape(text.split(" ")[0])):
        tw.Kernel.from_ptx(entry(body), "k")(1, 32, [], device="emulator")
