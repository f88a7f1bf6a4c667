"""LLVM text that reads the operands of a call and finds the record of it."""

from __future__ import annotations

from tilewise.call_stub.shared_memory import (
    FIRST_EXTRA,
    FORM_BITS,
    KEY_WORDS,
    MAX_EXTRAS,
    MAX_GIVEN,
    MAX_NDIM,
    OPERAND_WORDS,
    PLAIN_WORDS,
    PROBES,
    TABLE_SLOTS,
)

__all__ = ["OPERAND_TEXT"]


def _weights() -> str:
    """Odd random factors, one a word of the key: the hash is a sum of products."""
    value, weights = 0, []
    for _ in range(KEY_WORDS):
        value = (value + 0x9E3779B97F4A7C15) % 2**64
        mixed = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        weights.append(f"i64 {(mixed ^ (mixed >> 31)) | 1}")
    return ", ".join(weights)


_HEAD = f"""
@tw_state = global %State zeroinitializer, align 64
@weights = private constant [{KEY_WORDS} x i64] [{_weights()}], align 64

declare i64 @llvm.vector.reduce.or.v8i64(<8 x i64>)
declare i64 @llvm.vector.reduce.or.v{MAX_EXTRAS}i64(<{MAX_EXTRAS} x i64>)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @sum_products(ptr %key, i64 %from, i64 %to) #1 {{
entry:
  br label %next
next:
  %i = phi i64 [ %from, %entry ], [ %after, %next ]
  %sum = phi i64 [ 0, %entry ], [ %more, %next ]
  %word_at = getelementptr i64, ptr %key, i64 %i
  %word = load i64, ptr %word_at
  %weight_at = getelementptr i64, ptr @weights, i64 %i
  %weight = load i64, ptr %weight_at
  %product = mul i64 %word, %weight
  %more = add i64 %sum, %product
  %after = add i64 %i, 1
  %done = icmp eq i64 %after, %to
  br i1 %done, label %end, label %next
end:
  ret i64 %more
}}

define internal i1 @is_plain(ptr %key) #1 {{
  %what_at = getelementptr i64, ptr %key, i64 {3 * OPERAND_WORDS}
  %what = load i64, ptr %what_at
  %bit = and i64 %what, {1 << FORM_BITS["not_plain"]}
  %plain = icmp eq i64 %bit, 0
  ret i1 %plain
}}

define i64 @tw_hash(ptr %key) #0 {{
entry:
  %first = call i64 @sum_products(ptr %key, i64 0, i64 {PLAIN_WORDS})
  %plain = call i1 @is_plain(ptr %key)
  br i1 %plain, label %end, label %more
more:
  %rest = call i64 @sum_products(ptr %key, i64 {PLAIN_WORDS}, i64 {KEY_WORDS})
  %both = add i64 %first, %rest
  ret i64 %both
end:
  ret i64 %first
}}
"""

