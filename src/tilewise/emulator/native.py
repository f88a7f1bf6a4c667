"""LLVM text → machine code in memory, through llvmlite. Knows nothing of PTX."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import pkgutil
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import llvmlite.binding as llvm

from tilewise.emulator.llvm.routine import Declaration, Routine, join_modules

__all__ = [
    "Code",
    "CpuTarget",
    "Effort",
    "assemble",
    "host_cpu",
    "is_supported",
    "load",
    "offer_support",
    "support",
    "support_text",
]

# LLVM's global state: targets, symbols, engines. A fork waits until no thread is in there: in the child,
# LLVM would be for ever where that thread had left it.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


# How hard LLVM tries. "best" is its own pipeline, which pays off in text written by hand. Kernels lowered from PTX
# run as fast after a few passes ("good"); "brief" also chooses instructions and registers in a third of the time,
# and that code runs up to three times as long.
Effort = Literal["best", "good", "brief"]


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """The CPU to compile for: its name and features, as LLVM calls them."""

    cpu: str
    features: str

    @property
    def key(self) -> str:
        return f"{_llvm_version()} {self.cpu} {self.features}"


@functools.cache
def _llvm_version() -> str:
    """LLVM's version and target triple. NOTE: under the lock, so that a fork waits for every call of LLVM."""
    with _LOCK:
        return f"{llvm.llvm_version_info} {llvm.get_default_triple()}"


@functools.cache
def host_cpu() -> CpuTarget:
    """This machine's CPU."""
    with _LOCK:
        _initialize()
        return CpuTarget(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _machine(target: CpuTarget, effort: Effort = "good") -> Any:
    """NOTE: an engine frees the machine that it was made with, so each has one of its own."""
    _initialize()
    make = llvm.Target.from_default_triple().create_target_machine
    opt = 0 if effort == "brief" else 1
    return make(cpu=target.cpu, features=target.features, opt=opt, reloc="pic", codemodel="small")


def assemble(text: str, target: CpuTarget, effort: Effort = "best") -> bytes:
    """Compile LLVM text to an object file."""
    with _LOCK:
        code = _assemble(text, target, effort)  # NOTE: a function of its own, so that its modules end in here
        if "+avx512f" in target.features and _doubtful(code):
            code = _assemble(text, CpuTarget(target.cpu, f"{target.features},-avx512f"), effort)
        return code


def _assemble(text: str, target: CpuTarget, effort: Effort) -> bytes:
    machine = _machine(target, effort)
    module = llvm.parse_assembly(text)
    module.verify()
    module.data_layout = str(machine.target_data)
    module.triple = llvm.get_default_triple()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    (builder.getModulePassManager() if effort == "best" else _few_passes()).run(module, builder)
    return bytes(machine.emit_object(module))


def _few_passes() -> Any:
    """Registers out of memory, one round of folding, and no blocks without need."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    return passes


# What chooses between two operands bit by bit, as the truth tables that VPTERNLOG takes.
_CHOICES = {0xAC, 0xB8, 0xCA, 0xD8, 0xE2, 0xE4}
_TERNARY = re.compile(rb"(?=(\x62...\x25.{7}))", re.DOTALL)


def _doubtful(code: bytes) -> bool:
    """Whether machine code has a VPTERNLOG that LLVM may have miscompiled.

    NOTE: LLVM up to version 22 permutes the operands of one that is masked and chooses by a constant, and does
    not permute its table alike (issue 157929 of llvm-project). The constant may be in memory or, where it is
    used in a loop, in a register.
    """
    for match in _TERNARY.finditer(code):
        found = match[1]
        mode, base = found[5] >> 6, found[5] & 7
        after = 7 if base == 4 and mode != 3 else 6  # behind the byte of the addressing mode
        far = mode == 2 or (mode == 0 and (base == 5 or (base == 4 and found[6] & 7 == 5)))
        after += 4 if far else mode % 3
        if found[1] & 7 == 3 and found[3] & 7 and found[after : after + 1] and found[after] in _CHOICES:
            return True
    return False


@dataclass(slots=True)
class Code:
    """Machine code in memory. Its functions live as long as it does."""

    tracker: Any

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing, lock: Any = _LOCK) -> None:
        # NOTE: unloading takes locks of the linker's. A fork in the middle of it would leave them locked.
        if not ends():
            with lock:
                self.tracker.close()

    def address(self, name: str) -> int:
        """Where a function lies."""
        return int(self.tracker[name])


@functools.cache
def _linker() -> Any:
    """Brings object files into memory.

    NOTE: it is JITLink, which keeps all of a file together. LLVM's older loader places code and constants
    wherever there is room, and where that is more than two gigabytes apart an assertion ends the process.
    """
    return llvm.create_lljit_compiler(_machine(host_cpu()), use_jit_link=True)


_SERIAL = itertools.count()
_SUPPORT = "support"


def load(data: bytes, name: str) -> Code:
    """Bring an object file with one function into memory, and resolve what it calls."""
    with _LOCK:
        _support_code()
        return _load(data, [name], f"kernel{next(_SERIAL)}", _SUPPORT)


def _load(data: bytes, names: Sequence[str], library: str, *others: str) -> Code:
    builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
    for other in others:
        builder.add_jit_library(other)
    for name in names:
        builder.export_symbol(name)
    return Code(builder.link(_linker(), library))


# Packages whose modules declare routines (``llvm/routine.py``), or make some in ``routines()``.
_PACKAGES = ("tilewise.emulator.support", "tilewise.emulator.checking", "tilewise.emulator.profiling")


def support_text() -> str:
    """Return the run-time support that compiled kernels call, as one LLVM module, which is linked to every kernel."""
    routines: list[Routine] = []
    for package in map(import_module, _PACKAGES):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = import_module(found.name)
            declared = [item for item in vars(module).values() if isinstance(item, Declaration)]
            routines += [item.write() for item in declared if item.write_body.__module__ == found.name]
            routines += module.routines() if hasattr(module, "routines") else ()
    return join_modules(routines)


_READY: list[bytes] = []  # the support's machine code, if an earlier process saved it


def offer_support(kept: bytes | None) -> bytes | None:
    """Load the support's code as an earlier process saved it; return fresh code if that does not fit."""
    with _LOCK:
        if _READY:
            return None
        _READY.append(kept or assemble(support_text(), host_cpu()))
        return None if kept else _READY[0]


def is_supported() -> bool:
    return bool(_READY)


@functools.cache
def _support_code() -> Code:
    offer_support(None)
    called = {name.decode() for name in re.findall(rb"\0(tw_\w+)(?=\0)", _READY[0])}  # by kernels
    return _load(_READY[0], sorted(called), _SUPPORT)


@functools.cache
def support() -> Any:
    """The entry of the run-time support: work(launch, worker, block) -> outcome."""
    with _LOCK:  # NOTE: two of them at once would each load it, and one be dropped under the other's kernels
        code = _support_code()
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return prototype(code.address("tw_enter"))
