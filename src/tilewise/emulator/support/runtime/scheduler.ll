; The scheduler: clusters one after another, and of each cluster the warps that can run, whichever block they are of.

define i64 @tw_step(i64 %warps, i64 %wish) {
entry:
  %rest = urem i64 %wish, %warps
  br label %try
try:
  %step = phi i64 [ %rest, %entry ], [ %more, %next ]
  br label %divide
divide:
  %a = phi i64 [ %warps, %try ], [ %b, %divide.on ]
  %b = phi i64 [ %step, %try ], [ %r, %divide.on ]
  %done = icmp eq i64 %b, 0
  br i1 %done, label %judge, label %divide.on
divide.on:
  %r = urem i64 %a, %b
  br label %divide
judge:
  %good = icmp eq i64 %a, 1
  br i1 %good, label %take, label %next
next:
  %more = add i64 %step, 1
  br label %try
take:
  ret i64 %step
}

; What the blocks of a cluster have counted, all together.
define i64 @tw_counted(ptr %ctx, ptr %first) noinline {
entry:
  %blocks.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CLUSTER}
  %blocks = load i64, ptr %blocks.p
  %far.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.BLOCK_STRIDE}
  %far = load i64, ptr %far.p
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %loop ]
  %block = phi ptr [ %first, %entry ], [ %block2, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %sum2, %loop ]
  %count.p = getelementptr i8, ptr %block, i64 ${BLOCK.PROGRESS}
  %count = load i64, ptr %count.p
  %sum2 = add i64 %sum, %count
  %block2 = getelementptr i8, ptr %block, i64 %far
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %blocks
  br i1 %more, label %loop, label %end
end:
  ret i64 %sum2
}

define i32 @tw_run(ptr %ctx, ptr %worker, ptr %first) noinline {
entry:
  %wp = getelementptr i8, ptr %ctx, i64 ${LAUNCH.WARPS}
  %warps = load i64, ptr %wp
  %blocks.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CLUSTER}
  %blocks = load i64, ptr %blocks.p
  %all = mul i64 %warps, %blocks
  %size.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.BLOCK_STRIDE}
  %size = load i64, ptr %size.p
  %sp = getelementptr i8, ptr %ctx, i64 ${LAUNCH.WARP_STRIDE}
  %stride = load i64, ptr %sp
  %op = getelementptr i8, ptr %ctx, i64 ${LAUNCH.ORDER}
  %order = load i64, ptr %op
  %fp = getelementptr i8, ptr %ctx, i64 ${LAUNCH.FAST}
  %fast = load ptr, ptr %fp
  %gp = getelementptr i8, ptr %ctx, i64 ${LAUNCH.GENERAL}
  %general = load ptr, ptr %gp
  %stop.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.STOP}
  %seed.p = getelementptr i8, ptr %worker, i64 16
  %left.p = getelementptr i8, ptr %first, i64 ${BLOCK.LEFT}
  %last = sub i64 %all, 1
  %count.p = getelementptr i8, ptr %first, i64 ${BLOCK.PROGRESS}
  %seen.p = getelementptr i8, ptr %first, i64 ${BLOCK.SEEN}
  %turns.p = getelementptr i8, ptr %first, i64 ${BLOCK.TURNS}
  %pauses.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.PAUSES}
  %pauses.word = load i64, ptr %pauses.p
  %pauses = icmp ne i64 %pauses.word, 0
  br label %round
round:
  %stop = load atomic i32, ptr %stop.p acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %ended, label %roll
roll:
  ; Where a seeded round starts, and how far it steps: it meets every warp once, in an order of its own.
  %seed = load i64, ptr %seed.p
  %s1 = mul i64 %seed, 6364136223846793005
  %s2 = add i64 %s1, 1442695040888963407
  store i64 %s2, ptr %seed.p
  %begin = lshr i64 %s2, 33
  %far = lshr i64 %s2, 17
  %seeded = icmp eq i64 %order, 2
  br i1 %seeded, label %shake, label %each
shake:
  %step = call i64 @tw_step(i64 %all, i64 %far)
  br label %each
