"""Launch of the kernel for the tensor cores of GPUs since Turing: any tile, rows or columns, any alignment, stacks.

It multiplies float16, with sums in float16 if that is asked for, and bfloat16; float64; float32 in tf32, if that is
asked for; int8, with sums in int32, and float8.

It reads an operand as it lies wherever the elements of a row, or of a column, are neighbours: with accesses of 16, 8,
4 or 2 bytes, as its lines are aligned, which is decided when it is compiled. Those of 8 bits lie along K, aligned for 4
bytes or more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from tilewise.errors import ArgumentError
from tilewise.gpus import arch_capability, limits
from tilewise.kernels.epilogue import epilogue_slot, scales_slot
from tilewise.kernels.gemm.add_parts import (
    MOST_TAIL,
    Tail,
    add_blocks,
    add_step,
    parts_bytes,
    parts_in_turn,
    parts_of,
    tail_parts,
)
from tilewise.kernels.gemm.arrange import ends_whole
from tilewise.kernels.gemm.limits import (
    BYTE_SETTINGS,
    STACK_AXES,
    define_bytes,
    name_defines,
    refuse_blocks,
    refuse_sizes,
    refuse_types,
    scales_terms,
)
from tilewise.kernels.gemm.mma_shapes import SHAPES_OF, shape_of, shapes_for
from tilewise.kernels.spec import (
    KernelSpec,
    MapSlot,
    Operand,
    Operands,
    Settings,
    Slot,
    Step,
    Work,
    ceil_div,
)
from tilewise.kernels.stack import TABLE_SIZES, stack_slot
from tilewise.launch import Launch
from tilewise.operands import ALIGNMENT_MOST, alignment_of
from tilewise.problem import EIGHT_BITS, ELEMENT_BYTES, FLOAT8, Tile
from tilewise.problem import sum_type as sum_type_of
from tilewise.slots import Gap, constant

__all__ = ["SPEC"]

TURING, AMPERE, ADA, HOPPER = (7, 5), (8, 0), (8, 9), (9, 0)
FAST_FLOAT64 = ((8, 0), (9, 0), (10, 0))  # whose tensor cores multiply float64 faster than the SIMT units do
TWO_STAGES_MOST = limits(TURING).shared_per_sm  # bytes
TWO_STAGES = 2  # where copies go by way of registers, one step ahead: on Turing, and of single elements
MOST_SIZE = 2**31 - 1024  # of the kernel's coordinates, with a tile to spare
MOST_ELEMENTS = 2**32 - 1  # that a 32-bit index reaches
LEAST_ACCESS = 4  # bytes: of elements of 8 bits
COPY_LEAST = 2**20  # elements
LINE_PADDING, PADDED_LEAST = 32, 32  # bytes of a line in shared memory; elements of the shortest such line
BOX_ALIGNMENT = 1024  # bytes
RUN = 8  # elements of a line across K that are a row of a box
BOX_DEPTH = 16  # elements of a line along K that are one: 128 bytes
NARROW_MOST = 180  # sums and elements of a step that a thread has registers for
SPLITS = tuple(range(1, 33))
PROMISES = {
    "whole": "must be 0 where C ends within tiles",
    "whole_rows": "must be 0 where C's rows begin or end anywhere",
    "single": "must be 0 for a stack",
}
PROPOSED_SPLITS = (2, 4, 8, 16, 32)  # of all tiles; of the last ones any


UNITS = {
    "float32": "mma_tf32",
    "float64": "mma_f64",
    "int8": "mma_int8",
    **dict.fromkeys(FLOAT8, "mma_fp8"),
}  # of the cost model; others are mma_gemm


def item_bytes(settings: Settings) -> int:
    """Bytes of an element of A and B."""
    return int(ELEMENT_BYTES[str(settings["element"])])


def unit_of(settings: Settings) -> str:
    """The unit of the cost model."""
    if settings["boxes"]:
        return "mma_f64_boxes"
    if settings["accumulate"] == "float16":
        return "mma_f16"
    return UNITS.get(str(settings["element"]), "mma_gemm")


def sum_type(settings: Settings) -> str:
    """The type that the sums of parts of K are added up in."""
    return sum_type_of(str(settings["element"]), scales_terms(settings))


def shared_bytes(settings: Settings) -> int:
    """The ring of stages, which is all the shared memory of a block."""
    tile = shape_of(settings).tile
    stage = (tile.m + tile.n) * tile.k * item_bytes(settings)
    if settings["element"] == "float32":  # lines across K are padded where they are long
        across = (tile.m * (not settings["a_in_rows"]), tile.n * bool(settings["b_in_rows"]))
        stage += sum(tile.k * LINE_PADDING for size in across if size >= PADDED_LEAST)
    if settings["boxes"]:  # behind which lie barriers; boxes begin at multiples of 1,024 bytes
        return int(settings["stages"]) * stage + BOX_ALIGNMENT
    return int(settings["stages"]) * stage


def resident(settings: Settings) -> int:
    """Blocks that an SM is to hold at once: as registers allow; with two stages, as Turing's shared memory does."""
    most = shape_of(settings).resident
    if settings["stages"] != TWO_STAGES:
        return most
    return max(min(most, TWO_STAGES_MOST // shared_bytes(settings)), 1)


# ── how operands lie ──


def has_lines(operand: Operand) -> bool:
    """Whether the elements of each row are neighbours, wherever the rows begin."""
    return operand.column_stride == 1 or operand.columns <= 1 or not operand.rows


def is_readable(operand: Operand) -> bool:
    """Whether the kernel takes the operand as it lies: in lines that are its rows or columns, of 8 bits along K."""
    if operand.itemsize == 1:
        return line_bytes(along_k(operand)) >= LEAST_ACCESS
    return has_lines(operand) or has_lines(operand.transposed())


def along_k(operand: Operand) -> Operand:
    """The operand as its rows would be lines along K: itself, or the transpose of B."""
    return operand.transposed() if operand.name in ("b", "copy_b") else operand


def line_bytes(operand: Operand) -> int:
    """The widest access, up to 16 bytes, that all of its rows are aligned for; 0 if they are no lines."""
    if not has_lines(operand):
        return 0
    apart = (operand.row_stride if operand.rows > 1 else 0, *operand.stack)
    return alignment_of(operand.alignment, *(step * operand.itemsize for step in apart))


def lies(operands: Operands) -> dict[str, int]:
    """The settings that the lie of A and B decides: rows or columns, whichever have wider accesses, and how wide.

    Of 8 bits those along K.
    """
    found = {}
    for name, operand in (("a", operands.a), ("b", operands.b)):
        rows, columns = line_bytes(operand), line_bytes(operand.transposed())
        if operand.itemsize == 1:
            rows, columns = (rows, 0) if name == "a" else (-1, columns)
        found[f"{name}_in_rows"] = int(rows >= columns)
        found[f"{name}_bytes"] = max(rows, columns, operand.itemsize)
    return {**found, "whole_copies": int(are_copied_whole(operands, found))}


def are_copied_whole(operands: Operands, settings: Settings) -> bool:
    """Whether copies of 16 bytes bring all of them, or none."""
    return all(
        int(settings[f"{name}_bytes"]) < ALIGNMENT_MOST or ends_whole(lines_of(name, operand, settings))
        for name, operand in (("a", operands.a), ("b", operands.b))
    )


def come_in_boxes(operands: Operands, settings: Settings) -> bool:
    """Whether the copy engine can bring A and B: lines at multiples of 16 bytes, those across K in whole runs."""
    return settings["element"] == "float64" and all(
        lines.has_rows
        and line_bytes(lines) == ALIGNMENT_MOST
        and (settings[f"{name}_in_rows"] == int(name == "a") or lines.columns % RUN == 0)
        and lines.rows * lines.columns > 0
        for name, operand in (("a", operands.a), ("b", operands.b))
        for lines in [lines_of(name, operand, settings)]
    )


def lines_of(name: str, operand: Operand, settings: Settings) -> Operand:
    """The operand whose rows are the lines that the settings take it for."""
    return operand if settings[f"{name}_in_rows"] else operand.transposed()


def reads_slowly(operand: Operand) -> bool:
    """Whether it is read element by element, and large enough that a launch to copy it may be worth its while."""
    widest = max(line_bytes(operand), line_bytes(operand.transposed()))
    return widest == operand.itemsize and operand.rows * operand.columns >= COPY_LEAST


def narrowest(settings: Settings) -> int:
    """Bytes of the narrowest access."""
    return min(int(settings["a_bytes"]), int(settings["b_bytes"]))


def promises(operands: Operands, settings: Settings) -> dict[str, int]:
    """What is compiled for C and the number of products alone."""
    c, tile = operands.c, shape_of(settings).tile
    return {
        "whole": int(c.rows % tile.m == 0 and c.columns % tile.n == 0),
        "whole_rows": int(line_bytes(c) == ALIGNMENT_MOST and ends_whole(c)),
        "single": int(operands.batch == 1),
    }


def refuse(operands: Operands, settings: Settings) -> ArgumentError | None:
    if unfit := refuse_types(operands, settings) or refuse_sizes(operands, "mma", MOST_SIZE):
        return unfit
    for name, operand in (("a", operands.a), ("b", operands.b)):
        aligned = line_bytes(lines_of(name, operand, settings))
        across = operand.itemsize == 1 and settings[f"{name}_in_rows"] != int(name == "a")
        if not aligned or across:
            return ArgumentError(
                f"{name}_in_rows", "must be as the operand lies", settings[f"{name}_in_rows"]
            )
        least = LEAST_ACCESS if operand.itemsize == 1 else operand.itemsize
        if int(settings[f"{name}_bytes"]) < least:
            rule = f"must be at least {least} for elements of {operand.dtype}"
            return ArgumentError(f"{name}_bytes", rule, settings[f"{name}_bytes"])
        if int(settings[f"{name}_bytes"]) > aligned:
            rule = f"must be at most {aligned}, for which the lines of {name} are aligned"
            return ArgumentError(f"{name}_bytes", rule, settings[f"{name}_bytes"])
    if settings["whole_copies"] and not are_copied_whole(operands, settings):
        return ArgumentError("whole_copies", "must be 0 where lines end within 16 bytes", 1)
    if settings["boxes"] and not come_in_boxes(operands, settings):
        rule = f"must be 0 but for float64 in lines at multiples of 16 bytes, those across k of a multiple of {RUN}"
        return ArgumentError("boxes", rule, 1)
    if settings["boxes"] and settings["stages"] == TWO_STAGES:
        return ArgumentError("stages", "must be more for operands in boxes", TWO_STAGES)
    if not (shapes := shapes_for(settings)):
        name = "scales_a" if settings["scales_a"] else "scales_b"
        return ArgumentError(name, f"must be 0 for {settings['element']}", settings[name])
    if str(settings["partition"]) not in shapes:
        rule = f"must be one of {', '.join(shapes)} for {settings['element']}"
        return ArgumentError("partition", rule, settings["partition"])
    if settings["boxes"] and shapes[str(settings["partition"])].tile.k != BOX_DEPTH:
        return ArgumentError("boxes", f"must be 0 for steps that are not {BOX_DEPTH} of k", 1)
    for name, holds in promises(operands, settings).items():
        if settings[name] and not holds:
            return ArgumentError(name, PROMISES[name], settings[name])
    if (settings["element"] == "float64") != (settings["result"] == "float64"):
        rule = f"must be {'float64' if settings['element'] == 'float64' else 'another type'} for mma"
        return ArgumentError("result", f"{rule} with {settings['element']}", settings["result"])
    if (settings["accumulate"] == "float16") != (operands.accumulate == "float16"):
        rule = f"must be {'float16' if operands.accumulate == 'float16' else 'float32'}"
        return ArgumentError(
            "accumulate", f"{rule} with arithmetic {operands.arithmetic!r}", settings["accumulate"]
        )
    if settings["stages"] != TWO_STAGES and narrowest(settings) == 2:
        return ArgumentError("stages", f"must be {TWO_STAGES} for accesses of 2 bytes", settings["stages"])
    if settings["stages"] == TWO_STAGES and shared_bytes(settings) > TWO_STAGES_MOST:
        rule = f"must be a smaller one with {TWO_STAGES} stages"
        return ArgumentError("partition", rule, settings["partition"])
    inner, split = operands.inner(STACK_AXES), int(settings["split"])
    if (tail := tail_of(operands, settings)) and (unfit := tail.refuse(operands, split)):
        return unfit
    if error := refuse_blocks(max(tiles_of(inner, settings), add_blocks(inner, split) if split > 1 else 0)):
        return error
    if split > 1 and parts_of(operands).stack[0] > MOST_ELEMENTS:
        return ArgumentError("split", "must be 1 for so large a result (32-bit index)", split)
    return None


def refuse_arch(settings: Settings, arch: str) -> ArgumentError | None:
    """Refuse what GPUs of an arch have no instructions or too little shared memory for."""
    capability = arch_capability(arch)
    stages = int(settings["stages"])
    if capability < AMPERE and settings["element"] == "float32":
        return ArgumentError(
            "arithmetic", f"must be None on {arch}", "tf32", "sm_80 is the first that has tf32"
        )
    if capability < ADA and settings["element"] in FLOAT8:
        rule = f"must be of 16 bits, or int8, for kernel mma on {arch}"
        return ArgumentError("element", rule, settings["element"], "sm_89 is the first that has float8")
    if capability < AMPERE and settings["element"] != "float16":
        return ArgumentError("element", f"must be float16 for kernel mma on {arch}", settings["element"])
    if settings["boxes"] and capability < HOPPER:
        return ArgumentError("boxes", f"must be 0 on {arch}", 1, "sm_90 is the first that copies boxes")
    if capability < AMPERE and stages != TWO_STAGES:
        return ArgumentError("stages", f"must be {TWO_STAGES} for kernel mma on {arch}", stages)
    most = limits(capability).shared_per_block_optin
    if shared_bytes(settings) > most:
        rule = f"must leave a block within {most:,} bytes of shared memory on {arch}"
        return ArgumentError("stages", rule, stages, "take fewer, or a smaller partition")
    return None


def proposes_on(settings: Settings, arch: str) -> bool:
    """Whether to propose settings on an arch: two stages only where there cannot be more, float64 where it is fast."""
    if settings["element"] == "float64" and arch_capability(arch) not in FAST_FLOAT64:
        return False
    if settings["boxes"] and arch_capability(arch) < HOPPER:
        return False
    more = arch_capability(arch) >= AMPERE and narrowest(settings) > 2
    return more == (settings["stages"] != TWO_STAGES)


# ── launches ──


def tiles_of(operands: Operands, settings: Settings) -> int:
    """Tiles of C, in the whole stack."""
    (m, n, _), tile = operands.sizes, shape_of(settings).tile
    return ceil_div(m, tile.m) * ceil_div(n, tile.n) * operands.batch


def tail_of(operands: Operands, settings: Settings) -> Tail | None:
    """The last tiles, if they alone are in parts."""
    return Tail.of(operands, shape_of(settings).tile, int(settings["tail"]))


def workspace_bytes(operands: Operands, settings: Settings) -> int:
    """The sums of every part of K; nothing if there is one part."""
    inner, split, sums = operands.inner(STACK_AXES), int(settings["split"]), sum_type(settings)
    return (
        tail.sum_bytes(split, sums) if (tail := tail_of(inner, settings)) else parts_bytes(inner, split, sums)
    )


def candidates(operands: Operands, settings: Settings, sms: int) -> Iterator[Settings]:
    """Every tile that is not much too large; K in parts where there are few tiles."""
    m, n, _ = operands.sizes
    element = str(settings["element"])
    found: dict[str, int | str] = {
        "element": element,
        "accumulate": settings["accumulate"],
        **{name: settings[name] for name in ("scales_a", "scales_b")},
        **lies(operands),
    }
    narrow = narrowest(found) == 2
    for partition, shape in shapes_for(found).items():
        tile = shape.tile
        if tile.m > 2 * max(m, 32) or tile.n > 2 * max(n, 32):
            continue
        if (tile.m < 32 and m > 64) or (tile.n < 32 and n > 64):
            continue  # for few rows, or few columns
        if narrow and (tile.m * tile.n + (tile.m + tile.n) * tile.k) / shape.threads > NARROW_MOST:
            continue
        made: dict[str, int | str] = {**found, "boxes": 0, "partition": partition}
        large = 64 * 32 if element == "float64" else 64 * 64
        if min(m, n) > 64 and tile.m * tile.n < large and tiles_of(operands, made) > 16 * sms:
            continue  # larger ones fill the GPU as well
        proposed = (*(() if narrow else shape.stages), TWO_STAGES)
        yield from _in_parts(operands, made, proposed, sms)
        if shape.box_stages and come_in_boxes(operands, made):
            yield from _in_parts(operands, {**made, "boxes": 1}, shape.box_stages, sms)


def _in_parts(operands: Operands, made: Settings, proposed: tuple[int, ...], sms: int) -> Iterator[Settings]:
    """Settings with each number of stages, and with K in parts where there are few tiles."""
    shape = shape_of(made)
    tile = shape.tile
    for stages in proposed:
        yield {**made, "stages": stages}
    count, turns = tiles_of(operands, made), ceil_div(operands.sizes[2], tile.k) // 4
    most = min(2 * sms // count, turns) if count else 1
    splits = [
        split
        for split in PROPOSED_SPLITS
        if shape.least_parts <= split <= most and tile.m * tile.n <= 128 * 128
    ]
    few = {proposed[0], TWO_STAGES} & set(proposed)
    if deep := shape.part_stages:
        few = {deep, TWO_STAGES} & {deep, *proposed}
    for split, stages in itertools.product(splits[-2:], few):
        yield {**made, "stages": stages, "split": split}
    if operands.batch == 1 and not operands.epilogue.summed and shape.least_parts == 2:
        yield from _with_tails(made, proposed, count, turns, sms)


def _with_tails(
    made: Settings, stages: tuple[int, ...], tiles: int, most: int, sms: int
) -> Iterator[Settings]:
    """The same with the last tiles in parts of K: what is left over when SMs have as many as they hold, or one."""
    for count in dict.fromkeys((stages[0], stages[-1])):
        given = {**made, "stages": count}
        tails = {at_once: tiles % at_once for at_once in (sms, sms * resident(given)) if tiles > at_once}
        found = [(split, tail) for held, tail in tails.items() for split in tail_parts(tail, most, held)]
        for split, tail in dict.fromkeys(found):
            yield {**given, "split": split, "tail": tail}


def steps(operands: Operands, settings: Settings) -> list[Step]:
    c = operands.c
    split, stack = int(settings["split"]), stack_slot(operands)
    parts = Slot(bytes(8), (Gap(0, "workspace"),)) if split > 1 else Slot(bytes(8))
    tail = tail_of(operands, settings)
    multiply = Launch(
        (tail.whole + tail.count * split, 1, 1) if tail else (tiles_of(operands, settings), split, 1),
        (shape_of(settings).threads, 1, 1),
        (
            *operand_slots(operands, settings),
            c.strided(),
            parts,
            stack,
            *((constant("I", tail.whole),) if tail else ()),
            *((scales_slot(operands),) if scales_terms(settings) else ()),
            epilogue_slot(operands, sum_slots(operands, settings)),
        ),
        shared=shared_bytes(settings),
        programmatic=True,
    )
    if split == 1:
        return [Step("mma_gemm", multiply, resident=resident(settings))]
    add = add_step(operands, split, resident(settings), sum_type(settings), tail)
    return [Step("mma_gemm", multiply, resident=resident(settings)), add]


def operand_slots(operands: Operands, settings: Settings) -> tuple[Slot | MapSlot, ...]:
    """What says where A and B lie."""
    if not settings["boxes"]:
        return operands.a.strided(), operands.b.strided()
    stack, tile = () if settings["single"] else operands.stack or (1,), shape_of(settings).tile
    maps = []
    for name, operand, size in (("a", operands.a, tile.m), ("b", operands.b, tile.n)):
        lines = lines_of(name, operand, settings)
        if settings[f"{name}_in_rows"] == int(name == "a"):
            maps.append(lines.map((size, tile.k), tile.k * lines.itemsize, stack))
        else:
            maps.append(lines.map_of_runs(RUN, (size // RUN, tile.k), stack))
    return (*maps, constant("I", operands.sizes[2]))


def sum_slots(operands: Operands, settings: Settings) -> tuple[int, int]:
    """How many partial sums there are of a column, and of a row: each warp's; every element where K is split."""
    m, n, _ = operands.sizes
    if int(settings["split"]) > 1:
        return m, n
    warp = shape_of(settings).warp
    return ceil_div(m, warp.m), ceil_div(n, warp.n)


def work(operands: Operands, settings: Settings) -> Work:
    shape, split = shape_of(settings), int(settings["split"])
    tail = tail_of(operands, settings)
    return Work(
        unit_of(settings),
        shape.tile,
        shape.threads,
        resident=resident(settings),
        stages=int(settings["stages"]),
        split=1 if tail else split,
        parts=split if tail else 1,
        parts_in_turn=parts_in_turn(operands, split, tail) if tail else 1,
        tail=tail.count if tail else 0,
        launches=1 if split == 1 or tail else 2,
        extra_bytes=2 * workspace_bytes(operands, settings),
        load_bytes=narrowest(settings),
        store_bytes=line_bytes(operands.c),
        shared_bytes=shared_bytes(settings),
    )


def defines(settings: Settings) -> dict[str, object]:
    shape = shape_of(settings)
    return {
        "BLOCK_M": shape.tile.m,
        "BLOCK_N": shape.tile.n,
        "BLOCK_K": shape.tile.k,
        "WARP_M": shape.warp.m,
        "WARP_N": shape.warp.n,
        "RESIDENT": resident(settings),
        **({"TAIL": 1} if settings["tail"] else {}),
        **name_defines(
            settings,
            "stages",
            "split",
            "a_in_rows",
            "b_in_rows",
            "a_bytes",
            "b_bytes",
            "whole_copies",
            "boxes",
        ),
        **name_defines(settings, "whole", "whole_rows", "single"),
        **name_defines(settings, "element", "result", "pointers"),
        **define_bytes(settings),
        "ACCUMULATE": "float16" if settings["accumulate"] == "float16" else sum_type(settings),
        "THREADS": shape.threads,
        "SHARED_BYTES": shared_bytes(settings),
    }


def tiles(settings: Settings) -> dict[str, Tile]:
    """The tiles at every level."""
    shape = shape_of(settings)
    return {"block": shape.tile, "warp": shape.warp}


SPEC = KernelSpec(
    name="mma",
    superseded=lambda dtype, arch: arch == "sm_90a" and dtype in ("float16", "bfloat16", *EIGHT_BITS),
    title="tensor cores since Turing: any tile, rows or columns, any alignment, stacks",
    file=Path(__file__).with_suffix(".cu"),
    entries=("mma_gemm",),
    steps=steps,
    work=work,
    settings={
        "partition": tuple(dict.fromkeys(name for shapes in SHAPES_OF.values() for name in shapes)),
        "element": tuple(SHAPES_OF),
        "result": (*SHAPES_OF, "int32"),
        "stages": (3, 4, TWO_STAGES, 6),
        "split": SPLITS,
        "tail": range(MOST_TAIL),  # of tiles, the last ones, which alone are in parts; 0: all are
        "a_in_rows": (1, 0),
        "b_in_rows": (1, 0),
        "a_bytes": (16, 8, 4, 2),  # of an access
        "b_bytes": (16, 8, 4, 2),
        "whole_copies": (0, 1),  # whether those of 16 bytes bring all of them, or none
        "boxes": (0, 1),  # whether the copy engine brings them
        "whole": (0, 1),  # C has whole tiles alone
        "whole_rows": (0, 1),  # its rows begin and end at multiples of 16 bytes
        "single": (0, 1),  # there is one product, no stack
        "accumulate": ("float32", "float16"),  # what sums are kept in, but of float64 and int8
        "pointers": TABLE_SIZES,
        **BYTE_SETTINGS,
    },
    refuse=refuse,
    refuse_arch=refuse_arch,
    proposes_on=proposes_on,
    workspace=workspace_bytes,
    candidates=candidates,
    promises=promises,
    element_types=tuple(SHAPES_OF),
    arithmetic={"float32": ("tf32",), "float16": (None, "f16")},
    accumulate=sum_type,
    defines=defines,
    tiles=tiles,
    raster="grouped",
    stack_axes=STACK_AXES,
    epilogues=True,
    sum_slots=sum_slots,
    readable=is_readable,
    reads_slowly=reads_slowly,
    lies="have rows or columns whose elements are neighbours, of 8 bits along k at multiples of 4 bytes,",
)
