"""LLVM text of the call: operands to record to launches to result."""

from __future__ import annotations

from tilewise.call_stub.argument_text import ARGUMENT_TEXT
from tilewise.call_stub.launch_text import LAUNCH_TEXT, MEMORY_TEXT
from tilewise.call_stub.operand_text import OPERAND_TEXT
from tilewise.call_stub.shared_memory import (
    ARGUMENTS,
    FORM_BITS,
    OPERAND_WORDS,
    PLAIN_WORDS,
    expand_accesses,
)

__all__ = ["RELEASE_GIL", "call_text"]

# A launch waits while the queue of the driver is full, and what it waits for may need the GIL.
RELEASE_GIL = True


def _ranges() -> str:
    """The first byte of each operand, and the one behind its last."""
    lines = []
    for place, address in enumerate(("%a_address", "%b_value", "%c_value")):
        for name in ("first", "end"):
            value = f"%{'abc'[place]}_{name}"
            lines += [
                f"  {value}_at = getelementptr i64, ptr %{name}s, i64 {place}",
                f"  {value}_offset = load i64, ptr {value}_at",
                f"  {value} = add i64 {address}, {value}_offset",
            ]
    return "\n".join(lines)


# Every call that is not known, and every doubt, goes to Python.
_CALL = f"""
define ptr @tw_call(ptr %self, ptr %args, i64 %count, ptr %names) #0 {{
entry:
  %call = alloca %Call, align 64
  %taken = call i1 @take_arguments(ptr %call, ptr %args, i64 %count, ptr %names)
  br i1 %taken, label %serve, label %end
serve:
  %served = call ptr @serve(ptr %call)
  br label %end
end:
  %result = phi ptr [ null, %entry ], [ %served, %serve ]
  call void @drop_held(ptr %call)
  %unserved = icmp eq ptr %result, null
  br i1 %unserved, label %slow, label %done
done:
  ret ptr %result
slow:
  %vectorcall = get State.vectorcall @tw_state
  %python = get State.slow @tw_state
  %answer = tail call ptr %vectorcall(ptr %python, ptr %args, i64 %count, ptr %names)
  ret ptr %answer
}}

; The result, or null where the call has to go to Python; no error is set then.
define internal ptr @serve(ptr %call) #0 {{
entry:
  %stream_at = alloca i64
  %object_at = alloca ptr
  %key = at Call.key %call
  %addresses = at Call.values %call
  %flags = at Call.flags %call
  %objects = at Call.objects %call
  %form = get Call.form %call
  %a = load ptr, ptr %objects
  %b_at = getelementptr ptr, ptr %objects, i64 1
  %b = load ptr, ptr %b_at
  %out_at = getelementptr ptr, ptr %objects, i64 {ARGUMENTS.index("out")}
  %out = load ptr, ptr %out_at
  %has_out = call i1 @is_given(ptr %out)
  %a_type = call ptr @find_type(ptr %a)
  %a_unknown = icmp eq ptr %a_type, null
  br i1 %a_unknown, label %slow, label %partner
partner:
  %b_type = call ptr @find_partner(ptr %a_type, ptr %b)
  %b_unknown = icmp eq ptr %b_type, null
  br i1 %b_unknown, label %slow, label %variable
variable:
  %variables = get TypeEntry.variables %a_type
  %no_variable = icmp eq ptr %variables, null
  br i1 %no_variable, label %grad_a, label %compare_variable
compare_variable:
  %variable_name = get TypeEntry.variable %a_type
  %get_item = get State.get_item @tw_state
  %variable_value = call ptr %get_item(ptr %variables, ptr %variable_name)
  %ordinary_value = get TypeEntry.ordinary %a_type
  %is_ordinary = icmp eq ptr %variable_value, %ordinary_value
  br i1 %is_ordinary, label %grad_a, label %slow
grad_a:
  %a_grad = call i1 @needs_grad(ptr %a_type, ptr %a)
  br i1 %a_grad, label %slow, label %grad_b
grad_b:
  %b_grad = call i1 @needs_grad(ptr %b_type, ptr %b)
  br i1 %b_grad, label %slow, label %has_third
has_third:
  %exchange = get TypeEntry.exchange %a_type
  br i1 %has_out, label %third, label %read
third:
  %out_type = call ptr @find_partner(ptr %a_type, ptr %out)
  %out_unknown = icmp eq ptr %out_type, null
  br i1 %out_unknown, label %slow, label %grad_out
grad_out:
  %out_grad = call i1 @needs_grad(ptr %out_type, ptr %out)
  br i1 %out_grad, label %slow, label %read

read:
  %third_type = phi ptr [ null, %has_third ], [ %out_type, %grad_out ]
{
    "".join(
        f'''  %zero{i} = getelementptr <8 x i64>, ptr %key, i64 {i}
  store <8 x i64> zeroinitializer, ptr %zero{i}, align 64
'''
        for i in range(PLAIN_WORDS // 8)
    )
}  store <4 x i64> zeroinitializer, ptr %addresses, align 64
  %a_read = call i1 @read_operand(ptr %a_type, ptr %a, ptr %key, ptr %addresses, ptr %flags)
  br i1 %a_read, label %read_b, label %slow
read_b:
  %b_words = getelementptr i64, ptr %key, i64 {OPERAND_WORDS}
  %b_address = getelementptr i64, ptr %addresses, i64 1
  %b_read = call i1 @read_operand(ptr %b_type, ptr %b, ptr %b_words, ptr %b_address, ptr %flags)
  br i1 %b_read, label %read_c, label %slow
read_c:
  %c_address = getelementptr i64, ptr %addresses, i64 2
  %c_flags = getelementptr i64, ptr %flags, i64 2
  br i1 %has_out, label %read_out, label %finish_key
read_out:
  %c_words = getelementptr i64, ptr %key, i64 {2 * OPERAND_WORDS}
  %c_read = call i1 @read_operand(ptr %third_type, ptr %out, ptr %c_words, ptr %c_address, ptr %c_flags)
  br i1 %c_read, label %may_write, label %slow
may_write:
  %c_flag = load i64, ptr %c_flags
  %c_read_only = and i64 %c_flag, 1
  %c_writable = icmp eq i64 %c_read_only, 0
  br i1 %c_writable, label %finish_key, label %slow

finish_key:
  %library = get TypeEntry.library %a_type
  %out_one = zext i1 %has_out to i64
  %out_bit = shl i64 %out_one, {FORM_BITS["out"]}
  %form_out = or i64 %form, %out_bit
  %what = or i64 %form_out, %library
  %what_at = getelementptr i64, ptr %key, i64 {3 * OPERAND_WORDS}
  store i64 %what, ptr %what_at
  %is_fused = icmp ne i64 %form, 0
  br i1 %is_fused, label %read_more, label %find
read_more:
  %text = get Call.text %call
  %text_at = getelementptr ptr, ptr %key, i64 {3 * OPERAND_WORDS + 1}
  store ptr %text, ptr %text_at
  %extras_read = call i1 @read_extras(ptr %call, ptr %a_type)
  br i1 %extras_read, label %find, label %slow
find:
  %record = call ptr @find_record(ptr %key, ptr %addresses)
  %unknown = icmp eq ptr %record, null
  br i1 %unknown, label %slow, label %known
known:
  br i1 %is_fused, label %all_overlaps, label %out_overlap
all_overlaps:
  %spoilt = call i1 @is_spoilt(ptr %call, ptr %record, i1 %has_out)
  br i1 %spoilt, label %slow, label %found
out_overlap:
  br i1 %has_out, label %overlap, label %found
overlap:
  %a_address = load i64, ptr %addresses
  %b_value = load i64, ptr %b_address
  %c_value = load i64, ptr %c_address
  %firsts = at Record.firsts %record
  %ends = at Record.ends %record
{_ranges()}
  ; They share memory where each begins before the other ends.
  %c_before_a = icmp slt i64 %c_first, %a_end
  %a_before_c = icmp slt i64 %a_first, %c_end
  %meets_a = and i1 %c_before_a, %a_before_c
  %c_before_b = icmp slt i64 %c_first, %b_end
  %b_before_c = icmp slt i64 %b_first, %c_end
  %meets_b = and i1 %c_before_b, %b_before_c
  %meets = or i1 %meets_a, %meets_b
  br i1 %meets, label %slow, label %found
found:
  ; NOTE: from here to each "leave" the record stays in memory, whatever another thread does to the table.
  %users = get Record.users %record
  %more_users = add i64 %users, 1
  set Record.users %record = %more_users
  store i64 0, ptr %stream_at
  %own = icmp eq ptr %exchange, null
  br i1 %own, label %own_result, label %ask_stream
ask_stream:
  %current_stream = get Exchange.current_stream %exchange
  %device = load i64, ptr %key
  %device_type = trunc i64 %device to i32
  %device_high = lshr i64 %device, 32
  %device_id = trunc i64 %device_high to i32
  %stream_status = call i32 %current_stream(i32 %device_type, i32 %device_id, ptr %stream_at)
  %stream_known = icmp eq i32 %stream_status, 0
  br i1 %stream_known, label %result, label %stream_failed
stream_failed:
  call void @clear_error()
  br label %give_up

result:
  %result_like = get Record.result %record
  %no_result = icmp eq ptr %result_like, null
  br i1 %no_result, label %workspace, label %allocate_result
allocate_result:
  %result_new = call ptr @allocate(ptr %exchange, ptr %result_like, ptr %c_address)
  %result_missing = icmp eq ptr %result_new, null
  br i1 %result_missing, label %give_up, label %check_result
check_result:
  %masks = at Record.masks %record
  %mask_c_at = getelementptr i64, ptr %masks, i64 2
  %mask_c = load i64, ptr %mask_c_at
  %c_start = load i64, ptr %c_address
  %c_off = and i64 %c_start, %mask_c
  %c_aligned = icmp eq i64 %c_off, 0
  br i1 %c_aligned, label %workspace, label %drop_all
workspace:
  %result_managed = phi ptr [ null, %result ], [ %result_new, %check_result ]
  %workspace_like = get Record.workspace %record
  %no_workspace = icmp eq ptr %workspace_like, null
  br i1 %no_workspace, label %ready, label %allocate_workspace
allocate_workspace:
  %workspace_address = getelementptr i64, ptr %addresses, i64 3
  %workspace_new = call ptr @allocate(ptr %exchange, ptr %workspace_like, ptr %workspace_address)
  %workspace_missing = icmp eq ptr %workspace_new, null
  br i1 %workspace_missing, label %drop_all, label %ready

own_result:
  %make_result = get Record.make_result %record
  %makes_none = icmp eq ptr %make_result, null
  br i1 %makes_none, label %ready, label %make
make:
  %call_no_args = get State.call_no_args @tw_state
  %made = call ptr %call_no_args(ptr %make_result)
  %made_none = icmp eq ptr %made, null
  br i1 %made_none, label %make_failed, label %check_made
make_failed:
  call void @clear_error()
  br label %give_up
check_made:
  %made_type = get Object.type %made
  %own_type = get TypeEntry.type %a_type
  %is_own_type = icmp eq ptr %made_type, %own_type
  br i1 %is_own_type, label %read_made, label %drop_made
read_made:
  %made_words = getelementptr i64, ptr %key, i64 {2 * OPERAND_WORDS}
  %made_read = call i1 @read_operand(ptr %a_type, ptr %made, ptr %made_words, ptr %c_address, ptr %c_flags)
  %made_masks = at Record.masks %record
  %made_mask_at = getelementptr i64, ptr %made_masks, i64 2
  %made_mask = load i64, ptr %made_mask_at
  %made_start = load i64, ptr %c_address
  %made_off = and i64 %made_start, %made_mask
  %made_aligned = icmp eq i64 %made_off, 0
  %made_fits = and i1 %made_read, %made_aligned
  %made_flag = load i64, ptr %c_flags
  %made_read_only = and i64 %made_flag, 1
  %made_writable = icmp eq i64 %made_read_only, 0
  %made_good = select i1 %made_fits, i1 %made_writable, i1 false
  br i1 %made_good, label %ready, label %drop_made
drop_made:
  %drop_unread = get State.drop_reference @tw_state
  call void %drop_unread(ptr %made)
  br label %give_up

ready:
  %managed = phi ptr [ null, %own_result ], [ null, %read_made ], [ %result_managed, %workspace ],
    [ %result_managed, %allocate_workspace ]
  %scratch = phi ptr [ null, %own_result ], [ null, %read_made ], [ null, %workspace ],
    [ %workspace_new, %allocate_workspace ]
  %own_new = phi ptr [ null, %own_result ], [ %made, %read_made ], [ null, %workspace ],
    [ null, %allocate_workspace ]
  %stream = load i64, ptr %stream_at
{{LAUNCH}}
  ; The library hands the workspace out again in the order of the stream.
  call void @release(ptr %scratch)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %hand_back, label %drop_all
hand_back:
  %allocated = icmp ne ptr %managed, null
  br i1 %allocated, label %wrap, label %hand_own
wrap:
  store ptr null, ptr %object_at
  %to_object = get Exchange.to_object %exchange
  %wrap_status = call i32 %to_object(ptr %managed, ptr %object_at)
  call void @leave(ptr %record)
  %wrapped = icmp eq i32 %wrap_status, 0
  br i1 %wrapped, label %return_new, label %wrap_failed
wrap_failed:
  ; NOTE: whether the memory was taken over is not known: left alone it is lost, freed twice it is worse.
  call void @clear_error()
  br label %slow
return_new:
  %new = load ptr, ptr %object_at
  %no_object = icmp eq ptr %new, null
  br i1 %no_object, label %wrap_failed, label %return_it
return_it:
  ret ptr %new
hand_own:
  call void @leave(ptr %record)
  %is_own_new = icmp ne ptr %own_new, null
  br i1 %is_own_new, label %return_own, label %return_out
return_own:
  ret ptr %own_new
return_out:
  %add_reference = get State.add_reference @tw_state
  call void %add_reference(ptr %out)
  ret ptr %out

drop_all:
  %dropped = phi ptr [ %result_new, %check_result ], [ %result_managed, %allocate_workspace ], [ %managed, %ready ]
  %dropped_own = phi ptr [ null, %check_result ], [ null, %allocate_workspace ], [ %own_new, %ready ]
  call void @release(ptr %dropped)
  %drop_own = get State.drop_reference @tw_state
  call void %drop_own(ptr %dropped_own)
  br label %give_up
give_up:
  call void @leave(ptr %record)
  br label %slow
slow:
  ret ptr null
}}

define internal void @leave(ptr %record) #1 {{
  %users = get Record.users %record
  %fewer = add i64 %users, -1
  set Record.users %record = %fewer
  ret void
}}

attributes #0 = {{ nounwind "no-builtins" }}
attributes #1 = {{ nounwind alwaysinline "no-builtins" }}
attributes #2 = {{ nounwind noinline "no-builtins" }}
"""

_LAUNCH_HELD = "  %status = call i32 @launch_all(ptr %record, ptr %addresses, i64 %stream)"
_LAUNCH_RELEASED = f"""\
  %save_thread = get State.save_thread @tw_state
  %thread = call ptr %save_thread()
{_LAUNCH_HELD}
  %restore_thread = get State.restore_thread @tw_state
  call void %restore_thread(ptr %thread)"""


def call_text(release_gil: bool = RELEASE_GIL) -> str:
    """The call's LLVM text: ``tw_call``, its ``tw_state`` and the ``tw_hash`` of a key."""
    call = _CALL.replace("{LAUNCH}", _LAUNCH_RELEASED if release_gil else _LAUNCH_HELD)
    return expand_accesses(OPERAND_TEXT + ARGUMENT_TEXT + MEMORY_TEXT + LAUNCH_TEXT + call)
