"""``mbarrier``: every operation against a model, the orders of what completes one, misuse, deadlocks."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilewise as tw
from tests.emulator.instructions.test_modifiers import code
from tilewise.errors import Deadlock, KernelFault

# One thread reads a list of operations, does each to an mbarrier, and writes down what it gives.
STEPS = r"""
#define BAR "r"((unsigned)__cvta_generic_to_shared(&bar))
extern "C" __global__ void steps(const unsigned *what, const unsigned *number, long long *out, int count) {
    __shared__ unsigned long long bar;
    unsigned long long state = 0;
    for (int i = 0; i < count; ++i) {
        unsigned n = number[i], found = 0;
        switch (what[i]) {
        case 0: asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: BAR, "r"(n)); break;
        case 1: asm volatile("mbarrier.arrive.shared.b64 %0, [%1], %2;" : "=l"(state) : BAR, "r"(n)); break;
        case 2: asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1], %2;" : "=l"(state) : BAR, "r"(n)); break;
        case 3: asm volatile("mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], %1;" :: BAR, "r"(n)); break;
        case 4: asm volatile("mbarrier.complete_tx.relaxed.cta.shared.b64 [%0], %1;" :: BAR, "r"(n)); break;
        case 5: asm volatile("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], %2;" : "=l"(state) : BAR, "r"(n)); break;
        case 6: asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0,1,0,p;}"
                             : "=r"(found) : BAR, "r"(n)); break;
        case 7: asm volatile("{.reg .pred p; mbarrier.try_wait.shared.b64 p, [%1], %2; selp.u32 %0,1,0,p;}"
                             : "=r"(found) : BAR, "l"(state)); break;
        case 8: asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], %2;" : "=l"(state) : BAR, "r"(n)); break;
        case 9: asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(found) : "l"(state)); break;
        case 11: asm volatile("mbarrier.arrive_drop.noComplete.shared.b64 %0, [%1], %2;" : "=l"(state) : BAR, "r"(n)); break;
        default: asm volatile("mbarrier.inval.shared.b64 [%0];" :: BAR);
        }
        out[i] = found;
    }
}
"""
INIT, ARRIVE, DROP, EXPECT, COMPLETE, ARRIVE_EXPECT, PARITY, STATE, INCOMPLETE, PENDING, INVALIDATE = range(
    11
)
DROP_INCOMPLETE = 11
MOST = 2**20 - 1


@functools.cache
def steps() -> tw.Kernel:
    return tw.Kernel(STEPS, "steps", arch="sm_90")


ARRIVALS = (ARRIVE, DROP, INCOMPLETE, DROP_INCOMPLETE)  # with a count


class Wrong(Exception):
    pass


@dataclass
class Model:
    """An mbarrier as the document describes it."""

    pending: int = 0
    expected: int = 0
    bytes: int = 0
    phase: int = 0
    alive: bool = False
    state: tuple[int, int] = (0, 0)  # phase and pending count before the last arrival
    said: list[int] = field(default_factory=list)

    def step(self, what: int, n: int) -> int:
        if what == INIT:
            self.__init__(n, n, 0, 0, True, self.state)  # type: ignore[misc]
            return 0
        if what == PENDING:
            return self.state[1]
        if not self.alive:
            raise Wrong
        if what == PARITY:
            return int(n != self.phase)
        if what == STATE:
            return int(self.state[0] != self.phase)
        if what == INVALIDATE:
            self.alive = False
            return 0
        arrivals = 1 if what == ARRIVE_EXPECT else n if what in ARRIVALS else 0
        if arrivals:
            self.state = (self.phase, self.pending)
        self.bytes += {EXPECT: n, ARRIVE_EXPECT: n, COMPLETE: -n}.get(what, 0)
        self.pending -= arrivals
        if (
            self.pending < 0
            or abs(self.bytes) > MOST
            or (what in (INCOMPLETE, DROP_INCOMPLETE) and self.pending == 0)
        ):
            raise Wrong
        if what in (DROP, DROP_INCOMPLETE):
            self.expected -= n
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = 1 - self.phase, self.expected
        return 0


OPERATIONS = st.one_of(
    st.tuples(st.just(INIT), st.integers(1, 5)),
    st.tuples(st.sampled_from((ARRIVE, *ARRIVALS)), st.integers(1, 2)),
    st.tuples(
        st.sampled_from((EXPECT, COMPLETE, ARRIVE_EXPECT)), st.sampled_from((16, 16, 32, 2**20 - 2**9))
    ),
    st.tuples(st.just(PARITY), st.integers(0, 1)),
    st.tuples(st.sampled_from((STATE, PENDING)), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATIONS, max_size=40), st.integers(1, MOST), st.booleans())
@example([(INIT, 4), (DROP_INCOMPLETE, 2), (ARRIVE, 2), (PARITY, 0), (ARRIVE, 2), (PARITY, 1)], 1, False)
@example([(INIT, 4), (DROP, 2), (ARRIVE, 2), (ARRIVE, 1), (PENDING, 0)], 1, False)
def test_every_operation_does_what_the_model_does(
    operations: list[tuple[int, int]], first: int, many: bool
) -> None:
    """A phase ends with its last arrival and its last byte, in whichever order; misuse is a fault."""
    listed = [(INIT, first if many else first % 4 + 1), (ARRIVE, 1), *operations]
    model, want, wrong = Model(), [], False
    for what, n in listed:
        try:
            want.append(model.step(what, n))
        except Wrong:
            wrong = True
            break
    out = np.full(len(listed), -1, np.int64)
    what_, number = (np.array(column, np.uint32) for column in zip(*listed, strict=True))
    if wrong:
        with pytest.raises(KernelFault, match="mbarrier at shared address"):
            steps()(1, 1, [what_, number, out, len(listed)], device="emulator")
    else:
        steps()(1, 1, [what_, number, out, len(listed)], device="emulator")
        assert out.tolist() == want


def run(operations: list[tuple[int, int]]) -> None:
    what, number = (np.array(column, np.uint32) for column in zip(*operations, strict=True))
    out = np.zeros(len(operations), np.int64)
    steps()(1, 1, [what, number, out, len(operations)], device="emulator")


@pytest.mark.parametrize(
    ("operations", "says"),
    [
        ([(ARRIVE, 1)], "was not initialised"),
        ([(INIT, 1), (INVALIDATE, 0), (PARITY, 0)], "was not initialised"),
        ([(INIT, 0)], "from 1 to 1,048,575"),
        ([(INIT, 1 << 20)], "from 1 to 1,048,575"),
        ([(INIT, 2), (ARRIVE, 3)], "more arrivals than are pending"),
        ([(INIT, 2), (EXPECT, MOST), (EXPECT, 1)], "more than 1,048,575 bytes"),
        ([(INIT, 2), (INCOMPLETE, 2)], ".noComplete"),
        ([(INIT, 2), (DROP_INCOMPLETE, 2)], ".noComplete"),
    ],
)
def test_misuse_is_named(operations: list[tuple[int, int]], says: str) -> None:
    with pytest.raises(KernelFault, match=says) as caught:
        run(operations)
    assert "kernel steps" in str(caught.value)
    assert "PTX line" in str(caught.value)


# Thread 0 makes mbarriers, some of which complete a phase; every lane asks about one of them.
LANES = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 which, .param .u64 later, .param .u64 asks, .param .u64 out, .param .u32 over,
                  .param .u32 one, .param .u32 late)
{
  .reg .u64 %a, %off, %s, %made; .reg .u32 %t, %w, %l, %g, %v, %at, %bar, %state, %over; .reg .pred %first, %g1, %p, %q, %in;
  .shared .align 8 .b64 bars[4]; .shared .align 8 .b64 states[8];
  mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4; setp.ne.u32 %first, %t, 0;
  ld.param.u32 %over, [over];
  SAID
  setp.ne.u32 %g1, %g, 0;
  @%first bra made;
  MAKE
made:
  bar.sync 0;
  mov.u32 %bar, bars; mad.lo.u32 %bar, %w, 8, %bar; mad.lo.u32 %at, %l, 4, %w;
  mov.u32 %state, states; mad.lo.u32 %state, %at, 8, %state; ld.shared.b64 %s, [%state];
  setp.eq.u32 %p, 0, 0;
  ASK
asked:
  selp.u32 %v, 1, 0, %p;
  ld.param.u64 %a, [out]; add.u64 %a, %a, %off; st.global.u32 [%a], %v;
  ret;
}
""".replace(
    "MAKE",
    "\n".join(
        f"""mbarrier.init.shared.b64 [bars+{8 * i}], 2; mbarrier.arrive.shared.b64 %made, [bars+{8 * i}];
  st.shared.b64 [states+{8 * i}], %made; and.b32 %v, %over, {1 << i}; setp.ne.u32 %q, %v, 0;
  @%q mbarrier.arrive.shared.b64 %made, [bars+{8 * i}]; @%q mbarrier.arrive.shared.b64 %made, [bars+{8 * i}];
  st.shared.b64 [states+{8 * i + 32}], %made;"""
        for i in range(4)
    ),
)
OWN = "ld.param.u64 %a, [{}]; add.u64 %a, %a, %off; ld.global.u32 {}, [%a];".format
SAID = {  # what is each lane's own
    "mbarrier, guard": OWN("which", "%w") + OWN("later", "%l") + OWN("asks", "%g"),
    "guard": "ld.param.u32 %w, [one]; ld.param.u32 %l, [late];" + OWN("asks", "%g"),
    "": "ld.param.u32 %w, [one]; ld.param.u32 %l, [late]; and.b32 %g, %over, 16;",
}
ASKED = {
    "every": "{wait} %p, [%bar], {value};",
    "guarded": "@%g1 {wait} %p, [%bar], {value};",
    "apart": "@!%g1 bra asked; {wait} %p, [%bar], {value};",
    "for itself": "@!%g1 bra asked; {wait} %in, [%bar], {value}; selp.u32 %v, 1, 0, %in; setp.ne.u32 %p, %v, 0;",
}


