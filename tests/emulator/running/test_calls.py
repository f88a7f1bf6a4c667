"""Calls of device functions: parameters of every kind, returns from anywhere, pointers, what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewise as tw
from tests.harness.lanes import Array, entry
from tilewise.emulator.analysis.inline import inline_calls
from tilewise.emulator.ptx.parse import parse
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.errors import KernelFault, PtxError

COUNT = 64


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


def call(functions: str, body: str, a: Array, extra: str = "") -> Array:
    """What every thread leaves in %d; %t is its number and %a its element."""
    head = """.reg .b32 %t, %a, %d, %x, %y, %z; .reg .b64 %in, %out, %off, %f; .reg .pred %p, %q;
mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
add.u64 %in, %in, %off; add.u64 %out, %out, %off; ld.global.u32 %a, [%in]; mov.u32 %d, 0;"""
    out = np.full(len(a), 0x5EED, np.int32)
    text = entry(
        f"{head}\n{body}\nst.global.u32 [%out], %d;",
        ".param .u64 in, .param .u64 out",
        f"{functions}\n{extra}",
    )
    tw.Kernel.from_ptx(text, "k")(1, len(a), [a, out], device="emulator")
    return out


def numbers(rng: np.random.Generator) -> Array:
    return rng.integers(-1000, 1000, COUNT).astype(np.int32)


ABSOLUTE = """
.func (.param .b32 r) absolute(.param .b32 v)
{ .reg .b32 %v; .reg .pred %n; ld.param.s32 %v, [v]; setp.ge.s32 %n, %v, 0; st.param.b32 [r], %v; @%n ret;
  neg.s32 %v, %v; st.param.b32 [r], %v; ret; }
"""
CALL = "{{ .param .b32 p; .param .b32 r; st.param.b32 [p], {0}; call (r), {1}, (p); ld.param.b32 {2}, [r]; }}"


def test_a_guarded_return(rng: np.random.Generator) -> None:
    a = numbers(rng)
    assert (call(ABSOLUTE, CALL.format("%a", "absolute", "%d"), a) == abs(a)).all()


def test_a_name_of_a_block_is_not_the_parameter_s(rng: np.random.Generator) -> None:
    """And what is declared once more behind its body has that body still."""
    functions = (
        ABSOLUTE
        + """
.func (.param .b32 r) near(.param .b32 p)
{ .reg .b32 %x, %y; { .param .b32 p; .param .b32 r; st.param.b32 [p], -5; call (r), absolute, (p); ld.param.b32 %y, [r]; }
  ld.param.b32 %x, [p]; add.u32 %x, %x, %y; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) absolute(.param .b32 v);
"""
    )
    a = numbers(rng)
    assert (call(functions, CALL.format("%a", "near", "%d"), a) == a + 5).all()


def test_a_guarded_call_leaves_other_lanes_alone(rng: np.random.Generator) -> None:
    a = numbers(rng)
    guarded = "setp.lt.s32 %p, %a, 0; mov.u32 %d, 7; @%p bra on; bra off;\non: " + CALL.format(
        "%a", "absolute", "%d"
    )
    assert (call(ABSOLUTE, guarded + "\noff:", a) == np.where(a < 0, -a, 7)).all()
    guarded = """setp.lt.s32 %p, %a, 0; .param .b32 p; .param .b32 r; st.param.b32 [p], %a; st.param.b32 [r], 7;
@!%p call (r), absolute, (p); ld.param.b32 %d, [r];"""
    assert (call(ABSOLUTE, guarded, a) == np.where(a < 0, 7, a)).all()


def test_calls_within_calls_and_in_loops(rng: np.random.Generator) -> None:
    """Registers, labels and parameters of two calls of one function do not meet."""
    functions = (
        ABSOLUTE
        + """
