"""Functions that call themselves, or one another: what each call has of its own, and what the stack has room for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.running.test_calls import CALL, COUNT, call, numbers
from tilewise.emulator.analysis.recursion import live_after
from tilewise.emulator.ptx.parse import parse
from tilewise.errors import KernelFault


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


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


def test_what_is_read_on_some_way_behind_is_kept() -> None:
    """Where a guarded jump is not taken; and a result by whoever called, wherever the function returns."""
    text = """.version 9.0 .target sm_90 .address_size 64
.func (.param .b32 r) f(.param .b64 v) { .reg .b32 %x, %y, %z; .reg .pred %p; .param .b32 q;
call (q), f, (%x); @%p bra L; mov.b32 %z, %y; call (r), f, (%z); ret;
L: mov.b32 %z, %x; st.param.b32 [r], %z; ret; }"""
    function = parse(text).function("f")
    assert function is not None
    live = [names - {"f", "L"} for names in live_after(function)]
    assert live[:4] == [{"%p", "%x", "%y", "r"}, {"%x", "%y", "r"}, {"%z"}, {"r"}]


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
