"""Memory spaces, initial values and addresses of variables."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw
from tests.harness.lanes import Array, entry
from tests.harness.many import refused
from tilewise.errors import KernelFault, PtxError

COUNT = 64


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


def run(body: str, a: Array, extra: str = "", grid: int = 1, shared: int = 0, count: int = 1) -> Array:
    """What every thread leaves in %d, %e, %g; %t is its number and %a its element."""
    head = """.reg .b32 %t, %a, %d, %e, %g, %x, %y; .reg .b64 %in, %out, %off, %f, %h; .reg .pred %p, %q;
mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
add.u64 %in, %in, %off; ld.global.u32 %a, [%in]; mov.u32 %x, %ctaid.x; mov.u32 %y, %ntid.x;
mad.lo.u32 %x, %x, %y, %t; mul.wide.u32 %off, %x, 12; add.u64 %out, %out, %off;
mov.u32 %d, 0; mov.u32 %e, 0; mov.u32 %g, 0;"""
    tail = "st.global.u32 [%out], %d; st.global.u32 [%out+4], %e; st.global.u32 [%out+8], %g;"
    out = np.full((grid * len(a), 3), 0x5EED, np.uint32)
    text = entry(
        f"{head}\n{body}\n{tail}", ".param .u64 in, .param .u64 out, .param .align 16 .b8 s[32]", extra
    )
    tw.Kernel.from_ptx(text, "k")(
        grid, len(a), [a, out, np.arange(32, dtype=np.uint8).tobytes()], shared=shared, device="emulator"
    )
    return out[:, :count].squeeze()


def numbers(rng: np.random.Generator) -> Array:
    return rng.integers(0, 1000, COUNT).astype(np.int32)


def test_of_lanes_that_write_to_one_place_the_last_that_runs_stays(rng: np.random.Generator) -> None:
    body = """.shared .align 8 .b32 one[2]; setp.lt.u32 %p, %t, 13;
st.shared.v2.u32 [one], {%t, %a}; ld.shared.v2.u32 {%d, %e}, [one];
@%p st.shared.u32 [one], %t; ld.shared.u32 %g, [one];"""
    a = numbers(rng)[:20]
    assert (run(body, a, count=3) == (19, a[19], 12)).all()


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("kept", [0x00, 0x01, 0x07, 0x0F, 0x10, 0x18, 0x1C])
@pytest.mark.parametrize("words", [1, 2, 4])
def test_of_lanes_that_share_places_the_last_stays(words: int, kept: int, space: str) -> None:
    """Places that are known when the kernel is compiled: some bits of a lane's number say which.

    Twice, as the second store of an instruction to global memory knows where the first one was.
    """
    item = f"v{words}.u32" if words > 1 else "u32"
    held = f"{{{', '.join(['%t'] * words)}}}" if words > 1 else "%t"
    body = f""".shared .align 16 .b32 room[{32 * words}]; .reg .b32 %t, %k, %x, %s, %y, %v, %turn; .reg .pred %p;
.reg .b64 %out, %off, %at;
mov.u32 %t, %tid.x; and.b32 %k, %t, {kept}; mul.lo.u32 %x, %k, {4 * words}; ld.param.u64 %out, [out];
mov.u32 %s, room; add.u32 %y, %s, %x; cvt.u64.u32 %off, %x; add.u64 %at, %out, %off; mov.u32 %turn, 0;
again: st.{space}.{item} [{"%y" if space == "shared" else "%at"}], {held};
add.u32 %turn, %turn, 1; setp.lt.u32 %p, %turn, 2; @%p bra again;"""
    if space == "shared":
        for word in range(words):
            body += f"""\nld.shared.u32 %v, [%y+{4 * word}]; st.global.u32 [%at+{4 * word}], %v;"""
    out = np.full((32, words), -1, np.int32)
    tw.Kernel.from_ptx(entry(body, ".param .u64 out"), "k")(1, 32, [out], device="emulator")
    wanted = np.full((32, words), -1, np.int32)
    for lane in range(32):
        wanted[lane & kept] = lane
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("beyond", [0, 1, 2, 0xFFFF_FFFF])
def test_of_an_address_of_shared_memory_32_bits_count(beyond: int, rng: np.random.Generator) -> None:
    """However wide the register that holds it: of one place for all lanes, and of one for each."""
    body = f""".reg .b64 %s, %one, %away, %each; mov.u64 %s, sh; add.u64 %one, %s, {beyond << 32};
