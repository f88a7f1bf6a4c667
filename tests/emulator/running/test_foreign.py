"""What PTX by other hands and compilers looks like: constant expressions, vector registers, elements of
arrays, names that come again in other scopes, the habits of old versions, waiting as libraries write it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

import numpy as np
import pytest

import tilewise as tw
from tests.harness.lanes import Array, entry
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.errors import KernelFault, PtxError

COUNT = 64
HEAD = ".version 8.0\n.target sm_90\n.address_size 64"
REGISTERS = """.reg .b32 %t, %a, %d, %x, %y; .reg .b64 %in, %out, %off, %l; .reg .f32 %f; .reg .f64 %g;
.reg .pred %p, %q; .reg .b16 %h;"""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


def results(snippets: list[str], a: Array, extra: str = "", head: str = "") -> Array:
    """What every thread has in %d after each snippet, a block of its own; %a is its element of ``a``."""
    body = [REGISTERS, "mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4; ld.param.u64 %in, [in];"]
    body.append("add.u64 %in, %in, %off; ld.param.u64 %out, [out]; add.u64 %out, %out, %off;")
    body.append("ld.global.u32 %a, [%in];")
    for i, snippet in enumerate(snippets):
        body.append(f"mov.b32 %d, -1;\n{{\n{snippet}\n}}\nst.global.u32 [%out+{4 * i * len(a)}], %d;")
    text = entry("\n".join(body), ".param .u64 in, .param .u64 out", extra)
    if head:
        text = re.sub(r"\A.*\n.*\n", head, text)
    out = np.full((len(snippets), len(a)), -1, np.int32)
    tw.Kernel.from_ptx(text, "k")(1, len(a), [a, out], device="emulator", timeout=60)
    return out


def agree(cases: Mapping[str, object], a: Array, extra: str = "", head: str = "") -> None:
    """Each snippet leaves what stands beside it: a number, or one for each thread."""
    found = results(list(cases), a, extra, head)
    for (snippet, wanted), row in zip(cases.items(), found, strict=True):
        expected = np.broadcast_to(np.asarray(wanted, np.int64).astype(np.int32), row.shape)
        np.testing.assert_array_equal(row, expected, snippet)


def numbers(rng: np.random.Generator) -> Array:
    return rng.integers(-1000, 1000, COUNT).astype(np.int32)


# -- constants -------------------------------------------------------------------------------------------
def signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def expression(pick: random.Random, depth: int) -> tuple[str, int, bool]:
    """A constant expression, its value and whether it is unsigned."""
    if depth == 0:
        value = pick.choice([0, 1, 7, 32, 1000, 2**31, 2**62 + 5, pick.getrandbits(20)])
        text = pick.choice([str(value), hex(value), f"0b{value:b}", f"0{value:o}"])
        unsigned = pick.random() < 0.2
        return text + "U" * unsigned, value, unsigned
    x, a, au = expression(pick, depth - 1)
    y, b, bu = expression(pick, pick.randrange(depth))
    match pick.randrange(6):
        case 0:
            kind = pick.choice("su")
            return f"((.{kind}64)({x}))", signed(a) if kind == "s" else a % 2**64, kind == "u"
        case 1:
            word = pick.choice("-~!")
            value = {"-": -a, "~": ~a, "!": int(a == 0)}[word]
            unsigned = word == "~" or (word == "-" and au)
            return f"{word}({x})", value % 2**64 if unsigned else signed(value), unsigned
        case 2:
            return f"(({x}) < ({y}) ? ({x}) : ({y}))", *(pick_less(a, b, au, bu))
        case 3:
            by = pick.randrange(70)
            word = pick.choice(["<<", ">>"])
            value = a << by % 64 if word == "<<" else a >> by % 64
            return f"(({x}) {word} {by})", value % 2**64 if au else signed(value), au
        case 4:
            word = pick.choice(["&", "|", "^"])
            u, v = a % 2**64, b % 2**64
            value, unsigned = {"&": u & v, "|": u | v, "^": u ^ v}[word], au or bu
            return f"(({x}) {word} ({y}))", value if unsigned else signed(value), unsigned
        case _:
            word = pick.choice(["+", "-", "*"])
            value = {"+": a + b, "-": a - b, "*": a * b}[word]
            unsigned = au or bu
            return f"(({x}) {word} ({y}))", value % 2**64 if unsigned else signed(value), unsigned


def pick_less(a: int, b: int, au: bool, bu: bool) -> tuple[int, bool]:
    less = a % 2**64 < b % 2**64 if au or bu else a < b
    return (a, au) if less else (b, bu)


def test_constant_expressions() -> None:
    seed = random.randrange(2**32)
    pick = random.Random(seed)
    drawn = [expression(pick, 1 + i % 4) for i in range(60)]
    halves: dict[str, object] = {}
    for text, value, _ in drawn:
        halves[f"mov.b64 %l, {text}; cvt.u32.u64 %d, %l;"] = value % 2**32
        halves[f"mov.b64 %l, {text}; shr.u64 %l, %l, 32; cvt.u32.u64 %d, %l;"] = value % 2**64 >> 32
    try:
        agree(halves, np.zeros(1, np.int32))
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from None


def test_operators_bind_as_in_c() -> None:
    cases = {
        "mov.u32 %d, 2+3*4-6/2;": 11,
        "mov.u32 %d, 1<<4|1;": 17,
        "mov.u32 %d, 6&3==3;": 0,
        "mov.u32 %d, 1|6^3&2;": 5,
        "mov.u32 %d, 1||0&&0;": 1,
        "mov.u32 %d, 1|1^1;": 1,
        "mov.u32 %d, 1 < 2 == 1;": 1,
        "mov.u32 %d, 1<<1<3;": 1,
        "mov.u32 %d, 1+1<<1;": 4,
        "mov.u32 %d, 2?5:6;": 5,
        "mov.f32 %f, -0f40A00000; cvt.rni.s32.f32 %d, %f;": -5,
        "ld.global.u32 %d, [table+4+8];": 40,
        "ld.global.u32 %d, [table+12-8];": 20,
        "mov.u32 %d, 0?1:0?2:3;": 3,
        "mov.s32 %d, -7/2;": -3,
        "mov.s32 %d, -7 % 3;": (2**64 - 7) % 3,
        "mov.u32 %d, (1&3)-5 < 0;": 1,
        "mov.u32 %d, (1 % 3)-5 < 0;": 0,
        "mov.s32 %d, ((1U<2U)-2)/2 + ((1U&&2U)-2)/2 + ((1.5<2.5)-2)/2;": 0,
        "ld.global.u32 %d, [sums+16];": 64,
        "mov.u32 %d, 0xFFFFFFFFFFFFFFFF/0x4000000000000000;": 3,
        "mov.u32 %d, (3<4)+(4<=4)+(5>4)+(5>=6)+(1==1)+(1!=1);": 4,
        "add.u32 %d, WARP_SZ-1, +2;": 33,
        "mov.f32 %f, 1.5*2.0+.25; mul.f32 %f, %f, 4.; cvt.rni.s32.f32 %d, %f;": 13,
        "mov.f64 %g, -1E2; cvt.rni.s32.f64 %d, %g;": -100,
        "mov.u32 %d, 1.5 < 2.5;": 1,
        "ld.global.u32 %d, [table+2*4];": 30,
        "mov.u64 %l, table+16; ld.global.u32 %d, [%l+-4];": 40,
        "ld.global.u32 %d, [sums+(1+2)*4];": 17,
    }
    extra = (
        ".global .u32 table[5] = {10, 20, 30, 40, 50};\n.global .u32 sums[5] = {1, 2, 3, 1<<4|1, WARP_SZ*2};"
    )
    agree(cases, np.zeros(1, np.int32), extra)


@pytest.mark.parametrize("text", ["1/0", "(1+2", "1.5 & 2", "1 +", "~2.5", "0x1FFFFFFFFFFFFFFFFF", "7 % 0"])
def test_constants_that_are_none(text: str) -> None:
    with pytest.raises(PtxError, match=r"PTX line \d+"):
        results([f"mov.b32 %d, {text};"], np.zeros(1, np.int32))


@pytest.mark.parametrize("value", [2**64, -(2**64)])
def test_an_initial_value_of_more_than_64_bits_is_refused(value: int) -> None:
    with pytest.raises(PtxError, match="an integer of more than 64 bits"):
        results(["mov.b32 %d, 0;"], np.zeros(1, np.int32), f".global .u64 x[1] = {{{value}}};")


@pytest.mark.parametrize("around", ["(0)", "-0", "(.u64)0", "~0"])
def test_constants_of_many_parentheses_or_signs_are_refused(around: str) -> None:
    """Not by Python's own limit, nor by the end of its stack."""
    before, after = around.split("0")
    found = results([f"mov.b32 %d, {before * 30}7{after * 30};"], np.zeros(1, np.int32))
    assert (found == 7).all()
    for deep in (70, 300, 5_000):
        with pytest.raises(
            PtxError, match=r"^PTX line \d+: an expression of so many parentheses is not supported"
        ):
            results([f"mov.b32 %d, {before * deep}7{after * deep};"], np.zeros(1, np.int32))


