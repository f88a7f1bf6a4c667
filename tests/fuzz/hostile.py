"""One kernel that does any of the asynchronous instructions, one after the other, as a list in memory tells it.

Its text is sound; its operands are not: addresses of nobody, sizes of anything, mbarriers that were written over,
tensor maps and descriptors of random bits, warps that come apart, blocks that leave early. A step of the list says
which instruction, and for each operand a number and how much more it is from thread to thread.
"""

from __future__ import annotations

import random
import struct
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz.children import Bench, command_line, outcome

__all__ = ["Launch", "launch", "text"]

ROOM = 24_576  # bytes of shared memory
OPERANDS = 6
STEP = 8 * (2 + 2 * OPERANDS)  # bytes
MOST = 24  # steps of a list
BARRIERS = 8  # at the start of shared memory


class Case(NamedTuple):
    """An instruction, and what each of its operands (%x0, %x1, … of 64 bits, %w0, … of 32) usually is."""

    text: str
    kinds: str = ""
    weight: int = 2


def _mbarriers() -> list[Case]:
    b = "shared::cta.b64"
    return [
        Case(f"mbarrier.init.{b} [%w0], %w1;", "bar count", 4),
        Case(f"mbarrier.inval.{b} [%w0];", "bar", 1),
        Case(f"mbarrier.expect_tx.relaxed.cta.{b} [%w0], %w1;", "bar size"),
        Case(f"mbarrier.complete_tx.relaxed.cta.{b} [%w0], %w1;", "bar size"),
        Case("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%w0], %w1;", "away size"),
        Case(f"mbarrier.arrive.{b} %s, [%w0], %w1;", "bar count", 6),
        Case("mbarrier.arrive.b64 %s, [%x0];", "generic", 3),
        Case("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%w0], %w1;", "away count", 6),
        Case(f"mbarrier.arrive.expect_tx.{b} %s, [%w0], %w1;", "bar size", 6),
        Case("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%w0], %w1;", "away size"),
        Case(f"mbarrier.arrive.noComplete.{b} %s, [%w0], %w1;", "bar count"),
        Case(f"mbarrier.arrive_drop.{b} %s, [%w0], %w1;", "bar count"),
        Case(f"mbarrier.arrive_drop.noComplete.{b} %s, [%w0], %w1;", "bar count", 1),
        Case(f"mbarrier.arrive_drop.expect_tx.{b} %s, [%w0], %w1;", "bar size", 1),
        Case(f"mbarrier.test_wait.{b} %p0, [%w0], %s;", "bar"),
        Case(f"mbarrier.test_wait.parity.{b} %p0, [%w0], %w1;", "bar bit"),
        Case(f"mbarrier.try_wait.{b} %p0, [%w0], %x1;", "bar bits"),
        Case("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%w0], %w1, %w2;", "bar bit bits"),
        Case("mbarrier.pending_count.b64 %v0, %x0; xor.b32 %v1, %v1, %v0;", "bits", 1),
        Case(
            f"AGAIN: mbarrier.try_wait.parity.{b} %p0, [%w0], %w1; @!%p0 bra AGAIN;", "bar bit", 2
        ),
    ]  # fmt: skip