mul.wide.u32 %away, %t, 4; add.u64 %each, %one, %away;
st.shared.u32 [%each+16], %a; bar.sync 0; ld.shared.u32 %e, [%each+16];
st.shared.u32 [%one], 41; bar.sync 0; ld.shared.u32 %d, [%one];
st.shared.v2.u32 [%one+8], {{%d, %d}}; bar.sync 0; ld.shared.v2.u32 {{%x, %g}}, [%one+8];"""
    a = numbers(rng)
    out = run(body, a, f".shared .align 16 .b8 sh[{16 + 4 * COUNT}];", count=3)
    assert (out[:, 0] == 41).all() and (out[:, 1] == a).all() and (out[:, 2] == 41).all()


@pytest.mark.parametrize("beyond", [0, 1, 0xFFFF_FFFF])
def test_of_an_address_of_local_or_constant_memory_32_bits_count(
    beyond: int, rng: np.random.Generator
) -> None:
    body = f""".local .align 8 .b32 own[8]; .reg .b64 %s, %one, %each; and.b32 %x, %t, 3; mul.wide.u32 %h, %x, 4;
mov.u64 %s, own; add.u64 %one, %s, {beyond << 32}; add.u64 %each, %one, %h;
st.local.u32 [%one], 41; ld.local.u32 %d, [own]; st.local.u32 [%each+8], %a; ld.local.u32 %e, [%each+8];
mov.u64 %s, c; add.u64 %one, %s, {beyond << 32}; add.u64 %each, %one, %h;
ld.const.u32 %g, [%each]; ld.const.u32 %x, [%one+8]; mad.lo.u32 %g, %x, 100, %g;"""
    a = numbers(rng)
    out = run(body, a, ".const .align 4 .b32 c[4] = {5, 6, 7, 8};", count=3)
    assert (out[:, 0] == 41).all() and (out[:, 1] == a).all()
    assert (out[:, 2] == 705 + np.arange(COUNT) % 4).all()


# -- local memory -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("of_module", [False, True])
def test_every_thread_has_its_own_local_memory(rng: np.random.Generator, of_module: bool) -> None:
    """At one address for all and at one for each; by its own addresses and by generic ones."""
    a = numbers(rng)
    stack = ".local .align 16 .b8 stack[64];"
    body = f"""
{"" if of_module else stack} .reg .b64 %s, %o; .reg .b16 %n;
mov.u64 %s, stack;
st.local.u32 [stack], 77;
st.local.v4.u32 [stack+16], {{%a, %t, 3, 4}};
and.b32 %x, %a, 7; mul.wide.u32 %o, %x, 2; add.u64 %o, %s, %o; cvt.u16.u32 %n, %t; st.local.u16 [%o+32], %n;
ld.local.s16 %e, [%o+32];
cvta.local.u64 %f, %s; ld.u32 %d, [%f+16]; st.u32 [%f+20], %d; ld.local.u32 %y, [stack+20]; add.u32 %d, %d, %y;
ld.local.u32 %g, [stack];
"""
    out = run(body, a, stack if of_module else "", count=3)
    assert (out[:, 0] == 2 * a).all() and (out[:, 1] == np.arange(COUNT)).all() and (out[:, 2] == 77).all()


@pytest.mark.parametrize("size", [1, 4])
def test_a_local_array_is_bounded(rng: np.random.Generator, size: int) -> None:
    body = (
        f".local .align 4 .b8 s[{16 * size}]; min.u32 %x, %t, 16; mul.wide.u32 %f, %x, {size}; mov.u64 %h, s;"
    )
    message = (
        rf"out-of-bounds read of {size} bytes at local address 0x{16 * size:x}(.|\n)*thread \(16, 0, 0\)"
    )
    with pytest.raises(KernelFault, match=message):
        run(f"{body} add.u64 %f, %f, %h; ld.local.u{8 * size} %d, [%f];", numbers(rng))


# -- st.bulk ----------------------------------------------------------------------------------------------------
_FILL = """.shared .align 16 .b8 room[512]; mov.u64 %f, room; cvta.shared.u64 %h, %f; cvt.u32.u64 %y, %f;
shl.b32 %g, %t, 3; add.u32 %g, %g, %y; add.u32 %e, %t, 7; st.shared.v2.u32 [%g], {%e, %e}; bar.sync 0;
setp.eq.u32 %p, %t, 3; setp.eq.u32 %q, %t, 20;"""


@pytest.mark.parametrize(
    ("body", "zeroed"),
    [
        ("@%p st.bulk.weak.shared::cta [%y+16], 64, 0;", [(2, 10)]),
        ("mov.u32 %e, 40; @%p st.bulk.shared::cta [room+8], %e, 0;", [(1, 6)]),
        ("mov.u64 %off, 512; @%p st.bulk.weak [%h], %off, 0;", [(0, 64)]),
        ("@%p st.bulk [%h+8], 0, 0;", []),
        # Lanes with places and sizes of their own.
        ("or.pred %p, %p, %q; and.b32 %e, %t, 24; add.u32 %e, %e, 8; @%p st.bulk.shared::cta [%g], %e, 0;",
         [(3, 4), (20, 23)]),
        ("@%p bra IN; bra OUT; IN: st.bulk [%h], 8, 0; OUT:", [(0, 1)]),
    ],
)  # fmt: skip
def test_a_stretch_of_shared_memory_is_zeroed(body: str, zeroed: list[tuple[int, int]]) -> None:
    tail = "bar.sync 0; shl.b32 %g, %t, 3; add.u32 %g, %g, %y; ld.shared.v2.u32 {%d, %e}, [%g];"
    out = run(_FILL + body + tail, np.zeros(COUNT, np.int32), count=2)
    want = np.arange(COUNT) + 7
    for start, end in zeroed:
        want[start:end] = 0
    assert (out == want[:, None]).all()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("@%p st.bulk.shared::cta [%y+8], 512, 0;", r"out-of-bounds write of 512 bytes at shared address 0x8(.|\n)*\(3, 0, 0\)"),
        ("@%p st.bulk.shared::cta [%y], 16777216, 0;", "out-of-bounds write of 16777216 bytes at shared address"),
        ("mov.u32 %e, 12; @%p st.bulk.shared::cta [%y], %e, 0;", "multiple of 8 bytes"),
        ("@%p st.bulk [%in], 8, 0;", "write of 8 bytes at shared address"),
    ],
)  # fmt: skip
def test_what_st_bulk_may_not_write_is_a_fault(body: str, said: str) -> None:
    with pytest.raises(KernelFault, match=said):
        run(_FILL + body, np.zeros(COUNT, np.int32))


@pytest.mark.parametrize(
    "instruction",
    [
        "st.bulk.shared::cta [%r1], 12, 0;", "st.bulk.shared::cta [%r1], 16777224, 0;", "st.bulk [%l1], 8, 1;",
        "st.bulk.shared [%r1], 8, 0;", "st.bulk.b64 [%l1], 8, 0;", "st.bulk.volatile [%l1], 8, 0;",
        "st.bulk [%l1], 8, %r1;", "st.bulk [%l1], %h1, 0;", "st.bulk [%l1], 8;",
    ],
)  # fmt: skip
def test_forms_of_st_bulk_that_ptx_does_not_have(instruction: str) -> None:
    assert "st.bulk" in refused(instruction)


def test_the_checker_sees_what_st_bulk_writes() -> None:
    """Beside a barrier it is no race, and without one it is."""
    for barrier, races in (("bar.sync 0;", 0), ("", 1)):
        body = f"{_FILL} @%p st.bulk.shared::cta [%y], 512, 0; {barrier} ld.shared.u32 %x, [%g];"
        text = entry(body.replace("%in", "%h"), "", ".global .b32 none;")
        declared = (
            ".reg .b32 %t, %d, %e, %g, %x, %y; .reg .b64 %f, %h; .reg .pred %p, %q; mov.u32 %t, %tid.x;"
        )
        found = tw.Kernel.from_ptx(text.replace("{\n", "{\n" + declared, 1), "k").check(1, COUNT, [])
        assert bool(found) == bool(races), found


# -- generic addresses ------------------------------------------------------------------------------------------
def test_one_instruction_reaches_every_space(rng: np.random.Generator) -> None:
    """Each lane loads through a generic address of another space, and asks which it is."""
    a = numbers(rng)
    extra = ".const .align 4 .b32 c[2] = {0x11, 0x22}; .shared .align 4 .b32 sh[64];"
    body = """
