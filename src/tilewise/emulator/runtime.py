"""The run-time support, as LLVM text: memory checks, barriers, faults, and the scheduler of warps.

It is compiled once per process and linked to every kernel. Nothing here knows an instruction.
"""

from __future__ import annotations

from tilewise.emulator.layout import (
    BARRIER,
    BLOCK,
    FAULT,
    GENERIC_CONST,
    GENERIC_LOCAL,
    GENERIC_PARAM,
    GENERIC_SHARED,
    LAUNCH,
    WARP,
    WINDOW,
    Answer,
    FaultKind,
    Space,
    Status,
)

__all__ = ["ACTIVE", "POISON", "Outcome", "runtime_text"]

ACTIVE = 40  # in a block: whether it has been started and is not done
POISON = 0xFF  # shared and local memory before it is written: NaN as a float


class Outcome:
    """What ``tw_work`` returns."""

    FINISHED = 0  # no block is left to start
    STUCK = 1  # the block's warps all wait for something outside it
    GENERAL = 2  # the general build is needed
    ENDED = 3  # by a fault or the stop flag
    DEADLOCK = 4


def runtime_text() -> str:
    """The whole module."""
    return "\n".join([_DECLARATIONS, _faults(), _find(), _resolve(), _copy(), _barrier(), _depart(), _run(), _work()])


_ARGS = "ptr %ctx, ptr %worker, ptr %block, ptr %warp"
_PASS = "ptr %ctx, ptr %worker, ptr %block, ptr %warp"

_DECLARATIONS = """
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.cttz.i32(i32, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def _at(name: str, base: str, offset: int) -> str:
    return f"  %{name} = getelementptr i8, ptr {base}, i64 {offset}\n"


def _faults() -> str:
    return f"""
define void @tw_fault_at({_ARGS}, i32 %kind, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 %extent) noinline cold {{
{_at("slot", "%ctx", LAUNCH.FAULT)}  %f = load ptr, ptr %slot
  %won = cmpxchg ptr %f, i32 0, i32 -1 seq_cst seq_cst
  %first = extractvalue {{ i32, i1 }} %won, 1
  br i1 %first, label %fill, label %stop
fill:
{_at("line.p", "%f", FAULT.LINE)}  store i32 %line, ptr %line.p
{_at("bx", "%block", BLOCK.X)}  %x = load i32, ptr %bx
{_at("by", "%block", BLOCK.Y)}  %y = load i32, ptr %by
{_at("bz", "%block", BLOCK.Z)}  %z = load i32, ptr %bz
{_at("fx", "%f", FAULT.X)}  store i32 %x, ptr %fx
{_at("fy", "%f", FAULT.Y)}  store i32 %y, ptr %fy
{_at("fz", "%f", FAULT.Z)}  store i32 %z, ptr %fz
{_at("wi", "%warp", WARP.INDEX)}  %w = load i32, ptr %wi
  %base = shl i32 %w, 5
  %thread = add i32 %base, %lane
{_at("ft", "%f", FAULT.THREAD)}  store i32 %thread, ptr %ft
{_at("fa", "%f", FAULT.ADDRESS)}  store i64 %address, ptr %fa
{_at("fs", "%f", FAULT.SIZE)}  store i32 %size, ptr %fs
{_at("fp", "%f", FAULT.SPACE)}  store i32 %space, ptr %fp
{_at("fw", "%f", FAULT.WRITE)}  store i32 %write, ptr %fw
{_at("fe", "%f", FAULT.EXTENT)}  store i64 %extent, ptr %fe
  store atomic i32 %kind, ptr %f release, align 4
  br label %stop
stop:
{_at("flag", "%ctx", LAUNCH.STOP)}  store atomic i32 1, ptr %flag release, align 4
  ret void
}}

define void @tw_fault({_ARGS}, i32 %kind, i32 %line, i32 %mask) noinline cold {{
  %lane = call i32 @llvm.cttz.i32(i32 %mask, i1 false)
  %safe = and i32 %lane, 31
  call void @tw_fault_at({_PASS}, i32 %kind, i32 %line, i32 %safe, i64 0, i32 0, i32 0, i32 0, i64 0)
  ret void
}}
"""


def _find() -> str:
    return f"""