# -- operands --------------------------------------------------------------------------------------------
def test_an_operand_with_an_offset(rng: np.random.Generator) -> None:
    a = numbers(rng)
    cases = {
        "add.u32 %d, %a+5, %t+-2;": a + 5 + np.arange(COUNT) - 2,
        "setp.gt.s32 %p, %a+1, %t; selp.u32 %d, 1, 0, %p;": a + 1 > np.arange(COUNT),
        "mov.b32 %d, 4; setp.lt.s32 %p, %a, 0; @%p add.u32 %d, %a+7, 1;": np.where(a < 0, a + 8, 4),
        ".local .b32 w; st.local.b32 [w], %a+3; ld.local.b32 %d, [w];": a + 3,
        ".reg .b64 w; cvt.s64.s32 w, %a; sub.s64 w, w+100, 1; cvt.u32.u64 %d, w;": a + 99,
    }
    agree(cases, a)


def test_elements_of_arrays(rng: np.random.Generator) -> None:
    a, t = numbers(rng), np.arange(COUNT)
    extra = """.global .u32 words[4] = {1, 2, 3, 4};
.const .align 4 .u16 halves[6] = {10, 20, 30, 40, 50, 60};
.global .f64 reals[3] = {1.0, 2.0, 3.0};
.global .align 8 .v2 .u32 pairs[2] = {{5, 6}, {7, 8}};
.shared .s8 bytes[128];"""
    cases = {
        "ld.global.u32 %d, words[2];": 3,
        "ld.global.u32 %d, words[WARP_SZ/16-1];": 2,
        "and.b32 %x, %t, 1; ld.global.u32 %d, words[%x+2];": 3 + t % 2,
        "ld.global.u32 %d, pairs[1];": 7,
        "mov.u64 %l, words[3]; ld.global.u32 %d, [%l];": 4,
        "ld.const.u16 %h, halves[4]; cvt.u32.u16 %d, %h;": 50,
        "rem.u32 %x, %t, 3; ld.const.u16 %h, halves[%x+1]; cvt.u32.u16 %d, %h;": 20 + 10 * (t % 3),
        "mov.b64 %l, 2; ld.global.f64 %g, reals[%l]; cvt.rni.u32.f64 %d, %g;": 3,
        "st.shared.s8 bytes[%t], %a; ld.shared.s8 %d, bytes[%t];": a.astype(np.int8),
        ".local .b32 own[4]; and.b32 %x, %t, 3; st.local.b32 own[%x], %a; ld.local.b32 %d, own[%x];": a,
        ".reg .s32 n; .local .b32 mine[4]; st.local.b32 [mine+4], %a; mov.s32 n, 2; "
        "ld.local.b32 %d, mine[n+-1];": a,
        ".reg .s32 m; mov.s32 m, -1; ld.global.u32 %d, words[m+2];": 2,
    }
    agree(cases, a, extra)
    for line in (
        "add.u32 %d, words[1], 2;",
        "mov.u64 %l, words[%t];",
    ):  # an address, which is not known as it is compiled
        with pytest.raises(PtxError, match="an element of an array does not fit here"):
            results([line], a, extra)