.local .align 4 .b32 l[2]; .reg .b64 %g<6>; .reg .pred %p<6>;
mov.u64 %f, sh; mul.wide.u32 %h, %t, 4; add.u64 %f, %f, %h; add.u32 %x, %t, 500; st.shared.u32 [%f], %x;
cvta.shared.u64 %g0, %f; st.local.u32 [l+4], %a; mov.u64 %f, l; cvta.local.u64 %g1, %f; add.u64 %g1, %g1, 4;
mov.u64 %f, c; cvta.const.u64 %g2, %f; add.u64 %g2, %g2, 4; mov.b64 %f, s; cvta.param.u64 %g3, %f; add.u64 %g3, %g3, 8;
cvta.global.u64 %g4, %in;
rem.u32 %x, %t, 5;
setp.eq.u32 %p0, %x, 0; setp.eq.u32 %p1, %x, 1; setp.eq.u32 %p2, %x, 2; setp.eq.u32 %p3, %x, 3;
mov.u64 %f, %g4; @%p0 mov.u64 %f, %g0; @%p1 mov.u64 %f, %g1; @%p2 mov.u64 %f, %g2; @%p3 mov.u64 %f, %g3;
ld.u32 %d, [%f];
isspacep.shared %p0, %f; isspacep.local %p1, %f; isspacep.const %p2, %f; isspacep.param %p3, %f;
isspacep.global %p4, %f;
selp.u32 %e, 1, 0, %p0; @%p1 add.u32 %e, %e, 2; @%p2 add.u32 %e, %e, 4; @%p3 add.u32 %e, %e, 8;
@%p4 add.u32 %e, %e, 16;
"""
    out = run(body, a, extra, count=2)
    t = np.arange(COUNT)
    wanted = np.choose(t % 5, [t + 500, a, np.full(COUNT, 0x22), np.full(COUNT, 0x0B0A0908), a])
    assert (out[:, 0] == wanted).all()
    # The window of parameters is a part of the global one.
    assert (out[:, 1] == np.choose(t % 5, [1, 2, 4, 24, 16])).all()


@pytest.mark.parametrize("space", ["shared", "local", "const", "param", "global"])
def test_an_address_comes_back_from_a_generic_one(space: str, rng: np.random.Generator) -> None:
    """To the last of its 64 bits: of one place for all lanes, and of one for each."""
    extra = ".const .align 4 .b32 c[2]; .shared .align 4 .b32 sh[64]; .global .align 4 .b32 gl[64];"
    name = {"shared": "sh", "local": "l", "const": "c", "param": "s", "global": "gl"}[space]
    body = f"""