def _copies() -> list[Case]:
    told = "mbarrier::complete_tx::bytes"
    return [
        Case("cp.async.ca.shared.global [%w0], [%x1], 4, %w2;", "words words small", 4),
        Case("cp.async.ca.shared.global [%w0], [%x1], 8;", "place memory"),
        Case("cp.async.cg.shared.global.L2::128B [%w0], [%x1], 16, %w2;", "place memory small", 4),
        Case("cp.async.commit_group;", "", 3),
        Case("cp.async.wait_group 1;", "", 3),
        Case("cp.async.wait_all;"),
        Case("cp.async.mbarrier.arrive.shared.b64 [%w0];", "bar"),
        Case("cp.async.mbarrier.arrive.noinc.shared.b64 [%w0];", "bar"),
        Case(f"cp.async.bulk.shared::cluster.global.{told} [%w0], [%x1], %w2, [%w3];", "away memory size away", 5),
        Case(f"cp.async.bulk.shared::cta.global.{told} [%w0], [%x1], %w2, [%w3];", "place memory size bar", 5),
        Case(
            f"cp.async.bulk.shared::cluster.global.{told}.multicast::cluster [%w0], [%x1], %w2, [%w3], %h4;",
            "place memory size bar mask",
            4,
        ),
        Case(f"cp.async.bulk.shared::cluster.shared::cta.{told} [%w0], [%w1], %w2, [%w3];", "away place size away", 4),
        Case("cp.async.bulk.global.shared::cta.bulk_group [%x0], [%w1], %w2;", "memory place size", 5),
        Case("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%x0], [%w1], %w2;", "memory place size"),
        Case("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.s64 [%x0], [%w1], %w2;", "memory place size"),
        Case("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%x0], [%w1], %w2;", "memory place size"),
        Case("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f64 [%x0], [%w1], %w2;", "memory place size"),
        Case(
            f"cp.reduce.async.bulk.shared::cluster.shared::cta.{told}.inc.u32 [%w0], [%w1], %w2, [%w3];",
            "away place size away",
        ),
        Case("cp.async.bulk.commit_group;", "", 3),
        Case("cp.async.bulk.wait_group 0;", "", 2),
        Case("cp.async.bulk.wait_group.read 1;", "", 2),
        Case("cp.async.bulk.prefetch.L2.global [%x0], %w1;", "memory size", 1),
        Case(f"st.async.shared::cluster.{told}.u32 [%w0], %w1, [%w2];", "away bits away"),
        Case(f"st.async.shared::cluster.{told}.v4.b32 [%w0], {{%w1, %w2, %w3, %w4}}, [%w5];", "away bits bits bits bits away"),
        Case(f"red.async.relaxed.cluster.shared::cluster.{told}.add.u64 [%w0], %x1, [%w2];", "away bits away"),
    ]  # fmt: skip


def _tensors() -> list[Case]:
    told = "mbarrier::complete_tx::bytes"
    found = []
    for rank in range(1, 6):
        places = ", ".join(["%w2", "%w3", "%w4", "%w4", "%w2"][:rank])
        found += [
            Case(
                f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.{told} [%w0], [%x1, {{{places}}}], [%w5];",
                f"away map{rank} at at at bar",
                4 if rank == 2 else 1,
            ),
            Case(
                f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%x1, {{{places}}}], [%w0];",
                f"place map{rank} at at at",
                4 if rank == 2 else 1,
            ),
            Case(
                f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{('add', 'min', 'xor', 'inc', 'max')[rank - 1]}"
                f".tile.bulk_group [%x1, {{{places}}}], [%w0];",
                f"place map{rank} at at at",
                1,
            ),
        ]
        if rank > 2:
            offsets = ", ".join(["%h5", "%h4", "%h3"][: rank - 2])
            found.append(
                Case(
                    f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.{told}.multicast::cluster [%w0],"
                    f" [%x1, {{{places}}}], [%w5], {{{offsets}}}, %h4;",
                    f"place map{rank + 3} at at at bar",
                )
            )
    found.append(
        Case(
            f"cp.async.bulk.tensor.2d.shared::cluster.global.{told}.multicast::cluster [%w0], [%x1, {{%w2, %w3}}], [%w5], %h4;",
            "place map2 at at mask bar",
            4,
        )
    )
    return found


def _maps() -> list[Case]:
    fields = {
        "global_address": ("b64", "%x1", "memory"), "rank": ("b32", "%w1", "bit"), "box_dim": ("b32", "1, %w1", "small"),
        "global_dim": ("b32", "0, %w1", "small"), "global_stride": ("b64", "0, %x1", "size"),
        "element_stride": ("b32", "1, %w1", "bit"),
    }  # fmt: skip
    found = [
        Case(f"tensormap.replace.tile.{name}.global.b1024.{type_} [%x0], {value};", f"owned {kind}", 1)
        for name, (type_, value, kind) in fields.items()
    ]
    found += [
        Case(f"tensormap.replace.tile.{name}.shared::cta.b1024.b32 [%w0], {value};", "place", 1)
        for name, value in (("elemtype", 7), ("swizzle_mode", 2), ("interleave_layout", 1), ("fill_mode", 1))
    ]
    found.append(
        Case(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%x0], [%w1], 128;",
            "owned place",
        )
    )
    return found


