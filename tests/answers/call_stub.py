"""The compiled call: its text, routine by routine; records of calls in native memory, and what is wrong with one."""

from __future__ import annotations

import ctypes
import hashlib
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

import tilewise as tw
from tests.answers.shown import show
from tilewise.call_stub import call_record
from tilewise.call_stub.call_record import (
    CallForm,
    CallRecord,
    DriverEntries,
    MapPatch,
    NativeLaunch,
    NativeRecord,
    TensorPattern,
    check_record,
    compact_strides,
    may_hide_state,
)
from tilewise.call_stub.call_text import call_text
from tilewise.call_stub.counting_driver import counting_text, decode_map
from tilewise.call_stub.shared_memory import (
    BLOCK_BYTES,
    FORM_BITS,
    MAX_EXTRAS,
    MAX_LAUNCHES,
    expand_accesses,
    structure,
)
from tilewise.epilogue import view_arrays
from tilewise.launch import Launch
from tilewise.operands import Operand
from tilewise.slots import Gap, Slot
from tilewise.warm_calls import Extras, _can_fill, _can_start, _numbers, describe_extras, lay_out

_TEXTS = {"call": call_text(True), "call without the GIL": call_text(False), "counting": counting_text()}


def _routines(text: str) -> dict[str, str]:
    """What is defined, by name: routines, and everything else before them."""
    first, *others = re.split(r"^(?=define )", text, flags=re.MULTILINE)
    return {"(declarations)": first} | {one[one.index("@") : one.index("(")]: one for one in others}