.local .align 4 .b32 l[2]; .reg .b64 %g<4>; mov.b64 %g0, {name}; mul.wide.u32 %h, %t, 4; add.u64 %g1, %g0, %h;
cvta.{space}.u64 %g2, %g0; cvta.to.{space}.u64 %g2, %g2; xor.b64 %g2, %g2, %g0; mov.b64 {{%d, %x}}, %g2; or.b32 %d, %d, %x;
cvta.{space}.u64 %g3, %g1; cvta.to.{space}.u64 %g3, %g3; xor.b64 %g3, %g3, %g1; mov.b64 {{%e, %x}}, %g3; or.b32 %e, %e, %x;"""
    assert not run(body, numbers(rng), extra, count=2).any()


def test_stores_through_generic_addresses(rng: np.random.Generator) -> None:
    a = numbers(rng)
    extra = ".shared .align 4 .b32 sh[64]; .global .align 4 .b32 gl[64];"
    body = """
.local .align 4 .b32 l; .reg .b64 %g<3>; st.local.u32 [l], 0;
mul.wide.u32 %h, %t, 4; mov.u64 %f, sh; add.u64 %f, %f, %h; cvta.shared.u64 %g0, %f;
mov.u64 %f, l; cvta.local.u64 %g1, %f; mov.u64 %f, gl; add.u64 %f, %f, %h; cvta.global.u64 %g2, %f;
and.b32 %x, %t, 1; setp.eq.u32 %p, %x, 0; selp.b64 %f, %g0, %g1, %p; setp.gt.u32 %q, %t, 40; @%q mov.u64 %f, %g2;
st.u32 [%f], %a; ld.u32 %d, [%f];
mov.u64 %f, sh; add.u64 %f, %f, %h; @!%q ld.shared.u32 %e, [%f]; ld.local.u32 %g, [l];
"""
    out = run(body, a, extra, count=3)
    t = np.arange(COUNT)
    assert (out[:, 0] == a).all()
    assert (out[:, 1] == a)[(t % 2 == 0) & (t <= 40)].all()
    assert (out[:, 2] == np.where((t % 2 == 1) & (t <= 40), a, 0)).all()


# -- variables of the module --------------------------------------------------------------------------------------
VARIABLES = """
.global .align 8 .b8 bytes[5] = {1, 2, 3};
.global .align 4 .s32 grid[3][2] = { {-1, 2}, {3}, {5, 6} };
.global .align 4 .f32 reals[] = {1.5, 0f40490FDB, -2.0};
.global .align 8 .v2 .f32 pairs[3] = {{1.0, 2.0}, {3.0, 4.0}, {5.0}};
.global .align 4 .u32 plain = 0xDEADBEEF;
.global .align 8 .u64 where[3] = {generic(grid)+4, plain, bytes+1};
.global .align 8 .b8 packed[16] = {0xFF, 0, 0, 0, 0, 0, 0, 0, 0xFF(plain), 0xFF00(plain), 0xFF0000(plain),
  0xFF000000(plain), 0xFF00000000(plain), 0xFF0000000000(plain), 0xFF000000000000(plain), 0xFF00000000000000(plain)};
