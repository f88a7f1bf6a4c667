"""A kernel's flow → one LLVM function that runs a warp until it stops.

The function is entered at the warp's resume point, runs all lanes together where they cannot diverge
(*together* blocks: plain jumps, no masks beyond the lanes that have left) and block by block with masks
where they can (*apart* blocks: the lanes that wait for each block are a mask; the lowest block with lanes
goes next, and at the end of a loop the lanes that went back). It returns when the warp leaves, waits,
yields or fails. Registers that are still needed are then in the warp's memory.
"""

from __future__ import annotations

import bisect

from tilewise.emulator.analysis.control_flow import EXIT, Block
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.analysis.shapes import UNIFORM
from tilewise.emulator.layout import LAUNCH, WARP, Answer, FaultKind
from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.lowering.instructions import complete
from tilewise.emulator.lowering.piece_functions import Pieces
from tilewise.emulator.lowering.suspend import RESUME_APART, can_diverge, waiting_blocks
from tilewise.emulator.lowering.tables import check_operand_count, unsupported
from tilewise.emulator.lowering.watch import watcher_for
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.types import llvm_scalar

__all__ = ["Lowering"]

_POLL = 1 << 15  # instructions in loops between looks at the stop flag
_STRETCH = 256  # instructions in a row between looks; LLVM's time grows with the square of what lies between
_FAIR = 64  # turns of a loop of lanes apart before others of the warp are let run
_ROUNDS = 16  # times that lanes start over from the top before other warps are let run


