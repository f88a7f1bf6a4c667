"""The emulator's own layout of tensor maps: 128 bytes, as many as hardware's, whose bits are not public.

This is the one place that knows their layout. ``encode`` makes one for the host; ``tensormap.replace``
(``bulk_requests.py``) changes fields of one in memory; copies (``tensor.py``) read it. One that begins with
other bytes than ``MAGIC`` was made by someone else or is damaged, and every use of it is a fault. Nothing
but zeros is a map none of whose fields has been set yet, which is how compilers begin one.
"""

from __future__ import annotations

import struct

__all__ = ["AXES", "BYTES", "ELEMENT_SIZES", "LIMITS", "MAGIC", "MAP", "MODES", "OF_MAPS", "WRONG", "encode"]

MAGIC = 0x0001_5041_4D54_5754  # "TWTMAP" and the layout's version
BYTES = 128
AXES = 5
LIMITS = {"size": 1 << 32, "stride": 1 << 40, "box": 256, "step": 8, "pixels": 1_024}
# By the number that PTX gives each element type: u8, u16, u32, s32, u64, s64, f16, f32, f32.ftz, f64, bf16,
# tf32, tf32.ftz.
ELEMENT_SIZES = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4)
MODES = {"tiled": 0, "im2col": 1}


class MAP:
    """Offsets. Axes come innermost first; those beyond the rank are not looked at."""

    MAGIC, ADDRESS = 0, 8
    STRIDES = 16  # 4 × 64 bits, in bytes: of the axes but the innermost
    SIZES = 48  # 5 × 64 bits
    BOX = 88  # 5 × 16 bits; of an im2col map: channels, pixels
    STEPS = 98  # 5 × 8 bits: from one element that is taken to the next
    RANK, ELEMENT, INTERLEAVE, SWIZZLE, NAN, MODE = 103, 104, 105, 106, 107, 108
    LOWER, UPPER = 110, 116  # 3 × 16 bits each, signed: corners of an im2col map's bounding box


WRONG = (
    "",
    "it was not made by this emulator, or it is damaged: pass a tw.TensorMap",
    "its rank is not the number of coordinates of the instruction",
    "it is for im2col copies, and the instruction is not",
    "it is for tiled copies, and the instruction is for im2col ones",
    "its address or a stride is not a multiple of 16 bytes (of 32, with an interleave of 32)",
    "a size of it is 0",
    "a length of its box is 0 or more than 256, or it has more than 1,024 pixels",
    "a row of its box has bytes that are no multiple of 16, or more than its swizzle is wide",
    "an element stride of it is not from 1 to 8",
    "its element type, interleave, swizzle or fill is none that there is",
    "it has more than 5 axes or none, or too few for its interleave or for im2col",
    "the innermost coordinate times the size of an element is not a multiple of 16 bytes",
    "the coordinates are outside the bounding box of its im2col copies",
    "an im2col offset is too large for the number of axes",
    "a store to a negative coordinate",
    "the operation is none that its element type has",
    "the shared address is not a multiple of 128 bytes",
    "its size is not a multiple of 16 bytes",
    "an address of it is not a multiple of 16",
    "st.bulk writes a multiple of 8 bytes, and 16,777,216 at most",
)  # what is wrong with a copy, by the number that the run-time support reports
OF_MAPS = range(1, 17)  # those that are about a tensor map


def encode(
    element: int,
    address: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    steps: tuple[int, ...],
    interleave: int,
    swizzle: int,
    nan: bool,
    lower: tuple[int, ...] = (),
    upper: tuple[int, ...] = (),
    im2col: bool = False,
) -> bytes:
    """A tensor map of fields that have been checked. Interleave and swizzle are in bytes, 0 for none."""
    mode, turned = MODES["im2col" if im2col else "tiled"], {0: 0, 32: 1, 64: 2, 128: 3}[swizzle]
    made = bytearray(BYTES)
    for offset, code, numbers in (
        (MAP.MAGIC, "Q", (MAGIC, address)),
        (MAP.STRIDES, "Q", strides),
        (MAP.SIZES, "Q", sizes),
        (MAP.BOX, "H", box),
        (MAP.STEPS, "B", steps),
        (MAP.RANK, "B", (len(sizes), element, interleave // 16, turned, nan, mode)),
        (MAP.LOWER, "h", lower),
        (MAP.UPPER, "h", upper),
    ):
        struct.pack_into(f"<{len(numbers)}{code}", made, offset, *numbers)
    return bytes(made)