.const .align 4 .u32 numbers[4] = {10, 20, 30, 40};
.const .align 8 .u64 pointers[2] = {generic(numbers)+8, plain};
.const .align 8 .u64 own = numbers;
.global .align 8 .u64 to_const = generic(numbers);
"""


# What is loaded into %d and %e, and what it must be.
LOADED = {
    "bytes": ("ld.global.u8 %d, [bytes+2]; ld.global.u8 %e, [bytes+4];", (3, 0)),
    "rows": ("ld.global.u32 %d, [grid]; ld.global.u32 %e, [grid+12];", (2**32 - 1, 0)),
    "reals": ("ld.global.u32 %d, [grid+16]; ld.global.u32 %e, [reals+4];", (5, 0x40490FDB)),
    "vectors": ("ld.global.u32 %d, [reals+8]; ld.global.u32 %e, [pairs+12];", (0xC0000000, 0x40800000)),
    "addresses": (
        "ld.global.u64 %f, [where]; ld.u32 %d, [%f]; ld.global.u64 %f, [where+8]; ld.global.u32 %e, [%f];",
        (2, 0xDEADBEEF),
    ),
    "masks": (
        "ld.global.u64 %f, [where+16]; ld.global.u8 %d, [%f]; ld.global.u64 %f, [packed+8]; ld.u32 %e, [%f];",
        (2, 0xDEADBEEF),
    ),
    "constants": (
        "ld.const.u64 %f, [pointers]; ld.u32 %d, [%f]; ld.const.u64 %f, [pointers+8]; ld.global.u32 %e, [%f];",
        (30, 0xDEADBEEF),
    ),
    "to constants": (
        "ld.const.u64 %f, [own]; ld.const.u32 %d, [%f+4]; ld.global.u64 %f, [to_const]; ld.u32 %e, [%f+12];",
        (20, 40),
    ),
    "moves": (
        "mov.u64 %f, numbers+4; ld.const.u32 %d, [%f]; mov.u64 %f, grid+8; ld.global.u32 %e, [%f];",
        (20, 3),
    ),
}


@pytest.mark.parametrize("what", LOADED)
def test_initial_values(what: str, rng: np.random.Generator) -> None:
    body, wanted = LOADED[what]
    out = run(body, numbers(rng), VARIABLES, count=2)
    assert (out == wanted).all()


@pytest.mark.parametrize("away", [-(2**33), -12, -8, 0, 4, 2**33])
def test_an_initial_address_may_lie_before_its_variable(away: int, rng: np.random.Generator) -> None:
    """Before the first byte of constant memory too."""
    variables = f".const .align 4 .b32 c[2] = {{7, 8}}; .global .align 8 .u64 p[1] = {{c{away:+}}};"
    body = f"ld.global.u64 %f, [p]; mov.b64 {{%d, %e}}, %f; mov.u64 %f, c; add.u64 %f, %f, {away}; mov.b64 {{%a, %g}}, %f;"
    out = run(f"{body} sub.u32 %d, %d, %a; sub.u32 %e, %e, %g;", numbers(rng), variables, count=2)
    assert (out == 0).all()


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (".global .u32 x[2] = {1, 2, 3};", "longer than its variable"),
        (".global .u32 x[2][2] = {{1, 2, 3}};", "longer than its variable"),
        (".global .u32 x = {{1}};", "more braces than its variable has dimensions"),
        (".global .u32 x = y;", "address of y needs 8 bytes"),
        (".global .u64 x = y;", "x holds the address of 'y'"),
        (
            ".global .b8 x[8] = {0xFF(y), 0xFF00(y)};",
            "the address of y must be there with all of its 8 bytes",
        ),
        (".global .b8 x[8] = {0, 0xFF00(y)};", "the address of y must be there with all of its 8 bytes"),
        (".global .b8 x[1] = {0x0F(y)};", "one byte of it into one byte"),
        (".global .b8 x[1] = {0f000000FF(y)};", r"expected, not '\('"),
        (".global .u32 x[4] = {1, 2", "expected"),
    ],
)
def test_initial_values_that_cannot_be(variable: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        tw.Kernel.from_ptx(entry("", "", variable), "k")(1, 1, [], device="emulator")


def test_an_address_may_be_a_number_alone() -> None:
    body = """.shared .align 4 .b32 room[4]; st.shared.u32 [4], %a; st.shared.u32 [12], 9; ld.shared.u32 %d, [room+4]; mov.u32 %x, 8;
