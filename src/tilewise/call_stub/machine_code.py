"""LLVM text to functions in memory, by way of the disk cache.

The code is for any CPU of the machine's kind, not for this one, so one cached object serves them all.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import sysconfig
import threading
from collections.abc import Sequence
from typing import Any

from tilewise.toolchain import cache

__all__ = ["is_supported_python", "link"]

_KIND = "call-stub"
_SERIAL = itertools.count()
_LINKED: list[Any] = []  # NOTE: code stays in memory until the process ends; a builtin may outlive its maker

# A fork waits until no thread is in LLVM: in the child it would be for ever where that thread had left it.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def is_supported_python() -> bool:
    """Whether this interpreter's objects lie in memory as the text takes for granted."""
    return (
        sys.implementation.name == "cpython"
        and (3, 11) <= sys.version_info[:2] <= (3, 14)
        and sys.byteorder == "little"
        and sys.maxsize == 2**63 - 1
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
        and object.__basicsize__ == 16  # a build that traces references has more
    )


def link(text: str, names: Sequence[str]) -> dict[str, int]:
    """Bring ``text`` into memory, with data of its own each time; the addresses of ``names``."""
    with _LOCK:
        code = _object_code(text)
        import llvmlite.binding as llvm

        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in names:
            builder.export_symbol(name)
        tracker = builder.link(_linker(), f"call{next(_SERIAL)}")
        _LINKED.append(tracker)
        return {name: int(tracker[name]) for name in names}


@functools.cache
def _object_code(text: str) -> bytes:
    import llvmlite
    import llvmlite.binding as llvm

    triple = llvm.get_default_triple()
    key = cache.digest(_KIND, text, llvmlite.__version__, str(llvm.llvm_version_info), triple)
    store = cache.default()
    parts = store.get(_KIND, key)
    if parts is None or "object" not in parts:
        parts = {"object": _assemble(text, triple)}
        store.put(_KIND, key, parts)
    return parts["object"]


def _assemble(text: str, triple: str) -> bytes:
    import llvmlite.binding as llvm

    machine = _machine()
    module = llvm.parse_assembly(text)
    module.verify()
    module.data_layout = str(machine.target_data)
    module.triple = triple
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def _machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="small")


@functools.cache
def _linker() -> Any:
    """Brings object files into memory. NOTE: JITLink, which keeps the code and the data of a file together."""
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler(_machine(), use_jit_link=True)
