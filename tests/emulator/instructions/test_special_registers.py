"""Special registers: where a thread is, what it is told of the launch, and the time."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

import tilewise as tw
from tests.emulator.instructions.test_spaces import COUNT, numbers, run
from tests.harness.lanes import entry
from tilewise.errors import PtxError


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("%laneid", lambda t, block: t % 32),
        ("%warpid", lambda t, block: t // 32),
        ("%nwarpid", lambda t, block: 2),
        ("%lanemask_eq", lambda t, block: 1 << t % 32),
        ("%lanemask_lt", lambda t, block: (1 << t % 32) - 1),
        ("%lanemask_le", lambda t, block: (2 << t % 32) - 1),
        ("%lanemask_gt", lambda t, block: 2**32 - (2 << t % 32)),
        ("%lanemask_ge", lambda t, block: 2**32 - (1 << t % 32)),
        ("%ctaid.x", lambda t, block: block),
        ("%nctaid.x", lambda t, block: 3),
        ("%ntid.x", lambda t, block: COUNT),
        ("%tid.y", lambda t, block: 0),
        ("%clusterid.x", lambda t, block: block),
        ("%nclusterid.x", lambda t, block: 3),
        ("%cluster_ctaid.x", lambda t, block: 0),
        ("%cluster_nctaid.y", lambda t, block: 1),
        ("%cluster_ctarank", lambda t, block: 0),
        ("%cluster_nctarank", lambda t, block: 1),
        ("%envreg3", lambda t, block: 0),
        ("WARP_SZ", lambda t, block: 32),
    ],
)
def test_special_registers(name: str, wanted: object, rng: np.random.Generator) -> None:
    out = run(f"mov.u32 %d, {name};", numbers(rng), grid=3)
    assert callable(wanted)
    assert list(out) == [wanted(i % COUNT, i // COUNT) for i in range(3 * COUNT)]


def test_there_is_no_cluster_and_blocks_have_a_multiprocessor(rng: np.random.Generator) -> None:
    body = "mov.pred %p, %is_explicit_cluster; selp.u32 %d, 1, 0, %p; mov.u32 %e, %smid; mov.u32 %g, %nsmid;"
    out = run(body, numbers(rng), grid=3, count=3)
    assert (out[:, 0] == 0).all() and (out[:, 1] < out[:, 2]).all()
    assert (out[:, 2] == tw.device("emulator").multiprocessors).all()


def test_registers_that_say_nothing_here_are_0(rng: np.random.Generator) -> None:
    """Those of 32 bits and of 64, with something in their upper halves before."""
    short = [f"%envreg{i}" for i in (0, *range(3, 32))] + [f"%pm{i}" for i in range(8)]
    short += ["%tid.w", "%ctaid.w"]
    body = ["mov.u64 %f, -1; mov.u32 %x, -1;"]
    body += [f"mov.u32 %x, {name}; or.b32 %d, %d, %x;" for name in short]
    for name in [f"%pm{i}_64" for i in range(8)] + ["%current_graph_exec", "%gridid"]:
        body.append(
            f"mov.u64 %f, -1; mov.u64 %f, {name}; mov.b64 {{%x, %y}}, %f; or.b32 %d, %d, %x; or.b32 %e, %e, %y;"
        )
    assert not run("\n".join(body), numbers(rng), count=2).any()


def test_time_passes() -> None:
    """Clocks never go back; the timer counts nanoseconds."""
    body = """
.reg .b64 %a<4>, %out; .reg .b32 %n, %c<2>; .reg .pred %p; ld.param.u64 %out, [out];
mov.u64 %a0, %globaltimer; mov.u64 %a2, %clock64; mov.u32 %c0, %clock;
wait: mov.u64 %a1, %globaltimer; sub.u64 %a3, %a1, %a0; setp.lt.u64 %p, %a3, 20000000; @%p bra wait;
mov.u64 %a1, %clock64; sub.u64 %a1, %a1, %a2; mov.u32 %c1, %clock; sub.u32 %c1, %c1, %c0;
st.global.u64 [%out], %a3; st.global.u64 [%out+8], %a1; st.global.u32 [%out+16], %c1;
"""
    out = np.zeros(3, np.uint64)
    kernel = tw.Kernel.from_ptx(entry(body, ".param .u64 out"), "k")
    kernel(1, 1, [out], device="emulator")
    started = time.perf_counter()
    kernel(1, 1, [out], device="emulator")
    took = (time.perf_counter() - started) * 1e9
    assert 20_000_000 <= out[0] <= took and 0 < out[1] < 2**40 and out[2] > 0


@pytest.mark.parametrize("name", ["%clock", "%globaltimer"])
def test_halves_of_the_time_are_those_of_the_whole(name: str) -> None:
    whole, low = ("%clock64", "%clock") if name == "%clock" else (name, "%globaltimer_lo")
    body = f"""
.reg .b64 %a<2>, %out; .reg .b32 %l, %h; ld.param.u64 %out, [out]; mov.u64 %a0, {whole}; mov.u32 %h, {name}_hi; mov.u32 %l, {low};
mov.u64 %a1, {whole}; st.global.u64 [%out], %a0; st.global.u64 [%out+8], %a1; st.global.u32 [%out+16], %h; st.global.u32 [%out+24], %l;
"""
    out = np.zeros(4, np.uint64)
    tw.Kernel.from_ptx(entry(body, ".param .u64 out"), "k")(1, 1, [out], device="emulator")
    first, last, high, lower = map(int, out)
    assert 0 < first <= last
    assert high in (first >> 32, last >> 32)
    assert (lower - first) % 2**32 <= last - first


@pytest.mark.parametrize(
    ("name", "said"),
    # The first two are vectors, of which a register of 32 bits holds no whole one.
    [("%tid", "mov.u32"), ("%cluster_ctaid", "mov.u32"), ("%lanemask_xx", "%lanemask_xx")],
)
def test_special_registers_that_do_not_fit_are_refused(name: str, said: str) -> None:
    with pytest.raises(PtxError, match=re.escape(said)):
        tw.Kernel.from_ptx(entry(f".reg .b32 %x; mov.u32 %x, {name};"), "k")(1, 1, [], device="emulator")