@functools.cache
def lanes(verb: str, how: str, own: str) -> tw.Kernel:
    value = "%l" if "parity" in verb else "%s"
    ask = ASKED[how].format(wait=f"mbarrier.{verb}.shared.b64", value=value)
    return tw.Kernel.from_ptx(LANES.replace("ASK", ask).replace("SAID", SAID[own]), "k")


@pytest.mark.parametrize("own", SAID)
@pytest.mark.parametrize("how", ASKED)
@pytest.mark.parametrize("verb", ["try_wait.parity", "test_wait"])
def test_each_lane_is_answered_about_its_own_mbarrier(verb: str, how: str, own: str) -> None:
    """Lanes that do not ask keep what they had; of one mbarrier all may ask at once."""
    rng = np.random.default_rng()
    for _ in range(8):
        which, later, asks = (rng.integers(0, most, 32, "uint32") for most in (4, 2, 2))
        over, one, late = (int(n) for n in rng.integers(0, (32, 4, 2)))
        out = np.full(32, 9, "uint32")
        lanes(verb, how, own)(1, 32, [which, later, asks, out, over, one, late], device="emulator")
        if "mbarrier" not in own:
            which, later = np.full(32, one), np.full(32, late)
        if not own:
            asks = np.full(32, over >> 4)
        phase = over >> which & 1
        found = phase != later if "parity" in verb else phase > later
        assert out.tolist() == np.where((how == "every") | (asks != 0), found, True).tolist()


