; Memory: faults, the search for the array that an address lies in, and careful copies lane by lane.

declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.cttz.i32(i32, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define void @tw_fault_at(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 %kind, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 %extent) noinline cold {
  %slot = getelementptr i8, ptr %ctx, i64 ${LAUNCH.FAULT}
  %f = load ptr, ptr %slot
  %won = cmpxchg ptr %f, i32 0, i32 -1 seq_cst seq_cst
  %first = extractvalue { i32, i1 } %won, 1
  br i1 %first, label %fill, label %stop
fill:
  %line.p = getelementptr i8, ptr %f, i64 ${FAULT.LINE}
  store i32 %line, ptr %line.p
  %bx = getelementptr i8, ptr %block, i64 ${BLOCK.X}
  %x = load i32, ptr %bx
  %by = getelementptr i8, ptr %block, i64 ${BLOCK.Y}
  %y = load i32, ptr %by
  %bz = getelementptr i8, ptr %block, i64 ${BLOCK.Z}
  %z = load i32, ptr %bz
  %fx = getelementptr i8, ptr %f, i64 ${FAULT.X}
  store i32 %x, ptr %fx
  %fy = getelementptr i8, ptr %f, i64 ${FAULT.Y}
  store i32 %y, ptr %fy
  %fz = getelementptr i8, ptr %f, i64 ${FAULT.Z}
  store i32 %z, ptr %fz
  %wi = getelementptr i8, ptr %warp, i64 ${WARP.INDEX}
  %w = load i32, ptr %wi
  %base = shl i32 %w, 5
  %thread = add i32 %base, %lane
  %ft = getelementptr i8, ptr %f, i64 ${FAULT.THREAD}
  store i32 %thread, ptr %ft
  %fa = getelementptr i8, ptr %f, i64 ${FAULT.ADDRESS}
  store i64 %address, ptr %fa
  %fs = getelementptr i8, ptr %f, i64 ${FAULT.SIZE}
  store i32 %size, ptr %fs
  %fp = getelementptr i8, ptr %f, i64 ${FAULT.SPACE}
  store i32 %space, ptr %fp
  %fw = getelementptr i8, ptr %f, i64 ${FAULT.WRITE}
  store i32 %write, ptr %fw
  %fe = getelementptr i8, ptr %f, i64 ${FAULT.EXTENT}
  store i64 %extent, ptr %fe
  store atomic i32 %kind, ptr %f release, align 4
  br label %stop
stop:
  %flag = getelementptr i8, ptr %ctx, i64 ${LAUNCH.STOP}
  store atomic i32 1, ptr %flag release, align 4
  ret void
}

define void @tw_fault(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 %kind, i32 %line, i32 %mask) noinline cold {
  %lane = call i32 @llvm.cttz.i32(i32 %mask, i1 false)
  %safe = and i32 %lane, 31
  call void @tw_fault_at(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 %kind, i32 %line, i32 %safe, i64 0, i32 0, i32 0, i32 0, i64 0)
  ret void
}

define i1 @tw_find(ptr %ctx, i64 %address, i64 %size, ptr %hint) noinline {
entry:
  %rp = getelementptr i8, ptr %ctx, i64 ${LAUNCH.RANGES}
  %ranges = load ptr, ptr %rp
  %np = getelementptr i8, ptr %ctx, i64 ${LAUNCH.RANGE_COUNT}
  %n = load i64, ptr %np
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
}

define ptr @tw_resolve(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i64 %address, i32 %size, i32 %space, i32 %lane, i32 %line, i32 %write) noinline {
  %found = alloca ptr
  %wide = zext i32 %size to i64
  %less = sub i64 %wide, 1
  %odd = and i64 %address, %less
  %writes = icmp ne i32 %write, 0
  %aligned = icmp eq i64 %odd, 0
  br i1 %aligned, label %which, label %crooked
crooked:
  call void @tw_fault_at(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.MISALIGNED}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 0)
  ret ptr null
readonly:
  call void @tw_fault_at(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.READ_ONLY}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 0)
  ret ptr null
which:
  switch i32 %space, label %try.shared [ i32 ${Space.GLOBAL}, label %global i32 ${Space.SHARED}, label %cluster i32 ${Space.OWN}, label %shared i32 ${Space.LOCAL}, label %local i32 ${Space.CONST}, label %const i32 ${Space.PARAM}, label %param ]

try.shared:
  %off.shared = sub i64 %address, ${GENERIC_SHARED}
  %is.shared = icmp ult i64 %off.shared, ${WINDOW}
  br i1 %is.shared, label %go.shared, label %try.local
go.shared:
  %p.shared = call ptr @tw_resolve(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i64 %off.shared, i32 %size, i32 ${Space.SHARED}, i32 %lane, i32 %line, i32 %write)
  ret ptr %p.shared