SWAP = """.func (.reg .v2 .b32 o) swap(.reg .v2 .b32 v, .reg .b32 more)
{ add.u32 o.x, v.y, more; mov.b32 o.y, v.x; ret; }"""


def test_vector_registers(rng: np.random.Generator) -> None:
    a, t = numbers(rng), np.arange(COUNT)
    extra = f".global .align 16 .b32 four[4] = {{1, 2, 3, 4}};\n{SWAP}"
    cases = {
        ".reg .v4 .b32 v; mov.v4.b32 v, {%a, 1, 2, %t}; mad.lo.u32 %d, v.w, 1000, v.x;": 1000 * t + a,
        ".reg .v4 .f32 v; mov.f32 v.r, 0f40000000; mov.f32 v.a, v.x; add.f32 %f, v.x, v.w; "
        "cvt.rni.s32.f32 %d, %f;": 4,
        ".reg .v2 .b32 v; mov.v2.b32 v, {%a, %t}; mov.v2.b32 v, {v.y, v.x}; mad.lo.u32 %d, v.x, 10000, v.y;": (
            10000 * t + a
        ),
        ".reg .v4 .b32 v; ld.global.v4.b32 v, [four]; mov.v4.b32 {%x, _, %y, _}, v; "
        "mad.lo.u32 %d, %x, 10, %y;": 13,
        ".reg .v2 .b32 v<3>; mov.b32 v2.y, %a; mov.b32 v1.y, 5; mov.b32 %d, v2.y;": a,
        ".reg .v2 .b32 v; mov.v2.b32 v, {%a, 0}; mov.b64 %l, v; cvt.u32.u64 %d, %l;": a,
        ".reg .v2 .b32 v; mov.v2.b32 v, {%a, %t}; call (v), swap, (v, 7); mad.lo.u32 %d, v.x, 10000, v.y;": (
            10000 * (t + 7) + a
        ),
        ".reg .v4 .b32 v; mov.v4.u32 v, %tid; add.u32 %d, v.x, v.y;": t,
        "mov.v4.u32 {%x, %y, _, _}, %ntid; mad.lo.u32 %d, %x, 10, %y;": 10 * COUNT + 1,
        ".reg .v2 .b32 v; mov.v2.b32 v, {%a, %t}; { .reg .v2 .b32 v; mov.b32 v.x, 9; } mov.b32 %d, v.x;": a,
    }
    agree(cases, a, extra)