# Producers copy a stage and consumers read it, again and again; ``fault`` leaves out one thing.
RING = r"""
__device__ void wait(unsigned bar, unsigned parity) {
    unsigned done;
    do asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                    : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    while (!done);
}
extern "C" __global__ void ring(const float *from, float *to, int turns, int fault) {
    __shared__ float stage[2][64];
    __shared__ unsigned long long bars[4];
    unsigned t = threadIdx.x, full = (unsigned)__cvta_generic_to_shared(bars), empty = full + 16;
    if (t < 4) asm volatile("mbarrier.init.shared.b64 [%0], 64;" :: "r"(full + 8 * t));
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < turns; ++i) {
        unsigned at = 8 * (i & 1), turn = (i >> 1) & 1;
        if (t < 64) {
            if (fault != 1) wait(empty + at, turn ^ 1);
            unsigned place = (unsigned)__cvta_generic_to_shared(&stage[i & 1][t]);
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(place), "l"(from + 64 * i + t) : "memory");
            if (fault == 2) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(full + at) : "memory");
            else if (i & 2) asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(full + at) : "memory");
            else {
                asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" :: "r"(full + at) : "memory");
                asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(full + at) : "memory");
            }
        } else {
            wait(full + at, fault == 3 ? turn ^ 1 : turn);
            sum = sum * 3 + stage[i & 1][127 - t];
            if (fault != 4 || t != 70 || i != 3)
                asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(empty + at) : "memory");
        }
    }
    to[t] = sum;
}
"""
ORDERS = ("eager", "late", 1, 2, 3, 4, 5)
TURNS = 9