each:
  %far.step = phi i64 [ 1, %roll ], [ %step, %shake ], [ %far.step, %next ]
  %i = phi i64 [ 0, %roll ], [ 0, %shake ], [ %i2, %next ]
  %progress = phi i1 [ false, %roll ], [ false, %shake ], [ %progress2, %next ]
  %ready = phi i1 [ false, %roll ], [ false, %shake ], [ %ready2, %next ]
  %more = icmp ult i64 %i, %all
  br i1 %more, label %pick, label %over
pick:
  %backwards = sub i64 %last, %i
  %late = icmp eq i64 %order, 1
  %c1 = select i1 %late, i64 %backwards, i64 %i
  br i1 %seeded, label %draw, label %found
draw:
  %on = mul i64 %i, %far.step
  %at = add i64 %begin, %on
  %random = urem i64 %at, %all
  br label %found
found:
  %chosen = phi i64 [ %c1, %pick ], [ %random, %draw ]
  %chosen32 = trunc i64 %chosen to i32
  %warps32 = trunc i64 %warps to i32
  %rank32 = udiv i32 %chosen32, %warps32
  %rank = zext i32 %rank32 to i64
  %before = mul i64 %rank, %warps
  %number = sub i64 %chosen, %before
  %away = mul i64 %rank, %size
  %block = getelementptr i8, ptr %first, i64 %away
  %wo = mul i64 %number, %stride
  %w0 = getelementptr i8, ptr %block, i64 ${BLOCK.WARPS}
  %warp = getelementptr i8, ptr %w0, i64 %wo
  %st.p = getelementptr i8, ptr %warp, i64 ${WARP.STATUS}
  %status = load i32, ptr %st.p
  %can = icmp eq i32 %status, ${Status.READY}
  br i1 %can, label %start.warp, label %next
start.warp:
  %gen.p = getelementptr i8, ptr %warp, i64 ${WARP.GENERAL}
  %gen = load i32, ptr %gen.p
  %slow = icmp ne i32 %gen, 0
  %code = select i1 %slow, ptr %general, ptr %fast
  %missing = icmp eq ptr %code, null
  br i1 %missing, label %need, label %call
call:
  %gust = call i32 @tw_gust(ptr %ctx, ptr %worker, ptr %first)
  %blown = icmp ne i32 %gust, 0
  br i1 %blown, label %ended, label %go
go:
  %answer = call i32 %code(ptr %ctx, ptr %worker, ptr %block, ptr %warp)
  switch i32 %answer, label %ended [ i32 ${Answer.EXIT}, label %exit i32 ${Answer.WAIT}, label %wait i32 ${Answer.YIELD}, label %yield i32 ${Answer.DEOPT}, label %deopt ]
exit:
  call void @tw_depart(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 -1)
  store i32 ${Status.DONE}, ptr %st.p
  %done.p = getelementptr i8, ptr %block, i64 ${BLOCK.DONE}
  %done = load i32, ptr %done.p
  %done2 = add i32 %done, 1
  store i32 %done2, ptr %done.p
  %done.wide = zext i32 %done2 to i64
  %finished = icmp eq i64 %done.wide, %warps
  br i1 %finished, label %gone, label %next
gone:
  %left = load i32, ptr %left.p
  %left2 = add i32 %left, 1
  store i32 %left2, ptr %left.p
  %left.wide = zext i32 %left2 to i64
  %empty = icmp eq i64 %left.wide, %blocks
  br i1 %empty, label %complete, label %next
wait:
  %bl.p = getelementptr i8, ptr %warp, i64 ${WARP.BLOCKED}
  %blocked = load i32, ptr %bl.p
  %waits = icmp ne i32 %blocked, 0
  %new = select i1 %waits, i32 ${Status.WAITING}, i32 ${Status.READY}
  store i32 %new, ptr %st.p
  br label %next
yield:
  br label %next
deopt:
  store i32 1, ptr %gen.p
  br label %start.warp
