"""wgmma in flight: groups, waits, what comes too early, and warpgroups that are not whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tests.harness.many import Array
from tests.harness.warpgroups import THREADS, Case, Operand, copied, descriptor, put, whole
from tilewise.errors import Deadlock, KernelFault

RANDOM = np.random.default_rng()
_N, _K, _STEP = 16, 64, 16
_ROOM = 12288
_COMMIT, _FENCE = "wgmma.commit_group.sync.aligned;", "wgmma.fence.sync.aligned;"
ORDERS = ["eager", "late", *(int(seed) for seed in RANDOM.integers(0, 2**40, 4))]


def wait(left: int) -> str:
    return f"wgmma.wait_group.sync.aligned {left};"


def product(step: int, sums: str = "d", adds: str = "%yes", a: str = "%l") -> list[str]:
    """Sums plus a slice of 16 of A by a slice of B."""
    left = Operand(16, 64, _STEP, 128, start=32 * step, stride=1024)
    right = Operand(16, _N, _STEP, 128, start=8192 + 32 * step, stride=1024)
    listed = ", ".join(f"%{sums}{i}" for i in range(_N // 2))
    kind = f"wgmma.mma_async.sync.aligned.m64n{_N}k{_STEP}.f32.f16.f16"
    across = "0, 0" if a == "%l" else "0"
    return [
        *descriptor("%l", left),
        *descriptor("%r", right),
        f"{kind} {{{listed}}}, {a}, %r, {adds}, 1, 1, {across};",
    ]


def stored(sums: str = "d", place: int = 0) -> list[str]:
    """Sums to the array of results."""
    lines = ["mul.wide.u32 %x, %t, 4; ld.param.u64 %at, [d]; add.u64 %at, %at, %x;"]
    lines.append(
        f"mov.u32 %s, %ntid.x; mul.lo.u32 %s, %s, {place * _N * 2}; cvt.u64.u32 %x, %s; add.u64 %at, %at, %x;"
    )
    lines.append("mov.u32 %s, %ntid.x; mul.wide.u32 %x, %s, 4;")
    return lines + [f"st.global.b32 [%at], %{sums}{i}; add.u64 %at, %at, %x;" for i in range(_N // 2)]


class Tiles:
    """Fresh matrices A and B of small integers in an image of shared memory."""

    def __init__(self) -> None:
        self.a = RANDOM.integers(-3, 4, (64, _K)).astype(np.float64)
        self.b = RANDOM.integers(-3, 4, (_N, _K)).astype(np.float64)
        self.image = np.zeros(_ROOM, np.uint8)
        for matrix, start in ((self.a, 0), (self.b, 8192)):
            place = Operand(16, len(matrix), _K, 128, start=start, stride=1024)
            put(self.image, place, matrix.astype(np.float16).view(np.uint16))

    def product(self, *steps: int) -> Array:
        columns = [16 * step + i for step in steps for i in range(_STEP)]
        found: Array = self.a[:, columns] @ self.b[:, columns].T
        return found

    def run(
        self,
        lines: list[str],
        order: Any = "eager",
        results: int = 1,
        threads: int = THREADS,
        c: int | None = None,
    ) -> list[Array]:
        """Run lines; the matrices that each warpgroup stored, one result after the other."""
        kernel = tw.Kernel.from_ptx(whole([*copied(0, _ROOM), *zeros(), *lines], _ROOM), "k")
        d = np.full((results, _N // 2, threads), 77, np.uint32)
        none = np.zeros(4, np.uint32)
        given = [self.image, none, none, none if c is None else c, d]
        kernel(1, threads, given, device=tw.device("emulator", order=order))
        case = Case(_N, "f32", "f16", "f16")
        groups = [d[..., start : start + THREADS] for start in range(0, threads, THREADS)]
        return [case.matrix(result) for group in groups for result in group if result.shape[-1] == THREADS]


def zeros() -> list[str]:
    return [f"mov.b32 %{name}{i}, 0;" for name in "de" for i in range(_N // 2)]


# -- groups -----------------------------------------------------------------------------------------
def pipeline() -> list[str]:
    """Sums d and e in turn, each in flight while the other is waited for."""
    lines = [_FENCE, *product(0), *product(1), _COMMIT, *product(1, "e"), _COMMIT, wait(1), *stored("d", 0)]
    lines += [_FENCE, *product(2), *product(3), _COMMIT, wait(1), *stored("e", 1)]
    lines += [_FENCE, *product(3, "e", "%no"), _COMMIT, wait(0), *stored("d", 2), *stored("e", 3)]
    return lines


@pytest.mark.parametrize("threads", [THREADS, 2 * THREADS])
def test_every_order_gives_the_same(threads: int) -> None:
    tiles = Tiles()
    parts = [tiles.product(0, 1), tiles.product(1), tiles.product(0, 1, 2, 3), tiles.product(3)]
    for order in ORDERS:
        found = tiles.run(pipeline(), order, 4, threads)
        for result, wanted in zip(found, parts * (threads // THREADS), strict=True):
            np.testing.assert_array_equal(result, wanted)


def test_all_steps_in_a_loop() -> None:
    """One accumulator over turns of a loop with a wait for the turn before."""
    body = [line for step in range(4) for line in product(step)]
    lines = ["mov.u32 %m, 0;", "again:", _FENCE, *body, _COMMIT, wait(1)]
    lines += ["add.u32 %m, %m, 1; setp.lt.u32 %p, %m, 5; @%p bra again;", wait(0), *stored()]
    tiles = Tiles()
    for order in ORDERS[:3]:
        np.testing.assert_array_equal(tiles.run(lines, order)[0], 5 * tiles.product(0, 1, 2, 3))


@pytest.mark.parametrize("each", [False, True])
def test_more_in_flight_than_a_list_holds(each: bool) -> None:
    lines = [_FENCE]
    for i in range(75):
        lines += [*product(i % 4), _COMMIT if each else ""]
    lines += [_COMMIT, wait(0), *stored()]
    tiles = Tiles()
    wanted = 18 * tiles.product(0, 1, 2, 3) + tiles.product(0, 1, 2)
    for order in ORDERS[:3]:
        np.testing.assert_array_equal(tiles.run(lines, order)[0], wanted)


def test_a_list_has_room_again_while_some_are_in_flight() -> None:
    """Each group is waited for when the next is committed, so that there is never none in flight."""
    steps = [int(step) for step in RANDOM.integers(0, 4, 45)]
    lines = [_FENCE]
    for number, step in enumerate(steps):
        lines += [*product(step), *([_COMMIT, wait(1)] if number % 3 == 2 else [])]
    tiles = Tiles()
    wanted = sum(tiles.product(step) for step in steps)
    for order in ORDERS[:3]:
        np.testing.assert_array_equal(tiles.run([*lines, wait(0), *stored()], order)[0], wanted)


def test_groups_of_nothing_and_a_constant_predicate() -> None:
    lines = [wait(0), _COMMIT, _COMMIT, wait(3), _FENCE, *product(0, adds="0"), *product(1, adds="1")]
    lines += [_COMMIT, _COMMIT, wait(1), *stored()]
    tiles = Tiles()
    for order in ORDERS[:3]:
        np.testing.assert_array_equal(tiles.run(lines, order)[0], tiles.product(0, 1))


def test_sums_of_a_product_that_is_not_committed() -> None:
    """A wait is for groups: what is in none may be in flight still."""
    lines = [_FENCE, *product(0), wait(0), *stored()]
    assert np.isnan(Tiles().run(lines, "late")[0]).all()


# -- two builds -------------------------------------------------------------------------------------
@pytest.mark.parametrize("warp", range(4))
def test_a_warp_leaves_the_fast_build_while_products_are_in_flight(warp: int) -> None:
    """An index wraps around in one warp: what it issues then, in the general build, adds to the same sums."""
    wraps = [
        ".reg .b32 %w<4>; .reg .b64 %wide; ld.param.u32 %w0, [c]; add.u32 %w1, %w0, %t;",
        "mul.wide.u32 %wide, %w1, 4; cvt.u32.u64 %w2, %wide; and.b32 %w2, %w2, 508;",
        "mov.u32 %w3, s; add.u32 %w3, %w3, %w2; st.shared.b32 [%w3+11520], %w2;",
    ]
    lines = [_FENCE, *product(0), _COMMIT, *wraps, *product(1), *product(2), _COMMIT]
    lines += [wait(1), *stored("d", 0), _FENCE, *product(3), _COMMIT, wait(0), *stored("d", 1)]
    tiles = Tiles()
    for order in ORDERS:
        early, result = tiles.run(lines, order, 2, c=2**32 - 32 * warp - 16)
        np.testing.assert_array_equal(result, tiles.product(0, 1, 2, 3))
        assert order == "eager" or np.isnan(early).all()


# -- too early --------------------------------------------------------------------------------------
def test_a_missing_wait_shows() -> None:
    tiles = Tiles()
    lines = [_FENCE, *product(0), _COMMIT, *product(1), _COMMIT, wait(1), *stored(), wait(0), *stored("d", 1)]
    for order in ORDERS[1:]:
        early, result = tiles.run(lines, order, 2)
        assert np.isnan(early).all()
        np.testing.assert_array_equal(result, tiles.product(0, 1))


def test_shared_memory_that_changes_too_early_shows() -> None:
    change = [
        "bar.sync 0;",
        "mov.u32 %s, s; shl.b32 %i, %t, 4; add.u32 %s, %s, %i; st.shared.v4.b32 [%s+8192], {%d0, %d0, %d0, %d0};",
        "bar.sync 0;",
    ]
    lines = ["mov.b32 %d0, 0;", _FENCE, *product(0, "e"), _COMMIT, *change, wait(0), *stored("e")]
    tiles = Tiles()
    np.testing.assert_array_equal(tiles.run(lines, "eager")[0], tiles.product(0))
    assert (tiles.run(lines, "late")[0] == 0).all()


def test_registers_of_a_that_change_too_early_show() -> None:
    def lines(change: Callable[[], list[str]]) -> list[str]:
        ones = [f"mov.b32 %a{i}, 0x3C003C00;" for i in range(4)]
        fragment = "{%a0, %a1, %a2, %a3}"
        return [*ones, _FENCE, *product(0, a=fragment), _COMMIT, *change(), wait(0), *stored()]

    tiles = Tiles()
    wanted = np.broadcast_to(tiles.b[:, :16].sum(1), (64, _N))
    for order in ORDERS[:3]:
        np.testing.assert_array_equal(tiles.run(lines(list), order)[0], wanted)
    early = lines(lambda: ["mov.b32 %a0, 0; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0; bar.sync 0;"])
    assert (tiles.run(early, "late")[0] == 0).all()


# -- whole warpgroups -------------------------------------------------------------------------------
_PLAIN = [_FENCE, *product(0), _COMMIT, wait(0), *stored()]


def test_a_block_without_a_whole_warpgroup_is_a_fault() -> None:
    with pytest.raises(KernelFault, match="less than a whole warpgroup") as caught:
        Tiles().run(_PLAIN, threads=96)
    assert "wgmma.mma_async" in str(caught.value)
    with pytest.raises(KernelFault, match="less than a whole warpgroup"):
        Tiles().run(_PLAIN, threads=112)


@pytest.mark.parametrize("line", [2, 3, 4])
def test_lanes_that_do_not_come_are_a_fault(line: int) -> None:
    lines = [*_PLAIN]
    position = [i for i, text in enumerate(lines) if text.startswith("wgmma.")][line - 1]
    lines[position] = f"and.b32 %s, %t, 1; setp.eq.u32 %p, %s, 1; @%p {lines[position]}"
    with pytest.raises(KernelFault, match=r"less than a whole warpgroup|in divergent code"):
        Tiles().run(lines)


def test_lanes_that_come_one_by_one() -> None:
    """Each lane leaves a loop when the one before it has: they are together again at the fence."""
    lines = [
        "shr.u32 %i, %t, 5; shl.b32 %i, %i, 2; mov.u32 %s, s; add.u32 %s, %s, %i;",  # a word of each warp's own
        "and.b32 %m, %t, 31; mov.b32 %v1, 0; st.shared.b32 [%s+11264], %v1; bar.sync 0;",
        "turn: ld.volatile.shared.b32 %v0, [%s+11264]; setp.ne.u32 %p, %v0, %m; @%p bra turn;",
        "add.u32 %v0, %v0, 1; st.volatile.shared.b32 [%s+11264], %v0;",
    ]
    tiles = Tiles()
    for order in ORDERS[:3]:
        np.testing.assert_array_equal(tiles.run([*lines, *_PLAIN], order)[0], tiles.product(0))


@pytest.mark.parametrize("order", ["eager", "late"])
def test_a_warp_that_never_commits_is_a_deadlock(order: str) -> None:
    lines = ["setp.ge.u32 %p, %t, 96; @%p bra out;", *_PLAIN, "out:"]
    with pytest.raises(Deadlock, match="four warps to have committed 1 groups of wgmma") as caught:
        Tiles().run(lines, order)
    assert "warp 0, warp 1, warp 2 wait" in str(caught.value)
    assert "wgmma.wait_group" in str(caught.value)


def test_warps_in_turn() -> None:
    """Warps that come one after the other, as barriers let them, still make one warpgroup."""
    lines = [_FENCE, *product(0), *product(1), _COMMIT]
    for warp in range(4):
        lines += [
            f"shr.u32 %i, %t, 5; setp.ne.u32 %p, %i, {warp}; @%p bra past{warp};",
            *product(2, "e"),
            f"past{warp}:",
            "bar.sync 0;",
        ]
    lines += [_COMMIT, wait(0), *stored("d", 0), *stored("e", 1)]
    tiles = Tiles()
    for order in ORDERS[:3]:
        first, second = tiles.run(lines, order, 2)
        np.testing.assert_array_equal(first, tiles.product(0, 1))
        np.testing.assert_array_equal(second, tiles.product(2))


# -- descriptors that lead astray -------------------------------------------------------------------
def _with_descriptors() -> tw.Kernel:
    """A kernel whose descriptors are parameters; one of A is for the image, as the other tests have it."""
    lines = copied(0, _ROOM)
    lines += [*zeros(), "ld.param.u64 %l, [e]; ld.param.u64 %r, [c];", _FENCE]
    text = [line for line in product(0) if line.startswith("wgmma")]
    text += [line.replace("0, 0;", "1, 1;") for line in text]
    return tw.Kernel.from_ptx(whole([*lines, *text, _COMMIT, wait(0), *stored()], _ROOM), "k")


def test_hostile_descriptors_are_faults() -> None:
    kernel, image, none = _with_descriptors(), Tiles().image, np.zeros(4, np.uint32)
    d = np.zeros((_N // 2, THREADS), np.uint32)
    inside = Operand(16, 64, _STEP, 128, stride=64).descriptor()
    pairs = [tuple(int(x) for x in RANDOM.integers(0, 2**64, 2, dtype=np.uint64)) for _ in range(40)]
    pairs += [(inside, 0), (inside, 2**64 - 1), (0x2FF, inside), (2**14 - 1, 2**14 - 1)]
    said = []
    for a, b in pairs:
        with contextlib.suppress(KernelFault):
            kernel(1, THREADS, [image, none, a, b, d], device="emulator")
            continue
        with pytest.raises(KernelFault) as caught:
            kernel(1, THREADS, [image, none, a, b, d], device="emulator")
        said.append(str(caught.value))
    assert len(said) > 30
    assert all("a wgmma reads" in text for text in said)


def test_a_fault_says_what_the_descriptor_says() -> None:
    kernel, none = _with_descriptors(), np.zeros(4, np.uint32)
    d = np.zeros((_N // 2, THREADS), np.uint32)
    far = Operand(16, _N, _STEP, 64, start=8192, leading=16, stride=4096).descriptor()
    good = Operand(16, 64, _STEP, 128, stride=64).descriptor()
    with pytest.raises(KernelFault) as caught:
        kernel(1, THREADS, [Tiles().image, none, good, far, d], device="emulator")
    said = str(caught.value)
    for words in (
        "K-major matrix",
        "start 0x2000",
        "stride offset 4096",
        "a swizzle of 64 bytes",
        "12,288 bytes",
        "mma_async",
    ):
        assert words in said, said