class Lowering(Pieces):
    """The whole of one kernel."""

    def __init__(
        self, program: Program, general: bool, name: str, mode: str = "plain", sums: str = "fast"
    ) -> None:
        super().__init__(program, general, name)
        self.sums = sums  # how tensor cores add: "fast" or "hardware"
        self.watcher = watcher_for(mode, self)
        apart, blocks = self.analysis.divergent, program.flow.blocks
        self.chain = waiting_blocks(program, self.analysis)
        self.pending = dict.fromkeys(self.chain, "")
        self.stations = self._stations()
        self.meets_apart = any(blocks[index].terminator.kind == "meet" for index in apart)
        self.waits_apart = self.meets_apart or any(blocks[index].terminator.kind == "wait" for index in apart)
        self.gates = sorted(self.analysis.gates.intersection(self.chain))
        self.leaving = [i for i in self.chain if self.gates and i not in apart and blocks[i].leaves]
        self.full = program.thread_count % 32 == 0 and not self._lanes_leave()
        self.grouped = not general and self.full
        self.cut_blocks()

    # -- the whole ------------------------------------------------------------------------------
    def text(self) -> str:
        self._prologue()
        for block in self.program.flow.blocks:
            self._block(block)
        for target in self.program.flow.loop_end:
            if target in self.pending:
                self._repeat_loop_apart(target)
        if self.chain:
            self._chain_end()
        self.place("leave")
        if self.watcher:
            self.watcher.leave(self.load("i32", self.live, 4))
        self.line(f"ret i32 {int(Answer.EXIT)}")
        self.place("failed")
        self.line(f"ret i32 {int(Answer.FAULT)}")
        self.place("stopped")
        self.line(f"ret i32 {int(Answer.STOP)}")
        body = self.lines
        self.lines = []
        self._entry()
        arguments = "ptr noalias %ctx, ptr noalias %worker, ptr %block, ptr noalias %warp"
        head = f"define i32 @{self.name}({arguments}) #0 {{"
        return "\n".join([head, "entry:", *self.allocas, *self.lines, *body, "}"])

    def _stations(self) -> list[tuple[int, int, int, str]]:
        """What lanes apart pass on their way down: blocks, and the ends of loops, inner ones first."""
        found = [(index, 0, 0, f"check.{index}") for index in self.chain]
        for target, end in self.program.flow.loop_end.items():
            if target in self.pending:
                found.append((end, 1, -target, f"back.{target}"))
        return sorted(found)

    def _diverges(self, block: Block) -> bool:
        return can_diverge(self.program, self.analysis, block)

    def _lanes_leave(self) -> bool:
        """Whether some lanes may leave before others."""
        if self.leaving:
            return True
        for block in self.program.flow.blocks:
            if EXIT in block.terminator.targets and (
                block.index in self.analysis.divergent or self._diverges(block)
            ):
                return True
        return False

    def _prologue(self) -> None:
        for name, type_ in self.types.items():
            shape = self.analysis.shapes.get(name, UNIFORM)
            scalar = llvm_scalar(type_)
            llvm = vector(scalar) if shape is None else scalar
            if name in self.program.resident:
                self.registers[name] = f"%kept.{self.program.slots[name]}"
            elif not self.cut.pieces:
                self.registers[name] = self.alloca(llvm)
        if self.cut.homes:
            self.allocas.append(f"  %frame = alloca [{self.cut.bytes} x i8], align 64")
        self.live = self.alloca("i32")
        self.current = self.alloca("i32")
        self.turns = self.alloca("i32")
        self.rounds = self.alloca("i32")
        looped = self.program.flow.loop_end.keys() & self.analysis.spins
        self.fairness = {target: self.alloca("i32") for target in sorted(looped)}
        for index in self.chain:
            self.pending[index] = f"%pending.{index}" if self.masks_in_memory else self.alloca("i32")
        self.labels = {block.index: f"body.{block.index}" for block in self.program.flow.blocks}

    def _entry(self) -> None:
        """The function's first lines: pointers, empty registers, the jump to the resume point."""
        self.launch_values()
        read_first = self.merged | self.program.liveness.entry[0]
        for name, home in self.cut.homes.items():
            self.line(f"{self.registers[name]} = getelementptr i8, ptr %frame, i64 {home}")
        for name, slot in self.registers.items():
            if name in self.program.resident:
                offset = self.program.slots[name]
                self.line(f"{slot} = getelementptr i8, ptr %warp, i64 {offset}")
            elif name in read_first:  # NOTE: of each that is emptied, LLVM looks for the end of its emptiness
                self.store(self.zero(self.stored_type(name)), slot, 4)
        live = self.load("i32", self.offset("%warp", WARP.LIVE), 4)
        self.store(live, self.live, 4)
        counters = (self.turns, self.rounds, *self.fairness.values())
        masks = list(self.pending.values())
        for slot in (self.current, *counters, *(() if self.masks_in_memory else masks)):
            self.store(self.const("i32", 0), slot, 4)
        if self.masks_in_memory:
            for index in self.chain:
                place = WARP.HEADER + 4 * index
                self.line(f"{self.pending[index]} = getelementptr i8, ptr %warp, i64 {place}")
        self.warp_index()
        resume = self.load("i32", self.offset("%warp", WARP.RESUME), 4)
        cases = " ".join(f"i32 {n}, label %{label}" for n, label in self._resume_labels())
        self.line(f"switch i32 {resume.ref}, label %start [ {cases} ]")
        self.place("start")
        for slot in masks if self.masks_in_memory else ():
            self.store(self.const("i32", 0), slot, 4)
        for name in sorted(self.program.resident):
            self.store(self.zero(self.stored_type(name)), self.registers[name], 64)
        if 0 in self.analysis.divergent:
            self.store(live, self.pending[0], 4)
            self.jump("check.0")
        else:
            self.jump(self.labels[0])

    def _resume_labels(self) -> list[tuple[int, str]]:
        return [(int(label.split(".")[1]), label) for label in self.resumes]

    # -- blocks ---------------------------------------------------------------------------------
    def _block(self, block: Block) -> None:
        self.block = block
        if block.index in self.pending:
            self._check(block)
        self.place(self.labels[block.index])
        if self.watcher:
            self.watcher.block()
        pieces = {piece.start: piece for piece in self.cut.pieces.get(block.index, ())}
        behind = polled = 0
        for position, instruction in enumerate(block.instructions):
            if position < behind:
                continue
            if position - polled >= _STRETCH:
                self._poll("")
                polled = position
            if position in pieces:
                self.piece(block, pieces[position])
                behind = pieces[position].end
                continue
            if self.general and id(instruction) in self.deopts:
                number, _ = self.deopts[id(instruction)]
                here = self.label("at")
                self.jump(here)
                self.resume(number, self.live_at(block, position), here, from_fast=True)
                self.place(here)
            self.instruction(instruction)
        self._terminator(block)

    def _check(self, block: Block) -> None:
        """Take the lanes that wait for a block, or pass on to the next."""
        self.place(f"check.{block.index}")
        free, some = self._ready(block.index)
        take = self.label("take")
        self.branch(some, take, self._next_station(block.index))
        self.place(take)
        left = self.op("xor", self.load("i32", self.pending[block.index], 4), free)
        self.store(left, self.pending[block.index], 4)
        if block.index in self.analysis.divergent:
            self.store(free, self.current, 4)
        self.jump(self.labels[block.index])

    def _ready(self, index: int) -> tuple[Value, Value]:
        """The lanes that wait for a block and are not blocked; whether they can run it.

        A block that all lanes run together waits until all are there.
        """
        free = self.load("i32", self.pending[index], 4)
        if self.waits_apart:
            blocked = self.load("i32", self.offset("%warp", WARP.BLOCKED), 4)
            free = self.op("and", free, self.op("xor", blocked, self.const("i32", -1)))
        some = self.compare("icmp ne", free, self.const("i32", 0))
        if index not in self.analysis.divergent:
            live = self.const("i32", -1) if self.full else self.load("i32", self.live, 4)
            some = self.op("and", some, self.compare("icmp eq", free, live))
        return free, some

    def _next_station(self, index: int, kind: int = 0, target: int = 0) -> str:
        at = bisect.bisect_right(self.stations, (index, kind, -target, "~"))
        return self.stations[at][3] if at < len(self.stations) else "chain.end"

    def _terminator(self, block: Block) -> None:
        terminator = block.terminator
        if terminator.kind in ("wait", "meet"):
            assert terminator.instruction is not None
            with complete(terminator.instruction):
                (self._wait if terminator.kind == "wait" else self._sync_lanes)(block)
        elif self.is_apart:
            self._end_apart(block)
        elif terminator.kind == "go":
            self._go(block.index, terminator.targets[0])
        elif self._diverges(block):
            self._diverge(block)
        elif terminator.kind == "table":
            self._table(block)
        else:
            assert terminator.condition is not None
            yes, no = terminator.targets[::-1] if terminator.negated else terminator.targets
            condition = self.read(terminator.condition, "pred", False)
            first, second = self.label("to"), self.label("to")
            self.branch(condition, first, second)
            self.place(first)
            self._go(block.index, yes)
            self.place(second)
            self._go(block.index, no)

    def _go(self, source: int, target: int) -> None:
        """All lanes go on together."""
        if target == EXIT:
            self.jump("leave")
            return
        if target <= source:
            self._repeat_loop(target)
        if target in self.analysis.divergent:
            self.store(self.mask(), self.pending[target], 4)
            self.jump(f"check.{target}")
        else:
            self.jump(self.labels[target])

    def _repeat_loop(self, target: int) -> None:
        """Go back to a loop's start: poll the stop flag now and then, and yield if the loop waits for other warps."""
        spins = target in self.analysis.spins
        label, look = self.label("turn"), self.label("look")
        # NOTE: a counter for each period: what other loops count could keep this one off its multiples.
        turn = self._every_nth(self.rounds, _ROUNDS) if spins else self._poll_due(target)
        self.branch(turn, look, label, likely=False)
        self.place(look)
        self._poll(label if not spins else "")
        if spins:
            self._name_loop(target)
            number = self.new_resume()
            self.stop(Answer.YIELD, number, self.live_at(self.program.flow.blocks[target], 0))
            self.resume(number, self.live_at(self.program.flow.blocks[target], 0), label)
        self.place(label)

    def _name_loop(self, target: int) -> None:
        """Record the line of the loop, for the message of a deadlock in it."""
        instructions = [item for block in self._blocks_of_loop(target) for item in block.instructions]
        rows = [(item, operation_of(item)) for item in instructions]
        asking = [item for item, row in rows if row.returns_old or "volatile" in item.parts]
        asking += [item for item, row in rows if row.loads or id(item) in self.analysis.polled]
        if first := next(iter(asking or instructions), None):
            self.store(self.const("i32", first.line), self.offset("%warp", WARP.LOOP), 4)

    def _blocks_of_loop(self, target: int) -> list[Block]:
        """The blocks of the loop that begins with a block."""
        return self.program.flow.blocks[target : self.program.flow.loop_end[target] + 1]

    def _poll_due(self, target: int) -> Value:
        """Count the instructions of one more turn of a loop: whether it is time to poll the stop flag."""
        length = sum(len(block.instructions) for block in self._blocks_of_loop(target))
        count = self.op("add", self.load("i32", self.turns, 4), self.const("i32", min(length + 8, _POLL)))
        self.store(count, self.turns, 4)
        return self.compare("icmp uge", count, self.const("i32", _POLL))

    def _poll(self, on: str) -> None:
        """Return if the launch's stop flag is set; else go on."""
        self.store(self.const("i32", 0), self.turns, 4)
        stop = self.load("i32", self.offset("%ctx", LAUNCH.STOP), 4, volatile=True)
        on = on or self.label("go")
        self.branch(self.compare("icmp eq", stop, self.const("i32", 0)), on, "stopped", likely=True)
        if on.startswith("go."):
            self.place(on)

    def _table(self, block: Block) -> None:
        terminator = block.terminator
        assert terminator.instruction is not None
        index = self.read(terminator.instruction.operands[0], "u32", False)
        bad = self.label("bad")
        labels = [self.label("case") for _ in terminator.targets]
        cases = " ".join(f"i32 {i}, label %{label}" for i, label in enumerate(labels))
        self.line(f"switch i32 {index.ref}, label %{bad} [ {cases} ]")
        for label, target in zip(labels, terminator.targets, strict=True):
            self.place(label)
            self._go(block.index, target)
        self.place(bad)
        self.fault_now(FaultKind.BAD_INDEX, terminator.instruction)

    # -- lanes apart ----------------------------------------------------------------------------
    def _diverge(self, block: Block) -> None:
        """Lanes run together so far go different ways."""
        self._split(block, self.mask())
        if all(t == EXIT or t not in self.pending for t in block.terminator.targets):
            self.jump("leave")
            return
        down = [t for t in block.terminator.targets if t > block.index]
        self.jump(f"check.{min(down)}" if down else self._next_station(block.index))

    def _end_apart(self, block: Block) -> None:
        self._split(block, self.load("i32", self.current, 4))
        self.jump(self._next_station(block.index))

    def _repeat_loop_apart(self, target: int) -> None:
        """Lanes gathered at a loop's end go back to its start, but let the rest of the warp run now and then."""
        self.place(f"back.{target}")
        _, some = self._ready(target)
        again, on = self.label("again"), self._next_station(self.program.flow.loop_end[target], 1, target)
        self.branch(some, again, on)
        self.place(again)
        self._poll_apart(target)
        if target in self.analysis.spins:
            self._name_loop(target)
            rare = self._every_nth(self.fairness[target], _FAIR)
            self.branch(rare, on, f"check.{target}")
        else:
            self.jump(f"check.{target}")

    def _every_nth(self, counter: str, every: int) -> Value:
        """Count up: whether the count is a multiple of ``every``, a power of two."""
        count = self.op("add", self.load("i32", counter, 4), self.const("i32", 1))
        self.store(count, counter, 4)
        low = self.op("and", count, self.const("i32", every - 1))
        return self.compare("icmp eq", low, self.const("i32", 0))

    def yield_soon(self, idle: Value) -> None:
        """Where ``idle`` holds, as what the warp waits for has not happened: yield at the next turn of its loop."""
        inside = [target for target in self.fairness if self.block in self._blocks_of_loop(target)]
        counters = [(self.rounds, _ROUNDS), *((self.fairness[target], _FAIR) for target in inside)]
        for counter, every in counters:
            last = self.const("i32", every - 1)
            self.store(self.select(idle, last, self.load("i32", counter, 4)), counter, 4)

    def _poll_apart(self, target: int) -> None:
        """Poll the stop flag if that is due, while lanes are apart."""
        label, look = self.label("turn"), self.label("look")
        self.branch(self._poll_due(target), look, label, likely=False)
        self.place(look)
        self._poll(label)
        self.place(label)

    def _split(self, block: Block, lanes: Value) -> None:
        """Send the lanes of a block to its targets."""
        terminator = block.terminator
        if terminator.kind == "go":
            self._send(terminator.targets[0], lanes)
            return
        if terminator.kind == "table":
            self._split_table(block, lanes)
            return
        assert terminator.condition is not None
        condition = self.bits(self.splat(self.read(terminator.condition, "pred", True)))
        yes, no = terminator.targets[::-1] if terminator.negated else terminator.targets
        taken = self.op("and", lanes, condition)
        rest = self.op("and", lanes, self.op("xor", condition, self.const("i32", -1)))
        if self.watcher:
            self.watcher.split(taken, rest)
        self._send(yes, taken)
        self._send(no, rest)

    def _split_table(self, block: Block, lanes: Value) -> None:
        terminator = block.terminator
        assert terminator.instruction is not None
        index = self.read(terminator.instruction.operands[0], "u32", True)
        left = lanes
        for i, target in enumerate(terminator.targets):
            chosen = self.bits(self.compare("icmp eq", index, self.const(index, i)))
            mine = self.op("and", left, chosen)
            self._send(target, mine)
            left = self.op("and", left, self.op("xor", chosen, self.const("i32", -1)))
        bad, good = self.label("bad"), self.label("good")
        self.branch(self.compare("icmp eq", left, self.const("i32", 0)), good, bad, likely=True)
        self.place(bad)
        self.fault_now(FaultKind.BAD_INDEX, terminator.instruction)
        self.place(good)

    def _send(self, target: int, lanes: Value) -> None:
        if target == EXIT:
            self._exit_lanes(lanes)
            return
        waiting = self.load("i32", self.pending[target], 4)
        self.store(self.op("or", waiting, lanes), self.pending[target], 4)

    def _exit_lanes(self, lanes: Value) -> None:
        """Some lanes exit the kernel."""
        live = self.op("and", self.load("i32", self.live, 4), self.op("xor", lanes, self.const("i32", -1)))
        self.store(live, self.live, 4)
        if self.watcher:
            self.watcher.leave(lanes)
        self.call("tw_depart", "void", *self.pointers(), lanes)
        if self.meets_apart:
            zero = self.const("i32", 0)
            self.call("tw_meet", "void", Value("ptr", "%warp"), zero, zero)

    def _chain_end(self) -> None:
        """No lanes wait further down: start over from the top, stop, or leave."""
        self.place("chain.end")
        waiting = able = self.const("i32", 0)
        for index in self.chain:
            waiting = self.op("or", waiting, self.load("i32", self.pending[index], 4))
            if self.waits_apart or self.gates:
                free, ready = self._ready(index)
                able = self.op("or", able, self.select(ready, free, self.const("i32", 0)))
        some, over, first = self.label("some"), self.label("over"), self.stations[0][3]
        self.branch(self.compare("icmp ne", waiting, self.const("i32", 0)), some, "leave")
        self.place(some)
        saved = self.live_apart()
        if self.waits_apart or self.gates:
            halt = self.label("halt")
            self.branch(self.compare("icmp ne", able, self.const("i32", 0)), over, halt)
            self.place(halt)
            self._suspend_blocked(waiting, saved)
            self.place(over)
        self._poll("")
        others = self.label("others")
        self.branch(self._every_nth(self.rounds, _ROUNDS), others, first)
        self.place(others)
        if self.gates:
            self._record_gate_lanes()
        self.stop(Answer.YIELD, RESUME_APART, saved)
        self.resume(RESUME_APART, saved, first)

    def _suspend_blocked(self, waiting: Value, saved: set[str]) -> None:
        """None of the lanes can run: suspend the warp. Lanes that only others of the warp can release go on without
        them."""
        if self.leaving:
            self._exit_waiting()
        if self.gates:
            self._fault_if_stuck(*self._record_gate_lanes())
        if not self.waits_apart:
            return
        blocked = self.load("i32", self.offset("%warp", WARP.BLOCKED), 4)
        if not self.general:
            alone, every = self.label("alone"), self.label("every")
            held = self.op("and", waiting, self.op("xor", blocked, self.const("i32", -1)))
            self.branch(self.compare("icmp ne", held, self.const("i32", 0)), alone, every)
            self.place(alone)
            self.stop(Answer.DEOPT, RESUME_APART, saved, self.program.general)
            self.place(every)
        self.stop(Answer.WAIT, RESUME_APART, saved)

    def _exit_waiting(self) -> None:
        """Let lanes exit that wait for the others where nothing but the exit follows."""
        lanes = zero = self.const("i32", 0)
        for index in self.leaving:
            waiting = self.load("i32", self.pending[index], 4)
            free, _ = self._ready(index)
            self.store(self.op("xor", waiting, free), self.pending[index], 4)
            lanes = self.op("or", lanes, free)
        some, on = self.label("some"), self.label("on")
        self.branch(self.compare("icmp ne", lanes, zero), some, on)
        self.place(some)
        self._exit_lanes(lanes)
        self.jump(self.stations[0][3])
        self.place(on)

    def _record_gate_lanes(self) -> tuple[Value, Value]:
        """The lanes at the first gate that has some, and its line; recorded for the message of a deadlock."""
        lanes = line = self.const("i32", 0)
        for index in reversed(self.gates):
            instruction = self.program.flow.blocks[index].terminator.instruction
            assert instruction is not None
            here = self.load("i32", self.pending[index], 4)
            some = self.compare("icmp ne", here, self.const("i32", 0))
            lanes = self.select(some, here, lanes)
            line = self.select(some, self.const("i32", instruction.line), line)
        self.store(lanes, self.offset("%warp", WARP.GATE), 4)
        self.store(line, self.offset("%warp", WARP.GATE_LINE), 4)
        return lanes, line

    def _fault_if_stuck(self, lanes: Value, line: Value) -> None:
        """End the launch with a fault if lanes at a gate wait for lanes of their warp that can never come there."""
        if not self.waits_apart:
            self._fault_apart(lanes, line)
            return
        helped = self.load("i32", self.offset("%warp", WARP.BLOCKED), 4)  # lanes that others may let go
        if self.general:
            meeting = self.load("i32", self.offset("%warp", WARP.MEETING), 4)
            helped = self.op("and", helped, self.op("xor", meeting, self.const("i32", -1)))
        no_help = self.compare("icmp eq", helped, self.const("i32", 0))
        some = self.compare("icmp ne", lanes, self.const("i32", 0))
        wrong, on = self.label("wrong"), self.label("on")
        self.branch(self.op("and", no_help, some), wrong, on, likely=False)
        self.place(wrong)
        self._fault_apart(lanes, line)
        self.place(on)

    def _fault_apart(self, lanes: Value, line: Value) -> None:
        """End the launch with a fault: some lanes of the warp wait at a barrier to which the others do not come."""
        others = self.op("and", self.load("i32", self.live, 4), self.op("xor", lanes, self.const("i32", -1)))
        high = self.op("shl", self.cast("zext", others, "i64"), self.const("i64", 32))
        both = self.op("or", self.cast("zext", lanes, "i64"), high)
        self.declare("llvm.cttz.i32", "i32", ["i32", "i1"])
        lane = self.op(
            "and", self.set("i32", f"call i32 @llvm.cttz.i32({lanes}, i1 false)"), self.const("i32", 31)
        )
        zero = self.const("i32", 0)
        kind = self.const("i32", int(FaultKind.APART))
        self.call(
            "tw_fault_at",
            "void",
            *self.pointers(),
            kind,
            line,
            lane,
            both,
            zero,
            zero,
            zero,
            self.const("i64", 0),
        )
        self.jump("failed")

    def _sync_lanes(self, block: Block) -> None:
        """``bar.warp.sync``: where lanes are apart, those that are here wait for the others that the mask names."""
        instruction, target = block.terminator.instruction, block.terminator.targets[0]
        assert instruction is not None
        self.now, self.guard = instruction, None
        check_operand_count(instruction, 1)
        if not self.is_apart:
            if self.watcher:
                self.watcher.through(instruction)
            self._go(block.index, target)
            return
        await_lanes = operation_of(instruction).wait
        assert await_lanes is not None
        await_lanes(self, instruction)
        if self.watcher:
            self.watcher.through(instruction)
        self._send(target, self.load("i32", self.current, 4))
        self.jump(self._next_station(block.index))

    def _wait(self, block: Block) -> None:
        """A barrier: go on if it lets the lanes through at once, else stop."""
        instruction, target = block.terminator.instruction, block.terminator.targets[0]
        assert instruction is not None
        self.now, self.guard = instruction, None
        if self.watcher:
            self.watcher.wait(instruction)
        operation = operation_of(instruction)
        if operation.wait is None:
            raise unsupported(instruction)
        answer = operation.wait(self, instruction)
        failed = self.compare("icmp eq", answer, self.const("i32", 2))
        good = self.label("good")
        self.branch(failed, "failed", good, likely=False)
        self.place(good)
        if self.is_apart:
            self._send(target, self.load("i32", self.current, 4))
            self.jump(self._next_station(block.index))
            return
        if not operation.waits_for:
            self._go(block.index, target)
            return
        through, halt = self.label("through"), self.label("halt")
        self.branch(self.compare("icmp eq", answer, self.const("i32", 0)), through, halt)
        saved = set() if target == EXIT else self.live_at(self.program.flow.blocks[target], 0)
        number = self.new_resume()
        self.place(halt)
        self.stop(Answer.WAIT, number, saved)
        self.resume(number, saved, through)
        self.place(through)
        if self.watcher:
            self.watcher.through(instruction)
        self._go(block.index, target)