try.local:
  %off.local = sub i64 %address, ${GENERIC_LOCAL}
  %is.local = icmp ult i64 %off.local, ${WINDOW}
  br i1 %is.local, label %go.local, label %try.const
go.local:
  %p.local = call ptr @tw_resolve(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i64 %off.local, i32 %size, i32 ${Space.LOCAL}, i32 %lane, i32 %line, i32 %write)
  ret ptr %p.local

try.const:
  %off.const = sub i64 %address, ${GENERIC_CONST}
  %is.const = icmp ult i64 %off.const, ${WINDOW}
  br i1 %is.const, label %go.const, label %try.param
go.const:
  %p.const = call ptr @tw_resolve(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i64 %off.const, i32 %size, i32 ${Space.CONST}, i32 %lane, i32 %line, i32 %write)
  ret ptr %p.const

try.param:
  %off.param = sub i64 %address, ${GENERIC_PARAM}
  %is.param = icmp ult i64 %off.param, ${WINDOW}
  br i1 %is.param, label %go.param, label %global
go.param:
  %p.param = call ptr @tw_resolve(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i64 %off.param, i32 %size, i32 ${Space.PARAM}, i32 %lane, i32 %line, i32 %write)
  ret ptr %p.param

global:
  %known = call i1 @tw_find(ptr %ctx, i64 %address, i64 %wide, ptr %worker)
  br i1 %known, label %ok.global, label %out.global
out.global:
  %pass.global = call ptr @tw_pass_or_fault(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.OUT_OF_BOUNDS}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 ${Space.GLOBAL}, i32 %write, i64 0)
  ret ptr %pass.global
ok.global:
  %p = inttoptr i64 %address to ptr
  ret ptr %p

cluster:
  %plain = icmp ult i64 %address, ${RANKED}
  br i1 %plain, label %in.shared, label %ranked
ranked:
  %wrong = call i32 @tw_cluster_place(ptr %ctx, ptr %block, i64 %address, ptr %found)
  %there = icmp eq i32 %wrong, 0
  br i1 %there, label %other, label %nowhere
nowhere:
  %pass.nowhere = call ptr @tw_pass_or_fault(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 %wrong, i32 %line, i32 %lane, i64 %address, i32 %size, i32 ${Space.SHARED}, i32 %write, i64 0)
  ret ptr %pass.nowhere
other:
  %owner = load ptr, ptr %found
  %offset = and i64 %address, ${OFFSETS}
  %other.bytes.p = getelementptr i8, ptr %ctx, i64 ${LAUNCH.SHARED_BYTES}
  %other.bytes = load i64, ptr %other.bytes.p
  %other.end = add i64 %offset, %wide
  %beyond = icmp ugt i64 %other.end, %other.bytes
  br i1 %beyond, label %out.other, label %ok.other
out.other:
  %pass.other = call ptr @tw_pass_or_fault(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.OUT_OF_BOUNDS}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 ${Space.SHARED}, i32 %write, i64 %other.bytes)
  ret ptr %pass.other
ok.other:
  %other.base.p = getelementptr i8, ptr %owner, i64 ${BLOCK.SHARED}
  %other.base = load ptr, ptr %other.base.p
  %other.place = getelementptr i8, ptr %other.base, i64 %offset
  ret ptr %other.place

shared:
  br label %in.shared
in.shared:
  %bytes.p.shared = getelementptr i8, ptr %ctx, i64 ${LAUNCH.SHARED_BYTES}
  %bytes.shared = load i64, ptr %bytes.p.shared
  %end.shared = add i64 %address, %wide
  %over.shared = icmp ugt i64 %end.shared, %bytes.shared
  %wrap.shared = icmp ult i64 %end.shared, %address
  %bad.shared = or i1 %over.shared, %wrap.shared
  br i1 %bad.shared, label %out.shared, label %ok.shared
out.shared:
  %pass.shared = call ptr @tw_pass_or_fault(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.OUT_OF_BOUNDS}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 %bytes.shared)
  ret ptr %pass.shared
ok.shared:
  %base.p.shared = getelementptr i8, ptr %block, i64 ${BLOCK.SHARED}
  %base.shared = load ptr, ptr %base.p.shared
  %q.shared = getelementptr i8, ptr %base.shared, i64 %address
  ret ptr %q.shared

local:
  br label %in.local
in.local:
  %bytes.p.local = getelementptr i8, ptr %ctx, i64 ${LAUNCH.LOCAL_BYTES}
  %bytes.local = load i64, ptr %bytes.p.local
  %end.local = add i64 %address, %wide
  %over.local = icmp ugt i64 %end.local, %bytes.local
  %wrap.local = icmp ult i64 %end.local, %address
  %bad.local = or i1 %over.local, %wrap.local
  br i1 %bad.local, label %out.local, label %ok.local