def _products() -> list[Case]:
    def listed(letter: str, count: int) -> str:
        return ", ".join(f"%{letter}{i}" for i in range(count))

    start = "wgmma.mma_async.sync.aligned"
    d8, d4, a = listed("d", 8), listed("d", 4), listed("f", 4)
    return [
        Case(f"{start}.m64n16k16.f32.f16.f16 {{{d8}}}, %x0, %x1, %p1, 1, 1, 0, 0;", "matrix matrix", 6),
        Case(f"{start}.m64n16k16.f32.bf16.bf16 {{{d8}}}, %x0, %x1, %p1, 1, -1, 1, 1;", "matrix matrix", 3),
        Case(f"{start}.m64n16k16.f32.f16.f16 {{{d8}}}, {{{a}}}, %x1, %p1, -1, 1, 1;", "none matrix", 3),
        Case(f"{start}.m64n8k32.f16.e4m3.e5m2 {{%d0, %d1}}, {{{a}}}, %x0, 1, 1, 1;", "matrix", 2),
        Case(f"{start}.m64n16k8.f32.tf32.tf32 {{{d8}}}, %x0, %x1, 0, 1, 1;", "matrix matrix", 2),
        Case(f"{start}.m64n8k32.s32.s8.u8.satfinite {{{d4}}}, %x0, %x1, %p1;", "matrix matrix", 2),
        Case(f"{start}.m64n8k256.s32.b1.b1.and.popc {{{d4}}}, {{{a}}}, %x1, %p1;", "none matrix", 2),
        Case(
            "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
            f" {{{d4}}}, %x0, %x1, %w2, 1, %p1, 1, 1, 0, 1;", "matrix matrix bits", 2,
        ),
        Case("wgmma.fence.sync.aligned;", "", 4),
        Case("wgmma.commit_group.sync.aligned;", "", 6),
        Case("wgmma.wait_group.sync.aligned 0;", "", 3),
        Case("wgmma.wait_group.sync.aligned 2;", "", 3),
        Case("add.u32 %v1, %v1, %d0; xor.b32 %v1, %v1, %d3;"),
        Case("mov.b32 %d1, %w0; mov.b32 %f2, %w1;", "bits bits"),
    ]  # fmt: skip


def _others() -> list[Case]:
    return [
        Case("mapa.shared::cluster.u32 %v0, %w0, %w1; xor.b32 %v1, %v1, %v0;", "place rank", 1),
        Case("mapa.u64 %s, %x0, %w1; ld.u32 %v1, [%s];", "generic rank"),
        Case("getctarank.shared::cluster.u32 %v0, %w0;", "away", 1),
        Case("ld.shared::cluster.v2.u32 {%v0, %v1}, [%w0];", "away", 3),
        Case("st.shared::cluster.u64 [%w0], %x1;", "away bits", 3),
        Case("atom.shared::cluster.add.u32 %v0, [%w0], %w1;", "away bits"),
        Case("st.u32 [%x0], %w1;", "generic bits"),
        Case("barrier.cluster.arrive.release;", "", 3),
        Case("barrier.cluster.arrive.relaxed.aligned;"),
        Case("barrier.cluster.wait.acquire;", "", 3),
        Case("bar.sync 0;", "", 6),
        Case("bar.sync 1, 64;", "", 1),
        Case("fence.proxy.async; fence.mbarrier_init.release.cluster;", "", 3),
        Case("fence.proxy.tensormap::generic.acquire.gpu [%x0], 128;", "owned", 1),
        Case("setmaxnreg.dec.sync.aligned.u32 24;", "", 1),
        Case("griddepcontrol.wait; griddepcontrol.launch_dependents;", "", 1),
        Case("st.shared.u64 [%w0], %x1;", "bar bits"),
        Case("st.shared.v2.u64 [%w0], {%x1, %x2};", "place bits bits", 4),
        Case("ld.shared.v4.u32 {%v0, %v1, %d1, %d2}, [%w0];", "place", 3),
        Case("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%v0, %v1}, [%w0];", "place", 1),
        Case("setp.lt.u32 %p2, %t, %w0; @%p2 exit;", "few", 1),
        Case("setp.lt.u32 %p1, %t, %w0;", "bits"),
    ]