ROUTINES = {
    f"{kind}: {name}": text for kind, whole in _TEXTS.items() for name, text in _routines(whole).items()
}
_ALIKE = [
    name for name in ROUTINES if ROUTINES[name] == ROUTINES.get(name.replace("call without the GIL", "call"))
]
LISTED = "\n".join(f"routine({name!r})" for name in ROUTINES if "without" not in name or name not in _ALIKE)
_STRUCTURES = (
    "Record",
    "Launch",
    "Patch",
    "Map",
    "Config",
    "Attribute",
    "Tensor",
    "State",
    "Keyword",
    "Managed",
    "Exchange",
)
LINES = f"""
{LISTED}
fields(«{"|".join(map(repr, _STRUCTURES))}|'Other'»)
expand_accesses('%x = «get Tensor.data %t|at Managed.tensor %m|set Config.stream %c = %s|get Nothing.at %x|get Record.key %r»')
native()
native(has_out=False, make_result=«None|make»)
native(workspace_bytes=«0|64|4096», launches=(LAUNCH, replace(LAUNCH, cluster=(2, 1, 1), programmatic=True, pointers=((0, 3, 8),))))
native(a=pattern(«(8, 16)|(0, 16)|(3, 8, 16)|()», alignment=«1|16», exactly=«False|True»), has_out=«True|False»)
native(b=pattern((16, 24), «(24, 1)|(1, 16)|(-24, 1)|(48, 2)», dtype=«(2, 16, 1)|(2, 32, 1)|(5, 64, 1)|(4, 16, 1)»))
native(form=CallForm(«('bias',)|('bias', 'residual', 'c')|('alpha', 'bias')|('beta', 'c', 'alpha')», numbers=«()|('alpha',)|('alpha', 'beta')»), extras=(pattern((24,)),) * «0|1|2|3», kept=«()|(0,)|(1,)»)
native(form=CallForm(has_offsets=«True|False», arithmetic=«0|1|5»), extras=(pattern((24,)),) * «0|1»)
native(launches=(replace(LAUNCH, template=bytes(«40|64|65|128»), pointers=((«0|8|32|33», «0|4|5|-1», «0|-16»),), offsets=(«0|39|40», 8)),))
native(launches=(replace(LAUNCH, template=bytes(192), maps=(replace(MAP, offset=«0|64|32|65|-64», operand=«0|3|4», addend=«0|-128»),), numbers=()),), workspace_bytes=«0|8»)
native(launches=(replace(LAUNCH, template=bytes(192), maps=(replace(MAP, sizes=(8,) * «0|1|2|5|6», strides=(16,) * «0|1|4», box=(8,) * «1|2|5», steps=(1,) * «1|2|5»),)),))
native(form=CallForm(('s', 'x'), ('s',)), extras=(pattern((24,)),), launches=(replace(LAUNCH, numbers=((«0|8|24|28|-4», «0|1|-1», «4|8|2»),)),))
native(launches=(LAUNCH,) * «0|1|{MAX_LAUNCHES}|{MAX_LAUNCHES + 1}»)
native(a=pattern((8, 16), alignment=«0|1|3|-8|256»), c=pattern((8, 24), «(24, 1)|(1, 8)|(24,)», exactly=«False|True»), has_out=«True|False»)
native(make_result=make, has_out=«True|False»)
native(launches=(replace(LAUNCH, template=bytes(«{BLOCK_BYTES}|{BLOCK_BYTES + 1}»), offsets=(0,) * «1|128|129|1000»),))
native(form=CallForm(tuple('abcdefghijk'[:«7|8|9|11»])), extras=(pattern((24,)),) * «7|8|9|{MAX_EXTRAS}|{MAX_EXTRAS + 1}»)
[CallForm(«()|('bias',)|('alpha', 'c')», «()|('alpha',)», text=«None|'relu'», by_object=«False|True», has_offsets=«False|True», arithmetic=«0|3»).bits]
[CallForm(«()|('bias',)|('alpha', 'c')», «()|('alpha',)», has_offsets=«False|True»).extra_count, FORM_BITS]
compact_strides(«()|(3,)|(2, 3)|(2, 0, 3)|(1, 1, 5)|(4, 3, 2)»)
may_hide_state(pattern((8, 16), «(16, 1)|(16, 2)|(32, 2)|(15, 2)», dtype=«(2, 16, 1)|(5, 64, 1)|(0, 8, 1)»))
call_record._extent(pattern(«(8, 16)|(0, 16)|()», dtype=«(2, 16, 1)|(2, 4, 1)|(5, 64, 2)»))
decode_map(bytes(range(128))[:«128|127»])
decode_map(bytes([7] * 118 + [«0|1|2|5», 0, 0, 0, 0, 0, 0, 0, 0, 0]))
laid(a.matrix(), Slot(bytes(«4|8|12»)), b.strided(), Slot(bytes(128)), workspace.pointer(), regions=«{{}}|{{'copy_a': 256, 'workspace': 64}}», shift=«{{}}|{{'a': 100, 'b': -8}}»)
laid(a.map((8, 8), 0), Slot(bytes(8), (Gap(0, 'copy_a', 16), Gap(0, 'epilogue.s', 0, 4))), a.map((8, 16), 128), regions={{'copy_a': 256}})
laid(Slot(bytes(24), (Gap(0, 'epilogue.s', 0, 8), Gap(8, 'x'), Gap(16, 'epilogue.t', 0, 4))), numbers={{'epilogue.s': 0, 'epilogue.t': 1}})
filled(«a.matrix()|workspace.pointer()|a.map((8, 8), 0)|Slot(bytes(8), (Gap(0, 'epilogue.s', 0, 4),))|Slot(bytes(8), (Gap(0, 'x', 0, 8),))|Slot(bytes(8), (Gap(0, 'a', 0, 4),))|Slot(bytes(8), (Gap(0, 'copy_a', 0, 8),))|Slot(bytes(8))»)
_can_start(DriverEntries(«0|1», «0|2», «0|3», «0|4», «0|5»), «[]|[a.map((8, 8), 0)]|[a.matrix()]»)
extras(«None|'relu'|tw.epilogue('acc * s + x', s=2, x=X)|tw.epilogue('keep(x, acc)', x=X)», offsets=«None|view_of(X)», arithmetic=«None|'tf32'|'f64'|'fp8'»)
"""

GPU, HALF = (2, 0), (2, 16, 1)
ENTRIES = DriverEntries(1, 2, 3, 4, 5)
LAUNCH = NativeLaunch(
    7,
    (3, 2, 1),
    (128, 1, 1),
    49152,
    None,
    bytes(24) + b"\1\2\3\4",
    (0, 8, 16, 24),
    ((0, 0, 0), (8, 1, 32), (16, 2, -16)),
)
MAP = MapPatch(64, 0, 16, 6, (16, 8), (32,), (8, 8), (1, 1), 0, 2, 3, 1)
a, b = Operand("a", 8, 16, 16, "float16"), Operand("b", 16, 24, 24, "float16", stack=(384,))
workspace = Operand("workspace", 1, 8, 8, "float32", offset=32)
X = np.zeros((2, 3), np.float32)