ld.shared.u32 %e, [%x+4]; ld.shared.u32 %g, [4];"""
    a = np.full(COUNT, 77, np.int32)
    assert (run(body, a, count=3) == (77, 9, 77)).all()


def test_a_variable_of_a_function_is_there_once(rng: np.random.Generator) -> None:
    """Static arrays of functions: shared by all calls, apart from others of the same name."""
    functions = """
.func (.param .b32 r) bump(.param .b32 by)
{ .global .align 4 .u32 total = 100; .shared .align 4 .u32 sh; .reg .b32 %x, %old; ld.param.u32 %x, [by];
  st.shared.u32 [sh], %x; atom.global.add.u32 %old, [total], %x; st.param.b32 [r], %old; ret; }
.func (.param .b32 r) other()
{ .global .align 4 .u32 total = 7; .reg .b32 %x; ld.global.u32 %x, [total]; st.param.b32 [r], %x; ret; }
"""
    body = """{ .param .b32 p; .param .b32 r; st.param.b32 [p], 1; call (r), bump, (p); ld.param.b32 %d, [r];
bar.sync 0; call (r), bump, (p); ld.param.b32 %e, [r]; call (r), other; ld.param.b32 %g, [r]; }"""
    out = run(body, numbers(rng), functions, count=3)
    assert sorted(out[:, 0]) == list(range(100, 100 + COUNT))
    assert sorted(out[:, 1]) == list(range(100 + COUNT, 100 + 2 * COUNT)) and (out[:, 2] == 7).all()


def test_variables_keep_their_values_from_launch_to_launch() -> None:
    source = """
__device__ int count = 10;
__device__ int* where = &count;
extern "C" __global__ void more(int* out) { *out = atomicAdd(where, 5); }
extern "C" __global__ void look(int* out) { *out = count; }
"""
    out = np.zeros(1, np.int32)
    for expected in (10, 15):
        tw.Kernel(source, "more", arch="sm_80")(1, 1, [out], device="emulator")
        assert out[0] == expected
    tw.Kernel(source, "look", arch="sm_80")(1, 1, [out], device="emulator")
    assert out[0] == 20


# -- shared memory ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("align", "begins"), [(1, 48), (16, 48), (64, 64)])
def test_dynamic_shared_memory_begins_behind_the_static(
    align: int, begins: int, rng: np.random.Generator
) -> None:
    """At a multiple of 16, and of what it is aligned to."""
    a = numbers(rng)
    extra = f".shared .align 4 .b8 fixed[36]; .extern .shared .align {align} .b8 open[]; .shared .align 4 .b32 unused[4096];"
    body = """
