"""LLVM text of the call: operands to record to launches to result."""

from __future__ import annotations

import ctypes

from tilewise.call_stub.operand_text import OPERAND_TEXT
from tilewise.call_stub.shared_memory import (
    BLOCK_BYTES,
    KEY_WORDS,
    MAX_PARAMETERS,
    OPERAND_WORDS,
    expand_accesses,
    structure,
)

__all__ = ["RELEASE_GIL", "call_text"]

# A launch waits while the queue of the driver is full, and what it waits for may need the GIL.
RELEASE_GIL = True

# Memory of the library's: what holds it, or null.
_MEMORY = """
define internal void @ignore_error(ptr %context, ptr %kind, ptr %message) {
  ret void
}

define internal ptr @allocate(ptr %exchange, ptr %prototype, ptr %address) #2 {
entry:
  %managed_at = alloca ptr
  store ptr null, ptr %managed_at
  %allocate = get Exchange.allocate %exchange
  %status = call i32 %allocate(ptr %prototype, ptr %managed_at, ptr null, ptr @ignore_error)
  %managed = load ptr, ptr %managed_at
  %none = icmp eq ptr %managed, null
  %bad_status = icmp ne i32 %status, 0
  %bad = or i1 %none, %bad_status
  br i1 %bad, label %failed, label %allocated
allocated:
  %tensor = at Managed.tensor %managed
  %data = get Tensor.data %tensor
  %byte_offset = get Tensor.byte_offset %tensor
  %start = add i64 %data, %byte_offset
  store i64 %start, ptr %address
  ret ptr %managed
failed:
  call void @clear_error()
  ret ptr null
}

define internal void @release(ptr %managed) #2 {
entry:
  %none = icmp eq ptr %managed, null
  br i1 %none, label %end, label %held
held:
  %deleter = get Managed.deleter %managed
  %eternal = icmp eq ptr %deleter, null
  br i1 %eternal, label %end, label %delete
delete:
  call void %deleter(ptr %managed)
  br label %end
end:
  ret void
}
"""