.func (.param .b32 r) triangle(.param .b32 n, .param .b32 step)
{ .reg .b32 %n, %s, %x, %step; .reg .pred %more; ld.param.u32 %n, [n]; ld.param.u32 %step, [step]; mov.u32 %s, 0;
again: setp.gt.s32 %more, %n, 0; @!%more bra done; """
        + CALL.format("%n", "absolute", "%x")
        + """ add.s32 %s, %s, %x; sub.s32 %n, %n, %step; bra again;
done: st.param.b32 [r], %s; }
.func (.param .b32 r) both(.param .b32 n)
{ .reg .b32 %n, %x, %y;  ld.param.u32 %n, [n];
  { .param .b32 p; .param .b32 s; .param .b32 q; st.param.b32 [p], %n; st.param.b32 [s], 1;
    call.uni (q), triangle, (p, s); ld.param.b32 %x, [q]; }
  { .param .b32 p; .param .b32 s; .param .b32 q; st.param.b32 [p], %n; st.param.b32 [s], 3;
    call.uni (q), triangle, (p, s); ld.param.b32 %y, [q]; }
  sub.s32 %x, %x, %y; st.param.b32 [r], %x; ret; }
"""
    )
    a = rng.integers(0, 40, COUNT).astype(np.int32)
    wanted = [sum(range(1, n + 1)) - sum(range(n, 0, -3)) for n in a]
    assert (call(functions, CALL.format("%a", "both", "%d"), a) == wanted).all()


def test_parameters_of_every_width(rng: np.random.Generator) -> None:
    """Small integers keep their sign, and wide and narrow pieces of one parameter agree."""
    function = """
.func (.param .b64 r) mix(.param .b32 small, .param .b16 half, .param .align 8 .b8 pair[16], .param .f32 real)
{ .reg .b16 %h; .reg .b32 %s, %x; .reg .b64 %l, %m; .reg .f32 %f;
  ld.param.s8 %s, [small]; ld.param.u16 %h, [half]; ld.param.v2.u64 {%l, %m}, [pair]; ld.param.f32 %f, [real];
  cvt.s64.s32 %l, %s; cvt.u32.u16 %x, %h; add.s32 %s, %s, %x; cvt.rzi.s32.f32 %x, %f; add.s32 %s, %s, %x;
  cvt.s64.s32 %l, %s; add.s64 %l, %l, %m; st.param.b64 [r], %l; }
"""
    body = """{ .param .b32 s; .param .b16 h; .param .align 8 .b8 pair[16]; .param .f32 f; .param .b64 r; .reg .b16 %n;
.reg .b64 %l; .reg .f32 %g; cvt.u16.u32 %n, %a; cvt.rn.f32.s32 %g, %t; cvt.u64.u32 %l, %t;
st.param.b32 [s], %a; st.param.b16 [h], %n; st.param.v2.b64 [pair], {0, %l}; st.param.f32 [f], %g;
call.uni (r), mix, (s, h, pair, f); ld.param.b32 %d, [r]; }"""
    a = numbers(rng)
    t = np.arange(COUNT)
    assert (call(function, body, a) == a.astype(np.int8) + a.astype(np.uint16).astype(np.int64) + 2 * t).all()


@pytest.mark.parametrize("type_", ["u8", "s8", "b8", "u16", "s16"])
def test_small_parameters_come_from_registers_of_any_width_and_go_to_any(type_: str) -> None:
    """Of a wider register they are the lower bytes; to a wider one they are extended as the load's type says."""
    bits = int(type_[1:])
    kept = ".reg .b16 %w16<2>; .reg .b32 %w32<2>; .reg .b64 %w64<2>;"
    one = f".param .align 2 .b8 {{}}[{bits // 8}]"
    functions, lines = "", "cvt.u16.u64 %w160, %w640; cvt.u32.u64 %w320, %w640;\n"
    ways = [(given, inner) for given in (16, 32, 64) for inner in (16, 32, 64)]
    for number, (given, inner) in enumerate(ways):
        functions += f""".func ({one.format("r")}) f{number}({one.format("p")}) {{ {kept}
ld.param.{type_} %w{inner}0, [p]; st.param.{type_} [r], %w{inner}0; ret; }}\n"""
        lines += f"""{{ {one.format("x")}; {one.format("y")}; st.param.{type_} [x], %w{given}0; call (y), f{number}, (x);
ld.param.{type_} %w641, [y]; st.global.b64 [%out+{8 * number}], %w641; }}\n"""
    head = f"{kept} .reg .b64 %in, %out; ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.global.b64 %w640, [%in];"
    out = np.zeros(len(ways), np.int64)
    kernel = tw.Kernel.from_ptx(entry(f"{head}\n{lines}", ".param .u64 in, .param .u64 out", functions), "k")
    for value in (0x1122_3344_5566_F788, 0x7766_5544_3322_1107):
        kernel(1, 1, [np.array([value]), out], device="emulator")
        part = value % 2**bits
        assert (out == part - (2**bits if type_[0] == "s" and part >> (bits - 1) else 0)).all(), hex(value)