define i1 @tw_find(ptr %ctx, i64 %address, i64 %size, ptr %hint) noinline {{
entry:
{_at("rp", "%ctx", LAUNCH.RANGES)}  %ranges = load ptr, ptr %rp
{_at("np", "%ctx", LAUNCH.RANGE_COUNT)}  %n = load i64, ptr %np
  br label %loop
loop:
  %low = phi i64 [ 0, %entry ], [ %low2, %next ]
  %high = phi i64 [ %n, %entry ], [ %high2, %next ]
  %open = icmp ult i64 %low, %high
  br i1 %open, label %look, label %none
look:
  %sum = add i64 %low, %high
  %mid = lshr i64 %sum, 1
  %index = shl i64 %mid, 1
  %pl = getelementptr i64, ptr %ranges, i64 %index
  %first = load i64, ptr %pl
  %ph = getelementptr i64, ptr %pl, i64 1
  %last = load i64, ptr %ph
  %before = icmp ult i64 %address, %first
  br i1 %before, label %left, label %maybe
left:
  br label %next
maybe:
  %past = icmp uge i64 %address, %last
  br i1 %past, label %right, label %within
right:
  %after = add i64 %mid, 1
  br label %next
next:
  %low2 = phi i64 [ %low, %left ], [ %after, %right ]
  %high2 = phi i64 [ %mid, %left ], [ %high, %right ]
  br label %loop
within:
  %room = sub i64 %last, %address
  %fits = icmp ule i64 %size, %room
  br i1 %fits, label %found, label %none
found:
  store i64 %first, ptr %hint
  %hint2 = getelementptr i64, ptr %hint, i64 1
  %length = sub i64 %last, %first
  %limit = add i64 %length, 1
  store i64 %limit, ptr %hint2
  ret i1 true
none:
  ret i1 false
}}
"""


def _window(name: str, base: int, space: Space, on: str) -> str:
    return f"""
try.{name}:
  %off.{name} = sub i64 %address, {base}
  %is.{name} = icmp ult i64 %off.{name}, {WINDOW}
  br i1 %is.{name}, label %go.{name}, label %{on}
go.{name}:
  %p.{name} = call ptr @tw_resolve({_PASS}, i64 %off.{name}, i32 %size, i32 {int(space)}, i32 %lane, i32 %line, i32 %write)
  ret ptr %p.{name}
"""


def _resolve() -> str:
    """An address of a space → a pointer, or null after recording the fault."""

    def bounded(name: str, base_slot: int, bytes_slot: int, base: str, readonly: bool) -> str:
        guard = "br i1 %writes, label %readonly, label %in." + name if readonly else f"br label %in.{name}"
        return f"""
{name}:
  {guard}
in.{name}:
{_at("bytes.p." + name, "%ctx", bytes_slot)}  %bytes.{name} = load i64, ptr %bytes.p.{name}
  %end.{name} = add i64 %address, %wide
  %over.{name} = icmp ugt i64 %end.{name}, %bytes.{name}
  %wrap.{name} = icmp ult i64 %end.{name}, %address
  %bad.{name} = or i1 %over.{name}, %wrap.{name}
  br i1 %bad.{name}, label %out.{name}, label %ok.{name}
out.{name}:
  call void @tw_fault_at({_PASS}, i32 {int(FaultKind.OUT_OF_BOUNDS)}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 %bytes.{name})
  ret ptr null
ok.{name}:
{_at("base.p." + name, base, base_slot)}  %base.{name} = load ptr, ptr %base.p.{name}
"""

    return (
        f"""