def routine(name: str) -> str:
    """How long a routine is, and a hash of it."""
    text = ROUTINES[name]
    return f"{len(text.splitlines())} lines, {hashlib.sha256(text.encode()).hexdigest()[:6]}"


def fields(name: str) -> Any:
    """Where the fields of a structure lie, and how large it is."""
    kind = structure(name)
    return [
        (field[0], getattr(kind, field[0]).offset, getattr(kind, field[0]).size) for field in kind._fields_
    ], ctypes.sizeof(kind)


def pattern(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, **how: Any) -> TensorPattern:
    given: dict[str, Any] = {"device": GPU, "dtype": HALF, "alignment": 16} | how
    return TensorPattern(shape=shape, strides=compact_strides(shape) if strides is None else strides, **given)


def make() -> object:
    return None


def native(**changes: Any) -> Any:
    """A record as it lies in native memory, without the addresses of its parts."""
    values: dict[str, Any] = {
        "a": pattern((8, 16)), "b": pattern((16, 24)), "c": pattern((8, 24)), "has_out": True, "library": 3,
        "entries": ENTRIES, "context": 99, "launches": (LAUNCH,), "workspace_bytes": 0, **changes,
    }  # fmt: skip
    record = CallRecord(**values)
    check_record(record)
    found = NativeRecord(record)
    own = found.native
    plain = {
        name: getattr(own, name) for name in ("context", "launch", "encode_tiled", "written", "launch_count")
    }
    some = {name: bool(getattr(own, name)) for name in ("make_result", "result", "workspace")}
    launches = (structure("Launch") * own.launch_count).from_address(own.launches)
    return (
        found.key,
        found.alignments,
        list(own.firsts),
        list(own.ends),
        plain,
        some,
        [_launch(one) for one in launches],
    )


def _launch(one: Any) -> Any:
    """A launch with all that it points to."""

    def read(address: int, kind: Any, count: int) -> bytes:
        return ctypes.string_at(address, ctypes.sizeof(kind) * count) if count else b""

    config = one.config
    attributes = read(config.attributes, structure("Attribute"), config.attribute_count)
    return [
        list(config.grid), list(config.block), config.shared, config.attribute_count, attributes, one.function, one.pieces,
        ctypes.string_at(one.template, one.pieces * 64) if one.pieces else b"", one.offset_count,
        read(one.offsets, ctypes.c_uint32, one.offset_count), read(one.patches, structure("Patch"), one.patch_count),
        read(one.maps, structure("Map"), one.map_count),
    ]  # fmt: skip


def laid(*slots: Any, regions: Any = None, shift: Any = None, numbers: Any = None) -> Any:
    """The arguments of a launch as one block."""
    launch: Any = SimpleNamespace(launch=Launch((1, 1, 1), (1, 1, 1), slots))
    found = lay_out(launch, regions or {}, shift or {})
    return found, _numbers(launch, found[1], numbers or {})


def filled(slot: Any) -> bool:
    bound: Any = SimpleNamespace(regions={"copy_a": 0})
    return _can_fill(slot, bound, Extras(CallForm(("s",), ("s",))))


def view_of(array: Any) -> Any:
    return view_arrays(tw.epilogue("acc + x", x=array)).views[0]


def extras(source: Any, **how: Any) -> Any:
    """What a call has beside its matrices; a text or an expression by whether it is the one that was given."""
    fused = view_arrays(source if not isinstance(source, str) else tw.epilogue(f"{source}(acc)"))
    found = describe_extras(fused, source, **how)
    text = found.form.text
    same = text is source or (source is not None and text is getattr(source, "expression", None))
    plain = replace(found.form, text=None if text is None else "given" if same else "another")
    return plain, found.places, found.numbers, found.kept, show(dict(found.arrays))
