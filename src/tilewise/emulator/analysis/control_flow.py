"""Control flow: basic blocks in an order in which diverged lanes can be run up to where they reconverge.

Blocks are numbered in reverse post-order with the blocks of a loop together, so that running the lowest
block that has lanes waiting brings lanes back together at the nearest common point.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx import syntax

__all__ = ["EXIT", "Block", "Flow", "build_flow", "walk"]

EXIT = -1  # the successor of lanes that leave the kernel
_MOST_BLOCKS = 8_192
_MOST_IN_LOOPS = 1 << 18  # blocks of all loops together: nesting counts each of them again


@dataclass(slots=True)
class Terminator:
    """How a block ends.

    ``kind`` is "go" (one target), "branch" (condition: first target where true, second where false),
    "table" (an index into targets), "wait" (a barrier; then one target) or "meet" (lanes of the warp wait
    for one another; then one target).
    """

    kind: str
    targets: list[int]
    condition: syntax.Register | None = None
    negated: bool = False
    instruction: syntax.Instruction | None = None


_Node = TypeVar("_Node")
# A block before blocks have their numbers: its targets are places in a list.
_RawBlock = tuple[list[syntax.Instruction], Terminator]


@dataclass(slots=True)
class Block:
    index: int
    instructions: list[syntax.Instruction]
    terminator: Terminator

    @property
    def all_instructions(self) -> list[syntax.Instruction]:
        """The block's instructions, with the one that ends it."""
        end = self.terminator.instruction
        return [*self.instructions, end] if end else self.instructions

    @property
    def leaves(self) -> bool:
        """Whether lanes that come to this block only leave the kernel."""
        return not self.instructions and self.terminator.kind == "go" and self.terminator.targets == [EXIT]

    @property
    def gate(self) -> bool:
        """Whether the block ends in a barrier that all lanes of a warp must run together."""
        instruction = self.terminator.instruction
        return self.terminator.kind == "wait" and instruction is not None and _gathers(instruction)


@dataclass
class Flow:
    blocks: list[Block]
    loop_end: dict[int, int]  # target of a retreating edge → the last block before which its lanes gather
    loops: list[set[int]]  # the blocks of each loop
    reducible: bool

    @property
    def instructions(self) -> list[syntax.Instruction]:
        """All instructions, but for those that end blocks."""
        return [item for block in self.blocks for item in block.instructions]

    def divergent_region(self, branch: int) -> set[int]:
        """Return the blocks that some lanes may reach without the others after ``branch`` diverges.

        Lanes that leave the kernel are gone: they do not keep the others apart. At a gate they meet.
        """
        starts = _targets(self.blocks[branch].terminator)
        meeting = self._meetings.get(branch)
        return self.reachable([start for start in starts if start != meeting], meeting)

    def reachable(self, start: Iterable[int], end: int | None = None) -> set[int]:
        """Return the blocks that lanes may reach from ``start`` without passing a gate or the block ``end``."""

        def following(index: int) -> list[int]:
            block = self.blocks[index]
            return [] if block.gate else [t for t in block.terminator.targets if t not in (EXIT, end)]

        return walk(start, following)

    @functools.cached_property
    def _meetings(self) -> dict[int, int | None]:
        return _post_dominators(self.blocks)


def build_flow(function: syntax.PtxFunction) -> Flow:
    """Cut a function's body into basic blocks, order them and find their loops."""
    raw = _cut_blocks(function)
    _shortcut_exits(raw)
    order, loops, reducible = _order_blocks(raw)
    number = {old: new for new, old in enumerate(order)}
    number[EXIT] = EXIT
    blocks: list[Block] = []
    for new, old in enumerate(order):
        instructions, terminator = raw[old]
        terminator.targets = [number[t] for t in terminator.targets]
        blocks.append(Block(new, instructions, terminator))
    renumbered = [{number[b] for b in loop} for loop in loops]
    return Flow(blocks, _loop_ends(blocks, renumbered), renumbered, reducible)


def _shortcut_exits(raw: list[_RawBlock]) -> None:
    """Turn branches to blocks that only exit into exits, where another target of the branch leads to a barrier.

    Lanes would gather there for the rest of the warp, and that would wait for them at a barrier.
    """
    bare = [(i, end.targets[0]) for i, (body, end) in enumerate(raw) if not body and end.kind == "go"]
    empty, before = {EXIT}, 0
    while before < len(empty):
        before = len(empty)
        empty.update(block for block, target in bare if target in empty)
    predecessors = _reverse({i: _targets(terminator) for i, (_, terminator) in enumerate(raw)})
    barriers = [i for i, (_, terminator) in enumerate(raw) if terminator.kind in ("wait", "meet")]
    waits = walk(barriers, predecessors.__getitem__)
    for _, terminator in raw:
        if terminator.kind in ("branch", "table") and waits.intersection(terminator.targets):
            terminator.targets = [EXIT if target in empty else target for target in terminator.targets]