@pytest.mark.parametrize(
    ("snippet", "word"),
    [
        (".reg .v2 .b32 v; mov.b32 %d, v.z;", "an element of v"),
        (".reg .v2 .b32 v; mov.v4.b32 v, {1, 2, 3, 4};", "two vectors"),
        (".reg .v2 .b32 v; mov.v2.b32 v, %a;", "two vectors"),
        (".reg .v2 .b32 v; add.u32 %d, v, 1;", "add"),
    ],
)
def test_vectors_that_do_not_fit(snippet: str, word: str) -> None:
    with pytest.raises(PtxError, match=word):
        results([snippet], np.zeros(1, np.int32))


# -- names and labels ------------------------------------------------------------------------------------
def test_a_name_means_the_nearest(rng: np.random.Generator) -> None:
    a = numbers(rng)
    extra = """.global .u32 thing = 50;
.func (.reg .b32 r) twice(.reg .b32 thing) { add.u32 r, thing, thing; ret; }"""
    cases = {
        ".reg .b32 thing; mov.b32 thing, %a; add.u32 %d, thing, 1;": a + 1,
        "{ .reg .b32 thing; mov.b32 thing, %a; mov.b32 %d, thing; } ld.global.u32 %x, [thing]; "
        "add.u32 %d, %d, %x;": a + 50,
        "call (%d), twice, (%a);": 2 * a,
        ".reg .b32 s; mov.b32 s, %a; { .local .b32 s; st.local.b32 [s], 9; ld.local.b32 %d, [s]; } "
        "add.u32 %d, %d, s;": a + 9,
        ".reg .b32 w; mov.b32 w, %a; { .shared .b32 w; st.shared.b32 [w], 9; bar.sync 0; "
        "ld.shared.b32 %d, [w]; } add.u32 %d, %d, w;": a + 9,
        ".reg .v2 .b32 n; mov.b32 n.x, %a; { .reg .b32 n; mov.b32 n, 3; mov.b32 %d, n; } "
        "add.u32 %d, %d, n.x;": a + 3,
    }
    agree(cases, a, extra)