define ptr @tw_resolve({_ARGS}, i64 %address, i32 %size, i32 %space, i32 %lane, i32 %line, i32 %write) noinline {{
  %wide = zext i32 %size to i64
  %less = sub i64 %wide, 1
  %odd = and i64 %address, %less
  %writes = icmp ne i32 %write, 0
  %aligned = icmp eq i64 %odd, 0
  br i1 %aligned, label %which, label %crooked
crooked:
  call void @tw_fault_at({_PASS}, i32 {int(FaultKind.MISALIGNED)}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 0)
  ret ptr null
readonly:
  call void @tw_fault_at({_PASS}, i32 {int(FaultKind.READ_ONLY)}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 0)
  ret ptr null
which:
  switch i32 %space, label %try.shared [ i32 {int(Space.GLOBAL)}, label %global i32 {int(Space.SHARED)}, label %shared i32 {int(Space.LOCAL)}, label %local i32 {int(Space.CONST)}, label %const i32 {int(Space.PARAM)}, label %param ]
"""
        + _window("shared", GENERIC_SHARED, Space.SHARED, "try.local")
        + _window("local", GENERIC_LOCAL, Space.LOCAL, "try.const")
        + _window("const", GENERIC_CONST, Space.CONST, "try.param")
        + _window("param", GENERIC_PARAM, Space.PARAM, "global")
        + f"""
global:
  %known = call i1 @tw_find(ptr %ctx, i64 %address, i64 %wide, ptr %worker)
  br i1 %known, label %ok.global, label %out.global
out.global:
  call void @tw_fault_at({_PASS}, i32 {int(FaultKind.OUT_OF_BOUNDS)}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 {int(Space.GLOBAL)}, i32 %write, i64 0)
  ret ptr null
ok.global:
  %p = inttoptr i64 %address to ptr
  ret ptr %p
"""
        + bounded("shared", BLOCK.SHARED, LAUNCH.SHARED_BYTES, "%block", False)
        + "  %q.shared = getelementptr i8, ptr %base.shared, i64 %address\n  ret ptr %q.shared\n"
        + bounded("local", WARP.LOCAL, LAUNCH.LOCAL_BYTES, "%warp", False)
        + """  %lane.wide = zext i32 %lane to i64
  %row = mul i64 %lane.wide, %bytes.local
  %at.local = add i64 %row, %address
  %q.local = getelementptr i8, ptr %base.local, i64 %at.local
  ret ptr %q.local
"""
        + bounded("const", LAUNCH.CONST, LAUNCH.CONST_BYTES, "%ctx", True)
        + "  %q.const = getelementptr i8, ptr %base.const, i64 %address\n  ret ptr %q.const\n"
        + bounded("param", LAUNCH.PARAMS, LAUNCH.PARAM_BYTES, "%ctx", True)
        + "  %q.param = getelementptr i8, ptr %base.param, i64 %address\n  ret ptr %q.param\n}\n"
    )


def _copy() -> str:
    """Loads and stores of any pattern, lane by lane: %data holds %size bytes for each lane."""
    text = ""
    for name, write, to, source in (("load", 0, "%mine", "%place"), ("store", 1, "%place", "%mine")):
        text += f"""
define i32 @tw_{name}({_ARGS}, ptr %addresses, i32 %mask, i32 %size, i32 %space, i32 %line, ptr %data) noinline {{
entry:
  %wide = zext i32 %size to i64
  br label %loop
loop:
  %left = phi i32 [ %mask, %entry ], [ %rest, %done ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %end, label %one
one:
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %rest = and i32 %left, %less
  %at = zext i32 %lane to i64
  %ap = getelementptr i64, ptr %addresses, i64 %at
  %address = load i64, ptr %ap
  %place = call ptr @tw_resolve({_PASS}, i64 %address, i32 %size, i32 %space, i32 %lane, i32 %line, i32 {write})
  %bad = icmp eq ptr %place, null
  br i1 %bad, label %failed, label %copy
copy:
  %start = mul i64 %at, %wide
  %mine = getelementptr i8, ptr %data, i64 %start
  switch i32 %size, label %any [ i32 4, label %four i32 8, label %eight i32 16, label %sixteen ]
four:
  %v4 = load i32, ptr {source}, align 1
  store i32 %v4, ptr {to}, align 1
  br label %done
eight:
  %v8 = load i64, ptr {source}, align 1
  store i64 %v8, ptr {to}, align 1
  br label %done
sixteen:
  %v16 = load <4 x i32>, ptr {source}, align 1
  store <4 x i32> %v16, ptr {to}, align 1
  br label %done
any:
  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 %wide, i1 false)
  br label %done
done:
  br label %loop
end:
  ret i32 0
failed:
  ret i32 1
}}
"""
    return text


def _barrier() -> str:
    return f"""
define void @tw_release(ptr %ctx, ptr %block, i64 %number) noinline {{
entry:
  %off = mul i64 %number, {BARRIER.SIZE}
  %b0 = getelementptr i8, ptr %block, i64 {BLOCK.BARRIERS}
  %b = getelementptr i8, ptr %b0, i64 %off
{_at("tp", "%b", BARRIER.THREADS)}  %threads = load i32, ptr %tp
{_at("cp", "%b", BARRIER.COUNT)}  %count = load i32, ptr %cp
  %high = shl i32 %threads, 16
  %result = or i32 %high, %count
{_at("rp", "%b", BARRIER.RESULT)}  store i32 %result, ptr %rp
  store i32 0, ptr %tp
  store i32 0, ptr %cp
{_at("up", "%b", BARRIER.UNITS)}  store i32 0, ptr %up
{_at("xp", "%b", BARRIER.EXPECTED)}  store i32 0, ptr %xp
{_at("wp", "%ctx", LAUNCH.WARPS)}  %warps = load i64, ptr %wp
{_at("sp", "%ctx", LAUNCH.WARP_STRIDE)}  %stride = load i64, ptr %sp
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %more = icmp ult i64 %i, %warps
  br i1 %more, label %one, label %end
one:
  %wo = mul i64 %i, %stride
  %w0 = getelementptr i8, ptr %block, i64 {BLOCK.WARPS}
  %warp = getelementptr i8, ptr %w0, i64 %wo
{_at("waits0", "%warp", WARP.WAITING)}  %waits = getelementptr i32, ptr %waits0, i64 %number
  %lanes = load i32, ptr %waits
  %any = icmp ne i32 %lanes, 0
  br i1 %any, label %free, label %next
free:
  store i32 0, ptr %waits
{_at("bp", "%warp", WARP.BLOCKED)}  %blocked = load i32, ptr %bp
  %others = xor i32 %lanes, -1
  %still = and i32 %blocked, %others
  store i32 %still, ptr %bp
{_at("stp", "%warp", WARP.STATUS)}  %status = load i32, ptr %stp
  %waiting = icmp eq i32 %status, {int(Status.WAITING)}
  %new = select i1 %waiting, i32 {int(Status.READY)}, i32 %status
  store i32 %new, ptr %stp
  br label %next
next:
  %i2 = add i64 %i, 1
  br label %loop
end:
  ret void
}}

define i32 @tw_barrier({_ARGS}, i32 %number, i32 %given, i32 %waits, i32 %mask, i32 %vote, i32 %line) noinline {{
entry:
  %high = icmp ugt i32 %number, 15
  %uneven = and i32 %given, 31
  %odd = icmp ne i32 %uneven, 0
  %wrong = or i1 %high, %odd
  br i1 %wrong, label %bad, label %good
bad:
  call void @tw_fault({_PASS}, i32 {int(FaultKind.BAD_BARRIER)}, i32 %line, i32 %mask)
  ret i32 2
good:
  %wide = zext i32 %number to i64
  %off = mul i64 %wide, {BARRIER.SIZE}
  %b0 = getelementptr i8, ptr %block, i64 {BLOCK.BARRIERS}
  %b = getelementptr i8, ptr %b0, i64 %off
{_at("tp", "%b", BARRIER.THREADS)}  %threads = load i32, ptr %tp
{_at("up", "%b", BARRIER.UNITS)}  %units = load i32, ptr %up
{_at("xp", "%b", BARRIER.EXPECTED)}  %expected = load i32, ptr %xp
  %fresh = icmp eq i32 %threads, 0
  %agrees = icmp eq i32 %expected, %given
  %fine = or i1 %fresh, %agrees
  br i1 %fine, label %count, label %bad
count:
  store i32 %given, ptr %xp
  %n = call i32 @llvm.ctpop.i32(i32 %mask)
{_at("lp", "%warp", WARP.LIVE)}  %live = load i32, ptr %lp
  %whole = icmp eq i32 %mask, %live
  %unit = select i1 %whole, i32 32, i32 %n
  %threads2 = add i32 %threads, %n
  %units2 = add i32 %units, %unit
  store i32 %threads2, ptr %tp
  store i32 %units2, ptr %up
  %ayes0 = and i32 %vote, %mask
  %ayes = call i32 @llvm.ctpop.i32(i32 %ayes0)
{_at("cp", "%b", BARRIER.COUNT)}  %votes = load i32, ptr %cp
  %votes2 = add i32 %votes, %ayes
  store i32 %votes2, ptr %cp
  %blocks = icmp ne i32 %waits, 0
  br i1 %blocks, label %mark, label %check
mark:
{_at("w0", "%warp", WARP.WAITING)}  %wp = getelementptr i32, ptr %w0, i64 %wide
  %had = load i32, ptr %wp
  %have = or i32 %had, %mask
  store i32 %have, ptr %wp
{_at("bp", "%warp", WARP.BLOCKED)}  %blocked = load i32, ptr %bp
  %blocked2 = or i32 %blocked, %mask
  store i32 %blocked2, ptr %bp
{_at("linep", "%warp", WARP.LINE)}  store i32 %line, ptr %linep
  br label %check
check:
{_at("blp", "%block", BLOCK.LIVE)}  %all = load i32, ptr %blp
  %everyone = icmp eq i32 %given, 0
  %have.all = icmp uge i32 %threads2, %all
  %have.some = icmp uge i32 %units2, %given
  %complete = select i1 %everyone, i1 %have.all, i1 %have.some
  br i1 %complete, label %release, label %wait
release:
  call void @tw_release(ptr %ctx, ptr %block, i64 %wide)
  ret i32 0
wait:
  %answer = zext i1 %blocks to i32
  ret i32 %answer
}}
"""


def _depart() -> str:
    return f"""
define void @tw_depart({_ARGS}, i32 %lanes) noinline {{
entry:
{_at("lp", "%warp", WARP.LIVE)}  %live = load i32, ptr %lp
  %gone = and i32 %live, %lanes
  %others = xor i32 %gone, -1
  %stay = and i32 %live, %others
  store i32 %stay, ptr %lp
  %n = call i32 @llvm.ctpop.i32(i32 %gone)
{_at("bp", "%block", BLOCK.LIVE)}  %all = load i32, ptr %bp
  %left = sub i32 %all, %n
  store i32 %left, ptr %bp
  %nobody = icmp eq i32 %n, 0
  br i1 %nobody, label %end, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %off = mul i64 %i, {BARRIER.SIZE}
  %b0 = getelementptr i8, ptr %block, i64 {BLOCK.BARRIERS}
  %b = getelementptr i8, ptr %b0, i64 %off
{_at("tp", "%b", BARRIER.THREADS)}  %threads = load i32, ptr %tp
{_at("xp", "%b", BARRIER.EXPECTED)}  %expected = load i32, ptr %xp
  %some = icmp ne i32 %threads, 0
  %uncounted = icmp eq i32 %expected, 0
  %enough = icmp uge i32 %threads, %left
  %a = and i1 %some, %uncounted
  %complete = and i1 %a, %enough
  br i1 %complete, label %release, label %next
release:
  call void @tw_release(ptr %ctx, ptr %block, i64 %i)
  br label %next
next:
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, 16
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


def _run() -> str:
    """Run a block's warps until the block is done, stuck or failed."""
    return f"""
define i32 @tw_run(ptr %ctx, ptr %worker, ptr %block) noinline {{
entry:
{_at("wp", "%ctx", LAUNCH.WARPS)}  %warps = load i64, ptr %wp
{_at("sp", "%ctx", LAUNCH.WARP_STRIDE)}  %stride = load i64, ptr %sp
{_at("op", "%ctx", LAUNCH.ORDER)}  %order = load i64, ptr %op
{_at("fp", "%ctx", LAUNCH.FAST)}  %fast = load ptr, ptr %fp
{_at("gp", "%ctx", LAUNCH.GENERAL)}  %general = load ptr, ptr %gp
{_at("stop.p", "%ctx", LAUNCH.STOP)}{_at("seed.p", "%worker", 16)}{_at("done.p", "%block", BLOCK.DONE)}  %last = sub i64 %warps, 1
  br label %round
round:
  %stop = load atomic i32, ptr %stop.p acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %ended, label %each
each:
  %i = phi i64 [ 0, %round ], [ %i2, %next ]
  %progress = phi i1 [ false, %round ], [ %progress2, %next ]
  %ready = phi i1 [ false, %round ], [ %ready2, %next ]
  %more = icmp ult i64 %i, %warps
  br i1 %more, label %pick, label %over
pick:
  %backwards = sub i64 %last, %i
  %seed = load i64, ptr %seed.p
  %s1 = mul i64 %seed, 6364136223846793005
  %s2 = add i64 %s1, 1442695040888963407
  %seeded = icmp eq i64 %order, 2
  %start = icmp eq i64 %i, 0
  %s3 = select i1 %start, i64 %s2, i64 %seed
  store i64 %s3, ptr %seed.p
  %s4 = lshr i64 %s3, 33
  %s5 = add i64 %s4, %i
  %random = urem i64 %s5, %warps
  %late = icmp eq i64 %order, 1
  %c1 = select i1 %late, i64 %backwards, i64 %i
  %chosen = select i1 %seeded, i64 %random, i64 %c1
  %wo = mul i64 %chosen, %stride
  %w0 = getelementptr i8, ptr %block, i64 {BLOCK.WARPS}
  %warp = getelementptr i8, ptr %w0, i64 %wo
{_at("st.p", "%warp", WARP.STATUS)}  %status = load i32, ptr %st.p
  %can = icmp eq i32 %status, {int(Status.READY)}
  br i1 %can, label %start.warp, label %next
start.warp:
{_at("gen.p", "%warp", WARP.GENERAL)}  %gen = load i32, ptr %gen.p
  %slow = icmp ne i32 %gen, 0
  %code = select i1 %slow, ptr %general, ptr %fast
  %missing = icmp eq ptr %code, null
  br i1 %missing, label %need, label %call
call:
  %answer = call i32 %code({_PASS})
  switch i32 %answer, label %ended [ i32 {int(Answer.EXIT)}, label %exit i32 {int(Answer.WAIT)}, label %wait i32 {int(Answer.YIELD)}, label %yield i32 {int(Answer.DEOPT)}, label %deopt ]
exit:
  call void @tw_depart({_PASS}, i32 -1)
  store i32 {int(Status.DONE)}, ptr %st.p
  %done = load i32, ptr %done.p
  %done2 = add i32 %done, 1
  store i32 %done2, ptr %done.p
  %done.wide = zext i32 %done2 to i64
  %finished = icmp eq i64 %done.wide, %warps
  br i1 %finished, label %complete, label %next
wait:
{_at("bl.p", "%warp", WARP.BLOCKED)}  %blocked = load i32, ptr %bl.p
  %waits = icmp ne i32 %blocked, 0
  %new = select i1 %waits, i32 {int(Status.WAITING)}, i32 {int(Status.READY)}
  store i32 %new, ptr %st.p
  br label %next
yield:
  br label %next
deopt:
  store i32 1, ptr %gen.p
  br label %start.warp
next:
  %did = phi i1 [ false, %pick ], [ true, %exit ], [ true, %wait ], [ false, %yield ]
  %was = phi i1 [ false, %pick ], [ false, %exit ], [ false, %wait ], [ true, %yield ]
  %progress2 = or i1 %progress, %did
  %ready2 = or i1 %ready, %was
  %i2 = add i64 %i, 1
  br label %each
over:
  br i1 %progress, label %round, label %still
still:
  br i1 %ready, label %stuck, label %deadlock
complete:
  ret i32 {Outcome.FINISHED}
stuck:
  ret i32 {Outcome.STUCK}
need:
  ret i32 {Outcome.GENERAL}
deadlock:
  ret i32 {Outcome.DEADLOCK}
ended:
  ret i32 {Outcome.ENDED}
}}
"""


def _work() -> str:
    """Start blocks one after another in one block's memory, and run each."""
    return f"""
define i32 @tw_work(ptr %ctx, ptr %worker, ptr %block) noinline {{
entry:
{_at("active.p", "%block", ACTIVE)}{_at("next.p", "%ctx", LAUNCH.NEXT)}{_at("total.p", "%ctx", LAUNCH.TOTAL)}  %total = load i64, ptr %total.p
{_at("stop.p", "%ctx", LAUNCH.STOP)}{_at("done.p", "%ctx", LAUNCH.DONE)}  br label %loop
loop:
  %stop = load atomic i32, ptr %stop.p acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %ended, label %look
look:
  %active = load i32, ptr %active.p
  %running = icmp ne i32 %active, 0
  br i1 %running, label %run, label %new
new:
  %number = atomicrmw add ptr %next.p, i64 1 monotonic
  %exists = icmp ult i64 %number, %total
  br i1 %exists, label %init, label %finished
init:
  call void @tw_init(ptr %ctx, ptr %block, i64 %number)
  br label %run
run:
  %outcome = call i32 @tw_run(ptr %ctx, ptr %worker, ptr %block)
  %complete = icmp eq i32 %outcome, {Outcome.FINISHED}
  br i1 %complete, label %count, label %pass
count:
  store i32 0, ptr %active.p
  %before = atomicrmw add ptr %done.p, i64 1 monotonic
  br label %loop
pass:
  ret i32 %outcome
finished:
  ret i32 {Outcome.FINISHED}
ended:
  ret i32 {Outcome.ENDED}
}}

define void @tw_init(ptr %ctx, ptr %block, i64 %number) noinline {{
entry:
{_at("gx.p", "%ctx", LAUNCH.GRID_X)}  %gx = load i64, ptr %gx.p
{_at("gy.p", "%ctx", LAUNCH.GRID_Y)}  %gy = load i64, ptr %gy.p
  %x = urem i64 %number, %gx
  %r = udiv i64 %number, %gx
  %y = urem i64 %r, %gy
  %z = udiv i64 %r, %gy
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
{_at("bx", "%block", BLOCK.X)}  store i32 %x32, ptr %bx
{_at("by", "%block", BLOCK.Y)}  store i32 %y32, ptr %by
{_at("bz", "%block", BLOCK.Z)}  store i32 %z32, ptr %bz
{_at("bn", "%block", BLOCK.NUMBER)}  store i64 %number, ptr %bn
{_at("bd", "%block", BLOCK.DONE)}  store i32 0, ptr %bd
{_at("ba", "%block", ACTIVE)}  store i32 1, ptr %ba
{_at("th.p", "%ctx", LAUNCH.THREADS)}  %threads = load i64, ptr %th.p
  %threads32 = trunc i64 %threads to i32
{_at("bl", "%block", BLOCK.LIVE)}  store i32 %threads32, ptr %bl
{_at("bars", "%block", BLOCK.BARRIERS)}  call void @llvm.memset.p0.i64(ptr %bars, i8 0, i64 {16 * BARRIER.SIZE}, i1 false)
{_at("sh.p", "%block", BLOCK.SHARED)}  %shared = load ptr, ptr %sh.p
{_at("sb.p", "%ctx", LAUNCH.SHARED_BYTES)}  %sb = load i64, ptr %sb.p
  call void @llvm.memset.p0.i64(ptr %shared, i8 {POISON}, i64 %sb, i1 false)
{_at("wp", "%ctx", LAUNCH.WARPS)}  %warps = load i64, ptr %wp
{_at("sp", "%ctx", LAUNCH.WARP_STRIDE)}  %stride = load i64, ptr %sp
{_at("lb.p", "%ctx", LAUNCH.LOCAL_BYTES)}  %lb = load i64, ptr %lb.p
  %local = mul i64 %lb, 32
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %loop ]
  %wo = mul i64 %i, %stride
  %w0 = getelementptr i8, ptr %block, i64 {BLOCK.WARPS}
  %warp = getelementptr i8, ptr %w0, i64 %wo
{_at("resume", "%warp", WARP.RESUME)}  store i32 0, ptr %resume
{_at("status", "%warp", WARP.STATUS)}  store i32 0, ptr %status
{_at("blocked", "%warp", WARP.BLOCKED)}  store i32 0, ptr %blocked
{_at("general", "%warp", WARP.GENERAL)}  store i32 0, ptr %general
{_at("index", "%warp", WARP.INDEX)}  %i32 = trunc i64 %i to i32
  store i32 %i32, ptr %index
{_at("waiting", "%warp", WARP.WAITING)}  call void @llvm.memset.p0.i64(ptr %waiting, i8 0, i64 64, i1 false)
  %first = shl i32 %i32, 5
  %room = sub i32 %threads32, %first
  %partial = icmp ult i32 %room, 32
  %safe = and i32 %room, 31
  %bit = shl i32 1, %safe
  %some = sub i32 %bit, 1
  %mask = select i1 %partial, i32 %some, i32 -1
{_at("live", "%warp", WARP.LIVE)}  store i32 %mask, ptr %live
{_at("mem.p", "%warp", WARP.LOCAL)}  %mem = load ptr, ptr %mem.p
  call void @llvm.memset.p0.i64(ptr %mem, i8 {POISON}, i64 %local, i1 false)
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %warps
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
