"""Shape analysis: find each register that is the same in every lane, or differs from lane to lane
by known amounts, before the program runs.

A scalar shape stands for ``u + lanes[lane]``, where u is one value for the warp and ``lanes`` are known
now. With it an address becomes one number, a load one contiguous load, a branch one jump. Whatever the
analysis cannot prove is a vector, which is always right.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewise.emulator.analysis.control_flow import EXIT, Flow, walk
from tilewise.emulator.analysis.liveness import summarise
from tilewise.emulator.analysis.shape import (
    TOP_ZEROS,
    UNIFORM,
    VECTOR,
    Lanes,
    Shape,
    add_shapes,
    comparison_bound,
    thread_lanes,
    trailing_zeros,
    wrap_to_type,
)
from tilewise.emulator.operations.operands import reads, registers_in, wgmma_registers, writes
from tilewise.emulator.operations.operation import LaneRule
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx import syntax
from tilewise.emulator.ptx.modifiers import space_of
from tilewise.emulator.ptx.types import TYPE_BYTES, bits_of

__all__ = ["UNIFORM", "VECTOR", "Analysis", "Lanes", "Shape", "thread_lanes"]

_MEMORY_UNIFORM = {"param", "const", "global", "shared"}
_ODD_PARTS = {"cc", "sat", "hi", "relu"}  # with which an operation is not what its name says
# Where an operand is missing, lowering says so.
_FEWEST_SOURCES = {"product and sum": 3, "selected": 3, "converted": 1}
_POLLING = {"volatile", "relaxed", "acquire"}  # modifiers of accesses that look at what other threads do
# Of these more is known than that all lanes have the same, if that is so of their sources.
_TRACKED = {"sum", "difference", "product", "product and sum", "shifted left", "and", "or"}


class Analysis:
    """The shape of every register of a kernel, and what follows from the shapes.

    With ``speculate`` a widened index is taken not to wrap around within its warp; such instructions are
    ``guarded``. It is also taken that lanes held up at a barrier that others of their warp do not come to
    will be let go without the help of those. A warp for which that is not so goes on in the build without.
    """

    def __init__(
        self,
        flow: Flow,
        types: Mapping[str, str],
        threads: Mapping[str, Shape | None],
        local_symbols: set[str],
        speculate: bool,
    ) -> None:
        self.flow, self.types, self.threads = flow, types, threads
        self.local_symbols, self.speculate = local_symbols, speculate
        self.shapes: dict[str, Shape | None] = {}  # by register
        # By id of instruction: what it computes, whatever holds it then.
        self.results: dict[int, Shape | None] = {}
        self.divergent: set[int] = set()  # blocks that lanes may run apart
        # Barriers that all lanes must come to, and that some may come to without the others.
        self.gates: set[int] = set()
        self.guarded: set[int] = set()  # ids of instructions whose lanes must not wrap around
        self.local = _block_locals(flow)  # registers that live within one block
        self.polled: set[int] = set()  # ids of loads that a loop waits on: each must look anew
        self.spinning = [loop for loop in flow.loops if self.may_wait(loop)]
        self.spins = set[int]().union(*self.spinning)  # blocks at whose back edge other warps must be let run
        for target, end in () if flow.reducible else flow.loop_end.items():
            self.spins |= set(range(target, end + 1))
        self.settled: set[int] = set()  # ids of instructions whose result is a vector, and stays one
        self.parted: set[int] = set()  # blocks whose branch is known to send lanes apart
        while self.find_more():
            pass

    def find_more(self) -> bool:
        """Find shapes for the blocks that are divergent so far; return whether that makes more blocks divergent."""
        while self.propagate():
            pass
        before, found = self.divergent, self.find_divergent()
        self.gates |= {index for index in found if self.flow.blocks[index].gate}
        self.divergent = found - self.gates
        return self.divergent != before

    def propagate(self) -> bool:
        changed = False
        self.guarded = set()
        for block in self.flow.blocks:
            apart = block.index in self.divergent
            for instruction in block.all_instructions:
                if id(instruction) in self.settled or not (targets := writes(instruction)):
                    continue
                # An address has to say where all lanes' values are.
                for name in wgmma_registers(instruction)[1]:
                    changed |= self.join(name, VECTOR)
                shape = self.results[id(instruction)] = self.result(instruction)
                if instruction.guard and self.shape_of(instruction.guard) is VECTOR:
                    shape = VECTOR
                for name in targets:
                    own = VECTOR if apart and name not in self.local else shape
                    if own is not None and not self.fits(name, instruction):
                        own = UNIFORM if own.uniform else VECTOR
                    changed |= self.join(name, own)
                if self.results[id(instruction)] is VECTOR and id(instruction) not in self.guarded:
                    self.settled.add(id(instruction))
        return changed

    def fits(self, name: str, instruction: syntax.Instruction) -> bool:
        """Whether a register holds integers of the width that an instruction writes to it.

        NOTE: what is known of a value is known modulo its width; in a wider register it may be wrong.
        """
        type_, parts = self.types.get(name, ""), instruction.parts
        converts = operation_of(instruction).lanes == "converted"
        made = parts[-2:-1] if converts else parts[-1:]
        if not made or made[0] not in TYPE_BYTES or type_[:1] not in ("b", "u", "s"):
            return False
        return bits_of(type_) == bits_of(made[0]) * (2 if "wide" in parts else 1)

    def join(self, name: str, new: Shape | None) -> bool:
        """Take into account that a register may have a shape; return whether that is news."""
        if name not in self.shapes:
            self.shapes[name] = new
            return True
        old = self.shapes[name]
        if old is VECTOR or old == new:
            return False
        merged = VECTOR
        if old is not None and new is not None and old.lanes == new.lanes:
            value = old.value if old.value == new.value else None
            merged = Shape(old.lanes, min(old.zeros, new.zeros), value)
        self.shapes[name] = merged
        return merged != old

    def find_divergent(self) -> set[int]:
        found = set(self.divergent)
        for block in self.flow.blocks:
            condition = block.terminator.condition
            if block.index in self.parted or condition is None:
                continue
            if self.is_uniform(condition):
                continue
            self.parted.add(block.index)
            targets = {t for t in block.terminator.targets if t != EXIT}
            if not self.flow.reducible and len(set(block.terminator.targets)) > 1:
                return set(range(len(self.flow.blocks)))
            if len(targets) > 1:
                found |= self.flow.divergent_region(block.index)
            for loop in self.spinning:
                if block.index in loop and any(t not in loop for t in block.terminator.targets):
                    # Lanes that left may have to act before the others can leave: they run on apart.
                    found |= self.flow.reachable(loop)
        if not self.speculate:
            blocks = [block for block in self.flow.blocks if block.index in found and not block.gate]
            held = {block.index for block in blocks if block.terminator.kind in ("wait", "meet")}
            found |= self.flow.reachable(held)
        return found

    def may_wait(self, loop: set[int]) -> bool:
        """Whether a loop may wait for another thread: it polls, sleeps, or runs atomics."""
        inside = [item for block in sorted(loop) for item in self.flow.blocks[block].instructions]
        polled = self.find_polled_loads(loop, inside)
        self.polled |= polled
        return bool(polled) or any(map(_polls, inside))

    def find_polled_loads(self, loop: set[int], inside: list[syntax.Instruction]) -> set[int]:
        """Return the ids of a loop's plain loads, from a fixed address, that decide whether it ends."""
        written = {name for item in inside for name in writes(item)}
        loads = [
            item
            for item in inside
            if operation_of(item).loads
            and space_of(item) not in ("param", "const")
            and written.isdisjoint(name for operand in item.operands[1:] for name in registers_in(operand))
        ]
        if not loads:
            return set()
        conditions = set()
        for index in loop:
            terminator = self.flow.blocks[index].terminator
            if terminator.condition and any(target not in loop for target in terminator.targets):
                conditions.add(terminator.condition.name)
        sources: dict[str, set[str]] = {}
        for item in inside:
            for name in writes(item):
                sources.setdefault(name, set()).update(reads(item))
        deciding = walk(conditions, lambda name: sources.get(name, ()))
        return {id(item) for item in loads if not deciding.isdisjoint(writes(item))}

    # -- one instruction ------------------------------------------------------------------------
    def shape_of(self, operand: syntax.Operand) -> Shape | None:
        """Return the shape of an operand as it is read."""
        match operand:
            case syntax.Register(name=name):
                if name in self.threads:
                    return self.threads[name]
                if name == "%laneid":
                    return Shape(tuple(range(32)), TOP_ZEROS, 0)
                if name.startswith("%lanemask"):
                    return VECTOR
                if name in self.types:
                    # NOTE: a register nothing has written yet is taken as uniform; it is zero there.
                    return self.shapes.get(name, Shape(zeros=TOP_ZEROS, value=0))
                return UNIFORM
            case syntax.Immediate(value=value, width=0):
                return Shape(zeros=trailing_zeros(value), value=value)
            case syntax.Not(item=item):
                return self.shape_of(item)
            case syntax.Address(base=syntax.Register() as base, offset=offset):
                return add_shapes(self.shape_of(base), Shape(zeros=trailing_zeros(offset), value=offset))
        return UNIFORM

    def is_uniform(self, *operands: syntax.Operand) -> bool:
        """Whether operands are the same in every lane, as they are read."""
        return all(shape is not None and shape.uniform for shape in map(self.shape_of, operands))

    def result(self, instruction: syntax.Instruction) -> Shape | None:
        lanes, parts = operation_of(instruction).lanes, instruction.parts
        match lanes:
            case "own":
                return VECTOR
            case "uniform":
                return UNIFORM
            case "loaded":
                return self.shape_of_load(instruction)
            case "shuffled" | "voted" | "matched":
                return self.shape_of_exchange(instruction, lanes)
            case "moved" | "address" if len(instruction.operands) == 2:
                return self.shape_of_move(instruction, lanes)
        sources = [self.shape_of(operand) for operand in _flat(instruction.operands[1:])]
        if any(shape is VECTOR for shape in sources) or self.narrow_source(instruction):
            return VECTOR
        known = [shape for shape in sources if shape is not None]
        if all(shape.uniform for shape in known) and lanes not in _TRACKED:
            return UNIFORM
        if not parts or parts[-1] not in ("u32", "s32", "b32", "u64", "s64", "b64"):
            return UNIFORM if all(shape.uniform for shape in known) else VECTOR
        return self.shape_of_integer(instruction, lanes, known)

    def narrow_source(self, instruction: syntax.Instruction) -> bool:
        """Whether a register whose lanes differ is narrower than what the instruction reads."""
        type_ = instruction.parts[-1] if instruction.parts else ""
        return type_ in TYPE_BYTES and any(
            isinstance(item, syntax.Register)
            and bits_of(self.types.get(item.name, "b32")) < bits_of(type_)
            and not self.is_uniform(item)
            for item in instruction.operands[1:]
        )

    def shape_of_exchange(self, instruction: syntax.Instruction, lanes: LaneRule) -> Shape | None:
        """Return the shape of what lanes get from one another: uniform, or a vector."""
        operands, parts = instruction.operands, instruction.parts
        same = self.is_uniform
        if lanes == "shuffled" and len(operands) >= 4:
            whole = isinstance(operands[3], syntax.Immediate) and operands[3].value & 0x1F1F == 31
            if "idx" in parts and whole and same(operands[2]):  # one lane's value for all
                return UNIFORM
            return UNIFORM if isinstance(operands[0], syntax.Register) and same(operands[1]) else VECTOR
        if lanes == "matched" and not (len(operands) > 1 and same(operands[1])):
            return VECTOR
        return UNIFORM if "sync" not in parts or (operands and same(operands[-1])) else VECTOR

    def shape_of_move(self, instruction: syntax.Instruction, lanes: LaneRule) -> Shape | None:
        source = instruction.operands[1]
        if isinstance(source, syntax.Symbol) and source.name in self.local_symbols:
            return UNIFORM
        if not isinstance(source, syntax.Register | syntax.Immediate | syntax.Symbol):  # packs or unpacks
            return UNIFORM if self.is_uniform(*_flat((source,))) else VECTOR
        shape = self.shape_of(source)
        if len(writes(instruction)) > 1:
            return UNIFORM if self.is_uniform(source) else VECTOR
        if shape is None or shape.uniform:
            return shape if instruction.parts[-1:] != ("pred",) and lanes == "moved" else shape and UNIFORM
        return shape if lanes == "moved" else Shape(shape.lanes, min(shape.zeros, 32))

    def shape_of_load(self, instruction: syntax.Instruction) -> Shape | None:
        address = instruction.operands[-1] if len(instruction.operands) < 2 else instruction.operands[1]
        base = address.base if isinstance(address, syntax.Address) else None
        if isinstance(base, syntax.Symbol) and base.name in self.local_symbols:
            return VECTOR
        alike = space_of(instruction) in _MEMORY_UNIFORM and "volatile" not in instruction.parts
        return UNIFORM if alike and self.is_uniform(address) else VECTOR

    def shape_of_integer(
        self, instruction: syntax.Instruction, lanes: LaneRule, sources: list[Shape]
    ) -> Shape | None:
        parts = instruction.parts
        if _ODD_PARTS & set(parts) or len(sources) < _FEWEST_SOURCES.get(lanes, 2):
            return UNIFORM if all(shape.uniform for shape in sources) else VECTOR
        match lanes:
            case "compared" if comparison_bound(instruction, sources) is not None:
                return UNIFORM  # it decides the same in every lane
            case "sum":
                return add_shapes(sources[0], sources[1])
            case "difference":
                return add_shapes(sources[0], sources[1].scaled(-1))
            case "product":
                return self.shape_of_product(instruction, sources[0], sources[1])
            case "product and sum":
                product = self.shape_of_product(instruction, sources[0], sources[1])
                return add_shapes(product, sources[2])
            case "shifted left" if (by := sources[1].constant_below(64)) is not None:
                return sources[0].scaled(1 << by)
            case "shifted right" if (by := sources[1].constant_below(32)) is not None:
                return sources[0].shifted_right(by)
            case "and":
                return sources[0].masked(sources[1])
            case "or" | "xor":
                return sources[0].joined(sources[1])
            case "converted":
                return self.shape_of_conversion(instruction, sources[0])
            case "selected":
                same = sources[0].lanes == sources[1].lanes and sources[2].uniform
                return Shape(sources[0].lanes, min(s.zeros for s in sources[:2])) if same else VECTOR
        return UNIFORM if all(shape.uniform for shape in sources) else VECTOR

    def shape_of_product(self, instruction: syntax.Instruction, a: Shape, b: Shape) -> Shape | None:
        type_ = instruction.parts[-1]
        wide = "wide" in instruction.parts
        if b.value is None or not b.uniform:
            a, b = b, a
        if b.value is None or not b.uniform:
            zeros = min(a.zeros + b.zeros, TOP_ZEROS)
            return Shape(zeros=zeros) if a.uniform and b.uniform else VECTOR
        factor = wrap_to_type(b.value, type_) if wide else b.value
        if wide and a.uniform and a.value is not None:
            a = Shape(a.lanes, a.zeros, wrap_to_type(a.value, type_))
        elif wide and not a.uniform:
            widened = self.widen_shape(instruction, a)
            return widened.scaled(factor) if widened is not None else VECTOR
        return a.scaled(factor)

    def shape_of_conversion(self, instruction: syntax.Instruction, source: Shape) -> Shape | None:
        to, of = instruction.parts[-2:] if len(instruction.parts) > 1 else ("", "")
        if to not in _WIDE or of not in _WIDE or source.uniform:
            return UNIFORM if source.uniform else VECTOR
        if bits_of(to) > bits_of(of):
            return self.widen_shape(instruction, source)
        if any(bits_of(self.types.get(name, to)) != bits_of(to) for name in writes(instruction)):
            return VECTOR  # the sum of u and lane is made wider there, not each of them
        return Shape(source.lanes, min(source.zeros, bits_of(to)))

    def widen_shape(self, instruction: syntax.Instruction, source: Shape) -> Shape | None:
        """Return the shape of a 32-bit value in 64 bits: the same, unless a lane may wrap around."""
        if source.value is not None:
            values = [source.value + lane for lane in (0, *source.lanes)]
            if min(values) >= 0 and max(values) < 2**31:
                return source
        # NOTE: a value is known modulo the register's width only: it says nothing of a wider one.
        source = Shape(source.lanes, source.zeros)
        if source.apart and source.zeros < 32:
            return source
        if not self.speculate or max(source.lanes) - min(source.lanes) >= 2**31:
            return VECTOR
        self.guarded.add(id(instruction))
        return source


_WIDE = ("u32", "s32", "u64", "s64")


def _polls(instruction: syntax.Instruction) -> bool:
    """Whether an instruction, in a loop, may wait for what another thread does."""
    operation = operation_of(instruction)
    if operation.polls:
        return True
    return operation.barrier is None and not _POLLING.isdisjoint(instruction.parts)


def _flat(operands: tuple[syntax.Operand, ...]) -> list[syntax.Operand]:
    found: list[syntax.Operand] = []
    for operand in operands:
        found += _flat(operand.items) if isinstance(operand, syntax.Vector) else [operand]
    return found


def _block_locals(flow: Flow) -> set[str]:
    """Return the registers that one block alone uses and writes, without a guard, before it reads them."""
    users: dict[str, set[int]] = {}
    spread: set[str] = set()
    for block in flow.blocks:
        end = block.terminator.instruction
        read_first, _ = summarise(block)
        spread |= read_first.union(writes(end) if end else ())
        for instruction in block.all_instructions:
            for name in (*reads(instruction), *writes(instruction)):
                users.setdefault(name, set()).add(block.index)
    return {name for name, blocks in users.items() if len(blocks) == 1 and name not in spread}