LOOP = """mov.b32 %x, 0;
AGAIN: add.u32 %d, %d, {step}; add.u32 %x, %x, 1; setp.ge.u32 %p, %x, {times};
@%p bra DONE;
bra AGAIN;
DONE:"""


def test_a_label_belongs_to_its_block(rng: np.random.Generator) -> None:
    a = numbers(rng)
    first, second = LOOP.format(step=1, times=3), LOOP.format(step=10, times="%y")
    table = "T: .branchtargets A, B; mov.b32 %x, {which}; brx.idx %x, T;\nA: add.u32 %d, %d, 1; bra E;\n"
    table += "B: add.u32 %d, %d, 100;\nE:"
    cases = {
        f"mov.b32 %d, 0; and.b32 %y, %a, 3; add.u32 %y, %y, 1; {{ {first} }} {{ {second} }}": 3
        + 10 * ((a & 3) + 1),
        "mov.b32 %d, 0; { bra D; add.u32 %d, %d, 50; D: add.u32 %d, %d, 1; } bra D; add.u32 %d, %d, 50; "
        "D: add.u32 %d, %d, 2;": 3,
        "mov.b32 %d, 0; { setp.lt.s32 %p, %a, 0; @%p bra OUT; add.u32 %d, %d, 1; } add.u32 %d, %d, 1; "
        "OUT:": np.where(a < 0, 0, 2),
        f"mov.b32 %d, 0; {{ {table.format(which=0)} }} {{ {table.format(which=1)} }}": 101,
        # Names that stand in several blocks, each of which is reached from blocks within blocks.
        **{
            f"mov.b32 %d, {n}; {{ {{ bra FAR; add.u32 %d, %d, 50; }} add.u32 %d, %d, 50; }} FAR: add.u32 %d, %d, 1;": n
            + 1
            for n in (1, 2, 3)
        },
        **{
            f"mov.b32 %d, {n}; {{ {{ {{ {table.format(which=n % 2)} bra AWAY; }} }} }} AWAY:": n
            + (100 if n % 2 else 1)
            for n in (4, 5)
        },
        "bra %there; %there: mov.b32 %d, 6;": 6,
        "bra %a; %a: mov.b32 %d, 7;": 7,
    }
    agree(cases, a)
    with pytest.raises(PtxError, match="'L' stands twice"):
        results(["L: bra L; L:"], a)


@pytest.mark.parametrize("branch", ["bra 5;", "bra A, A;", "bra;", "@%p bra [%x];"])
def test_a_branch_that_names_no_label_or_several(branch: str) -> None:
    with pytest.raises(PtxError, match=r"PTX line \d+: a branch wants one label"):
        results([f"{branch} A:"], np.zeros(1, np.int32))


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("later", ["", "add.u32 %r1, %r1, 3;"])
def test_all_lanes_go_by_one_entry_of_a_table_of_targets(which: int, later: str) -> None:
    """The index is a parameter; what it is changed to in between is for the next time that it is looked at."""
    text = f"""{HEAD}
.visible .entry k(.param .u64 out, .param .u32 which)
{{
  .reg .b32 %r<4>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [which];
  mov.u32 %r3, %tid.x; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd1, %rd1, %rd2;
T: .branchtargets A, B, C;
  brx.idx.uni %r1, T;
A: mov.u32 %r2, 10; {later} bra E;
B: mov.u32 %r2, 20; {later} bra E;
C: mov.u32 %r2, 30; {later}
E: add.u32 %r2, %r2, %r1; add.u32 %r2, %r2, %r3;
  st.global.u32 [%rd1], %r2;
  ret;
}}
"""
    out = np.zeros(64, np.uint32)
    tw.Kernel.from_ptx(text, "k")(1, 64, [out, which], device="emulator")
    assert np.array_equal(out, 10 * (which + 1) + which + (3 if later else 0) + np.arange(64))