next:
  %did = phi i1 [ false, %found ], [ true, %exit ], [ true, %gone ], [ true, %wait ], [ false, %yield ]
  %was = phi i1 [ false, %found ], [ false, %exit ], [ false, %gone ], [ false, %wait ], [ true, %yield ]
  %progress2 = or i1 %progress, %did
  %ready2 = or i1 %ready, %was
  %i2 = add i64 %i, 1
  br label %each
over:
  %freed = call i32 @tw_free_waiting(ptr %ctx, ptr %worker, ptr %first)
  %broken = icmp ne i32 %freed, 0
  br i1 %broken, label %ended, label %tally
tally:
  ; A cluster of which some warp may wait for other clusters has its turns counted: they have to run, too.
  %asked = zext i1 %ready to i64
  %turns = load i64, ptr %turns.p
  %turns2 = add i64 %turns, %asked
  store i64 %turns2, ptr %turns.p
  %tired = icmp ugt i64 %turns2, ${TURNS}
  %advance = zext i1 %progress to i64
  %counted = load i64, ptr %count.p
  %more.counted = add i64 %counted, %advance
  store i64 %more.counted, ptr %count.p
  %count = call i64 @tw_counted(ptr %ctx, ptr %first)
  %seen = load i64, ptr %seen.p
  store i64 %count, ptr %seen.p
  %moved = icmp ne i64 %count, %seen
  br i1 %moved, label %moving, label %still
moving:
  br i1 %tired, label %weary, label %onward
weary:
  %some = call i32 @tw_idle(ptr %ctx, ptr %worker, ptr %first)
  %torn = icmp eq i32 %some, 2
  br i1 %torn, label %ended, label %stuck
onward:
  ; Where clusters take turns, every other round is the last for now.
  %drawn = lshr i64 %s2, 60
  %tails = icmp ult i64 %drawn, 8
  %pause = and i1 %tails, %pauses
  br i1 %pause, label %paused, label %round
still:
  ; Nobody gets on. Something in flight may be what they wait for.
  %landed = call i32 @tw_idle(ptr %ctx, ptr %worker, ptr %first)
  switch i32 %landed, label %ended [ i32 1, label %onward i32 0, label %nothing ]
nothing:
  br i1 %ready, label %stuck, label %deadlock
complete:
  %rest = call i32 @tw_land(ptr %ctx, ptr %worker, ptr %first)
  %fine = icmp eq i32 %rest, 0
  br i1 %fine, label %whole, label %ended
whole:
  ret i32 ${Outcome.FINISHED}
stuck:
  store i64 0, ptr %turns.p
  ret i32 ${Outcome.STUCK}
paused:
  ret i32 ${Outcome.PAUSED}
need:
  ret i32 ${Outcome.GENERAL}
deadlock:
  ret i32 ${Outcome.DEADLOCK}
ended:
  ret i32 ${Outcome.ENDED}
}

; The number of the cluster to start next, or -1 if all were started. In a sequence each is marked when it is
; started, so that those that are left can be started by number at any time.
define i64 @tw_next(ptr %ctx) noinline {
entry:
  %next.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.NEXT}
  %lowest.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.LOWEST}
  %total.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.TOTAL}
  %total = load i64, ptr %total.p
  %sequence.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.SEQUENCE}
  %sequence = load ptr, ptr %sequence.p
  %started.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.STARTED}
  %started = load ptr, ptr %started.p
  %by.number.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.BY_NUMBER}
  %plain = icmp eq ptr %sequence, null
  br i1 %plain, label %count, label %choose
count:
  %number = atomicrmw add ptr %next.p, i64 1 monotonic
  %exists = icmp ult i64 %number, %total
  %counted = select i1 %exists, i64 %number, i64 -1
  ret i64 %counted
choose:
  %by.number = load atomic i64, ptr %by.number.p monotonic, align 8
  %ascending = icmp ne i64 %by.number, 0
  %cursor = select i1 %ascending, ptr %lowest.p, ptr %next.p
  %place = atomicrmw add ptr %cursor, i64 1 monotonic
  %inside = icmp ult i64 %place, %total
  br i1 %inside, label %look, label %none
