"""``cp.async`` against a model: sizes, addresses of every shape, bytes that are filled with zeros, forms refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import tilewise as tw
from tests.harness.cases import HEAD
from tests.harness.many import Array
from tilewise.emulator.running import host_calls

ORDERS: tuple[str | int, ...] = ("eager", "late", 3)
LANES = np.arange(32)
FILLED = 0xEE  # in shared memory before the copies
# Where a lane copies from and to, in bytes, by the size of its copy; and which lanes do.
PATTERNS: dict[str, tuple[str, str, Callable[[Array, int], tuple[Array, Array]], Array]] = {
    "side by side": ("mul.lo.u32 %f, %t, {size}; mov.u32 %d, %f;", "", lambda t, n: (t * n, t * n), LANES >= 0),
    "one source": ("mov.u32 %f, 16; mul.lo.u32 %d, %t, {size};", "", lambda t, n: (16 + 0 * t, t * n), LANES >= 0),
    "mixed up": (
        "mul.lo.u32 %f, %t, 5; and.b32 %f, %f, 31; mul.lo.u32 %f, %f, {size}; mul.lo.u32 %d, %t, {size};",
        "",
        lambda t, n: (t * 5 % 32 * n, t * n),
        LANES >= 0,
    ),
    "every fourth lane": ("shl.b32 %f, %t, 2; mov.u32 %d, %f;", "@%fourth ", lambda t, n: (4 * t, 4 * t), LANES % 4 == 0),
    "the others not aligned": ("shl.b32 %f, %t, 2; mul.lo.u32 %d, %t, 4;", "@%fourth ", lambda t, n: (4 * t, 4 * t), LANES % 4 == 0),
    "other sources not aligned": ("shl.b32 %f, %t, 2; mul.lo.u32 %d, %t, {size};", "@%fourth ", lambda t, n: (4 * t, t * n), LANES % 4 == 0),
    "other targets not aligned": ("mul.lo.u32 %f, %t, {size}; shl.b32 %d, %t, 2;", "@%fourth ", lambda t, n: (t * n, 4 * t), LANES % 4 == 0),
    "no lane": ("shl.b32 %f, %t, 2; mov.u32 %d, %f;", "@!%all ", lambda t, n: (4 * t, 4 * t), LANES < 0),
}  # fmt: skip
# What follows the size, and how many bytes are read by it.
READS: dict[str, tuple[str, Callable[[Array, int], Array]]] = {
    "all": ("", lambda t, n: n + 0 * t),
    "some": (", %t", lambda t, n: np.minimum(t, n)),
    "three": (", 3", lambda t, n: 3 + 0 * t),
    "ignored": (", %odd", lambda t, n: np.where(t % 2, 0, n)),
    "hinted": (", %hint", lambda t, n: n + 0 * t),
}


def text(kind: str, size: int, pattern: str, more: str) -> str:
    start, guard, _, _ = PATTERNS[pattern]
    hint = ".L2::cache_hint" if more == ", %hint" else ""
    return f"""