def test_an_index_beyond_a_table_of_targets_is_a_fault_for_all_lanes_alike() -> None:
    text = f"""{HEAD}
.visible .entry k(.param .u32 which)
{{
  .reg .b32 %r<2>;
  ld.param.u32 %r1, [which];
T: .branchtargets A, A;
  brx.idx %r1, T;
A: ret;
}}
"""
    kernel = tw.Kernel.from_ptx(text, "k")
    for which in (0, 1):
        kernel(1, 32, [which], device="emulator")
    for which in (2, 2**32 - 1):
        with pytest.raises(KernelFault, match="index"):
            kernel(1, 32, [which], device="emulator")


def test_each_lane_goes_by_its_own_entry_of_a_table_of_targets() -> None:
    """Two entries may be one target; a lane whose index is beyond the table is named."""
    text = f"""{HEAD}
.visible .entry k(.param .u64 out, .param .u32 more)
{{
  .reg .b32 %r<4>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [more];
  mov.u32 %r3, %tid.x; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd1, %rd1, %rd2; rem.u32 %r2, %r3, 4; add.u32 %r1, %r1, %r2;
T: .branchtargets A, B, A, C;
  brx.idx %r1, T;
A: mov.u32 %r2, 10; bra E;
B: mov.u32 %r2, 20; bra E;
C: mov.u32 %r2, 30;
E: add.u32 %r2, %r2, %r3;
  st.global.u32 [%rd1], %r2;
  ret;
}}
"""
    kernel, out = tw.Kernel.from_ptx(text, "k"), np.zeros(64, np.uint32)
    kernel(1, 64, [out, 0], device="emulator")
    assert np.array_equal(out, np.array([10, 20, 10, 30])[np.arange(64) % 4] + np.arange(64))
    with pytest.raises(KernelFault, match=r"index(.|\n)*thread \(3, 0, 0\)"):
        kernel(1, 64, [out, 1], device="emulator")


@pytest.mark.parametrize("code", ["bra NOWHERE;", "T: .branchtargets A, NOWHERE; brx.idx 0, T; A:"])
def test_a_branch_to_a_label_that_is_not_there(code: str) -> None:
    with pytest.raises(PtxError, match=r"PTX line \d+: there is no label 'NOWHERE'"):
        results([code], np.zeros(1, np.int32))


# -- the habits of old versions and other writers --------------------------------------------------------
OLD = """	.version 1.4
	.target sm_13
	# 1 "kernel.cu"
	.reg .u32 %every<3>; .reg .f32 %real;
	.file	1	"<command-line>"
	.visible .func (.param .s32 r) thrice (.param .s32 v)

	.visible .func (.param .s32 r) thrice (.param .s32 v)
	{
	.reg .u32 %r<3>;
	ld.param.u32 	%r1, [v];
	mul.lo.s32 	%r2, %r1, 3;	// id:7 v+0x0
	st.param.s32 	[r], %r2;
	ret;
	}

	.entry k (
		.param .u64 in, .param .u64 out)
	{
	.reg .u16 %rh<3>; .reg .u32 %r<4>; .reg .u64 %rd<5>;
	.param .s32 given; .param .s32 got;
	.loc	1	13	0
$LBB1_k:
	mov.u16 	%rh1, %ctaid.x;
	mov.u16 	%rh2, %ntid.x;
	mul.wide.u16 	%r1, %rh1, %rh2;
	cvt.u32.u16 	%r2, %tid.x;
	add.u32 	%every1, %r2, %r1;
	cvt.u64.u32 	%rd1, %every1;
	mul.lo.u64 	%rd1, %rd1, 4;
	ld.param.u64 	%rd2, [in];
	add.u64 	%rd2, %rd2, %rd1;
	ld.global.s32 	%r3, [%rd2+0];
	st.param.s32 	[given], %r3;
	call (got), thrice, (given);
	ld.param.s32 	%r3, [got];
	cvt.rn.f32.s32 	%real, %r3;
	mad.f32 	%real, %real, %real, %real;
	cvt.rzi.s32.f32 	%r3, %real;
	ld.param.u64 	%rd3, [out];
	add.u64 	%rd3, %rd3, %rd1;
	st.global.s32 	[%rd3+0], %r3;
	exit;
$LDWend_k:
	} // k
"""


