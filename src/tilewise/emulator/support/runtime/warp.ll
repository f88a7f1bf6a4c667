; Lanes of a warp that wait for one another.

; Lanes come to a bar.warp.sync; those for which every lane that they name is there go on. It is also
; called without lanes, after some have left the kernel: nobody waits for those.
define void @tw_meet(ptr %warp, i32 %lanes, i32 %line) noinline {
entry:
  %meeting.p = getelementptr i8, ptr %warp, i64 ${WARP.MEETING}
  %blocked.p = getelementptr i8, ptr %warp, i64 ${WARP.BLOCKED}
  %live.p = getelementptr i8, ptr %warp, i64 ${WARP.LIVE}
  %line.p = getelementptr i8, ptr %warp, i64 ${WARP.LINE}
  %named.p = getelementptr i8, ptr %warp, i64 ${WARP.NAMED}
  %had = load i32, ptr %meeting.p
  %live = load i32, ptr %live.p
  %all = or i32 %had, %lanes
  %meeting = and i32 %all, %live
  %some = icmp ne i32 %lanes, 0
  br i1 %some, label %note, label %start
note:
  store i32 %line, ptr %line.p
  br label %start
start:
  %absent = xor i32 %meeting, -1
  %missed = and i32 %live, %absent
  br label %loop
loop:
  %lane = phi i64 [ 0, %start ], [ %lane2, %loop ]
  %stay = phi i32 [ 0, %start ], [ %stay2, %loop ]
  %place = getelementptr i32, ptr %named.p, i64 %lane
  %named = load i32, ptr %place
  %lacks = and i32 %named, %missed
  %waits = icmp ne i32 %lacks, 0
  %small = trunc i64 %lane to i32
  %bit = shl i32 1, %small
  %mine = select i1 %waits, i32 %bit, i32 0
  %stay2 = or i32 %stay, %mine
  %lane2 = add i64 %lane, 1
  %more = icmp ult i64 %lane2, 32
  br i1 %more, label %loop, label %end
end:
  %left = and i32 %meeting, %stay2
  store i32 %left, ptr %meeting.p
  %blocked = load i32, ptr %blocked.p
  %freed0 = xor i32 %left, -1
  %freed = and i32 %all, %freed0
  %kept = xor i32 %freed, -1
  %rest = and i32 %blocked, %kept
  %now = or i32 %rest, %left
  store i32 %now, ptr %blocked.p
  ret void
}