look:
  %entry.p = getelementptr i32, ptr %sequence, i64 %place
  %entry.32 = load i32, ptr %entry.p
  %listed = zext i32 %entry.32 to i64
  %cluster = select i1 %ascending, i64 %place, i64 %listed
  %mark = getelementptr i8, ptr %started, i64 %cluster
  %before = atomicrmw xchg ptr %mark, i8 1 monotonic
  %fresh = icmp eq i8 %before, 0
  br i1 %fresh, label %take, label %choose
take:
  ret i64 %cluster
none:
  ret i64 -1
}

define i32 @tw_work(ptr %ctx, ptr %worker, ptr %block) noinline {
entry:
  %active.p = getelementptr i8, ptr %block, i64 ${BLOCK.ACTIVE}
  %begun.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.BEGUN}
  %stop.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.STOP}
  %done.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.DONE}
  %blocks.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CLUSTER}
  %blocks = load i64, ptr %blocks.p
  br label %loop
loop:
  %stop = load atomic i32, ptr %stop.p acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %ended, label %look
look:
  %active = load i32, ptr %active.p
  %running = icmp ne i32 %active, 0
  br i1 %running, label %run, label %new
new:
  %number = call i64 @tw_next(ptr %ctx)
  %exists = icmp sge i64 %number, 0
  br i1 %exists, label %init, label %finished
init:
  %begun = atomicrmw add ptr %begun.p, i64 1 monotonic
  %chosen.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CHOSEN}
  %chosen = load ptr, ptr %chosen.p
  %all = icmp eq ptr %chosen, null
  br i1 %all, label %begin, label %pick
pick:
  %picked.p = getelementptr i64, ptr %chosen, i64 %number
  %picked = load i64, ptr %picked.p
  br label %begin
begin:
  %which = phi i64 [ %number, %init ], [ %picked, %pick ]
  call void @tw_begin(ptr %ctx, ptr %block, i64 %which)
  br label %run
run:
  %outcome = call i32 @tw_run(ptr %ctx, ptr %worker, ptr %block)
  %complete = icmp eq i32 %outcome, ${Outcome.FINISHED}
  br i1 %complete, label %count, label %pass
count:
  store i32 0, ptr %active.p
  %before = atomicrmw add ptr %done.p, i64 %blocks monotonic
  br label %loop
pass:
  ret i32 %outcome
finished:
  ret i32 ${Outcome.FINISHED}
ended:
  ret i32 ${Outcome.ENDED}
}

; Make a cluster ready to run.
define void @tw_begin(ptr %ctx, ptr %first, i64 %number) noinline {
entry:
  %blocks.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CLUSTER}
  %blocks = load i64, ptr %blocks.p
  %far.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.BLOCK_STRIDE}
  %far = load i64, ptr %far.p
  %th.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.THREADS}
  %threads = load i64, ptr %th.p
  %all = mul i64 %threads, %blocks
  %all32 = trunc i64 %all to i32
  %present.p = getelementptr i8, ptr %first, i64 ${BLOCK.PRESENT}
  store i32 %all32, ptr %present.p
  %arrived.p = getelementptr i8, ptr %first, i64 ${BLOCK.ARRIVED}
  store i32 0, ptr %arrived.p
  %left.p = getelementptr i8, ptr %first, i64 ${BLOCK.LEFT}
  store i32 0, ptr %left.p
  %turns.p = getelementptr i8, ptr %first, i64 ${BLOCK.TURNS}
  store i64 0, ptr %turns.p
  br label %loop
loop:
  %rank = phi i64 [ 0, %entry ], [ %rank2, %loop ]
  %block = phi ptr [ %first, %entry ], [ %block2, %loop ]
  call void @tw_place(ptr %ctx, ptr %block, i64 %number, i64 %rank)
  call void @tw_init(ptr %ctx, ptr %block)
  %block2 = getelementptr i8, ptr %block, i64 %far
  %rank2 = add i64 %rank, 1
  %more = icmp ult i64 %rank2, %blocks
  br i1 %more, label %loop, label %end
end:
  %active.p = getelementptr i8, ptr %first, i64 ${BLOCK.ACTIVE}
  store i32 1, ptr %active.p
  ret void
}