def test_a_parameter_in_memory(rng: np.random.Generator) -> None:
    """A struct whose address is taken, and pieces that overlap."""
    function = """
.func (.param .b32 r) pick(.param .align 4 .b8 s[16], .param .b32 i)
{ .reg .b64 %s, %o; .reg .b32 %i, %x; .reg .b16 %h; mov.b64 %s, s; ld.param.u32 %i, [i]; mul.wide.u32 %o, %i, 4;
  add.u64 %s, %s, %o; ld.local.u32 %x, [%s]; st.param.b32 [r], %x;
  ld.param.u16 %h, [s+2]; cvt.u32.u16 %x, %h; { .reg .b32 %y; ld.param.b32 %y, [r]; add.u32 %x, %x, %y; }
  st.param.b32 [r], %x; ret; }
"""
    body = """{ .param .align 4 .b8 s[16]; .param .b32 i; .param .b32 r; and.b32 %x, %a, 3; add.s32 %y, %a, 1;
st.param.b32 [s], %a; st.param.b32 [s+4], %y; st.param.v2.b32 [s+8], {%t, 9}; st.param.b32 [i], %x;
call (r), pick, (s, i); ld.param.b32 %d, [r]; }"""
    a = numbers(rng)
    t = np.arange(COUNT)
    picked = np.choose(a & 3, [a, a + 1, t, np.full(COUNT, 9)])
    assert (call(function, body, a) == picked + (a.astype(np.uint32) >> 16)).all()


def test_a_piece_that_overwrites_a_part_of_another(rng: np.random.Generator) -> None:
    body = """{ .param .b32 p; .param .b32 r; .reg .b16 %h; cvt.u16.u32 %h, %t; st.param.b32 [p], %a;
st.param.b16 [p], %h; call (r), absolute, (p); ld.param.b32 %d, [r]; }"""
    a = numbers(rng)
    wanted = ((a & ~0xFFFF) | np.arange(COUNT)).astype(np.int32)
    assert (call(ABSOLUTE, body, a) == abs(wanted)).all()


def test_local_arrays_of_calls_within_calls_do_not_overlap(rng: np.random.Generator) -> None:
    functions = """
.func (.param .b32 r) inner(.param .b32 v)
{ .local .align 4 .b32 l[4]; .reg .b32 %v, %x; .reg .b64 %p; ld.param.u32 %v, [v]; st.local.v4.u32 [l], {%v, 1, 2, 3};
  mov.u64 %p, l; ld.local.u32 %x, [%p]; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) outer(.param .b32 v)
{ .local .align 16 .b32 l[4]; .reg .b32 %v, %x, %y, %z; ld.param.u32 %v, [v]; st.local.v4.u32 [l], {%v, %v, 20, 30};
  { .param .b32 p; .param .b32 q; st.param.b32 [p], 7; call (q), inner, (p); ld.param.b32 %x, [q]; }
  { .param .b32 p; .param .b32 q; st.param.b32 [p], 100; call (q), inner, (p); ld.param.b32 %y, [q]; }
  ld.local.u32 %z, [l]; add.u32 %x, %x, %y; add.u32 %x, %x, %z; ld.local.u32 %z, [l+12]; add.u32 %x, %x, %z;
  st.param.b32 [r], %x; ret; }
"""
    a = numbers(rng)
    body = ".local .align 8 .b8 own[8]; st.local.u32 [own], %a; " + CALL.format("%a", "outer", "%x")
    body += " ld.local.u32 %y, [own]; add.u32 %d, %x, %y;"
    assert (call(functions, body, a) == 2 * a + 137).all()


def test_parameters_in_registers(rng: np.random.Generator) -> None:
    functions = """
.func (.reg .s32 sum, .reg .s32 more) add_three(.reg .s32 x, .reg .s32 y, .param .b32 z)
{ .reg .s32 %z; ld.param.s32 %z, [z]; add.s32 sum, x, y; add.s32 sum, sum, %z; mov.s32 more, 1000; ret; }
.func nothing { ret; }
"""
    body = "call nothing; call (%x, %y), add_three, (%a, 5, %t); add.s32 %d, %x, %y;"
    a = numbers(rng)
    assert (call(functions, body, a) == a + 5 + np.arange(COUNT) + 1000).all()


