"""``wgmma``: four warps multiply a matrix of 64 rows by one in shared memory, some time after they ask to.

Sums and the elements of A that are in registers live in the warp's memory, always, so that a product in
flight can name them by address. What is issued is put on a list of the warp's (``support/wgmma_queue.py``); the
functions that multiply are made here for the forms that the kernel has (``wgmma_kernels.py``).

PTX wants all threads of all four warps to come to each of these instructions. A warp that comes without some
of its lanes, or whose warpgroup the block has only in part, is a fault; one that waits for others that never
commit is a deadlock.
"""

from __future__ import annotations

from dataclasses import replace

from tilewise.emulator.families.sparse import find_sparsity
from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.tables import effect, refuse_other_forms, unsupported, waits
from tilewise.emulator.lowering.values import read
from tilewise.emulator.numerics.tensor_core import ELEMENTS
from tilewise.emulator.operations.operation import GroupUse
from tilewise.emulator.ptx.syntax import Immediate, Instruction, Not, Operand, Register, Vector, items_of
from tilewise.emulator.ptx.types import bits_of
from tilewise.emulator.support.wgmma_kernels import WgmmaForm, multiply, pack

__all__ = ["matrices_of", "shared_bytes_of"]

_WIDE = range(8, 257, 8)
_WHOLE = (8, 16, 24, *range(32, 257, 16))  # columns that integers and bits may have
# Type of A → k, types of B, of D, columns.
_FORMS: dict[str, tuple[int, tuple[str, ...], tuple[str, ...], range | tuple[int, ...]]] = {
    "f16": (16, ("f16",), ("f16", "f32"), _WIDE),
    "bf16": (16, ("bf16",), ("f32",), _WIDE),
    "tf32": (8, ("tf32",), ("f32",), _WIDE),
    "e4m3": (32, ("e4m3", "e5m2"), ("f16", "f32"), _WIDE),
    "e5m2": (32, ("e4m3", "e5m2"), ("f16", "f32"), _WIDE),
    "s8": (32, ("s8", "u8"), ("s32",), _WHOLE),
    "u8": (32, ("s8", "u8"), ("s32",), _WHOLE),
    "b1": (256, ("b1",), ("s32",), _WHOLE),
}
_FRAGMENT = 4  # registers of A
_ROWS = 64  # of A
_BRICK_BYTES = 16  # of one row


_PRODUCT = {
    "lanes": "own",
    "adds_to_result": True,
    "multiplies_matrices": True,
    "asynchronous": True,
}
_WAIT_FORM = "it is wgmma.wait_group.sync.aligned n"
refuse_other_forms("wgmma", "this form of wgmma is not supported")


@effect(
    "wgmma.commit_group",
    has_result=False,
    group=GroupUse("commit", "products"),
    ptx="8.0",
    arch="sm_90a",
)
def commit_products(e: Context, instruction: Instruction) -> None:
    if instruction.parts[1:] != ("sync", "aligned") or instruction.operands:
        raise unsupported(instruction)
    e.call_or_leave("tw_wgmma_commit", e.mask(), instruction.line)


@waits("wgmma.fence", has_result=False, gathers="always", waits_for="warpgroup", ptx="8.0", arch="sm_90a")
def order_products(e: Context, instruction: Instruction) -> Value:
    """Bring the lanes of a warp together, and nothing else: registers are memory here, and in order."""
    if instruction.parts[1:] != ("sync", "aligned") or instruction.operands:
        raise unsupported(instruction, _WAIT_FORM)
    return e.const("i32", 0)


@waits(
    "wgmma.wait_group",
    has_result=False,
    gathers="always",
    waits_for="warpgroup",
    group=GroupUse("wait", "products"),
    ptx="8.0",
    arch="sm_90a",
)
def await_products(e: Context, instruction: Instruction) -> Value:
    """Wait for groups: 0 if the warp may go on, 1 if it has to wait for others, 2 if it failed."""
    operands = instruction.operands
    if instruction.parts[1:] != ("sync", "aligned") or len(operands) != 1:
        raise unsupported(instruction, _WAIT_FORM)
    if not isinstance(operands[0], Immediate) or not 0 <= operands[0].value < 2**31:
        raise unsupported(instruction, "it takes a number of groups that may stay in flight")
    return e.call("tw_wgmma_wait", "i32", *e.pointers(), operands[0].value, e.mask(), instruction.line)