# Which of the known types an object is of, exactly.
_FIND_TYPE = """
define internal ptr @find_type(ptr %object) #1 {
entry:
  %type = get Object.type %object
  %count = get State.type_count @tw_state
  %types = at State.types @tw_state
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %other ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %unknown
compare:
  %type_entry = getelementptr %TypeEntry, ptr %types, i64 %i
  %known = get TypeEntry.type %type_entry
  %same = icmp eq ptr %known, %type
  br i1 %same, label %found, label %other
other:
  %after = add i64 %i, 1
  br label %next
found:
  ret ptr %type_entry
unknown:
  ret ptr null
}

; The entry of one more operand of a call: of the same library as the first, or null.
define internal ptr @find_partner(ptr %first, ptr %object) #1 {
entry:
  %type = get Object.type %object
  %known = get TypeEntry.type %first
  %same = icmp eq ptr %type, %known
  br i1 %same, label %first_type, label %search
first_type:
  ret ptr %first
search:
  %found = call ptr @find_type(ptr %object)
  %none = icmp eq ptr %found, null
  br i1 %none, label %unknown, label %compare
compare:
  %library = get TypeEntry.library %found
  %wanted = get TypeEntry.library %first
  %mate = icmp eq i64 %library, %wanted
  br i1 %mate, label %mated, label %unknown
mated:
  ret ptr %found
unknown:
  ret ptr null
}

; Whether autograd has to see this operand.
define internal i1 @needs_grad(ptr %type_entry, ptr %object) #1 {
entry:
  %get_grad = get TypeEntry.get_grad %type_entry
  %unasked = icmp eq ptr %get_grad, null
  br i1 %unasked, label %free, label %ask
ask:
  %closure = get TypeEntry.grad_closure %type_entry
  %wanted = call ptr %get_grad(ptr %object, ptr %closure)
  %wanted_failed = icmp eq ptr %wanted, null
  br i1 %wanted_failed, label %failed, label %answered
answered:
  %drop = get State.drop_reference @tw_state
  call void %drop(ptr %wanted)
  %false = get State.false @tw_state
  %unwanted = icmp eq ptr %wanted, %false
  br i1 %unwanted, label %free, label %ask_mode
ask_mode:
  %grad_enabled = get TypeEntry.grad_enabled %type_entry
  %no_mode = icmp eq ptr %grad_enabled, null
  br i1 %no_mode, label %needed, label %call_mode
call_mode:
  %vectorcall = get State.vectorcall @tw_state
  %mode = call ptr %vectorcall(ptr %grad_enabled, ptr null, i64 0, ptr null)
  %mode_failed = icmp eq ptr %mode, null
  br i1 %mode_failed, label %failed, label %mode_known
mode_known:
  call void %drop(ptr %mode)
  %off = icmp eq ptr %mode, %false
  br i1 %off, label %free, label %needed
failed:
  call void @clear_error()
  br label %needed
needed:
  ret i1 true
free:
  ret i1 false
}

define internal void @clear_error() #2 {
  %clear = get State.clear_error @tw_state
  call void %clear()
  ret void
}
"""

