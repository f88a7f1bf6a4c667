"""Calls of device functions: parameters of every kind, returns from anywhere, pointers, what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewise as tw
from tests.harness.lanes import Array, entry
from tilewise.emulator.analysis.inline import inline_calls
from tilewise.emulator.analysis.recursion import live_after
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


# -- recursion ------------------------------------------------------------------------------------------------
FIBONACCI = """
.func (.param .b32 r) fibonacci(.param .b32 v)
{ .reg .b32 %v, %x, %y; .reg .pred %n; .param .b32 p, q, a, b;
  ld.param.s32 %v, [v]; st.param.b32 [r], %v; setp.lt.s32 %n, %v, 2; @%n ret;
  sub.s32 %x, %v, 1; st.param.b32 [p], %x; sub.s32 %y, %v, 2; st.param.b32 [q], %y;
  call (a), fibonacci, (p);
  call (b), fibonacci, (q);
  ld.param.b32 %x, [a]; ld.param.b32 %y, [b]; add.s32 %x, %x, %y; st.param.b32 [r], %x; ret; }
"""
# Each call has words of its own, reads the caller's through a pointer, and returns in a register.
OWN = """
.func (.reg .b32 %r) own(.reg .u64 %up, .reg .b32 %n)
{ .local .align 8 .b32 words[4]; .reg .u64 %at; .reg .b32 %x, %y, %m; .reg .pred %p;
  ld.u32 %x, [%up]; mad.lo.s32 %x, %x, 3, %n; st.local.u32 [words+4], %x; mov.u32 %r, %x;
  setp.le.s32 %p, %n, 0; @%p ret;
  cvta.local.u64 %at, words; add.u64 %at, %at, 4; sub.s32 %m, %n, 1;
  call (%y), own, (%at, %m);
  ld.u32 %x, [words+4]; mad.lo.s32 %r, %y, 5, %x; ret; }
"""
PARITY = """
.func (.reg .b32 %r) odd(.reg .b32 %n);
.func (.reg .b32 %r) even(.reg .b32 %n)
{ .reg .pred %p; .reg .b32 %m; mov.u32 %r, 1; setp.eq.s32 %p, %n, 0; @%p ret; sub.s32 %m, %n, 1; call (%r), odd, (%m); ret; }
.func (.reg .b32 %r) odd(.reg .b32 %n)
{ .reg .pred %p; .reg .b32 %m; mov.u32 %r, 0; setp.eq.s32 %p, %n, 0; @%p ret; sub.s32 %m, %n, 1; call (%r), even, (%m); ret; }
"""


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def own(up: int, n: int) -> int:
    word = up * 3 + n
    return word if n <= 0 else own(word, n - 1) * 5 + word


def test_recursion_of_lanes_that_go_to_different_depths(rng: np.random.Generator) -> None:
    a = rng.integers(-2, 11, COUNT).astype(np.int32)
    assert call(FIBONACCI, CALL.format("%a", "fibonacci", "%d"), a).tolist() == [
        fibonacci(n) for n in a.tolist()
    ]


def test_each_call_has_local_memory_of_its_own(rng: np.random.Generator) -> None:
    a = rng.integers(-1, 6, COUNT).astype(np.int32)
    body = """.local .align 8 .b32 top[2]; .reg .u64 %where; st.local.u32 [top], %a; cvta.local.u64 %where, top;
call (%d), own, (%where, %a);"""
    assert call(OWN, body, a).tolist() == [own(n, n) for n in a.tolist()]


def test_functions_that_call_one_another(rng: np.random.Generator) -> None:
    a = rng.integers(0, 60, COUNT).astype(np.int32)
    assert (call(PARITY, "call (%d), even, (%a);", a) == 1 - a % 2).all()


# What a call within leaves alone: by how it is named, a function of one number, and what it gives.
KEEPS: dict[str, tuple[str, Callable[[int], int]]] = {}


def keeps(text: str) -> Callable[[Callable[[int], int]], Callable[[int], int]]:
    """Add a function's PTX to ``KEEPS``, by the name of its model."""

    def add(model: Callable[[int], int]) -> Callable[[int], int]:
        head = f".func (.param .b32 r) {model.__name__}(.param .b32 v) {{ .reg .b32 %v, %x, %y, %i; .reg .pred %n, %q;"
        KEEPS[model.__name__] = f"{head} .param .b32 p, a; ld.param.s32 %v, [v]; {text} }}", model
        return model

    return add