.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 from, .param .u64 to)
{{
.shared .align 16 .b8 room[512];
.reg .b32 %t, %f, %d, %s, %v<5>; .reg .b64 %base, %from, %to, %wide, %away, %hint; .reg .pred %odd, %fourth, %all;
mov.u32 %t, %tid.x; ld.param.u64 %base, [from]; ld.param.u64 %to, [to]; mov.u64 %hint, 0; mov.u32 %s, room;
and.b32 %v0, %t, 1; setp.eq.u32 %odd, %v0, 1; and.b32 %v0, %t, 3; setp.eq.u32 %fourth, %v0, 0; setp.lt.u32 %all, %t, 32;
shl.b32 %v1, %t, 4; add.u32 %v1, %v1, %s; mov.b32 %v0, 0xeeeeeeee; st.shared.v4.b32 [%v1], {{%v0, %v0, %v0, %v0}}; bar.sync 0;
{start.format(size=size)}
cvt.u64.u32 %away, %f; add.u64 %from, %base, %away; add.u32 %d, %d, %s;
{guard}cp.async.{kind}.shared.global{hint} [%d], [%from], {size}{more};
cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
ld.shared.v4.b32 {{%v0, %v2, %v3, %v4}}, [%v1]; cvt.u64.u32 %wide, %t; mad.lo.u64 %to, %wide, 16, %to;
st.global.v4.b32 [%to], {{%v0, %v2, %v3, %v4}};
ret;
}}
"""


def model(source: Array, size: int, pattern: str, reads: str) -> Array:
    found = np.full(512, FILLED, np.uint8)
    _, _, places, active = PATTERNS[pattern]
    begin, end = places(LANES, size)
    for lane in LANES[active]:
        count = READS[reads][1](LANES, size)[lane]
        row = np.zeros(size, np.uint8)
        row[:count] = source[begin[lane] : begin[lane] + count]
        found[end[lane] : end[lane] + size] = row
    return found


@pytest.mark.few("ca-4-all", "ca-8-ignored", "ca-16-three", "cg-16-hinted")
@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize(("kind", "size"), [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
def test_copies_are_what_the_model_says(kind: str, size: int, reads: str) -> None:
    """The second block too, which finds the arrays where the first one found them."""
    for pattern, order in itertools.product(PATTERNS, ORDERS):
        source = np.random.default_rng().integers(0, 256, 512, np.uint8)
        out = np.zeros(512, np.uint8)
        kernel = tw.Kernel.from_ptx(text(kind, size, pattern, READS[reads][0]), "k")
        kernel(2, 32, [source, out], device=tw.device("emulator", order=order, threads=1))
        np.testing.assert_array_equal(out, model(source, size, pattern, reads), f"{pattern}, {order}")


@pytest.mark.parametrize(("asked", "read"), [(0, 0), (17, 16)])
def test_of_a_constant_no_more_is_read_than_is_written(asked: int, read: int) -> None:
    source, out = np.random.default_rng().integers(1, 256, 512, np.uint8), np.zeros(512, np.uint8)
    tw.Kernel.from_ptx(text("cg", 16, "side by side", f", {asked}"), "k")(
        1, 32, [source, out], device="emulator"
    )
    np.testing.assert_array_equal(out, source if read else np.zeros_like(source))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("asked", [0, 1, 15, 16, 17, 2**31 - 1, 2**31, 2**32 - 1])
def test_of_a_register_no_more_is_read_than_is_written(asked: int, order: str | int) -> None:
    """It holds a number without a sign."""
    source, out = np.random.default_rng().integers(1, 256, 512, np.uint8), np.zeros(512, np.uint8)
    whole = text("cg", 16, "side by side", ", %v2").replace(
        "mov.u32 %t, %tid.x;", f"mov.u32 %t, %tid.x; mov.b32 %v2, {asked};"
    )
    tw.Kernel.from_ptx(whole, "k")(1, 32, [source, out], device=tw.device("emulator", order=order))
    wanted = np.where(np.arange(512) % 16 < asked, source, 0)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("committed", [0, 1, 2, 3])
@pytest.mark.parametrize("keep", [0, 1, 2, None])
def test_a_wait_completes_all_committed_groups_but_the_last(committed: int, keep: int | None) -> None:
    """Where copies land as late as they may, the others of three have not landed: all bits are set there.

    A wait for all completes what is in no group yet as well.
    """
    copies = "".join(
        f"cp.async.ca.shared.global [%s+{8 * i}], [%from+{8 * i}], 8; {close}\n"
        for i, close in enumerate(["cp.async.commit_group;"] * committed + [""] * (3 - committed))
    )
    kept = "cp.async.ca.shared.global [%d], [%from], 16;\ncp.async.commit_group; cp.async.wait_group 0;"
    whole = text("ca", 16, "side by side", "")
    assert kept in whole
    whole = whole.replace(kept, f"{copies}cp.async.{'wait_all' if keep is None else f'wait_group {keep}'};")
    source, out = np.random.default_rng().integers(0, 200, 512, np.uint8), np.zeros(512, np.uint8)
    tw.Kernel.from_ptx(whole, "k")(1, 1, [source, out], device=tw.device("emulator", order="late"))
    landed = 24 if keep is None else 8 * max(committed - keep, 0)
    np.testing.assert_array_equal(out[:16], [*source[:landed], *[0xFF] * 16][:16])


ARRIVING = """
.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 from, .param .u64 to)
{{
.shared .align 16 .b8 room[512]; .shared .align 8 .b64 bar;
.reg .b32 %t, %s, %v<3>; .reg .b64 %from, %to, %step; .reg .pred %first, %some, %done;
ld.param.u64 %from, [from]; ld.param.u64 %to, [to]; mov.u32 %t, %tid.x; mul.wide.u32 %step, %t, 4;
add.u64 %from, %from, %step; add.u64 %to, %to, %step; mov.u32 %s, room; mad.lo.u32 %s, %t, 4, %s;
mov.b32 %v0, -1; st.shared.b32 [%s], %v0; st.shared.b32 [%s+256], %v0;
setp.eq.u32 %first, %t, 0; @%first mbarrier.init.shared.b64 [bar], 11; bar.sync 0;
cp.async.ca.shared.global [%s], [%from], 4; bar.sync 0;
setp.lt.u32 %some, %t, 11; @%some cp.async.mbarrier.arrive{form}.shared.b64 [bar];
cp.async.ca.shared.global [%s+256], [%from+256], 4; {arrive}
WAIT: mbarrier.try_wait.parity.shared.b64 %done, [bar], 0; @!%done bra WAIT;
ld.shared.b32 %v1, [%s]; ld.shared.b32 %v2, [%s+256]; st.global.b32 [%to], %v1; st.global.b32 [%to+256], %v2;
ret;
}}
"""


@pytest.mark.parametrize(
    ("form", "arrive"), [("", "@%some mbarrier.arrive.shared.b64 _, [bar];"), (".noinc", "")]
)
def test_an_mbarrier_waits_for_the_earlier_copies_of_the_lanes_that_tell_it(form: str, arrive: str) -> None:
    """Where copies land as late as they may, those of other lanes, of another warp, and later ones have not landed."""
    source, out = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    tw.Kernel.from_ptx(ARRIVING.format(form=form, arrive=arrive), "k")(
        1, 64, [source, out], device=tw.device("emulator", order="late")
    )
    np.testing.assert_array_equal(out, np.where(source < 11, source, -1))


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("cp.async.cg.shared.global [%d], [%from], 4;", "copies 16 bytes"),
        ("cp.async.ca.shared.global [%d], [%from], 12;", "copies 4 or 8 or 16 bytes"),
        ("cp.async.shared.global [%d], [%from], 16;", "cp.async.ca or cp.async.cg"),
        ("cp.async.ca.shared [%d], [%from], 16;", "cp.async.ca or cp.async.cg"),
        ("cp.async.ca.global.shared [%from], [%d], 16;", "from .global to .shared"),
        ("cp.async.ca.shared.global.L1::evict_first [%d], [%from], 16;", "not supported"),
        ("cp.async.ca.shared.global [%d], [%from];", "it takes"),
    ],
)
def test_forms_that_there_are_not(form: str, says: str) -> None:
    whole = text("cg", 16, "side by side", "").replace("cp.async.cg.shared.global [%d], [%from], 16;", form)
    with pytest.raises(tw.errors.PtxError, match=says):
        tw.Kernel.from_ptx(whole, "k")(1, 32, [np.zeros(512, np.uint8)] * 2, device="emulator")


TIMED = """
    __shared__ int s[4][128]; __shared__ u64 m;
    if (T == 0) init(&m, 128);
    __syncthreads();
    int sum = 0;
    for (int phase = 0; phase < 3; phase++) {
        for (int i = 0; i < 4; i++) {
            cp4(s[i] + T, x + 128 * (4 * phase + i) + T);
            asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" :: "r"(at(&m)) : "memory");
        }
        u64 state, now, over = 0;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at(&m)) : "memory");
        while (!over) {
            asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u64 %0, 1, 0, p; }"
                : "=l"(over) : "r"(at(&m)), "l"(state) : "memory");
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        }
        for (int i = 0; i < 4; i++) sum += s[i][127 - T];
        __syncthreads();
    }
    y[T] = sum;
"""


def test_copies_that_all_wait_for_are_not_asked_for_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'{HEAD}extern "C" __global__ void timed(int *x, int *y) {{{TIMED}}}'
    timed, x = tw.Kernel(text, "timed", "sm_80"), np.arange(12 * 128, dtype=np.int32)
    asked: list[int] = []
    answer = host_calls.HostCallHandler._handle

    def count(self: host_calls.HostCallHandler, *given: int) -> int:
        asked.append(1)
        return answer(self, *given)

    monkeypatch.setattr(host_calls.HostCallHandler, "_handle", count)
    for order in ("eager", "late"):
        asked.clear()
        y = np.zeros(128, np.int32)
        timed(1, 128, [x, y], device=tw.device("emulator", order=order, threads=1))
        assert np.array_equal(y, x.reshape(12, 128).sum(0)[::-1])
        assert len(asked) <= 4 * 3 * 3  # a few times for each of four warps and three phases