def test_what_is_known_of_an_argument_is_known_in_the_function() -> None:
    """An address passed through a call is still a contiguous one: it takes no lane by lane access."""
    text = entry(".reg .b32 %a, %d;" + CALL.format("%a", "absolute", "%d"), "", ABSOLUTE)
    function = inline_calls(parse(text), "k")
    assert not function.variables
    assert not any(getattr(item, "opcode", "") in ("call", "ld", "st") for item in function.body)


# -- calls through pointers -----------------------------------------------------------------------------------
BINARY = """
.func (.param .b32 r) plus(.param .b32 x, .param .b32 y)
{ .reg .b32 %x, %y; ld.param.u32 %x, [x]; ld.param.u32 %y, [y]; add.u32 %x, %x, %y; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) times(.param .b32 x, .param .b32 y)
{ .reg .b32 %x, %y; ld.param.u32 %x, [x]; ld.param.u32 %y, [y]; mul.lo.u32 %x, %x, %y; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) single(.param .b32 x) { .reg .b32 %x; mov.u32 %x, 5; st.param.b32 [r], %x; ret; }
.alias both, times;
.global .align 8 .u64 table[3] = {plus, times, single};
"""
THROUGH = """{{ .param .b32 x; .param .b32 y; .param .b32 r; st.param.b32 [x], %a; st.param.b32 [y], %t;
{0} call (r), %f, (x, y), {1}; ld.param.b32 %d, [r]; }}"""
PICK = "and.b32 %x, %a, 1; mov.u64 %f, table; mul.wide.u32 %off, %x, 8; add.u64 %f, %f, %off; ld.global.u64 %f, [%f];"


@pytest.mark.parametrize(
    ("table", "choices"),
    [
        ("P: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);", "P"),
        ("P: .calltargets times, plus;", "P"),
        ("", "table"),
    ],
)
def test_a_call_through_a_pointer(table: str, choices: str, rng: np.random.Generator) -> None:
    a = numbers(rng)
    t = np.arange(COUNT)
    assert (call(BINARY, PICK + THROUGH.format(table, choices), a) == np.where(a & 1, a * t, a + t)).all()


SIZES = """
.func (.param .b32 r) of_word(.param .b32 v) { .reg .b32 %v; ld.param.b32 %v, [v]; add.u32 %v, %v, 1; st.param.b32 [r], %v; ret; }
.func (.param .b32 r) of_long(.param .b64 v) { .reg .b64 %v; .reg .b32 %w; ld.param.b64 %v, [v]; shr.u64 %v, %v, 32;
  cvt.u32.u64 %w, %v; st.param.b32 [r], %w; ret; }
.func (.param .b64 r) to_long(.param .b32 v) { .reg .b64 %v; .reg .b32 %w; ld.param.b32 %w, [v]; cvt.u64.u32 %v, %w; shl.b64 %v, %v, 1;
  st.param.b64 [r], %v; ret; }
.func (.param .b32 r) of_both(.param .b32 v, .param .b64 w) { .reg .b64 %v; .reg .b32 %w, %x; ld.param.b64 %v, [w]; ld.param.b32 %x, [v];
  shr.u64 %v, %v, 32; cvt.u32.u64 %w, %v; mad.lo.u32 %w, %w, 5, %x; st.param.b32 [r], %w; ret; }
.func none() { ret; }
.visible .entry other() { ret; }
.func (.param .b32 r) later(.param .b32 v);
.global .align 8 .u64 functions[5] = {of_word, of_long, to_long, none, of_both};
"""