mov.u32 %x, fixed; mov.u32 %d, open; sub.u32 %d, %d, %x; mov.u32 %e, %dynamic_smem_size; mov.u32 %g, %total_smem_size;
mul.lo.u32 %y, %t, 4; mov.u32 %x, open; add.u32 %y, %y, %x; st.shared.u32 [%y], %a;
"""
    out = run(body, a, extra, shared=4 * COUNT, count=3)
    assert (out == (begins, 4 * COUNT, begins + 4 * COUNT)).all()
    with pytest.raises(KernelFault, match="out-of-bounds write of 4 bytes at shared address"):
        run(body, a, extra, shared=4 * COUNT - 4)


@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_each_external_array_has_all_of_the_dynamic_shared_memory(
    names: tuple[str, str], rng: np.random.Generator
) -> None:
    """Also the one that begins later than another, as it is aligned to more."""
    a = numbers(rng)
    align = {"first": 16, "second": 128}
    arrays = " ".join(f".extern .shared .align {align[name]} .b8 {name}[];" for name in names)
    body = """mul.lo.u32 %y, %t, 4; mov.u32 %x, second; add.u32 %y, %y, %x; st.shared.u32 [%y], %a; bar.sync 0;
ld.shared.u32 %d, [%y]; mov.u32 %y, first; sub.u32 %e, %x, %y;"""
    extra = f".shared .align 4 .b8 fixed[36]; {arrays}"
    out = run(f"st.shared.u32 [fixed], 5; {body}", a, extra, shared=4 * COUNT, count=2)
    assert (out[:, 0] == a).all() and (out[:, 1] == 128 - 48).all()


@pytest.mark.parametrize(
    ("way", "first", "last", "fault"),
    [
        ("read", 0, 4, ""),
        ("read", 0, 8, r"read of 4 bytes at shared address 0x200(.|\n)*thread \(63, 0, 0\)"),
        ("write", 4, 8, r"write of 4 bytes at shared address 0x200(.|\n)*thread \(63, 0, 0\)"),
        ("read", -4, 0, r"read of 4 bytes at shared address 0xfffffffc(.|\n)*thread \(0, 0, 0\)"),
        ("write", 4, 2, r"misaligned write of 4 bytes at shared address 0x2\W(.|\n)*thread \(0, 0, 0\)"),
    ],
)
def test_accesses_that_are_checked_together_end_where_the_memory_does(
    way: str, first: int, last: int, fault: str, rng: np.random.Generator
) -> None:
    """Two words at known distances from one register, the memory's first and last byte among them."""
    access = "ld.shared.u32 %d, [%near{:+}];" if way == "read" else "st.shared.u32 [%near{:+}], %a;"
    body = ".reg .b32 %base, %near; mov.u32 %base, sh; mad.lo.u32 %near, %t, 8, %base;"
    body += f"{access.format(first)} {access.format(last)}"
    extra = f".shared .align 8 .b8 sh[{8 * COUNT}];"
    if not fault:
        run(body, numbers(rng), extra)
        return
    with pytest.raises(KernelFault, match=fault):
        run(body, numbers(rng), extra)


@pytest.mark.parametrize(("base", "first"), [(0, 8), (4, 4), (8, 16), (0, 4), (4, 8), (8, 4)])
def test_pairs_that_are_checked_together_lie_at_multiples_of_their_size(
    base: int, first: int, rng: np.random.Generator
) -> None:
    """What counts is where they lie, and not where the register points that their distances are from."""
    body = f""".reg .b32 %sh, %far, %near; mov.u32 %sh, sh; mad.lo.u32 %far, %t, 16, %sh; add.u32 %near, %far, {base};
st.shared.v2.u32 [%near+{first}], {{%a, %t}}; st.shared.v2.u32 [%near+{first + 8}], {{%t, %a}}; bar.sync 0;
ld.shared.v2.u32 {{%d, %e}}, [%near+{first}]; ld.shared.v2.u32 {{%x, %g}}, [%near+{first + 8}];"""
    a, extra = numbers(rng), f".shared .align 16 .b8 sh[{16 * COUNT + 32}];"
    if (base + first) % 8:
        with pytest.raises(KernelFault, match="misaligned write of 8 bytes at shared address"):
            run(body, a, extra)
    else:
        assert (run(body, a, extra, count=3) == np.stack([a, np.arange(COUNT), a], 1)).all()


