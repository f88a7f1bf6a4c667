"""Random PTX programs, run by the yardstick and by the emulator: the results are the same, bit for bit.

    python -m tests.fuzz.programs --seconds 600 --seed 1

A program is made of decisions, numbers in a range, that ``random`` takes. It has structured parts (branches, loops with breaks, switches, early exits) and unstructured ones
(blocks that jump anywhere until their fuel is spent), integer arithmetic on values that are the same in all
lanes, in step with the lane, or anything, loads and stores of every space, votes and barriers where all
threads pass.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Case", "Difference", "TooLong", "check", "make"]

Draw = Callable[[int, int], int]  # a number from the first to the second, both included
Dim = tuple[int, int, int]
Array = npt.NDArray[Any]

BLOCKS: list[Dim] = [
    (32, 1, 1), (64, 1, 1), (1, 1, 1), (33, 1, 1), (48, 1, 1), (100, 1, 1), (5, 7, 2), (16, 4, 1), (32, 3, 1),
    (8, 8, 3), (96, 1, 1), (31, 1, 1),
]  # fmt: skip
GRIDS: list[Dim] = [(1, 1, 1), (2, 1, 1), (3, 2, 1)]
ORDERS: list[str | int] = ["eager", "late", 1, 2, 3]
WORDS, SLACK = 1024, 64  # of the input, and what lies before and behind what an index reaches
ROWS = 4  # words that each thread writes
COUNTERS = 8
_LIMIT = 50_000_000  # instructions of threads that the yardstick runs of a program
NUMBERS = [
    0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 33, 63, 64, 127, 255, 256, 1 << 16, (1 << 31) - 1, -(1 << 31),
]  # fmt: skip
SIGNED = ["eq", "ne", "lt", "le", "gt", "ge"]
UNSIGNED = [*SIGNED, "lo", "ls", "hi", "hs"]


@dataclass(frozen=True)
class Case:
    """A program, how to launch it and what it reads."""

    text: str
    grid: Dim
    block: Dim
    source: Array
    scalar: int
    order: str | int
    threads: int

    @property
    def count(self) -> int:
        return int(np.prod(self.grid)) * int(np.prod(self.block))


class Difference(AssertionError):
    """The emulator and the yardstick do not agree."""


def make(draw: Draw) -> Case:
    """A random program."""
    block, grid = BLOCKS[draw(0, len(BLOCKS) - 1)], GRIDS[draw(0, len(GRIDS) - 1)]
    text = _Program(draw, block).text()
    seed = draw(0, 2**16)
    source = (
        np.random.default_rng(seed).integers(0, 2**32, WORDS + 2 * SLACK, dtype=np.uint64).astype(np.uint32)
    )
    if draw(0, 1):
        source >>= np.uint32(24)
    return Case(text, grid, block, source, draw(0, 40), ORDERS[draw(0, len(ORDERS) - 1)], draw(1, 2))


def check(case: Case) -> None:
    """Run a program both ways and compare."""
    import tilewise as tw
    from tests.yardstick import LimitReached, run

    wanted = _results(case)
    try:
        run(case.text, "k", case.grid, case.block, _arguments(case, wanted), poison=0xFF, limit=_LIMIT)
    except LimitReached:
        raise TooLong(f"more than {_LIMIT:,} instructions of threads") from None
    found = _results(case)
    kernel = tw.Kernel.from_ptx(case.text, "k")
    device = tw.device("emulator", order=case.order, threads=case.threads)
    kernel(case.grid, case.block, _arguments(case, found), device=device, timeout=60)
    for name, a, b in zip(("output", "counters"), wanted, found, strict=True):
        if not np.array_equal(a, b):
            first = int(np.flatnonzero(a != b)[0])
            raise Difference(
                f"{name}[{first}] of grid {case.grid}, block {case.block}, order {case.order}: "
                f"{b[first]:#x}, where the yardstick has {a[first]:#x}; {(a != b).sum()} differ\n{case.text}"
            )


def _results(case: Case) -> list[Array]:
    return [np.zeros(case.count * ROWS, np.uint32), np.zeros(COUNTERS, np.uint32)]


def _arguments(case: Case, results: list[Array]) -> list[Any]:
    return [case.source, *results, case.scalar]


class TooLong(Exception):
    """A program that takes the yardstick, which is slow, too long: nothing is known of it."""


class _Program:
    """Writes one program."""

    def __init__(self, draw: Draw, block: Dim) -> None:
        self.draw, self.block = draw, block
        self.threads = block[0] * block[1] * block[2]
        self.lines: list[str] = []
        self.serial = 0
        self.depth = 0
        self.left = draw(4, 40)  # statements still to write
        self.loops: list[tuple[str, str]] = []  # labels of the loops around: where to go on, where it ends
        self.left_early = False  # whether threads may have left
        self.nested = 0  # loops around
        self.all_return = (
            False  # whether one of these has something that needs all threads, who must not leave behind it
        )
        self.tables: list[str] = []

    # -- decisions ------------------------------------------------------------------------------
    def one_of(self, items: list[Any]) -> Any:
        return items[self.draw(0, len(items) - 1)]

    def chance(self, of: int) -> bool:
        return self.draw(0, of - 1) == 0

    def put(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self) -> str:
        self.serial += 1
        return f"L{self.serial}"

    def place(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def r(self) -> str:
        return f"%r{self.draw(0, 11)}"

    def d(self) -> str:
        return f"%d{self.draw(0, 4)}"

    def p(self) -> str:
        return f"%p{self.draw(0, 4)}"

    def number(self) -> int:
        return int(self.one_of(NUMBERS)) if self.draw(0, 3) else self.draw(-(2**31), 2**31 - 1)

    def value(self) -> str:
        """A 32-bit operand."""
        if self.draw(0, 2):
            return self.r()
        return (
            str(self.number())
            if self.draw(0, 3)
            else str(self.one_of(["%tid.x", "%laneid", "%ctaid.x", "%ntid.x"]))
        )

    def wide(self) -> str:
        return self.d() if self.draw(0, 3) else str(self.number())

    # -- the whole ------------------------------------------------------------------------------
    def text(self) -> str:
        self.start()
        while self.left > 0:
            self.statement(True)
        self.store_all()
        body = "\n".join([*self.tables, *self.lines])
        return (
            ".version 9.0\n.target sm_90\n.address_size 64\n"
            ".visible .entry k(.param .u64 a, .param .u64 o, .param .u64 c, .param .u32 n)\n{\n"
            "  .reg .b32 %r<12>, %x<6>, %id, %n, %i<40>, %fuel; .reg .b64 %d<5>, %a<4>, %in, %out, %cnt;\n"
            "  .reg .pred %p<5>, %q<4>; .reg .b16 %h<2>;\n"
            f"  .shared .align 16 .b32 sh[{self.threads}]; .local .align 16 .b32 loc[8];\n"
            f"{body}\n  ret;\n}}\n"
        )

    def start(self) -> None:
        self.put(
            "ld.param.u64 %in, [a]; ld.param.u64 %out, [o]; ld.param.u64 %cnt, [c]; ld.param.u32 %n, [n];"
        )
        self.put(f"add.s64 %in, %in, {4 * SLACK};")
        self.put("mov.u32 %x0, %ntid.x; mov.u32 %x1, %ntid.y; mov.u32 %x2, %tid.z; mov.u32 %x3, %tid.y;")
        self.put("mad.lo.u32 %x2, %x2, %x1, %x3; mov.u32 %x3, %tid.x; mad.lo.u32 %id, %x2, %x0, %x3;")
        self.put("mov.u32 %x0, %ctaid.y; mov.u32 %x1, %nctaid.x; mov.u32 %x2, %ctaid.x;")
        self.put(f"mad.lo.u32 %x0, %x0, %x1, %x2; mad.lo.u32 %x0, %x0, {self.threads}, %id;")
        self.put(f"mul.wide.u32 %a0, %x0, {4 * ROWS}; add.s64 %out, %out, %a0;")
        starts = [
            "%tid.x",
            "%tid.y",
            "%laneid",
            "%id",
            "%n",
            "%ctaid.x",
            "7",
            "%x0",
            "-1",
            "%tid.x",
            "%id",
            "%n",
        ]
        for i, text in enumerate(starts):
            self.put(f"mov.u32 %r{i}, {text};")
        self.put("mul.wide.u32 %a0, %id, 4; add.s64 %a0, %a0, %in; ld.global.u32 %r3, [%a0];")
        self.put(
            "cvt.u64.u32 %d0, %id; cvt.s64.s32 %d1, %r8; mul.wide.s32 %d2, %r0, 12; mov.u64 %d3, 5; mov.u64 %d4, %in;"
        )
        self.put(
            "sub.s64 %d4, %d4, %in; setp.lt.u32 %p0, %id, 20; setp.ne.u32 %p1, %n, 3; setp.gt.s32 %p2, %r3, 0;"
        )
        self.put("mov.b16 %h0, 9; setp.eq.u32 %p3, %laneid, 5; and.b32 %x0, %r3, 1; setp.eq.u32 %p4, %x0, 1;")
        self.put(
            "mov.u32 %x0, loc; st.local.v4.u32 [%x0], {%r0, %r1, %r2, %r3}; st.local.v4.u32 [%x0+16], {%r3, %r3, 0, 1};"
        )
        self.put(
            "mov.u32 %x0, sh; shl.b32 %x1, %id, 2; add.u32 %x0, %x0, %x1; st.shared.u32 [%x0], %r3; bar.sync 0;"
        )

    def store_all(self) -> None:
        """What the thread knows at its end, in few words."""
        for row in range(ROWS):
            self.put(f"mov.u32 %x0, {row};")
            for i in range(row, 12, ROWS):
                self.put(f"mad.lo.u32 %x0, %x0, 31, %r{i};")
            self.put(f"cvt.u32.u64 %x1, %d{row}; mad.lo.u32 %x0, %x0, 31, %x1;")
            self.put(
                f"shr.u64 %a0, %d{(row + 1) % 5}, 32; cvt.u32.u64 %x1, %a0; mad.lo.u32 %x0, %x0, 31, %x1;"
            )
            self.put(
                f"selp.u32 %x1, 1, 0, %p{row}; mad.lo.u32 %x0, %x0, 31, %x1; st.global.u32 [%out+{4 * row}], %x0;"
            )

    # -- statements -----------------------------------------------------------------------------
    def statement(self, uniform: bool) -> None:
        """One statement; ``uniform`` says that all threads which have not left come here."""
        self.left -= 1
        kinds: list[Callable[[bool], None]] = [*[self.straight] * 6, *[self.memory] * 3]
        if self.depth < 4 and self.left > 0:
            kinds += [self.branch, self.branch, self.loop, self.loop, self.switch, self.wild]
        if self.loops:
            kinds += [self.jump] * 3
        if self.chance(3):
            kinds += [self.leave]
        if uniform:
            kinds += [self.barrier, self.barrier, self.vote]
        self.one_of(kinds)(uniform)

    def body(self, uniform: bool) -> None:
        self.depth += 1
        for _ in range(self.draw(1, 4)):
            self.statement(uniform)
        self.depth -= 1

    def condition(self) -> str:
        """A guard, freshly made or old."""
        if self.draw(0, 2):
            self.comparison("%q0", True)
            return self.one_of(["%q0", "!%q0"])  # type: ignore[no-any-return]
        return ("!" if self.draw(0, 1) else "") + self.p()

    def branch(self, uniform: bool) -> None:
        other, end = self.label(), self.label()
        together = uniform and self.chance(2)
        if together:
            self.put(
                f"setp.{self.one_of(SIGNED)}.s32 %q1, {self.one_of(['%n', '%ctaid.x'])}, {self.draw(0, 8)};"
            )
        self.put(f"@{'%q1' if together else self.condition()} bra {other};")
        self.body(together)
        if self.draw(0, 1):
            self.put(f"bra {end};")
            self.place(other)
            self.body(together)
        else:
            self.place(other)
        self.place(end)

    def loop(self, uniform: bool) -> None:
        """A loop of a few turns, as many for all threads or not."""
        counter = f"%i{self.nested}"  # no loop inside has it
        head, end, again = self.label(), self.label(), self.label()
        together = uniform and self.chance(2)
        limit = str(self.draw(0, 5)) if together or self.chance(3) else ""
        if not limit:
            self.put(f"and.b32 %x5, {self.value()}, {self.one_of([3, 7])};")
            limit = f"%i{self.nested + 20}"
            self.put(f"mov.u32 {limit}, %x5;")
        self.put(f"mov.u32 {counter}, 0;")
        late = self.chance(2)  # whether the test comes last
        self.place(head)
        if not late:
            self.put(f"setp.ge.u32 %q2, {counter}, {limit}; @%q2 bra {end};")
        before, self.loops = self.loops, [] if together else [*self.loops, (again, end)]
        self.nested += 1
        self.body(together)
        self.loops, self.nested = before, self.nested - 1
        self.all_return = self.all_return and self.nested > 0
        self.place(again)
        self.put(f"add.u32 {counter}, {counter}, 1;")
        self.put(f"setp.lt.u32 %q2, {counter}, {limit}; @%q2 bra {head};" if late else f"bra {head};")
        self.place(end)

    def jump(self, uniform: bool) -> None:
        """break or continue, of any loop around."""
        again, end = self.one_of(self.loops)
        self.put(f"@{self.condition()} bra {self.one_of([again, end])};")

    def switch(self, uniform: bool) -> None:
        table, end = self.label(), self.label()
        cases = [self.label() for _ in range(self.draw(1, 4))]
        listed = [self.one_of(cases) for _ in range(4)]
        self.put(f"{table}: .branchtargets {', '.join(listed)};")
        self.put(f"and.b32 %x4, {self.value()}, 3;")
        guard = f"@{self.condition()} " if self.chance(4) else ""
        self.put(f"{guard}brx.idx %x4, {table};")
        if guard:
            self.body(False)
        for case in cases:
            self.place(case)
            self.body(False)
            if self.draw(0, 2):
                self.put(f"bra {end};")
        self.place(end)

    def wild(self, uniform: bool) -> None:
        """Blocks that jump anywhere, also into loops from the side, until the fuel is spent."""
        labels = [self.label() for _ in range(self.draw(2, 6))]
        end = self.label()
        self.put(f"mov.u32 %fuel, {self.draw(2, 24)};")
        if self.draw(0, 1):
            self.put(f"@{self.condition()} bra {self.one_of(labels)};")
        for label in labels:
            self.place(label)
            self.put(f"sub.u32 %fuel, %fuel, 1; setp.eq.u32 %q2, %fuel, 0; @%q2 bra {end};")
            for _ in range(self.draw(0, 2)):
                self.straight(False)
            for _ in range(self.draw(0, 2)):
                self.put(f"@{self.condition()} bra {self.one_of([*labels, *labels, end])};")
            if self.chance(2):
                self.put(f"bra {self.one_of(labels)};")
        self.place(end)

    def leave(self, uniform: bool) -> None:
        """Some threads leave."""
        if self.all_return:
            self.straight(False)
            return
        self.left_early = True
        around = self.label()
        condition = self.condition()
        if self.draw(0, 1):
            self.put(f"@{condition} {self.one_of(['ret', 'exit'])};")
            return
        self.put(f"@{condition} bra {around};")
        self.store_all()
        self.put("exit;")
        self.place(around)

    def barrier(self, uniform: bool) -> None:
        """Words change hands in shared memory, or a vote of the block is taken."""
        rounded = -(-self.threads // 32) * 32
        counted = not self.left_early and self.chance(3)
        self.all_return = self.all_return or (counted and self.nested > 0)
        at = f"{self.draw(1, 15)}, {rounded}" if counted else str(self.draw(0, 15))
        kind = self.draw(0, 5)
        if kind == 5:
            self.parted(at)
        elif kind == 0:
            self.put(f"bar.red.popc.u32 {self.r()}, {at}, {self.p()};")
        elif kind == 1:
            self.put(f"barrier.red.{self.one_of(['and', 'or'])}.pred {self.p()}, {at}, !{self.p()};")
        elif kind == 2:
            self.put(f"barrier.sync {at};")
        else:
            self.put("bar.sync 0;")
            guard = f"@{self.condition()} " if self.draw(0, 1) else ""
            self.put("mov.u32 %x0, sh; shl.b32 %x1, %id, 2; add.u32 %x0, %x0, %x1;")
            self.put(f"{guard}st.shared.u32 [%x0], {self.r()}; bar.sync {at};")

    def parted(self, at: str) -> None:
        """A barrier that lanes of a warp come to on two ways: none of those that all must run together."""
        other, end = self.label(), self.label()
        self.put(f"@{self.condition()} bra {other};")
        self.straight(False)
        self.put(f"barrier.sync {at};")
        self.straight(False)
        self.put(f"bra {end};")
        self.place(other)
        self.put(f"barrier.sync {at};")
        self.place(end)

    def vote(self, uniform: bool) -> None:
        choice = self.draw(0, 2)
        if choice == 0:
            self.put(f"vote.sync.ballot.b32 {self.r()}, {self.p()}, -1;")
        elif choice == 1:
            self.put(f"vote.sync.{self.one_of(['any', 'all', 'uni'])}.pred {self.p()}, {self.p()}, -1;")
        elif self.threads % 32 == 0 and not self.left_early:
            self.all_return = self.all_return or self.nested > 0
            self.put(f"shfl.sync.{self.one_of(['up', 'down', 'bfly', 'idx'])}.b32 {self.r()}|{self.p()}, {self.r()}, "
                     f"{self.draw(0, 31)}, {self.one_of([31, 0, 0x1F00])}, -1;")  # fmt: skip

    # -- arithmetic -----------------------------------------------------------------------------
    def straight(self, uniform: bool) -> None:
        for _ in range(self.draw(1, 4)):
            guard = f"@{'!' if self.draw(0, 1) else ''}{self.p()} " if self.chance(5) else ""
            kind = self.draw(0, 9)
            if kind < 5:
                self.put(f"{guard}{self.narrow()}")
            elif kind < 7:
                self.put(f"{guard}{self.broad()}")
            elif kind < 8:
                self.put(f"{guard}{self.between()}")
            else:
                self.comparison(self.p(), False, guard)

    def narrow(self) -> str:
        """A 32-bit instruction."""
        r, a, b, c = self.r(), self.value(), self.value(), self.value()
        small, mask = self.draw(0, 33), self.one_of([1, 3, 7, 15, 31, 63, 255, -4, -32, 0xFFFF])
        return str(
            self.one_of([
                f"add.u32 {r}, {a}, {b};", f"sub.s32 {r}, {a}, {b};", f"add.s32 {r}, {a}, {self.draw(-40, 40)};",
                f"mul.lo.s32 {r}, {a}, {self.draw(-8, 40)};", f"mul.lo.u32 {r}, {a}, {b};",
                f"mad.lo.s32 {r}, {a}, {self.draw(-8, 40)}, {c};", f"shl.b32 {r}, {a}, {small};",
                f"shr.u32 {r}, {a}, {small};", f"shr.s32 {r}, {a}, {small};", f"and.b32 {r}, {a}, {mask};",
                f"or.b32 {r}, {a}, {self.number()};", f"xor.b32 {r}, {a}, {b};", f"not.b32 {r}, {a};",
                f"min.s32 {r}, {a}, {b};", f"max.u32 {r}, {a}, {b};", f"selp.b32 {r}, {a}, {b}, {self.p()};",
                f"mov.u32 {r}, {a};", f"neg.s32 {r}, {a};", f"abs.s32 {r}, {a};", f"popc.b32 {r}, {a};",
                f"clz.b32 {r}, {a};", f"bfe.u32 {r}, {a}, {small}, {self.draw(0, 33)};",
                f"shf.l.wrap.b32 {r}, {a}, {b}, {small};", f"div.u32 {r}, {a}, {self.draw(1, 40)};",
                f"rem.s32 {r}, {a}, {self.draw(1, 40)};", f"mul.hi.u32 {r}, {a}, {b};",
                f"add.sat.s32 {r}, {a}, {b};", f"shl.b32 {r}, {a}, {b};", f"lop3.b32 {r}, {a}, {b}, {c}, {self.draw(0, 255)};",
                f"set.lt.u32.s32 {r}, {a}, {b};", f"bfi.b32 {r}, {a}, {b}, {self.draw(0, 31)}, {self.draw(0, 32)};",
            ])
        )  # fmt: skip

    def broad(self) -> str:
        """A 64-bit instruction."""
        d, a, b = self.d(), self.d(), self.wide()
        small = self.draw(0, 66)
        return str(
            self.one_of([
                f"add.s64 {d}, {a}, {b};", f"sub.s64 {d}, {a}, {b};", f"mul.lo.s64 {d}, {a}, {self.draw(-8, 40)};",
                f"shl.b64 {d}, {a}, {small};", f"shr.u64 {d}, {a}, {small};", f"shr.s64 {d}, {a}, {small};",
                f"and.b64 {d}, {a}, {self.one_of([255, -32, 0xFFFFFFFF, 7])};", f"or.b64 {d}, {a}, {b};",
                f"xor.b64 {d}, {a}, {b};", f"min.s64 {d}, {a}, {b};", f"selp.b64 {d}, {a}, {b}, {self.p()};",
                f"mad.lo.s64 {d}, {a}, {self.draw(-8, 40)}, {self.d()};", f"mov.u64 {d}, {a};", f"neg.s64 {d}, {a};",
            ])
        )  # fmt: skip

    def between(self) -> str:
        """From one width to the other."""
        r, d, a, b = self.r(), self.d(), self.value(), self.value()
        a = a if a.startswith("%r") else self.r()
        return str(
            self.one_of([
                f"cvt.u64.u32 {d}, {a};", f"cvt.s64.s32 {d}, {a};", f"cvt.u32.u64 {r}, {self.d()};",
                f"mul.wide.u32 {d}, {a}, {self.one_of([4, 8, 12, 1])};", f"mul.wide.s32 {d}, {a}, {self.draw(-8, 40)};",
                f"mad.wide.u32 {d}, {a}, {self.one_of([4, 16])}, {self.d()};", f"mul.wide.u32 {d}, {a}, {b};",
                f"mad.wide.s32 {d}, {a}, {b}, {self.d()};", f"mov.b64 {d}, {{{a}, {self.r()}}};",
                f"mov.b64 {{{r}, %x0}}, {self.d()};", f"cvt.u16.u32 %h0, {a}; cvt.s32.s16 {r}, %h0;",
                f"cvt.u32.u8 {r}, {a};", f"cvt.s32.s8 {r}, {a};",
            ])
        )  # fmt: skip

    def comparison(self, target: str, plain: bool, guard: str = "") -> None:
        choice = self.draw(0, 5)
        if choice == 0:
            self.put(f"{guard}setp.{self.one_of(SIGNED)}.s64 {target}, {self.d()}, {self.wide()};")
        elif choice == 1 and not plain:
            other = self.p()
            both = f"{target}|{other}" if other != target else target
            words = f"{self.one_of(SIGNED)}.{self.one_of(['and', 'or', 'xor'])}"
            self.put(f"{guard}setp.{words}.s32 {both}, {self.r()}, {self.value()}, !{self.p()};")
        elif choice < 4:
            self.put(f"{guard}setp.{self.one_of(UNSIGNED)}.u32 {target}, {self.r()}, {self.value()};")
        else:
            left = self.one_of(["%tid.x", "%id", "%r0", "%laneid"])
            self.put(f"{guard}setp.{self.one_of(SIGNED)}.s32 {target}, {left}, {self.draw(-2, 70)};")

    # -- memory ---------------------------------------------------------------------------------
    def memory(self, uniform: bool) -> None:
        self.one_of([self.near, self.anywhere, self.row, self.local, self.shared, self.counted])()

    def guard(self) -> str:
        return f"@{'!' if self.draw(0, 1) else ''}{self.p()} " if self.chance(3) else ""

    def near(self) -> None:
        """An address in step with the lane, as compilers write it."""
        offset = 4 * self.draw(-SLACK // 2, SLACK // 2)
        if self.draw(0, 1):
            self.put(
                f"mul.wide.u32 %a0, %id, 4; add.s64 %a0, %a0, %in; {self.guard()}ld.global.u32 {self.r()}, [%a0+{offset}];"
            )
            return
        # What wraps around below zero, in the lanes that do not load.
        by = self.draw(1, 20)
        self.put(
            f"sub.u32 %x0, %id, {by}; setp.ge.u32 %q3, %id, {by}; mul.wide.{self.one_of(['u32', 's32'])} %a0, %x0, 4;"
        )
        self.put(f"add.s64 %a0, %a0, %in; @%q3 ld.global.u32 {self.r()}, [%a0];")

    def anywhere(self) -> None:
        self.put(f"and.b32 %x0, {self.r()}, {WORDS - 1}; mul.wide.u32 %a0, %x0, 4; add.s64 %a0, %a0, %in;")
        kind = self.one_of(
            [
                "global.u32",
                "global.s32",
                "u32",
                "global.u16",
                "global.s8",
                "global.nc.u32",
                "global.volatile.u32",
            ]
        )
        kind = "volatile.global.u32" if "volatile" in kind else kind
        self.put(f"{self.guard()}ld.{kind} {self.r()}, [%a0];")

    def row(self) -> None:
        """Two or four words at once."""
        count = self.one_of([2, 4])
        self.put(
            f"and.b32 %x0, {self.value()}, {WORDS // 4 - 1}; shl.b32 %x0, %x0, 4; cvt.u64.u32 %a0, %x0; add.s64 %a0, %a0, %in;"
        )
        first = self.draw(0, 8)
        targets = ", ".join(f"%r{first + i}" for i in range(count))
        self.put(f"{self.guard()}ld.global.v{count}.u32 {{{targets}}}, [%a0];")

    def local(self) -> None:
        self.put(
            f"and.b32 %x0, {self.value()}, 7; shl.b32 %x0, %x0, 2; mov.u32 %x1, loc; add.u32 %x0, %x0, %x1;"
        )
        if self.draw(0, 1):
            self.put(f"{self.guard()}st.local.u32 [%x0], {self.r()};")
        else:
            self.put(f"{self.guard()}ld.local.u32 {self.r()}, [%x0];")

    def shared(self) -> None:
        """Read what somebody wrote before the last barrier."""
        self.put(
            f"rem.u32 %x0, {self.value()}, {self.threads}; shl.b32 %x0, %x0, 2; mov.u32 %x1, sh; add.u32 %x0, %x0, %x1;"
        )
        self.put(f"{self.guard()}ld.shared.u32 {self.r()}, [%x0];")

    def counted(self) -> None:
        self.put(
            f"and.b32 %x0, {self.value()}, {COUNTERS - 1}; mul.wide.u32 %a0, %x0, 4; add.s64 %a0, %a0, %cnt;"
        )
        self.put(f"{self.guard()}red.global.add.u32 [%a0], {self.r()};")


def main() -> None:
    """Make and check programs for a while; what differs is printed, with its seed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--one", action="store_true", help="only the program of this seed; print it")
    options = parser.parse_args()
    os.environ.setdefault("TILEWISE_CACHE_DIR", tempfile.mkdtemp(prefix="tilewise-fuzz-"))
    end = time.monotonic() + options.seconds
    seed, wrong, skipped = options.seed, 0, 0
    while True:
        case = make(random.Random(seed).randint)
        if options.one:
            print(case.text, case.grid, case.block, case.order, case.threads)
        try:
            check(case)
        except TooLong:
            skipped += 1
        except Exception as error:  # whatever goes wrong is what is looked for
            wrong += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        seed += 1
        if options.one or time.monotonic() > end:
            break
    print(f"{seed - options.seed} programs, {wrong} wrong, {skipped} skipped: too long for the yardstick")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
