"""Accesses of which not every lane takes part, or that are more than one element: who writes, where they end."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import tilewise as tw
from tests.harness.lanes import entry
from tilewise.errors import KernelFault

# Some bits of a lane's number say where it writes; with 0x18 there are gaps.
KEPT = (0x00, 0x07, 0x0F, 0x18, 0x1F)
# Which lanes run, as PTX that sets %p.
RUNNING = {
    "setp.lt.u32 %p, %t, 13;": np.arange(32) < 13,
    "and.b32 %v, %t, 1; setp.ne.u32 %p, %v, 0;": np.arange(32) % 2 == 1,
    "setp.gt.u32 %p, %t, 31;": np.arange(32) > 31,
}


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("words", [1, 2, 4])
def test_of_guarded_lanes_that_share_places_the_last_that_runs_stays(words: int, space: str) -> None:
    """And where none runs nothing changes, nor between the places. Each store runs twice."""
    size, cases = 4 * words, [(kept, guard) for kept in KEPT for guard in RUNNING]
    item = f"v{words}.u32" if words > 1 else "u32"
    held = f"{{{', '.join(['%t'] * words)}}}" if words > 1 else "%t"
    body = f""".shared .align 16 .b32 room[{32 * words}]; .reg .b32 %t, %s, %own, %turn; .reg .pred %p, %q;
