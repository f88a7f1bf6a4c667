"""What a ``wgmma`` in flight uses: its registers, of sums, elements of A and metadata, and matrices in shared memory.

From its issue until the warp has waited for its group no instruction may touch the registers. A write before the
issue has to be ordered by ``wgmma.fence``. A table of each warp has for every such register the line that wrote it
since the last fence, and the group of products that uses it; the index is the register's number in the kernel's list.
"""

from __future__ import annotations

from tilewise.emulator.check_layout import CHECK, CLOCKS, COPY, WHO, CopySide, FindingKind
from tilewise.emulator.checking import copies
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.checking.vector_clocks import merge_private_clock, update_least
from tilewise.emulator.layout import WARP
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, Ptr
from tilewise.emulator.support.checked import accessor, record_finding

__all__ = ["ENTRY_BYTES"]

ENTRY_BYTES = 16  # bytes of a register in the table
# At its start: whether the warp ever fenced; whether it wrote since; how many of its groups it has waited for.
_FENCED, _WRITES, _DONE = 0, 4, 8
_WRITTEN, _GROUP, _ISSUED = 0, 4, 8  # of a register: lines of the PTX, and the group and 1 more


def _closed_groups(r: CheckRoutine) -> Value:
    """How many groups of products this warp has committed."""
    return r.field(copies.groups_of(r, copies.PRODUCTS), 0, "i32")


def _report(r: CheckRoutine, kind: FindingKind, before: Value | int, lane: Value | int) -> None:
    record_finding(r, kind, accessor(r, lane), before, 0, accessor(r, WHO.WHOLE))


def _report_in_flight(r: CheckRoutine, table: Value, entry: Value, kind: FindingKind) -> None:
    """Report what the lanes of ``mask`` do with a register that a product in flight uses."""
    group, done = r.field(entry, _GROUP, "i32"), r.field(table, _DONE, "i32")
    with r.when(r.compare("icmp sgt", group, done)):
        _report(r, kind, r.field(entry, _ISSUED, "i32"), r.find_lowest(r["mask"]) & 31)


@check_routine("tw_check_ordered")
def _fence(r: CheckRoutine) -> None:
    """A warp runs ``wgmma.fence``: its writes so far are ordered."""
    table, size = r.own_table(CLOCKS.REGISTERS, CHECK.REGISTERS), r.check_field(CHECK.REGISTERS)
    r.put(table, _FENCED, 1)
    with r.when(r.differs(r.field(table, _WRITES, "i32"), 0)):
        r.put(table, _WRITES, 0)
        with r.count(size, ENTRY_BYTES, ENTRY_BYTES) as at:
            r.put(r.at(table, at), _WRITTEN, 0)
    merge_private_clock(r)


@check_routine("tw_check_wrote")
def _check_write(r: CheckRoutine, number: I32, mask: I32, counts: I32, line: I32) -> None:
    """Check and record a write of a register; ``counts`` is whether a fence has to order it."""
    table = r.own_table(CLOCKS.REGISTERS, CHECK.REGISTERS)
    entry = r.item(table, number, ENTRY_BYTES)
    _report_in_flight(r, table, entry, FindingKind.REGISTER_IN_FLIGHT)
    with r.when(r.differs(counts, 0)):
        r.put(entry, _WRITTEN, line)
        r.put(table, _WRITES, 1)


@check_routine("tw_check_sums")
def _check_read(r: CheckRoutine, number: I32, mask: I32, line: I32) -> None:
    """Report a read of a sum that a wgmma in flight may yet change."""
    table = r.own_table(CLOCKS.REGISTERS, CHECK.REGISTERS)
    _report_in_flight(r, table, r.item(table, number, ENTRY_BYTES), FindingKind.SUM_IN_FLIGHT)


@check_routine("tw_check_used")
def _issue(r: CheckRoutine, numbers: Ptr, count: I64, line: I32) -> None:
    """Check and record the registers, by number, of a wgmma that a warp issues."""
    table = r.own_table(CLOCKS.REGISTERS, CHECK.REGISTERS)
    never = r.equals(r.field(table, _FENCED, "i32"), 0)
    dirty = r.both(r.negation(never), r.differs(r.field(table, _WRITES, "i32"), 0))
    with r.when(never):
        _report(r, FindingKind.REGISTER_UNFENCED, 0, WHO.WHOLE)
        r.put(table, _FENCED, 1)
    group = _closed_groups(r) + 1
    with r.count(count) as i:
        entry = r.item(table, r.element(numbers, i, "i32"), ENTRY_BYTES)
        written = r.field(entry, _WRITTEN, "i32")
        with r.when(r.both(dirty, r.differs(written, 0))):
            _report(r, FindingKind.REGISTER_UNFENCED, written, WHO.WHOLE)
        r.put(entry, _WRITTEN, 0)
        r.put(entry, _GROUP, group)
        r.put(entry, _ISSUED, line)


@check_routine("tw_check_done")
def _wait_groups(r: CheckRoutine, keep: I32) -> None:
    """Complete all groups but the last ``keep``, which a warp has waited for, with the reads of its warpgroup."""
    table = r.own_table(CLOCKS.REGISTERS, CHECK.REGISTERS)
    done = r.intrinsic("llvm.smax", r.field(table, _DONE, "i32"), _closed_groups(r) - keep)
    r.put(table, _DONE, done)
    time = r.element(r.table(CLOCKS.PRODUCTS_DONE), copies.first_of_warpgroup(r), "i32")
    own = r.wide(r.field(r["warp"], WARP.INDEX, "i32") & 3)
    clock = r.item(r.own_clock(), r.own_entry() - own, 4)
    with r.count(4) as i, r.when(r.differs(i, own)):
        r.raise_to(r.item(clock, i, 4), time)
    update_least(r)


# -- matrices in shared memory -----------------------------------------------------------------------
@check_routine("tw_check_product")
def _issue_matrix(
    r: CheckRoutine, bits: I64, first: I32, rows: I32, bricks: I32, across: I32, line: I32
) -> None:
    """Record a wgmma's read of a matrix: of A, if ``first`` is not 0, the warp's own rows; B once for four warps."""
    index = r.field(r["warp"], WARP.INDEX, "i32") & 3
    own = r.differs(first, 0)  # of A: 16 of its 64 rows
    r.give_if(r.negation(own | r.equals(index, 0)))
    start = r.select(own, index * 2, 0)
    copy = copies.new_record(r, 1, 0, copies.PRODUCTS, CopySide.FROM_SHARED)
    r.give_if(r.is_null(copy))
    request = {0: bits, 8: start, 12: rows, 16: bricks, 20: across}
    r.put_fields(r.at(copy, COPY.PLACES), request)
    copies.walk_matrix(r, copy, copies.Mark.LEAVE, line, accessor(r, WHO.WHOLE))
