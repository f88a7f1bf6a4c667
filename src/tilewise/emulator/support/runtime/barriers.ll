; Barriers of a block, and warps that leave.

define void @tw_release(ptr %ctx, ptr %block, i64 %number) noinline {
entry:
  %off = mul i64 %number, ${BARRIER.SIZE}
  %b0 = getelementptr i8, ptr %block, i64 ${BLOCK.BARRIERS}
  %b = getelementptr i8, ptr %b0, i64 %off
  %tp = getelementptr i8, ptr %b, i64 ${BARRIER.THREADS}
  %threads = load i32, ptr %tp
  %cp = getelementptr i8, ptr %b, i64 ${BARRIER.COUNT}
  %count = load i32, ptr %cp
  %high = shl i32 %threads, 16
  %result = or i32 %high, %count
  store i32 0, ptr %tp
  store i32 0, ptr %cp
  %up = getelementptr i8, ptr %b, i64 ${BARRIER.UNITS}
  store i32 0, ptr %up
  %xp = getelementptr i8, ptr %b, i64 ${BARRIER.EXPECTED}
  store i32 0, ptr %xp
  %wp = getelementptr i8, ptr %ctx, i64 ${LAUNCH.WARPS}
  %warps = load i64, ptr %wp
  %sp = getelementptr i8, ptr %ctx, i64 ${LAUNCH.WARP_STRIDE}
  %stride = load i64, ptr %sp
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %more = icmp ult i64 %i, %warps
  br i1 %more, label %one, label %end
one:
  %wo = mul i64 %i, %stride
  %w0 = getelementptr i8, ptr %block, i64 ${BLOCK.WARPS}
  %warp = getelementptr i8, ptr %w0, i64 %wo
  %waits0 = getelementptr i8, ptr %warp, i64 ${WARP.WAITING}
  %waits = getelementptr i32, ptr %waits0, i64 %number
  %lanes = load i32, ptr %waits
  %any = icmp ne i32 %lanes, 0
  br i1 %any, label %free, label %next
free:
  store i32 0, ptr %waits
  %results = getelementptr i8, ptr %warp, i64 ${WARP.RESULTS}
  %mine = getelementptr i32, ptr %results, i64 %number
  store i32 %result, ptr %mine
  %bp = getelementptr i8, ptr %warp, i64 ${WARP.BLOCKED}
  %blocked = load i32, ptr %bp
  %others = xor i32 %lanes, -1
  %still = and i32 %blocked, %others
  store i32 %still, ptr %bp
  %stp = getelementptr i8, ptr %warp, i64 ${WARP.STATUS}
  %status = load i32, ptr %stp
  %waiting = icmp eq i32 %status, ${Status.WAITING}
  %new = select i1 %waiting, i32 ${Status.READY}, i32 %status
  store i32 %new, ptr %stp
  br label %next
next:
  %i2 = add i64 %i, 1
  br label %loop
end:
  ret void
}

define i32 @tw_barrier(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 %number, i32 %given, i32 %waits, i32 %mask, i32 %vote, i32 %line) noinline {
entry:
  %high = icmp ugt i32 %number, 15
  %uneven = and i32 %given, 31
  %odd = icmp ne i32 %uneven, 0
  %wrong = or i1 %high, %odd
  br i1 %wrong, label %bad, label %good
bad:
  call void @tw_fault(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.BAD_BARRIER}, i32 %line, i32 %mask)
  ret i32 2
good:
  %wide = zext i32 %number to i64
  %off = mul i64 %wide, ${BARRIER.SIZE}
  %b0 = getelementptr i8, ptr %block, i64 ${BLOCK.BARRIERS}
  %b = getelementptr i8, ptr %b0, i64 %off
  %tp = getelementptr i8, ptr %b, i64 ${BARRIER.THREADS}
  %threads = load i32, ptr %tp
  %up = getelementptr i8, ptr %b, i64 ${BARRIER.UNITS}
  %units = load i32, ptr %up
  %xp = getelementptr i8, ptr %b, i64 ${BARRIER.EXPECTED}
  %expected = load i32, ptr %xp
  %fresh = icmp eq i32 %threads, 0
  %agrees = icmp eq i32 %expected, %given
  %fine = or i1 %fresh, %agrees
  br i1 %fine, label %count, label %bad