# Everything that asks the driver. It reads the record and its own arguments, and no Python object.
_LAUNCH = f"""
define internal i32 @launch_all(ptr %record, ptr %addresses, i64 %stream) #2 {{
entry:
  %block = alloca [{BLOCK_BYTES} x i8], align 64
  %parameters = alloca [{MAX_PARAMETERS} x ptr], align 16
  %config = alloca %Config, align 16
  %current_at = alloca i64
  store i64 0, ptr %current_at
  %get_context = get Record.get_context %record
  %get_status = call i32 %get_context(ptr %current_at)
  %context_known = icmp eq i32 %get_status, 0
  br i1 %context_known, label %compare, label %no_context
no_context:
  ret i32 %get_status
compare:
  %current = load i64, ptr %current_at
  %context = get Record.context %record
  %foreign = icmp ne i64 %current, %context
  br i1 %foreign, label %push, label %begin
push:
  %push_context = get Record.push_context %record
  %push_status = call i32 %push_context(i64 %context)
  %pushed = icmp eq i32 %push_status, 0
  br i1 %pushed, label %begin, label %not_pushed
not_pushed:
  ret i32 %push_status
begin:
  %launch = get Record.launch %record
  %encode_tiled = get Record.encode_tiled %record
  %launches = get Record.launches %record
  %launch_count = get Record.launch_count %record
  br label %one
one:
  %n = phi i64 [ 0, %begin ], [ %next_n, %launched ]
  %it = getelementptr %Launch, ptr %launches, i64 %n
  %template = get Launch.template %it
  %pieces = get Launch.pieces %it
  br label %piece
piece:
  %p = phi i64 [ 0, %one ], [ %next_p, %copy ]
  %more_pieces = icmp ult i64 %p, %pieces
  br i1 %more_pieces, label %copy, label %patching
copy:
  %from = getelementptr <8 x i64>, ptr %template, i64 %p
  %bytes = load <8 x i64>, ptr %from, align 8
  %to = getelementptr <8 x i64>, ptr %block, i64 %p
  store <8 x i64> %bytes, ptr %to, align 64
  %next_p = add i64 %p, 1
  br label %piece

patching:
  %patches = get Launch.patches %it
  %patch_count = get Launch.patch_count %it
  br label %patch
patch:
  %q = phi i64 [ 0, %patching ], [ %next_q, %write ]
  %more_patches = icmp ult i64 %q, %patch_count
  br i1 %more_patches, label %write, label %mapping
write:
  %patch_at = getelementptr %Patch, ptr %patches, i64 %q
  %patch_offset = get Patch.offset %patch_at
  %patch_operand = get Patch.operand %patch_at
  %patch_addend = get Patch.addend %patch_at
  %patch_base_at = getelementptr i64, ptr %addresses, i32 %patch_operand
  %patch_base = load i64, ptr %patch_base_at
  %patch_value = add i64 %patch_base, %patch_addend
  %patch_to = getelementptr i8, ptr %block, i32 %patch_offset
  store i64 %patch_value, ptr %patch_to, align 1
  %next_q = add i64 %q, 1
  br label %patch

mapping:
  %maps = get Launch.maps %it
  %map_count = get Launch.map_count %it
  br label %map
map:
  %m = phi i64 [ 0, %mapping ], [ %next_m, %encode ]
  %more_maps = icmp ult i64 %m, %map_count
  br i1 %more_maps, label %encode, label %naming
encode:
  %map_at = getelementptr %Map, ptr %maps, i64 %m
  %map_offset = get Map.offset %map_at
  %map_operand = get Map.operand %map_at
  %map_addend = get Map.addend %map_at
  %map_base_at = getelementptr i64, ptr %addresses, i32 %map_operand
  %map_base = load i64, ptr %map_base_at
  %map_value = add i64 %map_base, %map_addend
  %map_to = getelementptr i8, ptr %block, i32 %map_offset
  %data_type = get Map.data_type %map_at
  %rank = get Map.rank %map_at
  %sizes = at Map.sizes %map_at
  %strides = at Map.strides %map_at
  %box = at Map.box %map_at
  %steps = at Map.steps %map_at
  %interleave = get Map.interleave %map_at
  %swizzle = get Map.swizzle %map_at
  %promotion = get Map.promotion %map_at
  %fill = get Map.fill %map_at
  %encode_status = call i32 %encode_tiled(ptr %map_to, i32 %data_type, i32 %rank, i64 %map_value, ptr %sizes,
    ptr %strides, ptr %box, ptr %steps, i32 %interleave, i32 %swizzle, i32 %promotion, i32 %fill)
  %next_m = add i64 %m, 1
  %encoded = icmp eq i32 %encode_status, 0
  br i1 %encoded, label %map, label %not_encoded
not_encoded:
  br label %end

naming:
  %offsets = get Launch.offsets %it
  %offset_count = get Launch.offset_count %it
  br label %name
name:
  %o = phi i64 [ 0, %naming ], [ %next_o, %point ]
  %more_names = icmp ult i64 %o, %offset_count
  br i1 %more_names, label %point, label %configure
point:
  %offset_at = getelementptr i32, ptr %offsets, i64 %o
  %offset = load i32, ptr %offset_at
  %parameter = getelementptr i8, ptr %block, i32 %offset
  %parameter_at = getelementptr ptr, ptr %parameters, i64 %o
  store ptr %parameter, ptr %parameter_at
  %next_o = add i64 %o, 1
  br label %name

configure:
  %its_config = at Launch.config %it
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %config, ptr align 8 %its_config, i64 {{CONFIG_BYTES}}, i1 false)
  set Config.stream %config = %stream
  %function = get Launch.function %it
  %launch_status = call i32 %launch(ptr %config, i64 %function, ptr %parameters, ptr null)
  %started = icmp eq i32 %launch_status, 0
  br i1 %started, label %launched, label %end
launched:
  %next_n = add i64 %n, 1
  %more_launches = icmp ult i64 %next_n, %launch_count
  br i1 %more_launches, label %one, label %end

end:
  %status = phi i32 [ %encode_status, %not_encoded ], [ %launch_status, %configure ], [ 0, %launched ]
  br i1 %foreign, label %pop, label %done
pop:
  %pop_context = get Record.pop_context %record
  %popped = call i32 %pop_context(ptr %current_at)
  br label %done
done:
  ret i32 %status
}}
"""


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