# Fill ten words of the key, the address and the flags; false where the object cannot be described.
_READ = f"""
define internal i1 @read_operand(ptr %type_entry, ptr %object, ptr %words, ptr %address, ptr %flags_at) #1 {{
entry:
  %tensor = alloca %Tensor, align 16
  %exchange = get TypeEntry.exchange %type_entry
  %own = icmp eq ptr %exchange, null
  br i1 %own, label %own_array, label %foreign

foreign:
  %to_tensor = get Exchange.to_tensor %exchange
  %status = call i32 %to_tensor(ptr %object, ptr %tensor)
  %described = icmp eq i32 %status, 0
  br i1 %described, label %foreign_read, label %failed
foreign_read:
  %foreign_data = get Tensor.data %tensor
  %byte_offset = get Tensor.byte_offset %tensor
  %foreign_address = add i64 %foreign_data, %byte_offset
  %foreign_device = get Tensor.device %tensor
  %foreign_layout = get Tensor.layout %tensor
  %foreign_shape = get Tensor.shape %tensor
  %foreign_strides = get Tensor.strides %tensor
  br label %check

own_array:
  %entered = get TypeEntry.streams_entered %type_entry
  %streams = load i64, ptr %entered
  %default_stream = icmp eq i64 %streams, 0
  br i1 %default_stream, label %own_slot, label %no
own_slot:
  %slot = get TypeEntry.slot %type_entry
  %slot_at = getelementptr i8, ptr %object, i64 %slot
  %value = load ptr, ptr %slot_at
  %unset = icmp eq ptr %value, null
  br i1 %unset, label %no, label %own_type
own_type:
  %type = get Object.type %value
  %bytes_type = get State.bytes_type @tw_state
  %is_bytes = icmp eq ptr %type, %bytes_type
  br i1 %is_bytes, label %own_size, label %no
own_size:
  %size = get VarObject.size %value
  %whole = icmp sge i64 %size, 56
  br i1 %whole, label %own_read, label %no
own_read:
  %start = get State.bytes_start @tw_state
  %array = getelementptr i8, ptr %value, i64 %start
  %own_layout = get OwnArray.layout %array
  %own_ndim = and i64 %own_layout, 4294967295
  %axes_bytes = shl i64 %own_ndim, 4
  %own_bytes = add i64 %axes_bytes, 40
  %fits = icmp eq i64 %own_bytes, %size
  br i1 %fits, label %own_state, label %no
own_state:
  %state_at = get OwnArray.state %array
  %stateless = icmp eq ptr %state_at, null
  br i1 %stateless, label %no, label %own_live
own_live:
  %state = load i64, ptr %state_at
  %live = icmp eq i64 %state, 1
  %own_flags = get OwnArray.flags %array
  br i1 %live, label %own_axes, label %no
own_axes:
  %own_data = get OwnArray.data %array
  %own_device = get OwnArray.device %array
  %own_shape = getelementptr i8, ptr %array, i64 40
  %shape_bytes = shl i64 %own_ndim, 3
  %own_strides = getelementptr i8, ptr %own_shape, i64 %shape_bytes
  br label %check

check:
  %pointer = phi i64 [ %foreign_address, %foreign_read ], [ %own_data, %own_axes ]
  %device = phi i64 [ %foreign_device, %foreign_read ], [ %own_device, %own_axes ]
  %layout = phi i64 [ %foreign_layout, %foreign_read ], [ %own_layout, %own_axes ]
  %flags = phi i64 [ 0, %foreign_read ], [ %own_flags, %own_axes ]
  %shape = phi ptr [ %foreign_shape, %foreign_read ], [ %own_shape, %own_axes ]
  %strides = phi ptr [ %foreign_strides, %foreign_read ], [ %own_strides, %own_axes ]
  store i64 %pointer, ptr %address
  store i64 %flags, ptr %flags_at
  store i64 %device, ptr %words
  %layout_at = getelementptr i64, ptr %words, i64 1
  store i64 %layout, ptr %layout_at
  %ndim = and i64 %layout, 4294967295
  %axes = add i64 %ndim, -1
  %few = icmp ult i64 %axes, {MAX_NDIM}
  br i1 %few, label %copy, label %no
copy:
  %shape_words = getelementptr i64, ptr %words, i64 2
  %stride_words = getelementptr i64, ptr %words, i64 {2 + MAX_NDIM}
  %compact = icmp eq ptr %strides, null
  br i1 %compact, label %compact_axis, label %axis
axis:
  %i = phi i64 [ 0, %copy ], [ %after, %axis ]
  %extent_at = getelementptr i64, ptr %shape, i64 %i
  %extent = load i64, ptr %extent_at
  %shape_word = getelementptr i64, ptr %shape_words, i64 %i
  store i64 %extent, ptr %shape_word
  %stride_at = getelementptr i64, ptr %strides, i64 %i
  %stride = load i64, ptr %stride_at
  %stride_word = getelementptr i64, ptr %stride_words, i64 %i
  store i64 %stride, ptr %stride_word
  %after = add i64 %i, 1
  %copied = icmp eq i64 %after, %ndim
  br i1 %copied, label %yes, label %axis
compact_axis:
  %j = phi i64 [ %axes, %copy ], [ %before, %compact_axis ]
  %step = phi i64 [ 1, %copy ], [ %next_step, %compact_axis ]
  %length_at = getelementptr i64, ptr %shape, i64 %j
  %length = load i64, ptr %length_at
  %length_word = getelementptr i64, ptr %shape_words, i64 %j
  store i64 %length, ptr %length_word
  %step_word = getelementptr i64, ptr %stride_words, i64 %j
  store i64 %step, ptr %step_word
  %empty = icmp eq i64 %length, 0
  %factor = select i1 %empty, i64 1, i64 %length
  %next_step = mul i64 %step, %factor
  %before = add i64 %j, -1
  %first = icmp eq i64 %j, 0
  br i1 %first, label %yes, label %compact_axis

failed:
  call void @clear_error()
  br label %no
no:
  ret i1 false
yes:
  ret i1 true
}}
"""