@pytest.mark.parametrize(
    ("at", "call_", "model"),
    [
        (0, "call (%d), %f, (%a){}", lambda a: a + 1),
        (1, "call (%d), %f, (%l){}", lambda a: a),
        (2, "call (%l), %f, (%a){}; cvt.u32.u64 %d, %l", lambda a: 2 * a),
        (3, "call %f{}; mov.b32 %d, 9", lambda a: a * 0 + 9),
        (0, "call (%d), %f, (41){}", lambda a: a * 0 + 42),  # a number fits any size
        (1, "call (%d), %f, (-4294967296){}", lambda a: a * 0 - 1),
        (4, "call (%d), %f, (%a, %l){}", lambda a: 6 * a),
        *((4, f"call (%d), %f, ({given}){{}}", None) for given in ("%a, %a", "%l, %l", "%l, %a", "%a")),
        *((at, "call (%d), %f, (%a){}", None) for at in (1, 2, 3)),
        *((at, "call (%d), %f, (%l){}", None) for at in (0, 2, 3)),
        *((at, "call %f, (%a){}", None) for at in (0, 3)),
        *((at, "call (%d), %f{}", None) for at in (0, 3)),
    ],
)
@pytest.mark.parametrize("choices", ["", ", P"])
def test_through_a_pointer_those_functions_are_called_that_fit(
    at: int, call_: str, model: Callable[[Array], Array] | None, choices: str, rng: np.random.Generator
) -> None:
    """In the number and the bytes of their arguments and results; kernels, and what is declared only, never are."""
    a = numbers(rng)
    table = "P: .calltargets other, later, of_word, of_long, to_long, none, of_both;" if choices else ""
    body = f"""{table} .reg .b64 %l; mov.b64 %l, {{%t, %a}}; mov.u64 %f, functions; ld.global.u64 %f, [%f+{8 * at}];
{call_.format(choices)};"""
    if model is None:
        with pytest.raises(KernelFault, match="call"):
            call(SIZES, body, a)
    else:
        assert (call(SIZES, body, a) == model(a)).all()


def test_a_byte_may_be_given_as_a_number(rng: np.random.Generator) -> None:
    function = """.func (.param .b32 r) byte(.param .b8 v) { .reg .b16 %u, %s; .reg .b32 %x, %y; ld.param.u8 %u, [v];
ld.param.s8 %s, [v]; cvt.u32.u16 %x, %u; cvt.s32.s16 %y, %s; mad.lo.s32 %x, %x, 1000, %y; st.param.b32 [r], %x; ret; }"""
    for given in (0, 7, 200, 255):
        body = f"{{ .param .b8 p; .param .b32 r; st.param.b8 [p], {given}; call (r), byte, (p); ld.param.b32 %d, [r]; }}"
        wanted = given * 1000 + given - 256 * (given > 127)
        assert (call(function, body, numbers(rng)) == wanted).all()


def test_a_structure_is_aligned_as_the_function_wants(rng: np.random.Generator) -> None:
    """It lies in memory, behind another variable that does: both are read by their addresses."""
    function = """.func (.param .b32 r) wide(.param .align 16 .b8 v[16], .param .b32 w)
{ .reg .b64 %v, %w; .reg .b32 %x<4>, %y; mov.b64 %v, v; mov.b64 %w, w; ld.local.v4.b32 {%x0, %x1, %x2, %x3}, [%v]; ld.local.b32 %y, [%w];
  sub.u32 %x0, %x3, %x0; mad.lo.u32 %x0, %x0, 3, %y; st.param.b32 [r], %x0; ret; }"""
    body = """{ .param .b32 w; .param .align 4 .b8 s[16]; .param .b32 r; st.param.b32 [w], 7; st.param.b32 [s], %t; st.param.b32 [s+4], 1;
st.param.b32 [s+8], 2; st.param.b32 [s+12], %a; call (r), wide, (s, w); ld.param.b32 %d, [r]; }"""
    a = numbers(rng)
    assert (call(function, body, a) == (a - np.arange(COUNT)) * 3 + 7).all()


def test_an_address_may_be_taken_by_a_function_that_stands_behind(rng: np.random.Generator) -> None:
    """The call comes before the one that gives the address, which it has in its second turn."""
    functions = """
.func (.param .b32 r) one(.param .b32 v) { .reg .b32 %v; ld.param.b32 %v, [v]; add.u32 %v, %v, 5; st.param.b32 [r], %v; ret; }
.func (.param .b32 r) two(.param .b32 v) { .reg .b32 %v; ld.param.b32 %v, [v]; mul.lo.u32 %v, %v, 3; st.param.b32 [r], %v; ret; }
.func (.param .b64 r) choose() { .reg .b64 %v; mov.b64 %v, two; st.param.b64 [r], %v; ret; }"""
    body = """P: .callprototype (.param .b32 _) _ (.param .b32 _); mov.u64 %f, one; mov.u32 %d, %a; mov.u32 %x, 0;
AGAIN: { .param .b32 p, r; st.param.b32 [p], %d; call (r), %f, (p), P; ld.param.b32 %d, [r]; }
{ .param .b64 g; call (g), choose; ld.param.b64 %f, [g]; } add.u32 %x, %x, 1; setp.lt.u32 %p, %x, 2; @%p bra AGAIN;"""
    a = numbers(rng)
    assert (call(functions, body, a) == (a + 5) * 3).all()