@functools.cache
def ring() -> tw.Kernel:
    return tw.Kernel(RING, "ring", arch="sm_90")


def around(fault: int, order: str | int) -> bool:
    """Whether the ring gives the right sums."""
    rows = np.random.default_rng().integers(-99, 100, (TURNS, 64)).astype(np.float32)  # every sum is exact
    out = np.zeros(128, np.float32)
    ring()(1, 128, [rows, out, TURNS, fault], device=tw.device("emulator", order=order))
    want = np.zeros(64, np.float32)
    for row in rows:
        want = want * np.float32(3) + row
    return np.array_equal(out[64:], want[::-1])


@pytest.mark.parametrize("order", ORDERS)
def test_a_ring_of_stages_is_right_in_every_order(order: str | int) -> None:
    assert around(0, order)


def test_copies_that_nobody_waits_for_give_wrong_sums() -> None:
    """Arriving before the copies are there: right by chance in the eager order, wrong in the late one."""
    assert around(2, "eager")
    assert not around(2, "late")


@pytest.mark.few(1)
@pytest.mark.parametrize("fault", [1, 3])
def test_a_stage_overwritten_too_early_or_a_wrong_parity_shows(fault: int) -> None:
    """Wrong sums, arrivals of two turns in one phase, or nobody left to wait for: never silence."""
    for order in ("eager", "late", 3):
        try:
            right = around(fault, order)
        except (Deadlock, KernelFault) as error:
            right = "mbarrier" not in str(error)
        assert not right


@pytest.mark.few(1)
@pytest.mark.parametrize("order", ["eager", "late", 7])
def test_an_arrival_that_never_comes_is_a_deadlock_that_says_so(order: str | int) -> None:
    with pytest.raises(Deadlock, match="to which 1 of 64 arrivals must still come") as caught:
        around(4, order)
    assert "warp 0, warp 1 wait at the mbarrier" in str(caught.value)
    assert "try_wait" in str(caught.value)


# One thread; .layout::v1, both phases, a report, and whether either layout is the mbarrier's.
PHASES = """.version 9.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 count)
{
  .reg .u64 %o, %s; .reg .u32 %n, %r<12>; .reg .b8 %value; .reg .pred %p, %q;
  .shared .align 8 .b64 bar;
  ld.param.u64 %o, [out];
  ld.param.u32 %n, [count];
  mbarrier.init.LAYOUT.shared::cta.b64 [bar], %n;
  mbarrier.check_layout.layout::v0.shared::cta.b64 %p, [bar];
  selp.u32 %r0, 1, 0, %p;
  mbarrier.check_layout.layout::v1.b64.shared %p, [bar];
  selp.u32 %r1, 1, 0, %p;
  mbarrier.test_wait.parity.phase_type::conditional.acquire.cta.shared.b64 %p, [bar], 0;
  selp.u32 %r2, 1, 0, %p;
  mbarrier.arrive.shared.b64 %s, [bar], %n;
  mbarrier.check_layout.LAYOUT.shared.b64 %p, [bar];
  selp.u32 %r3, 1, 0, %p;
  mbarrier.try_wait.parity.phase_type::conditional.relaxed.cluster.shared::cta.b64 %p, [bar], 0, 100;
  selp.u32 %r4, 1, 0, %p;
  mov.u32 %r6, 7;
  cvt.u8.u32 %value, %r6;
  setp.eq.u32 %q, 0, 0;
  mbarrier.test_wait.phase_type::primary.shared.b64 %p|%q, %value, [bar], %s;
  selp.u32 %r5, 1, 0, %p;
  cvt.u32.u8 %r6, %value;
  selp.u32 %r7, 1, 0, %q;
  st.global.v4.u32 [%o], {%r0, %r1, %r2, %r3};
  st.global.v4.u32 [%o+16], {%r4, %r5, %r6, %r7};
  ret;
}
"""


