"""The memory that the compiled call shares with Python, and the short forms of LLVM text that reach into it.

:data:`STRUCTS` is the one description of it: the text gets its struct types from there, and Python its
ctypes structures. In the text three short forms stand for an address calculation and an access::

    %value = get Struct.field %pointer
    set Struct.field %pointer = %value
    %address = at Struct.field %pointer
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any

__all__ = [
    "ARGUMENTS",
    "BLOCK_BYTES",
    "DESCRIBED_FUNCTIONS",
    "FIRST_EXTRA",
    "FIRST_NUMBER",
    "FORM_BITS",
    "KEY_WORDS",
    "MAX_ACTIVATIONS",
    "MAX_EXTRAS",
    "MAX_GIVEN",
    "MAX_LAUNCHES",
    "MAX_NDIM",
    "MAX_PARAMETERS",
    "MAX_POSITIONAL",
    "MAX_TYPES",
    "OPERAND_WORDS",
    "PIECE_BYTES",
    "PLAIN_WORDS",
    "PROBES",
    "RING_LAUNCHES",
    "STRUCTS",
    "TABLE_SLOTS",
    "expand_accesses",
    "structure",
]

MAX_NDIM = 4
OPERAND_WORDS = 2 + 2 * MAX_NDIM  # device; dimensions and element type; shape; strides
# The arguments of a call by their places; what a builtin calls them is its own affair.
ARGUMENTS = (
    *("a", "b", "out", "offsets", "c", "bias", "residual"),
    *("alpha", "beta", "activation", "epilogue", "arithmetic"),
)
MAX_POSITIONAL = 4
MAX_EXTRAS = 4  # arrays beside a, b and out
MAX_ACTIVATIONS = 32
MAX_GIVEN = 8  # names that an epilogue object gives
# What a launch takes of a call: the addresses of a, b, c and the workspace, of the extras, then numbers.
FIRST_EXTRA = 4
FIRST_NUMBER = FIRST_EXTRA + MAX_EXTRAS
# A key begins with three operands, the form of the call, and its activation or expression. Plain calls end there;
# others go on with the names of what an epilogue object gives, and with the extras.
PLAIN_WORDS = 32
KEY_WORDS = PLAIN_WORDS + MAX_GIVEN + MAX_EXTRAS * OPERAND_WORDS
# The form, above the library's number: which arguments there are. An epilogue object says how many names it gives
# (4 bits from "count" on) and which of them are arrays (8 bits from "arrays" on). An arithmetic is the number of its
# name among the activations that the builtin knows, from 1 on (5 bits).
FORM_BITS = {
    "out": 32,
    "not_plain": 33,
    "epilogue": 34,
    "offsets": 35,
    "c": 36,
    "bias": 37,
    "residual": 38,
    "alpha": 39,
    "beta": 40,
    "count": 44,
    "arrays": 48,
    "arithmetic": 56,
}
TABLE_SLOTS = 256
PROBES = 8
MAX_TYPES = 8
MAX_LAUNCHES = 4
MAX_PARAMETERS = 128
BLOCK_BYTES = 4096  # the driver takes no more bytes of parameters
PIECE_BYTES = 64  # a template is copied in pieces of this size

# The recording driver of tests and benches.
RING_LAUNCHES = 16
RING_BYTES = BLOCK_BYTES
DESCRIBED_FUNCTIONS = 512

STRUCTS: dict[str, tuple[tuple[str, str], ...]] = {
    # CPython's. NOTE: true of builds with the GIL alone.
    "Object": (("references", "i64"), ("type", "ptr")),
    "VarObject": (("references", "i64"), ("type", "ptr"), ("size", "i64")),
    # DLPack's: DLTensor, DLManagedTensorVersioned, DLPackExchangeAPI.
    "Tensor": (
        ("data", "i64"),
        ("device", "i64"),  # i32 type, i32 number
        ("layout", "i64"),  # i32 dimensions, u8 code, u8 bits, u16 lanes
        ("shape", "ptr"),
        ("strides", "ptr"),
        ("byte_offset", "i64"),
    ),
    "Managed": (
        ("version", "i64"),
        ("context", "ptr"),
        ("deleter", "ptr"),
        ("flags", "i64"),
        ("tensor", "%Tensor"),
    ),
    "Exchange": (
        ("version", "i64"),  # u32 major, u32 minor
        ("previous", "ptr"),
        ("allocate", "ptr"),
        ("to_managed", "ptr"),
        ("to_object", "ptr"),
        ("to_tensor", "ptr"),
        ("current_stream", "ptr"),
    ),
    # The bytes in the slot of an array of our own; shape and strides follow.
    "OwnArray": (("state", "ptr"), ("data", "i64"), ("device", "i64"), ("layout", "i64"), ("flags", "i64")),
    # CUDA's: CUlaunchConfig, CUlaunchAttribute.
    "Config": (
        ("grid", "[3 x i32]"),
        ("block", "[3 x i32]"),
        ("shared", "i32"),
        ("stream", "i64"),
        ("attributes", "ptr"),
        ("attribute_count", "i32"),
    ),
    "Attribute": (("id", "i32"), ("padding", "i32"), ("value", "[16 x i32]")),
    # A bound problem.
    "Patch": (
        ("offset", "i32"),
        ("operand", "i32"),  # which of a call's values
        ("addend", "i64"),
        ("size", "i64"),  # 8 bytes of the value, or 4: it is a double, and a float is wanted
    ),
    "Map": (
        ("offset", "i32"),
        ("operand", "i32"),
        ("addend", "i64"),
        ("data_type", "i32"),
        ("rank", "i32"),
        ("sizes", "[5 x i64]"),
        ("strides", "[4 x i64]"),
        ("box", "[5 x i32]"),
        ("steps", "[5 x i32]"),
        ("interleave", "i32"),
        ("swizzle", "i32"),
        ("promotion", "i32"),
        ("fill", "i32"),
    ),
    "Launch": (
        ("config", "%Config"),
        ("function", "i64"),
        ("template", "ptr"),
        ("pieces", "i64"),
        ("offsets", "ptr"),
        ("offset_count", "i64"),
        ("patches", "ptr"),
        ("patch_count", "i64"),
        ("maps", "ptr"),
        ("map_count", "i64"),
    ),
    "Record": (
        ("key", f"[{KEY_WORDS} x i64]"),
        ("hash", "i64"),
        ("masks", f"[{FIRST_NUMBER} x i64]"),  # the bits of the address of each array that are compared
        ("wants", f"[{FIRST_NUMBER} x i64]"),  # and what they are
        ("firsts", f"[{FIRST_NUMBER} x i64]"),  # bytes from the address of each array to its lowest byte
        ("ends", f"[{FIRST_NUMBER} x i64]"),  # and behind its highest
        ("written", "i64"),  # a bit for each array that is written: c, and what an epilogue keeps
        ("users", "i64"),  # calls that are launching it; changes with the GIL held
        ("context", "i64"),
        ("launch", "ptr"),
        ("encode_tiled", "ptr"),
        ("get_context", "ptr"),
        ("push_context", "ptr"),
        ("pop_context", "ptr"),
        ("launches", "ptr"),
        ("launch_count", "i64"),
        ("result", "ptr"),  # a Tensor to allocate the like of, or null: there is an out, or make_result
        ("workspace", "ptr"),  # likewise, or null: needs none
        ("make_result", "ptr"),  # a callable that gives an array of our own, or null
    ),
    # A call, on the stack.
    "Call": (
        ("key", f"[{KEY_WORDS} x i64]"),
        ("values", f"[{FIRST_NUMBER + MAX_GIVEN} x i64]"),
        ("objects", "[16 x ptr]"),  # the arguments
        ("extras", f"[{MAX_EXTRAS} x ptr]"),
        ("flags", f"[{FIRST_NUMBER} x i64]"),  # of each array: 1 is read-only
        ("held", f"[{MAX_EXTRAS} x ptr]"),  # references that end with the call
        ("extra_count", "i64"),
        ("number_count", "i64"),
        ("held_count", "i64"),
        ("form", "i64"),
        ("text", "ptr"),  # activation or expression
    ),
    "TypeEntry": (
        ("type", "ptr"),
        ("exchange", "ptr"),  # null: an array of our own
        ("library", "i64"),
        ("slot", "i64"),
        ("streams_entered", "ptr"),
        ("get_grad", "ptr"),  # null: nothing to ask
        ("grad_closure", "ptr"),
        ("grad_enabled", "ptr"),  # a callable, or null
        ("variables", "ptr"),  # a dictionary, or null: nothing to compare
        ("variable", "ptr"),  # a key of it
        ("ordinary", "ptr"),  # what its value is while calls may be fast
    ),
    "Keyword": (("name", "ptr"), ("argument", "i64")),
    "State": (
        ("slow", "ptr"),
        ("none", "ptr"),
        ("false", "ptr"),
        ("bytes_type", "ptr"),
        ("float_type", "ptr"),
        ("wide_type", "ptr"),  # NumPy's float64, which is laid out as a float
        ("int_type", "ptr"),
        ("dict_type", "ptr"),
        ("text_type", "ptr"),
        ("epilogue_type", "ptr"),  # or null: calls with an epilogue object are slow
        ("expression_slot", "i64"),
        ("given_slot", "i64"),
        ("bytes_start", "i64"),
        ("tuple_start", "i64"),
        ("vectorcall", "ptr"),
        ("call_no_args", "ptr"),
        ("get_item", "ptr"),
        ("next_item", "ptr"),
        ("float_as_double", "ptr"),
        ("int_as_double", "ptr"),
        ("error_occurred", "ptr"),
        ("compare_texts", "ptr"),
        ("clear_error", "ptr"),
        ("save_thread", "ptr"),
        ("restore_thread", "ptr"),
        ("add_reference", "ptr"),
        ("drop_reference", "ptr"),
        ("positional_count", "i64"),
        ("positional", f"[{MAX_POSITIONAL} x i64]"),  # which arguments those by place are
        ("keyword_count", "i64"),
        ("keywords", f"[{len(ARGUMENTS)} x %Keyword]"),
        ("activation_count", "i64"),
        ("activations", f"[{MAX_ACTIVATIONS} x ptr]"),
        ("type_count", "i64"),
        ("types", f"[{MAX_TYPES} x %TypeEntry]"),
        ("table", f"[{TABLE_SLOTS} x ptr]"),
    ),
    # The recording driver.
    "Counted": (
        ("config", "%Config"),
        ("attributes", "[4 x %Attribute]"),
        ("function", "i64"),
        ("block", f"[{RING_BYTES} x i8]"),
    ),
    "Described": (("function", "i64"), ("count", "i64"), ("sizes", f"[{MAX_PARAMETERS} x i32]")),
    "Counting": (
        ("launches", "i64"),
        ("encodes", "i64"),
        ("pushes", "i64"),
        ("pops", "i64"),
        ("context", "i64"),
        ("fail", "i32"),  # what the next launch returns
        ("fail_push", "i32"),
        ("described_count", "i64"),
        ("described", f"[{DESCRIBED_FUNCTIONS} x %Described]"),
        ("ring", f"[{RING_LAUNCHES} x %Counted]"),
    ),
}

_SCALARS: dict[str, Any] = {
    "i8": ctypes.c_uint8,
    "i32": ctypes.c_uint32,
    "i64": ctypes.c_uint64,
    "ptr": ctypes.c_uint64,
}


@functools.cache
def structure(name: str) -> Any:
    """The ctypes structure of one of :data:`STRUCTS`; pointers are plain numbers."""
    fields = [(field, _ctype(type_)) for field, type_ in STRUCTS[name]]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def _ctype(type_: str) -> Any:
    if array := re.fullmatch(r"\[(\d+) x (.+)\]", type_):
        return _ctype(array[2]) * int(array[1])
    return structure(type_[1:]) if type_.startswith("%") else _SCALARS[type_]


_ACCESS = re.compile(
    r"(?P<indent> *)(?:%(?P<result>\w+) = (?P<verb>get|at)|set) (?P<struct>\w+)\.(?P<field>\w+)"
    r" (?P<pointer>[%@]\w+)(?: = (?P<value>\S+))?"
)


def expand_accesses(text: str) -> str:
    """Write the three short forms out, and the struct types before them."""
    lines = [
        f"%{name} = type {{ {', '.join(type_ for _, type_ in fields)} }}" for name, fields in STRUCTS.items()
    ]
    for number, line in enumerate(text.splitlines()):
        access = _ACCESS.fullmatch(line)
        lines += _access(access, number) if access else [line]
    return "\n".join(lines) + "\n"


def _access(access: re.Match[str], number: int) -> list[str]:
    fields = [field for field, _ in STRUCTS[access["struct"]]]
    index = fields.index(access["field"])
    type_ = STRUCTS[access["struct"]][index][1]
    address = f"%{access['result']}" if access["verb"] == "at" else f"%at.{number}"
    indent = access["indent"]
    lines = [
        f"{indent}{address} = getelementptr %{access['struct']}, ptr {access['pointer']}, i32 0, i32 {index}"
    ]
    if access["verb"] == "get":
        lines.append(f"{indent}%{access['result']} = load {type_}, ptr {address}")
    elif access["verb"] is None:
        lines.append(f"{indent}store {type_} {access['value']}, ptr {address}")
    return lines
