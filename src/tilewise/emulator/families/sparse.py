"""``mma.sp``: A has only half of its elements, and metadata that says where each of them belongs.

Every chunk of neighbours in a row of A keeps half of them: two of four (16 and 8 bits), one of two (tf32),
two pairs of four pairs (4 bits). Four bits of metadata say which. 32 bits of it, in one register of one
lane, are for one row of A (8 and 4 bits) or for half a row, in the low half, and half of the row eight
further down, in the high half (the others). What A does not keep is skipped: no element of B meets a zero.
"""

from __future__ import annotations

from tilewise.emulator.lowering.tables import unsupported
from tilewise.emulator.numerics.tensor_core import Sparsity
from tilewise.emulator.ptx.syntax import Immediate, Instruction, Operand

__all__ = ["SPARSE", "find_sparsity"]

_HALF = ("f16", "f32")
# Shape and element type → the types that sums may have.
SPARSE: dict[tuple[str, str], tuple[str, ...]] = {
    ("m16n8k16", "f16"): _HALF,
    ("m16n8k32", "f16"): _HALF,
    ("m16n8k16", "bf16"): ("f32",),
    ("m16n8k32", "bf16"): ("f32",),
    ("m16n8k8", "tf32"): ("f32",),
    ("m16n8k16", "tf32"): ("f32",),
    ("m16n8k64", "f8"): ("f32",),
    ("m16n8k32", "i8"): ("s32",),
    ("m16n8k64", "i8"): ("s32",),
    ("m16n8k64", "i4"): ("s32",),
    ("m16n8k128", "i4"): ("s32",),
}


def find_sparsity(instruction: Instruction, bits: int, k: int, operand: Operand) -> Sparsity:
    """The sparsity of a form, by the bits of an element of A and its selector."""
    chunk = {32: 2, 4: 8}.get(bits, 4)
    lanes = 2 * (4 * k // chunk) // 32  # of each four, that give metadata: for two rows, 32 bits each
    if not isinstance(operand, Immediate) or not 0 <= operand.value < 4 // lanes:
        raise unsupported(instruction, f"its sparsity selector must be a number below {4 // lanes}")
    return Sparsity(chunk, 2 if bits == 4 else 1, bits < 16, operand.value * lanes)