# What a call gives beside a, b and out: into the key behind the names, and the addresses behind the workspace's.
_READ_EXTRAS = f"""
define internal i1 @read_extras(ptr %call, ptr %first_type) #2 {{
entry:
  %count = get Call.extra_count %call
  %extras = at Call.extras %call
  %key = at Call.key %call
  %values = at Call.values %call
  %flags = at Call.flags %call
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %read ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %find, label %yes
find:
  %extra_at = getelementptr ptr, ptr %extras, i64 %i
  %extra = load ptr, ptr %extra_at
  %type_entry = call ptr @find_partner(ptr %first_type, ptr %extra)
  %unknown = icmp eq ptr %type_entry, null
  br i1 %unknown, label %no, label %ask
ask:
  %grad = call i1 @needs_grad(ptr %type_entry, ptr %extra)
  br i1 %grad, label %no, label %read
read:
  %begin = mul i64 %i, {OPERAND_WORDS}
  %first_word = add i64 %begin, {PLAIN_WORDS + MAX_GIVEN}
  %words = getelementptr i64, ptr %key, i64 %first_word
  %place = add i64 %i, {FIRST_EXTRA}
  %address = getelementptr i64, ptr %values, i64 %place
  %flag_at = getelementptr i64, ptr %flags, i64 %place
  %good = call i1 @read_operand(ptr %type_entry, ptr %extra, ptr %words, ptr %address, ptr %flag_at)
  %after = add i64 %i, 1
  br i1 %good, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}

; Whether an array that is written is read-only, or shares memory with another one: c, where there is an out, and what
; an epilogue keeps. NOTE: an extra that is read may be the out itself, each element being read before it is written;
; in one launch alone, as a second one that fails would have Python read what the first has written.
define internal i1 @is_spoilt(ptr %call, ptr %record, i1 %has_out) #2 {{
entry:
  %extra_count = get Call.extra_count %call
  %count = add i64 %extra_count, {FIRST_EXTRA}
  %key = at Call.key %call
  %values = at Call.values %call
  %flags = at Call.flags %call
  %firsts = at Record.firsts %record
  %ends = at Record.ends %record
  %all_written = get Record.written %record
  %no_out = select i1 %has_out, i64 0, i64 4
  %not_there = or i64 %no_out, 8
  %not_written = xor i64 %not_there, -1
  %written = and i64 %all_written, %not_written
  br label %one
one:
  %i = phi i64 [ 2, %entry ], [ %next_i, %one_done ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %good
look:
  %bit = shl i64 1, %i
  %its_bit = and i64 %written, %bit
  %is_read = icmp eq i64 %its_bit, 0
  br i1 %is_read, label %one_done, label %allowed
allowed:
  %flag_at = getelementptr i64, ptr %flags, i64 %i
  %flag = load i64, ptr %flag_at
  %read_only_bit = and i64 %flag, 1
  %writable = icmp eq i64 %read_only_bit, 0
  br i1 %writable, label %range, label %bad
range:
  %address_at = getelementptr i64, ptr %values, i64 %i
  %address = load i64, ptr %address_at
  %first_at = getelementptr i64, ptr %firsts, i64 %i
  %first_offset = load i64, ptr %first_at
  %first = add i64 %address, %first_offset
  %end_at = getelementptr i64, ptr %ends, i64 %i
  %end_offset = load i64, ptr %end_at
  %end = add i64 %address, %end_offset
  br label %other
other:
  %j = phi i64 [ 0, %range ], [ %next_j, %apart ]
  %more_others = icmp ult i64 %j, %count
  br i1 %more_others, label %see, label %one_done
see:
  %other_bit = shl i64 1, %j
  %other_missing = and i64 %not_there, %other_bit
  %missing = icmp ne i64 %other_missing, 0
  %same_one = icmp eq i64 %i, %j
  %skip = or i1 %missing, %same_one
  br i1 %skip, label %apart, label %compare
compare:
  %other_address_at = getelementptr i64, ptr %values, i64 %j
  %other_address = load i64, ptr %other_address_at
  %other_first_at = getelementptr i64, ptr %firsts, i64 %j
  %other_first_offset = load i64, ptr %other_first_at
  %other_first = add i64 %other_address, %other_first_offset
  %other_end_at = getelementptr i64, ptr %ends, i64 %j
  %other_end_offset = load i64, ptr %other_end_at
  %other_end = add i64 %other_address, %other_end_offset
  %begins_before = icmp slt i64 %first, %other_end
  %ends_behind = icmp slt i64 %other_first, %end
  %meets = and i1 %begins_before, %ends_behind
  br i1 %meets, label %may_be_itself, label %apart
may_be_itself:
  %is_c = icmp eq i64 %i, 2
  %is_extra = icmp uge i64 %j, {FIRST_EXTRA}
  %written_other = and i64 %written, %other_bit
  %only_read = icmp eq i64 %written_other, 0
  %here = icmp eq i64 %address, %other_address
  %launch_count = get Record.launch_count %record
  %one_launch = icmp eq i64 %launch_count, 1
  %c_alone = and i1 %is_c, %one_launch
  %c_and_extra = and i1 %c_alone, %is_extra
  %read_here = and i1 %only_read, %here
  %candidate = and i1 %c_and_extra, %read_here
  br i1 %candidate, label %itself, label %bad
itself:
  %behind = mul i64 %j, {OPERAND_WORDS}
  %other_word = add i64 %behind, {PLAIN_WORDS + MAX_GIVEN - FIRST_EXTRA * OPERAND_WORDS}
  br label %word
word:
  %w = phi i64 [ 0, %itself ], [ %next_w, %same_word ]
  %out_word = add i64 %w, {2 * OPERAND_WORDS}
  %word_at = getelementptr i64, ptr %key, i64 %out_word
  %word_value = load i64, ptr %word_at
  %extra_word = add i64 %other_word, %w
  %extra_at = getelementptr i64, ptr %key, i64 %extra_word
  %extra_value = load i64, ptr %extra_at
  %same = icmp eq i64 %word_value, %extra_value
  br i1 %same, label %same_word, label %bad
same_word:
  %next_w = add i64 %w, 1
  %all_same = icmp eq i64 %next_w, {OPERAND_WORDS}
  br i1 %all_same, label %apart, label %word
apart:
  %next_j = add i64 %j, 1
  br label %other
one_done:
  %next_i = add i64 %i, 1
  br label %one
bad:
  ret i1 true
good:
  ret i1 false
}}
"""