; Say which block of which cluster it is.
define void @tw_place(ptr %ctx, ptr %block, i64 %number, i64 %rank) noinline {
entry:
  %cx.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CLUSTERS_X}
  %cx = load i64, ptr %cx.p
  %cy.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CLUSTERS_Y}
  %cy = load i64, ptr %cy.p
  %column = urem i64 %number, %cx
  %rows = udiv i64 %number, %cx
  %row = urem i64 %rows, %cy
  %layer = udiv i64 %rows, %cy
  %sx.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CLUSTER_X}
  %sx = load i64, ptr %sx.p
  %sy.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CLUSTER_Y}
  %sy = load i64, ptr %sy.p
  %sz.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CLUSTER_Z}
  %sz = load i64, ptr %sz.p
  %is.first = icmp eq i64 %rank, 0
  br i1 %is.first, label %put, label %find
find:
  %fx = urem i64 %rank, %sx
  %r = udiv i64 %rank, %sx
  %fy = urem i64 %r, %sy
  %fz = udiv i64 %r, %sy
  br label %put
put:
  %rx = phi i64 [ 0, %entry ], [ %fx, %find ]
  %ry = phi i64 [ 0, %entry ], [ %fy, %find ]
  %rz = phi i64 [ 0, %entry ], [ %fz, %find ]
  %x0 = mul i64 %column, %sx
  %x = add i64 %x0, %rx
  %y0 = mul i64 %row, %sy
  %y = add i64 %y0, %ry
  %z0 = mul i64 %layer, %sz
  %z = add i64 %z0, %rz
  %x.32 = trunc i64 %x to i32
  %x.to = getelementptr i8, ptr %block, i64 ${BLOCK.X}
  store i32 %x.32, ptr %x.to
  %y.32 = trunc i64 %y to i32
  %y.to = getelementptr i8, ptr %block, i64 ${BLOCK.Y}
  store i32 %y.32, ptr %y.to
  %z.32 = trunc i64 %z to i32
  %z.to = getelementptr i8, ptr %block, i64 ${BLOCK.Z}
  store i32 %z.32, ptr %z.to
  %column.32 = trunc i64 %column to i32
  %column.to = getelementptr i8, ptr %block, i64 ${BLOCK.CLUSTER_X}
  store i32 %column.32, ptr %column.to
  %row.32 = trunc i64 %row to i32
  %row.to = getelementptr i8, ptr %block, i64 ${BLOCK.CLUSTER_Y}
  store i32 %row.32, ptr %row.to
  %layer.32 = trunc i64 %layer to i32
  %layer.to = getelementptr i8, ptr %block, i64 ${BLOCK.CLUSTER_Z}
  store i32 %layer.32, ptr %layer.to
  %rx.32 = trunc i64 %rx to i32
  %rx.to = getelementptr i8, ptr %block, i64 ${BLOCK.RANK_X}
  store i32 %rx.32, ptr %rx.to
  %ry.32 = trunc i64 %ry to i32
  %ry.to = getelementptr i8, ptr %block, i64 ${BLOCK.RANK_Y}
  store i32 %ry.32, ptr %ry.to
  %rz.32 = trunc i64 %rz to i32
  %rz.to = getelementptr i8, ptr %block, i64 ${BLOCK.RANK_Z}
  store i32 %rz.32, ptr %rz.to
  %rank.32 = trunc i64 %rank to i32
  %rank.to = getelementptr i8, ptr %block, i64 ${BLOCK.RANK}
  store i32 %rank.32, ptr %rank.to
  %gx.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.GRID_X}
  %gx = load i64, ptr %gx.p
  %gy.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.GRID_Y}
  %gy = load i64, ptr %gy.p
  %n0 = mul i64 %z, %gy
  %n1 = add i64 %n0, %y
  %n2 = mul i64 %n1, %gx
  %n = add i64 %n2, %x
  %n.to = getelementptr i8, ptr %block, i64 ${BLOCK.NUMBER}
  store i64 %n, ptr %n.to
  ret void
}