count:
  store i32 %given, ptr %xp
  %n = call i32 @llvm.ctpop.i32(i32 %mask)
  %lp = getelementptr i8, ptr %warp, i64 ${WARP.LIVE}
  %live = load i32, ptr %lp
  %w0 = getelementptr i8, ptr %warp, i64 ${WARP.WAITING}
  %wp = getelementptr i32, ptr %w0, i64 %wide
  %had = load i32, ptr %wp
  %have = or i32 %had, %mask
  %before = call i32 @llvm.ctpop.i32(i32 %had)
  %rest = sub i32 32, %before
  %whole = icmp eq i32 %have, %live
  %unit = select i1 %whole, i32 %rest, i32 %n
  %threads2 = add i32 %threads, %n
  %units2 = add i32 %units, %unit
  store i32 %threads2, ptr %tp
  store i32 %units2, ptr %up
  %ayes0 = and i32 %vote, %mask
  %ayes = call i32 @llvm.ctpop.i32(i32 %ayes0)
  %cp = getelementptr i8, ptr %b, i64 ${BARRIER.COUNT}
  %votes = load i32, ptr %cp
  %votes2 = add i32 %votes, %ayes
  store i32 %votes2, ptr %cp
  %blocks = icmp ne i32 %waits, 0
  br i1 %blocks, label %mark, label %check
mark:
  store i32 %have, ptr %wp
  %bp = getelementptr i8, ptr %warp, i64 ${WARP.BLOCKED}
  %blocked = load i32, ptr %bp
  %blocked2 = or i32 %blocked, %mask
  store i32 %blocked2, ptr %bp
  %l0 = getelementptr i8, ptr %warp, i64 ${WARP.LINES}
  %linep = getelementptr i32, ptr %l0, i64 %wide
  store i32 %line, ptr %linep
  br label %check
check:
  %blp = getelementptr i8, ptr %block, i64 ${BLOCK.LIVE}
  %all = load i32, ptr %blp
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
}

define void @tw_depart(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 %lanes) noinline {
entry:
  %lp = getelementptr i8, ptr %warp, i64 ${WARP.LIVE}
  %live = load i32, ptr %lp
  %gone = and i32 %live, %lanes
  %others = xor i32 %gone, -1
  %stay = and i32 %live, %others
  store i32 %stay, ptr %lp
  %n = call i32 @llvm.ctpop.i32(i32 %gone)
  %bp = getelementptr i8, ptr %block, i64 ${BLOCK.LIVE}
  %all = load i32, ptr %bp
  %left = sub i32 %all, %n
  store i32 %left, ptr %bp
  %nobody = icmp eq i32 %n, 0
  br i1 %nobody, label %end, label %leave
leave:
  call void @tw_cluster_leave(ptr %ctx, ptr %block, ptr %warp, i32 %gone)
  br label %loop
loop:
  %i = phi i64 [ 0, %leave ], [ %i2, %next ]
  %off = mul i64 %i, ${BARRIER.SIZE}
  %b0 = getelementptr i8, ptr %block, i64 ${BLOCK.BARRIERS}
  %b = getelementptr i8, ptr %b0, i64 %off
  %tp = getelementptr i8, ptr %b, i64 ${BARRIER.THREADS}
  %threads = load i32, ptr %tp
  %xp = getelementptr i8, ptr %b, i64 ${BARRIER.EXPECTED}
  %expected = load i32, ptr %xp
  ; Of a warp whose other lanes have left, those that wait count as a whole one.
  %w0 = getelementptr i8, ptr %warp, i64 ${WARP.WAITING}
  %wp = getelementptr i32, ptr %w0, i64 %i
  %here = load i32, ptr %wp
  %alone = icmp eq i32 %here, %stay
  %present = icmp ne i32 %here, 0
  %whole = and i1 %alone, %present
  %counted = call i32 @llvm.ctpop.i32(i32 %here)
  %rest = sub i32 32, %counted
  %more.units = select i1 %whole, i32 %rest, i32 0
  %up = getelementptr i8, ptr %b, i64 ${BARRIER.UNITS}
  %units = load i32, ptr %up
  %units2 = add i32 %units, %more.units
  store i32 %units2, ptr %up
  %some = icmp ne i32 %threads, 0
  %uncounted = icmp eq i32 %expected, 0
  %enough.all = icmp uge i32 %threads, %left
  %enough.some = icmp uge i32 %units2, %expected
  %enough = select i1 %uncounted, i1 %enough.all, i1 %enough.some
  %complete = and i1 %some, %enough
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
}
