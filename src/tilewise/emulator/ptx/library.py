"""Functions that CUDA provides and that are written in PTX here: ``malloc`` and ``free``.

A block of the heap is a power of two in size and begins with 16 bytes: the offset of the next free block
of its size, then its size's logarithm, with the highest bit set while it is free. Free blocks of one size
are a list whose head counts its changes in its upper half, so that a lost race is noticed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tilewise.emulator.ptx.syntax import Instruction, PtxModule

__all__ = ["EXTERNAL", "HEAP_BYTES", "LIBRARY_LINE", "add_library"]


# Other functions that CUDA provides: the instruction that stands for each, and its arguments' types. No PTX can write
# such an opcode: it has a colon.
EXTERNAL = {
    "vprintf": ("call:vprintf", ("u64", "u64")),
    "__assertfail": ("call:assertfail", ("u64", "u64", "u32", "u64")),
}

_OWN = ("malloc", "free")
LIBRARY_LINE = 0  # the line of all instructions here: they are at no line of the user's PTX
HEAP_BYTES = 8 << 20  # of a module, CUDA's default

_TEXT = f"""
.version 8.0
.target sm_80
.address_size 64
.global .align 64 .b8 $heap[{HEAP_BYTES}];
.global .align 8 .u64 $heap_used = 16;
.global .align 8 .u64 $heap_free[64];

.func (.param .b64 result) malloc(.param .b64 size)
{{
  .reg .pred %p;
  .reg .b32 %log, %next;
  .reg .b64 %bytes, %need, %heap, %list, %head, %new, %seen, %at, %count, %place, %block;
  ld.param.u64 %bytes, [size];
  mov.u64 %place, 0;
  setp.eq.u64 %p, %bytes, 0;
  @%p bra done;
  setp.gt.u64 %p, %bytes, {HEAP_BYTES};
  @%p bra done;
  add.u64 %need, %bytes, 15;
  clz.b64 %log, %need;
  sub.u32 %log, 64, %log;
  max.u32 %log, %log, 5;
  mov.u64 %block, 1;
  shl.b64 %block, %block, %log;
  mov.u64 %heap, $heap;
  mov.u64 %list, $heap_free;
  mul.wide.u32 %at, %log, 8;
  add.u64 %list, %list, %at;
again:
  ld.volatile.global.u64 %head, [%list];
  and.b64 %at, %head, 0xffffffff;
  setp.eq.u64 %p, %at, 0;
  @%p bra fresh;
  add.u64 %at, %at, %heap;
  ld.volatile.global.u32 %next, [%at];
  cvt.u64.u32 %new, %next;
  shr.u64 %count, %head, 32;
  add.u64 %count, %count, 1;
  shl.b64 %count, %count, 32;
  or.b64 %new, %new, %count;
  atom.global.cas.b64 %seen, [%list], %head, %new;
  setp.ne.u64 %p, %seen, %head;
  @%p bra again;
  bra found;
fresh:
  mov.u64 %list, $heap_used;
  atom.global.add.u64 %at, [%list], %block;
  add.u64 %new, %at, %block;
  setp.gt.u64 %p, %new, {HEAP_BYTES};
  @!%p bra room;
  neg.s64 %block, %block;
  red.global.add.u64 [%list], %block;
  bra done;
room:
  add.u64 %at, %at, %heap;
found:
  st.volatile.global.u32 [%at+4], %log;
  add.u64 %place, %at, 16;
done:
  st.param.b64 [result], %place;
  ret;
}}

.func free(.param .b64 address)
{{
  .reg .pred %p;
  .reg .b32 %log, %mark, %next;
  .reg .b64 %place, %heap, %list, %head, %new, %seen, %at, %count;
  ld.param.u64 %place, [address];
  setp.eq.u64 %p, %place, 0;
  @%p bra done;
  mov.u64 %heap, $heap;
  sub.u64 %place, %place, 16;
  sub.u64 %at, %place, %heap;
  setp.ge.u64 %p, %at, {HEAP_BYTES};
  @%p trap;
  and.b64 %count, %at, 15;
  setp.ne.u64 %p, %count, 0;
  @%p trap;
  atom.global.or.b32 %log, [%place+4], 0x80000000;
  setp.gt.u32 %p, %log, 63;
  @%p trap;
  mov.u64 %list, $heap_free;
  mul.wide.u32 %count, %log, 8;
  add.u64 %list, %list, %count;
again:
  ld.volatile.global.u64 %head, [%list];
  cvt.u32.u64 %next, %head;
  st.volatile.global.u32 [%place], %next;
  shr.u64 %count, %head, 32;
  add.u64 %count, %count, 1;
  shl.b64 %count, %count, 32;
  or.b64 %new, %at, %count;
  atom.global.cas.b64 %seen, [%list], %head, %new;
  setp.ne.u64 %p, %seen, %head;
  @%p bra again;
done:
  ret;
}}
"""


def add_library(module: PtxModule, parse: Callable[[str], PtxModule]) -> None:
    """Define what a module declares and CUDA provides; ``parse`` reads the text of that."""
    wanted = [name for name in _OWN if name in module.functions and module.functions[name].declared_only]
    if not wanted:
        return
    library = _library(parse)
    for name in wanted:
        module.functions[name] = library.functions[name]
    for name, variable in library.variables.items():
        module.variables.setdefault(name, variable)


@functools.cache
def _library(parse: Callable[[str], PtxModule]) -> PtxModule:
    module = parse(_TEXT)
    for function in filter(None, map(module.function, _OWN)):
        for item in function.body:
            if isinstance(item, Instruction):
                item.line = LIBRARY_LINE
    return module