def test_what_is_reserved_of_shared_memory_is_apart(rng: np.random.Generator) -> None:
    """The system's part overlaps no array, and there is room where groups of several warps synchronise."""
    a = numbers(rng)
    extra = ".shared .align 4 .b8 fixed[256]; .extern .shared .align 16 .b8 open[];"
    part = "%reserved_smem_offset_"
    body = f"""
.reg .b32 %r<8>; shl.b32 %r0, %t, 2; mov.u32 %r1, fixed; mov.u32 %r2, open; mov.u32 %r3, {part}1;
add.u32 %r4, %r0, %r1; add.u32 %r5, %r0, %r2; add.u32 %r6, %r0, %r3;
st.shared.u32 [%r4], 1; st.shared.u32 [%r5], 2; st.shared.u32 [%r6], %a; bar.sync 0;
ld.shared.u32 %d, [%r6]; ld.shared.u32 %e, [%r4]; ld.shared.u32 %x, [%r5]; mad.lo.u32 %e, %e, 16, %x;
mov.u32 %g, {part}end; mov.u32 %x, {part}begin; sub.u32 %g, %g, %x; mov.u32 %x, {part}cap; sub.u32 %g, %g, %x;
mov.u32 %x, %total_smem_size; add.u32 %g, %g, %x;
mov.u32 %r7, %aggr_smem_size; sub.u32 %r7, %r7, %x; mov.u32 %x, {part}cap; sub.u32 %r7, %r7, %x; add.u32 %d, %d, %r7;
"""
    out = run(body, a, extra, shared=4 * COUNT, count=3)
    assert (out[:, 0] == a).all()
    assert (out[:, 1:] == (18, 256 + 4 * COUNT)).all()


CUDA = r"""
__constant__ float weights[4] = {0.5f, 1.5f, 2.5f, 3.5f};
__constant__ int* const_pointer;
__device__ int table[4] = {5, 6, 7, 8};
__device__ int* moved = table + 1;
extern __shared__ int room[];
__device__ __noinline__ int fetch(const int* p, int i) { return p[i]; }
extern "C" __global__ void k(const int* in, int* out, int n) {
  int t = threadIdx.x, v = in[t];
  __shared__ int fixed[64];
  fixed[t] = v; room[t] = 2 * v;
  int own[16];
  for (int i = 0; i < 16; i++) own[(i * 5 + t) & 15] = i * v;
  __syncthreads();
  out[t] = own[v & 15];
  const int* p = v % 4 == 0 ? fixed : v % 4 == 1 ? room : v % 4 == 2 ? own : moved;
  out[64 + t] = fetch(p, v % 4 == 3 ? t % 3 : t % 16);
  out[128 + t] = (int)(weights[t & 3] * 2);
  out[192 + t] = const_pointer == nullptr;
  short small[5]; for (int i = 0; i < 5; i++) small[i] = (short)(v * 1000 + i);
  out[256 + t] = small[v % 5];
}
"""


def test_spaces_of_cuda(rng: np.random.Generator) -> None:
    v, out = numbers(rng), np.zeros(5 * COUNT, np.int32)
    tw.Kernel(CUDA, "k", arch="sm_80")(1, COUNT, [v, out, COUNT], shared=256, device="emulator")
    t = np.arange(COUNT)
    own = np.zeros((COUNT, 16), np.int64)
    for i in range(16):
        own[t, (i * 5 + t) & 15] = i * v
    picked = np.where(v % 4 == 3, np.array([6, 7, 8])[t % 3], 0)
    picked += np.where(v % 4 == 0, v[t % 16], 0) + np.where(v % 4 == 1, 2 * v[t % 16], 0)
    picked += np.where(v % 4 == 2, own[t, t % 16], 0)
    wanted = [own[t, v & 15], picked, 2 * (t & 3) + 1, np.ones(COUNT), (v * 1000 + v % 5).astype(np.int16)]
    for i, expected in enumerate(wanted):
        assert (out[i * COUNT : (i + 1) * COUNT] == expected).all(), i


@pytest.mark.parametrize(
    "instruction", ["ld.shared.global.u32 %r1, [%l1];", "st.global.local.u32 [%l1], %r1;"]
)
def test_an_access_names_one_space(instruction: str) -> None:
    assert "more than one space" in refused(instruction)
