"""Where no machine code can be had: which shared loads the assembler will merge, as a prediction.

Loads of 4 or 8 bytes in one basic block, at constant distances from one register that nothing changes in
between, become loads of 8 or 16 bytes where they are neighbours and every lane's address allows it. What the
assembler can prove of alignment is not known here: that every address which was seen is aligned stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewise.emulator.counted import Counts, Place
from tilewise.emulator.operands import writes
from tilewise.emulator.parse import parse
from tilewise.emulator.syntax import Address, Instruction, Label, Register
from tilewise.profiler.machine import Access, Machine, shared_figures
from tilewise.toolchain.lines import Instruction as MachineInstruction

__all__ = ["merged", "predict"]

_LOADS = {"b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}
_OPS = {"load": "ld", "store": "st", "atomic": "atom", "copy": "ldgsts", "fill": "ldgsts"}


@dataclass(frozen=True, slots=True)
class _Load:
    line: int
    offset: int
    size: int


def merged(ptx: str, entry: str, aligned: Mapping[int, int]) -> dict[int, int]:
    """By line of the PTX: the bytes of a lane that its load becomes, 0 if another one loads them.

    ``aligned`` tells of each line to how many bytes all addresses seen were aligned.
    """
    found: dict[int, int] = {}
    function = parse(ptx).functions[entry]
    groups: dict[str, list[_Load]] = {}

    def finish(name: str) -> None:
        for size in (4, 8):
            loads = [load for load in groups.get(name, []) if load.size == size]
            found.update(_joined(loads, size, aligned))
        groups.pop(name, None)

    def finish_all() -> None:
        for name in list(groups):
            finish(name)

    for item in function.body:
        if isinstance(item, Label) or _parts(item):
            finish_all()
            continue
        load = _load(item)
        if load is not None:
            name, offset, size = load
            groups.setdefault(name, []).append(_Load(item.line, offset, size))
        for register in writes(item):
            finish(register.name)
    finish_all()
    return found


def _parts(item: Instruction) -> bool:
    """Whether loads before it are not merged with loads after it."""
    if item.opcode in (
        "bra",
        "brx",
        "ret",
        "exit",
        "call",
        "bar",
        "barrier",
        "atom",
        "red",
        "fence",
        "membar",
    ):
        return True
    return item.opcode in ("st", "stmatrix", "cp") and "global" not in item.parts


def _load(item: Instruction) -> tuple[str, int, int] | None:
    parts = item.parts
    if item.opcode != "ld" or item.guard is not None or "shared" not in parts or parts[-1] not in _LOADS:
        return None
    if any(part in ("v2", "v4", "volatile", "relaxed", "acquire") for part in parts):
        return None
    place = item.operands[1] if len(item.operands) > 1 else None
    if not isinstance(place, Address) or not isinstance(place.base, Register):
        return None
    return place.base.name, place.offset, _LOADS[parts[-1]]


def _joined(loads: list[_Load], size: int, aligned: Mapping[int, int]) -> dict[int, int]:
    by_offset = {load.offset: load for load in loads}
    done: dict[int, int] = {}
    used: set[int] = set()
    for wide in (16, 8):
        if wide <= size:
            continue
        for offset in sorted(by_offset):
            wanted = range(offset, offset + wide, size)
            if aligned.get(by_offset[offset].line, 1) < wide or any(
                o not in by_offset or o in used for o in wanted
            ):
                continue
            used.update(wanted)
            done[by_offset[offset].line] = wide
            done |= {by_offset[o].line: 0 for o in wanted if o != offset}
    return done


def predict(ptx: str, entry: str, counts: Counts) -> Machine:
    """The accesses of a launch as the machine code will probably make them."""
    places = counts.places()
    widths = merged(ptx, entry, {place.line: _alignment(place) for place in places if place.action == "load"})
    machine = Machine("predicted")
    if widths:
        machine.notes.append("no machine code here: which shared loads the assembler merges is predicted")
    else:
        machine.notes.append("no machine code here: accesses are as the PTX has them")
    for place in places:
        width = widths.get(place.line, place.size) if place.action == "load" else place.size
        if not width:
            continue
        op = _OPS[place.action]
        if place.name.startswith(("ldmatrix", "stmatrix")):
            op = "ldsm" if place.name.startswith("ld") else "stsm"
        elif place.name.startswith("red"):
            op = "red"
        item = MachineInstruction(0, place.name, ptx=place.line)
        waves, phases, ideals = shared_figures(
            place, min(width, 16), "cg" in place.name.split("."), place.fills
        )
        nothing = place.sectors * 0.0
        if place.shared.any() or place.space == "shared":
            machine.accesses.append(
                Access(item, op, "shared", 8 * width, place.shared * 1.0, waves * 1.0,
                       phases * 1.0, ideals * 1.0, nothing, nothing, place.threads * width * 1.0)
            )  # fmt: skip
        if place.outside.any() or place.space == "global":
            least = -(-place.threads * place.size // 32) * 1.0
            machine.accesses.append(
                Access(
                    item,
                    op,
                    "global",
                    8 * width,
                    place.outside * 1.0,
                    nothing,
                    nothing,
                    nothing,
                    place.sectors * 1.0,
                    least,
                    place.threads * width * 1.0,
                )
            )
    return machine


def _alignment(place: Place) -> int:
    """To how many bytes the addresses were aligned, 16 at most."""
    if place.seen is None:
        return place.size
    found = 16
    for address in place.seen.addresses:
        while address is not None and found > place.size and address % found:
            found //= 2
    return found
