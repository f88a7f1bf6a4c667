"""Which bytes of shared memory the checker takes a wgmma in flight to read: those that its descriptor names."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise as tw
from tests.harness.warpgroups import THREADS, Operand, descriptor, whole

_ROOM, _PIECE = 2048, 16

LIES = {
    "K-major": Operand(16, 16, 16, 0, False, 32, 256, 512),
    "K-major, 32 bytes": Operand(16, 16, 16, 32, False, 512, 16, 512),
    "K-major, 64 bytes": Operand(16, 16, 16, 64, False, 32, 16, 512),
    "K-major, 128 bytes": Operand(16, 16, 16, 128, False, 64, 16, 1024),
    "K-major, 128 bytes, base 3": Operand(16, 8, 16, 128, False, 3 * 128 + 32, 16, 1024, 3),
    "MN-major, 32 bytes": Operand(16, 16, 16, 32, True, 0, 512, 256),
    "MN-major, 128 bytes": Operand(16, 16, 16, 128, True, 0, 16, 1024),
}


@pytest.mark.parametrize("name", LIES)
def test_stores_are_faults_where_a_matrix_in_flight_lies_and_nowhere_else(name: str) -> None:
    """A thread stores to every 16 bytes of shared memory in turn, each by a line of its own."""
    right = LIES[name]
    sums = [f"%d{i}" for i in range(right.rows // 2)]
    begin = [*(f"mov.b32 {zero}, 0;" for zero in (*sums, "%v0", "%a0", "%a1", "%a2", "%a3")),
        "fence.proxy.async; bar.sync 0;", *descriptor("%r", right), "wgmma.fence.sync.aligned;",
        f"wgmma.mma_async.sync.aligned.m64n{right.rows}k16.f32.f16.f16 {{{', '.join(sums)}}},"
        f" {{%a0, %a1, %a2, %a3}}, %r, %yes, 1, 1, {int(right.across)};",
        "wgmma.commit_group.sync.aligned; setp.eq.u32 %p, %t, 0;"]  # fmt: skip
    stores = [f"@%p st.shared.b32 [s+{place}], %v0;" for place in range(0, _ROOM, _PIECE)]
    text = whole([*begin, *stores, "wgmma.wait_group.sync.aligned 0;"], _ROOM)
    first = text.splitlines().index(stores[0]) + 1
    found = tw.Kernel.from_ptx(text, "k").check(1, THREADS, [np.zeros(4)] * 5)
    assert {item.kind for item in found} == {"source-in-flight"}
    assert {item.now.ptx_line - first for item in found} == {int(at) // _PIECE for at in right.places().flat}