# matmul(a, b) and matmul(a, b, out=c); everything else, and every doubt, goes to Python.
_CALL = f"""
define ptr @tw_call(ptr %self, ptr %args, i64 %count, ptr %names) #0 {{
entry:
  %key = alloca [{KEY_WORDS} x i64], align 64
  %addresses = alloca [4 x i64], align 32
  %stream_at = alloca i64
  %object_at = alloca ptr
  %two = icmp eq i64 %count, 2
  br i1 %two, label %keywords, label %slow
keywords:
  %none = get State.none @tw_state
  %bare = icmp eq ptr %names, null
  br i1 %bare, label %operands, label %count_names
count_names:
  %name_count = get VarObject.size %names
  %one_name = icmp eq i64 %name_count, 1
  br i1 %one_name, label %compare_name, label %slow
compare_name:
  %tuple_start = get State.tuple_start @tw_state
  %name_at = getelementptr i8, ptr %names, i64 %tuple_start
  %name = load ptr, ptr %name_at
  %out_name = get State.out_name @tw_state
  %is_out = icmp eq ptr %name, %out_name
  br i1 %is_out, label %take_out, label %slow
take_out:
  %given_at = getelementptr ptr, ptr %args, i64 2
  %given = load ptr, ptr %given_at
  %is_none = icmp eq ptr %given, %none
  %given_out = select i1 %is_none, ptr null, ptr %given
  br label %operands

operands:
  %out = phi ptr [ null, %keywords ], [ %given_out, %take_out ]
  %has_out = icmp ne ptr %out, null
  %a = load ptr, ptr %args
  %b_at = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %b_at
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
        for i in range(KEY_WORDS // 8)
    )
}  store <4 x i64> zeroinitializer, ptr %addresses, align 32
  %a_read = call i1 @read_operand(ptr %a_type, ptr %a, i64 0, ptr %key, ptr %addresses)
  br i1 %a_read, label %read_b, label %slow
read_b:
  %b_words = getelementptr i64, ptr %key, i64 {OPERAND_WORDS}
  %b_address = getelementptr i64, ptr %addresses, i64 1
  %b_read = call i1 @read_operand(ptr %b_type, ptr %b, i64 0, ptr %b_words, ptr %b_address)
  br i1 %b_read, label %read_c, label %slow
read_c:
  %c_address = getelementptr i64, ptr %addresses, i64 2
  br i1 %has_out, label %read_out, label %find
read_out:
  %c_words = getelementptr i64, ptr %key, i64 {2 * OPERAND_WORDS}
  %c_read = call i1 @read_operand(ptr %third_type, ptr %out, i64 1, ptr %c_words, ptr %c_address)
  br i1 %c_read, label %find, label %slow

find:
  %library = get TypeEntry.library %a_type
  %variant = zext i1 %has_out to i64
  %variant_bit = shl i64 %variant, 32
  %what = or i64 %library, %variant_bit
  %what_at = getelementptr i64, ptr %key, i64 {3 * OPERAND_WORDS}
  store i64 %what, ptr %what_at
  %record = call ptr @find_record(ptr %key, ptr %addresses)
  %unknown = icmp eq ptr %record, null
  br i1 %unknown, label %slow, label %known
known:
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
  %made_read = call i1 @read_operand(ptr %a_type, ptr %made, i64 1, ptr %made_words, ptr %c_address)
  %made_masks = at Record.masks %record
  %made_mask_at = getelementptr i64, ptr %made_masks, i64 2
  %made_mask = load i64, ptr %made_mask_at
  %made_start = load i64, ptr %c_address
  %made_off = and i64 %made_start, %made_mask
  %made_aligned = icmp eq i64 %made_off, 0
  %made_good = and i1 %made_read, %made_aligned
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
  %vectorcall = get State.vectorcall @tw_state
  %python = get State.slow @tw_state
  %answer = tail call ptr %vectorcall(ptr %python, ptr %args, i64 %count, ptr %names)
  ret ptr %answer
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
    launch = _LAUNCH.replace("{CONFIG_BYTES}", str(ctypes.sizeof(structure("Config"))))
    call = _CALL.replace("{LAUNCH}", _LAUNCH_RELEASED if release_gil else _LAUNCH_HELD)
    return expand_accesses(OPERAND_TEXT + _MEMORY + launch + call)