out.local:
  call void @tw_fault_at(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.OUT_OF_BOUNDS}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 %bytes.local)
  ret ptr null
ok.local:
  %base.p.local = getelementptr i8, ptr %warp, i64 ${WARP.LOCAL}
  %base.local = load ptr, ptr %base.p.local
  %lane.wide = zext i32 %lane to i64
  %row = mul i64 %lane.wide, %bytes.local
  %at.local = add i64 %row, %address
  %q.local = getelementptr i8, ptr %base.local, i64 %at.local
  ret ptr %q.local

const:
  br i1 %writes, label %readonly, label %in.const
in.const:
  %bytes.p.const = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CONST_BYTES}
  %bytes.const = load i64, ptr %bytes.p.const
  %end.const = add i64 %address, %wide
  %over.const = icmp ugt i64 %end.const, %bytes.const
  %wrap.const = icmp ult i64 %end.const, %address
  %bad.const = or i1 %over.const, %wrap.const
  br i1 %bad.const, label %out.const, label %ok.const
out.const:
  call void @tw_fault_at(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.OUT_OF_BOUNDS}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 %bytes.const)
  ret ptr null
ok.const:
  %base.p.const = getelementptr i8, ptr %ctx, i64 ${LAUNCH.CONST}
  %base.const = load ptr, ptr %base.p.const
  %q.const = getelementptr i8, ptr %base.const, i64 %address
  ret ptr %q.const

param:
  br i1 %writes, label %readonly, label %in.param
in.param:
  %bytes.p.param = getelementptr i8, ptr %ctx, i64 ${LAUNCH.PARAM_BYTES}
  %bytes.param = load i64, ptr %bytes.p.param
  %end.param = add i64 %address, %wide
  %over.param = icmp ugt i64 %end.param, %bytes.param
  %wrap.param = icmp ult i64 %end.param, %address
  %bad.param = or i1 %over.param, %wrap.param
  br i1 %bad.param, label %out.param, label %ok.param
out.param:
  call void @tw_fault_at(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.OUT_OF_BOUNDS}, i32 %line, i32 %lane, i64 %address, i32 %size, i32 %space, i32 %write, i64 %bytes.param)
  ret ptr null
ok.param:
  %base.p.param = getelementptr i8, ptr %ctx, i64 ${LAUNCH.PARAMS}
  %base.param = load ptr, ptr %base.p.param
  %q.param = getelementptr i8, ptr %base.param, i64 %address
  ret ptr %q.param
}

define i32 @tw_load(ptr %ctx, ptr %worker, ptr %block, ptr %warp, ptr %addresses, i32 %mask, i32 %size, i32 %space, i32 %line, ptr %data) noinline {
entry:
  %wide = zext i32 %size to i64
  %odd.bits = sub i64 %wide, 1
  %window = call { ptr, i64, i64 } @tw_near(ptr %ctx, ptr %block, ptr %addresses, i32 %mask, i64 %wide, i32 %space)
  %base = extractvalue { ptr, i64, i64 } %window, 0
  %start.window = extractvalue { ptr, i64, i64 } %window, 1
  %limit = extractvalue { ptr, i64, i64 } %window, 2
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
  %away = sub i64 %address, %start.window
  %inside = icmp ult i64 %away, %limit
  %low = and i64 %away, %odd.bits
  %even = icmp eq i64 %low, 0
  %plain = and i1 %inside, %even
  %quick = getelementptr i8, ptr %base, i64 %away
  br i1 %plain, label %copy, label %search
search:
  %found = call ptr @tw_resolve(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i64 %address, i32 %size, i32 %space, i32 %lane, i32 %line, i32 0)
  %bad = icmp eq ptr %found, null
  br i1 %bad, label %failed, label %copy
copy:
  %place = phi ptr [ %quick, %one ], [ %found, %search ]
  %start = mul i64 %at, %wide
  %mine = getelementptr i8, ptr %data, i64 %start
  switch i32 %size, label %any [ i32 4, label %four i32 8, label %eight i32 16, label %sixteen ]
four:
  %v4 = load i32, ptr %place, align 1
  store i32 %v4, ptr %mine, align 1
  br label %done
eight:
  %v8 = load i64, ptr %place, align 1
  store i64 %v8, ptr %mine, align 1
  br label %done
sixteen:
  %v16 = load <4 x i32>, ptr %place, align 1
  store <4 x i32> %v16, ptr %mine, align 1
  br label %done
any:
  call void @llvm.memcpy.p0.p0.i64(ptr %mine, ptr %place, i64 %wide, i1 false)
  br label %done
done:
  br label %loop
end:
  ret i32 0
failed:
  ret i32 1
}