# -- forms ------------------------------------------------------------------------------------------
def _form(
    instruction: Instruction, given: tuple[str, ...], selector: Operand | None, immediates: list[int]
) -> tuple[WgmmaForm, int]:
    """What an instruction multiplies, and by how many columns."""
    words = [word for word in given if word not in ("satfinite", "and", "popc")]
    if len(words) != 4 or words[2] not in _FORMS or (selector and words[2] == "b1"):
        raise unsupported(instruction, "this form of wgmma is not supported")
    shape, d_type, a_type, b_type = words
    k, b_types, d_types, columns = _FORMS[a_type]
    k = 2 * k if selector else k
    if b_type not in b_types or d_type not in d_types:
        raise unsupported(instruction, f"not with the types {d_type}, {a_type} and {b_type}")
    n = next((n for n in columns if shape == f"m64n{n}k{k}"), 0)
    if not n:
        raise unsupported(instruction, f"not the shape {shape} with {a_type}; it is m64nNk{k}")
    _check_modifiers(instruction, a_type)
    shared = not isinstance(instruction.operands[1], Vector)
    scales, across = _modifiers(instruction, a_type, immediates, shared)
    negative = scales[0] != scales[1]
    saturate = "satfinite" in instruction.parts
    sparsity = find_sparsity(instruction, ELEMENTS[a_type].bits, k, selector) if selector else None
    return WgmmaForm(a_type, b_type, d_type, shared, across[0], across[1], negative, saturate, sparsity), n


def _check_modifiers(instruction: Instruction, a_type: str) -> None:
    parts = instruction.parts
    bits = [part for part in parts if part in ("and", "popc")]
    if bits != (["and", "popc"] if a_type == "b1" else []):
        raise unsupported(instruction, "b1 takes and.popc, and no other type does")
    if "satfinite" in parts and (a_type not in ("s8", "u8") or parts.count("satfinite") > 1):
        raise unsupported(instruction, "satfinite is for integers of 8 bits")


def _modifiers(
    instruction: Instruction, a_type: str, given: list[int], shared: bool
) -> tuple[tuple[int, int], tuple[bool, bool]]:
    """What A and B are multiplied by, and whether each is MN-major."""
    if a_type in ("s8", "u8", "b1"):
        if given:
            raise unsupported(instruction, "it ends with the predicate scale-d")
        return (1, 1), (False, False)
    turns = {"f16": 1 + shared, "bf16": 1 + shared}.get(a_type, 0)
    if len(given) != 2 + turns:
        raise unsupported(instruction, f"it takes {2 + turns} numbers behind the predicate scale-d")
    if any(scale not in (1, -1) for scale in given[:2]) or any(turn not in (0, 1) for turn in given[2:]):
        raise unsupported(instruction, "A and B are scaled by 1 or -1, and transposed by 0 or 1")
    across = [bool(turn) for turn in given[2:]]
    across = [False] * (2 - len(across)) + across
    return (given[0], given[1]), (across[0], across[1])