def _cut_blocks(function: syntax.PtxFunction) -> list[_RawBlock]:
    """Cut a body into blocks, in the order of the text, whose targets are positions in that order."""
    starts: dict[str, int] = {}
    pieces: list[list[syntax.Instruction]] = [[]]
    for item in function.body:
        if isinstance(item, syntax.Label):
            if pieces[-1]:
                pieces.append([])
            starts[item.name] = len(pieces) - 1
            continue
        if operation_of(item).exchanges:
            pieces[-1].append(_warp_sync_before(item))
            pieces.append([])
        if _gathers(item) and pieces[-1]:
            pieces.append([])  # lanes come here one by one, and go on from here together
        pieces[-1].append(item)
        if _ends_block(item):
            pieces.append([])  # behind the last barrier too: lanes leave once it has let them through
    if len(pieces) > _MOST_BLOCKS:
        raise syntax.PtxError(function.line, f"more than {_MOST_BLOCKS:,} blocks")
    raw: list[_RawBlock] = []
    extra: list[_RawBlock] = []
    last = len(pieces)

    def put_behind(body: list[syntax.Instruction], terminator: Terminator) -> int:
        extra.append((body, terminator))
        return last + len(extra) - 1

    for i, piece in enumerate(pieces):
        following = i + 1 if i + 1 < last else EXIT
        final = piece[-1] if piece and _ends_block(piece[-1]) else None
        body = piece[:-1] if final else piece
        if final is None:
            raw.append((body, Terminator("go", [following])))
            continue
        terminator = _terminator(final, following, starts, function)
        barrier = operation_of(final).barrier
        if barrier is not None and barrier.votes:
            # What the barrier found is read in a block of its own, once it has let the lanes through.
            result = replace(final, opcode="bar_result", guard=None, negated=False, written="")
            terminator.targets = [put_behind([result], Terminator("go", [following]))]
        if final.guard is not None and terminator.kind in ("wait", "meet", "table"):
            # A guarded barrier or switch stands in a block of its own, branched around.
            targets = [put_behind([], terminator), following]
            terminator = Terminator("branch", targets, final.guard, final.negated, final)
        raw.append((body, terminator))
    return raw + extra


def _ends_block(item: syntax.Instruction) -> bool:
    return (
        item.opcode in ("bra", "brx", "ret", "exit") or _gathers(item) or bool(operation_of(item).waits_for)
    )


def _gathers(item: syntax.Instruction) -> bool:
    """Whether all lanes of a warp must run an instruction together: a barrier, or a ``wgmma`` fence or wait."""
    return operation_of(item).gathers_lanes(item)


def _warp_sync_before(item: syntax.Instruction) -> syntax.Instruction:
    """Make the ``bar.warp.sync`` that stands before an exchange between lanes, such as ``shfl.sync``."""
    made = replace(item, opcode="bar", parts=("warp", "sync"), operands=item.operands[-1:])
    return replace(made, written="", read_as_bits=False)


def _terminator(
    item: syntax.Instruction, following: int, starts: dict[str, int], function: syntax.PtxFunction
) -> Terminator:
    if item.opcode in ("ret", "exit"):
        if item.guard is None:
            return Terminator("go", [EXIT], instruction=item)
        return Terminator("branch", [EXIT, following], item.guard, item.negated, item)
    operation = operation_of(item)
    if operation.waits_for or operation.gathers_lanes(item):
        kind = "meet" if operation.waits_for == "warp" else "wait"
        return Terminator(kind, [following], instruction=item)
    if item.opcode == "brx":
        return _table(item, starts, function)
    if len(item.operands) != 1 or not isinstance(item.operands[0], syntax.Symbol | syntax.Register):
        raise syntax.PtxError(item.line, "a branch wants one label")
    target = _place(item.operands[0].name, starts, item)
    if item.guard is None:
        return Terminator("go", [target], instruction=item)
    return Terminator("branch", [target, following], item.guard, item.negated, item)


def _table(item: syntax.Instruction, starts: dict[str, int], function: syntax.PtxFunction) -> Terminator:
    match item.operands:
        case (syntax.Register() | syntax.Immediate() as index, syntax.Symbol(name=table)):
            if table in function.tables:
                targets = [_place(label, starts, item) for label in function.tables[table]]
                register = index if isinstance(index, syntax.Register) else None
                return Terminator("table", targets, register, False, item)
    raise syntax.PtxError(item.line, "brx.idx wants an index register and a table of labels")


def _place(name: str, starts: dict[str, int], item: syntax.Instruction) -> int:
    if name not in starts:
        raise syntax.PtxError(item.line, f"there is no label {syntax.name_in_text(name)!r}")
    return starts[name]