def test_an_old_text(rng: np.random.Generator) -> None:
    a, out = rng.integers(-300, 300, COUNT).astype(np.int32), np.zeros(COUNT, np.int32)
    tw.Kernel.from_ptx(OLD, "k")(2, COUNT // 2, [a, out], device="emulator")
    np.testing.assert_array_equal(out, 9 * a * a + 3 * a)


def test_old_habits_end_with_their_versions() -> None:
    new = OLD.replace(".version 1.4", ".version 3.2")
    with pytest.raises(PtxError, match=r"mad\.f32"):
        tw.Kernel.from_ptx(new, "k")(1, 1, [np.zeros(1, np.int32)] * 2, device="emulator")
    narrow = OLD.replace("sm_13", "sm_13, map_f64_to_f32, texmode_unified").replace(
        "exit;", "mov.f64 %rd1, 0.0; exit;"
    )
    with pytest.raises(PtxError, match="map_f64_to_f32"):
        tw.Kernel.from_ptx(narrow, "k")(1, 1, [np.zeros(1, np.int32)] * 2, device="emulator")
    shared = OLD.replace("ret;", "mov.u32 %every0, 1; ret;")
    with pytest.raises(PtxError, match="the module's register"):
        tw.Kernel.from_ptx(shared, "k")(1, 1, [np.zeros(1, np.int32)] * 2, device="emulator")


def test_what_a_line_leaves_out_is_as_it_is_said_before_or_as_a_rule() -> None:
    """Of two alignments the first is the parameter's own; behind line 0 there is no line of the source, and what no line was
    said of has none."""
    module = parse("""
.version 8.0 .target sm_90 .address_size 64 .file 1 "a.cu"
.entry k(.param .align 16 .b64 .ptr .global .align 1 p) .reqnctapercluster 2 { .loc 1 7 3
  membar.cta;
  .loc 1 0 0
  ret; }
.entry j() .reqnctapercluster 2, 3 { membar.cta; .loc 1 9 1
  ret; }
.entry i() { ret; }
""")
    k, j, i = (module.function(name) for name in "kji")
    assert k is not None and j is not None and i is not None
    assert [parameter.align for parameter in k.parameters] == [16]
    assert (k.cluster, j.cluster) == ((2, 1, 1), (2, 3, 1))
    assert [[item.source for item in one.body if isinstance(item, Instruction)] for one in (k, j, i)] == [
        [7, 0],
        [0, 9],
        [0],
    ]


def test_lines_are_counted_through_comments_and_braces() -> None:
    lines = [
        *(".version 8.0", ".target sm_80", ".address_size 64"),
        *(".global .u32 t[3] = {1,", "2,", "3};", "/* of three", "", "lines */", ".entry k() {", "ret; }"),
        *(".entry wrong() { /* two", "lines */", "mov.u32 %nothing, 1; }"),
    ]
    with pytest.raises(PtxError, match=rf"^PTX line {len(lines)}: "):
        parse("\n".join(lines)).function("wrong")


def test_how_a_text_is_laid_out(rng: np.random.Generator) -> None:
    a = numbers(rng)
    text = "/* one\r\nline */ .version 7.0 .target sm_75, debug .address_size 64 .global .texref unused;\r\n"
    text += '# 7 "made.ptx" 2\r\n.entry k(.param .u64 .ptr .global .align 4 in,.param.u64 out) .maxntid 64'
    text += ' .pragma "nounroll";\r\n{.reg.u64 x,y;.reg .u32 n , m<2>;ld.param.u64 x,[ in + 0 ];;'
    text += "ld.param.u64 y , [out];mov.u32 n,%tid.x;mad.wide.u32 x,n,4,x;mad.wide.u32 y,n,4,y;ld\n.global\n.u32\n"
    text += "m1,[x];{{}}add.u32 m1,m1,n;/*;*/st.global.u32[y],m1;}// ends without ret"
    out = np.zeros(COUNT, np.int32)
    tw.Kernel.from_ptx(text, "k")(1, COUNT, [a, out], device="emulator")
    np.testing.assert_array_equal(out, a + np.arange(COUNT))


def test_hints_change_nothing(rng: np.random.Generator) -> None:
    a = numbers(rng)
    hints = "griddepcontrol.wait; setmaxnreg.dec.sync.aligned.u32 40; griddepcontrol.launch_dependents;"
    agree({f"mov.b32 %d, %a; {hints}": a}, a)


# -- waiting ---------------------------------------------------------------------------------------------
MEET = """.reg .b32 lane, leader, got, turn, zero; .reg .b64 mine, all; .reg .pred first, more, wide;
mov.u32 lane, %laneid; ld.param.u64 all, [flags]; setp.ne.u32 first, lane, 0; mov.u32 turn, 0;
@first bra WAIT;
atom.global.acq_rel.gpu.add.u32 got, [all], 1;
WAIT:
ld.global.acquire.gpu.u32 got, [all];
setp.eq.u32 more, got, {warps};
@more bra MET;
add.u32 turn, turn, 1;
setp.lt.u32 wide, turn, lane;
@wide bra WAIT;
nanosleep.u32 20;
bra WAIT;
MET:
ld.param.u64 mine, [out]; mov.u32 lane, %tid.x; mad.wide.u32 mine, lane, 4, mine; st.global.u32 [mine], got;"""


@pytest.mark.parametrize("warps", [2, 5])
def test_lanes_apart_that_wait_let_other_warps_run(warps: int) -> None:
    flags, out = np.zeros(1, np.uint32), np.zeros(32 * warps, np.uint32)
    text = entry(MEET.format(warps=warps), ".param .u64 flags, .param .u64 out")
    tw.Kernel.from_ptx(text, "k")(1, 32 * warps, [flags, out], device="emulator", timeout=60)
    np.testing.assert_array_equal(out, warps)


PLAIN = """.reg .b32 got, number; .reg .b64 mine, all; .reg .pred more;
ld.param.u64 all, [flags]; ld.param.u64 mine, [out]; mov.u32 number, %tid.x; mad.wide.u32 mine, number, 4, mine;
atom.global.add.u32 got, [all], 1;
WAIT: ld.global.u32 got, [all]; setp.ne.u32 more, got, 64; @more bra WAIT;
st.global.u32 [mine], got;"""


def test_a_loop_that_waits_by_plain_loads_looks_anew() -> None:
    flags, out = np.zeros(1, np.uint32), np.zeros(64, np.uint32)
    text = entry(PLAIN, ".param .u64 flags, .param .u64 out")
    tw.Kernel.from_ptx(text, "k")(1, 64, [flags, out], device="emulator", timeout=20)
    np.testing.assert_array_equal(out, 64)


LOCK = """.reg .b32 old, tries, n; .reg .b64 at, sum; .reg .pred taken, some;
ld.param.u64 at, [lock]; ld.param.u64 sum, [count];
RETRY: mov.u32 tries, 0;
TRY: atom.global.cas.b32 old, [at], 0, 1;
setp.eq.u32 taken, old, 0; @taken bra IN;
add.u32 tries, tries, 1; setp.lt.u32 some, tries, {tries}; @some bra TRY;
bra RETRY;
IN: ld.volatile.global.u32 n, [sum]; add.u32 n, n, 1; st.volatile.global.u32 [sum], n;
membar.gl; atom.global.exch.b32 old, [at], 0;"""


@pytest.mark.parametrize("tries", [1, 2, 63, 64])
def test_a_lock_whose_release_stands_after_loops_within_loops(tries: int) -> None:
    lock, count = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    text = entry(LOCK.format(tries=tries), ".param .u64 lock, .param .u64 count")
    tw.Kernel.from_ptx(text, "k")(2, 64, [lock, count], device="emulator", timeout=60)
    assert (lock[0], count[0]) == (0, 128)