def _compare(first: int, end: int) -> str:
    """The difference of words of the key, in pieces of eight, as ``%difference<first>``: 0 where there is none."""
    lines, all_differ = [], ""
    for i in range(first // 8, end // 8):
        lines += [
            f"  %key{i}_at = getelementptr <8 x i64>, ptr %key, i64 {i}",
            f"  %record{i}_at = getelementptr <8 x i64>, ptr %record, i64 {i}",
            f"  %key{i} = load <8 x i64>, ptr %key{i}_at, align 8",
            f"  %record{i} = load <8 x i64>, ptr %record{i}_at, align 8",
            f"  %differ{i} = xor <8 x i64> %key{i}, %record{i}",
        ]
        if all_differ:
            lines.append(f"  %differ_to{i} = or <8 x i64> {all_differ}, %differ{i}")
        all_differ = f"%differ_to{i}" if all_differ else f"%differ{i}"
    lines.append(f"  %difference{first} = call i64 @llvm.vector.reduce.or.v8i64(<8 x i64> {all_differ})")
    return "\n".join(lines)


# The record of exactly this call whose alignment the addresses have, or null.
_FIND_RECORD = f"""
define internal ptr @find_record(ptr %key, ptr %addresses) #1 {{
entry:
  %hash = call i64 @tw_hash(ptr %key)
  %plain = call i1 @is_plain(ptr %key)
  %home = lshr i64 %hash, {64 - (TABLE_SLOTS - 1).bit_length()}
  %table = at State.table @tw_state
  %a = load i64, ptr %addresses
  %b_at = getelementptr i64, ptr %addresses, i64 1
  %b = load i64, ptr %b_at
  %c_at = getelementptr i64, ptr %addresses, i64 2
  %c = load i64, ptr %c_at
  br label %probe
probe:
  %i = phi i64 [ 0, %entry ], [ %after, %miss ]
  %place = add i64 %home, %i
  %slot = and i64 %place, {TABLE_SLOTS - 1}
  %record_at = getelementptr ptr, ptr %table, i64 %slot
  %record = load ptr, ptr %record_at
  %empty = icmp eq ptr %record, null
  br i1 %empty, label %miss, label %compare_hash
compare_hash:
  %its_hash = get Record.hash %record
  %like = icmp eq i64 %its_hash, %hash
  br i1 %like, label %compare, label %miss
compare:
{_compare(0, PLAIN_WORDS)}
  %masks = at Record.masks %record
  %mask_a = load i64, ptr %masks
  %mask_b_at = getelementptr i64, ptr %masks, i64 1
  %mask_b = load i64, ptr %mask_b_at
  %mask_c_at = getelementptr i64, ptr %masks, i64 2
  %mask_c = load i64, ptr %mask_c_at
  %wants = at Record.wants %record
  %want_a = load i64, ptr %wants
  %want_b_at = getelementptr i64, ptr %wants, i64 1
  %want_b = load i64, ptr %want_b_at
  %want_c_at = getelementptr i64, ptr %wants, i64 2
  %want_c = load i64, ptr %want_c_at
  %low_a = and i64 %a, %mask_a
  %low_b = and i64 %b, %mask_b
  %low_c = and i64 %c, %mask_c
  %off_a = xor i64 %low_a, %want_a
  %off_b = xor i64 %low_b, %want_b
  %off_c = xor i64 %low_c, %want_c
  %off_ab = or i64 %off_a, %off_b
  %off = or i64 %off_ab, %off_c
  %wrong = or i64 %off, %difference0
  %match = icmp eq i64 %wrong, 0
  br i1 %match, label %all_compared, label %miss
all_compared:
  br i1 %plain, label %found, label %compare_rest
compare_rest:
{_compare(PLAIN_WORDS, KEY_WORDS)}
  %extra_masks_at = getelementptr i64, ptr %masks, i64 {FIRST_EXTRA}
  %extra_masks = load <{MAX_EXTRAS} x i64>, ptr %extra_masks_at, align 8
  %extras_at = getelementptr i64, ptr %addresses, i64 {FIRST_EXTRA}
  %extras = load <{MAX_EXTRAS} x i64>, ptr %extras_at, align 8
  %extra_wants_at = getelementptr i64, ptr %wants, i64 {FIRST_EXTRA}
  %extra_wants = load <{MAX_EXTRAS} x i64>, ptr %extra_wants_at, align 8
  %low_extras = and <{MAX_EXTRAS} x i64> %extras, %extra_masks
  %off_extras = xor <{MAX_EXTRAS} x i64> %low_extras, %extra_wants
  %off_extra = call i64 @llvm.vector.reduce.or.v{MAX_EXTRAS}i64(<{MAX_EXTRAS} x i64> %off_extras)
  %wrong_rest = or i64 %off_extra, %difference{PLAIN_WORDS}
  %match_rest = icmp eq i64 %wrong_rest, 0
  br i1 %match_rest, label %found, label %miss
miss:
  %after = add i64 %i, 1
  %done = icmp eq i64 %after, {PROBES}
  br i1 %done, label %unknown, label %probe
found:
  ret ptr %record
unknown:
  ret ptr null
}}
"""

OPERAND_TEXT = _HEAD + _FIND_TYPE + _READ + _READ_EXTRAS + _FIND_RECORD