def _order_blocks(raw: list[_RawBlock]) -> tuple[list[int], list[set[int]], bool]:
    """Order blocks in reverse post-order, with the blocks of a loop together and before those behind it."""
    first = _reverse_post_order(0, lambda block: _targets(raw[block][1]))
    position = {block: i for i, block in enumerate(first)}
    successors = {block: _targets(raw[block][1]) for block in first}
    predecessors = _reverse(successors)
    dominators = _immediate_dominators(first, predecessors)
    loops: dict[int, set[int]] = {}
    reducible, total = True, 0
    for block in first:
        for target in successors[block]:
            if position[target] > position[block]:
                continue
            if not _dominates(target, block, dominators, position):
                reducible = False
                continue
            body = loops.setdefault(target, {target})
            before = len(body)
            total += len(walk([block], predecessors.__getitem__, body)) - before
        if total > _MOST_IN_LOOPS:
            raise syntax.PtxError(_line_of(raw[block]), "loops within loops beyond what the emulator takes")
    if reducible:
        first.sort(key=_nesting_keys(position, loops).__getitem__)
    return first, list(loops.values()), reducible


def _nesting_keys(position: dict[int, int], loops: dict[int, set[int]]) -> dict[int, tuple[int, ...]]:
    """Map each block to its sort key: the places of the loops around it, outermost first, then its own."""
    around: dict[int, tuple[int, ...]] = dict.fromkeys(position, ())
    for header, body in sorted(loops.items(), key=lambda item: len(item[1]), reverse=True):
        for block in body:
            around[block] += (position[header],)
    return {block: (*places, position[block]) for block, places in around.items()}


def _line_of(piece: _RawBlock) -> int:
    instructions, terminator = piece
    instruction = terminator.instruction or (instructions[-1] if instructions else None)
    return instruction.line if instruction else 0


def _immediate_dominators(order: list[int], predecessors: dict[int, list[int]]) -> dict[int, int]:
    """Map each block to its immediate dominator, by Cooper, Harvey and Kennedy's iteration."""
    position = {block: i for i, block in enumerate(order)}
    found = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [p for p in predecessors[block] if p in found]
            best = known[0]
            for other in known[1:]:
                a, b = best, other
                while a != b:
                    while position[a] > position[b]:
                        a = found[a]
                    while position[b] > position[a]:
                        b = found[b]
                best = a
            if found.get(block) != best:
                found[block] = best
                changed = True
    return found


def _dominates(a: int, b: int, dominators: dict[int, int], position: dict[int, int]) -> bool:
    while position[b] > position[a]:
        b = dominators[b]
    return a == b


def _post_dominators(blocks: list[Block]) -> dict[int, int | None]:
    """Map each block to the nearest block that all lanes pass behind it, those that exit aside.

    Edges on which lanes leave are dropped wherever a block has another way to go on.
    """
    end = len(blocks)
    successors = {block.index: _targets(block.terminator) or [end] for block in blocks} | {end: []}
    predecessors = _reverse(successors)
    reached = walk([end], predecessors.__getitem__)
    for block in range(end - 1, -1, -1):
        if block not in reached:  # an endless loop gets an edge to the end
            successors[block].append(end)
            predecessors[end].append(block)
            walk([block], predecessors.__getitem__, reached)
    found = _immediate_dominators(_reverse_post_order(end, predecessors.__getitem__), successors)
    return {node: (None if above == end else above) for node, above in found.items() if node != end}


def _loop_ends(blocks: list[Block], loops: list[set[int]]) -> dict[int, int]:
    """Map each loop's first block to the last block that lanes which go back wait behind for the others."""
    last = {min(loop): max(loop) for loop in loops}
    ends: dict[int, int] = {}
    for block in blocks:
        for target in block.terminator.targets:
            if target != EXIT and target <= block.index:
                ends[target] = max(ends.get(target, 0), block.index, last.get(target, 0))
    return ends


# -- walks of a graph, whose edges are the successors, or the predecessors, of each block -------------------------
def _targets(terminator: Terminator) -> list[int]:
    """List the blocks that a terminator leads to, each once."""
    return [target for target in dict.fromkeys(terminator.targets) if target != EXIT]


def _reverse(successors: dict[int, list[int]]) -> dict[int, list[int]]:
    predecessors: dict[int, list[int]] = {block: [] for block in successors}
    for block, targets in successors.items():
        for target in targets:
            predecessors[target].append(block)
    return predecessors


def walk(
    starts: Iterable[_Node], following: Callable[[_Node], Iterable[_Node]], seen: set[_Node] | None = None
) -> set[_Node]:
    """Return what can be reached from ``starts``, added to ``seen``, which is not passed."""
    found = set() if seen is None else seen
    stack = list(starts)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += following(node)
    return found


def _reverse_post_order(entry: int, following: Callable[[int], list[int]]) -> list[int]:
    seen: set[int] = set()
    order: list[int] = []
    stack = [(entry, False)]
    while stack:
        block, done = stack.pop()
        if done:
            order.append(block)
        elif block not in seen:
            seen.add(block)
            stack += [(block, True), *((target, False) for target in reversed(following(block)))]
    return order[::-1]
