"""What the checker takes a wgmma to use: the bytes of shared memory that its descriptor names, and its registers."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw
from tests.harness.warpgroups import THREADS, Operand, descriptor, whole

_ROOM, _PIECE = 2048, 16
_FENCE, _WAIT = "wgmma.fence.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"
# A thread stores to the first and to the last byte of every 16 of shared memory in turn, each by a line of its own.
_STORES = [
    f"@%p st.shared.u8 [s+{at}], %v0;"
    for piece in range(0, _ROOM, _PIECE)
    for at in (piece, piece + _PIECE - 1)
]

LIES = {
    "K-major": Operand(16, 16, 16, 0, False, 32, 256, 512),
    "K-major, 32 bytes": Operand(16, 16, 16, 32, False, 512, 16, 512),
    "K-major, 64 bytes": Operand(16, 16, 16, 64, False, 32, 16, 512),
    "K-major, 128 bytes": Operand(16, 16, 16, 128, False, 64, 16, 1024),
    "K-major, 128 bytes, base 3": Operand(16, 8, 16, 128, False, 3 * 128 + 32, 16, 1024, 3),
    "MN-major, 32 bytes": Operand(16, 16, 16, 32, True, 0, 512, 256),
    "MN-major, 128 bytes": Operand(16, 16, 16, 128, True, 0, 16, 1024),
}


def product(right: Operand) -> list[str]:
    """A wgmma of zeros in registers by a matrix in shared memory."""
    sums = [f"%d{i}" for i in range(right.rows // 2)]
    return [
        *(f"mov.b32 {zero}, 0;" for zero in (*sums, "%a0", "%a1", "%a2", "%a3")),
        *descriptor("%r", right),
        "wgmma.fence.sync.aligned;",
        f"wgmma.mma_async.sync.aligned.m64n{right.rows}k16.f32.f16.f16 {{{', '.join(sums)}}},"
        f" {{%a0, %a1, %a2, %a3}}, %r, %yes, 1, 1, {int(right.across)};",
        "wgmma.commit_group.sync.aligned;",
    ]


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("kind", ["source-in-flight", "unfenced"])
def test_stores_are_faults_where_the_matrix_lies_and_nowhere_else(name: str, kind: str) -> None:
    """Those while the product is in flight, and those before it without a fence between."""
    right, wait = LIES[name], "wgmma.wait_group.sync.aligned 0;"
    is_late = kind == "source-in-flight"
    made = [*product(right), *_STORES, wait] if is_late else [*_STORES, "bar.sync 0;", *product(right), wait]
    text = whole(["mov.b32 %v0, 0; setp.eq.u32 %p, %t, 0;", *made], _ROOM)
    first = text.splitlines().index(_STORES[0]) + 1
    found = tw.Kernel.from_ptx(text, "k").check(1, THREADS, [np.zeros(4)] * 5)
    assert {item.kind for item in found} == {kind}
    stores = {side.ptx_line - first for item in found if (side := item.now if is_late else item.before)}
    pieces = {int(at) // _PIECE for at in right.places().flat}
    assert stores == {2 * piece + end for piece in pieces for end in (0, 1)}


@pytest.mark.parametrize("register", ["%d0", "%d7", "%a0", "%a3", "%m"])
@pytest.mark.parametrize("kind", ["register-in-flight", "unfenced-register"])
def test_no_register_of_a_product_is_written_behind_the_fence_or_while_it_flies(
    register: str, kind: str
) -> None:
    """Sums, elements of A, and the metadata that say which of those there are; in the places mended nothing is found."""
    right, write = Operand(16, 16, 32, 0, False, 0, 128, 512), f"add.u32 {register}, %t, 1;"
    *before, multiply, commit = product(right)
    multiply = (
        multiply.replace("mma_async", "mma_async.sp").replace("k16", "k32").replace("%r,", "%r, %m, 0,")
    )
    flies = [*before, multiply, commit]
    if kind == "register-in-flight":
        faulty, mended = [*flies, write, _WAIT], [*flies, _WAIT, write]
    else:
        faulty, mended = (
            [*before, write, multiply, commit, _WAIT],
            [*before, write, _FENCE, multiply, commit, _WAIT],
        )
    for lines, kinds in ((faulty, {kind}), (mended, set())):
        kernel = tw.Kernel.from_ptx(whole(["mov.b32 %m, 0x44444444;", *lines], _ROOM), "k")
        found = kernel.check(1, THREADS, [np.zeros(4)] * 5)
        assert {item.kind for item in found} - {
            "unset"
        } == kinds  # nothing was stored to the matrix in shared memory