def matrices_of(e: Context, instruction: Instruction) -> list[tuple[Value, bool, int, int, bool]]:
    """The matrices in shared memory that a product reads: of each its descriptor, whether it is A, its rows in
    eights (of A, a warp's), its bricks along K, and whether it is MN-major."""
    operands, sparse = instruction.operands, instruction.parts[1] == "sp"
    at = 5 if sparse else 3
    immediates = [item.value for item in operands[at + 1 :] if isinstance(item, Immediate)]
    words = instruction.parts[4 if sparse else 3 :]
    form, n = _form(instruction, words, operands[4] if sparse else None, immediates)
    of_b = (_descriptor(e, operands[2]), False, n // 8, form.depth // form.brick, form.b_across)
    if not form.a_shared:
        return [of_b]
    return [(_descriptor(e, operands[1]), True, 2, form.k // form.brick, form.a_across), of_b]


def shared_bytes_of(instruction: Instruction) -> int:
    """What a product of four warps reads of shared memory: B, and A where it is there."""
    operands, sparse = instruction.operands, "sp" in instruction.parts[1:2]
    at = 5 if sparse else 3
    if len(operands) <= at:
        return 0  # which is refused where it is lowered
    immediates = [item.value for item in operands[at + 1 :] if isinstance(item, Immediate)]
    words = instruction.parts[4 if sparse else 3 :]
    form, n = _form(instruction, words, operands[4] if sparse else None, immediates)
    rows = _ROWS * form.k if form.a_shared else 0
    return (rows + n * form.depth) // form.brick * _BRICK_BYTES


# -- issuing ----------------------------------------------------------------------------------------
@effect("wgmma.mma_async", "wgmma.mma_async.sp", **_PRODUCT, ptx="8.0", arch="sm_90a")
def issue_product(e: Context, instruction: Instruction) -> None:
    sparse = instruction.parts[1:2] == ("sp",)
    both, words = instruction.parts[1 + sparse : 3 + sparse], instruction.parts[3 + sparse :]
    if both != ("sync", "aligned"):
        raise unsupported(instruction)
    operands = instruction.operands
    at = 5 if sparse else 3  # of the predicate
    if len(operands) <= at:
        raise unsupported(
            instruction, f"it takes D, A, B{', metadata, a selector' * sparse} and a predicate at least"
        )
    immediates = [item.value for item in operands[at + 1 :] if isinstance(item, Immediate)]
    if len(immediates) != len(operands) - at - 1:
        raise unsupported(instruction, "numbers expected behind the predicate scale-d")
    form, n = _form(instruction, words, operands[4] if sparse else None, immediates)
    form = replace(form, hardware=e.sums == "hardware")
    d = _register_offsets(e, instruction, operands[0], n // (4 if form.d_type == "f16" else 2), "D")
    metadata = _register_offsets(e, instruction, operands[3], 1, "the metadata")[0] if sparse else 0
    products = e.program.products
    assert products is not None
    if form.a_shared:
        a = _descriptor(e, operands[1])
    else:
        table = e.constant_table(_register_offsets(e, instruction, operands[1], _FRAGMENT, "A"))
        a = e.set("i64", f"ptrtoint ptr {table} to i64")
    queued = (_info(e, form, n, d, products.away), e.const("i64", products.records))
    matrices = (a, _descriptor(e, operands[2]), _adds(e, operands[at]), metadata)
    e.call_or_leave("tw_wgmma_issue", *queued, *matrices, e.mask(), instruction.line)


def _register_offsets(
    e: Context, instruction: Instruction, operand: Operand, count: int, matrix: str
) -> list[int]:
    """The offsets of registers in the warp's memory."""
    items = items_of(operand)
    if len(items) != count:
        raise unsupported(instruction, f"{len(items)} registers for {matrix} where it takes {count}")
    found = []
    for item in items:
        if not isinstance(item, Register) or item.name not in e.types or bits_of(e.types[item.name]) != 32:
            raise unsupported(instruction, f"{matrix} must be registers of 32 bits")
        found.append(e.program.slots[item.name])
    return found


def _descriptor(e: Context, operand: Operand) -> Value:
    if e.analysis.is_uniform(operand):
        return read(e, operand, "u64", False)
    return e.first_lane(read(e, operand, "u64", True))


def _adds(e: Context, operand: Operand) -> Value:
    """Whether the product is added to what D holds, as an i32."""
    if isinstance(operand, Immediate):
        return e.const("i32", int(operand.value != 0))
    if not isinstance(operand, Register | Not):
        raise unsupported(e.now, "a predicate expected behind B")
    if e.analysis.is_uniform(operand):
        value = read(e, operand, "pred", False)
    else:
        value = e.differs(e.op("and", e.bits(read(e, operand, "pred", True)), e.mask()), 0)
    return e.cast("zext", value, "i32")


# -- what is known when the kernel is compiled ------------------------------------------------------
def _info(e: Context, form: WgmmaForm, n: int, places: list[int], away: int) -> str:
    """The constant that ``wgmma_queue.INFO`` describes."""
    for name, make in ((form.pack_name, pack), (form.name, multiply)):
        if name not in e.definitions:
            make(form).define_in(e)
    items = f"ptr @{form.pack_name}, ptr @{form.name}, ptr {e.constant_table(places)}, i64 {away}"
    items += f", i32 {len(places)}, i32 {n // 8}, i32 {form.most}"
    return e.constant("{ ptr, ptr, ptr, i64, i32, i32, i32 }", f"{{ {items} }}", align=8)
