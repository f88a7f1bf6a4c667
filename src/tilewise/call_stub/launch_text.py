"""LLVM text of what a known call asks of others: memory of its library, encodings and launches of the driver."""

from __future__ import annotations

import ctypes

from tilewise.call_stub.shared_memory import BLOCK_BYTES, MAX_PARAMETERS, structure

__all__ = ["LAUNCH_TEXT", "MEMORY_TEXT"]

_CONFIG_BYTES = ctypes.sizeof(structure("Config"))

# Memory of the library's: what holds it, or null.
MEMORY_TEXT = """
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
LAUNCH_TEXT = f"""
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
  %q = phi i64 [ 0, %patching ], [ %next_q, %written ]
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
  %patch_size = get Patch.size %patch_at
  %narrow = icmp eq i64 %patch_size, 4
  br i1 %narrow, label %write_float, label %write_word
write_float:
  %wide = bitcast i64 %patch_base to double
  %float = fptrunc double %wide to float
  store float %float, ptr %patch_to, align 1
  br label %written
write_word:
  store i64 %patch_value, ptr %patch_to, align 1
  br label %written
written:
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
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %config, ptr align 8 %its_config, i64 {_CONFIG_BYTES}, i1 false)
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