.reg .b64 %out, %mine; mov.u32 %t, %tid.x; ld.param.u64 %out, [out]; mov.u32 %s, room;
mul.lo.u32 %own, %t, {size}; mul.wide.u32 %mine, %t, {size}; add.u64 %mine, %mine, %out; add.u32 %own, %own, %s;"""
    for number, (kept, guard) in enumerate(cases):
        # NOTE: with registers of its own, so that it is known where each lane writes.
        body += f"""
{{ .reg .b32 %k, %x, %y, %v; .reg .b64 %off, %at; and.b32 %k, %t, {kept}; mul.lo.u32 %x, %k, {size}; add.u32 %y, %s, %x; cvt.u64.u32 %off, %x; add.u64 %at, %out, %off;
{guard} mov.u32 %turn, 0; mov.u32 %v, -1;"""
        body += "".join(f" st.shared.u32 [%own+{4 * word}], %v;" for word in range(words))
        body += f"""
bar.sync 0;
again{number}: @%p st.{space}.{item} [{"%y" if space == "shared" else "%at"}], {held};
add.u32 %turn, %turn, 1; setp.lt.u32 %q, %turn, 2; @%q bra again{number}; bar.sync 0;"""
        if space == "shared":
            for word in range(words):
                body += f"\nld.shared.u32 %v, [%own+{4 * word}]; st.global.u32 [%mine+{4 * word}], %v;"
        body += f"\nadd.u64 %out, %out, {32 * size}; add.u64 %mine, %mine, {32 * size}; bar.sync 0; }}"
    out = np.full((len(cases), 32, words), -1, np.int32)
    tw.Kernel.from_ptx(entry(body, ".param .u64 out"), "k")(1, 32, [out], device="emulator")
    for (kept, guard), found in zip(cases, out, strict=True):
        wanted = np.full((32, words), -1, np.int32)
        for lane in np.flatnonzero(RUNNING[guard]):
            wanted[lane & kept] = lane
        np.testing.assert_array_equal(found, wanted, f"{kept:#x}, {guard}")


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("type_", ["u8", "u16", "u32", "u64"])
def test_lanes_at_sums_of_any_numbers_lie_in_stretches_of_any_lengths(type_: str, space: str) -> None:
    """Each bit of a lane's number says whether its number is added: read, and written, some of it side by side.

    Four blocks do it: the first finds out in which array it is.
    """
    seed = int(np.random.default_rng().integers(2**32))
    rng, size = np.random.default_rng(seed), int(type_[1:]) // 8
    register, lanes = "b64" if size == 8 else "b32", np.arange(32)
    numbers = [[1, 50, 48, 200, 100], *(rng.integers(1, 60, 5).tolist() for _ in range(5))]
    places = [sum((lanes >> i & 1) * number for i, number in enumerate(of)) for of in numbers]
    body = f""".shared .align 16 .b8 room[{512 * size}]; .reg .b32 %t, %s; .reg .b64 %in, %out, %got, %own;
mov.u32 %t, %tid.x; mov.u32 %s, room; ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u64 %got, [got];
mul.wide.u32 %own, %t, {size}; add.u64 %got, %got, %own;"""
    for case, of in enumerate(
        numbers
    ):  # NOTE: with registers of their own, so that it is known where each lane is
        body += f"\n{{ .reg .b32 %a<6>, %b<6>, %c<6>, %x; .reg .b64 %o, %at, %to; .reg .{register} %v; mov.u32 %c0, 0;"
        for i, number in enumerate(of):
            body += f" shr.u32 %a{i}, %t, {i}; and.b32 %b{i}, %a{i}, 1; mad.lo.u32 %c{i + 1}, %b{i}, {number * size}, %c{i};"
        body += f" cvt.u64.u32 %o, %c5; add.u64 %at, %in, %o; add.u64 %to, %out, %o; add.u32 %x, %s, %c5; ld.global.{type_} %v, [%at];"
        if space == "shared":
            body += f" bar.sync 0; st.shared.{type_} [%x], %v; bar.sync 0; ld.shared.{type_} %v, [%x];"
        body += f" st.global.{type_} [%to+{512 * size * case}], %v; st.global.{type_} [%got+{32 * size * case}], %v; }}"
    given = rng.integers(1, 256, (512,), dtype=f"u{size}")
    out, got = np.zeros((len(numbers), 512), given.dtype), np.zeros((len(numbers), 32), given.dtype)
    kernel = tw.Kernel.from_ptx(entry(body, ".param .u64 in, .param .u64 out, .param .u64 got"), "k")
    kernel(4, 32, [given, out, got], device="emulator")
    for at, written, read in zip(places, out, got, strict=True):
        np.testing.assert_array_equal(read, given[at], f"seed {seed}")
        np.testing.assert_array_equal(np.flatnonzero(written), np.unique(at), f"seed {seed}")
        np.testing.assert_array_equal(written[at], given[at], f"seed {seed}")


def test_one_generic_address_of_local_memory_is_a_place_of_every_lane() -> None:
    """Also where all lanes write the same number there, and where only some write."""
    body = """.local .align 8 .b32 own[4]; .reg .b64 %a, %g, %o, %out; .reg .b32 %t, %r, %s, %u, %c; .reg .pred %p;
mov.u32 %t, %tid.x; ld.param.u64 %out, [out]; mul.wide.u32 %o, %t, 12; add.u64 %out, %out, %o;
mov.u64 %a, own; cvta.local.u64 %g, %a; st.local.u32 [own], %t; st.local.u32 [own+4], %t; st.local.u32 [own+8], %t;
mov.u32 %c, 77; st.u32 [%g], %c; setp.gt.u32 %p, %t, 9; @%p st.u32 [%g+4], %c; st.local.u32 [%a+8], %c;
ld.local.u32 %r, [own]; ld.u32 %s, [%g+4]; ld.local.u32 %u, [own+8];
st.global.u32 [%out], %r; st.global.u32 [%out+4], %s; st.global.u32 [%out+8], %u;"""
    out = np.zeros((40, 3), np.uint32)
    tw.Kernel.from_ptx(entry(body, ".param .u64 out"), "k")(1, 40, [out], device="emulator")
    lanes = np.arange(40)
    np.testing.assert_array_equal(
        out, np.stack([lanes * 0 + 77, np.where(lanes > 9, 77, lanes), lanes * 0 + 77], 1)
    )


@pytest.mark.parametrize("verb", ["ld", "st"])
@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("words", [2, 4])
def test_vectors_of_lanes_side_by_side_are_bounded_and_aligned_as_a_whole(
    words: int, space: str, verb: str
) -> None:
    """Where the last lane's ends beyond the array by one element, and where lanes are only an element apart."""
    items = f"{{{', '.join(f'%r{i}' for i in range(words))}}}"
    given = {"ld": f"{items}, [%at]", "st": f"[%at], {items}"}[verb]
    done = "read" if verb == "ld" else "write"
    for step, length, said in [
        (4 * words, 32, None),
        (4 * words, 31, f"out-of-bounds {done} of {4 * words} bytes"),
        (4, 32, f"misaligned {done} of {4 * words} bytes"),
    ]:
        size = 4 * words * length + (0 if length == 32 else 4 * (words - 1))
        body = f""".shared .align 16 .b8 room[{size}]; .reg .b32 %t, %turn, %r<4>; .reg .b64 %o, %p, %at; .reg .pred %q;
mov.u32 %t, %tid.x; {"ld.param.u64 %p, [x];" if space == "global" else "mov.u64 %p, room;"} mov.u32 %turn, 0;
mul.wide.u32 %o, %t, {step}; add.u64 %at, %p, %o;
again: {verb}.{space}.v{words}.b32 {given}; add.u32 %turn, %turn, 1; setp.lt.u32 %q, %turn, 2; @%q bra again;"""
        kernel = tw.Kernel.from_ptx(entry(body, ".param .u64 x"), "k")
        with pytest.raises(KernelFault, match=said) if said else contextlib.nullcontext():
            kernel(1, 32, [np.zeros(size, np.uint8)], device="emulator")


@pytest.mark.parametrize(
    ("away", "size", "said"), [(0, 8, None), (2, 16, "misaligned"), (0, 7, "out-of-bounds")]
)
def test_neighbours_in_shared_memory_are_bounded_and_aligned_together(
    away: int, size: int, said: str | None
) -> None:
    body = f""".shared .align 16 .b8 room[{size}]; .reg .b32 %s, %by, %r<3>;
ld.param.u32 %by, [by]; mov.u32 %s, room; add.u32 %s, %s, %by; ld.shared.b32 %r1, [%s]; ld.shared.b32 %r2, [%s+4];"""
    kernel = tw.Kernel.from_ptx(entry(body, ".param .u32 by"), "k")
    with pytest.raises(KernelFault, match=f"{said} read of 4 bytes") if said else contextlib.nullcontext():
        kernel(1, 32, [away], device="emulator")