; Make the memory of a block what it is before the block runs.
define void @tw_init(ptr %ctx, ptr %block) noinline {
entry:
  %bd = getelementptr i8, ptr %block, i64 ${BLOCK.DONE}
  store i32 0, ptr %bd
  %th.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.THREADS}
  %threads = load i64, ptr %th.p
  %threads32 = trunc i64 %threads to i32
  %bl = getelementptr i8, ptr %block, i64 ${BLOCK.LIVE}
  store i32 %threads32, ptr %bl
  %bars = getelementptr i8, ptr %block, i64 ${BLOCK.BARRIERS}
  call void @llvm.memset.p0.i64(ptr %bars, i8 0, i64 ${BARRIERS_SIZE}, i1 false)
  %sh.p = getelementptr i8, ptr %block, i64 ${BLOCK.SHARED}
  %shared = load ptr, ptr %sh.p
  %sb.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.SHARED_BYTES}
  %sb = load i64, ptr %sb.p
  call void @llvm.memset.p0.i64(ptr %shared, i8 ${POISON}, i64 %sb, i1 false)
  %wp = getelementptr i8, ptr %ctx, i64 ${LAUNCH.WARPS}
  %warps = load i64, ptr %wp
  %sp = getelementptr i8, ptr %ctx, i64 ${LAUNCH.WARP_STRIDE}
  %stride = load i64, ptr %sp
  %lb.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.LOCAL_BYTES}
  %lb = load i64, ptr %lb.p
  %local = mul i64 %lb, 32
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %loop ]
  %wo = mul i64 %i, %stride
  %w0 = getelementptr i8, ptr %block, i64 ${BLOCK.WARPS}
  %warp = getelementptr i8, ptr %w0, i64 %wo
  %resume = getelementptr i8, ptr %warp, i64 ${WARP.RESUME}
  store i32 0, ptr %resume
  %status = getelementptr i8, ptr %warp, i64 ${WARP.STATUS}
  store i32 0, ptr %status
  %blocked = getelementptr i8, ptr %warp, i64 ${WARP.BLOCKED}
  store i32 0, ptr %blocked
  %meeting = getelementptr i8, ptr %warp, i64 ${WARP.MEETING}
  store i32 0, ptr %meeting
  %came = getelementptr i8, ptr %warp, i64 ${WARP.CAME}
  call void @llvm.memset.p0.i64(ptr %came, i8 0, i64 16, i1 false)
  %general = getelementptr i8, ptr %warp, i64 ${WARP.GENERAL}
  store i32 0, ptr %general
  %index = getelementptr i8, ptr %warp, i64 ${WARP.INDEX}
  %i32 = trunc i64 %i to i32
  store i32 %i32, ptr %index
  %awaiting = getelementptr i8, ptr %warp, i64 ${WARP.AWAITING}
  store i32 0, ptr %awaiting
  %groups = getelementptr i8, ptr %warp, i64 ${WARP.COPIES}
  call void @llvm.memset.p0.i64(ptr %groups, i8 0, i64 256, i1 false)
  %products = getelementptr i8, ptr %warp, i64 ${WARP.PRODUCTS}
  call void @llvm.memset.p0.i64(ptr %products, i8 0, i64 64, i1 false)
  %waiting = getelementptr i8, ptr %warp, i64 ${WARP.WAITING}
  call void @llvm.memset.p0.i64(ptr %waiting, i8 0, i64 64, i1 false)
  %first = shl i32 %i32, 5
  %room = sub i32 %threads32, %first
  %partial = icmp ult i32 %room, 32
  %safe = and i32 %room, 31
  %bit = shl i32 1, %safe
  %some = sub i32 %bit, 1
  %mask = select i1 %partial, i32 %some, i32 -1
  %live = getelementptr i8, ptr %warp, i64 ${WARP.LIVE}
  store i32 %mask, ptr %live
  %mem.p = getelementptr i8, ptr %warp, i64 ${WARP.LOCAL}
  %mem = load ptr, ptr %mem.p
  call void @llvm.memset.p0.i64(ptr %mem, i8 ${POISON}, i64 %local, i1 false)
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %warps
  br i1 %more, label %loop, label %end
end:
  call void @tw_check_begin(ptr %ctx, ptr %block)
  ret void
}