def test_an_alias_is_the_function(rng: np.random.Generator) -> None:
    a = numbers(rng)
    body = """{ .param .b32 x; .param .b32 y; .param .b32 r; st.param.b32 [x], %a; st.param.b32 [y], 3;
call (r), both, (x, y); ld.param.b32 %d, [r]; }"""
    assert (call(BINARY, body, a) == 3 * a).all()


def test_a_pointer_to_nothing_is_a_fault(rng: np.random.Generator) -> None:
    proto = "P: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);"
    body = "setp.eq.u32 %p, %t, 5; @%p mov.u64 %f, 12345; @!%p mov.u64 %f, plus;"
    with pytest.raises(KernelFault, match=r"pointer to no function(.|\n)*thread \(5, 0, 0\)"):
        call(BINARY, body + THROUGH.format(proto, "P"), numbers(rng))
    with pytest.raises(KernelFault, match="no function that fits"):
        call(BINARY, "mov.u64 %f, single;" + THROUGH.format(proto, "P"), numbers(rng))


@pytest.mark.parametrize(("table", "choices"), [("P: .calltargets plus;", "P"), ("", "few")])
def test_a_function_that_is_not_in_the_calls_table_is_not_called(
    table: str, choices: str, rng: np.random.Generator
) -> None:
    functions, body = BINARY + ".global .align 8 .u64 few[1] = {plus};", THROUGH.format(table, choices)
    a = numbers(rng)
    assert (call(functions, "mov.u64 %f, plus;" + body, a) == a + np.arange(COUNT)).all()
    with pytest.raises(KernelFault, match="no function that fits"):
        call(functions, "mov.u64 %f, times;" + body, a)


# -- refusals -------------------------------------------------------------------------------------------------
DEEP = "".join(f".func f{i}() {{ {f'call f{i - 1};' if i else ''} ret; }}\n" for i in range(150))
WIDE = "".join(
    f".func f{i}() {{ {f'call f{i - 1};' * 9 if i else 'bar.warp.sync 1;'} ret; }}\n" for i in range(8)
)
CANNOT = {
    "not defined": (".extern .func far();", "call far;", "far is called but not defined"),
    "arguments": (ABSOLUTE, "call absolute;", "takes 1 arguments and gives 1 results, not 0 and 0"),
    "size": (
        ABSOLUTE,
        "{ .param .b64 p; .param .b32 r; call (r), absolute, (p); }",
        "p does not fit the parameter v",
    ),
    "a kernel": (".visible .entry other() { ret; }", "call other;", "other is a kernel"),
    "no function": ("", "call 5;", "a call wants a function"),
    "scopes": ("", "{" * 300 + "}" * 300, "more than 200 scopes"),
    "deep": (DEEP, "call f149;", "more than 100 calls within one another"),
    "wide": (WIDE, "call f7;", "more than 100,000 instructions"),
}


@pytest.mark.few(
    *(name for name in CANNOT if name not in ("scopes", "deep"))
)  # which the limits of programs have
@pytest.mark.parametrize("what", CANNOT)
def test_calls_that_cannot_be(what: str, rng: np.random.Generator) -> None:
    functions, body, message = CANNOT[what]
    with pytest.raises(PtxError, match=message):
        call(functions, body, numbers(rng))


def test_a_refused_call_is_named_with_its_line() -> None:
    text = entry("\ncall absolute;\n", "", ABSOLUTE)
    with pytest.raises(PtxError) as caught:
        tw.Kernel.from_ptx(text, "k")(1, 32, [], device="emulator")
    assert text.splitlines()[caught.value.line - 1] == "call absolute;"