define i32 @tw_store(ptr %ctx, ptr %worker, ptr %block, ptr %warp, ptr %addresses, i32 %mask, i32 %size, i32 %space, i32 %line, ptr %data) noinline {
entry:
  %wide = zext i32 %size to i64
  %odd.bits = sub i64 %wide, 1
  %window = call { ptr, i64, i64 } @tw_near(ptr %ctx, ptr %block, ptr %addresses, i32 %mask, i64 %wide, i32 %space)
  %base = extractvalue { ptr, i64, i64 } %window, 0
  %start.window = extractvalue { ptr, i64, i64 } %window, 1
  %limit = extractvalue { ptr, i64, i64 } %window, 2
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
  %away = sub i64 %address, %start.window
  %inside = icmp ult i64 %away, %limit
  %low = and i64 %away, %odd.bits
  %even = icmp eq i64 %low, 0
  %plain = and i1 %inside, %even
  %quick = getelementptr i8, ptr %base, i64 %away
  br i1 %plain, label %copy, label %search
search:
  %found = call ptr @tw_resolve(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i64 %address, i32 %size, i32 %space, i32 %lane, i32 %line, i32 1)
  %bad = icmp eq ptr %found, null
  br i1 %bad, label %failed, label %copy
copy:
  %place = phi ptr [ %quick, %one ], [ %found, %search ]
  %start = mul i64 %at, %wide
  %mine = getelementptr i8, ptr %data, i64 %start
  switch i32 %size, label %any [ i32 4, label %four i32 8, label %eight i32 16, label %sixteen ]
four:
  %v4 = load i32, ptr %mine, align 1
  store i32 %v4, ptr %place, align 1
  br label %done
eight:
  %v8 = load i64, ptr %mine, align 1
  store i64 %v8, ptr %place, align 1
  br label %done
sixteen:
  %v16 = load <4 x i32>, ptr %mine, align 1
  store <4 x i32> %v16, ptr %place, align 1
  br label %done
any:
  call void @llvm.memcpy.p0.p0.i64(ptr %place, ptr %mine, i64 %wide, i1 false)
  br label %done
done:
  br label %loop
end:
  ret i32 0
failed:
  ret i32 1
}

define i32 @tw_copy(ptr %ctx, ptr %worker, ptr %block, ptr %warp, ptr %sources, ptr %places, i32 %mask, i32 %size, ptr %reads, i32 %line) noinline {
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
  %pp = getelementptr i64, ptr %places, i64 %at
  %target = load i64, ptr %pp
  %place = call ptr @tw_resolve(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i64 %target, i32 %size, i32 ${Space.OWN}, i32 %lane, i32 %line, i32 1)
  %bad = icmp eq ptr %place, null
  br i1 %bad, label %failed, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %place, i8 0, i64 %wide, i1 false)
  %rp = getelementptr i32, ptr %reads, i64 %at
  %bytes = load i32, ptr %rp
  %nothing = icmp eq i32 %bytes, 0
  br i1 %nothing, label %done, label %read
read:
  %sp = getelementptr i64, ptr %sources, i64 %at
  %source = load i64, ptr %sp
  %less.size = sub i64 %wide, 1
  %odd = and i64 %source, %less.size
  %aligned = icmp eq i64 %odd, 0
  br i1 %aligned, label %find, label %crooked
crooked:
  call void @tw_fault_at(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.MISALIGNED}, i32 %line, i32 %lane, i64 %source, i32 %size, i32 ${Space.GLOBAL}, i32 0, i64 0)
  ret i32 1
find:
  %bytes.wide = zext i32 %bytes to i64
  %known = call i1 @tw_find(ptr %ctx, i64 %source, i64 %bytes.wide, ptr %worker)
  %there = inttoptr i64 %source to ptr
  br i1 %known, label %copy, label %outside
outside:
  %pass = call ptr @tw_pass_or_fault(ptr %ctx, ptr %worker, ptr %block, ptr %warp, i32 ${FaultKind.OUT_OF_BOUNDS}, i32 %line, i32 %lane, i64 %source, i32 %bytes, i32 ${Space.GLOBAL}, i32 0, i64 0)
  %ended = icmp eq ptr %pass, null
  br i1 %ended, label %failed, label %copy
copy:
  %from = phi ptr [ %there, %find ], [ %pass, %outside ]
  call void @llvm.memcpy.p0.p0.i64(ptr %place, ptr %from, i64 %bytes.wide, i1 false)
  br label %done
done:
  br label %loop
end:
  ret i32 0
failed:
  ret i32 1
}