@keeps(
    """st.param.b32 [r], %v; setp.le.s32 %n, %v, 0; @%n ret; and.b32 %x, %v, 1; setp.eq.s32 %q, %x, 1;
sub.s32 %x, %v, 1; st.param.b32 [p], %x; call (a), predicate, (p); ld.param.b32 %x, [a];
@%q add.s32 %x, %x, 5; @!%q shl.b32 %x, %x, 1; st.param.b32 [r], %x; ret;"""
)
def predicate(v: int) -> int:
    return v if v <= 0 else predicate(v - 1) + 5 if v & 1 else predicate(v - 1) * 2


@keeps(
    """mov.u32 %y, 1; mov.u32 %i, 0; AGAIN: setp.ge.s32 %q, %i, %v; @%q bra DONE;
st.param.b32 [p], %i; call (a), loop, (p); ld.param.b32 %x, [a]; add.s32 %y, %y, %x; add.s32 %i, %i, 1; bra AGAIN;
DONE: st.param.b32 [r], %y; ret;"""
)
def loop(v: int) -> int:
    return 1 + sum(loop(i) for i in range(v))


@keeps(
    """PLACES: .branchtargets ZERO, ONE, TWO; st.param.b32 [r], 1; setp.le.s32 %n, %v, 0; @%n ret;
mul.lo.s32 %x, %v, 10; mul.lo.s32 %y, %v, 100; rem.s32 %i, %v, 3;
sub.s32 %v, %v, 1; st.param.b32 [p], %v; call (a), table, (p); brx.idx %i, PLACES;
ZERO: ld.param.b32 %x, [a]; bra ON; ONE: bra ON; TWO: mov.b32 %x, %y; ON: st.param.b32 [r], %x; ret;"""
)
def table(v: int) -> int:
    return 1 if v <= 0 else (table(v - 1), v * 10, v * 100)[v % 3]


@keeps(
    """.param .align 8 .b8 q[8]; .reg .b64 %l; st.param.b32 [r], %v; setp.le.s32 %n, %v, 0; @%n ret;
st.param.b32 [q+4], %v; sub.s32 %x, %v, 1; st.param.b32 [p], %x; call (a), part, (p); ld.param.b32 %x, [a];
st.param.b32 [q], %x; ld.param.b64 %l, [q]; mov.b64 {%x, %y}, %l; mad.lo.s32 %x, %x, 3, %y; st.param.b32 [r], %x; ret;"""
)
def part(v: int) -> int:
    """Half of a parameter is written before the call, and the other half behind it."""
    return v if v <= 0 else part(v - 1) * 3 + v


@keeps(
    """st.param.b32 [r], %v; setp.le.s32 %n, %v, 0; @%n ret; .param .b32 s; mov.b32 %y, 7; st.param.b32 [s], 50;
and.b32 %x, %v, 1; setp.eq.s32 %q, %x, 0;
sub.s32 %x, %v, 1; st.param.b32 [p], %x; call (a), guarded, (p); ld.param.b32 %x, [a];
@%q mov.b32 %y, 1; @%q st.param.b32 [s], 20; add.s32 %x, %x, %y; ld.param.b32 %y, [s]; add.s32 %x, %x, %y; st.param.b32 [r], %x; ret;"""
)
def guarded(v: int) -> int:
    """A write with a guard leaves what was there before in other lanes."""
    return v if v <= 0 else guarded(v - 1) + (57 if v & 1 else 21)


@pytest.mark.parametrize("name", KEEPS)
def test_a_recursive_call_keeps_what_is_read_behind_it(name: str, rng: np.random.Generator) -> None:
    text, model = KEEPS[name]
    a = rng.integers(-2, 7, COUNT).astype(np.int32)
    assert call(text, CALL.format("%a", name, "%d"), a).tolist() == [model(n) for n in a.tolist()]


def test_nothing_is_kept_that_is_overwritten_before_it_is_read() -> None:
    """Of a parameter, whatever part of it is; by a guarded write, nothing is."""
    text = """.version 9.0 .target sm_90 .address_size 64
.func f(.param .b64 v) { .reg .b32 %x, %y; .reg .b64 %l; .reg .pred %p; .param .b64 q, r; .param .b32 s;
call f, (q); st.param.b64 [q], %l; st.param.b32 [r], %x; st.param.b32 [s], %y; @%p mov.b32 %x, 1; mov.b32 %y, %x;
mov.b64 %l, 0; call g, (q, r, s, %y, %l); ret; }"""
    function = parse(text).function("f")
    assert function is not None
    live = [names - {"g"} for names in live_after(function)]
    assert live[0] == {"%l", "%x", "%y", "%p", "r"}
    assert live[1] == {"%x", "%y", "%p", "q", "r"}
    assert live[3] == {"%x", "%p", "q", "r", "s"}
    assert live[-2] == live[-1] == frozenset()