CASES = [*_mbarriers(), *_copies(), *_tensors(), *_maps(), *_products(), *_others()]

_HEAD = f"""
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 given[128], .param .u64 list, .param .u64 out, .param .u32 count)
{{
.shared .align 1024 .b8 room[{ROOM}];
.reg .b32 %t, %n, %op, %v<2>, %w<6>, %d<8>, %f<4>, %i;
.reg .b64 %list, %out, %s, %at, %x<6>, %y<6>, %wide, %m;
.reg .b16 %h<6>;
.reg .pred %p<3>, %more;
mov.u32 %t, %tid.x; ld.param.u64 %list, [list]; ld.param.u64 %out, [out]; ld.param.u32 %n, [count];
mov.u32 %i, room; mov.u64 %s, 0; mov.u32 %v0, 0; mov.u32 %v1, 0; setp.eq.u32 %p1, 0, 0;
setp.eq.u32 %p0, %t, 0;
"""
_NEXT = """
NEXT: setp.eq.u32 %p2, %n, 0; @%p2 bra END; sub.u32 %n, %n, 1;
ld.global.v2.u32 {%op, %i}, [%list]; cvt.u64.u32 %wide, %t;
mov.u32 %v0, %ctaid.x; and.b32 %v0, %v0, %i; add.u32 %op, %op, %v0;
ld.global.v2.u32 {%v0, %i}, [%list+8]; and.b32 %v0, %v0, %t; min.u32 %v0, %v0, 1; add.u32 %op, %op, %v0;
setp.ge.u32 %p2, %t, %i;
"""


def text() -> str:
    """The kernel: mbarriers at the start of shared memory, then the steps of the list."""
    lines = [_HEAD]
    lines += [f"@%p0 mbarrier.init.shared.b64 [%i+{8 * i}], {1 + i % 3};" for i in range(BARRIERS)]
    lines += [f"mov.b32 %d{i}, 0;" for i in range(8)] + [f"mov.b32 %f{i}, 0x3c003c00;" for i in range(4)]
    lines += ["bar.sync 0; barrier.cluster.arrive; barrier.cluster.wait;"]
    lines += [f"T: .branchtargets {', '.join(f'L{i}' for i in range(len(CASES)))};", _NEXT]
    for i in range(OPERANDS):
        lines.append(
            f"ld.global.v2.u64 {{%x{i}, %y{i}}}, [%list+{16 + 16 * i}]; mad.lo.u64 %x{i}, %y{i}, %wide, %x{i};"
            f" cvt.u32.u64 %w{i}, %x{i}; cvt.u16.u64 %h{i}, %x{i};"
        )
    lines.append(f"add.u64 %list, %list, {STEP}; @%p2 bra NEXT; brx.idx %op, T;")
    for i, case in enumerate(CASES):
        lines.append(f"L{i}: {case.text.replace('AGAIN', f'A{i}')} bra NEXT;")
    lines.append("END: mad.wide.u32 %at, %t, 4, %out; st.global.u32 [%at], %v1; ret;\n}\n")
    return "\n".join(lines)


class Launch(NamedTuple):
    """What one launch gets."""

    grid: int
    block: int
    cluster: int | None
    tensor_map: bytes
    steps: bytes
    length: int  # of their list
    order: str | int
    mode: str