# -- CUDA C++ -------------------------------------------------------------------------------------------------
SOURCE = r"""
struct Vector { float x, y, z; long long id; };
__device__ __noinline__ Vector scaled(Vector v, float by) { return {v.x * by, v.y * by, v.z * by, v.id + 1}; }
__device__ __noinline__ float dot(const Vector& a, const Vector& b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__device__ __noinline__ void swap(int* a, int* b) { int t = *a; *a = *b; *b = t; }
__device__ __noinline__ int collatz(int n) {
  int steps = 0;
  while (n != 1) { n = n & 1 ? 3 * n + 1 : n / 2; if (++steps > 200) return -1; }
  return steps;
}
__device__ __noinline__ signed char narrow(short a, unsigned char b, bool c) { return c ? a : b; }
struct Shape { __device__ virtual float area() const = 0; __device__ virtual int sides() const { return 0; } };
struct Square : Shape { float a; __device__ Square(float a) : a(a) {}
  __device__ float area() const override { return a * a; } __device__ int sides() const override { return 4; } };
struct Circle : Shape { float r; __device__ Circle(float r) : r(r) {}
  __device__ float area() const override { return 3 * r * r; } };
template <class F> __device__ __noinline__ int twice(F f, int x) { return f(f(x)); }

extern "C" __global__ void k(const int* in, float* real, int* out) {
  int t = threadIdx.x, n = in[t];
  Vector v = scaled({1.f * t, 2.f, 3.f * n, n}, 0.5f), w = scaled(v, 4.f);
  real[t] = dot(v, w);
  out[t] = (int)w.id;
  int a = n, b = t;
  if (n & 2) swap(&a, &b);
  out[64 + t] = a - b;
  out[128 + t] = collatz(n + 1);
  out[192 + t] = narrow(n * 37, n * 11, t % 3);
  Square s(n); Circle c(t);
  const Shape* shape = n & 1 ? (const Shape*)&s : &c;
  real[64 + t] = shape->area();
  out[256 + t] = shape->sides();
  out[320 + t] = twice([=](int x) { return x * n + t; }, 3);
}
"""


def steps(n: int) -> int:
    count = 0
    while n != 1:
        n = 3 * n + 1 if n & 1 else n // 2
        count += 1
        if count > 200:
            return -1
    return count


def test_functions_of_cuda(rng: np.random.Generator) -> None:
    n, t = rng.integers(0, 500, COUNT).astype(np.int32), np.arange(COUNT)
    real, out = np.zeros(2 * COUNT, np.float32), np.zeros(6 * COUNT, np.int32)
    tw.Kernel(SOURCE, "k", arch="sm_80")(1, COUNT, [n, real, out], device="emulator")
    v = np.stack([0.5 * t, np.ones(COUNT), 1.5 * n])
    assert (real[:COUNT] == (v * v * 4).sum(0).astype(np.float32)).all()
    assert (real[COUNT:] == np.where(n & 1, n * n, 3 * t * t)).all()
    wanted = [n + 2, np.where(n & 2, t - n, n - t), [steps(int(i) + 1) for i in n]]
    small = np.where(t % 3, (n * 37).astype(np.int16), (n * 11).astype(np.uint8))
    wanted += [small.astype(np.int8)]
    wanted += [np.where(n & 1, 4, 0), (3 * n + t) * n + t]
    for i, expected in enumerate(wanted):
        assert (out[i * COUNT : (i + 1) * COUNT] == expected).all(), i


def test_a_module_of_32_bits_is_refused_with_a_remedy() -> None:
    text = ".version 6.3\n.target sm_75\n.address_size 32\n.visible .entry k(.param .u32 p)\n{\n  ret;\n}\n"
    with pytest.raises(PtxError, match=r"PTX line 3: \.address_size 32.*compile the source again for 64-bit"):
        tw.Kernel.from_ptx(text, "k")(1, 1, [0], device="emulator")


def test_writing_calls_out_leaves_what_was_parsed_as_it_was() -> None:
    """A kernel is lowered for several builds, each time from the same text."""
    module = parse(
        entry(".reg .b32 %a, %d; mov.u32 %a, 3;" + CALL.format("%a", "absolute", "%d"), "", ABSOLUTE)
    )
    first, second = inline_calls(module, "k"), inline_calls(module, "k")
    assert first == second and len(first.registers) > 4
    function = module.functions["k"]
    assert ({*function.registers}, {*function.variables}) == ({"%a", "%d"}, {"p", "r"})
    opcodes = [item.opcode for item in function.body if isinstance(item, Instruction)]
    assert opcodes == ["mov", "st", "call", "ld", "ret"]