def test_what_is_overwritten_before_it_is_read_takes_no_room_in_the_stack() -> None:
    """Sixty numbers each before the call and behind it; a call keeps none of them."""
    some = "".join(f"mad.lo.u32 %x{i}, %v, {i}, %x{i - 1};" for i in range(1, 60))
    text = f""".func (.param .b32 r) deep(.param .b32 v) {{ .reg .b32 %v, %x<60>; .reg .pred %n; .param .b32 p, a;
ld.param.s32 %v, [v]; mov.b32 %x0, %v; {some} st.param.b32 [r], %x59; setp.le.s32 %n, %v, 0; @%n ret; sub.s32 %x0, %v, 1;
st.param.b32 [p], %x0; call (a), deep, (p); ld.param.b32 %x0, [a]; {some} st.param.b32 [r], %x59; ret; }}"""

    def deep(v: int) -> int:
        return (0 if v <= 0 else deep(v - 1)) + v * sum(range(1, 60))

    a = np.arange(COUNT, dtype=np.int32) * 5
    assert call(text, CALL.format("%a", "deep", "%d"), a).tolist() == [deep(n) for n in a.tolist()]


def test_structures_go_into_recursive_calls_and_come_back_whole(rng: np.random.Generator) -> None:
    """Fifteen bytes: of 8, 4, 2 and 1."""

    def fields(variable: str, registers: str, stored: bool) -> str:
        parts = zip(("b64", "b32", "b16", "b8"), (0, 8, 12, 14), registers.split(), strict=True)
        if stored:
            return "".join(f"st.param.{type_} [{variable}+{at}], {name};" for type_, at, name in parts)
        return "".join(f"ld.param.{type_} {name}, [{variable}+{at}];" for type_, at, name in parts)

    shape = ".param .align 8 .b8"
    text = f""".func ({shape} r[15]) whole({shape} v[15]) {{
.reg .b64 %a<3>; .reg .b32 %b<3>; .reg .b16 %c<3>, %d<3>; .reg .pred %n; {shape} p[15], q[15];
{fields("v", "%a0 %b0 %c0 %d0", False)} {fields("r", "%a0 %b0 %c0 %d0", True)} setp.le.s32 %n, %b0, 0; @%n ret;
mad.lo.u64 %a1, %a0, 5, 3; sub.s32 %b1, %b0, 1; add.u16 %c1, %c0, 777; add.u16 %d1, %d0, 5; {fields("p", "%a1 %b1 %c1 %d1", True)}
call (q), whole, (p);
{fields("q", "%a2 %b2 %c2 %d2", False)} add.u64 %a2, %a2, %a0; add.u32 %b2, %b2, 2; mad.lo.u16 %c2, %c2, 3, %c0; add.u16 %d2, %d2, %d0;
{fields("r", "%a2 %b2 %c2 %d2", True)} ret; }}"""
    body = f"""{shape} p[15], q[15]; .reg .b64 %l; .reg .b16 %c, %e; cvt.u64.u32 %l, %a; cvt.u16.u32 %c, %a;
{fields("p", "%l %a %c %c", True)} call (q), whole, (p); {fields("q", "%l %x %c %e", False)}
mov.b64 {{%y, %z}}, %l; xor.b32 %d, %x, %y; xor.b32 %d, %d, %z; cvt.u32.u16 %x, %c; cvt.u32.u16 %y, %e;
shl.b32 %x, %x, 16; shl.b32 %y, %y, 8; xor.b32 %d, %d, %x; xor.b32 %d, %d, %y;"""

    def whole(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
        if b <= 0:
            return a, b, c, d
        w, x, y, z = whole((a * 5 + 3) % 2**64, b - 1, (c + 777) % 2**16, (d + 5) % 2**8)
        return (w + a) % 2**64, x + 2, (y * 3 + c) % 2**16, (z + d) % 2**8

    def model(n: int) -> int:
        a, b, c, d = whole(n, n, n, n)
        return (b ^ a % 2**32 ^ a >> 32 ^ c << 16 ^ d << 8) % 2**32

    a = rng.integers(0, 30, COUNT).astype(np.int32)
    assert call(text, body, a).astype(np.uint32).tolist() == [model(n) for n in a.tolist()]


def test_recursion_that_never_ends_overflows_the_stack(rng: np.random.Generator) -> None:
    ring = """
.func first(); .func second() { call third; ret; } .func third() { call first; ret; }
.func first() { call second; ret; }
"""
    with pytest.raises(
        KernelFault, match=r"stack overflow: a function has called itself(.|\n)*thread \(0, 0, 0\)"
    ):
        call(ring, "call first;", numbers(rng))
    with pytest.raises(KernelFault, match=r"stack overflow(.|\n)*thread \(7, 0, 0\)"):
        call(PARITY, "call (%d), even, (%a);", np.where(np.arange(COUNT) == 7, -1, 4).astype(np.int32))


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


@pytest.mark.few(4)
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