@pytest.mark.parametrize(("layout", "first", "most"), [("layout::v0", 1, MOST), ("layout::v1", 0, 511)])
def test_layouts_phases_and_reports(layout: str, first: int, most: int) -> None:
    kernel = tw.Kernel.from_ptx(PHASES.replace("LAYOUT", layout), "k")
    for order in ("eager", "late"):
        out = np.full(8, 9, "uint32")
        kernel(1, 1, [out, most], device=tw.device("emulator", order=order))
        assert out.tolist() == [first, 1 - first, 0, 1, 1, 1, 0, 0]
    with pytest.raises(KernelFault, match="a count that it cannot have"):
        kernel(1, 1, [np.zeros(8, "uint32"), most + 1], device="emulator")


@pytest.mark.parametrize(("layout", "most"), [("layout::v0", MOST), ("layout::v1", 511)])
def test_copies_add_no_arrivals_beyond_what_an_mbarrier_counts(layout: str, most: int) -> None:
    text = f""".version 9.4\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u32 count) {{
.reg .u32 %n; .shared .align 8 .b64 bar; ld.param.u32 %n, [count];
mbarrier.init.{layout}.shared::cta.b64 [bar], %n; cp.async.mbarrier.arrive.shared.b64 [bar]; ret; }}"""
    kernel = tw.Kernel.from_ptx(text, "k")
    kernel(1, 1, [most - 1], device="emulator")
    with pytest.raises(KernelFault, match="a count that it cannot have"):
        kernel(1, 1, [most], device="emulator")


def test_the_checker_knows_waits_with_a_report() -> None:
    """Two warps: what one wrote before it arrived, the other reads behind a wait, and not before."""
    text = """.version 9.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .u64 %o; .reg .u32 %t, %v; .reg .pred %first, %p, %q;
  .shared .align 8 .b64 bar; .shared .b32 word;
  ld.param.u64 %o, [out];
  mov.u32 %t, %tid.x;
  setp.eq.u32 %first, %t, 0;
  @%first mbarrier.init.layout::v1.shared.b64 [bar], 1;
  bar.sync 0;
  setp.lt.u32 %p, %t, 32;
  @%p bra write;
again:
  WAIT
  ld.shared.u32 %v, [word];
  st.global.u32 [%o], %v;
  ret;
write:
  @%first st.shared.u32 [word], 5;
  @%first mbarrier.arrive.shared.b64 _, [bar];
  ret;
}
"""
    wait = "mbarrier.try_wait.parity.phase_type::primary.shared.b64 %p|%q, [bar], 0; @!%p bra again;"
    for waiting, races in ((wait, False), ("", True)):
        kernel = tw.Kernel.from_ptx(text.replace("WAIT", waiting), "k")
        out = np.zeros(1, "uint32")
        found = kernel.check(1, 64, [out])
        assert any(finding.tool == "racecheck" for finding in found) == races, found


def test_an_mbarrier_lies_where_its_address_says() -> None:
    """Of two that lie 64 KiB apart, each counts its own arrivals."""
    source = r"""extern "C" __global__ void far(int *out) {
    extern __shared__ unsigned long long bars[];
    unsigned at[2] = {(unsigned)__cvta_generic_to_shared(bars)};
    at[1] = at[0] + 65536;
    for (int i = 0; i < 2; ++i) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at[i]), "r"(i + 1));
    for (int i = 0; i < 2; ++i) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at[i]));
    for (int i = 0; i < 2; ++i)
        asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                     : "=r"(out[i]) : "r"(at[i]));
}"""
    out = np.full(2, 7, np.int32)
    tw.Kernel(source, "far", "sm_90")(1, 1, [out], shared=65536 + 8, device=tw.device("emulator"))
    assert out.tolist() == [1, 0]


def test_what_may_be_said_is_what_the_assembler_takes() -> None:
    """The verdicts of ptxas 13.5 on mbarriers and fences of sm_90a, one instruction a line."""
    listed = (Path(__file__).parents[2] / "golden" / "ptxas" / "synchronisation.txt").read_text().splitlines()
    assert len(listed) > 100
    for verdict, instruction in (line.split(None, 1) for line in listed):
        refused = code(".reg .b8 %b1; .shared .align 8 .b64 m; " + instruction).startswith("[")
        assert refused == (verdict == "refuses"), instruction