class _Chooser:
    """Operands of the kinds that the cases name."""

    def __init__(self, choose: random.Random, memory: int, size: int, owned: int, cluster: int) -> None:
        self.choose, self.memory, self.size, self.owned, self.cluster = choose, memory, size, owned, cluster
        self.hostile = choose.choice([0.0, 0.02, 0.1, 0.4])

    def bits(self) -> int:
        choose = self.choose
        return choose.choice([0, 1, 2**32 - 1, 2**64 - 1, 2**63, choose.getrandbits(choose.randint(1, 64))])

    def place(self) -> int:
        unit = self.choose.choice([128, 128, 128, 16, 1024])
        return self.choose.randrange(unit, ROOM + unit, unit) % ROOM

    def away(self, inner: int) -> int:
        """An address of some block of the cluster."""
        if self.choose.random() < 0.3:
            return inner
        return inner | self.choose.randrange(1, self.cluster + 1 + (self.choose.random() < 0.05)) << 24

    def operand(self, kind: str) -> tuple[int, int]:
        """A number, and what it grows by from thread to thread."""
        choose = self.choose
        if choose.random() < self.hostile:
            return self.bits(), choose.choice([0, 0, 0, 16, self.bits()])
        bar = 8 * choose.randrange(BARRIERS)
        step = choose.choice([0, 0, 0, 16, 64])
        match kind:
            case "bar":
                return bar, 0
            case "away":
                return self.away(choose.choice([bar, self.place()])), choose.choice([0, 0, 0, 16])
            case "place":
                return self.place(), step
            case "words":
                return (
                    (self.place(), 4)
                    if choose.random() < 0.5
                    else (self.memory + 4 * choose.randrange(256), 4)
                )
            case "memory":
                return self.memory + 16 * choose.randrange(self.size // 16), step
            case "generic":
                return choose.choice([(1 << 56) + self.away(bar), self.memory + 8 * choose.randrange(64)]), 0
            case "map2":
                return choose.choice([1 << 59, self.owned + 128]), 0
            case "map1" | "map3" | "map4" | "map5" | "map6" | "map7" | "map8":
                return self.owned + 128 * (int(kind[3]) - 1), 0
            case "owned":
                return self.owned + 128 * choose.randrange(9), 0
            case "matrix":
                return self.matrix(), 0
            case _:
                return self.number(kind), choose.choice([0, 0, 1])

    def number(self, kind: str) -> int:
        choose = self.choose
        if kind == "at":
            return choose.choice([0, 0, 16, 32, 1, -1, -16, 255, choose.randrange(-300, 300)]) % 2**64
        least, most = {
            "count": (1, 3),
            "bit": (0, 1),
            "small": (0, 17),
            "mask": (0, 2**self.cluster),
            "rank": (0, 4),
        }.get(kind, (0, 2**32))
        if kind == "size":
            return choose.choice(
                [16, 16, 32, 128, 512, 1024, 2048, 16 * choose.randrange(300), 2**20 - 16, 2**20]
            )
        if kind == "few":
            return choose.choice([0, 1, 32, 64, 128])
        return choose.randint(least, most)

    def matrix(self) -> int:
        """A descriptor for wgmma."""
        choose = self.choose
        if choose.random() < 0.1:
            return choose.getrandbits(64)
        leading, stride = (choose.choice([0, 1, 8, 16, 32, 64, 128]) for _ in range(2))
        high = choose.choice([0, 0, 0, choose.randrange(8)]) << 49 | choose.randrange(4) << 62
        return choose.randrange(ROOM // 16) | leading << 16 | stride << 32 | high

    def map(self, good: bytes) -> bytes:
        """A tensor map, damaged or not."""
        choose, made = self.choose, bytearray(good)
        kind = choose.random()
        if kind < 0.4:
            return good
        if kind < 0.45:
            return choose.randbytes(128)
        for _ in range(choose.choice([1, 1, 2, 4])):
            made[choose.randrange(0 if kind < 0.5 else 8, 128)] = choose.choice(
                [0, 1, 2, 255, choose.randrange(256)]
            )
        return bytes(made)


def launch(
    choose: random.Random, memory: int, size: int, owned: int, good: list[bytes]
) -> tuple[Launch, bytes]:
    """A launch, and the tensor maps to begin with at ``owned``; ``memory`` is an array of ``size`` bytes."""
    cluster = choose.choice([None, 1, 2, 2, 4])
    chooser = _Chooser(choose, memory, size, owned, cluster or 1)
    families = choose.sample(
        [_mbarriers(), _copies(), _tensors(), _maps(), _products(), _others()], choose.randint(1, 4)
    )
    texts = {case.text for family in families for case in family}
    numbers = [i for i, case in enumerate(CASES) if case.text in texts for _ in range(case.weight)]
    count = choose.randint(1, MOST)
    alone = choose.random() < 0.6  # one thread does most of it, as in most programs
    steps = bytearray()
    for _ in range(count):
        number = choose.choice(numbers)
        apart = choose.choice([0] * 12 + [1, 32, 64, 128]) if number + 1 < len(CASES) else 0
        block = choose.choice([0] * 12 + [1]) if number + 2 < len(CASES) else 0
        together = "sync" in CASES[number].text or "barrier.cluster" in CASES[number].text
        threads = 1 if alone and not together else choose.choice([1 << 16] * 9 + [32, 1, 0, 77])
        steps += struct.pack("<4I", number, block, apart, threads)
        kinds = CASES[number].kinds.split()
        for i in range(OPERANDS):
            start, more = chooser.operand(kinds[i]) if i < len(kinds) else (0, 0)
            steps += struct.pack("<QQ", start % 2**64, more % 2**64)
    mode = choose.choice(["plain"] * 8 + ["checked", "counted"])
    orders: list[str | int] = ["eager", "late", "late", 1, 2, choose.getrandbits(32)]
    blocks = choose.choice([1, 2]) * (cluster or 1)
    threads = 128 if mode != "plain" else choose.choice([128, 128, 128, 256, 160])
    made = Launch(
        blocks, threads, cluster, chooser.map(good[1]), bytes(steps), count, choose.choice(orders), mode
    )
    return made, b"".join(map(chooser.map, good))


# -- the child ------------------------------------------------------------------------------------------
class _Player:
    """Runs the launches that random numbers make."""

    def __init__(self) -> None:
        self.kernel: Any = None
        self.good: list[bytes] = []

    def __call__(self, choose: random.Random, bench: Bench) -> str:
        import tilewise as tw

        if self.kernel is None:
            self.kernel = tw.Kernel.from_ptx(text(), "k")
            self.good = [item.encode(bench.device) for item in _maps_of(bench.arrays[3])]
        steps, memory, owned, out = bench.arrays
        made, first = launch(choose, memory.ptr, memory.nbytes, owned.ptr, self.good)

        def go() -> None:
            steps.fill(np.frombuffer(made.steps.ljust(steps.nbytes, b"\0"), np.uint8))
            owned.fill(np.frombuffer(first.ljust(owned.nbytes, b"\0"), np.uint8))
            args = [made.tensor_map, steps, out, made.length]
            bench.launch(self.kernel, made.grid, made.block, args, 0, made.cluster, (made.mode, made.order))

        return outcome(go, bench)


def _maps_of(array: Any) -> list[Any]:
    """Tensor maps of one array: tiled ones of one to five axes, im2col ones of three to five."""
    import tilewise as tw

    shapes = [(4096,), (32, 128), (8, 8, 64), (4, 4, 4, 64), (2, 2, 4, 4, 64)]
    boxes = [(64,), (8, 32), (2, 4, 32), (1, 2, 4, 16), (2, 1, 2, 3, 64)]
    how: list[dict[str, Any]] = [{}, {"swizzle": 32}, {}, {}, {"swizzle": 64}]
    found = [
        tw.TensorMap(array.ptr, box, shape=shape, dtype="uint8", **more)
        for shape, box, more in zip(shapes, boxes, how, strict=True)
    ]
    for shape in shapes[2:]:
        corner = (-1,) * (len(shape) - 2)
        found.append(
            tw.TensorMap.im2col(
                array.ptr, lower=corner, upper=corner, channels=32, pixels=7, shape=shape, dtype="uint8"
            )
        )
    return found


def show(choose: random.Random) -> str:
    made, _ = launch(choose, 0x10_0000, 4096, 0x20_0000, [bytes(128)] * 8)
    lines = [f"grid {made.grid}, block {made.block}, cluster {made.cluster}, {made.mode}, order {made.order}"]
    for start in range(0, len(made.steps), STEP):
        number, block, apart, threads, *rest = struct.unpack_from(f"<4I{2 * OPERANDS}Q", made.steps, start)
        given = " ".join(
            f"{first:#x}+{more:#x}t"
            for first, more in zip(rest[::2], rest[1::2], strict=True)
            if first or more
        )
        lines.append(f"{number} ({block} {apart} {threads}): {CASES[number].text}   {given}")
    return "\n".join(lines)


if __name__ == "__main__":
    command_line("tests.fuzz.hostile", str(__doc__), lambda _: _Player(), lambda _, choose: show(choose))
